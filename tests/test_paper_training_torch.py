"""Training itself: the model against torch's own, seeds, what positions are for, resuming."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from posgeom.encodings import FixedTable, make_encoding  # noqa: E402
from posgeom.errors import PosgeomError  # noqa: E402
from posgeom.paper.training import job, tasks  # noqa: E402
from posgeom.paper.training.arms import arms_named, scaled, starting_encoding  # noqa: E402
from posgeom.paper.training.job import FILES, reproduce_training  # noqa: E402
from posgeom.paper.training.learning import table_measures  # noqa: E402
from posgeom.paper.training.ledger import Ledger  # noqa: E402
from posgeom.paper.training.loop import hidden_tokens, train  # noqa: E402
from posgeom.paper.training.model import Encoder, seeded  # noqa: E402
from posgeom.paper.training.sources import SOURCES, Labelled  # noqa: E402
from posgeom.paper.training.study import Budget, n_runs, study  # noqa: E402
from posgeom.paper.training.tasks import Recipe, task_of  # noqa: E402
from posgeom.paper.training.trained import TrainedRotary, TrainedSlopes  # noqa: E402
from posgeom.paper.training.work import Ground, open_ledger  # noqa: E402

torch.set_num_threads(1)
TOY = Recipe("toy", "class", "words", 8, (1_200, 60, 120), 600, 300)
ROWS = 2_000


def ordered(seed=0, rows=ROWS):
    """Rows of 8 words of which the word at position 2 alone tells the label.

    Which words come is drawn from one and the same bag, apart from a drift that gives positions
    a geometry; the labels are as likely for each of the words.
    """
    random = np.random.default_rng(seed)
    for _ in range(rows):
        words = [f"w{(random.integers(6) + p) % 12}" for p in range(8)]
        flag = random.integers(2)
        words[2], words[5] = ("yes", "no") if flag else ("no", "yes")
        yield Labelled(" ".join(words), label=str(flag))


@pytest.fixture(scope="module")
def toy():
    return task_of("toy", TOY, ordered())


@pytest.fixture(scope="module")
def ground(toy):
    return Ground.of(toy)


# -- the model ------------------------------------------------------------------------------------


def test_a_layer_is_torchs_own_with_the_same_weights():
    with seeded(0):
        own = Encoder(11, 3, 16, 2, 1)
        reference = torch.nn.TransformerEncoderLayer(
            16, 2, 32, dropout=0.0, batch_first=True, norm_first=True
        )
    layer = own.layers[0]
    names = {
        "self_attn.in_proj_weight": layer.qkv.weight,
        "self_attn.in_proj_bias": layer.qkv.bias,
        "self_attn.out_proj.weight": layer.out.weight,
        "self_attn.out_proj.bias": layer.out.bias,
        "linear1.weight": layer.up.weight,
        "linear1.bias": layer.up.bias,
        "linear2.weight": layer.down.weight,
        "linear2.bias": layer.down.bias,
        "norm1.weight": layer.norm_1.weight,
        "norm1.bias": layer.norm_1.bias,
        "norm2.weight": layer.norm_2.weight,
        "norm2.bias": layer.norm_2.bias,
    }
    reference.load_state_dict(names)
    reference.train()  # in which torch takes no other path
    ids, lengths = torch.arange(20).reshape(4, 5) % 11, torch.tensor([5, 3, 4, 1])
    hidden = torch.arange(5) >= lengths[:, None]
    expected = own.norm(reference(own.tokens(ids), src_key_padding_mask=hidden))
    found = own(ids, lengths)
    assert torch.allclose(found[~hidden], expected[~hidden], atol=1e-6)
    logits = own.classify(ids, lengths)
    by_hand = torch.cat([expected[i, : lengths[i]].mean(0, keepdim=True) for i in range(4)])
    assert torch.allclose(logits, own.outputs(by_hand), atol=1e-6)


@pytest.mark.parametrize("spec", ["sinusoidal:dim=16", "rope:dim=8", "alibi:heads=2", "none"])
def test_positions_come_in_through_posgeoms_layers(spec):
    encoding = make_encoding(spec)
    with seeded(0):
        model = Encoder(11, 3, 16, 2, 2)
    placed = scaled(encoding, 6, 1.0)
    model.place(placed, trained=False, rank=None)
    ids, lengths = torch.arange(12).reshape(2, 6) % 11, torch.tensor([6, 6])
    order = torch.tensor([3, 1, 0, 5, 4, 2])
    same = torch.allclose(
        model.classify(ids, lengths), model.classify(ids[:, order], lengths), atol=1e-5
    )
    assert same == (spec == "none")
    if isinstance(placed, FixedTable):
        assert np.allclose(model.added.table().numpy(), placed.rows, atol=1e-6)
    assert not any(p.requires_grad and "added" in n for n, p in model.named_parameters())


def test_a_trained_low_rank_table_is_two_factors_and_starts_where_it_should(ground):
    arm = arms_named(("mds-rank-3-trained",))[0]
    start = scaled(starting_encoding(arm, ground.debiased, 0), 8, 2.0)
    with seeded(0):
        model = Encoder(11, 3, 32, 2, 1)
    model.place(start, trained=True, rank=arm.rank)
    shapes = {n: tuple(p.shape) for n, p in model.named_parameters() if "added" in n}
    assert shapes == {"added.A": (8, 3), "added.B": (32, 3)}
    assert np.allclose(model.added.table().detach().numpy(), start.rows, atol=1e-5)


# -- angles and slopes that learn -----------------------------------------------------------------

LEARNING = {"rope:dim=8,base=100": 4, "alibi:heads=2": 2}  # and how many numbers are trained


@pytest.mark.parametrize("spec", LEARNING)
def test_trained_angles_and_slopes_begin_as_the_frozen_ones(spec):
    encoding = make_encoding(spec)
    models = []
    for trained in (False, True):
        with seeded(0):
            models.append(Encoder(11, 3, 16, 2, 2))
        models[-1].place(encoding, trained=trained, rank=None)
    frozen, learning = models
    ids, lengths = torch.arange(12).reshape(2, 6) % 11, torch.tensor([6, 4])
    assert torch.allclose(frozen.classify(ids, lengths), learning.classify(ids, lengths), atol=1e-6)
    sizes = [sum(p.numel() for p in model.parameters()) for model in models]
    assert sizes[1] - sizes[0] == LEARNING[spec]  # one set for both layers
    assert frozen.encoding(encoding) is encoding
    p = np.arange(6)
    assert np.allclose(learning.encoding(encoding).distances(p), encoding.distances(p), atol=1e-6)


def test_gradients_of_frequencies_and_slopes_are_those_of_their_formulas():
    """Of w·f: q turned by p·θ has d/dθ = p·(turned by a quarter more), a bias −|m||i−j|."""
    random = torch.Generator().manual_seed(0)
    q, w = (torch.randn(1, 1, 5, 4, generator=random, dtype=torch.float64) for _ in range(2))
    layer = TrainedRotary([1.0, 0.3], pairing="halves").double()
    turned, _ = layer(q, q)
    (turned * w).sum().backward()
    θ, p = torch.tensor([1.0, 0.3], dtype=torch.float64), torch.arange(5.0, dtype=torch.float64)
    z = torch.complex(q[0, 0, :, :2], q[0, 0, :, 2:]) * torch.exp(1j * p[:, None] * θ)
    quarter = 1j * p[:, None] * z
    expected = (quarter.real * w[0, 0, :, :2] + quarter.imag * w[0, 0, :, 2:]).sum(0)
    assert torch.allclose(layer.θ.grad, expected, rtol=1e-6)

    slopes = TrainedSlopes([0.5, -0.25])
    w = torch.randn(2, 5, 5, generator=random)
    (slopes(5) * w).sum().backward()
    gap = (torch.arange(5)[:, None] - torch.arange(5)).abs()
    expected = -(w * gap).sum((1, 2)) * torch.tensor([1.0, -1.0])
    assert torch.allclose(slopes.m.grad, expected, rtol=1e-5)
    assert (slopes(5) <= 0).all()
    assert slopes.encoding(make_encoding("alibi:heads=2")).slopes.tolist() == [0.5, 0.25]


def test_what_is_trained_is_what_the_run_ends_with(toy):
    for spec, scale in (("rope:dim=16", 1.0), ("alibi:heads=2", 4.0)):
        start = scaled(make_encoding(spec), 8, scale)
        frozen, learning = (train(toy, start, 0, 192, 2, trained=t) for t in (False, True))
        assert all(moment.encoding is start for moment in frozen.moments)
        first, last = (learning.moments[k].encoding for k in (0, -1))
        numbers = "own_slopes" if "alibi" in spec else "own_frequencies"
        moved = np.subtract(getattr(last, numbers), getattr(first, numbers))
        # Adam moves a number by about its rate a step, whatever its size
        assert (np.abs(moved) > 1e-4).all()
        assert (np.abs(moved) < 192 / 64 * 3e-3 * 2).all()
        assert frozen.test != learning.test


def test_frequencies_that_follow_the_length_do_not_learn():
    rope = make_encoding("rope:dim=8,scaling=dynamic,factor=2,original_length=8")
    with pytest.raises(PosgeomError, match="follow the length"):
        TrainedRotary.from_encoding(rope)


def test_a_study_tells_where_angles_and_slopes_went(ground, tmp_path):
    arms = arms_named(("rope", "rope-trained", "fitted-rope-trained", "alibi-trained"))
    arms = [replace(arm, scales=(1.0,)) for arm in arms]
    runs = study(ground, arms, Budget(320, 1, 2, 1), open_ledger(ground, str(tmp_path), "x"))
    by_name = dict(list(runs.groupby("encoding")))
    assert by_name["rope"]["numbers"].isna().all()
    assert (by_name["rope"]["stress_start"] == by_name["rope"]["stress_end"]).all()
    for row in by_name["rope-trained"].to_dict("records"):
        θ = row["numbers"].replace(" ", ";")
        ended = ground.debiased_stress(make_encoding(f"rope:dim=16,inv_freq={θ}"))
        assert row["stress_end"] == pytest.approx(ended.value, rel=1e-3)
    assert {len(text.split()) for text in by_name["fitted-rope-trained"]["numbers"]} == {8}
    alibi = by_name["alibi-trained"]
    assert {len(text.split()) for text in alibi["numbers"]} == {2}
    assert np.allclose(alibi["stress_end"], alibi["stress_start"])  # at all slopes the same


def test_hidden_tokens_are_a_share_of_real_ones_and_one_at_least():
    lengths = np.full(4_000, 7)
    asked = hidden_tokens(lengths, 10, np.random.default_rng(0))
    assert not asked[:, 7:].any()
    assert asked.any(axis=1).all()
    # Σ over 7 tokens of 0.15, and one where none came
    assert asked.sum() / 4_000 == pytest.approx(7 * 0.15 + 0.85**7, abs=0.05)


# -- runs -----------------------------------------------------------------------------------------


def test_equal_seeds_equal_runs_and_nothing_else_is_touched(toy):
    encoding = scaled(make_encoding("sinusoidal:dim=32"), 8, 1.0)
    torch.manual_seed(99)
    expected = torch.rand(3)
    torch.manual_seed(99)
    one, other, third = (train(toy, encoding, seed, 128, 2) for seed in (0, 0, 1))
    assert torch.equal(torch.rand(3), expected)
    assert one.test == other.test != third.test
    assert [m.validation for m in one.moments] == [m.validation for m in other.moments]


def test_the_moment_of_the_least_validation_loss_is_tested(toy):
    encoding = scaled(make_encoding("random:dim=32"), 8, 1.0)
    run = train(toy, encoding, 0, 640, 4, trained=True)
    losses = [m.validation.loss for m in run.moments]
    assert run.best == int(np.argmin(losses))
    assert [m.seen for m in run.moments] == [0, 128, 320, 512, 640]
    assert np.isnan(run.moments[0].train.loss)
    assert np.allclose(run.moments[0].encoding.rows, encoding.rows, atol=1e-6)
    assert not np.allclose(run.moments[-1].encoding.rows, encoding.rows, atol=1e-3)


@pytest.mark.slow
def test_only_an_encoding_solves_what_only_order_tells(toy):
    """Without positions the label of `ordered` is a coin; with any encoding it can be learned."""
    found = {}
    for name in ("none", "random", "sinusoidal", "alibi", "rope"):
        arm = arms_named((name,))[0]
        encoding = starting_encoding(arm, None, 0)
        scale = 4.0 if name == "alibi" else 2.0
        found[name] = train(toy, scaled(encoding, 8, scale), 0, 16_000, 4).test.accuracy
    assert 0.4 < found.pop("none") < 0.6
    assert min(found.values()) > 0.9


def test_hidden_tokens_are_learned(toy):
    task = replace(toy, objective="masked", classes=toy.vocabulary)
    run = train(task, scaled(make_encoding("random:dim=32"), 8, 2.0), 0, 1_920, 3)
    assert run.test.loss < run.moments[0].validation.loss - 0.3
    assert run.test.loss < np.log(toy.vocabulary)


# -- the studies ----------------------------------------------------------------------------------


def test_table_measures_of_a_table_that_is_known(ground):
    """The corpus's own MDS table has no stress; each of its numbers by another route."""
    from posgeom.mds import classical_mds

    X = classical_mds(ground.plugin.squared, squared=True).coordinates
    found = table_measures(ground, X)
    D = ground.plugin.distances
    off = D[np.triu_indices(len(D), 1)]
    assert found["stress_plugin"] == pytest.approx(0, abs=1e-9)
    assert found["violation_plugin"] == 0
    assert found["separation"] == pytest.approx(off.min())
    assert found["separation_share"] == pytest.approx(off.min() / np.median(off))
    w = (X**2).sum(axis=0)
    assert found["participation"] == pytest.approx(w.sum() ** 2 / (w @ w))


