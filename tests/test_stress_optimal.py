"""The table of least stress: never above classical MDS, nearer to the truth, and its ranks."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from posgeom import PosgeomError, SyntheticCorpus, estimate_geometry, score_encodings
from posgeom.designers import DESIGNERS
from posgeom.designers.floors import rank_floor
from posgeom.designers.ranks import rank_table, ranks_shown
from posgeom.designers.stress_optimal import precision_weights, stress_low_rank
from posgeom.encodings import FixedTable, parse_spec
from posgeom.geometry import Geometry, true_geometry
from posgeom.inference import condensed, jackknife, signed_root, stress_of
from posgeom.simulation import draw_counts
from posgeom.stress import raw_stress, stress


def corpus(shape="periodic", documents=4_000, n=16, seed=0):
    return SyntheticCorpus(shape, n, 500, documents, shortening=0.5, seed=seed)


def debiased(shape="periodic", **options):
    return estimate_geometry(draw_counts(corpus(shape, **options)))


def make(geometry, spec, dim=32):
    parsed = parse_spec(spec)
    return DESIGNERS[parsed.family](geometry, parsed, dim)


def in_sample(geometry, encoding):
    δ = encoding.distances(geometry.index)
    return float(stress_of(condensed(δ))(condensed(geometry.squared)))


def noisy(n, seed):
    """Squared distances with noise, some below 0, at positions with a gap."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    N = rng.standard_normal((n, n))
    return Geometry(
        squared=(cdist(X, X) ** 2 + (N + N.T) / 2) * (1 - np.eye(n)),
        totals=np.full(n, 100),
        positions=np.arange(n) + 2 * (np.arange(n) > 1),
    )


@given(st.integers(3, 14), st.integers(1, 5), st.integers(0, 999))
@settings(deadline=None, max_examples=40)
def test_never_more_stress_than_classical_mds_of_the_same_rank(n, rank, seed):
    geometry, rank = noisy(n, seed), min(rank, n - 1)
    assume(condensed(geometry.squared).sum() > 0)
    classical, optimal = (make(geometry, f"{f}:rank={rank}") for f in ("mds", "stress"))
    assert in_sample(geometry, optimal) <= in_sample(geometry, classical) + 1e-12
    assert optimal.n_parameters == rank * (n + 32)


@pytest.mark.parametrize("shape", ["blocks", "mixture", "periodic", "circle"])
@pytest.mark.parametrize("estimator", ["debiased", "plugin"])
def test_not_above_classical_mds_on_either_geometry(shape, estimator):
    geometry = estimate_geometry(draw_counts(corpus(shape)), estimator)
    for rank in ("", ":rank=1", ":rank=2"):
        classical, optimal = (make(geometry, family + rank) for family in ("mds", "stress"))
        assert in_sample(geometry, optimal) <= in_sample(geometry, classical) + 1e-12


@pytest.mark.slow
def test_nearer_to_the_truth_than_classical_mds_and_than_weights_by_precision():
    """True stress of rank 2, the mean over 6 corpora; what decides the default weights."""
    found = {"mds:rank=2": [], "stress:rank=2": [], "stress:rank=2,weights=precision": []}
    for shape in ("blocks", "periodic", "decay"):
        for seed in range(2):
            source = corpus(shape, seed=seed, documents=2_000)
            geometry = estimate_geometry(draw_counts(source))
            truth = true_geometry(source.profiles[geometry.index])
            for spec, values in found.items():
                δ = make(geometry, spec).distances(geometry.index)
                values.append(stress(δ, truth.distances))
    classical, equal, precision = (np.mean(values) for values in found.values())
    assert equal < precision < classical


def test_three_one_hot_distributions_in_one_dimension():
    geometry = true_geometry(np.eye(3))
    δ = make(geometry, "stress:rank=1").distances(range(3))
    assert raw_stress(δ, geometry.distances) == pytest.approx(1 / 9)


def test_it_is_a_table_of_its_family_for_the_positions_of_the_geometry():
    geometry = noisy(8, 0)
    table = make(geometry, "stress:rank=2", dim=6)
    assert isinstance(table, FixedTable)
    assert (table.family, table.name) == ("stress", "stress:rank=2")
    assert table.table(geometry.index).shape == (8, 6)
    with pytest.raises(PosgeomError, match="has no row"):
        table.table([2])
    again = make(geometry, "stress:rank=2", dim=6)
    assert again.rows.tobytes() == table.rows.tobytes()
    whole = make(geometry, "stress", dim=6)
    assert whole.n_parameters == 8 * 6
    assert "this sample" in whole.note


