"""The whole job, from a corpus to a folder: its files, its sameness, and what it loads."""

import itertools
import json
import os
import random
import subprocess
import sys
import sysconfig
import textwrap
import time
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import drifting_text

import posgeom
from posgeom.counts import PositionCounts
from posgeom.encodings.base import distances_between_rows
from posgeom.stress import pairs

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "transformers", "dask", "matplotlib", "datasets", "pandas")
COLUMNS = (
    "encoding,family,parameters,stress,stress_raw,scale,kruskal_stress_1,spearman,"
    "monotonicity_violation"
)
SAME = ("encoding.safetensors", "scores.csv", "counts.npz", "geometry.npz", "run.toml")

needs_data = pytest.mark.skipif(
    not os.environ.get("POSGEOM_DATA"), reason="POSGEOM_DATA is not set: no local data sets"
)


def data(path):
    return Path(os.environ["POSGEOM_DATA"], path)


@pytest.fixture
def work(tmp_path, monkeypatch, no_report, text_file):
    """A folder of its own to work in, with the corpus lines.txt."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_bytes(text_file.read_bytes())
    return tmp_path


def same_counts(a, b):
    """Fail unless two counts are equal bit by bit."""
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(a.counts, name), getattr(b.counts, name))
    assert a.counts.shape == b.counts.shape
    assert a.vocabulary == b.vocabulary
    np.testing.assert_array_equal(a.documents, b.documents)


def python(program, *arguments, **options):
    """A program in a fresh interpreter: what it printed."""
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    options = {"capture_output": True, "text": True, "timeout": 300, "check": True} | options
    return subprocess.run(command, **options).stdout


# -- the folder of a run --------------------------------------------------------------------------


def test_a_run_leaves_the_documented_files_and_no_other(full_run):
    assert sorted(p.name for p in full_run.folder.iterdir()) == [
        "counts.npz",
        "encoding.safetensors",
        "figures",
        "gains.csv",
        "geometry.npz",
        "provenance.json",
        "report.html",
        "run.toml",
        "scores.csv",
    ]
    assert os.listdir(full_run.folder.parent) == [full_run.folder.name]
    figures = {p.stem: set() for p in (full_run.folder / "figures").iterdir()}
    for path in (full_run.folder / "figures").iterdir():
        figures[path.stem].add(path.suffix)
        assert path.stat().st_size > 500
    assert len(figures) >= 9
    assert all(kinds == {".svg", ".png"} for kinds in figures.values())


def test_a_run_prints_its_table_the_floor_and_where_it_wrote(full_run):
    assert "encoding" in full_run.out.splitlines()[0]
    assert "mds" in full_run.out
    assert "shift-invariant floor" in full_run.out
    assert f"{full_run.folder}/report.html" in full_run.out


def test_the_arrays_of_a_run_are_those_documented(full_run):
    from safetensors.numpy import load_file

    tensors = load_file(full_run.folder / "encoding.safetensors")
    assert set(tensors) >= {"table", "A", "B", "eigenvalues"}
    n, d, r = 8, 16, tensors["A"].shape[1]
    assert tensors["table"].shape == (n, d)
    assert tensors["table"].dtype == np.float32
    assert tensors["B"].shape == (d, r)
    assert tensors["eigenvalues"].shape == (n,)
    np.testing.assert_allclose(tensors["table"], tensors["A"] @ tensors["B"].T, atol=1e-7)
    with np.load(full_run.folder / "geometry.npz", allow_pickle=False) as geometry:
        assert set(geometry.files) >= {"distances", "squared_distances", "totals", "positions"}
        np.testing.assert_allclose(geometry["distances"] ** 2, geometry["squared_distances"])
    with np.load(full_run.folder / "counts.npz", allow_pickle=False) as counts:
        assert all(counts[name].dtype != object for name in counts.files)


def test_scores_have_the_documented_columns_in_their_order(full_run):
    header, *rows = (full_run.folder / "scores.csv").read_text(encoding="utf-8").splitlines()
    assert header.startswith(COLUMNS + ",")
    assert [row.split(",")[0] for row in rows][:2] == ["sinusoidal", "rope"]
    scores = pd.read_csv(full_run.folder / "scores.csv")
    numbers = scores[COLUMNS.split(",")[2:]].to_numpy(dtype=float)
    assert np.isfinite(numbers).all()
    assert scores["stress"].between(0, 1).all()


def test_the_settings_and_the_provenance_of_a_run_say_what_it_was(full_run, text_file):
    (stage,) = tomllib.loads((full_run.folder / "run.toml").read_text(encoding="utf-8"))["stage"]
    assert stage["job"] == "design"
    assert stage["source"] == str(text_file)
    assert (stage["positions"], stage["dim"], stage["seed"]) == (8, 16, 0)
    about = json.loads((full_run.folder / "provenance.json").read_text(encoding="utf-8"))
    assert about["posgeom"] == posgeom.__version__
    assert about["documents"] == 240
    assert about["command"][1] == "design"
    assert about["libraries"]["numpy"] == np.__version__
    assert len(about["fingerprint"]) == 32


# -- what is saved can be loaded ------------------------------------------------------------------


def test_a_design_loads_as_it_was_saved(work):
    made = posgeom.design("lines.txt", positions=8, dim=16, norm=3.0, min_count=1)
    made.save("o")
    loaded = posgeom.Design.load("o")
    same_counts(made.counts, loaded.counts)
    assert made.counts.provenance == loaded.counts.provenance
    assert made.geometry.lumped is not None
    for name in ("squared", "totals", "positions", "replicates", "halves", "lumped"):
        np.testing.assert_array_equal(getattr(made.geometry, name), getattr(loaded.geometry, name))
    for name in ("metric", "estimator", "grid", "left_out", "notes"):
        assert getattr(made.geometry, name) == getattr(loaded.geometry, name)
    np.testing.assert_array_equal(made.low_rank.A, loaded.low_rank.A)
    np.testing.assert_array_equal(made.low_rank.B, loaded.low_rank.B)
    assert loaded.settings == made.settings
    assert loaded.notes == made.notes
    assert loaded.floor == made.floor
    pd.testing.assert_frame_equal(made.scores, loaded.scores)
    loaded.save("again")
    for name in SAME:
        assert Path("o", name).read_bytes() == Path("again", name).read_bytes(), name


def test_the_saved_table_has_the_distances_of_its_coordinates(work):
    from safetensors.numpy import load_file

    posgeom.design("lines.txt", positions=8, dim=16).save("o")
    tensors = load_file("o/encoding.safetensors")
    of_table = distances_between_rows(tensors["table"].astype(np.float64))
    of_coordinates = distances_between_rows(tensors["A"])
    np.testing.assert_allclose(of_table, of_coordinates, atol=1e-6)


def test_a_stated_norm_is_that_of_the_table(work):
    from safetensors.numpy import load_file

    posgeom.design("lines.txt", positions=8, dim=16, norm=3.0).save("o")
    table = load_file("o/encoding.safetensors")["table"].astype(np.float64)
    assert np.sqrt((table**2).sum(axis=1).mean()) == pytest.approx(3.0, rel=1e-6)


def test_a_folder_that_holds_no_run_is_refused(work):
    for folder in (".", "gone"):
        with pytest.raises(posgeom.PosgeomError, match="not the folder of a run"):
            posgeom.Design.load(folder)
    posgeom.design("lines.txt", positions=8, dim=16).save("o")
    Path("o/encoding.safetensors").write_bytes(b"\1\2\3")
    with pytest.raises(posgeom.PosgeomError, match=r"encoding\.safetensors"):
        posgeom.Design.load("o")


@pytest.mark.parametrize("name", ["run.toml", "provenance.json", "scores.csv"])
def test_a_run_with_a_broken_text_file_is_refused(work, name):
    posgeom.design("lines.txt", positions=8, dim=16).save("o")
    Path("o", name).write_bytes(b"")
    with pytest.raises(posgeom.PosgeomError, match=name):
        posgeom.Design.load("o")


def test_the_five_lines_of_python_agree_with_the_command_line(work, posgeom_ok):
    counts = posgeom.count_positions("lines.txt", positions=8)
    geometry = posgeom.estimate_geometry(counts)
    scores = posgeom.score_encodings(geometry, ["sinusoidal", "rope:base=500000"], dim=16)
    arguments = ("--encoding", "sinusoidal", "--encoding", "rope:base=500000", "--dim", 16)
    posgeom_ok("design", "lines.txt", "--positions", 8, *arguments, "--out", "o")
    loaded = posgeom.Design.load("o")
    same_counts(loaded.counts, counts)
    np.testing.assert_array_equal(loaded.geometry.squared, geometry.squared)
    pd.testing.assert_frame_equal(loaded.scores[:2], scores)


def test_a_corpus_from_python_says_in_run_toml_that_its_source_is_missing(work):
    texts = drifting_text(60).splitlines()
    posgeom.design(texts, positions=4, dim=8).save("o")
    assert "set `source`" in Path("o/run.toml").read_text(encoding="utf-8")
    assert "source" not in posgeom.Design.load("o").settings


# A packed stream has no positions to tell apart, and the default estimate says so.
PLUGIN = ("--estimator", "plugin")

# -- the same again -------------------------------------------------------------------------------


def test_equal_seeds_give_equal_bytes(work, posgeom_ok):
    for out in ("a", "b"):
        posgeom_ok("design", "lines.txt", "--positions", 8, "--dim", 16, "--seed", 7, "--out", out)
    posgeom_ok("design", "lines.txt", "--positions", 8, "--dim", 16, "--seed", 8, "--out", "c")
    for name in SAME:
        assert Path("a", name).read_bytes() == Path("b", name).read_bytes(), name
    assert Path("a/scores.csv").read_bytes() != Path("c/scores.csv").read_bytes()
    assert Path("a/counts.npz").read_bytes() == Path("c/counts.npz").read_bytes()


def packed_ids(work):
    ids = np.random.default_rng(0).integers(0, 40, 4_000) + 70_000
    ids.astype("<u4").tofile(work / "ids.bin")


def learned_table(work):
    np.save(work / "wpe.npy", np.random.default_rng(1).normal(size=(32, 12)))


REPEATED = {
    "words": ["lines.txt"],
    "default length": ["lines.txt", "--positions", "8", "--tokenizer", "chars"],
    "bpe": ["lines.txt", "--tokenizer", "train:bpe:300"],
    "unigram": ["lines.txt", "--tokenizer", "train:unigram:200"],
    "wordpiece": ["lines.txt", "--tokenizer", "train:wordpiece:300"],
    "end": ["lines.txt", "--align", "end", "--min-count", "30", "--norm", "1"],
    "packed text": ["lines.txt", "--align", "packed", "--positions", "16", *PLUGIN],
    "packed ids": [
        *("ids.bin", "--align", "packed", "--ids-dtype", "uint32", "--positions", "16"),
        *PLUGIN,
    ],
    "grid": ["digits"],
    "synthetic": ["synthetic:documents=200,positions=8,vocabulary=50"],
    "learned table": ["lines.txt", "--encoding", "learned:{folder}/wpe.npy"],
    "heads": ["lines.txt", "--encoding", "alibi:heads=4", "--per-head", "--rank", "3"],
}


@pytest.mark.parametrize("case", REPEATED)
def test_run_toml_makes_the_same_bytes_again(work, posgeom_ok, case, monkeypatch):
    packed_ids(work)
    learned_table(work)
    arguments = [argument.format(folder=work) for argument in REPEATED[case]]
    posgeom_ok("design", *arguments, "--dim", 16, "--out", "first")
    (work / "elsewhere").mkdir()
    monkeypatch.chdir(work / "elsewhere")  # a run.toml does not depend on the working folder
    ran = posgeom_ok("run", "../first/run.toml", "--out", "other")
    assert ran.out == "other/first: written\n"
    for name in ("scores.csv", "encoding.safetensors", "run.toml", "geometry.npz"):
        first, other = work / "first" / name, work / "elsewhere" / "other" / "first" / name
        assert first.read_bytes() == other.read_bytes(), name
    assert (work / "first" / "tokenizer.json").exists() == any(
        "train:" in x for x in REPEATED[case]
    )


def test_the_tokenizer_that_a_run_trained_counts_the_same_as_the_run(work, posgeom_ok):
    arguments = ("lines.txt", "--positions", 8, "--dim", 16)
    posgeom_ok("design", *arguments, "--tokenizer", "train:bpe:300", "--out", "a")
    posgeom_ok("design", *arguments, "--tokenizer", "a/tokenizer.json", "--out", "b")
    same_counts(posgeom.Design.load("a").counts, posgeom.Design.load("b").counts)


ORDERS = list(itertools.product(["start", "end"], ["words", "chars", "bytes"]))


@pytest.mark.parametrize(("align", "tokenizer"), ORDERS)
def test_the_order_of_documents_changes_nothing(align, tokenizer):
    texts = drifting_text().splitlines()
    shuffled = random.Random(3).sample(texts, len(texts))
    assert shuffled != texts
    a, b = (posgeom.count_positions(t, tokenizer, 8, align) for t in (texts, shuffled))
    same_counts(a, b)
    assert a.provenance == b.provenance
    geometries = [posgeom.estimate_geometry(c) for c in (a, b)]
    np.testing.assert_array_equal(geometries[0].squared, geometries[1].squared)


@pytest.mark.parametrize("align", ["start", "end", "packed"])
@pytest.mark.parametrize("tokenizer", ["words", "chars"])
@pytest.mark.parametrize("sizes", [(1, 10**6, 10**6), (7, 10**6, 50), (10**6, 300, 1)])
def test_the_size_of_batches_changes_nothing(monkeypatch, align, tokenizer, sizes):
    texts = [*drifting_text().splitlines(), "", "last one"]
    usual = posgeom.count_positions(texts, tokenizer, 8, align)
    for name, size in zip(("BATCH_DOCUMENTS", "BATCH_SIZE", "FLUSH"), sizes, strict=True):
        monkeypatch.setattr(f"posgeom.counting.{name}", size)
    other = posgeom.count_positions(texts, tokenizer, 8, align)
    same_counts(usual, other)
    assert usual.provenance == other.provenance


def test_the_hash_seed_of_the_interpreter_does_not_matter(work):
    program = """
        import sys
        import posgeom.report
        from posgeom import cli
        posgeom.report.write_report = lambda design, folder, **_: None
        cli.main()
    """
    learned_table(work)
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        arguments = ("lines.txt", "--tokenizer", "train:wordpiece:300", "--dim", 16)
        python(program, "design", *arguments, "--out", f"o{seed}", env=environment)
    for name in (*SAME, "tokenizer.json"):
        assert Path("o1", name).read_bytes() == Path("o2", name).read_bytes(), name


@pytest.mark.parametrize("align", ["start", "end"])
@pytest.mark.parametrize("tokenizer", ["words", "chars", "bytes"])
def test_counting_two_corpora_and_adding_equals_counting_both(tmp_path, align, tokenizer):
    a, b = drifting_text(90, seed=1), drifting_text(130, seed=2, longest=30)
    parts = [posgeom.count_positions(t.splitlines(), tokenizer, 12, align) for t in (a, b)]
    both = posgeom.count_positions((a + b).splitlines(), tokenizer, 12, align)
    for total in (parts[0] + parts[1], parts[1] + parts[0]):
        same_counts(total, both)
        assert total.provenance == both.provenance
    for i, part in enumerate(parts):
        part.save(tmp_path / f"{i}.npz")
    loaded = [PositionCounts.load(tmp_path / f"{i}.npz") for i in (0, 1)]
    same_counts(loaded[0] + loaded[1], both)


# -- tokenizers and ids ---------------------------------------------------------------------------


@pytest.fixture
def truncating(tmp_path):
    """Two files of one tokenizer: one truncates and pads, the other does not."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = sorted(set(drifting_text().split()))
    tokenizer = Tokenizer(
        models.WordLevel({w: i for i, w in enumerate([*words, "[UNK]"])}, "[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "plain.json"))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=6)
    tokenizer.save(str(tmp_path / "habits.json"))
    return tmp_path / "habits.json", tmp_path / "plain.json"


def test_a_tokenizer_that_truncates_and_pads_is_reset_and_the_run_says_so(
    work, posgeom_ok, truncating
):
    habits, plain = truncating
    arguments = ("count", "lines.txt", "--positions", 10, "--tokenizer")
    ran = posgeom_ok(*arguments, habits, "--out", "a.npz")
    quiet = posgeom_ok(*arguments, plain, "--out", "b.npz")
    assert "truncates to 4 tokens" in ran.err
    assert "pads to 6" in ran.err
    assert "switched off" in ran.err
    assert quiet.err == ""
    a, b = (PositionCounts.load(name) for name in ("a.npz", "b.npz"))
    same_counts(a, b)
    assert a.provenance.longest == 20
    same_counts(a + b, b + a)  # the files are one tokenizer


def test_a_tokenizer_object_keeps_its_own_truncation(truncating):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(truncating[0]))
    counts = posgeom.count_positions(drifting_text().splitlines(), tokenizer, 10)
    assert counts.provenance.longest == 20
    assert tokenizer.truncation["max_length"] == 4


def test_ids_above_65535_are_counted(work, posgeom_ok):
    rows = [[70_000 + i % 7, 65_536, i % 3, 250_000] for i in range(80)]
    Path("ids.jsonl").write_text("".join(json.dumps({"input_ids": r}) + "\n" for r in rows))
    posgeom_ok("count", "ids.jsonl", "--out", "c.npz")
    counts = PositionCounts.load("c.npz")
    assert counts.vocab_size == 250_001
    pooled = counts.pooled.toarray()
    assert pooled[1, 65_536] == 80
    assert pooled[3, 250_000] == 80
    assert pooled[0, 70_000:70_007].sum() == 80
    posgeom_ok("design", "ids.jsonl", "--dim", 16, "--out", "o")
    assert posgeom.Design.load("o").counts.vocab_size == 250_001


def test_packed_ids_are_the_same_from_bin_and_npy(work, posgeom_ok):
    ids = np.random.default_rng(0).integers(0, 40, 4_000)
    ids.astype("<u2").tofile("small.bin")
    ids.astype("<u4").tofile("large.bin")
    np.save("ids.npy", ids)
    packed = ("--align", "packed", "--positions", 16, "--out")
    posgeom_ok("count", "small.bin", *packed, "small.npz")
    posgeom_ok("count", "large.bin", "--ids-dtype", "uint32", *packed, "large.npz")
    posgeom_ok("count", "ids.npy", *packed, "npy.npz")
    counts = [PositionCounts.load(f"{name}.npz") for name in ("small", "large", "npy")]
    expected = np.zeros((16, 40), dtype=np.int64)
    np.add.at(expected, (np.arange(4_000) % 16, ids), 1)
    for each in counts:
        np.testing.assert_array_equal(each.pooled.toarray(), expected)


# -- what is loaded, and how quickly --------------------------------------------------------------


def test_import_loads_nothing_heavy():
    program = f"import posgeom, sys; print([m for m in {HEAVY} if m in sys.modules])"
    assert python(program) == "[]\n"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["design", "--help"], ["--version"], ["encodings"], ["corpora"]]
)
def test_help_and_listings_load_nothing_heavy(arguments):
    program = f"""
        import sys
        from posgeom import cli
        try:
            cli.main()
        except SystemExit as end:
            print(end.code, [m for m in {HEAVY} if m in sys.modules])
    """
    assert python(program, *arguments).splitlines()[-1] == "0 []"


