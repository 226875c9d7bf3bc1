"""A Transformer's forward pass in NumPy: as much of it as a theorem on positions needs."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posgeom.encodings import BiasEncoding, Encoding, Rotary, Shaw, TableEncoding, XPos

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Layer:
    """The weights of one layer: query, key, value, output (d, d); up (d, m), down (m, d)."""

    query: FloatArray = field(repr=False)
    key: FloatArray = field(repr=False)
    value: FloatArray = field(repr=False)
    output: FloatArray = field(repr=False)
    up: FloatArray = field(repr=False)
    down: FloatArray = field(repr=False)


@dataclass(frozen=True, eq=False)
class Transformer:
    """Layers of attention and a ReLU network, without biases.

    pre_norm    normalise what a sublayer reads: X + f(LN X); else what it leaves: LN(X + f(X))
    projection  (m, d) takes positional codes of m ≠ d numbers to the width, see embedded
    """

    layers: tuple[Layer, ...] = field(repr=False)
    heads: int
    pre_norm: bool
    projection: FloatArray = field(repr=False)

    def __call__(
        self, X: FloatArray, encoding: Encoding, positions: ArrayLike, *, causal: bool = False
    ) -> FloatArray:
        """The vectors (n, d) that tokens X (n, d) at the positions become, in float64."""
        X = self.embedded(X, encoding, positions)
        for layer in self.layers:
            if self.pre_norm:
                X = X + attention(layer, normalised(X), self.heads, encoding, positions, causal)
                X = X + network(layer, normalised(X))
            else:
                X = normalised(X + attention(layer, X, self.heads, encoding, positions, causal))
                X = normalised(X + network(layer, X))
        return X

    def embedded(self, X: FloatArray, encoding: Encoding, positions: ArrayLike) -> FloatArray:
        """X + PE for an encoding that is a table; X for all others, which act in attention."""
        if not isinstance(encoding, TableEncoding):
            return X
        codes = encoding.table(positions)
        width = codes.shape[1]
        return X + (codes if width == X.shape[1] else codes @ self.projection[:width])


def random_transformer(
    depth: int, heads: int, dim: int, rng: np.random.Generator, *, pre_norm: bool, codes: int = 0
) -> Transformer:
    """Weights W ~ N(0, 1/rows); codes is the largest width that `embedded` has to project."""

    def weights(rows: int, columns: int) -> FloatArray:
        return rng.standard_normal((rows, columns)) / np.sqrt(rows)

    layers = tuple(
        Layer(
            query=weights(dim, dim),
            key=weights(dim, dim),
            value=weights(dim, dim),
            output=weights(dim, dim),
            up=weights(dim, 4 * dim),
            down=weights(4 * dim, dim),
        )
        for _ in range(depth)
    )
    projection = rng.standard_normal((codes, dim)) / np.sqrt(max(1, codes))
    return Transformer(layers, heads, pre_norm, projection)


def attention(
    layer: Layer,
    X: FloatArray,
    heads: int,
    encoding: Encoding,
    positions: ArrayLike,
    causal: bool,
) -> FloatArray:
    """Σ_h softmax(S_h) V_h W_o, X: (n, d).  Vaswani et al. (2017), Eq. 1."""
    n, d = X.shape
    Q, K, V = (
        (X @ W).reshape(n, heads, d // heads).swapaxes(0, 1)
        for W in (layer.query, layer.key, layer.value)
    )
    S = logits(Q, K, encoding, positions)
    if causal:
        S = np.where(np.tri(n, dtype=bool), S, -np.inf)
    A = np.exp(S - S.max(axis=-1, keepdims=True))
    A /= A.sum(axis=-1, keepdims=True)
    return (A @ V).swapaxes(0, 1).reshape(n, d) @ layer.output


def logits(Q: FloatArray, K: FloatArray, encoding: Encoding, positions: ArrayLike) -> FloatArray:
    """S = q kᵀ/√d_h with what rotary, relative and bias encodings do to it, (heads, n, n).

    Q, K: (heads, n, d_h).
    """
    if isinstance(encoding, XPos):
        Q = encoding.rotate_scaled(Q, positions, key=False)
        K = encoding.rotate_scaled(K, positions, key=True)
    elif isinstance(encoding, Rotary):
        Q, K = encoding.rotate(Q, positions), encoding.rotate(K, positions)
    S = Q @ K.swapaxes(1, 2)
    if isinstance(encoding, Shaw):
        S = S + np.stack([encoding.bias(q, positions, positions) for q in Q])
    S = S / np.sqrt(Q.shape[-1])
    if isinstance(encoding, BiasEncoding):
        S = S + np.stack([encoding.bias(h, positions, positions) for h in range(len(Q))])
    return S


def network(layer: Layer, X: FloatArray) -> FloatArray:
    """max(X W_up, 0) W_down, position by position."""
    return np.maximum(X @ layer.up, 0) @ layer.down


def normalised(X: FloatArray) -> FloatArray:
    """(x − mean)/√(variance + 1e-5) of each row.  Ba et al. (2016), without gain and bias."""
    X = X - X.mean(axis=1, keepdims=True)
    return X / np.sqrt((X**2).mean(axis=1, keepdims=True) + 1e-5)