def test_a_study_reads_what_was_done_and_does_the_rest(ground, tmp_path):
    arms = arms_named(("none", "random", "mds-trained"))
    budget = Budget(64, 1, 2, 1)
    ticks = []
    first = study(
        ground, arms, budget, open_ledger(ground, str(tmp_path), "x"), lambda: ticks.append(1)
    )
    assert len(first) == len(ticks) == n_runs(arms, budget) == 3 * 2 + 2 * 4
    ledger = open_ledger(ground, str(tmp_path), "x")
    written = ledger.file.read_bytes()
    again = study(ground, arms, budget, ledger)
    assert first.equals(again)
    assert ledger.file.read_bytes() == written
    other = open_ledger(ground, str(tmp_path), "y")
    assert other.file != ledger.file
    assert not other.runs


@pytest.fixture
def toy_corpora(monkeypatch):
    """Two corpora by name that need no data."""
    made = {"toy": ordered, "other": lambda: ordered(seed=1)}
    for name, rows in made.items():
        monkeypatch.setitem(SOURCES, name, rows)
        monkeypatch.setitem(tasks.RECIPES, name, replace(TOY, source=name))


NAMES = ("none", "random", "sinusoidal", "alibi", "mds", "learned", "mds-trained", "alibi-trained")


@pytest.mark.slow
def test_the_report_is_whole_and_comes_again_the_same(toy_corpora, tmp_path):
    asked = {"corpora": ("toy", "other"), "watched": ("toy",), "encodings": NAMES, "quick": True}
    one = reproduce_training(**asked, work=str(tmp_path / "work"))
    folder = one.save(tmp_path / "out")
    assert sorted(p.name for p in folder.iterdir()) == sorted(FILES)
    page = (folder / "report.md").read_text()
    for words in ("Theorem 4", "Conjecture 5", "## Conclusion", "quick mode", "### other"):
        assert words in page
    assert "nan" not in page.lower().replace("covenant", "")
    again = reproduce_training(**asked, work=str(tmp_path / "elsewhere")).save(tmp_path / "again")
    for name in ("runs.csv", "learning.csv", "encodings.csv", "correlations.csv", "contrasts.csv"):
        assert (folder / name).read_bytes() == (again / name).read_bytes()
    stage = (folder / "run.toml").read_text()
    assert 'job = "paper-training"' in stage
    assert "work" not in stage


