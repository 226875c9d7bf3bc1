"""How far an encoding's distances δ are from a corpus's distances D.

All sums run over the pairs i < j of (n, n) matrices.  Three forms that are never mixed up: raw
stress, which depends on the scale of δ; stress, which does not; Kruskal's stress-1, its root.
"""

from collections.abc import Iterator
from concurrent.futures import Executor, wait
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import squareform

from posgeom.errors import PosgeomError
from posgeom.mds import check_square
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

FloatArray = NDArray[np.float64]

_PART = 1 << 17  # pairs: 1 MB


@dataclass(frozen=True, eq=False)
class Target:
    """The distances of a corpus, ready to be compared with those of many encodings.

    D  (n, n) distances, not all 0
    d  (n(n−1)/2,) those of the pairs i < j
    """

    D: FloatArray = field(repr=False)
    d: FloatArray = field(repr=False)

    @classmethod
    def of(cls, D: ArrayLike) -> Self:
        """Raises PosgeomError for a matrix that is none of distances, or all 0."""
        D = check_square(D, "distances")
        d = pairs(D)
        check_nonzero(d)
        return cls(D, d)

    def pairs_of(self, delta: ArrayLike) -> FloatArray:
        """The entries i < j of an encoding's distances; PosgeomError where they do not match."""
        δ = check_square(delta, "encoding distances")
        if δ.shape != self.D.shape:
            raise PosgeomError(
                f"encoding distances are {δ.shape}, the corpus's {self.D.shape}; match them"
            )
        return pairs(δ)

    def raw_stress(self, δ: FloatArray) -> float:
        """Σ (δ − D)² / Σ D² for the pairs (n(n−1)/2,) of an encoding."""
        return self._missed(1.0, δ)

    def stress(self, δ: FloatArray) -> float:
        """min_α Σ (αδ − D)² / Σ D² for the pairs of an encoding."""
        # The sum of squares keeps the small stresses that 1 − cos² would lose to cancellation.
        return self._missed(self.scale(δ), δ)

    def _missed(self, α: float, δ: FloatArray) -> float:
        """Σ (αδ − D)² / Σ D², a part at a time that stays in the cache."""
        total = 0.0
        for start in range(0, len(δ), _PART):
            e = α * δ[start : start + _PART]
            e -= self.d[start : start + _PART]
            total += float(e @ e)
        return total / self.total

    def scale(self, δ: FloatArray) -> float:
        """α* = Σ δD / Σ δ² for the pairs of an encoding; 0 where all of δ is 0."""
        square = δ @ δ
        return float(δ @ self.d / square) if square > 0 else 0.0

    def spearman(self, δ: FloatArray) -> float:
        """Spearman's rank correlation with the pairs of an encoding; 0 where one is constant."""
        R = self._ranks
        f = _at_offsets(δ, len(self.D)) if self.is_large else None
        if f is None:
            r = centred_ranks(δ)
            rr, rR = r @ r, r @ R
        else:  # n − 1 values to be put in order, in place of n²/2
            times = np.arange(len(f), 0, -1)
            r = repeated_ranks(f, times)
            rr, rR = times * r @ r, r @ self._rank_sums
        norm = np.sqrt(rr * (R @ R))
        return float(rR / norm) if norm > 0 else 0.0

    def violation(self, delta: FloatArray) -> float:
        """Share of the triples that an encoding's distances (n, n) have in the wrong order."""
        if not self.is_large:
            broken, ordered = violations(_others(levels(delta)), _others(levels(self.D)))
            return broken / ordered if ordered else 0.0
        from posgeom.inversions import offset_inversions, row_inversions

        if not np.array_equal(delta[1:, 1:], delta[:-1, :-1]):
            return self._broken(row_inversions(delta, per_unit(delta), *self._orders))
        # All that rise with the offset, such as the heads of ALiBi, have one order.
        ranks = np.unique(levels(delta[0, 1:]), return_inverse=True)[1].astype(np.int32)
        key = ranks.tobytes()
        if key not in self._of_order:
            self._of_order[key] = self._broken(offset_inversions(ranks, *self._orders))
        return self._of_order[key]

    def _broken(self, inversions: NDArray[np.int64]) -> float:
        """Their share of the triples that have an order."""
        return float(inversions.sum() / self._ordered) if self._ordered else 0.0

    def prepare(self, pool: Executor) -> None:
        """Put pairs and rows in order now, side by side: threads would wait for each other."""
        wait([pool.submit(getattr, self, key) for key in ("_rank_sums", "_ordered")])

    @property
    def is_large(self) -> bool:
        """Whether compiled loops and threads are worth their start."""
        return self.D.size >= LARGE

    @cached_property
    def total(self) -> float:
        """Σ D²."""
        return float(self.d @ self.d)

    @cached_property
    def _ranks(self) -> FloatArray:
        return centred_ranks(self.d)

    @cached_property
    def _of_order(self) -> dict[bytes, float]:
        """Violations of encodings of offsets, by the order in which they put these."""
        return {}

    @cached_property
    def _rank_sums(self) -> FloatArray:
        """(n − 1,) sums over the pairs at each offset."""
        sums = np.zeros(len(self.D) - 1)
        for row in _rows_of(self._ranks, len(self.D)):
            sums[: len(row)] += row
        return sums

    @cached_property
    def _orders(self) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        return row_orders(self.D, np.arange(len(self.D)))

    @cached_property
    def _ordered(self) -> int:
        return int(ordered_triples(self._orders[1]).sum())


