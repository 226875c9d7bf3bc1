"""The section of the report on encodings made for the corpus: what each gains, and its floor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posgeom.report.page import Cell, Column, Row, Section, pieces
from posgeom.report.words import column, count, estimate, interval, join, number, with_error

if TYPE_CHECKING:
    import pandas as pd

    from posgeom.design import Design
    from posgeom.designers.extension import Extension

NOTHING = 1e-9  # a gain that rounding makes
METHODS = {  # what stands behind the name of a way to carry a table on
    "gower": "by the corpus's own counts there",
    "harmonic": "by the harmonic form fitted to its distances",
    "interpolation": "by stretching its rows",
}


COLUMNS = (
    Column(
        "stress",
        "Stress",
        "as in the table of scores; for a table, that of the fit. Under it that of the known "
        "encoding of its kind that fits best, named under the design.",
    ),
    Column(
        "gain",
        "Gain",
        "stress of the known encoding less that of the design, with its 95% interval. A table "
        "follows the noise of this sample too, so that its gain over another is that of the fit.",
    ),
    Column(
        "floor",
        "Floor",
        "no encoding of its kind can have less stress: none by offset alone; no table of as many "
        "dimensions, as far as that can be proved. Where a stress is below, the design has "
        "followed the noise of this sample by as much. Under it the least stress of its kind that "
        "was found: by offset, that of the mean distances.",
    ),
    Column("parameters", "Parameters", "how many numbers it stores or learns."),
)
HELD_OUT = Column(
    "held_out",
    "Held out",
    "stress on the last quarter of the positions, once it is made without them and carried there; "
    "for a table by the better way that needs no counts there, named under it. Under it also that "
    "of the known encoding there.",
)


def designs(design: Design) -> Section | None:
    """The section; None where nothing was made."""
    gains = design.gains
    if gains.empty:
        return None
    columns = [*COLUMNS, *([HELD_OUT] if "held_out" in gains else ())]
    paragraphs = [gain_sentences(gains)]
    if design.extension is not None:
        carried = extension_sentence(design.extension, len(design.low_rank.A))
        paragraphs.append([carried, *cost_sentences(design.extension)])
    rows = [_row(columns, row) for row in gains.to_dict("records")]
    return Section("Made for this corpus", [" ".join(p) for p in paragraphs if p], columns, rows)


def gain_sentences(gains: pd.DataFrame) -> list[str]:
    """Which designs are better than the known ones, and whether beyond their error."""
    beside = gains[gains["beside"] != ""]
    if beside.empty:
        return []
    low, high = column(beside, "gain_low"), column(beside, "gain_high")
    if not np.isfinite(column(beside, "gain")).all():
        return [
            "What is gained cannot be told: noise took the sum of the corpus's squared distances "
            "to 0 or below, in some of its folds at least."
        ]
    if not np.isfinite(low).any():
        best = beside.iloc[int(column(beside, "gain").argmax())]
        return [
            f"The most is gained by {best['encoding']}, {number(best['gain'])} of stress over "
            f"{best['beside']}; its error is not known."
        ]
    changes = np.abs(column(beside, "gain")) > NOTHING
    said = []
    if (beyond := changes & (low > 0)).any():
        best_first = beside[beyond].sort_values("gain", ascending=False, kind="stable")
        each = [
            f"{row['encoding']} over {row['beside']} ({with_error(row['gain'], row['gain_se'])})"
            for row in best_first.to_dict("records")
        ]
        said.append(f"Beyond its error is the gain of {join(each)}.")
    for members, what in (
        (changes & (low <= 0) & (high >= 0), "may gain is within its error"),
        (~changes, "gains is nothing: the distances are the same, up to a scale"),
        (changes & (high < 0), "gains is less than nothing, beyond its error"),
    ):
        if members.any():
            said.append(f"What {join(beside['encoding'][members].tolist())} {what}.")
    return said


def extension_sentence(
    extension: Extension, known: int, what: str = "The low-rank encoding"
) -> str:
    """How far a table was carried, and by which ways."""
    ways = [f"{count(rows, 'row')} {METHODS[way]}" for way, rows in _ways(extension).items()]
    return (
        f"{what} is carried from {count(known, 'position')} to "
        f"{len(extension.methods):,}: {join(ways) if ways else 'no row is new'}."
    )


def cost_sentences(extension: Extension) -> list[str]:
    """What the ways cost that were taken, where it could be measured, and whether one costs less.

    Gower's formula is told the distances of the hidden positions, and stands for itself.
    """
    cost, taken = extension.held_out, _ways(extension)
    costs = [f"{estimate(cost[way])} ({way})" for way in taken if np.isfinite(cost[way].value)]
    if not costs:
        return []
    said = [
        "With the last quarter of the known positions hidden and carried there alike, its stress "
        f"on them is {join(costs)}."
    ]
    if "harmonic" in taken and cost["interpolation"].value < cost["harmonic"].value:
        said.append(
            f"Interpolation, which moves the known rows too, has {estimate(cost['interpolation'])} "
            "there (--extend-by interpolation)."
        )
    return said


def _ways(extension: Extension) -> Counter[str]:
    """How many rows came by each way."""
    return Counter(way for way in extension.methods if way in METHODS)


def _row(columns: list[Column], gain: Mapping[Any, Any]) -> Row:
    about = [f"beside {gain['beside']}"] if gain["beside"] else []
    return Row(pieces(gain["encoding"]), about, [_cell(c.key, gain) for c in columns])


def _cell(key: str, gain: Mapping[Any, Any]) -> Cell:
    """A number with its error, and beneath it what belongs to it."""
    if key == "parameters":
        return Cell(f"{gain[key]:,}")
    below = ""
    if key == "stress" and gain["beside"]:
        below = f"beside {number(gain['stress_beside'])}"
    elif key == "gain" and abs(gain["gain"]) > NOTHING:
        below = interval(gain["gain_low"], gain["gain_high"])
    elif key == "floor" and np.isfinite(gain["floor_found"]):
        below = f"found {number(gain['floor_found'])}"
    elif key == "held_out":
        beside = gain["held_out_beside"]
        known = f"beside {number(beside)}" if np.isfinite(beside) else ""
        below = ", ".join(text for text in (gain["extension"], known) if text)
    return Cell.of(with_error(gain[key], gain.get(f"{key}_se", float("nan"))), below)
