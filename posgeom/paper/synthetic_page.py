"""The page on the synthetic corpus: the paper's figures beside ours."""

from typing import TYPE_CHECKING, Any

import numpy as np

from posgeom.paper.claims import CLAIMS, FIGURES
from posgeom.paper.page import Judgement, Section, markdown_table, percent
from posgeom.paper.scales import SCALES
from posgeom.paper.synthetic_sweep import DISTANCES, LAWS, MDS, SHAPES, nearest
from posgeom.report.words import number

if TYPE_CHECKING:
    import pandas as pd

RANKS_SHOWN = (1, 2, 3, 4, 8, 16)
NEAREST = 12  # cells of the sweep on the page
OURS = "Hellinger chord, our corpora: a sample, mean and 95% for one corpus"


def opening(settings: dict[str, Any], seeds: int, cells: "pd.DataFrame") -> tuple[str, ...]:
    """What was done, and what came out, in short."""
    s, closest = settings, nearest(cells, 1).iloc[0]
    return (
        f"The paper draws a corpus from three positional distributions, n = {s['positions']}, "
        f"d = {s['dim']}, and does not say which. Here the tables are made for two: `mixture`, a "
        "straight passage from the first over the second to the third, and `blocks`, in which each "
        "third of the positions draws from one of them; the distributions are Zipf laws over "
        f"{s['vocabulary']:,} tokens in random orders, a sample has {s['documents']:,} documents "
        f"of full length, and {seeds} corpora of each kind were drawn (seeds 0 to {seeds - 1}).",
        f"A sweep over {len(cells):,} cells of shapes, laws, vocabularies, sample sizes and "
        "distances, each at six scales of the sinusoid, shows which come near the paper's "
        "figures. Its grid is coarse, and was not refined about the cells that came out best.",
        f"In short: of all of these `{closest['shape']}` with the law `{closest['law']}` and "
        f"{closest['distance']} distances comes nearest, the sinusoid at the scale "
        f"“{closest['scale']}”: {number(closest['sinusoidal'])} and {number(closest['mds'])} where "
        f"the paper has {FIGURES['synthetic-sinusoidal'].value:g} and "
        f"{FIGURES['synthetic-mds'].value:g}. What the paper says of parameters comes out exactly. "
        "That MDS of rank 3 has far less stress than the sinusoid holds for the distributions "
        "themselves, and need not for a sample of them, whose noise is not of low rank: the table "
        "of claims has both.",
    )


