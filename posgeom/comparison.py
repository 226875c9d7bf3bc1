"""One corpus under both estimators: what taking the noise out changes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posgeom.atomic import written_folder
from posgeom.counting import count_positions
from posgeom.diagnose import Diagnosis, diagnose
from posgeom.emit import made_with
from posgeom.geometry import estimate_geometry
from posgeom.inference import Estimate, condensed
from posgeom.scoring import floor_estimate, score_encodings

if TYPE_CHECKING:
    import pandas as pd

FILES = ("comparison.csv", "comparison.md", "run.toml", "provenance.json")
ENCODINGS = ("sinusoidal", "rope", "alibi", "alibi:reading=kernel", "random")


@dataclass(frozen=True, eq=False)
class Comparison:
    """Scores of encodings against the plug-in and the debiased geometry of one corpus.

    scores      a row an encoding: stress by both estimators, with the debiased one's interval
    squared     mean squared distance: plug-in, debiased (None without structure)
    floors      least stress of any shift-invariant encoding: plug-in, debiased
    diagnosis   what the debiased geometry says; None where folds do not suffice for one
    """

    corpus: str
    positions: int
    tokenizer: str
    scores: "pd.DataFrame" = field(repr=False)
    squared: tuple[float, float | None]
    floors: tuple[Estimate, Estimate | None]
    diagnosis: Diagnosis | None
    notes: tuple[str, ...]
    settings: dict[str, Any] = field(repr=False)
    provenance: dict[str, Any] = field(repr=False)

    def save(self, folder: str | PathLike[str], *, force: bool = False) -> Path:
        """Write the table, a page of Markdown and run.toml into a new folder; returns it."""
        import tomli_w

        with written_folder(folder, FILES, "run.toml", force=force) as out:
            self.scores.to_csv(out / "comparison.csv", index=False, lineterminator="\n")
            (out / "comparison.md").write_text(self.markdown(), encoding="utf-8")
            stage = {"job": "compare"} | self.settings
            (out / "run.toml").write_text(tomli_w.dumps({"stage": [stage]}), encoding="utf-8")
            about = json.dumps(made_with() | self.provenance, indent=2)
            (out / "provenance.json").write_text(about + "\n", encoding="utf-8")
        return Path(folder)

    def markdown(self) -> str:
        """The comparison for a reader."""
        plugin, debiased = self.squared
        lines = [
            f"# {self.corpus}",
            "",
            f"{self.positions} positions, tokenizer {self.tokenizer}.",
            "",
            "| | plug-in | debiased |",
            "|---|---|---|",
            f"| mean squared distance | {plugin:.4f} | {_or_none(debiased)} |",
            f"| shift-invariant floor | {self.floors[0].value:.3f} | {_or_none(self.floors[1])} |",
        ]
        for row in self.scores.to_dict("records"):
            estimate = Estimate(row["debiased"], row["debiased_se"])
            shown = "–" if row["debiased"] != row["debiased"] else str(estimate)
            lines.append(f"| stress of {row['encoding']} | {row['plugin']:.3f} | {shown} |")
        lines += ["", self.what_changes(), ""]
        if self.diagnosis is not None:
            lines += [" ".join(self.diagnosis.sentences), ""]
        lines += [f"- {note}" for note in self.notes]
        return "\n".join(lines).rstrip() + "\n"

    def what_changes(self) -> str:
        """One plain sentence on the winner before and after."""
        known = self.scores[self.scores["encoding"] != "random"]
        names = known["encoding"].to_list()
        before = names[int(known["plugin"].argmin())]
        if self.diagnosis is None:
            return f"Plug-in distances name {before}; folds do not suffice to take their noise out."
        if known["debiased"].isna().all():
            return f"Plug-in distances name {before}; without their noise there is nothing to fit."
        after = names[int(known["debiased"].argmin())]
        if before == after:
            return f"{before} fits best of those in use under both estimators."
        return f"Plug-in distances name {before}; without their noise, {after} fits best."


def compare(
    corpus: Any,
    tokenizer: Any = "words",
    positions: int | None = None,
    align: str = "start",
    *,
    min_count: int = 2,
    dim: int = 128,
    encodings: Sequence[str] = ENCODINGS,
    seed: int = 0,
    progress: bool = False,
    text_field: str | None = None,
    group_field: str | None = None,
    documents: str = "line",
) -> Comparison:
    """Count a corpus once and estimate it twice.  The keywords are those of `design`."""
    counts = count_positions(
        corpus,
        tokenizer,
        positions,
        align,
        progress=progress,
        text_field=text_field,
        group_field=group_field,
        documents=documents,
    )
    plugin = estimate_geometry(counts, "plugin", min_count=min_count)
    debiased = estimate_geometry(counts, min_count=min_count, seed=seed)
    scores = score_encodings(plugin, encodings, dim, seed=seed)[["encoding", "stress"]]
    scores = scores.rename(columns={"stress": "plugin"})
    found = None
    tested = debiased.stationarity is not None
    if tested and debiased.has_structure:
        found = score_encodings(debiased, encodings, dim, seed=seed)
    for name in ("stress", "stress_se", "stress_low", "stress_high"):
        column = "debiased" + name.removeprefix("stress")
        scores[column] = float("nan") if found is None else found[name]
    settings = {
        "source": corpus if isinstance(corpus, str) else None,
        "tokenizer": str(tokenizer),
        "positions": counts.n_positions,
        "align": align,
        "min_count": min_count,
        "dim": dim,
        "encodings": list(encodings),
        "seed": seed,
        "text_field": text_field,
        "group_field": group_field,
        "documents": documents,
    }
    return Comparison(
        corpus=", ".join(Path(s).name for s in counts.provenance.sources),
        positions=debiased.n_positions,
        tokenizer=Path(counts.provenance.tokenizer).name,
        scores=scores,
        squared=(
            float(condensed(plugin.squared).mean()),
            float(condensed(debiased.squared).mean()) if found is not None else None,
        ),
        floors=(floor_estimate(plugin), floor_estimate(debiased) if found is not None else None),
        diagnosis=diagnose(counts, debiased, encodings, dim, scores=found) if tested else None,
        notes=counts.provenance.notes + debiased.notes,
        settings={key: value for key, value in settings.items() if value is not None},
        provenance=counts.provenance.as_dict(),
    )


def _or_none(value: float | Estimate | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
