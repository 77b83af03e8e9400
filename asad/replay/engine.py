"""The recorded cluster's own scheduler and clock: compiled, exact, event by event.

It plays the part of Slurm. It knows nothing of asad but that a waiting job may be started as a *guest* beside running
batch jobs, whose cores it then shares and which the scheduler never counts, and what operators of a real Slurm may
change as well: who is tried first, who does not begin yet, and how many tasks of an array run at one time.

What is simulated, exactly
    Batch jobs take cores in index order. EASY reserves for the head of the queue alone, from requested times, with
    the shadow time and the extra processors, and backfills in the order of the queue (Mu'alem and Feitelson, IEEE
    TPDS 12(6), 2001). A pass follows every distinct second (`per_event` false), after all endings and arrivals of it,
    or every single event. Guests have at most one guest a core, progress at the rate of their slowest node, stay
    where they are when their host ends, and hold memory as any job does.

    Admission, where it is asked for (`admission` of `new_state`): who is admitted is tried before all others, in the
    order of arrival among each; a deferred job, or the waiting tasks of a deferred array, is out of the queue until its
    time has come, and then stands where it stood; of an array with a throttle as many of its first waiting tasks are
    in the queue as may still start, so that the next one is tried in the very pass after the end of another.

Cost
    An arrival or an end costs O(log running) for the heap, O(running) moves of 20 bytes for the list of expected
    ends, and for a pass O(jobs that could start + blocks of 64 waiting jobs). Memory: about 200 bytes a job. With
    admission about 100 more; a decision on an array costs O(its waiting tasks), the end of one of a throttled array
    O(throttle); without it a test of one counter an arrival, a start and an end.

All functions work on one `State`, a tuple of arrays; `c` holds its counters and `f` its clocks by the indices below.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import allocating, borrowing, compiled
from asad.errors import UsageError
from asad.share.kept import Kept

FCFS, EASY, CONSERVATIVE = 0, 1, 2
ABSENT, PENDING, RUNNING, GUEST, DONE, WITHHELD = 0, 1, 2, 3, 4, 5
"""What becomes of a job; who is withheld waits outside the queue: it is deferred, or beyond its array's throttle."""

# indices into State.c
(
    FREE,
    NEXT,
    HEAP,
    RUN,
    TAIL,
    HEAD,
    WAITING,
    VERSION,
    SCANNED,
    RESERVED,
    EXTRA,
    ENDED,
    GUESTS,
    STAMP,
    SCHEDULER,
) = range(15)
(PER_EVENT, KILL, PLACED, MEMORY, SETTLE, CHANGED, PENDING_END, ORDER, TOLD) = range(15, 24)
(ADMISSION, FRONT, ASIDE, GATHER) = range(24, 28)
COUNTERS = 28
# indices into State.f
NOW, SHADOW, POLL, WINDOW, ORIGIN, MU_HOST_CPU, MU_GUEST_CPU, MU_HOST_MEMORY, MU_GUEST_MEMORY = range(9)
CLOCKS = 9

BLOCK = 64
NEVER = np.inf
NOBODY = 2**31 - 1
ARRIVALS = 2**40
"""Order of an arrival in the event heap: after every end of the same moment."""


JOB = np.dtype(
    [
        # what the scheduler touches comes first: two cache lines a job
        ("submit", "f8"),
        ("work", "f8"),  # isolated run time that will be executed
        ("planned", "f8"),  # run time that the scheduler plans with
        ("planned_end", "f8"),
        ("start", "f8"),
        ("end", "f8"),
        ("eligible", "f8"),
        ("promised", "f8"),  # conservative backfill's promise of a start
        ("cores", "i4"),
        ("at", "i4"),  # its position in the queue
        ("heap_at", "i4"),
        ("depends", "i4"),
        ("child", "i4"),  # first job that waits for this one
        ("sibling", "i4"),  # next job that waits for the same one
        ("wide", "i4"),  # nodes asked for, 0 for any number
        ("host", "i4"),
        ("owner_first", "i4"),  # first of its cores as a batch job
        ("guest_first", "i4"),  # first of its cores as a guest
        ("guest_at", "i4"),
        ("limit", "f8"),  # time limit, inf for none
        ("memory", "f8"),  # bytes a core, 0 if it does not count
        ("demand", "f8"),  # CPU really wanted, as a fraction of the allocation
        ("think", "f8"),  # how long after the end of `depends` it arrives
        ("left", "f8"),  # isolated seconds of work still to do
        ("rate", "f8"),  # isolated seconds a second
        ("since", "f8"),  # when `left` was true
        ("lost", "f8"),  # seconds that sharing has cost so far
        ("extended", "f8"),
        ("limit_end", "f8"),
        ("share", "f8"),
        ("lent", "f8"),  # core-seconds that it got from hosts as a guest
        ("lending", "f8"),  # cores that it gets from hosts now
        ("stamp", "i8"),
        # lists of jobs, each from row 0 on: they have nothing to do with the job in whose row they stand
        ("ended", "i4"),  # in order of their end
        ("guest_row", "i4"),  # guests that run, in no order
        ("affected", "i4"),  # scratch
        ("state", "i1"),
        ("killed", "?"),
        ("capped", "?"),  # its share binds its host too (quotas on both); else it is in the idle class
        ("was_host", "?"),
        ("was_guest", "?"),
    ],
    align=True,
)
JOB_COLUMNS = ("submit", "work", "planned", "limit", "memory", "demand", "think", "cores", "wide", "depends")
HEAP_ENTRY = np.dtype([("time", "f8"), ("order", "i8"), ("job", "i4")], align=True)
RUN_ENTRY = np.dtype([("end", "f8"), ("job", "i4")], align=True)
QUEUE_ENTRY = np.dtype([("planned", "f8"), ("cores", "i4"), ("job", "i4")], align=True)
BLOCK_ENTRY = np.dtype([("planned", "f8"), ("cores", "i4")], align=True)
NODE = np.dtype(
    [
        ("memory", "f8"),
        ("memory_free", "f8"),
        ("memory_spare", "f8"),
        ("memory_later", "f8"),
        ("stamp", "i8"),
        ("first", "i4"),
        ("cores", "i4"),
        ("free", "i4"),
        ("spare", "i4"),  # free now and beside the head's reservation
        ("later", "i4"),  # free when the head is to start, itself not counted
        ("guests", "i4"),  # cores with a guest
        ("touched", "i4"),  # scratch: a list of nodes, from row 0 on
    ],
    align=True,
)
CORE = np.dtype(
    [
        ("node", "i4"),
        ("owner", "i4"),  # batch job
        ("owner_next", "i4"),  # next core of the same batch job
        ("guest", "i4"),
        ("guest_next", "i4"),
        ("lead", "?"),  # first core of its guest on its node under its owner
    ],
    align=True,
)
TASK = np.dtype(
    [
        ("until", "f8"),  # of the first task, which stands for all: deferred until then, NaN if it is not
        ("begin", "f8"),  # the same, as it is shown of each that waits
        ("stamp", "i8"),
        ("array", "i4"),  # -1 for a job that is no task
        ("lead", "i4"),  # first task of its array; the job itself if it is none
        ("next", "i4"),  # next task of its array, -1 for none
        ("wake_at", "i4"),  # where in the heap its deferral ends
        # of the arrays, each from row 0 on: they have nothing to do with the job in whose row they stand
        ("waiting_row", "i4"),  # first task that waits, -1 if none does
        ("waiting", "i4"),
        ("running", "i4"),
        ("ended", "i4"),
        ("throttle", "i4"),
        ("shown", "i4"),  # how many of those that wait are in the queue
        ("admitted", "?"),  # of the first task
    ],
    align=True,
)


class State(NamedTuple):
    """Everything that moves: n jobs, C cores, N nodes, in structured arrays (a row a job, core, node)."""

    c: NDArray[np.int64]
    f: NDArray[np.float64]
    job: NDArray[Any]  # (n,) JOB, in order of submission
    heap: NDArray[
        Any
    ]  # events: ends; as `n + job` arrivals that waited for another, as `2n + job` ends of deferrals
    run: NDArray[Any]  # running batch jobs by planned end
    queue: NDArray[
        Any
    ]  # positions in order of arrival, FRONT lower if admitted; empty ones need NOBODY cores
    block: NDArray[Any]  # the least of each 64 positions, or less; from the end on, of each 4096
    node: NDArray[Any]  # (N,) NODE
    core: NDArray[Any]  # (C,) CORE
    task: NDArray[Any]  # (n,) TASK, (0,) without admission


# ------------------------------------------------------------------------------------------------------ event heap


@compiled(inline="always")
def _earlier(time: float, order: int, other_time: float, other_order: int) -> bool:
    """Earlier first; at the same moment ends in order of their starts, then arrivals in order of the log."""
    return time < other_time or (time == other_time and order < other_order)


@compiled(inline="always")
def _seat(s: State, i: int, time: float, order: int, job: int) -> None:
    s.heap[i].time, s.heap[i].order, s.heap[i].job = time, order, job
    n = len(s.job)
    if job < n:
        s.job[job].heap_at = i
    elif job >= 2 * n:  # arrivals never move
        s.task[job - 2 * n].wake_at = i


