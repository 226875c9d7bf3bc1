"""Packed symmetric matrices come back whole."""

import numpy as np
import pytest

from posgeom.packed import add_packed, packed_size, unpacked


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 200])
def test_what_was_added_comes_back(n):
    rng = np.random.default_rng(n)
    A, B = rng.integers(-9, 9, (2, n, n)).astype(np.float32)
    packed = np.zeros((2, packed_size(n)), dtype=np.float32)
    add_packed(A, packed[0], both=True)
    add_packed(B + B.T, packed[0], both=False)
    add_packed(B @ B.T, packed[1], both=False)
    right = [A + A.T + B + B.T, B @ B.T]
    np.testing.assert_array_equal(unpacked(packed, n), right)


def test_little_more_than_half_is_kept():
    assert packed_size(32) == 32**2
    assert packed_size(1_024) < 0.54 * 1_024**2
