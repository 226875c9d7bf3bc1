"""A sweep as one HTML file that can be searched and sorted, without a network."""

import gzip
from base64 import b64encode
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING

from posgeom.paper.claims import Figure
from posgeom.paper.page import DIGITS
from posgeom.paper.scales import SCALES

if TYPE_CHECKING:
    import pandas as pd


def sweep_html(table: "pd.DataFrame", name: str, figures: Mapping[str, Figure]) -> str:
    """The page: a line of filters above the table, cells near the paper's figures marked.

    The rows travel compressed inside it, so that it is a third of the CSV.
    """
    from jinja2 import Environment, StrictUndefined

    rows = table.to_csv(index=False, float_format=f"%.{DIGITS}g", lineterminator="\n")
    template = files("posgeom.paper").joinpath("sweep.html.j2").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(template).render(
        name=name,
        count=len(table),
        scales=SCALES,
        figures=[f"{figure.what} {figure.value:g}" for figure in figures.values()],
        # mtime 0: equal tables, equal bytes
        data=b64encode(gzip.compress(rows.encode(), mtime=0)).decode(),
    )
