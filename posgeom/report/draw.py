"""From a figure's description to the bytes of its files."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, TypeVar

from tqdm import tqdm

from posgeom import plots
from posgeom.report.words import FigureSpec, Words

T = TypeVar("T")


@dataclass(frozen=True)
class Drawn:
    """A finished figure: its words, and the bytes of its files."""

    name: str
    title: str
    width: int  # CSS pixels
    embed: str
    words: Words
    svg: bytes
    png: bytes


def drawings(
    specs: Sequence[FigureSpec[T]], of: T, *, both: bool = True, progress: bool = False
) -> list[Drawn]:
    """Draw figures one after the other, see render."""
    bar = tqdm(specs, "draw", unit=" figures", leave=False, disable=not progress)
    return [render(spec, of, both=both) for spec in bar]


def render(spec: FigureSpec[T], of: T, *, both: bool = True) -> Drawn:
    """Draw a figure as SVG and PNG, or only in the form that the page embeds.

    Equal designs give equal bytes.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    files = {"svg": BytesIO(), "png": BytesIO()}
    wanted: dict[str, Any] = {
        "svg": {"metadata": {"Date": None, "Creator": None}},
        # Level 6, the default, takes three times as long for files a tenth smaller.
        "png": {"metadata": {"Software": None}, "pil_kwargs": {"compress_level": 2}},
    }
    with plots.style(), warnings.catch_warnings():
        # A name may hold letters that the font lacks; a box in their place does no harm.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=spec.size)
        if spec.margins is None:
            # Letters may be a little wider in the SVG than in the PNG: hence the padding.
            layout = ConstrainedLayoutEngine(w_pad=0.12)
            figure.set_layout_engine(layout)
            words = spec.draw(of, figure)
            layout.execute(figure)  # once, for both files
            figure.set_layout_engine(None)
        else:
            width, height = spec.size
            left, right, bottom, top = spec.margins
            figure.subplots_adjust(
                left / width, bottom / height, 1 - right / width, 1 - top / height, 0.24
            )
            words = spec.draw(of, figure)
        for form, file in files.items():
            if both or form == spec.embed:
                figure.savefig(file, format=form, dpi=160, **wanted[form])
    return Drawn(
        name=spec.name,
        title=spec.title,
        width=round(96 * figure.get_figwidth()),
        embed=spec.embed,
        words=words,
        svg=files["svg"].getvalue(),
        png=files["png"].getvalue(),
    )
