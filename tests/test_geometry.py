"""From counts to distances: by hand, on known truths, on real corpora."""

import os
import random

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from posgeom import (
    Document,
    PosgeomError,
    SyntheticCorpus,
    count_positions,
    estimate_geometry,
    true_geometry,
)
from posgeom.distances import METRICS
from posgeom.geometry import only, position_profiles, ranges
from posgeom.inference import jackknife
from posgeom.scoring import floor_estimate, score_encodings
from posgeom.simulation import draw_counts


def test_profiles_are_shares_of_the_tokens():
    counts = count_positions(["a b", "a a", "c a"], positions=2)
    assert counts.vocabulary == ("a", "b", "c")
    np.testing.assert_allclose(
        position_profiles(counts).toarray(), [[2 / 3, 0, 1 / 3], [2 / 3, 1 / 3, 0]]
    )


def test_distances_by_hand():
    g = estimate_geometry(count_positions(["a b", "a a", "c a"], positions=2), "plugin")
    assert g.squared[0, 1] == pytest.approx(2 / 3)  # 2 − 2·(2/3)
    assert g.distances[0, 1] == pytest.approx(np.sqrt(2 / 3))
    assert (g.metric, g.estimator, g.n_positions) == ("hellinger", "plugin", 2)
    assert g.totals.tolist() == [3, 3]


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_can_be_asked_for(metric):
    counts = count_positions(["a b", "a a", "c a"], positions=2)
    g = estimate_geometry(counts, "plugin", metric=metric)
    np.testing.assert_allclose(g.distances, METRICS[metric](position_profiles(counts)))


def test_positions_with_few_tokens_are_left_out_and_named():
    counts = count_positions(["a b c"] * 5 + ["b a c d", "c a a e f"] * 2, positions=5)
    assert counts.totals.tolist() == [9, 9, 9, 4, 2]
    g = estimate_geometry(counts, "plugin", min_count=3)
    assert g.positions.tolist() == [0, 1, 2, 3]
    assert g.left_out == (4,)
    assert g.notes[0].startswith("positions 4 have fewer than 3 tokens and are left out")
    assert "0 to 3 have fewer than 100 tokens" in g.notes[1]


def test_a_position_without_tokens_is_left_out_of_the_middle():
    counts = count_positions([[0, 1], [1, 0]], positions=2)
    wide = counts.first(2) + counts
    assert estimate_geometry(wide).left_out == ()
    with pytest.raises(PosgeomError, match="lower --min-count"):
        estimate_geometry(wide, min_count=100)


def test_grids_keep_rows_and_columns():
    g = estimate_geometry(count_positions("digits"))
    assert g.grid == (8, 8)
    assert g.positions[:10].tolist() == [[0, c] for c in range(8)] + [[1, 0], [1, 1]]
    assert g.index.tolist() == list(range(64))


def test_unknown_names_are_refused():
    counts = count_positions(["a b", "b a"], positions=2)
    with pytest.raises(PosgeomError, match="use debiased, thinned or plugin"):
        estimate_geometry(counts, "oracle")
    with pytest.raises(PosgeomError, match="use one of hellinger"):
        estimate_geometry(counts, metric="euclid")


@pytest.mark.parametrize("shape", ["blocks", "mixture"])
def test_from_the_truth_full_rank_mds_has_no_stress(shape):
    truth = true_geometry(SyntheticCorpus(shape=shape).profiles)
    scores = score_encodings(truth, ["mds"], dim=128)
    assert scores.loc[0, "stress"] < 1e-12
    assert scores.loc[0, "stress_raw"] < 1e-12


def test_estimates_come_near_the_truth_with_many_documents():
    corpus = SyntheticCorpus(shape="mixture", vocabulary=30, documents=20_000, positions=12)
    found = estimate_geometry(count_positions(corpus, folds=2), "plugin")
    np.testing.assert_allclose(found.distances, true_geometry(corpus.profiles).distances, atol=0.03)


def test_plugin_distances_of_no_structure_are_sampling_noise():
    """E d² = K/(4 N_i) + K/(4 N_j) for K well-filled tokens."""
    corpus = SyntheticCorpus(shape="none", vocabulary=50, documents=20_000, zipf=0, positions=16)
    found = estimate_geometry(count_positions(corpus, folds=2), "plugin")
    noise = found.squared[np.triu_indices(16, 1)].mean()
    assert noise == pytest.approx(49 / (2 * 20_000), rel=0.1)
    assert true_geometry(corpus.profiles).distances.max() < 1e-7


