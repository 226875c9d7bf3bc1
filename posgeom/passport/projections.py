"""What stands between x + p and the logits of a layer: embeddings, norms, W_q and W_k."""

from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from posgeom.content import Norm, Projections
from posgeom.encodings.config_values import whole
from posgeom.errors import PosgeomError
from posgeom.passport.config import HEADS, LAYERS, Config
from posgeom.passport.weights import Weights

FloatArray = NDArray[np.float64]

WORDS = (
    "wte.weight",
    "word_embeddings.weight",
    "embed_tokens.weight",
    "tokens_embed.weight",
    "token_embedding.weight",
    "shared.weight",
)


class Scheme(NamedTuple):
    """Names of the tensors of layer {l}; norms are those that q and k of a layer pass, in order."""

    query: str
    key: str
    norms: tuple[str, ...]
    fused: bool = False  # one (d, 3d) matrix of q, k and v, used as z W (GPT-2's Conv1D)
    scaled: bool = True  # logits are divided by √e


BERT = Scheme(
    "encoder.layer.{l}.attention.self.query",
    "encoder.layer.{l}.attention.self.key",
    ("embeddings.LayerNorm",),
)
BART = Scheme(
    "layers.{l}.self_attn.q_proj", "layers.{l}.self_attn.k_proj", ("layernorm_embedding",)
)
PRE_NORM = BART._replace(norms=("layers.{l}.self_attn_layer_norm",))
GPT2 = Scheme("h.{l}.attn.c_attn", "h.{l}.attn.c_attn", ("h.{l}.ln_1",), fused=True)

SCHEMES: dict[str, Scheme] = {
    **dict.fromkeys(
        ("bert", "electra", "ernie", "roberta", "xlm-roberta", "camembert", "data2vec-text"), BERT
    ),
    "mpnet": BERT._replace(
        query="encoder.layer.{l}.attention.attn.q", key="encoder.layer.{l}.attention.attn.k"
    ),
    "distilbert": BERT._replace(
        query="transformer.layer.{l}.attention.q_lin", key="transformer.layer.{l}.attention.k_lin"
    ),
    "gpt2": GPT2,
    "openai-gpt": GPT2._replace(norms=()),
    "gpt_neo": Scheme(
        "h.{l}.attn.attention.q_proj",
        "h.{l}.attn.attention.k_proj",
        ("h.{l}.ln_1",),
        scaled=False,
    ),
    "bart": BART,
    "mbart": BART._replace(norms=BART.norms + PRE_NORM.norms),
    "plbart": BART,
    "marian": BART._replace(norms=()),
    "pegasus": PRE_NORM,
    "opt": PRE_NORM,
    "biogpt": PRE_NORM,
}
TYPED = ("bert", "electra", "ernie", "roberta", "xlm-roberta", "camembert", "data2vec-text")


def word_table(weights: Weights) -> str:
    """The tensor of the token embeddings; "" where there is none."""
    return weights.find(*WORDS, prefer="encoder")


def word_rows(config: Config, weights: Weights, ids: NDArray[np.int64]) -> FloatArray:
    """What the model adds positions to: (len(ids), d).

    The rows of the tokens, times √d where the model scales them (scale_embedding), through
    project_in where it has one (OPT-350m), with the type vector of a first segment (BERT).
    """
    name = word_table(weights)
    distinct, where = np.unique(ids, return_inverse=True)
    X = weights.read(name, distinct)
    if config.get("scale_embedding"):
        X = X * sqrt(X.shape[1])
    if inward := weights.find("project_in.weight"):
        X = X @ weights.read(inward).T
    kinds = weights.find("token_type_embeddings.weight")
    if kinds and config["model_type"] in TYPED:
        X = X + weights.read(kinds, slice(0, 1))
    return X[where.reshape(ids.shape)]


