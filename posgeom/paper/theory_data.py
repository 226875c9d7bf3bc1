"""What the theorems are held against: real corpora, their geometries, learned tables."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from posgeom.counting import count_positions
from posgeom.counts import PositionCounts
from posgeom.encodings import LearnedTable, make_encoding
from posgeom.encodings.registry import parse_spec
from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry, estimate_geometry
from posgeom.paper.claims import IMDB, SST2
from posgeom.paper.monotonicity import plugin_with_folds

BERT = "tokenizers/bert-base-uncased/tokenizer.json"
GPT2 = "tokenizers/gpt2/tokenizer.json"
TABLES = {
    "MiniLM": "learned/minilm-l6-h384-512.npy",
    "MPNet": "learned/all-mpnet-base-v2-514x768.npy",
    "GPT-1": "learned/openai-gpt-512x768.npy",
    "GPT-2": "learned/gpt2-small-1024x768.npy",
}
MANY = 128  # positions up to which all folds are used; errors of more take too long
FEW_FOLDS = 8


@dataclass(frozen=True)
class Source:
    """A corpus of the theory part: where it is read, with which tokens, at which lengths.

    variant   the same documents in other tokens, which only Conjecture 5 is held against
    """

    name: str
    source: str
    tokenizer: str
    lengths: tuple[int, ...]
    text_field: str | None = None
    special_tokens: bool = False
    variant: bool = False

    @property
    def is_text(self) -> bool:
        """Whether it has the tokens of a language model, so that learned tables belong to it."""
        return self.tokenizer != "chars"


SOURCES = (
    Source(SST2, "sst2", BERT, (32,)),
    Source(IMDB, "imdb", BERT, (32, 128, 256)),
    Source("splice DNA", "dna/uci_splice.parquet", "chars", (60,), "sequence"),
    Source(f"{SST2}, with [CLS]", "sst2", BERT, (32,), special_tokens=True, variant=True),
    Source(f"{IMDB}, with [CLS]", "imdb", BERT, (128,), special_tokens=True, variant=True),
    Source(f"{SST2}, GPT-2's tokens", "sst2", GPT2, (32,), variant=True),
    Source(f"{IMDB}, GPT-2's tokens", "imdb", GPT2, (128,), variant=True),
)
QUICK_SOURCES = SOURCES[:1]


@dataclass(frozen=True, eq=False)
class Counted:
    """A corpus at one length, and its debiased geometry."""

    source: Source
    counts: PositionCounts = field(repr=False)
    debiased: Geometry = field(repr=False)

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return self.source.name

    @property
    def positions(self) -> int:
        """n."""
        return self.debiased.n_positions

    @property
    def folds(self) -> int:
        """Folds of documents from which the debiased geometry was made."""
        return 0 if self.debiased.replicates is None else len(self.debiased.replicates)

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What was counted, without the folders of this machine."""
        about = self.counts.provenance.as_dict()
        kept = ("documents", "tokens", "tokenizer_digest", "special_tokens", "fingerprint")
        return {key: about[key] for key in kept}

    @cached_property
    def plugin(self) -> Geometry:
        """The plug-in geometry, with errors."""
        geometry = estimate_geometry(self.counts, "plugin")
        return plugin_with_folds(self.counts.folded(FEW_FOLDS), geometry)


def counted(
    sources: Sequence[Source], *, seed: int = 0, progress: bool = False
) -> Iterator[Counted]:
    """The corpora at each of their lengths; each is read once.

    Raises PosgeomError for a file that is not at hand.
    """
    for source in sources:
        every = count_positions(
            at_hand(source.source),
            at_hand(source.tokenizer),
            max(source.lengths),
            special_tokens=source.special_tokens,
            progress=progress,
            text_field=source.text_field,
        )
        for n in source.lengths:
            counts = every.first(n)
            if n > MANY:
                counts = counts.folded(FEW_FOLDS)
            yield Counted(source, counts, estimate_geometry(counts, seed=seed))


def at_hand(name: str) -> str:
    """A named corpus or tokenizer as it is; a path, below the folder that POSGEOM_DATA names."""
    return data_file(name) if "/" in name else name


def learned_tables(further: Sequence[str] = ()) -> dict[str, LearnedTable]:
    """The learned tables at hand by name, those of further specs `learned:PATH` by their spec.

    Raises PosgeomError for a file that is not there and a spec that names no learned table.
    """
    specs = {name: f"learned:{data_file(path)}" for name, path in TABLES.items()}
    tables = {}
    for name, spec in (specs | {spec: spec for spec in further}).items():
        table = make_encoding(spec) if parse_spec(spec).family == "learned" else None
        if not isinstance(table, LearnedTable):
            raise PosgeomError(f"--learned {spec} came; give a table as learned:PATH#KEY")
        tables[name] = table
    return tables


def has_bert(names: Iterable[str]) -> bool:
    """Whether BERT-base's own table is among those at hand."""
    return any("bert-base" in name for name in names)


def data_file(name: str) -> str:
    """A file below the folder that POSGEOM_DATA names; PosgeomError where it is not there."""
    folder = os.environ.get("POSGEOM_DATA")
    path = Path(folder or "") / name
    if not folder or not path.is_file():
        raise PosgeomError(f"{name} is not at hand; set POSGEOM_DATA to a folder that holds it")
    return str(path)
