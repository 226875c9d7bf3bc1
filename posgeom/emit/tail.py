"""A table that is there already, carried past its last row by the distances of its own rows."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from posgeom.designers.extension import (
    HIDDEN,
    LEAST_POSITIONS,
    Extension,
    check_method,
    extend,
    stretched,
)
from posgeom.encodings import FixedTable
from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry

FloatArray = NDArray[np.float64]

EXPLAINED = 0.99  # of the spread of the rows, by the axes that are carried on
HALF = 0.5  # of the rows are hidden, which carries the others to twice their length


def with_tail(
    table: FixedTable, m: int, method: str | None = None
) -> tuple[FixedTable, dict[str, Any]]:
    """A table of m positions, and what its passport says of it.

    harmonic       the default: the rows that are there stay as they are to the last bit; those
                   past the end follow by the harmonic form of the distances between them, along
                   the principal axes that hold 99% of their spread.  Gower's formula divides by
                   eigenvalues: on the axes behind, noise of training, it would blow up
    interpolation  the rows are stretched over all m positions, and move

    Each of both is measured: the last half of the rows is hidden and carried to, see extend.
    Raises PosgeomError for m below the last position, for another method, and for fewer than
    eight rows or rows that are all alike, from which nothing can be carried on.
    """
    check_method(method)
    known = np.arange(len(table.rows)) if table.index is None else table.index
    n = int(known[-1]) + 1
    if m < n:
        raise PosgeomError(f"--extend {m} came, {table.name} has {n} positions; give {n} or more")
    if method == "gower":
        raise PosgeomError(
            f"--extend-by gower came, but no distances are known past the end of {table.name}; "
            "give harmonic or interpolation"
        )
    if m == n == len(known):
        return table, {}
    if len(known) < LEAST_POSITIONS:
        raise PosgeomError(
            f"{table.name} has {len(known)} rows, too few to carry on and measure it; "
            f"{LEAST_POSITIONS} are needed"
        )
    centre, Y, V = principal_axes(table.rows)
    if not Y.any():
        raise PosgeomError(
            f"the rows of {table.name} are all alike: they say nothing of those past the end"
        )
    own = Geometry(
        squared=cdist(table.rows, table.rows, "sqeuclidean"),
        totals=np.zeros(len(known), dtype=np.int64),
        positions=known,
        estimator="truth",
    )
    made = extend(own, Y, m, method, hidden=HALF)
    if "interpolation" in made.methods:
        rows = stretched(table.rows, known, np.arange(m), m)
    else:
        rows = made.A @ V.T + centre
        rows[known] = table.rows
    longer = replace(table, rows=rows, index=None, stored_parameters=None)
    return longer, {"extended": said_of(made, n, HALF)}


def principal_axes(X: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The mean of the rows (d,), and U w (n, r), V (d, r) of those about it: X ≈ mean + U w Vᵀ.

    r is the least with Σ_k≤r w_k² ≥ 99% of all.
    """
    centre = X.mean(axis=0)
    U, w, Vt = np.linalg.svd(X - centre, full_matrices=False)
    r = 1 + int(np.searchsorted(np.cumsum(w**2), EXPLAINED * (w**2).sum()))
    return centre, U[:, :r] * w[:r], Vt[:r].T


def said_of(made: Extension, n: int, hidden: float = HIDDEN) -> dict[str, Any]:
    """What a passport says of a table carried on from n positions: JSON values.

    held_out: the stress that each way has over pairs with a hidden row, where it is known.
    """
    stress = {way: float(found.value) for way, found in made.held_out.items()}
    return {
        "positions": len(made.A),
        "from": n,
        "methods": sorted(set(made.methods)),
        "hidden": hidden,
        "held_out": {way: value for way, value in stress.items() if np.isfinite(value)},
    }
