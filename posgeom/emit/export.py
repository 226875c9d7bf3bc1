"""One encoding as a file, in the formats that others read; equal emissions give equal bytes.

Where each format keeps the passport:

    safetensors   one text of JSON under "posgeom" in the header
    npz           member `passport`, the JSON as UTF-8 bytes; no pickle
    npy           the first tensor alone; FILE.json beside it
    csv           the first tensor alone; a first line `# {…}`, which csv readers take for a comment
    torch         a state_dict, for torch.load(…, weights_only=True); key `passport`, bytes as uint8
    hf-config     keys of a config.json; the passport under "posgeom", which models pass over
    json          tensors as lists under "tensors", the passport under "passport"

In each it has the `sha256` of the numbers and of itself, by which read_emission knows a file that
was changed.
"""

import csv
import io
import json
import tempfile
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from posgeom.atomic import check_out_file
from posgeom.emit.emission import Emission, header
from posgeom.emit.hf_config import hf_config
from posgeom.errors import PosgeomError


def export(
    emission: Emission, format: str, file: str | PathLike[str], *, force: bool = False
) -> list[Path]:
    """Write an emission in one of FORMATS; returns the files, of which npy has two.

    Nothing is left half-written.  Raises PosgeomError for an unknown format, for a file that is
    there already (unless `force`), and for what a format cannot hold.
    """
    if format not in FORMATS:
        raise PosgeomError(f"--format {format} is not known; use {', '.join(FORMATS)}")
    out = check_out_file(file, force=force)
    contents = {out: FORMATS[format](emission)}
    if format == "npy":
        beside = check_out_file(out.with_name(out.name + ".json"), force=force)
        contents[beside] = (header(emission.sealed) + "\n").encode()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as partial:
            for path, content in contents.items():
                (Path(partial) / path.name).write_bytes(content)
            for path in contents:
                (Path(partial) / path.name).replace(path)
    except OSError as error:
        raise PosgeomError(
            f"--out {file} cannot be written ({error.strerror or error}); give another file"
        ) from error
    return list(contents)


def _safetensors(emission: Emission) -> bytes:
    from safetensors.numpy import save

    # it writes the bytes under a view, whatever its strides
    tensors = {name: np.ascontiguousarray(x) for name, x in emission.tensors.items()}
    # one text under one key: safetensors keeps several in no fixed order
    return save(tensors, metadata={"posgeom": header(emission.sealed)})


def _npz(emission: Emission) -> bytes:
    passport = np.frombuffer(header(emission.sealed).encode(), dtype=np.uint8)
    out = io.BytesIO()
    np.savez(out, allow_pickle=False, passport=passport, **emission.tensors)
    return out.getvalue()


def _npy(emission: Emission) -> bytes:
    out = io.BytesIO()
    np.save(out, emission.tensors[emission.main], allow_pickle=False)
    return out.getvalue()


def _csv(emission: Emission) -> bytes:
    main = emission.tensors[emission.main]
    rows = main if main.ndim == 2 else main[:, None]
    labels = {
        "table": ("position", emission.tensors.get("positions", np.arange(len(rows)))),
        "inv_freq": ("pair", np.arange(len(rows))),
        "slopes": ("head", np.arange(len(rows))),
        "bias_table": ("bucket", np.arange(len(rows))),
        "bias": ("offset", emission.tensors.get("offsets", np.arange(len(rows)))),
    }
    name, index = labels.get(emission.main, ("row", np.arange(len(rows))))
    columns = [emission.main] if main.ndim == 1 else [str(k) for k in range(rows.shape[1])]
    out = io.StringIO()
    out.write(f"# {header(emission.sealed)}\n")
    table = csv.writer(out, lineterminator="\n")
    table.writerow([name, *columns])
    for at, row in zip(index, rows, strict=True):
        table.writerow([at, *(np.format_float_scientific(x, trim="0") for x in row)])
    return out.getvalue().encode()


def _torch(emission: Emission) -> bytes:
    try:
        import torch
    except ImportError as error:
        raise PosgeomError(
            f"--format torch needs PyTorch, which cannot be loaded ({error}); install "
            "posgeom[torch], or take --format safetensors"
        ) from error
    passport = np.frombuffer(header(emission.sealed).encode(), dtype=np.uint8)
    arrays = {**emission.tensors, "passport": passport}
    out = io.BytesIO()
    torch.save({name: torch.from_numpy(array.copy()) for name, array in arrays.items()}, out)
    return out.getvalue()


def _hf_config(emission: Emission) -> bytes:
    return _json_text(hf_config(emission.encoding) | {"posgeom": emission.sealed})


def _json(emission: Emission) -> bytes:
    lists = {name: array.tolist() for name, array in emission.tensors.items()}
    return _json_text({"passport": emission.sealed, "tensors": lists})


def _json_text(value: dict[str, Any]) -> bytes:
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


FORMATS: dict[str, Callable[[Emission], bytes]] = {
    "safetensors": _safetensors,
    "npz": _npz,
    "npy": _npy,
    "csv": _csv,
    "torch": _torch,
    "hf-config": _hf_config,
    "json": _json,
}
