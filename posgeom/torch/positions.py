"""Which position each token has: implied, given, or told by padding and document borders."""

import torch
from torch import Tensor

from posgeom.errors import PosgeomError


def padded_positions(mask: Tensor) -> Tensor:
    """Positions of padded texts from their mask (batch, length), 1 or True at tokens.

    The first token has position 0 wherever it stands, so left and right padding come to the same.
    Padding before it has 0, padding behind the last token the last one's: attention hides both.
    """
    return (mask.to(torch.int64).cumsum(-1) - 1).clamp(min=0)


def packed_positions(documents: Tensor) -> Tensor:
    """Positions that start again with each document: (…, length) from its number at each token.

    Only a change of the number counts: 7 7 7 2 2 has positions 0 1 2 0 1.
    """
    at = torch.arange(documents.shape[-1], device=documents.device).expand(documents.shape)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[..., 1:] = documents[..., 1:] != documents[..., :-1]
    return at - torch.where(begins, at, 0).cummax(-1).values


def check_positions(positions: Tensor, length: int, batch: int | None) -> None:
    """Raise PosgeomError unless positions are (length,), or (batch, length) where there is one."""
    several = batch is not None and positions.ndim == 2
    one = positions.ndim == 1 or (several and positions.shape[0] == 1)
    same = several and positions.shape[0] == batch
    if not (one or same) or positions.shape[-1] != length:
        wanted = f"({length},)" if batch is None else f"({length},) or ({batch}, {length})"
        raise PosgeomError(f"positions came of shape {tuple(positions.shape)}; give {wanted}")


def check_whole(positions: Tensor) -> None:
    """Raise PosgeomError for fractions, which number no rows."""
    if positions.is_floating_point() or positions.dtype == torch.bool:
        raise PosgeomError(f"positions came as {positions.dtype}; give whole numbers")


def can_look(positions: Tensor) -> bool:
    """Whether Python may look at the numbers: not in a compiled graph, nor on the meta device."""
    return not (torch.compiler.is_compiling() or positions.is_meta)
