"""The command line: it translates, and decides nothing.

Results go to stdout, progress and notes to stderr.  Exit codes: 0, 1 for a bug, 2 for bad input.
"""

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from posgeom.cli_count import count_command, merge_command
from posgeom.cli_emit import export_command, inject_command
from posgeom.cli_reproduce import reproduce_command
from posgeom.errors import PosgeomError
from posgeom.options import (
    COUNTING,
    DESIGNING,
    DIM,
    ESTIMATING,
    FORCE,
    FORCE_FIT,
    HEADS,
    JSON,
    PER_HEAD,
    QUIET,
    READING,
    SCORING,
    SEED,
    wants_progress,
    with_options,
)

if TYPE_CHECKING:
    import pandas as pd

    from posgeom.design import Design


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="posgeom")
def cli() -> None:
    """Which positional encoding fits my corpus, and can I have a better one?

    A SOURCE is a file (.txt .jsonl .json .csv .tsv .parquet .npy .bin, also .gz .bz2 .xz .zst),
    a folder, a glob, - for standard input, hf:NAME, or a corpus that `posgeom corpora` lists.
    """


@cli.command("design")
@click.argument("source")
@with_options(READING, COUNTING, ESTIMATING, SCORING, [PER_HEAD], DESIGNING)
@click.option("--out", type=click.Path(), required=True, metavar="DIR", help="Folder to write.")
@with_options([QUIET, FORCE_FIT, JSON])
def design_command(
    source: str, out: str, quiet: bool, force: bool, as_json: bool, **settings: Any
) -> None:
    """Count SOURCE, find its geometry, make an encoding for it, score the known ones."""
    from posgeom.design import design
    from posgeom.emit import check_run

    check_run(out, force=force)  # before the work, not after it
    made = design(source, **settings, force=force, progress=wants_progress(quiet))
    made.save(out, force=force, progress=wants_progress(quiet))
    say(made.notes, quiet)
    if as_json:
        click.echo(json.dumps(summary(made) | {"out": out}))
        return
    show_scores(made.scores)
    low = made.extended or made.low_rank
    floor = f"{made.floor}: no encoding of offsets alone has less stress, errors apart"
    click.echo(
        f"\nshift-invariant floor {'–' if made.floor.value != made.floor.value else floor}"
        f"\nencoding: {made.table_family}, rank {low.rank}, {len(low.A):,} positions, "
        f"{low.n_parameters:,} parameters; a full table has {len(low.A) * low.dim:,}"
    )
    if made.extension is not None:
        from posgeom.report.designs import cost_sentences, extension_sentence

        known = len(made.low_rank.A)
        click.echo(
            " ".join([extension_sentence(made.extension, known), *cost_sentences(made.extension)])
        )
    click.echo(f"written to {out}; look at {out}/report.html")
    if made.geometry.estimator == "plugin":
        say([PLUGIN_WARNING], quiet)


PLUGIN_WARNING = (
    "these are plug-in distances: they include sampling noise, on large vocabularies mostly "
    "noise, which makes all positions look equally far apart"
)


@cli.command("score")
@click.argument("source", metavar="SOURCE|COUNTS|RUN")
@with_options(READING, COUNTING, ESTIMATING, SCORING, [PER_HEAD, QUIET, JSON])
def score_command(
    source: str, quiet: bool, as_json: bool, encodings: tuple[str, ...], **settings: Any
) -> None:
    """Rank encodings against a corpus, saved counts (.npz), or the folder of a run."""
    from posgeom.design import default_encodings
    from posgeom.sources import scores_of

    wanted = encodings or (*default_encodings(settings["dim"]), "mds")
    found = scores_of(source, wanted, **settings, progress=wants_progress(quiet))
    say(found.notes, quiet)
    if as_json:
        click.echo(json.dumps({"floor": found.floor.value, "scores": records(found.scores)}))
        return
    show_scores(found.scores)
    click.echo(f"\nshift-invariant floor {found.floor}")
    if found.estimator == "plugin":
        say([PLUGIN_WARNING], quiet)


