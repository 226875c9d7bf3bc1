"""The job: both studies on training, resumable, and the report that is made of them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from posgeom.encodings import make_encoding
from posgeom.errors import PosgeomError
from posgeom.paper import page
from posgeom.paper.page import PaperReport
from posgeom.paper.training.arms import NAMES, Arm, arms_named
from posgeom.paper.training.comparison_page import (
    comparison_section,
    conclusion,
    correlation_section,
    moved_section,
    open_question,
)
from posgeom.paper.training.evidence import contrasts, correlations, summary
from posgeom.paper.training.figures import comparison_figure, learning_figure
from posgeom.paper.training.learning import learning
from posgeom.paper.training.page import (
    budget_lines,
    learning_judgements,
    learning_section,
    longer_lines,
    opening,
    tasks_section,
)
from posgeom.paper.training.settings import HEADS
from posgeom.paper.training.study import Budget, n_runs, study
from posgeom.paper.training.tasks import RECIPES, make_task
from posgeom.paper.training.work import Ground, open_ledger

if TYPE_CHECKING:
    import pandas as pd

FILES = (
    *page.FILES,
    "learning.csv",
    "runs.csv",
    "encodings.csv",
    "correlations.csv",
    "contrasts.csv",
)
CORPORA = ("splice", "log-lines", "python-lines", "sst2")
WATCHED = ("sst2", "imdb", "splice", "python-lines")
MOMENTS, WATCHED_MOMENTS = 6, 12
QUICK = 25  # the quick mode trains on so many times fewer rows, and judges on few
QUICK_MOMENTS, QUICK_PARTS = 2, {"validation": 100, "test": 200}
KERNEL = f"alibi:heads={HEADS},reading=kernel"  # the other reading of ALiBi's distance


@dataclass(frozen=True, eq=False)
class Found:
    """What both studies measured.

    moments, runs   see learning and study
    kernel          corpus -> stress of ALiBi by its kernel
    seconds         what all runs took of a processor
    """

    grounds: dict[str, Ground] = field(repr=False)
    moments: "pd.DataFrame" = field(repr=False)
    runs: "pd.DataFrame" = field(repr=False)
    kernel: dict[str, float]
    seconds: float


def reproduce_training(
    corpora: Sequence[str] = CORPORA,
    watched: Sequence[str] = WATCHED,
    encodings: Sequence[str] = NAMES,
    seeds: int = 5,
    tuning_seeds: int = 1,
    work: str | None = None,
    *,
    quick: bool = False,
    progress: bool = False,
) -> PaperReport:
    """A learned table while it learns, and whether lower stress means a better model.

    corpora        on which encodings are compared, names in posgeom.paper.training.tasks
    watched        those on which a learned table is watched
    encodings      names in posgeom.paper.training.arms
    seeds          runs that count, of each encoding; the errors come from them
    tuning_seeds   further runs for each size that is tried
    work           folder of finished runs, by default posgeom/training in the user's cache: work
                   that was cut off goes on there
    quick          a twenty-fifth of the training, two seeds, the first two corpora and the first
                   of those to watch: it shows that all is there, and says nothing

    Needs the extra torch.  Raises PosgeomError without it, for unknown names, and for a corpus that
    is not at hand.
    """
    check_torch()
    if seeds < 2 or tuning_seeds < 1:
        raise PosgeomError(
            f"seeds={seeds}, tuning_seeds={tuning_seeds} came; give 2 seeds or more, and 1"
        )
    arms, cores = arms_named(tuple(encodings)), os.cpu_count() or 1
    asked: dict[str, Any] = {
        "corpora": list(corpora),
        "watched": list(watched),
        "encodings": list(encodings),
        "seeds": seeds,
        "tuning_seeds": tuning_seeds,
        "quick": quick,
    }
    if quick:
        corpora, watched, seeds = corpora[:2], watched[:1], 2
    found = train_all(corpora, watched, arms, seeds, tuning_seeds, work, quick, progress)
    compared = summary(found.runs, found.kernel)
    related = correlations(found.runs, compared)
    changed = contrasts(found.runs, compared)
    seen = {name: rows_seen(RECIPES[name].seen, quick) for name in corpora}
    looked = {name: rows_seen(RECIPES[name].watched, quick) for name in watched}
    tasks = [ground.task for ground in found.grounds.values()]
    budget = budget_lines(arms, seeds, tuning_seeds)
    budget += longer_lines(found.moments, found.runs, tasks)
    return PaperReport(
        job="paper-training",
        title="Training",
        opening=opening(found.runs, found.moments, found.seconds, cores, version("torch"), quick),
        judgements=(*learning_judgements(found.moments), *open_question(related)),
        sections=(
            conclusion(related, changed),
            learning_section(found.moments),
            comparison_section(compared),
            moved_section(found.runs),
            correlation_section(related, changed),
            tasks_section(tasks, seen, looked, budget),
        ),
        settings=asked,
        provenance={
            "processor_seconds": round(found.seconds),
            "cores": cores,
            "torch": version("torch"),
        },
        tables={
            "learning": found.moments,
            "runs": found.runs,
            "encodings": compared,
            "correlations": related,
            "contrasts": changed,
        },
        drawings={
            "learning": learning_figure(found.moments),
            "loss-by-stress": comparison_figure(compared),
        },
        files=FILES,
    )


def check_torch() -> None:
    """Raise PosgeomError where torch is not installed."""
    if find_spec("torch") is None:
        raise PosgeomError(
            'paper-training needs torch, which is not installed; pip install "posgeom[torch]"'
        )


def rows_seen(rows: int, quick: bool) -> int:
    """How many rows a run sees."""
    return rows // QUICK if quick else rows


def train_all(
    corpora: Sequence[str],
    watched: Sequence[str],
    arms: Sequence[Arm],
    seeds: int,
    tuning_seeds: int,
    work: str | None,
    quick: bool,
    progress: bool,
) -> Found:
    """Both studies, one corpus after the other, from what their ledgers hold."""
    import pandas as pd
    from tqdm import tqdm

    grounds: dict[str, Ground] = {}
    for name in dict.fromkeys([*watched, *corpora]):
        task = make_task(name)
        grounds[name] = Ground.of(task.first(QUICK_PARTS) if quick else task)
    budget = Budget(0, QUICK_MOMENTS if quick else MOMENTS, seeds, tuning_seeds)
    looks = QUICK_MOMENTS if quick else WATCHED_MOMENTS
    moments, runs, ledgers = [], [], []
    total = seeds * len(watched) + n_runs(arms, budget) * len(corpora)
    with tqdm(total=total, disable=not progress, leave=False, desc="training") as bar:

        def tick() -> None:
            bar.update()

        for name in watched:
            rows = rows_seen(RECIPES[name].watched, quick)
            ledger = open_ledger(grounds[name], work, "learning", rows, looks)
            moments.append(learning(grounds[name], rows, looks, seeds, ledger, tick))
            ledgers.append(ledger)
        for name in corpora:
            rows = rows_seen(RECIPES[name].seen, quick)
            ledger = open_ledger(grounds[name], work, "study", rows, budget.moments)
            each = Budget(rows, budget.moments, seeds, tuning_seeds)
            runs.append(study(grounds[name], arms, each, ledger, tick))
            ledgers.append(ledger)
    kernel = make_encoding(KERNEL)
    return Found(
        grounds=grounds,
        moments=pd.concat(moments, ignore_index=True),
        runs=pd.concat(runs, ignore_index=True),
        kernel={name: grounds[name].debiased_stress(kernel).value for name in corpora},
        seconds=sum(ledger.seconds for ledger in ledgers),
    )
