"""`first-fit`: waiting gangs go to the first nodes whose pools have room for all of their components, or keep waiting.

In the cluster's order, each waiting job is offered as few nodes as it fits on, all or nothing: a job of several nodes
with as many as it asks for, or between the bounds that its hint gives (`asad:components=4-8`), and the tasks of an
array with such a hint together, at least so many. A node's pool is what its batch jobs leave beyond the 95th percentile
of their use and headroom, and what its free cores give where the cluster lends those, less what guests take. Guests may
use a fixed share of each node, less where the pool goes no further, and none at all where they would not end sooner
than by waiting. Where the share stage lends by itself (`asax`, `static`), this policy decides nothing; bounds of
components hold there too (guard).

Options: `share` of a node's cores that a guest may use at the most, `headroom` that hosts keep beyond what they use.
Cost a cycle: O(cores + waiting · nodes). The allocation of Mesos frameworks that run gangs; what the OgaSched and ASAx
papers compare with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from asad.decisions import Cause, Decision
from asad.model import Finished, Json, Snapshot
from asad.place import PlacePolicy
from asad.place.free_capacity import (
    LEAST_QUOTA,
    PRESSURE,
    FreeCapacity,
    GangOffers,
    Limits,
    Places,
    Quotas,
    Uses,
)
from asad.policy import POOL_PROPERTIES, Given
from asad.tables import Is

LEAST = 0.05
"""A guest with less of its nodes' cores is not worth its memory."""


class Options(NamedTuple):
    """Of `[place.first-fit]`; shares in [0, 1]."""

    share: Annotated[float, Is(least=LEAST, most=1.0)] = 0.5
    """Part of each node's cores that a guest may use at most."""
    headroom: Annotated[float, Is(least=0.0, below=1.0)] = 0.1
    """Share of its cores that a host keeps beyond what it uses."""


class FirstFit(PlacePolicy):
    """All components of a gang, on the first nodes that have room for them."""

    name = "first-fit"
    option_type = Options
    held = "idle"
    pooled = True
    properties = POOL_PROPERTIES

    def __init__(
        self,
        options: Options | None = None,
        applications: Sequence[str] = (),
        *,
        lends: bool = True,
        poll_s: float = 30.0,
        pressure: float = PRESSURE,
    ) -> None:
        """`applications` names the codes of `Jobs.application`, and may grow. `lends` False: the share stage decides
        who becomes a guest. Beside a host that waits for CPU for more than `pressure` of the time the guard decides.
        """
        self.options = options or Options()
        self.lends = self.extends_limits = lends
        self.poll_s = poll_s
        if not lends:
            self.properties = frozenset()
        self._quotas, self._uses = Quotas(pressure), Uses(applications)
        self._offers = GangOffers(self.name, poll_s, self._uses)

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> Self:
        """It leaves lending to a policy of the share stage, if there is one."""
        return cls(
            Options(**options),
            given.applications,
            lends=not given.shares,
            poll_s=given.poll_s,
            pressure=given.pressure,
        )

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """What jobs of an application use."""
        self._uses.learn(snapshot, finished)

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Quotas for guests that have none, and offers to gangs that fit."""
        if not self.lends:
            return ()
        waiting = self._offers.candidates(snapshot)
        if len(snapshot.guests) == 0 and not waiting:
            return ()
        cores = snapshot.machine.cores.astype(np.float64)
        limits = Limits(LEAST * cores, (self.options.share * cores)[None], lambda guest: 0, together=False)
        free = FreeCapacity.see(snapshot, self.options.headroom)

        def explain(guest: int, nodes: Sequence[int], gang: Sequence[int]) -> tuple[str, dict[str, Json]]:
            names = [snapshot.machine.node_names[node] for node in nodes[:3]]
            where = ", ".join(names) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
            together = f", with {len(gang) - 1} more of its array" if len(gang) > 1 else ""
            return f"the first nodes with room for all of it: {where}{together}", {}

        return [*self._set_quotas(snapshot), *self._offers.make(free, waiting, limits, explain)]

    def _set_quotas(self, snapshot: Snapshot) -> list[Decision]:
        """For guests that have started, and for those that the guard had to squeeze."""
        places, share = Places(snapshot), self.options.share
        self._quotas.look(snapshot, places)
        decisions: list[Decision] = []
        for guest, at in places:
            nodes = places.node[at]
            if not math.isnan(self._quotas.of(guest)) or not self._quotas.open(nodes):
                continue
            part = float(np.min(share * snapshot.machine.cores[nodes] / places.cores[at]))
            quota = math.floor(1000 * min(1.0, max(LEAST_QUOTA, part)) + 1e-6) / 1000
            cause = Cause(self.name, f"it may use {share:.0%} of each of its nodes at the most")
            decisions.append(self._quotas.decide(snapshot, places, guest, at, quota, cause))
        return decisions
