"""First fit on servers, for the schemes that plan nothing ahead: what is free in one slot, and who is put where.

The paper places by turns (round robin, §V); first fit leaves large servers whole for workers that need many GPUs.
Cost of placing one job: O((H + K)·R).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.admit.elastic import Allotment, ElasticJob, Servers, Verdict
from asad.compiling import compiled
from asad.model import Floats, Ints

SLACK = 1e-9
"""What may be missing of a capacity, since sums of fractions are not exact."""

Counts = NDArray[np.int32]
"""(H,) or (K,): how many stand on each server."""
Shared = NDArray[np.bool_]
"""(R,) which resources are on no server (`Servers.shared`)."""


@compiled
def room_for(free: Floats, demand: Floats, most: int) -> int:
    """How many of `demand` (R,) fit into `free` (R,) of one server, at most `most`."""
    fit = most
    for r in range(len(demand)):
        if demand[r] > 0.0:
            here = int(np.floor((free[r] + SLACK * max(1.0, free[r])) / demand[r]))
            fit = min(fit, max(here, 0))
    return fit


@compiled
def shared_room(free: Floats, demand: Floats, most: int, shared: Shared) -> int:
    """How many of `demand` (R,) there are for on all servers of `free` (H, R) together by what is shared, at most
    `most`."""
    fit = most
    if len(free) > 0:
        for r in range(len(demand)):
            if shared[r] and demand[r] > 0.0:
                here = int(np.floor((free[0, r] + SLACK * max(1.0, free[0, r])) / demand[r]))
                fit = min(fit, max(here, 0))
    return fit


@compiled
def take_on(free: Floats, h: int, amount: Floats, shared: Shared) -> None:
    """Take `amount` (R,) on server `h` of `free` (H, R); of what is shared on every one. Below 0 it is released."""
    for r in range(len(amount)):
        if not shared[r]:
            free[h, r] -= amount[r]
        elif amount[r] != 0.0:
            for every in range(len(free)):
                free[every, r] -= amount[r]


@compiled
def first_fit(free: Floats, demand: Floats, count: int, shared: Shared, out: Counts) -> bool:
    """Take `count` of `demand` from the first servers of `free` (H, R) with room; `out` (H,) says how many of each.

    All or nothing: False leaves `free` as it was.
    """
    out[:] = 0
    missing = count
    if shared_room(free, demand, count, shared) < count:
        return False
    for h in range(len(free)):
        if missing == 0:
            break
        out[h] = room_for(free[h], demand, missing)
        missing -= out[h]
    if missing > 0:
        return False
    for h in range(len(free)):
        if out[h] > 0:
            take_on(free, h, out[h] * demand, shared)
    return True


def allotment(workers: Counts, servers: Counts) -> Allotment:
    """From counts on every server to those with at least one."""
    h, k = np.flatnonzero(workers), np.flatnonzero(servers)
    return Allotment(
        h.astype(np.int32), workers[h].astype(np.int32), k.astype(np.int32), servers[k].astype(np.int32)
    )


class Room:
    """What is free of all servers in one slot."""

    def __init__(self, servers: Servers) -> None:
        self.workers: Floats = np.ascontiguousarray(servers.workers, np.float64).copy()
        self.parameter_servers: Floats = np.ascontiguousarray(servers.parameter_servers, np.float64).copy()
        self.shared = servers.is_shared

    def place(self, job: ElasticJob, workers: int) -> Allotment | None:
        """Put `workers` and the parameter servers that they need on the first servers with room; None if they do
        not all fit."""
        at = np.zeros(len(self.workers), np.int32)
        worker, server = (np.ascontiguousarray(demand, np.float64) for demand in (job.worker, job.server))
        if not first_fit(self.workers, worker, workers, self.shared, at):
            return None
        beside = np.zeros(len(self.parameter_servers), np.int32)
        if not first_fit(self.parameter_servers, server, job.servers_for(workers), self.shared, beside):
            for h in np.flatnonzero(at).tolist():
                take_on(self.workers, h, -at[h] * worker, self.shared)
            return None
        return allotment(at, beside)

    def take(self, job: ElasticJob, held: Allotment) -> bool:
        """Take exactly what `held` names; False, and nothing taken, if it is not all free."""
        for free, demand, where, count in self._sides(job, held):
            for server, number in zip(where.tolist(), count.tolist(), strict=True):
                if room_for(free[server], demand, number) < number:
                    return False
            together = int(count.sum())
            if shared_room(free, demand, together, self.shared) < together:
                return False
        self._change(job, held, 1.0)
        return True

    def free(self, job: ElasticJob, held: Allotment) -> None:
        """Free what `held` names."""
        self._change(job, held, -1.0)

    def _change(self, job: ElasticJob, held: Allotment, sign: float) -> None:
        """Take it, or with `sign` -1 release it."""
        for free, demand, where, count in self._sides(job, held):
            for server, number in zip(where.tolist(), count.tolist(), strict=True):
                take_on(free, server, sign * number * demand, self.shared)

    def _sides(self, job: ElasticJob, held: Allotment) -> tuple[tuple[Floats, Floats, Ints, Ints], ...]:
        return (
            (self.workers, job.worker, held.worker_server, held.workers),
            (self.parameter_servers, job.server, held.parameter_server, held.servers),
        )


def most_at_once(servers: Servers, job: ElasticJob, wanted: int) -> int:
    """How many workers of `job`, at most `wanted`, an empty cluster holds with their parameter servers."""
    workers = sum(room_for(row, job.worker, wanted) for row in servers.workers)
    workers = min(workers, shared_room(servers.workers, job.worker, wanted, servers.is_shared))
    if job.server_bandwidth <= 0:
        return workers
    most = job.servers_for(workers)
    beside = min(most, sum(room_for(row, job.server, most) for row in servers.parameter_servers))
    while workers and job.servers_for(workers) > beside:
        workers -= 1
    return workers


def refusal(servers: Servers, job: ElasticJob, least: int) -> Verdict | None:
    """Of a job of which not even an empty cluster holds `least` workers at one time."""
    if most_at_once(servers, job, least) >= least:
        return None
    what = f"its {least} workers do not fit" if least > 1 else "not one worker of it fits"
    return Verdict(False, f"{what} into the empty cluster")
