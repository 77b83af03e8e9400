"""The one loop. The daemon, `asactl replay` and every benchmark run this very cycle over their cluster.

The numbered steps are the table of contents. A cycle sees one snapshot; nothing in steps 3 to 7 touches the world.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Literal

from asad.admit import AdmitPolicy
from asad.decisions import CoAllocate, Decision, Defer, ExtendLimit, Outcome, SetThrottle, Start, vetoed
from asad.defer import DeferPolicy
from asad.guard import Guard
from asad.limits import extensions
from asad.model import Finished, Snapshot
from asad.place import PlacePolicy
from asad.port import Cluster
from asad.share import SharePolicy
from asad.two_lenders import Lenders, TwoLenders, both_lend, promise

DEEDS = {
    "co-allocate": ("job is offered a place as a guest", "jobs are offered a place as guests"),
    "set-share": ("share changes", "shares change"),
    "set-quota": ("quota changes", "quotas change"),
    "extend-limit": ("limit is extended", "limits are extended"),
    "withdraw": ("offer is withdrawn", "offers are withdrawn"),
    "admit": ("job is admitted", "jobs are admitted"),
    "decline": ("job is not admitted", "jobs are not admitted"),
    "defer": ("job is deferred", "jobs are deferred"),
    "start": ("job may start", "jobs may start"),
    "set-throttle": ("array is throttled", "arrays are throttled"),
    "set-memory": ("memory limit changes", "memory limits change"),
    "evict": ("job is evicted", "jobs are evicted"),
}
"""What a kind of decision does, of one and of many."""
PAUSED = "paused", "asad was paused while this was decided"
"""What holds back, like a property of the guard, whatever was decided before somebody paused the daemon; and why."""


@dataclass(slots=True)
class Cycle:
    """Stages by name around one cluster; `record` is given what became of every decision."""

    cluster: Cluster
    admit: AdmitPolicy
    defer: DeferPolicy
    place: PlacePolicy
    share: SharePolicy
    guard: Guard
    record: Callable[[int, Snapshot, Sequence[Outcome]], None] | None = None
    mode: Literal["observe", "advise", "enforce"] = "enforce"
    """`observe` only learns, `advise` decides and records too, `enforce` acts."""
    paused: bool = False
    """Nothing new is lent, admitted or deferred; limits move and hosts under pressure are relieved as ever.

    May be set from another thread, in the middle of a cycle too."""
    keep: Callable[[], None] | None = None
    """Called before anything is acted on, so that what the policies have committed to outlives the process."""
    number: int = 0
    decisions: int = 0
    last_s: float = -inf
    limits_s: float = inf
    """When limits must be looked at again."""
    snapshot: Snapshot | None = None
    """What the last cycle saw, who had ended, and what became of its decisions."""
    finished: Finished | None = None
    outcomes: Sequence[Outcome] = ()
    lenders: Lenders | None = None
    """What each policy that lends saw of the last cycle, where there are two."""
    _two: TwoLenders = field(default_factory=TwoLenders)

    def run_once(self) -> float:
        """One cycle over what the cluster shows now; when the policies want the next one at the latest (s).

        Raises ClusterError if the cluster cannot be asked; the next cycle then goes on from where this one began.
        """
        # 1. observe: one snapshot, and the jobs that have ended since the last
        self.number += 1
        snapshot = self.cluster.snapshot()
        finished = self.cluster.finished(self.last_s)
        # only once both have answered: who ended during a look that failed is learned of in the next
        self.last_s = snapshot.time_s
        self.snapshot, self.finished, self.outcomes = snapshot, finished, ()
        # 2. learn from what has happened since, before anything new is decided
        self.admit.learn(snapshot, finished)
        self.defer.learn(snapshot, finished, self._held_elsewhere())
        self.lenders = self._two.see(snapshot) if both_lend(self.place, self.share) else None
        for_place, for_share = self._shown(snapshot)
        self.place.learn(for_place, finished)
        self.share.learn(for_share, finished)
        if self.mode == "observe":
            return self._wake_s()
        # what the guard takes back comes before all that is asked of it
        relief = self.guard.relieve(snapshot)
        paused = self.paused
        decisions = self._paused(snapshot) if paused else self._decide(snapshot)
        if relief or decisions:
            # 7. guard: the last word on every decision
            allowed, outcomes = self.guard.check(snapshot, decisions, relief)
            if self.paused and not paused:
                # somebody did so while it was decided, which may have taken minutes; relief comes first
                decided, allowed = allowed[len(relief) :], allowed[: len(relief)]
                for decision in decided:
                    if _goes_on(snapshot, decision):
                        allowed.append(decision)
                    else:
                        outcomes.append(vetoed(decision, *PAUSED))
            # 8. act
            if self.mode == "enforce":
                if self.keep is not None:
                    self.keep()
                outcomes += self.cluster.apply(allowed)
            else:
                outcomes += [Outcome(decision, False, "advise") for decision in allowed]
            # vetoes and refusals too: a stage must not count on a hold or an offer that was not made
            self.admit.on_outcomes(outcomes)
            self.defer.on_outcomes(outcomes)
            self.decisions += sum(outcome.done for outcome in outcomes)
            self.outcomes = outcomes
            if any(outcome.done and isinstance(outcome.decision, CoAllocate) for outcome in outcomes):
                self._look_soon(snapshot.time_s)
            # 9. record: only a cycle that decided something leaves a trace
            if self.record is not None:
                self.record(self.number, snapshot, outcomes)
        return self._wake_s()

    def _wake_s(self) -> float:
        """The earliest time at which a stage wants to look again."""
        stages = self.admit, self.defer, self.place, self.share
        return min(self.limits_s, *(policy.wake_s() for policy in stages))

    def _look_soon(self, now_s: float) -> None:
        """Look at limits at the next poll: what a new guest takes of others shows there for the first time, and an
        empty queue calls for no look before they may be at their limits."""
        for policy in (self.place, self.share):
            if policy.extends_limits:
                self.limits_s = min(self.limits_s, now_s + policy.poll_s)

    def _shown(self, snapshot: Snapshot) -> tuple[Snapshot, Snapshot]:
        """The snapshot as the policies of place and share see it: each its own guests, where both lend."""
        return (snapshot, snapshot) if self.lenders is None else (self.lenders.place, self.lenders.share)

    def lends_to(self, row: int) -> str:
        """Name of the policy that holds the guest in a row of the last snapshot, or would make it one."""
        if self.lenders is not None:
            return self.place.name if self.lenders.gangs[row] else self.share.name
        return self.share.name if self.share.held is not None else self.place.name

    def _held_elsewhere(self) -> Callable[[Snapshot, int], bool] | None:
        """Whose start is a matter of admission; None if nobody's is. One stage alone decides about a job."""
        return self.admit.decides_start if self.admit.promises else None

    def _decide(self, snapshot: Snapshot) -> list[Decision]:
        # 3. admit: which jobs may run, when, how wide
        decisions = list(self.admit.decide(snapshot))
        # 4. defer: which deferrable jobs start now; whose start admission decides is left to it
        decisions += self.defer.decide(snapshot)
        # lending never kills: before anything is lent, limits of those who have lent move
        decisions += self._extensions(snapshot)
        for_place, for_share = self._shown(snapshot)
        # 5. place: which nodes, and how much of them
        placed = self.place.decide(for_place)
        # 6. share: how much of running allocations is lent, and to whom
        if self.lenders is not None:
            promise(for_share, placed)  # what was offered just now is not there to be lent once more
        return [*decisions, *placed, *self.share.decide(for_share)]

    def _paused(self, snapshot: Snapshot) -> list[Decision]:
        """Nobody waits, as far as those see who lend, and of what they decide only limits move.

        Who was admitted keeps what it has: arrays may grow and jobs may start, nothing more is held back.
        """
        decisions = [*self.admit.decide_while_paused(snapshot), *self.defer.decide_while_paused(snapshot)]
        # without a queue no policy that lends makes an offer, and none has to know of pauses
        for_place, for_share = (replace(seen, queue=seen.queue[:0]) for seen in self._shown(snapshot))
        # they go on to account for what is idle
        lent = (*self.place.decide(for_place), *self.share.decide(for_share))
        decisions += [decision for decision in lent if isinstance(decision, ExtendLimit)]
        return decisions + self._extensions(snapshot)

    def _extensions(self, snapshot: Snapshot) -> list[Decision]:
        """Limits that lending has used up, in the name of the policy that lends; where two do, in that of the share
        policy for batch jobs, and in that of who holds them for guests."""
        decisions: list[Decision] = []
        self.limits_s = inf
        for_place, for_share = self._shown(snapshot)
        if self.lenders is not None:
            for_place = replace(for_place, running=snapshot.running[:0])
        for policy, seen in ((self.place, for_place), (self.share, for_share)):
            if policy.extends_limits:
                moved, again_s = extensions(seen, policy.name, policy.poll_s)
                decisions += moved
                self.limits_s = min(self.limits_s, again_s)
        return decisions

    def sentence(self) -> str:
        """The last cycle for an operator: what it saw and what it did."""
        if self.snapshot is None:
            return "no cycle yet"
        seen, jobs = self.snapshot, self.snapshot.jobs
        held = int(jobs.cores[seen.running].sum())
        text = (
            f"cycle {self.number}: {_count(len(seen.running), 'job')} on {held} of "
            f"{_count(len(seen.core_owner), 'core')}, {seen.waiting} waiting, {_count(len(seen.guests), 'guest')}; "
        )
        deferred = self.defer.words()
        if deferred:
            text += f"{deferred}; "
        if self.mode == "observe":
            return text + "only observed"
        would = self.mode == "advise"
        kinds = Counter(
            outcome.decision.kind
            for outcome in self.outcomes
            if (outcome.done or (would and outcome.reason == "advise")) and not is_renewal(outcome)
        )
        deeds = [
            f"{kinds[kind]} {one if kinds[kind] == 1 else many}"
            for kind, (one, many) in DEEDS.items()
            if kinds[kind]
        ]
        vetoes = Counter(outcome.veto for outcome in self.outcomes if outcome.veto)
        if vetoes:
            names = ", ".join(f"{name} {number}" for name, number in sorted(vetoes.items()))
            deeds.append(f"{sum(vetoes.values())} vetoed ({names})")
        refused = sum(
            not outcome.done and not outcome.veto and outcome.reason != "advise" for outcome in self.outcomes
        )
        if refused:
            deeds.append(f"{refused} refused by the cluster")
        what = ", ".join(deeds) or "nothing to do"
        return (
            text
            + ("paused: " if self.paused else "")
            + (f"advised only: {what}" if would and deeds else what)
        )


def _goes_on(snapshot: Snapshot, decision: Decision) -> bool:
    """Would a paused daemon do it too? Limits move, jobs start and arrays grow."""
    if isinstance(decision, SetThrottle):
        array = int(snapshot.jobs.array[decision.job])
        throttle = int(snapshot.arrays.throttle[array]) if array >= 0 else 0
        return decision.tasks == 0 or 0 < throttle < decision.tasks
    return isinstance(decision, ExtendLimit | Start)


def is_renewal(outcome: Outcome) -> bool:
    """A deferral that only goes on as it was: nothing that anybody wants to read of."""
    return isinstance(outcome.decision, Defer) and outcome.decision.cause.detail.get("renewal") is True


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