KILLED = """
import sys
sys.path.insert(0, {tests!r})
from test_paper_training_torch import ground_of_toy, study, arms_named, Budget, open_ledger
study(ground_of_toy(), arms_named(("none", "random", "learned")), Budget(320, 2, 2, 1),
      open_ledger(ground_of_toy(), {work!r}, "killed"))
"""


def ground_of_toy():
    """The ground of the toy task, for a process of its own."""
    return Ground.of(task_of("toy", TOY, ordered()))


@pytest.mark.slow
def test_a_killed_process_goes_on_and_leaves_the_same_bytes(tmp_path):
    tests = os.path.dirname(__file__)

    def start(work):
        code = KILLED.format(tests=tests, work=str(work))
        return subprocess.Popen([sys.executable, "-W", "ignore", "-c", code])

    whole = start(tmp_path / "whole")
    assert whole.wait(300) == 0
    (expected,) = (p for p in (tmp_path / "whole").glob("*.jsonl") if "seconds" not in p.name)
    cut = tmp_path / "cut" / expected.name
    process, deadline = start(tmp_path / "cut"), time.time() + 300
    while not (cut.exists() and cut.read_bytes().count(b"\n") >= 3):
        assert time.time() < deadline
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = Ledger(cut).runs
    assert 3 <= len(done) < len(expected.read_bytes().splitlines())
    assert start(tmp_path / "cut").wait(300) == 0
    assert cut.read_bytes() == expected.read_bytes()


