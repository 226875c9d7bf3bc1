"""Figures of theorems: what learned tables have that random ones have not, and what noise has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from posgeom.plots.look import BLUE, INK, MUTED, ORANGE, VERMILLION, powers_of_ten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]


def violations(
    ax: Axes,
    names: Sequence[str],
    learned: tuple[FloatArray, FloatArray],
    random: tuple[FloatArray, FloatArray],
    offset: float,
) -> Axes:
    """Violated triples of learned tables and of random ones, a row a table, the first on top.

    learned: shares (m,) and standard errors; random: means (m,) and standard deviations.
    offset: the share that |i − j| alone violates, a dashed line.
    """
    rows = np.arange(len(names))
    ax.errorbar(
        learned[0], rows, xerr=1.96 * learned[1], fmt="o", color=BLUE, capsize=2, label="learned"
    )
    ax.errorbar(
        random[0],
        rows,
        xerr=1.96 * random[1],
        fmt="s",
        color=ORANGE,
        markersize=4,
        capsize=2,
        label="random rows",
    )
    ax.axvline(offset, color=INK, lw=1.1, ls="--", label="|i − j| alone")
    ax.axvline(0.5, color=MUTED, lw=0.8, ls=":")
    ax.set_yticks(rows, names)
    ax.set(xlim=(0, 0.65), ylim=(len(names) - 0.5, -0.5))
    return ax


def spectra(ax: Axes, own: FloatArray, none: FloatArray, floor: float) -> Axes:
    """Positive eigenvalues of a corpus and of one of its size without structure, by number.

    own, none: descending; those at `floor` and below are rounding, and are not drawn.
    """
    for w, label, colour, line in (
        (own, "corpus", BLUE, "o-"),
        (none, "same size, no structure", VERMILLION, "^:"),
    ):
        kept = w[w > floor]
        ax.plot(1 + np.arange(len(kept)), kept, line, label=label, markersize=3, color=colour)
    ax.set_yscale("log")
    powers_of_ten(ax.yaxis)
    return ax
