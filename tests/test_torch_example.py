"""The example of an emitted layer in a model, run as it is written; and who imports torch."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
EXAMPLE = next(
    code for code in re.findall(r"^```python\n(.*?)^```", README, re.S | re.M) if "torch" in code
)


@pytest.mark.slow
def test_example(tmp_path, monkeypatch, no_report):
    import torch

    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    names = {}
    exec(EXAMPLE, names)
    losses = names["losses"]
    assert len(losses) == 30
    assert losses[-1] < 0.8 * losses[0]
    made, trained = (
        names["LowRankPositionalEncoding"].from_run("run").table(),
        names["model"].positions.table(),
    )
    assert made.shape == trained.shape == (64, 32)
    assert not torch.equal(made, trained), "the positions were not trained"


def test_the_layers_import_nothing_but_torch():
    """`posgeom.torch` brings torch, and neither transformers nor what draws."""
    heavy = ("torch", "transformers", "matplotlib", "pandas", "datasets")
    program = f"import posgeom.torch, sys; print([m for m in {heavy} if m in sys.modules])"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "['torch']"


def test_the_core_imports_no_layer():
    """Every other module, in a process that has no torch."""
    program = """
import importlib, pkgutil, sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("no torch here")

sys.meta_path.insert(0, NoTorch())
import posgeom
NEED_TORCH = ("posgeom.torch", "posgeom.transformers", "posgeom.paper.training")
for module in pkgutil.walk_packages(posgeom.__path__, "posgeom."):
    if not module.name.startswith(NEED_TORCH):
        importlib.import_module(module.name)
print(any(name.startswith("posgeom.torch") for name in sys.modules))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout.strip() == "False", ran.stderr
