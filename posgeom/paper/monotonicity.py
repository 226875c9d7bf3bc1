"""Conjecture 5, monotonicity: the closer two positions' statistics, the closer their vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from posgeom.counts import PositionCounts
from posgeom.distances import squared_hellinger
from posgeom.encodings import FixedTable, Index, Random
from posgeom.geometry import Geometry
from posgeom.inference import jackknife_se
from posgeom.stress import monotonicity_violation

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]


def plugin_with_folds(counts: PositionCounts, geometry: Geometry) -> Geometry:
    """A plug-in geometry of these counts with the same distances without each fold, for errors.

    Raises PosgeomError where a position has no token without one of the folds.
    """
    at = geometry.index
    K, n = counts.n_folds, counts.n_positions
    pooled = counts.pooled[at]

    def without(k: int) -> FloatArray:
        C = csr_array(pooled - counts.counts[k * n + at])
        N = np.asarray(C.sum(axis=1), dtype=np.float64)
        return squared_hellinger(csr_array(diags_array(1 / np.maximum(N, 1)) @ C))

    return replace(geometry, replicates=np.stack([without(k) for k in range(K)]))


def mirrored_violation(delta: FloatArray, D: FloatArray) -> float:
    """Share of the triples (i; i − t, i + t) in the wrong order: both are t away from i.

    Of those with D_ij ≠ D_ik; the offset from i cannot tell j from k, so that only what is not
    relative counts.  ½ where the order is random; 0 where D has none.  Distances that round to
    the same billionth of the largest are ties.  delta, D: (n, n).
    """
    n = len(D)
    i, t = np.divmod(np.arange(n * (n // 2)), n // 2)
    t = t + 1
    inside = (i - t >= 0) & (i + t < n)
    i, t = i[inside], t[inside]
    M = [X / max(X.max(initial=0), 1e-300) for X in (D, delta)]
    d, δ = (np.sign((X[i, i - t] - X[i, i + t]).round(9)) for X in M)
    told = d != 0
    return float((d * δ < 0)[told].mean()) if told.any() else 0.0


def monotonicity_table(
    geometries: Sequence[tuple[str, Geometry]],
    tables: Mapping[str, FixedTable],
    *,
    seeds: int = 20,
) -> "pd.DataFrame":
    """Violations of the conjecture over all triples: a row a geometry and a table long enough.

    violation, …_se      share of triples (i; j, k) with D_ij < D_ik and δ_ij > δ_ik, over all n
                         anchors and all pairs; its jackknife error over folds of the corpus
    random, …_sd         the same of tables of independent normal rows of the table's shape: mean
                         and standard deviation over seeds
    difference, …_se     violation − random; both errors together
    as_few               random tables that violate no more than the learned one does
    offset               the violation of |i − j| alone
    beyond, …_se         offset − violation, with its jackknife error: above 0 where the table
                         follows the corpus closer than offsets do
    mirrored, …_se       the violation among pairs that are equally far from i in the sequence
    random_mirrored, …_sd  and that of the random tables

    geometries: (corpus, geometry), positions 0..n−1.
    """
    import pandas as pd

    rows = []
    for corpus, geometry in geometries:
        known = {name: T for name, T in tables.items() if len(T.rows) > geometry.index.max()}
        offset = shares(Index().distances(geometry.index), geometry)
        widths = sorted({T.rows.shape[1] for T in known.values()})
        chance = {d: random_shares(geometry, d, seeds) for d in widths}
        for name, table in known.items():
            own = shares(table.distances(geometry.index), geometry)
            about = {"corpus": corpus, "positions": geometry.n_positions, "table": name}
            rows.append(about | _row(geometry, own, offset, chance[table.rows.shape[1]]))
    return pd.DataFrame(rows)


def shares(δ: FloatArray, geometry: Geometry) -> FloatArray:
    """Violations over all triples and over mirrored ones, (1 + K, 2): then without each fold."""
    squares = [geometry.squared]
    if geometry.replicates is not None:
        squares += list(geometry.replicates)
    D = [np.sqrt(np.maximum(D2, 0)) for D2 in squares]
    return np.array([[monotonicity_violation(δ, d), mirrored_violation(δ, d)] for d in D])


def random_shares(geometry: Geometry, dim: int, seeds: int) -> FloatArray:
    """Both violations of tables of independent normal rows (n, dim), (seeds, 2)."""
    whole = replace(geometry, replicates=None)
    made = [Random(dim=dim, seed=s).distances(geometry.index) for s in range(seeds)]
    return np.concatenate([shares(δ, whole) for δ in made])


def _row(
    geometry: Geometry, own: FloatArray, offset: FloatArray, chance: FloatArray
) -> dict[str, Any]:
    violation, mirrored = own[0]
    se, mirrored_se = _errors(own)
    beyond = offset - own
    spread = chance.std(axis=0, ddof=1)
    return {
        "estimator": geometry.estimator,
        "violation": violation,
        "violation_se": se,
        "random": chance[:, 0].mean(),
        "random_sd": spread[0],
        "difference": violation - chance[:, 0].mean(),
        "difference_se": np.hypot(se, spread[0]),
        "as_few": int((chance[:, 0] <= violation).sum()),
        "seeds": len(chance),
        "offset": offset[0, 0],
        "beyond": beyond[0, 0],
        "beyond_se": _errors(beyond)[0],
        "mirrored": mirrored,
        "mirrored_se": mirrored_se,
        "random_mirrored": chance[:, 1].mean(),
        "random_mirrored_sd": spread[1],
    }


def _errors(every: FloatArray) -> FloatArray:
    """Jackknife errors of (1 + K, m) numbers, the first row those of all folds; NaN for K = 0."""
    if len(every) == 1:
        return np.full(every.shape[1], np.nan)
    return jackknife_se(every[1:])
