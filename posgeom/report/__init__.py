"""Reports: one HTML file each that works offline, on a design and on a diagnosis."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from posgeom.report.diagnosis import Diagnosed, check_diagnosis_out, write_diagnosis
from posgeom.report.draw import Drawn, drawings, render
from posgeom.report.figures import figures_of
from posgeom.report.html import report_html

if TYPE_CHECKING:
    from posgeom.design import Design

__all__ = [
    "write_report",
    "write_diagnosis",
    "check_diagnosis_out",
    "Diagnosed",
    "drawings",
    "render",
    "Drawn",
]


def write_report(design: Design, folder: str | os.PathLike[str], *, progress: bool = False) -> Path:
    """Write `folder`/report.html and `folder`/figures/*.svg and *.png; return the report's path.

    Equal designs give equal bytes.  Each file is written under a temporary name and renamed.
    """
    folder = Path(folder)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    drawn = drawings(figures_of(design), design, progress=progress)
    for figure in drawn:
        _write(folder / "figures" / f"{figure.name}.svg", figure.svg)
        _write(folder / "figures" / f"{figure.name}.png", figure.png)
    page = folder / "report.html"
    _write(page, report_html(design, drawn).encode())
    return page


def _write(path: Path, content: bytes) -> None:
    """A killed run leaves the old file or the new one, never half of one."""
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_bytes(content)
    unfinished.replace(path)
