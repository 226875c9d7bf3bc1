"""Counts: they add, fold, shorten and come back from disk."""

import json
import pickle
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from posgeom import Document, PosgeomError, PositionCounts, count_positions
from posgeom.counts import Provenance


def equal(a, b):
    """Whether two counts are the same in every part."""
    return (
        a.n_folds == b.n_folds
        and a.vocabulary == b.vocabulary
        and a.grid == b.grid
        and a.provenance == b.provenance
        and a.counts.shape == b.counts.shape
        and all(
            np.array_equal(getattr(a.counts, part), getattr(b.counts, part))
            for part in ("data", "indices", "indptr")
        )
        and np.array_equal(a.documents, b.documents)
    )


texts = st.lists(st.text("ab c", min_size=1, max_size=12), min_size=2, max_size=12).filter(
    lambda documents: (
        sum(bool(d.split()) for d in documents) > 1 and max(len(d.split()) for d in documents) > 1
    )
)


@given(texts, texts)
@settings(deadline=None)
def test_counting_two_and_adding_is_counting_both(a, b):
    options = {"tokenizer": "words", "folds": 4, "positions": None}

    def untrimmed(documents):
        longest = max(len(d.split()) for d in documents)
        return count_positions(documents, **options | {"positions": longest})

    both, total = untrimmed(a + b), untrimmed(a) + untrimmed(b)
    assert np.array_equal(both.counts.toarray(), total.counts.toarray())
    assert both.vocabulary == total.vocabulary
    assert np.array_equal(both.documents, total.documents)
    notes = {"notes": ()}
    assert replace(both.provenance, **notes) == replace(total.provenance, **notes)


def test_a_document_twice_counts_twice_in_one_fold():
    once = count_positions(["a b", "c d"], positions=2)
    twice = count_positions(["a b", "c d"] * 2, positions=2)
    assert np.array_equal(2 * once.counts.toarray(), twice.counts.toarray())
    assert once.provenance.fingerprint != twice.provenance.fingerprint


def test_folds_are_nested():
    documents = [f"w{i} w{i % 7}" for i in range(200)]
    sixteen = count_positions(documents, positions=2)
    assert sixteen.n_folds == 16
    assert (sixteen.documents > 0).sum() > 12
    for folds in (8, 4, 1):
        fewer = count_positions(documents, positions=2, folds=folds)
        assert equal(sixteen.folded(folds), fewer)
    assert np.array_equal(sixteen.pooled.toarray(), fewer.counts.toarray())
    assert sixteen.totals.tolist() == [200, 200]
    assert np.array_equal(sixteen.fold_totals.sum(axis=0), sixteen.totals)
    with pytest.raises(PosgeomError, match="cannot become 3"):
        sixteen.folded(3)


def test_packed_counts_halve():
    ids = np.random.default_rng(0).integers(0, 9, (300, 11))
    long, short = (count_positions(ids, positions=n, align="packed", folds=4) for n in (16, 8))
    assert np.array_equal(long.halved().counts.toarray(), short.counts.toarray())


def test_first_positions():
    counts = count_positions(["a b c", "d e f"], positions=3)
    assert equal(counts.first(2), count_positions(["a b c", "d e f"], positions=2))
    assert np.array_equal(counts.first(2).totals, [2, 2])
    with pytest.raises(PosgeomError, match="use --positions 3 or less"):
        counts.first(4)


def test_saved_counts_come_back_and_equal_counts_have_equal_bytes(tmp_path):
    counts = count_positions(["a ü", "b a", "x" * 5_000 + " a"], positions=2)
    counts.save(tmp_path / "a.npz")
    loaded = PositionCounts.load(tmp_path / "a.npz")
    assert equal(counts, loaded)
    loaded.save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_grid_comes_back(tmp_path):
    counts = count_positions("digits")
    counts.save(tmp_path / "digits.npz")
    loaded = PositionCounts.load(tmp_path / "digits.npz")
    assert loaded.grid == (8, 8)
    assert loaded.vocabulary is None
    assert loaded.vocab_size == 17
    assert loaded.totals.tolist() == [1_797] * 64


@pytest.mark.parametrize("content", [b"", b"PK nothing"])
def test_a_file_that_holds_no_counts_is_refused(tmp_path, content):
    (tmp_path / "c.npz").write_bytes(content)
    with pytest.raises(PosgeomError, match="holds no position counts"):
        PositionCounts.load(tmp_path / "c.npz")
    with pytest.raises(PosgeomError, match="are not there"):
        PositionCounts.load(tmp_path / "gone.npz")


def test_a_pickle_is_refused(tmp_path):
    np.savez(tmp_path / "c.npz", about=np.array([{"a": 1}], dtype=object))
    with pytest.raises(PosgeomError, match="holds no position counts"):
        PositionCounts.load(tmp_path / "c.npz")


@pytest.mark.parametrize(
    "other",
    [
        {"tokenizer": "chars"},
        {"align": "end"},
        {"folds": 8},
    ],
)
def test_counts_made_in_another_way_do_not_add(other):
    a = count_positions(["a b", "b a"], positions=2)
    b = count_positions(["a b", "b a"], **{"positions": 2} | other)
    with pytest.raises(PosgeomError, match="in the same way"):
        a + b


def test_counts_of_tokens_and_of_bare_ids_do_not_add():
    table = csr_array(np.eye(2, dtype=np.int64))
    tokens = PositionCounts(table, 1, np.array([2]), ("a", "b"))
    with pytest.raises(PosgeomError, match="one tokenizer"):
        tokens + PositionCounts(table, 1, np.array([2]))


