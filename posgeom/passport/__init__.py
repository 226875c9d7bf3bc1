"""What a model's folder says about positions: its passport, and the encoding in it."""

from posgeom.passport.found import model_encoding, open_model
from posgeom.passport.passport import Passport, inspect_model
from posgeom.passport.show import lines

__all__ = ["Passport", "inspect_model", "lines", "model_encoding", "open_model"]
