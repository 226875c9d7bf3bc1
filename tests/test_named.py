"""The named corpora, and the hub."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from posgeom import named, resources
from posgeom.corpus import open_corpus
from posgeom.errors import PosgeomError
from posgeom.named import named_corpora, parse_options

needs_data = pytest.mark.skipif(
    "POSGEOM_DATA" not in os.environ, reason="POSGEOM_DATA names no folder of real data"
)


def test_registry_is_whole() -> None:
    corpora = named_corpora()
    assert list(corpora) == ["python-stdlib", "digits", "synthetic", "sst2", "imdb", "wikitext2"]
    for entry in corpora.values():
        assert {"kind", "description", "size", "licence"} <= entry.keys()
        if entry["kind"] == "dataset":
            assert {"file", "text_field"} <= entry["local"].keys()
            assert {"name", "split", "text_field"} <= entry["hub"].keys()
        else:
            assert entry["kind"] in ("stdlib", "digits", "synthetic")


def test_resource(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = Path(__file__).parent.parent / "data" / "corpora.toml"
    assert resources.resource("data", "corpora.toml").samefile(checkout)
    with pytest.raises(PosgeomError, match=r"no data/none\.toml in"):
        resources.resource("data", "none.toml")
    package = tmp_path / "posgeom"
    for home in (tmp_path, package):  # the package's own folder goes before its neighbour
        (home / "data").mkdir(parents=True)
        (home / "data" / "x.toml").write_text("")
        monkeypatch.setattr(resources, "__file__", str(package / "resources.py"))
        assert resources.resource("data", "x.toml") == home / "data" / "x.toml"


# -- made corpora ---------------------------------------------------------------------------------


def test_digits() -> None:
    from sklearn.datasets import load_digits

    corpus = open_corpus("digits")
    assert (corpus.name, corpus.source) == ("digits", "digits")
    assert (corpus.holds_ids, corpus.grid) == (True, (8, 8))
    documents = list(corpus)
    ids = np.array([document.content for document in documents])
    assert ids.dtype == np.int64
    assert ids.shape == (1797, 64)
    assert np.unique(ids).tolist() == list(range(17))
    np.testing.assert_array_equal(ids.reshape(-1, 8, 8), load_digits().images)
    assert {document.group for document in documents} == {None}


def test_python_stdlib() -> None:
    corpus = open_corpus("python-stdlib")
    first = corpus.head(20_000, 10**9)
    assert corpus.holds_ids is False
    assert first == corpus.head(20_000, 10**9)
    groups = list(dict.fromkeys(document.group for document in first))
    assert groups == sorted(groups)
    assert groups[0] == "__future__.py"
    lines = [document.content for document in first if document.group == groups[0]]
    import __future__

    assert lines == Path(__future__.__file__).read_text(encoding="utf-8").split("\n")[:-1]


def test_python_stdlib_leaves_out_tests_and_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ["b.py", "a/c.py", "test/d.py", "a/tests/e.py", "site-packages/f.py", "a/g.txt"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes("# -*- coding: latin-1 -*-\n  é\r\n\x0c".encode("latin-1"))
    monkeypatch.setattr(named.sysconfig, "get_path", lambda name: str(tmp_path))
    lines = ["# -*- coding: latin-1 -*-", "  é", "\x0c"]
    expected = [(line, group) for group in ("a/c.py", "b.py") for line in lines]
    assert list(open_corpus("python-stdlib")) == expected
    monkeypatch.setattr(named.sysconfig, "get_path", lambda name: str(tmp_path / "none"))
    with pytest.raises(PosgeomError, match="no source files"):
        list(open_corpus("python-stdlib"))


def test_synthetic(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def synthetic_corpus(**options: Any) -> list[np.ndarray]:
        asked.append(options)
        if "wrong" in options:
            raise PosgeomError("no such option")
        return [np.array([1, 2]), np.array([3])]

    made = SimpleNamespace(synthetic_corpus=synthetic_corpus)
    monkeypatch.setitem(sys.modules, "posgeom.synthetic", made)
    corpus = open_corpus("synthetic:shape=blocks,positions=32,zipf=1.5")
    assert (corpus.name, corpus.holds_ids, corpus.grid) == (corpus.source, True, None)
    for _ in range(2):
        assert [ids.tolist() for ids, _ in corpus] == [[1, 2], [3]]
    assert asked[0] == {"shape": "blocks", "positions": 32, "zipf": 1.5}
    assert isinstance(asked[0]["positions"], int)
    with pytest.raises(PosgeomError, match="no such option"):
        open_corpus("synthetic:wrong=1")


def test_parse_options() -> None:
    assert parse_options("") == {}
    assert parse_options("a=1, b=0.5,c=-2,d=1e3,e=x=y") == {
        "a": 1, "b": 0.5, "c": -2, "d": 1000.0, "e": "x=y",
    }  # fmt: skip
    for text in ("a", "a=", "=1"):
        with pytest.raises(PosgeomError, match="is no option; expected key=value"):
            parse_options(text)


def test_names_without_options() -> None:
    with pytest.raises(PosgeomError, match="only synthetic takes options"):
        open_corpus("digits:a=1")
    with pytest.raises(PosgeomError, match="takes no options"):
        open_corpus("sst2:a=1")


# -- data sets ------------------------------------------------------------------------------------


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A hub that is out of reach at once; gives what it was asked for."""
    asked: list[tuple[Any, ...]] = []

    def unreachable(name: str, config: Any, split: Any, copies: str = "") -> None:
        asked.append((name, config, split))
        raise PosgeomError(f"out of reach{copies}")

    monkeypatch.setattr(named, "hub_table", unreachable)
    return asked


