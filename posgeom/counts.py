"""Token counts by fold, position and token: all that the geometry needs of a corpus."""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from posgeom.errors import PosgeomError

IntArray = NDArray[np.int64]

_FORMAT = 1  # of the saved file
BY_RUN = "run (XXH3)"  # by another hash, equal runs would be in two folds


@dataclass(frozen=True)
class Provenance:
    """Where counts come from.  Sums over shards, so that merged counts say what they hold.

    fingerprint is the sum mod 2^128 of a digest of each document: the same for every order and
    every way of cutting the corpus into shards.  folds_by is what a document's fold is a hash of,
    its "group", the "document" itself or a run of a stream, BY_RUN; "" where that is not known.
    """

    sources: tuple[str, ...] = ()
    tokenizer: str = ""
    tokenizer_digest: str = ""
    special_tokens: bool = False
    align: str = "start"
    folds_by: str = ""
    documents: int = 0
    tokens: int = 0
    longest: int = 0
    skipped: int = 0
    replaced: int = 0
    fingerprint: int = 0
    notes: tuple[str, ...] = ()

    def __add__(self, other: Self) -> "Provenance":
        for key in ("tokenizer_digest", "special_tokens", "align", "folds_by"):
            mine, theirs = getattr(self, key), getattr(other, key)
            unknown = key == "folds_by" and not (mine and theirs)  # or there was no document
            if mine != theirs and not unknown:
                raise PosgeomError(
                    f"counts with {key} {mine!r} and {theirs!r} cannot be added "
                    f"(tokenizers {self.tokenizer} and {other.tokenizer}); "
                    "count both corpora in the same way"
                )
        return replace(
            self,
            sources=tuple(sorted({*self.sources, *other.sources})),
            folds_by=self.folds_by or other.folds_by,
            documents=self.documents + other.documents,
            tokens=self.tokens + other.tokens,
            longest=max(self.longest, other.longest),
            skipped=self.skipped + other.skipped,
            replaced=self.replaced + other.replaced,
            fingerprint=(self.fingerprint + other.fingerprint) % 2**128,
            notes=tuple(dict.fromkeys(self.notes + other.notes)),
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON and TOML; the fingerprint in hexadecimal."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {
            "sources": list(self.sources),
            "notes": list(self.notes),
            "fingerprint": f"{self.fingerprint:032x}",
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of as_dict."""
        plain = {
            "sources": tuple(values["sources"]),
            "notes": tuple(values["notes"]),
            "fingerprint": int(values["fingerprint"], 16),
        }
        return cls(**values | plain)


@dataclass(frozen=True, eq=False)
class PositionCounts:
    """How often each token stands at each position, in K folds of the documents.

    counts       (K·n, V) sparse int64; row k·n + i is position i in fold k
    n_folds      K, a power of two; a document's fold is a hash of its group modulo K
    documents    (K,) documents a fold
    vocabulary   V token strings, or None where the ids are all that is known
    grid         (rows, columns) with rows·columns = n for two-dimensional positions

    Counts of two corpora add: counting a, counting b and adding equals counting both.
    """

    counts: csr_array = field(repr=False)
    n_folds: int
    documents: IntArray = field(repr=False)
    vocabulary: tuple[str, ...] | None = field(default=None, repr=False)
    grid: tuple[int, int] | None = None
    provenance: Provenance = Provenance()

    def __post_init__(self) -> None:
        K, rows = self.n_folds, self.counts.shape[0]
        if K < 1 or K & (K - 1) or rows % K:
            raise PosgeomError(f"{K} folds over {rows} rows; folds must be a power of two")
        if self.grid is not None and self.grid[0] * self.grid[1] != self.n_positions:
            raise PosgeomError(f"grid {self.grid} does not hold {self.n_positions} positions")

    @property
    def n_positions(self) -> int:
        """n, the number of positions counted."""
        return int(self.counts.shape[0]) // self.n_folds

    @property
    def vocab_size(self) -> int:
        """V, the number of different tokens that the counts have room for."""
        return int(self.counts.shape[1])

    @property
    def pooled(self) -> csr_array:
        """(n, V) counts over all folds."""
        return self.folded(1).counts

    @property
    def totals(self) -> IntArray:
        """(n,) tokens a position."""
        return self.fold_totals.sum(axis=0)

    @property
    def fold_totals(self) -> IntArray:
        """(K, n) tokens a fold and position."""
        sums: IntArray = np.asarray(self.counts.sum(axis=1), dtype=np.int64)
        return sums.reshape(self.n_folds, self.n_positions)

    def folded(self, n_folds: int) -> Self:
        """The same counts in fewer folds: fold k goes to fold k mod n_folds.

        Raises PosgeomError unless n_folds is a power of two up to K.
        """
        n, K = self.n_positions, self.n_folds
        if not 1 <= n_folds <= K or n_folds & (n_folds - 1):
            raise PosgeomError(f"{K} folds cannot become {n_folds}; use a power of two up to {K}")
        if n_folds == K:
            return self
        counts = sum_by_row(self.counts, np.arange(K * n) % (n_folds * n), n_folds * n)
        documents = self.documents.reshape(-1, n_folds).sum(axis=0)
        return replace(self, counts=counts, n_folds=n_folds, documents=documents)

    def first(self, n_positions: int) -> Self:
        """The same counts of the first n_positions positions."""
        n, K = self.n_positions, self.n_folds
        if not 1 <= n_positions <= n:
            raise PosgeomError(
                f"{n_positions} positions were asked, the longest document has {n} tokens; "
                f"use --positions {n} or less"
            )
        rows = np.arange(K * n).reshape(K, n)[:, :n_positions].ravel()
        return replace(self, counts=self.counts[rows], grid=None)

    def halved(self) -> Self:
        """Packed counts for blocks half as long: position i + n/2 becomes position i."""
        n, K = self.n_positions, self.n_folds
        half = n // 2
        rows = np.arange(K * n)
        target = rows // n * half + rows % n % half
        return replace(self, counts=sum_by_row(self.counts, target, K * half))

    def __add__(self, other: Self) -> "PositionCounts":
        if (self.n_folds, self.grid) != (other.n_folds, other.grid):
            raise PosgeomError(
                f"counts in {self.n_folds} folds (grid {self.grid}) and {other.n_folds} folds "
                f"(grid {other.grid}) cannot be added; count both corpora in the same way"
            )
        provenance = self.provenance + other.provenance
        _refuse_other_window(*sorted((self, other), key=lambda c: c.n_positions))
        a, b, vocabulary = _one_vocabulary(self, other)
        n, columns = max(self.n_positions, other.n_positions), max(a.shape[1], b.shape[1])
        return replace(
            self,
            # the sum of canonical arrays is one: sorted, and without zeros
            counts=_spread(a, self.n_folds, n, columns) + _spread(b, self.n_folds, n, columns),
            documents=self.documents + other.documents,
            vocabulary=vocabulary,
            provenance=provenance,
        )

    def followed_by(self, other: Self) -> "PositionCounts":
        """The counts of one corpus, of whose documents these are the first and other the rest.

        As `+`, but a packed stream goes on where it stood: position i of other's fold k becomes
        position (i + tokens so far in fold k) mod n.  Streams of ready ids each begin anew.
        """
        goes_on = self.provenance.align == "packed" and other.provenance.folds_by != BY_RUN
        if not goes_on or self.n_positions != other.n_positions:
            return self + other
        K, n = self.n_folds, self.n_positions
        begin = self.fold_totals.sum(axis=1)
        rows = (np.arange(n) - begin[:, None]) % n + n * np.arange(K)[:, None]
        return self + replace(other, counts=other.counts[rows.ravel()])

    def save(self, file: str | PathLike[str] | BinaryIO, *, compressed: bool = True) -> None:
        """Write an .npz without pickled objects; equal counts give equal bytes."""
        write: Any = np.savez_compressed if compressed else np.savez
        write(file, **self._arrays())

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """All that these counts are, as arrays of the narrowest types."""
        about = {
            "format": _FORMAT,
            "n_folds": self.n_folds,
            "grid": self.grid,
            "vocabulary": self.vocabulary,
            "provenance": self.provenance.as_dict(),
        }
        return {
            "data": _narrow(self.counts.data),
            "indices": _narrow(self.counts.indices),
            "indptr": _narrow(self.counts.indptr),
            "shape": np.array(self.counts.shape),
            "documents": self.documents,
            # JSON bytes: a NumPy string array would be as wide as the longest token
            "about": np.frombuffer(json.dumps(about).encode(), dtype=np.uint8),
        }

    def __sizeof__(self) -> int:
        # by it a cluster decides which of two counts to move
        C = self.counts
        return int(C.data.nbytes + C.indices.nbytes + C.indptr.nbytes)

    def __reduce__(self) -> tuple[Any, ...]:
        # what travels between processes is a quarter of the arrays that are computed with
        return _from_arrays, (self._arrays(),)

    @staticmethod
    def load(file: str | PathLike[str] | BinaryIO) -> "PositionCounts":
        """Counts that `save` wrote; PosgeomError for a file that holds none."""
        if isinstance(file, str | PathLike) and not Path(file).is_file():
            raise PosgeomError(f"counts {file} are not there; give a file that was saved by count")
        try:
            with _opened(file) as data, np.load(data, allow_pickle=False) as saved:
                counts = _from_arrays(saved)
            counts.counts.check_format()
            return counts
        except PosgeomError:
            raise
        except Exception as error:  # zip, JSON and array faults: all mean the same to a reader
            raise PosgeomError(f"{file} holds no position counts: {error}") from error


def _opened(file: str | PathLike[str] | BinaryIO) -> AbstractContextManager[BinaryIO]:
    # np.load leaves a broken file open
    return open(file, "rb") if isinstance(file, str | PathLike) else nullcontext(file)


def _from_arrays(arrays: Mapping[str, NDArray[Any]]) -> PositionCounts:
    """The inverse of PositionCounts._arrays."""
    about = json.loads(arrays["about"].tobytes())
    data, shape = arrays["data"].astype(np.int64), tuple(arrays["shape"].tolist())
    index = np.int32 if max(len(data), *shape) < 1 << 31 else np.int64
    indices, indptr = (arrays[name].astype(index) for name in ("indices", "indptr"))
    return PositionCounts(
        counts=csr_array((data, indices, indptr), shape),
        n_folds=about["n_folds"],
        documents=arrays["documents"],
        vocabulary=None if about["vocabulary"] is None else tuple(about["vocabulary"]),
        grid=tuple(about["grid"]) if about["grid"] else None,
        provenance=Provenance.from_dict(about["provenance"]),
    )


def _narrow(numbers: NDArray[np.integer[Any]]) -> NDArray[np.unsignedinteger[Any]]:
    """The same numbers, none negative, in the smallest type that holds them."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def sum_by_row(counts: csr_array, target: IntArray, n_rows: int) -> csr_array:
    """(n_rows, V): row r of counts added to row target[r]."""
    entries = counts.tocoo()
    moved = coo_array((entries.data, (target[entries.row], entries.col)), (n_rows, counts.shape[1]))
    return canonical(moved)


def canonical(counts: coo_array | csr_array) -> csr_array:
    """Counts as int64 CSR with sorted indices and no zeros: equal counts are equal arrays."""
    C = csr_array(counts, dtype=np.int64, copy=True)  # in place, it would change the argument
    C.sum_duplicates()
    C.eliminate_zeros()
    return C


def _spread(counts: csr_array, K: int, n: int, columns: int) -> csr_array:
    """(K·n, columns): counts of fewer positions and tokens laid into a wider frame."""
    own, begins = counts.shape[0] // K, counts.indptr
    if own < n:  # rows without tokens behind those of each fold
        ends = np.repeat(begins[own::own, None], n - own, axis=1)
        begins = np.hstack([begins[1:].reshape(K, own), ends]).ravel()
        begins = np.concatenate([counts.indptr[:1], begins])
    return csr_array((counts.data, counts.indices, begins), (K * n, columns))


def _refuse_other_window(short: PositionCounts, long: PositionCounts) -> None:
    """Raise PosgeomError where positions of `long` would lack tokens that `short` left out."""
    n, p = short.n_positions, short.provenance
    if n == long.n_positions:
        return
    cut = p.align not in ("start", "end") or p.longest > n or (p.tokens and not p.longest)
    if cut:
        raise PosgeomError(
            f"counts of {n} positions and of {long.n_positions} cannot be added: what lay past "
            f"position {n} was left out of the first; count both corpora in the same way"
        )


def _one_vocabulary(
    a: PositionCounts, b: PositionCounts
) -> tuple[csr_array, csr_array, tuple[str, ...] | None]:
    """The counts of a and b over one vocabulary: their own if equal, else the sorted union."""
    if a.vocabulary == b.vocabulary:
        return a.counts, b.counts, a.vocabulary
    if a.vocabulary is None or b.vocabulary is None:
        raise PosgeomError(
            "counts of tokens and counts of bare ids cannot be added; use one tokenizer for both"
        )
    for c in (a, b):  # only vocabularies that grow with the corpus are sorted
        if any(earlier >= later for earlier, later in pairwise(c.vocabulary or ())):
            raise PosgeomError(
                f"counts over {a.vocab_size:,} and {b.vocab_size:,} token types that are not the "
                "same cannot be added; count both corpora in the same way, with one tokenizer"
            )
    vocabulary = tuple(sorted({*a.vocabulary, *b.vocabulary}))
    column = {token: i for i, token in enumerate(vocabulary)}
    counts = [
        rename_columns(c.counts, np.array([column[t] for t in c.vocabulary or ()]), len(column))
        for c in (a, b)
    ]
    return counts[0], counts[1], vocabulary


def rename_columns(counts: csr_array, target: IntArray, n_columns: int) -> csr_array:
    """(rows, n_columns): column v of counts moved to column target[v]."""
    indices = target[counts.indices]
    return canonical(csr_array((counts.data, indices, counts.indptr), (counts.shape[0], n_columns)))
