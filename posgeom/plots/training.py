"""Figures of trained models: what becomes of a table, and loss beside stress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from posgeom.plots.look import BLUE, CYCLE, DASHES, INK, MUTED, ORANGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]


def over_training(
    ax: Axes, curves: Mapping[str, tuple[FloatArray, FloatArray, FloatArray]]
) -> Axes:
    """A number of a table while it is trained, one line a corpus, with a band of one error.

    curves: name -> (epochs, means, standard errors), each (moments,).
    """
    for k, (name, (epochs, mean, se)) in enumerate(curves.items()):
        colour = CYCLE[k % len(CYCLE)]
        ax.plot(epochs, mean, color=colour, ls=DASHES[k % len(DASHES)], label=name)
        ax.fill_between(epochs, mean - se, mean + se, color=colour, alpha=0.2, lw=0)
    return ax


def loss_by_stress(
    ax: Axes,
    names: Sequence[str],
    stress: FloatArray,
    loss: FloatArray,
    loss_se: FloatArray,
    trained: NDArray[np.bool_],
) -> Axes:
    """Test loss against stress, a numbered mark for each encoding: round frozen, square trained.

    All arrays (encodings,).  The numbers are those of the names from 1 on.
    """
    for marker, colour, kind, label in (
        ("o", BLUE, ~trained, "frozen"),
        ("s", ORANGE, trained, "trained"),
    ):
        ax.errorbar(
            stress[kind],
            loss[kind],
            loss_se[kind],
            fmt=marker,
            color=colour,
            markersize=5,
            capsize=2,
            clip_on=False,
            label=label,
        )
    for k, (x, y, below) in enumerate(zip(stress, loss, trained, strict=True), 1):
        # an encoding and the one that is trained from it often lie upon each other
        at = (4, -9) if below else (4, 3)
        ax.annotate(str(k), (x, y), xytext=at, textcoords="offset points", fontsize=7.5)
    if "none" in names:
        ax.axhline(loss[list(names).index("none")], color=MUTED, lw=0.9, ls=":")
    # a root's scale: what was made for the corpus lies close to 0
    ax.set_xscale("function", functions=(lambda x: np.sqrt(np.maximum(x, 0)), np.square))
    ax.set(xlim=(0, 1.08), xticks=(0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1))
    ax.tick_params(colors=INK)
    return ax
