"""Each model type that is read here, against a small random model of it in `transformers`.

Whatever the tables of types say of a model, the model itself decides: what it turns and how, which
rows of its table its first positions get, which numbers it adds to its logits.
"""

import inspect
import json
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers import CONFIG_MAPPING, AutoModel  # noqa: E402

from posgeom.encodings import (  # noqa: E402
    Sinusoidal,
    T5Bias,
    encodings_from_config,
    make_encoding,
)
from posgeom.encodings.config import LEARNED_MODELS, SINUSOIDAL_MODELS, T5_MODELS  # noqa: E402
from posgeom.encodings.config_rope import (  # noqa: E402
    INTERLEAVED_MODELS,
    INTERLEAVED_UNLESS_SAID,
    ROTARY_MODELS,
    layers_without,
)
from posgeom.encodings.learned import AFTER_PADDING, AFTER_TWO  # noqa: E402
from posgeom.passport import model_encoding, open_model  # noqa: E402
from posgeom.passport.config import language_config  # noqa: E402
from posgeom.passport.models import ALIBI, HALVES, KNOWN  # noqa: E402

pytestmark = pytest.mark.slow

ROTARY = HALVES | set(ROTARY_MODELS) | INTERLEAVED_MODELS | INTERLEAVED_UNLESS_SAID | {"esm"}
LEARNED = LEARNED_MODELS | AFTER_PADDING | AFTER_TWO
D, HEADS, LAYERS, ROWS, N = 32, 4, 2, 64, 12

# One size under all of its names; a config is given those that it has.
SIZES = {
    D: "hidden_size n_embd d_model dim embed_dim emb_dim word_embed_proj_dim",
    HEADS: "num_attention_heads n_head n_heads num_heads encoder_attention_heads "
    "decoder_attention_heads encoder_num_attention_heads decoder_num_attention_heads "
    "num_experts num_local_experts n_routed_experts moe_num_experts",
    LAYERS: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers "
    "encoder_num_hidden_layers decoder_num_hidden_layers num_decoder_layers num_key_value_heads "
    "num_kv_heads encoder_num_key_value_heads decoder_num_key_value_heads "
    "num_experts_per_tok moe_k",
    40: "intermediate_size n_inner ffn_dim hidden_dim d_ff encoder_ffn_dim decoder_ffn_dim "
    "moe_intermediate_size shared_expert_intermediate_size ffn_hidden_size",
    99: "vocab_size",
    1: "pad_token_id bos_token_id eos_token_id cls_token_id sep_token_id",
    16: "embedding_size input_embedding_size kv_channels head_dim attention_head_dim",
    ROWS: "max_position_embeddings max_encoder_position_embeddings max_decoder_position_embeddings "
    "n_positions max_seq_len n_ctx",
}
LATENT = {
    "head_dim": 8,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "num_key_value_heads": HEADS,
    "n_group": 1,
    "topk_group": 1,
}
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_expand": 2}


def mrope(*sections, **more):
    return {"rope_parameters": {"rope_type": "default", "mrope_section": [*sections]} | more}


