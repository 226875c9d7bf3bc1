"""Figures: each function draws ready arrays on a given Axes and returns it; none computes.

`style()` is the one place that says how a figure looks.  Axes come from
`matplotlib.figure.Figure`, never from pyplot, so that nothing global is left behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

INK, MUTED, FAINT = "#22262b", "#5f6670", "#e4e6ea"
# Okabe & Ito (2008): eight colours that stay apart for colour-blind readers.
BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, YELLOW = "#CC79A7", "#56B4E9", "#F0E442"
CYCLE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
DASHES = ("-", "--", ":", "-.")
SEQUENTIAL, DIVERGING = "viridis", "RdBu_r"  # both readable without red against green

_STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": "#9aa0a8",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.7,
    "image.interpolation": "nearest",
    "svg.hashsalt": "posgeom",  # equal figures, equal bytes
}


def style() -> AbstractContextManager[None]:
    """The look of all figures, for a `with` block: create, draw and save inside it."""
    from matplotlib.style import context

    return context(_STYLE, after_reset=True)


def distance_matrix(ax: Axes, D: FloatArray, low: float, high: float, labels: IntArray) -> Axes:
    """Distances as colours from `low` to `high`; the diagonal, where it is NaN, stays grey.

    D: (n, n).  labels: (n,), the position number of each row.
    """
    from matplotlib import colormaps

    colours = colormaps[SEQUENTIAL].with_extremes(bad="#c9cdd3")
    image = ax.imshow(D, cmap=colours, vmin=low, vmax=high)
    ax.set(xlabel="position", ylabel="position")
    _number_rows(ax.xaxis, labels)
    _number_rows(ax.yaxis, labels)
    _plain_image(ax)
    ax.figure.colorbar(image, ax=ax, label="distance in the corpus", shrink=0.85)
    return ax


def spectrum(ax: Axes, eigenvalues: FloatArray, bottom: float, chosen: int) -> Axes:
    """Sizes |λ| on a log scale from `bottom` up, negative ones as open triangles."""
    number = np.arange(1, len(eigenvalues) + 1)
    for sign, name, marks in (
        (1, "positive", {"marker": "o", "color": BLUE, "markersize": 4.5}),
        (-1, "negative (shown by size)", {"marker": "v", "color": VERMILLION, "mfc": "white"}),
    ):
        of_sign = sign * eigenvalues >= bottom
        if of_sign.any():
            ax.plot(number[of_sign], sign * eigenvalues[of_sign], ls="none", label=name, **marks)
    ax.axvline(chosen + 0.5, color=MUTED, lw=1, ls="--", label=f"kept: the first {chosen}")
    ax.set(xlabel="eigenvalue number", ylabel="eigenvalue")
    if ax.lines[:-1]:
        ax.set(yscale="log", ylim=(bottom, 2 * np.abs(eigenvalues).max()))
    _count_from_one(ax, len(eigenvalues))
    ax.legend()
    return ax


def cumulative_share(ax: Axes, share: FloatArray, chosen: int) -> Axes:
    """Percent of the positive eigenvalues' sum in the first r, the chosen r marked."""
    number = np.arange(1, len(share) + 1)
    ax.plot(number, 100 * share, color=BLUE, marker="o" if len(share) <= 40 else "", ms=3.5)
    kept = 100 * share[chosen - 1]
    ax.plot([chosen], [kept], "o", color=VERMILLION, ms=8, label=f"rank {chosen}: {kept:.4g}%")
    ax.set(xlabel="rank", ylabel="share of the variance (%)", ylim=(0, 105))
    _count_from_one(ax, len(share))
    ax.legend(loc="lower right")
    return ax


def stress_bars(
    ax: Axes,
    names: Sequence[str],
    stress: FloatArray,
    texts: Sequence[str],
    shift_invariant: NDArray[np.bool_],
    floor: float,
) -> Axes:
    """One bar an encoding, the first on top, a text at its end, the floor as a dashed line."""
    rows = np.arange(len(names))
    groups = ((shift_invariant, BLUE, "by offset alone"), (~shift_invariant, ORANGE, "by position"))
    for members, colour, label in groups:
        if members.any():
            ax.barh(rows[members], stress[members], height=0.68, color=colour, label=label)
    floor_label = "floor: the least by offset alone"
    ax.axvline(floor, color=INK, lw=1.2, ls=(0, (4, 3)), label=floor_label)
    for row, length, text in zip(rows, stress, texts, strict=True):
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
    ax.set_yticks(rows, [plain(name) for name in names])
    ax.tick_params(axis="y", colors=INK, length=0)
    longest = max(float(stress.max(initial=0)), floor) or 1.0
    ax.set(xlabel="stress", xlim=(0, 1.34 * longest), ylim=(len(names) - 0.4, -0.6))
    ax.grid(visible=False, axis="y")
    ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside upper left", ncols=3)
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
    _count_from_one(ax, int(rank[-1]))
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


