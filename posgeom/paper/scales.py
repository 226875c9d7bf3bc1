"""At which scale an encoding meets the corpus in Eq. 4: the ways that the paper leaves open."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from posgeom.encodings import Encoding, TableEncoding
from posgeom.encodings.base import distances_between_rows
from posgeom.encodings.rotary import Rotary
from posgeom.inference import condensed, raw_stress_of, signed_root, stress_of

FloatArray = NDArray[np.float64]
Measure = Callable[[FloatArray], FloatArray]

SCALES = {
    "raw": "distances as the encoding has them; a sinusoid's rows have length √(d/2)",
    "unit": "rows of length 1: those of a sinusoid and of RoPE over √(d/2)",
    "per-dim": "distances over √d",
    "max": "largest distance that of the corpus",
    "rms": "root mean square of the distances that of the corpus",
    "optimal": "the scale of least stress: the scale-free form",
}


def rescaled(encoding: Encoding, n: int) -> dict[str, FloatArray]:
    """Distances of positions 0..n−1 at the scales that do not look at the corpus: (pairs,) each.

    Biases and numbers are no vectors of d dimensions, and have "raw" alone.  RoPE's distances are
    those of content of equal energy in each pair, whose vectors have length √(d/2).
    """
    positions = np.arange(n)
    δ = condensed(encoding.distances(positions))
    if isinstance(encoding, Rotary):
        d = encoding.dim
        return {"raw": δ, "unit": δ / np.sqrt(d / 2), "per-dim": δ / np.sqrt(d)}
    if not isinstance(encoding, TableEncoding):
        return {"raw": δ}
    X = encoding.table(positions)
    if X.shape[1] < 2:
        return {"raw": δ}
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    unit = distances_between_rows(X / np.where(norms > 0, norms, 1))
    return {"raw": δ, "unit": condensed(unit), "per-dim": δ / np.sqrt(X.shape[1])}


def measures(δ: dict[str, FloatArray]) -> dict[str, Measure]:
    """The stress of an encoding at each scale, as measures of squared distances (…, pairs).

    δ: what `rescaled` gives.
    """
    return {
        **{scale: raw_stress_of(each) for scale, each in δ.items()},
        "max": _at_common_maximum(δ["raw"]),
        "rms": _at_common_size(δ["raw"]),
        "optimal": stress_of(δ["raw"]),
    }


def _at_common_maximum(δ: FloatArray) -> Measure:
    """Raw stress of δ · max D / max δ."""

    def measure(s: FloatArray) -> FloatArray:
        D = signed_root(s)
        scaled = δ * (D.max(axis=-1, keepdims=True) / δ.max())
        return np.asarray(((scaled - D) ** 2).sum(axis=-1) / s.sum(axis=-1))

    return measure


def _at_common_size(δ: FloatArray) -> Measure:
    """Raw stress of δ · √(Σ D² / Σ δ²), which is 2 − 2 Σ δD / √(Σ δ² Σ D²)."""
    size = np.sqrt(δ @ δ)

    def measure(s: FloatArray) -> FloatArray:
        return np.asarray(2 - 2 * (signed_root(s) @ δ) / (size * np.sqrt(s.sum(axis=-1))))

    return measure
