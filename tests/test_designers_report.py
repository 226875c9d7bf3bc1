"""The page on all designs of a corpus: numbers of the modules, and nothing made of noise."""

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist

from posgeom import count_positions, estimate_geometry, make_encoding, score_encodings
from posgeom.designers.extension import classical_coordinates
from posgeom.designers.families import family_candidates
from posgeom.designers_report import FILES, report_designers, shortened, shown_ranks
from posgeom.gains import gains
from posgeom.pipeline import run_pipeline

DECAY = "synthetic:shape=decay,documents=9000,vocabulary=300,positions=16"


@pytest.fixture(scope="module")
def decay():
    return report_designers(DECAY, "none", 16, dim=16)


@pytest.fixture(scope="module")
def geometry():
    return estimate_geometry(count_positions(DECAY, "none", 16))


def tables(page):
    """The tables of a page, each as rows of cells without its ruler."""
    found = re.findall(r"(?:^\|.*\n)+", page, re.M)
    rows = [[line.strip("|").split(" | ") for line in table.splitlines()] for table in found]
    return [
        [[cell.strip() for cell in cells] for cells in table if "---" not in cells[0]]
        for table in rows
    ]


def test_the_numbers_are_those_of_the_gains(decay, geometry):
    rank = decay.designs.chosen[1]
    again = gains(geometry, family_candidates(["all"], rank=rank, dim=16), 16, held_out=True)
    pd.testing.assert_frame_equal(decay.designs.table[again.columns], again)


def test_every_family_is_on_the_page_with_its_parameters(decay):
    best, ranks, held_out, ways = tables(decay.markdown())
    names = decay.designs.table["encoding"].tolist()
    assert [row[0] for row in best[1:]] == names
    assert [row[0] for row in held_out[1:]] == names
    assert {name.split(":")[0] for name in names} == {
        "mds",
        "stress",
        "fitted-rope",
        "fitted-base",
        "fitted-alibi",
        "fitted-kerple",
        "fitted-t5",
    }
    assert [int(row[0]) for row in ranks[1:]] == decay.designs.ranks["rank"].tolist()
    assert [row[0] for row in ways[1:]] == [n for n in names if n.startswith(("mds", "stress"))]
    for name, spec in zip(names, decay.designs.table["spec"], strict=True):
        assert (f"- {name}: `" in decay.markdown()) == bool(spec)


def test_the_best_base_is_carried_away_in_full(decay, geometry):
    row = decay.designs.table.set_index("encoding").loc["fitted-rope"]
    (score,) = score_encodings(geometry, [row["spec"]], 16)["stress"]
    assert score == pytest.approx(row["stress"])
    assert len(make_encoding(row["spec"]).inv_freq) == 8


def test_twice_the_length_is_measured_with_half_of_it_hidden(decay, geometry):
    """By hand: interpolation of classical MDS from the first 8 positions to 16."""
    X = classical_coordinates(geometry.at(np.arange(8)), decay.designs.chosen[1])
    places = np.arange(16) * 7 / 15
    Y = np.column_stack([np.interp(places, np.arange(8), x) for x in X.T])
    touched = np.maximum.outer(np.arange(16), np.arange(16)) >= 8
    row = decay.designs.table.iloc[0]
    assert row["half_extension"] == "interpolation"

    def stress(s):
        δ, D = cdist(Y, Y)[touched], np.sign(s[touched]) * np.sqrt(np.abs(s[touched]))
        return 1 - (δ @ D) ** 2 / ((δ @ δ) * s[touched].sum())

    value = stress(geometry.squared)
    bias = np.mean([stress(s) for s in geometry.halves]) - value
    assert row["half_held_out"] == pytest.approx(value - bias)


def test_tables_are_carried_to_twice_the_length(decay):
    for extension in decay.designs.carried.values():
        assert len(extension.A) == 32
        assert set(extension.methods[16:]) <= {"harmonic", "interpolation"}
        assert np.isfinite(extension.A).all()
    assert decay.markdown().count("from 16 positions to 32") == 2


def test_the_folder_holds_its_files_and_can_be_run_again(tmp_path):
    file = tmp_path / "d.toml"
    file.write_text(
        f'[[stage]]\njob = "designers"\nout = "d"\nsource = "{DECAY}"\ntokenizer = "none"\n'
        "positions = 16\ndim = 16\n"
    )
    assert [fresh for _, fresh in run_pipeline(file, tmp_path)] == [True]
    out = tmp_path / "d"
    assert sorted(path.name for path in out.iterdir()) == sorted(FILES)
    first = {name: (out / name).read_bytes() for name in FILES[:2]}
    assert [fresh for _, fresh in run_pipeline(file, tmp_path)] == [False]
    assert [fresh for _, fresh in run_pipeline(out / "run.toml", tmp_path, force=True)] == [True]
    assert {name: (out / name).read_bytes() for name in FILES[:2]} == first
    read = pd.read_csv(out / "designers.csv")
    assert "inv_freq=" in read["spec"].dropna().iloc[0]


def test_nothing_is_made_of_noise(tmp_path):
    made = report_designers("synthetic:shape=none,documents=3000,seed=1", "none", 16, dim=16)
    assert made.designs is None
    assert "nothing is made for it" in made.markdown()
    out = made.save(tmp_path / "none")
    read = pd.read_csv(out / "designers.csv")
    assert "gain" in read
    assert read.empty


def test_a_grid_has_axial_frequencies_and_no_tables_carried_on():
    made = report_designers("digits", "ids", dim=16)
    names = made.designs.table["encoding"].tolist()
    assert "fitted-axial" in names
    assert made.designs.carried == {}
    assert "positions are cells of a grid" in made.markdown()
    assert "nan" not in made.markdown()


def test_few_positions_have_no_quarter_to_hide():
    made = report_designers(DECAY, "none", 6, dim=16)
    assert made.designs.carried == {}
    assert "Too few positions to hide some of them." in made.markdown()


def test_long_lists_are_cut_on_the_page_only():
    spec = "rope:dim=16,inv_freq=1;0.5123456;0.25;0.125;0.0625;0.03,weights=1;2"
    assert shortened(spec) == "rope:dim=16,inv_freq=1;0.5123;0.25;0.125;… (6 values),weights=1;2"
    assert shortened("t5") == "t5"
    assert shortened("alibi:reading=kernel") == "alibi:reading=kernel"


def test_of_many_ranks_the_chosen_is_shown(decay):
    many = pd.DataFrame({"rank": np.arange(1, 41)})
    rows = shown_ranks(replace(decay.designs, ranks=many, chosen=(3, 29)))
    assert rows[:6] == [*range(6)]
    assert {2, 28, 39} <= set(rows)
    assert rows == sorted(set(rows))
    assert len(rows) < 20


def test_every_error_on_the_page_is_a_number(decay):
    page = decay.markdown()
    assert "nan" not in page
    assert all(math.isfinite(float(x)) for x in re.findall(r"± (\d[\d.]*)", page))
