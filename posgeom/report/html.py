"""The report as one HTML page: the numbers in plain words, the table, the figures, the sources."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posgeom.rank import explained_share
from posgeom.report.figures import by_stress, chosen_rank, number, stress_at

if TYPE_CHECKING:
    import pandas as pd

    from posgeom.design import Design
    from posgeom.report import Drawn

FROM_CORPUS = ("mds",)  # families made from the corpus: they fit it by construction


@dataclass(frozen=True)
class Column:
    """One column of the table of scores: its name in `scores`, its head, what it says."""

    key: str
    head: str
    legend: str


COLUMNS = (
    Column(
        "stress",
        "Stress",
        "what the encoding misses of the corpus's squared distances, at the scale that suits it "
        "best: 0 nothing, 1 all. The table is sorted by it.",
    ),
    Column(
        "stress_raw",
        "Raw stress",
        "the same at the encoding's own scale; may exceed 1. The form of the paper, Eq. 4.",
    ),
    Column("kruskal_stress_1", "Stress‑1", "Kruskal's form, the square root of stress."),
    Column("scale", "Scale", "the factor that brings the encoding's distances to the corpus's."),
    Column(
        "spearman",
        "Rank corr.",
        "Spearman's correlation: 1 where both put the pairs of positions in the same order.",
    ),
    Column(
        "monotonicity_violation",
        "Order errors",
        "of all triples in which one position is nearer than another, the share that the "
        "encoding turns round: 0 none, 0.5 as many as by chance.",
    ),
    Column(
        "separation",
        "Separation",
        "the least distance between two positions, in the encoding's own units: at 0 it cannot "
        "tell some two apart.",
    ),
    Column("parameters", "Parameters", "how many numbers the encoding stores or learns."),
)


def report_html(design: Design, drawn: Iterable[Drawn]) -> str:
    """The page.  All that comes from the user passes through the template's escaping."""
    from jinja2 import Environment, StrictUndefined

    template = files("posgeom.report").joinpath("report.html.j2").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    scores = by_stress(design)
    columns = [column for column in COLUMNS if column.key in scores]
    corpus = [(k, v) for k, v in _flat(design.counts.provenance.as_dict()) if k != "notes"]
    return environment.from_string(template).render(
        title=_pieces(design.title),
        facts=_facts(design),
        summary=summary(design),
        caution=plugin_caution(design),
        columns=columns,
        rows=[_row(score, columns) for score in scores.to_dict("records")],
        figures=[_figure(figure) for figure in drawn],
        tables={
            "Settings": _flat(design.settings),
            "Corpus": corpus,
            "Provenance": [
                line
                for line in _flat(design.provenance)
                if line not in corpus and line[0] != "notes"
            ],
        },
        notes=[str(note) for note in design.notes],
    )


def summary(design: Design) -> list[str]:
    """Three to five sentences from the numbers, for a reader who wants only the answer."""
    n, d, r = len(design.geometry.index), len(design.low_rank.B), chosen_rank(design)
    share = explained_share(np.asarray(design.mds.eigenvalues))[r - 1]
    saved = 1 - design.low_rank.n_parameters / (n * d)
    sees = (
        "how many rows and columns two cells stand apart"
        if design.geometry.grid
        else "the offset between two positions, as sinusoidal, RoPE, ALiBi and T5 do,"
    )
    less = f"{100 * abs(saved):.1f}% {'fewer' if saved >= 0 else 'more'}"
    return [
        *_best_sentence(by_stress(design)),
        f"The floor is {number(design.floor.value)}: no encoding that sees only {sees} can have less "
        f"stress here. {_floor_meaning(design)}",
        f"The low-rank encoding made from the corpus (mds:rank={r} in the table) keeps "
        f"{_count(r, 'dimension')} of at most {n - 1} and {100 * share:.1f}% of the variance; "
        f"its stress is {number(stress_at(design, r))}.",
        f"It takes {_count(design.low_rank.n_parameters, 'parameter')} where a full table of "
        f"{n} × {d} takes {n * d:,}: {less}.",
    ]


def plugin_caution(design: Design) -> list[str]:
    """What to hold against plug-in distances, in this corpus's numbers; [] for other estimators.

    √(counts/N) of V well-filled types has variance (V − 1)/(4N), which two positions add to d².
    """
    if design.geometry.estimator != "plugin":
        return []
    D2, totals = design.geometry.squared, np.asarray(design.geometry.totals, dtype=np.float64)
    n, V = len(totals), _types(design)
    mean = float(D2.sum()) / (n * (n - 1))
    noise = 2 * (V - 1) / 4 * float((1 / np.maximum(totals, 1)).mean())
    if noise >= mean:
        size = f"noise alone can account for the whole mean squared distance of {number(mean)}."
    else:
        part = "most" if noise > 0.5 * mean else "a part" if noise > 0.1 * mean else "a small part"
        size = (
            f"up to {number(noise)} of the mean squared distance of {number(mean)} may be noise: "
            f"{part} of what is shown here."
        )
    return [
        "Distances are plug-in: computed from the counts as they are, sampling noise included. "
        "On text with a large vocabulary they are mostly noise, which makes all distances alike; "
        "that favours sinusoidal encodings and lowers the floor, whatever the corpus. They are "
        "not evidence of a geometry.",
        f"Rule of thumb for this corpus: with {V:,} token types and {int(np.median(totals)):,} "
        f"tokens at a typical position, {size}" + _random_as_good(design.scores),
    ]


