"""A model's passport: what its folder says about positions, and what follows from it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posgeom.content import TERMS, ContentTerms, Estimate, content_terms, draw
from posgeom.encodings.base import Encoding
from posgeom.encodings.config_rope import layers_without
from posgeom.encodings.config_values import whole
from posgeom.encodings.precision import first_collision
from posgeom.encodings.rotary import Rotary
from posgeom.encodings.rotary_scaling import Scaling
from posgeom.encodings.table import Sinusoidal, TableEncoding
from posgeom.errors import PosgeomError
from posgeom.passport.config import HEADS, WIDTH, Config
from posgeom.passport.found import Found, Model, open_model
from posgeom.passport.models import CAUSAL_TABLES
from posgeom.passport.projections import layer_projections, word_rows, word_table
from posgeom.passport.weights import Weights

FloatArray = NDArray[np.float64]

LOOKED_AT = 131_072  # positions among which rows are compared, at most
NUMBERS_AT_MOST = 1 << 25  # and numbers in them: they are all kept to be compared
UNBOUNDED = 2_048  # and where the config names no length
ROWS_AT_ONCE = 8_192

# The parameters that each scaling reads, beside `factor`.
STRETCH = {
    name: tuple(text.split())
    for name, text in {
        "dynamic": "factor original_length",
        "yarn": "factor original_length beta_fast beta_slow truncate mscale mscale_all_dim "
        "attention_factor",
        "longrope": "factor original_length length short_factor long_factor attention_factor",
        "llama3": "factor original_length low_freq_factor high_freq_factor",
    }.items()
}
OWN = {"attention_factor": "own_attention"}


@dataclass(frozen=True, eq=False, kw_only=True)
class Rule:
    """One encoding of a model, and what follows from it.

    wavelengths  2π/θ_k positions a turn, one a pair; infinite for a pair that stands still.
                 Those of sequences up to the trained length; `longest` of the maximum length
    beyond       how many of them exceed the trained length: pairs that never saw a full turn
    collisions   "bf16", "fp16" -> the first position whose row equals an earlier one once both
                 are rounded, None where there is none among the first `looked_at`
    past_end     what happens past the maximum length
    """

    found: Found
    wavelengths: FloatArray | None
    longest: FloatArray | None
    beyond: int | None
    collisions: dict[str, int | None]
    looked_at: int
    past_end: str

    @property
    def encoding(self) -> Encoding:
        """The encoding."""
        return self.found.encoding

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite wavelength is null."""
        found, e = self.found, self.encoding
        rotary = e if isinstance(e, Rotary) else None
        return {
            "layers": found.layers or "all",
            "family": e.family,
            "pairing": getattr(e, "pairing", None),
            "base": getattr(e, "base", None),
            "dim": getattr(e, "dim", None),
            "rotary_dim": 2 * rotary.n_pairs if rotary else None,
            "sections": list(getattr(e, "sections", ())) or None,
            "scaling": scaling_of(e),
            "attention_factor": rotary.attention_factor if rotary else None,
            "slopes": _listed(getattr(e, "slopes", None)),
            "buckets": getattr(e, "buckets", None),
            "max_distance": getattr(e, "max_distance", None),
            "causal": getattr(e, "causal", None),
            "tensor": found.tensor or None,
            "dtype": found.dtype or None,
            "first_row": found.first_row,
            "max_length": found.max_length,
            "trained_length": found.trained_length,
            "wavelengths": _listed(self.wavelengths),
            "wavelengths_at_max_length": _listed(self.longest),
            "wavelengths_beyond_trained_length": self.beyond,
            "parameters": found.stored,
            "first_collision": self.collisions,
            "positions_compared": self.looked_at,
            "past_end": self.past_end,
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class Passport:
    """What a model folder says about positions.

    norms    "positions", "tokens" -> (min, median, max) of the norms of all rows
    content  the four terms of the sum, and of a layer; empty where positions are not added
    """

    path: str
    model_type: str
    dtype: str
    rules: tuple[Rule, ...]
    norms: dict[str, tuple[float, float, float]]
    content: tuple[ContentTerms, ...]
    tokens: str
    notes: tuple[str, ...]

    @property
    def encoding(self) -> Encoding:
        """The first of its encodings, what `model:PATH` scores."""
        return self.rules[0].encoding

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; NaN is null."""
        return {
            "path": self.path,
            "model_type": self.model_type,
            "dtype": self.dtype or None,
            "encodings": [rule.as_dict() for rule in self.rules],
            "norms": {
                name: dict(zip(("min", "median", "max"), values, strict=True))
                for name, values in self.norms.items()
            },
            "content": [content_dict(c) for c in self.content],
            "tokens": self.tokens or None,
            "notes": list(self.notes),
        }


def inspect_model(
    path: str | Path, *, layer: int = 0, tokens: str | Path | None = None, seed: int = 0
) -> Passport:
    """The passport of a model folder: config.json, and the tensors that hold positions.

    layer   whose norms, W_q and W_k the four terms pass, besides the bare sum
    tokens  a file of token ids (.npy, or numbers in a text file) to draw from; by default every
            id of the vocabulary is as likely
    seed    of the draw

    Raises PosgeomError as open_model does, and for ids that the model does not have.
    """
    model = open_model(path)
    config, weights = model.config, model.weights
    rules = tuple(_rule(model, found) for found in model.found)
    table, words = model.found[0].encoding, word_table(weights)
    norms: dict[str, tuple[float, float, float]] = {}
    content: list[ContentTerms] = []
    notes, about = list(_notes(model)), ""
    if isinstance(table, TableEncoding):
        P = table.table(np.arange(model.found[0].max_length or 0))
        norms["positions"] = _three(np.linalg.norm(P, axis=1))
        if words:
            norms["tokens"] = _three(_norms(weights, words))
            ids, about = _ids(tokens, weights.shape(words)[0])
            content, said = _content(config, weights, P, ids, layer, seed)
            notes += said
        else:
            notes.append("the weights hold no token embeddings: nothing to compare positions with")
    elif tokens is not None:
        raise PosgeomError(
            f"--tokens came, but this {config['model_type']} adds no positions to tokens; "
            "leave it out"
        )
    return Passport(
        path=str(path),
        model_type=str(config["model_type"]),
        dtype=str(config.get("dtype") or config.get("torch_dtype") or weights.usual_dtype),
        rules=rules,
        norms=norms,
        content=tuple(content),
        tokens=about,
        notes=tuple(notes),
    )


def scaling_of(encoding: Encoding) -> dict[str, Any] | None:
    """How a rotary encoding is stretched: "type" and its parameters, named as in specs.

    None where it is not stretched.
    """
    if not isinstance(encoding, Scaling) or encoding.scaling == "none":
        return None
    names = STRETCH.get(encoding.scaling, ("factor",))
    values = {name: getattr(encoding, OWN.get(name, name)) for name in names}
    said = {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}
    return {"type": encoding.scaling} | {k: v for k, v in said.items() if v is not None}


def _rule(model: Model, found: Found) -> Rule:
    e, trained = found.encoding, found.trained_length
    λ = longest = beyond = None
    if isinstance(e, Rotary):
        λ, longest = _wavelengths(e, trained), _wavelengths(e, found.max_length)
        beyond = None if trained is None else int((λ > trained).sum())
    length = found.max_length or trained or UNBOUNDED
    heads = whole(model.config, HEADS) or 1
    columns = e.codes(np.zeros(1, dtype=np.int64)).shape[1]
    looked_at = min(length, LOOKED_AT, max(2, NUMBERS_AT_MOST // columns))
    return Rule(
        found=found,
        wavelengths=λ,
        longest=longest,
        beyond=beyond,
        collisions={kind: first_collision(e, kind, looked_at) for kind in ("bf16", "fp16")},
        looked_at=looked_at,
        past_end=e.cost(whole(model.config, WIDTH) or heads, heads, length).past_end,
    )


def _wavelengths(e: Rotary, length: int | None) -> FloatArray:
    """2π/θ_k in a sequence of this length: (pairs,)."""
    with np.errstate(divide="ignore"):
        return 2 * np.pi / e.frequencies_at(length)


def _notes(model: Model) -> Iterator[str]:
    """What a reader should know of what was found."""
    for found in model.found:
        if found.first_row:
            yield f"position 0 is row {found.first_row} of {found.tensor}; no row before it counts"
        if found.encoding.note:
            yield found.encoding.note
        if isinstance(found.encoding, Sinusoidal) and found.tensor:
            yield (
                f"{found.tensor} holds sines and cosines, and was not trained; the model has "
                f"{found.max_length} rows, though the rule goes on"
            )
    if without := layers_without(model.config):
        yield (
            f"in layers {', '.join(map(str, without))}, from 0, nothing turns: they have no "
            "positions but for the mask"
        )
    if len(model.found) > 1:
        yield "model:PATH scores the first of these encodings; model:PATH#LAYERS another"


def _content(
    config: Config,
    weights: Weights,
    P: FloatArray,
    ids: NDArray[np.int64],
    layer: int,
    seed: int,
) -> tuple[list[ContentTerms], list[str]]:
    """The four terms of the sum, and of the layer where its weights are known."""
    projections, said = layer_projections(config, weights, layer, P.shape[1])
    positions, drawn = draw(len(P), len(ids), seed)
    X = word_rows(config, weights, ids[drawn])
    if X.shape[2] != P.shape[1]:
        return [], [f"tokens have width {X.shape[2]}, positions {P.shape[1]}: they are not added"]
    causal = config["model_type"] in CAUSAL_TABLES
    made = [content_terms(X, positions, P, causal=causal)]
    if projections is not None:
        at = f"layer {layer}"
        made.append(content_terms(X, positions, P, projections, at=at, causal=causal))
    return made, [said]


def _ids(tokens: str | Path | None, vocabulary: int) -> tuple[NDArray[np.int64], str]:
    """The ids to draw from, and where they came from."""
    if tokens is None:
        return np.arange(vocabulary), f"drawn evenly from the {vocabulary:,} ids of the vocabulary"
    try:
        raw = (
            np.load(tokens, allow_pickle=False)
            if str(tokens).endswith(".npy")
            else np.array(Path(tokens).read_text(encoding="utf-8").replace(",", " ").split(), int)
        )
    except (OSError, ValueError) as error:
        raise PosgeomError(
            f"--tokens {tokens} cannot be read: {error}; give a .npy or a text of token ids"
        ) from error
    ids = np.asarray(raw).ravel()
    if ids.dtype.kind not in "iu" or len(ids) < 2:
        raise PosgeomError(f"--tokens {tokens} holds {len(ids)} {ids.dtype}; give two ids or more")
    if ids.min() < 0 or ids.max() >= vocabulary:
        wrong = ids[(ids < 0) | (ids >= vocabulary)][0]
        raise PosgeomError(
            f"--tokens {tokens} holds id {wrong}; the model has ids 0 to {vocabulary - 1}"
        )
    return ids.astype(np.int64), f"drawn from the {len(ids):,} ids of {tokens}"


def _norms(weights: Weights, name: str) -> FloatArray:
    """Norms of all rows of a tensor, some rows at a time."""
    rows = weights.shape(name)[0]
    return np.concatenate(
        [
            np.linalg.norm(weights.read(name, slice(start, start + ROWS_AT_ONCE)), axis=1)
            for start in range(0, rows, ROWS_AT_ONCE)
        ]
    )


def _three(x: FloatArray) -> tuple[float, float, float]:
    return float(x.min()), float(np.median(x)), float(x.max())


def _listed(x: Any) -> list[float | None] | None:
    if x is None:
        return None
    return [float(v) if np.isfinite(v) else None for v in np.asarray(x, dtype=np.float64)]


def content_dict(c: ContentTerms) -> dict[str, Any]:
    """The shares as plain values: all heads, then each, with standard errors."""
    return {
        "at": c.at,
        "heads": c.heads,
        "pairs": c.pairs,
        "causal": c.causal,
        "terms": list(TERMS),
        "share_of_variance": _both(c.variance),
        "share_of_absolute_value": _both(c.absolute),
        "shift_invariance_left": _both(c.invariance),
    }


def _both(e: Estimate) -> dict[str, Any]:
    names = ("value", "error")
    out: dict[str, Any] = {"all": {n: _plain(x[0]) for n, x in zip(names, e, strict=True)}}
    if len(e.value) > 2:
        out["heads"] = {n: _plain(x[1:]) for n, x in zip(names, e, strict=True)}
    return out


def _plain(x: Any) -> Any:
    """Floats and lists of floats, NaN as None."""
    x = np.asarray(x)
    if x.ndim:
        return [_plain(v) for v in x]
    return float(x) if np.isfinite(x) else None
