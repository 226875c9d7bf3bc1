"""Work on many matrices of one size, shared among threads."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from threadpoolctl import ThreadpoolController

from posgeom.root_profiles import threads

Each = Callable[..., Iterator[Any]]  # as map: a function, and iterables of its arguments

SMALL = 128  # rows up to which one thread does the work faster than two


@contextmanager
def side_by_side(n: int) -> Iterator[Each]:
    """A map over threads, for matrices of n rows: as many as BLAS would take, or one for few rows.

    Several threads of BLAS within a small product would wait for each other, 30 times longer.
    """
    libraries = ThreadpoolController()
    workers = 1 if n <= SMALL else threads(libraries)  # before BLAS is held to one for each of them
    with libraries.limit(limits=1), ThreadPoolExecutor(workers) as pool:
        yield map if n <= SMALL else pool.map
