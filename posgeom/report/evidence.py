"""Figures of what stands above the noise: scores with their errors, dimensions, noise, misfits.

Each takes a Subject, so that the report of a design and that of a diagnosis share them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.stats import t as student

from posgeom import plots
from posgeom.distances import METRICS
from posgeom.geometry import ROOT_METRICS, only, position_profiles
from posgeom.inference import jackknife, numbers
from posgeom.rank import above_noise
from posgeom.report.words import (
    BASELINES,
    ROUNDING,
    FigureSpec,
    Subject,
    Words,
    by_stress,
    coincide,
    column,
    estimate,
    made_for_corpus,
    number,
    offsets,
    stress_texts,
    with_error,
)
from posgeom.stress import offset_groups, pairs
from posgeom.trajectory import eigenvalue_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posgeom.geometry import Geometry

FloatArray = NDArray[np.float64]

ONE_PANEL = (1.05, 0.25, 0.6, 0.2)  # left, right, bottom, top: see FigureSpec
TWO_PANELS = (0.85, 0.25, 0.6, 0.2)
MOST_MISSES = 4  # encodings whose misses are drawn


def stress_by_encoding(subject: Subject, figure: Figure) -> Words:
    """Bars of stress with their errors."""
    scores, floor = by_stress(subject), subject.floor
    names, words = scores["encoding"].astype(str).tolist(), stress_texts(scores)
    stress = column(scores, "stress")
    ends = np.column_stack([column(scores, key) for key in ("stress_low", "stress_high")])
    known = bool(np.isfinite(ends).any())
    if known:
        texts = words
    else:
        raw = column(scores, "stress_raw")
        texts = [f"{word}   (raw {number(r)})" for word, r in zip(words, raw, strict=True)]
    figure.set_figheight(1.15 + 0.31 * len(names))
    plots.stress_bars(
        figure.subplots(),
        names,
        no_rounding(stress),
        texts,
        scores["shift_invariant"].to_numpy(bool),
        floor.value,
        np.where(np.isfinite(ends), ends, no_rounding(stress)[:, None]) if known else None,
        (floor.low, floor.high) if np.isfinite(floor.low) else None,
    )
    ranking = ", ".join(f"{name} {word}" for name, word in zip(names, words, strict=True))
    below = (
        "The dashed floor is the least of any encoding that sees only how many rows and columns "
        "two cells stand apart; one that numbers the cells row by row can fall below it."
        if subject.geometry.grid
        else "Blue encodings see only the offset between two positions and cannot come below the "
        "dashed floor."
    )
    last = (
        "Black lines, and the grey band about the floor, are 95% intervals; ± is one standard "
        "error. Errors of two encodings go together: whether one leads is in the text above."
        if known
        else "In brackets: raw stress, which the encoding's own scale enters."
    )
    return Words(
        "Short bars are good: stress 0 means that the encoding has the corpus's distances up to "
        f"a scale, 1 that it has nothing of them. {below} {last}",
        f"Bars of stress, best first: {ranking}. Floor by offset alone: {estimate(floor)}.",
    )


def misses(subject: Subject, figure: Figure) -> Words:
    """Where the best encodings fail: share of their stress by position and by offset."""
    geometry = subject.geometry
    groups: list[tuple[list[str], FloatArray, FloatArray]] = []
    for name, by_position, by_offset in _known_misses(subject):
        same = (g[0] for g in groups if coincide(by_position, g[1]) and coincide(by_offset, g[2]))
        if names := next(same, None):
            names.append(name)
        elif len(groups) < MOST_MISSES:
            groups.append(([name], by_position, by_offset))
    pair_steps, label = offsets(geometry)
    # Offsets of a grid are rows and columns; all of one length go together.
    group = offset_groups(geometry.n_positions, geometry.positions)
    length = np.zeros(int(group.max()) + 1)
    length[group] = pair_steps
    steps, of_length = np.unique(length, return_inverse=True)
    left, right = figure.subplots(1, 2)
    at = geometry.index.astype(float)
    plots.shares(left, at, {" = ".join(g[0]): g[1] for g in groups}, position_label(geometry))
    far = {" = ".join(g[0]): np.bincount(of_length, g[2]).astype(float) for g in groups}
    plots.shares(right, steps, far, label)
    right.set_ylabel("")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower left", ncols=2)
    apart = "offset" if geometry.grid is None else "a distance in the grid of"
    said = [
        f"{' and '.join(names)} at position {geometry.index[p.argmax()]} ({p.max():.0%} of its "
        f"stress) and at {apart} {number_of(steps[share.argmax()])} "
        f"({share.max():.0%})"
        for (names, p, _), share in zip(groups, far.values(), strict=True)
    ]
    return Words(
        "Of the stress of each encoding (the best few that were not made for the corpus), the "
        "share that lies at each position, left, and between positions so far apart, right; each "
        "curve sums to 100%. A peak at one position: the encoding has no place for how special it "
        "is. A level line: it fails everywhere alike.",
        f"Most is missed by {'; by '.join(said) or 'none'}.",
    )


def _known_misses(subject: Subject) -> list[tuple[str, FloatArray, FloatArray]]:
    """Name, shares by position and by offset of the encodings that one would choose, best first."""
    found = subject.diagnosis.misses if subject.diagnosis else {}
    scores = by_stress(subject)
    known = scores[~made_for_corpus(scores) & ~scores["family"].isin(BASELINES)]
    names = known["encoding"].astype(str)
    return [(name, *found[name]) for name in names if name in found and found[name][0].any()]


def has_misses(subject: Subject) -> bool:
    """Whether there is an encoding whose misses can be drawn."""
    return bool(_known_misses(subject))


def noise(subject: Subject, figure: Figure) -> Words:
    """The noise floor of the plug-in distances: what they are too large by."""
    assert subject.diagnosis is not None
    geometry = subject.geometry
    plugin = _plugin_squares(subject)
    n = geometry.n_positions
    steps, label = offsets(geometry)
    lengths, group = np.unique(steps, return_inverse=True)
    mean = csr_array((1 / np.bincount(group)[group], (np.arange(len(group)), group)))

    def by_position(S: FloatArray) -> FloatArray:
        sums: FloatArray = S.sum(axis=-1) / (n - 1)
        return sums

    def by_offset(S: FloatArray) -> FloatArray:
        i, j = np.triu_indices(n, 1)
        means: FloatArray = S[..., i, j] @ mean
        return means

    left, right = figure.subplots(1, 2, sharey=True)
    for ax, at, measure, name in (
        (left, geometry.index.astype(float), by_position, position_label(geometry)),
        (right, lengths, by_offset, label),
    ):
        found = numbers(measure, geometry)
        value, half = found.value - found.bias, found.half
        plots.noise_floor(ax, at, measure(plugin), value, value - half, value + half, name)
    right.set_ylabel("")
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper left", ncols=4)
    share, total = subject.diagnosis.noise, float(pairs(plugin).mean())
    true = jackknife(lambda s: s.mean(axis=-1), geometry)
    known = " (95%)" if np.isfinite(true.high) else ""
    few = int(geometry.totals.argmin())
    ends = f" ({share.low:.0%} to {share.high:.0%})" if np.isfinite(share.low) else ""
    return Words(
        "Mean squared distance of each position to all others, left, and of all pairs so far "
        "apart, right. Dashed: the plug-in distance, between the frequencies as they were counted. "
        "Solid: the same with the sampling noise taken out, with its 95% interval. What lies "
        "between them is noise, and it grows where tokens are few. Where the solid line is near 0, "
        "positions are used alike.",
        f"The mean squared distance is {number(total)} plug-in and "
        f"{with_error(true.value, true.high - true.value)}{known} debiased: "
        f"{share.value:.0%}{ends} of it is noise. Position {geometry.index[few]} has the fewest "
        f"tokens, {geometry.totals[few]:,}, and lies "
        f"{number(float(by_position(plugin)[few]))} from the others, plug-in.",
    )


def _plugin_squares(subject: Subject) -> FloatArray:
    """(n, n) squared distances between the observed frequencies, to the digits of a picture."""
    geometry = subject.geometry
    P = position_profiles(only(subject.counts, geometry.index))
    if geometry.metric not in ROOT_METRICS:
        return METRICS[geometry.metric](P) ** 2
    S = P.sqrt()
    D2 = np.maximum(2 - 2 * (S @ S.T).toarray(), 0)  # sparse: no copy of the whole vocabulary
    np.fill_diagonal(D2, 0)
    return ROOT_METRICS[geometry.metric](D2)


def spectrum(subject: Subject, figure: Figure, kept: int | None = None) -> Words:
    """The test's eigenvalues against their limit, and those of the geometry with errors.

    kept: rank of the low-rank encoding; by default what stands above the noise.
    """
    test, w = subject.geometry.stationarity, subject.mds.eigenvalues
    assert test is not None
    se = eigenvalue_errors(subject.geometry)
    half = np.zeros(len(w)) if se is None else student_of(subject.geometry) * se
    size = np.abs(w)
    drawn = size >= 1e-6 * size.max()
    bottom = 0.5 * float(size[drawn & (size > 0)].min(initial=1.0))
    limit = float(-w.min(initial=0))
    r = max(1, above_noise(w)) if kept is None else kept
    last = max(r, int(np.flatnonzero(drawn)[-1]) + 1)
    left, right = figure.subplots(1, 2)
    plots.spectrum_of_test(left, test.eigenvalues, test.limit, test.significant)
    plots.spectrum(right, w[:last], bottom, r, half[:last], limit if limit >= bottom else None)
    errors = np.full(len(w), np.nan) if se is None else se
    first = ", ".join(with_error(w[k], errors[k]) for k in range(min(r, 3, len(w))))
    below = " Those below a millionth of the largest are not drawn." if not drawn.all() else ""
    return Words(
        "Left: the test whether positions differ. Each dot is a direction in which they might; "
        "the grey band is what sampling noise alone reaches, so filled dots above it are "
        "structure. Right: the variance along each axis of the debiased distances, with 95% "
        "intervals. Triangles are negative eigenvalues, which noise makes: positive ones below "
        f"the dotted line are no larger than those, and not to be trusted.{below}",
        f"{test.significant} of {len(test.eigenvalues)} eigenvalues of the test lie above the "
        f"noise limit of {number(test.limit)}; the largest is {number(test.eigenvalues[0])}. Of "
        f"the geometry's, the largest are {first}, and the most negative is "
        f"{number(float(w.min()))}.",
    )


def spectrum_of_test(subject: Subject, figure: Figure) -> Words:
    """The test's eigenvalues against their limit, where there is nothing else to draw."""
    test = subject.geometry.stationarity
    assert test is not None
    plots.spectrum_of_test(figure.subplots(), test.eigenvalues, test.limit, test.significant)
    return Words(
        "Each dot is a direction in which positions might differ. The grey band is what the "
        "largest of them stays below in 95% of the draws when there is only sampling noise: no dot "
        "that tells positions apart stands above it. This is why no distances are drawn.",
        f"{len(test.eigenvalues)} eigenvalues of the test of stationarity, the largest "
        f"{number(test.eigenvalues[0])}, the noise limit {number(test.limit)}: "
        f"{test.significant} significant, p = {test.p_value:.2g}.",
    )


