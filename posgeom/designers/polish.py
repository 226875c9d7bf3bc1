"""Frequencies moved until the stress itself is least: first by jumps, then by sliding."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from posgeom.designers.offsets import OffsetSums

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

SLOWEST = 0.01  # radians over the longest offset: a chord that bends by less than 1e-5 of itself
SWEEPS = 3
STEPS = 300


def frequency_grid(offsets: IntArray) -> FloatArray:
    """Frequencies ascending, spaced by half of what the offsets, up to T, can tell apart.

    π/2T, … evenly up to π, or where all offsets are multiples of g to π/g, beyond which they see
    the same again; and below, down to SLOWEST/T, by factors of about 1.3.
    """
    T, g = max(1, int(offsets.max())), max(1, int(np.gcd.reduce(offsets)))
    even = np.linspace(0, np.pi / g, 2 * T // g + 1)[1:]
    below = np.geomspace(SLOWEST / T, even[0], 20)[:-1]
    return np.r_[below, even]


def turns(offsets: IntArray, frequencies: FloatArray) -> FloatArray:
    """2(1 − cos ω_k t) for offsets t (m,) and frequencies ω (K,): (m, K), without cancelling."""
    return np.asarray(4 * np.sin(np.outer(offsets, frequencies / 2)) ** 2)


def quantiles(grid: FloatArray, energies: FloatArray, count: int) -> FloatArray:
    """(count,) frequencies of a grid, each in the middle of an equal share of the energy."""
    mass = np.cumsum(energies)
    return grid[np.searchsorted(mass, (np.arange(count) + 0.5) / count * mass[-1])]


def stress_at(sums: OffsetSums, ω: FloatArray, a: FloatArray, axes: IntArray) -> float:
    """Stress of f_t = √(Σ_k a_k · 2(1 − cos ω_k t_k)), t_k the offset along the axis of pair k."""
    T = sums.offsets.reshape(len(sums.offsets), -1)[:, axes]
    return float(sums.stress(np.sqrt(4 * np.sin(T * (ω / 2)) ** 2 @ a)))


def settle(
    sums: OffsetSums, starts: list[FloatArray], axes: IntArray, grids: list[FloatArray]
) -> FloatArray:
    """Frequencies (K,) of equal energies: the best that jumps and slides lead to from the starts.

    starts: (K,) each; axes: (K,) the axis of each pair; grids: frequencies to jump to, one an axis.
    """
    ones = np.ones(len(axes))
    jumped = [exchange(sums, start, axes, grids) for start in starts]
    found = [polish(sums, ω, ones, axes, free=False)[0] for ω in jumped]
    return min(found, key=lambda ω: stress_at(sums, ω, ones, axes))


def exchange(
    sums: OffsetSums, frequencies: FloatArray, axes: IntArray, grids: list[FloatArray]
) -> FloatArray:
    """Frequencies (K,) of equal energies, each in turn exchanged for the best one of a grid.

    Stress of f_t = √(Σ_k 2(1 − cos ω_k t_k)), t_k the offset along the axis of pair k.  A slide
    ends in the next valley; these jumps do not.  axes: (K,); grids: one an axis.
    """
    offsets = sums.offsets.reshape(len(sums.offsets), -1)
    tables = [turns(offsets[:, axis], grid).T for axis, grid in enumerate(grids)]
    weighted = [table @ sums.pairs for table in tables]
    ω = frequencies.copy()
    own = np.array([turns(offsets[:, axis], ω[[k]])[:, 0] for k, axis in enumerate(axes)])
    least = float(sums.stress(np.sqrt(own.sum(axis=0))))
    for _ in range(SWEEPS):
        before = least
        for k, axis in enumerate(axes):
            rest = np.delete(own, k, axis=0).sum(axis=0)
            a, b = np.sqrt(rest + tables[axis]) @ sums.sums, rest @ sums.pairs + weighted[axis]
            stress = 1 - a**2 / (b * sums.total)
            best = stress.argmin()
            if stress[best] < least:
                least, ω[k], own[k] = stress[best], grids[axis][best], tables[axis][best]
        if before - least <= 1e-3 * before:
            break
    return ω


def polish(
    sums: OffsetSums, frequencies: FloatArray, energies: FloatArray, axes: IntArray, *, free: bool
) -> tuple[FloatArray, FloatArray]:
    """Frequencies and energies (K,) of a stress that is not above that of those given.

    Stress as in stress_at, by L-BFGS-B over log ω_k, from SLOWEST to π, and over √a_k where
    energies are free.  axes: (K,).
    """
    K = len(frequencies)
    a = energies / energies.mean()  # the stress does not see a scale, the optimiser does

    def objective(x: FloatArray) -> tuple[float, FloatArray]:
        ω, root = np.exp(x[:K]), x[K:] if free else np.sqrt(a)
        stress, by_ω, by_a = slopes(sums, ω, root**2, axes)
        return stress, np.r_[ω * by_ω, 2 * root * by_a] if free else ω * by_ω

    start = np.r_[np.log(frequencies), np.sqrt(a)] if free else np.log(frequencies)
    slowest = np.log(SLOWEST / sums.offsets.max())
    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(slowest, np.log(np.pi))] * K + [(0, None)] * (len(start) - K),
        options={"maxiter": STEPS, "maxfun": 2 * STEPS, "ftol": 1e-10, "gtol": 1e-9},
    )
    x = found.x if found.fun <= objective(start)[0] else start
    return np.exp(x[:K]), x[K:] ** 2 if free else a


def slopes(
    sums: OffsetSums, ω: FloatArray, a: FloatArray, axes: IntArray
) -> tuple[float, FloatArray, FloatArray]:
    """Stress as in stress_at, with ∂stress/∂ω_k and ∂stress/∂a_k, (K,) each.

    Through ∂f²_t/∂ω_k = 2 a_k t_k sin(ω_k t_k) and ∂f²_t/∂a_k = 4 sin²(ω_k t_k / 2).
    """
    T = sums.offsets.reshape(len(sums.offsets), -1)[:, axes]
    sine, cosine = np.sin(T * (ω / 2)), np.cos(T * (ω / 2))
    squares = 4 * sine**2
    f = np.sqrt(squares @ a)
    if not f.any():
        return 1.0, np.zeros(len(ω)), np.zeros(len(a))
    g = sums.gradient(f) / (2 * np.maximum(f, 1e-150))  # ∂stress/∂f²
    return float(sums.stress(f)), a * (g @ (4 * T * sine * cosine)), g @ squares
