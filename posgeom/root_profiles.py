"""Root profiles of many positions: their squared distances in tiles, and products with vectors.

Text has few frequent tokens and many rare ones.  The frequent ones are kept as a dense matrix,
which BLAS multiplies fastest; a rare one adds only to the pairs of positions that both hold it.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array
from threadpoolctl import ThreadpoolController, threadpool_limits

FloatArray = NDArray[np.float64]
T = TypeVar("T")

TILE = 512  # rows: two stretches of frequent columns and the tile itself fit in the caches
CANCELS = 0.05  # of the rows' squares: a smaller D² would lose too many of float32's digits
_PART = 10_000_000  # entries counted at a time
FREQUENT = 0.2  # share of the positions from which on a dense product is the faster one


@dataclass(frozen=True, eq=False)
class RootProfiles:
    """S = √P (n, V), in a form whose tiles of squared distances are quick.

    frequent   (n, F) the columns that many rows hold, dense, their mean taken off
    rare       (n, V − F) the others, sparse
    squares    (n,) Σ_v of the squares of both
    """

    frequent: NDArray[np.floating[Any]] = field(repr=False)
    rare: csc_array = field(repr=False)
    squares: FloatArray = field(repr=False)
    _local: NDArray[np.uint16] = field(repr=False)  # row numbers of `rare` within their stretch
    _begins: NDArray[np.int64] = field(repr=False)  # (tiles + 1, V − F) its entries by stretch
    _means: FloatArray = field(repr=False)  # (V − F,) of its columns
    _off: FloatArray = field(repr=False)  # (F,) the mean that was taken off `frequent`,
    _columns: csr_array | None = field(repr=False)  # (n, F) what it was before, if single

    @classmethod
    def of(cls, S: csr_array, *, single: bool = False) -> Self:
        """From root profiles (n, V), sparse.

        single: `frequent` is float32, and tiles are multiplied so where that leaves their distances
        right to 10⁻⁵; others, of rows that are nearly equal, are multiplied in float64, which loses
        these digits only below distances of 3·10⁻⁶.
        """
        n = S.shape[0]
        held = _held(S)
        many = held >= FREQUENT * n
        columns = S[:, np.flatnonzero(many)]
        off = columns.sum(axis=0) / n  # distances are unchanged, and close rows do not cancel
        frequent = np.empty(columns.shape, np.float32 if single else np.float64)
        squares = np.empty(n)
        room = np.empty((min(n, TILE), columns.shape[1]))  # fresh memory takes longer than filling
        for start in range(0, n, TILE):
            part = slice(start, min(start + TILE, n))
            dense = columns[part].toarray(out=room[: part.stop - start])
            dense -= off
            frequent[part] = dense
            squares[part] = np.einsum("iv,iv->i", dense, dense)
        rows = S[:, np.flatnonzero(~many & (held > 0))]
        rare = csc_array(rows)
        local = (rare.indices % TILE).astype(np.uint16)
        begins, means = _begins(rows, rare), rare.sum(axis=0) / n
        rows.data *= rows.data
        squares += rows.sum(axis=1)
        before = columns if single else None
        return cls(frequent, rare, squares, local, begins, means, off, before)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.squares)

    @property
    def n_stretches(self) -> int:
        """Stretches of TILE rows; the last may be shorter."""
        return -(-self.n // TILE)

    @property
    def n_tiles(self) -> int:
        """Tiles on and above the diagonal."""
        return self.n_stretches * (self.n_stretches + 1) // 2

    def stretch(self, k: int) -> slice:
        """The rows of stretch k."""
        return slice(k * TILE, min((k + 1) * TILE, self.n))

    def squared(self, a: int, b: int) -> FloatArray:
        """D²[i, j] = ‖S[i] − S[j]‖² for the rows i of stretch a and j of stretch b.

        In 0..2; where a is b exactly 0 on the diagonal, and symmetric.
        """
        rows, columns = self.stretch(a), self.stretch(b)
        D2 = self._squared(a, b, self.frequent[rows] @ self.frequent[columns].T)
        if self._columns is not None:
            near = CANCELS * (self.squares[rows, None] + self.squares[None, columns]) > D2
            if a == b:
                np.fill_diagonal(near, False)  # a row is near itself
            if near.any():
                A, B = (self._columns[part].toarray() - self._off for part in (rows, columns))
                return self._squared(a, b, A @ B.T)
        return D2

    def _squared(self, a: int, b: int, product: NDArray[Any]) -> FloatArray:
        """D² of a tile from the product of its frequent columns."""
        G = product.astype(np.float64, copy=False)
        if self.rare.nnz:
            from posgeom.shared_tokens import add_shared

            first, second = self._begins[a : a + 2], self._begins[b : b + 2]
            add_shared(self._local, self.rare.data, first, second, G)
        rows, columns = self.stretch(a), self.stretch(b)
        D2 = np.maximum(self.squares[rows, None] + self.squares[None, columns] - 2 * G, 0)
        if a == b:
            D2 = (D2 + D2.T) / 2
            np.fill_diagonal(D2, 0)
        return D2

    def all_squared(self) -> FloatArray:
        """D² of all rows, (n, n)."""
        D2 = np.empty((self.n, self.n))

        def fill(a: int, b: int) -> None:
            rows, columns = self.stretch(a), self.stretch(b)
            D2[rows, columns] = self.squared(a, b)
            D2[columns, rows] = D2[rows, columns].T

        for _ in self.over_tiles(fill):
            pass
        return D2

    def gram_times(self, Y: FloatArray) -> FloatArray:
        """X Xᵀ Y for Y (n, k), X (n, V) the root profiles less their mean row: (n, k)."""
        F = self.frequent
        W = (F @ (F.T @ Y.astype(F.dtype, copy=False))).astype(np.float64, copy=False)
        sums = Y.sum(axis=0)

        def of_columns(part: slice) -> FloatArray:
            begin, end = self.rare.indptr[[part.start, part.stop]]
            indptr = self.rare.indptr[part.start : part.stop + 1] - begin
            columns = csc_array(
                (self.rare.data[begin:end], self.rare.indices[begin:end], indptr),
                shape=(self.n, part.stop - part.start),
            )
            along = columns.T @ Y - np.outer(self._means[part], sums)
            product: FloatArray = columns @ along
            return product - self._means[part] @ along

        shares = np.linspace(0, self.rare.nnz, threads() + 1)
        cuts = np.searchsorted(self.rare.indptr, shares)
        cuts[-1] = self.rare.shape[1]
        with ThreadPoolExecutor(threads()) as pool:
            W += sum(pool.map(of_columns, map(slice, cuts[:-1], cuts[1:])))
        return W

    def over_tiles(self, job: Callable[[int, int], T]) -> Iterator[T]:
        """job(a, b) for all stretches a ≤ b, in order, by as many threads as BLAS would take."""
        stretches = range(self.n_stretches)
        pairs = [(a, b) for a in stretches for b in stretches[a:]]
        pool = ThreadPoolExecutor(threads())  # before BLAS is held to one for each of them
        try:
            with threadpool_limits(1):
                yield from pool.map(lambda pair: job(*pair), pairs)
        finally:
            pool.shutdown(cancel_futures=True)  # an end that is asked for does not wait for all


def threads(libraries: ThreadpoolController | None = None) -> int:
    """How many threads the matrix products of this process may have (OMP_NUM_THREADS)."""
    pools = (libraries or ThreadpoolController()).info()
    return max([int(pool["num_threads"]) for pool in pools], default=1)


def _held(S: csr_array) -> NDArray[np.int64]:
    """(V,) rows that hold each column; a part at a time, since bincount copies its numbers."""
    parts = range(0, S.nnz, _PART)
    counts = (np.bincount(S.indices[k : k + _PART], minlength=S.shape[1]) for k in parts)
    return sum(counts, np.zeros(S.shape[1], dtype=np.int64))


def _begins(rows: csr_array, columns: csc_array) -> NDArray[np.int64]:
    """(tiles + 1, V): where in column v the rows of each stretch begin, and the last one ends."""
    n, V = rows.shape
    begins = np.zeros((-(-n // TILE) + 1, V), dtype=np.int64)
    for k, start in enumerate(range(0, n, TILE)):
        part = slice(rows.indptr[start], rows.indptr[min(start + TILE, n)])
        begins[k + 1] = begins[k] + np.bincount(rows.indices[part], minlength=V)
    return begins + columns.indptr[:-1]
