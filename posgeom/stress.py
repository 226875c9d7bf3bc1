"""How far an encoding's distances δ are from a corpus's distances D.

All sums run over the pairs i < j of (n, n) matrices.  Three forms that are never mixed up: raw
stress, which depends on the scale of δ; stress, which does not; Kruskal's stress-1, its root.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from posgeom.errors import PosgeomError
from posgeom.mds import check_square

FloatArray = NDArray[np.float64]


def raw_stress(delta: ArrayLike, D: ArrayLike) -> float:
    """Σ (δ − D)² / Σ D², 0 or more; above 1 for a δ of a far larger scale.

    delta, D: (n, n).  Raises PosgeomError where all of D is 0.  Cirrincione (2026), Eq. 4.
    """
    δ, d = _pairs_of(delta, D)
    return float(((δ - d) ** 2).sum() / (d @ d))


def stress(delta: ArrayLike, D: ArrayLike) -> float:
    """min_α Σ (αδ − D)² / Σ D² = 1 − (Σ δD)² / (Σ δ² Σ D²), in 0..1, whatever δ's scale.

    An encoding without distances (all δ = 0) has stress 1.
    delta, D: (n, n).  Raises PosgeomError where all of D is 0.  Borg & Groenen (2005), ch. 11.
    """
    δ, d = _pairs_of(delta, D)
    α = optimal_scale(delta, D)
    # The sum of squares keeps the small stresses that 1 − cos² would lose to cancellation.
    return float(((α * δ - d) ** 2).sum() / (d @ d))


def optimal_scale(delta: ArrayLike, D: ArrayLike) -> float:
    """α* = Σ δD / Σ δ², the scale at which δ fits D best; 0 where all of δ is 0."""
    δ, d = _pairs_of(delta, D)
    square = δ @ δ
    return float(δ @ d / square) if square > 0 else 0.0


def kruskal_stress_1(delta: ArrayLike, D: ArrayLike) -> float:
    """√stress, in 0..1.  Kruskal (1964), with D in the place of the disparities."""
    return float(np.sqrt(stress(delta, D)))


def shift_invariant_floor(D: ArrayLike, positions: ArrayLike | None = None) -> float:
    """Least stress that any encoding with δ_ij = f(|i − j|) can have, in 0..1.

    Σ (D_ij − D̄(|i − j|))² / Σ D² with D̄(k) the mean of D at offset k; the same for the raw and
    the scale-free form.  For grids, offsets are the vectors (Δrow, Δcolumn) up to sign, on which
    the offsets of flat cell numbers depend too.
    D: (n, n).  positions: (n,) or (n, k), by default 0..n−1.  Near 0 the corpus is content with
    relative positions; near 1 only absolute ones can follow it.
    """
    D = check_square(D, "distances")
    d = pairs(D)
    check_nonzero(d)
    groups = offset_groups(len(D), positions)
    means = np.bincount(groups, d) / np.maximum(np.bincount(groups), 1)
    return float(((d - means[groups]) ** 2).sum() / (d @ d))


def offset_groups(n: int, positions: ArrayLike | None = None) -> NDArray[np.intp]:
    """For each pair i < j the number of its offset, up to sign; offsets numbered from 0.

    positions: (n,) or (n, k), by default 0..n−1.  Returns (n(n−1)/2,).
    """
    X = np.arange(n) if positions is None else np.asarray(positions)
    i, j = np.triu_indices(n, 1)
    offsets = (X[i] - X[j]).reshape(len(i), -1)
    first = np.take_along_axis(offsets, (offsets != 0).argmax(axis=1)[:, None], axis=1)
    offsets = offsets * np.sign(first)
    return np.unique(offsets, axis=0, return_inverse=True)[1].reshape(-1)


def spearman(delta: ArrayLike, D: ArrayLike) -> float:
    """Spearman's rank correlation of δ and D over pairs, in −1..1; 0 where either is constant.

    Differences below about 1e-9 of the largest distance are ties.
    """
    δ, d = (rankdata(np.round(x / x.max(initial=1e-300), 9)) for x in _pairs_of(delta, D))
    δ, d = δ - δ.mean(), d - d.mean()
    norm = np.sqrt((δ @ δ) * (d @ d))
    return float(δ @ d / norm) if norm > 0 else 0.0


def monotonicity_violation(
    delta: ArrayLike, D: ArrayLike, anchors: NDArray[np.intp] | None = None
) -> float:
    """Share of triples (i; j, k) with D_ij < D_ik for which δ_ij > δ_ik, in 0..1.

    0 where each position sees the others in the corpus's order, ½ where that order is random.
    Distances that round to the same billionth of the largest are ties.  0 where D has no order.
    Over all triples, or those with i among the anchors, in n log n steps a row: the violations
    of row i are the inversions of δ_i once it is sorted by D_i.  delta, D: (n, n).
    Cirrincione (2026), Conjecture 5.
    """
    δ, D = check_square(delta, "encoding distances"), check_square(D, "distances")
    others = ~np.eye(len(D), dtype=bool)
    e, d = (_levels(M[others].reshape(len(M), -1)) for M in (δ, D))
    if anchors is not None:
        e, d = e[anchors], d[anchors]
    e = np.take_along_axis(e, np.lexsort((e, d), axis=1), axis=1)
    m = d.shape[1]
    ordered = len(d) * m * (m - 1) // 2 - _ties(d)
    return _inversions(e) / ordered if ordered else 0.0


def _levels(M: FloatArray) -> NDArray[np.int64]:
    """Each row as the ranks of its values, equal ones alike, from 0."""
    scaled = np.round(M / max(M.max(initial=0), 1e-300), 9)
    return rankdata(scaled, method="dense", axis=1).astype(np.int64) - 1


def _ties(levels: NDArray[np.int64]) -> int:
    """Number of pairs in a row with the same level, over all rows."""
    rows = np.arange(len(levels))[:, None] * levels.shape[1]
    sizes = np.bincount((rows + levels).ravel())
    return int((sizes * (sizes - 1) // 2).sum())


def _inversions(levels: NDArray[np.int64]) -> int:
    """Number of pairs p < q in a row with a higher level at p than at q, over all rows.

    Bit by bit from the highest: two levels are in the wrong order where, in the first bit that
    tells them apart, the earlier has 1 and the later 0.
    """
    total = 0
    for bit in reversed(range(int(levels.max(initial=0)).bit_length())):
        prefix = levels >> (bit + 1)
        order = np.argsort(prefix, axis=1, kind="stable")
        ones = np.take_along_axis(levels >> bit & 1, order, axis=1)
        prefix = np.take_along_axis(prefix, order, axis=1)
        before = np.cumsum(ones, axis=1) - ones
        first = np.diff(prefix, axis=1, prepend=-1) != 0
        start = np.maximum.accumulate(np.where(first, before, 0), axis=1)
        total += int(((before - start) * (1 - ones)).sum())
    return total


def separation(delta: ArrayLike) -> float:
    """Least distance between two positions, min_{i<j} δ_ij.  Cirrincione (2026), Theorem 4."""
    return float(pairs(check_square(delta, "encoding distances")).min(initial=np.inf))


def pairs(M: FloatArray) -> FloatArray:
    """The entries i < j of an (n, n) matrix, row by row: (n(n−1)/2,)."""
    return M[np.triu_indices(len(M), 1)]


def _pairs_of(delta: ArrayLike, D: ArrayLike) -> tuple[FloatArray, FloatArray]:
    δ, d = check_square(delta, "encoding distances"), check_square(D, "distances")
    if δ.shape != d.shape:
        raise PosgeomError(f"encoding distances are {δ.shape}, the corpus's {d.shape}; match them")
    check_nonzero(pairs(d))
    return pairs(δ), pairs(d)


def check_nonzero(d: FloatArray) -> None:
    """Raise PosgeomError where all distances of a corpus are 0."""
    if not d.any():
        raise PosgeomError(
            "all distances of the corpus are 0: its positions have one and the same distribution "
            "and there is no geometry to fit; give documents that differ along their length"
        )
