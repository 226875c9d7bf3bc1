"""How many dimensions a geometry has, and how many an encoding should keep."""

import numpy as np
from numpy.typing import NDArray

from posgeom.errors import PosgeomError
from posgeom.stress import pairs

FloatArray = NDArray[np.float64]

STRESS_KEPT = 0.01  # what rank "auto" may leave without errors: distances right to about a tenth


def participation_ratio(eigenvalues: FloatArray) -> float:
    """(Σλ)² / Σλ² over the positive eigenvalues: 1 for a line, n for n equal ones; 0 if none."""
    w = np.maximum(eigenvalues, 0)
    return float(w.sum() ** 2 / (w @ w)) if w.any() else 0.0


def entropy_rank(eigenvalues: FloatArray) -> float:
    """exp(−Σ p log p) with p = λ / Σλ over the positive eigenvalues; 0 if there are none.

    Roy & Vetterli (2007), effective rank.
    """
    w = eigenvalues[eigenvalues > 0]
    p = w / w.sum()
    return float(np.exp(-(p @ np.log(p)))) if w.size else 0.0


def explained_share(eigenvalues: FloatArray) -> FloatArray:
    """Share of the positive eigenvalues' sum that the first r hold, r = 1..n, in 0..1."""
    w = np.maximum(eigenvalues, 0)
    return np.cumsum(w) / w.sum() if w.any() else np.zeros_like(w)


def above_noise(eigenvalues: FloatArray) -> int:
    """Number of eigenvalues larger than the most negative one is in size, at most n − 1.

    Noise that is centred about 0 makes as large negative eigenvalues as positive ones; a plug-in
    Hellinger geometry has none below rounding, and keeps them all.
    """
    rounding = 10 * len(eigenvalues) * np.finfo(np.float64).eps * np.abs(eigenvalues).max(initial=0)
    above = eigenvalues > max(rounding, -eigenvalues.min(initial=0))
    return min(int(above.sum()), len(eigenvalues) - 1)


def stress_by_rank(coordinates: FloatArray, D: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Stress and raw stress of the first r coordinates against D, for r = 1..R.

    coordinates: (n, R); D: (n, n).  Returns two arrays (R,).
    """
    d = pairs(D)
    i, j = np.triu_indices(len(D), 1)
    square = np.zeros_like(d)
    stresses = []
    for axis in coordinates.T:
        square += (axis[i] - axis[j]) ** 2
        δ = np.sqrt(square)
        α = δ @ d / square.sum() if square.any() else 0.0
        stresses.append((((α * δ - d) ** 2).sum(), ((δ - d) ** 2).sum()))
    scale_free, raw = np.array(stresses).reshape(-1, 2).T / (d @ d)
    return scale_free, raw


def choose_rank(
    rank: int | str,
    stresses: FloatArray,
    n: int,
    dim: int,
    *,
    errors: FloatArray | None = None,
    explained: FloatArray | None = None,
    ranks: NDArray[np.int64] | None = None,
) -> int:
    """The rank to keep of n positions in a model of width dim: a number, or a rule by name.

    "auto"           the smallest whose stress is within one standard error of the least; where
                     errors are not known, "stress=0.01"
    "stress=S"       the smallest whose stress is at most S
    "explained=E"    the smallest that holds the share E of the positive eigenvalues
    A rule that no rank meets takes the largest.

    stresses, errors, explained: (R,) scale-free stress, its standard error and the share explained
    at each of `ranks`, ascending, by default 1..R.  Breiman et al. (1984), sec. 3.4.3: one
    standard error.
    Raises PosgeomError for a rank outside 1..min(n − 1, dim) and a rule that does not exist.
    """
    at = np.arange(1, len(stresses) + 1) if ranks is None else ranks
    name, _, value = str(rank).partition("=")
    if name == "auto" and not value:
        if errors is None or not np.isfinite(errors).all():
            return _first(at, stresses <= STRESS_KEPT)
        least = int(stresses.argmin())
        return _first(at, stresses <= stresses[least] + errors[least])
    if name == "stress":
        return _first(at, stresses <= _share(rank, value))
    if name == "explained" and explained is not None:
        return _first(at, explained >= _share(rank, value))
    try:
        r = int(rank)
    except ValueError:
        raise PosgeomError(
            f"rank {rank!r} is neither a number nor a rule; "
            "use --rank auto or a number, stress=0.01 or explained=0.9"
        ) from None
    return check_rank(r, n, dim)


def _first(ranks: NDArray[np.int64], enough: NDArray[np.bool_]) -> int:
    if not enough.any():
        return int(ranks[-1]) if len(ranks) else 1
    return int(ranks[enough.argmax()])


def _share(rule: int | str, value: str) -> float:
    """The number of a rule, in 0..1; PosgeomError for any other."""
    try:
        share = float(value)
    except ValueError:
        share = float("nan")
    if not 0 <= share <= 1:
        raise PosgeomError(f"--rank {rule} came; give a number from 0 to 1 after the =")
    return share


def check_rank(rank: int, n: int, dim: int) -> int:
    """`rank` where 1 ≤ rank ≤ min(n − 1, dim), else PosgeomError."""
    if rank > dim:
        raise PosgeomError(
            f"rank {rank} does not fit in dimension {dim}; raise --dim or lower --rank"
        )
    if not 1 <= rank <= n - 1:
        raise PosgeomError(
            f"rank {rank} was asked, {n} positions span at most {n - 1} dimensions; "
            f"use --rank 1 to {n - 1}"
        )
    return rank
