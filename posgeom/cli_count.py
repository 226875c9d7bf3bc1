"""The commands that make counts: of a corpus, and of counts made elsewhere."""

import json
from typing import Any

import click

from posgeom.options import COUNTING, FORCE, JSON, QUIET, READING, wants_progress, with_options

PART = click.option(
    "--part",
    is_flag=True,
    help="SOURCE is one part of several, to be merged: it may be small and its documents short; "
    "all parts need the same --positions, 512 by default.",
)
SHARDS = [
    click.option(
        "--resume",
        is_flag=True,
        help="Go on from what an interrupted count has finished, which lies in OUT.shards.",
    ),
    click.option(
        "--skip-bad",
        is_flag=True,
        help="Leave out files and row groups that cannot be read, and name them in the notes.",
    ),
    click.option(
        "--dask",
        metavar="ADDRESS",
        help="Count on a Dask cluster: its scheduler, such as tcp://host:8786, or local:N for N "
        "processes on this machine.",
    ),
]


@click.command("count")
@click.argument("source")
@with_options(READING, COUNTING, [PART], SHARDS)
@click.option("--out", type=click.Path(), required=True, metavar="FILE", help=".npz to write.")
@with_options([QUIET, FORCE, JSON])
def count_command(
    source: str, out: str, resume: bool, quiet: bool, force: bool, as_json: bool, **settings: Any
) -> None:
    """Count the tokens of SOURCE by fold and position, and save the counts.

    What an interrupted count has finished stays in OUT.shards, for --resume.
    """
    from posgeom.atomic import check_out_file
    from posgeom.emit import save_counts
    from posgeom.resume import count_in_shards, kept_beside

    check_out_file(out, force=force)
    with kept_beside(out, resume=resume, force=force) as kept:
        try:
            counts = count_in_shards(source, kept, **settings, progress=wants_progress(quiet))
        except KeyboardInterrupt:
            if kept and not quiet:
                click.echo(f"posgeom: {kept.folder} holds what is finished: --resume", err=True)
            raise
        save_counts(counts, out, force=force)
    for note in () if quiet else counts.provenance.notes:
        click.echo(f"posgeom: {note}", err=True)
    _show(counts, out, as_json)


@click.command("merge")
@click.argument("files", nargs=-1, required=True, metavar="COUNTS...")
@click.option("--out", type=click.Path(), required=True, metavar="FILE", help=".npz to write.")
@with_options([QUIET, FORCE, JSON])
def merge_command(
    files: tuple[str, ...], out: str, quiet: bool, force: bool, as_json: bool
) -> None:
    """Add saved counts, which must have been made in one way.

    That is: one tokenizer, one window (--positions and --align) and one rule of folds.
    """
    from functools import reduce
    from operator import add

    from tqdm import tqdm

    from posgeom.atomic import check_out_file
    from posgeom.counts import PositionCounts
    from posgeom.emit import save_counts

    check_out_file(out, force=force)
    bar = tqdm(files, "merge", unit=" files", leave=False, disable=not wants_progress(quiet))
    counts = reduce(add, map(PositionCounts.load, bar))
    save_counts(counts, out, force=force)
    _show(counts, out, as_json)


def _show(counts: Any, out: str, as_json: bool) -> None:
    """What was counted."""
    about = {"positions": counts.n_positions, "vocabulary": counts.vocab_size, "out": out}
    if as_json:
        click.echo(json.dumps(counts.provenance.as_dict() | about))
        return
    click.echo(
        f"{counts.provenance.documents:,} documents, {counts.provenance.tokens:,} tokens, "
        f"{counts.n_positions} positions, {counts.vocab_size:,} token types: written to {out}"
    )
