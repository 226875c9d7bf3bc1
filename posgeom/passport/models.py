"""Model types of `transformers` whose modelling code was looked at, version 5.24."""

from posgeom.encodings.config import LEARNED_MODELS, SINUSOIDAL_MODELS, T5_MODELS
from posgeom.encodings.config_rope import INTERLEAVED_MODELS, INTERLEAVED_UNLESS_SAID, ROTARY_MODELS
from posgeom.encodings.learned import AFTER_PADDING, AFTER_TWO


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALIBI = _names("bloom mpt falcon")

# Rotary models that pair the halves of a head, whose config says the rest.
HALVES = _names(
    """apertus arcee aria_text bamba bitnet diffllama eurobert exaone4 falcon_h1 flex_olmo
    gemma3_text glm4_moe gpt_neox_japanese gpt_oss granite granitemoe granitemoehybrid
    granitemoeshared jetmoe lfm2 lfm2_moe ministral ministral3 mllama_text_model modernbert
    modernbert-decoder nanochat olmo2 olmo3 olmoe phimoe phi4_multimodal qwen3_moe qwen3_next
    qwen3_vl_moe_text recurrent_gemma seed_oss smollm3 starcoder2 vaultgemma"""
)

KNOWN: frozenset[str] = HALVES.union(
    ALIBI,
    T5_MODELS,
    LEARNED_MODELS,
    AFTER_PADDING,
    AFTER_TWO,
    SINUSOIDAL_MODELS,
    ROTARY_MODELS,
    INTERLEAVED_MODELS,
    INTERLEAVED_UNLESS_SAID,
)

# Models with tables whose queries see the keys before them alone.
CAUSAL_TABLES = _names("gpt2 gpt_bigcode gpt_neo openai-gpt opt biogpt trocr xglm")

NO_POSITIONS = _names("mamba mamba2 rwkv falcon_mamba xlstm")
