"""`greedy-oracle`: a yardstick that knows every demand, every run time and the contention model.

At each cycle it takes, again and again, the pair of a waiting job and a running host whose lending does the most work
a second, as long as the guest ends sooner than by waiting. Guests are in the idle class and get all that their host
leaves. It is greedy, so it is no bound: a policy may beat it. Options: none. Cost a cycle: O(waiting · hosts) a pair.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.limits import extensions
from asad.model import Cause, CoAllocate, Decision, Floats, SetShare, Snapshot
from asad.policy import Given
from asad.share import SharePolicy
from asad.share.openings import Openings, View, find, fit, new_openings, take, view_of

LEAST = 0.02
"""Shares below this are not worth a guest."""


@compiled
def _best_pairs(
    view: View,
    openings: Openings,
    demand: NDArray[np.float64],
    run: NDArray[np.float64],
    mu: float,
    out: NDArray[np.int32],
    shares: NDArray[np.float64],
    nodes: NDArray[np.int32],
) -> int:
    """(guest, host, where its nodes end) and share of each lending; how many."""
    waiting = len(view.queue)
    taken = np.zeros(waiting, np.bool_)
    count = 0
    end = 0
    while count < len(out):
        best = 0.0
        best_guest, best_host = -1, -1
        for i in range(waiting):
            guest = view.queue[i]
            if taken[i] or np.isnan(view.estimate[guest]):
                continue
            if view.cores[guest] * min(1.0, demand[guest]) <= best:
                continue  # not even at full rate
            for k in range(openings.found[0]):
                host = openings.hosts[k]
                used, room, ratio = fit(view, openings, host, guest, LEAST, demand[guest])
                if used == 0:
                    continue
                rate = mu * min(1.0, room * ratio / demand[guest])
                if view.now + run[guest] / rate >= view.estimate[guest] + run[guest]:
                    continue
                done = rate * view.cores[guest] * demand[guest]
                if done > best:
                    best, best_guest, best_host = done, i, host
        if best_guest < 0:
            break
        guest = view.queue[best_guest]
        taken[best_guest] = True
        used, room, _ = fit(view, openings, best_host, guest, LEAST, demand[guest])
        take(view, openings, guest, used, room)
        nodes[end : end + used] = openings.chosen[:used]
        end += used
        out[count, 0], out[count, 1], out[count, 2] = guest, best_host, end
        shares[count] = room
        count += 1
    return count


class GreedyOracle(SharePolicy):
    """Knows what no real policy can know; `demand` and `run_s` are by row."""

    name = "greedy-oracle"
    held = "idle"
    properties = frozenset({"waits", "whole nodes", "one guest a core", "memory"})

    def __init__(self, demand: Floats, run_s: Floats, mu_guest: float, poll_s: float = 30.0) -> None:
        self.demand, self.run_s, self.mu_guest, self.poll_s = demand, run_s, mu_guest, poll_s
        self._openings: Openings | None = None
        self._wake_s = math.inf

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> Self:
        """With the truth of a replay."""
        assert given.truth is not None
        return cls(*given.truth, given.poll_s)

    def wake_s(self) -> float:
        """When the next limit has to move."""
        return self._wake_s

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The best pairs it can find."""
        jobs = snapshot.jobs
        if self._openings is None:
            self._openings = new_openings(len(snapshot.machine.cores), len(jobs.cores))
            self._ceiling = np.maximum(0.0, 1.0 - self.demand)
            self._out = np.zeros((512, 3), np.int32)
            self._shares = np.zeros(512)
            self._nodes = np.zeros(len(snapshot.machine.cores) + len(snapshot.core_owner), np.int32)
            self._first = snapshot.machine.first_core
        decisions, self._wake_s = extensions(snapshot, self.name, self.poll_s)
        undecided = np.isnan(jobs.share[snapshot.guests]) & (jobs.host[snapshot.guests] >= 0)
        for guest in np.sort(snapshot.guests[undecided]).tolist():
            decisions.append(
                SetShare(
                    Cause(self.name, "all that its new host leaves"),
                    guest,
                    float(self._ceiling[jobs.host[guest]]),
                )
            )
        if len(snapshot.queue):
            view = view_of(snapshot, self._first)
            find(view, self._ceiling, LEAST, self._openings)
            if self._openings.found[0]:
                count = _best_pairs(
                    view,
                    self._openings,
                    self.demand,
                    self.run_s,
                    self.mu_guest,
                    self._out,
                    self._shares,
                    self._nodes,
                )
                begin = 0
                for (guest, host, end), share in zip(
                    self._out[:count].tolist(), self._shares[:count].tolist(), strict=True
                ):
                    cause = Cause(self.name, f"the pair with job {jobs.job_id[host]} does the most work")
                    decisions.append(
                        CoAllocate(
                            cause, guest, tuple(self._nodes[begin:end].tolist()), host=host, share=share
                        )
                    )
                    begin = end
        return decisions
