"""Coordinates of very many positions from a few of them: landmark MDS."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from posgeom.distances import check_profiles
from posgeom.errors import PosgeomError
from posgeom.mds import MDSResult, classical_mds, fix_signs
from posgeom.root_profiles import RootProfiles

FloatArray = NDArray[np.float64]

LANDMARKS = 2_048


@dataclass(frozen=True, eq=False)
class LandmarkResult:
    """What landmark MDS finds.

    coordinates  (n, r) of all rows, by falling sum of squares; columns sum to 0
    landmarks    (m,) the rows that were taken for landmarks
    mds          the classical MDS of these alone
    """

    coordinates: FloatArray = field(repr=False)
    landmarks: NDArray[np.int64] = field(repr=False)
    mds: MDSResult = field(repr=False)


def landmark_mds(
    P: ArrayLike | csr_array, n_components: int, n_landmarks: int = LANDMARKS
) -> LandmarkResult:
    """MDS of the Hellinger distances between the rows of P, from those to m landmarks alone.

    The landmarks, evenly spread rows, are placed by classical MDS, all rows by their distances to
    the landmarks (Gower 1968; de Silva & Tenenbaum 2004): x = −½ Λ^(−½) Uᵀ (d² − mean d²).  The
    chord is Euclidean, so that this is the projection of √P[i] on the landmarks' principal axes,
    and no distance is computed: O((nnz + V m) r) in place of n².
    P: (n, V), dense or sparse, rows sum to 1.  n_components: r, 1 to m.  n_landmarks: m, up to n.
    Of all rows as landmarks it is spectral_mds.  An axis that does not stand above the sampling
    noise is the landmarks' own noise, which no other row follows.
    Raises PosgeomError for rows that are no distributions, and for r or m out of range.
    """
    S = check_profiles(P)
    S.data = np.sqrt(S.data)
    n = S.shape[0]
    if n_landmarks < 1:
        raise PosgeomError(f"{n_landmarks} landmarks came; give {n_components} or more")
    rows = np.unique(np.linspace(0, n - 1, min(n_landmarks, n)).round().astype(np.int64))
    L = S[rows]
    mds = classical_mds(RootProfiles.of(L).all_squared(), n_components, squared=True)
    w = np.maximum(mds.eigenvalues, 0)
    U = mds.coordinates / np.maximum(w, 1e-300)  # U Λ^(−½); axes without length stay 0
    mean = np.asarray(L.mean(axis=0))
    axes = L.T @ U - np.outer(mean, U.sum(axis=0))  # (V, r), orthonormal
    X = S @ axes - mean @ axes
    X -= X.mean(axis=0)
    turned = np.linalg.eigh(X.T @ X)[1][:, ::-1]  # de Silva & Tenenbaum's last step, of all rows
    return LandmarkResult(fix_signs(X @ turned), rows, mds)
