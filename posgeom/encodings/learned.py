"""Learned tables, read from the files that models leave."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posgeom.encodings.base import BYTES, Cost
from posgeom.encodings.table import FixedTable, TableEncoding
from posgeom.encodings.weights import check_table, read_table
from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]

KNOWN_KEYS = (
    "wpe.weight",  # GPT-2, GPT-Neo
    "position_embeddings.weight",  # BERT, RoBERTa, MPNet
    "embed_positions.weight",  # OPT, BART
    "position_embedding.weight",  # CLIP
    "positions_embed.weight",  # GPT
)

# Checked in the models of `transformers` 5.24.  Here position 0 is row padding_idx + 1 …
AFTER_PADDING = {
    "altclip_text_model",
    "camembert",
    "clap_text_model",
    "data2vec-text",
    "esm",
    "ibert",
    "layoutlmv3",
    "lilt",
    "longformer",
    "luke",
    "markuplm",
    "mpnet",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
}
# … here row 2, whatever the padding, and the table has two rows more than the model positions.
# Pegasus, Blenderbot, LED and BigBird-Pegasus, their near relatives, start at row 0.
AFTER_TWO = {
    "bart",
    "biogpt",
    "mbart",
    "mra",
    "mvp",
    "nystromformer",
    "opt",
    "plbart",
    "trocr",
    "yoso",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class LearnedTable(FixedTable):
    """A table that a model learned.

    offset  rows of the file before that of position 0, left out of `rows`
    remark  how the offset was found, where it was not said
    """

    family: ClassVar[str] = "learned"
    offset: int = 0
    remark: str = ""

    @property
    def note(self) -> str:
        """The remark."""
        return self.remark


@dataclass(frozen=True, kw_only=True)
class LearnedPositions(TableEncoding):
    """A learned table of which only the configuration is known: its size, not its rows."""

    family: ClassVar[str] = "learned"
    dim: int
    positions: int
    offset: int = 0

    @property
    def n_parameters(self) -> int:
        """n·d of the rows that positions have."""
        return self.positions * self.dim

    @property
    def max_positions(self) -> int:
        """Positions that have a row."""
        return self.positions

    @property
    def shift_invariant(self) -> bool:
        """False: nothing ties the rows to offsets."""
        return False

    def table(self, positions: ArrayLike) -> FloatArray:
        """PosgeomError: a configuration holds no rows."""
        raise PosgeomError(
            "a config.json alone does not hold the learned table; give the model's folder with "
            "its weights as learned:DIR"
        )

    def cost(self, dim: int, heads: int, length: int) -> Cost:
        """What it stores; one addition for each dimension, at the input."""
        return Cost(self.n_parameters, self.dim, BYTES * self.n_parameters, "error")


def position_offset(config: dict[str, Any]) -> int:
    """The row of position 0 in the learned table of a model with this config.json.

    RoBERTa and its kin: padding_idx + 1 (MPNet's padding_idx is 1 whatever the config says).
    OPT, BART and theirs: 2.  Others: 0.
    """
    kind = config.get("model_type", "")
    if kind in AFTER_TWO:
        return 2
    if kind in AFTER_PADDING:
        padding = 1 if kind == "mpnet" else config.get("pad_token_id", 1)
        if isinstance(padding, bool) or not isinstance(padding, int | None):
            raise PosgeomError(f"pad_token_id of the config is {padding!r}; give a whole number")
        return (1 if padding is None else padding) + 1
    return 0


def learned_table(address: str, spec: str = "") -> LearnedTable:
    """The table at PATH[#KEY][,offset=n], a .npy, .npz or .safetensors file or a model's folder.

    KEY     the tensor; by default the only one with a known name (GPT-2's `wpe.weight`, BERT's
            `position_embeddings.weight`, OPT's `embed_positions.weight`, under any prefix), or
            the only two-dimensional one
    offset  the row of position 0, behind a # also without a key: `learned:t.npy#offset=2`.  By
            default what the folder's config.json implies, see position_offset.  A file without a
            config: 2 where row 1 is all zero and 2 + a power of two rows are there, which is
            RoBERTa's padding row; said in the note

    A folder is config.json beside model.safetensors, whole or in shards.  Raises PosgeomError for
    a file that is missing or of another kind (also a pickle), for a key that is not there, and
    for NaN or infinity in the table.
    """
    path, _, tail = address.partition("#")
    key, offset = _options(tail, address)
    remark = ""
    if Path(path).is_dir():
        config = read_config(path) if offset is None else {}
        rows = check_table(read_table(path, key, KNOWN_KEYS), path)
        if offset is None:
            offset = position_offset(config)
            if offset:
                remark = f"position 0 is row {offset}, as in {config.get('model_type')} models"
    else:
        rows = check_table(read_table(path, key, KNOWN_KEYS), path)
    if offset is None:
        offset, remark = _offset_of(rows)
    if not 0 <= offset < len(rows):
        raise PosgeomError(f"offset={offset} came for {path} of {len(rows)} rows; give fewer")
    return LearnedTable(rows=rows[offset:], spec=spec, offset=offset, remark=remark)


def read_config(folder: str | Path) -> dict[str, Any]:
    """The config.json of a model's folder; PosgeomError where it is missing or broken."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise PosgeomError(f"{folder} has no config.json; give a model's folder")
    try:
        config = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise PosgeomError(f"{path} is no JSON: {error}") from error
    if not isinstance(config, dict):
        raise PosgeomError(f"{path} holds {type(config).__name__}; a config is an object")
    return config


def _options(tail: str, address: str) -> tuple[str, int | None]:
    key, offset = "", None
    for number, item in enumerate(tail.split(",")):
        name, equals, value = item.partition("=")
        if not equals and number == 0:
            key = item
        elif name == "offset" and value.isdecimal():
            offset = int(value)
        else:
            raise PosgeomError(
                f"learned table {address} holds {item!r}; use learned:PATH#KEY,offset=2"
            )
    return key, offset


def _offset_of(rows: FloatArray) -> tuple[int, str]:
    if len(rows) < 3 or rows[1].any() or not rows[2:].any():
        return 0, ""
    positions = len(rows) - 2
    if positions & (positions - 1) == 0:
        return 2, (
            f"row 1 is all zero and {positions} + 2 rows are there, a padding row: position 0 is "
            "taken to be row 2; say offset=0 if it is not"
        )
    return 0, "row 1 is all zero, maybe a padding row: say offset=2 if position 0 comes after it"
