"""Biases: T5's tables of buckets, which are weights, and slopes, which models compute."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from posgeom.encodings import Alibi, BiasEncoding, alibi_slopes, t5_bucket
from posgeom.encodings.t5 import TABLE_NAMES
from posgeom.errors import PosgeomError
from posgeom.transformers.scale import Scale, factor_to, spread

FloatArray = NDArray[np.float64]


def check_slopes(encoding: Alibi, own: Alibi, kind: str) -> tuple[str, ...]:
    """PosgeomError unless the slopes are those that the model computes from its heads."""
    computed = alibi_slopes(own.heads)
    if encoding.heads == own.heads and np.allclose(encoding.slopes, computed, rtol=1e-6, atol=0):
        return (f"{encoding.name} has the slopes that a {kind} of {own.heads} heads computes",)
    raise PosgeomError(
        f"a {kind} computes its slopes from its {own.heads} heads and reads none from its config, "
        f"so those of {encoding.name} cannot be carried; use posgeom.torch.AttentionBias, or "
        "another architecture"
    )


def replace_buckets(
    model: Any, encoding: BiasEncoding, scale: Scale, held: frozenset[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Fill all bucket tables of a model; their names and what to say of it, () where it has none.

    Softmax does not see a constant, so each head keeps the mean of its old numbers.
    """
    tables = {n: p for n, p in model.named_parameters() if n.endswith(TABLE_NAMES)}
    if stale := sorted(held & tables.keys()):
        raise PosgeomError(
            f"the optimizer holds {stale[0]} and moments of its old numbers; inject first, then "
            "make it"
        )
    new = {n: _new_numbers(model, n, p, encoding, scale) for n, p in tables.items()}
    said = []
    for name, (numbers, by) in new.items():
        with torch.no_grad():
            tables[name].copy_(torch.from_numpy(numbers))
        said.append(f"{name}: {encoding.name} × {by:.4g}, spread {spread(numbers):.4g}")
    return tuple(tables), tuple(said)


def _new_numbers(
    model: Any, name: str, parameter: torch.nn.Parameter, encoding: BiasEncoding, scale: Scale
) -> tuple[FloatArray, float]:
    """Numbers (buckets, heads) for one table, and the factor they were scaled by."""
    buckets, heads = parameter.shape
    if encoding.heads not in (1, heads):
        raise PosgeomError(
            f"{encoding.name} has {encoding.heads} heads, the model {heads}; design with "
            f"--heads {heads}, or a bias of one head"
        )
    distance = int(getattr(model.config, "relative_attention_max_distance", None) or 128)
    old = parameter.detach().cpu().double().numpy()
    b = bucket_means(encoding, buckets, distance, causal="decoder" in name)
    reached = np.isfinite(b[:, 0])
    b = np.broadcast_to(b, old.shape)[reached]
    by = factor_to(spread(old[reached]), spread(b), scale)
    numbers = old.copy()
    numbers[reached] = old[reached].mean(axis=0) + by * (b - b.mean(axis=0))
    return numbers, by


def bucket_means(
    encoding: BiasEncoding, buckets: int, max_distance: int, *, causal: bool
) -> FloatArray:
    """The mean bias of the offsets of each bucket, (buckets, heads); NaN where it has none.

    Offsets to twice max_distance, since the last bucket has no end; keys ahead alone where the
    table has both directions.  A causal encoding says nothing of keys ahead: those are as behind.
    """
    t = np.arange(0 if causal else -2 * max_distance, 2 * max_distance + 1, dtype=np.float64)
    at = t5_bucket(-t, not causal, buckets, max_distance)
    b = encoding.biases(np.arange(encoding.heads), np.abs(t) if encoding.causal else t)
    member = at[None, :] == np.arange(buckets)[:, None]
    with np.errstate(invalid="ignore"):
        return np.asarray(member @ b.T / member.sum(axis=1)[:, None])
