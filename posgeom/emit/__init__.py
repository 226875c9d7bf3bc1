"""A design as files."""

from posgeom.emit.folder import (
    check_out,
    check_out_file,
    load_design,
    read_geometry,
    save_counts,
    save_design,
)
from posgeom.emit.tensors import read_tensors, write_tensors

__all__ = [
    "check_out",
    "check_out_file",
    "load_design",
    "read_geometry",
    "read_tensors",
    "save_counts",
    "save_design",
    "write_tensors",
]
