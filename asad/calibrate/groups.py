"""The cgroups of a calibration: made under the `cpu` controller, and removed however it ends.

Which files there are is the node actor's table (`asad.node.kernel_files`); its writer is another one on purpose, as it
writes to the groups of Slurm's jobs, reads back, and takes nothing for broken that has just ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from asad.errors import ClusterError
from asad.node.kernel_files import (
    IDLE,
    LEAST_SHARES,
    LEAST_US,
    PERIOD_US,
    QUOTA,
    SHARES,
    UNLIMITED,
    USUAL_SHARES,
    Knob,
)

GROUP_NAME = re.compile(r"asad-calibrate-(\d+)-(\d+)")
"""Process id and start time (ticks after boot) of the calibrator that made the group."""


@dataclass(frozen=True, slots=True)
class CpuGroup:
    """One cgroup under the `cpu` controller. Its methods raise OSError when the kernel refuses."""

    path: Path
    version: int

    def add(self, process: int) -> None:
        (self.path / "cgroup.procs").write_text(str(process))

    def cap(self, cores: float | None) -> None:
        """Hold the group to `cores` cores' worth of CPU time (above 0), or lift its quota."""
        quota = UNLIMITED if cores is None else max(LEAST_US, round(cores * PERIOD_US))
        if self.version == 1:
            (self.path / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        self.write(QUOTA, quota)

    def write(self, knob: Knob, value: int) -> None:
        """Write one of the kernel's files."""
        (self.path / knob.file(self.version)).write_text(knob.text(self.version, value))

    @property
    def has_idle(self) -> bool:
        """Whether the kernel has the idle class for groups (Linux 5.15); else the lowest weight stands in."""
        return (self.path / "cpu.idle").exists()

    def set_idle(self, idle: bool) -> None:
        """Put the group into the idle class, or take it out again."""
        if self.has_idle:
            self.write(IDLE, int(idle))
        else:
            self.write(SHARES, (LEAST_SHARES if idle else USUAL_SHARES)[self.version])

    def child(self, name: str) -> CpuGroup:
        """A new group within this one."""
        if self.version == 2:
            (self.path / "cgroup.subtree_control").write_text("+cpu")
        path = self.path / name
        path.mkdir()
        return CpuGroup(path, self.version)

    def remove(self) -> None:
        """Remove the group and those within it, ending what is left in them; if it is gone already, fine.

        Raises ClusterError when it will not go.
        """
        for inner in self.path.glob("*/"):
            CpuGroup(inner, self.version).remove()
        for _ in range(100):
            try:
                self.path.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:  # still populated, if only by a process that is about to be gone
                with contextlib.suppress(OSError):
                    for process in map(int, (self.path / "cgroup.procs").read_text().split()):
                        if process > 0:  # 0 stands for a process of another PID namespace
                            with contextlib.suppress(ProcessLookupError):
                                os.kill(process, signal.SIGKILL)
                time.sleep(0.02)
        raise ClusterError(f"{self.path}: cannot be removed; end what runs in it and remove it with rmdir")


@dataclass(frozen=True, slots=True)
class CpuController:
    """Where groups with CPU quotas can be made."""

    version: int
    parent: Path

    def enable(self) -> Callable[[], None]:
        """Let groups made here have the `cpu` controller; returns what leaves the node as it was."""
        switch = self.parent / "cgroup.subtree_control"
        if self.version == 1 or "cpu" in switch.read_text().split():
            return lambda: None

        def undo() -> None:
            with contextlib.suppress(OSError):  # somebody else may have come to rely on it
                switch.write_text("-cpu")

        switch.write_text("+cpu")
        return undo

    def create(self) -> CpuGroup:
        """A new group that bears the id of this process."""
        process = os.getpid()
        path = self.parent / f"asad-calibrate-{process}-{start_ticks(process)}"
        path.mkdir()
        return CpuGroup(path, self.version)

    def remove_leftovers(self) -> list[str]:
        """Remove the groups of calibrators that did not live to do it themselves; returns their names."""
        removed = []
        for path in sorted(self.parent.glob("asad-calibrate-*")):
            named = GROUP_NAME.fullmatch(path.name)
            if named and start_ticks(int(named[1])) != int(named[2]):
                CpuGroup(path, self.version).remove()
                removed.append(path.name)
        return removed


def start_ticks(process: int) -> int:
    """When a process started (ticks after boot), which no later namesake has; -1 if it is gone."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return -1
    columns = stat.rpartition(")")[2].split()  # the name, in parentheses, may hold anything
    return -1 if columns[0] in "ZX" else int(columns[19])


def candidate_parents(mounts: str, membership: str) -> list[CpuController]:
    """Where groups could be made, best first: our own group, then the root, of v1's `cpu` and of v2.

    `mounts` and `membership` are the texts of /proc/self/mounts and /proc/self/cgroup.
    """
    own = {}
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller] = path
    found: list[CpuController] = []
    for line in mounts.splitlines():
        _, point, kind, options = line.split()[:4]
        root = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point))
        if kind == "cgroup" and "cpu" in options.split(","):
            version, path = 1, own.get("cpu", "/")
        elif kind == "cgroup2":
            version, path = 2, own.get("", "/")
        else:
            continue
        parents = dict.fromkeys((root / path.lstrip("/"), root))
        found.extend(CpuController(version, parent) for parent in parents)
    return found


def find_controller(candidates: Iterable[CpuController] | None = None) -> CpuController | None:
    """The first place in which a group can be made and really takes a quota; None if there is none."""
    if candidates is None:
        candidates = candidate_parents(
            Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace"),
            Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace"),
        )
    for controller in candidates:
        with contextlib.ExitStack() as cleanup, contextlib.suppress(OSError):
            cleanup.callback(controller.enable())
            group = controller.create()
            cleanup.callback(group.remove)
            probe = group.child("probe")
            probe.cap(0.5)
            probe.set_idle(True)
            return controller
    return None
