"""Biases that are a formula of the offset: KERPLE, Sandwich, FIRE."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posgeom.encodings.base import BYTES, Cost, as_positions
from posgeom.encodings.bias import BiasEncoding, offsets_of, per_head, squares_of
from posgeom.encodings.table import frequencies
from posgeom.encodings.weights import read_tensors
from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Kerple(BiasEncoding):
    """Bias −r1·ln(1 + r2|i − j|), or −r1·|i − j|^r2.  Chi et al. (2022), KERPLE.

    kind    "log", or "power" with 0 < r2 ≤ 2 (r2 = 1 is ALiBi)
    r1, r2  learned, one for all heads or as many as heads, separated by ;.  The default, 1 and
            1, is no model's

    Both are conditionally positive definite, so the kernel reading is a Euclidean distance.
    """

    family: ClassVar[str] = "kerple"
    heads: int = 1
    kind: str = "log"
    r1: tuple[float, ...] = (1.0,)
    r2: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if self.heads == 1:
            object.__setattr__(self, "heads", max(len(self.r1), len(self.r2)))
        super().__post_init__()
        if self.kind not in ("log", "power"):
            raise PosgeomError(f"kind {self.kind!r} is not known; use log or power")
        r1, r2 = per_head("r1", self.r1, self.heads), per_head("r2", self.r2, self.heads)
        if min(r1.min(), r2.min()) <= 0 or (self.kind == "power" and r2.max() > 2):
            raise PosgeomError(
                "kerple came with r1 or r2 out of range; r1 > 0, 0 < r2 (power: ≤ 2)"
            )

    @property
    def n_parameters(self) -> int:
        """Two a head."""
        return 2 * self.heads

    @property
    def note(self) -> str:
        """That r1 and r2 are not a model's, where they are the default."""
        return "r1 = r2 = 1, no model's" if self.r1 == self.r2 == (1.0,) else ""

    def biases(self, heads: NDArray[np.int64], offsets: FloatArray) -> FloatArray:
        """The formula at offsets (m,): (heads, m).  Symmetric."""
        r1 = per_head("r1", self.r1, self.heads)[heads, None]
        r2 = per_head("r2", self.r2, self.heads)[heads, None]
        t = np.abs(offsets)[None, :]
        return -r1 * (np.log1p(r2 * t) if self.kind == "log" else t**r2)

    def _operations(self) -> int:
        """A product, a sum, a logarithm, a product; or a power and a product."""
        return 4 if self.kind == "log" else 2


@dataclass(frozen=True, kw_only=True)
class Sandwich(BiasEncoding):
    """Bias (Σ_k cos((i − j)θ_k) − d̄/2)/c_h, c_h = 8h/H, h = 1..H.  Chi et al. (2023).

    The inner products of sinusoids of width d̄ = dim, θ_k = 10,000^(−2k/d̄), d̄/2 of them from
    k = first on, compressed by the head's c_h; nothing is learned.  The sinusoids of Vaswani et
    al. (2017) begin at k = 0, ports that write the sum from 1 to d̄/2 with first=1.  d̄/2 is one
    constant for all logits: it sets the bias of a token on itself to 0 and moves no softmax and
    no distance.
    """

    family: ClassVar[str] = "sandwich"
    dim: int = 128
    first: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first not in (0, 1):
            raise PosgeomError(f"sandwich came with first={self.first}; the sum starts at 0 or 1")
        if self.dim < 2 or self.dim % 2:
            raise PosgeomError(f"sandwich came with dim={self.dim}; give an even number")

    @property
    def ratios(self) -> FloatArray:
        """c_h of all heads: (heads,)."""
        return 8 * np.arange(1, self.heads + 1) / self.heads

    def biases(self, heads: NDArray[np.int64], offsets: FloatArray) -> FloatArray:
        """Σ_k (cos(tθ_k) − 1)/c_h at offsets (m,): (heads, m).  Symmetric, 0 at 0."""
        θ = frequencies(self.dim, 10_000) * 10_000.0 ** (-2 * self.first / self.dim)
        below = -2 * (np.sin(np.outer(offsets, θ / 2)) ** 2).sum(axis=1)
        return below[None, :] / self.ratios[heads, None]

    def cost(self, dim: int, heads: int, length: int) -> Cost:
        """A look-up and an addition for each logit; the bias of each offset and head is kept."""
        return Cost(0, 2 * heads * length, BYTES * heads * length, self._past_end())


