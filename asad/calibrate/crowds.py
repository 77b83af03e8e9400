"""Measure crowds: n hosts and m guests on k cores, the guests kept to their own cores or widened to all.

A host has a core of its own, guests are in the idle class and uncapped. That is compared with the fluid by which pools
are lent from: hosts run as if alone, and guests divide what hosts leave by water-filling, each guest on its own core,
or, if they are wide, all on all cores, each at most one core's worth (docs/explanation/contention.md).
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from asad.calibrate.bench import Bench, bench_on, cores_for, stream_bytes
from asad.calibrate.fitting import fit, spread_of
from asad.calibrate.groups import CpuController
from asad.calibrate.result import Calibration
from asad.calibrate.workloads import Job
from asad.errors import ClusterError
from asad.model import Json


@dataclass(frozen=True, slots=True)
class Crowd:
    """What runs together. Host i is on core i; guest j has core j modulo k for its own."""

    hosts: tuple[str, ...]
    """Workloads, of as many cores."""
    guests: tuple[str, ...]
    wide: bool
    """Guests may run on every core."""
    barrier: bool = False
    """The hosts are the tasks of one job, which wait for each other after each step."""

    @property
    def words(self) -> str:
        """What it is, in a line."""
        hosts = f"{_counted(self.hosts)} that wait for each other" if self.barrier else _counted(self.hosts)
        return f"{hosts}, {_counted(self.guests)} {'on all cores' if self.wide else 'on their own cores'}"


@dataclass(frozen=True, slots=True)
class CrowdSample:
    """One measurement of a crowd. Rates are work per second over work per second alone, means over hosts and guests."""

    crowd: Crowd
    predicted_guest: float
    """By the fluid, with all constants 1; of a host it is 1."""
    host_rate: float
    guest_rate: float
    other_fraction: float
    """CPU of the cores that went to others, as a fraction of them."""


def crowds_of(cores: int) -> tuple[Crowd, ...]:
    """What is measured on so many cores."""
    half = math.ceil(cores / 2)
    mixed = ("cpu",) * half + ("duty-30",) * (cores - half)
    kinds = [
        Crowd(("duty-30",) * cores, ("duty-60",) * (2 * cores), wide=False),
        Crowd(("duty-60",) * cores, ("duty-60",) * cores, wide=False),
    ]
    if cores > 1:
        kinds += [
            Crowd(("duty-30",) * cores, ("cpu",) * half, wide=False),
            Crowd(mixed, ("cpu",) * half, wide=False),
            Crowd(("duty-60",) * cores, ("cpu",) * half, wide=False, barrier=True),
        ]
    wide = [Crowd(one.hosts, one.guests, wide=True, barrier=one.barrier) for one in kinds if cores > 1]
    return (*kinds, *wide)


def water_fill(amount: float, wants: Sequence[float]) -> list[float]:
    """`amount` among those who want so much: all have the same, but nobody more than he wants."""
    given = [0.0] * len(wants)
    left = amount
    for place, at in enumerate(sorted(range(len(wants)), key=lambda at: wants[at])):
        given[at] = min(wants[at], left / (len(wants) - place))
        left -= given[at]
    return given


def predicted_guests(crowd: Crowd, host_use: Sequence[float], guest_use: Sequence[float]) -> list[float]:
    """Rate of each guest by the fluid; uses are CPU over one core, alone."""
    cores = len(crowd.hosts)
    idle = [max(0.0, 1.0 - use) for use in host_use]
    if crowd.wide:
        parts = water_fill(sum(idle), guest_use)
    else:
        parts = [0.0] * len(guest_use)
        for core in range(cores):
            here = range(core, len(guest_use), cores)
            for at, part in zip(here, water_fill(idle[core], [guest_use[at] for at in here]), strict=True):
                parts[at] = part
    return [min(1.0, part / use) for part, use in zip(parts, guest_use, strict=True)]


def crowd_windows(cores: int, repeats: int) -> int:
    """How many windows all crowds take."""
    return repeats * sum(3 + len(crowd.guests) for crowd in crowds_of(cores))


def with_crowds(
    calibration: Calibration,
    controller: CpuController | None = None,
    on_window: Callable[[str], None] = lambda what: None,
) -> Calibration:
    """The calibration of the same cores, windows and repeats with what crowds showed there.

    Raises ClusterError when it cannot measure.
    """
    facts = calibration.provenance
    chosen = cores_for(facts.cores)
    array_bytes = stream_bytes(chosen)
    rows: list[dict[str, Json]] = []
    mu = fit(calibration.samples, "idle")
    constants = [min(1.0, mu[f"mu_{role}_cpu"].median) for role in ("host", "guest")]
    with bench_on(chosen, facts.seconds, controller) as (bench, _):
        for crowd in crowds_of(facts.cores):
            samples = measure_crowd(bench, crowd, facts.repeats, array_bytes, on_window)
            rows.append(crowd_figures(crowd, samples, *constants))
    return replace(calibration, crowds=tuple(rows))


def crowd_figures(
    crowd: Crowd, samples: Sequence[CrowdSample], mu_host: float, mu_guest: float
) -> dict[str, Json]:
    """Medians of one crowd: predicted (with the constants) and measured rates, as rows of pairs have them."""
    row: dict[str, Json] = {
        "hosts": " ".join(crowd.hosts),
        "guests": " ".join(crowd.guests),
        "wide": crowd.wide,
        "barrier": crowd.barrier,
    }
    guest = mu_guest * fmean(sample.predicted_guest for sample in samples)
    for role, predicted, rates in (
        ("host", mu_host, [sample.host_rate for sample in samples]),
        ("guest", guest, [sample.guest_rate for sample in samples]),
    ):
        seen = spread_of(rates)
        row[f"predicted_{role}"] = round(predicted, 4)
        row[f"measured_{role}"] = round(seen.median, 4)
        row[f"measured_{role}_iqr"] = round(seen.iqr, 4)
    row["other_fraction"] = round(spread_of([sample.other_fraction for sample in samples]).median, 4)
    return row


def measure_crowd(
    bench: Bench, crowd: Crowd, repeats: int, array_bytes: int, on_window: Callable[[str], None]
) -> list[CrowdSample]:
    """One crowd, `repeats` times: its hosts alone, each guest alone, all together, and the hosts alone again."""
    samples = []
    with _running(bench, crowd, array_bytes) as (hosts, guests):

        def window(jobs: Mapping[str, Job], what: str) -> tuple[dict[str, tuple[float, float]], float]:
            on_window(f"{crowd.words} ({what})")
            return bench.window(jobs)

        for _ in range(repeats):
            before, _ = window(hosts, "hosts alone")
            alone = {name: window({name: job}, "a guest alone")[0][name] for name, job in guests.items()}
            bench.idle(True)
            together, other = window({**hosts, **guests}, "together")
            bench.idle(False)
            after, _ = window(hosts, "hosts alone")
            host_alone = {name: fmean((before[name][0], after[name][0])) for name in hosts}
            guest_use = [alone[name][1] for name in guests]
            if not all([*host_alone.values(), *guest_use]):
                raise ClusterError(f"calibration: of {crowd.words} somebody made no progress alone")
            # of a job of several tasks the use is that of all its cores
            host_use = [
                fmean((before[name][1], after[name][1])) / len(job.processes)
                for name, job in hosts.items()
                for _ in job.processes
            ]
            samples.append(
                CrowdSample(
                    crowd,
                    fmean(predicted_guests(crowd, host_use, guest_use)),
                    fmean(together[name][0] / host_alone[name] for name in hosts),
                    fmean(together[name][0] / alone[name][0] for name in guests),
                    other,
                )
            )
    return samples


@contextlib.contextmanager
def _running(bench: Bench, crowd: Crowd, array_bytes: int) -> Iterator[tuple[dict[str, Job], dict[str, Job]]]:
    """All workers of a crowd, paused, in their groups; ended on the way out."""
    cores, hosts, guests = bench.cores, dict[str, Job](), dict[str, Job]()
    try:
        if crowd.barrier:
            hosts["host"] = Job(crowd.hosts[0], cores, array_bytes, barrier=True)
        else:
            for at, workload in enumerate(crowd.hosts):
                hosts[f"host {at}"] = Job(workload, cores[at : at + 1], array_bytes)
        for at, workload in enumerate(crowd.guests):
            guests[f"guest {at}"] = Job(workload, [cores[at % len(cores)]], array_bytes)
        for role, jobs in (("host", hosts), ("guest", guests)):
            for job in jobs.values():
                job.wait(60)
                bench.join(role, job)
                if role == "guest" and crowd.wide:
                    for process in job.processes:
                        os.sched_setaffinity(process.pid, cores)
        yield hosts, guests
    finally:
        for job in (*hosts.values(), *guests.values()):
            job.end()


def _counted(workloads: Sequence[str]) -> str:
    """`2 cpu and 1 duty-30`."""
    return " and ".join(f"{workloads.count(name)} {name}" for name in dict.fromkeys(workloads))
