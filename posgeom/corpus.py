"""A corpus: a stream of documents, wherever they lie."""

import difflib
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posgeom import named
from posgeom.arrays import ids_of, is_saved, saved_table, token_stream
from posgeom.errors import PosgeomError
from posgeom.files import Columns, File, Names, Reading, Row, Table, find_files
from posgeom.pieces import Document, Piece, checked
from posgeom.readers import file_table, text_documents


class Corpus:
    """Documents as a stream, with what is known of them before they are read.

    `name` is the source as given, `source` what a rerun would open (None for iterables).
    `holds_ids` is True for token ids and None for an iterable without documents.  `grid` is the
    shape of positions in two dimensions, `pieces` what can be read by itself where the source is
    files, `streams` those that are packed ids, not cut into documents.  Iterating gives
    Documents; sources that can be read only `once` (standard input, generators) raise
    PosgeomError the second time.
    """

    def __init__(
        self,
        name: str,
        source: str | None,
        documents: Callable[[Reading], Iterator[Document]],
        *,
        holds_ids: bool | None,
        reading: Reading | None = None,
        grid: tuple[int, int] | None = None,
        pieces: Sequence[Piece] = (),
        once: bool = False,
        first: NDArray[np.integer] | None = None,
    ) -> None:
        self.name = name
        self.source = source
        self.holds_ids = holds_ids
        self.grid = grid
        self.pieces = tuple(pieces)
        self.once = once
        self._documents = documents
        self.reading = self._reading = reading or Reading()
        self._drawn: deque[Document] = deque()  # what head took from a source read only once
        self._rest = documents(self._reading) if once else None
        self._begun = False
        self._first = first  # stream, open already: a packed file is not unpacked twice

    def __repr__(self) -> str:
        return f"Corpus({self.name!r})"

    @property
    def streams(self) -> list[Callable[[], NDArray[np.integer]]]:
        """What opens the packed streams of token ids, if the corpus is such."""
        openers = [piece.stream for piece in self.pieces if piece.stream is not None]
        first = self._first
        return openers if first is None else [lambda: first, *openers[1:]]

    @property
    def replaced(self) -> int:
        """Undecodable byte sequences replaced so far in this pass."""
        return self._reading.replaced

    def __iter__(self) -> Iterator[Document]:
        self._refuse_streams()
        if self._rest is not None:
            self._refuse_second_pass()
            self._begun = True
            return self._drain(self._rest)
        self._reading = replace(self._reading, replaced=0)
        return self._documents(self._reading)

    def head(self, documents: int, characters: int) -> list[Document]:
        """The first documents: so many, or fewer that reach so many characters (or ids).

        The document that reaches the bound is among them.  Iterating afterwards still begins at
        the beginning.
        """
        self._refuse_streams()
        if self._rest is None:
            return _first(self._documents(replace(self._reading)), documents, characters)
        self._refuse_second_pass()
        first = _first(self._drain(self._rest), documents, characters)
        self._drawn.extendleft(reversed(first))
        return first

    def _drain(self, rest: Iterator[Document]) -> Iterator[Document]:
        while self._drawn:
            yield self._drawn.popleft()
        # Not `yield from`, which would close the source when head stops.
        for document in rest:  # noqa: UP028
            yield document

    def _refuse_streams(self) -> None:
        if self.streams:
            raise TypeError(f"{self.name} is a stream of tokens: use its .streams")

    def _refuse_second_pass(self) -> None:
        if self._begun:
            raise PosgeomError(
                f"{self.name} can be read only once and has been; give a file or a list instead"
            )


def _first(stream: Iterator[Document], documents: int, characters: int) -> list[Document]:
    taken: list[Document] = []
    while len(taken) < documents and characters > 0 and (document := next(stream, None)):
        taken.append(document)
        characters -= 0 if document.content is None else len(document.content)
    return taken


