"""Frequencies of tokens in sets of folds, smoothed over positions."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from posgeom.fold_gram import FoldGram
from posgeom.folded_columns import FoldedColumns
from posgeom.krylov import ritz_pairs
from posgeom.mds import largest_eigenpairs
from posgeom.side_by_side import SMALL, Each

FloatArray = NDArray[np.float64]
Block = NDArray[np.float32]
Sets = NDArray[np.bool_]  # (S, K): which folds each set holds

SAMPLED = 1_000  # tokens that stand for all
WIDTH = 4  # vectors of the blocks by whose products directions are found,
SPARE = 12  # so many products more than directions
_SPREAD = 80_000_000  # entries of a matrix for all sets of a batch: 320 MB
_STRETCH = 5_000_000  # coefficients of a stretch of tokens: 20 MB
_BLOCK = 25_000_000  # entries of a dense block of counts: 100 MB
_SUMS = 900_000  # of its sums over sets that one thread works on: 3.6 MB
_PART = 300_000  # coefficients that one thread works on: 1.2 MB


@dataclass(frozen=True, eq=False)
class FoldedTokens:
    """Counts of the tokens seen twice or more, as sets of folds are smoothed from them.

    columns  the counts
    pooled   (V,) root of each token's share of all tokens, m
    sample   (s,) some tokens: the most frequent ones, and evenly some of the rest by frequency
    weights  (s,) how many tokens each of them stands for
    """

    columns: FoldedColumns
    pooled: Block = field(repr=False)
    sample: NDArray[np.intp] = field(repr=False)
    weights: Block = field(repr=False)

    @classmethod
    def of(cls, columns: FoldedColumns) -> Self:
        """The tokens of the columns."""
        order = np.argsort(-columns.totals, kind="stable")
        often, rest = order[: SAMPLED // 2], order[SAMPLED // 2 :]
        some = rest[:: max(1, len(rest) // (SAMPLED // 2))]
        weights = np.repeat([1, len(rest) / max(1, len(some))], [len(often), len(some)])
        sample = np.concatenate([often, some])
        rising = np.argsort(sample)
        return cls(
            columns=columns,
            pooled=np.sqrt(columns.totals / columns.N.sum()).astype(np.float32),
            sample=sample[rising],
            weights=weights[rising].astype(np.float32),
        )

    def most_sets(self, rank: int) -> int:
        """How many sets of folds may be smoothed side by side, each of up to half of the folds."""
        return max(1, _SPREAD // (self.columns.N.size * (rank + 1)))

    def smooth(self, sets: Sets, gram: FoldGram, rank: int, each: Each) -> "Smoothed":
        """The frequencies in sets of folds, smoothed along `rank` directions of each set's own."""
        among = sets.astype(np.float64)
        W = among[:, :, None] * among[:, None, :]
        U = list(gram.of_sums(lambda M: main_directions(M, rank), W, each))
        found = each(self._fit, np.split(sets, np.cumsum([len(some) for some in U])[:-1]), U)
        B, fit = (np.concatenate(x) for x in zip(*found, strict=True))
        return Smoothed(self, sets, B, fit, each)

    def _fit(self, sets: Sets, U: NDArray[Any]) -> tuple[Block, Block]:
        """B, and the transpose of (Bᵀ diag(N) B)⁻¹ Bᵀ, both (S, n, rank + 1), of sets of folds.

        U: (S, n, rank) main directions in which the positions of each set differ.
        """
        of_folds = self.columns.N
        N = sets @ of_folds
        # U goes as N (p − p̄) / √N_all.  Divided by √N_all alone it would keep N / N_all, of which
        # the other folds have as much too little as these too much: alike positions fell below 0
        scale = np.sqrt(of_folds.sum(axis=0)) / np.maximum(N, 1)
        B = np.concatenate([np.ones((*N.shape, 1)), U * scale[:, :, None]], axis=2)
        normal = B.transpose(0, 2, 1) @ (N[:, :, None] * B)
        # thinning may leave a set of folds without a token at some position, where U is 0
        inverse = np.stack([_inverse(A, of_set.all()) for A, of_set in zip(normal, N, strict=True)])
        return B.astype(np.float32), (B @ inverse.transpose(0, 2, 1)).astype(np.float32)


def _inverse(A: FloatArray, full: Any) -> FloatArray:
    """A⁻¹, or the pseudo-inverse where a position has no token, not full, or A is singular."""
    try:
        return np.asarray(np.linalg.inv(A) if full else np.linalg.pinv(A))
    except np.linalg.LinAlgError:  # of two alike positions, forced apart, U may be one number
        return np.asarray(np.linalg.pinv(A))


