"""What the queue will come to: the scheduler run ahead, with some of the waiting jobs lent to.

A lending is worth what it changes for everybody: the guest leaves the queue, others start sooner, and a guest that
outlives its host meets those that come after it. A forecast plays that out, with the run times that history expects
for what happens and the time limits for what the scheduler plans with.

Cost: O(events · (jobs + waiting · nodes)).
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
    """The cluster at a moment of a forecast; R, Q, G and N as in its outlook."""

    state: NDArray[np.int8]
    """(R + Q,) WAITS, RUNS, ENDED or GUEST"""
    ends: NDArray[np.float64]
    """(R + Q,) when those that run will end"""
    plan: NDArray[np.float64]
    """(R + Q,) when the scheduler thinks they will"""
    held: NDArray[np.int32]
    taken: NDArray[np.int32]
    """(R + Q, N) and (G + Q, N) as in the outlook"""
    free: NDArray[np.int64]
    """(N,) cores that no batch job holds"""
    open: NDArray[np.int64]
    """(N,) cores that no guest is on"""
    memory_free: NDArray[np.float64]
    """(N,) bytes; inf where memory is not known"""
    used: NDArray[np.float64]
    """(N,) cores' worth of CPU that batch jobs use"""
    wish: NDArray[np.float64]
    """(N,) cores' worth of CPU that guests would use alone"""
    lent: NDArray[np.float64]
    """(N,) shares that guests may use, in sum"""
    part: NDArray[np.float64]
    """(N,) of what guests would use alone that they get, as far as the node has it"""
    work: NDArray[np.float64]
    """(G + Q,) what guests have left, in seconds alone"""
    cpu: NDArray[np.float64]
    """(G + Q,) as a fraction of their cores"""
    memory: NDArray[np.float64]
    """(G + Q,) bytes a core"""
    share: NDArray[np.float64]
    """(G + Q,) of its host that each may use, 0 if that is not decided"""
    rate: NDArray[np.float64]
    """(G + Q,) how fast they run, alone being 1"""
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
    R, Q, G, N = len(a.run_end), len(a.wait_run), len(a.guest_left), len(a.node_cores)
    c = Course(
        state=np.full(R + Q, WAITS, np.int8),
        ends=np.full(R + Q, np.inf),
        plan=np.full(R + Q, np.inf),
        held=a.held.copy(),
        taken=a.taken.copy(),
        free=a.node_cores.copy(),
        open=a.node_cores.copy(),
        memory_free=np.where(np.isnan(a.node_memory), np.inf, a.node_memory),
        used=np.zeros(N),
        wish=np.zeros(N),
        lent=np.zeros(N),
        part=np.ones(N),
        work=np.zeros(G + Q),
        cpu=np.concatenate((a.guest_cpu, a.cpu[R:])),
        memory=np.concatenate((a.guest_memory, a.memory[R:])),
        share=np.zeros(G + Q),
        rate=np.zeros(G + Q),
        chosen=np.zeros(N, np.int32),
    )
    c.state[:R] = RUNS
    c.ends[:R], c.plan[:R] = a.run_end, a.run_limit
    c.work[:G], c.share[:G] = a.guest_left, a.guest_share
    for job in range(R):
        for n in range(N):
            if c.held[job, n] > 0:
                _hold(a, c, job, n, c.held[job, n])
    for g in range(G):
        for n in range(N):
            if c.taken[g, n] > 0:
                _settle(c, g, n, c.taken[g, n])
    return c


@inlined
def _hold(a: Outlook, c: Course, job: int, n: int, cores: int) -> None:
    """A batch job takes so many cores of a node; gives them back if that is negative."""
    c.free[n] -= cores
    c.used[n] += cores * a.cpu[job]
    c.memory_free[n] -= cores * a.memory[job]


@inlined
def _settle(c: Course, g: int, n: int, cores: int) -> None:
    """A guest comes to so many cores of a node; leaves them if that is negative."""
    c.open[n] -= cores
    c.wish[n] += cores * c.cpu[g]
    c.lent[n] += c.share[g] if cores > 0 else -c.share[g]
    c.memory_free[n] -= cores * c.memory[g]


@inlined
def _schedule(a: Outlook, c: Course, beside: NDArray[np.int32], t: float, slow: NDArray[np.float64]) -> None:
    """A pass of the scheduler: the head of the queue, then backfill behind its reservation."""
    R, Q, N = len(a.run_end), len(a.wait_run), len(c.free)
    shadow, extra_cores = -1.0, 0
    free = 0
    for n in range(N):
        free += c.free[n]
    for i in range(Q):
        job = R + i
        if free == 0:
            break
        if c.state[job] != WAITS:
            continue
        fits = 0
        if free >= a.cores[job]:
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
            shadow, extra_cores = _reserve(a, c, job, t, free)
            continue
        _start(a, c, job, t)
        free -= a.cores[job]
        for k in range(Q):
            if beside[k] == job and c.state[R + k] == WAITS:
                _join(a, c, k, job, t, slow)


@inlined
def _start(a: Outlook, c: Course, job: int, t: float) -> None:
    """Start a waiting batch job on the lowest nodes that it fits on."""
    wanted = a.cores[job]
    for n in range(len(c.free)):
        take = min(wanted, _room(c.free[n], c.memory_free[n], a.memory[job]))
        if take == 0:
            continue
        c.held[job, n] = take
        _hold(a, c, job, n, take)
        wanted -= take
        if wanted == 0:
            break
    waiting = job - len(a.run_end)
    c.state[job] = RUNS
    c.ends[job], c.plan[job] = t + a.wait_run[waiting], t + a.wait_limit[waiting]


