"""Counts fold by fold, and in each token by token, the most frequent tokens last.

Sums over tokens in float32 are then sums of rising terms, which lose least.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from posgeom.counts import PositionCounts
from posgeom.side_by_side import Each

FloatArray = NDArray[np.float64]
Block = NDArray[np.float32]

FREQUENT = 0.12  # share of the rows that hold a token from which on a dense product is faster


@dataclass(frozen=True, eq=False)
class FoldedColumns:
    """Counts of the tokens seen twice or more; a product of two folds reads them end to end.

    counts  all of them
    N       (K, n) tokens of each fold and position
    rows    (E,) position of each entry, fold by fold, in each token by token
    values  (E,) float32, the entries
    begins  (K, V + 1) where the entries of each fold and token begin, and the last ones end
    totals  (V,) of the tokens, rising; of lumped ones, which come first, as it may be
    seen    (K, n) those of N that are counted here
    """

    counts: PositionCounts
    N: FloatArray = field(repr=False)
    rows: NDArray[np.int32] = field(repr=False)
    values: Block = field(repr=False)
    begins: NDArray[np.int64] = field(repr=False)
    totals: FloatArray = field(repr=False)
    seen: FloatArray = field(repr=False)

    @classmethod
    def of(cls, counts: PositionCounts, each: Each = map) -> Self:
        """The columns of counts."""
        C, n = counts.counts, counts.n_positions
        N = counts.fold_totals.astype(np.float64)
        totals = np.asarray(C.sum(axis=0), dtype=np.float64)
        order = np.argsort(totals, kind="stable")
        first = int((totals <= 1).sum())
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)

        def turned(k: int) -> tuple[NDArray[np.int32], Block, NDArray[np.int64], FloatArray]:
            ends = C.indptr[k * n : (k + 1) * n + 1]
            part = slice(ends[0], ends[-1])
            entries = C.data[part].astype(np.float32), rank[C.indices[part]], ends - ends[0]
            columns = csr_array(entries, shape=(n, len(rank))).tocsc()
            at = columns.indptr[first]
            once = np.bincount(columns.indices[:at], columns.data[:at], minlength=n)
            rows = columns.indices[at:].astype(np.int32, copy=False)
            begins = columns.indptr[first:].astype(np.int64) - at
            return rows, columns.data[at:], begins, N[k] - once

        folds = each(turned, range(counts.n_folds))
        return cls._joined(counts, N, totals[order[first:]], folds)

    @classmethod
    def _joined(
        cls, counts: PositionCounts, N: FloatArray, totals: FloatArray, folds: Iterable[Any]
    ) -> Self:
        """Of rows, values and begins of the folds, and the tokens of their positions."""
        rows, values, begins, seen = zip(*folds, strict=True)
        first = np.cumsum([0] + [len(r) for r in rows])[:-1]
        return cls(
            counts,
            N,
            rows=np.concatenate(rows),
            values=np.concatenate(values),
            begins=np.stack(begins) + first[:, None],
            totals=totals,
            seen=np.stack(seen),
        )

    @property
    def n_frequent(self) -> int:
        """About how many tokens, the last ones, are best multiplied as dense columns."""
        held = np.diff(self.begins).sum(axis=0)
        return int((held >= FREQUENT * self.seen.size).sum())

    def fold(self, k: int) -> csr_array:
        """(V, n) the counts of fold k, token by token; a view."""
        ends = self.begins[k]
        part = slice(ends[0], ends[-1])
        entries = self.values[part], self.rows[part], ends - ends[0]
        return csr_array(entries, shape=(len(self.totals), self.seen.shape[1]))

    def dense(self, tokens: NDArray[np.intp], each: Each) -> Block:
        """(K, tokens, n) the counts of some tokens."""
        C = np.empty((len(self.N), len(tokens), self.N.shape[1]), dtype=np.float32)
        for _ in each(lambda k: self.fold(k)[tokens].toarray(out=C[k]), range(len(C))):
            pass
        return C

    def lumped(self, common: int, each: Each = map) -> Self:
        """The same with all tokens but the last ones lumped into one: those seen once, too."""
        N = self.N
        kept = slice(len(self.totals) - common, len(self.totals))

        def one(k: int) -> tuple[NDArray[np.int32], Block, NDArray[np.int64], FloatArray]:
            C = self.fold(k)[kept]
            others = N[k] - C.sum(axis=0, dtype=np.float64)
            held = np.flatnonzero(others).astype(np.int32)
            return (
                np.concatenate([held, C.indices]),
                np.concatenate([others[held].astype(np.float32), C.data]),
                np.append(0, C.indptr + len(held)),
                N[k],
            )

        totals = np.append(N.sum() - self.totals[kept].sum(), self.totals[kept])
        return self._joined(self.counts, N, totals, each(one, range(len(N))))
