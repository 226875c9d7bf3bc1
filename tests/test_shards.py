"""Shards: they cover a corpus, join to the counts of one pass, and outlive an interruption."""

import gzip
import json
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import drifting_text
from hypothesis import given, settings
from hypothesis import strategies as st
from test_counts import equal

import posgeom
from posgeom import Document, PosgeomError, PositionCounts, count_positions, open_corpus
from posgeom import pieces as pieces_module
from posgeom import resume as resume_module
from posgeom.pieces import shards
from posgeom.resources import resource
from posgeom.resume import Kept, count_in_shards
from posgeom.shards import Job, left_out


@pytest.fixture
def kept(tmp_path):
    return Kept(tmp_path / "kept", resumes=True)


@pytest.fixture
def parquet(tmp_path):
    """A folder of 5 parquet files of 40 lines in row groups of 15, each line with a group."""
    folder = tmp_path / "parquet"
    folder.mkdir()
    lines = drifting_text(200).splitlines()
    for k in range(5):
        rows = lines[k * 40 : (k + 1) * 40]
        table = pa.table({"text": rows, "film": [f"f{len(row) % 9}" for row in rows]})
        pq.write_table(table, folder / f"{k}.parquet", row_group_size=15)
    return folder


@pytest.fixture
def texts(tmp_path):
    """A folder of 6 text files of some 2,500 characters."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for k in range(6):
        (folder / f"{k}.txt").write_text(drifting_text(40, seed=k), encoding="utf-8")
    return folder


@pytest.fixture
def work_done(monkeypatch):
    """The names of the shards that are counted from here on."""
    counted, count = [], Job.count

    def told(self, shard):
        counted.extend(piece.name for piece in shard)
        return count(self, shard)

    monkeypatch.setattr(Job, "count", told)
    return counted


def stops(monkeypatch, after):
    """Counting is interrupted as soon as so many parts are kept."""
    saved, save = [], Kept.save

    def saves(self, key, counts):
        save(self, key, counts)
        saved.append(key)
        if len(saved) == after:
            raise KeyboardInterrupt

    monkeypatch.setattr(Kept, "save", saves)


def interrupted(monkeypatch, after, *arguments, **options):
    """A count that is interrupted."""
    with monkeypatch.context() as patch:
        stops(patch, after)
        with pytest.raises(KeyboardInterrupt):
            count_in_shards(*arguments, **options)


# -- counts of parts ------------------------------------------------------------------------------

documents = st.lists(st.text("ab ", min_size=1, max_size=9), max_size=12)


@given(
    documents,
    st.lists(st.integers(0, 12), max_size=3),
    st.sampled_from(["start", "end", "packed"]),
    st.sampled_from(["words", "bytes"]),
)
@settings(deadline=None)
def test_parts_joined_in_their_order_are_the_whole(documents, cuts, align, tokenizer):
    documents = [*documents, "a b c", "b a"]
    options = {"tokenizer": tokenizer, "positions": 3, "align": align, "folds": 4}
    edges = [0, *sorted(cuts), len(documents)]
    parts = [count_positions(documents[i:j], part=True, **options) for i, j in pairwise(edges)]
    total = parts[0]
    for part in parts[1:]:
        total = total.followed_by(part)
    assert equal(total, count_positions(documents, part=True, **options))


def test_the_counts_of_a_part_are_not_judged():
    assert count_positions(["a"], positions=3, part=True).n_positions == 3
    assert count_positions([], part=True).n_positions == 512
    with pytest.raises(PosgeomError, match="one document"):
        count_positions(["a b"])


def test_a_document_alone_or_without_group_has_a_fold_rule():
    def rule(*documents):
        return count_positions(documents, part=True).provenance.folds_by

    assert rule("a b", "b") == "document"
    assert rule(Document("a b", "g"), Document("b", None)) == "group"
    assert rule("", None) == ""


# -- how a corpus is cut --------------------------------------------------------------------------


def rows_of(shard, reading):
    return [d for piece in shard for d in piece.documents(reading)]


def test_parquet_is_cut_into_row_groups_that_cover_it(parquet):
    corpus = open_corpus(parquet, text_field="text", group_field="film")
    cut = shards(corpus.pieces)
    assert len(cut) == 15
    assert cut[1][0].name.endswith("0.parquet, row group 1")
    assert [len(rows_of(shard, corpus.reading)) for shard in cut] == [15, 15, 10] * 5
    assert [d for shard in cut for d in rows_of(shard, corpus.reading)] == list(corpus)


def test_row_groups_are_read_together_up_to_the_size_of_a_shard(parquet, monkeypatch):
    corpus = open_corpus(parquet, text_field="text")
    size = corpus.pieces[0].size
    monkeypatch.setattr(pieces_module, "SHARDS", 1)
    for grain, groups in [(0.3, [1, 1, 1]), (0.7, [2, 1]), (10, [3])]:
        monkeypatch.setattr(pieces_module, "SHARD_BYTES", int(size * grain))
        cut = pieces_module._cut(corpus.pieces[0], int(size * grain))
        lengths = [len(p.table.rows.keywords["groups"]) if p.groups else 3 for p in cut]
        assert lengths == groups
        assert [d for p in cut for d in p.documents(corpus.reading)] == list(corpus)[:40]


def test_many_small_files_are_read_together(tmp_path, monkeypatch):
    for k in range(300):
        (tmp_path / f"{k:03}.txt").write_text("a b\n" * (1 + k % 3), encoding="utf-8")
    corpus = open_corpus(tmp_path)
    cut = shards(corpus.pieces)
    assert 100 < len(cut) <= 256
    assert [piece for shard in cut for piece in shard] == list(corpus.pieces)
    monkeypatch.setattr(pieces_module, "SHARDS", 10)
    assert 5 < len(shards(corpus.pieces)) <= 11


def test_a_row_that_is_wrong_has_the_same_number_in_a_row_group(tmp_path):
    texts = [[1, 2], [2, 3], [3, 1], [-1, 2], [2, 2]]
    pq.write_table(pa.table({"ids": texts}), tmp_path / "a.parquet", row_group_size=2)
    told = []
    for read in (
        count_positions,
        lambda source: count_in_shards(source, Kept(tmp_path, resumes=False)),
    ):
        with pytest.raises(PosgeomError) as error:
            read(str(tmp_path / "a.parquet"))
        told.append(str(error.value))
    assert "row 4" in told[0]
    assert told[0] in told[1]


# -- the same counts as those of one pass ---------------------------------------------------------

SETTINGS = {
    "words": {},
    "chars": {"tokenizer": "chars", "positions": 20},
    "bytes, from the end": {"tokenizer": "bytes", "align": "end"},
    "packed words": {"align": "packed", "positions": 16},
    "packed bytes": {"align": "packed", "tokenizer": "bytes"},
    "trained": {"tokenizer": "train:bpe:300"},
    "trained, packed": {"tokenizer": "train:bpe:300", "align": "packed", "positions": 7},
    "in 4 folds": {"folds": 4},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_row_groups_give_the_counts_of_one_pass(parquet, kept, name):
    options = SETTINGS[name] | {"text_field": "text"}
    assert equal(
        count_in_shards(str(parquet), kept, **options), count_positions(str(parquet), **options)
    )
    assert kept


@pytest.mark.parametrize("name", ["words", "packed words", "trained, packed"])
def test_files_give_the_counts_of_one_pass(texts, kept, name):
    (texts / "3.txt").write_text("\n \n", encoding="utf-8")  # a shard without tokens
    options = SETTINGS[name]
    assert equal(
        count_in_shards(str(texts), kept, **options), count_positions(str(texts), **options)
    )


@pytest.mark.parametrize("name", ["words", "packed words", "trained, packed"])
def test_runs_of_documents_give_the_counts_of_one_pass(texts, kept, name, monkeypatch):
    monkeypatch.setattr(resume_module, "RUN", 300)
    file, options = str(texts / "0.txt"), SETTINGS[name]
    assert equal(count_in_shards(file, kept, **options), count_positions(file, **options))
    assert len(list(kept.folder.glob("*.npz"))) > 3


def test_groups_and_columns_are_heeded(parquet, kept):
    options = {"text_field": "text", "group_field": "film", "positions": 5}
    sharded = count_in_shards(str(parquet), kept, **options)
    assert equal(sharded, count_positions(str(parquet), **options))
    assert sharded.provenance.folds_by == "group"
    assert (sharded.documents > 0).sum() <= 9


@pytest.mark.parametrize("how", ["files", "one file"])
def test_replaced_bytes_and_empty_documents_are_told_as_in_one_pass(
    tmp_path, kept, how, monkeypatch
):
    monkeypatch.setattr(resume_module, "RUN", 40)
    lines = [b"a \xff b", b"", b"c d e", b"\xfe\xfd x y", b"  ", b"last one"] * 6
    if how == "files":
        for k in range(6):
            (tmp_path / f"{k}.txt").write_bytes(b"\n".join(lines[6 * k : 6 * k + 6]))
    else:
        (tmp_path / "all.txt").write_bytes(b"\n".join(lines))
    source, options = str(tmp_path / "*.txt"), {"encoding_errors": "replace", "positions": 3}
    sharded = count_in_shards(source, kept, **options)
    assert equal(sharded, count_positions(source, **options))
    assert sharded.provenance.replaced == 18
    assert sharded.provenance.notes[0].startswith("12 of 36 documents hold nothing")


@pytest.mark.parametrize("source", ["digits", "synthetic:shape=decay,positions=8,documents=500"])
def test_a_named_corpus_is_counted_as_ever(source, kept, monkeypatch):
    monkeypatch.setattr(resume_module, "RUN", 1_000)
    assert equal(count_in_shards(source, kept), count_positions(source))
    assert kept


def test_ids_of_a_list_column_keep_the_widest_vocabulary(tmp_path, kept):
    rows = [[k % 7, (3 * k) % 11, k] for k in range(60)]
    pq.write_table(pa.table({"ids": rows}), tmp_path / "a.parquet", row_group_size=9)
    sharded = count_in_shards(str(tmp_path / "a.parquet"), kept, positions=3)
    assert sharded.vocab_size == 60
    assert equal(sharded, count_positions(str(tmp_path / "a.parquet"), positions=3))


def test_an_address_of_fsspec_is_cut_too(parquet, kept):
    source = f"file://{parquet}/*.parquet"
    assert equal(
        count_in_shards(source, kept, text_field="text"), count_positions(source, text_field="text")
    )
    assert len(list(kept.folder.glob("*.npz"))) == 15


# -- interruption ---------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["texts", "parquet"])
def test_after_an_interrupt_only_the_rest_is_counted(
    request, source, run_cli, tmp_path, monkeypatch, work_done
):
    folder = request.getfixturevalue(source)
    out = tmp_path / "c.npz"
    arguments = ["count", folder, "--positions", 6, "--out", out]
    arguments += ["--text-field", "text"] if source == "parquet" else []
    assert run_cli(*arguments).code == 0
    whole, everything = out.read_bytes(), list(work_done)
    out.unlink()
    work_done.clear()
    with monkeypatch.context() as patch:
        stops(patch, after=3)
        ran = run_cli(*arguments)
    assert ran.code == 130
    assert "c.npz.shards holds what is finished: --resume" in ran.err
    assert not out.exists()
    assert work_done == everything[:3]
    work_done.clear()
    ran = run_cli(*arguments)
    assert ran.code == 2
    assert "--resume, or --force" in ran.err
    assert work_done == []
    assert run_cli(*arguments, "--resume").code == 0
    assert work_done == everything[3:]
    assert out.read_bytes() == whole
    assert not (tmp_path / "c.npz.shards").exists()


def test_a_single_file_goes_on_in_its_middle(texts, run_cli, tmp_path, monkeypatch):
    monkeypatch.setattr(resume_module, "RUN", 500)
    out, source = tmp_path / "c.npz", texts / "all.txt"
    source.write_text(drifting_text(300), encoding="utf-8")
    arguments = ("count", source, "--align", "packed", "--positions", 16, "--out", out)
    assert run_cli(*arguments).code == 0
    whole = out.read_bytes()
    out.unlink()
    with monkeypatch.context() as patch:
        stops(patch, after=4)
        assert run_cli(*arguments).code == 130
    encoded, encode = [], posgeom.tokenizer.GrowingTokenizer.encode
    with monkeypatch.context() as patch:
        patch.setattr(
            posgeom.tokenizer.GrowingTokenizer,
            "encode",
            lambda self, texts: encoded.extend(texts) or encode(self, texts),
        )
        assert run_cli(*arguments, "--resume").code == 0
    assert out.read_bytes() == whole
    assert encoded == source.read_text().splitlines()[-len(encoded) :]
    assert 100 < len(encoded) < 290


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_leaves_its_finished_shards(texts, tmp_path, run_cli, sign):
    program = f"""
        import os
        from posgeom.cli import main
        from posgeom.resume import Kept

        save, saved = Kept.save, []

        def saves(self, key, counts):
            save(self, key, counts)
            saved.append(key)
            if len(saved) == 4:
                os.kill(os.getpid(), {int(sign)})

        Kept.save = saves
        main()
    """
    out = tmp_path / "c.npz"
    arguments = ["count", str(texts), "--tokenizer", "train:bpe:300", "--out", str(out)]
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert killed.returncode == (-9 if sign == signal.SIGKILL else 143), killed.stderr
    assert len(list((tmp_path / "c.npz.shards").glob("*.npz"))) == 4
    assert not out.exists()
    assert run_cli(*arguments, "--resume").code == 0
    assert equal(PositionCounts.load(out), count_positions(str(texts), tokenizer="train:bpe:300"))


@pytest.mark.parametrize(
    "changed",
    [
        {"tokenizer": "chars"},
        {"positions": 5},
        {"align": "end"},
        {"folds": 8},
        {"group_field": "file"},
        {"documents": "paragraph"},
    ],
)
def test_kept_shards_of_other_settings_are_not_used(texts, kept, changed, monkeypatch, work_done):
    options = {"positions": 4}
    interrupted(monkeypatch, 5, str(texts), kept, **options)
    work_done.clear()
    if "documents" in changed:
        for file in texts.iterdir():
            file.write_text(file.read_text().replace("\n", "\n\n"))
    again = count_in_shards(str(texts), kept, **options | changed)
    assert len(work_done) == 6
    assert equal(again, count_positions(str(texts), **options | changed))


def test_kept_shards_of_a_file_that_changed_are_not_used(texts, kept, monkeypatch, work_done):
    interrupted(monkeypatch, 5, str(texts), kept)
    work_done.clear()
    (texts / "2.txt").write_text(drifting_text(30, seed=99), encoding="utf-8")
    again = count_in_shards(str(texts), kept)
    assert [os.path.basename(name) for name in work_done] == ["2.txt", "5.txt"]
    assert equal(again, count_positions(str(texts)))


def test_nothing_to_resume_is_a_plain_count(texts, run_cli, tmp_path):
    for name in ("a.npz", "b.npz"):
        more = ["--resume"] if name == "b.npz" else []
        assert run_cli("count", texts, *more, "--out", tmp_path / name).code == 0
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert not (tmp_path / "b.npz.shards").exists()


def test_a_kept_file_that_was_damaged_is_named(texts, kept, monkeypatch):
    interrupted(monkeypatch, 2, str(texts), kept)
    file = next(kept.folder.glob("*.npz"))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(PosgeomError, match=f"{file} holds no position counts"):
        count_in_shards(str(texts), kept)


def test_a_full_disk_says_what_to_do(texts, kept, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("posgeom.counts.np.savez", full)
    with pytest.raises(PosgeomError, match=r"No space left on device.*--resume"):
        count_in_shards(str(texts), kept)


def test_force_starts_anew_and_leaves_what_is_not_ours(texts, run_cli, tmp_path, monkeypatch):
    out = tmp_path / "c.npz"
    with monkeypatch.context() as patch:
        stops(patch, after=2)
        assert run_cli("count", texts, "--out", out).code == 130
    (tmp_path / "c.npz.shards" / "mine.txt").write_text("x")
    assert run_cli("count", texts, "--out", out, "--force").code == 0
    assert os.listdir(tmp_path / "c.npz.shards") == ["mine.txt"]


def test_a_corpus_that_cannot_be_used_leaves_nothing(tmp_path, run_cli):
    for k in range(4):
        (tmp_path / f"{k}.txt").write_text("one\n", encoding="utf-8")
    ran = run_cli("count", tmp_path / "*.txt", "--out", tmp_path / "c.npz")
    assert ran.code == 2
    assert "has two tokens" in ran.err
    assert sorted(os.listdir(tmp_path)) == ["0.txt", "1.txt", "2.txt", "3.txt"]


# -- shards that fail -----------------------------------------------------------------------------


@pytest.fixture
def broken(parquet):
    """Five parquet files of which the first and the fourth are cut off."""
    for k in (0, 3):
        file = parquet / f"{k}.parquet"
        file.write_bytes(file.read_bytes()[:200])
    return parquet


def test_a_bad_shard_is_named_and_what_was_finished_is_kept(parquet, run_cli, tmp_path):
    whole = parquet / "3.parquet"
    content = whole.read_bytes()
    whole.write_bytes(content[:200])
    out = tmp_path / "c.npz"
    arguments = ("count", parquet, "--text-field", "text", "--out", out)
    ran = run_cli(*arguments)
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    for words in ("3.parquet is no whole parquet file", "--resume goes on"):
        assert words in ran.err
    whole.write_bytes(content)
    assert run_cli(*arguments, "--resume").code == 0
    assert equal(PositionCounts.load(out), count_positions(str(parquet), text_field="text"))


def test_bad_shards_are_left_out_when_asked_and_named(broken, run_cli, tmp_path):
    out = tmp_path / "c.npz"
    ran = run_cli("count", broken, "--text-field", "text", "--skip-bad", "--out", out, "--json")
    assert ran.code == 0, ran.err
    notes = [n for n in json.loads(ran.out)["notes"] if n.startswith("left out by --skip-bad: ")]
    assert [os.path.basename(n.split(" is no")[0]) for n in notes] == ["0.parquet", "3.parquet"]
    assert all(f"posgeom: {note}\n" in ran.err for note in notes)
    good = [str(broken / f"{k}.parquet") for k in (1, 2, 4)]
    rows = [row for file in good for row in pq.read_table(file)["text"].to_pylist()]
    assert np.array_equal(
        PositionCounts.load(out).counts.toarray(),
        count_positions(rows).counts.toarray(),
    )


def test_of_files_read_together_only_the_bad_one_is_left_out(tmp_path, kept, monkeypatch):
    monkeypatch.setattr(pieces_module, "SHARDS", 2)
    for k in range(8):
        (tmp_path / f"{k}.txt").write_bytes(b"a b\nb c\n" if k != 5 else b"a \xff\nb a\n")
    assert len(shards(open_corpus(str(tmp_path / "*.txt")).pieces)) < 4
    counts = count_in_shards(str(tmp_path / "*.txt"), kept, skip_bad=True)
    assert counts.provenance.documents == 14
    (note,) = [n for n in counts.provenance.notes if "left out" in n]
    assert "5.txt, line 1" in note


def test_what_lost_a_shard_is_tried_again(broken, kept, work_done):
    count_in_shards(str(broken), kept, skip_bad=True, text_field="text")
    work_done.clear()
    with pytest.raises(PosgeomError, match=r"0\.parquet is no whole parquet"):
        count_in_shards(str(broken), kept, text_field="text")
    assert [os.path.basename(name) for name in work_done] == ["0.parquet"]


def test_nothing_but_bad_shards_is_an_error(tmp_path, kept):
    for k in range(3):
        (tmp_path / f"{k}.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(PosgeomError, match="is no whole parquet file"):
        count_in_shards(str(tmp_path / "*.parquet"), kept, skip_bad=True)
    for k in range(3):
        (tmp_path / f"{k}.txt").write_bytes(b"a \xff\n")
    with pytest.raises(PosgeomError, match=r"nothing of .* could be counted: left out by"):
        count_in_shards(str(tmp_path / "*.txt"), kept, skip_bad=True)


def test_a_shard_is_tried_as_often_as_asked(texts, monkeypatch):
    monkeypatch.setattr("posgeom.shards.PAUSE", 0)
    source = open_corpus(str(texts))
    counting = {"positions": 4, "align": "start", "grid": None, "folds": 4, "special_tokens": False}
    job = replace(Job.of(source, "words", counting, {}), attempts=3)
    failures, corpus_of = [], posgeom.shards.corpus_of

    def flaky(*arguments):
        failures.append(len(failures) + 1)
        if failures[-1] % 3:
            raise OSError(104, "Connection reset by peer")
        return corpus_of(*arguments)

    monkeypatch.setattr("posgeom.shards.corpus_of", flaky)
    (shard, *_) = shards(source.pieces)
    assert job.count(shard).provenance.documents == 40
    assert failures == [1, 2, 3]
    with pytest.raises(PosgeomError, match=r"0\.txt: .*Connection reset by peer"):
        replace(job, attempts=2).count(shard)


# -- what does not fit ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "options", "says"),
    [
        ("digits", {"skip_bad": True}, "--skip-bad came, but digits cannot be cut"),
        ("digits", {"dask": "local:2"}, "--dask came, but digits cannot be cut"),
        (["a b", "b"], {"dask": "local:2"}, "--dask came, but <iterable> cannot be cut"),
    ],
)
def test_sources_in_one_piece_are_refused_where_shards_are_needed(kept, source, options, says):
    with pytest.raises(PosgeomError, match=says):
        count_in_shards(source, kept, **options)


def test_standard_input_cannot_be_resumed(kept):
    with pytest.raises(PosgeomError, match="can be read only once; give a file"):
        count_in_shards("-", kept)


def test_iterables_and_streams_are_counted_as_ever(tmp_path, kept):
    rows = [[1, 2], [2, 1], [1, 1]]
    assert equal(count_in_shards(rows, kept, positions=2), count_positions(rows, positions=2))
    stream = np.random.default_rng(0).integers(0, 9, 4_000).astype("<u2")
    stream.tofile(tmp_path / "t.bin")
    options = {"positions": 8, "align": "packed"}
    source = str(tmp_path / "t.bin")
    assert equal(count_in_shards(source, kept, **options), count_positions(source, **options))
    assert not kept


@pytest.fixture
def streams(tmp_path):
    """A folder of 5 packed streams of 3,001 ids."""
    folder = tmp_path / "streams"
    folder.mkdir()
    rng = np.random.default_rng(3)
    for k in range(5):
        rng.integers(0, 9, 3_001).astype("<u2").tofile(folder / f"{k}.bin")
    return folder


PACKED = {"positions": 8, "align": "packed", "folds": 4}


def test_streams_are_shards_each_of_which_begins_anew(streams, kept):
    counts = count_in_shards(str(streams), kept, **PACKED)
    assert equal(counts, count_positions(str(streams), **PACKED))
    alone = [count_positions(str(file), **PACKED) for file in sorted(streams.iterdir())]
    assert (counts.counts != reduce(add, alone).counts).nnz == 0
    ids = np.concatenate([np.fromfile(file, "<u2")[:3_000] for file in sorted(streams.iterdir())])
    whole = count_positions(iter(ids.reshape(-1, 8)), positions=8)
    last = sum(np.fromfile(file, "<u2")[-1] == np.arange(9) for file in streams.iterdir())
    expected = whole.pooled.toarray()
    expected[0] += last  # the last block of each has one token
    np.testing.assert_array_equal(counts.pooled.toarray(), expected)


def test_streams_go_on_after_an_interrupt(streams, run_cli, tmp_path, monkeypatch):
    out, count, calls = tmp_path / "c.npz", Job.count, []

    def interrupted(job, shard):
        calls.append(shard)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return count(job, shard)

    monkeypatch.setattr(Job, "count", interrupted)
    options = ["--align", "packed", "--positions", "8", "--folds", "4", "--out", str(out)]
    assert run_cli("count", str(streams), *options).code == 130
    assert run_cli("count", str(streams), *options, "--resume").code == 0
    assert len(calls) == 6
    assert equal(PositionCounts.load(out), count_positions(str(streams), **PACKED))


def test_a_bad_stream_is_left_out_when_asked(streams, kept):
    (streams / "0.bin").write_bytes(b"odd")
    with pytest.raises(PosgeomError, match=r"0\.bin has 3 bytes, which are no whole number"):
        count_in_shards(str(streams), kept, **PACKED)
    counts = count_in_shards(str(streams), kept, **PACKED, skip_bad=True)
    assert counts.provenance.tokens == 4 * 3_001
    assert "0.bin has 3 bytes" in left_out(counts)[0]


def test_streams_are_counted_packed(streams, kept):
    with pytest.raises(PosgeomError, match="is a packed stream of token ids; use --align packed"):
        count_in_shards(str(streams), kept, positions=8)


def test_compressed_files_are_shards(tmp_path, kept):
    draw = random.Random(1)
    for k in range(3):
        rows = [{"text": f"w{draw.randint(0, 9)} x{k}"} for _ in range(50)]
        with gzip.open(tmp_path / f"{k}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    source = str(tmp_path / "*.jsonl.gz")
    assert equal(count_in_shards(source, kept), count_positions(source))
    assert len(list(kept.folder.glob("*.npz"))) == 3


# -- what the documentation promises --------------------------------------------------------------


def test_the_python_example_for_other_schedulers_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = resource("pipelines", "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    counts = PositionCounts.load("counts.npz")
    assert counts.provenance.documents == 4
    assert counts.n_positions == 64
