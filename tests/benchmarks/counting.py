"""Counting beside what it cannot do without: the tokenizer alone, NumPy, a copy; and start-up.

    python tests/benchmarks/counting.py [--megabytes 1000] [--tokens 1000000000] [--out FOLDER]

Text: IMDB's reviews, where POSGEOM_DATA names a folder that holds them, else the machine's own
Python library, repeated; a BPE tokenizer of 32,000 tokens, n = 512.  Token ids: a Zipf stream of
uint16, V = 50,257, n = 1,024.  Prints Markdown, and writes it to FOLDER/counting.md.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path

import numba
import numpy as np
import tokenizers
from numpy.typing import NDArray

import posgeom
from posgeom.counting import BATCH_DOCUMENTS, count_positions
from posgeom.tokenizer import LibraryTokenizer, load_tokenizer

V_TEXT, N_TEXT = 32_000, 512
V_IDS, N_IDS = 50_257, 1_024
ROUNDS = 9  # in which each way has its turn, since other processes disturb the clock
START_ROUNDS = 15  # of what is quick
LIKE = (
    "NumPy and the copies take one thread, posgeom all.  A copy makes no table, NumPy one, and so "
    "does posgeom of one fold; 16 folds are 16 tables."
)


def real_texts() -> tuple[str, list[str]]:
    """Documents of a real corpus, and its name."""
    reviews = Path(os.environ.get("POSGEOM_DATA", "")) / "imdb/imdb_train.parquet"
    if reviews.is_file():
        import pandas as pd

        return "IMDB", [t.replace("\n", " ") for t in pd.read_parquet(reviews)["text"]]
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    return "Python's library", [
        " ".join(f.read_text("utf-8", "replace").split()) for f in files if f.stat().st_size
    ]


def write_repeated(texts: list[str], path: Path, size: int) -> None:
    """The texts, one a line, over and over, each time with another first word, to `size` bytes."""
    written = turn = 0
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            for text in texts:
                written += file.write(f"{turn} {text}\n")
                if written >= size:
                    return
            turn += 1


def bare(backend: tokenizers.Tokenizer, batches: list[list[str]]) -> None:
    """The tokenizer alone, its ids left where they are."""
    for batch in batches:
        backend.encode_batch_fast(batch, add_special_tokens=False)


def text_rows(folder: Path, megabytes: int) -> Iterator[tuple[str, str]]:
    """Text: our throughput over the tokenizer's, and the memory that a large corpus takes."""
    name, texts = real_texts()
    small, large = folder / "small.txt", folder / "large.txt"
    write_repeated(texts, small, min(megabytes, 32) * 1_000_000)
    write_repeated(texts, large, megabytes * 1_000_000)
    tokenizer = load_tokenizer(f"train:bpe:{V_TEXT}", posgeom.open_corpus(small))
    assert isinstance(tokenizer, LibraryTokenizer)
    path = folder / "tokenizer.json"
    path.write_text(tokenizer.to_json(), encoding="utf-8")
    backend = tokenizers.Tokenizer.from_file(str(path))
    lines = small.read_text("utf-8").splitlines()
    batches = [lines[i : i + BATCH_DOCUMENTS] for i in range(0, len(lines), BATCH_DOCUMENTS)]
    mega = small.stat().st_size / 1e6
    theirs, ours = in_turn(
        lambda: bare(backend, batches),
        lambda: count_positions(small, path, N_TEXT),
    )
    yield f"{name}, {mega:.0f} MB: encode_batch_fast alone", rate(mega, theirs, "MB")
    yield "posgeom: read, tokenized and counted", rate(mega, ours, "MB")
    ratio = statistics.median(t / o for t, o in zip(theirs, ours, strict=True))
    yield "throughput, ours over the tokenizer's", f"**{ratio:.2f}**"
    with get_context("spawn").Pool(1) as pool:
        seconds, tokens, peak = pool.apply(counted_alone, (large, path))
    size = large.stat().st_size / 1e6
    yield (
        f"{size:,.0f} MB, {tokens / 1e6:,.0f} M tokens, a process of its own",
        f"{seconds:.0f} s, {size / seconds:.1f} MB/s, **peak {peak:,.0f} MB**",
    )


def counted_alone(path: Path, tokenizer: Path) -> tuple[float, int, float]:
    """Seconds, tokens, and the most memory in MB that this process has held."""
    begin = time.perf_counter()
    counts = count_positions(path, tokenizer, N_TEXT)
    seconds = time.perf_counter() - begin
    return seconds, counts.provenance.tokens, most_memory()


def most_memory() -> float:
    """In MB; not ru_maxrss, which a new process inherits from the one that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1e3


def write_ids(path: Path, tokens: int) -> None:
    """A stream of Zipf ids as uint16."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, V_IDS + 1)
    lookup = np.searchsorted(
        np.cumsum(share / share.sum()), np.arange(1 << 22) / (1 << 22), "right"
    ).astype(np.uint16)
    with path.open("wb") as file:
        for start in range(0, tokens, 1 << 24):
            size = min(1 << 24, tokens - start)
            file.write(lookup[rng.integers(0, 1 << 22, size, dtype=np.uint32)].tobytes())


