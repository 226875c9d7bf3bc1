"""Distances without noise, held against known truths and plain computations."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array

from posgeom import PosgeomError, SyntheticCorpus, count_positions, estimate_geometry, true_geometry
from posgeom.debias import (
    RARE,
    balanced_splits,
    debiased_squares,
    n_common,
    smoothing_rank,
)
from posgeom.fold_gram import fold_gram
from posgeom.folded_columns import FoldedColumns
from posgeom.inference import condensed, jackknife, jackknife_se, stress_of
from posgeom.simulation import draw_counts
from posgeom.stationarity import stationarity_test


@pytest.mark.parametrize("K", [2, 4, 16])
def test_splits_are_balanced(K):
    splits = balanced_splits(K)
    assert splits.shape == (K - 1, K)
    assert (splits.sum(axis=1) == K // 2).all()
    together = (splits[:, :, None] == splits[:, None, :]).sum(axis=0)
    assert set(together[~np.eye(K, dtype=bool)]) <= {K // 2 - 1}


def plain_gram(counts):
    """Inner products of the deviations of all folds and positions, (K, n, K, n), in float64."""
    K, n = counts.n_folds, counts.n_positions
    C = counts.counts.toarray().reshape(K, n, -1).astype(float)
    C = C[:, :, C.sum(axis=(0, 1)) > 1]
    N = counts.fold_totals.astype(float)
    share = N / N.sum(axis=1, keepdims=True)
    Y = C - share[:, :, None] * C.sum(axis=1, keepdims=True)
    Y /= np.sqrt(N.sum(axis=0))[:, None]
    Y /= np.sqrt(C.sum(axis=(0, 1)) / N.sum() + 1 / N.sum(axis=0).mean())
    return np.einsum("kiv,ljv->kilj", Y, Y, optimize=True)


def by_hand(counts, gram, rank, kept, N_gram):
    """One half against the other, for each split, in float64 and without blocks.

    N_gram: (n,) tokens of the counts that the rows of gram were scaled by.
    """
    K, n = counts.n_folds, counts.n_positions
    C = counts.counts.toarray().reshape(K, n, -1).astype(float)
    C = C[:, :, C.sum(axis=(0, 1)) > 1]
    N = counts.fold_totals.astype(float)
    squares = []
    for first in balanced_splits(K):
        roots = []
        for half in (first & kept, ~first & kept):
            own = gram[half][:, :, half].sum(axis=(0, 2))
            U = np.linalg.eigh((own + own.T) / 2)[1][:, -rank:]
            W = np.diag(N[half].sum(axis=0))
            B = np.column_stack([np.ones(n), np.linalg.inv(W) @ np.diag(N_gram**0.5) @ U])
            p = np.maximum(B @ np.linalg.solve(B.T @ W @ B, B.T @ C[half].sum(axis=0)), 0)
            roots.append(np.sqrt(p / p.sum(axis=1, keepdims=True)))
        a, b = roots
        squares.append([[(a[i] - a[j]) @ (b[i] - b[j]) for j in range(n)] for i in range(n)])
    return np.array(squares)


def test_squares_and_replicates_are_those_of_a_plain_computation():
    counts = draw_counts(SyntheticCorpus(vocabulary=60, documents=800, positions=6), folds=8)
    gram = plain_gram(counts)
    found = debiased_squares(counts, fold_gram(counts), 2)
    everything = np.ones(8, dtype=bool)
    N = counts.totals.astype(float)
    each = by_hand(counts, gram, 2, everything, N)
    np.testing.assert_allclose(found.squared, each.mean(axis=0), atol=2e-5)
    for k in (0, 5):
        without = by_hand(counts, gram, 2, np.arange(8) != k, N)[:3].mean(axis=0)
        np.testing.assert_allclose(found.replicates[k], without, atol=2e-5)
    assert len(found.halves) == 6
    for h, half in ((0, balanced_splits(8)[0]), (5, ~balanced_splits(8)[2])):
        rows = np.arange(48).reshape(8, 6)[half].ravel()
        of_half = replace(counts, counts=counts.counts[rows], n_folds=4)
        own = by_hand(of_half, gram[half][:, :, half], 2, np.ones(4, dtype=bool), N)
        np.testing.assert_allclose(found.halves[h], own.mean(axis=0), atol=2e-5)


@pytest.mark.parametrize("shape", ["blocks", "mixture", "decay", "periodic", "circle"])
def test_squared_distances_come_out_right_where_plugin_ones_are_noise(shape):
    corpus = SyntheticCorpus(shape, vocabulary=2_000, documents=7_000, shortening=0.8)
    counts, truth = draw_counts(corpus), condensed(true_geometry(corpus.profiles).squared)
    debiased, plugin = (estimate_geometry(counts, e).squared for e in ("debiased", "plugin"))
    assert condensed(debiased).mean() == pytest.approx(truth.mean(), rel=0.06)
    assert condensed(plugin).mean() > 1.4 * truth.mean()


def test_alike_positions_have_squares_on_both_sides_of_zero():
    corpus = SyntheticCorpus("blocks", documents=7_000, positions=30)
    squared = estimate_geometry(draw_counts(corpus)).squared
    same = condensed(true_geometry(corpus.profiles).squared) < 1e-9
    within = condensed(squared)[same]
    assert 0.2 < (within < 0).mean() < 0.8
    assert abs(within.mean()) < 0.02 * condensed(squared)[~same].mean()


def test_lumped_squares_are_those_of_counts_whose_rare_tokens_are_one():
    counts = draw_counts(SyntheticCorpus("mixture", 12, 1_000, 3_000, 1.0, 0.5))
    gram = fold_gram(counts)
    found = debiased_squares(counts, gram, 2)
    totals = np.asarray(counts.counts.sum(axis=0))
    rare = totals < 2 * 12 * RARE
    C = counts.counts.toarray()
    few = np.column_stack([C[:, ~rare], C[:, rare].sum(axis=1)])
    expected = debiased_squares(replace(counts, counts=csr_array(few)), gram, 2)
    assert 20 < (~rare).sum() < 200
    np.testing.assert_allclose(found.lumped, expected.squared, atol=1e-7)
    np.testing.assert_allclose(expected.lumped, expected.squared, atol=1e-7)
    assert np.abs(found.lumped - found.squared).max() > 1e-3


def test_of_a_flat_vocabulary_a_quarter_stays():
    """Of 400 words a position, all rare: a quarter is left to compare with, and agrees."""
    rng = np.random.default_rng(0)
    words = rng.integers(0, 400, (2_000, 16)) + 400 * (np.arange(16) // 4)
    counts = count_positions([" ".join(f"w{w}" for w in line) for line in words], positions=16)
    totals = np.asarray(counts.counts.sum(axis=0))
    assert not (totals >= 2 * 16 * RARE).any()
    columns = FoldedColumns.of(counts)
    common = n_common(columns)
    assert 0.25 <= columns.totals[-common:].sum() / totals.sum() < 0.26

    ramp = condensed(np.abs(np.subtract.outer(np.arange(16.0), np.arange(16))))
    fit = jackknife(stress_of(ramp), estimate_geometry(counts), bounds=(0, 1))
    assert 0 < fit.high - fit.low < 0.1


def test_a_corpus_without_rare_tokens_has_nothing_to_lump():
    """Letters: the same distances, so that no interval widens."""
    corpus = SyntheticCorpus("mixture", 8, 20, 4_000)
    found = estimate_geometry(draw_counts(corpus))
    np.testing.assert_allclose(found.lumped, found.squared, atol=1e-7)


@pytest.mark.slow
def test_alike_positions_have_no_distance_in_the_mean():
    """Also where the halves of the folds do not have the same share of each position's tokens."""
    means = []
    for seed in range(12):
        corpus = SyntheticCorpus("blocks", 32, 2_000, 2_000, shortening=0.8, seed=seed)
        squared = condensed(estimate_geometry(draw_counts(corpus), seed=seed).squared)
        same = condensed(true_geometry(corpus.profiles).squared) < 1e-9
        means.append(squared[same].mean() / squared[~same].mean())
    assert abs(np.mean(means)) < 2.5 * np.std(means) / np.sqrt(len(means))


