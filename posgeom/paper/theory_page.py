"""What the theory part says of necessity, separation and monotonicity: from tables to words."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from posgeom.paper.claims import CLAIMS
from posgeom.paper.expectations import Gradients, Merged
from posgeom.paper.necessity import DIM, EQUIVARIANT
from posgeom.paper.page import Judgement, Section, markdown_table
from posgeom.paper.theory_data import has_bert
from posgeom.report.words import join, number, with_error

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Part:
    """One theorem: its lines in the table of claims, and its section."""

    judgements: tuple[Judgement, ...]
    section: Section


def fraction(x: Fraction) -> str:
    """A fraction for a reader: −1/4."""
    return str(x).replace("-", "−")


def rounding(x: float) -> str:
    """A rounding error for a reader, 3.2e−15; words.number would say 0."""
    return f"{x:.1e}".replace("-", "−")


def claimed(key: str, ours: str, convention: str, verdict: str) -> Judgement:
    """One of the paper's claims without a figure, beside ours."""
    claim = CLAIMS[key]
    return Judgement(claim.says, claim.where, "–", ours, convention, verdict)


def necessity_part(table: "pd.DataFrame", positions: int) -> Part:
    """Theorem 1 from necessity_table."""
    none = table[table["kind"] == "none"].iloc[0]
    others = table[table["kind"] != "none"]
    holds = max(none["equivariance_largest"], none["pooling_largest"]) <= EQUIVARIANT
    broken = others["equivariance_least"].min() > EQUIVARIANT
    mirrored = others[others["reversal"] <= EQUIVARIANT]["encoding"].to_list()
    runs = f"{none['permutations']:,} permutations in {none['models']} random models"
    convention = f"{positions} tokens, d = {DIM}, float64"
    judgements = (
        claimed(
            "necessity",
            f"largest break {rounding(none['equivariance_largest'])}, of the mean over positions "
            f"{rounding(none['pooling_largest'])}, in {runs}",
            convention,
            "holds" if holds else "fails",
        ),
        Judgement(
            "a causal mask or a positional encoding breaks it",
            "Theorem 1",
            "–",
            f"least break {number(others['equivariance_least'].min())} over "
            f"{len(others)} ways and all permutations",
            convention,
            "holds for each of them" if broken else "fails for some",
        ),
    )
    lines = [
        "f is a Transformer of 1, 2 or 4 layers and 1 or 4 heads with random weights, pre-norm or "
        "post-norm; X random tokens; π a random permutation of them. Breaks are the largest entry "
        "of f(πX) − πf(X), pooled ones of the difference of the means over positions, in units "
        "of the root mean square of f(X).",
        "",
        *markdown_table(
            ("way", "enters as", "break", "least", "pooled", "pooled, least", "order reversed"),
            [
                (
                    row["encoding"],
                    row["kind"],
                    f"{gap(row['equivariance'])} ± {gap(row['equivariance_sd'])}",
                    gap(row["equivariance_least"]),
                    gap(row["pooling"]),
                    gap(row["pooling_least"]),
                    _broken(row["reversal"]),
                )
                for row in table.to_dict("records")
            ],
        ),
        "",
        "± is the standard deviation over models and permutations. The last column is the pooled "
        "break where the order of all tokens is turned round.",
    ]
    if mirrored:
        lines += [
            "",
            f"A positional signal is not enough for every task: {', '.join(mirrored)} depend on "
            "|i − j| alone, so that without a mask a sequence and its mirror image have the same "
            "pooled vector, to rounding. (T5's and FIRE's numbers are stand-ins here; a trained T5 "
            "tells left from right.)",
        ]
    return Part(judgements, Section("Theorem 1: necessity", tuple(lines)))


def gap(x: float) -> str:
    """A break for a reader: 1.3e−15 where it is rounding, else 0.478."""
    return rounding(x) if x <= EQUIVARIANT else number(x)


def _broken(x: float) -> str:
    return "not broken" if x <= EQUIVARIANT else number(x)


