"""What the doctor of a plugin works with: the site that it looks at, what it finds, and how it asks commands and files.

A plugin registers its doctor as an entry point in the group `asad.doctors`, by the name of its cluster: a function from
a `Site` to findings, in the order in which they should be put right.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from asad.model import Json

State = Literal["ok", "warn", "fail"]
COMMAND_S = 10.0
"""A command that has not answered by then is given up."""
MOST_BYTES = 256 * 1024
"""So much of a file is read."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    state: State
    why: str
    remedy: str = ""
    lines: tuple[str, ...] = ()
    """Whole lines for slurm.conf that correct it."""

    def to_json(self) -> dict[str, Json]:
        """`{"check", "state", "why", "mend"}`"""
        return {"check": self.check, "state": self.state, "why": self.why, "mend": self.remedy}


@dataclass(frozen=True, slots=True)
class Site:
    """What asad.toml says of the site, as far as a plugin's doctor needs it."""

    table: Mapping[str, Any] = field(default_factory=dict)
    """The plugin's own table, as plain data that nobody has checked."""
    user: str = "asad"
    """Who the daemon runs as."""
    state_dir: Path = Path("/var/lib/asad")
    guest_partitions: tuple[str, ...] = ()
    """Those that the node actors know."""
    calibration: str = ""
    """`[guard] calibration`."""
    config_file: str | None = None
    """The resource manager's own configuration, if that is to be looked at instead of asking the resource manager."""


def judged(
    check: str, holds: bool, good: str, state: State, why: str, remedy: str = "", *lines: str
) -> Finding:
    """Fine, for the reason `good`, if something holds; else what is wrong, and what corrects it."""
    return Finding(check, "ok", good) if holds else Finding(check, state, why, remedy, lines)


def first_finding(*cases: tuple[object, Finding]) -> Finding:
    """The first finding whose condition holds; that of the last one must."""
    return next(finding for holds, finding in cases if holds)


def run(*words: str) -> str:
    """What a command prints. Raises OSError if it is not there, fails or hangs."""
    program = shutil.which(words[0])
    if program is None:
        raise OSError(f"there is no {words[0]}")
    try:
        done = subprocess.run(  # noqa: S603 - an argv list of our own words
            [program, *words[1:]],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"{words[0]} gave no answer within {COMMAND_S:.0f} s") from None
    if done.returncode != 0:
        raise OSError(f"{words[0]}: {done.stderr.strip()[:500] or done.returncode}")
    return done.stdout


def read(path: Path) -> str | None:
    """The beginning of a file, whatever its encoding; None where it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(MOST_BYTES)
    except OSError:
        return None
