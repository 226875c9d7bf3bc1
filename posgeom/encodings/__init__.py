"""The encodings that people use, and the distance that each puts between positions."""

from posgeom.encodings.absolute import Binary, Index, NoPositions, NormalisedIndex
from posgeom.encodings.base import Cost, Encoding
from posgeom.encodings.bias import Alibi, BiasEncoding, alibi_slopes
from posgeom.encodings.config import encoding_from_config, encodings_from_config
from posgeom.encodings.kernels import Fire, Kerple, Sandwich
from posgeom.encodings.learned import (
    LearnedPositions,
    LearnedTable,
    learned_table,
    position_offset,
)
from posgeom.encodings.pairing import convert_pairing, pairing_order
from posgeom.encodings.precision import first_collision, rounded
from posgeom.encodings.registry import FAMILIES, make_encoding, make_spec, parse_spec, spec_of
from posgeom.encodings.rotary import Rope, Rotary
from posgeom.encodings.rotary_grid import AxialRope, MRope
from posgeom.encodings.rotary_scaling import Scaling
from posgeom.encodings.shaw import Shaw
from posgeom.encodings.t5 import T5Bias, t5_bucket
from posgeom.encodings.table import FixedTable, Random, Sinusoidal, TableEncoding
from posgeom.encodings.xpos import XPos

__all__ = [
    "FAMILIES",
    "Alibi",
    "AxialRope",
    "BiasEncoding",
    "Binary",
    "Cost",
    "Encoding",
    "Fire",
    "FixedTable",
    "Index",
    "Kerple",
    "LearnedPositions",
    "LearnedTable",
    "MRope",
    "NoPositions",
    "NormalisedIndex",
    "Random",
    "Rope",
    "Rotary",
    "Sandwich",
    "Scaling",
    "Shaw",
    "Sinusoidal",
    "T5Bias",
    "TableEncoding",
    "XPos",
    "alibi_slopes",
    "convert_pairing",
    "encoding_from_config",
    "encodings_from_config",
    "first_collision",
    "learned_table",
    "make_encoding",
    "make_spec",
    "pairing_order",
    "parse_spec",
    "position_offset",
    "rounded",
    "spec_of",
    "t5_bucket",
]
