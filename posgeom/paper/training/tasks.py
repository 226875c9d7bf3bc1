"""What the small models learn: corpora as rows of token ids, split without a row in two parts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from posgeom.corpus import Corpus, open_corpus
from posgeom.counting import count_positions
from posgeom.counts import PositionCounts
from posgeom.errors import PosgeomError
from posgeom.paper.training.sources import SOURCES, Labelled
from posgeom.pieces import Document
from posgeom.tokenizer import load_tokenizer

IntArray = NDArray[np.int64]

PARTS = ("train", "validation", "test")
LEAST_TOKENS = 4  # of a row: a shorter one has nothing to be told from its order
SPLIT_SEED = 0  # one split for all runs


@dataclass(frozen=True, eq=False)
class Task:
    """A corpus to learn.

    objective   "class": the label of a row; "masked": the tokens that were hidden in it
    ids         (rows, n) token ids, 0 behind the end of a row
    lengths     (rows,) tokens of each row, at most n
    labels      (rows,) whole numbers from 0; all 0 where tokens are to be guessed
    groups      (rows,) which rows hang together, for the folds; None where each stands alone
    vocabulary  V, number of token types
    classes     what the model chooses among: labels, or the V types
    parts       rows of "train", "validation" and "test"
    """

    name: str
    objective: str
    ids: IntArray = field(repr=False)
    lengths: IntArray = field(repr=False)
    labels: IntArray = field(repr=False)
    groups: tuple[str, ...] | None = field(repr=False)
    vocabulary: int
    classes: int
    parts: dict[str, IntArray] = field(repr=False)

    def first(self, shares: dict[str, int]) -> Self:
        """The task with at most so many rows in the parts that are named."""
        return replace(self, parts={p: rows[: shares.get(p)] for p, rows in self.parts.items()})

    @property
    def n_positions(self) -> int:
        """n."""
        return self.ids.shape[1]

    def counts(self, part: str = "train") -> PositionCounts:
        """Tokens by position of one part, for its geometry."""
        rows = self.parts[part]
        documents = [
            Document(
                self.ids[i, : self.lengths[i]], None if self.groups is None else self.groups[i]
            )
            for i in rows
        ]
        return count_positions(documents, positions=self.n_positions)


@dataclass(frozen=True)
class Recipe:
    """How a corpus becomes a task.

    source      name in posgeom.paper.training.sources.SOURCES
    objective   see Task
    tokenizer   a spec; what is to be trained is trained on the training part alone
    positions   n; longer rows are cut
    rows        the most that each part has; training takes what is left, up to the first number
    seen        rows that a model of the comparison is trained on, until the loss comes to rest
    watched     rows that a model is trained on whose table is watched
    """

    source: str
    objective: str
    tokenizer: str
    positions: int
    rows: tuple[int, int, int]
    seen: int
    watched: int


BPE, LONGER_BPE = "train:bpe:512", "train:bpe:2000"
RECIPES: dict[str, Recipe] = {
    "splice": Recipe("splice", "class", "chars", 60, (1_900, 400, 700), 10_000, 15_000),
    "log-lines": Recipe("log-lines", "masked", BPE, 16, (20_000, 500, 1_000), 12_000, 24_000),
    "python-lines": Recipe("python-lines", "masked", BPE, 16, (20_000, 500, 1_000), 12_000, 24_000),
    "sst2": Recipe("sst2", "class", LONGER_BPE, 32, (6_000, 400, 1_000), 8_000, 24_000),
    "imdb": Recipe("imdb", "class", LONGER_BPE, 128, (6_000, 400, 1_000), 8_000, 12_000),
}


def make_task(name: str) -> Task:
    """The task of a name in RECIPES.

    Raises PosgeomError for another name, and for a corpus that is not at hand.
    """
    if name not in RECIPES:
        raise PosgeomError(f"corpus {name!r} is not known here; use {', '.join(RECIPES)}")
    recipe = RECIPES[name]
    return task_of(name, recipe, SOURCES[recipe.source]())


def task_of(name: str, recipe: Recipe, rows: Iterable[Labelled]) -> Task:
    """Split distinct texts at random, tokenize them, and drop rows that training holds too.

    Two texts may be equal once they are cut and tokenized; what is looked at is what the model
    sees.  Of texts that come twice the first counts.
    """
    distinct: dict[str, Labelled] = {}
    for row in rows:
        distinct.setdefault(row.text, row)
    kept = list(distinct.values())
    order = np.random.default_rng(SPLIT_SEED).permutation(len(kept))
    most_train, n_validation, n_test = recipe.rows
    if len(kept) < 2 * (n_validation + n_test):
        raise PosgeomError(
            f"{name} has {len(kept)} distinct texts, the parts that are held back take "
            f"{n_validation + n_test}; give a larger corpus"
        )
    ends = np.cumsum([n_test, n_validation, most_train])
    test, validation, train = np.split(order, ends)[:3]
    pieces = load_tokenizer(recipe.tokenizer, _texts(kept, train))
    ids: dict[str, IntArray] = {}
    lengths: dict[str, IntArray] = {}
    seen: set[bytes] = set()
    parts = {"train": train, "validation": validation, "test": test}
    for part in PARTS:  # training first: what it holds is missing elsewhere
        flat, n = pieces.encode([kept[i].text for i in parts[part]])
        block, n = padded(flat, n, recipe.positions)
        new = np.array([_new(row, seen) for row in block], dtype=bool) & (n >= LEAST_TOKENS)
        parts[part], ids[part], lengths[part] = parts[part][new], block[new], n[new]
    index = np.concatenate([parts[part] for part in PARTS])
    stops = np.cumsum([0, *(len(parts[part]) for part in PARTS)])
    labels, classes = _labels([kept[i].label for i in index])
    groups = tuple(kept[i].group or "" for i in index)
    V = len(pieces.vocabulary)
    return Task(
        name=name,
        objective=recipe.objective,
        ids=np.concatenate([ids[part] for part in PARTS]),
        lengths=np.concatenate([lengths[part] for part in PARTS]),
        labels=labels,
        groups=groups if any(groups) else None,
        vocabulary=V,
        classes=V if recipe.objective == "masked" else classes,
        parts={part: np.arange(stops[k], stops[k + 1]) for k, part in enumerate(PARTS)},
    )


def padded(ids: IntArray, lengths: IntArray, n: int) -> tuple[IntArray, IntArray]:
    """Rows of ids (rows, n), cut or filled up with 0, and their lengths, from ids in one line."""
    ends = np.cumsum(lengths)
    positions = np.arange(len(ids)) - np.repeat(ends - lengths, lengths)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    block = np.zeros((len(lengths), n), dtype=np.int64)
    inside = positions < n
    block[rows[inside], positions[inside]] = ids[inside]
    return block, np.minimum(lengths, n)


def _texts(rows: Sequence[Labelled], index: IntArray) -> Corpus:
    return open_corpus([rows[i].text for i in index])


def _new(row: IntArray, seen: set[bytes]) -> bool:
    """Whether a row was not seen before; it is from now on."""
    key = row.tobytes()
    fresh = key not in seen
    seen.add(key)
    return fresh


def _labels(names: Sequence[Any]) -> tuple[IntArray, int]:
    """Labels as numbers from 0, in their own order, and how many there are."""
    known = sorted(set(names))
    number = {name: i for i, name in enumerate(known)}
    return np.array([number[name] for name in names], dtype=np.int64), len(known)
