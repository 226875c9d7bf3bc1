"""The options that several commands share; a flag means the same everywhere."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def parse_grid(text: str) -> tuple[int, int]:
    """(8, 8) of "8x8"."""
    rows, _, columns = str(text).lower().partition("x")
    if not (rows.isdigit() and columns.isdigit()):
        raise click.BadParameter(f"{text!r} came; give ROWSxCOLUMNS, such as 8x8")
    return int(rows), int(columns)


def parse_rank(text: str) -> int | str:
    """An int where it is one, else the name of a rule."""
    return int(text) if text.lstrip("-").isdigit() else text


SEED = click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of what is random."
)
READING = [
    click.option("--text-field", metavar="NAME", help="Column that holds the texts or token ids."),
    click.option(
        "--group-field",
        metavar="NAME",
        help="Column that says which documents belong together; 'file' for text files.",
    ),
    click.option(
        "--documents",
        type=click.Choice(["line", "paragraph", "file"]),
        default="line",
        show_default=True,
        help="What is a document in text files.",
    ),
    click.option("--split", metavar="NAME", help="Split of a data set."),
    click.option("--config", metavar="NAME", help="Configuration of a data set on the hub."),
    click.option(
        "--encoding-errors",
        type=click.Choice(["strict", "replace"]),
        default="strict",
        show_default=True,
        help="What to do with bytes that are not UTF-8.",
    ),
    click.option(
        "--ids-dtype",
        type=click.Choice(["uint16", "uint32"]),
        help="Type of the numbers in a .bin file; uint16 by default.",
    ),
]
COUNTING = [
    click.option(
        "--tokenizer",
        default="words",
        show_default=True,
        metavar="SPEC",
        help="words, chars, bytes, a tokenizer.json or vocab.txt or folder, hf:NAME, "
        "train:bpe:8192 (or wordpiece, unigram).",
    ),
    click.option("--special-tokens", is_flag=True, help="Add the tokenizer's special tokens."),
    click.option(
        "--positions",
        type=int,
        metavar="N",
        help="How many positions; by default the most that 1,000 documents, or 5% of "
        "them, reach, at most 512.",
    ),
    click.option(
        "--align",
        type=click.Choice(["start", "end", "packed", "grid"]),
        default="start",
        show_default=True,
        help="Where position 0 lies.",
    ),
    click.option(
        "--grid",
        type=parse_grid,
        metavar="ROWSxCOLUMNS",
        help="Two-dimensional positions, such as 8x8.",
    ),
    click.option(
        "--folds",
        type=int,
        default=16,
        show_default=True,
        metavar="K",
        help="Folds of the documents, a power of two.",
    ),
]
ESTIMATING = [
    click.option(
        "--estimator",
        default="debiased",
        show_default=True,
        metavar="NAME",
        help="debiased: sampling noise taken out, with errors; thinned: the same from positions "
        "thinned to equal counts; plugin: distances of the observed frequencies, as the paper "
        "takes them.",
    ),
    click.option(
        "--metric",
        default="hellinger",
        show_default=True,
        metavar="NAME",
        help="hellinger, hellinger-normalised, fisher-rao, jensen-shannon or total-variation.",
    ),
    click.option(
        "--min-count",
        type=int,
        default=2,
        show_default=True,
        metavar="N",
        help="Leave out positions with fewer tokens.",
    ),
]
DIM = click.option(
    "--dim", type=int, default=128, show_default=True, metavar="D", help="Width of the model."
)
HEADS = click.option(
    "--heads",
    type=int,
    default=8,
    show_default=True,
    metavar="H",
    help="Heads of the model, each with a slope of its own in ALiBi.",
)
SCORING = [
    click.option(
        "--encoding",
        "encodings",
        multiple=True,
        metavar="SPEC",
        help="An encoding to score, such as rope:base=500000 or learned:wpe.npy; may be repeated.",
    ),
    DIM,
    SEED,
]
EXTEND_BY = click.option(
    "--extend-by",
    metavar="METHOD",
    help="gower, where documents reach so far; harmonic, by the harmonic form of the distances: "
    "rows that are there stay; interpolation: all rows are stretched, and move.  By default "
    "Gower's formula where positions have counts, and the harmonic form where not.",
)
DESIGNING = [
    click.option(
        "--family",
        multiple=True,
        default=("mds",),
        show_default=True,
        metavar="NAME",
        help="What to make: mds, stress (the table of least stress), rope (fitted frequencies), "
        "alibi (fitted slopes, KERPLE), t5 (a fitted table) or all; may be repeated.",
    ),
    click.option(
        "--rank",
        type=parse_rank,
        metavar="RULE",
        default="auto",
        show_default=True,
        help="Rank of the encoding: a number; auto, the smallest whose stress is within its error "
        "of the least; stress=0.01 or explained=0.9.",
    ),
    HEADS,
    click.option(
        "--extend",
        "extend_to",
        type=int,
        metavar="M",
        help="Carry the encoding past --positions, to M of them.",
    ),
    EXTEND_BY,
    click.option(
        "--norm",
        type=float,
        metavar="X",
        help="Scale the encoding to rows of this root mean square norm.",
    ),
    click.option(
        "--match",
        metavar="PATH[#KEY]",
        help="Scale it to the root mean square norm of this embedding table.",
    ),
    click.option("--row-norm", type=float, metavar="X", help="Give every row this norm."),
    click.option("--bound", type=float, metavar="X", help="No entry larger in size."),
    click.option(
        "--zero-mean", is_flag=True, help="Means of 0 over positions and over dimensions."
    ),
    click.option(
        "--dtype", metavar="NAME", help="bf16, fp16 or fp32, in which no two rows may be equal."
    ),
    click.option("--min-separation", type=float, metavar="X", help="No two rows nearer than this."),
]
PER_HEAD = click.option(
    "--per-head", is_flag=True, help="Score each head of the bias encodings too."
)
QUIET = click.option("--quiet", is_flag=True, help="No progress and no notes.")
FORCE = click.option("--force", is_flag=True, help="Replace an earlier run or file.")
FORCE_FIT = click.option(
    "--force",
    is_flag=True,
    help="Replace an earlier run; and fit even where the test finds no structure.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def with_options(*groups: list[Any]) -> Callable[[F], F]:
    """A command with all the options of the groups, in their order."""

    def decorate(command: F) -> F:
        for option in reversed([option for group in groups for option in group]):
            command = option(command)
        return command

    return decorate


def wants_progress(quiet: bool) -> bool:
    """Progress is for people at a terminal."""
    return sys.stderr.isatty() and not quiet
