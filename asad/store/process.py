"""Which process writes a run, and whether it still lives."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """A process, distinguished from any other that will ever have its number."""

    host: str
    boot_id: str
    """The kernel's own name of this boot."""
    pid_namespace: str
    """In which numbering of processes `pid` holds: containers have their own."""
    pid: int
    pid_started: int
    """Clock ticks from boot to the start of the process: numbers come back, starts do not."""

    def is_gone(self) -> bool:
        """Whether the process certainly lives no more. Of another machine or container nothing is certain."""
        here = this_process()
        if self.boot_id != here.boot_id:
            return self.host == here.host
        if self.pid_namespace != here.pid_namespace or self.pid_started == 0:
            return False
        started = started_ticks(self.pid)
        return started != self.pid_started and not (started is None and _is_hidden(self.pid))


def this_process() -> ProcessMark:
    """The mark of the process that asks."""
    pid = os.getpid()
    try:
        boot_id = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot_id = ""
    try:
        namespace = str((PROC / "self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return ProcessMark(socket.gethostname(), boot_id, namespace, pid, started_ticks(pid) or 0)


def started_ticks(pid: int) -> int | None:
    """When process `pid` started (clock ticks since boot), None if it lives no more."""
    try:
        stat = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    after_name = stat.rpartition(")")[2].split()  # the name may hold blanks and brackets
    state, started = after_name[0], after_name[19]
    return None if state in "ZX" else int(started)


def _is_hidden(pid: int) -> bool:
    """Whether another user's process has that number, which /proc mounted with hidepid does not show."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False
