"""Counts cut down to equal numbers of tokens: rarefaction, as ecologists do."""

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from posgeom.counts import PositionCounts, canonical
from posgeom.errors import PosgeomError

MOST = 10**9  # tokens of a position that NumPy's hypergeometric draws take


def thinned(counts: PositionCounts, seed: int = 0) -> PositionCounts:
    """The counts with as many tokens at each position as the poorest position has.

    The expectation of √(X/N) depends on N; where all N are equal, that alone cannot look like a
    distance.  Tokens are drawn without replacement over all folds (hypergeometric), equal seeds
    draw equal ones.  Raises PosgeomError for a position of a billion tokens or more.
    Sanders (1968); Hurlbert (1971).
    """
    C, n, totals = counts.counts, counts.n_positions, counts.totals
    if totals.max(initial=0) >= MOST:
        raise PosgeomError(
            f"position {totals.argmax()} has {totals.max():,} tokens, thinning takes fewer than "
            f"{MOST:,}; use --estimator debiased"
        )
    rng = np.random.default_rng(seed)
    data = C.data.copy()
    position = np.repeat(np.arange(C.shape[0]) % n, np.diff(C.indptr))
    ends = np.cumsum(np.bincount(position, minlength=n))
    for entries in np.split(np.argsort(position, kind="stable"), ends[:-1]):
        data[entries] = rng.multivariate_hypergeometric(
            data[entries], int(totals.min()), method="marginals"
        )
    return replace(counts, counts=canonical(csr_array((data, C.indices, C.indptr), C.shape)))
