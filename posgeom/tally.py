"""The two loops over every token of a stream, compiled.

They hold no lock of Python's while they run, so that threads may run them side by side.
"""

import numpy as np
from numba import njit

GROUP = 65_535  # blocks that are tallied in counters of 16 bits
LINE = 32  # tokens of 16 bits in a cache line


@njit(nogil=True)
def tally(stream, blocks, table):  # type: ignore[no-untyped-def]
    """Add to table[i, v] how often token v stands i behind the start of a block.

    stream: (tokens,) ids.  blocks: (blocks,) where each begins.  table: (width, V) uint32.
    A group of blocks is first laid out anew, position by position, which is done many tokens at a
    time; then the tokens of a position are read one behind the other, into narrow counters that
    stay in the cache.
    """
    one = np.uint16(1)
    columns = np.empty((LINE, GROUP + LINE), stream.dtype)  # rows that share no cache set
    counters = np.zeros(table.shape[1], np.uint16)
    for i in range(0, table.shape[0], LINE):
        width = min(LINE, table.shape[0] - i)
        for begin in range(0, len(blocks), GROUP):
            group = blocks[begin : begin + GROUP]
            transpose(stream, group, i, columns[:width])
            for j in range(width):
                row, tokens = table[i + j], columns[j]
                for k in range(len(group)):
                    counters[tokens[k]] += one
                for v in range(len(counters)):
                    row[v] += counters[v]
                    counters[v] = 0


@njit(nogil=True)
def transpose(stream, blocks, i, columns):  # type: ignore[no-untyped-def]
    """columns[j, k] = the token i + j behind the start of block k; sixteen blocks at a time."""
    whole = len(blocks) // 16 * 16
    for k in range(0, whole, 16):
        for j in range(columns.shape[0]):
            for e in range(16):
                columns[j, k + e] = stream[blocks[k + e] + i + j]
    for k in range(whole, len(blocks)):
        for j in range(columns.shape[0]):
            columns[j, k] = stream[blocks[k] + i + j]


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
