"""RoPE fitted to a geometry: known parameters come back, and it is never worse than the known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posgeom import PosgeomError, estimate_geometry, make_encoding, score_encodings, true_geometry
from posgeom.designers import DESIGNERS
from posgeom.designers.offsets import OffsetSums
from posgeom.encodings import Rope, parse_spec, spec_of
from posgeom.geometry import Geometry
from posgeom.inference import condensed, jackknife, stress_of
from posgeom.simulation import draw_counts
from posgeom.stress import shift_invariant_floor, stress
from posgeom.synthetic import SyntheticCorpus

SPECS = ["fitted-rope", "fitted-rope:energies=free", "fitted-base"]
KNOWN = ["rope", "rope:base=500000"]


def design(geometry, spec, dim=32):
    parsed = parse_spec(spec)
    return DESIGNERS[parsed.family](geometry, parsed, dim)


def geometry_of(squared, positions=None):
    n = len(squared)
    positions = np.arange(n) if positions is None else np.asarray(positions)
    return Geometry(
        squared=squared,
        totals=np.zeros(n, dtype=np.int64),
        positions=positions,
        estimator="truth",
    )


def of_encoding(encoding, positions):
    x = np.asarray(positions)
    return geometry_of(encoding.distances(x) ** 2, x)


def corrected(geometry, encoding):
    δ = condensed(encoding.distances(geometry.index))
    return jackknife(stress_of(δ), geometry, bounds=(0, 1)).value


@pytest.fixture(scope="module")
def estimates():
    """Shape -> its truth, and its debiased and plug-in geometry from one draw."""
    found = {}
    for shape in ("decay", "mixture", "periodic", "circle"):
        corpus = SyntheticCorpus(shape, 24, 400, 4_000, shortening=0.5)
        counts = draw_counts(corpus)
        found[shape] = (
            true_geometry(corpus.profiles),
            *(estimate_geometry(counts, estimator) for estimator in ("debiased", "plugin")),
        )
    return found


@pytest.mark.parametrize("shape", ["decay", "mixture", "periodic", "circle"])
@pytest.mark.parametrize("dim", [2, 8, 64])
def test_never_above_the_known_bases_nor_below_the_floor(estimates, shape, dim):
    for geometry in estimates[shape]:
        known = min(corrected(geometry, make_encoding(spec, dim=dim)) for spec in KNOWN)
        floor = OffsetSums.of(geometry).floor
        fits = [design(geometry, spec, dim) for spec in SPECS]
        for fit in fits:
            assert corrected(geometry, fit) <= known
            δ = condensed(fit.distances(geometry.index))
            assert float(stress_of(δ)(condensed(geometry.squared))) >= floor - 1e-12
        equal, free, base = (corrected(geometry, fit) for fit in fits)
        assert free <= equal <= base


@pytest.mark.parametrize("shape", ["decay", "mixture", "periodic", "circle"])
def test_what_is_fitted_to_a_sample_is_better_on_the_truth(estimates, shape):
    """No fit to the noise: the true stress falls too, and most of what could be gained is."""
    truth, sample, _ = estimates[shape]
    D = truth.distances
    default = stress(make_encoding("rope:dim=32").distances(truth.index), D)
    floor = shift_invariant_floor(D)
    for spec in SPECS[:2]:
        fitted = stress(design(sample, spec).distances(truth.index), D)
        assert default - fitted > 0.6 * (default - floor)


def test_the_frequencies_of_a_rope_come_back():
    want = Rope(dim=8, own_frequencies=(1.1, 0.5, 0.2, 0.06))
    fit = design(of_encoding(want, range(128)), "fitted-rope", 8)
    np.testing.assert_allclose(fit.inv_freq, want.inv_freq, rtol=1e-3)
    assert not fit.weights


def test_frequencies_with_energies_come_back():
    want = Rope(dim=6, own_frequencies=(1.1, 0.5, 0.06), weights=(1.0, 3.0, 0.5))
    fit = design(of_encoding(want, range(128)), "fitted-rope:energies=free", 6)
    np.testing.assert_allclose(fit.inv_freq, want.inv_freq, rtol=1e-3)
    np.testing.assert_allclose(
        np.array(fit.weights) / sum(fit.weights), np.array(want.weights) / 4.5, rtol=1e-2
    )


def test_more_pairs_than_frequencies_share_the_energy():
    """Energies 1 : 2 : 1 take one, two and one of eight pairs or twice that; others hardly turn."""
    want = Rope(dim=6, own_frequencies=(1.1, 0.5, 0.2), weights=(1.0, 2.0, 1.0))
    fit = design(of_encoding(want, range(100)), "fitted-rope", 16)
    near = np.isclose(fit.inv_freq[:, None], want.inv_freq, rtol=1e-3).sum(axis=0)
    assert near.tolist() in ([1, 2, 1], [2, 4, 2])
    assert (fit.inv_freq < 2e-4).sum() == 8 - near.sum()
    free = design(of_encoding(want, range(100)), "fitted-rope:energies=free", 16)
    assert stress(free.distances(range(100)), want.distances(range(100))) < 1e-6


@pytest.mark.parametrize("base", [50.0, 2_000.0, 3e6])
def test_the_base_of_a_rope_comes_back(base):
    fit = design(of_encoding(Rope(dim=32, base=base), range(200)), "fitted-base")
    assert fit.base == pytest.approx(base, rel=0.01)
    assert not fit.own_frequencies


def test_the_best_base_is_the_least_of_a_fine_scan():
    geometry = true_geometry(SyntheticCorpus("mixture", 40, 300).profiles)
    fit = design(geometry, "fitted-base")
    scan = [
        stress(Rope(dim=32, base=b).distances(range(40)), geometry.distances)
        for b in np.geomspace(1.01, 1e9, 600)
    ]
    assert stress(fit.distances(range(40)), geometry.distances) <= min(scan) + 1e-6


@pytest.mark.parametrize("shape", ["decay", "mixture", "periodic", "blocks"])
def test_one_pair_has_the_best_of_all_frequencies(shape):
    geometry = true_geometry(SyntheticCorpus(shape, 24, 300).profiles)
    sums, fit = OffsetSums.of(geometry), design(geometry, "fitted-rope", 2)
    scan = np.r_[np.geomspace(1e-3, 0.1, 2_000), np.linspace(0.1, np.pi, 20_000)]
    chords = 2 * np.abs(np.sin(np.outer(scan / 2, sums.offsets)))
    best = sums.stress(chords).min()
    assert sums.stress(2 * np.abs(np.sin(fit.inv_freq[0] / 2 * sums.offsets))) <= best + 1e-7


@given(st.integers(0, 1000), st.sets(st.integers(0, 30), min_size=2, max_size=12))
@settings(deadline=None, max_examples=15)
def test_noise_negative_squares_and_gaps_are_met(seed, chosen):
    x, n = np.array(sorted(chosen)), len(chosen)
    E = np.random.default_rng(seed).normal(0.6, 1, (n, n))
    squared = np.triu(E, 1) + np.triu(E, 1).T
    squared += (1 - np.eye(n)) * max(0, 0.1 - condensed(squared).mean())
    geometry = geometry_of(squared, x)
    s, floor = condensed(squared), OffsetSums.of(geometry).floor
    known = [make_encoding(spec, dim=4) for spec in KNOWN]
    least = min(float(stress_of(condensed(e.distances(x)))(s)) for e in known)
    for spec in SPECS:
        fit = design(geometry, spec, 4)
        value = float(stress_of(condensed(fit.distances(x)))(s))
        assert floor - 1e-12 <= value <= least + 1e-12


def test_a_line_gets_slow_frequencies():
    geometry = geometry_of(0.01 * np.subtract.outer(np.arange(80), np.arange(80)) ** 2.0)
    for spec in SPECS[:2]:
        fit = design(geometry, spec)
        assert fit.inv_freq.max() < 2e-3
        assert stress(fit.distances(range(80)), geometry.distances) < 1e-8


def test_constant_distances_get_frequencies_of_all_kinds():
    geometry = geometry_of(1 - np.eye(40))
    default = stress(make_encoding("rope:dim=64").distances(range(40)), geometry.distances)
    fit = design(geometry, "fitted-rope", 64)
    assert stress(fit.distances(range(40)), geometry.distances) < default / 20
    assert np.ptp(fit.inv_freq) > 2


def test_two_positions():
    geometry = geometry_of(np.array([[0, 0.5], [0.5, 0]]))
    for spec in SPECS:
        δ = design(geometry, spec, 4).distances([0, 1])
        assert δ[0, 1] > 1e-6
        assert stress(δ, geometry.distances) < 1e-12


@pytest.mark.parametrize("spec", [*SPECS, "fitted-rope:dim=8,pairing=halves"])
def test_the_fit_is_a_rope_that_its_own_spec_makes_again(estimates, spec):
    geometry = estimates["mixture"][1]
    fit, twice = design(geometry, spec), design(geometry, spec)
    assert fit == twice
    assert (fit.name, fit.family) == (spec, "rope")
    again = make_encoding(spec_of(fit))
    np.testing.assert_array_equal(again.distances(range(60)), fit.distances(range(60)))
    assert again.pairing == fit.pairing == ("halves" if "halves" in spec else "interleaved")
    assert again.dim == (8 if "dim=8" in spec else 32)
    assert (np.diff(fit.inv_freq) <= 0).all()
    row = score_encodings(geometry, [spec], dim=32).iloc[0]
    assert (row["encoding"], row["family"], row["shift_invariant"]) == (spec, "rope", True)
    assert row["stress"] == pytest.approx(corrected(geometry, fit))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("fitted-rope:dim=7", "dim=7 came, give an even number"),
        ("fitted-base:dim=7", "dim=7 came, give an even number"),
        ("fitted-rope:dim=0", "dim=0 came"),
        ("fitted-rope:energies=some", "energies=some; use equal or free"),
        ("fitted-rope:base=3", "no option 'base'"),
        ("fitted-base:energies=free", "no option 'energies'"),
        ("fitted-rope:pairing=odd", "pairing 'odd'"),
    ],
)
def test_bad_requests_say_what_to_do(spec, words):
    with pytest.raises(PosgeomError, match=words):
        design(geometry_of(1 - np.eye(4)), spec)


def test_no_geometry_is_refused():
    with pytest.raises(PosgeomError, match="no geometry to fit"):
        design(geometry_of(np.zeros((4, 4))), "fitted-rope")
