"""What adding positions to tokens does to attention: the four terms, and what is relative in them.

A model that adds p_m to the token vector x_m compares ⟨x_m + p_m, x_n + p_n⟩: content with
content, content with position, position with content, position with position.  Only the last is
what a table's distances promise; the others say how much of the promise reaches the logits.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

TERMS = ("content-content", "content-position", "position-content", "position-position")
GRID = 512  # positions of the figure of shift invariance: each pair of them is computed
GROUPS, GROUP_TOKENS = 16, 16  # tokens over which that figure averages, in jackknife groups


class Estimate(NamedTuple):
    """A sampled number and its standard error; row 0 is all heads, row 1 + h is head h."""

    value: FloatArray
    error: FloatArray


@dataclass(frozen=True, eq=False)
class Norm:
    """LayerNorm: z = γ (u − ū)/σ(u) + β, σ² = var(u) + ε.  weight γ, bias β: (d,)."""

    weight: FloatArray = field(repr=False)
    bias: FloatArray = field(repr=False)
    epsilon: float = 1e-5


@dataclass(frozen=True, eq=False, kw_only=True)
class Projections:
    """How a layer makes q and k of what it is given: norms one after the other, then q = zW + b.

    W_q, W_k  (heads, d, e); None for z itself, in one head
    b_q, b_k  (heads, e)
    scale     what logits are multiplied with, 1/√e where the model does so
    """

    W_q: FloatArray | None = field(default=None, repr=False)
    W_k: FloatArray | None = field(default=None, repr=False)
    b_q: FloatArray | float = field(default=0.0, repr=False)
    b_k: FloatArray | float = field(default=0.0, repr=False)
    norms: tuple[Norm, ...] = ()
    scale: float = 1.0

    def normed(self, X: FloatArray, P: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Content and position parts of what the norms make of X + P, both (N, d).

        A norm divides both parts by the σ of their sum, so they still add up exactly; its β goes
        with the content.
        """
        for norm in self.norms:
            X, P = X - X.mean(-1, keepdims=True), P - P.mean(-1, keepdims=True)
            σ = np.sqrt(((X + P) ** 2).mean(-1, keepdims=True) + norm.epsilon)
            X, P = X / σ * norm.weight + norm.bias, P / σ * norm.weight
        return X, P

    def parts(self, X: FloatArray, P: FloatArray) -> tuple[FloatArray, ...]:
        """Content and position parts of q, then of k: four (…, heads, N, e), for (…, N, d).

        b_q and b_k go with the content: they are part of q and k where no position is added.
        """
        X, P = self.normed(X, P)
        return (
            by_head(X, self.W_q, self.b_q),
            by_head(P, self.W_q),
            by_head(X, self.W_k, self.b_k),
            by_head(P, self.W_k),
        )

    def terms(self, parts: tuple[FloatArray, ...]) -> FloatArray:
        """The four terms of the logits of each query (row) and key: (4, heads, N, N)."""
        x_q, p_q, x_k, p_k = parts
        pairs = ((x_q, x_k), (x_q, p_k), (p_q, x_k), (p_q, p_k))
        return self.scale * np.stack([q @ k.swapaxes(-1, -2) for q, k in pairs])

    def logits(self, Z: FloatArray) -> FloatArray:
        """The logits of what the norms made, Z (N, d): (heads, N, N)."""
        q, k = by_head(Z, self.W_q, self.b_q), by_head(Z, self.W_k, self.b_k)
        return self.scale * q @ k.swapaxes(-1, -2)


def by_head(X: FloatArray, W: FloatArray | None, b: FloatArray | float = 0.0) -> FloatArray:
    """X W + b for each head: (…, heads, N, e), for X (…, N, d), W (heads, d, e), b (heads, e)."""
    if W is None:
        return X[..., None, :, :]
    heads, d, e = W.shape
    flat = W.swapaxes(0, 1).reshape(d, heads * e)  # one product of all heads is far faster
    split = (X @ flat).reshape(*X.shape[:-1], heads, e) + b
    return split.swapaxes(-2, -3)