def separation_part(
    table: "pd.DataFrame", unseen: Gradients, phantom: Gradients, merged: Merged
) -> Part:
    """Theorem 4 from separation_table and the counterexamples to its proof."""
    learned = table[table["origin"] == "learned"]
    designed = table[table["origin"] == "designed"]
    equal = int(table[["equal_fp32", "equal_bf16", "equal_fp16"]].to_numpy().sum())
    closer = bool((learned["ratio"] < learned["random"]).all())
    judgements = (
        claimed(
            "separation",
            f"least distance {number(learned['ratio'].min())} to {number(learned['ratio'].max())} "
            f"of the median in {len(learned)} learned tables, {equal} equal rows",
            "fp32 as stored, and rounded to bf16 and fp16",
            "seen in every table" if not equal else "fails",
        ),
        Judgement(
            "training assigns distinct vectors to distinct positions",
            "abstract",
            "–",
            "independent normal rows of the same shapes: least distance "
            f"{number(learned['random'].min())} to {number(learned['random'].max())} "
            "of the median",
            f"{int(table['seeds'].iloc[0])} seeds",
            "not shown: random rows are further apart" if closer else "open",
        ),
        Judgement(
            "the expectation of c·e may be taken as a product of expectations",
            "Theorem 4, proof",
            "–",
            f"gradient {fraction(phantom.true)} where the product says "
            f"{fraction(phantom.factorised)}; {fraction(unseen.true)} where it says "
            f"{fraction(unseen.factorised)}",
            "two tokens, exact fractions",
            "fails, in both directions",
        ),
        Judgement(
            "it is so wherever statistics differ and order matters",
            "Theorem 4",
            "–",
            f"y = x₀ + x₁ + 2x₂: loss {merged.loss} with one vector for positions 0 and 1",
            "order sensitivity of the task, not of each pair",
            "fails, unless each pair has to matter",
        ),
    )
    lines = [
        "The least distance between two rows, and where. A ratio is least / median, which no "
        "scale changes; the random one that of untrained rows of the same shape.",
        "",
        *markdown_table(
            ("table", "n × d", "least", "at", "ratio", "random", "ratio in bf16", "equal rows"),
            [
                (
                    row["table"],
                    f"{row['positions']:,} × {row['dim']}",
                    number(row["least"]),
                    f"{row['i']}, {row['j']}",
                    number(row["ratio"]),
                    f"{row['random']:.3f} ± {row['random_sd']:.3f}",
                    number(row["ratio_bf16"]),
                    f"{row['equal_fp32'] + row['equal_bf16'] + row['equal_fp16']}",
                )
                for row in table.to_dict("records")
            ],
        ),
        "",
        "Equal rows are those of fp32, bf16 and fp16 together. Training brings rows together: "
        "neighbours share most of their vector, and random rows, which are distinct with "
        "probability 1, lie further apart by this measure. That a learned table separates its "
        "positions is therefore no evidence for the theorem. How the distance goes over the "
        "epochs is for the training part.",
    ]
    if len(designed):
        closest = designed.nsmallest(1, "ratio").iloc[0]
        lines += [
            "",
            f"Tables designed for a corpus bring alike positions together: {closest['table']} has "
            f"two rows at {number(closest['ratio'])} of the median.",
        ]
    lines += ["", *_proof_lines(unseen, phantom, merged)]
    return Part(judgements, Section("Theorem 4: separation", tuple(lines)))


def _proof_lines(unseen: Gradients, phantom: Gradients, merged: Merged) -> list[str]:
    shares, weights = (", ".join(map(str, xs)) for xs in (merged.shares, merged.weights))
    return [
        "**The proof.** As it is known to us, it writes the gradient of a position vector as "
        "E[Σ_k c_k (e_k + p)] Mᵀ, c_k the derivative of the loss by a score, e_k the token's "
        "vector, and goes on with Σ_k E[c_k] E[e_k]. Both come of one sample and hang together. "
        "Two tokens of ±1, a query whose vector is 0, squared loss, all sequences gone through:",
        "",
        "- independent fair tokens, target 1 where they differ: positions have one distribution, "
        f"the product is {fraction(unseen.factorised)}, the gradient {fraction(unseen.true)};",
        "- (+, −) half of the time with target 1, (−, +) a quarter with target −2, equal tokens "
        "with their mean: statistics differ, the product is "
        f"{fraction(phantom.factorised)}, the gradient {fraction(phantom.true)}: the point is "
        "stationary.",
        "",
        "**The statement.** Tokens 0 and 1, independent, with shares of 1 at the three positions "
        f"{shares}; the target is x₀ + x₁ + 2x₂, the model 4 Σ a_k x_k with attention a by "
        f"position alone. The loss is {merged.loss} at a = ({weights}) and nowhere else, so that "
        "at every global minimum positions 0 and 1 have one score and one vector can serve both, "
        "though their statistics differ and the order of the sequence matters (one vector for 1 "
        f"and 2 costs {merged.apart}). The theorem stands if its order sensitivity is asked of "
        "every pair of positions; the exact wording is not known to us.",
    ]


