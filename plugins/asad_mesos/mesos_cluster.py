"""The port `Cluster` over Mesos: jobs of our framework on the agents that it has seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from asad.cluster.bounded_lists import Ledger, Sentences
from asad.decisions import (
    Admit,
    CoAllocate,
    Decision,
    Decline,
    Defer,
    Evict,
    ExtendLimit,
    Outcome,
    SetQuota,
    SetShare,
    SetThrottle,
    Start,
    Withdraw,
)
from asad.errors import ClusterError, UsageError
from asad.model import Finished, Json, Snapshot
from asad.port import NodeLink
from asad_mesos.agent_nodes import Nodes
from asad_mesos.events import Cancelled, Held, Prioritised, Scaled, TornDown
from asad_mesos.framework_state import job_of
from asad_mesos.job_requests import answer
from asad_mesos.job_spec import Spec
from asad_mesos.job_status import status_of, story_of
from asad_mesos.lending_on_mesos import Lending
from asad_mesos.scaling import scaled
from asad_mesos.session import Session
from asad_mesos.settings import Settings
from asad_mesos.submission_limits import Usage, check, usage_of
from asad_mesos.unit_rows import INF, Rows
from asad_mesos.unit_snapshot import Assembly
from asad_mesos.view import Unit, unit_named, units_of

FIRST_WAIT_S = 15.0
SILENCE_S = 30.0
"""Without a master for longer than this nothing is shown, and so no quota is renewed."""


class MesosCluster:
    """Gangs and elastic jobs as jobs, agents as nodes. Arrays of a snapshot are views, true until the next one."""

    def __init__(
        self,
        settings: Settings,
        *,
        nodes: NodeLink,
        state_dir: Path,
        clock: Callable[[], float],
        engine: Session | None = None,
    ) -> None:
        """Raises ConfigError if pymesos is not installed, ClusterError if the journal cannot be used."""
        self._link, self._settings = nodes, settings
        self.engine = engine or Session(settings, state_dir, clock)
        self._rows, self._nodes = Rows(), Nodes()
        self._assembly = Assembly(settings, nodes, self._rows, self._nodes)
        self._lending = Lending(self.engine, nodes, self._rows, self._nodes)
        self.applications: Sequence[str] = self._assembly.applications
        """Names of the codes in `Jobs.application`: user/name/size."""
        self.ledger, self.notices = Ledger(), Sentences()
        self._deferred: set[str] = set()
        """Jobs that admission has deferred."""
        self._snapshot: Snapshot | None = None
        self._reached_s = -INF

    # ------------------------------------------------------------------------------------------------------ lifecycle

    def sentence(self) -> str:
        """One line about the way to Mesos and what it shows."""
        engine = self.engine
        with engine.lock:
            framework = engine.framework
            running = sum(1 for job in framework.jobs.values() if job.tasks)
            text = (
                f"Mesos framework {framework.framework_id or '(not registered yet)'}: "
                f"{len(self._nodes.agents)} agents, {running} jobs run and {len(framework.jobs) - running} wait"
            )
            if framework.agents.offers:
                text += f", {len(framework.agents.offers)} offers withheld"
        return text if engine.subscribed else f"{text}; not connected ({engine.trouble or 'no answer yet'})"

    def recover(self) -> list[str]:
        """At start: subscribe with the framework id of before; nothing is undone, all that runs is found again."""
        self.engine.start()
        with self.engine.lock:
            known = self.engine.framework
            if not known.framework_id or not known.jobs:
                return []
            return [
                f"framework {known.framework_id}: {len(known.jobs)} jobs, {len(known.tasks)} tasks are ours"
            ]

    def release(self) -> list[str]:
        """Lift every quota and undo what admission has changed; one sentence each. Jobs go on."""
        self._rows.forget_shares()
        self._link.grant({})
        return self.give_back()

    def give_back(self, *, begin: bool = True) -> list[str]:
        """Jobs that wait have their own place again, and with `begin` may start; one sentence for each."""
        changed: dict[str, list[str]] = {}
        with self.engine.lock:
            for job in list(self.engine.framework.jobs.values()):
                if job.priority:
                    changed[job.job_id] = ["place"]
                    self.engine.do(Prioritised(job.job_id, 0.0))
                if begin and job.hold_until_s > self.engine.now_s() and job.job_id in self._deferred:
                    changed.setdefault(job.job_id, []).append("begin")
                    self.engine.do(Held(job.job_id, -INF))
            if begin:
                self._deferred.clear()
        return [f"{job}: it has its own {' and '.join(names)} again" for job, names in changed.items()]

    def close(self) -> None:
        """Let go of the master. Tasks go on; Mesos keeps them for `failover_timeout_s`."""
        self.engine.close()

    # --------------------------------------------------------------------------------------------------------- jobs

    def submit(self, spec: Spec, *, bounded: bool = False) -> str:
        """Queue a job, durably; its id (`m17`). May be called from any thread.

        Raises ClusterError if it cannot be kept, and if `bounded` OverQuota if there is no room for it.
        """
        with self.engine.lock:
            if bounded:
                known = self.engine.framework
                mine = known.usage.get(spec.uid, Usage())
                check(spec, usage_of(spec, spec.to_json()), mine, known.usage_of_all, self._settings)
            (job,) = self.engine.submit(spec)
        return job

    def cancel(self, job: str, why: str) -> bool:
        """End a job: its tasks are killed with grace. False if it has ended already. Raises UsageError if unknown."""
        with self.engine.lock:
            alive = job in self.engine.framework.jobs
            self.engine.do(Cancelled(job, why))
        return alive

    def hold(self, job: str, until_s: float) -> None:
        """A queued job is not placed before then (−inf: it may be placed now). Raises UsageError if unknown."""
        self.engine.do(Held(job, until_s))

    def status(self, job: str = "") -> list[dict[str, Any]]:
        """Of one job, or of the last that have ended and all that have not: `job`, `state` (queued, launching, running,
        stopping, completed, failed, cancelled, timeout), `why`, `attempt`, `retries`, `spec`, times, of each task that
        is there id, group, index, state and host, and of the last that have ended the same with `exit`.
        Raises UsageError if the job is unknown."""
        with self.engine.lock:
            known = self.engine.framework
            found = [known.job(job)] if job else [*known.ended.values(), *known.jobs.values()]
            return [status_of(one, known) for one in found]

    def story(self, job: str) -> Json:
        """What became of a job, or of one that a unit (`m1_3`) belongs to, and what it waits for; None if there is no
        such job. May be called from any thread."""
        with self.engine.lock:
            known = self.engine.framework
            found = known.jobs.get(job_of(job)) or known.ended.get(job_of(job))
            if found is None:
                return None
            story = story_of(found, known, self.engine.now_s())
        if story["waits"] and not self.engine.subscribed:
            story["waits"] = f"Mesos is not connected: {self.engine.trouble or 'no answer yet'}"
        return cast(Json, story)

    def teardown(self, why: str) -> tuple[int, int]:
        """End the framework with all its jobs and tasks, for good; how many there were.

        It is done when a master has confirmed it, which may be later; until then no job is taken. Whoever subscribes
        then is a new framework.
        """
        with self.engine.lock:
            known = self.engine.framework
            found = len(known.jobs), len(known.tasks)
            self.engine.do(TornDown(why))
        return found

    def request(self, verb: str, arguments: Mapping[str, Json], user: str, uid: int) -> Json:
        """The answer to `submit`, `cancel`, `tasks` or `teardown`, asked by that user. Raises AsadError."""
        return answer(self, verb, arguments, user, uid)

    # --------------------------------------------------------------------------------------------------------- port

    def snapshot(self) -> Snapshot:
        """The framework as it is now; hands over the leases that were decided.

        Raises ClusterError when no master has taken us for a while: then nothing is renewed, and quotas run out.
        """
        engine = self.engine
        if not engine.subscribed and self._snapshot is None:
            engine.wait(FIRST_WAIT_S)
        with engine.lock:
            now_s = engine.now_s()
            if engine.subscribed:
                self._reached_s = now_s
            elif now_s - self._reached_s > SILENCE_S:
                raise ClusterError(
                    f"no Mesos master: {engine.trouble or 'none has answered'}; is [mesos] master right? "
                    "asactl doctor looks closer"
                )
            snapshot = self._assembly.snapshot(engine.framework, now_s, self._deferred)
            self.notices.add(engine.framework.sentences)
            engine.framework.sentences.clear()
        self._snapshot = snapshot
        self._grant(snapshot)
        return snapshot

    def apply(self, decisions: Sequence[Decision]) -> Iterable[Outcome]:
        """Do what was decided on the last snapshot. A decision that came too late is answered, never raised."""
        outcomes = []
        for decision in decisions:
            with self.engine.lock:
                try:
                    why = self._apply(decision)
                except (UsageError, ClusterError) as error:
                    why = str(error)
            outcomes.append(Outcome(decision, not why, why))
        if self._snapshot is not None and any(outcome.done for outcome in outcomes):
            self._grant(self._snapshot)
        return outcomes

    def finished(self, since_s: float) -> Finished:
        """The units that have ended and were not reported yet, whatever `since_s`. Only those that ran are."""
        with self.engine.lock:
            ended, self.engine.framework.endings = self.engine.framework.endings, []
        rows, jobs = self._rows, self._rows.jobs
        known = [ending for ending in ended if ending.unit in rows.of]
        kept = [rows.kept(ending.unit) for ending in known]
        at = np.array([rows.of[ending.unit] for ending in known], dtype=np.int32)
        found = Finished(
            row=at,
            end_s=np.array([ending.end_s for ending in known]),
            run_s=np.array([max(1e-3, ending.end_s - ending.start_s) for ending in known]),
            lost_s=jobs.lost_s[at].copy(),
            cpu_fraction=np.array([one.cpu_fraction for one in kept]),
            completed=np.array([ending.completed for ending in known], dtype=np.bool_),
        )
        users = list(self._assembly.user_codes)  # they stand for accounts, which Mesos does not know
        for ending, one, row in zip(known, kept, at.tolist(), strict=True):
            lent_core_s = float(rows.extra.lent_core_s[row])
            if lent_core_s > 0 or one.host:
                user, extended_s = users[int(jobs.user[row])], jobs.extended_s[row]
                self.ledger.enter(ending.end_s, user, ending.unit, bool(one.host), lent_core_s, extended_s)
            rows.drop(row)
        return found

    def _grant(self, snapshot: Snapshot) -> None:
        self._link.grant(self._lending.leases(snapshot, self._assembly.units))

    # ------------------------------------------------------------------------------------------------------- acting

    def _apply(self, decision: Decision) -> str:
        """Do it; why not, or the empty string. Raises UsageError for what the framework refuses."""
        if self._snapshot is None:
            return "there is no snapshot yet"
        match decision:
            case CoAllocate():
                return self._lending.start_beside(self._snapshot, decision)
            case SetShare():
                return self._lending.set_share(decision)
            case SetQuota():
                return self._lending.set_quota(self._snapshot, decision)
            case ExtendLimit():
                return self._lending.extend(decision)
            case Withdraw():
                return "nothing is offered to it"
            case Evict() | SetThrottle() | Admit() | Decline() | Defer() | Start():
                unit = unit_named(self._rows.name(decision.job), self.engine.framework)
                if isinstance(decision, Evict):
                    return self._evict(decision, unit)
                if isinstance(decision, SetThrottle):
                    return self._throttle(decision, unit)
                return self._admit(decision, unit)
        return f"Mesos does not know how to {decision.kind or type(decision).__name__}"

    def _evict(self, decision: Evict, unit: Unit | None) -> str:
        if unit is None or not unit.tasks:
            return "it does not run any more"
        if unit.group >= 0:
            return "it is a task of an elastic job, which is made narrower instead"
        if decision.how != "cancel":
            return f"nobody could release it from {decision.how}: Mesos has no queue of its own; cancel it is"
        self.engine.do(Cancelled(unit.job.job_id, f"evicted: {decision.cause.reason}"))
        return ""

    def _throttle(self, decision: SetThrottle, unit: Unit | None) -> str:
        if unit is None:
            return "it has ended"
        if unit.group < 0:
            return "it is no array: a gang starts whole"
        self.engine.do(Scaled(unit.job.job_id, scaled(unit.job.spec, unit.group, decision.tasks)))
        return ""

    def _admit(self, decision: Admit | Decline | Defer | Start, unit: Unit | None) -> str:
        # what runs of an array may have others of it waiting
        array = () if unit is None else units_of(unit.job)
        if unit is None or all(other.tasks for other in array if other.group == unit.group):
            return "it does not wait any more"
        job = unit.job.job_id
        match decision:
            case Admit():
                self.engine.do(Prioritised(job, 1.0))
            case Defer():
                if not math.isfinite(decision.until_s):
                    return "there is no such time"
                if decision.until_s <= self.engine.now_s():
                    return "that time has passed"
                self.engine.do(Held(job, decision.until_s))
                self._deferred.add(job)
            case Start():
                self.engine.do(Held(job, -INF))
                self._deferred.discard(job)
        return ""