@dataclass(frozen=True, eq=False, kw_only=True)
class ContentTerms:
    """Shares of the four terms, and what is relative in the logits.

    at          "the sum", or the layer whose norms, W_q and W_k were applied
    variance    (1 + heads, 4): Var(t) / Σ_u Var(u), the variance over pairs (m, n) of each term
    absolute    (1 + heads, 4): E|t| / Σ_u E|u|
    invariance  (1 + heads,): see shift_invariance; NaN where nothing depends on position
    """

    at: str
    variance: Estimate
    absolute: Estimate
    invariance: Estimate
    pairs: int
    causal: bool

    @property
    def heads(self) -> int:
        """Number of heads."""
        return len(self.variance.value) - 1


def draw(
    n_positions: int, tokens: int, seed: int = 0, *, sequences: int = 64, width: int = 64
) -> tuple[IntArray, IntArray]:
    """Which positions and which tokens are compared: two (sequences, width) arrays of indices.

    Each sequence has `width` different positions (all, where there are fewer) in rising order,
    and for each a token drawn from all `tokens`, with replacement, whatever its position.
    """
    if n_positions < 2 or tokens < 2:
        raise PosgeomError(
            f"{n_positions} positions and {tokens} tokens came; pairs need two of each"
        )
    if seed < 0:
        raise PosgeomError(f"--seed {seed} came; give 0 or more")
    rng = np.random.default_rng(seed)
    width = min(width, n_positions)
    positions = np.stack(
        [np.sort(rng.choice(n_positions, width, replace=False)) for _ in range(sequences)]
    )
    return positions, rng.integers(0, tokens, (sequences, width))


def content_terms(
    X: ArrayLike,
    positions: ArrayLike,
    P: ArrayLike,
    projections: Projections | None = None,
    *,
    at: str = "the sum",
    causal: bool = False,
) -> ContentTerms:
    """Shares of the four terms of ⟨x_m + p_m, x_n + p_n⟩, by default before any projection.

    X          (sequences, width, d) token vectors
    positions  (sequences, width) their positions, different ones in a sequence
    P          (n, d) the table
    causal     pairs with n < m alone, as a causal model sees them; else all with m ≠ n

    A pair of one position with itself is left out: its two tokens are one.  All heads together:
    the sums over heads of variance and of mean |t|.  Standard errors: jackknife over sequences.
    """
    X, P = np.asarray(X, dtype=np.float64), np.asarray(P, dtype=np.float64)
    positions = np.asarray(positions)
    if X.ndim != 3 or X.shape[:2] != positions.shape or X.shape[2] != P.shape[1] or len(X) < 2:
        raise PosgeomError(
            f"X came as {X.shape}, positions as {positions.shape}, P as {P.shape}; "
            "give (sequences, width, d) with two sequences or more, (sequences, width), (n, d)"
        )
    projections = projections or Projections()
    seen = pairs_seen(positions.shape[1], causal)
    parts = projections.parts(X, P[positions])
    moments = np.stack(
        [_moments(projections.terms(one)[..., seen]) for one in zip(*parts, strict=True)]
    )
    return ContentTerms(
        at=at,
        variance=jackknife(moments, _shares_of_variance),
        absolute=jackknife(moments, _shares_of_size),
        invariance=shift_invariance(X, P, projections, causal=causal),
        pairs=int(seen.sum()) * len(X),
        causal=causal,
    )


