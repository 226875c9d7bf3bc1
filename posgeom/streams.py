"""Packed streams of ready token ids, counted by threads.

A stream is cut into blocks of n tokens.  Neighbouring blocks are alike, so that what counts as a
document is a run of them, whose fold is a hash of its ids: equal runs are in one fold, where they
cannot pass for structure.
"""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from posgeom.ahead import Each, threads_ahead
from posgeom.counts import BY_RUN, PositionCounts, Provenance
from posgeom.errors import PosgeomError

IntArray = NDArray[np.int64]
Ids = NDArray[np.integer[Any]]
T = TypeVar("T")

MOST_TOKENS = 1 << 24  # token types: memory grows with the largest id
RUN = 65_536  # tokens of a run, or fewer where that leaves less than so many runs,
RUNS = 4_096  # so that every fold has its share
SEGMENT = 1 << 31  # bytes counted together: their pages are read once, and stay in memory
TABLE = 1 << 23  # counters that a thread fills at a time, or those of one position
WIDTHS = 32, 128  # positions at a time, least and most: a wide span is faster, narrow ones are more
GROUP = 1 << 17  # blocks laid out at a time, which stay in the cache if positions are few,
PER_TYPE = 16  # or so many for each token type, since a group ends with a look at all of them
SAMPLE = 1 << 20  # ids that are looked at for whether 16 bits are needed
ROOM = 1 << 28  # tokens laid out at a time, by all threads together: 512 MB, or 1 GB of 32 bits


