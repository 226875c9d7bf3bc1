"""The report: every figure in words, one page that stands alone, and numbers that are right."""

import base64
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from posgeom.counts import Provenance
from posgeom.mds import classical_mds
from posgeom.rank import explained_share, stress_by_rank
from posgeom.report import write_report
from posgeom.report.figures import FIGURES, number, render
from posgeom.report.html import plugin_caution, report_html, summary
from posgeom.stress import (
    kruskal_stress_1,
    monotonicity_violation,
    optimal_scale,
    pairs,
    raw_stress,
    separation,
    shift_invariant_floor,
    spearman,
    stress,
)

HOSTILE = '<script>alert(1)</script> & $x^2$ "quoted"'


def sinusoidal(n, d=64, base=10_000):
    angles = np.arange(n)[:, None] * base ** (-np.arange(0, d, 2) / d)
    return np.hstack([np.sin(angles), np.cos(angles)])


def between_rows(X):
    return np.linalg.norm(X[:, None] - X[None], axis=2)


def smooth_rows(n, grid=None):
    """Root profiles of a mixture of three Zipf-like sources that drifts along the positions."""
    t = np.arange(n) / max(1, n - 1)
    if grid:
        t = (np.add.outer(np.arange(grid[0]) ** 2, np.arange(grid[1])) / grid[0] ** 2).ravel()
    weights = np.stack([np.exp(-(((t - c) / 0.3) ** 2)) for c in (0.0, 0.45, 1.0)], axis=1)
    sources = np.random.default_rng(1).dirichlet(np.full(60, 0.3), size=3)
    return np.sqrt(weights / weights.sum(axis=1, keepdims=True) @ sources)


def stand_in(n=32, grid=None, d=64, rank=3, D=None, title="a corpus", extra=(), **changes):
    """What the report reads of a Design, from a known truth."""
    n = grid[0] * grid[1] if grid else n
    D = between_rows(smooth_rows(n, grid)) if D is None else D
    index = np.arange(n)
    cells = np.stack(np.unravel_index(index, grid), axis=1) if grid else index
    mds = classical_mds(D)
    r = min(rank, mds.coordinates.shape[1])
    B = np.linalg.qr(np.random.default_rng(0).standard_normal((d, r)))[0]
    A = mds.coordinates[:, :r]
    line = np.abs(index[:, None] - index[None]).astype(float)
    deltas = {
        f"mds:rank={r}": ("mds", between_rows(A), False),
        "mds": ("mds", between_rows(mds.coordinates), False),
        "sinusoidal": ("sinusoidal", between_rows(sinusoidal(n)), True),
        "rope": ("rope", between_rows(sinusoidal(n)), True),
        "alibi:heads=8": ("alibi", line / 2, True),
        "random": ("random", between_rows(np.random.default_rng(2).normal(size=(n, d))), False),
    }
    deltas |= {name: ("learned", line**0.5 * (k + 1), False) for k, name in enumerate(extra)}
    scores = pd.DataFrame(
        {
            "encoding": name,
            "family": family,
            "parameters": n * d,
            "stress": stress(δ, D),
            "stress_raw": raw_stress(δ, D),
            "scale": optimal_scale(δ, D),
            "kruskal_stress_1": kruskal_stress_1(δ, D),
            "spearman": spearman(δ, D),
            "monotonicity_violation": monotonicity_violation(δ, D) if n < 100 else 0.1,
            "separation": separation(δ),
            "shift_invariant": invariant,
            "note": "",
        }
        for name, (family, δ, invariant) in deltas.items()
    )
    by_rank, raw_by_rank = stress_by_rank(mds.coordinates, D)
    ranks = np.arange(1, len(by_rank) + 1)
    made = SimpleNamespace(
        title=title,
        geometry=SimpleNamespace(
            distances=D,
            squared=D**2,
            totals=np.maximum(5, (9000 * np.exp(-np.arange(n) / 12)).astype(int)),
            positions=cells,
            index=index,
            grid=grid,
            metric="hellinger",
            estimator="plugin",
        ),
        counts=SimpleNamespace(
            n_folds=16,
            pooled=csr_array(np.ones((n, 60), dtype=np.int64)),
            provenance=Provenance(sources=(title,), documents=9000, tokenizer="words"),
        ),
        mds=mds,
        low_rank=SimpleNamespace(A=A, B=B, table=lambda: A @ B.T, n_parameters=r * (n + d)),
        ranks=pd.DataFrame(
            {
                "rank": ranks,
                "stress": by_rank,
                "stress_raw": raw_by_rank,
                "explained": explained_share(mds.eigenvalues)[: len(ranks)],
                "parameters": ranks * (n + d),
            }
        ),
        scores=scores,
        floor=shift_invariant_floor(D, cells),
        encodings={
            name: SimpleNamespace(distances=lambda _, δ=δ: δ, shift_invariant=invariant)
            for name, (_, δ, invariant) in deltas.items()
        },
        settings={"source": title, "positions": n, "dim": d, "rank": "auto", "seed": 0},
        provenance={"command": f"posgeom design {title!r}", "versions": {"numpy": "2.0"}},
        notes=("2 documents were empty and were skipped",),
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


CASES = {
    "usual": {},
    "two positions": {"n": 2, "rank": 1},
    "grid": {"grid": (8, 8)},
    "rank 1": {"rank": 1},
    "line": {"D": np.abs(np.subtract.outer(np.arange(20.0), np.arange(20.0))), "n": 20},
    "constant distances": {"D": 0.8 * (1 - np.eye(12)), "n": 12, "rank": 11},
    "fifteen encodings": {
        "extra": [f"learned:a/long/path/$to${k}.npy#wpe.weight" for k in range(9)]
    },
    "curved": {"D": np.abs(np.subtract.outer(np.arange(16.0), np.arange(16.0))) ** 2, "n": 16},
}


@pytest.fixture(scope="module", params=CASES, ids=lambda name: name.replace(" ", "-"))
def design(request):
    return stand_in(**CASES[request.param])
