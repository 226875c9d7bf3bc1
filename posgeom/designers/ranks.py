"""What each rank costs and leaves: by classical MDS, at the least found, the least proved."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from posgeom.designers.designed import own_rank
from posgeom.designers.floors import proved_floors
from posgeom.geometry import Geometry
from posgeom.inference import condensed, raw_stress_of, signed_root, stress_of
from posgeom.mds import classical_mds
from posgeom.rank import explained_share
from posgeom.smacof import first_axes, smacof

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

EACH, MOST = 20, 40  # ranks taken one by one; rows of the table, in growing steps from there on


def rank_table(geometry: Geometry, dim: int) -> "pd.DataFrame":
    """A row for each rank up to what stands above the noise and fits, min(n − 1, dim).

    Columns: rank; stress and stress_raw of classical MDS; optimal_stress and optimal_stress_raw
    of the least that is found (each rank from classical MDS and from the rank before with
    classical axes beside it, the better of both; no restarts); floor, below which no table of
    that rank can be, see posgeom.designers.floors; explained (share of the positive eigenvalues);
    parameters (r(n + dim)); stress_se and optimal_stress_se, by the jackknife, NaN without folds.
    Stress is that of the scores, 0..1.  Above 40 ranks some are passed over, to make 40 rows.
    """
    import pandas as pd

    mds = classical_mds(geometry.squared, squared=True)
    ranks = ranks_shown(own_rank(mds, dim))
    share = explained_share(mds.eigenvalues)
    floors = proved_floors(geometry, int(ranks[-1]))
    D = signed_root(geometry.squared)
    fit = _Fit(geometry)
    X = np.zeros((len(D), 0))
    rows = []
    for r in ranks:
        P = first_axes(mds, r)
        δ, new = pdist(P), P[:, X.shape[1] :]
        # The start of less stress need not end in the lower valley.  An axis of zeros stays zero.
        found = [smacof(D, int(r), start=s).coordinates for s in (P, np.hstack([X, new]))]
        X = min([*found, np.hstack([X, np.zeros_like(new)])], key=lambda Y: fit.stress(pdist(Y)))
        best = pdist(X)
        rows.append(
            {
                "rank": int(r),
                "stress": fit.stress(δ),
                "stress_raw": fit.raw_stress(δ),
                "optimal_stress": fit.stress(best),
                "optimal_stress_raw": fit.raw_stress(best),
                "floor": floors[r - 1],
                "explained": share[r - 1],
                "parameters": int(r) * (len(D) + dim),
                "stress_se": fit.error(δ),
                "optimal_stress_se": fit.error(best),
            }
        )
    return pd.DataFrame(rows)


def ranks_shown(most: int) -> IntArray:
    """1, 2, .., 20 and in growing steps to `most`: 40 ranks at most."""
    if most <= MOST:
        return np.arange(1, most + 1)
    steps = np.geomspace(EACH, most, MOST - EACH + 1).round().astype(np.int64)
    return np.unique(np.concatenate([np.arange(1, EACH + 1), steps]))


class _Fit:
    """Stress of encodings against one geometry, all folds and without each."""

    def __init__(self, geometry: Geometry) -> None:
        self._s = condensed(geometry.squared)
        replicates = geometry.replicates
        self._each = None if replicates is None else np.stack([condensed(s) for s in replicates])

    def stress(self, δ: FloatArray) -> float:
        """Scale-free, in 0..1."""
        return float(np.clip(stress_of(δ)(self._s), 0, 1))

    def raw_stress(self, δ: FloatArray) -> float:
        """0 or more."""
        return max(float(raw_stress_of(δ)(self._s)), 0.0)

    def error(self, δ: FloatArray) -> float:
        """Jackknife standard error of the scale-free stress; NaN without replicates."""
        if self._each is None:
            return float("nan")
        return float(np.sqrt((len(self._each) - 1) * stress_of(δ)(self._each).var()))
