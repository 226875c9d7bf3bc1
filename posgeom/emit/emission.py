"""An encoding on its way out: its numbers, and the passport that travels with them."""

import hashlib
import json
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from posgeom.designers import DESIGNERS, LowRank, MDSTable
from posgeom.designers.extension import extend
from posgeom.designers.low_rank import rms_norm
from posgeom.designers.stress_optimal import StressTable
from posgeom.emit.forms import Tensors, as_float32, tensors_of
from posgeom.emit.tail import said_of, with_tail
from posgeom.encodings import (
    Encoding,
    FixedTable,
    LearnedTable,
    Rotary,
    T5Bias,
    TableEncoding,
    XPos,
    parse_spec,
    spec_of,
)
from posgeom.errors import PosgeomError
from posgeom.inference import condensed, jackknife, scale_of, stress_of
from posgeom.passport.found import open_model
from posgeom.scoring import encoding_distances, make_encodings

if TYPE_CHECKING:
    from posgeom.design import Design
    from posgeom.geometry import Geometry

NAMES_A_FILE = {"table", "mlp"}  # options of specs, which mean nothing elsewhere


@dataclass(frozen=True, eq=False)
class Emission:
    """An encoding with its numbers by name, see tensors_of, and its passport, of JSON values.

    passport  encoding, family, spec (null where no spec can hold it), pairing, offset (rows before
              that of position 0), rows_left_behind (those of a model's table), dtype and shape
              of the first tensor, positions, row_positions (where some were left out), row_norm
              (root mean square), attention_factor, gamma and scale_base (xPos), corpus and its
              fingerprint, scale (what fits its distances to the corpus's), stress with error and
              interval; what is not known is left out
    """

    encoding: Encoding
    tensors: Tensors = field(repr=False)
    passport: dict[str, Any]

    @property
    def main(self) -> str:
        """The name of the first tensor, the one that formats of a single array hold."""
        return next(iter(self.tensors))

    @property
    def sealed(self) -> dict[str, Any]:
        """The passport as files hold it, with `sha256`, see digest."""
        return self.passport | {"sha256": digest(self.passport, self.tensors)}


def emission_of(
    design: "Design",
    name: str | None = None,
    extend_to: int | None = None,
    extend_by: str | None = None,
) -> Emission:
    """The encoding of a run; by default its low-rank table, with the factors A and B.

    name        an encoding of its scores, or any other spec, which is made for its geometry
                (`fitted-rope:dim=64`)
    extend_to   a table that ends before is carried to so many positions
    extend_by   how: the run's own table as posgeom.designers.extension.extend does, others as
                with_tail

    Raises PosgeomError for a spec that cannot be made.
    """
    low: LowRank | None = None
    n = int(design.geometry.index[-1]) + 1
    said: dict[str, Any] = {}
    encoding: Encoding
    if name is None:
        encoding, low, said = _own_table(design, extend_to, extend_by)
    else:
        made = make_encodings(
            design.geometry, [name], design.low_rank.dim, seed=design.settings["seed"]
        )
        encoding = made[0]
        encoding, said = carried(encoding, extend_to, extend_by)
    n = max(n, extend_to or 0)
    tensors = tensors_of(encoding, n)
    if low is not None:
        tensors |= {"A": as_float32(low.A), "B": as_float32(low.B)}
    corpus = {
        "corpus": design.title,
        "fingerprint": f"{design.counts.provenance.fingerprint:032x}",
    }
    about = describe(encoding, tensors) | corpus | said | _fit(design.geometry, encoding)
    return Emission(encoding, tensors, about)


def emission_of_model(folder: str | PathLike[str]) -> Emission:
    """The first encoding of a model folder, such as its learned table, for scoring elsewhere.

    Raises PosgeomError as posgeom.passport.open_model does.
    """
    model = open_model(str(folder))
    found = model.found[0]
    tensors = tensors_of(found.encoding, found.max_length or found.trained_length or 1)
    about = describe(replace(found.encoding, spec=f"model:{folder}"), tensors)
    about |= {"model_type": model.config["model_type"]}
    if found.tensor:
        about |= {"tensor": found.tensor, "stored_dtype": found.dtype}
    return Emission(found.encoding, tensors, about)


def carried(encoding: Encoding, to: int | None, by: str | None) -> tuple[Encoding, dict[str, Any]]:
    """A table carried to so many positions, see with_tail, and what its passport says.

    What is defined everywhere stays as it is; PosgeomError where it was said how to carry it.
    """
    if to is not None and isinstance(encoding, FixedTable):
        return with_tail(encoding, to, by)
    if by is not None:
        raise PosgeomError(
            f"--extend-by {by} came, but {encoding.name} is defined everywhere; leave it out"
        )
    return encoding, {}


