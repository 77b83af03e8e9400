"""One policy over one workload: the cluster left alone, or with the cycle beside it.

Watched meanwhile: whom it managed, and how its learner's view of the experts moved.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from asad.cycle import Cycle, is_renewal
from asad.decisions import Admit, Decline, Defer, Evict, Outcome, SetThrottle
from asad.model import Floats, ShareCases, Snapshot
from asad.replay import engine
from asad.replay.policies import SCHEDULING
from asad.replay.recorded_cluster import RecordedCluster
from asad.replay.results import ExpertHistory
from asad.replay.site import site_of
from asad.replay.stated import Foretold
from asad.replay.workbench import Bench
from asad.replay.workload_columns import Workload
from asad.replay.worth import arrays_of, hints_of
from asad.share import SharePolicy
from asad.share.learner import Weights, bound, excess_risk
from asad.share.pool.cases import MOST
from asad.stages import Stages, memory_loss
from asad.store.recording import Run


class Managed:
    """What admission did to whom, as far as the cluster did it."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._admitted: dict[int, bool] = {}
        """By row of the job, of a task its array's number below 0: was it admitted at last?"""
        self._touched: set[int] = set()

    def _key(self, row: int) -> int:
        array = -1 if self._workload.array is None else int(self._workload.array[row])
        return row if array < 0 else -1 - array

    def note(self, outcomes: Sequence[Outcome]) -> None:
        """Take in what became of decisions."""
        for outcome in outcomes:
            decision = outcome.decision
            if not outcome.done:
                continue
            if isinstance(decision, Admit | Decline):
                self._admitted[self._key(decision.job)] = isinstance(decision, Admit)
            if isinstance(decision, Admit | Defer | SetThrottle | Evict):
                self._touched.add(self._key(decision.job))

    @property
    def rows(self) -> NDArray[np.bool_]:
        """(n,) who was admitted, deferred or throttled at some time; of an array all tasks."""
        touched = np.array(sorted(self._touched), np.int64)
        rows = np.isin(np.arange(len(self._workload)), touched)
        if self._workload.array is not None:
            rows |= np.isin(-1 - self._workload.array.astype(np.int64), touched) & (self._workload.array >= 0)
        return rows

    def figures(self) -> dict[str, float | int | None]:
        """Jobs (an array is one) that were admitted, and those that were not, by the last word on each."""
        admitted = sum(self._admitted.values())
        return {"admitted": admitted, "declined": len(self._admitted) - admitted}


class ExpertWatch:
    """Samples the learner's cluster-wide weights; thins itself out so that a few hundred rounds remain."""

    def __init__(self, policy: SharePolicy) -> None:
        self.weights: Weights | None = getattr(policy, "weights", None)
        self.names = tuple(expert.name for expert in getattr(policy, "experts", ()))
        self.rows: list[tuple[int, Floats, Floats, float, float]] = []

    def look(self) -> None:
        """Take a sample, if there was a round since the last."""
        w = self.weights
        if w is None or w.rounds[-1] < 1 or (self.rows and self.rows[-1][0] == w.rounds[-1]):
            return
        self.rows.append(
            (int(w.rounds[-1]), w.alpha[-1].copy(), w.risk[-1].copy(), excess_risk(w, -1), bound(w, -1))
        )
        if len(self.rows) >= 800:
            self.rows = self.rows[1::2]

    def history(self) -> ExpertHistory | None:
        """What was sampled; None if nothing learns."""
        if not self.rows:
            return None
        rounds, weights, risk, excess, limit = zip(*self.rows, strict=True)
        return ExpertHistory(
            self.names,
            np.array(rounds, np.int32),
            np.array(weights),
            np.array(risk),
            np.array(excess),
            np.array(limit),
        )


