"""The cluster as history expects it to go on: what a forecast starts from, and others like it drawn by chance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.share.asax.options import Options
from asad.share.history import History, expected_cpu, expected_run, run_deviation
from asad.share.openings import Openings, View

OVERDUE = 0.1
"""What has run longer than expected is expected to run on for this part of the time that it has run."""
LEAST_PART = 0.3
"""No scenario makes a run shorter than this part of what is expected."""
MOST_STEPS = 100_000_000
"""Steps of forecasts (`forecast_steps`) that one search may take: about a second."""
LEAST_DEVIATION = 0.1
"""Run times deviate by at least this part of their mean: few runs may have been alike by chance."""


class Outlook(NamedTuple):
    """The cluster as a forecast sees it: R running batch jobs, Q waiting ones, G guests, N nodes."""

    now: float
    overhead: float
    """Rate of a guest that gets all it wants beside a host."""
    headroom: float
    poll_s: float
    """Nothing is expected to end sooner."""
    rows: NDArray[np.int32]
    """(R + Q,) rows of the snapshot."""
    run_end: NDArray[np.float64]
    """(R,) expected end of the running jobs."""
    run_limit: NDArray[np.float64]
    """(R,) end that the scheduler plans with."""
    wait_run: NDArray[np.float64]
    """(Q,) expected run time of the waiting ones, in the order of the queue."""
    wait_limit: NDArray[np.float64]
    """(Q,)"""
    cores: NDArray[np.int64]
    """(R + Q,)"""
    memory: NDArray[np.float64]
    """(R + Q,) bytes a core"""
    cpu: NDArray[np.float64]
    """(R + Q,) as a fraction of the allocation"""
    guest_left: NDArray[np.float64]
    """(G,) what the guests have left, in seconds alone."""
    guest_cpu: NDArray[np.float64]
    """(G,)"""
    guest_memory: NDArray[np.float64]
    """(G,) bytes a core"""
    guest_share: NDArray[np.float64]
    """(G,) of its host that each may use, 0 if that is not decided."""
    held: NDArray[np.int32]
    """(R + Q, N) cores of each node that a batch job holds."""
    taken: NDArray[np.int32]
    """(G + Q, N) cores of each node that a guest is on."""
    node_cores: NDArray[np.int64]
    node_memory: NDArray[np.float64]
    lends: NDArray[np.bool_]
    """(R + Q,) may it lend?"""
    joins: NDArray[np.bool_]
    """(Q,) may it be a guest?"""
    group: NDArray[np.int32]
    """(R + Q,) jobs share only with jobs of the same group."""
    memory_bound: NDArray[np.bool_]
    """(R + Q,) two of these are no pair."""


@compiled
def foreseeable(view: View, history: History, o: Options) -> bool:
    """Are the jobs few and well known: do at most `look_ahead` wait, and does none deviate much from its mean?

    Few enough also for the time it takes: within its steps a search can try every pair at least once.
    """
    waiting = len(view.queue)
    jobs = waiting + len(view.running)
    steps = forecast_steps(jobs, len(view.guests), len(view.node_first) - 1)
    if waiting > o.look_ahead or o.scenarios * waiting * jobs * steps > MOST_STEPS:
        return False
    for rows in (view.queue, view.running, view.guests):
        for i in range(len(rows)):
            application = view.application[rows[i]]
            runs = history.runs[application]
            if (
                runs < 2
                or run_deviation(history, application) > o.well_known * history.run[application] / runs
            ):
                return False
    return True


@compiled
def forecast_steps(jobs: int, guests: int, nodes: int) -> int:
    """How many steps a forecast takes, about: it goes from end to end, and looks at all jobs and nodes at each."""
    return (jobs + guests) * (jobs + guests + nodes)


@compiled
def outlook(view: View, openings: Openings, history: History, o: Options) -> Outlook:
    """The cluster as history expects it to go on."""
    waiting = 0
    for i in range(len(view.queue)):
        waiting += 1 if view.host[view.queue[i]] < 0 else 0
    R, Q, G, N = len(view.running), waiting, len(view.guests), len(view.node_first) - 1
    a = Outlook(
        now=view.now,
        overhead=o.overhead,
        headroom=o.headroom,
        poll_s=o.poll_s,
        rows=np.zeros(R + Q, np.int32),
        run_end=np.zeros(R),
        run_limit=np.zeros(R),
        wait_run=np.zeros(Q),
        wait_limit=np.zeros(Q),
        cores=np.zeros(R + Q, np.int64),
        memory=np.zeros(R + Q),
        cpu=np.zeros(R + Q),
        guest_left=np.zeros(G),
        guest_cpu=np.zeros(G),
        guest_memory=np.zeros(G),
        guest_share=np.zeros(G),
        held=np.zeros((R + Q, N), np.int32),
        taken=np.zeros((G + Q, N), np.int32),
        node_cores=np.diff(view.node_first).astype(np.int64),
        node_memory=view.node_memory,
        lends=np.zeros(R + Q, np.bool_),
        joins=np.zeros(Q, np.bool_),
        group=np.zeros(R + Q, np.int32),
        memory_bound=np.zeros(R + Q, np.bool_),
    )
    a.rows[:R] = view.running
    k = R
    for i in range(len(view.queue)):
        if view.host[view.queue[i]] < 0:
            a.rows[k] = view.queue[i]
            k += 1
    for k in range(R + Q):
        job = a.rows[k]
        application = view.application[job]
        run = expected_run(history, application, view.limit[job])
        a.cores[k], a.memory[k], a.group[k] = view.cores[job], view.memory[job], view.share_group[job]
        a.memory_bound[k] = view.memory_bound[job] != 0
        a.cpu[k] = view.cpu[job]
        if np.isnan(a.cpu[k]):
            a.cpu[k] = max(0.01, expected_cpu(history, application))
        if k < R:
            left = max(o.poll_s, _left(view, job, run))
            a.run_end[k] = view.now + min(left, max(o.poll_s, view.limit_end[job] - view.now))
            a.run_limit[k] = view.limit_end[job]
        else:
            a.wait_run[k - R], a.wait_limit[k - R] = run, view.limit[job]
            a.joins[k - R] = view.guest_bar[job] == 0 and not np.isnan(view.estimate[job])
            a.lends[k] = view.host_bar[job] == 0
    for h in range(openings.found[0]):
        for k in range(R):
            if a.rows[k] == openings.hosts[h]:
                a.lends[k] = True
    for g in range(G):
        job = view.guests[g]
        application = view.application[job]
        a.guest_left[g] = max(o.poll_s, _left(view, job, expected_run(history, application, view.limit[job])))
        a.guest_cpu[g] = max(0.01, expected_cpu(history, application))
        a.guest_memory[g] = view.memory[job]
        if view.host[job] >= 0 and view.share[job] > 0:
            a.guest_share[g] = view.share[job]
    _count_cores(a, view)
    return a


@compiled
def _count_cores(a: Outlook, view: View) -> None:
    """Fill `held` and `taken` with the cores that each running job and guest has on each node."""
    place = np.full(len(view.cores), -1, np.int32)  # a job is either of them
    for k in range(len(view.running)):
        place[view.running[k]] = k
    for g in range(len(view.guests)):
        place[view.guests[g]] = g
    for n in range(len(a.node_cores)):
        for core in range(view.node_first[n], view.node_first[n + 1]):
            owner, guest = view.core_owner[core], view.core_guest[core]
            if owner >= 0 and place[owner] >= 0:
                a.held[place[owner], n] += 1
            if guest >= 0 and place[guest] >= 0:
                a.taken[place[guest], n] += 1


@compiled
def _left(view: View, job: int, run: float) -> float:
    """How much of its work a running job has before it (s alone), if `run` is expected of it in all."""
    done = view.now - view.start[job] - view.lost[job]
    return float(max(run - done, OVERDUE * done))


@compiled
def deviations(a: Outlook, view: View, history: History) -> NDArray[np.float64]:
    """(R + Q,) standard deviation to expect of the run time of each (s)."""
    deviation = np.zeros(len(a.rows))
    for k in range(len(a.rows)):
        application = view.application[a.rows[k]]
        mean = history.run[application] / history.runs[application]
        deviation[k] = max(LEAST_DEVIATION * mean, run_deviation(history, application))
    return deviation


@compiled
def scenario(a: Outlook, deviation: NDArray[np.float64], rng: np.random.Generator) -> Outlook:
    """The same with run times drawn around what is expected; `deviation` (R + Q,) in seconds."""
    R = len(a.run_end)
    run_end, wait_run = a.run_end.copy(), a.wait_run.copy()
    for k in range(R):
        run_end[k] = a.now + max(a.poll_s, a.run_end[k] - a.now + deviation[k] * rng.standard_normal())
    for i in range(len(wait_run)):
        drawn = wait_run[i] + deviation[R + i] * rng.standard_normal()
        wait_run[i] = max(LEAST_PART * wait_run[i], drawn)
    return Outlook(
        a.now,
        a.overhead,
        a.headroom,
        a.poll_s,
        a.rows,
        run_end,
        a.run_limit,
        wait_run,
        a.wait_limit,
        a.cores,
        a.memory,
        a.cpu,
        a.guest_left,
        a.guest_cpu,
        a.guest_memory,
        a.guest_share,
        a.held,
        a.taken,
        a.node_cores,
        a.node_memory,
        a.lends,
        a.joins,
        a.group,
        a.memory_bound,
    )
