"""Classical multidimensional scaling: from distances to coordinates."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh

from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class MDSResult:
    """What classical MDS finds.

    coordinates   (n, r), one column an axis, by falling eigenvalue; columns sum to 0
    eigenvalues   all n of the centred Gram matrix, or the r largest of a truncated run;
                  descending, negative ones kept: they tell how far from Euclidean D is
    """

    coordinates: FloatArray
    eigenvalues: FloatArray

    @property
    def rank(self) -> int:
        """Number of eigenvalues above rounding: the dimensions that hold all of the geometry."""
        return positive_rank(self.eigenvalues, len(self.coordinates))


def classical_mds(
    D: ArrayLike, n_components: int | None = None, *, squared: bool = False
) -> MDSResult:
    """Classical (Torgerson) MDS of a distance matrix.

    B = −½ J D² J = U Λ Uᵀ with J = I − 11ᵀ/n; coordinates P = U_r Λ_r^½.
    D: (n, n) symmetric distances, or squared distances (which an unbiased estimate may take
    below 0) with `squared=True`.  n_components: r in 1..n for a truncated run; all axes above
    rounding by default.  Axes whose eigenvalue is not positive have coordinate 0, never NaN.
    The sign of an axis makes its largest entry positive.
    Raises PosgeomError for a matrix that is not square, finite and symmetric, and for r out of
    range.  Cirrincione (2026), Algorithm 1; Borg & Groenen (2005), ch. 12.
    """
    B = centred_gram(check_square(D, "distances"), squared=squared)
    n = len(B)
    if n_components is None:
        w, U = eigh(B)
    elif 1 <= n_components <= n:
        w, U = largest_eigenpairs(B, n_components)
    else:
        raise PosgeomError(f"{n_components} components were asked of {n} points; use 1 to {n}")
    w, U = w[::-1], U[:, ::-1]
    r = positive_rank(w, n) if n_components is None else n_components
    P = fix_signs(U[:, :r]) * np.sqrt(np.maximum(w[:r], 0))
    return MDSResult(coordinates=P, eigenvalues=w)


def largest_eigenpairs(B: FloatArray, r: int) -> tuple[FloatArray, FloatArray]:
    """The r largest eigenvalues of a symmetric (n, n) matrix, ascending, and vectors (n, r)."""
    w, U = eigh(B, subset_by_index=[len(B) - r, len(B) - 1])
    if len(w) < r:  # LAPACK loses some, or all, of many equal ones
        w, U = (x[..., -r:] for x in eigh(B))
    return w, U


def centred_gram(D: FloatArray, *, squared: bool = False) -> FloatArray:
    """B = −½ J D² J, the Gram matrix of the points about their centroid, (n, n)."""
    S = D if squared else D**2
    means = S.mean(axis=0)
    B = -0.5 * (S - means[:, None] - means[None, :] + means.mean())
    return (B + B.T) / 2


def positive_rank(eigenvalues: FloatArray, n: int) -> int:
    """Number of eigenvalues above 10·n·ε·max|λ|, at most n − 1.

    n·ε·max|λ| is numerical zero for an n×n matrix; squaring and centring take their part too.
    """
    floor = 10 * n * np.finfo(np.float64).eps * np.abs(eigenvalues).max(initial=0)
    return min(int((eigenvalues > floor).sum()), n - 1)


def fix_signs(U: FloatArray) -> FloatArray:
    """The columns of U, each with the sign that makes its largest entry positive."""
    if not U.size:
        return U
    # Rounding may make the largest entry of a symmetric column a tie: take the first near it.
    near = np.abs(U) >= np.abs(U).max(axis=0) * (1 - 1e-8)
    largest = U[near.argmax(axis=0), np.arange(U.shape[1])]
    return U * np.where(largest < 0, -1.0, 1.0)


def check_square(D: ArrayLike, what: str) -> FloatArray:
    """D as float64, once it is known to be square, finite and symmetric; else PosgeomError."""
    M = np.asarray(D, dtype=np.float64)
    if M.ndim != 2 or M.shape[0] != M.shape[1] or not len(M):
        raise PosgeomError(f"{what} came with shape {M.shape}; a square (n, n) matrix is needed")
    if not np.isfinite(M).all():
        raise PosgeomError(f"{what} hold NaN or infinity; give finite numbers")
    symmetric = np.array_equal(M, M.T) or np.allclose(M, M.T, 1e-8, 1e-10 * np.abs(M).max())
    if not symmetric:
        raise PosgeomError(f"{what} are not symmetric; give d(i, j) = d(j, i)")
    return M
