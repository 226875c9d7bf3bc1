"""Tokenizers: from texts to ids, by a file, by training, or by plain rules."""

import copy
import hashlib
import json
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from posgeom.corpus import Corpus
from posgeom.errors import PosgeomError
from posgeom.named import hub_file
from posgeom.training import TRAINERS

if TYPE_CHECKING:
    import tokenizers

IntArray = NDArray[np.int64]

PLAIN = ("words", "chars", "bytes")
TRAINING_DOCUMENTS, TRAINING_CHARACTERS = 50_000, 20_000_000
SEPARATORS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "[SEP]", "<eos>", "<sep>")
_WORD = re.compile(r"\w+|[^\w\s]+")  # as the Whitespace pre-tokenizer of `tokenizers`
_KNOWN = "a tokenizer.json, a vocab.txt, a folder, hf:NAME, train:bpe:8192, words, chars or bytes"


class Tokenizer(Protocol):
    """What counting needs of a tokenizer.

    name        for people
    digest      equal for tokenizers whose counts may be added
    grows       whether the vocabulary is made up of what was seen, in the order it was seen
    separator   id between packed documents
    notes       what a run should say of it
    """

    name: str
    digest: str
    grows: bool
    notes: tuple[str, ...]

    @property
    def separator(self) -> int: ...

    @property
    def vocabulary(self) -> tuple[str, ...]: ...

    def encode(self, texts: Sequence[str]) -> tuple[IntArray, IntArray]:
        """The ids of all texts in one row (total,), and how many each has (len(texts),)."""
        ...


class GrowingTokenizer:
    """Splits by a plain rule; a piece gets its id when it is first seen."""

    grows = True
    notes: tuple[str, ...] = ()

    def __init__(self, name: str, split: Callable[[str], Iterable[str]]) -> None:
        self.name = self.digest = name
        self._split = split
        self._ids: dict[str, int] = {}

    @property
    def separator(self) -> int:
        """Id of the separator, which joins the vocabulary when it is first asked for."""
        return self._ids.setdefault("<sep>", len(self._ids))

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The pieces in the order of their ids."""
        return tuple(self._ids)

    def encode(self, texts: Sequence[str]) -> tuple[IntArray, IntArray]:
        """Ids in one row, and how many each text has."""
        pieces = [self._split(text) for text in texts]
        for piece in dict.fromkeys(chain.from_iterable(pieces)):
            self._ids.setdefault(piece, len(self._ids))
        return _flat(list(map(self._ids.__getitem__, row)) for row in pieces)


class ByteTokenizer:
    """The bytes of the text in UTF-8, ids 0..255; 256 separates packed documents."""

    name = digest = "bytes"
    grows = False
    notes: tuple[str, ...] = ()
    separator = 256
    vocabulary = (*(f"<0x{b:02X}>" for b in range(256)), "<sep>")

    def encode(self, texts: Sequence[str]) -> tuple[IntArray, IntArray]:
        """Ids in one row, and how many each text has."""
        rows = [text.encode("utf-8", "surrogatepass") for text in texts]
        ids = np.frombuffer(b"".join(rows), dtype=np.uint8).astype(np.int64)
        return ids, np.array([len(row) for row in rows], dtype=np.int64)


class LibraryTokenizer:
    """A tokenizer of the `tokenizers` library, its truncation and padding switched off in place."""

    grows = False

    def __init__(
        self, backend: "tokenizers.Tokenizer", name: str, special_tokens: bool = False
    ) -> None:
        self._backend = backend
        self._special = special_tokens
        self.name = name
        self.notes: tuple[str, ...] = ()
        habits = []
        if self._backend.truncation:
            habits.append(f"truncates to {self._backend.truncation['max_length']} tokens")
        if self._backend.padding:
            habits.append(f"pads to {self._backend.padding['length'] or 'the longest'}")
        if habits:
            self.notes = (f"tokenizer {name} {' and '.join(habits)} by itself; switched off",)
        self._backend.no_truncation()
        self._backend.no_padding()
        self.digest = hashlib.sha256(self._backend.to_str().encode()).hexdigest()[:16]
        by_id = {i: token for token, i in self._backend.get_vocab(with_added_tokens=True).items()}
        self._vocabulary = [by_id.get(i, f"<id {i}>") for i in range(max(by_id, default=-1) + 1)]

    @property
    def separator(self) -> int:
        """The tokenizer's own end-of-text or separator token, else one more id."""
        for token in SEPARATORS:
            own = self._backend.token_to_id(token)
            if own is not None:
                return int(own)
        if self._vocabulary[-1] != "<sep>":
            self._vocabulary.append("<sep>")
        return len(self._vocabulary) - 1

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The tokens in the order of their ids; ids without a token have a placeholder."""
        return tuple(self._vocabulary)

    def encode(self, texts: Sequence[str]) -> tuple[IntArray, IntArray]:
        """Ids in one row, and how many each text has."""
        encoded = self._backend.encode_batch_fast(list(texts), add_special_tokens=self._special)
        return _flat(e.ids for e in encoded)

    def to_json(self) -> str:
        """The tokenizer as the text of a tokenizer.json."""
        return str(self._backend.to_str(pretty=True))


def load_tokenizer(
    spec: Any, corpus: Corpus | None = None, *, special_tokens: bool = False
) -> Tokenizer:
    """The tokenizer that a spec names.

    spec: `path/to/tokenizer.json`, a folder that holds one (or vocab.json and merges.txt, or
    vocab.txt), a `vocab.txt` of WordPiece, `hf:NAME`, `train:bpe:8192` (or wordpiece, unigram;
    trained on the first 50,000 documents or 20 million characters of the corpus, whichever ends
    first), `words`, `chars`, `bytes`; or a tokenizer object of `tokenizers` or `transformers`.
    Raises PosgeomError for what is none of these, and for special tokens of a plain rule.
    """
    if isinstance(spec, GrowingTokenizer | ByteTokenizer | LibraryTokenizer):
        return spec
    backend = getattr(spec, "backend_tokenizer", spec)
    if hasattr(backend, "encode_batch_fast"):
        own = copy.deepcopy(backend)  # the caller's keeps its truncation and padding
        return LibraryTokenizer(own, type(spec).__name__, special_tokens)
    spec = str(spec)
    if spec in PLAIN:
        if special_tokens:
            raise PosgeomError(f"tokenizer {spec} has no special tokens; drop --special-tokens")
        if spec == "bytes":
            return ByteTokenizer()
        return GrowingTokenizer(spec, _WORD.findall if spec == "words" else list)
    if spec.startswith("train:"):
        return _trained(spec, corpus, special_tokens)
    return LibraryTokenizer(_backend_of(spec), spec, special_tokens)


def _backend_of(spec: str) -> "tokenizers.Tokenizer":
    """The `tokenizers` object behind a path, a folder or an `hf:` name."""
    import tokenizers

    if spec.startswith("hf:"):
        try:
            file = hub_file(spec.removeprefix("hf:"), "tokenizer.json")
            return tokenizers.Tokenizer.from_file(file)
        except Exception as error:  # the hub's client has many; all mean that it is not to be had
            raise PosgeomError(
                f"tokenizer {spec} could not be had from the hub ({_first_line(error)}); "
                "give the path of a local tokenizer.json"
            ) from error
    path = Path(spec)
    if path.is_dir():
        path = next(
            (
                path / f
                for f in ("tokenizer.json", "vocab.json", "vocab.txt")
                if (path / f).is_file()
            ),
            path,
        )
    if not path.is_file():
        raise PosgeomError(f"tokenizer {spec} is no file or folder that holds one; give {_KNOWN}")
    try:
        if path.suffix == ".txt":
            return _word_piece(path)
        if path.name == "vocab.json":
            return _byte_level_bpe(path)
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise PosgeomError(
            f"tokenizer {path} is no tokenizer file ({_first_line(error)}); give {_KNOWN}"
        ) from error


def _word_piece(path: Path) -> "tokenizers.Tokenizer":
    """BERT's tokenizer around a vocab.txt; uncased where no piece has a capital letter."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    pieces = path.read_text(encoding="utf-8").splitlines()
    if "[UNK]" not in pieces:
        raise ValueError("no line [UNK]")
    cased = any(p != p.lower() for p in pieces if not re.fullmatch(r"\[.*\]", p))
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    if {"[CLS]", "[SEP]"} <= vocabulary.keys():
        from tokenizers.processors import BertProcessing

        backend.post_processor = BertProcessing(
            ("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"])
        )
    return backend


