"""Moving frequencies: slopes, jumps out of valleys, and that nothing gets worse."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from posgeom.designers.offsets import OffsetSums
from posgeom.designers.polish import (
    exchange,
    frequency_grid,
    polish,
    quantiles,
    settle,
    slopes,
    stress_at,
    turns,
)
from posgeom.encodings import Rope
from posgeom.geometry import Geometry


def sums_of(squared):
    n = len(squared)
    return OffsetSums.of(
        Geometry(squared=squared, totals=np.zeros(n, dtype=np.int64), positions=np.arange(n))
    )


def sums_of_rope(n, *frequencies):
    rope = Rope(dim=2 * len(frequencies), own_frequencies=frequencies)
    return sums_of(rope.distances(np.arange(n)) ** 2)


def grid_sums(seed, rows=4, columns=5):
    n = rows * columns
    E = np.random.default_rng(seed).uniform(0, 1, (n, n))
    cells = np.column_stack(np.divmod(np.arange(n), columns))
    squared = np.triu(E, 1) + np.triu(E, 1).T
    return OffsetSums.of(
        Geometry(
            squared=squared,
            totals=np.zeros(n, dtype=np.int64),
            positions=cells,
            grid=(rows, columns),
        ),
        axes=True,
    )


def test_the_grid_reaches_from_a_straight_line_to_pi():
    grid = frequency_grid(np.arange(1, 100))
    assert (np.diff(grid) > 0).all()
    assert grid[0] == pytest.approx(0.01 / 99)
    assert grid[-1] == pytest.approx(np.pi)
    assert np.diff(grid).max() == pytest.approx(np.pi / (2 * 99))
    assert (grid[1:20] / grid[:19]).max() < 2
    np.testing.assert_allclose(frequency_grid(np.zeros(3, dtype=int))[-1], np.pi)


def test_turns_do_not_cancel():
    np.testing.assert_allclose(
        turns(np.array([1, 2]), np.array([1e-9, 1.0])),
        [[1e-18, 2 - 2 * np.cos(1)], [4e-18, 2 - 2 * np.cos(2)]],
        rtol=1e-12,
    )


def test_quantiles_share_the_energy_alike():
    grid = np.array([1.0, 2, 3, 4])
    assert quantiles(grid, np.array([0.0, 1, 0, 3]), 4).tolist() == [2, 4, 4, 4]
    assert quantiles(grid, np.array([1.0, 1, 1, 1]), 2).tolist() == [1, 3]
    assert quantiles(grid, np.zeros(4), 3).tolist() == [1, 1, 1]


@given(st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_slopes_are_those_of_differences(seed):
    sums, rng = grid_sums(seed), np.random.default_rng(seed)
    axes = np.array([0, 0, 1, 1, 1])
    ω, a = rng.uniform(0.1, 3, 5), rng.uniform(0.5, 2, 5)
    stress, by_ω, by_a = slopes(sums, ω, a, axes)
    assert stress == pytest.approx(stress_at(sums, ω, a, axes))
    np.testing.assert_allclose(
        by_ω, approx_fprime(ω, lambda η: stress_at(sums, η, a, axes), 1e-7), atol=1e-5
    )
    np.testing.assert_allclose(
        by_a, approx_fprime(a, lambda b: stress_at(sums, ω, b, axes), 1e-7), atol=1e-5
    )


def test_no_energy_has_stress_1_and_no_slope():
    stress, by_ω, by_a = slopes(grid_sums(0), np.ones(2), np.zeros(2), np.array([0, 1]))
    assert stress == 1
    assert not by_ω.any()
    assert not by_a.any()


@given(st.integers(0, 1000), st.booleans())
@settings(deadline=None, max_examples=30)
def test_polishing_never_raises_the_stress_and_ends_where_it_is_level(seed, free):
    sums, rng = grid_sums(seed), np.random.default_rng(seed)
    axes = np.array([0, 0, 1, 1, 1])
    ω, a = rng.uniform(0.1, 3, 5), rng.uniform(0.5, 2, 5)
    moved, energies = polish(sums, ω, a, axes, free=free)
    before = stress_at(sums, ω, a, axes)
    assert stress_at(sums, moved, energies, axes) <= before + 1e-12
    _, by_ω, by_a = slopes(sums, moved, energies, axes)
    inside = (moved < np.pi * (1 - 1e-6)) & (moved > 0.0026)
    assert np.abs(moved * by_ω)[inside].max(initial=0) < 1e-3
    if free:
        assert np.abs(np.sqrt(energies) * by_a).max() < 1e-3
    else:
        np.testing.assert_allclose(energies / energies[0], a / a[0])


@given(st.integers(0, 1000))
@settings(deadline=None, max_examples=20)
def test_exchange_leaves_nothing_to_exchange_or_made_all_its_sweeps(seed):
    sums, rng = grid_sums(seed), np.random.default_rng(seed)
    axes, grids = np.array([0, 1, 1]), [frequency_grid(sums.offsets[:, k]) for k in (0, 1)]
    start = rng.uniform(0.1, 3, 3)
    ω = exchange(sums, start, axes, grids)
    least = stress_at(sums, ω, np.ones(3), axes)
    assert least <= stress_at(sums, start, np.ones(3), axes) + 1e-12
    again = exchange(sums, ω, axes, grids)
    assert stress_at(sums, again, np.ones(3), axes) <= least + 1e-12
    for k in range(3):
        others = [np.r_[ω[:k], η, ω[k + 1 :]] for η in grids[axes[k]]]
        best = min(stress_at(sums, o, np.ones(3), axes) for o in others)
        assert best >= (1 - 0.05) * least


def test_jumps_leave_a_valley_that_slides_end_in():
    sums, one = sums_of_rope(60, 2.5), np.zeros(1, dtype=np.int64)
    slid, _ = polish(sums, np.array([0.4]), np.ones(1), one, free=False)
    assert stress_at(sums, slid, np.ones(1), one) > 0.05
    found = settle(sums, [np.array([0.4])], one, [frequency_grid(sums.offsets)])
    assert found[0] == pytest.approx(2.5, rel=1e-6)


def test_energies_given_too_small_to_see_are_scaled():
    sums, one = sums_of_rope(30, 0.4), np.zeros(1, dtype=np.int64)
    ω, a = polish(sums, np.array([0.41]), np.array([1e-30]), one, free=True)
    assert ω[0] == pytest.approx(0.4, rel=1e-4)
    assert a[0] > 0
