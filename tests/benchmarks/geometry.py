"""Distances, MDS and scores at 4,096 positions, beside scikit-learn's and SciPy's ways to them.

    OMP_NUM_THREADS=2 python tests/benchmarks/geometry.py [--positions N] [--out FOLDER]

Prints a Markdown table, and writes it to FOLDER/geometry.md.  All in one process, posgeom before,
between and after the other ways, which take some ten minutes; seconds of the clock on the wall and
of processor time: run it on a machine that is otherwise idle.
"""

import argparse
import os
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy
import sklearn
from drifting import drifting_counts
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.stats import rankdata
from sklearn.manifold import ClassicalMDS
from sklearn.metrics.pairwise import euclidean_distances

import posgeom
from posgeom import (
    Geometry,
    PositionCounts,
    classical_mds,
    estimate_geometry,
    make_encoding,
    score_encodings,
)
from posgeom.geometry import position_profiles
from posgeom.mds import MDSResult
from posgeom.root_profiles import threads

FloatArray = NDArray[np.float64]

V, TOKENS, RANK = 30_000, 21_300, 16
SPECS = (
    "sinusoidal",
    "rope:base=500000",
    "alibi",
    "alibi:reading=kernel",
    "t5",
    "kerple",
    "random",
    "binary",
)
ROWS = 512  # of a matrix that NumPy sorts at a time
PARTS = ("distances", f"MDS of rank {RANK}", f"scores of {len(SPECS)} encodings")


class Clock:
    """Seconds of the wall and of the processors, by way and part, of each run."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], list[tuple[float, float]]] = {}

    def of(self, way: str, part: str, job: Callable[[], Any]) -> Any:
        """What a job returns; its seconds are kept."""
        wall, processor = time.perf_counter(), time.process_time()
        result = job()
        took = time.perf_counter() - wall, time.process_time() - processor
        self.seconds.setdefault((way, part), []).append(took)
        print(f"{way}, {part}: {took[0]:.1f} s, {took[1]:.1f} s of processors", flush=True)
        return result

    def part(self, way: str, part: str) -> FloatArray:
        """Both seconds of a part, in the median run."""
        return np.median(self.seconds[way, part], axis=0)

    def totals(self, way: str) -> FloatArray:
        """(runs, 2) both seconds of a way, over all parts."""
        return np.array([self.seconds[way, part] for part in PARTS]).sum(axis=0)


def dense_distances(P: csr_array) -> FloatArray:
    """scikit-learn's, of the root profiles as a dense matrix."""
    return euclidean_distances(np.sqrt(P.toarray()))


def sparse_distances(P: csr_array) -> FloatArray:
    """√(2 − 2 S Sᵀ) by SciPy's sparse product."""
    S = P.sqrt()
    return np.sqrt(np.maximum(2 - 2 * (S @ S.T).toarray(), 0))


def numpy_scores(D: FloatArray, matrices: list[FloatArray]) -> list[tuple[float, ...]]:
    """Stress, raw stress, scale, Spearman, violations and separation of each encoding's δ."""
    i, j = np.triu_indices(len(D), 1)
    d = D[i, j]
    ranks = rankdata(d)
    rows = []
    for matrix in matrices:
        δ = matrix[i, j]
        α = δ @ d / (δ @ δ)
        rows.append(
            (
                ((α * δ - d) ** 2).sum() / (d @ d),
                ((δ - d) ** 2).sum() / (d @ d),
                α,
                np.corrcoef(rankdata(δ), ranks)[0, 1],
                numpy_violations(matrix, D),
                δ.min(),
            )
        )
    return rows


def numpy_violations(matrix: FloatArray, D: FloatArray) -> float:
    """Share of triples in the wrong order, row by row in order of D, level by level of δ's bits."""
    n = len(D)
    broken = ordered = 0
    for start in range(0, n, ROWS):
        rows = np.arange(start, min(start + ROWS, n))
        others = np.arange(n) != rows[:, None]
        e, d = (
            rankdata(M[rows][others].reshape(len(rows), -1), method="dense", axis=1).astype(int)
            for M in (matrix, D)
        )
        e = np.take_along_axis(e, np.lexsort((e, d), axis=1), axis=1)
        for bit in reversed(range(int(e.max()).bit_length())):
            prefix = e >> (bit + 1)
            order = np.argsort(prefix, axis=1, kind="stable")
            ones = np.take_along_axis(e >> bit & 1, order, axis=1)
            prefix = np.take_along_axis(prefix, order, axis=1)
            before = np.cumsum(ones, axis=1) - ones
            first = np.diff(prefix, axis=1, prepend=-1) != 0
            begin = np.maximum.accumulate(np.where(first, before, 0), axis=1)
            broken += int(((before - begin) * (1 - ones)).sum())
        sizes = np.bincount((np.arange(len(rows))[:, None] * n + d).ravel())
        ordered += len(rows) * (n - 1) * (n - 2) // 2 - int((sizes * (sizes - 1) // 2).sum())
    return broken / ordered