@inlined
def _set_rates(a: Outlook, c: Course) -> None:
    """How fast the guests run: as on the worst of their nodes.

    In the idle class they get what the batch jobs leave; beside a host no more than the share they have, or than its
    headroom leaves as long as none is decided.
    """
    for n in range(len(c.free)):
        if c.wish[n] < TENTHS:
            continue
        cores = a.node_cores[n]
        idle = max(0.0, cores - c.used[n])
        c.part[n] = min(1.0, idle / c.wish[n])
        if c.free[n] < cores:
            lend = np.floor((idle / cores - a.headroom) * 10 + TENTHS) / 10
            if lend > 0:
                c.part[n] = min(c.part[n], lend * cores / c.wish[n])
            c.part[n] *= a.overhead
    for g in range(len(c.work)):
        if c.work[g] <= 0:
            continue
        c.rate[g] = 1.0
        for n in range(len(c.free)):
            if c.taken[g, n] == 0:
                continue
            c.rate[g] = min(c.rate[g], c.part[n])
            if c.share[g] > 0 and c.free[n] < a.node_cores[n]:
                own = c.share[g] * a.node_cores[n] / (c.taken[g, n] * c.cpu[g])
                c.rate[g] = min(c.rate[g], a.overhead * own)


@inlined
def _next_end(c: Course, t: float) -> float:
    """When the next batch job or guest ends if nothing changes; inf if none does."""
    following = np.inf
    for job in range(len(c.state)):
        if c.state[job] == RUNS:
            following = min(following, c.ends[job])
    for g in range(len(c.work)):
        if c.work[g] > 0:
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
    freed = False
    for g in range(len(c.work)):
        if c.work[g] <= 0:
            continue
        c.work[g] -= (following - t) * c.rate[g]
        if c.work[g] > 1e-6:
            continue
        c.work[g] = 0.0
        freed = True
        if g < G:
            guest_end[g] = following
        else:
            end[g - G] = following
            slow[g - G] = following - slow[g - G] - a.wait_run[g - G]
        for n in range(N):
            if c.taken[g, n] > 0:
                _settle(c, g, n, -c.taken[g, n])
                c.taken[g, n] = 0
    for job in range(len(c.state)):
        if c.state[job] != RUNS or c.ends[job] > following:
            continue
        c.state[job] = ENDED
        freed = True
        if job >= R:
            end[job - R] = following
        for n in range(N):
            if c.held[job, n] > 0:
                _hold(a, c, job, n, -c.held[job, n])
                c.held[job, n] = 0
                for g in range(len(c.work)):
                    if c.taken[g, n] > 0:
                        _undecide(c, g)
    return freed


@inlined
def _undecide(c: Course, g: int) -> None:
    """Its host has ended: the share that a guest had of it is void."""
    for n in range(len(c.free)):
        if c.taken[g, n] > 0:
            c.lent[n] -= c.share[g]
    c.share[g] = 0.0


@inlined
def _join(a: Outlook, c: Course, waiting: int, host: int, t: float, slow: NDArray[np.float64]) -> None:
    """Put a job that waits on its host's nodes, if it fits: on few of them at full speed, else on all.

    As `asad.share.openings.fit` does, with the least share that lets it run at full speed, or all there is room for.
    `slow` keeps since when it has been a guest until it ends.
    """
    R, G, N = len(a.run_end), len(a.guest_left), len(c.free)
    job, g = R + waiting, G + waiting
    wanted, cpu = a.cores[job], a.cpu[job]
    ceiling = 1.0 - a.cpu[host] - a.headroom
    for packed in (True, False):
        count, total = 0, 0
        room = 1.0
        for n in range(N - 1, -1, -1):
            cores = a.node_cores[n]
            open_share = ceiling - c.lent[n]
            if c.held[host, n] < cores or open_share < 0.1 - ROOM:
                continue
            take = _room(c.open[n], c.memory_free[n], a.memory[job])
            if packed:
                take = min(take, int(open_share * cores / cpu + ROOM))
            if take <= 0:
                continue
            c.chosen[count] = n
            count += 1
            total += take
            room = min(room, open_share)
            if packed and total >= wanted:
                break
        if total < wanted:
            continue
        count = min(count, wanted)
        even = (wanted + count - 1) // count
        full = 0.0
        for k in range(count):
            n = c.chosen[k]
            full = max(full, min(even, c.open[n]) * cpu / a.node_cores[n])
        c.share[g] = min(np.floor(room * 10 + TENTHS), np.ceil(full * 10 - TENTHS)) / 10
        for k in range(count):
            n = c.chosen[k]
            c.taken[g, n] = min(even, wanted, c.open[n])
            wanted -= c.taken[g, n]
            _settle(c, g, n, c.taken[g, n])
        c.state[job] = GUEST
        c.work[g] = a.wait_run[waiting]
        slow[waiting] = t
        return


@borrowing
def _room(free: int, memory_free: float, memory: float) -> int:
    """Cores of a node that a job with so much memory a core can have."""
    if memory <= 0 or memory_free == np.inf:
        return free
    return min(free, int(max(0.0, memory_free) / memory + ROOM))


@allocating
def _reserve(a: Outlook, c: Course, head: int, t: float, free: int) -> tuple[float, int]:
    """Shadow time of the head of the queue by the plan, and the cores that it leaves then."""
    shadow = np.inf
    for job in np.argsort(c.plan):
        if c.state[job] != RUNS:
            continue
        if c.plan[job] > shadow:
            break
        free += a.cores[job]
        if free >= a.cores[head]:
            shadow = c.plan[job]
    return max(t, shadow), free - a.cores[head]
