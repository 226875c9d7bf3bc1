"""Theorem 4, separation: how far apart the rows of position tables are, and in which formats."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from posgeom.encodings import rounded

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]

FORMATS = ("fp32", "bf16", "fp16")


def separation_table(tables: Mapping[str, FloatArray], *, seeds: int = 10) -> "pd.DataFrame":
    """The closest two rows of each table (n, d), a row a table.

    least, i, j      min_{i<j} ‖p_i − p_j‖ and the positions where it is
    median, ratio    of all pairs; least / median, which no scale changes
    random, …_sd     the ratio of tables of independent normal rows of the same shape, mean and
                     standard deviation over seeds: what a table has before it is trained
    equal_FORMAT     rows that equal an earlier one once rounded to fp32, bf16 and fp16
    ratio_bf16       least / median of the rounded rows
    """
    import pandas as pd

    chance = {shape: random_ratios(shape, seeds) for shape in {T.shape for T in tables.values()}}
    return pd.DataFrame([{"table": name} | _row(T, chance[T.shape]) for name, T in tables.items()])


def random_ratios(shape: tuple[int, ...], seeds: int) -> FloatArray:
    """Least over median distance of independent normal rows of the shape (n, d), (seeds,)."""
    rngs = (np.random.default_rng(s) for s in range(seeds))
    return np.array([_ratio(pdist(rng.standard_normal(shape))) for rng in rngs])


def _row(T: FloatArray, random: FloatArray) -> dict[str, Any]:
    n, d = T.shape
    i, j = np.triu_indices(n, 1)
    δ = pdist(T)
    closest = int((δ <= δ.min() * (1 + 1e-9)).argmax())  # the first of those that rounding parts
    row: dict[str, Any] = {
        "positions": n,
        "dim": d,
        "least": δ[closest],
        "i": int(i[closest]),
        "j": int(j[closest]),
        "median": np.median(δ),
        "ratio": _ratio(δ),
        "random": random.mean(),
        "random_sd": random.std(ddof=1) if len(random) > 1 else np.nan,
        "seeds": len(random),
    }
    row |= {f"equal_{form}": equal_rows(rounded(T, form)) for form in FORMATS}
    return row | {"ratio_bf16": _ratio(pdist(rounded(T, "bf16").astype(np.float64)))}


def equal_rows(T: NDArray[np.floating]) -> int:
    """How many rows (n, d) equal an earlier one; −0 is 0."""
    return len(T) - len(np.unique(T + 0.0, axis=0))


def _ratio(δ: FloatArray) -> float:
    """Least over median distance; 0 where all are 0."""
    median = np.median(δ)
    return float(δ.min() / median) if median > 0 else 0.0