@cli.command("diagnose")
@click.argument("source", metavar="SOURCE|COUNTS|RUN")
@with_options(READING, COUNTING, ESTIMATING, SCORING)
@click.option("--out", type=click.Path(), metavar="DIR", help="Folder for a report.")
@with_options([QUIET, FORCE, JSON])
def diagnose_command(
    source: str,
    out: str | None,
    quiet: bool,
    force: bool,
    as_json: bool,
    encodings: tuple[str, ...],
    **settings: Any,
) -> None:
    """Tell geometry from sampling noise, and say what a corpus asks of an encoding."""
    from posgeom.design import default_encodings
    from posgeom.diagnose import diagnose
    from posgeom.geometry import estimate_geometry
    from posgeom.sources import counts_of

    if out is not None:
        from posgeom.report import Diagnosed, check_diagnosis_out, write_diagnosis

        check_diagnosis_out(out, force=force)  # before the work, not after it
    chosen = {"source": source} | {k: v for k, v in settings.items() if v is not None}
    scoring = {name: settings.pop(name) for name in ("dim", "seed")}
    estimating = {name: settings.pop(name) for name in ("estimator", "metric", "min_count")}
    counts = counts_of(source, **settings, progress=wants_progress(quiet))
    geometry = estimate_geometry(
        counts, **estimating, seed=scoring["seed"], progress=wants_progress(quiet)
    )
    wanted = encodings or (*default_encodings(scoring["dim"]), "none", "mds")
    found = diagnose(counts, geometry, wanted, **scoring)
    if out is not None:
        made = Diagnosed(counts, geometry, found, chosen | {"encodings": wanted})
        write_diagnosis(made, out, force=force, progress=wants_progress(quiet))
    say(counts.provenance.notes + geometry.notes, quiet)
    if as_json:
        click.echo(json.dumps(found.as_dict(), allow_nan=False))
        return
    for sentence in found.sentences:
        click.echo(sentence)
    if len(found.ranking):
        click.echo()
        show_scores(found.ranking)


@cli.command("inspect")
@click.argument("path")
@click.option(
    "--layer",
    type=int,
    default=0,
    show_default=True,
    metavar="L",
    help="Layer whose W_q and W_k the four terms of content and position pass.",
)
@click.option(
    "--tokens",
    metavar="FILE",
    help="Token ids to draw content from, .npy or text; by default the whole vocabulary.",
)
@SEED
@with_options([JSON])
def inspect_command(path: str, layer: int, tokens: str | None, seed: int, as_json: bool) -> None:
    """Say what a model folder (config.json, safetensors) holds about positions.

    Where positions are added to tokens, pairs of both are drawn (--seed) and compared.
    """
    from posgeom.passport import inspect_model, lines

    passport = inspect_model(path, layer=layer, tokens=tokens, seed=seed)
    for line in [json.dumps(passport.as_dict())] if as_json else lines(passport):
        click.echo(line)


@cli.command("encodings")
@with_options([DIM, HEADS])
@click.option("--length", type=int, metavar="L", help="Positions of the model; shows the costs.")
@with_options([JSON])
@click.pass_context
def encodings_command(
    context: click.Context, dim: int, heads: int, length: int | None, as_json: bool
) -> None:
    """List the encodings that can be scored; with --length also what each costs a model."""
    from posgeom.designers import DESIGNERS, TABLES
    from posgeom.passport.catalogue import Entry, catalogue, first_sentence, lines

    for name in ("dim", "heads"):
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and length is None:
            raise PosgeomError(f"--{name} came without --length, of which costs depend; give both")
    entries = catalogue(dim, heads, length) if length is not None else catalogue()
    for family, designer in DESIGNERS.items():
        spec = f"{family}:rank=r" if family in TABLES else family
        entries.append(Entry(family, spec, {}, first_sentence(designer.__doc__)))
    as_object = {"encodings": [entry.as_dict() for entry in entries]}
    for line in [json.dumps(as_object)] if as_json else lines(entries):
        click.echo(line)


