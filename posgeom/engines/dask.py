"""Shards counted on a Dask cluster: one task each, and their counts joined two by two."""

import asyncio
import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, wait
from contextlib import ExitStack, contextmanager
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import posgeom
from posgeom.counts import PositionCounts
from posgeom.errors import PosgeomError
from posgeom.files import first_line
from posgeom.pieces import Shard
from posgeom.shards import Advance, Engine, Finished, Job, Part, naming

if TYPE_CHECKING:
    from distributed import Client, Future

CONNECTING = 10  # seconds until a scheduler counts as unreachable
ASKING = 20  # seconds without news until it is asked whether it is there
JOINING = 60  # seconds until the first worker must be there


def dask_engine(address: str) -> Engine:
    """The Engine of a Dask cluster: the address of its scheduler, or local:N for N processes here.

    Raises PosgeomError for what is no address, and where Dask is not installed.
    """
    try:
        from distributed.comm.addressing import get_address_host_port
    except ImportError as error:
        raise PosgeomError(
            '--dask needs the package distributed; install it: pip install "dask[distributed]"'
        ) from error
    kind, _, number = address.partition(":")
    if kind == "local":
        if not (number.isdigit() and int(number) > 0):
            raise PosgeomError(f"--dask {address} came; give local:N with N processes, 1 or more")
    else:
        try:
            get_address_host_port(address)
        except ValueError as error:
            raise _unreachable(address, first_line(error)) from error
    return partial(_count_on_dask, address)


def _count_on_dask(
    address: str,
    job: Job,
    runs: Sequence[Sequence[Part]],
    finished: Finished,
    advance: Advance,
) -> list[PositionCounts]:
    """The counts of each run of parts.

    They stay on the workers and are joined there, neighbours first, in a tree.  This process
    gets the counts of each part once, to keep them: workers of a cluster share no disk with it
    that could be counted on.  At the end it gets those of each run.
    Raises PosgeomError for a cluster that cannot be reached, or that goes away.
    """
    shard_of: dict[object, Shard] = {}
    part_of: dict[object, Part] = {}
    with _client(address) as client, _told(address, shard_of):
        with warnings.catch_warnings():  # of the size of the tokenizer
            warnings.simplefilter("ignore", UserWarning)
            # a task, not scattered data: it goes from worker to worker, and is made anew when lost
            shared = client.submit(_same, job, pure=False)
        waiting: list[Future[Any]] = []
        roots = []
        for run in runs:
            parts = []
            for part in run:
                leaves = [client.submit(_count, shared, s, pure=False) for s in part.shards]
                shard_of |= zip((leaf.key for leaf in leaves), part.shards, strict=True)
                parts.append(_tree(client, leaves))
                part_of[parts[-1].key] = part
                waiting += dict.fromkeys((*leaves, parts[-1]))  # a part may be its only shard
            roots.append(_tree(client, parts))
        del leaves, parts  # a future that is held here holds its counts on the workers
        for future in _finished(client, waiting):
            if future.status != "finished":
                raise future.exception() or CancelledError
            if future.key in part_of:
                finished(part_of[future.key], _gathered(client, [future])[0])
            advance(future.key in shard_of)
        return _gathered(client, roots)


def _finished(client: "Client", futures: "list[Future[Any]]") -> Iterator["Future[Any]"]:
    """The futures, as they finish or fail; the list is emptied.

    Raises TimeoutError where the scheduler no longer answers.
    """
    from distributed import as_completed

    waiting = as_completed(futures, loop=client.loop)
    futures.clear()
    asked = monotonic()
    while waiting.count():
        if waiting.has_ready():
            future = next(waiting)
            if future.status in ("lost", "pending"):  # its worker died: it is counted again
                waiting.add(future)
            else:
                yield future
        elif monotonic() - asked < ASKING:
            sleep(0.05)
        else:
            _ask(client)
            asked = monotonic()


