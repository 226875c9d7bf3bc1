"""The README keeps its word: its code runs, its commands exist, its tree is the repository's."""

import re
import shlex
from pathlib import Path

import click
import pytest

from posgeom.cli import cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    found = re.findall(r"^```(\w*)\n(.*?)^```", README, re.S | re.M)
    return [text for tag, text in found if tag == language]


def test_the_python_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = blocks("python")[0]  # the second needs torch, see test_torch_example
    names = {}
    exec(code, names)
    assert names["table"].shape == (64, 128)
    assert names["scores"]["encoding"].tolist()[-1] == "mds:rank=3"
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.parametrize(
    "line", [line for block in blocks("bash") for line in block.splitlines() if "posgeom" in line]
)
def test_each_command_parses(line):
    """Options and arguments are those that the commands have."""
    _, *words = shlex.split(line[line.index("posgeom ") :].partition("#")[0])
    command = cli.commands[words[0]]
    context = command.make_context(words[0], words[1:])
    assert isinstance(context, click.Context)


def test_the_tree_names_every_file():
    (tree,) = [b for b in blocks("") if b.startswith("posgeom/")]
    for path in sorted((ROOT / "posgeom").rglob("*.py")):
        relative = path.relative_to(ROOT / "posgeom")
        name = relative.name if relative.name != "__init__.py" else f"{relative.parent}/"
        assert name.replace("./", "__init__.py") in tree, (
            f"the README's tree does not name {relative}"
        )
    for folder in ("pipelines/", "data/", "reports/", "tests/"):
        assert folder in tree


def test_the_table_of_files_is_what_a_run_writes():
    from posgeom.emit.folder import FILES

    for name in FILES:
        assert f"`{name}" in README
