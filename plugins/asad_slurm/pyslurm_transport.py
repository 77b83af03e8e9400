"""Slurm over pyslurm, which runs in a child process that is killed when it hangs and recycled when it grows.

Reading the queue goes through the child. Changes and what is asked for seldom go over the command line: clearing a node
list and adding to a time limit are things that pyslurm's `modify` cannot say.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asad.cluster.slurm_json import loads
from asad.errors import ClusterError
from asad_slurm.command import CommandTransport, Look, Transport
from asad_slurm.records import NONSENSE, JobRecord, clean, read_job, read_nodes, short
from asad_slurm.settings import Settings
from asad_slurm.undo import environment

CHILD = Path(__file__).with_name("pyslurm_child.py")
MOST_BYTES = 1024 * 2**20
"""Resident memory beyond which the child is replaced."""
MOST_CALLS = 1000
MOST_ANSWER_BYTES = 2**30


class PyslurmTransport(CommandTransport):
    """Transport that reads jobs and nodes through pyslurm."""

    def __init__(
        self, timeout_s: float, *, most_bytes: int = MOST_BYTES, most_calls: int = MOST_CALLS
    ) -> None:
        super().__init__(timeout_s)
        self._most_bytes, self._most_calls = most_bytes, most_calls
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._calls = 0
        self._version = ""
        self.started = 0
        """How many children there have been."""
        self._known: dict[str, JobRecord] = {}

    def look(self) -> Look:
        """All jobs and nodes. Raises ClusterError on a cluster with gres too: pyslurm shows those of `--gres` alone."""
        answer = self._ask({"op": "look"})
        try:
            read = map(read_job, answer["jobs"])
            # a job that has not changed is the very same object as the last time
            jobs = [known if (known := self._known.get(job.text)) == job and known else job for job in read]
            nodes = read_nodes({"nodes": answer["nodes"]})
            gres = any(node["has_gres"] for node in answer["nodes"])
        except NONSENSE as error:
            raise _unreadable(error) from None
        if gres:
            raise ClusterError(
                "pyslurm: nodes here have gres, and it does not show which jobs hold or want some by --gpus, by task "
                'or by socket; set transport = "command"'
            )
        self._known = {job.text: job for job in jobs}
        return Look(jobs, nodes)

    def start(self) -> None:
        """Start a child and hear from it. Raises ClusterError when it cannot import pyslurm, exits or hangs."""
        self.close()
        self.started += 1
        self._calls, self._buffer = 0, b""
        self._process = subprocess.Popen(  # noqa: S603 (our own script)
            [sys.executable, str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=environment(),
        )
        try:
            self._version = str(self._hear().get("version", ""))
        except ClusterError:
            self.close()
            raise

    def sentence(self) -> str:
        return f"Slurm over pyslurm {clean(self._version)}, in a child process (number {self.started})"

    def close(self) -> None:
        """Kill the child."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._process is None or self._worn():
            self.start()
        assert self._process is not None and self._process.stdin is not None
        self._calls += 1
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self.close()
            raise ClusterError("pyslurm: its process has ended; the next cycle starts another") from None
        return self._hear()

    def _worn(self) -> bool:
        assert self._process is not None
        if self._calls >= self._most_calls or self._process.poll() is not None:
            return True
        try:
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            return False
        return pages * os.sysconf("SC_PAGE_SIZE") > self._most_bytes

    def _hear(self) -> dict[str, Any]:
        """One answer. Kills the child and raises ClusterError if none comes in time."""
        assert self._process is not None and self._process.stdout is not None
        handle = self._process.stdout.fileno()
        pieces = [self._buffer]
        deadline = time.monotonic() + self._timeout_s
        watched = select.poll()  # unlike select, for any number of a descriptor
        watched.register(handle, select.POLLIN)
        while b"\n" not in pieces[-1]:
            ready = watched.poll(1000.0 * max(0.0, deadline - time.monotonic()))
            piece = os.read(handle, 2**20) if ready else b""
            if not ready or not piece or sum(map(len, pieces)) > MOST_ANSWER_BYTES:
                why = "has ended" if ready and not piece else f"did not answer within {self._timeout_s:g} s"
                self.close()
                raise ClusterError(
                    f"pyslurm: its process {why}; is slurmctld well, and slurm.conf readable? "
                    'transport = "command" does without pyslurm'
                )
            pieces.append(piece)
        line, _, self._buffer = b"".join(pieces).partition(b"\n")
        try:
            answer: dict[str, Any] = loads(line)
        except ValueError as error:
            self.close()
            raise _unreadable(error) from None
        if not answer.get("ok"):
            raise ClusterError(f"pyslurm: {clean(str(answer.get('error', '')))[:300]}")
        return answer


def _unreadable(error: Exception) -> ClusterError:
    return ClusterError(f'pyslurm: its answer cannot be read ({short(error)}); set transport = "command"')


def choose_transport(settings: Settings) -> Transport:
    """The transport that the settings ask for; `auto` takes pyslurm where it is installed and answers.

    Raises ClusterError if pyslurm was asked for by name and does not work.
    """
    installed = settings.transport == "pyslurm" or importlib.util.find_spec("pyslurm") is not None
    if settings.transport == "command" or not installed:
        return CommandTransport(settings.timeout_s)
    pyslurm = PyslurmTransport(settings.timeout_s)
    try:
        pyslurm.start()
        if settings.transport == "auto":
            pyslurm.look()
    except ClusterError:
        pyslurm.close()
        if settings.transport == "pyslurm":
            raise
        return CommandTransport(settings.timeout_s)
    return pyslurm
