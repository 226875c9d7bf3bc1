"""Proposition 6: classical MDS fits the Gram matrix best, which is not least stress."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from posgeom.encodings.base import distances_between_rows
from posgeom.geometry import Geometry
from posgeom.mds import classical_mds
from posgeom.smacof import smacof
from posgeom.stress import raw_stress, stress

if TYPE_CHECKING:
    import pandas as pd

Line = tuple[Fraction, Fraction, Fraction]


@dataclass(frozen=True)
class LineFit:
    """Three points on a line against three points that are all 1 apart, exactly.

    raw_stress   Σ (δ − D)² / Σ D²
    stress       the same at the best scale
    gram_error   ‖xxᵀ − B‖_F² about the centroid, B = −½ J D² J
    """

    x: Line
    raw_stress: Fraction
    stress: Fraction
    gram_error: Fraction


def fit_of_line(x: Line) -> LineFit:
    """The stresses and the Gram error of coordinates x with mean 0, D = 1 for all three pairs."""
    δ = [abs(x[0] - x[1]), abs(x[0] - x[2]), abs(x[1] - x[2])]
    B = [[Fraction(1, 3) if i == j else Fraction(-1, 6) for j in range(3)] for i in range(3)]
    square = sum((d**2 for d in δ), Fraction(0))
    explained = sum(δ, Fraction(0)) ** 2 / (3 * square) if square else Fraction(0)
    return LineFit(
        x=x,
        raw_stress=sum(((d - 1) ** 2 for d in δ), Fraction(0)) / 3,
        stress=1 - explained,
        gram_error=sum(
            ((x[i] * x[j] - B[i][j]) ** 2 for i in range(3) for j in range(3)), Fraction(0)
        ),
    )


def classical_line() -> LineFit:
    """Classical MDS of three one-hot distributions to one dimension, in units of √2.

    B has the eigenvalue ½ twice; (−1, 0, 1)/√2 is one of its vectors: x = (−½, 0, ½).
    """
    return fit_of_line((Fraction(-1, 2), Fraction(0), Fraction(1, 2)))


def least_stress_line() -> LineFit:
    """The least raw stress on a line: gaps a, b minimise (a − 1)² + (b − 1)² + (a + b − 1)².

    2a + b = 2 and a + 2b = 2, so a = b = 2/3.  All D being equal, no other order is better.
    """
    determinant = 2 * 2 - 1 * 1
    a, b = Fraction(2 * 2 - 2 * 1, determinant), Fraction(2 * 2 - 2 * 1, determinant)
    mean = (a + a + b) / 3
    return fit_of_line((-mean, a - mean, a + b - mean))


def gram_against_stress(
    geometries: Sequence[tuple[str, Geometry]], ranks: Sequence[int] = (1, 2, 3)
) -> "pd.DataFrame":
    """Classical MDS and least stress on corpora, a row a geometry and rank.

    geometries: (corpus, geometry).  Columns: raw_mds, raw_least: Eq. 4 of both;
    mds, least: scale-free; excess: raw_mds / raw_least.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for corpus, geometry in geometries:
        D = geometry.distances
        mds = classical_mds(geometry.squared, squared=True).coordinates
        for r in ranks:
            if r > mds.shape[1]:
                continue
            δ = distances_between_rows(mds[:, :r])
            best = smacof(D, r, start=mds[:, :r])
            ε = distances_between_rows(best.coordinates)
            rows.append(
                {
                    "corpus": corpus,
                    "positions": len(D),
                    "estimator": geometry.estimator,
                    "rank": r,
                    "raw_mds": raw_stress(δ, D),
                    "raw_least": best.raw_stress,
                    "mds": stress(δ, D),
                    "least": stress(ε, D),
                }
            )
    table = pd.DataFrame(rows)
    return table.assign(excess=table["raw_mds"] / table["raw_least"])
