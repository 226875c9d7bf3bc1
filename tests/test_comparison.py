"""One corpus under both estimators: the numbers are the estimators', the page says what changes."""

import numpy as np
import pytest

from posgeom import count_positions, estimate_geometry, score_encodings
from posgeom.comparison import compare
from posgeom.pipeline import run_pipeline

DECAY = "synthetic:shape=decay,documents=7000,vocabulary=2000,positions=16"


@pytest.fixture(scope="module")
def decay():
    return compare(DECAY, positions=16)


def test_the_numbers_are_those_of_the_estimators(decay):
    counts = count_positions(DECAY, positions=16)
    for estimator, column in (("plugin", "plugin"), ("debiased", "debiased")):
        geometry = estimate_geometry(counts, estimator)
        scores = score_encodings(geometry, decay.scores["encoding"])
        np.testing.assert_allclose(decay.scores[column], scores["stress"])


def test_the_page_says_what_changes(decay):
    page = decay.markdown()
    assert "Plug-in distances name sinusoidal; without their noise, alibi" in page
    assert "| stress of sinusoidal |" in page
    assert decay.diagnosis.sentences[0] in page


def test_a_corpus_without_structure_has_no_second_column():
    page = compare("synthetic:shape=none,documents=5000,seed=1", positions=32).markdown()
    assert "without their noise there is nothing to fit" in page
    assert "| mean squared distance |" in page


def test_a_pipeline_fills_in_names_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SHAPE", "mixture")
    file = tmp_path / "c.toml"
    file.write_text(
        '[[stage]]\njob = "compare"\nout = "c"\n'
        'source = "synthetic:shape=$SHAPE,documents=2000,positions=8"\npositions = 8\n'
    )
    assert [fresh for _, fresh in run_pipeline(file, tmp_path)] == [True]
    assert "synthetic:shape=mixture" in (tmp_path / "c" / "comparison.md").read_text()
    assert [fresh for _, fresh in run_pipeline(file, tmp_path)] == [False]