def test_errors_shrink_with_the_root_of_the_documents():
    """More documents, smaller spread of the replicates."""
    spreads = []
    for documents in (2_000, 8_000, 32_000):
        g = estimate_geometry(draw_counts(SyntheticCorpus("mixture", documents=documents)))
        spreads.append(np.std([condensed(r).mean() for r in g.replicates]))
    for more, fewer in pairwise(spreads):
        assert 1.2 < more / fewer < 4


def test_a_corpus_without_structure_has_no_distances():
    g = estimate_geometry(draw_counts(SyntheticCorpus("none", documents=5_000, seed=1)))
    assert not g.has_structure
    assert not g.squared.any()


def test_tokens_that_came_once_cannot_be_forced_into_distances():
    counts = count_positions([" ".join(f"w{8 * d + i}" for i in range(8)) for d in range(200)])
    assert not estimate_geometry(counts).squared.any()
    with pytest.raises(PosgeomError, match="no token came twice"):
        estimate_geometry(counts, force=True)


def test_two_alike_positions_are_forced_apart_in_numbers():
    """Their one direction may be the same at both, and hold nothing beside the mean."""
    for seed in range(10):
        counts = draw_counts(SyntheticCorpus("none", 2, 3, 60, seed=seed), folds=16)
        assert np.isfinite(estimate_geometry(counts, force=True).squared).all()


