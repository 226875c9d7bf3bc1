"""What a job is done on: a corpus to count, counts that are saved, or the folder of a run."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posgeom.counting import count_positions
from posgeom.counts import PositionCounts
from posgeom.design import Design, design
from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry, estimate_geometry
from posgeom.inference import Estimate
from posgeom.long_scores import LONG, score_long
from posgeom.scoring import floor_estimate, score_encodings

if TYPE_CHECKING:
    import pandas as pd

TILED = {"plugin": "plugin", "debiased": "crossed"}  # estimators that need no matrix


@dataclass(frozen=True, eq=False)
class Scored:
    """Scores of encodings, the shift-invariant floor, and what a reader should know."""

    scores: "pd.DataFrame" = field(repr=False)
    floor: Estimate
    estimator: str
    notes: tuple[str, ...]


def scores_of(
    source: Any,
    encodings: Iterable[str],
    *,
    dim: int = 128,
    seed: int = 0,
    per_head: bool = False,
    estimator: str = "debiased",
    metric: str = "hellinger",
    min_count: int = 2,
    progress: bool = False,
    **counting: Any,
) -> Scored:
    """Scores against what geometry_of takes; above 8,192 positions from tiles, see score_long.

    Raises PosgeomError as geometry_of does, and for what tiles cannot give.
    """
    estimating: dict[str, Any] = {
        "estimator": estimator,
        "metric": metric,
        "min_count": min_count,
    }
    if not _is_run(source):
        source = counts_of(source, **counting, progress=progress)
        if source.n_positions > LONG and source.grid is None:
            return _long_scores(source, encodings, dim, seed, per_head, progress, **estimating)
        counting = {}
    geometry = geometry_of(source, **estimating, **counting, progress=progress)
    scores = score_encodings(
        geometry, encodings, dim, seed=seed, per_head=per_head, progress=progress
    )
    return Scored(scores, floor_estimate(geometry), geometry.estimator, geometry.notes)


def _long_scores(
    counts: PositionCounts,
    encodings: Iterable[str],
    dim: int,
    seed: int,
    per_head: bool,
    progress: bool,
    estimator: str,
    metric: str,
    min_count: int,
) -> Scored:
    if estimator not in TILED or metric != "hellinger" or per_head:
        raise PosgeomError(
            f"{counts.n_positions:,} positions are scored tile by tile, by --estimator "
            f"{' or '.join(TILED)}, --metric hellinger and without --per-head; "
            f"for others count up to --positions {LONG}"
        )
    found = score_long(
        counts,
        encodings,
        dim,
        estimator=TILED[estimator],
        min_count=min_count,
        seed=seed,
        progress=progress,
    )
    return Scored(found.scores, found.floor, estimator, found.notes)


def geometry_of(
    source: Any,
    *,
    estimator: str = "debiased",
    metric: str = "hellinger",
    min_count: int = 2,
    **counting: Any,
) -> Geometry:
    """The geometry of counts, saved or at hand, of the folder of a run, or of a corpus.

    A run keeps its own geometry; counts and corpora are estimated as asked.  counting: the
    keywords of count_positions.
    Raises PosgeomError for options that cannot be heeded: a run is estimated already, and counts
    are counted.
    """
    estimating: dict[str, Any] = {
        "estimator": estimator,
        "metric": metric,
        "min_count": min_count,
    }
    if _is_run(source):
        _refuse_options(f"the run {source}", geometry_of, estimating)
        _refuse_options(f"the run {source}", design, counting)
        return Design.load(source).geometry
    progress = bool(counting.get("progress"))
    return estimate_geometry(counts_of(source, **counting), **estimating, progress=progress)


def _is_run(source: Any) -> bool:
    return isinstance(source, str | PathLike) and (Path(source) / "geometry.npz").is_file()


def counts_of(source: Any, **counting: Any) -> PositionCounts:
    """The counts of a run or a file (.npz), or of a corpus, which alone heeds the options."""
    if isinstance(source, PositionCounts):
        return source
    if isinstance(source, str | PathLike) and (Path(source) / "counts.npz").is_file():
        _refuse_options(f"the run {source}", design, counting)
        return PositionCounts.load(Path(source) / "counts.npz")
    if isinstance(source, str | PathLike) and Path(source).suffix == ".npz":
        _refuse_options(f"the counts {source}", design, counting)
        return PositionCounts.load(source)
    return count_positions(source, **counting)


def _refuse_options(what: str, job: Callable[..., Any], options: dict[str, Any]) -> None:
    """Raise PosgeomError for an option that is not at its default."""
    for name, parameter in inspect.signature(job).parameters.items():
        if name in options and name != "progress" and options[name] != parameter.default:
            flag = "--" + name.replace("_", "-")
            raise PosgeomError(f"{flag} does not apply to {what}; leave it out, or give a corpus")
