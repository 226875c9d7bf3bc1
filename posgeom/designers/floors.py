"""The least stress that any table of r dimensions can have: what is found, and what is proved.

Found: stress majorisation from many starts, an upper bound of the minimum.  Proved: a lower bound
for every configuration, from the eigenvalues that r dimensions must leave out.

For points x_1..x_m in r dimensions let Δ_ij = δ_ij² − D_ij² and E = X Xᵀ − B = −½ J Δ J, both Gram
matrices about the centroid.  Then Δ_ij = E_ii + E_jj − 2 E_ij, and summing squares
    Σ_{i<j} Δ² = m Σ E_ii² + (tr E)² + 2 ‖E‖² ≥ 2 (‖E‖² + (tr E)²).
X Xᵀ has at most r eigenvalues that are not 0.  With T = Σ λ² and τ = Σ λ over the eigenvalues of
B but the r largest, ‖E‖² + (tr E)² ≥ T + r t² + (τ − r t)² for some t, least at t = τ/(1 + r):
    Σ_{i<j} Δ² ≥ Q = 2 (T + τ²/(1 + r)).
On the other hand |Δ| = e (δ + D) ≤ e (2 D + e) for e = |δ − D|, so that with M = max D and the raw
error σ = Σ e² of these points, Σ Δ² ≤ σ (2 M + √σ)².  Hence √σ ≥ √(M² + √Q) − M.  And where
their σ is least, x_i = Σ_j D_ij (x_i − x_j)/δ_ij / m is its own Guttman transform, so that
δ_ij ≤ U_ij = Σ_k (D_ik + D_jk) / m, and σ ≥ Q / max (U + D)².

On a line more is known: for each order of the points, with s_ij = ±1 the side on which i lies of
j, Σ (s_ij (x_i − x_j) − D_ij)² is least at x_i = Σ_j s_ij D_ij / m, and is Σ D² − m Σ x² there.
The least over all orders is the minimum itself (De Leeuw & Heiser 1977).

One large M spoils the bound of many points, and many points have too many orders.  So both are
taken of small groups of points no two of which share a pair: their errors add up to no more than
the error of all pairs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from posgeom.geometry import Geometry
from posgeom.inference import condensed, signed_root
from posgeom.mds import check_square
from posgeom.smacof import smacof

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

RESTARTS = 10
ORDERED = 6  # points whose 360 orders on a line, up to reflection, are all tried


@dataclass(frozen=True)
class Floor:
    """Bounds of the least scale-free stress in r dimensions, both 0..1.

    proved   no configuration has less
    found    one has this; where it is `proved` too, nothing better can be found
    """

    rank: int
    proved: float
    found: float


def rank_floor(geometry: Geometry, rank: int, *, restarts: int = RESTARTS, seed: int = 0) -> Floor:
    """How little stress a table of r dimensions can have against a geometry.

    Raises PosgeomError for a rank outside 1..n − 1.
    """
    D = signed_root(geometry.squared)
    found = smacof(D, rank, restarts=restarts, seed=seed)
    proved = proved_floors(geometry, rank)[-1]
    least = found.raw_stress * (condensed(D) ** 2).sum()
    return Floor(rank, float(proved), float(max(_share(geometry, least), proved)))


def proved_floors(geometry: Geometry, most: int) -> FloatArray:
    """A lower bound of the scale-free stress of every configuration of 1..most dimensions, (most,).

    Where noise took squares s below 0 (see posgeom.inference.stress_of), a pair adds |s| at least
    to the error and takes 2|s| from its yardstick.
    """
    least = least_errors(geometry.distances, most)
    s = condensed(geometry.squared)
    return _share(geometry, least + np.abs(np.minimum(s, 0)).sum())


def _share(geometry: Geometry, error: FloatArray | float) -> FloatArray:
    """Scale-free stress from Σ (δ − D)² of signed D, in 0..1."""
    s = condensed(geometry.squared)
    return np.clip((error - 2 * np.abs(np.minimum(s, 0)).sum()) / s.sum(), 0, 1)


def least_errors(D: FloatArray, most: int) -> FloatArray:
    """A lower bound of Σ_{i<j} (δ_ij − D_ij)² for every configuration of 1..most dimensions.

    The best over sizes of the groups of points.  D: (n, n) distances, 0 or more.  Returns (most,).
    """
    D = check_square(D, "distances")
    n = len(D)
    best = np.zeros(most)
    for size in sorted({n, *_sizes(n)}):
        total = np.zeros(most)
        for groups in edge_disjoint(np.arange(n), size):
            total += _least_of_groups(D[groups[:, :, None], groups[:, None, :]], most)
        best = np.maximum(best, total)
    on_a_line = sum(
        _least_on_a_line(D[groups[:, :, None], groups[:, None, :]])
        for groups in edge_disjoint(np.arange(n), ORDERED)
    )
    best[0] = max(best[0], on_a_line)
    return np.maximum.accumulate(best[::-1])[::-1]  # what r + 1 dimensions leave, r leave too


def _sizes(n: int) -> list[int]:
    """3, 4, 6, 8, 12, 16, .. up to √n: larger groups of a prime number of lines do not exist."""
    sizes = [base << k for k in range(n.bit_length()) for base in (2, 3)]
    return [size for size in sizes if size >= 3 and size * size <= max(n, 9)]


def _least_of_groups(D: FloatArray, most: int) -> FloatArray:
    """The sum of the bounds of groups of points, D: (groups, m, m).  Returns (most,)."""
    m = D.shape[1]
    S = D**2
    means = S.mean(axis=1)
    B = -0.5 * (S - means[:, :, None] - means[:, None, :] + means.mean(axis=1)[:, None, None])
    w = np.linalg.eigvalsh(B)[:, ::-1]
    M = D.max(axis=(1, 2))
    R = D.mean(axis=1)
    H = (D + R[:, :, None] + R[:, None, :]).max(axis=(1, 2))  # U + D
    H[H == 0] = 1
    least = np.zeros(most)
    for r in range(1, min(most, m - 1) + 1):
        tail = w[:, r:]
        Q = 2 * ((tail**2).sum(axis=1) + tail.sum(axis=1) ** 2 / (1 + r))
        by_M = (np.sqrt(M**2 + np.sqrt(Q)) - M) ** 2
        least[r - 1] = np.maximum(by_M, Q / H**2).sum()
    return least


def _least_on_a_line(D: FloatArray) -> float:
    """The sum of the minima of groups of points in one dimension, D: (groups, m, m)."""
    m = D.shape[1]
    most = np.zeros(len(D))
    for order in permutations(range(m)):
        if order[0] < order[-1]:  # the others are reflections
            signs = np.sign(np.subtract.outer(order, order))
            x = (D * signs).sum(axis=2) / m
            most = np.maximum(most, (x**2).sum(axis=1))
    return float((D**2).sum() / 2 - m * most.sum())


def edge_disjoint(points: IntArray, size: int) -> Iterator[IntArray]:
    """Groups of at most `size` points, no two of which have a pair in common: arrays (groups, m).

    The points in rows of p, a prime of at least as many as there are rows: the lines of slope
    t = 0..p−1 meet each row once and each other at most once.  The pairs within a row are shared
    out in the same way, so that each pair is in just one group.  size: 2 or more.
    """
    n = len(points)
    if n <= size:
        if n > 1:
            yield points[None, :]
        return
    p = _prime_from(max(-(-n // size), int(np.ceil(np.sqrt(n)))))
    rows = -(-n // p)
    row = np.arange(rows)
    a, t = np.divmod(np.arange(p * p), p)
    at = row * p + (a[:, None] + row * t[:, None]) % p
    whole = at[:, -1] < n
    yield points[at[whole]]
    if rows > 2:
        yield points[at[~whole, :-1]]
    for r in row:
        yield from edge_disjoint(points[r * p : (r + 1) * p], size)


def _prime_from(n: int) -> int:
    """The least prime of at least n, 2 or more."""
    n = max(n, 2)
    while any(n % k == 0 for k in range(2, int(n**0.5) + 1)):
        n += 1
    return n
