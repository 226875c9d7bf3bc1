"""Symmetric matrices without their upper halves, in strips of rows.

A strip is a few rows up to the last of their own columns, so that little more than half is kept,
and is copied a block at a time.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Block = NDArray[np.float32]

_ROWS = 32  # of a strip


def strips(n: int) -> Iterator[tuple[slice, int, slice]]:
    """Rows of each strip of an (n, n) matrix, where its columns end, and where it is packed."""
    at = 0
    for start in range(0, n, _ROWS):
        end = min(start + _ROWS, n)
        size = (end - start) * end
        yield slice(start, end), end, slice(at, at + size)
        at += size


def packed_size(n: int) -> int:
    """Entries that are kept of an (n, n) matrix."""
    return sum((rows.stop - rows.start) * end for rows, end, _ in strips(n))


def add_packed(M: Block, packed: Block, *, both: bool) -> None:
    """Add M (n, n), or, of both, M + Mᵀ, to a packed matrix; M is symmetric where not of both."""
    for rows, end, at in strips(len(M)):
        strip = packed[at].reshape(-1, end)
        strip += M[rows, :end]
        if both:
            strip += M[:end, rows].T


def unpacked(packed: Block, n: int) -> Block:
    """The whole matrices (T, n, n) of packed ones (T, size), of the same kind."""
    M = np.empty((len(packed), n, n), dtype=packed.dtype)
    for rows, end, at in strips(n):
        strip = packed[:, at].reshape(len(packed), -1, end)
        M[:, rows, :end] = strip
        M[:, : rows.start, rows] = strip[:, :, : rows.start].transpose(0, 2, 1)
    return M
