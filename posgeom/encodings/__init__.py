"""The encodings that people use, and the distance that each puts between positions."""

from posgeom.encodings.base import Encoding
from posgeom.encodings.bias import Alibi, alibi_slopes
from posgeom.encodings.learned import LearnedTable, learned_table
from posgeom.encodings.registry import FAMILIES, make_encoding, parse_spec
from posgeom.encodings.rotary import Rope
from posgeom.encodings.table import FixedTable, Random, Sinusoidal, TableEncoding

__all__ = [
    "FAMILIES",
    "Alibi",
    "Encoding",
    "FixedTable",
    "LearnedTable",
    "Random",
    "Rope",
    "Sinusoidal",
    "TableEncoding",
    "alibi_slopes",
    "learned_table",
    "make_encoding",
    "parse_spec",
]
