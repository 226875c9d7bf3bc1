"""How large what is injected shall be."""

import numpy as np
from numpy.typing import NDArray

from posgeom.designers.low_rank import check_scale
from posgeom.errors import PosgeomError

Scale = str | float


def factor_to(old: float, new: float, scale: Scale) -> float:
    """What numbers of size `new` are multiplied with, where those of size `old` were.

    "match": old/new; "own": 1; a number x: x/new.  1 where one of them is 0.
    """
    if scale == "own":
        return 1.0
    if isinstance(scale, str) and scale != "match":
        raise PosgeomError(f"--scale {scale} came; give match, own or a number")
    if not isinstance(scale, str):
        check_scale("--scale", scale)
    wanted = old if isinstance(scale, str) else float(scale)
    return wanted / new if wanted > 0 and new > 0 else 1.0


def spread(values: NDArray[np.float64]) -> float:
    """Root mean square of values (buckets, heads) about the mean of their head."""
    return float(np.sqrt(((values - values.mean(axis=0)) ** 2).mean()))
