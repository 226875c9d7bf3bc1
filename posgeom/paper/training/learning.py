"""A learned table while it learns: does it come nearer to the corpus that it is trained on?"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posgeom.encodings import FixedTable
from posgeom.encodings.base import distances_between_rows
from posgeom.paper.training.arms import arms_named, scaled, starting_encoding
from posgeom.paper.training.ledger import Ledger
from posgeom.paper.training.work import Ground
from posgeom.rank import entropy_rank, participation_ratio
from posgeom.stress import monotonicity_violation, pairs, separation

if TYPE_CHECKING:
    import pandas as pd

START = 1.0  # norm of the rows before training: that of the tokens' own, as in BERT


def learning(
    ground: Ground,
    seen: int,
    moments: int,
    seeds: int,
    ledger: Ledger,
    tick: Callable[[], None] = lambda: None,
) -> "pd.DataFrame":
    """Train models with a learned table, and measure the table as it goes: a row each moment.

    Columns: corpus, seed, epoch (rows seen over rows of the training part), then train_loss and
    train_accuracy since the row before, validation_loss, validation_accuracy, and those of
    table_measures.
    """
    import pandas as pd

    arm = arms_named(("learned",))[0]
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        name = f"learning seed={seed}"
        if name not in ledger.runs:
            from posgeom.paper.training.loop import train

            started = time.process_time()
            first = starting_encoding(arm, ground.debiased, seed)
            start = scaled(first, ground.task.n_positions, START)
            run = train(ground.task, start, seed, seen, moments, trained=True, judged=False)
            n = len(ground.task.parts["train"])
            kept = [
                {
                    "epoch": moment.seen / n,
                    "train_loss": moment.train.loss,
                    "train_accuracy": moment.train.accuracy,
                    "validation_loss": moment.validation.loss,
                    "validation_accuracy": moment.validation.accuracy,
                }
                | table_measures(ground, moment.encoding.rows)
                for moment in run.moments
                if isinstance(moment.encoding, FixedTable)
            ]
            ledger.add(name, {"moments": kept}, time.process_time() - started)
        tick()
        about = {"corpus": ground.task.name, "seed": seed}
        rows += [about | moment for moment in ledger.runs[name]["moments"]]
    return pd.DataFrame(rows)


def table_measures(ground: Ground, table: NDArray[np.float64]) -> dict[str, float]:
    """What can be said of a table (n, d) at one moment.

    separation: least distance of two rows (Theorem 4); separation_share: over the median distance;
    norm: root mean square over the rows, their mean taken off; participation and entropy_rank:
    effective ranks of the centred table; stress, stress_plugin: against the corpus, debiased and
    plug-in; violation, violation_plugin: of the order of its distances (Conjecture 5).
    """
    δ = distances_between_rows(table)
    encoding = FixedTable(rows=table)
    centred = table - table.mean(axis=0)
    eigenvalues = np.linalg.svd(centred, compute_uv=False) ** 2
    return {
        "separation": separation(δ),
        "separation_share": separation(δ) / float(np.median(pairs(δ))),
        "norm": float(np.sqrt((centred**2).sum(axis=1).mean())),
        "participation": participation_ratio(eigenvalues),
        "entropy_rank": entropy_rank(eigenvalues),
        "stress": ground.debiased_stress(encoding).value,
        "stress_plugin": ground.plugin_stress(encoding),
        "violation": monotonicity_violation(δ, ground.debiased.distances),
        "violation_plugin": monotonicity_violation(δ, ground.plugin.distances),
    }
