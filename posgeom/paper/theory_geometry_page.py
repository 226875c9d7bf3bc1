"""What the theory part says of distances, classical MDS and rank: from tables to words."""

from typing import TYPE_CHECKING

from posgeom.paper.gram_stress import LineFit
from posgeom.paper.page import Judgement, Section, markdown_table
from posgeom.paper.rank_bound import THRESHOLD
from posgeom.paper.theory_page import Part, claimed, fraction, rounding
from posgeom.report.words import join, number

if TYPE_CHECKING:
    import pandas as pd

ROUNDING = 1e-9  # of a raw stress: an exact reproduction


def chord_part(ratios: "pd.DataFrame", table: "pd.DataFrame") -> Part:
    """Eq. 3, chord and geodesic, from ratio_table and chord_table."""
    plugin = table[table["estimator"] == "plugin"]
    moved = table[table["rank_chord"] != table["rank_geodesic"]]
    cells = table.groupby(["corpus", "positions", "estimator"]).ngroups
    change = (table["geodesic"] - table["chord"]).abs().max()
    exact = plugin["exact_chord"].max()
    judgements = (
        Judgement(
            "the Hellinger distance (chord) and the geodesic of Fisher and Rao are one",
            "Eq. 3",
            "–",
            f"geodesic / chord rises from {ratios['ratio'].min():.3f} to "
            f"{ratios['ratio'].max():.3f}; {table['ratio_low'].min():.3f} to "
            f"{table['ratio_high'].max():.3f} on the corpora",
            "2·arccos(BC) = 4·arcsin(d_H/2)",
            "fails, with little effect here",
        ),
        Judgement(
            "the choice does not matter to the ranking of encodings",
            "tables of all corpora",
            "–",
            f"stress differs by {number(change)} at most; {len(moved)} of {len(table)} places "
            f"change in {cells} rankings",
            "scale-free stress",
            "holds" if moved.empty else "holds but for near ties",
        ),
        Judgement(
            "an exact reproduction is impossible in general, the geometry being curved",
            "abstract, Proposition 6",
            "–",
            f"raw stress of classical MDS with all axes: {rounding(exact)} at most, plug-in",
            "the chord of Eq. 3",
            "fails for the chord: √μ is itself exact, in n − 1 dimensions"
            if exact < ROUNDING
            else "holds",
        ),
    )
    lines = [
        "The chord d_H = ‖√μ_i − √μ_j‖ cuts through the sphere on which √μ lies, the geodesic "
        "goes along it:",
        "",
        *markdown_table(
            ("chord", "geodesic", "ratio"),
            [
                (f"{row['chord']:.4g}", f"{row['geodesic']:.4f}", f"{row['ratio']:.4f}")
                for row in ratios.to_dict("records")
            ],
        ),
        "",
        "The ratio hardly moves while distances are small, and no scale-free stress sees a "
        "constant. Eq. 4 itself does: against distances twice as long, rows of the same size have "
        "another raw stress. Debiased figures of this table are those of the debiased distances "
        "themselves; with errors, and corrected for the bias that stress has as a ratio, they "
        "stand in the reports on the corpora, and are somewhat lower there.",
        *_random_first(plugin),
        "",
        *markdown_table(
            (
                "corpus, n",
                "estimator",
                "encoding",
                "stress, chord",
                "stress, geodesic",
                "Eq. 4, chord",
                "Eq. 4, geodesic",
                "places",
            ),
            [
                (
                    f"{row['corpus']}, {row['positions']}",
                    row["estimator"],
                    row["encoding"],
                    number(row["chord"]),
                    number(row["geodesic"]),
                    number(row["chord_raw"]),
                    number(row["geodesic_raw"]),
                    f"{row['rank_chord']}, {row['rank_geodesic']}",
                )
                for row in table.to_dict("records")
            ],
        ),
        "",
        "Only the geodesic, and distances whose noise was taken out, can have negative "
        "eigenvalues: their share of Σ|λ| and the raw stress that classical MDS with all its axes "
        "leaves are",
        "",
        *markdown_table(
            ("corpus, n", "estimator", "chord, negative", "left", "geodesic, negative", "left"),
            [
                (
                    f"{row['corpus']}, {row['positions']}",
                    row["estimator"],
                    number(row["negative_chord"]),
                    number(row["exact_chord"]),
                    number(row["negative_geodesic"]),
                    number(row["exact_geodesic"]),
                )
                for row in table.drop_duplicates(["corpus", "positions", "estimator"]).to_dict(
                    "records"
                )
            ],
        ),
    ]
    return Part(judgements, Section("Eq. 3: chord and geodesic", tuple(lines)))