def describe(encoding: Encoding, tensors: Tensors) -> dict[str, Any]:
    """The passport of an encoding without a corpus."""
    name, main = next(iter(tensors.items()))
    about: dict[str, Any] = {
        "encoding": encoding.name,
        "family": encoding.family,
        "spec": _spec(encoding),
        "pairing": getattr(encoding, "pairing", None),
        "offset": 0,
        "rows_left_behind": encoding.offset if isinstance(encoding, LearnedTable) else None,
        "tensor": name,
        "dtype": str(main.dtype),
        "shape": list(main.shape),
        "parameters": encoding.n_parameters,
        "attention_factor": encoding.attention_factor if isinstance(encoding, Rotary) else None,
    }
    if isinstance(encoding, T5Bias):
        about |= {"max_distance": encoding.max_distance, "causal": encoding.causal}
    if isinstance(encoding, XPos):
        about |= {"gamma": encoding.gamma, "scale_base": encoding.scale_base}
    if "positions" in tensors:
        about |= {"row_positions": tensors["positions"].tolist()}
    if isinstance(encoding, TableEncoding):
        about |= {"positions": len(main), "row_norm": rms_norm(main.astype(np.float64))}
    return {key: value for key, value in about.items() if value is not None or key == "spec"}


def header(passport: dict[str, Any]) -> str:
    """The passport as one line of JSON, the same for the same passport."""
    return json.dumps(passport, sort_keys=True, ensure_ascii=False, allow_nan=False)


def digest(passport: dict[str, Any], tensors: Tensors) -> str:
    """SHA-256 of a passport and the numbers beside it, the same in each format that holds both.

    Numbers as int64 or float64, since JSON does not say which type they had.
    """
    sha = hashlib.sha256(header(passport).encode())
    for name in sorted(tensors):
        x = tensors[name]
        sha.update(f"{name} {x.shape}".encode())
        sha.update(np.ascontiguousarray(x, dtype="<f8" if x.dtype.kind == "f" else "<i8").data)
    return sha.hexdigest()


def _spec(encoding: Encoding) -> str | None:
    """The spec that makes an encoding again anywhere; None where there is none, as for arrays."""
    try:
        spec = spec_of(encoding)
    except PosgeomError:
        return None
    return None if parse_spec(spec).options.keys() & NAMES_A_FILE else spec


def _own_table(
    design: "Design", extend_to: int | None, extend_by: str | None
) -> tuple[FixedTable, LowRank, dict[str, Any]]:
    """The low-rank table of a run, of its own extension or carried on as `posgeom design` does."""
    low = design.extended or design.low_rank
    spec = f"{design.table_family}:rank={low.rank}"
    cls = StressTable if design.table_family == "stress" else MDSTable
    extension = design.extension
    index = design.geometry.index if extension is None else np.arange(len(low.A))
    n = int(index[-1]) + 1
    if extend_to is not None and not extend_to >= n:
        raise PosgeomError(
            f"--extend {extend_to} came, the run has {n} positions; give {n} or more"
        )
    if extend_to is not None and (extend_to > n or extend_by is not None):
        extension = extend(design.geometry, design.low_rank.A, extend_to, extend_by)
        low, index = replace(low, A=extension.A), np.arange(extend_to)
    table = cls(rows=low.table(), index=index, spec=spec, stored_parameters=low.n_parameters)
    if extension is None:
        return table, low, {}
    return table, low, {"extended": said_of(extension, design.geometry.n_positions)}


def _fit(geometry: "Geometry", encoding: Encoding) -> dict[str, Any]:
    """Scale and stress of an encoding against the geometry, as the scores have them."""
    δ = condensed(encoding_distances(geometry, encoding))
    if not δ.any():
        return {}
    correct = encoding.family not in DESIGNERS
    stress = jackknife(stress_of(δ), geometry, bounds=(0, 1), correct=correct)
    scale = jackknife(scale_of(δ), geometry, bounds=(0, np.inf), correct=correct)
    values = {"value": stress.value, "se": stress.se, "low": stress.low, "high": stress.high}
    known = {key: float(value) for key, value in values.items() if np.isfinite(value)}
    return {"scale": float(scale.value), "stress": known, "estimator": geometry.estimator}