# What a type needs beside the sizes.
MORE = {
    **dict.fromkeys(("axk1", "deepseek_v2", "deepseek_v3", "glm4_moe_lite", "youtu"), LATENT),
    "mistral4": LATENT | {"head_dim": 16},  # of which half turns
    "bamba": MAMBA | {"attn_layer_indices": [0, 1]},
    "big_bird": {"attention_type": "original_full"},
    "bigbird_pegasus": {"attention_type": "original_full"},
    "codegen": {"rotary_dim": 4},
    "esm": {"position_embedding_type": "rotary"},
    "falcon_h1": MAMBA | {"mamba_d_ssm": 64},
    "gemma3_text": {"layer_types": ["full_attention", "sliding_attention"]},
    "glm4_moe": {"n_group": 1, "topk_group": 1},
    "glm4v_text": mrope(1, 1, 0, rope_theta=1e4, partial_rotary_factor=0.5),
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gptj": {"rotary_dim": 4},
    "granitemoehybrid": MAMBA
    | {"layer_types": ["attention"] * 2, "position_embedding_type": "rope"},
    "helium": {"head_dim": 8},
    "layoutlmv3": {"coordinate_size": 6, "shape_size": 4, "visual_embed": False}
    | {"has_relative_attention_bias": False, "has_spatial_attention_bias": False},
    "led": {"attention_window": N},
    "lfm2_moe": {"layer_types": ["full_attention"] * 2},
    "lilt": {"channel_shrink_ratio": 4, "hidden_size": 48},
    "moonshine": {
        "hidden_size": 80,
        "encoder_num_key_value_heads": HEADS,
        "decoder_num_key_value_heads": HEADS,
    },
    "nystromformer": {"segment_means_seq_len": N, "num_landmarks": N},
    "pix2struct": {
        "text_config": {"hidden_size": D, "num_heads": HEADS, "num_layers": LAYERS, "d_kv": 8}
        | {"d_ff": 40, "vocab_size": 99},
        "vision_config": {"hidden_size": D, "num_attention_heads": HEADS, "d_kv": 8, "d_ff": 40}
        | {"num_hidden_layers": 1, "patch_embed_hidden_size": D, "seq_len": 4},
    },
    "phi4_multimodal": {
        "vision_config": {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 1},
        "audio_config": {"hidden_size": 32, "intermediate_size": 40, "num_blocks": 1}
        | {"nemo_conv_channels": 32, "ext_pw_out_channel": 32}
        | {"depthwise_separable_out_channel": 32},
    },
    "qwen2_vl_text": mrope(1, 1, 2, rope_theta=1e6),
    "qwen2_5_vl_text": mrope(1, 1, 2, rope_theta=1e6),
    "qwen3_next": {"layer_types": ["full_attention", "linear_attention"]},
    "recurrent_gemma": {"block_types": ["attention", "recurrent"]},
    "xmod": {"default_language": "en_XX"},
}
# Types that AutoModel does not make, or not from text alone.
CLASSES = {
    "altclip_text_model": "AltCLIPTextModel",
    "clap_text_model": "ClapTextModel",
    "mllama_text_model": "MllamaTextModel",
    "pix2struct": "Pix2StructForConditionalGeneration",
    "pop2piano": "Pop2PianoForConditionalGeneration",
    "trocr": "TrOCRForCausalLM",
}
# Types that also see: their text part is made, and read out of the whole config.
TEXT_OF = {
    "glm4v": mrope(1, 1, 0, rope_theta=1e4, partial_rotary_factor=0.5),
    "llama4": {},
    "qwen2_vl": mrope(1, 1, 2, rope_theta=1e6),
    "qwen2_5_vl": mrope(1, 1, 2, rope_theta=1e6),
}


def small(kind, **more):
    """A config of the type: the sizes above under the names that it has."""
    if kind not in CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {kind}")
    make = CONFIG_MAPPING[kind]
    if kind in TEXT_OF:
        text = make().get_text_config()
        return make(text_config=sized(text, more | TEXT_OF[kind]))
    return make(**sized(make(), MORE.get(kind, {}) | more))


def sized(config, more):
    names = config.to_dict()
    sizes = {n: size for size, line in SIZES.items() for n in line.split() if n in names}
    return {n: v for n, v in sizes.items() if n not in more} | more


def made(config):
    """A model of the config, or of its text part, with random numbers everywhere."""
    torch.manual_seed(0)
    config = config.get_text_config() if config.model_type in TEXT_OF else config
    if config.model_type in CLASSES:
        model = getattr(transformers, CLASSES[config.model_type])(config)
    else:
        model = AutoModel.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def run(model, **more):
    """The model on N tokens."""
    config, ids = model.config, torch.arange(5, 5 + N)[None]
    first = torch.randn(1, 4_000) if config.model_type == "moonshine" else ids
    if config.model_type == "speech_to_text":
        first = torch.randn(1, 4 * N, config.input_feat_per_channel * config.input_channels)
    with torch.no_grad():
        if config.is_encoder_decoder:
            model(first, decoder_input_ids=ids)
        else:
            model(first, **more)


