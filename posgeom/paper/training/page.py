"""The page: what was done, and what became of tables while they learned."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from posgeom.paper.claims import CLAIMS
from posgeom.paper.page import Judgement, Section, markdown_table
from posgeom.paper.training.arms import Arm
from posgeom.paper.training.evidence import paired
from posgeom.paper.training.settings import BATCH, DIM, HEADS, HIDDEN_SHARE, LAYERS, RATE
from posgeom.paper.training.tasks import RECIPES, Task
from posgeom.report.words import number, with_error

if TYPE_CHECKING:
    import pandas as pd

OBJECTIVES = {"class": "label of the row", "masked": "hidden tokens"}
MEASURES = (  # of a table as it learns: column, and what a reader calls it
    ("separation", "least distance"),
    ("separation_share", "over the median"),
    ("stress", "stress"),
    ("stress_plugin", "stress, plug-in"),
    ("violation", "violations"),
    ("violation_plugin", "violations, plug-in"),
    ("entropy_rank", "effective rank"),
    ("validation_loss", "validation loss"),
    ("validation_accuracy", "accuracy"),
)


def ends(moments: "pd.DataFrame", column: str) -> "pd.DataFrame":
    """A measure of each seed's table before training and after it: columns first and last."""
    by_seed = moments.groupby("seed", sort=False)[[column]]
    return by_seed.first().rename(columns={column: "first"}).assign(last=by_seed.last()[column])


