"""The offers that are withheld, in one pool that is dealt out anew each time: job after job in one total order.

What the first job that does not fit yet could use is kept for it, later jobs get what is left. No job owns an offer, so
two halves of gangs cannot wait for each other within the framework; and every offer is returned after `hold_s`, so
that they cannot with other frameworks either. A guest is launched out of the same pool, on agents that were named for
it. No I/O, no clock, no chance.
"""

from __future__ import annotations

import math
import zlib
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.errors import UsageError
from asad_mesos.agent_offers import thousandths
from asad_mesos.beside_hosts import BesideHosts
from asad_mesos.events import Beside
from asad_mesos.framework_state import QUEUED, Job, State
from asad_mesos.master_calls import Call
from asad_mesos.offer_replies import OfferReplies
from asad_mesos.placing import Placed, Placing, wants
from asad_mesos.settings import Settings

PASS_S = 0.05
"""The pool is dealt out no more often than this, however offers trickle in."""
HOLD_MARGIN = 0.2
"""Offers are returned this part of `hold_s` before the bound (at most `HOLD_MARGIN_S`): a call takes its time."""
HOLD_MARGIN_S = 2.0
HOLD_SPREAD = 0.5
"""By up to this part they are returned earlier, differently each time."""
PASS_TASKS = 4000
"""No more tasks than this are launched at once."""
REVIVE_S = 1.0


class Miss(NamedTuple):
    """A job for which the offers did not suffice."""

    fit: int
    """Tasks for which there was room, behind the jobs before it."""
    needed: int
    agents: int
    """So many agents have their offers withheld for it."""


class Pool:
    """Deals out what `state.agents` has of offers: launches are noted in the state, and become calls."""

    def __init__(self, state: State, settings: Settings, calls: list[Call]) -> None:
        """`calls` is where calls for the master are put."""
        self._state, self._settings, self._calls = state, settings, calls
        self.placing = Placing(state, thousandths(settings.executor_memory_mb))
        self.replies = OfferReplies(state, settings, calls)
        self.guests = BesideHosts(state, settings, self.placing, self.replies)
        self.gathers = ""
        """The first job that offers are withheld for."""
        self._dirty = self._revive = False
        self._passed_s = self._revived_s = -math.inf
        self._rounds = 0
        """How often offers were returned because they had been withheld for long."""
        self._misses: dict[str, Miss] = {}
        """By job: why it was not launched when the pool was dealt out last."""

    def changed(self) -> None:
        """There is something to be dealt out, or somebody else wants it."""
        self._dirty = True

    def wake(self) -> None:
        """Somebody wants offers: those that were declined before too."""
        self._dirty = self._revive = True

    def start_guest(self, event: Beside, now_s: float) -> None:
        """Launch a guest beside its host. Raises UsageError that says why it cannot be, now or at all."""
        if why := self.guests.start(event, now_s):
            self._revive = True
            raise UsageError(why)

    def why_not(self, job: Job, now_s: float) -> str:
        """Why a job that waits has not been launched; empty for one that wants nothing."""
        if job.hold_until_s > now_s:
            return f"it is held for {job.hold_until_s - now_s:.0f} s more"
        if not wants(job, now_s):
            return "it is scaled to no tasks" if job.state == QUEUED else ""
        if self.placing.hopeless(job):
            return "it needs more than all agents that were seen have"
        if not self._state.agents.offers:
            return "the master offers nothing just now"
        miss = self._misses.get(job.job_id)
        if miss is None:
            return f"its turn has not come: the first {self._settings.depth} jobs that wait for offers are looked at"
        first = self.gathers if self.gathers != job.job_id else ""
        behind = f", behind {first}, which comes before it" if first else ""
        kept = (
            f"those of {miss.agents} agent{'s' if miss.agents > 1 else ''} are" if miss.agents else "none is"
        )
        return f"{miss.fit} of {miss.needed} tasks fit into the offers{behind}; {kept} withheld for it"

    def return_overdue(self, now_s: float) -> None:
        """Decline what has been withheld for as long as it may be."""
        hold_s = self._settings.hold_s
        bound_s = hold_s - min(HOLD_MARGIN * hold_s, HOLD_MARGIN_S)
        # were it always as long, two frameworks with half a gang each could change places for ever
        chance = zlib.crc32(f"{self._state.framework_id} {self._rounds}".encode()) / 2**32
        bound_s *= 1.0 - HOLD_SPREAD * chance
        oldest_first = self._state.agents.offers.items()
        due = [
            offer_id for offer_id, _ in takewhile(lambda held: now_s - held[1][1] >= bound_s, oldest_first)
        ]
        if due:
            self._rounds += 1
            self.replies.decline(due, self._settings.refuse_s, now_s)
            self._revive = True
            self._revived_s = now_s + self._settings.refuse_s  # others shall have their turn first

    def revive(self, now_s: float) -> None:
        """Have the master offer again what was declined, if somebody wants it and it is time to."""
        if not self._revive or now_s - self._revived_s < REVIVE_S:
            return
        self._revive = False
        self._revived_s = now_s
        if any(wants(job, now_s) for *_, job in self._state.listed()):
            self._calls.append({"type": "REVIVE"})

    def deal(self, now_s: float, *, at_once: bool) -> None:
        """Deal the pool out, job after job; launch what fits, keep what a job gathers, decline the rest.

        Only if something has changed, and but for `at_once` not too often.
        """
        if not self._dirty or (not at_once and now_s - self._passed_s < PASS_S):
            return
        self._dirty, self._passed_s, self.gathers = False, now_s, ""
        self._misses = {}
        agents = self._state.agents
        count = len(agents)
        if not agents.offers:
            return
        free = agents.free[:, :count].copy()
        kept: NDArray[np.bool_] = np.zeros(count, bool)
        plans: list[tuple[Job, Placed]] = []
        misses = planned = 0
        for *_, job in self._state.listed():
            wanted = wants(job, now_s)
            if not wanted:
                continue
            placed, fits, there = self.placing.place(job, wanted, free)
            if fits:
                if placed:
                    plans.append((job, placed))
                    planned += sum(int(counts.sum()) for _, counts in placed)
                    if planned >= PASS_TASKS:  # the master can begin with these
                        self._dirty = True
                        break
                continue
            misses += 1
            possible = self.placing.can_ever(job, wanted)
            fit = sum(int(counts.sum()) for _, counts in placed)
            needed = sum(least for _, least, _ in wanted)
            self._misses[job.job_id] = Miss(fit, needed, int(there.sum()) if possible else 0)
            if possible:
                self.gathers = self.gathers or job.job_id
                kept |= there
            else:
                for group, counts in placed:  # it hoards nothing that it can never use
                    self.placing.put_back(job, group, counts, free)
            if misses >= self._settings.depth:
                break
        if plans:
            self.replies.launch(plans, misses > 0 or self._dirty, now_s)
        if self._dirty:
            return
        kept |= self.guests.kept(now_s, misses > 0)
        idle = [
            offer_id
            for offer_id, (offer, _) in agents.offers.items()
            if not kept[agents.number[offer.agent_id]] or offer.unavailable
        ]
        if idle:
            self.replies.decline(idle, self.replies.refusal_s(misses > 0), now_s)
