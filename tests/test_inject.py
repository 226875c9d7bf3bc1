"""Encodings in models of `transformers`: small random ones of each kind, and real tables."""

import copy
import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from scipy.spatial.distance import cdist

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers.models.llama.modeling_llama import apply_rotary_pos_emb  # noqa: E402

from posgeom import Design, PosgeomError, make_encoding  # noqa: E402
from posgeom.emit.emission import Emission, describe, emission_of, emission_of_model  # noqa: E402
from posgeom.emit.export import export  # noqa: E402
from posgeom.emit.forms import tensors_of  # noqa: E402
from posgeom.emit.reading import read_emission  # noqa: E402
from posgeom.encodings import FixedTable, T5Bias, alibi_slopes, t5_bucket  # noqa: E402
from posgeom.transformers import folder as folder_module  # noqa: E402
from posgeom.transformers import inject, inject_folder, reload  # noqa: E402
from posgeom.transformers.inject import injection  # noqa: E402

torch.set_num_threads(1)

D, N, HEADS, VOCAB = 48, 32, 4, 64
PAD = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}
SIZES = {
    "hidden_size": D,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "intermediate_size": 64,
    "vocab_size": VOCAB,
    "max_position_embeddings": N,
}
T5 = {
    "d_model": D,
    "d_kv": 12,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": HEADS,
    "vocab_size": VOCAB,
    "decoder_start_token_id": 0,
}
MODELS = {
    "gpt2": (
        "GPT2LMHeadModel",
        {"n_embd": D, "n_layer": 2, "n_head": HEADS, "n_positions": N, "vocab_size": VOCAB}
        | {"bos_token_id": 2, "eos_token_id": 3},
    ),
    "bert": ("BertForMaskedLM", SIZES),
    "minilm": ("BertModel", SIZES),
    "roberta": ("RobertaForMaskedLM", SIZES | PAD | {"max_position_embeddings": N + 2}),
    "opt": ("OPTForCausalLM", SIZES | PAD | {"word_embed_proj_dim": D, "ffn_dim": 64}),
    "bart": (
        "BartForConditionalGeneration",
        PAD
        | {"d_model": D, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": VOCAB}
        | {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}
        | {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": N}
        | {"decoder_start_token_id": 3, "forced_eos_token_id": 3},
    ),
    "clip": ("CLIPTextModel", SIZES | PAD),
    "mpnet": ("MPNetModel", SIZES | PAD | {"max_position_embeddings": N + 2}),
    "gpt": (
        "OpenAIGPTLMHeadModel",
        {"n_embd": D, "n_layer": 2, "n_head": HEADS, "n_positions": N, "vocab_size": VOCAB},
    ),
    "llama": ("LlamaForCausalLM", SIZES | {"num_key_value_heads": 2}),
    "mistral": ("MistralForCausalLM", SIZES | {"num_key_value_heads": 2, "sliding_window": None}),
    "qwen2": ("Qwen2ForCausalLM", SIZES | {"num_key_value_heads": 2}),
    "bloom": (
        "BloomForCausalLM",
        {"hidden_size": D, "n_layer": 2, "n_head": HEADS, "vocab_size": VOCAB},
    ),
    "mpt": (
        "MptForCausalLM",
        {"d_model": D, "n_layers": 2, "n_heads": HEADS, "vocab_size": VOCAB, "max_seq_len": N},
    ),
    "t5": ("T5ForConditionalGeneration", T5),
}
TABLES = {
    "gpt2": ("transformer.wpe.weight", 0),
    "bert": ("bert.embeddings.position_embeddings.weight", 0),
    "minilm": ("embeddings.position_embeddings.weight", 0),
    "roberta": ("roberta.embeddings.position_embeddings.weight", 2),
    "opt": ("model.decoder.embed_positions.weight", 2),
    "clip": ("embeddings.position_embedding.weight", 0),
    "mpnet": ("embeddings.position_embeddings.weight", 2),
    "gpt": ("transformer.positions_embed.weight", 0),
}
BOTH = ["model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"]
ROTARY = ("llama", "mistral", "qwen2")
WANTED = tuple(np.geomspace(2.5, 3e-4, 6).tolist())  # outside what one base gives
WANTED = (*WANTED[:3], 0.11, *WANTED[4:])
FREQUENCIES = make_encoding("rope:dim=12,inv_freq=" + ";".join(map(str, WANTED)))
ROWS = np.random.default_rng(5).standard_normal((N, D)) * np.linspace(0.5, 2, D)


def tiny(kind, **changes):
    """A randomly initialised model of few and small layers."""
    torch.manual_seed(0)
    name, sizes = MODELS[kind]
    cls = getattr(transformers, name)
    return cls(cls.config_class(**sizes | changes)).eval()


@pytest.fixture
def saved(tmp_path):
    """A folder that holds a small model of a kind, with a tokenizer's settings beside it."""

    def save(kind, dtype=torch.float32, **changes):
        folder = tmp_path / kind
        tiny(kind, **changes).to(dtype).save_pretrained(folder)
        (folder / "tokenizer_config.json").write_text('{"model_max_length": 32, "lower": true}')
        return folder

    return save


def table(rows=ROWS):
    return FixedTable(rows=rows, spec="mds:rank=3")


def weights(folder):
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def rms(x):
    return float(np.sqrt((np.asarray(x, dtype=np.float64) ** 2).sum(axis=1).mean()))


# -- tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_takes_the_place_of_the_old_one_at_its_size(kind):
    name, offset = TABLES[kind]
    old, model = tiny(kind).state_dict(), tiny(kind)
    assert inject(model, table()) is model
    new = model.state_dict()
    assert {k for k in old if not torch.equal(old[k], new[k])} == {name}
    rows, before = new[name].double().numpy(), old[name].double().numpy()
    np.testing.assert_array_equal(rows[:offset], before[:offset])
    assert rms(rows[offset:]) == pytest.approx(rms(before[offset:]), rel=1e-6)
    by = rms(before[offset:]) / rms(ROWS)
    np.testing.assert_allclose(rows[offset:], by * ROWS, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("scale", "size"), [("own", rms(ROWS)), (3.5, 3.5)])
def test_the_size_can_be_asked_for(scale, size):
    model = inject(tiny("gpt2"), table(), scale=scale)
    assert rms(model.transformer.wpe.weight.detach()) == pytest.approx(size, rel=1e-6)


@pytest.mark.parametrize("kind", TABLES)
def test_the_first_token_meets_the_row_of_position_0(kind):
    """The hidden state after the embeddings moves with that row alone."""
    name, offset = TABLES[kind]
    ids = torch.tensor([[5, 6, 7]])
    rows = ROWS.copy()
    rows[1:] = 0
    model = inject(tiny(kind), table(rows), scale="own")
    seen = dict(model.named_modules())[name.removesuffix(".weight")]
    asked = []
    seen.register_forward_hook(lambda _module, _in, out: asked.append(out.detach()))
    with torch.no_grad():
        model(ids)
    got = asked[0].reshape(-1, D).double().numpy()
    np.testing.assert_allclose(got[0], ROWS[0], rtol=1e-6)
    assert not got[1:].any()
    assert offset in (0, 2)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (ROWS[:20], "has 20 positions, the model 32; design with --positions 32"),
        (np.vstack([ROWS, ROWS]), "has 64 positions, the model 32; design with --positions 32"),
        (ROWS[:, :40], "has 40 dimensions, the model's table 48; design with --dim 48"),
    ],
)
def test_a_table_of_another_shape_is_refused(rows, says):
    model = tiny("gpt2")
    before = reload.digests(model)
    with pytest.raises(PosgeomError, match=says):
        inject(model, table(rows))
    assert reload.digests(model) == before


