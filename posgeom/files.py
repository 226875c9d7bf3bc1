"""Where the rows of a corpus lie: files of any fsspec file system, their bytes, and tables.

Whatever a corpus is read from is a `Table`: it tells its columns, and streams its rows with only
the columns asked for.  A format whose rows are one value each (lines of text, rows of ids) has
the one column `None`.
"""

import lzma
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from traceback import walk_tb
from typing import Any, BinaryIO, NamedTuple, cast
from urllib.parse import urlsplit

from posgeom.errors import PosgeomError

CHUNK = 1 << 16  # bytes read at a time
FAMILIES = {
    ".txt": "text",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".npy": "npy",
    ".bin": "bin",
}
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}

Columns = dict[str | None, str]  # column -> "text", "ids", "other", or "empty" (only nulls seen)
Names = Sequence[str | None]
Row = tuple[object, ...]


@dataclass
class Reading:
    """How text is read in one pass, and what the pass met."""

    documents: str = "line"
    encoding_errors: str = "strict"
    replaced: int = 0


class Table(NamedTuple):
    """Rows under named columns: one file, a saved data set or a data set of the hub."""

    name: str
    columns: Callable[[Reading], Columns]  # empty where there is no row
    rows: Callable[[Names, Reading], Iterator[Row]]
    file: "File | None" = None  # where the table is one


class File(NamedTuple):
    """A file on any fsspec file system; `relative` is its name below the folder it came from.

    size: its bytes, where the file system says.  version: what else it says that changes when
    the file does.
    """

    fs: Any
    path: str
    relative: str
    size: int | None = None
    version: str = ""

    @classmethod
    def of(cls, fs: Any, entry: dict[str, Any], relative: str) -> "File":
        """The file of an entry that an fsspec file system lists."""
        marks = [entry.get(key) for key in ("mtime", "ETag", "LastModified", "created")]
        return cls(fs, entry["name"], relative, entry.get("size"), str(marks))

    @property
    def suffixes(self) -> tuple[str, str]:
        """The suffix of the format and of the compression; "" where there is none."""
        # An address may carry a query: .../train.jsonl?download=true
        path = PurePosixPath(urlsplit(self.path).path if "://" in self.path else self.path)
        packed = path.suffix.lower() if path.suffix.lower() in COMPRESSIONS else ""
        return (path.with_suffix("") if packed else path).suffix.lower(), packed

    @property
    def format(self) -> str:
        """The family of the format: text, json, csv, parquet, npy or bin."""
        return FAMILIES.get(self.suffixes[0], "text")


def find_files(source: str) -> tuple[str, list[File]]:
    """Where a path, glob, folder or fsspec address leads: its full name, and the files there.

    Folders are searched through.  Hidden files are left out, and so are empty ones, as long as
    others stand beside them.  An empty list means that nothing is there.
    """
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    fs: Any
    if os.path.exists(source) or not ("://" in source or "::" in source):
        fs = LocalFileSystem()
        path = name = os.path.abspath(os.path.expanduser(source))
    else:
        name = source
        with _told(f"cannot open {source}"):
            fs, path = url_to_fs(source)
    with _told(f"cannot open {source}"):
        if fs.isfile(path):
            return name, [File.of(fs, fs.info(path) | {"name": path}, PurePosixPath(path).name)]
        if fs.isdir(path):
            found, base = fs.find(path, detail=True), path
        elif fs.exists(path):
            raise PosgeomError(f"{source} is neither file nor folder; pipe it in, with SOURCE -")
        elif any(mark in path for mark in "*?["):
            fixed = re.split(r"[*?\[]", path, maxsplit=1)[0]
            found, base = fs.glob(path, detail=True), fixed.rpartition("/")[0]
        else:
            return name, []
    every = [
        File.of(fs, entry | {"name": path}, path.removeprefix(base).lstrip("/"))
        for path, entry in sorted(found.items())
        if entry["type"] == "file"
    ]
    shown = [file for file in every if not re.search(r"(^|/)\.", file.relative)]
    return name, [file for file in shown if file.size != 0] or shown


@contextmanager
def open_bytes(file: File) -> Iterator[BinaryIO]:
    """The uncompressed bytes of a file; what goes wrong with them is a PosgeomError."""
    from fsspec.core import OpenFile

    kind = COMPRESSIONS.get(file.suffixes[1])
    try:
        with OpenFile(file.fs, file.path, "rb", None if kind == "zstd" else kind) as data:
            if kind != "zstd":
                yield cast(BinaryIO, data)
                return
            # fsspec's own reader of .zst ends without a word after the first frame, and at a cut.
            import pyarrow

            with pyarrow.CompressedInputStream(data, "zstd") as unpacked:
                yield cast(BinaryIO, unpacked)
    except Exception as error:
        unpacking = isinstance(error, EOFError | zlib.error | lzma.LZMAError)
        if not unpacking and not _of_file_system(error):
            raise
        if kind and (unpacking or (isinstance(error, OSError) and error.errno is None)):
            raise PosgeomError(
                f"{file.path} is not a whole {kind} file ({first_line(error)}); "
                "mend the file or its suffix"
            ) from error
        raise PosgeomError(f"cannot read {file.path}: {reason(error)}") from error


@contextmanager
def open_seekable(file: File, *, mappable: bool = False) -> Iterator[BinaryIO]:
    """Like open_bytes, but seekable: compressed files pass through a temporary file.

    With `mappable`, so do files of other machines: a memory map needs a file of this one.
    """
    from fsspec.implementations.local import LocalFileSystem

    with open_bytes(file) as data:
        local = isinstance(file.fs, LocalFileSystem)
        if not file.suffixes[1] and (local or not mappable):
            # fsspec wraps local files; NumPy maps only the bare one
            yield getattr(data, "f", data) if local else data
            return
        with tempfile.TemporaryFile() as unpacked:
            shutil.copyfileobj(data, unpacked)
            unpacked.seek(0)
            yield cast(BinaryIO, unpacked)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Errors of a file system as PosgeomError, after what could not be done."""
    try:
        yield
    except Exception as error:
        if not _of_file_system(error):
            raise
        raise PosgeomError(f"{what}: {reason(error)}") from error


def _of_file_system(error: Exception) -> bool:
    """Whether an error is of the system or of a library that fsspec calls, not of our own code.

    What S3 or HTTP clients raise (no credentials, no answer, a cut in the middle) need not be an
    OSError.
    """
    if isinstance(error, OSError | PosgeomError):
        return isinstance(error, OSError)
    frames = (frame for frame, _ in walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__", "").startswith("fsspec.") for frame in frames)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the name of its type."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def reason(error: BaseException) -> str:
    """What the system says of an error, without the path that the message names already."""
    return getattr(error, "strerror", None) or first_line(error)


def column_of(header: Sequence[str], name: str | None, where: str) -> int:
    """The place of a column, or the error that lists those there are."""
    if name not in header:
        raise PosgeomError(f"{where} has no column '{name}'; it has: {', '.join(header)}")
    return header.index(name)
