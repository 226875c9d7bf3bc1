"""Synthetic corpora of three positional distributions, many kinds of them, each under Eq. 4."""

from collections.abc import Collection
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from posgeom.distances import hellinger
from posgeom.encodings import make_encoding
from posgeom.inference import condensed, raw_stress_of
from posgeom.mds import classical_mds
from posgeom.paper.claims import FIGURES
from posgeom.paper.scales import SCALES, measures, rescaled
from posgeom.synthetic import SyntheticCorpus

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]

SHAPES = {
    "blocks": "each third of the positions draws from one of the three",
    "bumps 0.1": "each is strongest at its place (0, ½ and 1 of the length) and falls off as a "
    "bell of width 0.1",
    "bumps 0.2": "the same, of width 0.2",
    "bumps 0.4": "the same, of width 0.4",
    "mixture": "a straight passage from the first over the second to the third",
}
LAWS = {
    "zipf": "a Zipf law in a random order",
    "dirichlet 1": "a draw from the flat Dirichlet distribution",
    "dirichlet 0.1": "a draw from the Dirichlet distribution of parameter 0.1",
    "disjoint": "a third of the vocabulary, evenly, shared with no other",
}
VOCABULARIES = (60, 300, 1_000)
DOCUMENTS = (0, 200, 1_000, 5_000)  # 0: the distributions themselves, no sample
DISTANCES = {"chord": "D", "chord/√2": "D/√2", "geodesic": "4 arcsin(D/2)"}
MDS = ("mds 1", "mds 2", "mds 3", "mds all")  # ranks


def weights(shape: str, n: int) -> FloatArray:
    """(n, 3) shares of the three distributions at each position; rows sum to 1."""
    name, _, width = shape.partition(" ")
    if not width:
        return SyntheticCorpus(name, positions=n).weights
    x = np.arange(n)[:, None] / (n - 1)
    W = np.exp(-((x - np.array([0, 0.5, 1])) ** 2) / (2 * float(width) ** 2))
    return np.asarray(W / W.sum(axis=1, keepdims=True))


def bases(law: str, vocabulary: int, rng: np.random.Generator) -> FloatArray:
    """(3, V) distributions."""
    name, _, parameter = law.partition(" ")
    if name == "disjoint":
        L = (np.arange(vocabulary) * 3 // vocabulary == np.arange(3)[:, None]).astype(np.float64)
    elif name == "zipf":
        L = np.stack([rng.permutation(1 / np.arange(1.0, vocabulary + 1)) for _ in range(3)])
    else:
        L = rng.dirichlet(np.full(vocabulary, float(parameter)), 3)
    return L / L.sum(axis=1, keepdims=True)


def as_distance(chord: FloatArray, distance: str) -> FloatArray:
    """Hellinger chords as one of DISTANCES."""
    if distance == "chord":
        return chord
    return chord / np.sqrt(2) if distance == "chord/√2" else 4 * np.arcsin(chord / 2)


def sweep(
    n: int, dim: int, seeds: int, vocabularies: Collection[int] = VOCABULARIES
) -> "pd.DataFrame":
    """A row for each corpus and distance: means over seeds of the stress of Eq. 4.

    Columns: shape, law, vocabulary, documents, distance; the sinusoid at each of SCALES; MDS of
    rank 1, 2, 3 and all, at its own scale; rope and alibi at the scale "unit" ("raw" for ALiBi),
    and random rows.
    """
    import pandas as pd

    sinusoid = measures(rescaled(make_encoding("sinusoidal", dim=dim), n))
    others = {
        "rope": measures(rescaled(make_encoding("rope", dim=dim), n))["unit"],
        "alibi": measures(rescaled(make_encoding("alibi"), n))["raw"],
        "random": measures(rescaled(make_encoding("random", dim=dim), n))["unit"],
    }
    corpora = [
        cell
        for cell in product(SHAPES, LAWS, vocabularies, DOCUMENTS)
        if cell[1] != "disjoint" or cell[3] or cell[2] == min(vocabularies)
    ]
    rows = []
    for shape, law, vocabulary, documents in corpora:
        P = [_profiles(shape, law, vocabulary, documents, n, seed) for seed in range(seeds)]
        chords = [hellinger(p) for p in P]
        of_chord, of_geodesic = (
            dict(zip(MDS, np.mean([_mds(as_distance(c, d)) for c in chords], axis=0), strict=True))
            for d in ("chord", "geodesic")
        )
        for distance in DISTANCES:
            D = [as_distance(chord, distance) for chord in chords]
            s = np.stack([condensed(d) ** 2 for d in D])
            row: dict[str, Any] = {
                "shape": shape,
                "law": law,
                "vocabulary": vocabulary,
                "documents": documents,
                "distance": distance,
            }
            row |= {scale: sinusoid[scale](s).mean() for scale in SCALES}
            # the points of chord/√2 are those of the chord, over √2
            row |= of_geodesic if distance == "geodesic" else of_chord
            row |= {name: measure(s).mean() for name, measure in others.items()}
            rows.append(row)
    return pd.DataFrame(rows)


def _profiles(
    shape: str, law: str, vocabulary: int, documents: int, n: int, seed: int
) -> FloatArray:
    """(n, V) distributions, or their frequencies in a sample of so many documents."""
    rng = np.random.default_rng([seed, vocabulary])
    P = weights(shape, n) @ bases(law, vocabulary, rng)
    return P if not documents else rng.multinomial(documents, P) / documents


def _mds(D: FloatArray) -> list[float]:
    """Raw stress of classical MDS of rank 1, 2, 3 and all."""
    X = classical_mds(D).coordinates
    s = condensed(D) ** 2
    return [float(raw_stress_of(pdist(X[:, :r]))(s)) for r in (1, 2, 3, X.shape[1])]


def nearest(table: "pd.DataFrame", most: int) -> "pd.DataFrame":
    """The cells of a sweep that come nearest to both of the paper's figures, best first.

    A row a corpus, distance and scale of the sinusoid, with the rank of MDS that comes nearest.
    off: the larger of the two ratios to the paper's figures, 1 for none.
    """
    long = table.melt(
        id_vars=[*table.columns[:5], *MDS],
        value_vars=list(SCALES),
        var_name="scale",
        value_name="sinusoidal",
    )
    ours = long[list(MDS)].clip(lower=1e-12).to_numpy()
    miss = np.abs(np.log(ours / FIGURES["synthetic-mds"].value))
    best = miss.argmin(axis=1)
    long["rank"] = np.array([name.removeprefix("mds ") for name in MDS])[best]
    long["mds"] = ours[np.arange(len(ours)), best]
    other = np.abs(np.log(long["sinusoidal"] / FIGURES["synthetic-sinusoidal"].value))
    long["off"] = np.exp(np.maximum(miss.min(axis=1), other))
    long["saves"] = 1 - long["mds 3"] / long["sinusoidal"]
    return long.sort_values("off", kind="stable").head(most)
