"""Theorem 1, necessity: without positions a Transformer cannot see the order of its tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posgeom.encodings import (
    FAMILIES,
    BiasEncoding,
    Encoding,
    NoPositions,
    Rotary,
    Shaw,
    make_encoding,
)
from posgeom.errors import PosgeomError
from posgeom.paper.transformer import random_transformer

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]

EQUIVARIANT = 1e-6  # what rounding may leave of an equality, relative to the vectors
ROWS = 3  # of the grid that two-dimensional encodings see
DIM = 32  # of the model


@dataclass(frozen=True)
class Setting:
    """One random model: its depth, heads, place of the normalisation, and seed."""

    depth: int
    heads: int
    pre_norm: bool
    seed: int


def settings(depths: Sequence[int], heads: Sequence[int], seeds: int) -> list[Setting]:
    """All combinations, pre-norm and post-norm."""
    return [Setting(*s) for s in product(depths, heads, (True, False), range(seeds))]


def necessity_table(
    specs: Sequence[str] = tuple(FAMILIES),
    *,
    depths: Sequence[int] = (1, 2, 4),
    heads: Sequence[int] = (1, 4),
    seeds: int = 3,
    permutations: int = 20,
    positions: int = 12,
) -> "pd.DataFrame":
    """How far random models are from f(πX) = πf(X), a row an encoding, and the mask alone.

    X: `positions` random tokens; π: random permutations of them, never the identity.  With
    ρ the root mean square of f(X), over all models and permutations:

    equivariance   max |f(πX) − πf(X)|/ρ: mean, standard deviation, least and largest
    pooling        max |mean f(πX) − mean f(X)|/ρ, the means over positions: mean, least, largest
    reversal       the largest of |mean f(πX) − mean f(X)|/ρ where π turns the order round

    Raises PosgeomError for a length that makes no grid.
    """
    import pandas as pd

    if positions % ROWS or positions < 2 * ROWS:
        raise PosgeomError(
            f"necessity came with positions={positions}; give a multiple of {ROWS} from "
            f"{2 * ROWS} on, which is a grid too"
        )
    models = settings(depths, heads, seeds)
    ways = [("none", False), ("none", True), *((s, False) for s in specs if s != "none")]
    return pd.DataFrame([_row(way, models, permutations, positions) for way in ways])


def _row(
    way: tuple[str, bool], models: Sequence[Setting], permutations: int, n: int
) -> dict[str, Any]:
    spec, causal = way
    breaks = [breaks_of(spec, causal, model, permutations, n) for model in models]
    equivariance, pooling = (np.concatenate([b[k] for b in breaks]) for k in (0, 1))
    reversal = max(b[2] for b in breaks)
    return {
        "encoding": f"{spec}, causal mask" if causal else spec,
        "kind": "mask" if causal else kind_of(encoding_for(spec, models[0].heads)),
        "models": len(models),
        "permutations": len(equivariance),
        "equivariance": equivariance.mean(),
        "equivariance_sd": equivariance.std(ddof=1),
        "equivariance_least": equivariance.min(),
        "equivariance_largest": equivariance.max(),
        "pooling": pooling.mean(),
        "pooling_least": pooling.min(),
        "pooling_largest": pooling.max(),
        "reversal": reversal,
    }


def breaks_of(
    spec: str, causal: bool, setting: Setting, permutations: int, n: int
) -> tuple[FloatArray, FloatArray, float]:
    """Of one model: equivariance and pooling by permutation (permutations,), and reversal."""
    rng = np.random.default_rng([setting.seed, setting.depth, setting.heads, setting.pre_norm])
    encoding = encoding_for(spec, setting.heads)
    p = np.arange(n)
    where = p if encoding.n_axes == 1 else np.column_stack(np.divmod(p, n // ROWS))
    if encoding.n_axes == 3:
        where = p  # text has one index for time, height and width
    model = random_transformer(
        setting.depth, setting.heads, DIM, rng, pre_norm=setting.pre_norm, codes=n
    )
    X = rng.standard_normal((n, DIM))
    Y = model(X, encoding, where, causal=causal)
    ρ = np.sqrt((Y**2).mean())

    def gaps(π: NDArray[np.int64]) -> tuple[float, float]:
        Z = model(X[π], encoding, where, causal=causal)
        return (
            float(np.abs(Z - Y[π]).max() / ρ),
            float(np.abs(Z.mean(axis=0) - Y.mean(axis=0)).max() / ρ),
        )

    every = np.array([gaps(π) for π in orders(n, permutations, rng)])
    return every[:, 0], every[:, 1], gaps(p[::-1])[1]


def orders(n: int, permutations: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Random permutations of n that move something."""
    drawn: list[NDArray[np.int64]] = []
    while len(drawn) < permutations:
        π = rng.permutation(n)
        if (π != np.arange(n)).any():
            drawn.append(π)
    return drawn


def encoding_for(spec: str, heads: int) -> Encoding:
    """The encoding of a spec for the model: width DIM for tables, a head's for all others."""
    encoding = make_encoding(spec, dim=DIM, heads=heads)
    if isinstance(encoding, Rotary | Shaw):
        return make_encoding(spec, dim=DIM // heads, heads=heads)
    return encoding


def kind_of(encoding: Encoding) -> str:
    """Where an encoding enters a model: table, rotary, bias, relative vectors, or nowhere."""
    if isinstance(encoding, NoPositions):
        return "none"
    if isinstance(encoding, Rotary):
        return "rotary"
    if isinstance(encoding, Shaw):
        return "relative vectors"
    return "bias" if isinstance(encoding, BiasEncoding) else "table"
