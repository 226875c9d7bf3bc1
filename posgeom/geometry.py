"""From counts to the distances between positions."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from posgeom.counts import PositionCounts
from posgeom.distances import METRICS
from posgeom.errors import PosgeomError
from posgeom.stress import shift_invariant_floor

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

ESTIMATORS = ("plugin",)
FEW_TOKENS = 100  # a distribution of fewer is hardly known


@dataclass(frozen=True, eq=False)
class Geometry:
    """How far apart the token distributions of the positions are.

    squared     (n, n) squared distances, symmetric, 0 on the diagonal
    totals      (n,) tokens that each position's distribution was estimated from; 0 for truths
    positions   (n,) position numbers, or (n, 2) rows and columns of a grid
    metric      name of the distance, see posgeom.distances.METRICS
    estimator   "plugin": distances of the raw frequencies, sampling noise included; "truth":
                of distributions that were known
    grid        (rows, columns) where positions are cells
    left_out    flat numbers of the positions that had too few tokens
    notes       what a reader should know of it
    """

    squared: FloatArray = field(repr=False)
    totals: IntArray = field(repr=False)
    positions: IntArray = field(repr=False)
    metric: str = "hellinger"
    estimator: str = "plugin"
    grid: tuple[int, int] | None = None
    left_out: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def distances(self) -> FloatArray:
        """(n, n) distances between positions."""
        return np.sqrt(np.maximum(self.squared, 0))

    @property
    def n_positions(self) -> int:
        """n."""
        return len(self.squared)

    @property
    def index(self) -> IntArray:
        """(n,) flat position numbers: row·columns + column on a grid."""
        if self.grid is None:
            return self.positions
        return self.positions @ np.array([self.grid[1], 1])

    @property
    def floor(self) -> float:
        """Least stress that any shift-invariant encoding can have, in 0..1."""
        return shift_invariant_floor(self.distances, self.positions)


def position_profiles(counts: PositionCounts) -> csr_array:
    """Token distributions of the positions, mu[i] = C[i] / N_i: (n, V) sparse, rows sum to 1.

    Every position needs a token.  Cirrincione (2026), Definition of the positional marginal.
    """
    pooled = counts.pooled
    return csr_array(diags_array(1 / counts.totals) @ pooled)


def true_geometry(profiles: csr_array | FloatArray, *, metric: str = "hellinger") -> Geometry:
    """The geometry of known distributions (n, V), rows sum to 1: nothing is estimated.

    Raises PosgeomError for rows that are no distributions and for an unknown metric.
    """
    n = profiles.shape[0]
    return Geometry(
        squared=_metric(metric)(profiles) ** 2,
        totals=np.zeros(n, dtype=np.int64),
        positions=np.arange(n),
        metric=metric,
        estimator="truth",
    )


def estimate_geometry(
    counts: PositionCounts,
    estimator: str = "plugin",
    *,
    metric: str = "hellinger",
    min_count: int = 2,
) -> Geometry:
    """The geometry of a corpus from its counts.

    estimator   "plugin": the distances between the observed frequencies, as the paper takes
                them.  They include sampling noise, most of all on large vocabularies.
    metric      hellinger, hellinger-normalised, fisher-rao, jensen-shannon, total-variation
    min_count   positions with fewer tokens are left out, and named in the notes

    Raises PosgeomError for an unknown estimator or metric, and where fewer than two positions
    have enough tokens.
    """
    if estimator not in ESTIMATORS:
        raise PosgeomError(f"estimator {estimator!r} is not known; use {' or '.join(ESTIMATORS)}")
    distance = _metric(metric)
    totals = counts.totals
    enough = totals >= max(1, min_count)
    if enough.sum() < 2:
        raise PosgeomError(
            f"{int(enough.sum())} of {len(totals)} positions have {min_count} tokens, two are "
            "needed; give more documents or a lower --min-count"
        )
    index = np.flatnonzero(enough)
    kept = counts if enough.all() else _only(counts, index)
    distances = distance(position_profiles(kept))
    grid = counts.grid
    return Geometry(
        squared=distances**2,
        totals=totals[index],
        positions=index if grid is None else np.column_stack(np.divmod(index, grid[1])),
        metric=metric,
        estimator=estimator,
        grid=grid,
        left_out=tuple(np.flatnonzero(~enough).tolist()),
        notes=_notes(totals, enough, min_count),
    )


def _metric(name: str) -> Callable[[Any], FloatArray]:
    if name not in METRICS:
        raise PosgeomError(f"metric {name!r} is not known; use one of {', '.join(METRICS)}")
    return METRICS[name]


def _only(counts: PositionCounts, index: IntArray) -> PositionCounts:
    K, n = counts.n_folds, counts.n_positions
    rows = (np.arange(K)[:, None] * n + index).ravel()
    return PositionCounts(counts.counts[rows], K, counts.documents)


def _notes(totals: IntArray, enough: NDArray[np.bool_], min_count: int) -> tuple[str, ...]:
    notes = []
    if not enough.all():
        notes.append(
            f"positions {ranges(np.flatnonzero(~enough))} have fewer than {min_count} tokens "
            "and are left out (--min-count)"
        )
    thin = np.flatnonzero(enough & (totals < FEW_TOKENS))
    if thin.size:
        notes.append(
            f"positions {ranges(thin)} have fewer than {FEW_TOKENS} tokens: "
            "their distances are mostly chance"
        )
    return tuple(notes)


def ranges(numbers: IntArray) -> str:
    """`0, 3 to 5, 9` for 0, 3, 4, 5, 9: ascending numbers for a reader."""
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return ", ".join(f"{r[0]}" if len(r) == 1 else f"{r[0]} to {r[-1]}" for r in runs if len(r))
