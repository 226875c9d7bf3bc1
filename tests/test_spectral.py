"""Eigenvalues by products alone, and MDS without a matrix, against LAPACK and classical MDS."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import eigh
from scipy.sparse import csr_array

from posgeom import PosgeomError, classical_mds, mds
from posgeom.distances import hellinger
from posgeom.krylov import krylov_eigenpairs
from posgeom.mds import largest_eigenpairs, spectral_mds


def profiles(n, V, seed=0):
    W = np.random.default_rng(seed).poisson(np.geomspace(20, 0.01, V), (n, V)).astype(float)
    W[:, 0] += 1
    return W / W.sum(axis=1, keepdims=True)


@given(st.integers(1, 60), st.integers(1, 6), st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_eigenpairs_are_lapacks(n, r, seed):
    r = min(r, n)
    A = np.random.default_rng(seed).standard_normal((n, n))
    B = A + A.T
    w, U, left = krylov_eigenpairs(lambda Y: B @ Y, n, r)
    assert left <= 1e-8
    np.testing.assert_allclose(w, eigh(B, eigvals_only=True)[-r:], atol=1e-9 * np.abs(B).sum())
    np.testing.assert_allclose(U.T @ U, np.eye(r), atol=1e-10)
    np.testing.assert_allclose(B @ U, U * w, atol=1e-7 * max(1, np.abs(w).max()) * n)


def test_many_more_points_than_a_basis_holds():
    """One basis of products does not suffice: it starts anew from the best vectors."""
    rng = np.random.default_rng(1)
    A = rng.standard_normal((700, 1_400))
    B = A @ A.T / 1_400
    asked = []

    def times(Y):
        asked.append(Y.shape[1])
        return B @ Y

    w, _, left = krylov_eigenpairs(times, 700, 4)
    assert sum(asked) < 700
    assert left <= 1e-8
    np.testing.assert_allclose(w, eigh(B, eigvals_only=True)[-4:], rtol=1e-12)


@pytest.mark.parametrize("off", [1e-7, 1e-2])
def test_rough_products_to_begin_with_leave_no_trace(off):
    """Neither those of float32 nor such as never come near."""
    rng = np.random.default_rng(1)
    A = rng.standard_normal((700, 1_400))
    B = A @ A.T / 1_400
    other = B + off * np.diag(rng.standard_normal(700))
    exact = []

    def times(Y):
        exact.append(Y.shape[1])
        return B @ Y

    w, U, left = krylov_eigenpairs(times, 700, 4, rough=lambda Y: other @ Y)
    assert left <= 1e-8
    right, vectors = eigh(B, subset_by_index=[696, 699])
    np.testing.assert_allclose(w, right, rtol=1e-12)
    np.testing.assert_allclose(np.abs(U.T @ vectors), np.eye(4), atol=1e-5)
    exact_before = sum(exact)
    krylov_eigenpairs(times, 700, 4)
    assert exact_before < sum(exact) - exact_before


@pytest.mark.parametrize(
    "diagonal",
    [np.ones(400), np.zeros(400), -np.ones(400), np.repeat([5.0, 5, 3, 3, 3, 1, 0], 57)],
    ids=["equal", "nothing", "negative", "groups"],
)
def test_equal_eigenvalues_do_not_get_lost(diagonal):
    n = len(diagonal)
    w, U, _ = krylov_eigenpairs(lambda Y: diagonal[:, None] * Y, n, 4)
    np.testing.assert_allclose(w, np.sort(diagonal)[-4:], atol=1e-12)
    np.testing.assert_allclose(U.T @ U, np.eye(4), atol=1e-12)


def test_what_was_not_reached_is_said():
    B = np.diag(1 - np.arange(3_000) / 1e7)
    assert krylov_eigenpairs(lambda Y: B @ Y, 3_000, 1, tolerance=0, restarts=1)[2] > 0


@pytest.mark.parametrize(("n", "r"), [(40, 3), (40, 40), (150, 6), (2, 1)])
def test_it_is_classical_mds_of_the_chords(n, r):
    P = profiles(n, 120)
    found, expected = spectral_mds(csr_array(P), r), classical_mds(hellinger(P), r)
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, atol=1e-12)
    apart = expected.eigenvalues > 1e-9  # the sign of an empty axis is rounding
    np.testing.assert_allclose(
        found.coordinates[:, apart], expected.coordinates[:, apart], atol=1e-6
    )
    np.testing.assert_allclose(found.coordinates[:, ~apart], 0, atol=1e-6)


def test_eigenvalues_are_the_squared_singular_values():
    P = profiles(60, 300, seed=4)
    S = np.sqrt(P)
    s = np.linalg.svd(S - S.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(spectral_mds(P, 5).eigenvalues, s[:5] ** 2, rtol=1e-11)


def test_equal_seeds_give_equal_bytes():
    P = profiles(200, 150, seed=5)
    one, two = spectral_mds(P, 3, seed=7), spectral_mds(P, 3, seed=7)
    assert one.coordinates.tobytes() == two.coordinates.tobytes()
    other = spectral_mds(P, 3, seed=8)
    np.testing.assert_allclose(one.coordinates, other.coordinates, atol=1e-6)


def test_a_truncated_run_of_many_points_is_lapacks(monkeypatch):
    D = hellinger(profiles(160, 200, seed=6))
    few = classical_mds(D, 4)
    monkeypatch.setattr(mds, "MANY", 100)
    many = classical_mds(D, 4)
    np.testing.assert_allclose(many.eigenvalues, few.eigenvalues, rtol=1e-12)
    np.testing.assert_allclose(many.coordinates, few.coordinates, atol=1e-6)
    w, _ = largest_eigenpairs(np.eye(160), 3)
    np.testing.assert_allclose(w, 1)


@pytest.mark.parametrize("r", [0, 11])
def test_components_out_of_range_are_refused(r):
    with pytest.raises(PosgeomError, match="use 1 to 10"):
        spectral_mds(profiles(10, 20), r)


def test_rows_that_are_no_distributions_are_refused():
    with pytest.raises(PosgeomError, match="sums to 2"):
        spectral_mds(2 * profiles(10, 20), 1)
