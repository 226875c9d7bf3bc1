"""Pipelines: errors that name file, stage and key; stages run once, in their order."""

import json
import os
from importlib import import_module

import pytest

import posgeom
from posgeom.pipeline import read_pipeline, run_pipeline

STAGE = '[[stage]]\njob = "design"\nsource = "lines.txt"\npositions = 6\ndim = 8\n'


@pytest.fixture
def work(tmp_path, monkeypatch, no_report, text_file):
    """A folder of its own to work in, with the corpus lines.txt."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_bytes(text_file.read_bytes())
    return tmp_path


@pytest.fixture
def pipeline(work):
    """Writes p.toml."""

    def write(text):
        (work / "p.toml").write_text(text, encoding="utf-8")
        return "p.toml"

    return write


def run(file="p.toml", **options):
    """What each stage was: its folder, and whether it was run just now."""
    return [(str(folder), fresh) for folder, fresh in run_pipeline(file, "out", **options)]


BROKEN = {
    "": ["p.toml has no [[stage]]", "pipelines/quickstart.toml"],
    "stage = 1": ["p.toml has no [[stage]]"],
    "stage = []": ["p.toml has no [[stage]]"],
    "stage = [1]": ["p.toml", "stage 1"],
    '[stage]\njob = "design"\nsource = "x"': ["p.toml has no [[stage]]"],
    '[[stages]]\njob = "design"\nsource = "x"': ["p.toml has no [[stage]]"],
    "a = = b": ["p.toml is not TOML", "line 1"],
    '[[stage]]\nsource = "x"': ["p.toml, stage 1", "job None"],
    '[[stage]]\njob = "paint"\nsource = "x"': ["p.toml, stage 1", "'paint'", "use design"],
    '[[stage]]\njob = ["design"]\nsource = "x"': ["p.toml, stage 1", "['design']"],
    '[[stage]]\njob = "design"': ["p.toml, stage 1 has no source", "add source"],
    '[[stage]]\njob = "designers"\nheads = 4': ["p.toml, stage 1 has no source", "add source"],
    '[[stage]]\njob = "designers"\nsource = "x"\nrank = 3': ["p.toml, stage 1", "rank"],
    '[[stage]]\njob = "design"\nsource = 3': ["p.toml, stage 1", "source"],
    f"{STAGE}colour = 1": ["p.toml, stage 1", "colour"],
    f"{STAGE}corpus = 1": ["p.toml, stage 1", "corpus"],
    f"{STAGE}progress = true": ["p.toml, stage 1", "progress"],
    f"{STAGE}seed = 'x'": ["p.toml, stage 1", "seed", "'x' came"],
    f"{STAGE}seed = 1.5": ["p.toml, stage 1", "seed", "1.5 came"],
    f"{STAGE}folds = [1]": ["p.toml, stage 1", "folds", "[1] came"],
    f"{STAGE}rank = 2024-01-01": ["p.toml, stage 1", "rank"],
    f"{STAGE}encodings = 'rope'": ["p.toml, stage 1", "encodings", "'rope' came"],
    f"{STAGE}encodings = [1]": ["p.toml, stage 1", "encodings", "1 came"],
    f"{STAGE}grid = '2x4'": ["p.toml, stage 1", "grid", "'2x4' came"],
    f"{STAGE}grid = [2, 4, 8]": ["p.toml, stage 1", "grid"],
    f"{STAGE}per_head = 'maybe'": ["p.toml, stage 1", "per_head"],
    f"{STAGE}{STAGE}out = 'b'\nwidth = 9": ["p.toml, stage 2", "width"],
    f"{STAGE}out = 'a'\n{STAGE}out = 'a'\nseed = 1": ["p.toml, stage 2", "out"],
}


@pytest.mark.parametrize("text", BROKEN, ids=[(t.splitlines() or ["empty"])[-1] for t in BROKEN])
def test_a_broken_pipeline_is_refused_before_any_stage_is_run(pipeline, text):
    with pytest.raises(posgeom.PosgeomError) as refused:
        run(pipeline(text))
    for words in BROKEN[text]:
        assert words in str(refused.value)
    assert not os.path.exists("out")


def test_a_file_that_cannot_be_read_is_named(work):
    (work / "latin.toml").write_bytes(b"[[stage]]\n# \xe4\n")
    for name in ("gone.toml", ".", "latin.toml"):
        with pytest.raises(posgeom.PosgeomError, match=r"pipeline .* cannot be read"):
            run(name)


def test_a_byte_order_mark_and_windows_line_ends_are_no_matter(work):
    (work / "p.toml").write_bytes(b"\xef\xbb\xbf" + STAGE.replace("\n", "\r\n").encode())
    assert read_pipeline("p.toml")[0]["positions"] == 6


def test_a_stage_writes_below_out_under_its_name_or_the_files(pipeline):
    assert run(pipeline(STAGE)) == [("out/p", True)]
    assert run(pipeline(STAGE + 'out = "mine"')) == [("out/mine", True)]
    assert posgeom.Design.load("out/mine").geometry.n_positions == 6


def test_stages_are_run_in_their_order(pipeline):
    names = ["c", "a", "b"]
    file = pipeline("".join(f'{STAGE}seed = {i}\nout = "{n}"\n' for i, n in enumerate(names)))
    assert run(file) == [(f"out/{name}", True) for name in names]
    assert [posgeom.Design.load(f"out/{n}").settings["seed"] for n in names] == [0, 1, 2]


def test_what_is_there_is_not_run_again(pipeline, monkeypatch):
    file = pipeline(STAGE)
    run(file)

    def never(*_, **__):
        raise AssertionError("a stage was run although its folder holds its run")

    # posgeom.design is the function; its module has the same name
    monkeypatch.setattr(import_module("posgeom.design"), "count_positions", never)
    assert run(file) == [("out/p", False)]


def test_force_runs_again_what_is_there(pipeline):
    file = pipeline(STAGE)
    run(file)
    os.truncate("out/p/scores.csv", 0)
    assert run(file, force=True) == [("out/p", True)]
    assert os.path.getsize("out/p/scores.csv") > 0


def test_only_the_missing_stage_is_run(pipeline):
    file = pipeline(f'{STAGE}out = "a"\n{STAGE}out = "b"\nseed = 1\n')
    run(file)
    os.rename("out/b", "elsewhere")
    assert run(file) == [("out/a", False), ("out/b", True)]


def test_a_stage_with_other_settings_does_not_overwrite_the_folder(pipeline):
    run(pipeline(STAGE))
    with pytest.raises(posgeom.PosgeomError, match="--force"):
        run(pipeline(STAGE.replace("dim = 8", "dim = 10")))
    assert posgeom.Design.load("out/p").low_rank.dim == 8
    assert run("p.toml", force=True) == [("out/p", True)]
    assert posgeom.Design.load("out/p").low_rank.dim == 10


def test_a_folder_with_other_things_is_not_overwritten_even_by_force(pipeline, work):
    (work / "out" / "p").mkdir(parents=True)
    (work / "out" / "p" / "thesis.txt").write_text("precious")
    for force in (False, True):
        with pytest.raises(posgeom.PosgeomError, match=r"thesis\.txt"):
            run(pipeline(STAGE), force=force)
    assert os.listdir("out/p") == ["thesis.txt"]


def test_a_run_toml_is_taken_for_the_run_in_its_own_folder(work, posgeom_ok):
    posgeom_ok("design", "lines.txt", "--positions", 6, "--dim", 8, "--out", "out/mine")
    assert run("out/mine/run.toml") == [("out/mine", False)]


def test_a_stage_says_in_its_provenance_what_was_asked(pipeline):
    run(pipeline(STAGE + 'out = "mine"'))
    with open("out/mine/provenance.json", encoding="utf-8") as file:
        asked = json.load(file)["stage"]
    assert asked == {
        "job": "design",
        "source": "lines.txt",
        "positions": 6,
        "dim": 8,
    }


def test_a_stage_makes_what_the_function_makes(pipeline):
    run(pipeline(STAGE + 'encodings = ["rope", "alibi:heads=4"]\nmetric = "fisher-rao"'))
    made = posgeom.Design.load("out/p")
    by_hand = posgeom.design(
        "lines.txt", positions=6, dim=8, encodings=["rope", "alibi:heads=4"], metric="fisher-rao"
    )
    assert (made.geometry.distances == by_hand.geometry.distances).all()
    assert list(made.scores["encoding"]) == list(by_hand.scores["encoding"])


def test_a_bad_value_in_a_good_schema_is_told_as_for_the_function(pipeline):
    with pytest.raises(posgeom.PosgeomError, match="power of two"):
        run(pipeline(STAGE + "folds = 3"))
    assert not os.path.exists("out")


def test_the_pipelines_that_travel_with_the_package_are_sound():
    from posgeom.resources import resource

    found = sorted(resource("pipelines", ".").glob("*.toml"))
    assert {"quickstart.toml", "designers.toml"} <= {path.name for path in found}
    for path in found:
        assert read_pipeline(path)
