"""An encoding as keys of a Hugging Face config.json, for what lies in no weights."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from posgeom.encodings import Alibi, Encoding, Rope, alibi_slopes
from posgeom.encodings.table import frequencies
from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]

RTOL = 1e-6  # of the float32 in which `transformers` computes them
STANDS_STILL = 1e30  # for θ = 0, which no quotient gives: θ_k/1e30 turns no float32 angle


def hf_config(encoding: Encoding) -> dict[str, Any]:
    """The keys of config.json that make `transformers` compute this encoding.

    Rotary: `rope_parameters` (version 5), and `rope_theta` with `rope_scaling` (version 4), which
    say the same; see rope_parameters.  ALiBi: `alibi_slopes`, and where they follow the rule
    2^(−b·h/H) also `n_heads` and `attn_config` as MPT has them.  Other slopes no model of
    `transformers` reads, and its MPT (5.24) takes b = 8 whatever the config says.
    Raises PosgeomError for encodings whose numbers lie in the weights, and for rotary ones on a
    grid.
    """
    if isinstance(encoding, Alibi):
        return _alibi(encoding)
    if not isinstance(encoding, Rope) or encoding.n_axes > 1:
        raise PosgeomError(
            f"{encoding.name} is not said by a config.json: that holds for RoPE of one axis, "
            "without xPos's decay, and ALiBi; use --format safetensors, or `posgeom inject`"
        )
    rope = rope_parameters(encoding, encoding.base)
    if encoding.rotated != encoding.dim:
        rope["partial_rotary_factor"] = encoding.rotated / encoding.dim
    return {"rope_parameters": rope, **older_spelling(rope)}


def rope_parameters(encoding: Rope, base: float, length: int | None = None) -> dict[str, Any]:
    """A rotary encoding in the spelling of version 5.

    One base: "default" with that `rope_theta`.  Dynamic scaling as it is, since it follows the
    length.  All others as LongRoPE factors λ_k = base^(−2k/d)/θ_k, the short list like the long
    one, with the attention factor said, as it would else be inferred.
    base     the `rope_theta` that the factors are of
    length   the model's longest sequence, the switch between both lists: it switches nothing
    """
    θ, own = encoding.inv_freq, one_base(encoding)
    if own is not None:
        return {"rope_type": "default", "rope_theta": own}
    if encoding.scaling == "dynamic":
        stretch = {"factor": float(encoding.factor or 1)}
        return {"rope_type": "dynamic", "rope_theta": encoding.base, **stretch}
    shorter, longer = θ, θ
    if encoding.scaling == "longrope":
        length = encoding.original_length or 1
        longer = encoding.frequencies_at(length + 1)
    said = {} if length is None else {"original_max_position_embeddings": int(length)}
    return {
        "rope_type": "longrope",
        "rope_theta": float(base),
        "short_factor": factors(shorter, base).tolist(),
        "long_factor": factors(longer, base).tolist(),
        "factor": 1.0,
        "attention_factor": float(encoding.attention_factor),
    } | said


def older_spelling(rope: dict[str, Any]) -> dict[str, Any]:
    """rope_parameters as `rope_theta` and `rope_scaling`, as version 4 reads them."""
    outside = ("rope_theta", "partial_rotary_factor")
    scaling = {key: value for key, value in rope.items() if key not in outside}
    theirs = {key: rope[key] for key in outside if key in rope}
    return theirs | {"rope_scaling": None if rope["rope_type"] == "default" else scaling}


def factors(θ: FloatArray, base: float) -> FloatArray:
    """λ_k = base^(−2k/d)/θ_k for θ (pairs,): (pairs,).

    The power is taken in float32 as `transformers` takes it, so that its error cancels.
    """
    k = np.arange(0, 2 * len(θ), 2, dtype=np.float32) / np.float32(2 * len(θ))
    turns = θ * (np.float32(base) ** k).astype(np.float64)
    return np.where(θ > 0, 1 / np.where(θ > 0, turns, 1), STANDS_STILL)


def one_base(encoding: Rope) -> float | None:
    """The b of θ_k = b^(−2k/d) for all k; None where there is none, or the attention is scaled."""
    if encoding.attention_factor != 1 or encoding.scaling in ("dynamic", "longrope"):
        return None
    θ = encoding.inv_freq
    if encoding.scaling == "none" and not encoding.own_frequencies:
        return float(encoding.base)
    if len(θ) < 2 or θ[-1] <= 0:
        return None
    b = float(θ[-1] ** (-len(θ) / (len(θ) - 1)))
    return b if np.allclose(frequencies(2 * len(θ), b), θ, rtol=RTOL, atol=0) else None


def _alibi(encoding: Alibi) -> dict[str, Any]:
    m = encoding.slopes
    said: dict[str, Any] = {"alibi": True, "alibi_slopes": m.tolist()}
    bias_max = one_bias_max(m)
    if bias_max is not None:
        said |= {"n_heads": len(m), "attn_config": {"alibi": True, "alibi_bias_max": bias_max}}
    return said


def one_bias_max(slopes: FloatArray) -> float | None:
    """The b of the rule 2^(−b·h/H), see alibi_slopes, for slopes (heads,); None where they differ.

    The last slope of the next lower power of two of heads is 2^−b.
    """
    last = slopes[(1 << (len(slopes).bit_length() - 1)) - 1]
    if not 0 < last < 1:
        return None
    b = -float(np.log2(last))
    return b if np.allclose(alibi_slopes(len(slopes), b), slopes, rtol=RTOL, atol=0) else None
