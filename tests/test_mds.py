"""Classical MDS against scikit-learn, singular values and known configurations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.manifold import ClassicalMDS

from posgeom import PosgeomError, classical_mds
from posgeom.distances import fisher_rao, hellinger
from posgeom.mds import centred_gram


def points(n, k, seed=0):
    return np.random.default_rng(seed).standard_normal((n, k))


@given(st.integers(2, 12), st.integers(1, 5), st.integers(0, 99))
@settings(deadline=None)
def test_full_mds_returns_the_distances(n, k, seed):
    X = points(n, k, seed)
    D = cdist(X, X)
    found = classical_mds(D)
    assert found.rank <= min(n - 1, k)
    np.testing.assert_allclose(cdist(found.coordinates, found.coordinates), D, atol=1e-7)
    np.testing.assert_allclose(found.coordinates.sum(axis=0), 0, atol=1e-8)


def test_agrees_with_scikit_learn():
    X = points(30, 6)
    ours = classical_mds(cdist(X, X), 4)
    theirs = ClassicalMDS(n_components=4, metric="precomputed").fit(cdist(X, X))
    np.testing.assert_allclose(ours.eigenvalues, theirs.eigenvalues_, rtol=1e-10)
    np.testing.assert_allclose(np.abs(ours.coordinates), np.abs(theirs.embedding_), atol=1e-8)


def test_eigenvalues_are_the_squared_singular_values_of_the_centred_root_profiles():
    P = np.random.default_rng(3).dirichlet(np.full(50, 0.2), 12)
    S = np.sqrt(P)
    s = np.linalg.svd(S - S.mean(axis=0), compute_uv=False)
    found = classical_mds(hellinger(P))
    np.testing.assert_allclose(found.eigenvalues, s**2, atol=1e-12)
    assert found.rank == 11  # n − 1


def test_truncated_is_the_head_of_full():
    D = cdist(points(20, 5), points(20, 5))
    full, head = classical_mds(D), classical_mds(D, 3)
    np.testing.assert_allclose(head.coordinates, full.coordinates[:, :3], atol=1e-9)
    np.testing.assert_allclose(head.eigenvalues, full.eigenvalues[:3], atol=1e-9)


def test_negative_eigenvalues_are_kept_and_never_nan():
    """Geodesic distances of many directions do not fit into any Euclidean space."""
    D = fisher_rao(np.random.default_rng(0).dirichlet(np.full(4, 0.3), 25))
    found = classical_mds(D)
    assert found.eigenvalues[-1] < -1e-6
    assert (np.diff(found.eigenvalues) <= 0).all()
    assert np.isfinite(found.coordinates).all()
    assert found.coordinates.shape[1] == found.rank < 25
    padded = classical_mds(D, 25).coordinates
    assert np.isfinite(padded).all()
    assert not padded[:, -1].any()


def test_squared_distances_may_be_negative():
    D2 = np.array([[0, -0.1, 1], [-0.1, 0, 1], [1, 1, 0.0]])
    found = classical_mds(D2, squared=True)
    assert np.isfinite(found.coordinates).all()
    np.testing.assert_allclose(
        np.sort(found.eigenvalues), np.linalg.eigvalsh(centred_gram(D2, squared=True)), atol=1e-14
    )


def test_signs_are_fixed():
    X = points(15, 3)
    P = classical_mds(cdist(X, X)).coordinates
    mirrored = classical_mds(cdist(-X, -X)).coordinates
    np.testing.assert_allclose(P, mirrored, atol=1e-9)
    assert (P[np.abs(P).argmax(axis=0), range(P.shape[1])] > 0).all()


def test_an_axis_with_a_tie_for_the_largest_entry_keeps_its_sign():
    line = np.array([[-1.0], [0.0], [1.0]])
    assert classical_mds(cdist(line, line)).coordinates[0, 0] > 0


def test_three_one_hot_distributions_have_two_equal_eigenvalues():
    found = classical_mds(hellinger(np.eye(3)))
    np.testing.assert_allclose(found.eigenvalues, [1, 1, 0], atol=1e-12)


def test_equal_positions_give_zero_coordinates():
    found = classical_mds(np.zeros((4, 4)))
    assert found.rank == 0
    assert found.coordinates.shape == (4, 0)
    assert not classical_mds(np.zeros((4, 4)), 2).coordinates.any()


@pytest.mark.parametrize(
    ("D", "words"),
    [
        (np.zeros((2, 3)), "square"),
        ([[0, np.nan], [np.nan, 0]], "NaN"),
        ([[0, 1], [2, 0]], "symmetric"),
    ],
)
def test_what_is_no_distance_matrix_is_refused(D, words):
    with pytest.raises(PosgeomError, match=words):
        classical_mds(D)


@pytest.mark.parametrize("r", [0, 4])
def test_components_out_of_range_are_refused(r):
    with pytest.raises(PosgeomError, match="use 1 to 3"):
        classical_mds(np.zeros((3, 3)), r)


@pytest.mark.parametrize("n", [64, 128, 300])
def test_many_equal_eigenvalues_do_not_get_lost(n):
    """One-hot distributions are all equally far apart: every axis has the same eigenvalue."""
    D = np.sqrt(2) * (1 - np.eye(n))
    mds = classical_mds(D, 2)
    assert mds.coordinates.shape == (n, 2)
    np.testing.assert_allclose(mds.eigenvalues, 1)
    np.testing.assert_allclose((mds.coordinates**2).sum(axis=0), 1)
