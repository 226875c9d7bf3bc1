"""How a figure looks: colours, type, and the numbers along an axis."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

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
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def style() -> AbstractContextManager[None]:
    """The look of all figures, for a `with` block: create, draw and save inside it."""
    from matplotlib.style import context

    return context(_STYLE, after_reset=True)


def plain(text: str, longest: int = 34) -> str:
    """`text` as matplotlib prints it letter by letter: no mathematics, and not too long."""
    text = "".join(c if c.isprintable() else "?" for c in text)
    if len(text) > longest:
        text = f"{text[: longest // 2]}…{text[len(text) - longest // 2 + 1 :]}"
    return text.replace("$", r"\$")


def number_rows(axis: Axis, labels: IntArray) -> None:
    """Ticks at whole rows, each with the number of the position that the row holds."""
    from matplotlib.ticker import FuncFormatter

    def position(row: float, _: int | None) -> str:
        return str(labels[round(row)]) if 0 <= round(row) < len(labels) else ""

    whole_numbers(axis)
    axis.set_major_formatter(FuncFormatter(position))


def whole_numbers(axis: Axis) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=7, integer=True, min_n_ticks=1))


def powers_of_ten(axis: Axis, *, signed: bool = False) -> None:
    """Ticks of a log axis in plain letters: mathematics takes long to set."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    def power(value: float, _: int | None) -> str:
        if value == 0 or 3e-4 < abs(value) < 3e3:
            return f"{value:,.10g}".replace("-", "−")
        sign, (mantissa, rest) = "−" if value < 0 else "", f"{abs(value):.0e}".split("e")
        digit = "" if mantissa == "1" else f"{mantissa}·"
        return f"{sign}{digit}10{str(int(rest)).translate(_RAISED)}"

    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(power))
    if signed:  # the locator of its scale knows where 0 is
        return
    bottom, top = sorted(axis.get_view_interval())
    decades = np.log10(top / bottom) if bottom > 0 else 9
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2.5 else (1,), numticks=8))


def count_from_one(ax: Axes, last: int) -> None:
    margin = 0.5 + 0.02 * last
    ax.set_xlim(1 - margin, last + margin)
    whole_numbers(ax.xaxis)


def plain_image(ax: Axes) -> None:
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
