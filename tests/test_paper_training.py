"""Training, what needs no torch: splits, ledgers, correlations, contrasts, figures and the page."""

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from scipy.stats import spearmanr, ttest_rel

from posgeom import estimate_geometry
from posgeom.encodings import make_encoding
from posgeom.errors import PosgeomError
from posgeom.paper.page import DIGITS
from posgeom.paper.training import sources
from posgeom.paper.training.arms import ARMS, arms_named, scaled, starting_encoding
from posgeom.paper.training.comparison_page import conclusion, moved_section, verdict
from posgeom.paper.training.evidence import (
    ALL,
    QUESTIONS,
    Question,
    contrasts,
    correlations,
    paired,
    shuffled,
    spearman_rows,
    summary,
)
from posgeom.paper.training.ledger import Ledger
from posgeom.paper.training.settings import DIM
from posgeom.paper.training.sources import Labelled
from posgeom.paper.training.study import best_scale
from posgeom.paper.training.tasks import PARTS, Recipe, make_task, padded, task_of
from posgeom.plots.training import loss_by_stress, over_training
from posgeom.report.words import with_error
from posgeom.stress import stress

RECIPE = Recipe("", "class", "words", 6, (200, 30, 50), 100, 100)


def texts(rows=400, seed=0):
    """Texts of 3 to 9 words of which many come twice, whole or after the sixth word."""
    random = np.random.default_rng(seed)
    for _ in range(rows):
        words = random.choice(list("abcdef"), random.integers(3, 10))
        yield Labelled(" ".join(words), label=str(words[0]), group=str(words[-1]))


def visible(task, part):
    """What the model sees of the rows of a part."""
    return {tuple(task.ids[i, : task.lengths[i]]) for i in task.parts[part]}


# -- tasks ----------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_no_row_is_in_two_parts_nor_twice_in_one(seed):
    task = task_of("toy", RECIPE, texts(seed=seed))
    for one, other in itertools.combinations(PARTS, 2):
        assert not visible(task, one) & visible(task, other)
    for part in PARTS:
        assert len(visible(task, part)) == len(task.parts[part]) > 0


def test_a_split_does_not_depend_on_the_order_of_copies():
    rows = list(texts())
    one, other = (task_of("toy", RECIPE, r) for r in (rows, rows + rows[::-1]))
    assert np.array_equal(one.ids, other.ids)
    assert np.array_equal(one.labels, other.labels)


def test_labels_and_groups_stay_with_their_rows():
    rows = list(texts())
    task = task_of("toy", RECIPE, rows)
    by_text = {row.text: row for row in rows}
    names = sorted({row.label for row in rows})
    words = sorted({word for row in rows for word in row.text.split()})
    assert task.vocabulary == len(words)
    # the tokenizer numbers words as they come: the label is the first word of a row
    first = {}
    for i in range(len(task.ids)):
        first.setdefault(names[task.labels[i]], set()).add(int(task.ids[i, 0]))
    assert all(len(ids) == 1 for ids in first.values())
    assert set(task.groups) <= {row.group for row in by_text.values()}


def test_rows_are_cut_and_filled():
    ids, lengths = padded(np.array([1, 2, 3, 4, 5, 6]), np.array([2, 0, 4]), 3)
    assert ids.tolist() == [[1, 2, 0], [0, 0, 0], [3, 4, 5]]
    assert lengths.tolist() == [2, 0, 3]


def test_counts_are_those_of_the_training_part_alone():
    task = task_of("toy", RECIPE, texts())
    expected = np.zeros((task.n_positions, task.vocabulary), dtype=int)
    for i in task.parts["train"]:
        for p in range(task.lengths[i]):
            expected[p, task.ids[i, p]] += 1
    counted = task.counts().pooled.toarray()
    assert np.array_equal(counted, expected[:, : counted.shape[1]])


def test_a_small_corpus_and_unknown_names_are_refused(monkeypatch):
    with pytest.raises(PosgeomError, match="distinct texts"):
        task_of("toy", RECIPE, texts(40))
    with pytest.raises(PosgeomError, match="is not known here; use splice"):
        make_task("novels")
    with pytest.raises(PosgeomError, match="is not known here; use none, random"):
        arms_named(("rope", "whatever"))
    monkeypatch.delenv("POSGEOM_DATA", raising=False)
    with pytest.raises(PosgeomError, match="set POSGEOM_DATA"):
        list(sources.splice())


# -- encodings ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def geometry():
    return estimate_geometry(drifting().counts())


