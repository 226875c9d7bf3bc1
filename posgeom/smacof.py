"""Stress-optimal scaling: the configuration whose distances are nearest to those given.

Classical MDS fits inner products, and leaves more stress than it need.  Here stress itself falls,
from a given configuration to the nearest minimum: by the Guttman transform of stress majorisation
(SMACOF), sped up by the curvature that the steps before have shown (L-BFGS).
"""

from collections import deque
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist, squareform
from threadpoolctl import ThreadpoolController

from posgeom.errors import PosgeomError
from posgeom.mds import MDSResult, check_square, classical_mds, fix_signs

FloatArray = NDArray[np.float64]
Floats = NDArray[np.floating]

TOLERANCE = 3e-7  # of raw stress: leaves no more of it than 1e-6 in scikit-learn does
MEMORY = 5  # steps whose curvature is remembered
TRIALS = 3  # lengths of a step before it gives way
PLAIN = 3  # Guttman transforms before the first longer step: they stay in the nearest valley
_SINGLE = 1e-7  # what single precision tells apart of the stress
_ROWS = 64  # rows of distances that stay in the processor's cache at once


@dataclass(frozen=True, eq=False)
class SmacofResult:
    """What stress majorisation finds.

    coordinates   (n, r) centred, one column a principal axis, by falling variance; the largest
                  entry of each is positive
    raw_stress    Σ w (δ − D)² / Σ w D² of their distances δ, 0..1
    iterations    steps taken, over all starts
    converged     whether the best run came to rest within the iterations allowed
    """

    coordinates: FloatArray = field(repr=False)
    raw_stress: float
    iterations: int
    converged: bool


def smacof(
    D: ArrayLike,
    rank: int,
    *,
    weights: ArrayLike | None = None,
    start: ArrayLike | None = None,
    restarts: int = 0,
    seed: int = 0,
    tolerance: float = TOLERANCE,
    max_iterations: int = 1000,
) -> SmacofResult:
    """Metric MDS: coordinates X of r dimensions that minimise Σ_{i<j} w_ij (‖x_i − x_j‖ − D_ij)².

    Guttman transform X⁺ = V⁻ B(X) X, b_ij = −w_ij D_ij / δ_ij, v_ij = −w_ij off the diagonal, rows
    summing to 0; V⁻ the Moore-Penrose inverse, J/n for equal weights.  Since V (X − X⁺) is half
    the gradient, it serves as the first guess of the curvature in L-BFGS; a step that does not
    lower stress enough gives way to the Guttman transform, which always does where D ≥ 0.

    D           (n, n) distances; what is below 0, as noise leaves of a debiased square (see
                posgeom.inference.signed_root), is fitted as it is: cut off at 0 it would add up
    rank        r, 1..n − 1
    weights     (n, n) symmetric, 0 or more, that connect all points; equal by default
    start       (n, r) to start from; classical MDS of D by default
    restarts    further runs from random configurations; the least stress of all is kept
    tolerance   a run rests where a Guttman transform would lower raw stress by less than this

    Stress is never above that of the start.  Raises PosgeomError for input of other shapes, a
    rank out of range, weights that leave points unconnected.
    De Leeuw (1977); Borg & Groenen (2005), ch. 8; Nocedal & Wright (2006), alg. 7.4.
    """
    D = check_square(D, "distances").copy()
    np.fill_diagonal(D, 0)
    n = len(D)
    if not 1 <= rank <= n - 1:
        raise PosgeomError(f"rank {rank} was asked of {n} points; use 1 to {n - 1}")
    if restarts < 0:
        raise PosgeomError(f"{restarts} restarts were asked; give 0 or more")
    W = None if weights is None else _check_weights(weights, n)
    if start is None:
        first = first_axes(classical_mds(np.sign(D) * D**2, squared=True), rank)
    else:
        first = _check_start(start, n, rank)
    rng = np.random.default_rng(seed)
    with _threads().limit(limits=1):  # several would wait for each other between short products
        job = _Job(D, W)
        if not job.unit:
            return SmacofResult(np.zeros((n, rank)), 0.0, 0, converged=True)
        starts = [first / job.unit]
        starts += [rng.standard_normal((n, rank)) / np.sqrt(rank) for _ in range(restarts)]
        runs = [job.run(X, rng, tolerance, max_iterations) for X in starts]
    best = min(runs, key=lambda run: run.value)
    X = principal_axes(job.unit * best.X.astype(np.float64))
    d = squareform(D, checks=False)
    w = np.ones_like(d) if W is None else squareform(W, checks=False)
    return SmacofResult(
        coordinates=X,
        raw_stress=float(w @ (pdist(X) - d) ** 2 / (w @ d**2)),
        iterations=sum(run.iterations for run in runs),
        converged=best.converged,
    )


