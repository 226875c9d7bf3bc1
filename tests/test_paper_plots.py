"""The figures of the paper's tables: the numbers that are drawn."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from posgeom import plots
from posgeom.plots.paper import LEAST, figures_met, ranks_of_two, under_conventions


@pytest.fixture
def ax():
    with plots.style():
        yield Figure().subplots()


def test_the_cross_stands_at_the_papers_pair(ax):
    x, y = np.array([0.1, 2.0]), np.array([0.01, 0.2])
    assert figures_met(ax, {"chord": (x, y)}, (2.248, 0.009)) is ax
    dots, cross = (line for line in ax.lines if line.get_marker() in ("o", "X"))
    np.testing.assert_array_equal(dots.get_xydata(), np.column_stack([x, y]))
    np.testing.assert_array_equal(cross.get_xydata(), [[2.248, 0.009]])
    assert ax.get_xscale() == ax.get_yscale() == "log"


def test_ranges_medians_and_the_papers_diamond(ax):
    values = [np.array([1.0, 2.0, 3.0, 4.0, 100.0]), np.array([])]
    under_conventions(ax, ["alibi", "nothing"], values, [3.0, np.nan])
    ends = [path.vertices[:, 0] for c in ax.collections for path in c.get_paths()]
    np.testing.assert_array_equal(ends, [[1, 100], [2, 4]])
    marks = {line.get_marker(): line.get_xydata().tolist() for line in ax.lines}
    assert marks == {"o": [[3, 0]], "D": [[3, 0]]}
    assert [t.get_text() for t in ax.get_yticklabels()] == ["alibi", "nothing"]


def test_curves_stay_above_the_edge(ax):
    curve = np.array([[0.5, 0.4, 0.6], [0.0, 0.0, 0.1]])
    ranks_of_two(ax, np.array([1, 2]), {"plugin": curve})
    (line,) = ax.lines
    np.testing.assert_array_equal(line.get_xydata(), [[1, 0.5], [2, LEAST]])
