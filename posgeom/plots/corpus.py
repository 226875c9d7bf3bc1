"""Figures of a corpus: its distances, its dimensions, its noise, its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from posgeom.plots.look import (
    BLUE,
    INK,
    MUTED,
    ORANGE,
    SEQUENTIAL,
    VERMILLION,
    count_from_one,
    number_rows,
    plain_image,
    powers_of_ten,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]


def distance_matrix(ax: Axes, D: FloatArray, low: float, high: float, labels: IntArray) -> Axes:
    """Distances as colours from `low` to `high`; the diagonal, where it is NaN, stays grey.

    D: (n, n).  labels: (n,), the position number of each row.
    """
    from matplotlib import colormaps

    colours = colormaps[SEQUENTIAL].with_extremes(bad="#c9cdd3")
    image = ax.imshow(D, cmap=colours, vmin=low, vmax=high)
    ax.set(xlabel="position", ylabel="position")
    number_rows(ax.xaxis, labels)
    number_rows(ax.yaxis, labels)
    plain_image(ax)
    ax.figure.colorbar(image, ax=ax, label="distance in the corpus", shrink=0.85)
    return ax


def spectrum(
    ax: Axes,
    eigenvalues: FloatArray,
    bottom: float,
    chosen: int,
    errors: FloatArray | None = None,
    limit: float | None = None,
) -> Axes:
    """Sizes |λ| on a log scale from `bottom` up, negative ones as open triangles.

    errors: (n,) half widths of the 95% intervals.  limit: what noise reaches, as a line.
    """
    number = np.arange(1, len(eigenvalues) + 1)
    for sign, name, marks in (
        (1, "positive", {"marker": "o", "color": BLUE, "markersize": 4.5}),
        (-1, "negative (shown by size)", {"marker": "v", "color": VERMILLION, "mfc": "white"}),
    ):
        of_sign = sign * eigenvalues >= bottom
        if of_sign.any():
            size = sign * eigenvalues[of_sign]
            ax.plot(number[of_sign], size, ls="none", label=name, **marks)
            if errors is not None:
                ends = (np.maximum(size - errors[of_sign], bottom), size + errors[of_sign])
                ax.vlines(number[of_sign], *ends, color=marks["color"], lw=1.2, zorder=1)
    ax.axvline(chosen + 0.5, color=MUTED, lw=1, ls="--", label=f"kept: the first {chosen}")
    if limit is not None and limit >= bottom:
        ax.axhline(limit, color=INK, lw=1.1, ls=":", label="as large as the most negative one")
    ax.set(xlabel="eigenvalue number", ylabel="eigenvalue")
    if (np.abs(eigenvalues) >= bottom).any():
        reach = np.abs(eigenvalues) + (0 if errors is None else errors)
        ax.set(yscale="log", ylim=(bottom, 2 * reach.max()))
        powers_of_ten(ax.yaxis)
    count_from_one(ax, len(eigenvalues))
    ax.legend(frameon=True, framealpha=0.9, edgecolor="none")
    return ax


def spectrum_of_test(ax: Axes, eigenvalues: FloatArray, limit: float, significant: int) -> Axes:
    """Eigenvalues of a test against what noise stays below; the significant ones are filled."""
    number = np.arange(1, len(eigenvalues) + 1)
    ax.axhspan(-limit, limit, color="#dfe2e6", lw=0, label="noise, in 95% of the draws")
    for part, face, label in (
        (slice(significant), BLUE, "above the noise"),
        (slice(significant, None), "white", "not told from noise"),
    ):
        if number[part].size:
            dots = ax.plot(number[part], eigenvalues[part], "o", ms=4.5, color=BLUE, label=label)
            dots[0].set_markerfacecolor(face)
    # Linear about 0, where negative ones lie; logarithmic beyond what noise reaches.
    if limit > 0 and np.abs(eigenvalues).max() > 20 * limit:
        ax.set_yscale("symlog", linthresh=2 * limit)
        powers_of_ten(ax.yaxis, signed=True)
    ax.axhline(0, color=MUTED, lw=0.8)
    ax.set(xlabel="eigenvalue number", ylabel="eigenvalue of the test")
    count_from_one(ax, len(eigenvalues))
    ax.legend(frameon=True, framealpha=0.9, edgecolor="none")
    return ax


def cumulative_share(ax: Axes, share: FloatArray, chosen: int) -> Axes:
    """Percent of the positive eigenvalues' sum in the first r, the chosen r marked."""
    number = np.arange(1, len(share) + 1)
    ax.plot(number, 100 * share, color=BLUE, marker="o" if len(share) <= 40 else "", ms=3.5)
    kept = 100 * share[chosen - 1]
    ax.plot([chosen], [kept], "o", color=VERMILLION, ms=8, label=f"rank {chosen}: {kept:.4g}%")
    ax.set(xlabel="rank", ylabel="share of the variance (%)", ylim=(0, 105))
    count_from_one(ax, len(share))
    ax.legend(loc="lower right")
    return ax