def test_small_vocabularies_with_many_documents_need_no_correction():
    corpus = SyntheticCorpus("mixture", vocabulary=6, documents=20_000)
    counts = draw_counts(corpus)
    debiased, plugin = (estimate_geometry(counts, e).squared for e in ("debiased", "plugin"))
    np.testing.assert_allclose(debiased, plugin, atol=0.02 * plugin.max())


def test_metrics_of_the_root_are_functions_of_the_chord():
    counts = draw_counts(SyntheticCorpus("blocks", documents=3_000))
    chord, half, geodesic = (
        estimate_geometry(counts, metric=m)
        for m in ("hellinger", "hellinger-normalised", "fisher-rao")
    )
    np.testing.assert_allclose(half.squared, chord.squared / 2)
    np.testing.assert_allclose(geodesic.distances, 4 * np.arcsin(chord.distances / 2), atol=1e-12)
    with pytest.raises(PosgeomError, match="no debiased estimate"):
        estimate_geometry(counts, metric="total-variation")


def test_few_documents_fall_back_to_plugin_and_say_so():
    g = estimate_geometry(count_positions(["a b", "a a", "c a"], positions=2))
    assert g.estimator == "plugin"
    assert "noise cannot be told from geometry" in g.notes[-1]
    assert g.stationarity is None


def test_positions_that_few_folds_reach_are_left_out():
    documents = [f"w{i % 7} w{i % 5} w{i % 3}" for i in range(300)] + ["a b c d", "e f g h"]
    g = estimate_geometry(count_positions(documents, positions=4))
    assert g.positions.tolist() == [0, 1, 2]
    assert "positions 3 have no token in one of 8 folds" in g.notes[0]


def test_a_group_that_is_most_of_the_corpus_is_told():
    from posgeom import Document

    documents = [Document(f"w{i % 7} w{i % 5}", "big" if i % 3 else f"g{i}") for i in range(900)]
    g = estimate_geometry(count_positions(documents, positions=2))
    assert any("the errors are too small" in note for note in g.notes)


def test_the_order_of_folds_leaves_the_estimate_alone():
    counts = draw_counts(SyntheticCorpus("mixture", documents=3_000))
    gram = fold_gram(counts)
    rank = stationarity_test(gram).significant
    found = debiased_squares(counts, gram, rank)
    np.testing.assert_allclose(found.squared, found.squared.T)
    assert not found.squared.diagonal().any()


