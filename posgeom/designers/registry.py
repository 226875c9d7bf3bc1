"""From a spec such as `mds` or `mds:rank=3` to an encoding made for a geometry."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from posgeom.designers.low_rank import low_rank
from posgeom.encodings import FixedTable
from posgeom.encodings.registry import Spec, convert_options
from posgeom.geometry import Geometry
from posgeom.mds import classical_mds
from posgeom.rank import above_noise, check_rank


@dataclass(frozen=True, kw_only=True, eq=False)
class MDSTable(FixedTable):
    """A table that classical MDS made for a geometry."""

    family: ClassVar[str] = "mds"

    @property
    def note(self) -> str:
        """That its score is in-sample."""
        return "made for this sample: its stress is that of the fit"


def mds_encoding(geometry: Geometry, spec: Spec, dim: int) -> MDSTable:
    """Classical MDS of the geometry; with `rank=r` the low-rank A Bᵀ of r(n + dim) parameters.

    Without a rank it keeps all the dimensions that the geometry has and the model has room for,
    in a full table of n·dim parameters.
    """
    options = {"dim": dim} | convert_options(spec, {"rank": int, "dim": int})
    n, dim = geometry.n_positions, options["dim"]
    mds = classical_mds(geometry.squared, squared=True)
    rank = check_rank(
        options.get("rank", max(1, min(above_noise(mds.eigenvalues), dim, n - 1))), n, dim
    )
    factors = low_rank(mds.coordinates, rank, dim)
    return MDSTable(
        rows=factors.table(),
        index=geometry.index,
        spec=spec.text,
        stored_parameters=factors.n_parameters if "rank" in options else n * dim,
    )


DESIGNERS: dict[str, Callable[[Geometry, Spec, int], FixedTable]] = {"mds": mds_encoding}
