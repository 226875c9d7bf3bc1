"""Frequencies of tokens in sets of folds, smoothed over positions."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from posgeom.counts import PositionCounts
from posgeom.fold_gram import SMALL, Each, FoldGram, seen_twice
from posgeom.mds import largest_eigenpairs

FloatArray = NDArray[np.float64]
Block = NDArray[np.float32]
Sets = NDArray[np.bool_]  # (S, K): which folds each set holds

SAMPLED = 2_000  # tokens that stand for all
_PARTS = 8  # of a stretch of tokens, shared among the threads
_SPREAD = 40_000_000  # entries of a matrix for all sets at once: 160 MB


@dataclass(frozen=True, eq=False)
class FoldedTokens:
    """Counts of the tokens seen twice or more, as sets of folds are smoothed from them.

    columns  (K·n, V) sparse float32
    pooled   (V,) root of each token's share of all tokens, m
    N        (K, n) tokens a fold and position
    sample   (s,) some tokens: the most frequent ones, and evenly some of the rest by frequency
    weights  (s,) how many tokens each of them stands for
    """

    columns: csc_array = field(repr=False)
    pooled: Block = field(repr=False)
    N: FloatArray = field(repr=False)
    sample: NDArray[np.intp] = field(repr=False)
    weights: Block = field(repr=False)

    @classmethod
    def of(cls, counts: PositionCounts) -> Self:
        """The tokens of counts."""
        columns, totals = seen_twice(counts)
        N = counts.fold_totals.astype(np.float64)
        order = np.argsort(-totals, kind="stable")
        often, rest = order[: SAMPLED // 2], order[SAMPLED // 2 :]
        some = rest[:: max(1, len(rest) // (SAMPLED // 2))]
        weights = np.repeat([1, len(rest) / max(1, len(some))], [len(often), len(some)])
        return cls(
            columns=columns,
            pooled=np.sqrt(totals / N.sum()).astype(np.float32),
            N=N,
            sample=np.concatenate([often, some]),
            weights=weights.astype(np.float32),
        )

    def most_sets(self, rank: int) -> int:
        """How many sets of folds may be smoothed side by side, each of up to half of the folds."""
        return max(1, 2 * _SPREAD // (self.N.size * (rank + 1)))

    def smooth(self, sets: Sets, gram: FoldGram, rank: int, each: Each) -> "Smoothed":
        """The frequencies in sets of folds, smoothed along `rank` directions of each set's own."""
        among = sets.astype(np.float64)
        own = gram.sums(among[:, :, None] * among[:, None, :], each)
        found = list(each(lambda s: self._fit(sets[s], own[s], rank), range(len(sets))))
        return Smoothed(self, sets, *(np.stack(x) for x in zip(*found, strict=True)))

    def _fit(self, folds: NDArray[np.bool_], own: Block, rank: int) -> tuple[Block, Block]:
        """B, and the transpose of (Bᵀ diag(N) B)⁻¹ Bᵀ, (n, rank + 1), of one set of folds (K,).

        own: (n, n) Gram matrix of the deviations of its positions.
        """
        n = len(own)
        # of a few rows every digit is kept; of many, float32 takes half the time
        precise: Any = own.astype(np.float64) if n <= SMALL else own
        U = largest_eigenpairs(precise, rank)[1]
        N = self.N[folds].sum(axis=0)
        # U goes as N (p − p̄) / √N_all.  Divided by √N_all alone it would keep N / N_all, of which
        # the other folds have as much too little as these too much: alike positions fell below 0
        scale = np.sqrt(self.N.sum(axis=0)) / np.maximum(N, 1)
        B = np.column_stack([np.ones(n), U * scale[:, None]])
        normal = B.T @ (N[:, None] * B)
        # thinning may leave these folds without a token at some position, where U is 0
        inverse = np.linalg.inv if N.all() else np.linalg.pinv
        return B.astype(np.float32), (inverse(normal) @ B.T).T.astype(np.float32)


class Smoothed:
    """Frequencies p̃ = B z of each token at all positions, in S sets of folds.

    p̃ = B (Bᵀ diag(N) B)⁻¹ Bᵀ X is the least-squares fit, with weights N, of the frequencies X/N
    by the constant and the main directions in which the positions of a set of folds differ.

    B     (S, n, rank + 1)
    sums  (S, n) Σ_v p̃, entries below 0 included
    """

    def __init__(self, tokens: FoldedTokens, sets: Sets, B: Block, fit: Block) -> None:
        K, n = tokens.N.shape
        self.tokens, self.B = tokens, B
        members = [np.flatnonzero(sets[:, k]) for k in range(K)]
        most = max(len(m) for m in members)
        self._sets = np.full((K, most), -1)
        self._fit = np.zeros((K, n, most, B.shape[2]), dtype=np.float32)
        for k, m in enumerate(members):
            self._sets[k, : len(m)] = m
            self._fit[k, :, : len(m)] = fit[m].transpose(1, 0, 2)
        seen = tokens.columns.sum(axis=1, dtype=np.float64).reshape(K, n)
        z = np.einsum("sir,si->sr", fit, sets @ seen)
        self.sums = np.einsum("sir,sr->si", B, z)

    def coefficients(self, part: NDArray[np.intp] | slice, each: Each) -> Block:
        """z of some tokens, (S, tokens, rank + 1)."""
        from posgeom.fold_products import add_products

        K, n = self.tokens.N.shape
        X = self.tokens.columns[:, part]
        S, _, c = self.B.shape
        Z = np.zeros((S, X.shape[1], c), dtype=np.float32)
        F = self._fit.reshape(K * n, -1, c)
        width = -(-X.shape[1] // _PARTS)

        def add(first: int) -> None:
            of = Z[:, first : first + width]
            add_products(X.indptr, X.indices, X.data, F, self._sets, n, first, of)

        for _ in each(add, range(0, X.shape[1], width)):
            pass
        return Z

    def stretches(self) -> Iterator[slice]:
        """All tokens, in stretches whose coefficients fit in memory."""
        S, _, c = self.B.shape
        V = self.tokens.columns.shape[1]
        width = max(1, _SPREAD // (S * c))
        return (slice(start, start + width) for start in range(0, V, width))
