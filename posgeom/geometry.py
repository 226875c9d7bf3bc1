"""From counts to the distances between positions."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from posgeom.counts import PositionCounts
from posgeom.debias import debiased_squares, smoothing_rank, thinned_squares
from posgeom.distances import MANY, METRICS, squared_hellinger
from posgeom.errors import PosgeomError
from posgeom.fold_gram import fold_gram
from posgeom.root_profiles import RootProfiles
from posgeom.stationarity import Stationarity, stationarity_test

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

ESTIMATORS = ("debiased", "thinned", "plugin")
FEW_TOKENS = 100  # a distribution of fewer is hardly known
LEAST_FOLDS = 8  # four have 3 balanced splits, too few for a test at 5%; eight have 35
MOST_GRAM = 150_000_000  # entries of the Gram matrix of folds and positions: 600 MB
ROOT_METRICS: dict[
    str, Callable[[FloatArray], FloatArray]
] = {  # distances that are functions of the squared Hellinger chord
    "hellinger": lambda s: s,
    "hellinger-normalised": lambda s: s / 2,
    "fisher-rao": lambda s: np.sign(s) * (4 * np.arcsin(np.sqrt(np.abs(s)) / 2)) ** 2,
}


@dataclass(frozen=True, eq=False)
class Geometry:
    """How far apart the token distributions of the positions are.

    squared       (n, n) squared distances, symmetric, 0 on the diagonal; a debiased estimate may
                  fall below 0 where positions are alike
    totals        (n,) tokens that each position's distribution was estimated from; 0 for truths
    positions     (n,) position numbers, or (n, 2) rows and columns of a grid
    metric        name of the distance, see posgeom.distances.METRICS
    estimator     "debiased" and "thinned": sampling noise taken out, see posgeom.debias;
                  "plugin": distances of the raw frequencies, noise included; "truth": of known
                  distributions
    grid          (rows, columns) where positions are cells
    left_out      flat numbers of the positions that had too few tokens
    notes         what a reader should know of it
    stationarity  the test whether positions differ at all; None where it was not made
    replicates    (K, n, n) squared distances without fold k, for errors by the jackknife,
    halves        (H, n, n) those from half of the folds each, for the bias, and
    lumped        (n, n) those with all rare tokens lumped into one, for how far these may mislead,
                  see posgeom.debias; None where errors are not known
    """

    squared: FloatArray = field(repr=False)
    totals: IntArray = field(repr=False)
    positions: IntArray = field(repr=False)
    metric: str = "hellinger"
    estimator: str = "plugin"
    grid: tuple[int, int] | None = None
    left_out: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    stationarity: Stationarity | None = None
    replicates: FloatArray | None = field(default=None, repr=False)
    halves: FloatArray | None = field(default=None, repr=False)
    lumped: FloatArray | None = field(default=None, repr=False)

    @property
    def distances(self) -> FloatArray:
        """(n, n) distances between positions; where an estimate of a square is below 0, 0."""
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

    def positions_for(self, n_axes: int) -> IntArray:
        """What an encoding of so many axes sees: (n, n_axes) rows and columns, or (n,) numbers."""
        return self.positions if self.positions[0].size == n_axes else self.index

    @property
    def has_structure(self) -> bool:
        """Whether positions differ by more than sampling noise, as far as it was tested."""
        return self.stationarity is None or self.stationarity.significant > 0

    def at(self, rows: IntArray) -> Self:
        """The geometry of some of its positions, by row 0..n−1, in the order given.

        The test of stationarity stays that of all of them.
        """
        i, j = rows[:, None], rows
        return replace(
            self,
            squared=self.squared[i, j],
            totals=self.totals[rows],
            positions=self.positions[rows],
            replicates=None if self.replicates is None else self.replicates[:, i, j],
            halves=None if self.halves is None else self.halves[:, i, j],
            lumped=None if self.lumped is None else self.lumped[i, j],
        )


def position_profiles(counts: PositionCounts) -> csr_array:
    """Token distributions of the positions, mu[i] = C[i] / N_i: (n, V) sparse, rows sum to 1.

    Every position needs a token.  Cirrincione (2026), Definition of the positional marginal.
    """
    P = csr_array(counts.pooled, dtype=np.float64, copy=True)
    P.data *= np.repeat(1 / counts.totals, np.diff(P.indptr))
    return P


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
    estimator: str = "debiased",
    *,
    metric: str = "hellinger",
    min_count: int = 2,
    seed: int = 0,
    force: bool = False,
    progress: bool = False,
) -> Geometry:
    """The geometry of a corpus from its counts.

    estimator   "debiased": sampling noise taken out, with errors, after a test whether positions
                differ at all; where they do not, all distances are 0.  Needs eight folds with
                documents; with fewer it falls back to plug-in and a note says so.
                "thinned": the same by another road, which wants more documents: positions are
                thinned to equal numbers of tokens, halves of the folds multiplied unsmoothed, and
                the dimensions that do not stand above the noise removed.
                "plugin": the distances between the observed frequencies, as the paper takes
                them.  They include sampling noise, most of all on large vocabularies.
    metric      hellinger, hellinger-normalised, fisher-rao; with plugin also jensen-shannon,
                total-variation
    min_count   positions with fewer tokens are left out, and named in the notes
    seed        of the random signs of the test, and of the thinning
    force       distances even where the test finds no structure: a picture of noise, with a note

    Raises PosgeomError for an unknown estimator or metric, where fewer than two positions have
    enough tokens, where distances are forced of a corpus in which no token came twice, and where
    those that the test finds sum to 0 or less: half of the documents contradicts the other half.
    """
    if estimator not in ESTIMATORS:
        known = f"{', '.join(ESTIMATORS[:-1])} or {ESTIMATORS[-1]}"
        raise PosgeomError(f"estimator {estimator!r} is not known; use {known}")
    distance = _metric(metric)
    if seed < 0:
        raise PosgeomError(f"--seed {seed} came; give 0 or more")
    if estimator != "plugin" and metric not in ROOT_METRICS:
        raise PosgeomError(
            f"metric {metric} has no {estimator} estimate; use {', '.join(ROOT_METRICS)}, "
            "or --estimator plugin"
        )
    totals = counts.totals
    enough = totals >= max(1, min_count)
    spread = enough & _spread_over_folds(counts)
    if estimator != "plugin" and spread.sum() >= 2:
        enough = spread
    if enough.sum() < 2:
        raise PosgeomError(
            f"{int(enough.sum())} of {len(totals)} positions have {min_count} tokens, two are "
            "needed; give more documents or a lower --min-count"
        )
    index = np.flatnonzero(enough)
    kept = counts if enough.all() else only(counts, index)
    grid = counts.grid
    geometry = Geometry(
        squared=np.zeros((len(index), len(index))),
        totals=totals[index],
        positions=index if grid is None else np.column_stack(np.divmod(index, grid[1])),
        metric=metric,
        estimator=estimator,
        grid=grid,
        left_out=tuple(np.flatnonzero(~enough).tolist()),
        notes=_notes(totals, enough, min_count),
    )
    if estimator != "plugin" and spread.sum() >= 2:
        folded = _filled_folds(kept)
        notes = geometry.notes + _fold_notes(counts, folded)
        return _without_noise(folded, replace(geometry, notes=notes), seed, force, progress)
    if estimator != "plugin":
        note = (
            f"no two positions have tokens in {LEAST_FOLDS} folds of documents: noise cannot be "
            "told from geometry, and the distances are plug-in ones; give more different documents"
        )
        geometry = replace(geometry, estimator="plugin", notes=(*geometry.notes, note))
    P = position_profiles(kept)
    if metric not in ROOT_METRICS:
        return replace(geometry, squared=distance(P) ** 2)
    return replace(geometry, squared=ROOT_METRICS[metric](_plugin_squares(P)))


def _plugin_squares(P: csr_array) -> FloatArray:
    """‖√P[i] − √P[j]‖² of observed frequencies, (n, n); P is used up."""
    if P.shape[0] < MANY:
        return squared_hellinger(P)
    np.sqrt(P.data, out=P.data)
    # sampling noise is far above what float32 loses
    return RootProfiles.of(P, single=True).all_squared()


def _without_noise(
    counts: PositionCounts, geometry: Geometry, seed: int, force: bool, progress: bool
) -> Geometry:
    """The geometry with its noise taken out, or with distances 0 where there is only noise."""
    gram = fold_gram(counts)
    test = stationarity_test(gram, seed=seed)
    if not test.significant and not force:
        K, n = counts.n_folds, counts.n_positions
        none = np.zeros((1, n, n))
        return replace(
            geometry,
            stationarity=test,
            replicates=none.repeat(K, 0),
            halves=none,
            lumped=none[0],
        )
    if not gram.source.totals.size:
        raise PosgeomError(
            "no token came twice: two halves of the documents have nothing in common to be "
            "compared by; give more documents, or take --estimator plugin to look at the noise"
        )
    if geometry.estimator == "thinned":
        found = thinned_squares(counts, gram, seed, progress=progress)
    else:
        directions = smoothing_rank(gram.source, max(1, test.significant))
        found = debiased_squares(counts, gram, directions, progress=progress)
    total = float(found.squared.sum())
    if test.significant and total <= 0:  # of noise, which was forced, it may be anything
        raise PosgeomError(
            f"squared distances between positions sum to {total:.2g} over two halves of the "
            f"documents (test of stationarity: p = {test.p_value:.2g}), and should be above 0: "
            "what some documents show of positions, others contradict, as where groups of them "
            "differ; take each kind of document by itself, or --estimator plugin to look at all"
        )
    if not test.significant:
        forced = (
            f"the test finds no structure (p = {test.p_value:.2g}): the distances were forced, and "
            "what is fitted to them is fitted to noise"
        )
        geometry = replace(geometry, notes=(*geometry.notes, forced))
    as_metric = ROOT_METRICS[geometry.metric]
    return replace(
        geometry,
        squared=as_metric(found.squared),
        stationarity=test,
        replicates=as_metric(found.replicates),
        halves=as_metric(found.halves),
        lumped=as_metric(found.lumped),
    )


def _spread_over_folds(counts: PositionCounts) -> NDArray[np.bool_]:
    """Which positions have tokens in each of eight folds, without which they have no errors."""
    if counts.n_folds < LEAST_FOLDS:
        return np.zeros(counts.n_positions, dtype=bool)
    totals = counts.fold_totals.reshape(-1, LEAST_FOLDS, counts.n_positions).sum(axis=0)
    return np.asarray(totals.all(axis=0))


def _filled_folds(counts: PositionCounts) -> PositionCounts:
    """The counts in the most folds that all have tokens at every position, and fit in memory."""
    while counts.n_folds > LEAST_FOLDS and not (
        counts.fold_totals.all() and counts.counts.shape[0] ** 2 <= MOST_GRAM
    ):
        counts = counts.folded(counts.n_folds // 2)
    return counts


def _fold_notes(counts: PositionCounts, folded: PositionCounts) -> tuple[str, ...]:
    notes = []
    if folded.n_folds < counts.n_folds:
        notes.append(
            f"{folded.n_folds} folds of documents are used of {counts.n_folds}, which do not all "
            "reach every position, or are too many for so many positions"
        )
    largest = counts.documents.max() / max(1, counts.documents.sum())
    if largest > 0.5:
        notes.append(
            f"one of {counts.n_folds} folds holds {largest:.0%} of the documents, as when one "
            "group is most of the corpus: the errors are too small"
        )
    return tuple(notes)


def _metric(name: str) -> Callable[[Any], FloatArray]:
    if name not in METRICS:
        raise PosgeomError(f"metric {name!r} is not known; use one of {', '.join(METRICS)}")
    return METRICS[name]


def only(counts: PositionCounts, index: IntArray) -> PositionCounts:
    """The counts of some positions, by number, without their grid."""
    K, n = counts.n_folds, counts.n_positions
    rows = (np.arange(K)[:, None] * n + index).ravel()
    return replace(counts, counts=counts.counts[rows], grid=None)


def _notes(totals: IntArray, enough: NDArray[np.bool_], min_count: int) -> tuple[str, ...]:
    notes = []
    few = totals < max(1, min_count)
    if few.any():
        notes.append(
            f"positions {ranges(np.flatnonzero(few))} have fewer than {min_count} tokens "
            "and are left out (--min-count)"
        )
    if (~enough & ~few).any():
        notes.append(
            f"positions {ranges(np.flatnonzero(~enough & ~few))} have no token in one of "
            f"{LEAST_FOLDS} folds of documents and are left out"
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