def _random_as_good(scores: pd.DataFrame) -> str:
    """A warning where rows drawn by lot fit nearly as well as the best known encoding."""
    known, random = ~scores["family"].isin(FROM_CORPUS), scores["family"] == "random"
    lot, best = scores.loc[random, "stress"].min(), scores.loc[known & ~random, "stress"].min()
    if not lot <= 1.25 * best:  # also where one of the two is missing
        return ""
    return (
        f" Random rows fit as well (stress {number(lot)}) as the best other encoding not made "
        f"from the corpus ({number(best)}), or nearly so: here a low stress is no sign of fit."
    )


def _best_sentence(scores: pd.DataFrame) -> list[str]:
    known = scores[~scores["family"].isin(FROM_CORPUS) & np.isfinite(scores["stress"])]
    if known.empty:
        return []
    stress = known["stress"].to_numpy(float)
    names = known["encoding"].astype(str).tolist()
    ties = _ties(stress)
    first = f"{_join(names[:ties])} {'fits' if ties == 1 else 'fit'} this corpus best"
    of = "the encoding" if len(names) == 1 else f"the {len(names)} encodings"
    text = f"Of {of} not made from the corpus, {first}, with stress {number(stress[0])}"
    if ties < len(names):
        ratio = stress[ties] / stress[0] if stress[0] > 1e-12 else float("inf")
        far = "practically the same" if ratio < 1.02 else f"{ratio:.3g} times as much"
        following = names[ties : ties + _ties(stress[ties:])]
        text += f"; next {'comes' if len(following) == 1 else 'come'} {_join(following)} with "
        text += number(stress[ties])
        text += f", {far}" if np.isfinite(ratio) else ""
    return [text + "."]


def _ties(stress: NDArray[np.float64]) -> int:
    """How many of the ascending values equal the first."""
    return int((stress <= stress[0] * (1 + 1e-6) + 1e-9).sum())


def _floor_meaning(design: Design) -> str:
    # Noise alone brings the plug-in floor near 0: its meaning must not sound like a finding.
    face = "Taken at face value, " if design.geometry.estimator == "plugin" else "So "
    if design.floor.value < 0.05:
        return f"{face}relative positions are enough for these distances."
    if design.floor.value < 0.25:
        return f"{face}relative positions say most, but not all, about these distances."
    return f"{face}these distances ask for absolute positions."


def _facts(design: Design) -> str:
    g, documents = design.geometry, design.counts.provenance.documents
    grid = f" ({g.grid[0]} × {g.grid[1]} grid)" if g.grid else ""
    metric = g.metric.replace("_", "-").capitalize()
    estimator = "plug-in" if g.estimator == "plugin" else g.estimator
    return (
        f"{_count(documents, 'document')} · {int(np.sum(g.totals)):,} tokens of "
        f"{_types(design):,} types · {len(g.index)} positions{grid} · "
        f"{metric} distances, {estimator} estimate"
    )


def _types(design: Design) -> int:
    """How many token types the corpus uses; the tokenizer may know more."""
    return int(np.count_nonzero(design.counts.pooled.sum(axis=0)))


def _row(score: Mapping[Any, Any], columns: list[Column]) -> dict[str, Any]:
    kind = "by offset" if score["shift_invariant"] else "by position"
    if score["family"] in FROM_CORPUS:
        kind += ", from this corpus"
    note = score["note"] if isinstance(score["note"], str) else ""
    return {
        "name": _pieces(str(score["encoding"])),
        "about": [line for line in (kind, note) if line],
        "cells": [_cell(column.key, score[column.key]) for column in columns],
    }


def _pieces(name: str) -> list[str]:
    """A long name, cut where it may break."""
    return re.split(r"(?<=[:,=/#_])", name)


def _cell(key: str, value: Any) -> str:
    if key == "parameters":
        return f"{int(value):,}" if np.isfinite(value) else "–"
    return number(float(value))


def _figure(drawn: Drawn) -> dict[str, Any]:
    svg = drawn.spec.embed == "svg"
    content = b64encode(drawn.svg if svg else drawn.png).decode()
    return {
        "name": drawn.spec.name,
        "title": drawn.spec.title,
        "caption": drawn.words.caption,
        "alt": drawn.words.alt,
        "source": f"data:image/{'svg+xml' if svg else 'png'};base64,{content}",
        "width": round(96 * drawn.spec.size[0]),
    }


def _flat(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as lines of (name, text)."""
    lines = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            lines += _flat(value, f"{prefix}{key}.")
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


def _count(k: int, what: str) -> str:
    return f"{k:,} {what}" if k == 1 else f"{k:,} {what}s"


def _join(names: list[str]) -> str:
    """a; a and b; a, b and c; a, b and 7 others."""
    if len(names) > 3:
        names = [*names[:2], f"{len(names) - 2} others"]
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
