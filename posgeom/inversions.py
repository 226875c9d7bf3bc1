"""The loop that counts inversions of long rows, compiled.

It holds no lock of Python's while it runs, so that threads may compare encodings side by side.
"""

import numpy as np
from numba import njit

_RUN = 8  # entries that insertion sorts faster than merging


@njit(nogil=True)
def row_inversions(delta, scale, order, same):  # type: ignore[no-untyped-def]
    """(rows,) pairs p < q of each row with a higher level at p than at q.

    delta, scale  (rows, n) distances, and what makes them levels: whole multiples of 1/scale
    order, same   (rows, m) of row_orders; pairs within a tie do not count
    By merging sorted halves: whatever is left in the first half when an entry of the second one
    is taken stands before it and is larger.
    """
    rows, m = order.shape
    totals = np.zeros(rows, np.int64)
    a, b = np.empty(m, np.int32), np.empty(m, np.int32)
    for i in range(rows):
        row = delta[i]
        total = 0
        for p in range(m):
            level = np.int32(np.rint(row[order[i, p]] * scale))
            q = p
            while same[i, q] and a[q - 1] > level:  # a tie is put in order: no inversions
                a[q] = a[q - 1]
                q -= 1
            a[q] = level
        for start in range(0, m, _RUN):
            for p in range(start + 1, min(start + _RUN, m)):
                level = a[p]
                q = p
                while q > start and a[q - 1] > level:
                    a[q] = a[q - 1]
                    q -= 1
                a[q] = level
                total += p - q
        width = _RUN
        while width < m:
            for start in range(0, m, 2 * width):
                middle, end = min(start + width, m), min(start + 2 * width, m)
                p, q = start, middle
                for o in range(start, end):
                    if p < middle and (q >= end or a[p] <= a[q]):
                        b[o] = a[p]
                        p += 1
                    else:
                        b[o] = a[q]
                        q += 1
                        total += middle - p
            a, b = b, a
            width *= 2
        totals[i] = total
    return totals
