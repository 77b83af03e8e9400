"""The recorded cluster: a simulated Slurm behind the same port as a real one.

It shows snapshots at the poll interval and takes decisions as a real cluster would: late, and blind to everything
that has not happened yet. What is simulated, and how exactly, stands at the top of `asad.replay.engine`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from asad.contention import Contention
from asad.decisions import (
    Admit,
    CoAllocate,
    Decision,
    Decline,
    Defer,
    Evict,
    ExtendLimit,
    Outcome,
    SetMemory,
    SetQuota,
    SetShare,
    SetThrottle,
    Start,
)
from asad.ineligible import Ineligible, NodeIneligible
from asad.model import (
    Arrays,
    Changed,
    Finished,
    Floats,
    Jobs,
    Machine,
    Snapshot,
    name_of,
    no_arrays,
)
from asad.replay import engine
from asad.replay.closed_nodes import Gone, GoneNodes, close_nodes
from asad.replay.limits.binding import LimitBinding
from asad.replay.limits.inferred_limits import InferredLimits
from asad.replay.limits.limit_table import LimitTable
from asad.replay.workload_columns import Workload
from asad.share.jit_args import bind

SCHEDULERS: dict[str, int] = {
    "easy": engine.EASY,
    "fcfs": engine.FCFS,
    "conservative": engine.CONSERVATIVE,
    "recorded": engine.RECORDED,
    "slurm": engine.SLURM,
}

REFUSALS = (
    "",
    "it does not wait any more",
    "its host does not run any more",
    "a node is no longer wholly held by its host",
    "another guest is on these cores",
    "its memory does not fit beside the host",
    "its cores do not fit on the offered nodes",
    "it is deferred, or beyond the throttle of its array",
    "guests that are held in another way are there",
)


TASKS = ("waiting", "running", "ended", "throttle")
"""Columns of `Arrays` after the first."""

NOT_RUNNING, NO_GUEST = "it does not run any more", "it does not run as a guest any more"
NOT_WAITING = "it does not wait, nor does any task of its array"
RELEASED_S = 3600.0
"""A log knows no held jobs: the owner of one that was requeued and held is taken to release it so much later."""


Value = TypeVar("Value")


class _ByRow(Mapping[int, Value]):
    """What is shown of some jobs, by row, as the simulation goes on: a look costs nothing where nobody asks."""

    def __init__(
        self, column: NDArray[Any], shown: Callable[[Any], Any], value: Callable[[int], Value]
    ) -> None:
        """`shown` says of entries of the `column` (n,) whether their rows have a value, and `value` which."""
        self._column, self._shown, self._value = column, shown, value

    def __getitem__(self, row: int) -> Value:
        if not 0 <= row < len(self._column) or not self._shown(self._column[row]):
            raise KeyError(row)
        return self._value(row)

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self._shown(self._column)).tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self._shown(self._column)))


class _Hints(dict[int, str]):
    """What users ask of asad, by row, of the jobs that have been submitted: what comes later nobody can know."""

    def __init__(self, workload: Workload, shown: bool) -> None:
        """Of nobody unless they are `shown`."""
        super().__init__()
        self._workload, self._coming = workload, sorted(workload.hints, reverse=True) if shown else []

    def see(self, now_s: float) -> None:
        """Time has come so far."""
        while self._coming and self._workload.submit_s[self._coming[-1]] <= now_s:
            row = self._coming.pop()
            self[row] = self._workload.hints[row]


def _names_of(workload: Workload) -> Mapping[int, str]:
    """What users call their jobs, if that is known."""
    name = workload.name
    if name is None:
        return {}
    return _ByRow(name, lambda code: code >= -1, lambda row: name_of(workload.names, int(name[row])))


def _classes_of(workload: Workload, state: NDArray[np.int8]) -> Mapping[int, tuple[str, str]]:
    """Partition and QOS of the jobs that wait; a log's QOS is not read, so it is empty."""
    code, names = workload.partition, workload.partitions
    if code is None:
        return {}
    return _ByRow(
        state,
        lambda state: (state == engine.PENDING) | (state == engine.WITHHELD),
        lambda row: (names[code[row]] if 0 <= code[row] < len(names) else "", ""),
    )


