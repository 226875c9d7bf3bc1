"""The page on a real corpus: the paper's figures and claims beside ours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from posgeom.paper.claims import CLAIMS, FIGURES, SST2, Figure
from posgeom.paper.conventions import LABELS, SAVED, SLOPES, Counted, low_rank_at
from posgeom.paper.conventions_claims import Held, near_conventions
from posgeom.paper.page import Judgement, Section, markdown_table, percent
from posgeom.paper.scales import SCALES
from posgeom.paper.theory_data import has_bert
from posgeom.report.words import number, with_error

if TYPE_CHECKING:
    import pandas as pd

RANKS_SHOWN = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 127)
CALLED = {"sinusoidal": "sinusoidal and RoPE", "alibi": "ALiBi"}  # of the paper's tables
MOST_NEAR = 30  # conventions named on the page
JOINT = ("tokens", "padding", "distance", "variant", "scale")  # what two corpora would share


@dataclass(frozen=True, eq=False)
class Made:
    """What was computed for a corpus.

    name, positions, dim   the paper's table; of the table of all encodings
    counted                the texts and tokens that were counted
    encodings, ranks       tables at `positions` in the first text's BERT tokens
    plain                  the sweep, plug-in
    claims, clean_claims   the paper's claims under each convention, plug-in and debiased
    figures                the paper's, by family
    beside                 another corpus's name in the paper, and its sweep
    tables, missing        learned tables by name; sources that were not there
    """

    name: str
    positions: int
    dim: int
    counted: Sequence[Counted]
    encodings: "pd.DataFrame" = field(repr=False)
    ranks: "pd.DataFrame" = field(repr=False)
    plain: "pd.DataFrame" = field(repr=False)
    claims: Sequence[Held]
    clean_claims: Sequence[Held]
    figures: Mapping[str, Figure]
    beside: "tuple[str, pd.DataFrame] | None" = field(repr=False)
    tables: Sequence[str]
    missing: Sequence[str]

    @property
    def n_conventions(self) -> int:
        """Stresses in the sweep."""
        return int(self.plain[list(SCALES)].notna().sum().sum())


def opening(made: Made) -> tuple[str, ...]:
    """What was done, and what came out, in short."""
    first = made.counted[0]
    (far,) = (held for held in made.claims if held.claim == "alibi")
    (clean,) = (held for held in made.clean_claims if held.claim == "alibi")
    own, best_scale = (far.shares()["scale", scale] for scale in ("raw", "optimal"))
    of_scale = own[0] / own[1] > 4 * best_scale[0] / best_scale[1]
    why = ": a matter of the scale, which Eq. 4 leaves open, more than of geometry."
    plain, debiased = (_ranking(made.encodings, way) for way in ("plugin", "debiased"))
    return (
        f"{first.counts.provenance.documents:,} {first.text}. The table of all encodings is for "
        f"the first {made.positions} positions in BERT tokens, without special tokens and without "
        f"padding, d = {made.dim}; the sweep has {made.n_conventions:,} stresses: all that the "
        "paper leaves open, each choice with each.",
        "In short: scale-free stress by plug-in distances, which the paper takes, is "
        f"{plain}; once sampling noise is taken out it is {debiased}. Sinusoidal and RoPE have one "
        "and the same.",
        f"That ALiBi lies far below sinusoidal and RoPE ({far.means}) holds under {far.holding:,} "
        f"of {far.number:,} conventions, and under {clean.holding:,} of {clean.number:,} without "
        f"sampling noise. By plug-in distances it does under {_share(*own)} of those that leave "
        f"each encoding its own scale, and under {_share(*best_scale)} of those with the optimal "
        "scale" + (why if of_scale else "."),
    )


def _ranking(table: "pd.DataFrame", way: str) -> str:
    """Scale-free stresses of the encodings of the paper's tables, best first, with errors."""
    rows = table[table["encoding"].isin(CALLED)].sort_values(f"{way}_stress")
    return ", ".join(
        f"{with_error(row[f'{way}_stress'], row[f'{way}_stress_se'])} for {CALLED[row['encoding']]}"
        for row in rows.to_dict("records")
    )


def judgements(made: Made) -> tuple[Judgement, ...]:
    """The paper's figures and claims beside ours."""
    every = zip(made.claims, made.clean_claims, strict=True)
    return (
        *(_of_figure(made, family, figure) for family, figure in made.figures.items()),
        *(_joint(made) if made.beside is not None else ()),
        *(
            Judgement(
                CLAIMS[held.claim].says,
                CLAIMS[held.claim].where,
                "–",
                held.means,
                f"every convention of the sweep; debiased: {_debiased_lengths(made)}",
                f"{held.verdict}; debiased: {clean.verdict}",
            )
            for held, clean in every
        ),
        *(_fewer(made) if made.name == SST2 else ()),
    )


