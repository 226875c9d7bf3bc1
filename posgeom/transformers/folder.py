"""A model folder with another encoding, checked in a fresh process before it stands."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from posgeom.atomic import check_out, written_folder
from posgeom.encodings import Encoding
from posgeom.encodings.config import LENGTH_KEYS
from posgeom.encodings.config_values import whole
from posgeom.encodings.weights import tensors_of
from posgeom.errors import PosgeomError
from posgeom.transformers import reload
from posgeom.transformers.inject import Injection, injection
from posgeom.transformers.rotary import check_frequencies
from posgeom.transformers.scale import Scale

MARK = "posgeom.json"  # says what was injected; without it a folder is none of ours
WEIGHTS = (".bin", ".safetensors", ".h5", ".msgpack", ".ot", ".onnx", ".pt", ".pth", ".gguf")
WRITTEN = ("config.json", "generation_config.json", MARK)
ANOTHER_MODEL = ("README.md",)  # which is about the model as it was
LENGTH = 64  # of the input that is compared
AGREE = {torch.float32: 1e-5, torch.float64: 1e-5}  # of the largest output; others as HALF
HALF = 1e-2
FINE_TUNE = (
    "a changed encoding wants fine-tuning: the other weights were trained with the old one, and "
    "the model is worse before it"
)


@dataclass(frozen=True)
class Injected:
    """What inject_folder did, once it was checked.

    folder, model   where, and the class of the model
    changed         tensors that hold the encoding; empty where it is in the config
    same            how many other tensors have the bytes they had
    difference      largest difference of outputs between the fresh process and this one, of the
                    largest output
    config          key -> [before, after] of the config's keys that changed
    said            what a reader should know, a sentence each
    """

    folder: str
    model: str
    changed: tuple[str, ...]
    same: int
    difference: float
    config: dict[str, Any]
    said: tuple[str, ...]


def inject_folder(
    model_dir: str | PathLike[str],
    encoding: Encoding | None,
    out: str | PathLike[str],
    *,
    extend_to: int | None = None,
    extend_by: str | None = None,
    scale: Scale = "match",
    passport: dict[str, Any] | None = None,
    force: bool = False,
) -> Injected:
    """Write the model of a folder with another encoding to `out`; see inject.

    encoding   None: the model's own table with a tail that reaches to `extend_to`
    extend_by  how that tail is made, see with_tail: by default "harmonic", after which the model's
               own rows are as they were
    passport   where the encoding is from; written to posgeom.json of the folder
    force      replace an earlier injection

    Tokenizer and other files come along; a longer model's tokenizer_config.json says so.  A fresh
    process then loads the folder with plain `transformers`, without this package, and must find
    every other tensor byte by byte as it was, the encoding as it was meant, and the same outputs
    as the model here.
    Raises PosgeomError for what inject refuses and for what does not come out so; nothing is then
    left behind.
    """
    source, names = Path(model_dir), _names(out)
    check_out(out, names, MARK, force=force)  # before the work
    with quiet():
        model, unfit = _load(source)
        before, config = reload.digests(model), model.config.to_dict()
        how: dict[str, Any] = {}
        if encoding is None:
            encoding, how = _own_table(source, extend_to, extend_by)
            passport = {"encoding": encoding.name} | how
            if scale not in ("match", "own"):
                raise PosgeomError(
                    f"--scale {scale} came without a RUN: the model's own rows keep their size; "
                    "leave it out"
                )
            scale = "own"
        done = injection(model, encoding, extend_to=extend_to, scale=scale)
        done = replace(done, said=(*done.said, *_of_the_tail(how)))
        inputs = _inputs(done.model, extend_to)
        here = reload.outputs(done.model.eval(), inputs)
        with written_folder(out, names, MARK, force=force) as folder:
            done.model.save_pretrained(folder)
            _carry(source, folder, extend_to)
            found, there = _in_fresh_process(folder, inputs)
            difference = _check(done, before, unfit, found, here, there)
            after = json.loads((folder / "config.json").read_text("utf-8"))
            injected = Injected(
                folder=str(out),
                model=found["class"],
                changed=done.changed,
                same=len(before) - len(done.changed),
                difference=difference,
                config=_changes(config, done.model.config.to_dict()),
                said=done.said,
            )
            about = asdict(injected) | {
                "posgeom": version("posgeom"),
                "encoding": passport or {"encoding": encoding.name},
                "model_type": after.get("model_type"),
            }
            del about["folder"]
            about["files"] = sorted([*(p.name for p in folder.iterdir()), MARK])
            text = json.dumps(about, indent=2, sort_keys=True, ensure_ascii=False)
            (folder / MARK).write_text(text + "\n", encoding="utf-8")
    return injected


@contextmanager
def quiet() -> Iterator[None]:
    """Without the bars and warnings of `transformers`; what matters of them is checked."""
    level, bars = transformers.logging.get_verbosity(), transformers.utils.logging
    shown = bars.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(level)
        if shown:
            bars.enable_progress_bar()


def _load(source: Path) -> tuple[Any, dict[str, list[str]]]:
    if not (source / "config.json").is_file():
        raise PosgeomError(f"{source} has no config.json; give the folder of a model")
    tensors_of(source)  # which refuses pickles: older torch runs what is in them, weights_only too
    try:
        model, unfit = reload.load(source)
    except Exception as error:  # OSError, ValueError, the format's own: all mean the same here
        raise PosgeomError(f"transformers cannot load {source}: {_line(error)}") from error
    if missing := unfit["missing_keys"] + unfit["mismatched_keys"]:
        raise PosgeomError(
            f"the weights of {source} lack {missing[0]} of a {type(model).__name__} "
            f"({len(missing)} tensors in all), which would be random; put all of them there"
        )
    return model, unfit


def _own_table(
    source: Path, extend_to: int | None, extend_by: str | None
) -> tuple[Encoding, dict[str, Any]]:
    from posgeom.emit.tail import with_tail
    from posgeom.encodings import LearnedTable
    from posgeom.passport import open_model

    found = open_model(source).found
    own = found[0].encoding
    tables = [f.tensor or "?" for f in found if isinstance(f.encoding, LearnedTable)]
    if len(tables) > 1:
        raise PosgeomError(
            f"{source} has {len(tables)} tables, of {' and '.join(tables)}, "
            "which differ; give a RUN or a FILE that replaces both"
        )
    if extend_to is None or not isinstance(own, LearnedTable):
        raise PosgeomError(
            f"no run came to take an encoding from; give one, or --extend M for a model with a "
            f"learned table ({source} has {own.family})"
        )
    return with_tail(own, extend_to, extend_by)


def _of_the_tail(how: dict[str, Any]) -> Iterator[str]:
    """What a reader should know of the model's own table carried on, see with_tail."""
    if "extended" not in how:
        return
    about = how["extended"]
    if "interpolation" in about["methods"]:
        yield "its own rows are interpolated, and all but the first and the last move"
    else:
        yield (
            f"its own {about['from']:,} rows are as they were; those past them follow by the "
            "harmonic form of their distances"
        )
    if costs := about["held_out"]:
        ways = (way for way in ("harmonic", "interpolation") if way in costs)
        each = ", ".join(f"{costs[way]:.3f} by {way}" for way in ways)
        yield (
            "with the last half of its rows hidden and carried to, the stress over pairs with "
            f"such a row is {each} (0 is exact); --extend-by takes the other way"
        )


