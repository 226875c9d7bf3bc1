"""From a spec such as `mds` or `mds:rank=3` to an encoding made for a geometry."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from posgeom.designers.designed import DesignedTable, own_rank
from posgeom.designers.fitted_axial import fitted_axial
from posgeom.designers.fitted_bias import fitted_alibi, fitted_kerple
from posgeom.designers.fitted_rope import fitted_base, fitted_rope
from posgeom.designers.fitted_t5 import fitted_t5
from posgeom.designers.low_rank import low_rank
from posgeom.designers.stress_optimal import stress_encoding
from posgeom.encodings import Encoding
from posgeom.encodings.registry import Spec, convert_options
from posgeom.geometry import Geometry
from posgeom.mds import MANY, classical_mds
from posgeom.rank import check_rank


@dataclass(frozen=True, kw_only=True, eq=False)
class MDSTable(DesignedTable):
    """A table that classical MDS made for a geometry."""

    family: ClassVar[str] = "mds"


def mds_encoding(geometry: Geometry, spec: Spec, dim: int) -> MDSTable:
    """Classical MDS of the geometry; with `rank=r` the low-rank A Bᵀ of r(n + dim) parameters.

    Without a rank it keeps all the dimensions that the geometry has and the model has room for,
    in a full table of n·dim parameters.
    """
    options = {"dim": dim} | convert_options(spec, {"rank": int, "dim": int})
    n, dim = geometry.n_positions, options["dim"]
    asked = options.get("rank")
    if asked is not None:
        check_rank(asked, n, dim)
    # all axes of many positions take minutes
    mds = classical_mds(geometry.squared, asked if n >= MANY else None, squared=True)
    rank = own_rank(mds, dim) if asked is None else asked
    factors = low_rank(mds.coordinates, rank, dim)
    return MDSTable.of(factors, geometry, spec.text, low_rank="rank" in options)


TABLES = ("mds", "stress")  # families of which a rank can be asked

DESIGNERS: dict[str, Callable[[Geometry, Spec, int], Encoding]] = {
    "mds": mds_encoding,
    "stress": stress_encoding,
    "fitted-rope": fitted_rope,
    "fitted-base": fitted_base,
    "fitted-axial": fitted_axial,
    "fitted-alibi": fitted_alibi,
    "fitted-kerple": fitted_kerple,
    "fitted-t5": fitted_t5,
}
