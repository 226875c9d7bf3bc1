"""`posgeom inspect`, `posgeom encodings` and the spec `model:PATH` through the command line."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from posgeom import make_encoding
from posgeom.encodings import FAMILIES
from posgeom.passport.catalogue import catalogue

RNG = np.random.default_rng(0)
GPT2 = {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 10}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 2,
    "max_position_embeddings": 2048,
    "rope_theta": 500_000.0,
    "dtype": "bfloat16",
}
SHAPES = {
    "wpe.weight": (10, 8),
    "wte.weight": (20, 8),
    "h.0.ln_1.weight": (8,),
    "h.0.ln_1.bias": (8,),
    "h.0.attn.c_attn.weight": (8, 24),
    "h.0.attn.c_attn.bias": (24,),
}


def write_config(folder, config):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def gpt2(tmp_path):
    """A GPT-2 of one layer, random."""
    folder = write_config(tmp_path / "a gpt2", GPT2)
    tensors = {k: RNG.standard_normal(s).astype(np.float32) for k, s in SHAPES.items()}
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture
def llama(tmp_path):
    """The config of a Llama, without weights."""
    return write_config(tmp_path / "llama", LLAMA)


def test_inspect_tells_a_rotary_model_in_lines(llama, posgeom_ok):
    ran = posgeom_ok("inspect", llama)
    told = {line[:26].strip(): line[26:] for line in ran.out.splitlines()}
    assert told["pairing"] == "halves"
    assert told["base"] == "500,000"
    assert told["dimensions"] == "32"
    assert told["attention factor"] == "1"
    assert told["maximum length"] == "2,048"
    assert told["longer than trained"] == "8 of 16"
    assert told["past the end"] == "degrades silently"
    assert told["parameters"] == "0"
    assert ran.out.startswith(f"{llama}: llama, bfloat16\n")
    assert ran.err == ""


def test_inspect_tells_an_additive_model_in_lines(gpt2, posgeom_ok):
    out = posgeom_ok("inspect", gpt2).out
    for words in ("norms of positions", "content-position", "shift invariance left", "layer 0"):
        assert words in out
    assert out.count("shift invariance left") == 2
    assert "±" in out
    assert "b_q and b_k go with the content" in out


def test_inspect_json_is_one_object(gpt2, llama, posgeom_ok):
    for folder in (gpt2, llama):
        ran = posgeom_ok("inspect", folder, "--json")
        about = json.loads(ran.out)
        assert ran.out.count("\n") == 1
        assert set(about) == {
            "path",
            "model_type",
            "dtype",
            "encodings",
            "norms",
            "content",
            "tokens",
            "notes",
        }
    assert about["encodings"][0]["first_collision"] == {"bf16": None, "fp16": None}
    assert len(about["encodings"][0]["wavelengths"]) == 16


def test_seed_and_tokens_reach_the_draw(gpt2, tmp_path, posgeom_ok):
    (tmp_path / "ids.txt").write_text("1 2 3")
    runs = [
        posgeom_ok("inspect", gpt2, "--json", *more).out
        for more in ((), (), ("--seed", 1), ("--tokens", tmp_path / "ids.txt"))
    ]
    assert runs[0] == runs[1]
    assert len(set(runs)) == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--layer", 3), "--layer 3 came; the model has layers 0 to 0"),
        (("--tokens", "gone.txt"), "--tokens gone.txt cannot be read"),
        (("--seed", -1), "--seed -1 came; give 0 or more"),
    ],
)
def test_bad_options_are_one_line_and_exit_2(gpt2, run_cli, arguments, words):
    ran = run_cli("inspect", gpt2, *arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert words in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (None, "has no config.json"),
        ({"model_type": "no-such"}, "is not known"),
        ({"hidden_size": 4}, "says nothing of positions"),
        (LLAMA | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
        (GPT2, "holds no model.safetensors"),
    ],
)
@pytest.mark.parametrize("command", ["inspect", "score"])
def test_folders_that_say_nothing_are_one_line_and_exit_2(
    tmp_path, text_file, run_cli, config, words, command
):
    folder = tmp_path / "m"
    folder.mkdir() if config is None else write_config(folder, config)
    arguments = ("inspect", folder)
    if command == "score":
        arguments = ("score", text_file, "--positions", 8, "--encoding", f"model:{folder}")
    ran = run_cli(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert words in ran.err
    assert ran.err.count("\n") == 1


def test_pickles_are_refused_with_what_to_do(tmp_path, run_cli):
    folder = write_config(tmp_path / "m", GPT2)
    (folder / "pytorch_model.bin").write_bytes(b"x")
    ran = run_cli("inspect", folder)
    assert ran.code == 2
    assert "pickle" in ran.err
    assert "save_pretrained" in ran.err


def test_model_specs_are_scored_by_their_name(gpt2, llama, text_file, posgeom_ok):
    specs = [f"model:{gpt2}", f"model:{llama}", "rope:dim=32,base=500000"]
    flags = [part for spec in specs for part in ("--encoding", spec)]
    out = posgeom_ok("score", text_file, "--positions", 8, "--json", "--quiet", *flags).out
    rows = json.loads(out)["scores"]
    assert [row["encoding"] for row in rows] == specs
    assert rows[1]["stress"] == rows[2]["stress"]
    assert [row["family"] for row in rows] == ["learned", "rope", "rope"]


def test_model_without_a_path_is_refused(text_file, run_cli):
    ran = run_cli("score", text_file, "--positions", 8, "--encoding", "model:")
    assert ran.code == 2
    assert "use model:PATH" in ran.err


def test_encodings_lists_every_family_with_its_options(posgeom_ok):
    out = posgeom_ok("encodings").out
    for family in FAMILIES:
        assert f"\n{family}" in f"\n{out}"
    for spec in ("learned:PATH[#KEY]", "model:PATH[#LAYERS]", "mds:rank=r", "base=10000"):
        assert spec in out
    assert "flops" not in out


def test_encodings_json_has_options_and_a_sentence(posgeom_ok):
    entries = json.loads(posgeom_ok("encodings", "--json").out)["encodings"]
    assert {e["family"] for e in entries} >= {*FAMILIES, "learned", "model", "mds"}
    for e in entries:
        assert e["about"].endswith(".")
        assert e["cost"] is None
    assert next(e for e in entries if e["family"] == "rope")["options"]["base"] == 10_000


def test_listed_options_make_the_encoding_they_show(posgeom_ok):
    """What stands behind a family's name is a spec, once the empty options are left out."""
    for line in posgeom_ok("encodings").out.splitlines():
        family, _, options = line.partition(":")
        if family in FAMILIES:
            given = [o for o in options.split(",") if o and not o.endswith("=")]
            assert make_encoding(f"{family}:{','.join(given)}").family == family


