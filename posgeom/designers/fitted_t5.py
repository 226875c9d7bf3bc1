"""T5's table of biases fitted to a geometry."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from posgeom.designers.choice import least_stress
from posgeom.designers.fitted_bias import bias_factor
from posgeom.designers.offsets import OffsetSums
from posgeom.encodings import T5Bias, t5_bucket
from posgeom.encodings.registry import Spec, convert_options, family_options
from posgeom.geometry import Geometry, ranges

FloatArray = NDArray[np.float64]

LEAST_ATTENTION = 1e-6  # what a bucket keeps of the attention where its distance says: nothing


def fitted_t5(geometry: Geometry, spec: Spec, dim: int) -> T5Bias:
    """T5's table for a geometry, one head.

    `fitted-t5[:buckets=32,max_distance=128,isotonic=false,causal=false,reading=linear]`: each
    bucket has the mean D̄ of the distances of its pairs, which is the least raw stress and the
    least scale-free one of all tables; isotonic: of all whose distance never falls with the
    offset.  Both directions of a bidirectional table get the same.  A bucket that no offset of
    the corpus reaches repeats the nearest smaller one, and a note says so.
    Never of a higher corrected stress than the default table.
    """
    known = {name: kind for name, (kind, _) in family_options(T5Bias).items()}
    names = ("buckets", "max_distance", "causal", "reading", "head")
    given = convert_options(spec, {n: known[n] for n in names} | {"isotonic": known["causal"]})
    isotonic = given.pop("isotonic", False)
    default = T5Bias(**given, spec=spec.text)
    sums = OffsetSums.of(geometry)

    own = default.buckets if default.causal else default.buckets // 2
    at = t5_bucket(-sums.offsets, not default.causal, default.buckets, default.max_distance)
    pairs = np.bincount(at, sums.pairs, own)
    reached = np.flatnonzero(pairs)
    means = np.bincount(at, sums.sums, own)[reached] / pairs[reached]
    if isotonic:
        means = isotonic_regression(means, weights=pairs[reached]).x
    # noise may take a mean below 0, where 0 is the nearest distance; bucket 0 is offset 0
    means = np.concatenate([[0.0], np.maximum(means, 0)])
    buckets = np.arange(own)
    δ = means[np.searchsorted(reached, buckets, side="right")]

    unreached = np.setdiff1d(buckets[1:], reached)
    remark = f"buckets without an offset of the corpus repeat the one below: {ranges(unreached)}"
    found = with_values(default, -fall_of(δ, default.reading))
    found = replace(found, remark=remark if unreached.size else "")
    stand_in = with_values(default, bias_factor(sums, default) * default.numbers[:own, 0])
    return least_stress(geometry, [found, stand_in])


def with_values(encoding: T5Bias, values: FloatArray) -> T5Bias:
    """The encoding with the values of one direction, the same in the other if it has one."""
    each = np.tile(values, encoding.buckets // len(values))
    return replace(encoding, values=tuple(each.tolist()))


def fall_of(δ: FloatArray, reading: str) -> FloatArray:
    """The falls b(0) − b(t) that one head's reading turns into distances δ.

    δ, δ²/2 or −ln(1 − δ²/2): under "attention" a Hellinger chord asks for the log of the
    Bhattacharyya coefficient.  Distances too long for that are taken at a smaller scale.
    """
    if reading == "linear":
        return δ
    half = δ**2 / 2
    if reading == "kernel":
        return half
    return -np.log1p(-half * min(1.0, (1 - LEAST_ATTENTION) / max(half.max(), 1e-300)))
