"""Counts of a corpus whose token distribution drifts along its positions, for the benchmarks."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from posgeom import PositionCounts

DRIFT = 0.35  # share of the tokens whose law changes


def drifting_counts(n: int, vocabulary: int, tokens: float, seed: int = 0) -> PositionCounts:
    """Zipf laws in three orders: one throughout, beside it a passage from the second to the third.

    tokens: at the first position, falling to half of them at the last, as documents end.
    """
    rng = np.random.default_rng(seed)
    zipf = 1 / np.arange(1.0, vocabulary + 1)
    laws = np.stack([zipf, rng.permutation(zipf), rng.permutation(zipf)]) / zipf.sum()
    rows: list[NDArray[np.int64]] = []
    columns = []
    for at in np.linspace(0, 1, n):
        share = np.cos(np.pi * at / 2) ** 2
        law = np.array([1 - DRIFT, DRIFT * share, DRIFT * (1 - share)]) @ laws
        drawn = rng.poisson(tokens * (1 - at / 2) * law)
        columns.append(np.flatnonzero(drawn).astype(np.int32))
        rows.append(drawn[columns[-1]])
    begins = np.cumsum([0, *map(len, rows)])
    counts = csr_array(
        (np.concatenate(rows), np.concatenate(columns), begins), (n, vocabulary), dtype=np.int64
    )
    return PositionCounts(counts=counts, n_folds=1, documents=np.array([int(tokens)]))
