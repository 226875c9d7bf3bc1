"""One table: how well each encoding fits a corpus, at more positions than memory has pairs for.

Sums over pairs, of which the stresses are made, are taken over all of them in one pass over tiles.
What must put distances in order is taken over a sample, and has an error.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from posgeom.counts import PositionCounts
from posgeom.designers import DESIGNERS
from posgeom.designers.low_rank import low_rank
from posgeom.encodings import Encoding, FixedTable, first_collision, make_encoding, parse_spec
from posgeom.encodings.registry import convert_options
from posgeom.errors import PosgeomError
from posgeom.inference import Estimate
from posgeom.mds import spectral_mds_of
from posgeom.order import centred_ranks, ordered_triples, per_unit, row_orders
from posgeom.rank import check_rank
from posgeom.scoring import COLUMNS
from posgeom.tiles import Pass, Seen, Squares, one_pass, tiled_squares

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]

LONG = 8_192  # positions above which the matrix of distances, 0.5 GB and more, is not made
PARTS = 16  # of the sample, whose spread is its error
ROUGH = 1e-4  # axes of noise differ by less, and would be told apart in hours
RANK = 16  # of `mds` where its spec says none


@dataclass(frozen=True, eq=False)
class LongScores:
    """The columns of score_encodings, the shift-invariant floor, and what a reader should know."""

    scores: "pd.DataFrame" = field(repr=False)
    floor: Estimate
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class SpectralTable(FixedTable):
    """A table that spectral MDS made of plug-in distances."""

    family: ClassVar[str] = "mds"

    @property
    def note(self) -> str:
        """That its score is in-sample."""
        return "made for this sample, of its plug-in distances: its stress is that of the fit"


def score_long(
    counts: PositionCounts,
    encodings: Iterable[str | Encoding],
    dim: int = 128,
    *,
    estimator: str = "plugin",
    min_count: int = 2,
    seed: int = 0,
    progress: bool = False,
) -> LongScores:
    """Score encodings against the Hellinger distances of counts, without an (n, n) array.

    estimator  "plugin" or "crossed", see posgeom.tiles.tiled_squares
    encodings  known ones, and `mds:rank=r` (16 by default) by spectral MDS of the plug-in
               distances; other families are made from all distances, and are refused
    dim, seed  for the families that have them; the seed also draws the sample
    The columns are those of score_encodings.  spearman_se and monotonicity_violation_se are the
    errors of the samples that these two are taken over; errors from the folds are not known.
    Raises PosgeomError as tiled_squares does, and for encodings that cannot be made.
    """
    import pandas as pd

    squares = tiled_squares(counts, estimator, min_count=min_count)
    made = [_made(item, squares, dim, seed) for item in encodings]
    seen = one_pass(squares, made, seed=seed, progress=progress)
    orders = row_orders(seen.rows, seen.anchors)
    rows = [
        _row(encoding, of, seen, orders, squares)
        for encoding, of in zip(made, seen.seen, strict=True)
    ]
    return LongScores(
        pd.DataFrame(rows, columns=list(COLUMNS)),
        Estimate(max(0.0, seen.offsets.floor)),
        squares.notes + _notes(squares, seen),
    )


def _made(item: str | Encoding, squares: Squares, dim: int, seed: int) -> Encoding:
    if isinstance(item, Encoding):
        return _on_a_line(item)
    spec = parse_spec(item)
    if spec.family != "mds":
        if spec.family in DESIGNERS:
            raise PosgeomError(
                f"{item} is made from the distances of all pairs, too many at "
                f"{squares.roots.n:,} positions; leave it out, or count fewer --positions"
            )
        return _on_a_line(make_encoding(item, dim=dim, seed=seed))
    options = {"dim": dim, "rank": min(RANK, dim)} | convert_options(
        spec, {"rank": int, "dim": int}
    )
    rank = check_rank(options["rank"], squares.roots.n, options["dim"])
    mds = spectral_mds_of(squares.roots, rank, tolerance=ROUGH)
    factors = low_rank(mds.coordinates, rank, options["dim"])
    return SpectralTable(
        rows=factors.table(),
        index=squares.positions,
        spec=item,
        stored_parameters=factors.n_parameters,
    )


def _on_a_line(encoding: Encoding) -> Encoding:
    if encoding.n_axes > 1:
        raise PosgeomError(
            f"{encoding.name} is for grids; the positions of the tiles are on a line"
        )
    return encoding


def _row(
    encoding: Encoding,
    seen: Seen,
    all_seen: Pass,
    orders: tuple[NDArray[np.int32], NDArray[np.bool_]],
    squares: Squares,
) -> dict[str, object]:
    total = all_seen.offsets.total
    scale = seen.product / seen.square if seen.square > 0 else 0.0
    stress = min(max(1 - scale * seen.product / total, 0.0), 1.0)
    ρ, ρ_se = _spearman(seen.sample, all_seen.sample)
    violation, violation_se = _violation(seen.rows, orders)
    codes = encoding.codes(squares.positions)
    equal = [first_collision(codes, dtype) for dtype in ("bf16", "fp16")]
    return {
        "encoding": encoding.name,
        "family": encoding.family,
        "parameters": encoding.n_parameters,
        "stress": stress,
        "stress_raw": max((seen.square - 2 * seen.product + total) / total, 0.0),
        "scale": scale,
        "kruskal_stress_1": stress**0.5,
        "spearman": ρ,
        "monotonicity_violation": violation,
        "spearman_se": ρ_se,
        "monotonicity_violation_se": violation_se,
        "separation": seen.least,
        "shift_invariant": encoding.shift_invariant,
        "designed": isinstance(encoding, SpectralTable),
        "equal_bf16": np.nan if equal[0] is None else float(squares.positions[equal[0]]),
        "equal_fp16": np.nan if equal[1] is None else float(squares.positions[equal[1]]),
        "note": encoding.note,
    }


def _spearman(δ: FloatArray, D: FloatArray) -> tuple[float, float]:
    """Spearman's correlation of the sampled pairs (m,), and its error from parts of the sample."""
    ρ = _correlation(δ, D)
    parts = [_correlation(δ[k::PARTS], D[k::PARTS]) for k in range(PARTS)]
    return ρ, float(np.std(parts, ddof=1) / PARTS**0.5)


