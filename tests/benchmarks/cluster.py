"""Counting on a Dask cluster of one machine: one worker beside two, and what they send.

    python tests/benchmarks/cluster.py [--megabytes M] [--out FOLDER]

Makes a corpus of M megabytes (64 by default) in a temporary folder: parquet shards of the source
files of this Python's standard library, repeated, a file in pieces of 60 lines.  Counts it in this
process and with one and two workers of one thread each, checks that the counts are the same, and
puts the reduction of 10,000 shards, simulated, beside the model of posgeom/engines/cost.py, from
which costs for a trillion tokens and more are worked out.  Prints Markdown, and writes it to
FOLDER/cluster.md.
"""

import argparse
import heapq
import os
import pickle
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle, groupby
from pathlib import Path
from typing import Any

import numpy as np

import posgeom
from posgeom import PositionCounts, count_positions
from posgeom.counts import canonical
from posgeom.engines.cost import Plan, zipf
from posgeom.engines.dask import _tree
from posgeom.named import stdlib_lines
from posgeom.resume import Kept, count_in_shards
from posgeom.shards import PARTS
from posgeom.tokenizer import LibraryTokenizer, load_tokenizer

SHARDS, LINES = 16, 60
SETTINGS: dict[str, Any] = {"positions": 512, "text_field": "text"}


# -- measured -------------------------------------------------------------------------------------


def make_corpus(folder: Path, megabytes: float) -> str:
    """Parquet shards of source text, so many megabytes of it together."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts: list[str] = []
    for _, lines in groupby(stdlib_lines(), lambda pair: pair[1]):
        own = [line for line, _ in lines]
        texts += ["\n".join(own[k : k + LINES]) for k in range(0, len(own), LINES)]
    room, chosen = megabytes * 1e6, []
    for number, text in enumerate(cycle(texts)):
        chosen.append(f"# {number}\n{text}")
        room -= len(text)
        if room < 0:
            break
    for k in range(SHARDS):
        pq.write_table(pa.table({"text": chosen[k::SHARDS]}), folder / f"{k:02}.parquet")
    return str(folder / "*.parquet")


class Weighed(Kept):
    """Counts that are kept, and how many bytes they had as messages."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, resumes=False)
        self.sizes: list[int] = []

    def save(self, key: str, counts: PositionCounts) -> None:
        """Keep, and weigh."""
        self.sizes.append(len(pickle.dumps(counts)))
        super().save(key, counts)


def incoming(dask_worker: Any) -> tuple[int, int]:
    """How many messages a worker got from others, and their bytes."""
    log = dask_worker.transfer_incoming_log
    return len(log), sum(entry["total"] for entry in log)


def measured(folder: Path, source: str) -> tuple[list[dict[str, Any]], PositionCounts]:
    """Wall time of one process and of one and two workers."""
    from distributed import Client, LocalCluster

    corpus = posgeom.open_corpus(source, text_field="text")
    tokenizer = load_tokenizer("train:bpe:8192", corpus)
    assert isinstance(tokenizer, LibraryTokenizer)
    (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    options = SETTINGS | {"tokenizer": str(folder / "tokenizer.json")}
    rows, whole = [], None
    for workers in (0, 1, 2):
        kept = Weighed(folder / f"kept{workers}")
        if not workers:
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core, as a worker
            begin = time.perf_counter()
            start = time.process_time()
            whole = count_positions(source, **options)
            seconds, messages = time.perf_counter() - begin, (0, 0)
            busiest = time.process_time() - start
        else:
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                dashboard_address=":0",
                silence_logs=50,
                env={"TOKENIZERS_PARALLELISM": "false"},
            )
            with cluster, Client(cluster, set_as_default=False) as client:
                client.run(count_positions, ["a b", "b"], "bytes")  # imports, before the clock runs
                before = client.run(time.process_time)
                begin = time.perf_counter()
                counts = count_in_shards(source, kept, dask=cluster.scheduler_address, **options)
                seconds = time.perf_counter() - begin
                after = client.run(time.process_time)
                busiest = max(after[worker] - before[worker] for worker in after)
                logs = client.run(incoming).values()
                messages = sum(m for m, _ in logs), sum(b for _, b in logs)
            assert (counts.counts != whole.counts).nnz == 0
            assert counts.provenance == whole.provenance
        tokens = whole.provenance.tokens
        rows.append(
            {
                "counted by": f"{workers} worker{'s' * (workers > 1)}"
                if workers
                else "one process",
                "seconds": f"{seconds:.1f}",
                "tokens/s": f"{tokens / seconds:,.0f}",
                "busiest worker, s of processor": f"{busiest:.1f}",
                "messages between workers": str(messages[0]),
                "MB": f"{messages[1] / 1e6:.1f}",
                "MB to the client": f"{sum(kept.sizes) / 1e6:.1f}",
                "_seconds": seconds,
                "_busiest": busiest,
            }
        )
    assert whole is not None
    return rows, whole


