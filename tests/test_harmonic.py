"""The harmonic form of a geometry: known frequencies come back, its fit is the best there is."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.sparse import csr_array, vstack

from posgeom import PosgeomError, estimate_geometry, true_geometry
from posgeom.counts import PositionCounts, Provenance, canonical
from posgeom.designers.harmonic import (
    Harmonic,
    best_energies,
    harmonic_form,
    least_squares,
    merge_neighbours,
)
from posgeom.designers.offsets import OffsetSums
from posgeom.designers.polish import frequency_grid, turns
from posgeom.geometry import Geometry
from posgeom.inference import stress_of
from posgeom.simulation import draw_counts
from posgeom.synthetic import SyntheticCorpus

FREQUENCIES = np.array([0.1, 0.3, 1.2])


def turning_profiles(n, frequencies, energies, vocabulary=400):
    """(n, V) distributions whose Hellinger distances are √(Σ a_k · 2(1 − cos ω_k t)) exactly.

    √mu_i = c + Σ_k √a_k (cos(ω_k i) u_k + sin(ω_k i) v_k) with orthonormal cosines u_k, v_k, all
    orthogonal to the constant c, so that each row has norm 1.
    """
    v = (np.arange(vocabulary) + 0.5) / vocabulary
    waves = np.random.default_rng(0).permutation(np.arange(1, 60))
    R = np.full((n, vocabulary), np.sqrt((1 - np.sum(energies)) / vocabulary))
    for k, (ω, a) in enumerate(zip(frequencies, energies, strict=True)):
        u = np.sqrt(2 * a / vocabulary) * np.cos(np.pi * np.outer(waves[[2 * k, 2 * k + 1]], v))
        R += np.outer(np.cos(ω * np.arange(n)), u[0]) + np.outer(np.sin(ω * np.arange(n)), u[1])
    assert R.min() > 0
    return R**2


def drawn(profiles, documents, folds=16, seed=0):
    """Counts of documents as long as there are positions."""
    rng = np.random.default_rng(seed)
    parts = rng.multinomial(documents, np.full(folds, 1 / folds))
    counts = [rng.multinomial(np.full(len(profiles), m), profiles) for m in parts]
    return PositionCounts(
        counts=canonical(vstack([csr_array(c) for c in counts])),
        n_folds=folds,
        documents=parts,
        provenance=Provenance(documents=documents),
    )


def geometry_of(squared, positions=None):
    n = len(squared)
    positions = np.arange(n) if positions is None else np.asarray(positions)
    return Geometry(squared=squared, totals=np.zeros(n, dtype=np.int64), positions=positions)


def by_offset(f, positions):
    x = np.asarray(positions)
    return geometry_of(f(np.abs(x[:, None] - x[None, :]).astype(float)), x)


def strongest(h, count, longest):
    """The frequencies that move positions most, ascending."""
    moved = h.energies * turns(np.arange(1, longest), h.frequencies).mean(axis=0)
    return np.sort(h.frequencies[np.argsort(-moved)[:count]])


class TestKnownFrequencies:
    @pytest.mark.parametrize("n", [64, 128, 512])
    def test_three_come_back_from_the_truth(self, n):
        energies = np.array([0.04, 0.0225, 0.0121])
        geometry = true_geometry(turning_profiles(n, FREQUENCIES, energies))
        h = harmonic_form(geometry)
        assert len(h.frequencies) == 3
        np.testing.assert_allclose(h.frequencies, FREQUENCIES, rtol=1e-3)
        np.testing.assert_allclose(h.energies, energies, rtol=1e-2)

    @pytest.mark.parametrize("estimator", ["debiased", "plugin"])
    def test_three_come_back_from_a_drawn_corpus(self, estimator):
        energies = np.array([0.04, 0.0225, 0.0121])
        counts = drawn(turning_profiles(64, FREQUENCIES, energies), 5_000)
        h = harmonic_form(estimate_geometry(counts, estimator))
        np.testing.assert_allclose(strongest(h, 3, 64), FREQUENCIES, rtol=0.02)

    def test_energies_of_a_drawn_corpus_come_back_without_its_noise(self):
        """Sampling noise is a distance at every offset alike: energy at all frequencies."""
        energies = np.array([0.04, 0.0225, 0.0121])
        counts = drawn(turning_profiles(64, FREQUENCIES, energies), 50_000)
        h = harmonic_form(estimate_geometry(counts))
        moved = h.energies * turns(np.arange(1, 64), h.frequencies).mean(axis=0)
        near = np.abs(h.frequencies - FREQUENCIES[:, None]) < 0.02 * FREQUENCIES[:, None]
        np.testing.assert_allclose(near @ h.energies, energies, rtol=0.05)
        assert near.any(axis=0) @ moved / moved.sum() > 0.97

    def test_the_circle_is_one_turn(self):
        """Bases without common tokens, once around: all but 2.4% is the frequency 2π/n."""
        corpus = SyntheticCorpus("circle", 48, 500, 6_000)
        h = harmonic_form(estimate_geometry(draw_counts(corpus)))
        assert strongest(h, 1, 48)[0] == pytest.approx(2 * np.pi / 48, rel=0.01)

    def test_a_record_of_eight_has_its_overtones(self):
        corpus = SyntheticCorpus("periodic", 64, 500, 6_000)
        h = harmonic_form(estimate_geometry(draw_counts(corpus)))
        overtones = 2 * np.pi / 8 * np.arange(1, 5)
        np.testing.assert_allclose(strongest(h, 4, 64), overtones, rtol=0.002)


class TestForm:
    def test_it_is_its_formula_at_any_offset(self):
        h = Harmonic(np.array([0.3, 2.0]), np.array([1.5, 0.25]))
        t = np.array([[0, 1.5], [7, 1000]])
        want = 2 * 1.5 * (1 - np.cos(0.3 * t)) + 2 * 0.25 * (1 - np.cos(2 * t))
        np.testing.assert_allclose(h.squared(t), want, atol=1e-12)
        np.testing.assert_allclose(h.distance(t) ** 2, want, atol=1e-12)

    def test_a_line_needs_frequencies_slower_than_itself(self):
        geometry = by_offset(lambda t: (0.3 * t) ** 2, range(100))
        sums, h = OffsetSums.of(geometry), harmonic_form(geometry)
        assert sums.stress(h.distance(sums.offsets)) < 1e-8
        np.testing.assert_allclose(h.distance([1, 50, 99]), [0.3, 15, 29.7], rtol=1e-3)
        assert h.distance(198) == pytest.approx(59.4, rel=1e-3)

    def test_constant_distances_are_all_frequencies_alike(self):
        geometry = by_offset(lambda t: 0.5 * (t > 0), range(40))
        h = harmonic_form(geometry)
        np.testing.assert_allclose(h.squared(np.arange(1, 40)), 0.5, rtol=0.1)
        assert OffsetSums.of(geometry).stress(h.distance(np.arange(1, 40))) < 1e-4

    def test_two_positions(self):
        h = harmonic_form(geometry_of(np.array([[0, 0.49], [0.49, 0]])))
        assert h.distance(1) == pytest.approx(0.7)

    def test_positions_left_out(self):
        kept = [0, 1, 3, 4, 5, 8, 9, 13, 14, 20, 21, 22, 27, 30, 31, 33, 36, 38, 39, 41]
        want = Harmonic(np.array([0.4, 1.1]), np.array([0.3, 0.1]))
        h = harmonic_form(by_offset(want.squared, kept))
        np.testing.assert_allclose(strongest(h, 2, 42), [0.4, 1.1], rtol=1e-3)
        np.testing.assert_allclose(h.squared(np.arange(42)), want.squared(np.arange(42)), atol=1e-3)

    def test_every_second_position_cannot_see_the_fast_half(self):
        want = Harmonic(np.array([0.4, 1.1]), np.array([0.3, 0.1]))
        h = harmonic_form(by_offset(want.squared, range(0, 60, 2)))
        assert frequency_grid(np.arange(2, 60, 2)).max() == pytest.approx(np.pi / 2)
        np.testing.assert_allclose(strongest(h, 2, 60), [0.4, 1.1], rtol=1e-3)

    @given(st.integers(0, 1000), st.integers(2, 16))
    @settings(deadline=None, max_examples=40)
    def test_noise_with_squares_below_0_is_met_and_the_floor_is_kept(self, seed, n):
        E = np.random.default_rng(seed).normal(0.4, 1, (n, n))
        squared = np.triu(E, 1) + np.triu(E, 1).T
        squared[0, 1] = squared[1, 0] = n * n
        sums, h = OffsetSums.of(geometry_of(squared)), harmonic_form(geometry_of(squared))
        assert (h.energies >= 0).all()
        assert ((h.frequencies > 0) & (h.frequencies <= np.pi)).all()
        assert (np.diff(h.frequencies) >= 0).all()
        assert sums.floor - 1e-12 <= sums.stress(h.distance(sums.offsets)) <= 1

    def test_no_geometry_is_refused(self):
        with pytest.raises(PosgeomError, match="no geometry to fit"):
            harmonic_form(geometry_of(np.zeros((3, 3))))


class TestBestEnergies:
    @pytest.mark.parametrize("shape", ["decay", "mixture", "blocks", "periodic"])
    def test_no_descent_finds_better_ones(self, shape):
        """The stress at its best scale is convex in the energies: another method must agree."""
        truth = true_geometry(SyntheticCorpus(shape, 24, 300).profiles)
        sums = OffsetSums.of(truth)
        X = turns(sums.offsets, frequency_grid(sums.offsets)[::3])
        a = best_energies(sums, X)

        def raw(root):
            f = np.sqrt(X @ root**2)
            g = sums.pairs * (f - sums.mean) / np.maximum(f, 1e-12)
            return float(sums.pairs @ (f - sums.mean) ** 2), 2 * root * (g @ X)

        scale = sums.scale(np.sqrt(X @ a))
        ours = raw(scale * np.sqrt(a))[0]
        start = np.full(X.shape[1], np.sqrt(sums.mean.mean() ** 2 / X.mean() / X.shape[1]))
        theirs = minimize(raw, start, jac=True, method="L-BFGS-B", options={"maxiter": 3_000})
        assert ours <= theirs.fun + 1e-5 * sums.total

    def test_least_squares_meet_the_conditions_of_a_minimum(self):
        rng = np.random.default_rng(0)
        X, v, w = rng.random((20, 50)), rng.random(20), rng.random(20)
        a = least_squares(X, v, w)
        slope = X.T @ (w * (X @ a - v))
        assert (a >= 0).all()
        assert slope.min() > -1e-9
        np.testing.assert_allclose(slope[a > 0], 0, atol=1e-9)

    def test_a_direction_in_which_nothing_moves_gets_no_energy(self):
        a = least_squares(np.array([[0.0, 1.0], [0.0, 2.0]]), np.array([3.0, 6.0]), np.ones(2))
        np.testing.assert_allclose(a, [0, 3])

    def test_neighbours_merge_two_by_two_at_their_centre(self):
        grid = np.arange(1.0, 9.0)
        ω, a = merge_neighbours(grid, np.array([1.0, 3, 2, 0, 0, 5, 0, 4]))
        np.testing.assert_allclose(ω, [1.75, 3, 6, 8])
        np.testing.assert_allclose(a, [4, 2, 5, 4])


def test_a_geometry_with_errors_keeps_the_floor_in_every_number():
    geometry = estimate_geometry(draw_counts(SyntheticCorpus("mixture", 16, 200, 3_000)))
    h = harmonic_form(geometry)
    i, j = np.triu_indices(16, 1)
    value = float(stress_of(h.distance(j - i))(geometry.squared[i, j]))
    assert value >= OffsetSums.of(geometry).floor - 1e-12
    assert harmonic_form(replace(geometry, replicates=None)).squared(3) == h.squared(3)
