"""Text formats to rows: lines, JSON and CSV; and which format a file is read as.

Every text format decodes in one place, `decoded`, so that a bad byte is met with the same
message everywhere.
"""

import csv
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import BinaryIO, NamedTuple

from posgeom.arrays import array_columns, npy_rows, parquet_columns, parquet_rows
from posgeom.errors import PosgeomError
from posgeom.files import (
    CHUNK,
    FAMILIES,
    Columns,
    File,
    Names,
    Reading,
    Row,
    Table,
    column_of,
    first_line,
    open_bytes,
)

SAMPLE = 100  # rows looked at to learn what a column holds

# -- text -----------------------------------------------------------------------------------------


def decoded(data: BinaryIO, name: str, reading: Reading) -> Iterator[str]:
    """The text of a stream of UTF-8 bytes, block by block, without a byte-order mark.

    Raises PosgeomError for binary data, and for bad bytes unless they are to be replaced by
    U+FFFD; those are counted in `reading.replaced`.
    """
    carry, line, column, fresh, chunk = b"", 1, 0, True, b"-"
    while chunk:
        chunk = data.read(CHUNK)
        block, carry = carry + chunk, b""
        if chunk:
            # Cut before a last lead byte, whose character the next chunk may complete.
            cut = next((-k for k in (1, 2, 3) if block[-k:][0] >= 0xC0), len(block))
            block, carry = block[:cut], block[cut:]
        if not block:
            continue
        if fresh:
            refuse_binary(block, name)
            block, column = (block[3:], 3) if block.startswith(b"\xef\xbb\xbf") else (block, 0)
            fresh = False
        try:
            text = block.decode()
        except UnicodeDecodeError as error:
            if reading.encoding_errors == "strict":
                line += block.count(b"\n", 0, error.start)
                begin = block.rfind(b"\n", 0, error.start) + 1
                offset = error.start - begin + (0 if begin else column)
                raise PosgeomError(
                    f"{name}, line {line}, byte offset {offset}: 0x{block[error.start]:02x} is "
                    "not UTF-8; convert the text, or go on with --encoding-errors replace"
                ) from None
            text = block.decode(errors="replace")
            # Replacement characters that stood there already are no errors.
            reading.replaced += text.count("\ufffd") - block.count(b"\xef\xbf\xbd")
        line += block.count(b"\n")
        begin = block.rfind(b"\n") + 1
        column = len(block) - begin + (0 if begin else column)
        yield text


def refuse_binary(block: bytes, name: str) -> None:
    """Raise PosgeomError where the first bytes cannot be UTF-8 text."""
    if block.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise PosgeomError(f"{name} is UTF-16; convert it: iconv -f UTF-16 -t UTF-8")
    if b"\0" in block[:4096]:
        raise PosgeomError(
            f"{name} is binary (a NUL byte stands near its beginning), expected text; "
            f"other formats are told by their suffix ({', '.join(FAMILIES)})"
        )


def lines(blocks: Iterable[str]) -> Iterator[str]:
    r"""The lines of a text that comes in blocks, without their ends.

    Only \n and \r\n end a line; a lone \r, form feeds and the Unicode separators stay in it.
    """
    parts: list[str] = []  # a long line is joined once, not once a block
    for block in blocks:
        first, *rest = block.split("\n")
        parts.append(first)
        if rest:
            yield "".join(parts).removesuffix("\r")
            for line in rest[:-1]:
                yield line.removesuffix("\r")
            parts = rest[-1:]
    if last := "".join(parts):
        yield last


def paragraphs(text: Iterable[str]) -> Iterator[str]:
    """Runs of lines between blank lines, joined by line ends."""
    run: list[str] = []
    for line in chain(text, [""]):
        if line.strip():
            run.append(line)
        elif run:
            yield "\n".join(run)
            run = []


def text_documents(data: BinaryIO, name: str, reading: Reading) -> Iterator[Row]:
    """The rows of a stream of text: its lines, its paragraphs, or all of it."""
    text = lines(decoded(data, name, reading))
    if reading.documents == "paragraph":
        text = paragraphs(text)
    elif reading.documents == "file":
        text = iter(["\n".join(text)])
    return ((document,) for document in text)


def text_columns(file: File, reading: Reading) -> Columns:
    with open_bytes(file) as data:
        return {None: "text"} if next(decoded(data, file.path, reading), None) else {}


def text_rows(file: File, names: Names, reading: Reading) -> Iterator[Row]:
    with open_bytes(file) as data:
        yield from text_documents(data, file.path, reading)


# -- JSON -----------------------------------------------------------------------------------------


class _Blocks:
    """Blocks of text as the file of bytes that ijson reads from."""

    def __init__(self, blocks: Iterator[str]) -> None:
        self.blocks = blocks

    def read(self, size: int = -1) -> bytes:
        return next(self.blocks, "").encode() if size else b""


