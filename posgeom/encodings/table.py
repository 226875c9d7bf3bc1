"""Additive encodings: a vector for each position, added to the token's."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posgeom.encodings.base import (
    BYTES,
    Cost,
    Encoding,
    as_positions,
    distances_between_rows,
    distances_by_offset,
)
from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TableEncoding(Encoding):
    """An encoding that is a vector for each position."""

    @abstractmethod
    def table(self, positions: ArrayLike) -> FloatArray:
        """The vectors of the positions (n,): (n, d) float64."""

    def distances(self, positions: ArrayLike) -> FloatArray:
        """Euclidean distances between the vectors of the positions (n,): (n, n)."""
        return distances_between_rows(self.table(positions))

    def codes(self, positions: ArrayLike) -> FloatArray:
        """The table."""
        return self.table(positions)


@dataclass(frozen=True, kw_only=True)
class Sinusoidal(TableEncoding):
    """PE[p, 2k] = sin(p θ_k), PE[p, 2k+1] = cos(p θ_k), θ_k = base^(−2k/d).

    layout "interleaved" alternates sines and cosines (the paper's); "halves" puts all sines
    first.  spacing "paper" is the θ above; "tensor2tensor" base^(−k/(⌈d/2⌉ − 1)), whose slowest
    pair turns with 1/base, as in the authors' code, fairseq, M2M-100, XGLM and Whisper.  An odd d
    ends with a sine whose cosine is cut off, and is then not quite shift-invariant.  Rows have
    norm √(d/2).  Vaswani et al. (2017), sec. 3.5.
    """

    family: ClassVar[str] = "sinusoidal"
    dim: int = 128
    base: float = 10_000.0
    layout: str = "interleaved"
    spacing: str = "paper"

    def __post_init__(self) -> None:
        if self.dim < 1 or self.base <= 0:
            raise PosgeomError(
                f"sinusoidal came with dim={self.dim}, base={self.base:g}; both must be positive"
            )
        if self.layout not in ("interleaved", "halves"):
            raise PosgeomError(f"layout {self.layout!r} is not known; use interleaved or halves")
        if self.spacing not in ("paper", "tensor2tensor"):
            raise PosgeomError(f"spacing {self.spacing!r} is not known; use paper or tensor2tensor")

    @property
    def shift_invariant(self) -> bool:
        """True for an even d: each sine has its cosine."""
        return self.dim % 2 == 0

    @property
    def frequencies(self) -> FloatArray:
        """θ_k, one a pair, in radians a position: (⌈d/2⌉,)."""
        if self.spacing == "tensor2tensor":
            k = np.arange((self.dim + 1) // 2)
            return float(self.base) ** (-k / max(1, len(k) - 1))
        return frequencies(self.dim, self.base)

    def table(self, positions: ArrayLike) -> FloatArray:
        """(n, d) sines and cosines of the positions (n,)."""
        angles = np.outer(as_positions(positions), self.frequencies)
        sines, cosines = np.sin(angles), np.cos(angles)[:, : self.dim // 2]
        if self.layout == "halves":
            return np.hstack([sines, cosines])
        table = np.empty((len(angles), self.dim))
        table[:, 0::2], table[:, 1::2] = sines, cosines
        return table

    def distances(self, positions: ArrayLike) -> FloatArray:
        """√(2 Σ_k (1 − cos((i − j) θ_k))): (n, n) for positions (n,)."""
        if not self.shift_invariant:
            return distances_between_rows(self.table(positions))
        return distances_by_offset(lambda t: chord(t, self.frequencies), positions)

    def cost(self, dim: int, heads: int, length: int) -> Cost:
        """One addition for each dimension, at the input; the table of the length."""
        return Cost(0, dim, BYTES * length * dim, "defined everywhere")


@dataclass(frozen=True, kw_only=True)
class Random(TableEncoding):
    """Independent standard normal rows: what a learned table is before training.

    Row p is the same for every number of positions.  The distances are √(2d) up to chance.
    """

    family: ClassVar[str] = "random"
    dim: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise PosgeomError(f"random came with dim={self.dim}; it must be positive")
        if self.seed < 0:
            raise PosgeomError(f"random came with seed={self.seed}; give 0 or more")

    @property
    def shift_invariant(self) -> bool:
        """False: each pair of rows has its own distance."""
        return False

    def table(self, positions: ArrayLike) -> FloatArray:
        """(n, d) for whole positions from 0 on (n,); PosgeomError for others."""
        p = whole_positions(positions, None, self.name)
        rows = np.random.default_rng(self.seed).standard_normal((p.max(initial=-1) + 1, self.dim))
        return rows[p]

    def cost(self, dim: int, heads: int, length: int) -> Cost:
        """One addition for each dimension, at the input; the table of the length."""
        return Cost(length * dim, dim, BYTES * length * dim, "error")


@dataclass(frozen=True, kw_only=True, eq=False)
class FixedTable(TableEncoding):
    """A table that is there already: learned, or designed for a corpus.

    rows  (n, d); row i belongs to index[i], by default to position i
    """

    family: ClassVar[str] = "table"
    rows: FloatArray = field(repr=False)
    index: NDArray[np.int64] | None = field(default=None, repr=False)
    stored_parameters: int | None = None

    @property
    def n_parameters(self) -> int:
        """n·d, or what its low-rank factors hold."""
        return self.rows.size if self.stored_parameters is None else self.stored_parameters

    @property
    def max_positions(self) -> int:
        """Number of rows."""
        return len(self.rows)

    @property
    def shift_invariant(self) -> bool:
        """False: nothing ties the rows to offsets."""
        return False

    def table(self, positions: ArrayLike) -> FloatArray:
        """(n, d) rows of the positions (n,); PosgeomError for one that has no row."""
        if self.index is None:
            return self.rows[whole_positions(positions, len(self.rows), self.name)]
        p = whole_positions(positions, None, self.name)
        where = np.searchsorted(self.index, p)
        known = where < len(self.index)
        known[known] = self.index[where[known]] == p[known]
        if not known.all():
            raise PosgeomError(
                f"{self.name} was made for other positions: {p[~known][0]} has no row; "
                "make it again from a corpus that has this position"
            )
        return self.rows[where]

    def cost(self, dim: int, heads: int, length: int) -> Cost:
        """What it stores; one addition for each dimension, at the input."""
        return Cost(self.n_parameters, self.rows.shape[1], BYTES * self.rows.size, "error")


def frequencies(dim: int, base: float) -> FloatArray:
    """θ_k = base^(−2k/d) for k = 0..⌈d/2⌉−1, in radians a position."""
    return float(base) ** (-np.arange(0, dim, 2) / dim)


def chord(offsets: FloatArray, θ: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """√(2 Σ_k w_k (1 − cos(t θ_k))) for offsets t (m,): (m,), w_k = 1 by default.

    Written 4 sin²(tθ/2), which does not cancel at small angles.
    """
    squares = np.zeros(len(offsets))
    for start in range(0, len(offsets), 65_536):  # an (m, d/2) array of all offsets may not fit
        block = slice(start, start + 65_536)
        half = np.sin(np.outer(offsets[block], θ / 2)) ** 2
        squares[block] = 4 * (half.sum(axis=1) if weights is None else half @ weights)
    return np.sqrt(squares)


def whole_positions(positions: ArrayLike, limit: int | None, name: str) -> NDArray[np.int64]:
    """Positions that can number rows: whole, 0 or more, below limit; else PosgeomError."""
    x = as_positions(positions)
    p = x.astype(np.int64)
    if (p != x).any() or (p < 0).any():
        raise PosgeomError(f"{name} has rows for whole positions from 0 on; {x.min():g} came")
    if limit is not None and p.max(initial=-1) >= limit:
        raise PosgeomError(
            f"{name} has {limit} rows, position {p.max()} was asked; "
            f"use --positions {limit} or less"
        )
    return p
