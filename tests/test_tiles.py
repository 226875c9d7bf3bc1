"""Scores from tiles against those from whole matrices, and what tiles cannot give."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from posgeom import (
    PosgeomError,
    SyntheticCorpus,
    estimate_geometry,
    make_encoding,
    score_encodings,
    sources,
    true_geometry,
)
from posgeom.between import between, by_offset
from posgeom.long_scores import score_long
from posgeom.scoring import COLUMNS, floor_estimate
from posgeom.simulation import draw_counts
from posgeom.tiles import one_pass, tiled_squares

N = 90
CORPUS = SyntheticCorpus("mixture", N, 300, 1_500, 1.0, 0.5)
SPECS = [
    "sinusoidal",
    "sinusoidal:dim=31",
    "rope:scaling=dynamic,factor=4,original_length=64",
    "alibi:reading=kernel",
    "normalised-index",
    "random",
    "binary",
    "fire",
    "none",
    "mds:rank=3",
]
SAMPLES = ["spearman", "monotonicity_violation"]
SUMS = ["stress", "stress_raw", "scale", "kruskal_stress_1", "separation"]


@pytest.fixture(scope="module")
def counts():
    return draw_counts(CORPUS)


@pytest.fixture
def small_tiles(monkeypatch):
    """Six tiles of 40 and 10 rows, and every pair and row in the samples."""
    monkeypatch.setattr("posgeom.root_profiles.TILE", 40)
    monkeypatch.setattr("posgeom.tiles.SAMPLED", N * N)
    monkeypatch.setattr("posgeom.tiles.ANCHORS", N)


@pytest.mark.usefixtures("small_tiles")
def test_scores_of_all_pairs_are_those_of_the_matrix(counts):
    found, whole = score_long(counts, SPECS), estimate_geometry(counts, "plugin")
    expected = score_encodings(whole, SPECS)
    scores = found.scores
    assert tuple(scores.columns) == COLUMNS
    for column in ["encoding", "family", "parameters", "shift_invariant", "designed"]:
        assert scores[column].tolist() == expected[column].tolist()
    np.testing.assert_allclose(scores[SUMS].astype(float), expected[SUMS], rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(scores[SAMPLES].astype(float), expected[SAMPLES], atol=1e-4)
    for column in ["equal_bf16", "equal_fp16"]:
        np.testing.assert_array_equal(scores[column], expected[column])
    assert found.floor.value == pytest.approx(floor_estimate(whole).value, rel=1e-6)
    assert f"{N * (N - 1) // 2:,} pairs" in found.notes[-1]


@pytest.mark.usefixtures("small_tiles")
def test_positions_that_are_left_out_leave_gaps(counts):
    rows = counts.counts.tolil()
    for fold in range(counts.n_folds):
        rows[[fold * N + 3, fold * N + 50]] = 0
    holes = replace(counts, counts=rows.tocsr())
    found = score_long(holes, ["alibi", "random", "fire"])
    whole = estimate_geometry(holes, "plugin")
    expected = score_encodings(whole, ["alibi", "random", "fire"])
    np.testing.assert_allclose(found.scores[SUMS].astype(float), expected[SUMS], rtol=1e-5)
    assert found.floor.value == pytest.approx(floor_estimate(whole).value, rel=1e-6)
    assert found.notes[0] == whole.notes[0]


@pytest.mark.usefixtures("small_tiles")
def test_crossed_squares_are_products_of_two_halves(counts):
    squares = tiled_squares(counts, "crossed")
    halves = counts.folded(2)
    C = halves.counts.toarray().reshape(2, N, -1)
    a, b = np.sqrt(C / C.sum(axis=2, keepdims=True))
    expected = np.einsum("ijv,ijv->ij", a[:, None] - a, b[:, None] - b)
    rows, columns = (squares.roots.stretch(k) for k in (0, 2))
    np.testing.assert_allclose(squares.of_tile(0, 2), expected[rows, columns], atol=1e-6)


def test_crossing_takes_the_noise_out(counts):
    """Most of it: what is left is the bias of the roots of rare tokens."""
    specs = ["sinusoidal", "alibi:reading=kernel", "random"]
    truth = true_geometry(CORPUS.profiles)
    total = truth.squared.sum() / 2
    excess = {
        name: one_pass(tiled_squares(counts, name), []).offsets.total / total - 1
        for name in ("plugin", "crossed")
    }
    assert excess["plugin"] > 1
    assert abs(excess["crossed"]) < excess["plugin"] / 4
    stress = score_encodings(truth, specs)["stress"]
    crossed, plugin = (
        np.abs(score_long(counts, specs, estimator=name).scores["stress"] - stress)
        for name in ("crossed", "plugin")
    )
    assert (crossed < plugin).all()


def test_samples_are_as_far_off_as_their_errors_say(counts, monkeypatch):
    monkeypatch.setattr("posgeom.tiles.SAMPLED", 800)
    monkeypatch.setattr("posgeom.tiles.ANCHORS", 30)
    specs = ["sinusoidal", "alibi", "random", "binary"]
    expected = score_encodings(estimate_geometry(counts, "plugin"), specs)
    found = score_long(counts, specs).scores
    for column in SAMPLES:
        off = (found[column] - expected[column]).to_numpy()
        assert off.any()
        assert (np.abs(off) < 4 * found[f"{column}_se"].to_numpy()).all()
        assert (found[f"{column}_se"] < 0.1).all()


def test_equal_seeds_draw_equal_samples(counts, monkeypatch):
    monkeypatch.setattr("posgeom.tiles.SAMPLED", 500)
    one, two, other = (score_long(counts, ["rope"], seed=s).scores for s in (1, 1, 2))
    assert one.equals(two)
    assert one.loc[0, "spearman"] != other.loc[0, "spearman"]
    assert one.loc[0, "stress"] == other.loc[0, "stress"]


def test_no_array_of_all_pairs_is_made(monkeypatch):
    n = 1_500
    monkeypatch.setattr("posgeom.root_profiles.TILE", 128)
    monkeypatch.setattr("posgeom.tiles.SAMPLED", 1_000)
    monkeypatch.setattr("posgeom.tiles.ANCHORS", 8)
    counts = draw_counts(SyntheticCorpus("line", n, 50, 100))
    score_long(counts, ["random:dim=4"])  # what is compiled and loaded once stays
    tracemalloc.start()
    score_long(counts, ["alibi", "random:dim=4", "mds:rank=2"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * n * 8  # of one array of all distances


@pytest.mark.parametrize("spec", SPECS[:9])
def test_parts_of_an_encoding_are_those_of_the_whole(spec):
    encoding, x = make_encoding(spec, dim=32), np.array([2, 3, 7, 8, 20, 41])
    whole = encoding.distances(x)
    f = by_offset(encoding, x)
    assert (f is None) == (not encoding.shift_invariant)
    if f is not None:
        np.testing.assert_allclose(f[np.abs(x[:, None] - x)], whole, rtol=1e-12)
    part = between(encoding, x)(slice(1, 4), slice(3, 6))
    np.testing.assert_allclose(part, whole[1:4, 3:6], atol=1e-7)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"estimator": "thinned"}, "use plugin or crossed"),
        ({"encodings": ["stress:rank=2"]}, "distances of all pairs"),
        ({"encodings": ["rope-2d:dim=16"]}, "for grids"),
        ({"encodings": ["mds:rank=90"]}, "at most 89"),
        ({"min_count": 10**9}, "0 of 90 positions"),
    ],
)
def test_what_tiles_cannot_give_is_refused(counts, change, words):
    with pytest.raises(PosgeomError, match=words):
        score_long(counts, **({"encodings": ["rope"]} | change))


def test_grids_and_single_folds_are_refused(counts):
    with pytest.raises(PosgeomError, match="grid"):
        tiled_squares(replace(counts, grid=(9, 10)))
    with pytest.raises(PosgeomError, match="no halves to cross"):
        tiled_squares(counts.folded(1), "crossed")


def test_equal_positions_have_no_geometry(counts):
    one = counts.counts[np.zeros(2 * counts.n_folds, dtype=int)]
    with pytest.raises(PosgeomError, match="there is no geometry to fit"):
        one_pass(tiled_squares(replace(counts, counts=one)), [make_encoding("rope")])


class TestCommandLine:
    """`posgeom score` above a number of positions."""

    @pytest.fixture
    def file(self, counts, tmp_path, monkeypatch):
        monkeypatch.setattr(sources, "LONG", 50)
        counts.save(tmp_path / "counts.npz")
        return tmp_path / "counts.npz"

    def test_many_positions_are_scored_in_tiles(self, posgeom_ok, file):
        ran = posgeom_ok("score", file, "--estimator", "plugin", "--encoding", "alibi")
        assert "of which no matrix is made" in ran.err
        assert "plug-in distances" in ran.err
        assert "alibi" in ran.out

    def test_the_noise_is_taken_out_by_crossing(self, posgeom_ok, file):
        ran = posgeom_ok("score", file)
        assert "products of two halves" in ran.err
        assert "mds" in ran.out

    @pytest.mark.parametrize(
        "option", [("--per-head",), ("--metric", "fisher-rao"), ("--estimator", "thinned")]
    )
    def test_what_tiles_cannot_give_is_refused(self, run_cli, file, option):
        ran = run_cli("score", file, *option)
        assert ran.code == 2
        assert "tile by tile" in ran.err
