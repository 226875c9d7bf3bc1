"""What designs gain: by the numbers of the scores, by hand, and never below a floor."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import t as student

from posgeom import (
    PosgeomError,
    SyntheticCorpus,
    count_positions,
    estimate_geometry,
    make_encoding,
    score_encodings,
    true_geometry,
)
from posgeom.designers.extension import classical_coordinates, extend, held_out_stress
from posgeom.designers.families import Candidate, family_candidates
from posgeom.designers.floors import proved_floors
from posgeom.gains import COLUMNS, HELD_OUT_COLUMNS, gains
from posgeom.report.designs import gain_sentences
from posgeom.simulation import draw_counts
from posgeom.stress import stress

DIM = 16


def all_families(geometry, rank=2):
    return family_candidates(["all"], rank=rank, dim=DIM, grid=geometry.grid is not None)


def uncorrected(geometry):
    """The same estimate, with folds that all say the same: nothing is taken off as a bias."""
    S = geometry.squared[None]
    return replace(geometry, replicates=S.repeat(2, axis=0), halves=S)


def drawn(shape, estimator="debiased", positions=16, documents=20_000):
    corpus = SyntheticCorpus(shape, positions, 300, documents, shortening=0.3)
    return estimate_geometry(draw_counts(corpus), estimator)


@pytest.fixture(scope="module")
def mixture():
    return drawn("mixture")


@pytest.fixture(scope="module")
def digits():
    return estimate_geometry(count_positions("digits", "ids"))


@pytest.fixture(scope="module")
def found(mixture):
    return gains(mixture, all_families(mixture), DIM, held_out=True).set_index("encoding")


def test_the_stresses_are_those_of_the_scores(mixture, found):
    specs = [*found.index, *found["beside"][found["beside"] != ""]]
    scores = score_encodings(mixture, dict.fromkeys(specs), DIM).set_index("encoding")
    for column in ("stress", "stress_se", "parameters"):
        np.testing.assert_allclose(found[column], scores.loc[found.index, column])
    beside = found[found["beside"] != ""]
    np.testing.assert_allclose(beside["stress_beside"], scores.loc[beside["beside"], "stress"])


def differences(encodings, geometry, squares):
    """Stress of the second less that of the first, by the formula, for each of some squares."""
    i, j = np.triu_indices(geometry.n_positions, 1)
    both = [encoding.distances(geometry.index)[i, j] for encoding in encodings]
    answer = []
    for S in squares:
        s = S[i, j]
        D = np.where(s < 0, -1, 1) * np.sqrt(np.abs(s))
        ours, theirs = (1 - (δ * D).sum() ** 2 / ((δ**2).sum() * s.sum()) for δ in both)
        answer.append(theirs - ours)
    return np.array(answer)


def test_the_gain_of_a_fit_is_the_corrected_difference_with_its_error(mixture, found):
    row = found.loc["fitted-kerple"]
    both = make_encoding(row["spec"]), make_encoding("kerple")
    each = differences(both, mixture, mixture.replicates)
    bias = differences(both, mixture, mixture.halves).mean()
    bias -= (plain := differences(both, mixture, [mixture.squared])[0])
    K = len(each)
    se = np.sqrt((K - 1) / K * ((each - each.mean()) ** 2).sum())
    half = student.ppf(0.975, K - 1) * np.sqrt(se**2 + bias**2)
    assert row["gain"] == pytest.approx(plain - bias, abs=1e-12)
    assert row["gain_se"] == pytest.approx(se)
    assert row["gain_low"] == pytest.approx(plain - bias - half, abs=1e-12)
    assert row["gain_high"] == pytest.approx(plain - bias + half, abs=1e-12)
    assert abs(bias) > 1e-9  # or the test could not see the correction


def test_the_gain_of_a_table_is_that_of_the_sample(mixture, found):
    row = found.loc["stress:rank=2"]
    X = classical_coordinates(mixture, 2)
    assert row["stress_beside"] == pytest.approx(1 - alignment(cdist(X, X), mixture))
    assert row["gain"] == pytest.approx(row["stress_beside"] - row["stress"], abs=1e-12)
    assert row["gain"] >= 0


def alignment(δ, geometry):
    """(Σ δD)² / (Σ δ² Σ D²) with signed distances."""
    s = geometry.squared
    D = np.sign(s) * np.sqrt(np.abs(s))
    return (δ * D).sum() ** 2 / ((δ**2).sum() * s.sum())


def test_a_design_stands_beside_the_best_of_its_counterparts(mixture):
    others = ("rope:base=2", "rope", "rope:base=3")
    row = gains(mixture, [Candidate("fitted-rope", others)], DIM).iloc[0]
    scores = score_encodings(mixture, others, DIM)
    assert row["beside"] == scores.loc[scores["stress"].idxmin(), "encoding"]
    assert row["stress_beside"] == scores["stress"].min()


@pytest.mark.parametrize("shape", ["blocks", "line", "decay", "periodic", "circle"])
@pytest.mark.parametrize("estimator", ["truth", "plugin", "debiased"])
def test_nothing_is_below_its_floor_nor_worse_than_what_it_is_to_better(shape, estimator):
    if estimator == "truth":
        geometry = true_geometry(SyntheticCorpus(shape, 16, 300).profiles)
    else:
        geometry = drawn(shape, estimator)
    rows = gains(uncorrected(geometry), all_families(geometry), DIM)
    assert (rows["stress"] >= rows["floor_found"] - 1e-9).all()
    assert (rows["floor_found"] >= rows["floor"] - 1e-9).all()
    rows = gains(geometry, all_families(geometry), DIM)
    assert (rows["gain"].dropna() >= -1e-9).all()


def floor_by_hand(geometry, places):
    """1 − Σ_k n_k D̄(k)² / Σ D² over the offsets k between places on a line."""
    s = geometry.squared
    D, offset = np.sign(s) * np.sqrt(np.abs(s)), np.abs(np.subtract.outer(places, places))
    kept = sum((offset == k).sum() * D[offset == k].mean() ** 2 for k in set(offset.ravel()) - {0})
    return 1 - kept / s.sum()


def test_nothing_is_below_its_floor_on_a_grid(digits):
    geometry = uncorrected(digits)
    rows = gains(geometry, all_families(geometry), DIM).set_index("encoding")
    assert (rows["stress"] >= rows["floor"] - 1e-9).all()
    width = 2 * 8  # wide enough that rows and columns of an offset stay apart in one number
    axial = floor_by_hand(geometry, geometry.positions @ [width, 1])
    flat = floor_by_hand(geometry, geometry.index)
    assert rows.loc["fitted-axial", "floor"] == pytest.approx(axial)
    assert rows.loc["fitted-rope", "floor"] == pytest.approx(flat)
    assert axial < flat - 0.005


def test_the_floor_of_a_table_is_the_one_proved_of_its_rank(mixture, found):
    for encoding in ("mds:rank=2", "stress:rank=2"):
        assert found.loc[encoding, "floor"] == proved_floors(mixture, 2)[-1]
    pair = found.loc[["stress:rank=2", "mds:rank=2"], "floor_found"]
    assert pair.iloc[0] == pytest.approx(pair.iloc[1])
    assert pair.iloc[0] <= found.loc["stress:rank=2", "stress"]
    # One-hot rows on a line: a ninth is the least, and it is proved
    triangle = true_geometry(np.eye(3))
    row = gains(triangle, [Candidate("stress:rank=1")], DIM).iloc[0]
    assert row["floor"] == pytest.approx(1 / 9)
    assert row["floor_found"] == pytest.approx(1 / 9, abs=1e-6)


def test_the_least_found_by_offset_is_what_a_bucket_for_each_offset_has(mixture, found):
    (row,) = gains(mixture, [Candidate("fitted-t5:buckets=128")], DIM).to_dict("records")
    assert row["floor_found"] == pytest.approx(row["stress"], abs=1e-12)
    assert row["floor_found"] == found.loc["fitted-rope", "floor_found"]
    # corrected for the bias of one encoding, where the floor is for that of the best of all
    assert row["floor_found"] != row["floor"]


def test_a_fit_can_be_carried_away_as_its_spec(mixture, found):
    x = mixture.index
    for encoding, spec in found["spec"].items():
        table = encoding.startswith(("mds", "stress"))
        assert (spec == "") == table
        if not table:
            (score,) = score_encodings(mixture, [spec], DIM)["stress"]
            assert score == pytest.approx(found.loc[encoding, "stress"])
            assert make_encoding(spec).distances(x).shape == (len(x), len(x))


def test_what_is_held_out_was_not_seen(mixture, found):
    """Only the first three quarters have a say in what is judged on the last."""
    n, a = mixture.n_positions, 12
    touched = np.maximum.outer(np.arange(n), np.arange(n)) >= a
    plain = uncorrected(mixture)
    rows = gains(plain, all_families(plain), DIM, held_out=True).set_index("encoding")
    beside = rows.loc["fitted-kerple", "held_out_beside"]
    δ = make_encoding("kerple").distances(mixture.index)
    assert beside == pytest.approx(1 - alignment(δ * touched, masked(plain, touched)))
    first = gains(plain.at(np.arange(a)), [Candidate("fitted-kerple")], DIM).iloc[0]
    δ = make_encoding(first["spec"]).distances(mixture.index)
    expected = 1 - alignment(δ * touched, masked(plain, touched))
    assert rows.loc["fitted-kerple", "held_out"] == pytest.approx(expected)
    assert found.loc["fitted-rope", "held_out_beside"] == pytest.approx(
        held_out_stress(mixture, lambda _: make_encoding(f"rope:dim={DIM}")).value
    )


def masked(geometry, touched):
    return replace(geometry, squared=geometry.squared * touched)


def test_tables_are_carried_on_without_counts_by_the_better_way(mixture, found):
    X = classical_coordinates(mixture, 2)
    ways = extend(mixture, X, mixture.index[-1] + 1).held_out
    row = found.loc["mds:rank=2"]
    least = min(("harmonic", "interpolation"), key=lambda name: ways[name].value)
    assert row["extension"] == least
    assert row["held_out"] == pytest.approx(ways[least].value, rel=1e-6)
    assert row["held_out_se"] == pytest.approx(ways[least].se, rel=1e-6)
    assert (found.loc["fitted-rope":, "extension"] == "").all()


def test_an_extension_that_is_exact_costs_nothing():
    circle = true_geometry(SyntheticCorpus("circle", 16, 300).profiles)
    rows = gains(circle, [Candidate("mds:rank=15", ())], DIM, held_out=True)
    assert rows["held_out"].iloc[0] < 0.02


def test_what_cannot_be_hidden_is_left_open(digits):
    short = true_geometry(SyntheticCorpus("mixture", 7, 300).profiles)
    rows = gains(short, all_families(short), DIM, held_out=True)
    assert rows["held_out"].isna().all()
    rows = gains(digits, [Candidate("mds:rank=2"), Candidate("fitted-base")], DIM, held_out=True)
    assert rows["held_out"].isna().tolist() == [True, False]


def test_positions_that_are_all_alike_say_nothing_of_the_hidden_ones():
    P = np.zeros((16, 5))
    P[:12, 0], P[range(12, 16), range(1, 5)] = 1, 1
    late = true_geometry(P)
    rows = gains(late, all_families(late), DIM, held_out=True)
    assert rows["held_out"].isna().all()
    assert rows["stress"].notna().all()


def test_a_table_without_a_candidate_has_its_columns(mixture):
    assert list(gains(mixture, [], DIM).columns) == list(COLUMNS)
    assert list(gains(mixture, [], DIM, held_out=True).columns) == [*COLUMNS, *HELD_OUT_COLUMNS]


def test_positions_left_out_do_not_shift_the_others():
    mixture = true_geometry(SyntheticCorpus("mixture", 16, 300).profiles)
    some = mixture.at(np.r_[0:4, 6:16])
    rows = gains(some, all_families(some), DIM, held_out=True)
    assert np.isfinite(rows[["stress", "floor", "held_out"]]).all(axis=None)
    kerple = rows[rows["encoding"] == "fitted-kerple"].iloc[0]
    δ = make_encoding(kerple["spec"]).distances(some.index)
    assert kerple["stress"] == pytest.approx(stress(δ, some.distances))


def test_a_corpus_without_structure_is_refused():
    with pytest.raises(PosgeomError, match="not distinguishable"):
        gains(drawn("none"), [Candidate("fitted-rope")], DIM)


def test_equal_calls_give_equal_tables(mixture):
    candidates = family_candidates(["stress", "rope"], rank=3, dim=DIM)
    first, second = (gains(mixture, candidates, DIM) for _ in range(2))
    assert first.equals(second)


def test_gains_that_noise_hides_are_not_told(mixture):
    S = mixture.squared
    hidden = replace(mixture, halves=np.stack([S, S - S.sum()]))  # a half that sums to less than 0
    known = [Candidate("fitted-t5", ("t5",)), Candidate("fitted-rope", ("rope",))]
    table = gains(hidden, known, DIM)
    assert table["gain"].isna().all()
    (told,) = gain_sentences(table)
    assert "cannot be told" in told
    assert "plug-in" not in told
    assert "nan" not in told