@pytest.mark.parametrize(
    ("kind", "spec", "says"),
    [
        ("gpt2", "rope:dim=12", "which has a learned table; it takes a table, .* mds:dim=48"),
        ("llama", "sinusoidal:dim=48", "it takes a rotary encoding, .* fitted-rope:dim=12"),
        ("llama", "alibi:heads=4", "it takes a rotary encoding"),
        ("llama", "rope:dim=48", "turns 24 pairs, a head of this llama 6; .*fitted-rope:dim=12"),
        ("llama", "rope-2d:dim=12", "both must have one axis"),
        ("t5", "sinusoidal:dim=48", "it takes a bias, such as --encoding fitted-t5"),
        ("t5", "alibi:heads=3", "has 3 heads, the model 4; design with --heads 4"),
        ("bloom", "sinusoidal:dim=48", "it takes ALiBi's, alibi:heads=4"),
        ("bloom", "alibi:slopes=0.5;0.3;0.2;0.1", "from its 4 heads .* cannot be carried"),
        ("bloom", "alibi:heads=8", "cannot be carried"),
        ("mpt", "alibi:heads=4,bias_max=6", "from its 4 heads .* cannot be carried"),
    ],
)
def test_what_the_model_has_no_place_for_is_refused_with_what_it_takes(kind, spec, says):
    model = tiny(kind)
    before, config = reload.digests(model), model.config.to_dict()
    with pytest.raises(PosgeomError, match=says) as refused:
        inject(model, make_encoding(spec))
    assert "\n" not in str(refused.value)
    assert reload.digests(model) == before
    assert model.config.to_dict() == config


def test_an_optimizer_of_before_is_stale_where_it_holds_the_table():
    model = tiny("gpt2")
    every = torch.optim.AdamW(model.parameters())
    with pytest.raises(PosgeomError, match=r"holds transformer\.wpe\.weight .*inject first"):
        inject(model, table(), optimizer=every)
    others = [p for name, p in model.named_parameters() if "wpe" not in name]
    inject(model, table(), optimizer=torch.optim.AdamW(others))
    rows = len(model.transformer.wpe.weight) + 3
    longer = table(np.ones((rows, others[0].shape[1])))
    with pytest.raises(PosgeomError, match=r"of the shorter model, .*inject first"):
        inject(model, longer, extend_to=rows, optimizer=torch.optim.AdamW(others))
    t5 = tiny("t5")
    with pytest.raises(PosgeomError, match=r"holds decoder\..*moments of its old numbers"):
        inject(t5, make_encoding("alibi:heads=4"), optimizer=torch.optim.AdamW(t5.parameters()))


def test_the_encoder_and_the_decoder_of_bart_get_the_rows_each_at_its_size():
    model = tiny("bart")
    with torch.no_grad():
        model.get_parameter(BOTH[1]).mul_(3)
    old = {name: p.detach().clone() for name, p in model.named_parameters()}
    assert inject(model, table()) is model
    new = dict(model.named_parameters())
    assert sorted(k for k in old if not torch.equal(old[k], new[k])) == sorted(BOTH)
    for name in BOTH:
        assert torch.equal(new[name][:2], old[name][:2])
        assert rms(new[name][2:].detach()) == pytest.approx(rms(old[name][2:]), rel=1e-6)
    ratio = rms(new[BOTH[1]][2:].detach()) / rms(new[BOTH[0]][2:].detach())
    assert ratio == pytest.approx(rms(old[BOTH[1]][2:]) / rms(old[BOTH[0]][2:]), rel=1e-6)
    longer = inject(model, table(np.vstack([ROWS, ROWS + 1])), extend_to=2 * N)
    assert {len(longer.get_parameter(name)) for name in BOTH} == {2 * N + 2}
    ids = torch.from_numpy(np.random.default_rng(0).integers(4, VOCAB, (1, 2 * N)))
    with torch.no_grad():
        assert torch.isfinite(longer(ids, decoder_input_ids=ids).logits).all()


