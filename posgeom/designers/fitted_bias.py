"""Bias encodings fitted to a geometry: the slopes of ALiBi, the parameters of KERPLE."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, nnls

from posgeom.designers.choice import least_stress
from posgeom.designers.offsets import OffsetSums
from posgeom.encodings import Alibi, BiasEncoding, Kerple, alibi_slopes
from posgeom.encodings.registry import Spec, convert_options, family_options
from posgeom.geometry import Geometry

FloatArray = NDArray[np.float64]
Tangent = Callable[[FloatArray], FloatArray]
Bias = TypeVar("Bias", bound=BiasEncoding)

SLOW, FAST = 1e-3, 20.0  # a slope m looks like a straight line for mt ≤ SLOW, constant for ≥ FAST

STEPS = 60  # later ones creep along a bound, or among equal slopes, and gain nothing


def fitted_alibi(geometry: Geometry, spec: Spec, dim: int) -> Alibi:
    """ALiBi with slopes for a geometry: `fitted-alibi[:heads=8,reading=linear,…]`.

    Under "linear" and "kernel" the distance over all heads is c·t or c·√t whatever the slopes,
    so only their scale can be known: they keep ALiBi's geometric ratios at the scale of least raw
    stress, and the scale-free stress is exactly the default's.  Under "attention" D²(t) =
    Σ_h 2(1 − e^(−m_h t)) is a mixture of ranges, and the slopes are those of least scale-free
    stress; the scale of attention is fixed.  Never of a higher corrected stress than the default.
    `head=h` is one head of the same fit; causal as in ALiBi.
    """
    given = bias_options(spec, Alibi, "heads", "reading", "head", "causal")
    head = given.pop("head", None)
    default = Alibi(**given, spec=spec.text)
    sums = OffsetSums.of(geometry)
    if default.reading != "attention":
        slopes = bias_factor(sums, default) * default.slopes
        return replace(default, own_slopes=tuple(slopes.tolist()), head=head)

    def make(logs: FloatArray) -> Alibi:
        return replace(default, own_slopes=tuple(np.sort(np.exp(logs))[::-1].tolist()))

    def tangent(logs: FloatArray) -> FloatArray:
        mt = np.outer(sums.offsets, np.exp(logs))
        return mt * np.exp(-mt) / np.sqrt(-2 * np.expm1(-mt).sum(axis=1, keepdims=True))

    bounds = np.log(slope_bounds(sums))
    starts = quantile_slopes, paired_slopes, scaled_slopes
    found = [improved(sums, make, np.log(m(sums, default.heads)), bounds, tangent) for m in starts]
    return replace(least_stress(geometry, [*found, default]), head=head)


def fitted_kerple(geometry: Geometry, spec: Spec, dim: int) -> Kerple:
    """KERPLE with r1, r2 for a geometry: `fitted-kerple[:kind=log,heads=1,reading=linear,…]`.

    r2 of least scale-free stress, power: 0 < r2 ≤ 2, and r1 of least raw stress at that r2;
    under "attention", whose scale is fixed, both of least scale-free stress.  All heads have the
    same; head and causal as in fitted_alibi.  Never of a higher corrected stress than r1 = r2 = 1.
    """
    given = bias_options(spec, Kerple, "heads", "kind", "reading", "head", "causal")
    head = given.pop("head", None)
    default = Kerple(**given, spec=spec.text)
    sums = OffsetSums.of(geometry)
    highest = 2.0 if default.kind == "power" else 1e6
    lowest = 1e-3 if default.kind == "power" else SLOW / sums.offsets[-1]

    def make(logs: FloatArray) -> Kerple:
        *r1, r2 = np.exp(logs).tolist()
        return replace(default, r1=tuple(r1) or (1.0,), r2=(min(r2, highest),))

    grid = np.log(np.geomspace(lowest, highest, 64))[:, None]
    if default.reading == "attention":
        r1, r2 = np.log(np.geomspace(1e-6, 1e3, 19)), grid[::7]
        grid = np.column_stack([np.tile(r1, len(r2)), np.repeat(r2, len(r1))])
    t = sums.offsets.astype(np.float64)
    start = grid[sums.stress(np.array([make(x).at_offsets(t) for x in grid])).argmin()]
    best = least_stress(geometry, [improved(sums, make, start, grid[[0, -1]]), default])
    return replace(best, r1=(best.r1[0] * bias_factor(sums, best),), head=head)


def bias_options(spec: Spec, family: type[BiasEncoding], *names: str) -> dict[str, Any]:
    """The options of a spec, of those that a family has by these names."""
    known = family_options(family)
    return convert_options(spec, {name: known[name][0] for name in names})


def bias_factor(sums: OffsetSums, encoding: BiasEncoding) -> float:
    """What to multiply the bias by for the least raw stress; 1 where that is no help.

    With α = Σ fS / Σ cf² the best scale of the distances f: α when they are "linear" in the bias,
    α² under "kernel".  1 under "attention", which is no power of the bias, and for α ≤ 0, which
    no bias can follow.
    """
    f = encoding.at_offsets(sums.offsets.astype(np.float64))
    power = {"linear": 1, "kernel": 2, "attention": 0}[encoding.reading]
    square = f**2 @ sums.pairs
    α = f @ sums.sums / square if square > 0 else 0.0
    return float(α**power) if α > 0 else 1.0


def improved(
    sums: OffsetSums,
    make: Callable[[FloatArray], Bias],
    start: FloatArray,
    bounds: FloatArray,
    tangent: Tangent | None = None,
) -> Bias:
    """The encoding make(x) of least scale-free stress near a start, x in the bounds, low and high.

    Least squares of √(c_t / Σ D²) (α f_t − D̄_t) over x, with α the best scale at each x (variable
    projection, Golub & Pereyra 1973): its sum of squares is that part of the stress that x can
    change.  Each step lowers it.  tangent: from x to ∂f_t/∂x, (m, parameters); else by differences.
    """
    t, root = sums.offsets.astype(np.float64), np.sqrt(sums.pairs / sums.total)
    goal = root * sums.mean

    def scaled(x: FloatArray) -> tuple[FloatArray, float]:
        f = root * make(x).at_offsets(t)
        return f, float(f @ goal / (f @ f))

    def residuals(x: FloatArray) -> FloatArray:
        f, α = scaled(x)
        return α * f - goal

    def jacobian(x: FloatArray, tangent: Tangent) -> FloatArray:
        f, α = scaled(x)
        J = root[:, None] * tangent(x)
        return α * J + np.outer(f, (goal - 2 * α * f) @ J / (f @ f))  # the scale moves along

    slopes = "3-point" if tangent is None else partial(jacobian, tangent=tangent)
    x, ε = np.clip(start, *bounds), 1e-12
    found = least_squares(residuals, x, slopes, bounds, ftol=ε, xtol=ε, gtol=ε, max_nfev=STEPS)
    return make(found.x)


def quantile_slopes(sums: OffsetSums, heads: int) -> FloatArray:
    """Slopes (heads,) that share evenly the masses of D²(t) ≈ Σ_k a_k 2(1 − e^(−m_k t)), a_k ≥ 0.

    Non-negative least squares over a grid of m.  Such mixtures are the Bernstein functions that
    start at 0, but for a straight line, which slow slopes come near to.
    """
    grid, squares = range_grid(sums, 64)
    D = np.maximum(sums.mean, 0)
    if not D.any():  # noise took all below 0
        return alibi_slopes(heads)
    # d(D²) = 2D dD: an error of the square counts as the error of the distance that it makes
    weight = np.sqrt(sums.pairs) / (2 * np.maximum(D, 1e-3 * D.max()))
    mass = nnls(weight[:, None] * squares.T, weight * D**2)[0]
    held = mass > 0
    middle = np.cumsum(mass) - mass / 2
    share = (np.arange(heads) + 0.5) / heads * mass.sum()
    return np.exp(np.interp(share, middle[held], np.log(grid[held])))


def paired_slopes(sums: OffsetSums, heads: int) -> FloatArray:
    """The slopes (heads,) of least stress that have one value, or two, of a grid."""
    grid, squares = range_grid(sums, 32)
    best = [
        sums.stress(np.sqrt(k * squares[:, None] + (heads - k) * squares[None]))
        for k in range(heads)
    ]
    k, first, second = np.unravel_index(np.argmin(best), np.shape(best))
    return np.where(np.arange(heads) < k, grid[first], grid[second])


def scaled_slopes(sums: OffsetSums, heads: int) -> FloatArray:
    """The slopes of ALiBi (heads,) times a factor of a grid, that of least stress."""
    m = alibi_slopes(heads)
    low, high = slope_bounds(sums)
    factors = np.geomspace(low / m.max(), high / m.min(), 64)
    mt = np.outer(m, sums.offsets)
    f = np.sqrt([-2 * np.expm1(-c * mt).sum(axis=0) for c in factors])
    return m * factors[sums.stress(f).argmin()]


def slope_bounds(sums: OffsetSums) -> tuple[float, float]:
    """The slopes past which a fit sees no difference: a straight line, and a constant."""
    return float(SLOW / sums.offsets[-1]), float(FAST / sums.offsets[0])


def range_grid(sums: OffsetSums, count: int) -> tuple[FloatArray, FloatArray]:
    """Slopes (count,) between the bounds, and 2(1 − e^(−mt)) of each at the offsets, (count, m)."""
    m = np.geomspace(*slope_bounds(sums), count)
    return m, -2 * np.expm1(-np.outer(m, sums.offsets))
