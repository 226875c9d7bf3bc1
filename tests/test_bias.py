"""Bias encodings: buckets, clipping, kernels and heads, and the distances that they are read as."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from posgeom import PosgeomError, make_encoding, score_encodings, true_geometry
from posgeom.encodings import Fire, Shaw, T5Bias, t5_bucket

RNG = np.random.default_rng(0)
P = np.arange(40)
BIASES = [
    "alibi",
    "alibi:heads=12,slice=4:8,reading=kernel",
    "alibi:slopes=0.5;0.25",
    "t5",
    "t5:causal=true,heads=3,reading=kernel",
    "kerple:r1=1;0.5,r2=2",
    "kerple:kind=power,r2=0.5,reading=kernel",
    "sandwich",
    "sandwich:heads=12,dim=64,reading=kernel",
]


def toeplitz(D):
    return all(np.ptp(np.diagonal(D, k)) == 0 for k in range(len(D)))


@pytest.mark.parametrize("spec", BIASES)
class TestEveryBias:
    def test_bias_is_a_function_of_the_offset(self, spec):
        e = make_encoding(spec)
        for h in (0, e.heads - 1):
            b = e.bias(h, P, P)
            assert b.shape == (40, 40)
            np.testing.assert_array_equal(b, e.bias(h, P + 500, P + 500))
            np.testing.assert_array_equal(b[5:9, 2:3], e.bias(h, P[5:9], [2]))
        for h in (-1, e.heads):
            with pytest.raises(PosgeomError, match="no head"):
                e.bias(h, P, P)

    def test_used_both_ways_it_is_symmetric(self, spec):
        """A sign lost on the way would reward keys that are far ahead."""
        e = make_encoding(spec)
        b = e.bias(0, P, P)
        if not e.causal:
            np.testing.assert_array_equal(b, b.T)
        assert (np.diff(b[-1]) >= 0).all() or e.family == "sandwich"
        assert b[0, 0] == b.max()

    def test_causal_hides_the_keys_ahead_and_nothing_else(self, spec):
        e = make_encoding(spec)
        if e.family == "t5":
            return  # its causal form has other buckets
        causal = make_encoding(f"{spec}{',' if ':' in spec else ':'}causal=true")
        a, b = e.bias(0, P, P), causal.bias(0, P, P)
        assert np.isneginf(b[np.triu_indices(40, 1)]).all()
        np.testing.assert_array_equal(a[np.tril_indices(40)], b[np.tril_indices(40)])
        np.testing.assert_array_equal(e.distances(P), causal.distances(P))

    def test_readings_are_those_of_the_biases(self, spec):
        for reading in ("linear", "kernel"):
            e = make_encoding(spec.replace(",reading=kernel", ""))
            joint = "," if ":" in e.spec else ":"
            e = make_encoding(f"{e.spec}{joint}reading={reading}")
            assert toeplitz(e.distances(P))
            squares = 0
            for h in e.chosen:
                b = e.bias(h, P, P)
                fall = np.diag(b)[:, None] - np.where(np.isneginf(b), b.T, b)
                squares = squares + (fall**2 if reading == "linear" else 2 * fall)
            np.testing.assert_allclose(e.distances(P), np.sqrt(squares), atol=1e-7)

    @pytest.mark.parametrize("n", [1, 2, 4_096])
    def test_distances_are_finite_symmetric_and_zero_on_the_diagonal(self, spec, n):
        D = make_encoding(spec).distances(np.arange(n))
        assert np.isfinite(D).all()
        assert (D == D.T).all()
        assert not D.diagonal().any()


class TestHeads:
    def test_own_slopes_are_as_many_as_heads(self):
        e = make_encoding("alibi:slopes=0.5;0.25;0.1")
        assert e.heads == 3
        assert e.slopes.tolist() == [0.5, 0.25, 0.1]
        np.testing.assert_allclose(e.bias(2, [0], range(3)), [[0, -0.1, -0.2]])

    def test_a_slice_is_its_heads_side_by_side(self):
        both = make_encoding("alibi:heads=8,slice=2:4").distances(P)
        each = [make_encoding(f"alibi:heads=8,head={h}").distances(P) for h in (2, 3)]
        np.testing.assert_allclose(both, np.hypot(*each))

    @pytest.mark.parametrize(
        "option",
        [
            "slice=4",
            "slice=4:4",
            "slice=0:9",
            "slice=a:b",
            "slice=0:2,head=1",
            "slopes=-1",
            "bias_max=0",
            "form=odd",
        ],
    )
    def test_heads_that_are_not_there_are_refused(self, option):
        with pytest.raises(PosgeomError):
            make_encoding(f"alibi:heads=8,{option}")

    def test_each_head_of_any_bias_can_have_a_row(self):
        profiles = np.random.default_rng(1).dirichlet(np.ones(5), 10)
        scores = score_encodings(true_geometry(profiles), ["sandwich:heads=2"], per_head=True)
        assert scores["encoding"].tolist() == [
            "sandwich:heads=2",
            "sandwich:heads=2,head=0",
            "sandwich:heads=2,head=1",
        ]
        chosen = ["sandwich:head=1", "sandwich:slice=0:2"]
        scores = score_encodings(true_geometry(profiles), chosen, per_head=True)
        assert scores["encoding"].tolist() == chosen


class TestT5:
    def test_buckets_of_the_published_code(self):
        """32 buckets both ways: 8 exact offsets, 8 log-spaced to 128; the upper half is ahead."""
        assert t5_bucket([0, -1, -7, -8, 1, 7]).tolist() == [0, 1, 7, 8, 17, 23]
        assert t5_bucket([-8, -12, -16, -32, -64, -128]).tolist() == [8, 9, 10, 12, 14, 15]
        assert t5_bucket([-1, 0, 1, 5], bidirectional=False).tolist() == [1, 0, 0, 0]
        assert t5_bucket([-15, -16, -127, -128], bidirectional=False).tolist() == [15, 16, 31, 31]

    def test_far_past_the_maximum_all_is_one_bucket(self):
        assert t5_bucket([-128, -(10**6), -(10**12)]).tolist() == [15, 15, 15]
        assert t5_bucket([128, 10**6, 10**12]).tolist() == [31, 31, 31]
        D = make_encoding("t5").distances([0, 128, 10**6])
        assert D[0, 1] == D[0, 2]

    @given(st.integers(0, 10**5), st.sampled_from([4, 32, 64]), st.sampled_from([40, 128, 999]))
    @settings(deadline=None)
    def test_the_sign_chooses_the_half_and_nothing_else(self, t, buckets, longest):
        back = t5_bucket(-t, True, buckets, longest)
        ahead = t5_bucket(t, True, buckets, longest)
        assert ahead - back == (buckets // 2 if t else 0)
        assert back <= t5_bucket(-t - 1, True, buckets, longest) < buckets // 2

    @given(st.integers(1, 10**6))
    @settings(deadline=None)
    def test_a_bucket_begins_where_whole_numbers_say(self, t):
        """⌊8·log(t/8)/log 16⌋ without logarithms: t^8·… compared as integers."""
        v = int(t5_bucket(-t))
        if t < 8:
            assert v == t
        elif v < 15:
            assert 16 ** (v - 8) * 8**8 <= t**8 < 16 ** (v - 7) * 8**8
        else:
            assert t**8 >= 16**7 * 8**8

    def test_keys_behind_and_ahead_read_their_own_numbers(self):
        numbers = np.arange(64.0).reshape(32, 2)
        e = T5Bias(array=numbers)
        b = e.bias(1, range(4), range(4))
        assert b[3, 1] == numbers[2, 1]  # key 2 behind
        assert b[1, 3] == numbers[18, 1]  # key 2 ahead
        assert b[2, 2] == numbers[0, 1]

    def test_tables_come_from_files_and_specs(self, tmp_path):
        table = RNG.standard_normal((32, 3)).astype(np.float32)
        name = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        save_file({name: table, "other": np.ones((4, 4), np.float32)}, tmp_path / "m.safetensors")
        e = make_encoding(f"t5:table={tmp_path / 'm.safetensors'}")
        np.testing.assert_array_equal(e.numbers, table)
        assert (e.heads, e.n_parameters, e.note) == (3, 96, "")
        same = make_encoding(f"t5:table={tmp_path / 'm.safetensors'}#{name}")
        np.testing.assert_array_equal(same.numbers, table)
        small = make_encoding("t5:buckets=4,max_distance=9,causal=true,values=0;-1;-2;-5")
        np.testing.assert_array_equal(small.bias(0, [20], [20, 19, 18, 0]), [[0, -1, -2, -5]])
        assert "stands in" in make_encoding("t5").note

    def test_a_bias_that_rises_has_no_kernel_there(self):
        e = make_encoding("t5:buckets=4,max_distance=9,causal=true,values=0;1;-2;-5,reading=kernel")
        assert e.distances(range(3))[0].tolist() == [0, 0, 2]

    @pytest.mark.parametrize(
        "options",
        ["buckets=31", "buckets=2", "max_distance=8", "values=1;2", "table=gone.npy", "heads=0"],
    )
    def test_what_makes_no_buckets_is_refused(self, options):
        with pytest.raises(PosgeomError):
            make_encoding(f"t5:{options}")


class TestShaw:
    def test_offsets_are_clipped_at_the_maximum(self):
        e = Shaw(array=RNG.standard_normal((9, 6)))  # k = 4
        a = e.relative(range(12), range(12))
        np.testing.assert_array_equal(a[0, 4], e.vectors[8])
        np.testing.assert_array_equal(a[0, 5], e.vectors[8])  # max + 1
        np.testing.assert_array_equal(a[11, 0], e.vectors[0])
        np.testing.assert_array_equal(a[3, 1], e.vectors[2])  # key 2 behind is −2
        D = e.distances(range(12))
        assert D[0, 4] == D[0, 5] == D[0, 11]
        assert D[0, 3] != D[0, 4]
        assert toeplitz(D)
        want = np.sqrt(sum(((e.vectors[4 + s] - e.vectors[4]) ** 2).sum() for s in (2, -2)) / 2)
        assert D[0, 2] == pytest.approx(want)

    def test_the_logit_is_that_of_added_keys(self):
        """q_i·(k_j + a_ij) − q_i·k_j."""
        e = make_encoding("shaw:dim=5,clip=2")
        q, k = RNG.standard_normal((2, 6, 5))
        a = e.relative(range(6), range(6))
        want = [[q[i] @ (k[j] + a[i, j]) - q[i] @ k[j] for j in range(6)] for i in range(6)]
        np.testing.assert_allclose(e.bias(q, range(6), range(6)), want)
        with pytest.raises(PosgeomError, match="queries"):
            e.bias(q[:3], range(6), range(6))

    def test_vectors_come_from_files(self, tmp_path):
        np.save(tmp_path / "a.npy", RNG.standard_normal((7, 4)))
        e = make_encoding(f"shaw:table={tmp_path / 'a.npy'}")
        assert (e.clip, e.dim, e.n_parameters, e.note) == (3, 4, 28, "")
        np.save(tmp_path / "b.npy", RNG.standard_normal((6, 4)))
        for bad in (f"table={tmp_path / 'b.npy'}", "clip=0", "dim=0"):
            with pytest.raises(PosgeomError):
                make_encoding(f"shaw:{bad}")


class TestFormulas:
    def test_kerple(self):
        log = make_encoding("kerple:r1=2,r2=0.5").bias(0, [9], range(10))[0]
        np.testing.assert_allclose(log, [-2 * np.log(1 + 0.5 * (9 - j)) for j in range(10)])
        power = make_encoding("kerple:kind=power,r1=2,r2=1.5").bias(0, [9], range(10))[0]
        np.testing.assert_allclose(power, [-2 * (9 - j) ** 1.5 for j in range(10)])
        e = make_encoding("kerple:r1=1;2;3,r2=1;1;4")
        assert (e.heads, e.n_parameters) == (3, 6)
        assert e.bias(2, [1], [0])[0, 0] == pytest.approx(-3 * np.log(5))

    def test_kerple_of_power_one_is_alibi(self):
        np.testing.assert_allclose(
            make_encoding("kerple:kind=power,r1=0.5").distances(P),
            make_encoding("alibi:slopes=0.5").distances(P),
        )

    @pytest.mark.parametrize("options", ["kind=log,r2=3", "kind=power,r2=1.9", "kind=power,r2=0.3"])
    def test_kerples_kernel_is_euclidean(self, options):
        D2 = make_encoding(f"kerple:{options},reading=kernel").distances(P) ** 2
        J = np.eye(40) - 1 / 40
        assert np.linalg.eigvalsh(-J @ D2 @ J).min() > -1e-9

    @pytest.mark.parametrize(
        "options", ["kind=odd", "r1=0", "r2=-1", "kind=power,r2=2.5", "heads=4,r1=1;2"]
    )
    def test_kerple_out_of_range_is_refused(self, options):
        with pytest.raises(PosgeomError):
            make_encoding(f"kerple:{options}")

    def test_sandwich_is_the_published_product_of_sinusoids(self):
        """Chi et al. (2023), appendix: PE·PEᵀ divided by (1..H)·8/H; less d̄/2, a constant."""
        PE = make_encoding("sinusoidal:dim=128").table(P)
        ratios = np.arange(1, 13) * 8 / 12
        e = make_encoding("sandwich:heads=12")
        for h in (0, 5, 11):
            np.testing.assert_allclose(e.bias(h, P, P), (PE @ PE.T - 64) / ratios[h], atol=1e-12)

    def test_sandwichs_kernel_is_the_sinusoids_distance(self):
        e = make_encoding("sandwich:heads=1,dim=64,reading=kernel")
        want = make_encoding("sinusoidal:dim=64").distances(P) / np.sqrt(8)
        np.testing.assert_allclose(e.distances(P), want)

    def test_fire_by_hand(self):
        e = make_encoding("fire:c=0.5,threshold=4")
        b = e.bias(0, range(10), range(10))
        for i in range(10):
            for j in range(i + 1):
                share = np.log(0.5 * (i - j) + 1) / np.log(0.5 * max(4, i) + 1)
                assert b[i, j] == pytest.approx(-share)
        assert b[9, 0] == -1  # the whole of what the query sees
        D = e.distances(range(10))
        np.testing.assert_allclose(D, -np.tril(b) - np.tril(b).T, atol=1e-12)
        assert not toeplitz(D)
        assert not e.shift_invariant

    def test_fire_with_its_weights(self, tmp_path):
        w1, b1 = RNG.standard_normal((5, 1)), RNG.standard_normal(5)
        w2, b2 = RNG.standard_normal((3, 5)), RNG.standard_normal(3)
        np.savez(tmp_path / "f.npz", **{"0.weight": w1, "0.bias": b1, "2.weight": w2, "2.bias": b2})
        e = make_encoding(f"fire:mlp={tmp_path / 'f.npz'},threshold=4,c=0.5")
        assert (e.heads, e.n_parameters) == (3, 2 + 5 + 5 + 15 + 3)
        x = np.log(0.5 * 3 + 1) / np.log(0.5 * 8 + 1)
        want = w2 @ np.maximum(w1[:, 0] * x + b1, 0) + b2
        np.testing.assert_allclose([e.bias(h, [8], [5])[0, 0] for h in range(3)], want)
        D = e.distances([5, 8])
        at_0 = w2 @ np.maximum(b1, 0) + b2
        assert D[0, 1] == pytest.approx(np.linalg.norm(at_0 - want))
        np.savez(tmp_path / "g.npz", **{"0.weight": w1, "0.bias": b1, "2.weight": w2})
        with pytest.raises(PosgeomError, match=r"no tensor 2\.bias"):
            make_encoding(f"fire:mlp={tmp_path / 'g.npz'}")
        with pytest.raises(PosgeomError, match="layers of shapes"):
            Fire(layers=(w1, b1, w2, b1))

    @pytest.mark.parametrize("options", ["c=0", "threshold=0", "heads=0"])
    def test_fire_out_of_range_is_refused(self, options):
        with pytest.raises(PosgeomError):
            make_encoding(f"fire:{options}")
