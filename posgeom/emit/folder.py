"""A run as a folder, written whole or not at all."""

import json
import platform
import sys
import tempfile
import tomllib
from collections.abc import Callable
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posgeom.atomic import check_out, check_out_file, written_folder
from posgeom.counts import PositionCounts
from posgeom.emit.tensors import read_tensors, write_tensors
from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry
from posgeom.scoring import COLUMNS
from posgeom.stationarity import Stationarity

if TYPE_CHECKING:
    from posgeom.design import Design

FILES = (
    "counts.npz",
    "geometry.npz",
    "encoding.safetensors",
    "scores.csv",
    "report.html",
    "figures",
    "run.toml",
    "provenance.json",
    "tokenizer.json",
    "gains.csv",
)
ERRORS = ("replicates", "halves", "lumped")  # arrays of a geometry that has errors
LIBRARIES = ("numpy", "scipy", "pandas", "tokenizers", "safetensors", "matplotlib")


def check_run(folder: str | PathLike[str], *, force: bool = False) -> Path:
    """The folder as a path, once a design may be written there; see check_out."""
    return check_out(folder, FILES, "run.toml", force=force)


def save_design(
    design: "Design",
    folder: str | PathLike[str],
    *,
    force: bool = False,
    progress: bool = False,
) -> Path:
    """Write a design to a temporary folder beside the final one, then rename it."""
    from posgeom.report import write_report

    with written_folder(folder, FILES, "run.toml", force=force) as out:
        design.counts.save(out / "counts.npz")
        write_geometry(design.geometry, out / "geometry.npz")
        write_tensors(design, out / "encoding.safetensors")
        design.scores.to_csv(out / "scores.csv", index=False, lineterminator="\n")
        design.gains.to_csv(out / "gains.csv", index=False, lineterminator="\n")
        (out / "run.toml").write_text(run_toml(design), encoding="utf-8")
        about = made_with() | {"seed": design.settings["seed"]} | design.provenance
        (out / "provenance.json").write_text(
            json.dumps(about, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        if design.tokenizer is not None:
            (out / "tokenizer.json").write_text(design.tokenizer, encoding="utf-8")
        write_report(design, out, progress=progress)
    return Path(folder)


def save_counts(counts: PositionCounts, file: str | PathLike[str], *, force: bool = False) -> None:
    """Write counts under a temporary name beside the final one, then rename them."""
    out = check_out_file(file, force=force)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as partial:
            counts.save(Path(partial) / "counts.npz")
            (Path(partial) / "counts.npz").replace(out)
    except OSError as error:
        raise PosgeomError(
            f"--out {file} cannot be written ({error.strerror or error}); give another file"
        ) from error


def load_design(folder: str | PathLike[str]) -> dict[str, Any]:
    """The fields of a Design from the folder of a run; PosgeomError if it holds none."""
    import pandas as pd

    out = Path(folder)
    needed = (*FILES[:4], "run.toml", "provenance.json")
    missing = [name for name in needed if not (out / name).is_file()]
    if missing:
        raise PosgeomError(f"{out} is not the folder of a run: it has no {missing[0]}")
    tokenizer = out / "tokenizer.json"
    held: dict[str, Any] = {}
    # only numbers may be missing: an encoding may well be called "none"
    numbers = {name: [""] for name in COLUMNS if name not in ("encoding", "family", "note")}
    readers: dict[str, Callable[[Path], Any]] = {
        "run.toml": lambda path: tomllib.loads(path.read_text(encoding="utf-8"))["stage"][0],
        "provenance.json": lambda path: json.loads(path.read_text(encoding="utf-8")),
        "scores.csv": lambda path: pd.read_csv(path, keep_default_na=False, na_values=numbers),
    }
    for name, read in readers.items():
        try:
            held[name] = read(out / name)
        except (OSError, ValueError, LookupError) as error:
            raise PosgeomError(f"{out / name} is broken ({error}); make the run again") from error
    stage = held["run.toml"]
    tables, _ = read_tensors(out / "encoding.safetensors")
    return {
        "counts": PositionCounts.load(out / "counts.npz"),
        "geometry": read_geometry(out / "geometry.npz"),
        "scores": held["scores.csv"],
        "settings": {key: value for key, value in stage.items() if key != "job"},
        "provenance": held["provenance.json"],
        "tokenizer": tokenizer.read_text(encoding="utf-8") if tokenizer.is_file() else None,
    } | tables


def write_geometry(geometry: Geometry, file: str | PathLike[str]) -> None:
    """Write a geometry as .npz: arrays by name, the rest as JSON bytes; nothing pickled.

    `replicates` (K, n, n), `halves` (H, n, n) and `lumped` (n, n) hold what the errors are taken
    from, and `eigenvalues` (n,) those of the test of stationarity; a plug-in geometry has none.
    """
    test = geometry.stationarity
    about = {
        "metric": geometry.metric,
        "estimator": geometry.estimator,
        "grid": geometry.grid,
        "left_out": geometry.left_out,
        "notes": geometry.notes,
        "stationarity": test
        and {
            "p_value": test.p_value,
            "significant": test.significant,
            "limit": test.limit,
            "typical": test.typical,
        },
    }
    arrays: dict[str, Any] = {
        "distances": geometry.distances,
        "squared_distances": geometry.squared,
        "totals": geometry.totals,
        "positions": geometry.positions,
        "about": np.frombuffer(json.dumps(about).encode(), dtype=np.uint8),
    }
    if test is not None:
        arrays["eigenvalues"] = test.eigenvalues
    for name in ERRORS:
        if getattr(geometry, name) is not None:
            arrays[name] = getattr(geometry, name)
    np.savez_compressed(file, **arrays)


def read_geometry(file: str | PathLike[str]) -> Geometry:
    """A geometry that write_geometry wrote; PosgeomError for a file that holds none."""
    try:
        # opened here, since np.load leaves a broken file open
        with open(file, "rb") as data, np.load(data, allow_pickle=False) as saved:
            about = json.loads(saved["about"].tobytes())
            test = about["stationarity"]
            return Geometry(
                squared=saved["squared_distances"],
                totals=saved["totals"],
                positions=saved["positions"],
                metric=about["metric"],
                estimator=about["estimator"],
                grid=tuple(about["grid"]) if about["grid"] else None,
                left_out=tuple(about["left_out"]),
                notes=tuple(about["notes"]),
                stationarity=test and Stationarity(**test, eigenvalues=saved["eigenvalues"]),
                **{name: saved.get(name) for name in ERRORS},
            )
    except Exception as error:  # zip, JSON and array faults: all mean the same to a reader
        raise PosgeomError(f"{file} holds no geometry: {error}") from error


def run_toml(design: "Design") -> str:
    """The settings as a pipeline of one stage."""
    import tomli_w

    head = (
        f"# posgeom {version('posgeom')}: `posgeom run` of this file makes the same again.\n"
        if "source" in design.settings
        else "# The corpus came from a Python program: set `source` before `posgeom run`.\n"
    )
    return head + tomli_w.dumps({"stage": [{"job": "design"} | design.settings]})


def made_with() -> dict[str, Any]:
    """Versions, platform and command of this run: JSON values."""
    return {
        "posgeom": version("posgeom"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "libraries": {name: version(name) for name in LIBRARIES},
        "command": sys.argv,
    }
