"""The streaming pass against a plain loop, its defaults and its refusals."""

import threading
from collections import Counter
from hashlib import blake2b

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array

from posgeom import Document, PosgeomError, count_positions, counting
from posgeom.tokenizer import LibraryTokenizer, load_tokenizer

DOCUMENTS = ["the cat sat", "the dog", "", "a cat and a dog", None, "the the the the"]


def as_counter(counts):
    """(fold, position, token) -> count."""
    entries = counts.counts.tocoo()
    n = counts.n_positions
    return Counter(
        {
            (int(r) // n, int(r) % n, counts.vocabulary[c]): int(x)
            for r, c, x in zip(entries.row, entries.col, entries.data, strict=True)
        }
    )


def fold_of(text, folds):
    digest = blake2b(text.encode(), digest_size=16).digest()
    return int.from_bytes(digest, "little") % folds


@given(
    st.lists(st.lists(st.sampled_from("abcd"), max_size=7).map(" ".join), max_size=15),
    st.sampled_from([1, 2, 16]),
    st.sampled_from(["start", "end"]),
)
@settings(deadline=None)
def test_counts_are_those_of_a_plain_loop(documents, folds, align):
    documents = [*documents, "a b c", "d a"]
    expected = Counter()
    for text in documents:
        tokens = text.split()
        for position, token in enumerate(tokens if align == "start" else tokens[::-1]):
            if position < 3:
                expected[fold_of(text, folds), position, token] += 1
    found = count_positions(documents, positions=3, align=align, folds=folds)
    assert as_counter(found) == expected


def test_documents_without_content_are_skipped_and_told():
    counts = count_positions(DOCUMENTS, positions=2)
    assert counts.provenance.documents == 4
    assert counts.provenance.skipped == 2
    assert counts.provenance.tokens == 14
    assert counts.provenance.longest == 5
    assert "2 of 6 documents hold nothing" in counts.provenance.notes[0]


@pytest.mark.parametrize("align", ["start", "end"])
@pytest.mark.parametrize("constant", ["FLUSH", "SOON"])
def test_order_and_batches_leave_no_trace(monkeypatch, align, constant):
    documents = [f"w{i * i % 13} w{i % 5} w{i % 3}"[: 6 + i % 4] for i in range(100)]
    whole = count_positions(documents, positions=3, align=align)
    monkeypatch.setattr(counting, "BATCH_DOCUMENTS", 7)
    monkeypatch.setattr(counting, constant, 10)
    again = count_positions(documents[::-1], positions=3, align=align)
    assert whole.vocabulary == again.vocabulary
    assert whole.provenance == again.provenance
    for part in ("data", "indices", "indptr"):
        assert np.array_equal(getattr(whole.counts, part), getattr(again.counts, part))


@pytest.mark.parametrize(
    ("held", "ahead"), [("False", False), ("0", False), ("", False), ("true", True), (None, True)]
)
def test_batches_are_encoded_ahead_unless_the_tokenizer_is_held_to_one_thread(
    monkeypatch, held, ahead
):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if held is not None:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", held)
    monkeypatch.setattr(counting, "BATCH_DOCUMENTS", 3)
    tokenizer, by = load_tokenizer("words"), set()
    encode = tokenizer.encode
    monkeypatch.setattr(
        tokenizer, "encode", lambda texts: by.add(threading.current_thread()) or encode(texts)
    )
    documents = [f"w{i % 5} w{i % 3} w{i % 2}" for i in range(20)]
    counts = count_positions(documents, tokenizer, 3)
    assert (threading.main_thread() not in by) == ahead
    assert len(by) == 1
    expected = np.zeros((3, 5), dtype=int)
    for text in documents:
        for i, word in enumerate(text.split()):
            expected[i, counts.vocabulary.index(word)] += 1
    assert np.array_equal(counts.pooled.toarray(), expected)


@pytest.mark.parametrize("align", ["start", "packed"])
def test_batches_encoded_by_two_threads_stay_in_order(monkeypatch, align):
    """In a packed stream each document's place depends on all before it."""
    words = {"[UNK]": 0} | {f"w{i}": i + 1 for i in range(13)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    documents = [" ".join(f"w{(i * j) % 13}" for j in range(1, 2 + i % 5)) for i in range(200)]
    whole = count_positions(documents, backend, 5, align, folds=4)
    monkeypatch.setattr(counting, "BATCH_DOCUMENTS", 3)
    by, split = set(), LibraryTokenizer.encode
    monkeypatch.setattr(
        LibraryTokenizer,
        "encode",
        lambda self, texts: by.add(threading.current_thread()) or split(self, texts),
    )
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    again = count_positions(documents, backend, 5, align, folds=4)
    assert threading.main_thread() not in by
    assert np.array_equal(whole.counts.toarray(), again.counts.toarray())
    assert whole.provenance == again.provenance


@given(st.integers(1, 60), st.integers(1, 40), st.integers(0, 80), st.integers(0, 2**32 - 1))
def test_sparse_counts_are_those_of_scipy(n_rows, n_columns, size, seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, n_rows, size).astype(np.uint16)
    columns = rng.integers(0, n_columns, size).astype(np.int32)
    ones = np.ones(size, dtype=np.int32)
    found = counting._sparse(ones, rows, columns, (n_rows, n_columns))
    expected = coo_array((ones, (rows, columns)), (n_rows, n_columns)).tocsr()
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(found, part), getattr(expected, part))


def test_batches_leave_no_trace_in_packed_streams(monkeypatch):
    documents = [f"w{i % 13} w{i % 5}" for i in range(100)]
    whole = count_positions(documents, positions=8, align="packed", folds=4)
    monkeypatch.setattr(counting, "BATCH_DOCUMENTS", 7)
    again = count_positions(documents, positions=8, align="packed", folds=4)
    assert np.array_equal(whole.counts.toarray(), again.counts.toarray())


def test_packed_documents_are_joined_by_a_separator():
    counts = count_positions(["a b", "a b"], positions=3, align="packed", folds=1)
    assert as_counter(counts) == {(0, 0, "a"): 2, (0, 1, "b"): 2, (0, 2, "<sep>"): 2}


def test_documents_of_a_group_share_a_fold():
    documents = [Document(f"w{i} x", group=f"g{i % 3}") for i in range(60)]
    counts = count_positions(documents, positions=2)
    assert (counts.documents > 0).sum() <= 3
    assert counts.documents.sum() == 60


def test_default_length_is_what_a_twentieth_reaches():
    documents = ["a b c d"] * 94 + ["a b c d e"] * 4 + ["a b c d e f"] * 2
    counts = count_positions(documents)
    assert counts.n_positions == 5  # 6 documents reach it, 5 are needed
    assert "positions: 5, which 6 documents reach" in counts.provenance.notes[-1]


def test_default_length_is_what_a_thousand_reach():
    ids = [np.zeros(2 + (i < 1_000), dtype=np.int64) for i in range(30_000)]
    assert count_positions(ids).n_positions == 3


def test_default_length_is_512_at_most():
    assert count_positions([np.arange(700)] * 2).n_positions == 512


def test_default_length_of_packed_streams_leaves_a_thousand_blocks():
    ids = np.random.default_rng(0).integers(0, 9, (1_000, 100))
    counts = count_positions(ids, align="packed")
    assert counts.n_positions == 64  # 100,000 tokens: 1,562 blocks of 64, 781 of 128
    assert counts.totals.sum() == 100_000


def test_ids_may_exceed_sixteen_bits():
    counts = count_positions([[70_000, 3], [70_000, 1]], positions=2)
    assert counts.vocab_size == 70_001
    assert counts.pooled[0, 70_000] == 2
    assert counts.vocabulary is None


def test_a_token_stream_is_cut_into_blocks(tmp_path):
    stream = np.tile(np.arange(8, dtype=np.uint16), 1_000)
    stream.tofile(tmp_path / "t.bin")
    counts = count_positions(tmp_path / "t.bin", positions=8, align="packed")
    assert np.array_equal(counts.pooled.toarray(), 1_000 * np.eye(8))
    with pytest.raises(PosgeomError, match="--align packed"):
        count_positions(tmp_path / "t.bin", positions=8)


def test_a_grid_has_its_own_positions():
    counts = count_positions([[1, 2, 3, 4], [4, 3, 2, 1]], grid=(2, 2))
    assert counts.grid == (2, 2)
    assert counts.n_positions == 4
    for options in ({"positions": 3}, {"align": "packed"}):
        with pytest.raises(PosgeomError, match="leave --positions and --align out"):
            count_positions([[1, 2, 3, 4]] * 2, grid=(2, 2), **options)
    with pytest.raises(PosgeomError, match="--grid"):
        count_positions([[1, 2, 3, 4]] * 2, align="grid")


@pytest.mark.parametrize(
    ("documents", "options", "words"),
    [
        ([], {}, "no usable token"),
        (["", None], {}, "no usable token"),
        (["  "], {}, "no usable token"),
        (["one document"], {}, "one document"),
        (["a", "b"], {}, "two tokens"),
        (["a b", "b a"], {"positions": 3}, "use --positions 2 or less"),
        (["a b", "b a"], {"positions": 1}, "at least 2"),
        (["a b", "b a"], {"folds": 12}, "power of two"),
        (["a b", [1, 2]], {}, "text"),
        ([[1, 2], "a b"], {}, "ids"),
    ],
)
def test_corpora_that_cannot_be_counted_are_refused(documents, options, words):
    with pytest.raises(PosgeomError, match=words):
        count_positions(documents, **options)


def test_generators_are_read_once():
    counts = count_positions((f"a{i % 3} b" for i in range(50)), tokenizer="train:bpe:300")
    assert counts.provenance.documents == 50


def test_more_positions_are_counted_as_far_as_documents_reach():
    texts = ["a b c d e", "b c d", "c d e f", "e a"]
    wide = count_positions(texts, positions=2, up_to=9)
    plain = count_positions(texts, positions=5)
    assert wide.n_positions == 5
    assert (wide.counts != plain.counts).nnz == 0
    assert count_positions(texts, positions=2, up_to=3).n_positions == 3
    with pytest.raises(PosgeomError, match="the longest document has 5 tokens"):
        count_positions(texts, positions=6, up_to=9)