def test_an_optimizer_that_holds_either_table_is_stale():
    model = tiny("bart")
    held = torch.optim.AdamW([model.get_parameter(BOTH[1])])
    with pytest.raises(PosgeomError, match=r"holds model\.decoder\.embed_positions"):
        inject(model, table(), optimizer=held)


def test_tables_of_words_and_of_pieces_of_an_image_are_not_one():
    text = {"hidden_size": D, "num_attention_heads": HEADS, "num_hidden_layers": 1}
    seen = text | {"image_size": 32, "patch_size": 8}
    config = transformers.CLIPConfig(text_config=text | {"vocab_size": VOCAB}, vision_config=seen)
    with pytest.raises(PosgeomError, match=r"has 2 learned tables .*vision_model"):
        inject(transformers.CLIPModel(config), table())


def test_two_rotary_encodings_are_not_replaced_by_one():
    config = transformers.Gemma3TextConfig(
        **SIZES | {"head_dim": 12, "num_key_value_heads": 2},
        layer_types=["full_attention", "sliding_attention"],
    )
    with pytest.raises(PosgeomError, match="has 2 rotary encodings, of layers"):
        inject(transformers.Gemma3ForCausalLM(config), FREQUENCIES)


def test_two_tables_have_no_one_tail(saved, tmp_path):
    """The decoder's rows are its own."""
    with pytest.raises(PosgeomError, match=r"has 2 tables, of .* give a RUN or a FILE"):
        inject_folder(saved("bart"), None, tmp_path / "out", extend_to=48)
    assert left_behind(tmp_path) == ["bart"]


def test_a_table_on_the_meta_device_is_refused():
    with torch.device("meta"):
        model = tiny("gpt2")
    with pytest.raises(PosgeomError, match="meta device; load its weights first"):
        inject(model, table())


# -- rotary ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ROTARY)
def test_any_frequencies_go_by_way_of_the_config(kind):
    model = tiny(kind)
    weights_before = reload.digests(model)
    assert inject(model, FREQUENCIES) is model
    made = reload.rotary(model)
    assert len(made) == 1
    for module in made.values():
        np.testing.assert_allclose(module["inv_freq"], WANTED, rtol=1e-6)
        assert module["attention_factor"] == 1.0
        assert module["dtype"] == "torch.float32"
    rope = model.config.rope_parameters
    assert (rope["rope_type"], rope["attention_factor"], rope["factor"]) == ("longrope", 1, 1)
    assert rope["short_factor"] == rope["long_factor"]
    assert reload.digests(model) == weights_before


def test_frequencies_turn_queries_as_the_core_turns_them():
    """q·k of the model's own rotation against the core's, at a length past the first list."""
    model = inject(tiny("llama"), FREQUENCIES, extend_to=100)
    q = torch.randn(1, 1, 90, 12, generator=torch.Generator().manual_seed(3))
    cos, sin = model.model.rotary_emb(q, torch.arange(90)[None])
    turned, _ = apply_rotary_pos_emb(q, q, cos, sin)
    core = replace(FREQUENCIES, pairing="halves").rotate(q[0, 0].double().numpy(), np.arange(90))
    np.testing.assert_allclose(turned[0, 0].double().numpy(), core, atol=2e-5)
    assert model.config.max_position_embeddings == 100


@pytest.mark.parametrize(
    "spec",
    [
        "rope:dim=12,base=500000",
        "rope:dim=12,scaling=linear,factor=4",
        "rope:dim=12,scaling=ntk,factor=4",
        "rope:dim=12,scaling=yarn,factor=4,original_length=32",
        "rope:dim=12,scaling=llama3,factor=8,original_length=32,low_freq_factor=1,high_freq_factor=4",
        "rope:dim=12,inv_freq=1;0.5;0.25;0.1;0.01;0",
    ],
)
def test_scaled_and_standing_frequencies_come_out(spec):
    wanted = make_encoding(spec)
    model = inject(tiny("llama"), wanted)
    (module,) = reload.rotary(model).values()
    np.testing.assert_allclose(module["inv_freq"], wanted.inv_freq, rtol=1e-6, atol=1e-29)
    assert module["attention_factor"] == pytest.approx(wanted.attention_factor, rel=1e-6)


def test_one_base_is_said_as_rope_theta():
    model = inject(tiny("llama"), make_encoding("rope:dim=12,base=500000"))
    assert model.config.rope_parameters == {"rope_type": "default", "rope_theta": 500_000.0}


def angles(model, n=900):
    x = torch.zeros(1, 1, dtype=model.dtype)
    return model.model.rotary_emb(x.float(), torch.arange(n)[None])


CASTS = {
    "to": lambda model: model.to(torch.bfloat16),
    "half": lambda model: model.half(),
    "and back": lambda model: model.to(torch.bfloat16).float(),
    "copied": lambda model: copy.deepcopy(model.to(torch.bfloat16)),
    "copied first": lambda model: copy.deepcopy(model).to(torch.bfloat16),
    "pickled": lambda model: pickle.loads(pickle.dumps(model.to(torch.bfloat16))),
    "twice": lambda model: inject(inject(model, make_encoding("rope:dim=12")), FREQUENCIES).half(),
}


@pytest.mark.parametrize("how", CASTS)
@pytest.mark.parametrize("kind", ROTARY)
def test_frequencies_of_an_injected_model_survive_casts(kind, how):
    """Angles at 900 are float32's, to the last bit; without the hook bfloat16's are elsewhere."""
    exact = angles(inject(tiny(kind), FREQUENCIES))
    cast = CASTS[how](inject(tiny(kind), FREQUENCIES))
    for a, b in zip(angles(cast), exact, strict=True):
        assert torch.equal(a, b)
    plain = angles(tiny(kind).to(torch.bfloat16))[0] - angles(tiny(kind))[0]
    assert float(plain.abs().max()) > 0.1


