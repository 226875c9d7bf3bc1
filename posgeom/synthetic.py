"""Corpora drawn from distributions that are known: the truth to hold estimates against."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

SHAPES = ("blocks", "mixture", "line", "decay", "periodic", "circle", "none")
PERIOD, ROUND = 8, 8  # positions in a record; distributions on the circle
_BATCH = 1_000  # documents drawn at a time


@dataclass(frozen=True)
class SyntheticCorpus:
    """Documents of token ids whose distribution at each position is known.

    Base distributions over `vocabulary` tokens, each a Zipf law in a random order of its own;
    position i draws from a mixture of them that its place decides:

    blocks    the first third of the positions draws from the first of three bases, and so on
    mixture   a smooth passage from the first of three bases over the second to the third
    line      from one base towards another without common tokens, at even steps of the angle
              between their roots: the Hellinger distances are nearly those of a line
    decay     a beginning of its own that fades, weight 0.8 exp(−i/3), over a common base
    periodic  records of eight positions, each with a base of its own, over a common mixture
    circle    once around eight bases without common tokens: distances depend on offsets alone
    none      one base everywhere: no positional structure

    positions    n, length of the longest documents
    documents    how many
    zipf         exponent of the Zipf law, 0 or more
    shortening   share of the documents that end before the last position, in 0..1; lengths fall
                 evenly
    seed         equal seeds give equal corpora
    """

    shape: str = "blocks"
    positions: int = 32
    vocabulary: int = 1_000
    documents: int = 5_000
    zipf: float = 1.0
    shortening: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise PosgeomError(f"shape {self.shape!r} is not known; use {', '.join(SHAPES)}")
        if min(self.positions, self.vocabulary) < 2 or self.documents < 1:
            raise PosgeomError(
                f"synthetic came with positions={self.positions}, vocabulary={self.vocabulary}, "
                f"documents={self.documents}; it needs 2 positions, 2 tokens and a document"
            )
        if self.zipf < 0 or not 0 <= self.shortening <= 1:
            raise PosgeomError(
                f"synthetic came with zipf={self.zipf}, shortening={self.shortening}; "
                "zipf must be 0 or more, shortening 0 to 1"
            )

    @property
    def bases(self) -> FloatArray:
        """(B, V) base distributions; of a line and a circle no two share a token."""
        zipf = np.arange(1.0, self.vocabulary + 1) ** -self.zipf
        rng = np.random.default_rng([self.seed, 0])
        n_bases = self.weights.shape[1]
        if self.shape in ("line", "circle"):
            # dealt out like cards, by rank, so that all have nearly the same law
            dealt = np.arange(self.vocabulary) % n_bases == np.arange(n_bases)[:, None]
            laws = (dealt * zipf)[:, rng.permutation(self.vocabulary)]
        else:
            laws = np.stack([rng.permutation(zipf) for _ in range(n_bases)])
        return laws / laws.sum(axis=1, keepdims=True)

    @property
    def weights(self) -> FloatArray:
        """(n, B) shares of the base distributions at each position; rows sum to 1."""
        n = self.positions
        i = np.arange(n)
        if self.shape == "blocks":
            return np.eye(3)[i * 3 // n]
        if self.shape == "mixture":
            return np.maximum(0, 1 - np.abs(2 * i[:, None] / (n - 1) - np.arange(3)))
        if self.shape == "line":
            angle = 0.6 * i / (n - 1)
            return np.column_stack([np.cos(angle) ** 2, np.sin(angle) ** 2])
        if self.shape == "decay":
            own = 0.8 * np.exp(-i / 3)
            return np.column_stack([1 - own, own])
        if self.shape == "periodic":
            return (0.4 * np.eye(PERIOD) + 0.6 / PERIOD)[i % PERIOD]
        if self.shape == "circle":
            turn = 2 * np.pi * (i[:, None] / n - np.arange(ROUND) / ROUND)
            return (1 + 0.9 * np.cos(turn)) / ROUND
        return np.ones((n, 1))

    @property
    def profiles(self) -> csr_array:
        """(n, V) true distributions of the positions; see posgeom.true_geometry."""
        return csr_array(self.weights @ self.bases)

    def counts(self, folds: int = 16) -> list[NDArray[np.int64]]:
        """(n, V) token counts of each fold: in law what counting the documents gives, but drawn
        at once, since the tokens are independent."""
        rng = np.random.default_rng([self.seed, 2])
        P = self.profiles.toarray()
        shortest = max(1, round(self.positions * (1 - self.shortening)))
        drawn = []
        for documents in rng.multinomial(self.documents, np.full(folds, 1 / folds)):
            lengths = rng.integers(shortest, self.positions, documents, endpoint=True)
            N = (lengths[:, None] > np.arange(self.positions)).sum(axis=0)
            drawn.append(rng.multinomial(N, P))
        return drawn

    def __iter__(self) -> Iterator[IntArray]:
        rng = np.random.default_rng([self.seed, 1])
        cumulative = np.cumsum(self.bases, axis=1)
        shares = np.cumsum(self.weights, axis=1)
        n, shortest = self.positions, round(self.positions * (1 - self.shortening))
        for start in range(0, self.documents, _BATCH):
            m = min(_BATCH, self.documents - start)
            base = (rng.random((m, n, 1)) > shares[:, :-1]).sum(axis=2)
            ids = np.empty((m, n), dtype=np.int64)
            for b, steps in enumerate(cumulative):
                here = base == b
                drawn = np.searchsorted(steps, rng.random(int(here.sum())), side="right")
                ids[here] = np.minimum(drawn, self.vocabulary - 1)
            lengths = np.full(m, n)
            if self.shortening:
                lengths = rng.integers(max(1, shortest), n, m, endpoint=True)
            yield from (row[:length] for row, length in zip(ids, lengths, strict=True))


def synthetic_corpus(**options: object) -> SyntheticCorpus:
    """The corpus of a spec `synthetic:shape=mixture,positions=64`; PosgeomError if none."""
    try:
        return SyntheticCorpus(**options)  # type: ignore[arg-type]
    except TypeError as error:
        known = ", ".join(SyntheticCorpus.__dataclass_fields__)
        raise PosgeomError(f"synthetic: {error}; its options are {known}") from None
