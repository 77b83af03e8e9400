"""`asax`: expert decision trees and exponential weights decide how much of itself each host lends to its nodes' pools.

Source: the ASAx paper, §3 and Algorithm 1, settled where it leaves things open (docs/explanation/asax.md lists the
points side by side with `asax-paper`, which is the letter). Each cycle:

1. a host's share is drawn from the experts' opinions, mixed by the weights of its application: once its use is known,
   then every ten minutes, sooner where its share alone stopped a guest; the loss of the last draw is learned;
2. every node has a pool: what its hosts lend of what they leave beyond the 95th percentile of their use and headroom,
   and what its free cores give, less what guests take;
3. guests divide the pools of their nodes by quotas; the newest gives way;
4. waiting jobs, in the order of the queue, are offered the nodes with the most fitting pools where they should end
   sooner than by waiting.

Options: `asad.share.pool.Options`. Cost a cycle: O(nodes + jobs + cores of changed nodes + waiting · nodes), a draw
O(nodes + experts). The parts, from the ground up, are files of `asad.share.pool`: pool_options, memo, measured_hosts,
starts, shares, guest_quotas, guest_offers, idle_funnel, pool_policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from asad.capacity import see, seen
from asad.compiling import compiled
from asad.decisions import Cause, Decision, SetShare
from asad.experts import Expert
from asad.experts.compiled import compile_experts, leaf_names
from asad.model import Json, ShareCases, Snapshot
from asad.policy import Given
from asad.share import drawn_experts
from asad.share.jit_args import JitArgs, bind
from asad.share.learner import Weights
from asad.share.pool import Options, PoolPolicy
from asad.share.pool.cases import MOST, new_cases, taken
from asad.share.pool.shares import draw_shares


@compiled
def _draw(
    args: JitArgs,
    now: float,
    own_known: float,
    queue: NDArray[np.int32],
    running: NDArray[np.int32],
    guests: NDArray[np.int32],
) -> None:
    """`draw_shares` in one call."""
    columns, experts, weights, history, o, memo, actions, rng, opinions, cases = args.all
    view = see(columns, now, own_known, queue, running, guests)
    draw_shares(view, experts, weights, history, o, memo, actions, rng, opinions, cases)


CHANGE = 0.15
"""A share that has changed by less since it was last recorded is not recorded anew."""


REMOVED = dict.fromkeys(
    (
        *(
            "look_ahead",
            "scenarios",
            "restarts",
            "most_stretch",
            "stretch_weight",
            "makespan_weight",
            "burst",
        ),
        *("least_gain_s", "well_known", "tries", "least_happiness", "overhead", "full_rate", "pessimism"),
        *("outlast", "most_losers", "free_losers", "bold_slack", "bold_pessimism"),
    ),
    "it went with the search for pairs: hosts lend to the pools of their nodes now; remove the line",
)
"""Options of earlier versions, and why they are gone."""


class Asax(PoolPolicy):
    """Keeps weights and history by application across everything it sees."""

    name = "asax"
    draws = True
    removed = REMOVED

    def __init__(
        self,
        experts: Sequence[Expert],
        application_names: Sequence[str],
        rng: np.random.Generator,
        options: Options | None = None,
    ) -> None:
        """`application_names` are those of the codes in the snapshots' `application` column; a list may grow."""
        names = [expert.name for expert in experts]
        super().__init__(application_names, options, names, len(experts[0].actions))
        self.experts = tuple(experts)
        self.leaf_names = leaf_names(self.experts)
        self.compiled = compile_experts(self.experts)
        self.actions = np.array(self.experts[0].actions)
        self.rng = rng
        self._cases = new_cases()
        self._drawing: JitArgs | None = None
        self._drawing_for: object = None

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> Self:
        """With the experts and the interval of the cycle."""
        pools = Options(**options)._replace(poll_s=given.poll_s)
        return cls(given.experts(), given.applications, given.rng, pools)

    def _draw(self, snapshot: Snapshot) -> None:
        """Shares that are due."""
        if self._drawing is None or self._drawing_for is not self._args:
            self._drawing_for = self._args
            self._drawing = bind(
                self._columns,
                self.compiled,
                self.weights,
                self.history,
                self.options,
                self._memo,
                self.actions,
                self.rng,
                np.zeros((len(self.experts), len(self.actions))),
                self._cases,
            )
        _draw(self._drawing, *seen(snapshot))

    def take_cases(self, snapshot: Snapshot, most: int = MOST) -> ShareCases:
        """The draws whose losses have been learned since the last call, at the `most` so many of them, evenly chosen;
        `snapshot` is the newest."""
        return taken(self._cases, snapshot, self._learned.names, most)

    def _shares(self, snapshot: Snapshot, nodes: NDArray[np.int32]) -> list[Decision]:
        """A share is recorded when something is first offered of it, and then when that is so and it has changed."""
        memo, first = self._memo, self._first
        assert memo is not None
        hosts: set[int] = set()
        for node in set(nodes.tolist()):
            hosts.update(snapshot.core_owner[first[node] : first[node + 1]].tolist())
        found: list[Decision] = []
        for host in sorted(hosts - {-1}):
            drawn = not math.isnan(memo.drawn_at[host])
            if drawn and not abs(memo.share[host] - memo.announced[host]) < CHANGE:
                memo.announced[host] = memo.share[host]
                found.append(self._share(snapshot, host))
        return found

    def _share(self, snapshot: Snapshot, host: int) -> SetShare:
        """The share of a host with its story."""
        memo = self._memo
        assert memo is not None
        alpha = self.weights.alpha[snapshot.jobs.application[host]].round(4).tolist()
        share, names = float(memo.share[host]), [expert.name for expert in self.experts]
        peak = memo.last_peak[host] if not math.isnan(memo.last_peak[host]) else memo.peak[host]
        detail: dict[str, Json] = {
            "chance": round(float(memo.probability[host]), 4),
            "mixture": memo.mixture[host].round(4).tolist(),
            "weights": dict(zip(names, alpha, strict=True)),
            "leaves": dict(
                zip(names, map(self.leaf_names.__getitem__, memo.leaf[host].tolist()), strict=True)
            ),
            "host_cpu_p95": round(float(peak), 4),
        }
        reason = f"it lends up to {share:.0%} of its cores to the pools of its nodes"
        return SetShare(Cause(self.name, reason, detail), share=share, host=host)

    def drawn_experts(self, snapshot: Snapshot) -> dict[str, Json]:
        """The experts' trees, their weights, and which leaves the hosts that run have reached."""
        memo = self._memo
        reached: dict[str, Json] = {"last": None, "reached": []}
        if memo is not None and len(memo.drawn_at) > max(snapshot.running, default=-1):
            reached = drawn_experts.leaves(snapshot, memo.drawn_at, memo.leaf, memo.share, self.leaf_names)
        return drawn_experts.describe(self.experts, self.weights, self._learned.names, reached)

    @property
    def weights(self) -> Weights:
        """Of the experts, by application."""
        assert self._learned.weights is not None
        return self._learned.weights


__all__ = ["Asax", "Options"]
