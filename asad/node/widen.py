"""Let a guest run on every core of its node, and bring it back to its own.

Slurm confines a job twice: by the cpuset of its cgroup, and by the affinity that it gave each task. Both are widened,
the cgroup first.

In v1 Slurm's own groups are left alone, since slurmstepd writes them again at every step and would be refused while a
wider group is below: the job's threads move into a group of ours below `asad_<node>`, and back to the group of their
step. In v2 a thread cannot be in one group for this and in another for that, so the `cpuset.cpus` of the job's group
and of all below are written, widest first, and put back the other way round.

A thread's affinity is changed where it is one that Slurm gave: all cores of the job, or what a task had when it was
first seen. One that its user has narrowed is put back as it was, since kernels before 6.2 forget it when the cpuset
changes. What a job had is in `widened.json` before anything is written, so that a successor of a killed actor puts it
back (`recover`). Steps that start later are bound anew by Slurm: `follow` looks again each second.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asad.model import Json
from asad.node.cgroups import Cgroups, JobGroup, core_ids, memberships, numbers, with_subfolders
from asad.node.kernel_files import GONE, AuditRow, journal_of, put, write_durably
from asad.node.quotas import SETTLING

log = logging.getLogger(__name__)

CPUS, MEMS = "cpuset.cpus", "cpuset.mems"
ROOMY = 4
"""A guest stays on the NUMA nodes of its allocation where they have so many times its cores."""
NODES = Path("/sys/devices/system/node")


@dataclass(slots=True)
class Widened:
    """One guest that may run on more cores than its own."""

    group: JobGroup
    own: tuple[int, ...]
    """Its cores, by Slurm."""
    wide: tuple[int, ...]
    given: set[tuple[int, ...]] = field(default_factory=set)
    """Affinities that Slurm gave its tasks."""
    masks: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """Thread → (when it was started, affinity before): only of those that were not on all of `own`."""
    seen: set[int] = field(default_factory=set)
    """Threads that have been widened, or are narrower by their user's will."""
    files: dict[str, str] = field(default_factory=dict)
    """v2: path of each `cpuset.cpus` that was written → its text before."""

    def to_json(self) -> dict[str, Json]:
        """As plain data, that `of` takes."""
        group = self.group
        masks: dict[str, Json] = {
            str(thread): [started, list(mask)] for thread, (started, mask) in self.masks.items()
        }
        return {
            "job_id": group.job_id,
            "uid": group.uid,
            "path": group.path,
            "inode": group.inode,
            "own": list(self.own),
            "wide": list(self.wide),
            "masks": masks,
            "files": dict(self.files),
        }

    @classmethod
    def of(cls, job: Any) -> Widened:
        """What `to_json` returned. Raises KeyError, ValueError, TypeError or AttributeError of anything else."""
        return cls(
            JobGroup(str(job["job_id"]), int(job["uid"]), str(job["path"]), int(job["inode"])),
            tuple(map(int, job["own"])),
            tuple(map(int, job["wide"])),
            masks={
                int(thread): (str(started), tuple(map(int, mask)))
                for thread, (started, mask) in job["masks"].items()
            },
            files={str(path): str(text) for path, text in job["files"].items()},
        )


