"""What the queue will come to: the scheduler run ahead, with some of the waiting jobs lent to.

A lending is worth what it changes for everybody: the guest leaves the queue, others start sooner, and a guest that
outlives its host meets those that come after it. A forecast plays that out, with the run times that history expects
for what happens and the time limits for what the scheduler plans with.

Cost: O(events · cores).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import allocating, borrowing, compiled, inlined
from asad.share.asax.outlook import Outlook
from asad.share.openings import ROOM

TENTHS = 1e-6
"""Room that misses a tenth by less than this has it: it comes from sums of measured CPU."""
WAITS, RUNS, ENDED, GUEST = range(4)


class Course(NamedTuple):
    """The cluster at a moment of a forecast; R, Q, G, N and C as in its outlook."""

    state: NDArray[np.int8]
    """(R + Q,) WAITS, RUNS, ENDED or GUEST"""
    ends: NDArray[np.float64]
    """(R + Q,) when those that run will end"""
    plan: NDArray[np.float64]
    """(R + Q,) when the scheduler thinks they will"""
    owner: NDArray[np.int32]
    guest: NDArray[np.int32]
    """(C,) as in the outlook"""
    free: NDArray[np.int64]
    """(N,) cores without an owner"""
    memory_free: NDArray[np.float64]
    """(N,) bytes; inf where memory is not known"""
    work: NDArray[np.float64]
    """(G + Q,) what guests have left, in seconds alone"""
    cpu: NDArray[np.float64]
    """(G + Q,) as a fraction of their cores"""
    memory: NDArray[np.float64]
    """(G + Q,) bytes a core"""
    rate: NDArray[np.float64]
    """(G + Q,) how fast they run, alone being 1"""
    on: NDArray[np.int64]
    """(G + Q,) cores that they are on"""
    chosen: NDArray[np.int32]
    """(N,) scratch: nodes of a guest that joins"""


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
    guest_end[:] = np.inf
    end[:] = np.inf
    slow[:] = 0.0
    R, Q, G = len(a.run_end), len(a.wait_run), len(a.guest_left)
    c = _course(a)
    t = a.now
    freed = True
    for _ in range(4 * (R + Q + G) + 16):
        if freed:
            for i in range(Q):
                if beside[i] >= 0 and c.state[R + i] == WAITS and c.state[beside[i]] == RUNS:
                    _join(a, c, i, beside[i], t, slow)
            _schedule(a, c, beside, t, slow)
        _set_rates(a, c)
        following = _next_end(c, t)
        if following == np.inf:
            break
        freed = _go_on(a, c, t, following, end, guest_end, slow)
        t = following


@compiled(forceinline=True)
def _course(a: Outlook) -> Course:
    """The cluster as it is now."""
    R, Q, G, N = len(a.run_end), len(a.wait_run), len(a.guest_left), len(a.node_first) - 1
    c = Course(
        state=np.full(R + Q, WAITS, np.int8),
        ends=np.full(R + Q, np.inf),
        plan=np.full(R + Q, np.inf),
        owner=a.owner.copy(),
        guest=a.guest.copy(),
        free=np.zeros(N, np.int64),
        memory_free=np.full(N, np.inf),
        work=np.zeros(G + Q),
        cpu=np.concatenate((a.guest_cpu, a.cpu[R:])),
        memory=np.concatenate((a.guest_memory, a.memory[R:])),
        rate=np.zeros(G + Q),
        on=np.zeros(G + Q, np.int64),
        chosen=np.zeros(N, np.int32),
    )
    c.state[:R] = RUNS
    c.ends[:R], c.plan[:R] = a.run_end, a.run_limit
    c.work[:G] = a.guest_left
    for n in range(N):
        for core in range(a.node_first[n], a.node_first[n + 1]):
            if c.owner[core] < 0:
                c.free[n] += 1
        if not np.isnan(a.node_memory[n]):
            c.memory_free[n] = a.node_memory[n]
            for core in range(a.node_first[n], a.node_first[n + 1]):
                if c.owner[core] >= 0:
                    c.memory_free[n] -= a.memory[c.owner[core]]
                if c.guest[core] >= 0:
                    c.memory_free[n] -= c.memory[c.guest[core]]
    return c


@inlined
def _schedule(a: Outlook, c: Course, beside: NDArray[np.int32], t: float, slow: NDArray[np.float64]) -> None:
    """A pass of the scheduler: the head of the queue, then backfill behind its reservation."""
    R, Q, N = len(a.run_end), len(a.wait_run), len(c.free)
    shadow, extra_cores = -1.0, 0
    for i in range(Q):
        job = R + i
        if c.state[job] != WAITS:
            continue
        fits = 0
        for n in range(N):
            fits += _room(c.free[n], c.memory_free[n], a.memory[job])
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
            shadow, extra_cores = _reserve(a, c, job, t)
            continue
        _start(a, c, job, t)
        for k in range(Q):
            if beside[k] == job and c.state[R + k] == WAITS:
                _join(a, c, k, job, t, slow)


@inlined
def _start(a: Outlook, c: Course, job: int, t: float) -> None:
    """Start a waiting batch job on the lowest cores that it fits on."""
    wanted = a.cores[job]
    for n in range(len(c.free)):
        take = min(wanted, _room(c.free[n], c.memory_free[n], a.memory[job]))
        if take == 0:
            continue
        c.free[n] -= take
        c.memory_free[n] -= take * a.memory[job]
        wanted -= take
        for core in range(a.node_first[n], a.node_first[n + 1]):
            if take > 0 and c.owner[core] < 0:
                c.owner[core] = job
                take -= 1
        if wanted == 0:
            break
    waiting = job - len(a.run_end)
    c.state[job] = RUNS
    c.ends[job], c.plan[job] = t + a.wait_run[waiting], t + a.wait_limit[waiting]


@inlined
def _set_rates(a: Outlook, c: Course) -> None:
    """How fast the guests run: as on the worst of their nodes."""
    c.rate[:] = 1.0
    c.on[:] = 0
    for n in range(len(c.free)):
        first, last = a.node_first[n], a.node_first[n + 1]
        used = 0.0
        wish = 0.0
        for core in range(first, last):
            if c.owner[core] >= 0:
                used += a.cpu[c.owner[core]]
            if c.guest[core] >= 0:
                c.on[c.guest[core]] += 1
                wish += c.cpu[c.guest[core]]
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
            g = c.guest[core]
            if g >= 0:
                c.rate[g] = min(c.rate[g], a.overhead * capped if c.owner[core] >= 0 else part)


@inlined
def _next_end(c: Course, t: float) -> float:
    """When the next batch job or guest ends if nothing changes; inf if none does."""
    following = np.inf
    for job in range(len(c.state)):
        if c.state[job] == RUNS:
            following = min(following, c.ends[job])
    for g in range(len(c.work)):
        if c.work[g] > 0 and c.on[g] > 0:
            following = min(following, t + c.work[g] / max(c.rate[g], 1e-6))
    return following


@inlined
def _go_on(
    a: Outlook,
    c: Course,
    t: float,
    following: float,
    end: NDArray[np.float64],
    guest_end: NDArray[np.float64],
    slow: NDArray[np.float64],
) -> bool:
    """From `t` to the time that follows: what guests get done, and who ends then; has anybody?"""
    R, G, N = len(a.run_end), len(a.guest_left), len(c.free)
    step = following - t
    freed = False
    for g in range(len(c.work)):
        if c.work[g] > 0 and c.on[g] > 0:
            c.work[g] -= step * c.rate[g]
            if c.work[g] <= 1e-6:
                c.work[g] = 0.0
                freed = True
                if g < G:
                    guest_end[g] = following
                else:
                    end[g - G] = following
                    slow[g - G] = following - slow[g - G] - a.wait_run[g - G]
                for n in range(N):
                    for core in range(a.node_first[n], a.node_first[n + 1]):
                        if c.guest[core] == g:
                            c.guest[core] = -1
                            c.memory_free[n] += c.memory[g]
    for job in range(len(c.state)):
        if c.state[job] == RUNS and c.ends[job] <= following:
            c.state[job] = ENDED
            freed = True
            if job >= R:
                end[job - R] = following
            for n in range(N):
                for core in range(a.node_first[n], a.node_first[n + 1]):
                    if c.owner[core] == job:
                        c.owner[core] = -1
                        c.free[n] += 1
                        c.memory_free[n] += a.memory[job]
    return freed


@inlined
def _join(a: Outlook, c: Course, waiting: int, host: int, t: float, slow: NDArray[np.float64]) -> None:
    """Put a job that waits on its host's nodes, if it fits: on few of them at full speed, else on all.

    `slow` keeps since when it has been a guest until it ends.
    """
    R, G, N = len(a.run_end), len(a.guest_left), len(c.free)
    job = R + waiting
    wanted, cpu, memory = a.cores[job], a.cpu[job], a.memory[job]
    ceiling = 1.0 - a.cpu[host] - a.headroom
    for packed in (True, False):
        count = 0
        total = 0
        for n in range(N - 1, -1, -1):
            first, last = a.node_first[n], a.node_first[n + 1]
            if c.owner[first] != host:
                continue
            room = ceiling * (last - first)
            open_cores = 0
            for core in range(first, last):
                if c.owner[core] != host:
                    open_cores = 0
                    break
                if c.guest[core] < 0:
                    open_cores += 1
                else:
                    room -= c.cpu[c.guest[core]]
            take = _room(open_cores, c.memory_free[n], memory)
            room = np.floor(room / (last - first) * 10 + TENTHS) / 10 * (last - first)
            if packed:
                take = min(take, int(room / cpu + ROOM))
            if take <= 0 or room < 0.1 * (last - first) - ROOM:
                continue
            c.chosen[count] = n
            count += 1
            total += take
            if packed and total >= wanted:
                break
        if total < wanted:
            continue
        count = min(count, wanted)
        even = (wanted + count - 1) // count
        for k in range(count):
            n = c.chosen[k]
            given = 0
            for core in range(a.node_first[n], a.node_first[n + 1]):
                if c.guest[core] < 0 and given < min(even, wanted):
                    c.guest[core] = G + waiting
                    given += 1
            wanted -= given
            c.memory_free[n] -= given * memory
        c.state[job] = GUEST
        c.work[G + waiting] = a.wait_run[waiting]
        slow[waiting] = t
        return


@borrowing
def _room(free: int, memory_free: float, memory: float) -> int:
    """Cores of a node that a job with so much memory a core can have."""
    if memory <= 0 or memory_free == np.inf:
        return free
    return min(free, int(max(0.0, memory_free) / memory + ROOM))


@allocating
def _reserve(a: Outlook, c: Course, head: int, t: float) -> tuple[float, int]:
    """Shadow time of the head of the queue by the plan, and the cores that it leaves then."""
    total = c.free.sum()
    order = np.argsort(c.plan)
    for k in range(len(order)):
        job = order[k]
        if c.state[job] != RUNS:
            continue
        total += a.cores[job]
        if total >= a.cores[head]:
            return max(t, c.plan[job]), total - a.cores[head]
    return np.inf, 0
