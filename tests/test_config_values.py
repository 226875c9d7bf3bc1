"""Configs hold anything under any key: a value of the wrong kind is one line, never a traceback."""

import pytest

from posgeom import PosgeomError, make_encoding
from posgeom.encodings import encoding_from_config

LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2_048}
CONFIGS = {
    "mpt": {"model_type": "mpt", "d_model": 64, "n_heads": 4, "attn_config": "x"},
    "rope type": LLAMA | {"rope_scaling": {"rope_type": ["yarn"], "factor": 2.0}},
    "factors": LLAMA
    | {"rope_scaling": YARN | {"rope_type": "longrope", "short_factor": 1.5, "long_factor": 2}},
    "sections": LLAMA | {"rope_scaling": {"rope_type": "default", "mrope_section": 5}},
    "beta": LLAMA | {"rope_scaling": YARN | {"beta_fast": float("inf")}},
    "heads": LLAMA | {"num_attention_heads": "four"},
}

LONG = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
LLAMA3 = YARN | {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
NUMBERS = [  # a config that is right, what it has inside it, the keys that hold numbers there
    (LLAMA, (), ["hidden_size", "num_attention_heads", "head_dim", "rope_theta", "rotary_dim"]),
    (LLAMA, (), ["partial_rotary_factor", "rotary_pct", "rotary_emb_base", "qk_rope_head_dim"]),
    (LLAMA | {"rope_scaling": YARN}, (), ["max_position_embeddings"]),
    (LLAMA | {"rope_scaling": YARN}, (), ["original_max_position_embeddings"]),
    (LLAMA | {"rope_scaling": YARN}, ("rope_scaling",), [*YARN, "rope_theta", "beta_slow"]),
    (
        LLAMA | {"rope_scaling": YARN},
        ("rope_scaling",),
        ["beta_fast", "mscale", "mscale_all_dim", "attention_factor", "partial_rotary_factor"],
    ),
    (LLAMA | {"rope_parameters": LLAMA3}, ("rope_parameters",), [*LLAMA3]),
    (
        LLAMA
        | {"max_position_embeddings": 4_096, "original_max_position_embeddings": 1_024}
        | {"rope_scaling": LONG},
        ("rope_scaling",),
        ["short_factor", "long_factor", "factor", "attention_factor", "mrope_section"],
    ),
    ({"model_type": "bloom", "n_head": 4}, (), ["n_head"]),
    ({"model_type": "mpt", "n_heads": 4, "attn_config": {}}, ("attn_config",), ["alibi_bias_max"]),
    (
        {"model_type": "falcon", "alibi": True, "hidden_size": 64, "num_attention_heads": 4},
        (),
        ["hidden_size", "num_attention_heads"],
    ),
    (
        {"model_type": "t5", "num_heads": 4},
        (),
        ["num_heads", "relative_attention_num_buckets", "relative_attention_max_distance"],
    ),
    ({"model_type": "gpt2", "n_embd": 8, "n_positions": 16}, (), ["n_embd", "n_positions"]),
    (
        {"model_type": "albert", "hidden_size": 8, "max_position_embeddings": 16},
        (),
        ["embedding_size", "hidden_size", "max_position_embeddings"],
    ),
    (
        {"model_type": "roberta", "hidden_size": 8, "max_position_embeddings": 16},
        (),
        ["pad_token_id"],
    ),
    ({"model_type": "marian", "d_model": 8}, (), ["d_model"]),
]
CASES = [
    pytest.param(config, (*inside, key), id=f"{config['model_type']}-{'.'.join((*inside, key))}")
    for config, inside, keys in NUMBERS
    for key in keys
    if key != "rope_type"
]


@pytest.mark.parametrize("value", [True, False, "10000", [True] * 8, {}], ids=str)
@pytest.mark.parametrize(("config", "path"), CASES)
def test_a_number_is_one_and_no_truth_value_or_text(config, path, value):
    """Python takes true for 1: an attention of one head, a table of one row."""
    encoding_from_config(config)  # which is right without it
    *inside, key = path
    changed = {**config, **{k: {**config[k], key: value} for k in inside}}
    changed |= {} if inside else {key: value}
    with pytest.raises(PosgeomError) as told:
        encoding_from_config(changed)
    assert "\n" not in str(told.value)


MIXED = {
    "base": {"full_attention": {"rope_theta": 1e6}, "rope_theta": 1e4},
    "nothing": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": None},
}


@pytest.mark.parametrize("rope", MIXED.values(), ids=MIXED)
@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
def test_layer_types_and_plain_values_are_not_mixed(key, rope):
    plain = next(name for name in rope if name != "full_attention")
    with pytest.raises(PosgeomError, match=rf"\(full_attention\) and plain values \({plain}\)"):
        encoding_from_config(LLAMA | {key: rope})


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_values_of_the_wrong_kind_are_told(config):
    with pytest.raises(PosgeomError):
        encoding_from_config(config)


def test_the_same_configs_are_read_where_their_values_are_right():
    assert encoding_from_config(LLAMA | {"rope_scaling": YARN}).attention_factor > 1
    with pytest.raises(PosgeomError, match="beta_fast"):
        make_encoding("rope:scaling=yarn,factor=4,original_length=2048,beta_fast=inf")
