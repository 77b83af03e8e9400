"""A cluster that lives from slot to slot: any scheme over a list of jobs, with the utility that came of it.

Each slot: jobs that arrive in it are put to the scheme, in their order; the scheme says who gets what; that is checked
against every capacity and every job's bounds; each job's workers do one worker-slot each. A job whose work is done
in slot t completes in it and is worth its utility at t - a + 1 slots; one that is not done at the end is worth nothing.
A scheme that was promised more than it did, or puts more on a server than it holds, is an error and not a result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from asad.admit.elastic import Allotment, ElasticJob, Scheme, Servers, Verdict
from asad.errors import AsadError

Clock = Callable[[], float]
"""Seconds, of any beginning; it only ever times decisions."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of one job."""

    verdict: Verdict
    finished: int | None
    """Slot in which its work was done; None if it never was."""
    utility: float
    decide_s: float
    """How long the scheme took to decide about it at its arrival; NaN without a clock."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of all jobs, in their order."""

    scheme: str
    jobs: tuple[Ran, ...]
    allot_s: tuple[float, ...]
    """How long the scheme took in each slot to say who gets what; NaN without a clock."""
    allotted: tuple[Mapping[int, Allotment], ...]
    """What each job had in each slot, of those with any workers."""

    @property
    def utility(self) -> float:
        """Of all jobs."""
        return float(sum(job.utility for job in self.jobs))

    @property
    def widths(self) -> list[dict[int, int]]:
        """Workers of each job in each slot, of those with any."""
        return [{number: given.width for number, given in slot.items()} for slot in self.allotted]

    def schedules(self) -> dict[int, dict[int, Allotment]]:
        """Of each job that was done: what it had, by slot."""
        found: dict[int, dict[int, Allotment]] = {
            number: {} for number, job in enumerate(self.jobs) if job.finished is not None
        }
        for slot, given in enumerate(self.allotted):
            for number, there in given.items():
                if number in found:
                    found[number][slot] = there
        return found

    @property
    def admitted(self) -> int:
        """How many jobs the scheme took in."""
        return sum(job.verdict.admitted for job in self.jobs)


def simulate(
    servers: Servers, jobs: Sequence[ElasticJob], scheme: Scheme, slots: int, clock: Clock | None = None
) -> Outcome:
    """Let `scheme` run `jobs` for `slots` slots. Raises AsadError where it breaks a constraint."""
    verdicts: list[Verdict | None] = [None] * len(jobs)
    times = [float("nan")] * len(jobs)
    finished: list[int | None] = [None] * len(jobs)
    order = sorted(range(len(jobs)), key=lambda number: jobs[number].arrival)  # sorting is stable
    left: dict[int, int] = {}
    allot_s: list[float] = []
    allotted: list[dict[int, Allotment]] = []
    read = clock or (lambda: float("nan"))
    upcoming = 0
    for slot in range(slots):
        while upcoming < len(order) and jobs[order[upcoming]].arrival <= slot:
            number = order[upcoming]
            begin = read()
            verdict = scheme.arrive(number, jobs[number])
            times[number] = read() - begin
            verdicts[number] = verdict
            if verdict.admitted:
                left[number] = jobs[number].work
            upcoming += 1
        begin = read()
        chosen = scheme.allot(slot, left)
        allot_s.append(read() - begin)
        check(servers, jobs, chosen, left, f"{scheme.name}, slot {slot}")
        allotted.append({number: given for number, given in chosen.items() if given.width})
        for number, given in allotted[-1].items():
            left[number] -= given.width
            if left[number] <= 0:
                finished[number] = slot
                del left[number]
                leave = getattr(scheme, "leave", None)
                if leave is not None:
                    leave(number, slot + 1)
    ran = tuple(
        Ran(
            verdict or Verdict(False, "it arrived after the last slot"),
            end,
            0.0 if end is None else float(job.utility(end - job.arrival + 1)),
            seconds,
        )
        for job, verdict, end, seconds in zip(jobs, verdicts, finished, times, strict=True)
    )
    return Outcome(scheme.name, ran, tuple(allot_s), tuple(allotted))


def check(
    servers: Servers,
    jobs: Sequence[ElasticJob],
    chosen: Mapping[int, Allotment],
    left: Mapping[int, int],
    where: str,
) -> None:
    """Raise AsadError if what was `chosen` for one slot breaks (3) to (7) of the paper or runs a job not in `left`."""
    used = np.zeros_like(servers.workers, np.float64)
    used_beside = np.zeros_like(servers.parameter_servers, np.float64)
    for number, given in chosen.items():
        job, width, beside = jobs[number], given.width, int(given.servers.sum())
        if number not in left:
            raise AsadError(f"{where}: job {number} is not admitted, or done, and got {width} workers")
        if width > job.most_workers:
            raise AsadError(f"{where}: job {number} got {width} workers and can use {job.most_workers}")
        if job.server_bandwidth > 0:
            if width * job.worker_bandwidth > beside * job.server_bandwidth * (1 + 1e-9) + 1e-9:
                raise AsadError(
                    f"{where}: {beside} parameter servers are too few for {width} workers of job {number}"
                )
            if beside > width:
                raise AsadError(f"{where}: job {number} got {beside} parameter servers for {width} workers")
        np.add.at(used, given.worker_server, given.workers[:, None] * job.worker)
        np.add.at(used_beside, given.parameter_server, given.servers[:, None] * job.server)
    used[:, servers.is_shared] = used[:, servers.is_shared].sum(axis=0)
    for kind, taken, capacity in (
        ("worker", used, servers.workers),
        ("parameter", used_beside, servers.parameter_servers),
    ):
        over = np.argwhere(taken > capacity + 1e-6 * np.maximum(1.0, capacity))
        if len(over):
            server, resource = over[0].tolist()
            raise AsadError(
                f"{where}: {kind} server {server} holds {capacity[server, resource]:g} of "
                f"{servers.resources[resource]} and got {taken[server, resource]:g}"
            )
