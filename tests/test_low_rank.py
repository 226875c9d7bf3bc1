"""The paper's construction: few parameters, the same distances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.fft import dct
from scipy.spatial.distance import cdist

from posgeom import PosgeomError, SyntheticCorpus, classical_mds, score_encodings, true_geometry
from posgeom.designers import low_rank
from posgeom.designers.low_rank import cosine_basis


@given(st.integers(1, 40), st.integers(0, 39))
@settings(deadline=None)
def test_the_lift_keeps_distances(dim, less):
    rank = max(1, dim - less)
    B = cosine_basis(dim, rank)
    assert B.shape == (dim, rank)
    np.testing.assert_allclose(B.T @ B, np.eye(rank), atol=1e-12)
    X = np.random.default_rng(dim).standard_normal((6, rank))
    table = low_rank(X, rank, dim).table()
    np.testing.assert_allclose(cdist(table, table), cdist(X, X), atol=1e-12)


def test_the_basis_is_the_discrete_cosine_transform_without_its_mean():
    np.testing.assert_allclose(cosine_basis(9, 8), dct(np.eye(9), norm="ortho").T[1:].T, atol=1e-12)
    assert np.abs(cosine_basis(9, 8).sum(axis=0)).max() < 1e-12


def test_parameters_of_the_papers_example():
    """n = 32, d = 128, r = 3: 480 in place of 4,096, 88.3% fewer."""
    low = low_rank(np.random.default_rng(0).standard_normal((32, 3)), 3, 128)
    assert low.n_parameters == 480
    assert 1 - low.n_parameters / low.table().size == pytest.approx(0.883, abs=5e-4)


def test_norm_scales_the_whole_table():
    low = low_rank(np.random.default_rng(0).standard_normal((32, 3)), 3, 128)
    scaled = low.with_norm(0.5)
    assert np.sqrt((scaled.table() ** 2).sum(axis=1).mean()) == pytest.approx(0.5)
    ratio = scaled.table() / low.table()
    np.testing.assert_allclose(ratio, ratio[0, 0])
    for bad in (0, -1, np.nan, np.inf):
        with pytest.raises(PosgeomError, match="positive"):
            low.with_norm(bad)


def test_a_rank_above_the_dimension_is_refused():
    with pytest.raises(PosgeomError, match="raise --dim"):
        low_rank(np.eye(4), 4, 3)


def test_missing_coordinates_are_zero():
    table = low_rank(np.ones((3, 1)), 2, 4)
    assert not table.A[:, 1].any()


def test_scores_of_designed_encodings():
    truth = true_geometry(SyntheticCorpus(shape="blocks").profiles)
    scores = score_encodings(truth, ["mds", "mds:rank=2", "mds:rank=1"], dim=128)
    assert scores["parameters"].tolist() == [32 * 128, 2 * 160, 160]
    assert scores["family"].eq("mds").all()
    assert scores.loc[1, "stress"] < 1e-12  # three blocks lie in a plane
    mds = classical_mds(truth.distances)
    δ = cdist(mds.coordinates[:, :1], mds.coordinates[:, :1])
    D = truth.distances
    raw = ((δ - D) ** 2).sum() / (D**2).sum()
    assert scores.loc[2, "stress_raw"] == pytest.approx(raw)


def test_a_full_table_keeps_what_the_dimension_has_room_for():
    truth = true_geometry(SyntheticCorpus(shape="mixture").profiles)
    scores = score_encodings(truth, ["mds:dim=2", "mds:dim=2,rank=2"])
    assert scores.loc[0, "stress"] == pytest.approx(scores.loc[1, "stress"])
    with pytest.raises(PosgeomError, match="does not fit in dimension 2"):
        score_encodings(truth, ["mds:dim=2,rank=3"])
    with pytest.raises(PosgeomError, match="at most 31"):
        score_encodings(truth, ["mds:rank=32"])
    with pytest.raises(PosgeomError, match="takes int"):
        score_encodings(truth, ["mds:rank=auto"])
