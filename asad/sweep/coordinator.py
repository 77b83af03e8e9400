"""The coordinator of a sweep: it alone hands out tasks, and keeps each result as soon as it is there."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Protocol, TypeVar

LOOK_S = 1.0
"""How long it waits at most before it looks whether workers have come or gone."""

Task = TypeVar("Task")
Result = TypeVar("Result")


class Workers(Protocol):
    """Who carries out tasks: processes of this machine, or a Dask cluster."""

    def at_once(self) -> int:
        """How many tasks to have in their hands at present; 0 while there are none."""
        ...

    def submit(self, function: Callable[[Task], Result], task: Task, /) -> Future[Result]:
        """Begin a task. Its future fails where the worker died."""
        ...


def carry_out(
    tasks: Iterable[Task],
    workers: Workers,
    run: Callable[[Task], Result],
    keep: Callable[[Task, Result | BaseException], None],
    look: Callable[[int], None] = lambda running: None,
) -> None:
    """Have every task run, and `keep` each with its result, or with what it raised, in the order in which they end.

    At no time are more in the workers' hands than they ask for: whoever kills the coordinator loses those alone.
    `look` hears every second how many are. Raises what `keep` raises.
    """
    waiting = deque(tasks)
    running: dict[Future[Result], Task] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers.at_once():
                task = waiting.popleft()
                running[workers.submit(run, task)] = task
            look(len(running))
            if not running:  # nobody is there to carry them out
                time.sleep(LOOK_S)
            for future in wait(running, timeout=LOOK_S, return_when=FIRST_COMPLETED).done:
                task = running.pop(future)
                if future.cancelled():  # with its cluster, by nobody here
                    waiting.append(task)
                    continue
                try:
                    outcome: Result | BaseException = future.result()
                except Exception as error:
                    outcome = error
                keep(task, outcome)
    finally:
        for future in running:
            future.cancel()
