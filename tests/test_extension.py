"""Tables carried past their end: exact where they must be, measured where they cannot be."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.decomposition import KernelPCA

from posgeom import (
    PosgeomError,
    SyntheticCorpus,
    classical_mds,
    count_positions,
    estimate_geometry,
    make_encoding,
    true_geometry,
)
from posgeom.designers.extension import (
    classical_coordinates,
    extend,
    gower,
    held_out_stress,
    settled,
)
from posgeom.scoring import make_encodings
from posgeom.simulation import draw_counts
from posgeom.smacof import smacof
from posgeom.stress import stress


def truth(shape, positions=32):
    return true_geometry(SyntheticCorpus(shape, positions, vocabulary=300).profiles)


def estimate(shape, positions=32, documents=20_000):
    corpus = SyntheticCorpus(shape, positions, 300, documents, shortening=0.3)
    return estimate_geometry(draw_counts(corpus))


def table(geometry, n, rank):
    return classical_coordinates(geometry.at(np.arange(n)), rank)


def stress_of_rows(A, geometry):
    return stress(cdist(A, A), geometry.distances)


# Gower's formula


@given(st.integers(5, 15), st.integers(1, 4), st.integers(1, 4), st.integers(0, 99))
@settings(deadline=None)
def test_points_of_a_euclidean_configuration_come_out_where_they_are(n, k, m, seed):
    points = np.random.default_rng(seed).standard_normal((n + m, k))
    D = cdist(points, points)
    X = classical_mds(D[:n, :n]).coordinates
    np.testing.assert_allclose(gower(D[:n, :n] ** 2, D[:n, :n] ** 2, X), X, atol=1e-6)
    placed = gower(D[:n, :n] ** 2, D[n:, :n] ** 2, X)
    everything = np.vstack([X, placed])
    np.testing.assert_allclose(cdist(everything, everything), D, atol=1e-6)
    # another frame: turned, stretched and shifted
    T = np.random.default_rng(seed + 1).standard_normal((k, k)) + 3 * np.eye(k)
    elsewhere = gower(D[:n, :n] ** 2, D[n:, :n] ** 2, X @ T + 7)
    np.testing.assert_allclose(elsewhere, placed @ T + 7, atol=1e-5)


@pytest.mark.parametrize("rank", [1, 3, 6])
def test_a_position_of_a_truncated_configuration_gets_its_own_row(rank):
    geometry = estimate("blocks")  # squared distances below 0 among them
    assert geometry.squared.min() < 0
    X = table(geometry, 32, rank)
    np.testing.assert_allclose(gower(geometry.squared, geometry.squared, X), X, atol=1e-9)


def test_gowers_formula_is_kernel_pca_of_new_points():
    S = truth("decay", 24).squared
    old = slice(0, 20)
    pca = KernelPCA(3, kernel="precomputed").fit(-S[old, old] / 2)
    X = classical_mds(S[old, old], 3, squared=True).coordinates
    theirs = pca.transform(-S[20:, old] / 2)
    signs = np.sign((pca.transform(-S[old, old] / 2) * X).sum(axis=0))
    np.testing.assert_allclose(gower(S[old, old], S[20:, old], X), theirs * signs, atol=1e-10)


def test_axes_without_extent_give_nothing():
    D = np.abs(np.arange(6.0)[:, None] - np.arange(6.0))
    X = np.column_stack([classical_mds(D, 1).coordinates, np.zeros(6)])
    placed = gower(D**2, np.array([[36.0, 25, 16, 9, 4, 1]]), X)
    np.testing.assert_allclose(placed, [[X[5, 0] + X[5, 0] - X[4, 0], 0]], atol=1e-9)


def test_settled_rows_have_least_stress_each():
    """No step in any direction lowers it; and rows whose distances are exact stay."""
    rng = np.random.default_rng(0)
    X, start = rng.standard_normal((12, 2)), rng.standard_normal((4, 2))
    new = rng.uniform(0.1, 3, (4, 12)) ** 2
    new[0, 3] *= -1  # noise
    rows = settled(start, new, X)

    def stresses(Y):
        return ((cdist(Y, X) - np.sign(new) * np.sqrt(np.abs(new))) ** 2).sum(axis=1)

    assert (stresses(rows) < stresses(start)).all()
    for step in 1e-4 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [-1, -1]]):
        assert (stresses(rows + step) > stresses(rows)).all()
    exact = cdist(start, X) ** 2
    np.testing.assert_allclose(settled(start, exact, X), start, atol=1e-9)
    np.testing.assert_allclose(settled(start + 0.01, exact, X), start, atol=1e-6)


def test_a_table_of_least_stress_is_carried_by_least_stress():
    geometry = truth("mixture", 40)

    def fit(part, rank):
        return smacof(part.distances, rank).coordinates

    X = fit(geometry.at(np.arange(30)), 1)
    plain, moved = (extend(geometry, X, 40, fit=fit, optimal=o) for o in (False, True))
    assert moved.methods == plain.methods
    np.testing.assert_array_equal(moved.A[:30], X)
    assert moved.held_out["gower"].value < plain.held_out["gower"].value
    assert stress_of_rows(moved.A, geometry) < stress_of_rows(plain.A, geometry)
    assert moved.held_out["harmonic"] == plain.held_out["harmonic"]


# Extension by each method


def test_positions_with_counts_are_placed_by_them():
    geometry = estimate("mixture", 40)
    full = truth("mixture", 40)
    X = table(geometry, 30, 3)
    made = extend(geometry, X, 40)
    assert made.methods == ("given",) * 30 + ("gower",) * 10
    np.testing.assert_array_equal(made.A[:30], X)
    assert stress_of_rows(made.A, full) < stress_of_rows(table(geometry, 40, 3), full) + 0.01


@pytest.mark.parametrize(
    ("shape", "rank", "most"), [("line", 1, 0.002), ("periodic", 7, 1e-4), ("circle", 8, 0.005)]
)
def test_what_is_shift_invariant_is_carried_to_twice_its_length(shape, rank, most):
    full = truth(shape, 64)
    n = 32 if shape != "circle" else 48  # half a turn does not tell that it closes
    known = full.at(np.arange(n))
    made = extend(known, table(full, n, rank), 64, "harmonic")
    assert made.methods == ("given",) * n + ("harmonic",) * (64 - n)
    assert stress_of_rows(made.A, full) < most
    if shape == "periodic":  # records of eight
        np.testing.assert_allclose(made.A[40:], made.A[32:56], atol=1e-3)


def test_it_matters_little_how_far_at_once():
    full = truth("periodic", 64)
    known = full.at(np.arange(32))
    X = table(full, 32, 7)
    np.testing.assert_allclose(extend(known, X, 40).A, extend(known, X, 64).A[:40], atol=1e-12)


def test_interpolation_reads_between_the_rows():
    geometry = truth("decay", 9)
    X = table(geometry, 9, 2)
    made = extend(geometry, X, 17, "interpolation")
    assert made.methods == ("interpolation",) * 17
    np.testing.assert_allclose(made.A[::2], X)
    np.testing.assert_allclose(made.A[1::2], (X[1:] + X[:-1]) / 2)
    uneven = extend(geometry, X, 13, "interpolation").A
    np.testing.assert_allclose(uneven[1], X[0] / 3 + X[1] * 2 / 3)  # 1·8/12
    np.testing.assert_array_equal(uneven[[0, -1]], X[[0, -1]])


@pytest.mark.parametrize(
    ("shape", "better"), [("decay", "interpolation"), ("periodic", "harmonic")]
)
def test_the_held_out_stress_says_which_method_is_better(shape, better):
    """By default the known rows stay where they are, whatever interpolation could do."""
    for geometry in (truth(shape), estimate(shape)):
        X = table(geometry, 32, 3)
        made = {m: extend(geometry, X, 40, m) for m in ("harmonic", "interpolation")}
        full = truth(shape, 40)
        assert better == min(made, key=lambda m: stress_of_rows(made[m].A, full))
        held_out = made[better].held_out
        assert better == min(made, key=lambda m: held_out[m].value)
        default = extend(geometry, X, 40)
        assert default.methods == made["harmonic"].methods
        np.testing.assert_array_equal(default.A[:32], X)


def test_a_method_that_was_asked_for_leaves_counts_aside():
    geometry = truth("periodic", 40)
    X = table(geometry, 32, 7)
    assert extend(geometry, X, 48).methods[32:] == ("gower",) * 8 + ("harmonic",) * 8
    assert extend(geometry, X, 48, "harmonic").methods[32:] == ("harmonic",) * 16
    assert extend(geometry, X, 40, "gower").methods[32:] == ("gower",) * 8
    assert set(extend(geometry, X, 40, "interpolation").methods) == {"interpolation"}


@pytest.mark.parametrize("method", ["harmonic", "interpolation"])
def test_positions_left_out_get_rows_too(method):
    full = truth("line", 24)
    known = full.at(np.delete(np.arange(24), [5, 6, 20]))
    X = classical_coordinates(known, 1)
    made = extend(known, X, 24, method)
    assert [i for i, name in enumerate(made.methods) if name == method] == [5, 6, 20]
    np.testing.assert_array_equal(made.A[known.index], X)
    assert stress_of_rows(made.A, full) < 1e-3
    longer = extend(known, X, 30, method)
    steps = np.diff(longer.A[:, 0])
    np.testing.assert_allclose(steps, steps.mean(), rtol=0.1)


def test_nothing_is_asked_and_nothing_changes():
    geometry = truth("mixture", 16)
    X = table(geometry, 16, 3)
    made = extend(geometry, X, 16)
    np.testing.assert_array_equal(made.A, X)
    assert made.methods == ("given",) * 16


# What it costs


def by_hand(δ, S, hidden):
    """Stress against squared distances S over pairs with a hidden position, pair by pair."""
    pairs = [(i, j) for i in range(len(S)) for j in range(i) if i in hidden or j in hidden]
    δ, S = (np.array([M[p] for p in pairs]) for M in (δ, S))
    return 1 - (δ @ (np.sign(S) * np.sqrt(np.abs(S)))) ** 2 / ((δ @ δ) * S.sum())


def test_held_out_stress_is_that_of_pairs_with_a_hidden_position():
    geometry = truth("decay", 18)  # 4 of 18 are hidden
    seen = []

    def make(part):
        seen.append(part.index.tolist())
        return make_encoding("alibi")

    found = held_out_stress(geometry, make)
    assert seen == [list(range(14))]
    δ = np.abs(np.subtract.outer(np.arange(18.0), np.arange(18)))
    assert found.value == pytest.approx(by_hand(δ, geometry.squared, {14, 15, 16, 17}))
    assert np.isnan(found.se)


def test_held_out_stress_of_the_methods():
    geometry = truth("mixture", 16)
    X = table(geometry, 12, 3)
    made = extend(geometry, table(geometry, 16, 3), 20)
    rows = {
        "gower": extend(geometry, X, 16, "gower").A,
        "harmonic": extend(geometry, X, 16, "harmonic").A,
        "interpolation": extend(geometry.at(np.arange(12)), X, 16, "interpolation").A,
    }
    for name, A in rows.items():
        hand = by_hand(cdist(A, A), geometry.squared, {12, 13, 14, 15})
        assert made.held_out[name].value == pytest.approx(hand, abs=1e-9), name
    assert made.held_out["gower"].value < min(
        made.held_out[name].value for name in ("harmonic", "interpolation")
    )


def test_gowers_rows_have_seen_their_distances_and_are_not_corrected():
    geometry = estimate("blocks", 16)
    X = table(geometry, 12, 2)
    A = extend(geometry, X, 16, "gower").A
    found = extend(geometry, table(geometry, 16, 2), 16).held_out
    hand = by_hand(cdist(A, A), geometry.squared, {12, 13, 14, 15})
    assert found["gower"].value == pytest.approx(max(0, hand), abs=1e-12)
    A = extend(geometry.at(np.arange(12)), X, 16, "interpolation").A
    plain = by_hand(cdist(A, A), geometry.squared, {12, 13, 14, 15})
    assert found["interpolation"].value != pytest.approx(plain, abs=1e-9)


def test_what_is_hidden_is_not_seen():
    """Distances of hidden positions may be anything: the rows that are judged stay."""
    geometry = truth("mixture", 16)
    seen = []

    def fit(part, rank):
        seen.append(part.squared.copy())
        return classical_coordinates(part, rank)

    extend(geometry, table(geometry, 16, 3), 20, fit=fit)
    assert len(seen) == 1
    np.testing.assert_array_equal(seen[0], geometry.squared[:12, :12])
    other = fit(geometry.at(np.arange(12)), 2)
    worse = extend(geometry, table(geometry, 16, 3), 20, fit=lambda part, rank: other[:, :1])
    assert (
        worse.held_out["gower"].value
        > extend(geometry, table(geometry, 16, 3), 20).held_out["gower"].value
    )


@pytest.mark.parametrize("shape", ["line", "mixture"])
def test_held_out_stress_of_an_estimate_is_near_the_truth(shape):
    right, found = truth(shape), estimate(shape)
    for spec in ("alibi", "sinusoidal"):
        true, estimated = (
            held_out_stress(g, lambda part, spec=spec: make_encoding(spec, dim=32))
            for g in (right, found)
        )
        assert abs(true.value - estimated.value) < 3 * estimated.se + 1e-3
        assert 0 < estimated.se < 0.05
    X = table(right, 32, 3)
    exact, measured = extend(right, X, 40).held_out, extend(found, X, 40).held_out
    for name, estimated in measured.items():
        assert abs(exact[name].value - estimated.value) < 0.02, name
        assert estimated.se < 0.02


def test_errors_are_those_of_the_folds_one_by_one():
    geometry = estimate("mixture", 16)
    found = held_out_stress(geometry, lambda part: make_encoding("alibi"))
    δ = squareform(pdist(np.arange(16.0)[:, None]))
    K = len(geometry.replicates)
    each = np.array([by_hand(δ, S, {12, 13, 14, 15}) for S in geometry.replicates])
    assert found.se == pytest.approx(np.sqrt((K - 1) / K * ((each - each.mean()) ** 2).sum()))


def test_grids_are_judged_by_rows_and_columns():
    digits = estimate_geometry(count_positions("digits"), "plugin")
    δ = cdist(digits.positions, digits.positions)
    axial = held_out_stress(digits, lambda part: make_encoding("rope-2d:dim=8"))
    flat = held_out_stress(digits, lambda part: make_encoding("alibi"))
    hidden = set(range(48, 64))
    flat_δ = np.abs(np.subtract.outer(digits.index, digits.index)).astype(float)
    assert flat.value == pytest.approx(by_hand(flat_δ, digits.squared, hidden))
    axes = make_encoding("rope-2d:dim=8").distances(digits.positions)
    assert axial.value == pytest.approx(by_hand(axes, digits.squared, hidden))
    assert by_hand(δ, digits.squared, hidden) < flat.value


def test_three_quarters_without_geometry_are_told_by_nan():
    geometry = truth("blocks", 16)
    squared = geometry.squared.copy()
    squared[:12, :12] = 0
    broken = replace(geometry, squared=squared)
    made = extend(broken, classical_coordinates(broken, 2), 20)
    assert all(np.isnan(estimate.value) for estimate in made.held_out.values())
    assert made.methods == ("interpolation",) * 20


def test_equal_asks_give_equal_bytes():
    geometry = estimate("mixture", 16)
    X = table(geometry, 16, 3)
    first, second = (extend(geometry, X, 32, "harmonic").A for _ in range(2))
    assert first.tobytes() == second.tobytes()


# What cannot be done


def test_bad_asks_are_told():
    geometry = truth("mixture", 12)
    X = table(geometry, 12, 2)
    with pytest.raises(PosgeomError, match=r"--extend 11 came, .* position 11; give 12 or more"):
        extend(geometry, X, 11)
    with pytest.raises(PosgeomError, match="use gower, harmonic, interpolation"):
        extend(geometry, X, 20, "hold")
    with pytest.raises(PosgeomError, match="position 12 has no counts"):
        extend(geometry, X, 20, "gower")
    with pytest.raises(PosgeomError, match="7 positions have counts"):
        extend(geometry.at(np.arange(7)), X[:7], 20)
    with pytest.raises(PosgeomError, match="coordinates of 12 positions"):
        extend(geometry.at(np.arange(9)), X, 20)
    with pytest.raises(PosgeomError, match="7 positions have counts"):
        held_out_stress(geometry.at(np.arange(7)), lambda part: make_encoding("alibi"))
    with pytest.raises(PosgeomError, match="made for other positions"):
        held_out_stress(geometry, lambda part: make_encodings(part, ["mds"])[0])
    digits = estimate_geometry(count_positions("digits"), "plugin")
    with pytest.raises(PosgeomError, match="8 × 8 grid"):
        extend(digits, classical_coordinates(digits, 2), 100)
