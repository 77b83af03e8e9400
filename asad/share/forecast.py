"""What the queue will come to: the scheduler run ahead, with and without some of the waiting jobs lent to.

A lending is worth what it changes for everybody: the guest leaves the queue, others start sooner, and a guest that
outlives its host meets those that come after it. A forecast plays that out, with the run times that history expects
for what happens and the time limits for what the scheduler plans with. `best_pairs` searches the pairs whose forecast
is best over a few scenarios of run times; it pays for itself where history knows the jobs well.

Cost: a forecast O(events · cores), a search O(waiting · hosts) forecasts a pair and scenario.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.share.history import History, expected_cpu, expected_run, run_deviation
from asad.share.openings import ROOM, Openings, View

OVERDUE = 0.1
"""What has run longer than expected is expected to run on for this part of the time that it has run."""
LEAST_PART = 0.3
"""No scenario makes a run shorter than this part of what is expected."""
TENTHS = 1e-6


class Outlook(NamedTuple):
    """The cluster as a forecast sees it: R running batch jobs, Q waiting ones, G guests, N nodes, C cores."""

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
    owner: NDArray[np.int32]
    """(C,) which of the R + Q holds a core, -1 for none."""
    guest: NDArray[np.int32]
    """(C,) which of the G + Q is a guest on it, -1 for none."""
    node_first: NDArray[np.int32]
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
def foreseeable(view: View, history: History, most_waiting: int, deviation: float) -> bool:
    """Are the jobs few and well known: at most so many wait, and none deviates more than this part from its mean?"""
    if len(view.queue) > most_waiting:
        return False
    for rows in (view.queue, view.running, view.guests):
        for i in range(len(rows)):
            application = view.application[rows[i]]
            runs = history.runs[application]
            if runs < 2 or run_deviation(history, application) > deviation * history.run[application] / runs:
                return False
    return True


@compiled
def outlook(
    view: View, openings: Openings, history: History, overhead: float, headroom: float, poll_s: float
) -> Outlook:
    """The cluster as history expects it to go on."""
    waiting = 0
    for i in range(len(view.queue)):
        waiting += 1 if view.host[view.queue[i]] < 0 else 0
    R, Q, G = len(view.running), waiting, len(view.guests)
    a = Outlook(
        now=view.now,
        overhead=overhead,
        headroom=headroom,
        poll_s=poll_s,
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
        owner=np.full(len(view.core_owner), -1, np.int32),
        guest=np.full(len(view.core_owner), -1, np.int32),
        node_first=view.node_first,
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
            left = max(poll_s, _left(view, job, run))
            a.run_end[k] = view.now + min(left, max(poll_s, view.limit_end[job] - view.now))
            a.run_limit[k] = view.limit_end[job]
        else:
            a.wait_run[k - R], a.wait_limit[k - R] = run, view.limit[job]
            a.joins[k - R] = view.guest_bar[job] == 0 and not np.isnan(view.estimate[job])
            a.lends[k] = view.host_bar[job] == 0
        for core in range(len(view.core_owner)):
            if k < R and view.core_owner[core] == job:
                a.owner[core] = k
    for h in range(openings.found[0]):
        for k in range(R):
            if a.rows[k] == openings.hosts[h]:
                a.lends[k] = True
    for g in range(G):
        job = view.guests[g]
        application = view.application[job]
        a.guest_left[g] = max(poll_s, _left(view, job, expected_run(history, application, view.limit[job])))
        a.guest_cpu[g] = max(0.01, expected_cpu(history, application))
        a.guest_memory[g] = view.memory[job]
        for core in range(len(view.core_guest)):
            if view.core_guest[core] == job:
                a.guest[core] = g
    return a


@compiled
def _left(view: View, job: int, run: float) -> float:
    """How much of its work a running job has before it (s alone), if `run` is expected of it in all."""
    done = view.now - view.start[job] - view.lost[job]
    return float(max(run - done, OVERDUE * done))


@compiled
def _scenario(a: Outlook, deviation: NDArray[np.float64], rng: np.random.Generator) -> Outlook:
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
        a.owner,
        a.guest,
        a.node_first,
        a.node_memory,
        a.lends,
        a.joins,
        a.group,
        a.memory_bound,
    )


WAITS, RUNS, ENDED, GUEST = range(4)


@compiled
def forecast(
    a: Outlook,
    beside: NDArray[np.int32],
    end: NDArray[np.float64],
    guest_end: NDArray[np.float64],
    slow: NDArray[np.float64],
) -> None:
    """Fill `end` (Q,) and `guest_end` (G,) with expected ends, and `slow` (Q,) with the seconds that guests lose.

    Waiting job i becomes a guest of the batch job `beside[i]` (of the R + Q; -1 for none) as soon as that runs, unless
    it has been started by then.
    """
    R, Q, N = len(a.run_end), len(a.wait_run), len(a.node_first) - 1
    G = len(a.guest_left)
    owner, guest = a.owner.copy(), a.guest.copy()
    work = np.zeros(G + Q)
    work[:G] = a.guest_left
    cpu, memory = np.concatenate((a.guest_cpu, a.cpu[R:])), np.concatenate((a.guest_memory, a.memory[R:]))
    ends = np.full(R + Q, np.inf)
    plan = np.full(R + Q, np.inf)
    state = np.full(R + Q, WAITS, np.int8)
    ends[:R], plan[:R] = a.run_end, a.run_limit
    state[:R] = RUNS
    memory_free = np.full(N, np.inf)
    free = np.zeros(N, np.int64)
    for n in range(N):
        for core in range(a.node_first[n], a.node_first[n + 1]):
            if owner[core] < 0:
                free[n] += 1
        if not np.isnan(a.node_memory[n]):
            memory_free[n] = a.node_memory[n]
            for core in range(a.node_first[n], a.node_first[n + 1]):
                if owner[core] >= 0:
                    memory_free[n] -= a.memory[owner[core]]
                if guest[core] >= 0:
                    memory_free[n] -= memory[guest[core]]
    guest_end[:] = np.inf
    end[:] = np.inf
    slow[:] = 0.0
    rate = np.zeros(G + Q)
    on = np.zeros(G + Q, np.int64)
    chosen = np.zeros(N, np.int32)
    t = a.now
    new = True
    for _ in range(4 * (R + Q + G) + 16):
        if new:
            for i in range(Q):  # guests whose host runs
                if beside[i] < 0 or state[R + i] != WAITS or state[beside[i]] != RUNS:
                    continue
                if _join(a, i, beside[i], owner, guest, memory_free, chosen):
                    state[R + i] = GUEST
                    work[G + i] = a.wait_run[i]
                    slow[i] = t
            # the scheduler: the head of the queue, then backfill behind its reservation
            shadow, extra_cores = -1.0, 0
            for i in range(Q):
                job = R + i
                if state[job] != WAITS:
                    continue
                fits = 0
                for n in range(N):
                    fits += _room(free[n], memory_free[n], a.memory[job])
                    if fits >= a.cores[job]:
                        break
                if shadow >= 0:
                    if fits < a.cores[job]:
                        continue
                    if t + a.wait_limit[i] > shadow:
                        if a.cores[job] > extra_cores:
                            continue
                        extra_cores -= a.cores[job]
                elif fits < a.cores[job]:
                    shadow, extra_cores = _reserve(a, job, t, state, plan, free)
                    continue
                wanted = a.cores[job]
                for n in range(N):
                    take = min(wanted, _room(free[n], memory_free[n], a.memory[job]))
                    if take == 0:
                        continue
                    free[n] -= take
                    memory_free[n] -= take * a.memory[job]
                    wanted -= take
                    for core in range(a.node_first[n], a.node_first[n + 1]):
                        if take > 0 and owner[core] < 0:
                            owner[core] = job
                            take -= 1
                    if wanted == 0:
                        break
                state[job] = RUNS
                ends[job], plan[job] = t + a.wait_run[i], t + a.wait_limit[i]
                for k in range(Q):
                    if beside[k] != job or state[R + k] != WAITS:
                        continue
                    if _join(a, k, job, owner, guest, memory_free, chosen):
                        state[R + k] = GUEST
                        work[G + k] = a.wait_run[k]
                        slow[k] = t
        # what the guests get
        rate[:] = 1.0
        on[:] = 0
        for n in range(N):
            first, last = a.node_first[n], a.node_first[n + 1]
            used = 0.0
            wish = 0.0
            for core in range(first, last):
                if owner[core] >= 0:
                    used += a.cpu[owner[core]]
                if guest[core] >= 0:
                    on[guest[core]] += 1
                    wish += cpu[guest[core]]
            if wish == 0.0:
                continue
            idle = max(0.0, (last - first) - used)
            part = min(1.0, idle / wish)
            capped = part
            if used > 0 and idle < last - first:
                lend = np.floor((idle / (last - first) - a.headroom) * 10 + TENTHS) / 10
                if lend > 0:
                    capped = min(part, lend * (last - first) / wish)
            for core in range(first, last):
                g = guest[core]
                if g >= 0:
                    rate[g] = min(rate[g], a.overhead * capped if owner[core] >= 0 else part)
        # on to the next end
        following = np.inf
        for job in range(R + Q):
            if state[job] == RUNS:
                following = min(following, ends[job])
        for g in range(G + Q):
            if work[g] > 0 and on[g] > 0:
                following = min(following, t + work[g] / max(rate[g], 1e-6))
        if following == np.inf:
            break
        step = following - t
        t = following
        new = False
        for g in range(G + Q):
            if work[g] > 0 and on[g] > 0:
                work[g] -= step * rate[g]
                if work[g] <= 1e-6:
                    work[g] = 0.0
                    new = True
                    if g < G:
                        guest_end[g] = t
                    else:
                        end[g - G] = t
                        slow[g - G] = t - slow[g - G] - a.wait_run[g - G]
                    for n in range(N):
                        for core in range(a.node_first[n], a.node_first[n + 1]):
                            if guest[core] == g:
                                guest[core] = -1
                                memory_free[n] += memory[g]
        for job in range(R + Q):
            if state[job] == RUNS and ends[job] <= t:
                state[job] = ENDED
                new = True
                if job >= R:
                    end[job - R] = t
                for n in range(N):
                    for core in range(a.node_first[n], a.node_first[n + 1]):
                        if owner[core] == job:
                            owner[core] = -1
                            free[n] += 1
                            memory_free[n] += a.memory[job]


@compiled
def _join(
    a: Outlook,
    waiting: int,
    host: int,
    owner: NDArray[np.int32],
    guest: NDArray[np.int32],
    memory_free: NDArray[np.float64],
    chosen: NDArray[np.int32],
) -> bool:
    """Put a waiting job on its host's nodes, if it fits: on few of them at full speed, else on all."""
    R, N = len(a.run_end), len(a.node_first) - 1
    G = len(a.guest_left)
    wanted, cpu, memory = a.cores[R + waiting], a.cpu[R + waiting], a.memory[R + waiting]
    ceiling = 1.0 - a.cpu[host] - a.headroom
    for packed in (True, False):
        count = 0
        total = 0
        for n in range(N - 1, -1, -1):
            first, last = a.node_first[n], a.node_first[n + 1]
            if owner[first] != host:
                continue
            room = ceiling * (last - first)
            open_cores = 0
            for core in range(first, last):
                if owner[core] != host:
                    open_cores = 0
                    break
                if guest[core] < 0:
                    open_cores += 1
                elif guest[core] < G:
                    room -= a.guest_cpu[guest[core]]
                else:
                    room -= a.cpu[R + guest[core] - G]
            take = _room(open_cores, memory_free[n], memory)
            room = np.floor(room / (last - first) * 10 + TENTHS) / 10 * (last - first)
            if packed:
                take = min(take, int(room / cpu + ROOM))
            if take <= 0 or room < 0.1 * (last - first) - ROOM:
                continue
            chosen[count] = n
            count += 1
            total += take
            if packed and total >= wanted:
                break
        if total < wanted:
            continue
        count = min(count, wanted)
        even = (wanted + count - 1) // count
        for k in range(count):
            n = chosen[k]
            given = 0
            for core in range(a.node_first[n], a.node_first[n + 1]):
                if guest[core] < 0 and given < min(even, wanted):
                    guest[core] = G + waiting
                    given += 1
            wanted -= given
            memory_free[n] -= given * memory
        return True
    return False


