"""A map over threads that work ahead of who takes their results, but not far ahead."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Any

Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


@contextmanager
def threads_ahead(n: int) -> Iterator[Each]:
    """A map over n threads, 0 or more, its results in the order of the jobs; none outlives it.

    A job for each thread is begun at once, and no more than one beside these while a result is
    waited for, since others wait in memory to be taken; an interruption waits for what is begun.
    Without threads it is map, and each job is done when its result is taken.
    """
    if not n:
        yield map
        return
    pool = ThreadPoolExecutor(n)

    def each(work: Callable[[Any], Any], jobs: Iterable[Any]) -> Iterator[Any]:
        jobs = iter(jobs)
        begun = deque(_begun(pool, work, job) for job in islice(jobs, n))

        def results() -> Iterator[Any]:
            for job in jobs:
                begun.append(_begun(pool, work, job))
                yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()

        return results()

    try:
        yield each
    finally:
        pool.shutdown(cancel_futures=True)


def _begun(pool: ThreadPoolExecutor, work: Callable[[Any], Any], job: Any) -> Future[Any]:
    try:
        return pool.submit(work, job)
    except RuntimeError:  # the main thread has ended; others may go on, but begin none
        done: Future[Any] = Future()
        done.set_result(work(job))
        return done