def _random_first(plugin: "pd.DataFrame") -> list[str]:
    """A word on corpora whose plug-in distances random rows fit best."""
    first = plugin[(plugin["encoding"] == "random") & (plugin["rank_chord"] == 1)]
    if first.empty:
        return []
    names = join([f"{row['corpus']} (n = {row['positions']})" for row in first.to_dict("records")])
    return [
        "",
        f"Under either distance random rows fit the plug-in geometry of {names} best of the five. "
        "On text nearly all of it is noise, which puts all pairs equally far apart.",
    ]


def gram_part(classical: LineFit, least: LineFit, table: "pd.DataFrame") -> Part:
    """Proposition 6 from the two lines and gram_against_stress."""
    worst = table.nlargest(1, "excess").iloc[0]
    judgements = (
        claimed(
            "optimal",
            f"three one-hot distributions on a line: {classical.raw_stress} by classical MDS, "
            f"{least.raw_stress} at least; on corpora up to {worst['excess']:.1f} times the least",
            "Eq. 4 and the chord, exact fractions; SMACOF on corpora",
            "fails" if least.raw_stress < classical.raw_stress else "holds",
        ),
        Judgement(
            "classical MDS is the best fit of the Gram matrix",
            "Proposition 6, proof",
            "–",
            f"‖xxᵀ − B‖² is {classical.gram_error} for its line and {least.gram_error} for that "
            "of least stress",
            "the same three points, in units of √2",
            "holds: another objective",
        ),
    )
    rows = [
        (
            name,
            "(" + ", ".join(map(fraction, fit.x)) + ")",
            str(fit.raw_stress),
            str(fit.stress),
            str(fit.gram_error),
        )
        for name, fit in (("classical MDS", classical), ("least stress", least))
    ]
    lines = [
        "Three one-hot distributions lie √2 apart. On a line, in units of √2:",
        "",
        *markdown_table(("points", "x", "Eq. 4", "scale-free", "‖xxᵀ − B‖²"), rows),
        "",
        "The gaps of the second line solve 2a + b = 2, a + 2b = 2; by symmetry no other order of "
        "the points is better. What the optimum is worth on corpora, same rank and parameters:",
        "",
        *markdown_table(
            (
                "corpus, n",
                "estimator",
                "rank",
                "Eq. 4, MDS",
                "Eq. 4, least",
                "times",
                "scale-free, MDS",
                "least",
            ),
            [
                (
                    f"{row['corpus']}, {row['positions']}",
                    row["estimator"],
                    str(row["rank"]),
                    number(row["raw_mds"]),
                    number(row["raw_least"]),
                    f"{row['excess']:.1f}",
                    number(row["mds"]),
                    number(row["least"]),
                )
                for row in table.to_dict("records")
            ],
        ),
        "",
        "Least is what SMACOF finds from the classical solution: a local minimum, so that the "
        "true one may be lower still.",
    ]
    return Part(judgements, Section("Proposition 6: classical MDS and stress", tuple(lines)))


