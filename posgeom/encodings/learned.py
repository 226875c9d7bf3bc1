"""Learned tables, read from the files that models leave."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from posgeom.encodings.table import FixedTable
from posgeom.errors import PosgeomError

KNOWN_KEYS = ("wpe.weight", "position_embeddings.weight", "embed_positions.weight")


@dataclass(frozen=True, kw_only=True, eq=False)
class LearnedTable(FixedTable):
    """A table that a model learned."""

    family: ClassVar[str] = "learned"


def learned_table(address: str, spec: str = "") -> LearnedTable:
    """The table at PATH or PATH#KEY, a .npy, .npz or .safetensors file; row i is position i.

    Without a key: the only two-dimensional tensor, or the only one with a known name (GPT-2's
    `wpe.weight`, BERT's `position_embeddings.weight`, OPT's `embed_positions.weight`, under any
    prefix).  Raises PosgeomError for a file that is missing or of another kind, for a key that
    is not there, and for NaN or infinity in the table.
    """
    path, _, key = address.partition("#")
    suffix = Path(path).suffix.lower()
    if not Path(path).is_file():
        raise PosgeomError(f"learned table {path} is not a file; give PATH or PATH#KEY")
    try:
        if suffix == ".npy":
            table = np.load(path, allow_pickle=False)
        elif suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                shapes = {name: arrays[name].shape for name in arrays.files}
                table = arrays[choose_key(shapes, key, path)]
        elif suffix == ".safetensors":
            table = _read_safetensors(path, key)
        else:
            raise PosgeomError(
                f"learned table {path} ends in {suffix or 'nothing'}; "
                "give a .npy, .npz or .safetensors file"
            )
    except PosgeomError:
        raise
    except Exception as error:  # each format has its own exceptions for a broken file
        raise PosgeomError(f"learned table {path} cannot be read as {suffix}: {error}") from error
    return LearnedTable(rows=check_table(table, path), spec=spec)


def _read_safetensors(path: str, key: str) -> NDArray[np.generic]:
    from safetensors import safe_open

    with safe_open(path, framework="np") as tensors:
        names = tensors.keys()
        shapes = {name: tuple(tensors.get_slice(name).get_shape()) for name in names}
        chosen = choose_key(shapes, key, path)
        try:
            table: NDArray[np.generic] = tensors.get_tensor(chosen)
        except TypeError as error:
            dtype = tensors.get_slice(chosen).get_dtype()
            raise PosgeomError(
                f"tensor {chosen} of {path} is {dtype}; save it as float32"
            ) from error
        return table


def choose_key(shapes: dict[str, tuple[int, ...]], key: str, path: str) -> str:
    """The key of the position table among tensors of these shapes; PosgeomError if unclear."""
    if key:
        if key not in shapes:
            raise PosgeomError(f"{path} has no tensor {key}; it has {_listed(shapes)}")
        return key
    tables = [name for name, shape in shapes.items() if len(shape) == 2]
    known = [name for name in tables if name.endswith(KNOWN_KEYS)]
    for candidates in (known, tables):
        if len(candidates) == 1:
            return candidates[0]
    raise PosgeomError(
        f"{path} does not say which tensor holds the positions; "
        f"name one as {path}#KEY, of {_listed(known or tables or shapes)}"
    )


def check_table(table: NDArray[np.generic], origin: str) -> NDArray[np.float64]:
    """The table as float64 (n, d), once it is known to be two-dimensional and finite."""
    if table.ndim != 2 or 0 in table.shape or table.dtype.kind not in "fiu":
        raise PosgeomError(
            f"learned table {origin} is {table.dtype} of shape {table.shape}; "
            "give numbers of shape (positions, dimensions)"
        )
    rows = table.astype(np.float64)
    broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if broken.size:
        raise PosgeomError(
            f"learned table {origin} holds NaN or infinity in row {broken[0]} "
            f"({broken.size} rows in all); give a table of finite numbers"
        )
    return rows


def _listed(names: Iterable[str], most: int = 8) -> str:
    names = sorted(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
