"""The tensors and the passport in a file that may be hostile: bounded memory, nothing run.

A file that `export` wrote is as large as its numbers: nothing in it is compressed, and no header
says more than is there.  What is otherwise is refused before memory is taken for it.
"""

import io
import json
import pickletools
import struct
import zipfile
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from posgeom.emit.forms import Tensors
from posgeom.errors import PosgeomError

LONGEST_HEADER = 1 << 22  # bytes; of safetensors, whose own bound is 100 MB
# All that the pickle in a state dict of dense tensors names; others make objects of any size.
NAMED_BY_TENSORS = {"collections OrderedDict", "torch._utils _rebuild_tensor_v2"} | {
    f"torch {kind}Storage" for kind in ("Float", "Double", "Long", "Int", "Byte")
}


def open_exported(path: Path) -> tuple[Tensors, Any]:
    """Tensors by name, and the passport, from safetensors, npz, torch or json.

    Raises PosgeomError for a file that is none of them, or is not as `export` writes them.
    """
    try:
        return _read(path)
    except Exception as error:  # each format has its own exceptions for a broken file
        line = " ".join(str(error).split())[:200] or type(error).__name__
        raise PosgeomError(
            f"{path} cannot be read as an exported encoding: {line}; give a safetensors, npz, "
            "torch or json file that `posgeom export` wrote"
        ) from error


def _read(path: Path) -> tuple[Tensors, Any]:
    with path.open("rb") as file:
        start = file.read(8)
    if start[:2] == b"PK":
        members = _members(path)
        pickles = [name for name in members if name.endswith("data.pkl")]
        tensors = _state(path, members[pickles[0]]) if pickles else _arrays(members)
        if "passport" not in tensors:
            raise ValueError("it has no passport")
        return tensors, strict_json(tensors.pop("passport").tobytes())
    if start[:1] == b"{":
        held = strict_json(path.read_bytes())
        return {name: np.array(x) for name, x in held["tensors"].items()}, held["passport"]
    return _safetensors(path, start)


def strict_json(text: bytes) -> Any:
    """JSON without NaN, and without a key that comes twice, of which readers take either."""
    return json.loads(text.decode(), object_pairs_hook=_unique, parse_constant=_no_number)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key comes twice")
    return values


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _safetensors(path: Path, start: bytes) -> tuple[Tensors, Any]:
    from safetensors import safe_open

    (size,) = struct.unpack("<Q", start)
    if size > LONGEST_HEADER:
        raise ValueError(f"it has a header of {size:,} bytes, more than {LONGEST_HEADER:,}")
    with path.open("rb") as file:
        strict_json(file.read(8 + size)[8:])  # the library takes the last of two like keys
    with safe_open(path, framework="np") as tensors:
        about = (tensors.metadata() or {}).get("posgeom")
        if about is None:
            raise ValueError("it has no passport")
        names = list(tensors.keys())
        return {name: tensors.get_tensor(name) for name in names}, strict_json(about.encode())


def _members(path: Path) -> dict[str, bytes]:
    """The members of a zip file by name; ValueError for what takes more room than the file."""
    with zipfile.ZipFile(path) as file:
        listed = file.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in listed):
            raise ValueError("its members are compressed")
        if sum(member.file_size for member in listed) > path.stat().st_size:
            raise ValueError("its members say that they are larger than the file")
        if len({member.filename for member in listed}) < len(listed):
            raise ValueError("two of its members have one name")
        return {member.filename: file.read(member) for member in listed}


def _arrays(members: dict[str, bytes]) -> Tensors:
    """The arrays of an npz; ValueError for a pickle, and for shapes that its bytes do not fill."""
    arrays = {}
    for name, content in members.items():
        data = io.BytesIO(content)
        if np.lib.format.read_magic(data) != (1, 0):
            raise ValueError(f"{name} is not in version 1.0 of the .npy format")
        shape, _, dtype = np.lib.format.read_array_header_1_0(data)
        left = len(content) - data.tell()
        if dtype.hasobject:
            raise ValueError(f"{name} holds a pickle, which can run code when it is opened")
        if prod(shape) * dtype.itemsize != left:
            raise ValueError(f"{name} says {dtype} of shape {shape} and has {left:,} bytes")
        data.seek(0)
        arrays[name.removesuffix(".npy")] = np.lib.format.read_array(data, allow_pickle=False)
    return arrays


def _state(path: Path, pickle: bytes) -> Tensors:
    """The tensors of a state dict; ValueError for a pickle that makes anything else.

    weights_only would make byte arrays of any length, and strided views that are small in memory
    until someone computes with them.
    """
    _check_pickle(pickle)
    import torch

    state = torch.load(path, weights_only=True, map_location="cpu")
    size = path.stat().st_size
    for name, tensor in state.items():
        if not tensor.is_contiguous() or tensor.numel() * tensor.element_size() > size:
            raise ValueError(f"{name} is a view of shape {tuple(tensor.shape)}, larger than it is")
    return {name: tensor.numpy() for name, tensor in state.items()}


def _check_pickle(pickle: bytes) -> None:
    """ValueError unless all that a pickle names are dense tensors; nothing of it is run."""
    for opcode, argument, _ in pickletools.genops(pickle):
        if opcode.name == "GLOBAL" and argument not in NAMED_BY_TENSORS:
            raise ValueError(f"its pickle names {argument}, which is no tensor")
        if opcode.name in ("STACK_GLOBAL", "INST", "OBJ", "EXT1", "EXT2", "EXT4"):
            raise ValueError(f"its pickle has a {opcode.name}, which state dicts have not")
