"""The loops that count inversions of long rows, compiled.

They hold no lock of Python's while they run, so that threads may compare encodings side by side.
"""

import numpy as np
from numba import njit

_RUN = 8  # entries that are compared all with all, faster than they are merged
_BLOCK = 64  # ranks, of which some thousands make as many blocks


@njit(nogil=True)
def row_inversions(delta, scale, order, same):  # type: ignore[no-untyped-def]
    """(rows,) pairs p < q of each row with a higher level at p than at q.

    delta, scale  (rows, n) distances, and what makes them levels: whole multiples of 1/scale
    order, same   (rows, m) of row_orders; pairs within a tie do not count
    By merging sorted halves, whose entries in the wrong order are counted on the way.
    """
    rows, m = order.shape
    totals = np.zeros(rows, np.int64)
    a, b = np.empty(m, np.int32), np.empty(m, np.int32)
    for i in range(rows):
        row = delta[i]
        for p in range(m):
            level = np.int32(np.rint(row[order[i, p]] * scale))
            q = p
            while same[i, q] and a[q - 1] > level:  # a tie is put in order: no inversions
                a[q] = a[q - 1]
                q -= 1
            a[q] = level
        total = _sort_runs(a, b)
        a, b = b, a
        width = _RUN
        while width < m:
            for start in range(0, m, 2 * width):
                total += _merge(a, b, start, min(start + width, m), min(start + 2 * width, m))
            a, b = b, a
            width *= 2
        totals[i] = total
    return totals


@njit(nogil=True)
def offset_inversions(ranks, order, same):  # type: ignore[no-untyped-def]
    """row_inversions of distances that depend on the offset of two positions alone: (n,).

    ranks        (n − 1,) of the distance at the offsets 1..n−1, from 0, equal ones alike
    order, same  (n, n − 1) of row_orders, of all n positions
    How many of the ranks seen lie above each is kept, by blocks and within them: one more is added
    to its neighbours in a few vectors, without a branch.  Some thousands of ranks take half the
    time of merging.
    """
    n, m = order.shape
    totals = np.zeros(n, np.int64)
    by_block = np.empty(ranks.max() // _BLOCK + 1, np.int32)
    within = np.empty((len(by_block), _BLOCK), np.int32)
    for i in range(n):
        by_block[:] = 0
        within[:] = 0
        begin = 0
        while begin < m:
            end = begin + 1
            while end < m and same[i, end]:
                end += 1
            for p in range(begin, end):  # a tie: none of it has seen another
                rank = ranks[abs(order[i, p] - i) - 1]
                totals[i] += by_block[rank // _BLOCK] + within[rank // _BLOCK, rank % _BLOCK]
            for p in range(begin, end):
                rank = ranks[abs(order[i, p] - i) - 1]
                _add_below(by_block, rank // _BLOCK)
                _add_below(within[rank // _BLOCK], rank % _BLOCK)
            begin = end
    return totals


@njit(nogil=True, inline="always")
def _add_below(counts, end):  # type: ignore[no-untyped-def]
    for k in range(len(counts)):
        counts[k] += k < end


@njit(nogil=True)
def _sort_runs(a, b):  # type: ignore[no-untyped-def]
    """Each run of a, sorted, in b; returns its inversions.  No step depends on a comparison."""
    total = 0
    whole = len(a) // _RUN * _RUN
    for start in range(0, whole, _RUN):
        for p in range(_RUN):
            total += _place(a, b, start, start + p, start + _RUN)
    for p in range(whole, len(a)):
        total += _place(a, b, whole, p, len(a))
    return total


@njit(nogil=True, inline="always")
def _place(a, b, start, p, stop):  # type: ignore[no-untyped-def]
    """Put a[p] where it belongs among b[start:stop]; returns how many before it are larger."""
    larger, smaller = np.int32(0), np.int32(0)
    for q in range(start, p):
        larger += a[q] > a[p]
    for q in range(p + 1, stop):
        smaller += a[q] < a[p]
    b[p - larger + smaller] = a[p]
    return larger


@njit(nogil=True)
def _merge(a, b, start, middle, end):  # type: ignore[no-untyped-def]
    """The sorted a[start:middle] and a[middle:end] as one in b; returns the inversions they had.

    An entry of the second half stands behind all that is larger in the first: behind what is left
    of it when merging from below, and what is gone of it when merging from above.  Both ways at
    once, without a branch that a processor could guess wrong, is three times as fast.
    """
    total = 0
    p, q, o = start, middle, start
    r, s, z = middle - 1, end - 1, end - 1
    for _ in range(min(middle - start, end - middle)):
        x, y = a[p], a[q]
        second = np.int64(y < x)
        b[o] = min(x, y)
        total += second * (middle - p)
        p += 1 - second
        q += second
        o += 1
        x, y = a[r], a[s]
        first = np.int64(x > y)
        b[z] = max(x, y)
        total += (1 - first) * (middle - 1 - r)
        r -= first
        s -= 1 - first
        z -= 1
    while o <= z:  # the shorter half is gone from both ends, or this is none
        if q > s or (p <= r and a[p] <= a[q]):
            b[o] = a[p]
            p += 1
        else:
            b[o] = a[q]
            total += middle - p
            q += 1
        o += 1
    return total
