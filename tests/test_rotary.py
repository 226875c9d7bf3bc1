"""Rotary encodings: what all of them keep, their pairings, partial ones, xPos."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from posgeom import PosgeomError, make_encoding
from posgeom.encodings import convert_pairing, pairing_order

RNG = np.random.default_rng(0)
EIGHT = ";".join(str(1 + k / 4) for k in range(8))
SIXTEENS = ";".join(str(2 + 2 * k) for k in range(8))

SCALED = [
    "rope:dim=16",
    "rope:dim=16,rotary=0.5",
    "rope:dim=16,inv_freq=1;0.5;0.25;0.1;0.05;0.02;0.01;0",
    "rope:dim=16,scaling=linear,factor=4",
    "rope:dim=16,scaling=ntk,factor=4",
    "rope:dim=16,scaling=dynamic,factor=2,original_length=32",
    "rope:dim=16,scaling=yarn,factor=4,original_length=256",
    "rope:dim=16,scaling=yarn-paper,factor=4,original_length=256",
    f"rope:dim=16,scaling=longrope,factor=4,original_length=64,short_factor={EIGHT},"
    f"long_factor={SIXTEENS}",
    "rope:dim=16,scaling=llama3,factor=8,original_length=256,low_freq_factor=1,high_freq_factor=4",
    "rope:dim=16,scaling=proportional,rotary=0.5",
    "xpos:dim=16",
    "mrope:dim=16",
    "mrope:dim=16,sections=2;3;3",
    "mrope:dim=16,arrangement=interleaved",
]
BY_NAME = {spec: spec.partition(",short")[0] for spec in SCALED}


def scores(e, q, k, m, n):
    return float((e.rotate(q[None], [m], length=50) @ e.rotate(k[None], [n], length=50).T)[0, 0])


@pytest.mark.parametrize("spec", SCALED, ids=BY_NAME.get)
class TestEveryRotary:
    @given(m=st.integers(0, 10**4), n=st.integers(0, 10**4), shift=st.integers(-(10**4), 10**4))
    @settings(deadline=None, max_examples=25)
    def test_scores_depend_on_the_offset_only_and_norms_are_kept(self, spec, m, n, shift):
        e = make_encoding(spec)
        q, k = np.random.default_rng(m).standard_normal((2, 16))
        here, there = scores(e, q, k, m, n), scores(e, q, k, m + shift, n + shift)
        assert here == pytest.approx(there, abs=1e-7)
        x = np.ones((1, 16))
        turned = e.rotate(x, [m])
        first = e.full_cos_sin([m])
        assert np.hypot(*first)[0, 0] == pytest.approx(e.attention_factor)
        if e.attention_factor == 1:
            assert np.linalg.norm(turned) == pytest.approx(4)

    def test_rotations_add(self, spec):
        """M_k M_l = M_{k+l}, at one length of the sequence."""
        e = make_encoding(spec)
        x, a = RNG.standard_normal((1, 16)), e.attention_factor
        two = e.rotate(e.rotate(x, [7], length=50), [30], length=50)
        once = e.rotate(x, [37], length=50)
        turns = np.flatnonzero(e.full_cos_sin([37], length=50)[1][0])
        np.testing.assert_allclose(two[:, turns], a * once[:, turns], atol=1e-12)

    def test_both_pairings_agree_after_the_conversion(self, spec):
        e = make_encoding(spec)
        halves, pairs = (
            make_encoding(f"{spec}{',' if ':' in spec else ':'}pairing={p}")
            for p in ("halves", "interleaved")
        )
        q, k = RNG.standard_normal((2, 20, 16))
        order = pairing_order(16, "interleaved", "halves", 2 * e.n_pairs)
        a = pairs.rotate(q, range(20)) @ pairs.rotate(k, range(20)).T
        b = halves.rotate(q[:, order], range(20)) @ halves.rotate(k[:, order], range(20)).T
        np.testing.assert_allclose(a, b, atol=1e-12)

    def test_distances_are_toeplitz_and_those_of_a_turned_vector(self, spec):
        e = make_encoding(spec)
        D = e.distances(range(60))
        assert all(np.ptp(np.diagonal(D, k)) == 0 for k in range(60))
        if e.family != "xpos":
            cos, sin = e.cos_sin(range(60))
            rows = np.hstack([cos, sin]) / e.attention_factor
            np.testing.assert_allclose(D, cdist(rows, rows), atol=1e-7)

    @pytest.mark.parametrize("n", [1, 2, 4_096])
    def test_distances_are_finite_symmetric_and_zero_on_the_diagonal(self, spec, n):
        D = make_encoding(spec).distances(np.arange(n))
        assert np.isfinite(D).all()
        assert (D == D.T).all()
        assert not D.diagonal().any()

    def test_positions_may_start_anywhere_and_be_fractions(self, spec):
        """A cached table must not start at 0 again: position 1,000 is the row 1,000."""
        e = make_encoding(spec)
        cos, sin = e.cos_sin(range(1_010))
        for given_ in (np.arange(1_000, 1_010), np.arange(1_000.0, 1_010)):
            np.testing.assert_array_equal(e.cos_sin(given_)[0], cos[1_000:])
            np.testing.assert_array_equal(e.cos_sin(given_)[1], sin[1_000:])
        half = e.cos_sin([999.5, 1_009])[0][0]
        want = e.attention_factor * np.cos(999.5 * e.frequencies_at(1_010))
        np.testing.assert_allclose(half, want, atol=1e-12)
        np.testing.assert_allclose(
            e.distances([999.5, 1_009])[0, 1], e.distances([1_009, 999.5])[1, 0]
        )


class TestPairing:
    def test_cosines_are_repeated_or_tiled_by_the_pairing(self):
        """d = 4: repeat_interleave for neighbours, repeat for halves."""
        c0, c1 = np.cos(3), np.cos(0.03)
        full = {
            p: make_encoding(f"rope:dim=4,pairing={p}").full_cos_sin([3])[0][0]
            for p in ("interleaved", "halves")
        }
        np.testing.assert_allclose(full["interleaved"], [c0, c0, c1, c1])
        np.testing.assert_allclose(full["halves"], [c0, c1, c0, c1])

    def test_rotation_by_full_cosines_is_the_rotation(self):
        """x·cos + turn(x)·sin, turn(x) = (−x1, x0, …) or (−x_half2, x_half1)."""
        x = RNG.standard_normal((9, 8))
        e = make_encoding("rope:dim=8")
        cos, sin = e.full_cos_sin(range(9))
        turn = np.stack([-x[:, 1::2], x[:, 0::2]], axis=-1).reshape(9, 8)
        np.testing.assert_allclose(e.rotate(x, range(9)), x * cos + turn * sin)
        e = make_encoding("rope:dim=8,pairing=halves")
        cos, sin = e.full_cos_sin(range(9))
        turn = np.hstack([-x[:, 4:], x[:, :4]])
        np.testing.assert_allclose(e.rotate(x, range(9)), x * cos + turn * sin)

    def test_halves_back_are_halves_turned_the_other_way(self):
        x = np.random.default_rng(0).standard_normal((6, 8))
        there, back = (make_encoding(f"rope:dim=8,pairing={p}") for p in ("halves", "halves-back"))
        p = np.arange(6)
        np.testing.assert_allclose(back.rotate(x, p), there.rotate(x, -p), atol=1e-12)
        np.testing.assert_array_equal(back.distances(p), there.distances(p))
        order = pairing_order(8, "halves-back", "halves")
        scores = back.rotate(x, p) @ back.rotate(x, p).T
        moved = there.rotate(x[:, order], p)
        np.testing.assert_allclose(moved @ moved.T, scores, atol=1e-12)

    def test_orders_are_permutations_and_each_others_inverse(self):
        there = pairing_order(12, "interleaved", "halves", 8)
        back = pairing_order(12, "halves", "interleaved", 8)
        assert sorted(there) == list(range(12))
        assert there[8:].tolist() == [8, 9, 10, 11]
        assert there[back].tolist() == list(range(12))
        assert pairing_order(4, "interleaved", "halves").tolist() == [0, 2, 1, 3]

    def test_converted_weights_give_the_same_scores(self):
        """W_q and W_k of Llama's first files, interleaved, as Hugging Face stores them."""
        heads, d, width, n = 3, 8, 10, 6
        W_q, W_k = RNG.standard_normal((2, heads * d, width))
        x = RNG.standard_normal((n, width))

        def all_scores(W_q, W_k, pairing):
            e = make_encoding(f"rope:dim={d},pairing={pairing}")
            q, k = ((x @ W.T).reshape(n, heads, d) for W in (W_q, W_k))
            q, k = (e.rotate(y, range(n), axis=0) for y in (q, k))
            return np.einsum("mhd,nhd->hmn", q, k)

        to = [convert_pairing(W, heads, "interleaved", "halves") for W in (W_q, W_k)]
        np.testing.assert_allclose(
            all_scores(W_q, W_k, "interleaved"), all_scores(*to, "halves"), atol=1e-12
        )
        back = convert_pairing(to[0], heads, "halves", "interleaved")
        np.testing.assert_array_equal(back, W_q)
        bias = convert_pairing(W_q[:, 0], heads, "interleaved", "halves")
        np.testing.assert_array_equal(bias, to[0][:, 0])

    @pytest.mark.parametrize(("rows", "heads"), [(10, 3), (9, 0), (9, 3)])
    def test_rows_that_are_no_heads_or_pairs_are_refused(self, rows, heads):
        with pytest.raises(PosgeomError):
            convert_pairing(np.ones((rows, 2)), heads, "interleaved", "halves")

    def test_a_rotation_over_the_heads_is_noticed(self):
        e = make_encoding("rope:dim=8")
        x = RNG.standard_normal((2, 5, 3, 8))  # batch, positions, heads, d
        with pytest.raises(PosgeomError, match="axis=-3"):
            e.rotate(x, range(5))
        right = e.rotate(x, range(5), axis=-3)
        np.testing.assert_allclose(
            right, np.swapaxes(e.rotate(np.swapaxes(x, 1, 2), range(5)), 1, 2)
        )
        with pytest.raises(PosgeomError, match="last axis"):
            e.rotate(x[..., :7], range(5), axis=-3)
        with pytest.raises(PosgeomError, match="axis"):
            e.rotate(x, range(8), axis=-1)


