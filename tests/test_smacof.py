"""Stress majorisation against scikit-learn, the Guttman transform, gradients and known minima."""

import os
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from sklearn.manifold import smacof as reference

from posgeom import (
    PosgeomError,
    SyntheticCorpus,
    classical_mds,
    count_positions,
    estimate_geometry,
    true_geometry,
)
from posgeom.distances import fisher_rao, hellinger
from posgeom.smacof import first_axes, principal_axes, smacof
from posgeom.stress import raw_stress, stress

ONE_HOT = hellinger(np.eye(3))


def points(n, k, seed=0):
    return np.random.default_rng(seed).standard_normal((n, k))


def symmetric_noise(n, seed=0):
    N = np.abs(np.random.default_rng(seed).standard_normal((n, n)))
    return (N + N.T) * (1 - np.eye(n))


def distances(X):
    return cdist(X, X)


def of(X, D, W=1.0):
    """Σ w (δ − D)² / Σ w D², by the definition."""
    return (W * (distances(X) - D) ** 2).sum() / (W * D**2).sum()


def matrices(n):
    """Distances of ten kinds, simulated and of known distributions."""
    X = points(n, 4)
    made = {
        "noise": symmetric_noise(n),
        "Euclidean + noise": distances(X) + symmetric_noise(n, 1) / 4,
        "city block": cdist(X, X, "cityblock"),
        "largest coordinate": cdist(X, X, "chebyshev"),
        "one-hot": hellinger(np.eye(n)),
        "geodesic": fisher_rao(np.random.default_rng(0).dirichlet(np.full(5, 0.3), n)),
    }
    for shape in ("decay", "line", "periodic", "circle"):
        made[shape] = true_geometry(SyntheticCorpus(shape, n, 300).profiles).distances
    return made


KINDS = sorted(matrices(8))


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_no_more_stress_than_scikit_learn_from_the_same_start(kind, rank):
    """To 1e-10 of Σ D²: where the start fits perfectly both leave rounding."""
    D = matrices(40)[kind]
    start = first_axes(classical_mds(D), rank)
    _, theirs = reference(D, n_components=rank, init=start, n_init=1, normalized_stress=False)
    ours = smacof(D, rank, start=start)
    assert ours.raw_stress <= theirs * 2 / (D**2).sum() + 1e-10


@pytest.mark.skipif("POSGEOM_DATA" not in os.environ, reason="POSGEOM_DATA is not set")
@pytest.mark.parametrize("estimator", ["plugin", "debiased"])
@pytest.mark.parametrize(
    ("file", "column", "tokenizer", "n"),
    [
        ("sst2/sst2_sentences_train.parquet", "sentence", "words", 32),
        ("dna/uci_splice.parquet", "sequence", "chars", 60),
    ],
)
def test_no_more_stress_than_scikit_learn_on_real_corpora(file, column, tokenizer, n, estimator):
    texts = pd.read_parquet(Path(os.environ["POSGEOM_DATA"]) / file)[column]
    D = estimate_geometry(count_positions(list(texts), tokenizer, n), estimator).distances
    start = first_axes(classical_mds(D), 3)
    _, theirs = reference(D, n_components=3, init=start, n_init=1, normalized_stress=False)
    assert smacof(D, 3, start=start).raw_stress <= theirs * 2 / (D**2).sum()


@given(st.integers(2, 15), st.integers(1, 4), st.integers(0, 999), st.booleans())
@settings(deadline=None, max_examples=60)
def test_never_above_its_start_and_what_it_says(n, rank, seed, weighted):
    rank = min(rank, n - 1)
    D, start = symmetric_noise(n, seed), points(n, rank, seed + 1)
    W = symmetric_noise(n, seed + 2) if weighted else None
    found = smacof(D, rank, weights=W, start=start)
    w = 1.0 if W is None else W
    assert found.raw_stress <= of(start, D, w) + 1e-12
    assert found.raw_stress == pytest.approx(of(found.coordinates, D, w), abs=1e-12)
    np.testing.assert_allclose(found.coordinates.sum(axis=0), 0, atol=1e-10 * n)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_end_is_a_fixed_point_of_the_guttman_transform(weighted):
    """X = V⁻ B(X) X with V and B written out and V⁻ by pinv."""
    n = 12
    D = symmetric_noise(n)
    W = symmetric_noise(n, 3) if weighted else 1 - np.eye(n)
    found = smacof(D, 2, weights=W if weighted else None, tolerance=1e-16)
    X = found.coordinates
    δ = distances(X) + np.eye(n)
    B = -W * D / δ
    B -= np.diag(B.sum(axis=1))
    V = np.diag(W.sum(axis=1)) - W
    np.testing.assert_allclose(np.linalg.pinv(V) @ B @ X, X, atol=1e-5)
    assert found.converged


