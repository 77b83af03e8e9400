"""Find the cgroups of Slurm's jobs on this node, and the job of a process.

Slurm has put jobs in other places in every version: below one folder a controller (v1), in the scope of the slurmstepd
(v2), below a slice of the site's choice (25.11), named by number or by SLUID (26.05), and once more a slurmd where a
machine runs several. So nothing here knows a path. A `slurmstepd` of root runs every step, and /proc/<pid>/cgroup of
one says where the jobs of its slurmd are; below that folder they are then listed, which costs little each second.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from asad.errors import ClusterError

V1_CONTROLLERS = ("freezer", "cpuacct", "memory", "cpuset", "devices")
"""Hierarchies of v1 in which Slurm may keep a job; the first of them that a slurmstepd is in shows where."""
TITLE = re.compile(rb"slurmstepd: \[(\d+)\.")
"""What a slurmstepd calls itself: job and step."""
INSIDE = "asad_"
"""So begin the names of groups that are made for guests below the group of a host (`registered`)."""
FULL_SEARCH_S = 60.0
"""How often every process is looked at for a slurmstepd; in between, only new ones, while no place is known."""
ENVIRONMENT_BYTES = 1 << 20
"""More than this of a process's environment is not read."""


@dataclass(frozen=True, slots=True)
class JobGroup:
    """The cgroup of one job on this node."""

    job_id: str
    """Slurm's number of the job, as text."""
    uid: int
    """Whose job it is; -1 while no process shows it."""
    path: str
    """Below the hierarchy's root (v1: the same in every hierarchy that Slurm uses)."""
    inode: int
    """Distinguishes a job that was requeued, and runs here again, from its first run."""
    keeper: int = 0
    """Of a job that registered itself (`registered`): the process of its executor."""
    listed_in: str = ""
    """Of such a job: the hierarchy of v1 in which its processes are listed."""


def memberships(text: str) -> dict[str, str]:
    """Controller → path without the leading slash, from the text of /proc/<pid>/cgroup; v2's key is "" """
    found = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path.lstrip("/")
    return found


def place_of(path: str) -> tuple[str, str] | None:
    """(folder of all jobs of the slurmd, folder of the job) for the path of a step or of a v1 job; None for others.

    The job is "" for the slurmstepd that only keeps the scope (v2).
    """
    parts = path.split("/")
    for index, part in enumerate(parts):
        if part.startswith("uid_") and 1 <= index < len(parts) - 1:
            return "/".join(parts[:index]), "/".join(parts[: index + 2])
        if part.startswith("step_") and index >= 2:
            return "/".join(parts[: index - 1]), "/".join(parts[:index])
        if part == "system" and index >= 1 and parts[index - 1].endswith("slurmstepd.scope"):
            return "/".join(parts[:index]), ""
    return None


def node_of(folder: str) -> str:
    """The node whose jobs are in a folder, "" where Slurm does not name it (one slurmd a machine)."""
    name = folder.rpartition("/")[2]
    for pattern in (r"slurm_(.+)", r"(.+)_slurmstepd\.scope"):
        if named := re.fullmatch(pattern, name):
            return named[1]
    return ""


def core_ids(text: str) -> tuple[int, ...]:
    """The numbers in a list of cores as the kernel writes it (`0-3,8`)."""
    found: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            found.extend(range(int(first), int(last or first) + 1))
    return tuple(found)


CHUNK_BYTES = 1 << 16


