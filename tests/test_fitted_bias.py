"""ALiBi and KERPLE fitted to a geometry: known parameters come back, nothing beats the floor."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posgeom import PosgeomError, estimate_geometry, make_encoding, score_encodings
from posgeom.designers import DESIGNERS
from posgeom.encodings import T5Bias, parse_spec, spec_of
from posgeom.geometry import Geometry
from posgeom.inference import condensed, jackknife, stress_of
from posgeom.simulation import draw_counts
from posgeom.stress import raw_stress, shift_invariant_floor, stress
from posgeom.synthetic import SHAPES, SyntheticCorpus

READINGS = ("linear", "kernel", "attention")
PAIRS = [
    (f"fitted-{known},reading={reading}", f"{known},reading={reading}")
    for known in ("alibi:heads=3", "kerple:kind=log", "kerple:kind=power")
    for reading in READINGS
]


def geometry_of(squared, positions=None, grid=None):
    n = len(squared)
    return Geometry(
        squared=squared,
        totals=np.zeros(n, dtype=np.int64),
        positions=np.arange(n) if positions is None else positions,
        grid=grid,
        estimator="truth",
    )


def shift_invariant(f, positions):
    """The geometry of squared distances f(|i − j|)."""
    x = np.asarray(positions)
    return geometry_of(f(np.abs(x[:, None] - x).astype(float)), x)


def noisy(n, seed, least=-0.5):
    """Squared distances of chance, some of them below 0, of a positive sum."""
    S = np.random.default_rng(seed).uniform(least, 2, (n, n))
    S = np.triu(S, 1)
    S[0, 1] = n * n
    return geometry_of(S + S.T)


def fitted(spec, geometry):
    parsed = parse_spec(spec)
    return DESIGNERS[parsed.family](geometry, parsed, 128)


def seen(geometry, encoding):
    """The stress that a user sees, and the one that no correction touches."""
    measure = stress_of(condensed(encoding.distances(geometry.index)))
    return (
        jackknife(measure, geometry, bounds=(0, 1)).value,
        float(measure(condensed(geometry.squared))),
    )


def laplace(slopes):
    return lambda t: 2 * sum(1 - np.exp(-m * t) for m in slopes)


class TestAttentionReading:
    SPECS = ("alibi:heads=3", "t5:buckets=8", "kerple:r1=1;0.5", "sandwich:heads=2", "fire")

    @pytest.mark.parametrize("spec", SPECS)
    def test_is_what_the_bias_leaves_of_the_attention(self, spec):
        plain = make_encoding(spec)
        e = replace(plain, reading="attention")
        P = np.arange(20)
        squares = np.zeros((20, 20))
        for h in range(e.heads):
            b = e.bias(h, P, P)
            b = np.tril(b) + np.tril(b, -1).T  # of FIRE the later one is the query
            squares += 2 * (1 - np.exp(b - b[0, 0]))
        np.testing.assert_allclose(e.distances(P), np.sqrt(squares), atol=1e-7)

    @pytest.mark.parametrize("spec", ["alibi", "kerple:r2=3", "kerple:kind=power,r2=1.5"])
    def test_is_euclidean_where_the_bias_is_a_kernel(self, spec):
        D = replace(make_encoding(spec), reading="attention").distances(np.arange(30))
        J = np.eye(30) - 1 / 30
        assert np.linalg.eigvalsh(-J @ D**2 @ J / 2).min() > -1e-10

    def test_a_bias_above_that_of_offset_0_counts_as_no_distance(self):
        e = T5Bias(buckets=4, values=(0, 2_000, 0, -1), reading="attention")
        assert e.distances([0, 1])[0, 1] == 0  # the mean of both directions rises
        e = T5Bias(buckets=4, values=(0, -1, 0, -1), reading="attention")
        assert e.distances([0, 1])[0, 1] == pytest.approx(np.sqrt(2 * (1 - np.exp(-1))))


class TestScale:
    def test_a_line_gives_its_own_step(self):
        e = fitted("fitted-alibi", shift_invariant(lambda t: (0.3 * t) ** 2, range(32)))
        assert np.sqrt((e.slopes**2).sum()) == pytest.approx(0.3, rel=1e-12)
        np.testing.assert_allclose(e.slopes[1:] / e.slopes[:-1], 0.5)

    def test_a_root_gives_its_own_rate(self):
        geometry = shift_invariant(lambda t: 0.6 * t, range(32))
        e = fitted("fitted-alibi:heads=12,reading=kernel", geometry)
        assert e.slopes.sum() == pytest.approx(0.3, rel=1e-12)
        assert seen(geometry, e)[1] == pytest.approx(0, abs=1e-14)

    @given(st.integers(2, 12), st.integers(0, 99), st.integers(1, 9))
    @settings(max_examples=25, deadline=None)
    def test_only_the_scale_changes_and_is_the_best(self, n, seed, heads):
        geometry = noisy(n, seed, least=0)
        for reading in ("linear", "kernel"):
            options = f"heads={heads},reading={reading}"
            e, known = fitted(f"fitted-alibi:{options}", geometry), f"alibi:{options}"
            δ, D = e.distances(geometry.index), geometry.distances
            δ0 = make_encoding(known).distances(geometry.index)
            assert stress(δ, D) == pytest.approx(stress(δ0, D), abs=1e-12)
            assert raw_stress(δ, D) == pytest.approx(stress(δ, D), abs=1e-12)

    @pytest.mark.parametrize("reading", ["linear", "kernel"])
    def test_where_noise_points_backward_the_default_stays(self, reading):
        S = np.array([[0, 4, -3.61], [4, 0, 0.01], [-3.61, 0.01, 0]])
        known = make_encoding(f"alibi:reading={reading}")
        assert condensed(known.distances(range(3))) @ [2, -1.9, 0.1] < 0
        e = fitted(f"fitted-alibi:reading={reading}", geometry_of(S))
        np.testing.assert_array_equal(e.slopes, known.slopes)


class TestSlopes:
    @pytest.mark.parametrize(
        "slopes", [(0.5, 0.05), (1.0, 0.1, 0.01), (0.2, 0.2, 0.01), (3.0, 0.001), (0.25,)]
    )
    def test_known_slopes_come_back(self, slopes):
        geometry = shift_invariant(laplace(slopes), range(64))
        e = fitted(f"fitted-alibi:heads={len(slopes)},reading=attention", geometry)
        np.testing.assert_allclose(e.slopes, slopes, rtol=0.01)
        assert seen(geometry, e)[1] < 1e-9

    def test_eight_known_slopes_fit(self):
        slopes = np.geomspace(2, 0.002, 8)
        geometry = shift_invariant(laplace(slopes), range(128))
        e = fitted("fitted-alibi:reading=attention", geometry)
        known = make_encoding("alibi:reading=attention")
        assert seen(geometry, e)[1] < 1e-6 < seen(geometry, known)[1]

    @pytest.mark.parametrize("seed", range(4))
    def test_no_two_slopes_of_a_grid_are_better(self, seed):
        draw = np.random.default_rng(seed)
        x = np.arange(24)
        clean = shift_invariant(lambda t: np.abs(np.sin(t / draw.integers(3, 15))), x)
        bent = np.triu(clean.squared * draw.uniform(0.5, 2, (24, 24)), 1)
        geometry = geometry_of(bent + bent.T)
        e = fitted("fitted-alibi:heads=2,reading=attention", geometry)
        t = np.abs(x[:, None] - x)[np.triu_indices(24, 1)]
        each = 2 * (1 - np.exp(-np.geomspace(1e-4, 20, 80)[:, None] * t))
        F = np.sqrt(each[:, None] + each[None])
        D = condensed(geometry.distances)
        grid = 1 - (F @ D) ** 2 / ((F**2).sum(axis=-1) * (D @ D))
        # slower slopes than the bound differ from it by less than a ten-thousandth
        assert seen(geometry, e)[1] <= grid.min() + 1e-4

    def test_a_straight_line_takes_the_slowest(self):
        geometry = shift_invariant(lambda t: t, range(16))  # D² = t, the limit of slow slopes
        e = fitted("fitted-alibi:heads=2,reading=attention", geometry)
        assert seen(geometry, e)[1] < 1e-6


class TestKerple:
    @pytest.mark.parametrize("heads", [1, 3])
    @pytest.mark.parametrize("reading", READINGS)
    @pytest.mark.parametrize("kind", ["log", "power"])
    def test_known_parameters_come_back(self, kind, reading, heads):
        known = make_encoding(f"kerple:kind={kind},reading={reading},heads={heads},r1=0.2,r2=0.7")
        geometry = geometry_of(known.distances(np.arange(64)) ** 2)
        e = fitted(f"fitted-kerple:kind={kind},reading={reading},heads={heads}", geometry)
        np.testing.assert_allclose([*e.r1, *e.r2], [0.2, 0.7], rtol=0.01)
        assert e.heads == heads
        assert seen(geometry, e)[1] < 1e-9

    @pytest.mark.parametrize("kind", ["log", "power"])
    def test_a_line_and_a_plane_reach_their_bounds(self, kind):
        geometry = shift_invariant(lambda t: (0.3 * t) ** 2, range(20))
        e = fitted(f"fitted-kerple:kind={kind}", geometry)
        assert seen(geometry, e)[1] < 1e-6
        if kind == "power":
            np.testing.assert_allclose([*e.r1, *e.r2], [0.3, 1], rtol=1e-6)
            e = fitted("fitted-kerple:kind=power,reading=kernel", geometry)
            assert 1.99 < e.r2[0] <= 2
            assert seen(geometry, e)[1] < 1e-6

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("kind", ["log", "power"])
    def test_no_r2_of_a_grid_is_better(self, kind, seed):
        geometry = noisy(14, seed, least=0.5)
        e = fitted(f"fitted-kerple:kind={kind}", geometry)
        for r2 in np.geomspace(1e-2, 2 if kind == "power" else 1e5, 60):
            other = replace(e, r2=(min(r2, 2.0) if kind == "power" else r2,))
            assert seen(geometry, e)[1] <= seen(geometry, other)[1] + 1e-9


@pytest.mark.parametrize(("spec", "known"), PAIRS)
class TestEveryFit:
    def test_goes_by_its_spec_and_can_be_made_without_the_corpus(self, spec, known):
        geometry = noisy(9, 1)
        e = fitted(spec, geometry)
        assert e.name == spec
        assert e.family == make_encoding(known).family
        again = make_encoding(spec_of(e))
        np.testing.assert_array_equal(again.distances(range(40)), e.distances(range(40)))
        assert spec_of(fitted(spec, geometry)) == spec_of(e)

    @pytest.mark.parametrize("shape", [s for s in SHAPES if s != "none"])
    def test_is_not_above_the_default_nor_below_the_floor(self, spec, known, shape):
        corpus = SyntheticCorpus(shape, 20, 60, 3_000, 1.0, 0.5, 3)
        for estimator in ("debiased", "plugin"):
            geometry = estimate_geometry(draw_counts(corpus, 8), estimator)
            corrected, plain = seen(geometry, fitted(spec, geometry))
            assert corrected <= seen(geometry, make_encoding(known))[0] + 1e-12
            if estimator == "plugin":
                floor = shift_invariant_floor(geometry.distances, geometry.positions)
                assert plain >= floor - 1e-12

    def test_two_positions(self, spec, known):
        geometry = shift_invariant(lambda t: 0.25 * t, [3, 7])
        e = fitted(spec, geometry)
        assert seen(geometry, e)[1] == pytest.approx(0, abs=1e-12)
        if "attention" not in spec:
            assert e.distances([3, 7])[0, 1] == pytest.approx(1)

    def test_constant_distances(self, spec, known):
        geometry = shift_invariant(lambda t: np.where(t > 0, 0.5, 0), range(16))
        corrected, _ = seen(geometry, fitted(spec, geometry))
        assert corrected <= seen(geometry, make_encoding(known))[0] + 1e-12
        if "attention" in spec and "alibi" in spec:
            assert corrected < 1e-9

    def test_positions_left_out_and_cells_of_a_grid(self, spec, known):
        kept = np.array([0, 1, 5, 6, 13, 14, 15])
        f = make_encoding(known).distances(kept) ** 2
        left = geometry_of(f, kept)
        grid = geometry_of(f, np.column_stack(np.divmod(kept, 4)), (4, 4))
        a, b = fitted(spec, left), fitted(spec, grid)
        assert seen(left, a)[1] < 1e-6
        np.testing.assert_array_equal(a.distances(kept), b.distances(kept))

    @pytest.mark.parametrize("seed", range(3))
    def test_squares_below_0(self, spec, known, seed):
        geometry = noisy(12, seed)
        assert (geometry.squared < 0).any()
        e = fitted(spec, geometry)
        assert seen(geometry, e)[0] <= seen(geometry, make_encoding(known))[0] + 1e-12
        assert np.isfinite(e.distances(range(12))).all()


@pytest.mark.parametrize("family", ["alibi", "kerple", "t5"])
@pytest.mark.parametrize("reading", READINGS)
def test_where_noise_takes_every_mean_below_0(family, reading):
    """No bias can follow that, and a fit still gives one that can be used."""
    roots = np.array([[0, 2, -0.1, -0.1], [0, 0, -1.2, -0.1], [0, 0, 0, -1.2], [0, 0, 0, 0]])
    roots = roots + roots.T
    geometry = geometry_of(np.sign(roots) * roots**2)
    assert condensed(geometry.squared).sum() > 0
    assert all(np.diagonal(roots, k).sum() < 0 for k in (1, 2, 3))
    e = fitted(f"fitted-{family}:reading={reading}", geometry)
    assert np.isfinite(e.distances(range(4))).all()
    assert (condensed(e.distances(range(4))) > 0).all()


@pytest.mark.parametrize("family", ["alibi:heads=2", "kerple:heads=2"])
@pytest.mark.parametrize("reading", READINGS)
def test_a_row_of_one_head_can_be_made_again(family, reading):
    geometry = noisy(9, 4)
    spec = f"fitted-{family},reading={reading}"
    table = score_encodings(geometry, [spec], per_head=True)
    assert list(table["encoding"]) == [spec, f"{spec},head=0", f"{spec},head=1"]
    again = score_encodings(geometry, list(table["encoding"]))
    np.testing.assert_array_equal(again["stress_raw"], table["stress_raw"])


@pytest.mark.parametrize("family", ["alibi", "kerple"])
def test_causal_hides_the_keys_ahead(family):
    e, plain = (fitted(f"fitted-{family}{c}", noisy(9, 4)) for c in (":causal=true", ""))
    assert np.isneginf(e.bias(0, [0], [1]))
    np.testing.assert_array_equal(e.distances(range(9)), plain.distances(range(9)))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fitted-alibi:heads=0", "heads=0; it must be 1 or more"),
        ("fitted-kerple:heads=0", "heads=0; it must be 1 or more"),
        ("fitted-alibi:reading=squared", "use linear, kernel or attention"),
        ("fitted-kerple:kind=cubic", "use log or power"),
        ("fitted-alibi:slopes=1", "knows heads, reading, head, causal"),
        ("fitted-alibi:heads=2,head=2", "no head 2; use head=0 to 1"),
        ("fitted-kerple:heads=many", "heads takes int"),
    ],
)
def test_bad_specs(spec, message):
    with pytest.raises(PosgeomError, match=message):
        score_encodings(noisy(5, 0), [spec])


def test_they_stand_in_the_table_of_scores():
    geometry = shift_invariant(laplace((0.5, 0.05)), range(24))
    specs = ["fitted-alibi:heads=2,reading=attention", "alibi:heads=2,reading=attention"]
    table = score_encodings(geometry, [*specs, "fitted-kerple:kind=power,reading=attention"])
    assert list(table["family"]) == ["alibi", "alibi", "kerple"]
    assert table["stress"][0] < 1e-9 < table["stress"][1]
