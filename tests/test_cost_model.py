"""The cost model of a cluster, against a reduction that is carried out and weighed."""

import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from benchmarks.cluster import SMALL, model_rows, shard_counts, simulated

from posgeom import count_positions
from posgeom.engines.cost import Plan, zipf


@pytest.mark.slow
def test_the_model_agrees_with_ten_thousand_shards():
    assert SMALL.shards == 10_000
    found = simulated(SMALL)
    for name, value in found.items():
        assert getattr(SMALL, name) == pytest.approx(value, rel=0.05), name


@pytest.mark.parametrize("tokens", [1e4, 1e6])
@pytest.mark.parametrize("workers", [1, 2, 50])
@pytest.mark.parametrize("shards", [1, 3, 70, 200])
def test_the_model_agrees_with_odd_trees(tokens, workers, shards):
    plan = Plan(tokens, shards, workers, n_positions=8, vocab_size=300, n_folds=2)
    found = simulated(plan)
    assert plan.kept == pytest.approx(found["kept"], rel=0.1)
    assert plan.result == pytest.approx(found["result"], rel=0.1)
    if workers == 2:  # they take turns, so that neighbours are apart
        assert 0.9 * plan.moved <= found["moved"] <= 2 * plan.moved
    else:
        assert plan.moved == pytest.approx(found["moved"], rel=0.1)


def test_entries_are_those_of_counts_that_were_drawn():
    rng = np.random.default_rng(0)
    for tokens in (2_000, 60_000, 2_000_000):
        plan = Plan(tokens, 1, 1, n_positions=8, vocab_size=700, n_folds=2)
        drawn = [shard_counts(plan, rng).counts.nnz for _ in range(3)]
        assert np.mean(drawn) == pytest.approx(plan.entries(tokens), rel=0.02)


def test_counts_saturate():
    plan = Plan(1e12, 100, 10, n_positions=16, vocab_size=1_000)
    full = 16 * 16 * 1_000
    sizes = [plan.entries(10.0**k) for k in range(0, 13)]
    assert all(a <= b for a, b in pairwise(sizes))
    assert plan.entries(1) == pytest.approx(1, rel=1e-4)
    assert plan.entries(1e12) == pytest.approx(full)
    assert plan.result == pytest.approx(full * (2 + 4), rel=0.05)
    assert zipf(1_000).sum() == pytest.approx(1)


def test_real_text_has_no_more_entries_than_the_model(text_file):
    counts = count_positions(text_file, positions=8)
    plan = Plan(counts.totals.sum(), 1, 1, 8, counts.vocab_size)
    assert 0.5 < counts.counts.nnz / plan.entries(plan.tokens) < 1.2


def test_a_message_is_a_few_bytes_an_entry():
    plan = Plan(3e5, 1, 1, n_positions=32, vocab_size=5_000)
    counts = shard_counts(plan, np.random.default_rng(0))
    size = len(pickle.dumps(counts))
    assert size / counts.counts.nnz < 4  # 16 in the arrays that are computed with
    assert plan.message(3e5) == pytest.approx(size, rel=0.03)


def test_more_workers_take_less_time_and_send_more():
    plan = Plan(1e12, 10_000, 100, n_positions=512, vocab_size=32_000)
    assert replace(plan, workers=200).hours == pytest.approx(plan.hours / 2, rel=0.1)
    assert replace(plan, workers=1).moved == 0
    assert plan.moved < replace(plan, workers=200).moved
    assert plan.moved < replace(plan, shards=100_000).moved


def test_the_table_shows_the_ratio():
    rows = model_rows(Plan(1e4, 30, 3, n_positions=4, vocab_size=50, n_folds=2))
    assert [row["bytes"] for row in rows] == ["moved", "kept", "result"]
