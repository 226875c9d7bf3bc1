"""Corpora drawn from distributions that are known: the truth to hold estimates against."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

SHAPES = ("blocks", "mixture", "none")
_BATCH = 1_000  # documents drawn at a time


@dataclass(frozen=True)
class SyntheticCorpus:
    """Documents of token ids whose distribution at each position is known.

    Three base distributions over `vocabulary` tokens, each a Zipf law in a random order of its
    own; position i draws from a mixture of them that its place decides:

    blocks    the first third of the positions draws from the first, the next from the second, …
    mixture   a smooth passage from the first over the second to the third
    none      an equal mixture everywhere: no positional structure

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
        """(3, V) base distributions."""
        zipf = np.arange(1.0, self.vocabulary + 1) ** -self.zipf
        rng = np.random.default_rng([self.seed, 0])
        return np.stack([rng.permutation(zipf) for _ in range(3)]) / zipf.sum()

    @property
    def weights(self) -> FloatArray:
        """(n, 3) shares of the base distributions at each position; rows sum to 1."""
        n = self.positions
        if self.shape == "none":
            return np.full((n, 3), 1 / 3)
        if self.shape == "blocks":
            return np.eye(3)[np.arange(n) * 3 // n]
        t = 2 * np.arange(n) / (n - 1)
        return np.maximum(0, 1 - np.abs(t[:, None] - np.arange(3)))

    @property
    def profiles(self) -> csr_array:
        """(n, V) true distributions of the positions; see posgeom.true_geometry."""
        return csr_array(self.weights @ self.bases)

    def __iter__(self) -> Iterator[IntArray]:
        rng = np.random.default_rng([self.seed, 1])
        cumulative = np.cumsum(self.bases, axis=1)
        shares = np.cumsum(self.weights, axis=1)
        n, shortest = self.positions, round(self.positions * (1 - self.shortening))
        for start in range(0, self.documents, _BATCH):
            m = min(_BATCH, self.documents - start)
            base = (rng.random((m, n, 1)) > shares[:, :2]).sum(axis=2)
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
