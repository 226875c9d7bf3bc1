"""A learned table replaced, and a model made longer."""

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from posgeom.designers.low_rank import rms_norm
from posgeom.encodings import FixedTable, LearnedPositions, TableEncoding, first_collision
from posgeom.encodings.learned import AFTER_PADDING, KNOWN_KEYS
from posgeom.errors import PosgeomError
from posgeom.transformers.scale import Scale, factor_to

HALF = {torch.bfloat16: "bf16", torch.float16: "fp16"}


def replace_table(
    model: Any,
    encoding: TableEncoding,
    own: LearnedPositions,
    extend_to: int | None,
    scale: Scale,
    held: frozenset[str],
) -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
    """The model with rows of the encoding in its table, the table's name, and what to say of it.

    An encoder and a decoder both get them, each at the size of its own.
    """
    tables = table_parameters(model)
    if stale := sorted(held & tables.keys()):
        raise PosgeomError(
            f"the optimizer holds {stale[0]} and moments of its old rows; inject first, then make "
            "it"
        )
    offset, first = own.offset, next(iter(tables.values()))
    n = len(first) - offset
    m = n if extend_to is None else extend_to
    if m < n:
        raise PosgeomError(f"--extend {m} came, the model has {n} positions; give {n} or more")
    if m > n and held:
        raise PosgeomError(
            f"the optimizer holds {min(held)} of the shorter model, and {m} positions take a new "
            "one; inject first, then make it"
        )
    rows = _rows(encoding, m, first.shape[1], n)
    made = {name: _scaled(encoding, rows, p, offset, scale) for name, p in tables.items()}
    said = [f"{name}: {how}" for name, (_, how) in made.items()]
    if offset:
        said.append(f"the first {offset} rows, before that of position 0, are as they were")
    short = HALF.get(first.dtype)
    scaled, _ = next(iter(made.values()))
    if short and (row := first_collision(scaled.double().numpy(), short)) is not None:
        said.append(f"in {short} the row of position {row} equals an earlier one")
    if m > n:
        heads = {name: p[:offset].detach().cpu() for name, p in tables.items()}
        model = longer(model, {k: torch.cat([heads[k], x]) for k, (x, _) in made.items()}, m)
        said.append(f"the model takes {m:,} positions in place of {n:,}")
    else:
        with torch.no_grad():
            for name, (scaled, _) in made.items():
                tables[name][offset:].copy_(scaled)
    return model, tuple(tables), tuple(said)


def table_parameters(model: Any) -> dict[str, torch.nn.Parameter]:
    """The learned table by its name, or that of the encoder and the decoder.

    PosgeomError where there are others, such as one of words and one of pieces of an image.
    """
    found = {
        name: p for name, p in model.named_parameters() if name.endswith(KNOWN_KEYS) and p.ndim == 2
    }
    kinds = {(name.replace("decoder.", "encoder."), p.shape) for name, p in found.items()}
    if len(kinds) != 1:
        raise PosgeomError(
            f"the model has {len(found)} learned tables ({', '.join(found) or 'none'}); "
            "one is replaced at a time, and must be the only one"
        )
    return found


def _scaled(
    encoding: TableEncoding,
    rows: NDArray[np.float64],
    parameter: torch.nn.Parameter,
    offset: int,
    scale: Scale,
) -> tuple[torch.Tensor, str]:
    """The rows (m, d) as one table takes them, and what to say of it."""
    old = parameter[offset:].detach().cpu().double().numpy()
    by = factor_to(rms_norm(old), rms_norm(rows), scale)
    scaled = torch.from_numpy(by * rows).to(parameter.dtype)
    if not torch.isfinite(scaled).all():
        raise PosgeomError(
            f"{encoding.name} × {by:.3g} does not fit in {parameter.dtype}; give --scale match"
        )
    return scaled, (
        f"{len(rows):,} rows of {encoding.name} × {by:.4g}, root mean square norm "
        f"{rms_norm(by * rows):.4g} (the old rows' was {rms_norm(old):.4g})"
    )


def longer(model: Any, tables: dict[str, torch.Tensor], m: int) -> Any:
    """A model of m positions with these tables (rows, d) and else the tensors of the given one.

    Made anew from the config: its other buffers are as long as the table.
    """
    config = deepcopy(model.config)
    kind, rows = config.model_type, len(next(iter(tables.values())))
    config.max_position_embeddings = rows if kind in AFTER_PADDING else m
    if getattr(config, "n_ctx", None) is not None:
        config.n_ctx = m
    state = model.state_dict() | tables
    first = next(model.parameters())
    grown = type(model)(config).to(dtype=model.dtype)
    try:
        grown.load_state_dict(state)
    except RuntimeError as error:
        raise PosgeomError(
            f"a {kind} does not take a longer table: {str(error).splitlines()[-1].strip()}"
        ) from error
    for (_, new), (_, old) in zip(grown.named_parameters(), model.named_parameters(), strict=True):
        new.requires_grad_(old.requires_grad)
    grown.generation_config = getattr(model, "generation_config", None)
    return grown.to(first.device).train(model.training)


def _rows(encoding: TableEncoding, m: int, d: int, n: int) -> NDArray[np.float64]:
    """Rows (m, d) of positions 0..m−1."""
    known = encoding.max_positions
    if isinstance(encoding, FixedTable) and encoding.index is not None:
        known = int(encoding.index[-1]) + 1
    if known is not None and known < m:
        raise PosgeomError(
            f"{encoding.name} has {known} positions, the model {m}; design with "
            f"--positions {m}, or carry it there with --extend {m}"
        )
    if known is not None and known > m:
        raise PosgeomError(
            f"{encoding.name} has {known} positions, the model {n}; design with "
            f"--positions {n}, or make the model longer with --extend {known}"
        )
    rows = encoding.table(np.arange(m))
    if rows.shape[1] != d:
        raise PosgeomError(
            f"{encoding.name} has {rows.shape[1]} dimensions, the model's table {d}; "
            f"design with --dim {d}"
        )
    return rows
