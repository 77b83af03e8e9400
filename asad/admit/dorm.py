"""`dorm`: the cluster is cut into partitions, one a job, resized by a MILP that maximises utilization.

Sun, Wen, Duong, Yan: Towards Distributed Machine Learning in Shared Clusters: A Dynamically-Partitioned Approach
(SMARTCOMP 2017), as section V of the OASiS paper runs it: all jobs are admitted; whenever one arrives or ends, numbers
and places of workers and parameter servers are computed anew by HiGHS:

    max  Σ_r (used of r) / (all of r), over worker servers and over parameter servers
    s.t. capacity; at most N_i workers; parameter servers as constraints (6) and (7) of OASiS ask
         Σ_i |s_i - ŝ_i| ≤ θ1·2·R        fairness: dominant shares s_i near those of dominant resource fairness, ŝ_i
         Σ_i r_i ≤ ⌈θ2·jobs that ran⌉    adjustment: r_i = 1 for a job that ran and whose partition changes

Options: `fairness_loss` θ1 (0.1) and `adjustment` θ2 (0.1); `most_jobs` (60), the jobs, in the order of their arrival,
that have or may get a partition at one time; `gap` (0.05), how near to the optimum the solver goes; `nodes` (1), of its
search tree; `time_limit_s` (10), a net below that: where it is met, the answer depends on the machine.

So that a MILP takes a fraction of a second and not a day, servers that are alike are one variable: the numbers on a
kind of server are the MILP's, the places within it are first fit, largest workers first, and a worker that then has
no place is left out. Resources with more than 16 different capacities (such as bandwidth drawn at random) do not make
kinds. Where no partition meets both bounds, the fairness bound is dropped; where the solver has nothing, what
ran goes on. The partition of a rigid job never changes. Cost of an arrival or end: one MILP of jobs·kinds integers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, milp

from asad.admit.drf import dominant_share, fair_shares
from asad.admit.elastic import Allotment, ElasticJob, Scheme, Servers, Verdict
from asad.admit.first_fit_servers import Counts, Room, Shared, allotment, refusal, room_for, take_on
from asad.admit.milp_rows import Rows
from asad.model import Floats

MANY = 16
"""A resource with more capacities than that does not make kinds of servers."""

Numbers = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Of one job: workers on each kind of worker server, parameter servers on each kind of theirs."""


def kinds_of(capacity: Floats) -> list[NDArray[np.int64]]:
    """Servers that are alike, as lists of their numbers."""
    distinctive = [r for r in range(capacity.shape[1]) if len(np.unique(capacity[:, r])) <= MANY]
    if not len(capacity):
        return []
    _, kind = np.unique(capacity[:, distinctive], axis=0, return_inverse=True)
    return [np.flatnonzero(kind.ravel() == k) for k in range(int(kind.max()) + 1)]


