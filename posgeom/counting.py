"""The streaming pass: from a corpus to its counts."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache, reduce
from hashlib import blake2b
from operator import add
from os import PathLike
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from tqdm import tqdm

from posgeom.ahead import threads_ahead
from posgeom.corpus import Corpus, open_corpus
from posgeom.counts import PositionCounts, Provenance, canonical, rename_columns
from posgeom.errors import PosgeomError
from posgeom.pieces import Document
from posgeom.streams import check_vocabulary, count_stream
from posgeom.tokenizer import Tokenizer, load_tokenizer
from posgeom.windows import Window

IntArray = NDArray[np.int64]

MOST_POSITIONS = 512  # counted where no number is given
BATCH_DOCUMENTS, BATCH_SIZE = 2_000, 2_000_000  # documents, and characters or ids
FLUSH = 16_000_000  # tokens between two merges into the sparse counts, at most,
SOON = 1_000_000  # and at least
ONE_THREAD = ("", "off", "false", "f", "no", "n", "0")  # as `tokenizers` reads it
_BAR: dict[str, Any] = {"desc": "count", "leave": False, "unit_scale": True}


def count_positions(
    corpus: str | PathLike[str] | Iterable[Any] | Corpus,
    tokenizer: Any = "words",
    positions: int | None = None,
    align: str = "start",
    *,
    grid: tuple[int, int] | None = None,
    folds: int = 16,
    special_tokens: bool = False,
    up_to: int | None = None,
    part: bool = False,
    progress: bool = False,
    **reading: Any,
) -> PositionCounts:
    """Count the tokens of a corpus by position, in one pass that holds a few batches at most.

    corpus      a source string or path, an iterable of texts or of id sequences, or a Corpus
    tokenizer   a spec, a path or an object, see load_tokenizer; not used where the corpus is ids
    positions   n; by default the largest that 1,000 documents, or 5% of them, reach, at most 512
    align       start, end or packed, see Window
    grid        (rows, columns) for two-dimensional documents of rows·columns tokens
    folds       a power of two; the fold of a document is a hash of its group, or of itself
    up_to       count more than `positions`, as far as documents reach but no further than this
    part        the corpus is one part of several, whose counts will be added: it may be small and
                its documents short, and n is 512 where no number is given
    reading     text_field, group_field, documents, split, …, see open_corpus

    Raises PosgeomError for a source that cannot be read, for one without usable tokens or with a
    single document, and for more positions than the longest document has.
    """
    source = open_corpus(corpus, **reading)
    grid = grid or source.grid
    n, align = window_size(up_to or positions, align, grid, source)
    if folds < 1 or folds & (folds - 1):
        raise PosgeomError(f"--folds {folds} came; use a power of two, such as 16")
    window = Window(n, align, folds)
    if source.streams:
        with tqdm(**_BAR, unit=" tokens", total=0, disable=not progress) as bar:
            counts = reduce(add, _each_stream(source, n, folds, bar))
    else:
        pieces = (
            None
            if source.holds_ids
            else load_tokenizer(tokenizer, source, special_tokens=special_tokens)
        )
        tally = _Tally(window, pieces, folds)
        with (
            tqdm(**_BAR, unit=" documents", disable=not progress) as bar,
            threads_ahead(_encoders(pieces)) as each,
        ):
            for batch in each(tally.encoded, _batches(source)):
                tally.add(batch)
                bar.update(batch.read)
        counts = tally.finish(source, special_tokens, grid)
    return counts if part else completed(counts, source, positions, up_to)


def _each_stream(
    source: Corpus, n: int, folds: int, bar: "tqdm[NoReturn]"
) -> Iterator[PositionCounts]:
    for opened in source.streams:
        stream = opened()
        bar.total += len(stream)
        yield count_stream(stream, source.name, n, folds, bar.update)


def completed(
    counts: PositionCounts, source: Corpus, positions: int | None, up_to: int | None = None
) -> PositionCounts:
    """The counts of a whole corpus, from those of its parts: what count_positions makes of them.

    Raises PosgeomError where they are too few, or reach less far than was asked for.
    """
    counts = _with_notes(counts)
    _check_enough(counts, source)
    if positions is None and counts.grid is None:
        return _usual_length(counts)
    packed = counts.provenance.align == "packed"
    if positions is not None and positions > counts.provenance.longest and not packed:
        longest = counts.provenance.longest
        raise PosgeomError(
            f"--positions {positions} came, the longest document has {longest} tokens; "
            f"use --positions {longest} or less"
        )
    return counts if up_to is None else counts.first(min(up_to, counts.provenance.longest))


class _Batch(NamedTuple):
    """Documents read together.

    read     how many
    usable   those with content
    ids      (tokens,) of all of them in one row
    lengths  (usable,) how many ids each has
    """

    read: int
    usable: list[Document]
    ids: IntArray
    lengths: IntArray


class _Tally:
    """Counts that grow batch by batch."""

    def __init__(self, window: Window, tokenizer: Tokenizer | None, folds: int) -> None:
        self.window, self.tokenizer = window, tokenizer
        self.folds = folds
        self.documents = np.zeros(folds, dtype=np.int64)
        self.read = self.tokens = self.longest = self.fingerprint = 0
        self.counts = csr_array((folds * window.n_positions, 1), dtype=np.int32)
        self._row_type = np.min_scalar_type(self.counts.shape[0])
        self.grouped = False
        # asked for even if no document comes: the vocabulary of every part must hold it
        packed = window.align == "packed"
        self.separator = tokenizer.separator if tokenizer is not None and packed else None
        self._pending: list[tuple[NDArray[Any], NDArray[np.int32]]] = []
        self._n_pending = 0

    def encoded(self, documents: list[Document]) -> _Batch:
        """The documents that have content, as ids."""
        usable = [d for d in documents if d.content is not None and len(d.content)]
        return _Batch(len(documents), usable, *self._encode([d.content for d in usable]))

    def _encode(self, contents: list[Any]) -> tuple[IntArray, IntArray]:
        if not contents:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        holds_text = isinstance(contents[0], str)
        if any(isinstance(c, str) != holds_text for c in contents):
            raise PosgeomError("the corpus mixes texts and token ids; give one kind")
        if not holds_text:
            lengths = np.array([len(c) for c in contents], dtype=np.int64)
            return np.concatenate(contents).astype(np.int64), lengths
        if self.tokenizer is None:
            raise PosgeomError("the corpus was said to hold token ids and holds texts")
        return self.tokenizer.encode(contents)

    def add(self, batch: _Batch) -> None:
        """Count a batch."""
        read, usable, ids, lengths = batch
        self.read += read
        if not usable:
            return
        keys = [_digest(d.content) for d in usable]
        folds = np.array(
            [
                (_group_digest(d.group) if d.group is not None else key) % self.folds
                for d, key in zip(usable, keys, strict=True)
            ]
        )
        filled = lengths > 0
        self.fingerprint += sum(key for key, full in zip(keys, filled, strict=True) if full)
        self.documents += np.bincount(folds[filled], minlength=self.folds)
        self.tokens += len(ids)
        self.longest = max(self.longest, int(lengths.max()))
        self.grouped = self.grouped or any(d.group is not None for d in usable)
        if self.separator is not None:
            ids, lengths = _with_separators(ids, lengths, self.separator)
        rows, kept = self.window.place(lengths, folds)
        check_vocabulary(int(ids.max(initial=0)))  # before it is narrowed
        self._pending.append((rows[kept].astype(self._row_type), ids[kept].astype(np.int32)))
        self._n_pending += int(kept.sum())
        # at first soon, while the next batch is encoded; later as many as a merge looks at anyway
        if self._n_pending > min(FLUSH, max(SOON, self.counts.nnz)):
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        rows = np.concatenate([r for r, _ in self._pending])
        ids = np.concatenate([i for _, i in self._pending])
        width = max(self.counts.shape[1], int(ids.max(initial=0)) + 1)
        # four bytes a count are enough for the first two thousand million tokens
        ones = np.ones(len(ids), dtype=np.int32 if self.tokens < 1 << 31 else np.int64)
        new = _sparse(ones, rows, ids, (self.counts.shape[0], width))
        self.counts.resize(new.shape)
        self.counts = self.counts + new if self.counts.nnz else new
        self._pending, self._n_pending = [], 0

    def finish(
        self, source: Corpus, special_tokens: bool, grid: tuple[int, int] | None
    ) -> PositionCounts:
        """The counts of all that was added."""
        self._flush()
        counts, vocabulary = canonical(self.counts), None
        if self.tokenizer is not None:
            vocabulary = self.tokenizer.vocabulary
            counts.resize((counts.shape[0], len(vocabulary)))
            if self.tokenizer.grows:  # sorted, so that the order of documents leaves no trace
                order = np.argsort(np.array(vocabulary, dtype=object))
                rank = np.empty_like(order)
                rank[order] = np.arange(len(order))
                counts = rename_columns(counts, rank, len(order))
                vocabulary = tuple(sorted(vocabulary))
        grouped = self.grouped or any(piece.grouped for piece in source.pieces)
        documents = int(self.documents.sum())
        return PositionCounts(
            counts=counts,
            n_folds=self.folds,
            documents=self.documents,
            vocabulary=vocabulary,
            grid=grid,
            provenance=Provenance(
                sources=(source.name,),
                tokenizer=self.tokenizer.name if self.tokenizer is not None else "ids",
                tokenizer_digest=self.tokenizer.digest if self.tokenizer is not None else "ids",
                special_tokens=special_tokens,
                align=self.window.align,
                folds_by="group" if grouped else "document" if documents else "",
                documents=documents,
                tokens=self.tokens,
                longest=self.longest,
                skipped=self.read - documents,
                replaced=source.replaced,
                fingerprint=self.fingerprint % 2**128,
                notes=self.tokenizer.notes if self.tokenizer is not None else (),
            ),
        )


def window_size(
    positions: int | None, align: str, grid: tuple[int, int] | None, source: Corpus
) -> tuple[int, str]:
    """How many positions to count, and the alignment: a grid brings its own.

    Raises PosgeomError for a window that the source cannot have.
    """
    if source.streams and align != "packed":
        raise PosgeomError(
            f"{source.name} is a packed stream of token ids; use --align packed, "
            "or give rows of ids (a 2-D .npy, a list column)"
        )
    if positions is not None and positions > 1_000_000:
        raise PosgeomError(f"--positions {positions} came; a million is the most that is counted")
    if grid is None:
        if align == "grid":
            raise PosgeomError("--align grid came without its size; add --grid ROWSxCOLUMNS")
        return (MOST_POSITIONS if positions is None else positions), align
    cells = grid[0] * grid[1]
    if cells < 1:
        raise PosgeomError(f"--grid {grid[0]}x{grid[1]} came; give rows and columns of 1 or more")
    if min(grid) < 1 or (positions is not None and positions != cells) or align == "packed":
        raise PosgeomError(
            f"a grid of {grid[0]}x{grid[1]} has its own positions and alignment; "
            "leave --positions and --align out"
        )
    return cells, "grid"


def _with_notes(counts: PositionCounts) -> PositionCounts:
    """The counts, with notes of what was skipped and replaced."""
    p = counts.provenance
    notes = list(p.notes)
    if p.skipped:
        read = p.documents + p.skipped
        notes.append(f"{p.skipped:,} of {read:,} documents hold nothing and were skipped")
    if p.replaced:
        notes.append(f"{p.replaced:,} byte sequences are not UTF-8 and were replaced")
    return replace(counts, provenance=replace(p, notes=tuple(notes)))


def _check_enough(counts: PositionCounts, source: Corpus) -> None:
    documents = counts.provenance.documents
    if not documents:
        raise PosgeomError(
            f"{source.name} holds no usable token ({counts.provenance.skipped:,} documents were "
            "read, all of them empty); give a corpus with text"
        )
    if documents == 1:
        cut = "cut it with --documents line or paragraph, or use --align packed on token ids"
        if source.streams:
            cut = "lower --positions, so that the stream has several blocks"
        raise PosgeomError(
            f"{source.name} is one document, and nothing can be estimated from it; give more, "
            f"or {cut}"
        )
    if counts.provenance.longest < 2:
        raise PosgeomError(
            f"no document of {source.name} has two tokens; distances need two positions"
        )


def _usual_length(counts: PositionCounts) -> PositionCounts:
    """Counts of the largest n that 1,000 documents, or 5% of them, reach; with a note."""
    packed = counts.provenance.align == "packed"
    enough = 1_000 if packed else max(2, min(1_000, -(-counts.provenance.documents // 20)))
    if packed:  # blocks of n split exactly into two blocks of n/2
        while counts.n_positions > 16 and counts.totals[-1] < enough:
            counts = counts.halved()
        n = counts.n_positions
    else:
        n = max(2, int((counts.totals >= enough).sum()))
        counts = counts.first(n)
    what = "blocks" if packed else "documents"
    note = f"positions: {n}, which {counts.totals[-1]:,} {what} reach (--positions to choose)"
    provenance = replace(counts.provenance, notes=(*counts.provenance.notes, note))
    return replace(counts, provenance=provenance)


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.content) if document.content is not None else 0
        if len(batch) >= BATCH_DOCUMENTS or size >= BATCH_SIZE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _sparse(
    values: NDArray[Any], rows: NDArray[Any], columns: NDArray[Any], shape: tuple[int, int]
) -> csr_array:
    """Values by row and column, those of one place summed, columns in order.

    As coo_array(…).tocsr(), in half of the time: being turned sorts.
    """
    if shape[1] > len(values):  # rows of the turned array, of which most would be empty
        return coo_array((values, (rows, columns)), shape).tocsr()
    turned = coo_array((values, (columns, rows)), shape[::-1])
    turned.has_canonical_format = True  # it is not; but so it is neither sorted nor summed
    made = turned.tocsr().T.tocsr()
    made.has_canonical_format = False
    made.sum_duplicates()
    return made


def _encoders(tokenizer: Tokenizer | None) -> int:
    """Threads that encode ahead of the counting.

    0 where tokenizers are held to one thread, as a cluster's are; 1 where a piece gets its id when
    it is first seen; else 2, of which one tokenizes while the other makes ids of tokens.
    """
    if os.environ.get("TOKENIZERS_PARALLELISM", "true").lower() in ONE_THREAD:
        return 0
    return 1 if tokenizer is None or tokenizer.grows else 2


def _with_separators(ids: IntArray, lengths: IntArray, separator: int) -> tuple[IntArray, IntArray]:
    """A separator behind each document."""
    return np.insert(ids, np.cumsum(lengths), separator), lengths + 1


def _digest(content: Any) -> int:
    raw = (
        content.encode("utf-8", "surrogatepass")
        if isinstance(content, str)
        else np.asarray(content).astype("<i8").tobytes()
    )
    return int.from_bytes(blake2b(raw, digest_size=16).digest(), "little")


@lru_cache(maxsize=4_096)
def _group_digest(group: str) -> int:
    return _digest(group)
