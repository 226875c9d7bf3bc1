"""Chord and geodesic: two distances that the paper takes for one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from posgeom.encodings import Encoding
from posgeom.encodings.base import distances_between_rows
from posgeom.geometry import ROOT_METRICS, Geometry
from posgeom.mds import classical_mds
from posgeom.stress import pairs, raw_stress, stress

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]


def geodesic_of(chord: FloatArray) -> FloatArray:
    """Fisher–Rao 2·arccos(BC) = 4·arcsin(d_H/2) of chords d_H in 0..√2: 0..π."""
    return 4 * np.arcsin(np.minimum(np.asarray(chord) / 2, np.sqrt(0.5)))


def ratio_table(
    chords: Sequence[float] = (0.01, 0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 2**0.5),
) -> "pd.DataFrame":
    """Chord, geodesic and their ratio, which rises from 2 at 0 to π/√2 = 2.221 at √2."""
    import pandas as pd

    c = np.array(chords)
    return pd.DataFrame({"chord": c, "geodesic": geodesic_of(c), "ratio": geodesic_of(c) / c})


def chord_table(
    geometries: Sequence[tuple[str, Geometry]], encodings: Mapping[str, Encoding]
) -> "pd.DataFrame":
    """What the choice of distance does to stress and ranking: a row a geometry and encoding.

    geometries: (corpus, its geometry by the chord).

    ratio_low, ratio_high    geodesic / chord over pairs that lie apart
    negative_…               share of Σ|λ| in negative eigenvalues of B, by chord and geodesic
    exact_…                  raw stress of classical MDS with all its axes
    chord, geodesic          scale-free stress of the encoding under each; …_raw by Eq. 4
    rank_chord, …_geodesic   its place by the scale-free one, from 1; equal ones share it
    """
    import pandas as pd

    rows = []
    for corpus, by_chord in geometries:
        by_geodesic = replace(
            by_chord, metric="fisher-rao", squared=ROOT_METRICS["fisher-rao"](by_chord.squared)
        )
        D, G = by_chord.distances, by_geodesic.distances
        d, g = pairs(D), pairs(G)
        apart = d > 0
        about = {
            "corpus": corpus,
            "positions": len(D),
            "estimator": by_chord.estimator,
            "ratio_low": (g[apart] / d[apart]).min(),
            "ratio_high": (g[apart] / d[apart]).max(),
        }
        for metric, geometry in (("chord", by_chord), ("geodesic", by_geodesic)):
            found = classical_mds(geometry.squared, squared=True)
            λ, rounding = found.eigenvalues, 1e-12 * np.abs(found.eigenvalues).max()
            about[f"negative_{metric}"] = -λ[λ < -rounding].sum() / np.abs(λ).sum()
            own = distances_between_rows(found.coordinates)
            about[f"exact_{metric}"] = raw_stress(own, geometry.distances)
        scored = pd.DataFrame(
            [
                about
                | {
                    "encoding": name,
                    "chord": stress(δ, D),
                    "geodesic": stress(δ, G),
                    "chord_raw": raw_stress(δ, D),
                    "geodesic_raw": raw_stress(δ, G),
                }
                for name, δ in (
                    (name, e.distances(by_chord.index)) for name, e in encodings.items()
                )
            ]
        )
        for metric in ("chord", "geodesic"):
            scored[f"rank_{metric}"] = scored[metric].round(9).rank(method="min").astype(int)
        rows.append(scored)
    return pd.concat(rows, ignore_index=True)
