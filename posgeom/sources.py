"""What a job is done on: a corpus to count, counts that are saved, or the folder of a run."""

import inspect
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from posgeom.counting import count_positions
from posgeom.counts import PositionCounts
from posgeom.design import Design, design
from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry, estimate_geometry


def geometry_of(
    source: Any,
    *,
    estimator: str = "debiased",
    metric: str = "hellinger",
    min_count: int = 2,
    **counting: Any,
) -> Geometry:
    """The geometry of saved counts (.npz), of the folder of a run, or of a corpus.

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
    if isinstance(source, str | PathLike) and (Path(source) / "geometry.npz").is_file():
        _refuse_options(f"the run {source}", geometry_of, estimating)
        _refuse_options(f"the run {source}", design, counting)
        return Design.load(source).geometry
    return estimate_geometry(counts_of(source, **counting), **estimating)


def counts_of(source: Any, **counting: Any) -> PositionCounts:
    """The counts of a run or a file (.npz), or of a corpus, which alone heeds the options."""
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
