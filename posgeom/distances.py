"""Distances between the token distributions of two positions.

Every function takes profiles `P` (n, V), dense or sparse, whose rows are distributions over the
vocabulary, and returns a symmetric (n, n) float64 matrix with an exact zero diagonal.  The
profiles of a corpus are sparse and stay so: Gram products run over dense blocks of columns, or
tiles of many rows (posgeom.root_profiles), the other sums over the tokens that two rows share.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csc_array, csr_array, issparse

from posgeom.errors import PosgeomError
from posgeom.root_profiles import RootProfiles

FloatArray = NDArray[np.float64]

MANY = 1_024  # rows from which on tiles repay the second that their loop takes to compile
_BLOCK = 4_000_000  # entries of a dense column block: 32 MB


def hellinger(P: ArrayLike | csr_array) -> FloatArray:
    """Hellinger chord between the rows of P.

    D[i, j] = ‖√P[i] − √P[j]‖, in 0..√2.  P: (n, V), rows sum to 1.
    Raises PosgeomError for negative or unnormalised rows.  Cirrincione (2026), Eq. 3.
    """
    return np.sqrt(squared_hellinger(P))


def squared_hellinger(P: ArrayLike | csr_array) -> FloatArray:
    """D²[i, j] = ‖√P[i] − √P[j]‖² = 2 − 2 Σ_v √(P[i, v] P[j, v]), in 0..2.

    P: (n, V), rows sum to 1.  Raises PosgeomError for negative or unnormalised rows.
    """
    S = check_profiles(P)
    S.data = np.sqrt(S.data)
    n = S.shape[0]
    if n >= MANY:
        return RootProfiles.of(S).all_squared()
    G = np.zeros((n, n))
    for block in _column_blocks(S):
        block -= block.mean(axis=0)  # distances are unchanged, and 2 − 2·BC no longer cancels
        G += block @ block.T
    squares = np.diag(G)
    return _metric_matrix(squares[:, None] + squares[None, :] - 2 * G)


def hellinger_normalised(P: ArrayLike | csr_array) -> FloatArray:
    """Hellinger distance d_H / √2, in 0..1.  P: (n, V), rows sum to 1."""
    return hellinger(P) / np.sqrt(2)


def fisher_rao(P: ArrayLike | csr_array) -> FloatArray:
    """Fisher–Rao geodesic 2·arccos(BC), in 0..π; two disjoint rows lie π apart.

    Twice the angle between √P[i] and √P[j], taken from their chord since arccos loses half of
    the digits near BC = 1:  2·arccos(BC) = 4·arcsin(d_H / 2).  P: (n, V), rows sum to 1.
    """
    return 4 * np.arcsin(np.minimum(hellinger(P) / 2, np.sqrt(0.5)))


def jensen_shannon(P: ArrayLike | csr_array) -> FloatArray:
    """Square root of the Jensen–Shannon divergence, natural log, in 0..√(ln 2).

    P: (n, V), rows sum to 1.  Endres & Schindelin (2003).
    """

    def shared(p: FloatArray, q: FloatArray) -> FloatArray:
        # What a token adds when two disjoint rows (divergence ln 2) come to share it.
        m = (p + q) / 2
        return m * np.log(2) + m * np.log(m) - (p * np.log(p) + q * np.log(q)) / 2

    return np.sqrt(_metric_matrix(np.log(2) - _shared_sums(check_profiles(P), shared)))


def total_variation(P: ArrayLike | csr_array) -> FloatArray:
    """Total variation ½ Σ_v |P[i, v] − P[j, v]| = 1 − Σ_v min(P[i, v], P[j, v]), in 0..1.

    P: (n, V), rows sum to 1.
    """
    return _metric_matrix(1 - _shared_sums(check_profiles(P), np.minimum))


METRICS: dict[str, Callable[[Any], FloatArray]] = {
    "hellinger": hellinger,
    "hellinger-normalised": hellinger_normalised,
    "fisher-rao": fisher_rao,
    "jensen-shannon": jensen_shannon,
    "total-variation": total_variation,
}


def check_profiles(P: ArrayLike | csr_array) -> csr_array:
    """P as a sparse float64 copy, once its rows are known to be distributions.

    Negative entries down to −1e-12 are rounding and become 0.
    Raises PosgeomError for other negative or non-finite entries, and for rows that do not sum
    to 1 within 1e-6.
    """
    if not issparse(P):
        P = np.atleast_2d(np.asarray(P, dtype=np.float64))
    S = csr_array(P, dtype=np.float64, copy=True)
    S.sum_duplicates()
    if not np.isfinite(S.data).all():
        raise PosgeomError("profiles hold NaN or infinity; give finite probabilities")
    if S.data.size and S.data.min() < -1e-12:
        raise PosgeomError(
            f"profiles hold the negative entry {S.data.min():.3g}; give probabilities, not weights"
        )
    np.maximum(S.data, 0, out=S.data)
    S.eliminate_zeros()
    sums = S.sum(axis=1)
    off = np.flatnonzero(np.abs(sums - 1) > 1e-6)
    if off.size:
        i = off[0]
        raise PosgeomError(
            f"row {i} of the profiles sums to {sums[i]:.6g}; "
            "divide each row by its sum, and leave out rows without tokens"
        )
    return S


def _column_blocks(S: csr_array) -> Iterator[FloatArray]:
    """S as dense blocks of columns, empty columns left out."""
    columns = csc_array(S)
    columns = columns[:, np.flatnonzero(np.diff(columns.indptr))]
    width = max(1, _BLOCK // max(1, S.shape[0]))
    for start in range(0, columns.shape[1], width):
        yield columns[:, start : start + width].toarray()


def _shared_sums(P: csr_array, f: Callable[[FloatArray, FloatArray], FloatArray]) -> FloatArray:
    """(n, n) sums Σ_v f(P[i, v], P[j, v]) over the tokens v that both rows hold."""
    n = P.shape[0]
    columns = csc_array(P)
    sums = np.zeros((n, n))
    for i in range(n):
        row = slice(P.indptr[i], P.indptr[i + 1])
        others = columns[:, P.indices[row]]
        p = np.repeat(P.data[row], np.diff(others.indptr))
        sums[i] = np.bincount(others.indices, f(p, others.data), minlength=n)
    return sums


def _metric_matrix(M: FloatArray) -> FloatArray:
    """M made exactly symmetric, non-negative (rounding takes equal rows below 0), diagonal 0."""
    M = np.maximum((M + M.T) / 2, 0)
    np.fill_diagonal(M, 0)
    return M
