"""Where a command writes: standard output holds what it answers, so that `--json` is JSON whatever a library prints."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

from asad.errors import UsageError

VERSIONS: dict[str, int] = {}
"""Commands whose JSON has lost a key, or gives it another meaning, since version 1 → its version now."""


def schema_name(command: str) -> str:
    """What the key `schema` of a command's JSON says: `jobs/1`, `bench/1` of all evaluations."""
    name = "bench" if command.startswith("bench ") else command
    return f"{name}/{VERSIONS.get(name, 1)}"


def keep_stdout() -> None:
    """Take standard output for Python alone: what compiled libraries print goes nowhere.

    HiGHS writes a line of its own there now and then, whatever options say (HiGHS.jl, issue 312). What the terminal's
    encoding lacks is replaced, instead of ending the command.
    """
    if sys.stdout is None:  # it was closed before us
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        return
    try:
        if sys.stdout.fileno() != 1:
            return
    except io.UnsupportedOperation:  # it is no file: somebody who runs us gathers it
        return
    sys.stdout.flush()
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    sys.stdout = os.fdopen(
        kept,
        "w",
        buffering=1 if os.isatty(kept) else -1,
        encoding=sys.stdout.encoding,
        errors="replace",
    )


def require_folder(page: Path | None, option: str = "--page") -> None:
    """Before minutes of work: could the page be written? Raises UsageError."""
    if page is None:
        return
    if not page.parent.is_dir():
        raise UsageError(f"{option} {page}: there is no folder {page.parent}; make it first")
    if page.is_dir() or not os.access(page.parent, os.W_OK):
        raise UsageError(f"{option} {page}: cannot be written; name a file in a folder that you can write to")
