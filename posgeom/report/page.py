"""A page: table of scores, figures, settings, in one HTML file that works offline."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from posgeom.report.draw import Drawn
from posgeom.report.words import column, interval, with_error

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Column:
    """One column of the table of scores: its name in `scores`, its head, what it says, and the
    name of its standard error."""

    key: str
    head: str
    legend: str
    error: str = ""


@dataclass(frozen=True)
class Cell:
    """A number, its error, and what stands beneath in small type."""

    value: str
    error: str = ""
    sub: str = ""

    @classmethod
    def of(cls, text: str, sub: str = "") -> Self:
        """`0.330 ± 0.015`, where a line may break before the error."""
        value, sign, error = text.partition("±")
        return cls(value.strip(), sign + error, sub)


@dataclass(frozen=True)
class Row:
    """A row of a table: a name in pieces, at which it may break, lines about it, and its cells."""

    name: list[str]
    about: list[str]
    cells: list[Cell]


@dataclass(frozen=True)
class Section:
    """A table with its heading, and paragraphs on what it comes to."""

    heading: str
    paragraphs: list[str]
    columns: list[Column]
    rows: list[Row]


COLUMNS = (
    Column(
        "stress",
        "Stress",
        "what the encoding misses of the corpus's squared distances, at the scale that suits it "
        "best: 0 nothing, 1 all. The table is sorted by it.",
        "stress_se",
    ),
    Column(
        "stress_raw",
        "Raw stress",
        "the same at the encoding's own scale; may exceed 1. The form of the paper, Eq. 4.",
        "stress_raw_se",
    ),
    Column("kruskal_stress_1", "Stress‑1", "Kruskal's form, the square root of stress."),
    Column("scale", "Scale", "the factor that brings the encoding's distances to the corpus's."),
    Column(
        "spearman",
        "Rank corr.",
        "Spearman's correlation: 1 where both put the pairs of positions in the same order.",
        "spearman_se",
    ),
    Column(
        "monotonicity_violation",
        "Order errors",
        "of all triples in which one position is nearer than another, the share that the "
        "encoding turns round: 0 none, 0.5 as many as by chance.",
        "monotonicity_violation_se",
    ),
    Column(
        "separation",
        "Separation",
        "the least distance between two positions, in the encoding's own units: at 0 it cannot "
        "tell some two apart.",
    ),
    Column("parameters", "Parameters", "how many numbers the encoding stores or learns."),
)


ROOT = "kruskal_stress_1"  # says no more than stress, whose error is given
ERRORS = (
    "± is one standard error, from leaving out one fold of the documents at a time. Under the "
    "stress is its 95% interval, which may be wider than ± would make it, since it also allows "
    "for the bias that was taken out, and for what rare tokens and distances near 0 may do."
)


def page(
    *,
    kicker: str,
    title: str,
    facts: str,
    summary: Sequence[str] = (),
    answers: Sequence[tuple[str, Sequence[str]]] = (),
    caution: Sequence[str] = (),
    scores: pd.DataFrame,
    designs: Section | None = None,
    drawn: Iterable[Drawn],
    tables: Mapping[str, list[tuple[str, str]]],
    notes: Iterable[str],
) -> str:
    """The page.  All that comes from the user passes through the template's escaping.

    answers: questions, each with its sentences.  scores: sorted, and empty for no table.
    designs: the section on what was made for the corpus.
    """
    from jinja2 import Environment, StrictUndefined

    template = files("posgeom.report").joinpath("report.html.j2").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    known = bool(np.isfinite(column(scores, "stress_se")).any())
    columns = [c for c in COLUMNS if c.key in scores and not (known and c.key == ROOT)]
    return environment.from_string(template).render(
        kicker=kicker,
        title=pieces(title),
        facts=facts,
        summary=summary,
        answers=answers,
        caution=caution,
        columns=columns,
        errors=ERRORS if known else "",
        rows=[_row(score, columns) for score in scores.to_dict("records")],
        designs=designs,
        figures=[_figure(figure) for figure in drawn],
        tables=tables,
        notes=[str(note) for note in notes],
    )


def _row(score: Mapping[Any, Any], columns: list[Column]) -> Row:
    kind = "by offset" if score["shift_invariant"] else "by position"
    made = "from this corpus" if score["designed"] else ""
    note = score["note"] if isinstance(score["note"], str) else ""
    about = [line for line in (kind, made, note) if line]
    return Row(pieces(str(score["encoding"])), about, [_cell(column, score) for column in columns])


def pieces(name: str) -> list[str]:
    """A long name, cut where it may break."""
    return re.split(r"(?<=[:,=/#_])", name)


def _cell(column: Column, score: Mapping[Any, Any]) -> Cell:
    """A number, its error and, for stress, its interval."""
    value = _float(score[column.key])
    if column.key == "parameters":
        text = f"{int(value):,}" if np.isfinite(value) else "–"
    else:
        text = with_error(value, _float(score.get(column.error)))
    ends = ("stress_low", "stress_high") if column.key == "stress" else ()
    return Cell.of(text, interval(*(_float(score.get(key)) for key in ends)) if ends else "")


def _float(value: Any) -> float:
    """A cell as a number; NaN where it is empty."""
    return float("nan") if value is None or value == "" else float(value)


def _figure(drawn: Drawn) -> dict[str, Any]:
    svg = drawn.embed == "svg"
    content = b64encode(drawn.svg if svg else drawn.png).decode()
    return {
        "name": drawn.name,
        "title": drawn.title,
        "caption": drawn.words.caption,
        "alt": drawn.words.alt,
        "source": f"data:image/{'svg+xml' if svg else 'png'};base64,{content}",
        "width": drawn.width,
    }


def flat(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as lines of (name, text)."""
    lines = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            lines += flat(value, f"{prefix}{key}.")
        else:
            lines.append((f"{prefix}{key}", _text(value)))
    return lines


def _text(value: Any) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(_text(x) for x in value) or "–"
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)