@cli.command("corpora")
def corpora_command() -> None:
    """List the corpora that have a name."""
    from posgeom.named import named_corpora

    for name, about in named_corpora().items():
        click.echo(f"{name}\n    {about['description']}")


@cli.command("run")
@click.argument("pipeline")
@click.option(
    "--out",
    type=click.Path(),
    default="reports",
    show_default=True,
    metavar="DIR",
    help="Folder below which each stage writes its own.",
)
@with_options([QUIET, FORCE])
def run_command(pipeline: str, out: str, quiet: bool, force: bool) -> None:
    """Run a PIPELINE of stages (a TOML file, or the run.toml of a run); skip what is there."""
    from posgeom.pipeline import run_pipeline

    for folder, fresh in run_pipeline(pipeline, out, force=force, progress=wants_progress(quiet)):
        click.echo(f"{folder}: {'written' if fresh else 'is there already, not run again'}")


cli.add_command(count_command)
cli.add_command(merge_command)
cli.add_command(export_command)
cli.add_command(inject_command)
cli.add_command(reproduce_command)


def say(notes: Any, quiet: bool) -> None:
    """Notes on stderr, a line each."""
    for note in () if quiet else notes:
        click.echo(f"posgeom: {note}", err=True)


def records(scores: "pd.DataFrame") -> list[dict[str, Any]]:
    """The rows of a table as JSON values."""
    rows: list[dict[str, Any]] = json.loads(scores.to_json(orient="records", double_precision=15))
    return rows


def summary(made: "Design") -> dict[str, Any]:
    """A design as one JSON object."""
    return {
        "corpus": made.title,
        "positions": made.geometry.n_positions,
        "documents": made.counts.provenance.documents,
        "tokens": made.counts.provenance.tokens,
        "estimator": made.geometry.estimator,
        "metric": made.geometry.metric,
        "rank": made.low_rank.rank,
        "dim": made.low_rank.dim,
        "parameters": made.low_rank.n_parameters,
        "floor": made.floor.value,
        "scores": records(made.scores),
        "gains": records(made.gains),
        "notes": list(made.notes),
    }


def show_scores(scores: "pd.DataFrame") -> None:
    """The columns that answer the question, best encoding first."""
    columns = {
        "encoding": "encoding",
        "parameters": "parameters",
        "stress": "stress",
        "stress_se": "±",
        "stress_raw": "raw stress",
        "spearman": "Spearman",
        "monotonicity_violation": "violations",
    }
    if scores["stress_se"].isna().all():  # a plug-in geometry knows no errors
        del columns["stress_se"]
    shown = scores.sort_values("stress", kind="stable")[list(columns)]
    click.echo(
        shown.to_string(
            index=False,
            header=list(columns.values()),
            formatters={
                "parameters": "{:,}".format,
                "stress": "{:.4f}".format,
                "stress_se": "{:.4f}".format,
                "stress_raw": "{:.4g}".format,
                "spearman": "{:.3f}".format,
                "monotonicity_violation": "{:.3f}".format,
            },
        )
    )


def main() -> None:
    """Run the command line; bad input is one line on stderr and exit code 2."""
    # an end that is asked for clears away what is half-written, as Ctrl-C does
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        # cli.main would print usage and hints on lines of their own, and call EPIPE an error
        with cli.make_context("posgeom", sys.argv[1:]) as context:
            cli.invoke(context)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(2)
    except PosgeomError as error:
        fail(str(error))
    except click.ClickException as error:
        fail(f"{error.format_message()} (posgeom --help)")
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:  # the reader of stdout has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
    finally:
        signal.signal(signal.SIGTERM, before)
    sys.exit(0)


def fail(message: str) -> None:
    """The message as one line on stderr; exit code 2."""
    click.echo(f"posgeom: {' '.join(message.split())}", err=True)
    sys.exit(2)


if __name__ == "__main__":
    main()
