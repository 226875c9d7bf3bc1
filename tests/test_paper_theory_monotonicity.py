"""Conjecture 5: triples counted one by one, errors of plug-in distances by folds."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from posgeom import count_positions, estimate_geometry
from posgeom.distances import hellinger
from posgeom.encodings import FixedTable, Index, Random
from posgeom.geometry import true_geometry
from posgeom.mds import classical_mds
from posgeom.paper.monotonicity import (
    mirrored_violation,
    monotonicity_table,
    plugin_with_folds,
    shares,
)
from posgeom.plots.theory import violations

DECAY = "synthetic:shape=decay,documents=4000,vocabulary=60,positions=12"


@pytest.fixture(scope="module")
def counts():
    return count_positions(DECAY, "none", 12)


@pytest.fixture(scope="module")
def geometry(counts):
    return estimate_geometry(counts)


def one_by_one(δ, D):
    """Violated and all triples (i; j, k) with D_ij < D_ik."""
    n, wrong, every = len(D), 0, 0
    for i in range(n):
        for j in range(n):
            for k in range(n):
                if i not in (j, k) and D[i, j] < D[i, k] - 1e-9 * D.max():
                    every += 1
                    wrong += δ[i, j] > δ[i, k] + 1e-9 * δ.max()
    return wrong / every


def table_of(rows):
    return FixedTable(rows=np.asarray(rows, dtype=float))


def test_shares_are_those_of_triples_counted_one_by_one(geometry):
    rows = np.random.default_rng(5).standard_normal((12, 3)) + np.arange(12)[:, None] / 4
    row = monotonicity_table([("decay", geometry)], {"own": table_of(rows)}, seeds=3).iloc[0]
    D = geometry.distances
    assert row["violation"] == pytest.approx(one_by_one(table_of(rows).distances(range(12)), D))
    random = [one_by_one(Random(dim=3, seed=s).distances(range(12)), D) for s in range(3)]
    assert row["random"] == pytest.approx(np.mean(random))
    assert row["random_sd"] == pytest.approx(np.std(random, ddof=1))
    assert row["offset"] == pytest.approx(one_by_one(Index().distances(range(12)), D))
    assert row["beyond"] == pytest.approx(row["offset"] - row["violation"])
    assert row["as_few"] == sum(r <= row["violation"] + 1e-12 for r in random)


def test_errors_are_the_jackknifes(geometry):
    rows = np.random.default_rng(6).standard_normal((12, 4))
    δ = table_of(rows).distances(range(12))
    each = [one_by_one(δ, np.sqrt(np.maximum(D2, 0))) for D2 in geometry.replicates]
    K = len(each)
    wanted = np.sqrt((K - 1) / K * sum((x - np.mean(each)) ** 2 for x in each))
    row = monotonicity_table([("decay", geometry)], {"own": table_of(rows)}, seeds=2).iloc[0]
    assert row["violation_se"] == pytest.approx(wanted)
    without = monotonicity_table(
        [("decay", replace(geometry, replicates=None))], {"own": table_of(rows)}, seeds=2
    ).iloc[0]
    assert without["violation"] == row["violation"]
    assert np.isnan(without["violation_se"])


def test_the_error_of_a_difference_is_that_of_the_difference(geometry):
    """Violations of table and offsets rise and fall together from fold to fold."""
    table = table_of(np.random.default_rng(8).standard_normal((12, 4)))
    own, offset = (shares(e.distances(range(12)), geometry) for e in (table, Index()))
    each = (offset - own)[1:, 0]
    row = monotonicity_table([("decay", geometry)], {"own": table}, seeds=2).iloc[0]
    K = len(each)
    assert row["beyond_se"] == pytest.approx(np.sqrt((K - 1) * np.var(each)))


def test_a_table_that_is_the_geometry_violates_nothing():
    P = np.random.default_rng(7).dirichlet(np.ones(9), 10)
    truth = true_geometry(P)
    own = table_of(classical_mds(truth.squared, squared=True).coordinates)
    row = monotonicity_table([("truth", truth)], {"own": own}, seeds=4).iloc[0]
    assert (row["violation"], row["mirrored"], row["as_few"]) == (0, 0, 0)
    assert 0.3 < row["random"] < 0.7


def test_offsets_are_no_better_than_themselves(geometry):
    line = table_of(np.arange(12.0)[:, None])
    row = monotonicity_table([("decay", geometry)], {"line": line}, seeds=2).iloc[0]
    assert row["beyond"] == row["beyond_se"] == 0
    assert row["mirrored"] == 0  # all ties


def test_random_rows_are_among_the_random(geometry):
    rows = Random(dim=5, seed=1).table(range(12))
    row = monotonicity_table([("decay", geometry)], {"random": table_of(rows)}, seeds=3).iloc[0]
    assert 1 <= row["as_few"] <= 3


def test_tables_that_are_too_short_are_left_out(geometry):
    tables = {"short": table_of(np.eye(11)), "long": table_of(np.eye(12))}
    assert monotonicity_table([("decay", geometry)], tables, seeds=2)["table"].to_list() == ["long"]


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 12), st.integers(0, 1_000))
def test_mirrored_triples_one_by_one(n, seed):
    rng = np.random.default_rng(seed)
    δ, D = (M + M.T for M in rng.integers(0, 4, (2, n, n)).astype(float))
    wrong = every = 0
    for i in range(n):
        for t in range(1, n):
            if i - t >= 0 and i + t < n and D[i, i - t] != D[i, i + t]:
                every += 1
                wrong += (D[i, i - t] - D[i, i + t]) * (δ[i, i - t] - δ[i, i + t]) < 0
    assert mirrored_violation(δ, D) == pytest.approx(wrong / every if every else 0)


def test_plug_in_replicates_leave_one_fold_out(counts):
    geometry = plugin_with_folds(counts, estimate_geometry(counts, "plugin"))
    C = counts.counts.toarray().reshape(counts.n_folds, 12, -1)
    for k in (0, 9):
        rest = C.sum(axis=0) - C[k]
        D = hellinger(rest / rest.sum(axis=1, keepdims=True))
        np.testing.assert_allclose(np.sqrt(geometry.replicates[k]), D, atol=1e-9)
    assert len(geometry.replicates) == counts.n_folds


def test_plug_in_replicates_of_positions_that_were_left_out(counts):
    some = estimate_geometry(counts, "plugin").at(np.array([0, 3, 11]))
    found = plugin_with_folds(counts, some).replicates[2]
    whole = plugin_with_folds(counts, estimate_geometry(counts, "plugin")).replicates[2]
    for a, b in combinations(range(3), 2):
        i, j = some.index[[a, b]]
        assert found[a, b] == pytest.approx(whole[i, j], abs=1e-12)


def test_the_figure_shows_shares_and_errors():
    ax = Figure().add_subplot()
    learned = np.array([0.1, 0.3]), np.array([0.01, 0.02])
    random = np.array([0.5, 0.51]), np.array([0.03, 0.04])
    violations(ax, ["a", "b"], learned, random, 0.2)
    for container, (share, error) in zip(ax.containers, (learned, random), strict=True):
        line, _, (bars,) = container.lines
        np.testing.assert_allclose(line.get_xdata(), share)
        ends = np.array([bar[:, 0] for bar in bars.get_segments()])
        np.testing.assert_allclose(ends, share[:, None] + 1.96 * np.outer(error, [-1, 1]))
    assert 0.2 in [line.get_xdata()[0] for line in ax.lines]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["a", "b"]
