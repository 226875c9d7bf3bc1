"""Does stress go with loss?  Means over seeds, rank correlations and paired contrasts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from scipy.stats import t as student

from posgeom.inference import Estimate
from posgeom.paper.training.arms import ARMS

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]

RESAMPLES = 4_000
ALL = "all corpora"
LEAST_ARMS = 4  # of which a rank correlation has a meaning
EVERY = frozenset(arm.name for arm in ARMS)
NONE = frozenset({"none"})
TRAINED = frozenset(arm.name for arm in ARMS if arm.trained)
TABLES = frozenset(arm.name for arm in ARMS if arm.is_table)


@dataclass(frozen=True)
class Question:
    """One way to ask whether stress goes with loss.

    name      what the report calls it
    arms      the encodings that are compared
    stress    the column of `summary` that stands for it
    quality   "test_loss", or "test_error", 1 − accuracy: low is good in both
    """

    name: str
    arms: frozenset[str]
    stress: str = "stress"
    quality: str = "test_loss"


QUESTIONS = (
    Question("all with positions", EVERY - NONE),
    Question("all with positions, plug-in stress", EVERY - NONE, stress="stress_plugin"),
    Question("all with positions, ALiBi by its kernel", EVERY - NONE, stress="stress_kernel"),
    Question("all with positions, error rate", EVERY - NONE, quality="test_error"),
    Question("frozen, with positions", EVERY - TRAINED - NONE),
    Question("frozen tables", TABLES - TRAINED),
    Question("frozen tables, plug-in stress", TABLES - TRAINED, stress="stress_plugin"),
    Question("trained tables", TABLES & TRAINED),
    Question("none among them", EVERY),
    Question("trained, tables or not", TRAINED),
    Question("all with positions, angles and slopes frozen", EVERY - NONE - (TRAINED - TABLES)),
)


@dataclass(frozen=True)
class Contrast:
    """Two encodings that differ in one thing: what, and their names."""

    what: str
    one: str
    other: str


CONTRASTS = (
    Contrast("MDS, not no positions at all", "mds", "none"),
    Contrast("the same rows at their own positions, not at shuffled ones", "mds", "mds-shuffled"),
    Contrast(
        "rank 3 of least stress, not of nearest inner products", "stress-rank-3", "mds-rank-3"
    ),
    Contrast("MDS, not random rows", "mds", "random"),
    Contrast("MDS, not sinusoids", "mds", "sinusoidal"),
    Contrast("frequencies fitted, not base 10,000", "fitted-rope", "rope"),
    Contrast("rows trained, not frozen, from random", "learned", "random"),
    Contrast("rows trained, not frozen, from MDS", "mds-trained", "mds"),
    Contrast("training begun at MDS, not at random rows", "mds-trained", "learned"),
    Contrast("training begun at MDS, not at sinusoids", "mds-trained", "sinusoidal-trained"),
    Contrast("frequencies trained, not frozen, from base 10,000", "rope-trained", "rope"),
    Contrast(
        "frequencies trained, not frozen, from fitted ones", "fitted-rope-trained", "fitted-rope"
    ),
    Contrast("slopes trained, not frozen", "alibi-trained", "alibi"),
    Contrast(
        "training begun at fitted frequencies, not at base 10,000",
        "fitted-rope-trained",
        "rope-trained",
    ),
)


def summary(runs: "pd.DataFrame", kernel: dict[str, float]) -> "pd.DataFrame":
    """A row for each corpus and encoding: means over the final runs, with errors over seeds.

    kernel: corpus -> stress of ALiBi under its kernel reading, the same at all slopes.
    Columns: corpus, encoding, trained, scale, edge (whether the scale is the least or the largest
    that was tried), seeds, test_loss, test_error (1 − accuracy) and their …_se, and stress (of the
    encoding that the models ended with, debiased) with its mean interval, stress_start,
    stress_plugin, stress_kernel.
    """
    import pandas as pd

    known = {arm.name: arm for arm in ARMS}
    final = runs[runs["stage"] == "final"].assign(test_error=lambda r: 1 - r["test_accuracy"])
    rows = []
    for (corpus, name), some in final.groupby(["corpus", "encoding"], sort=False):
        arm, n = known[str(name)], len(some)
        scale = float(some["scale"].iloc[0])
        mean = some.mean(numeric_only=True)
        row = {
            "corpus": corpus,
            "encoding": name,
            "trained": arm.trained,
            "scale": scale,
            "edge": len(arm.scales) > 1 and scale in (min(arm.scales), max(arm.scales)),
            "seeds": n,
        }
        for quality in ("test_loss", "test_error"):
            row[quality] = mean[quality]
            row[f"{quality}_se"] = some[quality].std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
        row |= {
            "stress": mean["stress_end"],
            "stress_low": mean["stress_end_low"],
            "stress_high": mean["stress_end_high"],
            "stress_start": mean["stress_start"],
            "stress_plugin": mean["stress_end_plugin"],
            "stress_kernel": kernel[str(corpus)] if "alibi" in str(name) else mean["stress_end"],
        }
        rows.append(row)
    return pd.DataFrame(rows)


def correlations(
    runs: "pd.DataFrame", arms: "pd.DataFrame", questions: Sequence[Question] = QUESTIONS
) -> "pd.DataFrame":
    """Spearman's ρ of stress and loss over encodings: a row for each question and corpus.

    low, high   95%, percentiles of resamples: encodings drawn anew, and seeds
    p           two-sided: how often shuffled stresses have a ρ as far from 0
    "all corpora" is the mean of their ρ, with the same encodings drawn and shuffled on each.
    Efron & Tibshirani (1993), ch. 13 and 15.
    """
    import pandas as pd

    rows = []
    for number, question in enumerate(questions):
        draws: list[tuple[float, FloatArray, FloatArray]] = []
        corpora = list(dict.fromkeys(arms["corpus"]))
        names = [name for name in dict.fromkeys(arms["encoding"]) if name in question.arms]
        if len(names) < LEAST_ARMS:
            continue
        for corpus in corpora:
            stress, losses = _arrays(runs, arms, question, corpus, names)
            random = np.random.default_rng([number, len(names)])  # the same draws on each corpus
            draws.append(
                (
                    float(spearman_rows(stress[None], losses.mean(axis=1)[None])[0]),
                    resampled(stress, losses, random),
                    shuffled(stress, losses.mean(axis=1), random),
                )
            )
        ρs, boots, nulls = zip(*draws, strict=True)
        mean = float(np.mean(ρs)), np.mean(boots, axis=0), np.mean(nulls, axis=0)
        for corpus, (ρ, boot, null) in zip([*corpora, ALL], [*draws, mean], strict=True):
            low, high = np.percentile(boot, [2.5, 97.5])
            p = (1 + (np.abs(null) >= abs(ρ) - 1e-12).sum()) / (1 + len(null))
            rows.append(
                {"question": question.name, "corpus": corpus, "encodings": len(names)}
                | {"rho": ρ, "low": low, "high": high, "p": p}
            )
    return pd.DataFrame(rows)


def _arrays(
    runs: "pd.DataFrame", arms: "pd.DataFrame", question: Question, corpus: str, names: list[str]
) -> tuple[FloatArray, FloatArray]:
    """Stress (arms,) and loss of each run (arms, seeds) of some encodings on one corpus."""
    here = arms[arms["corpus"] == corpus].set_index("encoding")
    final = runs[(runs["stage"] == "final") & (runs["corpus"] == corpus)]
    final = final.assign(test_error=1 - final["test_accuracy"])
    losses = final.pivot_table(index="encoding", columns="seed", values=question.quality)
    return here.loc[names, question.stress].to_numpy(), losses.loc[names].to_numpy()


def spearman_rows(X: FloatArray, Y: FloatArray) -> FloatArray:
    """Spearman's ρ of X[i] and Y[i] (m, k): (m,); 0 where one of them is constant."""
    A, B = (rankdata(np.round(M, 9), axis=1) for M in (X, Y))
    A, B = (M - M.mean(axis=1, keepdims=True) for M in (A, B))
    norm = np.sqrt((A**2).sum(axis=1) * (B**2).sum(axis=1))
    found: FloatArray = (A * B).sum(axis=1) / np.where(norm > 0, norm, 1)
    return found