BARS: FigureSpec[Subject] = FigureSpec(
    "stress_by_encoding", "Stress by encoding", (9, 4), "svg", stress_by_encoding
)
MISSES: FigureSpec[Subject] = FigureSpec("misses", "Where encodings fail", (9, 3.9), "svg", misses)
NOISE: FigureSpec[Subject] = FigureSpec(
    "noise",
    "How much of the plug-in distance is noise",
    (9, 3.7),
    "svg",
    noise,
    (0.8, 0.25, 0.6, 0.5),
)
SPECTRUM: FigureSpec[Subject] = FigureSpec(
    "spectrum", "Dimensions above the noise", (9, 3.7), "svg", spectrum, TWO_PANELS
)
TEST: FigureSpec[Subject] = FigureSpec(
    "spectrum_of_test", "Nothing above the noise", (9, 3.7), "svg", spectrum_of_test, ONE_PANEL
)


def no_rounding(stress: FloatArray) -> FloatArray:
    """Stresses to draw: rounding, and what is not defined, as 0."""
    return np.where(stress > ROUNDING, stress, 0.0)


def position_label(geometry: Geometry) -> str:
    """What an axis of positions is called."""
    return "position (row by row)" if geometry.grid else "position"


def number_of(step: float) -> str:
    """An offset: whole, or the length of a diagonal."""
    return f"{step:.0f}" if step == round(step) else f"{step:.2f}"


def student_of(geometry: Geometry) -> float:
    """How many standard errors make half of a 95% interval."""
    K = 2 if geometry.replicates is None else len(geometry.replicates)
    return float(student.ppf(0.975, K - 1))


def error_of_means(
    measure: Callable[[FloatArray], FloatArray], geometry: Geometry
) -> FloatArray | None:
    """Half of the 95% intervals of some means of a geometry; None where errors are not known."""
    if geometry.replicates is None or geometry.halves is None:
        return None
    half = numbers(measure, geometry).half
    return half if np.isfinite(half).all() else None
