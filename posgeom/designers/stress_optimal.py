"""The table of least stress, where classical MDS is that of the nearest inner products."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from posgeom.designers.designed import DesignedTable, own_rank
from posgeom.designers.low_rank import LowRank, low_rank
from posgeom.encodings.registry import Spec, convert_options
from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry
from posgeom.inference import signed_root
from posgeom.mds import classical_mds
from posgeom.rank import check_rank
from posgeom.smacof import first_axes, smacof

FloatArray = NDArray[np.float64]

WEIGHTS = ("equal", "precision")
RESTARTS = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class StressTable(DesignedTable):
    """A table that stress majorisation made for a geometry."""

    family: ClassVar[str] = "stress"


def stress_encoding(geometry: Geometry, spec: Spec, dim: int) -> StressTable:
    """The table of `stress[:rank=r][,weights=equal|precision][,restarts=k]`, see stress_low_rank.

    Without a rank it keeps all the dimensions that the geometry has and the model has room for,
    in a full table of n·dim parameters.
    """
    known = {"rank": int, "dim": int, "weights": str, "restarts": int}
    options: dict[str, Any] = {"dim": dim, "rank": None} | convert_options(spec, known)
    factors = stress_low_rank(geometry, **options)
    return StressTable.of(factors, geometry, spec.text, low_rank="rank" in spec.options)


def stress_low_rank(
    geometry: Geometry,
    rank: int | None,
    dim: int,
    *,
    weights: str = "equal",
    restarts: int = RESTARTS,
    start: FloatArray | None = None,
) -> LowRank:
    """A Bᵀ of rank r whose distances have the least stress that is found.

    rank        r, 1..min(n − 1, dim); None for all dimensions that stand above the noise
    weights     "equal": each pair counts alike, and the scale-free stress is never above that of
                classical MDS.  "precision": by 1/se² of its distance, see precision_weights.  On
                simulated corpora of known truth equal weights come nearer to it
    restarts    random starts besides classical MDS
    start       (n, r) coordinates to start from in its place

    Raises PosgeomError for a rank out of range, unknown weights, and precision without errors.
    """
    if weights not in WEIGHTS:
        raise PosgeomError(f"weights={weights} is not known; use {' or '.join(WEIGHTS)}")
    if restarts < 0:
        raise PosgeomError(f"restarts={restarts} came; give 0 or more")
    if start is None or rank is None:
        mds = classical_mds(geometry.squared, squared=True)
        rank = own_rank(mds, dim) if rank is None else rank
        start = first_axes(mds, rank)
    found = smacof(
        signed_root(geometry.squared),
        check_rank(rank, geometry.n_positions, dim),
        weights=precision_weights(geometry) if weights == "precision" else None,
        start=start,
        restarts=restarts,
    )
    return low_rank(found.coordinates, rank, dim)


def precision_weights(geometry: Geometry) -> FloatArray:
    """1 / max(se²_ij, mean se²) of the distances, by the jackknife: (n, n), mean near 1.

    se² = (K − 1)/K Σ_k (D_k − D̄)² with D_k the distance without fold k.  The mean as a floor keeps
    a pair that is known well by chance from outweighing the rest.
    Raises PosgeomError for a geometry without errors.
    """
    if geometry.replicates is None:
        raise PosgeomError(
            "weights=precision needs the errors of a debiased geometry, which this one has not; "
            "use weights=equal"
        )
    K, n = geometry.replicates.shape[:2]
    variance = (K - 1) * signed_root(geometry.replicates).var(axis=0)
    typical = variance.sum() / (n * (n - 1))
    if not typical:
        return np.ones((n, n)) - np.eye(n)
    return typical / np.maximum(variance, typical) * (1 - np.eye(n))
