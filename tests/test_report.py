"""The report: every figure in words, one page that stands alone, and numbers that are right."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy.sparse import csr_array

from posgeom import plots
from posgeom.counting import count_positions
from posgeom.counts import PositionCounts, Provenance
from posgeom.design import Design, design
from posgeom.designers import low_rank
from posgeom.designers.extension import METHODS, Extension
from posgeom.diagnose import diagnose
from posgeom.errors import PosgeomError
from posgeom.geometry import Geometry, estimate_geometry
from posgeom.inference import Estimate, jackknife
from posgeom.mds import classical_mds
from posgeom.report import (
    Diagnosed,
    Drawn,
    check_diagnosis_out,
    diagnosis,
    evidence,
    render,
    write_diagnosis,
    write_report,
)
from posgeom.report.designs import (
    cost_sentences,
    designs,
    extension_sentence,
    gain_sentences,
)
from posgeom.report.figures import PLUGIN_FIGURES as FIGURES
from posgeom.report.figures import figures_of
from posgeom.report.html import plugin_caution, report_html, summary
from posgeom.report.words import by_stress, interval, number, with_error
from posgeom.scoring import score_encodings
from posgeom.stress import pairs

KNOWN = ("sinusoidal", "rope", "alibi:heads=8", "random")


def between_rows(X):
    return np.linalg.norm(X[:, None] - X[None], axis=2)


def smooth_rows(n, grid=None):
    """Root profiles of a mixture of three sources that drifts along the positions."""
    t = np.arange(n) / max(1, n - 1)
    if grid:
        t = (np.add.outer(np.arange(grid[0]) ** 2, np.arange(grid[1])) / grid[0] ** 2).ravel()
    weights = np.stack([np.exp(-(((t - c) / 0.3) ** 2)) for c in (0.0, 0.45, 1.0)], axis=1)
    sources = np.random.default_rng(1).dirichlet(np.full(60, 0.3), size=3)
    return np.sqrt(weights / weights.sum(axis=1, keepdims=True) @ sources)


def made(n=32, grid=None, dim=64, rank=3, D=None, title="a corpus", notes=(), encodings=KNOWN):
    """A design for known distances."""
    n = grid[0] * grid[1] if grid else n
    D = between_rows(smooth_rows(n, grid)) if D is None else D
    index = np.arange(n)
    geometry = Geometry(
        squared=D**2,
        totals=np.maximum(5, (9000 * np.exp(-index / 12)).astype(int)),
        positions=np.stack(np.unravel_index(index, grid), axis=1) if grid else index,
        grid=grid,
        notes=notes,
    )
    return Design(
        counts=PositionCounts(
            counts=csr_array(np.ones((n, 60), dtype=np.int64)),
            n_folds=1,
            documents=np.array([9000]),
            grid=grid,
            provenance=Provenance(sources=(title,), documents=9000, tokenizer="words"),
        ),
        geometry=geometry,
        low_rank=low_rank(classical_mds(D).coordinates, rank, dim),
        scores=score_encodings(geometry, [*encodings, "mds", f"mds:rank={rank}"], dim),
        settings={
            "source": title,
            "positions": n,
            "dim": dim,
            "family": ["mds"],
            "rank": rank,
            "heads": 8,
            "seed": 0,
        },
        provenance={"command": ["posgeom", "design", title], "versions": {"numpy": "2.0"}},
    )


def with_geometry(design, **changes):
    return replace(design, geometry=replace(design.geometry, **changes))


def spec(name, figures=FIGURES):
    return next(spec for spec in figures if spec.name == name)


LINE = np.abs(np.subtract.outer(np.arange(16.0), np.arange(16.0)))
MANY = [f"{family}:base={10**k}" for family in ("sinusoidal", "rope") for k in range(2, 6)]
CASES = {
    "usual": {},
    "two positions": {"n": 2, "rank": 1},
    "grid": {"grid": (8, 8)},
    "rank 1": {"rank": 1},
    "constant distances": {"D": 0.8 * (1 - np.eye(12)), "n": 12, "rank": 11},
    "fifteen encodings": {"encodings": [*KNOWN, *MANY, "alibi:reading=kernel"]},
    "curved": {"D": LINE**2, "n": 16},
    "three hundred": {"n": 300},
}


def draw(spec, design):
    """The figure, laid out but not saved, and its words."""
    with plots.style():
        figure = Figure(figsize=spec.size, layout=None if spec.margins else "constrained")
        words = spec.draw(design, figure)
        figure.draw_without_rendering()
    return figure, words


@pytest.fixture(scope="module", params=CASES, ids=lambda name: name.replace(" ", "-"))
def case(request):
    """A design and its figures by name, each drawn and in words."""
    design = made(**CASES[request.param])
    return design, {spec.name: draw(spec, design) for spec in FIGURES}


class Page(HTMLParser):
    """Collects tags with their attributes, text, and what was opened and not closed."""

    VOID = ("meta", "img", "wbr")

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self.open = [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def page_of(design, figures=None):
    drawn = [render(FIGURES[0], design)]
    if figures:
        drawn = [
            Drawn(s.name, s.title, 900, s.embed, figures[s.name][1], b"<svg/>", b"png")
            for s in figures_of(design)
        ]
    html = report_html(design, drawn)
    return html, Page(html)


# -- every figure, for every kind of design -------------------------------------------------------


def test_every_figure_says_how_to_read_it_and_what_it_shows(case):
    _, figures = case
    assert len(figures) == len(FIGURES) >= 9
    for _, words in figures.values():
        assert len(words.caption) > 80
        assert re.search(r"\d", words.alt)
        assert "nan" not in words.alt + words.caption


def test_the_page_is_well_formed_and_stands_alone(case):
    design, figures = case
    html, page = page_of(design, figures)
    assert page.open == []
    assert not page.all("script")
    assert not page.all("link")
    images = page.all("img")
    assert len(images) == len(FIGURES)
    assert all(image["src"].startswith("data:image/") and image["alt"] for image in images)
    assert "http://" not in html
    assert "https://" not in html
    assert "nan" not in re.sub(r'base64,[^"]*', "", html).lower().split()
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_the_matrix_shows_the_distances(case):
    design, figures = case
    (image,) = figures["distance_matrix"][0].axes[0].images
    shown, D = np.ma.filled(image.get_array(), 0), design.geometry.distances
    np.testing.assert_array_equal(shown, D)
    low, high = image.get_clim()
    assert low <= pairs(D).min()
    assert high == pairs(D).max()


def test_the_bars_are_the_stresses_in_order(case):
    design, figures = case
    ax = figures["stress_by_encoding"][0].axes[0]
    bars = sorted((bar.get_y(), bar.get_width()) for bar in ax.patches)
    np.testing.assert_allclose([w for _, w in bars], np.sort(design.scores["stress"]), atol=1e-12)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == by_stress(design)["encoding"].tolist()
    assert [x for x, _ in ax.lines[0].get_path().vertices] == [design.floor.value] * 2


def test_mean_distance_by_offset_and_its_curves(case):
    design, figures = case
    lines = {line.get_label(): line for line in figures["distance_by_offset"][0].axes[0].lines}
    offset, mean = lines.pop("corpus, mean").get_data()
    D, cells = (
        design.geometry.distances,
        design.geometry.positions.reshape(len(design.geometry.index), -1),
    )
    apart = between_rows(cells.astype(float))
    for k in (0, len(offset) // 2, -1):
        assert mean[k] == pytest.approx(D[np.isclose(apart, offset[k])].mean())
    # Two positions have one distance, which every encoding can be scaled to: one curve.
    alibi = next(line for label, line in lines.items() if "alibi:heads" in label or len(D) == 2)
    if not design.geometry.grid:
        scale = design.scores.set_index("encoding").loc["alibi:heads=8", "scale"]
        from_first = design.encodings["alibi:heads=8"].distances(design.geometry.index)[0]
        np.testing.assert_allclose(alibi.get_ydata(), scale * from_first[1:], rtol=0.02)


def test_the_map_shows_the_first_two_coordinates(case):
    design, figures = case
    ax = figures["trajectory"][0].axes[0]
    xy = np.asarray(ax.collections[-1].get_offsets())
    P = design.mds.coordinates
    np.testing.assert_array_equal(xy[:, 0], P[:, 0])
    assert not xy[:, 1].any() if P.shape[1] == 1 else np.array_equal(xy[:, 1], P[:, 1])
    n_lines = len(ax.collections[0].get_segments())
    assert n_lines == (112 if design.geometry.grid else len(P) - 1)


def test_the_heat_map_is_the_table(case):
    design, figures = case
    (image,) = figures["heat_map"][0].axes[0].images
    np.testing.assert_array_equal(image.get_array(), design.low_rank.table())
    low, high = image.get_clim()
    assert low == -high


def test_shepard_panels_show_the_scaled_distances(case):
    design, figures = case
    axes = [ax for ax in figures["shepard"][0].axes if ax.collections and ax.get_title(loc="left")]
    assert len(axes) == 6
    scores, D = design.scores.set_index("encoding"), pairs(design.geometry.distances)
    for ax in axes:
        name = ax.get_title(loc="left").split("\n")[0]
        xy = np.asarray(ax.collections[0].get_offsets())
        assert len(xy) == min(len(D), 6_000)
        if name in scores.index:
            left = ((xy[:, 1] - xy[:, 0]) ** 2).sum() / (xy[:, 0] ** 2).sum()
            assert left == pytest.approx(scores.loc[name, "stress"], rel=0.15, abs=1e-9)


# -- single figures -------------------------------------------------------------------------------


def test_negative_eigenvalues_are_drawn():
    design = made(**CASES["curved"])
    figure, words = draw(spec("spectrum"), design)
    drawn = {line.get_label(): line.get_ydata() for line in figure.axes[0].lines}
    negative = design.mds.eigenvalues[design.mds.eigenvalues < -1e-6 * design.mds.eigenvalues[0]]
    np.testing.assert_array_equal(drawn["negative (shown by size)"], -negative)
    assert f"{len(negative)} are negative" in words.alt


def test_positions_with_few_tokens_are_marked():
    design = made(80)
    figure, words = draw(spec("tokens_by_position"), design)
    marked = figure.axes[0].lines[1].get_xdata()
    np.testing.assert_array_equal(marked, np.flatnonzero(design.geometry.totals < 100))
    assert f"{len(marked)} of 80" in words.alt
    assert figure.axes[0].get_yscale() == "log"


def test_left_out_positions_keep_their_numbers():
    # The scores would need new distances; these figures do not show them.
    design = with_geometry(made(12), positions=np.array([*range(6), *range(20, 26)]))
    figure, _ = draw(spec("distance_matrix"), design)
    axis = figure.axes[0].xaxis
    assert axis.get_major_formatter()(6, None) == "20"
    figure, _ = draw(spec("distance_by_offset"), design)
    assert figure.axes[0].lines[0].get_xdata()[-1] == 25


def test_equal_designs_give_equal_bytes():
    for spec in FIGURES[:2]:
        a, b = render(spec, made()), render(spec, made())
        assert (a.svg, a.png, a.words) == (b.svg, b.png, b.words)


def test_drawing_leaves_no_global_state_behind():
    before = dict(matplotlib.rcParams)
    render(FIGURES[0], made())
    assert dict(matplotlib.rcParams) == before
    code = "import sys, posgeom.report; print([m for m in sys.modules if 'matplotlib' in m])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


# -- the page -------------------------------------------------------------------------------------


def test_write_report_leaves_the_page_and_both_forms_of_each_figure(tmp_path):
    page = write_report(made(n=24), tmp_path / "run")
    assert page == tmp_path / "run" / "report.html"
    names = sorted(path.name for path in (tmp_path / "run" / "figures").iterdir())
    assert names == sorted(f"{s.name}.{form}" for s in FIGURES for form in ("svg", "png"))
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["figures", "report.html"]
    for path in (tmp_path / "run" / "figures").iterdir():
        start = path.read_bytes()[:8]
        assert start == (b"\x89PNG\r\n\x1a\n" if path.suffix == ".png" else b"<?xml ve")
    assert page.stat().st_size < 6e6
    Page(page.read_text(encoding="utf-8"))


def test_what_the_user_wrote_is_shown_and_not_run(tmp_path):
    hostile = '<script>alert(1)</script> & $x^2$ "quoted"'
    table = tmp_path / "<script>alert$2$ 文.npy"
    np.save(table, np.eye(8))
    names = [*KNOWN, f"learned:{table}"]
    html, page = page_of(made(8, title=hostile, notes=(hostile,), encodings=names))
    assert "<script" not in html
    assert not page.all("script")
    # Title (twice), source, corpus, command, note; and the table's name among the scores.
    assert "".join(page.text).count(hostile) == 6
    assert "".join(page.text).count(f"learned:{table}") >= 1


def test_scores_are_sorted_and_to_three_digits():
    design = made()
    _, page = page_of(design)
    cells = "".join(page.text).split("Scores")[1].split("Figures")[0]
    for value in design.scores["stress"]:
        assert number(value) in cells
    assert cells.index("mds") < cells.index("alibi") < cells.index("sinusoidal")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.04629, "0.0463"),
        (0.5, "0.500"),
        (1, "1.00"),
        (123.4, "123"),
        (1234.5, "1,234"),
        (-0.02, "−0.0200"),
        (3.104e-5, "3.10 × 10⁻⁵"),
        (2e-31, "0"),
        (float("nan"), "–"),
        (float("inf"), "∞"),
    ],
)
def test_numbers_as_people_write_them(value, text):
    assert number(value) == text


def test_the_summary_says_the_numbers():
    design = made(32, dim=128)
    best, floor, rank, saved = summary(design)
    scores = design.scores.set_index("encoding")["stress"]
    assert "4 encodings" in best
    assert (
        f"alibi:heads=8 fits this corpus best, with stress {number(scores['alibi:heads=8'])}"
        in best
    )
    assert f"next come sinusoidal and rope with {number(scores['rope'])}" in best
    assert number(design.floor.value) in floor
    assert "3 dimensions of at most 31" in rank
    assert "480 parameters" in saved
    assert "4,096: 88.3% fewer" in saved


def test_plug_in_distances_come_with_a_caution():
    design = with_geometry(made(), totals=np.full(32, 3190))
    # √(counts/N) of 60 well-filled types: twice 59 / (4 · 3190).
    general, here = plugin_caution(design)
    assert "not evidence" in general
    assert number(59 / 2 / 3190) in here
    assert "a small part" in here
    assert (
        "the whole mean squared" in plugin_caution(with_geometry(design, totals=np.full(32, 20)))[1]
    )
    assert plugin_caution(with_geometry(design, estimator="debiased")) == []


def test_random_rows_that_fit_as_well_are_pointed_out():
    design = made()
    assert "Random rows" not in plugin_caution(design)[1]
    design.scores.loc[design.scores["family"] == "random", "stress"] = 0.04
    assert "Random rows" in plugin_caution(design)[1]


# -- estimates with errors ------------------------------------------------------------------------


def synthetic(shape, positions=16, documents=3000, **options):
    """The source string of a small corpus with a known truth."""
    more = "".join(f",{key}={value}" for key, value in options.items())
    return (
        f"synthetic:shape={shape},positions={positions},documents={documents},vocabulary=200{more}"
    )


DEBIASED = {
    "line": {"corpus": synthetic("line")},
    "decay": {"corpus": synthetic("decay", shortening=0.8)},
    "two positions": {
        "corpus": synthetic("line", 2),
        "positions": 2,
        "encodings": ["alibi:heads=8"],
    },
    "grid": {"corpus": synthetic("line"), "grid": (4, 4)},
    "only its own": {"corpus": synthetic("line"), "encodings": ["mds", "none"]},
}


def designed(positions=16, grid=None, **settings):
    where = {"grid": grid, "align": "grid"} if grid else {"positions": positions}
    return design(tokenizer="none", dim=32, **where, **settings)


@pytest.fixture(scope="module", params=DEBIASED, ids=lambda name: name.replace(" ", "-"))
def debiased(request):
    """A debiased design and its figures by name, each drawn and in words."""
    made = designed(**DEBIASED[request.param])
    return made, {spec.name: draw(spec, made) for spec in figures_of(made)}


def test_figures_of_an_estimate_with_errors_are_in_words(debiased):
    made, figures = debiased
    expected = {"noise", "spectrum", "trajectory", "stress_by_encoding"}
    assert expected <= set(figures)
    # Two positions have one distance, which every encoding can be scaled to.
    missed = len(made.geometry.index) > 2 and not set(made.scores["family"]) <= {"mds", "none"}
    assert ("misses" in figures) == missed
    for _, words in figures.values():
        assert len(words.caption) > 80
        assert re.search(r"\d", words.alt)
        assert "nan" not in words.alt + words.caption


def test_the_page_of_an_estimate_says_the_diagnosis_and_every_error(debiased):
    made, figures = debiased
    html, page = page_of(made, figures)
    text = " ".join("".join(page.text).split())
    assert page.open == []
    assert all(image["alt"] for image in page.all("img"))
    assert "Read with care" not in text
    assert summary(made)[:-2] == list(made.diagnosis.sentences)
    for sentence in summary(made):
        assert sentence in text
    for row in made.scores.to_dict("records"):
        assert with_error(row["stress"], row["stress_se"]) in text
        assert interval(row["stress_low"], row["stress_high"]) in text
    assert "nan" not in re.sub(r'base64,[^"]*', "", html).lower().split()


def test_bars_have_their_intervals_and_the_floor_its_band(debiased):
    made, figures = debiased
    ax = figures["stress_by_encoding"][0].axes[0]
    drawn = sorted((s[0, 1], s[0, 0], s[1, 0]) for s in ax.collections[0].get_segments())
    scores = by_stress(made)
    np.testing.assert_allclose([x for _, x, _ in drawn], scores["stress_low"])
    np.testing.assert_allclose([x for _, _, x in drawn], scores["stress_high"])
    band = next(p for p in ax.patches if p.get_alpha() == 0.45)
    assert (band.get_x(), band.get_x() + band.get_width()) == pytest.approx(
        (made.floor.low, made.floor.high)
    )
    assert str(ax.texts[0].get_text()) == with_error(*scores[["stress", "stress_se"]].iloc[0])


def test_the_noise_is_what_lies_between_plug_in_and_debiased(debiased):
    made, figures = debiased
    left, right = figures["noise"][0].axes
    n = made.geometry.n_positions
    lines = {line.get_label(): line.get_ydata() for line in left.lines}
    P = np.sqrt(made.counts.pooled.toarray() / made.counts.totals[:, None])
    np.testing.assert_allclose(
        lines["plug-in"], (between_rows(P) ** 2).sum(axis=1) / (n - 1), rtol=1e-9
    )
    for i in (0, n - 1):
        apart = np.zeros((n, n))
        apart[i] = apart[:, i] = 1 / (n - 1)
        weights = apart[np.triu_indices(n, 1)]
        same = jackknife(lambda s, weights=weights: s @ weights, made.geometry)
        assert lines["debiased"][i] == pytest.approx(same.value)
        band = left.collections[1].get_paths()[0].vertices
        ends = band[np.isclose(band[:, 0], i), 1]
        assert (ends.min(), ends.max()) == pytest.approx((same.low, same.high))
    share = 1 - lines["debiased"].mean() / lines["plug-in"].mean()
    assert made.diagnosis.noise.value == pytest.approx(np.clip(share, 0, 1), abs=1e-9)
    assert f"{made.diagnosis.noise.value:.0%}" in figures["noise"][1].alt
    steps = {line.get_label(): line for line in right.lines}["debiased"].get_xdata()
    assert len(steps) == len(np.unique(evidence.offsets(made.geometry)[0]))


def test_shares_of_the_misses_sum_to_all(debiased):
    made, figures = debiased
    if "misses" not in figures:
        return
    left, right = figures["misses"][0].axes
    for line in (*left.lines, *right.lines):
        assert line.get_ydata().sum() == pytest.approx(100)
    best = left.lines[0]
    name = best.get_label().split(" = ")[0]
    np.testing.assert_allclose(best.get_ydata(), 100 * made.diagnosis.misses[name][0])
    assert name in figures["misses"][1].alt
    assert "mds" not in figures["misses"][1].alt


def test_the_spectrum_marks_its_noise(debiased):
    made, figures = debiased
    test, (left, right) = made.geometry.stationarity, figures["spectrum"][0].axes
    above = {line.get_label(): line for line in left.lines}["above the noise"].get_ydata()
    np.testing.assert_array_equal(above, test.eigenvalues[: test.significant])
    assert (above > test.limit).all()
    w = made.mds.eigenvalues
    limit = [x for x in right.lines if x.get_label().startswith("as large")]
    for line in limit:
        assert line.get_ydata()[0] == -w.min()
    stroke = right.collections[0].get_segments()[0]
    assert stroke[0, 1] < w[0] < stroke[1, 1]


def test_the_map_has_an_ellipse_about_every_position(debiased):
    made, figures = debiased
    ax = figures["trajectory"][0].axes[0]
    outlines = np.array([path.vertices for path in ax.collections[1].get_paths()])
    xy = np.asarray(ax.collections[2].get_offsets())
    assert len(outlines) == len(xy) == made.geometry.n_positions
    np.testing.assert_allclose(outlines[:, :48].mean(axis=1), xy, atol=1e-9)
    left, right = ax.get_xlim()
    assert left <= outlines[..., 0].min() < outlines[..., 0].max() <= right


def test_negative_squares_are_owned_up_to():
    made = designed(corpus=synthetic("decay"))
    below = int((pairs(made.geometry.squared) < 0).sum())
    assert below
    figure, words = draw(spec("distance_matrix", figures_of(made)), made)
    assert f"In {below:,} of 120 pairs" in words.caption
    assert np.ma.filled(figure.axes[0].images[0].get_array(), 0).min() == 0


def test_a_plug_in_report_has_the_old_figures_and_no_errors(tmp_path):
    made = designed(corpus=synthetic("line"), estimator="plugin")
    assert figures_of(made) == FIGURES
    _, page = page_of(made)
    assert "±" not in "".join(page.text)
    assert "Read with care" in "".join(page.text)
    made.scores["stress_se"] = ""  # as a saved table has it
    assert "±" not in "".join(page_of(made)[1].text)


@pytest.mark.parametrize(
    ("x", "se", "text"),
    [
        (0.33, 0.015, "0.330 ± 0.015"),
        (0.5161, 0.0057, "0.516 ± 0.006"),
        (0.0, 0.0018, "0.0000 ± 0.0018"),
        (-0.059, 0.02, "−0.059 ± 0.020"),
        (3073.2, 61.8, "3,073 ± 62"),
        (0.0996, 0.00996, "0.100 ± 0.010"),
        (1.0, 0.0, "1.00 ± 0"),
        (0.25, float("nan"), "0.250"),
        (float("nan"), 0.1, "–"),
    ],
)
def test_errors_say_how_many_digits_count(x, se, text):
    assert with_error(x, se) == text


def test_an_interval_that_is_not_known_is_not_there():
    assert interval(float("nan"), float("nan")) == ""
    assert interval(0.2471, 0.4139) == "0.247 to 0.414"


# -- what was made for the corpus -----------------------------------------------------------------


def text_of(page):
    return " ".join("".join(page.text).split())


@pytest.fixture(scope="module")
def family():
    """A design of all families, with a table that is carried on."""
    return designed(corpus=synthetic("decay"), family="all", rank=2, extend_to=24)


def test_each_design_stands_with_its_gain_and_its_floor(family):
    html, page = page_of(family)
    section = text_of(page).split("Made for this corpus")[1].split("Figures")[0]
    assert page.open == []
    assert len(family.gains) == 9
    for row in family.gains.to_dict("records"):
        assert row["encoding"] in section
        for value in ("stress", "gain", "held_out"):
            shown = with_error(row[value], row[f"{value}_se"])
            assert shown in section or np.isnan(row[value])
        if abs(row["gain"]) > 1e-9:
            assert interval(row["gain_low"], row["gain_high"]) in section
        assert number(row["floor"]) in section
        assert f"{row['parameters']:,}" in section
        assert not row["beside"] or f"beside {row['beside']}" in section
    for paragraph in designs(family).paragraphs:
        assert paragraph in section
    assert "nan" not in re.sub(r'base64,[^"]*', "", html).lower().split()


def test_the_table_carried_on_says_how_far_and_how(family):
    held_out = family.extension.held_out
    carried = designs(family).paragraphs[1]
    assert "from 16 positions to 24: 8 rows by" in carried
    (way,) = set(family.extension.methods) - {"given"}
    assert f"is {with_error(held_out[way].value, held_out[way].se)} ({way})" in carried


def test_sentences_tell_gains_from_errors():
    table = pd.DataFrame(
        [
            ("a", "known", 0.2, 0.1, 0.1, 0.3),
            ("b", "known", 0.3, 0.01, 0.28, 0.32),
            ("c", "other", 0.01, 0.1, -0.2, 0.2),
            ("d", "other", 1e-15, 1e-17, -1e-15, 1e-15),
            ("e", "other", -0.1, 0.01, -0.12, -0.08),
            ("f", "", np.nan, np.nan, np.nan, np.nan),
        ],
        columns=["encoding", "beside", "gain", "gain_se", "gain_low", "gain_high"],
    )
    beyond, tied, nothing, worse = gain_sentences(table)
    assert "b over known (0.300 ± 0.010) and a over known" in beyond
    assert tied == "What c may gain is within its error."
    assert nothing.startswith("What d gains is nothing")
    assert worse.startswith("What e gains is less than nothing")
    assert gain_sentences(table.iloc[5:]) == []
    table[["gain_se", "gain_low", "gain_high"]] = np.nan
    (plugin,) = gain_sentences(table)
    assert "The most is gained by b, 0.300 of stress over known" in plugin


def test_ways_to_carry_a_table_are_counted():
    ways = ("given", "given", "gower", "harmonic", "harmonic")
    costs = dict.fromkeys(METHODS, Estimate(float("nan"))) | {"gower": Estimate(0.02, 0.004)}
    carried = Extension(np.zeros((5, 1)), ways, costs)
    sentence = extension_sentence(carried, 2)
    assert "from 2 positions to 5: 1 row by the corpus's own counts there and 2 rows" in sentence
    (said,) = cost_sentences(carried)
    assert said.endswith("is 0.020 ± 0.004 (gower).")
    costs |= {"harmonic": Estimate(0.3, 0.01), "interpolation": Estimate(0.2, 0.01)}
    said, better = cost_sentences(carried)
    assert said.endswith("is 0.020 ± 0.004 (gower) and 0.300 ± 0.010 (harmonic).")
    assert "has 0.200 ± 0.010 there (--extend-by interpolation)" in better
    costs["interpolation"] = Estimate(0.4, 0.01)
    assert len(cost_sentences(carried)) == 1
    none = Extension(np.zeros((2, 1)), ways[:2], costs)
    assert "no row is new" in extension_sentence(none, 2)
    assert cost_sentences(none) == []


def test_what_was_fitted_is_not_taken_for_a_known_encoding(family):
    fitted = family.scores.loc[family.scores["designed"], "encoding"]
    assert {"fitted-rope", "fitted-t5"} <= set(fitted)
    figures = {s.name: draw(s, family)[1] for s in figures_of(family) if s.name == "misses"}
    said = [figures["misses"].alt, *family.diagnosis.sentences[4:]]
    assert not [name for name in fitted for sentence in said if f"{name} " in sentence]
    rows = text_of(page_of(family)[1]).split("Scores")[1].split("Made for this corpus")[0]
    assert rows.count("from this corpus") == len(fitted)


def test_bars_of_twenty_encodings_stay_apart(family):
    figure, _ = draw(evidence.BARS, family)
    ax = figure.axes[0]
    assert len(family.scores) >= 20
    boxes = [label.get_window_extent() for label in ax.get_yticklabels()]
    assert all(a.y0 >= b.y1 for a, b in pairwise(boxes))
    assert min(box.x0 for box in boxes) >= 0
    assert len({label.get_text() for label in ax.get_yticklabels()}) == len(boxes)
    for text in ax.texts:
        assert text.get_window_extent().x1 <= figure.bbox.x1


def test_stress_by_rank_shows_the_least_and_what_is_proved():
    design = made(n=12, rank=2)
    figure, words = draw(spec("stress_by_rank"), design)
    lines = {line.get_label(): line.get_ydata() for line in figure.axes[0].lines}
    kept = design.ranks["stress"] >= 1e-6
    for name, key in (("classical MDS", "stress"), ("least found", "optimal_stress")):
        np.testing.assert_allclose(lines[name][kept], design.ranks[key][kept])
    assert design.ranks["floor"].any() == ("proved floor" in lines)
    assert number(design.ranks["optimal_stress"].iloc[0]) in words.alt
    assert (design.ranks["optimal_stress"] <= design.ranks["stress"] + 1e-12).all()


def test_a_grid_has_its_axial_designs():
    design = designed(corpus=synthetic("line"), grid=(4, 4), family="rope")
    assert "fitted-axial" in design.gains["encoding"].tolist()
    for figure in ("shepard", "distance_by_offset"):
        draw(spec(figure, figures_of(design)), design)
    assert "beside rope-2d" in text_of(page_of(design)[1])


def test_a_design_by_least_stress_is_named_in_the_summary(family):
    assert "(stress:rank=2 in the table)" in summary(family)[-2]
    row = family.scores.set_index("encoding").loc["stress:rank=2"]
    assert with_error(row["stress"], row["stress_se"]) in summary(family)[-2]


# -- the report of a diagnosis --------------------------------------------------------------------


def diagnosed(corpus, encodings=KNOWN, **settings):
    counts = count_positions(corpus, "none", 16)
    geometry = estimate_geometry(counts)
    return Diagnosed(counts, geometry, diagnose(counts, geometry, encodings, 32), settings)


@pytest.fixture(scope="module")
def found():
    return diagnosed(synthetic("line"), source="<script>alert(1)</script>")


def test_answers_stand_under_their_questions(found):
    questions = dict(diagnosis.answers(found.diagnosis))
    assert [s for said in questions.values() for s in said] == list(found.diagnosis.sentences)
    first = [said[0] for said in questions.values()]
    for sentence, word in zip(
        first,
        ("differ", "noise", "dimension", "offsets alone", "fits best", "misses", "ocuments"),
        strict=True,
    ):
        assert word in sentence
    random_too = replace(
        found.diagnosis,
        sentences=(*found.diagnosis.sentences[:5], "Random.", *found.diagnosis.sentences[5:]),
    )
    assert len(dict(diagnosis.answers(random_too))[diagnosis.FIT]) == 2


def test_a_diagnosis_without_known_encodings_answers_what_it_can():
    said = dict(diagnosis.answers(diagnosed(synthetic("line"), ["mds", "none"]).diagnosis))
    assert list(said) == [*diagnosis.FIRST, diagnosis.FLOOR, diagnosis.DOCUMENTS]


def test_a_diagnosis_is_written_as_a_page_and_for_programs(found, tmp_path):
    out = write_diagnosis(found, tmp_path / "a" / "b")
    assert sorted(p.name for p in out.iterdir()) == ["diagnosis.html", "diagnosis.json"]
    assert [p.name for p in out.parent.iterdir()] == ["b"]
    read = json.loads((out / "diagnosis.json").read_text(encoding="utf-8"))
    assert read == json.loads(json.dumps(found.diagnosis.as_dict()))
    html = (out / "diagnosis.html").read_text(encoding="utf-8")
    page = Page(html)
    assert page.open == []
    assert "<script" not in html
    assert "http://" not in html
    assert [figure["id"] for figure in page.all("figure")] == [
        "stress_by_encoding",
        "misses",
        "noise",
        "spectrum",
    ]
    for sentence in found.diagnosis.sentences:
        assert sentence in " ".join("".join(page.text).split())
    assert write_diagnosis(found, out, force=True) == out
    assert (out / "diagnosis.html").read_text(encoding="utf-8") == html


def test_without_structure_no_distance_is_drawn(tmp_path):
    none = diagnosed(synthetic("none"))
    assert not none.geometry.has_structure
    out = write_diagnosis(none, tmp_path / "out")
    page = Page((out / "diagnosis.html").read_text(encoding="utf-8"))
    assert [figure["id"] for figure in page.all("figure")] == ["spectrum_of_test"]
    assert "Scores" not in page.text
    for sentence in none.diagnosis.sentences:
        assert sentence in " ".join("".join(page.text).split())

    def refuse(constant):
        raise ValueError(constant)

    text = (out / "diagnosis.json").read_text(encoding="utf-8")
    read = json.loads(text, parse_constant=refuse)  # NaN is no JSON
    assert read["noise"] == {"share": 1.0, "low": None, "high": None}
    figure, words = draw(evidence.TEST, none)
    test = none.geometry.stationarity
    drawn = {line.get_label(): line for line in figure.axes[0].lines}
    np.testing.assert_array_equal(drawn["not told from noise"].get_ydata(), test.eigenvalues)
    assert "above the noise" not in drawn
    assert f"p = {test.p_value:.2g}" in words.alt
    with pytest.raises(PosgeomError, match="no floor"):
        _ = none.floor


def test_a_diagnosis_replaces_nothing_but_a_diagnosis(found, tmp_path, monkeypatch):
    out = write_diagnosis(found, tmp_path / "out")
    with pytest.raises(PosgeomError, match=r"already holds diagnosis\.html"):
        check_diagnosis_out(out)
    (out / "mine.txt").write_text("precious")
    with pytest.raises(PosgeomError, match=r"mine\.txt, which is no file of a run"):
        write_diagnosis(found, out, force=True)
    with pytest.raises(PosgeomError, match="is a file"):
        check_diagnosis_out(out / "mine.txt")
    with pytest.raises(PosgeomError, match="cannot be made"):
        check_diagnosis_out(out / "mine.txt" / "deeper")
    (out / "mine.txt").unlink()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(diagnosis, "diagnosis_json", fail)
    with pytest.raises(PosgeomError, match="No space left"):
        write_diagnosis(found, out, force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert len(list(out.iterdir())) == 2


def test_diagnose_writes_its_report(posgeom_ok, run_cli, tmp_path):
    call = ("diagnose", synthetic("line"), "--tokenizer", "none", "--out", tmp_path / "out")
    said = posgeom_ok(*call).out
    read = json.loads((tmp_path / "out" / "diagnosis.json").read_text(encoding="utf-8"))
    assert said.startswith("\n".join(read["sentences"]))
    again = run_cli(*call)
    assert (again.code, again.out) == (2, "")
    assert "--force" in again.err
    posgeom_ok(*call, "--force")


def test_a_floor_without_error_has_no_band():
    design = made(8)
    assert isinstance(design.floor, Estimate)
    figure, words = draw(spec("stress_by_encoding"), design)
    assert not [p for p in figure.axes[0].patches if p.get_alpha() == 0.45]
    assert "±" not in words.alt