def principal_axes(X: FloatArray) -> FloatArray:
    """The configuration (n, r) about its centroid, turned to its principal axes, signs fixed."""
    X = X - X.mean(axis=0)
    U, s, _ = np.linalg.svd(X, full_matrices=False)
    axes = np.zeros_like(X)
    axes[:, : len(s)] = fix_signs(U) * s
    return axes


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()  # looking the libraries up takes longer than a short run


@dataclass(frozen=True, eq=False)
class _Run:
    X: Floats
    value: float
    iterations: int
    converged: bool


class _Job:
    """Distances and weights, ready for runs from any start, in units in which both are near 1."""

    def __init__(self, D: FloatArray, W: FloatArray | None) -> None:
        n = len(D)
        self.total = n * (n - 1) / 2  # Σ w D², since the mean of w is 1 and of w D² too
        V = inverse = None
        if W is not None:
            W = W * (2 * self.total / W.sum())
            V = np.diag(W.sum(axis=0)) - W
            # 11ᵀ fills the null space of V at the scale of the rest; centred rows do not see it
            inverse = np.linalg.inv(V + np.full((n, n), V.trace() / n**2))
        WD = D if W is None else W * D
        self.unit = float(np.sqrt(np.vdot(WD, D) / (2 * self.total)))
        if self.unit:
            self.D, WD = D / self.unit, WD / self.unit
        self.double = _Stress(WD, V, inverse, self.total, np.float64)
        self.single = _Stress(WD, V, inverse, self.total, np.float32)

    def run(self, start: FloatArray, rng: np.random.Generator, tolerance: float, most: int) -> _Run:
        """Descend from a start: in single precision first, which is thrice as fast."""
        least, blur = tolerance * self.total, _SINGLE * self.total
        origin = self.double.scaled(start)
        X = _apart(start, self.D, rng) if origin.value > blur else start
        used = 0
        if origin.value > blur and X.shape[1] > 1:  # it would mix up the order on a line
            rough, used, _ = _descend(self.single, self.single.scaled(X), max(least, blur), most)
            X = rough.X.astype(np.float64)
        found = origin if X is start else self.double.scaled(X)
        found, more, rests = _descend(self.double, found, least, most, taken=used)
        if found.value > origin.value:
            found, more, rests = _descend(self.double, origin, least, most)
        return _Run(found.X, found.value, used + more, rests)


@dataclass(frozen=True, eq=False)
class _Point:
    """A configuration, its stress and half the gradient of it."""

    X: Floats
    value: float
    half_gradient: Floats


