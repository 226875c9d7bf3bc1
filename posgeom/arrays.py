"""Binary formats to rows: parquet, saved data sets, and arrays of token ids."""

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from posgeom.errors import PosgeomError
from posgeom.files import (
    Columns,
    File,
    Names,
    Reading,
    Row,
    Table,
    column_of,
    first_line,
    open_bytes,
    open_seekable,
)

# -- Arrow: parquet and saved data sets -----------------------------------------------------------


def arrow_columns(schema: Any) -> Columns:
    """What the columns of an Arrow schema hold."""
    return {field.name: _arrow_kind(field.type) for field in schema}


def _arrow_kind(kind: Any) -> str:
    import pyarrow.types as types

    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return "ids" if lists and types.is_integer(kind.value_type) else "other"


def arrow_rows(batches: Iterable[Any], names: Names) -> Iterator[Row]:
    """The rows of Arrow batches or tables; lists of ids as arrays."""
    for batch in batches:
        yield from zip(*(_arrow_values(batch.column(name)) for name in names), strict=True)


def _arrow_values(column: Any) -> Iterable[object]:
    if _arrow_kind(column.type) != "ids":
        return cast(list[object], column.to_pylist())
    return (v.values.to_numpy(zero_copy_only=False) if v.is_valid else None for v in column)


@contextmanager
def open_parquet(file: File) -> Iterator[Any]:
    import pyarrow
    import pyarrow.parquet

    with open_seekable(file) as data:
        try:
            yield pyarrow.parquet.ParquetFile(data)
        except pyarrow.ArrowException as error:
            raise PosgeomError(
                f"{file.path} is no whole parquet file ({first_line(error)}); "
                "write it again, or mend its suffix"
            ) from error


def parquet_columns(file: File, reading: Reading) -> Columns:
    with open_parquet(file) as parquet:
        return arrow_columns(parquet.schema_arrow)


def parquet_rows(
    file: File, names: Names, reading: Reading, groups: Sequence[int] | None = None
) -> Iterator[Row]:
    """The rows of a parquet file, or of some of its row groups."""
    with open_parquet(file) as parquet:
        for name in names:
            column_of(parquet.schema_arrow.names, name, file.path)
        batches = parquet.iter_batches(batch_size=256, row_groups=groups, columns=names)
        yield from arrow_rows(batches, names)


def row_groups(file: File) -> list[int]:
    """How many rows each row group of a parquet file has."""
    with open_parquet(file) as parquet:
        about = parquet.metadata
        return [about.row_group(k).num_rows for k in range(about.num_row_groups)]


def is_saved(path: str) -> bool:
    """Whether `datasets.save_to_disk` wrote this folder."""
    marks = [["dataset_dict.json"], ["dataset_info.json", "state.json"]]
    return any(all(os.path.isfile(os.path.join(path, f)) for f in mark) for mark in marks)


def saved_table(folder: str, split: str | None) -> Table:
    """The table of a folder that `datasets.save_to_disk` wrote."""
    import datasets

    try:
        data = datasets.load_from_disk(folder)
    except Exception as error:  # datasets lets through whatever its parts raise
        raise PosgeomError(
            f"{folder} is no whole saved data set ({first_line(error)}); save it again"
        ) from error
    if isinstance(data, datasets.DatasetDict):
        if split is None and len(data) == 1:
            split = next(iter(data))
        if split not in data:
            came = f"no split '{split}'" if split else f"{len(data)} splits"
            raise PosgeomError(f"{folder} has {came}; choose by --split: {', '.join(data)}")
        data = data[split]
    elif split is not None:
        raise PosgeomError(f"{folder} is one data set without splits; leave out --split")
    schema = data.features.arrow_schema

    def rows(names: Names, reading: Reading) -> Iterator[Row]:
        batches = data.select_columns(names).with_format("arrow").iter(batch_size=256)
        return arrow_rows(batches, names)

    return Table(folder, lambda reading: arrow_columns(schema), rows)


