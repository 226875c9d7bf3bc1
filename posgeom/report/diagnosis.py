"""The report on a diagnosis: a folder with a page to read and a file for programs."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posgeom.atomic import check_out, written_folder
from posgeom.errors import PosgeomError
from posgeom.mds import MDSResult, classical_mds
from posgeom.report import evidence
from posgeom.report.draw import drawings
from posgeom.report.html import facts
from posgeom.report.page import flat, page
from posgeom.report.words import by_stress

if TYPE_CHECKING:
    import pandas as pd

    from posgeom.counts import PositionCounts
    from posgeom.diagnose import Diagnosis
    from posgeom.geometry import Geometry
    from posgeom.inference import Estimate

FILES = ("diagnosis.html", "diagnosis.json")
FIRST = (
    "Do positions differ at all?",
    "How much of the plug-in distance is noise?",
    "How many dimensions stand above the noise?",
)
FLOOR = "How shift-invariant is the corpus: absolute or relative positions?"
FIT, MISSES = "Which encoding fits, and is its lead beyond its error?", "Where does it fail?"
DOCUMENTS = "How many documents would settle it?"


@dataclass(frozen=True, eq=False)
class Diagnosed:
    """A diagnosis with what it was made from."""

    counts: PositionCounts
    geometry: Geometry
    diagnosis: Diagnosis
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The corpus by name."""
        return ", ".join(self.counts.provenance.sources)

    @property
    def scores(self) -> pd.DataFrame:
        """The ranking; empty without structure."""
        return self.diagnosis.ranking

    @property
    def floor(self) -> Estimate:
        """Least stress by offset alone; there is none without structure."""
        if self.diagnosis.floor is None:
            raise PosgeomError("a corpus without structure has no floor")
        return self.diagnosis.floor

    @cached_property
    def mds(self) -> MDSResult:
        """Classical MDS of the geometry, all axes."""
        return classical_mds(self.geometry.squared, squared=True)


def check_diagnosis_out(folder: str | os.PathLike[str], *, force: bool = False) -> Path:
    """The folder as a path, once a diagnosis may be written there; see atomic.check_out."""
    return check_out(folder, FILES, FILES[1], force=force)


def write_diagnosis(
    made: Diagnosed,
    folder: str | os.PathLike[str],
    *,
    force: bool = False,
    progress: bool = False,
) -> Path:
    """Write `folder`/diagnosis.html and diagnosis.json, whole or not at all; returns the folder.

    Raises PosgeomError as check_diagnosis_out does.
    """
    with written_folder(folder, FILES, FILES[1], force=force) as out:
        (out / FILES[0]).write_text(diagnosis_html(made, progress=progress), encoding="utf-8")
        (out / FILES[1]).write_text(diagnosis_json(made.diagnosis), encoding="utf-8")
    return Path(folder)


def diagnosis_json(diagnosis: Diagnosis) -> str:
    """Diagnosis.as_dict as JSON; a number that is not known is null."""
    return json.dumps(_known(diagnosis.as_dict()), indent=2, ensure_ascii=False) + "\n"


def _known(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _known(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_known(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def diagnosis_html(made: Diagnosed, *, progress: bool = False) -> str:
    """The page; a corpus without structure gets the answers and the test, no distances."""
    figures = [evidence.TEST]
    if made.geometry.has_structure:
        figures = [evidence.BARS] if len(made.scores) else []
        figures += [evidence.MISSES] if evidence.has_misses(made) else []
        figures += [evidence.NOISE, evidence.SPECTRUM]
    corpus = [(k, v) for k, v in flat(made.counts.provenance.as_dict()) if k != "notes"]
    return page(
        kicker="What does this corpus ask of a positional encoding?",
        title=made.title,
        facts=facts(made),
        answers=answers(made.diagnosis),
        scores=by_stress(made),
        drawn=drawings(figures, made, both=False, progress=progress),
        tables={"Settings": flat(made.settings), "Corpus": corpus},
        notes=(*made.counts.provenance.notes, *made.geometry.notes),
    )


def answers(diagnosis: Diagnosis) -> list[tuple[str, tuple[str, ...]]]:
    """The sentences in their order, under the questions that they answer.

    Three come first, then the floor, the fit in one or two, the misses, where there is structure;
    the documents come last.
    """
    said = diagnosis.sentences
    found: list[tuple[str, tuple[str, ...]]]
    found = [(question, (sentence,)) for question, sentence in zip(FIRST, said, strict=False)]
    rest = said[3:-1]
    if diagnosis.floor is not None:
        found.append((FLOOR, rest[:1]))
        rest = rest[1:]
    if len(rest) > 1:
        found += [(FIT, rest[:-1]), (MISSES, rest[-1:])]
    elif rest:
        found.append((FIT, rest))
    return [*found, (DOCUMENTS, said[-1:])]
