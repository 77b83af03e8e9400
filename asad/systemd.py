"""What systemd is notified of: that we are ready, what we do, and that we live."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

NOTIFY_S = 1.0
"""systemd may be busy: nobody waits longer than this to be heard."""


def notify(*words: str) -> None:
    """Notify systemd (`READY=1`, `STATUS=…`); nothing without it, and no error ever."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        connection.settimeout(NOTIFY_S)
        connection.connect("\0" + address[1:] if address[0] == "@" else address)
        connection.send("\n".join(words).encode())


def watchdog_s() -> float:
    """How often systemd wants to hear of us; infinite if it does not."""
    try:
        if int(os.environ.get("WATCHDOG_PID", os.getpid())) != os.getpid():
            return math.inf
        return int(os.environ["WATCHDOG_USEC"]) / 1e6
    except (KeyError, ValueError):
        return math.inf


class Heartbeat:
    """Notifies systemd that we live, as often as it wants to hear."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.every_s = watchdog_s() / 4
        """Seconds from beat to beat; infinite if nobody listens."""
        self._monotonic, self._last_s = monotonic, -math.inf

    def beat(self) -> None:
        """Beat, if it is time."""
        now = self._monotonic()
        if now - self._last_s >= self.every_s:
            self._last_s = now
            notify("WATCHDOG=1")

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Beat in a thread of its own, while something goes on that may take long but comes to an end."""
        if not math.isfinite(self.every_s):
            yield
            return
        over = threading.Event()

        def beat_on() -> None:
            while not over.wait(self.every_s):
                notify("WATCHDOG=1")

        thread = threading.Thread(target=beat_on, name="asad-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
