"""All families of encodings: their options, what they are, what each costs."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from posgeom.encodings import FAMILIES, Encoding, LearnedTable
from posgeom.encodings.base import Cost
from posgeom.encodings.registry import family_options, make_encoding
from posgeom.encodings.rotary import Rotary
from posgeom.errors import PosgeomError


@dataclass(frozen=True)
class Entry:
    """A family: how its spec is written, its options with their defaults, a sentence, its cost.

    cost is None where no model was given, and where it depends on a model's file or on a rank.
    """

    family: str
    spec: str
    options: dict[str, Any]
    about: str
    cost: Cost | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def catalogue(dim: int = 128, heads: int = 8, length: int | None = None) -> list[Entry]:
    """Every family; with the length of a model also what each costs it.

    dim is the width of the model: tables have it whole, rotary encodings turn heads of dim/heads.
    Raises PosgeomError for a size below 1, and where heads do not divide the width.
    """
    if length is None:
        return list(_entries(None))
    for name, size in {"--dim": dim, "--heads": heads, "--length": length}.items():
        if size < 1:
            raise PosgeomError(f"{name} {size} came; give 1 or more")
    if dim % heads:
        raise PosgeomError(f"--dim {dim} came with --heads {heads}; heads must divide the width")
    return list(_entries((dim, heads, length)))


def _entries(size: tuple[int, int, int] | None) -> Iterator[Entry]:
    for family, cls in FAMILIES.items():
        options = {k: default for k, (_, default) in family_options(cls).items()}
        cost = _made(family, cls, *size).cost(*size) if size else None
        yield Entry(family, family, options, first_sentence(cls.__doc__), cost)
    cost = None
    if size:
        dim, _, length = size
        rows = np.broadcast_to(np.float64(0), (length, dim))  # no memory, however long
        cost = LearnedTable(rows=rows).cost(*size)
    about = "A table from a .npy, .npz or .safetensors file, or a model's folder."
    yield Entry("learned", "learned:PATH[#KEY]", {}, about, cost)
    about = "What `posgeom inspect` finds in a model's folder."
    yield Entry("model", "model:PATH[#LAYERS][,head=h]", {}, about)


def _made(family: str, cls: type[Encoding], dim: int, heads: int, length: int) -> Encoding:
    """An encoding of the family for a model of this size, its own options at their defaults."""
    width = dim // heads if issubclass(cls, Rotary) or family == "shaw" else dim
    try:
        return make_encoding(family, dim=width, heads=heads, length=length)
    except PosgeomError as error:
        raise PosgeomError(f"{family} for --dim {dim} --heads {heads}: {error}") from error


def first_sentence(doc: str | None) -> str:
    """The first sentence of a docstring, on one line."""
    return " ".join((doc or "").split()).partition(".  ")[0].partition(". ")[0].rstrip(".") + "."


def lines(entries: list[Entry]) -> Iterator[str]:
    """The families as lines: the spec, the sentence, the cost."""
    for entry in entries:
        options = ",".join(f"{k}={_shown(v)}" for k, v in entry.options.items())
        yield f"{entry.spec}:{options}" if options else entry.spec
        yield f"    {entry.about}"
        if entry.cost is not None:
            c = entry.cost
            yield (
                f"    {c.parameters:,} parameters, {c.flops:,} flops per token and layer, "
                f"{c.bytes:,} bytes, past the length: {c.past_end}"
            )


def _shown(value: Any) -> str:
    """A default as the spec writes it; nothing where there is none."""
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ";".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
