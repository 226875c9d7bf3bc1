"""Rotary encodings of rows and columns fitted to the geometry of a grid."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from posgeom.designers.choice import least_stress
from posgeom.designers.harmonic import best_energies
from posgeom.designers.offsets import OffsetSums
from posgeom.designers.polish import frequency_grid, polish, quantiles, settle, turns
from posgeom.encodings import AxialRope
from posgeom.encodings.registry import Spec, convert_options
from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry

FloatArray = NDArray[np.float64]


def fitted_axial(geometry: Geometry, spec: Spec, dim: int) -> AxialRope:
    """Axial RoPE with d/4 frequencies an axis: `fitted-axial[:dim=d,energies=equal|free]`.

    The squared distance of two cells is a function of their rows and one of their columns; the
    frequencies of both are those of least scale-free stress together.  energies: see fitted_rope.
    Never of a higher corrected stress than axial RoPE of base 10,000, of either spread.
    Raises PosgeomError on positions without a grid, for a dim that is no multiple of 4, and for
    unknown energies.
    """
    options = convert_options(spec, {"dim": int, "energies": str, "pairing": str})
    energies = options.pop("energies", "equal")
    default = AxialRope(**({"dim": dim} | options), spec=spec.text)
    if energies not in ("equal", "free"):
        raise PosgeomError(f"{spec.family} came with energies={energies}; use equal or free")
    sums, axes = OffsetSums.of(geometry, axes=True), default.pair_axes
    ω = axial_frequencies(sums, default)
    candidates = [replace(default, own_frequencies=tuple(ω.tolist()))]
    if energies == "free":
        ω, a = polish(sums, ω, np.ones(len(ω)), axes, free=True)
        free = replace(default, own_frequencies=tuple(ω.tolist()), weights=tuple(a.tolist()))
        candidates.insert(0, free)
    return least_stress(geometry, [*candidates, default, replace(default, spread="dealt")])


def axial_frequencies(sums: OffsetSums, default: AxialRope) -> FloatArray:
    """Frequencies (pairs,), the fastest of each axis first, of the least stress at equal energies.

    Started from the quantiles of each axis's energy and from axial RoPE's own frequencies.
    """
    axes, half = default.pair_axes, default.n_pairs // 2
    grids = [frequency_grid(sums.offsets[:, axis]) for axis in (0, 1)]
    X = [turns(sums.offsets[:, axis], grids[axis]) for axis in (0, 1)]
    a = np.split(best_energies(sums, np.hstack(X)), [len(grids[0])])
    quantile = np.concatenate([quantiles(grids[axis], a[axis], half) for axis in (0, 1)])
    ω = settle(sums, [quantile, default.inv_freq], axes, grids)
    return np.concatenate([np.sort(ω[axes == axis])[::-1] for axis in (0, 1)])
