"""The stress of Eq. 4 under every convention that the paper leaves open, in one tidy table.

Distances of a corpus are made once for its text, tokens, padding and length, those of encodings
once for a length; the stress under all scales is then a few dot products.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack
from scipy.spatial.distance import pdist

from posgeom.counts import PositionCounts, canonical, sum_by_row
from posgeom.encodings import Encoding, alibi_slopes, make_encoding
from posgeom.geometry import ROOT_METRICS, Geometry, estimate_geometry
from posgeom.inference import jackknife, raw_stress_of, stress_of
from posgeom.mds import classical_mds
from posgeom.paper.claims import Figure
from posgeom.paper.scales import SCALES, Measure, measures, rescaled

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]

DIMS = (128, 768)  # the synthetic corpus's width, BERT-base's
HEAD = 64  # width of a head of BERT-base, which RoPE would turn
ENOUGH = 2  # tokens that every position needs where padding is not counted
SAVED = 0.9  # share of the parameters that the paper's low-rank encoding of SST-2 saves
DISTANCES = {
    "chord": ROOT_METRICS["hellinger"],
    "chord/√2": ROOT_METRICS["hellinger-normalised"],
    "geodesic": ROOT_METRICS["fisher-rao"],
}
HALVED = "chord/√2"  # what follows the corpus's scale is there as it is for the chord
FOLLOWING = ("max", "rms", "optimal")
SLOPES = {  # ALiBi's slopes: those of all heads side by side, their mean, or one
    "8 heads": "heads=8",
    "12 heads": "heads=12",
    "mean of 8": "",
    "mean of 12": "",
    "steepest of 8": "slopes=0.5",
    "flattest of 8": "slopes=0.00390625",
    "1": "slopes=1",
    "1/(n−1)": "",
}
FEW_SLOPES = ("8 heads", "12 heads", "steepest of 8")  # of the other two readings
LABELS = ("text", "tokens", "padding", "n", "distance")
COLUMNS = (*LABELS, "fewest", "encoding", "dim", "variant", *SCALES, "near")


@dataclass(frozen=True, eq=False)
class Counted:
    """A corpus counted in one way: which text, in which tokens."""

    text: str
    tokens: str
    counts: PositionCounts = field(repr=False)


@dataclass(frozen=True, eq=False)
class Case:
    """A geometry with the conventions that made it; fewest: tokens at its thinnest position."""

    text: str
    tokens: str
    padding: str
    n: int
    fewest: int
    counts: PositionCounts = field(repr=False)

    def labels(self, distance: str) -> dict[str, Any]:
        """The columns that say what it is."""
        own = {name: getattr(self, name) for name in LABELS if name != "distance"}
        return {**own, "distance": distance, "fewest": self.fewest}


@dataclass(frozen=True)
class Compared:
    """An encoding of the sweep: its family, width and variant, and its stress at each scale."""

    encoding: str
    dim: int | None
    variant: str
    at: dict[str, Measure]


def cases(counted: Sequence[Counted], lengths: Sequence[int]) -> Iterator[Case]:
    """The corpora at each length, with padding counted as a token and without.

    Without padding only lengths at whose every position two documents still have a token.
    """
    for each in counted:
        for n in lengths:
            whole = wide(each.counts, n)
            least = int(whole.totals.min())
            if least >= ENOUGH:
                yield Case(each.text, each.tokens, "no", n, least, whole)
            padded = with_padding(whole)
            yield Case(each.text, each.tokens, "yes", n, int(padded.totals.min()), padded)


def wide(counts: PositionCounts, n: int) -> PositionCounts:
    """The counts of n positions, with empty ones where all documents are shorter."""
    if counts.n_positions >= n:
        return counts.first(n)
    K, own = counts.n_folds, counts.n_positions
    fold, position = np.divmod(np.arange(K * own), own)
    return replace(counts, counts=sum_by_row(counts.counts, fold * n + position, K * n))


def with_padding(counts: PositionCounts) -> PositionCounts:
    """The counts with a padding token at every position past the end of a document.

    So a batch looks whose padding is not masked out; nothing else in posgeom counts it.
    """
    ended = counts.documents[:, None] - counts.fold_totals
    column = csr_array(ended.reshape(-1, 1))
    vocabulary = None if counts.vocabulary is None else (*counts.vocabulary, "[PAD]")
    return replace(counts, counts=canonical(hstack([counts.counts, column])), vocabulary=vocabulary)


def known_encodings(n: int) -> list[Compared]:
    """The encodings of the sweep that do not look at the corpus, at length n."""

    def compared(encoding: Encoding, dim: int | None, variant: str = "") -> Compared:
        return Compared(encoding.family, dim, variant, measures(rescaled(encoding, n)))

    made = [compared(make_encoding("sinusoidal", dim=d), d) for d in DIMS]
    made += [compared(make_encoding("rope", dim=d), d) for d in (HEAD, *DIMS)]
    made.append(compared(make_encoding("random", dim=DIMS[-1]), DIMS[-1]))
    for reading in ("linear", "kernel", "attention"):
        for slopes in SLOPES if reading == "linear" else FEW_SLOPES:
            alibi = make_encoding(f"alibi:{_slopes(slopes, n)},reading={reading}")
            at = measures(rescaled(alibi, n))
            if reading != "attention" and slopes != "8 heads":
                at = {"raw": at["raw"]}  # at the scales that follow the corpus slopes cancel
            made.append(Compared("alibi", None, f"{reading}: {slopes}", at))
    return made


def _slopes(name: str, n: int) -> str:
    """The options of an ALiBi with these slopes."""
    if name.startswith("mean of "):
        return f"slopes={float(alibi_slopes(int(name.removeprefix('mean of '))).mean())!r}"
    return SLOPES[name] or f"slopes={1 / (n - 1)!r}"


def low_rank_at(n: int, dim: int) -> int:
    """The largest rank that saves nine tenths of the parameters, r(n + d) ≤ 0.1 nd; at least 1."""
    return max(1, int((1 - SAVED) * n * dim / (n + dim) + 1e-9))


def mds_encodings(squared: FloatArray) -> list[Compared]:
    """MDS of a geometry's squared distances (n, n): rank 1, 3, those that save 90%, and all."""
    n = len(squared)
    X = classical_mds(squared, squared=True).coordinates
    ranks = sorted({1, 3, *(low_rank_at(n, d) for d in DIMS), n - 1})
    made = []
    for r in ranks:
        δ = pdist(X[:, :r])
        at: dict[str, Measure] = {"raw": raw_stress_of(δ), "optimal": stress_of(δ)}
        made.append(Compared("mds", None, f"rank {r}" if r < n - 1 else "all ranks", at))
    return made


