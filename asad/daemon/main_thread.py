"""How the main thread waits: for a cycle to be due, for tasks, for signals; and what ends its wait."""

from __future__ import annotations

import signal
from collections.abc import Callable

from asad.daemon.task_queue import TaskQueue
from asad.systemd import Heartbeat


class MainThread:
    """What the main thread was asked to do after what it is at. Signals only set a flag and wake it."""

    def __init__(self, task_queue: TaskQueue, monotonic: Callable[[], float]) -> None:
        self.task_queue, self._monotonic = task_queue, monotonic
        self.heart = Heartbeat(monotonic)
        self.stopping = False
        self._reloading = False

    def stop(self) -> None:
        """Stop after the cycle under way."""
        self.stopping = True
        self.task_queue.wake()

    def reload(self) -> None:
        """Read the configuration again."""
        self._reloading = True
        self.task_queue.wake()

    def handle_signals(self) -> None:
        """SIGTERM and SIGINT stop, SIGHUP reloads. Only in the main thread."""
        signal.set_wakeup_fd(self.task_queue.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(self, "stopping", True))
        signal.signal(signal.SIGHUP, lambda *_: setattr(self, "_reloading", True))

    def wait(self, until: float, reload: Callable[[], None]) -> None:
        """Until then, or until stopped: notify systemd that we live, do the tasks of the queue, reload."""
        while True:
            self.heart.beat()
            self.task_queue.do(until)
            if self._reloading:
                self._reloading = False
                with self.task_queue.busy("reading its configuration again"):
                    reload()
            left = until - self._monotonic()
            if self.stopping or left <= 0:
                return
            self.task_queue.wait(min(left, self.heart.every_s, 60.0))
