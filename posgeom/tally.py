"""The two loops over every token of a stream, compiled.

They hold no lock of Python's while they run, so that threads may run them side by side.
"""

import numpy as np
from numba import njit


@njit(nogil=True)
def tally(stream, blocks, table):  # type: ignore[no-untyped-def]
    """Add to table[i, v] how often token v stands i behind the start of a block.

    stream: (tokens,) ids.  blocks: (blocks,) where each begins.  table: (width, V) uint32.
    Four positions at a time: a counter that was just written is not at once read again, for which
    processors wait, and the same cache line of the stream serves all four.
    """
    one = np.uint32(1)
    width = table.shape[0]
    fours = width // 4 * 4
    for i in range(0, fours, 4):
        a, b, c, d = table[i], table[i + 1], table[i + 2], table[i + 3]
        for block in blocks:
            k = block + i
            a[stream[k]] += one
            b[stream[k + 1]] += one
            c[stream[k + 2]] += one
            d[stream[k + 3]] += one
    for i in range(fours, width):
        row = table[i]
        for block in blocks:
            row[stream[block + i]] += one


@njit(nogil=True)
def drain(table):  # type: ignore[no-untyped-def]
    """The counters above 0, row by row: values, their columns, and how many each row has.

    table: (width, V), which is left at 0, ready to be filled again.
    Returns int64 (entries,), int32 (entries,), int64 (width,).
    """
    filled = np.zeros(table.shape[0], np.int64)
    for i in range(table.shape[0]):
        for v in range(table.shape[1]):
            filled[i] += table[i, v] > 0
    values = np.empty(filled.sum(), np.int64)
    columns = np.empty(filled.sum(), np.int32)
    k = 0
    for i in range(table.shape[0]):
        for v in range(table.shape[1]):
            if table[i, v] > 0:
                values[k] = table[i, v]
                columns[k] = v
                table[i, v] = 0
                k += 1
    return values, columns, filled
