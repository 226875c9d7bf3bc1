"""Numbers of a config.json, checked as they are read: JSON holds anything under any key."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from posgeom.errors import PosgeomError


def whole(config: Mapping[str, Any], keys: Iterable[str]) -> int | None:
    """The first of these keys that is there, a whole number of 1 or more; None where none is."""
    for key in keys:
        value = config.get(key)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise PosgeomError(
                    f"{key} of the config is {value!r}; give a whole number from 1 on"
                )
            return value
    return None


def real(config: Mapping[str, Any], keys: Iterable[str]) -> int | float | None:
    """The first of these keys that is there, a finite number; None where none is."""
    for key in keys:
        value = config.get(key)
        if value is not None:
            _check_real(key, value)
            number: int | float = value
            return number
    return None


def reals(config: Mapping[str, Any], key: str) -> tuple[int | float, ...]:
    """The list of finite numbers under a key; () where it is not there."""
    values = config.get(key)
    if values is None:
        return ()
    if not isinstance(values, list | tuple):
        raise PosgeomError(f"{key} of the config is {values!r}; give a list of numbers")
    for value in values:
        _check_real(key, value)
    return tuple(values)


def _check_real(key: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise PosgeomError(f"{key} of the config is {value!r}; give a number")
