"""The command line: bad input is one line and exit code 2, good input leaves what was asked."""

import csv
import inspect
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from importlib import import_module

import click
import numpy as np
import pytest
from conftest import drifting_text

import posgeom
from posgeom import cli
from posgeom.design import design

SMALL = ("--positions", 8, "--dim", 16)


@pytest.fixture
def work(tmp_path, monkeypatch, no_report):
    """A folder of its own to work in, with the corpus lines.txt."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POSGEOM_DATA", raising=False)
    (tmp_path / "lines.txt").write_text(drifting_text(), encoding="utf-8")
    return tmp_path


@pytest.fixture
def refused(work, run_cli):
    """Runs what must be refused: one line on stderr that holds the words, and no trace."""

    def run(*arguments, says):
        before = {p: p.stat().st_mtime_ns for p in work.rglob("*") if not p.is_dir()}
        folders = {p for p in work.rglob("*") if p.is_dir()}
        ran = run_cli(*arguments)
        assert ran.code == 2, ran
        assert ran.out == ""
        assert ran.err.startswith("posgeom: ")
        assert ran.err.endswith("\n")
        assert ran.err.count("\n") == 1, ran.err
        assert "Traceback" not in ran.err
        for words in says:
            assert words in ran.err
        assert {p: p.stat().st_mtime_ns for p in work.rglob("*") if not p.is_dir()} == before
        assert {p for p in work.rglob("*") if p.is_dir()} == folders
        return ran

    return run


def write(name, content):
    with open(name, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return name


def jsonl(name, rows):
    return write(name, "".join(json.dumps(row) + "\n" for row in rows))


def process(*arguments, **options):
    """The command line in a process of its own."""
    options = {"capture_output": True, "text": True, "timeout": 120} | options
    command = [sys.executable, "-m", "posgeom.cli", *map(str, arguments)]
    return subprocess.run(command, check=False, **options)


# -- corpora that cannot be used ------------------------------------------------------------------

BAD_CORPORA = {
    "missing": ([], ["there is no file bad.txt", "expected a path", "python-stdlib"]),
    "empty": (["", "bad.txt"], ["bad.txt is empty", "expected at least one document"]),
    "only line ends": (["\n\n \n"], ["bad.txt holds no usable token", "give a corpus with text"]),
    "only white space": ([" \t\n   \n"], ["no usable token"]),
    "one document": (["a b c d\n"], ["bad.txt is one document", "--documents line or paragraph"]),
    "one token a document": (["a\nb\nc\n"], ["has two tokens", "two positions"]),
    "nothing that repeats": (["a b c\nd\ne\n"], ["two are needed", "--min-count"]),
    "one token type": (["a a a\n" * 50], ["all distances of the corpus are 0", "give documents"]),
    "not UTF-8": (
        [b"good line\nbad \xff byte\n"],
        ["line 2", "byte offset 4", "0xff is not UTF-8", "--encoding-errors replace"],
    ),
    "UTF-16": (["a b\n".encode("utf-16")], ["is UTF-16", "iconv"]),
    "binary": ([b"PK\x03\x04\0\0\0\0" * 9], ["is binary", "expected text"]),
}


NO_GEOMETRY = ("nothing that repeats", "one token type")  # though such a corpus can be counted


@pytest.mark.parametrize(
    ("command", "case"),
    [("design", case) for case in BAD_CORPORA]
    + [("count", case) for case in BAD_CORPORA if case not in NO_GEOMETRY],
)
def test_an_unusable_corpus_is_refused(refused, command, case):
    content, says = BAD_CORPORA[case]
    if content:
        write("bad.txt", content[0])
    refused(command, "bad.txt", "--out", "out", says=says)


def test_one_document_in_packed_form_is_not_told_to_pack(refused):
    np.arange(100, dtype="<u2").tofile("p.bin")
    ran = refused("design", "p.bin", "--align", "packed", "--out", "o", says=["p.bin"])
    assert "use --align packed" not in ran.err


def test_bad_bytes_are_replaced_and_counted_when_asked(work, posgeom_ok):
    write("bad.txt", drifting_text().encode() + b"bad \xff byte \xfe here\n")
    arguments = ("count", "bad.txt", "--out", "c.npz", "--encoding-errors", "replace")
    ran = posgeom_ok(*arguments, "--json")
    assert json.loads(ran.out)["replaced"] == 2
    assert "2 byte sequences are not UTF-8 and were replaced" in ran.err


def test_a_column_that_is_not_there_is_named_with_those_that_are(refused):
    write("t.csv", "review,stars\ngood film,5\nbad film,1\n")
    says = ["t.csv has no column 'text'", "review, stars"]
    refused("design", "t.csv", "--text-field", "text", "--out", "o", says=says)
    refused("design", "t.csv", "--group-field", "film", "--out", "o", says=["'film'", "review"])


def test_two_columns_of_text_need_a_choice(refused):
    write("t.csv", "a,b\nx y,z w\nf g,h i\n")
    refused("design", "t.csv", "--out", "o", says=["2 columns of text (a, b)", "--text-field"])


def test_a_column_that_holds_no_text_is_refused(refused):
    jsonl("n.jsonl", [{"t": i} for i in range(9)])
    refused("count", "n.jsonl", "--out", "o", says=["no column of text or ids", "t"])
    refused("count", "n.jsonl", "--text-field", "t", "--out", "o", says=["row 1", "expected text"])


def test_null_and_empty_texts_are_skipped_and_counted(work, posgeom_ok):
    texts = ["a b c", None, "", "  ", "c b a"]
    jsonl("n.jsonl", [{"t": texts[i % 5]} for i in range(100)])
    ran = posgeom_ok("count", "n.jsonl", "--out", "c.npz", "--json")
    about = json.loads(ran.out)
    assert (about["documents"], about["skipped"]) == (40, 60)
    assert "60 of 100 documents hold nothing and were skipped" in ran.err


def test_nothing_but_nulls_is_no_usable_token(refused):
    jsonl("n.jsonl", [{"t": None}] * 9)
    says = ["no usable token", "9 documents"]
    refused("count", "n.jsonl", "--text-field", "t", "--out", "o", says=says)


@pytest.mark.skipif(sys.platform != "linux", reason="a limit on memory")
@pytest.mark.parametrize("largest", [2**31, 10**13])
def test_an_id_that_no_vocabulary_has_is_refused_before_memory_ends(work, largest):
    import resource

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))

    jsonl("ids.jsonl", [{"ids": [i % 5, largest, 3]} for i in range(9)])
    ran = process("design", "ids.jsonl", "--out", "o", preexec_fn=limit)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.count("\n") == 1
    assert str(largest) in ran.stderr.replace(",", "")
    assert not os.path.exists("o")


def test_the_hub_out_of_reach_says_how_to_use_a_local_copy(work):
    environment = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9"}
    for source, local in [("hf:some/corpus", "save_to_disk"), ("imdb", "POSGEOM_DATA")]:
        ran = process("design", source, "--out", "o", env=environment)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert ran.stderr.count("\n") == 1
        assert "cannot read the data set" in ran.stderr
        assert local in ran.stderr
    assert sorted(os.listdir()) == ["lines.txt"]


def test_a_tokenizer_out_of_reach_says_how_to_use_a_local_one_and_soon(work):
    environment = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9"}
    begun = time.monotonic()
    arguments = ("count", "lines.txt", "--tokenizer", "hf:some/model", "--out", "o.npz")
    ran = process(*arguments, env=environment)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "local tokenizer.json" in ran.stderr
    assert ran.stderr.count("\n") == 1, ran.stderr
    assert time.monotonic() - begun < 15
    assert sorted(os.listdir()) == ["lines.txt"]


# -- options that do not fit ----------------------------------------------------------------------

BAD_OPTIONS = {
    "--rank 8": ["rank 8", "8 positions span at most 7", "--rank 1 to 7"],
    "--rank 17": ["rank 17", "dimension 16", "raise --dim or lower --rank"],
    "--rank 0": ["rank 0", "--rank 1 to 7"],
    "--rank -1": ["rank -1", "--rank 1 to 7"],
    "--rank best": ["'best'", "--rank auto or a number"],
    "--rank 6 --dim 4": ["rank 6", "dimension 4"],
    "--dim 0": ["--dim 0 came", "1 or more"],
    "--dim -3": ["--dim -3 came", "1 or more"],
    "--dim wide": ["--dim", "'wide'"],
    "--positions 21": ["--positions 21 came", "longest document has 20", "--positions 20 or less"],
    "--positions 1": ["--positions 1 came", "at least 2"],
    "--positions -5": ["--positions -5 came", "at least 2"],
    "--positions many": ["--positions", "'many'"],
    "--positions 10000000000000": ["--positions 10000000000000 came"],
    "--positions 99999999999999999999999": ["--positions 99999999999999999999999 came"],
    "--folds 3": ["--folds 3 came", "power of two"],
    "--folds 0": ["--folds 0 came", "power of two"],
    "--folds -2": ["--folds -2 came", "power of two"],
    "--norm 0": ["--norm 0", "positive"],
    "--norm -1": ["--norm -1", "positive"],
    "--norm nan": ["--norm nan", "positive"],
    "--norm inf": ["--norm inf", "positive"],
    "--min-count 1000000": ["0 of 8 positions", "1000000", "lower --min-count"],
    "--seed -1": ["seed", "-1"],
    "--seed x": ["--seed", "'x'"],
    "--grid 8": ["--grid", "'8' came", "ROWSxCOLUMNS"],
    "--grid 8x": ["--grid", "'8x' came", "ROWSxCOLUMNS"],
    "--grid 2x2x2": ["--grid", "'2x2x2' came", "ROWSxCOLUMNS"],
    "--grid 0x8": ["0x8"],
    "--grid 2x2": ["2x2", "leave --positions and --align out"],
    "--grid 2x4": ["the grid 8 cells", "make them equal"],
    "--align grid": ["--align grid", "add --grid ROWSxCOLUMNS"],
    "--align middle": ["--align", "'middle'", "start", "end", "packed"],
    "--estimator best": ["'best'", "plugin"],
    "--metric euclid": ["'euclid'", "hellinger", "total-variation"],
    "--documents page": ["--documents", "'page'", "paragraph"],
    "--encoding-errors ignore": ["--encoding-errors", "'ignore'", "replace"],
    "--ids-dtype int8": ["--ids-dtype", "'int8'", "uint32"],
    "--ids-dtype uint32": ["--ids-dtype does not apply", "leave it out"],
    "--split train": ["--split does not apply", "leave it out"],
    "--config x": ["--config does not apply", "leave it out"],
    "--text-field text": ["--text-field does not apply", "leave it out"],
    "--group-field film": ["'film'", "--group-field file"],
    "--tokeniser words": ["'--tokeniser'", "--tokenizer"],
    "--bogus": ["'--bogus'", "--help"],
    "--tokenizer nope.json": ["tokenizer nope.json is no file", "give a tokenizer.json"],
    "--tokenizer lines.txt": ["tokenizer lines.txt is no tokenizer file", "[UNK]", "give"],
    "--tokenizer .": ["tokenizer . is no file or folder that holds one", "give"],
    "--tokenizer train:bpe": ["'train:bpe'", "train:bpe:N"],
    "--tokenizer train:bpe:0": ["'train:bpe:0'", "2 or more"],
    "--tokenizer train:bpe:many": ["'train:bpe:many'", "train:bpe:N"],
    "--tokenizer train:bpe:300:9": ["'train:bpe:300:9'", "train:bpe:N"],
    "--tokenizer train:glove:300": ["'train:glove:300'", "train:bpe:N"],
    "--special-tokens": ["tokenizer words has no special tokens", "drop --special-tokens"],
    "--encoding fourier": ["'fourier' is not known", "sinusoidal", "learned:PATH"],
    "--encoding sinusoidal:bass=1": ["no option 'bass'", "dim, base, layout"],
    "--encoding sinusoidal:base": ["'base'", "key=value"],
    "--encoding sinusoidal:base=big": ["base takes float", "'big' came"],
    "--encoding sinusoidal:base=0": ["base=0", "positive"],
    "--encoding rope:dim=3": ["dim=3", "even"],
    "--encoding rope:base=-1": ["base=-1", "positive"],
    "--encoding rope:base=nan": ["base=nan"],
    "--encoding sinusoidal:base=nan": ["base=nan"],
    "--encoding alibi:heads=0": ["heads=0", "1 or more"],
    "--encoding alibi:heads=4,head=4": ["no head 4", "0 to 3"],
    "--encoding alibi:reading=fast": ["'fast'", "linear, kernel or attention"],
    "--encoding random:seed=-1": ["seed", "-1"],
    "--encoding mds:rank=99": ["rank 99", "dimension 16"],
    "--encoding mds:rank=x": ["rank takes int", "'x' came"],
    "--encoding learned": ["without a file", "learned:PATH[#KEY]"],
    "--encoding learned:nope.npy": ["nope.npy is not a file", "PATH#KEY"],
    "--encoding learned:lines.txt": ["ends in .txt", ".safetensors"],
}


@pytest.mark.parametrize("options", BAD_OPTIONS)
def test_an_option_that_does_not_fit_is_refused(refused, options):
    arguments = ("design", "lines.txt", *SMALL, *options.split(), "--out", "o")
    refused(*arguments, says=BAD_OPTIONS[options])


def test_an_empty_tokenizer_is_refused(refused):
    arguments = ("design", "lines.txt", "--tokenizer", "", "--out", "o")
    refused(*arguments, says=["tokenizer", "give a tokenizer.json"])


@pytest.mark.parametrize("content", ['{"no": 1}', "not json", "[]", "", b"\xff\xfe\0\0"])
def test_a_tokenizer_file_that_is_none_is_refused(refused, content):
    write("tok.json", content)
    arguments = ("design", "lines.txt", "--tokenizer", "tok.json", "--out", "o")
    refused(*arguments, says=["tokenizer tok.json is no tokenizer file", "give a tokenizer.json"])


def test_a_learned_table_that_cannot_be_used_is_refused(refused):
    np.save("nan.npy", np.where(np.eye(8, 4) > 0, np.nan, 1.0))
    np.save("inf.npy", np.full((8, 4), np.inf))
    np.save("short.npy", np.eye(4))
    np.save("line.npy", np.arange(8.0))
    np.save("objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.savez("two.npz", a=np.eye(8), b=np.eye(8))
    write("broken.safetensors", b"\1\2\3")
    for table, *says in [
        ("nan.npy", "NaN", "row 0", "finite numbers"),
        ("inf.npy", "infinity", "finite numbers"),
        ("short.npy", "4 rows", "position 7", "--positions 4 or less"),
        ("line.npy", "(8,)", "(positions, dimensions)"),
        ("objects.npy", "objects.npy cannot be read"),
        ("two.npz", "two.npz#KEY", "a, b"),
        ("two.npz#c", "no tensor c", "a, b"),
        ("nan.npy#wpe", "nan.npy"),
        ("broken.safetensors", "broken.safetensors cannot be read"),
    ]:
        encoding = ("--encoding", f"learned:{table}")
        refused("design", "lines.txt", *SMALL, *encoding, "--out", "o", says=says)


def test_a_key_for_a_file_of_one_array_is_refused(refused):
    np.save("ok.npy", np.eye(8))
    encoding = ("--encoding", "learned:ok.npy#wpe.weight")
    says = ["ok.npy", "wpe.weight"]
    refused("design", "lines.txt", *SMALL, *encoding, "--out", "o", says=says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["desing", "lines.txt"], ["'desing'", "design"]),
        (["design"], ["SOURCE", "--help"]),
        (["design", "lines.txt"], ["--out", "--help"]),
        (["design", "lines.txt", "more.txt", "--out", "o"], ["more.txt"]),
        (["merge", "--out", "o"], ["COUNTS", "--help"]),
        (["encodings", "rope"], ["rope"]),
        (["design", "digit", "--out", "o"], ["digit", "did you mean digits"]),
        (["design", "synthetic:colour=1", "--out", "o"], ["colour", "positions, vocabulary"]),
        (["design", "digits", "--positions", "8", "--out", "o"], ["8x8", "leave --positions"]),
    ],
)
def test_a_command_line_that_is_wrong_is_refused(refused, arguments, says):
    refused(*arguments, says=says)


def test_a_norm_that_overflows_is_refused(work, run_cli):
    ran = run_cli("design", "lines.txt", *SMALL, "--norm", "1e308", "--out", "o")
    assert (ran.code, ran.out) == (2, "")
    assert "--norm 1e+308 came" in ran.err


# -- where results go -----------------------------------------------------------------------------


def test_a_folder_that_holds_a_run_is_not_overwritten_without_force(refused):
    os.mkdir("o")
    write("o/run.toml", "")
    arguments = ("design", "lines.txt", *SMALL, "--out", "o")
    refused(*arguments, says=["--out o already holds run.toml", "another folder", "--force"])


def test_out_that_is_a_file_is_refused(refused):
    refused("design", "lines.txt", "--out", "lines.txt", says=["is a file", "give a folder"])
    refused("count", "lines.txt", "--out", ".", says=["--out . is a folder", "another file"])


@pytest.mark.parametrize("command", ["design", "count"])
def test_out_below_a_file_is_refused_before_the_work(refused, command, monkeypatch):
    def no_work(*_, **__):
        raise AssertionError("work was done for an output that cannot be written")

    monkeypatch.setattr("posgeom.counting.load_tokenizer", no_work)
    refused(command, "lines.txt", "--out", "lines.txt/below", says=["lines.txt"])


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_folder_is_refused(refused, work):
    (work / "locked").mkdir(mode=0o555)
    refused("design", "lines.txt", *SMALL, "--out", "locked/o", says=["locked"])


@pytest.mark.parametrize("command", ["design", "count"])
def test_a_full_or_forbidding_disk_is_one_line(refused, monkeypatch, command):
    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("posgeom.counts.np.savez_compressed", refuse)
    refused(command, "lines.txt", "--positions", 8, "--out", "o", says=["No space left on device"])


def test_an_unknown_encoding_is_refused_before_the_corpus_is_counted(refused, monkeypatch):
    def no_work(*_, **__):
        raise AssertionError("the corpus was counted for an encoding that is not there")

    # posgeom.design is the function; its module has the same name
    monkeypatch.setattr(import_module("posgeom.design"), "count_positions", no_work)
    for encoding in ("fourier", "learned:nope.npy", "rope:dim=3"):
        refused("design", "lines.txt", "--encoding", encoding, "--out", "o", says=[])


def test_counts_are_not_overwritten_without_force(refused, posgeom_ok):
    posgeom_ok("count", "lines.txt", "--positions", 8, "--out", "c.npz")
    says = ["c.npz is there already", "another file", "--force"]
    refused("count", "lines.txt", "--positions", 4, "--out", "c.npz", says=says)
    refused("merge", "c.npz", "--out", "c.npz", says=says)
    posgeom_ok("count", "lines.txt", "--positions", 4, "--out", "c.npz", "--force")
    assert posgeom.PositionCounts.load("c.npz").n_positions == 4


def test_force_replaces_a_run(work, posgeom_ok):
    posgeom_ok("design", "lines.txt", *SMALL, "--out", "o")
    posgeom_ok("design", "lines.txt", "--positions", 6, "--dim", 8, "--out", "o", "--force")
    assert posgeom.Design.load("o").geometry.n_positions == 6
    assert sorted(os.listdir()) == ["lines.txt", "o"]


def test_force_touches_no_folder_with_other_things(refused, work, posgeom_ok):
    (work / "mine").mkdir()
    write("mine/thesis.txt", "precious")
    force = ("design", "lines.txt", *SMALL, "--force", "--out")
    refused(*force, "mine", says=["mine holds thesis.txt", "no file of a run", "another folder"])
    refused(*force, ".", says=["holds lines.txt"])
    posgeom_ok(*force, "run")
    write("run/thesis.txt", "precious")
    refused(*force, "run", says=["run holds thesis.txt"])


def test_force_takes_a_folder_with_a_tokenizer_alone_for_no_run(refused, work):
    (work / "bert").mkdir()
    write("bert/tokenizer.json", "precious")
    refused("design", "lines.txt", *SMALL, "--out", "bert", "--force", says=["tokenizer.json"])


def test_force_keeps_foreign_files_among_the_figures(refused, posgeom_ok):
    posgeom_ok("design", "lines.txt", *SMALL, "--out", "o")
    os.makedirs("o/figures", exist_ok=True)
    write("o/figures/mine.txt", "precious")
    refused("design", "lines.txt", *SMALL, "--out", "o", "--force", says=["mine.txt"])


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_run_can_be_written_into_the_working_folder(work, posgeom_ok, monkeypatch, force):
    (work / "here").mkdir()
    if force:
        posgeom_ok("design", "lines.txt", "--positions", 6, "--dim", 8, "--out", "here", "--force")
    monkeypatch.chdir(work / "here")
    posgeom_ok("design", "../lines.txt", *SMALL, "--out", ".", *force)
    assert posgeom.Design.load(work / "here").geometry.n_positions == 8
    assert sorted(p.name for p in work.iterdir()) == ["here", "lines.txt"]


def test_a_failing_replacement_leaves_the_earlier_run(work, run_cli, posgeom_ok, monkeypatch):
    posgeom_ok("design", "lines.txt", "--positions", 6, "--dim", 8, "--out", "o")
    monkeypatch.setattr("pathlib.Path.rename", mock_failure)
    monkeypatch.setattr("pathlib.Path.replace", mock_failure)
    monkeypatch.setattr("os.rename", mock_failure)
    monkeypatch.setattr("os.replace", mock_failure)
    ran = run_cli("design", "lines.txt", *SMALL, "--out", "o", "--force")
    assert ran.code == 2
    assert posgeom.Design.load("o").geometry.n_positions == 6


def mock_failure(*_, **__):
    raise OSError(5, "Input/output error")


def test_a_link_to_a_folder_leads_there(work, posgeom_ok):
    (work / "real").mkdir()
    (work / "link").symlink_to("real")
    posgeom_ok("design", "lines.txt", *SMALL, "--out", "link")
    assert posgeom.Design.load("link").geometry.n_positions == 8
    assert sorted(os.listdir()) == ["lines.txt", "link", "real"]


def test_paths_with_spaces_stars_and_other_letters_work(work, posgeom_ok):
    (work / "größe [1] *").mkdir()
    os.rename("lines.txt", "größe [1] */ü 文.txt")
    posgeom_ok("design", "größe [1] */ü 文.txt", *SMALL, "--out", "größe [1] */aus é")
    posgeom_ok("run", "größe [1] */aus é/run.toml", "--out", "nochmal")
    assert sorted(os.listdir("größe [1] *")) == ["aus é", "ü 文.txt"]
    assert os.listdir("nochmal") == ["aus é"]


def test_every_file_of_a_run_can_be_read_by_others_as_the_mask_allows(work, posgeom_ok):
    before = os.umask(0o022)
    try:
        posgeom_ok("design", "lines.txt", *SMALL, "--out", "o")
    finally:
        os.umask(before)
    assert {(p.stat().st_mode & 0o777) for p in (work / "o").iterdir()} == {0o644}


# -- counts and merging ---------------------------------------------------------------------------


@pytest.fixture
def counted(work, posgeom_ok):
    """The counts c.npz of lines.txt at 8 positions."""
    posgeom_ok("count", "lines.txt", "--positions", 8, "--out", "c.npz")
    return work / "c.npz"


def test_a_damaged_counts_file_is_refused_by_score_and_merge(refused, counted):
    whole = counted.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 0xFF
    write("cut.npz", whole[: len(whole) // 2])
    write("nothing.npz", b"")
    write("flipped.npz", bytes(flipped))
    write("text.npz", "a b c\n")
    np.savez("other.npz", a=np.eye(3))
    for name in ("cut.npz", "nothing.npz", "flipped.npz", "text.npz", "other.npz"):
        refused("score", name, says=[f"{name} holds no position counts"])
        refused("merge", "c.npz", name, "--out", "m.npz", says=[f"{name} holds no position counts"])
    refused("score", "gone.npz", says=["gone.npz are not there", "give a file"])
    refused("merge", "c.npz", "gone.npz", "--out", "m.npz", says=["gone.npz are not there"])


def test_counts_that_do_not_belong_together_are_not_merged(refused, counted, posgeom_ok):
    for name, options, says in [
        ("chars", ("--tokenizer", "chars"), ["words", "chars", "in the same way"]),
        ("folds", ("--folds", 8), ["16 folds", "8 folds", "in the same way"]),
        ("end", ("--align", "end"), ["'start'", "'end'", "in the same way"]),
    ]:
        arguments = ("count", "lines.txt", "--positions", 8)
        posgeom_ok(*arguments, *options, "--out", f"{name}.npz")
        refused("merge", "c.npz", f"{name}.npz", "--out", "m.npz", says=says)


def test_another_window_or_fold_rule_is_not_merged(refused, counted, posgeom_ok):
    for name, options, says in [
        ("short", ("--positions", 5), ["of 5 positions and of 8", "in the same way"]),
        ("group", ("--positions", 8, "--group-field", "file"), ["'document' and 'group'"]),
    ]:
        posgeom_ok("count", "lines.txt", *options, "--out", f"{name}.npz")
        refused("merge", "c.npz", f"{name}.npz", "--out", "m.npz", says=says)


def test_parts_that_would_not_do_alone_merge_to_the_whole(counted, posgeom_ok):
    lines = drifting_text().splitlines(keepends=True)
    for k, part in enumerate((lines[:1], lines[1:100], lines[100:])):
        write(f"{k}.txt", "".join(part))
        posgeom_ok("count", f"{k}.txt", "--positions", 8, "--part", "--out", f"{k}.npz")
    posgeom_ok("merge", "0.npz", "1.npz", "2.npz", "--out", "sum.npz")
    whole, total = (posgeom.PositionCounts.load(f"{name}.npz") for name in ("c", "sum"))
    assert (whole.counts != total.counts).nnz == 0
    assert whole.vocabulary == total.vocabulary
    assert whole.provenance.fingerprint == total.provenance.fingerprint


def test_what_a_count_cannot_share_or_resume_is_refused(refused, posgeom_ok):
    for source, option, says in [
        ("digits", ("--dask", "local:2"), ["--dask came, but digits cannot be cut"]),
        ("digits", ("--skip-bad",), ["--skip-bad came, but digits cannot be cut"]),
        ("-", ("--resume",), ["can be read only once", "give a file"]),
        ("lines.txt", ("--dask", "local:0"), ["--dask local:0 came", "1 or more"]),
    ]:
        refused("count", source, *option, "--out", "o.npz", says=says)


def test_merged_counts_are_those_of_both_corpora(counted, posgeom_ok):
    write("more.txt", drifting_text(documents=77, seed=5))
    write("both.txt", drifting_text() + drifting_text(documents=77, seed=5))
    posgeom_ok("count", "more.txt", "--positions", 8, "--out", "more.npz")
    posgeom_ok("count", "both.txt", "--positions", 8, "--out", "both.npz")
    ran = posgeom_ok("merge", "c.npz", "more.npz", "--out", "sum.npz", "--json")
    assert json.loads(ran.out)["documents"] == 317
    both, total = (posgeom.PositionCounts.load(f"{name}.npz") for name in ("both", "sum"))
    assert both.vocabulary == total.vocabulary
    assert (both.counts != total.counts).nnz == 0
    np.testing.assert_array_equal(both.documents, total.documents)
    assert both.provenance.fingerprint == total.provenance.fingerprint


def test_score_of_counts_of_a_run_and_of_a_corpus_agree(counted, posgeom_ok):
    posgeom_ok("design", "lines.txt", *SMALL, "--out", "o")
    scores = [
        json.loads(posgeom_ok("score", source, "--dim", 16, "--json", *more).out)
        for source, *more in [("c.npz",), ("o",), ("lines.txt", "--positions", "8")]
    ]
    assert scores[0] == scores[1] == scores[2]
    assert {row["encoding"] for row in scores[0]["scores"]} >= {"sinusoidal", "rope", "mds"}


def test_score_does_not_pass_over_what_it_cannot_heed(refused, counted, posgeom_ok):
    posgeom_ok("design", "lines.txt", *SMALL, "--out", "o")
    refused("score", "o", "--metric", "fisher-rao", says=["--metric"])
    refused("score", "c.npz", "--tokenizer", "chars", says=["--tokenizer"])
    refused("score", "c.npz", "--positions", 4, says=["--positions"])


# -- pipelines from the command line --------------------------------------------------------------


def test_a_pipeline_that_cannot_be_read_is_refused(refused):
    write("p.toml", "not = = toml")
    refused("run", "gone.toml", says=["pipeline gone.toml cannot be read"])
    refused("run", "p.toml", says=["pipeline p.toml is not TOML"])


# -- stdout, stderr and the end of a process ------------------------------------------------------


def test_json_is_all_there_is_on_stdout(counted, posgeom_ok):
    made = json.loads(posgeom_ok("design", "lines.txt", *SMALL, "--json", "--out", "o").out)
    assert made["positions"] == 8
    assert made["documents"] == 240
    assert made["out"] == "o"
    assert [row["encoding"] for row in made["scores"]][:2] == ["sinusoidal", "rope"]
    assert json.loads(posgeom_ok("score", "c.npz", "--json").out)["scores"]
    assert json.loads(posgeom_ok("merge", "c.npz", "--out", "m.npz", "--json").out)["tokens"] > 0
    ran = posgeom_ok("count", "lines.txt", "--json", "--out", "n.npz")
    assert json.loads(ran.out)["notes"]


def test_json_holds_the_numbers_of_the_table_that_is_saved(work, posgeom_ok):
    made = json.loads(posgeom_ok("design", "lines.txt", *SMALL, "--json", "--out", "o").out)
    with open("o/scores.csv", newline="") as file:
        saved = list(csv.DictReader(file))
    assert [row["encoding"] for row in saved] == [row["encoding"] for row in made["scores"]]
    for row, entry in zip(saved, made["scores"], strict=True):
        assert float(row["stress"]) == pytest.approx(entry["stress"], rel=1e-9, abs=1e-14)


def test_notes_are_on_stderr_and_quiet_drops_them(work, posgeom_ok):
    ran = posgeom_ok("count", "lines.txt", "--out", "a.npz")
    assert "positions: " in ran.err
    assert "positions: " not in ran.out
    assert all(line.startswith("posgeom: ") for line in ran.err.splitlines())
    assert posgeom_ok("count", "lines.txt", "--quiet", "--out", "b.npz").err == ""
    assert posgeom_ok("design", "lines.txt", "--quiet", "--out", "o").err == ""
    plugin = posgeom_ok("design", "lines.txt", "--estimator", "plugin", "--out", "p")
    assert "plug-in" in plugin.err


def test_a_bad_run_says_so_even_when_quiet(refused):
    refused("design", "gone.txt", "--quiet", "--json", "--out", "o", says=["gone.txt"])


def test_no_progress_is_drawn_where_nobody_looks(work):
    ran = process("count", "lines.txt", "--positions", 8, "--out", "c.npz")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_no_command_shows_the_help(run_cli):
    ran = run_cli()
    assert ran.code == 2
    shown = ran.out + ran.err
    assert [line for line in shown.splitlines() if line.strip().startswith("design ")]


def test_an_abort_ends_with_130(run_cli, monkeypatch):
    def abort(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("posgeom.named.named_corpora", abort)
    assert run_cli("corpora").code == 130


def test_an_interrupt_while_saving_leaves_nothing(work, run_cli, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("posgeom.report.write_report", interrupt)
    ran = run_cli("design", "lines.txt", *SMALL, "--out", "o")
    assert ran.code == 130
    assert ran.out == ""
    assert os.listdir() == ["lines.txt"]


def test_an_interrupt_while_saving_counts_leaves_nothing(work, run_cli, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("posgeom.counts.np.savez_compressed", interrupt)
    assert run_cli("count", "lines.txt", "--out", "c.npz").code == 130
    assert os.listdir() == ["lines.txt"]


def test_an_interrupt_while_replacing_leaves_the_earlier_run(
    work, run_cli, posgeom_ok, monkeypatch
):
    posgeom_ok("design", "lines.txt", "--positions", 6, "--dim", 8, "--out", "o")

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("posgeom.report.write_report", interrupt)
    assert run_cli("design", "lines.txt", *SMALL, "--out", "o", "--force").code == 130
    assert posgeom.Design.load("o").geometry.n_positions == 6


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("sign", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, None), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_a_killed_run_leaves_no_final_folder(work, sign, code):
    program = textwrap.dedent("""
        import signal, sys, time
        import posgeom.report
        from posgeom import cli
        signal.signal(signal.SIGINT, signal.default_int_handler)
        def slow(design, folder, **_):
            print("saving", flush=True)
            time.sleep(60)
        posgeom.report.write_report = slow
        cli.main()
    """)
    command = [sys.executable, "-c", program, "design", "lines.txt", "--out", "o"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout.readline() == "saving\n"
        run.send_signal(sign)
        _, err = run.communicate(timeout=30)
    assert run.returncode == code if code is not None else run.returncode != 0
    assert "Traceback" not in err
    assert not os.path.exists("o")
    if sign != signal.SIGKILL:  # a kill gives no chance to clean up
        assert os.listdir() == ["lines.txt"]


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell")
def test_a_reader_that_leaves_early_is_no_error(work):
    command = f"{sys.executable} -m posgeom.cli corpora | true; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stderr == ""
    assert ran.stdout.strip() == "0"


def test_a_bug_is_not_taken_for_bad_input(work, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("posgeom.named.named_corpora", fail)
    monkeypatch.setattr(sys, "argv", ["posgeom", "corpora"])
    with pytest.raises(ZeroDivisionError):  # which Python ends with exit code 1
        cli.main()


# -- text as it comes -----------------------------------------------------------------------------


def test_line_ends_marks_and_a_missing_last_line_end_change_nothing(work, posgeom_ok):
    text = drifting_text()
    variants = {
        "unix": text.encode(),
        "windows": text.replace("\n", "\r\n").encode(),
        "mark": b"\xef\xbb\xbf" + text.encode(),
        "open": text.removesuffix("\n").encode(),
        "all": b"\xef\xbb\xbf" + text.replace("\n", "\r\n").removesuffix("\r\n").encode(),
    }
    counted = {}
    for tokenizer in ("words", "chars", "bytes"):
        for name, content in variants.items():
            write(f"{name}.txt", content)
            arguments = ("--tokenizer", tokenizer, "--positions", 8, "--force", "--out", "c.npz")
            posgeom_ok("count", f"{name}.txt", *arguments)
            counted[name] = posgeom.PositionCounts.load("c.npz")
        for counts in counted.values():
            assert counts.vocabulary == counted["unix"].vocabulary
            assert (counts.counts != counted["unix"].counts).nnz == 0
            assert counts.provenance.fingerprint == counted["unix"].provenance.fingerprint


def test_one_line_of_ten_megabytes_is_a_document(work, posgeom_ok):
    write("long.txt", drifting_text() + "word " * 2_000_000 + "\n")
    ran = posgeom_ok("count", "long.txt", "--positions", 8, "--json", "--out", "c.npz")
    about = json.loads(ran.out)
    assert (about["documents"], about["longest"]) == (241, 2_000_000)


def test_standard_input_is_a_corpus(work):
    ran = process("count", "-", "--positions", 8, "--out", "c.npz", input=drifting_text())
    assert ran.returncode == 0, ran.stderr
    of_file = posgeom.count_positions("lines.txt", positions=8)
    assert (posgeom.PositionCounts.load("c.npz").counts != of_file.counts).nnz == 0
    ran = process("count", "-", "--out", "d.npz", input="")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "posgeom: standard input is empty; expected lines of text\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with a name")
def test_a_named_pipe_is_refused_and_not_waited_for(work):
    os.mkfifo("pipe.txt")
    ran = process("count", "pipe.txt", "--out", "c.npz", timeout=30)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "pipe it in, with SOURCE -" in ran.stderr


# -- help -----------------------------------------------------------------------------------------


def command_tree(command=cli.cli, path=("posgeom",)):
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from command_tree(child, (*path, name))


@pytest.mark.parametrize(
    ("path", "command"), [pytest.param(*node, id=" ".join(node[0])) for node in command_tree()]
)
def test_each_command_and_each_option_is_explained(run_cli, path, command):
    ran = run_cli(*path[1:], "--help")
    assert (ran.code, ran.err) == (0, "")
    assert command.help
    assert command.help.split(".")[0].split("\n")[0] in " ".join(ran.out.split())
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.name} of {' '.join(path)} has no help"
            assert parameter.opts[0] in ran.out
            assert len(parameter.help) > 5


def test_the_expected_commands_are_there():
    assert set(cli.cli.commands) >= {
        "design",
        "count",
        "merge",
        "score",
        "encodings",
        "corpora",
        "run",
    }


def test_defaults_of_the_command_line_are_those_of_the_function():
    command = cli.cli.commands["design"]
    values = command.make_context("design", ["a.txt", "--out", "o"]).params
    only_here = {"source", "out", "quiet", "force", "as_json"}
    assert only_here <= set(values)
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(design).parameters.items()
        if name not in ("corpus", "progress", "force")
    }
    values["encodings"] = values["encodings"] or None  # repeated options come as a tuple
    (values["family"],) = values["family"]
    assert {name: v for name, v in values.items() if name not in only_here} == defaults


def test_shared_options_mean_the_same_everywhere():
    first = {}
    for name, command in cli.cli.commands.items():
        for option in command.params:
            if not isinstance(option, click.Option) or option.name in ("out", "force"):
                continue
            told = (option.opts, option.default, option.help, option.type.name)
            assert first.setdefault(option.name, told) == told, f"{option.name} of {name}"


def test_listings_name_what_can_be_used(posgeom_ok):
    shown = posgeom_ok("encodings").out
    for family in ("sinusoidal", "rope", "alibi", "random", "learned", "mds"):
        assert f"{family}:" in shown
    names = [line for line in posgeom_ok("corpora").out.splitlines() if not line.startswith(" ")]
    assert {"python-stdlib", "digits", "synthetic", "sst2", "imdb", "wikitext2"} <= set(names)


def test_the_version_is_told(posgeom_ok):
    assert posgeom.__version__ in posgeom_ok("--version").out
