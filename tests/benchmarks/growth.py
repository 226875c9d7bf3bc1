"""How processor time and memory grow with documents, positions, vocabulary and rank.

    OMP_NUM_THREADS=2 python tests/benchmarks/growth.py [--out FOLDER]

Prints a Markdown table of exponents, and writes it to FOLDER/growth.md with the plot growth.svg.
Each job runs at each size for its processor time, the least of three runs, and once more for the
most memory that its arrays take, which Python's tracemalloc follows.
"""

import argparse
import os
import platform
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from drifting import drifting_counts
from numpy.typing import NDArray

import posgeom
from posgeom import classical_mds, count_positions
from posgeom.distances import squared_hellinger
from posgeom.geometry import position_profiles
from posgeom.long_scores import score_long
from posgeom.root_profiles import threads

FloatArray = NDArray[np.float64]

SPECS = ("sinusoidal", "alibi", "random")
LENGTH = 64  # tokens of a document
RUNS = 3


@dataclass(frozen=True)
class Growth:
    """One job at rising sizes: processor seconds and MB."""

    job: str
    along: str
    expected: str
    sizes: FloatArray
    seconds: FloatArray
    megabytes: FloatArray

    def exponent(self, values: FloatArray) -> float:
        """The slope of the upper half of the sizes in a log-log plot."""
        upper = slice(len(values) // 2 - 1, None)
        return float(np.polyfit(np.log(self.sizes[upper]), np.log(values[upper]), 1)[0])


def jobs() -> Iterator[tuple[str, str, str, list[int], Callable[[int], Callable[[], Any]]]]:
    """Name, what grows, what is expected, sizes, and from a size to the job."""

    def distances(n: int) -> Callable[[], Any]:
        P = position_profiles(drifting_counts(n, 20_000, 5_000))
        return lambda: squared_hellinger(P)

    def tiles(n: int) -> Callable[[], Any]:
        counts = drifting_counts(n, 20_000, 5_000)
        return lambda: score_long(counts, SPECS)

    def vocabulary(V: int) -> Callable[[], Any]:
        # as many tokens for each entry, so that the share of zeros stays
        P = position_profiles(drifting_counts(2_048, V, V // 4))
        return lambda: squared_hellinger(P)

    D2 = squared_hellinger(position_profiles(drifting_counts(2_048, 20_000, 5_000)))

    def rank(r: int) -> Callable[[], Any]:
        return lambda: classical_mds(D2, r, squared=True)

    def documents(n: int) -> Callable[[], Any]:
        ids = np.random.default_rng(0).zipf(1.3, (n, LENGTH)) % 20_000
        texts = [" ".join(map(str, row)) for row in ids.tolist()]
        return lambda: count_positions(texts, "words", LENGTH)

    yield "count_positions", "documents", "1", [2_000, 4_000, 8_000, 16_000, 32_000], documents
    yield "squared_hellinger", "positions", "2", [1_024, 2_048, 4_096, 8_192], distances
    yield "score_long", "positions", "2", [1_024, 2_048, 4_096, 8_192], tiles
    yield "squared_hellinger", "vocabulary", "1", [5_000, 10_000, 20_000, 40_000], vocabulary
    yield "classical_mds", "rank", "1", [4, 8, 16, 32, 64], rank


def measured(job: Callable[[], Any]) -> tuple[float, float]:
    """Processor seconds, the least of RUNS runs, and the most megabytes of another."""
    seconds = np.inf
    for _ in range(RUNS):
        begin = time.process_time()
        job()
        seconds = min(seconds, time.process_time() - begin)
    tracemalloc.start()
    job()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, peak / 1e6


def grown() -> Iterator[Growth]:
    """All jobs at all sizes."""
    for name, along, expected, sizes, prepare in jobs():
        prepare(sizes[0])()  # compiles
        found = []
        for size in sizes:
            found.append(measured(prepare(size)))
            print(f"{name}, {size:,} {along}: {found[-1][0]:.2f} s, {found[-1][1]:.0f} MB")
        seconds, megabytes = np.array(found).T
        yield Growth(name, along, expected, np.array(sizes, dtype=float), seconds, megabytes)


def draw(all_growth: list[Growth], file: Path) -> None:
    """Seconds and megabytes against size, a line a job, with its exponent."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
    for growth in all_growth:
        for ax, values in zip(axes, (growth.seconds, growth.megabytes), strict=True):
            label = f"{growth.job}, {growth.along}: {growth.exponent(values):.2f}"
            ax.loglog(growth.sizes, values, "o-", label=label)
    for ax, unit in zip(axes, ("seconds of processor time", "MB of arrays"), strict=True):
        ax.set(xlabel="documents, positions, tokens or dimensions", ylabel=unit)
        ax.legend(fontsize="small", title="exponent", loc="lower left")
    with mpl.rc_context({"svg.hashsalt": "growth"}):
        figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def markdown(all_growth: list[Growth]) -> str:
    """The table, after what a reader needs to know of it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    lines = [
        "# Growth of time and memory",
        "",
        f"Processor time is the least of {RUNS} runs.  Exponents b of size^b, fitted to the upper "
        "half of the sizes; the plot is growth.svg.  "
        "Time of positions should grow with their square, that of documents and of the "
        "vocabulary no faster than they do.  score_long makes no (n, n) array: its memory is that "
        "of the profiles, linear in positions.",
        "",
        f"posgeom {posgeom.__version__}, NumPy {np.__version__}, Python "
        f"{platform.python_version()}; {os.cpu_count()} cores, {threads()} threads, "
        f"{memory:.0f} GB.",
        "",
        "| job | grows with | from | to | seconds | MB | exponent of time | at most | of memory |",
        "|" + "---|" * 9,
    ]
    lines += [
        f"| {g.job} | {g.along} | {g.sizes[0]:,.0f} | {g.sizes[-1]:,.0f} | "
        f"{g.seconds[0]:.2f} to {g.seconds[-1]:.2f} | {g.megabytes[0]:.0f} to "
        f"{g.megabytes[-1]:.0f} | {g.exponent(g.seconds):.2f} | {g.expected} | "
        f"{g.exponent(g.megabytes):.2f} |"
        for g in all_growth
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run all jobs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for growth.md and growth.svg")
    out = parser.parse_args().out
    all_growth = list(grown())
    text = markdown(all_growth)
    print(text)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "growth.md").write_text(text, encoding="utf-8")
        mpl.use("agg")
        draw(all_growth, out / "growth.svg")


if __name__ == "__main__":
    main()
