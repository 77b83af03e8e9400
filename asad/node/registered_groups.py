"""The cgroups of jobs that have registered: the container that a Mesos agent made, or a group of ours.

asad.node.registered says why there are groups of ours, and where.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from asad.node.cgroups import INSIDE, V1_CONTROLLERS, numbers, with_subfolders

CONTAINER = re.compile(r"(?:.*/)?mesos/[0-9a-f]{8}-[0-9a-f-]{27}(?=/|$)", re.ASCII)
"""The path of an executor's container, of its parts the first."""
LEAF = "leaf"
"""In v2 Mesos keeps the processes of a container in a group of this name below it."""
OWN = "asad-mesos_"


@dataclass(frozen=True, slots=True)
class Entry:
    """One job that has registered."""

    path: str
    inode: int
    uid: int
    keeper: int
    """Process of its executor."""
    controller: str
    """Hierarchy of v1 in which it is listed; "" in v2."""
    own: bool
    """We made its group."""
    tied: str = ""
    """Of a guest in its host's container (v1): its group in `freezer`."""


class RegisteredGroups:
    """Groups of a node. `root` is where cgroups are mounted, `version` 1 or 2."""

    def __init__(self, root: Path, version: int, node: str) -> None:
        self.root, self.version, self.node = root, version, node

    def container(self, groups: Mapping[str, str], uid: int, pid: int) -> Entry | None:
        """The container that the agent made for the process; None if it made none."""
        for controller in ("",) if self.version == 2 else V1_CONTROLLERS:
            found = CONTAINER.match(groups.get(controller, ""))
            if found is not None:
                path = found[0]
                if self.version == 2 and groups[controller] == f"{path}/{LEAF}":
                    path = groups[controller]  # guests will be beside it
                    self._delegate(path)
                inode = (self.root / controller / path).stat().st_ino
                return Entry(path, inode, uid, pid, controller, False)
        return None

    def make(self, job_id: str, uid: int, pid: int) -> Entry | None:
        """A group of ours for a process whose agent makes none; None if nothing can list it. Raises OSError."""
        path, hierarchies = f"{OWN}{self.node}/{job_id}", self._hierarchies()
        for controller in hierarchies:
            (self.root / controller / path).mkdir(parents=True, exist_ok=True)
        if not hierarchies:
            return None
        if self.version == 2:
            self._delegate(path)
        self.move(path, pid)
        inode = (self.root / hierarchies[0] / path).stat().st_ino
        return Entry(path, inode, uid, pid, hierarchies[0], True)

    def _hierarchies(self) -> list[str]:
        """Where we make groups: in v1 the hierarchies in which one of ours changes nothing but what is counted and
        listed."""
        if self.version == 2:
            return [""]
        names = ["freezer", "memory"]
        if not (self.root / "cpu" / "cpuacct.usage").exists():
            names.insert(1, "cpuacct")
        return [name for name in names if (self.root / name / "cgroup.procs").exists()]

    def move(self, path: str, pid: int) -> None:
        """Bring a process into a group of ours. Raises OSError."""
        for controller in self._hierarchies():
            (self.root / controller / path / "cgroup.procs").write_text(str(pid))

    def make_guest(self, job_id: str, owner: int, host: Entry, memory_bytes: int) -> Entry:
        """The group of a guest in its host's container. Raises OSError."""
        if host.own:  # the agent makes no containers
            path = f"{OWN}{self.node}/{job_id}"
            made = [(controller, path) for controller in self._hierarchies()]
        elif self.version == 2:
            container = host.path.removesuffix(f"/{LEAF}")
            if numbers(self.root / container / "cgroup.procs"):
                raise OSError(errno.EBUSY, "its host's container keeps processes beside groups", container)
            made = [("", f"{container}/{INSIDE}{job_id}")]
        else:
            path = f"{OWN}{self.node}/{job_id}"
            made = [(controller, path) for controller in self._hierarchies() if controller != "freezer"]
        tied = ""
        if self.version == 1 and not host.own and (self.root / "freezer" / host.path).is_dir():
            tied = f"{host.path}/{INSIDE}{job_id}"
            (self.root / "freezer" / tied).mkdir(exist_ok=True)
        if not made:
            raise OSError(errno.ENOENT, "no cgroup hierarchy can list it", str(self.root))
        for controller, path in made:
            (self.root / controller / path).mkdir(parents=True, exist_ok=True)
        listed, path = made[0]
        if self.version == 2:
            self._delegate(path)
        self._bound(path, memory_bytes)
        inode = (self.root / listed / path).stat().st_ino
        return Entry(path, inode, owner, host.keeper, listed, True, tied)

    def _bound(self, path: str, memory_bytes: int) -> None:
        """No more memory than this. Raises OSError where memory is counted and cannot be bounded."""
        file = self.root / path / "memory.max"
        if self.version == 1:
            file = self.root / "memory" / path / "memory.limit_in_bytes"
            if not file.parent.is_dir():
                return
        elif not file.exists():
            raise OSError(errno.ENOENT, "the memory controller is not there", str(file))
        file.write_text(str(memory_bytes))

    def move_guest(self, entry: Entry, pid: int) -> None:
        """Bring a process into the group of a guest. Raises OSError."""
        for controller in self._hierarchies():
            if controller != "freezer" or not entry.tied:
                folder = self.root / controller / entry.path
                if folder.is_dir():
                    (folder / "cgroup.procs").write_text(str(pid))
        if entry.tied:
            (self.root / "freezer" / entry.tied / "cgroup.procs").write_text(str(pid))

    def _delegate(self, path: str) -> None:
        """Have the controllers that we write in the groups below these (v2)."""
        parts = path.split("/")
        for depth in range(len(parts)):
            folder = self.root.joinpath(*parts[:depth])
            for controller in ("+cpu", "+memory", "+cpuset"):
                with contextlib.suppress(OSError):  # what is not there cannot be held
                    (folder / "cgroup.subtree_control").write_text(controller)

    def is_over(self, entry: Entry) -> bool:
        """Is there nothing left of it but an executor that keeps guests?"""
        if entry.own:
            return False
        folder = str(self.root / entry.controller / entry.path)
        return not any(
            pid != entry.keeper
            for group in with_subfolders(folder, INSIDE)
            for pid in numbers(f"{group}/cgroup.procs")
        )

    def alive(self, entry: Entry) -> bool:
        """Is the group there, not a namesake, and with a process in it?"""
        folder = self.root / entry.controller / entry.path
        try:
            if folder.stat().st_ino != entry.inode:
                return False
        except OSError:
            return False
        return any(numbers(f"{group}/cgroup.procs") for group in with_subfolders(str(folder)))

    def remove(self, entry: Entry) -> None:
        """Remove a group of ours, where nothing is in it any more."""
        for controller in self._hierarchies():
            with contextlib.suppress(OSError):
                (self.root / controller / entry.path).rmdir()
        if entry.tied:
            with contextlib.suppress(OSError):
                (self.root / "freezer" / entry.tied).rmdir()
