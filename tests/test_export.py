"""An encoding in every format: the numbers, the passport, and what is refused."""

import csv
import hashlib
import io
import json
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file
from scipy.spatial.distance import cdist

from posgeom import Design, PosgeomError, cli_emit, make_encoding
from posgeom.emit.emission import Emission, carried, describe, emission_of, emission_of_model
from posgeom.emit.export import FORMATS, export
from posgeom.emit.forms import tensors_of
from posgeom.emit.hf_config import factors, hf_config, one_base
from posgeom.emit.reading import read_emission
from posgeom.emit.tail import with_tail
from posgeom.encodings import Alibi, FixedTable, T5Bias, alibi_slopes
from posgeom.encodings.table import frequencies

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((6, 4))


@pytest.fixture(scope="module")
def run(full_run):
    return Design.load(full_run.folder)


def emission(encoding, n=6):
    tensors = tensors_of(encoding, n)
    return Emission(encoding, tensors, describe(encoding, tensors))


def read(format, file):
    """The first tensor and the passport without its digest, by each format's own reader."""
    table, passport = read_sealed(format, file)
    assert len(passport.pop("sha256")) == 64
    return table, passport


def read_sealed(format, file):
    if format == "safetensors":
        with safe_open(file, framework="np") as tensors:
            return tensors.get_tensor("table"), json.loads(tensors.metadata()["posgeom"])
    if format == "npz":
        with np.load(file, allow_pickle=False) as arrays:
            return arrays["table"], json.loads(arrays["passport"].tobytes())
    if format == "npy":
        beside = file.with_name(file.name + ".json").read_text(encoding="utf-8")
        return np.load(file, allow_pickle=False), json.loads(beside)
    if format == "csv":
        first, header, *lines = file.read_text(encoding="utf-8").splitlines()
        rows = list(csv.reader(lines))
        assert [row[0] for row in rows] == [str(p) for p in range(len(rows))]
        assert header.startswith("position,0,1,")
        return np.array(rows)[:, 1:].astype(np.float32), json.loads(first.removeprefix("# "))
    if format == "torch":
        torch = pytest.importorskip("torch")
        state = torch.load(file, weights_only=True)
        return state["table"].numpy(), json.loads(state["passport"].numpy().tobytes())
    held = json.loads(file.read_text(encoding="utf-8"))
    return np.array(held["tensors"]["table"], dtype=np.float32), held["passport"]


# -- formats --------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", [f for f in FORMATS if f != "hf-config"])
def test_each_format_holds_the_run_s_table_and_its_passport(format, run, tmp_path):
    if format == "torch":
        pytest.importorskip("torch")
    made = emission_of(run)
    file = tmp_path / "e"
    written = export(made, format, file)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in written)
    table, passport = read(format, file)
    np.testing.assert_array_equal(table, run.low_rank.table().astype(np.float32))
    assert table.dtype == np.float32
    assert passport == json.loads(json.dumps(made.passport))
    row = run.scores.set_index("encoding").loc[f"mds:rank={run.low_rank.rank}"]
    assert passport["stress"] == pytest.approx(
        {"value": row.stress, "se": row.stress_se, "low": row.stress_low, "high": row.stress_high}
    )
    assert passport["scale"] == pytest.approx(row.scale)
    assert passport["fingerprint"] == run.provenance["fingerprint"]
    assert (passport["family"], passport["offset"], passport["dtype"]) == ("mds", 0, "float32")
    assert passport["positions"] == 8


@pytest.mark.parametrize("format", FORMATS)
def test_equal_runs_give_equal_bytes(format, full_run, tmp_path):
    if format == "torch":
        pytest.importorskip("torch")
    name = "rope:dim=8" if format == "hf-config" else None
    for file in ("a", "b"):
        export(emission_of(Design.load(full_run.folder), name), format, tmp_path / file)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_safetensors_header_is_this_one(tmp_path):
    made = Emission(make_encoding("none"), {"slopes": np.array([0.5, 0.25])}, {"b": 1, "a": "é"})
    export(made, "safetensors", tmp_path / "e")
    content = (tmp_path / "e").read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    # the passport on one line, then each tensor's name, shape and bytes
    hashed = '{"a": "é", "b": 1}slopes (2,)'.encode() + np.array([0.5, 0.25]).tobytes()
    digest = hashlib.sha256(hashed).hexdigest()
    assert (
        content[8 : 8 + size].rstrip()
        == (
            '{"__metadata__":{"posgeom":"{\\"a\\": \\"é\\", \\"b\\": 1, \\"sha256\\": '
            '\\"' + digest + '\\"}"},"slopes":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}}'
        ).encode()
    )
    assert content[8 + size :] == np.array([0.5, 0.25]).tobytes()