# -- simulated ------------------------------------------------------------------------------------


@dataclass(eq=False)
class Task:
    """A task of the graph: a shard, or a join of two tasks."""

    inputs: tuple["Task", ...] = ()
    counts: PositionCounts | None = None
    worker: int = -1


class Recorder:
    """Takes the tasks that the engine would submit to a cluster."""

    def __init__(self) -> None:
        self.joins: list[Task] = []

    def submit(self, _: Any, *inputs: Task, **__: Any) -> Task:
        """A join."""
        self.joins.append(Task(inputs))
        return self.joins[-1]


def shard_counts(plan: Plan, rng: np.random.Generator) -> PositionCounts:
    """Counts of a shard whose tokens follow Zipf's law at every position."""
    from scipy.sparse import coo_array

    rows = plan.n_folds * plan.n_positions
    size = int(plan.tokens / plan.shards)
    ids = rng.choice(plan.vocab_size, size, p=zipf(plan.vocab_size))
    entries = coo_array(
        (np.ones(size, dtype=np.int64), (rng.integers(0, rows, size), ids)), (rows, plan.vocab_size)
    )
    return PositionCounts(canonical(entries), plan.n_folds, np.zeros(plan.n_folds, dtype=np.int64))


def simulated(plan: Plan, seed: int = 0) -> dict[str, float]:
    """The reduction of a plan's shards by the engine's own tree: bytes moved, kept, of the result.

    Real counts are made, joined and pickled; only workers and their time are imagined: a shard
    goes to the worker that is free first, a join to the side with more bytes.
    """
    rng, recorder = np.random.default_rng(seed), Recorder()
    shards = [Task() for _ in range(plan.shards)]
    size = -(-plan.shards // PARTS)
    parts: list[Any] = [_tree(recorder, shards[k : k + size]) for k in range(0, plan.shards, size)]
    root: Any = _tree(recorder, parts)
    free = [(0.0, worker) for worker in range(plan.workers)]
    moved, kept = 0.0, 0.0
    ready: dict[Task, int] = {}
    users = {side: join for join in recorder.joins for side in join.inputs}
    unused = set(parts)

    def finish(task: Task) -> Iterator[Task]:
        nonlocal moved, kept
        if task in unused:
            kept += len(pickle.dumps(task.counts))
        join = users.get(task)
        if join is None:
            return
        ready[join] = ready.get(join, 0) + 1
        if ready[join] == 2:
            first, rest = join.inputs
            sizes = [len(pickle.dumps(side.counts)) for side in join.inputs]
            join.worker = join.inputs[int(np.argmax(sizes))].worker
            moved += min(sizes) if first.worker != rest.worker else 0
            assert first.counts is not None
            assert rest.counts is not None
            join.counts = first.counts.followed_by(rest.counts)
            first.counts = rest.counts = None
            yield join

    for shard in shards:
        clock, shard.worker = heapq.heappop(free)
        heapq.heappush(free, (clock + rng.lognormal(0, 0.3), shard.worker))
        shard.counts = shard_counts(plan, rng)
        waiting = [shard]
        while waiting:
            waiting += finish(waiting.pop())
    return {"moved": moved, "kept": kept, "result": float(len(pickle.dumps(root.counts)))}


SMALL = Plan(2e7, 10_000, 100, n_positions=16, vocab_size=1_000, n_folds=4)


def model_rows(plan: Plan, seed: int = 0) -> list[dict[str, str]]:
    """The simulation beside the model."""
    found = simulated(plan, seed)
    return [
        {
            "bytes": name,
            "simulated, MB": f"{value / 1e6:.2f}",
            "model, MB": f"{getattr(plan, name) / 1e6:.2f}",
            "model / simulated": f"{getattr(plan, name) / value:.3f}",
        }
        for name, value in found.items()
    ]


# -- worked out -----------------------------------------------------------------------------------


def costs(per_second: float) -> list[dict[str, str]]:
    """What 1 and 15 trillion tokens cost by the model."""
    rows = []
    for tokens, shards, workers in ((1e12, 10_000, 256), (15e12, 60_000, 2_048)):
        for n, V in ((512, 32_000), (1_024, 128_000)):
            plan = Plan(tokens, shards, workers, n, V, per_second=per_second)
            rows.append(
                {
                    "tokens": f"{tokens / 1e12:.0f} T",
                    "shards": f"{shards:,}",
                    "workers": f"{workers:,}",
                    "n": f"{n:,}",
                    "V": f"{V:,}",
                    "hours": f"{plan.hours:.1f}",
                    "between workers, TB": f"{plan.moved / 1e12:.2f}",
                    "of that a worker, MB/s": f"{plan.moved / workers / plan.hours / 3.6e9:.2f}",
                    "kept beside OUT, GB": f"{plan.kept / 1e9:.0f}",
                    "result, GB": f"{plan.result / 1e9:.1f}",
                    "memory a worker, GB": f"{plan.memory / 1e9:.0f}",
                }
            )
    return rows


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as Markdown; columns that begin with _ are not shown."""
    names = [name for name in rows[0] if not name.startswith("_")]
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return lines + ["| " + " | ".join(str(row[name]) for name in names) + " |" for row in rows]


def join_rate(counts: PositionCounts) -> float:
    """Entries of both sides that one core joins in a second."""
    half = replace(counts)
    begin = time.process_time()
    for _ in range(5):
        counts + half
    return 10 * counts.counts.nnz / (time.process_time() - begin)


def main() -> None:
    """Measure, simulate, work out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for cluster.md")
    parser.add_argument("--megabytes", type=float, default=64)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = make_corpus(Path(folder), arguments.megabytes)
        rows, whole = measured(Path(folder), source)
    tokens, in_window = whole.provenance.tokens, int(whole.totals.sum())
    n, V = whole.n_positions, whole.vocab_size
    plan = Plan(in_window, SHARDS, 2, n, V)
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    import distributed

    lines = [
        "# Counting on a cluster",
        "",
        f"{arguments.megabytes:g} MB of Python source in {SHARDS} parquet shards, {tokens:,} "
        f"tokens of a BPE of {V:,} pieces, n = {n}; one thread a worker.  {cores} cores, "
        f"{memory:.0f} GB.  posgeom {posgeom.__version__}, distributed {distributed.__version__}, "
        f"NumPy {np.__version__}, Python {platform.python_version()}.",
        "",
        *table(rows),
        "",
        f"Two workers are {rows[1]['_seconds'] / rows[2]['_seconds']:.2f} times as fast as one; "
        f"by the processor time of the busiest worker, which other processes disturb less, "
        f"{rows[1]['_busiest'] / rows[2]['_busiest']:.2f} times.  All counts are the same, bit by "
        "bit.  A dense message would have "
        f"{8 * whole.n_folds * n * V / 1e6:,.0f} MB.  The whole has {whole.counts.nnz:,} entries, "
        f"by the model {plan.entries(in_window):,.0f}; one core joins "
        f"{join_rate(whole) / 1e6:,.0f} M entries a second.",
        "",
        f"The reduction of {SMALL.shards:,} shards of {SMALL.tokens / SMALL.shards:,.0f} tokens on "
        f"{SMALL.workers} workers, simulated with real counts (n = {SMALL.n_positions}, "
        f"V = {SMALL.vocab_size:,}, {SMALL.n_folds} folds), beside the model:",
        "",
        *table(model_rows(SMALL)),
        "",
        "What the model says, at the rate of one worker above and in 16 folds:",
        "",
        *table(costs(tokens / rows[1]["_seconds"])),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "cluster.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
