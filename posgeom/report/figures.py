"""The report's figures: what each shows, how to read it, and its numbers in words.

Each function takes a finished Design and an empty Figure, prepares the arrays, has `plots` draw
them and returns the caption (how to read it) and the alt text (what it shows, for those who
cannot see it).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from posgeom import plots
from posgeom.rank import explained_share
from posgeom.report import evidence, ranks
from posgeom.report.words import (
    FigureSpec,
    Words,
    by_stress,
    coincide,
    column,
    neighbours,
    number,
    offsets,
    stress_texts,
    with_error,
)
from posgeom.scoring import encoding_distances
from posgeom.stress import pairs
from posgeom.trajectory import mds_trajectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posgeom.design import Design

FloatArray = NDArray[np.float64]

MOST_DOTS = 6_000  # pairs in one Shepard panel; more only make it blacker
FEW_TOKENS = 100  # positions with fewer are marked


def _distance_matrix(design: Design, figure: Figure) -> Words:
    D, index = design.geometry.distances, design.geometry.index
    d = pairs(D)
    least, most = float(d.min(initial=np.inf)), float(d.max(initial=0))
    stretched = 0.3 * most < least < (1 - 1e-9) * most
    M = D.copy()
    np.fill_diagonal(M, np.nan)  # always 0: it would only stretch the colours
    low = least if stretched else 0.0
    plots.distance_matrix(figure.subplots(), M, low, most or 1.0, index)
    i, j = (k[int(d.argmax())] for k in np.triu_indices(len(D), 1))
    scale = (
        f" The colours start at {number(least)}, not at 0, so they make differences look larger "
        "than they are: read the bar."
        if stretched
        else ""
    )
    cells = (
        " Positions are the grid's cells, row by row, so neighbours in a column stand a row's "
        "length apart."
        if design.geometry.grid
        else ""
    )
    below = int((pairs(design.geometry.squared) < 0).sum())
    alike = (
        f" In {below:,} of {len(d):,} pairs noise took the estimate of the square below 0: they "
        "are shown as 0, and not told apart."
        if below
        else ""
    )
    return Words(
        "Each cell is the distance between the tokens at two positions: dark where they are used "
        "alike, light where they differ. Bands along the diagonal mean that only the offset "
        "counts; a bright cross means that one position differs from all others."
        + cells
        + scale
        + alike,
        f"Matrix of the distances between {len(D)} positions: {number(least)} to {number(most)}, "
        f"mean {number(d.mean())}; the farthest pair is positions {index[i]} and {index[j]}.",
    )


def _spectrum(design: Design, figure: Figure) -> Words:
    w, r = design.mds.eigenvalues, design.low_rank.rank
    size, share = np.abs(w), explained_share(w)
    drawn = size >= 1e-6 * size.max()
    bottom = 0.5 * float(size[drawn & (size > 0)].min(initial=1.0)) if size.any() else 0.1
    left, right = figure.subplots(1, 2)
    last = max(r, int(np.flatnonzero(drawn)[-1]) + 1)
    plots.spectrum(left, w[:last], bottom, r)
    plots.cumulative_share(right, share[:last], r)
    negative = np.minimum(w * drawn, 0)
    below = (
        " Eigenvalues below a millionth of the largest are not drawn." if not drawn.all() else ""
    )
    return Words(
        "Left: each eigenvalue is the variance along one axis of the geometry, so few large ones "
        "mean few dimensions. Triangles are negative eigenvalues: no Euclidean space holds these "
        "distances exactly, and positive ones of the same size are no better than noise. Right: "
        "the share of the (positive) variance that the first axes hold." + below,
        f"Eigenvalues: the largest is {number(w[0])}, {(negative < 0).sum()} are negative"
        + (f" (the lowest {number(negative.min())})" if negative.any() else "")
        + f"; the first {r} of {len(w)} hold {100 * share[r - 1]:.1f}% of the variance.",
    )


def _shepard(design: Design, figure: Figure) -> Words:
    d, (offset, offset_name) = pairs(design.geometry.distances), offsets(design.geometry)
    some = np.arange(len(d))
    if len(d) > MOST_DOTS:
        some = np.sort(np.random.default_rng(0).choice(len(d), MOST_DOTS, replace=False))
    shown = _one_a_family(design, 6)
    scaled = {name: δ[some] for name, _, δ in _fitted(design) if name in shown}
    limit = 1.05 * max([d.max(initial=0), *(δ.max(initial=0) for δ in scaled.values())]) or 1.0
    columns, rows = min(3, max(1, len(scaled))), max(1, -(-len(scaled) // 3))
    width, height = 1.9 + 2.35 * columns, 0.75 + 2.75 * rows
    figure.set_size_inches(width, height)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    left, right, bottom, top = 0.8, 0.1, 0.6, 0.45
    figure.subplots_adjust(
        left / width, bottom / height, 1 - right / width, 1 - top / height, hspace=0.28
    )
    for ax, (name, δ) in zip(axes, scaled.items(), strict=False):
        plots.shepard(ax, d[some], δ, offset[some], limit, name, f"stress {shown[name]}")
    for ax in axes[len(scaled) :]:
        ax.set_visible(False)
    if scaled:
        plots.position_bar(axes.tolist(), offset_name, 0.7)
    figure.supxlabel("distance in the corpus", fontsize="medium", y=0.12 / height)
    figure.supylabel("distance of the encoding, scaled", fontsize="medium", x=0.012)
    sample = (
        f" Drawn: {MOST_DOTS:,} of {len(d):,} pairs, chosen by lot." if len(some) < len(d) else ""
    )
    chosen = f", {len(shown)} of {len(design.scores)}" if len(shown) < len(design.scores) else ""
    best = ", ".join(f"{name} (stress {stress})" for name, stress in shown.items())
    return Words(
        "Each dot is a pair of positions; on the dashed line the encoding has exactly the corpus's "
        "distance. Dots far above it are pairs that the encoding sets too far apart, below too "
        "close. Horizontal bands: the encoding follows the offset where the corpus does not. "
        f"Best first{chosen}." + sample,
        f"Shepard diagrams of {len(some):,} pairs of positions with distances "
        f"{number(d.min(initial=np.inf))} to {number(d.max(initial=0))} for {best}.",
    )


def _trajectory(design: Design, figure: Figure) -> Words:
    n, index = len(design.geometry.index), design.geometry.index
    xy, outlines, errors = np.zeros((n, 2)), None, ""
    width = min(2, design.mds.coordinates.shape[1])
    xy[:, :width] = design.mds.coordinates[:, :width]
    if design.geometry.replicates is not None:
        found = mds_trajectory(design.geometry)
        xy, outlines = found.coordinates, found.ellipses()
        errors = (
            " Ellipses hold each position with 95% probability, as if the corpus were drawn "
            "anew; where they overlap, positions are not told apart in this plane."
        )
    w = np.maximum(design.mds.eigenvalues, 0)
    total = float(w.sum()) or 1.0
    shares = (float(w[0]) / total, float(w[1:2].sum()) / total)
    plots.trajectory(
        figure.subplots(), xy, index, xy[neighbours(design.geometry)], shares, outlines
    )
    lines = (
        "lines join the grid's neighbouring cells. An orderly net means that the corpus changes "
        "gradually from cell to cell, a tangle that it does not."
        if design.geometry.grid
        else "lines join each position to the next. A smooth path means that the corpus changes "
        "gradually, a knot that it is nearly stationary, a lone dot that one position is special."
    )
    return Words(
        "The two-dimensional map that keeps most of the geometry. Positions that stand close are "
        f"used alike; {lines} The other axes are not seen here: mind the "
        f"shares.{errors}",
        f"Map of {n} positions by the first two coordinates, which hold {100 * shares[0]:.1f}% and "
        f"{100 * shares[1]:.1f}% of the variance. The first position lies at "
        f"({number(xy[0, 0])}, {number(xy[0, 1])}), the last at "
        f"({number(xy[-1, 0])}, {number(xy[-1, 1])})."
        + (f" The ellipses are typically {_width(outlines)} wide." if outlines is not None else ""),
    )


def _width(outlines: FloatArray) -> str:
    """The median extent of the outlines along the first axis."""
    return number(float(np.median(np.ptp(outlines[:, :, 0], axis=1))))


def _distance_by_offset(design: Design, figure: Figure) -> Words:
    d, (offset, name) = pairs(design.geometry.distances), offsets(design.geometry)
    steps, group = np.unique(offset, return_inverse=True)
    size = np.bincount(group)
    by_group = np.split(d[np.argsort(group, kind="stable")], np.cumsum(size)[:-1])
    low, high = np.array([np.percentile(x, (10, 90)) for x in by_group]).reshape(-1, 2).T
    mean = np.bincount(group, d) / size
    i, j = np.triu_indices(len(design.geometry.index), 1)
    means = csr_array((1 / size[group], (np.arange(len(group)), group)))
    error = evidence.error_of_means(
        lambda S: np.sqrt(np.maximum(S[..., i, j], 0)) @ means, design.geometry
    )
    groups: list[tuple[list[str], FloatArray]] = []
    for encoding, _, δ in _fitted(design):
        curve = np.bincount(group, δ) / size
        near = (names for names, other in groups if coincide(curve, other))
        if names := next(near, None):
            names.append(encoding)
        else:
            groups.append(([encoding], curve))
    curves = {" = ".join(names): curve for names, curve in groups}
    figure.set_figheight(4.3 + 0.11 * len(curves))
    plots.distance_by_offset(figure.subplots(), steps, mean, low, high, curves, name, error)
    far = mean[-1] / mean[0] if mean[0] > 0 else float("nan")
    first, last = (
        number(mean[k]) if error is None else f"{with_error(mean[k], error[k])} (95%)"
        for k in (0, -1)
    )
    return Words(
        f"How distance grows with the {name}. A narrow grey band means that "
        "it says nearly all, so a relative encoding can follow; a wide one that it matters where "
        "the pair stands. Curves are the encodings' means, each scaled to fit the "
        "corpus best; names joined by = lie on one curve."
        + (" Black strokes are 95% intervals of the mean." if error is not None else ""),
        f"Mean distance is {first} at the least offset and {last} at the "
        f"largest, {number(far)} times as much; at the least offset 80% of the pairs lie between "
        f"{number(low[0])} and {number(high[0])}. Curves for {len(design.scores)} encodings.",
    )


def _heat_map(design: Design, figure: Figure) -> Words:
    table = np.asarray(design.low_rank.table(), dtype=np.float64)
    n, d = table.shape
    largest = float(np.abs(table).max(initial=0))
    title = f"low-rank encoding, rank {design.low_rank.rank}, {n} × {d}"
    plots.heat_map(figure.subplots(), table, largest or 1.0, design.geometry.index, title)
    return Words(
        "The encoding as a model would read it, one row a position: the counterpart of the "
        "well-known picture of sinusoids. A change of colour down a column is where the corpus "
        "changes; the columns mix the same few axes, so many look alike.",
        f"Heat map of the low-rank encoding: {n} positions by {d} dimensions, values from "
        f"{number(table.min(initial=0))} to {number(table.max(initial=0))}.",
    )


def _tokens_by_position(design: Design, figure: Figure) -> Words:
    totals = np.asarray(design.geometry.totals)
    log = bool(totals.max() > 10 * max(1, totals.min()))
    label = "position (row by row)" if design.geometry.grid else "position"
    ax = figure.subplots()
    plots.tokens_by_position(ax, design.geometry.index, totals, FEW_TOKENS, log, label)
    few = int((totals < FEW_TOKENS).sum())
    noisy = (
        "Few tokens mean noisy distances; where the curve falls, late positions look farther away "
        "than they are."
        if design.geometry.estimator == "plugin"
        else "Few tokens mean large errors; the noise that they would add to the distances is "
        "taken out."
    )
    return Words(
        f"How much each position's distances rest on. {noisy}"
        + (" The scale is logarithmic." if log else ""),
        f"Tokens at each position: {totals[0]:,} at the first, {totals[-1]:,} at the last, "
        f"{totals.min():,} at the fewest; {few} of {len(totals)} positions have fewer than "
        f"{FEW_TOKENS}.",
    )


_MATRIX: FigureSpec[Design] = FigureSpec(
    "distance_matrix",
    "Distances in the corpus",
    (6.6, 5.4),
    "png",
    _distance_matrix,
    (0.8, 0.2, 0.6, 0.15),
)
_OFFSET: FigureSpec[Design] = FigureSpec(
    "distance_by_offset", "Distance by offset", (9, 5), "svg", _distance_by_offset
)
_MAP: FigureSpec[Design] = FigureSpec(
    "trajectory",
    "The geometry in two dimensions",
    (7.6, 5.6),
    "svg",
    _trajectory,
    (0.95, 0.2, 0.6, 0.5),
)
_SPECTRUM: FigureSpec[Design] = FigureSpec(
    "spectrum", "Spectrum", (9, 3.7), "svg", _spectrum, evidence.TWO_PANELS
)
_ENCODING: tuple[FigureSpec[Design], ...] = (
    FigureSpec(
        "stress_by_rank",
        "Stress by rank",
        (9, 3.7),
        "svg",
        ranks.stress_by_rank,
        evidence.ONE_PANEL,
    ),
    FigureSpec("shepard", "Shepard diagrams", (9, 6), "png", _shepard, (0.8, 0.1, 0.6, 0.45)),
    FigureSpec("heat_map", "The encoding", (9, 4.4), "png", _heat_map, (0.75, 0.0, 0.6, 0.35)),
    FigureSpec(
        "tokens_by_position",
        "Tokens by position",
        (9, 3.2),
        "svg",
        _tokens_by_position,
        evidence.ONE_PANEL,
    ),
)
# A plug-in geometry knows no errors; one with a test of stationarity shows what noise there is.
PLUGIN_FIGURES: tuple[FigureSpec[Design], ...] = (
    evidence.BARS,
    _MATRIX,
    _OFFSET,
    _MAP,
    _SPECTRUM,
    *_ENCODING,
)
FIGURES: tuple[FigureSpec[Design], ...] = (
    evidence.BARS,
    evidence.MISSES,
    evidence.NOISE,
    _MATRIX,
    _OFFSET,
    _MAP,
    FigureSpec(
        "spectrum",
        evidence.SPECTRUM.title,
        evidence.SPECTRUM.size,
        "svg",
        lambda design, figure: evidence.spectrum(design, figure, design.low_rank.rank),
        evidence.TWO_PANELS,
    ),
    *_ENCODING,
)


def figures_of(design: Design) -> tuple[FigureSpec[Design], ...]:
    """The figures that a design's geometry allows."""
    if design.diagnosis is None:
        return PLUGIN_FIGURES
    return tuple(s for s in FIGURES if s.name != "misses" or evidence.has_misses(design))


def _fitted(design: Design) -> Iterator[tuple[str, float, FloatArray]]:
    """Name, stress and scaled pair distances α·δ of each encoding, best first.

    One at a time: for long geometries all of them together would not fit in memory.
    """
    scores = by_stress(design)
    for name, stress, scale in zip(
        scores["encoding"], column(scores, "stress"), column(scores, "scale"), strict=True
    ):
        if name in design.encodings and np.isfinite(scale):
            δ = encoding_distances(design.geometry, design.encodings[name])
            yield str(name), float(stress), scale * pairs(np.asarray(δ, dtype=np.float64))


def _one_a_family(design: Design, most: int) -> dict[str, str]:
    """Up to `most` encodings and their stress in words: the best of each family, then the rest."""
    scores = by_stress(design)
    scores = scores[scores["encoding"].isin(list(design.encodings))]
    later = scores["family"].duplicated().to_numpy()
    picked = scores.iloc[np.sort(np.argsort(later, kind="stable")[:most])]
    return dict(zip(picked["encoding"].astype(str), stress_texts(picked), strict=True))
