"""Counts: they add, fold, shorten and come back from disk."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from posgeom import PosgeomError, PositionCounts, count_positions
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
