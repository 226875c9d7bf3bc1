"""Do positions differ at all?  A randomisation test over folds, and how many dimensions it finds.

The folds of a corpus are independent, so what two of them have in common is no noise.  With Y_k
the deviations of fold k from its own mean distribution, Σ_{k≠l} Y_k Y_lᵀ has expectation 0 where
positions do not differ, however many tokens they have and however much the tokens of a document
depend on each other.  Turning the signs of half of the folds leaves the noise as it is and takes
the structure away: that is the yardstick for its eigenvalues.
"""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csc_array
from scipy.sparse.linalg import eigsh
from threadpoolctl import threadpool_limits

from posgeom.counts import PositionCounts
from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]

LEVEL = 0.05
SMALL = 128  # rows up to which one thread does matrix products faster than two
_BLOCK = 50_000_000  # entries of a dense float32 block of columns: 200 MB


@dataclass(frozen=True, eq=False)
class Stationarity:
    """The test of stationarity, and the structure that it finds.

    p_value      of "all positions have one distribution", in 0..1
    significant  number of eigenvalues above the noise at the 5% level; 0 where p_value is above
    eigenvalues  (n,) of the cross-fold Gram matrix, descending
    limit        what the largest eigenvalue of noise stays below in 95% of the draws
    typical      its median over the draws
    """

    p_value: float
    significant: int
    eigenvalues: FloatArray = field(repr=False)
    limit: float
    typical: float


def fold_gram(counts: PositionCounts) -> NDArray[np.float32]:
    """Inner products of the deviations of all folds and positions, (K, n, K, n) float32.

    Y[k, i, v] = (C[k, i, v] − N[k, i] p_k(v)) / √(N_i (p(v) + 1/N̄)): p_k is the distribution of
    fold k over all its positions, p that of the corpus, N̄ the mean number of tokens a position.
    A χ² distance (Benzécri 1973; Greenacre 1984) whose rare tokens are held down; linear in the
    counts, so that neither small nor unequal N bias it.  Tokens seen once are left out: no two
    folds can share them.
    """
    K, n = counts.n_folds, counts.n_positions
    N = counts.fold_totals.astype(np.float64)
    fold_share = (N / np.maximum(N.sum(axis=1, keepdims=True), 1)).astype(np.float32)
    scale = np.sqrt(1 / np.maximum(N.sum(axis=0), 1)).astype(np.float32)
    rare = 1 / N.sum(axis=0).mean()
    gram = np.zeros((K * n, K * n), dtype=np.float32)
    for block, totals in column_blocks(counts):
        weight = 1 / np.sqrt(totals / N.sum() + rare)
        C = block.reshape(K, n, -1)
        Y = C - fold_share[:, :, None] * C.sum(axis=1, keepdims=True)
        Y *= scale[:, None] * weight.astype(np.float32)
        Y = Y.reshape(K * n, -1)
        gram += Y @ Y.T
    shaped: NDArray[np.float32] = gram.reshape(K, n, K, n)
    return shaped


def few_threads(n: int) -> AbstractContextManager[object]:
    """One thread for matrices of a few rows: several would wait for each other, 30 times longer."""
    return threadpool_limits(1) if n <= SMALL else nullcontext()


def column_blocks(counts: PositionCounts) -> Iterator[tuple[NDArray[np.float32], FloatArray]]:
    """The counts (K·n, width) as dense float32 blocks of tokens, and each token's total.

    Tokens seen once are left out.
    """
    columns = csc_array(counts.counts)
    totals = np.asarray(columns.sum(axis=0), dtype=np.float64)
    columns = columns[:, np.flatnonzero(totals > 1)]
    totals = totals[totals > 1]
    width = max(1, _BLOCK // columns.shape[0])
    for start in range(0, columns.shape[1], width):
        part = slice(start, start + width)
        yield columns[:, part].toarray().astype(np.float32), totals[part]


def stationarity_test(
    gram: NDArray[np.float32], *, seed: int = 0, draws: int = 499
) -> Stationarity:
    """Test the eigenvalues of Σ_{k≠l} Y_k Y_lᵀ against those with random balanced signs.

    gram: (K, n, K, n) of fold_gram, K 8 or more.  A draw gives half of the folds the sign −1: the
    structure cancels, Σ_{k≠l} (s_k s_l + 1/(K−1)) Y_k Y_lᵀ is left, which is noise; its weights
    have mean square 1 − 1/(K−1)², and are brought to 1.  Each way of halving the folds is taken
    once where there are no more than `draws`, 1 or more.
    Raises PosgeomError for fewer than eight folds, whose 3 halvings cannot reject at 5%.
    Sign flips as in Winkler et al. (2014); the largest eigenvalue as in Horn's (1965) parallel
    analysis.
    """
    K, n = gram.shape[:2]
    if K < 8:
        raise PosgeomError(f"{K} folds came; it takes 8 to tell structure from noise at 5%")
    within = np.einsum("kikj->ij", gram).astype(np.float64)
    total = gram.sum(axis=(0, 2), dtype=np.float64)
    across = total - within
    w = eigh((across + across.T) / 2, eigvals_only=True)[::-1]
    signs = balanced_signs(K, draws, np.random.default_rng(seed))
    size = 1 / np.sqrt(1 - 1 / (K - 1) ** 2)
    top = np.empty(len(signs))
    with few_threads(n):
        for t, s in enumerate(signs):
            signed = np.tensordot(np.tensordot(s, gram, (0, 0)), s, (1, 0)).astype(np.float64)
            noise = size * (signed - within + across / (K - 1))
            top[t] = largest_eigenvalue((noise + noise.T) / 2)
    limit = float(np.quantile(top, 1 - LEVEL, method="higher"))
    p = (1 + int((top >= w[0]).sum())) / (len(top) + 1)
    found = min(max(1, int((w > limit).sum())), n - 1) if p <= LEVEL else 0
    return Stationarity(p, found, w, limit, float(np.median(top)))


def largest_eigenvalue(M: FloatArray) -> float:
    """Of a symmetric (n, n) matrix, to six digits; by Lanczos where n is large."""
    n = len(M)
    if n <= SMALL:
        return float(eigh(M, eigvals_only=True)[-1])  # LAPACK may lose one alone of equal ones
    # a fixed start, so that equal seeds give equal answers
    return float(eigsh(M, 1, which="LA", v0=np.ones(n), tol=1e-7, return_eigenvectors=False)[0])


def balanced_signs(K: int, draws: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """(T, K) signs, half of them −1: all C(K−1, K/2−1) that differ up to sign, or random ones."""
    if math.comb(K - 1, K // 2 - 1) > draws:
        half = np.repeat([1.0, -1.0], K // 2)
        return np.stack([rng.permutation(half) for _ in range(draws)]).astype(np.float32)
    chosen = list(combinations(range(1, K), K // 2 - 1))
    signs = -np.ones((len(chosen), K), dtype=np.float32)
    signs[:, 0] = 1
    for row, plus in zip(signs, chosen, strict=True):
        row[list(plus)] = 1
    return signs