def drifting():
    """A task whose words depend on their position."""
    random = np.random.default_rng(3)
    rows = (
        Labelled(" ".join(f"w{p + random.integers(4)}" for p in range(6)), label=str(k % 2))
        for k in range(3_000)
    )
    return task_of("toy", Recipe("", "class", "words", 6, (1_500, 100, 200), 100, 100), rows)


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.name)
def test_a_size_changes_no_scale_free_stress(arm, geometry):
    n = geometry.n_positions
    if arm.rank is not None or "rank" in arm.spec:
        assert n > 3
    encoding = starting_encoding(arm, geometry, seed=5)
    found = scaled(encoding, n, 3.0)
    D = geometry.distances
    one, other = (stress(e.distances(np.arange(n)), D) for e in (encoding, found))
    assert one == pytest.approx(other, abs=1e-9)
    if arm.is_table:
        assert np.sqrt((found.rows**2).sum(axis=1).mean()) == pytest.approx(3.0)
        assert found.rows.shape == (n, DIM)


def test_slopes_are_multiplied():
    alibi = make_encoding("alibi:heads=2")
    assert np.allclose(scaled(alibi, 6, 4.0).slopes, 4 * alibi.slopes)


def test_shuffled_rows_are_the_same_rows_elsewhere(geometry):
    plain, mixed = (
        starting_encoding(arms_named((name,))[0], geometry, seed=1).rows
        for name in ("mds", "mds-shuffled")
    )
    assert not np.allclose(plain, mixed)
    assert sorted(map(tuple, plain)) == sorted(map(tuple, mixed))


# -- ledger ---------------------------------------------------------------------------------------


def test_a_line_that_was_cut_off_is_dropped_and_written_again(tmp_path):
    file = tmp_path / "deep" / "runs.jsonl"
    ledger = Ledger(file)
    for k in range(3):
        ledger.add(f"run {k}", {"loss": 0.1 * k, "table": None, "accuracy": float("nan")}, 1.5)
    whole = file.read_bytes()
    for cut in (1, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:cut])
        again = Ledger(file)
        for k in range(3):
            if f"run {k}" not in again.runs:
                again.add(f"run {k}", {"loss": 0.1 * k, "table": None, "accuracy": np.nan}, 2.5)
        assert file.read_bytes() == whole
    assert ledger.seconds == pytest.approx(4.5)
    assert [next(iter(json.loads(line))) for line in whole.splitlines()] == list(ledger.runs)


def test_a_work_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "work").write_text("x")
    with pytest.raises(PosgeomError, match="give another one, work = PATH"):
        Ledger(tmp_path / "work" / "runs.jsonl")


# -- evidence -------------------------------------------------------------------------------------


def made_runs(slope, noise=0.01, seeds=5, corpora=("one", "two")):
    """Runs whose loss is slope·stress and noise."""
    random = np.random.default_rng(0)
    rows = []
    for corpus in corpora:
        for k, arm in enumerate(ARMS):
            fit = k / len(ARMS)
            for seed in range(seeds):
                loss = 1 + slope * fit + noise * random.standard_normal()
                row = {"corpus": corpus, "encoding": arm.name, "stage": "final", "scale": 1.0}
                row |= {"seed": seed, "test_loss": loss, "test_accuracy": 1 - loss / 3}
                row |= {f"stress_{w}{x}": fit for w in ("start", "end") for x in ("", "_plugin")}
                rows.append(row | {"stress_end_low": fit - 0.1, "stress_end_high": fit + 0.1})
    return pd.DataFrame(rows)


KERNEL = {"one": 0.3, "two": 0.3}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=12))
def test_rank_correlation_is_scipys(pairs):
    x, y = np.array(pairs, dtype=float).T
    if len(set(x)) < 2 or len(set(y)) < 2:
        assert spearman_rows(x[None], y[None])[0] == 0
    else:
        assert spearman_rows(x[None], y[None])[0] == pytest.approx(spearmanr(x, y).statistic)


