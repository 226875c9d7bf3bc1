"""The sweep over conventions: each cell by another road, and claims counted by hand."""

import base64
import gzip
import io
import re

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist

from posgeom import count_positions, estimate_geometry, make_encoding, score_encodings
from posgeom.inference import condensed
from posgeom.paper.claims import FIGURES, Figure
from posgeom.paper.conventions import (
    COLUMNS,
    DIMS,
    DISTANCES,
    Counted,
    cases,
    known_encodings,
    low_rank_at,
    sweep,
    wide,
    with_padding,
)
from posgeom.paper.conventions_claims import FACTORS, all_claims, near_conventions
from posgeom.paper.scales import SCALES
from posgeom.paper.sweep_html import sweep_html

DECAY = "synthetic:shape=decay,documents=3000,vocabulary=300,positions=12,shortening=0.9"
ALIBI = {"alibi": Figure("stress of ALiBi", 0.5, "a table", "a corpus")}


@pytest.fixture(scope="module")
def counted():
    return [Counted("documents", "ids", count_positions(DECAY, positions=2, up_to=64))]


@pytest.fixture(scope="module")
def table(counted):
    return sweep(list(cases(counted, [8, 20])), ALIBI)


def rows(table, **wanted):
    for name, value in wanted.items():
        table = table[table[name] == value]
    return table


# -- padding --------------------------------------------------------------------------------------


def test_padding_is_what_padding_the_documents_makes():
    documents = [[0, 1, 2], [1], [2, 2, 0, 1, 1], [0, 0], [1, 2, 2, 0]]
    n, pad = 6, 3
    padded = [(d + [pad] * n)[:n] for d in documents]
    ours = with_padding(wide(count_positions(documents, positions=2, up_to=n), n))
    theirs = count_positions(padded, positions=n)
    np.testing.assert_array_equal(ours.pooled.toarray(), theirs.pooled.toarray())
    np.testing.assert_array_equal(ours.totals, len(documents))


def test_a_padded_vocabulary_names_its_new_token(counted):
    words = count_positions(["a b c", "a c", "b a a c"], "words", positions=2, up_to=4)
    assert with_padding(words).vocabulary[-1] == "[PAD]"
    assert with_padding(words).vocab_size == words.vocab_size + 1
    assert with_padding(counted[0].counts).vocabulary is None


def test_lengths_that_no_document_reaches_are_padded_only(counted):
    found = [(case.n, case.padding) for case in cases(counted, [8, 20])]
    assert found == [(8, "no"), (8, "yes"), (20, "yes")]
    assert all(case.fewest > 0 for case in cases(counted, [8]))


# -- cells ----------------------------------------------------------------------------------------


def test_cells_are_those_of_score_encodings(table):
    geometry = estimate_geometry(count_positions(DECAY, positions=8), "plugin")
    specs = ["sinusoidal:dim=128", "rope:dim=64", "alibi", "alibi:reading=kernel", "mds:rank=3"]
    scored = score_encodings(geometry, specs).set_index("encoding")
    plain = rows(table, n=8, padding="no", distance="chord")
    same = {
        "sinusoidal:dim=128": rows(plain, encoding="sinusoidal", dim=128),
        "rope:dim=64": rows(plain, encoding="rope", dim=64),
        "alibi": rows(plain, variant="linear: 8 heads"),
        "alibi:reading=kernel": rows(plain, variant="kernel: 8 heads"),
        "mds:rank=3": rows(plain, variant="rank 3"),
    }
    for spec, row in same.items():
        assert row["raw"].item() == pytest.approx(scored.loc[spec, "stress_raw"])
        assert row["optimal"].item() == pytest.approx(scored.loc[spec, "stress"])