def test_costs_are_given_with_the_three_sizes(posgeom_ok):
    sizes = ("--dim", 768, "--heads", 12, "--length", 1024)
    told = json.loads(posgeom_ok("encodings", *sizes, "--json").out)
    entries = {e["family"]: e for e in told["encodings"]}
    for family in (*FAMILIES, "learned"):
        cost = entries[family]["cost"]
        assert set(cost) == {"parameters", "flops", "bytes", "past_end"}
        assert cost["past_end"]
    assert entries["learned"]["cost"]["parameters"] == 786_432  # GPT-2 small
    assert entries["learned"]["cost"]["past_end"] == "error"
    assert entries["rope"]["cost"]["parameters"] == 0
    assert entries["t5"]["cost"]["parameters"] == 32 * 12
    assert "786,432 parameters" in posgeom_ok("encodings", *sizes).out


def test_the_length_alone_shows_what_a_small_model_pays(posgeom_ok):
    own = posgeom_ok("encodings", "--length", 64).out
    assert own == posgeom_ok("encodings", "--dim", 128, "--heads", 8, "--length", 64).out
    assert "flops" in own


def test_a_long_learned_table_takes_no_memory_to_cost():
    entries = {e.family: e for e in catalogue(768, 12, 32_768)}
    assert entries["learned"].cost.parameters == 25_165_824


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--heads", 4), "--heads came without --length"),
        (("--dim", 64), "--dim came without --length"),
        (("--dim", 64, "--heads", 4), "--dim came without --length"),
        (("--dim", 0, "--length", 8), "--dim 0 came"),
        (("--length", 0), "--length 0 came"),
        (("--dim", 64, "--heads", 0, "--length", 8), "--heads 0"),
        (("--dim", 65, "--heads", 2, "--length", 8), "heads must divide the width"),
    ],
)
def test_sizes_that_make_no_model_are_refused(run_cli, arguments, words):
    ran = run_cli("encodings", *arguments)
    assert ran.code == 2
    assert words in ran.err
    assert ran.err.count("\n") == 1