@pytest.mark.parametrize(
    ("slope", "said"), [(1.0, "lower stress, lower loss"), (-1.0, "lower stress, higher loss")]
)
def test_a_relation_that_is_there_is_found(slope, said):
    runs = made_runs(slope)
    table = correlations(runs, summary(runs, KERNEL))
    main = table[table["question"] == "all with positions"]
    assert list(main["corpus"]) == ["one", "two", ALL]
    assert (np.sign(main["rho"]) == slope).all()
    assert (main["p"] < 0.01).all()
    assert {verdict(row) for row in main.to_dict("records")} == {said}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"rho": 0.5, "low": -0.1, "high": 0.7, "p": 0.3}, "no relation beyond chance"),
        ({"rho": 0.5, "low": -0.1, "high": 0.7, "p": 0.01}, "tends to lower loss"),
        ({"rho": -0.5, "low": -0.7, "high": 0.1, "p": 0.01}, "tends to higher loss"),
        ({"rho": 0.2, "low": 0.1, "high": 0.5, "p": 0.08}, "tends to lower loss"),
    ],
)
def test_interval_and_p_must_agree_to_settle_it(row, said):
    assert said in verdict(row)


def test_where_there_is_none_intervals_hold_0_about_as_often_as_they_say():
    random = np.random.default_rng(1)
    missed = 0
    for _ in range(40):
        runs = made_runs(0.0).assign(
            test_loss=lambda r: (
                1
                + r["encoding"].map({arm.name: random.standard_normal() for arm in ARMS})
                + 0.1 * random.standard_normal(len(r))
            )
        )
        arms = summary(runs[runs["corpus"] == "one"], KERNEL)
        question = Question("all", frozenset(arm.name for arm in ARMS))
        row = correlations(runs, arms, [question]).iloc[0]
        missed += not row["low"] <= 0 <= row["high"]
    assert missed <= 8  # 2 of 40 are expected of an exact 95% interval


def test_p_is_the_share_of_shuffles():
    stress_, loss = np.arange(4.0), np.arange(4.0)
    null = shuffled(stress_, loss, np.random.default_rng(0))
    # of the 24 orders one has ρ = 1 and one −1
    assert (np.abs(null) > 0.999).mean() == pytest.approx(2 / 24, abs=0.015)


def test_contrasts_are_paired_by_seed():
    runs = made_runs(0.5, noise=0.1)
    table = contrasts(runs, summary(runs, KERNEL))
    row = table[(table["one"] == "mds") & (table["other"] == "random")].iloc[0]
    here = runs[runs["corpus"] == "one"].set_index("encoding")["test_loss"]
    known = ttest_rel(here["mds"], here["random"])
    low, high = known.confidence_interval(0.95)
    assert [row["difference"], row["low"], row["high"]] == pytest.approx(
        [(here["mds"].to_numpy() - here["random"].to_numpy()).mean(), low, high]
    )
    assert row["stress_difference"] == pytest.approx(4 / len(ARMS))
    assert np.isnan(paired(np.ones(1)).se)


def test_questions_are_of_the_arms_that_they_name():
    arms = {question.name: question.arms for question in QUESTIONS}
    angles = {"rope-trained", "fitted-rope-trained", "alibi-trained"}
    every = arms["all with positions"]
    assert every - arms["all with positions, angles and slopes frozen"] == angles
    assert arms["trained, tables or not"] - arms["trained tables"] == angles
    assert not angles & (arms["frozen, with positions"] | arms["frozen tables"])


def test_the_conclusion_also_says_what_the_runs_before_would():
    runs = made_runs(1.0)
    later = runs["encoding"].isin(["rope-trained", "fitted-rope-trained", "alibi-trained"])
    for some in (runs, runs[~later]):
        arms = summary(some, KERNEL)
        text = "\n".join(conclusion(correlations(some, arms), contrasts(some, arms)).lines)
        assert ("which came to the question" in text) == (some is runs)
        assert ("among 17 encodings" in text) == (some is runs)
        assert "among 14 encodings" in text


def test_the_page_tells_where_training_takes_an_encoding():
    runs = made_runs(0.5)
    moved = runs["encoding"].isin(["learned", "rope-trained", "alibi-trained"])
    runs.loc[moved, "stress_end"] -= 0.001 * (1 + runs["seed"][moved])
    runs["numbers"] = np.where(runs["encoding"] == "alibi-trained", "0.5 0.25", None)
    lines = moved_section(runs).lines
    start = [arm.name for arm in ARMS].index("learned") / len(ARMS)
    (row,) = (line for line in lines if line.startswith("| learned "))
    assert row.count(f"{start:.3g}: −0.0030 ± 0.0007") == 2  # σ/√5 of −1..−5 thousandths
    (row,) = (line for line in lines if line.startswith("| mds-trained "))
    assert row.count(": 0 ± 0") == 2
    assert not any(line.startswith("| rope |") for line in lines)
    assert "from 0.0625, 0.00391 to 0.500, 0.250 on one; 0.0625" in lines[-1]


