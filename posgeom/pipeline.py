"""Pipelines: TOML files of stages, each one call that can be repeated.

[[stage]]
job = "design"
out = "quickstart"          # below the output folder; by default the file's own name
source = "python-stdlib"    # and any other keyword of the job; $NAMES of the environment in
                            # source, tokenizer and match are filled in
"""

import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from posgeom.atomic import check_out
from posgeom.comparison import FILES as COMPARISON_FILES
from posgeom.comparison import compare
from posgeom.design import design
from posgeom.designers_report import FILES as DESIGNERS_FILES
from posgeom.designers_report import report_designers
from posgeom.emit import FILES
from posgeom.errors import PosgeomError
from posgeom.paper.corpora import FILES as CORPUS_FILES
from posgeom.paper.corpora import reproduce_corpus
from posgeom.paper.synthetic import FILES as SYNTHETIC_FILES
from posgeom.paper.synthetic import reproduce_synthetic
from posgeom.paper.theory import FILES as THEORY_FILES
from posgeom.paper.theory import reproduce_theory
from posgeom.paper.training.job import FILES as TRAINING_FILES
from posgeom.paper.training.job import reproduce_training
from posgeom.simulation import FILES as TRUTH_FILES
from posgeom.simulation import simulate_truth

# job -> what runs it (its signature is the schema of a stage) and the files that it writes
JOBS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "design": (design, FILES),
    "truth": (simulate_truth, TRUTH_FILES),
    "compare": (compare, COMPARISON_FILES),
    "designers": (report_designers, DESIGNERS_FILES),
    "paper-synthetic": (reproduce_synthetic, SYNTHETIC_FILES),
    "paper-corpus": (reproduce_corpus, CORPUS_FILES),
    "paper-theory": (reproduce_theory, THEORY_FILES),
    "paper-training": (reproduce_training, TRAINING_FILES),
}
NEED_SOURCE = ("design", "compare", "designers", "paper-corpus")


def run_pipeline(
    file: str | PathLike[str],
    out: str | PathLike[str] = "reports",
    *,
    force: bool = False,
    progress: bool = False,
    changes: Mapping[str, Any] | None = None,
) -> Iterator[tuple[Path, bool]]:
    """Run the stages of a pipeline; yields each one's folder and whether it was run just now.

    changes: keywords in place of the file's, for the stages whose job has them.
    A stage whose folder holds a run with the same settings is not run again, unless `force`.
    Raises PosgeomError for a file that is no pipeline, before any stage is run, and for a folder
    that holds something else.
    """
    stages = [
        (_changed(stage, changes or {}), _target(stage, Path(file), Path(out)))
        for stage in read_pipeline(file)
    ]
    folders = [folder for _, folder in stages]
    for i, folder in enumerate(folders, 1):
        if folder in folders[: i - 1]:
            raise PosgeomError(f"{file}, stage {i}: out: an earlier stage writes to {folder} too")
    for stage, folder in stages:
        if not force and _is_there(stage, folder):
            yield folder, False
            continue
        job, files = JOBS[stage["job"]]
        check_out(folder, files, "run.toml", force=force)
        settings = {k: v for k, v in stage.items() if k not in ("job", "out", "source")}
        corpus = [stage["source"]] if "source" in stage else []
        for name in {"tokenizer", "match"} & settings.keys():
            settings[name] = os.path.expandvars(settings[name])
        made = job(*map(os.path.expandvars, corpus), **settings, progress=progress)
        asked = made.provenance | {"stage": _plain(stage)}
        replace(made, provenance=asked).save(folder, force=force)
        yield folder, True


def read_pipeline(file: str | PathLike[str]) -> list[dict[str, Any]]:
    """The stages of a pipeline, each checked against the signature of its job."""
    try:
        stages = tomllib.loads(Path(file).read_text(encoding="utf-8-sig")).get("stage")
    except (OSError, UnicodeDecodeError) as error:
        raise PosgeomError(f"pipeline {file} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise PosgeomError(f"pipeline {file} is not TOML: {error}") from error
    if not isinstance(stages, list) or not stages:
        raise PosgeomError(f"pipeline {file} has no [[stage]]; see pipelines/quickstart.toml")
    return [_checked(stage, f"{file}, stage {i}") for i, stage in enumerate(stages, 1)]


def _checked(stage: dict[str, Any], where: str) -> dict[str, Any]:
    """The stage with its values in the types that its job takes."""
    if not isinstance(stage, dict):
        raise PosgeomError(f"{where} is {stage!r}; give a table, [[stage]]")
    job = stage.get("job")
    if not isinstance(job, str) or job not in JOBS:
        raise PosgeomError(f"{where}: job {job!r} is not known; use {', '.join(JOBS)}")
    if job in NEED_SOURCE and not isinstance(stage.get("source"), str):
        raise PosgeomError(f'{where} has no source; add source = "python-stdlib", or a path')
    model = _settings_model(JOBS[job][0])
    from pydantic import ValidationError

    try:
        values = model(**{k: v for k, v in stage.items() if k not in ("job", "out", "source")})
    except ValidationError as error:
        first = error.errors()[0]
        raise PosgeomError(
            f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']} ({first['input']!r} came)"
        ) from None
    kept = {k: stage[k] for k in ("job", "out", "source") if k in stage}
    return kept | values.model_dump(exclude_unset=True)


def _changed(stage: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The stage with those changes that its job takes, checked."""
    taken = _settings_model(JOBS[stage["job"]][0]).model_fields.keys() & changes.keys()
    return _checked(stage | {name: changes[name] for name in taken}, f"a change of {stage['job']}")


def _settings_model(job: Callable[..., Any]) -> Any:
    """A pydantic model of a job's keywords: the signature is the schema."""
    import inspect
    from typing import get_type_hints

    from pydantic import ConfigDict, create_model

    hints = get_type_hints(job)
    fields: dict[str, Any] = {
        name: (hints[name], parameter.default)
        for name, parameter in inspect.signature(job).parameters.items()
        if name not in ("corpus", "progress")
    }
    return create_model("Settings", __config__=ConfigDict(extra="forbid"), **fields)


def _target(stage: dict[str, Any], file: Path, out: Path) -> Path:
    """Where a stage writes; a run.toml without a name is for the folder it lies in."""
    default = file.resolve().parent.name if file.name == "run.toml" else file.stem
    return out / str(stage.get("out", default))


def _is_there(stage: dict[str, Any], folder: Path) -> bool:
    """Whether the folder holds the run of this stage, or the run that this stage repeats."""
    try:
        saved = read_pipeline(folder / "run.toml")[0]
        asked = json.loads((folder / "provenance.json").read_text(encoding="utf-8")).get("stage")
    except (PosgeomError, OSError, ValueError):
        return False
    return _plain(stage) in (asked, _plain(saved))


def _plain(stage: dict[str, Any]) -> Any:
    """A stage as JSON has it, without its folder."""
    return json.loads(json.dumps({k: v for k, v in stage.items() if k != "out"}))
