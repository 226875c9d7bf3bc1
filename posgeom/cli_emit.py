"""The commands that carry an encoding away: into a file, and into a model."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posgeom.errors import PosgeomError
from posgeom.options import EXTEND_BY, FORCE, JSON, QUIET, with_options

if TYPE_CHECKING:
    from posgeom.emit.emission import Emission

ENCODING = click.option(
    "--encoding",
    metavar="SPEC",
    help="An encoding of the run's scores, or any spec, made for its corpus, such as "
    "fitted-rope:dim=64; by default the run's low-rank table.",
)
FORMATS = ("safetensors", "npz", "npy", "csv", "torch", "hf-config", "json")


@click.command("export")
@click.argument("run", required=False)
@click.option(
    "--from",
    "model_dir",
    metavar="MODEL_DIR",
    help="Take the encoding out of a model folder instead, such as its learned table.",
)
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    default="safetensors",
    show_default=True,
    help="npy and csv hold one array; hf-config is for rotary encodings and ALiBi.",
)
@ENCODING
@click.option("--out", type=click.Path(), required=True, metavar="FILE", help="File to write.")
@with_options([FORCE, JSON])
def export_command(
    run: str | None,
    model_dir: str | None,
    format: str,
    encoding: str | None,
    out: str,
    force: bool,
    as_json: bool,
) -> None:
    """Write the encoding of a RUN, or of a model, as a file with a passport.

    The passport says what it is, of which corpus it was made and how well it fits; a safetensors
    header, an npz member, a csv comment, a JSON key, or beside an npy as FILE.json.
    """
    from posgeom.atomic import check_out_file
    from posgeom.emit.export import export

    check_out_file(out, force=force)
    emission = _emission(run, model_dir, encoding)
    files = [str(path) for path in export(emission, format, out, force=force)]
    if as_json:
        click.echo(json.dumps(emission.sealed | {"files": files}))
        return
    shapes = (f"{name} {tuple(array.shape)}" for name, array in emission.tensors.items())
    click.echo(f"{emission.passport['encoding']}: {', '.join(shapes)}; {', '.join(files)}")


@click.command("inject")
@click.argument("model_dir")
@click.argument("run", required=False, metavar="[RUN|FILE]")
@click.option("--out", type=click.Path(), required=True, metavar="DIR", help="Folder to write.")
@ENCODING
@click.option(
    "--extend",
    "model_length",
    type=int,
    metavar="M",
    help="Make the model M positions long: by the run's extension where it reaches, else as "
    "`posgeom design --extend` does; without a RUN the model's own table gets a tail.",
)
@EXTEND_BY
@click.option(
    "--scale",
    default="match",
    show_default=True,
    metavar="RULE",
    help="match: rows as long as the old ones, root mean square; own: as they are; or a norm.",
)
@with_options([QUIET, FORCE, JSON])
def inject_command(
    model_dir: str,
    run: str | None,
    out: str,
    encoding: str | None,
    model_length: int | None,
    extend_by: str | None,
    scale: str,
    quiet: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Put the encoding of a RUN, or an exported FILE, into a model, and check that it runs.

    GPT-2, BERT, MiniLM, RoBERTa, OPT, BART: the table.  Llama, Mistral, Qwen: the frequencies, in
    the config.  T5: the buckets.  What is written loads with plain transformers.
    """
    try:
        from posgeom.transformers import inject_folder
        from posgeom.transformers.folder import FINE_TUNE
    except ImportError as error:
        raise PosgeomError(
            f"inject needs PyTorch and transformers, which cannot be loaded ({error}); "
            "install posgeom[torch]"
        ) from error

    if run is None and encoding is not None:
        raise PosgeomError(f"--encoding {encoding} came without a RUN to make it for; give one")
    if extend_by is not None and model_length is None:
        raise PosgeomError(f"--extend-by {extend_by} came without --extend; say how far to extend")
    emission = None if run is None else _injected(run, encoding, model_length, extend_by)
    done = inject_folder(
        model_dir,
        None if emission is None else emission.encoding,
        out,
        extend_to=model_length,
        extend_by=extend_by if emission is None else None,
        scale=_scale(scale),
        passport=None if emission is None else emission.passport,
        force=force,
    )
    for note in () if quiet else (*done.said, FINE_TUNE):
        click.echo(f"posgeom: {note}", err=True)
    if as_json:
        click.echo(json.dumps(asdict(done)))
        return
    for name in done.changed:
        click.echo(f"changed: {name}")
    for key, (_, after) in done.config.items():
        click.echo(f"config: {key} is now {_short(after)}")
    click.echo(
        f"{done.same:,} other tensors of the {done.model} are byte for byte the same; a fresh "
        f"process loads it and its outputs differ by {done.difference:.1g} of the largest\n"
        f"written to {out}"
    )


def _emission(
    run: str | None,
    model_dir: str | None,
    encoding: str | None,
    extend_to: int | None = None,
    extend_by: str | None = None,
) -> "Emission":
    from posgeom.design import Design
    from posgeom.emit.emission import emission_of, emission_of_model

    if (run is None) == (model_dir is None):
        raise PosgeomError("give the folder of a RUN, or --from MODEL_DIR, and not both")
    if run is not None:
        return emission_of(Design.load(run), encoding, extend_to, extend_by)
    if encoding is not None:
        raise PosgeomError(f"--encoding {encoding} came with --from, which takes the model's own")
    return emission_of_model(str(model_dir))


def _injected(
    run: str, encoding: str | None, extend_to: int | None, extend_by: str | None
) -> "Emission":
    """The encoding of a run, or of a file that was exported, carried on where it ends before."""
    from posgeom.emit.emission import carried
    from posgeom.emit.reading import read_emission

    if not Path(run).is_file():
        return _emission(run, None, encoding, extend_to, extend_by)
    if encoding is not None:
        raise PosgeomError(f"--encoding {encoding} came with {run}, which holds one; give a run")
    held = read_emission(run)
    longer, said = carried(held.encoding, extend_to, extend_by)
    return replace(held, encoding=longer, passport=held.passport | said)


def _scale(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
