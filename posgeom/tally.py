"""The loops over every token of a stream, compiled.

They hold no lock of Python's while they run, so that threads may run them side by side.
"""

import numpy as np
from numba import njit

from posgeom.nontemporal import store

VALUE = np.uint64(40)  # bits of an entry that are its value, below those of its column
TILE = 64  # blocks laid out at a time: few, so that they are still in the cache when written


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
    tile, tokens, counters, table = desk
    width, one = len(begins) - 1, np.uint32(1)
    group = tokens.shape[1] // TILE * TILE  # what is over is no room: see streams.Desk
    last = max(0, len(blocks) - 1) // group * group
    filled = np.empty(width, np.int64)
    end = 0
    for start in range(0, last + 1, group):
        some = blocks[start : start + group]
        lay_out(stream, some, width, tile, tokens)
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
def lay_out(stream, blocks, width, tile, columns):  # type: ignore[no-untyped-def]
    """columns[i, k] = the token i < width behind the start of block k.

    tile: (TILE, W) room for TILE blocks.  columns: (W, blocks) or more of either, blocks rounded
    up to whole tiles.  W: width rounded up to a multiple of 4, or more.  What is beyond width and
    blocks is of no meaning.

    Tokens of a block are read together, and those of a position written together.  One of each
    block at a time would wait for memory, and for the address of a page, at every token.
    """
    for k in range(0, len(blocks), TILE):
        for e in range(min(TILE, len(blocks) - k)):
            start = np.uint64(blocks[k + e])  # an unsigned index is not looked at for its sign
            for i in range(width):
                tile[e, i] = stream[start + np.uint64(i)]
        if tile.itemsize == 2:
            turn(tile.view(np.uint64), columns.view(np.uint64), -(-width // 4), k // 4)
        else:
            for i in range(width):
                for e in range(TILE):
                    columns[i, k + e] = tile[e, i]


@njit(nogil=True)
def turn(tile, columns, width, first):  # type: ignore[no-untyped-def]
    """Transpose a tile (TILE, W) of words into columns (4 W, …) from word `first` on.

    A word holds four tokens, the first in its lowest bits; width <= W words are read.
    """
    for i in range(width):
        for e in range(TILE // 4):
            a, b = tile[4 * e, i], tile[4 * e + 1, i]
            c, d = tile[4 * e + 2, i], tile[4 * e + 3, i]
            a, b = exchanged(a, b, np.uint64(16), np.uint64(0x0000_FFFF_0000_FFFF))
            c, d = exchanged(c, d, np.uint64(16), np.uint64(0x0000_FFFF_0000_FFFF))
            a, c = exchanged(a, c, np.uint64(32), np.uint64(0x0000_0000_FFFF_FFFF))
            b, d = exchanged(b, d, np.uint64(32), np.uint64(0x0000_0000_FFFF_FFFF))
            store(columns, 4 * i, first + e, a)
            store(columns, 4 * i + 1, first + e, b)
            store(columns, 4 * i + 2, first + e, c)
            store(columns, 4 * i + 3, first + e, d)


@njit(nogil=True)
def exchanged(x, y, bits, low):  # type: ignore[no-untyped-def]
    """Two words with the high parts of one and the low parts of the other exchanged."""
    return x & low | (y & low) << bits, x >> bits & low | y & ~low


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