class TestPartial:
    def test_untouched_slots_stay_and_add_nothing_to_the_distance(self):
        e, whole = make_encoding("rope:dim=16,rotary=0.75"), make_encoding("rope:dim=12")
        x = RNG.standard_normal((7, 16))
        turned = e.rotate(x, range(7))
        np.testing.assert_array_equal(turned[:, 12:], x[:, 12:])
        np.testing.assert_array_equal(turned[:, :12], whole.rotate(x[:, :12], range(7)))
        np.testing.assert_array_equal(e.distances(range(30)), whole.distances(range(30)))

    def test_halves_are_those_of_the_slots_that_turn(self):
        cos, _ = make_encoding("rope:dim=8,rotary=0.5,pairing=halves").full_cos_sin([1])
        np.testing.assert_allclose(cos[0], [np.cos(1), np.cos(0.01)] * 2 + [1] * 4)

    @pytest.mark.parametrize("share", ["0.75", "0.2", "0", "1.5", "-1"])
    def test_shares_without_whole_pairs_are_refused(self, share):
        """0.75 of 4 is 3 slots: no pairs."""
        with pytest.raises(PosgeomError):
            make_encoding(f"rope:dim=4,rotary={share}")

    def test_own_frequencies(self):
        e = make_encoding("rope:dim=4,inv_freq=1;0.1")
        assert e.inv_freq.tolist() == [1, 0.1]
        for bad in ("1", "1;2;3", "1;-1", "1;x", "1;0.1,scaling=linear,factor=2"):
            with pytest.raises(PosgeomError):
                make_encoding(f"rope:dim=4,inv_freq={bad}")

    def test_energies_of_the_content_weigh_the_pairs(self):
        e = make_encoding("rope:dim=4,weights=3;0.5")
        t = np.arange(9)
        want = np.sqrt(2 * (3 * (1 - np.cos(t)) + 0.5 * (1 - np.cos(0.01 * t))))
        np.testing.assert_allclose(e.distances(t)[0], want, atol=1e-12)
        x = np.sqrt([[3, 0, 0.5, 0]])  # a vector of these energies
        rows = np.vstack([e.rotate(x, [p]) for p in t])
        np.testing.assert_allclose(e.distances(t), cdist(rows, rows), atol=1e-9)
        with pytest.raises(PosgeomError, match="one a pair"):
            make_encoding("rope:dim=4,weights=3")


