"""A passport as lines for a reader."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from posgeom.content import TERMS, ContentTerms
from posgeom.passport.passport import Passport, Rule


def lines(passport: Passport) -> Iterator[str]:
    """The passport, a fact a line."""
    head = f"{passport.path}: {passport.model_type}"
    yield f"{head}, {passport.dtype}" if passport.dtype else head
    for rule in passport.rules:
        yield from _rule(rule)
    for name, (least, middle, most) in passport.norms.items():
        title = f"norms of {name}"
        yield _fact(title, f"min {least:.4g}, median {middle:.4g}, max {most:.4g}")
    if passport.content:
        yield f"⟨x + p, x + p⟩ over pairs of tokens {passport.tokens}"
        for content in passport.content:
            yield from _content(content)
    for note in passport.notes:
        yield f"note: {note}"


def _fact(name: str, value: Any) -> str:
    return f"  {name:<24}{value}"


def _rule(rule: Rule) -> Iterator[str]:
    about = rule.as_dict()
    yield f"{about['family']}" + (f" ({about['layers']})" if about["layers"] != "all" else "")
    names = {
        "pairing": "pairing",
        "base": "base",
        "dim": "dimensions",
        "rotary_dim": "of these turn",
        "sections": "sections",
        "attention_factor": "attention factor",
        "slopes": "slopes",
        "buckets": "buckets",
        "max_distance": "max distance",
        "tensor": "tensor",
        "dtype": "dtype",
        "first_row": "row of position 0",
        "max_length": "maximum length",
        "trained_length": "trained length",
    }
    for key, name in names.items():
        if about[key] is not None:
            yield _fact(name, _shown(about[key]))
    if about["scaling"]:
        said = ", ".join(f"{k} {_shown(v)}" for k, v in about["scaling"].items())
        yield _fact("scaling", said)
    if rule.wavelengths is not None:
        λ = rule.wavelengths
        yield _fact("wavelengths", f"{_shown(λ)} positions")
        if rule.longest is not None and not np.array_equal(rule.longest, λ):
            yield _fact("at the maximum length", f"{_shown(rule.longest)} positions")
        if rule.beyond is not None:
            yield _fact("longer than trained", f"{rule.beyond} of {len(λ)}")
    yield _fact("parameters", f"{about['parameters']:,}")
    for kind, at in rule.collisions.items():
        none = f"none of the first {rule.looked_at:,}"
        yield _fact(
            f"first equal row, {kind}", none if at is None else f"position {at:,}, counted from 0"
        )
    yield _fact("past the end", rule.past_end)


def _content(content: ContentTerms) -> Iterator[str]:
    seen = "keys before the query" if content.causal else "all pairs of different positions"
    yield f"  {content.at}, {content.pairs:,} pairs, {seen}"
    variance, size = content.variance, content.absolute
    for t, term in enumerate(TERMS):
        yield _fact(
            f"  {term}",
            f"{_with_error(variance.value[0, t], variance.error[0, t])} of the variance, "
            f"{_with_error(size.value[0, t], size.error[0, t])} of the mean |term|",
        )
    left = content.invariance
    if np.isnan(left.value[0]):
        yield _fact("  shift invariance left", "nothing depends on position")
        return
    by_head = ""
    if content.heads > 1:
        low, high = np.nanmin(left.value[1:]), np.nanmax(left.value[1:])
        by_head = f"; heads {low:.3f} to {high:.3f}"
    yield _fact("  shift invariance left", f"{_with_error(left.value[0], left.error[0])}{by_head}")


def _with_error(value: float, error: float) -> str:
    return f"{value:.3f} ± {error:.3f}" if np.isfinite(error) else f"{value:.3f}"


def _shown(value: Any, most: int = 8) -> str:
    """A number, or the ends of a list of numbers."""
    if isinstance(value, list | tuple | np.ndarray):
        shown = [_shown(v) for v in value]
        if len(shown) > most:
            shown = [*shown[: most // 2], "…", *shown[-most // 2 :]]
        return " ".join(shown)
    if value is None or (isinstance(value, float) and np.isinf(value)):
        return "∞"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return f"{int(value):,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
