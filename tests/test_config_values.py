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


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_values_of_the_wrong_kind_are_told(config):
    with pytest.raises(PosgeomError):
        encoding_from_config(config)


def test_the_same_configs_are_read_where_their_values_are_right():
    assert encoding_from_config(LLAMA | {"rope_scaling": YARN}).attention_factor > 1
    with pytest.raises(PosgeomError, match="beta_fast"):
        make_encoding("rope:scaling=yarn,factor=4,original_length=2048,beta_fast=inf")
