"""What other threads ask of the main one, which does it between two cycles; what it is at; and what wakes it."""

from __future__ import annotations

import contextlib
import math
import queue
import select
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from asad.errors import AsadError

ANSWER_S = 25.0
"""So long a request waits for the main thread, which may be in the middle of a cycle."""
SOON_S = 2.0
"""So long one waits that has been done already, to say what the main thread is still at."""
T = TypeVar("T")


class TaskQueue:
    """A queue of functions to call. `ask`, `doing` and `wake` may be called from any thread, the others by the main
    one."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._busy: tuple[str, float] | None = None
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._refusing = False
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)

    @contextlib.contextmanager
    def busy(self, at: str) -> Iterator[None]:
        """The main thread is `at` something and does no tasks: whoever waits is informed."""
        before, self._busy = self._busy, (at, self._monotonic())
        try:
            yield
        finally:
            self._busy = before

    def doing(self) -> str:
        """What keeps the main thread from tasks, and for how long; empty if nothing does."""
        busy = self._busy
        return "" if busy is None else f"{busy[0]}, for {self._monotonic() - busy[1]:.0f} s now"

    def ask(self, function: Callable[[], T], within_s: float | None = None) -> T:
        """What `function` gives in the main thread, between two cycles. Raises AsadError if it does not come to that
        within `ANSWER_S`, or `within_s`, and what `function` raises."""
        within_s = ANSWER_S if within_s is None else within_s
        answer: Future[T] = Future()
        self._asked.put((function, answer))
        if self._refusing:
            answer.cancel()
        self.wake()
        try:
            return answer.result(within_s)
        except TimeoutError:
            if answer.cancel():
                raise AsadError(
                    f"the daemon is {self.doing() or 'busy with other requests'}, and did not come to it within "
                    f"{within_s:.0f} s; try again"
                ) from None
            raise AsadError(
                f"the daemon has begun it and was not done within {within_s:.0f} s; it goes on with it: see what has "
                "become of it before you ask again"
            ) from None
        except CancelledError:
            raise AsadError("the daemon stops; ask again when it runs") from None

    def do(self, until: float = math.inf) -> None:
        """Do what has been asked so far, by the monotonic clock until then, but at least one thing.

        What is asked meanwhile waits for the next call: whoever asks without a pause does not keep a cycle from coming.
        """
        for _ in range(self._asked.qsize()):
            try:
                function, answer = self._asked.get_nowait()
            except queue.Empty:
                return
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(function())
                except Exception as error:
                    answer.set_exception(error)
            if self._monotonic() >= until:
                return

    def refuse(self) -> None:
        """Whoever has asked and got no answer is informed that there will be none, and so is whoever asks from now
        on."""
        self._refusing = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._asked.get_nowait()[1].cancel()

    def wake(self) -> None:
        """End the main thread's wait."""
        with contextlib.suppress(OSError):  # full: it is awake; closed: it is gone
            self._wake_out.send(b".")

    def wait(self, seconds: float) -> None:
        """Wait so long, or until woken."""
        watched = select.poll()  # unlike select, for any number of a descriptor
        watched.register(self._wake_in, select.POLLIN)
        watched.poll(1000.0 * seconds)
        with contextlib.suppress(BlockingIOError):
            while self._wake_in.recv(4096):
                pass

    def fileno(self) -> int:
        """What a signal writes to, so that it wakes us too; -1 once closed."""
        return self._wake_out.fileno()

    def close(self) -> None:
        """Nobody is woken any more."""
        self._wake_out.close()
        self._wake_in.close()
