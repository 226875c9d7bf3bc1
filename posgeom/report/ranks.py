"""The figure of what each rank costs and leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posgeom import plots
from posgeom.report.evidence import no_rounding
from posgeom.report.words import Words, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posgeom.design import Design

LEAST_STRESS = 1e-8  # where a log axis of stress may end
CLASSICAL, OPTIMAL, PROVED = "classical MDS", "least found", "proved floor"
RANK_CURVES = {  # curves of stress by rank: their columns in the table of ranks
    CLASSICAL: "stress",
    OPTIMAL: "optimal_stress",
    "classical MDS, raw": "stress_raw",
    PROVED: "floor",
}


def stress_at(design: Design, rank: int) -> float:
    """The stress of one rank, or of the next lower one that the table of ranks has."""
    row = int(np.searchsorted(design.ranks["rank"], rank, side="right")) - 1
    of = "optimal_stress" if design.table_family == "stress" else "stress"
    return float(design.ranks[of].iloc[row])


def stress_by_rank(design: Design, figure: Figure) -> Words:
    """Stress of classical MDS and the least found against rank, with what is proved."""
    rank, r = design.ranks["rank"].to_numpy(), design.low_rank.rank
    curves = {
        name: no_rounding(design.ranks[key].to_numpy(float)) for name, key in RANK_CURVES.items()
    }
    floor = curves[PROVED]
    if not floor.any():
        del curves[PROVED]
    stress, best = (curves[name] for name in (CLASSICAL, OPTIMAL))
    both = np.concatenate([stress, best])
    above = both[both >= LEAST_STRESS]
    # A log axis only where it is needed: from a factor of ten on, or where some are 0.
    log = above.size and (above.size < both.size or above.max() > 10 * above.min())
    bottom = 0.5 * float(above.min()) if log else None
    at = stress_at(design, r)
    plots.stress_by_rank(figure.subplots(), rank, curves, r, at, bottom)
    proved = (
        f"Below the proved floor no table of so many dimensions can be; at rank {rank[0]} it is "
        f"{number(floor[0])}."
        if floor.any()
        else "That no table has less is proved of none of these ranks."
    )
    return Words(
        "What is lost by keeping fewer dimensions: where the curves flatten, more dimensions buy "
        "little. Classical MDS fits inner products, which is quick and not the least stress; the "
        "curve of the least found is that of the table of family stress. The ring is the rank of "
        "the low-rank encoding. Raw stress is with the distances as they are, stress with the best "
        f"common scale. {proved}"
        + (
            " None of them is corrected for bias, as the stresses of the table of scores are."
            if design.geometry.replicates is not None
            else ""
        ),
        f"Stress of classical MDS falls from {number(stress[0])} at rank {rank[0]} to "
        f"{number(stress[-1])} at rank {rank[-1]}, the least found from {number(best[0])} to "
        f"{number(best[-1])}; the encoding, of rank {r}, has {number(at)}.",
    )
