"""The whole job: from a corpus to an encoding made for it, scored beside the known ones."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.spatial.distance import pdist, squareform

from posgeom.corpus import Corpus, open_corpus
from posgeom.counting import count_positions
from posgeom.counts import PositionCounts
from posgeom.designers import DESIGNERS, LowRank
from posgeom.designers.constraints import Constraints
from posgeom.designers.designed import own_rank
from posgeom.designers.extension import Extension, check_method, extend
from posgeom.designers.families import ALL, Candidate, family_candidates
from posgeom.designers.ranks import rank_table
from posgeom.designers.table_choice import least_stress_coordinates, rank_of, table_of_rank
from posgeom.diagnose import Diagnosis, diagnose
from posgeom.encodings import Encoding, make_encoding, parse_spec
from posgeom.errors import PosgeomError
from posgeom.gains import gains
from posgeom.geometry import Geometry, estimate_geometry
from posgeom.inference import Estimate
from posgeom.mds import MDSResult, classical_mds
from posgeom.scoring import (
    check_structure,
    floor_estimate,
    make_encodings,
    score_encodings,
)
from posgeom.stress import stress
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
    extended    the encoding carried to more positions, where that was asked
    extension   how it was carried there, and what that costs
    """

    counts: PositionCounts
    geometry: Geometry
    low_rank: LowRank
    scores: "pd.DataFrame" = field(repr=False)
    settings: dict[str, Any] = field(repr=False)
    provenance: dict[str, Any] = field(default_factory=dict, repr=False)
    tokenizer: str | None = field(default=None, repr=False)
    extended: LowRank | None = None
    extension: Extension | None = field(default=None, repr=False)

    @property
    def title(self) -> str:
        """The corpus by name."""
        return ", ".join(self.counts.provenance.sources)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the run has to say of itself, a sentence each."""
        notes = self.counts.provenance.notes + self.geometry.notes
        above, r = own_rank(self.mds, self.low_rank.dim), self.low_rank.rank
        if r > above:
            notes += (
                f"rank {r} is more than the {above} dimensions that stand above the noise: the "
                "others carry chance",
            )
        if self.settings.get("row_norm") or self.settings.get("zero_mean"):
            D, dim = self.geometry.distances, self.low_rank.dim
            free = table_of_rank(self.geometry, r, dim, by_stress=self.table_family == "stress")
            before, after = (stress(squareform(pdist(t.A)), D) for t in (free, self.low_rank))
            notes += (
                f"what was asked of its rows takes its stress from {before:.3f} to {after:.3f}",
            )
        return notes

    @property
    def table_family(self) -> str:
        """What made the low-rank encoding: mds, or stress."""
        return "stress" if {"stress", ALL} & set(self.settings["family"]) else "mds"

    @cached_property
    def candidates(self) -> list[Candidate]:
        """The designs of the families that were asked for."""
        return family_candidates(
            self.settings["family"],
            rank=self.low_rank.rank,
            dim=self.low_rank.dim,
            heads=self.settings["heads"],
            grid=self.geometry.grid is not None,
        )

    @cached_property
    def gains(self) -> "pd.DataFrame":
        """What each design gains over the known encoding beside it, see posgeom.gains."""
        return gains(
            self.geometry,
            self.candidates,
            self.low_rank.dim,
            seed=self.settings["seed"],
            held_out=self.extension is not None,
        )

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
        """What each rank would cost and leave, see posgeom.designers.ranks.rank_table."""
        return rank_table(self.geometry, self.low_rank.dim)

    @cached_property
    def encodings(self) -> dict[str, Encoding]:
        """The encodings of the scores by name."""
        made = make_encodings(
            self.geometry, self.scores["encoding"], self.low_rank.dim, seed=self.settings["seed"]
        )
        return {encoding.name: encoding for encoding in made}

    def save(
        self, folder: str | PathLike[str], *, force: bool = False, progress: bool = False
    ) -> Path:
        """Write the whole run into a new folder, with figures and report; returns the folder.

        Nothing is left half-written.  Raises PosgeomError where the folder holds anything;
        `force` replaces an earlier run, and nothing else.
        """
        from posgeom.emit import save_design

        return save_design(self, folder, force=force, progress=progress)

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
    family: str | Sequence[str] = "mds",
    rank: int | str = "auto",
    heads: int = 8,
    norm: float | None = None,
    row_norm: float | None = None,
    match: str | None = None,
    bound: float | None = None,
    zero_mean: bool = False,
    dtype: str | None = None,
    min_separation: float | None = None,
    extend_to: int | None = None,
    extend_by: str | None = None,
    encodings: Sequence[str] | None = None,
    per_head: bool = False,
    seed: int = 0,
    force: bool = False,
    progress: bool = False,
    text_field: str | None = None,
    group_field: str | None = None,
    documents: str = "line",
    split: str | None = None,
    config: str | None = None,
    encoding_errors: str = "strict",
    ids_dtype: str | None = None,
) -> Design:
    """Count a corpus, find its geometry, make encodings for it, score the known ones.

    corpus, tokenizer, positions, align, grid, folds   see count_positions
    estimator, metric, min_count                        see estimate_geometry
    dim         width d of the model
    family      what to make: mds, stress, rope, alibi, t5 or all, see family_candidates.  The
                low-rank encoding is that of mds, or of stress where it is among them
    rank        r of the low-rank encoding, or a rule, see choose_rank
    heads       slopes of a fitted ALiBi
    norm, row_norm, match, bound, zero_mean, dtype, min_separation    see Constraints; by default
                the corpus's own distances stand
    extend_to, extend_by   carry the low-rank encoding to so many positions, see extend
    encodings   specs to score, see score_encodings; by default sinusoidal, RoPE, ALiBi under
                both readings and random rows.  `mds`, the designs of the families and the known
                encodings beside them are always scored too
    force       fit even where the test finds no structure
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
    families = [family] if isinstance(family, str) else list(family)
    constraints = Constraints(norm, row_norm, match, bound, zero_mean, dtype, min_separation)
    check_request(families, dim=dim, heads=heads, seed=seed)
    for spec in encodings or ():
        if isinstance(spec, str) and parse_spec(spec).family not in DESIGNERS:
            make_encoding(spec, dim=dim, seed=seed)  # what is wrong with it is told before the work
    source = open_corpus(corpus, **reading)
    check_carried(positions, grid or source.grid, extend_to, extend_by)
    trained = None
    if isinstance(tokenizer, str) and tokenizer.startswith("train:"):
        trained = load_tokenizer(tokenizer, source, special_tokens=special_tokens)
    every = count_positions(
        source,
        trained or tokenizer,
        positions,
        align,
        grid=grid,
        folds=folds,
        special_tokens=special_tokens,
        # blocks of a packed stream are as long as the model is: longer ones are other blocks
        up_to=None if align == "packed" else extend_to,
        progress=progress,
    )
    counts = every if extend_to is None or positions is None else every.first(positions)
    estimating: dict[str, Any] = {
        "metric": metric,
        "min_count": min_count,
        "seed": seed,
        "force": force,
        "progress": progress,
    }
    # alone, so that what the encoding is does not depend on how far it is carried
    geometry = estimate_geometry(counts, estimator, **estimating)
    check_structure(geometry)
    by_stress = bool({"stress", ALL} & set(families))
    r = rank_of(geometry, rank, dim, by_stress=by_stress)
    factors = table_of_rank(geometry, r, dim, by_stress=by_stress)
    low = constraints.apply(factors)
    extension = extended = None
    if extend_to is not None:
        beyond = every.n_positions > counts.n_positions
        known = estimate_geometry(every, estimator, **estimating) if beyond else geometry
        # all positions together may be too many for the test to find what the first ones hold
        same = np.array_equal(known.index[: len(geometry.index)], geometry.index)
        extension = extend(
            known if same and known.squared.any() else geometry,
            factors.A,
            extend_to,
            extend_by,
            fit=partial(least_stress_coordinates, dim=dim) if by_stress else None,
            optimal=by_stress,
        )
        extended = constraints.apply(replace(factors, A=extension.A))
    on_grid = geometry.grid is not None  # asked for, or the corpus brings it
    candidates = family_candidates(families, rank=r, dim=dim, heads=heads, grid=on_grid)
    wanted = [*(encodings or default_encodings(dim)), "mds", f"mds:rank={r}"]
    wanted += [spec for c in candidates for spec in (c.spec, *c.beside)]
    wanted = list(dict.fromkeys(wanted))
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
        "family": families,
        "rank": r,
        "heads": heads,
        "extend_to": extend_to,
        "extend_by": extend_by,
        "encodings": wanted,
        "per_head": per_head,
        "seed": seed,
        "force": (force and not geometry.has_structure) or None,
    }
    settings |= asdict(constraints) | reading
    return Design(
        counts=counts,
        geometry=geometry,
        low_rank=low,
        scores=score_encodings(
            geometry, wanted, dim, seed=seed, per_head=per_head, progress=progress
        ),
        settings={key: value for key, value in settings.items() if value is not None},
        provenance=counts.provenance.as_dict(),
        tokenizer=trained.to_json() if isinstance(trained, LibraryTokenizer) else None,
        extended=extended,
        extension=extension,
    )


