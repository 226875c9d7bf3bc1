"""The loops over every token of a stream, compiled.

They hold no lock of Python's while they run, so that threads may run them side by side.
"""

import numpy as np
from numba import njit


@njit(nogil=True)
def tally(stream, blocks, table, columns):  # type: ignore[no-untyped-def]
    """Add to table[i, v] how often token v stands i behind the start of a block.

    stream: (tokens,) ids.  blocks: (blocks,) where each begins.  table: (width, V) uint32.
    columns: (width, group), room for ids.  A group of blocks is first laid out anew, position by
    position, which is done many tokens at a time; then the tokens of a position are read one
    behind the other, into counters that stay in the cache.
    """
    one = np.uint32(1)
    for begin in range(0, len(blocks), columns.shape[1]):
        group = blocks[begin : begin + columns.shape[1]]
        transpose(stream, group, columns[: table.shape[0]])
        for i in range(table.shape[0]):
            row, tokens = table[i], columns[i]
            for k in range(len(group)):
                row[tokens[k]] += one


@njit(nogil=True)
def transpose(stream, blocks, columns):  # type: ignore[no-untyped-def]
    """columns[i, k] = the token i behind the start of block k; sixteen blocks at a time."""
    whole = len(blocks) // 16 * 16
    for k in range(0, whole, 16):
        for i in range(columns.shape[0]):
            for e in range(16):
                columns[i, k + e] = stream[blocks[k + e] + i]
    for k in range(whole, len(blocks)):
        for i in range(columns.shape[0]):
            columns[i, k] = stream[blocks[k] + i]


@njit(nogil=True)
def drain(table, begins, earlier, where, values, columns):  # type: ignore[no-untyped-def]
    """Write the counters above 0, row by row, with what was counted earlier added to them.

    table: (width, V) uint32, which is left at 0, ready to be filled again.  begins, earlier, where:
    CSR of the earlier counts, row i from begins[i] to begins[i + 1] (begins may start above 0).
    values, columns: int64 and int32 (width·V,), room for the entries.
    Returns how many entries each row has, int64 (width,).
    """
    filled = np.zeros(table.shape[0], np.int64)
    wide = np.empty(table.shape[1], np.int64)
    end = 0
    for i in range(table.shape[0]):
        row, begin = table[i], end
        if begins[i] < begins[i + 1]:
            wide[:] = row
            for p in range(begins[i], begins[i + 1]):
                wide[where[p]] += earlier[p]
            end = compress(wide, values, columns, end)
        else:
            end = compress(row, values, columns, end)
        row[:] = 0
        filled[i] = end - begin
    return filled


@njit(nogil=True)
def compress(row, values, columns, end):  # type: ignore[no-untyped-def]
    """Write what is above 0 in a row, and where, from `end` on; returns where that ends."""
    for v in range(len(row)):  # each is written, and the next one over it if it was 0: no branch
        values[end] = row[v]
        columns[end] = v
        end += row[v] > 0
    return end
