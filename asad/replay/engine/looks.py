"""What a cycle asks of the simulation, each in one compiled call: move on, look, list who has ended, and lend."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import allocating, borrowing, compiled
from asad.replay.engine.availability import estimate_starts
from asad.replay.engine.clock import run_to_poll
from asad.replay.engine.guests import has_open_cores, lend, spread
from asad.replay.engine.looks_by_rules import by_priority, estimate_by_rules, forecast_by_rules
from asad.replay.engine.queue import next_waiting
from asad.replay.engine.rates import mark_nodes, refresh, settle
from asad.replay.engine.simulation_state import (
    CHANGES,
    ENDED,
    GATHER,
    GUEST,
    GUESTS,
    HEAD,
    LOGGED,
    LOOKED,
    NOW,
    PLACED,
    RECORDED,
    RUN,
    RUNNING,
    SCHEDULER,
    SLURM,
    STAMP,
    TAIL,
    USE_SD,
    WINDOW,
    State,
    is_job,
    note_change,
)
from asad.replay.engine.twin import (
    Experience,
    follow,
    forecast_starts,
    no_experience,
    outwait,
)
from asad.share.jit_args import JitArgs

DEEPER = 4
"""The twin's queue is longer than the one that is shown, since nobody lends there: starts are forecast for so many
times as many jobs. A job without a forecast would go by the scheduler's own estimate, which is often hours too late."""


class Looks(NamedTuple):
    """What `observe` shows beside the tables; n jobs, C cores."""

    queue: NDArray[np.int32]  # (depth,) waiting jobs
    running: NDArray[np.int32]  # batch jobs that run
    guests: NDArray[np.int32]  # (C,)
    cpu: NDArray[np.float64]  # (n,) measured CPU fraction
    estimate: NDArray[np.float64]  # (n,) estimated starts
    own_estimate: NDArray[np.float64]  # (n,) those on the twin
    estimated_at: NDArray[np.float64]  # (2,) when they were made, here and on the twin
    seen: Experience


def new_looks(s: State, depth: int, application: NDArray[np.int32]) -> Looks:
    """Nothing has been seen yet; `application` (n,) are codes."""
    n = len(s.job)
    return Looks(
        queue=np.zeros(depth, np.int32),
        running=np.zeros(len(s.run), np.int32),
        guests=np.zeros(len(s.core), np.int32),
        cpu=np.full(n, np.nan),
        estimate=np.full(n, np.nan),
        own_estimate=np.full(n, np.nan),
        estimated_at=np.full(2, -np.inf),
        seen=no_experience(application),
    )


@compiled
def advance(args: JitArgs, wake: float) -> bool:
    """`run_to_poll`, and then the twin, if there is one."""
    s, twin, looks = args.all
    going_on = run_to_poll(s, wake)
    if len(twin.job):
        follow(twin, s, looks.seen)
    return going_on


@borrowing
def _measured(s: State, job: int) -> float:
    """What is measured of a job's CPU use: its mean, as far as that is known and as far as it is believed rightly."""
    mean = s.job[job].measured / s.job[job].samples if s.job[job].samples > 0 else s.job[job].demand
    return float(min(1.0, mean * s.job[job].belief))


@borrowing
def _show_use(s: State, job: int, cpu: NDArray[np.float64]) -> bool:
    """What is measured of a job that has run for a window into `cpu`; is it another than before?"""
    young = s.f[NOW] - s.job[job].start < s.f[WINDOW]
    if young or not (np.isnan(cpu[job]) or s.job[job].samples > 0):
        return False
    cpu[job] = _measured(s, job)
    return True


@borrowing
def look(
    s: State, depth: int, queue: NDArray[np.int32], running: NDArray[np.int32], cpu: NDArray[np.float64]
) -> int:
    """What a snapshot needs besides the tables: the first waiting jobs, the running ones, and what was measured.

    Fills `queue` with the first `depth` waiting jobs in order (of an array its first alone, where arrays are gathered),
    `running` with the batch jobs that run, and `cpu` with the demand of those that have run for a window. Returns how
    many it put into `queue`.
    """
    shown = 0
    for i in range(s.c[RUN]):
        job = s.run[i].job
        if job >= s.c[LOGGED]:
            continue
        running[shown] = job
        shown += 1
        if s.c[PLACED] and s.job[job].rate < 1.0:
            settle(s, job, s.f[NOW])
        if _show_use(s, job, cpu):
            core = s.job[job].owner_first
            while core >= 0 and s.f[USE_SD] == 0:
                s.core[core].peak = cpu[job]
                note_change(s, s.core[core].node)
                core = s.core[core].owner_next
    for i in range(s.c[GUESTS]):
        job = s.job[i].guest_row
        _show_use(s, job, cpu)
        settle(s, job, s.f[NOW])
    count = 0
    position = s.c[HEAD]
    s.c[STAMP] += s.c[GATHER]
    while position < s.c[TAIL] and count < depth:
        count = _list(s, s.queue[position].job, queue, count)
        position = next_waiting(s, position + 1)
    return count


@borrowing
def _list(s: State, job: int, queue: NDArray[np.int32], count: int) -> int:
    """One job more in the queue that is shown, unless a task of its array is there already; how many they are."""
    if s.c[GATHER]:
        if s.task[s.task[job].lead].stamp == s.c[STAMP]:
            return count
        s.task[s.task[job].lead].stamp = s.c[STAMP]
    queue[count] = job
    return count + 1


