"""Designs of every family: made, kept, carried on, and refused where they cannot be."""

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file
from scipy.spatial.distance import pdist

from posgeom import Design, PosgeomError, design, make_encoding
from posgeom.encodings import parse_spec
from posgeom.pipeline import run_pipeline

CORPUS = "synthetic:shape=mixture,positions=24,vocabulary=300,documents=4000"
FLAT = "synthetic:shape=none,positions=12,vocabulary=50,documents=1500"


@pytest.fixture(scope="module")
def made() -> Design:
    return design(
        CORPUS, "ids", 16, family="all", dim=16, encodings=["none"], extend_to=32, norm=4.0
    )


def test_all_families_stand_in_the_scores_beside_the_known_ones(made):
    rows = made.scores.set_index("encoding")
    families = {parse_spec(name).family for name in rows.index[rows["designed"]]}
    assert families == {
        "mds", "stress", "fitted-rope", "fitted-base", "fitted-alibi", "fitted-kerple", "fitted-t5"
    }  # fmt: skip
    assert {"rope", "rope:base=500000", "alibi:heads=8", "kerple", "t5"} <= set(rows.index)
    assert rows.loc["fitted-rope", "stress"] <= rows.loc["rope", "stress"]
    assert rows.loc["fitted-t5", "stress"] <= rows.loc["t5", "stress"]
    r = made.low_rank.rank
    assert rows.loc[f"stress:rank={r}", "stress"] <= rows.loc[f"mds:rank={r}", "stress"]


def test_the_low_rank_encoding_is_of_least_stress_where_that_was_asked(made):
    own = made.encodings[f"stress:rank={made.low_rank.rank}"].table(np.arange(16))
    ratio = pdist(made.low_rank.table()) / pdist(own)
    np.testing.assert_allclose(ratio, ratio[0])
    assert np.sqrt((made.low_rank.A**2).sum(axis=1).mean()) == pytest.approx(4.0)


def test_positions_with_counts_are_placed_by_them_and_the_rest_is_said(made):
    assert made.extension.methods[:16] == ("given",) * 16
    assert made.extension.methods[16:24] == ("gower",) * 8
    assert set(made.extension.methods[24:]) <= {"harmonic", "interpolation"}
    assert made.extended.table().shape == (32, 16)
    assert made.counts.n_positions == made.geometry.n_positions == 16


def test_a_run_keeps_it_all(made, tmp_path):
    made.save(tmp_path / "run")
    again = Design.load(tmp_path / "run")
    np.testing.assert_array_equal(again.low_rank.A, made.low_rank.A)
    np.testing.assert_array_equal(again.extended.A, made.extended.A)
    assert again.extension.methods == made.extension.methods
    assert again.extension.held_out == made.extension.held_out
    pd.testing.assert_frame_equal(again.gains, made.gains)
    tensors = load_file(tmp_path / "run" / "encoding.safetensors")
    assert tensors["table"].shape == (32, 16)
    np.testing.assert_array_equal(tensors["positions"], np.arange(32))
    held = pd.read_csv(tmp_path / "run" / "gains.csv").set_index("encoding")
    fitted = make_encoding(held.loc["fitted-rope", "spec"])
    np.testing.assert_allclose(
        fitted.distances(np.arange(16)), made.encodings["fitted-rope"].distances(np.arange(16))
    )


def test_its_settings_make_the_same_again(made, tmp_path):
    made.save(tmp_path / "run")
    assert [new for _, new in run_pipeline(tmp_path / "run" / "run.toml", tmp_path / "two")] == [
        True
    ]
    for name in ("encoding.safetensors", "scores.csv", "gains.csv", "run.toml"):
        one, two = ((tmp_path / folder / name).read_bytes() for folder in ("run", "two/run"))
        assert one == two, name


def test_what_equal_norms_cost_is_said():
    made = design(CORPUS, "ids", 16, dim=16, encodings=["none"], row_norm=1.0)
    np.testing.assert_allclose(np.linalg.norm(made.low_rank.A, axis=1), 1)
    assert any("takes its stress from" in note for note in made.notes)


def test_more_dimensions_than_stand_above_the_noise_are_made_with_a_warning():
    made = design(CORPUS, "ids", 16, dim=16, encodings=["none"], rank=12)
    assert made.low_rank.rank == 12
    assert any("rank 12 is more than the" in note for note in made.notes)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"family": "rope", "dim": 127}, "--dim 127 came, rope turns pairs"),
        ({"family": "alibi", "heads": 0}, "--heads 0 came"),
        ({"family": "spline"}, "family 'spline' is not known"),
        ({"extend_to": 8}, "--extend 8 came, below --positions 16"),
        ({"bound": 0.1, "min_separation": 9.0}, "--bound 0.1 came"),
        ({"norm": 1.0, "row_norm": 1.0}, "each sets the scale"),
        ({"rank": "best"}, "neither a number nor a rule"),
        ({"extend_to": 32, "extend_by": "magic"}, "method 'magic' is not known"),
        ({"extend_by": "magic"}, "method 'magic' is not known"),
        ({"extend_by": "harmonic"}, "--extend-by harmonic came without --extend"),
        ({"family": "mds", "heads": 0}, "--heads 0 came"),
    ],
)
def test_what_cannot_be_made_is_refused(request_, message):
    with pytest.raises(PosgeomError, match=message):
        design(CORPUS, "ids", 16, **{"dim": 16, "encodings": ["none"]} | request_)


def test_extension_needs_to_know_from_where():
    with pytest.raises(PosgeomError, match="without --positions"):
        design(CORPUS, "ids", extend_to=32)


def test_a_grid_that_the_corpus_brings_is_known_as_one_that_is_asked_for():
    made = design("digits", "ids", dim=8, family="rope", encodings=["none"], rank=2)
    assert {"fitted-axial", "rope-2d"} <= set(made.scores["encoding"])
    assert set(made.gains["encoding"]) <= set(made.scores["encoding"])
    with pytest.raises(PosgeomError, match="--extend carries on a line"):
        design("digits", "ids", extend_to=80)


def test_noise_is_not_fitted_unless_it_is_forced():
    with pytest.raises(PosgeomError, match="not distinguishable"):
        design(FLAT, "ids", 12, dim=8, encodings=["alibi"])
    made = design(FLAT, "ids", 12, dim=8, encodings=["alibi"], force=True)
    assert made.settings["force"] is True
    assert any("fitted to noise" in note for note in made.notes)
    assert "cannot be told apart" in made.diagnosis.sentences[0]
    assert np.isfinite(made.low_rank.A).all()


def test_what_is_made_does_not_depend_on_how_far_it_is_carried(made):
    alone = design(CORPUS, "ids", 16, family="all", dim=16, encodings=["none"], norm=4.0)
    np.testing.assert_array_equal(alone.low_rank.A, made.low_rank.A)
    pd.testing.assert_frame_equal(alone.scores, made.scores)
