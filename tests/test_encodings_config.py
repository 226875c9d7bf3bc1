"""From a config.json to an encoding, in both spellings, and what is refused."""

import numpy as np
import pytest

from posgeom import PosgeomError, make_encoding
from posgeom.encodings import encoding_from_config, encodings_from_config

LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "max_position_embeddings": 8_192,
}


class TestRotary:
    def test_the_plain_one(self):
        e = encoding_from_config(LLAMA | {"rope_theta": 500_000.0})
        assert e == make_encoding("rope:dim=64,base=500000,pairing=halves")
        assert encoding_from_config(LLAMA).base == 10_000

    def test_both_spellings_and_both_names_of_the_type(self):
        scaling = {"factor": 4.0, "original_max_position_embeddings": 2_048}
        made = {
            encoding_from_config(config).spec
            for config in (
                LLAMA | {"rope_theta": 1e6, "rope_scaling": {"type": "yarn"} | scaling},
                LLAMA | {"rope_theta": 1e6, "rope_scaling": {"rope_type": "yarn"} | scaling},
                LLAMA | {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6} | scaling},
                LLAMA | {"rope_parameters": {"type": "yarn", "rope_theta": 1e6} | scaling},
            )
        }
        assert made == {
            "rope:dim=64,base=1000000,pairing=halves,scaling=yarn,original_length=2048,factor=4"
        }

    def test_one_for_each_layer_type(self):
        config = LLAMA | {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            }
        }
        full, sliding = encodings_from_config(config).values()
        assert (full.base, full.scaling, full.factor) == (1e6, "linear", 8)
        assert (sliding.base, sliding.scaling) == (1e4, "none")
        assert encoding_from_config(config) == full
        assert encoding_from_config(config, "sliding_attention") == sliding
        with pytest.raises(PosgeomError, match="it has full_attention, sliding_attention"):
            encoding_from_config(config, "mamba")

    def test_older_spellings_of_two_bases(self):
        gemma = encodings_from_config(
            LLAMA
            | {
                "model_type": "gemma3_text",
                "rope_theta": 1e6,
                "rope_local_base_freq": 1e4,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            }
        )
        assert [e.base for e in gemma.values()] == [1e6, 1e4]
        assert [e.scaling for e in gemma.values()] == ["linear", "none"]
        modern = encodings_from_config(
            LLAMA
            | {"model_type": "modernbert", "global_rope_theta": 160_000, "local_rope_theta": 1e4}
        )
        assert [e.base for e in modern.values()] == [160_000, 1e4]

    @pytest.mark.parametrize(
        ("own", "share"),
        [
            ({"model_type": "phi", "partial_rotary_factor": 0.5}, 0.5),
            ({"model_type": "phi"}, 0.5),
            ({"model_type": "gpt_neox", "rotary_pct": 0.25, "rotary_emb_base": 10_000}, 0.25),
            ({"model_type": "gptj", "rotary_dim": 16}, 0.25),
            ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.75}}, 0.75),
        ],
    )
    def test_partial_rotary_under_all_its_names(self, own, share):
        e = encoding_from_config(LLAMA | own)
        assert (e.dim, e.rotary) == (64, share)

    @pytest.mark.parametrize(
        ("kind", "pairing"),
        [
            ("llama", "halves"),
            ("gptj", "interleaved"),
            ("cohere", "interleaved"),
            ("glm", "interleaved"),
            ("deepseek_v3", "interleaved"),
            ("qwen2", "halves"),
            ("gpt_neox", "halves"),
        ],
    )
    def test_the_pairing_is_the_models(self, kind, pairing):
        assert encoding_from_config(LLAMA | {"model_type": kind}).pairing == pairing

    def test_deepseek_says_its_own(self):
        config = LLAMA | {"model_type": "deepseek_v3", "qk_rope_head_dim": 32, "head_dim": 64}
        assert encoding_from_config(config | {"rope_interleave": False}).pairing == "halves"
        assert encoding_from_config(config).dim == 32

    def test_phi3_keeps_its_lists_and_its_first_length(self):
        config = {
            "model_type": "phi3",
            "hidden_size": 32,
            "num_attention_heads": 4,
            "max_position_embeddings": 131_072,
            "original_max_position_embeddings": 4_096,
            "rope_scaling": {
                "type": "su",
                "short_factor": [1.0, 1.1, 1.2, 1.3],
                "long_factor": [1.5, 2, 4.0, 32.5],
            },
        }
        e = encoding_from_config(config)
        assert (e.scaling, e.original_length, e.length) == ("longrope", 4_096, 131_072)
        assert e.attention_factor == pytest.approx(np.sqrt(1 + np.log(32) / np.log(4_096)))
        assert make_encoding(e.spec) == e

    def test_qwen2_vl_in_both_of_its_forms(self):
        text = LLAMA | {
            "model_type": "qwen2_vl",
            "rope_theta": 1e6,
            "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]},
        }
        e = encoding_from_config(text)
        assert (e.family, e.sections, e.arrangement) == ("mrope", (8, 12, 12), "sectioned")
        nested = {"model_type": "qwen2_vl", "text_config": text | {"model_type": "qwen2_vl_text"}}
        assert encoding_from_config(nested) == e
        three = text | {"model_type": "qwen3_vl_text"}
        three["rope_scaling"] = {"rope_type": "default", "mrope_section": [12, 10, 10]}
        assert encoding_from_config(three).arrangement == "interleaved"

    @pytest.mark.parametrize(
        ("rope", "words"),
        [
            ({"type": "linear"}, "without factor"),
            ({"rope_type": "dynamic"}, "without factor"),
            ({"rope_type": "yarn"}, "without factor"),
            ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}, "high_freq_factor"),
            ({"rope_type": "longrope", "factor": 8.0, "short_factor": [1.0] * 32}, "long_factor"),
            (
                {
                    "rope_type": "longrope",
                    "factor": 8.0,
                    "short_factor": [1.0],
                    "long_factor": [1.0],
                },
                "one a pair",
            ),
            ({"rope_type": "linear", "factor": 0.5}, "give 1 or more"),
            ({"type": "yarn", "factor": -2.0}, "give 1 or more"),
            ({"rope_type": "linear", "factor": "four"}, "give a number"),
            ({"rope_type": "spiral"}, "'spiral' is not known"),
            ([1], "give an object"),
        ],
    )
    def test_what_is_missing_or_wrong_is_told(self, rope, words):
        for key in ("rope_scaling", "rope_parameters"):
            with pytest.raises(PosgeomError, match=words):
                encoding_from_config(LLAMA | {key: rope})

    def test_a_head_of_no_width_is_told(self):
        with pytest.raises(PosgeomError, match="head_dim"):
            encoding_from_config({"model_type": "llama", "rope_theta": 1e4})


