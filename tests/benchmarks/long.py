"""Long contexts: scores at 32,768 positions in tiles, coordinates at 131,072 by landmarks.

    OMP_NUM_THREADS=2 python tests/benchmarks/long.py [--positions N] [--landmarks N] [--out FOLDER]

Prints Markdown tables, and writes them to FOLDER/long.md.  `posgeom score` runs in a process of its
own, whose memory is measured; drawing and saving its counts takes as long again.
"""

import argparse
import os
import platform
import resource
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import scipy
from drifting import drifting_counts
from scipy.linalg import orthogonal_procrustes

import posgeom
from posgeom import classical_mds, estimate_geometry, score_encodings, stress
from posgeom.encodings.base import distances_between_rows
from posgeom.geometry import position_profiles
from posgeom.landmarks import landmark_mds
from posgeom.long_scores import score_long
from posgeom.root_profiles import threads

V, TOKENS = 30_000, 10_000
SPECS = (
    "sinusoidal",
    "rope:base=500000",
    "alibi",
    "alibi:reading=kernel",
    "t5",
    "random",
    "binary",
    "mds:rank=16",
)
EXACT_AT = 2_048  # positions at which the scores in tiles are held against those of all pairs
KNOWN_AT = (2_048, 4_096, 8_192)  # positions at which landmarks are held against all distances
AXES = 2  # that stand above the noise here
FEW = (256, 1_024, 2_048)  # landmarks


def scored(n: int) -> str:
    """`posgeom score` on drawn counts, in a process of its own: what it took and said."""
    counts = drifting_counts(n, V, TOKENS)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "counts.npz"
        counts.save(file)
        command = [sys.executable, "-m", "posgeom.cli", "score", str(file)]
        command += ["--estimator", "plugin"]
        command += [word for spec in SPECS for word in ("--encoding", spec)]
        begin = time.perf_counter()
        ran = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
        wall = time.perf_counter() - begin
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    shown = pd.read_json(StringIO(ran.stdout.split('"scores": ', 1)[1].rstrip()[:-1]))
    columns = ["encoding", "stress", "spearman", "spearman_se"]
    columns += ["monotonicity_violation", "monotonicity_violation_se"]
    lines = [
        f"`posgeom score COUNTS --estimator plugin`, {n:,} positions, "
        f"{counts.counts.nnz / 1e6:.0f} million non-zeros, {len(SPECS)} encodings, MDS of rank 16 "
        f"among them: {wall:.0f} s on the wall, {used.ru_utime + used.ru_stime:.0f} s of processor "
        f"time, {used.ru_maxrss / 2**20:.1f} GB at most.",
        "",
        *table(shown[columns].to_dict("records")),
    ]
    return "\n".join(lines)


def beside_exact(n: int) -> str:
    """How far the scores in tiles are from those of all pairs, where these fit in memory."""
    counts = drifting_counts(n, V, TOKENS)
    exact = score_encodings(estimate_geometry(counts, "plugin"), SPECS)
    tiled = score_long(counts, SPECS).scores
    rows = [
        {
            "encoding": e["encoding"],
            "stress, relative": abs(t["stress"] / e["stress"] - 1),
            "spearman": t["spearman"] - e["spearman"],
            "spearman_se": t["spearman_se"],
            "violation": t["monotonicity_violation"] - e["monotonicity_violation"],
            "violation_se": t["monotonicity_violation_se"],
        }
        for e, t in zip(exact.to_dict("records"), tiled.to_dict("records"), strict=True)
    ]
    return "\n".join([f"Differences from the scores of all pairs at {n:,}:", "", *table(rows)])


def by_landmarks(n: int) -> str:
    """Landmark MDS where all distances are known, and its time where they are not."""
    rows: list[dict[str, Any]] = []
    for known in KNOWN_AT:
        counts = drifting_counts(known, V, TOKENS)
        geometry = estimate_geometry(counts, "plugin")
        X = classical_mds(geometry.squared, AXES, squared=True).coordinates
        least = stress.stress(distances_between_rows(X), geometry.distances)
        P = position_profiles(counts)
        for m in FEW:
            begin = time.process_time()
            Y = landmark_mds(P, AXES, m).coordinates
            seconds = time.process_time() - begin
            turned = Y @ orthogonal_procrustes(Y, X)[0]
            near = distances_between_rows(Y)
            rows.append(
                {
                    "positions": f"{known:,}",
                    "landmarks": f"{m:,}",
                    "stress": stress.stress(near, geometry.distances),
                    "of classical MDS": least,
                    "Procrustes": np.linalg.norm(turned - X) / np.linalg.norm(X),
                    "processor s": seconds,
                }
            )
    counts = drifting_counts(n, V, TOKENS // 5)
    wall, processor = time.perf_counter(), time.process_time()
    landmark_mds(position_profiles(counts), AXES)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    lines = [
        f"Landmark MDS in {AXES} dimensions: stress of its distances against all plug-in ones, "
        "beside that of classical MDS, and the Procrustes distance between both sets of "
        "coordinates as a share of their size.",
        "",
        *table(rows),
        "",
        f"{n:,} positions, {counts.counts.nnz / 1e6:.0f} million non-zeros, from counts to "
        f"coordinates by 2,048 landmarks: {wall:.0f} s on the wall, {processor:.0f} s of processor "
        "time.",
    ]
    return "\n".join(lines)


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as Markdown."""
    cells = [[f"{v:.3g}" if isinstance(v, float) else str(v) for v in r.values()] for r in rows]
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    return lines + ["| " + " | ".join(row) + " |" for row in cells]


def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--positions", type=int, default=32_768)
    parser.add_argument("--landmarks", type=int, default=131_072, help="positions for landmarks")
    parser.add_argument("--out", type=Path, help="folder for long.md")
    arguments = parser.parse_args()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = (
        f"posgeom {posgeom.__version__}, NumPy {np.__version__}, SciPy {scipy.__version__}, Python "
        f"{platform.python_version()}; {os.cpu_count()} cores, {threads()} threads, "
        f"{memory:.0f} GB.  A drifting Zipf vocabulary of {V:,} tokens."
    )
    parts = ["# Long contexts", versions]
    for part in (
        lambda: scored(arguments.positions),
        lambda: beside_exact(EXACT_AT),
        lambda: by_landmarks(arguments.landmarks),
    ):
        parts.append(part())
        print(parts[-1], "\n", flush=True)
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        text = "\n\n".join(parts) + "\n"
        (arguments.out / "long.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
