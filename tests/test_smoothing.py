"""The main directions of sets of folds, from those of all, held against a decomposition."""

import numpy as np
import pytest

from posgeom import SyntheticCorpus
from posgeom.debias import balanced_splits, halved_splits
from posgeom.fold_gram import SMALL, fold_gram, side_by_side
from posgeom.simulation import draw_counts
from posgeom.smoothing import FoldedTokens, clear_eigenvectors, eigenvectors_near


@pytest.fixture(scope="module")
def gram():
    corpus = SyntheticCorpus("mixture", SMALL + 12, 600, 20_000, shortening=0.5)
    return fold_gram(draw_counts(corpus, folds=8))


def sums(gram, sets):
    return gram.sums(sets[:, :, None] * sets[:, None, :].astype(float))


def lost(U, V):
    """How much of the directions U those of V miss, 0 to their number."""
    return np.linalg.norm(U - V @ (V.T @ U)) ** 2


def test_directions_of_halves_and_quarters_are_those_of_a_decomposition(gram):
    near = clear_eigenvectors(gram, 2)
    quarter, _ = halved_splits(8, 1)[0]
    without = balanced_splits(8)[0] & (np.arange(8) != 0)
    for M in sums(gram, np.stack([balanced_splits(8)[2], without, quarter])):
        U = np.linalg.eigh(M.astype(float))[1][:, -2:]
        V = eigenvectors_near(M, near, 2)
        assert lost(U, near[:, -2:]) > 1e-4  # those of all folds are others
        assert lost(U, V) < 1e-8
        np.testing.assert_allclose(np.abs(U.T @ V), np.eye(2), atol=1e-3)  # in their order


def test_exact_eigenvectors_stay_as_they_are(gram):
    M = sums(gram, np.ones((1, 8)))[0]
    U = np.linalg.eigh(M.astype(float))[1][:, -2:]
    assert lost(U, eigenvectors_near(M, clear_eigenvectors(gram, 2), 2)) < 1e-10


def test_directions_that_do_not_stand_out_are_not_taken_from_all_folds(gram):
    """What they owe to the folds of the other half would be noise that both have in common."""
    assert clear_eigenvectors(gram, 3) is None  # the third is noise
    few = fold_gram(draw_counts(SyntheticCorpus("mixture", 40, 600, 20_000), folds=8))
    assert clear_eigenvectors(few, 2) is None


@pytest.mark.parametrize("spread", [10**9, 20_000])
def test_coefficients_are_products_of_the_counts(monkeypatch, spread):
    """Of all tokens at once, or of a few at a time: z = (Bᵀ diag(N) B)⁻¹ Bᵀ X, and B z fits X/N."""
    monkeypatch.setattr("posgeom.smoothing._SPREAD", spread)
    counts = draw_counts(SyntheticCorpus("blocks", 12, 300, 3_000), folds=8)
    gram = fold_gram(counts)
    sets = np.stack([balanced_splits(8)[0], ~balanced_splits(8)[0], balanced_splits(8)[3]])
    C = counts.counts.toarray().reshape(8, 12, -1).astype(float)
    C = C[:, :, C.sum(axis=(0, 1)) > 1]
    some = np.array([5, 0, 131])
    with side_by_side(12) as each:
        smoothed = FoldedTokens.of(gram.source).smooth(sets, gram, 2, each)
        for part in (some, slice(7, 40)):
            Z = smoothed.coefficients(part, each)
            for B, z, folds in zip(smoothed.B.astype(float), Z, sets, strict=True):
                N = counts.fold_totals[folds].sum(axis=0)
                X = C[folds].sum(axis=0)[:, part]
                right = np.linalg.lstsq(B * np.sqrt(N)[:, None], X / np.sqrt(N)[:, None])[0].T
                np.testing.assert_allclose(z, right, atol=1e-4 * np.abs(right).max())
