"""All encodings and all ranks on one corpus, plug-in beside debiased, with errors."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from scipy.stats import t as student

from posgeom.counts import PositionCounts
from posgeom.encodings import FAMILIES, Encoding, make_encoding
from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry, estimate_geometry
from posgeom.inference import (
    Estimate,
    condensed,
    jackknife,
    jackknife_se,
    raw_stress_of,
    stress_of,
)
from posgeom.mds import classical_mds
from posgeom.paper.monotonicity import plugin_with_folds
from posgeom.paper.scales import Measure, rescaled

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]

FURTHER = ("alibi:heads=12", "alibi:reading=kernel", "alibi:reading=attention", "rope:dim=64")


@dataclass(frozen=True, eq=False)
class Pair:
    """The two geometries of a corpus: plug-in, with distances without each fold, and debiased."""

    plain: Geometry
    clean: Geometry

    @classmethod
    def of(cls, counts: PositionCounts, *, seed: int = 0) -> Self:
        """Both of them; PosgeomError where positions do not differ, or folds do not suffice."""
        clean = estimate_geometry(counts, seed=seed)
        if clean.estimator != "debiased" or not clean.has_structure:
            raise PosgeomError(
                f"{', '.join(counts.provenance.sources)}: positions do not differ beyond noise, or "
                "folds are too few to tell; give more documents"
            )
        return cls(plugin_with_folds(counts, estimate_geometry(counts, "plugin")), clean)


def encodings_table(
    pair: Pair, learned: Mapping[str, str], dim: int, *, seed: int = 0
) -> "pd.DataFrame":
    """A row an encoding: all families of the registry on a line, readings of ALiBi, learned tables.

    encoding, family, parameters (of a model of this width and length), and for plugin and
    debiased each the scale-free stress, the raw one of Eq. 4, and with rows of length 1 (where
    there are rows), with standard error and 95% interval: plugin_stress, plugin_stress_se,
    plugin_stress_low, …; note.  The plug-in intervals are those of the sample, noise included.
    """
    import pandas as pd

    n = pair.clean.n_positions
    rows = []
    for name, encoding in _encodings(learned, n, dim, seed).items():
        δ = rescaled(encoding, n)
        measures = {
            "stress": stress_of(δ["raw"]),
            "raw": raw_stress_of(δ["raw"]),
            "unit": raw_stress_of(δ["unit"]) if "unit" in δ else None,
        }
        cost = encoding.cost(dim, 8, n)
        row = {"encoding": name, "family": encoding.family, "parameters": cost.parameters}
        found = _estimates(measures, pair.plain) | _estimates(measures, pair.clean, correct=True)
        rows.append(row | found | {"note": encoding.note})
    return pd.DataFrame(rows)


def ranks_table(pair: Pair, dim: int) -> "pd.DataFrame":
    """A row a rank r = 1..n−1 of classical MDS, made from either geometry and held against it.

    rank, parameters r(n + d), fewer (share saved against nd), and stress and raw stress as in
    encodings_table; debiased ones are not corrected for bias, since MDS follows its sample.
    """
    import pandas as pd

    n = pair.clean.n_positions
    both = (pair.plain, pair.clean)
    at = {g.estimator: classical_mds(g.squared, squared=True).coordinates for g in both}
    rows = []
    for r in range(1, n):
        row: dict[str, Any] = {"rank": r, "parameters": r * (n + dim)}
        row["fewer"] = 1 - row["parameters"] / (n * dim)
        for geometry in both:
            δ = pdist(at[geometry.estimator][:, :r])
            forms: dict[str, Measure | None] = {"stress": stress_of(δ), "raw": raw_stress_of(δ)}
            row |= _estimates(forms, geometry)
        rows.append(row)
    return pd.DataFrame(rows)


def _encodings(learned: Mapping[str, str], n: int, dim: int, seed: int) -> dict[str, Encoding]:
    """The encodings of the table by name; learned tables only where they reach n positions."""
    families: Iterable[str] = (f for f, cls in FAMILIES.items() if cls().n_axes == 1)
    made = {spec: make_encoding(spec, dim=dim, seed=seed) for spec in (*families, *FURTHER)}
    for name, spec in learned.items():
        table = make_encoding(spec)
        if table.max_positions is None or table.max_positions >= n:
            made[name] = table
    return made


def _estimates(
    measures: Mapping[str, Measure | None], geometry: Geometry, *, correct: bool = False
) -> dict[str, float]:
    """Columns `plugin_raw`, `plugin_raw_se`, `plugin_raw_low`, …; NaN where there is no measure."""
    columns: dict[str, float] = {}
    for form, measure in measures.items():
        if measure is None:
            e = Estimate(float("nan"))
        elif geometry.halves is None:
            e = _of_sample(measure, geometry)
        else:
            top = 1 if form == "stress" else np.inf
            e = jackknife(measure, geometry, bounds=(0, top), correct=correct)
        name = f"{geometry.estimator}_{form}"
        columns |= {name: e.value, f"{name}_se": e.se, f"{name}_low": e.low, f"{name}_high": e.high}
    return columns


def _of_sample(measure: Measure, geometry: Geometry) -> Estimate:
    """A plug-in figure with its error by the jackknife over folds; its bias is not looked at."""
    value = max(0.0, float(measure(condensed(geometry.squared))))
    if geometry.replicates is None:
        return Estimate(value)
    K = len(geometry.replicates)
    each = measure(np.stack([condensed(s) for s in geometry.replicates]))
    se = float(jackknife_se(each))
    width = float(student.ppf(0.975, K - 1)) * se
    return Estimate(value, se, max(0.0, value - width), value + width)
