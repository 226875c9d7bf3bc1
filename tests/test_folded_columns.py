"""Counts kept token by token, held against the dense matrix."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from posgeom import PositionCounts, SyntheticCorpus
from posgeom.folded_columns import FoldedColumns
from posgeom.simulation import draw_counts


@pytest.fixture(scope="module", params=[(12, 300), (140, 40)])  # one thread, or more
def counts(request):
    n, documents = request.param
    return draw_counts(SyntheticCorpus("mixture", n, 900, documents, shortening=0.5), folds=8)


@pytest.fixture(scope="module")
def dense(counts):
    """(K, V, n) of the tokens seen twice or more, of rising frequency."""
    C = counts.counts.toarray().reshape(8, counts.n_positions, -1)
    totals = C.sum(axis=(0, 1))
    order = np.argsort(totals, kind="stable")
    return C[:, :, order[totals[order] > 1]].transpose(0, 2, 1)


def test_the_columns_are_those_of_the_counts(counts, dense):
    columns = FoldedColumns.of(counts)
    assert (np.asarray(counts.counts.sum(axis=0)) == 1).any()
    np.testing.assert_array_equal(columns.totals, dense.sum(axis=(0, 2)))
    np.testing.assert_array_equal(columns.N, counts.fold_totals)
    np.testing.assert_array_equal(columns.seen, dense.sum(axis=1))
    for k in range(8):
        np.testing.assert_array_equal(columns.fold(k).toarray(), dense[k])
    some = np.array([0, 5, 17, len(columns.totals) - 1])
    np.testing.assert_array_equal(columns.dense(some, map), dense[:, some])


def test_the_frequent_tokens_are_as_many_as_many_rows_hold(counts, dense):
    share = (dense > 0).mean(axis=(0, 2))
    columns = FoldedColumns.of(counts)
    assert 0 < columns.n_frequent == (share >= 0.12).sum() < len(share)


@pytest.mark.parametrize("common", [0, 3, 40])
def test_lumped_tokens_are_the_rest_of_each_position(counts, dense, common):
    lumped = FoldedColumns.of(counts).lumped(common)
    kept = dense[:, dense.shape[1] - common :]
    rest = counts.fold_totals - kept.sum(axis=1)
    for k in range(8):
        np.testing.assert_array_equal(lumped.fold(k).toarray(), np.vstack([rest[k], kept[k]]))
    np.testing.assert_array_equal(lumped.seen, counts.fold_totals)
    assert lumped.totals.sum() == counts.totals.sum()


def test_of_tokens_seen_once_nothing_is_left():
    C = csr_array(np.eye(8, dtype=np.int64))  # 4 folds of 2 positions
    columns = FoldedColumns.of(PositionCounts(C, 4, np.ones(4, dtype=np.int64)))
    assert columns.totals.size == columns.rows.size == columns.n_frequent == 0
    assert not columns.seen.any()
