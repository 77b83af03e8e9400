"""One policy over one workload: the cluster left alone, or with the cycle beside it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from asad.admit.everyone import Everyone
from asad.admit.sow import mechanism_of
from asad.cycle import Cycle, is_renewal
from asad.defer.at_once import AtOnce
from asad.guard import guard_for
from asad.model import Floats, JobLog, Outcome, ShareCases, Snapshot
from asad.place import PlacePolicy
from asad.place.native import Native
from asad.replay.bench import Bench
from asad.replay.contention import load_contention
from asad.replay.policies import LENDING, PAIRING, PLACING, SCHEDULING, STATING
from asad.replay.recorded import RecordedCluster, Workload
from asad.replay.results import ExpertHistory
from asad.replay.stated import Foretold
from asad.replay.watched import ExpertWatch, Managed
from asad.replay.worth import arrays_of, hints_of
from asad.share import SharePolicy
from asad.share.asax import Asax
from asad.share.exclusive import Exclusive
from asad.share.pool import PoolPolicy
from asad.store.recording import Run


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
        return self.cluster.state.job[name]

    @property
    def done_s(self) -> Floats:
        """(n,) Isolated work that each job got done."""
        job = self.cluster.state.job
        left = np.where(job["killed"], np.maximum(job["left"], 0.0), 0.0)
        return np.asarray(self.cluster.workload.work_s - left)

    @property
    def touched(self) -> NDArray[np.bool_]:
        """(n,) Hosts, guests, and jobs that were admitted, deferred or throttled."""
        job = self.cluster.state.job
        lending: NDArray[np.bool_] = job["was_host"] | job["was_guest"]
        return lending if self.managed is None else lending | self.managed.rows


def leave_alone(bench: Bench, name: str, workload: Workload | None = None, what: str | None = None) -> Played:
    """The cluster under its own scheduler."""
    cluster = bench.cluster(SCHEDULING[name], None, workload)
    jobs = len(cluster.workload)
    begin = time.perf_counter()
    if bench.progress is None or jobs == 0:
        cluster.run()
    else:
        bench.progress(what or name, 0, jobs)  # seen while the first replay compiles
        first, last = float(cluster.workload.submit_s[0]), float(cluster.workload.submit_s[-1])
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
    used = np.maximum(1, np.ceil(workload.cores * workload.demand * FLUID_PARTS)).astype(np.int32)
    poured = replace(
        bench,
        machine=replace(machine, cores=(machine.cores * FLUID_PARTS).astype(np.int32)),
        workload=replace(workload, cores=used, memory_bytes_per_core=np.zeros(len(workload))),
        settings=replace(bench.settings, use_memory=False),
    )
    return leave_alone(poured, "slurm", what="fluid")


def lend(bench: Bench, name: str, seed: int, run: Run | None = None, what: str | None = None) -> Played:
    """The same cluster with the cycle beside it."""
    held = LENDING.get(name) or PLACING[name]
    gangs = _with_gangs(bench.workload, bench.recorded.jobs) if name in PLACING else None
    pooled = name not in PAIRING
    cluster = bench.cluster("easy", held, gangs, admission=gangs is not None, pooled=pooled)
    share: SharePolicy = Exclusive()
    place: PlacePolicy = Native()
    if name in PLACING:
        place = bench.placing(name)
    else:
        share = bench.policy(name, load_contention(bench.settings.contention, lending=held), seed)
    guard = guard_for(share.properties | place.properties)
    cycle = Cycle(cluster, Everyone(), AtOnce(), place, share, guard)
    return _play(bench, cluster, cycle, run, what or name)


def _with_gangs(workload: Workload, jobs: JobLog) -> Workload | None:
    """The workload with its arrays and hints, if some of them tell how many components a gang has."""
    if not any("components=" in text for text in jobs.hints):
        return None
    return replace(workload, array=arrays_of(jobs.job_id, jobs.user), hints=hints_of(jobs, ()))


def admit(bench: Bench, name: str, run: Run | None = None) -> Played:
    """The same cluster with a scheme of the admit stage in the cycle, and nobody who lends."""
    cluster = bench.cluster("easy", None, admission=True, gather_arrays=True)
    share = Exclusive()
    guard = guard_for(share.properties)
    cycle = Cycle(cluster, bench.admission(name), AtOnce(), Native(), share, guard)
    return _play(bench, cluster, cycle, run, name, Managed(cluster.workload))


def plan(bench: Bench, name: str, run: Run | None = None) -> Played:
    """The same cluster with a mechanism for statements of work in the admit stage, and nobody who lends."""
    assert bench.stated is not None
    jobs = bench.recorded.jobs
    workload = replace(bench.workload, array=arrays_of(jobs.job_id, jobs.user), hints=bench.stated.hints)
    cluster = bench.cluster("easy", None, workload, admission=True, gather_arrays=True)
    policy = bench.stated.policy(name, partial(mechanism_of, STATING[name]), bench.application_names)
    share = Exclusive()
    guard = guard_for(share.properties, consents=policy.consents)
    cycle = Cycle(cluster, policy, AtOnce(), Native(), share, guard)
    played = _play(bench, cluster, cycle, run, name, Managed(workload))
    played.foretold = policy
    return played


def put_off(bench: Bench, name: str, run: Run | None = None) -> Played:
    """The same cluster with a policy of the defer stage in the cycle, and nobody who lends or admits."""
    assert bench.deferrable is not None
    jobs = bench.recorded.jobs
    workload = replace(
        bench.workload,
        array=arrays_of(jobs.job_id, jobs.user),
        hints=hints_of(jobs, ()),
        deadline_s=bench.deferrable.deadline_s,
    )
    cluster = bench.cluster("easy", None, workload, admission=True, gather_arrays=True)
    share = Exclusive()
    guard = guard_for(share.properties)
    cycle = Cycle(cluster, Everyone(), bench.deferral(name), Native(), share, guard)
    return _play(bench, cluster, cycle, run, name, Managed(workload))


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
    jobs = len(cluster.workload)
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
    if isinstance(cycle.share, PoolPolicy) and cycle.number:
        played.funnel = _whole_funnel(cluster, cycle.share.funnel())
    if run is not None and isinstance(cycle.share, Asax) and cycle.snapshot is not None:
        played.cases = cycle.share.take_cases(cycle.snapshot)
    return played


def _whole_funnel(
    cluster: RecordedCluster, sampled: Sequence[tuple[str, float]]
) -> tuple[tuple[str, float], ...]:
    """Core-hours by reason, of all that batch jobs left idle; `sampled` tells it at the cycles.

    What was lent is known exactly, and so is the total; what the cycles missed in between is divided by what they saw.
    """
    job, workload = cluster.state.job, cluster.workload
    if len(workload) == 0:
        return ()
    makespan_s = float(job["end"].max() - workload.submit_s.min())
    use = workload.cores * workload.demand
    batch = ~job["was_guest"]
    used = float((use * (job["end"] - job["start"]))[batch].sum())
    idle = cluster.machine.total_cores * makespan_s - used
    lent = float(job["lent"].sum())
    others = sum(amount for reason, amount in sampled if reason != "lent")
    scale = (idle - lent) / others if others > 0 else 0.0
    return tuple(
        (reason, (lent if reason == "lent" else amount * scale) / 3600.0) for reason, amount in sampled
    )
