"""Encodings put into models of Hugging Face `transformers`, which load without this package.

    from posgeom.transformers import inject, inject_folder

    model = inject(model, make_encoding("rope:dim=64,base=500000"))
    inject_folder("gpt2/", emission_of(Design.load("run/")).encoding, "gpt2-with-run/")

Needs the extra `torch`.
"""

from posgeom.transformers.folder import Injected, inject_folder
from posgeom.transformers.inject import inject

__all__ = ["Injected", "inject", "inject_folder"]
