"""A designed table carried past the positions it was made of, and what that costs.

A position that has counts is placed by its distances.  For one without, the harmonic form of the
corpus stands in for distances, or the rows are stretched; the error of each is measured by hiding
the last quarter of the positions that are known.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from posgeom.designers.harmonic import Harmonic, harmonic_form
from posgeom.encodings.base import Encoding
from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry
from posgeom.inference import Estimate, condensed, jackknife, signed_root, stress_of
from posgeom.mds import classical_mds

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

METHODS = ("gower", "harmonic", "interpolation")
GIVEN = "given"
LEAST_POSITIONS = 8  # of which two can be hidden
HIDDEN = 0.25  # share of the positions that are hidden
SETTLING = 1_000  # steps of majorisation
SMALLEST = 1e-150  # a distance to divide by
ROUNDING = 1e-10  # of the largest eigenvalue: a smaller one is 0


@dataclass(frozen=True, eq=False)
class Extension:
    """Coordinates of more positions than a design had.

    A         (m, r) one row for each position 0..m−1
    methods   (m,) how each row came: "given" as it was, or one of METHODS
    held_out  stress over the pairs that touch a hidden position, by method; see extend
    """

    A: FloatArray = field(repr=False)
    methods: tuple[str, ...] = field(repr=False)
    held_out: dict[str, Estimate]


def extend(
    geometry: Geometry,
    coordinates: FloatArray,
    m: int,
    method: str | None = None,
    *,
    fit: Callable[[Geometry, int], FloatArray] | None = None,
    optimal: bool = False,
    hidden: float = HIDDEN,
) -> Extension:
    """Coordinates of positions 0..m−1 from those of the first n.

    geometry      of n or more positions, those that have counts
    coordinates   (n, r) of its first n
    method        one of METHODS for all new positions.  By default "gower" where a position has
                  counts, and for the others harmonic, which leaves the known rows where they are;
                  interpolation only where what is shown has no geometry for a harmonic form
    fit           (geometry, rank) to coordinates, for the held-out stress; classical MDS by default
    optimal       the coordinates have least stress, as from smacof: rows that Gower's formula
                  places move on to where their own is least, see settled
    hidden        share of the positions to hide for the held-out stress

    gower           Gower's formula for the distances that the corpus gives, see gower
    harmonic        the same for distances by offset, between old positions too, see harmonic_form:
                    a harmonic form that met a corpus's own, not shift-invariant distances would
                    put the difference into the new rows.  All new positions at once: the form
                    is defined at every offset, and nothing adds up along the way
    interpolation   position i takes the place i·(last known)/(m − 1) among the known rows, linear
                    between two.  The known rows move too, closer together, and lose part of
                    their fit; positions left out among them get rows between.  Chen et al.
                    (2023), for tables

    The held-out stress: the last quarter of the geometry's positions is hidden, the rest fitted
    and extended over it, and the scale-free stress taken over all pairs of which one or both are
    hidden, with its error by the jackknife.  That carries the table by a third of its length;
    further costs more, and hidden=0.5 tells what twice the length does.
    Gower's has seen the distances of hidden to shown positions, which is what it is for, so it is
    not corrected for bias.

    Raises PosgeomError for m below the last of the n positions, for fewer than eight positions,
    for grids, an unknown method, and for gower where a new position has no counts.
    """
    n, index = len(coordinates), geometry.index
    _check(geometry, n, m, method)
    place = _gower_settled if optimal else gower
    X = np.asarray(coordinates, dtype=np.float64)
    held_out = _held_out_by_method(
        geometry, X.shape[1], fit or classical_coordinates, place, hidden
    )
    known = np.arange(n if method in METHODS[1:] else (index < m).sum())
    names = [GIVEN] * n
    if len(known) > n:
        placed = place(geometry.squared[:n, :n], geometry.squared[n : len(known), :n], X)
        X, names = np.vstack([X, placed]), names + ["gower"] * (len(known) - n)
    new = np.setdiff1d(np.arange(m), index[known])
    if not new.size:
        return Extension(X, tuple(names), held_out)
    if method == "gower":
        raise PosgeomError(
            f"position {new[0]} has no counts to place it by; give longer documents, or "
            "harmonic or interpolation"
        )
    chosen = method or ("harmonic" if np.isfinite(held_out["harmonic"].value) else "interpolation")
    shown = geometry.at(known)
    if chosen == "interpolation":
        if m - 1 > shown.index[-1]:
            names = [chosen] * len(names)
        A = stretched(X, shown.index, np.arange(m), m)
    else:
        A = np.empty((m, X.shape[1]))
        A[shown.index] = X
        A[new] = harmonic_rows(harmonic_form(shown), shown.index, new, X)
    methods = np.full(m, chosen, dtype=object)
    methods[shown.index] = names
    return Extension(A, tuple(methods), held_out)


def held_out_stress(
    geometry: Geometry, make: Callable[[Geometry], Encoding], hidden: float = HIDDEN
) -> Estimate:
    """The held-out stress, see extend, of an encoding that is defined at all positions by itself.

    make: the encoding for a geometry, of which it is given the positions that are not hidden.
    NaN where those have no geometry to fit.
    Raises PosgeomError for fewer than eight positions, and for an encoding that does not extend.
    """
    first = _shown(geometry, hidden)
    shown = geometry.at(first)
    if not condensed(shown.squared).sum() > 0:
        return Estimate(float("nan"))
    encoding = make(shown)
    δ = encoding.distances(geometry.positions_for(encoding.n_axes))
    return _judged(geometry, δ, len(first))


def gower(squared: FloatArray, new: FloatArray, X: FloatArray) -> FloatArray:
    """Rows for new points from their squared distances to old ones: (m, r).

    a = ½ Λ⁻¹ Yᵀ (diag(B) − d²), with B = −½ J D² J = Y Yᵀ the centred Gram matrix of the old
    points, Y its r principal axes and YᵀY = Λ.  Where X is not Y, as after majorisation or a
    rotation, the linear map that takes Y to X with least squares takes a along.
    squared: (n, n) of the old points; new: (m, n); X: (n, r).  Squares below 0 are taken as they
    are; axes that are not positive give nothing.  Gower (1968), Biometrika 55, 582-585.
    """
    mds = classical_mds(squared, min(X.shape[1], len(squared)), squared=True)
    w, Y = mds.eigenvalues, mds.coordinates
    kept = w > ROUNDING * np.abs(w).max(initial=0)
    Y, w = Y[:, kept], w[kept]
    b = squared.mean(axis=1)  # diag(B) up to a constant, which the centred axes do not see
    a = (b - new) @ Y / (2 * w)
    T = np.linalg.lstsq(Y, X - X.mean(axis=0), rcond=None)[0]
    return np.asarray(a @ T + X.mean(axis=0))


def settled(rows: FloatArray, new: FloatArray, X: FloatArray) -> FloatArray:
    """Rows (m, r) moved to the least Σ_j (‖y − x_j‖ − d_j)² each, the old ones held: (m, r).

    Majorisation of one point: y ← 1/n Σ_j (x_j + d_j (y − x_j)/‖y − x_j‖); from a start it goes
    downhill.  new: (m, n) squared distances to the old points, signed, d their signed roots;
    X: (n, r).  De Leeuw (1977); Borg & Groenen (2005), sec. 8.6.
    """
    d, centre = signed_root(new), X.mean(axis=0)
    for _ in range(SETTLING):
        w = d / np.maximum(cdist(rows, X), SMALLEST)
        moved = centre + (w.sum(axis=1)[:, None] * rows - w @ X) / len(X)
        if np.abs(moved - rows).max(initial=0) <= ROUNDING * np.abs(X).max():
            break
        rows = moved
    return rows


def _gower_settled(squared: FloatArray, new: FloatArray, X: FloatArray) -> FloatArray:
    return settled(gower(squared, new, X), new, X)


def harmonic_rows(form: Harmonic, old: IntArray, new: IntArray, X: FloatArray) -> FloatArray:
    """Rows of new positions (m,) by Gower's formula, from X (n, r) of the old ones (n,)."""
    squared = form.squared(np.arange(max(old.max(), new.max()) + 1))  # once an offset, not a pair
    among, between = (squared[np.abs(t[:, None] - old[None, :])] for t in (old, new))
    return gower(among, between, X)


