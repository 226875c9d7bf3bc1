"""Which positional encoding fits my corpus, and can I have a better one?

    counts = posgeom.count_positions("corpus.txt")
    geometry = posgeom.estimate_geometry(counts)
    scores = posgeom.score_encodings(geometry, ["sinusoidal", "rope", "alibi"])
    design = posgeom.design("corpus.txt", dim=128)
    design.save("out")

The names come from __init__.pyi and are loaded when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"
