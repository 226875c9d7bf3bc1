"""Families of encodings to make: the specs of each, and the known ones that they are to better."""

from collections.abc import Iterable
from dataclasses import dataclass

from posgeom.errors import PosgeomError

ALL = "all"


@dataclass(frozen=True)
class Candidate:
    """An encoding made for a corpus, by spec, and the known ones that it is to better."""

    spec: str
    beside: tuple[str, ...] = ()


def family_candidates(
    families: Iterable[str], *, rank: int, dim: int, heads: int = 8, grid: bool = False
) -> list[Candidate]:
    """The designs of families by name, in this order whatever theirs.

    mds      classical MDS of rank r, the paper's construction
    stress   the table of rank r of least stress
    rope     fitted frequencies and the best base, beside base 10,000 and 500,000; on a grid also
             frequencies for each axis
    alibi    slopes and KERPLE's parameters, one slope a head
    t5       a table of buckets
    all      each of them

    Raises PosgeomError for an unknown family, no heads, and an odd dim where pairs are to turn.
    """
    asked = list(families)
    known = {
        "mds": [Candidate(f"mds:rank={rank}")],
        "stress": [Candidate(f"stress:rank={rank}", (f"mds:rank={rank}",))],
        "rope": [
            Candidate(name, ("rope", "rope:base=500000")) for name in ("fitted-rope", "fitted-base")
        ],
        "alibi": [
            Candidate(f"fitted-alibi:heads={heads}", (f"alibi:heads={heads}",)),
            Candidate(
                f"fitted-alibi:heads={heads},reading=attention",
                (f"alibi:heads={heads},reading=attention",),
            ),
            Candidate("fitted-kerple", ("kerple",)),
            Candidate("fitted-kerple:kind=power", ("kerple:kind=power",)),
        ],
        "t5": [Candidate("fitted-t5", ("t5",))],
    }
    for family in asked:
        if family not in (*known, ALL):
            raise PosgeomError(f"family {family!r} is not known; use {', '.join(known)} or {ALL}")
    wanted = [family for family in known if family in asked or ALL in asked]
    if heads < 1:
        raise PosgeomError(f"--heads {heads} came; give 1 or more")
    if "rope" in wanted and dim % 2:
        raise PosgeomError(f"--dim {dim} came, rope turns pairs of dimensions; give an even number")
    if grid and dim % 4 == 0:
        known["rope"].append(Candidate("fitted-axial", ("rope-2d",)))
    return [design for family in wanted for design in known[family]]