def test_what_cannot_be_done_is_told_in_one_line(monkeypatch):
    with pytest.raises(PosgeomError, match="seeds=1"):
        reproduce_training(seeds=1)
    with pytest.raises(PosgeomError, match="encoding 'fourier' is not known here"):
        reproduce_training(encodings=["fourier"])
    monkeypatch.setattr(job, "find_spec", lambda name: None)
    with pytest.raises(PosgeomError, match="needs torch"):
        reproduce_training()


COMMITTED = Path(__file__).parents[1] / "reports" / "paper" / "training"


@pytest.mark.slow
@pytest.mark.skipif(
    not (COMMITTED.is_dir() and os.environ.get("POSGEOM_DATA")),
    reason="needs the committed run and POSGEOM_DATA",
)
def test_a_committed_run_comes_again(tmp_path):
    """One run from scratch; another processor rounds otherwise, and training makes more of it."""
    arms, ground = arms_named(("mds-rank-3-trained",)), Ground.of(tasks.make_task("sst2"))
    runs = pd.read_csv(COMMITTED / "runs.csv")
    kept = runs[(runs["corpus"] == "sst2") & (runs["encoding"] == arms[0].name)]
    row = kept[(kept["stage"] == "final") & (kept["seed"] == 0)].iloc[0]
    only = [replace(arms[0], scales=(float(row["scale"]),))]
    budget = Budget(tasks.RECIPES["sst2"].seen, job.MOMENTS, 1, 1)
    again = study(ground, only, budget, open_ledger(ground, str(tmp_path))).iloc[0]
    for column in ("validation_loss", "test_loss"):
        assert again[column] == pytest.approx(row[column], abs=0.02)
    for column in ("stress_start", "stress_start_plugin"):
        assert again[column] == pytest.approx(row[column], abs=0.002)
