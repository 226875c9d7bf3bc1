"""T5's table fitted to a geometry: the mean of each bucket, isotone where asked."""

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from posgeom import PosgeomError, estimate_geometry, make_encoding, score_encodings, true_geometry
from posgeom.designers import DESIGNERS
from posgeom.encodings import parse_spec, spec_of, t5_bucket
from posgeom.geometry import Geometry
from posgeom.inference import condensed, jackknife, signed_root, stress_of
from posgeom.scoring import floor_estimate
from posgeom.simulation import draw_counts
from posgeom.stress import shift_invariant_floor
from posgeom.synthetic import SHAPES, SyntheticCorpus


def geometry_of(squared, positions=None, grid=None):
    n = len(squared)
    return Geometry(
        squared=squared,
        totals=np.zeros(n, dtype=np.int64),
        positions=np.arange(n) if positions is None else positions,
        grid=grid,
        estimator="truth",
    )


def noisy(n, seed, least=0.0, positions=None):
    """Squared distances that rise with the offset but for chance."""
    draw = np.random.default_rng(seed)
    x = np.arange(n) if positions is None else positions
    S = np.sqrt(np.abs(x[:, None] - x)) * draw.uniform(least, 2, (n, n))
    S = np.triu(S, 1)
    return geometry_of(S + S.T, positions)


def fitted(spec, geometry):
    parsed = parse_spec(spec)
    return DESIGNERS[parsed.family](geometry, parsed, 128)


def plain_stress(geometry, encoding):
    measure = stress_of(condensed(encoding.distances(geometry.index)))
    return float(measure(condensed(geometry.squared)))


def corrected(geometry, encoding):
    measure = stress_of(condensed(encoding.distances(geometry.index)))
    return jackknife(measure, geometry, bounds=(0, 1)).value


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seed", range(3))
class TestLeastSquares:
    def buckets(self, geometry, e):
        x = geometry.index
        i, j = np.triu_indices(len(x), 1)
        return t5_bucket(x[i] - x[j], not e.causal, e.buckets, e.max_distance)

    def test_each_bucket_has_the_best_number(self, seed, causal):
        geometry = noisy(60, seed)
        spec = f"fitted-t5:buckets=16,max_distance=40,causal={str(causal).lower()}"
        e = fitted(spec, geometry)
        at = self.buckets(geometry, e)
        A = (at[:, None] == np.arange(16)).astype(float)
        best, *_ = np.linalg.lstsq(A, condensed(geometry.distances), rcond=None)
        reached = np.unique(at)
        np.testing.assert_allclose(-np.array(e.values)[reached], best[reached], rtol=1e-10)
        assert e.values[0] == 0

    def test_isotone_is_the_best_of_those_that_never_fall(self, seed, causal):
        geometry = noisy(60, seed)
        options = f"buckets=16,max_distance=40,causal={str(causal).lower()}"
        e = fitted(f"fitted-t5:{options},isotonic=true", geometry)
        free = fitted(f"fitted-t5:{options}", geometry)
        at, d = self.buckets(geometry, e), condensed(geometry.distances)
        expected = IsotonicRegression(y_min=0).fit(at, d).predict(at)
        np.testing.assert_allclose(-np.array(e.values)[at], expected, rtol=1e-10)
        assert (np.diff(e.distances(range(100))[0]) >= 0).all()
        assert plain_stress(geometry, e) >= plain_stress(geometry, free) - 1e-12

    def test_squares_below_0_pull_and_no_distance_is_below_0(self, seed, causal):
        geometry = noisy(20, seed, least=-1.9)
        e = fitted(f"fitted-t5:causal={str(causal).lower()}", geometry)
        at, d = self.buckets(geometry, e), signed_root(condensed(geometry.squared))
        means = np.array([d[at == b].mean() for b in np.unique(at)])
        assert (means < 0).any()
        np.testing.assert_allclose(
            -np.array(e.values)[np.unique(at)], np.maximum(means, 0), atol=1e-12
        )


class TestFloor:
    @pytest.mark.parametrize("options", ["buckets=64", "causal=true", "buckets=64,isotonic=true"])
    @pytest.mark.parametrize("seed", range(3))
    def test_is_reached_where_each_offset_has_a_bucket(self, options, seed):
        geometry = noisy(16, seed)
        floor = shift_invariant_floor(geometry.distances, geometry.positions)
        reached = plain_stress(geometry, fitted(f"fitted-t5:{options}", geometry))
        if "isotonic" in options:
            assert reached > floor
        else:
            assert reached == pytest.approx(floor, abs=1e-12)
            for reading in ("kernel", "attention"):
                e = fitted(f"fitted-t5:{options},reading={reading}", geometry)
                assert plain_stress(geometry, e) == pytest.approx(floor, abs=1e-9)

    @pytest.mark.parametrize("shape", [s for s in SHAPES if s != "none"])
    def test_nothing_is_below_it_nor_above_the_default(self, shape):
        corpus = SyntheticCorpus(shape, 40, 60, 3_000, 1.0, 0.5, 3)
        for estimator in ("debiased", "plugin"):
            geometry = estimate_geometry(draw_counts(corpus, 8), estimator)
            for options in ("", "causal=true", "buckets=8,max_distance=20", "reading=kernel"):
                known = make_encoding(f"t5:{options}")
                for spec in (f"fitted-t5:{options}", f"fitted-t5:{options},isotonic=true"):
                    e = fitted(spec, geometry)
                    assert corrected(geometry, e) <= corrected(geometry, known) + 1e-12
                    if estimator == "plugin":
                        floor = floor_estimate(geometry).value
                        assert plain_stress(geometry, e) >= floor - 1e-12