def test_frequencies_that_follow_the_length_still_do():
    dynamic = make_encoding("rope:dim=12,scaling=dynamic,factor=4,original_length=32")
    model = inject(tiny("llama"), dynamic)
    cos, _ = angles(model, 100)
    wanted = dynamic.cos_sin(np.arange(100))[0]
    np.testing.assert_allclose(cos[0, :, :6].numpy(), wanted, atol=2e-5)


@pytest.mark.slow
def test_compiled_rotation_is_the_same():
    torch._dynamo.reset()
    exact = angles(inject(tiny("llama"), FREQUENCIES))
    model = inject(tiny("llama"), FREQUENCIES).to(torch.bfloat16)
    model.model.rotary_emb = torch.compile(model.model.rotary_emb, backend="eager")
    for _ in range(2):
        for a, b in zip(angles(model), exact, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


def test_frequencies_survive_half_precision_and_saving(tmp_path):
    """A module's buffer is rounded by .to(bfloat16), the config's numbers are not."""
    model = inject(tiny("llama"), FREQUENCIES).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    for kept in ({}, {"low_cpu_mem_usage": True}):  # both by way of the meta device
        loaded = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path, dtype=torch.bfloat16, **kept
        )
        assert loaded.dtype == torch.bfloat16
        (module,) = reload.rotary(loaded).values()
        assert module["dtype"] == "torch.float32"
        np.testing.assert_allclose(module["inv_freq"], WANTED, rtol=1e-6)


def test_a_model_that_does_not_read_its_config_is_left_as_it_was(monkeypatch):
    model = tiny("llama")
    before = model.config.to_dict()
    monkeypatch.setattr("posgeom.transformers.rotary._write", lambda config, rope: None)
    with pytest.raises(PosgeomError, match="computes other frequencies than the encoding"):
        inject(model, FREQUENCIES)
    assert model.config.to_dict() == before


def test_energies_are_said_not_to_be_carried():
    spec = "rope:dim=12,inv_freq=1;0.5;0.25;0.1;0.01;0.001,weights=1;2;1;1;1;1"
    said = injection(tiny("llama"), make_encoding(spec)).said
    assert any("energies are not carried" in sentence for sentence in said)


# -- biases ---------------------------------------------------------------------------------------


def bucket_tables(model):
    return {n: p for n, p in model.named_parameters() if "relative_attention_bias" in n}


def test_t5_tables_hold_the_encoding_s_numbers_up_to_scale_and_constant():
    values = tuple(np.sort(np.random.default_rng(1).standard_normal(16))[::-1].tolist())
    encoding = T5Bias(values=values * 2)
    old = {n: p.detach().double().numpy() for n, p in bucket_tables(tiny("t5")).items()}
    model = inject(tiny("t5"), encoding)
    new = {n: p.detach().double().numpy() for n, p in bucket_tables(model).items()}
    assert len(new) == 2
    encoder = next(n for n in new if n.startswith("encoder"))
    reached = np.unique(t5_bucket(np.arange(-300, 301)))
    assert set(range(32)) - set(reached) == {16}
    got, before = new[encoder], old[encoder]
    np.testing.assert_array_equal(got[16], before[16])
    centred = encoding.numbers[reached] - encoding.numbers[reached].mean()
    for head in range(HEADS):
        own = got[reached, head] - got[reached, head].mean()
        np.testing.assert_allclose(own / own[0], centred[:, 0] / centred[0, 0], rtol=1e-4)
        assert got[reached, head].mean() == pytest.approx(before[reached, head].mean(), abs=1e-5)
    spread = [np.sqrt(((x[reached] - x[reached].mean(axis=0)) ** 2).mean()) for x in (got, before)]
    assert spread[0] == pytest.approx(spread[1], rel=1e-5)


def test_frequencies_have_no_scale():
    encoding = make_encoding("rope:dim=8,base=500")
    with pytest.raises(PosgeomError, match=r"--scale 3\.0 came, but rope has none"):
        inject(tiny("llama"), encoding, scale=3.0)


def test_the_decoder_gets_the_mean_of_the_offsets_of_each_bucket():
    """By the definition: offsets one by one, averaged in a loop over buckets."""
    encoding = make_encoding("alibi:heads=4")
    model = inject(tiny("t5"), encoding, scale="own")
    (table,) = (p for n, p in bucket_tables(model).items() if n.startswith("decoder"))
    offsets = np.arange(257)
    at = t5_bucket(-offsets, bidirectional=False)
    for bucket in (0, 1, 15, 16, 20, 31):
        bias = -np.outer(alibi_slopes(4), offsets[at == bucket]).mean(axis=1)
        zero = -np.outer(alibi_slopes(4), offsets[at == 3]).mean(axis=1)
        got = (table[bucket] - table[3]).detach().double().numpy()
        np.testing.assert_allclose(got, bias - zero, atol=2e-5)


def test_slopes_that_the_heads_say_anyway_pass():
    for kind in ("bloom", "mpt"):
        model = tiny(kind)
        before = reload.digests(model)
        assert inject(model, make_encoding("alibi:heads=4")) is model
        assert reload.digests(model) == before


