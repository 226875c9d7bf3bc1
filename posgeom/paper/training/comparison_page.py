"""The page on many encodings in one model: losses, stresses, and what they say together."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posgeom.encodings import alibi_slopes
from posgeom.paper.page import Judgement, Section, markdown_table
from posgeom.paper.training.evidence import ALL, QUESTIONS, TRAINED, paired
from posgeom.paper.training.settings import HEADS
from posgeom.report.words import interval, number, with_error

if TYPE_CHECKING:
    import pandas as pd

LIKELY = 0.05  # p below which chance alone is not a likely reason
MAIN = QUESTIONS[0].name
FIXED = QUESTIONS[-1].name  # without what came to the first question later


def open_question(correlations: "pd.DataFrame") -> tuple[Judgement, ...]:
    """The question that the paper leaves open, beside our answer."""
    main = correlations[correlations["question"] == MAIN]
    return tuple(
        Judgement(
            "lower stress makes a better model (not shown by the paper)",
            "Eq. 4, Proposition 6",
            "–",
            f"{row['corpus']}: ρ of stress and test loss {_rho(row)}, p = {number(row['p'])}",
            f"{row['encodings']} encodings that tell positions apart, debiased stress",
            verdict(row),
        )
        for row in main.to_dict("records")
    )


def verdict(row: Mapping[Any, Any]) -> str:
    """What ρ says where its interval and its p leave no doubt, where one of them does, or both."""
    likely = (row["low"] > 0 or row["high"] < 0) + (row["p"] < LIKELY)
    loss = "lower" if row["rho"] > 0 else "higher"
    if likely == 2:
        return f"lower stress, {loss} loss"
    if likely == 1:
        return f"lower stress tends to {loss} loss, which other encodings may not bear out"
    return "no relation beyond chance"


def comparison_section(arms: "pd.DataFrame") -> Section:
    """Loss and stress of each encoding on each corpus."""
    lines: list[str] = []
    for corpus, here in arms.groupby("corpus", sort=False):
        number_of = {name: k for k, name in enumerate(here["encoding"], 1)}
        rows = [
            (
                f"{row['encoding']} ({number_of[row['encoding']]})",
                f"{row['scale']:g}{'*' if row['edge'] else ''}",
                with_error(row["test_loss"], row["test_loss_se"]),
                with_error(1 - row["test_error"], row["test_error_se"]),
                number(row["stress"]),
                interval(row["stress_low"], row["stress_high"]),
                number(row["stress_plugin"]),
            )
            for row in here.sort_values("test_loss", kind="stable").to_dict("records")
        ]
        head = ("encoding", "size", "test loss", "accuracy", "stress", "95%", "stress, plug-in")
        lines += [f"### {corpus}", "", *markdown_table(head, rows), ""]
    lines += [
        "The best first. Loss: cross-entropy in nats on the test part, mean over seeds with its "
        "standard error. Stress: of the encoding that the models ended with, against the geometry "
        "of the training part, with its 95% interval, from the folds of the corpus and "
        "what these do not show; encodings made for this geometry fit the sample. Size: root mean "
        "square norm of a table's rows, or what ALiBi's slopes are multiplied with, chosen on the "
        "validation part by runs of another seed; * at the end of what was tried. RoPE and none "
        "have no size. -trained: the encoding is where training begins, and what is trained are "
        "the rows of a table (or its factors), the frequencies of RoPE, the slopes of ALiBi, one "
        "set for all layers; learned begins at random rows. mds-shuffled: the rows of mds at other "
        "positions.",
        "",
        "![Test loss beside stress](figures/loss-by-stress.svg)",
    ]
    return Section("One model, many encodings", tuple(lines))


def moved_section(runs: "pd.DataFrame") -> Section:
    """Where training took the encodings that it was let have."""
    final = runs[runs["stage"] == "final"]
    trained = [name for name in dict.fromkeys(final["encoding"]) if name in TRAINED]
    corpora = list(dict.fromkeys(final["corpus"]))
    rows = []
    for name in trained:
        own = final[final["encoding"] == name]
        cells = (_moved_stress(own[own["corpus"] == corpus]) for corpus in corpora)
        rows.append((name, *cells))
    lines = (
        "Debiased stress where training begins, and by how much training changes it, mean over "
        "seeds with its standard error (below 0: towards the corpus).",
        "",
        *markdown_table(("encoding", *corpora), rows),
        "",
        *_slopes_lines(final),
    )
    return Section("Where training takes an encoding", lines)


def _moved_stress(runs: "pd.DataFrame") -> str:
    change = paired((runs["stress_end"] - runs["stress_start"]).to_numpy())
    return f"{number(float(runs['stress_start'].mean()))}: {with_error(change.value, change.se)}"


def _slopes_lines(final: "pd.DataFrame") -> list[str]:
    """What became of ALiBi's slopes, which its stress does not tell."""
    own = final[final["encoding"] == "alibi-trained"]
    said = []
    for corpus, here in own.groupby("corpus", sort=False):
        start = float(here["scale"].iloc[0]) * alibi_slopes(HEADS)
        end = np.mean([np.array(text.split(), dtype=float) for text in here["numbers"]], axis=0)
        both = (", ".join(number(float(x)) for x in m) for m in (start, end))
        said.append(f"{' to '.join(both)} on {corpus}")
    if not said:
        return []
    return [
        f"The slopes of ALiBi went in the mean from {'; '.join(said)}. Its stress, by the linear "
        "reading and scale-free, is the same at all slopes."
    ]


