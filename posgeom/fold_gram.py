"""Inner products between the deviations of all folds and positions from stationarity."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from posgeom.counts import PositionCounts
from posgeom.folded_columns import FoldedColumns
from posgeom.packed import add_packed, packed_size, unpacked
from posgeom.side_by_side import Each, side_by_side

FloatArray = NDArray[np.float64]
Block = NDArray[np.float32]
Result = TypeVar("Result")

_BLOCK = 25_000_000  # entries of a dense float32 block of columns: 100 MB
_ENTRIES = 8_192  # of all pairs that are summed at a time, by one thread
_SUMS = 16_000_000  # entries of packed sums that are there at a time: 64 MB
_SHIFT = 16  # unused columns, without which the entries of a column would displace each other
_CACHED = 1_835_008  # entries of sums that one thread works on: 7 MB


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
    source: FoldedColumns = field(repr=False)

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
        batches = np.array_split(W, min(len(W), 1 + len(W) * size // _SUMS))
        room = np.empty((len(batches[0]), size), dtype=np.float32)  # the first is the largest
        for some in batches:
            sums = room[: len(some)]

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
    pairs = np.zeros((K * (K + 1) // 2, packed_size(n)), dtype=np.float32)
    of_fold = np.split(pairs, np.cumsum(np.arange(K, 1, -1)))  # those of k with k, …, K − 1
    with side_by_side(n) as each:
        source = FoldedColumns.of(counts, each)
        N = source.N
        share = (N / np.maximum(N.sum(axis=1, keepdims=True), 1)).astype(np.float32)
        scale = np.sqrt(1 / np.maximum(N.sum(axis=0), 1)).astype(np.float32)
        weight = 1 / np.sqrt(source.totals / N.sum() + 1 / N.sum(axis=0).mean()).astype(np.float32)
        V, width = len(weight), max(1, _BLOCK // (K * n))
        rare = V - source.n_frequent
        for start in range(rare, V, width):
            some = np.arange(start, min(start + width, V))
            Y = source.dense(some, each)

            def deviate(Y_k: Block, of: Block, weight: Block = weight[some, None]) -> None:
                Y_k -= Y_k.sum(axis=1)[:, None] * of
                Y_k *= weight * scale

            for _ in each(deviate, Y, share):
                pass
            for _ in each(lambda k, Y=Y: _add_dense(Y[k:], of_fold[k]), range(K)):
                pass
        own = [of[0].copy() for of in of_fold]
        others = _Rare(source, rare, weight, share, scale, each)

        def finish(k: int) -> None:
            of_fold[k][1:] -= own[k]
            for pair, of_other in zip(of_fold[k][1:], own[k + 1 :], strict=True):
                pair -= of_other
            others.add(k, of_fold[k])

        for _ in each(finish, range(K)):
            pass
    return FoldGram(pairs, K, source)


def _add_dense(Y: Block, pairs: Block) -> None:
    """Add Y_0 Y_0ᵀ to the first of packed pairs, (Y_0 + Y_m)(Y_0 + Y_m)ᵀ to the others.

    Y: (folds, V, n).  Of a product of a matrix with its own transpose BLAS makes only a half.
    """
    total, product = np.empty_like(Y[0]), np.empty((Y.shape[2],) * 2, dtype=np.float32)
    for m, pair in enumerate(pairs):
        S = np.add(Y[0], Y[m], out=total) if m else Y[0]
        add_packed(np.matmul(S.T, S, out=product), pair, both=False)


class _Rare:
    """The first tokens, that few rows hold: a product adds only to pairs of rows that both do.

    With S = C scaled, u_k = Σ_i of fold k's counts, weighted, and g = the share of each position,
    scaled:  Y_k Y_lᵀ = S_k S_lᵀ − (S_k u_l) g_lᵀ − g_k (S_l u_k)ᵀ + (u_k·u_l) g_k g_lᵀ.
    """

    def __init__(
        self,
        source: FoldedColumns,
        rare: int,
        weight: Block,
        share: Block,
        scale: Block,
        each: Each,
    ) -> None:
        K = len(share)
        weight, begins = weight[:rare], source.begins[:, : rare + 1]
        self._g = share * scale
        u = np.stack(list(each(lambda k: source.fold(k)[:rare].sum(axis=1), range(K)))) * weight
        # as RootProfiles has them, so that the loop is compiled only once
        self._rows, self._values = source.rows.astype(np.uint16), np.empty_like(source.values)
        # (K, 2, V): where each token of each fold begins, and where it ends
        self._spans = np.stack([begins[:, :-1], begins[:, 1:]], axis=1)

        def scaled(k: int) -> Block:
            part = slice(begins[k, 0], begins[k, -1])
            rows, S = source.rows[part], self._values[part]
            np.multiply(source.values[part], scale[rows], out=S)
            S *= np.repeat(weight, np.diff(begins[k]))
            entries = S, rows, begins[k] - part.start
            return csc_array(entries, shape=(len(scale), u.shape[1])) @ u.T

        self._along = np.stack(list(each(scaled, range(K))))  # (K, n, K) S_k u_l
        self._uu = u @ u.T

    def add(self, k: int, pairs: Block) -> None:
        """Add those of these tokens to the packed pairs of fold k with l = k, …, K − 1."""
        from posgeom.shared_tokens import add_shared

        g, along, uu = self._g, self._along, self._uu
        n = g.shape[1]
        room = np.empty((n, n + _SHIFT), dtype=np.float32)
        M = room[:, :n]
        for m, pair in enumerate(pairs, start=k):  # m for the l of the formula
            left = np.stack([uu[k, m] * g[k] - along[k, :, m], -g[k]], axis=1)
            np.matmul(left, np.stack([g[m], along[m, :, k]]), out=M)
            add_shared(self._rows, self._values, self._spans[k], self._spans[m], room)
            add_packed(M, pair, both=m > k)
