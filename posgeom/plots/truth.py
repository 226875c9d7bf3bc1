"""Figures of a simulation: estimates beside the truth they were drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posgeom.plots.look import BLUE, GREEN, INK, VERMILLION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]

STYLES: dict[str, dict[str, Any]] = {
    "debiased": {"color": BLUE, "marker": "o", "ls": "-"},
    "thinned": {"color": GREEN, "marker": "s", "ls": "--"},
    "plugin": {"color": VERMILLION, "marker": "^", "ls": ":"},
}


def estimates_by_size(
    ax: Axes,
    documents: FloatArray,
    estimates: Mapping[str, tuple[FloatArray, FloatArray]],
    truth: float,
) -> Axes:
    """Mean estimates against the number of documents, one line an estimator, the truth as a line.

    documents: (m,).  estimates: name -> means (m,) and standard deviations over runs (m,).
    """
    from matplotlib.ticker import NullLocator

    ax.axhline(truth, color=INK, lw=1.1, label="truth")
    for shift, (name, (mean, spread)) in enumerate(estimates.items()):
        x = documents * 1.04 ** (shift - 1)  # side by side, so that no bar hides another
        ax.errorbar(x, mean, spread, label=name, markersize=4, capsize=2, **STYLES[name])
    ax.set(xscale="log", xlim=(documents.min() / 1.5, documents.max() * 1.5))
    ax.set_ylim(bottom=0)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(documents, [f"{size:,.0f}" for size in documents])
    return ax
