"""Which position each token has: implied, given, or told by padding and document borders."""

import torch
from torch import Tensor

from posgeom.errors import PosgeomError


def padded_positions(mask: Tensor) -> Tensor:
    """Positions of padded texts from their mask (batch, length), 1 or True at tokens.

    The first token has position 0 wherever it stands, so left and right padding come to the same.
    Padding before it has 0, padding behind the last token the last one's: attention hides both.
    Raises PosgeomError for another shape, and for masks that are added to logits, 0 and −inf.
    """
    if mask.ndim not in (1, 2):
        raise PosgeomError(
            f"a mask came of shape {tuple(mask.shape)}; give (length,) or (batch, length)"
        )
    if mask.dtype != torch.bool and can_look(mask) and not bool(((mask == 0) | (mask == 1)).all()):
        raise PosgeomError("a mask came that is not of 0 and 1; give 1 at tokens, 0 at padding")
    return (mask.to(torch.int64).cumsum(-1) - 1).clamp(min=0)


def packed_positions(documents: Tensor) -> Tensor:
    """Positions that start again with each document: (…, length) from its number at each token.

    Only a change of the number counts: 7 7 7 2 2 has positions 0 1 2 0 1.  Raises PosgeomError
    for numbers with fractions, of which NaN would begin a document at each token.
    """
    if documents.ndim == 0 or documents.is_floating_point() or documents.is_complex():
        raise PosgeomError(
            f"documents came as {documents.dtype} of shape {tuple(documents.shape)}; give the "
            "whole number of its document at each token"
        )
    at = torch.arange(documents.shape[-1], device=documents.device).expand(documents.shape)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[..., 1:] = documents[..., 1:] != documents[..., :-1]
    return at - torch.where(begins, at, 0).cummax(-1).values


def check_positions(positions: Tensor, like: Tensor, length: int, batch: int | None) -> None:
    """Raise PosgeomError unless positions are (length,), or (batch, length) where there is one.

    And unless they are on the device of `like`, the tokens.
    """
    several = batch is not None and positions.ndim == 2
    one = positions.ndim == 1 or (several and positions.shape[0] == 1)
    same = several and positions.shape[0] == batch
    if not (one or same) or positions.shape[-1] != length:
        wanted = f"({length},)" if batch is None else f"({length},) or ({batch}, {length})"
        raise PosgeomError(f"positions came of shape {tuple(positions.shape)}; give {wanted}")
    check_device(positions, like)


def check_device(positions: Tensor, like: Tensor) -> None:
    """Raise PosgeomError for positions on another device than the tokens, or other positions."""
    if positions.device != like.device:
        raise PosgeomError(
            f"positions came on {positions.device} for what is on {like.device}; "
            f"give positions.to({str(like.device)!r})"
        )


def numbers(positions: Tensor) -> Tensor:
    """Positions to count with: whole ones as int64, in which no sum or difference wraps around.

    Raises PosgeomError for masks, for complex numbers, and for NaN and infinity.
    """
    if positions.dtype == torch.bool or positions.is_complex():
        raise PosgeomError(
            f"positions came as {positions.dtype}; give numbers, of a mask padded_positions(mask)"
        )
    if not positions.is_floating_point():
        return positions.to(torch.int64)
    if can_look(positions) and not bool(torch.isfinite(positions).all()):
        raise PosgeomError("positions hold NaN or infinity; give finite numbers")
    return positions


def check_whole(positions: Tensor) -> None:
    """Raise PosgeomError for fractions, which number no rows."""
    if positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool:
        raise PosgeomError(f"positions came as {positions.dtype}; give whole numbers")


def can_look(positions: Tensor) -> bool:
    """Whether Python may look at the numbers: not in a compiled graph, nor on the meta device."""
    return not (torch.compiler.is_compiling() or positions.is_meta)
