"""What other threads ask of the main one, which does it between two cycles; and what wakes it."""

from __future__ import annotations

import contextlib
import queue
import select
import socket
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from asad.errors import AsadError

ANSWER_S = 25.0
"""So long a request waits for the main thread, which may be in the middle of a cycle."""
T = TypeVar("T")


class Errands:
    """A queue of functions to call. `ask` and `wake` may be called from any thread, the others by the main one."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._refusing = False
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)

    def ask(self, function: Callable[[], T]) -> T:
        """What `function` gives in the main thread, between two cycles. Raises AsadError if it does not come to that,
        and what `function` raises."""
        answer: Future[T] = Future()
        self._asked.put((function, answer))
        if self._refusing:
            answer.cancel()
        self.wake()
        try:
            return answer.result(ANSWER_S)
        except TimeoutError:
            if answer.cancel():
                raise AsadError(
                    f"the daemon is in the middle of a cycle and did not come to it within {ANSWER_S:.0f} s; try again"
                ) from None
            raise AsadError(
                f"the daemon has begun it and was not done within {ANSWER_S:.0f} s; it goes on with it: see what has "
                "become of it before you ask again"
            ) from None
        except CancelledError:
            raise AsadError("the daemon stops; ask again when it runs") from None

    def do(self) -> None:
        """Do all that was asked."""
        while True:
            try:
                function, answer = self._asked.get_nowait()
            except queue.Empty:
                return
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(function())
                except Exception as error:
                    answer.set_exception(error)

    def refuse(self) -> None:
        """Whoever has asked and got no answer is told that there will be none, and so is whoever asks from now on."""
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
        select.select([self._wake_in], [], [], seconds)
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
