"""How a module holds its numbers: trained or frozen, and constants that no cast may touch."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from posgeom.errors import PosgeomError

# No numbers live on the first, and no float64 on the second: constants stay where they are.
NO_PLACE = ("meta", "mps")


def matrix(name: str, values: ArrayLike | Tensor) -> Tensor:
    """Values (n, d) as a tensor of its own; of the default dtype unless they are a tensor.

    Raises PosgeomError for another shape, and for NaN and infinity.
    """
    if isinstance(values, Tensor):
        x = values.detach().clone()
    else:
        x = torch.as_tensor(np.array(values), dtype=torch.get_default_dtype())
    if x.ndim != 2 or not x.is_floating_point() or 0 in x.shape:
        raise PosgeomError(
            f"{name} came as {x.dtype} of shape {tuple(x.shape)}; give a matrix of fractions"
        )
    if not (x.is_meta or bool(torch.isfinite(x).all())):
        raise PosgeomError(f"{name} holds NaN or infinity; give finite numbers")
    return x


def hold(module: nn.Module, name: str, values: Tensor, *, trainable: bool) -> None:
    """Make values a parameter of the module, or a buffer of the same name where frozen."""
    if trainable:
        module.register_parameter(name, nn.Parameter(values))
    else:
        module.register_buffer(name, values)


class KeepsConstants(nn.Module):
    """A module with float64 constants that stay as they are, whatever becomes of the module.

    Constants are saved with the state, as a buffer is.  A cast to another dtype leaves them, so
    does making the module under `torch.device("meta")` and `to_empty`: frequencies rounded to
    bfloat16 turn to other angles, and those of a buffer that was not saved are lost.
    """

    def __init__(self) -> None:
        super().__init__()
        self._constants: tuple[str, ...] = ()

    def keep(self, name: str, values: ArrayLike) -> None:
        """Register the constant `name`, float64."""
        # from_numpy, unlike other ways to a tensor, heeds no default device such as meta
        numbers = torch.from_numpy(np.array(values, dtype=np.float64))
        self.register_buffer(name, numbers)
        self._constants += (name,)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        kept = {name: self._buffers[name] for name in self._constants}
        self._buffers.update(dict.fromkeys(kept))  # which nothing is done to
        try:
            super()._apply(fn, recurse)
        finally:
            self._buffers.update(kept)
        for name, x in kept.items():
            if x is not None:
                place = fn(torch.empty(0, device=x.device)).device
                self._buffers[name] = x if place.type in NO_PLACE else x.to(place)
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        errors = rest[-1]
        for name in self._constants:
            key, own = prefix + name, self._buffers[name]
            if key in state_dict and own is not None:
                try:
                    state_dict[key] = loaded(key, own, state_dict)
                except PosgeomError as error:
                    errors.append(str(error))
        super()._load_from_state_dict(state_dict, prefix, *rest)


def loaded(key: str, own: Tensor, state: Mapping[str, Tensor]) -> Tensor:
    """The constant to take from a saved state, in float64.

    Saved numbers that are the module's own, rounded, or on the meta device, change nothing.
    Raises PosgeomError for other ones in 16 bits, which have lost what cannot be brought back.
    """
    given = state[key]
    if given.is_meta or torch.equal(own.to(given.device, given.dtype), given):
        return own
    if given.is_floating_point() and given.element_size() < 4:
        raise PosgeomError(
            f"{key} was saved as {given.dtype}, which rounds it; save it in float32 or float64"
        )
    return given.to(torch.float64)
