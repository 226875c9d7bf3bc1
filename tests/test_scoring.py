"""The table of scores, column by column against the measures themselves."""

import numpy as np
import pytest

from posgeom import PosgeomError, SyntheticCorpus, make_encoding, score_encodings, true_geometry
from posgeom import stress as measures
from posgeom.encodings import FixedTable
from posgeom.scoring import COLUMNS, floor_estimate, make_encodings


@pytest.fixture(scope="module")
def truth():
    return true_geometry(SyntheticCorpus(shape="mixture", positions=20).profiles)


def test_each_column_is_its_measure(truth):
    specs = ["sinusoidal:dim=32", "alibi:heads=4", "random:dim=8", "mds:rank=1"]
    scores = score_encodings(truth, specs, dim=64)
    assert tuple(scores.columns) == COLUMNS
    assert scores["encoding"].tolist() == specs
    for encoding, row in zip(
        make_encodings(truth, specs, 64), scores.to_dict("records"), strict=True
    ):
        δ, D = encoding.distances(range(20)), truth.distances
        assert row["stress"] == measures.stress(δ, D)
        assert row["stress_raw"] == measures.raw_stress(δ, D)
        assert row["scale"] == measures.optimal_scale(δ, D)
        assert row["kruskal_stress_1"] == pytest.approx(np.sqrt(row["stress"]))
        assert row["spearman"] == measures.spearman(δ, D)
        assert row["monotonicity_violation"] == measures.monotonicity_violation(δ, D)
        assert row["separation"] == measures.separation(δ)
        assert row["parameters"] == encoding.n_parameters
        assert row["family"] == encoding.family


def test_the_first_columns_stand_in_the_promised_order():
    assert COLUMNS[:9] == (
        "encoding",
        "family",
        "parameters",
        "stress",
        "stress_raw",
        "scale",
        "kruskal_stress_1",
        "spearman",
        "monotonicity_violation",
    )


def test_dimension_and_seed_are_for_those_that_have_them(truth):
    scores = score_encodings(truth, ["sinusoidal", "sinusoidal:dim=64", "random", "random"], dim=64)
    assert scores.loc[0, "stress"] == scores.loc[1, "stress"]
    other = score_encodings(truth, ["random"], dim=64, seed=1)
    assert other.loc[0, "stress"] != scores.loc[2, "stress"] == scores.loc[3, "stress"]


def test_heads_have_rows_of_their_own_when_asked(truth):
    scores = score_encodings(truth, ["alibi:heads=4", "rope"], per_head=True)
    assert scores["encoding"].tolist() == [
        "alibi:heads=4",
        *(f"alibi:heads=4,head={h}" for h in range(4)),
        "rope",
    ]
    again = score_encodings(truth, scores["encoding"])
    assert again["stress_raw"].tolist() == scores["stress_raw"].tolist()
    # a slope is a scale, and stress has none
    assert scores["stress"][:5].tolist() == pytest.approx([scores["stress"][0]] * 5)
    assert len(set(scores["stress_raw"][:5])) == 5


def test_no_shift_invariant_encoding_is_below_the_floor(truth):
    scores = score_encodings(
        truth, ["sinusoidal", "rope:base=500000", "alibi", "alibi:reading=kernel"]
    )
    assert scores["shift_invariant"].all()
    floor = floor_estimate(truth).value
    assert (scores["stress"] >= floor).all()
    assert (scores["stress_raw"] >= floor).all()


def test_encodings_and_specs_may_be_mixed(truth):
    own = FixedTable(rows=np.random.default_rng(0).standard_normal((20, 3)), spec="mine")
    scores = score_encodings(truth, [own, "rope", make_encoding("alibi")])
    assert scores["encoding"].tolist() == ["mine", "rope", "alibi"]


def test_a_corpus_without_distances_is_told():
    same = true_geometry(SyntheticCorpus(shape="none").profiles)
    with pytest.raises(PosgeomError, match="one and the same distribution"):
        score_encodings(same.__class__(np.zeros((4, 4)), same.totals[:4], np.arange(4)), ["rope"])


def test_bad_dimensions_are_refused(truth):
    for dim in (0, -1):
        with pytest.raises(PosgeomError, match="--dim"):
            score_encodings(truth, ["sinusoidal"], dim=dim)