def _partitions_of(workload: Workload) -> Mapping[int, str]:
    """The same of all jobs, without their QOS."""
    code, names = workload.partition, workload.partitions
    if code is None:
        return {}
    return _ByRow(code, lambda code: (code >= 0) & (code < len(names)), lambda row: names[code[row]])


def _columns(workload: Workload) -> dict[str, NDArray[Any]]:
    """What the simulation reads of each job."""
    columns: dict[str, NDArray[Any]] = {
        "submit": workload.submit_s,
        "work": workload.work_s,
        "planned": workload.planned_s,
        "limit": np.where(np.isnan(workload.limit_s), np.inf, workload.limit_s),
        "memory": workload.memory_bytes_per_core,
        "demand": workload.demand,
        "think": workload.think_s,
        "cores": workload.cores,
        "wide": workload.nodes,
        "depends": workload.depends_on,
    }
    if workload.belief is not None:
        columns["belief"] = workload.belief
    if workload.memory_bound is not None:
        columns["bound"] = workload.memory_bound
    return columns


def _mu(contention: Contention) -> tuple[float, float, float, float]:
    """μ as the simulation wants it."""
    of_cpu = contention.mu_host_cpu, contention.mu_guest_cpu
    return *of_cpu, contention.mu_host_memory, contention.mu_guest_memory


def _jobs_of(workload: Workload, state: engine.State, looks: engine.Looks, start_alone: Floats) -> Jobs:
    """The columns of all jobs: the very arrays of the simulation, so that snapshots cost nothing."""
    job, task = state.job, state.task  # without admission there are no tasks
    # a log has nothing of these
    unknown, no = np.full(len(workload), np.nan), np.zeros(len(workload), np.int8)
    return Jobs(
        job_id=workload.job_id,
        application=workload.application,
        user=workload.user,
        cores=job["cores"],
        nodes=job["wide"],
        time_limit_s=workload.limit_s,
        memory_bytes_per_core=workload.memory_bytes_per_core,
        submit_s=job["submit"],
        start_s=job["start"],
        limit_end_s=job["limit_end"],
        estimated_start_s=looks.estimate,
        begin_s=task["begin"] if len(task) else unknown,
        deadline_s=unknown if workload.deadline_s is None else workload.deadline_s,
        array=task["array"] if len(task) else np.full(len(workload), -1, np.int32),
        counterfactual_start_s=start_alone,
        own_estimate_s=looks.own_estimate,
        cpu_fraction=looks.cpu,
        pace=job["rate"],
        lost_s=job["lost"],
        extended_s=job["extended"],
        host=job["host"],
        share=job["share"],
        demand=job["offered"],
        happiness=unknown,
        pressure=unknown,
        latest_end_s=np.full(len(workload), np.inf),
        offered_s=unknown,
        share_group=np.zeros(len(workload), np.int32),
        memory_bound=no,
        host_bar=no.copy() if workload.host_bar is None else workload.host_bar.copy(),
        guest_bar=no.copy() if workload.guest_bar is None else workload.guest_bar.copy(),  # limits show in it
    )


def _changed_of(state: engine.State) -> Changed | None:
    """The engine's own account of nodes that have changed; None where it does not keep track of who is where."""
    if not state.c[engine.PLACED]:
        return None
    count = state.c[engine.CHANGES : engine.CHANGES + 1]
    job, core = state.job, state.core
    return Changed(
        count,
        state.node["changed"],
        job["owner_first"],
        core["owner_skip"],
        job["guest_first"],
        core["guest_skip"],
    )


