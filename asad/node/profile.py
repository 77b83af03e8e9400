"""What every job on this node uses: a window of looks, made into one `JobSample` a job.

Most of it is in the job's cgroup. What cgroups do not count is asked of the processes: bytes read and written where no
`io` controller counts them (through psutil), and how long threads waited for a core in v1 (/proc/<tid>/schedstat).
The files of a job are kept open: reading one is then a tenth of the work.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from asad.node.cgroups import Cgroups, JobGroup, core_ids, read
from asad.node.memory import needed_bytes
from asad.node.pressure import Fractions
from asad.node.progress_files import FOLDER, offer_file, read_progress, remove_file, tidy
from asad.node.quotas import Quotas
from asad.port import JobSample

WINDOW = 6
"""Looks in a window."""
PEAK_S = 600.0
"""Over so long the 95th percentile is taken."""
PARALLEL_CORES = 1.2
"""A job in a parallel stage keeps more cores than this busy."""
PROCESSES = 32
"""At most so many processes of a job are asked for their I/O, the latest started."""
RARE_LOOKS = 3
"""At every so many looks processes are asked for their I/O, which costs most, and files tried that were not there."""
THREADS = 32
"""At most so many threads of a job are asked for how long they waited, the latest started."""
FILE_BYTES = 16384
MOST_STEPS = 1 << 30


@dataclass(slots=True)
class Watched:
    """One job, as far as it has been seen."""

    group: JobGroup
    since_s: float
    files: dict[str, int] = field(default_factory=dict)
    """Path below the hierarchies' root → open descriptor."""
    missing: set[str] = field(default_factory=set)
    """Files that were not there at the last `RARE_LOOKS`th look."""
    cores: tuple[int, ...] = ()
    looks: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=WINDOW + 1))
    """(time, CPU seconds so far), oldest first."""
    rates: deque[tuple[float, float]] = field(default_factory=deque)
    """(time, busy cores since the look before) of the last `PEAK_S`, oldest first."""
    cpu_s: float = 0.0
    periods: tuple[float, float] = (math.nan, math.nan)
    """Quota periods so far, and those in which it was stopped."""
    stalls: Fractions = field(default_factory=Fractions)
    turns: dict[int, tuple[float, float]] | None = None
    """Thread → seconds on a core and seconds of waiting for one, at the last look; None if that was not looked at."""
    sampled: int = 0
    processes: dict[int, psutil.Process] = field(default_factory=dict)
    counted: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    """Process → CPU seconds, bytes read, bytes written, at the last look."""
    process_cpu_s: float = 0.0
    read_bytes: float = 0.0
    written_bytes: float = 0.0
    progress: float = math.nan
    progress_file: bool = False
    steps_seen: int = 0
    """One more than the highest number of a step that was here: Slurm numbers the steps of a job from 0 on."""


