"""Learned tables of models on the Hugging Face hub."""

from pathlib import Path

from posgeom.errors import PosgeomError
from posgeom.files import first_line
from posgeom.named import hub_file

NEEDED = ("config.json", "model.safetensors")


def learned_spec(text: str) -> str:
    """The spec `learned:PATH` of a table that a user names by a path, a spec, or `hf:NAME`.

    A model of the hub is fetched, or taken from the cache where the hub is out of reach.
    Raises PosgeomError where it is in neither.
    """
    if not text.startswith("hf:"):
        return text if text.startswith("learned:") else f"learned:{text}"
    try:
        files = [hub_file(text.removeprefix("hf:"), file) for file in NEEDED]
    except Exception as error:  # the hub's client has many; all mean that it is not to be had
        raise PosgeomError(
            f"--learned {text} could not be had from the hub ({first_line(error)}); "
            "give the path of a local model folder or table"
        ) from error
    return f"learned:{Path(files[0]).parent}"
