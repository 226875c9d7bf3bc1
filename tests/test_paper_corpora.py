"""The tables of a real corpus: errors by another road, and what the page says of the paper."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from posgeom import count_positions, estimate_geometry, score_encodings
from posgeom.errors import PosgeomError
from posgeom.paper import corpora
from posgeom.paper.corpora import FILES, bert_tokenizer, learned_specs, reproduce_corpus
from posgeom.paper.corpora_tables import Pair, encodings_table, ranks_table
from posgeom.paper.page import QUICK

N, DIM = 8, 16


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A table of 10 rows and one of 4, which is too short."""
    folder = tmp_path_factory.mktemp("learned")
    rng = np.random.default_rng(0)
    for name, rows in (("long", 10), ("short", 4)):
        np.save(folder / f"{name}.npy", rng.standard_normal((rows, 6)).astype(np.float32))
    return {name: f"learned:{folder / name}.npy" for name in ("long", "short")}


@pytest.fixture(scope="module")
def counts(text_file):
    return count_positions(text_file, "words", N)


@pytest.fixture(scope="module")
def pair(counts):
    return Pair.of(counts)


@pytest.fixture(scope="module")
def table(pair, learned):
    return encodings_table(pair, learned, DIM).set_index("encoding")


@pytest.fixture
def words_for_bert(monkeypatch):
    """Words in the place of BERT's tokens, which not every machine has."""
    monkeypatch.setattr(corpora, "bert_tokenizer", lambda: "words")
    monkeypatch.delenv("POSGEOM_DATA", raising=False)


@pytest.fixture
def report(text_file, learned, words_for_bert):
    return reproduce_corpus(
        str(text_file), "SST-2", N, [N], [N], dim=DIM, learned=[learned["long"]], quick=True
    )


def test_stresses_are_those_of_the_scores(counts, table):
    specs = ["sinusoidal", "rope", "alibi", "alibi:reading=kernel", "binary", "none"]
    for estimator in ("plugin", "debiased"):
        scored = score_encodings(estimate_geometry(counts, estimator), specs, DIM)
        for row in scored.to_dict("records"):
            own = table.loc[row["encoding"]]
            assert own[f"{estimator}_stress"] == pytest.approx(row["stress"])
            assert own[f"{estimator}_raw"] == pytest.approx(row["stress_raw"])
            if estimator == "debiased":
                assert own["debiased_stress_se"] == pytest.approx(row["stress_se"])
                assert own["debiased_stress_low"] == pytest.approx(row["stress_low"])


def test_plugin_errors_are_those_of_leaving_folds_out(counts, table):
    K = counts.n_folds
    C = counts.counts.toarray().reshape(K, N, -1).astype(float)
    δ = np.abs(np.subtract.outer(np.arange(N), np.arange(N)))[np.triu_indices(N, 1)]

    def scale_free(C):
        d = pdist(np.sqrt(C / C.sum(axis=1, keepdims=True)))
        return 1 - (δ @ d) ** 2 / ((δ @ δ) * (d @ d))

    without = np.array([scale_free(C.sum(axis=0) - C[k]) for k in range(K)])
    se = np.sqrt((K - 1) / K * ((without - without.mean()) ** 2).sum())
    assert table.loc["index", "plugin_stress"] == pytest.approx(scale_free(C.sum(axis=0)))
    assert table.loc["index", "plugin_stress_se"] == pytest.approx(se)


def test_learned_tables_are_there_where_they_reach(table):
    assert "long" in table.index
    assert "short" not in table.index
    assert table.loc["long", "parameters"] == 10 * 6


def test_rows_of_length_one_only_where_there_are_rows(table):
    assert table.loc[["alibi", "index", "none"], "plugin_unit"].isna().all()
    assert table.loc[["sinusoidal", "rope", "random", "long"], "plugin_unit"].notna().all()
    assert table.loc["rope", "plugin_unit"] == pytest.approx(table.loc["sinusoidal", "plugin_unit"])


def test_ranks_end_where_all_is_kept(pair):
    ranks = ranks_table(pair, DIM)
    assert ranks["rank"].tolist() == list(range(1, N))
    assert ranks["parameters"].tolist() == [r * (N + DIM) for r in range(1, N)]
    assert ranks["plugin_raw"].iloc[-1] == pytest.approx(0, abs=1e-9)
    assert ranks["plugin_raw"].is_monotonic_decreasing


