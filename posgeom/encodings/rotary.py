"""Rotary encodings: queries and keys are turned by angles that grow with the position."""

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import partial
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
from posgeom.encodings.pairing import check_pairing, pair_slots
from posgeom.encodings.rotary_scaling import Scaling
from posgeom.encodings.table import chord, frequencies
from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Rotary(Encoding):
    """An encoding that turns pairs of slots of q and k, pair k by p·θ_k.

    dim is the width of a head.  pairing "interleaved" turns the slots (2k, 2k+1), the paper's;
    "halves" the slots (k, k + d/2), Hugging Face's; "halves-back" the same slots by −p·θ_k
    (nanochat's).  A wrong pairing raises no error in a model and spoils it.
    """

    dim: int = 128
    base: float = 10_000.0
    pairing: str = "interleaved"

    def __post_init__(self) -> None:
        if self.dim < 2 or self.dim % 2:
            raise PosgeomError(
                f"{self.family} turns pairs; dim={self.dim} came, give an even number"
            )
        if not self.base > 0:
            raise PosgeomError(f"{self.family} came with base={self.base:g}; it must be positive")
        check_pairing(self.pairing)

    @abstractmethod
    def frequencies_at(self, length: int | None = None) -> FloatArray:
        """θ_k in radians a position, (pairs,), for a sequence of this length.

        Without a length: those of the length it was made for.
        """

    @property
    def inv_freq(self) -> FloatArray:
        """θ_k in radians a position: (pairs,)."""
        return self.frequencies_at()

    @property
    def attention_factor(self) -> float:
        """What cos and sin are multiplied with: 1 without scaling."""
        return 1.0

    @property
    def n_pairs(self) -> int:
        """Pairs that turn: d/2, fewer where the encoding is partial."""
        return self.dim // 2

    @property
    def pair_axes(self) -> NDArray[np.int64]:
        """The axis of the position that each pair follows: (pairs,)."""
        return np.zeros(self.n_pairs, dtype=np.int64)

    def cos_sin(
        self, positions: ArrayLike, length: int | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """a·cos(p θ_k) and a·sin(p θ_k), each (n, pairs), a the attention factor.

        Positions (n,), or (n, axes) on a grid.  length is that of the whole sequence, by default
        the last position + 1; only scalings that follow the length look at it.
        """
        P = self._positions(positions)
        θ = self.frequencies_at(reach(P) if length is None else length)
        angles = P[:, self.pair_axes] * θ
        a = self.attention_factor
        return a * np.cos(angles), a * np.sin(angles)

    def full_cos_sin(
        self, positions: ArrayLike, length: int | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """The same for each slot, (n, d): a pair's value stands at both of its slots.

        At d = 4: interleaved (c0, c0, c1, c1), halves (c0, c1, c0, c1).  Slots that do not turn
        have cos 1 and sin 0.
        """
        cos, sin = self.cos_sin(positions, length)
        full_cos, full_sin = np.ones((len(cos), self.dim)), np.zeros((len(cos), self.dim))
        for slots in pair_slots(self.n_pairs, self.pairing):
            full_cos[:, slots], full_sin[:, slots] = cos, sin
        return full_cos, full_sin

    def rotate(
        self, x: ArrayLike, positions: ArrayLike, *, axis: int = -2, length: int | None = None
    ) -> FloatArray:
        """x (…, n, d) with row p turned by p·θ; norms are kept, but for the attention factor.

        axis is the one of x that counts positions.  It must be as long as the positions, which
        catches a rotation over the heads: x (batch, n, heads, d) takes axis=-3.
        """
        x = np.asarray(x, dtype=np.float64)
        if x.ndim < 2 or x.shape[-1] != self.dim:
            raise PosgeomError(f"x has shape {x.shape}; its last axis must be dim={self.dim}")
        cos, sin = self.cos_sin(positions, length)
        if axis % x.ndim == x.ndim - 1 or x.shape[axis] != len(cos):
            raise PosgeomError(
                f"{len(cos)} positions came for axis {axis} of x {x.shape}; "
                "name the axis that counts positions, such as axis=-3"
            )
        X = np.moveaxis(x, axis, -2)
        first, second = pair_slots(self.n_pairs, self.pairing)
        a, b = X[..., first], X[..., second]
        turned = X.copy()
        turned[..., first] = a * cos - b * sin
        turned[..., second] = a * sin + b * cos
        return np.moveaxis(turned, -2, axis)

    def distances(self, positions: ArrayLike) -> FloatArray:
        """(n, n): how far a turned vector of equal energy in each pair moves between positions.

        √(2 Σ_k (1 − cos(Δ_k θ_k))), Δ_k the offset along the axis of pair k: the sinusoid's with
        the same θ.  Slots that do not turn add nothing, and the attention factor is a scale of
        the logits, not of the positions: it does not enter.
        """
        P = self._positions(positions)
        θ, w = self.frequencies_at(reach(P)), self._energies()
        squared = np.zeros((len(P), len(P)))
        for axis in range(P.shape[1]):
            on = self.pair_axes == axis
            f = partial(chord, θ=θ[on], weights=None if w is None else w[on])
            along = distances_by_offset(f, P[:, axis])
            if P.shape[1] == 1:
                return along
            squared += along**2
        return np.sqrt(squared)

    def codes(self, positions: ArrayLike) -> FloatArray:
        """(n, 2·pairs) cosines and sines."""
        return np.hstack(self.cos_sin(positions))

    def cost(self, dim: int, heads: int, length: int) -> Cost:
        """Six operations a pair of q and of k, in every head; cosines and sines of the length."""
        pairs = dim * self.n_pairs // self.dim  # of all heads together
        return Cost(0, 2 * 6 * pairs, BYTES * 2 * length * pairs // heads, self._past_end())

    def _past_end(self) -> str:
        return "degrades silently"

    def _check_given(self, **given: tuple[float, ...]) -> None:
        for name, values in given.items():
            if values and (len(values) != self.n_pairs or min(values) < 0):
                raise PosgeomError(
                    f"{name} came with {len(values)} values; give {self.n_pairs} of 0 or more, "
                    "one a pair, separated by ;"
                )

    def _energies(self) -> FloatArray | None:
        return None

    def _positions(self, positions: ArrayLike) -> NDArray[Any]:
        return as_positions(positions, self.n_axes).reshape(-1, self.n_axes)


@dataclass(frozen=True, kw_only=True)
class Rope(Scaling, Rotary):
    """Rotate pair k of q and k by p·θ_k, θ_k = base^(−2k/d).  Su et al. (2021), Eq. 34.

    rotary          the share of the slots that turn, the first ones; d above is then their number
    inv_freq        own frequencies, one a pair, in place of base and scaling
    weights         energy of q and k in each pair, 1 by default, for the distance
                    √(2 Σ_k w_k (1 − cos((i − j) θ_k)))
    scaling, …      how the frequencies are stretched to longer sequences, see Scaling

    Scalings that follow the length (dynamic, longrope) take that of the positions asked for, and
    keep nothing between two calls.
    """

    family: ClassVar[str] = "rope"
    rotary: float = 1.0
    own_frequencies: tuple[float, ...] = field(default=(), metadata={"option": "inv_freq"})
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.rotary <= 1:
            raise PosgeomError(f"rope came with rotary={self.rotary:g}; give a share in 0..1")
        if self.rotated < 2 or self.rotated % 2:
            raise PosgeomError(
                f"rotary={self.rotary:g} of dim={self.dim} is {self.rotated} slots, which make no "
                "pairs; give a share with an even number of slots"
            )
        self._check_given(inv_freq=self.own_frequencies, weights=self.weights)
        self.check_scaling()
        if self.own_frequencies and self.scaling != "none":
            raise PosgeomError("inv_freq is final; give it without scaling")
        self.frequencies_at()

    @property
    def rotated(self) -> int:
        """Slots of a head that turn: rotary·d."""
        return int(self.dim * self.rotary + 1e-9)  # 0.29 · 100 is 28.999999999999996

    @property
    def n_pairs(self) -> int:
        """Pairs that turn; with `proportional` scaling all do, some at frequency 0."""
        return (self.dim if self.scaling == "proportional" else self.rotated) // 2

    @property
    def attention_factor(self) -> float:
        """What the scaling multiplies cos and sin with."""
        return self.scaled_attention()

    @property
    def note(self) -> str:
        """That frequencies follow the length, where they do."""
        if self.scaling in ("dynamic", "longrope"):
            return "its frequencies follow the length of the sequence, here that of the positions"
        return ""

    def frequencies_at(self, length: int | None = None) -> FloatArray:
        """θ_k in radians a position, (pairs,), for a sequence of this length."""
        if self.own_frequencies:
            return np.array(self.own_frequencies, dtype=np.float64)
        if self.scaling == "proportional":
            θ = frequencies(self.dim, self.base)
            θ[self.rotated // 2 :] = 0
            return self.stretched(θ, self.base, length)
        return self.stretched(frequencies(self.rotated, self.base), self.base, length)

    def _energies(self) -> FloatArray | None:
        return np.array(self.weights) if self.weights else None
