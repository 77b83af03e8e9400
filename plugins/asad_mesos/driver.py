"""The parent's end of the child process that runs pymesos."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import itertools
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from asad.errors import ConfigError, how_to_install

CHILD = Path(__file__).with_name("driver_child.py")
NEEDED = ("pymesos", "addict", "kazoo", "six", "httptools")
INSTALL = f"pip install --no-deps pymesos==0.3.15 && {how_to_install('mesos')}"
READ_BYTES = 1 << 20
MOST_LINES = 512
"""Calls in one write: thousands of acknowledgements are small."""
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV", "TZ")


def missing() -> list[str]:
    """Packages that the child needs and that are not installed."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def check_installed() -> None:
    """Raises ConfigError that says how to install what is missing."""
    absent = missing()
    if absent:
        raise ConfigError(
            f'[daemon] cluster = "mesos" needs {", ".join(absent)}, which {"is" if len(absent) == 1 else "are"} not '
            f"installed; run: {INSTALL} (pymesos' own dependency http-parser does not build on this Python, and is "
            "not needed)"
        )


class Driver:
    """A child that is subscribed with a master, or tries to be. Nothing here waits, but for `close`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings` go to the child (`driver_child.make_driver`)."""
        self._process = subprocess.Popen(  # noqa: S603 (our own script)
            [sys.executable, "-P", str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={name: os.environ[name] for name in KEPT if name in os.environ},
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self.stdin, self.stdout = self._process.stdin.fileno(), self._process.stdout.fileno()
        for descriptor in (self.stdin, self.stdout):
            flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_NONBLOCK)
            with contextlib.suppress(OSError):  # a full event of ten thousand offers is megabytes long
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, READ_BYTES)
        self._out: deque[memoryview] = deque()
        self._pieces: list[bytes] = []
        self.sent = self.through = 0
        """Calls handed over, and those that have come to an end."""
        self._put(dict(settings))

    @property
    def pid(self) -> int:
        """The child's process."""
        return self._process.pid

    @property
    def waits_to_write(self) -> bool:
        """Is there something that the pipe has not taken?"""
        return bool(self._out)

    def call(self, body: Mapping[str, Any]) -> None:
        """Hand a call over."""
        self.sent += 1
        self._put({"call": body})

    def beat(self) -> None:
        """Let the child know that somebody is there."""
        if not self._out:
            self._put({"beat": True})

    def _put(self, body: Mapping[str, Any]) -> None:
        self._out.append(memoryview(orjson.dumps(body) + b"\n"))

    def write(self) -> bool:
        """Write what the pipe takes; False if nobody reads it any more."""
        try:
            while self._out:
                taken = os.writev(self.stdin, list(itertools.islice(self._out, MOST_LINES)))
                while self._out and taken >= len(self._out[0]):
                    taken -= len(self._out.popleft())
                if taken:
                    self._out[0] = self._out[0][taken:]
                    return True
        except BlockingIOError:
            return True
        except OSError:
            self._out.clear()
            return False
        return True

    def read(self) -> list[dict[str, Any]] | None:
        """The lines that have come; None when the child has ended. Raises ValueError for what is no line of it."""
        ended = False
        try:
            while piece := os.read(self.stdout, READ_BYTES):
                self._pieces.append(piece)
                if len(self._pieces) > 64:
                    break
            else:
                ended = True
        except BlockingIOError:
            pass
        found: list[dict[str, Any]] = []
        if any(b"\n" in piece for piece in self._pieces):
            *lines, rest = b"".join(self._pieces).split(b"\n")
            self._pieces = [rest] if rest else []
            found = [orjson.loads(line) for line in lines]
        return None if ended and not found else found

    def close(self) -> None:
        """Kill the child and whatever it has started; the master sees the connection end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
