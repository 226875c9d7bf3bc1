"""How the tokens of a document fall on positions."""

import numpy as np
from numpy.typing import NDArray

from posgeom.errors import PosgeomError

IntArray = NDArray[np.int64]

ALIGNMENTS = ("start", "end", "packed", "grid")


class Window:
    """Lays documents on positions 0..n−1.

    align    position 0 is
    start    the first token of each document; tokens past n are left out
    end      the last token, position 1 the one before it; tokens before the last n are left out
    packed   the first token of each block of n in the joined stream.  Each fold is a stream of
             its own, so that no block holds documents of two folds
    grid     cell (0, 0), row by row; every document has exactly n tokens
    """

    def __init__(self, n_positions: int, align: str, n_folds: int) -> None:
        if align not in ALIGNMENTS:
            raise PosgeomError(f"--align {align} is not known; use {', '.join(ALIGNMENTS)}")
        if n_positions < 2:
            raise PosgeomError(f"--positions {n_positions} came; distances need at least 2")
        self.n_positions = n_positions
        self.align = align
        self._written = np.zeros(n_folds, dtype=np.int64)  # tokens so far in each packed stream

    def place(self, lengths: IntArray, folds: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
        """Where each token of a batch falls.

        lengths, folds: (documents,).  Returns the rows fold·n + position (tokens,) and which of
        the tokens fall on a position at all (tokens,).
        Raises PosgeomError for a document that does not fill the grid.
        """
        n = self.n_positions
        if self.align == "grid" and (lengths != n).any():
            off = lengths[lengths != n][0]
            raise PosgeomError(f"a document has {off} tokens, the grid {n} cells; make them equal")
        ends = np.cumsum(lengths)
        positions = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
        if self.align == "end":
            positions = np.repeat(lengths, lengths) - 1 - positions
        elif self.align == "packed":
            positions = (positions + np.repeat(self._advance(lengths, folds), lengths)) % n
        return np.repeat(folds, lengths) * n + positions, positions < n

    def _advance(self, lengths: IntArray, folds: IntArray) -> IntArray:
        """(documents,) where each document starts in its fold's stream, which moves on."""
        order = np.argsort(folds, kind="stable")
        ends = np.cumsum(lengths[order])
        first = np.unique(folds[order], return_index=True)[1]
        before = np.repeat((ends - lengths[order])[first], np.diff([*first, len(order)]))
        starts = np.empty_like(lengths)
        starts[order] = ends - lengths[order] - before + self._written[folds[order]]
        np.add.at(self._written, folds, lengths)
        return starts
