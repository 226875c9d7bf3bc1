"""Whether two sets of distances have one order: ranks of pairs, and inversions of rows."""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

FINEST = 1e9  # distances that round to the same billionth of the largest are ties
LARGE = 1 << 20  # entries from which on compiled loops repay the second that compiling takes
_ROWS = 256  # rows of a matrix that are sorted at a time


def per_unit(x: FloatArray) -> float:
    """How many levels a distance of 1 has, where the largest of x has 10⁹.

    x: of any shape, its largest 1e-290 or more, or 0.
    """
    return float(FINEST / max(x.max(initial=0), 1e-290))


def levels(x: FloatArray) -> IntArray:
    """x in whole billionths of its largest entry, 0..10⁹; x ≥ 0, any shape."""
    scaled = x * per_unit(x)
    return np.rint(scaled, out=scaled).astype(np.int64)


def centred_ranks(x: FloatArray) -> FloatArray:
    """Average ranks of x (m,) less their mean (m + 1)/2: (m,)."""
    if len(x) >= LARGE // 2 and x.min() >= 0:
        from posgeom.radix import radix_ranks  # numba takes half a second to load

        ranks: FloatArray = radix_ranks(x, per_unit(x))
        return ranks
    # The number beside the level in one integer: a plain sort is five times as fast as an argsort.
    keys = levels(x) << 32
    keys |= np.arange(len(x))
    keys.sort()
    order = keys & 0xFFFFFFFF
    keys >>= 32
    begins = np.flatnonzero(np.diff(keys, prepend=-1))
    sizes = np.diff(begins, append=len(x))
    ranks = np.empty(len(x))
    ranks[order] = np.repeat(begins + (sizes - len(x)) / 2, sizes)
    return ranks


def repeated_ranks(x: FloatArray, times: IntArray) -> FloatArray:
    """centred_ranks where x[k] stands times[k] times: (len(x),), one rank for each."""
    group = np.unique(levels(x), return_inverse=True)[1]
    sizes = np.bincount(group, times)
    ranks: FloatArray = np.cumsum(sizes) - sizes / 2 - sizes.sum() / 2
    return ranks[group]


def row_orders(D: FloatArray, own: IntArray) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """The other positions by their distance from some, and where that is a tie.

    D: (rows, n) distances.  own: (rows,) the column that is the row's own position, left out.
    Returns (rows, n − 1) column numbers by rising distance, and for each whether it is as far as
    the one before it.
    """
    rows, n = D.shape
    order = np.empty((rows, n - 1), dtype=np.int32)
    same = np.zeros((rows, n - 1), dtype=bool)
    scale = per_unit(D)
    for start in range(0, rows, _ROWS):
        part = slice(start, start + _ROWS)
        keys = np.rint(D[part] * scale).astype(np.int64) << 32
        keys |= np.arange(n)
        keys[np.arange(len(keys)), own[part]] = np.iinfo(np.int64).max  # goes last
        keys.sort(axis=1)
        keys = keys[:, :-1]
        order[part] = keys & 0xFFFFFFFF
        same[part, 1:] = np.diff(keys >> 32, axis=1) == 0
    return order, same


def ordered_triples(same: NDArray[np.bool_]) -> IntArray:
    """(rows,) pairs of columns in each row that are no tie; same: (rows, m) of row_orders."""
    rows, m = same.shape
    later = np.flatnonzero(same)  # of a tie all but its first; a row's first is none
    begins = np.flatnonzero(np.diff(later, prepend=-1) != 1)
    before = np.arange(1, len(later) + 1)  # the k-th after the first makes k pairs
    before -= np.repeat(begins, np.diff(begins, append=len(later)))
    ties = np.bincount(later // m, before, rows)
    return m * (m - 1) // 2 - ties.astype(np.int64)


def violations(δ: IntArray, D: IntArray) -> tuple[int, int]:
    """Triples (row; j, k) with D_j < D_k and δ_j > δ_k, and those with D_j < D_k.

    δ, D: (rows, m) levels.  The violations of a row are the inversions of its
    δ once it is sorted by D.
    """
    e, d = (rankdata(M, method="dense", axis=1).astype(np.int64) - 1 for M in (δ, D))
    e = np.take_along_axis(e, np.lexsort((e, d), axis=1), axis=1)
    m = d.shape[1]
    return _inversions(e), len(d) * m * (m - 1) // 2 - _ties(d)


def _ties(levels: IntArray) -> int:
    """Number of pairs in a row with the same level, over all rows."""
    rows = np.arange(len(levels))[:, None] * levels.shape[1]
    sizes = np.bincount((rows + levels).ravel())
    return int((sizes * (sizes - 1) // 2).sum())


def _inversions(levels: IntArray) -> int:
    """Number of pairs p < q in a row with a higher level at p than at q, over all rows.

    Bit by bit from the highest: two levels are in the wrong order where, in the first bit that
    tells them apart, the earlier has 1 and the later 0.
    """
    total = 0
    for bit in reversed(range(int(levels.max(initial=0)).bit_length())):
        prefix = levels >> (bit + 1)
        order = np.argsort(prefix, axis=1, kind="stable")
        ones = np.take_along_axis(levels >> bit & 1, order, axis=1)
        prefix = np.take_along_axis(prefix, order, axis=1)
        before = np.cumsum(ones, axis=1) - ones
        first = np.diff(prefix, axis=1, prepend=-1) != 0
        start = np.maximum.accumulate(np.where(first, before, 0), axis=1)
        total += int(((before - start) * (1 - ones)).sum())
    return total