@pytest.mark.slow
def test_help_answers_within_half_a_second():
    seconds = []
    for _ in range(5):
        begun = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "posgeom.cli", "--help"], check=True, stdout=subprocess.DEVNULL
        )
        seconds.append(time.monotonic() - begun)
    assert min(seconds) < 0.5


def test_every_public_name_is_there():
    assert set(posgeom.__all__) <= set(dir(posgeom))
    for name in ("count_positions", "estimate_geometry", "design", "score_encodings", "Design"):
        assert callable(getattr(posgeom, name))


# -- the wheel ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel_bin(tmp_path_factory):
    """The bin folder of a fresh environment with the wheel and this one's libraries."""
    home = tmp_path_factory.mktemp("wheel")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    built = subprocess.run(
        [*pip, "wheel", "--no-deps", "-w", str(home), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if built.returncode and "No matching distribution found for hatchling" in built.stderr:
        pytest.skip("the build backend, hatchling, cannot be had from here")
    assert built.returncode == 0, built.stderr
    (wheel,) = home.glob("posgeom-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home / "env")], check=True)
    env_python = home / "env" / "bin" / "python"
    subprocess.run(
        [*pip, "--python", str(env_python), "install", "-q", "--no-deps", str(wheel)], check=True
    )
    (site,) = (home / "env" / "lib").glob("python*/site-packages")
    (site / "zz_libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = subprocess.run(
        [env_python, "-c", "import posgeom; print(posgeom.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=home,
        env=environment,
    )
    assert str(site) in where.stdout, "the checkout was tested in place of the wheel"
    return home / "env" / "bin"


@pytest.mark.slow
def test_the_wheel_does_the_main_job_from_another_folder(wheel_bin, tmp_path):
    def run(*arguments):
        ran = subprocess.run(
            [str(wheel_bin / "posgeom"), *map(str, arguments)],
            cwd=tmp_path,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert "python-stdlib" in run("corpora")
    run("design", "python-stdlib", "--out", "made")
    assert (tmp_path / "made" / "report.html").stat().st_size > 100_000
    (package,) = wheel_bin.parent.glob("lib/python*/site-packages/posgeom")
    assert "written" in run("run", package / "pipelines" / "quickstart.toml", "--out", "again")
    for name in ("scores.csv", "encoding.safetensors"):
        again = tmp_path / "again" / "quickstart" / name
        assert again.read_bytes() == (tmp_path / "made" / name).read_bytes()


# -- data that not every machine has --------------------------------------------------------------


@needs_data
@pytest.mark.slow
def test_sst2_sentences_have_the_papers_mean_squared_distance():
    tokenizer = data("tokenizers/bert-base-uncased/tokenizer.json")
    counts = posgeom.count_positions("sst2", tokenizer, 32)
    geometry = posgeom.estimate_geometry(counts, estimator="plugin")
    assert pairs(geometry.squared).mean() == pytest.approx(0.650, abs=0.005)


@needs_data
@pytest.mark.slow
def test_a_real_tokenizer_that_truncates_gives_the_counts_of_the_one_that_does_not():
    folder = data("tokenizers/bert-base-uncased")
    reviews = pd.read_parquet(data("imdb/imdb_test.parquet"))["text"]
    long = sorted(reviews, key=len)[-150:]
    plain, truncating = (
        posgeom.count_positions(long, folder / name, 256)
        for name in ("tokenizer.json", "tokenizer.minilm-trunc128.json")
    )
    assert plain.provenance.longest > 256
    same_counts(plain, truncating)
    assert any("truncates to 128" in note for note in truncating.provenance.notes)


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("sst2", {"positions": 32}),
        ("dna/uci_splice.parquet", {"tokenizer": "chars", "text_field": "sequence"}),
        ("corpora/tinyshakespeare.txt", {}),
    ],
)
def test_real_corpora_pass_through_the_whole_job(tmp_path, no_report, source, options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = posgeom.design(source if source == "sst2" else data(source), dim=64, **options)
    made.save(tmp_path / "o")
    loaded = posgeom.Design.load(tmp_path / "o")
    stress = loaded.scores.set_index("encoding")["stress"]
    assert stress.idxmin().startswith("mds")
    assert stress[f"mds:rank={loaded.low_rank.rank}"] <= 0.01 or loaded.low_rank.rank >= 63
    assert np.isfinite(loaded.low_rank.table()).all()
