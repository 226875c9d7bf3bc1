"""Errors of the MDS map: how far each position could as well lie from where it is drawn."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import orthogonal_procrustes
from scipy.sparse.linalg import ArpackError, eigsh
from scipy.stats import f as fisher

from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry
from posgeom.inference import jackknife_se
from posgeom.mds import centred_gram, classical_mds

FloatArray = NDArray[np.float64]

DENSE = 64  # positions up to which all axes are found as fast as two


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The first two MDS coordinates of the positions, with their errors.

    coordinates   (n, 2), columns sum to 0; a geometry of one dimension has 0 in the second
    covariance    (n, 2, 2) of each position's place
    n_folds       K that the covariance comes from
    """

    coordinates: FloatArray = field(repr=False)
    covariance: FloatArray = field(repr=False)
    n_folds: int

    def ellipses(self, level: float = 0.95, n_points: int = 48) -> FloatArray:
        """Outlines of the regions that hold each position with probability `level`, (n, points, 2).

        x + T Σ^½ u for unit vectors u, with Hotelling's T² = 2(K−1)/(K−2) F(2, K−2), since Σ is
        estimated from K folds.
        """
        ν = self.n_folds - 1
        T = np.sqrt(2 * ν / (ν - 1) * fisher.ppf(level, 2, ν - 1))
        w, U = np.linalg.eigh(self.covariance)
        root = U * np.sqrt(np.maximum(w, 0))[:, None, :]
        t = np.linspace(0, 2 * np.pi, n_points, endpoint=False)
        u = np.stack([np.cos(t), np.sin(t)])
        outlines: FloatArray = self.coordinates[:, None, :] + T * (root @ u).transpose(0, 2, 1)
        return outlines


def mds_trajectory(geometry: Geometry) -> Trajectory:
    """The first two MDS coordinates of a geometry, with jackknife errors over its folds.

    MDS leaves rotation and reflection open, so each replicate's configuration X_k (n, 2) is first
    turned onto the full one, X:  R_k = argmin ‖X_k R − X‖ over orthogonal R (Schönemann 1966).
    With Y_k = X_k R_k and Ȳ their mean,  Σ_i = (K − 1)/K Σ_k (Y_ki − Ȳ_i)(Y_ki − Ȳ_i)ᵀ.
    The turn takes out what two axes of like variance mix in the plane; what they mix with the
    third stays in, and makes the ellipses large.

    Raises PosgeomError for a geometry without replicates, or with fewer than three.
    """
    if geometry.replicates is None or len(geometry.replicates) < 3:
        raise PosgeomError(
            "this geometry has no replicates to take errors from; estimate it with --estimator "
            "debiased, on eight folds of documents or more"
        )
    X = _padded(classical_mds(geometry.squared, squared=True).coordinates)
    Y = np.stack([_turned(_plane(squared), X) for squared in geometry.replicates])
    K = len(Y)
    E = Y - Y.mean(axis=0)
    return Trajectory(X, (K - 1) / K * np.einsum("kia,kib->iab", E, E), K)


def eigenvalue_errors(geometry: Geometry) -> FloatArray | None:
    """Jackknife standard errors (n,) of the MDS eigenvalues; None where errors are not known.

    To first order, w_k = diag(Uᵀ B_k U) with U the eigenvectors of the whole B, and B_k the Gram
    matrix without fold k: the variance along each axis as it stands, whatever near ties do.
    """
    if geometry.replicates is None:
        return None
    U = np.linalg.eigh(centred_gram(geometry.squared, squared=True))[1][:, ::-1]
    grams = (centred_gram(squared, squared=True) for squared in geometry.replicates)
    return jackknife_se(np.stack([np.einsum("ia,ia->a", U, B @ U) for B in grams]))


def _plane(squared: FloatArray) -> FloatArray:
    """(n, 2) coordinates of the two largest axes."""
    n = len(squared)
    if n > DENSE:
        try:
            B = centred_gram(squared, squared=True)
            w, U = eigsh(B, 2, which="LA", v0=np.arange(1.0, n + 1))  # a start, for equal bytes
            return np.asarray(U * np.sqrt(np.maximum(w, 0)))
        except ArpackError:  # no two axes stand out, or all is 0
            pass
    return _padded(classical_mds(squared, min(2, n), squared=True).coordinates)


def _padded(coordinates: FloatArray) -> FloatArray:
    """The first two columns; 0 for those that are not there."""
    X = np.zeros((len(coordinates), 2))
    width = min(2, coordinates.shape[1])
    X[:, :width] = coordinates[:, :width]
    return X


def _turned(X: FloatArray, onto: FloatArray) -> FloatArray:
    turned: FloatArray = X @ orthogonal_procrustes(X, onto)[0]
    return turned
