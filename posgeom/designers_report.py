"""The best encoding of each family for one corpus: gains, floors, ranks, parameters, extension."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posgeom.atomic import written_folder
from posgeom.counting import count_positions
from posgeom.designers.designed import own_rank
from posgeom.designers.extension import HIDDEN, LEAST_POSITIONS, METHODS, Extension, extend
from posgeom.designers.families import ALL, family_candidates
from posgeom.designers.ranks import rank_table
from posgeom.designers.table_choice import least_stress_coordinates, rank_of, table_of_rank
from posgeom.emit import made_with
from posgeom.gains import COLUMNS, HELD_OUT_COLUMNS, gains
from posgeom.geometry import Geometry, estimate_geometry
from posgeom.mds import classical_mds
from posgeom.report.designs import (
    NOTHING,
    cost_sentences,
    extension_sentence,
    gain_sentences,
)
from posgeom.report.words import estimate, number, with_error

if TYPE_CHECKING:
    import pandas as pd

FILES = ("designers.csv", "designers.md", "run.toml", "provenance.json")
FURTHER = 2  # times the corpus's length that tables are carried to
FIRST_RANKS, MOST_RANKS = 6, 12  # rows of the page's table
MOST_VALUES = 4  # of a list of parameters on the page


@dataclass(frozen=True, eq=False)
class Designs:
    """What was made for a geometry.

    table         a row a design, see posgeom.gains; the columns half_held_out, … are those with
                  half of the positions hidden, which carries designs to twice the length
    ranks         a row a rank, see posgeom.designers.ranks
    chosen        rank "auto" of classical MDS and of the table of least stress
    significant   dimensions that the test finds above the noise, 0 where none was made
    above         those of the geometry
    carried       tables carried to twice the length, by spec; none on a grid
    """

    table: "pd.DataFrame" = field(repr=False)
    ranks: "pd.DataFrame" = field(repr=False)
    chosen: tuple[int, int]
    significant: int
    above: int
    carried: dict[str, Extension] = field(repr=False)


@dataclass(frozen=True, eq=False)
class DesignersReport:
    """What designers make of one corpus; designs is None where there is no structure to fit."""

    corpus: str
    documents: int
    positions: int
    tokenizer: str
    designs: Designs | None
    notes: tuple[str, ...]
    settings: dict[str, Any] = field(repr=False)
    provenance: dict[str, Any] = field(repr=False)

    def save(self, folder: str | PathLike[str], *, force: bool = False) -> Path:
        """Write the table, a page of Markdown and run.toml into a new folder; returns it."""
        import pandas as pd
        import tomli_w

        table = pd.DataFrame(columns=list(COLUMNS)) if self.designs is None else self.designs.table
        with written_folder(folder, FILES, "run.toml", force=force) as out:
            table.to_csv(out / "designers.csv", index=False, lineterminator="\n")
            (out / "designers.md").write_text(self.markdown(), encoding="utf-8")
            stage = {"job": "designers"} | self.settings
            (out / "run.toml").write_text(tomli_w.dumps({"stage": [stage]}), encoding="utf-8")
            about = json.dumps(made_with() | self.provenance, indent=2)
            (out / "provenance.json").write_text(about + "\n", encoding="utf-8")
        return Path(folder)

    def markdown(self) -> str:
        """The report for a reader."""
        lines = [
            f"# {self.corpus}",
            "",
            f"{self.documents:,} documents, {self.positions} positions, tokenizer "
            f"{self.tokenizer}.",
            "",
        ]
        if self.designs is None:
            lines += [
                "Positions cannot be told apart in this corpus: there is no geometry to fit, and "
                "nothing is made for it.",
                "",
            ]
        else:
            lines += page_of(self.designs, self.positions)
        lines += [f"- {note}" for note in self.notes]
        return "\n".join(lines).rstrip() + "\n"


def report_designers(
    corpus: Any,
    tokenizer: Any = "words",
    positions: int | None = None,
    align: str = "start",
    *,
    grid: tuple[int, int] | None = None,
    min_count: int = 2,
    dim: int = 128,
    heads: int = 8,
    seed: int = 0,
    progress: bool = False,
    text_field: str | None = None,
    group_field: str | None = None,
    documents: str = "line",
) -> DesignersReport:
    """Count a corpus once and make the encodings of all families for it.

    The keywords are those of `design`.
    """
    counts = count_positions(
        corpus,
        tokenizer,
        positions,
        align,
        grid=grid,
        progress=progress,
        text_field=text_field,
        group_field=group_field,
        documents=documents,
    )
    geometry = estimate_geometry(counts, min_count=min_count, seed=seed)
    settings = {
        "source": corpus if isinstance(corpus, str) else None,
        "tokenizer": str(tokenizer),
        "positions": counts.n_positions,
        "align": align,
        "grid": grid,
        "min_count": min_count,
        "dim": dim,
        "heads": heads,
        "seed": seed,
        "text_field": text_field,
        "group_field": group_field,
        "documents": documents,
    }
    return DesignersReport(
        corpus=", ".join(Path(s).name for s in counts.provenance.sources),
        documents=counts.provenance.documents,
        positions=geometry.n_positions,
        tokenizer=Path(counts.provenance.tokenizer).name,
        designs=make_designs(geometry, dim, heads, seed) if geometry.has_structure else None,
        notes=counts.provenance.notes + geometry.notes,
        settings={key: value for key, value in settings.items() if value is not None},
        provenance=counts.provenance.as_dict(),
    )


def make_designs(geometry: Geometry, dim: int, heads: int, seed: int) -> Designs:
    """Make the encodings of all families; tables of the rank that "auto" takes of least stress."""
    chosen = (
        rank_of(geometry, "auto", dim, by_stress=False),
        rank_of(geometry, "auto", dim, by_stress=True),
    )
    r = chosen[1]
    on_a_grid = geometry.grid is not None
    candidates = family_candidates([ALL], rank=r, dim=dim, heads=heads, grid=on_a_grid)
    carried = {}
    if not on_a_grid and geometry.n_positions >= LEAST_POSITIONS:
        length = FURTHER * (int(geometry.index[-1]) + 1)
        for name, by_stress in (("mds", False), ("stress", True)):
            carried[f"{name}:rank={r}"] = extend(
                geometry,
                table_of_rank(geometry, r, dim, by_stress=by_stress).A,
                length,
                fit=partial(least_stress_coordinates, dim=dim) if by_stress else None,
                optimal=by_stress,
            )
    table, half = (
        gains(geometry, candidates, dim, seed=seed, held_out=True, hidden=hidden)
        for hidden in (HIDDEN, 0.5)
    )
    return Designs(
        table=table.assign(**{f"half_{name}": half[name] for name in HELD_OUT_COLUMNS}),
        ranks=rank_table(geometry, dim),
        chosen=chosen,
        significant=geometry.stationarity.significant if geometry.stationarity else 0,
        above=own_rank(classical_mds(geometry.squared, squared=True), dim),
        carried=carried,
    )


def page_of(designs: Designs, positions: int) -> list[str]:
    """The lines of the page on what was made."""
    table = designs.table
    shown, found = shown_ranks(designs), designs.significant
    tested = f", {found} by the test whether positions differ" if found else ""
    fits = [(row["encoding"], row["spec"]) for row in table.to_dict("records") if row["spec"]]
    return [
        "## The best of each family",
        "",
        *markdown_table(
            ("encoding", "stress", "beside", "gain", "floor", "least found", "parameters"),
            [
                (
                    row["encoding"],
                    with_error(row["stress"], row["stress_se"]),
                    f"{row['beside']} {number(row['stress_beside'])}" if row["beside"] else "–",
                    with_error(row["gain"], row["gain_se"]),
                    number(row["floor"]),
                    number(row["floor_found"]),
                    f"{row['parameters']:,}",
                )
                for row in table.to_dict("records")
            ],
        ),
        "",
        " ".join(gain_sentences(table)),
        "Stresses and gains of tables are those of the fit. Their floor is what is proved of so "
        "many dimensions, that of the others the least stress by offset alone; a fit below it has "
        "followed the noise of the sample by as much.",
        "",
        "## Ranks",
        "",
        f"{designs.above} dimensions of the geometry stand above the noise{tested}. Rank auto is "
        f"{designs.chosen[0]} by classical MDS and {designs.chosen[1]} by least stress, which the "
        "tables above have.",
        "",
        *markdown_table(
            ("rank", "classical MDS", "least found", "proved floor", "explained", "parameters"),
            [
                (
                    f"{row['rank']}",
                    with_error(row["stress"], row["stress_se"]),
                    with_error(row["optimal_stress"], row["optimal_stress_se"]),
                    number(row["floor"]),
                    f"{row['explained']:.1%}",
                    f"{row['parameters']:,}",
                )
                for row in designs.ranks.iloc[shown].to_dict("records")
            ],
        ),
        "",
        "## Parameters",
        "",
        *(f"- {name}: `{shortened(spec)}`" for name, spec in fits),
        "",
        "## Beyond the corpus",
        "",
        *beyond(designs, positions),
        "",
    ]


def shown_ranks(designs: Designs) -> list[int]:
    """Rows of the table of ranks to show: low ones, ever fewer of the others, and the chosen."""
    n = len(designs.ranks)
    steps = np.geomspace(1, n, MOST_RANKS).round().astype(int) - 1
    taken = np.flatnonzero(designs.ranks["rank"].isin(designs.chosen))
    return sorted({*range(min(n, FIRST_RANKS)), *steps.tolist(), *taken.tolist()})


def beyond(designs: Designs, positions: int) -> list[str]:
    """What designs cost on positions that were hidden from them, and tables carried to 2n."""
    hidden = designs.table[np.isfinite(designs.table["held_out"])]
    if hidden.empty:
        return ["Too few positions to hide some of them."]
    head = ("encoding", "a quarter hidden", "beside", "half hidden: to twice the length", "beside")
    lines = [
        "Stress over the pairs that touch the last positions, which were hidden from the fit; "
        "beside it that of the known encoding there.",
        "",
        *markdown_table(head, [_held_out_cells(row) for row in hidden.to_dict("records")]),
        *worse_sentence(hidden),
        "",
    ]
    if not designs.carried:
        return [*lines, "Tables are not carried on: positions are cells of a grid."]
    costs = [
        (spec, *(estimate(extension.held_out[way]) for way in METHODS))
        for spec, extension in designs.carried.items()
    ]
    return [
        *lines,
        "Tables, a quarter hidden, by way; Gower's formula is told the distances of the hidden "
        "positions to the shown ones:",
        "",
        *markdown_table(("table", *METHODS), costs),
        *(
            line
            for spec, extension in designs.carried.items()
            for line in ("", " ".join(_carried(spec, extension, positions)))
        ),
    ]


def _carried(spec: str, extension: Extension, positions: int) -> list[str]:
    return [extension_sentence(extension, positions, spec), *cost_sentences(extension)]


def _held_out_cells(row: dict[Any, Any]) -> tuple[str, ...]:
    cells = [row["encoding"]]
    for half in ("", "half_"):
        text = with_error(row[f"{half}held_out"], row[f"{half}held_out_se"])
        way, beside = row[f"{half}extension"], row[f"{half}held_out_beside"]
        cells += [f"{text}, {way}" if way else text, number(beside)]
    return tuple(cells)


def worse_sentence(hidden: "pd.DataFrame") -> list[str]:
    """Which fits do worse than the known encodings where they were not fitted."""
    behind = hidden["half_held_out"] - hidden["half_held_out_beside"]
    worse = hidden[behind > hidden["half_held_out_se"].fillna(NOTHING)]
    if worse.empty:
        return []
    names = ", ".join(worse["encoding"])
    return ["", f"At twice the length worse by more than their error: {names}."]


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of Markdown: the first column to the left, the others to the right."""
    ruler = ["---", *["---:"] * (len(head) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in (head, ruler, *rows)]


def shortened(spec: str) -> str:
    """A spec whose long lists are cut: `inv_freq=1;0.52;… (64 values)`."""
    family, colon, options = spec.partition(":")
    return family + colon + ",".join(_shortened_option(item) for item in options.split(","))


def _shortened_option(option: str) -> str:
    key, equals, value = option.partition("=")
    items = value.split(";")
    shown = [_rounded(item) for item in items[:MOST_VALUES]]
    rest = f";… ({len(items)} values)" if len(items) > MOST_VALUES else ""
    return key + equals + ";".join(shown) + rest


def _rounded(text: str) -> str:
    """A number to four digits; other text as it is."""
    try:
        return f"{float(text):.4g}" if not text.lstrip("-").isdigit() else text
    except ValueError:
        return text