@dataclass(frozen=True, kw_only=True)
class Fire(BiasEncoding):
    """Bias f_h(ψ(i − j)/ψ(max(L, i))), ψ(x) = ln(1 + c·x), for keys j ≤ i.  Li et al. (2024).

    c, threshold   learned; by default 0.1 and 512, where the published code starts
    mlp            PATH of f's weights, a .npz or .safetensors file with `0.weight` (width, 1),
                   `0.bias`, `2.weight` (heads, width) and `2.bias`, a ReLU between.  The default
                   is no model's: f_h(x) = −x in all heads

    The published code adds 10⁻⁶ to the quotient's denominator, which no digit here shows.  The
    offset is measured against the query's own position, so this is not shift-invariant past
    the threshold.  Keys ahead, which FIRE never sees, have |i − j|; distances take the later of
    two positions as the query.
    """

    family: ClassVar[str] = "fire"
    heads: int = 1
    c: float = 0.1
    threshold: float = 512.0
    mlp: str = ""
    layers: tuple[FloatArray, ...] = field(
        default=(), repr=False, metadata={"option": None, "array": True}
    )

    def __post_init__(self) -> None:
        if not (self.c > 0 and self.threshold > 0):
            raise PosgeomError(
                f"fire came with c={self.c:g}, threshold={self.threshold:g}; both must be positive"
            )
        if self.mlp:
            names = ("0.weight", "0.bias", "2.weight", "2.bias")
            object.__setattr__(self, "layers", read_tensors(self.mlp, names))
        if self.layers:
            shapes = [x.shape for x in self.layers]
            width, heads = len(self.layers[0]), len(self.layers[-1])
            if shapes != [(width, 1), (width,), (heads, width), (heads,)]:
                raise PosgeomError(
                    f"fire came with layers of shapes {shapes}; give (width, 1), (width,), "
                    "(heads, width), (heads,)"
                )
            object.__setattr__(self, "heads", heads)
        super().__post_init__()

    @property
    def n_parameters(self) -> int:
        """c, the threshold and f's weights."""
        return 2 + sum(x.size for x in self.layers)

    @property
    def shift_invariant(self) -> bool:
        """False: the same offset means less to a later query."""
        return False

    @property
    def note(self) -> str:
        """That f is not a model's, where none was given."""
        return "" if self.layers else "no weights were given: f(x) = −x stands in for them"

    def biases(self, heads: NDArray[np.int64], offsets: FloatArray) -> FloatArray:
        """The bias of a query below the threshold: (heads, m)."""
        return self._f(heads, self._ψ(np.abs(offsets)) / self._ψ(np.array(self.threshold)))

    def bias(self, head: int, q_positions: ArrayLike, k_positions: ArrayLike) -> FloatArray:
        """f_h(ψ(|i − j|)/ψ(max(L, i))) for queries (n,) and keys (m,): (n, m)."""
        offsets = offsets_of(q_positions, k_positions)
        q = as_positions(q_positions).astype(np.float64)[:, None]
        x = self._ψ(np.abs(offsets)) / self._ψ(np.maximum(self.threshold, q))
        values = self._f(np.array([self.checked_head(head)]), x.ravel()).reshape(x.shape)
        return self.masked(values, offsets)

    def distances(self, positions: ArrayLike) -> FloatArray:
        """(n, n): b(i, i) − b(i, j), i the later one, under the reading."""
        x = as_positions(positions).astype(np.float64)
        offsets = np.abs(x[:, None] - x[None, :])
        later = np.maximum(np.maximum(x[:, None], x[None, :]), self.threshold)
        share = (self._ψ(offsets) / self._ψ(later)).ravel()
        squares = np.zeros(len(share))
        for h in self.chosen[:, None]:
            fall = self._f(h, np.zeros(1)) - self._f(h, share)
            squares += squares_of(fall, self.reading)
        return np.sqrt(np.maximum(squares, 0)).reshape(offsets.shape)

    def cost(self, dim: int, heads: int, length: int) -> Cost:
        """ψ and f's first layer once for each key, f's last one for each logit, and the addition.

        Counted as for the other biases.  The stand-in for f changes the sign.
        """
        hidden = self.layers[0].size if self.layers else 0
        last = hidden + 1 if self.layers else 0  # parameters of a head
        ψ, first = 4, 3 * hidden  # product, sum, logarithm, quotient; product, sum, ReLU
        each = 2 * hidden if self.layers else 1
        n = 2 + 2 * hidden + last * heads
        flops = (ψ + first) * length + (each + 1) * heads * length
        return Cost(n, flops, BYTES * n, self._past_end())

    def _ψ(self, x: FloatArray) -> FloatArray:
        return np.log1p(self.c * x)

    def _f(self, heads: NDArray[np.int64], x: FloatArray) -> FloatArray:
        if not self.layers:
            return np.repeat(-x[None, :], len(heads), axis=0)
        w1, b1, w2, b2 = self.layers
        hidden = np.maximum(w1 @ x[None, :] + b1[:, None], 0)
        return w2[heads] @ hidden + b2[heads, None]
