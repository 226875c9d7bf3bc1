"""Packed streams against a plain count of columns, whatever the types, tables and threads."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from posgeom import PosgeomError, count_positions, streams
from posgeom.streams import count_stream, run_length
from posgeom.tally import compress, lay_out, tally, unpack


def by_hand(ids, n, n_folds):
    """(K, n, V) counts, run by run and column by column."""
    length = run_length(len(ids), n)
    table = np.zeros((n_folds, n, int(ids.max()) + 1), dtype=np.int64)
    for start in range(0, len(ids), length):
        run = ids[start : start + length]
        fold = xxhash.xxh3_128_intdigest(run.astype("<u2").tobytes()) % n_folds
        for i in range(n):
            table[fold, i] += np.bincount(run[i::n], minlength=table.shape[2])
    return table


def many(ids, blocks, earlier, rows, vocabulary):
    width = rows.stop - rows.start
    desk = streams._desk(ids.dtype, width, vocabulary, 64)
    room = np.empty(width * vocabulary, dtype=np.uint64)
    return streams._many(ids, blocks, earlier, rows, desk, room)


def laid_open(entries):
    """Values and columns."""
    values, columns = np.empty(len(entries), dtype=np.int64), np.empty(len(entries), dtype=np.int32)
    unpack(entries, values, columns)
    return values, columns


@pytest.mark.parametrize("dtype", ["<u2", ">u2", "<u4", ">i4", "<i8"])
@pytest.mark.parametrize(("tokens", "n", "vocabulary"), [(9_999, 7, 50), (70_000, 128, 3_000)])
def test_counts_are_those_of_columns(dtype, tokens, n, vocabulary):
    ids = np.random.default_rng(0).zipf(1.3, tokens) % vocabulary
    counts = count_stream(ids.astype(dtype), "ids", n, 4)
    assert np.array_equal(counts.counts.toarray().reshape(4, n, -1), by_hand(ids, n, 4))
    assert counts.provenance.tokens == tokens
    assert counts.provenance.documents == -(-tokens // run_length(tokens, n))
    assert counts.counts.has_canonical_format


@given(
    st.sampled_from(["u1", "<u2", ">u2", "<u4", ">i4", "<i8"]),
    st.integers(1, 400),
    st.integers(1, 9),
    st.integers(1, 60),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=80, deadline=None)
def test_any_stream_is_counted_like_columns(dtype, tokens, n, vocabulary, seed):
    ids = np.random.default_rng(seed).integers(0, vocabulary, tokens).astype(dtype)
    counts = count_stream(ids, "ids", n, 2)
    assert np.array_equal(counts.counts.toarray().reshape(2, n, -1), by_hand(ids, n, 2))


@pytest.mark.parametrize("dtype", ["<u2", ">u2", "<i4"])
def test_the_largest_ids_of_a_type_are_counted(dtype):
    most = min(np.iinfo(dtype).max, streams.MOST_TOKENS - 1)
    ids = np.array([most, most - 1, 0, most] * 40_000).astype(dtype)
    counts = count_stream(ids[: 4 * 32_768], "ids", 4, 1).counts
    assert counts.shape == (4, most + 1)
    assert counts.indices.tolist() == [most, most - 1, 0, most]
    assert counts.data.tolist() == [32_768] * 4


@pytest.mark.parametrize("largest", [30_000, 50_000])  # 16 bits are needed, or are not
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_one_fold_has_the_counts_of_all(monkeypatch, dtype, largest):
    """Its vocabulary is not known before all is counted, and is that of the ids."""
    monkeypatch.setattr(streams, "SAMPLE", 100)
    monkeypatch.setattr(streams, "SEGMENT", 300_000)
    ids = (np.random.default_rng(6).zipf(1.2, 400_003) % largest).astype(dtype)
    ids[50], ids[-200_000] = largest - 5_000, largest
    one, four = (count_stream(ids, "ids", 50, folds) for folds in (1, 4))
    assert one.counts.shape == (50, largest + 1)
    assert one.provenance == four.provenance
    for name in ("data", "indices", "indptr"):
        assert np.array_equal(getattr(one.counts, name), getattr(four.pooled, name))


@pytest.mark.parametrize("at", [5_000, 39_999])  # in a whole block, in the short one
@pytest.mark.parametrize("token", [-1, -70_000, streams.MOST_TOKENS])
def test_ids_of_no_vocabulary_are_refused(at, token):
    ids = np.arange(39_999 + 1, dtype=np.int32) % 9
    ids[at] = token
    with pytest.raises(PosgeomError, match=f"token id {token} came"):
        count_stream(ids, "ids", 7, 2)


def test_any_array_of_ids_is_a_stream():
    ids = np.random.default_rng(5).integers(0, 99, 2_000).astype(np.uint16)
    whole = count_stream(ids[::2].copy(), "ids", 8, 2)
    assert count_stream(ids[::2], "ids", 8, 2).provenance == whole.provenance
    assert not count_stream(np.empty(0, dtype=np.uint32), "ids", 8, 2).counts.nnz


@pytest.mark.parametrize("tokens", [30_011, 30_000])  # with and without a short block
def test_tables_groups_segments_and_threads_leave_no_trace(monkeypatch, tokens):
    ids = np.random.default_rng(1).integers(0, 40, tokens).astype(np.uint16)
    ids[:5_000] %= 30  # ids that come only in later segments
    whole = count_stream(ids, "ids", 16, 8)
    monkeypatch.setattr(streams, "TABLE", 130)  # three positions at a time, at the most
    monkeypatch.setattr(streams, "ROOM", 400)  # groups of one tile
    monkeypatch.setattr(streams, "SEGMENT", 10_000)
    told = Mock()
    parts = count_stream(ids, "ids", 16, 8, told)
    assert np.array_equal(whole.counts.toarray().reshape(8, 16, -1), by_hand(ids, 16, 8))
    for name in ("data", "indices", "indptr"):
        one, other = getattr(parts.counts, name), getattr(whole.counts, name)
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    assert parts.provenance == whole.provenance
    assert np.array_equal(parts.documents, whole.documents)
    assert sum(call.args[0] for call in told.call_args_list) == len(ids)


@pytest.mark.parametrize("widths", [(1, 1), (2, 5), (4, 128), (128, 128)])
@pytest.mark.parametrize("group", [1, 100])
def test_spans_of_any_width_give_the_same_counts(monkeypatch, widths, group):
    ids = np.random.default_rng(6).integers(0, 9, 40_000).astype(np.uint16)
    monkeypatch.setattr(streams, "WIDTHS", widths)
    monkeypatch.setattr(streams, "GROUP", group)
    monkeypatch.setattr(streams, "PER_TYPE", 0)
    counts = count_stream(ids, "ids", 17, 4)
    assert np.array_equal(counts.counts.toarray().reshape(4, 17, -1), by_hand(ids, 17, 4))


def test_rare_tokens_are_sorted_and_frequent_ones_counted():
    """Both roads to the counts of a span, which the size of the vocabulary chooses between."""
    rng = np.random.default_rng(2)
    ids = rng.integers(0, 300, 4_000).astype(np.uint16)
    blocks = np.arange(0, 4_000, 20)
    earlier = csr_array(rng.integers(0, 9, (30, 300)) * (rng.random((30, 300)) < 0.1))
    expected = earlier[5:25].toarray()
    np.add.at(expected, (np.arange(len(ids)) % 20, ids), 1)
    expected = csr_array(expected)
    for entries, filled in (
        streams._few(ids, blocks, earlier[5:25]),
        many(ids, blocks, earlier, slice(5, 25), 300),
    ):
        values, columns = laid_open(entries)
        assert np.array_equal(values, expected.data)
        assert np.array_equal(columns, expected.indices)
        assert np.array_equal(filled, np.diff(expected.indptr))


def test_a_digest_is_of_ids_not_of_their_type():
    ids = np.random.default_rng(7).integers(0, 1 << 16, 999)
    expected = xxhash.xxh3_128_intdigest(ids.astype("<u2").tobytes())
    for dtype in ("<u2", ">u2", "<i4", ">u4", "<i8"):
        assert streams._digest(ids.astype(dtype)) == expected
    ids[3] = 1 << 16
    assert streams._digest(ids) == xxhash.xxh3_128_intdigest(ids.astype("<u4").tobytes())


def test_equal_runs_are_in_one_fold():
    stream = np.tile(np.arange(8, dtype=np.uint16), 1_000)
    counts = count_stream(stream, "ids", 8, 16)
    assert sorted(counts.documents) == [0] * 15 + [1_000]


def test_runs_that_another_hash_put_in_folds_do_not_add():
    counts = count_stream(np.arange(4_000) % 7, "now", 8, 4)
    before = replace(counts, provenance=replace(counts.provenance, folds_by="run"))
    with pytest.raises(PosgeomError, match=r"folds_by 'run \(XXH3\)' and 'run' cannot be added"):
        counts + before


def test_every_fold_has_its_share():
    ids = np.random.default_rng(3).integers(0, 9, 400_000).astype(np.uint16)
    documents = count_stream(ids, "ids", 64, 16).documents
    assert documents.sum() == 6_250
    assert documents.min() > 300


def test_a_run_is_of_whole_blocks():
    for tokens, n in [(10, 4), (10**6, 64), (10**9, 1_024), (10**12, 1_024), (10**9, 100_000)]:
        assert run_length(tokens, n) % n == 0
    assert run_length(10**12, 1_024) == 65_536


@pytest.mark.parametrize("group", [1, 64, 65, 192, 1_000])
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_compiled_loops_are_those_that_are_written(dtype, group):
    rng = np.random.default_rng(4)
    ids, blocks = rng.integers(0, 11, 2_100).astype(dtype), np.arange(0, 2_050, 10)
    earlier = csr_array(rng.integers(0, 2, (50, 11)))
    begins = earlier.indptr[3:47].copy()
    begins[20:] = begins[20]  # and rows without
    expected = np.zeros((43, 11), dtype=np.int64)
    expected[:20] = earlier[3:23].toarray()
    for block in blocks:
        expected[np.arange(43), ids[block : block + 43]] += 1
    expected = csr_array(expected)
    for loop in (tally, tally.py_func):
        desk = streams._desk(ids.dtype, 43, 11, group)
        entries = np.empty(43 * 11, dtype=np.uint64)
        filled = loop(ids, blocks, desk, begins, earlier.data, earlier.indices, entries)
        values, columns = laid_open(entries[: filled.sum()])
        assert np.array_equal(filled, np.diff(expected.indptr))
        assert np.array_equal(values, expected.data)
        assert np.array_equal(columns, expected.indices)
        assert not desk.counters.any()  # ready to be used again
        assert not desk.table.any()


@given(
    st.sampled_from([np.uint16, np.uint32]),
    st.integers(1, 129),
    st.integers(1, 70),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_ids_are_laid_out_by_position(dtype, blocks, width, seed):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, np.iinfo(dtype).max, 400, dtype, endpoint=True)
    begins = np.sort(rng.integers(0, 400 - width, blocks, endpoint=True))  # up to the very end
    tokens = streams._desk(ids.dtype, width, 1, blocks).tokens
    lay_out(ids, begins, width, tokens)
    expected = ids[np.arange(width)[:, None] + begins]
    assert np.array_equal(tokens[:width, :blocks], expected)


def test_entries_hold_the_largest_ids_and_counts():
    row = np.zeros(1 << 24, dtype=np.int64)
    row[[0, 5, -1]] = (1 << 40) - 1, 1, (1 << 40) - 2
    entries = np.empty(len(row), dtype=np.uint64)
    assert compress(row, entries, 0) == 3
    values, columns = laid_open(entries[:3])
    assert values.tolist() == [(1 << 40) - 1, 1, (1 << 40) - 2]
    assert columns.tolist() == [0, 5, (1 << 24) - 1]
    written = np.empty(3, dtype=np.uint64)
    assert compress.py_func(np.array([0, 7, 0, 9, 0]), written, 0) == 2
    assert unpack.py_func(written[:2], values, columns) is None
    assert (values[:2].tolist(), columns[:2].tolist()) == ([7, 9], [1, 3])


def test_counts_may_be_larger_than_counters_hold():
    """Those of earlier segments, to which the counters of this one are added."""
    ids, blocks = np.zeros(300, dtype=np.uint16), np.arange(100)
    earlier = csr_array(np.array([[5_000_000_000, 0], [0, 3]]))
    entries, filled = many(ids, blocks, earlier, slice(0, 2), 2)
    assert laid_open(entries)[0].tolist() == [5_000_000_100, 100, 3]
    assert filled.tolist() == [1, 2]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60))
@settings(max_examples=60, deadline=None)
def test_rows_find_room_however_they_are_filled(filled):
    rows = streams._Rows((len(filled), 40), most=sum(filled))
    whole = np.arange(1, sum(filled) + 1)
    for end, size in zip(np.cumsum(filled), filled, strict=True):
        entries = np.arange(size, dtype=np.uint64) << np.uint64(40)
        rows.add(entries | whole[end - size : end].astype(np.uint64), np.array([size]))
    C = rows.whole()
    assert np.array_equal(C.data, whole)
    assert np.array_equal(np.diff(C.indptr), filled)
    assert np.array_equal(C.indices, np.concatenate([np.arange(s) for s in filled]))


def test_ids_beyond_any_vocabulary_are_refused(tmp_path):
    np.save(tmp_path / "ids.npy", np.array([1, 2, 1 << 24] * 100, dtype=np.uint32))
    with pytest.raises(PosgeomError, match="below 16,777,216"):
        count_positions(tmp_path / "ids.npy", positions=3, align="packed")


@pytest.mark.parametrize("largest", [1 << 24, 1 << 40, (1 << 63) - 1, (1 << 63) + 5])
@pytest.mark.parametrize("at", [2, 7])  # in a whole block, and in the short one at the end
def test_ids_beyond_any_vocabulary_are_refused_wherever_they_stand(largest, at):
    stream = np.arange(8, dtype=np.uint64)
    stream[at] = largest
    with pytest.raises(PosgeomError, match=f"token id {largest} came"):
        count_stream(stream, "ids", 5, 2)


def test_no_thread_outlives_a_count_that_is_broken_off():
    def stop(tokens):
        raise KeyboardInterrupt

    ids = np.random.default_rng(5).integers(0, 9, 100_000).astype(np.uint16)
    with pytest.raises(KeyboardInterrupt):
        count_stream(ids, "ids", 64, 16, stop)