@compiled
def _room(free: int, memory_free: float, memory: float) -> int:
    """Cores of a node that a job with so much memory a core can have."""
    if memory <= 0 or memory_free == np.inf:
        return free
    return min(free, int(max(0.0, memory_free) / memory + ROOM))


@compiled
def _reserve(
    a: Outlook,
    head: int,
    t: float,
    state: NDArray[np.int8],
    plan: NDArray[np.float64],
    free: NDArray[np.int64],
) -> tuple[float, int]:
    """Shadow time of the head of the queue by the plan, and the cores that it leaves then."""
    total = free.sum()
    order = np.argsort(plan)
    for k in range(len(order)):
        job = order[k]
        if state[job] != RUNS:
            continue
        total += a.cores[job]
        if total >= a.cores[head]:
            return max(t, plan[job]), total - a.cores[head]
    return np.inf, 0


@compiled
def _cost(
    end: NDArray[np.float64],
    guest_end: NDArray[np.float64],
    slow: NDArray[np.float64],
    stretch_weight: float,
    makespan_weight: float,
) -> float:
    """Sum of all ends, seconds that guests lose, and the last end, weighted."""
    cost, last = 0.0, 0.0
    for i in range(len(end)):
        cost += end[i] + stretch_weight * slow[i]
        last = max(last, end[i])
    for g in range(len(guest_end)):
        if guest_end[g] < np.inf:
            cost += guest_end[g]
            last = max(last, guest_end[g])
    return cost + makespan_weight * last