@borrowing
def _sift_up(s: State, i: int) -> None:
    time, order, job = s.heap[i].time, s.heap[i].order, s.heap[i].job
    while i > 0:
        up = (i - 1) >> 1
        if not _earlier(time, order, s.heap[up].time, s.heap[up].order):
            break
        _seat(s, i, s.heap[up].time, s.heap[up].order, s.heap[up].job)
        i = up
    _seat(s, i, time, order, job)


@borrowing
def _sift_down(s: State, i: int) -> None:
    time, order, job = s.heap[i].time, s.heap[i].order, s.heap[i].job
    while 2 * i + 1 < s.c[HEAP]:
        low = 2 * i + 1
        if low + 1 < s.c[HEAP] and _earlier(
            s.heap[low + 1].time, s.heap[low + 1].order, s.heap[low].time, s.heap[low].order
        ):
            low += 1
        if not _earlier(s.heap[low].time, s.heap[low].order, time, order):
            break
        _seat(s, i, s.heap[low].time, s.heap[low].order, s.heap[low].job)
        i = low
    _seat(s, i, time, order, job)


@borrowing
def _push(s: State, job: int, time: float) -> None:
    i = s.c[HEAP]
    s.c[HEAP] += 1
    s.c[ORDER] += 1
    order = s.c[ORDER] if job < len(s.job) else ARRIVALS + job
    s.heap[i].time, s.heap[i].order, s.heap[i].job = time, order, job
    _sift_up(s, i)


@borrowing
def _pop(s: State) -> int:
    job = s.heap[0].job
    s.c[HEAP] -= 1
    if s.c[HEAP] > 0:
        last = s.c[HEAP]
        s.heap[0].time, s.heap[0].order, s.heap[0].job = (
            s.heap[last].time,
            s.heap[last].order,
            s.heap[last].job,
        )
        _sift_down(s, 0)
    return job


@borrowing
def _move(s: State, job: int, time: float) -> None:
    i = s.job[job].heap_at
    s.heap[i].time = time
    _sift_up(s, i)
    _sift_down(s, s.job[job].heap_at)


# ----------------------------------------------------------------------------------------------------------- queue


@borrowing
def _block_cores(s: State, block: int) -> None:
    least = NOBODY
    least_planned = NEVER
    for i in range(block * BLOCK, block * BLOCK + BLOCK):
        if s.queue[i].cores < least:
            least = s.queue[i].cores
        if s.queue[i].planned < least_planned:
            least_planned = s.queue[i].planned
    s.block[block].cores = least
    s.block[block].planned = least_planned
    upper = block // BLOCK
    least = NOBODY
    for i in range(upper * BLOCK, upper * BLOCK + BLOCK):
        if s.block[i].cores < least:
            least = s.block[i].cores
    s.block[len(s.block) - 1 - upper].cores = least


@borrowing
def _put(s: State, job: int) -> None:
    """Into the queue at its own position."""
    position = s.job[job].at
    s.c[WAITING] += 1
    s.queue[position].job = job
    s.queue[position].cores = s.job[job].cores
    s.queue[position].planned = s.job[job].planned
    block = position // BLOCK
    s.block[block].cores = min(s.block[block].cores, s.job[job].cores)
    s.block[block].planned = min(s.block[block].planned, s.job[job].planned)
    upper = len(s.block) - 1 - block // BLOCK
    s.block[upper].cores = min(s.block[upper].cores, s.job[job].cores)
    s.job[job].state = PENDING
    s.job[job].promised = NEVER
    s.c[CHANGED] = 1


@borrowing
def _enqueue(s: State, job: int, now: float) -> None:
    s.job[job].at = s.c[TAIL]
    s.c[TAIL] += 1
    s.job[job].eligible = now
    _put(s, job)


