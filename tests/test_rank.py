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


def test_auto_takes_the_smallest_within_one_error_of_the_least():
    """As counted by hand: the least, 0.010 at rank 4, and its error of 0.005 reach to rank 3."""
    stresses, errors = np.array([0.3, 0.02, 0.014, 0.010, 0.011]), np.array([9, 9, 9, 0.005, 9])
    assert choose_rank("auto", stresses, 9, 128, errors=errors) == 3
    assert choose_rank("auto", stresses, 9, 128, errors=errors / 10) == 4


def test_auto_without_errors_is_the_rule_of_a_hundredth():
    stresses = np.array([0.3, 0.02, 0.0099, 0.001])
    for errors in (None, np.full(4, np.nan)):
        assert choose_rank("auto", stresses, 9, 128, errors=errors) == 3
    assert choose_rank("stress=0.01", stresses, 9, 128, errors=np.zeros(4)) == 3


@pytest.mark.parametrize(
    ("rule", "rank"),
    [("stress=0.02", 2), ("stress=0", 7), ("explained=0.6", 2), ("explained=0.61", 4)],
)
def test_rules_by_name_choose_among_the_ranks_given(rule, rank):
    stresses, shares = np.array([0.3, 0.02, 0.01, 0.001]), np.array([0.5, 0.6, 0.8, 0.95])
    ranks = np.array([1, 2, 4, 7])
    assert choose_rank(rule, stresses, 9, 128, explained=shares, ranks=ranks) == rank


def test_a_rule_that_no_rank_meets_takes_the_largest():
    shares = np.array([0.5, 0.6])
    assert choose_rank("explained=0.9", np.array([0.3, 0.2]), 9, 128, explained=shares) == 2


def test_a_number_is_taken_as_it_is():
    assert choose_rank(2, np.array([0.3, 0.2, 0.1]), 4, 128) == 2
    assert choose_rank("2", np.array([0.3, 0.2, 0.1]), 4, 128) == 2


@pytest.mark.parametrize(
    ("rank", "words"),
    [
        (0, "1 to 3"),
        (4, "1 to 3"),
        (9, "raise --dim"),
        ("best", "auto or a number, stress=0.01 or explained=0.9"),
        ("auto=3", "or a number"),
        ("stress=", "from 0 to 1"),
        ("stress=two", "from 0 to 1"),
        ("stress=nan", "from 0 to 1"),
        ("explained=90", "from 0 to 1"),
    ],
)
def test_ranks_that_cannot_be_are_refused(rank, words):
    with pytest.raises(PosgeomError, match=words):
        choose_rank(rank, np.array([0.1]), 4, 8, explained=np.array([0.5]))
