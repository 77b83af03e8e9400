"""The one writer of cgroup files on a node: quotas, the idle class, and the v1 groups that carry them.

In v2 a job's own group takes both. In v1 Slurm leaves the hierarchy `cpu` alone, so groups are made there and the
job's processes moved in: guests below `asad_<node>`, which is itself in the idle class (weights only count among
siblings, and jobs that we leave alone are beside that group, not in it), hosts with a cap below `asad-hosts_<node>`.

What a file said before is stored, and put back when the quota is lifted; in v2 it is also written to `quotas.json`
first, so that a successor finds what a killed actor has left. Memory limits (`asad.node.memory_limits`) are beside it.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from asad.model import Json
from asad.node.cgroups import Cgroups, JobGroup, memberships, numbers
from asad.node.kernel_files import (
    BURST,
    GONE,
    IDLE,
    LEAST_SHARES,
    LEAST_US,
    MOST_US,
    PERIOD_US,
    QUOTA,
    SHARES,
    UNLIMITED,
    USUAL_SHARES,
    Writer,
    groups_left,
    journal_of,
    text_of,
    write_durably,
)
from asad.node.memory_limits import MemoryLimits

SETTLING = 5
"""How often a job's processes are listed until all are moved: it may fork meanwhile."""


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


class Quotas:
    """Quotas, memory limits and idle class of the jobs of a node. `wall` is the clock of the audit rows (UTC epoch, s).

    `folder` is where `quotas.json` is kept. Nothing here raises for a job that has just ended, or for a file that
    cannot be written: the audit row says so, and the caller gets False.
    """

    def __init__(self, cgroups: Cgroups, folder: Path, wall: Callable[[], float]) -> None:
        self.cgroups = cgroups
        self.version = cgroups.version
        self.state = folder / "quotas.json"
        self.held: dict[str, Held] = {}
        self.writer = Writer(self.version, wall)
        self.rows = self.writer.rows
        limits = self.limits = MemoryLimits(cgroups, self.writer, self._save)
        self.memory, self.memory_high, self.set_memory = limits.held, limits.high, limits.set
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
        return text_of(place / IDLE.file(self.version)) == "1"

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
            # weights count among siblings: guests would compete with other jobs by their parent's
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
        if not self._note_before(held):
            return False
        # a burst may not be larger than the quota, so it falls first
        if held.before is not None and held.before.get("burst", "0") != "0":
            self.writer.write(held.place, BURST, 0, group.job_id, why)
        if not self.writer.write(held.place, QUOTA, wanted, group.job_id, why):
            return False
        held.quota_us = wanted
        return self.gather(held)

    def follow(self, jobs: Mapping[str, JobGroup]) -> None:
        """Once a second: forget jobs that have ended, and (v1) move processes that have come since."""
        for job_id, held in list(self.held.items()):
            group = jobs.get(job_id)
            if group is not None and group.inode == held.group.inode:
                self.gather(held)
            elif not self.cgroups.exists(held.group):  # and not only out of sight for a moment
                self._forget(held)
        self.limits.follow(jobs)

    def lift_all(self, why: str) -> None:
        """Lift every quota and memory limit. Guests stay in the idle class, which needs nobody to watch it."""
        for held in list(self.held.values()):
            self._release(held, why)
        self.limits.lift_all(why)

    def recover(self, jobs: Mapping[str, JobGroup], why: str) -> None:
        """At start: lift what a killed predecessor has left."""
        held, limited = journal_of(
            self.state,
            lambda plain: (plain["held"], plain.get("memory")),
            (None, None),
            ": quotas left by a killed actor stay until their jobs end",
        )
        self.limits.recover(limited, why)
        for path, entry in groups_left(held, self.cgroups.root):
            before = entry.get("before")
            self._restore(path, before if isinstance(before, dict) else {}, str(entry.get("job_id")), why)
        if self.version == 1:
            for parent in (self.guests, self.hosts):
                for place in sorted(parent.glob("job_*")):
                    job_id = place.name.removeprefix("job_")
                    self.writer.write(place, QUOTA, UNLIMITED, job_id, why)
                    group = jobs.get(job_id)
                    # guests go on in the idle class, as they do without any actor: only their quotas are lifted
                    if parent == self.hosts or group is None:
                        self._empty(place, group)
        self._save()

    # ------------------------------------------------------------------------------------------------- v1's groups

    def _own(self, group: JobGroup) -> Path:
        return self.cgroups.root / group.path

    def _hold(self, group: JobGroup, *, guest: bool) -> Held | None:
        """The record of a job, with its group made in v1; None if it cannot be made."""
        held = self.held.get(group.job_id)
        # a job that was requeued has its number still, and another group: what was held went with the old one
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
                self.writer.refuse(place, group.job_id, error, "a group for its processes")
                return None
        # a predecessor may have made it idle, and nothing of that is in `quotas.json`
        held = Held(group, place)
        held.idle = text_of(place / IDLE.file(self.version)) == "1"
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
                    self.writer.refuse(place / "cgroup.procs", job_id, error, "its processes belong there")

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

    # ----------------------------------------------------------------------------------------------------- files

    def _make_idle(self, place: Path, job_id: str, why: str, idle: bool = True) -> bool:
        if (place / IDLE.file(self.version)).exists():
            return self.writer.write(place, IDLE, int(idle), job_id, why)
        shares = (LEAST_SHARES if idle else USUAL_SHARES)[self.version]
        return self.writer.write(place, SHARES, shares, job_id, why)

    def _lift(self, held: Held, why: str) -> bool:
        if held.quota_us == UNLIMITED:
            return True
        done = self._restore(held.place, held.before or {}, held.group.job_id, why)
        # where the kernel refused, it stays noted, so that the next try and a successor find it
        if done or not held.place.exists():
            held.quota_us, held.before = UNLIMITED, None
            self._save()
        return done

    def _restore(self, place: Path, before: Mapping[str, object], job_id: str, why: str) -> bool:
        """Put back what the files said before: the quota first, then the burst that it allows."""
        done = self.writer.write_text(place / QUOTA.file(self.version), self._old_quota(before), job_id, why)
        burst = before.get("burst", "0")
        if done and isinstance(burst, str) and burst.isdecimal() and burst != "0":
            self.writer.write_text(place / BURST.file(self.version), burst, job_id, why)
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

    def _note_before(self, held: Held) -> bool:
        """Note what the files say before the first write, in v2 on disk too: then nothing of ours can be lost."""
        if held.before is not None:
            return True
        quota, burst = (text_of(held.place / knob.file(self.version)) for knob in (QUOTA, BURST))
        held.before = {"quota": quota or QUOTA.text(self.version, UNLIMITED), "burst": burst or "0"}
        if self._save():
            return True
        held.before = None
        return False

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
        limited = self.limits.entries()
        try:
            write_durably(
                self.state, json.dumps({"held": entries} | ({"memory": limited} if limited else {}))
            )
        except OSError as error:
            self.writer.refuse(self.state, "", error, "a quota is only set when it can be written down first")
            return False
        return True