def _byte_level_bpe(path: Path) -> "tokenizers.Tokenizer":
    """GPT-2's tokenizer around a vocab.json and the merges.txt beside it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    vocabulary = json.loads(path.read_text(encoding="utf-8"))
    lines = path.with_name("merges.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split(" ") for line in lines if line and not line.startswith("#version"))
    merges = [(a, b) for a, b in pairs]
    backend = Tokenizer(models.BPE(vocabulary, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def _trained(spec: str, corpus: Corpus | None, special_tokens: bool) -> LibraryTokenizer:
    """A tokenizer trained on the head of the corpus, as `train:MODEL:SIZE` says."""
    _, model, size = (*spec.split(":"), "", "")[:3]
    if spec.count(":") != 2 or model not in TRAINERS or not size.isdigit() or int(size) < 2:
        raise PosgeomError(
            f"tokenizer {spec!r} is not to be trained; give train:bpe:N, train:wordpiece:N or "
            "train:unigram:N with N pieces, 2 or more"
        )
    if corpus is None:
        raise PosgeomError(f"tokenizer {spec!r} needs a corpus to be trained on; count with it")
    head = corpus.head(TRAINING_DOCUMENTS, TRAINING_CHARACTERS)
    texts = [d.content for d in head if isinstance(d.content, str) and d.content]
    if not texts:
        raise PosgeomError(f"tokenizer {spec!r}: {corpus.name} has no text to be trained on")
    try:
        backend = TRAINERS[model](texts, int(size))
    except RuntimeError as error:
        raise PosgeomError(
            f"tokenizer {spec!r} cannot be trained on {corpus.name}: {_first_line(error)}; "
            "try another number of pieces"
        ) from error
    read_back = copy.deepcopy(backend)  # by way of its file, where unigram's scores are rounded
    tokenizer = LibraryTokenizer(read_back, spec, special_tokens)
    tokenizer.notes = (
        f"tokenizer {spec} was trained on the first {len(texts):,} documents "
        f"({sum(map(len, texts)):,} characters) and has {len(tokenizer.vocabulary):,} pieces",
    )
    return tokenizer


def _flat(rows: Iterable[list[int]]) -> tuple[IntArray, IntArray]:
    ids, lengths = array("I"), []  # of no other type is an array filled as fast
    for row in rows:  # one at a time, while it is in the cache
        ids.fromlist(row)
        lengths.append(len(row))
    return np.array(ids, dtype=np.int64), np.array(lengths, dtype=np.int64)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
