"""The whole job: from a corpus to an encoding made for it, scored beside the known ones."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from posgeom.corpus import Corpus, open_corpus
from posgeom.counting import count_positions
from posgeom.counts import PositionCounts
from posgeom.designers import DESIGNERS, LowRank, low_rank
from posgeom.diagnose import Diagnosis, diagnose
from posgeom.encodings import Encoding, make_encoding, parse_spec
from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry, estimate_geometry
from posgeom.inference import Estimate
from posgeom.mds import MDSResult, classical_mds
from posgeom.rank import above_noise, choose_rank, explained_share, stress_by_rank
from posgeom.scoring import (
    check_structure,
    floor_estimate,
    make_encodings,
    score_encodings,
)
from posgeom.tokenizer import PLAIN, LibraryTokenizer, load_tokenizer

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_ENCODINGS = ("sinusoidal", "rope", "alibi", "alibi:reading=kernel", "random")


@dataclass(frozen=True, eq=False)
class Design:
    """An encoding made for a corpus, and all that it was made and judged from.

    counts      what was counted
    geometry    distances between positions
    low_rank    the encoding, a table A Bᵀ
    scores      one row an encoding, see score_encodings
    settings    the keywords of `design` that make the same again
    provenance  versions, seed, fingerprints
    tokenizer   text of the tokenizer.json, where one was trained for this corpus
    """

    counts: PositionCounts
    geometry: Geometry
    low_rank: LowRank
    scores: "pd.DataFrame" = field(repr=False)
    settings: dict[str, Any] = field(repr=False)
    provenance: dict[str, Any] = field(default_factory=dict, repr=False)
    tokenizer: str | None = field(default=None, repr=False)

    @property
    def title(self) -> str:
        """The corpus by name."""
        return ", ".join(self.counts.provenance.sources)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the run has to say of itself, a sentence each."""
        return self.counts.provenance.notes + self.geometry.notes

    @cached_property
    def floor(self) -> Estimate:
        """Least stress that any shift-invariant encoding can have, in 0..1, with its error."""
        return floor_estimate(self.geometry)

    @cached_property
    def diagnosis(self) -> Diagnosis | None:
        """What the corpus asks of an encoding; None for a plug-in geometry, which cannot tell."""
        if self.geometry.stationarity is None:
            return None
        encodings = list(self.encodings.values())
        return diagnose(self.counts, self.geometry, encodings, scores=self.scores)

    @cached_property
    def mds(self) -> MDSResult:
        """Classical MDS of the geometry, all axes."""
        return classical_mds(self.geometry.squared, squared=True)

    @cached_property
    def ranks(self) -> "pd.DataFrame":
        """What each rank would cost and leave: rank, stress, stress_raw, explained, parameters."""
        return rank_table(self.geometry, self.mds, self.low_rank.dim)

    @cached_property
    def encodings(self) -> dict[str, Encoding]:
        """The encodings of the scores by name."""
        made = make_encodings(
            self.geometry, self.scores["encoding"], self.low_rank.dim, seed=self.settings["seed"]
        )
        return {encoding.name: encoding for encoding in made}

    def save(self, folder: str | PathLike[str], *, force: bool = False) -> Path:
        """Write the whole run into a new folder, with figures and report; returns the folder.

        Nothing is left half-written.  Raises PosgeomError where the folder holds anything;
        `force` replaces an earlier run, and nothing else.
        """
        from posgeom.emit import save_design

        return save_design(self, folder, force=force)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """A design that `save` wrote; PosgeomError for a folder that holds none."""
        from posgeom.emit import load_design

        return cls(**load_design(folder))


