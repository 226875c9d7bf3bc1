"""The jackknife and its measures, against textbook cases and plain formulas."""

import numpy as np
import pytest
from scipy.stats import t

from posgeom import SyntheticCorpus, estimate_geometry, true_geometry
from posgeom.debias import balanced_splits
from posgeom.geometry import Geometry
from posgeom.inference import (
    Estimate,
    condensed,
    floor_of,
    jackknife,
    raw_stress_of,
    signed_root,
    stress_of,
)
from posgeom.scoring import floor_estimate
from posgeom.simulation import draw_counts
from posgeom.stress import offset_groups, raw_stress, shift_invariant_floor, stress


def of_sample(x):
    """A geometry of two positions whose squared distance is the mean of x, one fold a value."""
    K = len(x)

    def square(value):
        return value * (1 - np.eye(2))

    without = [(x.sum() - x[k]) / (K - 1) for k in range(K)]
    halves = [h for s in balanced_splits(K) for h in (x[s].mean(), x[~s].mean())]
    return Geometry(
        squared=square(x.mean()),
        totals=np.ones(2, dtype=int),
        positions=np.arange(2),
        replicates=np.stack([square(m) for m in without]),
        halves=np.stack([square(m) for m in halves]),
    )


def test_the_error_of_a_mean_is_its_standard_error():
    x = np.random.default_rng(0).normal(3, 1, 16)
    found = jackknife(lambda s: s[..., 0], of_sample(x))
    se = x.std(ddof=1) / 4
    assert found.value == pytest.approx(x.mean())
    assert found.se == pytest.approx(se)
    assert found.high - found.value == pytest.approx(t.ppf(0.975, 15) * se)


def test_the_bias_of_a_square_is_taken_off():
    """E x̄² = μ² + σ²/K; over all balanced halves, x̄² − s²/K comes out exactly."""
    x = np.random.default_rng(1).normal(3, 1, 16)
    found = jackknife(lambda s: s[..., 0] ** 2, of_sample(x))
    assert found.value == pytest.approx(x.mean() ** 2 - x.var(ddof=1) / 16)
    plain = jackknife(lambda s: s[..., 0] ** 2, of_sample(x), correct=False)
    assert plain.value == pytest.approx(x.mean() ** 2)


def test_bounds_hold_value_and_interval():
    found = jackknife(lambda s: s[..., 0], of_sample(np.linspace(-1, 1, 16)), bounds=(0, 0.1))
    assert 0 == found.low <= found.value <= found.high == 0.1


def test_a_geometry_without_replicates_has_no_errors():
    truth = true_geometry(SyntheticCorpus().profiles)
    found = jackknife(lambda s: s.mean(axis=-1), truth)
    assert np.isnan(found.se)
    assert str(Estimate(0.25)) == "0.250"
    assert str(Estimate(0.25, 0.01, 0.2, 0.3)) == "0.250 ± 0.010"


def test_measures_are_those_of_the_stress_module():
    truth = true_geometry(SyntheticCorpus("mixture", positions=9).profiles)
    δ = np.abs(np.subtract.outer(np.arange(9), np.arange(9))) ** 0.7
    s, D = condensed(truth.squared), truth.distances
    assert stress_of(condensed(δ))(s) == pytest.approx(stress(δ, D))
    assert raw_stress_of(condensed(δ))(s) == pytest.approx(raw_stress(δ, D))
    assert floor_of(offset_groups(9))(s) == pytest.approx(shift_invariant_floor(D))
    both = np.stack([s, 2 * s])
    np.testing.assert_allclose(stress_of(condensed(δ))(both), stress(δ, D))
    assert stress_of(np.zeros(36))(s) == 1


def test_signed_roots_keep_the_sign():
    np.testing.assert_allclose(signed_root(np.array([4.0, 0, -9])), [2, 0, -3])


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["mixture", "decay", "circle"])
def test_intervals_hold_the_truth(shape):
    """95% intervals of the stress of a line and of the floor, over 20 corpora each."""
    δ = np.abs(np.subtract.outer(np.arange(16), np.arange(16))).astype(float)
    inside = []
    for seed in range(20):
        corpus = SyntheticCorpus(shape, 16, 500, 5_000, 1.0, 0.5, seed)
        truth = true_geometry(corpus.profiles)
        found = estimate_geometry(draw_counts(corpus), seed=seed)
        fit = jackknife(stress_of(condensed(δ)), found, bounds=(0, 1))
        inside.append(fit.low <= stress(δ, truth.distances) <= fit.high)
        floor = floor_estimate(found)
        inside.append(floor.low <= floor_estimate(truth).value <= floor.high)
    assert np.mean(inside) >= 0.85
