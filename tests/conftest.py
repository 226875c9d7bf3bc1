"""Fixtures that several test files share: the command line in this process, and small corpora."""

import contextlib
import io
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from posgeom import cli


def call(*arguments):
    """`posgeom ARGUMENTS` in this process: code, out, err."""
    out, err = io.StringIO(), io.StringIO()
    argv = ["posgeom", *map(str, arguments)]
    with (
        mock.patch.object(sys, "argv", argv),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as left,
    ):
        cli.main()
    return SimpleNamespace(code=left.value.code, out=out.getvalue(), err=err.getvalue())


def drifting_text(documents=240, seed=0, longest=20):
    """Lines of 4 to `longest` words whose frequencies change from the first word to the last."""
    draw = random.Random(seed)
    words = [a + b for a in ("ka", "lo", "mi", "nu", "re", "ti") for b in ("s", "t", "n", "ra")]
    lines = []
    for _ in range(documents):
        length = draw.randint(4, longest)
        weights = [[1 / (1 + abs(w - p)) for w in range(len(words))] for p in range(length)]
        lines.append(" ".join(draw.choices(words, row)[0] for row in weights))
    return "".join(line + "\n" for line in lines)


@pytest.fixture
def run_cli():
    """The command line in this process, see call."""
    return call


@pytest.fixture
def posgeom_ok():
    """The command line for what must succeed: its result once the exit code is 0."""

    def run(*arguments):
        ran = call(*arguments)
        assert ran.code == 0, ran.err
        return ran

    return run


@pytest.fixture
def no_report(monkeypatch):
    """Runs are saved without report and figures, which take seconds."""
    monkeypatch.setattr("posgeom.report.write_report", lambda design, folder, **_: Path(folder))


@pytest.fixture(scope="session")
def text_file(tmp_path_factory):
    """A text corpus of 240 lines."""
    file = tmp_path_factory.mktemp("corpus") / "lines.txt"
    file.write_text(drifting_text(), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def full_run(tmp_path_factory, text_file):
    """A folder that `posgeom design` wrote, with report and figures, and what it printed."""
    folder = tmp_path_factory.mktemp("full") / "run"
    ran = call("design", text_file, "--positions", 8, "--dim", 16, "--out", folder)
    assert ran.code == 0, ran.err
    return SimpleNamespace(folder=folder, out=ran.out, err=ran.err)