def test_the_low_rank_factors_are_the_table():
    geometry = noisy(8, 1)
    factors = stress_low_rank(geometry, 2, 6)
    assert (factors.A.shape, factors.B.shape) == ((8, 2), (6, 2))
    np.testing.assert_array_equal(factors.table(), make(geometry, "stress:rank=2", dim=6).rows)


def test_its_score_is_in_sample_and_not_corrected():
    geometry = debiased()
    row = score_encodings(geometry, ["stress:rank=2"], 32).iloc[0]
    table = make(geometry, "stress:rank=2")
    assert row["family"] == "stress"
    assert row["stress"] == pytest.approx(in_sample(geometry, table), abs=1e-12)


def test_precision_is_the_jackknife_error_of_each_distance():
    """Pair by pair through posgeom.inference.jackknife; the mean is the least variance taken."""
    geometry = debiased(n=6)
    n = geometry.n_positions
    variances = []
    for k in range(n * (n - 1) // 2):
        variances.append(jackknife(lambda s, k=k: signed_root(s[..., k]), geometry).se ** 2)
    mean = np.mean(variances)
    weights = condensed(precision_weights(geometry))
    np.testing.assert_allclose(weights, mean / np.maximum(variances, mean), rtol=1e-9)
    assert not np.diag(precision_weights(geometry)).any()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("stress:rank=0", "use --rank 1 to 7"),
        ("stress:rank=8,dim=16", "span at most 7"),
        ("stress:rank=7", "does not fit in dimension 6"),
        ("stress:rank=two", "rank takes int"),
        ("stress:weights=none", "equal or precision"),
        ("stress:weights=precision", "use weights=equal"),
        ("stress:restarts=-1", "0 or more"),
        ("stress:scale=2", "no option 'scale'"),
    ],
)
def test_what_cannot_be_made_is_refused(spec, words):
    with pytest.raises(PosgeomError, match=words):
        make(noisy(8, 0), spec, dim=6)


def test_rank_table_says_what_the_designs_score():
    geometry = debiased()
    table = rank_table(geometry, 32)
    assert list(table["rank"]) == list(range(1, len(table) + 1))
    for row in table.to_dict("records"):
        r = row["rank"]
        scores = score_encodings(geometry, [f"mds:rank={r}"], 32).iloc[0]
        assert row["stress"] == pytest.approx(scores["stress"], abs=1e-12)
        assert row["stress_raw"] == pytest.approx(scores["stress_raw"], abs=1e-12)
        assert row["stress_se"] == pytest.approx(scores["stress_se"], abs=1e-12)
        assert row["parameters"] == r * (geometry.n_positions + 32)


@pytest.mark.parametrize("shape", ["periodic", "mixture", "decay"])
@pytest.mark.parametrize("estimator", ["debiased", "plugin"])
def test_rank_table_is_ordered_floor_optimum_classical(shape, estimator):
    geometry = estimate_geometry(draw_counts(corpus(shape)), estimator)
    table = rank_table(geometry, 8)
    assert len(table) <= 8
    assert (table["floor"] <= table["optimal_stress"] + 1e-12).all()
    assert (table["optimal_stress"] <= table["stress"] + 1e-12).all()
    assert (table["optimal_stress"] <= table["optimal_stress_raw"] + 1e-12).all()
    assert (table["optimal_stress"].diff().dropna() <= 1e-12).all()
    assert (table["explained"].diff().dropna() >= 0).all()
    assert table["stress_se"].notna().all() == (estimator == "debiased")
    first = rank_floor(geometry, 1)
    assert first.proved == pytest.approx(table["floor"][0])
    assert first.found <= table["optimal_stress"][0] + 1e-7


def test_many_ranks_are_shown_in_steps():
    assert list(ranks_shown(40)) == list(range(1, 41))
    many = ranks_shown(127)
    assert list(many[:20]) == list(range(1, 21))
    assert many[-1] == 127
    assert len(many) <= 40
    assert (np.diff(many) > 0).all()
