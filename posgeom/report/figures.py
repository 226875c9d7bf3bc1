"""The report's figures: what each shows, how to read it, and its numbers in words.

Each function takes a finished Design and an empty Figure, prepares the arrays, has `plots` draw
them and returns the caption (how to read it) and the alt text (what it shows, for those who
cannot see it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from posgeom import plots
from posgeom.rank import explained_share
from posgeom.stress import pairs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from posgeom.design import Design

FloatArray = NDArray[np.float64]

MOST_DOTS = 20_000  # pairs in one Shepard panel; more only make it blacker
FEW_TOKENS = 100  # positions with fewer are marked
LEAST_STRESS = 1e-8  # where a log axis of stress may end
ROUNDING = 1e-12  # numbers below are shown as 0


@dataclass(frozen=True)
class Words:
    """Caption: how to read the figure.  Alt: what it shows, with the main numbers."""

    caption: str
    alt: str


@dataclass(frozen=True)
class FigureSpec:
    """One figure of the report.  `embed` is the form that the HTML carries."""

    name: str
    title: str
    size: tuple[float, float]
    embed: Literal["svg", "png"]
    draw: Callable[[Design, Figure], Words]


def number(x: float) -> str:
    """x to three significant digits as people write it: 0.0463, 1,240, 3.10 × 10⁻⁵."""
    if not np.isfinite(x):
        return "–" if np.isnan(x) else "∞"
    if abs(x) < ROUNDING:
        return "0"
    if abs(x) >= 1000:
        text = f"{x:,.0f}"
    elif abs(x) < 1e-4:
        mantissa, exponent = f"{x:.2e}".split("e")
        text = f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}"
    else:
        text = f"{x:#.3g}".rstrip(".")
    return text.replace("-", "−")


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def by_stress(design: Design) -> pd.DataFrame:
    """The scores, best first; encodings that differ by rounding alone stay as they came."""
    return design.scores.sort_values("stress", kind="stable", key=lambda stress: stress.round(12))


def chosen_rank(design: Design) -> int:
    """The rank r of the low-rank encoding, from the shape (n, r) of its A."""
    return int(design.low_rank.A.shape[1])


def stress_at(design: Design, rank: int) -> float:
    """The stress of one rank; ranks past the table's last add nothing to it."""
    row = int(np.searchsorted(design.ranks["rank"], rank, side="right")) - 1
    return float(design.ranks["stress"].iloc[row])


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
    return Words(
        "Each cell is the distance between the tokens at two positions: dark where they are used "
        "alike, light where they differ. Bands along the diagonal mean that only the offset "
        "counts; a bright cross means that one position differs from all others." + cells + scale,
        f"Matrix of the distances between {len(D)} positions: {number(least)} to {number(most)}, "
        f"mean {number(d.mean())}; the farthest pair is positions {index[i]} and {index[j]}.",
    )


def _spectrum(design: Design, figure: Figure) -> Words:
    w, r = design.mds.eigenvalues, chosen_rank(design)
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


def _stress_by_encoding(design: Design, figure: Figure) -> Words:
    scores = by_stress(design)
    names = scores["encoding"].astype(str).tolist()
    stress, raw = scores["stress"].to_numpy(float), scores["stress_raw"].to_numpy(float)
    texts = [f"{number(s)}   (raw {number(r)})" for s, r in zip(stress, raw, strict=True)]
    figure.set_figheight(1.15 + 0.31 * len(names))
    plots.stress_bars(
        figure.subplots(),
        names,
        _no_rounding(stress),
        texts,
        scores["shift_invariant"].to_numpy(bool),
        design.floor.value,
    )
    ranking = ", ".join(f"{name} {number(s)}" for name, s in zip(names, stress, strict=True))
    floor = (
        "The dashed floor is the least of any encoding that sees only how many rows and columns "
        "two cells stand apart; one that numbers the cells row by row can fall below it."
        if design.geometry.grid
        else "Blue encodings see only the offset between two positions and cannot come below the "
        "dashed floor."
    )
    return Words(
        "Short bars are good: stress 0 means that the encoding has the corpus's distances up to "
        f"a scale, 1 that it has nothing of them. {floor} In brackets: raw stress, which the "
        "encoding's own scale enters.",
        f"Bars of stress, best first: {ranking}. Floor by offset alone: {number(design.floor.value)}.",
    )


