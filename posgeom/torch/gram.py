"""Inner products of designed positions as a bias, dense or folded into queries and keys."""

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional as F

from posgeom.errors import PosgeomError
from posgeom.torch.bias import AttentionBias, wide
from posgeom.torch.numbers import hold, matrix
from posgeom.torch.rows import RowLookup


class GramBias(AttentionBias):
    """c_h·⟨a_i, a_j⟩, a_i the coordinates of position i.

    A          (n, r), as from classical MDS, where A Aᵀ is the centred Gram matrix
    scale      c, one for all heads or one for each
    positions  (n,) the position of each row, where some were left out of the design
    """

    A: Tensor
    scale: Tensor

    def __init__(
        self,
        A: ArrayLike | Tensor,
        scale: ArrayLike = 1.0,
        *,
        causal: bool = False,
        trainable: bool = False,
        positions: ArrayLike | None = None,
    ) -> None:
        super().__init__(causal=causal)
        hold(self, "A", matrix("A", A), trainable=trainable)
        c = np.atleast_1d(np.asarray(scale, dtype=np.float64))
        if c.ndim != 1 or not np.isfinite(c).all():
            raise PosgeomError(f"scale came as {scale!r}; give a number, or one for each head")
        self.keep("scale", c)
        self.lookup = RowLookup(len(self.A), positions)

    def coordinates(self, at: Tensor) -> Tensor:
        """(…, r) rows of A by number, float32 at least."""
        return wide(F.embedding(at, self.A))

    def scales(self, like: Tensor) -> Tensor:
        """c, (heads or 1, 1, 1), in the dtype and on the device of `like`."""
        return self.scale.to(like.device, like.dtype)[:, None, None]

    def values(self, i: Tensor, j: Tensor) -> Tensor:
        """(…, heads or 1, q, k)."""
        a, b = (self.coordinates(self.lookup(p)) for p in (i, j))
        products = a @ b.transpose(-1, -2)
        return self.scales(products) * products[..., None, :, :]


class FoldedBias(nn.Module):
    """The bias c·⟨a_i, a_j⟩ as further columns of queries and keys, so that no n×n tensor is made.

    s·⟨(q, c/s·a_i), (k, a_j)⟩ = s·⟨q, k⟩ + c·⟨a_i, a_j⟩, s what attention multiplies logits with.

    gram      the dense bias, whose numbers it shares
    multiple  the new width is filled up with zeros to a multiple of this, which kernels like
    """

    def __init__(self, gram: GramBias, *, multiple: int = 1) -> None:
        super().__init__()
        if gram.causal:
            raise PosgeomError("a folded bias cannot mask; give is_causal=True to the attention")
        if multiple < 1:
            raise PosgeomError(f"multiple={multiple} came; give 1 or more")
        self.gram, self.multiple = gram, multiple

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        q_positions: Tensor | None = None,
        k_positions: Tensor | None = None,
        *,
        scale: float | None = None,
    ) -> tuple[Tensor, Tensor, float]:
        """Wider q, wider k, and the scale to give to `scaled_dot_product_attention` with them.

        q (batch, heads, n, d), k (batch, fewer heads or as many, m, d).  positions: (length,) or
        (batch, length), by default 0..length−1, for keys those of the queries.  scale: s, by
        default 1/√d of the d that came; attention on its own would take that of the wider ones.
        """
        s = q.shape[-1] ** -0.5 if scale is None else scale
        if k_positions is None and q.shape[-2] == k.shape[-2]:
            k_positions = q_positions
        elif k_positions is None or q_positions is None:
            raise PosgeomError(
                f"{q.shape[-2]} queries came with {k.shape[-2]} keys; give the positions of both"
            )
        if self.gram.scale.numel() not in (1, q.shape[-3]):
            raise PosgeomError(
                f"{q.shape[-3]} heads came with {self.gram.scale.numel()} scales; "
                "give one scale, or one for each head of the queries"
            )
        a, b = self._rows(q, q_positions), self._rows(k, k_positions)
        a = self.gram.scales(a) / s * a
        return self._wider(q, a), self._wider(k, b), s

    def _rows(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """(…, 1, length, r) coordinates for x (batch, heads, length, d)."""
        batch = x.shape[0] if x.ndim == 4 else None
        at = self.gram.lookup.of_sequence(x, positions, batch)
        return self.gram.coordinates(at)[..., None, :, :]

    def _wider(self, x: Tensor, columns: Tensor) -> Tensor:
        columns = columns.to(x.dtype).expand(*x.shape[:-1], -1)
        width = x.shape[-1] + columns.shape[-1]
        return F.pad(torch.cat([x, columns], dim=-1), (0, -width % self.multiple))


def fold_bias(
    A: ArrayLike | Tensor,
    scale: ArrayLike = 1.0,
    *,
    multiple: int = 1,
    trainable: bool = False,
    positions: ArrayLike | None = None,
) -> FoldedBias:
    """What folds the bias c·⟨a_i, a_j⟩ into queries and keys; see GramBias and FoldedBias."""
    gram = GramBias(A, scale, trainable=trainable, positions=positions)
    return FoldedBias(gram, multiple=multiple)