def json_values(file: File, reading: Reading) -> Iterator[object]:
    """The values of JSON Lines, or of the one array in a .json file."""
    with open_bytes(file) as data:
        blocks = decoded(data, file.path, reading)
        first = next(blocks, "")
        blocks = chain([first], blocks)
        if file.suffixes[0] == ".json" and first.lstrip().startswith("["):
            yield from _array_values(file, blocks)
            return
        for number, line in enumerate(lines(blocks), 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise PosgeomError(
                    f"{file.path}, line {number}: broken JSON ({first_line(error)}); "
                    "expected one value a line, or in .json one array of them"
                ) from None
            yield value


def _array_values(file: File, blocks: Iterator[str]) -> Iterator[object]:
    import ijson

    number = 0
    try:
        for value in ijson.items(_Blocks(blocks), "item", use_float=True):
            number += 1
            yield value
    except (ijson.JSONError, UnicodeDecodeError) as error:
        raise PosgeomError(
            f"{file.path}: broken JSON after row {number} ({first_line(error)}); expected one "
            "array of texts or objects (JSON Lines belong in .jsonl)"
        ) from None


def value_columns(values: Iterable[object]) -> Columns:
    """The columns of a sample of rows, which are all objects, or all texts or lists of ids."""
    rows = [value for value in values if value is not None]
    records = [row for row in rows if isinstance(row, dict)]
    if not rows:
        return {}
    if not records:
        return {None: _kind(rows)}
    names = dict.fromkeys(name for record in records for name in record)
    return {name: _kind([record.get(name) for record in records]) for name in names}


def value_rows(values: Iterable[object], names: Names, where: str) -> Iterator[Row]:
    """The named fields of each row; a field that is not there is a null."""
    number, seen = 0, names[0] is None
    for number, value in enumerate(values, 1):
        if names[0] is None or value is None:
            yield (value, *[None] * (len(names) - 1))
        elif isinstance(value, dict):
            seen = seen or names[0] in value
            yield tuple(value.get(name) for name in names)
        else:
            raise PosgeomError(
                f"{where}, row {number}: a {type(value).__name__} where other rows are objects; "
                "expected rows of one kind"
            )
    if number and not seen:
        raise PosgeomError(f"no row of {where} holds the field '{names[0]}'; see --text-field")


def _kind(values: Iterable[object]) -> str:
    present = [value for value in values if value is not None]
    if not present:
        return "empty"
    if all(isinstance(value, str) for value in present):
        return "text"
    ids = all(isinstance(v, list) and all(type(item) is int for item in v) for v in present)
    return "ids" if ids and any(present) else "other"


def json_columns(file: File, reading: Reading) -> Columns:
    return value_columns(islice(json_values(file, reading), SAMPLE))


def json_rows(file: File, names: Names, reading: Reading) -> Iterator[Row]:
    yield from value_rows(json_values(file, reading), names, file.path)


# -- CSV ------------------------------------------------------------------------------------------


def csv_records(file: File, reading: Reading) -> Iterator[list[str]]:
    """The records of a .csv or .tsv file, the header first, all of one length."""
    csv.field_size_limit(2**31 - 1)  # the default refuses texts over 128 KB
    number = width = 0

    def numbered(text: Iterable[str]) -> Iterator[str]:
        nonlocal number
        for number, line in enumerate(text, 1):  # noqa: B007, the errors below tell it
            yield line + "\n"

    with open_bytes(file) as data:
        text = numbered(lines(decoded(data, file.path, reading)))
        # strict: else a quotation mark left open swallows the rest of the file
        tabs = file.suffixes[0] == ".tsv"
        records = tab_records(text) if tabs else csv.reader(text, strict=True)
        try:
            for record in filter(None, records):
                width = width or len(record)
                if len(record) != width:
                    raise csv.Error(f"{len(record)} fields where the header has {width}")
                yield record
        except csv.Error as error:
            raise PosgeomError(
                f"{file.path}, line {number}: {error}; fields that hold separators, "
                "quotation marks or line ends must be quoted"
            ) from None


def tab_records(text: Iterator[str]) -> Iterator[list[str]]:
    """The records of tab-separated lines, whose quotation marks may be quotes or plain text.

    Spreadsheets quote; many corpora (GLUE among them) do not, and there a text may begin with a
    mark that is never closed.  So marks are quotes only where they close before a line that is a
    whole record by itself.
    """
    held: deque[str] = deque()  # lines looked at ahead and given back
    width = 0

    def with_following(line: str, ahead: list[str]) -> Iterator[str]:
        yield line
        while following := held.popleft() if held else next(text, ""):
            ahead.append(following)
            if following.count("\t") >= width - 1:
                return
            yield following

    while line := held.popleft() if held else next(text, ""):
        record = line.removesuffix("\n").split("\t") if line != "\n" else []
        if '"' in line:
            ahead: list[str] = []
            try:
                quoted = next(csv.reader(with_following(line, ahead), "excel-tab", strict=True))
            except csv.Error:
                quoted = []
            if quoted and len(quoted) == (width or len(quoted)):
                record = quoted
            else:
                held.extendleft(reversed(ahead))
        width = width or len(record)
        yield record


def csv_columns(file: File, reading: Reading) -> Columns:
    header, *sample = [*islice(csv_records(file, reading), SAMPLE + 1)] or [[]]
    if not sample:
        return dict.fromkeys(header, "empty")
    return {
        name: "other" if all(map(_is_number, values)) else "text"
        for name, values in zip(header, zip(*sample, strict=True), strict=True)
    }


def _is_number(text: str) -> bool:
    try:
        float(text or "nan")
    except ValueError:
        return False
    return True


def csv_rows(file: File, names: Names, reading: Reading) -> Iterator[Row]:
    records = csv_records(file, reading)
    header = next(records, [])
    if header:
        columns = [column_of(header, name, file.path) for name in names]
        yield from (tuple(record[column] for column in columns) for record in records)


# -- which format ---


class Format(NamedTuple):
    """How the files of one family are read."""

    columns: Callable[[File, Reading], Columns]
    rows: Callable[[File, Names, Reading], Iterator[Row]]


FORMATS = {
    "text": Format(text_columns, text_rows),
    "json": Format(json_columns, json_rows),
    "csv": Format(csv_columns, csv_rows),
    "parquet": Format(parquet_columns, parquet_rows),
    "npy": Format(array_columns, npy_rows),
}


def file_table(file: File) -> Table:
    """The table of one file, by its suffix."""
    columns, rows = FORMATS[file.format]
    return Table(file.path, partial(columns, file), partial(rows, file), file)
