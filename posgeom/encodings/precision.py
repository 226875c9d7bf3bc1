"""Which positions a number format can no longer tell apart."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posgeom.encodings.base import Encoding
from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]

DTYPES = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "fp32": "float32",
    "float32": "float32",
}
BLOCK = 4_096


def rounded(x: ArrayLike, dtype: str) -> NDArray[np.float32]:
    """x as the format holds it, to nearest, ties to even; by way of float32, as frameworks do.

    dtype: bf16, fp16 or fp32.  Numbers past the format's range become infinite.
    """
    if dtype not in DTYPES:
        raise PosgeomError(f"dtype {dtype!r} is not known; use bf16, fp16 or fp32")
    y = np.ascontiguousarray(x, dtype=np.float64).astype(np.float32)
    if DTYPES[dtype] == "float16":
        with np.errstate(over="ignore"):
            return y.astype(np.float16).astype(np.float32)
    if DTYPES[dtype] == "bfloat16":
        bits = y.view(np.uint32)
        # the upper 16 bits stay; 0x7fff and the last bit kept carry into them, halves to even
        bits = bits + (np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)))
        return np.where(np.isfinite(y), (bits & np.uint32(0xFFFF0000)).view(np.float32), y)
    return y


def first_collision(
    encoding: Encoding | ArrayLike, dtype: str, length: int | None = None
) -> int | None:
    """The first position whose row equals an earlier one once both are rounded; None if none does.

    encoding   an encoding, of which positions 0..length−1 are asked, or a table (n, d) or (n,)
    dtype      bf16, fp16 or fp32

    Positions count from 0: integers in bf16 first repeat at position 257, the 258th, which
    becomes 256.  Numbers of one row are rounded one by one, so an encoding is as fine as its
    finest column.
    """
    if isinstance(encoding, Encoding):
        known = encoding.max_positions
        n = length if known is None else min(known, known if length is None else length)
        if n is None:
            raise PosgeomError(f"{encoding.name} is defined everywhere; say up to which length")
        # the last position comes along, since some encodings look at the length
        blocks = (
            encoding.codes(np.append(np.arange(start, min(start + BLOCK, n)), n - 1))[:-1]
            for start in range(0, n, BLOCK)
        )
    else:
        table = np.asarray(encoding, dtype=np.float64)[:length]
        blocks = (table[start : start + BLOCK] for start in range(0, len(table), BLOCK))
    seen: set[bytes] = set()
    for block in blocks:
        for row in rounded(block, dtype).reshape(len(block), -1) + np.float32(0):  # −0 is 0
            key = row.tobytes()
            if key in seen:
                return len(seen)
            seen.add(key)
    return None