@pytest.mark.parametrize(
    "view",
    [ROWS.T, ROWS[::2], ROWS[:, 1:3], np.asfortranarray(ROWS), ROWS[::-1], ROWS[:3][:, ::-1]],
)
def test_views_are_written_as_they_read(view, tmp_path):
    """safetensors writes the bytes under a view, whatever its strides, unless it is copied."""
    made = emission(FixedTable(rows=view))
    assert made.tensors["table"].flags["C_CONTIGUOUS"]
    for format in ("safetensors", "npz", "json"):
        export(made, format, tmp_path / format)
        table, _ = read(format, tmp_path / format)
        np.testing.assert_array_equal(table, view.astype(np.float32))


@pytest.mark.parametrize("format", ["safetensors", "npz", "torch", "json"])
def test_tensors_that_share_their_memory_are_all_written(format, tmp_path):
    """One array under two names, a part of it and its transpose; torch's own writer refuses two."""
    if format == "torch":
        pytest.importorskip("torch")
    table = FixedTable(rows=ROWS)
    x = ROWS.astype(np.float32)
    tensors = {"table": x, "A": x, "B": x[1:3, ::2], "C": x.T}
    export(Emission(table, tensors, describe(table, tensors)), format, tmp_path / "e")
    again = read_emission(tmp_path / "e").tensors
    assert again.keys() == tensors.keys()
    for name, wanted in tensors.items():
        np.testing.assert_array_equal(again[name], wanted)


def test_an_npz_holds_no_pickle(run, tmp_path):
    export(emission_of(run), "npz", tmp_path / "e.npz")
    with zipfile.ZipFile(tmp_path / "e.npz") as members:
        for name in members.namelist():
            header = members.read(name)[:128]
            assert b"'|O'" not in header
            assert b"'descr'" in header


def test_csv_readers_take_the_passport_for_a_comment(tmp_path):
    import pandas as pd

    made = emission(make_encoding("rope:dim=8"))
    export(made, "csv", tmp_path / "e.csv")
    read_back = pd.read_csv(tmp_path / "e.csv", comment="#")
    assert list(read_back.columns) == ["pair", "inv_freq"]
    assert read_back["inv_freq"].tolist() == frequencies(8, 10_000).tolist()
    again = np.loadtxt(tmp_path / "e.csv", delimiter=",", skiprows=2)
    assert again[:, 1].tolist() == frequencies(8, 10_000).tolist()


@given(st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=1, max_size=6))
def test_csv_keeps_every_bit(values):
    made = emission(FixedTable(rows=np.array([values])))
    text = FORMATS["csv"](made).decode().splitlines()[2]
    back = np.array(next(csv.reader(io.StringIO(text)))[1:]).astype(np.float32)
    assert back.tobytes() == np.array(values, dtype=np.float32).tobytes()


def test_a_file_that_is_there_is_kept(run, tmp_path):
    made = emission_of(run)
    (tmp_path / "e.npy.json").write_text("mine")
    with pytest.raises(PosgeomError, match=r"e\.npy\.json is there already"):
        export(made, "npy", tmp_path / "e.npy")
    assert [p.name for p in tmp_path.iterdir()] == ["e.npy.json"]
    export(made, "npy", tmp_path / "e.npy", force=True)
    assert json.loads((tmp_path / "e.npy.json").read_text()) == made.sealed