@allocating
def _list_by_priority(s: State, queue: NDArray[np.int32]) -> int:
    """The first waiting jobs, the highest priority first, into `queue`; how many."""
    count = 0
    s.c[STAMP] += s.c[GATHER]
    for job in by_priority(s):
        if count == len(queue):
            break
        count = _list(s, job, queue, count)
    return count


@compiled
def observe(args: JitArgs, interval: float, twin_interval: float) -> int:
    """Everything that a snapshot shows, in one call; how many jobs there are in the queue that it shows.

    Starts are estimated no more often than every `interval`, and (but where arrays are gathered) only if somebody could
    be lent to; on the twin no more often than every `twin_interval`.
    """
    s, twin, looks = args.all
    depth = len(looks.queue)
    count = look(s, depth, looks.queue, looks.running, looks.cpu)
    if s.c[SCHEDULER] == SLURM:
        count = _list_by_priority(s, looks.queue)
    for i in range(s.c[GUESTS]):
        looks.guests[i] = s.job[i].guest_row
    now = s.f[NOW]
    due = count > 0 and s.c[PLACED] and now >= looks.estimated_at[0] + interval
    if due and (s.c[GATHER] or has_open_cores(s)):
        if s.c[SCHEDULER] == SLURM:
            estimate_by_rules(s, looks.estimate)
        else:
            estimate_starts(s, depth, looks.estimate)
        looks.estimated_at[0] = now
        if len(twin.job) and now >= looks.estimated_at[1] + twin_interval:
            if twin.c[SCHEDULER] == SLURM:
                forecast_by_rules(twin, s, looks.seen, DEEPER * depth, looks.own_estimate)
            else:
                forecast_starts(twin, s, looks.seen, DEEPER * depth, looks.own_estimate)
            if twin.c[SCHEDULER] == RECORDED:
                outwait(twin, DEEPER * depth, looks.own_estimate)
            looks.estimated_at[1] = now
    s.c[LOOKED] = s.c[CHANGES]
    return count


@compiled
def set_gone(args: JitArgs, node: int, gone: bool) -> None:
    """A node can be used no more, or again; the next look shows it among those that have changed."""
    s, _, _ = args.all
    s.node[node].gone = gone
    note_change(s, node)


@compiled
def ended_since(args: JitArgs, first: int, since: float) -> tuple[Any, ...]:
    """Row, end, run time, seconds lost and CPU of the jobs that ended as the `first` or later, after `since`."""
    s, _, _ = args.all
    most = s.c[ENDED] - first
    rows = np.empty(most, np.int32)
    end, run, lost, cpu = np.empty(most), np.empty(most), np.empty(most), np.empty(most)
    count = 0
    for i in range(first, s.c[ENDED]):
        job = s.job[i].ended
        if s.job[job].end > since:
            rows[count] = job
            end[count] = s.job[job].end
            run[count] = s.job[job].end - s.job[job].start
            lost[count] = s.job[job].lost
            cpu[count] = _measured(s, job)
            count += 1
    return rows[:count], end[:count], run[:count], lost[:count], cpu[:count]


@compiled
def co_allocate(
    args: JitArgs, guest: int, host: int, share: float, capped: bool, nodes: NDArray[np.int32]
) -> int:
    """`lend` with the guest's cores dealt evenly over `nodes`; 0 if done, else why not, as `lend` says it.

    Where `host` is -1, `share` is what the guest is expected to use of all the nodes together, in cores' worth of CPU.
    """
    s, _, _ = args.all
    cores = np.zeros(len(nodes), np.int32)
    if not spread(s, guest, nodes, cores):
        return 6
    count = 0
    for i in range(len(nodes)):
        if cores[i] > 0:
            nodes[count], cores[count] = nodes[i], cores[i]
            count += 1
    if host < 0:
        share /= s.job[guest].cores
    return lend(s, guest, host, share, capped, nodes[:count], cores[:count])


@compiled
def allot(args: JitArgs, guest: int, nodes: NDArray[np.int32], quota: NDArray[np.float64]) -> int:
    """From now on a guest uses at most `quota[i]` cores' worth of CPU on `nodes[i]`.

    Returns 0 if done, 1 if it does not run as a guest of pools, 2 if it is not on one of the nodes.
    """
    s, _, _ = args.all
    if not is_job(s, guest) or s.job[guest].state != GUEST or not s.job[guest].pooled:
        return 1
    s.c[STAMP] += 1
    head = s.job[guest].guest_first
    while head >= 0:
        s.node[s.core[head].node].stamp, s.node[s.core[head].node].at = s.c[STAMP], head
        head = s.core[head].guest_skip
    for i in range(len(nodes)):
        if not 0 <= nodes[i] < len(s.node) or s.node[nodes[i]].stamp != s.c[STAMP]:
            return 2
        s.core[s.node[nodes[i]].at].quota = quota[i]
    refresh(s, mark_nodes(s, s.job[guest].guest_first, True), s.f[NOW])
    return 0


@compiled
def lend_more(args: JitArgs, host: int, share: float) -> int:
    """A batch job lends this share of itself to the pools. Returns 0, or 1 if it does not run."""
    s, _, _ = args.all
    if not is_job(s, host) or s.job[host].state != RUNNING:
        return 1
    s.job[host].share = share
    return 0
