"""Tensors of a model folder, by name: headers at once, numbers when asked for."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from posgeom.encodings.weights import FORMATS, Tensor, tensors_of
from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]

NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True)
class Weights:
    """The tensors of a folder: model.safetensors, or the shards that an index lists.

    Opening reads headers alone; `read` maps the bytes of one tensor and takes the rows wanted.
    A folder without them has no tensors, and `missing` says why.
    """

    folder: Path
    tensors: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    missing: str = ""

    @classmethod
    def open(cls, folder: Path) -> "Weights":
        """What is there; PosgeomError for a file that is broken."""
        there = any(folder.glob("*.safetensors*"))
        try:
            return cls(folder, tensors_of(folder))
        except PosgeomError as error:
            if there:
                raise
            return cls(folder, missing=str(error))  # many configs say all without weights

    def find(self, *endings: str, prefer: str = "") -> str:
        """The tensor whose name is one of the endings behind any prefix; "" where there is none.

        Earlier endings first; of several, those with `prefer` in the name, then the shortest.
        """
        for ending in endings:
            found = [n for n in self.tensors if n == ending or n.endswith(f".{ending}")]
            if found:
                return min(found, key=lambda n: (prefer not in n, len(n), n))
        return ""

    def need(self, *endings: str, prefer: str = "") -> str:
        """Like find; PosgeomError where there is none."""
        if self.missing:
            raise PosgeomError(self.missing)
        name = self.find(*endings, prefer=prefer)
        if not name:
            raise PosgeomError(
                f"the weights of {self.folder} have no tensor {' or '.join(endings)}, where the "
                "model keeps its positions; put all of its weights there"
            )
        return name

    def dtype(self, name: str) -> str:
        """float32, bfloat16, …"""
        return NAMES.get(self.tensors[name].dtype, self.tensors[name].dtype)

    @property
    def usual_dtype(self) -> str:
        """The dtype of most tensors; "" where there is none."""
        kinds = Counter(map(self.dtype, self.tensors))
        return kinds.most_common(1)[0][0] if kinds else ""

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape that the header states."""
        return self.tensors[name].shape

    def read(self, name: str, rows: NDArray[np.int64] | slice = slice(None)) -> FloatArray:
        """A tensor, or some of its rows, as float64; PosgeomError for NaN or infinity in it."""
        tensor = self.tensors[name]
        if tensor.dtype not in NAMES:
            raise PosgeomError(
                f"tensor {name} of {tensor.path} is {tensor.dtype}; save it as float32 or bfloat16"
            )
        if 0 in tensor.shape:
            raise PosgeomError(f"tensor {name} of {tensor.path} is empty, of shape {tensor.shape}")
        raw = np.memmap(
            tensor.path, FORMATS[tensor.dtype], "r", offset=tensor.offset, shape=tensor.shape
        )
        x: NDArray[np.generic] = np.array(raw[rows])
        if tensor.dtype == "BF16":  # the upper half of a float32
            x = (x.astype(np.uint32) << np.uint32(16)).view(np.float32)
        values = x.astype(np.float64)
        broken = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
        if broken.size:
            row = np.arange(tensor.shape[0])[rows][broken[0]]
            raise PosgeomError(
                f"tensor {name} of {tensor.path} holds NaN or infinity in row {row} "
                f"({broken.size} rows in all); give a model of finite numbers"
            )
        return values