def _gathered(client: "Client", futures: "list[Future[Any]]") -> list[PositionCounts]:
    """The results of futures; TimeoutError as above."""
    loop: Any = client.loop
    coming = asyncio.run_coroutine_threadsafe(
        client.gather(futures, asynchronous=True), loop.asyncio_loop
    )
    while not wait([coming], ASKING).done:
        _ask(client)
    return list(coming.result())


def _ask(client: "Client") -> None:
    # a scheduler that hangs keeps its connections
    client.sync(client._update_scheduler_info, callback_timeout=CONNECTING)


def _same(job: Job) -> Job:
    return job


def _count(job: Job, shard: Shard) -> PositionCounts:
    return job.count(shard)


def _tree(client: "Client", futures: Iterable["Future[Any]"]) -> "Future[Any]":
    """Neighbours joined two by two, each join as soon as both sides can be there."""
    stack: list[tuple[int, Future[Any]]] = []  # sizes fall, as the digits of a binary number
    for future in futures:
        size = 1
        while stack and stack[-1][0] == size:
            future = _join(client, stack.pop()[1], future)
            size *= 2
        stack.append((size, future))
    while len(stack) > 1:
        _, last = stack.pop()
        size, before = stack.pop()
        stack.append((size, _join(client, before, last)))
    return stack[0][1]


def _join(client: "Client", first: "Future[Any]", rest: "Future[Any]") -> "Future[Any]":
    return client.submit(PositionCounts.followed_by, first, rest, pure=False)


@contextmanager
def _told(address: str, shard_of: Mapping[object, Shard]) -> Iterator[None]:
    """What a cluster meets, as a PosgeomError; other errors are the tasks' own, and bugs."""
    from distributed import KilledWorker

    try:
        yield
    except KilledWorker as error:
        # Dask suspects whatever waited on a worker that died, and names the first of these
        message = (
            "the workers that were to count it died, perhaps for want of memory; cut it, or the "
            "shards beside it, into smaller ones"
        )
        shard = shard_of.get(error.task)
        raise PosgeomError(naming(shard, message) if shard else message) from error
    except (CancelledError, OSError) as error:
        raise PosgeomError(
            f"the Dask scheduler at {address} has gone away; start it again"
        ) from error


@contextmanager
def _client(address: str) -> Iterator["Client"]:
    """A client of the scheduler at an address, or of a cluster of N processes for local:N."""
    from distributed import Client, LocalCluster

    # what goes wrong is told once, by an error; Dask's threads log it even after the end
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    with ExitStack() as stack:
        try:
            where: Any = address
            if address.startswith("local:"):
                where = LocalCluster(
                    n_workers=int(address.removeprefix("local:")),
                    threads_per_worker=1,
                    dashboard_address=":0",
                    silence_logs=logging.CRITICAL,
                    # a worker is a core
                    env={"TOKENIZERS_PARALLELISM": "false", "NUMBA_NUM_THREADS": "1"},
                )
                stack.enter_context(where)
            client = Client(where, timeout=CONNECTING, set_as_default=False)
            stack.enter_context(client)
            client.wait_for_workers(1, timeout=JOINING)
            versions = set(client.run(_version).values())
        except TimeoutError as error:
            raise _unreachable(address, "no answer, or no worker") from error
        except (OSError, ImportError) as error:
            raise _unreachable(address, first_line(error)) from error
        if versions != {posgeom.__version__}:
            raise PosgeomError(
                f"--dask {address} has workers with posgeom {', '.join(sorted(versions))}, this is "
                f"{posgeom.__version__}; install one version everywhere"
            )
        yield client


def _version() -> str:
    return posgeom.__version__


def _unreachable(address: str, why: str) -> PosgeomError:
    return PosgeomError(
        f"--dask {address} cannot be used ({why}); give the address of a Dask scheduler whose "
        "workers have posgeom, such as tcp://host:8786, or local:4"
    )
