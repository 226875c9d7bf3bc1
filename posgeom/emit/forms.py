"""The numbers of an encoding as arrays by name, which every format writes alike."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from posgeom.encodings import (
    Alibi,
    BiasEncoding,
    Encoding,
    FixedTable,
    Rotary,
    Shaw,
    T5Bias,
    TableEncoding,
    XPos,
)
from posgeom.errors import PosgeomError

Tensors = dict[str, NDArray[Any]]


def tensors_of(encoding: Encoding, n: int) -> Tensors:
    """The arrays that a layer is made of; the first is the one that gave the encoding its kind.

    tables    `table` (n, d) float32; `positions` (n,) beside it where row i is not position i.
              One that is a rule gives its rows 0..n−1
    rotary    `inv_freq` (pairs,) float64, radians a position; `pair_axes` (pairs,) on a grid.
              Scalings that follow the length: those up to the trained length.  xPos: `decay`
              (pairs,) beside them, what a query gains and a key loses with each position
    ALiBi     `slopes` (heads,) float64
    T5        `bias_table` (buckets, heads) float32, as `relative_attention_bias.weight`
    Shaw      `vectors` (2k + 1, d) float32
    biases    `bias` (2n − 1, heads) float32 at the `offsets` −(n−1)..n−1, query minus key

    Raises PosgeomError for what has no numbers (none), for biases that are not by offset (fire),
    and for numbers that are not finite.
    """
    tensors = _tensors(encoding, n)
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise PosgeomError(
                f"{name} of {encoding.name} holds NaN or infinity as {tensor.dtype}; "
                "make it again, or at another scale (--norm 1)"
            )
    return {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}


def _tensors(encoding: Encoding, n: int) -> Tensors:
    if isinstance(encoding, FixedTable):
        tensors: Tensors = {"table": as_float32(encoding.rows)}
        if encoding.index is not None and (encoding.index != np.arange(len(encoding.rows))).any():
            tensors["positions"] = encoding.index
        return tensors
    if isinstance(encoding, TableEncoding):
        return {"table": as_float32(encoding.table(np.arange(n)))}
    if isinstance(encoding, Rotary):
        axes = {"pair_axes": encoding.pair_axes} if encoding.n_axes > 1 else {}
        decay = {"decay": encoding.decay} if isinstance(encoding, XPos) else {}
        return {"inv_freq": encoding.inv_freq, **axes, **decay}
    if isinstance(encoding, Alibi):
        return {"slopes": encoding.slopes}
    if isinstance(encoding, T5Bias):
        return {"bias_table": as_float32(encoding.numbers)}
    if isinstance(encoding, Shaw):
        return {"vectors": as_float32(encoding.vectors)}
    if isinstance(encoding, BiasEncoding) and encoding.shift_invariant:
        offsets = np.arange(1 - n, n)
        biases = encoding.biases(np.arange(encoding.heads), offsets.astype(np.float64))
        return {"bias": as_float32(biases.T), "offsets": offsets}
    raise PosgeomError(
        f"{encoding.name} has no numbers that a layer could hold; export a table, a rotary "
        "encoding or a bias by offset"
    )


def as_float32(x: NDArray[np.float64]) -> NDArray[np.float32]:
    """x as float32; numbers past its range become infinite, which tensors_of refuses."""
    with np.errstate(over="ignore"):
        return np.asarray(x).astype(np.float32)
