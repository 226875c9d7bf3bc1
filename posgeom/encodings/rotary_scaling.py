"""How rotary frequencies are stretched to sequences longer than those of the training."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]


HAVE_ATTENTION = ("yarn", "yarn-paper", "longrope")


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """The options of a stretched rotary encoding.  s = factor, L = original_length.

    linear        θ/s: Position Interpolation.  Chen et al. (2023), Eq. 4
    ntk           base' = base·s^(d/(d−2)), fixed.  bloc97 (2023); YaRN paper, sec. 3.1
    dynamic       the same with s·l/L − (s − 1) in the place of s for sequences of l > L, as
                  `transformers` has it; factor=1 is the paper's l/L (YaRN paper, sec. 3.3)
    yarn          interpolation of slow pairs, none of fast ones, a ramp over the *number* of the
                  pair between; as the authors' code and `transformers` have it
    yarn-paper    the same with the ramp over the pair's turns in L, as Peng et al. (2023) write
                  it, sec. 3.2; no model in use was trained with it
    longrope      θ_k/λ_k, λ the short list for sequences up to L, the long one past it.  Ding et
                  al. (2024), without their first tokens that are left as they were, as in
                  `transformers`
    llama3        slow pairs /s, fast ones kept, between both by turns in L.  Llama 3.1's code
    proportional  `rotary` of all pairs keep their θ over the whole head, the rest stands still

    length          the longest sequence, for longrope without a factor: s = length/L
    beta_fast/slow  yarn: turns within L above which a pair is kept, below which interpolated
    truncate        yarn: whether the ends of the ramp are whole pairs
    attention_factor, mscale, mscale_all_dim   yarn, longrope: see scaled_attention
    """

    scaling: str = "none"
    factor: float | None = None
    original_length: int | None = None
    length: int | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    own_attention: float | None = field(default=None, metadata={"option": "attention_factor"})
    truncate: bool = True
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None

    def check_scaling(self) -> None:
        """PosgeomError for an unknown scaling, a missing key, a factor below 1, a key unused."""
        if self.scaling not in NEEDS:
            raise PosgeomError(
                f"scaling {self.scaling!r} is not known; use one of {', '.join(NEEDS)}"
            )
        for key in NEEDS[self.scaling]:
            if getattr(self, key) in (None, ()):
                raise PosgeomError(
                    f"scaling={self.scaling} came without {key}; it needs "
                    f"{', '.join(NEEDS[self.scaling])}"
                )
        if self.scaling == "longrope" and not (self.factor or self.own_attention or self.length):
            raise PosgeomError(
                "scaling=longrope came without factor; it needs factor, attention_factor or the "
                "longest length"
            )
        if self.factor is not None:
            if self.scaling == "none":
                raise PosgeomError(f"factor={self.factor:g} came without a scaling; name one")
            if not self.factor >= 1:
                raise PosgeomError(f"factor={self.factor:g} came; it stretches, give 1 or more")
        if self.own_attention is not None and self.scaling not in HAVE_ATTENTION:
            raise PosgeomError(f"scaling={self.scaling} has no attention_factor; yarn, longrope do")
        for key in ("original_length", "length", "own_attention", "beta_fast", "beta_slow"):
            value = getattr(self, key)
            if value is not None and not 0 < value < math.inf:
                raise PosgeomError(f"{key}={value:g} came; it must be positive")
        if not self.beta_fast > self.beta_slow:
            raise PosgeomError(
                f"beta_fast={self.beta_fast:g} came with beta_slow={self.beta_slow:g}; "
                "the fast pairs turn more often, give a larger beta_fast"
            )
        low, high = self.low_freq_factor, self.high_freq_factor
        if low is not None and high is not None and not 0 < low < high:
            raise PosgeomError(
                f"low_freq_factor={low:g}, high_freq_factor={high:g} came; give 0 < low < high"
            )

    def stretched(self, θ: FloatArray, base: float, length: int | None = None) -> FloatArray:
        """The frequencies (pairs,) for a sequence of this length, by default up to L."""
        return _STRETCH[self.scaling](self, θ, base, length)

    def scaled_attention(self) -> float:
        """What cos and sin are multiplied with, so logits with its square.

        attention_factor where it is given.  yarn: 0.1·ln s + 1 (Peng et al. 2023, sec. 3.4), and
        with both mscales (0.1·m·ln s + 1)/(0.1·m_all·ln s + 1), DeepSeek's.  longrope:
        √(1 + ln s / ln L), at every length.  Else 1.
        """
        if self.own_attention is not None:
            return self.own_attention
        if self.scaling in ("yarn", "yarn-paper"):
            s = float(self.factor or 1)
            if self.mscale and self.mscale_all_dim:
                return (0.1 * self.mscale * math.log(s) + 1) / (
                    0.1 * self.mscale_all_dim * math.log(s) + 1
                )
            return 0.1 * math.log(s) + 1
        if self.scaling == "longrope" and self.original_length:
            s = self.factor or (self.length or 1) / self.original_length
            return math.sqrt(1 + math.log(s) / math.log(self.original_length)) if s > 1 else 1.0
        return 1.0


def ntk(θ: FloatArray, s: float) -> FloatArray:
    """θ_k of base·s^(d/(d−2)), which is θ_k·s^(−2k/(d−2)): pair 0 kept, the last one /s."""
    pairs = len(θ)
    return θ * s ** (-np.arange(pairs) / max(1, pairs - 1))


def _none(own: Scaling, θ: FloatArray, base: float, length: int | None) -> FloatArray:
    return θ


def _linear(own: Scaling, θ: FloatArray, base: float, length: int | None) -> FloatArray:
    return θ / (own.factor or 1)


def _ntk(own: Scaling, θ: FloatArray, base: float, length: int | None) -> FloatArray:
    return ntk(θ, own.factor or 1)


def _dynamic(own: Scaling, θ: FloatArray, base: float, length: int | None) -> FloatArray:
    s, L = own.factor or 1, own.original_length or 1
    return ntk(θ, s * max(length or L, L) / L - (s - 1))


def _yarn(own: Scaling, θ: FloatArray, base: float, length: int | None) -> FloatArray:
    s, L, d = own.factor or 1, own.original_length or 1, 2 * len(θ)
    if base <= 1:
        raise PosgeomError(f"scaling=yarn came with base={base:g}; give a base above 1")

    def pair_that_turns(times: float) -> float:
        """The k, as a fraction, with L·θ_k = 2π·times."""
        return d * math.log(L / (times * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair_that_turns(own.beta_fast), pair_that_turns(own.beta_slow)
    if own.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    width = high - low or 0.001
    interpolated = np.clip((np.arange(len(θ)) - low) / width, 0, 1)
    return θ / s * interpolated + θ * (1 - interpolated)


def _yarn_paper(own: Scaling, θ: FloatArray, base: float, length: int | None) -> FloatArray:
    s, L = own.factor or 1, own.original_length or 1
    turns = L * θ / (2 * np.pi)
    kept = np.clip((turns - own.beta_slow) / (own.beta_fast - own.beta_slow), 0, 1)
    return θ / s * (1 - kept) + θ * kept


def _longrope(own: Scaling, θ: FloatArray, base: float, length: int | None) -> FloatArray:
    L = own.original_length or 1
    name = "long_factor" if length is not None and length > L else "short_factor"
    for key in ("short_factor", "long_factor"):
        λ: Any = getattr(own, key)
        if len(λ) != len(θ) or min(λ) <= 0:
            raise PosgeomError(
                f"{key} came with {len(λ)} values; give {len(θ)} positive ones, one a pair"
            )
    return θ / np.array(getattr(own, name))


def _llama3(own: Scaling, θ: FloatArray, base: float, length: int | None) -> FloatArray:
    s, L = own.factor or 1, own.original_length or 1
    low, high = own.low_freq_factor or 1, own.high_freq_factor or 4
    turns = L * θ / (2 * np.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return θ / s * (1 - kept) + θ * kept


_STRETCH: dict[str, Callable[[Scaling, FloatArray, float, int | None], FloatArray]] = {
    "none": _none,
    "linear": _linear,
    "ntk": _ntk,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "yarn-paper": _yarn_paper,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _linear,
}

NEEDS: dict[str, tuple[str, ...]] = {
    "none": (),
    "linear": ("factor",),
    "ntk": ("factor",),
    "dynamic": ("factor", "original_length"),
    "yarn": ("factor", "original_length"),
    "yarn-paper": ("factor", "original_length"),
    "longrope": ("short_factor", "long_factor", "original_length"),
    "llama3": ("factor", "original_length", "low_freq_factor", "high_freq_factor"),
    "proportional": (),
}
