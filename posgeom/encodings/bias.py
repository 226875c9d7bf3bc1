"""Bias encodings: a number added to each attention logit."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posgeom.encodings.base import (
    BYTES,
    Cost,
    Encoding,
    as_positions,
    distances_by_offset,
)
from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]

READINGS = ("linear", "kernel", "attention")


@dataclass(frozen=True, kw_only=True)
class BiasEncoding(Encoding):
    """b_h(i, j), added to the logit of query i and key j in head h.

    head, slice   the heads whose distance is taken: one (`head=2`, from 0), or several
                  (`slice=4:8` for 4 to 7); by default all, side by side
    reading       what distance a bias is.  "linear": b(0) − b(t), positions on a line for ALiBi
                  (Cirrincione's reading).  "kernel": √(2(b(0) − b(t))), the distance whose
                  inner products the bias is, Euclidean where −b is conditionally negative
                  definite.  "attention": √(2(1 − e^(b(t) − b(0)))), the distance whose inner
                  products are the attention that a key at t keeps beside one of the same content
                  at 0, before it is normalised; Euclidean wherever "kernel" is (Schoenberg).
                  Several heads: the root of the sum of their squares
    causal        bias() of a key ahead of its query is −inf; distances do not see it
    """

    heads: int = 8
    head: int | None = None
    reading: str = "linear"
    slice: str = ""
    causal: bool = False

    def __post_init__(self) -> None:
        if self.heads < 1:
            raise PosgeomError(f"{self.family} came with heads={self.heads}; it must be 1 or more")
        if self.reading not in READINGS:
            raise PosgeomError(
                f"reading {self.reading!r} is not known; use linear, kernel or attention"
            )
        self.chosen  # noqa: B018  (it refuses heads that are not there)

    @property
    def chosen(self) -> NDArray[np.int64]:
        """The heads whose distance is taken, from 0."""
        if self.head is not None and self.slice:
            raise PosgeomError(f"{self.family} came with head and slice; give one of them")
        if self.slice:
            first, colon, end = self.slice.partition(":")
            if not (colon and first.isdecimal() and end.isdecimal()) or not (
                int(first) < int(end) <= self.heads
            ):
                raise PosgeomError(
                    f"{self.family} has no heads {self.slice!r}; give slice=first:end within "
                    f"0:{self.heads}"
                )
            return np.arange(int(first), int(end))
        if self.head is None:
            return np.arange(self.heads)
        return np.array([self.checked_head(self.head)])

    @property
    def splits(self) -> bool:
        """Whether no head was chosen, so that each can have a distance of its own."""
        return self.head is None and not self.slice

    def checked_head(self, head: int) -> int:
        """The head, if there is one of this number."""
        if not 0 <= head < self.heads:
            raise PosgeomError(f"{self.family} has no head {head}; use head=0 to {self.heads - 1}")
        return head

    @abstractmethod
    def biases(self, heads: NDArray[np.int64], offsets: FloatArray) -> FloatArray:
        """b_h at offsets i − j, query minus key, (m,): (heads, m)."""

    def bias(self, head: int, q_positions: ArrayLike, k_positions: ArrayLike) -> FloatArray:
        """b_h(i − j) for queries (n,) and keys (m,): (n, m)."""
        heads = np.array([self.checked_head(head)])
        offsets = offsets_of(q_positions, k_positions)
        distinct, where = np.unique(offsets, return_inverse=True)
        values = self.biases(heads, distinct)[0][where].reshape(offsets.shape)
        return self.masked(values, offsets)

    def masked(self, values: FloatArray, offsets: FloatArray) -> FloatArray:
        """values, with −inf at keys ahead where the encoding is causal."""
        return np.where(offsets < 0, -np.inf, values) if self.causal else values

    def fall(self, offsets: FloatArray) -> FloatArray:
        """b_h(0) − b_h(t) of the chosen heads at t ≥ 0: (heads, m).

        Of a bias that is not symmetric the mean of both directions; of a causal one the past.
        """
        heads = self.chosen
        at = self.biases(heads, offsets)
        if not self.causal:
            at = (at + self.biases(heads, -offsets)) / 2
        return self.biases(heads, np.zeros(1)) - at

    def at_offsets(self, offsets: FloatArray) -> FloatArray:
        """Distances of the chosen heads at t ≥ 0, (m,), under the reading: (m,).

        A kernel whose bias rises above b(0) is none there: the square is taken as 0 (the
        attention's in each such head).
        """
        squares = np.empty(len(offsets))
        for start in range(0, len(offsets), 65_536):
            block = slice(start, start + 65_536)
            squares[block] = squares_of(self.fall(offsets[block]), self.reading)
        return np.sqrt(np.maximum(squares, 0))

    def distances(self, positions: ArrayLike) -> FloatArray:
        """(n, n) distances of the chosen heads, under the reading."""
        return distances_by_offset(self.at_offsets, positions)

    def codes(self, positions: ArrayLike) -> FloatArray:
        """(n, heads): the biases by which a query at 0 tells the keys apart."""
        x = as_positions(positions).astype(np.float64)
        return self.biases(self.chosen, x).T

    def cost(self, dim: int, heads: int, length: int) -> Cost:
        """The formula for each logit of a token and the addition to it; its numbers are kept.

        Counted alike for all biases: an operation is an addition, product, quotient, logarithm or
        power, or a look-up; parameters and kept numbers are those of a layer with so many heads.
        """
        n = self.n_parameters * heads // self.heads
        flops = (self._operations() + 1) * heads * length
        return Cost(n, flops, BYTES * max(n, heads), self._past_end())

    def _operations(self) -> int:
        """What one bias takes from the offset on: a product with a slope, or a look-up."""
        return 1

    def _past_end(self) -> str:
        return "defined everywhere"


def squares_of(fall: FloatArray, reading: str) -> FloatArray:
    """Squared distances (m,) that heads of these falls b_h(0) − b_h(t), (heads, m), make.

    May be below 0 for a "kernel" whose bias rises above b(0).
    """
    if reading == "linear":
        each = fall**2
    elif reading == "kernel":
        each = 2 * fall
    else:
        each = -2 * np.expm1(-np.maximum(fall, 0))
    return each.sum(axis=0)


def offsets_of(q_positions: ArrayLike, k_positions: ArrayLike) -> FloatArray:
    """i − j for queries (n,) and keys (m,): (n, m)."""
    i, j = as_positions(q_positions), as_positions(k_positions)
    return (i[:, None] - j[None, :]).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class Alibi(BiasEncoding):
    """Logit bias −m_h |i − j| with a slope m_h for each head.  Press et al. (2022), sec. 3.

    slopes     own slopes, one a head, in place of 2^(−8h/H)
    bias_max   the 8 of the slopes (MPT's alibi_bias_max)
    form       "distance": as above.  "keys": +m_h·j, Bloom's, which softmax over the keys before
               the query makes the same; without a mask it is not

    Distances: all heads side by side, or one with `head=h` (from 0).  reading "linear" takes
    m|i − j| (positions on a line, Cirrincione's reading); "kernel" takes √(2 m|i − j|), the
    distance whose inner products the bias is.  Under these no slope changes the scale-free
    stress.  Under "attention", √(2 Σ_h (1 − e^(−m_h|i − j|))), a mixture of ranges, they do.
    """

    family: ClassVar[str] = "alibi"
    own_slopes: tuple[float, ...] = field(default=(), metadata={"option": "slopes"})
    bias_max: float = 8.0
    form: str = "distance"

    def __post_init__(self) -> None:
        if self.own_slopes:
            object.__setattr__(self, "heads", len(self.own_slopes))
        super().__post_init__()
        if self.form not in ("distance", "keys"):
            raise PosgeomError(f"form {self.form!r} is not known; use distance or keys")
        if min(self.own_slopes, default=1) < 0 or not self.bias_max > 0:
            raise PosgeomError("alibi came with slopes or bias_max below 0; give positive numbers")

    @property
    def slopes(self) -> FloatArray:
        """m_h of all heads: (heads,)."""
        if self.own_slopes:
            return np.array(self.own_slopes, dtype=np.float64)
        return alibi_slopes(self.heads, self.bias_max)

    def biases(self, heads: NDArray[np.int64], offsets: FloatArray) -> FloatArray:
        """−m_h |i − j|: (heads, m).  Symmetric."""
        return -np.outer(self.slopes[heads], np.abs(offsets))

    def bias(self, head: int, q_positions: ArrayLike, k_positions: ArrayLike) -> FloatArray:
        """−m_h |i − j| for queries (n,) and keys (m,): (n, m); in the form of keys m_h·j."""
        if self.form == "distance":
            return super().bias(head, q_positions, k_positions)
        offsets = offsets_of(q_positions, k_positions)
        values = self.slopes[self.checked_head(head)] * as_positions(k_positions)
        return self.masked(np.broadcast_to(values, offsets.shape).astype(np.float64), offsets)


def alibi_slopes(heads: int, bias_max: float = 8.0) -> FloatArray:
    """m_h = 2^(−8h/H), h = 1..H, for H a power of two.

    Otherwise the slopes of the next lower power of two, then every other one of twice that:
    what the published code does and the models in use were trained with.
    """
    power = 1 << (heads.bit_length() - 1)
    slopes = 2.0 ** (-bias_max * np.arange(1, power + 1) / power)
    between = 2.0 ** (-bias_max * np.arange(1, 2 * power + 1, 2) / (2 * power))
    return np.concatenate([slopes, between[: heads - power]])


def per_head(name: str, values: Any, heads: int) -> FloatArray:
    """One value for each head, from one for all or from as many: (heads,)."""
    x = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if len(x) not in (1, heads):
        raise PosgeomError(f"{name} came with {len(x)} values for {heads} heads; give 1 or {heads}")
    return np.broadcast_to(x, (heads,)).copy()
