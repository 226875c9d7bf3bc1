"""The two figures of the page, as SVG."""

from typing import TYPE_CHECKING

import numpy as np

from posgeom import plots
from posgeom.paper.page import svg_of
from posgeom.plots.training import loss_by_stress, over_training

if TYPE_CHECKING:
    import pandas as pd

DRAWN = (  # panels of a table that learns
    ("separation_share", "least distance over the median"),
    ("stress", "stress"),
    ("stress_plugin", "stress, plug-in"),
    ("violation", "violations"),
    ("entropy_rank", "effective rank"),
    ("validation_loss", "validation loss"),
)


def learning_figure(moments: "pd.DataFrame") -> bytes:
    """Measures of learned tables over epochs, a panel each, a line for each corpus."""
    from matplotlib.figure import Figure

    with plots.style():
        figure = Figure(figsize=(9.5, 5.6), layout="constrained")
        axes = figure.subplots(2, 3)
        for ax, (column, title) in zip(axes.flat, DRAWN, strict=True):
            curves = {}
            for corpus, here in moments.groupby("corpus", sort=False):
                found = here.groupby("epoch", sort=True)[column].agg(["mean", "std", "size"])
                se = found["std"] / np.sqrt(found["size"])
                curves[str(corpus)] = (
                    found.index.to_numpy(),
                    found["mean"].to_numpy(),
                    se.to_numpy(),
                )
            over_training(ax, curves)
            ax.set(title=title, xlabel="epochs")
        axes.flat[0].legend()
        return svg_of(figure)


def comparison_figure(arms: "pd.DataFrame") -> bytes:
    """Test loss beside stress, a panel for each corpus, a mark for each encoding."""
    from matplotlib.figure import Figure

    corpora = list(dict.fromkeys(arms["corpus"]))
    with plots.style():
        figure = Figure(figsize=(9.5, 3.6 * -(-len(corpora) // 2)), layout="constrained")
        axes = list(figure.subplots(-(-len(corpora) // 2), 2, squeeze=False).flat)
        for ax, corpus in zip(axes, corpora, strict=False):
            here = arms[arms["corpus"] == corpus]
            loss_by_stress(
                ax,
                list(here["encoding"]),
                here["stress"].to_numpy(),
                here["test_loss"].to_numpy(),
                here["test_loss_se"].to_numpy(),
                here["trained"].to_numpy(bool),
            )
            ax.set(title=corpus, xlabel="stress, debiased", ylabel="test loss")
        axes[0].legend()
        for ax in axes[len(corpora) :]:
            ax.set_axis_off()
        return svg_of(figure)
