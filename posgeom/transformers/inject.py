"""An encoding in the place of a model's own."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from posgeom.encodings import (
    Alibi,
    BiasEncoding,
    Encoding,
    LearnedPositions,
    Rope,
    Rotary,
    TableEncoding,
    encodings_from_config,
)
from posgeom.errors import PosgeomError
from posgeom.transformers.bias import check_slopes, replace_buckets
from posgeom.transformers.rotary import replace_frequencies
from posgeom.transformers.scale import Scale
from posgeom.transformers.tables import replace_table


@dataclass(frozen=True, eq=False)
class Injection:
    """A model with another encoding.

    changed  names of the tensors that hold it now; none where it is in the config
    wanted   θ_k and the attention factor of a rotary encoding
    said     what a reader should know, a sentence each
    """

    model: Any
    changed: tuple[str, ...] = ()
    wanted: tuple[np.ndarray[Any, Any], float] | None = field(default=None, repr=False)
    said: tuple[str, ...] = ()


def inject(
    model: Any,
    encoding: Encoding,
    *,
    extend_to: int | None = None,
    scale: Scale = "match",
    optimizer: Any = None,
) -> Any:
    """The model with the encoding in the place of its own; the same object unless it grows.

    tables     go into the learned table (GPT-2, BERT, MiniLM, RoBERTa, OPT, CLIP's text half and
               their kin), in place, BART's into that of its encoder and of its decoder; rows
               before that of position 0, the padding's, stay as they are
    rotary     goes into the config (Llama, Mistral, Qwen and their kin), as one base or as LongRoPE
               factors, and the modules are made again from it, so that `save_pretrained` writes
               what plain `transformers` reads
    ALiBi      Bloom and MPT compute their slopes from the number of heads: these slopes pass, any
               others are refused
    biases     go into T5's tables of buckets, of the encoder and the decoder; a bucket has the mean
               of its offsets

    extend_to  the length the model shall have; its tables need an encoding of that many positions.
               A model with a longer table is made anew and returned, the given one left as it was
    scale      "match": a table gets the root mean square row norm of the old one, a bias the spread
               of the old one; "own": as the encoding has it; a number: rows of that norm, a bias
               of that spread.  Rotary encodings have no scale
    optimizer  one that was made before: it is refused where it holds a tensor that is replaced,
               since its moments are those of the old one, and where it holds any tensor of a model
               that is made anew; make it afterwards

    Frequencies stay float32 when the model is cast, as by `model.to(torch.bfloat16)`.  Those of a
    saved model that is loaded again are `transformers`' own buffers, which a cast rounds (by up to
    0.4%), whoever made them: load with `dtype=torch.bfloat16`, which keeps them float32.

    Raises PosgeomError where the model has no place for such an encoding, and where positions,
    dimensions or heads do not match: what came, what the model has, what to design.
    """
    return injection(model, encoding, extend_to=extend_to, scale=scale, optimizer=optimizer).model


def injection(
    model: Any,
    encoding: Encoding,
    *,
    extend_to: int | None = None,
    scale: Scale = "match",
    optimizer: Any = None,
) -> Injection:
    """What inject does, with a record of it."""
    if any(p.is_meta for p in model.parameters()):
        raise PosgeomError("the model's tensors are on the meta device; load its weights first")
    config = model.config.to_dict()
    made = encodings_from_config(config)
    own, kind = next(iter(made.values())), config.get("model_type")
    held = held_by(model, optimizer)
    if scale != "match" and isinstance(own, Rope | Alibi):
        raise PosgeomError(f"--scale {scale} came, but {own.family} has none; leave it out")
    if isinstance(encoding, Rotary) and isinstance(own, Rope):
        if len(made) > 1:
            raise PosgeomError(
                f"this {kind} has {len(made)} rotary encodings, of layers {', '.join(made)}: one "
                "does not replace them"
            )
        said = replace_frequencies(model, encoding, own, extend_to)
        return Injection(model, wanted=(encoding.inv_freq, encoding.attention_factor), said=said)
    if isinstance(encoding, TableEncoding) and isinstance(own, LearnedPositions):
        grown, names, said = replace_table(model, encoding, own, extend_to, scale, held)
        return Injection(grown, changed=names, said=said)
    if extend_to is not None and isinstance(encoding, BiasEncoding):
        raise PosgeomError(f"--extend {extend_to} came, but a bias by offset has no end; leave out")
    if isinstance(encoding, Alibi) and isinstance(own, Alibi):
        return Injection(model, said=check_slopes(encoding, own, str(kind)))
    if isinstance(encoding, BiasEncoding) and not isinstance(own, Alibi):
        names, said = replace_buckets(model, encoding, scale, held)
        if names:
            return Injection(model, changed=names, said=said)
    raise PosgeomError(f"{encoding.name} came for a {kind}, {_wants(own)}")


def held_by(model: Any, optimizer: Any) -> frozenset[str]:
    """Names of the parameters that an optimizer holds."""
    if optimizer is None:
        return frozenset()
    ids = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return frozenset(name for name, p in model.named_parameters() if id(p) in ids)


def _wants(own: Encoding) -> str:
    if isinstance(own, Rope):
        return (
            "whose queries and keys turn; it takes a rotary encoding, such as "
            f"--encoding fitted-rope:dim={2 * own.n_pairs}"
        )
    if isinstance(own, LearnedPositions):
        return f"which has a learned table; it takes a table, such as --encoding mds:dim={own.dim}"
    if isinstance(own, Alibi):
        return f"which has slopes; it takes ALiBi's, alibi:heads={own.heads}"
    if isinstance(own, BiasEncoding):
        return "which has a table of buckets; it takes a bias, such as --encoding fitted-t5"
    return f"whose {own.family} positions are computed: there is nothing to replace"
