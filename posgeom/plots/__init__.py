"""Figures: each function draws ready arrays on a given Axes and returns it; none computes.

`style()` is the one place that says how a figure looks.  Axes come from
`matplotlib.figure.Figure`, never from pyplot, so that nothing global is left behind.
"""

from posgeom.plots.corpus import (
    cumulative_share,
    distance_matrix,
    noise_floor,
    position_bar,
    spectrum,
    spectrum_of_test,
    tokens_by_position,
    trajectory,
)
from posgeom.plots.encodings import (
    distance_by_offset,
    heat_map,
    shares,
    shepard,
    stress_bars,
    stress_by_rank,
)
from posgeom.plots.look import plain, style
from posgeom.plots.truth import estimates_by_size

__all__ = [
    "distance_matrix",
    "spectrum",
    "spectrum_of_test",
    "cumulative_share",
    "trajectory",
    "position_bar",
    "noise_floor",
    "tokens_by_position",
    "stress_bars",
    "stress_by_rank",
    "shepard",
    "distance_by_offset",
    "shares",
    "heat_map",
    "estimates_by_size",
    "plain",
    "style",
]
