"""From sources to documents."""

import gzip
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from posgeom.corpus import Corpus, Document, open_corpus
from posgeom.errors import PosgeomError
from posgeom.files import open_seekable


def contents(corpus: Corpus) -> list[Any]:
    return [document.content for document in corpus]


def write(folder: Path, **files: str) -> Path:
    """Files named `a_txt` for a.txt, `sub__a_txt` for sub/a.txt, `_a_txt` for .a.txt."""
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
    return folder


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def refused(source: Any, **options: Any) -> str:
    """The message that opening and reading a source ends with."""
    with pytest.raises(PosgeomError) as caught:
        list(open_corpus(source, **options))
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


# -- files ----------------------------------------------------------------------------------------


def test_text_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, a_txt="\ufeffone\r\n\r\n  two")
    monkeypatch.chdir(tmp_path)
    corpus = open_corpus("a.txt")
    assert list(corpus) == [Document("one", None), Document("", None), Document("  two", None)]
    assert list(corpus) == list(open_corpus(Path("a.txt")))
    assert (corpus.name, corpus.source) == ("a.txt", str(tmp_path / "a.txt"))
    assert (corpus.holds_ids, corpus.streams, corpus.grid, corpus.replaced) == (False, [], None, 0)
    assert repr(corpus) == "Corpus('a.txt')"


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ("line", ["a", "b", "", " ", "c"]),
        ("paragraph", ["a\nb", "c"]),
        ("file", ["a\nb\n\n \nc"]),
    ],
)
def test_documents_of_a_text_file(tmp_path: Path, documents: str, expected: list[str]) -> None:
    write(tmp_path, a_txt="a\nb\n\n \nc\n")
    assert contents(open_corpus(tmp_path / "a.txt", documents=documents)) == expected


def test_folder_and_glob(tmp_path: Path) -> None:
    write(tmp_path, b_txt="2", a__c_md="1", _hidden_txt="no", a___d_txt="no", z__empty_csv="")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"3"))
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("no")
    folder = open_corpus(str(tmp_path), group_field="file")
    assert list(folder) == [("1", "a/c.md"), ("2", "b.txt"), ("3", "c.txt.gz")]
    assert folder.source == str(tmp_path)
    glob = open_corpus(str(tmp_path / "*.txt*"), group_field="file")
    assert list(glob) == [("2", "b.txt"), ("3", "c.txt.gz")]
    deep = open_corpus(str(tmp_path / "**" / "*.md"), group_field="file")
    assert list(deep) == [("1", "a/c.md")]


def test_names_with_the_marks_of_a_glob(tmp_path: Path) -> None:
    (tmp_path / "a[1]*?.txt").write_text("x")
    assert contents(open_corpus(str(tmp_path / "a[1]*?.txt"))) == ["x"]


def test_several_suffixes_of_one_family(tmp_path: Path) -> None:
    write(tmp_path, a_jsonl='{"t": "1"}\n', b_json='[{"t": "2"}]', c_ndjson='{"t": "3"}')
    assert contents(open_corpus(tmp_path)) == ["1", "2", "3"]
    write(tmp_path, d_txt="4")
    assert "several kinds: json (" in refused(tmp_path)


def test_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, a_txt="x")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert contents(open_corpus("~/a.txt")) == ["x"]


def test_a_path_is_never_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").write_text("x")
    assert contents(open_corpus(Path("digits"))) == contents(open_corpus("./digits")) == ["x"]
    assert open_corpus("digits").grid == (8, 8)


