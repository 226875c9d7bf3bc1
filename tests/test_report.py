"""The report: every figure in words, one page that stands alone, and numbers that are right."""

import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.sparse import csr_array

from posgeom import plots
from posgeom.counts import PositionCounts, Provenance
from posgeom.design import Design
from posgeom.designers import low_rank
from posgeom.geometry import Geometry
from posgeom.mds import classical_mds
from posgeom.report import Drawn, render, write_report
from posgeom.report.figures import FIGURES, by_stress, number
from posgeom.report.html import plugin_caution, report_html, summary
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
        settings={"source": title, "positions": n, "dim": dim, "rank": rank, "seed": 0},
        provenance={"command": ["posgeom", "design", title], "versions": {"numpy": "2.0"}},
    )


def with_geometry(design, **changes):
    return replace(design, geometry=replace(design.geometry, **changes))


def spec(name):
    return next(spec for spec in FIGURES if spec.name == name)


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
        figure = Figure(figsize=spec.size, layout="constrained")
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
        drawn = [Drawn(s, figures[s.name][1], b"<svg/>", b"png") for s in FIGURES]
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
    assert [x for x, _ in ax.lines[0].get_path().vertices] == [design.floor] * 2


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
        assert len(xy) == min(len(D), 20_000)
        if name in scores.index:
            left = ((xy[:, 1] - xy[:, 0]) ** 2).sum() / (xy[:, 0] ** 2).sum()
            assert left == pytest.approx(scores.loc[name, "stress"], rel=0.05, abs=1e-9)


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
    assert number(design.floor) in floor
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
