"""Estimates held against a known truth: what the correction of noise is worth."""

import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack
from scipy.spatial.distance import cdist

from posgeom import plots
from posgeom.atomic import written_folder
from posgeom.counts import PositionCounts, Provenance, canonical
from posgeom.designers import low_rank
from posgeom.emit import made_with
from posgeom.encodings import make_encoding
from posgeom.errors import PosgeomError
from posgeom.geometry import ESTIMATORS, Geometry, estimate_geometry, true_geometry
from posgeom.inference import Estimate, condensed, jackknife, stress_of
from posgeom.mds import classical_mds
from posgeom.rank import above_noise
from posgeom.stress import stress
from posgeom.synthetic import SHAPES, SyntheticCorpus

if TYPE_CHECKING:
    import pandas as pd

ENCODINGS = ("sinusoidal", "alibi", "alibi:reading=kernel")  # RoPE's distances are sinusoidal's
FILES = ("runs.csv", "summary.csv", "summary.md", "stress.svg", "run.toml", "provenance.json")
DRAWN = ("sinusoidal", "alibi")  # encodings in the figure
CLEAR = 0.05  # a difference of true stresses that ought to be seen


@dataclass(frozen=True, eq=False)
class TruthReport:
    """Runs on corpora with a known truth, one row a run, estimator and encoding."""

    runs: "pd.DataFrame" = field(repr=False)
    settings: dict[str, Any]
    provenance: dict[str, Any] = field(default_factory=dict)

    def save(self, folder: str | PathLike[str], *, force: bool = False) -> Path:
        """Write runs, summary as CSV and Markdown, a figure and run.toml; returns the folder."""
        import tomli_w

        with written_folder(folder, FILES, "run.toml", force=force) as out:
            stage = {"job": "truth"} | self.settings
            (out / "run.toml").write_text(tomli_w.dumps({"stage": [stage]}), encoding="utf-8")
            about = json.dumps(made_with() | self.provenance, indent=2)
            (out / "provenance.json").write_text(about + "\n", encoding="utf-8")
            self.runs.to_csv(out / "runs.csv", index=False, lineterminator="\n")
            table = summary(self.runs)
            table.to_csv(out / "summary.csv", index=False, lineterminator="\n")
            (out / "summary.md").write_text(markdown(self, table), encoding="utf-8")
            (out / "stress.svg").write_bytes(figure(self.runs))
        return Path(folder)


def simulate_truth(
    shapes: Sequence[str] = SHAPES,
    documents: Sequence[int] = (2_000, 7_000, 60_000),
    positions: int = 32,
    vocabulary: int = 2_000,
    seeds: int = 50,
    shortening: float = 0.8,
    *,
    progress: bool = False,
) -> TruthReport:
    """Estimate corpora of known shapes again and again, with each estimator.

    shapes, positions, vocabulary, shortening: see SyntheticCorpus; lengths fall to 1 − shortening
    of the positions.  documents: corpus sizes.  seeds: runs of each.
    Raises PosgeomError for options that make no corpus.
    """
    import pandas as pd
    from tqdm import tqdm

    if seeds < 1:
        raise PosgeomError(f"seeds={seeds} came; give 1 or more")
    cells = [(shape, size, seed) for shape in shapes for size in documents for seed in range(seeds)]
    rows: list[dict[str, Any]] = []
    for shape, size, seed in tqdm(cells, disable=not progress, desc="truth", leave=False):
        corpus = SyntheticCorpus(shape, positions, vocabulary, size, 1.0, shortening, seed)
        rows += simulate(corpus)
    settings = {
        "shapes": list(shapes),
        "documents": list(documents),
        "positions": positions,
        "vocabulary": vocabulary,
        "seeds": seeds,
        "shortening": shortening,
    }
    return TruthReport(pd.DataFrame(rows), settings)


