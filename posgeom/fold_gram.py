"""Inner products between the deviations of all folds and positions from stationarity."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, hstack

from posgeom.counts import PositionCounts
from posgeom.packed import add_packed, packed_size, unpacked
from posgeom.side_by_side import Each, side_by_side

FloatArray = NDArray[np.float64]
Block = NDArray[np.float32]
Result = TypeVar("Result")

FREQUENT = 0.12  # share of the rows that hold a token from which on a dense product is faster
_BLOCK = 25_000_000  # entries of a dense float32 block of columns: 100 MB
_ENTRIES = 16_384  # of all pairs that are summed at a time, by one thread
_SUMS = 6_000_000  # entries of packed sums that are there at a time: 24 MB
_CACHED = 1_048_576  # entries of sums that one thread works on: 4 MB


@dataclass(frozen=True, eq=False)
class FoldedColumns:
    """Counts of the tokens seen twice or more, fold by fold, and in each column by column.

    So a product of two folds reads memory from end to end.

    counts   all of them
    columns  (n, V) float32 of each fold
    totals   (V,) of the tokens
    """

    counts: PositionCounts
    columns: list[csc_array] = field(repr=False)
    totals: FloatArray = field(repr=False)

    @classmethod
    def of(cls, counts: PositionCounts) -> Self:
        """The columns of counts."""
        n = counts.n_positions
        totals = np.asarray(counts.counts.sum(axis=0), dtype=np.float64)
        folds = (counts.counts[k * n : (k + 1) * n] for k in range(counts.n_folds))
        seen = np.flatnonzero(totals > 1)
        with side_by_side(n) as each:
            columns = list(each(lambda C: csc_array(C.astype(np.float32))[:, seen], folds))
        return cls(counts, columns, totals[seen])

    def lumped(self, common: NDArray[np.bool_]) -> Self:
        """The same with all tokens but some lumped into one, the last: those seen once, too."""
        columns = []
        for C, N in zip(self.columns, self.counts.fold_totals, strict=True):
            kept = C[:, np.flatnonzero(common)]
            others = (N - kept.sum(axis=1, dtype=np.float64)).astype(np.float32)
            columns.append(csc_array(hstack([kept, csc_array(others[:, None])])))
        kept_totals = self.totals[common]
        others = self.counts.fold_totals.sum() - kept_totals.sum()
        return replace(self, columns=columns, totals=np.append(kept_totals, others))


@dataclass(frozen=True, eq=False)
class FoldGram:
    """Y_k Y_lᵀ for K folds, Y_k (n, V) the deviations of the positions of fold k.

    pairs  (K(K + 1)/2, size) float32, for folds k ≤ l in the order of np.triu_indices(K):
           Y_k Y_kᵀ, and Y_k Y_lᵀ + Y_l Y_kᵀ where k < l; each is symmetric, but for
           rounding, and packed
    source the columns of the counts that it is made of
    """

    pairs: Block = field(repr=False)
    n_folds: int
    source: "FoldedColumns" = field(repr=False)

    @property
    def n_positions(self) -> int:
        """n."""
        return self.source.counts.n_positions

    @property
    def across(self) -> FloatArray:
        """Σ_{k≠l} Y_k Y_lᵀ, (n, n), summed in float64."""
        first, second = np.triu_indices(self.n_folds)
        total = self.pairs.sum(axis=0, dtype=np.float64, where=(first < second)[:, None])
        return np.asarray(unpacked(total[None], self.n_positions)[0])

    def of_sums(
        self, function: Callable[[Block], Result], weights: FloatArray, each: Each = map
    ) -> Iterator[Result]:
        """What a function makes of Σ_{k≤l} w[t, k, l] pairs[k, l], for weights (T, K, K).

        It is given some of these sums at a time, in their order: (t, n, n) float32.
        """
        n, size = self.n_positions, self.pairs.shape[1]
        W = weights[:, *np.triu_indices(self.n_folds)].astype(np.float32)
        for some in np.array_split(W, min(len(W), 1 + len(W) * size // _SUMS)):
            sums = np.empty((len(some), size), dtype=np.float32)

            def fill(start: int, some: Block = some, sums: Block = sums) -> None:
                part = slice(start, start + _ENTRIES)
                np.matmul(some, self.pairs[:, part], out=sums[:, part])

            for _ in each(fill, range(0, size, _ENTRIES)):
                pass
            few = max(1, _CACHED // n**2)
            parts = [sums[t : t + few] for t in range(0, len(sums), few)]
            yield from each(lambda part: function(unpacked(part, n)), parts)


def fold_gram(counts: PositionCounts) -> FoldGram:
    """Inner products of the deviations of all folds and positions.

    Y[k, i, v] = (C[k, i, v] − N[k, i] p_k(v)) / √(N_i (p(v) + 1/N̄)): p_k is the distribution of
    fold k over all its positions, p that of the corpus, N̄ the mean number of tokens a position.
    A χ² distance (Benzécri 1973; Greenacre 1984) whose rare tokens are held down; linear in the
    counts, so that neither small nor unequal N bias it.  Tokens seen once are left out: no two
    folds can share them.
    """
    K, n = counts.n_folds, counts.n_positions
    N = counts.fold_totals.astype(np.float64)
    share = (N / np.maximum(N.sum(axis=1, keepdims=True), 1)).astype(np.float32)
    scale = np.sqrt(1 / np.maximum(N.sum(axis=0), 1)).astype(np.float32)
    source = FoldedColumns.of(counts)
    columns, totals = source.columns, source.totals
    weight = (1 / np.sqrt(totals / N.sum() + 1 / N.sum(axis=0).mean())).astype(np.float32)
    frequent = sum(np.diff(C.indptr) for C in columns) >= FREQUENT * K * n
    pairs = np.zeros((K * (K + 1) // 2, packed_size(n)), dtype=np.float32)
    of_fold = np.split(pairs, np.cumsum(np.arange(K, 1, -1)))  # those of k with k, …, K − 1
    with side_by_side(n) as each:
        width = max(1, _BLOCK // (K * n))
        many = np.flatnonzero(frequent)
        for start in range(0, len(many), width):
            some = many[start : start + width]
            Y = _dense([C[:, some] for C in columns], weight[some], share, scale, each)
            for _ in each(lambda k, Y=Y: _add_dense(Y[k:], of_fold[k]), range(K)):
                pass
        own = [of[0].copy() for of in of_fold]
        few = np.flatnonzero(~frequent)
        rare = _Rare([C[:, few] for C in columns], weight[few], share, scale, each)

        def finish(k: int) -> None:
            of_fold[k][1:] -= own[k]
            for pair, of_other in zip(of_fold[k][1:], own[k + 1 :], strict=True):
                pair -= of_other
            rare.add(k, of_fold[k])

        for _ in each(finish, range(K)):
            pass
    return FoldGram(pairs, K, source)


def _dense(
    columns: list[csc_array], weight: Block, share: Block, scale: Block, each: Each
) -> Block:
    """Y (K, n, V) of some tokens."""
    K, n = share.shape
    Y = np.empty((K, n, len(weight)), dtype=np.float32)

    def fill(k: int) -> None:
        columns[k].toarray(out=Y[k])
        Y[k] -= share[k][:, None] * Y[k].sum(axis=0)
        Y[k] *= scale[:, None] * weight

    for _ in each(fill, range(K)):
        pass
    return Y


def _add_dense(Y: Block, pairs: Block) -> None:
    """Add Y_0 Y_0ᵀ to the first of packed pairs, (Y_0 + Y_m)(Y_0 + Y_m)ᵀ to the others.

    Y: (folds, n, V).  Of a product of a matrix with its own transpose BLAS makes only a half.
    """
    total, product = np.empty_like(Y[0]), np.empty((Y.shape[1],) * 2, dtype=np.float32)
    for m, pair in enumerate(pairs):
        S = np.add(Y[0], Y[m], out=total) if m else Y[0]
        add_packed(np.matmul(S, S.T, out=product), pair, both=False)


class _Rare:
    """Tokens that few rows hold: a product adds only to pairs of rows that both do.

    With S = C scaled, u_k = Σ_i of fold k's counts, weighted, and g = the share of each position,
    scaled:  Y_k Y_lᵀ = S_k S_lᵀ − (S_k u_l) g_lᵀ − g_k (S_l u_k)ᵀ + (u_k·u_l) g_k g_lᵀ.
    """

    def __init__(
        self, columns: list[csc_array], weight: Block, share: Block, scale: Block, each: Each
    ) -> None:
        self._g = share * scale
        u = np.stack(list(each(lambda C: C.sum(axis=0), columns))) * weight

        def scaled(C: csc_array) -> csc_array:
            values = C.data * scale[C.indices] * np.repeat(weight, np.diff(C.indptr))
            return csc_array((values, C.indices, C.indptr), C.shape)

        S = list(each(scaled, columns))
        self._along = np.stack(list(each(lambda S_k: S_k @ u.T, S)))  # (K, n, K) S_k u_l
        self._uu = u @ u.T
        self._rows = np.concatenate([S_k.indices.astype(np.uint16) for S_k in S])
        self._values = np.concatenate([S_k.data for S_k in S])
        begins = np.cumsum([0] + [S_k.nnz for S_k in S])
        ends = [(S_k.indptr[:-1], S_k.indptr[1:]) for S_k in S]
        # (K, 2, V): where each column of each fold begins, and where it ends
        self._spans = np.stack([b + np.stack(e) for b, e in zip(begins, ends, strict=False)])

    def add(self, k: int, pairs: Block) -> None:
        """Add those of these tokens to the packed pairs of fold k with l = k, …, K − 1."""
        from posgeom.shared_tokens import add_shared

        g, along, uu = self._g, self._along, self._uu
        M = np.empty((g.shape[1],) * 2, dtype=np.float32)
        for m, pair in enumerate(pairs, start=k):  # m for the l of the formula
            M[:] = np.outer(uu[k, m] * g[k] - along[k, :, m], g[m])
            M -= np.outer(g[k], along[m, :, k])
            add_shared(self._rows, self._values, self._spans[k], self._spans[m], M)
            add_packed(M, pair, both=m > k)
