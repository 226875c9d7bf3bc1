"""Errors of every number: the jackknife over folds, their halves, and what no fold shows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.stats import t as student

from posgeom.geometry import Geometry

FloatArray = NDArray[np.float64]

LEFT = 0.05  # of all squares that must be left without the rare tokens, for them to have a shape
CUT_SHARE = 0.5  # of what cutting squares off at 0 changes; chosen by simulation, see numbers


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error and 95% interval; NaN where they are not known."""

    value: float
    se: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")

    def __str__(self) -> str:
        if np.isnan(self.se):
            return f"{self.value:.3f}"
        return f"{self.value:.3f} ± {self.se:.3f}"

    @property
    def differs_from_zero(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low > 0 or self.high < 0


def jackknife(
    measure: Callable[[FloatArray], FloatArray],
    geometry: Geometry,
    *,
    bounds: tuple[float, float] = (-np.inf, np.inf),
    correct: bool = True,
) -> Estimate:
    """A number of the geometry, corrected for bias, with its error.

    measure: from squared distances of all pairs, (…, n(n−1)/2), to numbers (…,).
    With θ of all folds, θ_k without fold k and θ_h of half of the folds:
    se² = (K − 1)/K Σ (θ_k − θ̄_k)²;  bias = θ̄_h − θ, as that of N documents is 1/N of a constant;
    and a 95% interval, which allows for systematic errors too, see numbers.
    bounds: what the number can be; value and interval are cut there.  correct: whether to take
    the bias off.
    Quenouille (1949), whose bias is by halves; Tukey (1958).  The bias (K − 1)(θ̄_k − θ) of the
    jackknife is noisier: it takes small differences K − 1 times.
    A geometry without replicates has no errors.
    """
    found = numbers(lambda S: measure(condensed(S)), geometry)
    value, bias, se = float(found.value), float(found.bias), float(found.se)
    if geometry.replicates is None or geometry.halves is None:
        return Estimate(float(np.clip(value, *bounds)))
    if correct or np.isnan(bias):  # where half of the folds hold no number, all hold none
        value -= bias
    low, high = np.clip([value - found.half, value + found.half], *bounds)
    return Estimate(float(np.clip(value, *bounds)), se, float(low), float(high))


class Numbers(NamedTuple):
    """Numbers of a geometry (…), their bias and standard errors, and half of their intervals."""

    value: FloatArray
    bias: FloatArray
    se: FloatArray
    half: FloatArray


def numbers(measure: Callable[[FloatArray], FloatArray], geometry: Geometry) -> Numbers:
    """Numbers of a geometry with their errors; these are 0 where it has no replicates or halves.

    measure: from squared distances (…, n, n) to numbers (…, m) or (…,).  Bias and se are those of
    the jackknife.  half = √(t² (se² + bias²) + Σ shift²), t of Student with K − 1 degrees of
    freedom.  The bias is one more error, since it is itself only estimated.  The shifts are
    systematic: what changes when all rare tokens count as one, which no fold shows, since all
    folds agree in it; and CUT_SHARE of what changes when squares below 0 count as 0.  Both are
    taken at the same sum of squares.  Signed roots fall short where distances are small beside
    their noise, and those cut off at 0 are too large; halves show a part of that, as bias.
    """
    value = np.asarray(measure(geometry.squared))
    none = np.zeros_like(value)
    if geometry.replicates is None or geometry.halves is None:
        return Numbers(value, none, none, none)
    bias = measure(geometry.halves).mean(axis=0) - value
    se = jackknife_se(measure(geometry.replicates))
    half = student.ppf(0.975, len(geometry.replicates) - 1) * np.hypot(se, bias)
    total = float(geometry.squared.sum())
    cut = np.maximum(geometry.squared, 0)
    for other, share in ((geometry.lumped, 1), (cut, CUT_SHARE)):
        if other is not None:
            half = np.hypot(half, share * _shift(measure, other, value, total))
    return Numbers(value, bias, se, half)


def _shift(
    measure: Callable[[FloatArray], FloatArray], other: FloatArray, value: FloatArray, total: float
) -> FloatArray:
    """By how much numbers change with other squared distances (n, n), brought to the same sum.

    That all distances rise or fall together is no error.  Infinite where the others hold next to
    nothing, and their shape is noise.
    """
    left = float(other.sum())
    if total > 0 and left < LEFT * total:
        return np.full_like(value, np.inf)
    shift = measure(other * (total / left if left > 0 and total > 0 else 1)) - value
    return np.where(np.isnan(shift) & ~np.isnan(value), np.inf, shift)


def jackknife_se(replicates: FloatArray) -> FloatArray:
    """√((K − 1)/K Σ_k (θ_k − θ̄)²) over the first axis, the folds left out.  Tukey (1958)."""
    K = len(replicates)
    se: FloatArray = np.sqrt((K - 1) * replicates.var(axis=0))
    return se


def condensed(M: FloatArray) -> FloatArray:
    """The entries i < j of matrices (…, n, n): (…, n(n−1)/2)."""
    i, j = np.triu_indices(M.shape[-1], 1)
    return M[..., i, j]


def signed_root(squared: FloatArray) -> FloatArray:
    """√s, and −√−s where noise took an estimate below 0: cut off at 0, it would add up."""
    return np.sign(squared) * np.sqrt(np.abs(squared))


def _positive_sum(s: FloatArray) -> FloatArray:
    """Σ D² (…,); NaN where noise took it to 0 or below, and no share of it has a meaning."""
    total = s.sum(axis=-1)
    return np.where(total > 0, total, np.nan)


def stress_of(δ: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """The measure "stress of δ" (pairs,), scale-free: 1 − (Σ δD)² / (Σ δ² Σ D²)."""
    square = δ @ δ

    def measure(s: FloatArray) -> FloatArray:
        if not square:
            return np.ones(s.shape[:-1])
        return 1 - (signed_root(s) @ δ) ** 2 / (square * _positive_sum(s))

    return measure


def scale_of(δ: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """The measure "scale at which δ fits best" (pairs,): Σ δD / Σ δ², 0 where all of δ is 0."""
    square = δ @ δ

    def measure(s: FloatArray) -> FloatArray:
        return signed_root(s) @ δ / square if square else np.zeros(s.shape[:-1])

    return measure


def raw_stress_of(δ: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """The measure "raw stress of δ" (pairs,): Σ (δ − D)² / Σ D².  Cirrincione (2026), Eq. 4."""
    square = δ @ δ

    def measure(s: FloatArray) -> FloatArray:
        total = _positive_sum(s)
        return (square - 2 * (signed_root(s) @ δ) + total) / total

    return measure


def floor_of(groups: NDArray[np.intp]) -> Callable[[FloatArray], FloatArray]:
    """The measure "least stress of any shift-invariant encoding", groups: (pairs,) offsets.

    1 − Σ_k n_k D̄(k)² / Σ D², with D̄(k) the mean of the n_k distances at offset k.
    """
    sizes = np.bincount(groups)
    pairs = np.arange(len(groups))
    means = csr_array((1 / sizes[groups], (pairs, groups)), (len(groups), len(sizes)))

    def measure(s: FloatArray) -> FloatArray:
        return 1 - ((signed_root(s) @ means) ** 2 @ sizes) / _positive_sum(s)

    return measure
