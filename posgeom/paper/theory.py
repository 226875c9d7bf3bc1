"""The theorems of the paper as computations: claim, what was computed, verdict."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from posgeom import plots
from posgeom.encodings import FAMILIES, FixedTable, LearnedTable, Sinusoidal, make_encoding
from posgeom.paper import page
from posgeom.paper.chord import chord_table, ratio_table
from posgeom.paper.expectations import (
    merged_minimum,
    phantom_gradient,
    query_gradients,
    unseen_gradient,
)
from posgeom.paper.gram_stress import classical_line, gram_against_stress, least_stress_line
from posgeom.paper.monotonicity import monotonicity_table
from posgeom.paper.necessity import necessity_table
from posgeom.paper.page import PaperReport, Section, markdown_table, svg_of
from posgeom.paper.rank_bound import constructed_ranks, corpus_ranks
from posgeom.paper.separation import separation_table
from posgeom.paper.theory_data import (
    MANY,
    QUICK_SOURCES,
    SOURCES,
    Counted,
    Source,
    counted,
    has_bert,
    learned_tables,
)
from posgeom.paper.theory_geometry_page import chord_part, gram_part, rank_part
from posgeom.paper.theory_page import (
    monotonicity_part,
    necessity_part,
    separation_part,
)
from posgeom.plots.theory import spectra, violations
from posgeom.scoring import make_encodings

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FloatArray = NDArray[np.float64]

TABLES = (
    "necessity",
    "separation",
    "chord",
    "gram_stress",
    "ranks_constructed",
    "ranks",
    "monotonicity",
)
FILES = (*page.FILES, *(f"{name}.csv" for name in TABLES))
POSITIONS = 12  # tokens of the sequences of Theorem 1
DIM = 128  # of designed tables, as in the paper
ENCODINGS = ("sinusoidal", "rope", "alibi", "alibi:reading=kernel", "random")
DESIGNED = ("mds", "mds:rank=3", "stress:rank=3")


@dataclass(frozen=True)
class Effort:
    """How much is computed: random models of Theorem 1, random tables, corpora."""

    depths: tuple[int, ...]
    heads: tuple[int, ...]
    models: int
    permutations: int
    tables: int
    sources: tuple[Source, ...]


FULL = Effort((1, 2, 4), (1, 4), models=2, permutations=12, tables=20, sources=SOURCES)
QUICK = Effort((1, 2), (4,), models=1, permutations=5, tables=5, sources=QUICK_SOURCES)


def reproduce_theory(
    *,
    learned: Sequence[str] = (),
    quick: bool = False,
    seed: int = 0,
    progress: bool = False,
) -> PaperReport:
    """Each theorem, proposition and conjecture of the paper, held against computations.

    learned   specs `learned:PATH#KEY` of tables beside those below POSGEOM_DATA
    quick     fewer models, seeds and corpora
    Raises PosgeomError where the data is not at hand.
    """
    started, worked = time.perf_counter(), time.process_time()
    known = learned_tables(learned)
    effort = QUICK if quick else FULL
    corpora = list(counted(effort.sources, seed=seed, progress=progress))
    longest = _longest([c for c in corpora if not c.source.variant], at_most=MANY)
    necessity = necessity_table(
        tuple(FAMILIES),
        depths=effort.depths,
        heads=effort.heads,
        seeds=effort.models,
        permutations=effort.permutations,
        positions=POSITIONS,
    )
    separation = separations(known, longest, effort.tables)
    gradients = query_gradients(unseen_gradient()), query_gradients(phantom_gradient())
    ratios = ratio_table()
    chord = chord_table(
        [(c.name, g) for c in longest for g in (c.plugin, c.debiased)],
        {spec: make_encoding(spec, dim=DIM) for spec in ENCODINGS},
    )
    lines = classical_line(), least_stress_line()
    gram = gram_against_stress([(c.name, g) for c in longest for g in (c.plugin, c.debiased)])
    made = constructed_ranks(seed=seed)
    ranks, eigenvalues = corpus_ranks([(c.name, c.counts, c.debiased) for c in longest], seed=seed)
    monotonicity = monotonicities(corpora, known, effort.tables)
    parts = [
        necessity_part(necessity, POSITIONS),
        chord_part(ratios, chord),
        separation_part(separation, *gradients, merged_minimum()),
        monotonicity_part(monotonicity, list(known)),
        gram_part(*lines, gram),
        rank_part(made, ranks, DIM),
    ]
    return PaperReport(
        job="paper-theory",
        title="The theorems, each as a computation",
        opening=page.opened((OPENING,), quick),
        judgements=tuple(j for part in parts for j in part.judgements),
        sections=(materials(corpora, known), *(part.section for part in parts)),
        settings={"learned": list(learned), "quick": quick, "seed": seed},
        provenance={
            "seconds": round(time.perf_counter() - started),
            "processor_seconds": round(time.process_time() - worked),
            "corpora": {f"{c.name}, {c.positions}": c.fingerprint for c in corpora},
        },
        tables=dict(
            zip(
                TABLES,
                (necessity, separation, chord, gram, made, ranks, monotonicity),
                strict=True,
            )
        ),
        drawings={
            "monotonicity": monotonicity_figure(monotonicity),
            "spectra": spectra_figure(eigenvalues),
        },
        files=FILES,
    )


OPENING = (
    "The theorems, the proposition, the remark and the conjecture of the paper, each as a "
    "computation that could have come out otherwise. Where its exact wording or convention is not "
    "known to us, ours is stated. Proposition 6 is Proposition 5 in the abstract that arXiv lists."
)
STAND_IN = " They stand in for BERT-base, whose table is not at hand."


def materials(corpora: Sequence[Counted], known: dict[str, LearnedTable]) -> Section:
    """What the theorems were held against."""
    rows = [
        (
            c.name,
            str(c.positions),
            f"{c.counts.provenance.documents:,}",
            f"{c.debiased.totals[-1]:,}",
            str(c.folds),
            str(c.debiased.stationarity.significant if c.debiased.stationarity else "–"),
        )
        for c in corpora
    ]
    tables = ", ".join(
        f"{name} ({len(t.rows):,} × {t.rows.shape[1]}"
        + (f", position 0 in row {t.offset})" if t.offset else ")")
        for name, t in known.items()
    )
    head = ("corpus", "n", "documents", "tokens at the last position", "folds", "dimensions")
    stand_in = "" if has_bert(known) else STAND_IN
    lines = (
        *markdown_table(head, rows),
        "",
        "BERT's tokens and letters of DNA where no others are named; position 0 is a document's "
        "first token. Plug-in is the distance between observed frequencies, as in the paper; "
        "debiased has the sampling noise taken out, and keeps the dimensions that a test over "
        "folds finds.",
        "",
        f"Learned tables: {tables}.{stand_in}",
    )
    return Section("What was held against what", lines)


def separations(
    known: dict[str, LearnedTable], corpora: Sequence[Counted], seeds: int
) -> "pd.DataFrame":
    """separation_table of learned tables, of those designed for corpora, and of the sinusoid."""
    import pandas as pd

    designed = {
        f"{encoding.name}, {c.name}, {c.positions}": encoding.rows
        for c in corpora
        for encoding in make_encodings(c.debiased, DESIGNED, DIM)
        if isinstance(encoding, FixedTable)
    }
    groups: dict[str, dict[str, FloatArray]] = {
        "learned": {name: table.rows for name, table in known.items()},
        "designed": designed,
        "formula": {"sinusoidal": Sinusoidal(dim=DIM).table(np.arange(512))},
    }
    found = [
        separation_table(tables, seeds=seeds).assign(origin=origin)
        for origin, tables in groups.items()
    ]
    return pd.concat(found, ignore_index=True)


def monotonicities(
    corpora: Sequence[Counted], known: dict[str, LearnedTable], seeds: int
) -> "pd.DataFrame":
    """monotonicity_table of the texts; `variant` says which are the same in other tokens."""
    import pandas as pd

    found = [
        monotonicity_table(
            [(c.name, g) for g in ((c.debiased,) if c.source.variant else (c.debiased, c.plugin))],
            known,
            seeds=seeds,
        ).assign(variant=c.source.variant)
        for c in corpora
        if c.source.is_text
    ]
    return pd.concat(found, ignore_index=True)


def monotonicity_figure(table: "pd.DataFrame") -> bytes:
    """SVG: violations against the debiased geometries, a panel a corpus and length."""
    from matplotlib.figure import Figure

    debiased = table[(table["estimator"] == "debiased") & ~table["variant"]]
    cells = list(debiased.groupby(["corpus", "positions"], sort=False))
    with plots.style():
        drawn = Figure(figsize=(1.2 + 2.3 * len(cells), 2.6), layout="constrained")
        axes = drawn.subplots(1, len(cells), squeeze=False, sharey=True)[0]
        for ax, (key, cell) in zip(axes, cells, strict=True):
            corpus, n = key
            violations(
                ax,
                cell["table"].to_list(),
                (cell["violation"].to_numpy(), cell["violation_se"].to_numpy()),
                (cell["random"].to_numpy(), cell["random_sd"].to_numpy()),
                float(cell["offset"].iloc[0]),
            )
            ax.set_title(f"{corpus}, n = {n}")
            ax.set_xlabel("violated triples")
        legend_above(drawn, axes[0])
        return svg_of(drawn)


def spectra_figure(eigenvalues: dict[str, tuple[FloatArray, FloatArray]]) -> bytes:
    """SVG: plug-in eigenvalues of each corpus beside those of one without structure."""
    from matplotlib.figure import Figure

    with plots.style():
        drawn = Figure(figsize=(1 + 2.6 * len(eigenvalues), 2.6), layout="constrained")
        axes = drawn.subplots(1, len(eigenvalues), squeeze=False)[0]
        for ax, (name, (own, none)) in zip(axes, eigenvalues.items(), strict=True):
            spectra(ax, own, none, 1e-12 * own[0])
            ax.set(title=name, xlabel="number", ylabel="eigenvalue" if ax is axes[0] else "")
        legend_above(drawn, axes[0])
        return svg_of(drawn)


def legend_above(drawn: "Figure", ax: "Axes") -> None:
    """What the marks of one panel mean, above all of them, where it hides none."""
    drawn.legend(*ax.get_legend_handles_labels(), loc="outside upper left", ncols=3, fontsize=8)


def _longest(corpora: Sequence[Counted], at_most: int) -> list[Counted]:
    """Of each corpus the longest of its lengths up to `at_most`."""
    best: dict[str, Counted] = {}
    for c in corpora:
        if c.positions <= at_most and c.positions > getattr(best.get(c.name), "positions", 0):
            best[c.name] = c
    return list(best.values())