def monotonicity_part(table: "pd.DataFrame", names: Sequence[str]) -> Part:
    """Conjecture 5 from monotonicity_table; names: the tables that were at hand."""
    kinds = {
        "Debiased distances": (table["estimator"] == "debiased") & ~table["variant"],
        "Plug-in distances": table["estimator"] == "plugin",
        "Debiased distances, in other tokens": table["variant"],
    }
    debiased = table[kinds["Debiased distances"]]
    less = debiased["as_few"] == 0
    sigma = debiased["difference"] / debiased["difference_se"]
    by_offset = debiased["beyond"] > 2 * debiased["beyond_se"]
    error = np.hypot(debiased["mirrored_se"], debiased["random_mirrored_sd"])
    mirrored = debiased["random_mirrored"] - debiased["mirrored"] > 2 * error
    n = len(debiased)
    low, high = debiased["violation"].min(), debiased["violation"].max()
    seeds = int(table["seeds"].iloc[0])
    convention = "BERT's tokens, no special tokens, debiased distances, all triples"
    judgements = (
        claimed(
            "monotonicity",
            f"{low:.1%} to {high:.1%} of the triples violate it",
            convention,
            "a tendency, not a law",
        ),
        Judgement(
            "learned tables (BERT-base) violate it less often than random ones",
            "Conjecture 5",
            "–",
            f"{int(less.sum())} of {n} below all of {seeds} random tables, by "
            f"{-sigma.max():.1f} standard errors at least",
            convention
            + ("" if has_bert(names) else f"; {join(list(names))} stand in for BERT-base"),
            "holds" if less.all() else f"holds in {int(less.sum())} of {n}",
        ),
        Judgement(
            "because of the statistics, and not of the offset alone",
            "Conjecture 5",
            "–",
            f"|i − j| alone violates it more often than the learned table in "
            f"{int(by_offset.sum())} of {n}; among pairs equally far from i, learned tables do "
            f"better than random ones in {int(mirrored.sum())} of {n}",
            "two standard errors",
            f"at equal offsets: {_throughout(debiased['table'], mirrored)}",
        ),
    )
    lines = [
        "Share of the triples (i; j, k) with D_ij < D_ik but δ_ij > δ_ik, exactly over all n "
        "anchors and all pairs: for each anchor the inversions of δ once sorted by D, n log n "
        "steps. Ties, distances that round to the same billionth of the largest, are no "
        "violation in δ and no triple in D. Errors: jackknife over folds of the corpus; for "
        f"random rows of the same shape the standard deviation over {seeds} seeds.",
        "",
        "![Violated triples of learned and random tables](figures/monotonicity.svg)",
        "",
    ]
    head = ("corpus", "n", "table", "learned", "random", "offset alone", "mirrored", "at random")
    for title, rows in kinds.items():
        if rows.any():
            cells = [_violation_cells(row) for row in table[rows].to_dict("records")]
            lines += [f"{title}:", "", *markdown_table(head, cells), ""]
    lines += [
        "“Offset alone” is |i − j|, which knows nothing of any corpus: where it violates the "
        "conjecture as seldom as a learned table, the table need not have learned the "
        "statistics. “Mirrored” takes only the triples (i; i − t, i + t), whose offsets are "
        "equal, so that ½ is what offsets alone can do. The tables were trained on other texts "
        "than these, GPT-1 and GPT-2 with other tokens, and MiniLM and MPNet see a special token "
        "at position 0. Noise that is left in D draws every share towards ½. The proof that the "
        "paper gives for infinitely wide models (neural tangent kernel) is not examined here.",
        *_turned(table),
    ]
    return Part(judgements, Section("Conjecture 5: monotonicity", tuple(lines)))


def _violation_cells(row: Mapping[Hashable, Any]) -> tuple[str, ...]:
    return (
        row["corpus"],
        str(row["positions"]),
        row["table"],
        with_error(row["violation"], row["violation_se"]),
        f"{row['random']:.3f} ± {row['random_sd']:.3f}",
        f"{row['offset']:.3f}",
        with_error(row["mirrored"], row["mirrored_se"]),
        f"{row['random_mirrored']:.3f} ± {row['random_mirrored_sd']:.3f}",
    )


def _throughout(names: "pd.Series[str]", holds: "pd.Series[bool]") -> str:
    """`holds throughout for GPT-2, in some for MPNet, not for MiniLM`."""
    share = holds.groupby(names, sort=False).mean()
    groups = {
        "holds throughout for": share[share == 1],
        "in some for": share[(share > 0) & (share < 1)],
        "not for": share[share == 0],
    }
    return ", ".join(f"{how} {', '.join(of.index)}" for how, of in groups.items() if len(of))


def _turned(table: "pd.DataFrame") -> list[str]:
    """The table whose mirrored share plug-in distances change most."""
    keys = ["corpus", "positions", "table"]
    main = table[~table["variant"]].pivot_table(index=keys, columns="estimator", values="mirrored")
    gap = (main["plugin"] - main["debiased"]).abs()
    row = main.assign(gap=gap).reset_index().nlargest(1, "gap").iloc[0]
    return [
        "",
        "Fewer tokens at late positions make these look far from all others, so that plug-in "
        f"distances turn mirrored triples round: {row['table']} on {row['corpus']}, "
        f"n = {row['positions']}, violates {row['plugin']:.3f} of them by plug-in distances and "
        f"{row['debiased']:.3f} without their noise.",
    ]