def sweep(
    every: Sequence[Case],
    figures: Mapping[str, Figure],
    estimator: str = "plugin",
    *,
    seed: int = 0,
    progress: bool = False,
) -> "pd.DataFrame":
    """A row for each case, distance and encoding: the stress at each of SCALES.

    figures: the paper's, by family.  No debiased rows have cases whose positions do not differ
    beyond noise, and those with positions too thin for the estimator.
    Columns: text, tokens, padding, n, distance, fewest (tokens at the thinnest position),
    encoding, dim, variant, a column for each scale (empty where it changes nothing or does not
    apply), near (the scales at which it is within 5% of the figure).
    """
    import pandas as pd
    from tqdm import tqdm

    known: dict[int, list[Compared]] = {}
    rows = []
    for case in tqdm(every, disable=not progress, desc=f"conventions, {estimator}", leave=False):
        if case.n not in known:
            known[case.n] = known_encodings(case.n)
        chords = estimate_geometry(case.counts, estimator, seed=seed)
        usable = chords.has_structure and chords.n_positions == case.n
        for distance, of_chord in DISTANCES.items() if usable else ():
            geometry = _under(chords, of_chord)
            others = [] if distance == HALVED else mds_encodings(geometry.squared)
            for each in [*known[case.n], *others]:
                values = {
                    scale: jackknife(
                        measure, geometry, bounds=(0, np.inf), correct=each.encoding != "mds"
                    ).value
                    for scale, measure in each.at.items()
                    if distance != HALVED or scale not in FOLLOWING
                }
                rows.append(_row(case.labels(distance), each, values, figures))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _under(geometry: Geometry, of_chord: Callable[[FloatArray], FloatArray]) -> Geometry:
    """The geometry in another distance, a function of the squared chord."""
    return replace(
        geometry,
        squared=of_chord(geometry.squared),
        replicates=None if geometry.replicates is None else of_chord(geometry.replicates),
        halves=None if geometry.halves is None else of_chord(geometry.halves),
        lumped=None if geometry.lumped is None else of_chord(geometry.lumped),
    )


def _row(
    labels: dict[str, Any], each: Compared, values: dict[str, float], figures: Mapping[str, Figure]
) -> dict[str, Any]:
    figure = figures.get(each.encoding)
    near = [scale for scale, x in values.items() if figure is not None and figure.is_near(x)]
    about = {"encoding": each.encoding, "dim": each.dim, "variant": each.variant}
    return labels | about | values | {"near": " ".join(near)}
