"""Relative vectors: a learned vector for each clipped offset, added to the keys."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posgeom.encodings.base import (
    BYTES,
    Cost,
    Encoding,
    as_positions,
    distances_by_offset,
)
from posgeom.encodings.bias import offsets_of
from posgeom.encodings.weights import read_address
from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Shaw(Encoding):
    """Logit q_i·(k_j + a_clip(j − i, −k, k)), so that its bias needs the queries.

    Shaw et al. (2018), sec. 3.2, Eq. 4.  bias(queries, q_positions, k_positions) takes q_i =
    x_i W_q where other biases take the number of a head; relative(q_positions, k_positions) gives
    the vectors alone.

    clip    k: all offsets past it share its vector
    table   PATH[#KEY] of the vectors, (2k + 1, d), that of −k first.  Without one: standard
            normal vectors from the seed, what they are before training

    Distance: of the vectors from that of offset 0, √(½(‖a_t − a_0‖² + ‖a_−t − a_0‖²)).
    """

    family: ClassVar[str] = "shaw"
    dim: int = 128
    clip: int = 16
    table: str = ""
    seed: int = 0
    array: FloatArray | None = field(
        default=None, repr=False, metadata={"option": None, "array": True}
    )

    def __post_init__(self) -> None:
        if self.table:
            object.__setattr__(self, "array", read_address(self.table))
        if self.array is not None:
            given = np.asarray(self.array, dtype=np.float64)
            if given.ndim != 2 or len(given) % 2 == 0 or len(given) < 3:
                raise PosgeomError(
                    f"shaw came with vectors of shape {given.shape}; give (2k + 1, d), k ≥ 1"
                )
            object.__setattr__(self, "array", given)
            object.__setattr__(self, "clip", len(given) // 2)
            object.__setattr__(self, "dim", given.shape[1])
        if self.clip < 1 or self.dim < 1:
            raise PosgeomError(f"shaw came with clip={self.clip}, dim={self.dim}; give 1 or more")
        if self.seed < 0:
            raise PosgeomError(f"shaw came with seed={self.seed}; give 0 or more")

    @property
    def vectors(self) -> FloatArray:
        """a_t for t = −k..k: (2k + 1, d)."""
        if self.array is not None:
            return self.array
        return np.random.default_rng(self.seed).standard_normal((2 * self.clip + 1, self.dim))

    @property
    def n_parameters(self) -> int:
        """(2k + 1)·d, in each layer."""
        return (2 * self.clip + 1) * self.dim

    @property
    def note(self) -> str:
        """That the vectors are not a model's, where none were given."""
        return "" if self.array is not None else "no vectors were given: they are random"

    def relative(self, q_positions: ArrayLike, k_positions: ArrayLike) -> FloatArray:
        """a_clip(j − i, −k, k) for queries i (n,) and keys j (m,): (n, m, d)."""
        return self.vectors[self._which(-offsets_of(q_positions, k_positions))]

    def bias(
        self, queries: ArrayLike, q_positions: ArrayLike, k_positions: ArrayLike
    ) -> FloatArray:
        """q_i·a_clip(j − i) for queries (n, d), added to q·k before it is scaled: (n, m)."""
        q = np.asarray(queries, dtype=np.float64)
        if q.ndim != 2 or q.shape != (len(as_positions(q_positions)), self.dim):
            raise PosgeomError(f"queries came of shape {q.shape}; give (positions, {self.dim})")
        return np.einsum("nd,nmd->nm", q, self.relative(q_positions, k_positions))

    def distances(self, positions: ArrayLike) -> FloatArray:
        """(n, n) for positions (n,); all offsets of k and more are equally far."""
        a = self.vectors
        squares = ((a - a[self.clip]) ** 2).sum(axis=1)
        return distances_by_offset(
            lambda t: np.sqrt((squares[self._which(t)] + squares[self._which(-t)]) / 2), positions
        )

    def codes(self, positions: ArrayLike) -> FloatArray:
        """(n, d): the vectors by which a query at 0 tells the keys apart."""
        x = as_positions(positions).astype(np.float64)
        return self.vectors[self._which(x)]

    def cost(self, dim: int, heads: int, length: int) -> Cost:
        """A product of width d with each of the 2k + 1 vectors in each head; a look-up and an
        addition for each logit, counted as for the other biases.
        """
        n = (2 * self.clip + 1) * (dim // heads)
        flops = 2 * n * heads + 2 * heads * length
        return Cost(n, flops, BYTES * n, "same vector for all")

    def _which(self, offsets: FloatArray) -> NDArray[np.int64]:
        """The row of each offset j − i; fractions belong to the nearest whole offset."""
        return np.clip(np.rint(offsets), -self.clip, self.clip).astype(np.int64) + self.clip