def test_replaced_bytes_are_counted_in_each_pass(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\xffb\n\xc3\n" + "\ufffd".encode())
    assert "line 1, byte offset 1: 0xff" in refused(tmp_path / "a.txt")
    corpus = open_corpus(tmp_path / "a.txt", encoding_errors="replace")
    corpus.head(9, 99)
    assert corpus.replaced == 0
    for _ in range(2):
        assert contents(corpus) == ["a\ufffdb", "\ufffd", "\ufffd"]
        assert corpus.replaced == 2


def test_lone_surrogates_of_json(tmp_path: Path) -> None:
    write(tmp_path, a_jsonl='"fine \\ud83d\\ude00"\n"half \\ud83d"\n')
    assert "row 2 of" in refused(tmp_path / "a.jsonl")
    corpus = open_corpus(tmp_path / "a.jsonl", encoding_errors="replace")
    assert contents(corpus) == ["fine 😀", "half \ufffd"]
    assert corpus.replaced == 1


# -- columns --------------------------------------------------------------------------------------


def test_the_text_column_is_found(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", n=[1, 2], t=["a", None], g=["x", None])
    corpus = open_corpus(path, group_field="g")
    assert list(corpus) == [("a", "x"), (None, None)]
    assert list(open_corpus(path, group_field="n", text_field="t")) == [("a", "1"), (None, "2")]
    message = refused(path)
    assert "2 columns of text (t, g)" in message
    assert "--text-field (all columns: n, t, g)" in message
    assert "no column 'x'; it has: n, t, g" in refused(path, text_field="x")
    assert "no column 'x'; it has: n, t, g" in refused(path, group_field="x")


def test_ids_are_found_where_no_text_stands(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", n=[1, 2], i=[[3, 70_000], None], g=["x", "y"])
    corpus = open_corpus(path, group_field="g")
    assert corpus.holds_ids
    (ids, group), (null, _) = corpus
    assert ids.dtype == np.int64
    np.testing.assert_array_equal(ids, [3, 70_000])
    assert (group, null) == ("x", None)
    assert not open_corpus(path).holds_ids  # g is text
    assert open_corpus(path, text_field="i").holds_ids


def test_no_column_can_be_it(tmp_path: Path) -> None:
    message = refused(parquet(tmp_path / "a.parquet", n=[1], x=[[0.5]]))
    assert message.endswith("has no column of text or ids; it has: n, x")
    write(tmp_path, a_csv="t\n", b_csv="t,u\n1,2\n")
    assert "it has: t" in refused(tmp_path / "a.csv")
    assert "it has: t, u" in refused(tmp_path / "b.csv")
    assert contents(open_corpus(tmp_path / "b.csv", text_field="u")) == ["2"]


def test_jsonl_ids(tmp_path: Path) -> None:
    rows = [{"i": [1, 2]}, {"i": []}, {"i": None}, {"i": [3]}]
    write(tmp_path, a_jsonl="\n".join(map(json.dumps, rows)))
    corpus = open_corpus(tmp_path / "a.jsonl")
    assert corpus.holds_ids
    assert [None if c is None else c.tolist() for c in contents(corpus)] == [[1, 2], [], None, [3]]


@pytest.mark.parametrize(
    ("value", "came"),
    [
        ("[1, -2]", "[1, -2]"),
        ("[1, 2.5]", "[1, 2.5]"),
        ("[1, [2]]", "[1, [2]]"),
        ("[1, null]", "[1, None]"),
        ("[1, 9999999999999999999]", "[1, 9999999999999999999]"),
        ('"text"', "'text'"),
        ("5", "5"),
    ],
)
def test_rows_that_are_no_ids(tmp_path: Path, value: str, came: str) -> None:
    # After the sample that tells what the column holds.
    write(tmp_path, a_jsonl="[1]\n" * 100 + value)
    message = refused(tmp_path / "a.jsonl")
    assert message.startswith(f"row 101 of {tmp_path}/a.jsonl is {came}; expected a sequence")


def test_rows_that_are_no_text(tmp_path: Path) -> None:
    write(tmp_path, a_jsonl='{"t": "a"}\n{"t": ["b"]}')
    message = refused(tmp_path / "a.jsonl", text_field="t")
    assert message == f"row 2 of {tmp_path}/a.jsonl is ['b']; expected text"
    path = parquet(tmp_path / "a.parquet", n=[1])
    assert refused(path, text_field="n").endswith("is 1; expected text")


# -- options that do not fit ----------------------------------------------------------------------


def test_options_that_do_not_fit(tmp_path: Path) -> None:
    write(tmp_path, a_txt="x", a_csv="t\nx\n", a_jsonl='"x"\n')
    np.save(tmp_path / "a.npy", [[1]])
    for name, option, value in [
        ("a.txt", "text_field", "t"),
        ("a.txt", "split", "train"),
        ("a.txt", "ids_dtype", "uint32"),
        ("a.csv", "documents", "file"),
        ("a.csv", "config", "c"),
        ("a.npy", "text_field", "t"),
    ]:
        message = refused(tmp_path / name, **{option: value})
        assert f"--{option.replace('_', '-')} does not apply to " in message
    assert "only --group-field file applies" in refused(tmp_path / "a.txt", group_field="t")
    assert "rows without fields; leave out --text-field" in refused(
        tmp_path / "a.jsonl", text_field="t"
    )
    assert "--text-field does not apply to an iterable" in refused(["a"], text_field="t")
    assert "--split does not apply to digits" in refused("digits", split="train")


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("documents", "line or file or paragraph"),
        ("encoding_errors", "strict or replace"),
        ("ids_dtype", "uint16 or uint32"),
    ],
)
def test_options_without_such_a_value(option: str, expected: str) -> None:
    flag = "--" + option.replace("_", "-")
    assert refused(["a"], **{option: "x"}) == f"{flag} is 'x'; expected {expected}"


# -- what is not there ----------------------------------------------------------------------------


def test_missing_and_empty(tmp_path: Path) -> None:
    write(tmp_path, empty_txt="", mark_txt="\ufeff", empty_jsonl="", none_json="[]", empty_csv="")
    assert "there is no file" in refused(tmp_path / "none.txt")
    assert "there is no file" in refused(str(tmp_path / "*.parquet"))
    for name in ("empty.txt", "mark.txt", "empty.jsonl", "none.json", "empty.csv"):
        assert "is empty" in refused(tmp_path / name)
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress(b""))
    assert "is empty" in refused(tmp_path / "packed.txt.gz")
    (tmp_path / "folder").mkdir()
    assert "there is no file" in refused(tmp_path / "folder")


