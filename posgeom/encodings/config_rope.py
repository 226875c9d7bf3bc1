"""The rotary part of a config.json, in both of its spellings."""

from collections.abc import Mapping
from typing import Any

from posgeom.encodings.base import Encoding
from posgeom.encodings.config_values import real, reals, whole
from posgeom.encodings.registry import make_encoding, make_spec
from posgeom.errors import PosgeomError

# Models that turn pairs (2k, 2k+1); all others of `transformers` pair the halves.
INTERLEAVED_MODELS = {
    "codegen",
    "cohere",
    "cohere2",
    "cohere2_moe",
    "deepseek_v2",
    "ernie4_5",
    "ernie4_5_moe",
    "glm",
    "glm4",
    "glm4v",
    "glm4v_text",
    "gptj",
    "helium",
    "llama4",
    "llama4_text",
    "moonshine",
    "roformer",
}
INTERLEAVED_UNLESS_SAID = {"axk1", "deepseek_v3", "glm4_moe_lite", "mistral4", "youtu"}

# Models whose layers of full attention, beside those of a sliding window, turn nothing.
FULL_IS_WITHOUT = {"cohere2", "cohere2_moe", "exaone4"}

# Rotary models whose config may say nothing of it: base, and share of the slots, by default.
ROTARY_MODELS: dict[str, tuple[float, float]] = {
    "codegen": (10_000, 1),
    "cohere": (500_000, 1),
    "deepseek_v2": (10_000, 1),
    "deepseek_v3": (10_000, 1),
    "esm": (10_000, 1),
    "falcon": (10_000, 1),
    "gemma": (10_000, 1),
    "gemma2": (10_000, 1),
    "gemma3_text": (10_000, 1),
    "glm": (10_000, 0.5),
    "glm4": (10_000, 0.5),
    "gpt_neox": (10_000, 0.25),
    "gptj": (10_000, 1),
    "helium": (100_000, 1),
    "llama": (10_000, 1),
    "mistral": (10_000, 1),
    "mixtral": (1_000_000, 1),
    "modernbert": (10_000, 1),
    "moonshine": (10_000, 0.9),
    "nemotron": (10_000, 0.5),
    "olmo": (10_000, 1),
    "persimmon": (10_000, 0.5),
    "phi": (10_000, 0.5),
    "phi3": (10_000, 1),
    "qwen2": (10_000, 1),
    "qwen2_moe": (10_000, 1),
    "qwen2_vl": (1_000_000, 1),
    "qwen2_vl_text": (1_000_000, 1),
    "qwen2_5_vl": (1_000_000, 1),
    "qwen2_5_vl_text": (1_000_000, 1),
    "qwen3": (10_000, 1),
    "qwen3_vl_text": (500_000, 1),
    "roformer": (10_000, 1),
    "stablelm": (10_000, 0.25),
}

# Any of these says that a config is a rotary model's.
ROPE_KEYS = (
    "rope_theta",
    "rope_parameters",
    "rope_scaling",
    "rope_local_base_freq",
    "global_rope_theta",
    "local_rope_theta",
    "rotary_emb_base",
    "rotary_pct",
    "rotary_dim",
    "partial_rotary_factor",
)

HEAD_KEYS = ("num_attention_heads", "n_head", "num_heads", "decoder_num_attention_heads")

TYPES = {
    "default": "none",
    "mrope": "none",
    "linear": "linear",
    "dynamic": "dynamic",
    "yarn": "yarn",
    "longrope": "longrope",
    "su": "longrope",  # Phi-3's first name for it
    "llama3": "llama3",
    "proportional": "proportional",
}
NUMBERS = ("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor")
LISTS = ("short_factor", "long_factor")


def rope_by_layer(config: Mapping[str, Any]) -> dict[str, Encoding]:
    """The rotary encoding of each layer type, or {"all": encoding}."""
    return {layer: _rope(config, rope) for layer, rope in _by_layer(config).items()}


