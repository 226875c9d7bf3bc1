"""What models ask of a position table: its scale, equal norms, zero means, a format that holds it.

A scale is free, as is a mean over positions: the scale-free stress sees neither.  Equal norms
change the geometry, and a zero mean over dimensions does so where rank = dim; what that costs is
for the caller to measure.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import svd
from scipy.optimize import root
from scipy.spatial.distance import pdist

from posgeom.designers.low_rank import LowRank, check_scale, rms_norm
from posgeom.encodings.precision import DTYPES, first_collision, rounded
from posgeom.encodings.weights import read_address
from posgeom.errors import PosgeomError
from posgeom.mds import fix_signs
from posgeom.passport.projections import WORDS

FloatArray = NDArray[np.float64]

ROUNDING = 1e-9  # of the largest norm or distance, or of a mean of unit vectors: less is 0
INSIDE = 1e-12  # how far within a bound to stay, since the product A Bᵀ rounds
SAYS = 1e-3  # the same for numbers of four digits in a message
WEISZFELD = 1_000  # steps; they slow down where the median is near a row
SMALLEST_FP16 = 2.0**-14  # below it float16 loses digits, and at last all of them


@dataclass(frozen=True)
class Constraints:
    """What a table must be; None and False ask nothing.

    norm            root mean square of the norms of the rows
    match           PATH[#KEY] of an embedding table, whose root mean square norm becomes `norm`
    row_norm        the norm of every row; changes the geometry
    bound           no entry is larger in size
    zero_mean       over positions (each column) and over dimensions (each row)
    dtype           bf16, fp16 or fp32, in which no two rows may be equal
    min_separation  no two rows are nearer

    Of norm, match and row_norm one may be given: it sets the scale.  Otherwise the scale is the
    one nearest to the table's own that keeps bound and min_separation.
    Raises PosgeomError for sizes that are not positive, and for an unknown dtype.
    """

    norm: float | None = None
    row_norm: float | None = None
    match: str | None = None
    bound: float | None = None
    zero_mean: bool = False
    dtype: str | None = None
    min_separation: float | None = None

    def __post_init__(self) -> None:
        sizes = {
            "--norm": self.norm,
            "--row-norm": self.row_norm,
            "--bound": self.bound,
            "--min-separation": self.min_separation,
        }
        for flag, value in sizes.items():
            if value is not None:
                check_scale(flag, value)
        if self.dtype is not None and self.dtype not in DTYPES:
            raise PosgeomError(f"dtype {self.dtype!r} is not known; use bf16, fp16 or fp32")
        scales = {"--norm": self.norm, "--row-norm": self.row_norm, "--match": self.match}
        given = [f"{flag} {value}" for flag, value in scales.items() if value is not None]
        if len(given) > 1:
            raise PosgeomError(f"{' and '.join(given)} came; each sets the scale, give one")

    def apply(self, table: LowRank) -> LowRank:
        """The table that keeps them all and is otherwise the one given.

        Raises PosgeomError where two of them, or one and the table, exclude each other.
        """
        if self.zero_mean:
            table = with_zero_means(table, equal_norms=self.row_norm is not None)
        if self.row_norm is not None:
            table = with_equal_norms(table, self.row_norm)
        elif self.norm is not None or self.match is not None:
            table = table.with_norm(self.norm or embedding_norm(self.match or ""))
        else:
            table = rescaled(table, self.bound, self.min_separation)
        check_bound(table, self.bound)
        check_separation(table, self.min_separation)
        if self.dtype is not None:
            check_distinct(table, self.dtype)
        return table


def embedding_norm(address: str) -> float:
    """Root mean square of the row norms of the embedding table at PATH[#KEY].

    KEY: by default the only tensor named as models name their word embeddings.
    Raises PosgeomError for a table that cannot be read, see read_address, or is all zero.
    """
    norm = rms_norm(read_address(address, WORDS))
    if norm == 0:
        raise PosgeomError(f"the table {address} is all zero; give one with a norm to match")
    return norm


def with_equal_norms(table: LowRank, norm: float) -> LowRank:
    """Each row scaled to this norm: the positions on a sphere about 0.

    Raises PosgeomError for a row at 0, which has no direction.
    """
    norms = np.linalg.norm(table.A, axis=1)
    lost = np.flatnonzero(norms <= ROUNDING * norms.max())
    if lost.size:
        raise PosgeomError(
            f"row {lost[0]} lies at the centre and cannot be scaled to norm {norm:g}; "
            "use --norm, or another rank"
        )
    return replace(table, A=table.A * (norm / norms)[:, None])


def with_zero_means(table: LowRank, *, equal_norms: bool = False) -> LowRank:
    """The table less its mean over positions and over dimensions: P ← J P J, J = I − 11ᵀ/n.

    Distances stay where the columns of B sum to 0, as low_rank makes them for a rank below dim.
    Otherwise the part along the constant vector is lost, with it maybe a rank, and A comes back
    along its principal axes.
    equal_norms   centre for with_equal_norms, which would undo a mean of 0: about the geometric
                  median, where the directions of the rows sum to 0
    Raises PosgeomError where nothing remains: a dimension of 1.
    """
    A, B = table.A - table.A.mean(axis=0), table.B
    if np.abs(B.sum(axis=0)).max() > ROUNDING:
        U, s, Vt = svd(A @ (B - B.mean(axis=0)).T, full_matrices=False)
        r = int((s > ROUNDING * np.linalg.norm(A)).sum())
        if not r:
            raise PosgeomError(
                f"zero means leave nothing of a table of dimension {table.dim}; raise --dim"
            )
        B = fix_signs(Vt[:r].T)
        A = U[:, :r] * s[:r] * (B * Vt[:r].T).sum(axis=0)  # ±1: the sign that B took
    if equal_norms:
        A = A - geometric_median(A)
    return LowRank(A, B)


def geometric_median(X: FloatArray) -> FloatArray:
    """argmin_c Σ ‖x_i − c‖, (r,) for rows X (n, r): the unit vectors from it to the rows sum to 0.

    Weiszfeld's steps c ← Σ x_i/d_i / Σ 1/d_i (1937), which no row can trap for long, then a
    root of the sum of unit vectors, to all digits.
    Raises PosgeomError where it is one of the rows, as in one dimension for an odd n.
    """
    size = np.abs(X).max()
    X = X / (size or 1)

    def pull(c: FloatArray) -> FloatArray:
        return np.asarray(-_directions(X, c)[1].sum(axis=0))

    def slope(c: FloatArray) -> FloatArray:
        d, u = _directions(X, c)
        w = 1 / np.maximum(d, ROUNDING)
        return w.sum() * np.eye(X.shape[1]) - (u.T * w) @ u

    c = X.mean(axis=0)
    for _ in range(WEISZFELD):
        w = 1 / np.maximum(_directions(X, c)[0], ROUNDING)
        c = w @ X / w.sum()
    c = root(pull, c, jac=slope, tol=1e-12).x
    d, u = _directions(X, c)
    if d.min() <= ROUNDING or np.linalg.norm(u.mean(axis=0)) > ROUNDING:
        raise PosgeomError(
            f"rows of one norm cannot have mean 0 here: row {d.argmin()} is their centre (the "
            "geometric median); leave out --zero-mean or --row-norm, or take another rank"
        )
    return np.asarray(c * size)


def _directions(X: FloatArray, c: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Distances (n,) and unit vectors (n, r) from c to the rows of X."""
    d = np.linalg.norm(X - c, axis=1)
    return d, (X - c) / np.maximum(d, ROUNDING)[:, None]


def rescaled(table: LowRank, bound: float | None, separation: float | None) -> LowRank:
    """The table at the scale nearest to its own that keeps a bound and a separation.

    No entry is larger than the one, no two rows nearer than the other.
    Raises PosgeomError where no scale does both, and for equal rows, which none sets apart.
    """
    least, most, largest = 0.0, np.inf, _largest_entry(table)
    if bound is not None and largest > 0:
        most = bound / largest * (1 - INSIDE)
    if separation is not None:
        least = separation / nearest_rows(table)[0] * (1 + INSIDE)
        if least > most:
            raise PosgeomError(
                f"rows {separation:g} apart need entries up to {largest * least:.4g}, "
                f"--bound {bound:g} came; give --min-separation "
                f"{separation * most / least * (1 - SAYS):.4g} or less"
            )
    return replace(table, A=table.A * float(np.clip(1, least, most)))


def check_bound(table: LowRank, bound: float | None) -> None:
    """Raise PosgeomError where an entry is larger than bound."""
    if bound is None or (largest := _largest_entry(table)) <= bound:
        return
    norm = rms_norm(table.A)
    raise PosgeomError(
        f"rows of norm {norm:.4g} have entries up to {largest:.4g}, --bound {bound:g} came; "
        f"give a norm of {norm * bound / largest * (1 - SAYS):.4g} or less"
    )


def check_separation(table: LowRank, separation: float | None) -> None:
    """Raise PosgeomError where two rows are nearer than separation."""
    if separation is None:
        return
    least, i, j = nearest_rows(table)
    if least < separation:
        norm = rms_norm(table.A)
        enough = norm * separation / least * (1 + SAYS)
        raise PosgeomError(
            f"rows {i} and {j} of norm {norm:.4g} are {least:.4g} apart, --min-separation "
            f"{separation:g} came; give a norm of {enough:.4g} or more"
        )


def nearest_rows(table: LowRank) -> tuple[float, int, int]:
    """The least distance of two rows, and which they are.

    Raises PosgeomError for equal rows: no scale sets them apart.
    """
    distances = pdist(table.A)
    i, j = np.triu_indices(len(table.A), 1)
    nearest = int(distances.argmin())
    if distances[nearest] <= ROUNDING * distances.max():
        raise PosgeomError(
            f"rows {i[nearest]} and {j[nearest]} are equal, and no scale sets them apart; "
            "leave out --min-separation, or take a higher rank"
        )
    return float(distances[nearest]), int(i[nearest]), int(j[nearest])


def check_distinct(table: LowRank, dtype: str) -> None:
    """Raise PosgeomError where two rows are equal in bf16, fp16 or fp32, or leave its range.

    Nothing is mended: a digit that sets two rows apart would have to be invented.
    """
    P = rounded(table.table(), dtype)
    if not np.isfinite(P).all():
        raise PosgeomError(
            f"entries up to {_largest_entry(table):.4g} do not fit in {dtype}; give a --norm near 1"
        )
    later = first_collision(P, dtype)
    if later is None:
        return
    earlier = int((P[:later] == P[later]).all(axis=1).argmax())
    advice = ["a higher rank"] if DTYPES[dtype] == "float32" else ["fp32", "a higher rank"]
    if rms_norm(table.A - table.A.mean(axis=0)) < rms_norm(table.A) / 2:
        advice.append("--zero-mean, since a mean they share takes up the digits")
    if DTYPES[dtype] == "float16" and np.abs(P).max() < SMALLEST_FP16:
        advice.append("a larger --norm")
    raise PosgeomError(
        f"rows {earlier} and {later} are equal in {dtype}; use {' or '.join(advice)}"
    )


def _largest_entry(table: LowRank) -> float:
    return float(np.abs(table.table()).max())
