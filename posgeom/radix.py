"""The loop that ranks millions of distances, compiled.

It holds no lock of Python's while it runs, so that threads may rank side by side.
"""

import numpy as np
from numba import njit

_BITS = 10  # of a digit; a level, up to 10⁹, has three
_DIGITS = 3


@njit(nogil=True)
def radix_ranks(x, unit):  # type: ignore[no-untyped-def]
    """Average ranks of the levels of x (m,) less their mean (m + 1)/2: (m,).

    x, unit: distances, at most 2³² of them, and what makes them levels: whole multiples of
    1/unit, up to 10⁹.  Sorted digit by digit from the last, each time in stable order: a quarter
    of the time of a sort by comparison.
    """
    m = len(x)
    heads = np.zeros((_DIGITS, 1 << _BITS), np.int64)
    a, b = np.empty(m, np.uint64), np.empty(m, np.uint64)
    for i in range(m):
        level = np.uint64(np.rint(x[i] * unit))
        a[i] = level << 32 | np.uint64(i)
        for digit in range(_DIGITS):
            heads[digit, _digit(a[i], digit)] += 1
    for digit in range(_DIGITS):
        _to_begins(heads[digit])
        for i in range(m):
            at = _digit(a[i], digit)
            b[heads[digit, at]] = a[i]
            heads[digit, at] += 1
        a, b = b, a
    ranks = b.view(np.float64)  # no longer needed
    begin = 0
    while begin < m:
        end = begin + 1
        while end < m and a[end] >> 32 == a[begin] >> 32:
            end += 1
        for i in range(begin, end):
            ranks[a[i] & np.uint64(0xFFFFFFFF)] = (begin + end - m) / 2
        begin = end
    return ranks


@njit(nogil=True, inline="always")
def _digit(key, digit):  # type: ignore[no-untyped-def]
    return (key >> np.uint64(32 + digit * _BITS)) & np.uint64((1 << _BITS) - 1)


@njit(nogil=True)
def _to_begins(counts):  # type: ignore[no-untyped-def]
    """Where each of some neighbours begins, from how many each has, in the place of these."""
    total = 0
    for k in range(len(counts)):
        count = counts[k]
        counts[k] = total
        total += count