def _by_layer(config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Layer type -> its rope parameters, whatever their spelling."""
    kind = config.get("model_type")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(rope, Mapping):
        raise PosgeomError(f"rope_scaling of the config is {rope!r}; give an object")
    nested = {k: v for k, v in rope.items() if isinstance(v, Mapping)}
    if nested and len(nested) < len(rope):
        raise PosgeomError(
            f"rope_parameters of the config holds objects ({', '.join(nested)}) and plain values "
            f"({', '.join(k for k in rope if k not in nested)}); give one object a layer type, or "
            "plain values alone"
        )
    if nested:
        return nested
    if "rope_local_base_freq" in config or str(kind).startswith("gemma3"):
        return {
            "full_attention": {"rope_theta": config.get("rope_theta", 1_000_000), **rope},
            "sliding_attention": {"rope_theta": config.get("rope_local_base_freq", 10_000)},
        }
    if "global_rope_theta" in config or "local_rope_theta" in config or kind == "modernbert":
        return {
            "full_attention": {"rope_theta": config.get("global_rope_theta", 160_000), **rope},
            "sliding_attention": {
                "rope_theta": config.get("local_rope_theta") or 10_000,
                **rope,
            },
        }
    return {"all": rope}


def _rope(config: Mapping[str, Any], rope: Mapping[str, Any]) -> Encoding:
    kind = str(config.get("model_type", ""))
    if kind.startswith("ernie4_5_vl"):
        raise PosgeomError(f"{kind} deals its pairs to the axes in an order not known here")
    base, share = ROTARY_MODELS.get(kind, (10_000, 1))
    dim, share = _head(config, rope, share)
    options: dict[str, Any] = {
        "dim": dim,
        "base": real(rope, ("rope_theta",))
        or real(config, ("rope_theta", "rotary_emb_base"))
        or base,
        "pairing": _pairing(kind, config),
    }
    if (rope.get("rope_type") or rope.get("type")) == "axial":  # image encoders
        options["spread"] = "dealt" if kind == "pixtral" else "each"
        return make_encoding(make_spec("rope-2d", options))
    if share != 1:
        options["rotary"] = share
    options |= _scaling(config, rope)
    if "mrope_section" not in rope:
        return make_encoding(make_spec("rope", options))
    options["sections"] = reals(rope, "mrope_section")
    # Qwen3-VL and later deal in turn whether or not their config says so
    if rope.get("mrope_interleaved") or kind.startswith(("qwen3_vl", "qwen3_omni", "qwen3_5")):
        options["arrangement"] = "interleaved"
    return make_encoding(make_spec("mrope", options))


def layers_without(config: Mapping[str, Any]) -> tuple[int, ...]:
    """The layers, from 0, of a rotary model in which nothing turns: they see no positions.

    A 0 in `no_rope_layers` (SmolLM3, Llama 4); full attention beside a sliding window (Cohere 2,
    EXAONE 4), but for the dense layers of a Cohere 2 with experts.
    """
    kind = str(config.get("model_type", ""))
    if kind not in FULL_IS_WITHOUT:
        return tuple(n for n, turns in enumerate(config.get("no_rope_layers") or ()) if not turns)
    if config.get("sliding_window") is None:
        return ()
    kinds, dense = config.get("layer_types") or (), set()
    if kind == "cohere2_moe" and config.get("prefix_dense_sliding_window_pattern") == 1:
        dense = {n for n, mlp in enumerate(config.get("mlp_layer_types") or ()) if mlp == "dense"}
    return tuple(n for n, at in enumerate(kinds) if at == "full_attention" and n not in dense)


def _head(
    config: Mapping[str, Any], rope: Mapping[str, Any], default: float
) -> tuple[int, int | float]:
    """The width of a head, and the share of its slots that turn."""
    if own := whole(config, ("qk_rope_head_dim",)):  # latent attention turns a part of its own
        return own, 1
    dim = whole(config, ("head_dim", "kv_channels"))
    if dim is None:
        hidden = whole(config, ("embed_dim", "hidden_size", "n_embd", "d_model"))
        heads = whole(config, HEAD_KEYS)
        if hidden is None or heads is None:
            raise PosgeomError("the config lacks head_dim, or hidden_size and num_attention_heads")
        dim = hidden // heads
    shares = ("partial_rotary_factor", "rotary_pct")
    share = real(rope, shares[:1])
    share = real(config, shares) if share is None else share
    if share is not None:
        return dim, share
    turned = whole(config, ("rotary_dim",))
    return dim, turned / dim if turned else default


def _pairing(kind: str, config: Mapping[str, Any]) -> str:
    if kind == "nanochat":
        return "halves-back"
    said = config.get("rope_interleave")
    if said is None:
        said = kind in INTERLEAVED_MODELS | INTERLEAVED_UNLESS_SAID
    return "interleaved" if said else "halves"


def _scaling(config: Mapping[str, Any], rope: Mapping[str, Any]) -> dict[str, Any]:
    """The scaling's options; only the keys that its type reads in `transformers`."""
    name = rope.get("rope_type") or rope.get("type") or "default"
    if name not in TYPES:
        raise PosgeomError(f"rope type {name!r} is not known; {', '.join(TYPES)} are")
    scaling = TYPES[name]
    if scaling == "none":
        return {}
    options: dict[str, Any] = {"scaling": scaling}
    factor, longest = real(rope, ("factor",)), whole(config, ("max_position_embeddings",))
    if scaling in ("dynamic",):
        original = longest
    else:
        # Phi-3 keeps the trained length beside the rope parameters, and that one is right
        trained = ("original_max_position_embeddings",)
        original = whole(config, trained) or whole(rope, trained) or longest
    if scaling in ("dynamic", "yarn", "longrope", "llama3"):
        options["original_length"] = original
    if scaling == "yarn" and "factor" in rope and factor is None and longest and original:
        factor = longest / original  # DeepSeek's habit
    options["factor"] = factor
    if scaling == "longrope" and factor is None:
        options["length"] = longest
    wanted = {
        "yarn": NUMBERS,
        "longrope": ("attention_factor", *LISTS),
        "llama3": ("low_freq_factor", "high_freq_factor"),
    }
    for key in wanted.get(scaling, ()):
        options[key] = reals(rope, key) if key in LISTS else real(rope, (key,))
    if scaling == "yarn" and rope.get("truncate") is False:
        options["truncate"] = False
    return {key: value for key, value in options.items() if value not in (None, ())}
