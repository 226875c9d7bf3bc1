"""What a corpus asks of a positional encoding, as far as its size can tell: one sentence each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posgeom.counts import PositionCounts
from posgeom.distances import squared_hellinger
from posgeom.encodings import Encoding
from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry, only, position_profiles, ranges
from posgeom.inference import Estimate, condensed, jackknife, signed_root, stress_of
from posgeom.scoring import encoding_distances, floor_estimate, make_encodings, score_encodings
from posgeom.stress import offset_groups

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]
Measure = Callable[[FloatArray], FloatArray]

BASELINES = ("random", "none")  # what an encoding should beat, not what anyone would choose
ROUNDING = 1e-24  # of the sum of squares: the square of twelve digits
MOST_NAMED = 6  # positions where an encoding fails; more are no help
MOST_TIMES = 1_000  # no one collects so many times the documents


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """The answers, in the order in which they build on each other.

    p_value      of the test whether all positions have one distribution
    noise        share of the mean plug-in squared distance that is sampling noise, 0..1
    significant  dimensions that stand above the noise
    floor        least stress of any shift-invariant encoding; None without structure
    ranking      scores of the encodings, best first; empty without structure
    lead         stress of the second best less that of the best, of those not made for the
                 corpus and with different distances; None where there are no two
    misses       per encoding: share of its stress by position (n,) and by offset
    documents    how many were counted
    needed       how many would settle what is open; None where nothing is, or no number helps
    sentences    one for each question
    """

    p_value: float
    noise: Estimate
    significant: int
    floor: Estimate | None
    ranking: "pd.DataFrame"
    lead: Estimate | None
    misses: dict[str, tuple[FloatArray, FloatArray]] = field(repr=False)
    documents: int
    needed: int | None
    sentences: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """JSON values: stationarity, noise, rank, shift_invariance, ranking, lead, documents."""
        floor = self.floor
        shown = ["encoding", "stress", "stress_se", "stress_low", "stress_high"]
        return {
            "stationarity": {"p_value": self.p_value},
            "noise": {
                "share": self.noise.value,
                "low": _finite(self.noise.low),
                "high": _finite(self.noise.high),
            },
            "rank": {"significant": self.significant},
            "shift_invariance": {
                "floor": floor.value if floor else None,
                "low": floor.low if floor else None,
                "high": floor.high if floor else None,
            },
            "ranking": self.ranking[shown].to_dict("records") if len(self.ranking) else [],
            "lead": (
                {"stress": self.lead.value, "low": self.lead.low, "high": self.lead.high}
                if self.lead
                else None
            ),
            "documents": {"counted": self.documents, "needed": self.needed},
            "sentences": list(self.sentences),
        }


def diagnose(
    counts: PositionCounts,
    geometry: Geometry,
    encodings: Sequence[str | Encoding],
    dim: int = 128,
    *,
    seed: int = 0,
    scores: "pd.DataFrame | None" = None,
) -> Diagnosis:
    """Diagnose a corpus from its counts and its debiased geometry.

    encodings, dim, seed: as for score_encodings.  scores: those of the same encodings, where
    they are there already.
    Raises PosgeomError for a geometry without a test of stationarity (a plug-in one).
    """
    test = geometry.stationarity
    if test is None:
        raise PosgeomError(
            "this geometry is a plug-in one, in which noise and structure cannot be told apart; "
            "diagnose with --estimator debiased, on eight folds of documents or more"
        )
    noise = noise_share(counts, geometry)
    documents = counts.provenance.documents
    first = [stationarity_sentence(test.p_value, documents), noise_sentence(noise)]
    if not test.significant:
        # What is real grows with the documents, what is noise does not.
        excess = float(test.eigenvalues[0]) - test.typical
        times = (test.limit - test.typical) / excess if excess > 0 else np.inf
        needed = _documents(documents, times)
        first.append(
            "No dimension stands above the noise: there is nothing an encoding could fit, and "
            "no picture of this geometry would show more than chance."
        )
        first.append(
            f"Were its strongest direction real, about {needed:,} documents would show it."
            if needed
            else "No affordable number of documents of this kind is likely to change that."
        )
        return Diagnosis(
            test.p_value, noise, 0, None, _no_scores(), None, {}, documents, needed, tuple(first)
        )
    made = make_encodings(geometry, encodings, dim, seed=seed)
    if scores is None:
        scores = score_encodings(geometry, made, dim)
    scores = scores.sort_values("stress", kind="stable")
    by_name = {e.name: encoding_distances(geometry, e) for e in made}
    floor = floor_estimate(geometry)
    designed = dict(zip(scores["encoding"], scores["designed"], strict=True))
    known = [
        e for e in _by_score(made, scores) if not designed[e.name] and e.family not in BASELINES
    ]
    best, second, lead = _lead(geometry, known, by_name)
    misses = {name: stress_shares(geometry, δ) for name, δ in by_name.items()}
    settled = lead is not None and lead.differs_from_zero
    needed = None if lead is None or settled else _needed(documents, lead)
    sentences = [
        *first,
        f"{_count(test.significant, 'dimension')} of at most {geometry.n_positions - 1} "
        f"{'stands' if test.significant == 1 else 'stand'} above the noise.",
        floor_sentence(floor),
        *([fit_sentence(scores, best, second, lead)] if best else []),
        *random_sentence(scores, best),
        *([miss_sentence(geometry, best, misses[best])] if best else []),
        documents_sentence(documents, needed, settled)
        if lead is not None
        else "There are no two encodings with different distances to choose from.",
    ]
    return Diagnosis(
        test.p_value,
        noise,
        test.significant,
        floor,
        scores,
        lead,
        misses,
        documents,
        needed,
        tuple(sentences),
    )


def noise_share(counts: PositionCounts, geometry: Geometry) -> Estimate:
    """Share of the mean plug-in squared Hellinger distance that the debiased one has not."""
    plugin = squared_hellinger(position_profiles(only(counts, geometry.index)))
    if geometry.metric == "hellinger-normalised":
        plugin = plugin / 2
    elif geometry.metric == "fisher-rao":
        plugin = (4 * np.arcsin(np.sqrt(plugin) / 2)) ** 2
    total = float(condensed(plugin).mean())
    if not geometry.has_structure or not total:
        return Estimate(1.0)
    return jackknife(lambda s: 1 - s.mean(axis=-1) / total, geometry, bounds=(0, 1))


def stress_shares(geometry: Geometry, δ: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Where an encoding fails: share of its stress by position (n,) and by offset.

    Σ_j (αδ_ij − D_ij)² over all pairs' sum; a pair counts half to either position.  All are 0
    where the encoding fits exactly, but for rounding.
    """
    D = signed_root(geometry.squared)
    d, e = condensed(D), condensed(δ)
    α = e @ d / (e @ e) if e.any() else 0.0
    missed = (α * δ - D) ** 2
    if missed.sum() <= ROUNDING * np.square(D).sum():
        missed[:] = 0
    groups = offset_groups(len(D), geometry.positions)
    by_position, by_offset = missed.sum(axis=1), np.bincount(groups, condensed(missed))
    total = by_position.sum() or 1.0
    return by_position / total, by_offset / (by_offset.sum() or 1.0)


