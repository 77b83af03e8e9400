"""Constraints (2) to (13) of problem (1), checked one by one: a judge of schedules that knows no algorithm.

Source: Bao, Peng, Wu, Li (INFOCOM 2018), section III-C. Written apart from what makes schedules, in the paper's own
terms: y_ih(t) and z_ik(t) are laid out in full, so it is for tests and for instances, not for a daemon. Cost:
O(I·T·(H + K)·R) in the worst case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from asad.admit.elastic import Allotment, ElasticJob, Schedule, Servers

ROUNDING = 1e-6
"""Relative; amounts are floats."""

Layout = Mapping[int, Mapping[int, int]]
"""By slot and server: tasks of one job."""


def violation(
    servers: Servers,
    jobs: Sequence[ElasticJob],
    schedules: Mapping[int, Schedule],
    slots: int,
    completes: Mapping[int, int] | None = None,
) -> str | None:
    """The first constraint that `schedules` break, with its number and its place; None if they keep all of them.

    `schedules` are those of the admitted jobs (x_i = 1), by their number in `jobs`; `slots` is T, slots count from 0.
    `completes` are the completion slots that are claimed, by the number of the job.
    """
    return next(_violations(servers, jobs, schedules, slots, completes or {}), None)


def _violations(
    servers: Servers,
    jobs: Sequence[ElasticJob],
    schedules: Mapping[int, Schedule],
    slots: int,
    completes: Mapping[int, int],
) -> Iterator[str]:
    y: dict[int, Layout] = {}
    z: dict[int, Layout] = {}
    for i, schedule in schedules.items():
        if not 0 <= i < len(jobs):
            yield f"(11): x of job {i}, of which there is none"
        for t, there in schedule.items():
            yield from _counts(there, servers, f"job {i}, slot {t}")
            if not t < slots:
                yield f"(8): job {i} runs in slot {t}, beyond the last, {slots - 1}"
        y[i] = {
            t: dict(zip(there.worker_server.tolist(), there.workers.tolist(), strict=True))
            for t, there in schedule.items()
        }
        z[i] = {
            t: dict(zip(there.parameter_server.tolist(), there.servers.tolist(), strict=True))
            for t, there in schedule.items()
        }
    for i in y:
        yield from _of_one(jobs[i], y[i], z[i], f"job {i}", completes.get(i))
    for t in range(slots):
        yield from _of_slot(servers, jobs, y, z, t)


def _counts(there: Allotment, servers: Servers, where: str) -> Iterator[str]:
    """(12), (13): whole numbers ≥ 0, each server named once."""
    for number, at, counts, most, kind in (
        (12, there.worker_server, there.workers, len(servers.workers), "worker"),
        (13, there.parameter_server, there.servers, len(servers.parameter_servers), "parameter"),
    ):
        if len(at) != len(counts):
            yield f"({number}): {where}: {len(at)} {kind} servers and {len(counts)} counts"
        if len(set(at.tolist())) != len(at):
            yield f"({number}): {where}: a {kind} server is named twice"
        for server, count in zip(at.tolist(), counts.tolist(), strict=True):
            if not 0 <= server < most:
                yield f"({number}): {where}: {kind} server {server}, of {most}"
            if count != int(count) or count < 0:
                yield f"({number}): {where}, {kind} server {server}: {count} tasks"


def _of_one(job: ElasticJob, y: Layout, z: Layout, where: str, completes: int | None) -> Iterator[str]:
    """What a job's own schedule has to keep: (9), (10), (3), (6), (7), (2), (8)."""
    done, last = 0, -1
    for t in sorted(y):
        workers, beside = sum(y[t].values()), sum(z[t].values())
        if t < job.arrival and workers:
            yield f"(9): {where}, slot {t}: {workers} workers before its arrival in slot {job.arrival}"
        if t < job.arrival and beside:
            yield f"(10): {where}, slot {t}: {beside} parameter servers before its arrival in slot {job.arrival}"
        if workers > job.most_workers:
            yield f"(3): {where}, slot {t}: {workers} workers, and it can use {job.most_workers}"
        if job.server_bandwidth > 0:
            wanted, given = workers * job.worker_bandwidth, beside * job.server_bandwidth
            if wanted > given + ROUNDING * max(1.0, given):
                yield (
                    f"(6): {where}, slot {t}: workers send {wanted:g}, and parameter servers take {given:g}"
                )
        if beside > workers:
            yield f"(7): {where}, slot {t}: {beside} parameter servers for {workers} workers"
        done += workers
        if workers:
            last = t
    if done < job.work:
        yield f"(2): {where}: {done} worker-slots of {job.work}"
    if job.rigid and last >= 0:
        yield from _of_rigid(job, y, z, where)
    if completes is not None and completes != last:
        yield f"(8): {where}: completes in slot {last}, not in {completes}"


def _of_rigid(job: ElasticJob, y: Layout, z: Layout, where: str) -> Iterator[str]:
    """No constraint of the paper: what cannot stop has the same tasks on the same servers from its start to its end."""
    busy = [t for t in sorted(y) if sum(y[t].values())]
    if busy != list(range(busy[0], busy[-1] + 1)):
        yield f"(rigid): {where}: pauses between slots {busy[0]} and {busy[-1]}"
    for t in busy:
        if sum(y[t].values()) != job.fixed_width:
            yield f"(rigid): {where}, slot {t}: {sum(y[t].values())} workers, and it has {job.fixed_width}"
        if y[t] != y[busy[0]] or z[t] != z[busy[0]]:
            yield f"(rigid): {where}, slot {t}: on other servers than in slot {busy[0]}"


def _of_slot(
    servers: Servers, jobs: Sequence[ElasticJob], y: Mapping[int, Layout], z: Mapping[int, Layout], t: int
) -> Iterator[str]:
    """(4), (5): no server holds more than it has."""
    for number, kind, capacity, of_jobs, on_workers in (
        (4, "worker", servers.workers, y, True),
        (5, "parameter", servers.parameter_servers, z, False),
    ):
        taken = np.zeros(capacity.shape)
        for i, plan in of_jobs.items():
            demand = jobs[i].worker if on_workers else jobs[i].server
            for server, count in plan.get(t, {}).items():
                taken[server] += demand * count
        if on_workers:
            taken[:, servers.is_shared] = taken[:, servers.is_shared].sum(axis=0)
        over = np.argwhere(taken > capacity + ROUNDING * np.maximum(1.0, capacity))
        if len(over):
            server, resource = over[0].tolist()
            yield (
                f"({number}): slot {t}, {kind} server {server}: {taken[server, resource]:g} of "
                f"{servers.resources[resource]}, and it has {capacity[server, resource]:g}"
            )
