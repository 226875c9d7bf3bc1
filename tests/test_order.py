"""Ranks and inversions against SciPy, by counting, and the compiled loop against NumPy."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.linalg import toeplitz
from scipy.spatial.distance import cdist
from scipy.stats import rankdata, spearmanr

from posgeom import order
from posgeom.inversions import offset_inversions, row_inversions
from posgeom.order import (
    LARGE,
    centred_ranks,
    levels,
    ordered_triples,
    per_unit,
    repeated_ranks,
    row_orders,
    violations,
)
from posgeom.radix import radix_ranks
from posgeom.stress import Target, monotonicity_violation, pairs

with_ties = arrays(np.float64, st.integers(1, 40), elements=st.integers(0, 6).map(float))


@given(with_ties)
@settings(deadline=None)
def test_ranks_are_scipys_less_their_mean(x):
    np.testing.assert_array_equal(centred_ranks(x), rankdata(x) - (len(x) + 1) / 2)


distances = arrays(np.float64, st.integers(1, 300), elements=st.floats(0, 1e6))


@given(with_ties | distances)
@settings(deadline=None)
def test_ranks_by_digits_are_scipys_of_the_levels(x):
    expected = rankdata(levels(x)) - (len(x) + 1) / 2
    np.testing.assert_array_equal(radix_ranks(x, per_unit(x)), expected)


@pytest.mark.parametrize("least", [0, -1])  # no distances, but numbers that have an order
def test_many_ranks_are_scipys(least):
    """All three digits of the levels are used, and ties across them."""
    x = np.random.default_rng(4).exponential(size=LARGE // 2) + least
    x[::7] = x[3]
    expected = rankdata(levels(x)) - (len(x) + 1) / 2
    np.testing.assert_array_equal(centred_ranks(x), expected)


@given(with_ties, st.data())
@settings(deadline=None)
def test_ranks_of_repeated_values_are_those_of_all(x, data):
    times = data.draw(arrays(np.int64, len(x), elements=st.integers(1, 5)))
    expected = np.repeat(repeated_ranks(x, times), times)
    np.testing.assert_array_equal(expected, centred_ranks(np.repeat(x, times)))


@pytest.mark.parametrize("broken", [False, True])
def test_spearman_of_many_positions_is_scipys(monkeypatch, broken):
    """Distances that follow the offset alone are ranked by offset, others pair by pair."""
    monkeypatch.setattr("posgeom.stress.LARGE", 1)
    n, rng = 60, np.random.default_rng(2)
    f = np.round(rng.random(n), 1)
    δ = toeplitz(f) - f[0] * np.eye(n)
    if broken:
        δ[7, 50] = δ[50, 7] = 2.0
    D = cdist(*2 * [rng.random((n, 3))])
    target = Target(D, pairs(D))
    expected = spearmanr(pairs(δ), pairs(D)).statistic
    assert target.spearman(pairs(δ)) == pytest.approx(expected, abs=1e-13)


@st.composite
def two_matrices(draw):
    """Symmetric distances with ties between a few points."""
    n = draw(st.integers(2, 9))
    made = []
    for _ in range(2):
        M = draw(arrays(np.int64, (n, n), elements=st.integers(1, 5))).astype(float)
        M = np.triu(M, 1)
        made.append(M + M.T)
    return made


@given(two_matrices())
@settings(deadline=None)
def test_the_compiled_loop_counts_triples(two):
    δ, D = two
    n = len(D)
    orders = row_orders(D, np.arange(n))
    broken = row_inversions(δ, per_unit(δ), *orders)
    for i in range(n):
        others = [j for j in range(n) if j != i]
        triples = [(j, k) for j, k in permutations(others, 2) if D[i, j] < D[i, k]]
        assert ordered_triples(orders[1])[i] == len(triples)
        assert broken[i] == sum(δ[i, j] > δ[i, k] for j, k in triples)


@pytest.mark.parametrize("m", [7, 8, 9, 200, 1_000])
def test_long_rows_agree_with_numpy(m):
    """Runs that insertion sorts, halves that merging sorts, and a last one that is shorter."""
    rng = np.random.default_rng(m)
    δ, D = rng.random((3, m + 1)), np.round(rng.random((3, m + 1)), 2)
    own = np.array([0, m // 2, m])
    orders = row_orders(D, own)
    broken = row_inversions(δ, per_unit(δ), *orders)
    others = np.arange(m + 1) != own[:, None]
    e, d = (levels(M)[others].reshape(3, m) for M in (δ, D))
    assert (broken.sum(), ordered_triples(orders[1]).sum()) == violations(e, d)


@pytest.mark.parametrize("n", [2, 64, 65, 66, 300])
@pytest.mark.parametrize("digits", [1, 9])  # with ties of both distances, and without
def test_inversions_by_offset_are_those_by_pairs(n, digits):
    rng = np.random.default_rng(n)
    f = np.round(rng.random(n), digits)
    f[0] = 0
    orders = row_orders(np.round(cdist(*2 * [rng.random((n, 3))]), digits), np.arange(n))
    ranks = rankdata(f[1:], method="dense") - 1
    expected = row_inversions(toeplitz(f), per_unit(f), *orders)
    for loop in (offset_inversions, offset_inversions.py_func):
        np.testing.assert_array_equal(loop(ranks.astype(np.int32), *orders), expected)


def test_many_positions_are_counted_as_few_are(monkeypatch):
    rng = np.random.default_rng(0)
    δ, D = (cdist(X, X) for X in (rng.random((60, 2)), rng.random((60, 3))))
    few = monotonicity_violation(δ, D)
    monkeypatch.setattr("posgeom.stress.LARGE", 1)
    target = Target(D, pairs(D))
    assert target.is_large
    assert target.violation(δ) == few
    assert monotonicity_violation(δ, D, anchors=np.arange(60)) == few


def test_encodings_of_one_order_are_counted_once(monkeypatch):
    monkeypatch.setattr("posgeom.stress.LARGE", 1)
    calls = []

    def counted(*some):
        calls.append(some)
        return offset_inversions(*some)

    D = cdist(*2 * [np.random.default_rng(4).random((40, 3))])
    target, t = Target(D, pairs(D)), np.arange(40.0)
    monkeypatch.setattr("posgeom.inversions.offset_inversions", counted)
    orders = [t, 3 * t, np.sqrt(t), np.minimum(t, 9), np.maximum(t - 7, t % 2)]
    found = [target.violation(toeplitz(f)) for f in orders]
    assert len(calls) == 3
    monkeypatch.undo()
    assert found == [monotonicity_violation(toeplitz(f), D) for f in orders]


def test_rows_are_ordered_a_part_at_a_time(monkeypatch):
    D = np.random.default_rng(1).random((10, 30))
    whole = row_orders(D, np.arange(10))
    monkeypatch.setattr(order, "_ROWS", 3)
    for part, all_rows in zip(row_orders(D, np.arange(10)), whole, strict=True):
        assert np.array_equal(part, all_rows)
