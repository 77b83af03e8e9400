"""Workers of this machine: processes that are started anew, not forked, since compiled code has threads of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from queue import LifoQueue
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from asad.errors import AsadError

Result = TypeVar("Result")
SPAWN = multiprocessing.get_context("spawn")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


class WorkerDied(AsadError):
    """The process that carried out a task was killed."""


class _Worker(NamedTuple):
    process: SpawnProcess
    tasks: Connection


class Processes:
    """So many processes; one that is killed takes nothing with it but its own task.

    As a context manager: at its end they are gone, whatever they do; and so they are when this process is killed.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._threads = ThreadPoolExecutor(count)
        self._idle: LifoQueue[_Worker | None] = (
            LifoQueue()
        )  # the last one that was busy has what it read at hand
        self._all: list[_Worker] = []
        for _ in range(count):
            self._idle.put(None)  # started when there is a task for it

    def at_once(self) -> int:
        """As many as there are processes."""
        return self._count

    def submit(self, function: Callable[[Any], Result], task: Any, /) -> Future[Result]:
        """Begin a task. Its future raises WorkerDied where the process was killed."""
        return self._threads.submit(self._carry_out, function, task)

    def _carry_out(self, function: Callable[[Any], Result], task: Any) -> Result:
        worker = self._idle.get() or self._started()
        try:
            worker.tasks.send((function, task))
            result: Result = worker.tasks.recv()
        except (EOFError, OSError):
            worker.process.join()
            self._idle.put(None)
            code = worker.process.exitcode or 0
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"gone with status {code}"
            hint = (
                "give each task more memory, or run fewer at once with --workers"
                if code == -9
                else "see its output"
            )
            raise WorkerDied(f"the process that carried it out was {how}; {hint}") from None
        self._idle.put(worker)
        return result

    def _started(self) -> _Worker:
        ours, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        worker = _Worker(process, ours)
        self._all.append(worker)
        return worker

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._all:
            worker.process.kill()
        self._threads.shutdown(cancel_futures=True)


def _serve(tasks: Connection) -> None:
    """The life of a worker: tasks come, results go, until nobody is there any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator has it too, and ends us
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave() -> None:  # a coordinator that is killed ends nobody, and a task may take hours
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=leave, daemon=True).start()
    while True:
        function, task = tasks.recv()
        tasks.send(function(task))
