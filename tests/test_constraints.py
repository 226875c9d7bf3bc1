"""What models ask of a table, held, and told where it cannot be."""

import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import save_file
from scipy.spatial.distance import cdist, pdist

from posgeom import PosgeomError, SyntheticCorpus, classical_mds, true_geometry
from posgeom.designers.constraints import (
    Constraints,
    embedding_norm,
    geometric_median,
    with_zero_means,
)
from posgeom.designers.low_rank import LowRank, low_rank
from posgeom.encodings import first_collision, rounded
from posgeom.stress import stress


def drawn(n=12, rank=4, dim=16, seed=0, mean=0.0):
    X = np.random.default_rng(seed).standard_normal((n, rank)) * 2.0 ** -np.arange(rank) + mean
    return low_rank(X, rank, dim)


tables = st.builds(
    drawn,
    n=st.integers(3, 20),
    rank=st.integers(2, 6),
    dim=st.integers(7, 20),
    seed=st.integers(0, 99),
    mean=st.sampled_from([0.0, 0.3, 5.0]),
)
sizes = st.floats(1e-3, 1e3)


def test_nothing_asked_changes_nothing():
    table = drawn(mean=1)
    np.testing.assert_array_equal(Constraints().apply(table).table(), table.table())


@given(tables, sizes)
@settings(deadline=None)
def test_norm_and_bound_change_the_scale_alone(table, size):
    D = pdist(table.table())
    by_norm = Constraints(norm=size).apply(table).table()
    assert np.sqrt((by_norm**2).sum(axis=1).mean()) == pytest.approx(size)
    bounded = Constraints(bound=size).apply(table).table()
    assert np.abs(bounded).max() <= size
    for P in (by_norm, bounded):
        np.testing.assert_allclose(pdist(P) / pdist(P).max(), D / D.max(), atol=1e-9)
    if np.abs(table.table()).max() <= size * (1 - 1e-9):
        np.testing.assert_array_equal(bounded, table.table())
    else:
        assert np.abs(bounded).max() == pytest.approx(size)


@given(tables, sizes)
@settings(deadline=None)
def test_rows_are_set_apart_by_scale(table, size):
    P = Constraints(min_separation=size).apply(table).table()
    assert pdist(P).min() >= size * (1 - 1e-9)
    if pdist(table.table()).min() > size:
        np.testing.assert_array_equal(P, table.table())


@given(tables, sizes)
@settings(deadline=None)
def test_equal_norms_keep_directions(table, size):
    P, before = Constraints(row_norm=size).apply(table).table(), table.table()
    np.testing.assert_allclose(np.linalg.norm(P, axis=1), size)
    cosine = (P * before).sum(axis=1) / np.linalg.norm(before, axis=1) / size
    np.testing.assert_allclose(cosine, 1)


def test_the_cost_of_equal_norms_is_seen_and_that_of_a_scale_is_none():
    truth = true_geometry(SyntheticCorpus("mixture").profiles)
    table = low_rank(classical_mds(truth.distances).coordinates, 3, 16)

    def cost(constraints):
        P = constraints.apply(table).table()
        return stress(cdist(P, P), truth.distances)

    free = cost(Constraints())
    assert cost(Constraints(norm=3, zero_mean=True, dtype="bf16")) == pytest.approx(free, rel=1e-9)
    # the middle of the passage lies near the centre, and a sphere takes it out
    assert cost(Constraints(row_norm=1)) > free + 0.01


@given(tables)
@settings(deadline=None)
def test_means_over_positions_and_dimensions_are_zero(table):
    P = Constraints(zero_mean=True).apply(table).table()
    size = np.abs(P).max()
    np.testing.assert_allclose(P.mean(axis=0), 0, atol=1e-12 * size)
    np.testing.assert_allclose(P.mean(axis=1), 0, atol=1e-12 * size)
    np.testing.assert_allclose(pdist(P), pdist(table.table()), atol=1e-9 * size)


@pytest.mark.parametrize("dim", [2, 5, 8])
def test_a_full_rank_loses_what_lies_along_the_constant(dim):
    table = drawn(n=20, rank=dim, dim=dim)
    P = table.table()
    J = np.eye(dim) - 1 / dim
    made = with_zero_means(table)
    np.testing.assert_allclose(made.table(), (P - P.mean(axis=0)) @ J, atol=1e-12)
    assert made.rank == dim - 1
    np.testing.assert_allclose(made.B.T @ made.B, np.eye(dim - 1), atol=1e-12)
    gram = made.A.T @ made.A  # principal axes
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-9)


def test_a_basis_of_another_kind_gets_zero_means_too():
    rng = np.random.default_rng(3)
    table = LowRank(rng.standard_normal((9, 2)), np.linalg.qr(rng.standard_normal((5, 2)))[0])
    made = with_zero_means(table).table()
    P = table.table() - table.table().mean(axis=0)
    np.testing.assert_allclose(made, P - P.mean(axis=1, keepdims=True), atol=1e-12)


