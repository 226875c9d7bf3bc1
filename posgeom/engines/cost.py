"""What counting on a cluster costs: time, bytes moved, memory; by a model of how counts fill up."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from posgeom.shards import PARTS

ENTRY = 12  # bytes of an entry that is computed with: an int64 and an int32
ABOUT = 900  # bytes of a message that are no counts: names, folds, provenance
SHIFT = 2.7  # of Zipf's law, as Mandelbrot has it; subword tokens follow it well enough


@dataclass(frozen=True)
class Plan:
    """A corpus, how it is to be counted, and on what.

    tokens      of the whole corpus, all of them on a position
    per_second  tokens that one worker counts in a second
    joined      entries that one worker joins in a second, of both sides together
    """

    tokens: float
    shards: int
    workers: int
    n_positions: int
    vocab_size: int
    n_folds: int = 16
    per_second: float = 1e6
    joined: float = 1e8

    @property
    def hours(self) -> float:
        """Hours of counting, and of the joins that follow the last shard."""
        last = np.ceil(np.log2(max(2, self.shards))) * 2 * self.entries(self.tokens) / self.joined
        return float(self.tokens / self.workers / self.per_second + last) / 3600

    @property
    def moved(self) -> float:
        """Bytes between workers: of each join the smaller side, unless it is there already.

        As if a task were on any worker alike; few workers that take turns send up to twice that.
        """
        each = self.tokens / self.shards
        sides = Counter(min(a, b) for a, b in self._joins())
        moved = sum(joins * self.message(each * size) for size, joins in sides.items())
        return moved * (1 - 1 / self.workers)

    @property
    def kept(self) -> float:
        """Bytes that the client gets and keeps beside OUT until it is written."""
        each = self.tokens / self.shards
        sizes = Counter(self._parts())
        return sum(parts * self.message(each * size) for size, parts in sizes.items())

    @property
    def result(self) -> float:
        """Bytes of the last message, the counts of the whole corpus."""
        return self.message(self.tokens)

    @property
    def memory(self) -> float:
        """Bytes that a worker needs in the last join: both sides, and room for all of both."""
        return 4 * ENTRY * self.entries(self.tokens)

    def entries(self, tokens: float) -> float:
        """Non-zero counts after so many tokens.

        sum over rows and types of 1 − exp(−tokens f_v / rows), rows = K·n and f by Zipf: a token
        falls on each row alike.  Real corpora have fewer, since their tokens come in bursts.
        """
        rows = self.n_folds * self.n_positions
        return rows * float(-np.expm1(-tokens / rows * zipf(self.vocab_size)).sum())

    def message(self, tokens: float) -> float:
        """Bytes of the counts of so many tokens, as they are sent: the narrowest types that do."""
        rows = self.n_folds * self.n_positions
        usual = tokens / rows * zipf(self.vocab_size)[0]
        largest = usual + np.sqrt(2 * usual * np.log(rows))  # in the row that has most of it
        entry = _width(self.vocab_size - 1) + _width(largest)
        entries = self.entries(tokens)
        return ABOUT + entry * entries + _width(entries) * (rows + 1)

    def _parts(self) -> list[int]:
        """How many shards each part has."""
        size = -(-self.shards // PARTS)
        return [min(size, self.shards - k) for k in range(0, self.shards, size)]

    def _joins(self) -> Iterator[tuple[int, int]]:
        """Both sides of each join, in shards: within the parts, then of the parts."""
        for size in self._parts():
            yield from _tree([1] * size)
        yield from _tree(self._parts())


def _tree(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The joins of neighbours two by two, as engines.dask makes them."""
    stack: list[tuple[int, int]] = []  # members, shards
    for size in sizes:
        members = 1
        while stack and stack[-1][0] == members:
            before = stack.pop()[1]
            yield before, size
            members, size = 2 * members, before + size
        stack.append((members, size))
    while len(stack) > 1:
        last, before = stack.pop()[1], stack.pop()[1]
        yield before, last
        stack.append((0, before + last))


@cache
def zipf(vocab_size: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """(V,) shares of the types of a vocabulary, the most frequent first."""
    weights = 1 / (np.arange(vocab_size) + 1 + SHIFT)
    return weights / weights.sum()


def _width(largest: float) -> int:
    """Bytes of the narrowest type that holds numbers up to this."""
    return next(size for size in (1, 2, 4, 8) if largest < 256**size)