@pytest.mark.parametrize(("typed", "meant"), [("sst", "sst2"), ("python_stdlib", "python-stdlib")])
def test_misspelled_name(typed: str, meant: str) -> None:
    assert refused(typed).endswith(f"did you mean {meant}?")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipe_as_a_path(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "pipe it in, with SOURCE -" in refused(tmp_path / "pipe")


# -- streams of tokens ----------------------------------------------------------------------------


def test_streams_of_tokens(tmp_path: Path) -> None:
    ids = np.arange(1000, dtype=np.uint32)
    ids.tofile(tmp_path / "a.bin")
    corpus = open_corpus(tmp_path / "a.bin", ids_dtype="uint32")
    assert corpus.holds_ids
    np.testing.assert_array_equal(corpus.streams[0](), ids)
    for use in (iter, lambda corpus: corpus.head(1, 1)):
        with pytest.raises(TypeError, match=r"use its \.streams"):
            use(corpus)
    assert "--ids-dtype uint32" in refused(tmp_path / "a.bin")
    ids.tofile(tmp_path / "b.bin")
    first, second = open_corpus(tmp_path, ids_dtype="uint32").streams
    np.testing.assert_array_equal(first(), second())


def test_a_packed_stream_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, as_ever = [], open_seekable
    monkeypatch.setattr(
        "posgeom.arrays.open_seekable",
        lambda file, **how: opened.append(file) or as_ever(file, **how),
    )
    ids = np.arange(1000, dtype=np.uint16)
    (tmp_path / "a.bin.gz").write_bytes(gzip.compress(ids.tobytes()))
    corpus = open_corpus(tmp_path / "a.bin.gz")
    for _ in range(2):
        np.testing.assert_array_equal(corpus.streams[0](), ids)
    assert len(opened) == 1


def test_streams_and_rows_of_ids_do_not_mix(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6))
    np.save(tmp_path / "b.npy", np.arange(6).reshape(2, 3))
    with pytest.raises(PosgeomError, match=r"b\.npy holds rows of ids, others packed ids"):
        [opened() for opened in open_corpus(tmp_path).streams]


def test_rows_of_ids(tmp_path: Path) -> None:
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.arange(6, dtype=np.uint16).reshape(2, 3))
    corpus = open_corpus(tmp_path)
    assert corpus.holds_ids
    assert not corpus.streams
    assert [ids.tolist() for ids in contents(corpus)] == [[0, 1, 2], [3, 4, 5]] * 2
    assert {ids.dtype for ids in contents(corpus)} == {np.dtype(np.int64)}


# -- saved data sets ------------------------------------------------------------------------------