def test_runs_of_numbers_are_written_as_ranges():
    assert ranges(np.array([0, 3, 4, 5, 9])) == "0, 3 to 5, 9"
    assert ranges(np.array([7])) == "7"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "options", "squared", "sinusoidal", "alibi", "floor"),
    [
        ("sst2", {"positions": 32, "tokenizer": "bert"}, 0.650, 0.046, 0.281, 0.004),
        ("imdb", {"positions": 128, "tokenizer": "bert"}, 0.284, 0.030, 0.301, 0.011),
        (
            "dna/uci_splice.parquet",
            {"positions": 60, "tokenizer": "chars", "text_field": "sequence"},
            0.0160, 0.443, 0.654, 0.39,
        ),
    ],
)  # fmt: skip
def test_plugin_geometry_of_real_corpora(source, options, squared, sinusoidal, alibi, floor):
    data = os.environ.get("POSGEOM_DATA")
    if not data:
        pytest.skip("POSGEOM_DATA is not set: real corpora are not at hand")
    if options["tokenizer"] == "bert":
        options = options | {"tokenizer": f"{data}/tokenizers/bert-base-uncased/tokenizer.json"}
    if "/" in source:
        source = f"{data}/{source}"
    g = estimate_geometry(count_positions(source, **options), "plugin")
    scores = score_encodings(g, ["sinusoidal", "alibi"], dim=128).set_index("encoding")["stress"]
    assert g.squared[np.triu_indices(g.n_positions, 1)].mean() == pytest.approx(squared, abs=5e-3)
    assert scores["sinusoidal"] == pytest.approx(sinusoidal, abs=2e-3)
    assert scores["alibi"] == pytest.approx(alibi, abs=2e-3)
    assert floor_estimate(g).value == pytest.approx(floor, abs=5e-3)


def test_distances_of_a_mixture_are_those_of_its_weights_when_bases_are_disjoint():
    corpus = SyntheticCorpus(shape="mixture", positions=9, vocabulary=3, zipf=60)
    roots = np.sqrt(corpus.weights @ corpus.bases)
    np.testing.assert_allclose(
        true_geometry(corpus.profiles).distances, cdist(roots, roots), atol=1e-12
    )


@pytest.mark.parametrize("estimator", ["plugin", "debiased"])
def test_a_geometry_of_some_positions_is_that_of_their_counts(estimator):
    counts = draw_counts(SyntheticCorpus("mixture", positions=12, vocabulary=200, documents=4_000))
    rows = np.array([2, 3, 5, 11])
    whole = estimate_geometry(counts, estimator)
    part = whole.at(rows)
    assert part.positions.tolist() == part.index.tolist() == rows.tolist()
    np.testing.assert_array_equal(part.totals, counts.totals[rows])
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            assert part.squared[i, j] == whole.squared[a, b]
    assert part.stationarity is whole.stationarity
    if estimator == "plugin":
        alone = estimate_geometry(only(counts, rows), estimator)
        np.testing.assert_allclose(part.squared, alone.squared, atol=1e-12)
        assert part.replicates is None
        return
    assert part.replicates.shape == (len(whole.replicates), 4, 4)
    np.testing.assert_array_equal(part.lumped, whole.lumped[np.ix_(rows, rows)])
    first = np.array([0, 1])  # the jackknife of a pair is that of the pair in the whole
    mean = jackknife(lambda s: s.mean(axis=-1), part.at(first))
    pair = np.flatnonzero((np.triu_indices(12, 1)[0] == 2) & (np.triu_indices(12, 1)[1] == 3))
    of_whole = jackknife(lambda s: s[..., pair[0]], whole)
    assert (mean.value, mean.se) == (of_whole.value, of_whole.se)
    # rare tokens may change its share of all distances, of which a pair alone has none
    assert mean.high <= of_whole.high


def test_a_part_of_a_grid_keeps_its_flat_numbers():
    whole = estimate_geometry(count_positions("digits"), "plugin")
    part = whole.at(np.array([63, 9]))
    assert part.positions.tolist() == [[7, 7], [1, 1]]
    assert part.index.tolist() == [63, 9]
    assert part.squared[0, 1] == whole.squared[9, 63]


def test_halves_that_contradict_each_other_have_no_distances():
    """A group of three fifths has those words at a position that the others have elsewhere."""
    lot = random.Random(1)
    words = [f"w{i}" for i in range(200)]
    documents = []
    for i in range(4_000):
        own = [words[(7 * i + j * (j % 3)) % 200] for j in range(12)]
        text = [
            word if lot.random() < 0.5 else lot.choice(words[: 20 + 5 * j])
            for j, word in enumerate(own)
        ]
        documents.append(Document(" ".join(text), "large" if i % 5 < 3 else f"group {i}"))
    counts = count_positions(documents)
    with pytest.raises(PosgeomError, match="others contradict") as error:
        estimate_geometry(counts)
    assert "p = 0.002" in str(error.value)
    assert "--estimator plugin" in str(error.value)
    assert estimate_geometry(counts, "plugin").squared.sum() > 0
