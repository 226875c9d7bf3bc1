"""From a model's config.json to its encoding."""

from collections.abc import Mapping
from typing import Any

from posgeom.encodings.base import Encoding
from posgeom.encodings.bias import alibi_slopes
from posgeom.encodings.config_rope import ROPE_KEYS, ROTARY_MODELS, rope_by_layer
from posgeom.encodings.config_values import real, whole
from posgeom.encodings.learned import AFTER_PADDING, AFTER_TWO, LearnedPositions, position_offset
from posgeom.encodings.precision import rounded
from posgeom.encodings.registry import make_encoding, make_spec
from posgeom.errors import PosgeomError

T5_MODELS = {
    "longt5",
    "mt5",
    "pix2struct",
    "pix2struct_text_model",
    "pop2piano",
    "switch_transformers",
    "t5",
    "udop",
    "umt5",
}

# Tables in the weights, rows as many as positions; those with an offset are in learned.py.
LEARNED_MODELS = {
    "albert",
    "bert",
    "bert-generation",
    "big_bird",
    "bigbird_pegasus",
    "blenderbot",
    "blenderbot-small",
    "clip_text_model",
    "convbert",
    "deberta",
    "distilbert",
    "electra",
    "ernie",
    "gpt2",
    "gpt_bigcode",
    "gpt_neo",
    "layoutlm",
    "led",
    "mobilebert",
    "openai-gpt",
    "rembert",
    "xlm",
}

# Sinusoids that are computed, not stored: layout and spacing as in the models of `transformers`.
SINUSOIDAL_MODELS = {
    "fsmt": "tensor2tensor",
    "m2m_100": "tensor2tensor",
    "marian": "paper",
    "nllb-moe": "tensor2tensor",
    "pegasus": "paper",
    "speech_to_text": "tensor2tensor",
    "xglm": "tensor2tensor",
}

LENGTH_KEYS = (
    "max_position_embeddings",
    "max_encoder_position_embeddings",  # LED, whose decoder has its own
    "n_positions",
    "max_seq_len",
    "n_ctx",
    "seq_length",
)
WIDTH_KEYS = ("d_model", "hidden_size", "n_embd", "dim", "emb_dim", "word_embed_proj_dim")

# Models whose embeddings, and so their table, have another width than their layers.
NARROW_MODELS = {
    "albert": "embedding_size",
    "convbert": "embedding_size",
    "electra": "embedding_size",
    "rembert": "input_embedding_size",
}


def encoding_from_config(config: Mapping[str, Any], layer_type: str | None = None) -> Encoding:
    """The encoding that a config.json describes, as `transformers` would build it.

    config      the parsed JSON.  Rotary: `rope_theta` + `rope_scaling` with `type` or `rope_type`,
                or `rope_parameters`, also one for each layer type.  ALiBi: Bloom, MPT, Falcon.
                T5's buckets (their numbers are in the weights).  Learned: size and offset alone.
                Sinusoids that a model computes
    layer_type  which of several, by default that of full attention

    Raises PosgeomError where nothing is said of positions, for unknown kinds, for a missing
    scaling key and a factor below 1.
    """
    made = encodings_from_config(config)
    if layer_type is None:
        layer_type = "full_attention" if "full_attention" in made else next(iter(made))
    if layer_type not in made:
        raise PosgeomError(
            f"the config has no layers of type {layer_type!r}; it has {', '.join(made) or 'one'}"
        )
    return made[layer_type]


def encodings_from_config(config: Mapping[str, Any]) -> dict[str, Encoding]:
    """The encoding of each layer type; {"all": encoding} where all layers have the same one.

    Raises PosgeomError for a config that says nothing of positions, for one whose scaling lacks a
    key, and for values of a kind that their key does not take.
    """
    try:
        return _encodings(config)
    except PosgeomError:
        raise
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        # a list where a number belongs, and the like: JSON holds anything under any key
        raise PosgeomError(
            f"a value is of a kind that its key does not take ({error}); compare it with the "
            "config of a model that loads"
        ) from error


