"""The paper's synthetic corpus: three positional distributions, n = 32, d = 128.

Its distributions are not known.  The tables are made for two that anyone can make again
(`synthetic:shape=mixture` and `synthetic:shape=blocks`); a sweep over others shows which come near
the paper's figures.
"""

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from scipy.stats import t as student

from posgeom import plots
from posgeom.encodings import Encoding, make_encoding
from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry, estimate_geometry, true_geometry
from posgeom.inference import Estimate, condensed, jackknife, raw_stress_of, stress_of
from posgeom.mds import classical_mds
from posgeom.paper import page
from posgeom.paper.page import PaperReport
from posgeom.paper.scales import Measure, measures, rescaled
from posgeom.paper.synthetic_page import judgements, opening, sections
from posgeom.paper.synthetic_sweep import sweep
from posgeom.plots.paper import figures_met
from posgeom.simulation import draw_counts
from posgeom.synthetic import SyntheticCorpus

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]

FILES = (*page.FILES, "stress.csv", "sweep.csv")
SHAPES = ("mixture", "blocks")  # of posgeom.synthetic; those of the tables
ENCODINGS = ("sinusoidal", "rope", "alibi", "alibi:reading=kernel", "random")
FORMS = ("eq4", "scale-free")
BASES = ("distributions", "sample", "debiased")


def reproduce_synthetic(
    positions: int = 32,
    dim: int = 128,
    vocabulary: int = 1_000,
    documents: int = 5_000,
    seeds: int = 20,
    sweep_seeds: int = 3,
    *,
    quick: bool = False,
    progress: bool = False,
) -> PaperReport:
    """The stress of known encodings and of MDS at every rank on corpora of three distributions.

    positions, dim: the paper's n and d.  vocabulary, documents: of the corpora of the tables.
    seeds: corpora drawn of each kind; their spread gives the 95% intervals.  sweep_seeds: the
    same for each cell of the sweep.  quick: two seeds, and a sweep of one over
    a single vocabulary.
    Raises PosgeomError for fewer than two seeds or four positions.
    """
    if seeds < 2 or sweep_seeds < 1 or positions < 4:
        raise PosgeomError(
            f"seeds={seeds}, sweep_seeds={sweep_seeds}, positions={positions} came; give 2 seeds, "
            "1 of the sweep and 4 positions or more"
        )
    start = time.perf_counter()
    settings = {
        "positions": positions,
        "dim": dim,
        "vocabulary": vocabulary,
        "documents": documents,
        "seeds": seeds,
        "sweep_seeds": sweep_seeds,
        "quick": quick,
    }
    drawn = range(2 if quick else seeds)
    table = stress_table(positions, dim, vocabulary, documents, len(drawn))
    cells = sweep(positions, dim, *((1, (60,)) if quick else (sweep_seeds,)))
    return PaperReport(
        job="paper-synthetic",
        title="The synthetic corpus",
        opening=page.opened(opening(settings, len(drawn), cells), quick),
        judgements=judgements(table, cells, positions, dim),
        sections=sections(table, cells, positions, dim),
        settings=settings,
        provenance={"seconds": round(time.perf_counter() - start, 1)},
        tables={"stress": table, "sweep": cells},
        drawings={"sweep": _drawing(cells)},
        files=FILES,
    )