# -- which numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "name", "shape"),
    [
        ("sinusoidal:dim=4", "table", (6, 4)),
        ("rope:dim=8", "inv_freq", (4,)),
        ("rope:dim=8,rotary=0.5", "inv_freq", (2,)),
        ("rope-2d:dim=8", "inv_freq", (4,)),
        ("xpos:dim=8", "inv_freq", (4,)),
        ("alibi:heads=6", "slopes", (6,)),
        ("t5:buckets=8,max_distance=20", "bias_table", (8, 1)),
        ("kerple", "bias", (11, 1)),
        ("sandwich:heads=2,dim=8", "bias", (11, 2)),
        ("shaw:dim=4,clip=3", "vectors", (7, 4)),
    ],
)
def test_each_kind_has_its_first_tensor(spec, name, shape):
    made = emission(make_encoding(spec))
    assert made.main == name
    assert made.tensors[name].shape == shape
    assert made.passport["spec"].partition(":")[0] == made.encoding.family


def test_a_bias_by_offset_is_that_of_its_formula():
    encoding = make_encoding("kerple")
    tensors = tensors_of(encoding, 5)
    at = dict(zip(tensors["offsets"].tolist(), tensors["bias"][:, 0].tolist(), strict=True))
    expected = encoding.bias(0, range(5), range(5))
    for i in range(5):
        for j in range(5):
            assert at[i - j] == pytest.approx(expected[i, j], rel=1e-6)


@pytest.mark.parametrize("format", ["safetensors", "npz", "torch", "json", "npy", "csv"])
def test_xpos_is_whole_in_every_format(format, tmp_path):
    """What turns, what decays, and the two numbers that the decay is made of."""
    made = emission(make_encoding("xpos:dim=8,gamma=0.3,scale_base=99"))
    if format == "torch":
        pytest.importorskip("torch")
    export(made, format, tmp_path / "e")
    if format in ("npy", "csv"):  # of one array: the passport has the rest
        text = (tmp_path / ("e.json" if format == "npy" else "e")).read_text()
        passport = json.loads(text.splitlines()[0].removeprefix("# "))
    else:
        again = read_emission(tmp_path / "e")
        passport = again.passport
        k = np.arange(4)
        wanted = ((2 * k / 8 + 0.3) / 1.3) ** (1 / 99)
        np.testing.assert_allclose(again.tensors["decay"], wanted, rtol=1e-15)
    assert (passport["gamma"], passport["scale_base"]) == (0.3, 99)
    assert passport["pairing"] == "interleaved"


@pytest.mark.parametrize("spec", ["none", "fire"])
def test_what_no_layer_holds_is_refused(spec):
    with pytest.raises(PosgeomError, match=f"{spec} has no numbers that a layer could hold"):
        tensors_of(make_encoding(spec), 6)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e39])
def test_numbers_that_float32_does_not_hold_are_refused(wrong):
    rows = ROWS.copy()
    rows[2, 1] = wrong
    with pytest.raises(PosgeomError, match="holds NaN or infinity as float32"):
        tensors_of(FixedTable(rows=rows), 6)


def test_left_out_positions_travel():
    table = FixedTable(rows=ROWS, index=np.array([0, 1, 3, 4, 6, 7]))
    made = emission(table)
    assert made.tensors["positions"].tolist() == [0, 1, 3, 4, 6, 7]
    text = FORMATS["csv"](made).decode().splitlines()[2:]
    assert [line.partition(",")[0] for line in text] == list("013467")
    assert made.passport["row_positions"] == [0, 1, 3, 4, 6, 7]  # which npy has nowhere else


def test_a_spec_that_the_run_did_not_score_is_made_for_its_corpus(run):
    made = emission_of(run, "fitted-rope:dim=6")
    again = make_encoding(made.passport["spec"])
    np.testing.assert_array_equal(again.inv_freq, made.tensors["inv_freq"])
    assert 0 <= made.passport["stress"]["value"] <= 1
    with pytest.raises(PosgeomError, match="'nonsense' is not known"):
        emission_of(run, "nonsense")


def test_the_factors_make_the_table(run):
    tensors = emission_of(run).tensors
    product = tensors["A"].astype(np.float64) @ tensors["B"].astype(np.float64).T
    np.testing.assert_allclose(product, tensors["table"], atol=1e-6)


