"""Which two slots of a head make a pair, and the way from one habit to the other."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posgeom.errors import PosgeomError

PAIRINGS = ("interleaved", "halves", "halves-back")


def check_pairing(pairing: str) -> None:
    """PosgeomError unless the pairing has a name here."""
    if pairing not in PAIRINGS:
        raise PosgeomError(f"pairing {pairing!r} is not known; use {', '.join(PAIRINGS)}")


def pair_slots(n_pairs: int, pairing: str) -> tuple[slice, slice]:
    """The first and the second slots of the pairs 0..n_pairs−1.

    interleaved: (2k, 2k+1).  halves: (k, k + n_pairs), within the slots that turn.  halves-back:
    (k + n_pairs, k), which turns the other way round (nanochat's).
    """
    check_pairing(pairing)
    if pairing == "interleaved":
        return slice(0, 2 * n_pairs, 2), slice(1, 2 * n_pairs, 2)
    low, high = slice(0, n_pairs), slice(n_pairs, 2 * n_pairs)
    return (high, low) if pairing == "halves-back" else (low, high)


def pairing_order(dim: int, from_: str, to: str, rotated: int | None = None) -> NDArray[np.int64]:
    """The order (d,) of slots that turns vectors of one pairing into those of the other.

    x[..., order] paired as `to` has the pairs that x paired as `from_` has, so all q·k are kept.
    rotated: how many slots turn, by default all; the rest stays where it is.
    """
    n = dim if rotated is None else rotated
    if n % 2 or not 0 <= n <= dim:
        raise PosgeomError(f"{n} of {dim} slots came to be paired; give an even number up to dim")
    order = np.arange(dim)
    for there, here in zip(pair_slots(n // 2, to), pair_slots(n // 2, from_), strict=True):
        order[there] = np.arange(dim)[here]
    return order


def convert_pairing(
    weight: ArrayLike,
    heads: int,
    from_: str,
    to: str,
    *,
    axis: int = 0,
    rotated: int | None = None,
) -> NDArray[np.generic]:
    """W_q or W_k, or its bias, of one pairing as that of the other; the scores stay the same.

    weight: heads·d long along axis, head after head: (heads·d, width) as `torch.nn.Linear` keeps
    it, or vectors (…, heads·d) with axis=-1.  rotated: slots of each head that turn.
    """
    W = np.asarray(weight)
    if heads < 1 or W.shape[axis] % heads:
        raise PosgeomError(f"{W.shape[axis]} rows came for {heads} heads; give whole heads")
    d = W.shape[axis] // heads
    order = pairing_order(d, from_, to, rotated)
    return np.take(W, (np.arange(heads)[:, None] * d + order).ravel(), axis=axis)