def simulate(corpus: SyntheticCorpus) -> list[dict[str, Any]]:
    """Rows of one run: truth and estimate of each encoding's stress, by all estimators."""
    counts, structured = draw_counts(corpus), corpus.shape != "none"
    rows = []
    for estimator in ESTIMATORS:
        found = estimate_geometry(counts, estimator, seed=corpus.seed)
        # of the positions that the estimate has: it leaves out those with few tokens
        truth = true_geometry(corpus.profiles[found.index])
        δ = {spec: make_encoding(spec).distances(found.index) for spec in ENCODINGS}
        mean = condensed(truth.squared).mean()
        about = {
            "shape": corpus.shape,
            "documents": corpus.documents,
            "seed": corpus.seed,
            "estimator": estimator,
            "p_value": found.stationarity.p_value if found.stationarity else np.nan,
            "rank": found.stationarity.significant if found.stationarity else np.nan,
            "squared_ratio": condensed(found.squared).mean() / mean if structured else np.nan,
        }
        for spec in ENCODINGS:
            known = found.has_structure and structured
            fit = jackknife(stress_of(condensed(δ[spec])), found, bounds=(0, 1)) if known else None
            right = stress(δ[spec], truth.distances) if structured else np.nan
            rows.append(about | _row(spec, right, fit))
        if structured and found.has_structure:
            rows.append(about | _row("mds", designed_stress(found, truth), None))
    return rows


def draw_counts(corpus: SyntheticCorpus, folds: int = 16) -> PositionCounts:
    """Counts of a synthetic corpus, drawn at once; in law those of count_positions."""
    drawn = corpus.counts(folds)
    return PositionCounts(
        counts=canonical(vstack([csr_array(fold) for fold in drawn])),
        n_folds=folds,
        documents=np.array([fold[0].sum() for fold in drawn]),
        provenance=Provenance(documents=corpus.documents),
    )


def designed_stress(found: Geometry, truth: Geometry, dim: int = 128) -> float:
    """True stress of the table that classical MDS makes from an estimate: what a user gets."""
    mds = classical_mds(found.squared, squared=True)
    rank = max(1, min(above_noise(mds.eigenvalues), dim))
    table = low_rank(mds.coordinates, rank, dim).table()
    return stress(cdist(table, table), truth.distances)


def _row(encoding: str, truth: float, fit: Estimate | None) -> dict[str, Any]:
    fit = fit or Estimate(float("nan"))
    return {
        "encoding": encoding,
        "truth": truth,
        "stress": fit.value,
        "low": fit.low,
        "high": fit.high,
    }


def summary(runs: "pd.DataFrame") -> "pd.DataFrame":
    """A row for each shape, size and estimator: errors, coverage, the winner, what was found.

    all             all shapes with structure, and sizes, together: each run counts once
    runs            seeds; of them, `rejected` is the share in which the test finds structure
    error           mean absolute error of stress over runs and encodings
    worst           the largest mean absolute error of one encoding
    coverage        share of 95% intervals that hold the truth
    right           share of runs that name the better of two encodings whose true stresses
                    differ by more than 0.05, over all such pairs
    rank            dimensions that the test finds
    squared_ratio   mean squared distance found, as a multiple of the true one
    designed        true stress of the table that classical MDS makes from the estimate
    """
    import pandas as pd

    structured = runs[runs["shape"] != "none"]
    own = structured["shape"] + structured["documents"].astype(str) + structured["seed"].astype(str)
    together = structured.assign(shape="all", seed=own)
    runs = pd.concat([runs, together, together.assign(documents="all")])
    rows = []
    keys = ["shape", "documents", "estimator"]
    for (shape, size, estimator), cell in runs.groupby(keys, sort=False):
        known = cell[(cell["encoding"] != "mds") & cell["stress"].notna()]
        error = (known["stress"] - known["truth"]).abs()
        inside = (known["low"] <= known["truth"]) & (known["truth"] <= known["high"])
        once = cell.drop_duplicates("seed")
        rows.append(
            {
                "shape": shape,
                "documents": size,
                "estimator": estimator,
                "runs": len(once),
                "rejected": (once["p_value"] <= 0.05).mean() if estimator != "plugin" else np.nan,
                "rank": once["rank"].mean(),
                "squared_ratio": once["squared_ratio"].mean(),
                "error": error.mean(),
                "worst": error.groupby(known["encoding"]).mean().max(),
                "coverage": inside.mean() if known["low"].notna().any() else np.nan,
                "right": _named_rightly(known),
                "designed": cell.loc[cell["encoding"] == "mds", "truth"].mean(),
            }
        )
    return pd.DataFrame(rows)


