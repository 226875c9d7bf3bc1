"""The command that makes the paper's tables and theorems again."""

from typing import Any

import click

from posgeom.options import FORCE, QUIET, wants_progress, with_options

PARTS = ("synthetic", "sst2", "imdb", "theory", "training")  # each a file of pipelines/paper


@click.command("reproduce")
@click.argument("parts", nargs=-1, required=True, type=click.Choice([*PARTS, "all"]))
@click.option(
    "--out",
    type=click.Path(),
    default="reports/paper",
    show_default=True,
    metavar="DIR",
    help="Folder below which each part writes its own.",
)
@click.option(
    "--learned",
    multiple=True,
    metavar="PATH|hf:NAME",
    help="A learned table beside those of POSGEOM_DATA, for sst2, imdb and theory, such as "
    "hf:bert-base-uncased; may be repeated.",
)
@click.option("--quick", is_flag=True, help="Fewer seeds, lengths and epochs: to try it out.")
@with_options([QUIET, FORCE])
def reproduce_command(
    parts: tuple[str, ...],
    out: str,
    learned: tuple[str, ...],
    quick: bool,
    quiet: bool,
    force: bool,
) -> None:
    """Make the paper's tables and theorems again, and judge them.

    PARTS are synthetic, sst2 and imdb (its corpora, under all conventions that it leaves open),
    theory (each theorem as a computation), training (tables while they learn, and whether less
    stress means a better model), or all.  sst2 and imdb are read from POSGEOM_DATA, or the hub.
    """
    from posgeom.paper.hub import learned_spec
    from posgeom.pipeline import run_pipeline
    from posgeom.resources import resource

    changes: dict[str, Any] = ({"quick": True} if quick else {}) | (
        {"learned": [learned_spec(text) for text in learned]} if learned else {}
    )
    wanted = PARTS if "all" in parts else tuple(dict.fromkeys(parts))
    for part in wanted:
        file = resource("pipelines", f"paper/{part}.toml")
        stages = run_pipeline(
            file, out, force=force, progress=wants_progress(quiet), changes=changes
        )
        for folder, fresh in stages:
            click.echo(f"{folder}: {'written' if fresh else 'is there already, not run again'}")
