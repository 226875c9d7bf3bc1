"""Sums over offsets say the same as all pairs do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad

from posgeom import PosgeomError
from posgeom.designers.offsets import OffsetSums
from posgeom.geometry import Geometry
from posgeom.inference import condensed, floor_of, signed_root, stress_of
from posgeom.stress import offset_groups, optimal_scale


def noisy_geometry(seed, positions, grid=None):
    """Squared distances around a positive mean, some of them below 0."""
    n = len(positions)
    E = np.random.default_rng(seed).normal(0.5, 1, (n, n))
    squared = np.triu(E, 1) + np.triu(E, 1).T
    squared += (1 - np.eye(n)) * max(0, 0.1 - condensed(squared).mean())
    return Geometry(
        squared=squared, totals=np.zeros(n, dtype=np.int64), positions=positions, grid=grid
    )


some_positions = st.sets(st.integers(0, 40), min_size=2, max_size=20).map(
    lambda chosen: np.array(sorted(chosen))
)


@given(st.integers(0, 1000), some_positions)
@settings(deadline=None, max_examples=60)
def test_stress_and_floor_are_those_of_all_pairs(seed, positions):
    geometry = noisy_geometry(seed, positions)
    sums = OffsetSums.of(geometry)
    f = np.random.default_rng(seed + 1).uniform(0, 2, len(sums.offsets))
    δ = np.zeros(positions[-1] + 1)
    δ[sums.offsets] = f
    δ = condensed(δ[np.abs(positions[:, None] - positions[None, :])])
    s = condensed(geometry.squared)
    assert sums.stress(f) == pytest.approx(float(stress_of(δ)(s)), abs=1e-12)
    floor = floor_of(offset_groups(len(positions), positions))(s)
    assert sums.floor == pytest.approx(float(floor), abs=1e-12)
    assert sums.pairs.sum() == len(s)
    assert sums.stress(f) >= sums.floor - 1e-12
    np.testing.assert_allclose(
        sums.stress(np.array([f, 3 * f])), [sums.stress(f)] * 2, atol=1e-12, rtol=0
    )


@given(st.integers(0, 1000), some_positions)
@settings(deadline=None, max_examples=30)
def test_the_gradient_is_that_of_differences(seed, positions):
    sums = OffsetSums.of(noisy_geometry(seed, positions))
    f = np.random.default_rng(seed + 1).uniform(0.5, 2, len(sums.offsets))
    assert check_grad(lambda g: float(sums.stress(g)), sums.gradient, f) < 1e-5


def test_the_scale_is_the_one_of_the_table():
    i = np.arange(9)
    D = np.abs(i[:, None] - i[None, :]) ** 0.5
    geometry = Geometry(squared=D**2, totals=0 * i, positions=i)
    f = np.sin(0.2 * np.arange(1, 9))
    δ = np.r_[0, f][np.abs(i[:, None] - i[None, :])]
    assert OffsetSums.of(geometry).scale(f) == pytest.approx(optimal_scale(δ, D))


def test_axes_are_rows_and_columns():
    """A 3 × 4 grid without two of its cells, pair by pair."""
    cells = np.delete(np.column_stack(np.divmod(np.arange(12), 4)), [2, 7], axis=0)
    geometry = noisy_geometry(3, cells, (3, 4))
    sums = OffsetSums.of(geometry, axes=True)
    D = signed_root(geometry.squared)
    for offset, pairs, total in zip(sums.offsets, sums.pairs, sums.sums, strict=True):
        at = [
            D[a, b]
            for a in range(10)
            for b in range(a)
            if (np.abs(cells[a] - cells[b]) == offset).all()
        ]
        assert len(at) == pairs
        assert sum(at) == pytest.approx(total)
    assert sums.pairs.sum() == 45
    flat = OffsetSums.of(geometry)
    assert flat.offsets.max() == 11
    assert flat.total == pytest.approx(sums.total)


def test_no_encoding_at_all_has_stress_1():
    sums = OffsetSums.of(noisy_geometry(0, np.arange(5)))
    assert sums.stress(np.zeros(4)) == 1


def test_what_cannot_be_fitted_is_refused():
    line = noisy_geometry(0, np.arange(5))
    with pytest.raises(PosgeomError, match="--grid ROWSxCOLUMNS"):
        OffsetSums.of(line, axes=True)
    nothing = Geometry(
        squared=-(1 - np.eye(3)), totals=np.zeros(3, dtype=np.int64), positions=np.arange(3)
    )
    with pytest.raises(PosgeomError, match="sum to -3, at most 0"):
        OffsetSums.of(nothing)
