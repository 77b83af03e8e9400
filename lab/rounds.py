"""Small programs that write down how far they are, for `lab.hosts`: hosts that wait for each other, and guests.

    python3 rounds.py calibrate
    python3 rounds.py barrier --round-ms 0.5 --duty 0.4 --rate 30e6 --meet /tmp/socket
    python3 rounds.py lone --round-ms 5 --duty 0.4 --rate 30e6
    python3 rounds.py loader --round-ms 5 --duty 0.2 --rate 30e6
    python3 rounds.py arithmetic --rate 30e6
    python3 rounds.py copies --rate 100

barrier     two processes (ranks 0 and 1, by SLURM_PROCID) work, sleep, and meet after every round; at a duty of 1 they
            never sleep, and wait for each other as MPI does, busily
lone        the same rounds without anybody to meet: what such a host would lose on one node
loader      one that wakes often and works little: 200 rounds of 5 ms a second
arithmetic  integer arithmetic without an end
copies      copies of 32 MiB without an end

A round is a fixed amount of work and a sleep of fixed length (less what a sleep takes too long here, by a trial at the
start), so that whatever delays it makes it longer. Every quarter
of a second a line `time done cpu` is written: seconds since the epoch, rounds (of a guest: core-seconds of work, by
`--rate`, the work in a second that `calibrate` measured), and CPU seconds. They run until they are cancelled. Standard
library only: jobs of any user run it with the system's Python.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable

HOSTS, GUESTS = ("barrier", "lone", "loader"), ("arithmetic", "copies")
SHOWN_S = 0.25
COPY_BYTES = 32 * 2**20
LOOPS = 5_000
"""Loops of arithmetic between two looks at the clock: about a quarter of a millisecond."""
CALIBRATION_S = 0.7
CALIBRATIONS = 3
SLEEPS = 200
SHORTEST_S = 1e-6
MEET_S = 60.0
"""How long one rank waits for the other to come."""


def arithmetic(loops: int) -> int:
    """So many loops."""
    value = 1
    for _ in range(loops):
        value = (value * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
    return value


def copier() -> Callable[[], None]:
    """What copies 32 MiB when it is called."""
    source, target = memoryview(bytearray(COPY_BYTES)), memoryview(bytearray(COPY_BYTES))
    for page in range(0, COPY_BYTES, 4096):
        source[page] = 1  # memory that was never written is not there

    def copy() -> None:
        target[:] = source

    return copy


def calibrate() -> dict[str, float]:
    """Loops and copies in a CPU second, on this core."""
    copy = copier()
    works: dict[str, tuple[Callable[[], object], int]] = {
        "arithmetic": (lambda: arithmetic(LOOPS), LOOPS),
        "copies": (copy, 1),
    }
    rates = {}
    for name, (work, count) in works.items():
        measured = []
        for _ in range(CALIBRATIONS):
            done, begin_s = 0, time.process_time()
            while (used_s := time.process_time() - begin_s) < CALIBRATION_S:
                work()
                done += count
            measured.append(done / used_s)
        rates[name] = statistics.median(measured)
    return rates


def show(done: float) -> None:
    """One line of how far it is."""
    sys.stdout.write(f"{time.time():.6f} {done:.6f} {time.process_time():.6f}\n")
    sys.stdout.flush()


def nobody() -> None:
    """Meets nobody."""


def partner(path: str, rank: int, busily: bool) -> Callable[[], None]:
    """What waits for the other rank when it is called; they meet at the socket `path`."""
    with socket.socket(socket.AF_UNIX) as first:
        if rank == 0:
            first.bind(path)
            first.listen(1)
            first.settimeout(MEET_S)
            other, _ = first.accept()
        else:
            other, deadline = first, time.monotonic() + MEET_S
            while True:
                try:
                    other.connect(path)
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)
            other = first.dup()
    other.setblocking(not busily)

    def meet() -> None:
        other.send(b"r")
        while True:
            try:
                if not other.recv(1):
                    raise SystemExit(f"{path}: the other rank has ended")
                return
            except BlockingIOError:
                continue

    return meet


def oversleep_s(sleep_s: float) -> float:
    """How much longer such a sleep takes than it was asked to."""
    took = []
    for _ in range(SLEEPS):
        begin_s = time.perf_counter()
        time.sleep(sleep_s)
        took.append(time.perf_counter() - begin_s)
    return statistics.median(took) - sleep_s


def rounds(round_s: float, duty: float, rate: float, meet: Callable[[], None], shows: bool) -> None:
    """Work, sleep and meet, without an end."""
    loops, sleep_s = round(round_s * duty * rate), round_s * (1 - duty)
    if sleep_s > 0:  # once, so that it is the same in all rounds
        sleep_s = max(SHORTEST_S, sleep_s - oversleep_s(sleep_s))
    every, done = max(1, round(SHOWN_S / round_s)), 0
    while True:
        arithmetic(loops)
        if sleep_s > 0:
            time.sleep(sleep_s)
        meet()
        done += 1
        if shows and done % every == 0:
            show(done)


def guest(kind: str, rate: float) -> None:
    """Work without an end."""
    copy, done, shown_s = copier(), 0.0, time.monotonic()
    while True:
        if kind == "copies":
            copy()
            done += 1 / rate
        else:
            arithmetic(LOOPS)
            done += LOOPS / rate
        if (now_s := time.monotonic()) - shown_s >= SHOWN_S:
            show(done)
            shown_s = now_s


def main() -> None:
    parser = argparse.ArgumentParser(description="A small program that writes down how far it is.")
    parser.add_argument("kind", choices=(*HOSTS, *GUESTS, "calibrate"))
    parser.add_argument("--round-ms", type=float, default=5.0)
    parser.add_argument("--duty", type=float, default=1.0)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--meet", default="")
    given = parser.parse_args()
    if given.kind == "calibrate":
        json.dump(calibrate(), sys.stdout)
        return
    if not given.rate > 0 or not given.round_ms > 0 or not 0 < given.duty <= 1:
        parser.error("--rate and --round-ms must be above 0, --duty in (0, 1]")
    if given.kind in GUESTS:
        guest(given.kind, given.rate)
    rank = int(os.environ.get("SLURM_PROCID", "0"))
    meet = nobody
    if given.kind == "barrier":
        if not given.meet:
            parser.error("--meet must name a socket")
        meet = partner(given.meet, rank, busily=given.duty == 1)
    rounds(given.round_ms / 1000, given.duty, given.rate, meet, shows=rank == 0)


if __name__ == "__main__":
    main()
