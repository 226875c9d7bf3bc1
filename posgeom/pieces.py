"""Pieces of a corpus: what can be read by itself, in any process; and how they make shards."""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from posgeom.arrays import parquet_rows, row_groups
from posgeom.errors import PosgeomError
from posgeom.files import Names, Reading, Table

SURROGATES = re.compile("[\ud800-\udfff]")
SHARD_BYTES, SHARDS = 1 << 26, 256  # a shard has so many bytes, or fewer where there are fewer
ENOUGH_FILES = 1_024  # so many are shared out whole: nobody waits to look into them first
FOOTERS = 16  # read at a time


class Document(NamedTuple):
    """One document: its text, or its ready token ids, or None for a null; and its group."""

    content: str | NDArray[np.integer] | None
    group: str | None = None  # documents that belong together share it


class Piece(NamedTuple):
    """A table of a corpus, or some row groups of one, or a packed stream of ids.

    names      the columns of the documents and, where there is one, of their groups
    group      that of all documents, where the table is a group
    groups     the first and the last of the row groups, where it is not the whole table
    before     rows of the same file that lie before these
    size       bytes, where they are known
    stream     opens the ids (tokens,), where they are not cut into documents
    """

    table: Table
    names: Names
    holds_ids: bool
    group: str | None = None
    groups: tuple[int, int] | None = None
    before: int = 0
    size: int | None = None
    stream: Callable[[], NDArray[np.integer]] | None = None

    @property
    def name(self) -> str:
        """Where the piece lies, for people."""
        if not self.groups:
            return self.table.name
        first, last = self.groups
        which = f"row group {first}" if first == last else f"row groups {first} to {last}"
        return f"{self.table.name}, {which}"

    @property
    def identity(self) -> tuple[object, ...]:
        """What differs between pieces that hold different documents."""
        file = self.table.file
        version = (file.size, file.version) if file is not None else ()
        return self.table.name, *version, list(self.names), self.holds_ids, self.group, self.groups

    @property
    def grouped(self) -> bool:
        """Whether documents say which of them belong together."""
        return self.group is not None or len(self.names) > 1

    def documents(self, reading: Reading) -> Iterator[Document]:
        """The documents, one after the other."""
        group, where = self.group, f" of {self.table.name}"
        rows = self.table.rows(self.names, reading)
        for number, row in enumerate(rows, self.before + 1):
            content = checked(row[0], self.holds_ids, "row", number, where, reading)
            if len(row) > 1:
                group = None if row[1] is None else str(row[1])
            yield Document(content, group)


Shard = tuple[Piece, ...]


def shards(pieces: Sequence[Piece]) -> list[Shard]:
    """The pieces in their order, large ones cut into row groups, small ones read together.

    What a shard is depends on the files alone, not on who counts them.
    """
    grain = min(SHARD_BYTES, sum(piece.size or 0 for piece in pieces) // SHARDS)
    if len(pieces) < ENOUGH_FILES:
        with ThreadPoolExecutor(FOOTERS) as threads:
            pieces = [p for cut in threads.map(partial(_cut, grain=grain), pieces) for p in cut]
    made: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        size = grain if piece.size is None else piece.size
        if made and room > 0:
            made[-1].append(piece)
            room -= size
        else:
            made.append([piece])
            room = grain - size
    return [tuple(some) for some in made]


def _cut(piece: Piece, grain: int) -> list[Piece]:
    """The row groups of a parquet file, as many together as make a shard."""
    file = piece.table.file
    if file is None or file.format != "parquet" or piece.size is None:
        return [piece]
    try:
        rows = np.array(row_groups(file), dtype=np.int64)
    except PosgeomError:  # told when the piece is read
        return [piece]
    before = np.concatenate([[0], np.cumsum(rows)])
    ends = before / max(1, before[-1]) * piece.size // max(1, grain)
    edges = [0, *(np.flatnonzero(np.diff(ends[:-1])) + 1).tolist(), len(rows)]
    if len(edges) < 3:
        return [piece]
    return [
        piece._replace(
            table=piece.table._replace(rows=partial(parquet_rows, file, groups=range(k, stop))),
            groups=(k, stop - 1),
            before=int(before[k]),
            size=int(piece.size * rows[k:stop].sum() / before[-1]),
        )
        for k, stop in pairwise(edges)
    ]


def checked(
    value: object, ids: bool, what: str, number: int, where: str, reading: Reading
) -> str | NDArray[np.integer] | None:
    """A document's content as it should be: text that can be encoded, or an array of ids."""
    if value is None:
        return None
    if not ids and isinstance(value, str):
        if value.isascii() or not SURROGATES.search(value):
            return value
        if reading.encoding_errors == "strict":  # JSON can write half a surrogate pair
            raise PosgeomError(
                f"{what} {number}{where} holds a lone surrogate, which is no character; "
                "go on with --encoding-errors replace"
            )
        value, count = SURROGATES.subn("\ufffd", value)
        reading.replaced += count
        return value
    expected = "a sequence of token ids (whole numbers from 0)" if ids else "text"
    if ids and not isinstance(value, (str, bytes, dict)):
        try:
            array = np.asarray(value)
        except ValueError:  # sequences in it, of several lengths
            array = np.empty((0, 0))
        if array.ndim == 1 and not array.size:
            return np.empty(0, np.int64)
        if array.ndim == 1 and array.dtype.kind in "iu":
            array = array.astype(np.int64)
            if array.min() >= 0:
                return array
    came = re.sub(r"\s+", " ", repr(value))
    came = came if len(came) <= 40 else came[:37] + "..."
    raise PosgeomError(f"{what} {number}{where} is {came}; expected {expected}")
