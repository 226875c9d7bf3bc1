"""Distances of many positions in tiles of 512 × 512, each looked at once and not kept.

One pass gives every sum over pairs, exactly, and a sample of pairs and of rows for what must put
distances in order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from tqdm import tqdm

from posgeom.between import between, by_offset
from posgeom.counts import PositionCounts
from posgeom.designers.offsets import OffsetSums
from posgeom.encodings import Encoding
from posgeom.errors import PosgeomError
from posgeom.geometry import only, ranges
from posgeom.inference import signed_root
from posgeom.root_profiles import RootProfiles

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

SAMPLED = 1 << 20  # pairs for the correlation of ranks
ANCHORS = 128  # rows for the triples


@dataclass(frozen=True, eq=False)
class Squares:
    """Squared Hellinger distances of many positions, tile by tile.

    of_tile    (a, b) to D² of the rows of stretches a ≤ b; estimates may be below 0
    roots      the plug-in root profiles, whose stretches these are
    positions  (n,) position numbers, ascending
    totals     (n,) tokens of each
    """

    of_tile: Callable[[int, int], FloatArray]
    roots: RootProfiles = field(repr=False)
    positions: IntArray = field(repr=False)
    totals: IntArray = field(repr=False)
    estimator: str
    notes: tuple[str, ...] = ()


def tiled_squares(
    counts: PositionCounts, estimator: str = "plugin", *, min_count: int = 2
) -> Squares:
    """The distances between the positions of counts, none of them computed yet.

    estimator   "plugin": ‖√p_i − √p_j‖² of the observed frequencies, sampling noise included.
                "crossed": ⟨√p_i − √p_j, √q_i − √q_j⟩ with p of the even folds and q of the odd
                ones.  Their noise is independent and does not add up, but the roots of rare
                tokens stay biased, which posgeom.debias takes out by smoothing.
    min_count   positions with fewer tokens, in either half where halves are crossed, are left out
    Raises PosgeomError for grids, for another estimator, for less than two positions with enough
    tokens, and for a single fold where halves are to be crossed.
    """
    if counts.grid is not None:
        raise PosgeomError("positions on a grid came to the tiles; give --positions N in its place")
    if estimator not in ("plugin", "crossed"):
        raise PosgeomError(f"estimator {estimator!r} has no tiles; use plugin or crossed")
    if estimator == "crossed" and counts.n_folds < 2:
        raise PosgeomError("one fold of documents has no halves to cross; count with --folds 16")
    halves = counts.folded(2) if estimator == "crossed" else counts.folded(1)
    enough = np.asarray((halves.fold_totals >= max(1, min_count)).all(axis=0))
    if enough.sum() < 2:
        raise PosgeomError(
            f"{int(enough.sum())} of {len(enough)} positions have {min_count} tokens, two are "
            "needed; give more documents or a lower --min-count"
        )
    index = np.flatnonzero(enough)
    if not enough.all():
        halves = only(halves, index)
    notes: tuple[str, ...] = ()
    if not enough.all():
        where = "fewer" if halves.n_folds == 1 else "in a half of the documents fewer"
        notes = (
            f"positions {ranges(np.flatnonzero(~enough))} have {where} than {min_count} tokens "
            "and are left out (--min-count)",
        )
    n, totals = len(index), halves.totals
    if estimator == "plugin":
        roots = RootProfiles.of(_roots(halves.counts, halves.totals), single=True)
        return Squares(roots.squared, roots, index, totals, estimator, notes)
    each = halves.fold_totals
    A, B = (_roots(halves.counts[k * n : (k + 1) * n], each[k]) for k in (0, 1))
    # ⟨a, b⟩ = (‖a + b‖² − ‖a − b‖²)/4: tiles of two sets of rows, both as quick as one
    plus, minus = RootProfiles.of(A + B, single=True), RootProfiles.of(A - B, single=True)
    roots = RootProfiles.of(_roots(halves.pooled, totals))

    def crossed(a: int, b: int) -> FloatArray:
        return (plus.squared(a, b) - minus.squared(a, b)) / 4

    return Squares(crossed, roots, index, totals, estimator, notes)


def _roots(counts: csr_array, totals: IntArray) -> csr_array:
    """√(C[i] / N_i): (n, V)."""
    S = csr_array(counts, dtype=np.float64, copy=True)
    S.sum_duplicates()
    S.data /= np.repeat(totals, np.diff(S.indptr))
    np.sqrt(S.data, out=S.data)
    return S


@dataclass(frozen=True, eq=False)
class Seen:
    """What one pass saw of an encoding: sums over all pairs, and its distances in the samples.

    square, product   Σ δ², Σ δD
    least             min δ over pairs
    sample            (m,) δ of the sampled pairs
    rows              (anchors, n) δ from the anchors to all
    """

    square: float
    product: float
    least: float
    sample: FloatArray = field(repr=False)
    rows: FloatArray = field(repr=False)


@dataclass(frozen=True, eq=False)
class Pass:
    """What one pass over the tiles saw.

    offsets   sums at each offset, which are all that a shift-invariant encoding can see
    sample    (m,) D of the sampled pairs, 0 where an estimate of D² is below
    anchors   (A,) rows from which all distances were kept
    rows      (A, n) D from the anchors to all
    seen      one for each encoding
    """

    offsets: OffsetSums
    sample: FloatArray = field(repr=False)
    anchors: IntArray = field(repr=False)
    rows: FloatArray = field(repr=False)
    seen: tuple[Seen, ...] = field(repr=False)


def one_pass(
    squares: Squares, encodings: Sequence[Encoding], *, seed: int = 0, progress: bool = False
) -> Pass:
    """Look at every tile of the distances once, for all encodings together.

    seed: of the pairs that are sampled, a share of each tile.
    Raises PosgeomError where the squared distances do not sum to more than 0.
    """
    x = squares.positions
    n, span = len(x), int(x[-1] - x[0]) + 1
    own = [by_offset(encoding, x) for encoding in encodings]
    others = [between(e, x) for e, f in zip(encodings, own, strict=True) if f is None]
    anchors = np.unique(np.linspace(0, n - 1, ANCHORS).astype(np.int64))
    share = min(1.0, SAMPLED / (n * (n - 1) / 2))

    def look(a: int, b: int) -> _Tile:
        place = squares.roots.stretch(a), squares.roots.stretch(b)
        M = np.stack([squares.of_tile(a, b), *(δ(*place) for δ in others)])
        return _look(M, x, place, anchors, share, np.random.default_rng([seed, a, b]))

    by_pair = np.zeros((3, span))
    totals, least = np.zeros((2, len(others))), np.full(len(others), np.inf)
    rows = np.zeros((1 + len(others), len(anchors), n))
    sampled = []
    for tile in tqdm(
        squares.roots.over_tiles(look),
        "distances",
        squares.roots.n_tiles,
        unit=" tiles",
        disable=not progress,
    ):
        by_pair[:, tile.offset : tile.offset + tile.by_offset.shape[1]] += tile.by_offset
        totals += tile.totals
        least = np.minimum(least, tile.least)
        sampled.append(tile.sample)
        for anchor, columns, values in tile.rows:
            rows[:, anchor, columns] = values
    sample = np.concatenate(sampled, axis=1)
    pairs, sums, square_sums = by_pair[:, 1:]
    found = np.flatnonzero(pairs)
    if not square_sums.sum() > 0:
        raise PosgeomError(
            f"the squared distances of the corpus sum to {square_sums.sum():.3g}, at most 0: there "
            "is no geometry to fit; give more documents"
        )
    offsets = OffsetSums(found + 1, pairs[found].astype(np.int64), sums[found], square_sums[found])
    i, j = sample[:2].astype(np.int64)
    δ = iter(zip(totals.T, least, sample[3:], rows[1:], strict=True))
    seen = []
    for f in own:
        if f is None:
            (square, product), nearest, of_sample, of_rows = next(δ)
            seen.append(Seen(square, product, nearest, of_sample, of_rows))
            continue
        at_offset = f[offsets.offsets]
        seen.append(
            Seen(
                float(at_offset**2 @ offsets.pairs),
                float(at_offset @ offsets.sums),
                float(at_offset.min()),
                f[np.abs(x[i] - x[j])],
                f[np.abs(x[anchors][:, None] - x)],
            )
        )
    return Pass(offsets, sample[2], anchors, rows[0], tuple(seen))


@dataclass(frozen=True, eq=False)
class _Tile:
    """What one tile adds; the pairs of a tile on the diagonal are counted once."""

    offset: int
    by_offset: FloatArray  # (3, offsets) pairs, Σ D, Σ D² at each from `offset` on
    totals: FloatArray  # (2, E) Σ δ², Σ δD
    least: FloatArray  # (E,)
    sample: FloatArray  # (3 + E, m) rows i, j, D, δ of the sampled pairs
    rows: list[tuple[int, slice, FloatArray]]  # anchor, columns, (1 + E, columns) D and δ


def _look(
    M: FloatArray,
    x: IntArray,
    place: tuple[slice, slice],
    anchors: IntArray,
    share: float,
    rng: np.random.Generator,
) -> _Tile:
    """M: (1 + E, rows, columns), D² and δ of the encodings; D² becomes D."""
    rows, columns = place
    diagonal = rows == columns
    t = np.abs(x[rows, None] - x[None, columns])
    offset = int(t.min())
    t -= offset
    s = M[0].copy()
    M[0] = signed_root(s)
    flat = M.reshape(len(M), -1)
    weights = (None, flat[0], s.ravel())
    by_offset = np.stack([np.bincount(t.ravel(), w).astype(np.float64) for w in weights])
    totals = np.stack([np.einsum("ep,ep->e", flat[1:], flat[1:]), flat[1:] @ flat[0]])
    if diagonal:  # where each pair stands twice
        by_offset, totals = by_offset / 2, totals / 2
    np.maximum(M[0], 0, out=M[0])
    pairs = np.flatnonzero(np.triu(np.ones(t.shape, dtype=bool), 1)) if diagonal else None
    once = flat[1:] if pairs is None else flat[1:, pairs]
    least = once.min(axis=1, initial=np.inf)
    n_pairs = t.size if pairs is None else len(pairs)
    drawn = rng.choice(n_pairs, round(share * n_pairs), replace=False, shuffle=False)
    drawn = drawn if pairs is None else pairs[drawn]
    i, j = np.divmod(drawn, t.shape[1])
    sample = np.vstack([i + rows.start, j + columns.start, flat[:, drawn]])
    kept = [(k, columns, M[:, anchors[k] - rows.start].copy()) for k in _within(anchors, rows)]
    if not diagonal:
        kept += [
            (k, rows, M[:, :, anchors[k] - columns.start].copy()) for k in _within(anchors, columns)
        ]
    return _Tile(offset, by_offset, totals, least, sample, kept)


def _within(anchors: IntArray, rows: slice) -> IntArray:
    """The numbers of the anchors that lie in some rows."""
    return np.flatnonzero((anchors >= rows.start) & (anchors < rows.stop))
