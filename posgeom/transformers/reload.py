"""What plain `transformers` makes of a model folder.

Also a program of its own, `python reload.py FOLDER INPUTS ANSWER`, for a fresh process that knows
nothing of the package around it: it must not import posgeom.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

POSITIONS = 64  # of which outputs are compared, at most


def load(folder: Path) -> tuple[Any, dict[str, list[str]]]:
    """The model of a folder, of the class that its config names, and the keys that did not fit.

    From safetensors alone: a pickle beside them is not opened.
    """
    config = transformers.AutoConfig.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    cls: Any = getattr(transformers, (config.architectures or [""])[0], None)
    if not (isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel)):
        cls = transformers.AutoModel
    kept = {} if int(transformers.__version__.partition(".")[0]) >= 5 else {"torch_dtype": "auto"}
    model, info = cls.from_pretrained(
        folder, local_files_only=True, use_safetensors=True, output_loading_info=True, **kept
    )
    kinds = ("missing_keys", "unexpected_keys", "mismatched_keys")
    return model, {kind: sorted(map(str, info[kind])) for kind in kinds}


def digests(model: Any) -> dict[str, str]:
    """SHA-256 of the bytes of each tensor of the state, with its type and shape."""
    return {name: digest(tensor) for name, tensor in model.state_dict().items()}


def digest(tensor: torch.Tensor) -> str:
    """Type, shape and SHA-256 of one tensor."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    content = hashlib.sha256(flat.view(torch.uint8).numpy().tobytes()).hexdigest()
    return f"{tensor.dtype} {tuple(tensor.shape)} {content}"


def rotary(model: Any) -> dict[str, dict[str, Any]]:
    """inv_freq in float64 and the attention factor of each rotary module."""
    return {
        name: {
            "inv_freq": module.inv_freq.detach().cpu().double().tolist(),
            "dtype": str(module.inv_freq.dtype),
            "attention_factor": float(getattr(module, "attention_scaling", 1.0)),
        }
        for name, module in model.named_modules()
        if isinstance(getattr(module, "inv_freq", None), torch.Tensor)
    }


def outputs(model: Any, inputs: dict[str, list[list[int]]]) -> np.ndarray[Any, Any]:
    """What the model says, (positions, width) in float32, at POSITIONS spread over the input."""
    with torch.inference_mode():
        said = model(**{name: torch.tensor(ids) for name, ids in inputs.items()})
    first = getattr(said, "logits", None)
    first = said[0] if first is None else first
    rows = first[0].float()
    if rows.ndim > 1:
        rows = rows[torch.linspace(0, len(rows) - 1, min(len(rows), POSITIONS)).long()]
    answer: np.ndarray[Any, Any] = rows.numpy()
    return answer


def main(folder: str, inputs: str, answer: str) -> None:
    """Load, run, and write what came of it: ANSWER (JSON) and ANSWER.npy."""
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    asked = json.loads(Path(inputs).read_text("utf-8"))
    torch.set_num_threads(asked["threads"])
    model, unfit = load(Path(folder))
    np.save(answer + ".npy", outputs(model.eval(), asked["inputs"]))
    said = {
        "class": type(model).__name__,
        "tensors": digests(model),
        "rotary": rotary(model),
        "unfit": unfit,
        "foreign": sorted(name for name in sys.modules if name.partition(".")[0] == "posgeom"),
    }
    Path(answer).write_text(json.dumps(said), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
