"""Passports of models: against the models' own buffers, and of folders written by hand."""

import json
import struct
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from posgeom import PosgeomError, make_encoding
from posgeom.encodings import alibi_slopes
from posgeom.passport import inspect_model, model_encoding, open_model
from posgeom.passport.config import language_config
from posgeom.passport.models import KNOWN
from posgeom.passport.projections import layer_projections, word_rows
from posgeom.passport.weights import Weights

RNG = np.random.default_rng(0)
HEADS, D, LAYERS, VOCAB, N = 4, 32, 2, 99, 64


# -- models made with transformers ----------------------------------------------------------------

SIZE = {
    "hidden_size": D,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 37,
    "vocab_size": VOCAB,
}
DECODER = SIZE | {"num_key_value_heads": 2}
SEQ2SEQ = {
    "d_model": D,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37,
    "vocab_size": VOCAB,
    "max_position_embeddings": N,
}
T5 = {"d_model": D, "d_kv": 8, "d_ff": 37, "num_layers": LAYERS, "num_heads": HEADS}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
ROPE = {"rope_theta": 10_000.0}
FACTORS = {"short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.0, 2.0, 3.0, 4.0]}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": N,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0}

MODELS = {
    "gpt2": ("GPT2", {"n_embd": D, "n_layer": LAYERS, "n_head": HEADS, "n_positions": N}),
    "bert": ("Bert", SIZE | {"max_position_embeddings": N}),
    "roberta": ("Roberta", SIZE | {"max_position_embeddings": N + 2}),
    "mpnet": ("MPNet", SIZE | {"max_position_embeddings": N + 2}),
    "distilbert": (
        "DistilBert",
        {"dim": D, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": 37}
        | {"max_position_embeddings": N},
    ),
    "electra": ("Electra", SIZE | {"embedding_size": D, "max_position_embeddings": N}),
    "opt": (
        "OPT",
        {k: v for k, v in SIZE.items() if k != "intermediate_size"}
        | {"ffn_dim": 37, "word_embed_proj_dim": D, "max_position_embeddings": N},
    ),
    "bart": ("Bart", SEQ2SEQ),
    "mbart": ("MBart", SEQ2SEQ | {"scale_embedding": True}),
    "marian": ("Marian", SEQ2SEQ | TOKENS | {"decoder_start_token_id": 0}),
    "t5": ("T5", T5),
    "bloom": ("Bloom", {"hidden_size": 36, "n_layer": LAYERS, "n_head": 6}),
    "mpt": ("Mpt", {"d_model": 36, "n_layers": LAYERS, "n_heads": 6, "max_seq_len": N}),
    "llama": ("Llama", DECODER | {"rope_parameters": LLAMA3, "max_position_embeddings": 512}),
    "mistral": ("Mistral", DECODER | {"rope_parameters": ROPE | {"rope_type": "default"}}),
    "qwen2": (
        "Qwen2",
        DECODER
        | {
            "rope_parameters": YARN | {"original_max_position_embeddings": N},
            "max_position_embeddings": 4 * N,
        },
    ),
    "phi3": (
        "Phi3",
        DECODER
        | {
            "pad_token_id": 0,
            "max_position_embeddings": 4 * N,
            "original_max_position_embeddings": N,
            "rope_parameters": ROPE | FACTORS | {"rope_type": "longrope"},
        },
    ),
    "gpt_neox": ("GPTNeoX", SIZE | {"rotary_pct": 0.5, "max_position_embeddings": N}),
    "gptj": (
        "GPTJ",
        {"n_embd": D, "n_layer": LAYERS, "n_head": HEADS, "rotary_dim": 4, "n_positions": N},
    ),
    "modernbert": (
        "ModernBert",
        SIZE | TOKENS | {"cls_token_id": 1, "sep_token_id": 2},
    ),
    "gemma3_text": (
        "Gemma3Text",
        DECODER | {"head_dim": 8, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "qwen2_vl": (
        "Qwen2VL",
        {
            "text_config": DECODER
            | {"rope_parameters": {"rope_theta": 1e6, "mrope_section": [1, 1, 2]}},
            "vision_config": {"depth": 1, "embed_dim": 16, "num_heads": 2, "hidden_size": D},
        },
    ),
    "cohere": ("Cohere", DECODER | {"bos_token_id": 1, "eos_token_id": 2}),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Makes a small random model of a name in MODELS: (folder, model); each once."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    home, made = tmp_path_factory.mktemp("models"), {}

    def make(name):
        if name not in made:
            start, settings = MODELS[name]
            if not hasattr(transformers, f"{start}Config"):
                pytest.skip(f"this transformers has no {start}")
            torch.manual_seed(0)
            settings = ({} if "text_config" in settings else {"vocab_size": VOCAB}) | settings
            config = getattr(transformers, f"{start}Config")(**settings)
            model = getattr(transformers, f"{start}Model")(config).eval()
            with torch.no_grad():
                for parameter in model.parameters():  # norms and biases too
                    if parameter.requires_grad:
                        parameter.add_(0.1 * torch.randn_like(parameter))
            model.save_pretrained(home / name)
            made[name] = home / name, model
        return made[name]

    return make


def buffer(model, ending):
    return next(b for n, b in model.named_buffers() if n.endswith(ending)).double().numpy()


@pytest.mark.parametrize(
    ("name", "table", "first"),
    [
        ("gpt2", "wpe", 0),
        ("bert", "embeddings.position_embeddings", 0),
        ("roberta", "embeddings.position_embeddings", 2),
        ("mpnet", "embeddings.position_embeddings", 2),
        ("distilbert", "embeddings.position_embeddings", 0),
        ("electra", "embeddings.position_embeddings", 0),
        ("opt", "decoder.embed_positions", 2),
        ("bart", "encoder.embed_positions", 2),
        ("mbart", "encoder.embed_positions", 2),
    ],
)
def test_tables_start_where_the_model_starts(saved, name, table, first):
    folder, model = saved(name)
    weight = model.get_submodule(table).weight.detach().double().numpy()
    rule = inspect_model(folder).rules[0]
    about = rule.as_dict()
    np.testing.assert_array_equal(rule.encoding.table(range(N)), weight[first : first + N])
    assert (about["family"], about["first_row"], about["max_length"]) == ("learned", first, N)
    assert (about["dtype"], about["past_end"]) == ("float32", "error")
    assert about["parameters"] == weight.size
    assert about["tensor"] == f"{table}.weight"


@pytest.mark.parametrize("name", ["roberta", "mpnet", "opt", "bart", "gpt2"])
def test_the_model_itself_reads_the_first_position_from_that_row(saved, name):
    """Changing the row of position 0 changes the output at position 0; the rows before, nothing."""
    torch = pytest.importorskip("torch")
    folder, model = saved(name)
    rule = inspect_model(folder, seed=1).rules[0]
    table = model.get_submodule(rule.found.tensor.removesuffix(".weight"))
    ids = torch.tensor([[5, 6, 7]])

    def output():
        with torch.no_grad():
            return (model.encoder if name == "bart" else model)(input_ids=ids).last_hidden_state

    def changed(row):
        before, kept = output(), table.weight.data[row].clone()
        table.weight.data[row] += 1
        after, table.weight.data[row] = output(), kept
        return not torch.equal(before, after)

    first = rule.found.first_row
    assert [changed(row) for row in range(first + 1)] == [False] * first + [True]


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2", "phi3", "gpt_neox", "cohere"])
def test_frequencies_are_the_models_own(saved, name):
    folder, model = saved(name)
    rule = inspect_model(folder).rules[0]
    θ = buffer(model, "rotary_emb.inv_freq")
    np.testing.assert_allclose(rule.encoding.inv_freq, θ, rtol=2e-6)
    np.testing.assert_allclose(rule.wavelengths, 2 * np.pi / θ, rtol=2e-6)
    module = model.get_submodule("rotary_emb")
    assert rule.encoding.attention_factor == pytest.approx(module.attention_scaling)
    assert rule.beyond == (2 * np.pi / θ > rule.found.trained_length).sum()
    expected = "interleaved" if name == "cohere" else "halves"
    assert rule.as_dict()["pairing"] == expected


@pytest.mark.parametrize("name", ["llama", "qwen2", "phi3", "gpt_neox"])
def test_cosines_are_the_models_own(saved, name):
    torch = pytest.importorskip("torch")
    folder, model = saved(name)
    e = model_encoding(str(folder))
    module = model.get_submodule("rotary_emb")
    for length in (N, N + 1):  # phi3 turns to its long list
        cos, sin = module(torch.zeros(1, length, D), torch.arange(length)[None])
        ours = e.cos_sin(np.arange(length))
        np.testing.assert_allclose(ours[0], cos[0, :, : e.n_pairs].double(), atol=2e-5)
        np.testing.assert_allclose(ours[1], sin[0, :, : e.n_pairs].double(), atol=2e-5)


def test_scaling_is_told_with_all_its_parameters(saved):
    told = {n: inspect_model(saved(n)[0]).rules[0].as_dict() for n in ("llama", "qwen2", "phi3")}
    assert told["llama"]["scaling"] == {
        "type": "llama3",
        "factor": 8,
        "original_length": N,
        "low_freq_factor": 1,
        "high_freq_factor": 4,
    }
    assert told["llama"]["base"] == 500_000
    assert told["llama"]["trained_length"] == N
    assert told["llama"]["max_length"] == 512
    assert told["qwen2"]["scaling"] == {
        "type": "yarn",
        "factor": 4,
        "original_length": N,
        "beta_fast": 32,
        "beta_slow": 1,
        "truncate": True,
    }
    assert told["qwen2"]["attention_factor"] == pytest.approx(0.1 * np.log(4) + 1)
    for name, factors in FACTORS.items():
        assert told["phi3"]["scaling"][name] == factors
    assert told["phi3"]["attention_factor"] == pytest.approx(np.sqrt(1 + np.log(4) / np.log(N)))


def test_partial_rotary_turns_its_share_alone(saved):
    about = inspect_model(saved("gpt_neox")[0]).rules[0].as_dict()
    assert (about["dim"], about["rotary_dim"], about["pairing"]) == (8, 4, "halves")


def test_gptj_pairs_neighbours(saved):
    folder, model = saved("gptj")
    rule = inspect_model(folder).rules[0]
    about = rule.as_dict()
    assert (about["dim"], about["rotary_dim"], about["pairing"]) == (8, 4, "interleaved")
    cached = buffer(model, "embed_positions")  # sines, then cosines, one a pair
    cos, sin = rule.encoding.cos_sin(range(N))
    np.testing.assert_allclose(np.hstack([sin, cos]), cached, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "bases"), [("modernbert", (160_000, 10_000)), ("gemma3_text", (1_000_000, 10_000))]
)
def test_each_layer_type_has_its_own_rule(saved, name, bases):
    folder, model = saved(name)
    rules = {r.found.layers: r for r in inspect_model(folder).rules}
    assert list(rules) == ["full_attention", "sliding_attention"]
    for (layers, rule), base in zip(rules.items(), bases, strict=True):
        θ = buffer(model, f"rotary_emb.{layers}_inv_freq")
        np.testing.assert_allclose(rule.encoding.inv_freq, θ, rtol=2e-6)
        assert rule.encoding.base == base
        one = make_encoding(f"model:{folder}#{layers}")
        np.testing.assert_array_equal(one.inv_freq, rule.encoding.inv_freq)
    with pytest.raises(PosgeomError, match="no layers 'no'; it has full_attention, sliding"):
        make_encoding(f"model:{folder}#no")


def test_mrope_tells_its_sections(saved):
    folder, model = saved("qwen2_vl")
    passport = inspect_model(folder)
    about = passport.rules[0].as_dict()
    assert (about["family"], about["sections"], about["pairing"]) == ("mrope", [1, 1, 2], "halves")
    θ = buffer(model, "language_model.rotary_emb.inv_freq")
    np.testing.assert_allclose(passport.encoding.inv_freq, θ, rtol=2e-6)
    assert passport.encoding.n_axes == 3


@pytest.mark.parametrize("name", ["bloom", "mpt"])
def test_slopes_of_six_heads(saved, name):
    folder, _ = saved(name)
    rule = inspect_model(folder).rules[0]
    about = rule.as_dict()
    np.testing.assert_allclose(about["slopes"], alibi_slopes(6))
    assert about["family"] == "alibi"
    assert about["parameters"] == 0


def test_bias_tables_of_encoder_and_decoder(saved):
    folder, model = saved("t5")
    rules = inspect_model(folder).rules
    assert [r.found.layers for r in rules] == ["encoder", "decoder"]
    for rule, side in zip(rules, (model.encoder, model.decoder), strict=True):
        attention = side.block[0].layer[0].SelfAttention
        bias = attention.compute_bias(200, 200)[0].detach().double().numpy()
        for head in range(HEADS):
            ours = rule.encoding.bias(head, np.arange(200), np.arange(200))
            seen = np.isfinite(ours)  # a causal bias is −inf ahead
            np.testing.assert_array_equal(ours[seen], bias[head][seen])
        assert rule.as_dict()["parameters"] == 32 * HEADS
        assert rule.encoding.causal == (side is model.decoder)


def test_mpnet_has_a_table_and_buckets(saved):
    passport = inspect_model(saved("mpnet")[0])
    assert [r.encoding.family for r in passport.rules] == ["learned", "t5"]


def test_marian_has_sinusoids_that_are_stored(saved):
    folder, model = saved("marian")
    rule = inspect_model(folder).rules[0]
    assert rule.encoding.family == "sinusoidal"
    assert rule.found.tensor == "encoder.embed_positions.weight"
    weight = model.encoder.embed_positions.weight.double().numpy()
    np.testing.assert_allclose(rule.encoding.table(range(N)), weight, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_a_spec_that_gives_distances(saved, name):
    folder, _ = saved(name)
    e = make_encoding(f"model:{folder}")
    distances = e.distances(range(12))
    assert e.name == f"model:{folder}"
    np.testing.assert_array_equal(distances, distances.T)
    assert np.isfinite(distances).all()
    assert (np.diag(distances) == 0).all()
    assert (distances + np.eye(12) > 0).all()


def test_encoder_and_decoder_have_tables_of_their_own(saved):
    folder, model = saved("bart")
    found = open_model(folder).found
    assert [f.layers for f in found] == ["encoder", "decoder"]
    for f, side in zip(found, (model.encoder, model.decoder), strict=True):
        weight = side.embed_positions.weight.detach().double().numpy()
        np.testing.assert_array_equal(f.encoding.table(range(N)), weight[2:])
    assert make_encoding(f"model:{folder}#decoder").max_positions == N


def test_wavelengths_of_both_lists_are_told(saved):
    about = inspect_model(saved("phi3")[0]).rules[0].as_dict()
    base = 2 * np.pi * 10_000 ** (np.arange(4) / 4)
    np.testing.assert_allclose(about["wavelengths"], base * FACTORS["short_factor"])
    np.testing.assert_allclose(about["wavelengths_at_max_length"], base * FACTORS["long_factor"])


PROJECTIONS = {
    "gpt2": ("h.{l}.attn.c_attn", "h.{l}.attn.c_attn"),
    "mpnet": ("encoder.layer.{l}.attention.attn.q", "encoder.layer.{l}.attention.attn.k"),
    "distilbert": (
        "transformer.layer.{l}.attention.q_lin",
        "transformer.layer.{l}.attention.k_lin",
    ),
    "opt": ("decoder.layers.{l}.self_attn.q_proj", "decoder.layers.{l}.self_attn.k_proj"),
    **dict.fromkeys(
        ("bart", "mbart"),
        ("encoder.layers.{l}.self_attn.q_proj", "encoder.layers.{l}.self_attn.k_proj"),
    ),
    **dict.fromkeys(
        ("bert", "roberta", "electra"),
        ("encoder.layer.{l}.attention.self.query", "encoder.layer.{l}.attention.self.key"),
    ),
}


@pytest.mark.parametrize("name", PROJECTIONS)
@pytest.mark.parametrize("layer", [0, 1])
def test_projections_give_the_models_own_queries_and_keys(saved, name, layer):
    """Layer 0: x + p through its norms is what the model projects; all layers: q and k of that."""
    torch = pytest.importorskip("torch")
    folder, model = saved(name)
    opened = open_model(folder)
    projections, said = layer_projections(opened.config, opened.weights, layer, D)
    assert f"layer {layer}" in said
    assert projections.scale == pytest.approx(8**-0.5)
    ids, seen = np.array([5, 6, 7, 8]), {}
    for part, address in zip("qk", PROJECTIONS[name], strict=True):
        model.get_submodule(address.format(l=layer)).register_forward_hook(
            lambda module, given, out, part=part: seen.update({part: (given[0][0], out[0])})
        )
    with torch.no_grad():
        (model.encoder if "bart" in name else model)(input_ids=torch.tensor(ids[None]))
    z = seen["q"][0].double().numpy()
    if layer == 0:
        X, P = word_rows(opened.config, opened.weights, ids), opened.found[0].encoding
        Z = np.add(*projections.normed(X, P.table(range(4))))
        np.testing.assert_allclose(Z, z, atol=1e-5)
    for part, W, b in (
        ("q", projections.W_q, projections.b_q),
        ("k", projections.W_k, projections.b_k),
    ):
        theirs = seen[part][1].double().numpy()
        if name == "gpt2":  # q, k and v side by side
            theirs = theirs[:, :D] if part == "q" else theirs[:, D : 2 * D]
        ours = np.concatenate([z @ W[h] + b[h] for h in range(HEADS)], axis=1)
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_layers_that_are_not_there_are_refused(saved):
    with pytest.raises(PosgeomError, match="--layer 2 came; the model has layers 0 to 1"):
        inspect_model(saved("gpt2")[0], layer=2)


def test_model_types_are_those_of_transformers():
    pytest.importorskip("torch")
    auto = pytest.importorskip("transformers.models.auto.configuration_auto")
    known = set(auto.CONFIG_MAPPING_NAMES) | set(
        getattr(auto, "SPECIAL_MODEL_TYPE_TO_MODULE_NAME", {})
    )
    assert known >= KNOWN, sorted(KNOWN - known)


# -- folders written by hand ----------------------------------------------------------------------


def folder_of(home, config, tensors=None, name="model.safetensors"):
    home.mkdir(exist_ok=True)
    (home / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if tensors is not None:
        save_file(tensors, home / name)
    return home


GPT2 = {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 10}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "max_position_embeddings": 2048,
}


def gpt2_tensors(dtype=np.float32):
    shapes = {
        "wpe.weight": (10, 8),
        "wte.weight": (20, 8),
        "h.0.ln_1.weight": (8,),
        "h.0.ln_1.bias": (8,),
        "h.0.attn.c_attn.weight": (8, 24),
        "h.0.attn.c_attn.bias": (24,),
    }
    return {k: RNG.standard_normal(s).astype(dtype) for k, s in shapes.items()}


def test_wavelengths_of_dimension_32(tmp_path):
    """6.3, 353 and 35,333 at pairs 0, 7 and 15; 5 of the 16 exceed 2,048 (REFERENCE §4)."""
    rule = inspect_model(folder_of(tmp_path, LLAMA)).rules[0]
    λ = rule.wavelengths
    assert [round(λ[0], 1), round(λ[7]), round(λ[15])] == [6.3, 353, 35_333]
    assert rule.beyond == 5
    assert rule.as_dict()["scaling"] is None


@pytest.mark.parametrize("key", ["type", "rope_type"])
@pytest.mark.parametrize("outer", ["rope_scaling", "rope_parameters"])
def test_all_spellings_of_a_scaling_are_one(tmp_path, key, outer):
    config = LLAMA | {outer: {key: "linear", "factor": 4.0}, "rope_theta": 5e5}
    rule = inspect_model(folder_of(tmp_path, config)).rules[0]
    expected = make_encoding("rope:dim=32,base=500000").inv_freq / 4
    np.testing.assert_allclose(rule.encoding.inv_freq, expected)
    assert rule.as_dict()["scaling"] == {"type": "linear", "factor": 4.0}


def test_older_configs_of_models_with_layer_types(tmp_path):
    gemma = LLAMA | {
        "model_type": "gemma3_text",
        "head_dim": 32,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    full, sliding = inspect_model(folder_of(tmp_path, gemma)).rules
    default = make_encoding("rope:dim=32").inv_freq
    np.testing.assert_allclose(sliding.encoding.inv_freq, default)
    np.testing.assert_allclose(full.encoding.inv_freq, 1e6 ** (-np.arange(16) / 16) / 8)
    bert = LLAMA | {"model_type": "modernbert", "global_rope_theta": 1.6e5, "local_rope_theta": 1e4}
    full, sliding = inspect_model(folder_of(tmp_path, bert)).rules
    assert (full.encoding.base, sliding.encoding.base) == (1.6e5, 1e4)


def test_older_qwen2_vl_config_on_one_level(tmp_path):
    scaling = {"type": "mrope", "mrope_section": [4, 6, 6]}
    config = LLAMA | {"model_type": "qwen2_vl", "rope_scaling": scaling}
    about = inspect_model(folder_of(tmp_path, config)).rules[0].as_dict()
    assert (about["family"], about["sections"]) == ("mrope", [4, 6, 6])


def test_shards_are_read_by_their_index(tmp_path):
    tensors = gpt2_tensors()
    folder_of(tmp_path, GPT2)
    files = {"wpe.weight": "a-1.safetensors"}
    places = {k: files.get(k, "a-2.safetensors") for k in tensors}
    for file in set(places.values()):
        save_file({k: v for k, v in tensors.items() if places[k] == file}, tmp_path / file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    passport = inspect_model(tmp_path)
    np.testing.assert_array_equal(passport.encoding.table(range(10)), tensors["wpe.weight"])
    assert len(passport.content) == 2
    (tmp_path / "a-1.safetensors").unlink()
    with pytest.raises(PosgeomError, match=r"a-1\.safetensors, which is not there"):
        inspect_model(tmp_path)


def test_only_the_tensors_needed_are_read(tmp_path, monkeypatch):
    big = {"h.0.mlp.c_fc.weight": np.zeros((8, 32), np.float32)}
    folder_of(tmp_path, GPT2, gpt2_tensors() | big)
    read, original = [], Weights.read
    monkeypatch.setattr(
        Weights, "read", lambda self, name, *rows: read.append(name) or original(self, name, *rows)
    )
    inspect_model(tmp_path)
    assert set(read) == set(gpt2_tensors())


def bf16(x):
    return (np.ascontiguousarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def write_raw(file, tensors):
    """A safetensors file from (dtype, array) pairs, for dtypes that numpy does not have."""
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        raw = array.tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": offsets}
        data += raw
    head = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(head)) + head + data)


def test_bfloat16_is_read_and_named(tmp_path):
    tensors = gpt2_tensors()
    folder_of(tmp_path, GPT2)
    write_raw(tmp_path / "model.safetensors", {k: ("BF16", bf16(v)) for k, v in tensors.items()})
    passport = inspect_model(tmp_path)
    assert passport.rules[0].as_dict()["dtype"] == "bfloat16"
    np.testing.assert_allclose(passport.encoding.table(range(10)), tensors["wpe.weight"], rtol=1e-2)


def test_equal_rows_are_found_in_each_format(tmp_path):
    tensors = gpt2_tensors()
    P = tensors["wpe.weight"]
    P[6] = P[2] * (1 + 2.0**-12)  # one in bf16, two in fp16
    P[8] = P[2] * (1 + 2.0**-20)  # one in both
    rule = inspect_model(folder_of(tmp_path, GPT2, tensors)).rules[0]
    assert rule.collisions["bf16"] in (6, None)
    assert rule.collisions["fp16"] == 8


def test_norms_are_those_of_all_rows(tmp_path):
    tensors = gpt2_tensors()
    norms = inspect_model(folder_of(tmp_path, GPT2, tensors)).norms
    for name, key in (("positions", "wpe.weight"), ("tokens", "wte.weight")):
        r = np.linalg.norm(tensors[key].astype(float), axis=1)
        assert norms[name] == pytest.approx((r.min(), np.median(r), r.max()))


def test_equal_seeds_give_equal_passports(tmp_path):
    folder_of(tmp_path, GPT2, gpt2_tensors())
    first, again, other = (inspect_model(tmp_path, seed=s).as_dict() for s in (3, 3, 4))
    assert first == again != other


@pytest.mark.parametrize("kind", ["npy", "txt"])
def test_tokens_from_a_file(tmp_path, kind):
    folder_of(tmp_path, GPT2, gpt2_tensors())
    file = tmp_path / f"ids.{kind}"
    if kind == "npy":
        np.save(file, np.array([3, 3, 3, 7]))
    else:
        file.write_text("3, 3\n3 7")
    passport = inspect_model(tmp_path, tokens=file)
    assert "4 ids" in passport.tokens
    assert passport.content[0].variance.value[0, 0] != pytest.approx(
        inspect_model(tmp_path).content[0].variance.value[0, 0]
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3 20", "holds id 20; the model has ids 0 to 19"),
        ("a b", "cannot be read"),
        ("3", "two ids"),
    ],
)
def test_tokens_that_the_model_does_not_have_are_refused(tmp_path, text, words):
    folder_of(tmp_path, GPT2, gpt2_tensors())
    (tmp_path / "ids.txt").write_text(text)
    with pytest.raises(PosgeomError, match=words):
        inspect_model(tmp_path, tokens=tmp_path / "ids.txt")


def test_a_passport_is_json(tmp_path):
    about = inspect_model(folder_of(tmp_path, GPT2, gpt2_tensors())).as_dict()
    again = json.loads(json.dumps(about, allow_nan=False))
    assert again == about
    shares = about["content"][1]["share_of_variance"]
    assert sum(shares["all"]["value"]) == pytest.approx(1)
    assert np.shape(shares["heads"]["error"]) == (2, 4)


def test_model_spec_is_the_table_of_the_model(tmp_path):
    tensors = gpt2_tensors()
    e = make_encoding(f"model:{folder_of(tmp_path, GPT2, tensors)}")
    np.testing.assert_array_equal(e.table(range(10)), tensors["wpe.weight"])
    assert e.name == f"model:{tmp_path}"


SINUSOIDS = {"model_type": "marian", "d_model": 8, "encoder_attention_heads": 2}


@pytest.mark.parametrize(("change", "family"), [(0.0, "sinusoidal"), (0.5, "learned")])
def test_a_stored_sinusoid_is_one_as_long_as_its_numbers_are(tmp_path, change, family):
    table = make_encoding("sinusoidal:dim=8,layout=halves").table(range(10)).astype(np.float32)
    table[4, 1] += change
    tensors = {"model.encoder.embed_positions.weight": table}
    passport = inspect_model(folder_of(tmp_path, SINUSOIDS, tensors))
    about = passport.rules[0].as_dict()
    assert (about["family"], about["max_length"], about["first_row"]) == (family, 10, 0)
    assert any("not trained" in note for note in passport.notes) == (family == "sinusoidal")
    assert any("no token embeddings" in note for note in passport.notes)


def test_sinusoids_of_fsmt_start_behind_the_padding(tmp_path):
    table = make_encoding("sinusoidal:dim=8,layout=halves,spacing=tensor2tensor").table(range(12))
    table[1] = 0
    tensors = {"model.encoder.embed_positions.weight": table.astype(np.float32)}
    config = SINUSOIDS | {"model_type": "fsmt", "pad_token_id": 1}
    about = inspect_model(folder_of(tmp_path, config, tensors)).rules[0].as_dict()
    assert (about["family"], about["first_row"], about["max_length"]) == ("sinusoidal", 2, 10)


def test_a_computed_sinusoid_needs_no_weights(tmp_path):
    folder = folder_of(tmp_path, SINUSOIDS | {"max_position_embeddings": 12})
    about = inspect_model(folder).rules[0].as_dict()
    assert (about["family"], about["max_length"], about["tensor"]) == ("sinusoidal", 12, None)


def test_mrope_is_scored_on_text_and_on_grids(tmp_path):
    scaling = {"type": "mrope", "mrope_section": [4, 6, 6]}
    config = LLAMA | {"model_type": "qwen2_vl", "rope_scaling": scaling}
    e = model_encoding(str(folder_of(tmp_path, config)))
    plain = make_encoding("rope:dim=32,base=1000000" if e.base == 1e6 else "rope:dim=32")
    np.testing.assert_allclose(e.distances(range(9)), plain.distances(range(9)))
    grid = np.array([[t, h, w] for t in (0, 1) for h in (0, 1) for w in (0, 2)])
    assert e.distances(grid).shape == (8, 8)


def test_nothing_of_torch_is_needed(tmp_path):
    folder_of(tmp_path, GPT2, gpt2_tensors())
    code = (
        "import sys; from posgeom.passport import inspect_model; "
        f"inspect_model({str(tmp_path)!r}); "
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_of_a_multimodal_config_the_text_part_counts(tmp_path):
    config = {"model_type": "llava", "text_config": LLAMA, "vision_config": {"model_type": "clip"}}
    assert language_config(config)["model_type"] == "llama"
    assert inspect_model(folder_of(tmp_path, config)).model_type == "llama"


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("h.0.ln_1.weight", (7,), "not of the width 8"),
        ("h.0.attn.c_attn.bias", (12,), "differ in shape"),
        ("h.0.attn.c_attn.weight", (0, 24), "is empty"),
        ("wpe.weight", (10, 8, 1), r"expected \(positions, dimensions\)"),
    ],
)
def test_tensors_of_other_shapes_are_told(tmp_path, name, shape, words):
    tensors = gpt2_tensors() | {name: np.zeros(shape, np.float32)}
    with pytest.raises(PosgeomError, match=words):
        inspect_model(folder_of(tmp_path, GPT2, tensors))


@pytest.mark.parametrize("value", ["x", -1.0, True])
def test_an_epsilon_that_is_none_is_told(tmp_path, value):
    config = GPT2 | {"layer_norm_epsilon": value}
    with pytest.raises(PosgeomError, match="layer_norm_eps"):
        inspect_model(folder_of(tmp_path, config, gpt2_tensors()))


# -- what cannot be read --------------------------------------------------------------------------


def broken(kind, tmp_path):
    """A folder broken in one way."""
    nan = gpt2_tensors()
    nan["wpe.weight"][7, 1] = np.nan
    settings = {
        "unknown type": {"model_type": "no-such"},
        "no type": {"hidden_size": 8},
        "recurrent": {"model_type": "mamba"},
        "missing key": LLAMA | {"rope_scaling": {"rope_type": "yarn"}},
        "unknown scaling": LLAMA | {"rope_scaling": {"rope_type": "magic", "factor": 2.0}},
        "factor": LLAMA | {"rope_scaling": {"rope_type": "linear", "factor": 0.5}},
        "no width": {"model_type": "llama"},
        "not an object": [1],
        "rope no object": LLAMA | {"rope_scaling": "yarn"},
        "text": LLAMA | {"max_position_embeddings": "many"},
        "list": LLAMA | {"rope_scaling": {"rope_type": ["yarn"], "factor": 2.0}},
    }
    if kind == "no folder":
        return tmp_path / "gone"
    if kind == "no config":
        return tmp_path
    folder_of(tmp_path, settings.get(kind, GPT2), nan if kind == "nan" else None)
    if kind == "broken weights":
        (tmp_path / "model.safetensors").write_bytes(b"nothing of the kind")
    if kind == "cut weights":
        save_file(gpt2_tensors(), tmp_path / "model.safetensors")
        data = (tmp_path / "model.safetensors").read_bytes()
        (tmp_path / "model.safetensors").write_bytes(data[:-8])
    if kind == "pickled":
        (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    if kind == "other tensors":
        save_file({"lm_head.weight": np.zeros((3, 3), np.float32)}, tmp_path / "model.safetensors")
    if kind == "not json":
        (tmp_path / "config.json").write_text("{")
    return tmp_path


BROKEN = {
    "no folder": "there is no folder",
    "no config": "has no config.json",
    "not json": "cannot be read as JSON",
    "not an object": "holds no JSON object",
    "no type": "no model_type, so it says nothing of positions",
    "unknown type": "model type 'no-such' is not known",
    "recurrent": "says nothing of positions",
    "missing key": "factor",
    "unknown scaling": "magic",
    "factor": "factor",
    "no width": "hidden_size",
    "rope no object": "give an object",
    "text": "give a whole number from 1 on",
    "list": "of a kind that its key does not take|is not known",
    "broken weights": "model.safetensors",
    "cut weights": "model.safetensors",
    "pickled": "pytorch_model.bin, a pickle",
    "no weights": "holds no model.safetensors",
    "other tensors": "no tensor wpe.weight",
    "nan": "wpe.weight of .* holds NaN or infinity in row 7",
}


@pytest.mark.parametrize(("kind", "words"), BROKEN.items())
def test_what_cannot_be_read_is_told(tmp_path, kind, words):
    folder = broken(kind, tmp_path)
    with pytest.raises(PosgeomError, match=words) as told:
        inspect_model(folder)
    assert str(tmp_path) in str(told.value)
    assert "\n" not in str(told.value)