def test_bloom_and_mpt_add_these_slopes():
    """What is checked against is what the models compute, MPT's bias_max or not."""
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    bloom = build_alibi_tensor(torch.ones(1, 5), HEADS, torch.float32).reshape(HEADS, 5)
    np.testing.assert_allclose((bloom[:, 1] - bloom[:, 0]).numpy(), alibi_slopes(HEADS))
    mpt = build_mpt_alibi_tensor(HEADS, 5).reshape(HEADS, 5)
    np.testing.assert_allclose((mpt[:, 1] - mpt[:, 0]).numpy(), alibi_slopes(HEADS))
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    eight, six = (tiny("mpt", attn_config={"alibi_bias_max": b}) for b in (8, 6))
    with torch.no_grad():
        assert torch.equal(eight(ids).logits, six(ids).logits)


def test_a_bias_has_no_length_to_extend():
    with pytest.raises(PosgeomError, match="--extend 64 came, but a bias by offset has no end"):
        inject(tiny("t5"), make_encoding("alibi:heads=4"), extend_to=64)


# -- longer models --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TABLES)
def test_a_longer_model_runs_at_all_its_positions(kind):
    name, offset = TABLES[kind]
    m = 50
    rows = np.random.default_rng(8).standard_normal((m, D))
    old = tiny(kind)
    before, config = reload.digests(old), old.config.to_dict()
    new = inject(old, table(rows), extend_to=m)
    assert reload.digests(old) == before
    assert old.config.to_dict() == config
    assert len(new.state_dict()[name]) == m + offset
    kept = new.config.max_position_embeddings
    assert kept == (m + 2 if kind in ("roberta", "mpnet") else m)
    same = {k for k, v in old.state_dict().items() if torch.equal(v, new.state_dict()[k])} - {name}
    assert same == set(old.state_dict()) - {name}
    np.testing.assert_array_equal(
        new.state_dict()[name][:offset].numpy(), old.state_dict()[name][:offset].numpy()
    )
    ids = torch.from_numpy(np.random.default_rng(0).integers(4, VOCAB, (1, m)))
    with torch.no_grad():
        assert torch.isfinite(new(ids)[0]).all()
    tied = [(p.data_ptr(), n) for n, p in new.named_parameters()]
    assert len({pointer for pointer, _ in tied}) == len(tied)
    assert not new.training


def test_a_shorter_model_is_refused():
    with pytest.raises(PosgeomError, match="--extend 20 came, the model has 32 positions"):
        inject(tiny("gpt2"), table(ROWS[:20]), extend_to=20)
    with pytest.raises(PosgeomError, match="--extend 20 came, the model has 32 positions"):
        inject(tiny("llama"), FREQUENCIES, extend_to=20)


# -- folders, each checked in a process of its own ------------------------------------------------