@pytest.mark.parametrize(
    ("variant", "slope"),
    [
        ("linear: 1", 1.0),
        ("linear: 1/(n−1)", 1 / 7),
        ("linear: flattest of 8", 2.0**-8),
        ("linear: mean of 8", np.mean(2.0 ** -np.arange(1, 9))),
        ("linear: 8 heads", np.sqrt(np.sum(4.0 ** -np.arange(1, 9)))),
    ],
)
@pytest.mark.parametrize("distance", ["chord", "chord/√2", "geodesic"])
def test_alibi_by_hand(table, variant, slope, distance):
    P = count_positions(DECAY, positions=8).pooled.toarray().astype(float)
    R = np.sqrt(P / P.sum(axis=1, keepdims=True))
    chord = pdist(R)
    D = {
        "chord": chord,
        "chord/√2": chord / np.sqrt(2),
        "geodesic": 2 * np.arccos(1 - chord**2 / 2),
    }
    δ = slope * pdist(np.arange(8.0)[:, None])
    own = rows(table, n=8, padding="no", distance=distance, variant=variant)["raw"].item()
    assert own == pytest.approx(((δ - D[distance]) ** 2).sum() / (D[distance] ** 2).sum())


def test_what_changes_nothing_is_left_empty(table):
    halved = rows(table, distance="chord/√2")
    assert halved[["max", "rms", "optimal"]].isna().all(axis=None)
    assert not (halved["encoding"] == "mds").any()
    alibi = rows(table, encoding="alibi", distance="chord")
    assert alibi["raw"].notna().all()
    own = alibi[alibi["variant"].str.startswith("linear")]
    assert own["optimal"].notna().sum() == (own["variant"] == "linear: 8 heads").sum()
    assert (table[list(SCALES)].min() >= 0).all()


def test_encodings_do_not_look_at_the_corpus():
    assert {each.encoding for each in known_encodings(8)} == {
        "sinusoidal",
        "rope",
        "random",
        "alibi",
    }


@pytest.mark.parametrize(("n", "dim", "rank"), [(32, 768, 3), (32, 128, 2), (128, 128, 6)])
def test_the_rank_that_saves_nine_tenths_is_the_largest(n, dim, rank):
    assert low_rank_at(n, dim) == rank
    assert rank * (n + dim) <= 0.1 * n * dim < (rank + 1) * (n + dim)


def test_near_cells_are_those_within_five_percent(table):
    near = near_conventions(table)
    alibi = table[table["encoding"] == "alibi"][list(SCALES)].to_numpy(float)
    assert len(near) == (np.abs(alibi / 0.5 - 1) <= 0.05).sum()
    assert len(near)
    assert (np.abs(near["stress"] / 0.5 - 1) <= 0.05).all()


METRICS = {"chord": "hellinger", "chord/√2": "hellinger-normalised", "geodesic": "fisher-rao"}


@pytest.fixture(scope="module")
def debiased(counted):
    (case, _) = cases(counted, [8])
    return sweep([case], ALIBI, "debiased")


@pytest.mark.parametrize("distance", METRICS)
def test_the_debiased_sweep_is_that_of_the_debiased_scores(debiased, distance):
    """Each distance as estimate_geometry makes it by itself."""
    geometry = estimate_geometry(count_positions(DECAY, positions=8), metric=METRICS[distance])
    specs = ["sinusoidal:dim=128", "alibi", "mds:rank=3"]
    scored = score_encodings(geometry, specs).set_index("encoding")
    own = rows(debiased, distance=distance)
    same = {
        "sinusoidal:dim=128": rows(own, encoding="sinusoidal", dim=128),
        "alibi": rows(own, variant="linear: 8 heads"),
        "mds:rank=3": rows(own, variant="rank 3"),
    }
    if distance == "chord/√2":  # the stress of MDS is that of the chord
        assert same.pop("mds:rank=3").empty
    for spec, row in same.items():
        assert row["raw"].item() == pytest.approx(scored.loc[spec, "stress_raw"])
        if distance != "chord/√2":
            assert row["optimal"].item() == pytest.approx(scored.loc[spec, "stress"])


def test_claims_are_held_against_each_debiased_distance(debiased):
    held = {each.claim: each for each in all_claims(debiased)}
    assert set(held["alibi"].table["distance"]) == set(METRICS)
    assert set(held["optimal"].table["distance"]) == {"chord", "geodesic"}
    for each in held.values():
        assert each.number
        assert sum(each.shares()["distance", d][1] for d in each.table["distance"].unique()) == (
            each.number
        )


