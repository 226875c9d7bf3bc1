"""Counting on a Dask cluster of real processes, some of which are killed."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager

import cloudpickle
import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import drifting_text
from distributed import Client, LocalCluster
from test_counts import equal

import posgeom
from posgeom import PosgeomError, PositionCounts, count_positions
from posgeom.engines import dask as engine
from posgeom.resume import Kept, count_in_shards
from posgeom.shards import Job
from posgeom.tokenizer import LibraryTokenizer

pytestmark = pytest.mark.slow

PARTS = 12  # shards of the corpus


@contextmanager
def cluster_of(workers, **settings):
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
    ):
        yield cluster


def pids(cluster):
    return [worker.pid for worker in cluster.workers.values()]


@pytest.fixture(scope="module")
def address():
    with cluster_of(2) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """4 parquet files of 3 row groups each."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = drifting_text(480).splitlines()
    for k in range(4):
        rows = lines[k * 120 : (k + 1) * 120]
        table = pa.table({"text": rows, "film": [f"f{len(row) % 9}" for row in rows]})
        pq.write_table(table, folder / f"{k}.parquet", row_group_size=40)
    return folder


class Watched(Kept):
    """Does something when so many parts are kept."""

    def __init__(self, folder, then=lambda: None, after=2):
        super().__init__(folder, resumes=True)
        self.saved, self.then, self.after = [], then, after

    def save(self, key, counts):
        super().save(key, counts)
        self.saved.append(key)
        if len(self.saved) == self.after:
            self.then()


@pytest.fixture
def kept(tmp_path):
    return Watched(tmp_path / "kept")


# -- the same counts ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tokenizer": "train:bpe:300", "align": "packed", "positions": 7},
        {"tokenizer": "chars", "align": "end", "group_field": "film", "folds": 4},
    ],
    ids=["words", "trained, packed", "chars, in groups"],
)
def test_a_cluster_gives_the_counts_of_one_pass(corpus, address, kept, options):
    options = options | {"text_field": "text"}
    counts = count_in_shards(str(corpus), kept, dask=address, **options)
    assert equal(counts, count_positions(str(corpus), **options))
    assert len(kept.saved) == PARTS


def test_streams_of_ids_are_counted_on_a_cluster(tmp_path, address, kept):
    rng = np.random.default_rng(0)
    for k in range(4):
        rng.integers(0, 9, 1_003).astype("<u2").tofile(tmp_path / f"{k}.bin")
    options = {"positions": 8, "align": "packed"}
    counts = count_in_shards(f"{tmp_path}/*.bin", kept, dask=address, **options)
    assert equal(counts, count_positions(f"{tmp_path}/*.bin", **options))
    one = f"{tmp_path}/0.bin"
    counts = count_in_shards(one, kept, dask=address, **options)
    assert equal(counts, count_positions(one, **options))


def test_parts_of_several_shards_are_joined_on_the_workers(corpus, address, kept, monkeypatch):
    monkeypatch.setattr("posgeom.resume.PARTS", 3)
    counts = count_in_shards(str(corpus), kept, dask=address, text_field="text")
    assert equal(counts, count_positions(str(corpus), text_field="text"))
    assert len(kept.saved) == 3


def test_the_command_line_writes_the_same_bytes_with_and_without_a_cluster(
    corpus, posgeom_ok, tmp_path
):
    arguments = ("count", f"file://{corpus}/*.parquet", "--text-field", "text")
    arguments = (*arguments, "--tokenizer", "train:bpe:300", "--json")
    ran = [
        posgeom_ok(*arguments, *more, "--out", tmp_path / name)
        for name, more in [("a.npz", ()), ("b.npz", ("--dask", "local:2"))]
    ]
    assert ran[0].err == ran[1].err
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a.npz", "b.npz"]


def test_a_single_shard_is_a_task_too(tmp_path, address, kept):
    (tmp_path / "a.txt").write_text(drifting_text(30), encoding="utf-8")
    source = str(tmp_path / "a.txt")
    assert equal(count_in_shards(source, kept, dask=address), count_positions(source))