def as_saved(config):
    return json.loads(config.to_json_string())


# -- what turns -----------------------------------------------------------------------------------


@pytest.fixture
def turned(monkeypatch):
    """Notes what every rotation of a model gets and gives: [(before, after)], heads first."""

    def note(model):
        calls = []

        def noted(f, skipped=0):
            def g(*args, **keys):
                out = f(*args, **keys)
                taken = [out] if torch.is_tensor(out) else out
                given = [x for x in (*args, *keys.values()) if torch.is_tensor(x) and x.ndim == 4]
                for x, y in zip(given[skipped:], taken, strict=False):
                    if N in x.shape:  # an encoder of sounds has another length
                        calls.append((heads_first(x), heads_first(y)))
                return out

            return g

        for module in {sys.modules[type(m).__module__] for m in model.modules()}:
            for name, f in inspect.getmembers(module, inspect.isfunction):
                if name.startswith("apply_rotary"):
                    monkeypatch.setattr(module, name, noted(f))
        for part in model.modules():
            if "rotary_fn" in vars(part):
                monkeypatch.setattr(part, "rotary_fn", noted(part.rotary_fn))
            if f := getattr(part, "apply_rotary_position_embeddings", None):
                monkeypatch.setattr(part, f.__name__, noted(f, skipped=1))
        return calls

    return note


def heads_first(x):
    x = x[0].double().numpy()
    return x if x.shape[1] == N else x.swapaxes(0, 1)


def scores(x):
    return x @ x.swapaxes(-1, -2)


def disagreement(encoding, before, after):
    """Largest difference of the scores, as a share of the largest.

    Scores are the same for any order in which a model writes the slots that it has turned; a head
    that came without those that do not turn is filled up with zeros.
    """
    if before.shape[-1] > encoding.dim:
        return np.inf
    x = np.zeros((*before.shape[:-1], encoding.dim))
    x[..., : before.shape[-1]] = before
    ours, theirs = scores(encoding.rotate(x, np.arange(N))), scores(after)
    return abs(ours - theirs).max() / abs(theirs).max()


OTHERWISE = [pytest.param(k, {"rope_interleave": False}) for k in sorted(INTERLEAVED_UNLESS_SAID)]


@pytest.mark.parametrize(("kind", "more"), [*((k, {}) for k in sorted(ROTARY)), *OTHERWISE])
def test_a_rotary_model_turns_what_is_read_of_its_config(kind, more, turned):
    config = small(kind, **more)
    model = made(config)
    calls = turned(model)
    run(model)
    encodings = encodings_from_config(as_saved(config))
    off = [[disagreement(e, *call) for e in encodings.values()] for call in calls]
    assert off, "nothing was turned"
    assert max(map(min, off)) < 1e-6  # each rotation is one of ours,
    assert max(map(min, zip(*off, strict=True))) < 1e-6  # and each of ours is there


@pytest.mark.parametrize(
    "kind", ["smollm3", "llama4_text", "cohere2", "cohere2_moe", "exaone4", "llama"]
)
def test_layers_that_turn_nothing_are_told(kind, turned):
    config = small(kind, num_hidden_layers=5)
    model = made(config)
    calls = turned(model)
    run(model)
    without = layers_without(as_saved(config))
    assert len(calls) == 2 * (5 - len(without))
    assert (without == ()) == (kind == "llama")
    assert all(layer in (3, 4) for layer in without)


# -- what is added to the tokens ------------------------------------------------------------------


def saved(config, folder):
    """The model, and what is found in the folder that it was saved to."""
    model = made(config)
    model.save_pretrained(folder)
    return model, open_model(folder)


