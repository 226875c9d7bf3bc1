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

from posgeom.errors import PosgeomError
from posgeom.fold_gram import FoldGram
from posgeom.krylov import largest_ritz_values
from posgeom.side_by_side import SMALL, side_by_side

FloatArray = NDArray[np.float64]

LEVEL = 0.05
DRAWS = 499
DRAWS_OF_MANY = 199  # of more than SMALL positions, whose limit they find to 0.3%
TOLERANCE = 1e-3  # of the vectors of the largest eigenvalues that are drawn
PRODUCTS = 6  # with a matrix of noise, times the cube root of its rows, for its largest eigenvalue


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


def stationarity_test(gram: FoldGram, *, seed: int = 0, draws: int | None = None) -> Stationarity:
    """Test the eigenvalues of Σ_{k≠l} Y_k Y_lᵀ against those with random balanced signs.

    gram: of fold_gram, K 8 or more.  A draw gives half of the folds the sign −1: the structure
    cancels, Σ_{k≠l} (s_k s_l + 1/(K−1)) Y_k Y_lᵀ is left, which is noise; its weights have mean
    square 1 − 1/(K−1)², and are brought to 1.  draws: 1 or more, by default DRAWS or
    DRAWS_OF_MANY.  Each way of halving the folds is taken once where there are no more of them.
    Raises PosgeomError for fewer than eight folds, whose 3 halvings cannot reject at 5%.
    Sign flips as in Winkler et al. (2014); the largest eigenvalue as in Horn's (1965) parallel
    analysis.
    """
    K, n = gram.n_folds, gram.n_positions
    if K < 8:
        raise PosgeomError(f"{K} folds came; it takes 8 to tell structure from noise at 5%")
    if draws is None:
        draws = DRAWS if n <= SMALL else DRAWS_OF_MANY
    signs = balanced_signs(K, draws, np.random.default_rng(seed))
    size = 1 / np.sqrt(1 - 1 / (K - 1) ** 2)
    noise = size * (1 - np.eye(K)) * (signs[:, :, None] * signs[:, None, :] + 1 / (K - 1))  # k ≠ l
    with side_by_side(n) as each:
        spectrum = each(lambda of: np.linalg.eigvalsh(of.across), [gram])  # begins beside the draws
        top = np.concatenate(list(gram.of_sums(largest_eigenvalues, noise, each)))
        w = next(spectrum)[::-1]
    limit = float(np.quantile(top, 1 - LEVEL, method="higher"))
    p = (1 + int((top >= w[0]).sum())) / (len(top) + 1)
    found = min(max(1, int((w > limit).sum())), n - 1) if p <= LEVEL else 0
    return Stationarity(p, found, w, limit, float(np.median(top)))


def largest_eigenvalues(M: NDArray[np.float32]) -> FloatArray:
    """Of each of T symmetric (n, n) matrices, M (T, n, n): (T,).

    Of more than SMALL rows by PRODUCTS · n^(1/3) products with a vector or more, to five digits;
    the edge of a spectrum of noise is n^(−2/3) wide.
    """
    n = M.shape[1]
    if n <= SMALL:
        return np.linalg.eigvalsh(M.astype(np.float64))[:, -1]
    products = math.ceil(PRODUCTS * np.cbrt(n))
    return largest_ritz_values(M, products, TOLERANCE)


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