def test_a_worker_gets_the_tokenizer_once(corpus, address, kept):
    def arrivals(dask_worker):
        log = dask_worker.transfer_incoming_log
        return [str(key) for entry in log for key in entry["keys"]]

    def of(client):
        return Counter(key for keys in client.run(arrivals).values() for key in keys)

    with Client(address, set_as_default=False) as client:
        before = of(client)
        count_in_shards(
            str(corpus), kept, "train:bpe:300", dask=address, text_field="text", positions=4
        )
        came = of(client) - before
    jobs = [times for key, times in came.items() if key.startswith("_same")]
    assert sum(jobs) <= 1  # from the worker that had it first to the other


# -- processes that die ---------------------------------------------------------------------------


@pytest.mark.parametrize("killed", [1, 2])
def test_killed_workers_change_nothing(corpus, tmp_path, killed):
    with cluster_of(2) as cluster:

        def kill():
            for pid in pids(cluster)[:killed]:
                os.kill(pid, signal.SIGKILL)

        kept = Watched(tmp_path / "kept", kill)
        options = {"tokenizer": "train:bpe:300", "align": "packed", "text_field": "text"}
        counts = count_in_shards(str(corpus), kept, dask=cluster.scheduler_address, **options)
    assert equal(counts, count_positions(str(corpus), **options))
    assert len(kept.saved) == PARTS


class Deadly(LibraryTokenizer):
    """Kills the process that it meets a certain word in."""

    def encode(self, texts):
        if any("deadly" in text for text in texts):
            os._exit(1)
        return super().encode(texts)


def test_a_shard_that_kills_its_workers_is_named(tmp_path, kept):
    import tokenizers

    (tmp_path / "deadly.txt").write_text("deadly\n" + drifting_text(20), encoding="utf-8")
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the workers cannot import it
    settings = {"distributed.scheduler.allowed-failures": 0}
    with cluster_of(1, **settings) as cluster, pytest.raises(PosgeomError) as error:
        count_in_shards(
            str(tmp_path / "*.txt"),  # one shard: Dask suspects those that wait beside it too
            kept,
            Deadly(backend, "deadly"),
            dask=cluster.scheduler_address,
        )
    assert "deadly.txt: the workers that were to count it died" in str(error.value)


