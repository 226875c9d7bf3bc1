"""Learned tables from the files that models leave."""

import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from scipy.spatial.distance import cdist

from posgeom import PosgeomError, make_encoding

TABLE = np.random.default_rng(0).standard_normal((10, 4)).astype(np.float32)


def saved(folder, name, **tensors):
    path = folder / name
    if path.suffix == ".npy":
        np.save(path, next(iter(tensors.values())))
    elif path.suffix == ".npz":
        np.savez(path, **tensors)
    else:
        save_file({k.replace("_dot_", "."): v for k, v in tensors.items()}, path)
    return f"learned:{path}"


@pytest.mark.parametrize("name", ["t.npy", "t.npz", "t.safetensors"])
def test_each_format_gives_the_rows(tmp_path, name):
    e = make_encoding(saved(tmp_path, name, wpe=TABLE))
    np.testing.assert_array_equal(e.table(range(10)), TABLE)
    np.testing.assert_allclose(e.distances(range(10)), cdist(TABLE, TABLE), atol=1e-6)
    assert (e.n_parameters, e.max_positions, e.shift_invariant) == (40, 10, False)
    assert e.family == "learned"


@pytest.mark.parametrize("name", ["t.npz", "t.safetensors"])
def test_a_key_chooses_among_tensors(tmp_path, name):
    spec = saved(tmp_path, name, one=TABLE, two=2 * TABLE)
    np.testing.assert_array_equal(make_encoding(f"{spec}#two").table([3]), 2 * TABLE[[3]])
    with pytest.raises(PosgeomError, match=r"#KEY, of one, two"):
        make_encoding(spec)
    with pytest.raises(PosgeomError, match="no tensor three; it has one, two"):
        make_encoding(f"{spec}#three")


def test_known_names_are_found_under_any_prefix(tmp_path):
    spec = saved(
        tmp_path, "m.safetensors", transformer_dot_wpe_dot_weight=TABLE, other=np.eye(3), b=TABLE[0]
    )
    np.testing.assert_array_equal(make_encoding(spec).table(range(10)), TABLE)


def test_nan_is_refused_with_its_row(tmp_path):
    broken = TABLE.copy()
    broken[7, 1] = np.nan
    with pytest.raises(PosgeomError, match="NaN or infinity in row 7"):
        make_encoding(saved(tmp_path, "t.npy", t=broken))


def test_fewer_rows_than_positions_are_refused(tmp_path):
    e = make_encoding(saved(tmp_path, "t.npy", t=TABLE))
    with pytest.raises(PosgeomError, match="has 10 rows, position 10 was asked"):
        e.distances(range(11))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("gone.npy", None, "is not a file"),
        ("t.npy", b"nothing of the kind", "cannot be read as .npy"),
        ("t.npz", b"nothing of the kind", "cannot be read as .npz"),
        ("t.safetensors", b"nothing of the kind", "cannot be read as .safetensors"),
        ("t.pt", b"", "ends in .pt"),
    ],
)
def test_files_that_hold_no_table_are_refused(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(PosgeomError, match=words):
        make_encoding(f"learned:{tmp_path / name}")


@pytest.mark.parametrize("array", [np.zeros(3), np.zeros((2, 2, 2)), np.zeros((0, 4))])
def test_arrays_of_another_shape_are_refused(tmp_path, array):
    with pytest.raises(PosgeomError, match="positions, dimensions"):
        make_encoding(saved(tmp_path, "t.npy", t=array))


def test_pickled_objects_are_refused(tmp_path):
    np.save(tmp_path / "t.npy", np.array([{"a": 1}], dtype=object))
    with pytest.raises(PosgeomError, match="cannot be read"):
        make_encoding(f"learned:{tmp_path / 't.npy'}")


def test_gpt2_has_786432_parameters():
    data = os.environ.get("POSGEOM_DATA")
    if not data:
        pytest.skip("POSGEOM_DATA is not set: GPT-2's table is not at hand")
    e = make_encoding(f"learned:{Path(data) / 'learned' / 'gpt2-small-1024x768.npy'}")
    assert (e.n_parameters, e.max_positions) == (786_432, 1_024)