class _Stress:
    """Σ_{i<j} w (δ − D)² and its gradient, in one pass over the pairs."""

    def __init__(
        self,
        WD: FloatArray,
        V: FloatArray | None,
        inverse: FloatArray | None,
        total: float,
        dtype: type[np.floating],
    ) -> None:
        n = len(WD)
        self.dtype, self.total = dtype, total
        self._n = n
        self._eps, self._tiny = np.finfo(dtype).eps, np.finfo(dtype).tiny
        self._V = None if V is None else V.astype(dtype)
        self._inverse = None if inverse is None else inverse.astype(dtype)
        # The rows a..b of the upper triangle, from the diagonal block on, and room for their δ.
        self._blocks = [
            (a, np.ascontiguousarray(WD[a : a + _ROWS, a:], dtype=dtype))
            for a in range(0, n, _ROWS)
        ]
        self._room = np.empty(self._blocks[0][1].size, dtype=dtype)

    def scaled(self, X: Floats) -> _Point:
        """X about its centroid, in this precision, at the scale α = Σ w D δ / Σ w δ² that fits."""
        X = (X - X.mean(axis=0)).astype(self.dtype)
        here = self.at(X)
        VX = self._weighted(X)
        square = float(np.vdot(X, VX))
        cross = square - float(np.vdot(X, here.half_gradient))
        if not 0 < cross < np.inf or not square:
            return here
        α = cross / square  # B(αX) αX = B(X) X
        half_gradient = here.half_gradient + self.dtype(α - 1) * VX
        return _Point(self.dtype(α) * X, self.total - α * cross, half_gradient)

    def transform(self, G: Floats) -> Floats:
        """V⁻ G of a matrix whose columns sum to 0, (n, r)."""
        return G / self._n if self._inverse is None else self._inverse @ G

    def _weighted(self, X: Floats) -> Floats:
        """V X of a centred X."""
        return self._n * X if self._V is None else self._V @ X

    def at(self, X: Floats) -> _Point:
        """Stress and gradient of a centred X (n, r).

        Σ w (δ − D)² = Σ w D² − 2 tr Xᵀ B X + tr Xᵀ V X, gradient 2 (V X − B X).
        """
        n, r = X.shape
        q = np.einsum("ij,ij->i", X, X)
        one = np.ones_like(q)
        # What rounding may take off a square is put on: points that coincide stay a little apart,
        # and w D / δ times x_i − x_j, which is 0 there, comes out as 0.
        above = q + self.dtype((8 + r) * self._eps * q.max() + self._tiny)
        left, right = np.column_stack([-2 * X, above, one]), np.column_stack([X, one, q])
        sums = np.zeros((n, r + 1), dtype=self.dtype)  # R X and R 1 for R = w D / δ
        points = right[:, : r + 1]
        for a, WD in self._blocks:
            b = a + len(WD)
            R = self._room[: WD.size].reshape(WD.shape)
            np.dot(left[a:b], right[a:].T, out=R)  # ‖x_i‖² − 2 x_i·x_j + ‖x_j‖²
            np.abs(R, out=R)
            np.sqrt(R, out=R)
            np.divide(WD, R, out=R)
            sums[a:b] += R @ points[a:]
            sums[b:] += (points[a:b].T @ R[:, b - a :]).T
        BX = sums[:, r:] * X - sums[:, :r]
        VX = self._weighted(X)
        cross, square = (float(np.vdot(X, M)) for M in (BX, VX))
        return _Point(X, self.total - 2 * cross + square, VX - BX)


def _descend(
    stress: _Stress, now: _Point, least: float, most: int, *, taken: int = 0
) -> tuple[_Point, int, bool]:
    """L-BFGS with V⁻/2 as first guess of the inverse curvature: end, steps, whether at rest."""
    # On a line the Guttman transform goes all the way, for the order that the points are in.
    memory: deque[tuple[Floats, Floats, float]] = deque(maxlen=MEMORY if now.X.shape[1] > 1 else 0)
    for step in range(max(0, most - taken)):
        G = now.half_gradient
        guttman = -stress.transform(G)
        gain = -float(np.vdot(G, guttman))  # what the Guttman transform takes off, or more
        if gain <= least and taken + step >= PLAIN:
            return now, step, True
        swift = memory and taken + step >= PLAIN
        then = _step(stress, now, _quasi_newton(stress, G, memory)) if swift else None
        if then is None:
            memory.clear()
            then = _step(stress, now, guttman)
        if then is None:  # as low as rounding lets it
            return now, step, True
        s, y = then.X - now.X, then.half_gradient - G
        curvature = float(np.vdot(s, y))
        if curvature > 0:
            memory.append((s, y, curvature))
        now = then
    return now, max(0, most - taken), False


