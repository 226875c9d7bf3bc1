"""The encodings that are compared: where each comes from, what is tuned, whether it is trained."""

from dataclasses import dataclass, replace

import numpy as np

from posgeom.designers.low_rank import rms_norm
from posgeom.encodings import Alibi, Encoding, FixedTable, TableEncoding
from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry
from posgeom.paper.training.settings import DIM, HEADS
from posgeom.scoring import make_encodings

ROW_NORMS = (0.5, 1.0, 2.0, 4.0)  # root mean square norm of a table's rows; a token's row has 1
SLOPES = (1.0, 4.0, 16.0, 64.0)  # what the slopes of ALiBi are multiplied with
UNSCALED = (1.0,)  # nothing to tune: no positions, or angles
LOW = 3  # the paper's low rank


@dataclass(frozen=True)
class Arm:
    """One way to tell a model its positions.

    name      what the report calls it
    spec      of the encoding, see posgeom.scoring.make_encodings
    trained   whether the model trains its numbers from there on
    scales    the sizes that are tried before the runs that count, see scaled
    rank      a trained table is kept as two factors of this rank; None: as rows
    shuffled  the rows of the table stand at other positions, drawn anew for each seed
    """

    name: str
    spec: str
    trained: bool = False
    scales: tuple[float, ...] = ROW_NORMS
    rank: int | None = None
    shuffled: bool = False

    @property
    def is_table(self) -> bool:
        """Whether it adds a vector to each token."""
        return self.scales is ROW_NORMS


ARMS = (
    Arm("none", "none", scales=UNSCALED),
    Arm("random", f"random:dim={DIM}"),
    Arm("sinusoidal", f"sinusoidal:dim={DIM}"),
    Arm("rope", f"rope:dim={DIM // HEADS}", scales=UNSCALED),
    Arm("alibi", f"alibi:heads={HEADS}", scales=SLOPES),
    Arm("mds", "mds"),
    Arm("mds-shuffled", "mds", shuffled=True),
    Arm("mds-rank-3", f"mds:rank={LOW}"),
    Arm("stress-rank-3", f"stress:rank={LOW}"),
    Arm("fitted-rope", f"fitted-rope:dim={DIM // HEADS}", scales=UNSCALED),
    Arm("learned", f"random:dim={DIM}", trained=True),
    Arm("sinusoidal-trained", f"sinusoidal:dim={DIM}", trained=True),
    Arm("mds-trained", "mds", trained=True),
    Arm("mds-rank-3-trained", f"mds:rank={LOW}", trained=True, rank=LOW),
    Arm("stress-rank-3-trained", f"stress:rank={LOW}", trained=True, rank=LOW),
    Arm("rope-trained", f"rope:dim={DIM // HEADS}", trained=True, scales=UNSCALED),
    Arm("alibi-trained", f"alibi:heads={HEADS}", trained=True, scales=SLOPES),
    Arm("fitted-rope-trained", f"fitted-rope:dim={DIM // HEADS}", trained=True, scales=UNSCALED),
)
NAMES = tuple(arm.name for arm in ARMS)


def arms_named(names: tuple[str, ...]) -> tuple[Arm, ...]:
    """The arms of these names, in their order; PosgeomError for one that is not known."""
    known = {arm.name: arm for arm in ARMS}
    for name in names:
        if name not in known:
            raise PosgeomError(f"encoding {name!r} is not known here; use {', '.join(known)}")
    return tuple(known[name] for name in names)


def starting_encoding(arm: Arm, geometry: Geometry, seed: int) -> Encoding:
    """The encoding of an arm for a geometry: random rows and shuffles are those of the seed."""
    encoding = make_encodings(geometry, [arm.spec], DIM, seed=seed)[0]
    if arm.shuffled and isinstance(encoding, FixedTable):
        order = np.random.default_rng(seed).permutation(len(encoding.rows))
        return FixedTable(rows=encoding.rows[order], spec=arm.name)
    return encoding


def scaled(encoding: Encoding, n: int, scale: float) -> Encoding:
    """The encoding of n positions at a size.

    The rows of a table get the root mean square norm `scale`; the slopes of ALiBi are multiplied
    with it; angles have no size.
    """
    if isinstance(encoding, TableEncoding):
        rows = encoding.table(np.arange(n))
        return FixedTable(rows=rows * (scale / rms_norm(rows)), spec=encoding.name)
    if isinstance(encoding, Alibi):
        return replace(encoding, own_slopes=tuple((scale * encoding.slopes).tolist()))
    return encoding
