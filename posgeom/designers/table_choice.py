"""The low-rank table of a design: of which rank, and by classical MDS or of least stress."""

import numpy as np
from numpy.typing import NDArray

from posgeom.designers.designed import own_rank
from posgeom.designers.low_rank import LowRank, low_rank
from posgeom.designers.ranks import rank_table
from posgeom.designers.stress_optimal import stress_low_rank
from posgeom.geometry import Geometry
from posgeom.mds import classical_mds
from posgeom.rank import check_rank, choose_rank


def least_stress_coordinates(geometry: Geometry, rank: int, *, dim: int) -> NDArray[np.float64]:
    """Coordinates (n, r) of least stress; of no more dimensions than stand above the noise."""
    mds = classical_mds(geometry.squared, squared=True)
    return stress_low_rank(geometry, min(rank, own_rank(mds, dim)), dim).A


def rank_of(geometry: Geometry, rule: int | str, dim: int, *, by_stress: bool) -> int:
    """The rank that a rule, see choose_rank, takes for a table of least stress or classical MDS."""
    if isinstance(rule, int):
        return check_rank(rule, geometry.n_positions, dim)
    ranks = rank_table(geometry, dim)
    stress = "optimal_stress" if by_stress else "stress"
    return choose_rank(
        rule,
        ranks[stress].to_numpy(),
        geometry.n_positions,
        dim,
        errors=ranks[f"{stress}_se"].to_numpy(),
        explained=ranks["explained"].to_numpy(),
        ranks=ranks["rank"].to_numpy(),
    )


def table_of_rank(geometry: Geometry, rank: int, dim: int, *, by_stress: bool) -> LowRank:
    """The table of least stress, or the paper's by classical MDS."""
    if by_stress:
        return stress_low_rank(geometry, rank, dim)
    return low_rank(classical_mds(geometry.squared, squared=True).coordinates, rank, dim)
