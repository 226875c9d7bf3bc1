"""The shift-invariant part of a geometry as a sum of turning pairs: its harmonic form.

A squared distance that depends on the offset t alone and is Euclidean is a sum of
a_k · 2(1 − cos ω_k t) with energies a_k ≥ 0 (Bochner 1932; Schoenberg 1938): what a rotary
encoding of frequencies ω_k gives to content with these energies.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from posgeom.designers.offsets import OffsetSums
from posgeom.designers.polish import frequency_grid, polish, turns
from posgeom.encodings.table import chord
from posgeom.geometry import Geometry

FloatArray = NDArray[np.float64]

ROUNDS = 12


@dataclass(frozen=True, eq=False)
class Harmonic:
    """Distances √(Σ_k a_k · 2(1 − cos ω_k t)), defined at every offset t.

    frequencies   (K,) ω_k in radians a position, ascending, in 0..π
    energies      (K,) a_k, 0 or more
    """

    frequencies: FloatArray
    energies: FloatArray

    def squared(self, t: ArrayLike) -> FloatArray:
        """Squared distances at offsets t, in the shape of t."""
        return self.distance(t) ** 2

    def distance(self, t: ArrayLike) -> FloatArray:
        """Distances at offsets t, in the shape of t."""
        t = np.asarray(t, dtype=np.float64)
        return chord(t.ravel(), self.frequencies, self.energies).reshape(t.shape)


def harmonic_form(geometry: Geometry) -> Harmonic:
    """The harmonic distances of least stress against a geometry, by flat position numbers.

    Their scale is that of the geometry.  PosgeomError where its squares sum to 0 or less.
    """
    sums = OffsetSums.of(geometry)
    ω, a = harmonic_lines(sums)
    return Harmonic(ω, a * sums.scale(Harmonic(ω, a).distance(sums.offsets)) ** 2)


def harmonic_lines(sums: OffsetSums) -> tuple[FloatArray, FloatArray]:
    """Frequencies, ascending, and energies (K,) of the least stress found, at any scale.

    The best energies over a grid of frequencies; neighbours on the grid, as which a frequency
    between them comes out, merged; then both moved until the stress is least.
    """
    grid = frequency_grid(sums.offsets)
    ω, a = merge_neighbours(grid, best_energies(sums, turns(sums.offsets, grid)))
    ω, a = polish(sums, ω, a, np.zeros(len(ω), dtype=np.int64), free=True)
    order = np.argsort(ω)
    return ω[order], a[order]


def best_energies(sums: OffsetSums, X: FloatArray) -> FloatArray:
    """min over a ≥ 0 of the stress of f = √(X a): (K,).

    X: (m, K) squared distances that each frequency adds at each offset, at unit energy.  With
    s = X a the raw stress is Σ_t c_t (√s_t − D̄_t)² and a constant: convex in a.  Newton's
    steps, each a non-negative least squares of the targets 3s − 2s√s/D̄ with weights c D̄ / s√s;
    the first one of D̄² with weights c/D̄², since (δ² − D²)² ≈ 4D² (δ − D)².
    """
    c = sums.pairs
    D = np.maximum(sums.mean, 1e-3 * np.abs(sums.mean).max())  # noise may take a mean below 0

    def raw(s: FloatArray) -> float:
        return float(c @ (np.sqrt(s) - D) ** 2)

    a = least_squares(X, D**2, c / np.maximum(D, 0.1 * D.max()) ** 2)
    for _ in range(ROUNDS):
        s = X @ a
        if raw(s) <= 1e-6 * sums.total:
            break
        q = np.maximum(s, 1e-6 * D.max() ** 2)
        to = least_squares(X, 3 * q - 2 * q**1.5 / D, c * D / q**1.5)
        steps = 0.5 ** np.arange(10)
        tried = np.array([raw((1 - η) * s + η * (X @ to)) for η in steps])
        best = tried.argmin()
        gain = raw(s) - tried[best]
        if gain <= 1e-6 * sums.total:
            break
        a = (1 - steps[best]) * a + steps[best] * to
    return a


def least_squares(X: FloatArray, values: FloatArray, weights: FloatArray) -> FloatArray:
    """min over a ≥ 0 of Σ_t w_t ((X a)_t − v_t)²: (K,).  X: (m, K).  Lawson & Hanson (1974)."""
    Y = X * np.sqrt(weights)[:, None]
    length = np.linalg.norm(Y, axis=0)  # columns of slow frequencies are tiny
    length[length == 0] = 1  # an axis along which nothing moves
    a, _ = nnls(Y / length, values * np.sqrt(weights), maxiter=20 * X.shape[1])
    return np.asarray(a / length)


def merge_neighbours(grid: FloatArray, energies: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Frequencies with energies above 0, neighbours two by two as one at their centre."""
    used = np.flatnonzero(energies)
    ω, a = grid[used], energies[used]
    begins = np.diff(used, prepend=-2) > 1  # a run of neighbours
    place = np.arange(len(used)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
    group = np.cumsum(begins | (place % 2 == 0)) - 1
    merged = np.bincount(group, a).astype(np.float64)
    return np.bincount(group, a * ω) / merged, merged