@given(st.integers(4, 30), st.integers(2, 5), st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_equal_norms_and_zero_means_hold_together(n, rank, seed):
    table = drawn(n=n, rank=rank, dim=8, seed=seed, mean=1)
    try:
        P = Constraints(row_norm=2, zero_mean=True).apply(table).table()
    except PosgeomError as error:  # a row that holds the others back is their median
        i = int(re.search(r"row (\d+) is their centre", str(error))[1])
        others = np.delete(table.A, i, axis=0) - table.A[i]
        pull = (others / np.linalg.norm(others, axis=1)[:, None]).sum(axis=0)
        assert np.linalg.norm(pull) <= 1 + 1e-6
        return
    np.testing.assert_allclose(np.linalg.norm(P, axis=1), 2)
    np.testing.assert_allclose(P.mean(axis=0), 0, atol=1e-8)
    np.testing.assert_allclose(P.mean(axis=1), 0, atol=1e-8)


def test_the_geometric_median_of_a_triangle_is_its_fermat_point():
    """From Fermat's point each side of a triangle without an angle of 120° is seen under 120°."""
    X = np.array([[0.0, 0.0], [4.0, 0.0], [1.0, 3.0]])
    u = X - geometric_median(X)
    u /= np.linalg.norm(u, axis=1)[:, None]
    np.testing.assert_allclose((u @ u.T)[np.triu_indices(3, 1)], -0.5, atol=1e-8)
    four = np.array([[0.0, 0.0], [3.0, 1.0], [5.0, 6.0], [-1.0, 4.0]])  # where diagonals cross
    a, _ = np.linalg.solve(np.column_stack([four[2], four[1] - four[3]]), four[1])
    np.testing.assert_allclose(geometric_median(four), a * four[2], atol=1e-7)


def test_the_geometric_median_is_found_near_a_row():
    """A triangle with an angle of 119.8°: Fermat's point is all but there."""
    half = np.radians(119.8 / 2)
    X = np.array([[0, 0], [np.cos(half), np.sin(half)], [np.cos(half), -np.sin(half)]])
    c = geometric_median(X)
    assert 0 < c[0] < 0.01
    u = (X - c) / np.linalg.norm(X - c, axis=1)[:, None]
    np.testing.assert_allclose(u.sum(axis=0), 0, atol=1e-8)


def test_on_a_line_only_an_even_number_of_rows_has_equal_norms_and_mean_zero():
    line = low_rank(np.array([[0.0], [1.0], [5.0], [7.0]]), 1, 4)
    P = Constraints(row_norm=1, zero_mean=True).apply(line)
    np.testing.assert_allclose(P.A.ravel(), [-1, -1, 1, 1])
    odd = low_rank(np.array([[0.0], [1.0], [5.0]]), 1, 4)
    with pytest.raises(PosgeomError, match="row 1 is their centre"):
        Constraints(row_norm=1, zero_mean=True).apply(odd)


def test_a_row_at_the_centre_has_no_direction():
    table = low_rank(np.array([[1.0, 0], [0, 0], [0, 1]]), 2, 4)
    with pytest.raises(PosgeomError, match="row 1 lies at the centre"):
        Constraints(row_norm=1).apply(table)


def test_one_dimension_has_no_zero_mean_over_dimensions():
    with pytest.raises(PosgeomError, match="raise --dim"):
        Constraints(zero_mean=True).apply(low_rank(np.array([[0.0], [1.0]]), 1, 1))


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_rows_that_a_format_cannot_tell_apart_are_named(dtype):
    step = {"bf16": 2.0**-9, "fp16": 2.0**-12, "fp32": 2.0**-25}[dtype]
    X = np.array([[1.0], [0.25], [-2.0], [0.25 * (1 + step / 4)]])
    table = LowRank(X, np.array([[1.0]]))
    with pytest.raises(PosgeomError, match=f"rows 1 and 3 are equal in {dtype}; use .*rank"):
        Constraints(dtype=dtype).apply(table)
    X[3] = 0.25 * (1 + 4 * step)
    kept = Constraints(dtype=dtype).apply(LowRank(X, np.array([[1.0]])))
    assert first_collision(kept.table(), dtype) is None


def test_a_shared_mean_that_takes_up_the_digits_is_taken_away():
    table = LowRank(1000 + np.arange(8.0)[:, None] * [[0.5, 0.25]], np.eye(6)[:, :2])
    with pytest.raises(PosgeomError, match="or --zero-mean, since"):
        Constraints(dtype="bf16").apply(table)
    made = Constraints(dtype="bf16", zero_mean=True).apply(table).table()
    assert len(np.unique(rounded(made, "bf16"), axis=0)) == 8


def test_what_leaves_the_range_of_a_format_is_told():
    with pytest.raises(PosgeomError, match="do not fit in fp16"):
        Constraints(norm=1e6, dtype="fp16").apply(drawn())
    with pytest.raises(PosgeomError, match="or a larger --norm"):
        Constraints(norm=1e-9, dtype="fp16").apply(drawn())


def number_after(words, error):
    return float(re.search(words + r" ([\d.e+-]+) or", str(error.value))[1])


def test_a_bound_and_a_separation_that_exclude_each_other_are_both_named():
    table = drawn()
    with pytest.raises(PosgeomError, match=r"rows 2 apart need .* --bound 0\.1 came") as error:
        Constraints(bound=0.1, min_separation=2).apply(table)
    possible = number_after("--min-separation", error)
    P = Constraints(bound=0.1, min_separation=possible).apply(table).table()
    assert np.abs(P).max() <= 0.1
    assert pdist(P).min() >= possible * (1 - 1e-9)
    with pytest.raises(PosgeomError, match="apart need"):
        Constraints(bound=0.1, min_separation=possible * 1.01).apply(table)


@pytest.mark.parametrize("scale", ["norm", "row_norm"])
def test_a_norm_excludes_bounds_and_separations(scale):
    table = drawn()
    with pytest.raises(PosgeomError, match=r"rows of norm 5 have .* --bound 0\.1 came") as error:
        Constraints(**{scale: 5}, bound=0.1).apply(table)
    most = number_after("give a norm of", error)
    assert np.abs(Constraints(**{scale: most}, bound=0.1).apply(table).table()).max() <= 0.1
    with pytest.raises(PosgeomError, match=r"norm 0\.01 are .* --min-separation 3 came") as error:
        Constraints(**{scale: 0.01}, min_separation=3).apply(table)
    least = number_after("give a norm of", error)
    P = Constraints(**{scale: least}, min_separation=3).apply(table).table()
    assert pdist(P).min() >= 3
    with pytest.raises(PosgeomError, match=r"--min-separation 3 came"):
        Constraints(**{scale: least / 1.01}, min_separation=3).apply(table)


def test_equal_rows_cannot_be_set_apart():
    table = low_rank(np.array([[0.0, 1], [2, 0], [0, 1], [5, 5]]), 2, 4)
    with pytest.raises(PosgeomError, match="rows 0 and 2 are equal, and no scale"):
        Constraints(min_separation=1).apply(table)


@given(
    arrays(np.float64, (6, 3), elements=st.floats(-9, 9)), st.floats(0.01, 10), st.floats(0.01, 10)
)
@settings(deadline=None)
def test_what_is_applied_holds_or_is_refused(X, bound, separation):
    assume(np.abs(X).max() > 1e-3)
    constraints = Constraints(bound=bound, min_separation=separation, zero_mean=True, dtype="fp32")
    try:
        P = constraints.apply(low_rank(X, 3, 8)).table()
    except PosgeomError:
        X = X - X.mean(axis=0)
        entries = np.abs(low_rank(X, 3, 8).table()).max()
        nearest = pdist(X).min() / max(pdist(X).max(), 1e-300)
        assert nearest < 1e-6 or separation / pdist(X).min() > bound / entries * (1 - 1e-9)
        return
    assert np.abs(P).max() <= bound
    assert pdist(P).min() >= separation * (1 - 1e-9)
    assert np.abs(P.mean(axis=0)).max() < 1e-12 * bound
    assert first_collision(P, "fp32") is None


def test_matching_an_embedding_table(tmp_path):
    words = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32) * 3
    positions = np.ones((4, 8), dtype=np.float32)
    path = tmp_path / "model.safetensors"
    save_file({"transformer.wte.weight": words, "transformer.wpe.weight": positions}, path)
    norm = np.sqrt((words.astype(float) ** 2).sum(axis=1).mean())
    assert embedding_norm(str(path)) == pytest.approx(norm)
    assert embedding_norm(f"{path}#transformer.wpe.weight") == pytest.approx(np.sqrt(8))
    P = Constraints(match=str(path)).apply(drawn()).table()
    assert np.sqrt((P**2).sum(axis=1).mean()) == pytest.approx(norm)
    np.save(tmp_path / "zero.npy", np.zeros((3, 2)))
    with pytest.raises(PosgeomError, match="all zero"):
        Constraints(match=str(tmp_path / "zero.npy")).apply(drawn())


@pytest.mark.parametrize("name", ["norm", "row_norm", "bound", "min_separation"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e40])
def test_sizes_that_no_table_has_are_refused(name, value):
    with pytest.raises(PosgeomError, match=f"--{name.replace('_', '-')} .* give"):
        Constraints(**{name: value})


def test_what_is_not_known_or_said_twice_is_refused():
    with pytest.raises(PosgeomError, match="use bf16, fp16 or fp32"):
        Constraints(dtype="int8")
    with pytest.raises(PosgeomError, match="--norm 1 and --row-norm 2 came"):
        Constraints(norm=1, row_norm=2)
