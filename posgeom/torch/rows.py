"""Which row of a table belongs to which position."""

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional as F

from posgeom.errors import PosgeomError
from posgeom.torch.positions import can_look, check_positions, check_whole


class RowLookup(nn.Module):
    """From positions to rows 0..n−1.

    n          rows of the table
    positions  (n,) the position of each row where some have none, whole and different
    offset     added to every position first: a table whose row 2 is that of position 0 has 2

    A position without a row is refused with its number; one below 0 has none, whatever rows lie
    before that of position 0.  Compiled code cannot look at numbers; there the table's own look-up
    stops with an error of torch, or an assertion on the device.
    """

    index: Tensor | None

    def __init__(self, n: int, positions: ArrayLike | None = None, offset: int = 0) -> None:
        super().__init__()
        self.offset = offset
        known = np.arange(n) if positions is None else np.asarray(positions)
        if known.shape != (n,) or known.dtype.kind not in "iu":
            raise PosgeomError(
                f"positions came as {known.dtype} of shape {known.shape}; "
                f"give {n} whole numbers, one a row"
            )
        if known.min() < 0 or len(np.unique(known)) < n:
            raise PosgeomError("positions hold a number twice or below 0; give each row its own")
        self.limit = int(known.max()) + 1
        self.missing = n  # past the end of the table, for compiled code to stop at
        self.register_buffer("index", None)
        if not np.array_equal(known, np.arange(n)):
            row_of = np.full(self.limit, self.missing)
            row_of[known] = np.arange(n)
            self.index = torch.as_tensor(row_of)

    def forward(self, positions: Tensor) -> Tensor:
        """The row of each position: int64 of the same shape."""
        check_whole(positions)
        p = positions.to(torch.int64)
        at = p + self.offset
        if can_look(at):
            self._check(p, at)
        # past the end of every table, where a negative index might count from its end
        at = at.masked_fill(p < 0, self.limit)
        return at if self.index is None else F.embedding(at, self.index[:, None])[..., 0]

    def of_sequence(self, x: Tensor, positions: Tensor | None, batch: int | None) -> Tensor:
        """The rows for x (…, length, d): (length,) or (batch, length).

        positions: (length,) or (batch, length), by default 0..length−1.
        """
        length = x.shape[-2]
        if positions is not None:
            check_positions(positions, x, length, batch)
            return self(positions)
        if length + self.offset > self.limit:  # told in compiled code too: lengths are no tensors
            raise self._past_end(self.limit - self.offset)
        p = torch.arange(length, device=x.device)
        # known to be there, so nothing waits for a device to be looked at
        return p + self.offset if self.index is None else self(p)

    def _check(self, positions: Tensor, at: Tensor) -> None:
        outside = (positions < 0) | (at >= self.limit)
        if bool(outside.any()):
            raise self._past_end(int(positions[outside][0]))
        if self.index is not None and bool((self.index[at] == self.missing).any()):
            missing = int(positions[self.index[at] == self.missing][0])
            raise PosgeomError(
                f"position {missing} came, which has no row: the design left it out; design "
                "again with documents that have this position"
            )

    def _past_end(self, position: int) -> PosgeomError:
        end = self.limit - self.offset
        return PosgeomError(
            f"position {position} came, the table knows 0 to {end - 1}; cut the sequence there, "
            "or carry the design on with `posgeom design --extend`"
        )
