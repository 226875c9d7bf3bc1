"""Training of subword tokenizers: equal texts, in any order, give the same tokenizer.

The trainers of `tokenizers` alone do not promise that: they number WordPiece's inner pieces and
sum up Unigram's frequencies in the order of a hash table that is seeded anew in each process.
"""

import io
import string
import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def train_bpe(texts: list[str], size: int) -> "Tokenizer":
    """Byte-level BPE with up to `size` pieces, never fewer than the 256 bytes.

    Sennrich et al. (2016); Radford et al. (2019) for the bytes.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    backend.train_from_iterator(sorted(texts), trainer)
    return backend


def train_wordpiece(texts: list[str], size: int) -> "Tokenizer":
    """WordPiece with up to `size` pieces, cased; words and punctuation are split as BERT does.

    Schuster & Nakajima (2012), trained by merges as in Hugging Face's trainer.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    texts = sorted(unicodedata.normalize("NFC", text) for text in texts)
    inner = sorted(f"##{c}" for c in set().union(*texts) if _is_inner(c))
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, show_progress=False, special_tokens=["[UNK]", *inner]
    )
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.train_from_iterator(texts, trainer)
    # A new tokenizer: in the trained one the inner pieces are special tokens, found in plain text.
    vocabulary = backend.get_vocab(with_added_tokens=True)
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return backend


def _is_inner(character: str) -> bool:
    """Whether a character can stand inside a word: not white space, and not punctuation.

    Control characters can; Python counts four of them as space that Unicode does not.
    """
    space = character.isspace() and character not in "\x1c\x1d\x1e\x1f"
    punctuation = character in string.punctuation or unicodedata.category(character)[0] == "P"
    return not space and not punctuation


def train_unigram(texts: list[str], size: int) -> "Tokenizer":
    """Unigram with up to `size` pieces, words marked by a leading ▁.  Kudo (2018).

    Raises RuntimeError where the texts are too small for the trainer.
    """
    import sentencepiece
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sorted(unicodedata.normalize("NFC", text) for text in texts)),
        model_writer=model,
        model_type="unigram",
        vocab_size=size,
        hard_vocab_limit=False,
        character_coverage=1.0,
        normalization_rule_name="identity",
        max_sentence_length=2**30,
        num_threads=1,  # two threads sum up in another order
        unk_id=0,
        bos_id=-1,
        eos_id=-1,
        minloglevel=2,
    )
    trained = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [(trained.id_to_piece(i), trained.get_score(i)) for i in range(len(trained))]
    backend = Tokenizer(models.Unigram(pieces, unk_id=0))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return backend


TRAINERS: dict[str, Callable[[list[str], int], "Tokenizer"]] = {
    "bpe": train_bpe,
    "wordpiece": train_wordpiece,
    "unigram": train_unigram,
}
