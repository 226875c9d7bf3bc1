"""Do positions differ at all?  A randomisation test over folds, and how many dimensions it finds.

The folds of a corpus are independent, so what two of them have in common is no noise.  With Y_k
the deviations of fold k from its own mean distribution, Σ_{k≠l} Y_k Y_lᵀ has expectation 0 where
positions do not differ, however many tokens they have and however much the tokens of a document
depend on each other.  Turning the signs of half of the folds leaves the noise as it is and takes
the structure away: that is the yardstick for its eigenvalues.
"""

import math
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, eigh_tridiagonal

from posgeom.errors import PosgeomError
from posgeom.fold_gram import SMALL, FoldGram, side_by_side

FloatArray = NDArray[np.float64]

LEVEL = 0.05
CHECKED = range(31, 10_000, 6)  # steps of Lanczos at which the eigenvalues are looked at
DIGITS = 1e-4  # of the largest eigenvalue: what its error may be estimated at
_DRAWN = 4_000_000  # entries of the matrices drawn at a time: 16 MB


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


def stationarity_test(gram: FoldGram, *, seed: int = 0, draws: int = 499) -> Stationarity:
    """Test the eigenvalues of Σ_{k≠l} Y_k Y_lᵀ against those with random balanced signs.

    gram: of fold_gram, K 8 or more.  A draw gives half of the folds the sign −1: the structure
    cancels, Σ_{k≠l} (s_k s_l + 1/(K−1)) Y_k Y_lᵀ is left, which is noise; its weights have mean
    square 1 − 1/(K−1)², and are brought to 1.  Each way of halving the folds is taken once where
    there are no more than `draws`, 1 or more.
    Raises PosgeomError for fewer than eight folds, whose 3 halvings cannot reject at 5%.
    Sign flips as in Winkler et al. (2014); the largest eigenvalue as in Horn's (1965) parallel
    analysis.
    """
    K, n = gram.n_folds, gram.n_positions
    if K < 8:
        raise PosgeomError(f"{K} folds came; it takes 8 to tell structure from noise at 5%")
    w = eigh(gram.across, eigvals_only=True)[::-1]
    signs = balanced_signs(K, draws, np.random.default_rng(seed))
    size = 1 / np.sqrt(1 - 1 / (K - 1) ** 2)
    noise = size * (1 - np.eye(K)) * (signs[:, :, None] * signs[:, None, :] + 1 / (K - 1))  # k ≠ l
    with side_by_side(n) as each:
        parts = np.array_split(noise, max(1, len(noise) * n * n // _DRAWN))
        top = np.concatenate(list(each(lambda W: largest_eigenvalues(gram.sums(W)), parts)))
    limit = float(np.quantile(top, 1 - LEVEL, method="higher"))
    p = (1 + int((top >= w[0]).sum())) / (len(top) + 1)
    found = min(max(1, int((w > limit).sum())), n - 1) if p <= LEVEL else 0
    return Stationarity(p, found, w, limit, float(np.median(top)))


def largest_eigenvalues(M: NDArray[np.float32]) -> FloatArray:
    """Of each of T symmetric (n, n) matrices, M (T, n, n), to five digits: (T,)."""
    if M.shape[1] <= SMALL:
        return np.linalg.eigvalsh(M.astype(np.float64))[:, -1]
    return np.array([largest_by_lanczos(m) for m in M])


def largest_by_lanczos(M: NDArray[np.float32]) -> float:
    """The largest eigenvalue of a symmetric (n, n) matrix, to five digits, from products alone.

    Lanczos with full orthogonalisation; at a Ritz vector whose residual is β|s|, the eigenvalue
    is right to its square over the distance of the next one.  Parlett (1998), ch. 11 to 13.
    """
    n = len(M)
    Q = np.empty((n, n), dtype=np.float32)
    α, β = np.empty(n), np.empty(n)
    # a fixed start, so that equal matrices give equal answers; not of ones, where Y has nothing
    q = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    for j in range(n):
        np.divide(q, β[j - 1] if j else np.sqrt(q @ q), out=Q[j])
        q = M @ Q[j]
        along = Q[: j + 1] @ q
        q -= along @ Q[: j + 1]
        α[j], β[j] = along[j], np.sqrt(q @ q)
        scale = max(np.abs(α[: j + 1]).max(), β[: j + 1].max())
        if β[j] < 0.1 * scale:  # what is left is not at right angles yet, but rounding
            q -= (Q[: j + 1] @ q) @ Q[: j + 1]
            β[j] = np.sqrt(q @ q)
        invariant = j == n - 1 or β[j] <= DIGITS * scale
        if invariant or j in CHECKED:
            w, s = eigh_tridiagonal(α[: j + 1], β[:j], select="i", select_range=(max(j - 1, 0), j))
            left = abs(β[j] * s[j, -1])
            if invariant or left * min(1, left / (w[-1] - w[0])) <= DIGITS * scale:
                break
    return float(w[-1])


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
