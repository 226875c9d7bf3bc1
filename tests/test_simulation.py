"""The truth report: its numbers are those of its runs, and it is written whole."""

import numpy as np
import pandas as pd
import pytest

from posgeom import PosgeomError, SyntheticCorpus, count_positions
from posgeom.pipeline import run_pipeline
from posgeom.simulation import draw_counts, simulate_truth, summary


@pytest.fixture(scope="module")
def report():
    return simulate_truth(["mixture", "none"], [3_000], 12, 200, seeds=2)


def test_summary_is_of_the_runs(report):
    table = summary(report.runs).query("documents == 3_000").set_index(["shape", "estimator"])
    assert len(report.runs) == 2 * (3 * 4 + 3 * 3)
    cell = report.runs.query("shape == 'mixture' and estimator == 'debiased'")
    known = cell[cell["encoding"] != "mds"]
    error = (known["stress"] - known["truth"]).abs()
    assert table.loc[("mixture", "debiased"), "error"] == pytest.approx(error.mean())
    assert table.loc[("mixture", "debiased"), "rejected"] == 1
    assert error.mean() < table.loc[("mixture", "plugin"), "error"]


def test_the_shapes_with_structure_are_summed_up_together(report):
    runs = report.runs.query("estimator == 'debiased'")
    far = runs.query("shape == 'mixture'").assign(shape="line", documents=9_000)
    far.loc[far["encoding"] == "alibi", "truth"] += 0.5
    far["stress"], far["low"], far["high"] = (far["truth"] + x for x in (0.2, 0.1, 0.3))
    table = summary(pd.concat([runs, far])).set_index(["shape", "documents"])
    rows = table.loc[[("mixture", 3_000), ("line", 9_000)]]
    for column in ("error", "coverage", "squared_ratio", "rank", "right"):
        assert table.loc[("all", "all"), column] == pytest.approx(rows[column].mean())
    assert table.loc[("all", "all"), "runs"] == 4
    assert table.loc[("all", 9_000)].equals(table.loc[("line", 9_000)])
    assert rows["coverage"].tolist() == [1, 0]


def test_equal_seeds_give_equal_runs(report):
    again = simulate_truth(["mixture", "none"], [3_000], 12, 200, seeds=2)
    pd.testing.assert_frame_equal(report.runs, again.runs)


def test_drawn_counts_are_those_of_counting_in_law():
    corpus = SyntheticCorpus(
        "mixture", vocabulary=10, documents=20_000, positions=6, shortening=0.5
    )
    drawn, counted = draw_counts(corpus), count_positions(corpus)
    np.testing.assert_allclose(drawn.totals, counted.totals, rtol=0.03)
    a, b = (c.pooled.toarray() / c.totals[:, None] for c in (drawn, counted))
    np.testing.assert_allclose(a, b, atol=0.02)


def test_a_pipeline_writes_it_and_knows_it_again(tmp_path):
    file = tmp_path / "truth.toml"
    file.write_text(
        '[[stage]]\njob = "truth"\nout = "t"\nshapes = ["mixture"]\ndocuments = [2000]\n'
        "positions = 8\nvocabulary = 100\nseeds = 1\n"
    )
    assert [fresh for _, fresh in run_pipeline(file, tmp_path)] == [True]
    assert [fresh for _, fresh in run_pipeline(file, tmp_path)] == [False]
    files = {p.name for p in (tmp_path / "t").iterdir()}
    texts = {"runs.csv", "summary.csv", "summary.md", "run.toml", "provenance.json"}
    assert files == texts | {"stress.svg"}
    assert "| mixture | 2000 | debiased |" in (tmp_path / "t" / "summary.md").read_text()


def test_options_that_make_no_simulation_are_refused():
    with pytest.raises(PosgeomError, match="seeds"):
        simulate_truth(seeds=0)
    with pytest.raises(PosgeomError, match="shape"):
        simulate_truth(["spiral"], seeds=1)


def test_positions_that_an_estimate_leaves_out_are_left_out_of_the_truth():
    """Hardly a document reaches the last of 64 positions."""
    report = simulate_truth(["mixture"], [300], 64, 50, seeds=1, shortening=0.95)
    assert report.runs.query("encoding == 'alibi'")["stress"].notna().any()