class Dorm(Scheme):
    """Partitions by MILP."""

    name = "dorm"

    def __init__(
        self,
        servers: Servers,
        fairness_loss: float = 0.1,
        adjustment: float = 0.1,
        most_jobs: int = 60,
        gap: float = 0.05,
        nodes: int = 1,
        time_limit_s: float = 10.0,
    ) -> None:
        self.servers = servers
        self.fairness_loss = fairness_loss
        self.adjustment = adjustment
        self.most_jobs = most_jobs
        self._solver = {"mip_rel_gap": gap, "node_limit": nodes, "time_limit": time_limit_s}
        self._worker_kinds = kinds_of(servers.workers)
        self._server_kinds = kinds_of(servers.parameter_servers)
        self._jobs: dict[int, ElasticJob] = {}
        self._share: dict[int, float] = {}
        self._room: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        self._held: dict[int, Allotment] = {}
        self._changed = False

    def arrive(self, number: int, job: ElasticJob) -> Verdict:
        """Admitted if the empty cluster holds one worker of it; of a rigid job all."""
        refused = refusal(self.servers, job, job.fixed_width if job.rigid else 1)
        if refused is not None:
            return refused
        self._jobs[number] = job
        self._share[number] = dominant_share(self.servers, job)
        self._room[number] = (
            _room_by_kind(self.servers.workers, self._worker_kinds, job.worker, job.most_workers),
            _room_by_kind(
                self.servers.parameter_servers,
                self._server_kinds,
                job.server,
                job.servers_for(job.most_workers),
            ),
        )
        self._changed = True
        return Verdict(True, "it gets a partition as soon as there is room for one")

    def allot(self, slot: int, left: Mapping[int, int]) -> Mapping[int, Allotment]:
        """Partitions stay until a job arrives or ends."""
        for number in [number for number in self._jobs if number not in left]:
            for kept in (self._jobs, self._share, self._room):
                del kept[number]
            self._held.pop(number, None)
            self._changed = True
        if self._changed:
            self._held = self._partitions(left)
            self._changed = False
        return dict(self._held)

    def _partitions(self, left: Mapping[int, int]) -> dict[int, Allotment]:
        # who has a partition keeps one; the others queue in the order of their arrival
        numbers = [*self._held, *(number for number in self._jobs if number not in self._held)]
        numbers = sorted(numbers[: self.most_jobs])
        before = {number: self._numbers_of(held) for number, held in self._held.items()}
        chosen = self._solve(numbers, left, before, fair=True)
        if chosen is None:
            chosen = self._solve(numbers, left, before, fair=False)
        if chosen is None:
            return self._held
        room = Room(self.servers)
        placed: dict[int, Allotment] = {}
        moved = []
        for number in numbers:
            old = before.get(number)
            same = old is not None and all((a == b).all() for a, b in zip(old, chosen[number], strict=True))
            if same and room.take(self._jobs[number], self._held[number]):
                placed[number] = self._held[number]
            else:
                moved.append(number)
        for number in sorted(moved, key=lambda one: (-self._share[one], one)):
            given = self._place(room, self._jobs[number], chosen[number])
            if given is not None:
                placed[number] = given
        return dict(sorted(placed.items()))

    def _numbers_of(self, held: Allotment) -> Numbers:
        at = np.zeros(len(self.servers.workers), np.int64)
        beside = np.zeros(len(self.servers.parameter_servers), np.int64)
        at[held.worker_server] = held.workers
        beside[held.parameter_server] = held.servers
        return (
            np.array([at[kind].sum() for kind in self._worker_kinds], np.int64),
            np.array([beside[kind].sum() for kind in self._server_kinds], np.int64),
        )

    def _solve(
        self, numbers: Sequence[int], left: Mapping[int, int], before: Mapping[int, Numbers], fair: bool
    ) -> dict[int, Numbers] | None:
        """Numbers on each kind of server, or None if the solver has none."""
        jobs = [self._jobs[number] for number in numbers]
        many, kinds, kinds_beside = len(jobs), len(self._worker_kinds), len(self._server_kinds)
        if not many:
            return {}
        rows = Rows()
        first_z, first_r = many * kinds, many * (kinds + kinds_beside)
        first_d = first_r + many
        variables = first_d + many
        top = np.ones(variables)
        worth = np.zeros(variables)
        whole = np.ones(variables)
        whole[first_d:] = 0
        shared = self.servers.is_shared
        dealt = fair_shares(self.servers, self._jobs, {number: left[number] for number in numbers})
        for side, first, group, capacity in (
            ("worker", 0, self._worker_kinds, self.servers.workers),
            ("server", first_z, self._server_kinds, self.servers.parameter_servers),
        ):
            total = self.servers.total(capacity)
            for i, (number, job) in enumerate(zip(numbers, jobs, strict=True)):
                demand = getattr(job, side)
                used = np.divide(demand, total, out=np.zeros(len(demand)), where=total > 0).sum()
                places = slice(first + i * len(group), first + (i + 1) * len(group))
                top[places] = self._room[number][0 if side == "worker" else 1]
                worth[places] = -used
            limits: list[tuple[tuple[int, ...], int, float]] = [
                ((k,), r, room)
                for k, members in enumerate(group)
                for r, room in enumerate(capacity[members].sum(axis=0).tolist())
                if not shared[r]
            ]
            everywhere = tuple(range(len(group)))
            limits += [(everywhere, r, float(total[r])) for r in np.flatnonzero(shared).tolist()]
            for among, r, room in limits:
                rows.add(
                    [
                        (first + i * len(group) + k, float(getattr(job, side)[r]))
                        for i, job in enumerate(jobs)
                        if getattr(job, side)[r] > 0
                        for k in among
                    ],
                    -np.inf,
                    room,
                )
        for i, (number, job) in enumerate(zip(numbers, jobs, strict=True)):
            y = [(i * kinds + k, 1.0) for k in range(kinds)]
            z = [(first_z + i * kinds_beside + k, 1.0) for k in range(kinds_beside)]
            rows.add(y, 0.0, _most(job, left[number], number in before))
            if job.server_bandwidth > 0:
                # enough bandwidth, and not one parameter server more than that (6), (7)
                terms = [(c, -job.worker_bandwidth) for c, _ in y] + [(c, job.server_bandwidth) for c, _ in z]
                rows.add(terms, 0.0, job.server_bandwidth * (1 - 1e-6))
                rows.add([(c, -1.0) for c, _ in y] + z, -np.inf, 0.0)
            if fair:
                step, goal = self._share[number], self._share[number] * int(dealt[number][0].sum())
                rows.add([*((c, step) for c, _ in y), (first_d + i, 1.0)], goal, np.inf)
                rows.add([*((c, -step) for c, _ in y), (first_d + i, 1.0)], -goal, np.inf)
            if number in before:
                for old, group_of in zip(before[number], (y, z), strict=True):
                    for (column, _), was in zip(group_of, old.tolist(), strict=True):
                        rows.add([(column, 1.0), (first_r + i, -(top[column] + was))], -np.inf, was)
                        rows.add([(column, 1.0), (first_r + i, top[column] + was)], was, np.inf)
        if fair:
            limit = self.fairness_loss * 2 * len(self.servers.resources)
            rows.add([(first_d + i, 1.0) for i in range(many)], 0.0, limit)
        ran = [i for i, number in enumerate(numbers) if number in before]
        for i, (number, job) in enumerate(zip(numbers, jobs, strict=True)):
            if job.rigid and number in before:
                top[first_r + i] = 0
            elif job.rigid:  # all of it or nothing: r, which is free of those that did not run, says which
                y = [(i * kinds + k, 1.0) for k in range(kinds)]
                rows.add([*y, (first_r + i, -float(job.fixed_width))], 0.0, 0.0)
        if ran:
            rows.add([(first_r + i, 1.0) for i in ran], 0.0, math.ceil(self.adjustment * len(ran)))
        solved = milp(
            worth,
            constraints=rows.constraint(variables),
            integrality=whole,
            bounds=Bounds(0, top),
            options=self._solver,
        )
        if solved.x is None:
            return None
        value = np.round(solved.x[:first_r]).astype(np.int64)
        return {
            number: (
                value[i * kinds : (i + 1) * kinds],
                value[first_z + i * kinds_beside : first_z + (i + 1) * kinds_beside],
            )
            for i, number in enumerate(numbers)
        }

    def _place(self, room: Room, job: ElasticJob, numbers: Numbers) -> Allotment | None:
        """Put the numbers on servers of their kinds; fewer where a worker finds no place, None if none does."""
        at = np.zeros(len(room.workers), np.int32)
        for kind, count in zip(self._worker_kinds, numbers[0].tolist(), strict=True):
            _fill(room.workers, kind, job.worker, count, room.shared, at)
        wanted = int(at.sum())
        beside = np.zeros(len(room.parameter_servers), np.int32)
        if job.server_bandwidth > 0:
            needed = job.servers_for(wanted)
            for kind, count in zip(self._server_kinds, numbers[1].tolist(), strict=True):
                most = min(count, needed - int(beside.sum()))
                _fill(room.parameter_servers, kind, job.server, most, room.shared, beside)
            if beside.sum() < needed:  # what its own kinds do not hold stands elsewhere
                everywhere = np.arange(len(beside))
                most = needed - int(beside.sum())
                _fill(room.parameter_servers, everywhere, job.server, most, room.shared, beside)
            while wanted and job.servers_for(wanted) > beside.sum():
                last = int(np.flatnonzero(at)[-1])
                at[last] -= 1
                wanted -= 1
                take_on(room.workers, last, -job.worker, room.shared)
            while beside.sum() > job.servers_for(wanted):
                last = int(np.flatnonzero(beside)[-1])
                beside[last] -= 1
                room.parameter_servers[last] += job.server
        if job.rigid and wanted < job.fixed_width:
            for h in np.flatnonzero(at).tolist():
                take_on(room.workers, h, -at[h] * job.worker, room.shared)
            room.parameter_servers += beside[:, None] * job.server
            wanted = 0
        return allotment(at, beside) if wanted else None


def _most(job: ElasticJob, left: int, ran: bool) -> int:
    """Workers of one job in one slot."""
    if job.rigid:
        return job.fixed_width
    return job.most_workers if ran else min(job.most_workers, left)


def _room_by_kind(
    capacity: Floats, kinds: Sequence[NDArray[np.int64]], demand: Floats, most: int
) -> NDArray[np.int64]:
    fits = np.array([room_for(row, demand, most) for row in capacity], np.int64)
    return np.array([min(most, int(fits[kind].sum())) for kind in kinds], np.int64)


def _fill(
    free: Floats, where: NDArray[np.int64], demand: Floats, count: int, shared: Shared, out: Counts
) -> None:
    """Take up to `count` of `demand` from the servers `where`, the first with room first."""
    for server in where.tolist():
        if count <= 0:
            return
        fit = room_for(free[server], demand, count)
        take_on(free, server, fit * demand, shared)
        out[server] += fit
        count -= fit