def _correlation(δ: FloatArray, D: FloatArray) -> float:
    r, q = centred_ranks(δ), centred_ranks(D)
    norm = np.sqrt((r @ r) * (q @ q))
    return float(r @ q / norm) if norm > 0 else 0.0


def _violation(
    δ: FloatArray, orders: tuple[NDArray[np.int32], NDArray[np.bool_]]
) -> tuple[float, float]:
    """Share of the triples of the anchors that are in the wrong order, and the anchors' error."""
    from posgeom.inversions import row_inversions  # numba takes half a second to load

    broken = row_inversions(δ, per_unit(δ), *orders)
    ordered = ordered_triples(orders[1])
    if not ordered.any():
        return 0.0, 0.0
    share = broken.sum() / ordered.sum()
    A = len(broken)  # the error of a ratio of sums, Cochran (1977), sec. 6.4
    left = broken - share * ordered
    return float(share), float(np.sqrt(A / (A - 1) * (left @ left)) / ordered.sum())


def _notes(squares: Squares, seen: Pass) -> tuple[str, ...]:
    n = squares.roots.n
    pairs = n * (n - 1) // 2
    how = (
        f"{n:,} positions have {pairs:,} pairs, of which no matrix is made: stresses, scales and "
        f"the floor are of all pairs, Spearman's correlation of {len(seen.sample):,} drawn from "
        f"them, violations of the triples of {len(seen.anchors)} positions; their errors are those "
        "of the drawing, and those of the corpus are not known"
    )
    if squares.estimator == "plugin":
        return (how,)
    return (
        how,
        "the distances are products of two halves of the documents, in which sampling noise does "
        "not add up; they are not smoothed, so that the roots of rare tokens stay biased: "
        "positions with fewer tokens than others look farther from them than they are, and no "
        "test was made whether positions differ at all",
    )