@dataclass(slots=True)
class Played:
    """One policy over one workload, as the cluster left it."""

    cluster: RecordedCluster
    wall_s: float
    cycles: int = 0
    decisions: int = 0
    history: ExpertHistory | None = None
    managed: Managed | None = None
    """What was done to waiting jobs, by a policy that admits or defers."""
    funnel: tuple[tuple[str, float], ...] = ()
    """Idle core-hours by reason, of a policy that lends from pools."""
    cases: ShareCases | None = None
    """What its hosts lent and what it cost, of a recorded run of a policy that draws shares."""
    foretold: Foretold | None = None
    """The policy, if it plans statements of work."""

    def column(self, name: str) -> NDArray[np.generic]:
        """A column of the simulation, one row a job."""
        return self.cluster.jobs[name]

    @property
    def moved(self) -> int:
        """How many jobs have started on other nodes than the recorded ones."""
        return int(np.count_nonzero(self.cluster.state.slot["moved"][: self.cluster.logged]))

    @property
    def done_s(self) -> Floats:
        """(n,) Isolated work that each job got done."""
        job = self.cluster.jobs
        left = np.where(job["killed"], np.maximum(job["left"], 0.0), 0.0)
        return np.asarray(self.cluster.workload.work_s[: len(job)] - left)

    @property
    def touched(self) -> NDArray[np.bool_]:
        """(n,) Hosts, guests, and jobs that were admitted, deferred or throttled."""
        job = self.cluster.jobs
        lending: NDArray[np.bool_] = job["was_host"] | job["was_guest"]
        return lending if self.managed is None else lending | self.managed.rows


def leave_alone(bench: Bench, name: str, workload: Workload | None = None, what: str | None = None) -> Played:
    """The cluster under its own scheduler."""
    cluster = bench.cluster(bench.scheduler if name == "slurm" else SCHEDULING[name], None, workload)
    jobs = cluster.logged
    begin = time.perf_counter()
    if bench.progress is None or jobs == 0:
        cluster.run()
    else:
        bench.progress(what or name, 0, jobs)  # seen while the first replay compiles
        first, last = cluster.workload.submit_s[[0, jobs - 1]].tolist()
        for until in np.linspace(first, last, 50)[1:].tolist():
            cluster.run(until)
            bench.progress(what or name, cluster.ended, jobs)
        cluster.run()
        bench.progress(what or name, cluster.ended, jobs)
    return Played(cluster, time.perf_counter() - begin)


FLUID_PARTS = 20
"""Parts of a core that a job of the fluid takes as a whole number of."""


def pour(bench: Bench) -> Played:
    """The fluid: EASY over jobs of as many cores as they keep busy, to a part of a core; memory is left out."""
    workload, machine = bench.workload, bench.machine
    site = site_of(machine)
    used = np.maximum(1, np.ceil(workload.cores * workload.demand * FLUID_PARTS)).astype(np.int32)
    poured = replace(
        bench,
        machine=replace(
            machine,
            cores=(machine.cores * FLUID_PARTS).astype(np.int32),
            site=None if site is None else site.in_parts(FLUID_PARTS),
        ),
        workload=replace(workload, cores=used, memory_bytes_per_core=np.zeros(len(workload))),
        settings=replace(bench.settings, use_memory=False),
    )
    return leave_alone(poured, "slurm", what="fluid")


def beside(
    bench: Bench,
    name: str,
    run: Run | None = None,
    *,
    seed: int | None = None,
    what: str | None = None,
    held: str | None = None,
) -> Played:
    """The same cluster with the cycle beside it, as the policy of that name would have it.

    `seed` None: that of the replay. `what` is what the progress shows. `held` is how guests are held, and so which
    constants of contention count (`idle`, `static`), where that is not the policy's own way.
    """
    stages = bench.stages(name, bench.settings.seed if seed is None else seed)
    workload, shown = _shown_to(bench, stages)
    cluster = bench.cluster(
        bench.scheduler,
        held or stages.lending.held,
        workload,
        admission=shown,
        gather_arrays=stages.holds_back,
        pooled=stages.lending.pooled,
    )
    config = bench.settings.config
    guard = stages.guard(config.guard, memory_loss(config))
    cycle = Cycle(cluster, *stages, guard)
    managed = Managed(workload) if stages.holds_back else None
    played = _play(bench, cluster, cycle, run, what or name, managed)
    played.foretold = _foretold(stages)
    return played


def _foretold(stages: Stages) -> Foretold | None:
    """Who plans the statements of work of a replay, alone or beside another."""
    parts = stages.admit.parts or (stages.admit,)
    return next((one for one in parts if isinstance(one, Foretold)), None)


