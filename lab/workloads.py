"""Small real programs whose run time alone is known: a fixed amount of work, wanted CPU seconds at a busy fraction.

    python3 workloads.py calibrate
    python3 workloads.py KIND --cpu-s 15 --busy 0.5 --units-per-s 21000 [--memory-mb 100] [--cores 1] [--stages 4]

KIND is one of

    compute   integer arithmetic
    memory    the same, between copies through a buffer that no cache holds
    io        between pieces of work it writes a block to disk, waits for the disk and reads it back
    message   stages in turn: sequential ones, in which one process works, and parallel ones, in which several do their
              parts of each round and exchange messages before the next

The amount of work is counted in units, whose number a CPU second `calibrate` measures once, so a program that is
slowed takes longer. Alone it takes `cpu_s / (busy x cores)` seconds: work alternates with waits of a length that does
not depend on how fast the work went, as waits for a disk or a network do. At the end it prints one line of JSON:
`{"kind", "elapsed_s", "cpu_s", "units"}`. Standard library only: jobs of any user run it with the system's Python.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from multiprocessing.connection import Connection

KINDS = ("compute", "memory", "io", "message")
PERIOD_S = 0.05
"""Work and wait of a period together, when nothing slows it."""
IO_PERIOD_S = 0.2
UNIT_LOOPS = 400
COPY_BYTES = 64 * 1024
BLOCK_BYTES = 256 * 1024
CALIBRATION_S = 0.7
CALIBRATIONS = 3
PARALLEL_PART = 2 / 3
"""Part of its work that `message` does in parallel stages; alone, stages of both sorts last equally long."""


class Work:
    """Does units of work; `memory` says that each unit also moves memory."""

    def __init__(self, memory_mb: float, memory: bool) -> None:
        size = max(COPY_BYTES * 2, int(memory_mb * 2**20))
        self.buffer = memoryview(bytearray(size))
        for page in range(0, size, 4096):
            self.buffer[page] = 1  # memory that was never written is not there
        self.memory, self.place, self.value, self.owed = memory, 0, 1, 0.0

    def do(self, units: float) -> None:
        """So many units; a fraction of one is owed until the next time."""
        self.owed += units
        value, buffer, last = self.value, self.buffer, len(self.buffer) - 2 * COPY_BYTES
        while self.owed >= 1:
            for _ in range(UNIT_LOOPS):
                value = (value * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
            if self.memory:
                place = self.place = self.place + COPY_BYTES if self.place < last else 0
                buffer[place + COPY_BYTES : place + 2 * COPY_BYTES] = buffer[place : place + COPY_BYTES]
            self.owed -= 1
        self.value = value


def calibrate(memory_mb: float = 64) -> dict[str, float]:
    """Units a CPU second, by the sort of work, measured on this core."""
    rates = {}
    for name, memory in (("plain", False), ("memory", True)):
        work = Work(memory_mb, memory)
        work.do(200)
        measured = []
        for _ in range(CALIBRATIONS):
            units, begin_s = 0, time.process_time()
            while (used_s := time.process_time() - begin_s) < CALIBRATION_S:
                work.do(50)
                units += 50
            measured.append(units / used_s)
        rates[name] = statistics.median(measured)
    return rates


def run_part(work: Work, units: float, alone_s: float, period_s: float, wait_s: float) -> None:
    """Spread units evenly over periods; without anyone else it takes `alone_s`."""
    periods = max(1, round(alone_s / period_s))
    for _ in range(periods):
        work.do(units / periods)
        if wait_s > 0:
            time.sleep(wait_s)


def steady(kind: str, cpu_s: float, busy: float, units_per_s: float, memory_mb: float) -> None:
    """`compute` and `memory`: one even stretch of work and waits."""
    work = Work(memory_mb, kind == "memory")
    run_part(work, cpu_s * units_per_s, cpu_s / busy, PERIOD_S, PERIOD_S * (1 - busy))


def disk(cpu_s: float, busy: float, units_per_s: float, memory_mb: float) -> None:
    """`io`: in each wait a block is written, synchronised and read back; a slower disk would take the rest of it."""
    work = Work(memory_mb, memory=False)
    block = os.urandom(BLOCK_BYTES)
    periods = max(1, round(cpu_s / busy / IO_PERIOD_S))
    with tempfile.TemporaryFile(dir=".") as file:
        for number in range(periods):
            work.do(cpu_s * units_per_s / periods)
            begin_s = time.monotonic()
            place = number % 16 * BLOCK_BYTES
            os.pwrite(file.fileno(), block, place)
            os.fdatasync(file.fileno())
            os.pread(file.fileno(), BLOCK_BYTES, place)
            time.sleep(max(0.0, IO_PERIOD_S * (1 - busy) - (time.monotonic() - begin_s)))


def stage_rates(busy: float, cores: int) -> tuple[float, float]:
    """Cores kept busy in sequential and in parallel stages, so that `busy` of the allocation is used over all."""
    sequential = min((1 - PARALLEL_PART) * 2 * busy * cores, 0.95)
    return sequential, 2 * busy * cores - sequential


def partner(pipe: Connection, memory_mb: float) -> None:
    """Another process of `message`: obeys each line and answers, until it is sent nothing more."""
    work = Work(memory_mb, memory=False)
    while (units := pipe.recv()) is not None:
        work.do(units)
        pipe.send(units)


def message(cpu_s: float, busy: float, units_per_s: float, memory_mb: float, cores: int, stages: int) -> None:
    """`message`: sequential and parallel stages in turn."""
    workers = max(2, cores)
    fork = multiprocessing.get_context("fork")
    pipes, partners = [], []
    for _ in range(workers - 1):
        ours, theirs = fork.Pipe()
        process = fork.Process(target=partner, args=(theirs, memory_mb / workers), daemon=True)
        process.start()
        pipes.append(ours)
        partners.append(process)
    work = Work(memory_mb / workers, memory=False)
    stage_s = cpu_s / (busy * cores) / stages
    for stage, rate in zip(range(stages), stage_rates(busy, cores) * stages, strict=False):
        units = rate * stage_s * units_per_s
        if stage % 2 == 0:
            run_part(work, units, stage_s, PERIOD_S, PERIOD_S * max(0.0, 1 - rate))
            continue
        rounds = max(1, round(stage_s / PERIOD_S))
        part = units / rounds / workers
        for _ in range(rounds):
            for pipe in pipes:
                pipe.send(part)
                if cores == 1:
                    pipe.recv()  # a job that is well made has no two processes wait for one core
            work.do(part)
            for pipe in pipes if cores > 1 else ():
                pipe.recv()
            time.sleep(PERIOD_S * max(0.0, 1 - rate / min(workers, cores)))
    for pipe, process in zip(pipes, partners, strict=True):
        pipe.send(None)
        process.join()


def run(
    kind: str, cpu_s: float, busy: float, units_per_s: float, memory_mb: float, cores: int, stages: int
) -> None:
    """All of a program's work, on all of its cores."""
    if kind == "message":
        message(cpu_s, busy, units_per_s, memory_mb, cores, stages)
        return
    others = []
    arguments = (cpu_s / cores, busy, units_per_s, memory_mb / cores)
    for _ in range(cores - 1):
        target, given = (disk, arguments) if kind == "io" else (steady, (kind, *arguments))
        process = multiprocessing.get_context("fork").Process(target=target, args=given)
        process.start()
        others.append(process)
    if kind == "io":
        disk(*arguments)
    else:
        steady(kind, *arguments)
    for process in others:
        process.join()