ENCODINGS = {kind: table() for kind in (*TABLES, "bart")}
ENCODINGS |= dict.fromkeys(ROTARY, FREQUENCIES)
ENCODINGS |= dict.fromkeys(("bloom", "mpt", "t5"), make_encoding("alibi:heads=4"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_a_folder_reloads_in_a_fresh_process(kind, saved, tmp_path):
    source = saved(kind)
    done = inject_folder(source, ENCODINGS[kind], tmp_path / "out")
    old, new = weights(source), weights(tmp_path / "out")
    assert old.keys() == new.keys()
    changed = {name for name in old if not torch.equal(old[name], new[name])}
    assert changed == set(done.changed)
    assert done.difference <= 1e-5
    assert done.model == MODELS[kind][0]
    assert (tmp_path / "out" / "tokenizer_config.json").read_text() == (
        source / "tokenizer_config.json"
    ).read_text()
    about = json.loads((tmp_path / "out" / "posgeom.json").read_text())
    assert sorted(about["files"]) == sorted(p.name for p in (tmp_path / "out").iterdir())
    if kind in ROTARY:
        assert set(done.config) == {"rope_parameters"}
        said = json.loads((tmp_path / "out" / "config.json").read_text())
        default = 1e4 ** (-np.arange(6) / 6)
        np.testing.assert_allclose(
            default / np.array(said["rope_parameters"]["long_factor"]), WANTED, rtol=1e-6
        )
    else:
        assert done.config == {}


@pytest.mark.slow
def test_half_precision_stays_and_is_compared(saved, tmp_path):
    source = saved("llama", dtype=torch.bfloat16)
    done = inject_folder(source, FREQUENCIES, tmp_path / "out")
    assert done.difference <= 1e-2
    assert {str(t.dtype) for t in weights(tmp_path / "out").values()} == {"torch.bfloat16"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "roberta"])
def test_a_model_s_own_table_is_stretched_where_no_run_came(kind, saved, tmp_path):
    source, (name, offset) = saved(kind), TABLES[kind]
    done = inject_folder(
        source, None, tmp_path / "out", extend_to=63, extend_by="interpolation", scale="own"
    )
    old = weights(source)[name].double().numpy()[offset:]
    new = weights(tmp_path / "out")[name].double().numpy()[offset:]
    np.testing.assert_allclose(new[::2], old, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(new[1::2], (old[1:] + old[:-1]) / 2, rtol=1e-5, atol=1e-8)
    tokenizer = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert tokenizer == {"model_max_length": 63, "lower": True}
    assert any("63 positions in place of 32" in sentence for sentence in done.said)
    assert any("all but the first and the last move" in sentence for sentence in done.said)


def in_this_process(folder, inputs):
    """What the fresh process would answer, without the seconds that its imports take."""
    model, unfit = reload.load(folder)
    found = {
        "class": type(model).__name__,
        "tensors": reload.digests(model),
        "rotary": reload.rotary(model),
        "unfit": unfit,
        "foreign": [],
    }
    return found, reload.outputs(model, inputs).copy()


@pytest.mark.parametrize("kind", TABLES)
def test_a_model_s_own_table_gets_a_tail(kind, saved, tmp_path, monkeypatch):
    """By default its rows stay, so a causal model says of a short text what it said before."""
    monkeypatch.setattr(folder_module, "_in_fresh_process", in_this_process)
    source, (name, offset) = saved(kind), TABLES[kind]
    done = inject_folder(source, None, tmp_path / "out", extend_to=48)
    old, new = weights(source)[name], weights(tmp_path / "out")[name]
    assert len(new) == 48 + offset
    assert torch.equal(new[: N + offset], old)
    assert bool(new[N + offset :].abs().amax(dim=1).gt(0).all())
    assert any(f"its own {N} rows are as they were" in sentence for sentence in done.said)
    assert any("rows hidden and carried to, the stress" in sentence for sentence in done.said)
    about = json.loads((tmp_path / "out" / "posgeom.json").read_text())
    assert about["encoding"]["extended"]["methods"] == ["given", "harmonic"]
    ids = torch.from_numpy(np.random.default_rng(0).integers(4, VOCAB, (1, N)))
    with torch.no_grad():
        before, after = (reload.load(f)[0].eval()(ids)[0] for f in (source, tmp_path / "out"))
    torch.testing.assert_close(after, before, rtol=0, atol=1e-6)


def test_half_precision_rows_stay_to_the_last_bit(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(folder_module, "_in_fresh_process", in_this_process)
    source = saved("gpt2", dtype=torch.bfloat16)
    inject_folder(source, None, tmp_path / "out", extend_to=48)
    old, new = (weights(f)["transformer.wpe.weight"] for f in (source, tmp_path / "out"))
    assert new.dtype == torch.bfloat16
    assert torch.equal(new[:N], old)


def left_behind(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda found, there: found["tensors"].update({"transformer.wpe.weight": "x"}), "bytes"),
        (lambda found, there: found["tensors"].pop("transformer.ln_f.bias"), "other bytes"),
        (lambda found, there: found["unfit"]["missing_keys"].append("a.b"), "the missing keys"),
        (lambda found, there: found["foreign"].append("posgeom"), "loaded posgeom"),
        (lambda found, there: there.__setitem__((0, 0), 9e9), "outputs differ by"),
        (lambda found, there: there.__setitem__((0, 0), np.nan), "NaN or infinity"),
    ],
)
def test_what_cannot_be_verified_is_refused_and_leaves_nothing(
    saved, tmp_path, monkeypatch, spoil, says
):
    """The fresh process's answer, made in this one and spoilt."""
    source = saved("gpt2")
    before = left_behind(tmp_path)

    def spoilt(folder, inputs):
        found, there = in_this_process(folder, inputs)
        spoil(found, there)
        return found, there

    monkeypatch.setattr(folder_module, "_in_fresh_process", spoilt)
    with pytest.raises(PosgeomError, match=says):
        inject_folder(source, table(), tmp_path / "out")
    assert left_behind(tmp_path) == before


def test_a_folder_that_holds_something_else_is_not_touched(saved, tmp_path):
    source = saved("gpt2")
    with pytest.raises(PosgeomError, match="already holds"):
        inject_folder(source, table(), source)
    with pytest.raises(PosgeomError, match="no file of a run"):
        inject_folder(source, table(), source, force=True)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"config.json": "{}"}, "holds no model.safetensors"),
        ({"config.json": "{}", "model.safetensors": "x" * 99}, "cannot be read as .safetensors"),
        ({}, "has no config.json"),
    ],
)
def test_a_folder_without_a_model_is_refused(tmp_path, content, says):
    source = tmp_path / "m"
    source.mkdir()
    for name, text in content.items():
        (source / name).write_text(text)
    with pytest.raises(PosgeomError, match=says):
        inject_folder(source, table(), tmp_path / "out")
    assert left_behind(tmp_path) == ["m"]