def test_summary_means_errors_and_edges():
    runs = made_runs(0.5, noise=0.1).assign(scale=4.0)
    row = summary(runs, KERNEL).set_index(["corpus", "encoding"]).loc[("two", "mds")]
    own = runs[(runs["corpus"] == "two") & (runs["encoding"] == "mds")]["test_loss"]
    assert row["test_loss"] == pytest.approx(own.mean())
    assert row["test_loss_se"] == pytest.approx(own.sem())
    assert row["edge"]
    kernels = summary(runs, KERNEL).query("encoding in ['alibi', 'alibi-trained']")["stress_kernel"]
    assert set(kernels) == {0.3}


def test_the_best_scale_is_that_of_the_least_mean():
    tried = [
        {"scale": scale, "validation_loss": loss}
        for scale, loss in [(1, 0.5), (1, 0.9), (2, 0.6), (2, 0.65), (4, 0.64), (4, 0.7)]
    ]
    assert best_scale(tried) == 2


# -- figures --------------------------------------------------------------------------------------


def test_figures_show_the_numbers():
    ax = Figure().add_subplot()
    epochs, mean, se = np.arange(3.0), np.array([1.0, 0.5, 0.4]), np.full(3, 0.1)
    over_training(ax, {"sst2": (epochs, mean, se)})
    assert np.array_equal(ax.lines[0].get_xydata(), np.column_stack([epochs, mean]))
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(0.3)
    ax = Figure().add_subplot()
    trained = np.array([False, True, False])
    loss_by_stress(ax, ["none", "b", "c"], np.array([1.0, 0.5, 0.1]), mean, se, trained)
    drawn = np.vstack([container[0].get_xydata() for container in ax.containers])
    assert sorted(map(tuple, drawn)) == [(0.1, 0.4), (0.5, 0.5), (1.0, 1.0)]
    assert [text.get_text() for text in ax.texts] == ["1", "2", "3"]


# -- the committed result -------------------------------------------------------------------------

COMMITTED = Path(__file__).parents[1] / "reports" / "paper" / "training"
WRITTEN = 10.0 ** (1 - DIGITS)  # a unit in the last digit that numbers of 1 to 10 are written with


@pytest.mark.skipif(not COMMITTED.is_dir(), reason="no committed run of the training part")
def test_committed_tables_follow_from_the_committed_runs():
    runs, arms, related, changed = (
        pd.read_csv(COMMITTED / f"{name}.csv")
        for name in ("runs", "encodings", "correlations", "contrasts")
    )
    kernel = arms[arms["encoding"] == "alibi"].set_index("corpus")["stress_kernel"].to_dict()
    again = summary(runs, kernel)
    for column in ("test_loss", "test_loss_se", "test_error", "stress", "stress_plugin"):
        assert np.allclose(again[column], arms[column], rtol=0, atol=WRITTEN), column
    # by scipy; of 17 encodings two neighbours that rounding swaps move ρ by 12/(17·288)
    for corpus, here in again[again["encoding"] != "none"].groupby("corpus"):
        known = spearmanr(here["stress"], here["test_loss"]).statistic
        row = related[related["question"] == "all with positions"].set_index("corpus").loc[corpus]
        assert row["rho"] == pytest.approx(known, abs=0.005)
    for row in changed.to_dict("records"):
        final = runs[(runs["stage"] == "final") & (runs["corpus"] == row["corpus"])]
        by_seed = final.set_index(["encoding", "seed"])["test_loss"]
        differences = by_seed[row["one"]] - by_seed[row["other"]]
        assert row["difference"] == pytest.approx(differences.mean(), abs=WRITTEN)
        assert row["se"] == pytest.approx(differences.sem(), abs=WRITTEN)


@pytest.mark.skipif(not COMMITTED.is_dir(), reason="no committed run of the training part")
def test_the_committed_page_says_what_the_tables_hold():
    page = (COMMITTED / "report.md").read_text()
    arms = pd.read_csv(COMMITTED / "encodings.csv")
    for row in arms.to_dict("records"):
        near = (row["test_loss"] + e for e in (0, -WRITTEN / 2, WRITTEN / 2))  # rounded once more
        assert any(with_error(x, row["test_loss_se"]) in page for x in near)
    sizes = sum(p.stat().st_size for p in COMMITTED.rglob("*") if p.is_file())
    assert sizes < 600_000