def _encodings(config: Mapping[str, Any]) -> dict[str, Encoding]:
    kind = str(config.get("model_type", ""))
    if kind in ("bloom", "mpt", "falcon") and (alibi := _alibi(kind, config)) is not None:
        return {"all": alibi}
    if kind in T5_MODELS:
        return {"all": _t5(config)}
    if kind == "granitemoehybrid" and config.get("position_embedding_type") != "rope":
        return {"all": make_encoding("none")}
    if kind in SINUSOIDAL_MODELS:
        options = {"dim": _width(config), "layout": "halves"}
        if SINUSOIDAL_MODELS[kind] != "paper":
            options["spacing"] = SINUSOIDAL_MODELS[kind]
        return {"all": make_encoding(make_spec("sinusoidal", options))}
    absolute = config.get("position_embedding_type") == "absolute"
    if kind in LEARNED_MODELS | AFTER_PADDING | AFTER_TWO and (absolute or not _is_rotary(config)):
        return {"all": _learned(kind, config)}
    if _is_rotary(config):
        return rope_by_layer(config)
    if isinstance(inner := config.get("text_config"), Mapping):  # of models that also see or hear
        return _encodings({"model_type": f"{kind}_text", **inner})
    if kind in ROTARY_MODELS:
        return rope_by_layer(config)
    raise PosgeomError(
        f"the config of model type {kind or 'nothing'!r} says nothing of positions that is known "
        "here; name the encoding yourself, such as rope:dim=64,base=10000"
    )


def _is_rotary(config: Mapping[str, Any]) -> bool:
    return (
        any(config.get(key) for key in ROPE_KEYS)
        or config.get("position_embedding_type") == "rotary"
    )


def _alibi(kind: str, config: Mapping[str, Any]) -> Encoding | None:
    heads = first_of(config, ("n_head", "n_heads", "num_attention_heads"), kind)
    if kind == "mpt":
        attention = config.get("attn_config") or {}
        if not attention.get("alibi", True):
            raise PosgeomError("this MPT has learned positions; use learned:DIR")
        # as MPT's own code reads it; `transformers` keeps the key and always takes 8
        bias_max = real(attention, ("alibi_bias_max",)) or 8
        options = {"heads": heads} | ({"bias_max": bias_max} if bias_max != 8 else {})
        return make_encoding(make_spec("alibi", options | {"causal": True}))
    if kind == "falcon":
        if not config.get("alibi"):
            return None
        # Falcon rounds the slopes to bfloat16 and divides the bias by √d with the scores
        width = first_of(config, ("hidden_size",), kind) // heads
        slopes = tuple(float(m) / width**0.5 for m in rounded(alibi_slopes(heads), "bf16"))
        return make_encoding(make_spec("alibi", {"slopes": slopes, "causal": True}))
    return make_encoding(make_spec("alibi", {"heads": heads, "form": "keys", "causal": True}))


def _t5(config: Mapping[str, Any]) -> Encoding:
    decoder_only = not config.get("is_encoder_decoder", True) and config.get("is_decoder", False)
    return make_encoding(
        make_spec(
            "t5",
            {
                "heads": first_of(config, ("num_heads",), "t5"),
                "buckets": whole(config, ("relative_attention_num_buckets",)) or 32,
                "max_distance": whole(config, ("relative_attention_max_distance",)) or 128,
            }
            | ({"causal": True} if decoder_only else {}),
        )
    )


def _learned(kind: str, config: Mapping[str, Any]) -> Encoding:
    how = config.get("position_embedding_type", "absolute")
    if how not in ("absolute", None):
        raise PosgeomError(f"position_embedding_type {how!r} is not known; absolute and rotary are")
    length = whole(config, LENGTH_KEYS)
    if length is None:
        raise PosgeomError(
            f"the config of a {kind} names no length; it needs one of {', '.join(LENGTH_KEYS)}"
        )
    offset = position_offset(dict(config))
    # RoBERTa counts the rows before position 0 in its length, OPT does not
    positions = length - offset if kind in AFTER_PADDING else length
    if positions < 1:
        raise PosgeomError(f"the config of a {kind} leaves no rows: {length} less {offset}")
    return LearnedPositions(
        dim=_width(config),
        positions=positions,
        offset=offset,
        spec=f"learned({kind}, {positions} positions)",
    )


def _width(config: Mapping[str, Any]) -> int:
    kind = str(config.get("model_type"))
    own = whole(config, (NARROW_MODELS[kind],)) if kind in NARROW_MODELS else None
    return own or first_of(config, WIDTH_KEYS, kind)


def first_of(config: Mapping[str, Any], keys: tuple[str, ...], kind: str) -> int:
    """The first of these keys that is there, a positive whole number; else PosgeomError."""
    value = whole(config, keys)
    if value is None:
        raise PosgeomError(f"the config of a {kind or 'model'} lacks {' or '.join(keys)}; add it")
    return value