def stretched(X: FloatArray, old: IntArray, positions: IntArray, m: int) -> FloatArray:
    """Rows of positions (p,) when those of the old ones, X (n, r), are stretched over 0..m−1."""
    places = positions * (old[-1] / (m - 1))
    return np.column_stack([np.interp(places, old, x) for x in X.T])


def classical_coordinates(geometry: Geometry, rank: int) -> FloatArray:
    """Coordinates (n, r) by classical MDS, r = rank or as many as there are."""
    return classical_mds(geometry.squared, squared=True).coordinates[:, :rank]


def _held_out_by_method(
    geometry: Geometry,
    rank: int,
    fit: Callable[[Geometry, int], FloatArray],
    place: Callable[[FloatArray, FloatArray, FloatArray], FloatArray],
    hidden: float,
) -> dict[str, Estimate]:
    """Held-out stress of each method; NaN where what is shown has no geometry to fit."""
    first = _shown(geometry, hidden)
    a, index, shown = len(first), geometry.index, geometry.at(first)
    if not condensed(shown.squared).sum() > 0:
        return dict.fromkeys(METHODS, Estimate(float("nan")))
    X = fit(shown, rank)
    rows = {
        "gower": np.vstack([X, place(shown.squared, geometry.squared[a:, :a], X)]),
        "harmonic": np.vstack([X, harmonic_rows(harmonic_form(shown), shown.index, index[a:], X)]),
        "interpolation": stretched(X, shown.index, index, int(index[-1]) + 1),
    }
    return {
        name: _judged(geometry, cdist(P, P), a, correct=name != "gower") for name, P in rows.items()
    }