def _step(stress: _Stress, now: _Point, p: Floats) -> _Point | None:
    """now + t p with a t in 0..1 that lowers stress as its slope promises; None if none is near.

    t is the minimum of the parabola through what is known.  Nocedal & Wright (2006), sec. 3.5.
    """
    slope = 2 * float(np.vdot(now.half_gradient, p))
    t = 1.0
    for _ in range(TRIALS):
        then = stress.at(now.X + stress.dtype(t) * p)
        rise = then.value - now.value
        if rise <= 1e-4 * t * slope:
            return then
        t *= min(max(-slope * t / (2 * (rise - slope * t)), 0.1), 0.5)
    return None


def _quasi_newton(
    stress: _Stress, G: Floats, memory: deque[tuple[Floats, Floats, float]]
) -> Floats:
    """The step −H G; H is V⁻ scaled and corrected by the remembered steps s and changes y."""
    p, shares = -G, []
    for s, y, sy in reversed(memory):
        share = float(np.vdot(s, p)) / sy
        shares.append(share)
        p = p - share * y
    _, y, sy = memory[-1]
    p = stress.transform(p) * (sy / float(np.vdot(y, stress.transform(y))))
    for (s, y, sy), share in zip(memory, reversed(shares), strict=True):
        p = p + (share - float(np.vdot(y, p)) / sy) * s
    return p


def _apart(X: FloatArray, D: FloatArray, rng: np.random.Generator) -> FloatArray:
    """X with points that coincide though D > 0, and axes that are empty, moved a thousandth.

    They pull each other in no direction, and would stay where they are.
    """
    size = np.sqrt((X**2).mean())
    if not size:
        return np.sqrt((D**2).mean() / (2 * X.shape[1])) * rng.standard_normal(X.shape)
    along = X @ rng.standard_normal(X.shape[1])
    order = along.argsort()
    a, b = order[:-1], order[1:]
    met = (np.diff(along[order]) <= 1e-9 * size) & (D[a, b] > 0)
    moved = np.zeros(X.shape)
    moved[b[met]] = 1
    moved[:, (X**2).sum(axis=0) <= (1e-9 * size) ** 2] = 1
    if not moved.any():
        return X
    return X + 1e-3 * size * moved * rng.standard_normal(X.shape)


def first_axes(mds: MDSResult, rank: int) -> FloatArray:
    """The first `rank` coordinates of classical MDS, (n, rank); 0 past those that there are."""
    X = mds.coordinates[:, :rank]
    return np.pad(X, ((0, 0), (0, rank - X.shape[1])))


def _check_start(start: ArrayLike, n: int, rank: int) -> FloatArray:
    X = np.array(start, dtype=np.float64)
    if X.shape != (n, rank) or not np.isfinite(X).all():
        raise PosgeomError(
            f"a start of shape {X.shape} came for {n} points in {rank} dimensions; "
            f"give finite numbers of shape ({n}, {rank})"
        )
    return X


def _check_weights(weights: ArrayLike, n: int) -> FloatArray:
    W = check_square(weights, "weights").copy()
    np.fill_diagonal(W, 0)
    if len(W) != n or W.min() < 0:
        raise PosgeomError(
            f"weights of shape {W.shape}, the least {W.min():g}, came for {n} points; "
            "give one of 0 or more for each pair"
        )
    parts, _ = connected_components(W > 0, directed=False)
    if parts > 1:
        raise PosgeomError(
            f"weights of 0 part the points into {parts} groups whose distance nothing tells; "
            "give weights that connect them"
        )
    return W
