"""From a spec, `family[:key=value,…]`, `learned:PATH[#KEY]` or `model:PATH`, to an encoding."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from posgeom.encodings.absolute import Binary, Index, NoPositions, NormalisedIndex
from posgeom.encodings.base import Encoding
from posgeom.encodings.bias import Alibi
from posgeom.encodings.kernels import Fire, Kerple, Sandwich
from posgeom.encodings.learned import learned_table
from posgeom.encodings.rotary import Rope
from posgeom.encodings.rotary_grid import AxialRope, MRope
from posgeom.encodings.shaw import Shaw
from posgeom.encodings.t5 import T5Bias
from posgeom.encodings.table import Random, Sinusoidal
from posgeom.encodings.xpos import XPos
from posgeom.errors import PosgeomError

FAMILIES: dict[str, type[Encoding]] = {
    cls.family: cls
    for cls in (
        Sinusoidal,
        Rope,
        Alibi,
        Index,
        NormalisedIndex,
        Binary,
        Random,
        XPos,
        AxialRope,
        MRope,
        T5Bias,
        Shaw,
        Kerple,
        Sandwich,
        Fire,
        NoPositions,
    )
}

# Families that are followed by a path in place of options.
ADDRESSED = {"learned": "learned:PATH[#KEY]", "model": "model:PATH[#LAYERS][,head=h]"}

Converter = Callable[[str], Any]


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
    if family in ADDRESSED:
        if not rest:
            raise PosgeomError(f"encoding {family!r} came without a file; use {ADDRESSED[family]}")
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
    if parsed.family == "model":
        from posgeom.passport import model_encoding  # which reads configs by way of this module

        return model_encoding(parsed.address, spec)
    if parsed.family not in FAMILIES:
        raise PosgeomError(
            f"encoding family {parsed.family!r} is not known; use one of "
            f"{', '.join([*FAMILIES, 'learned:PATH', 'model:PATH'])}"
        )
    cls = FAMILIES[parsed.family]
    known = family_options(cls)
    given = convert_options(parsed, {name: kind for name, (kind, _) in known.items()})
    values = {k: v for k, v in defaults.items() if k in known} | given
    names = _fields(cls)
    return cls(**{names[k]: v for k, v in values.items()}, spec=spec)


def make_spec(family: str, options: Mapping[str, Any]) -> str:
    """The spec of a family with these values of its options."""
    return family + "".join(
        f"{',' if number else ':'}{key}={_text(value)}"
        for number, (key, value) in enumerate(options.items())
    )


def spec_of(encoding: Encoding) -> str:
    """The spec that makes an encoding by its parameters alone, those at their default left out.

    `rope:dim=64,inv_freq=1;0.5;…` for a RoPE that goes by another name since it was fitted to a
    corpus.  Raises PosgeomError for tables and other arrays, which no spec can hold.
    """
    if encoding.family not in FAMILIES:
        raise PosgeomError(f"{encoding.name} is an array, which no spec can hold; save its numbers")
    cls = type(encoding)
    options = {option: getattr(encoding, name) for option, name in _fields(cls).items()}
    defaults = {option: default for option, (_, default) in family_options(cls).items()}
    changed = {k: v for k, v in options.items() if v is not None and v != defaults[k]}
    spec = make_spec(encoding.family, changed)
    arrays = [f.name for f in fields(cls) if f.metadata.get("array")]
    again = make_encoding(spec) if arrays else encoding
    if not all(_equal(getattr(again, name), getattr(encoding, name)) for name in arrays):
        raise PosgeomError(f"{encoding.name} holds an array, which no spec can; save its numbers")
    return spec


def _equal(a: Any, b: Any) -> bool:
    """Whether two arrays are the same, or two tuples of them, or both are None."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return type(a) is type(b) and bool(np.array_equal(a, b))


def family_options(cls: type[Encoding]) -> dict[str, tuple[Any, Any]]:
    """The options of a family: name -> (what makes a value of its text, default)."""
    hints = get_type_hints(cls)
    defaults = {f.name: f.default for f in fields(cls)}
    return {
        option: (_converter(hints[name]), defaults[name]) for option, name in _fields(cls).items()
    }


def _fields(cls: type[Encoding]) -> dict[str, str]:
    """Option -> the field that holds it."""
    named = {f.metadata.get("option", f.name): f for f in fields(cls)}
    return {
        option: f.name
        for option, f in named.items()
        if option not in (None, "spec") and f.default is not MISSING
    }


def convert_options(spec: Spec, known: Mapping[str, Converter]) -> dict[str, Any]:
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
        if isinstance(values[key], float) and values[key] != values[key]:
            raise PosgeomError(f"encoding {spec.text!r}: {key} is NaN; give a number")
    return values


def _converter(hint: Any) -> Converter:
    """What makes a value of type `int`, `int | None`, `bool` or `tuple[float, ...]` of a text."""
    if isinstance(hint, UnionType):
        return _converter(next(t for t in get_args(hint) if t is not type(None)))
    if hint is bool:
        return _truth
    if get_origin(hint) is tuple:
        return _numbers(get_args(hint)[0])
    plain: Converter = hint
    return plain


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false", "yes", "no", "1", "0"):
        raise ValueError(text)
    return text.lower() in ("true", "yes", "1")


_truth.__name__ = "true or false"


def _numbers(kind: type) -> Converter:
    def numbers(text: str) -> tuple[Any, ...]:
        return tuple(kind(item) for item in text.split(";"))

    numbers.__name__ = f"{kind.__name__} values separated by ;"
    return numbers


def _text(value: Any) -> str:
    if isinstance(value, np.floating):
        value = float(value)  # whose text is the number alone
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ";".join(_text(item) for item in value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
