"""The kernel's files that we write: a table of them, and the one writer.

Each file is a row with its names in cgroup v1 and v2 and what may be written to it. Every change is read back and
leaves an audit row.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from asad.model import Json

log = logging.getLogger(__name__)

T = TypeVar("T")

PERIOD_US = 100_000
"""Over this a quota counts: the kernel's own default, which groups in v1 come with."""
LEAST_US = 1_000
"""The kernel refuses quotas below this: a hundredth of a core."""
MOST_US = 1 << 30
UNLIMITED = -1
GONE = (errno.ENOENT, errno.ENODEV, errno.ESRCH)
"""Errors that say that a group ended between two calls: no error of ours."""
AUDIT_ROWS = 10_000


def within(least: int, most: int) -> Callable[[int], bool]:
    return lambda value: least <= value <= most


@dataclass(frozen=True, slots=True)
class Knob:
    """A file of a cgroup that we write, and what may be written to it."""

    name: str
    v1: str
    v2: str
    valid: Callable[[int], bool]

    def file(self, version: int) -> str:
        return self.v1 if version == 1 else self.v2

    def text(self, version: int, value: int) -> str:
        """What is written for a value. Raises ValueError for one that the kernel would refuse or misread."""
        if not self.valid(value):
            raise ValueError(f"{value} is no value of {self.file(version)}")
        if self.name == "quota" and version == 2:
            return f"{'max' if value == UNLIMITED else value} {PERIOD_US}"
        if self.name == "memory" and version == 2 and value == UNLIMITED:
            return "max"
        return str(value)


QUOTA = Knob("quota", "cpu.cfs_quota_us", "cpu.max", lambda us: us == UNLIMITED or LEAST_US <= us <= MOST_US)
BURST = Knob("burst", "cpu.cfs_burst_us", "cpu.max.burst", within(0, MOST_US))
IDLE = Knob("idle", "cpu.idle", "cpu.idle", within(0, 1))
SHARES = Knob("shares", "cpu.shares", "cpu.weight", within(1, 262_144))
"""For kernels without the idle class (before 5.15)."""
PAGE_BYTES = 4096
LEAST_MEMORY = 1 << 20
MOST_MEMORY = 1 << 62


def _memory(value: int) -> bool:
    """The kernel counts whole pages."""
    return value == UNLIMITED or (LEAST_MEMORY <= value <= MOST_MEMORY and value % PAGE_BYTES == 0)


MEMORY = Knob("memory", "memory.soft_limit_in_bytes", "memory.high", _memory)
"""v1 has nothing that slows a job down: its soft limit counts only when the whole node is short of memory."""
KNOBS = (QUOTA, BURST, IDLE, SHARES, MEMORY)
LEAST_SHARES = {1: 2, 2: 1}
USUAL_SHARES = {1: 1024, 2: 100}
MOST_SHARES = {1: 262_144, 2: 10_000}
"""By cgroup version."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One change of one file."""

    time_s: float
    """UTC epoch."""
    file: str
    job_id: str
    """Empty for the group above all guests (v1)."""
    old: str
    new: str
    """What the file said afterwards, or why the change failed."""
    why: str

    def to_json(self) -> dict[str, Json]:
        return asdict(self)


class Writer:
    """Writes the files of a node. `wall` is the clock of the audit rows (UTC epoch, s).

    Nothing here raises for a group that has just ended, or for a file that cannot be written: the audit row says so,
    and the caller gets False.
    """

    def __init__(self, version: int, wall: Callable[[], float]) -> None:
        self.version, self.wall = version, wall
        self.rows: deque[AuditRow] = deque(maxlen=AUDIT_ROWS)
        self._refused: set[tuple[str, str]] = set()

    def write(self, place: Path, knob: Knob, value: int, job_id: str, why: str) -> bool:
        return self.write_text(place / knob.file(self.version), knob.text(self.version, value), job_id, why)

    def write_text(self, path: Path, text: str, job_id: str, why: str) -> bool:
        """Write, read back, note it. Does the file say `text` now?"""
        try:
            old = path.read_text().strip()
            if old == text:
                return True
            put(path, text)
            new = path.read_text().strip()
        except OSError as error:
            if error.errno not in GONE:
                self.refuse(path, job_id, error, why)
            return False
        self._refused = {key for key in self._refused if key[0] != str(path)}
        self._audit(path, job_id, old, new, why)
        if new != text:
            log.warning("%s: wrote %r and read back %r", path, text, new)
        return new == text

    def refuse(self, path: Path, job_id: str, error: OSError, why: str) -> None:
        """Note a change that failed, once for each file and reason."""
        reason = f"refused: {error.strerror or error}"
        if (str(path), reason) not in self._refused:
            if len(self._refused) > AUDIT_ROWS:
                self._refused.clear()
            self._refused.add((str(path), reason))
            log.warning("%s: %s (%s)", path, reason, why)
            self._audit(path, job_id, "", reason, why)

    def _audit(self, path: Path, job_id: str, old: str, new: str, why: str) -> None:
        self.rows.append(AuditRow(self.wall(), str(path), job_id, old, new, why))


def text_of(path: Path) -> str:
    """What a file says; empty if it is not there."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def journal_of(path: Path, made: Callable[[Any], T], empty: T, otherwise: str) -> T:
    """What `made` makes of a journal of ours; `empty` if it is not there, or broken, of which `otherwise` warns."""
    try:
        return made(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return empty
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("%s cannot be read (%s)%s", path, error, otherwise)
        return empty


def groups_left(entries: Any, root: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The entries of a journal whose group (`path`, `inode`) is below `root`, still there and no namesake."""
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            path = Path(str(entry.get("path")))
            if path.is_relative_to(root) and inode_of(path) == entry.get("inode"):
                yield path, entry


def write_durably(path: Path, text: str) -> None:
    """Replace a file by `text` so that a crash leaves the old or the new one. Raises OSError."""
    new = path.with_suffix(".new")
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def inode_of(path: Path) -> int:
    """Of a file or folder, 0 if it is gone."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def put(path: Path, text: str) -> None:
    """Write a file that is there; never makes one where the kernel has none. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
