"""Figures of a real corpus: stress under all conventions, and by rank."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from posgeom import plots
from posgeom.paper.claims import Figure
from posgeom.paper.page import svg_of
from posgeom.paper.scales import SCALES
from posgeom.plots.paper import ranks_of_two, under_conventions

if TYPE_CHECKING:
    import pandas as pd


def conventions_drawing(table: "pd.DataFrame", figures: Mapping[str, Figure]) -> bytes:
    """Each encoding's stress under each convention of a sweep."""
    from matplotlib.figure import Figure as Drawing

    rows = {
        "sinusoidal": table["encoding"] == "sinusoidal",
        "rope": table["encoding"] == "rope",
        "random": table["encoding"] == "random",
        **{
            f"alibi, {reading}": table["variant"].str.startswith(reading)
            for reading in ("linear", "kernel", "attention")
        },
        **{f"mds, rank {r}": table["variant"] == f"rank {r}" for r in (1, 3)},
    }
    values = []
    for row in rows.values():
        x = table.loc[row, list(SCALES)].to_numpy(float).ravel()
        values.append(x[x > 1e-6])
    paper = [
        figures[name.partition(",")[0]].value if name.partition(",")[0] in figures else np.nan
        for name in rows
    ]
    with plots.style():
        drawing = Drawing(figsize=(7.5, 3.6), layout="constrained")
        ax = under_conventions(drawing.subplots(), list(rows), values, paper)
        ax.set_xlabel("stress of Eq. 4 under each convention; dot: median, diamond: the paper")
        return svg_of(drawing)


def ranks_drawing(ranks: "pd.DataFrame") -> bytes:
    """Raw stress of MDS by rank, plug-in and debiased."""
    from matplotlib.figure import Figure as Drawing

    with plots.style():
        drawing = Drawing(figsize=(5.5, 3.2), layout="constrained")
        curves = {
            name: ranks[[f"{name}_raw", f"{name}_raw_low", f"{name}_raw_high"]].to_numpy()
            for name in ("plugin", "debiased")
        }
        ranks_of_two(drawing.subplots(), ranks["rank"].to_numpy(), curves)
        return svg_of(drawing)
