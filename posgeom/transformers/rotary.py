"""Rotary frequencies replaced by way of the config, which is what a saved model keeps of them."""

from typing import Any

import numpy as np
import torch

from posgeom.emit.hf_config import RTOL, older_spelling, rope_parameters
from posgeom.encodings import Rope, Rotary
from posgeom.errors import PosgeomError
from posgeom.transformers.reload import rotary

FOLLOW_LENGTH = ("dynamic", "longrope")  # which the modules compute anew from time to time
NEWER, OLDER = ("rope_parameters",), ("rope_theta", "rope_scaling")  # version 5, version 4


def replace_frequencies(
    model: Any, encoding: Rotary, own: Rope, extend_to: int | None
) -> tuple[str, ...]:
    """Put the encoding into the config and make the rotary modules again; what to say of it.

    The config is left as it was where the frequencies do not come out.
    """
    kind, config = model.config.model_type, model.config
    if not isinstance(encoding, Rope) or encoding.n_axes > 1 or own.n_axes > 1:
        raise PosgeomError(
            f"{encoding.name} is not the rotary encoding of a {kind}: both must have one axis; "
            f"give fitted-rope:dim={2 * own.n_pairs}"
        )
    if encoding.n_pairs != own.n_pairs:
        raise PosgeomError(
            f"{encoding.name} turns {encoding.n_pairs} pairs, a head of this {kind} {own.n_pairs}; "
            f"design for the head, --encoding fitted-rope:dim={2 * own.n_pairs}"
        )
    longest = int(config.max_position_embeddings)
    if extend_to is not None and extend_to < longest:
        raise PosgeomError(
            f"--extend {extend_to} came, the model has {longest} positions; give {longest} or more"
        )
    keys = ("max_position_embeddings", *(NEWER if hasattr(config, NEWER[0]) else OLDER))
    before = {key: getattr(config, key) for key in keys if hasattr(config, key)}
    config.max_position_embeddings = extend_to or longest
    rope = rope_parameters(encoding, float(own.base), config.max_position_embeddings)
    try:
        _write(config, rope)
        _make_again(model)
        check_frequencies(rotary(model), encoding.inv_freq, encoding.attention_factor)
        if encoding.scaling not in FOLLOW_LENGTH:
            _keep_float32(model)
    except BaseException:
        for key, value in before.items():
            setattr(config, key, value)
        _make_again(model)
        raise
    how = (
        f"rope_theta {rope['rope_theta']:.6g}"
        if rope["rope_type"] == "default"
        else f"{rope['rope_type']} parameters"
    )
    said = [f"{encoding.n_pairs} frequencies of {encoding.name}, in the config as {how}"]
    if encoding.weights:
        said.append("its energies are not carried: they are what queries and keys bring along")
    if extend_to is not None:
        said.append(f"the model takes {extend_to:,} positions in place of {longest:,}")
    return tuple(said)


def check_frequencies(
    modules: dict[str, dict[str, Any]], θ: np.ndarray[Any, Any], attention_factor: float
) -> None:
    """PosgeomError unless each rotary module has these θ (pairs,) and this attention factor."""
    if not modules:
        raise PosgeomError("the model has no rotary module whose frequencies could be checked")
    for name, made in modules.items():
        got = np.array(made["inv_freq"])
        if got.shape != θ.shape or not np.allclose(got, θ, rtol=RTOL, atol=1e-29):
            raise PosgeomError(
                f"{name} computes other frequencies than the encoding has; this model type does "
                "not read them from its config"
            )
        if abs(made["attention_factor"] - attention_factor) > RTOL:
            raise PosgeomError(
                f"{name} scales attention by {made['attention_factor']:.6g}, the encoding by "
                f"{attention_factor:.6g}; this model type infers it"
            )


def _write(config: Any, rope: dict[str, Any]) -> None:
    if hasattr(config, NEWER[0]):
        old = config.rope_parameters or {}
        kept = {k: old[k] for k in ("partial_rotary_factor",) if k in old}
        config.rope_parameters = kept | rope
    else:
        for key, value in older_spelling(rope).items():
            setattr(config, key, value)


def _make_again(model: Any) -> None:
    """Each rotary module made anew from the config, in float32, on its device."""
    names = [name for name in rotary(model) if hasattr(model.get_submodule(name), "config")]
    for name in names:
        module = model.get_submodule(name)
        made = type(module)(config=module.config).to(module.inv_freq.device)
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, made)


def _keep_float32(model: Any) -> None:
    """Have the rotary modules take no cast of the model: `model.to(torch.bfloat16)` and the like.

    What is saved and loaded again is `transformers`' own module, which has float32 where it is
    loaded by dtype=torch.bfloat16 and rounded frequencies where it is cast.
    """
    for name in rotary(model):
        module = model.get_submodule(name)
        module.exact_inv_freq = module.inv_freq.detach().cpu().numpy()  # which no cast touches
        module.kept_inv_freq = (module.inv_freq,)  # a tuple, so that it is no buffer
        module.register_forward_pre_hook(restore_frequencies)


def restore_frequencies(module: Any, inputs: Any) -> None:
    """Put the exact frequencies back where the buffer is no longer the one that held them."""
    if module.inv_freq is not module.kept_inv_freq[0]:
        exact = torch.from_numpy(module.exact_inv_freq).to(module.inv_freq.device)
        module.inv_freq, module.kept_inv_freq = exact, (exact,)
