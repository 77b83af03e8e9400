"""What is measured: processes that compute or stream memory for a known part of the time, and count units of work."""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import numpy as np

from asad.errors import ClusterError

WORKLOADS: dict[str, tuple[str, float]] = {
    "cpu": ("cpu", 1.0),
    "duty-60": ("cpu", 0.6),
    "duty-30": ("cpu", 0.3),
    "memory": ("memory", 1.0),
    "memory-60": ("memory", 0.6),
    "memory-30": ("memory", 0.3),
}
"""Name → what it does and the fraction of time for which it does it; for the rest it sleeps."""

PAIRS: tuple[tuple[str, str], ...] = (
    ("cpu", "cpu"),
    ("duty-60", "cpu"),
    ("duty-30", "cpu"),
    ("duty-60", "duty-60"),
    ("memory", "memory"),
    ("memory-60", "memory"),
    ("memory-30", "memory"),
    ("memory-60", "memory-60"),
    ("memory-60", "cpu"),
    ("duty-60", "memory"),
)
"""Host and guest of every measured pair."""

DUTY_PERIOD_S = 0.02
"""A workload with a demand d computes for about d of this, then sleeps for the rest."""
BARRIER_POLL_S = 2e-4
"""A worker that waits for others looks so often whether they have come."""
CHUNK_BYTES = 1 << 20
RUNNING, WORK, CPU_S = range(3)
"""Cells of a worker's shared state: go on (1) or pause (0), units of work done, CPU time used."""


def workload_kind(name: str) -> str:
    return WORKLOADS[name][0]


def compute_unit() -> Callable[[], None]:
    """A unit of work that lives in the first-level cache: a few hundred microseconds of hashing."""
    block = bytes(16384)

    def unit() -> None:
        for _ in range(16):
            hashlib.sha256(block).digest()

    return unit


def stream_unit(array_bytes: int) -> Callable[[], None]:
    """A unit of work that lives on memory: copies the next chunk of two arrays of together `array_bytes`."""
    chunk = CHUNK_BYTES // 8
    chunks = max(1, array_bytes // 2 // CHUNK_BYTES)
    source = np.ones((chunks, chunk))
    target = np.full((chunks, chunk), 0.0)  # np.zeros would leave the page faults to the measurement
    position = 0

    def unit() -> None:
        nonlocal position
        np.copyto(target[position], source[position])
        position = (position + 1) % chunks

    return unit


def work(
    workload: str,
    core: int,
    array_bytes: int,
    state: Any,
    pipe: Connection,
    steps: Any = None,
    place: int = 0,
) -> None:
    """Body of a worker process: pinned to `core`, works between go and pause, ends when its pipe closes.

    With `steps` (shared by the workers of its job, of which it is the one at `place`) it waits after each step until
    all have done as many. No lock is held meanwhile: any of them may be killed at any time.
    """
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the calibrator ends its workers
    os.sched_setaffinity(0, {core})
    kind, demand = WORKLOADS[workload]
    unit = compute_unit() if kind == "cpu" else stream_unit(array_bytes)
    costs = []
    for _ in range(64):
        before = time.process_time()
        unit()
        costs.append(time.process_time() - before)
    burst = max(1, round(demand * DUTY_PERIOD_S / max(median(costs), 1e-6)))
    sleep_s = (1 - demand) * DUTY_PERIOD_S
    calibrator = os.getppid()
    with contextlib.suppress(EOFError, OSError):
        pipe.send(None)
        while True:
            pipe.recv()
            while state[RUNNING] and os.getppid() == calibrator:
                for _ in range(burst):
                    unit()
                    state[WORK] += 1
                    state[CPU_S] = time.process_time()
                    if not state[RUNNING]:
                        break
                if steps is not None:
                    steps[place] += 1
                    while state[RUNNING] and min(steps) < steps[place] and os.getppid() == calibrator:
                        time.sleep(BARRIER_POLL_S)
                if sleep_s:
                    time.sleep(sleep_s)
            pipe.send(None)


class Job:
    """A host or a guest: one worker process a core."""

    def __init__(
        self, workload: str, cores: Sequence[int], array_bytes: int, *, barrier: bool = False
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.states: list[Any] = []
        self.pipes: list[Connection] = []
        self.processes: list[Any] = []
        self.steps: Any = context.RawArray("q", len(cores)) if barrier else None
        for place, core in enumerate(cores):
            ours, theirs = context.Pipe()
            state = context.RawArray("d", 3)
            process = context.Process(
                target=work, args=(workload, core, array_bytes, state, theirs, self.steps, place), daemon=True
            )
            process.start()
            theirs.close()
            self.states.append(state)
            self.pipes.append(ours)
            self.processes.append(process)

    def wait(self, timeout_s: float) -> None:
        """Until every worker has answered. Raises ClusterError when one died or is silent for `timeout_s`."""
        for pipe in self.pipes:
            try:
                if pipe.poll(timeout_s):
                    pipe.recv()
                    continue
            except (EOFError, OSError):
                pass
            raise ClusterError(
                "calibration: a worker died or hangs; see its message above, or free some memory"
            )

    def go(self) -> None:
        if self.steps is not None:
            self.steps[:] = [0] * len(self.steps)
        for state, pipe in zip(self.states, self.pipes, strict=True):
            state[RUNNING] = 1
            pipe.send(None)

    def pause(self) -> None:
        for state in self.states:
            state[RUNNING] = 0

    def progress(self) -> tuple[float, float, float]:
        """Now (seconds, monotonic), units of work done and CPU seconds used, over all workers."""
        return time.monotonic(), sum(s[WORK] for s in self.states), sum(s[CPU_S] for s in self.states)

    def end(self) -> None:
        self.pause()
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(2)
            if process.is_alive():
                process.kill()
                process.join()
