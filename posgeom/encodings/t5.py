"""T5's relative bias: one number for each bucket of offsets and each head."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posgeom.encodings.bias import BiasEncoding
from posgeom.encodings.weights import read_address
from posgeom.errors import PosgeomError

FloatArray = NDArray[np.float64]

TABLE_NAMES = ("relative_attention_bias.weight",)


def t5_bucket(
    relative_position: ArrayLike,
    bidirectional: bool = True,
    num_buckets: int = 32,
    max_distance: float = 128,
) -> NDArray[np.int64]:
    """The bucket, 0..num_buckets−1, of each relative position, which is key − query.

    Of N buckets for one direction the first E = N/2 hold one offset each; bucket
    E + ⌊(N − E)·ln(t/E)/ln(max_distance/E)⌋ an offset t ≥ E, never past N − 1.  bidirectional: N
    is half of all, and keys after the query have the upper half.  Otherwise keys after the query
    share bucket 0 with the query itself.  Raffel et al. (2020), sec. 2.1, by their code.
    """
    r = np.asarray(relative_position, dtype=np.float64)
    first = np.zeros(r.shape, dtype=np.int64)
    N = num_buckets
    if bidirectional:
        N //= 2
        first[r > 0] = N
        t = np.abs(r)
    else:
        t = np.maximum(-r, 0)
    E = N // 2
    # ln of quotients lands a rounding error below the whole numbers where a bucket begins
    far = np.log(np.maximum(t, E) / E) / math.log(max_distance / E) * (N - E) + 1e-9
    return first + np.where(t < E, np.floor(t), np.minimum(E + np.floor(far), N - 1)).astype(int)


@dataclass(frozen=True, kw_only=True)
class T5Bias(BiasEncoding):
    """Logit bias b_h[bucket(j − i)].  Raffel et al. (2020), sec. 2.1.

    table     PATH[#KEY] of the numbers, (buckets, heads) as `relative_attention_bias.weight`
    values    one head's numbers, bucket after bucket, separated by ;
    causal    one direction only, as in decoders; by default both
    remark    what a reader should know of the numbers

    Without numbers it is not T5's but a stand-in: minus the bucket's number within its
    direction, a logarithmic fall.  Every offset past max_distance has the last bucket.
    Distances: b(0) − b(t), the mean of both directions, under each reading.
    """

    family: ClassVar[str] = "t5"
    heads: int = 1
    buckets: int = 32
    max_distance: int = 128
    table: str = ""
    values: tuple[float, ...] = ()
    array: FloatArray | None = field(
        default=None, repr=False, metadata={"option": None, "array": True}
    )
    remark: str = field(default="", repr=False, metadata={"option": None})

    def __post_init__(self) -> None:
        directions = 1 if self.causal else 2
        if self.buckets < 2 * directions or self.buckets % directions:
            raise PosgeomError(
                f"t5 came with buckets={self.buckets}; give an even number of 4 or more, "
                "2 or more when causal"
            )
        if not self.max_distance > self.buckets // directions // 2:
            raise PosgeomError(
                f"t5 came with max_distance={self.max_distance}; it must exceed the "
                f"{self.buckets // directions // 2} offsets that have buckets of their own"
            )
        if self.table:
            object.__setattr__(self, "array", read_address(self.table, TABLE_NAMES))
        elif self.values:
            object.__setattr__(self, "array", np.array(self.values, dtype=np.float64)[:, None])
        if self.array is not None:
            given = np.asarray(self.array, dtype=np.float64)
            if given.ndim != 2 or len(given) != self.buckets:
                raise PosgeomError(
                    f"t5 came with numbers of shape {given.shape}; "
                    f"give ({self.buckets} buckets, heads)"
                )
            object.__setattr__(self, "array", given)
            object.__setattr__(self, "heads", given.shape[1])
        super().__post_init__()

    @property
    def numbers(self) -> FloatArray:
        """b of every bucket and head: (buckets, heads)."""
        if self.array is not None:
            return self.array
        own = self.buckets if self.causal else self.buckets // 2
        return np.repeat(-np.arange(self.buckets)[:, None] % -own, self.heads, axis=1).astype(float)

    @property
    def n_parameters(self) -> int:
        """Buckets times heads; the layers of a T5 share them."""
        return self.buckets * self.heads

    @property
    def note(self) -> str:
        """That the numbers stand in for a table, where none was given; or the remark."""
        if self.array is None:
            return "no table was given: minus the number of the bucket stands in for it"
        return self.remark

    def biases(self, heads: NDArray[np.int64], offsets: FloatArray) -> FloatArray:
        """b_h[bucket(j − i)] at offsets i − j: (heads, m)."""
        at = t5_bucket(-offsets, not self.causal, self.buckets, self.max_distance)
        return self.numbers[at][:, heads].T

    def _past_end(self) -> str:
        return "last bucket for all"
