"""Figures: what is drawn is what came, number by number."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from posgeom import plots


@pytest.fixture
def figure():
    with plots.style():
        made = Figure(layout="constrained")
        yield made
        made.draw_without_rendering()


@pytest.fixture
def ax(figure):
    return figure.subplots()


def labelled(ax):
    return {line.get_label(): line for line in ax.lines}


def test_every_plot_returns_its_axes(figure):
    ax = figure.subplots()
    assert plots.cumulative_share(ax, np.array([0.6, 1.0]), 1) is ax


def test_distance_matrix(ax):
    D = np.array([[np.nan, 1, 2], [1, np.nan, 0.5], [2, 0.5, np.nan]])
    plots.distance_matrix(ax, D, 0.5, 2.0, np.array([3, 4, 9]))
    (image,) = ax.images
    assert image.get_clim() == (0.5, 2.0)
    np.testing.assert_array_equal(np.ma.getmaskarray(image.get_array()), np.isnan(D))
    row = ax.yaxis.get_major_formatter()
    assert [row(k, None) for k in (-1, 0, 1, 2, 3)] == ["", "3", "4", "9", ""]


def test_spectrum_shows_both_signs_by_size(ax):
    plots.spectrum(ax, np.array([4.0, 1.0, 1e-9, -1e-9, -0.5]), 0.1, 2)
    lines = labelled(ax)
    assert lines["positive"].get_data()[0].tolist() == [1, 2]
    assert lines["positive"].get_data()[1].tolist() == [4, 1]
    negative = lines["negative (shown by size)"].get_data()
    assert [x.tolist() for x in negative] == [[5], [0.5]]
    assert ax.get_yscale() == "log"
    assert ax.get_ylim()[0] == 0.1
    assert lines["kept: the first 2"].get_xdata()[0] == 2.5


def test_spectrum_of_nothing(ax):
    plots.spectrum(ax, np.zeros(3), 0.1, 1)
    assert len(ax.lines) == 1


def test_eigenvalues_have_errors_that_stay_on_the_paper(ax):
    w, errors = np.array([4.0, 0.5, -0.2]), np.array([1.0, 2.0, 0.1])
    plots.spectrum(ax, w, 0.1, 1, errors, 0.2)
    strokes = [s[:, 1].tolist() for c in ax.collections for s in c.get_segments()]
    np.testing.assert_allclose(strokes, [[3.0, 5.0], [0.1, 2.5], [0.1, 0.3]])
    assert labelled(ax)["as large as the most negative one"].get_ydata() == [0.2, 0.2]
    assert ax.get_ylim()[1] == 10.0


@pytest.mark.parametrize(("largest", "scale"), [(1000.0, "symlog"), (12.0, "linear")])
def test_spectrum_of_a_test(ax, largest, scale):
    w = np.array([largest, 6.0, 1.0, -2.0])
    plots.spectrum_of_test(ax, w, 5.0, 2)
    lines = labelled(ax)
    assert lines["above the noise"].get_ydata().tolist() == [largest, 6.0]
    assert lines["not told from noise"].get_data()[0].tolist() == [3, 4]
    assert ax.patches[0].get_y() == -5.0
    assert ax.patches[0].get_height() == 10.0
    assert ax.get_yscale() == scale


def test_noise_floor(ax):
    at, plugin, debiased = np.arange(3.0), np.array([0.9, 0.8, 0.7]), np.array([0.2, -0.1, 0.1])
    plots.noise_floor(ax, at, plugin, debiased, debiased - 0.1, debiased + 0.1, "position")
    lines = labelled(ax)
    assert lines["plug-in"].get_ydata().tolist() == plugin.tolist()
    assert lines["debiased"].get_ydata().tolist() == debiased.tolist()
    noise, band = (c.get_paths()[0].vertices for c in ax.collections)
    assert (noise[:, 1].min(), noise[:, 1].max()) == (-0.1, 0.9)
    assert (band[:, 1].min(), band[:, 1].max()) == pytest.approx((-0.2, 0.3))


def test_shares_are_percents(ax):
    plots.shares(ax, np.arange(2.0), {"$a$": np.array([0.25, 0.75])}, "position")
    assert labelled(ax)[r"\$a\$"].get_ydata().tolist() == [25, 75]


def test_cumulative_share(ax):
    plots.cumulative_share(ax, np.array([0.5, 0.75, 1.0]), 2)
    curve, mark = ax.lines
    assert curve.get_ydata().tolist() == [50, 75, 100]
    assert [x[0] for x in mark.get_data()] == [2, 75]


def test_stress_bars(ax):
    names, stress = ["mds", "rope", "$odd$ name"], np.array([0.0, 0.2, 0.9])
    relative = np.array([False, True, False])
    plots.stress_bars(ax, names, stress, ["0", "0.2 (raw 3)", "0.9"], relative, 0.15)
    bars = {round(bar.get_y() + bar.get_height() / 2): bar for bar in ax.patches}
    assert [bars[k].get_width() for k in range(3)] == [0, 0.2, 0.9]
    assert bars[1].get_facecolor() != bars[2].get_facecolor() == bars[0].get_facecolor()
    assert [text.get_text() for text in ax.texts] == ["0", "0.2 (raw 3)", "0.9"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first on top
    assert ax.lines[0].get_xdata() == [0.15, 0.15]
    assert ax.get_yticklabels()[2].get_text() == r"\$odd\$ name"


def test_stress_bars_with_errors(ax):
    ends = np.array([[0.0, 0.1], [0.2, 0.4]])
    plots.stress_bars(
        ax,
        ["a", "b"],
        np.array([0.05, 0.3]),
        ["x", "y"],
        np.array([True, False]),
        0.1,
        ends,
        (0.0, 0.2),
    )
    np.testing.assert_array_equal([s[:, 0] for s in ax.collections[0].get_segments()], ends)
    band = next(p for p in ax.patches if p.get_alpha() == 0.45)
    assert (band.get_x(), band.get_width()) == (0.0, 0.2)
    assert [text.xy[0] for text in ax.texts] == [0.1, 0.4]  # clear of the error bars


def test_stress_bars_without_any_stress(ax):
    plots.stress_bars(ax, ["mds"], np.zeros(1), ["0"], np.array([False]), 0.0)
    assert ax.get_xlim()[1] > 0


def test_stress_by_rank_draws_zeros_on_the_lower_edge(ax):
    rank, stress = np.arange(1, 5), np.array([0.5, 0.01, 1e-20, 0.0])
    plots.stress_by_rank(ax, rank, {"stress": stress, "raw stress": 2 * stress}, 3, 1e-20, 0.005)
    lines = labelled(ax)
    np.testing.assert_array_equal(lines["stress"].get_ydata(), [0.5, 0.01, np.nan, np.nan])
    np.testing.assert_array_equal(lines["raw stress"].get_ydata()[:2], [1.0, 0.02])
    assert lines["0, or too small to draw"].get_data()[0].tolist() == [3, 4]
    assert lines["0, or too small to draw"].get_data()[1].tolist() == [0.005, 0.005]
    assert lines["chosen: rank 3"].get_data() == ([3], [0.005])
    assert ax.get_yscale() == "log"


def test_stress_by_rank_of_one_rank_is_linear(ax):
    plots.stress_by_rank(ax, np.array([1]), {"stress": np.array([0.0])}, 1, 0.0, None)
    assert ax.get_yscale() == "linear"
    assert labelled(ax)["chosen: rank 1"].get_data() == ([1], [0.0])


def test_shepard(figure, ax):
    D, scaled, offset = np.array([[1.0, 2.0, 3.0], [1.5, 2.0, 2.5], [1.0, 2.0, 3.0]])
    assert plots.shepard(ax, D, scaled, offset, 4.0, "alibi:heads=8", "stress 0.02") is ax
    (dots,) = ax.collections
    np.testing.assert_array_equal(dots.get_offsets(), np.stack([D, scaled], axis=1))
    np.testing.assert_array_equal(dots.get_array(), offset)
    assert dots.get_rasterized()
    np.testing.assert_array_equal(ax.lines[0].get_data(), [[0, 4], [0, 4]])
    assert ax.get_title(loc="left") == "alibi:heads=8\nstress 0.02"
    plots.position_bar([ax], "offset", 1.0)
    assert figure.axes[1].get_ylabel() == "offset"


def test_trajectory(ax):
    xy, index = np.array([[0.0, 0.0], [1.0, 0.5], [2.0, 0.0]]), np.array([0, 1, 5])
    plots.trajectory(ax, xy, index, xy[[[0, 1], [1, 2]]], (0.75, 0.2))
    path, dots = ax.collections
    np.testing.assert_array_equal(path.get_segments(), xy[[[0, 1], [1, 2]]])
    np.testing.assert_array_equal(dots.get_offsets(), xy)
    np.testing.assert_array_equal(dots.get_array(), index)
    assert ax.get_aspect() == 1
    assert [line.get_label() for line in ax.lines] == ["first (position 0)", "last (position 5)"]
    assert ax.lines[1].get_xydata().tolist() == [[2.0, 0.0]]
    assert "75.0%" in ax.get_xlabel()
    assert "20.0%" in ax.get_ylabel()


def test_trajectory_with_errors(ax):
    xy = np.array([[0.0, 0.0], [1.0, 0.5]])
    square = 0.3 * np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    outlines = xy[:, None] + square
    plots.trajectory(ax, xy, np.arange(2), xy[None], (0.75, 0.2), outlines)
    drawn = [path.vertices[:4] for path in ax.collections[1].get_paths()]
    np.testing.assert_allclose(drawn, outlines)
    assert ax.get_xlim()[0] <= -0.3


def test_mean_distance_with_errors(ax):
    k = np.arange(1.0, 4.0)
    plots.distance_by_offset(ax, k, k, k / 2, 2 * k, {}, "offset", np.array([0.5, 0.5, 4.0]))
    strokes = [s[:, 1].tolist() for s in ax.collections[-1].get_segments()]
    assert strokes == [[0.5, 1.5], [1.5, 2.5], [0.0, 7.0]]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.002, "0.002"), (1000.0, "1,000"), (1e-5, "10⁻⁵"), (2e4, "2·10⁴"), (-1e4, "−10⁴"), (0, "0")],
)
def test_powers_of_ten_in_plain_letters(ax, value, text):
    from posgeom.plots.look import powers_of_ten

    ax.set(yscale="symlog", ylim=(-1e5, 1e5))
    powers_of_ten(ax.yaxis, signed=True)
    assert ax.yaxis.get_major_formatter()(value, None) == text


def test_distance_by_offset(ax):
    k = np.arange(1.0, 4.0)
    curves = {f"family{i}": k * i for i in range(8)}
    plots.distance_by_offset(ax, k, k / 2, k / 4, k, curves, "offset")
    lines = labelled(ax)
    assert lines["corpus, mean"].get_ydata().tolist() == [0.5, 1.0, 1.5]
    for name, curve in curves.items():
        np.testing.assert_array_equal(lines[name].get_ydata(), curve)
    looks = {(lines[name].get_color(), lines[name].get_linestyle()) for name in curves}
    assert len(looks) == len(curves)
    band = ax.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (0.25, 3.0)


def test_heat_map_is_white_at_zero(ax):
    table = np.array([[0.5, -1.0, 0.0], [0.0, 0.25, 0.5]])
    plots.heat_map(ax, table, 1.0, np.arange(2), "a table")
    (image,) = ax.images
    np.testing.assert_array_equal(image.get_array(), table)
    assert image.get_clim() == (-1.0, 1.0)
    assert ax.get_title(loc="left") == "a table"


@pytest.mark.parametrize("log", [True, False])
def test_tokens_by_position(ax, log):
    index, totals = np.array([0, 1, 2]), np.array([5000, 300, 40])
    plots.tokens_by_position(ax, index, totals, 100, log, "position")
    assert ax.lines[0].get_ydata().tolist() == totals.tolist()
    assert labelled(ax)["fewer than 100 tokens"].get_data() == ([2], [40])
    assert ax.get_yscale() == ("log" if log else "linear")


def test_many_tokens_everywhere_need_no_mark(ax):
    plots.tokens_by_position(ax, np.arange(2), np.array([500, 400]), 100, False, "position")
    assert len(ax.lines) == 1


def test_plain_text_is_short_and_holds_no_mathematics():
    assert plots.plain("rope:base=500000") == "rope:base=500000"
    assert plots.plain("a$x^2$") == r"a\$x^2\$"
    assert plots.plain("a\x00b\nc") == "a?b?c"
    short = plots.plain("learned:" + "x" * 80 + "#wpe.weight", 30)
    assert len(short) == 30
    assert short.startswith("learned:")
    assert short.endswith("#wpe.weight")


def test_style_is_undone():
    import matplotlib

    before = dict(matplotlib.rcParams)
    with plots.style():
        assert matplotlib.rcParams["svg.hashsalt"] == "posgeom"
    assert dict(matplotlib.rcParams) == before


def test_estimates_by_size(ax):
    sizes = np.array([2_000.0, 7_000.0, 60_000.0])
    mean, spread = np.array([0.5, 0.45, 0.4]), np.array([0.05, 0.02, 0.01])
    plots.estimates_by_size(ax, sizes, {"debiased": (mean, spread)}, truth=0.39)
    drawn = labelled(ax)
    np.testing.assert_array_equal(drawn["truth"].get_ydata(), [0.39, 0.39])
    (bars,) = ax.containers
    np.testing.assert_array_equal(bars.lines[0].get_ydata(), mean)
    low, top = ax.get_ylim()
    assert low == 0
    assert top >= 0.55
    assert [t.get_text() for t in ax.get_xticklabels()] == ["2,000", "7,000", "60,000"]
