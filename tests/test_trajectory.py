"""The map's errors: right in a simulation of known noise, blind to turns and reflections."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry
from posgeom.inference import jackknife_se
from posgeom.trajectory import eigenvalue_errors, mds_trajectory

K = 16
CURVE = np.stack([3 * np.cos(np.linspace(0, 2.5, 12)), 2 * np.sin(np.linspace(0, 2.5, 12))], axis=1)
CURVE -= CURVE.mean(axis=0)
NOISE = np.array([[0.05, 0.0], [0.03, 0.02]])  # its root covariance, not round


def squares(X):
    return cdist(X, X) ** 2


def geometry_of(points):
    """The geometry of the mean of K folds' points (K, n, d), with one fold left out each time."""
    full = points.mean(axis=0)
    without = [(len(points) * full - x) / (len(points) - 1) for x in points]
    n = points.shape[1]
    return Geometry(
        squared=squares(full),
        totals=np.full(n, 1000),
        positions=np.arange(n),
        estimator="debiased",
        replicates=np.stack([squares(x) for x in without]),
    )


def drawn(seed, curve=CURVE, noise=NOISE):
    """K folds whose mean lies about the curve with root covariance `noise`."""
    rng = np.random.default_rng(seed)
    return curve + np.sqrt(K) * rng.normal(size=(K, *curve.shape)) @ noise.T


def aligned(X, onto):
    U, _, Vt = np.linalg.svd(X.T @ onto)
    return X @ U @ Vt


def test_the_ellipses_hold_the_truth_as_often_as_they_say():
    held = []
    for seed in range(60):
        found = mds_trajectory(geometry_of(drawn(seed)))
        truth = aligned(CURVE, found.coordinates)
        E = found.coordinates - truth
        T2 = np.einsum("ia,iab,ib->i", E, np.linalg.inv(found.covariance), E)
        edge = found.ellipses()[:, 0] - found.coordinates
        held.append(np.einsum("ia,iab,ib->i", edge, np.linalg.inv(found.covariance), edge) > T2)
    assert 0.92 <= np.mean(held) <= 0.98


def test_the_covariance_is_that_of_the_map_over_repetitions():
    runs = [mds_trajectory(geometry_of(drawn(seed))) for seed in range(200)]
    maps = np.stack([aligned(run.coordinates, CURVE) for run in runs])
    seen = np.trace(np.einsum("ria,rib->iab", maps - maps.mean(0), maps - maps.mean(0)), 0, 1, 2)
    estimated = np.mean([np.trace(run.covariance, 0, 1, 2) for run in runs], axis=0)
    np.testing.assert_allclose(estimated.sum(), seen.sum() / len(runs), rtol=0.1)
    np.testing.assert_allclose(estimated, seen / len(runs), rtol=0.35)


def test_turned_and_reflected_replicates_have_the_same_errors():
    points = drawn(0)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(2, 2)))[0]
    found = mds_trajectory(geometry_of(points))
    for R in (turn, turn @ np.diag([1.0, -1.0])):
        other = mds_trajectory(geometry_of(points @ R))
        both = np.linalg.eigvalsh(found.covariance), np.linalg.eigvalsh(other.covariance)
        np.testing.assert_allclose(*both, atol=1e-12)
    # Distances alone come in: signs that MDS gives to the axes of a replicate do not matter.
    mirrored = replace(geometry_of(points), squared=squares(points.mean(axis=0)[:, ::-1]))
    np.testing.assert_allclose(mds_trajectory(mirrored).covariance, found.covariance, atol=1e-12)


def test_without_noise_there_are_no_errors():
    found = mds_trajectory(geometry_of(np.stack([CURVE] * K)))
    np.testing.assert_allclose(found.covariance, 0, atol=1e-20)
    size = found.ellipses() - found.coordinates[:, None, :]
    np.testing.assert_allclose(size, 0, atol=1e-9)


def test_an_ellipse_has_the_moments_of_its_covariance():
    found = mds_trajectory(geometry_of(drawn(3)))
    outline = found.ellipses(n_points=360) - found.coordinates[:, None, :]
    T2 = np.einsum("ipa,iab,ipb->ip", outline, np.linalg.inv(found.covariance), outline)
    # Hotelling's T² of 2 and 15 degrees: 2 · 15/14 · F(2, 14) = 2.143 · 3.739.
    np.testing.assert_allclose(T2, 8.012, rtol=1e-3)


@pytest.mark.parametrize("n", [2, 3])
def test_two_positions_have_one_coordinate(n):
    found = mds_trajectory(geometry_of(drawn(0, curve=CURVE[:n, :1] * [1, 0], noise=NOISE * 0.1)))
    assert found.coordinates.shape == (n, 2)
    assert np.isfinite(found.ellipses()).all()


@pytest.mark.parametrize("flat", [False, True])
def test_long_geometries_have_the_errors_that_all_axes_give(monkeypatch, flat):
    t = np.linspace(0, 2.5, 80)
    curve = np.stack([3 * np.cos(t), 2 * np.sin(t)], axis=1) * (not flat)
    geometry = geometry_of(drawn(0, curve, NOISE * (not flat)))
    fast = mds_trajectory(geometry)
    monkeypatch.setattr("posgeom.trajectory.DENSE", 100)
    dense = mds_trajectory(geometry)
    np.testing.assert_allclose(fast.covariance, dense.covariance, atol=1e-10)


def test_negative_squares_are_borne():
    geometry = geometry_of(drawn(0))
    squared = geometry.squared - 0.5 * (1 - np.eye(12))
    found = mds_trajectory(replace(geometry, squared=squared))
    assert np.isfinite(found.ellipses()).all()


def test_a_geometry_without_replicates_is_refused():
    with pytest.raises(PosgeomError, match="no replicates"):
        mds_trajectory(replace(geometry_of(drawn(0)), replicates=None))


def test_eigenvalues_have_errors():
    geometry = geometry_of(drawn(0))
    se = eigenvalue_errors(geometry)
    values = [
        np.sort(np.linalg.eigvalsh(-0.5 * (J := np.eye(12) - 1 / 12) @ s @ J))[::-1]
        for s in geometry.replicates
    ]
    np.testing.assert_allclose(se, np.sqrt(K - 1) * np.std(values, axis=0), rtol=0.01, atol=3e-3)
    assert (se[:2] > se[2]).all()
    assert eigenvalue_errors(replace(geometry, replicates=None)) is None


def test_the_jackknife_of_a_mean_is_its_standard_error():
    x = np.random.default_rng(0).normal(size=(K, 3))
    without = (x.sum(axis=0) - x) / (K - 1)
    np.testing.assert_allclose(jackknife_se(without), x.std(axis=0, ddof=1) / np.sqrt(K))