def judgements(
    table: "pd.DataFrame", cells: "pd.DataFrame", n: int, dim: int
) -> tuple[Judgement, ...]:
    """The paper's figures and claims beside ours."""
    sinusoidal, mds = FIGURES["synthetic-sinusoidal"], FIGURES["synthetic-mds"]
    less, fewer = FIGURES["synthetic-less"], FIGURES["synthetic-fewer"]
    near = {scale: sinusoidal.is_near(cells[scale]) for scale in SCALES}
    of_mds = {name: mds.is_near(cells[name]) for name in MDS}
    either = np.any(list(of_mds.values()), axis=0)
    both = sum(int((near[scale] & either).sum()) for scale in SCALES)
    closest = nearest(cells, 1).iloc[0]
    saves = {
        basis: ", ".join(
            f"{percent(_saved(table, shape, basis))} ({shape})" for shape in ("mixture", "blocks")
        )
        for basis in ("distributions", "sample")
    }
    long = nearest(cells, len(cells) * len(SCALES))
    saved_as_much = int(less.is_near(long["saves"]).sum())
    with_sinusoid = int(
        (less.is_near(long["saves"]) & sinusoidal.is_near(long["sinusoidal"])).sum()
    )
    saved = 1 - 3 * (n + dim) / (n * dim)
    alike = np.abs(cells["rope"] / cells["unit"] - 1).max()
    lower = (cells["mds 3"] > cells["optimal"]).to_numpy()
    noiseless = int(((cells["documents"] == 0) & lower).sum())
    own = np.column_stack([cells["mds 3"] > cells[scale] for scale in ("raw", "unit", "per-dim")])
    return (
        Judgement(
            sinusoidal.what,
            sinusoidal.where,
            f"{sinusoidal.value:g}",
            _both(table, "sinusoidal"),
            f"rows of length 1, {OURS}",
            _count_of(near, "the sweep comes within 5% of it in"),
        ),
        Judgement(
            mds.what,
            mds.where,
            f"{mds.value:g}",
            _both(table, "mds:rank=3"),
            f"rank 3 at its own scale, {OURS}",
            _count_of(of_mds, "the sweep comes within 5% of it in"),
        ),
        Judgement(
            "both of these",
            sinusoidal.where,
            f"{sinusoidal.value:g} and {mds.value:g}",
            f"{number(closest['sinusoidal'])} and {number(closest['mds'])}, the nearest pair",
            f"{closest['shape']}, {closest['law']}, V = {closest['vocabulary']:,}, "
            f"{_sample(closest['documents'])}, {closest['distance']}, sinusoid at the scale "
            f"“{closest['scale']}”, MDS of rank {closest['rank']}, "
            "the one that comes nearest",
            f"within 5% at once in {both} of {len(cells) * len(SCALES):,} cells and scales; "
            f"the nearest is off by {closest['off'] - 1:.1%}",
        ),
        Judgement(
            less.what,
            less.where,
            "99.8%",
            f"true distributions {saves['distributions']}; a sample {saves['sample']}",
            "sinusoid with rows of length 1, MDS at its own scale, Hellinger chord, our corpora: "
            "of the mean stresses",
            f"met in {saved_as_much:,} of {len(long):,} cells and scales, in {with_sinusoid} of "
            f"them beside {sinusoidal.value:g}; the paper's own figures make "
            f"{1 - mds.value / sinusoidal.value:.1%}, so that {mds.value:g} is not the stress of "
            "its rank 3, or one of the three is of another run",
        ),
        Judgement(
            fewer.what,
            fewer.where,
            "88%",
            f"{saved:.1%}: r(n + d) = {3 * (n + dim):,} against nd = {n * dim:,}",
            f"n = {n}, d = {dim}, r = 3",
            "reproduced" if fewer.is_near(saved) else "not reproduced",
        ),
        Judgement(
            CLAIMS["alike"].says,
            CLAIMS["alike"].where,
            "–",
            f"largest difference {f'{alike:.1e}'.replace('-', '−')} of the stress",
            "RoPE over d slots, content of equal energy in each pair",
            "holds: with the same frequencies it is an identity",
        ),
        Judgement(
            CLAIMS["optimal"].says,
            CLAIMS["optimal"].where,
            "–",
            f"rank 3 has more stress than the sinusoid in {int(own.sum()):,} of {own.size:,} "
            "cells and scales that do not look at the corpus, and in "
            f"{int(lower.sum()):,} of {len(lower):,} cells where the sinusoid's scale is optimal; "
            f"{noiseless} of the latter are of the distributions themselves, without a sample",
            "all cells of the sweep, Eq. 4",
            "fails at low rank where noise fills the distances: they are nearly all alike, which "
            "three dimensions cannot be"
            if own.any() or lower.any()
            else "holds in all cells",
        ),
    )


def _saved(table: "pd.DataFrame", shape: str, basis: str) -> float:
    """Share of the sinusoid's stress that rank 3 saves."""
    return 1 - _at(table, shape, "mds:rank=3", basis) / _at(table, shape, "sinusoidal", basis)


def _at(table: "pd.DataFrame", shape: str, spec: str, basis: str = "sample") -> float:
    row = (table["shape"] == shape) & (table["encoding"] == spec) & (table["basis"] == basis)
    return float(table.loc[row & (table["form"] == "eq4"), "stress"].iloc[0])


def _both(table: "pd.DataFrame", spec: str) -> str:
    rows = table[(table["basis"] == "sample") & (table["form"] == "eq4")]
    own = rows[rows["encoding"] == spec].set_index("shape")[["stress", "low", "high"]]
    return ", ".join(
        f"{shape} {_with_interval(*own.loc[shape])}" for shape in ("mixture", "blocks")
    )


def _count_of(near: dict[str, Any], says: str) -> str:
    """`not reproduced; …` or where a figure was met."""
    met = {name: int(hits.sum()) for name, hits in near.items() if hits.any()}
    if not met:
        return "not reproduced in any cell of the sweep"
    cells = len(next(iter(near.values())))
    return f"{says} {', '.join(f'{k} of {cells} ({name})' for name, k in met.items())}"


