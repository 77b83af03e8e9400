"""Jobs that say themselves that they are here: Mesos has no stepd by whose cgroup a job could be found.

Its executor connects to a socket of the actor before it starts anything, and names the job. The kernel says who asks
(`SO_PEERCRED`). A name ends in its owner's number (`m7.1000`), so that nobody can register as another's job; and only
what a Mesos agent of root has started may register, so that no process leaves the cgroup of another scheduler this way.

The job's group is the container that the agent made for the executor, if it made one. Otherwise (agents without cgroup
isolation) a group of ours is made, and the executor moved into it before it has children, who then all are in it. In
v1 the executor itself stays out of quotas, as a slurmstepd does, and shows where the job's processes came from.

A guest may be a task within its host's own executor. The process that is to become the task registers then, and names
the host: it must be a child of the host's executor. It is moved to a group of its own, whose memory is bounded to what
the guest was given, so that it cannot take its host along, and which ends with the container: in v2 a group beside the
host's, below the container's; in v1 one elsewhere, but in `freezer`, by which Mesos ends containers, one below it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from asad.errors import ClusterError
from asad.node.cgroups import (
    JobGroup,
    memberships,
    place_of,
)
from asad.node.kernel_files import journal_of, write_durably
from asad.node.registered_groups import Entry, RegisteredGroups

log = logging.getLogger(__name__)

NAME = re.compile(r"[A-Za-z0-9_+\-][A-Za-z0-9_.+\-]{0,50}\.(\d{1,10})", re.ASCII)
AGENTS = ("mesos-agent", "mesos-slave", "lt-mesos-agent", "mesos-containeri")
"""What the processes are called that start executors (the kernel keeps 15 characters)."""
REQUEST_BYTES = 4096
REQUEST_S = 2.0
PER_USER = 32
"""So many processes of one user may ask at one time; root has no limit."""
PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED)
"""Errors of accepting a connection that pass."""
MOST_JOBS = 10_000
ANCESTORS = 32
PEER = struct.Struct("3i")
MOST_BYTES = 1 << 62


class Registered:
    """The registered jobs of one node; outlives the actor in `<state_dir>/registered.json`.

    `root` is where cgroups are mounted, `version` 1 or 2. `started_by_agent` says of a process whether a Mesos agent
    of root is among its ancestors.
    """

    def __init__(
        self,
        root: Path,
        version: int,
        node: str,
        state_dir: Path,
        proc: Path = Path("/proc"),
        started_by_agent: Callable[[int], bool] | None = None,
    ) -> None:
        self.groups, self.proc = RegisteredGroups(root, version, node), proc
        self._file = state_dir / "registered.json"
        self._started_by_agent = started_by_agent or self._has_agent
        self._lock = threading.Lock()
        self._entries = self._load()
        self._asking: Counter[int] = Counter()
        """How many processes of each user ask just now."""
        self._server: socket.socket | None = None
        self._path: Path | None = None
        self.heard: Callable[[], None] = lambda: None
        """Called when a job has registered, in the socket's thread."""

    # ------------------------------------------------------------------------------------------------------ socket

    def listen(self, path: Path) -> None:
        """Take registrations at this socket, in a thread. Raises ClusterError if it cannot be made."""
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            server.bind(str(path))
            path.chmod(0o666)  # whoever connects, the kernel says who it is
            server.listen(64)
        except OSError as error:
            server.close()
            raise ClusterError(
                f"{path}: {error.strerror}; [node] register must be a path that asad-node may make"
            ) from None
        self._server, self._path = server, path
        threading.Thread(target=self._serve, args=(server,), name="register", daemon=True).start()

    def close(self) -> None:
        """Take no more registrations. Those that are here stay."""
        if self._server is not None:
            with contextlib.suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)
            self._server.close()
            self._server = None
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError as error:
                if error.errno not in PASSING:
                    return
                time.sleep(0.1)
                continue
            # whoever is slow to ask keeps nobody else waiting
            threading.Thread(target=self._attend, args=(connection,), name="registers", daemon=True).start()

    def _attend(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            pid, uid, _ = PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
            with self._lock:
                self._asking[uid] += 1
                crowd = uid != 0 and self._asking[uid] > PER_USER
            try:
                answer = "too many ask at once" if crowd else self._answer(connection, pid, uid)
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                answer = f"it makes no sense ({error})"[:200]
            finally:
                with self._lock:
                    self._asking[uid] -= 1
            connection.sendall(json.dumps({"ok": not answer, "error": answer}).encode() + b"\n")

    def _answer(self, connection: socket.socket, pid: int, uid: int) -> str:
        text, deadline = b"", time.monotonic() + REQUEST_S
        while b"\n" not in text:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            piece = connection.recv(REQUEST_BYTES)
            text += piece
            if not piece or len(text) > REQUEST_BYTES:
                return "it is no line"
        plain = json.loads(text)
        return self.register(plain["job"], pid, uid, plain.get("inside", ""), plain.get("memory_bytes", 0))

    # ---------------------------------------------------------------------------------------------------- registering

    def register(self, job_id: Any, pid: int, uid: int, inside: Any = "", memory_bytes: Any = 0) -> str:
        """A process says that it is the executor of a job; why it is refused, or the empty string.

        With `inside` it is about to become a task of a guest in the executor of that job; `memory_bytes` is then what
        the guest may use on this node.
        """
        found = NAME.fullmatch(job_id) if isinstance(job_id, str) else None
        if found is None or not isinstance(inside, str):
            return "it names no job"
        owner = int(found[1])
        if uid not in (0, owner):
            return f"job {job_id} is not one of user {uid}"
        if not self._started_by_agent(pid):
            return "no Mesos agent has started it"
        try:
            groups = memberships((self.proc / str(pid) / "cgroup").read_text(errors="replace"))
        except (OSError, ValueError):
            return "it is gone"
        if any(place_of(path) is not None for path in groups.values()):
            return "it is in a job of Slurm's"
        with self._lock:
            known = self._entries.get(job_id)
            there = known is not None and self.groups.alive(known)
            if inside:
                why = self._beside(job_id, owner, pid, inside, memory_bytes)
                if why:
                    return why
            elif known is not None and there and known.keeper != pid and not self.groups.is_over(known):
                return self._join(job_id, known, pid)
            elif len(self._entries) >= MOST_JOBS:
                return "there are too many"
            else:
                try:
                    entry = self.groups.container(groups, owner, pid) or self.groups.make(job_id, owner, pid)
                except OSError as error:
                    return f"its group could not be made ({error.strerror})"
                if entry is None:
                    return "no cgroup hierarchy can list it"
                self._entries[job_id] = entry
            self._save()
            path = self._entries[job_id].path
        log.info("job %s has registered: %s", job_id, path)
        self.heard()
        return ""

    # ----------------------------------------------------------------------------------------- guests in executors

    def _beside(self, job_id: str, owner: int, pid: int, inside: str, memory_bytes: Any) -> str:
        """A process that becomes a task of a guest, in the executor of the job `inside`; why not, or ""."""
        host = self._entries.get(inside)
        if host is None or not self.groups.alive(host):
            return f"its host {inside[:60]} is not here"
        if host.keeper not in self._ancestors(pid):
            return "the executor of its host has not started it"
        number = isinstance(memory_bytes, int | float) and not isinstance(memory_bytes, bool)
        if not number or not 0 < memory_bytes < MOST_BYTES:
            return "it does not say how much memory it may use"
        known = self._entries.get(job_id)
        try:
            if known is not None and self.groups.alive(known):  # another task of the same guest
                if not known.own or known.keeper != host.keeper:
                    return f"job {job_id} is here already, in another container"
                self.groups.move_guest(known, pid)
                return ""
            if len(self._entries) >= MOST_JOBS:
                return "there are too many"
            if known is not None and known.own:  # of an earlier attempt, which nobody has looked for since
                self.groups.remove(known)
            entry = self.groups.make_guest(job_id, owner, host, int(memory_bytes))
            self.groups.move_guest(entry, pid)
        except OSError as error:
            return f"its group could not be made ({error.strerror}: {error.filename})"
        self._entries[job_id] = entry
        return ""

    def _join(self, job_id: str, entry: Entry, pid: int) -> str:
        """Another executor of the same job on this node (its agent gave it a container of its own)."""
        if not entry.own:
            return f"job {job_id} is here already, in another container"
        try:
            self.groups.move(entry.path, pid)
        except OSError as error:
            return f"it could not be moved ({error.strerror})"
        return ""

    def _has_agent(self, pid: int) -> bool:
        """Is a Mesos agent of root among its ancestors?"""
        for fields in self._lineage(pid):
            if fields.get("Name", "").startswith(AGENTS) and fields.get("Uid", "1").split()[0] == "0":
                return True
        return False

    def _ancestors(self, pid: int) -> list[int]:
        return [int(fields.get("PPid", "0")) for fields in self._lineage(pid)]

    def _lineage(self, pid: int) -> Iterator[dict[str, str]]:
        """What /proc says of a process and its ancestors, as long as there are any."""
        for _ in range(ANCESTORS):
            try:
                status = (self.proc / str(pid) / "status").read_text(errors="replace")
            except OSError:
                return
            fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            yield fields
            pid = int(fields.get("PPid", "0"))
            if pid <= 1:
                return

    # ---------------------------------------------------------------------------------------------------------- jobs

    def jobs(self) -> dict[str, JobGroup]:
        """The registered jobs that are here now, by job id; the groups of those that have ended are removed."""
        with self._lock:
            over = [job_id for job_id, entry in self._entries.items() if not self.groups.alive(entry)]
            for job_id in over:
                entry = self._entries.pop(job_id)
                if entry.own:
                    self.groups.remove(entry)
            if over:
                self._save()
            return {
                job_id: JobGroup(job_id, entry.uid, entry.path, entry.inode, entry.keeper, entry.controller)
                for job_id, entry in self._entries.items()
            }

    # ---------------------------------------------------------------------------------------------------------- file

    def _load(self) -> dict[str, Entry]:
        return journal_of(
            self._file,
            lambda plain: {str(job_id): Entry(**entry) for job_id, entry in plain["jobs"].items()},
            dict[str, Entry](),
            "; jobs of Mesos are known when they register",
        )

    def _save(self) -> None:
        plain = {job_id: asdict(entry) for job_id, entry in self._entries.items()}
        try:
            write_durably(self._file, json.dumps({"jobs": plain}))
        except OSError as error:
            log.warning("%s: %s; a restarted actor will not know these jobs", self._file, error.strerror)
