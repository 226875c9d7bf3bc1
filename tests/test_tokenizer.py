"""Tokenizers by file, by training and by rule, against the library itself."""

import os
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.pre_tokenizers import Whitespace

from posgeom import PosgeomError, open_corpus
from posgeom.tokenizer import LibraryTokenizer, load_tokenizer

TEXTS = ["The cat sat on the mat.", "naïve café — 3.5 €!", "", "x_1 += 2  # done", "日本語 text"]
VOCABULARY = {"[UNK]": 0, "the": 1, "cat": 2, "sat": 3, "[SEP]": 4, "[CLS]": 5, "##s": 6, ".": 7}


def word_level(**options):
    backend = Tokenizer(models.WordLevel(VOCABULARY, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    if "truncate" in options:
        backend.enable_truncation(options["truncate"])
    if "pad" in options:
        backend.enable_padding(length=options["pad"])
    return backend


def rows(tokenizer, texts):
    ids, lengths = tokenizer.encode(texts)
    return [row.tolist() for row in np.split(ids, np.cumsum(lengths)[:-1])]


def test_words_are_those_of_the_whitespace_pre_tokenizer():
    t = load_tokenizer("words")
    found = [[t.vocabulary[i] for i in row] for row in rows(t, TEXTS)]
    assert found == [[w for w, _ in Whitespace().pre_tokenize_str(text)] for text in TEXTS]


def test_chars_and_bytes_are_those_of_the_text():
    chars, octets = load_tokenizer("chars"), load_tokenizer("bytes")
    assert [[chars.vocabulary[i] for i in row] for row in rows(chars, TEXTS)] == list(
        map(list, TEXTS)
    )
    assert rows(octets, TEXTS) == [list(text.encode()) for text in TEXTS]
    assert octets.separator == 256 == len(octets.vocabulary) - 1


def test_separators_come_from_the_tokenizer_or_are_new():
    assert load_tokenizer(word_level()).separator == 4
    words = load_tokenizer("words")
    ids, _ = words.encode(["a b"])
    assert words.separator not in ids
    assert words.vocabulary[words.separator] == "<sep>"
    bare = Tokenizer(models.WordLevel({"a": 0, "u": 1}, unk_token="u"))
    t = load_tokenizer(bare)
    assert t.separator == t.separator == 2
    assert t.vocabulary == ("a", "u", "<sep>")


def test_a_file_that_truncates_and_pads_is_reset_and_told(tmp_path):
    word_level(truncate=2, pad=5).save(str(tmp_path / "tokenizer.json"))
    t = load_tokenizer(str(tmp_path / "tokenizer.json"))
    assert rows(t, ["the cat sat", "the"]) == [[1, 2, 3], [1]]
    assert len(t.notes) == 1
    assert "truncates to 2 tokens and pads to 5" in t.notes[0]
    assert load_tokenizer(word_level()).notes == ()


def test_the_callers_tokenizer_keeps_its_habits():
    own = word_level(truncate=2)
    load_tokenizer(own)
    assert own.truncation["max_length"] == 2


def test_equal_tokenizers_have_equal_digests_wherever_they_lie(tmp_path):
    word_level().save(str(tmp_path / "a.json"))
    word_level(truncate=3).save(str(tmp_path / "b.json"))
    a, b = (load_tokenizer(str(tmp_path / f"{name}.json")) for name in "ab")
    assert a.digest == b.digest != load_tokenizer("words").digest


def test_holes_in_the_ids_are_named():
    t = load_tokenizer(Tokenizer(models.WordLevel({"a": 0, "b": 3}, unk_token="a")))
    assert t.vocabulary == ("a", "<id 1>", "<id 2>", "b")


def test_folders_and_vocabulary_files(tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "##s", "sat", "."]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    by_file = load_tokenizer(str(tmp_path / "vocab.txt"))
    assert rows(by_file, ["The cats sat."]) == [[4, 5, 6, 7, 8]]
    assert rows(load_tokenizer(str(tmp_path)), ["The cats sat."]) == [[4, 5, 6, 7, 8]]
    special = load_tokenizer(str(tmp_path / "vocab.txt"), special_tokens=True)
    assert rows(special, ["The cats sat."]) == [[2, 4, 5, 6, 7, 8, 3]]
    word_level().save(str(tmp_path / "tokenizer.json"))  # comes first
    assert rows(load_tokenizer(tmp_path), ["the cat"]) == [[1, 2]]


def test_a_cased_vocabulary_keeps_case(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\nThe\nthe\n")
    assert rows(load_tokenizer(str(tmp_path / "vocab.txt")), ["The the"]) == [[1, 2]]


@pytest.mark.parametrize("model", ["bpe", "wordpiece", "unigram"])
def test_training_is_repeatable_stated_and_bounded(model):
    texts = [f"tokens {i % 17} appear{'s' * (i % 3)} in line {i % 5}" for i in range(400)]
    spec = f"train:{model}:300"
    first = load_tokenizer(spec, open_corpus(texts))
    again = load_tokenizer(spec, open_corpus(texts[::-1]))
    assert first.to_json() == again.to_json()
    assert 20 < len(first.vocabulary) <= 300
    assert "400 documents" in first.notes[0]
    assert rows(first, texts[:3]) == rows(again, texts[:3])


@pytest.mark.parametrize("model", ["bpe", "wordpiece"])
def test_training_is_repeatable_whatever_the_characters(model):
    """Control characters and odd spaces stand inside words of real corpora."""
    texts = [f"a{chr(c)}b {chr(c)}{chr(c + 1)}" for c in range(0x300)]
    spec = f"train:{model}:3000"
    first, again = (load_tokenizer(spec, open_corpus(t)) for t in (texts, texts[::-1]))
    assert first.vocabulary == again.vocabulary


def test_training_reads_the_head_only(monkeypatch):
    monkeypatch.setattr("posgeom.tokenizer.TRAINING_DOCUMENTS", 10)
    t = load_tokenizer("train:bpe:300", open_corpus(["aa bb"] * 10 + ["zz"] * 10))
    assert "first 10 documents" in t.notes[0]


def test_objects_of_transformers_are_taken_by_their_backend():
    class Fast:
        backend_tokenizer = word_level()

    assert rows(load_tokenizer(Fast()), ["the cat"]) == [[1, 2]]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("gone.json", "is no file or folder"),
        ("", "is no file or folder"),
        ("train:bpe", "train:bpe:N"),
        ("train:bpe:1", "2 or more"),
        ("train:word2vec:100", "train:bpe:N"),
        ("train:bpe:300", "needs a corpus"),
        ("hf:nobody/nothing", "path of a local tokenizer.json"),
    ],
)
def test_specs_that_name_no_tokenizer_are_refused(spec, words):
    with pytest.raises(PosgeomError, match=words):
        load_tokenizer(spec)


@pytest.mark.parametrize("content", ["", "{}", "[1, 2", "plain words"])
@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt", "vocab.json"])
def test_files_that_are_no_tokenizer_are_refused(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(PosgeomError, match="is no tokenizer file"):
        load_tokenizer(str(tmp_path / name))


def test_plain_rules_have_no_special_tokens():
    with pytest.raises(PosgeomError, match="no special tokens"):
        load_tokenizer("words", special_tokens=True)


def test_training_needs_text():
    with pytest.raises(PosgeomError, match="no text"):
        load_tokenizer("train:bpe:300", open_corpus([[1, 2], [3, 4]]))


def published(*names):
    data = os.environ.get("POSGEOM_DATA")
    if not data:
        pytest.skip("POSGEOM_DATA is not set: published tokenizers are not at hand")
    return str(Path(data, "tokenizers", *names))


def test_bert_from_its_vocabulary_is_bert_from_its_file():
    by_file = load_tokenizer(published("bert-base-uncased", "tokenizer.json"))
    by_list = load_tokenizer(published("bert-base-uncased", "vocab.txt"))
    assert rows(by_file, TEXTS) == rows(by_list, TEXTS)
    assert len(by_file.vocabulary) == 30_522
    truncating = load_tokenizer(published("bert-base-uncased", "tokenizer.minilm-trunc128.json"))
    assert "truncates to 128" in truncating.notes[0]
    assert len(rows(truncating, ["word " * 300])[0]) == 300


def test_gpt2_from_its_lists_is_gpt2_from_its_file():
    by_file = load_tokenizer(published("gpt2", "tokenizer.json"))
    by_list = load_tokenizer(published("gpt2", "vocab.json"))
    assert rows(by_file, TEXTS) == rows(by_list, TEXTS)
    assert isinstance(by_file, LibraryTokenizer)
    assert by_file.vocabulary[by_file.separator] == "<|endoftext|>"
