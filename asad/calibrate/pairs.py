"""Measure what sharing a core costs: pairs of real workloads under real CPU quotas.

A host and a guest run on the same cores, each in a cgroup of its own, and count units of work. Their rates
beside each other over their rates alone, over what the shares alone would leave them, are the constants μ of
the contention model (docs/explanation/contention.md). Every pair is measured between two looks at each of its
jobs alone, so that a machine that slows down or speeds up meanwhile moves both sides of the ratio.
"""

from __future__ import annotations

import contextlib
import math
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from asad.calibrate.bench import Bench, bench_on, cores_for, stream_bytes
from asad.calibrate.fitting import Lending, Sample, lendings
from asad.calibrate.groups import CpuController
from asad.calibrate.result import Calibration, Provenance
from asad.calibrate.workloads import PAIRS
from asad.errors import ClusterError


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
