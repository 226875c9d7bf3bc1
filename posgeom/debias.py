"""Squared Hellinger distances between positions with the sampling noise taken out.

‖√(X_i/N_i) − √(X_j/N_j)‖² is biased twice.  Noise adds up: two samples of one distribution lie
apart.  And the root is not linear: E√(X/N) falls below √p, the more the rarer the token, and the
more the fewer the tokens, so that a falling N looks like a geometry.  Against the first, two
halves of the folds are multiplied with each other, whose noise is independent (Walther et al.
2016, "crossnobis").  Against the second, each half is first smoothed over positions: it is
projected onto the few directions in which its positions differ, so that a token's frequency is
known from the tokens of all positions, and only then is the root taken.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard
from scipy.spatial.distance import pdist, squareform
from tqdm import tqdm

from posgeom.combined_roots import Nodes, RootProfile, choose_nodes, root_profiles
from posgeom.counts import PositionCounts
from posgeom.fold_gram import FoldGram
from posgeom.folded_columns import FoldedColumns
from posgeom.mds import classical_mds
from posgeom.rank import above_noise
from posgeom.side_by_side import SMALL, Each, side_by_side
from posgeom.smoothing import FoldedTokens, Sets, Smoothed
from posgeom.thinning import thinned

FloatArray = NDArray[np.float64]
Block = NDArray[np.float32]
Factors = tuple[FloatArray, FloatArray]  # L, R of L Rᵀ

_CACHED = 400_000  # entries of a block of root profiles: 1.6 MB
OFTEN = 12  # times that a token is seen: its root is then right to 1%
RARE = 3  # times below which a token is lumped with others: its root is then wrong by 4% or more
COMMON = 0.25  # share of the corpus that is not lumped, however rare its tokens
JACKKNIFE_SPLITS = 3  # of the K − 1: the folds' influence on one split is much like on another
HALVINGS = 3  # of the K − 1 ways to halve the folds, from which the bias is taken
HALVINGS_OF_MANY = 1  # of more than SMALL positions, where halves would be half of the work


def smoothing_rank(columns: FoldedColumns, significant: int) -> int:
    """How many directions the smoothing keeps: those found, or all where the root needs no help.

    The root of a token seen λ times is right to 1/(8λ) of itself.  Where nearly all tokens are
    seen often in half of the corpus, as letters and pixels are, smoothing could only take away
    what is too small to be found.
    """
    n = columns.N.shape[1]
    often = seen_often(columns.totals, n, OFTEN)
    if columns.totals[often].sum() >= 0.99 * columns.N.sum():
        return n - 1
    return significant


def seen_often(totals: FloatArray, n: int, times: int) -> NDArray[np.bool_]:
    """(V,) which tokens half of the corpus holds so many times at each of n positions, or more."""
    return totals / n / 2 >= times


def n_common(columns: FoldedColumns) -> int:
    """How many tokens are not rare; in any case the most frequent ones, COMMON of the corpus.

    Of a flat vocabulary all tokens may be rare, and nothing would be left to compare with.
    """
    above = np.cumsum(columns.totals[::-1])[::-1] - columns.totals  # of more frequent tokens
    common = seen_often(columns.totals, columns.N.shape[1], RARE)
    return int((common | (above < COMMON * columns.N.sum())).sum())


def balanced_splits(n_folds: int) -> NDArray[np.bool_]:
    """(K − 1, K): which folds the first half of each split holds; K a power of two, 2 or more.

    The rows of a Hadamard matrix: every two folds are together in just under half of the splits
    (balanced repeated replication, McCarthy 1969).
    """
    return np.asarray(hadamard(n_folds)[1:] > 0)


def halved_splits(n_folds: int, halvings: int) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """The K/2 − 1 balanced splits of either half of the folds, for the first halvings.

    Each split is a pair of masks (K,), which hold a quarter of the folds; those of one half follow
    each other.  K a power of two, 4 or more.
    """
    splits = []
    for first in balanced_splits(n_folds)[:halvings]:
        for half in (first, ~first):
            for inner in balanced_splits(n_folds // 2):
                part = np.zeros(n_folds, dtype=bool)
                part[half] = inner
                splits.append((part, half & ~part))
    return splits


@dataclass(frozen=True, eq=False)
class DebiasedSquares:
    """Squared distances without noise bias, and what the jackknife needs of them.

    squared     (n, n) mean over all splits; entries may be below 0 where positions are alike
    replicates  (K, n, n) without fold k, mean over the first splits only
    halves      (H, n, n) the same estimate from half of the folds each
    lumped      (n, n) the same estimate with all rare tokens lumped into one
    """

    squared: FloatArray = field(repr=False)
    replicates: FloatArray = field(repr=False)
    halves: FloatArray = field(repr=False)
    lumped: FloatArray = field(repr=False)


def debiased_squares(
    counts: PositionCounts, gram: FoldGram, rank: int, *, progress: bool = False
) -> DebiasedSquares:
    """Squared Hellinger distances between positions, smoothed within halves, crossed between.

    gram: of fold_gram.  rank: number of directions in which positions differ, as
    stationarity_test finds it, 1 or more.  Every position needs a token.
    The bias is taken from HALVINGS halvings; of more than SMALL positions from HALVINGS_OF_MANY:
    in simulations of 32 and 128 positions that makes it a third noisier, at a half of a standard
    error, and leaves the mean error of stress as it is.
    """
    K, n = counts.n_folds, counts.n_positions
    of_these = gram.source.counts is counts  # those of thinned counts are others
    splits = [np.stack([first, ~first]) for first in balanced_splits(K)]
    jobs = [_with_deletions(first) for first, _ in splits[:JACKKNIFE_SPLITS]]
    jobs += splits[JACKKNIFE_SPLITS:]
    halvings = HALVINGS if n <= SMALL else HALVINGS_OF_MANY
    jobs += [np.stack(parts) for parts in halved_splits(K, halvings)]
    bar = tqdm(total=len(jobs), desc="debias", unit=" splits", leave=False, disable=not progress)
    of_all: list[list[Factors]] = []
    of_few: list[list[Factors]] = []
    nodes: list[Nodes] = []
    with side_by_side(n) as each, bar:
        columns = gram.source if of_these else FoldedColumns.of(counts, each)
        tokens = FoldedTokens.of(columns)
        few_tokens = FoldedTokens.of(columns.lumped(n_common(columns), each))
        for some in _batches(jobs, tokens.most_sets(rank)):
            smoothed = tokens.smooth(np.concatenate(some), gram, rank, each)
            # lumped tokens are smoothed along the directions of all, in both halves of whole splits
            begins = np.cumsum([0] + [len(job) for job in some])
            halves = [job[:2] for job in some[: len(splits) - len(of_few)]]
            first = [s for begin in begins[: len(halves)] for s in (begin, begin + 1)]
            work = [(some, smoothed, of_all)]
            work += [(halves, smoothed.of(few_tokens, first, each), of_few)] if halves else []
            nodes = nodes or list(each(choose_nodes, [smoothed for _, smoothed, _ in work]))
            for (wanted, smoothed, found), at in zip(work, nodes, strict=False):
                found += _crossed(wanted, smoothed, root_profiles(smoothed, at, each), each)
            bar.update(len(some))
        whole, lumped = ([factors[0] for factors in x[: K - 1]] for x in (of_all, of_few))
        without = [[factors[k] for factors in of_all[:JACKKNIFE_SPLITS]] for k in range(1, K + 1)]
        inner = [factors[0] for factors in of_all[K - 1 :]]
        half = [inner[h : h + K // 2 - 1] for h in range(0, len(inner), K // 2 - 1)]
        groups = ([whole, lumped], without, half)
        squares = [np.empty((len(group), n, n)) for group in groups]
        for group, D2 in zip(groups, squares, strict=True):
            for _ in each(_mean_squared, group, D2):
                pass
    return DebiasedSquares(squares[0][0], squares[1], squares[2], squares[0][1])


def thinned_squares(
    counts: PositionCounts, gram: FoldGram, seed: int = 0, *, progress: bool = False
) -> DebiasedSquares:
    """Squared Hellinger distances by thinned counts, crossed between halves, unsmoothed.

    The other way to unequal N, which debiased_squares is held against.  Of the mean over splits
    only the dimensions that stand above the noise are kept, of each replicate as many.
    """
    every = counts.n_positions - 1  # all directions: smoothing leaves the frequencies as they are
    found = debiased_squares(thinned(counts, seed), gram, every, progress=progress)
    r = max(1, above_noise(classical_mds(found.squared, squared=True).eigenvalues))
    return DebiasedSquares(
        squared=_of_rank(found.squared, r),
        replicates=np.stack([_of_rank(D2, r) for D2 in found.replicates]),
        halves=np.stack([_of_rank(D2, r) for D2 in found.halves]),
        lumped=_of_rank(found.lumped, r),
    )


def _of_rank(D2: FloatArray, r: int) -> FloatArray:
    """The squared distances that the r largest eigenvalues hold."""
    coordinates = classical_mds(D2, r, squared=True).coordinates
    return squareform(pdist(coordinates, "sqeuclidean"))


def _with_deletions(first: NDArray[np.bool_]) -> Sets:
    """(2 + K, K) which folds are in the parts of a split, and in either without each fold."""
    mine = np.where(first[:, None], first, ~first)
    return np.concatenate([[first, ~first], mine & ~np.eye(len(first), dtype=bool)])


def _batches(jobs: list[Sets], most: int) -> Iterator[list[Sets]]:
    """The jobs in order, in batches of so many sets of folds at most, or of one job."""
    batch: list[Sets] = []
    for job in jobs:
        if batch and sum(map(len, batch)) + len(job) > most:
            yield batch
            batch = []
        batch.append(job)
    yield batch


def _crossed(
    jobs: list[Sets], smoothed: Smoothed, profiles: list[RootProfile], each: Each
) -> list[list[Factors]]:
    """Factors of each job's inner products, 1 + deletions; profiles: of the sets of all jobs."""
    m = smoothed.tokens.pooled
    ends = np.cumsum([len(job) for job in jobs])
    of_job = [slice(end - len(job), end) for job, end in zip(jobs, ends, strict=True)]
    crossings = [_Crossing(job, profiles[of]) for job, of in zip(jobs, of_job, strict=True)]
    for some, Z in smoothed.stretches(each):

        def add(crossing: _Crossing, of: slice, Z: Block = Z, m: Block = m[some]) -> None:
            crossing.add(Z[of], m)

        for _ in each(add, crossings, of_job):
            pass
    return list(each(lambda crossing: crossing.factors(float(m @ m)), crossings))


