"""Theorem 4, Proposition 6, Remark 8 and Eq. 3 by other routes: numerics against fractions."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from scipy.optimize import minimize
from scipy.special import softmax

from posgeom import count_positions, estimate_geometry
from posgeom.distances import fisher_rao, hellinger
from posgeom.encodings import make_encoding
from posgeom.geometry import true_geometry
from posgeom.mds import classical_mds
from posgeom.paper.chord import chord_table, geodesic_of, ratio_table
from posgeom.paper.expectations import (
    merged_minimum,
    phantom_gradient,
    query_gradients,
    unseen_gradient,
)
from posgeom.paper.gram_stress import (
    classical_line,
    fit_of_line,
    gram_against_stress,
    least_stress_line,
)
from posgeom.paper.rank_bound import (
    constructed,
    constructed_ranks,
    corpus_ranks,
    without_structure,
)
from posgeom.paper.separation import equal_rows, separation_table
from posgeom.plots.theory import spectra
from posgeom.smacof import smacof
from posgeom.stress import raw_stress, stress

MIXTURE = "synthetic:shape=mixture,documents=6000,vocabulary=400,positions=10"
CORPORA = (unseen_gradient(), phantom_gradient())


@pytest.fixture(scope="module")
def counts():
    return count_positions(MIXTURE, "none", 10)


# -- Theorem 4: the proof and the statement ----------------------------------------------------


def loss_of_query(corpus, p):
    """E ½(f − y)² of attention with scores (0 + p)·t_k, by softmax in floating point."""
    total = 0.0
    for t, w in corpus.shares.items():
        f = softmax(p * np.array(t, dtype=float)) @ t
        total += float(w) * (f - float(corpus.targets[t])) ** 2 / 2
    return total


@pytest.mark.parametrize("corpus", CORPORA)
def test_the_true_gradient_is_the_slope_of_the_loss(corpus):
    h = 1e-5
    slope = (loss_of_query(corpus, h) - loss_of_query(corpus, -h)) / (2 * h)
    assert slope == pytest.approx(float(query_gradients(corpus).true), abs=1e-9)


@pytest.mark.parametrize("corpus", CORPORA)
def test_the_product_is_made_of_means(corpus):
    w = np.array([float(x) for x in corpus.shares.values()])
    t = np.array(list(corpus.shares), dtype=float)
    y = np.array([float(corpus.targets[s]) for s in corpus.shares])
    f = t.mean(axis=1)
    c = (f - y)[:, None] * (t - f[:, None]) / 2
    assert (w @ c) @ (w @ t) == pytest.approx(float(query_gradients(corpus).factorised), abs=1e-12)
    assert w @ (c * t).sum(axis=1) == pytest.approx(float(query_gradients(corpus).true), abs=1e-12)


def test_the_product_misses_a_gradient_and_sees_one_that_is_not_there():
    unseen, phantom = (query_gradients(c) for c in CORPORA)
    assert unseen.factorised == 0 != unseen.true
    assert phantom.true == 0 != phantom.factorised
    assert CORPORA[0].marginal(0) == CORPORA[0].marginal(1)
    assert CORPORA[1].marginal(0) != CORPORA[1].marginal(1)
    assert all(sum(c.shares.values()) == 1 and c.shares.keys() == c.targets.keys() for c in CORPORA)


def expected_loss(s, shares):
    """E(4 Σ a_k x_k − y)² over all eight sequences, a = softmax(s)."""
    a, total = softmax(s), 0.0
    for x in product((0, 1), repeat=3):
        weight = np.prod([p if xk else 1 - p for xk, p in zip(x, shares, strict=True)])
        total += weight * (4 * a @ x - (x[0] + x[1] + 2 * x[2])) ** 2
    return total


def test_every_minimum_of_the_merged_task_has_one_score_for_two_positions():
    merged = merged_minimum()
    shares = [float(p) for p in merged.shares]
    assert len(set(merged.shares)) == 3
    weights = [float(a) for a in merged.weights]
    assert expected_loss(np.log(weights), shares) == pytest.approx(float(merged.loss), abs=1e-12)
    rng = np.random.default_rng(0)
    for start in rng.standard_normal((5, 3)):
        found = minimize(expected_loss, start, (shares,), tol=1e-14)
        np.testing.assert_allclose(softmax(found.x), weights, atol=1e-4)


@pytest.mark.parametrize(("tie", "wanted"), [((0, 1), "tied"), ((1, 2), "apart")])
def test_the_cost_of_one_score_for_two_positions(tie, wanted):
    merged = merged_minimum()

    def tied(u):
        s = np.zeros(3)
        s[list(tie)] = u[0]
        return expected_loss(s, [float(p) for p in merged.shares])

    least = min(minimize(tied, [x], tol=1e-14).fun for x in (-1.0, 1.0))
    assert least == pytest.approx(float(getattr(merged, wanted)), abs=1e-8)


# -- Theorem 4: tables -------------------------------------------------------------------------


def test_the_closest_rows_one_by_one():
    T = np.random.default_rng(1).standard_normal((9, 4))
    T[6] = T[2] + 1e-3
    row = separation_table({"own": T}, seeds=3).iloc[0]
    every = {(i, j): np.linalg.norm(T[i] - T[j]) for i in range(9) for j in range(i + 1, 9)}
    assert (row["i"], row["j"]) == min(every, key=every.get) == (2, 6)
    assert row["least"] == pytest.approx(every[2, 6])
    assert row["median"] == pytest.approx(np.median(list(every.values())))
    assert row["ratio"] == pytest.approx(row["least"] / row["median"])
    assert 0 < row["random"] < 1


def test_rows_that_a_format_merges():
    T = np.eye(4) + 1.0
    T[3] = T[0]
    T[3, 0] += 1e-3  # 2.001: fp16 holds steps of 2⁻⁹ there, bf16 of 2⁻⁶
    row = separation_table({"own": T}, seeds=2).iloc[0]
    assert (row["equal_fp32"], row["equal_bf16"]) == (0, 1)
    assert row["ratio_bf16"] == 0 < row["ratio"]


def test_equal_rows_count_repetitions():
    assert equal_rows(np.array([[0.0, 1], [-0.0, 1], [0, 1], [2, 3]])) == 2
    assert equal_rows(np.eye(3)) == 0


def test_a_scale_changes_no_ratio():
    T = np.random.default_rng(2).standard_normal((6, 3))
    a, b = (separation_table({"t": s * T}, seeds=2).iloc[0] for s in (1, 1e4))
    assert a["ratio"] == pytest.approx(b["ratio"], rel=1e-12)


# -- Proposition 6 -----------------------------------------------------------------------------

ONE_HOT = hellinger(np.eye(3))


def test_one_sixth_and_one_ninth():
    classical, least = classical_line(), least_stress_line()
    assert (classical.raw_stress, least.raw_stress) == (Fraction(1, 6), Fraction(1, 9))
    assert (classical.stress, least.stress) == (Fraction(1, 9), Fraction(1, 9))
    assert classical.gram_error < least.gram_error


@pytest.mark.parametrize("line", [classical_line(), least_stress_line()])
def test_fractions_agree_with_floating_point(line):
    x = np.sqrt(2) * np.array([float(v) for v in line.x])
    δ = abs(x[:, None] - x)
    assert raw_stress(δ, ONE_HOT) == pytest.approx(float(line.raw_stress), abs=1e-12)
    assert stress(δ, ONE_HOT) == pytest.approx(float(line.stress), abs=1e-12)
    J = np.eye(3) - 1 / 3
    B = -0.5 * J @ (ONE_HOT**2 / 2) @ J  # in units of √2
    gram = ((np.outer(x, x) / 2 - B) ** 2).sum()
    assert gram == pytest.approx(float(line.gram_error), abs=1e-12)


def test_the_lines_are_what_they_are_called():
    assert smacof(ONE_HOT, 1, restarts=5).raw_stress == pytest.approx(1 / 9, abs=1e-6)
    λ = np.linalg.eigvalsh(-0.5 * (np.eye(3) - 1 / 3) @ (ONE_HOT**2 / 2) @ (np.eye(3) - 1 / 3))
    left = float((λ**2).sum() - λ[-1] ** 2)  # Eckart & Young: the least Gram error of rank 1
    assert left == pytest.approx(float(classical_line().gram_error), abs=1e-12)


@settings(max_examples=40)
@given(st.tuples(*[st.fractions(-3, 3, max_denominator=20)] * 2))
def test_no_line_has_less_stress_or_gram_error(gaps):
    mean = (gaps[0] + gaps[0] + gaps[1]) / 3
    line = fit_of_line((-mean, gaps[0] - mean, gaps[0] + gaps[1] - mean))
    assert line.raw_stress >= least_stress_line().raw_stress
    assert line.gram_error >= classical_line().gram_error


def test_least_stress_is_below_classical_mds_on_a_corpus(counts):
    geometry = estimate_geometry(counts)
    table = gram_against_stress([("mixture", geometry)], ranks=(1, 2))
    assert (table["raw_least"] <= table["raw_mds"]).all()
    X = classical_mds(geometry.squared, 1, squared=True).coordinates
    assert table["raw_mds"][0] == pytest.approx(raw_stress(abs(X - X.T), geometry.distances))
    assert (table["excess"] > 1).any()


# -- Eq. 3 -------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.02, 5))
def test_geodesic_of_a_chord(seed, concentration):
    P = np.random.default_rng(seed).dirichlet(np.full(6, concentration), 5)
    np.testing.assert_allclose(geodesic_of(hellinger(P)), fisher_rao(P), atol=1e-7)


def test_the_ratio_rises_from_two_to_pi_over_root_two():
    table = ratio_table()
    assert table["ratio"].is_monotonic_increasing
    assert table["ratio"].iloc[0] == pytest.approx(2, abs=1e-4)
    assert table["ratio"].iloc[-1] == pytest.approx(np.pi / np.sqrt(2))


def test_both_metrics_of_known_distributions():
    P = np.random.default_rng(3).dirichlet(np.full(4, 0.3), 12)
    chord, geodesic = true_geometry(P), true_geometry(P, metric="fisher-rao")
    encodings = {s: make_encoding(s) for s in ("sinusoidal", "rope", "alibi")}
    table = chord_table([("letters", chord)], encodings).set_index("encoding")
    δ = encodings["alibi"].distances(np.arange(12))
    assert table.loc["alibi", "chord"] == pytest.approx(stress(δ, chord.distances))
    assert table.loc["alibi", "geodesic"] == pytest.approx(stress(δ, geodesic.distances))
    assert table.loc["alibi", "geodesic_raw"] == pytest.approx(raw_stress(δ, geodesic.distances))
    assert table.loc["sinusoidal", "rank_chord"] == table.loc["rope", "rank_chord"]
    assert (table["negative_chord"] < 1e-12).all()
    assert (table["exact_chord"] < 1e-12).all()
    assert (table["negative_geodesic"] > 1e-6).all()
    assert (table["exact_geodesic"] > 1e-6).all()


# -- Remark 8 ----------------------------------------------------------------------------------


def test_ranks_of_constructed_cases_are_those_of_the_centred_roots():
    table = constructed_ranks(n=24, seed=4).set_index("case")
    for case, (P, expected) in constructed(n=24, seed=4).items():
        S = np.sqrt(P)
        rank = np.linalg.matrix_rank(S - S.mean(axis=0), tol=1e-7)
        assert table.loc[case, "rank"] == rank == expected
    assert (table["rank"] <= 23).all()
    assert (table["rank"] < 23).sum() == len(table) - 1
    assert (table["first_dropped"] < 1e-12).all()


def test_a_corpus_without_structure_keeps_its_size(counts):
    none = without_structure(counts, seed=1)
    np.testing.assert_array_equal(none.fold_totals, counts.fold_totals)
    assert none.counts.shape == counts.counts.shape
    used = np.asarray(counts.counts.sum(axis=0)) > 0
    assert not np.asarray(none.counts.sum(axis=0))[~used].any()
    p = np.asarray(counts.counts.sum(axis=0)) / counts.totals.sum()
    first = none.pooled.toarray()[0]
    often = p * first.sum() > 5  # Pearson's χ² against the pooled frequencies
    χ2 = ((first - p * first.sum())[often] ** 2 / (p * first.sum())[often]).sum()
    assert χ2 < often.sum() + 5 * np.sqrt(2 * often.sum())


def test_full_plug_in_rank_comes_of_noise_alone(counts):
    table, spectra = corpus_ranks([("mixture", counts, estimate_geometry(counts))])
    row = table.iloc[0]
    assert row["bound"] == row["plugin"] == row["noise_plugin"] == 9
    assert row["tested"] in (1, 2, 3)
    assert row["noise_tested"] == 0
    assert 0 < row["noise_trace"] < 1
    own, none = spectra["mixture"]
    P = np.sqrt(counts.pooled.toarray() / counts.totals[:, None])
    wanted = np.linalg.svd(P - P.mean(axis=0), compute_uv=False) ** 2
    np.testing.assert_allclose(own[:9], wanted[:9], atol=1e-9)
    assert row["noise_trace"] == pytest.approx(none.sum() / own.sum())


def test_the_figure_of_eigenvalues_leaves_out_rounding():
    ax = Figure().add_subplot()
    spectra(ax, np.array([2.0, 1.0, 1e-17, -1e-17]), np.array([0.5, 0.4, 0.3, 0.0]), 1e-12)
    own, none = (line.get_xydata() for line in ax.lines)
    np.testing.assert_array_equal(own, [[1, 2.0], [2, 1.0]])
    np.testing.assert_array_equal(none, [[1, 0.5], [2, 0.4], [3, 0.3]])
    assert ax.get_yscale() == "log"
