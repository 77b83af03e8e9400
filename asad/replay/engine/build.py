"""A cluster at rest before its first job."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.errors import UsageError
from asad.replay.engine.clock import skip_dependents
from asad.replay.engine.rules import Rules, own_rules
from asad.replay.engine.simulation_state import (
    ADMISSION,
    BLOCK,
    BLOCK_ENTRY,
    BOUND,
    CLOCKS,
    CORE,
    COUNTERS,
    EVERY,
    FREE,
    FRONT,
    GATHER,
    HEAD,
    HEAP_ENTRY,
    HELD,
    IN_ORDER,
    JOB,
    JOB_COLUMNS,
    KILL,
    LOGGED,
    MEMORY,
    MU_GUEST_CPU,
    MU_GUEST_MEMORY,
    MU_HOST_CPU,
    MU_HOST_MEMORY,
    NEVER,
    NOBODY,
    NODE,
    NOW,
    ORIGIN,
    PART,
    PER_EVENT,
    PLACED,
    POLL,
    QUEUE_ENTRY,
    RECENT,
    RECORDED,
    RUN_ENTRY,
    SCHEDULER,
    SEED,
    SHOWN,
    SLOT,
    STEP,
    TAIL,
    TASK,
    USE_SD,
    WIDENED,
    WINDOW,
    State,
)
from asad.replay.engine.use import STEP_S, centres


class Slots(NamedTuple):
    """When and where a log has jobs start; R rows, of which the first `logged` are its jobs and others hold cores."""

    start: NDArray[np.float64]
    at: NDArray[np.int64]
    """(R + 1,) where the parts of each row begin."""
    node: NDArray[np.int32]
    cores: NDArray[np.int32]
    """Of the parts."""
    reach: NDArray[np.int32]
    """(R,) where else each may start, -1 for nowhere."""
    reach_at: NDArray[np.int64]
    reach_node: NDArray[np.int32]
    """The nodes of reach k are those from `reach_at[k]` to `reach_at[k + 1]`."""
    logged: int
    held: int
    """First row of those that hold what a guest has vacated: that of its own row number further on. 0: none does."""


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
    widened: bool = True,
    use_sd: float = 0.0,
    seed: int = 0,
    every: bool = False,
    admission: bool = False,
    array: NDArray[np.int32] | None = None,
    gather: bool = False,
    slots: Slots | None = None,
    rules: Rules | None = None,
) -> State:
    """A cluster at rest before its first job.

    `jobs` has columns (n,) submit, work, planned, limit, cores, wide, memory, demand, depends, think, and may have
    `belief` (1) and `bound` (False), in order of submission; `node_cores` and `node_memory` (inf: no bound) are (N,).
    `placed` keeps track of which job is on which core, which lending and memory need. `mu` is μ of host and guest in
    CPU-bound pairs, then in memory-bound ones. Guests that draw from pools may be `widened` over all cores of their
    nodes; with `use_sd` above 0 the CPU use of each job varies on each node, drawn with `seed` (see `use`); `every`
    shows each change, also while nobody waits.
    `admission` lets jobs be admitted, deferred and throttled; then `array` (n,) says of which array each is a task, -1
    for none, and `gather` shows one waiting task an array. `slots` are for the scheduler RECORDED,
    `rules` for SLURM alone.

    Raises UsageError for what compiled code could not bear, see `check_nodes` and `check_jobs`.
    """
    n, nodes = len(jobs["submit"]), len(node_cores)
    total = int(node_cores.sum())
    check_nodes(node_cores, node_memory, needed=use_memory and bool((jobs["memory"] > 0).any()))
    logged = n if slots is None else slots.logged
    if slots is None and rules is not None:
        slots = _any_parts(rules, jobs["submit"], jobs["cores"])
    check_jobs(jobs if array is None or not admission else {**jobs, "array": array}, total, slots)
    front = padded = (n // (BLOCK * BLOCK) + 1) * BLOCK * BLOCK
    if admission:
        padded *= 2  # who is admitted stands in the first half
    placed = placed or use_memory or rules is not None
    if array is None or not admission:
        array = np.full(n if admission else 0, -1, np.int32)
    s = State(
        c=np.zeros(COUNTERS, np.int64),
        f=np.zeros(CLOCKS),
        job=np.zeros(n, JOB),
        heap=np.zeros((2 * n if admission else n) + 1, HEAP_ENTRY),
        # logs may overfill a machine
        run=np.zeros((n if slots is not None else min(total, n)) + 1, RUN_ENTRY),
        queue=np.zeros(padded, QUEUE_ENTRY),
        block=np.zeros(padded // BLOCK + padded // (BLOCK * BLOCK), BLOCK_ENTRY),
        node=np.zeros(nodes, NODE),
        core=np.zeros(total, CORE),
        task=np.zeros(len(array), TASK),
        vary=np.zeros((2 * total if use_sd > 0 else 0, 2 + RECENT)),
        slot=np.zeros(0 if slots is None else n, SLOT),
        part=np.zeros(0 if slots is None else len(slots.node), PART),
        reach_at=np.zeros(1, np.int64) if slots is None else slots.reach_at.copy(),
        reach_node=np.zeros(0, np.int32) if slots is None else slots.reach_node.copy(),
        rules=own_rules(rules) if rules is not None else (),  # type: ignore[arg-type]
    )
    s.c[LOGGED] = logged
    if slots is not None:
        _fill_slots(s, slots, jobs["submit"])
        if scheduler != RECORDED:
            s.c[IN_ORDER] = 0  # nobody's start is given
    if admission:
        _group(s, array)
        s.c[ADMISSION], s.c[GATHER] = True, gather
        s.c[FRONT] = s.c[TAIL] = s.c[HEAD] = front
    _fill_nodes(s, node_cores, node_memory)
    for queue in (s.queue, s.block):
        queue["cores"] = NOBODY
        queue["planned"] = NEVER
    s.c[FREE] = total
    s.c[SCHEDULER], s.c[PER_EVENT], s.c[KILL] = scheduler, per_event, kill
    s.c[PLACED], s.c[MEMORY] = placed, use_memory
    s.c[WIDENED], s.c[EVERY] = widened, every
    s.f[USE_SD], s.c[SEED] = use_sd, seed
    _fill_jobs(s, jobs)
    s.f[POLL], s.f[WINDOW] = poll_s, window_s
    s.f[ORIGIN] = s.f[NOW] = s.job["submit"].min() if n else 0.0
    s.f[STEP] = s.f[ORIGIN] + STEP_S
    s.f[SHOWN] = -np.inf
    s.f[MU_HOST_CPU], s.f[MU_GUEST_CPU], s.f[MU_HOST_MEMORY], s.f[MU_GUEST_MEMORY] = mu
    skip_dependents(s)
    return s


def _any_parts(rules: Rules, submit: NDArray[np.float64], cores: NDArray[np.int32]) -> Slots:
    """Room for the nodes that each job will have."""
    reach = np.diff(rules.reach_at)[rules.rule["reach"]]
    most = np.where(rules.rule["wide"] > 0, rules.rule["wide"], np.minimum(cores, reach))
    at = np.concatenate(([0], np.cumsum(most))).astype(np.int64)
    none, count = np.zeros(at[-1], np.int32), len(submit)
    nowhere = np.full(count, -1, np.int32)
    return Slots(
        np.full(count, NEVER), at, none, none, nowhere, np.zeros(1, np.int64), np.zeros(0, np.int32), count, 0
    )


def _fill_jobs(s: State, jobs: dict[str, NDArray[Any]]) -> None:
    """Nobody has been submitted; those that wait for another are chained to it, in order of their rows."""
    for name in JOB_COLUMNS:
        s.job[name] = jobs[name]
    s.job["belief"] = jobs.get("belief", 1.0)
    s.job["bound"] = jobs.get("bound", False)
    s.c[BOUND] = s.job["bound"].any()
    s.job["centre"] = centres(s.job["demand"], s.f[USE_SD])
    for job in np.flatnonzero(s.job["depends"] >= 0)[::-1].tolist():
        s.job["sibling"][job] = s.job["child"][s.job["depends"][job]]
        s.job["child"][s.job["depends"][job]] = job + 1
    for name in ("sibling", "child"):
        s.job[name] -= 1  # until here 0 meant none
    for name in ("host", "owner_first", "guest_first"):
        s.job[name] = -1
    for name in ("eligible", "start", "end", "planned_end", "limit_end", "share", "offered"):
        s.job[name] = np.nan
    s.job["promised"] = NEVER
    s.job["rate"] = 1.0


def _fill_slots(s: State, slots: Slots, submit: NDArray[np.float64]) -> None:
    """Nobody has started. Rows that hold vacated slots start when those are vacated, and so are in no order."""
    s.slot["start"], s.slot["reach"] = slots.start, slots.reach
    s.slot["first"], s.slot["stop"] = slots.at[:-1], slots.at[1:]
    s.part["node"], s.part["cores"], s.part["recorded"] = slots.node, slots.cores, slots.node
    s.slot["arrival"] = np.argsort(submit, kind="stable")
    in_order = np.argsort(slots.start[: slots.held or len(slots.start)], kind="stable")
    s.slot["order"][: len(in_order)] = in_order
    s.c[HELD], s.c[IN_ORDER] = slots.held, len(in_order)


def _fill_nodes(s: State, cores: NDArray[np.int32], memory: NDArray[np.float64]) -> None:
    """All cores are idle."""
    for name in ("owner", "owner_next", "guest", "guest_next"):
        s.core[name] = -1
    s.core["peak"] = np.nan
    s.node["changed_at"] = -1
    s.core["node"] = np.repeat(np.arange(len(cores)), cores)
    s.node["cores"] = s.node["free"] = cores
    s.node["first"] = np.cumsum(cores) - cores
    s.node["memory"] = s.node["memory_free"] = memory


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


# --------------------------------------------------------------------------------------------------------- checks


def check_nodes(cores: NDArray[np.int32], memory: NDArray[np.float64], needed: bool) -> None:
    """Nodes have cores, and where memory is `needed` a bound of it, inf for none.

    Raises UsageError that names column and node.
    """
    if len(memory) != len(cores):
        raise UsageError(
            f"machine: {len(memory)} nodes have memory and {len(cores)} cores; give one row a node"
        )
    _require("machine: column cores, node", cores, cores >= 1, "every node has at least 1 core")
    if needed:
        _require(
            "machine: column memory, node",
            memory,
            memory >= 0,
            "memory counts, so give bytes from 0, inf for no bound",
        )


def check_jobs(jobs: dict[str, NDArray[Any]], total: int, slots: Slots | None = None) -> None:
    """Every value is one that compiled code can bear. With `slots` those that are no jobs of a log never arrive, and
    jobs do in any order.

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
    if slots is None:
        later[1:] &= submit[1:] >= submit[:-1]
    else:
        later |= (rows >= max(1, slots.logged)) & (submit == NEVER)
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


def _require(place: str, column: NDArray[Any], good: NDArray[np.bool_], remedy: str) -> None:
    """Raise UsageError with the first row that is not good."""
    wrong = np.flatnonzero(~good)
    if len(wrong):
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise UsageError(f"{place} {wrong[0]}: {column[wrong[0]]}{more}; {remedy}")