def _shown(geometry: Geometry, hidden: float) -> IntArray:
    """The positions that are not hidden, the first ones, by row."""
    n = geometry.n_positions
    if n < LEAST_POSITIONS:
        raise PosgeomError(
            f"{n} positions have counts, too few to hide the last of them and measure an "
            f"extension; {LEAST_POSITIONS} are needed, use --positions {LEAST_POSITIONS} or more"
        )
    return np.arange(n - int(n * hidden))


def _judged(geometry: Geometry, δ: FloatArray, shown: int, *, correct: bool = True) -> Estimate:
    """Scale-free stress of distances δ (n, n) over pairs that touch a position from `shown` on."""
    touched = np.triu_indices(len(δ), 1)[1] >= shown
    measure = stress_of(condensed(δ)[touched])
    return jackknife(lambda s: measure(s[..., touched]), geometry, bounds=(0, 1), correct=correct)


def check_method(method: str | None) -> None:
    """Raise PosgeomError for a way to carry a table on that is none of METHODS."""
    if method is not None and method not in METHODS:
        raise PosgeomError(f"method {method!r} is not known; use {', '.join(METHODS)}")


def _check(geometry: Geometry, n: int, m: int, method: str | None) -> None:
    check_method(method)
    if geometry.grid is not None:
        rows, columns = geometry.grid
        raise PosgeomError(
            f"positions are cells of a {rows} × {columns} grid, --extend carries on a line; "
            "leave it out, or take an encoding that is defined everywhere, such as rope"
        )
    if not 2 <= n <= geometry.n_positions:
        raise PosgeomError(
            f"coordinates of {n} positions came for a geometry of {geometry.n_positions}; "
            "give those of its first two or more"
        )
    last = int(geometry.index[n - 1])
    if m <= last:
        raise PosgeomError(
            f"--extend {m} came, the table reaches to position {last}; give {last + 1} or more"
        )
