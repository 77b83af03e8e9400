"""The offline optimum of problem (1) of the OASiS paper: all jobs known beforehand, solved exactly by HiGHS.

For small cases, as a yardstick: the paper's took two days for 10 jobs. With u_it = 1 if job i completes in slot t,

    max  Σ f_i(t - a_i + 1)·u_it
    s.t. Σ_t u_it ≤ 1                                                   one completion at most
         Σ_h,s≤t y_ihs ≥ W_i·u_it                                     (2) the work is done by then
         Σ_h y_iht ≤ N_i·Σ_s≥t u_is                                   (3), (8) none unless taken in, none after the end
         Σ_i w_ir·y_iht ≤ c_hr,  Σ_i s_ir·z_ikt ≤ c_kr                (4), (5)
         b_i·Σ_h y_iht ≤ B_i·Σ_k z_ikt,  Σ_k z_ikt ≤ Σ_h y_iht        (6), (7)

y and z are integers. A completion that is stated later than it is costs utility, so none is. Rigid jobs count as
if they were not, so for them it is an upper bound. Cost: exponential.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, milp

from asad.admit.elastic import Allotment, ElasticJob, Servers
from asad.admit.first_fit_servers import allotment, room_for
from asad.admit.milp_rows import Rows
from asad.errors import AsadError
from asad.model import Floats


@dataclass(frozen=True, slots=True)
class Optimum:
    """What the best schedule of all jobs is worth."""

    utility: float
    """Of the best schedule found."""
    bound: float
    """No schedule is worth more."""
    finished: tuple[int | None, ...]
    """Of each job: the slot in which it completes; None if it is not admitted."""
    schedules: tuple[dict[int, Allotment], ...]
    """Of each job, by slot."""

    @property
    def proven(self) -> bool:
        """Is it the optimum, to a thousandth?"""
        return self.bound <= self.utility * 1.001 + 1e-9


def optimum(
    servers: Servers, jobs: Sequence[ElasticJob], slots: int, time_limit_s: float = 60.0, gap: float = 1e-4
) -> Optimum:
    """Solve problem (1) for `jobs` over `slots` slots.

    Within `time_limit_s` the answer may be a schedule and a bound that do not meet; `Optimum.proven` says. Raises
    AsadError if the solver has no schedule by then.
    """
    servers_w, servers_p = len(servers.workers), len(servers.parameter_servers)
    rows = Rows()
    worth: list[float] = []
    most: list[float] = []

    def variable(gain: float, top: float) -> int:
        worth.append(-gain)
        most.append(top)
        return len(most) - 1

    u: dict[tuple[int, int], int] = {}
    y: dict[tuple[int, int, int], int] = {}
    z: dict[tuple[int, int, int], int] = {}
    for i, job in enumerate(jobs):
        span = range(job.arrival, slots)
        fit = [room_for(row, job.worker, job.most_workers) for row in servers.workers]
        needed = job.servers_for(job.most_workers)
        fit_beside = [room_for(row, job.server, needed) for row in servers.parameter_servers]
        together = min(sum(fit), job.most_workers)
        for t in span:
            # what cannot be done by then even alone needs no variable
            if together * (t - job.arrival + 1) >= job.work:
                u[i, t] = variable(float(job.utility(t - job.arrival + 1)), 1)
        ends = {t: u[i, t] for t in span if (i, t) in u}
        if not ends:
            continue
        for t in span:
            for h, top in enumerate(fit):
                if top:
                    y[i, h, t] = variable(0.0, top)
            for k, top in enumerate(fit_beside):
                if top:
                    z[i, k, t] = variable(0.0, top)
        rows.add([(column, 1.0) for column in ends.values()], -np.inf, 1.0)
        done: list[tuple[int, float]] = []
        earlier: list[tuple[int, float]] = []
        for t in span:
            here = [(y[i, h, t], 1.0) for h in range(servers_w) if (i, h, t) in y]
            beside = [(z[i, k, t], 1.0) for k in range(servers_p) if (i, k, t) in z]
            done += here
            if t in ends:
                earlier = [*earlier, (ends[t], -float(job.work))]
                rows.add(done + earlier, 0.0, np.inf)
            later = [(column, -float(min(together, job.work))) for end, column in ends.items() if end >= t]
            rows.add(here + later, -np.inf, 0.0)
            if job.server_bandwidth > 0:
                rows.add(
                    [(c, -job.worker_bandwidth) for c, _ in here]
                    + [(c, job.server_bandwidth) for c, _ in beside],
                    0.0,
                    np.inf,
                )
                rows.add([(c, -1.0) for c, _ in here] + beside, -np.inf, 0.0)
    for t in range(slots):
        for group, capacity, who in (
            (y, servers.workers, "worker"),
            (z, servers.parameter_servers, "server"),
        ):
            for among, r, room in _limits(servers, capacity):
                terms = [
                    (group[i, server, t], float(getattr(job, who)[r]))
                    for i, job in enumerate(jobs)
                    for server in among
                    if (i, server, t) in group and getattr(job, who)[r] > 0
                ]
                if sum(value * most[column] for column, value in terms) > room:
                    rows.add(terms, -np.inf, room)
    if not u:
        return Optimum(0.0, 0.0, (None,) * len(jobs), tuple({} for _ in jobs))
    solved = milp(
        np.array(worth),
        constraints=rows.constraint(len(most)),
        integrality=np.ones(len(most)),
        bounds=Bounds(0, np.array(most)),
        options={"time_limit": time_limit_s, "mip_rel_gap": gap},
    )
    if solved.x is None:
        raise AsadError(
            f"the solver found no schedule of {len(jobs)} jobs on {servers_w} + {servers_p} servers within "
            f"{time_limit_s:g} s ({solved.message}); take fewer jobs, slots or servers, or give it more time"
        )
    value = np.round(solved.x).astype(np.int32)
    finished: list[int | None] = [None] * len(jobs)
    for (i, t), column in u.items():
        if value[column]:
            finished[i] = t
    plans: list[dict[int, Allotment]] = []
    for i, job in enumerate(jobs):
        plan = {}
        for t in range(job.arrival, slots):
            stand = np.array([value[y[i, h, t]] if (i, h, t) in y else 0 for h in range(servers_w)], np.int32)
            stand_beside = np.array(
                [value[z[i, k, t]] if (i, k, t) in z else 0 for k in range(servers_p)], np.int32
            )
            if stand.any():
                plan[t] = allotment(stand, stand_beside)
        plans.append(plan)
    bound = -solved.mip_dual_bound if solved.mip_dual_bound is not None else -solved.fun
    return Optimum(float(-solved.fun), float(max(bound, -solved.fun)), tuple(finished), tuple(plans))


def _limits(servers: Servers, capacity: Floats) -> Iterator[tuple[Sequence[int], int, float]]:
    """Of one kind of servers: which of them hold so much of which resource, together."""
    shared = servers.is_shared
    for server, row in enumerate(capacity):
        for r in np.flatnonzero(~shared).tolist():
            yield (server,), r, float(row[r])
    for r in np.flatnonzero(shared).tolist() if len(capacity) else ():
        yield range(len(capacity)), r, float(capacity[0, r])