def test_a_corpus_without_structure_has_no_debiased_cells():
    counts = count_positions("synthetic:shape=none,documents=2000,seed=1", positions=8)
    every = list(cases([Counted("documents", "ids", counts)], [8]))[:1]
    table = sweep(every, ALIBI, "debiased")
    assert list(table.columns) == list(COLUMNS)
    assert table.empty


# -- claims ---------------------------------------------------------------------------------------


def test_claims_counted_one_by_one(table):
    held = {each.claim: each for each in all_claims(table)}
    number = holding = 0
    ones = low = alike = 0
    keys = ["text", "tokens", "padding", "n", "distance"]
    for _, case in table.groupby(keys):
        rope = case[(case["encoding"] == "rope") & (case["dim"] == 64)].iloc[0]
        for _, sinusoid in case[case["encoding"] == "sinusoidal"].iterrows():
            for scale in SCALES:
                if np.isnan(sinusoid[scale]):
                    continue
                alike += abs(rope[scale] / sinusoid[scale] - 1) <= 0.05
                for _, alibi in case[case["encoding"] == "alibi"].iterrows():
                    x = alibi["raw" if scale in ("unit", "per-dim") else scale]
                    if not np.isnan(x):
                        number += 1
                        holding += x <= 0.5 * min(sinusoid[scale], rope[scale])
        for _, mds in case[case["encoding"] == "mds"].iterrows():
            ones += mds["variant"] == "rank 1" and mds["raw"] <= 0.05
            n = int(mds["n"])
            wanted = [low_rank_at(n, d) for d in DIMS]
            low += sum(mds["variant"] == f"rank {r}" for r in wanted) * (mds["raw"] <= 0.01)
    assert (held["alibi"].number, held["alibi"].holding) == (number, holding)
    assert held["alike"].holding == alike
    assert held["rank-one"].holding == ones
    assert held["low-rank"].holding == low
    for each in held.values():
        shares = each.shares()
        for factor in FACTORS:
            cells = [found for (name, _), found in shares.items() if name == factor]
            if cells:
                assert np.sum(cells, axis=0).tolist() == [each.holding, each.number]


def test_verdicts_say_all_some_and_none(table):
    held = all_claims(table)[0]
    for holds, says in ((True, "holds under all"), (False, "holds under none")):
        same = type(held)(held.claim, held.means, held.table.assign(holds=holds))
        assert same.verdict.startswith(says)
    assert type(held)("x", "y", held.table.head(0)).verdict == "could not be tried"


# -- the page -------------------------------------------------------------------------------------


def test_the_page_holds_the_rows_and_asks_no_network(table):
    page = sweep_html(table, "A <corpus>", ALIBI)
    assert "A &lt;corpus&gt;" in page
    assert not re.search(r"https?://|<link|src=", page)
    data = re.search(r'id="data">([^<]+)<', page).group(1)
    held = pd.read_csv(io.BytesIO(gzip.decompress(base64.b64decode(data))), keep_default_na=False)
    assert list(held.columns) == list(table.columns)
    assert len(held) == len(table)
    assert held["near"].tolist() == table["near"].tolist()
    np.testing.assert_allclose(
        pd.to_numeric(held["raw"]).to_numpy(), table["raw"].to_numpy(), rtol=1e-3, atol=1e-12
    )
    assert page == sweep_html(table, "A <corpus>", ALIBI)


def test_no_value_of_the_table_breaks_a_line_of_csv(table):
    text = table.select_dtypes(exclude="number")
    assert not text.map(lambda value: "," in str(value) or '"' in str(value)).any(axis=None)


def test_distances_are_functions_of_the_chord():
    s = condensed(estimate_geometry(count_positions(DECAY, positions=8), "plugin").squared)
    assert DISTANCES["chord"](s) is s
    np.testing.assert_allclose(DISTANCES["chord/√2"](s), s / 2)
    np.testing.assert_allclose(np.sqrt(DISTANCES["geodesic"](s)), 2 * np.arccos(1 - s / 2))


def test_the_papers_figures_are_known():
    assert FIGURES["sst2-alibi"].value == 0.563
    assert FIGURES["imdb-alibi"].value == 3.051
    assert make_encoding("alibi").slopes[0] == 0.5
