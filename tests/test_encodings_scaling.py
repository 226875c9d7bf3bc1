"""Stretched frequencies against the papers' formulas, and what a scaling cannot do without."""

import numpy as np
import pytest

from posgeom import PosgeomError, make_encoding

EIGHT = ";".join(str(1 + k / 4) for k in range(8))
SIXTEENS = ";".join(str(2 + 2 * k) for k in range(8))


class TestScalings:
    def test_position_interpolation_divides_the_position(self):
        """8192·θ_4 = 819.2 comes back to 204.8."""
        e = make_encoding("rope:dim=32,scaling=linear,factor=4")
        plain = make_encoding("rope:dim=32")
        assert 8_192 * plain.inv_freq[4] == pytest.approx(819.2)
        assert 8_192 * e.inv_freq[4] == pytest.approx(204.8)
        np.testing.assert_allclose(e.cos_sin([8_192])[0], plain.cos_sin([8_192 / 4])[0], atol=1e-9)

    @pytest.mark.parametrize("dim", [2, 4, 64])
    def test_ntk_changes_the_base(self, dim):
        e = make_encoding(f"rope:dim={dim},scaling=ntk,factor=8")
        base = 10_000 * 8 ** (dim / (dim - 2)) if dim > 2 else 10_000
        np.testing.assert_allclose(e.inv_freq, base ** (-np.arange(0, dim, 2) / dim))
        assert e.inv_freq[0] == 1  # the fastest pair is kept, the slowest interpolated
        if dim > 2:
            assert e.inv_freq[-1] == pytest.approx(
                make_encoding(f"rope:dim={dim}").inv_freq[-1] / 8
            )

    def test_dynamic_ntk_is_the_papers_at_factor_one(self):
        """s = l/L past L, 1 before."""
        e = make_encoding("rope:dim=64,scaling=dynamic,factor=1,original_length=512")
        for length, s in ((10, 1), (512, 1), (1_024, 2), (5_120, 10)):
            static = make_encoding(f"rope:dim=64,scaling=ntk,factor={s}")
            np.testing.assert_allclose(e.frequencies_at(length), static.inv_freq, rtol=1e-12)

    def test_dynamic_ntk_keeps_no_state(self):
        """Short, then long, then short gives the short answer again."""
        e = make_encoding("rope:dim=64,scaling=dynamic,factor=2,original_length=128")
        short = e.cos_sin(range(100))[0], e.distances(range(100))
        long = e.cos_sin(range(1_000))[0], e.distances(range(1_000))
        again = e.cos_sin(range(100))[0], e.distances(range(100))
        for a, b, c in zip(short, long, again, strict=True):
            np.testing.assert_array_equal(a, c)
            assert not np.allclose(a, b[:100, : a.shape[1]])
        plain = make_encoding("rope:dim=64")
        np.testing.assert_array_equal(short[1], plain.distances(range(100)))
        # the sequence may be longer than the positions asked for
        np.testing.assert_array_equal(e.cos_sin(range(100), length=1_000)[0], long[0][:100])

    def test_yarn_by_hand(self):
        """Peng et al. (2023): ramps over pairs (code) and over turns (paper); 0.1 ln 4 + 1."""
        code = make_encoding("rope:dim=64,scaling=yarn,factor=4,original_length=2048")
        paper = make_encoding("rope:dim=64,scaling=yarn-paper,factor=4,original_length=2048")
        θ = 10_000.0 ** (-np.arange(32) / 32)
        turns = 2_048 * θ / (2 * np.pi)
        γ = np.clip((turns - 1) / 31, 0, 1)
        np.testing.assert_allclose(paper.inv_freq, (1 - γ) * θ / 4 + γ * θ)
        low = np.floor(64 * np.log(2_048 / (32 * 2 * np.pi)) / (2 * np.log(10_000)))
        high = np.ceil(64 * np.log(2_048 / (2 * np.pi)) / (2 * np.log(10_000)))
        ramp = np.clip((np.arange(32) - low) / (high - low), 0, 1)
        np.testing.assert_allclose(code.inv_freq, θ / 4 * ramp + θ * (1 - ramp))
        for e in (code, paper):
            assert e.attention_factor == pytest.approx(0.1 * np.log(4) + 1)
            np.testing.assert_array_equal(e.inv_freq[turns > 64], θ[turns > 64])
            np.testing.assert_allclose(e.inv_freq[turns < 0.5], θ[turns < 0.5] / 4)
        assert np.abs(code.inv_freq / paper.inv_freq - 1).max() > 0.1
        cos, _ = code.cos_sin([0])
        np.testing.assert_allclose(cos, code.attention_factor)

    def test_longrope_switches_between_l_and_l_plus_one(self):
        spec = (
            "rope:dim=16,scaling=longrope,original_length=64,length=256,"
            f"short_factor={EIGHT},long_factor={SIXTEENS}"
        )
        e, θ = make_encoding(spec), make_encoding("rope:dim=16").inv_freq
        short, long = 1 + np.arange(8) / 4, 2 + 2 * np.arange(8)
        np.testing.assert_allclose(e.frequencies_at(64), θ / short)
        np.testing.assert_allclose(e.frequencies_at(65), θ / long)
        np.testing.assert_allclose(
            e.cos_sin(range(64))[0][:, 0] / e.attention_factor,
            np.cos(np.arange(64) * θ[0] / short[0]),
        )
        np.testing.assert_allclose(
            e.cos_sin(range(65))[0][:, 0] / e.attention_factor,
            np.cos(np.arange(65) * θ[0] / long[0]),
        )
        assert e.attention_factor == pytest.approx(np.sqrt(1 + np.log(4) / np.log(64)))
        given_ = make_encoding(f"{spec},attention_factor=1.5")
        assert given_.attention_factor == 1.5
        assert "length" in e.note

    def test_llama3_by_hand(self):
        """Wavelengths up to L/4 are kept, those above L interpolated."""
        e = make_encoding(
            "rope:dim=128,base=500000,scaling=llama3,factor=8,original_length=8192,"
            "low_freq_factor=1,high_freq_factor=4"
        )
        θ = make_encoding("rope:dim=128,base=500000").inv_freq
        for θ_k, ours in zip(θ, e.inv_freq, strict=True):
            wavelength = 2 * np.pi / θ_k
            if wavelength < 8_192 / 4:
                want = θ_k
            elif wavelength > 8_192:
                want = θ_k / 8
            else:
                smooth = (8_192 / wavelength - 1) / 3
                want = (1 - smooth) * θ_k / 8 + smooth * θ_k
            assert ours == pytest.approx(want, rel=1e-12)

    def test_proportional_keeps_the_first_frequencies_of_the_whole_head(self):
        e, whole = (
            make_encoding("rope:dim=16,scaling=proportional,rotary=0.5"),
            make_encoding("rope:dim=16"),
        )
        np.testing.assert_array_equal(e.inv_freq[:4], whole.inv_freq[:4])
        assert not e.inv_freq[4:].any()

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ("scaling=linear", "without factor"),
            ("scaling=ntk", "without factor"),
            ("scaling=dynamic,factor=2", "without original_length"),
            ("scaling=yarn,factor=2", "without original_length"),
            ("scaling=yarn,original_length=8", "without factor"),
            ("scaling=llama3,factor=2,original_length=8", "without low_freq_factor"),
            ("scaling=longrope,factor=2,original_length=8", "without short_factor"),
            ("scaling=linear,factor=0.5", "give 1 or more"),
            ("scaling=yarn,factor=0.99,original_length=8", "give 1 or more"),
            ("scaling=linear,factor=nan", "NaN"),
            ("scaling=round,factor=2", "not known"),
            ("factor=2", "without a scaling"),
            ("scaling=linear,factor=2,attention_factor=2", "no attention_factor"),
            ("scaling=yarn,factor=2,original_length=0", "positive"),
            ("scaling=yarn,factor=2,original_length=8,beta_fast=1", "beta_fast"),
            ("scaling=yarn,factor=2,original_length=8,truncate=maybe", "true or false"),
            ("base=1,scaling=yarn,factor=2,original_length=8", "base"),
            (
                "scaling=llama3,factor=2,original_length=8,low_freq_factor=4,high_freq_factor=1",
                "low < high",
            ),
            (
                "dim=4,scaling=longrope,factor=2,original_length=8,short_factor=1;1;1,long_factor=1;1",
                "one a pair",
            ),
            (
                "dim=4,scaling=longrope,original_length=8,short_factor=1;1,long_factor=1;1",
                "without factor",
            ),
        ],
    )
    def test_what_a_scaling_lacks_is_told(self, options, words):
        with pytest.raises(PosgeomError, match=words):
            make_encoding(f"rope:{options}")
