"""posgeom.smacof beside scikit-learn's smacof, in one process: stress and seconds.

    python tests/benchmarks/smacof.py [--tight] [--out FOLDER]

Prints a Markdown table, and writes it to FOLDER/smacof.md.  Simulated matrices have 512 points;
real ones, of as many as their corpus has, are added where POSGEOM_DATA names a folder that holds
them.  Both start from the same configuration and have one thread; seconds are of processor time,
the least of three runs, since other processes disturb the clock on the wall.
"""

import argparse
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.manifold import smacof as reference
from threadpoolctl import threadpool_limits

import posgeom
from posgeom import SyntheticCorpus, classical_mds, count_positions, estimate_geometry
from posgeom.distances import fisher_rao, hellinger, jensen_shannon
from posgeom.simulation import draw_counts
from posgeom.smacof import first_axes, smacof

FloatArray = NDArray[np.float64]

N, RANK, RUNS = 512, 3, 2
LOOSE = (1e-4, 3e-5, 1e-5, 3e-6, 1e-6)  # tolerances above our own, 3e-7
TIGHT = {"eps": 1e-9, "max_iter": 1000}  # scikit-learn's defaults: 1e-6 and 300


def simulated(n: int) -> Iterator[tuple[str, FloatArray]]:
    """Fourteen matrices of distances between n points."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 6))
    N = np.abs(rng.standard_normal((n, n)))
    noise = (N + N.T) * (1 - np.eye(n))
    P = rng.dirichlet(np.full(20, 0.3), n)
    yield "noise", noise
    yield "Euclidean + a little noise", cdist(X, X) + 0.1 * noise
    yield "Euclidean + noise", cdist(X, X) + 0.5 * noise
    yield "city block", cdist(X, X, "cityblock")
    yield "largest coordinate", cdist(X, X, "chebyshev")
    yield "root of Euclidean", np.sqrt(cdist(X, X))
    yield "one-hot", hellinger(np.eye(n))
    yield "geodesic of random distributions", fisher_rao(P)
    yield "Jensen-Shannon of random distributions", jensen_shannon(P)
    for shape in ("decay", "line", "periodic", "circle", "mixture"):
        counts = draw_counts(SyntheticCorpus(shape, n, 2_000, 7_000, 1.0, 0.5))
        yield f"{shape}, 7,000 documents", estimate_geometry(counts, "plugin").distances


def real(data: Path) -> Iterator[tuple[str, FloatArray]]:
    """Hellinger distances of corpora, and the distances of a learned table."""
    import pandas as pd

    def counted(texts: Any, tokenizer: str, n: int, **options: Any) -> Any:
        return count_positions(list(texts), tokenizer, n, **options)

    sst2 = counted(
        pd.read_parquet(data / "sst2/sst2_sentences_train.parquet")["sentence"], "words", 32
    )
    imdb = pd.read_parquet(data / "imdb/imdb_train.parquet")["text"]
    splice = counted(pd.read_parquet(data / "dna/uci_splice.parquet")["sequence"], "chars", 60)
    promoters = pd.read_parquet(data / "dna/promoters_cnnprom.parquet")["sequence"]
    promoters = counted(promoters[promoters.str.len() == 251], "chars", 251)
    yield "SST-2", estimate_geometry(sst2, "plugin").distances
    yield "IMDB", estimate_geometry(counted(imdb[::10], "words", N), "plugin").distances
    yield "IMDB, debiased", estimate_geometry(counted(imdb[::5], "words", 128)).distances
    yield "splice", estimate_geometry(splice, "plugin").distances
    yield "promoters", estimate_geometry(promoters, "plugin").distances
    table = np.load(data / "learned/openai-gpt-512x768.npy").astype(np.float64)
    yield "rows of GPT's table", cdist(table, table)


def timed(job: Callable[[], float]) -> tuple[float, float]:
    """What a job returns, and the least seconds of some runs."""
    least = np.inf
    for _ in range(RUNS):
        begin = time.process_time()
        result = job()
        least = min(least, time.process_time() - begin)
    return result, least


def row(name: str, D: FloatArray, start: FloatArray, begin: str, tight: bool) -> dict[str, Any]:
    """One comparison: raw stress and seconds of both, by default or with tight tolerances."""
    total = (D**2).sum() / 2
    found: dict[str, Any] = {"n": len(D), "matrix": name, "start": begin}
    theirs = {"init": start, "n_init": 1, "normalized_stress": False} | (TIGHT if tight else {})
    ours = {"start": start} | ({"tolerance": 1e-10} if tight else {})
    reached, seconds = timed(lambda: reference(D, n_components=start.shape[1], **theirs)[1] / total)
    found |= {"sklearn": reached, "sklearn s": seconds}
    reached, seconds = timed(lambda: smacof(D, start.shape[1], **ours).raw_stress)
    found |= {"ours": reached, "ours s": seconds}
    # How soon it is as low as scikit-learn ends: by the loosest tolerance that gets there.
    for tolerance in () if tight else LOOSE:
        loose = {"start": start, "tolerance": tolerance}
        low, soon = timed(lambda loose=loose: smacof(D, start.shape[1], **loose).raw_stress)
        if low <= found["sklearn"]:
            seconds = min(seconds, soon)
            break
    return found | {"as low s": seconds, "ratio": found["sklearn s"] / seconds}


def main() -> None:
    """Run all matrices from both starts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for smacof.md")
    parser.add_argument("--tight", action="store_true", help="with tight tolerances: minutes more")
    arguments = parser.parse_args()
    out, tight = arguments.out, arguments.tight
    data = os.environ.get("POSGEOM_DATA")
    matrices = list(simulated(N)) + (list(real(Path(data))) if data else [])
    rows = []
    with threadpool_limits(1):
        for name, D in matrices:
            mds = classical_mds(np.sign(D) * D**2, squared=True)
            spread = np.random.default_rng(1).standard_normal((len(D), RANK)) * D.std()
            for begin, start in (("classical", first_axes(mds, RANK)), ("random", spread)):
                rows.append(row(name, D, start, begin, tight))
                print(".", end="", file=sys.stderr, flush=True)
    text = markdown(rows, tight)
    print(text)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "smacof.md").write_text(text, encoding="utf-8")


