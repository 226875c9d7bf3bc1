"""The test of stationarity: its size without structure, its power with it, its sums by hand."""

import numpy as np
import pytest
from scipy.stats import kstest

from posgeom import Document, PosgeomError, SyntheticCorpus, count_positions
from posgeom.fold_gram import fold_gram
from posgeom.simulation import draw_counts
from posgeom.stationarity import (
    balanced_signs,
    largest_eigenvalues,
    stationarity_test,
)


def p_value(counts, seed=0, draws=199):
    return stationarity_test(fold_gram(counts), seed=seed, draws=draws).p_value


@pytest.mark.parametrize("shape", ["blocks", "mixture", "line", "decay", "periodic", "circle"])
def test_structure_is_found_and_its_dimensions_counted(shape):
    corpus = SyntheticCorpus(shape, documents=7_000, shortening=0.8)
    test = stationarity_test(fold_gram(draw_counts(corpus)))
    assert test.p_value <= 0.01
    true_rank = {"blocks": 2, "mixture": 2, "line": 1, "decay": 1, "periodic": 7, "circle": 2}
    assert test.significant in (true_rank[shape], true_rank[shape] + 1)


def test_falling_lengths_are_no_structure():
    corpora = (SyntheticCorpus("none", documents=2_000, shortening=0.9, seed=s) for s in range(8))
    p = np.array([p_value(draw_counts(corpus)) for corpus in corpora])
    assert (p <= 0.05).sum() <= 2  # more in 0.6% of the cases


@pytest.mark.slow
def test_p_values_are_even_without_structure():
    """Rejects in 3 to 7% of the runs at 5%, up to chance over 200 of them."""
    p = [
        p_value(draw_counts(SyntheticCorpus("none", vocabulary=500, documents=1_000, seed=s)), s)
        for s in range(200)
    ]
    assert kstest(p, "uniform").pvalue > 0.001
    assert 0.01 <= np.mean(np.array(p) <= 0.05) <= 0.095


def sentence_pieces(seed, groups=150, pieces=8):
    """Phrases cut out of sentences whose words stand in any order: rows that hang together."""
    rng = np.random.default_rng(seed)
    zipf = 1 / np.arange(1, 301)
    for g in range(groups):
        sentence = rng.choice(300, size=20, p=zipf / zipf.sum())
        for _ in range(pieces):
            start = rng.integers(0, 12)
            yield Document(sentence[start : start + 8], group=str(g))


@pytest.mark.slow
def test_groups_of_correlated_rows_do_not_look_like_structure():
    p = [p_value(count_positions(sentence_pieces(s), positions=8), s) for s in range(100)]
    assert np.mean(np.array(p) <= 0.05) <= 0.11  # 5% up to chance over 100 runs
    assert kstest(p, "uniform").pvalue > 0.001


def test_eight_folds_have_thirty_five_halvings_each_taken_once():
    signs = balanced_signs(8, 499, np.random.default_rng(0))
    assert signs.shape == (35, 8)
    assert not signs.sum(axis=1).any()
    assert len({tuple(row) for row in signs}) == 35
    assert balanced_signs(16, 50, np.random.default_rng(0)).shape == (50, 16)


def test_few_folds_do_not_make_structure():
    """A p value of 3 halvings, drawn again and again, would look like one of 500."""
    gram = fold_gram(draw_counts(SyntheticCorpus("none", documents=500), folds=4))
    with pytest.raises(PosgeomError, match="4 folds came; it takes 8"):
        stationarity_test(gram)
    p = [
        p_value(draw_counts(SyntheticCorpus("none", 8, 40, 400, seed=s), folds=8))
        for s in range(150)
    ]
    assert np.mean(np.array(p) <= 0.05) <= 0.11  # 5% up to chance over 150 runs
    assert min(p) >= 1 / 36


def test_equal_seeds_give_equal_answers():
    gram = fold_gram(draw_counts(SyntheticCorpus(documents=500)))
    one, two = (stationarity_test(gram, seed=3, draws=50) for _ in range(2))
    assert (one.p_value, one.limit) == (two.p_value, two.limit)


def test_the_eigenvalues_are_held_against_noise_that_is_drawn_by_hand():
    counts = draw_counts(SyntheticCorpus("decay", 6, 300, 900), folds=8)
    gram = fold_gram(counts)

    def total(weights):
        return next(gram.of_sums(lambda M: M, weights[None]))[0].astype(float)

    Y = [total(np.outer(e, e)) for e in np.eye(8)]  # Y_k Y_kᵀ
    tops = []
    for s in balanced_signs(8, 99, np.random.default_rng(5)).astype(float):
        signed = total(np.outer(s, s)) - sum(Y)
        across = total(np.ones((8, 8))) - sum(Y)
        tops.append(np.linalg.eigvalsh(signed + across / 7)[-1] / np.sqrt(1 - 1 / 49))
    test = stationarity_test(gram, seed=5, draws=99)
    assert test.typical == pytest.approx(np.median(tops), rel=1e-4)
    np.testing.assert_allclose(test.eigenvalues, np.linalg.eigvalsh(across)[::-1], atol=1e-3)
    assert test.p_value == (1 + sum(np.array(tops) >= test.eigenvalues[0])) / (len(tops) + 1)


def test_the_largest_of_equal_eigenvalues_is_not_lost():
    for n in (128, 200):
        M = (np.eye(n) - 1 / n).astype(np.float32)
        assert largest_eigenvalues(M[None])[0] == pytest.approx(1, rel=1e-5)


def off(M):
    """By how much the largest eigenvalue found is off, in parts of the largest one by size."""
    M = M.astype(np.float32)
    right = np.linalg.eigvalsh(M.astype(float))
    return abs(largest_eigenvalues(M[None])[0] - right[-1]) / max(np.abs(right).max(), 1e-37)


@pytest.mark.parametrize("scale", [1e-30, 1e-16, 1e9])
def test_largest_eigenvalues_are_found_at_every_scale(scale):
    """Squares of the smallest are below what float32 holds, those of the largest above."""
    ones = np.full((129, 129), 1.0)
    two = np.diag(np.repeat([-1.0, 1.0], [60, 69]))
    for M in (np.eye(129), -np.eye(129), two, ones, -ones - np.eye(129)):
        assert off(scale * M) < 1e-5


@pytest.mark.parametrize("n", [1, 2, 40, 200, 600])
def test_the_largest_eigenvalues_are_those_of_a_decomposition(n):
    rng = np.random.default_rng(n)
    noise = rng.standard_normal((n, n))
    product = noise @ noise.T
    for M in (noise + noise.T, product, -product, np.zeros((n, n)), np.diag(np.arange(n) == 0)):
        assert off(M) < 3e-5
    together = np.stack([noise + noise.T, np.zeros((n, n)), product]).astype(np.float32)
    alone = [largest_eigenvalues(M[None])[0] for M in together]
    np.testing.assert_allclose(largest_eigenvalues(together), alone, rtol=1e-5)


def test_few_positions_are_held_against_499_draws_and_many_against_199():
    for positions, draws in ((20, 499), (140, 199)):
        counts = draw_counts(SyntheticCorpus("mixture", positions, 300, 6_000))
        assert stationarity_test(fold_gram(counts)).p_value == pytest.approx(1 / (draws + 1))