def _inputs(model: Any, extend_to: int | None) -> dict[str, list[list[int]]]:
    """Token ids (1, length), none the padding's; of a model made longer as many as it takes."""
    config = model.config
    padding = getattr(config, "pad_token_id", None)
    known = whole(config.to_dict(), LENGTH_KEYS) or LENGTH
    ids = np.delete(np.arange(config.vocab_size), [] if padding is None else [padding])
    length = extend_to or min(LENGTH, known - 2)
    drawn = np.random.default_rng(0).choice(ids, length).tolist()
    inputs = {"input_ids": [drawn]}
    if getattr(config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = [drawn]
    return inputs


def _in_fresh_process(
    folder: Path, inputs: dict[str, list[list[int]]]
) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    """What reload.py finds in the folder: its answer, and the outputs."""
    with tempfile.TemporaryDirectory(prefix="posgeom-") as scratch:
        asked, answer = Path(scratch, "asked.json"), Path(scratch, "answer.json")
        asked.write_text(json.dumps({"inputs": inputs, "threads": torch.get_num_threads()}))
        ran = subprocess.run(
            # -P: the folder of the program, beside which `transformers` is another, is no place
            # to import from
            [sys.executable, "-P", reload.__file__, str(folder), str(asked), str(answer)],
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode or not answer.is_file():
            last = (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
            raise PosgeomError(f"plain transformers does not load what was made: {last}")
        found = json.loads(answer.read_text("utf-8"))
        return found, np.load(answer.with_name(answer.name + ".npy"), allow_pickle=False)


def _check(
    done: Injection,
    before: dict[str, str],
    unfit: dict[str, list[str]],
    found: dict[str, Any],
    here: np.ndarray[Any, Any],
    there: np.ndarray[Any, Any],
) -> float:
    """The largest difference of outputs, of the largest; PosgeomError where a thing is not so."""
    if found["foreign"]:
        raise PosgeomError(f"the fresh process loaded {found['foreign'][0]}; run it without")
    for kind, names in found["unfit"].items():
        if new := sorted(set(names) - set(unfit[kind])):
            raise PosgeomError(f"reloaded, {new[0]} is among the {kind.replace('_', ' ')}")
    wanted = before | {k: v for k, v in reload.digests(done.model).items() if k in done.changed}
    differing = sorted(
        name for name in wanted | found["tensors"] if wanted.get(name) != found["tensors"].get(name)
    )
    if differing:
        raise PosgeomError(
            f"reloaded, {differing[0]} has other bytes than it should ({len(differing)} tensors)"
        )
    if done.wanted is not None:
        check_frequencies(found["rotary"], *done.wanted)
    if here.shape != there.shape or not (np.isfinite(here).all() and np.isfinite(there).all()):
        raise PosgeomError("the model's output holds NaN or infinity, or changes its shape")
    largest = float(np.abs(here).max())
    difference = float(np.abs(here - there).max()) / largest if largest else 0.0
    if difference > AGREE.get(done.model.dtype, HALF):
        raise PosgeomError(
            f"reloaded, the outputs differ by {difference:.2g} of the largest; nothing was written"
        )
    return difference


def _carry(source: Path, folder: Path, extend_to: int | None) -> None:
    """The tokenizer and all else that is no weights."""
    skip = {*WRITTEN, *ANOTHER_MODEL}
    for path in sorted(source.iterdir()):
        if path.name in skip or path.name.startswith(".") or (folder / path.name).exists():
            continue
        if path.is_dir():
            shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns(*_patterns()))
        elif path.suffix in WEIGHTS or path.name.endswith(".index.json"):
            continue
        elif path.is_file():  # a link may lead to a device, which has no end
            shutil.copy(path, folder / path.name)
    settings = folder / "tokenizer_config.json"
    if extend_to is None or not settings.is_file():
        return
    try:
        said = json.loads(settings.read_text("utf-8")) | {"model_max_length": extend_to}
    except (ValueError, TypeError) as error:
        raise PosgeomError(f"{source / settings.name} is no JSON object: {error}") from error
    settings.write_text(json.dumps(said, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _patterns() -> tuple[str, ...]:
    return (*(f"*{suffix}" for suffix in WEIGHTS), ".*")


def _changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """[before, after] of what differs, but for what transformers notes of itself."""
    ours = {"transformers_version", "architectures", "_name_or_path"}
    return {
        key: [before.get(key), after.get(key)]
        for key in sorted((before | after).keys() - ours)
        if before.get(key) != after.get(key)
    }


def _names(out: str | PathLike[str]) -> list[str]:
    """The files that an earlier injection wrote into a folder."""
    try:
        said = json.loads((Path(out) / MARK).read_text("utf-8"))["files"]
        return [name for name in said if isinstance(name, str)]
    except (OSError, ValueError, LookupError, TypeError):
        return []


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
