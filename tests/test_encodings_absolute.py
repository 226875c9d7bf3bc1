"""Index, share, bits and none; what number formats keep apart; what each encoding costs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from posgeom import PosgeomError, make_encoding, score_encodings, true_geometry
from posgeom.encodings import FAMILIES, FixedTable, Sinusoidal, first_collision, rounded
from posgeom.encodings.base import distances_between_rows
from posgeom.geometry import Geometry


class TestNumbers:
    def test_index_is_the_position(self):
        e = make_encoding("index")
        assert e.table([3, 5, 2.5]).tolist() == [[3], [5], [2.5]]
        assert e.distances([-2, 5, 0.5])[0].tolist() == [0, 7, 2.5]

    def test_a_share_depends_on_the_length(self):
        """Slot 3 is 0.43 of 8 and 0.05 of 64."""
        e = make_encoding("normalised-index")
        assert e.table(range(8))[3, 0] == pytest.approx(0.43, abs=0.005)
        assert e.table(range(64))[3, 0] == pytest.approx(0.05, abs=0.005)
        fixed = make_encoding("normalised-index:length=64")
        assert fixed.table([3])[0, 0] == pytest.approx(3 / 63)
        np.testing.assert_allclose(e.distances(range(8))[0], np.arange(8) / 7)
        assert e.table([0]).tolist() == [[0]]
        with pytest.raises(PosgeomError, match="length"):
            make_encoding("normalised-index:length=0")

    def test_bits_are_hammings(self):
        e = make_encoding("binary")
        assert e.table([0, 5, 6]).tolist() == [[0, 0, 0], [1, 0, 1], [0, 1, 1]]
        D = e.distances(range(100))
        want = [[np.sqrt((i ^ j).bit_count()) for j in range(100)] for i in range(100)]
        np.testing.assert_array_equal(D, want)
        assert not e.shift_invariant

    @given(st.lists(st.integers(0, 2**40), min_size=1, max_size=20))
    @settings(deadline=None)
    def test_bits_make_the_number_again(self, positions):
        B = make_encoding("binary").table(positions)
        assert (B @ 2.0 ** np.arange(B.shape[1])).tolist() == positions

    @pytest.mark.parametrize("positions", [[-1], [0.5], [8]])
    def test_positions_without_bits_are_refused(self, positions):
        with pytest.raises(PosgeomError):
            make_encoding("binary:bits=3").distances(positions)
        with pytest.raises(PosgeomError, match="bits"):
            make_encoding("binary:bits=0")

    def test_the_length_may_equal_the_maximum(self):
        assert make_encoding("binary:bits=3").distances(range(8)).shape == (8, 8)
        assert FixedTable(rows=np.eye(5)).distances(range(5)).shape == (5, 5)


class TestNone:
    def test_all_distances_are_zero_and_the_stress_is_one(self):
        geometry = true_geometry(np.random.default_rng(0).dirichlet(np.ones(4), 9))
        row = score_encodings(geometry, ["none"]).iloc[0]
        assert (row["stress"], row["separation"], row["family"]) == (1, 0, "none")
        assert "stress 1" in row["note"]
        assert not make_encoding("none").distances([4, 0.5, -3]).any()


class TestGridsAreScored:
    def test_a_2d_rope_and_a_flat_one_are_scored_on_one_grid(self):
        """Encodings of as many axes as the geometry see its cells, the others their numbers."""
        cells = np.column_stack(np.divmod(np.arange(15), 5))
        want = make_encoding("rope-2d:dim=16").distances(cells)
        geometry = Geometry(
            squared=want**2, totals=np.zeros(15, dtype=int), positions=cells, grid=(3, 5)
        )
        specs = ["rope-2d:dim=16", "rope:dim=16", "mrope:dim=16", "mrope:dim=16,axes=2"]
        stress = score_encodings(geometry, specs)["stress"].tolist()
        assert stress[0] == pytest.approx(0, abs=1e-12)
        assert 0.001 < stress[1] == pytest.approx(stress[2])
        assert len(set(stress)) >= 3

    def test_an_encoding_of_grids_needs_a_grid(self):
        geometry = true_geometry(np.random.default_rng(0).dirichlet(np.ones(4), 9))
        with pytest.raises(PosgeomError, match="2 axes"):
            score_encodings(geometry, ["rope-2d:dim=16"])


class TestPrecision:
    def test_scores_name_the_first_position_that_a_format_cannot_tell(self):
        geometry = true_geometry(np.random.default_rng(0).dirichlet(np.ones(4), 300))
        scores = score_encodings(geometry, ["index", "alibi", "sinusoidal", "none"])
        assert scores["equal_bf16"].tolist()[:2] == [257, 257]
        assert scores["equal_fp16"].isna().tolist() == [True, True, True, False]
        assert np.isnan(scores["equal_bf16"][2])
        assert scores["equal_bf16"][3] == 1

    def test_bf16_holds_641_integers_below_2048(self):
        x = rounded(np.arange(2_048), "bf16")
        assert len(set(x.tolist())) == 641

    def test_the_258th_integer_is_the_first_repeat_in_bf16(self):
        """Counting from 0 it is position 257, which becomes 256."""
        x = rounded(np.arange(2_048), "bf16")
        assert len(set(x[:257].tolist())) == 257
        assert x[257] == x[256] == 256
        assert first_collision(make_encoding("index"), "bf16", 2_048) == 257
        assert first_collision(np.arange(2_048), "bf16") == 257
        assert first_collision(np.arange(257), "bf16") is None

    def test_fp16_holds_integers_up_to_2048(self):
        assert first_collision(make_encoding("index"), "fp16", 4_096) == 2_049
        assert first_collision(make_encoding("index"), "fp32", 4_096) is None

    @given(st.floats(width=32, allow_nan=False))
    @settings(deadline=None)
    def test_rounding_is_idempotent_and_to_the_nearest(self, x):
        for dtype, digits in (("bf16", 8), ("fp16", 11)):
            y = rounded([x], dtype)
            np.testing.assert_array_equal(rounded(y, dtype), y)
            if np.isfinite(y).all() and abs(x) > 1e-4:
                assert abs(float(y[0]) - x) <= abs(x) * 2.0**-digits

    def test_infinity_and_nan_stay(self):
        y = rounded([np.inf, -np.inf, np.nan], "bf16")
        assert y[0] == np.inf
        assert y[1] == -np.inf
        assert np.isnan(y[2])

    def test_tables_are_asked_for_their_own_rows_only(self):
        rows = np.array([[1.0, 2], [3, 4], [1.001, 2]])
        assert first_collision(FixedTable(rows=rows), "bf16", 100) == 2
        assert first_collision(FixedTable(rows=rows), "fp32") is None
        assert first_collision(rows, "bf16", 2) is None
        assert first_collision(np.array([[0.0], [-0.0]]), "fp32") == 1

    def test_blocks_do_not_matter(self):
        """Encodings that look at the length are asked at the whole one."""
        e = make_encoding("normalised-index")
        table = rounded(e.table(range(10_000)), "fp16")[:, 0]
        first = next(i for i in range(10_000) if table[i] in table[max(0, i - 9) : i])
        assert first_collision(e, "fp16", 10_000) == first
        assert first_collision(make_encoding("sinusoidal:dim=2,base=1e9"), "fp32", 9_000) is None

    def test_what_cannot_be_answered_is_told(self):
        with pytest.raises(PosgeomError, match="which length"):
            first_collision(make_encoding("index"), "bf16")
        with pytest.raises(PosgeomError, match="fp8"):
            first_collision(np.arange(3), "fp8")


class TestCost:
    def test_of_a_model_of_768_in_12_heads_at_1024(self):
        def cost(spec):
            return make_encoding(spec, dim=64).cost(768, 12, 1_024)

        assert cost("sinusoidal").parameters == 0
        assert cost("sinusoidal").bytes == 4 * 1_024 * 768
        rope = cost("rope")
        assert (rope.parameters, rope.flops, rope.bytes) == (0, 2 * 3 * 768, 4 * 1_024 * 64)
        assert cost("rope:rotary=0.5").flops == 3 * 768
        assert cost("alibi:heads=12").flops == 2 * 12 * 1_024
        assert cost("alibi:heads=12").bytes == 4 * 12
        assert cost("t5").parameters == 32 * 12
        assert cost("shaw:clip=16").parameters == 33 * 64
        assert cost("kerple").parameters == 24
        assert cost("none").flops == 0
        gpt2 = FixedTable(rows=np.zeros((1_024, 768))).cost(768, 12, 1_024)
        assert (gpt2.parameters, gpt2.past_end) == (786_432, "error")

    @pytest.mark.parametrize("family", FAMILIES)
    def test_every_family_says_what_it_costs_and_what_comes_past_its_end(self, family):
        cost = make_encoding(family).cost(768, 12, 1_024)
        assert min(cost.parameters, cost.flops, cost.bytes) >= 0
        assert all(isinstance(x, int) for x in (cost.parameters, cost.flops, cost.bytes))
        assert 0 < len(cost.past_end) < 30


class TestSinusoidSpacing:
    def test_tensor2tensor_ends_at_the_base(self):
        e = make_encoding("sinusoidal:dim=8,spacing=tensor2tensor")
        np.testing.assert_allclose(e.frequencies, 10_000.0 ** (-np.arange(4) / 3))
        np.testing.assert_allclose(
            e.distances(range(30)), cdist(e.table(range(30)), e.table(range(30))), atol=1e-7
        )
        assert Sinusoidal(dim=1, spacing="tensor2tensor").frequencies.tolist() == [1]
        with pytest.raises(PosgeomError, match="spacing"):
            make_encoding("sinusoidal:spacing=odd")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (2, 1), (33, 1), (33, 5), (300, 128)])
def test_distances_between_rows_are_exactly_symmetric(n, d, order):
    X = np.asarray(np.random.default_rng(n).standard_normal((n, d)) + 100, order=order)
    D = distances_between_rows(X)
    assert np.array_equal(D, D.T)
    assert not D.diagonal().any()
    np.testing.assert_allclose(D, cdist(X, X), atol=1e-6)
