"""RoPE whose frequencies learn, ALiBi whose slopes do: from an encoding's own values on."""

from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from posgeom.encodings import Alibi, Rope, Rotary
from posgeom.errors import PosgeomError
from posgeom.torch import AttentionBias, RotaryEmbedding
from posgeom.torch.bias import offsets


class TrainedRotary(RotaryEmbedding):
    """RoPE with frequencies θ_k (pairs,) that are trained as they are, not by their logarithms.

    A step of an optimizer moves a frequency by about its rate, a slow one as far as a fast one,
    as it moves the numbers of a table.  The sign of θ_k changes no distance.
    """

    def __init__(self, inv_freq: ArrayLike, **options: Any) -> None:
        super().__init__(inv_freq, **options)
        self.θ = nn.Parameter(self.inv_freq.to(torch.get_default_dtype()))

    @classmethod
    def from_encoding(cls, encoding: Rotary, *, offset: int = 0) -> Self:
        """The layer that starts as this RoPE; PosgeomError where frequencies follow the length."""
        layer = super().from_encoding(encoding, offset=offset)
        if layer.follows_length:
            raise PosgeomError(f"{encoding.name}: its frequencies follow the length; give others")
        return layer

    def frequencies(self, length: int | Tensor | None = None) -> Tensor:
        """θ_k (pairs,) as they are now, for sequences of any length."""
        return self.θ

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        positions: Tensor | None = None,
        *,
        length: int | Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """q and k (batch, heads, length, dim), turned; see RotaryEmbedding.rotate."""
        if positions is None:  # implied ones would take angles from a cache, which never learns
            positions = torch.arange(q.shape[-2], device=q.device)
        return super().forward(q, k, positions, length=length)

    def encoding(self, start: Rope) -> Rope:
        """The encoding as it is now, in all but its frequencies the one it started as."""
        θ = np.abs(self.θ.detach().double().numpy())
        return replace(start, own_frequencies=tuple(θ.tolist()))


class TrainedSlopes(AttentionBias):
    """−|m_h| |i − j| with m_h (heads,) that are trained: no key is preferred for being far."""

    def __init__(self, slopes: ArrayLike) -> None:
        super().__init__()
        self.m = nn.Parameter(torch.tensor(slopes, dtype=torch.get_default_dtype()))

    def values(self, i: Tensor, j: Tensor) -> Tensor:
        """(…, heads, q, k)."""
        return -self.m.abs()[:, None, None] * offsets(i, j).abs()

    def encoding(self, start: Alibi) -> Alibi:
        """The encoding as it is now, in all but its slopes the one it started as."""
        return replace(start, own_slopes=tuple(self.m.detach().abs().double().tolist()))
