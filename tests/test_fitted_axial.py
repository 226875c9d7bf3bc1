"""Axial RoPE fitted to grids."""

import numpy as np
import pytest

from posgeom import PosgeomError, count_positions, estimate_geometry, make_encoding, score_encodings
from posgeom.designers import DESIGNERS
from posgeom.encodings import AxialRope, parse_spec, spec_of
from posgeom.geometry import Geometry
from posgeom.stress import shift_invariant_floor, stress

SPECS = ["fitted-axial", "fitted-axial:energies=free"]


def design(geometry, spec, dim=16):
    parsed = parse_spec(spec)
    return DESIGNERS[parsed.family](geometry, parsed, dim)


def cells(rows, columns):
    return np.column_stack(np.divmod(np.arange(rows * columns), columns))


def geometry_of(squared, positions, grid):
    n = len(squared)
    return Geometry(
        squared=squared, totals=np.zeros(n, dtype=np.int64), positions=positions, grid=grid
    )


@pytest.fixture(scope="module")
def digits():
    return estimate_geometry(count_positions("digits"))


@pytest.mark.parametrize("dim", [8, 64])
def test_on_the_digits_it_is_better_than_axial_and_flat_rope(digits, dim):
    known = ["rope", "rope-2d", "rope-2d:spread=dealt", "fitted-base", "fitted-rope"]
    scores = score_encodings(digits, [*known, *SPECS], dim).set_index("encoding")["stress"]
    equal, free = scores[SPECS]
    assert equal < scores[known].min()
    assert free <= equal
    floor = shift_invariant_floor(digits.distances, digits.positions)
    for spec in SPECS:
        δ = design(digits, spec, dim).distances(digits.positions)
        assert stress(δ, digits.distances) >= floor


def test_frequencies_of_rows_and_columns_come_back():
    want = AxialRope(dim=8, own_frequencies=(1.2, 0.3, 2.0, 0.15))
    grid = cells(20, 30)
    geometry = geometry_of(want.distances(grid) ** 2, grid, (20, 30))
    fit = design(geometry, "fitted-axial", 8)
    np.testing.assert_allclose(fit.inv_freq, want.inv_freq, rtol=1e-3)


def test_columns_that_matter_more_get_more_energy():
    want = AxialRope(dim=4, own_frequencies=(0.5, 0.7), weights=(1.0, 9.0))
    grid = cells(12, 15)
    geometry = geometry_of(want.distances(grid) ** 2, grid, (12, 15))
    fit = design(geometry, "fitted-axial:energies=free", 4)
    np.testing.assert_allclose(fit.inv_freq, want.inv_freq, rtol=1e-3)
    assert fit.weights[1] / fit.weights[0] == pytest.approx(9, rel=1e-2)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("grid", [(1, 9), (7, 1), (2, 2), (4, 6)])
def test_small_and_thin_grids_and_cells_left_out(spec, grid):
    rng = np.random.default_rng(grid)
    positions = cells(*grid)
    if len(positions) > 6:
        positions = np.delete(positions, [1, 4], axis=0)
    n = len(positions)
    E = rng.uniform(0.2, 1, (n, n))
    geometry = geometry_of(np.triu(E, 1) + np.triu(E, 1).T, positions, grid)
    fit = design(geometry, spec)
    value = stress(fit.distances(positions), geometry.distances)
    assert value >= shift_invariant_floor(geometry.distances, positions) - 1e-12
    for known in ("rope-2d:dim=16", "rope-2d:dim=16,spread=dealt"):
        δ = make_encoding(known).distances(positions)
        assert value <= stress(δ, geometry.distances) + 1e-12


@pytest.mark.parametrize("spec", [*SPECS, "fitted-axial:dim=8,pairing=halves"])
def test_its_own_spec_makes_it_again(digits, spec):
    fit = design(digits, spec)
    assert (fit.name, fit.family, fit.n_axes) == (spec, "rope-2d", 2)
    again = make_encoding(spec_of(fit))
    assert again.pairing == fit.pairing
    np.testing.assert_array_equal(again.distances(cells(9, 9)), fit.distances(cells(9, 9)))
    assert fit == design(digits, spec)


def test_bad_requests_say_what_to_do(digits):
    line = Geometry(
        squared=1 - np.eye(4), totals=np.zeros(4, dtype=np.int64), positions=np.arange(4)
    )
    with pytest.raises(PosgeomError, match="--grid ROWSxCOLUMNS"):
        design(line, "fitted-axial")
    with pytest.raises(PosgeomError, match="multiple of 4"):
        design(digits, "fitted-axial:dim=6")
    with pytest.raises(PosgeomError, match="use equal or free"):
        design(digits, "fitted-axial:energies=1")


def test_axial_rope_takes_its_own_frequencies():
    e = make_encoding("rope-2d:dim=8,inv_freq=1;0.5;0.25;0,weights=1;2;3;4")
    x = np.array([[0, 0], [2, 3]])
    want = 2 * (
        (1 - np.cos(2)) + 2 * (1 - np.cos(1)) + 3 * (1 - np.cos(0.75)) + 4 * (1 - np.cos(0))
    )
    assert e.distances(x)[0, 1] ** 2 == pytest.approx(want)
    for bad in ("inv_freq=1;0.5", "weights=1;2;3", "weights=1;2;3;-4"):
        with pytest.raises(PosgeomError, match="one a pair"):
            make_encoding(f"rope-2d:dim=8,{bad}")
