"""Squared Hellinger distances between positions with the sampling noise taken out.

‖√(X_i/N_i) − √(X_j/N_j)‖² is biased twice.  Noise adds up: two samples of one distribution lie
apart.  And the root is not linear: E√(X/N) falls below √p, the more the rarer the token, and the
more the fewer the tokens, so that a falling N looks like a geometry.  Against the first, two
halves of the folds are multiplied with each other, whose noise is independent (Walther et al.
2016, "crossnobis").  Against the second, each half is first smoothed over positions: it is
projected onto the few directions in which its positions differ, so that a token's frequency is
known from the tokens of all positions, and only then is the root taken.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard
from scipy.spatial.distance import pdist, squareform

from posgeom.counts import PositionCounts
from posgeom.mds import classical_mds, largest_eigenpairs
from posgeom.rank import above_noise
from posgeom.stationarity import column_blocks, few_threads
from posgeom.thinning import thinned

FloatArray = NDArray[np.float64]
Block = NDArray[np.float32]

OFTEN = 12  # times that a token is seen: its root is then right to 1%
JACKKNIFE_SPLITS = 3  # of the K − 1: the folds' influence on one split is much like on another
HALVINGS = 3  # of the K − 1 ways to halve the folds, from which the bias is taken


def smoothing_rank(counts: PositionCounts, significant: int) -> int:
    """How many directions the smoothing keeps: those found, or all where the root needs no help.

    The root of a token seen λ times is right to 1/(8λ) of itself.  Where nearly all tokens are
    seen often in half of the corpus, as letters and pixels are, smoothing could only take away
    what is too small to be found.
    """
    pooled = np.asarray(counts.counts.sum(axis=0), dtype=np.float64)
    often = pooled / counts.n_positions / 2 >= OFTEN
    if pooled[often].sum() >= 0.99 * pooled.sum():
        return counts.n_positions - 1
    return significant


def balanced_splits(n_folds: int) -> NDArray[np.bool_]:
    """(K − 1, K): which folds the first half of each split holds; K a power of two, 2 or more.

    The rows of a Hadamard matrix: every two folds are together in just under half of the splits
    (balanced repeated replication, McCarthy 1969).
    """
    return np.asarray(hadamard(n_folds)[1:] > 0)


def halved_splits(n_folds: int) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """The K/2 − 1 balanced splits of either half of the folds, for the first halvings.

    Each split is a pair of masks (K,), which hold a quarter of the folds; those of one half follow
    each other.  K a power of two, 4 or more.
    """
    splits = []
    for first in balanced_splits(n_folds)[:HALVINGS]:
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
    """

    squared: FloatArray = field(repr=False)
    replicates: FloatArray = field(repr=False)
    halves: FloatArray = field(repr=False)


def debiased_squares(counts: PositionCounts, gram: Block, rank: int) -> DebiasedSquares:
    """Squared Hellinger distances between positions, smoothed within halves, crossed between.

    gram: (K, n, K, n) of fold_gram.  rank: number of directions in which positions differ, as
    stationarity_test finds it, 1 or more.  Every position needs a token.
    """
    with few_threads(counts.n_positions):
        return _debiased_squares(counts, gram, rank)


