"""Theorem 1: the NumPy Transformer against torch and formulas, and what breaks its symmetry."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posgeom.encodings import make_encoding
from posgeom.errors import PosgeomError
from posgeom.paper.necessity import EQUIVARIANT, breaks_of, kind_of, necessity_table
from posgeom.paper.necessity import Setting as Model
from posgeom.paper.transformer import logits, random_transformer

NONE = make_encoding("none")


def model_and_tokens(depth=2, heads=4, dim=16, n=7, seed=0, *, pre_norm=True, codes=0):
    rng = np.random.default_rng(seed)
    model = random_transformer(depth, heads, dim, rng, pre_norm=pre_norm, codes=codes)
    return model, rng.standard_normal((n, dim))


def in_torch(model, X, mask=None):
    """The same weights in torch.nn.TransformerEncoderLayer; mask is added to the logits."""
    torch = pytest.importorskip("torch")
    Y, d = torch.tensor(X)[None], X.shape[1]
    for layer in model.layers:
        block = torch.nn.TransformerEncoderLayer(
            d,
            model.heads,
            4 * d,
            dropout=0.0,
            batch_first=True,
            norm_first=model.pre_norm,
            bias=False,
            dtype=torch.float64,
        )
        with torch.no_grad():
            W = np.hstack([layer.query, layer.key, layer.value]).T
            block.self_attn.in_proj_weight.copy_(torch.tensor(W))
            block.self_attn.out_proj.weight.copy_(torch.tensor(layer.output.T))
            block.linear1.weight.copy_(torch.tensor(layer.up.T))
            block.linear2.weight.copy_(torch.tensor(layer.down.T))
            Y = block.train()(Y, None if mask is None else torch.tensor(mask))
    return Y[0].numpy()


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize(("depth", "heads"), [(1, 1), (3, 4)])
def test_torch_computes_the_same(depth, heads, pre_norm):
    model, X = model_and_tokens(depth, heads, pre_norm=pre_norm)
    p = np.arange(len(X))
    np.testing.assert_allclose(model(X, NONE, p), in_torch(model, X), rtol=0, atol=1e-10)


def test_torch_computes_the_same_under_a_causal_mask():
    model, X = model_and_tokens()
    p = np.arange(len(X))
    mask = np.where(p[:, None] >= p, 0.0, -np.inf)
    np.testing.assert_allclose(
        model(X, NONE, p, causal=True), in_torch(model, X, mask), rtol=0, atol=1e-10
    )


def test_torch_computes_the_same_with_alibi_and_with_sinusoids():
    model, X = model_and_tokens()
    p = np.arange(len(X))
    mask = -np.array([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8])[:, None, None] * abs(p[:, None] - p)
    alibi = make_encoding("alibi:heads=4")
    np.testing.assert_allclose(model(X, alibi, p), in_torch(model, X, mask), rtol=0, atol=1e-10)
    θ = 10_000.0 ** (-np.arange(0, 16, 2) / 16)
    PE = np.stack([np.sin(np.outer(p, θ)), np.cos(np.outer(p, θ))], axis=2).reshape(len(p), 16)
    np.testing.assert_allclose(
        model(X, make_encoding("sinusoidal:dim=16"), p),
        in_torch(model, X + PE),
        rtol=0,
        atol=1e-10,
    )


def test_rope_turns_queries_and_keys_as_complex_numbers():
    rng = np.random.default_rng(1)
    Q, K = rng.standard_normal((2, 3, 6, 8))
    p, θ = np.arange(6), 10_000.0 ** (-np.arange(0, 8, 2) / 8)
    q, k = (X[..., 0::2] + 1j * X[..., 1::2] for X in (Q, K))
    turn = np.exp(1j * np.outer(p, θ))
    wanted = np.einsum("hid,hjd->hij", q * turn, (k * turn).conj()).real / np.sqrt(8)
    np.testing.assert_allclose(logits(Q, K, make_encoding("rope:dim=8"), p), wanted, atol=1e-12)


def test_shaws_vectors_are_added_to_the_keys():
    rng = np.random.default_rng(2)
    Q, K = rng.standard_normal((2, 2, 5, 8))
    shaw = make_encoding("shaw:dim=8,clip=2")
    a = shaw.vectors
    wanted = [
        [[q[i] @ (k[j] + a[np.clip(j - i, -2, 2) + 2]) for j in range(5)] for i in range(5)]
        for q, k in zip(Q, K, strict=True)
    ]
    found = logits(Q, K, shaw, np.arange(5))
    np.testing.assert_allclose(found, np.array(wanted) / np.sqrt(8), atol=1e-12)


@pytest.mark.parametrize("spec", ["rope:dim=8", "xpos:dim=8", "shaw:dim=8", "t5:heads=2"])
def test_logits_of_relative_encodings_do_not_change_with_a_shift(spec):
    Q, K = np.random.default_rng(3).standard_normal((2, 2, 6, 8))
    here, there = (logits(Q, K, make_encoding(spec), np.arange(6) + s) for s in (0, 100))
    np.testing.assert_allclose(here, there, atol=1e-9)
    assert np.abs(here - logits(Q, K, NONE, np.arange(6))).max() > 0.01


def test_codes_of_another_width_are_projected():
    model, X = model_and_tokens(codes=3)
    p = np.arange(len(X))
    Y = model.embedded(X, make_encoding("index"), p)
    np.testing.assert_allclose(Y - X, np.outer(p, model.projection[0]), atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    st.permutations(range(7)),
    st.integers(0, 10_000),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
)
def test_without_positions_a_transformer_is_equivariant(π, seed, heads, pre_norm):
    model, X = model_and_tokens(heads=heads, seed=seed, pre_norm=pre_norm)
    p = np.arange(7)
    Y, Z = model(X, NONE, p), model(X[π], NONE, p)
    assert np.abs(Z - Y[π]).max() <= EQUIVARIANT * np.sqrt((Y**2).mean())


@pytest.fixture(scope="module")
def table():
    return necessity_table(depths=(1, 2), heads=(2,), seeds=1, permutations=4).set_index("encoding")


def test_nothing_but_no_positions_is_equivariant(table):
    assert table.loc["none", "equivariance_largest"] < 1e-12
    others = table.drop(index="none")
    assert (others["equivariance_least"] > 1e3 * EQUIVARIANT).all()
    assert (others["pooling_least"] > 1e2 * EQUIVARIANT).all()
    assert set(others["kind"]) == {"mask", "table", "rotary", "bias", "relative vectors"}
    assert (table["permutations"] == 16).all()


def test_a_row_holds_the_numbers_of_its_models(table):
    every = [
        breaks_of("alibi", False, Model(depth, 2, pre_norm, 0), 4, 12)
        for depth in (1, 2)
        for pre_norm in (True, False)
    ]
    flat = np.concatenate([b[0] for b in every])
    assert table.loc["alibi", "equivariance"] == pytest.approx(flat.mean(), rel=1e-12)
    assert table.loc["alibi", "equivariance_sd"] == pytest.approx(np.std(flat, ddof=1), rel=1e-12)


def test_biases_of_the_distance_alone_cannot_tell_a_sequence_from_its_mirror_image(table):
    symmetric = ["alibi", "kerple", "sandwich", "fire", "t5"]
    assert (table.loc[symmetric, "reversal"] <= EQUIVARIANT).all()
    assert (table.loc[["sinusoidal", "rope", "shaw", "none, causal mask"], "reversal"] > 0.01).all()


def test_a_t5_bias_with_two_directions_sees_the_mirror_image():
    values = ";".join(f"{x:.3f}" for x in np.random.default_rng(0).standard_normal(32))
    lopsided = breaks_of(f"t5:values={values}", False, Model(1, 1, True, 0), 2, 12)
    assert lopsided[2] > 0.01


def test_kinds_of_encodings():
    assert [kind_of(make_encoding(s)) for s in ("none", "random", "xpos", "fire", "shaw")] == [
        "none",
        "table",
        "rotary",
        "bias",
        "relative vectors",
    ]


def test_a_length_without_a_grid_is_refused():
    with pytest.raises(PosgeomError, match="positions=10; give a multiple of 3"):
        necessity_table(["alibi"], positions=10)