@contextmanager
def scheduler_with(workers):
    """A scheduler in a process of its own, with its workers."""

    def start(*arguments):
        return subprocess.Popen(
            [sys.executable, "-m", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    scheduler = start(
        "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"
    )
    started = [scheduler]
    try:
        line = next(line for line in scheduler.stderr if b"tcp://" in line)
        address = "tcp://" + line.decode().split("tcp://")[1].split()[0]
        worker = ("distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard")
        started += [start(*worker) for _ in range(workers)]
        yield scheduler.pid, address
    finally:
        for process in reversed(started):
            process.kill()
            process.communicate()


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
def test_a_scheduler_that_goes_away_is_told_and_nothing_finished_is_lost(
    corpus, tmp_path, sign, monkeypatch
):
    monkeypatch.setattr(engine, "ASKING", 2)
    monkeypatch.setattr(engine, "CONNECTING", 3)
    options = {"text_field": "text", "align": "packed", "positions": 9}
    with scheduler_with(workers=1) as (pid, address):
        kept = Watched(tmp_path / "kept", lambda: os.kill(pid, sign), after=3)
        begin = time.monotonic()
        with pytest.raises(PosgeomError) as error:
            count_in_shards(str(corpus), kept, dask=address, **options)
        assert time.monotonic() - begin < 60
    assert f"the Dask scheduler at {address} has gone away" in str(error.value)
    assert "--resume goes on" in str(error.value)
    finished = len(kept.saved)
    assert 3 <= finished < PARTS
    counted, count = [], Job.count
    monkeypatch.setattr(Job, "count", lambda *args: counted.append(args) or count(*args))
    assert equal(
        count_in_shards(str(corpus), kept, **options), count_positions(str(corpus), **options)
    )
    assert len(counted) == PARTS - finished


def test_a_cluster_goes_on_where_one_process_stopped(corpus, address, tmp_path):
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        count_in_shards(str(corpus), Watched(tmp_path / "kept", stop, after=5), text_field="text")
    kept = Watched(tmp_path / "kept")
    counts = count_in_shards(str(corpus), kept, dask=address, text_field="text")
    assert equal(counts, count_positions(str(corpus), text_field="text"))
    assert len(kept.saved) == PARTS - 5


def test_an_interrupt_ends_a_local_cluster(corpus, tmp_path, run_cli, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Kept, "save", interrupt)
    arguments = ("--text-field", "text", "--dask", "local:1", "--out", tmp_path / "c.npz")
    assert run_cli("count", corpus, *arguments).code == 130
    assert os.listdir(tmp_path) == []


# -- shards that fail -----------------------------------------------------------------------------


@pytest.fixture
def broken(tmp_path):
    """Six text files, of which the third is no text."""
    folder = tmp_path / "broken"
    folder.mkdir()
    for k in range(6):
        content = drifting_text(20, seed=k).encode() + (b"\xff\n" if k == 2 else b"")
        (folder / f"{k}.txt").write_bytes(content)
    return folder


def test_a_bad_shard_is_named(broken, address, kept):
    with pytest.raises(PosgeomError) as error:
        count_in_shards(str(broken), kept, dask=address)
    assert "2.txt, line 21" in str(error.value)


def test_a_bad_shard_is_left_out_when_asked(broken, address, kept, tmp_path):
    counts = count_in_shards(str(broken), kept, dask=address, skip_bad=True)
    here = Kept(tmp_path / "here", resumes=False)
    assert equal(counts, count_in_shards(str(broken), here, skip_bad=True))
    assert counts.provenance.documents == 100
    assert "2.txt, line 21" in counts.provenance.notes[0]


# -- clusters that cannot be used -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("local:0", "give local:N with N processes"),
        ("local:many", "give local:N with N processes"),
        ("local:", "give local:N with N processes"),
        ("ftp://host:1", "unknown address scheme"),
        ("nowhere", "missing port"),
        ("", "missing port"),
        ("127.0.0.1:9", "Timed out|refused|no answer"),
    ],
)
def test_an_address_that_leads_nowhere_is_told_soon(corpus, kept, address, says, monkeypatch):
    monkeypatch.setattr(engine, "CONNECTING", 2)
    begin = time.monotonic()
    with pytest.raises(PosgeomError, match=says):
        count_in_shards(str(corpus), kept, dask=address, text_field="text")
    assert time.monotonic() - begin < 20
    assert not kept


def test_a_cluster_without_workers_is_told(corpus, kept, monkeypatch):
    monkeypatch.setattr(engine, "JOINING", 1)
    with scheduler_with(workers=0) as (_, address), pytest.raises(PosgeomError, match="no worker"):
        count_in_shards(str(corpus), kept, dask=address, text_field="text")


def test_workers_with_another_version_are_refused(corpus, address, kept, monkeypatch):
    version = posgeom.__version__
    monkeypatch.setattr(posgeom, "__version__", "99.0")
    with pytest.raises(PosgeomError, match=f"workers with posgeom {version}, this is 99"):
        count_in_shards(str(corpus), kept, dask=address, text_field="text")


def test_without_dask_it_is_said_how_to_get_it(corpus, run_cli, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "distributed"]:
        monkeypatch.setitem(sys.modules, name, None)
    arguments = ("--text-field", "text", "--dask", "local:2", "--out", tmp_path / "c.npz")
    ran = run_cli("count", corpus, *arguments)
    assert ran.code == 2
    assert 'install it: pip install "dask[distributed]"' in ran.err
    assert run_cli("count", corpus, "--text-field", "text", "--out", tmp_path / "c.npz").code == 0
    assert isinstance(PositionCounts.load(tmp_path / "c.npz"), PositionCounts)
