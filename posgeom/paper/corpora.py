"""The paper's real corpora, SST-2 and IMDB: every encoding, and every convention it leaves open."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posgeom.counting import count_positions
from posgeom.counts import PositionCounts
from posgeom.encodings import make_encoding
from posgeom.errors import PosgeomError
from posgeom.paper import page
from posgeom.paper.claims import FIGURES, IMDB, SST2, Figure
from posgeom.paper.conventions import Counted, cases, sweep
from posgeom.paper.conventions_claims import all_claims
from posgeom.paper.corpora_drawing import conventions_drawing, ranks_drawing
from posgeom.paper.corpora_page import Made, judgements, opening, sections
from posgeom.paper.corpora_tables import Pair, encodings_table, ranks_table
from posgeom.paper.page import PaperReport
from posgeom.paper.scales import SCALES
from posgeom.paper.sweep_html import sweep_html
from posgeom.paper.theory_data import BERT, TABLES

if TYPE_CHECKING:
    import pandas as pd

FILES = (
    *page.FILES,
    "encodings.csv",
    "ranks.csv",
    "sweep.csv",
    "debiased.csv",
    "sweep.html",
)
DIGITS = 4  # of the stresses of a sweep
BESIDE = {"sst2": SST2, "imdb": IMDB}  # named corpora, as the paper calls them
HUB_BERT = "hf:bert-base-uncased"
TOKENS = {"bert": False, "bert+special": True, "words": False}  # whether with special tokens


def reproduce_corpus(
    corpus: str,
    name: str,
    positions: int,
    lengths: Sequence[int],
    debiased_lengths: Sequence[int],
    text: str = "documents",
    *,
    also: Mapping[str, str] | None = None,
    beside: str | None = None,
    dim: int = 128,
    learned: Sequence[str] = (),
    quick: bool = False,
    seed: int = 0,
    progress: bool = False,
) -> PaperReport:
    """The paper's table of a corpus: all encodings, plug-in beside debiased, and the sweep.

    name               the paper's table, SST-2 or IMDB
    positions          of the table of all encodings, in BERT tokens without padding
    lengths            of the sweep; debiased_lengths: those at which its claims are held against
                       debiased distances too
    text               what its documents are: sentences, reviews
    also               further sources of the same text in other pieces, by what they are; $NAMES
                       of the environment are filled in, and what is not there is left out
    beside             another corpus of the paper, SST-2 or IMDB by its short name: which
                       conventions meet the figures of both
    dim                width of known encodings and MDS in the table of all encodings
    learned            specs `learned:PATH` of tables beside those below POSGEOM_DATA
    quick              one length and one kind of tokens
    Raises PosgeomError where the corpus is not at hand, and for a name that is no table.
    """
    if name not in (SST2, IMDB):
        raise PosgeomError(f"name {name!r} is no table of the paper; use {SST2} or {IMDB}")
    if beside is not None and beside not in BESIDE:
        raise PosgeomError(
            f"beside {beside!r} is no corpus of the paper; use {' or '.join(BESIDE)}"
        )
    start, processor = time.perf_counter(), time.process_time()
    settings = {
        "source": corpus,
        "name": name,
        "positions": positions,
        "lengths": list(lengths),
        "debiased_lengths": list(debiased_lengths),
        "text": text,
        "also": dict(also or {}),
        "beside": beside,
        "dim": dim,
        "learned": list(learned),
        "quick": quick,
        "seed": seed,
    }
    if quick:
        lengths, debiased_lengths, beside = [positions], [positions], None
    tables = learned_specs(learned)
    for spec in tables.values():
        make_encoding(spec)  # a bad one is told now, not after minutes
    kinds = ["bert"] if quick else list(TOKENS)
    sources = {text: corpus}
    expanded = {key: os.path.expandvars(path) for key, path in (also or {}).items()}
    sources |= {key: path for key, path in expanded.items() if not quick and Path(path).exists()}
    longest = max(positions, *lengths, *debiased_lengths)
    counted = [
        Counted(label, tokens, _counts(source, tokens, longest, progress))
        for label, source in sources.items()
        for tokens in kinds
    ]
    other = None if beside is None else _beside(beside, lengths, progress)
    figures = figures_of(name)
    every = list(cases(counted, lengths))
    plain = sweep(every, figures, progress=progress)
    fewer = list(cases(counted, debiased_lengths))
    clean = sweep(fewer, figures, "debiased", seed=seed, progress=progress)
    pair = Pair.of(counted[0].counts.first(positions), seed=seed)
    encodings, ranks = encodings_table(pair, tables, dim, seed=seed), ranks_table(pair, dim)
    made = Made(
        name=name,
        positions=positions,
        dim=dim,
        counted=counted,
        encodings=encodings,
        ranks=ranks,
        plain=plain,
        claims=all_claims(plain),
        clean_claims=all_claims(clean),
        figures=figures,
        beside=other,
        tables=tuple(tables),
        missing=tuple(key for key in expanded if key not in sources and not quick),
    )
    return PaperReport(
        job="paper-corpus",
        title=f"{name}",
        opening=page.opened(opening(made), quick),
        judgements=judgements(made),
        sections=sections(made),
        settings={key: value for key, value in settings.items() if value is not None},
        provenance={
            "seconds": round(time.perf_counter() - start, 1),
            "processor_seconds": round(time.process_time() - processor, 1),
            "counted": {f"{c.text}, {c.tokens}": _about(c.counts) for c in counted},
        },
        tables={
            "encodings": encodings,
            "ranks": ranks,
            "sweep": rounded(plain),
            "debiased": rounded(clean),
        },
        drawings={
            "conventions": conventions_drawing(plain, figures),
            "ranks": ranks_drawing(ranks),
        },
        texts={"sweep.html": sweep_html(rounded(plain), name, figures)},
        files=FILES,
    )


def rounded(table: "pd.DataFrame") -> "pd.DataFrame":
    """A sweep with stresses to four significant digits: thousands of rows, and small files."""
    short = {scale: table[scale].map(lambda x: float(f"{x:.{DIGITS}g}")) for scale in SCALES}
    return table.assign(**short)


def figures_of(name: str) -> dict[str, Figure]:
    """The paper's stresses on a corpus, by family of the encoding."""
    return {"alibi": FIGURES["sst2-alibi" if name == SST2 else "imdb-alibi"]}