def _of_figure(made: Made, family: str, figure: Figure) -> Judgement:
    near = near_conventions(made.plain)
    near = near[near["encoding"] == family]
    own = made.encodings[made.encodings["encoding"] == family].iloc[0]
    tried = int(made.plain.loc[made.plain["encoding"] == family, list(SCALES)].notna().sum().sum())
    texts = ", ".join(
        f"{with_error(own[f'{way}_raw'], own[f'{way}_raw_se'])} ({called})"
        for way, called in (("plugin", "plug-in"), ("debiased", "debiased"))
    )
    listed = ", listed below" if len(near) <= MOST_NEAR else f", the first {MOST_NEAR} listed below"
    return Judgement(
        figure.what,
        figure.where,
        f"{figure.value:g}",
        texts,
        f"{made.positions} positions, BERT tokens, Hellinger chord, 8 heads side by side, linear "
        "reading at its own scale",
        f"within 5% under {len(near)} of {tried:,} conventions"
        + (listed if len(near) else "; not reproduced"),
    )


def _joint(made: Made) -> tuple[Judgement, ...]:
    """Whether one convention meets the figures of both corpora."""
    assert made.beside is not None
    name, other = made.beside
    here, there = (near_conventions(table) for table in (made.plain, other))
    both = here.merge(there, on=list(JOINT), suffixes=("", "_beside"))
    figures = {made.name: made.figures["alibi"].value}
    told = "; ".join(
        f"{row['tokens']}, padding {row['padding']}, {row['distance']}, {row['variant']}, scale "
        f"{row['scale']}: {number(row['stress'])} at n = {row['n']} here, "
        f"{number(row['stress_beside'])} at n = {row['n_beside']} there"
        for row in both.head(6).to_dict("records")
    )
    equal = int((both["n"] == both["n_beside"]).sum())
    return (
        Judgement(
            f"stress of ALiBi on {made.name} and on {name}, in one convention",
            "Eq. 4, tables of both",
            f"{figures[made.name]:g} and {FIGURES['sst2-alibi'].value:g}"
            if name == SST2
            else f"{figures[made.name]:g} and {FIGURES['imdb-alibi'].value:g}",
            told or "none meets both",
            "tokens, padding, distance, reading, slopes and scale alike; lengths may differ",
            f"{len(both)} pairs meet both within 5%, {equal} of them at one length",
        ),
    )


def _fewer(made: Made) -> tuple[Judgement, ...]:
    """How many parameters which rank saves."""
    figure = FIGURES["sst2-fewer"]
    n = made.positions
    saved = {(d, r): 1 - r * (n + d) / (n * d) for d in (128, 768) for r in (low_rank_at(n, d), 3)}
    texts = (f"{share:.1%} (rank {r}, d = {d})" for (d, r), share in saved.items())
    near = [f"rank {r} at d = {d}" for (d, r), share in saved.items() if figure.is_near(share)]
    return (
        Judgement(
            figure.what,
            figure.where,
            f"about {figure.value:.0%}",
            ", ".join(texts),
            f"n = {n}",
            f"reproduced by {' and '.join(near)}" if near else "not reproduced at this length",
        ),
    )


def sections(made: Made) -> tuple[Section, ...]:
    """What follows on the page."""
    return (
        Section("All encodings", tuple(_encoding_lines(made))),
        Section("Low rank (Remark 8)", tuple(_rank_lines(made))),
        Section("Which conventions", tuple(_claim_lines(made))),
        Section("What comes near the paper's figures", tuple(_near_lines(made))),
        Section("The sweep", tuple(_sweep_lines(made))),
        Section("Samples", tuple(_sample_lines(made))),
    )


def _encoding_lines(made: Made) -> list[str]:
    table = made.encodings.sort_values("debiased_stress", kind="stable")
    rows = [
        (
            row["encoding"],
            f"{row['parameters']:,}",
            *(
                with_error(row[f"{way}_{form}"], row[f"{way}_{form}_se"])
                for way in ("plugin", "debiased")
                for form in ("stress", "raw", "unit")
            ),
        )
        for row in table.to_dict("records")
    ]
    notes = table[table["note"].str.len() > 0]
    stand_in = f"{', '.join(made.tables) or 'no learned table'} stand in for it."
    return [
        "Scale-free stress, stress of Eq. 4 at the encoding's own scale, and with rows of length "
        "1; ± is one standard error by the jackknife over folds of documents, and the 95% "
        "intervals stand in encodings.csv. Plug-in figures include sampling noise, and their "
        "errors do not speak of it; debiased ones are corrected for the bias of the root."
        + ("" if has_bert(made.tables) else f" BERT-base's own table is not at hand: {stand_in}"),
        "",
        *markdown_table(
            (
                "encoding",
                "parameters",
                "plug-in",
                "plug-in, Eq. 4",
                "plug-in, unit rows",
                "debiased",
                "debiased, Eq. 4",
                "debiased, unit rows",
            ),
            rows,
        ),
        "",
        *(f"- {row['encoding']}: {row['note']}" for row in notes.to_dict("records")),
    ]


