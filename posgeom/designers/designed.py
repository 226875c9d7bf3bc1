"""Tables made from a geometry, and what they all say of themselves."""

from dataclasses import dataclass
from typing import Self

from posgeom.designers.low_rank import LowRank
from posgeom.encodings import FixedTable
from posgeom.geometry import Geometry
from posgeom.mds import MDSResult
from posgeom.rank import above_noise


@dataclass(frozen=True, kw_only=True, eq=False)
class DesignedTable(FixedTable):
    """A table that was made for a geometry."""

    @classmethod
    def of(cls, factors: LowRank, geometry: Geometry, spec: str, *, low_rank: bool) -> Self:
        """The table A Bᵀ: of r(n + d) parameters if it is kept as its factors, else of n·d."""
        rows = factors.table()
        parameters = factors.n_parameters if low_rank else rows.size
        return cls(rows=rows, index=geometry.index, spec=spec, stored_parameters=parameters)

    @property
    def note(self) -> str:
        """That its score is in-sample."""
        return "made for this sample: its stress is that of the fit"


def own_rank(mds: MDSResult, dim: int) -> int:
    """The dimensions that stand above the noise and that a model of width dim has room for."""
    n = len(mds.coordinates)
    return max(1, min(above_noise(mds.eigenvalues), dim, n - 1))
