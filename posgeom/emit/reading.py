"""An exported file read back; a file of another origin is refused, and never run."""

import json
import zipfile
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from posgeom.emit.emission import Emission
from posgeom.emit.forms import Tensors, tensors_of
from posgeom.encodings import Encoding, FixedTable, T5Bias, make_encoding
from posgeom.encodings.weights import check_table
from posgeom.errors import PosgeomError


def read_emission(file: str | PathLike[str]) -> Emission:
    """What export wrote as safetensors, npz, torch or json; the content says which.

    Raises PosgeomError for a file that holds something else or a pickle, for tensors of wrong
    shapes or with NaN, and where the numbers are not those of the passport's spec.
    """
    path = Path(file)
    if not path.is_file():
        raise PosgeomError(f"{path} is no file; give one that `posgeom export` wrote")
    try:
        tensors, passport = _read(path)
    except Exception as error:  # each format has its own exceptions for a broken file
        line = " ".join(str(error).split())[:200]
        raise PosgeomError(
            f"{path} cannot be read as an exported encoding: {line}; give a safetensors, npz, "
            "torch or json file that `posgeom export` wrote"
        ) from error
    if not isinstance(passport, dict) or not isinstance(passport.get("encoding"), str):
        raise PosgeomError(f"{path} has no passport of an encoding; export it again")
    return Emission(_encoding(tensors, passport, path), tensors, passport)


def _read(path: Path) -> tuple[Tensors, Any]:
    with path.open("rb") as file:
        start = file.read(1)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as members:
            pickled = any(name.endswith("data.pkl") for name in members.namelist())
        tensors = _state(path) if pickled else _npz(path)
        return tensors, json.loads(tensors.pop("passport").tobytes())
    if start == b"{":
        held = json.loads(path.read_text("utf-8"))
        return {name: np.array(x) for name, x in held["tensors"].items()}, held["passport"]
    from safetensors import safe_open

    with safe_open(path, framework="np") as tensors_in:
        about = json.loads(tensors_in.metadata()["posgeom"])
        return {name: tensors_in.get_tensor(name) for name in tensors_in.keys()}, about  # noqa: SIM118


def _npz(path: Path) -> Tensors:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _state(path: Path) -> Tensors:
    import torch

    state = torch.load(path, weights_only=True, map_location="cpu")
    return {name: tensor.numpy() for name, tensor in state.items()}


def _encoding(tensors: Tensors, passport: dict[str, Any], path: Path) -> Encoding:
    """The encoding of the tensors, checked against the passport's spec where it has one."""
    name = passport["encoding"]
    if passport.get("spec"):
        encoding = make_encoding(str(passport["spec"]))
        made = tensors_of(encoding, _positions(tensors))
        main = next(iter(made))
        if main in tensors and np.array_equal(made[main], tensors[main]):
            return encoding
        raise PosgeomError(
            f"the numbers of {path} are not those of its spec {passport['spec']}; export it again"
        )
    if "table" in tensors:
        index = tensors.get("positions")
        rows = check_table(tensors["table"], str(path))
        if index is not None and not _numbers_rows(index, len(rows)):
            raise PosgeomError(
                f"positions of {path} do not number its {len(rows)} rows; export it again"
            )
        return FixedTable(rows=rows, index=index, spec=name)
    if "bias_table" in tensors:
        values = check_table(tensors["bias_table"], str(path))
        about = {key: passport[key] for key in ("max_distance", "causal") if key in passport}
        return T5Bias(array=values, buckets=len(values), spec=name, **about)
    raise PosgeomError(
        f"{path} holds {', '.join(tensors) or 'nothing'}, of which no encoding is made"
    )


def _positions(tensors: Tensors) -> int:
    """The n of tensors_of, by what is there and not by what the passport says."""
    if "offsets" in tensors:
        return (len(tensors["offsets"]) + 1) // 2
    return len(tensors["table"]) if "table" in tensors else 1


def _numbers_rows(index: np.ndarray[Any, Any], n: int) -> bool:
    """Whether an array gives each of n rows a position of its own, in order, from 0 on."""
    return (
        index.shape == (n,)
        and index.dtype.kind in "iu"
        and int(index[0]) >= 0
        and bool((np.diff(index.astype(np.int64)) > 0).all())
    )
