"""The paper's claims under each convention of a sweep: all of them, some, or none."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from posgeom.paper.claims import NEAR
from posgeom.paper.conventions import HEAD, LABELS, low_rank_at
from posgeom.paper.scales import SCALES

if TYPE_CHECKING:
    import pandas as pd

FAR = 0.5  # "far below": at most half
ZERO = 0.01  # "near 0"
ONE = 0.05  # "nearly of rank 1": what rank 1 may leave
FACTORS = (*LABELS, "dim", "scale", "reading", "slopes")


@dataclass(frozen=True, eq=False)
class Held:
    """A claim under many conventions.

    means       how it was made a number
    table       a row a convention: the factors that it fixes, and `holds`
    """

    claim: str
    means: str
    table: "pd.DataFrame" = field(repr=False)

    @property
    def number(self) -> int:
        """Conventions."""
        return len(self.table)

    @property
    def holding(self) -> int:
        """Conventions under which it holds."""
        return int(self.table["holds"].sum())

    @property
    def verdict(self) -> str:
        """`holds under all 90`, `holds under some: 30 of 90`, `holds under none of the 90`."""
        if self.number == 0:
            return "could not be tried"
        if self.holding in (0, self.number):
            return f"holds under {'all' if self.holding else 'none of the'} {self.number:,}"
        return f"holds under some: {self.holding:,} of {self.number:,}"

    def shares(self) -> dict[tuple[str, str], tuple[int, int]]:
        """For each value of each factor: under how many conventions it holds, and of how many."""
        return {
            (factor, str(value)): (int(cell["holds"].sum()), len(cell))
            for factor in FACTORS
            if factor in self.table
            for value, cell in self.table.groupby(factor, sort=False)
        }


def all_claims(table: "pd.DataFrame") -> list[Held]:
    """Each claim of the paper on stress, held against a sweep."""
    return [f(table) for f in (alibi_far_below, alike, low_rank_near_zero, rank_one, least)]


def alibi_far_below(table: "pd.DataFrame") -> Held:
    """ALiBi against the sinusoid and RoPE; "unit" and "per-dim" leave ALiBi at its own scale."""
    import pandas as pd

    known = _sinusoid_and_rope(table)
    alibi = _long(table, "alibi", "alibi")
    own = alibi[alibi["scale"] == "raw"]
    everywhere = pd.concat([alibi, *(own.assign(scale=s) for s in ("unit", "per-dim"))])
    both = known.merge(everywhere, on=[*LABELS, "scale"])
    both[["reading", "slopes"]] = both["variant"].str.split(": ", expand=True)
    both["holds"] = both["alibi"] <= FAR * both[["sinusoidal", "rope"]].min(axis=1)
    return Held("alibi", f"at most {FAR:g} times the lesser of the two", _plain(both))


def alike(table: "pd.DataFrame") -> Held:
    """The sinusoid over d dimensions against RoPE over a head; over d dimensions both are one."""
    both = _sinusoid_and_rope(table)
    both["holds"] = np.abs(both["rope"] / both["sinusoidal"] - 1) <= NEAR
    means = f"RoPE over a head of {HEAD} within {NEAR:.0%}; over all d dimensions it is an identity"
    return Held("alike", means, _plain(both))


def low_rank_near_zero(table: "pd.DataFrame") -> Held:
    """MDS of the largest rank that saves nine tenths of the parameters."""
    import pandas as pd

    mds = _mds(table)
    widths = [d for d in table["dim"].dropna().unique() if d != HEAD]
    saved = pd.concat(
        [
            mds[mds["rank"] == [low_rank_at(n, int(d)) for n in mds["n"]]].assign(dim=int(d))
            for d in widths
        ]
    )
    saved["holds"] = saved["raw"] <= ZERO
    means = f"the largest rank with 90% fewer parameters leaves at most {ZERO:g}"
    return Held("low-rank", means, _plain(saved))


def rank_one(table: "pd.DataFrame") -> Held:
    """MDS of rank 1."""
    mds = _mds(table)
    one = mds[mds["rank"] == 1].copy()
    one["holds"] = one["raw"] <= ONE
    return Held("rank-one", f"rank 1 leaves at most {ONE:g}", _plain(one))


def least(table: "pd.DataFrame") -> Held:
    """MDS of rank 3, the paper's, against all others at each scale."""
    mds = _mds(table)
    three = mds[mds["rank"] == 3].set_index(list(LABELS))["raw"]
    others = table[table["encoding"] != "mds"].groupby(list(LABELS), sort=False)[list(SCALES)]
    long = others.min().melt(ignore_index=False, var_name="scale", value_name="least")
    long = long.join(three.rename("mds")).reset_index().dropna(subset=["mds", "least"])
    long["holds"] = long["mds"] < long["least"]
    return Held(
        "optimal", "rank 3 has less stress than every other encoding of the sweep", _plain(long)
    )


def _sinusoid_and_rope(table: "pd.DataFrame") -> "pd.DataFrame":
    """A row a case, width and scale: stress of the sinusoid, and of RoPE over a head."""
    rope = table[table["dim"] == HEAD]
    sinusoidal = _long(table, "sinusoidal", "sinusoidal").drop(columns="variant")
    of_rope = _long(rope, "rope", "rope").drop(columns=["dim", "variant"])
    return sinusoidal.merge(of_rope, on=[*LABELS, "scale"])


def _long(table: "pd.DataFrame", encoding: str, name: str) -> "pd.DataFrame":
    """A row a case, width, variant and scale, without the empty ones."""
    own = table[table["encoding"] == encoding]
    keys = [*LABELS, *(["dim"] if encoding != "alibi" else []), "variant"]
    return own.melt(keys, list(SCALES), "scale", name).dropna(subset=[name])


def _mds(table: "pd.DataFrame") -> "pd.DataFrame":
    mds = table[table["encoding"] == "mds"].drop(columns="dim")
    ranks = mds["variant"].str.removeprefix("rank ")
    mds["rank"] = np.where(ranks == "all ranks", mds["n"] - 1, 0)
    numbered = ranks != "all ranks"
    mds.loc[numbered, "rank"] = ranks[numbered].astype(int)
    return mds


def _plain(table: "pd.DataFrame") -> "pd.DataFrame":
    """The factors that vary, and what holds; widths as whole numbers."""
    kept = table[[name for name in (*FACTORS, "holds") if name in table]].reset_index(drop=True)
    return kept.assign(dim=kept["dim"].astype(int)) if "dim" in kept else kept


def near_conventions(table: "pd.DataFrame") -> "pd.DataFrame":
    """A row for each convention whose stress is within 5% of the paper's figure."""
    near = table[table["near"] != ""]
    near = near.assign(scale=near["near"].str.split(" ")).explode("scale")
    values = [row[row["scale"]] for row in near.to_dict("records")]
    columns = [*LABELS, "encoding", "variant", "scale"]
    return near[columns].assign(stress=values).reset_index(drop=True)
