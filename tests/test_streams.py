"""Packed streams against a plain count of columns, whatever the types, tables and threads."""

from itertools import pairwise
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posgeom import PosgeomError, count_positions, streams
from posgeom.streams import count_stream, run_length
from posgeom.tally import GROUP, drain, tally


def by_hand(ids, n, n_folds):
    """(K, n, V) counts, run by run and column by column."""
    length = run_length(len(ids), n)
    table = np.zeros((n_folds, n, int(ids.max()) + 1), dtype=np.int64)
    for start in range(0, len(ids), length):
        run = ids[start : start + length]
        for i in range(n):
            column = run[i::n]
            table[streams._digest(run) % n_folds, i] += np.bincount(
                column, minlength=table.shape[2]
            )
    return table


@pytest.mark.parametrize("dtype", ["<u2", ">u2", "<u4", ">i4", "<i8"])
@pytest.mark.parametrize(("tokens", "n", "vocabulary"), [(9_999, 7, 50), (70_000, 128, 3_000)])
def test_counts_are_those_of_columns(dtype, tokens, n, vocabulary):
    ids = np.random.default_rng(0).zipf(1.3, tokens) % vocabulary
    counts = count_stream(ids.astype(dtype), "ids", n, 4)
    assert np.array_equal(counts.counts.toarray().reshape(4, n, -1), by_hand(ids, n, 4))
    assert counts.provenance.tokens == tokens
    assert counts.provenance.documents == -(-tokens // run_length(tokens, n))
    assert counts.counts.has_canonical_format


@given(st.integers(1, 400), st.integers(2, 9), st.integers(1, 60), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_any_stream_is_counted_like_columns(tokens, n, vocabulary, seed):
    ids = np.random.default_rng(seed).integers(0, vocabulary, tokens)
    counts = count_stream(ids, "ids", n, 2)
    assert np.array_equal(counts.counts.toarray().reshape(2, n, -1), by_hand(ids, n, 2))


def test_tables_segments_and_threads_leave_no_trace(monkeypatch):
    ids = np.random.default_rng(1).integers(0, 40, 30_011).astype(np.uint16)
    whole = count_stream(ids, "ids", 16, 8)
    monkeypatch.setattr(streams, "TABLE", 130)  # three positions at a time
    monkeypatch.setattr(streams, "SEGMENT", 5_000)
    monkeypatch.setattr(streams, "HASHED", 100)
    told = Mock()
    parts = count_stream(ids, "ids", 16, 8, told)
    assert (parts.counts != whole.counts).nnz == 0
    assert parts.provenance == whole.provenance
    assert np.array_equal(parts.documents, whole.documents)
    assert sum(call.args[0] for call in told.call_args_list) == len(ids)


def test_rare_tokens_are_sorted_and_frequent_ones_tabled():
    """Both roads to the counts of a span, which the size of the vocabulary chooses between."""
    ids = np.random.default_rng(2).integers(0, 300, 4_000).astype(np.uint16)
    blocks = np.arange(0, 4_000, 20)
    table = np.zeros((20, 300), dtype=np.uint32)
    for few, many in zip(
        streams._few(ids, blocks, 20), streams._many(ids, blocks, table), strict=True
    ):
        assert np.array_equal(few, many)
    assert not table.any()  # ready to be filled again


def test_equal_runs_are_in_one_fold():
    stream = np.tile(np.arange(8, dtype=np.uint16), 1_000)
    counts = count_stream(stream, "ids", 8, 16)
    assert sorted(counts.documents) == [0] * 15 + [1_000]


def test_every_fold_has_its_share():
    ids = np.random.default_rng(3).integers(0, 9, 400_000).astype(np.uint16)
    documents = count_stream(ids, "ids", 64, 16).documents
    assert documents.sum() == 6_250
    assert documents.min() > 300


def test_a_run_is_of_whole_blocks():
    for tokens, n in [(10, 4), (10**6, 64), (10**9, 1_024), (10**12, 1_024), (10**9, 100_000)]:
        assert run_length(tokens, n) % n == 0
    assert run_length(10**12, 1_024) == 65_536


def test_compiled_loops_are_those_that_are_written():
    rng = np.random.default_rng(4)
    ids, blocks = rng.integers(0, 11, 500).astype(np.uint16), np.arange(0, 450, 10)
    tables = [np.zeros((43, 11), dtype=np.uint32) for _ in range(3)]
    tally(ids, blocks, tables[0])
    tally.py_func(ids, blocks, tables[1])
    for block in blocks:
        tables[2][np.arange(43), ids[block : block + 43]] += 1
    assert np.array_equal(tables[0], tables[1])
    assert np.array_equal(tables[0], tables[2])


def test_a_token_may_be_more_frequent_than_narrow_counters_hold():
    rng = np.random.default_rng(6)
    ids, blocks = rng.integers(0, 2, 70_000).astype(np.uint16), np.arange(69_990)
    ids[:] *= rng.random(70_000) < 0.01  # one token more often than 16 bits can tell
    table = np.zeros((3, 2), dtype=np.uint32)
    tally(ids, blocks, table)
    assert table.max() > GROUP
    for i in range(3):
        assert np.array_equal(table[i], np.bincount(ids[blocks + i], minlength=2))


def test_draining_empties_a_table():
    table = np.random.default_rng(4).integers(0, 3, (7, 11)).astype(np.uint32)
    for one, other in pairwise([drain(table.copy()), drain.py_func(table.copy()), _entries(table)]):
        for a, b in zip(one, other, strict=True):
            assert np.array_equal(a, b)


def _entries(table):
    rows, columns = table.nonzero()
    return table[rows, columns], columns, np.bincount(rows, minlength=len(table))


def test_ids_beyond_any_vocabulary_are_refused(tmp_path):
    np.save(tmp_path / "ids.npy", np.array([1, 2, 1 << 24] * 100, dtype=np.uint32))
    with pytest.raises(PosgeomError, match="below 16,777,216"):
        count_positions(tmp_path / "ids.npy", positions=3, align="packed")


def test_no_thread_outlives_a_count_that_is_broken_off():
    def stop(tokens):
        raise KeyboardInterrupt

    ids = np.random.default_rng(5).integers(0, 9, 100_000).astype(np.uint16)
    with pytest.raises(KeyboardInterrupt):
        count_stream(ids, "ids", 64, 16, stop)