def measure(counts: PositionCounts) -> tuple[Clock, dict[str, float]]:
    """The other ways once, posgeom beside each, and how far they are from each other."""
    clock, n = Clock(), counts.n_positions
    before = time.perf_counter()
    score_encodings(estimate_geometry(counts.first(1_100), "plugin"), SPECS)
    compiling = time.perf_counter() - before

    def ours() -> tuple[Geometry, MDSResult, pd.DataFrame]:
        geometry = clock.of("posgeom", PARTS[0], lambda: estimate_geometry(counts, "plugin"))
        squared = geometry.squared
        mds = clock.of("posgeom", PARTS[1], lambda: classical_mds(squared, RANK, squared=True))
        return (
            geometry,
            mds,
            clock.of("posgeom", PARTS[2], lambda: score_encodings(geometry, SPECS)),
        )

    geometry, mds, scores = ours()
    about = {
        "compiling": compiling,
        "GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }

    P = position_profiles(counts)
    matrices = [make_encoding(spec).distances(np.arange(n)) for spec in SPECS]  # for nothing
    D = clock.of("scikit-learn", PARTS[0], lambda: dense_distances(P))
    apart = D > 0
    about["error"] = float((np.abs(geometry.distances - D)[apart] / D[apart]).max())
    theirs = clock.of(
        "scikit-learn",
        PARTS[1],
        lambda: ClassicalMDS(n_components=RANK, metric="precomputed").fit(D),
    )
    about["eigenvalues"] = float(np.abs(mds.eigenvalues / theirs.eigenvalues_ - 1).max())
    table = np.array(clock.of("scikit-learn", PARTS[2], lambda: numpy_scores(D, matrices)))
    columns = ["stress", "stress_raw", "scale", "spearman", "monotonicity_violation", "separation"]
    about["scores"] = float(np.abs(scores[columns].to_numpy() / table - 1).max())
    ours()
    clock.of("sparse Gram", PARTS[0], lambda: sparse_distances(P))
    for part in PARTS[1:]:
        clock.seconds["sparse Gram", part] = clock.seconds["scikit-learn", part]
    ours()
    return clock, about


def markdown(counts: PositionCounts, clock: Clock, about: dict[str, float]) -> str:
    """The table, after what a reader needs to know of it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    ways = ("posgeom", "scikit-learn", "sparse Gram")
    runs = clock.totals("posgeom")
    ours = np.median(runs, axis=0)
    lines = [
        "# Geometry of many positions, beside other ways to it",
        "",
        f"{counts.n_positions:,} positions, {counts.vocab_size:,} tokens, "
        f"{counts.counts.nnz / 1e6:.1f} million non-zeros: a drifting Zipf vocabulary.  Seconds on "
        'the wall (and of processor time).  posgeom: `estimate_geometry(counts, "plugin")`, '
        f"`classical_mds`, `score_encodings`, together {about['GB']:.1f} GB at most, "
        f"after a run at 1,100 positions in which numba compiles ({about['compiling']:.1f} s); the "
        f"median of {len(runs)} runs before, between and after the others, of "
        f"{', '.join(f'{wall:.1f}' for wall, _ in runs)} s, since the first is given memory that "
        "no process had.  "
        "scikit-learn: `euclidean_distances` of the dense root profiles, `ClassicalMDS`, the same "
        "scores in NumPy, the encodings' own distances given for nothing.  Sparse Gram: the "
        "product by `scipy.sparse`, the rest as before.",
        "",
        f"posgeom {posgeom.__version__}, scikit-learn {sklearn.__version__}, NumPy "
        f"{np.__version__}, SciPy {scipy.__version__}, Python {platform.python_version()}; "
        f"{os.cpu_count()} cores, {threads()} threads, {memory:.0f} GB.",
        "",
        "| part | " + " | ".join(ways) + " |",
        "|---|" + "---|" * len(ways),
    ]
    for part in PARTS:
        cells = [clock.part(way, part) for way in ways]
        lines.append(f"| {part} | " + " | ".join(f"{w:.1f} ({p:.1f})" for w, p in cells) + " |")
    totals = [np.median(clock.totals(way), axis=0) for way in ways]
    lines.append("| all | " + " | ".join(f"{w:.1f} ({p:.1f})" for w, p in totals) + " |")
    ratios = [f"{w / ours[0]:.1f} ({p / ours[1]:.1f})" for w, p in totals]
    lines.append("| times ours | " + " | ".join(ratios) + " |")
    lines += [
        "",
        f"Largest relative difference from scikit-learn's float64: of distances "
        f"{about['error']:.1e}, of eigenvalues {about['eigenvalues']:.1e}, of scores "
        f"{about['scores']:.1e}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run all ways."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--positions", type=int, default=4_096)
    parser.add_argument("--out", type=Path, help="folder for geometry.md")
    arguments = parser.parse_args()
    counts = drifting_counts(arguments.positions, V, TOKENS)
    text = markdown(counts, *measure(counts))
    print(text)
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "geometry.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
