"""Encodings made for a corpus."""

from posgeom.designers.low_rank import LowRank, low_rank
from posgeom.designers.registry import DESIGNERS, TABLES, MDSTable

__all__ = ["DESIGNERS", "LowRank", "MDSTable", "TABLES", "low_rank"]