def layer_projections(
    config: Config, weights: Weights, layer: int, width: int
) -> tuple[Projections | None, str]:
    """Norms, W_q, W_k and biases of a layer, and what a reader should know of them.

    None where the layout of the model type is not known, where its weights are not there, and
    where they take another width than that of x + p.
    PosgeomError for a layer that the model does not have.
    """
    layers, heads = whole(config, LAYERS), whole(config, HEADS)
    if layer < 0 or (layers is not None and layer >= layers):
        raise PosgeomError(f"--layer {layer} came; the model has layers 0 to {(layers or 1) - 1}")
    model = config["model_type"]
    scheme = SCHEMES.get(model)
    if scheme is None or heads is None:
        return None, f"where {model} keeps W_q and W_k is not known: only the sum is looked at"
    if model == "opt" and not config.get("do_layer_norm_before", True):
        scheme = scheme._replace(norms=())
    q, k = (f"{name.format(l=layer)}.weight" for name in (scheme.query, scheme.key))
    q, k = weights.find(q, prefer="encoder"), weights.find(k, prefer="encoder")
    if not (q and k):
        return (
            None,
            f"the weights have no {scheme.query.format(l=layer)}: only the sum is looked at",
        )
    W_q, b_q = _linear(weights, q, scheme.fused)
    W_k, b_k = _linear(weights, k, scheme.fused)
    if scheme.fused:
        d = W_q.shape[1] // 3
        W_q, W_k, b_q, b_k = W_q[:, :d], W_k[:, d : 2 * d], b_q[:d], b_k[d : 2 * d]
    if W_q.shape[1] % heads:
        raise PosgeomError(
            f"tensor {q} has {W_q.shape[1]} columns, not a multiple of {heads} heads"
        )
    if len(W_q) != width:
        return None, "the embeddings are widened before the first layer: only the sum is looked at"
    e = W_q.shape[1] // heads
    scale = 1 / sqrt(e) if scheme.scaled and config.get("scale_attn_weights", True) else 1.0
    if config.get("scale_attn_by_inverse_layer_idx"):
        scale /= layer + 1
    norms = tuple(_norm(weights, name.format(l=layer), config, width) for name in scheme.norms)
    if W_k.shape != W_q.shape or any(x.shape != (W_q.shape[1],) for x in (b_q, b_k)):
        raise PosgeomError(f"{q} and {k} of {weights.folder} differ in shape; save the model again")
    made = Projections(
        W_q=_by_head(W_q, heads),
        W_k=_by_head(W_k, heads),
        b_q=b_q.reshape(heads, e),
        b_k=b_k.reshape(heads, e),
        norms=norms,
        scale=scale,
    )
    return made, _said(made, layer, heads, bool(np.any(b_q) or np.any(b_k)))


def _said(made: Projections, layer: int, heads: int, biased: bool) -> str:
    """What a reader should know of the projections."""
    parts = [f"layer {layer}: {len(made.norms)} LayerNorm, W_q and W_k of {heads} heads"]
    if biased:
        parts.append("b_q and b_k go with the content")
    if layer:
        parts.append("applied to x + p itself, though this layer sees it through those before it")
    return "; ".join(parts)


def _linear(weights: Weights, name: str, fused: bool) -> tuple[FloatArray, FloatArray]:
    """W (in, out) and b (out,), zeros where there is none."""
    W = weights.read(name)
    W = W if fused else W.T
    bias = f"{name.removesuffix('weight')}bias"
    return W, weights.read(bias) if bias in weights.tensors else np.zeros(W.shape[1])


def _by_head(W: FloatArray, heads: int) -> FloatArray:
    """(d, heads·e) as (heads, d, e)."""
    return W.reshape(len(W), heads, -1).swapaxes(0, 1)


def _norm(weights: Weights, name: str, config: Config, width: int) -> Norm:
    ε = 1e-12 if config["model_type"] == "distilbert" else 1e-5
    for key in ("layer_norm_eps", "layer_norm_epsilon"):
        ε = config.get(key, ε)
    if isinstance(ε, bool) or not isinstance(ε, int | float) or not ε >= 0:
        raise PosgeomError(f"layer_norm_eps of the config is {ε!r}; give a small positive number")
    weight = weights.find(f"{name}.weight", f"{name}.gamma", prefer="encoder")
    bias = weights.find(f"{name}.bias", f"{name}.beta", prefer="encoder")
    γ = weights.read(weight) if weight else np.ones(width)  # OPT has norms without numbers
    β = weights.read(bias) if bias else np.zeros(width)
    if γ.shape != (width,) or β.shape != (width,):
        raise PosgeomError(f"{name} of {weights.folder} is not of the width {width} of its input")
    return Norm(γ, β, float(ε))
