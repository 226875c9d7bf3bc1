"""encoding.safetensors: the encoding as tensors, with what it is in the header."""

import json
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posgeom.designers import LowRank
from posgeom.designers.extension import Extension
from posgeom.errors import PosgeomError
from posgeom.inference import Estimate

if TYPE_CHECKING:
    from posgeom.design import Design


def write_tensors(design: "Design", file: str | PathLike[str]) -> None:
    """Write `table` (n, d) float32, and `A` (n, r), `B` (d, r), `eigenvalues` (n,) in float64.

    Row i of the table belongs to position positions[i].  A design that was carried to m positions
    has the rows of all m; the n it was made of are then `A_made` and `B_made`, and `A_extended`
    the rows before constraints.  The header holds one text of JSON under "posgeom": safetensors
    keeps several in no fixed order, and equal designs shall give equal bytes.
    """
    from safetensors.numpy import save

    about = {
        "family": design.table_family,
        "rank": design.low_rank.rank,
        "parameters": design.low_rank.n_parameters,
        "metric": design.geometry.metric,
        "estimator": design.geometry.estimator,
        "fingerprint": f"{design.counts.provenance.fingerprint:032x}",
        "settings": design.settings,
    }
    made, extension = design.extended or design.low_rank, design.extension
    tensors = {
        "table": made.table().astype(np.float32),
        "A": made.A,
        "B": made.B,
        "eigenvalues": design.mds.eigenvalues,
        "positions": design.geometry.positions if extension is None else np.arange(len(made.A)),
    }
    if extension is not None:
        about["methods"] = extension.methods
        about["held_out"] = {  # JSON has no NaN: what is not known is left out
            method: {k: v for k, v in asdict(estimate).items() if np.isfinite(v)}
            for method, estimate in extension.held_out.items()
        }
        tensors |= {"A_made": design.low_rank.A, "B_made": design.low_rank.B}
        tensors |= {"A_extended": extension.A}
    content = save(
        {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()},
        metadata={"posgeom": json.dumps(about, sort_keys=True)},
    )
    Path(file).write_bytes(content)  # save_file makes files for their owner alone


def read_tensors(file: str | PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What an encoding.safetensors holds: `low_rank`, `extended` and `extension` of a design.

    And what its header says.  Raises PosgeomError for a file that holds none, for factors that do
    not match, and for NaN and infinity.
    """
    from safetensors import safe_open

    try:
        with safe_open(file, framework="np") as tensors:
            about = json.loads(tensors.metadata()["posgeom"])
            held = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
            _check_finite(held)
            made = _factors(held["A"], held["B"])
            if "methods" not in about:
                return {"low_rank": made}, about
            unknown = {"value": float("nan")}
            held_out = {k: Estimate(**unknown | v) for k, v in about["held_out"].items()}
            extension = Extension(held["A_extended"], tuple(about["methods"]), held_out)
            first = _factors(held["A_made"], held["B_made"])
            return {"low_rank": first, "extended": made, "extension": extension}, about
    except Exception as error:  # the format's own exceptions, and keys that are not there
        raise PosgeomError(f"{file} holds no posgeom encoding: {error}") from error


def _check_finite(tensors: dict[str, NDArray[Any]]) -> None:
    for name, x in tensors.items():
        if not np.isfinite(x).all():
            raise ValueError(f"{name} holds NaN or infinity")


def _factors(A: NDArray[Any], B: NDArray[Any]) -> LowRank:
    if not (A.ndim == B.ndim == 2 and A.shape[1] == B.shape[1] and A.size and B.size):
        raise ValueError(f"A {A.shape} and B {B.shape} are not (n, r) and (d, r), of one rank r")
    return LowRank(A=A, B=B)