def figure(runs: "pd.DataFrame") -> bytes:
    """SVG: estimated stress against the number of documents, a column for each shape."""
    from io import BytesIO

    from matplotlib.figure import Figure

    known = runs[runs["encoding"].isin(DRAWN) & (runs["shape"] != "none")]
    shapes = list(dict.fromkeys(known["shape"])) or [""]
    with plots.style():
        drawn = Figure(figsize=(1 + 2.3 * len(shapes), 2.4 * len(DRAWN)), layout="constrained")
        axes = drawn.subplots(len(DRAWN), len(shapes), squeeze=False, sharex=True)
        for (row, encoding), (column, shape) in product(enumerate(DRAWN), enumerate(shapes)):
            cell = known[(known["encoding"] == encoding) & (known["shape"] == shape)]
            by_size = cell.groupby(["estimator", "documents"])["stress"].agg(["mean", "std"])
            found = {name: by_size.loc[name] for name in ESTIMATORS if name in by_size.index}
            if cell.empty:
                continue
            ax = plots.estimates_by_size(
                axes[row, column],
                np.array(sorted(set(cell["documents"])), dtype=float),
                {k: (v["mean"].to_numpy(), v["std"].to_numpy()) for k, v in found.items()},
                cell["truth"].mean(),
            )
            ax.set_title(shape if row == 0 else "")
            ax.set_xlabel("documents" if row == len(DRAWN) - 1 else "")
            ax.set_ylabel(f"stress of {encoding}" if column == 0 else "")
        axes[0, 0].legend(fontsize=8)
        file = BytesIO()
        drawn.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


def _named_rightly(known: "pd.DataFrame") -> float:
    right: list[NDArray[np.bool_]] = []
    truth = known.pivot_table(index="seed", columns="encoding", values="truth")
    found = known.pivot_table(index="seed", columns="encoding", values="stress")
    for i, a in enumerate(truth.columns):
        for b in truth.columns[i + 1 :]:
            gap = (truth[a] - truth[b]).to_numpy()
            same = np.sign(gap) == np.sign((found[a] - found[b]).to_numpy())
            right.append(same[np.abs(gap) > CLEAR])
    every = np.concatenate(right) if right else np.array([])
    return float(every.mean()) if every.size else float("nan")


def markdown(report: TruthReport, table: "pd.DataFrame") -> str:
    """The summary for a reader, with the settings."""
    s = report.settings
    heads = list(table.columns)
    sentence, _, columns = (inspect.getdoc(summary) or "").partition("\n")
    lines = [
        "# Estimates against a known truth",
        "",
        f"Zipf vocabulary of {s['vocabulary']:,}, {s['positions']} positions, lengths falling "
        f"evenly to {1 - s['shortening']:.0%} of them, {s['seeds']} seeds a row.",
        "",
        sentence,
        "",
        "```text",
        *columns.strip().splitlines(),
        "```",
        "",
        "![Estimated stress against the number of documents](stress.svg)",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
    ]
    for row in table.to_dict("records"):
        cells = [f"{v:.3f}" if isinstance(v, float) else f"{v}" for v in row.values()]
        lines.append("| " + " | ".join("–" if c == "nan" else c for c in cells) + " |")
    return "\n".join(lines) + "\n"
