"""Rotary encodings of rows and columns, and of time, height and width."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from posgeom import PosgeomError, make_encoding

RNG = np.random.default_rng(0)
GRID = np.column_stack(np.divmod(np.arange(15), 5))  # 3 rows, 5 columns


class TestGrids:
    def test_first_pairs_follow_the_row_last_the_column(self):
        e = make_encoding("rope-2d:dim=16")
        cos, sin = e.cos_sin(GRID)
        θ = 10_000.0 ** (-2 * np.arange(4) / 8)
        np.testing.assert_allclose(cos[:, :4], np.cos(np.outer(GRID[:, 0], θ)))
        np.testing.assert_allclose(sin[:, 4:], np.sin(np.outer(GRID[:, 1], θ)))
        swapped = e.cos_sin(GRID[:, ::-1])[0]
        np.testing.assert_array_equal(swapped, np.hstack([cos[:, 4:], cos[:, :4]]))
        assert not np.array_equal(swapped, cos)

    def test_every_cell_of_a_grid_is_told_apart(self):
        """A second half of cos that is dropped would leave columns equal."""
        for spec in ("rope-2d:dim=16", "rope-2d:dim=16,spread=dealt", "mrope:dim=16,axes=2"):
            D = make_encoding(spec).distances(GRID)
            assert D[~np.eye(15, dtype=bool)].min() > 1e-3

    def test_rows_and_columns_are_not_taken_for_each_other(self):
        """In the cells of a 3 × 5 grid, 5 apart in the list is a row, 1 a column."""
        e = make_encoding("rope-2d:dim=16,spread=dealt")
        D = e.distances(GRID)
        line = make_encoding("rope-2d:dim=16,spread=dealt").distances([[0, 0], [1, 0], [0, 1]])
        assert D[0, 5] == line[0, 1]
        assert D[0, 1] == line[0, 2]
        assert D[0, 5] != D[0, 1]
        wrong = np.column_stack(np.divmod(np.arange(15), 3))
        assert not np.allclose(D, e.distances(wrong))

    @pytest.mark.parametrize("spec", ["rope-2d:dim=16", "rope-2d:dim=16,spread=dealt"])
    def test_scores_depend_on_both_offsets_alone(self, spec):
        e = make_encoding(spec)
        q, k = RNG.standard_normal((2, 15, 16))
        a = e.rotate(q, GRID) @ e.rotate(k, GRID).T
        far = GRID + np.array([300, 7])
        b = e.rotate(q, far) @ e.rotate(k, far).T
        np.testing.assert_allclose(a, b, atol=1e-9)
        turned = e.rotate(np.ones((15, 16)), GRID)
        np.testing.assert_allclose(np.linalg.norm(turned, axis=1), 4)
        rows = np.hstack(e.cos_sin(GRID))
        np.testing.assert_allclose(e.distances(GRID), cdist(rows, rows), atol=1e-7)

    def test_three_axes(self):
        e = make_encoding("rope-2d:dim=24,axes=3")
        assert e.n_axes == 3
        D = e.distances([[0, 0, 0], [2, 0, 0], [0, 2, 0], [0, 0, 2]])
        assert D[0, 1] == D[0, 2] == D[0, 3] > 0

    @pytest.mark.parametrize(
        "spec", ["rope-2d:dim=6", "rope-2d:axes=4", "rope-2d:spread=odd", "rope-2d:dim=16,axes=3"]
    )
    def test_what_cannot_be_dealt_is_refused(self, spec):
        with pytest.raises(PosgeomError):
            make_encoding(spec)

    @pytest.mark.parametrize("positions", [[0, 1], [[0]], [[0, 1, 2]], [[0.0, np.nan]]])
    def test_positions_of_other_axes_are_refused(self, positions):
        with pytest.raises(PosgeomError):
            make_encoding("rope-2d").distances(positions)


class TestMRope:
    def test_text_is_rope(self):
        for spec in ("mrope:dim=32", "mrope:dim=32,arrangement=interleaved"):
            e, rope = make_encoding(spec), make_encoding("rope:dim=32,pairing=halves")
            np.testing.assert_array_equal(e.cos_sin(range(40))[0], rope.cos_sin(range(40))[0])
            same = np.repeat(np.arange(40)[:, None], 3, axis=1)
            np.testing.assert_array_equal(e.cos_sin(same)[1], rope.cos_sin(range(40))[1])
            np.testing.assert_allclose(e.distances(range(40)), rope.distances(range(40)))

    def test_sections_take_their_pairs_in_a_row_or_in_turn(self):
        assert make_encoding("mrope:dim=16,sections=2;3;3").pair_axes.tolist() == [
            *(0, 0, 1, 1, 1, 2, 2, 2)
        ]
        interleaved = make_encoding("mrope:dim=16,sections=4;2;2,arrangement=interleaved")
        assert interleaved.pair_axes.tolist() == [0, 1, 2, 0, 1, 2, 0, 0]
        assert make_encoding("mrope:dim=128").pair_axes.tolist() == ([0] * 16 + [1] * 24 + [2] * 24)

    def test_axes_two_are_height_and_width_at_time_zero(self):
        three, two = make_encoding("mrope:dim=16"), make_encoding("mrope:dim=16,axes=2")
        flat = np.column_stack([np.zeros(15, dtype=int), GRID])
        np.testing.assert_array_equal(two.distances(GRID), three.distances(flat))
        assert (two.n_axes, three.n_axes) == (2, 3)

    def test_it_can_be_scaled(self):
        e = make_encoding("mrope:dim=16,scaling=yarn,factor=4,original_length=256")
        assert e.attention_factor > 1

    @pytest.mark.parametrize(
        "options",
        [
            "sections=1;2",
            "sections=1;2;3",
            "sections=-1;5;4",
            "sections=2;3;3,arrangement=interleaved",
            "axes=1",
            "arrangement=odd",
        ],
    )
    def test_sections_that_do_not_fit_are_refused(self, options):
        with pytest.raises(PosgeomError):
            make_encoding(f"mrope:dim=16,{options}")
