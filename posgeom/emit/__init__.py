"""A design as files."""

from posgeom.emit.folder import (
    FILES,
    check_run,
    load_design,
    made_with,
    read_geometry,
    save_counts,
    save_design,
)
from posgeom.emit.tensors import read_tensors, write_tensors

__all__ = [
    "FILES",
    "check_run",
    "load_design",
    "made_with",
    "read_geometry",
    "read_tensors",
    "save_counts",
    "save_design",
    "write_tensors",
]