class TestReadings:
    def test_distances_are_the_same_under_each(self):
        geometry = geometry_of(noisy(40, 5).squared / 20)  # chords of at most √2
        made = {r: fitted(f"fitted-t5:reading={r}", geometry) for r in ("linear", "kernel")}
        δ = made["linear"].distances(range(40))
        np.testing.assert_allclose(made["kernel"].distances(range(40)), δ, rtol=1e-12)
        e = fitted("fitted-t5:reading=attention", geometry)
        np.testing.assert_allclose(e.distances(range(40)), δ, rtol=1e-12)

    def test_distances_too_long_for_attention_are_scaled(self):
        geometry = noisy(40, 5)
        e = fitted("fitted-t5:reading=attention", geometry)
        δ = fitted("fitted-t5", geometry).distances(range(40))
        ratio = condensed(e.distances(range(40))) / condensed(δ)
        np.testing.assert_allclose(ratio, ratio[0])
        assert ratio[0] < 1

    def test_attention_is_the_bhattacharyya_coefficient(self):
        """Rows that take turns among three tokens, so that the overlap hangs on the offset."""
        P = np.array([[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]])[np.arange(16) % 3]
        e = fitted("fitted-t5:buckets=64,reading=attention", true_geometry(P))
        kept = np.exp(e.bias(0, np.arange(16), np.arange(16)))
        np.testing.assert_allclose(kept, np.sqrt(P) @ np.sqrt(P).T, rtol=1e-10)


class TestTable:
    def test_both_directions_are_the_same(self):
        e = fitted("fitted-t5", noisy(50, 2))
        assert e.values[:16] == e.values[16:]
        b = e.bias(0, np.arange(50), np.arange(50))
        np.testing.assert_array_equal(b, b.T)

    @pytest.mark.parametrize("options", ["", "isotonic=true,causal=true", "reading=kernel"])
    def test_can_be_made_without_the_corpus(self, options):
        e = fitted(f"fitted-t5:{options}", noisy(50, 2))
        assert e.name == f"fitted-t5:{options}"
        again = make_encoding(spec_of(e))
        np.testing.assert_array_equal(again.distances(range(300)), e.distances(range(300)))
        assert again.values == e.values == fitted(e.name, noisy(50, 2)).values

    def test_a_row_of_its_head_can_be_made_again(self):
        table = score_encodings(noisy(9, 4), ["fitted-t5"], per_head=True)
        assert list(table["encoding"]) == ["fitted-t5", "fitted-t5:head=0"]
        again = score_encodings(noisy(9, 4), list(table["encoding"]))
        np.testing.assert_array_equal(again["stress_raw"], table["stress_raw"])

    def test_a_bucket_that_nothing_reaches_repeats_the_one_below(self):
        e = fitted("fitted-t5", noisy(20, 0))
        assert e.note == "buckets without an offset of the corpus repeat the one below: 11 to 15"
        assert len(set(e.values[10:16])) == 1
        assert fitted("fitted-t5", noisy(130, 0)).note == ""

    def test_positions_left_out_leave_buckets_between(self):
        e = fitted("fitted-t5", noisy(4, 0, positions=np.array([0, 2, 4, 6])))
        assert e.values[1] == e.values[0] == 0
        assert e.values[3] == e.values[2] < 0
        assert "1, 3, 5, 7 to 15" in e.note

    def test_offsets_past_max_distance_share_the_last_bucket(self):
        geometry = noisy(100, 1)
        e = fitted("fitted-t5:buckets=8,max_distance=20", geometry)
        offsets = np.abs(np.subtract.outer(range(100), range(100)))
        far = t5_bucket(-offsets, True, 8, 20) == 3
        assert far[0, 20:].all()
        mean = geometry.distances[far].mean()
        assert e.distances(range(5_000))[0, -1] == pytest.approx(mean, rel=1e-12)

    def test_two_positions(self):
        geometry = geometry_of(np.array([[0, 0.25], [0.25, 0]]))
        e = fitted("fitted-t5:buckets=4", geometry)
        assert e.values == (0, -0.5, 0, -0.5)

    def test_constant_distances(self):
        geometry = geometry_of((1 - np.eye(40)) * 0.25)
        for options in ("", "isotonic=true"):
            e = fitted(f"fitted-t5:{options}", geometry)
            np.testing.assert_allclose(e.distances(range(40)), geometry.distances, atol=1e-12)

    def test_cells_of_a_grid_go_by_their_flat_number(self):
        flat = noisy(12, 3)
        cells = np.column_stack(np.divmod(np.arange(12), 4))
        grid = geometry_of(flat.squared, cells, (3, 4))
        assert fitted("fitted-t5", grid).values == fitted("fitted-t5", flat).values


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fitted-t5:buckets=5", "an even number"),
        ("fitted-t5:max_distance=8", "it must exceed the 8 offsets"),
        ("fitted-t5:isotonic=perhaps", "isotonic takes true or false"),
        ("fitted-t5:reading=squared", "use linear, kernel or attention"),
        ("fitted-t5:heads=0", "no option 'heads'"),
    ],
)
def test_bad_specs(spec, message):
    with pytest.raises(PosgeomError, match=message):
        score_encodings(noisy(5, 0), [spec])