@borrowing
def _dequeue(s: State, job: int) -> None:
    position = s.job[job].at
    s.queue[position].cores = NOBODY
    s.queue[position].planned = NEVER
    s.c[WAITING] -= 1
    if (
        position // BLOCK < s.c[TAIL] // BLOCK
    ):  # of the last block, what is least may be out of date: a bound will do
        _block_cores(s, position // BLOCK)
    if position == s.c[HEAD]:
        s.c[HEAD] = _next_waiting(s, position + 1)


@borrowing
def _next_waiting(s: State, position: int) -> int:
    """First position from `position` on with a waiting job; TAIL if there is none."""
    return _next_candidate(s, position, NOBODY - 1, NOBODY - 1, NEVER)


@borrowing
def _next_candidate(s: State, position: int, free: int, extra: int, window: float) -> int:
    """First waiting job from `position` on that needs at most `extra` cores, or at most `free` for at most `window`."""
    tail = s.c[TAIL]
    while position < tail:
        upper = len(s.block) - 1 - position // (BLOCK * BLOCK)
        if position % (BLOCK * BLOCK) == 0 and s.block[upper].cores > free:
            position += BLOCK * BLOCK
            continue
        if position % BLOCK == 0:
            block = position // BLOCK
            least = s.block[block].cores
            if least > free or (least > extra and s.block[block].planned > window):
                position += BLOCK
                continue
        cores = s.queue[position].cores
        if cores <= extra or (cores <= free and s.queue[position].planned <= window):
            return position
        position += 1
    return tail


# ------------------------------------------------------------------------------------ admission: who is in the queue


@compiled(inline="always")
def _is_job(s: State, job: int) -> bool:
    """Rows come from outside, and compiled code does not check them."""
    return 0 <= job < len(s.job)


@borrowing
def _put_before(s: State, job: int) -> None:
    """Into the queue at a position that may be before those that have been looked at."""
    _put(s, job)
    s.c[HEAD] = min(s.c[HEAD], s.job[job].at)
    s.c[RESERVED] = 0


@borrowing
def _withhold(s: State, job: int) -> None:
    """Out of the queue; it keeps its position."""
    _dequeue(s, job)
    s.job[job].state = WITHHELD
    s.job[job].promised = NEVER
    s.c[ASIDE] += 1
    s.c[RESERVED] = 0
    s.c[CHANGED] = 1
    if s.task[job].array >= 0:
        s.task[s.task[job].array].shown -= 1


@borrowing
def _show(s: State, job: int) -> None:
    """Back to its position in the queue."""
    s.c[ASIDE] -= 1
    _put_before(s, job)
    if s.task[job].array >= 0:
        s.task[s.task[job].array].shown += 1


@borrowing
def _allowance(s: State, lead: int) -> int:
    """How many waiting tasks of a group may be in the queue."""
    if not np.isnan(s.task[lead].until):
        return 0
    array = s.task[lead].array
    if array < 0 or s.task[array].throttle == 0:
        return NOBODY
    return max(0, s.task[array].throttle - s.task[array].running)


@borrowing
def _first_waiting(s: State, job: int) -> int:
    """The first row that waits of the array of `job`, or of the job itself; -1 if none does."""
    if not _is_job(s, job):
        return -1
    if s.task[job].array >= 0:
        return s.task[s.task[job].array].waiting_row
    return job if s.job[job].state == PENDING or s.job[job].state == WITHHELD else -1


@borrowing
def _let_in(s: State, lead: int) -> None:
    """The first waiting tasks of a group into the queue, as many as may be there, and the others out of it."""
    may = _allowance(s, lead)
    array = s.task[lead].array
    left = 1
    if array >= 0:
        left = s.task[array].shown
        if left == min(may, s.task[array].waiting):
            return
    row = _first_waiting(s, lead)
    while row >= 0 and (may > 0 or left > 0):
        if s.job[row].state == PENDING:
            left -= 1
            if may > 0:
                may -= 1
            else:
                _withhold(s, row)
        elif s.job[row].state == WITHHELD and may > 0:
            _show(s, row)
            may -= 1
        row = s.task[row].next


@borrowing
def _join_group(s: State, job: int) -> None:
    """A job has arrived: what was decided for the array of which it is a task holds for it too."""
    lead, array = s.task[job].lead, s.task[job].array
    if s.task[lead].admitted:
        _dequeue(s, job)
        s.job[job].at -= s.c[FRONT]
        _put_before(s, job)
    if array < 0:
        return
    s.task[array].waiting += 1
    s.task[array].shown += 1
    first = s.task[array].waiting_row
    if first < 0 or job < first:
        s.task[array].waiting_row = job
    if s.task[array].shown > _allowance(s, lead):
        _withhold(s, job)
        s.task[job].begin = s.task[lead].until


@borrowing
def _leave_queue(s: State, job: int) -> None:
    """A job has started from the queue, by its turn or as a guest."""
    array = s.task[job].array
    if array < 0:
        return
    s.task[array].waiting -= 1
    s.task[array].shown -= 1
    s.task[array].running += 1
    if s.task[array].waiting_row == job:
        row = s.task[job].next
        while row >= 0 and s.job[row].state != PENDING and s.job[row].state != WITHHELD:
            row = s.task[row].next
        s.task[array].waiting_row = row


@borrowing
def _leave_group(s: State, job: int) -> None:
    """A job has ended: the next task of its array may be tried."""
    array = s.task[job].array
    if array < 0:
        return
    s.task[array].running -= 1
    s.task[array].ended += 1
    if s.task[array].throttle > 0:
        _let_in(s, s.task[job].lead)


@borrowing
def _wake(s: State, lead: int) -> None:
    """What deferred a group is over; its event is no longer in the heap."""
    s.task[lead].until = np.nan
    s.task[lead].wake_at = -1
    row = _first_waiting(s, lead)
    while row >= 0:
        s.task[row].begin = np.nan
        row = s.task[row].next
    _let_in(s, lead)


@borrowing
def _decided(s: State) -> None:
    """The order of the queue is not what it was: a pass follows, and another look."""
    s.c[RESERVED] = 0
    s.c[SETTLE] = 1
    s.c[CHANGED] = 1


@borrowing
def waits(s: State, job: int) -> bool:
    """Does the job wait, or any task of its array, in the queue or outside of it?"""
    return _first_waiting(s, job) >= 0


@borrowing
def admit(s: State, job: int) -> int:
    """Try the job (all tasks of its array) before those not admitted. Returns 0, or 1 if none waits."""
    row = _first_waiting(s, job)
    if row < 0:
        return 1
    lead = s.task[job].lead
    if s.task[lead].admitted:
        return 0
    s.task[lead].admitted = True
    while row >= 0:
        if s.job[row].state == PENDING:
            promised = s.job[row].promised
            _dequeue(s, row)
            s.job[row].at -= s.c[FRONT]
            _put_before(s, row)
            s.job[row].promised = promised
        elif s.job[row].state == WITHHELD:
            s.job[row].at -= s.c[FRONT]
        row = s.task[row].next
    _decided(s)
    return 0


@borrowing
def defer(s: State, job: int, until: float, estimate: NDArray[np.float64]) -> int:
    """Take the job (the waiting tasks of its array) out of the queue until then. Returns 0, or 1 if none waits.

    Its start in `estimate` is void.
    """
    row = _first_waiting(s, job)
    if row < 0:
        return 1
    lead = s.task[job].lead
    if s.task[lead].wake_at < 0:
        _push(s, 2 * len(s.job) + lead, until)
    else:
        i = s.task[lead].wake_at
        s.heap[i].time = until
        _sift_up(s, i)
        _sift_down(s, s.task[lead].wake_at)
    s.task[lead].until = until
    while row >= 0:
        if s.job[row].state == PENDING:
            _withhold(s, row)
        if s.job[row].state == WITHHELD:
            s.task[row].begin = until
            estimate[row] = np.nan
        row = s.task[row].next
    _decided(s)
    return 0


@borrowing
def undefer(s: State, job: int) -> int:
    """The job (the waiting tasks of its array) may start now. Returns 0, or 1 if none waits."""
    if _first_waiting(s, job) < 0:
        return 1
    lead = s.task[job].lead
    if s.task[lead].wake_at >= 0:
        i = s.task[lead].wake_at
        s.heap[i].time = -NEVER
        _sift_up(s, i)
        _pop(s)
        _wake(s, lead)
        _decided(s)
    return 0


@borrowing
def throttle(s: State, job: int, tasks: int, estimate: NDArray[np.float64]) -> int:
    """At most `tasks` tasks of the array of `job` run at one time, 0 for no bound.

    Returns 0, or 1 if none waits, 2 if the job is no task of an array. Who leaves the queue has no start in `estimate`.
    """
    if not _is_job(s, job):
        return 1
    array = s.task[job].array
    if array < 0:
        return 2
    if s.task[array].waiting == 0:
        return 1
    if s.task[array].throttle != tasks:
        s.task[array].throttle = tasks
        _let_in(s, s.task[job].lead)
        row = s.task[array].waiting_row
        while row >= 0:
            if s.job[row].state == WITHHELD:
                estimate[row] = np.nan
            row = s.task[row].next
        _decided(s)
    return 0


# --------------------------------------------------------------------------------------- running jobs by planned end


@borrowing
def _run_position(s: State, end: float) -> int:
    low, high = 0, s.c[RUN]
    while low < high:
        middle = (low + high) >> 1
        if s.run[middle].end < end:
            low = middle + 1
        else:
            high = middle
    return low


@borrowing
def _plan(s: State, job: int, end: float) -> None:
    """The scheduler now expects `job` to end at `end`."""
    i = _run_position(s, end)
    for k in range(s.c[RUN], i, -1):
        s.run[k].end = s.run[k - 1].end
        s.run[k].job = s.run[k - 1].job
    s.run[i].end = end
    s.run[i].job = job
    s.job[job].planned_end = end
    s.c[RUN] += 1


@borrowing
def _unplan(s: State, job: int) -> None:
    i = _run_position(s, s.job[job].planned_end)
    while s.run[i].job != job:
        i += 1
    s.c[RUN] -= 1
    for k in range(i, s.c[RUN]):
        s.run[k].end = s.run[k + 1].end
        s.run[k].job = s.run[k + 1].job


# -------------------------------------------------------------------------------------------------------- placement


@borrowing
def _place(s: State, job: int) -> None:
    """Take the lowest free cores (and their memory) for a batch job that is known to fit."""
    wanted = s.job[job].cores
    last = -1
    for node in range(len(s.node)):
        take = min(s.node[node].free, wanted)
        if s.c[MEMORY] and s.job[job].memory > 0:
            take = min(take, int(s.node[node].memory_free / s.job[job].memory + 1e-9))
        if take <= 0:
            continue
        wanted -= take
        s.node[node].free -= take
        s.node[node].memory_free -= take * s.job[job].memory
        core = s.node[node].first
        while take > 0:
            if s.core[core].owner < 0:
                s.core[core].owner = job
                s.core[core].owner_next = -1
                if last < 0:
                    s.job[job].owner_first = core
                else:
                    s.core[last].owner_next = core
                last = core
                take -= 1
            core += 1
        if wanted == 0:
            break


@borrowing
def _release(s: State, job: int) -> None:
    core = s.job[job].owner_first
    while core >= 0:
        node = s.core[core].node
        s.core[core].owner = -1
        s.node[node].free += 1
        s.node[node].memory_free += s.job[job].memory
        core = s.core[core].owner_next


@borrowing
def _fits(s: State, job: int) -> bool:
    """Does `job` fit on what is free now, cores and memory?"""
    wanted = s.job[job].cores
    memory = s.job[job].memory
    for node in range(len(s.node)):
        take = s.node[node].free
        if memory > 0:
            take = min(take, int(s.node[node].memory_free / memory + 1e-9))
        wanted -= take
        if wanted <= 0:
            return True
    return False


@borrowing
def _fits_spare(s: State, job: int) -> bool:
    """Does `job` fit on the spare part of each node?"""
    wanted = s.job[job].cores
    memory = s.job[job].memory
    for node in range(len(s.node)):
        take = s.node[node].spare
        if memory > 0:
            take = min(take, int(s.node[node].memory_spare / memory + 1e-9))
        wanted -= take
        if wanted <= 0:
            return True
    return False


@borrowing
def _keep_clear(s: State, head: int, reserved: bool) -> None:
    """What is spare now, so that the head still fits later.

    The head takes first what is not free now, as the extra processors of EASY are counted; then it costs the others
    no more than it must, and nothing else than without memory if there is plenty.
    """
    memory = s.job[head].memory
    wanted = s.job[head].cores if reserved else 0
    for node in range(len(s.node)):
        s.node[node].spare = s.node[node].later
        s.node[node].memory_spare = s.node[node].memory_later
    for busy_now in (True, False):
        for node in range(len(s.node)):
            take = min(s.node[node].spare, wanted)
            if busy_now:
                take = min(take, s.node[node].later - s.node[node].free)
            if memory > 0:
                take = min(take, int(s.node[node].memory_spare / memory + 1e-9))
            if take > 0:
                wanted -= take
                s.node[node].spare -= take
                s.node[node].memory_spare -= take * memory
    for node in range(len(s.node)):
        s.node[node].spare = min(s.node[node].spare, s.node[node].free)
        s.node[node].memory_spare = min(s.node[node].memory_spare, s.node[node].memory_free)


# ------------------------------------------------------------------------------------------- contention and lending


@borrowing
def _mu(s: State, node: int, cpu: int, memory: int) -> float:
    """μ between its measured values for CPU-bound and memory-bound pairs, by the node's memory in use."""
    in_use = 0.5
    if s.c[MEMORY] and s.node[node].memory > 0:
        in_use = 1.0 - s.node[node].memory_free / s.node[node].memory
    return s.f[cpu] + (s.f[memory] - s.f[cpu]) * min(1.0, max(0.0, in_use))


@borrowing
def _guest_rate(s: State, guest: int) -> float:
    """Rate of a guest: the slowest of its nodes; on each, idle cores plus what the hosts of its cores lend."""
    worst = 1.0
    got = 0.0
    core = s.job[guest].guest_first
    while core >= 0:
        node = s.core[core].node
        capacity = 0.0
        held = 0
        beside = False
        first = core
        while core >= 0 and s.core[core].node == node:
            held += 1
            host = s.core[core].owner
            if host < 0:
                capacity += 1.0
            else:
                beside = True
                new = True  # is this the guest's first core of this host here?
                overlap = 0
                other = first
                while other >= 0 and s.core[other].node == node:
                    if s.core[other].owner == host:
                        if other < core:
                            new = False
                            break
                        overlap += 1
                    other = s.core[other].guest_next
                if new:
                    here = 0
                    claims = 0.0
                    for k in range(s.node[node].first, s.node[node].first + s.node[node].cores):
                        if s.core[k].owner == host:
                            here += 1
                            if s.core[k].lead:
                                claim = s.job[s.core[k].guest].share
                                claims += 1.0 if np.isnan(claim) else claim
                    mine = 1.0 if np.isnan(s.job[guest].share) else s.job[guest].share
                    if not s.job[guest].capped or np.isnan(s.job[guest].share):
                        # the host comes first and the guests divide what it leaves
                        leftover = max(0.0, 1.0 - s.job[host].demand)
                        if claims > leftover:
                            mine *= leftover / claims
                    lent = min(mine * here, float(overlap))
                    capacity += lent
                    got += lent
            core = s.core[core].guest_next
        rate = min(1.0, capacity / (held * s.job[guest].demand)) if s.job[guest].demand > 0 else 1.0
        if beside:
            rate *= _mu(s, node, MU_GUEST_CPU, MU_GUEST_MEMORY)
        worst = min(worst, rate)
    s.job[guest].lending = got
    return worst


@borrowing
def _host_rate(s: State, host: int) -> float:
    """Rate of a batch job: 1 alone; beside guests μ, and where quotas bind both what they leave it."""
    worst = 1.0
    core = s.job[host].owner_first
    while core >= 0:
        node = s.core[core].node
        if s.node[node].guests == 0:
            while core >= 0 and s.core[core].node == node:
                core = s.core[core].owner_next
            continue
        quota = 0.0
        shared = False
        while core >= 0 and s.core[core].node == node:
            guest = s.core[core].guest
            if guest >= 0:
                shared = True
                if s.core[core].lead and s.job[guest].capped and not np.isnan(s.job[guest].share):
                    quota += s.job[guest].share
            core = s.core[core].owner_next
        if shared:
            rate = min(1.0, max(0.0, 1.0 - quota) / s.job[host].demand) if s.job[host].demand > 0 else 1.0
            worst = min(worst, rate * _mu(s, node, MU_HOST_CPU, MU_HOST_MEMORY))
    return worst


@borrowing
def _settle(s: State, job: int, now: float) -> None:
    """Account the work done since the last look."""
    passed = now - s.job[job].since
    s.job[job].left -= s.job[job].rate * passed
    s.job[job].lost += (1.0 - s.job[job].rate) * passed
    if s.job[job].state == GUEST:
        s.job[job].lent += s.job[job].lending * passed
    s.job[job].since = now


@borrowing
def _aim(s: State, job: int) -> None:
    """Set the job's end event from its work left, its rate and, where jobs are killed at it, its limit."""
    end = s.job[job].since + s.job[job].left / max(s.job[job].rate, 1e-9)
    if s.c[KILL]:
        end = min(end, s.job[job].limit_end)
    _move(s, job, max(end, s.job[job].since))


@borrowing
def _set_rate(s: State, job: int, rate: float, now: float) -> None:
    if rate != s.job[job].rate:
        s.job[job].rate = rate
        _aim(s, job)
        s.c[CHANGED] = 1


@borrowing
def _mark_nodes(s: State, first: int, of_guest: bool) -> int:
    """The nodes of a job's cores into the scratch list (of a batch job: those with guests); how many."""
    s.c[STAMP] += 1
    count = 0
    core = first
    while core >= 0:
        node = s.core[core].node
        if s.node[node].stamp != s.c[STAMP] and (of_guest or s.node[node].guests > 0):
            s.node[node].stamp = s.c[STAMP]
            s.node[count].touched = node
            count += 1
        core = s.core[core].guest_next if of_guest else s.core[core].owner_next
    return count


@borrowing
def _mark_leads(s: State, nodes: int) -> None:
    """Owners have changed on the touched nodes: a guest that straddles two hosts claims its share of each."""
    for i in range(nodes):
        first = s.node[s.node[i].touched].first
        for core in range(first, first + s.node[s.node[i].touched].cores):
            guest, owner = s.core[core].guest, s.core[core].owner
            if guest >= 0:
                before = first
                while s.core[before].guest != guest or s.core[before].owner != owner:
                    before += 1
                s.core[core].lead = before == core


@borrowing
def _refresh(s: State, nodes: int, now: float) -> None:
    """Rates anew for everything on the touched nodes."""
    s.c[STAMP] += 1
    jobs = 0
    for i in range(nodes):
        node = s.node[i].touched
        for core in range(s.node[node].first, s.node[node].first + s.node[node].cores):
            for job in (s.core[core].owner, s.core[core].guest):
                if job >= 0 and s.job[job].stamp != s.c[STAMP]:
                    s.job[job].stamp = s.c[STAMP]
                    s.job[jobs].affected = job
                    jobs += 1
    for i in range(jobs):
        _settle(s, s.job[i].affected, now)
    for i in range(jobs):
        job = s.job[i].affected
        _set_rate(s, job, _guest_rate(s, job) if s.job[job].state == GUEST else _host_rate(s, job), now)


@borrowing
def _undecide(s: State, guest: int, nodes: int) -> int:
    """Its share is void; so all its nodes are touched, beside the `nodes` that are already. Their new number."""
    if not np.isnan(s.job[guest].share):
        s.job[guest].share = np.nan
        core = s.job[guest].guest_first
        while core >= 0:
            node = s.core[core].node
            if s.node[node].stamp != s.c[STAMP]:
                s.node[node].stamp = s.c[STAMP]
                s.node[nodes].touched = node
                nodes += 1
            core = s.core[core].guest_next
    return nodes


@borrowing
def _meet_guests(s: State, job: int, now: float) -> None:
    """A batch job has started on cores where guests are: it is their host until shares are decided anew."""
    nodes = _mark_nodes(s, s.job[job].owner_first, False)
    if nodes == 0:
        return
    _mark_leads(s, nodes)
    core = s.job[job].owner_first
    while core >= 0:
        guest = s.core[core].guest
        if guest >= 0:
            s.job[job].was_host = True
            if s.job[guest].host < 0:
                s.job[guest].host = job
            nodes = _undecide(s, guest, nodes)
        core = s.core[core].owner_next
    _refresh(s, nodes, now)


@borrowing
def _leave_guests(s: State, job: int, now: float) -> None:
    """A batch job has left cores where guests are: they take what is idle, or the host on their other cores."""
    nodes = _mark_nodes(s, s.job[job].owner_first, False)
    if nodes == 0:
        return
    _mark_leads(s, nodes)
    core = s.job[job].owner_first
    while core >= 0:
        guest = s.core[core].guest
        if guest >= 0 and s.job[guest].host == job:
            s.job[guest].host = -1
            nodes = _undecide(s, guest, nodes)
            other = s.job[guest].guest_first
            while other >= 0:
                if s.core[other].owner >= 0:
                    s.job[guest].host = s.core[other].owner
                    break
                other = s.core[other].guest_next
        core = s.core[core].owner_next
    _refresh(s, nodes, now)


@borrowing
def lend(
    s: State,
    guest: int,
    host: int,
    share: float,
    capped: bool,
    nodes: NDArray[np.int32],
    cores: NDArray[np.int32],
) -> int:
    """Start the waiting job `guest` now on `cores[i]` cores of each of `nodes[i]`, which `host` holds wholly.

    Returns 0 if done, else why not: 1 not waiting, 2 host not running, 3 a node is not wholly held, 4 no free core
    (one guest a core), 5 memory, 6 the cores do not add up, 7 it is deferred or beyond its array's throttle.
    """
    if not _is_job(s, guest) or s.job[guest].state != PENDING:
        return 7 if _is_job(s, guest) and s.job[guest].state == WITHHELD else 1
    if not _is_job(s, host) or s.job[host].state != RUNNING:
        return 2
    total = 0
    for i in range(len(nodes)):
        node = nodes[i]
        if node < 0 or node >= len(s.node) or node in nodes[:i]:
            return 6
        open_cores = 0
        for core in range(s.node[node].first, s.node[node].first + s.node[node].cores):
            if s.core[core].owner != host:
                return 3
            if s.core[core].guest < 0:
                open_cores += 1
        if open_cores < cores[i]:
            return 4
        if s.c[MEMORY] and s.job[guest].memory * cores[i] > s.node[node].memory_free * (1 + 1e-9):
            return 5
        total += cores[i]
    if total != s.job[guest].cores:
        return 6
    now = s.f[NOW]
    _dequeue(s, guest)
    s.job[guest].state = GUEST
    if s.c[ADMISSION]:
        _leave_queue(s, guest)
    s.job[guest].start = now
    s.job[guest].since = now
    s.job[guest].left = s.job[guest].work
    s.job[guest].rate = 1.0
    s.job[guest].limit_end = now + s.job[guest].limit
    s.job[guest].host = host
    s.job[guest].share = share
    s.job[guest].capped = capped
    s.job[guest].was_guest = True
    s.job[host].was_host = True
    last = -1
    for i in range(len(nodes)):
        node = nodes[i]
        take = cores[i]
        lead = True
        s.node[node].guests += take
        s.node[node].memory_free -= take * s.job[guest].memory
        core = s.node[node].first
        while take > 0:
            if s.core[core].guest < 0:
                s.core[core].guest = guest
                s.core[core].guest_next = -1
                s.core[core].lead = lead
                lead = False
                if last < 0:
                    s.job[guest].guest_first = core
                else:
                    s.core[last].guest_next = core
                last = core
                take -= 1
            core += 1
    s.job[guest].guest_at = s.c[GUESTS]
    s.job[s.c[GUESTS]].guest_row = guest
    s.c[GUESTS] += 1
    _push(s, guest, now + s.job[guest].work)
    _settle(s, guest, now)
    _aim(s, guest)
    touched = _mark_nodes(s, s.job[guest].guest_first, True)
    _refresh(s, touched, now)
    s.c[RESERVED] = 0
    s.c[SETTLE] = 1
    s.c[CHANGED] = 1
    return 0


@borrowing
def set_share(s: State, guest: int, share: float, capped: bool) -> int:
    """Change a running guest's share. Returns 0, or 1 if it does not run as a guest."""
    if not _is_job(s, guest) or s.job[guest].state != GUEST:
        return 1
    s.job[guest].share = share
    s.job[guest].capped = capped
    _refresh(s, _mark_nodes(s, s.job[guest].guest_first, True), s.f[NOW])
    return 0


@borrowing
def extend(s: State, job: int, by: float) -> int:
    """Move a running job's time limit. Returns 0, or 1 if it does not run."""
    if not _is_job(s, job) or (s.job[job].state != RUNNING and s.job[job].state != GUEST):
        return 1
    s.job[job].limit_end += by
    s.job[job].extended += by
    if s.job[job].state == RUNNING:
        _unplan(s, job)
        _plan(s, job, s.job[job].planned_end + by)
        s.c[RESERVED] = 0
    _settle(s, job, s.f[NOW])
    _aim(s, job)
    return 0


# --------------------------------------------------------------------------------------------------- start and end


@borrowing
def _start(s: State, job: int, now: float) -> None:
    """Start a batch job that is known to fit."""
    _dequeue(s, job)
    s.job[job].state = RUNNING
    if s.c[ADMISSION]:
        _leave_queue(s, job)
    s.job[job].start = now
    s.c[FREE] -= s.job[job].cores
    _plan(s, job, now + s.job[job].planned)
    _push(s, job, now + s.job[job].work)
    if s.c[PLACED]:
        s.job[job].since = now
        s.job[job].left = s.job[job].work
        s.job[job].rate = 1.0
        s.job[job].limit_end = now + s.job[job].limit
        _place(s, job)
        if s.c[GUESTS] > 0:
            _meet_guests(s, job, now)
    s.c[CHANGED] = 1


@borrowing
def _end(s: State, job: int, now: float) -> None:
    was_guest = s.job[job].state == GUEST
    if s.c[PLACED]:
        _settle(s, job, now)
        if s.job[job].left > 1e-6 * max(1.0, s.job[job].work):
            s.job[job].killed = True
        if was_guest:
            last = s.c[GUESTS] - 1
            s.job[s.job[job].guest_at].guest_row = s.job[last].guest_row
            s.job[s.job[last].guest_row].guest_at = s.job[job].guest_at
            s.c[GUESTS] = last
            nodes = _mark_nodes(s, s.job[job].guest_first, True)
            core = s.job[job].guest_first
            while core >= 0:
                node = s.core[core].node
                s.core[core].guest = -1
                s.core[core].lead = False
                s.node[node].guests -= 1
                s.node[node].memory_free += s.job[job].memory
                core = s.core[core].guest_next
            s.job[job].state = DONE
            _refresh(s, nodes, now)
        else:
            _release(s, job)
            s.job[job].state = DONE
            if s.c[GUESTS] > 0:
                _leave_guests(s, job, now)
    s.job[job].state = DONE
    s.job[job].end = now
    s.job[s.c[ENDED]].ended = job
    s.c[ENDED] += 1
    if not was_guest:
        s.c[FREE] += s.job[job].cores
        _unplan(s, job)
    if not was_guest or s.c[MEMORY]:
        s.c[RESERVED] = 0
    child = s.job[job].child
    while child >= 0:
        _push(s, len(s.job) + child, max(s.job[child].submit, now + s.job[child].think))
        child = s.job[child].sibling
    if s.c[ADMISSION]:
        _leave_group(s, job)
    s.c[CHANGED] = 1


@borrowing
def _break_off(s: State, job: int) -> bool:
    """Is it a batch job that runs? Then its end is the next event, and not as planned."""
    if not _is_job(s, job) or s.job[job].state != RUNNING:
        return False
    _move(s, job, -NEVER)
    _pop(s)
    return True


@borrowing
def cancel(s: State, job: int) -> int:
    """End a running batch job now. Returns 0, or 1 if it does not run."""
    if not _break_off(s, job):
        return 1
    _end(s, job, s.f[NOW])
    _decided(s)
    return 0


@borrowing
def requeue(s: State, job: int, until: float, estimate: NDArray[np.float64]) -> int:
    """Put a running batch job back into the queue, to begin anew no sooner than `until`; what it has done is lost.

    It stands where it stood. Needs admission. Returns 0, or 1 if it does not run, 2 if it is a task of an array.
    """
    if not _is_job(s, job) or s.job[job].state != RUNNING:
        return 1
    if s.task[job].array >= 0:
        return 2
    now = s.f[NOW]
    _break_off(s, job)
    if s.c[PLACED]:
        _settle(s, job, now)
        _release(s, job)
        s.job[job].state = PENDING
        if s.c[GUESTS] > 0:
            _leave_guests(s, job, now)
    s.c[FREE] += s.job[job].cores
    _unplan(s, job)
    s.job[job].start = np.nan
    s.job[job].planned_end = np.nan
    s.job[job].limit_end = np.nan
    _put_before(s, job)
    defer(s, job, until, estimate)
    _decided(s)
    return 0


# ------------------------------------------------------------------------------------------------ scheduling passes


@borrowing
def _start_heads(s: State, now: float) -> None:
    while s.c[WAITING] > 0:
        job = s.queue[s.c[HEAD]].job
        if s.job[job].cores > s.c[FREE]:
            return
        if s.c[MEMORY] and not _fits(s, job):
            return
        _start(s, job, now)
        s.c[RESERVED] = 0


@borrowing
def _easy(s: State, now: float) -> None:
    """Start heads, reserve for the first that does not fit, backfill behind it.

    A job once passed over stays passed over until something ends: the reservation does not move and time only
    shrinks the window. So a pass after arrivals alone looks at the arrivals alone.
    """
    if s.c[RESERVED] == 0:
        _start_heads(s, now)
        if s.c[WAITING] == 0:
            return
        job = s.queue[s.c[HEAD]].job
        free = s.c[FREE]
        i = 0
        while free < s.job[job].cores:
            free += s.job[s.run[i].job].cores
            i += 1
        shadow = s.run[i - 1].end if i > 0 else now
        while i < s.c[RUN] and s.run[i].end <= shadow:
            free += s.job[s.run[i].job].cores
            i += 1
        s.f[SHADOW] = max(shadow, now)
        s.c[EXTRA] = free - s.job[job].cores
        s.c[RESERVED] = 1
        s.c[SCANNED] = s.c[HEAD] + 1
    position = s.c[SCANNED]
    while s.c[FREE] > 0:
        free = s.c[FREE]
        position = _next_candidate(s, position, free, min(free, s.c[EXTRA]), s.f[SHADOW] - now)
        if position >= s.c[TAIL]:
            break
        job = s.queue[position].job
        if s.job[job].planned > s.f[SHADOW] - now:  # the very expression that let it through
            s.c[EXTRA] -= s.job[job].cores
        _start(s, job, now)
        position += 1
    s.c[SCANNED] = s.c[TAIL]


@borrowing
def _easy_memory(s: State, now: float) -> None:
    """EASY where memory counts: the reservation is a set of nodes, and what runs past it stays clear of them."""
    _start_heads(s, now)
    if s.c[WAITING] == 0:
        return
    head = s.queue[s.c[HEAD]].job
    for node in range(len(s.node)):
        s.node[node].spare = s.node[node].free
        s.node[node].memory_spare = s.node[node].memory_free
    i = 0
    shadow = now
    while not _fits_spare(s, head):
        if i >= s.c[RUN]:
            shadow = NEVER  # only the end of a guest can make room, and nobody has planned that
            break
        shadow = max(now, s.run[i].end)
        while i < s.c[RUN] and s.run[i].end <= shadow:
            job = s.run[i].job
            core = s.job[job].owner_first
            while core >= 0:
                s.node[s.core[core].node].spare += 1
                s.node[s.core[core].node].memory_spare += s.job[job].memory
                core = s.core[core].owner_next
            i += 1
    for node in range(len(s.node)):
        s.node[node].later = s.node[node].spare
        s.node[node].memory_later = s.node[node].memory_spare
    _keep_clear(s, head, shadow < NEVER)
    position = s.c[HEAD] + 1
    while s.c[FREE] > 0:
        position = _next_candidate(s, position, s.c[FREE], s.c[FREE], NEVER)
        if position >= s.c[TAIL]:
            return
        job = s.queue[position].job
        position += 1
        if s.job[job].planned <= shadow - now:
            if _fits(s, job):
                _start(s, job, now)
                _keep_clear(s, head, shadow < NEVER)
        elif _fits_spare(s, job):
            _start_on_spare(s, job, now)


@borrowing
def _start_on_spare(s: State, job: int, now: float) -> None:
    """Start a job on the part of each node that the head's reservation leaves: hide the rest meanwhile."""
    for node in range(len(s.node)):
        s.node[node].later -= s.node[node].spare
        s.node[node].memory_later -= s.node[node].memory_spare
        s.node[node].spare, s.node[node].free = s.node[node].free - s.node[node].spare, s.node[node].spare
        hidden = s.node[node].memory_free - s.node[node].memory_spare
        s.node[node].memory_free = s.node[node].memory_spare
        s.node[node].memory_spare = hidden
    _start(s, job, now)
    for node in range(len(s.node)):
        s.node[node].spare, s.node[node].free = s.node[node].free, s.node[node].free + s.node[node].spare
        hidden = s.node[node].memory_spare
        s.node[node].memory_spare = s.node[node].memory_free
        s.node[node].memory_free += hidden
        s.node[node].later += s.node[node].spare
        s.node[node].memory_later += s.node[node].memory_spare
    if s.c[GUESTS] > 0:  # they have met it while part of the memory was hidden, and μ goes by memory
        _refresh(s, _mark_nodes(s, s.job[job].owner_first, False), now)


@borrowing
def _earliest(
    times: NDArray[np.float64], free: NDArray[np.int64], count: int, cores: int, duration: float, first: int
) -> int:
    """First step from `first` on at which `cores` are free for `duration`."""
    i = first
    while True:
        if free[i] < cores:
            i += 1
            continue
        end = times[i] + duration
        j = i + 1
        while j < count and times[j] < end and free[j] >= cores:
            j += 1
        if j >= count or times[j] >= end:
            return i
        i = j + 1


@borrowing
def _step_at(
    times: NDArray[np.float64], free: NDArray[np.int64], count: int, time: float, low: int
) -> tuple[int, int]:
    """Index of the step that begins at `time`, made if need be, and the new number of steps."""
    high = count
    while low < high:
        middle = (low + high) >> 1
        if times[middle] < time:
            low = middle + 1
        else:
            high = middle
    if low < count and times[low] == time:
        return low, count
    for k in range(count, low, -1):
        times[k] = times[k - 1]
        free[k] = free[k - 1]
    times[low] = time
    free[low] = free[low - 1]
    return low, count + 1


@borrowing
def _reserve(
    times: NDArray[np.float64], free: NDArray[np.int64], count: int, at: int, duration: float, cores: int
) -> int:
    """Take `cores` from step `at` on for `duration` (give them back where negative); the new number of steps."""
    last, count = _step_at(times, free, count, times[at] + duration, at)
    for k in range(at, last):
        free[k] -= cores
    return count


@borrowing
def _running_profile(s: State, now: float, times: NDArray[np.float64], free: NDArray[np.int64]) -> int:
    """Free cores over time if running jobs end as planned: steps (time, cores free from then on)."""
    times[0] = now
    free[0] = s.c[FREE]
    count = 1
    for i in range(s.c[RUN]):
        if s.run[i].end > times[count - 1]:
            times[count] = s.run[i].end
            free[count] = free[count - 1]
            count += 1
        elif count == 1:  # overdue: it ends at any moment, but its cores are not there now
            times[count] = now + 1.0
            free[count] = free[count - 1]
            count += 1
        free[count - 1] += s.job[s.run[i].job].cores
    return count


@borrowing
def _has_memory(s: State, job: int) -> bool:
    return s.c[MEMORY] == 0 or _fits(s, job)


@allocating
def _conservative(s: State, now: float, freed: bool) -> None:
    """Every waiting job holds a promise; when something ends early, each in turn may move to an earlier one.

    A job is only ever moved to a time no later than its promise, so promises are kept.
    """
    size = s.c[RUN] + 3 * s.c[WAITING] + 4  # a start, an end, and another end when it is moved
    times = np.empty(size + 2, np.float64)
    free = np.empty(size + 2, np.int64)
    count = _running_profile(s, now, times, free)
    position = s.c[HEAD]
    while position < s.c[TAIL]:
        job = s.queue[position].job
        if s.job[job].promised < NEVER:
            at, count = _step_at(times, free, count, max(now, s.job[job].promised), 0)
            count = _reserve(times, free, count, at, s.job[job].planned, s.job[job].cores)
        position = _next_waiting(s, position + 1)
    position = s.c[HEAD]
    while position < s.c[TAIL]:
        job = s.queue[position].job
        if freed or s.job[job].promised == NEVER:
            if s.job[job].promised < NEVER:
                at, count = _step_at(times, free, count, max(now, s.job[job].promised), 0)
                count = _reserve(times, free, count, at, s.job[job].planned, -s.job[job].cores)
            at = _earliest(times, free, count, s.job[job].cores, s.job[job].planned, 0)
            s.job[job].promised = times[at]
            count = _reserve(times, free, count, at, s.job[job].planned, s.job[job].cores)
        if s.job[job].promised <= now and s.job[job].cores <= s.c[FREE] and _has_memory(s, job):
            _start(s, job, now)
        position = _next_waiting(s, position + 1)


@allocating
def estimate_starts(s: State, depth: int, estimate: NDArray[np.float64]) -> None:
    """What Slurm's backfill would print as the start of each of the first `depth` waiting jobs, into `estimate`.

    Every job in turn gets the earliest time at which it fits among the planned ends of running jobs and the jobs
    before it; memory is left out.
    """
    now = s.f[NOW]
    size = s.c[RUN] + 2 * depth + 4
    times = np.empty(size + 2, np.float64)
    free = np.empty(size + 2, np.int64)
    count = _running_profile(s, now, times, free)
    position = s.c[HEAD]
    seen = 0
    while position < s.c[TAIL] and seen < depth:
        job = s.queue[position].job
        at = _earliest(times, free, count, s.job[job].cores, s.job[job].planned, 0)
        estimate[job] = times[at]
        count = _reserve(times, free, count, at, s.job[job].planned, s.job[job].cores)
        position = _next_waiting(s, position + 1)
        seen += 1


@borrowing
def _pass(s: State, now: float, freed: bool) -> None:
    if s.c[WAITING] == 0:
        return
    if s.c[SCHEDULER] == CONSERVATIVE:
        _conservative(s, now, freed)  # promises are made even when nothing is free
    elif s.c[FREE] == 0:
        return
    elif s.c[SCHEDULER] == FCFS:
        _start_heads(s, now)
    elif s.c[MEMORY]:
        _easy_memory(s, now)
    else:
        _easy(s, now)


# -------------------------------------------------------------------------------------------------------- the clock


@borrowing
def _next_event(s: State) -> float:
    n = len(s.job)
    time = s.heap[0].time if s.c[HEAP] > 0 else NEVER
    if s.c[NEXT] < n:
        time = min(time, s.job[s.c[NEXT]].submit)
    return time


@borrowing
def _skip_dependents(s: State) -> None:
    """Jobs that wait for another come through the heap, not by their time of submission."""
    while s.c[NEXT] < len(s.job) and s.job[s.c[NEXT]].depends >= 0:
        s.c[NEXT] += 1


@borrowing
def _end_planned(s: State, now: float) -> None:
    """End what ends at this very moment as planned: a pass counts such cores as free already.

    So did the published schedule that the per-event semantics answer to.
    """
    i = 0
    while i < s.c[RUN] and s.run[i].end <= now:
        job = s.run[i].job
        if s.heap[s.job[job].heap_at].time <= now:
            _move(s, job, -NEVER)
            _end(s, _pop(s), now)
        else:
            i += 1  # overdue, because lending has slowed it


@borrowing
def run_until(s: State, until: float) -> None:
    """Let everything happen up to and including `until`."""
    n = len(s.job)
    per_event = s.c[PER_EVENT] != 0
    admission = s.c[ADMISSION] != 0
    if s.c[SETTLE]:
        # the queue has lost jobs to lending since the last pass
        s.c[SETTLE] = 0
        _pass(s, s.f[NOW], True)
    while True:
        now = _next_event(s)
        if now > until or now == NEVER:
            break
        s.f[NOW] = now
        freed = False
        while s.c[HEAP] > 0 and s.heap[0].time <= now and s.heap[0].job < n:
            _end(s, _pop(s), now)
            freed = True
            if per_event:
                _end_planned(s, now)
                _pass(s, now, True)
        while s.c[HEAP] > 0 and s.heap[0].time <= now:
            if s.heap[0].job < n:  # a job that started and ended within this very moment
                _end(s, _pop(s), now)
                freed = True
                if per_event:
                    _pass(s, now, True)
            elif s.heap[0].job < 2 * n:
                job = _pop(s) - n
                _enqueue(s, job, now)
                if admission:
                    _join_group(s, job)
                if per_event:
                    _pass(s, now, False)
            else:
                _wake(s, _pop(s) - 2 * n)
                if per_event:
                    _pass(s, now, False)
        while s.c[NEXT] < n and s.job[s.c[NEXT]].submit <= now:
            _enqueue(s, s.c[NEXT], now)
            if admission:
                _join_group(s, s.c[NEXT])
            s.c[NEXT] += 1
            _skip_dependents(s)
            if per_event:
                _pass(s, now, False)
        if not per_event:
            _pass(s, now, freed)
    if until < NEVER and until > s.f[NOW]:
        s.f[NOW] = until


@borrowing
def _newly_measured(s: State, tick: float) -> bool:
    """Is there a job that has run for a window at this poll and had not at the one before?"""
    latest = tick - s.f[WINDOW]
    for i in range(s.c[RUN]):
        if latest - s.f[POLL] < s.job[s.run[i].job].start <= latest:
            return True
    for i in range(s.c[GUESTS]):
        if latest - s.f[POLL] < s.job[s.job[i].guest_row].start <= latest:
            return True
    return False


@borrowing
def run_to_poll(s: State, wake: float) -> bool:
    """Run to the next poll at which there is something to see, or at or after `wake`; False when all is over.

    A poll at which nothing has changed since the last look is passed over, and so is one at which nobody waits and
    nobody is lent to.
    """
    origin, poll = s.f[ORIGIN], s.f[POLL]
    while True:
        event = _next_event(s)
        due = min(event, wake)
        if s.c[SETTLE] or s.c[PENDING_END] > 0:
            due = s.f[NOW] + poll
        if due == NEVER or (event == NEVER and s.c[WAITING] == 0 and s.c[GUESTS] == 0):
            return False  # who is withheld waits for an event
        tick = origin + np.ceil((due - origin) / poll) * poll
        if tick <= s.f[NOW]:
            tick = origin + (np.floor((s.f[NOW] - origin) / poll) + 1) * poll
        run_until(s, tick)
        s.c[PENDING_END] = max(0, s.c[PENDING_END] - 1)
        if s.c[CHANGED]:
            s.c[CHANGED] = 0
            s.c[VERSION] += 1
            # what has only just started is measured one window later: look again then
            s.c[PENDING_END] = int(np.ceil(s.f[WINDOW] / poll))
        elif _newly_measured(s, tick):
            s.c[VERSION] += 1
        elif wake > tick:
            continue
        if s.c[WAITING] > 0 or s.c[ASIDE] > 0 or s.c[GUESTS] > 0 or tick >= wake:
            return True


@borrowing
def learn_ends(s: State, other: State) -> None:
    """It has become known how long the jobs run alone that have ended in `other` since the last time.

    Those that run here end by that, and no earlier than now.
    """
    for i in range(s.c[TOLD], other.c[ENDED]):
        job = other.job[i].ended
        s.job[job].work = other.job[job].end - other.job[job].start - other.job[job].lost
        if s.job[job].state == RUNNING:
            _move(s, job, max(s.f[NOW], s.job[job].start + s.job[job].work))
    s.c[TOLD] = other.c[ENDED]


@borrowing
def look(
    s: State, depth: int, queue: NDArray[np.int32], running: NDArray[np.int32], cpu: NDArray[np.float64]
) -> int:
    """What a snapshot needs besides the tables: the first waiting jobs, the running ones, and what was measured.

    Fills `queue` with the first `depth` waiting jobs in order (of an array its first alone, where arrays are gathered),
    `running` with the batch jobs that run, and `cpu` with the demand of those that have run for a window. Returns how
    many it put into `queue`.
    """
    for i in range(s.c[RUN]):
        job = s.run[i].job
        running[i] = job
        if s.c[PLACED] and s.job[job].rate < 1.0:
            _settle(s, job, s.f[NOW])
        if np.isnan(cpu[job]) and s.f[NOW] - s.job[job].start >= s.f[WINDOW]:
            cpu[job] = s.job[job].demand
    for i in range(s.c[GUESTS]):
        job = s.job[i].guest_row
        if np.isnan(cpu[job]) and s.f[NOW] - s.job[job].start >= s.f[WINDOW]:
            cpu[job] = s.job[job].demand
        _settle(s, job, s.f[NOW])
    count = 0
    position = s.c[HEAD]
    s.c[STAMP] += s.c[GATHER]
    while position < s.c[TAIL] and count < depth:
        job = s.queue[position].job
        if s.c[GATHER] == 0 or s.task[s.task[job].lead].stamp != s.c[STAMP]:
            queue[count] = job
            count += 1
            if s.c[GATHER]:
                s.task[s.task[job].lead].stamp = s.c[STAMP]
        position = _next_waiting(s, position + 1)
    return count


class Looks(NamedTuple):
    """What `observe` shows beside the tables; n jobs, C cores."""

    queue: NDArray[np.int32]  # (depth,) waiting jobs
    running: NDArray[np.int32]  # batch jobs that run
    guests: NDArray[np.int32]  # (C,)
    cpu: NDArray[np.float64]  # (n,) measured CPU fraction
    estimate: NDArray[np.float64]  # (n,) estimated starts
    own_estimate: NDArray[np.float64]  # (n,) those on the twin
    estimated_at: NDArray[np.float64]  # (2,) when they were made, here and on the twin


def new_looks(s: State, depth: int) -> Looks:
    """Nothing has been seen yet."""
    n = len(s.job)
    return Looks(
        queue=np.zeros(depth, np.int32),
        running=np.zeros(len(s.run), np.int32),
        guests=np.zeros(len(s.core), np.int32),
        cpu=np.full(n, np.nan),
        estimate=np.full(n, np.nan),
        own_estimate=np.full(n, np.nan),
        estimated_at=np.full(2, -np.inf),
    )


@borrowing
def known_until(s: State, other: State) -> float:
    """Until when `s` can go on with what is known in `other`: no job may run here for longer than it has come there.

    Beyond that it could have ended here, and nobody can tell.
    """
    until = NEVER
    for i in range(s.c[RUN]):
        job = s.run[i].job
        state = other.job[job].state
        if state == DONE:
            continue
        done = 0.0
        if state in (RUNNING, GUEST):
            since = other.job[job].since
            lost = other.job[job].lost + (1.0 - other.job[job].rate) * (other.f[NOW] - since)
            done = other.f[NOW] - other.job[job].start - lost
        until = min(until, s.job[job].start + done)
    return until


@compiled
def follow(s: State, other: State) -> None:
    """Let `s` come as near to the present of `other` as is known: what has happened there by then is certain."""
    learn_ends(s, other)
    now = other.f[NOW]
    while s.f[NOW] < now:
        until = min(now, known_until(s, other))
        if until <= s.f[NOW]:
            break
        run_until(s, min(until, max(s.f[NOW], _next_event(s))))


@compiled
def advance(kept: Kept, wake: float) -> bool:
    """`run_to_poll`, and then the twin, if there is one."""
    s, twin, _ = kept.all
    going_on = run_to_poll(s, wake)
    if len(twin.job):
        follow(twin, s)
    return going_on


@compiled
def observe(kept: Kept, interval: float, twin_interval: float) -> int:
    """Everything that a snapshot shows, in one call; how many jobs there are in the queue that it shows.

    Starts are estimated no more often than every `interval`, and (but where arrays are gathered) only if somebody could
    be lent to; on the twin no more often than every `twin_interval`.
    """
    s, twin, looks = kept.all
    depth = len(looks.queue)
    count = look(s, depth, looks.queue, looks.running, looks.cpu)
    for i in range(s.c[GUESTS]):
        looks.guests[i] = s.job[i].guest_row
    now = s.f[NOW]
    due = count > 0 and s.c[PLACED] and now >= looks.estimated_at[0] + interval
    if due and (s.c[GATHER] or has_open_cores(s)):
        estimate_starts(s, depth, looks.estimate)
        looks.estimated_at[0] = now
        if len(twin.job) and now >= looks.estimated_at[1] + twin_interval:
            estimate_starts(twin, depth, looks.own_estimate)
            looks.estimated_at[1] = now
    return count


@compiled
def ended_since(kept: Kept, first: int, since: float) -> tuple[Any, ...]:
    """Row, end, run time, seconds lost and CPU of the jobs that ended as the `first` or later, after `since`."""
    s, _, _ = kept.all
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
            cpu[count] = s.job[job].demand
            count += 1
    return rows[:count], end[:count], run[:count], lost[:count], cpu[:count]


@borrowing
def spread(s: State, guest: int, nodes: NDArray[np.int32], cores: NDArray[np.int32]) -> bool:
    """Deal the guest's cores evenly over `nodes`, one guest a core, into `cores`; False if they do not fit."""
    cores[:] = 0
    if not _is_job(s, guest):
        return False
    for i in range(len(nodes)):
        if nodes[i] < 0 or nodes[i] >= len(s.node) or nodes[i] in nodes[:i]:
            return False
    wanted = s.job[guest].cores
    while wanted > 0:
        hungry = 0
        for i in range(len(nodes)):
            if cores[i] < s.node[nodes[i]].cores - s.node[nodes[i]].guests:
                hungry += 1
        if hungry == 0:
            return False
        each = max(1, wanted // hungry)
        for i in range(len(nodes)):
            take = min(each, s.node[nodes[i]].cores - s.node[nodes[i]].guests - cores[i], wanted)
            cores[i] += take
            wanted -= take
    return True


@borrowing
def has_open_cores(s: State) -> bool:
    """Is there a node wholly held by one batch job with a core that no guest has?"""
    for i in range(len(s.node)):
        first = s.node[i].first
        if s.node[i].guests < s.node[i].cores and s.node[i].free == 0:
            owner = s.core[first].owner
            whole = True
            for core in range(first + 1, first + s.node[i].cores):
                if s.core[core].owner != owner:
                    whole = False
                    break
            if whole:
                return True
    return False


def check_nodes(cores: NDArray[np.int32], memory: NDArray[np.float64], needed: bool) -> None:
    """Nodes have cores, and where memory is `needed` it is known. Raises UsageError that names column and node."""
    if len(memory) != len(cores):
        raise UsageError(
            f"machine: {len(memory)} nodes have memory and {len(cores)} cores; give one row a node"
        )
    _require("machine: column cores, node", cores, cores >= 1, "every node has at least 1 core")
    if needed:
        known = np.isfinite(memory) & (memory >= 0)
        _require("machine: column memory, node", memory, known, "memory counts, so give that of every node")


def check_jobs(jobs: dict[str, NDArray[Any]], total: int) -> None:
    """Every value is one that compiled code can bear, for it checks none.

    A row or an array beyond the table, or a job wider than the `total` cores, would have it write beyond an array; a
    time that is no number would stop its clock. Raises UsageError, which names column and row.
    """
    rows = np.arange(len(jobs["submit"]))
    for name, column in jobs.items():
        if len(column) != len(rows):
            raise UsageError(
                f"jobs: column {name} has {len(column)} rows, and submit {len(rows)}; give one a job"
            )
    submit = jobs["submit"]
    later = np.isfinite(submit)
    later[1:] &= submit[1:] >= submit[:-1]
    _require("jobs: column submit, row", submit, later, "give seconds, in order of submission")
    for name in ("work", "planned", "limit"):
        _require(
            f"jobs: column {name}, row", jobs[name], jobs[name] >= 0, "give seconds from 0, inf for no end"
        )
    for name in ("memory", "demand", "think"):
        finite = (jobs[name] >= 0) & (jobs[name] < NEVER)
        _require(f"jobs: column {name}, row", jobs[name], finite, "give a finite number from 0")
    cores, wide, depends = jobs["cores"], jobs["wide"], jobs["depends"]
    fitting = (cores >= 1) & (cores <= total)
    _require("jobs: column cores, row", cores, fitting, f"a job has 1 to the machine's {total} cores")
    _require("jobs: column wide, row", wide, wide >= 0, "give a number of nodes, 0 for any")
    earlier = (depends >= -1) & (depends < rows)
    _require("jobs: column depends, row", depends, earlier, "name the row of an earlier job, -1 for none")
    if "array" in jobs:
        within = (jobs["array"] >= -1) & (jobs["array"] < len(rows))
        _require("jobs: column array, row", jobs["array"], within, "number arrays from 0 on, -1 for no task")


def _require(place: str, column: NDArray[Any], good: NDArray[np.bool_], mend: str) -> None:
    """Raise UsageError with the first row that is not good."""
    wrong = np.flatnonzero(~good)
    if len(wrong):
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise UsageError(f"{place} {wrong[0]}: {column[wrong[0]]}{more}; {mend}")


def new_state(
    jobs: dict[str, NDArray[Any]],
    node_cores: NDArray[np.int32],
    node_memory: NDArray[np.float64],
    *,
    scheduler: int,
    per_event: bool,
    kill: bool,
    placed: bool,
    use_memory: bool,
    poll_s: float,
    window_s: float,
    mu: tuple[float, float, float, float],
    admission: bool = False,
    array: NDArray[np.int32] | None = None,
    gather: bool = False,
) -> State:
    """A cluster at rest before its first job.

    `jobs` has columns (n,) submit, work, planned, limit, cores, wide, memory, demand, depends, think, in order of
    submission; `node_cores` and `node_memory` are (N,). `placed` keeps track of which job is on which core, which
    lending and memory need. `mu` is μ of host and guest in CPU-bound pairs, then in memory-bound ones. `admission` lets
    jobs be admitted, deferred and throttled; then `array` (n,) says of which array each is a task, -1 for none, and
    `gather` shows one waiting task an array.

    Raises UsageError for what compiled code could not bear, see `check_nodes` and `check_jobs`.
    """
    n, nodes = len(jobs["submit"]), len(node_cores)
    total = int(node_cores.sum())
    check_nodes(node_cores, node_memory, needed=use_memory and bool((jobs["memory"] > 0).any()))
    check_jobs(jobs if array is None or not admission else {**jobs, "array": array}, total)
    front = padded = (n // (BLOCK * BLOCK) + 1) * BLOCK * BLOCK
    if admission:
        padded *= 2  # who is admitted stands in the first half
    placed = placed or use_memory
    if array is None or not admission:
        array = np.full(n if admission else 0, -1, np.int32)
    s = State(
        c=np.zeros(COUNTERS, np.int64),
        f=np.zeros(CLOCKS),
        job=np.zeros(n, JOB),
        heap=np.zeros((2 * n if admission else n) + 1, HEAP_ENTRY),
        run=np.zeros(min(total, n) + 1, RUN_ENTRY),
        queue=np.zeros(padded, QUEUE_ENTRY),
        block=np.zeros(padded // BLOCK + padded // (BLOCK * BLOCK), BLOCK_ENTRY),
        node=np.zeros(nodes, NODE),
        core=np.zeros(total, CORE),
        task=np.zeros(len(array), TASK),
    )
    if admission:
        _group(s, array)
        s.c[ADMISSION], s.c[GATHER] = True, gather
        s.c[FRONT] = s.c[TAIL] = s.c[HEAD] = front
    for name in JOB_COLUMNS:
        s.job[name] = jobs[name]
    for job in np.flatnonzero(s.job["depends"] >= 0)[::-1].tolist():
        s.job["sibling"][job] = s.job["child"][s.job["depends"][job]]
        s.job["child"][s.job["depends"][job]] = job + 1
    for name in ("sibling", "child"):
        s.job[name] -= 1  # until here 0 meant none
    for name in ("host", "owner_first", "guest_first"):
        s.job[name] = -1
    for name in ("eligible", "start", "end", "planned_end", "limit_end", "share"):
        s.job[name] = np.nan
    s.job["promised"] = NEVER
    s.job["rate"] = 1.0
    for queue in (s.queue, s.block):
        queue["cores"] = NOBODY
        queue["planned"] = NEVER
    for name in ("owner", "owner_next", "guest", "guest_next"):
        s.core[name] = -1
    s.core["node"] = np.repeat(np.arange(nodes), node_cores)
    s.node["cores"] = s.node["free"] = node_cores
    s.node["first"] = np.cumsum(node_cores) - node_cores
    s.node["memory"] = s.node["memory_free"] = node_memory
    s.c[FREE] = total
    s.c[SCHEDULER], s.c[PER_EVENT], s.c[KILL] = scheduler, per_event, kill
    s.c[PLACED], s.c[MEMORY] = placed, use_memory
    s.f[POLL], s.f[WINDOW] = poll_s, window_s
    s.f[ORIGIN] = s.f[NOW] = s.job["submit"][0] if n else 0.0
    s.f[MU_HOST_CPU], s.f[MU_GUEST_CPU], s.f[MU_HOST_MEMORY], s.f[MU_GUEST_MEMORY] = mu
    _skip_dependents(s)
    return s


def _group(s: State, array: NDArray[np.int32]) -> None:
    """Chain the tasks of each array, in order of their rows; a job that is no task stands for itself."""
    s.task["array"], s.task["lead"] = array, np.arange(len(array))
    s.task["next"] = s.task["wake_at"] = s.task["waiting_row"] = -1
    s.task["until"] = s.task["begin"] = np.nan
    rows = np.flatnonzero(array >= 0)
    rows = rows[np.argsort(array[rows], kind="stable")]
    same = array[rows[1:]] == array[rows[:-1]]
    s.task["next"][rows[:-1][same]] = rows[1:][same]
    first = rows[np.concatenate(([True], ~same))[: len(rows)]]
    s.task["lead"][rows] = first[np.cumsum(np.isin(rows, first)) - 1]