def test_a_run_is_carried_on_where_more_positions_are_asked(run):
    made = emission_of(run, extend_to=12)
    assert made.tensors["table"].shape == (12, 16)
    np.testing.assert_array_equal(made.tensors["table"][:8], emission_of(run).tensors["table"])
    assert made.passport["extended"]["positions"] == 12
    assert set(made.passport["extended"]["methods"]) == {"given", "harmonic"}
    with pytest.raises(PosgeomError, match="the run has 8 positions; give 8 or more"):
        emission_of(run, extend_to=7)


# -- carried on -----------------------------------------------------------------------------------


def helix(n, seed=0):
    """Rows whose distances depend on the offset alone, and little noise: (n, 9)."""
    draw = np.random.default_rng(seed)
    angles = np.outer(np.arange(n), [0.05, 0.31, 0.9])
    turn = np.linalg.qr(draw.standard_normal((9, 6)))[0]
    rows = np.hstack([np.sin(angles), np.cos(angles)]) * [3, 2, 1, 3, 2, 1] @ turn.T
    return rows + 1e-3 * draw.standard_normal((n, 9))


def test_a_tail_leaves_the_rows_that_are_there_alone():
    """A table made of turns goes on turning: the tail has the distances of the longer helix."""
    known, full = helix(48)[:40], helix(64)
    longer, said = with_tail(FixedTable(rows=known), 64)
    assert longer.rows[:40].tobytes() == known.tobytes()
    assert longer.max_positions == 64
    wanted = cdist(full, full)[40:]
    assert np.abs(cdist(longer.rows, longer.rows)[40:] - wanted).max() < 0.05 * wanted.max()
    about = said["extended"]
    assert (about["positions"], about["from"], about["hidden"]) == (64, 40, 0.5)
    assert about["methods"] == ["given", "harmonic"]
    assert about["held_out"]["harmonic"] < 0.01 < about["held_out"]["interpolation"]


def test_a_tail_is_made_along_the_axes_that_stand_out():
    """Axes of noise, on which Gower's formula has nothing to go by, are left out of the tail."""
    draw = np.random.default_rng(3)
    rows = np.hstack([helix(64), 0.02 * draw.standard_normal((64, 40))])
    tail = with_tail(FixedTable(rows=rows), 128)[0].rows[64:]
    values = np.linalg.svd(tail - tail.mean(axis=0), compute_uv=False)
    assert int((values > 1e-9 * values[0]).sum()) <= 6
    sizes, own = (np.linalg.norm(x, axis=1) for x in (tail, rows))
    assert own.min() / 2 < sizes.min() <= sizes.max() < 2 * own.max()


def test_positions_that_were_left_out_get_rows_too():
    index = np.delete(np.arange(40), [7, 8])
    rows = helix(40)
    longer, said = with_tail(FixedTable(rows=rows[index], index=index), 44)
    assert longer.index is None
    np.testing.assert_array_equal(longer.rows[index], rows[index])
    assert np.abs(longer.rows[7] - rows[7]).max() < 0.1
    assert said["extended"]["from"] == 40


def test_a_stretched_table_keeps_its_ends_and_their_order():
    table = FixedTable(rows=np.arange(10.0)[:, None])
    longer, said = with_tail(table, 28, "interpolation")
    np.testing.assert_allclose(longer.rows[:, 0], np.arange(28) / 3)
    about = said["extended"]
    assert (about["positions"], about["from"]) == (28, 10)
    assert about["methods"] == ["interpolation"]


def test_nothing_is_carried_where_nothing_is_asked():
    table = FixedTable(rows=np.arange(10.0)[:, None])
    assert with_tail(table, 10) == (table, {})
    rope = make_encoding("rope:dim=8")
    assert carried(rope, 99, None) == (rope, {})


@pytest.mark.parametrize(
    ("rows", "m", "method", "says"),
    [
        (ROWS, 5, None, "has 6 positions; give 6 or more"),
        (ROWS, 9, None, "has 6 rows, too few to carry on and measure it; 8 are needed"),
        (np.ones((9, 2)), 12, None, "all alike"),
        (helix(9), 12, "gower", "no distances are known past the end"),
        (helix(9), 12, "hold", "use gower, harmonic, interpolation"),
    ],
)
def test_what_cannot_be_carried_on_is_refused(rows, m, method, says):
    with pytest.raises(PosgeomError, match=says):
        with_tail(FixedTable(rows=rows), m, method)