def shift_invariance(
    X: FloatArray, P: FloatArray, projections: Projections, *, causal: bool = False
) -> Estimate:
    """How much of what positions do to the logits depends on m − n alone: (1 + heads,), 0..1.

    L(m, n) is the logit averaged over independent contents of the two positions: for each the
    mean over tokens of what the norms make of x + p_m, then projected.  The figure is
    Var(E[L | m − n]) / Var(L) over the pairs (m, n): 1 for a shift-invariant rule, about 2/n for
    n rows of chance, NaN where L does not vary.  The mean content is part of L: μ·p_n depends on
    n, so even a sinusoidal table leaves less than 1.

    Tables of more than GRID rows are thinned to every s-th; the mean is over the first
    GROUPS · GROUP_TOKENS tokens of X (…, d).  Standard error: jackknife over groups of tokens.
    """
    tokens = X.reshape(-1, X.shape[-1])[: GROUPS * GROUP_TOKENS]
    grid = P[:: -(-len(P) // GRID)]
    means = np.zeros((min(GROUPS, len(tokens)), *grid.shape))
    for g, group in enumerate(np.array_split(tokens, len(means))):
        for x in group:
            means[g] += np.add(*projections.normed(x[None], grid)) / len(group)

    seen = pairs_seen(len(grid), causal)
    rows, columns = np.nonzero(seen)
    offsets = rows - columns + len(grid)
    counts = np.maximum(np.bincount(offsets), 1)

    def share(Z: FloatArray) -> FloatArray:
        L = projections.logits(Z)[:, seen]
        size = (L * L).mean(axis=1)
        L -= L.mean(axis=1, keepdims=True)
        sums = np.stack([np.bincount(offsets, weights=head) for head in L])
        total, by_offset = (L * L).sum(axis=1), (sums**2 / counts).sum(axis=1)
        total[total <= 1e-20 * size * L.shape[1]] = 0  # what rounding leaves of a constant
        return _ratio(_with_all(by_offset), _with_all(total))

    return jackknife(means, share)


def pairs_seen(n: int, causal: bool) -> NDArray[np.bool_]:
    """Which pairs (m, n) count: those before the query where causal, else all but the diagonal."""
    return np.tri(n, k=-1, dtype=bool) if causal else ~np.eye(n, dtype=bool)


def jackknife(parts: FloatArray, statistic: Callable[[FloatArray], FloatArray]) -> Estimate:
    """statistic(mean of the parts) and its delete-one standard error; parts: (R, …).

    √((R−1)/R Σ_r (s_(r) − s̄)²), s_(r) without part r.  NaN where there is one part alone.
    """
    R, total = len(parts), parts.sum(axis=0)
    value = statistic(total / R)
    if R < 2:
        return Estimate(value, np.full_like(value, np.nan))
    left_out = np.stack([statistic((total - part) / (R - 1)) for part in parts])
    spread = ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0)
    return Estimate(value, np.sqrt((R - 1) / R * spread))


def _moments(t: FloatArray) -> FloatArray:
    """Means of t, t² and |t| over pairs: (3, heads, 4), for terms t (4, heads, pairs)."""
    return np.stack([t.mean(-1), (t * t).mean(-1), np.abs(t).mean(-1)]).swapaxes(1, 2)


def _shares_of_variance(moments: FloatArray) -> FloatArray:
    mean, square, _ = moments
    variance = np.maximum(square - mean**2, 0)
    variance[variance <= 1e-14 * square] = 0  # what rounding leaves of a constant
    total = _with_all(variance)
    return _ratio(total, total.sum(axis=1, keepdims=True))


def _shares_of_size(moments: FloatArray) -> FloatArray:
    total = _with_all(moments[2])
    return _ratio(total, total.sum(axis=1, keepdims=True))


def _with_all(by_head: FloatArray) -> FloatArray:
    """The sum over heads before the heads: (1 + heads, …)."""
    return np.concatenate([by_head.sum(axis=0, keepdims=True), by_head])


def _ratio(a: FloatArray, b: FloatArray) -> FloatArray:
    """a / b; NaN where b is 0."""
    return np.divide(a, b, out=np.full(np.broadcast_shapes(a.shape, b.shape), np.nan), where=b > 0)