def test_local_file_goes_before_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: list[tuple[Any, ...]]
) -> None:
    (tmp_path / "imdb").mkdir()
    table = pa.table({"id": ["0"], "movie": ["tt1"], "text": ["good"]})
    pq.write_table(table, tmp_path / "imdb" / "imdb_train.parquet")
    monkeypatch.setenv("POSGEOM_DATA", str(tmp_path))
    corpus = open_corpus("imdb")
    assert (corpus.name, corpus.source) == ("imdb", "imdb")
    assert list(corpus) == [("good", "tt1")]
    assert list(open_corpus("imdb", group_field="id")) == [("good", "0")]
    assert hub == []
    for options in ({}, {"split": "test"}):
        name = "imdb" if options else "wikitext2"  # of which there is no file
        with pytest.raises(PosgeomError, match="out of reach, or set POSGEOM_DATA to a folder"):
            open_corpus(name, **options)
    assert hub == [
        ("Salesforce/wikitext", "wikitext-2-raw-v1", "train"),
        ("stanfordnlp/imdb", None, "test"),
    ]


def test_without_local_data_the_hub_is_asked(
    monkeypatch: pytest.MonkeyPatch, hub: list[tuple[Any, ...]]
) -> None:
    monkeypatch.delenv("POSGEOM_DATA", raising=False)
    with pytest.raises(PosgeomError, match=r"sst2/sst2_sentences_train\.parquet"):
        open_corpus("sst2")
    with pytest.raises(PosgeomError, match="out of reach"):
        open_corpus("hf:some/name", config="c", split="s")
    assert hub == [("stanfordnlp/sst2", None, "train"), ("some/name", "c", "s")]


def test_hub_out_of_reach_is_told_in_seconds() -> None:
    # An address that answers to nobody, in a process of its own: the client reads it at import.
    code = (
        "from posgeom.corpus import open_corpus\n"
        "try: open_corpus('hf:some/name')\n"
        "except ValueError as error: print(error)"
    )
    start = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert time.monotonic() - start < 15
    assert result.stderr == ""
    (message,) = result.stdout.splitlines()
    assert message.startswith("cannot read the data set some/name from the Hugging Face hub (")
    assert "save_to_disk" in message


def test_rows_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    rows = datasets.Dataset.from_dict({"t": ["a", None, "b"], "n": [1, 2, 3]})
    asked: list[Any] = []

    def load_dataset(*names: Any, **options: Any) -> Any:
        asked.append((names, options))
        if options["split"] == "x":
            raise ValueError("Bad split: x.\nAvailable splits: ['train']")
        return rows.to_iterable_dataset()

    monkeypatch.setattr(named, "reach_hub", lambda: None)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    bars = datasets.are_progress_bars_disabled()
    corpus = open_corpus("hf:some/name", config="c", group_field="n")
    assert asked == [(("some/name", "c"), {"split": "train", "streaming": True})]
    assert (corpus.name, corpus.source, corpus.holds_ids) == ("hf:some/name", "hf:some/name", False)
    assert list(corpus) == list(corpus) == [("a", "1"), (None, "2"), ("b", "3")]
    with pytest.raises(PosgeomError, match=r"\(Bad split: x\.\); check name, --config and --split"):
        open_corpus("hf:some/name", split="x")
    assert datasets.are_progress_bars_disabled() == bars  # the setting is the user's


# -- real data ------------------------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize(
    ("name", "documents", "groups"),
    [("sst2", 6920, None), ("imdb", 25_000, 3456), ("wikitext2", 5352, None)],
)
def test_real_data(name: str, documents: int, groups: int | None) -> None:
    corpus = list(open_corpus(name))
    assert len(corpus) == documents
    assert all(document.content for document in corpus)
    found = {document.group for document in corpus}
    assert found == {None} if groups is None else len(found) == groups


@needs_data
def test_real_text_file() -> None:
    path = Path(os.environ["POSGEOM_DATA"]) / "corpora" / "tinyshakespeare.txt"
    assert [d.content for d in open_corpus(path)] == path.read_text().split("\n")[:-1]
