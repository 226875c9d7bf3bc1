"""The loops over every token of a stream, compiled.

They hold no lock of Python's while they run, so that threads may run them side by side.
"""

import numpy as np
from numba import njit

from posgeom.turned import LINE, fetch, turn

VALUE = np.uint64(40)  # bits of an entry that are its value, below those of its column


@njit(nogil=True)
def tally(stream, blocks, desk, begins, earlier, where, entries):  # type: ignore[no-untyped-def]
    """Into entries, row by row: how often each token stands i < width behind a block's start.

    stream: (tokens,) ids.  blocks: (blocks,), where each begins.  desk: a streams.Desk.
    begins, earlier, where: CSR of (width, V) counts that are added, row i from begins[i] to
    begins[i + 1], which may start above 0.  entries: (width·V,), room for the result.
    Returns how many entries each row has, int64 (width,).

    A group of blocks is first laid out anew, position by position, which is done many tokens at a
    time; then the tokens of a position are read one behind the other, into counters that stay in
    the cache.  Only a group that is not the last leaves them in the table.
    """
    tokens, counters, table = desk
    width, one = len(begins) - 1, np.uint32(1)
    group = tokens.shape[1]
    last = max(0, len(blocks) - 1) // group * group
    filled = np.empty(width, np.int64)
    end = 0
    for start in range(0, last + 1, group):
        some = blocks[start : start + group]
        lay_out(stream, some, width, tokens)
        for i in range(width):
            own = tokens[i]
            for k in range(len(some)):
                counters[own[k]] += one
            if start < last:
                table[i] += counters
            else:
                begin = end
                if last:
                    counters += table[i]
                    table[i] = 0
                if begins[i] < begins[i + 1]:
                    total = counters.astype(np.int64)
                    for p in range(begins[i], begins[i + 1]):
                        total[where[p]] += earlier[p]
                    end = compress(total, entries, begin)
                else:
                    end = compress(counters, entries, begin)
                filled[i] = end - begin
            counters[:] = 0
    return filled


@njit(nogil=True)
def lay_out(stream, blocks, width, columns):  # type: ignore[no-untyped-def]
    """columns[i, k] = the token i < width behind the start of block k.

    stream: contiguous.  blocks: rising.  columns: (width, blocks) or more, each row at the begin
    of a LINE.

    Tokens of a block are read together, and those of a position written together.  One of each
    block at a time would wait for memory, and for the address of a page, at every token.
    """
    lanes = LINE // stream.itemsize
    n = len(blocks)
    for k in range(0, n, lanes):
        next_ = k + lanes
        if next_ <= n and blocks[next_ - 1] + width + lanes <= len(stream):
            for first in range(0, width, lanes):
                for e in range(next_, min(next_ + lanes, n)):
                    fetch(stream, blocks[e] + first)
                turn(stream, blocks, k, first, columns, width - first)
        else:
            for i in range(width):
                for e in range(k, min(next_, n)):
                    columns[i, e] = stream[blocks[e] + i]


@njit(nogil=True)
def compress(row, entries, end):  # type: ignore[no-untyped-def]
    """Write what is above 0 in a row as entries from `end` on; returns where they end."""
    k = np.uint64(end)
    for v in range(len(row)):  # each is written, and the next one over it if it is 0: no branch
        value = np.uint64(row[v])
        entries[k] = np.uint64(v) << VALUE | value
        k += np.uint64(value > 0)
    return np.int64(k)


@njit(nogil=True)
def unpack(entries, values, columns):  # type: ignore[no-untyped-def]
    """Values int64 and columns int32 of entries, all (entries,)."""
    below = (np.uint64(1) << VALUE) - np.uint64(1)
    for k in range(len(entries)):
        values[k] = entries[k] & below
        columns[k] = entries[k] >> VALUE
