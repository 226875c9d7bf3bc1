"""No configuration lies below a proved floor, and each pair of points is in one group."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from posgeom import PosgeomError, SyntheticCorpus, classical_mds, true_geometry
from posgeom.designers.floors import edge_disjoint, least_errors, proved_floors, rank_floor
from posgeom.distances import fisher_rao, hellinger
from posgeom.geometry import Geometry
from posgeom.inference import condensed, stress_of
from posgeom.smacof import smacof


def noise(n, seed):
    N = np.abs(np.random.default_rng(seed).standard_normal((n, n)))
    return (N + N.T) * (1 - np.eye(n))


def geometry_of(squared):
    n = len(squared)
    return Geometry(squared=squared, totals=np.full(n, 9), positions=np.arange(n))


@given(st.integers(2, 60), st.integers(2, 12))
@settings(deadline=None, max_examples=80)
def test_each_pair_is_in_one_group(n, size):
    seen = []
    for groups in edge_disjoint(np.arange(n), size):
        assert groups.shape[1] <= size
        seen += [tuple(sorted(pair)) for group in groups for pair in combinations(group, 2)]
    assert sorted(seen) == list(combinations(range(n), 2))


@given(st.integers(3, 14), st.integers(1, 4), st.integers(0, 9_999), st.booleans())
@settings(deadline=None, max_examples=40)
def test_no_configuration_that_is_found_is_below_the_proved_floor(n, rank, seed, geodesic):
    rank = min(rank, n - 1)
    D = noise(n, seed)
    if geodesic:
        D = fisher_rao(np.random.default_rng(seed).dirichlet(np.full(4, 0.3), n))
    best = smacof(D, rank, restarts=5, tolerance=1e-12).coordinates
    error = ((condensed(cdist(best, best)) - condensed(D)) ** 2).sum()
    assert least_errors(D, rank)[-1] <= error + 1e-10


@given(st.integers(3, 10), st.integers(1, 3), st.integers(0, 9_999))
@settings(deadline=None, max_examples=60)
def test_nor_any_at_all_with_squares_below_zero(n, rank, seed):
    """Against the stress that judges, cut off at 0: of random configurations and the best found."""
    rank, rng = min(rank, n - 1), np.random.default_rng(seed)
    S = noise(n, seed) ** 2 - 0.3 * (1 - np.eye(n))
    geometry = geometry_of(S)
    if condensed(S).sum() <= 0:
        return
    floor = proved_floors(geometry, rank)[-1]
    found = smacof(np.sign(S) * np.sqrt(np.abs(S)), rank, restarts=3).coordinates
    for X in (found, rng.standard_normal((n, rank)), classical_mds(S, squared=True).coordinates):
        if X.shape[1] == rank:
            assert floor <= max(stress_of(condensed(cdist(X, X)))(condensed(S)), 0) + 1e-10


def test_three_one_hot_distributions_have_the_floor_that_is_found():
    """1/9 in one dimension, both proved and found; nothing in two."""
    geometry = true_geometry(np.eye(3))
    one = rank_floor(geometry, 1)
    assert one.proved == pytest.approx(1 / 9, abs=1e-12)
    assert one.found == pytest.approx(1 / 9, abs=1e-9)
    two = rank_floor(geometry, 2)
    assert two.proved == pytest.approx(0, abs=1e-12)
    assert two.found == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_on_a_line_few_points_have_their_minimum_as_floor(seed):
    """A fine search over the middle point of three: nothing else is free but the scale."""
    D = noise(3, seed)
    t = np.linspace(0, 1, 20_001)
    least = 1.0
    for a, b, c in ((0, 1, 2), (1, 0, 2), (0, 2, 1)):
        cross = t * D[a, b] + (1 - t) * D[b, c] + D[a, c]
        square = t**2 + (1 - t) ** 2 + 1
        least = min(least, (1 - cross**2 / square / (condensed(D) ** 2).sum()).min())
    proved = proved_floors(geometry_of(D**2), 1)[0]
    assert proved == pytest.approx(least, abs=1e-5)
    assert proved <= least + 1e-12


def test_four_equal_distances_in_the_plane():
    """The square has stress 1 − (4 + 2√2)²/48, the least there is; the floor is near it."""
    proved = proved_floors(true_geometry(np.eye(4)), 2)[1]
    least = 1 - (4 + 2 * np.sqrt(2)) ** 2 / 48
    assert 0.6 * least < proved < least


def test_many_equal_distances_keep_a_floor():
    """Bounds of all points together fade as they grow in number; those of groups do not."""
    for n in (16, 64, 200):
        floors = proved_floors(true_geometry(np.eye(n)), 3)
        assert floors[0] > 0.14
        assert floors[1] > 0.03
        assert floors[2] > 0.02


@pytest.mark.parametrize("shape", ["periodic", "mixture", "decay", "circle"])
def test_floors_fall_with_rank_and_end_at_nothing(shape):
    geometry = true_geometry(SyntheticCorpus(shape, 24, 200).profiles)
    rank = classical_mds(geometry.distances).rank
    floors = proved_floors(geometry, rank)
    assert (np.diff(floors) <= 0).all()
    assert floors[-1] == pytest.approx(0, abs=1e-12)
    assert floors[0] > 0.001 or shape == "decay"


def test_units_do_not_matter():
    D = hellinger(np.random.default_rng(0).dirichlet(np.full(6, 0.4), 12))
    one, other = (proved_floors(geometry_of((D * unit) ** 2), 4) for unit in (1, 1e6))
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-14)


def test_positions_that_are_all_alike_but_one():
    D = np.zeros((5, 5))
    D[0, 1:] = D[1:, 0] = 1
    assert proved_floors(geometry_of(D**2), 1)[0] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("rank", [0, 4])
def test_ranks_that_cannot_be_are_refused(rank):
    with pytest.raises(PosgeomError, match="use 1 to 3"):
        rank_floor(true_geometry(np.eye(4)), rank)
