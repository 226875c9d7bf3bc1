"""The four terms, against slow loops and against cases whose answer is known."""

import numpy as np
import pytest

from posgeom import PosgeomError, make_encoding
from posgeom.content import (
    Norm,
    Projections,
    content_terms,
    draw,
    jackknife,
    pairs_seen,
    shift_invariance,
)

RNG = np.random.default_rng(0)
HEADS, D, E, N = 3, 8, 4, 12


def normal(*shape):
    return RNG.standard_normal(shape)


def norm():
    return Norm(1 + 0.3 * normal(D), 0.2 * normal(D), 1e-5)


@pytest.fixture
def layer():
    """Two norms, three heads, biases and a scale: all that may stand before the logits."""
    return Projections(
        W_q=normal(HEADS, D, E),
        W_k=normal(HEADS, D, E),
        b_q=normal(HEADS, E),
        b_k=normal(HEADS, E),
        norms=(norm(), norm()),
        scale=0.5,
    )


def layer_norm(u, norm):
    return (u - u.mean()) / np.sqrt(u.var() + norm.epsilon) * norm.weight + norm.bias


def logit(layer, h, u, v):
    """⟨W_q z(u) + b_q, W_k z(v) + b_k⟩ as a model computes it, without any split."""
    for one in layer.norms:
        u, v = layer_norm(u, one), layer_norm(v, one)
    return layer.scale * ((u @ layer.W_q[h] + layer.b_q[h]) @ (v @ layer.W_k[h] + layer.b_k[h]))


def slow_split(layer, x, p):
    """Content and position parts of z, one vector at a time: σ is that of the sum."""
    for one in layer.norms:
        σ = np.sqrt((x + p).var() + one.epsilon)
        x, p = (x - x.mean()) / σ * one.weight + one.bias, (p - p.mean()) / σ * one.weight
    return x, p


def slow_terms(layer, h, x_m, p_m, x_n, p_n):
    x_m, p_m = slow_split(layer, x_m, p_m)
    x_n, p_n = slow_split(layer, x_n, p_n)
    q = x_m @ layer.W_q[h] + layer.b_q[h], p_m @ layer.W_q[h]
    k = x_n @ layer.W_k[h] + layer.b_k[h], p_n @ layer.W_k[h]
    return [layer.scale * (a @ b) for a in q for b in k]


def slow_invariance(layer, tokens, P, causal):
    """Var(E[L | m − n]) / Var(L) by head, all pairs in a list; averages over all tokens."""
    between, total = [], []
    for h in range(HEADS):
        pairs = []
        for m in range(len(P)):
            for n in range(len(P)):
                if (n < m) if causal else (n != m):
                    L = np.mean(
                        [[logit(layer, h, x + P[m], y + P[n]) for y in tokens] for x in tokens]
                    )
                    pairs.append((m - n, L))
        values = np.array([L for _, L in pairs])
        fitted = [np.mean([L for k, L in pairs if k == offset]) for offset, _ in pairs]
        between.append(np.var(fitted))
        total.append(np.var(values))
    return np.array([sum(between) / sum(total), *np.divide(between, total)])


def test_the_four_terms_add_up_to_the_logits(layer):
    X, P = normal(N, D), normal(N, D)
    terms = layer.terms(layer.parts(X, P))
    assert terms.shape == (4, HEADS, N, N)
    for h in range(HEADS):
        for m, n in ((0, 0), (3, 7), (11, 2)):
            whole = logit(layer, h, X[m] + P[m], X[n] + P[n])
            assert terms[:, h, m, n].sum() == pytest.approx(whole)


@pytest.mark.parametrize("causal", [False, True])
def test_shares_equal_those_of_a_slow_loop(layer, causal):
    P = normal(N, D)
    positions, tokens = draw(N, 20, seed=3, sequences=4, width=5)
    X = normal(20, D)[tokens]
    result = content_terms(X, positions, P, layer, causal=causal)
    by_head = [[] for _ in range(HEADS)]
    for x, where in zip(X, positions, strict=True):
        for i, m in enumerate(where):
            for j, n in enumerate(where):
                if (j < i) if causal else (j != i):
                    for h in range(HEADS):
                        by_head[h].append(slow_terms(layer, h, x[i], P[m], x[j], P[n]))
    t = np.array(by_head)  # (heads, pairs, 4)
    assert result.pairs == t.shape[1]
    for measure, given in (
        (t.var(axis=1), result.variance),
        (np.abs(t).mean(axis=1), result.absolute),
    ):
        expected = np.vstack([measure.sum(axis=0), measure])
        expected /= expected.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(given.value, expected, rtol=1e-9)


@pytest.mark.parametrize("causal", [False, True])
def test_shift_invariance_equals_that_of_a_slow_loop(layer, causal):
    P, tokens = normal(6, D), normal(3, D)
    given = shift_invariance(tokens, P, layer, causal=causal)
    np.testing.assert_allclose(given.value, slow_invariance(layer, tokens, P, causal), rtol=1e-9)