class TestXPos:
    def test_scores_decay_as_published(self):
        """Σ over pairs of ζ^((i−j)/B) (cos…), against the loops of the formula."""
        e = make_encoding("xpos:dim=8,scale_base=16")
        q, k = RNG.standard_normal((2, 1, 8))
        ζ = (2 * np.arange(4) / 8 + 0.4) / 1.4
        for i, j in ((5, 5), (9, 2), (40, 3)):
            a = e.rotate_scaled(q, [i], key=False) @ e.rotate_scaled(k, [j], key=True).T
            want = 0
            for p in range(4):
                t = (i - j) * 10_000 ** (-2 * p / 8)
                turn = np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]])
                pair = slice(2 * p, 2 * p + 2)
                want += ζ[p] ** ((i - j) / 16) * k[0, pair] @ turn @ q[0, pair]
            assert a[0, 0] == pytest.approx(want)

    def test_a_vast_scale_base_is_rope(self):
        np.testing.assert_allclose(
            make_encoding("xpos:dim=16,scale_base=1e12").distances(range(40)),
            make_encoding("rope:dim=16").distances(range(40)),
            atol=1e-5,
        )

    def test_distance_is_euclidean_and_grows_to_the_norm(self):
        e = make_encoding("xpos:dim=16,scale_base=4")
        D2 = e.distances(range(200)) ** 2
        J = np.eye(200) - 1 / 200
        assert np.linalg.eigvalsh(-J @ D2 @ J).min() > -1e-9
        assert D2[0, -1] == pytest.approx(2 * 8, rel=0.02)

    @pytest.mark.parametrize("options", ["gamma=0", "scale_base=-1", "dim=7"])
    def test_parameters_out_of_range_are_refused(self, options):
        with pytest.raises(PosgeomError):
            make_encoding(f"xpos:{options}")
