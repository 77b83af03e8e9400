"""The one writer of cgroup files on a node: quotas, the idle class, and the v1 groups that carry them.

In v2 a job's own group takes both. In v1 Slurm leaves the hierarchy `cpu` alone, so groups are made there and the
job's processes moved in: guests below `asad_<node>`, which is itself in the idle class (weights only count among
siblings, and jobs that we leave alone are beside that group, not in it), hosts with a cap below `asad-hosts_<node>`.

Every change is read back and leaves an audit row. What a file said before is kept, and put back when the quota is
lifted; in v2 it is also written to `quotas.json` first, so that a successor finds what a killed actor has left.

Memory limits (`memory.high`, in v1 `memory.soft_limit_in_bytes`) are files of the job's own group in both versions, and
are remembered in `quotas.json` in both.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from asad.model import Json
from asad.node.cgroups import Cgroups, JobGroup, memberships, numbers
from asad.node.memory import needed_bytes

log = logging.getLogger(__name__)

PERIOD_US = 100_000
"""Over this a quota counts: the kernel's own default, which groups in v1 come with."""
LEAST_US = 1_000
"""The kernel refuses quotas below this: a hundredth of a core."""
MOST_US = 1 << 30
UNLIMITED = -1
GONE = (errno.ENOENT, errno.ENODEV, errno.ESRCH)
"""Errors that say that a group ended between two calls: no error of ours."""
AUDIT_ROWS = 10_000
SETTLING = 5
"""How often a job's processes are listed until all are moved: it may fork meanwhile."""


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
MEMORY_SLACK = 0.1
"""No memory limit is below what a job needs at that moment (`needed_bytes`) and this part of it besides."""
MOST_RECLAIM = 1 << 30
"""A memory limit comes down to no more than this many bytes below what the job has: in v2 the kernel takes them back
before the write returns, and the actor has other duties."""
KNOBS = (QUOTA, BURST, IDLE, SHARES, MEMORY)
LEAST_SHARES = {1: 2, 2: 1}
USUAL_SHARES = {1: 1024, 2: 100}


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


@dataclass(slots=True)
class Held:
    """What we hold of one job."""

    group: JobGroup
    place: Path
    """The group whose files we write (v2: the job's own)."""
    quota_us: int = UNLIMITED
    idle: bool = False
    before: dict[str, str] | None = None
    """What the files of the quota said before we wrote them first; None while we have not."""


@dataclass(slots=True)
class HeldMemory:
    """A memory limit that we hold on a job, in Slurm's own group of it (in v1 too)."""

    group: JobGroup
    place: Path
    before: str
    """What the file said before we wrote it first."""
    high_bytes: int = UNLIMITED