def check_request(families: Sequence[str], *, dim: int, heads: int, seed: int) -> None:
    """Raise PosgeomError for what cannot be made, before the work."""
    if dim < 1:
        raise PosgeomError(f"--dim {dim} came; give 1 or more")
    if seed < 0:
        raise PosgeomError(f"--seed {seed} came; give 0 or more")
    family_candidates(families, rank=1, dim=dim, heads=heads)


def check_carried(
    positions: int | None, grid: tuple[int, int] | None, to: int | None, by: str | None
) -> None:
    """Raise PosgeomError where a table cannot be carried so far, or in this way."""
    check_method(by)
    if to is None:
        if by is not None:
            raise PosgeomError(f"--extend-by {by} came without --extend; say how far to extend")
        return
    if grid is not None:
        raise PosgeomError(
            "--extend carries on a line, positions are cells of a grid; leave it out"
        )
    if positions is None:
        raise PosgeomError(f"--extend {to} came without --positions; say what to extend")
    if to < positions:
        raise PosgeomError(
            f"--extend {to} came, below --positions {positions}; give {positions} or more"
        )


def default_encodings(dim: int) -> list[str]:
    """The encodings scored unasked; an odd dimension has no pairs for RoPE to turn."""
    return [spec for spec in DEFAULT_ENCODINGS if dim % 2 == 0 or spec != "rope"]


def tokenizer_setting(tokenizer: Any) -> str:
    """The tokenizer as a setting that names it from any folder."""
    if not isinstance(tokenizer, str | PathLike):
        return type(tokenizer).__name__
    spec = str(tokenizer)
    if spec in PLAIN or not Path(spec).exists():
        return spec
    return str(Path(spec).resolve())
