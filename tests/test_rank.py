"""Effective ranks and the choice of one."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from posgeom import PosgeomError, classical_mds
from posgeom.rank import (
    choose_rank,
    entropy_rank,
    explained_share,
    participation_ratio,
    stress_by_rank,
)
from posgeom.stress import raw_stress, stress


@pytest.mark.parametrize("measure", [participation_ratio, entropy_rank])
def test_effective_ranks_count_equal_eigenvalues(measure):
    assert measure(np.array([2.0, 2, 2, 0, -1])) == pytest.approx(3)
    assert measure(np.array([5.0])) == pytest.approx(1)
    assert measure(np.array([0.0, -1])) == 0
    assert 1 < measure(np.array([5.0, 1])) < 2


def test_explained_share_ends_at_one():
    np.testing.assert_allclose(explained_share(np.array([3.0, 1, 0, -1])), [0.75, 1, 1, 1])
    assert not explained_share(np.array([0.0, -1])).any()


def test_stress_by_rank_is_stress_rank_by_rank():
    X = np.random.default_rng(0).standard_normal((12, 5))
    D = cdist(X, X)
    P = classical_mds(D).coordinates
    free, raw = stress_by_rank(P, D)
    for r in range(1, 6):
        δ = cdist(P[:, :r], P[:, :r])
        assert free[r - 1] == pytest.approx(stress(δ, D), abs=1e-14)
        assert raw[r - 1] == pytest.approx(raw_stress(δ, D), abs=1e-14)
    assert free[-1] == pytest.approx(0, abs=1e-20)


def test_auto_takes_the_smallest_that_leaves_a_hundredth():
    assert choose_rank("auto", np.array([0.3, 0.02, 0.01, 0.001]), 5, 128) == 3
    assert choose_rank("auto", np.array([0.3, 0.2]), 3, 2) == 2


def test_a_number_is_taken_as_it_is():
    assert choose_rank(2, np.array([0.3, 0.2, 0.1]), 4, 128) == 2
    assert choose_rank("2", np.array([0.3, 0.2, 0.1]), 4, 128) == 2


@pytest.mark.parametrize(
    ("rank", "words"),
    [(0, "1 to 3"), (4, "1 to 3"), (9, "raise --dim"), ("best", "auto or a number")],
)
def test_ranks_that_cannot_be_are_refused(rank, words):
    with pytest.raises(PosgeomError, match=words):
        choose_rank(rank, np.array([0.1]), 4, 8)
