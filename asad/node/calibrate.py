"""Measure what sharing a core costs: pairs of real workloads under real CPU quotas.

A host and a guest run on the same cores, each in a cgroup of its own, and count units of work. Their rates
beside each other over their rates alone, over what the shares alone would leave them, are the constants μ of
the contention model (docs/explanation/contention.md). Every pair is measured between two looks at each of its
jobs alone, so that a machine that slows down or speeds up meanwhile moves both sides of the ratio.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import multiprocessing
import os
import platform
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from asad.errors import ClusterError
from asad.model import Json

# ------------------------------------------------------------------------------------------------------ model


@dataclass(frozen=True, slots=True)
class Lending:
    """How CPU is lent.

    `static`: quotas hold host and guest both, as the paper does. `idle`: the guest is in the idle class,
    under a cap.
    """

    mode: str
    share: float
    """Share of the host's cores lent, in (0, 1]."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured pair: rates are work per second over work per second alone."""

    host: str
    guest: str
    lending: Lending
    host_demand: float
    guest_demand: float
    """CPU that each uses alone, as a fraction of its cores."""
    host_rate: float
    guest_rate: float
    other_fraction: float
    """CPU of the same cores that went to others (other work, the hypervisor), as a fraction of them."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Median and interquartile range of `samples` ratios."""

    median: float
    iqr: float
    samples: int


SMALLEST_PREDICTION = 0.05
"""A rate predicted below this tells nothing about μ: the guest starves, and the ratio is noise."""


def predicted_rates(lending: Lending, host_demand: float, guest_demand: float) -> tuple[float, float]:
    """Rates of host and guest on the same cores by the contention model with μ = 1, each in [0, 1]."""
    lent = lending.share
    if lending.mode == "static":
        return min(1.0, (1 - lent) / host_demand), min(1.0, lent / guest_demand)
    return 1.0, min(1.0, min(lent, max(0.0, 1 - host_demand)) / guest_demand)


def spread_of(values: Sequence[float]) -> Estimate:
    """Median and interquartile range of one or more values."""
    low, high = np.percentile(values, (25, 75))
    return Estimate(median(values), float(high - low), len(values))


def workload_kind(name: str) -> str:
    return WORKLOADS[name][0]


def fit(samples: Iterable[Sample], mode: str) -> dict[str, Estimate]:
    """μ of host and guest under lending `mode`, for pairs that compute and for pairs that stream memory.

    μ is the median of measured over predicted rate, unclipped. Mixed pairs are left out: they check the
    interpolation between the two. Raises ClusterError when one of the four has no sample.
    """
    ratios: dict[str, list[float]] = {key: [] for key in MU}
    for sample in samples:
        kind = workload_kind(sample.host)
        if sample.lending.mode != mode or kind != workload_kind(sample.guest):
            continue
        predicted = predicted_rates(sample.lending, sample.host_demand, sample.guest_demand)
        for role, rate, expected in zip(
            ("host", "guest"), (sample.host_rate, sample.guest_rate), predicted, strict=True
        ):
            if expected >= SMALLEST_PREDICTION:
                ratios[f"mu_{role}_{kind}"].append(rate / expected)
    for key, values in ratios.items():
        if not values:
            raise ClusterError(f"calibration: no pair says anything about {key} ({mode}); measure all pairs")
    return {key: spread_of(values) for key, values in ratios.items()}


MU = ("mu_host_cpu", "mu_guest_cpu", "mu_host_memory", "mu_guest_memory")

# -------------------------------------------------------------------------------------------------- workloads

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


# ---------------------------------------------------------------------------------------------------- cgroups

QUOTA_PERIOD_US = 100_000
WEIGHT_FILE = {1: "cpu.shares", 2: "cpu.weight"}
"""By cgroup version, as are the weights below."""
LOWEST_WEIGHT = {1: 2, 2: 1}
DEFAULT_WEIGHT = {1: 1024, 2: 100}
HIGHEST_WEIGHT = {1: 262144, 2: 10000}
GROUP_NAME = re.compile(r"asad-calibrate-(\d+)-(\d+)")
"""Process id and start time (ticks after boot) of the calibrator that made the group."""


