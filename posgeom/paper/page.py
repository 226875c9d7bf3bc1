"""What all reports on the paper share: its figures beside ours, tables, a page, provenance."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posgeom.atomic import written_folder
from posgeom.emit import made_with
from posgeom.paper.claims import PAPER

if TYPE_CHECKING:
    import pandas as pd

FILES = ("report.md", "claims.csv", "figures", "run.toml", "provenance.json")
QUICK = (
    "A quick run, to try it out: fewer seeds, lengths and choices than this page speaks of, so "
    "that its figures are not those of the full one."
)
DIGITS = 5  # of the numbers in the tables of a folder


@dataclass(frozen=True)
class Judgement:
    """A figure or claim of the paper beside ours.

    claim        what the paper says
    where        where it says so: "Eq. 4", "Proposition 6", "Conjecture 5", a table
    paper        its figure, or – where it gives none
    ours         what was computed
    convention   under which choices ours was computed, where the paper does not say its own
    verdict      "reproduced", "holds", "fails", "holds under some conventions: which", …
    """

    claim: str
    where: str
    paper: str
    ours: str
    convention: str
    verdict: str


@dataclass(frozen=True)
class Section:
    """A part of the page: a heading, and lines of Markdown."""

    heading: str
    lines: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class PaperReport:
    """One part of the paper, computed again.

    job           name of the job that makes it, for run.toml
    title         what the page is headed
    opening       paragraphs before the table of claims: what was done, on what, in short
    judgements    the paper's figures and claims beside ours
    sections      what follows on the page
    settings      the keywords of the job that make the same again
    provenance    fingerprints, sample sizes, seconds
    tables        name -> table, written as NAME.csv
    drawings      name -> SVG, written as figures/NAME.svg; the page links to those it shows
    texts         name -> further files, such as sweep.html
    files         all that its folder holds
    """

    job: str
    title: str
    opening: tuple[str, ...]
    judgements: tuple[Judgement, ...]
    sections: tuple[Section, ...]
    settings: dict[str, Any] = field(repr=False)
    provenance: dict[str, Any] = field(default_factory=dict, repr=False)
    tables: "Mapping[str, pd.DataFrame]" = field(default_factory=dict, repr=False)
    drawings: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: tuple[str, ...] = FILES

    def save(self, folder: str | PathLike[str], *, force: bool = False) -> Path:
        """Write page, tables, figures and run.toml into a new folder; returns it."""
        import pandas as pd
        import tomli_w

        with written_folder(folder, self.files, "run.toml", force=force) as out:
            judged = pd.DataFrame([asdict(judgement) for judgement in self.judgements])
            for name, table in {"claims": judged, **self.tables}.items():
                write_csv(table, out / f"{name}.csv")
            for name, text in {"report.md": self.markdown(), **self.texts}.items():
                (out / name).write_text(text, encoding="utf-8")
            if self.drawings:
                (out / "figures").mkdir()
            for name, svg in self.drawings.items():
                (out / "figures" / f"{name}.svg").write_bytes(svg)
            stage = {"job": self.job} | self.settings
            (out / "run.toml").write_text(tomli_w.dumps({"stage": [stage]}), encoding="utf-8")
            about = json.dumps(made_with() | self.provenance, indent=2, ensure_ascii=False)
            (out / "provenance.json").write_text(about + "\n", encoding="utf-8")
        return Path(folder)

    def markdown(self) -> str:
        """The page."""
        lines = [f"# {self.title}", "", f"{PAPER}.", ""]
        for paragraph in self.opening:
            lines += [paragraph, ""]
        lines += ["## The paper's figures and claims", "", *judgement_table(self.judgements), ""]
        for section in self.sections:
            lines += [f"## {section.heading}", "", *section.lines, ""]
        return "\n".join(lines).rstrip() + "\n"


def opened(paragraphs: Iterable[str], quick: bool) -> tuple[str, ...]:
    """The opening of a page, which says first that a run was a quick one."""
    return (*((QUICK,) if quick else ()), *paragraphs)


def judgement_table(judgements: Iterable[Judgement]) -> list[str]:
    """Claims beside ours as a table of Markdown."""
    return markdown_table(
        ("claim", "where", "paper", "ours", "convention", "verdict"),
        [tuple(asdict(judgement).values()) for judgement in judgements],
        numbers=False,
    )


def markdown_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = True
) -> list[str]:
    """A table of Markdown; columns of numbers, all but the first, stand to the right."""
    ruler = ["---", *["---:" if numbers else "---"] * (len(head) - 1)]
    return [f"| {' | '.join(map(_cell, cells))} |" for cells in (head, ruler, *rows)]


def _cell(text: str) -> str:
    """A cell whose bars do not end it."""
    return text.replace("|", "\\|").replace("\n", " ")


def percent(share: float) -> str:
    """A share as people write it: 88.3%, −21.1%."""
    return f"{share:.1%}".replace("-", "−")


def write_csv(table: "pd.DataFrame", file: Path) -> None:
    """A table as CSV: five significant digits, the same bytes on every platform."""
    table.to_csv(file, index=False, lineterminator="\n", float_format=f"%.{DIGITS}g")


def svg_of(figure: Any) -> bytes:
    """A matplotlib figure as SVG, equal figures as equal bytes; call it inside plots.style().

    Letters stay letters: drawn as outlines they are most of a small figure's bytes.
    """
    from io import BytesIO

    from matplotlib import rc_context

    file = BytesIO()
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(file, format="svg", dpi=160, metadata={"Date": None, "Creator": None})
    return file.getvalue()