def test_shapes_that_do_not_fit_are_refused():
    table = csr_array(np.eye(6, dtype=np.int64))
    for folds in (0, 3, 4):
        with pytest.raises(PosgeomError, match="power of two"):
            PositionCounts(table, folds, np.ones(1))
    with pytest.raises(PosgeomError, match="grid"):
        PositionCounts(table, 2, np.ones(2), grid=(2, 2))


def test_provenance_survives_json():
    p = Provenance(sources=("a", "b"), fingerprint=2**127 + 1, notes=("x",))
    assert Provenance.from_dict(p.as_dict()) == p


# -- adding ---------------------------------------------------------------------------------------


def dense(a, b):
    """The sum of two counts cell by cell, by token and position."""
    n, vocabulary = max(a.n_positions, b.n_positions), sorted({*a.vocabulary, *b.vocabulary})
    total = np.zeros((a.n_folds, n, len(vocabulary)), dtype=np.int64)
    for c in (a, b):
        own = c.counts.toarray().reshape(c.n_folds, c.n_positions, -1)
        total[:, : c.n_positions, [vocabulary.index(t) for t in c.vocabulary]] += own
    return total.reshape(-1, len(vocabulary))


@given(texts, texts)
@settings(deadline=None)
def test_a_sum_is_that_of_the_cells_and_canonical(a, b):
    a, b = (count_positions(d, positions=max(len(x.split()) for x in d), folds=2) for d in (a, b))
    total = a + b
    assert np.array_equal(total.counts.toarray(), dense(a, b))
    assert total.counts.has_canonical_format
    assert (total.counts.data > 0).all()
    assert total.counts.dtype == np.int64
    assert equal(total, b + a) or total.provenance.notes != (b + a).provenance.notes


@pytest.mark.parametrize("align", ["start", "end"])
def test_counts_of_a_shorter_window_that_cut_documents_do_not_add(align):
    documents = ["a b c d", "b c d a", "c d"]
    short, long = (count_positions(documents, positions=n, align=align) for n in (3, 4))
    for a, b in ((short, long), (long, short)):
        with pytest.raises(PosgeomError, match=r"of 3 positions and of 4 .* in the same way"):
            a + b


def test_packed_counts_of_another_window_do_not_add():
    ids = [[1, 2], [2, 1]]
    a, b = (count_positions(ids, positions=n, align="packed") for n in (2, 3))
    with pytest.raises(PosgeomError, match="in the same way"):
        a + b


def test_folds_by_group_and_by_document_do_not_add():
    grouped = count_positions([Document("a b", "g"), Document("b a", "h")], positions=2)
    single = count_positions(["a b", "b a"], positions=2)
    assert (grouped.provenance.folds_by, single.provenance.folds_by) == ("group", "document")
    with pytest.raises(PosgeomError, match="folds_by 'group' and 'document'"):
        grouped + single
    unknown = replace(single, provenance=replace(single.provenance, folds_by=""))
    for a, b in ((grouped, unknown), (unknown, grouped)):
        assert (a + b).provenance.folds_by == "group"


def test_other_vocabularies_of_one_tokenizer_do_not_add():
    table = csr_array(np.eye(2, dtype=np.int64))
    a = PositionCounts(table, 1, np.array([2]), ("b", "a"))
    b = PositionCounts(table, 1, np.array([2]), ("b", "c"))
    with pytest.raises(PosgeomError, match="over 2 and 2 token types that are not the same"):
        a + b
    assert (a + a).vocabulary == ("b", "a")


def test_counts_that_were_saved_before_folds_had_a_rule_still_load(tmp_path):
    counts = count_positions(["a b", "b a"], positions=2)
    about = {
        "format": 1,
        "n_folds": counts.n_folds,
        "grid": None,
        "vocabulary": counts.vocabulary,
        "provenance": {k: v for k, v in counts.provenance.as_dict().items() if k != "folds_by"},
    }
    np.savez_compressed(
        tmp_path / "old.npz",
        data=counts.counts.data,
        indices=counts.counts.indices,
        indptr=counts.counts.indptr,
        shape=np.array(counts.counts.shape),
        documents=counts.documents,
        about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8),
    )
    old = PositionCounts.load(tmp_path / "old.npz")
    assert old.provenance.folds_by == ""
    assert equal(replace(old, provenance=counts.provenance), counts)
    assert (old + counts).totals.tolist() == [4, 4]


def test_counts_travel_between_processes_in_few_bytes():
    ids = np.random.default_rng(0).integers(0, 300, (2_000, 40))
    counts = count_positions(ids, positions=40)
    sent = pickle.dumps(counts)
    assert equal(pickle.loads(sent), counts)
    assert len(sent) < 4 * counts.counts.nnz
    assert sys.getsizeof(counts) > 12 * counts.counts.nnz


def test_large_counts_are_not_cut(tmp_path):
    large = csr_array(np.array([[2**40, 0], [0, 255], [256, 1], [0, 0]]))
    counts = PositionCounts(large, 2, np.array([1, 1]), ("a", "b"))
    counts.save(tmp_path / "c.npz", compressed=False)
    assert equal(PositionCounts.load(tmp_path / "c.npz"), counts)


def test_a_vocabulary_without_tokens_is_not_a_missing_one():
    nothing = count_positions([], part=True, positions=2)
    assert nothing.vocabulary == ()
    assert pickle.loads(pickle.dumps(nothing)).vocabulary == ()