def markdown(rows: list[dict[str, Any]], tight: bool) -> str:
    """The table, after what a reader needs to know of it."""
    tolerances = (
        f"scikit-learn's eps {TIGHT['eps']:g} and {TIGHT['max_iter']:,} iterations, our tolerance "
        "1e-10"
        if tight
        else "both with their own tolerances"
    )
    lines = [
        "# Stress majorisation beside scikit-learn",
        "",
        f"Raw stress and seconds of processor time (one thread, least of {RUNS} runs) in {RANK} "
        f"dimensions, both from the same start; {tolerances}.  As low: our seconds until the "
        "stress is not above scikit-learn's; ratio: scikit-learn's seconds over these.",
        "",
        f"posgeom {posgeom.__version__}, scikit-learn {sklearn.__version__}, NumPy "
        f"{np.__version__}, SciPy {scipy.__version__}, Python {platform.python_version()}.",
        "",
        "| " + " | ".join(rows[0]) + " |",
        "|" + "---|" * len(rows[0]),
    ]
    lines += ["| " + " | ".join(cell(k, v) for k, v in r.items()) + " |" for r in rows]
    for begin in ("classical", "random"):
        some = [r for r in rows if r["start"] == begin]
        lower = sum(r["ours"] <= r["sklearn"] + 1e-10 for r in some)
        large = [r for r in some if r["n"] == N]
        ratios = np.array([r["ratio"] for r in large])
        whole = sum(r["sklearn s"] for r in large) / sum(r["ours s"] for r in large)
        lines += [
            "",
            f"From the {begin} start: stress not above scikit-learn's on {lower} of {len(some)} "
            f"matrices; at n = {N} {(ratios >= 10).sum()} of {len(ratios)} in at most a tenth of "
            f"its time, median ratio {np.median(ratios):.1f}, least {ratios.min():.1f}, of all "
            f"together {whole:.1f}.",
        ]
    return "\n".join(lines) + "\n"


def cell(head: str, value: Any) -> str:
    """A number with the digits that its column wants."""
    if not isinstance(value, float):
        return str(value)
    if head.startswith("ratio"):
        return f"{value:.1f}"
    return f"{value:.4f}" if head.endswith(" s") else f"{value:.8f}"


if __name__ == "__main__":
    warnings.simplefilter("ignore", FutureWarning)
    main()
