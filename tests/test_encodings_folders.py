"""Tables from model folders: names, shards, number formats, and the row of position 0."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from posgeom import PosgeomError, make_encoding
from posgeom.encodings import encoding_from_config, position_offset, rounded
from posgeom.encodings.learned import AFTER_PADDING, AFTER_TWO

TABLE = np.random.default_rng(0).standard_normal((34, 6)).astype(np.float32)


def folder(path, config, tensors, name="model.safetensors"):
    path.mkdir(exist_ok=True)
    if config is not None:
        (path / "config.json").write_text(json.dumps(config), "utf-8")
    if tensors:
        save_file(tensors, path / name)
    return f"learned:{path}"


def bf16_file(path, name, array):
    """A .safetensors file of bfloat16, which numpy cannot write."""
    upper = (rounded(array, "bf16").view(np.uint32) >> 16).astype("<u2").tobytes()
    about = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": [0, len(upper)]}
    header = json.dumps({name: about}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + upper)


class TestFolders:
    @pytest.mark.parametrize(
        ("kind", "name"),
        [
            ("gpt2", "wpe.weight"),
            ("gpt2", "transformer.wpe.weight"),
            ("bert", "bert.embeddings.position_embeddings.weight"),
            ("bert", "embeddings.position_embeddings.weight"),
            ("distilbert", "distilbert.embeddings.position_embeddings.weight"),
        ],
    )
    def test_tables_are_found_by_name_under_any_prefix(self, tmp_path, kind, name):
        words = np.ones((50, 6), np.float32)
        e = make_encoding(folder(tmp_path, {"model_type": kind}, {name: TABLE, "words": words}))
        np.testing.assert_array_equal(e.table(range(34)), TABLE)
        assert (e.offset, e.note, e.family) == (0, "", "learned")

    @pytest.mark.parametrize("kind", ["roberta", "xlm-roberta", "camembert", "mpnet", "longformer"])
    def test_position_0_of_robertas_kin_comes_after_the_padding_row(self, tmp_path, kind):
        name = "roberta.embeddings.position_embeddings.weight"
        e = make_encoding(folder(tmp_path, {"model_type": kind, "pad_token_id": 1}, {name: TABLE}))
        np.testing.assert_array_equal(e.table(range(32)), TABLE[2:])
        assert (e.max_positions, e.offset, e.n_parameters) == (32, 2, 32 * 6)
        assert "row 2" in e.note

    @pytest.mark.parametrize("kind", ["opt", "bart", "mbart"])
    def test_position_0_of_opt_and_bart_is_row_2_whatever_the_padding(self, tmp_path, kind):
        name = "model.decoder.embed_positions.weight"
        e = make_encoding(folder(tmp_path, {"model_type": kind, "pad_token_id": 0}, {name: TABLE}))
        np.testing.assert_array_equal(e.table([0]), TABLE[[2]])
        assert e.max_positions == 32

    @pytest.mark.parametrize("kind", ["pegasus", "blenderbot", "led", "bigbird_pegasus"])
    def test_near_relatives_of_bart_begin_at_row_0(self, tmp_path, kind):
        name = "model.decoder.embed_positions.weight"
        e = make_encoding(folder(tmp_path, {"model_type": kind}, {name: TABLE}))
        np.testing.assert_array_equal(e.table([0]), TABLE[[0]])

    def test_a_table_of_514_rows_with_padding_1_has_512_positions(self, tmp_path):
        table = np.random.default_rng(1).standard_normal((514, 4)).astype(np.float32)
        config = {"model_type": "roberta", "pad_token_id": 1, "max_position_embeddings": 514}
        e = make_encoding(
            folder(tmp_path, config, {"embeddings.position_embeddings.weight": table})
        )
        assert e.distances(range(512)).shape == (512, 512)
        with pytest.raises(PosgeomError, match="has 512 rows, position 512 was asked"):
            e.distances(range(513))

    @pytest.mark.parametrize("kind", ["nystromformer", "yoso", "mra"])
    def test_some_encoders_begin_at_row_2_whatever_their_padding(self, kind):
        config = {"model_type": kind, "pad_token_id": 0, "max_position_embeddings": 510}
        assert position_offset(config) == 2
        found = encoding_from_config(config | {"hidden_size": 8})
        assert found.max_positions == 510

    def test_padding_of_another_number_moves_the_first_row(self):
        assert position_offset({"model_type": "roberta", "pad_token_id": 0}) == 1
        assert position_offset({"model_type": "roberta"}) == 2
        assert position_offset({"model_type": "mpnet", "pad_token_id": 0}) == 2
        assert position_offset({"model_type": "bert", "pad_token_id": 1}) == 0

    def test_an_encoder_and_a_decoder_must_be_told_apart(self, tmp_path):
        names = [f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")]
        spec = folder(tmp_path, {"model_type": "bart"}, dict.fromkeys(names, TABLE))
        with pytest.raises(PosgeomError, match=r"#KEY, of model\.decoder"):
            make_encoding(spec)
        assert make_encoding(f"{spec}#{names[0]}").max_positions == 32
        assert make_encoding(f"{spec}#{names[0]},offset=0").max_positions == 34

    def test_shards_are_found_by_their_index(self, tmp_path):
        spec = folder(tmp_path, {"model_type": "gpt2"}, {"a": TABLE}, "one.safetensors")
        folder(tmp_path, None, {"transformer.wpe.weight": TABLE * 2}, "two.safetensors")
        index = {
            "weight_map": {"a": "one.safetensors", "transformer.wpe.weight": "two.safetensors"}
        }
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
        np.testing.assert_array_equal(make_encoding(spec).table([3]), TABLE[[3]] * 2)
        (tmp_path / "two.safetensors").unlink()
        with pytest.raises(PosgeomError, match=r"two\.safetensors, which is not there"):
            make_encoding(spec)
        (tmp_path / "model.safetensors.index.json").write_text("[]", "utf-8")
        with pytest.raises(PosgeomError, match="index of shards"):
            make_encoding(spec)

    def test_pickles_are_refused_with_what_to_do(self, tmp_path):
        spec = folder(tmp_path, {"model_type": "gpt2"}, {})
        (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04")
        with pytest.raises(PosgeomError, match=r"pytorch_model\.bin, a pickle.*safetensors"):
            make_encoding(spec)

    def test_folders_without_weights_or_config_are_refused(self, tmp_path):
        spec = folder(tmp_path, {"model_type": "gpt2"}, {})
        with pytest.raises(PosgeomError, match=r"no model\.safetensors"):
            make_encoding(spec)
        (tmp_path / "config.json").unlink()
        with pytest.raises(PosgeomError, match=r"no config\.json"):
            make_encoding(spec)
        for broken in ("{", "[]"):
            (tmp_path / "config.json").write_text(broken, "utf-8")
            with pytest.raises(PosgeomError, match=r"config\.json"):
                make_encoding(spec)


class TestFiles:
    @pytest.mark.parametrize("rows", [10, 34, 66])
    def test_a_zero_row_1_of_two_and_a_power_of_two_rows_is_padding(self, tmp_path, rows):
        table = np.random.default_rng(2).standard_normal((rows, 4))
        table[1] = 0
        np.save(tmp_path / "t.npy", table)
        e = make_encoding(f"learned:{tmp_path / 't.npy'}")
        np.testing.assert_array_equal(e.table([0]), table[[2]])
        assert e.max_positions == rows - 2
        assert "offset=0" in e.note
        whole = make_encoding(f"learned:{tmp_path / 't.npy'}#offset=0")
        assert (whole.max_positions, whole.note) == (rows, "")

    def test_a_zero_row_1_of_other_tables_is_said_and_kept(self, tmp_path):
        table = np.ones((12, 4))
        table[1] = 0
        np.save(tmp_path / "t.npy", table)
        e = make_encoding(f"learned:{tmp_path / 't.npy'}")
        assert e.max_positions == 12
        assert "offset=2" in e.note

    def test_an_offset_stands_behind_the_key(self, tmp_path):
        np.savez(tmp_path / "t.npz", a=TABLE, b=TABLE * 2)
        e = make_encoding(f"learned:{tmp_path / 't.npz'}#b,offset=3")
        np.testing.assert_array_equal(e.table([0]), TABLE[[3]] * 2)
        np.savez(tmp_path / "u.npz", a=TABLE)
        assert make_encoding(f"learned:{tmp_path / 'u.npz'}#,offset=3").max_positions == 31
        for bad in ("offset=34", "offset=-1", "offset=x", "a,offst=2", "a,b"):
            with pytest.raises(PosgeomError):
                make_encoding(f"learned:{tmp_path / 'u.npz'}#{bad}")

    def test_bfloat16_is_read_exactly(self, tmp_path):
        bf16_file(tmp_path / "t.safetensors", "wpe.weight", TABLE)
        e = make_encoding(f"learned:{tmp_path / 't.safetensors'}")
        np.testing.assert_array_equal(e.table(range(34)), rounded(TABLE, "bf16"))

    @pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32])
    def test_other_formats_are_read(self, tmp_path, dtype):
        table = (TABLE * 10).astype(dtype)
        save_file({"other": np.ones(3), "wpe.weight": table}, tmp_path / "t.safetensors")
        e = make_encoding(f"learned:{tmp_path / 't.safetensors'}")
        np.testing.assert_array_equal(e.table(range(34)), table)

    def test_formats_that_are_not_known_are_told(self, tmp_path):
        about = {"dtype": "F8_E4M3", "shape": [2, 2], "data_offsets": [0, 4]}
        header = json.dumps({"wpe.weight": about}).encode()
        path = tmp_path / "t.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
        with pytest.raises(PosgeomError, match="F8_E4M3; save it as float32"):
            make_encoding(f"learned:{path}")

    def test_a_file_cut_short_is_refused(self, tmp_path):
        bf16_file(tmp_path / "t.safetensors", "wpe.weight", TABLE)
        whole = (tmp_path / "t.safetensors").read_bytes()
        (tmp_path / "t.safetensors").write_bytes(whole[:-10])
        with pytest.raises(PosgeomError, match="cannot be read"):
            make_encoding(f"learned:{tmp_path / 't.safetensors'}")


MODELS = {
    "bert": ("BertModel", "BertConfig", {}),
    "roberta": ("RobertaModel", "RobertaConfig", {"max_position_embeddings": 34}),
    "xlm-roberta": ("XLMRobertaModel", "XLMRobertaConfig", {"max_position_embeddings": 34}),
    "mpnet": ("MPNetModel", "MPNetConfig", {"max_position_embeddings": 34}),
    "gpt2": ("GPT2Model", "GPT2Config", {"n_positions": 32, "n_embd": 16, "n_head": 2}),
    "opt": ("OPTModel", "OPTConfig", {"ffn_dim": 16, "word_embed_proj_dim": 16}),
}


@pytest.mark.parametrize("kind", MODELS)
def test_the_first_row_is_the_one_a_model_uses(kind, tmp_path):
    """The row that a model's own code looks up for the first token of a sentence."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model_name, config_name, own = MODELS[kind]
    small = {
        "vocab_size": 20,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 32,
    }
    if kind == "gpt2":
        small = {"vocab_size": 20, "n_layer": 1}
    model = getattr(transformers, model_name)(getattr(transformers, config_name)(**small | own))
    model.save_pretrained(tmp_path)
    e = make_encoding(f"learned:{tmp_path}")
    assert e.max_positions == 32
    looked_up = []
    name = ("wpe", "position_embeddings", "embed_positions")
    module = next(m for n, m in model.named_modules() if n.split(".")[-1] in name)
    module.register_forward_hook(lambda _m, _args, out: looked_up.append(out))
    ids = torch.arange(3, 13)[None]
    with torch.no_grad():
        model.eval()(ids, attention_mask=torch.ones_like(ids))
    rows = looked_up[0].reshape(-1, 16).numpy()
    np.testing.assert_array_equal(e.table(range(10)), rows)


def test_offsets_are_those_of_the_installed_transformers():
    """Every model type named here still counts as it did when it was checked."""
    transformers = pytest.importorskip("transformers")
    from pathlib import Path

    home = Path(transformers.__file__).parent / "models"
    aliases = {"data2vec-text": "data2vec/modeling_data2vec_text.py"}
    for kind in AFTER_PADDING | AFTER_TWO:
        plain = kind.replace("_text_model", "").replace("-", "_")
        code = home / aliases.get(kind, f"{plain}/modeling_{plain}.py")
        if not code.exists():
            continue
        text = code.read_text("utf-8")
        told = ("padding_idx + 1",) if kind in AFTER_PADDING else ("self.offset = 2", "-1)) + 2")
        assert any(words in text for words in told), kind
