"""Element by element against `transformers`, which most models in use were trained with."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers import LlamaConfig  # noqa: E402
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: E402

from posgeom.encodings import (  # noqa: E402
    alibi_slopes,
    encoding_from_config,
    encodings_from_config,
    make_encoding,
    rounded,
    t5_bucket,
)

# Version 5 has one rope_parameters, version 4 rope_theta and rope_scaling.
OLD = int(transformers.__version__.partition(".")[0]) < 5
new_only = pytest.mark.skipif(OLD, reason="these transformers do not have it")

RTOL = 2e-6  # of the float32 in which transformers computes
RANDOM = np.random.default_rng(0)
SHORT = [round(x, 4) for x in RANDOM.uniform(1, 1.5, 32)]
LONG = [round(x, 4) for x in RANDOM.uniform(1, 30, 32)]

SCALINGS = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 2_048},
    "longrope": {
        "short_factor": SHORT,
        "long_factor": LONG,
        "factor": 8.0,
        "original_max_position_embeddings": 2_048,
    },
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 2_048,
    },
    "proportional": {"partial_rotary_factor": 0.25},
}
YARNS = [
    {"beta_fast": 16.0, "beta_slow": 2.0},
    {"truncate": False},
    {"mscale": 1.0, "mscale_all_dim": 0.8},
    {"mscale": 0.707},
    {"attention_factor": 1.3},
    {"factor": 40.0, "original_max_position_embeddings": 4_096},
    {"factor": 1.0},
]


def llama(kind, *, base=10_000.0, head_dim=64, **keys):
    """A config of 4 heads whose rope is of this kind."""
    sizes = {"hidden_size": 4 * head_dim, "num_attention_heads": 4, "head_dim": head_dim}
    sizes["max_position_embeddings"] = 8_192
    if not OLD:
        return LlamaConfig(**sizes, rope_parameters={"rope_type": kind, "rope_theta": base} | keys)
    partial = {k: keys.pop(k) for k in ("partial_rotary_factor",) if k in keys}
    scaling = None if kind == "default" else {"rope_type": kind} | keys
    return LlamaConfig(**sizes, **partial, rope_theta=base, rope_scaling=scaling)


def theirs(config, length=None):
    """Inverse frequencies and attention factor as transformers makes them."""
    rope = (config.rope_scaling if OLD else config.rope_parameters) or {}
    kind = rope.get("rope_type", "default")
    if kind in ROPE_INIT_FUNCTIONS:
        make = ROPE_INIT_FUNCTIONS[kind]
    else:  # `default` left the table in version 5
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        make = LlamaRotaryEmbedding.compute_default_rope_parameters
    inv_freq, attention = make(config, device=torch.device("cpu"), seq_len=length)
    return inv_freq.double().numpy(), float(attention)


def agree(config, length=None):
    if OLD and (config.rope_scaling or {}).get("rope_type") in ("yarn", "longrope"):
        pytest.skip("these transformers take max_position_embeddings for the original length")
    ours = encoding_from_config(config.to_dict())
    inv_freq, attention = theirs(config, length)
    np.testing.assert_allclose(ours.frequencies_at(length), inv_freq, rtol=RTOL, atol=0)
    assert ours.attention_factor == pytest.approx(attention, rel=1e-12)
    # the spec that came out of the config makes the same again
    np.testing.assert_array_equal(make_encoding(ours.spec).inv_freq, ours.inv_freq)
    return ours


class TestRopeInitFunctions:
    @pytest.mark.parametrize("base", [10_000.0, 500_000.0, 1e6])
    @pytest.mark.parametrize("kind", SCALINGS)
    def test_each_scaling(self, kind, base):
        if kind not in ROPE_INIT_FUNCTIONS and kind != "default":
            pytest.skip(f"these transformers have no {kind}")
        agree(llama(kind, base=base, **SCALINGS[kind]))

    @pytest.mark.parametrize("head_dim", [32, 80, 128])
    @pytest.mark.parametrize("kind", ["default", "linear", "dynamic", "yarn", "llama3"])
    def test_other_widths_of_heads(self, kind, head_dim):
        agree(llama(kind, head_dim=head_dim, **SCALINGS[kind]), 20_000)

    @pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn", "llama3"])
    def test_partial_rotary(self, kind):
        ours = agree(llama(kind, partial_rotary_factor=0.5, **SCALINGS[kind]))
        assert ours.n_pairs == 16

    @pytest.mark.parametrize("keys", YARNS, ids=str)
    def test_every_parameter_of_yarn(self, keys):
        agree(llama("yarn", **(SCALINGS["yarn"] | keys)))

    @pytest.mark.parametrize("length", [None, 100, 8_192, 8_193, 20_000, 100_000])
    def test_dynamic_follows_the_length(self, length):
        agree(llama("dynamic", **SCALINGS["dynamic"]), length)

    @pytest.mark.parametrize("length", [None, 2_048, 2_049, 100_000])
    @pytest.mark.parametrize("keys", [{}, {"attention_factor": 1.19}], ids=["own", "given"])
    def test_longrope_switches_behind_the_original_length(self, length, keys):
        agree(llama("longrope", **(SCALINGS["longrope"] | keys)), length)

    @new_only
    @pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn", "longrope", "llama3"])
    def test_the_older_spelling_is_the_same_rope(self, kind):
        """rope_theta beside rope_scaling, with `type` or `rope_type`."""
        new = llama(kind, **SCALINGS[kind]).to_dict()
        rest = {k: v for k, v in new["rope_parameters"].items() if not k.startswith("rope_")}
        old = {k: v for k, v in new.items() if k != "rope_parameters"} | {"rope_theta": 10_000.0}
        want = encoding_from_config(new)
        for key in ("type", "rope_type"):
            assert encoding_from_config(old | {"rope_scaling": {key: kind, **rest}}) == want


class TestRotaryModels:
    @staticmethod
    def cos_sin(model, config, positions):
        module = model(config)
        x = torch.zeros(1, 1, 1)
        cos, sin = module(x, torch.as_tensor(positions)[None])
        return cos[0].double().numpy(), sin[0].double().numpy()

    @new_only
    @pytest.mark.parametrize("kind", ["default", "linear", "yarn", "longrope", "llama3"])
    def test_cosines_and_sines_of_a_llama(self, kind):
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        config, p = llama(kind, **SCALINGS[kind]), np.arange(300)
        ours = encoding_from_config(config.to_dict()).full_cos_sin(p)
        for a, b in zip(ours, self.cos_sin(LlamaRotaryEmbedding, config, p), strict=True):
            np.testing.assert_allclose(a, b, atol=3e-5)  # float32 angles up to 300

    @new_only
    def test_dynamic_has_no_memory(self):
        """Short, then long, then short: theirs resets at its own length, ours keeps nothing."""
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        config = llama("dynamic", factor=2.0)
        module, ours = LlamaRotaryEmbedding(config), encoding_from_config(config.to_dict())
        for n in (64, 20_000, 64):
            p = np.append(np.arange(50), n - 1)
            cos = module(torch.zeros(1, 1, 1), torch.as_tensor(p)[None])[0][0].double().numpy()
            np.testing.assert_allclose(ours.full_cos_sin(p)[0][:50], cos[:50], atol=3e-5)

    def test_rotated_queries_of_both_pairings(self):
        from transformers.models.cohere import modeling_cohere as cohere
        from transformers.models.llama import modeling_llama as llama_code

        q = np.random.default_rng(1).standard_normal((2, 4, 9, 64))  # batch, heads, positions, d
        for code, pairing in ((llama_code, "halves"), (cohere, "interleaved")):
            e = make_encoding(f"rope:dim=64,pairing={pairing}")
            cos, sin = (torch.as_tensor(x)[None] for x in e.full_cos_sin(range(9)))
            turned, _ = code.apply_rotary_pos_emb(torch.as_tensor(q), torch.as_tensor(q), cos, sin)
            np.testing.assert_allclose(e.rotate(q, range(9)), turned.numpy(), atol=1e-6)

    def test_gptj_is_partial_and_interleaved(self):
        from transformers import GPTJConfig
        from transformers.models.gptj import modeling_gptj as code

        config = GPTJConfig(n_embd=64, n_head=2, rotary_dim=16)
        e = encoding_from_config(config.to_dict())
        assert (e.dim, e.rotated, e.pairing) == (32, 16, "interleaved")
        table = code.create_sinusoidal_positions(20, 16).double().numpy()
        cos, sin = e.cos_sin(range(20))
        np.testing.assert_allclose(np.hstack([sin, cos]), table, atol=2e-6)

    @new_only
    def test_gpt_neox_turns_a_quarter_in_halves(self):
        from transformers import GPTNeoXConfig
        from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding

        config = GPTNeoXConfig(hidden_size=128, num_attention_heads=2)
        e = encoding_from_config(config.to_dict())
        assert (e.dim, e.rotated, e.pairing) == (64, 16, "halves")
        cos, _ = self.cos_sin(GPTNeoXRotaryEmbedding, config, range(30))
        np.testing.assert_allclose(e.full_cos_sin(range(30))[0][:, :16], cos, atol=3e-6)
        old = {"model_type": "gpt_neox", "hidden_size": 128, "num_attention_heads": 2}
        assert encoding_from_config(old | {"rotary_pct": 0.25, "rotary_emb_base": 10_000}) == e

    @new_only
    @pytest.mark.parametrize("name", ["qwen2_vl", "qwen3_vl"])
    def test_mrope_of_qwen(self, name):
        from importlib import import_module

        code = import_module(f"transformers.models.{name}.modeling_{name}")
        configs = import_module(f"transformers.models.{name}.configuration_{name}")
        title = {"qwen2_vl": "Qwen2VL", "qwen3_vl": "Qwen3VL"}[name]
        sections = {"qwen2_vl": [4, 6, 6], "qwen3_vl": [6, 5, 5]}[name]
        module = next(
            cls
            for label, cls in vars(code).items()
            if label in (f"{title}RotaryEmbedding", f"{title}TextRotaryEmbedding")
        )
        config = getattr(configs, f"{title}TextConfig")(
            hidden_size=64,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=32,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 1e6,
                "mrope_section": sections,
            },
        )
        described = config.to_dict() | {"head_dim": 32}
        e = encoding_from_config(described)
        assert e.family == "mrope"
        grid = np.random.default_rng(2).integers(0, 40, (25, 3))
        cos, sin = module(config)(torch.zeros(1, 1, 1), torch.as_tensor(grid.T)[:, None, :])
        mine = e.full_cos_sin(grid)
        if cos.shape[0] == 3:  # older versions join the sections where they rotate
            pytest.skip("these transformers join the sections in the attention")
        np.testing.assert_allclose(mine[0], cos[0].double().numpy(), atol=5e-6)
        np.testing.assert_allclose(mine[1], sin[0].double().numpy(), atol=5e-6)

    @new_only
    @pytest.mark.parametrize("name", ["qwen2_vl", "pixtral"])
    def test_image_encoders_are_axial(self, name):
        """Qwen2-VL gives each axis a head's frequencies, Pixtral deals one head's out in turn."""
        from importlib import import_module

        code = import_module(f"transformers.models.{name}.modeling_{name}")
        configs = import_module(f"transformers.models.{name}.configuration_{name}")
        title = {"qwen2_vl": "Qwen2VL", "pixtral": "Pixtral"}[name]
        module = getattr(code, f"{title}VisionRotaryEmbedding", None)
        if module is None:
            pytest.skip("these transformers build the image encoder's angles elsewhere")
        sizes = {"qwen2_vl": {"embed_dim": 64, "num_heads": 2}, "pixtral": {"hidden_size": 64}}
        config = getattr(configs, f"{title}VisionConfig")(**sizes[name] | {"num_heads": 2})
        config.num_attention_heads, config.head_dim = 2, 32
        grid = np.column_stack(np.divmod(np.arange(15), 5))
        theirs = module(config)(torch.zeros(1, 1, 1), torch.as_tensor(grid))
        e = encoding_from_config(config.to_dict())
        assert (e.family, e.dim, e.n_axes) == ("rope-2d", 32, 2)
        assert e.spread == {"qwen2_vl": "each", "pixtral": "dealt"}[name]
        for ours, their in zip(e.full_cos_sin(grid), theirs, strict=True):
            np.testing.assert_allclose(ours, their.double().numpy(), atol=1e-6)

    @new_only
    def test_layer_types_of_gemma3_and_modernbert(self):
        from transformers import Gemma3TextConfig, ModernBertConfig

        for config in (
            Gemma3TextConfig(hidden_size=64, num_attention_heads=2, head_dim=32),
            ModernBertConfig(hidden_size=64, num_attention_heads=2),
        ):
            described = config.to_dict()
            made = encodings_from_config(described)
            assert set(made) == {"full_attention", "sliding_attention"}
            for layer, e in made.items():
                rope = (described.get("rope_parameters") or {}).get(layer)
                if rope is not None:
                    assert e.base == rope["rope_theta"]
            assert made["full_attention"].base > made["sliding_attention"].base == 10_000
            assert encoding_from_config(described) == made["full_attention"]


class TestAlibiModels:
    @pytest.mark.parametrize("heads", [1, 3, 6, 8, 12, 40, 71])
    def test_bloom(self, heads):
        from transformers.models.bloom.modeling_bloom import build_alibi_tensor

        mask = torch.ones(1, 50, dtype=torch.int64)
        bias = build_alibi_tensor(mask, heads, torch.float32)[:, 0].double().numpy()
        e = make_encoding(f"alibi:heads={heads},form=keys")
        for h in range(heads):
            np.testing.assert_allclose(e.bias(h, range(50), range(50))[7], bias[h], rtol=1e-6)
        np.testing.assert_allclose(bias[:, 1], alibi_slopes(heads), rtol=1e-6)

    def test_both_forms_have_one_causal_softmax(self):
        def softmax(x):
            e = np.exp(x - x.max(axis=1, keepdims=True))
            return e / e.sum(axis=1, keepdims=True)

        keys, distance = (
            make_encoding(f"alibi:heads=4,causal=true,form={form}").bias(1, range(30), range(30))
            for form in ("keys", "distance")
        )
        np.testing.assert_allclose(softmax(keys), softmax(distance), atol=1e-12)

    @pytest.mark.parametrize("heads", [1, 3, 6, 8, 12, 40, 71])
    @pytest.mark.parametrize("bias_max", [8, 16])
    def test_mpt(self, heads, bias_max):
        from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

        bias = build_mpt_alibi_tensor(heads, 20, bias_max)[:, 0].double().numpy()
        e = encoding_from_config(
            {"model_type": "mpt", "n_heads": heads, "attn_config": {"alibi_bias_max": bias_max}}
        )
        for h in range(heads):
            np.testing.assert_allclose(e.bias(h, [19], range(20))[0], bias[h], rtol=1e-6)

    def test_falcon_rounds_and_scales(self):
        from transformers.models.falcon.modeling_falcon import build_alibi_tensor

        mask = torch.ones(1, 12, dtype=torch.int64)
        bias = build_alibi_tensor(mask, 71, torch.float32)[:, 0].double().numpy()
        config = {
            "model_type": "falcon",
            "alibi": True,
            "num_attention_heads": 71,
            "hidden_size": 71 * 64,
        }
        np.testing.assert_allclose(
            encoding_from_config(config).slopes * 8, bias[:, 1], rtol=1e-6
        )  # √64


class TestT5:
    @pytest.mark.parametrize("bidirectional", [True, False])
    @pytest.mark.parametrize("buckets", [8, 16, 32, 64, 320])
    @pytest.mark.parametrize("max_distance", [20, 128, 800, 1_000])
    def test_buckets(self, bidirectional, buckets, max_distance):
        from transformers.models.t5.modeling_t5 import T5Attention

        if max_distance <= buckets // (4 if bidirectional else 2):
            pytest.skip("no offsets are left for the far buckets")
        r = torch.arange(-3_000, 3_001)
        bucket = T5Attention._relative_position_bucket(r, bidirectional, buckets, max_distance)
        ours = t5_bucket(r.numpy(), bidirectional, buckets, max_distance)
        np.testing.assert_array_equal(ours, bucket.numpy())

    @pytest.mark.parametrize("causal", [False, True])
    def test_the_bias_of_a_layer(self, causal, tmp_path):
        from transformers import T5Config
        from transformers.models.t5.modeling_t5 import T5Attention

        config = T5Config(d_model=16, d_kv=4, num_heads=4, is_decoder=causal)
        layer = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
        table = layer.relative_attention_bias.weight.detach()
        torch.nn.init.normal_(layer.relative_attention_bias.weight)
        np.save(tmp_path / "t.npy", table.numpy())
        spec = f"t5:table={tmp_path / 't.npy'},causal={str(causal).lower()}"
        keys = torch.arange(300)[None] - torch.arange(300)[:, None]
        bucket = T5Attention._relative_position_bucket(keys, not causal, 32, 128)
        theirs = table[bucket].double().numpy()
        e = make_encoding(spec)
        assert e.heads == 4
        for h in range(4):
            ours = e.bias(h, range(300), range(300))
            seen = np.isfinite(ours)
            assert seen.all() != causal
            np.testing.assert_array_equal(ours[seen], theirs[..., h][seen])


class TestSinusoids:
    def test_marian_and_pegasus_are_the_paper_in_halves(self):
        from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

        module = MarianSinusoidalPositionalEmbedding(40, 32)
        if hasattr(module, "create_weight"):
            table = module.create_weight()
        else:
            module._init_weight(module.weight)
            table = module.weight
        e = encoding_from_config({"model_type": "marian", "d_model": 32})
        np.testing.assert_allclose(e.table(range(40)), table.detach().numpy(), atol=1e-6)

    def test_m2m_100_spaces_them_as_tensor2tensor(self):
        from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

        table = M2M100SinusoidalPositionalEmbedding.get_embedding(40, 32).numpy()
        e = encoding_from_config({"model_type": "m2m_100", "d_model": 32})
        np.testing.assert_allclose(e.table(range(40)), table, atol=2e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_numbers_are_rounded_as_torch_rounds_them(dtype):
    x = np.concatenate(
        [
            np.arange(70_000.0),
            np.random.default_rng(0).standard_normal(10_000)
            * 10.0 ** np.arange(-20, 20).repeat(250),
            [0.0, -0.0, 1e-40, -3.4e38],
        ]
    )
    theirs = torch.as_tensor(x).float().to(getattr(torch, dtype)).float().numpy()
    np.testing.assert_array_equal(rounded(x, dtype), theirs)