def test_the_way_can_be_said_for_a_run(run):
    made = emission_of(run, extend_to=12, extend_by="interpolation")
    assert made.passport["extended"]["methods"] == ["interpolation"]
    assert made.tensors["table"].shape == (12, 16)
    held_out = made.passport["extended"]["held_out"]
    assert set(held_out) == {"gower", "harmonic", "interpolation"}
    with pytest.raises(PosgeomError, match="is defined everywhere; leave it out"):
        emission_of(run, "sinusoidal:dim=16", 12, "harmonic")


# -- config.json ----------------------------------------------------------------------------------


def test_a_known_base_is_said_as_rope_theta():
    said = hf_config(make_encoding("rope:dim=8,base=500000"))
    assert said == {
        "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
        "rope_theta": 500_000.0,
        "rope_scaling": None,
    }


@given(st.floats(2, 1e7), st.integers(2, 64))
def test_frequencies_of_one_base_are_recognised(base, pairs):
    θ = frequencies(2 * pairs, base)
    listed = ";".join(map(str, θ.tolist()))
    assert one_base(make_encoding(f"rope:dim={2 * pairs},inv_freq={listed}")) == pytest.approx(base)
    if pairs > 2:
        θ[pairs // 2] *= 1.01
        listed = ";".join(map(str, θ.tolist()))
        assert one_base(make_encoding(f"rope:dim={2 * pairs},inv_freq={listed}")) is None


@given(st.lists(st.floats(1e-6, 4), min_size=2, max_size=64), st.floats(2, 1e7))
def test_factors_are_default_over_wanted(wanted, base):
    θ = np.array(wanted)
    λ = factors(θ, base)
    np.testing.assert_allclose(frequencies(2 * len(θ), base) / λ, θ, rtol=3e-6)


@pytest.mark.parametrize("spelling", ["newer", "older"])
def test_transformers_computes_these_frequencies(spelling):
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    encoding = make_encoding("rope:dim=16,inv_freq=2.5;1;0.6;0.3;0.07;0.004;0.0003;0")
    said = hf_config(encoding)
    keys = ("rope_parameters",) if spelling == "newer" else ("rope_theta", "rope_scaling")
    if spelling == "newer" and int(transformers.__version__.partition(".")[0]) < 5:
        pytest.skip("these transformers read the older spelling alone")
    config = transformers.LlamaConfig(
        hidden_size=64, num_attention_heads=4, **{key: said[key] for key in keys}
    )
    made = LlamaRotaryEmbedding(config=config)
    np.testing.assert_allclose(made.inv_freq.numpy(), encoding.inv_freq, rtol=1e-6, atol=1e-29)
    assert made.attention_scaling == 1


def test_slopes_of_the_rule_are_said_as_mpt_says_them():
    for heads in (4, 6, 12):
        said = hf_config(make_encoding(f"alibi:heads={heads},bias_max=6"))
        assert said["attn_config"] == {"alibi": True, "alibi_bias_max": pytest.approx(6)}
        assert said["n_heads"] == heads
        np.testing.assert_allclose(said["alibi_slopes"], alibi_slopes(heads, 6))
    other = hf_config(Alibi(own_slopes=(0.5, 0.3, 0.1)))
    assert other == {"alibi": True, "alibi_slopes": [0.5, 0.3, 0.1]}


@pytest.mark.parametrize("spec", ["sinusoidal", "t5", "rope-2d:dim=8", "xpos:dim=8"])
def test_what_a_config_does_not_say_is_refused(spec):
    with pytest.raises(PosgeomError, match="is not said by a config"):
        hf_config(make_encoding(spec))


# -- out of a model -------------------------------------------------------------------------------

GPT2 = {"model_type": "gpt2", "n_positions": 6, "n_embd": 4, "n_head": 2, "n_layer": 1}
ROBERTA = {"model_type": "roberta", "max_position_embeddings": 6, "hidden_size": 4}
ROBERTA |= {"num_attention_heads": 2, "pad_token_id": 1}


def model_folder(folder, config, **tensors):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file({k: v.astype(np.float32) for k, v in tensors.items()}, folder / "model.safetensors")
    return folder


def test_a_learned_table_comes_out_for_scoring(tmp_path, posgeom_ok):
    source = model_folder(tmp_path / "m", GPT2, **{"transformer.wpe.weight": ROWS})
    posgeom_ok("export", "--from", source, "--format", "npy", "--out", tmp_path / "t.npy")
    table = make_encoding(f"learned:{tmp_path / 't.npy'}")
    np.testing.assert_allclose(table.distances(range(6)), cdist(ROWS, ROWS), rtol=1e-6, atol=1e-6)
    passport = json.loads((tmp_path / "t.npy.json").read_text())
    assert (passport["family"], passport["tensor"]) == ("learned", "transformer.wpe.weight")
    assert passport["spec"] is None


def test_numbers_from_another_file_are_not_said_by_its_name(tmp_path):
    """A spec with a path in it means nothing on another machine; the numbers are in the file."""
    np.save(tmp_path / "t5.npy", ROWS)
    np.save(tmp_path / "shaw.npy", ROWS[:5])
    for spec in (f"t5:buckets=6,table={tmp_path}/t5.npy", f"shaw:table={tmp_path}/shaw.npy"):
        made = emission(make_encoding(spec))
        assert made.passport["spec"] is None
        file = tmp_path / made.main
        export(made, "npz", file)
        (tmp_path / spec.rpartition("/")[2]).unlink()
        again = read_emission(file).encoding
        np.testing.assert_allclose(
            again.distances(range(5)), made.encoding.distances(range(5)), rtol=1e-5
        )


def test_rows_before_position_0_stay_behind_and_are_told(tmp_path):
    source = model_folder(
        tmp_path / "m", ROBERTA, **{"embeddings.position_embeddings.weight": ROWS}
    )
    made = emission_of_model(source)
    np.testing.assert_array_equal(made.tensors["table"], ROWS[2:].astype(np.float32))
    assert (made.passport["offset"], made.passport["positions"]) == (0, 4)
    assert made.passport["rows_left_behind"] == 2


def test_gpt2_s_table_comes_out_bit_by_bit(tmp_path):
    file = Path(os.environ.get("POSGEOM_DATA", "")) / "learned" / "gpt2-small-1024x768.npy"
    if "POSGEOM_DATA" not in os.environ or not file.is_file():
        pytest.skip("POSGEOM_DATA has no learned/gpt2-small-1024x768.npy")
    rows = np.load(file)
    config = GPT2 | {"n_positions": 1024, "n_embd": 768}
    source = model_folder(tmp_path / "m", config, **{"wpe.weight": rows})
    export(emission_of_model(source), "safetensors", tmp_path / "e")
    table, passport = read("safetensors", tmp_path / "e")
    assert table.tobytes() == rows.astype("<f4").tobytes()
    assert (passport["positions"], passport["stored_dtype"]) == (1024, "float32")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda b: b[:8] + b"[" + b[9:], "cannot be read as .safetensors"),
        (lambda b: struct.pack("<Q", 1 << 62) + b[8:], "cannot be read as .safetensors"),
        (lambda b: struct.pack("<Q", len(b)) + b[8:], "cannot be read as .safetensors"),
        (lambda b: b[:-4], "cannot be read as .safetensors"),
        (lambda b: b[:-4] + struct.pack("<f", float("nan")), "holds NaN or infinity in row 5"),
        (lambda b: b"", "cannot be read as .safetensors"),
    ],
)
def test_a_hostile_safetensors_is_one_line(tmp_path, run_cli, spoil, says):
    source = model_folder(tmp_path / "m", GPT2, **{"transformer.wpe.weight": ROWS})
    file = source / "model.safetensors"
    file.write_bytes(spoil(file.read_bytes()))
    ran = run_cli("export", "--from", source, "--out", tmp_path / "out")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert says in ran.err
    assert not (tmp_path / "out").exists()


