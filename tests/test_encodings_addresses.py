"""Encodings behind a path: one head of a model's bias has a name that makes it again."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from posgeom import PosgeomError, SyntheticCorpus, make_encoding, score_encodings, true_geometry
from posgeom.encodings import Alibi, Kerple
from posgeom.passport import inspect_model
from posgeom.passport.show import lines
from posgeom.scoring import make_encodings

BLOOM = {"model_type": "bloom", "hidden_size": 36, "n_head": 6, "n_layer": 1}
T5 = {"model_type": "t5", "d_model": 8, "num_heads": 4, "num_layers": 2}
TABLE = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
NAMES = ("plain", "with, comma", "a,head=1", "deep/er,slice=x")


@pytest.fixture(scope="module")
def truth():
    return true_geometry(SyntheticCorpus(shape="mixture", positions=20).profiles)


def folder(path, config, tensors=None):
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if tensors is not None:
        save_file(tensors, path / "model.safetensors")
    return path


def t5(path, layers=1, sides=("encoder", "decoder"), config=T5):
    rng = np.random.default_rng(0)
    names = [f"{s}.{TABLE.replace('0', str(n), 1)}" for s in sides for n in range(layers)]
    tensors = {name: rng.standard_normal((32, 4)).astype(np.float32) for name in names}
    return folder(path, config, tensors), tensors


@pytest.mark.parametrize("name", NAMES)
def test_each_head_of_a_model_is_a_spec_that_makes_it_again(tmp_path, monkeypatch, truth, name):
    monkeypatch.chdir(tmp_path)  # relative paths
    t5(tmp_path / name)
    folder(tmp_path / f"bloom {name}", BLOOM)
    for spec, heads in ((f"model:{name}#decoder", 4), (f"model:./bloom {name}", 6)):
        scores = score_encodings(truth, [spec], per_head=True)
        names = scores["encoding"].tolist()
        assert names == [spec, *(f"{spec},head={h}" for h in range(heads))]
        again = score_encodings(truth, names)
        assert again["stress_raw"].tolist() == scores["stress_raw"].tolist()
        assert len(set(scores["stress_raw"])) == heads + 1
        for made in make_encodings(truth, [spec], per_head=True):
            np.testing.assert_array_equal(
                make_encoding(made.name).distances(range(20)), made.distances(range(20))
            )


def test_slices_and_readings_of_a_models_bias(tmp_path):
    path = folder(tmp_path / "bloom", BLOOM)
    t = np.arange(9.0)
    two = make_encoding(f"model:{path},slice=2:4,reading=kernel")
    slopes = two.slopes[2:4].sum()
    np.testing.assert_allclose(two.distances(t)[0], np.sqrt(2 * slopes * t))


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("bloom,head=6", "no head 6"),
        ("bloom,head=x", "head takes int, 'x' came"),
        ("bloom,heads=2", "no folder bloom,heads=2"),
        ("absent,head=1", "no folder absent"),
        ("llama,head=1", "no bias but rope: leave out head"),
    ],
)
def test_what_is_wrong_behind_a_path_is_told(tmp_path, monkeypatch, address, words):
    monkeypatch.chdir(tmp_path)
    folder(tmp_path / "bloom", BLOOM)
    folder(
        tmp_path / "llama",
        {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2}
        | {"max_position_embeddings": 64},
    )
    with pytest.raises(PosgeomError, match=words):
        make_encoding(f"model:{address}")


def test_heads_of_encodings_without_a_spec_have_one(truth):
    """`alibi:head=1` would be one of eight; this one is of three with slopes of their own."""
    given = [Alibi(own_slopes=(0.5, 0.25, 0.125)), Kerple(r1=(1.0, 2.0), r2=(0.5, 3.0))]
    made = make_encodings(truth, given, per_head=True)
    assert len(made) == 2 + 3 + 2
    for encoding in made:
        if encoding not in given:
            np.testing.assert_array_equal(
                make_encoding(encoding.name).distances(range(20)), encoding.distances(range(20))
            )


def test_layers_with_tables_of_their_own_are_heads_side_by_side(tmp_path):
    path, tensors = t5(tmp_path / "umt5", layers=11, config=T5 | {"model_type": "umt5"})
    encoder = make_encoding(f"model:{path}")
    assert encoder.heads == 44
    for layer in (0, 2, 10):  # by number: 10 comes after 2
        table = tensors[f"encoder.{TABLE.replace('0', str(layer), 1)}"]
        np.testing.assert_array_equal(encoder.numbers[:, 4 * layer : 4 * layer + 4], table)
    passport = inspect_model(path)
    assert [rule.found.stored for rule in passport.rules] == [11 * 32 * 4] * 2
    told = "\n".join(lines(passport))
    assert "each of the 11 layers has a table of its own: heads 0 to 3 are those of" in told


def test_a_decoder_is_causal_whether_or_not_there_is_an_encoder(tmp_path):
    path, _ = t5(tmp_path / "t", sides=("decoder",), config=T5 | {"is_encoder_decoder": False})
    assert make_encoding(f"model:{path}").causal


def test_udop_adds_the_first_of_a_sum_in_its_encoder_alone(tmp_path):
    rng = np.random.default_rng(1)
    names = [f"{side}.{TABLE}" for side in ("encoder", "decoder")]
    names += [
        f"{side}.relative_bias.biases.{n}.relative_attention_bias.weight"
        for side in ("encoder", "decoder")
        for n in range(3)
    ]
    tensors = {name: rng.standard_normal((32, 4)).astype(np.float32) for name in names}
    path = folder(tmp_path / "udop", T5 | {"model_type": "udop"}, tensors)
    found = [rule.found.tensor for rule in inspect_model(path).rules]
    assert found == ["encoder.relative_bias.biases.0.relative_attention_bias.weight", names[1]]


def test_layers_that_see_no_positions_are_noted(tmp_path):
    config = {"model_type": "smollm3", "hidden_size": 64, "num_attention_heads": 2}
    path = folder(
        tmp_path / "m",
        config
        | {
            "rope_theta": 1e4,
            "max_position_embeddings": 64,
            "no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0],
        },
    )
    assert any(
        "in layers 3, 7, from 0, nothing turns" in note for note in inspect_model(path).notes
    )


def test_granite_says_whether_it_turns_at_all(tmp_path):
    config = {"model_type": "granitemoehybrid", "hidden_size": 64, "num_attention_heads": 2}
    config |= {"max_position_embeddings": 64, "rope_theta": 1e4}
    assert make_encoding(f"model:{folder(tmp_path / 'a', config)}").family == "none"
    turns = config | {"position_embedding_type": "rope"}
    assert make_encoding(f"model:{folder(tmp_path / 'b', turns)}").family == "rope"
