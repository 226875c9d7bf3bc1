"""Tables that are added to the tokens' vectors, whole or as their low-rank factors."""

from abc import abstractmethod
from os import PathLike
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from posgeom.designers import LowRank
from posgeom.emit import read_geometry, read_tensors
from posgeom.encodings import FixedTable, TableEncoding
from posgeom.errors import PosgeomError
from posgeom.torch.numbers import hold, matrix
from posgeom.torch.rows import RowLookup


class AddedPositions(nn.Module):
    """Adds to each token's vector that of its position."""

    lookup: RowLookup

    @property
    @abstractmethod
    def dim(self) -> int:
        """d, the width of the vectors."""

    @abstractmethod
    def rows(self, at: Tensor) -> Tensor:
        """(…, d) rows of the table by number, 0 being the first."""

    @abstractmethod
    def table(self) -> Tensor:
        """(n, d) the whole table."""

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """x (batch, length, d) or (length, d) with the positions' vectors added, in x's dtype.

        positions: (length,) or (batch, length), by default 0..length−1.  Raises PosgeomError for
        another width, another shape, and for a position that has no row, see RowLookup.
        """
        if x.ndim not in (2, 3) or x.shape[-1] != self.dim:
            raise PosgeomError(
                f"x came of shape {tuple(x.shape)}; give (batch, length, {self.dim})"
            )
        batch = x.shape[0] if x.ndim == 3 else None
        return x + self.rows(self.lookup.of_sequence(x, positions, batch)).to(x.dtype)


class TablePositionalEncoding(AddedPositions):
    """A table (n, d), a row for each position.

    table      learned, designed, or of a formula
    trainable  a parameter; otherwise a buffer of the same name
    offset     the row of position 0, 2 in RoBERTa and OPT
    positions  (n,) the position of each row, where some were left out of the design
    """

    weight: Tensor

    def __init__(
        self,
        table: ArrayLike | Tensor,
        *,
        trainable: bool = True,
        offset: int = 0,
        positions: ArrayLike | None = None,
    ) -> None:
        super().__init__()
        hold(self, "weight", matrix("table", table), trainable=trainable)
        self.lookup = RowLookup(len(self.weight), positions, offset)

    @classmethod
    def from_encoding(
        cls, encoding: TableEncoding, length: int | None = None, *, trainable: bool | None = None
    ) -> Self:
        """The first `length` rows of an encoding, by default all it has.

        trainable: by default what has parameters of its own, so a sinusoid is frozen.
        """
        rows, index = encoding_rows(encoding, length)
        if trainable is None:
            trainable = encoding.n_parameters > 0
        return cls(rows, trainable=trainable, positions=index)

    @classmethod
    def from_run(cls, folder: str | PathLike[str], *, trainable: bool = True) -> Self:
        """The table of a run's encoding.safetensors, with all positions it was carried to."""
        factors, index = run_factors(folder)
        return cls(factors.table(), trainable=trainable, positions=index)

    @property
    def dim(self) -> int:
        """d."""
        return self.weight.shape[1]

    def rows(self, at: Tensor) -> Tensor:
        """(…, d)."""
        return F.embedding(at, self.weight)

    def table(self) -> Tensor:
        """(n, d)."""
        return self.weight


class LowRankPositionalEncoding(AddedPositions):
    """A table A Bᵀ kept as its factors: r(n + d) parameters in place of n·d.

    A          (n, r) coordinates of the positions
    B          (d, r) the directions that they take in the model
    trainable  parameters; otherwise buffers of the same names
    positions  (n,) the position of each row of A, where some were left out of the design

    Cirrincione (2026), Remark 8.
    """

    A: Tensor
    B: Tensor

    def __init__(
        self,
        A: ArrayLike | Tensor,
        B: ArrayLike | Tensor,
        *,
        trainable: bool = True,
        positions: ArrayLike | None = None,
    ) -> None:
        super().__init__()
        hold(self, "A", matrix("A", A), trainable=trainable)
        hold(self, "B", matrix("B", B), trainable=trainable)
        if self.A.shape[1] != self.B.shape[1]:
            raise PosgeomError(
                f"A {tuple(self.A.shape)} came with B {tuple(self.B.shape)}; "
                "give (n, r) and (d, r), of one rank r"
            )
        self.lookup = RowLookup(len(self.A), positions)

    @classmethod
    def from_encoding(
        cls,
        encoding: TableEncoding,
        length: int | None = None,
        *,
        rank: int | None = None,
        trainable: bool = True,
    ) -> Self:
        """The factors of an encoding's first `length` rows, by their singular vectors.

        rank: by default that of the table, which then comes out as it is; the nearest table of
        a smaller one.  Eckart and Young (1936).
        """
        rows, index = encoding_rows(encoding, length)
        U, w, Vt = np.linalg.svd(rows, full_matrices=False)
        own = max(1, int((w > w.max(initial=0) * max(rows.shape) * np.finfo(float).eps).sum()))
        r = own if rank is None else rank
        if not 1 <= r <= len(w):
            raise PosgeomError(f"rank {r} came for a table {rows.shape}; give 1 to {len(w)}")
        return cls(U[:, :r] * w[:r], Vt[:r].T, trainable=trainable, positions=index)

    @classmethod
    def from_run(cls, folder: str | PathLike[str], *, trainable: bool = True) -> Self:
        """The factors in a run's encoding.safetensors, with all positions it was carried to."""
        factors, index = run_factors(folder)
        return cls(factors.A, factors.B, trainable=trainable, positions=index)

    @property
    def dim(self) -> int:
        """d."""
        return self.B.shape[0]

    def rows(self, at: Tensor) -> Tensor:
        """(…, d)."""
        return F.embedding(at, self.A) @ self.B.T

    def table(self) -> Tensor:
        """A Bᵀ, (n, d)."""
        return self.A @ self.B.T


def encoding_rows(
    encoding: TableEncoding, length: int | None
) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
    """The first rows of an encoding (n, d), and their positions where some are left out.

    Raises PosgeomError for an encoding without a table, and for one defined everywhere without a
    length.
    """
    if not isinstance(encoding, TableEncoding):
        raise PosgeomError(f"{encoding.name} is no table; see RotaryEmbedding and AttentionBias")
    if isinstance(encoding, FixedTable) and encoding.index is not None:
        kept = encoding.index < (np.inf if length is None else length)
        return encoding.rows[kept], encoding.index[kept]
    n = encoding.max_positions if length is None else length
    if n is None:
        raise PosgeomError(f"{encoding.name} is defined everywhere; say for which length")
    return encoding.table(np.arange(n)), None


def run_factors(folder: str | PathLike[str]) -> tuple[LowRank, NDArray[np.int64]]:
    """A and B of a run and the flat positions (n,) of their rows; PosgeomError if it has none."""
    from safetensors.numpy import load_file

    file = Path(folder) / "encoding.safetensors"
    tensors, _ = read_tensors(file)
    positions: NDArray[np.int64] = load_file(file)["positions"]
    if positions.ndim == 2:  # cells, which only a geometry with its grid can number
        positions = read_geometry(file.with_name("geometry.npz")).index
    return tensors.get("extended", tensors["low_rank"]), positions
