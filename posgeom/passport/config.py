"""A model's config.json: read, and reduced to the part that is about text."""

import json
from pathlib import Path
from typing import Any

from posgeom.errors import PosgeomError
from posgeom.passport.models import KNOWN, NO_POSITIONS

Config = dict[str, Any]

# Several names for one thing, in the order in which they are looked for.
WIDTH = ("hidden_size", "n_embd", "d_model", "dim", "emb_dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers")


def read_config(path: str | Path) -> tuple[Path, Config]:
    """The folder that a path names (itself, or that of its config.json), and its config."""
    folder = Path(path)
    if folder.name == "config.json" and folder.is_file():
        folder = folder.parent
    file = folder / "config.json"
    if not folder.exists():
        raise PosgeomError(f"there is no folder {folder}; give that of a model")
    if not file.is_file():
        raise PosgeomError(f"{folder} has no config.json; give the folder of a model")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PosgeomError(f"{file} cannot be read as JSON: {error}") from error
    if not isinstance(config, dict):
        raise PosgeomError(f"{file} holds no JSON object; give the config of a model")
    return folder, config


def language_config(config: Config) -> Config:
    """The part of a config that is about text: itself, or what stands under text_config."""
    inner = config.get("text_config")
    if not isinstance(inner, dict):
        return config
    outer = {k: config[k] for k in ("dtype", "torch_dtype") if config.get(k)}
    kind = inner.get("model_type") or f"{config.get('model_type', '')}_text"
    return outer | inner | {"model_type": kind}


def check_model_type(config: Config) -> None:
    """PosgeomError for a model type that is not known, and for one without positions.

    A config of an unknown type may hold a familiar `rope_theta` and still pair its slots in
    another way, which no number would show.
    """
    model = config.get("model_type")
    if not model or not isinstance(model, str):
        raise PosgeomError("there is no model_type, so it says nothing of positions; add it")
    if model in NO_POSITIONS:
        raise PosgeomError(
            f"a {model} says nothing of positions: it tells them apart by recurrence alone; "
            "there is nothing to inspect"
        )
    if model not in KNOWN:
        raise PosgeomError(
            f"model type {model!r} is not known ({len(KNOWN)} are, such as bert, gpt2, llama, t5); "
            "name the encoding yourself, such as rope:base=500000,pairing=halves or learned:FILE"
        )
