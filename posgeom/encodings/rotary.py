"""Rotary encodings: queries and keys are turned by angles that grow with the position."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posgeom.encodings.base import Encoding, as_positions, distances_by_offset
from posgeom.encodings.table import chord, frequencies
from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Rope(Encoding):
    """Rotate pair k of q and k by p·θ_k, θ_k = base^(−2k/d).  Su et al. (2021), Eq. 34.

    pairing "interleaved" turns the slots (2k, 2k+1), the paper's; "halves" the slots
    (k, k + d/2), Hugging Face's.  A wrong pairing raises no error in a model and spoils it.
    """

    family: ClassVar[str] = "rope"
    dim: int = 128
    base: float = 10_000.0
    pairing: str = "interleaved"

    def __post_init__(self) -> None:
        if self.dim < 2 or self.dim % 2:
            raise PosgeomError(f"rope turns pairs; dim={self.dim} came, give an even number")
        if self.base <= 0:
            raise PosgeomError(f"rope came with base={self.base:g}; it must be positive")
        if self.pairing not in ("interleaved", "halves"):
            raise PosgeomError(f"pairing {self.pairing!r} is not known; use interleaved or halves")

    @property
    def inv_freq(self) -> FloatArray:
        """θ_k in radians a position: (d/2,)."""
        return frequencies(self.dim, self.base)

    @property
    def attention_factor(self) -> float:
        """What cos and sin are multiplied with: 1 without scaling."""
        return 1.0

    def cos_sin(self, positions: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """cos(p θ_k) and sin(p θ_k), each (n, d/2), for positions (n,)."""
        angles = np.outer(as_positions(positions), self.inv_freq)
        return np.cos(angles), np.sin(angles)

    def rotate(self, x: ArrayLike, positions: ArrayLike) -> FloatArray:
        """x (…, n, d) with row p turned by p·θ; norms are kept."""
        x = np.asarray(x, dtype=np.float64)
        if x.shape[-1] != self.dim:
            raise PosgeomError(f"x has width {x.shape[-1]}, the encoding {self.dim}; match them")
        cos, sin = self.cos_sin(positions)
        half = self.dim // 2
        first, second = (
            (slice(0, None, 2), slice(1, None, 2))
            if self.pairing == "interleaved"
            else (slice(0, half), slice(half, None))
        )
        a, b = x[..., first], x[..., second]
        turned = np.empty_like(x)
        turned[..., first] = a * cos - b * sin
        turned[..., second] = a * sin + b * cos
        return turned

    def distances(self, positions: ArrayLike) -> FloatArray:
        """(n, n): how far a turned vector of equal energy in each pair moves between positions.

        √(2 Σ_k (1 − cos((i − j) θ_k))), the sinusoid's with the same θ.
        """
        return distances_by_offset(lambda t: chord(t, self.inv_freq), positions)