def mean_and_error(values: "pd.Series[float]") -> str:
    """A mean over seeds with its error."""
    return with_error(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


def learning_judgements(moments: "pd.DataFrame") -> tuple[Judgement, ...]:
    """Theorem 4 and Conjecture 5 beside what tables do while they learn."""
    found = []
    convention = "d = 32, rows of random start as large as tokens"
    for corpus, here in moments.groupby("corpus", sort=False):
        least, seeds = float(here["separation"].min()), here["seed"].nunique()
        found.append(
            Judgement(
                f"{CLAIMS['separation'].says}; while training the least distance stays positive",
                CLAIMS["separation"].where,
                "positive throughout",
                f"{corpus}: least over {seeds} seeds and all moments {number(least)}, "
                f"{number(float(here['separation_share'].min()))} of the median distance",
                convention,
                "holds" if least > 0 else "fails",
            )
        )
    for corpus, here in moments.groupby("corpus", sort=False):
        both = ends(here, "violation")
        change = paired((both["last"] - both["first"]).to_numpy())
        found.append(
            Judgement(
                CLAIMS["monotonicity"].says,
                CLAIMS["monotonicity"].where,
                "violated less often than at the random start",
                f"{corpus}: violations {mean_and_error(both['first'])} before, "
                f"{mean_and_error(both['last'])} after; change "
                f"{with_error(change.value, change.se)}",
                f"{convention}; debiased geometry",
                "holds" if change.high < 0 else "the opposite" if change.low > 0 else "not seen",
            )
        )
    return tuple(found)


def learning_section(moments: "pd.DataFrame") -> Section:
    """What became of the tables."""
    head = ("corpus", "", *(name for _, name in MEASURES))
    rows = []
    for corpus, here in moments.groupby("corpus", sort=False):
        for when in ("first", "last"):
            cells = [mean_and_error(ends(here, column)[when]) for column, _ in MEASURES]
            epochs = float(here["epoch"].max())
            about = "before" if when == "first" else f"after {epochs:.1f} epochs"
            rows.append((str(corpus), about, *cells))
    lines = (
        "A table of random rows, as large as the tokens' own, learns with the rest of the model. "
        "Least distance: of two positions (Theorem 4). Stress: of the table against the geometry "
        "of the corpus's training part. Violations: share of triples in the wrong order "
        "(Conjecture 5), ½ by chance. Effective rank: exponential of the entropy of the table's "
        "spectrum. Means over seeds with their standard errors; every moment is in `learning.csv`.",
        "",
        *markdown_table(head, rows),
        "",
        "![A learned table while it learns](figures/learning.svg)",
        "",
        *_learning_sentences(moments),
    )
    return Section("A learned table while it learns", lines)


def _learning_sentences(moments: "pd.DataFrame") -> list[str]:
    lines = []
    for corpus, here in moments.groupby("corpus", sort=False):
        changes = {
            column: paired((ends(here, column)["last"] - ends(here, column)["first"]).to_numpy())
            for column in ("stress", "stress_plugin", "violation")
        }
        said = ", ".join(
            f"{name} {_moved(changes[column].low, changes[column].high)} "
            f"({with_error(changes[column].value, changes[column].se)})"
            for column, name in (
                ("stress", "stress"),
                ("stress_plugin", "plug-in stress"),
                ("violation", "violations"),
            )
        )
        lines.append(f"- {corpus}: from the first moment to the last {said}.")
    return lines


def _moved(low: float, high: float) -> str:
    return "fell" if high < 0 else "rose" if low > 0 else "did not move beyond chance"


def tasks_section(
    tasks: Sequence[Task],
    seen: Mapping[str, int],
    watched: Mapping[str, int],
    budget: Sequence[str],
) -> Section:
    """The corpora, how they were split, and what every run was given."""
    rows = [
        (
            task.name,
            OBJECTIVES[task.objective],
            RECIPES[task.name].tokenizer if task.name in RECIPES else "–",
            str(task.n_positions),
            f"{task.vocabulary:,}",
            " / ".join(f"{len(rows):,}" for rows in task.parts.values()),
            *(f"{some[task.name]:,}" if task.name in some else "–" for some in (seen, watched)),
        )
        for task in tasks
    ]
    head = (
        "corpus",
        "to be told",
        "tokens",
        "n",
        "V",
        "rows: train / validation / test",
        "seen by a model",
        "seen by a watched table",
    )
    lines = (
        *markdown_table(head, rows),
        "",
        "No row of one part is in another, after it was cut to n tokens.",
        "",
        *(f"- {line}" for line in budget),
    )
    return Section("What was trained on what", lines)


def opening(
    runs: "pd.DataFrame",
    moments: "pd.DataFrame",
    seconds: float,
    cores: int,
    torch: str,
    quick: bool,
) -> tuple[str, ...]:
    """What was done, and what it took."""
    tuning = int((runs["stage"] == "tuning").sum())
    watched = moments.groupby(["corpus", "seed"]).ngroups
    text = (
        f"{len(runs) - tuning:,} small Transformers were trained to be compared, {tuning:,} more "
        f"to choose the size of their encodings, and {watched} to watch a learned table. They took "
        f"{seconds / 60:.0f} minutes of one processor, on a machine of {cores} cores with torch "
        f"{torch}."
    )
    warning = (
        "This is the quick mode, trained a few hundred rows long: it shows that all runs, and its "
        "numbers say nothing."
    )
    return (warning, text) if quick else (text,)


def budget_lines(arms: Sequence[Arm], seeds: int, tuning_seeds: int) -> list[str]:
    """What every run was given, a line each."""
    tried = dict.fromkeys(arm.scales for arm in arms if len(arm.scales) > 1)
    sizes = " or ".join(", ".join(f"{scale:g}" for scale in scales) for scales in tried)
    return [
        f"Model: {LAYERS} pre-norm layers of width {DIM} with {HEADS} heads, no dropout; the mean "
        f"of the vectors tells the label, or the vector of a hidden token the token; "
        f"{HIDDEN_SHARE:.0%} of the tokens are hidden.",
        f"Adam at {RATE:g}, falling to 0 by a cosine, {BATCH} rows a step; the moment of the "
        "least validation loss is tested.",
        f"{seeds} seeds; weights, order of rows and hidden tokens depend on the seed alone, so "
        "that encodings differ by nothing else.",
        f"Sizes tried: {sizes}; {tuning_seeds} run of another seed for each, at the full budget, "
        "judged on the validation part. Nothing else was tuned.",
    ]


def longer_lines(moments: "pd.DataFrame", runs: "pd.DataFrame", tasks: Sequence[Task]) -> list[str]:
    """What more training would do, where a learned table saw more rows while it was watched."""
    lines = []
    learned = runs[(runs["stage"] == "final") & (runs["encoding"] == "learned")]
    for task in tasks:
        long = moments[moments["corpus"] == task.name]
        short = learned[learned["corpus"] == task.name]
        if long.empty or short.empty:
            continue
        last = mean_and_error(ends(long, "validation_loss")["last"])
        rows = float(long["epoch"].max()) * len(task.parts["train"])
        lines.append(
            f"More training: on {task.name} the validation loss with a learned table is "
            f"{mean_and_error(short['validation_loss'])} in the comparison, and {last} at the end "
            f"of {rows:,.0f} rows, where it was watched at size 1."
        )
    return lines
