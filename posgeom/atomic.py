"""Folders and files that are written whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from posgeom.errors import PosgeomError


def check_out(
    folder: str | PathLike[str], names: Collection[str], mark: str, *, force: bool = False
) -> Path:
    """The folder as a path, once a run may be written there.

    names: the files of such a run; mark: the one without which a folder holds none.
    Raises PosgeomError where it is a file or holds anything, unless `force` is given and all
    that it holds are the files of an earlier run.
    """
    out = Path(folder)
    if out.exists() and not out.is_dir():
        raise PosgeomError(f"--out {out} is a file; give a folder")
    held = sorted(p.name for p in out.iterdir()) if out.exists() else []
    if held and not force:
        raise PosgeomError(
            f"--out {out} already holds {held[0]}; give another folder, or --force to replace a run"
        )
    foreign = [name for name in held if name not in names]
    foreign += [p.name for p in (out / "figures").glob("*") if p.suffix not in (".svg", ".png")]
    if held and mark not in held:
        foreign += held
    if foreign:
        raise PosgeomError(
            f"--out {out} holds {foreign[0]}, which is no file of a run; --force replaces runs "
            "only, give another folder"
        )
    return _check_writable(out)


@contextmanager
def written_folder(
    folder: str | PathLike[str], names: Collection[str], mark: str, *, force: bool = False
) -> Iterator[Path]:
    """A temporary folder beside the final one, which takes its name once all is written.

    names, mark: as for check_out.  Raises PosgeomError where the folder may not be written.
    """
    # resolved: a link leads to its folder, and `.` has no name that could be renamed to
    out = check_out(folder, names, mark, force=force).resolve()
    partial = out
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        partial.chmod(0o755)  # mkdtemp's folder is for its owner alone
        yield partial
        _put_in_place(partial, out)
    except OSError as error:
        raise PosgeomError(
            f"--out {folder} cannot be written ({error.strerror or error}); give another folder"
        ) from error
    finally:
        if partial != out:
            shutil.rmtree(partial, ignore_errors=True)


def _put_in_place(partial: Path, out: Path) -> None:
    """Rename `partial` to `out`; an earlier run there goes only once the new one stands."""
    earlier = partial.with_name(partial.name + ".old")
    if out.exists():
        out.rename(earlier)
    try:
        partial.rename(out)
    except BaseException:
        if earlier.exists():
            earlier.rename(out)
        raise
    shutil.rmtree(earlier, ignore_errors=True)


def check_out_file(file: str | PathLike[str], *, force: bool = False) -> Path:
    """The file as a path, once it may be written; PosgeomError where it is there, or a folder."""
    out = Path(file)
    if out.is_dir() or (out.exists() and not force):
        what = "is a folder" if out.is_dir() else "is there already"
        raise PosgeomError(f"--out {out} {what}; give another file, or --force to replace it")
    return _check_writable(out)


def _check_writable(out: Path) -> Path:
    """`out`, once the nearest folder above it that is there can be written to."""
    home = next(p for p in out.resolve().parents if p.exists())
    if not (home.is_dir() and os.access(home, os.W_OK | os.X_OK)):
        raise PosgeomError(
            f"--out {out} cannot be made in {home}; give a place that can be written"
        )
    return out
