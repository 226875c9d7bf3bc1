"""The largest eigenvalues of symmetric matrices: of a large one by its products, of many small."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Block = NDArray[np.float32]

GUARD = 8  # vectors beside those asked for: equal eigenvalues come out together, and sooner
DEPTH = 16  # products before the best vectors found start anew
ROUGH = 1e-6  # residual that products of six digits still reach,
ROUGH_STARTS = 8  # soon, or not at all
DEPENDENT = 1e-4  # ratio of squares of lengths from which on vectors count as dependent
EXHAUSTED = 1e-5  # of a matrix: what a product may leave beside rounding and yet counts as nothing
_SMALL_PRODUCT = 600_000  # multiplications of a product that BLAS does without copying its factors


def krylov_eigenpairs(
    times: Callable[[FloatArray], FloatArray],
    n: int,
    r: int,
    *,
    rough: Callable[[FloatArray], FloatArray] | None = None,
    tolerance: float = 1e-8,
    restarts: int = 60,
    seed: int = 0,
) -> tuple[FloatArray, FloatArray, float]:
    """The r largest eigenvalues of B, ascending, their vectors (n, r), and the error that is left.

    times      Y ↦ B Y for Y (n, k), B (n, n) symmetric
    rough      the same to six digits and quicker, which is good enough to begin with
    tolerance  of ‖B u − λ u‖ / max |λ| for each pair, which bounds the error of λ
    Returns the largest such residual too, above the tolerance only where all restarts were used.
    Block Lanczos with full orthogonalisation, started anew from the best vectors found (Golub &
    Underwood 1977; Musco & Musco 2015, whose block Krylov method it is before the first restart).
    """
    k = r + GUARD if 2 * (r + GUARD) <= n else n  # a basis of all vectors needs no second product
    depth = min(DEPTH, n // k)
    start = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, k)))[0]
    product = rough or times
    for starts in range(1, restarts + 1):
        V, BV = np.empty((n, depth * k)), np.empty((n, depth * k))
        for at in range(0, depth * k, k):
            block = _beside(V[:, :at], BV[:, at - k : at]) if at else start
            V[:, at : at + k] = block
            BV[:, at : at + k] = product(block)
        T = V.T @ BV
        w, Y = np.linalg.eigh((T + T.T) / 2)
        Y = Y[:, -k:]
        U, BU = V @ Y, BV @ Y
        left = np.linalg.norm(BU - U * w[-k:], axis=0)[-r:].max() / max(np.abs(w).max(), 1e-300)
        if product is times and left <= tolerance:
            break
        start = np.linalg.qr(U)[0]
        if product is not times and left <= ROUGH:
            depth = -(-depth // 2)  # little is left to do
        if left <= ROUGH or starts == ROUGH_STARTS:
            product = times
    return w[-r:], U[:, -r:], float(left)


def _beside(V: FloatArray, W: FloatArray) -> FloatArray:
    """An orthonormal basis of W, or of anything where W holds nothing new, at right angles to V."""
    W = W / np.maximum(np.linalg.norm(W, axis=0), 1e-300)
    for _ in range(3):  # once leaves rounding, and rounding alone where W lies within V
        W, R = np.linalg.qr(W - V @ (V.T @ W))
        if np.abs(np.diag(R)).min() > 0.5:  # nothing cancelled that time
            break
    return W


def ritz_pairs(M: Block, r: int, width: int, products: int) -> tuple[Block, Block]:
    """The r largest Ritz values of symmetric matrices, ascending, and vectors (T, n, r).

    M: (T, n, n) float32.  Block Lanczos as in krylov_eigenpairs, of so many products with blocks
    of `width` vectors: r ≤ width · products ≤ n.  A Ritz value is never above its eigenvalue.
    All begin with the same random vectors, so that what is found of a matrix owes nothing to
    another one.  Whole stacks go to NumPy, which lets other threads work meanwhile.
    """
    T, n, _ = M.shape
    V = np.empty((T, width * products, n), dtype=np.float32)  # vectors are rows, side by side
    VM = np.empty_like(V)
    start = np.random.default_rng(0).standard_normal((width, n)).astype(np.float32)
    W = np.broadcast_to(start, (T, width, n))
    for at in range(0, width * products, width):
        new = slice(at, at + width)
        V[:, new] = W = _orthonormal_beside(V[:, :at], W)
        VM[:, new] = W = _products(W, M)
    H = V @ VM.transpose(0, 2, 1)
    w, Y = np.linalg.eigh((H + H.transpose(0, 2, 1)) / 2)
    return w[:, -r:], V.transpose(0, 2, 1) @ Y[:, :, -r:]


def _orthonormal_beside(V: Block, W: Block) -> Block:
    """Orthonormal rows (T, w, n) that span those of W, less what lies in the rows of V.

    By the eigenvectors of W Wᵀ (Stathopoulos & Wu 2002), which take less time than a QR
    decomposition.  That is taken where the rows are all but dependent: it gives as many then.
    """
    across = V.transpose(0, 2, 1)
    for _ in range(2):  # once leaves rounding
        W = W - np.matmul(W @ across, V)
    wide = W.astype(np.float64)  # squares of what float32 holds would be lost in it
    w, Q = np.linalg.eigh(wide @ wide.transpose(0, 2, 1))
    if (w[:, 0] > DEPENDENT * w[:, -1]).all():
        return (Q / np.sqrt(w)[:, None]).transpose(0, 2, 1).astype(np.float32) @ W
    for _ in range(2):
        W = np.linalg.qr(W.transpose(0, 2, 1))[0].transpose(0, 2, 1)
        W = W - np.matmul(W @ across, V)
    return np.linalg.qr(W.transpose(0, 2, 1))[0].transpose(0, 2, 1)


def _products(W: Block, M: Block) -> Block:
    """W M for stacks of a few rows W (T, w, n) and of symmetric matrices M (T, n, n)."""
    T, width, n = W.shape
    WM = np.empty((T, width, n), dtype=np.float32)
    parts = -(-n * n * width // _SMALL_PRODUCT)
    rows = -(-n // parts)
    for start in range(0, n, rows):
        part = slice(start, start + rows)
        np.matmul(W, M[:, part].transpose(0, 2, 1), out=WM[:, :, part])
    return WM


def largest_ritz_values(M: Block, products: int, tolerance: float) -> FloatArray:
    """The largest Ritz value θ of each symmetric matrix M (T, n, n) float32: (T,).

    products   with a vector, before the residuals ‖M u − θ u‖ are looked at first
    tolerance  of these, in parts of |θ|: more products are made while any is above, n at most.
               The error of θ goes as the square of its residual.
    Lanczos (1950) from one random vector, with no basis kept.  Rounding then brings some values
    twice, and leaves the largest as it is (Paige 1976).
    """
    T, n, _ = M.shape
    start = np.random.default_rng(0).standard_normal((n,)).astype(np.float32)
    v = np.tile(start / np.linalg.norm(start), (T, 1))
    # matrices are brought to about 1: squares of what float32 holds would be lost in it
    size = np.sqrt(np.square(M @ v[:, :, None], dtype=np.float64).sum(axis=1))
    size[size < 1e-37] = 1  # of nothing but zeros, as far as float32 goes
    unit = (1 / size).astype(np.float32)
    before, off, most = np.zeros_like(v), np.zeros((T, 1), np.float32), np.zeros((T, 1))
    diagonal, below = np.zeros((2, T, n))
    step = max(1, products // 2)
    for k in range(1, n + 1):
        w = (M @ (v * unit)[:, :, None])[:, :, 0]
        along = np.einsum("ti,ti->t", v, w)[:, None]
        w -= along * v
        w -= off * before
        off = np.sqrt(np.einsum("ti,ti->t", w, w))[:, None]
        most = np.maximum(most, np.abs(along) + off)
        off[off <= EXHAUSTED * most] = 0
        diagonal[:, k - 1], below[:, k - 1] = along[:, 0], off[:, 0]
        if k == n or (k >= products and (k - products) % step == 0):
            H = np.zeros((T, k, k))  # its lower triangle is read
            i = np.arange(k)
            H[:, i[1:], i[:-1]] = below[:, : k - 1]
            # behind the last vector: anything that is not above the largest
            there = (below[:, : k - 1] > 0).cumprod(axis=1) > 0
            H[:, 0, 0] = diagonal[:, 0]
            H[:, i[1:], i[1:]] = np.where(there, diagonal[:, 1:k], diagonal[:, :1])
            θ, Y = np.linalg.eigh(H)
            if (off[:, 0] * np.abs(Y[:, -1, -1]) <= tolerance * np.abs(θ[:, -1])).all():
                break
        before, v = v, np.divide(w, off, out=np.zeros_like(w), where=off > 0)
    return np.asarray(θ[:, -1] * size[:, 0])
