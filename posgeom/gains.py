"""What an encoding made for a corpus gains over the known ones, and how near it is to its floor."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posgeom.designers import DESIGNERS
from posgeom.designers.designed import DesignedTable, own_rank
from posgeom.designers.extension import HIDDEN, LEAST_POSITIONS, METHODS, extend, held_out_stress
from posgeom.designers.families import Candidate
from posgeom.designers.floors import rank_floor
from posgeom.encodings import FAMILIES, Encoding, parse_spec, spec_of
from posgeom.geometry import Geometry
from posgeom.inference import Estimate, condensed, jackknife, signed_root, stress_of
from posgeom.mds import classical_mds
from posgeom.scoring import check_structure, encoding_distances, floor_estimate, make_encodings
from posgeom.smacof import principal_axes
from posgeom.stress import offset_groups

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]

UNSEEN = METHODS[1:]  # extensions that need no counts at the new positions, as no fit does

COLUMNS = (
    "encoding",
    "spec",
    "parameters",
    "stress",
    "stress_se",
    "beside",
    "stress_beside",
    "gain",
    "gain_se",
    "gain_low",
    "gain_high",
    "floor",
    "floor_found",
)
HELD_OUT_COLUMNS = ("held_out", "held_out_se", "extension", "held_out_beside")


def gains(
    geometry: Geometry,
    candidates: Iterable[Candidate],
    dim: int = 128,
    *,
    seed: int = 0,
    held_out: bool = False,
    hidden: float = HIDDEN,
) -> "pd.DataFrame":
    """What designs gain: one row each, in the order given.

    candidates   see posgeom.designers.families
    dim, seed    as for score_encodings
    held_out     whether to measure also how they do beyond the positions that they were made of,
    hidden       by this share of the positions, the last

    Columns: encoding; spec, which makes the fitted encoding without the corpus ("" for tables);
    parameters; stress and stress_se, as in score_encodings; beside, the known counterpart of
    least stress, and stress_beside; gain, stress_beside − stress, with gain_se and its 95%
    interval gain_low, gain_high; floor, which no encoding of its kind can be below; floor_found,
    the least that was found of its kind.

    The gain is a jackknife of the difference, so that what both share drops out.  It is corrected
    for bias where the stresses are: not where one is of a table made from this sample, whose
    stress is that of the fit, and its gain with it.
    The floor of encodings by offset is that of posgeom.stress, over offsets in rows and columns
    for encodings of grids, corrected for bias as everywhere; of tables, what is proved of their
    rank, see posgeom.designers.floors, for the distances as they are estimated.  The least found
    of encodings by offset is the mean distance at each offset, judged as encodings are.  What a
    fit took of the sample's noise, no correction takes off: by that it may stand below its floor.

    With held_out: held_out and held_out_se, the stress over pairs that touch a hidden position
    when the rest alone is known; for tables by the better of the ways to carry them
    on that need no counts there, named in extension; held_out_beside, that of the counterpart.
    NaN for tables on a grid, for fewer than eight positions, and where those that are not hidden
    are all alike.

    Raises PosgeomError for a spec that cannot be made and for a corpus without structure.
    """
    import pandas as pd

    check_structure(geometry)
    candidates = list(candidates)
    specs = dict.fromkeys(s for c in candidates for s in (c.spec, *c.beside))
    made = zip(specs, make_encodings(geometry, specs, dim, seed=seed), strict=True)
    judged = {spec: _Judged(geometry, encoding, dim, seed, hidden) for spec, encoding in made}
    floors = _Floors(geometry)
    rows = []
    for candidate in candidates:
        beside = [judged[spec] for spec in candidate.beside]
        best = min(beside, key=lambda known: known.stress.value, default=None)
        rows.append(_row(geometry, judged[candidate.spec], best, floors, held_out=held_out))
    return pd.DataFrame(rows, columns=[*COLUMNS, *(HELD_OUT_COLUMNS if held_out else ())])


@dataclass(frozen=True, eq=False)
class _Judged:
    """An encoding with its numbers against a geometry; a class, so that each is found once."""

    geometry: Geometry
    encoding: Encoding
    dim: int
    seed: int
    hidden: float

    @property
    def in_sample(self) -> bool:
        """Whether it follows the noise of this sample; a few fitted parameters hardly can."""
        return isinstance(self.encoding, DesignedTable)

    @cached_property
    def δ(self) -> FloatArray:
        """Distances of all pairs, (n(n−1)/2,)."""
        return condensed(encoding_distances(self.geometry, self.encoding))

    @cached_property
    def stress(self) -> Estimate:
        """As score_encodings has it."""
        return jackknife(
            stress_of(self.δ), self.geometry, bounds=(0, 1), correct=not self.in_sample
        )

    @cached_property
    def held_out(self) -> tuple[Estimate, str]:
        """Stress beyond the positions that it was made of, and how it was carried there."""
        geometry = self.geometry
        none = Estimate(float("nan")), ""
        if geometry.n_positions < LEAST_POSITIONS:
            return none
        if not isinstance(self.encoding, DesignedTable):
            return held_out_stress(geometry, self._anew, self.hidden), ""
        if geometry.grid is not None:
            return none
        found = held_out_table(geometry, self.encoding, self.dim, self.hidden)
        extension = min(UNSEEN, key=lambda name: _rising(found[name].value))
        return found[extension], extension

    def _anew(self, geometry: Geometry) -> Encoding:
        return make_encodings(geometry, [self.encoding.name], self.dim, seed=self.seed)[0]


def held_out_table(
    geometry: Geometry, table: DesignedTable, dim: int, hidden: float
) -> dict[str, Estimate]:
    """Held-out stress of a designed table by each method of extend."""
    spec = parse_spec(table.name)
    rank = spanned(table)

    def fit(shown: Geometry, _: int) -> FloatArray:
        r = min(rank, own_rank(classical_mds(shown.squared, squared=True), dim))
        ranked = replace(spec, options=spec.options | {"rank": str(r)})
        return coordinates(DESIGNERS[spec.family](shown, ranked, dim), r)

    length = int(geometry.index[-1]) + 1
    found = extend(
        geometry,
        coordinates(table, rank),
        length,
        fit=None if table.family == "mds" else fit,
        optimal=table.family == "stress",
        hidden=hidden,
    )
    return found.held_out


def spanned(table: DesignedTable) -> int:
    """The dimensions that the rows of a table span about their mean, 1 or more."""
    rows = table.rows - table.rows.mean(axis=0)
    return max(1, int(np.linalg.matrix_rank(rows)))


def coordinates(table: Encoding, rank: int) -> FloatArray:
    """(n, r) first principal coordinates of a table's rows, which have its distances."""
    assert isinstance(table, DesignedTable)
    return principal_axes(table.rows)[:, :rank]


