"""One policy over one workload: the cluster left alone, or with the cycle beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from asad.admit import AdmitPolicy
from asad.admit.everyone import Everyone
from asad.admit.sow import mechanism_of
from asad.cycle import Cycle, is_renewal
from asad.defer.at_once import AtOnce
from asad.guard import guard_for
from asad.model import JobLog, Outcome, Snapshot
from asad.place import PlacePolicy
from asad.place.native import Native
from asad.replay.bench import Bench
from asad.replay.contention import load_contention
from asad.replay.policies import LENDING, PLACING, SCHEDULING, STATING
from asad.replay.recorded import RecordedCluster, Workload
from asad.replay.results import ExpertHistory
from asad.replay.stated import Foretold
from asad.replay.watched import ExpertWatch, Managed
from asad.replay.worth import arrays_of, hints_of
from asad.share import SharePolicy
from asad.share.exclusive import Exclusive
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
    foretold: Foretold | None = None
    """The policy, if it plans statements of work."""

    def column(self, name: str) -> NDArray[np.generic]:
        """A column of the simulation, one row a job."""
        return self.cluster.state.job[name]


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


def lend(bench: Bench, name: str, seed: int, run: Run | None = None, what: str | None = None) -> Played:
    """The same cluster with the cycle beside it."""
    held = LENDING.get(name) or PLACING[name]
    gangs = _with_gangs(bench.workload, bench.recorded.jobs) if name in PLACING else None
    cluster = bench.cluster("easy", held, gangs, admission=gangs is not None)
    policy: SharePolicy = Exclusive()
    place: PlacePolicy = Native()
    if name in PLACING:
        place = bench.placing(name)
    else:
        policy = bench.policy(name, load_contention(bench.settings.contention, lending=held), seed)
    names = cluster.workload.job_id

    def record(number: int, snapshot: Snapshot, outcomes: Sequence[Outcome]) -> None:
        if run is not None:
            run.record(number, snapshot.time_s, outcomes, names, host_rows=snapshot.jobs.host)

    guard = guard_for(policy.properties | place.properties)
    cycle = Cycle(cluster, Everyone(), AtOnce(), place, policy, guard, record if run else None)
    watch = ExpertWatch(policy)
    begin = time.perf_counter()
    if not bench.settings.lending:
        cluster.run()
    _drive(bench, cluster, cycle, what or name, watch.look)
    return Played(cluster, time.perf_counter() - begin, cycle.number, cycle.decisions, watch.history())


def _with_gangs(workload: Workload, jobs: JobLog) -> Workload | None:
    """The workload with its arrays and hints, if some of them tell how many components a gang has."""
    if not any("components=" in text for text in jobs.hints):
        return None
    return replace(workload, array=arrays_of(jobs.job_id, jobs.user), hints=hints_of(jobs, ()))


def admit(bench: Bench, name: str, run: Run | None = None) -> Played:
    """The same cluster with a policy of the admit stage in the cycle, and nobody who lends."""
    workload, foretold = bench.workload, None
    if name in STATING:
        assert bench.stated is not None
        jobs = bench.recorded.jobs
        array = arrays_of(jobs.job_id, jobs.user)
        workload = replace(workload, array=array, hints=bench.stated.hints)
        foretold = bench.stated.policy(name, partial(mechanism_of, STATING[name]), bench.application_names)
    cluster = bench.cluster("easy", None, workload, admission=True, gather_arrays=True)
    policy: AdmitPolicy = foretold or bench.admission(name)
    managed = Managed(cluster.workload)
    names = cluster.workload.job_id

    def record(number: int, snapshot: Snapshot, outcomes: Sequence[Outcome]) -> None:
        managed.note(outcomes)
        if run is not None:
            run.record(number, snapshot.time_s, outcomes, names, host_rows=snapshot.jobs.host)

    share = Exclusive()
    guard = guard_for(share.properties, consents=None if foretold is None else foretold.consents)
    cycle = Cycle(cluster, policy, AtOnce(), Native(), share, guard, record)
    begin = time.perf_counter()
    _drive(bench, cluster, cycle, name)
    return Played(
        cluster,
        time.perf_counter() - begin,
        cycle.number,
        cycle.decisions,
        managed=managed,
        foretold=foretold,
    )


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
    policy = bench.deferral(name)
    managed = Managed(workload)
    names = workload.job_id

    def record(number: int, snapshot: Snapshot, outcomes: Sequence[Outcome]) -> None:
        managed.note(outcomes)
        news = [outcome for outcome in outcomes if not is_renewal(outcome)]
        if run is not None and news:
            run.record(number, snapshot.time_s, news, names, host_rows=snapshot.jobs.host)

    share = Exclusive()
    cycle = Cycle(cluster, Everyone(), policy, Native(), share, guard_for(share.properties), record)
    begin = time.perf_counter()
    _drive(bench, cluster, cycle, name)
    return Played(cluster, time.perf_counter() - begin, cycle.number, cycle.decisions, managed=managed)


def _drive(
    bench: Bench, cluster: RecordedCluster, cycle: Cycle, what: str, look: Callable[[], None] | None = None
) -> None:
    """The cycle at every poll until all is over; `look` is called every 256 cycles and at the end."""
    jobs = len(cluster.workload)
    if bench.progress is not None:
        bench.progress(what, 0, jobs)
    wake_s = np.inf
    while cluster.advance(wake_s):
        wake_s = cycle.run_once()
        if cycle.number % 256 == 0:
            if look is not None:
                look()
            if bench.progress is not None:
                bench.progress(what, cluster.ended, jobs)
    if look is not None:
        look()
    if bench.progress is not None:
        bench.progress(what, cluster.ended, jobs)