class TestOthers:
    def test_bloom(self):
        e = encoding_from_config({"model_type": "bloom", "n_head": 12})
        assert (e.family, e.heads, e.form, e.causal) == ("alibi", 12, "keys", True)

    def test_mpt(self):
        config = {"model_type": "mpt", "n_heads": 8, "attn_config": {"alibi": True}}
        assert encoding_from_config(config).slopes[0] == 0.5
        config["attn_config"] = {"alibi": False}
        with pytest.raises(PosgeomError, match="learned:DIR"):
            encoding_from_config(config)

    def test_falcon_is_alibi_or_rotary(self):
        falcon = {"model_type": "falcon", "num_attention_heads": 4, "hidden_size": 64}
        assert encoding_from_config(falcon | {"alibi": True}).family == "alibi"
        assert encoding_from_config(falcon | {"alibi": False}).family == "rope"

    def test_t5(self):
        config = {"model_type": "t5", "num_heads": 6, "relative_attention_num_buckets": 16}
        e = encoding_from_config(config)
        assert (e.heads, e.buckets, e.max_distance, e.causal) == (6, 16, 128, False)
        assert "no table" in e.note

    @pytest.mark.parametrize(
        ("config", "positions", "dim", "offset"),
        [
            ({"model_type": "gpt2", "n_positions": 1_024, "n_embd": 768}, 1_024, 768, 0),
            ({"model_type": "bert", "max_position_embeddings": 512, "hidden_size": 64}, 512, 64, 0),
            (
                {
                    "model_type": "roberta",
                    "max_position_embeddings": 514,
                    "hidden_size": 64,
                    "pad_token_id": 1,
                },
                512,
                64,
                2,
            ),
            (
                {"model_type": "opt", "max_position_embeddings": 2_048, "hidden_size": 64},
                2_048,
                64,
                2,
            ),
        ],
    )
    def test_learned_tables_are_known_by_their_size(self, config, positions, dim, offset):
        e = encoding_from_config(config)
        assert (e.family, e.max_positions, e.dim, e.offset) == ("learned", positions, dim, offset)
        assert e.n_parameters == positions * dim
        assert e.cost(dim, 4, positions).past_end == "error"
        with pytest.raises(PosgeomError, match="learned:DIR"):
            e.distances(range(3))

    def test_parameters_of_gpt2_small_and_of_a_long_one(self):
        gpt2 = {"model_type": "gpt2", "n_embd": 768}
        for length, parameters in ((1_024, 786_432), (32_768, 25_165_824)):
            e = encoding_from_config(gpt2 | {"n_positions": length})
            assert e.n_parameters == parameters

    def test_computed_sinusoids(self):
        e = encoding_from_config({"model_type": "pegasus", "d_model": 32})
        assert e == make_encoding("sinusoidal:dim=32,layout=halves")

    def test_rotary_esm_is_rotary_and_the_other_learned(self):
        esm = LLAMA | {"model_type": "esm", "max_position_embeddings": 1_026, "pad_token_id": 1}
        assert encoding_from_config(esm | {"position_embedding_type": "rotary"}).family == "rope"
        assert encoding_from_config(esm | {"position_embedding_type": "absolute"}).offset == 2

    @pytest.mark.parametrize(
        ("config", "words"),
        [
            ({}, "says nothing of positions"),
            ({"model_type": "mamba"}, "'mamba' says nothing of positions"),
            ({"model_type": "bert", "hidden_size": 8}, "names no length"),
            ({"model_type": "bert", "max_position_embeddings": 8}, "lacks d_model or hidden_size"),
            (
                {
                    "model_type": "bert",
                    "max_position_embeddings": 8,
                    "hidden_size": 8,
                    "position_embedding_type": "relative_key",
                },
                "relative_key",
            ),
            ({"model_type": "bloom"}, "lacks n_head"),
            ({"model_type": "bloom", "n_head": -1}, "give a whole number from 1 on"),
            ({"model_type": "roberta", "max_position_embeddings": 2, "hidden_size": 8}, "no rows"),
            ({"model_type": "ernie4_5_vl_moe_text", "rope_theta": 1e4, "head_dim": 8}, "order"),
        ],
    )
    def test_configs_that_do_not_say_are_refused(self, config, words):
        with pytest.raises(PosgeomError, match=words):
            encoding_from_config(config)