def stress_table(n: int, dim: int, vocabulary: int, documents: int, seeds: int) -> "pd.DataFrame":
    """A row for each shape, encoding, form and basis.

    encoding    a known one, or mds:rank=r for r = 1..n−1
    parameters  that a model stores or learns for it
    form        "eq4": raw stress, rows of sinusoid, RoPE and random of length 1, ALiBi and MDS at
                their own scale; "scale-free"
    basis       "distributions": of the true distributions; "sample": of the frequencies in a
                sample, what the paper computes; "debiased": of one sample without its noise
    stress, low, high  mean over seeds and the 95% interval of one corpus; of "debiased" the
                estimate from the first seed and its interval
    """
    import pandas as pd

    known = {spec: make_encoding(spec, dim=dim) for spec in ENCODINGS}
    forms = {spec: _forms(encoding, n) for spec, encoding in known.items()}
    costs = {spec: encoding.cost(dim, 8, n).parameters for spec, encoding in known.items()}
    costs |= {f"mds:rank={r}": r * (n + dim) for r in range(1, n)}
    rows: list[dict[str, Any]] = []
    for shape in SHAPES:
        found: dict[str, list[dict[tuple[str, str], float]]] = {basis: [] for basis in BASES[:2]}
        for seed in range(seeds):
            corpus = SyntheticCorpus(shape, n, vocabulary, documents, seed=seed)
            counts = draw_counts(corpus)
            found["distributions"].append(_stresses(true_geometry(corpus.profiles), forms))
            found["sample"].append(_stresses(estimate_geometry(counts, "plugin"), forms))
            if seed == 0:
                debiased = _estimates(estimate_geometry(counts), forms)
        for spec, form in found["sample"][0]:
            cell = {"shape": shape, "encoding": spec, "parameters": costs[spec], "form": form}
            for basis, each in found.items():
                e = _of_one(np.array([stresses[spec, form] for stresses in each]))
                rows.append(cell | _columns(basis, e))
            rows.append(cell | _columns("debiased", debiased[spec, form]))
    return pd.DataFrame(rows)


def _columns(basis: str, e: Estimate) -> dict[str, Any]:
    return {"basis": basis, "stress": e.value, "low": e.low, "high": e.high}


def _of_one(x: FloatArray) -> Estimate:
    """The mean over corpora, and the 95% interval in which the figure of one of them falls."""
    sd = float(x.std(ddof=1))
    width = float(student.ppf(0.975, len(x) - 1)) * sd
    return Estimate(float(x.mean()), sd, max(0.0, float(x.mean()) - width), float(x.mean()) + width)


def _forms(encoding: Encoding, n: int) -> dict[str, Measure]:
    """The stress of a known encoding in both forms."""
    at = measures(rescaled(encoding, n))
    return {"eq4": at.get("unit", at["raw"]), "scale-free": at["optimal"]}


def _of_ranks(geometry: Geometry) -> dict[str, dict[str, Measure]]:
    """The stress of MDS at each rank in both forms; past its dimensions ranks add nothing."""
    n = geometry.n_positions
    X = classical_mds(geometry.squared, squared=True).coordinates
    δ = {f"mds:rank={r}": pdist(X[:, :r]) for r in range(1, n)}
    return {spec: {"eq4": raw_stress_of(d), "scale-free": stress_of(d)} for spec, d in δ.items()}


def _stresses(
    geometry: Geometry, known: dict[str, dict[str, Measure]]
) -> dict[tuple[str, str], float]:
    s = condensed(geometry.squared)
    return {
        (spec, form): max(0.0, float(measure(s)))
        for spec, forms in (known | _of_ranks(geometry)).items()
        for form, measure in forms.items()
    }


def _estimates(
    geometry: Geometry, known: dict[str, dict[str, Measure]]
) -> dict[tuple[str, str], Estimate]:
    """With intervals; MDS, made from this sample, is not corrected for bias."""
    return {
        (spec, form): jackknife(measure, geometry, bounds=(0, np.inf), correct=spec in known)
        for spec, forms in (known | _of_ranks(geometry)).items()
        for form, measure in forms.items()
    }


def _drawing(cells: "pd.DataFrame") -> bytes:
    """The sweep beside the paper's two figures."""
    from matplotlib.figure import Figure

    from posgeom.paper.claims import FIGURES

    target = (FIGURES["synthetic-sinusoidal"].value, FIGURES["synthetic-mds"].value)
    shown = cells[cells["mds 3"] > 1e-6]
    with plots.style():
        figure = Figure(figsize=(8.5, 3.8), layout="constrained")
        for ax, scale in zip(figure.subplots(1, 2, sharey=True), ("raw", "unit"), strict=True):
            groups = {
                str(name): (cell[scale].to_numpy(np.float64), cell["mds 3"].to_numpy(np.float64))
                for name, cell in shown.groupby("distance", sort=False)
            }
            figures_met(ax, groups, target)
            rows = "as they are" if scale == "raw" else "of length 1"
            ax.set_xlabel(f"stress of sinusoidal, rows {rows}")
        figure.axes[0].set_ylabel("stress of MDS, rank 3")
        return page.svg_of(figure)
