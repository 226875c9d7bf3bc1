"""Numbers added to the attention logits: ALiBi, T5, KERPLE, FIRE, or any by offset."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional as F

from posgeom.encodings import Alibi, BiasEncoding, Fire, Kerple, T5Bias, t5_bucket
from posgeom.encodings.bias import per_head
from posgeom.errors import PosgeomError
from posgeom.torch.numbers import KeepsConstants, hold, matrix
from posgeom.torch.positions import can_look, check_device, check_whole, numbers


class AttentionBias(KeepsConstants):
    """b_h(i, j), added to the logit of query i and key j in head h.

    causal: the bias of a key ahead of its query is −inf
    """

    def __init__(self, *, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal

    @staticmethod
    def from_encoding(
        encoding: BiasEncoding,
        *,
        length: int | None = None,
        causal: bool | None = None,
        trainable: bool | None = None,
    ) -> "AttentionBias":
        """The layer of a bias encoding, with all its heads.

        length     how far apart positions may be, for an encoding that has no layer of its own
        causal     by default as the encoding says
        trainable  by default what was trained by those who made it: T5, KERPLE and FIRE
        """
        if not isinstance(encoding, BiasEncoding):
            raise PosgeomError(f"{encoding.name} is no bias; see RotaryEmbedding and the tables")
        options: dict[str, Any] = {"causal": encoding.causal if causal is None else causal}
        if trainable is not None:
            options["trainable"] = trainable
        for kind, make in _LAYERS.items():
            if isinstance(encoding, kind):
                return make(encoding, options)
        if length is None or not encoding.shift_invariant:
            raise PosgeomError(
                f"{encoding.name} has no layer of its own; give the length to tabulate"
            )
        offsets = np.arange(1 - length, length, dtype=np.float64)
        return OffsetBias(encoding.biases(np.arange(encoding.heads), offsets), **options)

    @abstractmethod
    def values(self, i: Tensor, j: Tensor) -> Tensor:
        """b_h(i, j) of queries (…, q) and keys (…, k): (…, heads, q, k), float32 at least."""

    def forward(self, q_positions: int | Tensor, k_positions: int | Tensor | None = None) -> Tensor:
        """The bias, (heads, q, k), or (batch, heads, q, k) for positions (batch, length).

        A number n stands for positions 0..n−1.  k_positions: by default those of the queries.
        Those below 0 differ from others as any do; a table by position, as in GramBias, refuses
        them.  Raises PosgeomError for another shape or device, for masks, NaN and infinity.
        """
        i = self._positions(q_positions)
        j = i if k_positions is None else self._positions(k_positions)
        check_device(j, i)
        if i.ndim == j.ndim == 2 and len(i) != len(j) and 1 not in (len(i), len(j)):
            raise PosgeomError(
                f"{len(i)} texts of queries came with {len(j)} of keys; give as many"
            )
        with torch.autocast(i.device.type, enabled=False):  # which would take products in 16 bits
            values = self.values(i, j)
        return values.masked_fill(offsets(i, j) < 0, -torch.inf) if self.causal else values

    def _positions(self, positions: int | Tensor) -> Tensor:
        held = dict(self.named_parameters()) | dict(self.named_buffers())
        tables = [x for name, x in held.items() if name not in self._constants]
        if isinstance(positions, Tensor):
            if positions.ndim not in (1, 2):
                raise PosgeomError(
                    f"positions came of shape {tuple(positions.shape)}; give (n,) or (batch, n)"
                )
            for table in tables[:1]:  # constants come along to any device
                check_device(positions, table)
            return numbers(positions)
        if isinstance(positions, float | bool) or positions < 0:
            raise PosgeomError(f"positions={positions} came; give how many, or a tensor of them")
        return torch.arange(positions, device=next((x.device for x in held.values()), None))


class AlibiBias(AttentionBias):
    """−m_h |i − j|, or m_h·j in the form of keys.  Press et al. (2022), sec. 3.

    slopes: m_h, (heads,), float64 constants
    """

    slopes: Tensor

    def __init__(self, slopes: ArrayLike, *, form: str = "distance", causal: bool = False) -> None:
        super().__init__(causal=causal)
        if form not in ("distance", "keys"):
            raise PosgeomError(f"form {form!r} is not known; use distance or keys")
        self.form = form
        self.keep("slopes", np.atleast_1d(slopes))

    def values(self, i: Tensor, j: Tensor) -> Tensor:
        """(…, heads, q, k)."""
        x = offsets(i, j)
        x = -x.abs() if self.form == "distance" else j[..., None, None, :].expand_as(x)
        return self.slopes.to(x.device, torch.float32)[:, None, None] * x


class RelativeBias(AttentionBias):
    """b_h[bucket(j − i)].  Raffel et al. (2020), sec. 2.1.

    table          (buckets, heads), as `relative_attention_bias.weight`
    bidirectional  whether keys ahead have buckets of their own
    """

    weight: Tensor

    def __init__(
        self,
        table: ArrayLike | Tensor,
        *,
        bidirectional: bool = True,
        max_distance: int = 128,
        causal: bool = False,
        trainable: bool = True,
    ) -> None:
        super().__init__(causal=causal)
        hold(self, "weight", matrix("table", table), trainable=trainable)
        self.bidirectional, N = bidirectional, len(self.weight)
        # which refuses numbers of buckets and distances that make none
        T5Bias(buckets=N, max_distance=max_distance, causal=not bidirectional)
        past = t5_bucket(-np.arange(max_distance + 1), bidirectional, N, max_distance)
        self.own = N // 2 if bidirectional else N
        # The first offset of each bucket but 0: whole numbers, where logarithms round
        self.begins = np.searchsorted(past, np.arange(1, self.own)).tolist()

    def values(self, i: Tensor, j: Tensor) -> Tensor:
        """(…, heads, q, k)."""
        t = offsets(i, j)[..., 0, :, :]
        check_whole(t)
        begins = torch.tensor(self.begins, dtype=torch.int64, device=t.device)
        if self.bidirectional:
            bucket = torch.bucketize(t.abs(), begins, right=True) + self.own * (t < 0)
        else:
            bucket = torch.bucketize(t.clamp(min=0), begins, right=True)
        return wide(F.embedding(bucket, self.weight)).movedim(-1, -3)


class KerpleBias(AttentionBias):
    """−r1·ln(1 + r2|i − j|), or −r1·|i − j|^r2.  Chi et al. (2022), KERPLE.

    kind    "log", or "power" with r2 ≤ 2
    r1, r2  (heads,), positive: what is held and trained is their logarithm
    """

    log_r1: Tensor
    log_r2: Tensor

    def __init__(
        self,
        r1: ArrayLike,
        r2: ArrayLike,
        *,
        kind: str = "log",
        causal: bool = False,
        trainable: bool = True,
    ) -> None:
        super().__init__(causal=causal)
        # which refuses what is out of range and of unequal lengths
        encoding = Kerple(kind=kind, r1=tuple(np.atleast_1d(r1)), r2=tuple(np.atleast_1d(r2)))
        self.kind = kind
        for name in ("r1", "r2"):
            r = per_head(name, getattr(encoding, name), encoding.heads)
            hold(self, f"log_{name}", matrix(name, np.log(r)[:, None])[:, 0], trainable=trainable)

    def values(self, i: Tensor, j: Tensor) -> Tensor:
        """(…, heads, q, k)."""
        r1, r2 = (wide(log).exp()[:, None, None] for log in (self.log_r1, self.log_r2))
        t = offsets(i, j).abs().to(r1.dtype)
        if self.kind == "log":
            return -r1 * torch.log1p(r2 * t)
        # the gradient is that without the bound: with it, r2 could never leave it again
        return -r1 * t ** (r2 - (r2 - 2).clamp(min=0).detach())


class FireBias(AttentionBias):
    """f_h(ψ(|i − j|)/ψ(max(L, i))), ψ(x) = ln(1 + c·x).  Li et al. (2024), FIRE.

    layers  weights and biases of f: (width, 1), (width,), (heads, width), (heads,), a ReLU between
    """

    c: Tensor
    threshold: Tensor

    def __init__(
        self,
        layers: Sequence[ArrayLike],
        *,
        c: float = 0.1,
        threshold: float = 512.0,
        causal: bool = False,
        trainable: bool = True,
    ) -> None:
        super().__init__(causal=causal)
        encoding = Fire(layers=tuple(np.asarray(x) for x in layers), c=c, threshold=threshold)
        w1, b1, w2, b2 = (torch.tensor(x, dtype=torch.float32) for x in encoding.layers)
        self.f = nn.Sequential(nn.Linear(1, len(w1)), nn.ReLU(), nn.Linear(len(w1), len(w2)))
        self.f.load_state_dict({"0.weight": w1, "0.bias": b1, "2.weight": w2, "2.bias": b2})
        self.f.requires_grad_(trainable)
        hold(self, "c", torch.tensor(float(c)), trainable=trainable)
        hold(self, "threshold", torch.tensor(float(threshold)), trainable=trainable)

    def values(self, i: Tensor, j: Tensor) -> Tensor:
        """(…, heads, q, k)."""
        t = offsets(i, j)[..., 0, :, :].abs()
        c, L = wide(self.c), wide(self.threshold)
        share = torch.log1p(c * t) / torch.log1p(c * torch.maximum(L, i[..., :, None].to(L.dtype)))
        return wide(self.f(share[..., None].to(self.c.dtype))).movedim(-1, -3)


class OffsetBias(AttentionBias):
    """b_h(i − j) from a table of offsets −(n − 1)..n − 1.

    table: (heads, 2n − 1)
    """

    weight: Tensor

    def __init__(
        self, table: ArrayLike | Tensor, *, causal: bool = False, trainable: bool = False
    ) -> None:
        super().__init__(causal=causal)
        hold(self, "weight", matrix("table", table), trainable=trainable)
        if self.weight.shape[1] % 2 == 0:
            raise PosgeomError(
                f"a table of {self.weight.shape[1]} offsets came; give 2n − 1, of −(n − 1) to n − 1"
            )
        self.furthest = self.weight.shape[1] // 2

    def values(self, i: Tensor, j: Tensor) -> Tensor:
        """(…, heads, q, k)."""
        t = offsets(i, j)[..., 0, :, :]
        check_whole(t)
        if can_look(t) and bool((t.abs() > self.furthest).any()):
            raise PosgeomError(
                f"positions {int(t.abs().max())} apart came, the table knows up to "
                f"{self.furthest}; make it for a longer length"
            )
        return wide(F.embedding(t + self.furthest, self.weight.T)).movedim(-1, -3)


def offsets(i: Tensor, j: Tensor) -> Tensor:
    """i − j for queries (…, q) and keys (…, k): (…, 1, q, k), the 1 for heads."""
    return (i[..., :, None] - j[..., None, :]).unsqueeze(-3)


def wide(x: Tensor) -> Tensor:
    """x in float32 or float64: logits differ by less than 16 bits can tell."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _fire(e: Any, options: dict[str, Any]) -> AttentionBias:
    if not e.layers:
        raise PosgeomError(f"{e.name} has no weights, f(x) = −x stands in for them; give mlp=PATH")
    return FireBias(e.layers, c=e.c, threshold=e.threshold, **options)


def _alibi(e: Any, options: dict[str, Any]) -> AttentionBias:
    if options.pop("trainable", False):
        raise PosgeomError("the slopes of alibi are constants; leave trainable out")
    return AlibiBias(e.slopes, form=e.form, **options)


_LAYERS: dict[type[BiasEncoding], Callable[[Any, dict[str, Any]], AttentionBias]] = {
    Alibi: _alibi,
    T5Bias: lambda e, options: RelativeBias(
        e.numbers, bidirectional=not e.causal, max_distance=e.max_distance, **options
    ),
    Kerple: lambda e, options: KerpleBias(
        *(per_head(name, getattr(e, name), e.heads) for name in ("r1", "r2")),
        kind=e.kind,
        **options,
    ),
    Fire: _fire,
}