def _shown_to(bench: Bench, stages: Stages) -> tuple[Workload, bool]:
    """The workload with the arrays, hints and deadlines that the stages want to know, and whether the cluster shows
    them."""
    jobs, workload = bench.recorded.jobs, bench.workload
    if _foretold(stages) is not None:
        assert bench.stated is not None
        # a number that a log still has was of other statements: ours is read first
        own = dict(workload.hints or hints_of(jobs, ()))
        ours = {
            row: f"{text};{own[row]}" if own.get(row) else text for row, text in bench.stated.hints.items()
        }
        workload = replace(workload, array=arrays_of(jobs.job_id, jobs.user), hints=own | ours)
    if stages.defer.holds:
        assert bench.deferrable is not None
        hints = workload.hints if stages.admit.promises else hints_of(jobs, ())
        array = arrays_of(jobs.job_id, jobs.user)
        workload = replace(workload, array=array, hints=hints, deadline_s=bench.deferrable.deadline_s)
    if stages.holds_back:
        return workload, True
    gangs = stages.place.held is not None and any("components=" in text for text in jobs.hints)
    if gangs:
        return replace(workload, array=arrays_of(jobs.job_id, jobs.user), hints=hints_of(jobs, ())), True
    return workload, False


def _play(
    bench: Bench,
    cluster: RecordedCluster,
    cycle: Cycle,
    run: Run | None,
    what: str,
    managed: Managed | None = None,
) -> Played:
    """The cycle at every poll until all is over; `managed` follows a policy that holds jobs back."""
    names = cluster.workload.job_id

    def record(number: int, snapshot: Snapshot, outcomes: Sequence[Outcome]) -> None:
        if managed is not None:
            managed.note(outcomes)
            outcomes = [outcome for outcome in outcomes if not is_renewal(outcome)]
        if run is not None and outcomes:
            nodes = snapshot.machine.node_names
            run.record(
                number, snapshot.time_s, outcomes, names, host_rows=snapshot.jobs.host, node_names=nodes
            )

    if run is not None or managed is not None:
        cycle.record = record
    watch = ExpertWatch(cycle.share)
    jobs = cluster.logged
    begin = time.perf_counter()
    if managed is None and not bench.settings.lending:
        cluster.run()  # to the end, so that no poll is left
    if bench.progress is not None:
        bench.progress(what, 0, jobs)
    wake_s = np.inf
    while cluster.advance(wake_s):
        wake_s = cycle.run_once()
        if cycle.number % 256 == 0:
            watch.look()
            if bench.progress is not None:
                bench.progress(what, cluster.ended, jobs)
    watch.look()
    if bench.progress is not None:
        bench.progress(what, cluster.ended, jobs)
    wall_s = time.perf_counter() - begin
    played = Played(cluster, wall_s, cycle.number, cycle.decisions, watch.history(), managed)
    if cycle.share.pooled and cycle.number:
        played.funnel = _whole_funnel(cluster, cycle.share.funnel())
    if run is not None and cycle.share.draws and cycle.snapshot is not None:
        played.cases = cycle.share.take_cases(cycle.snapshot, MOST)
    return played


def _whole_funnel(
    cluster: RecordedCluster, sampled: Sequence[tuple[str, float]]
) -> tuple[tuple[str, float], ...]:
    """Core-hours by reason, of all that batch jobs left idle; `sampled` has it at the cycles.

    What was lent is known exactly, and so is the total; what the cycles missed in between is divided by what they saw.
    """
    job, workload = cluster.state.job, cluster.workload  # with those that hold cores alone
    if len(workload) == 0:
        return ()
    makespan_s = float(cluster.jobs["end"].max() - workload.submit_s.min())
    use = workload.cores * workload.demand
    batch = ~job["was_guest"] & (job["state"] == engine.DONE)
    used = float((use * (job["end"] - job["start"]))[batch].sum())
    idle = cluster.machine.total_cores * makespan_s - used
    lent = float(job["lent"].sum())
    others = sum(amount for reason, amount in sampled if reason != "lent")
    scale = (idle - lent) / others if others > 0 else 0.0
    return tuple(
        (reason, (lent if reason == "lent" else amount * scale) / 3600.0) for reason, amount in sampled
    )
