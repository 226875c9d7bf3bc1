"""Corpora with a known truth: they are drawn from what they say."""

import numpy as np
import pytest

from posgeom import PosgeomError, SyntheticCorpus, count_positions, true_geometry
from posgeom.geometry import position_profiles
from posgeom.synthetic import SHAPES, synthetic_corpus


@pytest.mark.parametrize("shape", SHAPES)
def test_frequencies_come_near_the_profiles(shape):
    corpus = SyntheticCorpus(shape=shape, positions=9, vocabulary=20, documents=20_000)
    found = position_profiles(count_positions(corpus, folds=2)).toarray()
    truth = corpus.profiles.toarray()
    np.testing.assert_allclose(truth.sum(axis=1), 1)
    # five standard errors of a share
    assert (np.abs(found - truth[:, : found.shape[1]]) < 5 * np.sqrt(truth / 20_000) + 1e-3).all()


def test_blocks_are_thirds_and_the_mixture_passes_smoothly():
    blocks = SyntheticCorpus(shape="blocks", positions=32).weights
    assert blocks.sum(axis=0).tolist() == [11, 11, 10]
    assert set(blocks.ravel()) == {0, 1}
    mixture = SyntheticCorpus(shape="mixture", positions=33).weights
    np.testing.assert_allclose(mixture.sum(axis=1), 1)
    np.testing.assert_array_equal(mixture[[0, 16, 32]], np.eye(3))
    assert np.abs(np.diff(mixture, axis=0)).max() < 0.07


def test_equal_seeds_give_equal_corpora():
    one, same, other = (SyntheticCorpus(documents=50, seed=s) for s in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not np.array_equal(np.stack(list(one)), np.stack(list(other)))


def test_lengths_fall_as_asked():
    lengths = np.array([len(d) for d in SyntheticCorpus(documents=4_000, shortening=0.8)])
    assert lengths.min() == 6
    assert lengths.max() == 32
    assert np.mean(lengths >= 19) == pytest.approx(14 / 27, abs=0.03)
    assert (np.array([len(d) for d in SyntheticCorpus(documents=10)]) == 32).all()


def test_without_structure_all_true_distances_are_zero():
    assert true_geometry(SyntheticCorpus(shape="none").profiles).distances.max() < 1e-7


@pytest.mark.parametrize(
    "options",
    [
        {"shape": "waves"},
        {"positions": 1},
        {"vocabulary": 1},
        {"documents": 0},
        {"zipf": -1.0},
        {"shortening": 2.0},
        {"colour": "red"},
    ],
)
def test_options_that_make_no_corpus_are_refused(options):
    with pytest.raises(PosgeomError):
        synthetic_corpus(**options)


def test_it_has_a_name_on_the_command_line():
    counts = count_positions("synthetic:shape=mixture,positions=12,documents=100,seed=3")
    assert counts.n_positions == 12
    assert counts.provenance.documents == 100
