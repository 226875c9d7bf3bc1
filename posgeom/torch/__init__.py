"""Encodings as PyTorch layers; the package torch is needed for them, and for nothing else here."""

from posgeom.torch.bias import (
    AlibiBias,
    AttentionBias,
    FireBias,
    KerpleBias,
    OffsetBias,
    RelativeBias,
)
from posgeom.torch.gram import FoldedBias, GramBias, fold_bias
from posgeom.torch.positions import packed_positions, padded_positions
from posgeom.torch.rotary import RotaryEmbedding
from posgeom.torch.tables import LowRankPositionalEncoding, TablePositionalEncoding

__all__ = [
    "LowRankPositionalEncoding",
    "TablePositionalEncoding",
    "RotaryEmbedding",
    "AttentionBias",
    "AlibiBias",
    "RelativeBias",
    "KerpleBias",
    "FireBias",
    "OffsetBias",
    "GramBias",
    "FoldedBias",
    "fold_bias",
    "padded_positions",
    "packed_positions",
]