def test_as_low_as_a_general_optimiser_that_knows_only_the_stress():
    D = symmetric_noise(10)
    start = points(10, 2)
    i, j = np.triu_indices(10, 1)

    def sigma(x):
        X = x.reshape(10, 2)
        return ((np.linalg.norm(X[i] - X[j], axis=1) - D[i, j]) ** 2).sum()

    end = smacof(D, 2, start=start, tolerance=1e-14).coordinates
    near = minimize(sigma, end.ravel(), method="BFGS", options={"gtol": 1e-9}).x.reshape(10, 2)
    assert of(end, D) == pytest.approx(of(near, D), abs=1e-9)


def test_three_one_hot_distributions_on_a_line():
    """Classical MDS leaves 1/6, the least possible is 1/9; both are 1/9 at their best scale."""
    start = np.array([[-1], [0], [1]]) / np.sqrt(2)
    assert raw_stress(distances(start), ONE_HOT) == pytest.approx(1 / 6)
    found = smacof(ONE_HOT, 1, start=start)
    assert found.raw_stress == pytest.approx(1 / 9)
    ends = np.array([-1, 0, 1]) * 8**0.5 / 3
    np.testing.assert_allclose(np.sort(found.coordinates[:, 0]), ends, atol=1e-12)
    assert stress(distances(start), ONE_HOT) == pytest.approx(1 / 9)