class Threads:
    """What /proc says of the threads of jobs."""

    def __init__(self, cgroups: Cgroups) -> None:
        self.cgroups = cgroups

    def leaders(self, group: JobGroup, threads: Sequence[int]) -> set[int]:
        """Those of the threads that slurmstepd has started itself: what they have, Slurm gave them."""
        stepds = set(self.cgroups.stepds(group))
        return {thread for thread in threads if self._parent(thread) in stepds}

    def starting(self, group: JobGroup, threads: Sequence[int]) -> set[int]:
        """Those of the threads that are slurmstepd still, on their way to the task's program.

        Slurm binds them before it comes to that, which would undo a widening: they are taken along by the next look.
        """
        return {thread for thread in self.leaders(group, threads) if self._comm(thread) == "slurmstepd"}

    def _comm(self, pid: int) -> str:
        with contextlib.suppress(OSError):
            return (self.cgroups.proc / str(pid) / "comm").read_text(errors="replace").strip()
        return ""

    def _parent(self, pid: int) -> int:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(self._stat(pid)[1])
        return 0

    def started(self, pid: int) -> str:
        """When a thread was started, in the kernel's ticks: numbers of threads are used again."""
        with contextlib.suppress(OSError, IndexError):
            return self._stat(pid)[19]
        return ""

    def _stat(self, pid: int) -> list[str]:
        """The fields of /proc/PID/stat from the state on."""
        return (self.cgroups.proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()

    def origin(self, group: JobGroup, thread: int) -> Path:
        """v1: the group of a thread's step, as in the hierarchies that we leave alone; the job's, if that is gone."""
        found = memberships((self.cgroups.proc / str(thread) / "cgroup").read_text(errors="replace"))
        for name in ("freezer", "memory", "cpuacct", "devices"):
            path = found.get(name, "")
            while path.startswith(f"{group.path}/"):
                place = self.cgroups.root / "cpuset" / path
                if (place / "tasks").exists():
                    return place
                path = path.rpartition("/")[0]
        return self.cgroups.file(group, "cpuset", CPUS).parent


class Cpusets:
    """Which cores jobs have, and which they could have, as their cgroups say."""

    def __init__(self, cgroups: Cgroups) -> None:
        self.cgroups = cgroups

    def folder(self, group: JobGroup) -> Path:
        """Slurm's own group of the job that has its cores."""
        return self.cgroups.file(group, "cpuset", CPUS).parent

    def cores(self, folder: Path) -> tuple[int, ...]:
        """Cores on which a group may run; empty if that cannot be read."""
        names = ("cpuset.effective_cpus", CPUS) if self.cgroups.version == 1 else ("cpuset.cpus.effective",)
        for name in names:
            with contextlib.suppress(OSError, ValueError):
                if found := core_ids((folder / name).read_text()):
                    return found
        return ()

    def wide(self, group: JobGroup, own: Sequence[int]) -> tuple[int, ...]:
        """The cores that Slurm may use for jobs; where those of the job's NUMA nodes are many, these alone."""
        above = self.folder(group).parent
        if self.cgroups.version == 1:
            above = above.parent  # uid_*
        cores = set(self.cores(above))
        with contextlib.suppress(OSError, ValueError):  # specialised cores
            cores -= set(core_ids((above / "system" / CPUS).read_text()))
        for pid in self.cgroups.slurmds():
            with contextlib.suppress(OSError):
                # it may be bound to some cores of a larger machine, as its steps are, or to the specialised ones
                cores = cores & os.sched_getaffinity(pid) or cores
        near: set[int] = set()
        for path in sorted(NODES.glob("node[0-9]*/cpulist")):
            with contextlib.suppress(OSError, ValueError):
                here = set(core_ids(path.read_text()))
                near |= here if here & set(own) else set()
        near &= cores
        return tuple(sorted(near if len(near) >= ROOMY * len(own) else cores))


class Widening:
    """All guests of a node that run wide. `folder` is where `widened.json` is kept; `note` takes audit rows.

    Nothing here raises for a job that has just ended, or for a file that cannot be written.
    """

    def __init__(
        self, cgroups: Cgroups, folder: Path, wall: Callable[[], float], note: Callable[[AuditRow], object]
    ) -> None:
        self.cgroups, self.wall, self.note = cgroups, wall, note
        self.threads, self.cpusets = Threads(cgroups), Cpusets(cgroups)
        self.state = folder / "widened.json"
        self.held: dict[str, Widened] = {}
        self.place = cgroups.root / "cpuset" / f"asad_{cgroups.node}"
        """v1: above all groups of ours."""

    # ----------------------------------------------------------------------------------------------------- verbs

    def cores(self, job_id: str) -> tuple[int, ...]:
        """Where a job runs if it is wide; empty if it is not."""
        held = self.held.get(job_id)
        return () if held is None else held.wide

    def own(self, job_id: str) -> tuple[int, ...]:
        """The cores that Slurm gave a job that is wide; empty if it is not."""
        held = self.held.get(job_id)
        return () if held is None else held.own

    def widen(self, group: JobGroup, why: str) -> bool:
        """Let a job run on every core of the node that Slurm may use; does it now?"""
        held = self.held.get(group.job_id)
        if held is not None and held.group.inode == group.inode:
            return self._gather(held)
        if held is not None:
            self._forget(held)
        own = self.cpusets.cores(self.cpusets.folder(group))
        wide = self.cpusets.wide(group, own)
        if not own or set(wide) <= set(own):
            return False
        held = Widened(group, own, wide)
        self.held[group.job_id] = held
        # from here on a kill leaves it wide: a successor has to find it in the file
        if not self._save() or not self._open(held):
            self._put_back(held)
            del self.held[group.job_id]
            self._save()
            return False
        self._audit(held, _listed(own), _listed(wide), why)
        return self._gather(held)

    def narrow(self, job_id: str, why: str) -> bool:
        """Bring a job back to its own cores; is it there now?"""
        held = self.held.get(job_id)
        if held is None:
            return True
        done = self._put_back(held)
        if done or not self.cgroups.exists(held.group):
            self.held.pop(job_id, None)
            self._save()
            self._audit(held, _listed(held.wide), _listed(held.own), why)
        return done

    def follow(self, jobs: Mapping[str, JobGroup]) -> None:
        """Once a second: take along what has started since, and forget jobs that have ended."""
        for job_id, held in list(self.held.items()):
            group = jobs.get(job_id)
            if group is not None and group.inode == held.group.inode:
                self._gather(held)
            elif not self.cgroups.exists(held.group):
                self._forget(held)

    def narrow_all(self, why: str) -> None:
        """Bring every job back."""
        for job_id in list(self.held):
            self.narrow(job_id, why)

    def recover(self, jobs: Mapping[str, JobGroup], why: str) -> None:
        """At start: bring back what a killed predecessor has left wide."""
        for held in self._load():
            if self.cgroups.exists(held.group):
                self.held[held.group.job_id] = held
        self.narrow_all(why)
        if self.cgroups.version == 1 and self.place.exists():  # the journal may be lost
            for place in sorted(self.place.glob("job_*")):
                group = jobs.get(place.name.removeprefix("job_"))
                if group is not None:
                    own = self.cpusets.cores(self.cpusets.folder(group))
                    self._put_back(Widened(group, own, self.cpusets.wide(group, own)))
                self._remove(place)
        self._save()

    # ------------------------------------------------------------------------------------------------- in and out

    def _group(self, held: Widened) -> Path:
        """v1: our group for the job's threads."""
        return self.place / f"job_{held.group.job_id}"

    def _open(self, held: Widened) -> bool:
        """Make room: v1 a group that is as wide; v2 the groups of the job."""
        if self.cgroups.version == 2:
            return self._write_all(held)
        try:
            mems = (self.cpusets.folder(held.group) / MEMS).read_text().strip()
            root = self.cgroups.root / "cpuset"
            self.place.mkdir(exist_ok=True)
            for name in (CPUS, MEMS):
                put(self.place / name, (root / name).read_text().strip())
            place = self._group(held)
            place.mkdir(exist_ok=True)
            put(place / CPUS, _listed(held.wide))
            put(place / MEMS, mems)
        except OSError as error:
            log.warning("job %s cannot be widened: %s", held.group.job_id, error)
            return False
        return True

    def _write_all(self, held: Widened) -> bool:
        """v2: every group of the job as wide, from above; their former text is written down first."""
        folder, wide = self.cgroups.root / held.group.path, _listed(held.wide)
        found = {}
        for place in with_subfolders(str(folder)):
            with contextlib.suppress(OSError):
                text = Path(place, CPUS).read_text().strip()
                if text != wide and (text or place == str(folder)):  # empty: as wide as what is above
                    found[f"{place}/{CPUS}"] = text
        new = {path: text for path, text in found.items() if path not in held.files}
        if new:
            held.files |= new
            if not self._save():
                return False
        for path in found:
            try:
                put(Path(path), wide)
            except OSError as error:
                if error.errno not in GONE:
                    log.warning("%s: %s; job %s stays narrower", path, error.strerror, held.group.job_id)
                    return False
        return True

    def _gather(self, held: Widened) -> bool:
        """Widen the threads that are not yet; are all?"""
        if self.cgroups.version == 2 and not self._write_all(held):
            return False
        for _ in range(SETTLING):
            threads = set(self.cgroups.threads(held.group))
            fresh = threads - held.seen
            fresh -= self.threads.starting(held.group, sorted(fresh))
            held.seen &= threads
            held.masks = {thread: was for thread, was in held.masks.items() if thread in threads}
            if not fresh:
                return True
            self._widen(held, sorted(fresh))
        return False

    def _widen(self, held: Widened, threads: list[int]) -> None:
        leaders = self.threads.leaders(held.group, threads)
        narrow: dict[int, tuple[int, ...]] = {}
        known = len(held.masks)
        for thread in threads:
            with contextlib.suppress(OSError):
                mask = tuple(sorted(os.sched_getaffinity(thread)))
                if mask == held.wide:  # of a parent that was wide already
                    held.seen.add(thread)
                    continue
                if thread in leaders:
                    held.given.add(mask)
                if mask != held.own:
                    held.masks[thread] = (self.threads.started(thread), mask)
                if mask != held.own and mask not in held.given:
                    narrow[thread] = mask
        # on the disk first: a killed actor's successor could not know a mask of the user's from ours
        if len(held.masks) > known and not self._save():
            return
        for thread in sorted(set(threads) - held.seen):
            try:
                if self.cgroups.version == 1:
                    put(self._group(held) / "tasks", str(thread))
                os.sched_setaffinity(thread, narrow.get(thread, held.wide))
            except OSError as error:
                if error.errno not in GONE:
                    log.warning("thread %d of job %s stays where it is: %s", thread, held.group.job_id, error)
            held.seen.add(thread)

    def _put_back(self, held: Widened) -> bool:
        if self.cgroups.version == 2:
            for path, before in reversed(list(held.files.items())):
                with contextlib.suppress(OSError):
                    # an empty text would write nothing, and leave the group wide
                    put(Path(path), before or "\n")
        for _ in range(SETTLING):
            inside = self._inside(held)
            if not inside:
                break
            for thread in inside:
                self._restore(held, thread)
            # they stay in the job's own group, which never becomes empty
            if self.cgroups.version == 2:
                break
        if self.cgroups.version == 1:
            return self._remove(self._group(held))
        return self.cpusets.cores(self.cpusets.folder(held.group)) == held.own

    def _inside(self, held: Widened) -> list[int]:
        """The threads that are to be brought back."""
        if self.cgroups.version == 2:
            return self.cgroups.threads(held.group)
        return [
            thread
            for place in with_subfolders(str(self._group(held)))
            for thread in numbers(f"{place}/tasks")
        ]

    def _restore(self, held: Widened, thread: int) -> None:
        """Its own group and affinity for a thread; what was started meanwhile gets all cores of the job."""
        started, mask = held.masks.get(thread, ("", held.own))
        # the number is another thread's by now, and the mask was not its own
        if started and started != self.threads.started(thread):
            mask = held.own
        try:
            if self.cgroups.version == 1:
                put(self.threads.origin(held.group, thread) / "tasks", str(thread))
            if set(os.sched_getaffinity(thread)) >= set(held.own) or thread in held.masks:
                os.sched_setaffinity(thread, mask or held.own)
        except OSError as error:
            if error.errno not in GONE:
                log.warning("thread %d of job %s stays wide: %s", thread, held.group.job_id, error)

    def _remove(self, place: Path) -> bool:
        with contextlib.suppress(OSError):
            place.rmdir()
        if self.place.exists() and not any(self.place.glob("job_*")):
            with contextlib.suppress(OSError):
                self.place.rmdir()
        return not place.exists()

    def _forget(self, held: Widened) -> None:
        """The job has ended here."""
        self.held.pop(held.group.job_id, None)
        if self.cgroups.version == 1:
            self._remove(self._group(held))
        self._save()

    def _audit(self, held: Widened, old: str, new: str, why: str) -> None:
        place = self._group(held) if self.cgroups.version == 1 else self.cpusets.folder(held.group)
        self.note(AuditRow(self.wall(), str(place / CPUS), held.group.job_id, old, new, why))

    # ------------------------------------------------------------------------------------------------- widened.json

    def _save(self) -> bool:
        """Write down what is wide and what it was before; is that on the disk?"""
        if not self.held and not self.state.exists():
            return True
        jobs: list[Json] = [held.to_json() for held in self.held.values()]
        try:
            write_durably(self.state, json.dumps({"jobs": jobs}))
        except OSError as error:
            log.warning("%s: %s; a job is only widened when that can be written down", self.state, error)
            return False
        return True

    def _load(self) -> Iterator[Widened]:
        """What a predecessor has written down. An entry that is broken, or names files elsewhere, is passed over: the
        others are still to be narrowed."""
        for entry in journal_of(self.state, lambda plain: list(plain["jobs"]), list[Any](), ""):
            try:
                held = Widened.of(entry)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                log.warning("%s: an entry is broken (%r) and passed over", self.state, error)
                continue
            if all(Path(path).is_relative_to(self.cgroups.root) for path in held.files):
                yield held


def _listed(cores: Sequence[int]) -> str:
    """Cores as the kernel takes them."""
    return ",".join(map(str, cores))