def test_intervals_hold_their_estimates(table):
    for name in ("plugin_stress", "plugin_raw", "debiased_stress", "debiased_raw"):
        known = table[table[f"{name}_low"].notna()]
        assert len(known) > 10
        assert (known[f"{name}_low"] <= known[name]).all()
        assert (known[name] <= known[f"{name}_high"]).all()


def test_the_page_names_what_a_reader_looks_for(report):
    page = report.markdown()
    for says in (
        "0.563",
        "Eq. 4",
        "Remark 8",
        "Proposition 6",
        "BERT-base's own table",
        "abstract",
        f"debiased: n = {N} ",
    ):
        assert says in page
    assert "6,920" not in page
    assert "240 documents" in page


def test_a_folder_holds_what_it_says_and_no_paths_of_this_machine(report, tmp_path, text_file):
    out = report.save(tmp_path / "sst2")
    assert {file.name for file in out.iterdir()} == set(FILES)
    for file in ("report.md", "claims.csv", "sweep.csv", "sweep.html"):
        assert str(text_file.parent) not in (out / file).read_text()


def test_further_texts_that_are_not_there_are_named(text_file, words_for_bert, monkeypatch):
    monkeypatch.setattr(corpora, "TOKENS", {"bert": False})
    made = reproduce_corpus(
        str(text_file), "IMDB", N, [N], [N], dim=DIM, also={"phrases": "$NOWHERE/phrases.parquet"}
    )
    assert "Not at hand, and left out: phrases" in made.markdown()
    assert "3.051" in made.markdown()


def test_a_corpus_beside_is_held_against_both_figures(text_file, words_for_bert, monkeypatch):
    monkeypatch.setattr(corpora, "TOKENS", {"bert": False})
    counted = corpora._counts

    def lines(source, *rest):
        return counted(str(text_file), *rest)

    monkeypatch.setattr(corpora, "_counts", lines)
    made = reproduce_corpus("imdb", "IMDB", N, [N, 2 * N], [N], dim=DIM, beside="sst2")
    (joint,) = [j for j in made.judgements if "in one convention" in j.claim]
    assert joint.paper == "3.051 and 0.563"


@pytest.mark.parametrize(("name", "beside"), [("MNLI", None), ("IMDB", "mnli")])
def test_what_the_paper_has_no_table_of_is_refused(name, beside, text_file, words_for_bert):
    with pytest.raises(PosgeomError, match=r"is no (table|corpus) of the paper"):
        reproduce_corpus(str(text_file), name, N, [N], [N], beside=beside)


def test_a_bad_learned_table_is_told_before_anything_is_counted(
    text_file, words_for_bert, monkeypatch
):
    def never(*args, **options):
        raise AssertionError("counted in vain")

    monkeypatch.setattr(corpora, "count_positions", never)
    with pytest.raises(PosgeomError, match=r"nowhere\.npy is not a file"):
        reproduce_corpus(str(text_file), "SST-2", N, [N], [N], learned=["learned:nowhere.npy"])


def test_the_page_orders_the_encodings_by_their_stress(report):
    table = report.tables["encodings"].set_index("encoding")
    (short,) = (line for line in report.opening if line.startswith("In short"))
    plain, debiased = short.split("; once")
    for text, way in ((plain, "plugin"), (debiased, "debiased")):
        stress = table[f"{way}_stress"]
        first = text.index("sinusoidal and RoPE") < text.index("ALiBi")
        assert first == (stress["sinusoidal"] < stress["alibi"])
        assert stress["rope"] == pytest.approx(stress["sinusoidal"])


def test_a_quick_page_says_that_it_is_one(report):
    assert report.opening[0] == QUICK


def test_positions_that_do_not_differ_have_no_table():
    counts = count_positions("synthetic:shape=none,documents=2000,seed=1", positions=8)
    with pytest.raises(PosgeomError, match="do not differ beyond noise"):
        Pair.of(counts)


def test_data_is_found_below_the_folder_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("POSGEOM_DATA", raising=False)
    assert bert_tokenizer() == "hf:bert-base-uncased"
    assert learned_specs(["learned:x.npy"]) == {"learned:x.npy": "learned:x.npy"}
    for file in ("learned/gpt2-small-1024x768.npy", "tokenizers/bert-base-uncased/tokenizer.json"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    monkeypatch.setenv("POSGEOM_DATA", str(tmp_path))
    assert bert_tokenizer().startswith(str(tmp_path))
    assert list(learned_specs()) == ["GPT-2"]