@compiled
def best_pairs(
    a: Outlook,
    deviation: NDArray[np.float64],
    scenarios: int,
    most_stretch: float,
    stretch_weight: float,
    makespan_weight: float,
    least_gain_s: float,
    slack_s: float,
    rng: np.random.Generator,
    beside: NDArray[np.int32],
    alone_end: NDArray[np.float64],
    end: NDArray[np.float64],
) -> None:
    """Fill `beside` (Q,) with the host of each waiting job (of the R + Q, -1 for none), `alone_end` and `end` (Q,).

    Pair after pair, the one that saves most, also with hosts that have yet to start and by changing pairs found
    before, until none saves `least_gain_s`. No guest is stretched more than `most_stretch` or ends later than it would
    with nobody lent to. Ends are means over the scenarios: the expected one and others drawn from `rng`.
    """
    R, Q, G = len(a.run_end), len(a.wait_run), len(a.guest_left)
    outlooks = [a]
    for _ in range(scenarios - 1):
        outlooks.append(_scenario(a, deviation, rng))  # noqa: PERF401 — compiled code knows no extend by a generator
    one_end, one_slow, guest_end, slow = np.zeros(Q), np.zeros(Q), np.zeros(G), np.zeros(Q)
    weights = (stretch_weight, makespan_weight)
    beside[:] = -1
    cost = _mean_cost(outlooks, beside, weights, alone_end, slow, one_end, one_slow, guest_end)
    for _ in range(MOVES):
        best_gain, best_guest, best_host = least_gain_s, -1, -1
        for i in range(Q):
            if not a.joins[i] or (beside == R + i).any():
                continue
            was = beside[i]
            for host in range(-1, R + Q):
                if host == was or not _may_pair(a, i, host, beside):
                    continue
                beside[i] = host
                other = _mean_cost(outlooks, beside, weights, end, slow, one_end, one_slow, guest_end)
                beside[i] = was
                if slow[i] <= (most_stretch - 1) * a.wait_run[i] and end[i] < alone_end[i] + slack_s:
                    gain = cost - other
                    if gain > best_gain:
                        best_gain, best_guest, best_host = gain, i, host
        if best_guest < 0:
            break
        beside[best_guest] = best_host
        cost -= best_gain
    _mean_cost(outlooks, beside, weights, end, slow, one_end, one_slow, guest_end)


