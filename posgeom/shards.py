"""How the shards of a corpus are counted: each by itself, in whatever process, and then joined."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from hashlib import blake2b
from typing import Any, NamedTuple

import posgeom
from posgeom.corpus import Corpus, corpus_of
from posgeom.counting import count_positions
from posgeom.counts import PositionCounts
from posgeom.errors import PosgeomError
from posgeom.files import Reading
from posgeom.pieces import Document, Shard
from posgeom.tokenizer import Tokenizer, load_tokenizer

PARTS = 64  # kept, at most: what an interruption costs, and what they take of the disk, stays small
ATTEMPTS = 3  # of a shard on a cluster, where what fails may be the network
PAUSE = 0.5  # seconds before the second attempt, twice as many before the third
LEFT_OUT = "left out by --skip-bad: "


class Part(NamedTuple):
    """Neighbouring shards, whose counts are kept together under a key."""

    key: str
    shards: tuple[Shard, ...]


@dataclass(frozen=True)
class Job:
    """How every shard of a corpus is counted.

    tokenizer   None for ids; one that grows by its name, so that each shard starts it anew
    counting    the keywords of count_positions that shape the counts
    reading     how the source was opened; options: the same as it was asked for
    attempts    how often a shard is tried before it is called bad
    skip_bad    bad shards are left out, and named in the notes
    """

    name: str
    holds_ids: bool | None
    reading: Reading
    options: dict[str, Any]
    tokenizer: Tokenizer | str | None
    counting: dict[str, Any]
    skip_bad: bool = False
    attempts: int = 1

    @classmethod
    def of(
        cls, source: Corpus, tokenizer: Any, counting: dict[str, Any], options: dict[str, Any]
    ) -> "Job":
        """The job of counting a corpus; what is trained on it is trained here, once for all."""
        made: Tokenizer | str | None = None
        if not source.holds_ids:
            special = counting["special_tokens"]
            made = load_tokenizer(tokenizer, source, special_tokens=special)
            made = made.name if made.grows else made
        reading = replace(source.reading, replaced=0)
        return cls(source.name, source.holds_ids, reading, options, made, counting)

    def key(self, identity: object) -> str:
        """A name for the counts of a part: another one where anything else would be counted."""
        digest = getattr(self.tokenizer, "digest", self.tokenizer)
        how = [posgeom.__version__, self.name, self.options, digest, self.counting, identity]
        return blake2b(json.dumps(how, default=str).encode(), digest_size=16).hexdigest()

    def count(self, shard: Shard) -> PositionCounts:
        """The counts of a shard; PosgeomError names it where it cannot be counted."""
        for attempt in range(self.attempts):
            if attempt:
                time.sleep(PAUSE * 2 ** (attempt - 1))
            try:
                return self.count_corpus(corpus_of(shard, self.name, None, self.reading))
            except (PosgeomError, OSError) as error:
                failure = error
        message = naming(shard, str(failure))
        if not self.skip_bad:
            raise PosgeomError(message)
        if len(shard) > 1:  # one file of several may be to blame
            return joined(self, (self.count((piece,)) for piece in shard))
        nothing = self.nothing()
        notes = (*nothing.provenance.notes, LEFT_OUT + message)
        return replace(nothing, provenance=replace(nothing.provenance, notes=notes))

    def nothing(self) -> PositionCounts:
        """The counts of no document."""
        return self.count_documents(iter(()))

    def count_documents(self, documents: Iterator[Document]) -> PositionCounts:
        """The counts of some documents of the corpus."""
        return self.count_corpus(
            Corpus(self.name, None, lambda _: documents, holds_ids=self.holds_ids, once=True)
        )

    def count_corpus(self, corpus: Corpus) -> PositionCounts:
        """The counts of a part of the corpus; no vocabulary where all parts have the same."""
        counts = count_positions(corpus, self.tokenizer, part=True, **self.counting)
        return counts if isinstance(self.tokenizer, str) else replace(counts, vocabulary=None)

    def whole(self, counts: PositionCounts) -> PositionCounts:
        """The counts of all parts together, with the vocabulary."""
        if self.tokenizer is None or isinstance(self.tokenizer, str):
            return counts
        return replace(counts, vocabulary=self.tokenizer.vocabulary)


def joined(job: Job, counts: Iterable[PositionCounts]) -> PositionCounts:
    """The counts of neighbouring parts as those of one."""
    return reduce(PositionCounts.followed_by, counts, job.nothing())


def left_out(counts: PositionCounts) -> list[str]:
    """The notes of shards that were left out."""
    return [note for note in counts.provenance.notes if note.startswith(LEFT_OUT)]


def naming(shard: Shard, message: str) -> str:
    """A message that says of which shard it is."""
    first, last = shard[0], shard[-1]
    where = first.name if len(shard) == 1 else f"{first.name} to {last.name}"
    return message if any(p.name in message for p in shard) else f"{where}: {message}"


Finished = Callable[[Part, PositionCounts], None]  # is told of a part that is counted
Advance = Callable[[int], object]  # is told of shards that are
Engine = Callable[[Job, Sequence[Sequence[Part]], Finished, Advance], list[PositionCounts]]
# from runs of neighbouring parts to the counts of each run


def count_here(
    job: Job, runs: Sequence[Sequence[Part]], finished: Finished, advance: Advance
) -> list[PositionCounts]:
    """The Engine of one process: one shard after the other."""

    def shard_counts(part: Part) -> Iterable[PositionCounts]:
        for shard in part.shards:
            yield job.count(shard)
            advance(1)

    def part_counts(run: Sequence[Part]) -> Iterable[PositionCounts]:
        for part in run:
            counts = joined(job, shard_counts(part))
            finished(part, counts)
            yield counts

    return [joined(job, part_counts(run)) for run in runs]