def trajectory(
    ax: Axes,
    xy: FloatArray,
    index: IntArray,
    segments: FloatArray,
    shares: tuple[float, float],
    outlines: FloatArray | None = None,
) -> Axes:
    """The first two coordinates, coloured by position; thin lines join neighbours.

    xy: (n, 2).  segments: (m, 2, 2), the ends of each line.  shares: of the variance, 0..1.
    outlines: (n, k, 2), the edge of each position's region of error.
    """
    from matplotlib import colormaps
    from matplotlib.collections import LineCollection, PolyCollection

    thin = 0.9 if len(segments) < len(xy) else 0.5  # a net has more lines than a path
    ax.add_collection(LineCollection(list(segments), colors="#c4c8cf", lw=thin, zorder=1))
    if outlines is not None:
        faces = colormaps[SEQUENTIAL](np.linspace(0, 1, len(xy)), alpha=0.16)
        regions = PolyCollection(list(outlines), facecolors=faces, zorder=1.5)
        regions.set(edgecolors=colormaps[SEQUENTIAL](np.linspace(0, 1, len(xy)), alpha=0.6), lw=0.6)
        ax.add_collection(regions)
    size = (34 if len(xy) <= 80 else 16) * (1 if outlines is None else 0.4)
    ax.scatter(xy[:, 0], xy[:, 1], c=index, cmap=SEQUENTIAL, s=size, lw=0, zorder=2)
    for row, marker, label in ((0, "s", "first"), (-1, "D", "last")):
        ax.plot(
            *xy[row],
            marker=marker,
            mfc="none",
            mec=VERMILLION,
            mew=1.8,
            ms=10,
            ls="none",
            zorder=3,
            label=f"{label} (position {index[row]})",
        )
    axis_names = [
        f"coordinate {k}  ({100 * share:.1f}% of the variance)" for k, share in enumerate(shares, 1)
    ]
    # Equal units on both axes: only then are distances on paper those of the geometry.
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.08)
    ax.set(xlabel=axis_names[0], ylabel=axis_names[1])
    position_bar([ax], "position", 0.85)
    ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return ax


def position_bar(axes: Sequence[Axes], label: str, shrink: float) -> None:
    """One colour bar of whole numbers for the last dots drawn on the first of the Axes."""
    bar = axes[0].figure.colorbar(
        axes[0].collections[-1], ax=list(axes), label=label, shrink=shrink
    )
    whole_numbers(bar.ax.yaxis)


def noise_floor(
    ax: Axes,
    at: FloatArray,
    plugin: FloatArray,
    debiased: FloatArray,
    low: FloatArray,
    high: FloatArray,
    xlabel: str,
) -> Axes:
    """Mean squared distances, plug-in and debiased (with its band low..high), noise between."""
    marker = "o" if len(at) <= 40 else ""
    ax.fill_between(at, debiased, plugin, color=ORANGE, alpha=0.22, lw=0, label="sampling noise")
    ax.fill_between(at, low, high, color=BLUE, alpha=0.3, lw=0, label="95% interval")
    ax.plot(at, plugin, color=ORANGE, ls="--", marker=marker, ms=3.5, label="plug-in")
    ax.plot(at, debiased, color=BLUE, marker=marker, ms=3.5, label="debiased")
    ax.axhline(0, color=MUTED, lw=0.8)
    ax.set(xlabel=xlabel, ylabel="mean squared distance")
    whole_numbers(ax.xaxis)
    return ax


def tokens_by_position(
    ax: Axes, index: IntArray, totals: IntArray, few: int, log: bool, label: str
) -> Axes:
    """Tokens at each position; those with fewer than `few` are marked."""
    ax.plot(index, totals, color=BLUE, marker="o" if len(index) <= 80 else "", ms=3.5)
    scarce = totals < few
    if scarce.any():
        name = f"fewer than {few} tokens"
        size = 5 if len(index) <= 80 else 2.5
        ax.plot(index[scarce], totals[scarce], "o", color=VERMILLION, ms=size, label=name)
        ax.axhline(few, color=MUTED, lw=1, ls="--")
        ax.legend()
    if log:
        ax.set_yscale("log")
        powers_of_ten(ax.yaxis)
    else:
        ax.set_ylim(0, 1.08 * max(1, int(totals.max())))
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.set(xlabel=label, ylabel="tokens")
    whole_numbers(ax.xaxis)
    return ax
