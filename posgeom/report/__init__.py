"""The report: one HTML file that works offline, and its figures as SVG and PNG beside it."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from posgeom import plots
from posgeom.report.figures import FIGURES, FigureSpec, Words
from posgeom.report.html import report_html

if TYPE_CHECKING:
    from posgeom.design import Design

__all__ = ["write_report", "render", "Drawn"]


@dataclass(frozen=True)
class Drawn:
    """A finished figure: its words, and the bytes of both files."""

    spec: FigureSpec
    words: Words
    svg: bytes
    png: bytes


def write_report(design: Design, folder: str | os.PathLike[str]) -> Path:
    """Write `folder`/report.html and `folder`/figures/*.svg and *.png; return the report's path.

    Equal designs give equal bytes.  Each file is written under a temporary name and renamed.
    """
    folder = Path(folder)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    drawn = [render(spec, design) for spec in FIGURES]
    for figure in drawn:
        _write(folder / "figures" / f"{figure.spec.name}.svg", figure.svg)
        _write(folder / "figures" / f"{figure.spec.name}.png", figure.png)
    page = folder / "report.html"
    _write(page, report_html(design, drawn).encode())
    return page


def render(spec: FigureSpec, design: Design) -> Drawn:
    """Draw a figure as SVG and PNG; equal designs give equal bytes."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    svg, png = BytesIO(), BytesIO()
    with plots.style(), warnings.catch_warnings():
        # A name may hold letters that the font lacks; a box in their place does no harm.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        # Letters may be a little wider in the SVG than in the PNG: hence the padding.
        figure = Figure(figsize=spec.size, layout=ConstrainedLayoutEngine(w_pad=0.12))
        words = spec.draw(design, figure)
        figure.draw_without_rendering()  # lays out once, for both files
        figure.set_layout_engine(None)
        figure.savefig(svg, format="svg", dpi=160, metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", dpi=160, metadata={"Software": None})
    return Drawn(spec, words, svg.getvalue(), png.getvalue())


def _write(path: Path, content: bytes) -> None:
    """A killed run leaves the old file or the new one, never half of one."""
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_bytes(content)
    unfinished.replace(path)