def test_a_pickle_is_not_opened(tmp_path, run_cli):
    source = model_folder(tmp_path / "m", GPT2, **{"transformer.wpe.weight": ROWS})
    (source / "model.safetensors").rename(source / "pytorch_model.bin")
    ran = run_cli("export", "--from", source, "--out", tmp_path / "out")
    assert ran.code == 2
    assert "a pickle, which can run code" in ran.err


# -- read back ------------------------------------------------------------------------------------

READ_BACK = ["safetensors", "npz", "torch", "json"]
SPECS = [
    "xpos:dim=8,gamma=0.3,scale_base=99,pairing=halves",
    "rope-2d:dim=8",
    "mrope:dim=12,axes=2",
    "rope:dim=8,rotary=0.5",
    "sandwich:heads=2,dim=8",
    "random:dim=4,seed=3",
    "rope:dim=8,scaling=yarn,factor=4,original_length=9",
    "alibi:heads=6",
    "kerple",
    "shaw:dim=4",
]
SPECS += ["t5:buckets=4,max_distance=9,values=0;-1;-1.5;-3", "sinusoidal:dim=4"]


@pytest.mark.parametrize("format", READ_BACK)
@pytest.mark.parametrize("spec", SPECS)
def test_what_is_written_is_read_back(format, spec, tmp_path):
    if format == "torch":
        pytest.importorskip("torch")
    encoding = make_encoding(spec)
    export(emission(encoding), format, tmp_path / "e")
    again = read_emission(tmp_path / "e")
    at = np.stack([np.arange(6)] * encoding.n_axes, axis=1).squeeze()
    np.testing.assert_array_equal(again.encoding.distances(at), encoding.distances(at))
    assert again.main == emission(encoding).main
    assert again.passport == emission(encoding).passport


