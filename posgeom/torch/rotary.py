"""Rotation of queries and keys, by any frequencies."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from posgeom.encodings import MRope, Rope, Rotary, XPos
from posgeom.encodings.pairing import pair_slots
from posgeom.errors import PosgeomError
from posgeom.torch.numbers import NO_PLACE, KeepsConstants
from posgeom.torch.positions import check_positions, numbers


class RotaryEmbedding(KeepsConstants):
    """Turns pair k of q and k by p·θ_k.  Su et al. (2021), Eq. 34.

    inv_freq          θ_k in radians a position: (pairs,)
    pairing           which slots make a pair, see posgeom.encodings.pairing; "halves" is Hugging
                      Face's
    attention_factor  what cos and sin are multiplied with
    offset            added to every position
    dim               width of a head; by default all its slots turn, else the first 2·pairs
    long_inv_freq     θ_k of sequences longer than original_length (LongRoPE)
    dynamic_factor    s of the frequencies that follow the length l > L = original_length,
                      θ_k·(s·l/L − (s − 1))^(−k/(pairs − 1)) (dynamic NTK)
    pair_axes         the axis of the position that each pair follows, (pairs,), on a grid

    Frequencies are float64 constants, see KeepsConstants, angles are float64 (float32 where a
    device has no other), cos and sin float32 at least; q and k come back in their own dtype.
    Implied positions take cos and sin from a cache as long as the longest sequence so far;
    compiled code computes them anew, so that no graph depends on the cache.
    """

    inv_freq: Tensor
    long_inv_freq: Tensor | None

    def __init__(
        self,
        inv_freq: ArrayLike,
        *,
        pairing: str = "halves",
        attention_factor: float = 1.0,
        offset: int = 0,
        dim: int | None = None,
        original_length: int | None = None,
        long_inv_freq: ArrayLike | None = None,
        dynamic_factor: float | None = None,
        pair_axes: ArrayLike | None = None,
    ) -> None:
        super().__init__()
        θ = np.asarray(inv_freq, dtype=np.float64)
        if θ.ndim != 1 or not len(θ) or not np.isfinite(θ).all():
            raise PosgeomError(f"inv_freq came of shape {θ.shape}; give (pairs,) finite numbers")
        self.keep("inv_freq", θ)
        self.register_buffer("long_inv_freq", None)
        if long_inv_freq is not None:
            self.keep("long_inv_freq", np.broadcast_to(long_inv_freq, θ.shape))
        self.pairing, self.attention_factor, self.offset = pairing, attention_factor, offset
        self.dim = 2 * len(θ) if dim is None else dim
        if self.dim < 2 * len(θ):
            raise PosgeomError(f"{len(θ)} pairs came for heads of {self.dim}; give {self.dim // 2}")
        self.slots = pair_slots(len(θ), pairing)
        self.original_length, self.dynamic_factor = original_length, dynamic_factor
        if self.follows_length and original_length is None:
            raise PosgeomError("frequencies that follow the length came without original_length")
        self.pair_axes = None if pair_axes is None else np.asarray(pair_axes, dtype=int).tolist()
        self._cache: tuple[Tensor, Tensor] | None = None

    @classmethod
    def from_encoding(cls, encoding: Rotary, *, offset: int = 0) -> Self:
        """The layer of a rotary encoding, scaling, share of the slots and axes included.

        Raises PosgeomError for xPos, whose queries and keys are scaled apart.
        """
        if not isinstance(encoding, Rotary) or isinstance(encoding, XPos):
            raise PosgeomError(f"{encoding.name} does not only turn q and k alike; give a rope")
        θ, axes = encoding.frequencies_at(), encoding.pair_axes
        options: dict[str, Any] = {}
        if isinstance(encoding, MRope) and encoding.n_axes == 2:  # time stands still
            θ, axes = np.where(axes == 0, 0, θ), np.maximum(axes - 1, 0)
        if isinstance(encoding, Rope) and encoding.original_length is not None:
            options["original_length"] = L = encoding.original_length
            if encoding.scaling == "longrope":
                options["long_inv_freq"] = encoding.frequencies_at(L + 1)
            if encoding.scaling == "dynamic":
                options["dynamic_factor"] = encoding.factor
        return cls(
            θ,
            pairing=encoding.pairing,
            attention_factor=encoding.attention_factor,
            offset=offset,
            dim=encoding.dim,
            pair_axes=None if encoding.n_axes == 1 else axes,
            **options,
        )

    @property
    def follows_length(self) -> bool:
        """Whether the frequencies depend on the length of the sequence."""
        return self.long_inv_freq is not None or self.dynamic_factor is not None

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        positions: Tensor | None = None,
        *,
        length: int | Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """q and k (batch, heads, length, dim), turned; see rotate."""
        return self.rotate(q, positions, length=length), self.rotate(k, positions, length=length)

    def rotate(
        self, x: Tensor, positions: Tensor | None = None, *, length: int | Tensor | None = None
    ) -> Tensor:
        """x (batch, heads, length, dim), or (…, length, dim), turned, in its own dtype.

        positions  (length,) or (batch, length), by default 0..length−1; with a last axis of their
                   own where pairs follow several.  Below 0 and fractions are angles as others
        length     of the whole sequence, by default the last position + 1; only frequencies that
                   follow the length look at it

        Raises PosgeomError for another width, shape or device, for masks, NaN and infinity, and for
        a grid without positions.
        """
        if x.ndim < 2 or x.shape[-1] != self.dim:
            raise PosgeomError(f"x came of shape {tuple(x.shape)}; give (…, length, {self.dim})")
        dtype = torch.promote_types(x.dtype, torch.float32)
        if positions is None:
            cos, sin = self._implied(x.shape[-2], x.device, dtype, length)
        else:
            batch = x.shape[0] if x.ndim == 4 else None
            check_positions(self._on_one_axis(positions), x, x.shape[-2], batch)
            cos, sin = (y.to(dtype) for y in self._cos_sin(positions, length))
        if cos.ndim == 3:
            cos, sin = cos[:, None], sin[:, None]  # the same for all heads
        first, second = self.slots
        turned = x.to(dtype, copy=True)
        a, b = x[..., first].to(dtype), x[..., second].to(dtype)
        turned[..., first], turned[..., second] = a * cos - b * sin, a * sin + b * cos
        return turned.to(x.dtype)

    def _on_one_axis(self, positions: Tensor) -> Tensor:
        """Positions along the first axis; PosgeomError unless there are as many as pairs follow."""
        if self.pair_axes is None:
            return positions
        axes = 1 + max(self.pair_axes)
        if positions.ndim < 2 or positions.shape[-1] != axes:
            raise PosgeomError(
                f"positions came of shape {tuple(positions.shape)}; give (…, length, {axes}), "
                "one for each axis"
            )
        return positions[..., 0]

    def cos_sin(
        self, positions: Tensor, *, length: int | Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """a·cos(p θ_k) and a·sin(p θ_k), float32, each (…, pairs), a the attention factor."""
        cos, sin = self._cos_sin(positions, length)
        return cos.to(torch.float32), sin.to(torch.float32)

    def frequencies(self, length: int | Tensor | None = None) -> Tensor:
        """θ_k (pairs,) for a sequence of this length; without one, of up to the original length."""
        θ, L = self.inv_freq, self.original_length
        if length is None or L is None:
            return θ
        n = torch.as_tensor(length, device=θ.device)
        if self.long_inv_freq is not None:
            return torch.where(n > L, self.long_inv_freq, θ)
        if self.dynamic_factor is not None:
            s, pairs = self.dynamic_factor, len(θ)
            k = torch.arange(pairs, dtype=θ.dtype, device=θ.device)
            return θ * (s * n.clamp(min=L).to(θ.dtype) / L - (s - 1)) ** (-k / max(1, pairs - 1))
        return θ

    def _cos_sin(self, positions: Tensor, length: int | Tensor | None) -> tuple[Tensor, Tensor]:
        p = numbers(positions) + self.offset
        if length is None and self.follows_length:
            length = p.amax().floor() + 1 if p.is_floating_point() else p.amax() + 1
        p = p[..., None] if self.pair_axes is None else p[..., self.pair_axes]
        fine = torch.float32 if p.device.type in NO_PLACE else torch.float64
        angles = p.to(fine) * self.frequencies(length).to(p.device, fine)
        return self.attention_factor * angles.cos(), self.attention_factor * angles.sin()

    def _implied(
        self, n: int, device: torch.device, dtype: torch.dtype, length: int | Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """cos and sin of positions 0..n−1, from the cache where it is as long."""
        if self.pair_axes is not None:
            raise PosgeomError("positions have several axes; give them, (length, axes)")
        if self.follows_length or dtype != torch.float32 or torch.compiler.is_compiling():
            p = torch.arange(n, device=device)
            cos, sin = self._cos_sin(p, n + self.offset if length is None else length)
            return cos.to(dtype), sin.to(dtype)
        if self._cache is None or len(self._cache[0]) < n or self._cache[0].device != device:
            with torch.inference_mode(False), torch.no_grad():  # training may come to use it
                self._cache = self.cos_sin(torch.arange(n, device=device))
        cos, sin = self._cache
        return cos[:n], sin[:n]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        self._cache = None
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, *args: Any) -> None:
        self._cache = None
        super()._load_from_state_dict(*args)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_cache": None}
