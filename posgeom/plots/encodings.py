"""Figures of encodings: how well they fit, and where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from posgeom.plots.look import (
    BLUE,
    CYCLE,
    DASHES,
    DIVERGING,
    INK,
    MUTED,
    ORANGE,
    SEQUENTIAL,
    VERMILLION,
    count_from_one,
    number_rows,
    plain,
    plain_image,
    powers_of_ten,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]


def stress_bars(
    ax: Axes,
    names: Sequence[str],
    stress: FloatArray,
    texts: Sequence[str],
    shift_invariant: NDArray[np.bool_],
    floor: float,
    intervals: FloatArray | None = None,
    floor_band: tuple[float, float] | None = None,
) -> Axes:
    """One bar an encoding, the first on top, a text at its end, the floor as a dashed line.

    intervals: (n, 2) ends of an error bar each.  floor_band: those of the floor's interval.
    """
    rows = np.arange(len(names))
    groups = ((shift_invariant, BLUE, "by offset alone"), (~shift_invariant, ORANGE, "by position"))
    for members, colour, label in groups:
        if members.any():
            ax.barh(rows[members], stress[members], height=0.68, color=colour, label=label)
    ends = stress if intervals is None else intervals[:, 1]
    if intervals is not None:
        ax.hlines(rows, *intervals.T, color=INK, lw=1.3, label="95% interval")
    floor_label = "floor: the least by offset alone"
    if floor_band is not None:
        ax.axvspan(*floor_band, color="#c4c8cf", alpha=0.45, lw=0, zorder=0.5)
    ax.axvline(floor, color=INK, lw=1.2, ls=(0, (4, 3)), label=floor_label)
    for row, length, text in zip(rows, ends, texts, strict=True):
        # A white edge keeps the text readable where the floor's line passes behind it.
        ax.annotate(
            text,
            (length, row),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=MUTED,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )
    ax.set_yticks(rows, [plain(name, 40) for name in names])
    ax.tick_params(axis="y", colors=INK, length=0)
    longest = max(float(ends.max(initial=0)), floor) or 1.0
    ax.set(
        xlabel="stress",
        xlim=(0, (1.34 if intervals is None else 1.25) * longest),
        ylim=(len(names) - 0.4, -0.6),
    )
    ax.grid(visible=False, axis="y")
    ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside upper left", ncols=4)
    return ax


def stress_by_rank(
    ax: Axes,
    rank: IntArray,
    curves: dict[str, FloatArray],
    chosen: int,
    chosen_stress: float,
    bottom: float | None,
) -> Axes:
    """Stress against rank, the chosen rank marked; log y unless `bottom` is None.

    Values under `bottom` (zero among them) are drawn as triangles on the lower edge.
    """
    for (name, stress), colour, dash in zip(curves.items(), CYCLE, DASHES, strict=False):
        seen = stress if bottom is None else np.where(stress >= bottom, stress, np.nan)
        marker = "o" if len(rank) <= 40 else ""
        ax.plot(rank, seen, color=colour, ls=dash, marker=marker, ms=3.5, label=name)
    if bottom is None:
        ax.set_ylim(bottom=0)
        at = chosen_stress
    else:
        ax.set_yscale("log")
        powers_of_ten(ax.yaxis)
        under = next(iter(curves.values())) < bottom
        ax.plot(
            rank[under],
            np.full(under.sum(), bottom),
            "v",
            color=BLUE,
            ms=5,
            clip_on=False,
            label="0, or too small to draw" if under.any() else "_none",
        )
        ax.set_ylim(bottom=bottom)
        at = max(chosen_stress, bottom)
    label = f"chosen: rank {chosen}"
    ax.plot([chosen], [at], "o", mfc="none", mec=VERMILLION, mew=2, ms=11, ls="none", label=label)
    ax.set(xlabel="rank (dimensions kept)", ylabel="stress")
    count_from_one(ax, int(rank[-1]))
    ax.legend()
    return ax


def shepard(
    ax: Axes,
    D: FloatArray,
    scaled: FloatArray,
    offset: FloatArray,
    limit: float,
    name: str,
    note: str,
) -> Axes:
    """Scaled distance of an encoding against that of the corpus, a dot a pair, and y = x.

    D, scaled, offset: (m,), one entry a pair; the offset gives the colour.
    """
    ax.plot([0, limit], [0, limit], color=INK, lw=1, ls="--", zorder=3)
    size = 14 if len(D) < 200 else 5 if len(D) < 5000 else 2
    ax.scatter(D, scaled, s=size, c=offset, cmap=SEQUENTIAL, lw=0, rasterized=True)
    ax.set(xlim=(0, limit), ylim=(0, limit), aspect="equal")
    ax.set_title(f"{plain(name)}\n{note}", fontsize=9)
    return ax


def distance_by_offset(
    ax: Axes,
    offset: FloatArray,
    mean: FloatArray,
    low: FloatArray,
    high: FloatArray,
    curves: dict[str, FloatArray],
    xlabel: str,
    error: FloatArray | None = None,
) -> Axes:
    """Mean distance at each offset, the spread low..high as a band, and a curve an encoding.

    error: half widths of the mean's 95% interval.
    """
    ax.fill_between(offset, low, high, color="#cfd3d9", lw=0, label="corpus, 10–90% of pairs")
    marker = "o" if len(offset) <= 40 else ""
    ax.plot(offset, mean, color=INK, lw=2.6, marker=marker, ms=4, label="corpus, mean")
    if error is not None:
        ends = (np.maximum(mean - error, 0), mean + error)
        ax.vlines(offset, *ends, color=INK, lw=1, label="its 95% interval")
    for k, (name, curve) in enumerate(curves.items()):
        colour, dash = CYCLE[k % len(CYCLE)], DASHES[k // len(CYCLE) % len(DASHES)]
        dot = "o" if len(offset) == 1 else ""
        ax.plot(offset, curve, marker=dot, color=colour, ls=dash, lw=1.4, label=plain(name, 44))
    ax.set(xlabel=xlabel, ylabel="distance", ylim=(0, None))
    whole_numbers(ax.xaxis)
    columns = 2 if max(map(len, curves), default=0) > 26 else 3
    ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside lower left", ncols=columns)
    return ax


def shares(ax: Axes, at: FloatArray, curves: dict[str, FloatArray], xlabel: str) -> Axes:
    """Percent of something in each of its parts, a curve a name."""
    marker = "o" if len(at) <= 40 else ""
    for k, (name, share) in enumerate(curves.items()):
        colour, dash = CYCLE[k % len(CYCLE)], DASHES[k // len(CYCLE) % len(DASHES)]
        text = plain(name, 44)
        ax.plot(at, 100 * share, color=colour, ls=dash, marker=marker, ms=3.5, lw=1.4, label=text)
    ax.set(xlabel=xlabel, ylabel="share of its stress (%)", ylim=(0, None))
    whole_numbers(ax.xaxis)
    return ax


def heat_map(ax: Axes, table: FloatArray, largest: float, labels: IntArray, title: str) -> Axes:
    """An encoding's table, positions down and dimensions across, blue below 0 and red above.

    table: (n, d).  Colours run from −largest to largest, so that white is 0.
    """
    image = ax.imshow(table, cmap=DIVERGING, vmin=-largest, vmax=largest, aspect="auto")
    ax.set(xlabel="dimension", ylabel="position")
    ax.set_title(plain(title, 90))
    whole_numbers(ax.xaxis)
    number_rows(ax.yaxis, labels)
    plain_image(ax)
    ax.figure.colorbar(image, ax=ax, label="value", pad=0.02)
    return ax
