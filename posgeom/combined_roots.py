"""Root profiles of smoothed positions, of which only some are computed.

Smoothing leaves few directions, and the root bends them: the profiles of many positions lie near
those of some.  Where there are many, these (the nodes) are computed for all tokens, and the others
are combined of them, with weights fitted on a sample of the tokens.  What is missed is a small
part of the noise of one half of the folds, which has nothing to do with that of the other half.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf

from posgeom.side_by_side import SMALL, Each
from posgeom.smoothing import Smoothed

FloatArray = NDArray[np.float64]
Block = NDArray[np.float32]
Nodes = NDArray[np.intp]

LOST = 0.05  # share of the noise of the profiles that combinations may miss
FEWEST = 48  # positions that are computed in any case
_LANES = 16  # nodes are a multiple of it, since BLAS works on so many rows at a time
RIDGE = 1e-7  # of the trace, which keeps weights small where nodes are alike


def choose_nodes(smoothed: Smoothed) -> Nodes:
    """The positions of which the others are combined, ascending; all where they are few.

    Pivoted Cholesky: each next one is that whose profile the others so far miss most of, until
    they miss no more than a share, LOST, of what noise makes of the profiles.
    smoothed: its first two sets have no fold in common, so that their difference is noise.
    """
    n, r = smoothed.B.shape[1:]
    if n <= SMALL or r > n // 4:
        return np.arange(n)
    tokens = smoothed.tokens
    m, weights = tokens.pooled[tokens.sample], tokens.weights
    Z = smoothed.sampled
    E, other = (roots(smoothed.B[s], Z[s], m, weights)[0] * np.sqrt(weights) for s in (0, 1))
    noise = E - other
    noise -= noise.mean(axis=0)  # what all positions have in common is not in their distances
    lost = LOST * np.square(noise, dtype=np.float64).sum()
    both = (E @ E.T + other @ other.T).astype(np.float64)
    factor, order, found, _ = dpstrf(both, tol=lost / n, lower=1)  # then less is lost than that
    explained = np.cumsum((np.tril(factor)[:, :found] ** 2).sum(axis=0))
    total = np.square(E, dtype=np.float64).sum() + np.square(other, dtype=np.float64).sum()
    enough = int((total - explained > lost).sum()) + 1
    enough = -(-max(enough, FEWEST) // _LANES) * _LANES
    return np.sort(order[: min(enough, n)] - 1)


def roots(B: Block, Z: Block, m: Block, weights: Block) -> tuple[Block, FloatArray]:
    """E = √p̃ − m (n, V), and the weighted sum of p̃ cut off below 0, (n,)."""
    E = B @ Z.T
    zeros = np.zeros_like(m)  # NumPy is four times slower with a single one
    cut = (np.minimum(E, zeros) @ -weights).astype(np.float64)
    np.maximum(E, zeros, out=E)
    np.sqrt(E, out=E)
    E -= m
    return E, cut


def root_profiles(smoothed: Smoothed, nodes: Nodes, each: Each) -> "list[RootProfile]":
    """The root profiles of all sets of folds, before a token was taken in."""
    tokens = smoothed.tokens
    few = len(nodes) < smoothed.B.shape[1]
    Z = smoothed.sampled if few else None
    m, weights = tokens.pooled[tokens.sample], tokens.weights

    def profile(s: int) -> RootProfile:
        B, sums = smoothed.B[s], smoothed.sums[s]
        if Z is None:
            return RootProfile(B, sums, nodes)
        return RootProfile(B, sums, nodes, weights, *roots(B, Z[s], m, weights))

    return list(each(profile, range(len(smoothed.B))))


class RootProfile:
    """√p̃ − m of one set of folds at the nodes, as the tokens stream by; m: pooled root profile.

    B, sums  of the set, see Smoothed
    E, cut   of a sample of tokens with weights, see roots; not needed where all are nodes
    """

    def __init__(
        self,
        B: Block,
        sums: FloatArray,
        nodes: Nodes,
        weights: Block | None = None,
        E: Block | None = None,
        cut: FloatArray | None = None,
    ) -> None:
        self._B, self._sums, self._nodes = B[nodes], sums, nodes
        self._T: FloatArray | None = None  # (n, nodes) weights of the nodes in each position
        if weights is not None and E is not None and cut is not None:
            A = E[nodes] * weights
            wide = A.astype(np.float64)  # nodes may be as many as tokens: M is all but singular
            M = wide @ E[nodes].T.astype(np.float64)
            M[np.diag_indices(len(M))] += RIDGE * np.trace(M)
            # SciPy's solvers hold Python's lock, and other threads up
            self._T = (A @ E.T).T.astype(np.float64) @ np.linalg.inv(M)
            self._missed = cut - self._T @ cut[nodes]
        self._positive = np.zeros(len(nodes))  # Σ_v p̃ of what is not below 0
        self._along = np.zeros(len(nodes))  # Σ_v E m

    @property
    def n_nodes(self) -> int:
        """Number of positions that are computed."""
        return len(self._nodes)

    def block(self, Z: Block, m: Block) -> Block:
        """E = √p̃ − m of a block of tokens at the nodes."""
        E = self._B @ Z.T
        np.maximum(E, np.zeros_like(m), out=E)
        self._positive += E @ np.ones_like(m)
        np.sqrt(E, out=E)
        E -= m
        self._along += E @ m
        return E

    def factors(
        self, other: "RootProfile", EE: FloatArray, mm: float
    ) -> tuple[FloatArray, FloatArray]:
        """L, R (n, nodes + 2): L Rᵀ are the inner products with another set's root profiles.

        Both about m, of rows of length 1: with c = Σ p̃^(−½),
        (c E + (c − 1) m)(c' E' + (c' − 1) m)ᵀ, so that no digit of the small differences is lost
        to the large length of the rows themselves.  EE: E E'ᵀ at the nodes; mm: m·m.
        """
        a, b = 1 / np.sqrt(self._squares()), 1 / np.sqrt(other._squares())
        x, y = self._everywhere(self._along), other._everywhere(other._along)
        left = np.column_stack([a[:, None] * self._everywhere(EE), a * x, a - 1])
        T = np.eye(len(b)) if other._T is None else other._T
        right = np.column_stack([b[:, None] * T, b - 1, b * y + (b - 1) * mm])
        return left, right

    def _everywhere(self, at_nodes: FloatArray) -> FloatArray:
        return at_nodes if self._T is None else self._T @ at_nodes

    def _squares(self) -> FloatArray:
        """Σ_v p̃ (n,), of what is not below 0: 1 but for what was cut off."""
        if self._T is None:
            return self._positive
        # What is cut off is combined too, and corrected by what that misses of the sample's
        cut = self._positive - self._sums[self._nodes]
        return self._sums + self._T @ cut + self._missed
