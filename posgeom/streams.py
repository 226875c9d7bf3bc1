"""Packed streams of ready token ids, counted about as fast as memory is copied.

A stream is cut into blocks of n tokens.  Neighbouring blocks are alike, so that what counts as a
document is a run of them, whose fold is a hash of its ids: equal runs are in one fold, where they
cannot pass for structure.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from posgeom.counts import PositionCounts, Provenance
from posgeom.errors import PosgeomError

IntArray = NDArray[np.int64]
Ids = NDArray[np.integer[Any]]

MOST_TOKENS = 1 << 24  # token types: memory grows with the largest id
RUN = 65_536  # tokens of a run, or fewer where that leaves less than so many runs,
RUNS = 4_096  # so that every fold has its share
SEGMENT = 1 << 29  # tokens counted together: their pages are read once, and stay in memory
TABLE = 1 << 23  # counters that a thread fills at a time: 32 MB
LINE = 32  # tokens of 16 bits in a cache line
HASHED = 1 << 24  # tokens that a thread digests at a time


def count_stream(
    stream: Ids, name: str, n: int, n_folds: int, advance: Callable[[int], object] = int
) -> PositionCounts:
    """Counts of a packed stream of token ids (tokens,), in memory or mapped, cut into blocks of n.

    name: what the provenance calls it.  advance: is told of so many tokens when they are counted.
    The last block may be short.
    Raises PosgeomError for ids that are no vocabulary's.
    """
    length = run_length(len(stream), n)
    counts = csr_array((n_folds * n, 0), dtype=np.int64)
    documents, fingerprint = np.zeros(n_folds, dtype=np.int64), 0
    step = max(1, SEGMENT // length) * length
    with _threads() as each:
        for start in range(0, len(stream), step):
            part = stream[start : start + step]
            V = 1 + check_vocabulary(int(part.max()))
            part = np.asarray(part, np.uint16 if part.dtype.itemsize <= 2 else np.uint32)
            digests = _digests(part, length, each)
            folds = np.array([d % n_folds for d in digests])
            documents += np.bincount(folds, minlength=n_folds)
            fingerprint += sum(digests)
            new = _segment(part, length, folds, (n_folds, n, V), each, advance)
            counts.resize((n_folds * n, max(V, counts.shape[1])))
            new.resize(counts.shape)
            counts = counts + new if counts.nnz else new
    return PositionCounts(
        counts=counts,
        n_folds=n_folds,
        documents=documents,
        provenance=Provenance(
            sources=(name,),
            tokenizer="ids",
            tokenizer_digest="ids",
            align="packed",
            folds_by="run",
            documents=int(documents.sum()),
            tokens=len(stream),
            longest=min(length, len(stream)),
            fingerprint=fingerprint % 2**128,
        ),
    )


def run_length(n_tokens: int, n: int) -> int:
    """Tokens of a run: whole blocks of n."""
    return n * max(1, min(RUN // n, n_tokens // n // RUNS))


def check_vocabulary(largest: int) -> int:
    """The largest id of a corpus, once it is known to be one; else PosgeomError."""
    if largest >= MOST_TOKENS:
        raise PosgeomError(
            f"token id {largest} came; expected ids of a vocabulary, below {MOST_TOKENS:,}"
        )
    return largest


Entries = tuple[IntArray, NDArray[np.int32], IntArray]  # values, columns, how many in each row
Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


@contextmanager
def _threads() -> Iterator[Each]:
    """A map over threads, as many as NUMBA_NUM_THREADS or the machine has; none outlives it."""
    from numba import get_num_threads

    pool = ThreadPoolExecutor(get_num_threads())
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)


def _digests(part: Ids, length: int, each: Each) -> list[int]:
    """A digest of the ids of each run, whatever type of integer they are stored in.

    SHA-256, which processors have instructions for.
    """
    several = max(1, HASHED // length) * length

    def digests(start: int) -> list[int]:
        stop = min(start + several, len(part))
        return [_digest(part[k : min(k + length, stop)]) for k in range(start, stop, length)]

    return [d for some in each(digests, range(0, len(part), several)) for d in some]


def _digest(ids: Ids) -> int:
    narrow = ids.astype("<u2" if ids.max() < 1 << 16 else "<u4", copy=False)
    return int.from_bytes(sha256(narrow.data).digest()[:16], "little")


def _segment(
    part: Ids,
    length: int,
    folds: IntArray,
    shape: tuple[int, int, int],
    each: Each,
    advance: Callable[[int], object],
) -> csr_array:
    """(K·n, V) counts of a part of a stream; folds: (runs,), shape: (K, n, V)."""
    K, n, V = shape
    width = max(1, min(n, TABLE // V))
    if width > LINE:
        width = width // LINE * LINE  # so that no two spans share a cache line of the stream
    blocks = np.arange(len(part) // n) * n
    fold_of = folds[blocks // length]
    own = [blocks[fold_of == k] for k in range(K)]
    spans = [(k, i, min(i + width, n)) for k in range(K) for i in range(0, n, width)]
    tables: SimpleQueue[NDArray[np.uint32]] = SimpleQueue()  # fresh ones cost more than counting

    def count(span: tuple[int, int, int]) -> Entries:
        k, first, stop = span
        if len(own[k]) < V // 16:  # a table would take longer to look through than to fill
            return _few(part[first:], own[k], stop - first)
        try:
            table = tables.get_nowait()
        except Empty:
            table = np.zeros((width, V), dtype=np.uint32)
        found = _many(part[first:], own[k], table[: stop - first])
        tables.put(table)
        return found

    counted = []
    for (k, first, stop), entries in zip(spans, each(count, spans), strict=True):
        counted.append(entries)
        advance((stop - first) * len(own[k]))
    total = _stacked(counted, (K * n, V), each)
    rest = part[len(blocks) * n :]  # the stream ends in the middle of a block
    if len(rest):
        rows = folds[-1] * n + np.arange(len(rest))
        total = total + csr_array((np.ones_like(rows), (rows, rest)), total.shape)
        advance(len(rest))
    return total


def _few(stream: Ids, blocks: IntArray, width: int) -> Entries:
    """Counts of the first `width` tokens of each block, by sorting them."""
    ids = stream[blocks[:, None] + np.arange(width)].astype(np.int64)
    keys, values = np.unique((np.arange(width) << 32) + ids, return_counts=True)
    filled = np.bincount(keys >> 32, minlength=width)
    return values, (keys & 0xFFFFFFFF).astype(np.int32), filled


def _many(stream: Ids, blocks: IntArray, table: NDArray[np.uint32]) -> Entries:
    """Counts of the first tokens of each block, as many as the empty table has rows."""
    from posgeom.tally import drain, tally

    tally(stream, blocks, table)
    entries: Entries = drain(table)
    return entries


def _stacked(parts: list[Entries], shape: tuple[int, int], each: Each) -> csr_array:
    """Rows one below the other; the parts are used up, so that never two copies are held."""
    begins = np.cumsum([0, *np.concatenate([filled for _, _, filled in parts])])
    starts = np.cumsum([0, *(len(values) for values, _, _ in parts)])
    values = np.empty(begins[-1], dtype=np.int64)
    columns = np.empty(begins[-1], dtype=np.int32 if begins[-1] < 1 << 31 else np.int64)

    def lay(p: int) -> None:
        some, where, _ = parts[p]
        values[starts[p] : starts[p + 1]], columns[starts[p] : starts[p + 1]] = some, where
        parts[p] = values[:0], where[:0], begins[:0]

    list(each(lay, range(len(parts))))
    return csr_array((values, columns, begins.astype(columns.dtype)), shape)