@dataclass(frozen=True)
class Options:
    """The options of open_corpus, named as on the command line."""

    text_field: str | None = None
    group_field: str | None = None
    documents: str = "line"
    split: str | None = None
    config: str | None = None
    encoding_errors: str = "strict"
    ids_dtype: str | None = None

    def check(self) -> None:
        """Raise PosgeomError for a value that no option has."""
        for name, known in [
            ("documents", ("line", "file", "paragraph")),
            ("encoding_errors", ("strict", "replace")),
            ("ids_dtype", ("uint16", "uint32")),
        ]:
            if (value := getattr(self, name)) is not None and value not in known:
                raise PosgeomError(f"{_flag(name)} is '{value}'; expected {' or '.join(known)}")

    def allow(self, source: str, *allowed: str) -> None:
        """Raise PosgeomError where an option is set that means nothing for this source."""
        for field in fields(self):
            if field.name not in allowed and getattr(self, field.name) != field.default:
                raise PosgeomError(f"{_flag(field.name)} does not apply to {source}; leave it out")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def open_corpus(
    source: str | os.PathLike[str] | Iterable[Any] | Corpus,
    *,
    text_field: str | None = None,
    group_field: str | None = None,
    documents: str = "line",
    split: str | None = None,
    config: str | None = None,
    encoding_errors: str = "strict",
    ids_dtype: str | None = None,
) -> Corpus:
    """Open a corpus.

    A source is a path, a glob, a folder (also one that `datasets.save_to_disk` wrote), any fsspec
    address, "-" for standard input, "hf:NAME" for a data set of the Hugging Face hub, the name of
    a corpus (see `named_corpora`), or an iterable of texts, of sequences of token ids or of
    Documents.  A Corpus is returned as it is.  Text columns are found where just one can be it.
    Raises PosgeomError for what cannot be opened; no whole pass is made here.
    """
    options = Options(text_field, group_field, documents, split, config, encoding_errors, ids_dtype)
    options.check()
    if isinstance(source, Corpus):
        options.allow("a corpus that is open already")
        return source
    if isinstance(source, os.PathLike):
        return _open_path(os.fspath(source), options)
    if not isinstance(source, str):
        options.allow("an iterable", "encoding_errors")
        return _open_iterable(source, options)
    if source == "-":
        return _open_stdin(options)
    if source.startswith("hf:"):
        options.allow(source, "text_field", "group_field", "split", "config", "encoding_errors")
        table = named.hub_table(source.removeprefix("hf:"), config, split)
        return _open_tables([table], source, source, options)
    if source.partition(":")[0] in named.named_corpora():
        return _open_named(source, options)
    return _open_path(source, options)


def _open_named(source: str, options: Options) -> Corpus:
    name, _, arguments = source.partition(":")
    entry = named.named_corpora()[name]
    if entry["kind"] != "dataset":
        options.allow(source)
        made = named.made_corpus(entry["kind"], arguments)
        return Corpus(
            source,
            source,
            lambda reading: (Document(*pair) for pair in made.documents()),
            holds_ids=made.holds_ids,
            grid=made.grid,
        )
    if arguments:
        raise PosgeomError(f"{name} takes no options after a colon, came: {arguments}")
    options.allow(source, "text_field", "group_field", "split", "config", "encoding_errors")
    path = named.local_file(entry)
    # The local file stands for one split only.
    place = entry["local" if path and not (options.split or options.config) else "hub"]
    options = replace(
        options,
        text_field=options.text_field or place["text_field"],
        group_field=options.group_field or place.get("group_field"),
    )
    if path and place is entry["local"]:
        table = file_table(find_files(path)[1][0])
    else:
        table = named.hub_table(
            place["name"],
            options.config or place.get("config"),
            options.split or place["split"],
            f", or set POSGEOM_DATA to a folder that holds {entry['local']['file']}",
        )
    return _open_tables([table], source, source, options)


def _open_stdin(options: Options) -> Corpus:
    options.allow("standard input, which is read as text", "documents", "encoding_errors")

    def documents(reading: Reading) -> Iterator[Document]:
        content = None
        for (content,) in text_documents(sys.stdin.buffer, "standard input", reading):
            yield Document(str(content))
        if content is None:
            raise PosgeomError("standard input is empty; expected lines of text")

    reading = Reading(options.documents, options.encoding_errors)
    return Corpus("-", "-", documents, holds_ids=False, reading=reading, once=True)


def _open_iterable(source: Iterable[Any], options: Options) -> Corpus:
    if not isinstance(source, Iterable) or isinstance(source, (bytes, dict)):
        raise PosgeomError(
            f"a {type(source).__name__} is no corpus; expected a path, a name, or an iterable of "
            "texts or of sequences of token ids"
        )

    def documents(reading: Reading) -> Iterator[Document]:
        ids = None
        for number, item in enumerate(source, 1):
            content, group = item if isinstance(item, Document) else (item, None)
            if ids is None and content is not None:
                ids = not isinstance(content, str)
            yield Document(checked(content, bool(ids), "document", number, "", reading), group)

    once = iter(source) is source
    reading = Reading(encoding_errors=options.encoding_errors)
    corpus = Corpus("<iterable>", None, documents, holds_ids=None, reading=reading, once=once)
    for document in corpus.head(sys.maxsize, 1):  # the first that is no null tells
        if document.content is not None:
            corpus.holds_ids = not isinstance(document.content, str)
    return corpus