@dataclass(frozen=True, slots=True)
class CpuGroup:
    """One cgroup under the `cpu` controller. Its methods raise OSError when the kernel refuses."""

    path: Path
    version: int

    def add(self, process: int) -> None:
        (self.path / "cgroup.procs").write_text(str(process))

    def cap(self, cores: float | None) -> None:
        """Hold the group to `cores` cores' worth of CPU time (above 0), or lift its quota."""
        quota = -1 if cores is None else max(1000, round(cores * QUOTA_PERIOD_US))
        if self.version == 1:
            (self.path / "cpu.cfs_period_us").write_text(str(QUOTA_PERIOD_US))
            (self.path / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            limit = "max" if cores is None else str(quota)
            (self.path / "cpu.max").write_text(f"{limit} {QUOTA_PERIOD_US}")

    def weigh(self, weight: int) -> None:
        (self.path / WEIGHT_FILE[self.version]).write_text(str(weight))

    @property
    def has_idle(self) -> bool:
        """Whether the kernel has the idle class for groups (Linux 5.15); else the lowest weight stands in."""
        return (self.path / "cpu.idle").exists()

    def set_idle(self, idle: bool) -> None:
        """Put the group into the idle class, or take it out again."""
        if self.has_idle:
            (self.path / "cpu.idle").write_text(str(int(idle)))
        else:
            self.weigh((LOWEST_WEIGHT if idle else DEFAULT_WEIGHT)[self.version])

    def child(self, name: str) -> CpuGroup:
        """A new group within this one."""
        if self.version == 2:
            (self.path / "cgroup.subtree_control").write_text("+cpu")
        path = self.path / name
        path.mkdir()
        return CpuGroup(path, self.version)

    def remove(self) -> None:
        """Remove the group and those within it, ending what is left in them; if it is gone already, fine.

        Raises ClusterError when it will not go.
        """
        for inner in self.path.glob("*/"):
            CpuGroup(inner, self.version).remove()
        for _ in range(100):
            try:
                self.path.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:  # still populated, if only by a process that is about to be gone
                with contextlib.suppress(OSError):
                    for process in map(int, (self.path / "cgroup.procs").read_text().split()):
                        if process > 0:  # 0 stands for a process of another PID namespace
                            with contextlib.suppress(ProcessLookupError):
                                os.kill(process, signal.SIGKILL)
                time.sleep(0.02)
        raise ClusterError(f"{self.path}: cannot be removed; end what runs in it and remove it with rmdir")


@dataclass(frozen=True, slots=True)
class CpuController:
    """Where groups with CPU quotas can be made."""

    version: int
    parent: Path

    def enable(self) -> Callable[[], None]:
        """Let groups made here have the `cpu` controller; returns what leaves the node as it was."""
        switch = self.parent / "cgroup.subtree_control"
        if self.version == 1 or "cpu" in switch.read_text().split():
            return lambda: None

        def undo() -> None:
            with contextlib.suppress(OSError):  # somebody else may have come to rely on it
                switch.write_text("-cpu")

        switch.write_text("+cpu")
        return undo

    def create(self) -> CpuGroup:
        """A new group that bears the id of this process."""
        process = os.getpid()
        path = self.parent / f"asad-calibrate-{process}-{start_ticks(process)}"
        path.mkdir()
        return CpuGroup(path, self.version)

    def remove_leftovers(self) -> list[str]:
        """Remove the groups of calibrators that did not live to do it themselves; returns their names."""
        removed = []
        for path in sorted(self.parent.glob("asad-calibrate-*")):
            named = GROUP_NAME.fullmatch(path.name)
            if named and start_ticks(int(named[1])) != int(named[2]):
                CpuGroup(path, self.version).remove()
                removed.append(path.name)
        return removed


def start_ticks(process: int) -> int:
    """When a process started (ticks after boot), which tells it from a later namesake; -1 if it is gone."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return -1
    columns = stat.rpartition(")")[2].split()  # the name, in parentheses, may hold anything
    return -1 if columns[0] in "ZX" else int(columns[19])


def candidate_parents(mounts: str, membership: str) -> list[CpuController]:
    """Where groups could be made, best first: our own group, then the root, of v1's `cpu` and of v2.

    `mounts` and `membership` are the texts of /proc/self/mounts and /proc/self/cgroup.
    """
    own = {}
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller] = path
    found: list[CpuController] = []
    for line in mounts.splitlines():
        _, point, kind, options = line.split()[:4]
        root = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point))
        if kind == "cgroup" and "cpu" in options.split(","):
            version, path = 1, own.get("cpu", "/")
        elif kind == "cgroup2":
            version, path = 2, own.get("", "/")
        else:
            continue
        parents = dict.fromkeys((root / path.lstrip("/"), root))
        found.extend(CpuController(version, parent) for parent in parents)
    return found


def find_controller(candidates: Iterable[CpuController] | None = None) -> CpuController | None:
    """The first place in which a group can be made and really takes a quota; None if there is none."""
    if candidates is None:
        candidates = candidate_parents(
            Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace"),
            Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace"),
        )
    for controller in candidates:
        with contextlib.ExitStack() as cleanup, contextlib.suppress(OSError):
            cleanup.callback(controller.enable())
            group = controller.create()
            cleanup.callback(group.remove)
            probe = group.child("probe")
            probe.cap(0.5)
            probe.set_idle(True)
            return controller
    return None


# ------------------------------------------------------------------------------------------------ measurement


@dataclass(frozen=True, slots=True)
class Provenance:
    """On what, and how, the constants were measured."""

    kernel: str
    cpu_model: str
    cgroup: str
    """`v1`, `v2` or `none`."""
    quotas: str
    """`real`, or `none` when no cgroup could be written: then nothing capped the guest."""
    idle_class: str
    """`cpu.idle`, `lowest weight` or `SCHED_IDLE`."""
    cores: int
    seconds: float
    repeats: int
    array_bytes: int
    """Memory that each streaming worker walks over."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured."""

    samples: tuple[Sample, ...]
    provenance: Provenance
    leftovers: tuple[str, ...] = ()
    """Groups of killed calibrations that were removed first."""
    crowds: tuple[Mapping[str, Json], ...] = ()
    """What several hosts and guests did on the same cores (`asad.node.crowds.crowd_figures`)."""

    @property
    def other_fraction(self) -> float:
        """Median share of the cores that went to somebody else while pairs ran."""
        return median(sample.other_fraction for sample in self.samples)

    def to_json(self) -> dict[str, Json]:
        """The constants (clipped to 1), their spread and how they were measured; what `to_toml` writes.

        At the top those of the idle class, which is how asad lends; in `static` those of quotas on both.
        `predicted_*` of a pair includes μ; `*_error` is the median of measured minus predicted.
        """
        modes = {key: fit(self.samples, key) for key in dict.fromkeys(s.lending.mode for s in self.samples)}
        constants = {mode: constants_of(estimates) for mode, estimates in modes.items()}
        pairs = [
            pair_figures([s for s in self.samples if (s.host, s.guest, s.lending) == key], modes[key[2].mode])
            for key in dict.fromkeys((s.host, s.guest, s.lending) for s in self.samples)
        ]
        facts = self.provenance
        return {
            **constants.pop("idle"),
            **constants,
            "measured": {
                "kernel": facts.kernel,
                "cpu_model": facts.cpu_model,
                "cgroup": facts.cgroup,
                "quotas": facts.quotas,
                "idle_class": facts.idle_class,
                "cores": facts.cores,
                "seconds": facts.seconds,
                "repeats": facts.repeats,
                "array_bytes": facts.array_bytes,
                "other_fraction": round(self.other_fraction, 4),
                "pair": list(pairs),
                "crowd": [dict(row) for row in self.crowds],
            },
        }

    def to_toml(self) -> str:
        """The file that the replay loads (profiles/contention.toml)."""
        return (
            "# Constants of the contention model, as `asactl calibrate` measured them on one machine:\n"
            "# factors on the rates of host and guest. At the top: guests in the idle class; in [static]:\n"
            "# quotas on host and guest.\n" + toml_table(self.to_json(), "")
        )


def constants_of(estimates: dict[str, Estimate]) -> dict[str, Json]:
    """The four μ, clipped to 1, with their spread (interquartile range) and their medians before clipping."""
    return {
        **{key: round(min(1.0, estimate.median), 4) for key, estimate in estimates.items()},
        "spread": {key: round(estimate.iqr, 4) for key, estimate in estimates.items()},
        "unclipped": {key: round(estimate.median, 4) for key, estimate in estimates.items()},
    }


def pair_figures(samples: Sequence[Sample], mu: dict[str, Estimate]) -> dict[str, Json]:
    """Medians of one pair under one lending: predicted (with μ) and measured rates of both, and the error."""
    first = samples[0]
    kinds = {workload_kind(first.host), workload_kind(first.guest)}
    row: dict[str, Json] = {
        "host": first.host,
        "guest": first.guest,
        "mode": first.lending.mode,
        "share": first.lending.share,
    }
    bare = [predicted_rates(s.lending, s.host_demand, s.guest_demand) for s in samples]
    measured = [(s.host_rate, s.guest_rate) for s in samples]
    for index, role in enumerate(("host", "guest")):
        factor = fmean(
            min(1.0, mu[f"mu_{role}_{kind}"].median) for kind in kinds
        )  # a mixed pair lies halfway
        predicted = [rates[index] * factor for rates in bare]
        seen = spread_of([rates[index] for rates in measured])
        errors = [m[index] - p for m, p in zip(measured, predicted, strict=True)]
        row[f"{role}_demand"] = round(median(getattr(s, f"{role}_demand") for s in samples), 4)
        row[f"predicted_{role}"] = round(median(predicted), 4)
        row[f"measured_{role}"] = round(seen.median, 4)
        row[f"measured_{role}_iqr"] = round(seen.iqr, 4)
        row[f"{role}_error"] = round(median(errors), 4)
    return row


def toml_table(table: dict[str, Any], name: str) -> str:
    """A table as TOML text: plain values first, then tables, then arrays of tables. Keys must be bare."""
    lines = []
    for key, value in table.items():
        if isinstance(value, str):
            value = "".join(c for c in value if c.isprintable())
        if isinstance(value, str | int | float):
            lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    for key, value in table.items():
        inner = f"{name}.{key}" if name else key
        if isinstance(value, dict):
            lines.append(f"\n[{inner}]\n{toml_table(value, inner).rstrip()}")
        elif isinstance(value, list):
            lines.extend(f"\n[[{inner}]]\n{toml_table(row, inner).rstrip()}" for row in value)
    return "\n".join(lines) + "\n"


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


def cpu_model() -> str:
    """Name of the processor as /proc/cpuinfo has it, else the architecture."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.machine()


def window_count(pairs: int, repeats: int, real_quotas: bool) -> int:
    """How many windows a calibration of so many pairs and repeats takes."""
    return pairs * repeats * (4 + len(lendings(real_quotas)))


def lendings(real_quotas: bool) -> tuple[Lending, ...]:
    """What is measured of each pair; without quotas only the idle class is left, uncapped."""
    if real_quotas:
        return (Lending("static", 0.5), Lending("idle", 0.5))
    return (Lending("idle", 1.0),)


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


def measure_pair(
    bench: Bench, host: str, guest: str, order: Sequence[Lending], on_window: Callable[[str], None]
) -> list[Sample]:
    """Every lending of one pair once, between two looks at each of its jobs alone."""

    def window(roles: Sequence[str], lending: Lending | None) -> tuple[dict[str, tuple[float, float]], float]:
        what = "alone" if lending is None else lending.mode
        on_window(f"{' + '.join({'host': host, 'guest': guest}[role] for role in roles)} ({what})")
        return bench.run(roles, lending)

    alone: dict[str, list[tuple[float, float]]] = {"host": [], "guest": []}
    for role in ("host", "guest"):
        alone[role].append(window((role,), None)[0][role])
    together = [(lending, *window(("host", "guest"), lending)) for lending in order]
    for role in ("guest", "host"):
        alone[role].append(window((role,), None)[0][role])
    reference = {role: fmean(rate for rate, _ in looks) for role, looks in alone.items()}
    demand = {role: min(1.0, fmean(cpu for _, cpu in looks)) for role, looks in alone.items()}
    if not all(min(reference[role], demand[role]) > 0 for role in alone):
        raise ClusterError(f"calibration: {host} or {guest} made no progress alone; give it more --seconds")
    return [
        Sample(
            host,
            guest,
            lending,
            demand["host"],
            demand["guest"],
            rates["host"][0] / reference["host"],
            rates["guest"][0] / reference["guest"],
            other,
        )
        for lending, rates, other in together
    ]


def cores_for(cores: int) -> list[int]:
    """The cores to measure on. Raises ClusterError if this process may not use so many."""
    allowed = sorted(os.sched_getaffinity(0))
    if not 1 <= cores <= len(allowed):
        raise ClusterError(f"calibration: {cores} cores asked for; this process may use 1 to {len(allowed)}")
    return allowed[-cores:]  # the first cores are those that serve interrupts


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
            both.weigh(HIGHEST_WEIGHT[both.version])  # other work must not pass for contention of the pair
            groups = {role: both.child(role) for role in ("host", "guest")}
            idle_class = "cpu.idle" if groups["guest"].has_idle else "lowest weight"
        yield Bench(cores, seconds, groups), idle_class


def calibrate(
    seconds: float = 1.0,
    repeats: int = 5,
    cores: int = 1,
    pairs: Sequence[tuple[str, str]] = PAIRS,
    controller: CpuController | None = None,
    on_window: Callable[[str], None] = lambda what: None,
) -> Calibration:
    """Measure `pairs` in windows of `seconds` (above 0), `repeats` times, on `cores` cores.

    `controller` is where quotas are set (`find_controller()`); with None the guest runs under SCHED_IDLE and
    nothing caps it. `on_window` hears what is measured before each of the `window_count()` windows. Groups
    are removed however this ends, unless by SIGKILL; then the next call removes them. Raises ClusterError
    when it cannot measure.
    """
    if not (math.isfinite(seconds) and seconds > 0 and repeats >= 1):
        raise ClusterError("calibration: needs windows longer than 0 s and at least one repeat")
    chosen = cores_for(cores)
    array_bytes = stream_bytes(chosen)
    leftovers = controller.remove_leftovers() if controller else []
    samples: list[Sample] = []
    with bench_on(chosen, seconds, controller) as (bench, idle_class):
        for host, guest in pairs:
            with bench.pair(host, guest, array_bytes):
                for repeat in range(repeats):
                    order = lendings(controller is not None)[:: -1 if repeat % 2 else 1]
                    samples += measure_pair(bench, host, guest, order, on_window)
    return Calibration(
        tuple(samples),
        Provenance(
            kernel=platform.release(),
            cpu_model=cpu_model(),
            cgroup=f"v{controller.version}" if controller else "none",
            quotas="real" if controller else "none",
            idle_class=idle_class,
            cores=cores,
            seconds=seconds,
            repeats=repeats,
            array_bytes=array_bytes,
        ),
        tuple(leftovers),
    )
