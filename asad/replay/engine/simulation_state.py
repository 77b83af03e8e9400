"""The tables of the simulation: a row a job, core, node; counters and clocks by index."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.replay.engine.rules import Rules

FCFS, EASY, CONSERVATIVE, RECORDED, SLURM = 0, 1, 2, 3, 4
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
(PER_EVENT, KILL, PLACED, MEMORY, SETTLE, CHANGED, PENDING_END, ORDER, LEARNED) = range(15, 24)
(ADMISSION, FRONT, ASIDE, GATHER, WIDENED, EVERY, BOUND) = range(24, 31)
# rows from LOGGED on are no jobs of the log; HELD is the first row of those that hold vacated slots, 0 where none does
(LOGGED, UNLOGGED, HELD, IN_ORDER, DUE, LATE) = range(31, 37)
LOWEST = 37  # no node before this one has a free core
(CHANGES, LOOKED) = 38, 39  # entries in the list of changed nodes, and how many there were at the last look
SEED = 40  # of the noise of use
COUNTERS = 41
# indices into State.f
NOW, SHADOW, POLL, WINDOW, ORIGIN, MU_HOST_CPU, MU_GUEST_CPU, MU_HOST_MEMORY, MU_GUEST_MEMORY = range(9)
(USE_SD, STEP, SHOWN) = range(9, 12)
CLOCKS = 12

BLOCK = 64
RECENT = 10
"""Samples of use that its 95th percentile is taken of."""
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
        ("given", "f8"),  # core-seconds that guests got from it as a host
        ("lending", "f8"),  # cores that it gets from hosts now, or gives to guests
        ("offered", "f8"),  # demand that was expected of a guest when it was offered its place
        ("belief", "f8"),  # what is measured of its demand over what it is
        ("centre", "f8"),  # around this its use varies, clipped to [0, 1]: its mean is `demand`
        ("measured", "f8"),  # sum of its use over `samples` steps of its nodes
        ("samples", "f8"),
        # of a guest that draws from pools: what it wants of all of its nodes, NaN when that has to be summed anew
        ("wanted", "f8"),
        ("low", "f8"),  # scratch: the least rate of its nodes that have changed
        ("stamp", "i8"),
        # lists of jobs, each from row 0 on: they have nothing to do with the job in whose row they stand
        ("ended", "i4"),  # in order of their end
        ("guest_row", "i4"),  # guests that run, in no order
        ("affected", "i4"),  # scratch
        ("state", "i1"),
        ("killed", "?"),
        ("capped", "?"),  # its share binds its host too (quotas on both); else it is in the idle class
        ("lifted", "?"),  # scratch: has a node that it was slowest on become faster?
        ("pooled", "?"),  # a guest that draws from the pools of its nodes, and not from one host
        ("bound", "?"),  # it is bound by memory bandwidth, whatever anybody knows of it
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
        ("pools", "?"),  # its guests draw from its pool; else each is beside one host
        (
            "level",
            "f8",
        ),  # cores' worth of CPU that each guest that draws from the pool may use, inf if all they want
        ("touched", "i4"),  # scratch: a list of nodes, from row 0 on
        ("at", "i4"),  # scratch: one of its cores
        ("changed", "i4"),  # a list of nodes that have changed, from row 0 on, and round again
        ("changed_at", "i8"),  # this node's last entry there
        ("given", "f8"),  # what guests get of what its cores leave idle, as a fraction, unless it is
        ("stale", "?"),
        ("gone", "?"),  # nobody may be moved there
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
        ("head", "?"),  # first core of its guest on its node
        # of the owner on this node, on each of its cores there
        ("use", "f8"),  # what it uses of a core now
        ("peak", "f8"),  # 95th percentile of that as it is known, NaN before it has been measured
        # of the guest on this node, on its head there
        ("wants", "f8"),  # cores' worth of CPU that it uses if nobody takes any
        ("quota", "f8"),  # cores' worth of CPU that it may use
        # from the first core of an owner on a node, or of a guest, to its next node: so that nodes count, not cores
        ("owner_skip", "i4"),  # first core on the next node, -1 for none
        ("owner_held", "i4"),  # cores on this node; 0 on those that are not the first
        ("guest_skip", "i4"),
        ("rate", "f8"),  # of a guest on its first core of a node: how fast it would run by this node alone
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


SLOT = np.dtype(
    [
        ("start", "f8"),  # when the log has it start
        ("first", "i8"),  # its parts are those from here to `stop`
        ("stop", "i8"),
        ("reach", "i4"),  # where else it may start: a row of `reach_at`, -1 for nowhere
        ("moved", "?"),  # it has started there
        # lists of rows, each from row 0 on
        ("arrival", "i4"),  # by submission
        ("order", "i4"),  # by recorded start
        ("late", "i4"),  # whose start is over and who has found no room
    ],
    align=True,
)
PART = np.dtype(
    [("node", "i4"), ("cores", "i4"), ("recorded", "i4")], align=True
)  # the last one is a node, too


class State(NamedTuple):
    """Everything that moves: n jobs, C cores, N nodes, in structured arrays (a row a job, core, node)."""

    c: NDArray[np.int64]
    f: NDArray[np.float64]
    job: NDArray[Any]  # (n,) JOB, in order of submission
    heap: NDArray[Any]  # events by time: `job` ends, `n + job` arrives, the deferral of `2n + job` is over
    run: NDArray[Any]  # running batch jobs by planned end
    queue: NDArray[Any]  # by order of arrival, FRONT lower if admitted; empty positions need NOBODY cores
    block: NDArray[Any]  # the least of each 64 positions, or less; from the end on, of each 4096
    node: NDArray[Any]  # (N,) NODE
    core: NDArray[Any]  # (C,) CORE
    task: NDArray[Any]  # (n,) TASK, (0,) without admission
    vary: NDArray[np.float64]  # (2C, 2 + RECENT) where use varies, else (0, …): of owners, then of guests
    # of recorded starts and of the scheduler SLURM, else (0,)
    slot: NDArray[Any]  # (n,) SLOT
    part: NDArray[Any]  # PART: cores of a node that a job is to have
    reach_at: NDArray[np.int64]  # (K + 1,) where the nodes of each reach begin
    reach_node: NDArray[np.int32]
    rules: Rules  # of the scheduler SLURM; else an empty tuple, so of another type


@compiled(inline="always")
def arrival(s: State, k: int) -> int:
    """The job that arrives as the k-th: rows are in order of submission, but for logs that say when jobs became
    eligible."""
    return s.slot[k].arrival if len(s.slot) > 0 else k


@compiled(inline="always")
def note_change(s: State, node: int) -> None:
    """A node into the list of those that have changed, unless it is there since the last look."""
    if s.node[node].changed_at < s.c[LOOKED]:
        s.node[node].changed_at = s.c[CHANGES]
        s.node[s.c[CHANGES] % len(s.node)].changed = node
        s.c[CHANGES] += 1


@compiled(inline="always")
def is_job(s: State, job: int) -> bool:
    """Is it a row at all? Decisions come from outside, and compiled code checks no index."""
    return 0 <= job < len(s.job)
