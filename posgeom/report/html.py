"""The report on a design: its numbers in plain words, and what belongs on its page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from posgeom.rank import explained_share
from posgeom.report.designs import designs
from posgeom.report.draw import Drawn
from posgeom.report.page import flat, page
from posgeom.report.ranks import stress_at
from posgeom.report.words import (
    Subject,
    by_stress,
    column,
    count,
    estimate,
    join,
    made_for_corpus,
    number,
    with_error,
)

if TYPE_CHECKING:
    import pandas as pd

    from posgeom.design import Design


def report_html(design: Design, drawn: Iterable[Drawn]) -> str:
    """The page."""
    corpus = [(k, v) for k, v in flat(design.counts.provenance.as_dict()) if k != "notes"]
    provenance = flat(design.provenance)
    return page(
        kicker="Which positional encoding fits this corpus?",
        title=design.title,
        facts=facts(design),
        summary=summary(design),
        caution=plugin_caution(design),
        scores=by_stress(design),
        designs=designs(design),
        drawn=drawn,
        tables={
            "Settings": flat(design.settings),
            "Corpus": corpus,
            "Provenance": [x for x in provenance if x not in corpus and x[0] != "notes"],
        },
        notes=design.notes,
    )


def summary(design: Design) -> list[str]:
    """A few sentences from the numbers, for a reader who wants only the answer."""
    found = design.diagnosis
    first = plugin_summary(design) if found is None else found.sentences
    n, d, r = len(design.geometry.index), len(design.low_rank.B), design.low_rank.rank
    name = f"{design.table_family}:rank={r}"
    share = explained_share(np.asarray(design.mds.eigenvalues))[r - 1]
    saved = 1 - design.low_rank.n_parameters / (n * d)
    less = f"{100 * abs(saved):.1f}% {'fewer' if saved >= 0 else 'more'}"
    return [
        *first,
        f"The low-rank encoding made from the corpus ({name} in the table) keeps "
        f"{count(r, 'dimension')} of at most {n - 1} and {100 * share:.1f}% of the variance; "
        f"its stress is {_stress_of_rank(design, r)}.",
        f"It takes {count(design.low_rank.n_parameters, 'parameter')} where a full table of "
        f"{n} × {d} takes {n * d:,}: {less}.",
    ]


def plugin_summary(design: Design) -> list[str]:
    """What plug-in distances say of encodings and of the floor; errors are not known."""
    sees = (
        "how many rows and columns two cells stand apart"
        if design.geometry.grid
        else "the offset between two positions, as sinusoidal, RoPE, ALiBi and T5 do,"
    )
    return [
        *_best_sentence(by_stress(design)),
        f"The floor is {estimate(design.floor)}: no encoding that sees only {sees} can have less "
        f"stress here. {_floor_meaning(design)}",
    ]


def _stress_of_rank(design: Design, rank: int) -> str:
    """The stress of the low-rank encoding as the table of scores has it, with its error."""
    row = design.scores[design.scores["encoding"] == f"{design.table_family}:rank={rank}"]
    if row.empty:
        return number(stress_at(design, rank))
    return with_error(column(row, "stress")[0], column(row, "stress_se")[0])


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
    known, random = ~made_for_corpus(scores), scores["family"] == "random"
    lot, best = scores.loc[random, "stress"].min(), scores.loc[known & ~random, "stress"].min()
    if not lot <= 1.25 * best:  # also where one of the two is missing
        return ""
    return (
        f" Random rows fit as well (stress {number(lot)}) as the best other encoding not made "
        f"from the corpus ({number(best)}), or nearly so: here a low stress is no sign of fit."
    )


def _best_sentence(scores: pd.DataFrame) -> list[str]:
    known = scores[~made_for_corpus(scores) & np.isfinite(scores["stress"])]
    if known.empty:
        return []
    stress = known["stress"].to_numpy(float)
    names = known["encoding"].astype(str).tolist()
    ties = _ties(stress)
    first = f"{join(names[:ties])} {'fits' if ties == 1 else 'fit'} this corpus best"
    of = "the encoding" if len(names) == 1 else f"the {len(names)} encodings"
    text = f"Of {of} not made from the corpus, {first}, with stress {number(stress[0])}"
    if ties < len(names):
        ratio = stress[ties] / stress[0] if stress[0] > 1e-12 else float("inf")
        far = "practically the same" if ratio < 1.02 else f"{ratio:.3g} times as much"
        following = names[ties : ties + _ties(stress[ties:])]
        text += f"; next {'comes' if len(following) == 1 else 'come'} {join(following)} with "
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


def facts(design: Subject) -> str:
    g, documents = design.geometry, design.counts.provenance.documents
    grid = f" ({g.grid[0]} × {g.grid[1]} grid)" if g.grid else ""
    metric = g.metric.replace("_", "-").capitalize()
    estimator = "plug-in" if g.estimator == "plugin" else g.estimator
    return (
        f"{count(documents, 'document')} · {int(np.sum(g.totals)):,} tokens of "
        f"{_types(design):,} types · {len(g.index)} positions{grid} · "
        f"{metric} distances, {estimator} estimate"
    )


def _types(design: Subject) -> int:
    """How many token types the corpus uses; the tokenizer may know more."""
    return int(np.count_nonzero(design.counts.pooled.sum(axis=0)))
