"""Theorem 4's proof: where an expectation of products is taken for a product of expectations.

With scores s_k = (e_q + p_q) M (e_k + p_k)ᵀ of a query for the keys k, attention a = softmax(s),
output f = Σ_k a_k v_k and loss ½(f − y)², the gradient of the query's position vector is
E[Σ_k c_k (e_k + p_k)] Mᵀ with c_k = ∂loss/∂s_k = (f − y) a_k (v_k − f).  c_k and e_k come of the
same sample, so E[c_k e_k] ≠ E[c_k] E[e_k].  Here tokens are ±1, e = v = t, M = 1 and the query's
vector is 0, as a class token's at the start: all a_k are 1/n, and everything is a fraction.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

Pair = tuple[int, int]


@dataclass(frozen=True)
class PairCorpus:
    """Sequences of two tokens ±1: how likely each is, and its target."""

    shares: Mapping[Pair, Fraction]
    targets: Mapping[Pair, Fraction]

    def marginal(self, position: int) -> Fraction:
        """The probability of +1 at a position."""
        return sum((w for t, w in self.shares.items() if t[position] == 1), Fraction(0))


@dataclass(frozen=True)
class Gradients:
    """Σ_k E[c_k e_k], and Σ_k E[c_k] E[e_k] that is put in its place."""

    true: Fraction
    factorised: Fraction


def query_gradients(corpus: PairCorpus) -> Gradients:
    """Both at positions 0, by going through all sequences."""
    true = Fraction(0)
    c_mean, e_mean = [Fraction(0)] * 2, [Fraction(0)] * 2
    for t, w in corpus.shares.items():
        f = Fraction(sum(t), 2)
        for k in range(2):
            c = (f - corpus.targets[t]) * Fraction(1, 2) * (t[k] - f)
            true += w * c * t[k]
            c_mean[k] += w * c
            e_mean[k] += w * t[k]
    return Gradients(true, sum((c * e for c, e in zip(c_mean, e_mean, strict=True)), Fraction(0)))


def unseen_gradient() -> PairCorpus:
    """Positions with one distribution: the product of expectations is 0, the gradient is not.

    Independent fair tokens; the target is 1 where they differ.
    """
    every = [(a, b) for a in (1, -1) for b in (1, -1)]
    return PairCorpus(
        shares={t: Fraction(1, 4) for t in every},
        targets={t: Fraction(int(t[0] != t[1])) for t in every},
    )


def phantom_gradient() -> PairCorpus:
    """Positions with two distributions, order matters: the product says move, the gradient is 0.

    (+, −) half of the time with target 1, (−, +) a quarter with target −2, pairs of equal tokens
    an eighth each with their mean.
    """
    return PairCorpus(
        shares={
            (1, -1): Fraction(1, 2),
            (-1, 1): Fraction(1, 4),
            (1, 1): Fraction(1, 8),
            (-1, -1): Fraction(1, 8),
        },
        targets={
            (1, -1): Fraction(1),
            (-1, 1): Fraction(-2),
            (1, 1): Fraction(1),
            (-1, -1): Fraction(-1),
        },
    )


@dataclass(frozen=True)
class Merged:
    """A task that is solved best with one vector for two positions of different statistics.

    shares    probability of token 1 at each of the three positions, all different
    weights   attention at the minimum, softmax of the positions' scores
    loss      there; 0 is the least there is
    tied      least loss where the first two positions have one vector
    apart     least loss where the last two have one vector, for comparison
    """

    shares: tuple[Fraction, ...]
    weights: tuple[Fraction, ...]
    loss: Fraction
    tied: Fraction
    apart: Fraction


def merged_minimum() -> Merged:
    """y = x_0 + x_1 + 2 x_2 of independent tokens 0 and 1, learned by f = 4 Σ_k a_k x_k.

    Attention a = softmax(s(p_k)) by positions alone.  Order matters: x_1 and x_2 cannot change
    places.  Position statistics differ.  Yet loss E(f − y)² = Σ_k Var + mean² is 0 only for
    a = (¼, ¼, ½): position 0 and 1 have equal scores at every global minimum, and one vector
    can serve both.
    """
    shares = (Fraction(1, 2), Fraction(1, 4), Fraction(1, 8))
    wanted = (Fraction(1), Fraction(1), Fraction(2))

    def loss(a: tuple[Fraction, ...]) -> Fraction:
        error = [4 * w - g for w, g in zip(a, wanted, strict=True)]
        mean = sum((e * p for e, p in zip(error, shares, strict=True)), Fraction(0))
        variance = sum(
            (e**2 * p * (1 - p) for e, p in zip(error, shares, strict=True)), Fraction(0)
        )
        return variance + mean**2

    def least(tie: tuple[int, int]) -> Fraction:
        """Over weights (u, u, 1 − 2u), u at the tied positions: a parabola, by three points."""
        free = ({0, 1, 2} - set(tie)).pop()

        def at(u: Fraction) -> Fraction:
            return loss(tuple(1 - 2 * u if k == free else u for k in range(3)))

        y0, y1, y2 = at(Fraction(0)), at(Fraction(1, 4)), at(Fraction(1, 2))
        curvature = y0 - 2 * y1 + y2
        u = Fraction(1, 4) - (y2 - y0) / (8 * curvature)
        return at(min(max(u, Fraction(0)), Fraction(1, 2)))

    a = (Fraction(1, 4), Fraction(1, 4), Fraction(1, 2))
    return Merged(shares, a, loss(a), least((0, 1)), least((1, 2)))