@pytest.mark.parametrize("format", READ_BACK)
def test_arrays_that_no_spec_holds_are_read_back(format, tmp_path):
    if format == "torch":
        pytest.importorskip("torch")
    table = FixedTable(rows=ROWS, index=np.array([0, 1, 3, 4, 6, 7]), spec="mds")
    export(emission(table), format, tmp_path / "table")
    again = read_emission(tmp_path / "table").encoding
    np.testing.assert_array_equal(again.table([7, 3]), ROWS[[5, 2]].astype(np.float32))
    with pytest.raises(PosgeomError, match="2 has no row"):
        again.table([2])
    buckets = T5Bias(array=ROWS, buckets=6, max_distance=7, causal=True, spec="model:there")
    export(emission(buckets), format, tmp_path / "buckets")
    again = read_emission(tmp_path / "buckets").encoding
    np.testing.assert_allclose(
        again.bias(3, range(9), range(9)), buckets.bias(3, range(9), range(9)), rtol=1e-6
    )


# -- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give the folder of a RUN, or --from MODEL_DIR"),
        (["RUN", "--from", "m"], "and not both"),
        (["--from", "m", "--encoding", "rope"], "takes the model's own"),
        (["--from", "nowhere"], "there is no folder nowhere"),
        (["nowhere"], "is not the folder of a run"),
        (["RUN", "--format", "hf-config"], "is not said by a config.json"),
        (["RUN", "--format", "onnx"], "'onnx' is not one of 'safetensors'"),
        (["RUN", "--encoding", "rope:dim=7"], "turns pairs; dim=7 came"),
    ],
)
def test_bad_requests_are_one_line(arguments, says, full_run, tmp_path, run_cli):
    words = [str(full_run.folder) if word == "RUN" else word for word in arguments]
    ran = run_cli("export", *words, "--out", tmp_path / "out")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert says in ran.err
    assert list(tmp_path.iterdir()) == []


def test_the_command_offers_the_formats_that_there_are():
    assert tuple(FORMATS) == cli_emit.FORMATS


def test_the_command_says_what_it_wrote(full_run, tmp_path, posgeom_ok):
    out = tmp_path / "e.safetensors"
    ran = posgeom_ok("export", full_run.folder, "--out", out, "--json")
    said = json.loads(ran.out)
    assert said["files"] == [str(out)]
    assert said["encoding"].startswith("mds:rank=")
    with safe_open(out, framework="np") as tensors:
        assert json.loads(tensors.metadata()["posgeom"]) == {
            k: v for k, v in said.items() if k != "files"
        }
