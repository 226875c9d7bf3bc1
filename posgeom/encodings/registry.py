"""From a spec, `family[:key=value,…]` or `learned:PATH[#KEY]`, to an encoding."""

from dataclasses import MISSING, dataclass, fields
from types import UnionType
from typing import Any, get_args, get_type_hints

from posgeom.encodings.base import Encoding
from posgeom.encodings.bias import Alibi
from posgeom.encodings.learned import learned_table
from posgeom.encodings.rotary import Rope
from posgeom.encodings.table import Random, Sinusoidal
from posgeom.errors import PosgeomError

FAMILIES: dict[str, type[Encoding]] = {cls.family: cls for cls in (Sinusoidal, Rope, Alibi, Random)}


@dataclass(frozen=True)
class Spec:
    """A spec taken apart: its family, and the options or the address behind the colon."""

    text: str
    family: str
    options: dict[str, str]
    address: str = ""


def parse_spec(text: str) -> Spec:
    """`rope:base=500000,dim=64` taken apart; PosgeomError where the grammar is broken."""
    family, _, rest = text.strip().partition(":")
    if family == "learned":
        if not rest:
            raise PosgeomError("encoding 'learned' came without a file; use learned:PATH[#KEY]")
        return Spec(text, family, {}, rest)
    options = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if not (key.strip() and equals and value.strip()):
            raise PosgeomError(
                f"encoding {text!r} holds {item!r}; options look like {family}:key=value,key=value"
            )
        options[key.strip()] = value.strip()
    return Spec(text, family, options)


def make_encoding(spec: str, **defaults: Any) -> Encoding:
    """The encoding that a spec names.

    defaults are options for those families that have them and specs that do not set them:
    `make_encoding("rope", dim=64)` has dimension 64, `make_encoding("alibi", dim=64)` has none.
    Raises PosgeomError for an unknown family, option or value.
    """
    parsed = parse_spec(spec)
    if parsed.family == "learned":
        return learned_table(parsed.address, spec)
    if parsed.family not in FAMILIES:
        raise PosgeomError(
            f"encoding family {parsed.family!r} is not known; use one of "
            f"{', '.join([*FAMILIES, 'learned:PATH'])}"
        )
    cls = FAMILIES[parsed.family]
    known = family_options(cls)
    given = convert_options(parsed, {name: kind for name, (kind, _) in known.items()})
    return cls(**{k: v for k, v in defaults.items() if k in known} | given, spec=spec)


def family_options(cls: type[Encoding]) -> dict[str, tuple[type, Any]]:
    """The options of a family: name -> (type, default)."""
    hints = get_type_hints(cls)
    return {
        f.name: (_plain(hints[f.name]), f.default)
        for f in fields(cls)
        if f.name != "spec" and f.default is not MISSING
    }


def convert_options(spec: Spec, known: dict[str, type]) -> dict[str, Any]:
    """The options of a spec as values of their types; PosgeomError for one that does not fit."""
    values = {}
    for key, text in spec.options.items():
        if key not in known:
            raise PosgeomError(
                f"encoding {spec.text!r} has no option {key!r}; "
                f"{spec.family} knows {', '.join(known) or 'none'}"
            )
        try:
            values[key] = known[key](text)
        except ValueError:
            raise PosgeomError(
                f"encoding {spec.text!r}: {key} takes {known[key].__name__}, {text!r} came"
            ) from None
    return values


def _plain(hint: Any) -> type:
    """`int` of `int` and of `int | None`."""
    if isinstance(hint, UnionType):
        return next(t for t in get_args(hint) if t is not type(None))
    plain: type = hint
    return plain
