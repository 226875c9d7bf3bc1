"""The papers' formulas, a number at a time by `math`, against the arrays."""

import math

import numpy as np
import pytest
from safetensors.numpy import save_file

from posgeom import make_encoding


def θ(k, d, base=10_000):
    return base ** (-2 * k / d)


@pytest.mark.parametrize("heads", [1, 8, 12])
@pytest.mark.parametrize("d", [4, 128])
@pytest.mark.parametrize("first", [0, 1])
def test_sandwich(heads, d, first):
    """Chi et al. (2023): sinusoids' inner products, less the largest, over 8h/H."""
    e = make_encoding(f"sandwich:dim={d},heads={heads},first={first}")
    for h in range(heads):
        bias = e.bias(h, [0, 7, 900], [0, 3, 899])
        for row, m in zip(bias, (0, 7, 900), strict=True):
            for ours, n in zip(row, (0, 3, 899), strict=True):
                product = sum(
                    math.sin(m * θ(k, d)) * math.sin(n * θ(k, d))
                    + math.cos(m * θ(k, d)) * math.cos(n * θ(k, d))
                    for k in range(first, first + d // 2)
                )
                assert ours == pytest.approx((product - d / 2) / (8 * (h + 1) / heads), abs=1e-9)


@pytest.mark.parametrize(("s", "L"), [(4, 2_048), (16, 4_096), (1.5, 300)])
@pytest.mark.parametrize(("α", "β"), [(1, 32), (2, 8)])
def test_yarn_as_the_paper_writes_it(s, L, α, β):
    """Peng et al. (2023): h(θ) = (1 − γ(r))·θ/s + γ(r)·θ, r = L/λ; √(1/t) = 0.1 ln s + 1."""
    e = make_encoding(
        f"rope:dim=64,scaling=yarn-paper,factor={s},original_length={L},beta_slow={α},beta_fast={β}"
    )
    kinds = set()
    for k, ours in enumerate(e.inv_freq):
        λ = 2 * math.pi / θ(k, 64)
        r = L / λ
        γ = 0 if r < α else 1 if r > β else (r - α) / (β - α)
        assert ours == pytest.approx((1 - γ) * θ(k, 64) / s + γ * θ(k, 64), rel=1e-12)
        kinds.add(0 if γ == 0 else 1 if γ == 1 else 0.5)
    assert kinds == {0, 0.5, 1}
    assert e.attention_factor == pytest.approx(0.1 * math.log(s) + 1, rel=1e-12)


@pytest.mark.parametrize(("s", "L"), [(4, 2_048), (16, 4_096)])
def test_yarn_as_its_code_has_it(s, L):
    """The ramp is linear in the number of the pair, between whole pairs."""
    d, base = 64, 10_000
    e = make_encoding(f"rope:dim={d},scaling=yarn,factor={s},original_length={L}")
    low, high = (
        d * math.log(L / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (32, 1)
    )
    low, high = max(math.floor(low), 0), min(math.ceil(high), d - 1)
    for k, ours in enumerate(e.inv_freq):
        kept = 1 - min(max((k - low) / (high - low), 0), 1)
        assert ours == pytest.approx(θ(k, d) / s * (1 - kept) + θ(k, d) * kept, rel=1e-12)


@pytest.mark.parametrize(("kind", "r1", "r2"), [("log", 2.5, 0.3), ("power", 0.7, 1.6)])
def test_kerple(kind, r1, r2):
    """Chi et al. (2022): −r1·ln(1 + r2|m − n|) and −r1·|m − n|^r2."""
    e = make_encoding(f"kerple:kind={kind},r1={r1},r2={r2}")
    for t, ours in enumerate(e.bias(0, [50], range(50, -1, -1))[0]):
        want = -r1 * (math.log(1 + r2 * t) if kind == "log" else t**r2)
        assert ours == pytest.approx(want, rel=1e-12)


def test_xpos():
    """Sun et al. (2022), with B = 512: ζ_k = (k/(d/2) + γ)/(1 + γ), q by ζ^(m/B), k by ζ^(−n/B)."""
    d, γ, B = 8, 0.4, 512
    e = make_encoding(f"xpos:dim={d}")
    rng = np.random.default_rng(0)
    q, key = rng.standard_normal((2, 1, d))
    for m, n in ((0, 0), (9, 4), (700, 3)):
        want = 0.0
        for k in range(d // 2):
            ζ = (k / (d / 2) + γ) / (1 + γ)
            a, b = complex(*q[0, 2 * k : 2 * k + 2]), complex(*key[0, 2 * k : 2 * k + 2])
            turn = complex(math.cos((m - n) * θ(k, d)), math.sin((m - n) * θ(k, d)))
            want += (a * turn * b.conjugate()).real * ζ ** ((m - n) / B)
        turned = e.rotate_scaled(q, [m], key=False), e.rotate_scaled(key, [n], key=True)
        assert float((turned[0] * turned[1]).sum()) == pytest.approx(want, rel=1e-9)


def test_fire(tmp_path):
    """Li et al. (2024): f(ψ(i − j)/ψ(max(L, i))), ψ(x) = ln(c·x + 1), f a layer of ReLUs."""
    rng = np.random.default_rng(0)
    w1, b1, w2, b2 = rng.standard_normal((5, 1)), *rng.standard_normal((2, 5)), 0.25
    file = tmp_path / "f.safetensors"
    save_file({"0.weight": w1, "0.bias": b1, "2.weight": w2[None], "2.bias": np.array([b2])}, file)
    c, L = 0.3, 20
    e = make_encoding(f"fire:c={c},threshold={L},mlp={file}")
    for i in (0, 7, 20, 45):
        for j in range(i + 1):
            x = math.log(c * (i - j) + 1) / math.log(c * max(L, i) + 1)
            want = b2 + sum(w2[u] * max(0.0, float(w1[u, 0]) * x + float(b1[u])) for u in range(5))
            assert float(e.bias(0, [i], [j])[0, 0]) == pytest.approx(want, rel=1e-9, abs=1e-12)


def test_costs_of_biases_are_counted_alike(tmp_path):
    """Operations of one bias, and its addition, for each of 12·1,024 logits of a token."""
    logits, length = 12 * 1_024, 1_024

    def cost(spec):
        return make_encoding(spec).cost(768, 12, length)

    for spec in ("alibi", "t5", "sandwich"):  # one product or look-up
        assert cost(spec).flops == 2 * logits
    assert cost("kerple").flops == 5 * logits  # product, sum, logarithm, product
    assert cost("kerple:kind=power").flops == 3 * logits
    assert cost("fire").flops == 2 * logits + 4 * length  # a sign; ψ is one for all heads
    rng = np.random.default_rng(0)
    file = tmp_path / "f.npz"
    np.savez(
        file,
        **{"0.weight": rng.random((32, 1)), "0.bias": rng.random(32)},
        **{"2.weight": rng.random((4, 32)), "2.bias": rng.random(4)},
    )
    fire = cost(f"fire:mlp={file}")  # its four heads made twelve, as those of the others are
    assert fire.parameters == 2 + 64 + 12 * 33 == fire.bytes // 4
    assert fire.flops == (2 * 32 + 1) * logits + (4 + 3 * 32) * length
    # the vectors of 64 by the query of each head once, then a look-up and an addition
    assert cost("shaw:clip=16").flops == 2 * 33 * 64 * 12 + 2 * logits
    for spec in ("alibi:heads=3", "kerple:heads=3", "t5:heads=3", "alibi:heads=3,head=1"):
        assert cost(spec) == cost(spec.partition(":")[0])