def test_letters_are_not_smoothed_and_words_are():
    letters = draw_counts(SyntheticCorpus(vocabulary=6, documents=5_000))
    words = draw_counts(SyntheticCorpus(vocabulary=2_000, documents=5_000))
    assert smoothing_rank(FoldedColumns.of(letters), 2) == 31
    assert smoothing_rank(FoldedColumns.of(words), 2) == 2


@pytest.mark.parametrize(("shape", "rank"), [("mixture", 2), ("decay", 1), ("periodic", 7)])
def test_many_positions_are_combined_of_some_without_spoiling_a_number(monkeypatch, shape, rank):
    """Of 144 positions some are computed; measures move by little of their errors."""
    counts = draw_counts(SyntheticCorpus(shape, 144, 1_500, 4_000, shortening=0.5), folds=8)
    gram = fold_gram(counts)
    for module in ("combined_roots", "smoothing"):
        monkeypatch.setattr(f"posgeom.{module}.SMALL", 144)
    every = debiased_squares(counts, gram, rank)
    for module in ("combined_roots", "smoothing"):
        monkeypatch.setattr(f"posgeom.{module}.SMALL", 48)
    some = debiased_squares(counts, gram, rank)
    assert not np.array_equal(every.squared, some.squared)
    ramp = condensed(np.abs(np.subtract.outer(np.arange(144.0), np.arange(144))))
    for measure in (stress_of(ramp), lambda s: s.mean(axis=-1)):
        numbers = [
            [measure(np.stack([condensed(D2) for D2 in group])) for group in groups]
            for groups in ((of.squared[None], of.replicates, of.halves) for of in (every, some))
        ]
        (value, each, half), (near, each_near, half_near) = numbers
        se = jackknife_se(each)
        assert abs(near - value) < 0.05 * se
        assert abs(jackknife_se(each_near) / se - 1) < 0.05
        assert abs(half_near.mean() - half.mean()) < 0.05 * se
        lumped, lumped_near = (measure(condensed(of.lumped)) for of in (every, some))
        assert abs(lumped_near - lumped) < 0.05 * se


def test_how_the_work_is_cut_leaves_the_estimate_alone(monkeypatch):
    """Sets of folds in batches, tokens in stretches and blocks, jobs on one thread or three."""
    counts = draw_counts(SyntheticCorpus("mixture", 144, 400, 20_000), folds=8)
    gram = fold_gram(counts)
    whole = debiased_squares(counts, gram, 2)
    monkeypatch.setattr("posgeom.smoothing._SPREAD", 60_000)
    for limit in ("_STRETCH", "_BLOCK", "_SUMS", "_PART"):
        monkeypatch.setattr(f"posgeom.smoothing.{limit}", 9_000)
    monkeypatch.setattr("posgeom.debias._CACHED", 5_000)
    monkeypatch.setattr("posgeom.side_by_side.threads", lambda libraries: 3)
    cut = debiased_squares(counts, gram, 2)
    for key in ("squared", "replicates", "halves", "lumped"):
        a, b = getattr(whole, key), getattr(cut, key)
        # float32 sums of another order turn the directions a little
        np.testing.assert_allclose(a, b, atol=3e-5 * np.abs(a).max())


def test_the_bias_of_many_positions_is_taken_from_one_halving_as_of_few_from_three(monkeypatch):
    counts = draw_counts(SyntheticCorpus("mixture", 132, 400, 10_000), folds=8)
    gram = fold_gram(counts)
    one = debiased_squares(counts, gram, 2)
    monkeypatch.setattr("posgeom.debias.SMALL", 132)
    three = debiased_squares(counts, gram, 2)
    assert (len(one.halves), len(three.halves)) == (2, 6)
    scale = three.squared.max()
    np.testing.assert_allclose(one.halves, three.halves[:2], atol=1e-5 * scale)
    np.testing.assert_allclose(one.squared, three.squared, atol=1e-5 * scale)
    np.testing.assert_allclose(one.replicates, three.replicates, atol=1e-5 * scale)