def raw_stress(delta: ArrayLike, D: ArrayLike) -> float:
    """Σ (δ − D)² / Σ D², 0 or more; above 1 for a δ of a far larger scale.

    delta, D: (n, n).  Raises PosgeomError where all of D is 0.  Cirrincione (2026), Eq. 4.
    """
    target = Target.of(D)
    return target.raw_stress(target.pairs_of(delta))


def stress(delta: ArrayLike, D: ArrayLike) -> float:
    """min_α Σ (αδ − D)² / Σ D² = 1 − (Σ δD)² / (Σ δ² Σ D²), in 0..1, whatever δ's scale.

    An encoding without distances (all δ = 0) has stress 1.
    delta, D: (n, n).  Raises PosgeomError where all of D is 0.  Borg & Groenen (2005), ch. 11.
    """
    target = Target.of(D)
    return target.stress(target.pairs_of(delta))


def optimal_scale(delta: ArrayLike, D: ArrayLike) -> float:
    """α* = Σ δD / Σ δ², the scale at which δ fits D best; 0 where all of δ is 0."""
    target = Target.of(D)
    return target.scale(target.pairs_of(delta))


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
    if X.ndim == 1 and X.dtype.kind == "i":
        offsets = pairs(np.abs(X[:, None] - X[None, :]))
        if offsets.max(initial=0) < 4 * len(offsets):  # few numbers: no need to sort
            present = np.bincount(offsets) > 0
            return (np.cumsum(present) - 1)[offsets]
        return np.unique(offsets, return_inverse=True)[1]
    i, j = np.triu_indices(n, 1)
    offsets = (X[i] - X[j]).reshape(len(i), -1)
    first = np.take_along_axis(offsets, (offsets != 0).argmax(axis=1)[:, None], axis=1)
    offsets = offsets * np.sign(first)
    return np.unique(offsets, axis=0, return_inverse=True)[1].reshape(-1)


def spearman(delta: ArrayLike, D: ArrayLike) -> float:
    """Spearman's rank correlation of δ and D over pairs, in −1..1; 0 where either is constant.

    Differences below about 1e-9 of the largest distance are ties.
    """
    target = Target.of(D)
    return target.spearman(target.pairs_of(delta))


def monotonicity_violation(
    delta: ArrayLike, D: ArrayLike, anchors: NDArray[np.intp] | None = None
) -> float:
    """Share of triples (i; j, k) with D_ij < D_ik for which δ_ij > δ_ik, in 0..1.

    0 where each position sees the others in the corpus's order, ½ where that order is random.
    Distances that round to the same billionth of the largest are ties.  0 where D has no order.
    Over all triples, or those with i among the anchors, in n log n steps a row.  delta, D: (n, n).
    Cirrincione (2026), Conjecture 5.
    """
    δ, D = check_square(delta, "encoding distances"), check_square(D, "distances")
    if anchors is None:
        return Target(D, pairs(D)).violation(δ)
    broken, ordered = violations(_others(levels(δ), anchors), _others(levels(D), anchors))
    return broken / ordered if ordered else 0.0


def separation(delta: ArrayLike) -> float:
    """Least distance between two positions, min_{i<j} δ_ij.  Cirrincione (2026), Theorem 4."""
    return float(pairs(check_square(delta, "encoding distances")).min(initial=np.inf))


def pairs(M: NDArray[Any]) -> NDArray[Any]:
    """The entries i < j of an (n, n) matrix, row by row: (n(n−1)/2,)."""
    return squareform(M, force="tovector", checks=False)


def _rows_of(δ: FloatArray, n: int) -> Iterator[FloatArray]:
    """The pairs (n(n−1)/2,) of each position with those behind it."""
    begin = 0
    for m in range(n - 1, 0, -1):
        yield δ[begin : begin + m]
        begin += m


def _at_offsets(δ: FloatArray, n: int) -> FloatArray | None:
    """(n − 1,) f with δ_ij = f(j − i) for the pairs i < j; None where there is none."""
    f = δ[: n - 1]
    return f if all(np.array_equal(row, f[: len(row)]) for row in _rows_of(δ, n)) else None


def _others(M: NDArray[np.int64], rows: NDArray[np.intp] | None = None) -> NDArray[np.int64]:
    """Some rows of an (n, n) matrix, or all, without its diagonal: (rows, n − 1)."""
    rows = np.arange(len(M)) if rows is None else rows
    others = np.arange(len(M)) != rows[:, None]
    return M[rows][others].reshape(len(rows), -1)


def check_nonzero(d: FloatArray) -> None:
    """Raise PosgeomError where all distances of a corpus are 0."""
    if not d.any():
        raise PosgeomError(
            "all distances of the corpus are 0: its positions have one and the same distribution "
            "and there is no geometry to fit; give documents that differ along their length"
        )
