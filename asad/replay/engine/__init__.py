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

All functions work on one `State`, a tuple of tables; its `c` holds counters and its `f` clocks. From the ground up,
each file calling those above it alone:

    rules             what a cluster's own Slurm goes by beside cores and time
    simulation_state  the tables, and what the counters and clocks are
    event_heap        the event heap
    queue             waiting jobs in order of arrival
    held_back         who of those that wait is in the queue: admitted, deferred, throttled
    availability      running jobs by planned end, and what is free from when on
    placement         which cores and how much memory a batch job takes
    rates             contention: how fast jobs run that share cores
    use               CPU use that varies
    guests            guests
    job_course        start, end, extend, cancel, requeue
    recorded          recorded starts: when and where a log has jobs start
    node_profile      what is free on each node from when on
    fair_share        priority
    site_backfill     scheduling passes of a cluster's own Slurm, by its rules
    backfill          scheduling passes: FCFS, EASY, conservative
    clock             from event to event, and from poll to poll
    twin              the same cluster with nobody who lends
    looks             what a cycle asks and what lending does, each in one compiled call
    build             a cluster at rest before its first job, of what is given, checked once
"""

from asad.replay.engine.build import Slots, check_jobs, check_nodes, new_state
from asad.replay.engine.clock import next_event, run_until
from asad.replay.engine.guests import set_share
from asad.replay.engine.held_back import admit, defer, throttle, undefer, waits
from asad.replay.engine.job_course import cancel, extend, requeue
from asad.replay.engine.looks import (
    Looks,
    advance,
    allot,
    co_allocate,
    ended_since,
    lend_more,
    new_looks,
    observe,
    set_gone,
)
from asad.replay.engine.rules import ACCOUNT, CLOSURE, RULE, TERMS, Rules
from asad.replay.engine.simulation_state import (
    ADMISSION,
    ASIDE,
    CHANGES,
    CONSERVATIVE,
    DONE,
    EASY,
    ENDED,
    EXTRA,
    FCFS,
    FREE,
    GUEST,
    GUESTS,
    HEAD,
    HEAP,
    JOB_COLUMNS,
    LOGGED,
    NOBODY,
    NOW,
    PENDING,
    PLACED,
    RECORDED,
    RUN,
    RUNNING,
    SLURM,
    STAMP,
    TAIL,
    UNLOGGED,
    VERSION,
    WAITING,
    WITHHELD,
    State,
)

__all__ = [
    "ACCOUNT",
    "ADMISSION",
    "ASIDE",
    "CHANGES",
    "CLOSURE",
    "CONSERVATIVE",
    "DONE",
    "EASY",
    "ENDED",
    "EXTRA",
    "FCFS",
    "FREE",
    "GUEST",
    "GUESTS",
    "HEAD",
    "HEAP",
    "JOB_COLUMNS",
    "LOGGED",
    "NOBODY",
    "NOW",
    "PENDING",
    "PLACED",
    "RECORDED",
    "RULE",
    "RUN",
    "RUNNING",
    "SLURM",
    "STAMP",
    "TAIL",
    "TERMS",
    "UNLOGGED",
    "VERSION",
    "WAITING",
    "WITHHELD",
    "Looks",
    "Rules",
    "Slots",
    "State",
    "admit",
    "advance",
    "allot",
    "cancel",
    "check_jobs",
    "check_nodes",
    "co_allocate",
    "defer",
    "ended_since",
    "extend",
    "lend_more",
    "new_looks",
    "new_state",
    "next_event",
    "observe",
    "requeue",
    "run_until",
    "set_gone",
    "set_share",
    "throttle",
    "undefer",
    "waits",
]