def _open_path(source: str, options: Options) -> Corpus:
    options.allow(source, *(f.name for f in fields(options) if f.name != "config"))
    if is_saved(source):
        options.allow(f"{source}, a saved data set", "text_field", "group_field", "split")
        path = os.path.abspath(source)
        return _open_tables([saved_table(path, options.split)], source, path, options)
    path, files = find_files(source)
    if not files:
        raise PosgeomError(_missing(source))
    by_format = {file.format: file.relative for file in files}
    if len(by_format) > 1:
        found = ", ".join(f"{kind} ({name})" for kind, name in by_format.items())
        raise PosgeomError(
            f"{source} holds files of several kinds: {found}; choose one kind by a glob such as "
            f"'{os.path.join(source, '*.txt')}'"
        )
    (kind,) = by_format
    fit = {"text": ["documents", "group_field"], "bin": ["ids_dtype"], "npy": []}
    options.allow(
        f"{source} ({kind})", "encoding_errors", *fit.get(kind, ["text_field", "group_field"])
    )
    if kind in ("bin", "npy"):
        several = kind == "bin" and len(files) > 1  # a bad one tells when it is counted
        first = None if several else token_stream(files[0], options.ids_dtype)
        if several or first is not None:
            streams = [_stream(file, options.ids_dtype) for file in files]
            return Corpus(
                source, path, lambda _: iter(()), holds_ids=True, pieces=streams, first=first
            )
    groups = None
    if kind == "text" and options.group_field is not None:
        if options.group_field != "file":
            raise PosgeomError(
                f"--group-field is '{options.group_field}', but {source} is text without columns; "
                "only --group-field file applies"
            )
        groups, options = [file.relative for file in files], replace(options, group_field=None)
    return _open_tables([file_table(file) for file in files], source, path, options, groups)


def _stream(file: File, dtype: str | None) -> Piece:
    """A file of packed ids, without rows; opened only when it is counted."""
    table = Table(file.path, _no_columns, _no_rows, file)
    return Piece(table, (), True, size=file.size, stream=partial(ids_of, file, dtype))


def _no_columns(_: Reading) -> Columns:
    return {}


def _no_rows(_: Names, __: Reading) -> Iterator[Row]:
    return iter(())


def _missing(source: str) -> str:
    close = difflib.get_close_matches(source, named.named_corpora(), 1)
    if close:
        return f"there is no file or named corpus {source}; did you mean {close[0]}?"
    return (
        f"there is no file {source} (or no data in it); expected a path, a glob, a folder, -, "
        f"hf:NAME or one of: {', '.join(named.named_corpora())}"
    )


def _open_tables(
    tables: list[Table], name: str, source: str, options: Options, groups: list[str] | None = None
) -> Corpus:
    """The corpus of one or more tables with the same columns; `groups` holds one for each."""
    reading = Reading(options.documents, options.encoding_errors)
    columns = _columns(tables, reading)
    if not columns:
        raise PosgeomError(f"{name} is empty; expected at least one document")
    text, ids = _choose(columns, options, name)
    names: Names = [text] if options.group_field is None else [text, options.group_field]
    pieces = [
        Piece(table, names, ids, group, size=table.file.size if table.file else None)
        for table, group in zip(tables, groups or repeat(None, len(tables)), strict=True)
    ]
    return corpus_of(pieces, name, source, reading)


def corpus_of(pieces: Sequence[Piece], name: str, source: str | None, reading: Reading) -> Corpus:
    """The corpus whose documents are those of the pieces, in their order."""

    def documents(reading: Reading) -> Iterator[Document]:
        for piece in pieces:
            yield from piece.documents(reading)

    ids = pieces[0].holds_ids
    return Corpus(name, source, documents, holds_ids=ids, reading=reading, pieces=pieces)


def _columns(tables: list[Table], reading: Reading) -> Columns:
    """The columns of the first table that has any; a broken one tells when it is read."""
    broken = None
    for table in tables:
        try:
            if columns := table.columns(replace(reading)):
                return columns
        except PosgeomError as error:
            broken = broken or error
    if broken is not None:
        raise broken
    return {}


def _choose(columns: Columns, options: Options, name: str) -> tuple[str | None, bool]:
    """The column that holds the documents, and whether they are ids."""
    listing = ", ".join(str(column) for column in columns)
    for option in ("text_field", "group_field"):
        field = getattr(options, option)
        if field is not None and None in columns:
            raise PosgeomError(f"{name} has rows without fields; leave out {_flag(option)}")
        if field is not None and field not in columns:
            raise PosgeomError(f"{name} has no column '{field}'; it has: {listing}")
    if None in columns:
        return None, columns[None] == "ids"
    if options.text_field is not None:
        return options.text_field, columns[options.text_field] == "ids"
    for kind in ("text", "ids"):
        found = [c for c, holds in columns.items() if holds == kind and c != options.group_field]
        if len(found) == 1:
            return found[0], kind == "ids"
        if found:
            raise PosgeomError(
                f"{name} has {len(found)} columns of {kind} ({', '.join(map(str, found))}); "
                f"choose by --text-field (all columns: {listing})"
            )
    raise PosgeomError(f"{name} has no column of text or ids; it has: {listing}")