@pytest.mark.parametrize("seed", range(5))
def test_restarts_find_the_best_order_on_a_line(seed):
    """In one dimension every order of the points has its own minimum: here all 120 are tried."""
    n, D = 5, symmetric_noise(5, seed)
    least = 1.0
    for order in permutations(range(n)):
        x = (np.sign(np.subtract.outer(order, order)) * D).sum(axis=1) / n
        least = min(least, 1 - 2 * n * (x**2).sum() / (D**2).sum())
    assert smacof(D, 1, restarts=100).raw_stress == pytest.approx(least, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_in_full_dimension_every_start_ends_at_the_one_minimum(seed):
    """Stress is convex in the squared distances there, De Leeuw (1993)."""
    D = symmetric_noise(8, seed)
    ends = [
        smacof(D, 7, start=points(8, 7, s), tolerance=1e-13, max_iterations=5000) for s in range(3)
    ]
    np.testing.assert_allclose([e.raw_stress for e in ends], ends[0].raw_stress, atol=1e-6)


def test_distances_that_fit_are_found_exactly():
    X = points(20, 3)
    found = smacof(distances(X), 3, start=points(20, 3, 1), restarts=3, tolerance=1e-14)
    assert found.raw_stress < 1e-10
    np.testing.assert_allclose(distances(found.coordinates), distances(X), atol=1e-3)


def test_weights_of_nothing_do_not_count():
    """A pair without weight may have any distance: the others fit as if it were right."""
    X = points(9, 2)
    D, W = distances(X), 1 - np.eye(9)
    wrong = D.copy()
    wrong[0, 1] = wrong[1, 0] = 50
    W[0, 1] = W[1, 0] = 0
    found = smacof(wrong, 2, weights=W, start=X + points(9, 2, 1) / 10, tolerance=1e-14)
    np.testing.assert_allclose(distances(found.coordinates), D, atol=1e-5)


def test_equal_weights_are_no_weights():
    D = symmetric_noise(10)
    same = smacof(D, 2, weights=np.full((10, 10), 3.0))
    assert same.raw_stress == pytest.approx(smacof(D, 2).raw_stress, abs=1e-7)


def test_points_that_coincide_at_the_start_come_apart():
    start = np.zeros((4, 2))
    start[2:] = 1
    assert smacof(distances(np.eye(4)), 2, start=start).raw_stress < 0.03
    assert smacof(ONE_HOT, 2, start=np.zeros((3, 2))).raw_stress < 1e-6


def test_equal_points_stay_together():
    X = np.repeat(points(5, 2), 2, axis=0)
    found = smacof(distances(X), 2)
    assert found.raw_stress < 1e-12
    assert distances(found.coordinates)[0, 1] < 1e-6


def test_signed_distances_are_fitted_as_they_are():
    """Σ (δ − D)² with D < 0 is least where a pair lies closer than with D = 0."""
    D = distances(points(6, 2))
    D[0, 1] = D[1, 0] = -1.0
    found = smacof(D, 2, restarts=10)
    cut = smacof(np.maximum(D, 0), 2, restarts=10)
    assert found.raw_stress == pytest.approx(of(found.coordinates, D), abs=1e-9)
    assert found.raw_stress <= of(cut.coordinates, D) + 1e-9
    assert distances(found.coordinates)[0, 1] < distances(cut.coordinates)[0, 1]


def test_edges():
    two = smacof([[0, 3], [3, 0]], 1)
    np.testing.assert_allclose(two.coordinates, [[1.5], [-1.5]])
    assert two.raw_stress == pytest.approx(0, abs=1e-15)
    none = smacof(np.zeros((4, 4)), 2)
    assert (none.raw_stress, none.converged) == (0, True)
    assert not none.coordinates.any()
    assert smacof(ONE_HOT, 2).raw_stress == pytest.approx(0, abs=1e-12)
    cut = smacof(symmetric_noise(20), 2, start=points(20, 2), max_iterations=3)
    assert (cut.iterations, cut.converged) == (3, False)


def test_large_and_small_units_are_the_same():
    D, start = symmetric_noise(15), points(15, 2)
    one = smacof(D, 2, start=start)
    for unit in (2.0**-60, 2.0**60):
        scaled = smacof(D * unit, 2, start=start * unit)
        assert scaled.raw_stress == pytest.approx(one.raw_stress, abs=1e-12)


def test_equal_seeds_give_equal_bytes_and_input_is_left_alone():
    D = symmetric_noise(12)
    kept, start = D.copy(), points(12, 2)
    first, again = (smacof(D, 2, start=start, restarts=3, seed=4).coordinates for _ in range(2))
    assert first.tobytes() == again.tobytes()
    np.testing.assert_array_equal(D, kept)
    np.testing.assert_array_equal(start, points(12, 2))


def test_principal_axes_turn_and_keep_distances():
    X = points(9, 3)
    P = principal_axes(X)
    np.testing.assert_allclose(distances(P), distances(X), atol=1e-12)
    products = P.T @ P
    np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-12)
    assert (np.diff(np.diag(products)) <= 0).all()
    assert (P[np.abs(P).argmax(axis=0), range(3)] > 0).all()


def parted():
    W = np.zeros((4, 4))
    W[0, 1] = W[1, 0] = W[2, 3] = W[3, 2] = 1
    return W


@pytest.mark.parametrize(
    ("rank", "options", "words"),
    [
        (0, {}, "use 1 to 3"),
        (4, {}, "use 1 to 3"),
        (2, {"restarts": -1}, "0 or more"),
        (2, {"start": np.zeros((3, 2))}, r"shape \(4, 2\)"),
        (2, {"start": np.full((4, 2), np.nan)}, "finite"),
        (2, {"weights": -np.ones((4, 4))}, "0 or more"),
        (2, {"weights": np.ones((3, 3))}, "each pair"),
        (2, {"weights": parted()}, "2 groups"),
    ],
)
def test_what_cannot_be_is_refused(rank, options, words):
    with pytest.raises(PosgeomError, match=words):
        smacof(1 - np.eye(4), rank, **options)


def test_the_diagonal_does_not_count():
    D, start = symmetric_noise(8), points(8, 2)
    odd = D + 7 * np.eye(8)
    np.testing.assert_array_equal(
        smacof(odd, 2, start=start).coordinates, smacof(D, 2, start=start).coordinates
    )