def by_columns(ids: NDArray[np.uint16], columns: range) -> NDArray[np.int64]:
    """NumPy's way: a bincount of each column of the blocks."""
    blocks = ids[: len(ids) // N_IDS * N_IDS].reshape(-1, N_IDS)
    return np.stack([np.bincount(blocks[:, i], minlength=V_IDS) for i in columns])


def stream_rows(folder: Path, tokens: int) -> Iterator[tuple[str, str]]:
    """Token ids: our rate beside NumPy's, and beside those of three copies."""
    path = folder / "ids.bin"
    write_ids(path, tokens)
    ids = np.array(np.memmap(path, np.uint16, "r"))  # once through, so that the file is in memory
    there = np.ones_like(ids)
    count_positions(folder / "ids.bin", positions=N_IDS, align="packed", folds=1)
    some = range(0, N_IDS, 16)  # of the columns: all take minutes
    numpy, mapped, fresh, warm, one, sixteen = in_turn(
        lambda: by_columns(ids, some),
        lambda: np.memmap(path, np.uint16, "r").copy(),
        lambda: ids.copy(),
        lambda: np.copyto(there, ids),
        lambda: count_positions(path, positions=N_IDS, align="packed", folds=1),
        lambda: count_positions(path, positions=N_IDS, align="packed"),
    )
    counts = count_positions(path, positions=N_IDS, align="packed")
    assert np.array_equal(by_columns(ids, some), counts.pooled[list(some)].toarray())
    mega = tokens / 1e6
    part = mega * len(some) / N_IDS
    yield (
        f"{tokens:,} tokens: NumPy, bincount by column ({len(some)} of {N_IDS:,})",
        rate(part, numpy, "M tokens"),
    )
    copies = {
        "copy() of the mapped file": mapped,
        "copy() in memory, into new pages": fresh,
        "np.copyto, into pages that are there": warm,
    }
    for what, copy in copies.items():
        yield what, rate(mega, copy, "M tokens")
    for folds, ours in ((1, one), (16, sixteen)):
        yield f"posgeom, {folds} fold{'s' * (folds > 1)}", rate(mega, ours, "M tokens")
        yield "over NumPy's rate", f"**{over(numpy, ours) * mega / part:.1f}**"
        for what, copy in copies.items():
            yield f"over {what}", f"**{over(copy, ours):.2f}**"
    with get_context("spawn").Pool(1) as pool:
        peak = pool.apply(stream_alone, (path,))
    yield "16 folds, a process of its own, the mapped file included", f"**peak {peak:,.0f} MB**"


def over(theirs: list[float], ours: list[float]) -> float:
    """How many times as fast ours is."""
    return statistics.median(t / o for t, o in zip(theirs, ours, strict=True))


def stream_alone(path: Path) -> float:
    """The most memory in MB that this process has held when it has counted."""
    count_positions(path, positions=N_IDS, align="packed")
    return most_memory()


def start_rows() -> Iterator[tuple[str, str]]:
    """What one waits for `posgeom --help`, beside an import of NumPy."""

    def run(*arguments: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, *arguments], capture_output=True, check=True)

    numpy, ours = in_turn(
        run("-c", "import numpy"), run("-m", "posgeom.cli", "--help"), rounds=START_ROUNDS
    )
    yield 'python -c "import numpy"', f"{statistics.median(numpy):.3f} s"
    yield "posgeom --help", f"{statistics.median(ours):.3f} s"
    ratio = statistics.median(o / t for t, o in zip(numpy, ours, strict=True))
    yield "time, ours over NumPy's", f"**{ratio:.1f}**"


def in_turn(*jobs: Callable[[], object], rounds: int = ROUNDS) -> list[list[float]]:
    """Seconds of each job in some rounds, A B C A B C …, after one that is not counted."""
    seconds: list[list[float]] = [[] for _ in jobs]
    for turn in range(rounds + 1):
        for job, taken in zip(jobs, seconds, strict=True):
            begin = time.perf_counter()
            job()
            if turn:
                taken.append(time.perf_counter() - begin)
        print(".", end="", file=sys.stderr, flush=True)
    return seconds


def rate(amount: float, seconds: list[float], unit: str) -> str:
    """The median rate, from the slowest to the fastest."""
    each = sorted(amount / s for s in seconds)
    return f"{statistics.median(each):.1f} {unit}/s ({each[0]:.1f} to {each[-1]:.1f})"


def main() -> None:
    """Measure all, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1_000, help="size of the large text")
    parser.add_argument("--tokens", type=int, default=1_000_000_000, help="of the stream")
    parser.add_argument("--out", type=Path, help="folder for counting.md")
    arguments = parser.parse_args()
    jobs: dict[str, Callable[[Path], Iterator[tuple[str, str]]]] = {
        f"Token ids to counts, V = {V_IDS:,}, n = {N_IDS:,}": lambda folder: stream_rows(
            folder, arguments.tokens // N_IDS * N_IDS
        ),
        "Start-up": lambda folder: start_rows(),
        f"Text to counts, V = {V_TEXT:,}, n = {N_TEXT}": lambda folder: text_rows(
            folder, arguments.megabytes
        ),
    }
    lines = [
        "# Counting",
        "",
        f"Medians of {ROUNDS} rounds (start-up {START_ROUNDS}) in which each "
        "way has its turn; ratios are medians of the rounds' own.  Clock on the wall, "
        f"{numba.get_num_threads()} threads of {platform.machine()}, "
        f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB.",
        "",
        f"posgeom {posgeom.__version__}, tokenizers {tokenizers.__version__}, NumPy "
        f"{np.__version__}, numba {numba.__version__}, Python {platform.python_version()}.",
    ]
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for head, job in jobs.items():
            lines += ["", f"## {head}", "", "| | |", "|---|---|"]
            lines += [f"| {what} | {figure} |" for what, figure in job(Path(folder))]
            lines += ["", LIKE] if head.startswith("Token ids") else []
            if arguments.out is not None:  # what is there stays, should the rest be interrupted
                (arguments.out / "counting.md").write_text("\n".join(lines) + "\n", "utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
