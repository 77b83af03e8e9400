"""The bench of a calibration: cores, groups, and the jobs that run in them for a window of time."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from asad.calibrate.fitting import Lending
from asad.calibrate.groups import CpuController, CpuGroup
from asad.calibrate.workloads import CHUNK_BYTES, Job
from asad.errors import ClusterError
from asad.node.kernel_files import MOST_SHARES, SHARES


def busy_s(cores: Sequence[int]) -> float:
    """CPU seconds that `cores` have spent on anything since boot, those that a hypervisor took included."""
    names = {f"cpu{core}" for core in cores}
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *columns = line.split()
        if name in names:
            user, nice, system, _idle, _wait, irq, softirq, steal = map(int, columns[:8])
            ticks += user + nice + system + irq + softirq + steal
    return float(ticks / os.sysconf("SC_CLK_TCK"))


def cache_bytes(core: int) -> int:
    """Size of the last-level cache of a core; 32 MiB where the kernel does not say."""
    sizes = [32 << 20]
    for path in Path(f"/sys/devices/system/cpu/cpu{core}/cache").glob("index*/size"):
        size = re.fullmatch(r"(\d+)([KMG]?)", path.read_text().strip())
        if size:
            sizes.append(int(size[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[size[2]])
    return max(sizes)


def stream_bytes(cores: Sequence[int]) -> int:
    """Memory for each streaming worker: a job's together are four times the cache, within 1/4 of free memory.

    Raises ClusterError when that leaves too little to overflow the cache.
    """
    cache = cache_bytes(cores[0])
    wanted = max(4 * cache // len(cores), 2 * CHUNK_BYTES)
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    granted = min(wanted, free // (4 * 2 * len(cores)))
    if granted * len(cores) < 2 * cache:
        raise ClusterError(
            f"calibration: {free >> 20} MiB of free memory are too few to stream past a cache of "
            f"{cache >> 20} MiB; free some memory"
        )
    return granted


def cores_for(cores: int) -> list[int]:
    """The cores to measure on. Raises ClusterError if this process may not use so many."""
    allowed = sorted(os.sched_getaffinity(0))
    if not 1 <= cores <= len(allowed):
        raise ClusterError(f"calibration: {cores} cores asked for; this process may use 1 to {len(allowed)}")
    return allowed[-cores:]  # the first cores are those that serve interrupts


class Bench:
    """The cores, the groups of host and guest, and the pair of jobs that runs in them."""

    def __init__(self, cores: Sequence[int], seconds: float, groups: dict[str, CpuGroup]) -> None:
        self.cores = cores
        self.seconds = seconds
        self.groups = groups
        self.jobs: dict[str, Job] = {}

    @contextlib.contextmanager
    def pair(self, host: str, guest: str, array_bytes: int) -> Iterator[None]:
        """Start both jobs, paused and in their groups, and end them on the way out."""
        try:
            for role, workload in (("host", host), ("guest", guest)):
                self.jobs[role] = Job(workload, self.cores, array_bytes)
            for role, job in self.jobs.items():
                job.wait(60)
                self.join(role, job)
            yield
        finally:
            for job in self.jobs.values():
                job.end()
            self.jobs.clear()

    def join(self, role: str, job: Job) -> None:
        """Put a job into the group of its role; where there are none, a guest into the idle class for good."""
        for process in job.processes:
            if self.groups:
                self.groups[role].add(process.pid)
            elif role == "guest":
                os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))

    def idle(self, idle: bool) -> None:
        """Put all guests into the idle class, or take them out again."""
        if self.groups:
            self.groups["guest"].set_idle(idle)

    def share(self, lending: Lending | None) -> None:
        """Put quotas and idle class in force; None lifts them."""
        if not self.groups:
            return
        cores = len(self.cores)
        static = lending is not None and lending.mode == "static"
        host_cap = (1 - lending.share) * cores if lending and static else None
        self.groups["host"].cap(host_cap)
        self.groups["guest"].cap(lending.share * cores if lending else None)
        self.groups["guest"].set_idle(lending is not None and not static)

    def run(
        self, roles: Sequence[str], lending: Lending | None
    ) -> tuple[dict[str, tuple[float, float]], float]:
        """One window: work per second and CPU fraction of each of `roles`, and the fraction others took."""
        self.share(lending)
        found, other = self.window({role: self.jobs[role] for role in roles})
        self.share(None)
        return {role: (rate, cpu / len(self.cores)) for role, (rate, cpu) in found.items()}, other

    def window(self, jobs: Mapping[str, Job]) -> tuple[dict[str, tuple[float, float]], float]:
        """Work per second and cores' worth of CPU of each of these jobs, and the fraction others took."""
        for job in jobs.values():
            job.go()
        time.sleep(
            min(0.15, self.seconds)
        )  # more than a quota period, so that the window starts in the steady state
        busy, before = busy_s(self.cores), {name: job.progress() for name, job in jobs.items()}
        time.sleep(self.seconds)
        after, busy = {name: job.progress() for name, job in jobs.items()}, busy_s(self.cores) - busy
        for job in jobs.values():
            job.pause()
        for job in jobs.values():
            job.wait(30)
        rates, ours = {}, 0.0
        for name in jobs:
            wall, done, cpu = (b - a for a, b in zip(before[name], after[name], strict=True))
            rates[name] = (done / wall, cpu / wall)
            ours += cpu
        return rates, max(0.0, busy - ours) / (self.seconds * len(self.cores))


@contextlib.contextmanager
def bench_on(
    cores: Sequence[int], seconds: float, controller: CpuController | None
) -> Iterator[tuple[Bench, str]]:
    """A bench with its groups, removed on the way out, and what stands for the idle class."""
    with contextlib.ExitStack() as cleanup:
        groups: dict[str, CpuGroup] = {}
        idle_class = "SCHED_IDLE"
        if controller:
            cleanup.callback(controller.enable())
            both = controller.create()
            cleanup.callback(both.remove)
            both.write(
                SHARES, MOST_SHARES[both.version]
            )  # other work must not pass for contention of the pair
            groups = {role: both.child(role) for role in ("host", "guest")}
            idle_class = "cpu.idle" if groups["guest"].has_idle else "lowest weight"
        yield Bench(cores, seconds, groups), idle_class