def _sample(documents: int) -> str:
    return f"{documents:,} documents" if documents else "no sample"


def sections(table: "pd.DataFrame", cells: "pd.DataFrame", n: int, dim: int) -> tuple[Section, ...]:
    """The tables of the page."""
    return (
        *(
            Section(f"Stress on `{shape}`", _stress_lines(table, shape, n, dim))
            for shape in dict.fromkeys(table["shape"])
        ),
        Section("What comes near the paper's figures", _sweep_lines(cells)),
    )


def _stress_lines(table: "pd.DataFrame", shape: str, n: int, dim: int) -> tuple[str, ...]:
    own = table[table["shape"] == shape]
    ranks = [f"mds:rank={r}" for r in (*RANKS_SHOWN, n - 1) if r < n]
    known = [spec for spec in dict.fromkeys(own["encoding"]) if not spec.startswith("mds")]
    cells = {
        (row["encoding"], row["form"], row["basis"]): (row["stress"], row["low"], row["high"])
        for row in own.to_dict("records")
    }
    parameters = dict(zip(own["encoding"], own["parameters"], strict=True))
    rows = []
    for spec in [*known, *dict.fromkeys(ranks)]:
        fewer = 1 - parameters[spec] / (n * dim)
        rows.append(
            (
                spec,
                f"{parameters[spec]:,}",
                percent(fewer) if parameters[spec] else "all",
                number(cells[spec, "eq4", "distributions"][0]),
                _with_interval(*cells[spec, "eq4", "sample"]),
                _with_interval(*cells[spec, "eq4", "debiased"]),
                number(cells[spec, "scale-free", "sample"][0]),
            )
        )
    return (
        "Eq. 4, sinusoid, RoPE and random with rows of length 1, ALiBi and MDS at their own scale. "
        "Distributions: of the true ones, mean over corpora. Sample: mean over corpora and the 95% "
        "interval for one corpus. Debiased: the first sample without its noise, and its "
        "95% interval; that corpus's own distributions need not have the mean over corpora. "
        f"Fewer: parameters saved against a table of n × d = {n * dim:,}. All ranks stand in "
        "stress.csv.",
        "",
        *markdown_table(
            (
                "encoding",
                "parameters",
                "fewer",
                "distributions",
                "sample",
                "debiased",
                "sample, scale-free",
            ),
            rows,
        ),
    )


def _with_interval(value: float, low: float, high: float) -> str:
    shown = number(value)
    return shown if np.isnan(low) else f"{shown} ({number(low)} to {number(high)})"


def _sweep_lines(cells: "pd.DataFrame") -> tuple[str, ...]:
    best = nearest(cells, NEAREST)
    return (
        "Shapes: " + "; ".join(f"`{name}`: {about}" for name, about in SHAPES.items()) + ".",
        "",
        "Laws: " + "; ".join(f"`{name}`: {about}" for name, about in LAWS.items()) + ".",
        "",
        "Scales of the sinusoid: "
        + "; ".join(f"`{name}`: {about}" for name, about in SCALES.items())
        + ".",
        "",
        f"Distances: {', '.join(DISTANCES)}. MDS keeps its own scale. The cells that come nearest "
        "to both figures at once:",
        "",
        *markdown_table(
            (
                "shape",
                "law",
                "V",
                "documents",
                "distance",
                "scale",
                "sinusoidal",
                "MDS",
                "rank",
                "rank 3 saves",
            ),
            [
                (
                    row["shape"],
                    row["law"],
                    f"{row['vocabulary']:,}",
                    f"{row['documents']:,}" if row["documents"] else "–",
                    row["distance"],
                    row["scale"],
                    number(row["sinusoidal"]),
                    number(row["mds"]),
                    str(row["rank"]),
                    f"{row['saves']:.1%}",
                )
                for row in best.to_dict("records")
            ],
        ),
        "",
        "![Stress of MDS of rank 3 against that of the sinusoid](figures/sweep.svg)",
        "",
        "That a cell comes near is no proof that it is the paper's: either figure is met by "
        "several that have little in common.",
    )
