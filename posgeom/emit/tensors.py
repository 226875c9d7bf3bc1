"""encoding.safetensors: the encoding as tensors, with what it is in the header."""

import json
import os
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posgeom.designers import LowRank
from posgeom.errors import PosgeomError

if TYPE_CHECKING:
    from posgeom.design import Design


def write_tensors(design: "Design", file: str | PathLike[str]) -> None:
    """Write `table` (n, d) float32, and `A` (n, r), `B` (d, r), `eigenvalues` (n,) in float64.

    Row i of the table belongs to position positions[i].  The header holds one text of JSON
    under "posgeom": safetensors keeps several in no fixed order, and equal designs shall give
    equal bytes.
    """
    from safetensors.numpy import save_file

    about = {
        "family": "mds",
        "rank": design.low_rank.rank,
        "parameters": design.low_rank.n_parameters,
        "metric": design.geometry.metric,
        "estimator": design.geometry.estimator,
        "fingerprint": f"{design.counts.provenance.fingerprint:032x}",
        "settings": design.settings,
    }
    tensors = {
        "table": design.low_rank.table().astype(np.float32),
        "A": design.low_rank.A,
        "B": design.low_rank.B,
        "eigenvalues": design.mds.eigenvalues,
        "positions": design.geometry.positions,
    }
    save_file(
        {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()},
        file,
        metadata={"posgeom": json.dumps(about, sort_keys=True)},
    )
    mask = os.umask(0)
    os.umask(mask)
    Path(file).chmod(0o666 & ~mask)  # safetensors makes files for their owner alone


def read_tensors(file: str | PathLike[str]) -> tuple[LowRank, dict[str, Any]]:
    """The factors of an encoding.safetensors and what its header says; PosgeomError if none."""
    from safetensors import safe_open

    try:
        with safe_open(file, framework="np") as tensors:
            about = json.loads(tensors.metadata()["posgeom"])
            return LowRank(A=tensors.get_tensor("A"), B=tensors.get_tensor("B")), about
    except Exception as error:  # the format's own exceptions, and keys that are not there
        raise PosgeomError(f"{file} holds no posgeom encoding: {error}") from error