class Cgroups:
    """Jobs of one node in the hierarchies below `root`.

    `version` is 1 or 2. Raises ClusterError where neither is mounted.
    """

    def __init__(self, root: Path, node: str, proc: Path = Path("/proc")) -> None:
        self.root, self.node, self.proc = root, node, proc
        self._root = str(root)
        self.version: Literal[1, 2]
        if (root / "cgroup.controllers").exists():
            self.version = 2
        elif (root / "cpu").is_dir():
            self.version = 1
        else:
            raise ClusterError(
                f"{root}: no cgroups are mounted there; mount them, or give the place with --cgroup-root"
            )
        self.folders: dict[str, str] = {}
        """Folders of jobs → the controller in which they are listed (v2: "")."""
        self.registered: Callable[[], Mapping[str, JobGroup]] | None = None
        """Jobs that are not Slurm's."""
        self._known: dict[tuple[str, int], JobGroup] = {}
        self._looked_at: set[str] = set()
        self._new: set[str] = set()
        self._searched_s = float("-inf")

    @property
    def can_hold(self) -> bool:
        """Can guests be held here? Not where v1 mounts `cpu` together with `cpuacct`: there the job's processes
        would have to leave the group from which Slurm reads their CPU time."""
        return self.version == 2 or not (self.root / "cpu" / "cpuacct.usage").exists()

    def file(self, group: JobGroup, controller: str, name: str) -> Path:
        """A file of the job; `controller` says in which hierarchy of v1."""
        if self.version == 2:
            return self.root / group.path / name
        return self.root / controller / group.path / name

    # ------------------------------------------------------------------------------------------- from processes

    def job_of(self, pid: int) -> str:
        """The job that a process belongs to, "" if to none of this node."""
        place = self._place(pid)
        if place is None:
            return ""
        for group in self.jobs(float("-inf")).values():
            if group.path == place[1]:
                return group.job_id
        return ""

    def _place(self, pid: int | str) -> tuple[str, str, str] | None:
        """(folder of jobs, folder of the job, controller) of a process; None outside Slurm or on other nodes."""
        try:
            groups = memberships((self.proc / str(pid) / "cgroup").read_text(errors="replace"))
        except (OSError, ValueError):
            return None
        for controller in ("",) if self.version == 2 else V1_CONTROLLERS:
            place = place_of(groups.get(controller, ""))
            if place is not None and node_of(place[0]) in ("", self.node):
                return (*place, controller)
        return None

    def _search(self, now_s: float) -> None:
        """Learn from slurmstepds where the jobs of this node are."""
        with contextlib.suppress(OSError):
            with os.scandir(self.proc) as entries:
                running = {entry.name for entry in entries if entry.name.isdecimal()}
            if now_s - self._searched_s >= FULL_SEARCH_S:
                self._searched_s, self._looked_at = now_s, set()
            fresh = running - self._looked_at
            # a process may be seen between fork and exec, so each is looked at twice
            self._looked_at, self._new = (running - fresh) | (fresh & self._new), fresh - self._new
            for pid in fresh:
                if self._is_stepd(pid) and (place := self._place(pid)) is not None:
                    self.folders.setdefault(place[0], place[2])

    def _is_stepd(self, pid: str) -> bool:
        """Is it a slurmstepd of root? Anybody may call a process so."""
        try:
            if (self.proc / pid / "comm").read_bytes().strip() != b"slurmstepd":
                return False
            return self.uid_of(pid) == 0
        except OSError:
            return False

    def slurmds(self) -> list[int]:
        """The slurmd of this node; none that was started under another node's name, as where a machine runs several."""
        found: list[int] = []
        with os.scandir(self.proc) as entries:
            running = [entry.name for entry in entries if entry.name.isdecimal()]
        for pid in running:
            with contextlib.suppress(OSError):
                if (self.proc / pid / "comm").read_bytes().strip() != b"slurmd" or self.uid_of(pid) != 0:
                    continue
                words = (self.proc / pid / "cmdline").read_text(errors="replace").split("\0")
                named = [after for word, after in pairwise(words) if word == "-N"]
                named += [word[2:] for word in words if word.startswith("-N") and len(word) > 2]
                if not named or self.node in named:
                    found.append(int(pid))
        return found

    def uid_of(self, pid: int | str) -> int:
        """The real uid of a process. Raises OSError when it is gone."""
        for line in (self.proc / str(pid) / "status").read_text(errors="replace").splitlines():
            if line.startswith("Uid:"):
                return int(line.split()[1])
        raise ProcessLookupError(f"process {pid} has no uid")

    # ----------------------------------------------------------------------------------------------- from folders

    def jobs(self, now_s: float) -> Mapping[str, JobGroup]:
        """The jobs that are on this node now, by job id. `now_s` is any clock that does not go back."""
        if not self.folders or now_s - self._searched_s >= FULL_SEARCH_S:
            self._search(now_s)
        known: dict[tuple[str, int], JobGroup] = {}
        found: dict[str, JobGroup] = {}
        for folder, controller in list(self.folders.items()):
            try:
                entries = self._list(folder, controller)
            except OSError:  # slurmd was set up anew
                del self.folders[folder]
                continue
            for path, inode in entries:
                group = self._known.get((path, inode))
                if group is None or group.uid < 0:
                    group = self._resolve(path, inode)
                if group is not None:
                    known[path, inode] = group
                    if group.job_id not in found or path.endswith(f"/job_{group.job_id}"):
                        found[group.job_id] = group
        self._known = known
        if self.registered is not None:
            found |= self.registered()
        return found

    def _list(self, folder: str, controller: str) -> list[tuple[str, int]]:
        """(path, inode) of the folders of jobs in a folder. Raises OSError when it is gone."""
        if self.version == 2:
            with os.scandir(self.root / folder) as entries:
                return [
                    (f"{folder}/{entry.name}", entry.inode())
                    for entry in entries
                    if entry.name != "system" and entry.is_dir(follow_symlinks=False)
                ]
        found: list[tuple[str, int]] = []
        with os.scandir(self.root / controller / folder) as entries:
            users = [entry.name for entry in entries if entry.name.startswith("uid_")]
        for user in users:
            with (
                contextlib.suppress(FileNotFoundError),
                os.scandir(self.root / controller / folder / user) as entries,
            ):
                found += [
                    (f"{folder}/{user}/{entry.name}", entry.inode())
                    for entry in entries
                    if entry.name.startswith("job_")
                ]  # the user's last job may have ended just now
        return found

    def _resolve(self, path: str, inode: int) -> JobGroup | None:
        """The job in a folder; None while that is not known (a SLUID, before its first process)."""
        if not self._steps(JobGroup("", -1, path, inode)):
            return None
        numbered = re.search(r"/job_(\d+)$", path)
        owner = re.search(r"/uid_(\d+)/", path)
        job_id = numbered[1] if numbered else ""
        uid = int(owner[1]) if owner else -1
        group = JobGroup(job_id, uid, path, inode)
        job_id = job_id or self._named_by_stepd(group)
        if not job_id or uid < 0:
            for pid in self.pids(group):
                with contextlib.suppress(OSError):
                    stated = self.environment(pid).get("SLURM_JOB_ID", "")
                    # root's sleep of the extern step, and a child of slurmstepd before it is its user's, have none
                    if stated.isdecimal() and job_id in ("", stated) and not self._is_stepd(str(pid)):
                        job_id, uid = stated, self.uid_of(pid)
                        break
        return JobGroup(job_id, uid, path, inode) if job_id else None

    def _named_by_stepd(self, group: JobGroup) -> str:
        for pid in self.stepds(group):
            with contextlib.suppress(OSError):
                if title := TITLE.match((self.proc / str(pid) / "cmdline").read_bytes()):
                    return title[1].decode()
        return ""

    def _base(self, group: JobGroup) -> str:
        """The folder in which the job's processes are listed by step. (Text, as all that is read each second: making
        paths costs more than reading.)"""
        if self.version == 2:
            return f"{self._root}/{group.path}"
        return f"{self._root}/{self._listed_in(group)}/{group.path}"

    def exists(self, group: JobGroup) -> bool:
        """Is it still there, and not a namesake?"""
        try:
            return Path(self._base(group)).stat().st_ino == group.inode
        except OSError:
            return False

    def _listed_in(self, group: JobGroup) -> str:
        if group.keeper:
            return group.listed_in
        return self.folders.get(group.path.rpartition("/uid_")[0], V1_CONTROLLERS[0])

    def _steps(self, group: JobGroup) -> list[str]:
        try:
            with os.scandir(self._base(group)) as entries:
                return [entry.path for entry in entries if entry.name.startswith("step_")]
        except OSError:
            return []

    def stepds(self, group: JobGroup) -> list[int]:
        """The slurmstepds of the job. In v1 they stay out of its quotas, and show where its processes came from."""
        if group.keeper:
            return [group.keeper]
        if self.version == 2:
            return [pid for step in self._steps(group) for pid in numbers(f"{step}/slurm/cgroup.procs")]
        if self._listed_in(group) == "freezer":
            return numbers(f"{self._base(group)}/cgroup.procs")
        return [pid for pid in self._members(group, "cgroup.procs") if self._is_stepd(str(pid))]

    def pids(self, group: JobGroup) -> list[int]:
        """The job's own processes (of all its steps, without slurmstepd)."""
        found = self._members(group, "cgroup.procs")
        if group.keeper:
            return [pid for pid in found if pid != group.keeper]
        if self.version == 1 and self._listed_in(group) != "freezer":  # slurmstepd is in the step there
            return [pid for pid in found if not self._is_stepd(str(pid))]
        return found

    def threads(self, group: JobGroup) -> list[int]:
        """The threads of the job's own processes, oldest first as far as their numbers show."""
        return self.threads_and_steps(group)[0]

    def threads_and_steps(self, group: JobGroup) -> tuple[list[int], list[int]]:
        """The same, and the numbers of the steps that are here now (batch and extern step have none)."""
        steps = self._steps(group)
        found = self._members(group, "tasks" if self.version == 1 else "cgroup.threads", steps)
        names = (step.rpartition("/step_")[2] for step in steps)
        return sorted(found), [int(name) for name in names if name.isascii() and name.isdecimal()]

    def _members(self, group: JobGroup, file: str, steps: list[str] | None = None) -> list[int]:
        found: list[int] = []
        if group.keeper:
            return [
                pid
                for folder in with_subfolders(self._base(group), INSIDE)
                for pid in numbers(f"{folder}/{file}")
            ]
        for step in self._steps(group) if steps is None else steps:
            for folder in with_subfolders(step if self.version == 1 else f"{step}/user"):
                found += numbers(f"{folder}/{file}")
        return found

    def environment(self, pid: int) -> dict[str, str]:
        """What a process was started with. Its user may have put anything there. Raises OSError when it is gone."""
        with (self.proc / str(pid) / "environ").open("rb") as file:
            text = file.read(ENVIRONMENT_BYTES).decode(errors="replace")
        return {
            key: value for key, found, value in (item.partition("=") for item in text.split("\0")) if found
        }

    def partition(self, group: JobGroup) -> str:
        """The partition in which the job was started, by its first processes; "" if they do not say (yet)."""
        if group.keeper:
            return ""
        for pid in self.pids(group)[:8]:
            with contextlib.suppress(OSError):
                environment = self.environment(pid)
                if environment.get("SLURM_JOB_ID") == group.job_id and "SLURM_JOB_PARTITION" in environment:
                    return environment["SLURM_JOB_PARTITION"]
        return ""


def with_subfolders(folder: str, without: str = "/") -> Iterator[str]:
    """A group and all groups below it, but for those whose names begin with `without`."""
    yield folder
    try:
        # two links: no group below; the kernel counts them, which is quicker than to list files
        if os.stat(folder).st_nlink == 2:  # noqa: PTH116
            return
        with os.scandir(folder) as entries:
            below = [
                entry.path
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(without)
            ]
    except OSError:
        return
    for path in below:
        yield from with_subfolders(path, without)


def numbers(path: str | Path) -> list[int]:
    """The numbers in a file, one a line; none if it is gone."""
    try:
        return [int(line) for line in read(path).split()]
    except OSError:
        return []


def read(path: str | Path) -> bytes:
    """A small file of the kernel, in half the time that a file object takes. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while chunk := os.read(descriptor, CHUNK_BYTES):
            text += chunk
        return text
    finally:
        os.close(descriptor)