def test_without_projections_it_is_the_sum_itself():
    P = normal(N, D)
    positions, tokens = draw(N, 30)
    X = normal(30, D)[tokens]
    zero = np.zeros((1, D))
    eye = Projections(W_q=np.eye(D)[None], W_k=np.eye(D)[None], b_q=zero, b_k=zero)
    plain, same = content_terms(X, positions, P), content_terms(X, positions, P, eye)
    # not to the last bit: processors sum arrays of other strides in other orders
    np.testing.assert_allclose(plain.variance.value, same.variance.value, rtol=1e-12)
    assert plain.at == "the sum"
    assert plain.heads == 1


def test_sinusoids_keep_all_their_shift_invariance_without_content():
    P = make_encoding("sinusoidal:dim=16").table(range(64))
    nothing = np.zeros((4, 16))
    assert shift_invariance(nothing, P, Projections()).value[0] == pytest.approx(1)


def test_the_mean_content_takes_shift_invariance_away():
    """d = 2, x = (1, 0): ⟨x+PE(0), x+PE(1)⟩ = 2.3818, ⟨x+PE(1), x+PE(2)⟩ = 3.2911."""
    P = make_encoding("sinusoidal:dim=2").table(range(64))
    x = np.array([[1.0, 0.0]])
    summed = Projections().logits((x + P)[:3])[0]
    assert summed[0, 1] == pytest.approx(2.3818, abs=5e-5)
    assert summed[1, 2] == pytest.approx(3.2911, abs=5e-5)
    assert shift_invariance(x, P, Projections()).value[0] < 0.6


def test_rows_of_chance_keep_about_two_in_n():
    P = np.random.default_rng(1).standard_normal((200, 64))
    share = shift_invariance(np.zeros((2, 64)), P, Projections()).value[0]
    assert share == pytest.approx(2 / 200, rel=0.5)


def test_no_positions_leave_content_alone():
    positions, tokens = draw(N, 30)
    result = content_terms(normal(30, D)[tokens], positions, np.zeros((N, D)))
    np.testing.assert_array_equal(result.variance.value, [[1, 0, 0, 0]] * 2)
    assert np.isnan(result.invariance.value).all()


def test_a_constant_row_for_all_positions_is_no_position():
    positions, tokens = draw(N, 30)
    result = content_terms(normal(30, D)[tokens], positions, np.tile(normal(D), (N, 1)))
    assert np.isnan(result.invariance.value).all()
    assert result.variance.value[0, 3] == 0


def test_shares_are_symmetric_before_the_projections():
    P = normal(40, D)
    positions, tokens = draw(40, 50)
    shares = content_terms(normal(50, D)[tokens], positions, P).variance.value[0]
    assert shares.sum() == pytest.approx(1)
    assert shares[1] == pytest.approx(shares[2])


def test_standard_errors_cover_the_spread_of_other_seeds():
    P, pool = normal(100, D), normal(400, D)
    results = []
    for seed in range(40):
        positions, tokens = draw(100, 400, seed, sequences=16, width=16)
        results.append(content_terms(pool[tokens], positions, P))
    for name in ("variance", "absolute"):
        values = np.array([getattr(r, name).value[0] for r in results])
        errors = np.array([getattr(r, name).error[0] for r in results])
        np.testing.assert_allclose(errors.mean(axis=0), values.std(axis=0, ddof=1), rtol=0.5)
    values = np.array([r.invariance.value[0] for r in results])
    errors = np.array([r.invariance.error[0] for r in results])
    assert 0.3 < errors.mean() / values.std(ddof=1) < 3


def test_the_jackknife_of_a_mean_is_its_standard_error():
    x = normal(50, 1)
    estimate = jackknife(x, lambda mean: mean)
    assert estimate.value == pytest.approx(x.mean())
    assert estimate.error == pytest.approx(x.std(ddof=1) / np.sqrt(50))
    assert np.isnan(jackknife(x[:1], lambda mean: mean).error).all()


def test_equal_seeds_draw_equal_pairs():
    a, b, other = draw(100, 50, 7), draw(100, 50, 7), draw(100, 50, 8)
    np.testing.assert_array_equal(a[0], b[0])
    np.testing.assert_array_equal(a[1], b[1])
    assert (a[0] != other[0]).any()
    assert (np.diff(a[0], axis=1) > 0).all()
    assert a[1].max() < 50
    assert draw(3, 50)[0].shape == (64, 3)


def test_causal_pairs_look_back():
    np.testing.assert_array_equal(np.argwhere(pairs_seen(3, True)), [[1, 0], [2, 0], [2, 1]])
    assert pairs_seen(5, False).sum() == 20


def test_a_long_table_is_thinned_and_keeps_its_answer():
    P = make_encoding("sinusoidal:dim=16").table(range(2_000))
    share = shift_invariance(np.zeros((2, 16)), P, Projections()).value[0]
    assert share == pytest.approx(1)


@pytest.mark.parametrize("n", [(1, 10), (10, 1)])
def test_one_position_or_one_token_is_refused(n):
    with pytest.raises(PosgeomError, match="two of each"):
        draw(*n)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(PosgeomError, match=r"\(sequences, width, d\)"):
        content_terms(normal(2, 3, 4), np.zeros((2, 3), int), normal(5, 6))
