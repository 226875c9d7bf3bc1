"""The rotary layer against the core's float64, and through all that happens to modules."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from posgeom.encodings import make_encoding  # noqa: E402
from posgeom.errors import PosgeomError  # noqa: E402
from posgeom.torch import RotaryEmbedding  # noqa: E402

torch.set_num_threads(1)
ATOL = 1e-6

LONGROPE = "rope:dim=8,scaling=longrope,factor=4,original_length=16"
LONGROPE += ",short_factor=1;1.1;1.2;1.3,long_factor=2;3;5;8"
SPECS = [
    "rope:dim=16",
    "rope:dim=16,pairing=halves",
    "rope:dim=16,pairing=halves-back",
    "rope:dim=20,rotary=0.4,pairing=halves",
    "rope:dim=16,rotary=0.25,scaling=proportional",
    "rope:dim=8,inv_freq=1;0.5;0.31;0",
    "rope:dim=16,scaling=yarn,factor=4,original_length=64",
    "rope:dim=16,scaling=linear,factor=4",
    "rope:dim=16,scaling=dynamic,factor=2,original_length=16",
    "rope:dim=2,scaling=dynamic,factor=2,original_length=16",
    LONGROPE,
]
FROZEN = ["to_bfloat16", "half", "deepcopy", "pickle", "state_dict", "meta", "assign"]


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def close(ours, wanted, atol=ATOL):
    np.testing.assert_allclose(ours.double().numpy(), wanted, rtol=0, atol=atol)


def changed(layer, how):
    """The layer after it was cast, copied or saved."""
    if how == "to_bfloat16":
        return layer.to(torch.bfloat16)
    if how == "half":
        return torch.nn.Sequential(layer).half()[0]
    if how == "deepcopy":
        return copy.deepcopy(layer)
    if how == "pickle":
        return pickle.loads(pickle.dumps(layer))
    zeros = np.zeros(len(layer.inv_freq))
    if how == "state_dict":
        other = RotaryEmbedding(zeros)
        other.load_state_dict(layer.state_dict())
        return other
    with torch.device("meta"):
        other = torch.nn.Sequential(RotaryEmbedding(layer.inv_freq.numpy()))
    if how == "meta":
        return other.to_empty(device="cpu")[0]
    other = RotaryEmbedding(zeros)
    other.load_state_dict(layer.state_dict(), assign=True)
    return other.to(torch.bfloat16)


class TestAgainstTheCore:
    @pytest.mark.parametrize("length", [1, 9, 33])
    @pytest.mark.parametrize("spec", SPECS)
    def test_implied_positions(self, spec, length):
        e = make_encoding(spec)
        x = normal(2, 3, length, e.dim)
        q, k = RotaryEmbedding.from_encoding(e)(x.float(), 2 * x.float())
        wanted = e.rotate(x.float().numpy(), np.arange(length))
        close(q, wanted)
        close(k, 2 * wanted, 2 * ATOL)
        assert q.dtype == torch.float32

    @given(data=st.data())
    @settings(max_examples=60, deadline=None)
    def test_given_positions(self, data):
        e = make_encoding(data.draw(st.sampled_from(SPECS)))
        p = data.draw(st.lists(st.integers(0, 5_000), min_size=1, max_size=12))
        x = normal(2, len(p), e.dim, seed=len(p)).float()
        close(RotaryEmbedding.from_encoding(e).rotate(x, torch.tensor(p)), e.rotate(x.numpy(), p))

    @pytest.mark.parametrize("spec", SPECS[:3] + SPECS[8:])
    def test_each_text_of_a_batch_has_its_positions(self, spec):
        """Frequencies that follow the length take that of the longest."""
        e = make_encoding(spec)
        p = np.array([[0, 1, 2, 0, 1], [30, 31, 32, 33, 34]])
        x = normal(2, 3, 5, e.dim).float()
        turned = RotaryEmbedding.from_encoding(e).rotate(x, torch.tensor(p))
        for row in range(2):
            close(turned[row], e.rotate(x[row].numpy(), p[row], length=35))

    def test_far_positions_keep_their_angles(self):
        """Float32 angles would be off by 0.06 at a million."""
        e = make_encoding("rope:dim=64,pairing=halves")
        p = np.array([999_983, 1_000_000, 1_048_575])
        x = normal(3, 64).float()
        close(RotaryEmbedding.from_encoding(e).rotate(x, torch.tensor(p)), e.rotate(x.numpy(), p))

    def test_fractions_of_positions(self):
        e, p = make_encoding("rope:dim=16"), np.array([0.25, 1.5, 7.75])
        x = normal(3, 16).float()
        close(RotaryEmbedding.from_encoding(e).rotate(x, torch.tensor(p)), e.rotate(x.numpy(), p))

    def test_positions_below_0_turn_backwards(self):
        """By the numbers: what is turned by −p and then by p is as it was."""
        layer, x = RotaryEmbedding([1.0, 0.3]).double(), normal(3, 4)
        p = torch.tensor([1, 40, 7])
        torch.testing.assert_close(layer.rotate(layer.rotate(x, -p), p), x)

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
    def test_positions_of_few_bits(self, dtype):
        """100 + 100 is no number of int8."""
        layer, p = RotaryEmbedding([1.0, 0.3], offset=100), torch.tensor([0, 5, 100])
        x = normal(3, 4).float()
        assert torch.equal(layer.rotate(x, p.to(dtype)), layer.rotate(x, p))

    @pytest.mark.parametrize("spec", ["rope-2d:dim=16", "mrope:dim=16", "mrope:dim=16,axes=2"])
    def test_axes(self, spec):
        e = make_encoding(spec)
        p = np.random.default_rng(3).integers(0, 40, (6, e.n_axes))
        x = normal(6, 16).float()
        layer = RotaryEmbedding.from_encoding(e)
        close(layer.rotate(x, torch.tensor(p)), e.rotate(x.numpy(), p))
        batch = layer.rotate(x.expand(2, 1, 6, 16), torch.tensor(np.stack([p, p + 1])))
        close(batch[1, 0], e.rotate(x.numpy(), p + 1))

    def test_offset(self):
        e = make_encoding("rope:dim=16")
        x = normal(5, 16).float()
        layer = RotaryEmbedding.from_encoding(e, offset=7)
        close(layer.rotate(x), e.rotate(x.numpy(), np.arange(7, 12)))
        close(layer.rotate(x, torch.arange(5)), e.rotate(x.numpy(), np.arange(7, 12)))

    def test_offset_counts_towards_the_length(self):
        e = make_encoding(LONGROPE)
        x = normal(5, 8).float()
        layer = RotaryEmbedding.from_encoding(e, offset=14)
        close(layer.rotate(x), e.rotate(x.numpy(), np.arange(14, 19), length=19))

    @pytest.mark.parametrize("spec", [LONGROPE, SPECS[8]])
    @pytest.mark.parametrize("length", [10, 16, 17, 200])
    def test_the_length_may_be_said(self, spec, length):
        """A token that is decoded alone belongs to a sequence."""
        e = make_encoding(spec)
        x = normal(1, e.dim).float()
        layer = RotaryEmbedding.from_encoding(e)
        wanted = e.rotate(x.numpy(), [9], length=length)
        close(layer.rotate(x, torch.tensor([9]), length=length), wanted)
        close(layer.rotate(x, torch.tensor([9]), length=torch.tensor(length)), wanted)
        close(layer.frequencies(length), e.frequencies_at(length), 1e-15)

    def test_cosines_carry_the_attention_factor(self):
        e = make_encoding("rope:dim=16,scaling=yarn,factor=4,original_length=64")
        ours = RotaryEmbedding.from_encoding(e).cos_sin(torch.arange(6))
        for a, b in zip(ours, e.cos_sin(np.arange(6)), strict=True):
            close(a, b)
        assert float(ours[0][0, 0]) == pytest.approx(0.1 * np.log(4) + 1)

    def test_scores_depend_on_the_offset_alone(self):
        """⟨q turned by i, k turned by j⟩ of the layer, at pairs of equal offset."""
        layer = RotaryEmbedding([1.0, 0.3, 0.01, 0.002], pairing="interleaved").double()
        q, k = normal(1, 8), normal(1, 8, seed=1)
        scores = [
            float(layer.rotate(q, torch.tensor([i])) @ layer.rotate(k, torch.tensor([i + 3])).T)
            for i in (0, 5, 500)
        ]
        np.testing.assert_allclose(scores, scores[0], rtol=1e-12)

    def test_reference_numbers(self):
        """θ = π/6, q = (1, 2), k = (3, 1): 6.8301 at (1, 3) and (5, 7), 5 at (1, 4)."""
        layer = RotaryEmbedding([np.pi / 6])
        q, k = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 1.0]])
        for i, j, wanted in ((1, 3, 6.8301), (5, 7, 6.8301), (1, 4, 5.0)):
            score = layer.rotate(q, torch.tensor([i])) @ layer.rotate(k, torch.tensor([j])).T
            assert float(score) == pytest.approx(wanted, abs=5e-5)


class TestSurvives:
    @pytest.mark.parametrize("how", FROZEN)
    def test_frequencies_keep_every_bit(self, how):
        θ = make_encoding("rope:dim=32,base=500000").inv_freq
        layer = changed(RotaryEmbedding(θ), how)
        assert layer.inv_freq.dtype == torch.float64
        np.testing.assert_array_equal(layer.inv_freq.numpy(), θ)
        x = normal(700, 32).float()
        close(
            layer.rotate(x),
            make_encoding("rope:dim=32,base=500000,pairing=halves").rotate(
                x.numpy(), np.arange(700)
            ),
        )

    def test_both_lists_of_longrope(self):
        e = make_encoding(LONGROPE)
        layer = RotaryEmbedding.from_encoding(e).to(torch.bfloat16)
        np.testing.assert_array_equal(layer.frequencies(17).numpy(), e.frequencies_at(17))
        assert set(layer.state_dict()) == {"inv_freq", "long_inv_freq"}

    def test_what_bfloat16_would_have_done(self):
        """The trap: the last of 700 positions is turned somewhere else by rounded frequencies."""
        θ = make_encoding("rope:dim=32").inv_freq
        rounded = torch.tensor(θ).bfloat16().double().numpy()
        x = normal(700, 32).float()
        turned = [RotaryEmbedding(θ).rotate(x), RotaryEmbedding(rounded).rotate(x)]
        assert float((turned[0] - turned[1]).abs().max()) > 0.25

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
    def test_q_and_k_keep_their_dtype(self, dtype):
        e = make_encoding("rope:dim=16,pairing=halves")
        x = normal(300, 16).to(dtype)
        q, k = RotaryEmbedding.from_encoding(e).to(dtype)(x, x)
        assert q.dtype == k.dtype == dtype
        wanted = torch.from_numpy(e.rotate(x.double().numpy(), np.arange(300)))
        # one rounding, at the end: float32 ahead of it may tip a tie
        assert float((q.double() - wanted).abs().max()) <= 4 * torch.finfo(dtype).eps + 1e-14

    def test_autocast_takes_nothing_from_the_angles(self):
        layer, x = RotaryEmbedding(make_encoding("rope:dim=32").inv_freq), normal(700, 32).float()
        exact = layer.rotate(x)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(RotaryEmbedding(layer.inv_freq.numpy()).rotate(x), exact)
            assert {y.dtype for y in layer.cos_sin(torch.arange(9))} == {torch.float32}

    def test_numbers_of_its_own_that_were_rounded_change_nothing(self):
        θ = make_encoding("rope:dim=32").inv_freq
        for dtype in (torch.bfloat16, torch.float32):
            for assign in (False, True):
                layer = RotaryEmbedding(θ)
                layer.load_state_dict({"inv_freq": torch.tensor(θ).to(dtype)}, assign=assign)
                np.testing.assert_array_equal(layer.inv_freq.numpy(), θ)

    def test_float32_of_others_is_taken(self):
        layer = RotaryEmbedding(np.zeros(4))
        given = torch.tensor([1.0, 0.1, 0.01, 0.001])
        layer.load_state_dict({"inv_freq": given}, assign=True)
        assert layer.inv_freq.dtype == torch.float64
        assert torch.equal(layer.inv_freq.float(), given)

    def test_rounded_numbers_of_others_are_refused(self):
        with pytest.raises(
            RuntimeError, match=r"inv_freq was saved as torch[.]bfloat16, which rounds it"
        ):
            RotaryEmbedding(np.zeros(4)).load_state_dict({"inv_freq": torch.ones(4).bfloat16()})
        with pytest.raises(RuntimeError, match="size mismatch for inv_freq"):
            RotaryEmbedding(np.zeros(4)).load_state_dict({"inv_freq": torch.ones(3)})

    def test_state_saves_and_loads_without_pickled_code(self, tmp_path):
        layer = RotaryEmbedding([1.0, 0.25])
        torch.save(layer.state_dict(), tmp_path / "state.pt")
        other = RotaryEmbedding([0.0, 0.0])
        other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        assert other.inv_freq.tolist() == [1.0, 0.25]


class TestCache:
    def test_it_grows_and_is_kept(self):
        layer, x = RotaryEmbedding([1.0, 0.1]), normal(50, 4).float()
        long = layer.rotate(x)
        cached = layer._cache[0]
        assert torch.equal(layer.rotate(x[:20]), long[:20])
        assert layer._cache[0] is cached
        layer.rotate(normal(51, 4).float())
        assert len(layer._cache[0]) == 51

    def test_new_numbers_are_not_answered_from_the_old_cache(self):
        layer, x = RotaryEmbedding([1.0, 0.1]), normal(9, 4).float()
        before = layer.rotate(x)
        layer.load_state_dict({"inv_freq": torch.tensor([0.5, 0.2], dtype=torch.float64)})
        wanted = RotaryEmbedding([0.5, 0.2]).rotate(x)
        assert torch.equal(layer.rotate(x), wanted)
        assert not torch.equal(before, wanted)

    def test_made_under_inference_it_serves_training(self):
        layer, x = RotaryEmbedding([1.0, 0.1]), normal(9, 4).float()
        with torch.inference_mode():
            layer.rotate(x)
        y = x.clone().requires_grad_()
        layer.rotate(y).sum().backward()
        assert bool(torch.isfinite(y.grad).all())

    def test_short_sequences_do_not_remember_long_ones(self):
        """Frequencies that follow the length: short, long, short."""
        e = make_encoding(LONGROPE)
        layer, x = RotaryEmbedding.from_encoding(e), normal(40, 8).float()
        for n in (10, 40, 10):
            close(layer.rotate(x[:n]), e.rotate(x[:n].numpy(), np.arange(n)))


@pytest.mark.slow
class TestCompile:
    @pytest.fixture(autouse=True)
    def nothing_compiled_before(self):
        torch._dynamo.reset()

    @pytest.mark.parametrize("spec", [SPECS[0], SPECS[8], LONGROPE])
    def test_whole_graph(self, spec):
        e = make_encoding(spec)
        layer = RotaryEmbedding.from_encoding(e)
        compiled = torch.compile(layer, backend="eager", fullgraph=True)
        x = normal(2, 2, 20, e.dim).float()
        for p in (None, torch.arange(40).reshape(2, 20)):
            for a, b in zip(compiled(x, x, p), layer(x, x, p), strict=True):
                torch.testing.assert_close(a, b, rtol=0, atol=ATOL)

    def test_steps_make_no_new_graphs(self):
        """Once the length is known to change, other lengths and steps come from one graph."""
        layer = RotaryEmbedding([1.0, 0.1])
        made = []

        def backend(graph, inputs):
            made.append(graph)
            return graph

        compiled = torch.compile(layer, backend=backend, fullgraph=True, dynamic=True)
        for n in (7, 5, 30, 9):
            x = normal(1, 1, n, 4).float()
            compiled(x, x)
            layer(x, x)  # the cache of the same module grows meanwhile
        assert len(made) == 1

    def test_forwards_and_backwards(self):
        layer = RotaryEmbedding(make_encoding("rope:dim=16").inv_freq)
        x, p = normal(2, 2, 9, 16).float().requires_grad_(), torch.arange(18).reshape(2, 9)

        def turned(x):
            return layer(x, 2 * x, p)

        found = []
        for f in (torch.compile(turned, backend="aot_eager", fullgraph=True), turned):
            q, k = f(x)
            found.append((q, *torch.autograd.grad((q**3 + k).sum(), x)))
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_gradients():
    layer = RotaryEmbedding([1.0, 0.1], pairing="interleaved", dim=6, attention_factor=1.2)
    x = normal(2, 1, 3, 6).requires_grad_()
    assert torch.autograd.gradcheck(lambda y: layer.rotate(y), (x,))


class TestRefused:
    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: RotaryEmbedding([[1.0]]), "give .pairs,. finite numbers"),
            (lambda: RotaryEmbedding([np.nan]), "finite numbers"),
            (lambda: RotaryEmbedding([1.0, 1.0], dim=2), "2 pairs came for heads of 2; give 1"),
            (lambda: RotaryEmbedding([1.0], pairing="thirds"), "pairing 'thirds' is not known"),
            (lambda: RotaryEmbedding([1.0], dynamic_factor=2), "without original_length"),
            (lambda: RotaryEmbedding.from_encoding(make_encoding("xpos:dim=4")), "xpos"),
            (lambda: RotaryEmbedding.from_encoding(make_encoding("alibi")), "give a rope"),
        ],
    )
    def test_layers(self, make, message):
        with pytest.raises(PosgeomError, match=message):
            make()

    @pytest.mark.parametrize(
        ("shape", "positions", "message"),
        [
            ((3, 6), None, "give .…, length, 4."),
            ((2, 1, 3, 4), torch.arange(4), r"shape \(4,\); give \(3,\) or \(2, 3\)"),
            ((2, 1, 3, 4), torch.zeros(3, 3), r"give \(3,\) or \(2, 3\)"),
            ((2, 3, 4), torch.zeros(2, 3), r"give \(3,\)$"),
        ],
    )
    def test_inputs(self, shape, positions, message):
        with pytest.raises(PosgeomError, match=message):
            RotaryEmbedding([1.0, 0.1]).rotate(torch.zeros(shape), positions)

    @pytest.mark.parametrize(
        ("positions", "message"),
        [
            (torch.ones(3).bool(), r"torch\.bool; give numbers, of a mask padded_positions"),
            (torch.zeros(3).cfloat(), "complex64; give numbers"),
            (torch.tensor([0, torch.nan, 1]), "NaN or infinity"),
            (torch.tensor([0, torch.inf, 1]), "NaN or infinity"),
            (torch.zeros(3, device="meta"), r"came on meta for what is on cpu; give .*'cpu'"),
        ],
    )
    def test_positions_that_are_none(self, positions, message):
        with pytest.raises(PosgeomError, match=message):
            RotaryEmbedding([1.0, 0.1]).rotate(torch.zeros(2, 3, 4), positions)

    @pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 3), (2, 4, 1)])
    def test_positions_of_other_axes(self, shape):
        layer = RotaryEmbedding.from_encoding(make_encoding("rope-2d:dim=8"))
        with pytest.raises(PosgeomError, match=r"give \(…, length, 2\), one for each axis"):
            layer.rotate(torch.zeros(2, 1, 4, 8), torch.zeros(shape))

    def test_a_grid_needs_its_positions(self):
        layer = RotaryEmbedding.from_encoding(make_encoding("rope-2d:dim=8"))
        with pytest.raises(PosgeomError, match="positions have several axes"):
            layer.rotate(torch.zeros(4, 8))
