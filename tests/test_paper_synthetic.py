"""The synthetic corpus of the paper: what the tables and the sweep hold, by other routes."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from posgeom import count_positions, estimate_geometry, make_encoding, score_encodings
from posgeom.errors import PosgeomError
from posgeom.paper.claims import FIGURES
from posgeom.paper.scales import SCALES, measures, rescaled
from posgeom.paper.synthetic import reproduce_synthetic
from posgeom.paper.synthetic_sweep import (
    LAWS,
    SHAPES,
    as_distance,
    bases,
    nearest,
    sweep,
    weights,
)


@pytest.fixture(scope="module")
def report():
    return reproduce_synthetic(quick=True)


def cell(report, **wanted):
    table = report.tables["stress"]
    for name, value in wanted.items():
        table = table[table[name] == value]
    (row,) = table.to_dict("records")
    return row


# -- scales ---------------------------------------------------------------------------------------


def test_each_scale_is_what_it_says():
    n, d = 12, 16
    D = np.random.default_rng(0).uniform(0.5, 1.5, n * (n - 1) // 2)
    δ = pdist(make_encoding("sinusoidal", dim=d).table(np.arange(n)))

    def raw(δ):
        return ((δ - D) ** 2).sum() / (D**2).sum()

    factors = np.geomspace(1e-3, 10, 200_001)
    least = (factors**2 * (δ @ δ) - 2 * factors * (δ @ D) + D @ D).min() / (D @ D)
    expected = {
        "raw": raw(δ),
        "unit": raw(δ / np.sqrt(d / 2)),
        "per-dim": raw(δ / np.sqrt(d)),
        "max": raw(δ * D.max() / δ.max()),
        "rms": raw(δ * np.sqrt((D**2).mean() / (δ**2).mean())),
        "optimal": least,
    }
    at = measures(rescaled(make_encoding("sinusoidal", dim=d), n))
    assert list(at) == list(SCALES)
    found = {scale: float(measure(D**2)) for scale, measure in at.items()}
    assert found == pytest.approx(expected, rel=1e-6)


def test_rows_of_length_one_are_rows_of_length_one():
    n = 9
    X = make_encoding("random", dim=5).table(np.arange(n))
    X /= np.linalg.norm(X, axis=1)[:, None]
    unit = rescaled(make_encoding("random", dim=5), n)["unit"]
    np.testing.assert_allclose(unit, pdist(X), rtol=1e-12)


@pytest.mark.parametrize("spec", ["alibi", "index", "none", "t5"])
def test_what_is_no_vector_has_its_own_scale_alone(spec):
    assert list(rescaled(make_encoding(spec), 5)) == ["raw"]


# -- the corpora ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("law", LAWS)
def test_three_distributions_and_their_shares(shape, law):
    W, L = weights(shape, 32), bases(law, 60, np.random.default_rng(0))
    assert W.shape == (32, 3)
    assert L.shape == (3, 60)
    np.testing.assert_allclose([*W.sum(axis=1), *L.sum(axis=1)], 1)
    assert W[0].argmax() == 0
    assert W[-1].argmax() == 2


def test_disjoint_distributions_are_as_far_as_can_be():
    L = bases("disjoint", 60, np.random.default_rng(0))
    chord = pdist(np.sqrt(L))
    np.testing.assert_allclose(chord, np.sqrt(2))
    np.testing.assert_allclose(as_distance(chord, "geodesic"), np.pi)
    np.testing.assert_allclose(as_distance(chord, "chord/√2"), 1)


@pytest.fixture(scope="module")
def small():
    """A sweep over few positions."""
    return sweep(12, 8, 1, vocabularies=(30,))


def test_a_cell_of_the_sweep_by_hand(small):
    """Three blocks that share no token: all distances between blocks are √2, none within."""
    row = small[
        (small["shape"] == "blocks")
        & (small["law"] == "disjoint")
        & (small["documents"] == 0)
        & (small["distance"] == "chord")
    ].iloc[0]
    block = np.arange(12) // 4
    D = np.sqrt(2) * (block[:, None] != block)[np.triu_indices(12, 1)]
    δ = pdist(make_encoding("sinusoidal", dim=8).table(np.arange(12)))
    assert row["raw"] == pytest.approx(((δ - D) ** 2).sum() / (D @ D))
    assert row["mds 2"] == pytest.approx(0, abs=1e-12)
    # three points of one triangle on a line: 1/6 for those that classical MDS puts in a row
    assert row["mds 1"] >= 1 / 9 - 1e-9


def test_the_nearest_cell_is_the_nearest(small):
    best = nearest(small, 5)
    assert best["off"].is_monotonic_increasing
    first = best.iloc[0]
    ratios = [
        first["sinusoidal"] / FIGURES["synthetic-sinusoidal"].value,
        first["mds"] / FIGURES["synthetic-mds"].value,
    ]
    assert first["off"] == pytest.approx(max(max(r, 1 / r) for r in ratios))


# -- the tables -----------------------------------------------------------------------------------


def test_rank_three_saves_what_the_paper_says():
    saved = 1 - 3 * (32 + 128) / (32 * 128)
    assert saved == pytest.approx(0.8828, abs=1e-4)
    assert FIGURES["synthetic-fewer"].is_near(saved)
    assert not FIGURES["synthetic-less"].is_near(1 - 0.009 / 2.248)  # 99.6%, where it says 99.8%


def test_the_truth_is_that_of_score_encodings(report):
    """By the other road: score_encodings on the plug-in geometry of the documents themselves."""
    spec = "synthetic:shape=blocks,positions=32,vocabulary=1000,documents=5000"
    geometry = estimate_geometry(count_positions(spec, positions=32), "plugin")
    scored = score_encodings(geometry, ["alibi", "random"], 128).set_index("encoding")
    for name in ("alibi", "random"):
        row = cell(report, shape="blocks", encoding=name, form="scale-free", basis="sample")
        # another draw of the same corpus
        assert row["stress"] == pytest.approx(scored.loc[name, "stress"], rel=0.05)


def test_three_blocks_are_a_plane(report):
    for r, limit in ((2, 1e-9), (3, 1e-9)):
        row = cell(
            report, shape="blocks", encoding=f"mds:rank={r}", form="eq4", basis="distributions"
        )
        assert row["stress"] <= limit
        assert row["parameters"] == r * (32 + 128)


def test_mds_never_loses_by_a_rank_more(report):
    table = report.tables["stress"]
    ranks = table[table["encoding"].str.startswith("mds") & (table["form"] == "eq4")]
    for _, one in ranks[ranks["basis"] == "sample"].groupby("shape"):
        assert (np.diff(one["stress"]) <= 1e-9).all()  # chords are Euclidean


def test_a_sample_lies_in_its_interval_and_debiased_near_the_truth(report):
    table = report.tables["stress"].dropna(subset=["low"])
    assert ((table["low"] <= table["stress"]) & (table["stress"] <= table["high"])).all()
    for shape in ("mixture", "blocks"):
        truth, sample, debiased = (
            cell(report, shape=shape, encoding="sinusoidal", form="eq4", basis=basis)["stress"]
            for basis in ("distributions", "sample", "debiased")
        )
        assert abs(debiased - truth) < abs(sample - truth) / 5


def test_the_page_names_each_figure_and_says_what_was_tried(report):
    page = report.markdown()
    for says in ("2.248", "0.009", "99.8%", "88%", "Eq. 4", "Remark 8", "Proposition 6"):
        assert says in page
    for name in [*SHAPES, *LAWS, *SCALES]:
        assert f"`{name}`" in page


@pytest.mark.parametrize("bad", [{"seeds": 1}, {"positions": 3}, {"sweep_seeds": 0}])
def test_too_little_to_say_anything_is_refused(bad):
    with pytest.raises(PosgeomError, match="came; give 2 seeds"):
        reproduce_synthetic(**bad)
