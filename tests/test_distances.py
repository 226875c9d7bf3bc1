"""Distances against textbook sums, closed forms and SciPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist, jensenshannon
from scipy.stats import binom

from posgeom import PosgeomError, distances
from posgeom.distances import (
    METRICS,
    fisher_rao,
    hellinger,
    hellinger_normalised,
    jensen_shannon,
    squared_hellinger,
    total_variation,
)

BOUNDS = {
    "hellinger": np.sqrt(2),
    "hellinger-normalised": 1,
    "fisher-rao": np.pi,
    "jensen-shannon": np.sqrt(np.log(2)),
    "total-variation": 1,
}


@st.composite
def profiles(draw):
    """Rows of distributions, many zeros among them."""
    n, V = draw(st.integers(2, 6)), draw(st.integers(1, 8))
    W = draw(arrays(np.int64, (n, V), elements=st.integers(0, 20)))
    W[:, draw(st.integers(0, V - 1))] += 1
    return W / W.sum(axis=1, keepdims=True)


def textbook(P, metric):
    """The definition, pair by pair."""
    n = len(P)
    D = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            p, q = P[i], P[j]
            bc = min(np.sqrt(p * q).sum(), 1)
            D[i, j] = {
                "hellinger": np.linalg.norm(np.sqrt(p) - np.sqrt(q)),
                "hellinger-normalised": np.sqrt(1 - bc),
                "fisher-rao": 2 * np.arccos(bc),
                "jensen-shannon": jensenshannon(p, q) if i != j else 0,
                "total-variation": np.abs(p - q).sum() / 2,
            }[metric]
    return D


@pytest.mark.parametrize("metric", METRICS)
@given(P=profiles())
@settings(deadline=None)
def test_every_metric_is_its_textbook_sum(metric, P):
    # the textbook forms lose half of the digits near 0, hence the absolute tolerance
    np.testing.assert_allclose(METRICS[metric](P), np.nan_to_num(textbook(P, metric)), atol=5e-8)


@pytest.mark.parametrize("metric", METRICS)
@given(P=profiles())
@settings(deadline=None)
def test_every_metric_is_a_metric(metric, P):
    D = METRICS[metric](P)
    assert np.array_equal(D, D.T)
    assert not D.diagonal().any()
    assert (D >= 0).all()
    assert (BOUNDS[metric] + 1e-12 >= D).all()
    # d(i, k) <= d(i, j) + d(j, k) for all triples
    assert (D[:, None, :] <= D[:, :, None] + D[None, :, :] + 1e-7).all()


@pytest.mark.parametrize("metric", METRICS)
def test_disjoint_rows_are_as_far_apart_as_can_be(metric):
    D = METRICS[metric](np.eye(3))
    np.testing.assert_allclose(D[np.triu_indices(3, 1)], BOUNDS[metric])


def test_chord_and_geodesic_are_two_distances():
    P = np.eye(2)
    assert hellinger(P)[0, 1] == pytest.approx(np.sqrt(2))
    assert fisher_rao(P)[0, 1] == pytest.approx(np.pi)


@pytest.mark.parametrize("metric", METRICS)
def test_equal_rows_are_at_distance_zero_up_to_rounding(metric):
    P = np.random.default_rng(0).dirichlet(np.ones(500))
    D = METRICS[metric](np.tile(P, (5, 1)))
    assert D.max() < 1e-7


def test_small_distances_keep_their_digits():
    """2 − 2·BC would leave no digit of a distance of 1e-9."""
    P = np.full((2, 1_000), 1e-3)
    P[1, 0] += 1e-12
    P[1, 1] -= 1e-12
    expected = np.sqrt(2) * 1e-12 / (2 * np.sqrt(1e-3))
    assert hellinger(P)[0, 1] == pytest.approx(expected, rel=1e-3)


def test_blocks_of_columns_do_not_show(monkeypatch):
    P = np.random.default_rng(1).dirichlet(np.full(300, 0.1), 20)
    whole = squared_hellinger(P)
    monkeypatch.setattr(distances, "_BLOCK", 20 * 7)
    np.testing.assert_allclose(squared_hellinger(P), whole, atol=1e-14)
    np.testing.assert_allclose(whole, cdist(np.sqrt(P), np.sqrt(P), "sqeuclidean"), atol=1e-14)


@pytest.mark.parametrize("metric", METRICS)
def test_sparse_and_dense_agree_and_the_input_stays(metric):
    P = np.random.default_rng(2).dirichlet(np.full(40, 0.05), 10)
    S = csr_array(P)
    before = S.copy()
    np.testing.assert_allclose(METRICS[metric](S), METRICS[metric](P), atol=1e-12)
    assert np.array_equal(S.data, before.data)


@pytest.mark.parametrize(
    ("P", "words"),
    [
        ([[0.5, 0.5], [0.0, 0.0]], "row 1 .* sums to 0"),
        ([[0.5, 0.4], [1.0, 0.0]], "row 0 .* sums to 0.9"),
        ([[1.5, -0.5], [1.0, 0.0]], "negative"),
        ([[np.nan, 1.0], [1.0, 0.0]], "NaN"),
    ],
)
def test_rows_that_are_no_distributions_are_refused(P, words):
    with pytest.raises(PosgeomError, match=words):
        hellinger(P)


def test_tiny_negative_entries_are_rounding():
    D = hellinger([[1.0, -1e-15], [0.0, 1.0]])
    assert D[0, 1] == pytest.approx(np.sqrt(2))


def zipf_noise(tokens, samples=8):
    """Mean normalised Hellinger distance between samples of one Zipf law of 50,000 types."""
    rng = np.random.default_rng(0)
    zipf = 1 / np.arange(1, 50_001)
    P = rng.multinomial(tokens, zipf / zipf.sum(), size=samples) / tokens
    return hellinger_normalised(csr_array(P))[np.triu_indices(samples, 1)].mean()


@pytest.mark.parametrize(("tokens", "expected"), [(1_000, 0.72), (10_000, 0.57), (100_000, 0.36)])
def test_two_samples_of_one_zipf_source_lie_far_apart(tokens, expected):
    """The noise that plug-in distances are made of."""
    assert zipf_noise(tokens) == pytest.approx(expected, abs=0.01)


def test_the_distance_between_two_samples_is_the_expected_one():
    """E d² = 1 − Σ_v (E√(X_v / N))² for the normalised distance, X_v binomial."""
    N, zipf = 100, 1 / np.arange(1, 50_001)
    k = np.arange(1, 61)  # the commonest type has 9 of 100 tokens on average
    roots = binom.pmf(k[:, None], N, zipf / zipf.sum()).T @ np.sqrt(k / N)
    assert zipf_noise(N, 60) == pytest.approx(np.sqrt(1 - roots @ roots), abs=0.01)


def test_known_values():
    """p = (1, 0), q = (1/2, 1/2): BC = √½."""
    P = [[1, 0], [0.5, 0.5]]
    assert hellinger(P)[0, 1] == pytest.approx(np.sqrt(2 - np.sqrt(2)))
    assert fisher_rao(P)[0, 1] == pytest.approx(np.pi / 2)
    assert total_variation(P)[0, 1] == pytest.approx(0.5)
    # ½ Σ p log p/m + ½ Σ q log q/m with m = (3/4, 1/4)
    js = 0.5 * np.log(4 / 3) + 0.25 * np.log(2 / 3) + 0.25 * np.log(2)
    assert jensen_shannon(P)[0, 1] == pytest.approx(np.sqrt(js))