def correlation_section(correlations: "pd.DataFrame", contrasts: "pd.DataFrame") -> Section:
    """Rank correlations of stress and loss, and single changes of the encoding."""
    corpora = list(dict.fromkeys(correlations["corpus"]))
    rows = []
    for question, here in correlations.groupby("question", sort=False):
        by_corpus = {row["corpus"]: row for row in here.to_dict("records")}
        cells = [f"{_rho(by_corpus[c])}{_star(by_corpus[c]['p'])}" for c in corpora]
        rows.append((str(question), str(here["encodings"].iloc[0]), *cells))
    changed = [
        (
            str(row["what"]),
            str(row["corpus"]),
            with_error(row["difference"], row["se"]),
            interval(row["low"], row["high"]),
            number(row["stress_difference"]),
        )
        for row in contrasts.to_dict("records")
    ]
    lines = (
        "Spearman's ρ of stress and test loss (or error rate) over encodings: above 0 where lower "
        "stress goes with a better model. 95% intervals from drawing encodings and seeds anew; "
        "* p < 0.05 when stresses are shuffled among encodings. Of all corpora: the mean of their "
        "ρ, the same encodings drawn on each. The first row was fixed before the runs; RoPE and "
        "ALiBi that are trained came to it once the others were known, and the row of frozen "
        "angles and slopes is without them. The other rows show what the first hangs on, and "
        "nothing is taken off for their number.",
        "",
        *markdown_table(("compared", "encodings", *corpora), rows),
        "",
        "Single changes, paired by seed: the difference of test loss (below 0: the first is "
        "better), its 95% interval, and the difference of stress.",
        "",
        *markdown_table(("change", "corpus", "loss", "95%", "stress"), changed),
    )
    return Section("Does stress go with loss?", lines)


def conclusion(correlations: "pd.DataFrame", contrasts: "pd.DataFrame") -> Section:
    """The answer in plain sentences, whichever it is."""
    main = correlations[correlations["question"] == MAIN].set_index("corpus")
    lines = [
        f"- {_answer('Over all corpora' if corpus == ALL else f'On {corpus}', row)}"
        for corpus, row in main.to_dict("index").items()
    ]
    fixed = correlations[(correlations["question"] == FIXED) & (correlations["corpus"] == ALL)]
    fixed = fixed[fixed["encodings"] < main["encodings"].max()]
    lines += [
        "- Without RoPE and ALiBi that are trained, which came to the question once the others "
        f"were known, {_answer('over all corpora', row)}"
        for row in fixed.to_dict("records")
    ]
    lines += [f"- {line}" for line in _where_positions_help(main, contrasts)]
    for what, here in contrasts.groupby("what", sort=False):
        better = list(here.loc[here["high"] < 0, "corpus"])
        worse = list(here.loc[here["low"] > 0, "corpus"])
        rest = [c for c in here["corpus"] if c not in (*better, *worse)]
        said = [
            f"{verb} on {', '.join(some)}"
            for verb, some in (
                ("lowers the loss", better),
                ("raises it", worse),
                ("makes no difference beyond chance", rest),
            )
            if some
        ]
        lines.append(f"- {what}: {'; '.join(said)}.")
    return Section("Conclusion", tuple(lines))


def _where_positions_help(main: "pd.DataFrame", contrasts: "pd.DataFrame") -> list[str]:
    """ρ where a table of the corpus does better than no positions, and ρ elsewhere."""
    against = contrasts[(contrasts["one"] == "mds") & (contrasts["other"] == "none")]
    helps = against["high"] < 0
    lines = []
    for some, verb in ((against[helps], "lower"), (against[~helps], "do not lower")):
        if len(some):
            found = [f"{c} (ρ = {number(main.loc[c, 'rho'])})" for c in some["corpus"]]
            lines.append(f"Positions (MDS against none) {verb} the loss on {', '.join(found)}.")
    return lines


def _answer(where: str, row: Mapping[Any, Any]) -> str:
    return (
        f"{where}, among {row['encodings']} encodings that tell positions apart: "
        f"{verdict(row)} (ρ = {number(row['rho'])}, 95% "
        f"{interval(row['low'], row['high'])}, p = {number(row['p'])})."
    )


def _rho(row: Mapping[Any, Any]) -> str:
    return f"{row['rho']:.2f} [{row['low']:.2f}, {row['high']:.2f}]".replace("-", "−")


def _star(p: float) -> str:
    return " *" if p < LIKELY else ""