class Quotas:
    """Quotas, memory limits and idle class of the jobs of a node. `wall` is the clock of the audit rows (UTC epoch, s).

    `folder` is where `quotas.json` is kept. Nothing here raises for a job that has just ended, or for a file that
    cannot be written: the audit row says so, and the caller is told by False.
    """

    def __init__(self, cgroups: Cgroups, folder: Path, wall: Callable[[], float]) -> None:
        self.cgroups, self.wall = cgroups, wall
        self.version = cgroups.version
        self.state = folder / "quotas.json"
        self.held: dict[str, Held] = {}
        self.memory: dict[str, HeldMemory] = {}
        self.rows: deque[AuditRow] = deque(maxlen=AUDIT_ROWS)
        self._refused: set[tuple[str, str]] = set()
        cpu = cgroups.root / "cpu"
        self.guests, self.hosts = cpu / f"asad_{cgroups.node}", cpu / f"asad-hosts_{cgroups.node}"

    # ---------------------------------------------------------------------------------------------- what to hold

    def quota_cores(self, job_id: str) -> float:
        """Cores that a job's quota leaves it; NaN for no quota."""
        held = self.held.get(job_id)
        return math.nan if held is None or held.quota_us == UNLIMITED else held.quota_us / PERIOD_US

    def holds_idle(self, job_id: str) -> bool:
        """Do we hold the job in the idle class?"""
        held = self.held.get(job_id)
        return held is not None and held.idle

    def is_idle(self, group: JobGroup) -> bool:
        """Is the job in the idle class, by us or by a predecessor?"""
        held = self.held.get(group.job_id)
        if held is not None:
            return held.idle
        place = self.guests / f"job_{group.job_id}" if self.version == 1 else self._own(group)
        return self._read(place / IDLE.file(self.version)) == "1"

    def set_idle(self, group: JobGroup, idle: bool, why: str) -> bool:
        """Put a job into the idle class, or out of it; is it there now?"""
        held = self.held.get(group.job_id)
        if held is None and not idle and not self.is_idle(group):
            return True
        held = self._hold(group, guest=idle)
        if held is None:
            return False
        if self.version == 1:
            if not idle:
                return self._move_back(held, why)
            if not self._make_idle(self.guests, "", "guests are in the idle class"):
                return False
        done = held.idle == idle or self._make_idle(held.place, group.job_id, why, idle)
        if done:
            held.idle = idle
        return done and self.gather(held)

    def set_quota(self, group: JobGroup, cores: float, why: str) -> bool:
        """Leave a job `cores` cores (above the least that the kernel knows), or lift its quota (NaN)."""
        held = self.held.get(group.job_id)
        if math.isnan(cores):
            return held is None or self._release(held, why)
        held = self._hold(group, guest=held is not None and held.idle)
        if held is None:
            return False
        wanted = max(LEAST_US, min(MOST_US, round(cores * PERIOD_US)))
        if held.quota_us == wanted:
            return True
        if not self._remember(held):
            return False
        # a burst may not be larger than the quota, so it falls first
        if held.before is not None and held.before.get("burst", "0") != "0":
            self._write(held.place, BURST, 0, group.job_id, why)
        if not self._write(held.place, QUOTA, wanted, group.job_id, why):
            return False
        held.quota_us = wanted
        return self.gather(held)

    def memory_high(self, job_id: str) -> float:
        """Bytes above which a job's memory is reclaimed; NaN for no limit of ours."""
        held = self.memory.get(job_id)
        return math.nan if held is None or held.high_bytes == UNLIMITED else float(held.high_bytes)

    def set_memory(self, group: JobGroup, high_bytes: float, why: str) -> bool:
        """Have memory of a job above `high_bytes` reclaimed, or lift that (NaN).

        Whatever is asked for, the limit stays above what the job needs now, so that nobody is stopped by it at once.
        Called each second, it follows a job that grows, and comes down step by step. False where it cannot be done.
        """
        held = self.memory.get(group.job_id)
        if held is not None and held.group.inode != group.inode:
            self._forget_memory(held)
            held = None
        if math.isnan(high_bytes):
            return held is None or self._lift_memory(held, why)
        if held is None:
            path = self.cgroups.file(group, "memory", MEMORY.file(self.version))
            before = self._read(path)
            if not before:
                self._refuse(
                    path, group.job_id, OSError(errno.ENOENT, "Slurm keeps no memory group here"), why
                )
                return False
            held = HeldMemory(group, path.parent, before)
        used = self._read(held.place / ("memory.usage_in_bytes" if self.version == 1 else "memory.current"))
        if not used.isdecimal():
            return False  # it ends just now
        needed = needed_bytes(int(used), self._read(held.place / "memory.stat"), self.version)
        floor = needed * (1.0 + MEMORY_SLACK)
        if high_bytes < floor <= held.high_bytes <= floor * (1.0 + MEMORY_SLACK):
            return True  # it has room enough still: what it uses changes all the time
        least = max(high_bytes, floor, int(used) - MOST_RECLAIM)
        wanted = max(LEAST_MEMORY, PAGE_BYTES * math.ceil(min(least, MOST_MEMORY) / PAGE_BYTES))
        if held.high_bytes == wanted:
            return True
        known = group.job_id in self.memory
        self.memory[group.job_id] = held
        if not known and not self._save():
            del self.memory[group.job_id]
            return False
        if not self._write(held.place, MEMORY, wanted, group.job_id, why):
            return False
        held.high_bytes = wanted
        return True

    def follow(self, jobs: Mapping[str, JobGroup]) -> None:
        """Once a second: forget jobs that have ended, and (v1) move processes that have come since."""
        for job_id, held in list(self.held.items()):
            group = jobs.get(job_id)
            if group is not None and group.inode == held.group.inode:
                self.gather(held)
            elif not self.cgroups.exists(held.group):  # and not only out of sight for a moment
                self._forget(held)
        for job_id, limited in list(self.memory.items()):
            group = jobs.get(job_id)
            if (group is None or group.inode != limited.group.inode) and not self.cgroups.exists(
                limited.group
            ):
                self._forget_memory(limited)

    def lift_all(self, why: str) -> None:
        """Lift every quota and memory limit. Guests stay in the idle class, which needs nobody to watch it."""
        for held in list(self.held.values()):
            self._release(held, why)
        for limited in list(self.memory.values()):
            self._lift_memory(limited, why)

    def mend(self, jobs: Mapping[str, JobGroup], why: str) -> None:
        """At start: lift what a killed predecessor has left."""
        for entry in self._load("memory"):
            path, inode = Path(str(entry.get("path"))), entry.get("inode")
            with contextlib.suppress(OSError):
                if path.is_relative_to(self.cgroups.root) and path.stat().st_ino == inode:
                    old = str(entry.get("before"))
                    self._restore_memory(path, old, str(entry.get("job_id")), why)
        for entry in self._load("held"):
            path, inode = Path(str(entry.get("path"))), entry.get("inode")
            before = entry.get("before")
            with contextlib.suppress(OSError):
                if path.is_relative_to(self.cgroups.root) and path.stat().st_ino == inode:
                    job_id = str(entry.get("job_id"))
                    self._restore(path, before if isinstance(before, dict) else {}, job_id, why)
        if self.version == 1:
            for parent in (self.guests, self.hosts):
                for place in sorted(parent.glob("job_*")):
                    job_id = place.name.removeprefix("job_")
                    self._write(place, QUOTA, UNLIMITED, job_id, why)
                    group = jobs.get(job_id)
                    if parent == self.hosts or group is None:
                        self._empty(place, group)
        self._save()

    # ------------------------------------------------------------------------------------------------- v1's groups

    def _own(self, group: JobGroup) -> Path:
        return self.cgroups.root / group.path

    def _hold(self, group: JobGroup, *, guest: bool) -> Held | None:
        """The record of a job, with its group made in v1; None if it cannot be made."""
        held = self.held.get(group.job_id)
        if held is not None and held.group.inode != group.inode:
            self._forget(held)
            held = None
        parent = self.guests if guest else self.hosts
        if held is not None and (self.version == 2 or held.place.parent == parent):
            return held
        if held is not None:  # a capped host became a guest
            self._move_back(held, "it changes its class")
        if not self.cgroups.can_hold:
            return None
        place = self._own(group)
        if self.version == 1:
            place = parent / f"job_{group.job_id}"
            try:
                place.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                self._refuse(place, group.job_id, error, "a group for its processes")
                return None
        held = Held(group, place)
        held.idle = self._read(place / IDLE.file(self.version)) == "1"
        self.held[group.job_id] = held
        return held

    def gather(self, held: Held) -> bool:
        """Move the job's processes to its group (v1); children follow by themselves, later steps do not."""
        if self.version == 2:
            return True
        for _ in range(SETTLING):
            outside = set(self.cgroups.pids(held.group)) - set(numbers(held.place / "cgroup.procs"))
            if not outside:
                return True
            self._move(outside, held.place, held.group.job_id)
        return False

    def _move(self, pids: set[int], place: Path, job_id: str) -> None:
        for pid in sorted(pids):
            try:
                (place / "cgroup.procs").write_text(str(pid))
            except OSError as error:  # EINVAL: a real-time process, which has no share to give
                if error.errno not in GONE:
                    self._refuse(place / "cgroup.procs", job_id, error, "its processes belong there")

    def _release(self, held: Held, why: str) -> bool:
        """Lift the quota of a job; a v1 host also goes back to where it was."""
        if self.version == 1 and held.place.parent == self.hosts:
            return self._move_back(held, why)
        return self._lift(held, why)

    def _move_back(self, held: Held, why: str) -> bool:
        """End our hold of a job in v1: its processes go back to where its slurmstepd is."""
        self._lift(held, why)
        self.held.pop(held.group.job_id, None)
        return self._empty(held.place, held.group)

    def _empty(self, place: Path, group: JobGroup | None) -> bool:
        origin = self.cgroups.root / "cpu"
        for pid in self.cgroups.stepds(group) if group is not None else ():
            with contextlib.suppress(OSError):
                text = (self.cgroups.proc / str(pid) / "cgroup").read_text(errors="replace")
                origin = origin / memberships(text).get("cpu", "")
                break
        for _ in range(SETTLING):
            inside = set(numbers(place / "cgroup.procs"))
            if not inside:
                break
            self._move(inside, origin, group.job_id if group is not None else "")
        with contextlib.suppress(OSError):
            place.rmdir()
        return not place.exists()

    def _forget(self, held: Held) -> None:
        """The job has ended here; its own group went with it, ours is still there."""
        self.held.pop(held.group.job_id, None)
        if self.version == 1:
            self._empty(held.place, None)
        elif held.before is not None:
            self._save()

    # ---------------------------------------------------------------------------------------------------- memory

    def _lift_memory(self, held: HeldMemory, why: str) -> bool:
        done = self._restore_memory(held.place, held.before, held.group.job_id, why)
        if done or not held.place.exists():
            self._forget_memory(held)
        return done

    def _restore_memory(self, place: Path, before: str, job_id: str, why: str) -> bool:
        """Put back what the file said, or no limit where that makes no sense."""
        none = MEMORY.text(self.version, UNLIMITED)
        sound = before == none or (before.isascii() and before.isdecimal() and int(before) >= LEAST_MEMORY)
        return self._write_text(place / MEMORY.file(self.version), before if sound else none, job_id, why)

    def _forget_memory(self, held: HeldMemory) -> None:
        self.memory.pop(held.group.job_id, None)
        self._save()

    # ----------------------------------------------------------------------------------------------------- files

    def _make_idle(self, place: Path, job_id: str, why: str, idle: bool = True) -> bool:
        if (place / IDLE.file(self.version)).exists():
            return self._write(place, IDLE, int(idle), job_id, why)
        shares = (LEAST_SHARES if idle else USUAL_SHARES)[self.version]
        return self._write(place, SHARES, shares, job_id, why)

    def _lift(self, held: Held, why: str) -> bool:
        if held.quota_us == UNLIMITED:
            return True
        done = self._restore(held.place, held.before or {}, held.group.job_id, why)
        if done or not held.place.exists():
            held.quota_us, held.before = UNLIMITED, None
            self._save()
        return done

    def _restore(self, place: Path, before: Mapping[str, object], job_id: str, why: str) -> bool:
        """Put back what the files said before: the quota first, then the burst that it allows."""
        done = self._write_text(place / QUOTA.file(self.version), self._old_quota(before), job_id, why)
        burst = before.get("burst", "0")
        if done and isinstance(burst, str) and burst.isdecimal() and burst != "0":
            self._write_text(place / BURST.file(self.version), burst, job_id, why)
        return done

    def _old_quota(self, before: Mapping[str, object]) -> str:
        """What to write for a quota that is lifted: the old text if it makes sense, else no quota."""
        old = before.get("quota")
        if isinstance(old, str):
            with contextlib.suppress(ValueError):
                limit, _, period = old.partition(" ")
                if limit != "max" and int(limit) >= LEAST_US and (not period or int(period) >= LEAST_US):
                    return old
        return QUOTA.text(self.version, UNLIMITED)

    def _remember(self, held: Held) -> bool:
        """Keep what the files say before the first write, in v2 on disk too: then nothing of ours can be lost."""
        if held.before is not None:
            return True
        quota, burst = (self._read(held.place / knob.file(self.version)) for knob in (QUOTA, BURST))
        held.before = {"quota": quota or QUOTA.text(self.version, UNLIMITED), "burst": burst or "0"}
        if self._save():
            return True
        held.before = None
        return False

    def _read(self, path: Path) -> str:
        try:
            return path.read_text().strip()
        except OSError:
            return ""

    def _write(self, place: Path, knob: Knob, value: int, job_id: str, why: str) -> bool:
        return self._write_text(place / knob.file(self.version), knob.text(self.version, value), job_id, why)

    def _write_text(self, path: Path, text: str, job_id: str, why: str) -> bool:
        """Write, read back, tell. Does the file say `text` now?"""
        try:
            old = path.read_text().strip()
            if old == text:
                return True
            put(path, text)
            new = path.read_text().strip()
        except OSError as error:
            if error.errno not in GONE:
                self._refuse(path, job_id, error, why)
            return False
        self._refused = {key for key in self._refused if key[0] != str(path)}
        self._tell(path, job_id, old, new, why)
        if new != text:
            log.warning("%s: wrote %r and read back %r", path, text, new)
        return new == text

    def _refuse(self, path: Path, job_id: str, error: OSError, why: str) -> None:
        """Tell of a change that failed, once for each file and reason."""
        reason = f"refused: {error.strerror or error}"
        if (str(path), reason) not in self._refused:
            if len(self._refused) > AUDIT_ROWS:
                self._refused.clear()
            self._refused.add((str(path), reason))
            log.warning("%s: %s (%s)", path, reason, why)
            self._tell(path, job_id, "", reason, why)

    def _tell(self, path: Path, job_id: str, old: str, new: str, why: str) -> None:
        self.rows.append(AuditRow(self.wall(), str(path), job_id, old, new, why))

    # ------------------------------------------------------------------------------------------------- quotas.json

    def _save(self) -> bool:
        """Write down which of Slurm's files are ours and what they said before.

        In v1 quotas are in groups of ours, which say it themselves, and memory limits alone are written down.
        """
        if self.version == 1 and not self.memory and not self.state.exists():
            return True
        entries: list[Json] = [
            {
                "job_id": held.group.job_id,
                "path": str(held.place),
                "inode": held.group.inode,
                "before": dict(held.before),
            }
            for held in self.held.values()
            if held.before is not None and self.version == 2
        ]
        limited: list[Json] = [
            {
                "job_id": held.group.job_id,
                "path": str(held.place),
                "inode": inode_of(held.place),
                "before": held.before,
            }
            for held in self.memory.values()
        ]
        try:
            write_durably(
                self.state, json.dumps({"held": entries} | ({"memory": limited} if limited else {}))
            )
        except OSError as error:
            self._refuse(self.state, "", error, "a quota is only set when it can be written down first")
            return False
        return True

    def _load(self, key: str) -> Iterator[dict[str, Any]]:
        """The entries of quotas.json under `key`; none if it is not there or broken."""
        try:
            plain = json.loads(self.state.read_text(encoding="utf-8"))
            entries = plain["held"] if key == "held" else plain.get(key, [])
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if key != "held":
                return  # told once
            log.warning(
                "%s cannot be read (%s): quotas left by a killed actor stay until their jobs end",
                self.state,
                error,
            )
            return
        if isinstance(entries, list):
            yield from (entry for entry in entries if isinstance(entry, dict))


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
