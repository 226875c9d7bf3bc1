"""The debiased estimate beside the plug-in one, end to end, in one process.

    OMP_NUM_THREADS=2 python tests/benchmarks/debias.py [--all] [--out FOLDER]

Prints a Markdown table, and writes it to FOLDER/debias.md.  Simulated corpora have 512 positions,
16 folds and a Zipf vocabulary of 30,000; real ones, IMDB's reviews cut at 512 tokens, are added
where POSGEOM_DATA names a folder that holds them.  Each estimate is made RUNS times and the least
time taken, since other processes disturb the clock; both in turns, so that they share its troubles.
"""

import argparse
import os
import platform
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from threadpoolctl import threadpool_info

import posgeom
from posgeom import PositionCounts, SyntheticCorpus, count_positions, estimate_geometry
from posgeom.simulation import draw_counts

N, VOCABULARY, FOLDS, RUNS = 512, 30_000, 16, 3
SIMULATED = (("mixture", 40_000), ("decay", 20_000), ("periodic", 60_000), ("blocks", 20_000))


def corpora(every: bool) -> Iterator[tuple[str, PositionCounts]]:
    """Counts to estimate from; the first simulated shape alone unless all are asked for."""
    for shape, documents in SIMULATED if every else SIMULATED[:1]:
        corpus = SyntheticCorpus(shape, N, VOCABULARY, documents, shortening=0.5)
        yield f"{shape}, {documents:,} documents", draw_counts(corpus, FOLDS)
    data = os.environ.get("POSGEOM_DATA")
    if data:
        import pandas as pd

        reviews = list(pd.read_parquet(Path(data) / "imdb/imdb_train.parquet")["text"])
        bert = str(Path(data) / "tokenizers/bert-base-uncased")
        for tokenizer in (bert, "words") if every else (bert,):
            name = f"IMDB, {Path(tokenizer).name}"
            yield name, count_positions(reviews, tokenizer, N, folds=FOLDS)


def row(name: str, counts: PositionCounts) -> dict[str, Any]:
    """Seconds of both estimators, on the wall and of the processor."""
    wall, cpu = {}, {}
    for estimator in ("plugin", "debiased") * RUNS:
        begin, processor = time.perf_counter(), time.process_time()
        geometry = estimate_geometry(counts, estimator)
        seconds, busy = time.perf_counter() - begin, time.process_time() - processor
        if seconds < wall.get(estimator, np.inf):
            wall[estimator], cpu[estimator] = seconds, busy
        print(".", end="", file=sys.stderr, flush=True)
    return {
        "corpus": name,
        "tokens": f"{counts.totals.sum():,}",
        "non-zeros": f"{counts.counts.nnz:,}",
        "directions": geometry.stationarity.significant if geometry.stationarity else 0,
        "plug-in s": f"{wall['plugin']:.2f}",
        "debiased s": f"{wall['debiased']:.2f}",
        "ratio": f"{wall['debiased'] / wall['plugin']:.1f}",
        "plug-in cpu s": f"{cpu['plugin']:.2f}",
        "debiased cpu s": f"{cpu['debiased']:.2f}",
    }


def main() -> None:
    """Time all corpora."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for debias.md")
    parser.add_argument("--all", action="store_true", help="all shapes, and words too")
    arguments = parser.parse_args()
    warm = draw_counts(SyntheticCorpus("decay", 200, 500, 2_000), FOLDS)
    for estimator in ("plugin", "debiased"):
        estimate_geometry(warm, estimator)  # loops are compiled at their first run
    rows = [row(name, counts) for name, counts in corpora(arguments.all)]
    text = markdown(rows)
    print(text)
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "debias.md").write_text(text, encoding="utf-8")


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table, after what a reader needs to know of it."""
    threads = max(pool["num_threads"] for pool in threadpool_info())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    lines = [
        "# The debiased estimate beside the plug-in one",
        "",
        f'`estimate_geometry(counts, "debiased")` and `"plugin"`, end to end, n = {N}, {FOLDS} '
        f"folds, least of {RUNS} runs; wanted: a ratio of at most 5.  Directions: those that the "
        f"test finds and the smoothing keeps.  Largest memory of the process {memory:.1f} GB.",
        "",
        f"posgeom {posgeom.__version__}, NumPy {np.__version__}, SciPy {scipy.__version__}, Python "
        f"{platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, "
        f"{threads} threads.",
        "",
        "| " + " | ".join(rows[0]) + " |",
        "|" + "---|" * len(rows[0]),
    ]
    lines += ["| " + " | ".join(str(v) for v in r.values()) + " |" for r in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