def outputs_of(model):
    """What each module gave for N tokens, by name: the first time that it ran."""
    seen, hooks = {}, []
    for name, module in model.named_modules():

        def note(module, given, out, name=name):
            seen.setdefault(name, out[0] if isinstance(out, tuple) else out)

        hooks.append(module.register_forward_hook(note))
    run(model)
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize("padding", [1, 3])
@pytest.mark.parametrize("kind", sorted(LEARNED))
def test_a_table_starts_at_the_row_of_the_first_position(kind, padding, tmp_path):
    names = CONFIG_MAPPING[kind]().to_dict()
    before = 2 if kind == "mpnet" else padding + 1 if kind in AFTER_PADDING else 0
    more = {"pad_token_id": padding}
    more |= {"max_position_embeddings": ROWS + before} if "max_position_embeddings" in names else {}
    more |= {"position_embedding_type": "absolute"} if kind == "esm" else {}
    config = small(kind, **more)
    model, opened = saved(config, tmp_path)
    (described,) = encodings_from_config(as_saved(config)).values()
    assert described.positions == ROWS
    outputs = outputs_of(model)
    tables = [found for found in opened.found if not isinstance(found.encoding, T5Bias)]
    assert len(tables) == (2 if config.is_encoder_decoder else 1)
    for found in tables:
        rows = outputs[found.tensor.removesuffix(".weight")].reshape(-1, described.dim)
        ours = found.encoding.table(np.arange(N))
        # I-BERT rounds its tables to 8 bits
        atol = np.abs(ours).max() / 127 if kind == "ibert" else 0
        np.testing.assert_allclose(ours, rows.double().numpy()[:N], rtol=0, atol=atol)
        assert found.max_length == ROWS
    if len(opened.found) == 1:
        own = make_encoding(f"learned:{tmp_path}")
        np.testing.assert_array_equal(own.table(np.arange(ROWS)), found.encoding.rows)


@pytest.mark.parametrize("kind", sorted(SINUSOIDAL_MODELS))
def test_computed_sinusoids_are_those_of_the_layout(kind, tmp_path):
    model, opened = saved(small(kind), tmp_path)
    (found,) = opened.found
    # position 0 is where the padding ends, which no distance sees
    start = 0 if SINUSOIDAL_MODELS[kind] == "paper" else 2
    outputs = outputs_of(model)
    rows = next(x for name, x in outputs.items() if name.endswith("embed_positions"))
    if kind == "fsmt":  # here the numbers are weights, and were made random above
        assert not isinstance(found.encoding, Sinusoidal)
        assert found.first_row == start
        return
    expected = found.encoding.table(np.arange(start, start + N))
    np.testing.assert_allclose(rows.reshape(-1, D)[:N].double().numpy(), expected, atol=1e-6)


# -- what is added to the logits ------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted((T5_MODELS | {"mpnet"}) - {"pix2struct_text_model"}))
def test_buckets_are_the_models(kind, tmp_path):
    model, opened = saved(small(kind), tmp_path)
    parts, n = dict(model.named_modules()), 300
    biases = [found for found in opened.found if isinstance(found.encoding, T5Bias)]
    assert len(biases) == {"mpnet": 1, "pix2struct": 1}.get(kind, 2)
    for found in biases:
        name = found.tensor.partition(" to ")[0]  # UMT5's layers have tables of their own
        part = parts[name.removesuffix(".relative_attention_bias.weight")]
        q = k = np.arange(n)
        with torch.no_grad():
            if kind == "mpnet":
                bias = part.compute_position_bias(torch.zeros(1, n, D))
            elif "BiasBase" in str(type(part).__mro__):  # UDOP's, one of a sum
                bias = part(attention_mask=torch.ones(1, n), bbox=None)
            elif "Local" in type(part).__name__:  # blocks of queries see three of keys
                bias, q, k = part.compute_bias(n)[0], np.arange(n, 2 * n), np.arange(3 * n)
            else:
                bias = part.compute_bias(n, n)
        for head, theirs in enumerate(bias[0].double().numpy()):
            ours = found.encoding.bias(head, q, k)
            seen = np.isfinite(ours)  # T5's causal mask comes later
            np.testing.assert_array_equal(ours[seen], theirs[seen])