# -- arrays of ids --------------------------------------------------------------------------------


def npy_header(data: BinaryIO, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of the .npy array whose numbers stand next in `data`."""
    try:
        version = np.lib.format.read_magic(data)
        read = np.lib.format.read_array_header_1_0
        shape, fortran, dtype = (
            read(data) if version == (1, 0) else np.lib.format.read_array_header_2_0(data)
        )
    except ValueError as error:
        raise PosgeomError(f"{name} is no .npy file ({first_line(error)})") from None
    if dtype.kind not in "iu" or len(shape) not in (1, 2) or (fortran and len(shape) == 2):
        order = " in Fortran order" if fortran else ""
        raise PosgeomError(
            f"{name} holds {dtype} of shape {shape}{order}; expected token ids: integers, one "
            "dimension (a stream) or two (rows are documents, C order)"
        )
    return shape, dtype


def array_columns(file: File, reading: Reading) -> Columns:
    return {None: "ids"}


def npy_rows(file: File, names: Names, reading: Reading) -> Iterator[Row]:
    with open_bytes(file) as data:
        (count, *width), dtype = npy_header(data, file.path)
        if not width:
            raise PosgeomError(f"{file.path} is a stream of tokens, not rows; count it by itself")
        size = width[0] * dtype.itemsize
        for number in range(count):
            row = data.read(size)
            if len(row) < size:
                raise PosgeomError(f"{file.path} ends in row {number + 1} of {count}; copy it anew")
            yield (np.frombuffer(row, dtype),)


def token_stream(file: File, dtype: str | None) -> NDArray[np.integer] | None:
    """The memory-mapped ids of a .bin or one-dimensional .npy file; None for rows of ids."""
    with open_seekable(file, mappable=True) as data:
        if file.format == "npy":
            shape, kind = npy_header(data, file.path)
            if len(shape) == 2:
                return None
        else:
            kind = np.dtype("<u4" if dtype == "uint32" else "<u2")
            size = data.seek(0, io.SEEK_END)
            shape = (size // kind.itemsize,)
            data.seek(0)
            if size % kind.itemsize:
                raise PosgeomError(
                    f"{file.path} has {size:,} bytes, which are no whole number of {kind}; "
                    "expected packed uint16, or uint32 with --ids-dtype uint32"
                )
        if not shape[0]:
            raise PosgeomError(f"{file.path} holds no token; expected packed token ids")
        begin = data.tell()
        try:
            stream: NDArray[np.integer] = np.memmap(data, kind, "r", begin, shape)
        except ValueError as error:
            raise PosgeomError(f"cannot map {file.path}: {first_line(error)}") from None
    if file.format == "bin":
        _refuse_other_width(stream, file.path)
    elif kind.kind == "i" and stream.min() < 0:
        raise PosgeomError(f"{file.path} holds negative ids; expected ids from 0")
    return stream


def ids_of(file: File, dtype: str | None) -> NDArray[np.integer]:
    """The ids of a file that stands beside others with packed streams; PosgeomError for rows."""
    stream = token_stream(file, dtype)
    if stream is None:
        raise PosgeomError(f"{file.path} holds rows of ids, others packed ids; give one kind")
    return stream


def _refuse_other_width(stream: NDArray[np.integer], name: str) -> None:
    """Raise PosgeomError where packed ids were evidently written in the other width."""
    head = stream[: 1 << 20]
    if head.dtype.itemsize == 4:
        if head.max() >= 1 << 24:
            raise PosgeomError(f"{name} holds ids up to {head.max():,} as uint32; try uint16")
        return
    # The upper halves of uint32 ids are tiny: no vocabulary reaches 16 * 65,536.
    low, high = head[::2], head[1::2]
    if len(head) >= 8 and high.max() < 16 <= low.max():
        raise PosgeomError(f"{name} looks like uint32, not uint16; say --ids-dtype uint32")