def _lead(
    geometry: Geometry, known: list[Encoding], by_name: dict[str, FloatArray]
) -> tuple[str, str, Estimate | None]:
    """The best encoding, the next with other distances, and by how much it is behind."""
    if not known:
        return "", "", None
    best = condensed(by_name[known[0].name])
    for other in known[1:]:
        δ = condensed(by_name[other.name])
        if abs(δ @ best) ** 2 < (1 - 1e-9) * (δ @ δ) * (best @ best):
            a, b = stress_of(best), stress_of(δ)
            return known[0].name, other.name, _difference(a, b, geometry)
    return known[0].name, "", None


def _difference(a: Measure, b: Measure, geometry: Geometry) -> Estimate:
    return jackknife(lambda s: b(s) - a(s), geometry, bounds=(-1, 1))


def _by_score(made: list[Encoding], scores: "pd.DataFrame") -> list[Encoding]:
    by_name = {e.name: e for e in made}
    return [by_name[name] for name in scores["encoding"]]


def _no_scores() -> "pd.DataFrame":
    import pandas as pd

    from posgeom.scoring import COLUMNS

    return pd.DataFrame(columns=list(COLUMNS))


def _finite(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None


def _documents(documents: int, times: float) -> int | None:
    return int(np.ceil(documents * times)) if 1 < times <= MOST_TIMES else None


def _needed(documents: int, lead: Estimate) -> int | None:
    """Documents at which the lead's interval would leave 0 out; its width falls with the root.

    None where the interval is all that a lead can be.
    """
    if lead.low <= -1 and lead.high >= 1:
        return None
    half = max(lead.high - lead.value, lead.value - lead.low)
    return _documents(documents, (half / abs(lead.value)) ** 2 if lead.value else np.inf)


LEAST_P = 0.005  # of 199 draws, which many positions have; 499 reach 0.002


def stationarity_sentence(p: float, documents: int) -> str:
    """Do positions differ at all?"""
    found = "differ" if p <= 0.05 else "cannot be told apart"
    return (
        f"Positions {found} in what stands at them "
        f"(test of stationarity over {_count(documents, 'document')}: "
        f"p {'≤' if p <= LEAST_P else '='} {p:.2g})."
    )


def noise_sentence(noise: Estimate) -> str:
    """How much of the plug-in distance is noise?"""
    if np.isnan(noise.se):  # nothing was found: a word on the test, not a measurement
        return "Nothing of the plug-in squared distance can be told from sampling noise."
    return f"{noise.value:.0%} of the plug-in squared distance is sampling noise."


def floor_sentence(floor: Estimate) -> str:
    """How shift-invariant is the corpus?"""
    if floor.low > 0.25:
        asks = "it asks for absolute positions"
    elif floor.high < 0.05:
        asks = "relative positions are enough for it"
    elif floor.high < 0.25:
        asks = "relative positions say most about it"
    else:
        asks = "relative positions leave a part of it"
    return (
        f"No encoding of offsets alone can have less stress than {floor.value:.3f} "
        f"({floor.low:.3f} to {floor.high:.3f}): {asks}."
    )


def fit_sentence(scores: "pd.DataFrame", best: str, second: str, lead: Estimate | None) -> str:
    """Which encoding fits, and is its lead beyond its error?"""
    row = scores[scores["encoding"] == best].iloc[0]
    text = (
        f"Of the encodings not made for the corpus, {best} fits best, with stress "
        f"{row['stress']:.3f} ({row['stress_low']:.3f} to {row['stress_high']:.3f})"
    )
    if lead is None:
        return f"{text}."
    beyond = "beyond its error" if lead.differs_from_zero else "within its error: a tie"
    more = f"{lead.value:.3f} more ({lead.low:.3f} to {lead.high:.3f})".replace("-", "−")
    return f"{text}; {second} has {more}, which is {beyond}."


def random_sentence(scores: "pd.DataFrame", best: str) -> list[str]:
    """A warning where rows drawn by lot do as well as the best encoding in use."""
    random = scores.loc[scores["family"] == "random", "stress"]
    if not best or random.empty:
        return []
    own = scores.loc[scores["encoding"] == best, "stress"].iloc[0]
    if own < random.min():
        return []
    return [
        f"Random rows do no worse (stress {random.min():.3f}): none of them has the shape of this "
        "corpus; a table made for it has."
    ]


def miss_sentence(geometry: Geometry, name: str, shares: tuple[FloatArray, FloatArray]) -> str:
    """Where does the best encoding fail?"""
    by_position, by_offset = shares
    if not by_offset.any():
        return f"{name} misses nothing."
    worst = np.sort(np.argsort(-by_position, kind="stable")[:MOST_NAMED])
    worst = worst[by_position[worst] > 1.5 / len(by_position)]
    if not len(worst):
        text = f"{name} misses about as much at every position"
    else:
        text = (
            f"{name} misses most at position{'s' if len(worst) > 1 else ''} "
            f"{ranges(geometry.index[worst])} ({by_position[worst].sum():.0%} of its stress)"
        )
    if geometry.grid is not None:
        return f"{text}."
    offsets = np.unique(np.abs(np.subtract.outer(geometry.positions, geometry.positions)))[1:]
    half = offsets[int(np.searchsorted(np.cumsum(by_offset), 0.5 - 1e-9))]
    return f"{text}; half of it lies at offsets up to {half}."


def documents_sentence(documents: int, needed: int | None, settled: bool) -> str:
    """How many more documents would settle it?"""
    if settled:
        return f"{_count(documents, 'document')} are enough to name the winner."
    if needed is None:
        return "No affordable number of documents is likely to name a winner."
    return f"About {needed:,} documents, {needed / documents:.1f} times as many, would settle it."


def _count(k: int, what: str) -> str:
    return f"{k:,} {what}" if k == 1 else f"{k:,} {what}s"