class _Crossing:
    """One part of the folds against another, and, if asked, either without one of its folds."""

    def __init__(self, sets: Sets, profiles: list[RootProfile]) -> None:
        self._profiles = profiles
        # the other part: the first one where fold k is of the second
        self._against = [1] + [1 if sets[0][k] else 0 for k in range(len(sets) - 2)]
        q = profiles[0].n_nodes
        self._EE = np.zeros((len(self._against), q, q))

    def add(self, Z: Block, m: Block) -> None:
        """Take a stretch of tokens in; Z: (sets, tokens, rank + 1)."""
        a, b, *deleted = self._profiles
        width = max(1, _CACHED // a.n_nodes)
        for start in range(0, len(m), width):
            part = slice(start, start + width)
            whole = a.block(Z[0, part], m[part]), b.block(Z[1, part], m[part])
            self._EE[0] += whole[0] @ whole[1].T
            for k, without in enumerate(deleted, start=1):
                E = without.block(Z[1 + k, part], m[part])
                self._EE[k] += E @ whole[self._against[k]].T

    def factors(self, mm: float) -> list[Factors]:
        """Of the inner products of the rows of one part with those of the other."""
        first = [self._profiles[0], *self._profiles[2:]]
        return [
            x.factors(self._profiles[y], EE, mm)
            for x, y, EE in zip(first, self._against, self._EE, strict=True)
        ]


def _mean_squared(factors: list[Factors], D2: FloatArray) -> None:
    """Mean over splits of the squared distances G_ii + G_jj − 2 G_ij, G symmetrised, into D2."""
    left, right = (np.hstack(some) for some in zip(*factors, strict=True))
    G = left @ right.T
    G /= len(factors)
    np.add(G, G.T, out=D2)
    g = np.diag(D2) / 2
    np.subtract(g[:, None] + g, D2, out=D2)
    np.fill_diagonal(D2, 0)