class Shout:
    """A pickle of this writes a file when it is opened."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return (open, (str(self.file), "w"))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model.bin.index.json"])
def test_a_model_in_a_pickle_is_refused_and_not_opened(saved, tmp_path, run_cli, name):
    source = saved("gpt2")
    (source / "model.safetensors").unlink()
    torch.save({"transformer.wpe.weight": Shout(tmp_path / "ran")}, source / "pytorch_model.bin")
    if name.endswith("json"):
        (source / "pytorch_model.bin").rename(source / "a.bin")
        (source / name).write_text('{"weight_map": {"transformer.wpe.weight": "a.bin"}}')
    before = left_behind(tmp_path)
    ran = run_cli("inject", source, "--extend", 48, "--out", tmp_path / "out")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert f"holds its weights in {name}, a pickle, which can run code" in ran.err
    assert "save the model as safetensors" in ran.err
    assert left_behind(tmp_path) == before


def test_a_pickle_beside_safetensors_is_neither_opened_nor_carried(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(folder_module, "_in_fresh_process", in_this_process)
    source = saved("gpt2")
    for name in ("pytorch_model.bin", "adapter_model.bin", "optimizer.pt"):
        torch.save({"transformer.wpe.weight": Shout(tmp_path / "ran")}, source / name)
    inject_folder(source, table(), tmp_path / "out")
    assert left_behind(tmp_path) == ["gpt2", "out"]
    assert not [n for n in left_behind(tmp_path / "out") if n.endswith((".bin", ".pt"))]


def test_a_shard_that_is_a_pickle_is_not_opened(saved, tmp_path):
    source = saved("gpt2")
    (source / "model.safetensors").unlink()
    torch.save({"transformer.wpe.weight": Shout(tmp_path / "ran")}, source / "a.bin")
    index = {"metadata": {}, "weight_map": {"transformer.wpe.weight": "a.bin"}}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(PosgeomError, match=r"a\.bin ends in \.bin"):
        inject_folder(source, table(), tmp_path / "out")
    assert left_behind(tmp_path) == ["gpt2"]


def test_a_link_to_a_device_is_not_carried(saved, tmp_path, monkeypatch):
    """A copy of /dev/zero would have no end."""
    monkeypatch.setattr(folder_module, "_in_fresh_process", in_this_process)
    source = saved("gpt2")
    (source / "vocab.txt").symlink_to("/dev/zero")
    (source / "merges.txt").symlink_to(source / "tokenizer_config.json")
    inject_folder(source, table(), tmp_path / "out")
    assert "vocab.txt" not in left_behind(tmp_path / "out")
    assert not (tmp_path / "out" / "merges.txt").is_symlink()


def test_missing_weights_are_not_made_up(saved, tmp_path):
    from safetensors.torch import save_file

    source = saved("bert")
    kept = {k: v for k, v in weights(source).items() if "layer.1.output.dense.weight" not in k}
    save_file(kept, source / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(PosgeomError, match=r"lack .*layer\.1\.output\.dense\.weight of a BertFor"):
        inject_folder(source, table(), tmp_path / "out")


# -- the command ----------------------------------------------------------------------------------


@pytest.fixture
def exported(tmp_path):
    """A file that holds ROWS as a table."""
    tensors = tensors_of(table(), N)
    made = Emission(table(), tensors, describe(table(), tensors))
    export(made, "npz", tmp_path / "rows.npz")
    return tmp_path / "rows.npz"


def test_the_command_says_what_changed_and_what_it_wants(
    saved, tmp_path, exported, posgeom_ok, monkeypatch
):
    monkeypatch.setattr(folder_module, "_in_fresh_process", in_this_process)
    ran = posgeom_ok("inject", saved("gpt2"), exported, "--out", tmp_path / "out")
    assert "changed: transformer.wpe.weight" in ran.out
    assert "28 other tensors of the GPT2LMHeadModel are byte for byte the same" in ran.out
    assert "wants fine-tuning" in ran.err
    assert "root mean square norm" in ran.err
    about = json.loads((tmp_path / "out" / "posgeom.json").read_text())
    assert about["encoding"]["encoding"] == "mds:rank=3"
    again = posgeom_ok(
        "inject", saved("gpt2"), exported, "--out", tmp_path / "out", "--force", "--json", "--quiet"
    )
    assert again.err == ""
    assert json.loads(again.out)["changed"] == ["transformer.wpe.weight"]
    assert weights(tmp_path / "out").keys() == weights(tmp_path / "gpt2").keys()


def test_a_file_s_table_gets_a_tail_too(saved, tmp_path, exported, posgeom_ok, monkeypatch):
    monkeypatch.setattr(folder_module, "_in_fresh_process", in_this_process)
    out = tmp_path / "out"
    posgeom_ok("inject", saved("gpt2"), exported, "--extend", 40, "--scale", "own", "--out", out)
    rows = weights(out)["transformer.wpe.weight"].numpy()
    assert rows.shape == (40, D)
    np.testing.assert_array_equal(rows[:N], ROWS.astype(np.float32))
    about = json.loads((out / "posgeom.json").read_text())
    assert about["encoding"]["extended"]["from"] == N


def test_a_run_s_extension_reaches_into_the_model(
    saved, tmp_path, full_run, posgeom_ok, monkeypatch
):
    """A run of 8 positions and width 16, in a model that is made 12 long."""
    monkeypatch.setattr(folder_module, "_in_fresh_process", in_this_process)
    source = saved("gpt2", n_positions=8, n_embd=16)
    out = tmp_path / "out"
    posgeom_ok("inject", source, full_run.folder, "--extend", 12, "--scale", "own", "--out", out)
    expected = emission_of(Design.load(full_run.folder), extend_to=12).tensors["table"]
    np.testing.assert_array_equal(weights(out)["transformer.wpe.weight"].numpy(), expected)
    assert json.loads((out / "config.json").read_text())["n_positions"] == 12
    about = json.loads((out / "posgeom.json").read_text())
    assert about["encoding"]["extended"]["methods"] == ["given", "harmonic"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["RUN"], "has 8 positions, the model 32; design with --positions 32"),
        (
            ["RUN", "--extend", "32"],
            "has 16 dimensions, the model's table 48; design with --dim 48",
        ),
        (["RUN", "--encoding", "alibi"], "takes a table, such as --encoding mds:dim=48"),
        (
            ["RUN", "--encoding", "sinusoidal:dim=48", "--scale", "big"],
            "give match, own or a number",
        ),
        (["RUN", "--encoding", "sinusoidal:dim=48", "--scale", "-1"], "give a positive number"),
        (["FILE", "--encoding", "rope"], "which holds one; give a run"),
        ([], "no run came to take an encoding from"),
        (["--extend-by", "harmonic"], "came without --extend; say how far to extend"),
        (["--extend", "48", "--extend-by", "gower"], "no distances are known past the end"),
        (["--extend", "48", "--extend-by", "hold"], "use gower, harmonic, interpolation"),
        (["--extend", "48", "--scale", "3"], "the model's own rows keep their size"),
        (["--extend", "16"], "has 32 positions; give 32 or more"),
        (
            ["RUN", "--encoding", "sinusoidal", "--extend", "48", "--extend-by", "harmonic"],
            "sinusoidal is defined everywhere; leave it out",
        ),
        (["--encoding", "rope"], "came without a RUN"),
        (["nowhere"], "is not the folder of a run"),
    ],
)
def test_bad_requests_are_one_line_and_leave_nothing(
    arguments, says, saved, tmp_path, full_run, exported, run_cli, monkeypatch
):
    monkeypatch.setattr(folder_module, "_in_fresh_process", in_this_process)
    source = saved("gpt2")
    before = left_behind(tmp_path)
    places = {"RUN": full_run.folder, "FILE": exported}
    words = [places.get(word, word) for word in arguments]
    ran = run_cli("inject", source, *words, "--out", tmp_path / "out")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1, ran.err
    assert says in ran.err
    assert left_behind(tmp_path) == before


# -- real tables ----------------------------------------------------------------------------------

DATA = os.environ.get("POSGEOM_DATA", "")
REAL = {
    "gpt2": ("gpt2-small-1024x768.npy", {"n_embd": 768, "n_positions": 1024, "n_head": 12}),
    "minilm": ("minilm-l6-h384-512.npy", {"hidden_size": 384, "max_position_embeddings": 512}),
    "mpnet": (
        "all-mpnet-base-v2-514x768.npy",
        {"hidden_size": 768, "num_attention_heads": 12, "max_position_embeddings": 514},
    ),
    "gpt": ("openai-gpt-512x768.npy", {"n_embd": 768, "n_positions": 512, "n_head": 12}),
}


def real(kind):
    file = Path(DATA) / "learned" / REAL[kind][0]
    if not (DATA and file.is_file()):
        pytest.skip(f"POSGEOM_DATA has no learned/{file.name}")
    model = tiny(kind, **REAL[kind][1])
    name, offset = TABLES[kind]
    return (
        inject(model, make_encoding(f"learned:{file}"), scale="own"),
        name,
        np.load(file)[offset:],
    )


@pytest.mark.parametrize("kind", REAL)
def test_a_real_table_comes_through_byte_by_byte(kind):
    model, name, rows = real(kind)
    new = model.state_dict()[name][TABLES[kind][1] :]
    assert new.numpy().tobytes() == rows.astype("<f4").tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("kind", REAL)
def test_a_model_with_a_real_table_reloads_in_a_fresh_process(kind, tmp_path):
    """Its own table out as a file, and back into another model of its kind."""
    model, name, rows = real(kind)
    model.save_pretrained(tmp_path / "real")
    export(emission_of_model(tmp_path / "real"), "safetensors", tmp_path / "rows")
    tiny(kind, **REAL[kind][1]).save_pretrained(tmp_path / "other")
    encoding = read_emission(tmp_path / "rows").encoding
    done = inject_folder(tmp_path / "other", encoding, tmp_path / "out", scale="own")
    assert done.changed == (name,)
    new = weights(tmp_path / "out")[name].numpy()[TABLES[kind][1] :]
    assert new.tobytes() == rows.astype("<f4").tobytes()


RUN_AT_1500 = """
import json, sys, torch, transformers
transformers.utils.logging.disable_progress_bar()
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
ids = torch.arange(1501)[None] % 64
with torch.no_grad():
    said = model(ids).logits[0]
