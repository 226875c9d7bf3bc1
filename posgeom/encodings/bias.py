"""Bias encodings: a number added to each attention logit."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posgeom.encodings.base import Encoding, as_positions, distances_by_offset
from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Alibi(Encoding):
    """Logit bias −m_h |i − j| with a slope m_h for each head.  Press et al. (2022), sec. 3.

    Distances: all heads side by side, or one with `head=h` (from 0).  reading "linear" takes
    m|i − j| (positions on a line, Cirrincione's reading); "kernel" takes √(2 m|i − j|), the
    distance whose inner products the bias is.  No slope changes the scale-free stress.
    """

    family: ClassVar[str] = "alibi"
    heads: int = 8
    head: int | None = None
    reading: str = "linear"

    def __post_init__(self) -> None:
        if self.heads < 1:
            raise PosgeomError(f"alibi came with heads={self.heads}; it must be 1 or more")
        if self.head is not None and not 0 <= self.head < self.heads:
            raise PosgeomError(f"alibi has no head {self.head}; use head=0 to {self.heads - 1}")
        if self.reading not in ("linear", "kernel"):
            raise PosgeomError(f"reading {self.reading!r} is not known; use linear or kernel")

    @property
    def slopes(self) -> FloatArray:
        """m_h of all heads: (heads,)."""
        return alibi_slopes(self.heads)

    def bias(self, head: int, q_positions: ArrayLike, k_positions: ArrayLike) -> FloatArray:
        """−m_h |i − j| for queries (n,) and keys (m,): (n, m).  Symmetric; mask it for causal."""
        if not 0 <= head < self.heads:
            raise PosgeomError(f"alibi has no head {head}; use 0 to {self.heads - 1}")
        offsets = as_positions(q_positions)[:, None] - as_positions(k_positions)[None, :]
        return -self.slopes[head] * np.abs(offsets)

    def distances(self, positions: ArrayLike) -> FloatArray:
        """(n, n) distances of the heads that the encoding holds, under its reading."""
        m = self.slopes if self.head is None else self.slopes[[self.head]]
        if self.reading == "linear":
            return distances_by_offset(lambda t: np.sqrt(m @ m) * t, positions)
        return distances_by_offset(lambda t: np.sqrt(2 * m.sum() * t), positions)


def alibi_slopes(heads: int) -> FloatArray:
    """m_h = 2^(−8h/H), h = 1..H, for H a power of two.

    Otherwise the slopes of the next lower power of two, then every other one of twice that:
    what the published code does and the models in use were trained with.
    """
    power = 1 << (heads.bit_length() - 1)
    slopes = 2.0 ** (-8 * np.arange(1, power + 1) / power)
    between = 2.0 ** (-8 * np.arange(1, 2 * power + 1, 2) / (2 * power))
    return np.concatenate([slopes, between[: heads - power]])
