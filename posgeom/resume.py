"""Counting that can be interrupted: finished parts are kept beside the file that is being made.

A corpus of several files is cut into shards, files or row groups of parquet; neighbouring shards
make at most PARTS parts, and the counts of a part are kept when it is finished.  A source in one
piece is read in runs of documents instead, which are kept in the same way.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain, groupby, islice
from os import PathLike
from pathlib import Path
from typing import Any

from tqdm import tqdm

from posgeom.corpus import Corpus, open_corpus
from posgeom.counting import completed, count_positions, window_size
from posgeom.counts import PositionCounts
from posgeom.errors import PosgeomError
from posgeom.pieces import Document, Shard, shards
from posgeom.shards import ATTEMPTS, PARTS, Engine, Job, Part, count_here, joined, left_out

RUN = 1 << 24  # characters or ids of a run of documents; later runs are longer
RUNS = 16  # of one length


class Kept:
    """A folder of counts, each under the key of what it counts; made when the first one comes."""

    def __init__(self, folder: Path, *, resumes: bool) -> None:
        self.folder = folder
        self.resumes = resumes

    def __bool__(self) -> bool:
        """Whether anything is kept."""
        return any(self.folder.glob("*.npz"))

    def holds(self, key: str) -> bool:
        """Whether counts were kept under a key."""
        return self._file(key).is_file()

    def load(self, key: str) -> PositionCounts:
        """The counts under a key; PosgeomError where the file was damaged."""
        return PositionCounts.load(self._file(key))

    def save(self, key: str, counts: PositionCounts) -> None:
        """Keep counts under a key: all of them or, where it is interrupted, none."""
        partial_file = self._file(key).with_suffix(".partial")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with open(partial_file, "wb") as data:
                counts.save(data, compressed=False)  # compressing would take as long as counting
            partial_file.replace(self._file(key))
        except OSError as error:
            raise PosgeomError(
                f"{self.folder} cannot be written ({error.strerror or error}); make room, "
                "and go on with --resume"
            ) from error

    def clear(self) -> None:
        """Forget all that is kept."""
        for file in (*self.folder.glob("*.npz"), *self.folder.glob("*.partial")):
            file.unlink()
        with suppress(OSError):  # not there, or it holds what is not ours
            self.folder.rmdir()

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.npz"


@contextmanager
def kept_beside(out: str | PathLike[str], *, resume: bool, force: bool) -> Iterator[Kept]:
    """What an earlier count of `out` left, for as long as this one takes; gone once it succeeds.

    Raises PosgeomError where there is something that is neither to be used nor to be replaced.
    """
    kept = Kept(Path(f"{out}.shards"), resumes=resume)
    if kept and not resume:
        if not force:
            raise PosgeomError(
                f"{kept.folder} holds what an interrupted count has finished; go on with "
                "--resume, or --force to start anew"
            )
        kept.clear()
    yield kept
    kept.clear()


def count_in_shards(
    corpus: Any,
    kept: Kept,
    tokenizer: Any = "words",
    positions: int | None = None,
    align: str = "start",
    *,
    grid: tuple[int, int] | None = None,
    folds: int = 16,
    special_tokens: bool = False,
    part: bool = False,
    skip_bad: bool = False,
    dask: str | None = None,
    progress: bool = False,
    **reading: Any,
) -> PositionCounts:
    """The counts of count_positions, bit by bit, by way of parts that are kept.

    kept        what is finished already, if anything, and where more is put
    skip_bad    leave out shards that cannot be read, and say so in the notes
    dask        address of a scheduler, or local:N for N processes on this machine
    other arguments: see count_positions

    Raises PosgeomError as count_positions does, for a shard that cannot be counted, and for a
    source that cannot be read in the way that was asked for.
    """
    source = open_corpus(corpus, **reading)
    counting: dict[str, Any] = {
        "positions": positions,
        "align": align,
        "grid": grid or source.grid,
        "folds": folds,
        "special_tokens": special_tokens,
    }
    in_files = bool(source.pieces) and all(p.table.file is not None for p in source.pieces)
    if (skip_bad or dask is not None) and not in_files:
        option = "--skip-bad" if dask is None else "--dask"
        raise PosgeomError(
            f"{option} came, but {source.name} cannot be cut into files or row groups; leave it out"
        )
    alone = len(source.streams) == 1 and dask is None and not skip_bad  # faster than it is kept
    if source.source is None or source.once or alone:
        if kept.resumes and source.once:
            raise PosgeomError(
                f"--resume came, but {source.name} can be read only once; give a file"
            )
        return count_positions(source, tokenizer, part=part, progress=progress, **counting)
    window_size(positions, align, counting["grid"], source)  # what it refuses is told at once
    engine = _engine(dask)
    job = Job.of(source, tokenizer, counting, reading)
    job.nothing()  # what cannot be counted at all is told before the work
    cut = shards(source.pieces) if in_files else []
    try:
        if len(cut) > 1 or skip_bad or dask is not None:
            job = replace(job, skip_bad=skip_bad, attempts=1 if dask is None else ATTEMPTS)
            counts = _count_parts(job, _parts(job, cut), kept, engine, progress)
        else:
            counts = _count_runs(job, source, kept, progress)
    except PosgeomError as error:
        if not kept:
            raise
        raise PosgeomError(f"{error}; what is finished is kept, --resume goes on from it") from None
    try:
        if not counts.documents.any() and (bad := left_out(counts)):
            raise PosgeomError(f"nothing of {source.name} could be counted: {bad[0]}")
        counts = job.whole(counts)
        return counts if part else completed(counts, source, positions)
    except PosgeomError:
        kept.clear()  # no use to anyone
        raise


def _engine(dask: str | None) -> Engine:
    if dask is None:
        return count_here
    from posgeom.engines.dask import dask_engine

    return dask_engine(dask)


def _parts(job: Job, cut: list[Shard]) -> list[Part]:
    """Shards in at most PARTS runs of neighbours, as long as each other."""
    size = -(-len(cut) // PARTS)
    runs = [tuple(cut[k : k + size]) for k in range(0, len(cut), size)]
    return [Part(job.key([p.identity for shard in run for p in shard]), run) for run in runs]


def _count_parts(
    job: Job, parts: list[Part], kept: Kept, engine: Engine, progress: bool
) -> PositionCounts:
    """The counts of all parts: those that are kept, and the others counted."""

    def finished(part: Part, counts: PositionCounts) -> None:
        if len(parts) > 1 and not left_out(counts):  # what was left out is tried again
            kept.save(part.key, counts)

    runs = [(done, list(run)) for done, run in groupby(parts, lambda part: kept.holds(part.key))]
    with tqdm(
        desc="count",
        unit=" shards",
        total=_size(parts),
        initial=sum(_size(run) for done, run in runs if done),
        leave=False,
        disable=not progress,
    ) as bar:
        counted = iter(engine(job, [run for done, run in runs if not done], finished, bar.update))
    found = (
        map(kept.load, (part.key for part in run)) if done else [next(counted)]
        for done, run in runs
    )
    return joined(job, chain.from_iterable(found))


def _size(parts: list[Part]) -> int:
    return sum(len(part.shards) for part in parts)


def _count_runs(job: Job, source: Corpus, kept: Kept, progress: bool) -> PositionCounts:
    """The counts of a source in one piece, read in runs of documents that are kept."""
    identity = [piece.identity for piece in source.pieces]
    total, unsaved = job.nothing(), None
    documents = iter(
        tqdm(source, desc="count", unit=" documents", leave=False, disable=not progress)
    )
    for number, first in enumerate(documents):
        if unsaved is not None:  # of the last run nothing is kept: all is done then
            kept.save(*unsaved)
            unsaved = None
        key = job.key([identity, number])
        if kept.holds(key):
            counts = kept.load(key)
            passed = counts.provenance.documents + counts.provenance.skipped
            deque(islice(documents, passed - 1), maxlen=0)
        else:
            run = _run(first, documents, RUN * (1 + number // RUNS))
            counts = job.count_documents(run)
            # bytes are replaced where the source is read, not where the run is
            replaced = source.replaced - total.provenance.replaced
            counts = replace(counts, provenance=replace(counts.provenance, replaced=replaced))
            unsaved = key, counts
        total = total.followed_by(counts)
    return total


def _run(first: Document, documents: Iterator[Document], size: int) -> Iterator[Document]:
    """Documents of so many characters or ids together; the one that reaches them is the last."""
    for document in chain([first], documents):
        yield document
        size -= 0 if document.content is None else len(document.content)
        if size <= 0:
            return
