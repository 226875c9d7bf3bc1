"""The loop over the rare tokens that two positions share, compiled.

It holds no lock of Python's while it runs, so that threads may run tiles side by side.
"""

from numba import njit


@njit(nogil=True)
def add_shared(rows, values, first, second, tile):  # type: ignore[no-untyped-def]
    """Add Σ_v S[i, v] S[j, v] to tile[i, j] for the rows i of one stretch and j of another.

    rows, values   the entries of S column by column: row number within its stretch, and S
    first, second  (2, V) where the entries of column v begin and end that lie in either stretch
    tile           (rows of the first, rows of the second)
    Only tokens that both rows hold are touched; a dense product would multiply the zeros too.
    """
    for v in range(first.shape[1]):
        begin, end = second[0, v], second[1, v]
        if begin == end:
            continue
        js, x = rows[begin:end], values[begin:end]
        for p in range(first[0, v], first[1, v]):
            row, a = tile[rows[p]], values[p]
            for q in range(x.shape[0]):
                row[js[q]] += a * x[q]
