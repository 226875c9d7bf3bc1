"""What a run needs of its corpus, and the file that its finished runs are kept in."""

import json
import os
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

import numpy as np

from posgeom.encodings import Encoding
from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry, estimate_geometry
from posgeom.inference import Estimate, condensed, jackknife, stress_of
from posgeom.paper.training.ledger import Ledger
from posgeom.paper.training.settings import COMMON
from posgeom.paper.training.tasks import Task
from posgeom.scoring import check_structure, encoding_distances
from posgeom.stress import stress

LIBRARIES = ("posgeom", "numpy", "torch")


@dataclass(frozen=True, eq=False)
class Ground:
    """A task with the geometry of its training part, plug-in and debiased."""

    task: Task
    plugin: Geometry = field(repr=False)
    debiased: Geometry = field(repr=False)

    @classmethod
    def of(cls, task: Task) -> "Ground":
        """The ground of a task.

        Raises PosgeomError where positions cannot be told apart, or one has too few tokens.
        """
        counts = task.counts()
        found = estimate_geometry(counts)
        if found.n_positions < task.n_positions:
            raise PosgeomError(
                f"{task.name}: {found.n_positions} of {task.n_positions} positions have enough "
                "tokens; take a shorter length or more rows"
            )
        check_structure(found)
        return cls(task, estimate_geometry(counts, "plugin"), found)

    def plugin_stress(self, encoding: Encoding) -> float:
        """Stress against the observed frequencies, in 0..1."""
        return stress(encoding_distances(self.plugin, encoding), self.plugin.distances)

    def debiased_stress(self, encoding: Encoding, *, designed: bool = False) -> Estimate:
        """Stress against what is not noise, in 0..1; designed: from this very sample."""
        δ = condensed(encoding_distances(self.debiased, encoding))
        return jackknife(stress_of(δ), self.debiased, bounds=(0, 1), correct=not designed)


def open_ledger(ground: Ground, work: str | None, *settings: object) -> Ledger:
    """The file of finished runs on this ground under these settings; no other runs are in it.

    work: a folder; by default posgeom/training below the user's cache.  The name holds a digest
    of all that the numbers come from: rows, geometry, settings, versions of the libraries.
    """
    digest = blake2b(digest_size=8)
    task = ground.task
    for array in (task.ids, task.lengths, task.labels, *task.parts.values()):
        digest.update(np.ascontiguousarray(array).tobytes())
    found = ground.debiased
    for squares in (found.squared, found.replicates, found.halves, found.lumped):
        digest.update(b"" if squares is None else squares.tobytes())
    versions = [version(name) for name in LIBRARIES]
    digest.update(json.dumps([COMMON, versions, *map(str, settings)]).encode())
    return Ledger(work_folder(work) / f"{task.name}-{digest.hexdigest()}.jsonl")


def work_folder(work: str | None) -> Path:
    """The folder of finished runs."""
    if work is not None:
        return Path(work).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "posgeom" / "training"