def test_saved_data_set(tmp_path: Path) -> None:
    import datasets

    data = datasets.Dataset.from_dict({"t": ["a", "b"], "n": [1, 2]})
    datasets.DatasetDict(train=data, test=data.select([0])).save_to_disk(tmp_path / "saved")
    corpus = open_corpus(tmp_path / "saved", split="train", group_field="n")
    assert list(corpus) == list(corpus) == [("a", "1"), ("b", "2")]
    assert corpus.source == str(tmp_path / "saved")
    assert "choose by --split: train, test" in refused(tmp_path / "saved")


# -- standard input -------------------------------------------------------------------------------


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, b"a\r\nb\xff\nc")
    corpus = open_corpus("-", encoding_errors="replace")
    assert (corpus.name, corpus.source, corpus.holds_ids) == ("-", "-", False)
    assert [d.content for d in corpus.head(2, 99)] == ["a", "b\ufffd"]
    assert [d.content for d in corpus.head(1, 99)] == ["a"]
    assert contents(corpus) == ["a", "b\ufffd", "c"]
    assert corpus.replaced == 1
    for again in (iter, lambda corpus: corpus.head(1, 1)):
        with pytest.raises(PosgeomError, match="can be read only once"):
            again(corpus)


def test_empty_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, b"")
    assert "standard input is empty" in refused("-")
    feed(monkeypatch, b"a\0b")
    assert "standard input is binary" in refused("-")
    assert "--text-field does not apply to standard input" in refused("-", text_field="t")


# -- iterables ------------------------------------------------------------------------------------


def test_list_of_texts() -> None:
    corpus = open_corpus(["a", None, "", "b"])
    assert contents(corpus) == contents(corpus) == ["a", None, "", "b"]
    assert (corpus.name, corpus.source, corpus.holds_ids) == ("<iterable>", None, False)
    assert open_corpus(corpus) is corpus
    assert "--documents does not apply to a corpus that is open" in refused(
        corpus, documents="file"
    )


def test_generator_of_texts() -> None:
    given = 0

    def texts() -> Iterator[str | None]:
        nonlocal given
        for text in (None, "", "a", "b", "c"):
            given += 1
            yield text

    corpus = open_corpus(texts())
    assert corpus.holds_ids is False
    assert given == 3  # as far as the first text
    assert contents(corpus) == [None, "", "a", "b", "c"]
    assert "can be read only once" in refused(corpus)


@pytest.mark.parametrize("make", [list, iter, np.array])
def test_iterables_of_ids(make: Any) -> None:
    corpus = open_corpus(make([[1, 2], [3, 4]]))
    assert corpus.holds_ids
    assert [ids.tolist() for ids in contents(corpus)] == [[1, 2], [3, 4]]


def test_documents_with_groups() -> None:
    documents = [Document("a", "x"), Document("b")]
    assert list(open_corpus(documents)) == documents


def test_empty_iterables() -> None:
    for nothing in ([], iter([]), [None]):
        assert open_corpus(nothing).holds_ids is None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (["a", 5], "document 2 is 5; expected text"),
        (["a", [1]], "document 2 is [1]; expected text"),
        ([[1], "a"], "document 2 is 'a'; expected a sequence of token ids"),
        ([[1], [0.5]], "document 2 is [0.5]; expected a sequence of token ids"),
        ([{"text": "a"}], "document 1 is {'text': 'a'}; expected a sequence"),
        (["a", "\ud83d"], "document 2 holds a lone surrogate"),
        ({"a": "b"}, "a dict is no corpus"),
        (b"a", "a bytes is no corpus"),
        (5, "a int is no corpus"),
        ([["x" * 99]], "..."),
    ],
)
def test_iterables_that_are_no_corpus(source: Any, message: str) -> None:
    assert message in refused(source)


# -- the head -------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [list, iter])
@pytest.mark.parametrize(
    ("documents", "characters", "expected"),
    [(2, 99, 2), (9, 5, 2), (9, 4, 1), (9, 6, 2), (9, 99, 4), (0, 9, 0), (9, 0, 0)],
)
def test_head(make: Any, documents: int, characters: int, expected: int) -> None:
    texts = ["four", "ab", None, "c"]
    corpus = open_corpus(make(texts))
    for _ in range(2):
        assert [d.content for d in corpus.head(documents, characters)] == texts[:expected]
    assert contents(corpus) == texts
