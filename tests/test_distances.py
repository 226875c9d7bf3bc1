"""Distances against textbook sums, closed forms and SciPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist, jensenshannon
from scipy.stats import binom

from posgeom import PosgeomError, distances, root_profiles
from posgeom.distances import (
    METRICS,
    fisher_rao,
    hellinger,
    hellinger_normalised,
    jensen_shannon,
    squared_hellinger,
    total_variation,
)
from posgeom.root_profiles import RootProfiles

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


def sparse_profiles(n, V, seed=0):
    """Rows over a vocabulary with tokens that all rows hold, many hold, few hold and none does."""
    rng = np.random.default_rng(seed)
    W = rng.poisson(np.geomspace(20, 0.005, V), (n, V)).astype(float)
    W[:, 0] += 1
    return W / W.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("n", "tile"), [(23, 7), (21, 7), (40, 64)])
@pytest.mark.parametrize("single", [False, True])
def test_tiles_are_the_textbook_sum(monkeypatch, n, tile, single):
    monkeypatch.setattr(root_profiles, "TILE", tile)
    P = sparse_profiles(n, 200)
    roots = RootProfiles.of(csr_array(np.sqrt(P)), single=single)
    assert roots.frequent.shape[1] > 0 < roots.rare.shape[1]
    D2 = roots.all_squared()
    expected = cdist(np.sqrt(P), np.sqrt(P), "sqeuclidean")
    np.testing.assert_allclose(D2, expected, rtol=2e-6 if single else 1e-12, atol=1e-14)
    assert np.array_equal(D2, D2.T)
    assert not D2.diagonal().any()


def test_products_with_the_gram_matrix_are_its_own():
    S = np.sqrt(sparse_profiles(30, 200))
    Y = np.random.default_rng(1).standard_normal((30, 4))
    X = S - S.mean(axis=0)
    np.testing.assert_allclose(
        RootProfiles.of(csr_array(S)).gram_times(Y), X @ (X.T @ Y), atol=1e-13
    )


@pytest.mark.parametrize("apart", [1e-1, 1e-3, 1e-4])
def test_float32_keeps_the_digits_of_near_rows(apart):
    """Within 1e-5 of the distance, between rows that are far apart and nearly equal ones."""
    rng = np.random.default_rng(2)
    groups = rng.gamma(1, size=(4, 300))
    W = groups[np.arange(40) % 4] * (1 + apart * rng.random((40, 300)))
    S = np.sqrt(W / W.sum(axis=1, keepdims=True))
    D2 = RootProfiles.of(csr_array(S), single=True).all_squared()
    expected = cdist(S, S, "sqeuclidean")
    np.testing.assert_allclose(np.sqrt(D2), np.sqrt(expected), rtol=1e-5)


def test_rows_at_the_mean_do_not_hide_near_ones():
    """Eight rows are the mean itself, and have no square to be near to."""
    x, t = np.random.default_rng(0).integers(0, 1_024, (1, 64)) / 1_024, 2.0**-20
    S = np.vstack([1 + x, 1 + x + t, 1 - x, 1 - x - t, np.ones((8, 64))])
    D2 = RootProfiles.of(csr_array(S), single=True).all_squared()
    np.testing.assert_allclose(D2, cdist(S, S, "sqeuclidean"), rtol=1e-5)


def test_many_rows_are_the_same_as_few():
    """From a thousand rows on distances are made in tiles, by several threads."""
    P = sparse_profiles(1_100, 400, seed=3)
    D = hellinger(csr_array(P))
    np.testing.assert_allclose(D[:50, :50], hellinger(P[:50]), rtol=1e-12, atol=1e-7)
    np.testing.assert_allclose(D, cdist(np.sqrt(P), np.sqrt(P)), atol=1e-12)
