"""The diagnosis: what it says where there is structure, and where there is none."""

import json
from dataclasses import replace

import numpy as np
import pytest

from posgeom import (
    PosgeomError,
    SyntheticCorpus,
    count_positions,
    estimate_geometry,
    true_geometry,
)
from posgeom.diagnose import diagnose, stress_shares
from posgeom.simulation import draw_counts

SPECS = ["sinusoidal", "rope", "alibi", "alibi:reading=kernel", "random", "none", "mds"]


def diagnosed(**options):
    counts = draw_counts(SyntheticCorpus(**options))
    return diagnose(counts, estimate_geometry(counts), SPECS)


def test_a_corpus_without_structure_gets_exactly_that_answer():
    found = diagnosed(shape="none", documents=5_000, seed=1)
    assert found.p_value > 0.05
    assert (found.significant, found.floor, found.lead) == (0, None, None)
    assert found.noise.value == 1
    assert len(found.ranking) == 0
    assert found.sentences[0].startswith("Positions cannot be told apart")
    assert "no picture of this geometry" in found.sentences[2]


def test_a_line_is_found_to_be_a_line():
    found = diagnosed(shape="line", documents=20_000)
    assert found.p_value < 0.01
    assert found.significant == 1
    assert found.floor.high < 0.05
    assert set(found.ranking["encoding"].iloc[:2]) == {"mds", "alibi"}
    assert found.lead.differs_from_zero
    text = " ".join(found.sentences)
    assert "relative positions are enough" in text
    assert "alibi fits best" in text
    assert "enough to name the winner" in text


def test_a_fading_beginning_asks_for_absolute_positions():
    found = diagnosed(shape="decay", documents=20_000)
    assert found.floor.low > 0.25
    assert any("absolute positions" in s for s in found.sentences)
    by_position, _ = found.misses["sinusoidal"]
    assert by_position.argmax() == 0
    assert by_position[0] > 4 / 32


def test_noise_shares_fall_with_documents():
    few, many = (diagnosed(shape="mixture", documents=d).noise.value for d in (2_000, 40_000))
    assert 0 < many < few < 1


def test_baselines_do_not_win():
    found = diagnosed(shape="blocks", vocabulary=300, documents=20_000)
    best = found.sentences[4]
    assert not best.startswith("Of the encodings not made for the corpus, random")
    assert "none" not in best.split(" fits best")[0].split(", ")[-1]


def test_shares_of_stress_sum_to_one():
    counts = draw_counts(SyntheticCorpus("decay", documents=5_000))
    g = estimate_geometry(counts)
    δ = np.abs(np.subtract.outer(np.arange(32), np.arange(32))).astype(float)
    for shares in stress_shares(g, δ):
        assert shares.sum() == pytest.approx(1)
        assert (shares >= 0).all()


@pytest.mark.parametrize("scale", [1.0, 1 / 3, 7e8, 1e-9])
def test_an_exact_fit_misses_nothing_at_any_scale(scale):
    """What rounding leaves of (αδ − D)² is no miss."""
    g = true_geometry(SyntheticCorpus("decay").profiles)
    for value in np.random.default_rng(0).uniform(0, 1, 200):
        squared = value * g.squared
        for shares in stress_shares(replace(g, squared=squared), scale * np.sqrt(squared)):
            assert not shares.any()
        two = replace(g, squared=squared[:2, :2], totals=g.totals[:2], positions=np.arange(2))
        for shares in stress_shares(two, scale * (1 - np.eye(2))):
            assert not shares.any()


def test_it_is_json():
    found = json.loads(json.dumps(diagnosed(shape="mixture").as_dict()))
    assert 0 < found["stationarity"]["p_value"] <= 0.05
    assert 0 < found["noise"]["share"] < 1
    assert found["rank"]["significant"] == 2
    assert found["shift_invariance"]["low"] <= found["shift_invariance"]["floor"]
    row = found["ranking"][0]
    assert row["stress_low"] <= row["stress"] <= row["stress_high"]
    assert json.dumps(diagnosed(shape="none", seed=1).as_dict())


def test_plugin_geometries_are_not_diagnosed():
    counts = draw_counts(SyntheticCorpus())
    with pytest.raises(PosgeomError, match="cannot be told apart"):
        diagnose(counts, estimate_geometry(counts, "plugin"), SPECS)


def test_one_encoding_has_no_winner_to_name_and_two_of_a_name_are_no_trouble():
    counts = draw_counts(SyntheticCorpus("mixture", documents=5_000))
    g = estimate_geometry(counts)
    for specs in (["rope"], ["mds", "none", "random"], ["rope", "rope", "sinusoidal"]):
        found = diagnose(counts, g, specs)
        assert "no two encodings with different distances" in found.sentences[-1]


def test_rare_tokens_that_hold_all_structure_leave_the_winner_open():
    """Half of the tokens common everywhere, half rare and of one position: no lead, no forecast."""
    rng = np.random.default_rng(0)
    common = rng.integers(0, 10, (2_000, 8))
    rare = 10 + rng.integers(0, 60, common.shape) + 60 * np.arange(8)
    ids = np.where(rng.random(common.shape) < 0.5, common, rare)
    counts = count_positions([" ".join(f"w{w}" for w in row) for row in ids], positions=8)
    found = diagnose(counts, estimate_geometry(counts), SPECS)
    assert found.lead is not None
    assert (found.lead.low, found.lead.high) == (-1, 1)
    assert found.needed is None
    assert "(−1.000 to 1.000), which is within its error: a tie" in " ".join(found.sentences)


def test_what_is_not_known_is_null_in_json():
    assert json.dumps(diagnosed(shape="none", seed=1).as_dict(), allow_nan=False)
