"""What the paper says, as data: figures and claims, each with where it stands.

Only what is known of it.  Not known are the lengths of the sequences, the tokens, the sample sizes,
how each encoding was scaled before Eq. 4, how ALiBi's distance was taken, the synthetic
distributions, and the numbers of its tables.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

PAPER = (
    'G. Cirrincione, "On the Geometry of Positional Encodings in Transformers", arXiv 2604.05217 '
    "(2026)"
)
NEAR = 0.05  # a figure of ours within 5% of the paper's counts as reproduced

SYNTHETIC, SST2, IMDB = "synthetic corpus", "SST-2", "IMDB"


@dataclass(frozen=True)
class Figure:
    """A number of the paper: what it is of, where it stands, and on which corpus.

    slack: how far off, as a share of it, a figure of ours still counts as the same; for shares
    near 1 what rounding leaves open.
    """

    what: str
    value: float
    where: str
    corpus: str
    slack: float = NEAR

    def is_near(self, ours: ArrayLike) -> NDArray[np.bool_]:
        """Which figures of ours count as the same, 5% off at most."""
        return np.asarray(np.abs(np.asarray(ours) / self.value - 1) <= self.slack)


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and where it stands."""

    says: str
    where: str


FIGURES = {
    "synthetic-sinusoidal": Figure(
        "stress of sinusoidal", 2.248, "Eq. 4, table of the synthetic corpus", SYNTHETIC
    ),
    "synthetic-mds": Figure(
        "stress of MDS", 0.009, "Eq. 4 and Algorithm 1, table of the synthetic corpus", SYNTHETIC
    ),
    "synthetic-less": Figure(
        "stress that rank 3 saves against sinusoidal",
        0.998,
        "Remark 8, synthetic corpus",
        SYNTHETIC,
        slack=0.0005,
    ),
    "synthetic-fewer": Figure(
        "parameters that rank 3 saves", 0.88, "Remark 8, synthetic corpus", SYNTHETIC, slack=0.006
    ),
    "sst2-alibi": Figure("stress of ALiBi", 0.563, "Eq. 4, table of SST-2", SST2),
    "imdb-alibi": Figure("stress of ALiBi", 3.051, "Eq. 4, table of IMDB", IMDB),
    "sst2-fewer": Figure(
        "parameters that low-rank MDS saves", 0.90, "Remark 8, SST-2", SST2, 0.015
    ),
}

CLAIMS = {
    "necessity": Claim(
        "without a positional signal and a mask, a Transformer is permutation-equivariant",
        "Theorem 1",
    ),
    "separation": Claim(
        "at a global minimiser distinct positions have distinct vectors", "Theorem 4"
    ),
    "optimal": Claim(
        "classical MDS of the Hellinger matrix has the least stress of all encodings",
        "Proposition 6 (5 in arXiv's listing), Algorithm 1",
    ),
    "rank": Claim("rank(B) ≤ n − 1, and r(n + d) parameters in place of nd", "Remark 8"),
    "monotonicity": Claim(
        "the closer two positions' statistics, the closer their learned vectors", "Conjecture 5"
    ),
    "alike": Claim(
        "sinusoidal and RoPE have nearly equal stress everywhere", "tables of all corpora"
    ),
    "alibi": Claim(
        "ALiBi has far less stress than sinusoidal and RoPE", "abstract, table of SST-2"
    ),
    "low-rank": Claim(
        "low-rank MDS has stress near 0 with about 90% fewer parameters", "Remark 8, SST-2"
    ),
    "rank-one": Claim("the MDS encoding is nearly of rank 1, as ALiBi's distance is", "abstract"),
}