def design(
    corpus: str | PathLike[str] | Iterable[Any] | Corpus,
    tokenizer: Any = "words",
    positions: int | None = None,
    align: str = "start",
    *,
    grid: tuple[int, int] | None = None,
    folds: int = 16,
    special_tokens: bool = False,
    estimator: str = "debiased",
    metric: str = "hellinger",
    min_count: int = 2,
    dim: int = 128,
    rank: int | str = "auto",
    norm: float | None = None,
    encodings: Sequence[str] | None = None,
    per_head: bool = False,
    seed: int = 0,
    progress: bool = False,
    text_field: str | None = None,
    group_field: str | None = None,
    documents: str = "line",
    split: str | None = None,
    config: str | None = None,
    encoding_errors: str = "strict",
    ids_dtype: str | None = None,
) -> Design:
    """Count a corpus, find its geometry, make a low-rank encoding for it, score the known ones.

    corpus, tokenizer, positions, align, grid, folds   see count_positions
    estimator, metric, min_count                        see estimate_geometry
    dim         width d of the model
    rank        r of the low-rank encoding, or "auto": the smallest with stress ≤ 0.01
    norm        root mean square of the rows' norms; by default the corpus's own distances stand
    encodings   specs to score, see score_encodings; by default sinusoidal, RoPE, ALiBi under
                both readings and random rows.  `mds` and `mds:rank=r` are always scored too
    text_field, group_field, documents, split, …        see open_corpus

    Raises PosgeomError for bad input of any of these kinds.
    """
    reading: dict[str, Any] = {
        "text_field": text_field,
        "group_field": group_field,
        "documents": documents,
        "split": split,
        "config": config,
        "encoding_errors": encoding_errors,
        "ids_dtype": ids_dtype,
    }
    if dim < 1:
        raise PosgeomError(f"--dim {dim} came; give 1 or more")
    if seed < 0:
        raise PosgeomError(f"--seed {seed} came; give 0 or more")
    for spec in encodings or ():
        if isinstance(spec, str) and parse_spec(spec).family not in DESIGNERS:
            make_encoding(spec, dim=dim, seed=seed)  # what is wrong with it is told before the work
    source = open_corpus(corpus, **reading)
    trained = None
    if isinstance(tokenizer, str) and tokenizer.startswith("train:"):
        trained = load_tokenizer(tokenizer, source, special_tokens=special_tokens)
    counts = count_positions(
        source,
        trained or tokenizer,
        positions,
        align,
        grid=grid,
        folds=folds,
        special_tokens=special_tokens,
        progress=progress,
    )
    geometry = estimate_geometry(counts, estimator, metric=metric, min_count=min_count, seed=seed)
    check_structure(geometry)
    mds = classical_mds(geometry.squared, squared=True)
    ranks = rank_table(geometry, mds, dim)
    r = choose_rank(rank, ranks["stress"].to_numpy(), geometry.n_positions, dim)
    factors = low_rank(mds.coordinates, r, dim)
    wanted = list(encodings or default_encodings(dim))
    wanted += [spec for spec in ("mds", f"mds:rank={r}") if spec not in wanted]
    settings = {
        "source": source.source,
        "tokenizer": tokenizer_setting(tokenizer),
        "positions": counts.n_positions,
        "align": align,
        "grid": grid,
        "folds": folds,
        "special_tokens": special_tokens,
        "estimator": estimator,
        "metric": metric,
        "min_count": min_count,
        "dim": dim,
        "rank": r,
        "norm": norm,
        "encodings": wanted,
        "per_head": per_head,
        "seed": seed,
    } | reading
    return Design(
        counts=counts,
        geometry=geometry,
        low_rank=factors if norm is None else factors.with_norm(norm),
        scores=score_encodings(geometry, wanted, dim, seed=seed, per_head=per_head),
        settings={key: value for key, value in settings.items() if value is not None},
        provenance=counts.provenance.as_dict(),
        tokenizer=trained.to_json() if isinstance(trained, LibraryTokenizer) else None,
    )


def geometry_of(
    source: Any,
    *,
    estimator: str = "debiased",
    metric: str = "hellinger",
    min_count: int = 2,
    **counting: Any,
) -> Geometry:
    """The geometry of saved counts (.npz), of the folder of a run, or of a corpus.

    A run keeps its own geometry; counts and corpora are estimated as asked.  counting: the
    keywords of count_positions.
    Raises PosgeomError for options that cannot be heeded: a run is estimated already, and counts
    are counted.
    """
    estimating: dict[str, Any] = {
        "estimator": estimator,
        "metric": metric,
        "min_count": min_count,
    }
    if isinstance(source, str | PathLike) and (Path(source) / "geometry.npz").is_file():
        _refuse_options(f"the run {source}", geometry_of, estimating)
        _refuse_options(f"the run {source}", design, counting)
        return Design.load(source).geometry
    return estimate_geometry(counts_of(source, **counting), **estimating)


def counts_of(source: Any, **counting: Any) -> PositionCounts:
    """The counts of a run or a file (.npz), or of a corpus, which alone heeds the options."""
    if isinstance(source, str | PathLike) and (Path(source) / "counts.npz").is_file():
        _refuse_options(f"the run {source}", design, counting)
        return PositionCounts.load(Path(source) / "counts.npz")
    if isinstance(source, str | PathLike) and Path(source).suffix == ".npz":
        _refuse_options(f"the counts {source}", design, counting)
        return PositionCounts.load(source)
    return count_positions(source, **counting)


def _refuse_options(what: str, job: Callable[..., Any], options: dict[str, Any]) -> None:
    """Raise PosgeomError for an option that is not at its default."""
    for name, parameter in inspect.signature(job).parameters.items():
        if name in options and name != "progress" and options[name] != parameter.default:
            flag = "--" + name.replace("_", "-")
            raise PosgeomError(f"{flag} does not apply to {what}; leave it out, or give a corpus")


def default_encodings(dim: int) -> list[str]:
    """The encodings scored unasked; an odd dimension has no pairs for RoPE to turn."""
    return [spec for spec in DEFAULT_ENCODINGS if dim % 2 == 0 or spec != "rope"]


def rank_table(geometry: Geometry, mds: MDSResult, dim: int) -> "pd.DataFrame":
    """A row for each rank up to what stands above the noise and fits, min(n − 1, dim).

    Columns: rank, stress (scale-free), stress_raw, explained (share of the positive
    eigenvalues), parameters (r(n + dim)).
    """
    import pandas as pd

    n = geometry.n_positions
    most = max(1, min(above_noise(mds.eigenvalues), dim, n - 1))
    scale_free, raw = stress_by_rank(mds.coordinates[:, :most], geometry.distances)
    rank = np.arange(1, len(scale_free) + 1)
    return pd.DataFrame(
        {
            "rank": rank,
            "stress": scale_free,
            "stress_raw": raw,
            "explained": explained_share(mds.eigenvalues)[: len(rank)],
            "parameters": rank * (n + dim),
        }
    )


def tokenizer_setting(tokenizer: Any) -> str:
    """The tokenizer as a setting that names it from any folder."""
    if not isinstance(tokenizer, str | PathLike):
        return type(tokenizer).__name__
    spec = str(tokenizer)
    if spec in PLAIN or not Path(spec).exists():
        return spec
    return str(Path(spec).resolve())
