"""What every encoding can say of itself."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import toeplitz

from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]

BYTES = 4  # of a float32, what tables and caches are counted in
_ROWS = 16  # of a matrix of distances that stay in the cache


@dataclass(frozen=True)
class Cost:
    """What an encoding costs a model.

    parameters  trained or stored numbers, in the whole model for a table, in one layer for a bias
    flops       additions and multiplications for one token in one layer (a table: in the first)
    bytes       float32 bytes of the table, or of the cosines and sines kept for the length
    past_end    what happens past the length it was made for: "error", "defined everywhere", …
    """

    parameters: int
    flops: int
    bytes: int
    past_end: str


@dataclass(frozen=True, kw_only=True)
class Encoding(ABC):
    """A rule that tells positions apart, and the distance it puts between them.

    spec is the string that makes it again, and its name in every table.
    """

    family: ClassVar[str]
    spec: str = ""

    @property
    def name(self) -> str:
        """The spec, or the family where there is none."""
        return self.spec or self.family

    @property
    def n_axes(self) -> int:
        """Numbers that a position has: 1, or 2 and 3 for encodings of grids."""
        return 1

    @property
    def n_parameters(self) -> int:
        """Trained or stored numbers that the encoding adds to a model."""
        return 0

    @property
    def max_positions(self) -> int | None:
        """How many positions it knows; None where it is defined everywhere."""
        return None

    @property
    def shift_invariant(self) -> bool:
        """Whether the distance depends on the offset of two positions alone."""
        return True

    @property
    def note(self) -> str:
        """What a reader of its row in a table should know; may be empty."""
        return ""

    @abstractmethod
    def distances(self, positions: ArrayLike) -> FloatArray:
        """(n, n) distances between the positions, symmetric, 0 on the diagonal.

        Positions are (n,), whole or not, and (n, n_axes) where an encoding has more axes than one.
        """

    @abstractmethod
    def codes(self, positions: ArrayLike) -> FloatArray:
        """(n, m): the numbers by which a layer tells the positions (n,) apart."""

    @abstractmethod
    def cost(self, dim: int, heads: int, length: int) -> Cost:
        """What it costs a model of width dim with so many heads, at a length in positions."""


def as_positions(positions: ArrayLike, axes: int = 1) -> NDArray[Any]:
    """Positions (n,), or (n, axes) for a grid, as integers or float64.

    Raises PosgeomError if they are neither, not finite, or of another number of axes.
    """
    x = np.asarray(positions)
    x = np.atleast_1d(x) if axes == 1 else x
    shaped = x.ndim == 1 if axes == 1 else x.ndim == 2 and x.shape[1] == axes
    if not shaped or x.dtype.kind not in "iuf":
        wanted = "a vector of numbers" if axes == 1 else f"the {axes} axes of a grid, (n, {axes})"
        raise PosgeomError(f"positions came as {x.dtype} of shape {x.shape}; give {wanted}")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise PosgeomError("positions hold NaN or infinity; give finite numbers")
    return x.astype(np.float64) if x.dtype.kind == "f" else x.astype(np.int64)


def reach(positions: NDArray[Any]) -> int:
    """The length of a sequence that holds these positions: the last one + 1, at least 1."""
    return max(1, int(np.floor(positions.max(initial=0))) + 1)


def distances_by_offset(f: Callable[[FloatArray], FloatArray], positions: ArrayLike) -> FloatArray:
    """(n, n) distances f(|i − j|): each offset is computed once, so equal ones tie exactly."""
    x = as_positions(positions)
    if x.dtype.kind == "i" and (np.diff(x) == 1).all():  # as most are; copied, not gathered
        D: FloatArray = toeplitz(f(np.arange(len(x), dtype=np.float64)))
        return D
    offsets = np.abs(x[:, None] - x[None, :])
    if offsets.dtype.kind == "i" and offsets.max(initial=0) < 4 * max(1, len(x)):
        return f(np.arange(offsets.max(initial=0) + 1, dtype=np.float64))[offsets]
    distinct, where = np.unique(offsets, return_inverse=True)
    return f(distinct.astype(np.float64))[where].reshape(offsets.shape)


def distances_between_rows(X: FloatArray) -> FloatArray:
    """(n, n) Euclidean distances between the rows of X (n, d)."""
    X = X - X.mean(axis=0)  # distances are unchanged, and close rows of a far table do not cancel
    squares = (X * X).sum(axis=1)
    D: FloatArray = X @ X.T  # exactly symmetric: BLAS fills one half, and copies it
    for start in range(0, len(D), _ROWS):
        rows = slice(start, start + _ROWS)
        of_rows = D[rows]
        of_rows *= -2
        of_rows += squares[rows, None] + squares
        np.maximum(of_rows, 0, out=of_rows)
        np.sqrt(of_rows, out=of_rows)
    np.fill_diagonal(D, 0)
    return D
