"""Which of several encodings a designer hands out: the one that a user would see as the best."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from posgeom.encodings import Encoding
from posgeom.geometry import Geometry
from posgeom.inference import condensed, jackknife, stress_of

AnyEncoding = TypeVar("AnyEncoding", bound=Encoding)


def least_stress(geometry: Geometry, encodings: Sequence[AnyEncoding]) -> AnyEncoding:
    """The encoding of the least scale-free stress, corrected for bias; of equal ones the first.

    One of two axes sees rows and columns, others the flat number of a cell.
    """

    def corrected(encoding: Encoding) -> float:
        δ = condensed(encoding.distances(geometry.positions_for(encoding.n_axes)))
        value = jackknife(stress_of(δ), geometry, bounds=(0, 1)).value
        return float(np.nan_to_num(value, nan=np.inf))

    return min(encodings, key=corrected)
