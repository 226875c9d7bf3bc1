"""Tensors from the files that models leave: .npy, .npz, .safetensors, sharded or not."""

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]

SUFFIXES = (".npy", ".npz", ".safetensors")
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model.pt", "model.pt")

# What safetensors calls its formats.  numpy has no bfloat16: it is read as the upper half of a
# float32, which it is.
FORMATS = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U8": "u1",
}


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies, and what it is."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: str  # as safetensors names it: F32, BF16, …
    offset: int = -1  # of its bytes, in a .safetensors file

    def read(self) -> NDArray[np.generic]:
        """The tensor as an array; bfloat16 comes as float32, which holds it exactly."""
        if self.path.suffix == ".npy":
            array: NDArray[np.generic] = np.load(self.path, allow_pickle=False)
            return array
        if self.path.suffix == ".npz":
            with np.load(self.path, allow_pickle=False) as arrays:
                array = arrays[self.name]
            return array
        if self.dtype not in FORMATS:
            raise PosgeomError(
                f"tensor {self.name} of {self.path} is {self.dtype}; save it as float32"
            )
        with self.path.open("rb") as file:
            file.seek(self.offset)
            raw = np.fromfile(file, FORMATS[self.dtype], int(np.prod(self.shape, dtype=np.int64)))
        raw = raw.reshape(self.shape)
        if self.dtype == "BF16":
            return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return raw


def tensors_of(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a file, or of a model folder, by name; no tensor is read.

    A folder: `model.safetensors`, or the shards that `model.safetensors.index.json` names.
    Raises PosgeomError for what is missing, broken or a pickle.
    """
    path = Path(path)
    if path.is_dir():
        return _folder_tensors(path)
    if not path.is_file():
        raise PosgeomError(f"learned table {path} is not a file; give PATH or PATH#KEY")
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise PosgeomError(
            f"learned table {path} ends in {suffix or 'nothing'}; "
            "give a .npy, .npz or .safetensors file, or a model's folder"
        )
    try:
        if suffix == ".npy":
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            return {"": Tensor(path, "", array.shape, str(array.dtype))}
        if suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return {
                    name: Tensor(path, name, arrays[name].shape, str(arrays[name].dtype))
                    for name in arrays.files
                }
        return _safetensors(path)
    except Exception as error:  # each format has its own exceptions for a broken file
        raise PosgeomError(f"learned table {path} cannot be read as {suffix}: {error}") from error


def _safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import safe_open

    with safe_open(path, framework="np"):  # checks the header against the file
        pass
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(size))
    header.pop("__metadata__", None)
    return {
        name: Tensor(
            path, name, tuple(about["shape"]), about["dtype"], 8 + size + about["data_offsets"][0]
        )
        for name, about in header.items()
    }


def _folder_tensors(folder: Path) -> dict[str, Tensor]:
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file():
        return tensors_of(whole)
    if index.is_file():
        try:
            shards = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise PosgeomError(f"{index} cannot be read as an index of shards: {error}") from error
        tensors: dict[str, Tensor] = {}
        for shard in shards:
            if not (folder / shard).is_file():
                raise PosgeomError(f"{index} names {shard}, which is not there; fetch it too")
            tensors |= tensors_of(folder / shard)
        return tensors
    pickles = [name for name in PICKLES if (folder / name).exists()]
    if pickles:
        raise PosgeomError(
            f"{folder} holds its weights in {pickles[0]}, a pickle, which can run code when it is "
            "opened; save the model as safetensors (save_pretrained does)"
        )
    raise PosgeomError(
        f"{folder} holds no model.safetensors; give a model's folder or a file of tensors"
    )


def choose_key(
    shapes: dict[str, tuple[int, ...]], key: str, path: str, known: Iterable[str]
) -> str:
    """The key of the table among tensors of these shapes; PosgeomError if unclear.

    Without a key: the only two-dimensional tensor whose name, or what stands behind a dot in it,
    is a known one, or the only two-dimensional one.
    """
    if key:
        if key not in shapes:
            raise PosgeomError(f"{path} has no tensor {key}; it has {listed(shapes)}")
        return key
    tables = [name for name, shape in shapes.items() if len(shape) == 2]
    endings = tuple(f".{ending}" for ending in known)  # not LayoutLM's h_position_embeddings
    named = [name for name in tables if f".{name}".endswith(endings)]
    # LUKE has a second table, of its entities
    named = [name for name in named if "entity_embeddings." not in name] or named
    for candidates in (named, tables):
        if len(candidates) == 1:
            return candidates[0]
    raise PosgeomError(
        f"{path} does not say which tensor holds the positions; "
        f"name one as {path}#KEY, of {listed(named or tables or shapes)}"
    )


def read_table(path: str, key: str, known: Iterable[str]) -> NDArray[np.generic]:
    """The chosen tensor of a file or folder, see choose_key."""
    tensors = tensors_of(path)
    if "" in tensors:  # a .npy file has one array, without a name
        if key:
            raise PosgeomError(f"{path} holds one array without a name; leave out #{key}")
        chosen = tensors[""]
    else:
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        chosen = tensors[choose_key(shapes, key, path, known)]
    try:
        return chosen.read()
    except PosgeomError:
        raise
    except Exception as error:
        raise PosgeomError(
            f"learned table {path} cannot be read as {chosen.path.suffix}: {error}"
        ) from error


def read_address(address: str, known: Iterable[str] = ()) -> FloatArray:
    """PATH[#KEY] as a finite float64 table (n, d)."""
    path, _, key = address.partition("#")
    return check_table(read_table(path, key, known), path)


def read_tensors(path: str, names: Iterable[str]) -> tuple[FloatArray, ...]:
    """Tensors of these names, in this order, as float64; PosgeomError where one is missing."""
    tensors = tensors_of(path)
    for name in names:
        if name not in tensors:
            raise PosgeomError(f"{path} has no tensor {name}; it has {listed(tensors)}")
    arrays = tuple(tensors[name].read().astype(np.float64) for name in names)
    for name, array in zip(names, arrays, strict=True):
        if not np.isfinite(array).all():
            raise PosgeomError(f"tensor {name} of {path} holds NaN or infinity")
    return arrays


def check_table(table: NDArray[np.generic], origin: str) -> FloatArray:
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


def listed(names: Iterable[str], most: int = 8) -> str:
    """`a, b and 3 more`: names for a reader."""
    names = sorted(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
