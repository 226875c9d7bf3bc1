"""Bias layers against the core's float64, and the Gram bias dense and folded."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch.nn.functional import scaled_dot_product_attention as attention  # noqa: E402

from posgeom.encodings import Fire, T5Bias, make_encoding  # noqa: E402
from posgeom.errors import PosgeomError  # noqa: E402
from posgeom.torch import (  # noqa: E402
    AlibiBias,
    AttentionBias,
    FireBias,
    FoldedBias,
    GramBias,
    KerpleBias,
    OffsetBias,
    RelativeBias,
    fold_bias,
)

torch.set_num_threads(1)
RANDOM = np.random.default_rng(0)


def t5(buckets, heads, **options):
    return T5Bias(array=RANDOM.standard_normal((buckets, heads)), buckets=buckets, **options)


def fire():
    shapes = [(5, 1), (5,), (3, 5), (3,)]
    return Fire(layers=tuple(RANDOM.standard_normal(s) for s in shapes), c=0.3, threshold=20.0)


ENCODINGS = [
    make_encoding("alibi:heads=12"),
    make_encoding("alibi:heads=4,form=keys"),
    make_encoding("alibi:slopes=0.5;0.01,causal=true"),
    t5(32, 3),
    t5(32, 2, causal=True),
    t5(10, 1, max_distance=7),
    t5(24, 2, causal=True, max_distance=1_000),
    make_encoding("kerple:heads=2,r1=0.5;3,r2=0.001;2"),
    make_encoding("kerple:kind=power,r1=0.1;0.2,r2=2;0.5"),
    fire(),
    make_encoding("sandwich:heads=3,dim=16"),
]
NAMES = [f"{number} {e.name}" for number, e in enumerate(ENCODINGS)]
REACH = 300


def wanted(e, i, j):
    return np.stack([e.bias(h, i, j) for h in range(e.heads)])


def layer_of(e, **options):
    return AttentionBias.from_encoding(e, length=REACH, **options)


def equal(ours, theirs):
    """Within 1e-6 of each number, and of 1 for those below 1."""
    np.testing.assert_allclose(ours.detach().double().numpy(), theirs, rtol=1e-6, atol=1e-6)


class TestAgainstTheCore:
    @pytest.mark.parametrize("e", ENCODINGS, ids=NAMES)
    def test_every_offset(self, e):
        p = np.arange(REACH)
        equal(layer_of(e)(REACH), wanted(e, p, p))

    @pytest.mark.parametrize("e", ENCODINGS, ids=NAMES)
    @given(data=st.data())
    @settings(max_examples=15, deadline=None)
    def test_any_positions(self, e, data):
        some = st.lists(st.integers(0, REACH - 1), min_size=1, max_size=6)
        i, j = data.draw(some), data.draw(some)
        equal(layer_of(e)(torch.tensor(i), torch.tensor(j)), wanted(e, i, j))

    @pytest.mark.parametrize("e", ENCODINGS, ids=NAMES)
    def test_each_text_of_a_batch_has_its_positions(self, e):
        p = np.array([[0, 1, 2, 0, 1], [7, 8, 20, 21, 22]])
        ours = layer_of(e)(torch.tensor(p))
        assert ours.shape == (2, e.heads, 5, 5)
        for row in range(2):
            equal(ours[row], wanted(e, p[row], p[row]))

    @pytest.mark.parametrize("e", ENCODINGS, ids=NAMES)
    def test_one_query_of_many_keys(self, e):
        """A token that is decoded with a cache: the last row of the whole."""
        layer = layer_of(e)
        equal(layer(torch.tensor([39]), 40)[:, 0], layer(40)[:, 39].detach().numpy())

    def test_far_offsets_of_t5(self):
        """Bucket borders, where a logarithm in float32 lands on the wrong side."""
        e = t5(32, 1, max_distance=5_000)
        p = np.arange(5_200)
        ours = AttentionBias.from_encoding(e)(torch.tensor([0, 5_100]), torch.tensor(p))
        equal(ours, wanted(e, [0, 5_100], p))

    @pytest.mark.slow
    def test_t5_against_transformers(self):
        code = pytest.importorskip("transformers.models.t5.modeling_t5")
        config = pytest.importorskip("transformers").T5Config(num_heads=3)
        theirs = code.T5Attention(config, has_relative_attention_bias=True)
        layer = RelativeBias(theirs.relative_attention_bias.weight)
        torch.testing.assert_close(layer(200), theirs.compute_bias(200, 200)[0], rtol=0, atol=0)
        layer.load_state_dict(theirs.relative_attention_bias.state_dict())

    @pytest.mark.parametrize("e", ENCODINGS, ids=NAMES)
    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
    def test_positions_of_few_bits(self, e, dtype):
        """3 − 5 is 254 in uint8."""
        layer, p = layer_of(e), torch.tensor([3, 5, 0])
        assert torch.equal(layer(p.to(dtype)), layer(p))

    @pytest.mark.parametrize("e", ENCODINGS, ids=NAMES)
    def test_positions_below_0_are_as_far_apart_as_others(self, e):
        if e.name.startswith("fire") or getattr(e, "form", "") == "keys":
            pytest.skip("these look at the position itself")
        p = torch.tensor([0, 4, 11])
        torch.testing.assert_close(layer_of(e)(p - 7), layer_of(e)(p), rtol=0, atol=0)

    def test_causal_may_be_said(self):
        values = layer_of(ENCODINGS[0], causal=True)(5)
        ahead = torch.ones(5, 5).triu(1).bool()
        assert bool((values[:, ahead] == -torch.inf).all())
        equal(values[:, ~ahead], layer_of(ENCODINGS[0])(5)[:, ~ahead].numpy())


class TestModules:
    @pytest.mark.parametrize("e", ENCODINGS, ids=NAMES)
    def test_states_and_copies(self, e, tmp_path):
        layer = layer_of(e)
        with torch.no_grad():
            for p in layer.parameters():
                p.mul_(1.5)
        torch.save(layer.state_dict(), tmp_path / "state.pt")
        with torch.device("meta"):
            other = layer_of(e)
        other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True), assign=True)
        for same in (other, copy.deepcopy(layer)):
            assert torch.equal(same(6), layer(6))

    @pytest.mark.parametrize("e", ENCODINGS, ids=NAMES)
    def test_logits_are_float32(self, e):
        assert layer_of(e).to(torch.bfloat16)(3).dtype == torch.float32

    @pytest.mark.parametrize("e", ENCODINGS, ids=NAMES)
    def test_autocast_takes_nothing_from_them(self, e):
        layer, gram = layer_of(e), GramBias(RANDOM.standard_normal((40, 5)))
        exact = layer(40), gram(40)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(layer(40), exact[0])
            assert torch.equal(gram(40), exact[1])

    def test_attention_takes_them_beside_queries_in_bfloat16(self):
        q = torch.ones(1, 12, 5, 8, dtype=torch.bfloat16)
        mask = layer_of(ENCODINGS[0])(5)[None]
        assert attention(q, q, q, attn_mask=mask.to(q.dtype)).dtype == torch.bfloat16
        assert attention(q, q, q, attn_mask=mask).dtype == torch.bfloat16

    def test_slopes_survive_bfloat16(self):
        e = make_encoding("alibi:heads=12")
        equal(layer_of(e).to(torch.bfloat16)(100), wanted(e, np.arange(100), np.arange(100)))

    def test_what_is_trained(self):
        counts = [sum(p.numel() for p in layer_of(e).parameters()) for e in ENCODINGS]
        assert counts == [0, 0, 0, 96, 64, 10, 48, 4, 4, 2 + 10 + 18, 0]
        for e in ENCODINGS:
            layer = layer_of(e, trainable=False)
            assert not any(p.requires_grad for p in layer.parameters())

    @pytest.mark.parametrize(
        "e",
        [ENCODINGS[3], ENCODINGS[7], make_encoding("kerple:kind=power,r2=1.5;0.5"), fire()],
        ids=["t5", "log", "power", "fire"],
    )
    def test_gradients(self, e):
        layer = layer_of(e).double()
        names, values = zip(*layer.named_parameters(), strict=True)
        p = torch.tensor([0, 2, 9, 31])

        def f(*values):
            return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (p,))

        assert torch.autograd.gradcheck(f, values)

    def test_kerple_leaves_its_bound(self):
        """r2 = 2 is the largest; a step past it changes nothing, and one back is possible."""
        layer = KerpleBias([1.0], [2.0], kind="power")
        with torch.no_grad():
            layer.log_r2 += 0.5
        equal(layer(9), wanted(make_encoding("kerple:kind=power,r2=2"), range(9), range(9)))
        (slope,) = torch.autograd.grad(layer(9).sum(), layer.log_r2)
        assert float(slope) < 0

    @pytest.mark.slow
    @pytest.mark.parametrize("e", ENCODINGS, ids=NAMES)
    def test_whole_graph(self, e):
        torch._dynamo.reset()
        layer = layer_of(e)
        compiled = torch.compile(layer, backend="eager", fullgraph=True)
        p = torch.tensor([[0, 1, 2, 0, 1], [7, 8, 20, 21, 22]])
        for positions in (6, p):
            torch.testing.assert_close(compiled(positions), layer(positions))


class TestGram:
    A = RANDOM.standard_normal((12, 3))

    def test_inner_products(self):
        equal(GramBias(self.A, 0.7)(12), 0.7 * (self.A @ self.A.T)[None])
        scales = np.array([1.0, -2.0])
        p = np.array([[3, 3, 0], [11, 2, 5]])
        ours = GramBias(self.A, scales)(torch.tensor(p), 12)
        for row in range(2):
            equal(ours[row], scales[:, None, None] * (self.A[p[row]] @ self.A.T))

    def test_past_the_end_and_left_out(self):
        with pytest.raises(PosgeomError, match="position 12 came, the table knows 0 to 11"):
            GramBias(self.A)(13)
        layer = GramBias(self.A[:3], positions=[0, 2, 4])
        with pytest.raises(PosgeomError, match="position 1 came, which has no row"):
            layer(3)

    @staticmethod
    def draw(shape, seed):
        return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)).float()

    def heads(self, q_heads=4, k_heads=4, n=9, m=9, batch=2, d=8):
        return (
            self.draw((batch, q_heads, n, d), 1),
            self.draw((batch, k_heads, m, d), 2),
            self.draw((batch, k_heads, m, d), 3),
        )

    @pytest.mark.parametrize("k_heads", [4, 2, 1])
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("multiple", [1, 8])
    @pytest.mark.parametrize("scale", [None, 0.2])
    @pytest.mark.parametrize("c", [0.6, [0.1, 0.5, -1.0, 2.0]], ids=["one", "each"])
    def test_folded_equals_dense(self, k_heads, causal, multiple, scale, c):
        q, k, v = self.heads(k_heads=k_heads)
        fold = fold_bias(self.A, c, multiple=multiple)
        wide_q, wide_k, s = fold(q, k, scale=scale)
        assert wide_q.shape[-1] == wide_k.shape[-1] == (16 if multiple == 8 else 11)
        gqa = {"enable_gqa": k_heads < 4}
        ours = attention(wide_q, wide_k, v, is_causal=causal, scale=s, **gqa)
        bias = fold.gram(9).expand(2, 4, 9, 9)
        if causal:
            bias = bias.masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf)
        dense = attention(q, k, v, attn_mask=bias, scale=scale, **gqa)
        torch.testing.assert_close(ours, dense, rtol=0, atol=1e-5)

    def test_positions_of_packed_texts_and_of_decoding(self):
        q, k, v = self.heads()
        fold, p = fold_bias(self.A), torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1], list(range(9))])
        wide_q, wide_k, s = fold(q, k, p)
        dense = attention(q, k, v, attn_mask=fold.gram(p))
        torch.testing.assert_close(attention(wide_q, wide_k, v, scale=s), dense, rtol=0, atol=1e-5)
        with pytest.raises(PosgeomError, match="1 queries came with 9 keys; give the positions"):
            fold(q[:, :, :1], k)
        last, keys = torch.tensor([8]), torch.arange(9)
        wide_q, wide_k, s = fold(q[:, :, 8:], k, last, keys)
        dense = attention(q[:, :, 8:], k, v, attn_mask=fold.gram(last, 9).expand(2, 4, 1, 9))
        torch.testing.assert_close(attention(wide_q, wide_k, v, scale=s), dense, rtol=0, atol=1e-5)

    def test_gradients_are_those_of_the_dense_bias(self):
        q, k, v = (x.double() for x in self.heads(n=5, m=5, batch=1, q_heads=2, k_heads=2, d=3))
        fold = fold_bias(self.A, [0.5, 1.5], trainable=True).double()

        def folded(q, k, A):
            wide = torch.func.functional_call(fold, {"gram.A": A}, (q, k))
            return attention(wide[0], wide[1], v, scale=wide[2])

        def dense(q, k, A):
            bias = torch.func.functional_call(fold.gram, {"A": A}, (5,))
            return attention(q, k, v, attn_mask=bias.expand(1, 2, 5, 5))

        values = [x.detach().requires_grad_() for x in (q, k, fold.gram.A)]
        assert torch.autograd.gradcheck(folded, values)
        for a, b in zip(
            *(torch.autograd.grad(f(*values).square().sum(), values) for f in (folded, dense)),
            strict=True,
        ):
            torch.testing.assert_close(a, b)

    def test_state(self):
        fold = fold_bias(self.A, [1.0, 2.0])
        other = fold_bias(np.zeros((12, 3)), [0.0, 0.0])
        other.load_state_dict(fold.state_dict())
        assert torch.equal(other.gram(12), fold.gram(12))

    @pytest.mark.slow
    def test_whole_graph(self):
        torch._dynamo.reset()
        q, k, _ = self.heads()
        fold = fold_bias(self.A, multiple=8)
        compiled = torch.compile(fold, backend="eager", fullgraph=True)
        for a, b in zip(compiled(q, k), fold(q, k), strict=True):
            assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))

    def test_dtype_of_q_and_k_stays(self):
        q, k, _ = (x.bfloat16() for x in self.heads())
        assert {x.dtype for x in fold_bias(self.A)(q, k)[:2]} == {torch.bfloat16}

    def test_past_the_end(self):
        q, k, _ = self.heads(n=13, m=13)
        with pytest.raises(PosgeomError, match="position 12 came, the table knows 0 to 11"):
            fold_bias(self.A)(q, k)

    def test_scales_of_other_heads(self):
        q = torch.ones(1, 3, 4, 5)
        with pytest.raises(PosgeomError, match="3 heads came with 2 scales; give one"):
            fold_bias(self.A, [1.0, 2.0])(q, q)


class TestRefused:
    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: AttentionBias.from_encoding(make_encoding("rope")), "is no bias"),
            (lambda: AttentionBias.from_encoding(make_encoding("sandwich")), "give the length"),
            (lambda: AttentionBias.from_encoding(make_encoding("fire")), "has no weights"),
            (
                lambda: AttentionBias.from_encoding(make_encoding("alibi"), trainable=True),
                "are constants",
            ),
            (lambda: AlibiBias([0.5], form="values"), "form 'values' is not known"),
            (lambda: RelativeBias(np.ones((7, 1))), "buckets=7"),
            (lambda: OffsetBias(np.ones((2, 4))), "give 2n − 1"),
            (lambda: RelativeBias(np.ones(4)), "give a matrix"),
            (lambda: KerpleBias([0.0], [1.0]), "r1 or r2 out of range"),
            (lambda: KerpleBias([1.0], [1.0], kind="sqrt"), "kind 'sqrt' is not known"),
            (lambda: KerpleBias([1.0] * 3, [1.0, 1.0]), "r2 came with 2 values for 3 heads"),
            (lambda: FireBias([np.ones((5, 1)), np.ones(5)]), "came with layers of shapes"),
            (lambda: GramBias(np.ones((3, 2)), scale=np.nan), "scale came as nan"),
            (lambda: fold_bias(np.ones((3, 2)), multiple=0), "multiple=0 came"),
            (
                lambda: FoldedBias(GramBias(np.ones((3, 2)), causal=True)),
                "a folded bias cannot mask",
            ),
            (lambda: AlibiBias([0.5])(torch.zeros(1, 2, 3)), r"give \(n,\) or \(batch, n\)"),
            (lambda: RelativeBias(np.ones((4, 1)))(torch.zeros(3)), "give whole numbers"),
            (lambda: OffsetBias(np.ones((1, 9)))(torch.zeros(3)), "give whole numbers"),
            (lambda: GramBias(np.ones((4, 1)))(torch.zeros(3)), "give whole numbers"),
            (lambda: GramBias(np.ones((4, 1)))(torch.tensor([0, -1])), "position -1 came"),
            (
                lambda: fold_bias(np.ones((4, 1)))(
                    *[torch.ones(1, 1, 2, 3)] * 2, torch.arange(-1, 1)
                ),
                "position -1 came",
            ),
            (lambda: AlibiBias([0.5])(torch.ones(3).bool()), "give numbers, of a mask"),
            (lambda: AlibiBias([0.5])(torch.ones(3).cfloat()), "give numbers"),
            (lambda: AlibiBias([0.5])(torch.tensor([0, torch.nan])), "NaN or infinity"),
            (lambda: AlibiBias([0.5])(-3), "positions=-3 came; give how many"),
            (lambda: AlibiBias([0.5])(2.5), "positions=2.5 came; give how many"),
            (lambda: AlibiBias([0.5])(True), "positions=True came; give how many"),
            (
                lambda: AlibiBias([0.5])(torch.zeros(2, 3), torch.zeros(3, 3)),
                "2 texts of queries came with 3 of keys",
            ),
            (
                lambda: AlibiBias([0.5])(torch.zeros(3), torch.zeros(3, device="meta")),
                "came on meta for what is on cpu",
            ),
            (
                lambda: RelativeBias(np.ones((4, 1)))(torch.arange(3, device="meta")),
                "came on meta for what is on cpu",
            ),
        ],
    )
    def test_numbers(self, make, message):
        with pytest.raises(PosgeomError, match=message):
            make()

    def test_offsets_that_were_not_tabulated(self):
        layer = AttentionBias.from_encoding(make_encoding("sandwich:heads=2"), length=5)
        assert layer(5).shape == (2, 5, 5)
        with pytest.raises(PosgeomError, match=r"positions 5 apart came, .* up to 4; make it for"):
            layer(6)
