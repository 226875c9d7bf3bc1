"""Encodings that number the positions: by index, share of the length, bits, or not at all."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posgeom.encodings.base import (
    BYTES,
    Cost,
    Encoding,
    as_positions,
    distances_by_offset,
    reach,
)
from posgeom.encodings.table import TableEncoding, whole_positions
from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Index(TableEncoding):
    """The position itself, one number i.  Distance |i − j|, a line."""

    family: ClassVar[str] = "index"

    def table(self, positions: ArrayLike) -> FloatArray:
        """(n, 1) the positions (n,)."""
        return as_positions(positions).astype(np.float64)[:, None]

    def distances(self, positions: ArrayLike) -> FloatArray:
        """|i − j|: (n, n) for positions (n,)."""
        return distances_by_offset(lambda t: t, positions)

    def cost(self, dim: int, heads: int, length: int) -> Cost:
        """One number a position, taken to the width by a projection that is not counted."""
        return Cost(0, dim, BYTES * length, "grows without bound")


@dataclass(frozen=True, kw_only=True)
class NormalisedIndex(TableEncoding):
    """i/(L − 1), the share of the sequence that lies behind; distance |i − j|/(L − 1).

    L is `length`, by default that of the positions asked for.  The number that a slot gets
    depends on L: slot 3 is 0.43 in a sequence of 8 and 0.05 in one of 64.
    """

    family: ClassVar[str] = "normalised-index"
    length: int | None = None

    def __post_init__(self) -> None:
        if self.length is not None and self.length < 1:
            raise PosgeomError(f"normalised-index came with length={self.length}; give 1 or more")

    def table(self, positions: ArrayLike) -> FloatArray:
        """(n, 1) shares of the length, 0..1 inside it."""
        x = as_positions(positions)
        return x[:, None] / self._last(x)

    def distances(self, positions: ArrayLike) -> FloatArray:
        """|i − j|/(L − 1): (n, n) for positions (n,)."""
        last = self._last(as_positions(positions))
        return distances_by_offset(lambda t: t / last, positions)

    def cost(self, dim: int, heads: int, length: int) -> Cost:
        """One number a position, taken to the width by a projection that is not counted."""
        return Cost(0, dim, BYTES * length, "every position shifts")

    def _last(self, x: NDArray[Any]) -> int:
        return max(1, (reach(x) if self.length is None else self.length) - 1)


@dataclass(frozen=True, kw_only=True)
class Binary(TableEncoding):
    """The bits of i, least significant first; distance √Hamming, that of the rows.

    `bits` fixes how many; by default as many as the positions need.
    """

    family: ClassVar[str] = "binary"
    bits: int | None = None

    def __post_init__(self) -> None:
        if self.bits is not None and not 1 <= self.bits <= 62:
            raise PosgeomError(f"binary came with bits={self.bits}; give 1 to 62")

    @property
    def max_positions(self) -> int | None:
        """2^bits, where bits are fixed."""
        return None if self.bits is None else 2**self.bits

    @property
    def shift_invariant(self) -> bool:
        """False: 0 and 1 differ in one bit, 1 and 2 in two."""
        return False

    def table(self, positions: ArrayLike) -> FloatArray:
        """(n, bits) zeros and ones for whole positions from 0 on."""
        p = whole_positions(positions, self.max_positions, self.name)
        bits = self.bits or max(1, int(p.max(initial=0)).bit_length())
        return (p[:, None] >> np.arange(bits) & 1).astype(np.float64)

    def distances(self, positions: ArrayLike) -> FloatArray:
        """√(number of bits that differ): (n, n) for positions (n,)."""
        B = self.table(positions)
        ones = B.sum(axis=1)
        return np.sqrt(ones[:, None] + ones[None, :] - 2 * (B @ B.T))  # whole numbers: exact

    def cost(self, dim: int, heads: int, length: int) -> Cost:
        """The bits, taken to the width by a projection that is not counted."""
        bits = self.bits or max(1, (length - 1).bit_length())
        return Cost(0, dim, BYTES * length * bits, "error" if self.bits else "one more bit")


@dataclass(frozen=True, kw_only=True)
class NoPositions(Encoding):
    """No positional signal: every distance is 0 and the stress 1, the worst there is.

    Without a mask such a Transformer is permutation-equivariant (Cirrincione 2026, Theorem 1).
    A causal mask alone still tells positions apart, which no distance here shows.
    """

    family: ClassVar[str] = "none"

    @property
    def note(self) -> str:
        """Why its stress is 1."""
        return "no positions: all distances are 0, so nothing of the corpus is explained, stress 1"

    def distances(self, positions: ArrayLike) -> FloatArray:
        """(n, n) zeros."""
        n = len(as_positions(positions))
        return np.zeros((n, n))

    def codes(self, positions: ArrayLike) -> FloatArray:
        """(n, 1) zeros: all positions look alike."""
        return np.zeros((len(as_positions(positions)), 1))

    def cost(self, dim: int, heads: int, length: int) -> Cost:
        """Nothing."""
        return Cost(0, 0, 0, "defined everywhere")
