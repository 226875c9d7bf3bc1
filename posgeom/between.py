"""An encoding's distances in parts, where those of all pairs at once would not fit in memory."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from posgeom.encodings import Encoding
from posgeom.encodings.table import TableEncoding

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Rows = slice | IntArray

_BLOCK = 512  # offsets asked at a time: each asks for the square of as many


def by_offset(encoding: Encoding, positions: IntArray) -> FloatArray | None:
    """f(t) with δ_ij = f(|i − j|) for t = 0..the last position − the first; None if there is none.

    positions: (n,) ascending.  Encodings that follow the length see the last position.
    """
    if not encoding.shift_invariant or encoding.n_axes > 1:
        return None
    first, last = positions[0], positions[-1]
    f = np.empty(last - first + 1)
    for start in range(0, len(f), _BLOCK):
        t = np.arange(start, min(start + _BLOCK, len(f)))
        f[t] = encoding.distances(np.concatenate([[first], first + t, [last]]))[0, 1:-1]
    return f


def between(encoding: Encoding, positions: IntArray) -> Callable[[Rows, Rows], FloatArray]:
    """A function from rows and columns, of the positions, to the distances between them.

    positions: (n,) ascending.
    """
    if isinstance(encoding, TableEncoding):
        X = encoding.table(positions)
        X = X - X.mean(axis=0)  # as in distances_between_rows
        squares = (X * X).sum(axis=1)

        def of_rows(rows: Rows, columns: Rows) -> FloatArray:
            G = X[rows] @ X[columns].T
            return np.sqrt(np.maximum(squares[rows][:, None] + squares[columns] - 2 * G, 0))

        return of_rows

    def cut(rows: Rows, columns: Rows) -> FloatArray:
        i, j = positions[rows], positions[columns]
        every = np.concatenate([i, j, positions[-1:]])
        return encoding.distances(every)[: len(i), len(i) : -1]

    return cut
