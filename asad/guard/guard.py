"""The guard itself: the properties in their order, the check of a cycle, and what it takes back by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asad.config import GuardSettings
from asad.decisions import Cause, Decision, ExtendLimit, Outcome, SetQuota, SetShare, Withdraw, vetoed
from asad.guard import change_rules, loan_rules
from asad.guard.look import Look, Property
from asad.model import Snapshot

REPLAY = GuardSettings(most_lease_s=math.inf)
"""Of a replay without a configuration: the daemon's own, but for how long a job may be held back without a further
look. That bounds what a daemon leaves behind that died, and nobody dies in a replay."""

LEAST_QUOTA = 0.05
"""Part of its cores that a guest keeps which gives way, so that it goes on."""

PROPERTIES: dict[str, Property] = {
    one.name: one
    for one in (
        loan_rules.waits,
        loan_rules.whole_nodes,
        loan_rules.one_guest_a_core,
        loan_rules.memory,
        loan_rules.pool,
        loan_rules.host_floor,
        loan_rules.better_off,
        loan_rules.time_to_extend,
        loan_rules.opted_out,
        loan_rules.components,
        loan_rules.share_group,
        loan_rules.memory_bandwidth,
        loan_rules.happiness_floor,
        loan_rules.pressure,
        loan_rules.node_share_cap,
        loan_rules.guests_cap,
        change_rules.one_change,
        change_rules.memory_floor,
        change_rules.latest_end,
        change_rules.still_waits,
        change_rules.throttle_at_least_one,
        change_rules.most_defer,
        change_rules.never_beyond_deadline,
        change_rules.short_lease,
        change_rules.idle_cores,
        change_rules.eviction_consented,
    )
}
"""By name, in the order in which they are asked: the first that is broken is the veto."""

ALWAYS = frozenset(name for name, one in PROPERTIES.items() if one.binds_all)
"""Properties that bind every policy, whether it names them or not."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The properties in force, and their settings."""

    properties: tuple[str, ...]
    settings: GuardSettings = REPLAY
    memory_loss: float = 0.0
    """What calibration says of two memory-bound jobs, see `Look`."""
    consents: Mapping[str, str] = field(default_factory=dict)
    """Who may be evicted and how, see `Look`; it may change between two checks."""
    poll_s: float = 30.0
    """From the beginning of one cycle to that of the next."""

    def check(
        self, snapshot: Snapshot, decisions: Sequence[Decision], relief: Sequence[Decision] = ()
    ) -> tuple[list[Decision], list[Outcome]]:
        """The decisions that may be done, `relief` first, and a vetoed outcome for each of the others.

        `relief` is what `relieve` decided for this snapshot; nothing is vetoed of it.
        """
        look = Look(snapshot, self.settings, [], self.memory_loss, self.consents, decisions, self.poll_s)
        for decision in relief:
            look.allow(decision)
        vetoes: list[Outcome] = []
        about: dict[str, list[tuple[str, Callable[[Look, Any], str]]]] = {}
        for decision in decisions:
            # shortened rather than vetoed: for a host that lent a part is better than nothing
            if isinstance(decision, ExtendLimit):
                decision = change_rules.shortened(look, decision)
            if decision.kind not in about:
                held = [(name, PROPERTIES[name]) for name in self.properties]
                about[decision.kind] = [
                    (name, one.why_not) for name, one in held if isinstance(decision, one.kinds)
                ]
            for name, why_not in about[decision.kind]:
                why = why_not(look, decision)
                if why:
                    vetoes.append(vetoed(decision, name, why))
                    break
            else:
                look.allow(decision)
        return look.allowed, vetoes

    def relieve(self, snapshot: Snapshot) -> list[Decision]:
        """What is taken back whatever the policy says: from guests beside hosts under pressure, and stale offers."""
        jobs, settings = snapshot.jobs, self.settings
        relief: list[Decision] = []
        running, guests = snapshot.running, snapshot.guests
        pressed = running[jobs.pressure[running] > settings.pressure]  # never of NaN
        if len(pressed) and len(guests):
            hosts = jobs.host[guests]
            squeezed = (hosts >= 0) & (jobs.pressure[hosts] > settings.pressure) & ~(jobs.share[guests] <= 0)
            # those of pools have no share that could be taken: `_squeeze` sets their quota
            squeezed &= np.isnan(jobs.demand[guests])  # of pairs
            for guest in guests[squeezed].tolist():
                host = int(jobs.host[guest])
                waited = f"its host {jobs.job_id[host]} waited for CPU {jobs.pressure[host]:.0%} of the time"
                relief.append(SetShare(Cause("guard", waited), guest, 0.0))
            relief += self._squeeze(snapshot)
        if len(snapshot.queue):
            offered = jobs.offered_s[snapshot.queue]
            for guest in snapshot.queue[~np.isnan(offered)].tolist():
                waited_s, host = snapshot.time_s - float(jobs.offered_s[guest]), int(jobs.host[guest])
                if waited_s > settings.offer_patience_s:
                    why = f"the offer was not taken for {waited_s:.0f} s"
                elif host >= 0 and jobs.pressure[host] > settings.pressure:
                    why = f"its host {jobs.job_id[host]} waits for CPU itself"
                else:
                    continue
                relief.append(Withdraw(Cause("guard", why), guest))
        return relief

    def _squeeze(self, snapshot: Snapshot) -> list[Decision]:
        """On each node where a host is under pressure the newest guest that draws from its pool gives way."""
        jobs = snapshot.jobs
        look = Look(snapshot, self.settings)
        squeezed: dict[int, tuple[int, str]] = {}
        for node, guests in look.guests_on.items():
            pooled = [guest for guest in guests if not math.isnan(jobs.demand[guest])]
            owners = set(snapshot.core_owner[look.first[node] : look.first[node + 1]].tolist()) - {-1}
            pressed = [host for host in sorted(owners) if jobs.pressure[host] > self.settings.pressure]
            if pooled and pressed:
                newest = max(pooled, key=lambda guest: (float(jobs.start_s[guest]), guest))
                host = pressed[0]
                waited = f"job {jobs.job_id[host]} waited for CPU {jobs.pressure[host]:.0%} of the time"
                # on several such nodes it gives way once: its quota is set on all its nodes
                squeezed.setdefault(newest, (node, waited))
        relief: list[Decision] = []
        for guest, (node, waited) in squeezed.items():
            nodes = look.nodes_of[guest]
            cores = [
                int((snapshot.core_guest[look.first[n] : look.first[n + 1]] == guest).sum()) for n in nodes
            ]
            cause = Cause("guard", f"on node {snapshot.machine.node_names[node]} {waited}")
            relief.append(SetQuota(cause, guest, tuple(nodes), tuple(LEAST_QUOTA * count for count in cores)))
        return relief


def guard_for(
    properties: frozenset[str],
    settings: GuardSettings = REPLAY,
    memory_loss: float = 0.0,
    consents: Mapping[str, str] | None = None,
    poll_s: float = 30.0,
) -> Guard:
    """A guard that enforces `properties` and those of `ALWAYS`, in the order of `PROPERTIES`.

    `memory_loss` is the part of its pace in [0, 1] that a memory-bound host loses beside a memory-bound guest;
    `consents` says who agreed to be evicted, by number of the job, and is looked at anew in every check; `poll_s` is
    from one cycle to the next.

    Raises KeyError for an unknown name.
    """
    unknown = properties - PROPERTIES.keys()
    if unknown:
        raise KeyError(f"unknown properties: {sorted(unknown)}")
    names = tuple(name for name in PROPERTIES if name in properties | ALWAYS)
    return Guard(names, settings, memory_loss, {} if consents is None else consents, poll_s)
