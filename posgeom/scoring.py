"""One table: how well each encoding fits a corpus."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from posgeom.designers import DESIGNERS
from posgeom.encodings import Alibi, Encoding, make_encoding, parse_spec
from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry
from posgeom.stress import (
    monotonicity_violation,
    optimal_scale,
    raw_stress,
    separation,
    spearman,
    stress,
)

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "encoding",
    "family",
    "parameters",
    "stress",
    "stress_raw",
    "scale",
    "kruskal_stress_1",
    "spearman",
    "monotonicity_violation",
    "separation",
    "shift_invariant",
    "note",
)


def score_encodings(
    geometry: Geometry,
    encodings: Iterable[str | Encoding],
    dim: int = 128,
    *,
    seed: int = 0,
    per_head: bool = False,
) -> "pd.DataFrame":
    """Score encodings against a geometry: one row each, in the order given.

    encodings   specs (`sinusoidal`, `rope:base=500000`, `learned:wpe.npy`, `mds:rank=3`) or
                encodings
    dim, seed   for the families that have them, where the spec does not set them
    per_head    a row more for each head of the bias encodings, named `…,head=h`

    Columns: encoding, family, parameters, stress (scale-free, 0..1), stress_raw (Cirrincione's
    Eq. 4), scale (the factor that fits the encoding's distances to the corpus's),
    kruskal_stress_1, spearman, monotonicity_violation (Conjecture 5), separation (least distance
    of two positions, Theorem 4), shift_invariant, note.
    Raises PosgeomError for a spec that cannot be made, and for a corpus whose distances are all 0.
    """
    import pandas as pd

    made = make_encodings(geometry, encodings, dim, seed=seed, per_head=per_head)
    return pd.DataFrame([score(geometry, e) for e in made], columns=list(COLUMNS))


def make_encodings(
    geometry: Geometry,
    encodings: Iterable[str | Encoding],
    dim: int = 128,
    *,
    seed: int = 0,
    per_head: bool = False,
) -> list[Encoding]:
    """The encodings that specs name, known ones and those designed for the geometry."""
    if dim < 1:
        raise PosgeomError(f"--dim {dim} came; give 1 or more")
    made: list[Encoding] = []
    for item in encodings:
        if isinstance(item, Encoding):
            encoding = item
        elif (spec := parse_spec(item)).family in DESIGNERS:
            encoding = DESIGNERS[spec.family](geometry, spec, dim)
        else:
            encoding = make_encoding(item, dim=dim, seed=seed)
        made.append(encoding)
        if per_head and isinstance(encoding, Alibi) and encoding.head is None:
            joint = "," if ":" in encoding.name else ":"
            made += [
                replace(encoding, head=h, spec=f"{encoding.name}{joint}head={h}")
                for h in range(encoding.heads)
            ]
    return made


def score(geometry: Geometry, encoding: Encoding) -> dict[str, object]:
    """One row of score_encodings."""
    δ, D = encoding.distances(geometry.index), geometry.distances
    fit = stress(δ, D)
    return {
        "encoding": encoding.name,
        "family": encoding.family,
        "parameters": encoding.n_parameters,
        "stress": fit,
        "stress_raw": raw_stress(δ, D),
        "scale": optimal_scale(δ, D),
        "kruskal_stress_1": fit**0.5,
        "spearman": spearman(δ, D),
        "monotonicity_violation": monotonicity_violation(δ, D),
        "separation": separation(δ),
        "shift_invariant": encoding.shift_invariant,
        "note": encoding.note,
    }
