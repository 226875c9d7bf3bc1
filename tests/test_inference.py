"""The jackknife and its measures, against textbook cases and plain formulas."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import squareform
from scipy.stats import t

from posgeom import SyntheticCorpus, estimate_geometry, make_encoding, true_geometry
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


def of_three(x, lumped=None):
    """A geometry of three positions whose squared distances are the means of x, one fold a row."""
    K = len(x)
    halves = balanced_splits(K)[:6]
    return Geometry(
        squared=squareform(x.mean(axis=0)),
        totals=np.ones(3, dtype=int),
        positions=np.arange(3),
        replicates=np.stack([squareform(np.delete(x, k, 0).mean(axis=0)) for k in range(K)]),
        halves=np.stack([squareform(x[h].mean(axis=0)) for h in halves]),
        lumped=lumped,
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


def test_what_rare_tokens_change_widens_the_interval():
    """Of three positions: √(t² (se² + bias²) + rare²), the error and the value left as they are."""
    rng = np.random.default_rng(2)
    base, δ = np.array([1.0, 4, 2]), np.array([1.0, 2, 1])

    x = base + rng.normal(0, 0.1, (16, 3))
    plain = of_three(x)
    lumped = squareform(np.array([0.2, 1, 0.7]))
    wide = replace(plain, lumped=lumped)
    measure = stress_of(δ)
    without, found = jackknife(measure, plain), jackknife(measure, wide)
    rare = stress(squareform(δ), np.sqrt(lumped)) - stress(squareform(δ), plain.distances)
    assert (found.value, found.se) == (without.value, without.se)
    expected = np.hypot(without.high - without.value, rare)
    assert found.high - found.value == pytest.approx(expected)
    assert found.value - found.low == pytest.approx(expected)
    assert rare != 0

    # all distances fall when tokens are lumped: that alone is no error
    shorter = replace(plain, lumped=0.3 * plain.squared)
    for form in (measure, raw_stress_of(δ), lambda s: s.mean(axis=-1)):
        assert jackknife(form, shorter).high == pytest.approx(jackknife(form, plain).high)


def test_distances_near_0_widen_the_interval():
    """By half of what changes when squares below 0 are cut off, at the same sum of squares."""
    rng = np.random.default_rng(3)
    base, δ = np.array([1.0, -0.05, 0.4]), np.array([1.0, 2, 1])
    x = base + rng.normal(0, 0.1, (16, 3))
    s = x.mean(axis=0)
    geometry = of_three(x)
    assert s[1] < 0
    cut = np.array([s[0], 0, s[2]]) * s.sum() / (s[0] + s[2])
    for measure in (stress_of(δ), raw_stress_of(δ), lambda s: s.mean(axis=-1)):
        each, half = (
            measure(np.stack([squareform(D2) for D2 in group]))
            for group in (geometry.replicates, geometry.halves)
        )
        value = measure(s)
        bias = half.mean() - value
        errors = t.ppf(0.975, 15) * np.array([each.std() * np.sqrt(15), bias])
        found = jackknife(measure, geometry)
        assert found.high - found.value == pytest.approx(
            np.linalg.norm([*errors, (measure(cut) - value) / 2])
        )
    assert measure(cut) == pytest.approx(s.mean())


@pytest.mark.parametrize("left", [-1e-3, 0.0, 1e-12, 0.04])
def test_a_geometry_of_rare_tokens_only_may_have_any_stress(left):
    """Where next to nothing is left without them, its shape is noise."""
    x = np.random.default_rng(1).normal(3, 1, 16)
    whole = of_sample(x)
    geometry = replace(whole, lumped=left * whole.squared)
    found = jackknife(lambda s: 0 * s[..., 0] + 0.4, geometry, bounds=(0, 1))
    assert (found.value, found.low, found.high) == (pytest.approx(0.4), 0, 1)


def test_replicates_without_halves_give_no_interval():
    geometry = replace(of_sample(np.random.default_rng(1).normal(3, 1, 16)), halves=None)
    found = jackknife(lambda s: s[..., 0], geometry)
    assert np.isnan([found.se, found.low, found.high]).all()


def test_numbers_of_some_pairs_are_open_where_only_rare_tokens_tell_these_apart():
    lumped = squareform([1.0, -0.1, 1])
    s = np.array([1.0, 1, 2])
    geometry = of_three(np.stack([s] * 8), lumped)
    second = stress_of(np.ones(1))  # NaN for a pair whose square is below 0
    found = jackknife(lambda s: second(s[..., 1:2]), geometry, bounds=(0, 1))
    assert (found.low, found.high) == (0, 1)


def test_noise_with_a_sum_below_0_keeps_its_signs():
    s = np.array([-1.0, 0.5, 0.1])
    geometry = of_three(np.stack([s] * 8), squareform(s))
    found = jackknife(lambda s: s[..., 1], geometry)
    assert (found.low, found.high) == (0.5, 0.5)


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


@pytest.mark.slow
def test_intervals_hold_the_truth_where_rare_tokens_mislead():
    """Of 20,000 tokens most are rare: the folds alone, which agree in the error, miss the truth."""
    held = []
    for seed in range(8):
        corpus = SyntheticCorpus("mixture", 32, 20_000, 7_000, 1.0, 0.8, seed)
        truth = true_geometry(corpus.profiles)
        found = estimate_geometry(draw_counts(corpus), seed=seed)
        for spec in ("sinusoidal", "rope", "alibi"):
            δ = make_encoding(spec).distances(found.index)
            right = stress(δ, truth.distances)
            for geometry in (found, replace(found, lumped=None)):
                fit = jackknife(stress_of(condensed(δ)), geometry, bounds=(0, 1))
                held.append(fit.low <= right <= fit.high)
    assert np.mean(held[::2]) >= 0.7
    assert np.mean(held[1::2]) < 0.6