def resampled(stress: FloatArray, losses: FloatArray, random: np.random.Generator) -> FloatArray:
    """ρ of resamples (arms,), (arms, seeds): encodings with replacement, and seeds.

    The same seeds for all encodings: a seed is one start and one order of rows, which all share.
    """
    k, seeds = losses.shape
    arm = random.integers(k, size=(RESAMPLES, k))
    seed = random.integers(seeds, size=(RESAMPLES, 1, seeds))
    return spearman_rows(stress[arm], losses[arm[..., None], seed].mean(axis=2))


def shuffled(stress: FloatArray, loss: FloatArray, random: np.random.Generator) -> FloatArray:
    """ρ where stress has nothing to do with loss: stresses (arms,) shuffled among encodings."""
    order = random.permuted(np.tile(np.arange(len(stress)), (RESAMPLES, 1)), axis=1)
    return spearman_rows(stress[order], np.broadcast_to(loss, order.shape))


def contrasts(runs: "pd.DataFrame", arms: "pd.DataFrame") -> "pd.DataFrame":
    """What one change of the encoding does to test loss, on each corpus: paired over seeds.

    difference: loss of `one` less that of `other`, mean over seeds, with se and 95% interval of
    Student's t; stress_difference: of the stresses.
    """
    import pandas as pd

    final = runs[runs["stage"] == "final"]
    rows = []
    for contrast in CONTRASTS:
        for corpus, here in final.groupby("corpus", sort=False):
            losses = here.pivot_table(index="seed", columns="encoding", values="test_loss")
            if not {contrast.one, contrast.other} <= set(losses.columns):
                continue
            found = paired((losses[contrast.one] - losses[contrast.other]).to_numpy())
            stress = arms[arms["corpus"] == corpus].set_index("encoding")["stress"]
            rows.append(
                {"what": contrast.what, "one": contrast.one, "other": contrast.other}
                | {"corpus": corpus, "difference": found.value, "se": found.se}
                | {"low": found.low, "high": found.high}
                | {"stress_difference": stress[contrast.one] - stress[contrast.other]}
            )
    return pd.DataFrame(rows)


def paired(differences: FloatArray) -> Estimate:
    """The mean of differences (seeds,) with its error and 95% interval; Student (1908)."""
    n, mean = len(differences), float(differences.mean())
    if n < 2:
        return Estimate(mean)
    se = float(differences.std(ddof=1) / np.sqrt(n))
    width = float(student.ppf(0.975, n - 1)) * se
    return Estimate(mean, se, mean - width, mean + width)
