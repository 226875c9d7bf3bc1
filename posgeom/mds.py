"""Classical multidimensional scaling: from distances to coordinates."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array

from posgeom.distances import check_profiles
from posgeom.errors import PosgeomError
from posgeom.krylov import krylov_eigenpairs
from posgeom.root_profiles import RootProfiles

FloatArray = NDArray[np.float64]

MANY, FEW = 1_024, 32  # points, and points an axis, from which on products beat a decomposition
_BLOCK = 256  # rows and columns of a block: 512 KB
TOLERANCE = 1e-8  # of an eigenvector's residual, in parts of the largest eigenvalue


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
    else:
        check_components(n_components, n)
        w, U = largest_eigenpairs(B, n_components)
    w, U = w[::-1], U[:, ::-1]
    r = positive_rank(w, n) if n_components is None else n_components
    P = fix_signs(U[:, :r]) * np.sqrt(np.maximum(w[:r], 0))
    return MDSResult(coordinates=P, eigenvalues=w)


def spectral_mds(
    P: ArrayLike | csr_array, n_components: int, *, tolerance: float = TOLERANCE, seed: int = 0
) -> MDSResult:
    """Classical MDS of the Hellinger distances between the rows of P, without an (n, n) matrix.

    B = X Xᵀ with X = √P less its mean row: its eigenvalues are the squared singular values of X,
    its coordinates U Σ.  The same as classical_mds(hellinger(P), n_components).
    P: (n, V), dense or sparse, rows sum to 1.  n_components: r in 1..n.  tolerance: of the residual
    ‖B u − λ u‖ of each axis, in parts of the largest eigenvalue; the error of an eigenvalue goes as
    its square.  seed: of the vectors that the search starts from.
    Raises PosgeomError for rows that are no distributions, and for r out of range.
    """
    S = check_profiles(P)
    S.data = np.sqrt(S.data)
    return spectral_mds_of(RootProfiles.of(S), n_components, tolerance=tolerance, seed=seed)


def spectral_mds_of(
    roots: RootProfiles, n_components: int, *, tolerance: float = TOLERANCE, seed: int = 0
) -> MDSResult:
    """spectral_mds of root profiles that are in tiles already."""
    n = roots.n
    check_components(n_components, n)
    w, U, _ = krylov_eigenpairs(roots.gram_times, n, n_components, tolerance=tolerance, seed=seed)
    w, U = w[::-1], U[:, ::-1]
    return MDSResult(fix_signs(U) * np.sqrt(np.maximum(w, 0)), w)


def check_components(r: int, n: int) -> None:
    """Raise PosgeomError unless n points have r axes."""
    if not 1 <= r <= n:
        raise PosgeomError(f"{r} components were asked of {n} points; use 1 to {n}")


def largest_eigenpairs(B: FloatArray, r: int) -> tuple[FloatArray, FloatArray]:
    """The r largest eigenvalues of a symmetric (n, n) matrix, ascending, and vectors (n, r)."""
    if len(B) >= MANY and r <= len(B) // FEW:
        half = B.astype(np.float32)  # half as much to read for each product

        def rough(Y: FloatArray) -> FloatArray:
            return (half @ Y.astype(np.float32)).astype(np.float64)

        w, U, left = krylov_eigenpairs(lambda Y: B @ Y, len(B), r, rough=rough, tolerance=TOLERANCE)
        if left <= TOLERANCE:
            return w, U
    w, U = eigh(B, subset_by_index=[len(B) - r, len(B) - 1])
    if len(w) < r:  # LAPACK loses some, or all, of many equal ones
        w, U = (x[..., -r:] for x in eigh(B))
    return w, U


def centred_gram(D: FloatArray, *, squared: bool = False) -> FloatArray:
    """B = −½ J D² J, the Gram matrix of the points about their centroid, (n, n)."""
    B = np.array(D, dtype=np.float64)
    if not squared:
        B *= B
    mean = B.mean(axis=0)
    mean -= mean.mean() / 2
    for a, b in square_blocks(len(B)):
        block = (B[a, b] + B[b, a].T) / 2  # rounding, and what a user gives, may not be symmetric
        block -= mean[a, None] + mean[b]
        block *= -0.5
        B[a, b], B[b, a] = block, block.T
    return B


def square_blocks(n: int) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of the blocks on and above the diagonal of an (n, n) matrix.

    A transpose is read across the lines of memory: block by block each is fetched only once.
    """
    begins = range(0, n, _BLOCK)
    for a in begins:
        for b in begins[a // _BLOCK :]:
            yield slice(a, a + _BLOCK), slice(b, b + _BLOCK)


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
    equal = all(np.array_equal(M[a, b], M[b, a].T) for a, b in square_blocks(len(M)))
    if not equal and not np.allclose(M, M.T, 1e-8, 1e-10 * np.abs(M).max()):
        raise PosgeomError(f"{what} are not symmetric; give d(i, j) = d(j, i)")
    return M
