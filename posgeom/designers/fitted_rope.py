"""Rotary encodings fitted to a geometry: its own frequencies, or the best base."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from posgeom.designers.choice import least_stress
from posgeom.designers.harmonic import best_energies, harmonic_lines
from posgeom.designers.offsets import OffsetSums
from posgeom.designers.polish import (
    frequency_grid,
    polish,
    quantiles,
    settle,
    stress_at,
    turns,
)
from posgeom.encodings import Rope
from posgeom.encodings.registry import Spec, convert_options
from posgeom.encodings.table import frequencies
from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry

FloatArray = NDArray[np.float64]

KNOWN_BASES = (10_000.0, 500_000.0)  # Su et al. (2021); Llama 3
BASES = np.geomspace(1.01, 1e9, 160)


def fitted_rope(geometry: Geometry, spec: Spec, dim: int) -> Rope:
    """RoPE with d/2 frequencies for a geometry: `fitted-rope[:dim=d,energies=equal|free]`.

    energies   "equal": all pairs alike, as in a layer whose content has no say in it; "free":
               each pair has the energy that the geometry asks for, in Rope's weights

    Frequencies of least scale-free stress.  Never of a higher corrected stress than RoPE of the
    bases 10,000 and 500,000 and the best one: where the fit is, it is that one.
    Raises PosgeomError for an odd dim and unknown energies.
    """
    options = convert_options(spec, {"dim": int, "energies": str, "pairing": str})
    energies = options.pop("energies", "equal")
    default = Rope(**({"dim": dim} | options), spec=spec.text)
    if energies not in ("equal", "free"):
        raise PosgeomError(f"{spec.family} came with energies={energies}; use equal or free")
    sums = OffsetSums.of(geometry)
    ω = equal_frequencies(sums, default.n_pairs)
    fitted = replace(default, own_frequencies=tuple(ω.tolist()))
    candidates = [fitted, *with_bases(sums, default)]
    if energies == "free":
        ω, a = free_frequencies(sums, ω)
        weighted = replace(default, own_frequencies=tuple(ω.tolist()), weights=tuple(a.tolist()))
        candidates.insert(0, weighted)
    return least_stress(geometry, candidates)


def fitted_base(geometry: Geometry, spec: Spec, dim: int) -> Rope:
    """RoPE of the best single base for a geometry: `fitted-base[:dim=d]`.

    Never of a higher corrected stress than the bases 10,000 and 500,000.
    Raises PosgeomError for an odd dim.
    """
    options = {"dim": dim} | convert_options(spec, {"dim": int, "pairing": str})
    return least_stress(
        geometry, with_bases(OffsetSums.of(geometry), Rope(**options, spec=spec.text))
    )


def with_bases(sums: OffsetSums, rope: Rope) -> list[Rope]:
    """RoPE of the best base and of the known ones."""
    return [replace(rope, base=base) for base in (best_base(sums, rope.dim), *KNOWN_BASES)]


def best_base(sums: OffsetSums, dim: int) -> float:
    """The base of least stress for frequencies base^(−2k/d), between 1.01 and 10⁹."""

    ones, one_axis = np.ones(dim // 2), np.zeros(dim // 2, dtype=np.int64)

    def stress(log: float) -> float:
        return stress_at(sums, frequencies(dim, np.exp(log)), ones, one_axis)

    logs = np.log(BASES)
    values = np.array([stress(log) for log in logs])
    i = int(values.argmin())
    near = logs[max(0, i - 1)], logs[min(len(logs) - 1, i + 1)]
    found = minimize_scalar(stress, bounds=near, method="bounded")
    return float(np.exp(found.x if found.fun < values[i] else logs[i]))


def equal_frequencies(sums: OffsetSums, count: int) -> FloatArray:
    """Frequencies (count,), the fastest first, of the least stress found at equal energies.

    Started from quantiles of the geometry's energy, from quantiles of its squared distances, and
    from RoPE's own frequencies.  The second are no slower than the length can tell, where a line
    of that energy has a say; slower ones have a large energy and a small share.
    """
    grid, one_axis = frequency_grid(sums.offsets), np.zeros(count, dtype=np.int64)
    X = turns(sums.offsets, grid)
    a = best_energies(sums, X)
    told = np.pi / (2 * sums.offsets.max())
    starts = [
        quantiles(grid, a, count),
        np.maximum(told, quantiles(grid, a * (sums.pairs @ X), count)),
        frequencies(2 * count, KNOWN_BASES[0]),
    ]
    return np.sort(settle(sums, starts, one_axis, [grid]))[::-1]


def free_frequencies(sums: OffsetSums, equal: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Frequencies, the fastest first, and energies (K,), never of more stress than those given.

    The best of two slides: from equal energies, and from the strongest of the harmonic form.
    Where it has fewer lines than pairs, the other pairs have energy 0.
    """
    K, one_axis = len(equal), np.zeros(len(equal), dtype=np.int64)
    ω, a = harmonic_lines(sums)
    share = a * (sums.pairs @ turns(sums.offsets, ω))  # of Σ D²: a slow line has a large a
    strong = np.argsort(-share)[:K]
    rest = K - len(strong)
    lines, energies = np.r_[ω[strong], np.full(rest, ω[0])], np.r_[a[strong], np.zeros(rest)]
    slides = [
        polish(sums, equal, np.ones(K), one_axis, free=True),
        polish(sums, lines, energies, one_axis, free=True),
    ]
    ω, a = min(slides, key=lambda slide: stress_at(sums, slide[0], slide[1], one_axis))
    order = np.argsort(-ω)
    return ω[order], a[order]
