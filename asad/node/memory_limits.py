"""Memory limits of the jobs of a node (`memory.high`, in v1 `memory.soft_limit_in_bytes`).

They are files of the job's own group in both versions, and are written down in `quotas.json` in both, so that a
successor finds what a killed actor has left.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asad.model import Json
from asad.node.cgroups import Cgroups, JobGroup
from asad.node.kernel_files import (
    LEAST_MEMORY,
    MEMORY,
    MOST_MEMORY,
    PAGE_BYTES,
    UNLIMITED,
    Writer,
    groups_left,
    inode_of,
    text_of,
)
from asad.node.memory import needed_bytes

MEMORY_SLACK = 0.1
"""No memory limit is below what a job needs at that moment (`needed_bytes`) and this part of it besides."""
MOST_RECLAIM = 1 << 30
"""A memory limit comes down to no more than this many bytes below what the job has: in v2 the kernel takes them back
before the write returns, and the actor has other duties."""


@dataclass(slots=True)
class HeldMemory:
    """A memory limit that we hold on a job, in Slurm's own group of it (in v1 too)."""

    group: JobGroup
    place: Path
    before: str
    """What the file said before we wrote it first."""
    high_bytes: int = UNLIMITED


class MemoryLimits:
    """The memory limits that we hold. `save` writes them down; a limit is only set when that is done."""

    def __init__(self, cgroups: Cgroups, writer: Writer, save: Callable[[], bool]) -> None:
        self.cgroups, self.writer, self.save = cgroups, writer, save
        self.version = cgroups.version
        self.held: dict[str, HeldMemory] = {}

    def high(self, job_id: str) -> float:
        """Bytes above which a job's memory is reclaimed; NaN for no limit of ours."""
        held = self.held.get(job_id)
        return math.nan if held is None or held.high_bytes == UNLIMITED else float(held.high_bytes)

    def set(self, group: JobGroup, high_bytes: float, why: str) -> bool:
        """Have memory of a job above `high_bytes` reclaimed, or lift that (NaN).

        Whatever is asked for, the limit stays above what the job needs now, so that nobody is stopped by it at once.
        Called each second, it follows a job that grows, and comes down step by step. False where it cannot be done.
        """
        held = self.held.get(group.job_id)
        if held is not None and held.group.inode != group.inode:
            self._forget(held)
            held = None
        if math.isnan(high_bytes):
            return held is None or self.lift(held, why)
        if held is None:
            path = self.cgroups.file(group, "memory", MEMORY.file(self.version))
            before = text_of(path)
            if not before:
                self.writer.refuse(
                    path, group.job_id, OSError(errno.ENOENT, "Slurm keeps no memory group here"), why
                )
                return False
            held = HeldMemory(group, path.parent, before)
        used = text_of(held.place / ("memory.usage_in_bytes" if self.version == 1 else "memory.current"))
        if not used.isdecimal():
            return False  # it ends just now
        needed = needed_bytes(int(used), text_of(held.place / "memory.stat"), self.version)
        floor = needed * (1.0 + MEMORY_SLACK)
        if high_bytes < floor <= held.high_bytes <= floor * (1.0 + MEMORY_SLACK):
            return True  # it has room enough still: what it uses changes all the time
        least = max(high_bytes, floor, int(used) - MOST_RECLAIM)
        wanted = max(LEAST_MEMORY, PAGE_BYTES * math.ceil(min(least, MOST_MEMORY) / PAGE_BYTES))
        if held.high_bytes == wanted:
            return True
        known = group.job_id in self.held
        self.held[group.job_id] = held
        if not known and not self.save():
            del self.held[group.job_id]
            return False
        if not self.writer.write(held.place, MEMORY, wanted, group.job_id, why):
            return False
        held.high_bytes = wanted
        return True

    def follow(self, jobs: Mapping[str, JobGroup]) -> None:
        """Forget jobs that have ended."""
        for job_id, held in list(self.held.items()):
            group = jobs.get(job_id)
            if (group is None or group.inode != held.group.inode) and not self.cgroups.exists(held.group):
                self._forget(held)

    def lift_all(self, why: str) -> None:
        """Lift every limit."""
        for held in list(self.held.values()):
            self.lift(held, why)

    def recover(self, entries: Any, why: str) -> None:
        """Lift what a killed predecessor has written down."""
        for path, entry in groups_left(entries, self.cgroups.root):
            self._restore(path, str(entry.get("before")), str(entry.get("job_id")), why)

    def entries(self) -> list[Json]:
        """What to write down."""
        return [
            {
                "job_id": held.group.job_id,
                "path": str(held.place),
                "inode": inode_of(held.place),
                "before": held.before,
            }
            for held in self.held.values()
        ]

    def lift(self, held: HeldMemory, why: str) -> bool:
        """Put back what the file said before."""
        done = self._restore(held.place, held.before, held.group.job_id, why)
        if done or not held.place.exists():
            self._forget(held)
        return done

    def _restore(self, place: Path, before: str, job_id: str, why: str) -> bool:
        """Put back what the file said, or no limit where that makes no sense."""
        none = MEMORY.text(self.version, UNLIMITED)
        sound = before == none or (before.isascii() and before.isdecimal() and int(before) >= LEAST_MEMORY)
        return self.writer.write_text(
            place / MEMORY.file(self.version), before if sound else none, job_id, why
        )

    def _forget(self, held: HeldMemory) -> None:
        self.held.pop(held.group.job_id, None)
        self.save()
