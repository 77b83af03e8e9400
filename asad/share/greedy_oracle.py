"""`greedy-oracle`: a yardstick that knows every demand, every run time and the contention model.

At each cycle it takes, again and again, the pair of a waiting job and a running host whose lending does the most work
a second, as long as the guest ends sooner than by waiting. Guests are in the idle class and get all that their host
leaves. It is greedy, so it is no bound: a policy may beat it. Options: none. Cost a cycle: O(waiting · hosts) a pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from asad.capacity import see, seen
from asad.compiling import compiled
from asad.decisions import Cause
from asad.model import Floats, Snapshot
from asad.policy import Given
from asad.share.jit_args import JitArgs
from asad.share.pair import PairPolicy, choose, find, fit

LEAST = 0.02
"""Shares below this are not worth a guest."""


@compiled
def _best_pairs(
    args: JitArgs,
    now: float,
    own_known: float,
    queue: NDArray[np.int32],
    running: NDArray[np.int32],
    guests: NDArray[np.int32],
    mu: float,
) -> int:
    """Fill `Pairs`, the best first; how many there are."""
    columns, ceiling, candidates, pairs, demand, run = args.all
    view = see(columns, now, own_known, queue, running, guests)
    find(view, ceiling, LEAST, candidates)
    waiting = len(view.queue)
    taken = np.zeros(waiting, np.bool_)
    count = 0
    while count < len(pairs.guest):
        best = 0.0
        best_guest, best_host = -1, -1
        for i in range(waiting):
            guest = view.queue[i]
            if taken[i] or view.c.guest_bar[guest] or np.isnan(view.c.estimated_start_s[guest]):
                continue
            if view.c.cores[guest] * min(1.0, demand[guest]) <= best:
                continue  # not even at full rate
            for k in range(candidates.found[0]):
                host = candidates.hosts[k]
                used, room, ratio = fit(view, candidates, host, guest, LEAST, demand[guest])
                if used == 0:
                    continue
                rate = mu * min(1.0, room * ratio / demand[guest])
                if view.now + run[guest] / rate >= view.c.estimated_start_s[guest] + run[guest]:
                    continue
                done = rate * view.c.cores[guest] * demand[guest]
                if done > best:
                    best, best_guest, best_host = done, i, host
        if best_guest < 0:
            break
        guest = view.queue[best_guest]
        taken[best_guest] = True
        used, room, _ = fit(view, candidates, best_host, guest, LEAST, demand[guest])
        count = choose(view, candidates, pairs, count, guest, best_host, used, room, room)
    return count


class GreedyOracle(PairPolicy):
    """Knows what no real policy can know; `demand` and `run_s` are by row."""

    name = "greedy-oracle"
    held = "idle"
    extends_limits = True
    least = LEAST

    def __init__(self, demand: Floats, run_s: Floats, mu_guest: float, poll_s: float = 30.0) -> None:
        self.demand, self.run_s, self.mu_guest, self.poll_s = demand, run_s, mu_guest, poll_s
        self._left = np.maximum(0.0, 1.0 - demand)

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> Self:
        """With the truth of a replay."""
        assert given.truth is not None
        return cls(*given.truth, given.poll_s)

    def _anew(self, snapshot: Snapshot, guest: int, host: int) -> tuple[str, float]:
        return "all that its new host leaves", float(self._left[host])

    def _ceilings(self, snapshot: Snapshot) -> Floats:
        return self._left[snapshot.running]

    def _own(self) -> tuple[Any, ...]:
        return self.demand, self.run_s

    def _choose(self, snapshot: Snapshot) -> int:
        return _best_pairs(self._args, *seen(snapshot), self.mu_guest)

    def _cause(self, snapshot: Snapshot, k: int, host: int, share: float) -> Cause:
        return Cause(self.name, f"the pair with job {snapshot.jobs.job_id[host]} does the most work")
