"""posgeom reproduce: the parts are pipelines, and what is committed comes from a run."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.spatial.distance import pdist

from posgeom import count_positions, estimate_geometry, score_encodings
from posgeom.cli_reproduce import PARTS, reproduce_command
from posgeom.errors import PosgeomError
from posgeom.paper.claims import CLAIMS, FIGURES
from posgeom.paper.conventions import wide, with_padding
from posgeom.paper.conventions_claims import all_claims
from posgeom.paper.hub import learned_spec
from posgeom.paper.page import (
    Judgement,
    PaperReport,
    Section,
    judgement_table,
    markdown_table,
    percent,
)
from posgeom.paper.synthetic_sweep import bases, weights
from posgeom.pipeline import JOBS, read_pipeline, run_pipeline
from posgeom.resources import resource
from posgeom.synthetic import SyntheticCorpus

ROOT = Path(__file__).parents[1]
COMMITTED = ROOT / "reports" / "paper"
DATA = os.environ.get("POSGEOM_DATA")
needs_data = pytest.mark.skipif(DATA is None, reason="POSGEOM_DATA names no folder of corpora")
STAGE = '[[stage]]\njob = "paper-synthetic"\nseeds = 2\n'
FILES = ("report.md", "claims.csv", "figures", "run.toml", "provenance.json")


def at_once(seeds: int = 20, *, quick: bool = False, progress: bool = False) -> PaperReport:
    """A job that computes nothing."""
    return PaperReport(
        job="paper-synthetic",
        title="A part",
        opening=(),
        judgements=(),
        sections=(),
        settings={"seeds": seeds, "quick": quick},
    )


@pytest.fixture
def small_parts(tmp_path, monkeypatch):
    """Every part as a job that is done at once."""
    folder = tmp_path / "pipelines" / "paper"
    folder.mkdir(parents=True)
    for part in PARTS:
        (folder / f"{part}.toml").write_text(STAGE)
    monkeypatch.setattr("posgeom.resources.resource", lambda home, name: tmp_path / home / name)
    monkeypatch.setitem(JOBS, "paper-synthetic", (at_once, FILES))
    return tmp_path


# -- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize("part", PARTS)
def test_each_part_is_a_pipeline_that_travels_with_the_package(part):
    (stage,) = read_pipeline(resource("pipelines", f"paper/{part}.toml"))
    assert stage["job"].startswith("paper-")
    assert set(JOBS[stage["job"]][1]) >= {"report.md", "claims.csv", "run.toml", "provenance.json"}


def test_all_is_every_part_and_none_is_run_twice(small_parts, posgeom_ok):
    out = small_parts / "out"
    first = posgeom_ok("reproduce", "all", "--quick", "--out", out).out.splitlines()
    assert first == [f"{out / part}: written" for part in PARTS]
    again = posgeom_ok("reproduce", "imdb", "sst2", "--quick", "--out", out).out.splitlines()
    assert again == [f"{out / p}: is there already, not run again" for p in ("imdb", "sst2")]


def test_other_settings_ask_for_force(small_parts, posgeom_ok, run_cli):
    out = small_parts / "out"
    posgeom_ok("reproduce", "synthetic", "--quick", "--out", out)
    ran = run_cli("reproduce", "synthetic", "--out", out)
    assert ran.code == 2
    assert "--force" in ran.err
    assert len(ran.err.splitlines()) == 1
    posgeom_ok("reproduce", "synthetic", "--quick", "--force", "--out", out)


def test_a_run_toml_makes_the_same_bytes(tmp_path, monkeypatch, posgeom_ok):
    monkeypatch.setattr("posgeom.paper.synthetic_sweep.SHAPES", {"mixture": ""})
    monkeypatch.setattr("posgeom.paper.synthetic_sweep.LAWS", {"zipf": ""})
    file = tmp_path / "p.toml"
    file.write_text(f"{STAGE}positions = 6\ndim = 8\nvocabulary = 30\nquick = true\n")
    posgeom_ok("run", file, "--out", tmp_path / "out")
    posgeom_ok("run", tmp_path / "out" / "p" / "run.toml", "--out", tmp_path / "again")
    for name in ("report.md", "claims.csv", "stress.csv", "sweep.csv", "figures/sweep.svg"):
        one, other = (tmp_path / f / "p" / name for f in ("out", "again"))
        assert one.read_bytes() == other.read_bytes()


def test_changes_go_to_the_stages_that_take_them(small_parts):
    file = small_parts / "pipelines" / "paper" / "imdb.toml"
    changes = {"quick": True, "learned": ["learned:x.npy"]}
    ((folder, fresh),) = run_pipeline(file, small_parts / "out", changes=changes)
    assert fresh
    stage = json.loads((folder / "provenance.json").read_text())["stage"]
    assert stage["quick"] is True
    assert "learned" not in stage


def test_an_unknown_part_is_one_line(run_cli):
    ran = run_cli("reproduce", "mnli")
    assert ran.code == 2
    assert "mnli" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_data_that_is_missing_is_one_line_that_says_what_to_do(tmp_path, run_cli, monkeypatch):
    monkeypatch.delenv("POSGEOM_DATA", raising=False)

    def no_network():
        raise OSError("no route to host")

    monkeypatch.setattr("posgeom.named.reach_hub", no_network)
    ran = run_cli("reproduce", "sst2", "--quick", "--out", tmp_path)
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert "POSGEOM_DATA" in ran.err


def test_help_names_the_parts():
    shown = CliRunner().invoke(reproduce_command, ["--help"]).output
    assert all(part in shown for part in PARTS)


# -- learned tables -------------------------------------------------------------------------------


def test_a_path_and_a_spec_name_the_same_table():
    assert learned_spec("x.npy#offset=2") == learned_spec("learned:x.npy#offset=2")


def test_a_model_of_the_hub_is_fetched(tmp_path, monkeypatch):
    asked = []

    def download(name, file, *, local_files_only):
        asked.append((name, file, local_files_only))
        return str(tmp_path / file)

    monkeypatch.setattr("posgeom.named.reach_hub", lambda: None)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    assert learned_spec("hf:bert-base-uncased") == f"learned:{tmp_path}"
    assert asked == [
        ("bert-base-uncased", "config.json", False),
        ("bert-base-uncased", "model.safetensors", False),
    ]


def test_a_hub_out_of_reach_is_one_line(monkeypatch):
    def no_network():
        raise OSError("no route to host")

    monkeypatch.setattr("posgeom.named.reach_hub", no_network)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(PosgeomError, match="hf:no/such could not be had") as error:
        learned_spec("hf:no/such")
    assert "\n" not in str(error.value)


# -- the page -------------------------------------------------------------------------------------


def test_a_report_writes_what_it_holds(tmp_path):
    judgement = Judgement("a | b", "Eq. 4", "1", "2", "none", "not reproduced")
    report = PaperReport(
        job="paper-synthetic",
        title="A part",
        opening=("What was done.",),
        judgements=(judgement,),
        sections=(Section("More", ("line",)),),
        settings={"seeds": 3},
        tables={"x": pd.DataFrame({"a": [1 / 3]})},
        drawings={"d": b"<svg/>"},
        files=("report.md", "claims.csv", "figures", "run.toml", "provenance.json", "x.csv"),
    )
    out = report.save(tmp_path / "part")
    assert (out / "x.csv").read_text() == "a\n0.33333\n"
    assert (out / "figures" / "d.svg").read_bytes() == b"<svg/>"
    assert pd.read_csv(out / "claims.csv").iloc[0]["claim"] == "a | b"
    assert read_pipeline(out / "run.toml") == [{"job": "paper-synthetic", "seeds": 3}]
    page = (out / "report.md").read_text()
    assert page.startswith("# A part\n\nG. Cirrincione")
    assert "| a \\| b | Eq. 4 | 1 | 2 | none | not reproduced |" in page
    assert "## More\n\nline\n" in page


def test_tables_have_a_column_for_each_head():
    lines = markdown_table(("a", "b"), [("1", "2"), ("3", "4")])
    assert lines[1] == "| --- | ---: |"
    assert {line.count("|") for line in lines} == {3}
    assert judgement_table([])[0].count("|") == 7


def test_a_share_has_a_minus_and_no_hyphen():
    assert [percent(x) for x in (0.883, -0.211)] == ["88.3%", "−21.1%"]


def test_each_figure_and_claim_says_where_it_stands():
    assert all(item.where for item in (*FIGURES.values(), *CLAIMS.values()))
    places = " ".join(item.where for item in (*FIGURES.values(), *CLAIMS.values()))
    for place in ("Theorem 1", "Theorem 4", "Proposition 6", "Remark 8", "Conjecture 5", "Eq. 4"):
        assert place in places


# -- what is committed ----------------------------------------------------------------------------


def committed(part, name):
    file = COMMITTED / part / name
    if not file.is_file():
        pytest.skip(f"reports/paper/{part} is not in this checkout")
    return pd.read_csv(file)


@pytest.mark.parametrize("part", ["synthetic", "sst2", "imdb"])
def test_a_committed_part_is_small(part):
    folder = COMMITTED / part
    if not folder.is_dir():
        pytest.skip(f"reports/paper/{part} is not in this checkout")
    assert sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) < 400_000


@pytest.mark.parametrize("part", PARTS)
def test_a_committed_part_is_a_full_run_of_its_pipeline(part):
    file = COMMITTED / part / "run.toml"
    if not file.is_file():
        pytest.skip(f"reports/paper/{part} is not in this checkout")
    (made,) = read_pipeline(file)
    (asked,) = read_pipeline(ROOT / "pipelines" / "paper" / f"{part}.toml")
    assert made | asked == made
    assert not made["quick"]


def test_committed_numbers_of_the_tables_come_out_again():
    """The sinusoid on true distributions, by the formula alone."""
    table = committed("synthetic", "stress.csv")
    p, θ = np.arange(32), 10_000.0 ** (-np.arange(0, 128, 2) / 128)
    X = np.hstack([np.sin(np.outer(p, θ)), np.cos(np.outer(p, θ))]) / 8
    for shape in ("mixture", "blocks"):
        stresses = []
        for seed in range(20):
            corpus = SyntheticCorpus(shape, 32, 1_000, 5_000, seed=seed)
            D = pdist(np.sqrt(corpus.weights @ corpus.bases))
            stresses.append(((pdist(X) - D) ** 2).sum() / (D @ D))
        row = table[
            (table["shape"] == shape)
            & (table["encoding"] == "sinusoidal")
            & (table["form"] == "eq4")
            & (table["basis"] == "distributions")
        ].iloc[0]
        assert row["stress"] == pytest.approx(np.mean(stresses), rel=1e-4)


def test_committed_cells_of_the_synthetic_sweep_come_out_again():
    table = committed("synthetic", "sweep.csv")
    slopes = np.sqrt(np.sum(4.0 ** -np.arange(1, 9)))
    δ = slopes * pdist(np.arange(32.0)[:, None])
    for shape, law in (("bumps 0.2", "dirichlet 1"), ("mixture", "zipf")):
        stresses = []
        for seed in range(3):
            rng = np.random.default_rng([seed, 60])
            P = weights(shape, 32) @ bases(law, 60, rng)
            D = pdist(np.sqrt(rng.multinomial(1_000, P) / 1_000))
            stresses.append(((δ - D) ** 2).sum() / (D @ D))
        row = table[
            (table["shape"] == shape)
            & (table["law"] == law)
            & (table["vocabulary"] == 60)
            & (table["documents"] == 1_000)
            & (table["distance"] == "chord")
        ].iloc[0]
        assert row["alibi"] == pytest.approx(np.mean(stresses), rel=1e-4)


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize(("part", "n"), [("sst2", 32), ("imdb", 32)])
def test_committed_cells_of_real_corpora_come_out_again(part, n):
    """By dense arithmetic from the counts: ALiBi and MDS, with padding and without."""
    table = committed(part, "sweep.csv")
    counts = wide(count_positions(part, "words", positions=2, up_to=n), n)
    text = {"sst2": "sentences", "imdb": "reviews"}[part]
    δ = pdist(np.arange(float(n))[:, None]) / (n - 1)
    for padding, held in (("no", counts), ("yes", with_padding(counts))):
        P = held.pooled.toarray().astype(float)
        R = np.sqrt(P / P.sum(axis=1, keepdims=True))
        R -= R.mean(axis=0)
        chord = pdist(R)
        U, s, _ = np.linalg.svd(R, full_matrices=False)
        plane = pdist((U * s)[:, :3])
        row = table[
            (table["text"] == text)
            & (table["tokens"] == "words")
            & (table["padding"] == padding)
            & (table["n"] == n)
        ]
        for distance, D in (("chord", chord), ("geodesic", 4 * np.arcsin(chord / 2))):
            own = row[(row["distance"] == distance) & (row["variant"] == "linear: 1/(n−1)")]
            assert own["raw"].item() == pytest.approx(((δ - D) ** 2).sum() / (D @ D), rel=6e-4)
        own = row[(row["distance"] == "chord") & (row["variant"] == "rank 3")]
        assert own["raw"].item() == pytest.approx(
            ((plane - chord) ** 2).sum() / (chord @ chord), rel=6e-4
        )


@pytest.mark.parametrize("part", ["sst2", "imdb"])
def test_committed_verdicts_follow_from_the_committed_sweeps(part):
    claims = committed(part, "claims.csv").set_index("claim")["verdict"]
    sweeps = (committed(part, name) for name in ("sweep.csv", "debiased.csv"))
    for both in zip(*(all_claims(table) for table in sweeps), strict=True):
        verdicts = claims[CLAIMS[both[0].claim].says].split("; debiased: ")
        for said, held in zip(verdicts, both, strict=True):
            numbers = [int(x) for x in re.findall(r"\d+", said.replace(",", ""))]
            if held.claim == "alike" and len(numbers) == 2:
                # a ratio of two stresses of four digits may lie on the other side of 5%
                assert numbers[1] == held.number
                assert abs(numbers[0] - held.holding) <= held.number / 100
            else:
                assert said == held.verdict
        assert both[0].table["distance"].nunique() == both[1].table["distance"].nunique()


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize(
    ("distance", "metric"), [("chord/√2", "hellinger-normalised"), ("geodesic", "fisher-rao")]
)
def test_committed_debiased_cells_come_out_again(distance, metric):
    """By the estimate and the scores in that distance, without the sweep."""
    table = committed("sst2", "debiased.csv")
    counts = wide(count_positions("sst2", "words", positions=2, up_to=32), 32)
    geometry = estimate_geometry(counts, metric=metric)
    scored = score_encodings(geometry, ["sinusoidal:dim=128", "alibi"]).set_index("encoding")
    case = {"text": "sentences", "tokens": "words", "padding": "no", "n": 32, "distance": distance}
    own = table[(table[list(case)] == list(case.values())).all(axis=1)]
    sinusoid = own[(own["encoding"] == "sinusoidal") & (own["dim"] == 128)]
    alibi = own[own["variant"] == "linear: 8 heads"]
    for spec, row in (("sinusoidal:dim=128", sinusoid), ("alibi", alibi)):
        assert row["raw"].item() == pytest.approx(scored.loc[spec, "stress_raw"], rel=1e-3)