def main_directions(M: Block, r: int) -> NDArray[Any]:
    """The r main eigenvectors of each of some symmetric matrices M (S, n, n), ascending, (S, n, r).

    Of few rows, or where many are asked for, by a decomposition.  Else the best that a few
    products find: those that stand out of the noise to 1e-6 and better.  Of the others a little
    is missed, up to a hundredth of the sum of the eigenvalues where nothing stands out of the
    noise of a thousand rows; any mixture of them is noise of these folds.
    """
    n, products = M.shape[1], r + SPARE
    if n > SMALL and WIDTH * products <= n // 2:
        return ritz_pairs(M, r, WIDTH, products)[1]
    # of a few rows every digit is kept; of many, float32 takes half the time
    precise: Any = M.astype(np.float64) if n <= SMALL else M
    return np.stack([largest_eigenpairs(some, r)[1] for some in precise])


class Smoothed:
    """Frequencies p̃ = B z of each token at all positions, in S sets of folds.

    p̃ = B (Bᵀ diag(N) B)⁻¹ Bᵀ X is the least-squares fit, with weights N, of the frequencies X/N
    by the constant and the main directions in which the positions of a set of folds differ.

    B        (S, n, rank + 1)
    sums     (S, n) Σ_v p̃, entries below 0 included
    sampled  (S, s, rank + 1) z of the sample of tokens
    """

    def __init__(self, tokens: FoldedTokens, sets: Sets, B: Block, fit: Block, each: Each) -> None:
        K, n = tokens.columns.N.shape
        self.tokens, self.B = tokens, B
        self._of_folds = sets, fit
        most = sets.sum(axis=0).max()
        self._sets = np.full((K, most), -1)
        self._fit = np.empty((K, n, most, B.shape[2]), dtype=np.float32)

        def spread(k: int) -> None:
            members = np.flatnonzero(sets[:, k])
            self._sets[k, : len(members)] = members
            self._fit[k, :, : len(members)] = fit[members].transpose(1, 0, 2)
            self._fit[k, :, len(members) :] = 0

        for _ in each(spread, range(K)):
            pass
        z = np.einsum("sir,si->sr", fit, sets @ tokens.columns.seen)
        self.sums = np.einsum("sir,sr->si", B, z)
        self.sampled = np.empty((len(sets), len(tokens.sample), B.shape[2]), dtype=np.float32)
        self._coefficients(tokens.sample, self.sampled, each)

    def of(self, tokens: FoldedTokens, some: list[int], each: Each) -> "Smoothed":
        """Other tokens of the same counts, smoothed along the directions of some of the sets."""
        sets, fit = self._of_folds
        return Smoothed(tokens, sets[some], self.B[some], fit[some], each)

    def stretches(self, each: Each) -> Iterator[tuple[NDArray[np.intp], Block]]:
        """All tokens in stretches that fit in a cache, and their z, (S, tokens, rank + 1).

        Each is written where the one before was.
        """
        yield self.tokens.sample, self.sampled
        S, _, r = self.B.shape
        rest = np.setdiff1d(np.arange(len(self.tokens.pooled)), self.tokens.sample)
        width = max(1, _STRETCH // (S * r))
        room = np.empty((S, min(width, len(rest)), r), dtype=np.float32)
        for start in range(0, len(rest), width):
            some = rest[start : start + width]
            self._coefficients(some, room[:, : len(some)], each)
            yield some, room[:, : len(some)]

    def _coefficients(self, tokens: NDArray[np.intp], Z: Block, each: Each) -> None:
        """Write z of some tokens, in rising order, into Z, (S, tokens, rank + 1)."""
        columns = self.tokens.columns
        rare = int(np.searchsorted(tokens, len(columns.totals) - columns.n_frequent))
        self._by_entries(tokens[:rare], Z[:, :rare], each)
        width = max(1, _BLOCK // columns.N.size)
        for start in range(rare, len(tokens), width):
            part = slice(start, start + width)
            self._by_products(columns.dense(tokens[part], each), Z[:, part], each)

    def _by_entries(self, tokens: NDArray[np.intp], Z: Block, each: Each) -> None:
        """z of rare tokens, one entry of the counts after another."""
        from posgeom.fold_products import add_products

        X = self.tokens.columns
        width = max(1, _PART // (Z.shape[0] * Z.shape[2]))

        def fill(start: int) -> None:
            some, z = tokens[start : start + width], Z[:, start : start + width]
            z[:] = 0
            add_products(X.rows, X.values, X.begins, some, self._fit, self._sets, z)

        for _ in each(fill, reversed(range(0, len(tokens), width))):  # the last have most entries
            pass

    def _by_products(self, counts: Block, Z: Block, each: Each) -> None:
        """z of frequent tokens, by sums over sets of their dense counts (K, tokens, n)."""
        sets, fit = self._of_folds
        S, (K, V, n) = len(Z), counts.shape
        width = max(1, _SUMS // (S * n))

        def fill(start: int) -> None:
            some = counts[:, start : start + width].reshape(K, -1)
            sums = (sets.astype(np.float32) @ some).reshape(S, -1, n)
            np.matmul(sums, fit, out=Z[:, start : start + width])

        for _ in each(fill, range(0, V, width)):
            pass