class RecordedCluster:
    """A `Cluster` that runs a recorded workload in virtual time."""

    def __init__(
        self,
        workload: Workload,
        machine: Machine,
        contention: Contention,
        *,
        scheduler: str = "easy",
        per_event: bool = False,
        kill: bool = True,
        lending: bool = True,
        admission: bool = True,
        gather_arrays: bool = False,
        use_memory: bool = False,
        poll_s: float = 30.0,
        window_s: float = 60.0,
        depth: int = 100,
        backfill_interval_s: float = 30.0,
        twin_interval_s: float = 30.0,
        twin: bool = True,
        widened: bool = True,
        use_sd: float = 0.0,
        seed: int = 0,
        every: bool = False,
        slots: engine.Slots | None = None,
        closed: NDArray[np.bool_] | None = None,
        limits: LimitTable | InferredLimits | None = None,
        rules: engine.Rules | None = None,
        gone: Gone | None = None,
    ) -> None:
        """A cluster before its first job.

        With the scheduler `recorded`, `slots` are when and where jobs start; rows of `workload` from `slots.logged` on
        are no jobs of the log, and hold cores alone. Nodes that are `closed` lend nothing, and nor do those that are
        `gone` meanwhile.

        `lending` off leaves placement untracked, which decides nothing else. `admission` off leaves arrays and hints
        unseen, and refuses to admit, defer and throttle. With `gather_arrays` the queue shows one waiting task an
        array, as Slurm's does, and starts are estimated whether or not anybody could be lent to. `depth` is how many
        waiting jobs a snapshot shows with an estimated start (Slurm: bf_max_job_test), refreshed no more often than
        every `backfill_interval_s` (Slurm: bf_interval). Running jobs count as measured after `window_s`. With
        lending a twin runs beside it, on which nobody lends; it plans as the scheduler does, and learns how long a
        job runs alone when that job has ended here. Where a job may have ended there, but has not come so far here,
        it waits for what happens here: so its starts are those of the cluster left alone. It estimates those that are
        yet to come no more often than every `twin_interval_s`. Without `twin` there is none, for those who lend
        nothing and yet want to know who is where. Guests that draw from pools run on all cores of their nodes if they
        are `widened`; `use_sd` varies the CPU use of jobs by so much of their cores (stationary standard deviation),
        drawn with `seed`; `every` shows each change, also while nobody waits. `limits` of associations and QOS
        bind guests: who may not start for one is shown so. `rules` are what the scheduler `slurm` goes by.
        """
        self.workload, self.machine = workload, machine
        self.depth, self.backfill_interval_s = depth, backfill_interval_s
        self.poll_s, self.twin_interval_s = poll_s, twin_interval_s
        columns = _columns(workload)

        def new_state(placed: bool, admission: bool = False, use_sd: float = 0.0) -> engine.State:
            return engine.new_state(
                columns,
                machine.cores,
                machine.memory_bound_bytes,
                scheduler=SCHEDULERS[scheduler],
                per_event=per_event,
                kill=kill,
                placed=placed,
                use_memory=use_memory,
                poll_s=poll_s,
                window_s=window_s,
                mu=_mu(contention),
                widened=widened,
                use_sd=use_sd,
                seed=seed,
                every=every,
                admission=admission,
                array=workload.array,
                gather=admission and gather_arrays,
                slots=slots,
                rules=rules,
            )

        self.state = new_state(lending, admission, use_sd)
        self._widened = widened
        # what would be without us: it learns how long a job runs when the job has ended here, and not before; it has
        # no jobs where nobody lends
        beside = lending and twin
        columns = {name: column if beside else column[:0] for name, column in columns.items()}
        if slots is None:
            columns["work"] = columns["planned"]
        if not beside:
            slots = rules = None
        alone = new_state(False)
        self._looks = looks = engine.new_looks(self.state, depth, workload.application)
        self._args = bind(self.state, alone, looks)
        self._twin_clock = alone.f
        self._seen = 0
        start_alone = alone.job["start"] if beside else np.full(len(workload), np.nan)
        # the very same arrays in every snapshot, so that a policy may hand them to compiled code once
        self._core_owner, self._core_guest = self.state.core["owner"], self.state.core["guest"]
        self._core_peak = self.state.core["peak"]
        job, task = self.state.job, self.state.task
        self._changed = _changed_of(self.state)
        self._arrays = no_arrays()
        if admission and workload.array is not None:
            count = int(workload.array.max(initial=-1)) + 1
            self._arrays = Arrays(*(task[name][:count] for name in ("waiting_row", *TASKS)))
        self._names, self._partitions = _names_of(workload), _partitions_of(workload)
        self._classes = _classes_of(workload, job["state"]) if admission else {}
        # without admission there are no tasks; who defers is asad, since a log knows no begin times of users
        self._deferred = _ByRow(task["begin"], lambda begin_s: ~np.isnan(begin_s), lambda row: math.nan)
        self._hints = _Hints(workload, admission)
        self._node_bar = np.zeros(len(machine.cores), np.int8)
        if closed is not None:
            self._node_bar[closed] = NodeIneligible.OVERFULL
        self._always_closed = self._node_bar.copy()
        self._gone = None if gone is None else GoneNodes(gone, self._always_closed, self._args)
        self._jobs = _jobs_of(workload, self.state, looks, start_alone)
        self._jobs.host_bar[self.logged :] = Ineligible.NOT_A_JOB
        self._some_lend_nothing = bool(self._jobs.host_bar[: self.logged].any())
        self.limits = None if limits is None else LimitBinding(limits, self._jobs.guest_bar)

    # ------------------------------------------------------------------------------------------------------- clock

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return float(self.state.f[engine.NOW])

    @property
    def logged(self) -> int:
        """How many jobs of the log there are."""
        return int(self.state.c[engine.LOGGED])

    @property
    def jobs(self) -> NDArray[Any]:
        """(logged,) The simulation's table of the jobs of the log."""
        return self.state.job[: self.logged]

    @property
    def ended(self) -> int:
        """How many jobs have ended."""
        return int(self.state.c[engine.ENDED])

    def run(self, until_s: float = np.inf) -> None:
        """Let the cluster alone until then."""
        engine.run_until(self.state, until_s)

    def advance(self, wake_s: float = np.inf) -> bool:
        """Run to the next poll that has anything new, or the first at or after `wake_s`; False when all is over."""
        return bool(engine.advance(self._args, wake_s))

    # -------------------------------------------------------------------------------------------------------- port

    def snapshot(self) -> Snapshot:
        """The cluster as it is now. Arrays are views: they are true until the cluster moves on."""
        s, looks = self.state, self._looks
        if self._gone is not None and self._gone.mark(self.now_s):
            self._node_bar[:] = self._always_closed
        count = engine.observe(self._args, self.backfill_interval_s, self.twin_interval_s)
        self._hints.see(self.now_s)
        if self._some_lend_nothing:
            columns = self._always_closed, self._jobs.host_bar, self._core_owner, self.machine.first_core
            close_nodes(self._node_bar, *columns)
        queue = looks.queue[:count]
        running = looks.running[: s.c[engine.RUN] - s.c[engine.UNLOGGED]]
        guests = looks.guests[: s.c[engine.GUESTS]]
        if self.limits is not None:
            self.limits.mark(queue, running, guests, self.now_s)
        return Snapshot(
            time_s=self.now_s,
            version=int(s.c[engine.VERSION]),
            machine=self.machine,
            jobs=self._jobs,
            queue=queue,
            running=running,
            guests=guests,
            core_owner=self._core_owner,
            core_guest=self._core_guest,
            waiting=int(s.c[engine.WAITING] + s.c[engine.ASIDE]),
            node_bar=self._node_bar,
            own_known_s=float(self._twin_clock[engine.NOW]),
            arrays=self._arrays,
            hints=self._hints,
            classes=self._classes,
            own_begins=self._deferred,
            core_peak=self._core_peak,
            lends_free_cores=True,
            whole_nodes=False,
            widened=self._widened,
            names=self._names,
            partitions=self._partitions,
            changed=self._changed,
        )

    def apply(self, decisions: Sequence[Decision]) -> list[Outcome]:
        """Do what was decided; each outcome says whether it was done, or why not."""
        return [Outcome(decision, not (why := self._refused(decision)), why) for decision in decisions]

    def _refused(self, decision: Decision) -> str:
        """Do what was decided; why not, or the empty string."""
        s = self.state
        if isinstance(decision, Admit | Decline | Defer | Start | SetThrottle):
            return self._admit(decision)
        if not s.c[engine.PLACED]:
            return "this cluster does not keep track of who is where, so nobody can share"
        if isinstance(decision, CoAllocate | SetShare) and not 0.0 <= decision.share <= 1.0:
            return f"a share of {decision.share:g} is none"
        if isinstance(decision, CoAllocate):
            return self._co_allocate(decision)
        if isinstance(decision, SetQuota):
            return self._set_quota(decision)
        if isinstance(decision, Evict):
            return self._evict(decision)
        if isinstance(decision, SetMemory):
            return "a log does not record what memory a job uses at a time"
        if isinstance(decision, SetShare) and decision.host < 0:
            gone = engine.set_share(s, decision.guest, decision.share, decision.capped)
            return NO_GUEST if gone else ""
        if isinstance(decision, SetShare):
            gone = engine.lend_more(self._args, decision.host, decision.share)
        elif not isinstance(decision, ExtendLimit):
            return f"a recorded cluster cannot {decision.kind}"
        elif not 0.0 < decision.by_s < np.inf:
            return f"a limit cannot be extended by {decision.by_s:g} s"
        else:
            gone = engine.extend(s, decision.job, decision.by_s)
        return NOT_RUNNING if gone else ""

    def _co_allocate(self, decision: CoAllocate) -> str:
        """Start a guest; why not, or the empty string."""
        share = decision.share
        if self.limits is not None and 0 <= decision.guest < len(self.workload):
            s = self.state
            running = s.run["job"][: s.c[engine.RUN]]
            guests = s.job["guest_row"][: s.c[engine.GUESTS]]
            waits = s.job["state"][decision.guest] == engine.PENDING
            if waits and (why := self.limits.refusal(decision.guest, running, guests)):
                return why
        if decision.pooled:
            demands = decision.demands
            if len(demands) != len(decision.nodes) or not all(0.0 <= demand < np.inf for demand in demands):
                return f"demands {demands} are not one for each of {len(decision.nodes)} nodes"
            share = float(sum(demands))
        nodes = np.array(decision.nodes, np.int32)
        done = engine.co_allocate(self._args, decision.guest, decision.host, share, decision.capped, nodes)
        return REFUSALS[done]

    def _set_quota(self, decision: SetQuota) -> str:
        """Change a guest's quotas; why not, or the empty string."""
        quota = decision.cores
        if len(decision.nodes) != len(quota) or not all(0.0 < cores < np.inf for cores in quota):
            return f"quotas {quota} are not one above 0 for each of {len(decision.nodes)} nodes"
        nodes = np.array(decision.nodes, np.int32)
        gone = engine.allot(self._args, decision.guest, nodes, np.array(quota, np.float64))
        return ("", NO_GUEST, "it is not on such a node")[gone]

    def _evict(self, decision: Evict) -> str:
        """End a running job; why not, or the empty string. Who is held is released by his owner after `RELEASED_S`."""
        if decision.how == "cancel":
            gone = engine.cancel(self.state, decision.job)
        elif decision.how != "requeue-hold":
            return f"there is no way {decision.how!r:.40} to evict it"
        elif not self.state.c[engine.ADMISSION]:
            return "this cluster holds nobody back"
        else:
            until_s = self.now_s + RELEASED_S
            gone = engine.requeue(self.state, decision.job, until_s, self._looks.estimate)
        return ("", NOT_RUNNING, "it is a task of an array")[gone]

    def _admit(self, decision: Admit | Decline | Defer | Start | SetThrottle) -> str:
        """Do what admission decided; why not, or the empty string. What already is as decided is done."""
        s, estimate = self.state, self._looks.estimate
        if not s.c[engine.ADMISSION]:
            return "this cluster does not keep track of arrays and of who is admitted"
        if isinstance(decision, Defer):
            if not self.now_s < decision.until_s < np.inf:
                return f"it cannot be deferred until {decision.until_s:.15g}: give a time that is to come"
            gone = engine.defer(s, decision.job, decision.until_s, estimate)
        elif isinstance(decision, SetThrottle):
            if not 0 <= decision.tasks < engine.NOBODY:
                return f"a throttle of {decision.tasks} tasks is none"
            gone = engine.throttle(s, decision.job, decision.tasks, estimate)
            if gone == 2:
                return "it is no task of an array"
        elif isinstance(decision, Admit):
            gone = engine.admit(s, decision.job)
        elif isinstance(decision, Start):
            gone = engine.undefer(s, decision.job)
        else:
            gone = not engine.waits(s, decision.job)
        return NOT_WAITING if gone else ""

    def finished(self, since_s: float = -np.inf) -> Finished:
        """The jobs that ended since the last call (and after `since_s`)."""
        row, end_s, run_s, lost_s, cpu = engine.ended_since(self._args, self._seen, since_s)
        self._seen = int(self.state.c[engine.ENDED])
        return Finished(row, end_s, run_s, lost_s, cpu, completed=~self.state.job["killed"][row])
