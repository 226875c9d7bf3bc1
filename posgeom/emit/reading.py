"""An exported file read back, once its numbers and its passport are known to agree."""

from math import isclose
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from posgeom.emit.emission import NAMES_A_FILE, Emission, describe, digest
from posgeom.emit.forms import Tensors, tensors_of
from posgeom.emit.opening import open_exported
from posgeom.encodings import (
    FAMILIES,
    Alibi,
    BiasEncoding,
    Encoding,
    FixedTable,
    Rotary,
    Shaw,
    T5Bias,
    TableEncoding,
    make_encoding,
    parse_spec,
)
from posgeom.encodings.weights import check_table
from posgeom.errors import PosgeomError

LARGEST = 1 << 20  # of a dimension or number of heads, whose numbers are made before all is known
MOST_TERMS = 1 << 28  # of a bias: offsets × dimensions
FURTHEST = 1 << 31  # position
RTOL = 1e-6  # machines differ in the last bits of sines and powers
FIRST = ("table", "inv_freq", "slopes", "bias_table", "vectors", "bias")  # see tensors_of
# What a file need not have as it is computed anew: names, and types that JSON does not keep.
FREE = {
    "encoding",
    "family",
    "spec",
    "tensor",
    "dtype",
    "parameters",
    "rows_left_behind",
    "row_norm",
}


def read_emission(file: str | PathLike[str]) -> Emission:
    """What export wrote as safetensors, npz, torch or json; the content says which.

    Raises PosgeomError for a file that holds something else or a pickle, that takes more memory
    than it is long, that was changed since, for tensors of wrong shapes or with NaN, and where the
    numbers are not those of the passport's spec, or the passport is not that of the numbers.
    """
    path = Path(file)
    if not path.is_file():
        raise PosgeomError(f"{path} is no file; give one that `posgeom export` wrote")
    tensors, passport = open_exported(path)
    # safetensors and JSON have an order of their own
    tensors = {name: tensors[name] for name in sorted(tensors, key=lambda name: name not in FIRST)}
    if not isinstance(passport, dict) or not isinstance(passport.get("encoding"), str):
        raise PosgeomError(f"{path} has no passport of an encoding; export it again")
    for name, tensor in tensors.items():
        _check_numbers(tensor, f"{name} of {path}")
    if passport.pop("sha256", None) != digest(passport, tensors):
        raise PosgeomError(
            f"{path} was changed since it was exported: it has not the SHA-256 that its passport "
            "says; export it again"
        )
    encoding = _encoding(tensors, passport, path)
    _check_passport(passport, encoding, describe(encoding, tensors), path)
    return Emission(encoding, tensors, passport)


def _check_numbers(tensor: np.ndarray[Any, Any], origin: str) -> None:
    if tensor.dtype.kind not in "fiu" or tensor.ndim not in (1, 2) or not tensor.size:
        raise PosgeomError(
            f"{origin} is {tensor.dtype} of shape {tensor.shape}; give numbers, one or two axes"
        )
    if not np.isfinite(tensor).all():
        raise PosgeomError(f"{origin} holds NaN or infinity; give finite numbers")


def _encoding(tensors: Tensors, passport: dict[str, Any], path: Path) -> Encoding:
    """The encoding of the tensors, by the passport's spec where it has one."""
    name, spec = passport["encoding"], passport.get("spec")
    if spec is not None:
        return _of_spec(str(spec), tensors, path)
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
        distance, causal = passport.get("max_distance", 128), passport.get("causal", False)
        if type(distance) is not int or type(causal) is not bool:
            raise PosgeomError(
                f"{path} says max_distance {distance!r}, causal {causal!r}; a whole number and "
                "true or false are wanted"
            )
        return T5Bias(
            array=values, buckets=len(values), spec=name, max_distance=distance, causal=causal
        )
    if "vectors" in tensors:
        return Shaw(array=check_table(tensors["vectors"], str(path)), spec=name)
    raise PosgeomError(
        f"{path} holds {', '.join(tensors) or 'nothing'}, of which no encoding is made"
    )


def _of_spec(spec: str, tensors: Tensors, path: Path) -> Encoding:
    """The encoding of a spec, whose numbers those of the file must be."""
    parsed = parse_spec(spec)
    if parsed.address or parsed.options.keys() & NAMES_A_FILE:
        raise PosgeomError(
            f"the spec {spec} of {path} names another file, which is not opened; export it again"
        )
    sizes = [parsed.options.get(key, "0") for key in ("dim", "heads", "buckets", "clip")]
    if any(len(text) > 7 or (text.isdecimal() and int(text) > LARGEST) for text in sizes):
        raise PosgeomError(f"the spec {spec} of {path} has sizes past {LARGEST:,}; no model has")
    encoding = make_encoding(spec)
    n = (len(tensors["offsets"]) + 1) // 2 if "offsets" in tensors else 1
    n = len(tensors["table"]) if "table" in tensors else n
    name, shape = _main(encoding, n)
    if name in tensors and tensors[name].shape == shape:  # which bounds what is made
        made = tensors_of(encoding, n)
        if all(key in tensors and _equal(x, tensors[key]) for key, x in made.items()):
            return encoding
    raise PosgeomError(f"the numbers of {path} are not those of its spec {spec}; export it again")


def _main(encoding: Encoding, n: int) -> tuple[str, tuple[int, ...]]:
    """Name and shape of the first of tensors_of(encoding, n), nothing of it made."""
    if isinstance(encoding, TableEncoding):
        return "table", (n, getattr(encoding, "dim", 0))
    if isinstance(encoding, Rotary):
        return "inv_freq", (encoding.n_pairs,)
    if isinstance(encoding, Alibi):
        return "slopes", (encoding.heads,)
    if isinstance(encoding, T5Bias):
        return "bias_table", (encoding.buckets, encoding.heads)
    if isinstance(encoding, Shaw):
        return "vectors", (2 * encoding.clip + 1, encoding.dim)
    if isinstance(encoding, BiasEncoding) and 2 * n * getattr(encoding, "dim", 1) <= MOST_TERMS:
        return "bias", (2 * n - 1, encoding.heads)
    return "none", ()


def _equal(made: np.ndarray[Any, Any], held: np.ndarray[Any, Any]) -> bool:
    if made.shape != held.shape:
        return False
    near = RTOL * float(np.abs(made).max()) if made.dtype == np.float32 else 0.0
    return bool(np.allclose(held, made, rtol=RTOL, atol=near))


def _check_passport(
    passport: dict[str, Any], encoding: Encoding, true: dict[str, Any], path: Path
) -> None:
    """PosgeomError where a passport says of the numbers what they are not."""
    family, own = passport.get("family", encoding.family), encoding.family
    if family != own and (not isinstance(family, str) or {family, own} & FAMILIES.keys()):
        raise PosgeomError(
            f"{path} says that it is of the family {family!r}, its numbers are of "
            f"{own}; export it again"
        )
    for key in sorted(true.keys() - FREE):
        said, value = passport.get(key, true[key]), true[key]
        close = isinstance(value, float) and type(said) in (int, float)
        if not (isclose(said, value, rel_tol=RTOL) if close else said == value):
            raise PosgeomError(
                f"{path} says {key} {said!r}, its numbers {value!r}; export it again"
            )


def _numbers_rows(index: np.ndarray[Any, Any], n: int) -> bool:
    """Whether an array gives each of n rows a position of its own, in order, from 0 on."""
    return (
        index.shape == (n,)
        and index.dtype.kind in "iu"
        and int(index[0]) >= 0
        and int(index[-1]) < FURTHEST
        and bool((np.diff(index.astype(np.int64)) > 0).all())
    )