@pytest.mark.parametrize("heads", [4, 6])
@pytest.mark.parametrize("kind", sorted(ALIBI))
def test_slopes_are_the_models(kind, heads, monkeypatch):
    more = {"alibi": True} if kind == "falcon" else {}
    more |= {"d_model" if kind == "mpt" else "hidden_size": 8 * heads}
    config = small(kind, **more, **{"n_heads" if kind == "mpt" else "num_attention_heads": heads})
    model, notes = made(config), []
    where = sys.modules[type(model).__module__] if kind == "falcon" else model
    name = f"build_{'mpt_' if kind == 'mpt' else ''}alibi_tensor"
    build = getattr(where, name)
    monkeypatch.setattr(where, name, lambda *a, **k: notes.append(build(*a, **k)) or notes[-1])
    run(model, attention_mask=torch.ones(1, N, dtype=torch.long))
    theirs = notes[0].double().numpy().reshape(heads, 1, -1)[..., -N:]
    theirs = theirs / np.sqrt(8 if kind == "falcon" else 1)  # which divides it with the scores
    (ours,) = encodings_from_config(as_saved(config)).values()
    assert ours.heads == heads
    for head in range(heads):
        bias = ours.bias(head, [N - 1], np.arange(N))
        # what softmax sees: one constant for all keys does not count
        np.testing.assert_allclose(
            bias - bias[:, :1], theirs[head] - theirs[head][:, :1], rtol=1e-6
        )


def test_each_layer_of_umt5_has_a_table_of_its_own(tmp_path):
    model, opened = saved(small("umt5"), tmp_path)
    encoder = opened.found[0].encoding
    assert encoder.heads == LAYERS * HEADS
    for layer, block in enumerate(model.encoder.block):
        with torch.no_grad():
            bias = block.layer[0].SelfAttention.compute_bias(40, 40)[0].double().numpy()
        for head in range(HEADS):
            ours = encoder.bias(layer * HEADS + head, range(40), range(40))
            np.testing.assert_array_equal(ours, bias[head])
    assert "heads 0 to 3 are those of the first, 4 to 7 of the second" in encoder.note
    some = model_encoding(f"{tmp_path}#decoder,slice=4:8")
    table = model.decoder.block[1].layer[0].SelfAttention.relative_attention_bias.weight
    np.testing.assert_array_equal(some.numbers[:, 4:], table.detach().double().numpy())
    assert some.chosen.tolist() == [4, 5, 6, 7]


# -- the tables of types themselves ---------------------------------------------------------------


def test_every_type_has_its_test():
    assert ROTARY | LEARNED | set(SINUSOIDAL_MODELS) | T5_MODELS | ALIBI == KNOWN
    # the text part of pix2struct is tested within it, as it is saved


@pytest.mark.parametrize("kind", sorted(ROTARY_MODELS))
def test_a_config_that_leaves_the_rope_out_means_the_defaults_of_its_type(kind):
    """Older configs say nothing where the model's defaults hold."""
    said = as_saved(small(kind, **({"position_embedding_type": "rotary"} if kind == "esm" else {})))
    inner = language_config(said)
    rope = inner.pop("rope_parameters", None) or {}
    if any(isinstance(value, dict) for value in rope.values()):
        return
    rope = {k: v for k, v in rope.items() if k == "mrope_section"}
    if rope:
        inner["rope_scaling"] = rope | {"type": "mrope"}
    for key in ("rope_theta", "partial_rotary_factor", "rotary_pct"):
        inner.pop(key, None)
    before, after = (encodings_from_config(c) for c in (said, inner))
    assert [e.spec for e in before.values()] == [e.spec for e in after.values()]