def _counts(source: str, tokens: str, longest: int, progress: bool) -> PositionCounts:
    """A corpus in tokens of one kind, as far as its documents reach, `longest` at most."""
    tokenizer = "words" if tokens == "words" else bert_tokenizer()
    return count_positions(
        source,
        tokenizer,
        2,  # whatever the documents' length; `up_to` counts on
        up_to=longest,
        special_tokens=TOKENS[tokens],
        progress=progress,
    )


def bert_tokenizer() -> str:
    """BERT's tokenizer below POSGEOM_DATA, or on the hub."""
    path = Path(os.environ.get("POSGEOM_DATA", "")) / BERT
    return str(path) if path.is_file() else HUB_BERT


def learned_specs(further: Sequence[str] = ()) -> dict[str, str]:
    """The learned tables at hand, by what a reader calls them: specs `learned:PATH`.

    Those below POSGEOM_DATA that are there, and further ones by their own spec.
    """
    home = Path(os.environ.get("POSGEOM_DATA", ""))
    known = {
        name: f"learned:{home / file}" for name, file in TABLES.items() if (home / file).is_file()
    }
    return known | {spec: spec for spec in further}


def _beside(name: str, lengths: Sequence[int], progress: bool) -> tuple[str, "pd.DataFrame"]:
    """The paper's name of another corpus, and its sweep."""
    table = BESIDE[name]
    counted = [
        Counted("documents", tokens, _counts(name, tokens, max(lengths), progress))
        for tokens in TOKENS
    ]
    return table, sweep(list(cases(counted, lengths)), figures_of(table), progress=progress)


def _about(counts: PositionCounts) -> dict[str, Any]:
    """Where counts come from, without the folders of this machine."""
    about = replace(
        counts.provenance,
        sources=tuple(Path(source).name for source in counts.provenance.sources),
        tokenizer=Path(counts.provenance.tokenizer).name,
    )
    return about.as_dict()
