"""Where the texts come from: files below POSGEOM_DATA, and Python's own library."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from posgeom.corpus import open_corpus
from posgeom.errors import PosgeomError

LEAST_CHARACTERS = 12  # of a line of code without its indentation: shorter ones are all alike


class Labelled(NamedTuple):
    """A text with its label; group: texts that belong together share it."""

    text: str
    label: str = ""
    group: str | None = None


def data_file(name: str) -> Path:
    """A file below the folder that POSGEOM_DATA names; PosgeomError where it is not there."""
    folder = os.environ.get("POSGEOM_DATA")
    file = Path(folder or "") / name
    if not folder or not file.is_file():
        raise PosgeomError(
            f"{name} is not at hand: set POSGEOM_DATA to a folder that holds it, or leave this "
            'corpus out with corpora = ["python-lines"]'
        )
    return file


def splice() -> Iterator[Labelled]:
    """Splice junctions: 60 letters of DNA; donor, acceptor or neither.  UCI, Noordewier (1991)."""
    yield from _table("dna/uci_splice.parquet", "sequence", "label")


def sst2() -> Iterator[Labelled]:
    """Sentences of film reviews, liked or not.  Socher et al. (2013)."""
    yield from _table("sst2/sst2_sentences_train.parquet", "sentence", "label")


def imdb() -> Iterator[Labelled]:
    """Film reviews, liked or not; those of one film belong together.  Maas et al. (2011)."""
    yield from _table("imdb/imdb_train.parquet", "text", "label", "movie")


def log_lines() -> Iterator[Labelled]:
    """Lines of the logs of 16 systems.  Zhu et al. (2023), Loghub."""
    yield from (Labelled(row.text) for row in _table("corpora/loghub_2k.parquet", "text"))


def python_lines() -> Iterator[Labelled]:
    """Lines of Python's standard library with their indentation; those of a file hang together."""
    for line in open_corpus("python-stdlib"):
        if isinstance(line.content, str) and len(line.content.strip()) >= LEAST_CHARACTERS:
            yield Labelled(line.content, group=line.group)


SOURCES: dict[str, Callable[[], Iterator[Labelled]]] = {
    "splice": splice,
    "sst2": sst2,
    "imdb": imdb,
    "log-lines": log_lines,
    "python-lines": python_lines,
}


def _table(name: str, text: str, *others: str) -> Iterator[Labelled]:
    """Rows of a parquet file: text, and where named label and group."""
    import pandas as pd

    table = pd.read_parquet(data_file(name), columns=[text, *others])
    yield from (Labelled(*map(str, row)) for row in table.itertuples(index=False, name=None))