class _Floors:
    """The floors of one geometry, each found once: by rank, by axes."""

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        self._found: dict[tuple[str, int], tuple[float, float]] = {}

    def of(self, judged: _Judged) -> tuple[float, float]:
        """What no encoding of its kind can be below, and the least that was found."""
        encoding = judged.encoding
        if isinstance(encoding, DesignedTable):
            rank = spanned(encoding)
            proved, found = self._once("rank", rank, self._of_rank)
            return proved, min(found, judged.stress.value)
        return self._once("axes", encoding.n_axes, self._by_offset)

    def _once(
        self, kind: str, number: int, find: Callable[[int], tuple[float, float]]
    ) -> tuple[float, float]:
        key = kind, number
        if key not in self._found:
            self._found[key] = find(number)
        return self._found[key]

    def _of_rank(self, rank: int) -> tuple[float, float]:
        floor = rank_floor(self._geometry, rank)
        return floor.proved, floor.found

    def _by_offset(self, axes: int) -> tuple[float, float]:
        g = self._geometry
        seen = replace(g, positions=g.positions_for(axes), grid=None)  # flat numbers or cells
        groups = offset_groups(seen.n_positions, seen.positions)
        D = signed_root(condensed(seen.squared))
        means = np.bincount(groups, D) / np.bincount(groups)
        best = jackknife(stress_of(means[groups]), seen, bounds=(0, 1))
        return floor_estimate(seen).value, best.value


def _row(
    geometry: Geometry,
    judged: _Judged,
    beside: _Judged | None,
    floors: _Floors,
    *,
    held_out: bool,
) -> dict[str, Any]:
    """One row of gains."""
    encoding, nan = judged.encoding, float("nan")
    gain = Estimate(nan) if beside is None else gain_of(geometry, judged, beside)
    floor, found = floors.of(judged)
    row = {
        "encoding": encoding.name,
        "spec": spec_of(encoding) if encoding.family in FAMILIES else "",
        "parameters": encoding.n_parameters,
        "stress": judged.stress.value,
        "stress_se": judged.stress.se,
        "beside": "" if beside is None else beside.encoding.name,
        "stress_beside": nan if beside is None else beside.stress.value,
        "gain": gain.value,
        "gain_se": gain.se,
        "gain_low": gain.low,
        "gain_high": gain.high,
        "floor": floor,
        "floor_found": found,
    }
    if held_out:
        estimate, extension = judged.held_out
        row |= {
            "held_out": estimate.value,
            "held_out_se": estimate.se,
            "extension": extension,
            "held_out_beside": nan if beside is None else beside.held_out[0].value,
        }
    return row


def gain_of(geometry: Geometry, judged: _Judged, beside: _Judged) -> Estimate:
    """Stress of the known encoding less that of the designed one, in −1..1, paired."""
    ours, theirs = stress_of(judged.δ), stress_of(beside.δ)
    return jackknife(
        lambda s: theirs(s) - ours(s),
        geometry,
        bounds=(-1, 1),
        correct=not (judged.in_sample or beside.in_sample),
    )


def _rising(value: float) -> float:
    return float(np.nan_to_num(value, nan=np.inf))
