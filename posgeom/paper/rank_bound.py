"""Remark 8: rank(B) ≤ n − 1, where equality fails, and what a full rank is worth."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from posgeom.counts import PositionCounts, canonical
from posgeom.fold_gram import fold_gram
from posgeom.geometry import Geometry, estimate_geometry, only, true_geometry
from posgeom.mds import classical_mds, positive_rank
from posgeom.rank import above_noise, participation_ratio
from posgeom.stationarity import stationarity_test

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]

TYPES = 200  # token types of the constructed corpora
THRESHOLD = "10·n·ε·max|λ|"  # of posgeom.mds.positive_rank: what is below is rounding


def constructed(n: int = 32, seed: int = 0) -> dict[str, tuple[FloatArray, int]]:
    """Known distributions (n, V) and the rank of B that follows from how they were made.

    √mu_i are points on the unit sphere of R^V, B the Gram matrix about their centroid: rank(B)
    is the dimension of the flat that they span, at most min(n − 1, V), and m − 1 at most where
    only m of them differ.
    """
    rng = np.random.default_rng(seed)
    each = rng.dirichlet(np.ones(TYPES), n)
    blocks = np.repeat(rng.dirichlet(np.ones(TYPES), 3), [n // 3, n // 3, n - 2 * (n // 3)], axis=0)
    x = np.linspace(-1, 1, n)[:, None]
    weights = np.exp(-((x - np.array([-0.8, 0.0, 0.8])) ** 2) / 0.18)
    weights /= weights.sum(axis=1, keepdims=True)
    bases = np.kron(np.eye(3), np.ones(TYPES // 3) / (TYPES // 3))
    return {
        "all positions differ": (each, n - 1),
        "a quarter of them differ, the others repeat": (
            np.resize(each[: n // 4], each.shape),
            n // 4 - 1,
        ),
        "three blocks": (blocks, 2),
        "smooth mixtures of three, no common tokens": (weights @ bases, 3),
        "four letters": (rng.dirichlet(np.ones(4), n), 4),
        "two letters": (rng.dirichlet(np.ones(2), n), 2),
        "stationary": (np.repeat(each[:1], n, axis=0), 0),
    }


def constructed_ranks(n: int = 32, seed: int = 0) -> "pd.DataFrame":
    """The rank of B for each constructed case beside what theory says of it."""
    import pandas as pd

    rows = []
    for case, (P, expected) in constructed(n, seed).items():
        found = classical_mds(true_geometry(P).squared, squared=True)
        geodesic = classical_mds(true_geometry(P, metric="fisher-rao").distances)
        rows.append(
            {
                "case": case,
                "positions": n,
                "vocabulary": P.shape[1],
                "bound": n - 1,
                "expected": expected,
                "rank": found.rank,
                "largest": found.eigenvalues[0],
                "last_kept": found.eigenvalues[found.rank - 1] if found.rank else 0.0,
                "first_dropped": np.abs(found.eigenvalues[found.rank :]).max(),
                "geodesic_rank": geodesic.rank,
                "geodesic_negative": int(
                    (geodesic.eigenvalues < -1e-9 * np.abs(geodesic.eigenvalues).max()).sum()
                ),
            }
        )
    return pd.DataFrame(rows)


def without_structure(counts: PositionCounts, seed: int = 0) -> PositionCounts:
    """Counts of a corpus of the same size whose positions all have one distribution.

    Fold k has as many tokens at position i as before, drawn from the pooled frequencies.
    """
    rng = np.random.default_rng(seed)
    pooled = np.asarray(counts.counts.sum(axis=0), dtype=np.float64)
    used = np.flatnonzero(pooled)
    p = pooled[used] / pooled.sum()
    drawn = []
    for N in counts.fold_totals.ravel():
        row = csr_array(rng.multinomial(N, p)[None, :])
        drawn.append(csr_array((row.data, used[row.indices], row.indptr), (1, counts.vocab_size)))
    return PositionCounts(
        counts=canonical(vstack(drawn)),
        n_folds=counts.n_folds,
        documents=counts.documents,
        provenance=counts.provenance,
    )


def corpus_ranks(
    corpora: Sequence[tuple[str, PositionCounts, Geometry]], *, seed: int = 0
) -> tuple["pd.DataFrame", dict[str, tuple[FloatArray, FloatArray]]]:
    """Ranks of real corpora, each beside one of its size without structure.

    corpora: (name, counts, their debiased geometry).

    bound_types        min(n − 1, number of token types)
    plugin             rank of B of the plug-in distances, above rounding
    tested             dimensions that the test of stationarity finds
    above_noise        eigenvalues of the debiased B above its most negative one
    participation_…    (Σλ)²/Σλ² of the plug-in and of the debiased B
    noise_plugin, noise_tested   plugin and tested of the corpus without structure
    noise_trace        its Σλ as a share of the plug-in Σλ of the corpus

    Also the plug-in eigenvalues by corpus: its own, and those without structure.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    spectra = {}
    for name, counts, debiased in corpora:
        kept = only(counts, debiased.index)
        none = without_structure(kept, seed)
        own_λ, none_λ = (_spectrum(estimate_geometry(c, "plugin")) for c in (kept, none))
        λ, n = _spectrum(debiased), debiased.n_positions
        types = int((np.asarray(kept.counts.sum(axis=0)) > 0).sum())
        rows.append(
            {
                "corpus": name,
                "positions": n,
                "types": types,
                "bound": n - 1,
                "bound_types": min(n - 1, types),
                "plugin": positive_rank(own_λ, n),
                "tested": debiased.stationarity.significant if debiased.stationarity else np.nan,
                "above_noise": above_noise(λ),
                "participation_plugin": participation_ratio(own_λ),
                "participation_debiased": participation_ratio(λ),
                "noise_plugin": positive_rank(none_λ, n),
                "noise_tested": stationarity_test(fold_gram(none), seed=seed).significant,
                "noise_trace": none_λ.sum() / own_λ.sum(),
            }
        )
        spectra[name] = (own_λ, none_λ)
    return pd.DataFrame(rows), spectra


def _spectrum(geometry: Geometry) -> FloatArray:
    return classical_mds(geometry.squared, squared=True).eigenvalues