MOVES = 40
"""Changes of the pairs that one search makes at the most."""


@compiled
def _may_pair(a: Outlook, waiting: int, host: int, beside: NDArray[np.int32]) -> bool:
    """May this waiting job be a guest of that batch job? -1 stands for no host, and is always possible."""
    R = len(a.run_end)
    if host < 0:
        return True
    if host == R + waiting or not a.lends[host] or a.group[host] != a.group[R + waiting]:
        return False
    if a.memory_bound[host] and a.memory_bound[R + waiting]:
        return False
    if a.cores[host] < a.cores[R + waiting] or a.cpu[host] + a.headroom > 0.9 + ROOM:
        return False
    return bool(host < R or beside[host - R] < 0)


@compiled
def _mean_cost(
    outlooks: list[Outlook],
    beside: NDArray[np.int32],
    weights: tuple[float, float],
    end: NDArray[np.float64],
    slow: NDArray[np.float64],
    one_end: NDArray[np.float64],
    one_slow: NDArray[np.float64],
    guest_end: NDArray[np.float64],
) -> float:
    """Mean cost over the scenarios; `end` and `slow` are their means, the last three are scratch."""
    end[:] = 0.0
    slow[:] = 0.0
    cost = 0.0
    for one in outlooks:
        forecast(one, beside, one_end, guest_end, one_slow)
        cost += _cost(one_end, guest_end, one_slow, weights[0], weights[1])
        end += one_end
        slow += one_slow
    end /= len(outlooks)
    slow /= len(outlooks)
    return cost / len(outlooks)
