"""xPos: rotation with a decay, so that far keys count less."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posgeom.encodings.base import as_positions, distances_by_offset
from posgeom.encodings.pairing import pair_slots
from posgeom.encodings.rotary import Rotary
from posgeom.encodings.table import frequencies
from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class XPos(Rotary):
    """RoPE whose pair k of q grows by ζ_k^(p/B) and of k shrinks by it.  Sun et al. (2022).

    ζ_k = (2k/d + γ)/(1 + γ), γ = 0.4; B = scale_base, 512 as in the authors' code, which pairs
    neighbours.  A query at i and a key at j ≤ i score
    Σ_k ζ_k^((i−j)/B) cos((i−j)θ_k) for content of equal energy in each pair, so they decay with
    the offset; for a key ahead the factor grows, which a causal mask hides.

    Distance: that whose inner product this score is, with |i − j| for the offset,
    √(2 Σ_k (1 − ζ_k^(|t|/B) cos(tθ_k))).  A damped cosine is positive definite, so it is one.
    As B grows, it becomes RoPE's.  cos_sin and rotate are without the decay; rotate_scaled has it.
    """

    family: ClassVar[str] = "xpos"
    gamma: float = 0.4
    scale_base: float = 512.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.gamma > 0 and self.scale_base > 0):
            raise PosgeomError(
                f"xpos came with gamma={self.gamma:g}, scale_base={self.scale_base:g}; "
                "both must be positive"
            )

    @property
    def decay(self) -> FloatArray:
        """ζ_k^(1/B), what a pair loses with each position: (pairs,)."""
        k = np.arange(self.n_pairs)
        return ((2 * k / self.dim + self.gamma) / (1 + self.gamma)) ** (1 / self.scale_base)

    def frequencies_at(self, length: int | None = None) -> FloatArray:
        """θ_k = base^(−2k/d), whatever the length."""
        return frequencies(self.dim, self.base)

    def rotate_scaled(
        self, x: ArrayLike, positions: ArrayLike, *, key: bool, axis: int = -2
    ) -> FloatArray:
        """Queries (key=False) or keys (key=True) turned and scaled: x (…, n, d).

        The published code takes positions from the middle of the sequence, which keeps the
        scales near 1 and changes no score.
        """
        turned = np.moveaxis(self.rotate(x, positions, axis=axis), axis, -2)
        p = as_positions(positions).astype(np.float64)
        scale = self.decay ** ((-p if key else p)[:, None])
        for slots in pair_slots(self.n_pairs, self.pairing):
            turned[..., slots] *= scale
        return np.moveaxis(turned, -2, axis)

    def distances(self, positions: ArrayLike) -> FloatArray:
        """√(2 Σ_k (1 − ζ_k^(|t|/B) cos(tθ_k))): (n, n) for positions (n,)."""

        def f(t: FloatArray) -> FloatArray:
            squares = np.empty(len(t))
            for start in range(0, len(t), 65_536):
                u = t[start : start + 65_536, None]
                damped = self.decay**u
                # 1 − ρ cos = (1 − ρ) + 2ρ sin²(·/2): neither part cancels
                lost = -np.expm1(u * np.log(self.decay))
                parts = lost + 2 * damped * np.sin(u * self.inv_freq / 2) ** 2
                squares[start : start + 65_536] = 2 * parts.sum(axis=1)
            return np.sqrt(squares)

        return distances_by_offset(f, positions)

    def _past_end(self) -> str:
        return "decays silently"
