"""Encodings against the numbers of their papers, and their properties."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from posgeom import PosgeomError, make_encoding
from posgeom.encodings import (
    FAMILIES,
    Fire,
    FixedTable,
    T5Bias,
    alibi_slopes,
    parse_spec,
    rounded,
    spec_of,
)

SPECS = [
    "sinusoidal",
    "sinusoidal:base=500000",
    "sinusoidal:dim=7",
    "sinusoidal:layout=halves",
    "rope",
    "rope:pairing=halves,dim=64",
    "alibi",
    "alibi:heads=12,reading=kernel",
    "alibi:head=3",
    "random:dim=16",
    "index",
    "normalised-index",
    "normalised-index:length=64",
    "binary",
    "rope:rotary=0.5",
    "rope:scaling=linear,factor=4",
    "rope:scaling=dynamic,factor=2,original_length=64",
    "rope:scaling=yarn,factor=4,original_length=2048",
    "xpos",
    "mrope",
    "t5",
    "t5:causal=true",
    "shaw",
    "kerple",
    "kerple:kind=power,r2=0.5,reading=kernel",
    "sandwich",
    "fire:threshold=8",
]


def turn(angle):
    return np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])


class TestSinusoidal:
    def test_first_vectors_of_dimension_four(self):
        PE = make_encoding("sinusoidal:dim=4").table([1, 2])
        expected = [[0.8415, 0.5403, 0.0100, 1.0000], [0.9093, -0.4161, 0.0200, 0.9998]]
        np.testing.assert_allclose(PE, expected, atol=5e-5)

    @given(st.integers(0, 500), st.integers(0, 500))
    @settings(deadline=None)
    def test_shifts_are_rotations_that_add(self, k, m):
        """M_k PE(p) = PE(p + k) and M_k M_m = M_{k+m}."""
        e = make_encoding("sinusoidal:dim=4")

        def M(shift):
            blocks = np.zeros((4, 4))
            for b, θ in enumerate(e.frequencies):
                blocks[2 * b : 2 * b + 2, 2 * b : 2 * b + 2] = turn(shift * θ)
            return blocks

        PE = e.table([m, k + m])
        np.testing.assert_allclose(M(k) @ PE[0], PE[1], atol=1e-9)
        np.testing.assert_allclose(M(k) @ M(m), M(k + m), atol=1e-9)

    def test_inner_products(self):
        PE = make_encoding("sinusoidal:dim=4").table(range(4))
        G = PE @ PE.T
        assert G[0, 1] == pytest.approx(1.5403, abs=5e-5)
        assert G[1, 2] == pytest.approx(1.5403, abs=5e-5)
        assert G[0, 2] == pytest.approx(0.5837, abs=1e-4)
        assert G[0, 3] == pytest.approx(0.00956, abs=5e-6)

    @pytest.mark.parametrize("dim", [2, 4, 128, 512])
    def test_norm_is_the_root_of_half_the_dimension(self, dim):
        PE = make_encoding(f"sinusoidal:dim={dim}").table(range(1_000))
        np.testing.assert_allclose((PE**2).sum(axis=1), dim / 2)

    @pytest.mark.parametrize(("dim", "last"), [(4, 628), (512, 60_611)])
    def test_positions_are_told_apart_for_one_turn_of_the_slowest_pair(self, dim, last):
        slowest = make_encoding(f"sinusoidal:dim={dim}").frequencies[-1]
        assert int(2 * np.pi / slowest) == last

    def test_wavelengths_of_dimension_32(self):
        wavelengths = 2 * np.pi / make_encoding("sinusoidal:dim=32").frequencies
        np.testing.assert_allclose(wavelengths[[0, 7, 15]], [6.3, 353, 35_333], rtol=5e-3)
        assert (wavelengths > 2_048).sum() == 5

    @pytest.mark.parametrize(
        ("base", "gap", "cosine"),
        [(1e4, 1, 0.957), (1e4, 8, 0.658), (1e4, 64, 0.537), (5e5, 64, 0.668)],
    )
    def test_mean_cosine_at_a_gap(self, base, gap, cosine):
        e = make_encoding(f"sinusoidal:dim=32,base={base}")
        assert np.cos(gap * e.frequencies).mean() == pytest.approx(cosine, abs=5e-4)
        squared = e.distances([0, gap])[0, 1] ** 2
        assert 1 - squared / 32 == pytest.approx(cosine, abs=5e-4)

    def test_norm_of_dimension_32_is_four(self):
        assert np.linalg.norm(make_encoding("sinusoidal:dim=32").table([77])) == pytest.approx(4)

    def test_fractional_positions_interpolate(self):
        """Four times the length: 8192·θ_4 = 819.2 is brought back to 204.8."""
        θ = make_encoding("sinusoidal:dim=32").frequencies[4]
        assert pytest.approx(819.2) == 8_192 * θ
        e = make_encoding("rope:dim=32")
        cos, sin = e.cos_sin([8_192 / 4])
        assert cos[0, 4] == pytest.approx(np.cos(204.8))
        assert sin[0, 4] == pytest.approx(np.sin(204.8))

    def test_adding_positions_is_not_relative(self):
        PE, x = make_encoding("sinusoidal:dim=2").table(range(3)), np.array([1, 0])
        assert (x + PE[0]) @ (x + PE[1]) == pytest.approx(2.3818, abs=5e-5)
        assert (x + PE[1]) @ (x + PE[2]) == pytest.approx(3.2911, abs=5e-5)

    def test_layouts_are_one_table_in_two_orders(self):
        a = make_encoding("sinusoidal:dim=6").table(range(9))
        b = make_encoding("sinusoidal:dim=6,layout=halves").table(range(9))
        np.testing.assert_array_equal(a[:, [0, 2, 4, 1, 3, 5]], b)

    @pytest.mark.parametrize("dim", [1, 3, 127])
    def test_an_odd_dimension_ends_with_a_sine(self, dim):
        e = make_encoding(f"sinusoidal:dim={dim}")
        PE = e.table(range(50))
        assert PE.shape == (50, dim)
        np.testing.assert_allclose(PE[:, -1], np.sin(np.arange(50) * e.frequencies[-1]))
        assert not e.shift_invariant
        np.testing.assert_allclose(e.distances(range(50)), cdist(PE, PE), atol=1e-6)

    def test_distances_are_those_of_the_rows(self):
        e = make_encoding("sinusoidal")
        PE = e.table(range(200))
        np.testing.assert_allclose(e.distances(range(200)), cdist(PE, PE), atol=1e-12)


class TestRope:
    def test_scores_of_dimension_two(self):
        """θ = π/6: (1, 2)·(3, 1) gives 6.8301 at an offset of 2 and 5 at one of 3."""
        e, q, k = make_encoding("rope:dim=2"), np.array([[1.0, 2]]), np.array([[3.0, 1]])

        def score(m, n, θ=np.pi / 6):
            return float((e.rotate(q, [m * θ]) @ e.rotate(k, [n * θ]).T)[0, 0])

        assert score(1, 3) == pytest.approx(6.8301, abs=5e-5)
        assert score(5, 7) == pytest.approx(6.8301, abs=5e-5)
        assert score(1, 4) == pytest.approx(5)

    def test_the_same_scores_by_own_frequencies(self):
        e = make_encoding(f"rope:dim=2,inv_freq={np.pi / 6!r}")
        q, k = np.array([[1.0, 2]]), np.array([[3.0, 1]])
        for m, n, score in ((1, 3, 6.8301), (5, 7, 6.8301), (501, 503, 6.8301), (1, 4, 5)):
            ours = (e.rotate(q, [m]) @ e.rotate(k, [n]).T).item()
            assert ours == pytest.approx(score, abs=5e-5)

    @pytest.mark.parametrize(("offset", "expected"), [(1, -1), (0, 0), (-1, 1)])
    def test_scores_of_quarter_turns(self, offset, expected):
        e = make_encoding("rope:dim=2")
        q, k = e.rotate([[1.0, 0]], [0]), e.rotate([[0.0, 1]], [offset * np.pi / 2])
        assert float((q @ k.T)[0, 0]) == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize("pairing", ["interleaved", "halves"])
    def test_rotation_keeps_norms_and_sees_offsets_only(self, pairing):
        e = make_encoding(f"rope:dim=16,pairing={pairing}")
        rng = np.random.default_rng(0)
        q, k = rng.standard_normal((2, 3, 5, 16))
        p = np.arange(5)
        turned = e.rotate(q, p)
        np.testing.assert_allclose(np.linalg.norm(turned, axis=-1), np.linalg.norm(q, axis=-1))
        here = turned @ e.rotate(k, p).swapaxes(-1, -2)
        there = e.rotate(q, p + 500) @ e.rotate(k, p + 500).swapaxes(-1, -2)
        np.testing.assert_allclose(here, there, atol=1e-9)

    def test_pairings_agree_after_a_permutation_and_differ_without(self):
        a, b = make_encoding("rope:dim=16"), make_encoding("rope:dim=16,pairing=halves")
        x = np.random.default_rng(1).standard_normal((4, 16))
        order = np.concatenate([np.arange(0, 16, 2), np.arange(1, 16, 2)])
        np.testing.assert_allclose(
            a.rotate(x, range(4))[:, order], b.rotate(x[:, order], range(4)), atol=1e-12
        )
        assert np.abs(a.rotate(x, range(4)) - b.rotate(x, range(4))).max() > 0.1

    def test_slot_five_of_sixteen_turns_31_6_times_slower_in_halves(self):
        x = np.zeros((1, 16))
        x[0, 5] = 1
        angle = {
            pairing: np.arccos(make_encoding(f"rope:dim=16,pairing={pairing}").rotate(x, [1])[0, 5])
            for pairing in ("interleaved", "halves")
        }
        assert angle["interleaved"] / angle["halves"] == pytest.approx(31.6, abs=0.05)

    def test_distances_are_the_sinusoids_with_the_same_frequencies(self):
        for base in (10_000, 500_000):
            np.testing.assert_array_equal(
                make_encoding(f"rope:base={base}").distances(range(99)),
                make_encoding(f"sinusoidal:base={base}").distances(range(99)),
            )

    @pytest.mark.parametrize("dim", [1, 3, 65, 127])
    def test_an_odd_head_is_refused(self, dim):
        with pytest.raises(PosgeomError, match="even"):
            make_encoding(f"rope:dim={dim}")


class TestAlibi:
    def test_slopes_of_eight_heads_are_halves_of_halves(self):
        np.testing.assert_array_equal(alibi_slopes(8), 0.5 ** np.arange(1, 9))

    @pytest.mark.parametrize(
        ("heads", "expected"),
        [
            (1, [2**-8]),
            (3, [2**-4, 2**-8, 2**-2]),
            (6, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]),
            (12, [*(2.0 ** -np.arange(1, 9)), 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]),
        ],
    )
    def test_slopes_of_other_numbers_take_every_other_one_of_twice_as_many(self, heads, expected):
        np.testing.assert_allclose(alibi_slopes(heads), expected)

    @pytest.mark.parametrize(("heads", "power"), [(40, 32), (71, 64)])
    def test_slopes_of_many_heads_are_those_of_a_power_and_some_between(self, heads, power):
        slopes = alibi_slopes(heads)
        for h in range(1, power + 1):
            assert slopes[h - 1] == 2 ** (-8 * h / power)
        for extra in range(1, heads - power + 1):
            assert slopes[power + extra - 1] == 2 ** (-8 * (2 * extra - 1) / (2 * power))
        assert len(set(slopes)) == len(slopes) == heads

    def test_bias_is_symmetric_and_falls_with_the_offset(self):
        b = make_encoding("alibi:heads=8").bias(1, range(5), range(5))
        np.testing.assert_array_equal(b, b.T)
        np.testing.assert_allclose(b[0], -0.25 * np.arange(5))

    def test_readings(self):
        t = np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
        line = make_encoding("alibi:head=0").distances(range(6))
        kernel = make_encoding("alibi:head=0,reading=kernel").distances(range(6))
        np.testing.assert_allclose(line, t / 2)
        np.testing.assert_allclose(kernel, np.sqrt(2 * t / 2))

    @pytest.mark.parametrize("reading", ["linear", "kernel"])
    def test_all_heads_are_the_heads_side_by_side(self, reading):
        each = [
            make_encoding(f"alibi:heads=6,head={h},reading={reading}").distances(range(9))
            for h in range(6)
        ]
        both = make_encoding(f"alibi:heads=6,reading={reading}").distances(range(9))
        np.testing.assert_allclose(both, np.sqrt(sum(D**2 for D in each)))

    def test_kernel_distance_is_that_of_the_biases(self):
        """b(i, i) + b(j, j) − 2 b(i, j) with the bias as inner product."""
        a = make_encoding("alibi:heads=4,head=2,reading=kernel")
        b = a.bias(2, range(7), range(7))
        np.testing.assert_allclose(a.distances(range(7)) ** 2, -2 * b)

    @pytest.mark.parametrize("spec", ["alibi:heads=0", "alibi:head=8", "alibi:reading=round"])
    def test_what_it_does_not_have_is_refused(self, spec):
        with pytest.raises(PosgeomError):
            make_encoding(spec)


class TestTables:
    def test_random_rows_do_not_depend_on_how_many_are_asked(self):
        e = make_encoding("random:dim=5,seed=3")
        np.testing.assert_array_equal(e.table(range(9))[:4], e.table(range(4)))
        np.testing.assert_array_equal(e.table([7]), e.table(range(9))[[7]])
        assert (e.table([0]) != make_encoding("random:dim=5,seed=4").table([0])).all()

    def test_random_distances_are_near_the_root_of_twice_the_dimension(self):
        D = make_encoding("random:dim=4000").distances(range(20))
        np.testing.assert_allclose(D[np.triu_indices(20, 1)], np.sqrt(8_000), rtol=0.05)

    def test_a_table_finds_its_rows_by_position(self):
        rows = np.arange(6.0).reshape(3, 2)
        table = FixedTable(rows=rows, index=np.array([0, 2, 5]), spec="t")
        np.testing.assert_array_equal(table.table([5, 0]), rows[[2, 0]])
        with pytest.raises(PosgeomError, match="3 has no row"):
            table.table([0, 3])

    @pytest.mark.parametrize("positions", [[-1], [0.5], [3], [np.nan], [[0]], ["a"]])
    def test_positions_without_a_row_are_refused(self, positions):
        with pytest.raises(PosgeomError):
            FixedTable(rows=np.eye(3)).table(positions)


@pytest.mark.parametrize("spec", SPECS)
class TestEvery:
    @pytest.mark.parametrize("n", [1, 2, 300])
    def test_distances_are_finite_symmetric_and_zero_on_the_diagonal(self, spec, n):
        D = make_encoding(spec).distances(np.arange(n))
        assert D.shape == (n, n)
        assert np.isfinite(D).all()
        assert np.array_equal(D, D.T)
        assert not D.diagonal().any()
        assert (D[~np.eye(n, dtype=bool)] > 0).all()

    def test_shift_invariance_is_as_said(self, spec):
        e = make_encoding(spec)
        D = e.distances(np.arange(40))
        toeplitz = all(np.ptp(np.diagonal(D, k)) == 0 for k in range(40))
        assert toeplitz == e.shift_invariant

    def test_a_spec_makes_the_same_encoding_again(self, spec):
        e = make_encoding(spec)
        assert e.name == spec
        np.testing.assert_array_equal(
            make_encoding(e.name).distances(range(9)), e.distances(range(9))
        )


@pytest.mark.parametrize("spec", [s for s in SPECS if make_encoding(s).shift_invariant])
def test_far_and_fractional_positions_agree_with_whole_ones(spec):
    e = make_encoding(spec)
    few = e.distances([0, 3, 1_000])
    np.testing.assert_allclose(few[0, 2], e.distances(np.arange(1_001))[0, 1_000])
    np.testing.assert_allclose(e.distances([0.5, 3.5, 1_000.5]), few, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS)
def test_four_thousand_positions(spec):
    D = make_encoding(spec).distances(np.arange(4_096))
    assert np.isfinite(D).all()
    assert np.array_equal(D, D.T)
    assert not D.diagonal().any()


def test_angles_are_float64_and_rounded_last():
    """float32 does not hold position 2^24 + 1, nor angles that far to a whole turn."""
    far = 2**24 + 1
    for kind in (np.int32, np.int64, np.float64):
        positions = np.array([far], dtype=kind)
        cos, sin = make_encoding("rope:dim=4").cos_sin(positions)
        PE = make_encoding("sinusoidal:dim=4").table(positions)
        for ours, angle in zip((0, 1), (far, far * 0.01), strict=True):
            assert cos[0, ours] == pytest.approx(math.cos(angle), abs=1e-8)
            assert sin[0, ours] == pytest.approx(math.sin(angle), abs=1e-8)
            assert PE[0, 2 * ours] == sin[0, ours]
        assert cos.dtype == sin.dtype == PE.dtype == np.float64
    early = np.cos(np.float32(far) * np.float32(1))
    assert abs(rounded(cos[0, 0], "fp32") - math.cos(far)) < 1e-7 < abs(early - math.cos(far))


def test_a_table_goes_on_where_it_is_asked():
    """An offset of 1,000 is row 1,000, not row 0 again."""
    for spec in ("sinusoidal:dim=8", "sinusoidal:dim=7,layout=halves", "random:dim=8", "index"):
        e = make_encoding(spec)
        np.testing.assert_array_equal(e.table(range(1_000, 1_005)), e.table(range(1_005))[1_000:])
    for spec in ("alibi", "t5", "kerple", "sandwich"):
        e = make_encoding(spec)
        near, far = (e.bias(0, range(n, n + 5), range(n, n + 5)) for n in (0, 1_000))
        np.testing.assert_array_equal(near, far)


def test_defaults_are_for_families_that_have_them():
    assert make_encoding("rope", dim=64, seed=1).dim == 64
    assert make_encoding("rope:dim=32", dim=64).dim == 32
    assert make_encoding("alibi", dim=64, seed=1).heads == 8


def test_specs_come_apart():
    assert parse_spec(" rope: base=5e5 , dim=64").options == {"base": "5e5", "dim": "64"}
    assert parse_spec("learned:C:/x,y=1.npy#k").address == "C:/x,y=1.npy#k"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("rotary", "use one of sinusoidal, rope, alibi"),
        ("", "use one of"),
        ("rope:size=4", "knows dim, base, pairing"),
        ("rope:dim", "key=value"),
        ("rope:dim=", "key=value"),
        ("rope:dim=four", "takes int"),
        ("rope:base=-1", "positive"),
        ("rope:pairing=odd", "use interleaved, halves, halves-back"),
        ("sinusoidal:layout=odd", "interleaved or halves"),
        ("sinusoidal:dim=0", "positive"),
        ("random:dim=0", "positive"),
        ("random:seed=-1", "seed=-1"),
        ("shaw:seed=-1", "seed=-1"),
        ("learned", "learned:PATH"),
    ],
)
def test_broken_specs_are_refused(spec, words):
    with pytest.raises(PosgeomError, match=words):
        make_encoding(spec)


def test_every_family_says_what_it_is():
    for family, cls in FAMILIES.items():
        assert cls.family == family
        assert cls.__doc__


@pytest.mark.parametrize(
    "spec",
    [
        "rope:dim=64",
        "rope:dim=4,inv_freq=0.7071067811865476;1e-05,weights=1;2.5",
        "rope:dim=64,scaling=yarn,factor=4,original_length=2048",
        "alibi:heads=2,slopes=0.3;0.1,reading=kernel",
        "t5:buckets=4,values=0;-1;0;-1.25",
        "kerple:kind=power,r1=0.1,r2=1.5",
        "none",
    ],
)
def test_the_spec_of_an_encoding_makes_it_again_whatever_its_name(spec: str) -> None:
    encoding = make_encoding(spec)
    again = make_encoding(spec_of(replace(encoding, spec="another name")))
    np.testing.assert_array_equal(again.distances(range(9)), encoding.distances(range(9)))


def test_an_array_has_no_spec() -> None:
    for array in (
        T5Bias(buckets=4, array=np.arange(8.0).reshape(4, 2)),
        Fire(layers=(np.ones((2, 1)), np.ones(2), np.ones((3, 2)), np.ones(3))),
    ):
        with pytest.raises(PosgeomError, match="holds an array"):
            spec_of(array)
    with pytest.raises(PosgeomError, match="which no spec can hold"):
        spec_of(FixedTable(rows=np.eye(3)))
