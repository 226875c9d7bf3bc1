"""Thinning to equal counts, and the estimator that is built on it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.spatial.distance import pdist, squareform

from posgeom import PosgeomError, SyntheticCorpus, estimate_geometry, score_encodings, true_geometry
from posgeom.counts import PositionCounts, canonical
from posgeom.debias import balanced_splits, thinned_squares
from posgeom.fold_gram import fold_gram
from posgeom.inference import condensed
from posgeom.mds import classical_mds
from posgeom.rank import above_noise
from posgeom.simulation import draw_counts
from posgeom.thinning import thinned


def counts_of(C, n_folds):
    return PositionCounts(
        counts=canonical(csr_array(np.asarray(C))),
        n_folds=n_folds,
        documents=np.ones(n_folds, dtype=np.int64),
    )


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 9), min_size=5, max_size=5), min_size=12, max_size=12),
    st.integers(0, 3),
)
def test_every_position_keeps_as_many_tokens_as_the_poorest_and_none_is_new(rows, seed):
    counts = counts_of(rows, n_folds=4)
    less = thinned(counts, seed)
    assert less.totals.tolist() == [counts.totals.min()] * counts.n_positions
    assert (less.counts.toarray() <= counts.counts.toarray()).all()
    again = thinned(counts, seed)
    assert (less.counts != again.counts).nnz == 0


def test_a_token_is_kept_as_often_as_its_share_says():
    C = [[30, 10, 0, 0], [1, 2, 3, 4], [20, 0, 20, 20], [4, 3, 2, 1]]  # two folds of two positions
    counts = counts_of(C, n_folds=2)
    kept = np.mean([thinned(counts, seed).counts.toarray()[[0, 2]] for seed in range(400)], axis=0)
    # 20 of 100 are kept: the mean is a fifth, its standard error at most √(20·0.3·0.7/400) = 0.1
    np.testing.assert_allclose(kept, np.array(C)[[0, 2]] / 5, atol=0.4)


def test_too_many_tokens_for_the_draw_are_refused():
    with pytest.raises(PosgeomError, match="takes fewer than 1,000,000,000"):
        thinned(counts_of([[10**9], [5]], n_folds=1))


def test_squares_are_those_of_a_plain_computation():
    counts = draw_counts(SyntheticCorpus("blocks", 6, 60, 4_000, shortening=0.5), folds=8)
    found = thinned_squares(counts, fold_gram(counts), seed=3)
    C = thinned(counts, 3).counts.toarray().reshape(8, 6, -1).astype(float)
    C = C[:, :, C.sum(axis=(0, 1)) > 1]
    each = []
    for first in balanced_splits(8):
        a, b = (np.sqrt(h.sum(axis=0) / h.sum(axis=(0, 2))[:, None]) for h in (C[first], C[~first]))
        each.append([[(a[i] - a[j]) @ (b[i] - b[j]) for j in range(6)] for i in range(6)])
    mds = classical_mds(np.mean(each, axis=0), squared=True)
    kept = mds.coordinates[:, : above_noise(mds.eigenvalues)]
    np.testing.assert_allclose(found.squared, squareform(pdist(kept, "sqeuclidean")), atol=3e-5)


def test_unequal_counts_do_not_look_like_a_geometry():
    """The reference recipe: right where tokens are many, with errors like any other estimate."""
    corpus = SyntheticCorpus("mixture", 16, 300, 300_000, shortening=0.8)
    geometry = estimate_geometry(draw_counts(corpus), "thinned")
    truth = condensed(true_geometry(corpus.profiles).squared)
    assert condensed(geometry.squared).mean() == pytest.approx(truth.mean(), rel=0.03)
    scores = score_encodings(geometry, ["sinusoidal", "alibi"])
    assert scores["stress_se"].between(0, 0.02).all()


def test_a_corpus_without_structure_has_no_thinned_geometry_either():
    geometry = estimate_geometry(draw_counts(SyntheticCorpus("none", documents=2_000)), "thinned")
    assert not geometry.has_structure
    assert not geometry.squared.any()


@pytest.mark.parametrize("seed", range(3))
def test_positions_that_thinning_leaves_without_a_token_in_some_folds(seed):
    counts = draw_counts(SyntheticCorpus("blocks", 12, 50, 200, shortening=1.0, seed=seed))
    assert not thinned(counts, seed).fold_totals.all()
    assert np.isfinite(estimate_geometry(counts, "thinned", seed=seed, force=True).squared).all()