def _rank_lines(made: Made) -> list[str]:
    shown = made.ranks[made.ranks["rank"].isin([*RANKS_SHOWN, made.positions - 1])]
    return [
        "Classical MDS at each rank, made from the plug-in or the debiased geometry and held "
        "against the same; Eq. 4 at its own scale. Debiased figures are those of the fit, not "
        "corrected for bias. All ranks stand in ranks.csv.",
        "",
        *markdown_table(
            ("rank", "parameters", "fewer", "plug-in, Eq. 4", "debiased, Eq. 4"),
            [
                (
                    f"{row['rank']}",
                    f"{row['parameters']:,}",
                    percent(row["fewer"]),
                    *(
                        with_error(row[f"{way}_raw"], row[f"{way}_raw_se"])
                        for way in ("plugin", "debiased")
                    ),
                )
                for row in shown.to_dict("records")
            ],
        ),
        "",
        "![Stress of MDS by rank](figures/ranks.svg)",
    ]


def _claim_lines(made: Made) -> list[str]:
    """For each claim, under which values of each factor it holds."""
    lines = [
        "Under how many conventions each claim holds, by each choice, plug-in and debiased. "
        "ALiBi's is held under each of its variants with each width of the sinusoid, which makes "
        "more conventions than there are stresses; MDS keeps its own scale, so that its claims "
        f"have fewer. Debiased: {_debiased_lengths(made)}, where folds of documents reach every "
        "position; the squared chord is what is debiased, and the other two distances are "
        "functions of it; MDS is made from the sample that it is held against."
    ]
    for held, clean in zip(made.claims, made.clean_claims, strict=True):
        plain, debiased = held.shares(), clean.shares()
        by_factor: dict[str, list[str]] = {}
        for (factor, value), (holding, of) in plain.items():
            other = debiased.get((factor, value))
            text = f"{value} {_share(holding, of)}"
            by_factor.setdefault(factor, []).append(
                text + (f" / {_share(*other)}" if other is not None else "")
            )
        lines += [
            "",
            f"**{CLAIMS[held.claim].says}** ({held.means}): {held.verdict}; debiased: "
            f"{clean.verdict}.",
            "",
            *markdown_table(
                ("choice", "plug-in / debiased"),
                [(factor, ", ".join(texts)) for factor, texts in by_factor.items()],
                numbers=False,
            ),
        ]
    return lines


def _debiased_lengths(made: Made) -> str:
    """The lengths at which claims were held against debiased distances."""
    lengths = sorted({int(n) for held in made.clean_claims for n in held.table["n"]})
    return f"n = {', '.join(map(str, lengths))}" if lengths else "no length"


def _share(holding: int, of: int) -> str:
    return f"{holding / of:.0%}"


def _near_lines(made: Made) -> list[str]:
    near = near_conventions(made.plain)
    if near.empty:
        return ["No convention of the sweep comes within 5% of a figure of the paper."]
    shown = near.head(MOST_NEAR).to_dict("records")
    rest = len(near) - len(shown)
    return [
        "Conventions under which a stress is within 5% of the paper's figure. Which of them is "
        "the paper's cannot be told from one figure: they have little in common.",
        "",
        *markdown_table(
            (*LABELS, "encoding", "variant", "scale", "stress"),
            [
                (
                    *(str(row[name]) for name in (*LABELS, "encoding", "variant", "scale")),
                    number(row["stress"]),
                )
                for row in shown
            ],
            numbers=False,
        ),
        *(["", f"And {rest} more, marked in sweep.csv and sweep.html."] if rest else []),
    ]


def _sweep_lines(made: Made) -> list[str]:
    values = {name: ", ".join(map(str, made.plain[name].unique())) for name in LABELS}
    return [
        "[sweep.html](sweep.html) is the whole table, to search and sort; sweep.csv the same.",
        "",
        *(f"- {name}: {text}" for name, text in values.items()),
        "- scale: " + "; ".join(f"`{name}`, {about}" for name, about in SCALES.items()),
        "- ALiBi: readings linear, kernel and attention; slopes " + ", ".join(SLOPES),
        f"- MDS: ranks 1, 3, the largest that save {SAVED:.0%} of the parameters at d = 128 and "
        "768, and all",
        "- padding yes: every position past the end of a document counts as one further token, "
        "the same everywhere, as in a batch whose padding is not masked; a document that is cut "
        "keeps no closing special token",
        "",
        "![Stress under each convention](figures/conventions.svg)",
    ]


def _sample_lines(made: Made) -> list[str]:
    rows: list[tuple[str, ...]] = []
    for c in made.counted:
        about: Any = c.counts.provenance
        last = c.counts.totals
        rows.append(
            (
                c.text,
                c.tokens,
                f"{about.documents:,}",
                f"{about.tokens:,}",
                f"{about.longest:,}",
                ", ".join(f"{int(last[n - 1]):,} at {n}" for n in _steps(len(last))),
            )
        )
    missing = [f"Not at hand, and left out: {', '.join(made.missing)}."] if made.missing else []
    return [
        *markdown_table(
            ("text", "tokens", "documents", "tokens in all", "longest", "documents that reach"),
            rows,
        ),
        *(["", *missing] if missing else []),
    ]


def _steps(n: int) -> list[int]:
    """Positions whose sample sizes are told: powers of two, and the last."""
    return sorted({*(2**k for k in range(4, 12) if 2**k < n), n})
