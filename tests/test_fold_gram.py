"""Inner products of folds, held against einsum, however the tokens are dealt with."""

import numpy as np
import pytest

from posgeom import SyntheticCorpus
from posgeom.fold_gram import fold_gram
from posgeom.packed import unpacked
from posgeom.simulation import draw_counts


@pytest.fixture(scope="module")
def counts():
    return draw_counts(SyntheticCorpus("mixture", 5, 300, 400), folds=4)


@pytest.fixture(scope="module")
def Y(counts):
    """(K, n, V) deviations as the docstring of fold_gram has them, in float64."""
    C = counts.counts.toarray().reshape(4, 5, -1)
    C = C[:, :, C.sum(axis=(0, 1)) > 1].astype(float)
    N = counts.fold_totals
    rare = 1 / N.sum(axis=0).mean()
    Y = np.empty_like(C)
    for k in range(4):
        own = C[k].sum(axis=0) / N[k].sum()
        Y[k] = (C[k] - N[k][:, None] * own) / np.sqrt(
            N.sum(axis=0)[:, None] * (C.sum(axis=(0, 1)) / N.sum() + rare)
        )
    return Y


@pytest.mark.parametrize("frequent", [0.0, 0.12, 0.5, 2.0])
def test_the_pairs_are_products_of_the_weighted_deviations(monkeypatch, counts, Y, frequent):
    """All tokens dense, some, or none."""
    monkeypatch.setattr("posgeom.folded_columns.FREQUENT", frequent)
    monkeypatch.setattr("posgeom.fold_gram._BLOCK", 600)  # three blocks and more
    gram = fold_gram(counts)
    for pair, k, m in zip(unpacked(gram.pairs, 5), *np.triu_indices(4), strict=True):
        product = Y[k] @ Y[m].T
        right = product if k == m else product + product.T
        np.testing.assert_allclose(pair, right, rtol=1e-6, atol=1e-5)  # float32


@pytest.mark.parametrize("at_a_time", [10**6, 40])
def test_sums_are_those_of_sums_of_deviations(monkeypatch, counts, Y, at_a_time):
    """All at once, or one at a time."""
    monkeypatch.setattr("posgeom.fold_gram._SUMS", at_a_time)
    monkeypatch.setattr("posgeom.fold_gram._ENTRIES", 7)
    monkeypatch.setattr("posgeom.fold_gram._CACHED", at_a_time)
    gram = fold_gram(counts)
    signs = np.random.default_rng(0).standard_normal((3, 4))
    signed = np.einsum("tk,kiv->tiv", signs, Y)
    right = np.einsum("tiv,tjv->tij", signed, signed)
    parts = list(gram.of_sums(lambda M: M, signs[:, :, None] * signs[:, None, :]))
    assert len(parts) == (1 if at_a_time > 100 else 3)
    sums = np.concatenate(parts)
    np.testing.assert_allclose(sums, right, atol=1e-4)
    total = Y.sum(axis=0)
    np.testing.assert_allclose(
        gram.across, total @ total.T - np.einsum("kiv,kjv->ij", Y, Y), atol=1e-4
    )


def test_threads_leave_the_pairs_alone(monkeypatch):
    counts = draw_counts(SyntheticCorpus("decay", 140, 200, 300), folds=8)
    one = fold_gram(counts).pairs
    monkeypatch.setattr("posgeom.side_by_side.threads", lambda libraries: 3)
    assert np.array_equal(fold_gram(counts).pairs, one)