class Profile:
    """The jobs of one node. `wall` is UTC epoch (s); `progress` the folder of progress files."""

    def __init__(
        self,
        cgroups: Cgroups,
        quotas: Quotas,
        wall: Callable[[], float],
        progress: Path = FOLDER,
        *,
        offer_progress: bool = True,
    ) -> None:
        self.cgroups, self.quotas, self.wall, self.progress = cgroups, quotas, wall, progress
        self.offer_progress = offer_progress
        """Make progress files for jobs?"""
        self.own_cores: Callable[[str], tuple[int, ...]] = lambda job_id: ()
        """The cores that Slurm gave a job that runs on more of them; empty for all others."""
        self.jobs: dict[str, Watched] = {}

    def follow(self, jobs: Mapping[str, JobGroup]) -> None:
        """Take in jobs that are new, and let go those that have ended."""
        for job_id, watched in list(self.jobs.items()):
            group = jobs.get(job_id)
            if group is None or group.inode != watched.group.inode:
                self._close(watched)
                del self.jobs[job_id]
                if group is None:
                    remove_file(job_id, self.progress)
        if self.offer_progress:
            tidy(jobs.keys(), self.progress)
        for job_id, group in jobs.items():
            if job_id not in self.jobs:
                self.jobs[job_id] = Watched(group, self.wall())
            watched = self.jobs[job_id]
            watched.group = group
            if self.offer_progress and not watched.progress_file and group.uid >= 0:
                watched.progress_file = offer_file(job_id, group.uid, self.progress)
            if not watched.cores:
                watched.cores = self._cores(watched)

    def close(self) -> None:
        """Close every file. Progress files stay: the jobs still run."""
        for watched in self.jobs.values():
            self._close(watched)
        self.jobs.clear()

    def cores(self) -> dict[str, frozenset[int]]:
        """The cores of every job, by their numbers on the node."""
        return {job_id: frozenset(watched.cores) for job_id, watched in self.jobs.items()}

    def look(self, now_s: float, guests: Collection[str]) -> dict[str, JobSample]:
        """Look at every job. `now_s` is a clock that never goes back; `guests` says which jobs are guests."""
        return {
            job_id: self._sample(job_id, watched, now_s, job_id in guests)
            for job_id, watched in self.jobs.items()
        }

    def waits(self, job_id: str) -> dict[int, float] | None:
        """Seconds for which the job waited for CPU so far (see `Fractions`); None if the kernel does not count it."""
        watched = self.jobs.get(job_id)
        if watched is None:
            return None
        if self.cgroups.version == 2:
            text = self._text(watched, "", "cpu.pressure")
            some = text.partition("\n")[0].rpartition("total=")[2]
            return {0: int(some) / 1e6} if some.isdecimal() else None
        return only_waits(thread_turns(self.cgroups.threads(watched.group)[-THREADS:], self.cgroups.proc))

    def cpu_s(self, job_id: str) -> float:
        """CPU seconds of a job so far; NaN where no cgroup counts them."""
        watched = self.jobs.get(job_id)
        if watched is None:
            return math.nan
        return self._usage_s(
            watched, self._text(watched, "", "cpu.stat") if self.cgroups.version == 2 else ""
        )

    # ------------------------------------------------------------------------------------------------- one job

    def _sample(self, job_id: str, watched: Watched, now_s: float, guest: bool) -> JobSample:
        cgroups, group = self.cgroups, watched.group
        rare = watched.sampled % RARE_LOOKS == 0
        watched.sampled += 1
        if rare:
            watched.missing.clear()
        v1 = cgroups.version == 1
        cores = self._cores(watched)
        if cores != watched.cores:
            watched.cores = cores
            watched.looks.clear()
            watched.rates.clear()
        threads, steps = cgroups.threads_and_steps(group)
        watched.steps_seen = max([watched.steps_seen, *(step + 1 for step in steps)])
        quota = self.quotas.quota_cores(job_id)
        cpu_stat = ""
        if not v1:
            cpu_stat = self._text(watched, "", "cpu.stat")
        elif not math.isnan(quota):
            with contextlib.suppress(OSError):
                cpu_stat = (self.quotas.held[job_id].place / "cpu.stat").read_text()
        usage_s = self._usage_s(watched, cpu_stat)
        io = None if v1 else io_bytes(self._text(watched, "", "io.stat"))
        if math.isnan(usage_s) or (io is None and rare):
            self._count(watched, cgroups.pids(group))
        io = io or (watched.read_bytes, watched.written_bytes)
        watched.cpu_s = watched.process_cpu_s if math.isnan(usage_s) else usage_s
        before_s = watched.looks[-1][0] if watched.looks else math.nan
        watched.looks.append((now_s, watched.cpu_s))
        add_rate(watched.rates, watched.looks)
        turns = thread_turns(threads[-THREADS:], cgroups.proc) if v1 or guest else None
        delayed = delayed_part(watched.turns, turns, now_s - before_s)
        watched.turns = turns
        waits = self.waits(job_id) if not v1 else only_waits(turns)
        pressure = math.nan if waits is None else watched.stalls.look(waits, now_s)
        if not math.isnan(stated := read_progress(job_id, group.uid, self.progress)):
            watched.progress = stated
        mean, last = busy(watched.looks)
        peak = math.nan if math.isnan(mean) else percentile(rate for _, rate in watched.rates)
        count = max(1, len(cores))
        return JobSample(
            job_id=job_id,
            guest=guest,
            cores=len(cores),
            core_ids=cores,
            # min(NaN, 1) is NaN, and min(1, NaN) is not
            cpu_fraction=min(mean / count, 1.0),
            cpu_peak=min(peak / count, 1.0),
            cpu_time_s=watched.cpu_s,
            memory_bytes=self._memory_bytes(watched),
            throttled=self._throttled(watched, cpu_stat, quota),
            pressure=pressure,
            read_bytes=io[0],
            written_bytes=io[1],
            threads=len(threads),
            parallel=last > PARALLEL_CORES,
            progress=watched.progress,
            since_s=watched.since_s,
            quota=min(quota / count, 1.0),
            idle_class=self.quotas.holds_idle(job_id),
            delayed=delayed,
            steps_done=max(0, min(watched.steps_seen - len(steps), MOST_STEPS)),
        )

    def _usage_s(self, watched: Watched, cpu_stat: str) -> float:
        """CPU seconds of the job so far; NaN where no cgroup counts them."""
        if self.cgroups.version == 1:
            return self._number(watched, "cpuacct", "cpuacct.usage") / 1e9
        return key_value(cpu_stat, "usage_usec") / 1e6

    def _memory_bytes(self, watched: Watched) -> float:
        version = self.cgroups.version
        charged = self._number(
            watched, "memory", "memory.usage_in_bytes" if version == 1 else "memory.current"
        )
        return needed_bytes(charged, self._text(watched, "memory", "memory.stat"), version)

    def _throttled(self, watched: Watched, cpu_stat: str, quota: float) -> float:
        before, watched.periods = (
            watched.periods,
            (key_value(cpu_stat, "nr_periods"), key_value(cpu_stat, "nr_throttled")),
        )
        if math.isnan(quota) or math.isnan(watched.periods[0]):
            return math.nan
        if math.isnan(before[0]) or watched.periods[0] < before[0]:
            before = (0.0, 0.0)
        passed = watched.periods[0] - before[0]
        return min(1.0, (watched.periods[1] - before[1]) / passed) if passed > 0 else 0.0

    def _cores(self, watched: Watched) -> tuple[int, ...]:
        """Cores of this node that the job has."""
        if own := self.own_cores(watched.group.job_id):
            return own
        v1 = self.cgroups.version == 1
        text = self._text(watched, "cpuset", "cpuset.effective_cpus" if v1 else "cpuset.cpus.effective")
        if not text and v1:
            text = self._text(watched, "cpuset", "cpuset.cpus")
        if text:
            with contextlib.suppress(ValueError):
                return core_ids(text)
        if watched.cores:
            return watched.cores
        for pid in self.cgroups.pids(watched.group)[:1]:  # cores are not constrained here, but may be bound
            with contextlib.suppress(OSError):
                return tuple(sorted(os.sched_getaffinity(pid)))
        return ()

    def _count(self, watched: Watched, pids: Iterable[int]) -> None:
        """Add up what the processes have done since the last look. Those that ended meanwhile took theirs along."""
        latest = sorted(pids)[-PROCESSES:]
        processes, counted = {}, {}
        cpu_too = self.cgroups.version == 1 and "cpuacct/cpuacct.usage" not in watched.files
        for pid in latest:
            try:
                process = watched.processes.get(pid) or psutil.Process(pid)
                io = process.io_counters()
                cpu = sum(process.cpu_times()[:2]) if cpu_too else 0.0
            except (psutil.Error, OSError):
                continue
            now = (cpu, float(io.read_bytes), float(io.write_bytes))
            before = watched.counted.get(pid, (0.0, 0.0, 0.0))
            if any(a < b for a, b in zip(now, before, strict=True)):
                before = (0.0, 0.0, 0.0)  # another process by this number
            processes[pid], counted[pid] = process, now
            watched.process_cpu_s += max(0.0, now[0] - before[0])
            watched.read_bytes += max(0.0, now[1] - before[1])
            watched.written_bytes += max(0.0, now[2] - before[2])
        watched.processes, watched.counted = processes, counted

    # --------------------------------------------------------------------------------------------------- files

    def _text(self, watched: Watched, controller: str, name: str) -> str:
        """What a file of the job says now; "" if it is not there."""
        key = f"{controller}/{name}"
        descriptor = watched.files.get(key)
        if descriptor is None:
            if key in watched.missing:
                return ""
            path = self.cgroups.file(watched.group, controller, name)
            try:
                descriptor = watched.files[key] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                watched.missing.add(key)
                return ""
        try:
            return os.pread(descriptor, FILE_BYTES, 0).decode(errors="replace").strip()
        except OSError:
            return ""

    def _number(self, watched: Watched, controller: str, name: str) -> float:
        text = self._text(watched, controller, name)
        return float(text) if text.isdecimal() else math.nan

    def _close(self, watched: Watched) -> None:
        for descriptor in watched.files.values():
            os.close(descriptor)
        watched.files.clear()


