"""The main directions of sets of folds, from those of all, held against a decomposition."""

import numpy as np
import pytest

from posgeom import SyntheticCorpus
from posgeom.debias import balanced_splits, halved_splits
from posgeom.fold_gram import fold_gram
from posgeom.side_by_side import SMALL, side_by_side
from posgeom.simulation import draw_counts
from posgeom.smoothing import FoldedTokens, main_directions


@pytest.fixture(scope="module")
def gram():
    corpus = SyntheticCorpus("mixture", SMALL + 12, 600, 20_000, shortening=0.5)
    return fold_gram(draw_counts(corpus, folds=8))


def sums(gram, sets):
    return next(gram.of_sums(lambda M: M, sets[:, :, None] * sets[:, None, :].astype(float)))


def lost(U, V):
    """How much of the directions U those of V miss, 0 to their number."""
    return np.linalg.norm(U - V @ (V.T @ U)) ** 2


@pytest.fixture(scope="module")
def of_sets(gram):
    quarter, _ = halved_splits(8, 1)[0]
    without = balanced_splits(8)[0] & (np.arange(8) != 0)
    return sums(gram, np.stack([balanced_splits(8)[2], without, quarter]))


def test_directions_of_halves_and_quarters_are_those_of_a_decomposition(of_sets):
    for M, V in zip(of_sets, main_directions(of_sets, 2), strict=True):
        U = np.linalg.eigh(M.astype(float))[1][:, -2:]
        assert lost(U, V) < 1e-8
        np.testing.assert_allclose(np.abs(U.T @ V), np.eye(2), atol=1e-3)  # in their order


@pytest.mark.parametrize("r", [3, 5, 9])
def test_directions_within_the_noise_hold_nearly_as_much_as_those_of_a_decomposition(of_sets, r):
    """Those above it are found all the same."""
    for M, V in zip(of_sets, main_directions(of_sets, r), strict=True):
        w, U = np.linalg.eigh(M.astype(float))
        assert lost(U[:, -2:], V) < 1e-8
        np.testing.assert_allclose(V.T @ V, np.eye(r), atol=1e-5)
        assert 0.9995 < np.trace(V.T @ M @ V) / w[-r:].sum() < 1 + 1e-6


def test_what_is_found_of_a_set_owes_nothing_to_the_sets_beside_it(of_sets):
    for s in range(3):
        alone = main_directions(of_sets[s : s + 1], 3)[0]
        assert lost(alone, main_directions(of_sets, 3)[s]) < 1e-9


@pytest.mark.parametrize("scale", [1e-30, 1e9])
def test_directions_are_found_at_every_scale(of_sets, scale):
    """Squares of the smallest are below what float32 holds, those of the largest above."""
    size = np.abs(of_sets).max()
    for U, V in zip(
        main_directions(of_sets, 2), main_directions(of_sets * (scale / size), 2), strict=True
    ):
        assert lost(U, V) < 1e-8


def test_directions_of_matrices_of_low_rank_are_orthonormal():
    """Products that hold nothing new: blocks are filled up with anything at right angles."""
    X = np.random.default_rng(0).standard_normal((SMALL + 12, 2)).astype(np.float32)
    V = main_directions(np.stack([X @ X.T, np.zeros_like(X @ X.T)]), 4)
    np.testing.assert_allclose(V.transpose(0, 2, 1) @ V, np.stack([np.eye(4)] * 2), atol=1e-5)
    assert lost(np.linalg.qr(X)[0], V[0][:, -2:]) < 1e-8


@pytest.mark.parametrize("stretch", [10**9, 500])
@pytest.mark.parametrize("frequent", [0, 0.3, 2])
def test_coefficients_are_products_of_the_counts(monkeypatch, stretch, frequent):
    """Of all tokens at once, or of a few at a time: z = (Bᵀ diag(N) B)⁻¹ Bᵀ X, and B z fits X/N."""
    monkeypatch.setattr("posgeom.folded_columns.FREQUENT", frequent)  # all tokens, some, or none
    monkeypatch.setattr("posgeom.smoothing._BLOCK", stretch * 8)
    monkeypatch.setattr("posgeom.smoothing._SUMS", stretch)
    monkeypatch.setattr("posgeom.smoothing.SAMPLED", 40)
    monkeypatch.setattr("posgeom.smoothing._STRETCH", stretch)
    monkeypatch.setattr("posgeom.smoothing._PART", stretch // 3)
    counts = draw_counts(SyntheticCorpus("blocks", 12, 300, 3_000), folds=8)
    gram = fold_gram(counts)
    sets = np.stack([balanced_splits(8)[0], ~balanced_splits(8)[0], balanced_splits(8)[3]])
    C = counts.counts.toarray().reshape(8, 12, -1).astype(float)
    totals = C.sum(axis=(0, 1))
    C = C[:, :, np.argsort(totals, kind="stable")[(totals <= 1).sum() :]]
    met = []
    with side_by_side(12) as each:
        smoothed = FoldedTokens.of(gram.source).smooth(sets, gram, 2, each)
        for some, Z in smoothed.stretches(each):
            met += some.tolist()
            for B, z, folds in zip(smoothed.B.astype(float), Z, sets, strict=True):
                N = counts.fold_totals[folds].sum(axis=0)
                X = C[folds].sum(axis=0)[:, some]
                right = np.linalg.lstsq(B * np.sqrt(N)[:, None], X / np.sqrt(N)[:, None])[0].T
                np.testing.assert_allclose(z, right, atol=1e-4 * np.abs(right).max())
    assert sorted(met) == list(range(C.shape[2]))
