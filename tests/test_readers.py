"""Formats to rows: against independent routes, and over all compressions."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

import posgeom.files
import posgeom.readers
from posgeom.arrays import saved_table, token_stream
from posgeom.errors import PosgeomError
from posgeom.files import File, Reading, find_files, open_bytes
from posgeom.readers import decoded, file_table, lines, paragraphs

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
TEXTS = ["plain", "", "naïve 漢字 😀", 'say "yes", or\tno', "  indented", "a\rb\u2028c\x0cd", "12"]


def one_file(path: Path) -> File:
    return find_files(str(path))[1][0]


def read(path: Path, *names: str | None, reading: Reading | None = None) -> list[tuple]:
    """The rows of a file, from its only column or from the named ones."""
    return list(file_table(one_file(path)).rows(names or (None,), reading or Reading()))


def columns(path: Path) -> dict[str | None, str]:
    return file_table(one_file(path)).columns(Reading())


def decode(data: bytes, errors: str = "strict") -> tuple[list[str], int]:
    reading = Reading(encoding_errors=errors)
    return list(lines(decoded(io.BytesIO(data), "F", reading))), reading.replaced


def split_at_once(data: bytes, errors: str = "strict") -> list[str]:
    """The lines by another route: all bytes at once, each line decoded by itself."""
    *ended, last = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [line.removesuffix(b"\r").decode(errors=errors) for line in ended] + (
        [last.decode(errors=errors)] if last else []
    )


@pytest.fixture(params=[1, 2, 3, 5, 1 << 16])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(posgeom.readers, "CHUNK", request.param)
    return request.param


# -- decoding -------------------------------------------------------------------------------------

text = st.text(st.sampled_from("a é漢😀\r\n\u2028\x0b\ufffd\ufeff"), max_size=40)
raw = st.lists(st.sampled_from(["a", "\n", "\r\n", "é", "漢", "\ufffd"]).map(str.encode)
               | st.sampled_from([b"\xe6", b"\xf0\x9f", b"\x80", b"\xff", b"\xc3"]))  # fmt: skip


class Slow(io.RawIOBase):
    """A stream that gives a few bytes at a time, as pipes do."""

    def __init__(self, data: bytes, size: int) -> None:
        self.data, self.size = io.BytesIO(data), size

    def read(self, size: int = -1) -> bytes:
        return self.data.read(min(size, self.size))


@given(text, st.booleans(), st.integers(1, 9))
@example("\ufeff", True, 1)
@example("a\r", False, 1)
def test_lines_are_those_of_decode_and_split(content: str, mark: bool, size: int) -> None:
    data = (b"\xef\xbb\xbf" if mark else b"") + content.encode()
    expected = split_at_once(data)
    assert list(lines(decoded(Slow(data, size), "F", Reading()))) == expected
    assert decode(data)[0] == expected


@given(raw, st.integers(1, 9))
def test_bad_bytes_are_replaced_and_counted(parts: list[bytes], size: int) -> None:
    data = b"".join(parts)
    reading = Reading(encoding_errors="replace")
    result = list(lines(decoded(Slow(data, size), "F", reading)))
    assert result == split_at_once(data, "replace")
    marked = data.decode(errors="backslashreplace").count("\ufffd")
    assert reading.replaced == "".join(result).count("\ufffd") - marked


@given(raw, st.integers(1, 9))
def test_the_first_bad_byte_is_named(parts: list[bytes], size: int) -> None:
    data = b"".join(parts)
    try:
        data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].split(b"\n")
        place = f"F, line {len(before)}, byte offset {len(before[-1])}: 0x{data[error.start]:02x}"
    else:
        return
    with pytest.raises(PosgeomError) as caught:
        list(decoded(Slow(data, size), "F", Reading()))
    assert str(caught.value).startswith(place)
    assert "--encoding-errors replace" in str(caught.value)


def test_offset_of_a_bad_byte_counts_the_byte_order_mark() -> None:
    with pytest.raises(PosgeomError, match="line 1, byte offset 4: 0xff"):
        decode(b"\xef\xbb\xbfa\xff")


@pytest.mark.parametrize("data", [b"a\0b\n", b"\x7fELF\x02\x01\x00\x00", b"PK\x03\x04\x00\x00"])
def test_binary_data_is_refused(data: bytes) -> None:
    with pytest.raises(PosgeomError, match="F is binary"):
        decode(data)


def test_utf16_is_told_from_other_binary_data() -> None:
    with pytest.raises(PosgeomError, match="UTF-16; convert it"):
        decode("text".encode("utf-16"))


def test_a_line_of_ten_megabytes() -> None:
    line = "word " * 2_000_000
    assert decode(f"{line}\r\nend".encode()) == ([line, "end"], 0)


def test_only_newlines_end_lines() -> None:
    assert decode("a\x0bb\x0cc\x85d\u2028e\u2029f\rg\n\n".encode())[0] == [
        "a\x0bb\x0cc\x85d\u2028e\u2029f\rg",
        "",
    ]


def test_paragraphs() -> None:
    assert list(paragraphs(["", "a", " b", " \t", "", "c"])) == ["a\n b", "c"]
    assert list(paragraphs([])) == list(paragraphs(["", " "])) == []


def test_whole_file_as_one_document(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\n\r\ntwo\r\n")
    assert read(tmp_path / "a.txt", reading=Reading("file")) == [("one\n\ntwo",)]


# -- round trips ----------------------------------------------------------------------------------


def as_txt(texts: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in texts).encode()


def as_jsonl(texts: list[str]) -> bytes:
    return "".join(json.dumps({"n": 1, "t": line}) + "\r\n" for line in texts).encode()


def as_json(texts: list[str]) -> bytes:
    return json.dumps([{"n": 1, "t": line} for line in texts], ensure_ascii=False).encode()


def as_csv(texts: list[str], delimiter: str = ",") -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter).writerows([["n", "t"], *(["1", line] for line in texts)])
    return b"\xef\xbb\xbf" + out.getvalue().encode()  # as spreadsheets write it


def as_tsv(texts: list[str]) -> bytes:
    return as_csv(texts, "\t")


def as_parquet(texts: list[str]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"n": [1] * len(texts), "t": texts}), out, row_group_size=3)
    return out.getvalue()


WRITERS = {
    ".txt": as_txt,
    ".log": as_txt,
    ".jsonl": as_jsonl,
    ".ndjson": as_jsonl,
    ".json": as_json,
    ".csv": as_csv,
    ".tsv": as_tsv,
    ".parquet": as_parquet,
}


@pytest.mark.parametrize("packed", COMPRESS)
@pytest.mark.parametrize("suffix", WRITERS)
def test_round_trip(tmp_path: Path, suffix: str, packed: str) -> None:
    path = tmp_path / f"corpus{suffix}{packed}"
    path.write_bytes(COMPRESS[packed](WRITERS[suffix](TEXTS)))
    column = None if suffix in (".txt", ".log") else "t"
    expected = {None: "text"} if column is None else {"n": "other", "t": "text"}
    assert columns(path) == expected
    assert read(path, column) == [(line,) for line in TEXTS]


@given(texts=st.lists(st.text(st.characters(exclude_characters="\r\0", codec="utf-8"))))
@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
def test_any_text_comes_back(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, texts: list[str]
) -> None:
    path = tmp_path_factory.mktemp("any") / f"corpus{suffix}"
    path.write_bytes(WRITERS[suffix](texts))
    assert read(path, "t") == [(line,) for line in texts]


def test_json_lines_in_a_json_file(tmp_path: Path) -> None:
    path = tmp_path / "corpus.json"
    path.write_bytes(as_jsonl(TEXTS))
    assert read(path, "t") == [(line,) for line in TEXTS]


@pytest.mark.parametrize("chunk", [1, 7], indirect=True)
def test_json_array_over_chunks(tmp_path: Path, chunk: int) -> None:
    path = tmp_path / "corpus.json"
    path.write_text(json.dumps([*TEXTS, None, [1, 2]], ensure_ascii=False), encoding="utf-8")
    assert read(path) == [(value,) for value in [*TEXTS, None, [1, 2]]]


def test_rows_that_are_texts_or_ids(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('null\n"a"\n\n"b"\n')
    (tmp_path / "i.jsonl").write_text("[1, 2]\n[]\n")
    assert columns(tmp_path / "t.jsonl") == {None: "text"}
    assert columns(tmp_path / "i.jsonl") == {None: "ids"}
    assert read(tmp_path / "t.jsonl") == [(None,), ("a",), ("b",)]
    assert read(tmp_path / "i.jsonl") == [([1, 2],), ([],)]


def test_field_missing_in_some_rows_is_null(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"t": "a"}\n{"g": 1}\nnull\n')
    assert read(path, "t", "g") == [("a", None), (None, 1), (None, None)]


def test_csv_fields_over_the_default_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("t\n" + "x" * 200_000 + "\n")
    assert read(path, "t") == [("x" * 200_000,)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('0\t"a ""b"" c"\n', ['a "b" c']),  # quoted, as spreadsheets write
        ('0\t"a\nb\n\nc"\n1\td\n', ["a\nb\n\nc", "d"]),
        ('0\t"tab\there"\n', ["tab\there"]),
        ('0\t"a" b\n1\tc\n', ['"a" b', "c"]),  # plain, as GLUE has it
        ('0\t"a\n1\tb"\n2\t"c"\n', ['"a', 'b"', "c"]),
        ('0\t"a\n1\t"b\n2\tc\n', ['"a', '"b', "c"]),
        ('0\tsay "a"\n\n1\t"', ['say "a"', '"']),
    ],
)
def test_quotation_marks_in_tsv(tmp_path: Path, body: str, expected: list[str]) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("n\tt\n" + body)
    assert read(path, "t") == [(line,) for line in expected]


def test_csv_column_kinds(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("i,f,e,t\n1,2.5,,x\n2,1e9,,3\n")
    assert columns(path) == {"i": "other", "f": "other", "e": "other", "t": "text"}


def test_arrow_column_kinds(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table(
        {
            "s": pa.array(["a"]),
            "l": pa.array(["a"], pa.large_string()),
            "d": pa.array(["a"]).dictionary_encode(),
            "i": pa.array([[1]], pa.list_(pa.uint16())),
            "f": pa.array([[1]], pa.list_(pa.int32(), 1)),
            "x": pa.array([[1.0]]),
            "n": pa.array([1]),
        }
    )
    pq.write_table(table, path)
    kinds = {"s": "text", "l": "text", "d": "text", "i": "ids", "f": "ids", "x": "other"}
    assert columns(path) == kinds | {"n": "other"}
    assert [name for name, *_ in [read(path, "s", "l", "d")[0]]] == ["a"]
    assert [list(ids) for ids in read(path, "i", "f")[0]] == [[1], [1]]


def test_parquet_nulls(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": ["a", None], "i": [None, [1, 2]]}), path)
    assert read(path, "t") == [("a",), (None,)]
    (first,), (second,) = read(path, "i")
    assert first is None
    np.testing.assert_array_equal(second, [1, 2])


@pytest.mark.parametrize("packed", COMPRESS)
@pytest.mark.parametrize("dtype", ["u1", "<u2", ">u4", "i8"])
def test_rows_of_npy(tmp_path: Path, packed: str, dtype: str) -> None:
    ids = np.arange(12, dtype=dtype).reshape(3, 4)
    out = io.BytesIO()
    np.save(out, ids)
    path = tmp_path / f"ids.npy{packed}"
    path.write_bytes(COMPRESS[packed](out.getvalue()))
    np.testing.assert_array_equal([row for (row,) in read(path)], ids)


# -- compressed files -----------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [".gz", ".bz2", ".xz", ".zst"])
def test_members_joined_end_to_end_are_all_read(tmp_path: Path, packed: str) -> None:
    path = tmp_path / f"a.txt{packed}"
    path.write_bytes(COMPRESS[packed](b"one\n") + COMPRESS[packed](b"two\n"))
    assert read(path) == [("one",), ("two",)]


@pytest.mark.parametrize("packed", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("damage", ["cut", "spoiled", "plain"])
def test_broken_compressed_file(tmp_path: Path, packed: str, damage: str) -> None:
    path = tmp_path / f"a.txt{packed}"
    data = COMPRESS[packed](os.urandom(3000).hex().encode())
    middle = data[:1000] + bytes(100) + data[1100:]
    path.write_bytes({"cut": data[:-10], "spoiled": middle, "plain": b"just text\n"}[damage])
    with pytest.raises(PosgeomError, match=f"{packed} is not a whole .* file") as caught:
        read(path)
    assert "\n" not in str(caught.value)


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.jsonl", b'{"t": "a"}\n{"t": \n', "line 2: broken JSON"),
        ("a.jsonl", b'{"t": "a"}\n"b"\n', "row 2: a str where other rows are objects"),
        ("a.jsonl", b'{"u": "a"}\n', "no row of .* holds the field 't'"),
        ("a.json", b'{\n "t": "a"\n}\n', "line 1: broken JSON"),
        ("a.json", b'[{"t": "a"}, {"t"]', "broken JSON after row 1"),
        ("a.json", b'[{"t": "a"}', "broken JSON after row 1"),
        ("a.json", b'[{"t": "a"}] [1]', "broken JSON after row 1"),
        ("a.csv", b"u,t\n1,b,c\n", "line 2: 3 fields where the header has 2"),
        ("a.csv", b't\n"b\nc\nd', "line 4: unexpected end of data"),
        ("a.tsv", b"u\tt\n1\n", "line 2: 1 fields where the header has 2"),
        ("a.csv", b"u,v\n1,2\n", "has no column 't'; it has: u, v"),
        ("a.parquet", b"PAR1 but no more", "is no whole parquet file"),
        ("a.parquet", b"", "is no whole parquet file"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(PosgeomError, match=message) as caught:
        read(tmp_path / name, "t")
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def npy(path: Path, array: np.ndarray) -> Path:
    np.save(path, array)
    return path


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 2)), "holds float64 of shape"),
        (np.zeros((2, 2, 2), int), "one dimension"),
        (np.asfortranarray(np.zeros((2, 2), int)), "in Fortran order"),
        (np.array(["a"]), "expected token ids"),
        (np.array([1, 2]), "a stream of tokens, not rows"),
    ],
)
def test_npy_that_holds_no_rows_of_ids(tmp_path: Path, array: np.ndarray, message: str) -> None:
    with pytest.raises(PosgeomError, match=message):
        read(npy(tmp_path / "a.npy", array))


def test_cut_npy(tmp_path: Path) -> None:
    path = npy(tmp_path / "a.npy", np.ones((3, 50), np.int64))
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(PosgeomError, match="ends in row 3 of 3"):
        read(path)
    path.write_bytes(b"no array")
    with pytest.raises(PosgeomError, match=r"is no \.npy file"):
        read(path)


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("a")
    file = one_file(tmp_path / "a.txt")

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied", file.path)  # root may read everything

    monkeypatch.setattr(type(file.fs), "open", refuse)
    with pytest.raises(PosgeomError, match=r"cannot read .*a\.txt: Permission denied"):
        list(file_table(file).rows([None], Reading()))


# -- streams of tokens ----------------------------------------------------------------------------


@pytest.mark.parametrize("packed", COMPRESS)
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_token_stream(tmp_path: Path, packed: str, dtype: type) -> None:
    ids = np.arange(5000, dtype=dtype)
    array = io.BytesIO()
    np.save(array, ids)
    for name, data in [("a.bin", ids.tobytes()), ("a.npy", array.getvalue())]:
        path = tmp_path / (name + packed)
        path.write_bytes(COMPRESS[packed](data))
        stream = token_stream(one_file(path), np.dtype(dtype).name)
        assert isinstance(stream, np.memmap)
        assert stream.dtype == dtype
        np.testing.assert_array_equal(stream, ids)


def test_token_stream_is_none_for_rows(tmp_path: Path) -> None:
    assert token_stream(one_file(npy(tmp_path / "a.npy", np.ones((2, 2), int))), None) is None


@pytest.mark.parametrize(
    ("data", "dtype", "message"),
    [
        (b"abc", None, "3 bytes, which are no whole number of uint16"),
        (b"abcdef", "uint32", "6 bytes, which are no whole number of uint32"),
        (b"", None, "holds no token"),
        (np.arange(300, dtype="<u4").tobytes(), None, "looks like uint32.*--ids-dtype uint32"),
        (np.arange(100, 300, dtype="<u2").tobytes(), "uint32", "try uint16"),
    ],
)
def test_bin_of_another_kind(tmp_path: Path, data: bytes, dtype: str | None, message: str) -> None:
    (tmp_path / "a.bin").write_bytes(data)
    with pytest.raises(PosgeomError, match=message):
        token_stream(one_file(tmp_path / "a.bin"), dtype)


def test_small_vocabulary_is_not_taken_for_uint32(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(np.tile(np.arange(4, dtype="<u2"), 50).tobytes())
    assert token_stream(one_file(tmp_path / "a.bin"), None).shape == (200,)


def test_negative_ids_in_a_stream(tmp_path: Path) -> None:
    with pytest.raises(PosgeomError, match="negative"):
        token_stream(one_file(npy(tmp_path / "a.npy", np.array([1, -1]))), None)


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "suffixes", "family"),
    [
        ("/a/b.JSONL.GZ", (".jsonl", ".gz"), "json"),
        ("/a.b/c", ("", ""), "text"),
        ("https://x/y.csv.zst?download=true", (".csv", ".zst"), "csv"),
        ("/a/b.md", (".md", ""), "text"),
        ("/a/.gz", ("", ""), "text"),
    ],
)
def test_format_by_suffix(path: str, suffixes: tuple[str, str], family: str) -> None:
    file = File(None, path, "")
    assert (file.suffixes, file.format) == (suffixes, family)


def test_files_of_other_file_systems() -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    ids = np.arange(100, dtype="<u2")
    memory.pipe("/posgeom/a.txt.gz", gzip.compress(b"one\n"))
    memory.pipe("/posgeom/b.txt", b"two\n")
    memory.pipe("/posgeom-ids/a.bin", ids.tobytes())
    memory.pipe("/posgeom-ids/a.parquet", as_parquet(["x"]))
    for address in ("memory://posgeom", "memory://posgeom/*.txt*"):
        name, files = find_files(address)
        assert name == address
        assert [file.relative for file in files] == ["a.txt.gz", "b.txt"]
        rows = [row for file in files for row in file_table(file).rows([None], Reading())]
        assert rows == [("one",), ("two",)]
    (file,) = find_files("memory://posgeom-ids/a.bin")[1]
    np.testing.assert_array_equal(token_stream(file, None), ids)
    (file,) = find_files("memory://posgeom-ids/a.parquet")[1]
    assert list(file_table(file).rows(["t"], Reading())) == [("x",)]


class NoAnswer(Exception):
    """What the client of a cloud raises: no OSError."""


@pytest.mark.parametrize("when", ["listed", "opened", "read"])
def test_errors_of_a_file_systems_own_kind(when: str) -> None:
    from fsspec import AbstractFileSystem
    from fsspec.spec import AbstractBufferedFile

    def at(moment: str) -> None:
        if when == moment:
            raise NoAnswer("no answer from the host")

    class CutFile(AbstractBufferedFile):  # type: ignore[misc]
        def _fetch_range(self, start: int, end: int) -> bytes:
            at("read")
            return b"one"[start:end]

    class Cloud(AbstractFileSystem):  # type: ignore[misc]
        cachable = False

        def ls(self, path: str, detail: bool = True, **more: object) -> list[dict[str, object]]:
            at("listed")
            return [{"name": "a/b.txt", "size": 3, "type": "file"}]

        def _open(self, path: str, mode: str = "rb", **more: object) -> CutFile:
            at("opened")
            return CutFile(self, path, mode, size=3)

    import fsspec

    fsspec.register_implementation("cloud", Cloud, clobber=True)
    doing = "open cloud://a/\\*.txt" if when == "listed" else "read a/b.txt"

    def rows() -> list[object]:
        return [
            list(file_table(f).rows([None], Reading())) for f in find_files("cloud://a/*.txt")[1]
        ]

    with pytest.raises(PosgeomError, match=f"^cannot {doing}: no answer from the host$"):
        rows()


def test_errors_of_who_reads_a_file_are_their_own(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (file,) = find_files(str(tmp_path))[1]
    with pytest.raises(NoAnswer), open_bytes(file):
        raise NoAnswer


@pytest.mark.parametrize("address", ["nowhere://a/b.txt", "nowhere::a"])
def test_unknown_protocol(address: str) -> None:
    with pytest.raises(PosgeomError, match=f"cannot open {address}"):
        find_files(address)


def test_saved_data_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import datasets

    data = datasets.Dataset.from_dict({"t": ["a", None], "i": [[1, 2], []], "n": [1, 2]})
    data.select([1, 0]).save_to_disk(tmp_path / "one")
    datasets.DatasetDict(train=data, test=data.select([0])).save_to_disk(tmp_path / "two")
    capsys.readouterr()

    table = saved_table(str(tmp_path / "one"), None)
    assert table.columns(Reading()) == {"t": "text", "i": "ids", "n": "other"}
    assert list(table.rows(["t", "n"], Reading())) == [(None, 2), ("a", 1)]
    test = saved_table(str(tmp_path / "two"), "test")
    ((ids,),) = test.rows(["i"], Reading())
    np.testing.assert_array_equal(ids, [1, 2])
    with pytest.raises(PosgeomError, match="2 splits; choose by --split: train, test"):
        saved_table(str(tmp_path / "two"), None)
    with pytest.raises(PosgeomError, match="no split 'x'; choose"):
        saved_table(str(tmp_path / "two"), "x")
    with pytest.raises(PosgeomError, match="leave out --split"):
        saved_table(str(tmp_path / "one"), "train")
    (tmp_path / "one" / "state.json").write_text("{")
    with pytest.raises(PosgeomError, match="no whole saved data set"):
        saved_table(str(tmp_path / "one"), None)
    assert capsys.readouterr() == ("", "")


# -- streaming ------------------------------------------------------------------------------------


def peak_of(rows: Iterator[object]) -> int:
    """The most memory in bytes that Python held while going over the rows."""
    tracemalloc.start()
    try:
        for _ in rows:
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("suffix", [".txt", ".txt.zst", ".jsonl", ".json", ".csv", ".tsv"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"large{suffix}"
    name = suffix.removesuffix(".zst")
    block = WRITERS[name](["x" * 10_000] * 1000)
    if name == ".json":
        block = b"[" + b",".join([block[1:-1]] * 5) + b"]"
    elif name in (".csv", ".tsv"):
        block = block + block.split(b"\n", 1)[1] * 4
    else:
        block *= 5
    assert len(block) > 50_000_000
    path.write_bytes(COMPRESS[".zst"](block) if suffix.endswith(".zst") else block)
    del block
    rows = file_table(one_file(path)).rows([None if name == ".txt" else "t"], Reading())
    assert peak_of(rows) < 8_000_000


def test_rows_come_before_the_end_is_read() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"line\n" * 100

    blocks = endless()

    class Pipe:
        def read(self, size: int) -> bytes:
            return next(blocks)

    stream = lines(decoded(Pipe(), "F", Reading()))
    assert [next(stream) for _ in range(1000)] == ["line"] * 1000


def test_files_are_closed_when_reading_stops(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a\n" * 100_000))
    with open_bytes(one_file(tmp_path / "a.txt.gz")) as data:
        assert data.read(2) == b"a\n"
    rows = file_table(one_file(tmp_path / "a.txt.gz")).rows([None], Reading())
    assert next(rows) == ("a",)
    rows.close()  # an open file would be a ResourceWarning, and thus a failure
