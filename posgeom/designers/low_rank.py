"""The paper's construction: classical MDS coordinates, low rank, lifted to a model's width."""

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LowRank:
    """A position table P = A Bᵀ of r(n + d) parameters in place of n·d.

    A   (n, r) MDS coordinates of the positions
    B   (d, r) orthonormal columns, so that P has exactly the distances of A
    """

    A: FloatArray = field(repr=False)
    B: FloatArray = field(repr=False)

    @property
    def rank(self) -> int:
        """r."""
        return self.A.shape[1]

    @property
    def dim(self) -> int:
        """d."""
        return len(self.B)

    @property
    def n_parameters(self) -> int:
        """r(n + d).  Cirrincione (2026), Remark 8."""
        return self.A.size + self.B.size

    def table(self) -> FloatArray:
        """A Bᵀ, (n, d)."""
        return self.A @ self.B.T

    def with_norm(self, norm: float) -> Self:
        """The same shape at another scale: rows with a root mean square norm of `norm`.

        Raises PosgeomError for a norm that is not positive, or that float32 cannot hold.
        """
        check_scale("--norm", norm)
        own = rms_norm(self.A)
        return replace(self, A=self.A * (norm / own)) if own > 0 else self


def rms_norm(rows: FloatArray) -> float:
    """√(1/n Σ_i ‖x_i‖²) of rows (n, d)."""
    return float(np.sqrt((rows**2).sum(axis=1).mean()))


def check_scale(flag: str, value: float) -> None:
    """Raise PosgeomError unless a size that was asked of a table is one that float32 can hold."""
    if not (np.isfinite(value) and value > 0):
        raise PosgeomError(f"{flag} {value} came; give a positive number")
    if not 1e-30 <= value <= 1e30:
        raise PosgeomError(f"{flag} {value} came, which float32 cannot hold; give one near 1")


def low_rank(coordinates: FloatArray, rank: int, dim: int) -> LowRank:
    """The first `rank` coordinates (n, R), lifted isometrically to dimension `dim`.

    Coordinates past R are 0.  Raises PosgeomError for a rank above dim.
    """
    if rank > dim:
        raise PosgeomError(
            f"rank {rank} does not fit in dimension {dim}; raise --dim, lower --rank"
        )
    A = np.zeros((len(coordinates), rank))
    kept = coordinates[:, :rank]
    A[:, : kept.shape[1]] = kept
    return LowRank(A, cosine_basis(dim, rank))


def cosine_basis(dim: int, rank: int) -> FloatArray:
    """(d, r) orthonormal cosines over the d dimensions, the constant one last.

    B[j, k] = √(2/d) cos(π (j + ½) k / d), k = 1..d−1 (the discrete cosine transform, DCT-II).
    Any orthonormal B keeps the distances.  These spread each coordinate over all dimensions, and
    their columns sum to 0, so that a layer norm, which takes the mean away, loses nothing.
    """
    j, k = np.arange(dim)[:, None] + 0.5, np.arange(1, rank + 1)[None, :]
    B = np.sqrt(2 / dim) * np.cos(np.pi * j * k / dim)
    if rank == dim:
        B[:, -1] = 1 / np.sqrt(dim)
    return B
