"""Finished runs as lines of a file, so that work that was cut off goes on where it stopped."""

import json
import os
from pathlib import Path
from typing import Any

from posgeom.errors import PosgeomError


class Ledger:
    """Runs by name; each is written down once it is finished, in the order of the work.

    A line that was cut off, as by a killed process, has no end and is dropped.  Work that was cut
    off and goes on leaves the same bytes as work that was not.  How long runs took, which no two
    runs have in common, stands in a file of its own beside it.
    """

    def __init__(self, file: Path) -> None:
        self.file, self.clock = file, file.with_suffix(".seconds.jsonl")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self.runs: dict[str, Any] = _lines(self.file)
            self._seconds: dict[str, float] = _lines(self.clock)
        except OSError as error:
            raise PosgeomError(
                f"the work folder {file.parent} cannot be used ({error.strerror or error}); give "
                "another one, work = PATH"
            ) from error

    @property
    def seconds(self) -> float:
        """What the finished runs took of a processor."""
        return sum(self._seconds[name] for name in self.runs if name in self._seconds)

    def add(self, name: str, run: dict[str, Any], seconds: float) -> None:
        """Write a run down; once this returns no crash takes it away again."""
        _append(self.clock, {name: seconds})
        _append(self.file, {name: run})
        self.runs[name], self._seconds[name] = run, seconds


def _lines(file: Path) -> dict[str, Any]:
    """What stands in the lines of a file, whose last one is cut off where it has no end."""
    whole = file.read_bytes() if file.exists() else b""
    kept = whole[: whole.rfind(b"\n") + 1]
    if kept != whole:
        os.truncate(file, len(kept))
    return {name: value for line in kept.splitlines() for name, value in json.loads(line).items()}


def _append(file: Path, line: dict[str, Any]) -> None:
    with file.open("ab") as out:
        out.write((json.dumps(line) + "\n").encode())
        out.flush()
        os.fsync(out.fileno())