def _stress_by_rank(design: Design, figure: Figure) -> Words:
    rank, r = design.ranks["rank"].to_numpy(), chosen_rank(design)
    stress, raw = (_no_rounding(design.ranks[k].to_numpy(float)) for k in ("stress", "stress_raw"))
    above = stress[stress >= LEAST_STRESS]
    # A log axis only where it is needed: from a factor of ten on, or where some are 0.
    log = above.size and (above.size < stress.size or above.max() > 10 * above.min())
    bottom = 0.5 * float(above.min()) if log else None
    curves = {"stress": stress, "raw stress": raw}
    at = stress_at(design, r)
    plots.stress_by_rank(figure.subplots(), rank, curves, r, at, bottom)
    return Words(
        "What is lost by keeping fewer dimensions: where the curve flattens, more dimensions buy "
        "little. The ring is the rank of the low-rank encoding. Raw stress is with the distances "
        "as they are, stress with the best common scale.",
        f"Stress falls from {number(stress[0])} at rank {rank[0]} to {number(stress[-1])} at rank "
        f"{rank[-1]}; the chosen rank {r} has {number(at)}.",
    )


def _shepard(design: Design, figure: Figure) -> Words:
    d, (offset, offset_name) = pairs(design.geometry.distances), _offsets(design)
    some = np.arange(len(d))
    if len(d) > MOST_DOTS:
        some = np.sort(np.random.default_rng(0).choice(len(d), MOST_DOTS, replace=False))
    shown = _one_a_family(design, 6)
    scaled = {name: δ[some] for name, _, δ in _fitted(design) if name in shown}
    limit = 1.05 * max([d.max(initial=0), *(δ.max(initial=0) for δ in scaled.values())]) or 1.0
    columns, rows = min(3, max(1, len(scaled))), max(1, -(-len(scaled) // 3))
    figure.set_size_inches(9, 0.9 + 2.75 * rows)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for ax, (name, δ) in zip(axes, scaled.items(), strict=False):
        plots.shepard(ax, d[some], δ, offset[some], limit, name, f"stress {shown[name]}")
    for ax in axes[len(scaled) :]:
        ax.set_visible(False)
    if scaled:
        plots.position_bar(axes.tolist(), offset_name, 0.7)
    figure.supxlabel("distance in the corpus", fontsize="medium")
    figure.supylabel("distance of the encoding, scaled", fontsize="medium")
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
    xy = np.zeros((n, 2))
    width = min(2, design.mds.coordinates.shape[1])
    xy[:, :width] = design.mds.coordinates[:, :width]
    w = np.maximum(design.mds.eigenvalues, 0)
    total = float(w.sum()) or 1.0
    shares = (float(w[0]) / total, float(w[1:2].sum()) / total)
    plots.trajectory(figure.subplots(), xy, index, xy[_neighbours(design)], shares)
    lines = (
        "lines join the grid's neighbouring cells. An orderly net means that the corpus changes "
        "gradually from cell to cell, a tangle that it does not."
        if design.geometry.grid
        else "lines join each position to the next. A smooth path means that the corpus changes "
        "gradually, a knot that it is nearly stationary, a lone dot that one position is special."
    )
    return Words(
        "The two-dimensional map that keeps most of the geometry. Positions that stand close are "
        f"used alike; {lines} The other axes are not seen here: mind the shares.",
        f"Map of {n} positions by the first two coordinates, which hold {100 * shares[0]:.1f}% and "
        f"{100 * shares[1]:.1f}% of the variance. The first position lies at "
        f"({number(xy[0, 0])}, {number(xy[0, 1])}), the last at "
        f"({number(xy[-1, 0])}, {number(xy[-1, 1])}).",
    )


def _distance_by_offset(design: Design, figure: Figure) -> Words:
    d, (offset, name) = pairs(design.geometry.distances), _offsets(design)
    steps, group = np.unique(offset.round(9), return_inverse=True)
    size = np.bincount(group)
    by_group = np.split(d[np.argsort(group, kind="stable")], np.cumsum(size)[:-1])
    low, high = np.array([np.percentile(x, (10, 90)) for x in by_group]).reshape(-1, 2).T
    mean = np.bincount(group, d) / size
    groups: list[tuple[list[str], FloatArray]] = []
    for encoding, _, δ in _fitted(design):
        curve = np.bincount(group, δ) / size
        near = (names for names, other in groups if _coincide(curve, other))
        if names := next(near, None):
            names.append(encoding)
        else:
            groups.append(([encoding], curve))
    curves = {" = ".join(names): curve for names, curve in groups}
    figure.set_figheight(4.3 + 0.11 * len(curves))
    plots.distance_by_offset(figure.subplots(), steps, mean, low, high, curves, name)
    far = mean[-1] / mean[0] if mean[0] > 0 else float("nan")
    return Words(
        f"How distance grows with the {name}. A narrow grey band means that "
        "it says nearly all, so a relative encoding can follow; a wide one that it matters where "
        "the pair stands. Curves are the encodings' means, each scaled to fit the "
        "corpus best; names joined by = lie on one curve.",
        f"Mean distance is {number(mean[0])} at the least offset and {number(mean[-1])} at the "
        f"largest, {number(far)} times as much; at the least offset 80% of the pairs lie between "
        f"{number(low[0])} and {number(high[0])}. Curves for {len(design.scores)} encodings.",
    )


def _heat_map(design: Design, figure: Figure) -> Words:
    table = np.asarray(design.low_rank.table(), dtype=np.float64)
    n, d = table.shape
    largest = float(np.abs(table).max(initial=0))
    title = f"low-rank encoding, rank {chosen_rank(design)}, {n} × {d}"
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
    return Words(
        "How much each position's distances rest on. Few tokens mean noisy distances; where the "
        "curve falls, late positions look farther away than they are."
        + (" The scale is logarithmic." if log else ""),
        f"Tokens at each position: {totals[0]:,} at the first, {totals[-1]:,} at the last, "
        f"{totals.min():,} at the fewest; {few} of {len(totals)} positions have fewer than "
        f"{FEW_TOKENS}.",
    )


FIGURES: tuple[FigureSpec, ...] = (
    FigureSpec("stress_by_encoding", "Stress by encoding", (9, 4), "svg", _stress_by_encoding),
    FigureSpec("distance_matrix", "Distances in the corpus", (6.6, 5.4), "png", _distance_matrix),
    FigureSpec("distance_by_offset", "Distance by offset", (9, 5), "svg", _distance_by_offset),
    FigureSpec("trajectory", "The geometry in two dimensions", (7.6, 5.6), "svg", _trajectory),
    FigureSpec("spectrum", "Spectrum", (9, 3.7), "svg", _spectrum),
    FigureSpec("stress_by_rank", "Stress by rank", (9, 3.7), "svg", _stress_by_rank),
    FigureSpec("shepard", "Shepard diagrams", (9, 6), "png", _shepard),
    FigureSpec("heat_map", "The encoding", (9, 4.4), "png", _heat_map),
    FigureSpec("tokens_by_position", "Tokens by position", (9, 3.2), "svg", _tokens_by_position),
)


def _fitted(design: Design) -> Iterator[tuple[str, float, FloatArray]]:
    """Name, stress and scaled pair distances α·δ of each encoding, best first.

    One at a time: for long geometries all of them together would not fit in memory.
    """
    scores = by_stress(design)
    for name, stress, scale in zip(
        scores["encoding"], scores["stress"], scores["scale"], strict=True
    ):
        if name in design.encodings and np.isfinite(scale):
            δ = design.encodings[name].distances(design.geometry.index)
            yield str(name), float(stress), scale * pairs(np.asarray(δ, dtype=np.float64))


def _one_a_family(design: Design, most: int) -> dict[str, str]:
    """Up to `most` encodings and their stress in words: the best of each family, then the rest."""
    scores = by_stress(design)
    scores = scores[scores["encoding"].isin(list(design.encodings))]
    later = scores["family"].duplicated().to_numpy()
    picked = scores.iloc[np.sort(np.argsort(later, kind="stable")[:most])]
    return {
        str(name): number(stress)
        for name, stress in zip(picked["encoding"], picked["stress"], strict=True)
    }


def _offsets(design: Design) -> tuple[FloatArray, str]:
    """For each pair i < j how far apart it stands in the sequence or grid, and that in words."""
    i, j = np.triu_indices(len(design.geometry.index), 1)
    X = np.asarray(design.geometry.positions if design.geometry.grid else design.geometry.index)
    steps = np.linalg.norm((X[i] - X[j]).reshape(len(i), -1).astype(np.float64), axis=1)
    return steps, "distance in the grid (cells)" if design.geometry.grid else "offset |i − j|"


def _neighbours(design: Design) -> NDArray[np.intp]:
    """Rows of the positions that a line joins, (m, 2): the next one, or the next cell."""
    if not design.geometry.grid:
        rows = np.arange(len(design.geometry.index))
        return np.stack([rows[:-1], rows[1:]], axis=1)
    at = {(int(y), int(x)): row for row, (y, x) in enumerate(design.geometry.positions)}
    joined = [
        (row, at[cell])
        for (y, x), row in at.items()
        for cell in ((y, x + 1), (y + 1, x))
        if cell in at
    ]
    return np.array(joined, dtype=np.intp).reshape(-1, 2)


def _no_rounding(stress: FloatArray) -> FloatArray:
    """Stresses to draw: rounding, and what is not defined, as 0."""
    return np.where(stress > ROUNDING, stress, 0.0)


def _coincide(curve: FloatArray, other: FloatArray) -> bool:
    """Whether two curves would be drawn on top of each other."""
    return bool(np.abs(curve - other).max() <= 5e-3 * np.abs(other).max())
