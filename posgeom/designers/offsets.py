"""All that a shift-invariant encoding can see of a geometry: sums over the pairs at an offset."""

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry
from posgeom.inference import condensed, signed_root

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class OffsetSums:
    """The distances of a geometry, summed at each offset t of two positions.

    offsets   (m,) the offsets |i − j| > 0 that occur, ascending; (m, 2) with axes, |Δrow| and
              |Δcolumn| of a grid
    pairs     (m,) c_t, pairs i < j at each
    sums      (m,) S_t = Σ D over them, D the signed roots, as in posgeom.inference
    squares   (m,) Σ D² over them, signed

    An encoding with distances f(t) has a stress that follows from these in m steps, in place of n²:
    1 − (Σ f_t S_t)² / (Σ c_t f_t² · Σ D²), the same number that stress_of gives.
    """

    offsets: IntArray = field(repr=False)
    pairs: IntArray = field(repr=False)
    sums: FloatArray = field(repr=False)
    squares: FloatArray = field(repr=False)

    @classmethod
    def of(cls, geometry: Geometry, *, axes: bool = False) -> Self:
        """The sums of a geometry over offsets of flat position numbers, or of rows and columns.

        Raises PosgeomError for axes of a geometry without a grid, and where the squared distances
        do not sum to more than 0, so that there is nothing to fit.
        """
        if axes and geometry.grid is None:
            raise PosgeomError(
                "rows and columns were asked of positions without a grid; give --grid ROWSxCOLUMNS"
            )
        s = condensed(geometry.squared)
        if not s.sum() > 0:
            raise PosgeomError(
                f"the squared distances of the corpus sum to {s.sum():.3g}, at most 0: there is no "
                "geometry to fit; give more documents"
            )
        i, j = np.triu_indices(geometry.n_positions, 1)
        if axes:
            Δ = np.abs(geometry.positions[i] - geometry.positions[j])
            width = Δ[:, 1].max() + 1
            key = Δ[:, 0] * width + Δ[:, 1]
        else:
            key = np.abs(geometry.index[i] - geometry.index[j])
        count = np.bincount(key)
        present = np.flatnonzero(count)
        sums, squares = (
            np.bincount(key, weights=x)[present].astype(np.float64) for x in (signed_root(s), s)
        )
        return cls(
            offsets=np.column_stack(np.divmod(present, width)) if axes else present,
            pairs=count[present],
            sums=sums,
            squares=squares,
        )

    @property
    def total(self) -> float:
        """Σ D² over all pairs, above 0."""
        return float(self.squares.sum())

    @property
    def mean(self) -> FloatArray:
        """D̄(t) = S_t / c_t: (m,), the distances of the best shift-invariant encoding."""
        return self.sums / self.pairs

    @property
    def floor(self) -> float:
        """1 − Σ_t c_t D̄(t)² / Σ D², the least stress of any f."""
        return float(1 - self.sums @ self.mean / self.total)

    def stress(self, f: FloatArray) -> FloatArray:
        """Scale-free stress of encodings with distances f (…, m) at the offsets: (…,).

        1 where all of f is 0.  Near 0 it is exact to about 1e-15.
        """
        a, b = f @ self.sums, f**2 @ self.pairs
        return np.asarray(1 - a**2 / (np.where(b > 0, b, 1) * self.total))

    def scale(self, f: FloatArray) -> float:
        """α = Σ f_t S_t / Σ c_t f_t², the scale at which f fits best.  f: (m,), not all 0."""
        return float(f @ self.sums / (f**2 @ self.pairs))

    def gradient(self, f: FloatArray) -> FloatArray:
        """∂stress/∂f_t = −2α (S_t − α c_t f_t) / Σ D²: (m,), α the best scale.

        f: (m,), not all 0.
        """
        α = self.scale(f)
        return np.asarray(-2 * α * (self.sums - α * self.pairs * f) / self.total)
