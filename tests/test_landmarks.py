"""Landmark MDS against Gower's formula, spectral MDS and configurations of known rank."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from posgeom import PosgeomError
from posgeom.designers.extension import gower
from posgeom.distances import hellinger, squared_hellinger
from posgeom.landmarks import landmark_mds
from posgeom.mds import spectral_mds


def drifting(n, V=80, seed=0):
    """Frequencies that pass from one law to another, with some noise."""
    rng = np.random.default_rng(seed)
    a, b = rng.dirichlet(np.full(V, 0.3), 2)
    at = np.linspace(0, 1, n)[:, None]
    W = ((1 - at) * a + at * b) * rng.gamma(200, 1 / 200, (n, V))
    return W / W.sum(axis=1, keepdims=True)


def on_an_arc(n):
    """Root profiles (cos t, sin t): a plane holds all distances."""
    t = np.linspace(0, np.pi / 2, n)
    return np.column_stack([np.cos(t) ** 2, np.sin(t) ** 2])


def test_of_all_rows_it_is_spectral_mds():
    P = drifting(60)
    found, expected = landmark_mds(P, 3, 60), spectral_mds(P, 3)
    assert np.array_equal(found.landmarks, np.arange(60))
    np.testing.assert_allclose(found.coordinates, expected.coordinates, atol=1e-6)


def test_a_few_landmarks_hold_a_plane():
    P = on_an_arc(101)
    found = landmark_mds(csr_array(P), 2, 5)
    assert found.landmarks.tolist() == [0, 25, 50, 75, 100]
    np.testing.assert_allclose(cdist(found.coordinates, found.coordinates), hellinger(P), atol=1e-9)
    np.testing.assert_allclose(found.coordinates.sum(axis=0), 0, atol=1e-9)
    products = found.coordinates.T @ found.coordinates
    np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-9)
    assert products[0, 0] > products[1, 1]


def test_rows_are_placed_by_gowers_formula():
    """The projection needs no distance; Gower's formula, from the distances, gives the same."""
    P = drifting(90)
    found = landmark_mds(P, 2, 20)
    D2, own = squared_hellinger(P), found.landmarks
    X = gower(D2[np.ix_(own, own)], D2[:, own], found.mds.coordinates)
    np.testing.assert_allclose(cdist(found.coordinates, found.coordinates), cdist(X, X), atol=1e-9)


def test_an_axis_without_length_stays_empty():
    P = np.tile([0.25, 0.75], (10, 1))
    assert not landmark_mds(P, 2, 4).coordinates.any()


@pytest.mark.parametrize(("r", "m", "words"), [(5, 4, "use 1 to 4"), (2, 0, "0 landmarks came")])
def test_numbers_out_of_range_are_refused(r, m, words):
    with pytest.raises(PosgeomError, match=words):
        landmark_mds(drifting(30), r, m)
