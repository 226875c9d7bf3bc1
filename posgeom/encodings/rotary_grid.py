"""Rotary encodings whose pairs follow different axes: rows and columns, and time."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posgeom.encodings.base import as_positions
from posgeom.encodings.rotary import Rope, Rotary
from posgeom.encodings.table import frequencies
from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class AxialRope(Rotary):
    """The first pairs turn by the row, the last by the column; with axes=3 three shares.

    spread "each": every axis has the frequencies base^(−2k/(d/axes)) of a head of its own (Heo
    et al. 2024; Qwen2-VL's image encoder).  "dealt": the d/2 frequencies of one head
    are dealt out in turn (Pixtral).  Distance: √(Σ over axes of RoPE's squared).

    inv_freq   own frequencies, one a pair, axis after axis, in place of base and spread
    weights    energy of q and k in each pair, 1 by default, as RoPE's
    """

    family: ClassVar[str] = "rope-2d"
    axes: int = 2
    spread: str = "each"
    own_frequencies: tuple[float, ...] = field(default=(), metadata={"option": "inv_freq"})
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.axes not in (2, 3):
            raise PosgeomError(f"rope-2d came with axes={self.axes}; give 2 or 3")
        if self.n_pairs % self.axes:
            raise PosgeomError(
                f"rope-2d deals {self.n_pairs} pairs to {self.axes} axes; "
                f"give a dim that is a multiple of {2 * self.axes}"
            )
        if self.spread not in ("each", "dealt"):
            raise PosgeomError(f"spread {self.spread!r} is not known; use each or dealt")
        self._check_given(inv_freq=self.own_frequencies, weights=self.weights)

    @property
    def n_axes(self) -> int:
        """2, or 3."""
        return self.axes

    @property
    def pair_axes(self) -> NDArray[np.int64]:
        """Rows first: (pairs,)."""
        return np.repeat(np.arange(self.axes), self.n_pairs // self.axes)

    def frequencies_at(self, length: int | None = None) -> FloatArray:
        """θ of the pairs, axis after axis, whatever the length: (pairs,)."""
        if self.own_frequencies:
            return np.array(self.own_frequencies, dtype=np.float64)
        if self.spread == "each":
            return np.tile(frequencies(self.dim // self.axes, self.base), self.axes)
        return frequencies(self.dim, self.base).reshape(-1, self.axes).T.ravel()

    def _energies(self) -> FloatArray | None:
        return np.array(self.weights) if self.weights else None


@dataclass(frozen=True, kw_only=True)
class MRope(Rope):
    """RoPE whose pairs follow time, height and width by sections.  Wang et al. (2024), Qwen2-VL.

    sections      pairs of time, height, width; by default a quarter and the halves of the rest
    arrangement   "sectioned": time's pairs first, then height's, then width's (Qwen2-VL);
                  "interleaved": time, height, width in turn, while height and width last
                  (Qwen3-VL)
    axes          3; or 2, positions being (height, width) with time 0

    Text has one index for all three: positions (n,) are taken so, and it is RoPE then.
    """

    family: ClassVar[str] = "mrope"
    pairing: str = "halves"
    sections: tuple[int, ...] = ()
    arrangement: str = "sectioned"
    axes: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.axes not in (2, 3):
            raise PosgeomError(f"mrope came with axes={self.axes}; give 2 or 3")
        if self.arrangement not in ("sectioned", "interleaved"):
            raise PosgeomError(
                f"arrangement {self.arrangement!r} is not known; use sectioned or interleaved"
            )
        parts = self.sections
        if parts and (len(parts) != 3 or min(parts) < 0 or sum(parts) != self.n_pairs):
            raise PosgeomError(
                f"sections={';'.join(map(str, parts))} came; "
                f"give three that add to the {self.n_pairs} pairs"
            )
        if self.arrangement == "interleaved":
            _, h, w = self._sections
            if 3 * max(h, w) > self.n_pairs:
                raise PosgeomError(
                    f"interleaved sections give height {h}, width {w} of {self.n_pairs} pairs; "
                    "each can have a third"
                )

    @property
    def n_axes(self) -> int:
        """3, or 2."""
        return self.axes

    @property
    def pair_axes(self) -> NDArray[np.int64]:
        """0 time, 1 height, 2 width: (pairs,); with axes=2 those of time stand still."""
        t, h, w = self._sections
        if self.arrangement == "sectioned":
            return np.repeat([0, 1, 2], [t, h, w])
        axes = np.zeros(self.n_pairs, dtype=np.int64)
        axes[1 : 3 * h : 3], axes[2 : 3 * w : 3] = 1, 2
        return axes

    @property
    def _sections(self) -> tuple[int, ...]:
        if self.sections:
            return self.sections
        pairs = self.n_pairs
        third = pairs // 3 if self.arrangement == "interleaved" else (pairs - pairs // 4) // 2
        return pairs - 2 * third, third, third

    def _positions(self, positions: ArrayLike) -> NDArray[Any]:
        x = np.asarray(positions)
        if x.ndim < 2:
            return np.repeat(as_positions(x)[:, None], 3, axis=1)
        P = as_positions(x, self.axes)
        return P if self.axes == 3 else np.column_stack([np.zeros_like(P[:, :1]), P])