def check(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Refuse what cannot be run as it was asked for."""
    if given.kind == "calibrate":
        return
    if not given.cpu_s > 0 or not given.units_per_s > 0 or not 0 < given.busy <= 1:
        parser.error("--cpu-s and --units-per-s must be above 0, --busy in (0, 1]")
    if given.cores < 1 or given.stages < 1 or given.memory_mb < 0:
        parser.error("--cores and --stages must be at least 1, --memory-mb at least 0")
    if given.kind == "message":
        if given.stages % 2:
            parser.error("--stages of `message` must be even: a sequential and a parallel one in turn")
        parallel = stage_rates(given.busy, given.cores)[1]
        if parallel > given.cores:
            parser.error(
                f"--busy {given.busy:g} would need {parallel:.2f} cores in parallel stages; at most 0.75"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description="A small real program whose run time alone is known.")
    parser.add_argument("kind", choices=(*KINDS, "calibrate"))
    parser.add_argument("--cpu-s", type=float, default=0.0)
    parser.add_argument("--busy", type=float, default=1.0)
    parser.add_argument("--units-per-s", type=float, default=0.0)
    parser.add_argument("--memory-mb", type=float, default=64)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--stages", type=int, default=4)
    given = parser.parse_args()
    check(parser, given)
    if given.kind == "calibrate":
        json.dump(calibrate(given.memory_mb), sys.stdout)
        return
    begin_s = time.monotonic()
    run(given.kind, given.cpu_s, given.busy, given.units_per_s, given.memory_mb, given.cores, given.stages)
    elapsed_s = time.monotonic() - begin_s
    used = os.times()
    answer = {
        "kind": given.kind,
        "elapsed_s": round(elapsed_s, 3),
        "cpu_s": round(used.user + used.system + used.children_user + used.children_system, 3),
        "units": round(given.cpu_s * given.units_per_s),
    }
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
