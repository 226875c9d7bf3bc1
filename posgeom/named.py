"""Corpora that have a name instead of a path: the registry in data/corpora.toml, and the hub."""

import os
import sysconfig
import tokenize
import tomllib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posgeom.errors import PosgeomError
from posgeom.files import Columns, Names, Reading, Row, Table, first_line
from posgeom.readers import SAMPLE, value_columns, value_rows
from posgeom.resources import resource

NOT_SOURCE = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


@cache
def _registry() -> str:
    return resource("data", "corpora.toml").read_text(encoding="utf-8")


def named_corpora() -> dict[str, dict[str, Any]]:
    """The named corpora: name -> description, kind, size, licence, and where data sets lie."""
    return tomllib.loads(_registry())


class Made(NamedTuple):
    """A corpus that posgeom makes on the spot; `documents` gives pairs of content and group."""

    documents: Callable[[], Iterator[tuple[Any, str | None]]]
    holds_ids: bool
    grid: tuple[int, int] | None = None


def made_corpus(kind: str, options: str) -> Made:
    """The made corpus of a kind; `options` is what stands after the colon of `synthetic:...`."""
    if kind == "synthetic":
        return _synthetic(parse_options(options))
    if options:
        raise PosgeomError(f"only synthetic takes options after a colon, came: {options}")
    return {"stdlib": Made(stdlib_lines, False), "digits": Made(digits, True, (8, 8))}[kind]


def local_file(entry: dict[str, Any]) -> str | None:
    """The local file of a named data set, where POSGEOM_DATA is set and holds it."""
    folder = os.environ.get("POSGEOM_DATA")
    path = os.path.join(folder, entry["local"]["file"]) if folder else ""
    return path if os.path.isfile(path) else None


def stdlib_lines() -> Iterator[tuple[str, str]]:
    """The source lines of the running interpreter's standard library, each with its file."""
    root = Path(sysconfig.get_path("stdlib"))
    found = False
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).as_posix()):
        relative = path.relative_to(root)
        if NOT_SOURCE.isdisjoint(relative.parts):
            found = True
            with tokenize.open(path) as source:
                yield from ((line.removesuffix("\n"), relative.as_posix()) for line in source)
    if not found:
        raise PosgeomError(f"no source files in {root}; python-stdlib needs a Python that has them")


def digits() -> Iterator[tuple[Any, None]]:
    """The grey levels (0 to 16) of scikit-learn's 8 × 8 digits, row by row."""
    from sklearn.datasets import load_digits

    for image in load_digits().data.astype(np.int64):
        yield image, None


def _synthetic(options: dict[str, Any]) -> Made:
    from posgeom.synthetic import synthetic_corpus

    synthetic_corpus(**options)  # a bad option is told now, not in the middle of a count
    return Made(lambda: ((ids, None) for ids in synthetic_corpus(**options)), True)


def parse_options(text: str) -> dict[str, Any]:
    """Options written as key=value,key=value; values are int, float or str, whichever fits first.

    Raises PosgeomError for a part without key or value.
    """
    options: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value):
            raise PosgeomError(f"'{part}' is no option; expected key=value,key=value")
        options[key] = _number(value)
    return options


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


# -- the hub --------------------------------------------------------------------------------------


def hub_table(name: str, config: str | None, split: str | None, copies: str = "") -> Table:
    """The rows of a data set on the Hugging Face hub, streamed; `copies` says where else to look.

    Raises PosgeomError within seconds where the hub is out of reach.
    """
    import datasets

    with _hub_errors(name, copies):
        reach_hub()
        with _quiet():
            data = datasets.load_dataset(
                name, config, split="train" if split is None else split, streaming=True
            )

    def values() -> Iterator[object]:
        with _hub_errors(name, copies):
            yield from data

    def columns(reading: Reading) -> Columns:
        return value_columns(islice(values(), SAMPLE))

    def rows(names: Names, reading: Reading) -> Iterator[Row]:
        return value_rows(values(), names, f"hf:{name}")

    return Table(f"hf:{name}", columns, rows)


def reach_hub() -> None:
    """Raise whatever hinders one short request; `datasets` itself would retry half a minute."""
    import huggingface_hub

    huggingface_hub.get_session().head(huggingface_hub.constants.ENDPOINT, timeout=5)


def hub_file(name: str, file: str) -> str:
    """The path of a file of a model on the hub, from the cache where the hub is out of reach.

    Raises whatever the hub's client does where it is in neither.
    """
    import huggingface_hub

    try:
        reach_hub()
        offline = False
    except Exception:  # then a copy in the cache does, without half a minute of retries
        offline = True
    return str(huggingface_hub.hf_hub_download(name, file, local_files_only=offline))


@contextmanager
def _hub_errors(name: str, copies: str) -> Iterator[None]:
    try:
        yield
    except PosgeomError:
        raise
    except Exception as error:  # the hub's client lets through whatever its parts raise
        raise PosgeomError(
            f"cannot read the data set {name} from the Hugging Face hub ({first_line(error)}); "
            f"check name, --config and --split, or give a local copy as SOURCE (a folder written "
            f"by save_to_disk, a parquet file){copies}"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and warnings of `datasets` for a while."""
    import datasets

    bars, level = datasets.are_progress_bars_disabled(), datasets.logging.get_verbosity()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        datasets.disable_progress_bars()
        datasets.logging.set_verbosity_error()
        try:
            yield
        finally:
            datasets.logging.set_verbosity(level)
            if not bars:
                datasets.enable_progress_bars()