def count_stream(
    stream: Ids, name: str, n: int, n_folds: int, advance: Callable[[int], object] = int
) -> PositionCounts:
    """Counts of a packed stream of token ids (tokens,), in memory or mapped, cut into blocks of n.

    It takes as many threads as NUMBA_NUM_THREADS says, or the machine has.
    name: what the provenance calls it.  advance: is told of so many tokens when they are counted.
    The last block may be short.
    Raises PosgeomError for ids that are no vocabulary's.
    """
    from numba import get_num_threads

    length = run_length(len(stream), n)
    counts = _short_block(stream, length, n, n_folds)
    advance(int(counts.nnz))
    documents, fingerprint = np.zeros(n_folds, dtype=np.int64), 0
    step = max(1, SEGMENT // stream.itemsize // length) * length
    with threads_ahead(get_num_threads()) as each:
        for start in range(0, len(stream), step):
            part = stream[start : start + step]
            if n_folds == 1:
                bound, digests = _bound(part, each), None
            else:
                bound, digests = _looked_at(part, length, each)
            part = np.ascontiguousarray(part, np.uint16 if part.dtype.itemsize <= 2 else np.uint32)
            counts.resize((n_folds * n, max(1 + bound, counts.shape[1])))
            counts, digests = _with_segment(counts, part, length, digests, n, each, advance)
            documents += np.bincount([d % n_folds for d in digests], minlength=n_folds)
            fingerprint += sum(digests)
    return PositionCounts(
        counts=counts,
        n_folds=n_folds,
        documents=documents,
        provenance=Provenance(
            sources=(name,),
            tokenizer="ids",
            tokenizer_digest="ids",
            align="packed",
            folds_by=BY_RUN,
            documents=int(documents.sum()),
            tokens=len(stream),
            longest=min(length, len(stream)),
            fingerprint=fingerprint % 2**128,
        ),
    )


def run_length(n_tokens: int, n: int) -> int:
    """Tokens of a run: whole blocks of n."""
    return n * max(1, min(RUN // n, n_tokens // n // RUNS))


def check_vocabulary(token: int) -> int:
    """The least or the largest id of a corpus, once it is known to be one; else PosgeomError."""
    if not 0 <= token < MOST_TOKENS:
        raise PosgeomError(
            f"token id {token} came; expected ids of a vocabulary, 0 or more, below {MOST_TOKENS:,}"
        )
    return token


def _largest(ids: Ids) -> int:
    """The largest of ids that are all a vocabulary's; else PosgeomError."""
    if ids.dtype.kind != "u":
        check_vocabulary(int(ids.min(initial=0)))
    return check_vocabulary(int(ids.max(initial=0)))


Entries = NDArray[np.uint64]  # column << 40 | value, row by row


def _bound(ids: Ids, each: Each) -> int:
    """What no id is above, once all are a vocabulary's; else PosgeomError.

    The largest id, but where some of unsigned 16 bits need all of these, what 16 bits hold: at
    most twice as much, and no need to look at them all.
    """
    if ids.dtype.kind == "u" and ids.dtype.itemsize <= 2:
        most = int(np.iinfo(ids.dtype).max)
        if 2 * int(ids[:SAMPLE].max(initial=0)) >= most:
            return most
    from numba import get_num_threads

    return max(each(_largest, np.array_split(ids, get_num_threads())))


def _looked_at(part: Ids, length: int, each: Each) -> tuple[int, list[int]]:
    """The largest id, and the digests, each found by a thread of its own."""
    jobs = (lambda: _largest(part)), (lambda: _digests(part, length))
    largest, digests = each(lambda find: find(), jobs)
    return largest, digests


def _digests(part: Ids, length: int) -> list[int]:
    """(runs,) a digest of the ids of each run."""
    return [_digest(part[k : k + length]) for k in range(0, len(part), length)]


def _digest(ids: Ids) -> int:
    """A digest of 128 bits, the same for each type of integer that ids are in.

    XXH3, which takes a sixth of the time of SHA-256; nothing here guards against forgery.
    """
    from xxhash import xxh3_128_intdigest

    wide = ids.dtype.itemsize > 2 and ids.max(initial=0) >= 1 << 16
    return xxh3_128_intdigest(np.ascontiguousarray(ids, "<u4" if wide else "<u2").data)


def _short_block(stream: Ids, length: int, n: int, n_folds: int) -> csr_array:
    """(K·n, V) counts of the last block, if it is short: the stream ends in the middle of it."""
    short = stream[len(stream) // n * n :]
    largest, rest = _largest(short), short.astype(np.int64)
    digest = _digest(stream[(len(stream) - 1) // length * length :])
    rows = digest % n_folds * n + np.arange(len(rest))
    ones = np.ones(len(rest), dtype=np.int64)
    return csr_array((ones, (rows, rest)), (n_folds * n, 1 + largest))


class Desk(NamedTuple):
    """What a thread works with, used again and again: fresh memory costs more than counting."""

    tokens: Ids  # (width, at least blocks), room for a group; each row begins a cache line
    counters: NDArray[np.uint32]  # (V,), at 0
    table: NDArray[np.uint32]  # (width, V), at 0; not touched where one group is all


def _desk(dtype: np.dtype[Any], width: int, V: int, blocks: int) -> Desk:
    """For so many positions, token types, and blocks in a group, rounded up to whole lines."""
    from posgeom.turned import LINE

    lanes = LINE // dtype.itemsize
    stride = (-(-blocks // lanes) | 1) * lanes  # an odd number: neighbours share no cache set
    tokens = np.empty(width * stride + lanes, dtype)
    begin = -tokens.ctypes.data % LINE // dtype.itemsize
    return Desk(
        tokens=tokens[begin : begin + width * stride].reshape(width, stride),
        counters=np.zeros(V, dtype=np.uint32),
        table=np.zeros((width, V), dtype=np.uint32),
    )


def _with_segment(
    counts: csr_array,
    part: Ids,
    length: int,
    digests: list[int] | None,
    n: int,
    each: Each,
    advance: Callable[[int], object],
) -> tuple[csr_array, list[int]]:
    """(K·n, V) counts, those of the whole blocks of a part of the stream added, and its digests.

    digests: (runs,); one fold alone needs none, and they are found while threads count.  V falls
    to what the largest id asks for.
    """
    from numba import get_num_threads

    K, V = counts.shape[0] // n, counts.shape[1]
    wanted = K * n // (4 * get_num_threads())  # so that each thread has four spans
    width = max(1, min(n, TABLE // V, max(WIDTHS[0], min(wanted, WIDTHS[1]))))
    width = -(-n // -(-n // width))  # all alike
    blocks = np.arange(len(part) // n) * n
    own = [blocks]
    if digests is not None:
        fold_of = np.array([d % K for d in digests])[blocks // length]
        own = [blocks[fold_of == k] for k in range(K)]
    room = ROOM // get_num_threads() // width
    group = min(max(map(len, own)), max(GROUP, PER_TYPE * V), room)
    spans = [(k, i, min(i + width, n)) for k in range(len(own)) for i in range(0, n, width)]
    desks: SimpleQueue[Desk] = SimpleQueue()  # one for each thread
    rooms: SimpleQueue[Entries] = SimpleQueue()  # and one more, since results wait to be taken

    def count(span: tuple[int, int, int]) -> tuple[Entries, IntArray, Entries | None]:
        k, first, stop = span
        rows = slice(k * n + first, k * n + stop)
        if len(own[k]) < V // 16:  # counters would take longer to look through than to fill
            return *_few(part[first:], own[k], counts[rows]), None
        desk = _taken(desks, lambda: _desk(part.dtype, width, V, group))
        room = _taken(rooms, lambda: np.empty(width * V, dtype=np.uint64))
        found = _many(part[first:], own[k], counts, rows, desk, room)
        desks.put(desk)
        return *found, room

    total = _Rows(counts.shape, most=counts.nnz + n * sum(min(V, len(o)) for o in own))
    counted = each(count, spans)
    if digests is None:
        digests = _digests(part, length)
    for (k, first, stop), (entries, filled, room) in zip(spans, counted, strict=True):
        total.add(entries, filled)
        if room is not None:
            rooms.put(room)
        advance((stop - first) * len(own[k]))
    return total.whole(), digests


def _taken(there: SimpleQueue[T], new: Callable[[], T]) -> T:
    """One that is there, or else a new one."""
    try:
        return there.get_nowait()
    except Empty:
        return new()


def _few(stream: Ids, blocks: IntArray, earlier: csr_array) -> tuple[Entries, IntArray]:
    """Counts of the first tokens of each block, by sorting them; with earlier ones (width, V)."""
    from posgeom.tally import VALUE

    ids = stream[np.arange(earlier.shape[0])[:, None] + blocks].astype(np.int32)
    begins = np.arange(len(ids) + 1) * len(blocks)
    C = csr_array((np.ones(ids.size, dtype=np.int64), ids.ravel(), begins), earlier.shape)
    C.sum_duplicates()
    C = C + earlier
    return C.indices.astype(np.uint64) << VALUE | C.data.astype(np.uint64), np.diff(C.indptr)


def _many(
    stream: Ids, blocks: IntArray, counts: csr_array, rows: slice, desk: Desk, room: Entries
) -> tuple[Entries, IntArray]:
    """Counts of the first tokens of each block, by counters; with those in some rows of counts."""
    from posgeom.tally import tally

    begins = counts.indptr[rows.start : rows.stop + 1]
    filled: IntArray = tally(stream, blocks, desk, begins, counts.data, counts.indices, room)
    return room[: filled.sum()], filled


class _Rows:
    """Rows of a matrix that come one after the other; how many entries, is known in the end."""

    def __init__(self, shape: tuple[int, int], most: int) -> None:
        self.shape, self.most = shape, most
        self.filled: list[IntArray] = []
        self.done = self.end = self.largest = 0
        self.values = np.empty(0, dtype=np.int64)
        self.columns = np.empty(0, dtype=np.int32)

    def add(self, entries: Entries, filled: IntArray) -> None:
        """The next rows."""
        from posgeom.tally import VALUE, unpack

        begin, self.end = self.end, self.end + len(entries)
        last = entries[np.cumsum(filled)[filled > 0] - 1]  # of each row that has any
        self.largest = max(self.largest, int(last.max(initial=0) >> VALUE))
        self.done += len(filled)
        self.filled.append(filled)
        if self.end > len(self.values):
            expected = 1.1 * self.end * self.shape[0] / self.done  # what is not filled costs none
            room = min(self.most, int(max(1.5 * self.end, expected)))
            self.values = _roomier(self.values[:begin], room)
            self.columns = _roomier(self.columns[:begin], room)
        unpack(entries, self.values[begin : self.end], self.columns[begin : self.end])

    def whole(self) -> csr_array:
        """All rows, without the columns behind the last one that holds any."""
        begins = np.cumsum([0, *np.concatenate(self.filled)])
        index = np.int32 if self.end < 1 << 31 else np.int64
        columns = self.columns[: self.end].astype(index, copy=False)
        shape = self.shape[0], 1 + self.largest
        return csr_array((self.values[: self.end], columns, begins.astype(index)), shape)


def _roomier(array: NDArray[Any], room: int) -> NDArray[Any]:
    larger = np.empty(room, dtype=array.dtype)
    larger[: len(array)] = array
    return larger
