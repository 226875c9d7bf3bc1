"""Figures of the paper's tables made again: its numbers beside ours under many conventions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from posgeom.plots.look import (
    BLUE,
    CYCLE,
    INK,
    MUTED,
    VERMILLION,
    count_from_one,
    plain,
    powers_of_ten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]

LEAST = 1e-5  # stress below which a curve is drawn at the edge


def figures_met(
    ax: Axes,
    groups: Mapping[str, tuple[FloatArray, FloatArray]],
    target: tuple[float, float],
) -> Axes:
    """Pairs of figures under many conventions, a colour a group, and a cross at the paper's pair.

    groups: name -> x (m,) and y (m,), above 0.
    """
    for (name, (x, y)), colour in zip(groups.items(), CYCLE, strict=False):
        # as pixels: thousands of marks would make a drawing of megabytes
        ax.plot(x, y, "o", ms=3, mew=0, alpha=0.5, color=colour, label=plain(name), rasterized=True)
    for at, line in zip(target, (ax.axvline, ax.axhline), strict=True):
        line(at, color=INK, lw=0.8, ls=(0, (4, 3)), zorder=0.5)
    ax.plot(*target, "X", ms=9, color=VERMILLION, mec=INK, label="the paper")
    ax.set(xscale="log", yscale="log")
    powers_of_ten(ax.xaxis)
    powers_of_ten(ax.yaxis)
    ax.legend(fontsize=8, loc="lower left")
    return ax


def under_conventions(
    ax: Axes,
    names: Sequence[str],
    values: Sequence[FloatArray],
    figures: Sequence[float],
) -> Axes:
    """A row an encoding: the range of its stress over conventions, the paper's as a diamond.

    A thin line from the least to the largest, a thick one over the middle half, a dot at the
    median.  values: (m,) stresses above 0 for each name.  figures: the paper's, NaN where it has
    none.
    """
    for row, (x, figure) in enumerate(zip(values, figures, strict=True)):
        if len(x):
            least, low, median, high, most = np.quantile(x, [0, 0.25, 0.5, 0.75, 1])
            ax.hlines(row, least, most, color=BLUE, lw=1)
            ax.hlines(row, low, high, color=BLUE, lw=6, alpha=0.5)
            ax.plot(median, row, "o", ms=5, color=INK)
        if np.isfinite(figure):
            ax.plot(figure, row, "D", ms=7, color=VERMILLION, mec=INK)
    ax.set(xscale="log", ylim=(len(names) - 0.4, -0.6))
    powers_of_ten(ax.xaxis)
    ax.set_yticks(range(len(names)), [plain(name, 40) for name in names])
    ax.tick_params(axis="y", colors=MUTED, length=0)
    ax.grid(visible=False, axis="y")
    return ax


def ranks_of_two(ax: Axes, rank: NDArray[np.int64], curves: Mapping[str, FloatArray]) -> Axes:
    """Stress of MDS by rank, a line an estimator with its 95% interval as a band.

    rank: (m,).  curves: name -> (m, 3) stress and the ends of its interval.
    """
    for (name, curve), colour in zip(curves.items(), CYCLE, strict=False):
        stress, low, high = np.maximum(curve, LEAST).T
        ax.fill_between(rank, low, high, color=colour, alpha=0.2, lw=0)
        ax.plot(rank, stress, color=colour, label=plain(name))
    ax.set(yscale="log", xlabel="rank", ylabel="stress of MDS, Eq. 4")
    powers_of_ten(ax.yaxis)
    count_from_one(ax, int(rank[-1]))
    ax.legend()
    return ax
