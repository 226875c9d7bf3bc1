"""One table: how well each encoding fits a corpus."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import squareform
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from posgeom.designers import DESIGNERS
from posgeom.encodings import (
    BiasEncoding,
    Encoding,
    first_collision,
    make_encoding,
    parse_spec,
    spec_of,
)
from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry
from posgeom.inference import (
    Estimate,
    condensed,
    floor_of,
    jackknife,
    jackknife_se,
    raw_stress_of,
    scale_of,
    stress_of,
)
from posgeom.root_profiles import threads
from posgeom.stress import (
    Target,
    check_nonzero,
    monotonicity_violation,
    offset_groups,
    pairs,
    shift_invariant_floor,
    spearman,
)

if TYPE_CHECKING:
    import pandas as pd

ANCHORS = 64  # positions over which the error of monotonicity_violation is taken

COLUMNS = (
    "encoding",
    "family",
    "parameters",
    "stress",
    "stress_raw",
    "scale",
    "kruskal_stress_1",
    "spearman",
    "monotonicity_violation",
    "stress_se",
    "stress_low",
    "stress_high",
    "stress_raw_se",
    "scale_se",
    "kruskal_stress_1_se",
    "spearman_se",
    "monotonicity_violation_se",
    "separation",
    "shift_invariant",
    "designed",
    "equal_bf16",
    "equal_fp16",
    "note",
)


def score_encodings(
    geometry: Geometry,
    encodings: Iterable[str | Encoding],
    dim: int = 128,
    *,
    seed: int = 0,
    per_head: bool = False,
    progress: bool = False,
) -> "pd.DataFrame":
    """Score encodings against a geometry: one row each, in the order given.

    encodings   specs (`sinusoidal`, `rope:base=500000`, `learned:wpe.npy`, `mds:rank=3`) or
                encodings
    dim, seed   for the families that have them, where the spec does not set them
    per_head    a row more for each head of the bias encodings, named `…,head=h`

    Columns: encoding, family, parameters, stress (scale-free, 0..1, corrected for bias),
    stress_raw (Cirrincione's Eq. 4), scale (what fits the encoding's distances to the corpus's),
    kruskal_stress_1, spearman, monotonicity_violation (Conjecture 5), separation (least distance
    of two positions, Theorem 4), shift_invariant, designed (made for this geometry), equal_bf16
    and equal_fp16 (the first position, counted from 0, whose row equals an earlier one in that
    format; none where all differ), note.
    stress_se, stress_low and stress_high are the standard error and 95% interval of stress, the
    other …_se standard errors, see posgeom.inference; NaN for a plug-in geometry.
    Raises PosgeomError for a spec that cannot be made, and for a corpus whose positions do not
    differ beyond sampling noise.
    """
    import pandas as pd

    check_structure(geometry)

    made = make_encodings(geometry, encodings, dim, seed=seed, per_head=per_head)
    target = Target.of(geometry.distances)
    n_threads = threads() if target.is_large else 1  # before BLAS is held to one for each of them
    with ThreadPoolExecutor(n_threads) as pool, threadpool_limits(1 if n_threads > 1 else None):
        if target.is_large:
            target.prepare(pool)
        rows = pool.map(lambda encoding: score(geometry, encoding, target), made)
        bar = tqdm(rows, "score", len(made), unit=" encodings", leave=False, disable=not progress)
        scores = list(bar)
    return pd.DataFrame(scores, columns=list(COLUMNS))


def check_structure(geometry: Geometry) -> None:
    """Raise PosgeomError where positions do not differ, or not beyond sampling noise.

    Distances that were forced in spite of it pass.
    """
    if geometry.has_structure:
        check_nonzero(geometry.squared)
    if geometry.has_structure or geometry.squared.any():
        return
    p = geometry.stationarity.p_value if geometry.stationarity else 1.0
    raise PosgeomError(
        "positions are not distinguishable from each other at this size "
        f"(p = {p:.2g} in the test of stationarity): there is no geometry to fit; give more "
        "documents, see `posgeom diagnose`, or take --estimator plugin to look at the noise; "
        "`posgeom design --force` fits it"
    )


def make_encodings(
    geometry: Geometry,
    encodings: Iterable[str | Encoding],
    dim: int = 128,
    *,
    seed: int = 0,
    per_head: bool = False,
) -> list[Encoding]:
    """The encodings that specs name, known ones and those designed for the geometry."""
    if dim < 1:
        raise PosgeomError(f"--dim {dim} came; give 1 or more")
    if seed < 0:
        raise PosgeomError(f"--seed {seed} came; give 0 or more")
    made: list[Encoding] = []
    for item in encodings:
        if isinstance(item, Encoding):
            encoding = item
        elif (spec := parse_spec(item)).family in DESIGNERS:
            encoding = DESIGNERS[spec.family](geometry, spec, dim)
        else:
            encoding = make_encoding(item, dim=dim, seed=seed)
        made.append(encoding)
        if per_head and isinstance(encoding, BiasEncoding) and encoding.splits:
            made += [one_head(encoding, h) for h in range(encoding.heads)]
    return made


def one_head(encoding: BiasEncoding, head: int) -> BiasEncoding:
    """One head of a bias, under a spec that makes it again where a spec can."""
    one = replace(encoding, head=head)
    if not encoding.spec:  # the family's name alone stands for its defaults
        with suppress(PosgeomError):  # numbers of an array, which no spec can hold
            return replace(one, spec=spec_of(one))
    joint = "," if ":" in encoding.name else ":"
    return replace(one, spec=f"{encoding.name}{joint}head={head}")


def encoding_distances(geometry: Geometry, encoding: Encoding) -> NDArray[np.float64]:
    """(n, n) distances of an encoding between the positions of a geometry.

    An encoding of as many axes as the geometry has sees rows and columns, others the flat number
    of a cell.  Raises PosgeomError for an encoding of grids on a geometry without one.
    """
    return encoding.distances(geometry.positions_for(encoding.n_axes))


@dataclass(frozen=True)
class Errors:
    """What the folds say of one encoding; nothing where the geometry has no replicates."""

    stress: Estimate | None = None
    raw_stress: Estimate | None = None
    scale: Estimate | None = None
    spearman_se: float = float("nan")
    violation_se: float = float("nan")

    @classmethod
    def of(cls, geometry: Geometry, δ: NDArray[np.float64], *, correct: bool) -> Self:
        """Estimates and errors for an encoding's distances (n, n), corrected for bias or not."""
        if geometry.replicates is None:
            return cls()
        each = condensed(geometry.replicates)
        some = np.unique(np.linspace(0, len(δ) - 1, ANCHORS).astype(int))

        def violation(δ: NDArray[np.float64], D: NDArray[np.float64]) -> float:
            return monotonicity_violation(δ, D, anchors=some)

        return cls(
            stress=jackknife(stress_of(condensed(δ)), geometry, bounds=(0, 1), correct=correct),
            raw_stress=jackknife(
                raw_stress_of(condensed(δ)), geometry, bounds=(0, np.inf), correct=correct
            ),
            scale=jackknife(scale_of(condensed(δ)), geometry, bounds=(0, np.inf), correct=correct),
            spearman_se=float(jackknife_se(_of_matrices(spearman, δ)(each))),
            violation_se=float(jackknife_se(_of_matrices(violation, δ)(each))),
        )


def _of_matrices(
    measure: Callable[[NDArray[np.float64], NDArray[np.float64]], float], δ: NDArray[np.float64]
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """A measure of two distance matrices as one of squared distances of all pairs (…, pairs)."""

    def of_pairs(s: NDArray[np.float64]) -> NDArray[np.float64]:
        D = np.sqrt(np.maximum(s, 0)).reshape(-1, s.shape[-1])
        return np.array([measure(δ, squareform(d)) for d in D]).reshape(s.shape[:-1])

    return of_pairs


def floor_estimate(geometry: Geometry) -> Estimate:
    """Least stress that any shift-invariant encoding can have, in 0..1, with its error."""
    if geometry.replicates is None:
        return Estimate(shift_invariant_floor(geometry.distances, geometry.positions))
    groups = offset_groups(geometry.n_positions, geometry.positions)
    return jackknife(floor_of(groups), geometry, bounds=(0, 1))


def first_equal(geometry: Geometry, encoding: Encoding, dtype: str) -> float:
    """The first position of a geometry whose row equals an earlier one in dtype; NaN if none."""
    row = first_collision(encoding.codes(geometry.positions_for(encoding.n_axes)), dtype)
    return float("nan") if row is None else float(geometry.index[row])


def score(
    geometry: Geometry, encoding: Encoding, target: Target | None = None
) -> dict[str, object]:
    """One row of score_encodings; target: the geometry's distances, where they are at hand."""
    target = target or Target.of(geometry.distances)
    delta = encoding_distances(geometry, encoding)
    δ = pairs(delta)
    # A table made from this sample follows its noise: no correction for bias knows of that.
    errors = Errors.of(geometry, delta, correct=encoding.family not in DESIGNERS)
    fit = errors.stress or Estimate(target.stress(δ))
    raw = errors.raw_stress or Estimate(target.raw_stress(δ))
    scale = errors.scale or Estimate(target.scale(δ))
    kruskal = fit.value**0.5
    return {
        "encoding": encoding.name,
        "family": encoding.family,
        "parameters": encoding.n_parameters,
        "stress": fit.value,
        "stress_raw": raw.value,
        "scale": scale.value,
        "kruskal_stress_1": kruskal,
        "spearman": target.spearman(δ),
        "monotonicity_violation": target.violation(delta),
        "stress_se": fit.se,
        "stress_low": fit.low,
        "stress_high": fit.high,
        "stress_raw_se": raw.se,
        "scale_se": scale.se,
        "kruskal_stress_1_se": fit.se / (2 * kruskal) if kruskal > 0 else float("nan"),
        "spearman_se": errors.spearman_se,
        "monotonicity_violation_se": errors.violation_se,
        "separation": float(δ.min()),
        "shift_invariant": encoding.shift_invariant,
        "designed": parse_spec(encoding.name).family in DESIGNERS,
        "equal_bf16": first_equal(geometry, encoding, "bf16"),
        "equal_fp16": first_equal(geometry, encoding, "fp16"),
        "note": encoding.note,
    }
