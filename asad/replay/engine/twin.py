"""The twin: the same cluster with nobody who lends, as far as asad can know it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import allocating, borrowing, compiled
from asad.replay.engine.clock import next_event, run_until
from asad.replay.engine.event_heap import move
from asad.replay.engine.queue import next_waiting
from asad.replay.engine.simulation_state import (
    DONE,
    ENDED,
    FREE,
    GUEST,
    HEAD,
    LEARNED,
    NEVER,
    NEXT,
    NOW,
    RECORDED,
    RUN,
    RUNNING,
    SCHEDULER,
    TAIL,
    State,
    arrival,
)

WIDEST = np.iinfo(np.int64).max
"""More cores than any job asks for."""
BLOCK = 16
"""So many of the jobs that wait are skipped together where none of them can start."""


class Experience(NamedTuple):
    """How long the jobs that have ended ran alone; A applications."""

    application: NDArray[np.int32]  # (n,) code of each job's
    runs: NDArray[np.float64]  # (A,) ended jobs
    run: NDArray[np.float64]  # (A,) Σ run time alone
    limited: NDArray[np.float64]  # (1,) Σ planned run times of all ended jobs
    used: NDArray[np.float64]  # (1,) Σ run times of those


def no_experience(application: NDArray[np.int32]) -> Experience:
    """No job has ended yet; `application` (n,) are their codes."""
    count = int(application.max(initial=-1)) + 1
    return Experience(application, np.zeros(count), np.zeros(count), np.zeros(1), np.zeros(1))


@borrowing
def learn_ends(s: State, other: State, seen: Experience) -> None:
    """It has become known how long the jobs run alone that have ended in `other` since the last time.

    Those that run here end by that, and no earlier than now.
    """
    for i in range(s.c[LEARNED], other.c[ENDED]):
        job = other.job[i].ended
        run = other.job[job].end - other.job[job].start - other.job[job].lost
        if s.c[SCHEDULER] != RECORDED:
            s.job[job].work = run
        application = seen.application[job]
        seen.runs[application] += 1
        seen.run[application] += run
        seen.limited[0] += other.job[job].planned
        seen.used[0] += run
        if s.c[SCHEDULER] != RECORDED and s.job[job].state == RUNNING:
            move(s, job, max(s.f[NOW], s.job[job].start + s.job[job].work))
    s.c[LEARNED] = other.c[ENDED]


@borrowing
def _done(s: State, job: int) -> float:
    """How much of its work a job has done by now: 0 of one that waits."""
    if s.job[job].state not in (RUNNING, GUEST):
        return 0.0
    lost = s.job[job].lost + (1.0 - s.job[job].rate) * (s.f[NOW] - s.job[job].since)
    return s.f[NOW] - s.job[job].start - lost


@borrowing
def known_until(s: State, other: State) -> float:
    """Until when `s` can go on with what is known in `other`: no job may run here for longer than it has come there.

    Beyond that it could have ended here, and nobody can know.
    """
    # who has ended there runs here for as long as it did: `learn_ends` has seen to that
    until = NEVER
    for i in range(s.c[RUN]):
        job = s.run[i].job
        if other.job[job].state != DONE:
            until = min(until, s.job[job].start + _done(other, job))
    return until


@compiled
def follow(s: State, other: State, seen: Experience) -> None:
    """Let `s` come as near to the present of `other` as is known: what has happened there by then is certain."""
    learn_ends(s, other, seen)
    now = other.f[NOW]
    if s.c[SCHEDULER] == RECORDED:  # what the log shows until now
        run_until(s, now)
        return
    while s.f[NOW] < now:
        until = min(now, known_until(s, other))
        if until <= s.f[NOW]:
            break
        # event by event: what happens next may start a job that has not run there, which bounds what is known
        run_until(s, min(until, max(s.f[NOW], next_event(s))))


@borrowing
def expected_run(s: State, other: State, seen: Experience, job: int) -> float:
    """How long a job runs alone, as far as is known in `other`: exactly once it has ended there; else as its
    application did before, or as others use their limits, and no less than it has done by now."""
    state = other.job[job].state
    if state == DONE:
        return other.job[job].end - other.job[job].start - other.job[job].lost
    planned = other.job[job].planned
    application = seen.application[job]
    if seen.runs[application] > 0:
        run = min(planned, seen.run[application] / seen.runs[application])
    elif seen.limited[0] > 0:
        run = planned * seen.used[0] / seen.limited[0]
    else:
        run = 0.5 * planned
    if state in (RUNNING, GUEST):
        done = _done(other, job)
        if run <= done:  # it outlasts what is usual: the longer it has run, the longer it runs on
            run = min(planned, 1.2 * done)
    return run


@allocating
def forecast_starts(
    s: State, other: State, seen: Experience, depth: int, estimate: NDArray[np.float64]
) -> None:
    """When the first `depth` jobs that wait here would start if all ran as long as is expected, into `estimate`.

    Those that have come in `other` since the time of this cluster wait too, from when they came. EASY on cores alone:
    reservations and backfill by the time limits, ends by what is expected, and no cores on nodes that are gone.

    Cost: O(running + depth / BLOCK) an end, O(BLOCK) for each block of which a job may start then, O(running) a start.
    """
    most = s.c[RUN] + depth
    # running jobs, and their numbers in the order of planned ends, as the scheduler counts them, and in that of
    # expected ends; who starts is sorted into both, who has ended stays in the first for a while
    plan, end, cores = np.empty(most), np.empty(most), np.empty(most, np.int64)
    running = s.c[RUN]
    now, free = s.f[NOW], s.c[FREE]
    for node in range(len(other.node)):  # nobody starts on a node that is gone
        if other.node[node].gone:
            free -= other.node[node].free
    for i in range(running):
        job = s.run[i].job
        plan[i], cores[i] = s.run[i].end, s.job[job].cores
        end[i] = max(now + 1.0, s.job[job].start + expected_run(s, other, seen, job))
    by_plan, by_end = np.empty(most, np.int32), np.empty(most, np.int32)
    order = np.argsort(end[:running])
    for i in range(running):
        by_plan[i], by_end[i] = i, order[i]
    jobs, ended = running, 0
    # those that wait, side by side, as they are looked at again and again; who has started is WIDEST there
    wait = np.empty(depth, np.int32)
    waiting = _find_waiting(s, other, wait)
    submit, planned, wide = np.empty(waiting), np.empty(waiting), np.empty(waiting, np.int64)
    for i in range(waiting):
        submit[i], planned[i], wide[i] = s.job[wait[i]].submit, s.job[wait[i]].planned, s.job[wait[i]].cores
        estimate[wait[i]] = np.nan
    # of each block of them: the narrowest job, the shortest plan, and the next arrival
    blocks = (waiting + BLOCK - 1) // BLOCK
    narrowest, shortest, arrival = np.zeros(blocks, np.int64), np.zeros(blocks), np.zeros(blocks)
    first = 0
    begin, gone = (
        0,
        0,
    )  # all before have ended, among who runs by plan; who has started, among those that wait
    while first < blocks:
        while begin < running and end[by_plan[begin]] <= now:
            begin += 1
        if 2 * (ended - begin) > running - begin:
            running = _leave_out_ended(now, end, by_plan, by_end, ended, running)
            begin, ended = 0, 0
        if 2 * gone > waiting:
            waiting = _leave_out_started(wait, submit, planned, wide, waiting)
            blocks = (waiting + BLOCK - 1) // BLOCK
            narrowest[:blocks], shortest[:blocks], arrival[:blocks] = 0, 0.0, 0.0
            first, gone = 0, 0
        blocked, shadow, extra = False, -1.0, 0
        for b in range(first, blocks):
            fits = narrowest[b] <= free and (narrowest[b] <= extra or now + shortest[b] <= shadow)
            if blocked and arrival[b] > now and not fits:
                continue
            last = min(waiting, (b + 1) * BLOCK)
            if (
                blocked and arrival[b] > now
            ):  # the least width and the least length are those of two jobs, mostly
                here = slice(b * BLOCK, last)
                if not _one_fits(submit[here], planned[here], wide[here], free, extra, now, shadow):
                    continue
            narrowest[b], shortest[b], arrival[b] = WIDEST, NEVER, NEVER
            for i in range(b * BLOCK, last):
                if wide[i] == WIDEST:
                    continue
                starts = False
                if submit[i] > now:
                    arrival[b] = min(arrival[b], submit[i])
                elif not blocked and wide[i] > free:
                    blocked = True  # by the head: when it fits by the plan, and what is left beside it then
                    shadow, extra = _reserve_for(
                        wide[i], free, now, plan, end, cores, by_plan, begin, running
                    )
                elif not blocked or now + planned[i] <= shadow:
                    starts = wide[i] <= free
                else:
                    starts = wide[i] <= min(free, extra)
                    extra -= wide[i] if starts else 0
                if not starts:
                    narrowest[b], shortest[b] = min(narrowest[b], wide[i]), min(shortest[b], planned[i])
                    continue
                estimate[wait[i]] = now
                free -= wide[i]
                over, until = now + max(1.0, expected_run(s, other, seen, wait[i])), now + planned[i]
                plan[jobs], end[jobs], cores[jobs] = until, over, wide[i]
                _sort_in(jobs, plan, by_plan, begin, running)
                _sort_in(jobs, end, by_end, ended, running)
                jobs += 1
                running += 1
                wide[i] = WIDEST
                gone += 1
        while first < blocks and narrowest[first] == WIDEST and arrival[first] == NEVER:
            first += 1
        least, coming = WIDEST, NEVER
        for b in range(first, blocks):
            least, coming = min(least, narrowest[b]), min(coming, arrival[b])
        following = min(coming, end[by_end[ended]] if ended < running else NEVER)
        if following == NEVER:
            break
        now = following
        while ended < running and end[by_end[ended]] <= now:
            free += cores[by_end[ended]]
            ended += 1
            # where nobody fits yet, nothing happens at an end
            if least > free and ended < running and end[by_end[ended]] < coming:
                now = max(now, end[by_end[ended]])


@borrowing
def _one_fits(
    submit: NDArray[np.float64],
    planned: NDArray[np.float64],
    wide: NDArray[np.int64],
    free: int,
    extra: int,
    now: float,
    shadow: float,
) -> bool:
    """Could one of these that wait start behind the reservation? Without branches, for vector instructions."""
    able = 0
    for i in range(len(wide)):
        able += (wide[i] <= free) & (submit[i] <= now) & ((wide[i] <= extra) | (now + planned[i] <= shadow))
    return able > 0


@borrowing
def outwait(s: State, depth: int, estimate: NDArray[np.float64]) -> None:
    """Of recorded starts: who has room now, and yet waits, waits for a limit, a priority or a reservation that no log
    shows. It is expected to wait on for as long as it has waited."""
    position, seen = s.c[HEAD], 0
    while position < s.c[TAIL] and seen < depth:
        job = s.queue[position].job
        if estimate[job] <= s.f[NOW]:
            estimate[job] = s.f[NOW] + (s.f[NOW] - s.job[job].submit)
        position = next_waiting(s, position + 1)
        seen += 1


@borrowing
def _sort_in(one: int, times: NDArray[np.float64], order: NDArray[np.int32], begin: int, count: int) -> None:
    """A number into the first `count` of an `order` by `times`, from `begin` on behind all that are no later."""
    low, high = begin, count
    while low < high:
        middle = (low + high) >> 1
        if times[order[middle]] > times[one]:
            high = middle
        else:
            low = middle + 1
    behind = order[low : count + 1]
    for k in range(len(behind)):
        behind[k], one = one, behind[k]


@borrowing
def _leave_out_ended(
    now: float,
    end: NDArray[np.float64],
    by_plan: NDArray[np.int32],
    by_end: NDArray[np.int32],
    ended: int,
    running: int,
) -> int:
    """Only who still runs stays in both orders; how many they are."""
    left = 0
    for k in range(running):
        if end[by_plan[k]] > now:
            by_plan[left] = by_plan[k]
            left += 1
    for k in range(ended, running):
        by_end[k - ended] = by_end[k]
    return left


@borrowing
def _leave_out_started(
    wait: NDArray[np.int32],
    submit: NDArray[np.float64],
    planned: NDArray[np.float64],
    wide: NDArray[np.int64],
    waiting: int,
) -> int:
    """Only who still waits stays, in the same order; how many they are."""
    left = 0
    for i in range(waiting):
        if wide[i] != WIDEST:
            wait[left], submit[left], planned[left], wide[left] = wait[i], submit[i], planned[i], wide[i]
            left += 1
    return left


@borrowing
def _find_waiting(s: State, other: State, wait: NDArray[np.int32]) -> int:
    """The first jobs that wait here, and then those that have come in `other` since, into `wait`; how many."""
    waiting = 0
    position = s.c[HEAD]
    while position < s.c[TAIL] and waiting < len(wait):
        wait[waiting] = s.queue[position].job
        waiting += 1
        position = next_waiting(s, position + 1)
    for k in range(s.c[NEXT], other.c[NEXT]):
        job = arrival(s, k)
        if waiting < len(wait) and s.job[job].depends < 0:
            wait[waiting] = job
            waiting += 1
    return waiting


@borrowing
def _reserve_for(
    wanted: int,
    free: int,
    now: float,
    plan: NDArray[np.float64],
    end: NDArray[np.float64],
    cores: NDArray[np.int64],
    by_plan: NDArray[np.int32],
    begin: int,
    running: int,
) -> tuple[float, int]:
    """When so many cores are free by the plan of who runs, from `begin` on, and how many are left over then."""
    shadow, k = -1.0, begin
    while k < running and free < wanted:
        one = by_plan[k]
        if end[one] > now:
            free += cores[one]
            shadow = plan[one]
        k += 1
    return shadow, free - wanted
