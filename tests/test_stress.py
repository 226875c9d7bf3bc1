"""The three forms of stress, the floor, and the rank measures, by hand and by other routes."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import cdist
from scipy.stats import spearmanr

from posgeom import PosgeomError
from posgeom.distances import hellinger
from posgeom.stress import (
    kruskal_stress_1,
    monotonicity_violation,
    offset_groups,
    optimal_scale,
    raw_stress,
    separation,
    shift_invariant_floor,
    spearman,
    stress,
)


def cloud(n, k, seed):
    X = np.random.default_rng(seed).standard_normal((n, k))
    return cdist(X, X)


def line(*x):
    return cdist(np.array(x)[:, None], np.array(x)[:, None])


two_clouds = st.tuples(st.integers(3, 8), st.integers(0, 99)).map(
    lambda t: (cloud(t[0], 2, t[1]), cloud(t[0], 3, t[1] + 1_000))
)


def test_one_hot_triangle_in_one_dimension():
    """Raw stress 1/6 of classical MDS and 1/9 of the best line; scale-free, both have 1/9."""
    D = hellinger(np.eye(3))
    mds, best = line(-(0.5**0.5), 0, 0.5**0.5), line(-(8**0.5) / 3, 0, 8**0.5 / 3)
    assert raw_stress(mds, D) == pytest.approx(1 / 6)
    assert raw_stress(best, D) == pytest.approx(1 / 9)
    assert stress(mds, D) == pytest.approx(1 / 9)
    assert stress(best, D) == pytest.approx(1 / 9)


def test_one_ninth_is_the_least_in_one_dimension():
    D = hellinger(np.eye(3))
    grid = np.linspace(-2, 2, 81)
    least = min(stress(line(0, 1, 1 + t), D) for t in grid if abs(t) > 1e-9)
    assert least == pytest.approx(1 / 9, abs=1e-12)


@given(two_clouds)
@settings(deadline=None)
def test_stress_is_the_least_raw_stress_over_all_scales(pair):
    δ, D = pair
    found = minimize_scalar(lambda a: raw_stress(a * δ, D), bounds=(0, 100), method="bounded")
    assert stress(δ, D) == pytest.approx(found.fun, abs=1e-6)
    assert raw_stress(optimal_scale(δ, D) * δ, D) == pytest.approx(stress(δ, D))
    i, j = np.triu_indices(len(D), 1)
    d, e = D[i, j], δ[i, j]
    assert stress(δ, D) == pytest.approx(1 - (d @ e) ** 2 / ((d @ d) * (e @ e)))
    assert kruskal_stress_1(δ, D) ** 2 == pytest.approx(stress(δ, D))


@given(two_clouds, st.floats(1e-6, 1e6))
@settings(deadline=None)
def test_stress_ignores_scale_and_raw_stress_does_not(pair, scale):
    δ, D = pair
    assert stress(scale * δ, D) == pytest.approx(stress(δ, D), rel=1e-9)
    assert stress(δ, scale * D) == pytest.approx(stress(δ, D), rel=1e-9)
    assert raw_stress(2 * D, D) == pytest.approx(1)


def test_stress_of_nothing_is_one_and_of_itself_zero():
    D = cloud(5, 2, 0)
    assert stress(np.zeros((5, 5)), D) == 1
    assert raw_stress(np.zeros((5, 5)), D) == 1
    assert stress(3 * D, D) == pytest.approx(0, abs=1e-30)


def test_small_stress_is_not_lost_to_cancellation():
    D = cloud(6, 2, 0)
    δ = D.copy()
    δ[0, 1] = δ[1, 0] = D[0, 1] * (1 + 1e-10)
    assert 0 < stress(δ, D) < 1e-19


@given(st.integers(3, 9), st.integers(0, 99))
@settings(deadline=None)
def test_floor_is_the_least_stress_over_functions_of_the_offset(n, seed):
    D = cloud(n, 2, seed)
    floor = shift_invariant_floor(D)
    offset = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    mean = np.array([np.diagonal(D, k).mean() for k in range(n)])
    assert stress(mean[offset], D) == pytest.approx(floor)
    assert raw_stress(mean[offset], D) == pytest.approx(floor)
    f = np.random.default_rng(seed).random(n)
    f[0] = 0
    assert stress(f[offset], D) >= floor - 1e-12


def test_floor_of_a_line_is_zero_and_knows_left_out_positions():
    assert shift_invariant_floor(line(0, 1, 2, 3)) == pytest.approx(0)
    D = line(0, 1, 2, 5, 6)
    assert shift_invariant_floor(D, [0, 1, 2, 5, 6]) == pytest.approx(0)
    assert shift_invariant_floor(D) > 0.01


def test_offsets_of_a_grid_are_vectors():
    cells = np.array([(r, c) for r in range(3) for c in range(4)])
    D = cdist(cells, cells, "cityblock") + 0.5 * np.abs(np.subtract.outer(cells[:, 0], cells[:, 0]))
    assert shift_invariant_floor(D, cells) == pytest.approx(0)
    assert shift_invariant_floor(D) > 0.01
    assert offset_groups(12, cells).max() + 1 == (5 * 7 - 1) // 2


@given(two_clouds)
@settings(deadline=None)
def test_spearman_is_scipys(pair):
    δ, D = pair
    i, j = np.triu_indices(len(D), 1)
    assert spearman(δ, D) == pytest.approx(spearmanr(δ[i, j], D[i, j]).statistic, abs=1e-12)


def test_spearman_takes_rounding_for_ties_and_constants_for_zero():
    D = line(0, 1, 2, 3)
    assert spearman(D * (1 + 1e-13 * np.sin(D * 1e5)), D) == pytest.approx(1)
    assert spearman(np.ones((4, 4)) - np.eye(4), D) == 0


@given(two_clouds)
@settings(deadline=None)
def test_monotonicity_violation_counts_triples(pair):
    δ, D = pair
    triples = [(i, j, k) for i, j, k in permutations(range(len(D)), 3) if D[i, j] < D[i, k]]
    broken = [(i, j, k) for i, j, k in triples if δ[i, j] > δ[i, k]]
    assert monotonicity_violation(δ, D) == pytest.approx(len(broken) / len(triples))


def test_monotonicity_of_itself_of_its_reverse_and_of_no_order():
    D = line(0, 1, 3, 7)
    assert monotonicity_violation(D, D) == 0
    assert monotonicity_violation(10 - D - 10 * np.eye(4), D) == 1
    assert monotonicity_violation(D, np.ones((4, 4)) - np.eye(4)) == 0


def test_separation_is_the_least_distance():
    assert separation(line(0, 4, 1)) == 1
    assert separation(line(0, 4, 4)) == 0


@pytest.mark.parametrize("measure", [raw_stress, stress, optimal_scale])
def test_a_corpus_without_distances_is_told(measure):
    with pytest.raises(PosgeomError, match="one and the same distribution"):
        measure(line(0, 1), np.zeros((2, 2)))


def test_matrices_of_two_sizes_are_refused():
    with pytest.raises(PosgeomError, match="match them"):
        stress(line(0, 1), line(0, 1, 2))