assert not [name for name in sys.modules if name.startswith("posgeom")]
print(json.dumps([said[1500].tolist(), said[900].tolist()]))
"""


@pytest.mark.slow
def test_gpt2_s_own_table_gets_a_tail_to_2048(tmp_path):
    """Loaded by plain transformers in a process of its own, and run at position 1,500."""
    model, name, rows = real("gpt2")
    model.save_pretrained(tmp_path / "gpt2")
    done = inject_folder(tmp_path / "gpt2", None, tmp_path / "long", extend_to=2048)
    new = weights(tmp_path / "long")[name].numpy()
    assert new.shape == (2048, 768)
    assert new[:1024].tobytes() == rows.astype("<f4").tobytes()
    config = json.loads((tmp_path / "long" / "config.json").read_text())
    assert config["n_positions"] == 2048
    sizes = np.linalg.norm(new, axis=1)
    assert sizes[1024:].min() > np.median(sizes[:1024]) / 2
    assert sizes[1024:].max() < 2 * sizes[:1024].max()
    # within the tail, neighbours are nearest: rows tell their order
    tail = new[1024:].astype(np.float64)
    apart = cdist(tail, new)
    apart[np.arange(1024), np.arange(1024, 2048)] = np.inf
    assert np.abs(apart.argmin(axis=1) - np.arange(1024, 2048)).max() == 1
    about = json.loads((tmp_path / "long" / "posgeom.json").read_text())["encoding"]["extended"]
    assert about["held_out"]["harmonic"] < 0.15
    assert any("0 is exact" in sentence for sentence in done.said)
    ran = subprocess.run(
        [sys.executable, "-P", "-c", RUN_AT_1500, str(tmp_path / "long")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    far, near = np.array(json.loads(ran.stdout))
    ids = torch.arange(1501)[None] % VOCAB
    longer = tiny("gpt2", **REAL["gpt2"][1] | {"n_positions": 2048})
    longer.load_state_dict(model.state_dict() | {name: torch.from_numpy(new)})
    with torch.no_grad():
        before, after = model(ids[:, :1024]).logits[0], longer(ids).logits[0]
    np.testing.assert_allclose(near, before[900].numpy(), atol=2e-5 * float(before.abs().max()))
    np.testing.assert_allclose(far, after[1500].numpy(), atol=2e-5 * float(after.abs().max()))


@pytest.mark.slow
def test_gpt2_s_own_table_can_be_stretched(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_module, "_in_fresh_process", in_this_process)
    model, name, rows = real("gpt2")
    model.save_pretrained(tmp_path / "gpt2")
    inject_folder(
        tmp_path / "gpt2", None, tmp_path / "long", extend_to=2048, extend_by="interpolation"
    )
    new = weights(tmp_path / "long")[name].numpy()
    np.testing.assert_array_equal(new[[0, -1]], rows[[0, -1]])  # as large as they were
    places = np.arange(2048) * 1023 / 2047
    between = np.column_stack([np.interp(places, np.arange(1024), x) for x in rows.T])
    np.testing.assert_allclose(new, between, rtol=1e-5, atol=1e-6)