def trajectory(
    ax: Axes,
    xy: FloatArray,
    index: IntArray,
    segments: FloatArray,
    shares: tuple[float, float],
) -> Axes:
    """The first two coordinates, coloured by position; thin lines join neighbours.

    xy: (n, 2).  segments: (m, 2, 2), the ends of each line.  shares: of the variance, 0..1.
    """
    from matplotlib.collections import LineCollection

    thin = 0.9 if len(segments) < len(xy) else 0.5  # a net has more lines than a path
    ax.add_collection(LineCollection(list(segments), colors="#c4c8cf", lw=thin, zorder=1))
    size = 34 if len(xy) <= 80 else 16
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
    _whole_numbers(bar.ax.yaxis)


def distance_by_offset(
    ax: Axes,
    offset: FloatArray,
    mean: FloatArray,
    low: FloatArray,
    high: FloatArray,
    curves: dict[str, FloatArray],
    xlabel: str,
) -> Axes:
    """Mean distance at each offset, the spread low..high as a band, and a curve an encoding."""
    ax.fill_between(offset, low, high, color="#cfd3d9", lw=0, label="corpus, 10–90% of pairs")
    marker = "o" if len(offset) <= 40 else ""
    ax.plot(offset, mean, color=INK, lw=2.6, marker=marker, ms=4, label="corpus, mean")
    for k, (name, curve) in enumerate(curves.items()):
        colour, dash = CYCLE[k % len(CYCLE)], DASHES[k // len(CYCLE) % len(DASHES)]
        dot = "o" if len(offset) == 1 else ""
        ax.plot(offset, curve, marker=dot, color=colour, ls=dash, lw=1.4, label=plain(name, 44))
    ax.set(xlabel=xlabel, ylabel="distance", ylim=(0, None))
    _whole_numbers(ax.xaxis)
    columns = 2 if max(map(len, curves), default=0) > 26 else 3
    ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside lower left", ncols=columns)
    return ax


def heat_map(ax: Axes, table: FloatArray, largest: float, labels: IntArray, title: str) -> Axes:
    """An encoding's table, positions down and dimensions across, blue below 0 and red above.

    table: (n, d).  Colours run from −largest to largest, so that white is 0.
    """
    image = ax.imshow(table, cmap=DIVERGING, vmin=-largest, vmax=largest, aspect="auto")
    ax.set(xlabel="dimension", ylabel="position")
    ax.set_title(plain(title, 90))
    _whole_numbers(ax.xaxis)
    _number_rows(ax.yaxis, labels)
    _plain_image(ax)
    ax.figure.colorbar(image, ax=ax, label="value", pad=0.02)
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
    else:
        ax.set_ylim(0, 1.08 * max(1, int(totals.max())))
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.set(xlabel=label, ylabel="tokens")
    _whole_numbers(ax.xaxis)
    return ax


def plain(text: str, longest: int = 34) -> str:
    """`text` as matplotlib prints it letter by letter: no mathematics, and not too long."""
    text = "".join(c if c.isprintable() else "?" for c in text)
    if len(text) > longest:
        text = f"{text[: longest // 2]}…{text[len(text) - longest // 2 + 1 :]}"
    return text.replace("$", r"\$")


def _number_rows(axis: Axis, labels: IntArray) -> None:
    """Ticks at whole rows, each with the number of the position that the row holds."""
    from matplotlib.ticker import FuncFormatter

    def position(row: float, _: int | None) -> str:
        return str(labels[round(row)]) if 0 <= round(row) < len(labels) else ""

    _whole_numbers(axis)
    axis.set_major_formatter(FuncFormatter(position))


def _whole_numbers(axis: Axis) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins="auto", integer=True, min_n_ticks=1))


def _count_from_one(ax: Axes, last: int) -> None:
    margin = 0.5 + 0.02 * last
    ax.set_xlim(1 - margin, last + margin)
    _whole_numbers(ax.xaxis)


def _plain_image(ax: Axes) -> None:
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