def rank_part(made: "pd.DataFrame", real: "pd.DataFrame", dim: int) -> Part:
    """Remark 8 from constructed_ranks and corpus_ranks."""
    right = bool((made["rank"] == made["expected"]).all())
    bounded = bool(
        (made["rank"] <= made["bound"]).all() and (real["plugin"] <= real["bound"]).all()
    )
    below = made[made["rank"] < made["bound"]]
    full = real[real["plugin"] == real["bound"]]
    n = int(made["positions"].iloc[0])
    most = max(r for r in range(n) if r * (n + dim) < n * dim)
    judgements = (
        Judgement(
            "rank(B) ≤ n − 1",
            "Remark 8",
            "–",
            f"{len(made)} constructed cases and {len(real)} corpora; ranks as constructed: "
            f"{'all' if right else 'not all'}",
            f"eigenvalues above {THRESHOLD}",
            "holds" if bounded else "fails",
        ),
        Judgement(
            "equality",
            "Remark 8",
            "–",
            f"below n − 1 in {len(below)} of {len(made)} constructed cases: "
            + "; ".join(f"{row['case']} ({row['rank']})" for row in below.to_dict("records")),
            f"n = {n}",
            "only where all √μ are affinely independent: that positions differ is not enough",
        ),
        Judgement(
            "the effective rank of a corpus is rank(B)",
            "Remark 8",
            "–",
            "; ".join(
                f"{row['corpus']}: {row['plugin']} plug-in, {row['noise_plugin']} without any "
                f"structure, {row['tested']} tested"
                for row in real.to_dict("records")
            ),
            "Hellinger chord",
            f"plug-in full rank is noise ({', '.join(full['corpus'])})" if len(full) else "holds",
        ),
        Judgement(
            "r(n + d) parameters are fewer than nd",
            "Remark 8",
            "–",
            f"at n = {n}, d = {dim} up to r = {most}; at r = n − 1 it takes "
            f"{(n - 1) * (n + dim):,} in place of {n * dim:,}",
            "",
            "holds for r < nd/(n + d) only",
        ),
    )
    lines = [
        f"Rank is the number of eigenvalues of B above {THRESHOLD}, ε = 2.2 × 10⁻¹⁶. √μ_i are "
        "points of a sphere in as many dimensions as there are token types V, so that "
        "rank(B) ≤ min(n − 1, V), and m − 1 at most where only m distributions differ.",
        "",
        *markdown_table(
            (
                "constructed",
                "V",
                "n − 1",
                "rank expected",
                "found",
                "last kept",
                "first left",
                "geodesic: rank",
                "negative",
            ),
            [
                (
                    row["case"],
                    str(row["vocabulary"]),
                    str(row["bound"]),
                    str(row["expected"]),
                    str(row["rank"]),
                    number(row["last_kept"]),
                    rounding(row["first_dropped"]),
                    str(row["geodesic_rank"]),
                    str(row["geodesic_negative"]),
                )
                for row in made.to_dict("records")
            ],
        ),
        "",
        "Three distributions give rank 2 as blocks, and rank 3 as smooth mixtures where they share "
        "no tokens: the paper's row of rank 3 fits the second.",
        "",
        "Corpora, each beside one of its size whose positions all have one distribution:",
        "",
        *markdown_table(
            (
                "corpus",
                "n − 1",
                "types",
                "plug-in rank",
                "without structure",
                "tested",
                "tested, without",
                "above noise",
                "participation, plug-in",
                "debiased",
                "noise in Σλ",
            ),
            [
                (
                    f"{row['corpus']}, {row['positions']}",
                    str(row["bound"]),
                    f"{row['types']:,}",
                    str(row["plugin"]),
                    str(row["noise_plugin"]),
                    str(row["tested"]),
                    str(row["noise_tested"]),
                    str(row["above_noise"]),
                    f"{row['participation_plugin']:.1f}",
                    f"{row['participation_debiased']:.1f}",
                    f"{row['noise_trace']:.0%}",
                )
                for row in real.to_dict("records")
            ],
        ),
        "",
        "Tested: dimensions that a randomisation test over folds finds at 5%. Noise in Σλ: the "
        "eigenvalues of the corpus without structure, as a share of those of the corpus.",
        "",
        "![Plug-in eigenvalues of corpora, and without structure](figures/spectra.svg)",
    ]
    return Part(judgements, Section("Remark 8: rank", tuple(lines)))
