"""What a figure is to the report, and numbers as people write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from posgeom.counts import PositionCounts
    from posgeom.diagnose import Diagnosis
    from posgeom.geometry import Geometry
    from posgeom.inference import Estimate
    from posgeom.mds import MDSResult

FloatArray = NDArray[np.float64]

ROUNDING = 1e-12  # numbers below are shown as 0
BASELINES = ("random", "none")  # what an encoding should beat, not what anyone would choose


class Subject(Protocol):
    """What both reports speak of: a Design has it, and so has what `diagnose` found."""

    @property
    def counts(self) -> PositionCounts: ...
    @property
    def geometry(self) -> Geometry: ...
    @property
    def scores(self) -> pd.DataFrame: ...
    @property
    def floor(self) -> Estimate: ...
    @property
    def diagnosis(self) -> Diagnosis | None: ...
    @property
    def mds(self) -> MDSResult: ...
    @property
    def title(self) -> str: ...


@dataclass(frozen=True)
class Words:
    """Caption: how to read the figure.  Alt: what it shows, with the main numbers."""

    caption: str
    alt: str


S = TypeVar("S", contravariant=True)


@dataclass(frozen=True)
class FigureSpec(Generic[S]):
    """One figure of a report on an S.

    embed     the form that the HTML carries
    margins   left, right, bottom, top in inches where they are known beforehand: to measure all
              letters takes a third of the time that a figure takes
    """

    name: str
    title: str
    size: tuple[float, float]
    embed: Literal["svg", "png"]
    draw: Callable[[S, Figure], Words]
    margins: tuple[float, float, float, float] | None = None


def number(x: float) -> str:
    """x to three significant digits as people write it: 0.0463, 1,240, 3.10 × 10⁻⁵."""
    if not np.isfinite(x):
        return "–" if np.isnan(x) else "∞"
    if abs(x) < ROUNDING:
        return "0"
    if abs(x) >= 1000:
        text = f"{x:,.0f}"
    elif abs(x) < 1e-4:
        mantissa, exponent = f"{x:.2e}".split("e")
        text = f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}"
    else:
        text = f"{x:#.3g}".rstrip(".")
    return text.replace("-", "−")


def with_error(x: float, se: float) -> str:
    """x ± se, 0.330 ± 0.015; x alone where se is not known.

    Both to the second digit of se where that begins with 1 to 3, else to the first.
    """
    if not (np.isfinite(se) and np.isfinite(x)):
        return number(x)
    if se < 1e-6:
        return f"{number(x)} ± {number(se)}"
    decimals = _decimals(se)
    return f"{x:,.{decimals}f} ± {se:,.{decimals}f}".replace("-", "−")


def interval(low: float, high: float) -> str:
    """`0.301 to 0.359`; nothing where the interval is not known."""
    if not np.isfinite(high - low):
        return ""
    decimals = max(3, _decimals((high - low) / 4)) if high - low >= 1e-6 else 3
    return f"{low:,.{decimals}f} to {high:,.{decimals}f}".replace("-", "−")


def estimate(found: Estimate) -> str:
    """An estimate with its error."""
    return with_error(found.value, found.se)


def _decimals(se: float) -> int:
    first, exponent = f"{se:.1e}".split("e")
    return max(0, (1 if float(first) < 3.55 else 0) - int(exponent))


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def by_stress(subject: Subject) -> pd.DataFrame:
    """The scores, best first; encodings that differ by rounding alone stay as they came."""
    return subject.scores.sort_values("stress", kind="stable", key=lambda stress: stress.round(12))


def made_for_corpus(scores: pd.DataFrame) -> NDArray[np.bool_]:
    """(rows,) which encodings were made for the corpus: they fit it by construction."""
    designed: NDArray[np.bool_] = scores["designed"].to_numpy(bool)
    return designed


def stress_texts(scores: pd.DataFrame) -> list[str]:
    """The stress of each row, with its error where it is known."""
    stress, se = column(scores, "stress"), column(scores, "stress_se")
    return [with_error(x, e) for x, e in zip(stress, se, strict=True)]


def coincide(curve: FloatArray, other: FloatArray) -> bool:
    """Whether two curves would be drawn on top of each other."""
    return bool(np.abs(curve - other).max() <= 5e-3 * np.abs(other).max())


def count(k: int, what: str) -> str:
    """`1 position`, `1,200 positions`."""
    return f"{k:,} {what}" if k == 1 else f"{k:,} {what}s"


def join(names: list[str]) -> str:
    """a; a and b; a, b and c; a, b and 7 others."""
    if len(names) > 3:
        names = [*names[:2], f"{len(names) - 2} others"]
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def offsets(geometry: Geometry) -> tuple[FloatArray, str]:
    """For each pair i < j how far apart it stands in the sequence or grid, and that in words."""
    i, j = np.triu_indices(len(geometry.index), 1)
    X = np.asarray(geometry.positions if geometry.grid else geometry.index)
    steps = np.linalg.norm((X[i] - X[j]).reshape(len(i), -1).astype(np.float64), axis=1)
    return steps.round(9), "distance in the grid (cells)" if geometry.grid else "offset |i − j|"


def column(scores: pd.DataFrame, key: str) -> FloatArray:
    """A column of scores as numbers; NaN where it is empty, as errors of plug-in scores are."""
    import pandas as pd

    values = scores.get(key, pd.Series(np.nan, index=scores.index))
    numbers: FloatArray = pd.to_numeric(values, errors="coerce").to_numpy(np.float64)
    return numbers


def neighbours(geometry: Geometry) -> NDArray[np.intp]:
    """Rows of the positions that a line joins, (m, 2): the next one, or the next cell."""
    if not geometry.grid:
        rows = np.arange(len(geometry.index))
        return np.stack([rows[:-1], rows[1:]], axis=1)
    at = {(int(y), int(x)): row for row, (y, x) in enumerate(geometry.positions)}
    joined = [
        (row, at[cell])
        for (y, x), row in at.items()
        for cell in ((y, x + 1), (y + 1, x))
        if cell in at
    ]
    return np.array(joined, dtype=np.intp).reshape(-1, 2)
