"""Does lower stress mean a better model?  One small model, many encodings, equal budgets."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from posgeom.designers import DESIGNERS
from posgeom.encodings import Alibi, Encoding, Rope, parse_spec
from posgeom.paper.training.arms import Arm, scaled, starting_encoding
from posgeom.paper.training.ledger import Ledger
from posgeom.paper.training.work import Ground

if TYPE_CHECKING:
    import pandas as pd

TUNING_SEED = 1_000  # runs that choose a scale have seeds of their own, from here on


@dataclass(frozen=True)
class Budget:
    """What each run may take, the same for all encodings of a corpus.

    seen           rows that a model is trained on
    moments        how often it is judged; the best is what is tested
    seeds          runs that count
    tuning_seeds   runs for each scale that is tried
    """

    seen: int
    moments: int
    seeds: int
    tuning_seeds: int


def study(
    ground: Ground,
    arms: Sequence[Arm],
    budget: Budget,
    ledger: Ledger,
    tick: Callable[[], None] = lambda: None,
) -> "pd.DataFrame":
    """All runs on one corpus: a row each, those that choose the scale first.

    Columns: corpus, encoding, stage ("tuning" or "final"), scale, seed, validation_loss, seen (rows
    when it was best), test_loss, test_accuracy (NaN while tuning), and the stress of the encoding
    that the model started with and that it ended with, plug-in and debiased; numbers: trained
    frequencies or slopes at the end, apart by spaces.
    """
    import pandas as pd

    rows = []
    for arm in arms:
        scales = list(arm.scales)
        if len(scales) > 1:
            tried = [
                _run(ground, arm, scale, TUNING_SEED + k, budget, ledger, tick, tuning=True)
                for scale in scales
                for k in range(budget.tuning_seeds)
            ]
            rows += tried
            scales = [best_scale(tried)]
        rows += [
            _run(ground, arm, scales[0], seed, budget, ledger, tick) for seed in range(budget.seeds)
        ]
    return pd.DataFrame(rows)


def n_runs(arms: Sequence[Arm], budget: Budget) -> int:
    """How many runs a corpus takes."""
    tuning = sum(len(arm.scales) for arm in arms if len(arm.scales) > 1)
    return len(arms) * budget.seeds + tuning * budget.tuning_seeds


def best_scale(tried: Sequence[dict[str, Any]]) -> float:
    """The scale of the least mean validation loss."""
    scales = sorted({row["scale"] for row in tried})
    means = [np.mean([r["validation_loss"] for r in tried if r["scale"] == s]) for s in scales]
    return float(scales[int(np.argmin(means))])


def _run(
    ground: Ground,
    arm: Arm,
    scale: float,
    seed: int,
    budget: Budget,
    ledger: Ledger,
    tick: Callable[[], None],
    *,
    tuning: bool = False,
) -> dict[str, Any]:
    """One row of `study`, taken from the ledger where it is there."""
    name = f"{arm.name} scale={scale:g} seed={seed}"
    if name not in ledger.runs:
        started = time.process_time()
        row = _trained(ground, arm, scale, seed, budget, tuning=tuning)
        ledger.add(name, row, time.process_time() - started)
    tick()
    about: dict[str, Any] = {"corpus": ground.task.name, "encoding": arm.name}
    about |= {"stage": "tuning" if tuning else "final", "scale": scale, "seed": seed}
    return about | ledger.runs[name]


def _trained(
    ground: Ground, arm: Arm, scale: float, seed: int, budget: Budget, *, tuning: bool
) -> dict[str, Any]:
    """Train and judge one model: the numbers of a row, all but what it is called."""
    from posgeom.paper.training.loop import train

    first = starting_encoding(arm, ground.debiased, seed)
    start = scaled(first, ground.task.n_positions, scale)
    run = train(
        ground.task,
        start,
        seed,
        budget.seen,
        budget.moments,
        trained=arm.trained,
        rank=arm.rank,
        judged=not tuning,
    )
    best = run.moments[run.best]
    row: dict[str, Any] = {
        "validation_loss": best.validation.loss,
        "seen": best.seen,
        "test_loss": run.test.loss,
        "test_accuracy": run.test.accuracy,
    }
    if not tuning:
        end = best.encoding if arm.trained else first
        # What was made from this sample follows its noise, and still does after training.
        designed = parse_spec(arm.spec).family in DESIGNERS and not arm.shuffled
        for when, encoding in (("start", first), ("end", end)):
            row |= _stresses(ground, when, encoding, designed=designed)
        if arm.trained and isinstance(end, Rope | Alibi):
            numbers = end.own_frequencies if isinstance(end, Rope) else end.own_slopes
            row["numbers"] = " ".join(f"{x:.4g}" for x in numbers)
    return row


def _stresses(ground: Ground, when: str, encoding: Encoding, *, designed: bool) -> dict[str, float]:
    """The stress of an encoding with its 95% interval, and plug-in."""
    fit = ground.debiased_stress(encoding, designed=designed)
    return {
        f"stress_{when}": fit.value,
        f"stress_{when}_low": fit.low,
        f"stress_{when}_high": fit.high,
        f"stress_{when}_plugin": ground.plugin_stress(encoding),
    }