def _debiased_squares(counts: PositionCounts, gram: Block, rank: int) -> DebiasedSquares:
    K, n = counts.n_folds, counts.n_positions
    N = counts.fold_totals.astype(np.float64)
    splits = [
        _Split(gram, N, (first, ~first), rank, deletions=s < JACKKNIFE_SPLITS)
        for s, first in enumerate(balanced_splits(K))
    ]
    quarters = [_Split(gram, N, parts, rank) for parts in halved_splits(K)]
    mm, tokens = 0.0, float(counts.totals.sum())
    for block, totals in column_blocks(counts):
        C = block.reshape(K, n, -1)
        m = np.sqrt(totals / tokens).astype(np.float32)
        mm += float(m @ m)
        for split in splits + quarters:
            split.add(C, m)
    each = [split.squared(mm) for split in splits]
    half = np.stack([split.squared(mm)[0] for split in quarters])
    return DebiasedSquares(
        squared=np.mean([D2[0] for D2 in each], axis=0),
        replicates=np.mean([D2[1:] for D2 in each[:JACKKNIFE_SPLITS]], axis=0),
        halves=half.reshape(-1, K // 2 - 1, n, n).mean(axis=1),
    )


def thinned_squares(counts: PositionCounts, gram: Block, seed: int = 0) -> DebiasedSquares:
    """Squared Hellinger distances by thinned counts, crossed between halves, unsmoothed.

    The other way to unequal N, which debiased_squares is held against.  Of the mean over splits
    only the dimensions that stand above the noise are kept, of each replicate as many.
    """
    every = counts.n_positions - 1  # all directions: smoothing leaves the frequencies as they are
    found = debiased_squares(thinned(counts, seed), gram, every)
    r = max(1, above_noise(classical_mds(found.squared, squared=True).eigenvalues))
    return DebiasedSquares(
        squared=_of_rank(found.squared, r),
        replicates=np.stack([_of_rank(D2, r) for D2 in found.replicates]),
        halves=np.stack([_of_rank(D2, r) for D2 in found.halves]),
    )


def _of_rank(D2: FloatArray, r: int) -> FloatArray:
    """The squared distances that the r largest eigenvalues hold."""
    coordinates = classical_mds(D2, r, squared=True).coordinates
    return squareform(pdist(coordinates, "sqeuclidean"))


class _Smoothed:
    """Root profiles of one set of folds, smoothed over positions, as their tokens stream by.

    p̃ = B (Bᵀ diag(N) B)⁻¹ Bᵀ X is the least-squares fit, with weights N, of the frequencies X/N
    by the constant and the `rank` main directions in which the positions of these folds differ.
    """

    def __init__(self, gram: Block, N: FloatArray, folds: NDArray[np.bool_], rank: int) -> None:
        own = gram[folds][:, :, folds].sum(axis=(0, 2), dtype=np.float64)
        n = len(own)
        U = largest_eigenpairs((own + own.T) / 2, rank)[1]
        N_own = N[folds].sum(axis=0)
        # U goes as N_own (p − p̄) / √N.  Divided by √N alone it would keep N_own / N, of which the
        # other folds have as much too little as these too much: alike positions fell below 0
        scale = np.sqrt(N.sum(axis=0)) / np.maximum(N_own, 1)
        B = np.column_stack([np.ones(n), U * scale[:, None]])
        normal = B.T @ (N_own[:, None] * B)
        # thinning may leave these folds without a token at some position, where U is 0
        inverse = np.linalg.inv if N_own.all() else np.linalg.pinv
        self._B = B.astype(np.float32)
        self._fit = (inverse(normal) @ B.T).astype(np.float32)
        self._sums = np.zeros(n)  # Σ_v p̃: 1 but for what was clipped at 0
        self._along = np.zeros(n)  # Σ_v (√p̃ − m) m

    def root(self, X: Block, m: Block) -> Block:
        """√p̃ − m of a block of tokens, X: (n, width) counts, m: (width,) pooled root profile."""
        p = np.maximum(self._B @ (self._fit @ X), 0)
        self._sums += p.sum(axis=1, dtype=np.float64)
        E = np.sqrt(p, out=p)
        E -= m
        self._along += E @ m
        return E

    def products(self, other: "_Smoothed", EE: FloatArray, mm: float) -> FloatArray:
        """(n, n) inner products with another set's root profiles, both about m, rows of length 1.

        With c = Σ p̃^(−½):  (c E + (c − 1) m)(c' E' + (c' − 1) m)ᵀ, so that no digit of the small
        differences is lost to the large length of the rows themselves.
        """
        a, b = (1 / np.sqrt(h._sums) for h in (self, other))
        return (
            a[:, None] * EE * b[None, :]
            + np.outer(a * self._along, b - 1)
            + np.outer(a - 1, b * other._along)
            + np.outer(a - 1, b - 1) * mm
        )


class _Split:
    """One part of the folds against another, and, if asked, either without one of its folds."""

    def __init__(
        self,
        gram: Block,
        N: FloatArray,
        halves: tuple[NDArray[np.bool_], NDArray[np.bool_]],
        rank: int,
        *,
        deletions: bool = False,
    ) -> None:
        K, n = N.shape
        self._halves = halves
        self._whole = [_Smoothed(gram, N, half, rank) for half in self._halves]
        self._deleted = [
            _Smoothed(gram, N, self._half_of(k) & (np.arange(K) != k), rank)
            for k in range(K if deletions else 0)
        ]
        self._EE = np.zeros((1 + len(self._deleted), n, n))

    def _half_of(self, k: int) -> NDArray[np.bool_]:
        return self._halves[0] if self._halves[0][k] else self._halves[1]

    def add(self, C: Block, m: Block) -> None:
        """Take a block of tokens in; C: (K, n, width) counts."""
        X = [np.einsum("k,knv->nv", half.astype(np.float32), C) for half in self._halves]
        E = [half.root(x, m) for half, x in zip(self._whole, X, strict=True)]
        self._EE[0] += E[0] @ E[1].T
        for k, without in enumerate(self._deleted):
            mine = 0 if self._halves[0][k] else 1
            self._EE[1 + k] += without.root(X[mine] - C[k], m) @ E[1 - mine].T

    def squared(self, mm: float) -> FloatArray:
        """(1 + deletions, n, n) squared distances G_ii + G_jj − 2 G_ij, G symmetrised."""
        G = [self._whole[0].products(self._whole[1], self._EE[0], mm)]
        for k, without in enumerate(self._deleted):
            other = self._whole[1 if self._halves[0][k] else 0]
            G.append(without.products(other, self._EE[1 + k], mm))
        return np.stack([_squared_of((g + g.T) / 2) for g in G])


def _squared_of(G: FloatArray) -> FloatArray:
    g = np.diag(G)
    D2 = g[:, None] + g[None, :] - 2 * G
    np.fill_diagonal(D2, 0)
    return D2
