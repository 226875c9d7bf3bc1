"""One run: a model is made from a seed, trained on a task, and judged on rows it never saw."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from posgeom.encodings import Encoding
from posgeom.errors import PosgeomError
from posgeom.paper.training.model import Encoder, seeded
from posgeom.paper.training.settings import BATCH, DIM, HEADS, HIDDEN_SHARE, LAYERS, RATE
from posgeom.paper.training.tasks import Task

JUDGE_SEED = 1  # of the tokens that are hidden where a model is judged: the same for all


@dataclass(frozen=True)
class Score:
    """Mean cross-entropy in nats, and share of right answers."""

    loss: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class Moment:
    """What is known at one time of a run.

    seen         rows that the model was trained on so far
    train        over the rows since the moment before; NaN at the start
    validation   over all rows of that part
    encoding     of the positions as it is then: the one that was placed, unless it is trained
    """

    seen: int
    train: Score
    validation: Score
    encoding: Encoding


@dataclass(frozen=True, eq=False)
class Run:
    """A run: its moments, the first before any training, and the test at the best of them.

    best  number of the moment with the least validation loss
    """

    moments: list[Moment]
    best: int
    test: Score


def train(
    task: Task,
    encoding: Encoding,
    seed: int,
    seen: int,
    moments: int,
    *,
    trained: bool = False,
    rank: int | None = None,
    judged: bool = True,
) -> Run:
    """Train a new model on about `seen` rows of a task, looking up `moments` times.

    encoding       of the positions, at the size it shall have
    trained, rank  see Arm
    judged         whether the test part is looked at; otherwise its score is NaN

    Models, order of rows and hidden tokens depend on the seed alone, so that runs of one seed
    differ by their encodings and nothing else.  Kingma & Ba (2015) for Adam.
    """
    random = np.random.default_rng(seed)
    with seeded(seed):
        model = Encoder(task.vocabulary + 1, task.classes, DIM, HEADS, LAYERS)
        model.place(encoding, trained=trained, rank=rank)
        steps = max(moments, round(seen / BATCH))
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        stops = {round(steps * k / moments) for k in range(1, moments + 1)}
        batches = _batches(task.parts["train"], random)
        none = Score(float("nan"), float("nan"))
        taken = [_moment(model, task, encoding, 0, none)]
        best, at = deepcopy(model.state_dict()), 0
        losses, right = [], []
        for step in range(1, steps + 1):
            loss, correct = answers(model, task, next(batches), random)
            mean = loss.mean()
            optimizer.zero_grad()
            mean.backward()
            optimizer.step()
            cosine.step()
            losses.append(float(mean.detach()))
            right.append(float(correct.mean()))
            if step in stops:
                done = Score(float(np.mean(losses)), float(np.mean(right)))
                taken.append(_moment(model, task, encoding, BATCH * step, done))
                losses, right = [], []
                if not np.isfinite(taken[-1].validation.loss):
                    raise PosgeomError(
                        f"{task.name}, {encoding.name}, seed {seed}: the loss is NaN"
                    )
                if taken[-1].validation.loss < taken[at].validation.loss:
                    best, at = deepcopy(model.state_dict()), len(taken) - 1
        model.load_state_dict(best)
        return Run(taken, at, judge(model, task, "test") if judged else none)


def judge(model: Encoder, task: Task, part: str) -> Score:
    """Loss and accuracy over a part, the same tokens hidden whenever it is asked."""
    random = np.random.default_rng(JUDGE_SEED)
    rows = task.parts[part]
    with torch.no_grad():
        blocks = [
            answers(model, task, rows[i : i + 4 * BATCH], random)
            for i in range(0, len(rows), 4 * BATCH)
        ]
    losses, right = (torch.cat(list(x)) for x in zip(*blocks, strict=True))
    return Score(float(losses.mean()), float(right.mean()))


def answers(
    model: Encoder, task: Task, rows: NDArray[np.int64], random: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Cross-entropy and rightness (0 or 1) of each answer to some rows: two tensors (answers,)."""
    ids, lengths = torch.from_numpy(task.ids[rows]), torch.from_numpy(task.lengths[rows])
    if task.objective == "class":
        logits, truth = model.classify(ids, lengths), torch.from_numpy(task.labels[rows])
    else:
        asked = torch.from_numpy(hidden_tokens(task.lengths[rows], ids.shape[1], random))
        truth = ids[asked]
        logits = model.guess(ids.masked_fill(asked, task.vocabulary), lengths, asked)
    loss = F.cross_entropy(logits, truth, reduction="none")
    return loss, (logits.detach().argmax(-1) == truth).to(loss.dtype)


def hidden_tokens(
    lengths: NDArray[np.int64], n: int, random: np.random.Generator
) -> NDArray[np.bool_]:
    """Which tokens of rows of these lengths are hidden, (rows, n): a share, at least one a row."""
    draw = random.random((len(lengths), n))
    draw[np.arange(n) >= lengths[:, None]] = 1
    first = draw.argmin(axis=1)
    asked: NDArray[np.bool_] = draw < HIDDEN_SHARE
    asked[np.arange(len(lengths)), first] = True
    return asked


def _batches(rows: NDArray[np.int64], random: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Rows without end, each round of them in a new order."""
    waiting = rows[:0]
    while True:
        while len(waiting) < BATCH:
            waiting = np.concatenate([waiting, random.permutation(rows)])
        yield waiting[:BATCH]
        waiting = waiting[BATCH:]


def _moment(model: Encoder, task: Task, start: Encoding, seen: int, done: Score) -> Moment:
    return Moment(seen, done, judge(model, task, "validation"), model.encoding(start))