def busy(looks: deque[tuple[float, float]]) -> tuple[float, float]:
    """Busy cores by a window of (time, CPU seconds): the mean, NaN until it is full; and the last."""
    pairs = list(looks)
    last = _rate(pairs[-2], pairs[-1]) if len(pairs) > 1 else 0.0
    return (_rate(pairs[0], pairs[-1]) if len(pairs) > WINDOW else math.nan), last


def add_rate(rates: deque[tuple[float, float]], looks: deque[tuple[float, float]]) -> None:
    """Take in what the last two looks say of how many cores were busy, and let go what is older than `PEAK_S`."""
    if len(looks) > 1:
        rates.append((looks[-1][0], _rate(looks[-2], looks[-1])))
        while rates[0][0] <= looks[-1][0] - PEAK_S:
            rates.popleft()


def _rate(before: tuple[float, float], now: tuple[float, float]) -> float:
    return max(0.0, now[1] - before[1]) / max(1e-9, now[0] - before[0])


def percentile(values: Iterable[float], part: float = 0.95) -> float:
    """The smallest of the values that so many parts of them do not exceed; NaN of none."""
    found = sorted(values)
    return found[math.ceil(part * len(found)) - 1] if found else math.nan


def key_value(text: str, key: str) -> float:
    """The number behind a key in a file of `key number` lines; NaN if it is not there."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == key and value.isdecimal():
            return float(value)
    return math.nan


def io_bytes(text: str) -> tuple[float, float] | None:
    """(read, written) of all devices in an `io.stat`; None if nothing is counted there."""
    read = written = 0.0
    for word in text.split():
        key, _, value = word.partition("=")
        if key == "rbytes":
            read += float(value)
        elif key == "wbytes":
            written += float(value)
    return (read, written) if "rbytes=" in text else None


def thread_turns(threads: Iterable[int], proc: Path) -> dict[int, tuple[float, float]] | None:
    """Seconds that each thread was on a core, and that it waited for one; None if the kernel does not count them."""
    turns = {}
    for thread in threads:
        try:
            on_core, waiting, *_ = read(f"{proc}/{thread}/schedstat").split()
            turns[thread] = (int(on_core) / 1e9, int(waiting) / 1e9)
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            return None
    return turns


def only_waits(turns: Mapping[int, tuple[float, float]] | None) -> dict[int, float] | None:
    """Seconds that each thread has waited for a core; None if the kernel does not count them."""
    return None if turns is None else {thread: waiting for thread, (_, waiting) in turns.items()}


def delayed_part(
    before: Mapping[int, tuple[float, float]] | None,
    now: Mapping[int, tuple[float, float]] | None,
    passed_s: float,
) -> float:
    """Part in [0, 1] of the last `passed_s` that waiting for a core can have cost a job; NaN if it is not known.

    Who runs or waits all the time has lost the part in which it waited; who mostly sleeps at most what it has waited.
    """
    if before is None or now is None or not passed_s > 0:
        return math.nan
    ran = waited = 0.0
    for thread, (on_core, waiting) in now.items():
        first = before.get(thread, (0.0, 0.0))
        more, longer = on_core - first[0], waiting - first[1]
        if (
            more >= 0 and longer >= 0 and more + longer <= 1.5 * passed_s
        ):  # else not one that we knew, and not new
            ran, waited = ran + more, waited + longer
    return min(waited / (ran + waited), waited / passed_s, 1.0) if waited > 0 else 0.0
