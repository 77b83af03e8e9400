"""`asax-paper`: the text of the ASAx paper to the letter, beside `asax`, which mends what it leaves open.

Source: the ASAx paper, Algorithm 1 (eqs. 1-3), §3.2, §4.4. First fit in the order of the queue, two jobs a node at
the most; one action drawn from the mixture over *all* shares; a draw of 0 % looks for another host; quotas bind host
and guest alike; the loss is `min(1, max(0, T - W)/W)` of the host at its end (T its run time, W its time limit); a
round ends when a risk exceeds 1; γ_t = √(ln n / t). Hp is eq. (1) as printed, `|W - t|·remaining/rate`, with seconds
of work as its tasks. It starts from measured use, so a host lends once it has been measured. There is no headroom, no
test whether the guest gains, and no limit is extended.

Options: none. Cost a cycle: O(cores + waiting · hosts), and a draw for each pair tried.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from asad.applications import Turnover
from asad.compiling import compiled
from asad.experts import Expert
from asad.experts.compiled import CompiledExperts, compile_experts, evaluate_all, leaf_names
from asad.experts.state import FEATURES
from asad.model import Cause, CoAllocate, Decision, Finished, Machine, SetShare, Snapshot
from asad.policy import Given
from asad.share import SharePolicy
from asad.share.history import History, expected_run, new_history, record, require_known
from asad.share.learner import PAPER, Weights, add_case, meet, new_weights
from asad.share.memory import forget, grow
from asad.share.openings import Openings, View, find, fit, new_openings, take, view_of
from asad.share.pair import F_HAPPINESS, describe, draw

MOST = 512
"""Decisions of one cycle at the most; the rest waits for the next."""

LARGEST = 0.9
"""The greatest action; a node from which anything is lent already has no room for it, and so for no second guest."""


@compiled
def _printed_happiness(view: View, history: History, host: int) -> float:
    """Eq. (1) as printed; it has the unit s² and grows with the work that is left."""
    run = expected_run(history, view.application[host], view.limit[host])
    left = max(0.0, run - (view.now - view.start[host]))
    return abs(view.limit_end[host] - view.now) * left / max(view.pace[host], 1e-3)


@compiled
def _choose(
    view: View,
    experts: CompiledExperts,
    weights: Weights,
    history: History,
    actions: NDArray[np.float64],
    load: float,
    rng: np.random.Generator,
    host: int,
    guest: int,
    node: int,
    mixture: NDArray[np.float64],
    p: NDArray[np.float64],
    leaf: NDArray[np.int32],
) -> int:
    """Lines 4-7 of Algorithm 1: the state, the experts, their mixture `mixture`, the action drawn."""
    x = np.full(13, np.nan, np.float32)
    describe(view, history, host, guest, load, node, x)
    x[F_HAPPINESS] = _printed_happiness(view, history, host)
    evaluate_all(experts, x, p, leaf)
    meet(weights, view.application[host])
    every = np.ones(len(actions), np.bool_)
    return draw(p, weights.alpha[view.application[host]], every, 0.0, mixture, rng.random())


@compiled
def _offer(
    view: View,
    openings: Openings,
    experts: CompiledExperts,
    weights: Weights,
    history: History,
    actions: NDArray[np.float64],
    load: float,
    rng: np.random.Generator,
    out: NDArray[np.int32],
    nodes: NDArray[np.int32],
    mixtures: NDArray[np.float64],
    opinions: NDArray[np.float64],
    leaves: NDArray[np.int32],
) -> int:
    """(guest, host, action, where its nodes end) of each lending into `out`; how many."""
    p = np.empty((weights.alpha.shape[1], len(actions)))
    count = 0
    end = 0
    for i in range(len(view.queue)):
        guest = view.queue[i]
        for k in range(openings.found[0]):
            host = openings.hosts[k]
            used, _, _ = fit(view, openings, host, guest, LARGEST, 1.0)
            if used == 0:
                continue
            action = _choose(
                view,
                experts,
                weights,
                history,
                actions,
                load,
                rng,
                host,
                guest,
                openings.chosen[0],
                mixtures[count],
                p,
                leaves[count],
            )
            if actions[action] == 0.0:
                continue
            opinions[count] = p[:, action]
            take(view, openings, guest, used, LARGEST)
            nodes[end : end + used] = openings.chosen[:used]
            end += used
            out[count, 0], out[count, 1], out[count, 2], out[count, 3] = guest, host, action, end
            count += 1
            break
        if count == len(out):
            break
    return count


class AsaxPaper(SharePolicy):
    """The letter. Keeps weights by application, and what it has yet to learn of hosts that still run."""

    name = "asax-paper"
    held = "static"
    properties = frozenset({"waits", "whole nodes", "one guest a core", "memory"})

    def __init__(
        self, experts: Sequence[Expert], application_names: Sequence[str], rng: np.random.Generator
    ) -> None:
        """`application_names` are those of the codes in the snapshots' `application` column; a list may grow."""
        self.experts = tuple(experts)
        self.leaf_names = leaf_names(self.experts)
        self.compiled = compile_experts(self.experts)
        self.actions = np.array(self.experts[0].actions)
        self.weights: Weights = new_weights(len(application_names), len(self.experts))
        self.history: History = new_history(len(application_names))
        self._turnover = Turnover(application_names)
        self._applications: NDArray[np.int32] | None = None
        self.rng = rng
        self.decided = 0
        self._rows = -1
        self._machine: Machine | None = None
        self._unlearned: dict[int, list[NDArray[np.float64]]] = defaultdict(list)

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> Self:
        """With the experts."""
        return cls(given.experts(), given.applications, given.rng)

    def _meet_applications(self, application: NDArray[np.int32]) -> None:
        """Make room for the applications that have come since, and forget those that are forgotten."""
        codes, known = list(self._turnover.look()), len(self._turnover.names)
        if known > len(self.history.runs) - 1:
            weights, self.history = grow(self.weights, self.history, max(64, 2 * known))
            assert weights is not None
            self.weights = weights
        if codes:
            forget(self.weights, self.history, codes)
        if application is not self._applications:
            require_known(application, known)
            self._applications = application

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """Losses of hosts that have ended."""
        jobs = snapshot.jobs
        self._meet_applications(jobs.application)
        record(self.history, jobs, finished)
        for row, run_s in zip(finished.row.tolist(), finished.run_s.tolist(), strict=True):
            opinions = self._unlearned.pop(row, None)
            limit_s = float(jobs.time_limit_s[row])
            if not opinions or not math.isfinite(limit_s) or math.isnan(run_s):
                continue
            loss = min(1.0, max(0.0, run_s - limit_s) / limit_s)
            for opinion in opinions:
                for scope in (int(jobs.application[row]), -1):
                    add_case(self.weights, scope, opinion * loss, PAPER, 0)

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """A share for guests beside a new host, then new guests."""
        self._meet_applications(snapshot.jobs.application)
        rows, nodes = len(snapshot.jobs.cores), len(snapshot.machine.cores)
        if rows != self._rows or snapshot.machine is not self._machine:
            n, m = len(self.experts), len(self.actions)
            self._rows, self._machine = rows, snapshot.machine
            self._openings = new_openings(nodes, rows)
            self._ceiling = np.zeros(rows)
            self._first = snapshot.machine.first_core
            self._out = np.zeros((MOST, 4), np.int32)
            self._nodes = np.zeros(nodes + len(snapshot.core_owner), np.int32)
            self._mixtures = np.zeros((MOST + 1, m))
            self._opinions = np.zeros((MOST + 1, n))
            self._leaves = np.zeros((MOST + 1, n), np.int32)
            assert len(FEATURES) == 13
        jobs = snapshot.jobs
        view = view_of(snapshot, self._first)
        held = int(jobs.cores[snapshot.running].sum()) + int(jobs.cores[snapshot.queue].sum())
        load = held / len(snapshot.core_owner)
        tools = (self.compiled, self.weights, self.history, self.actions, load, self.rng)
        decisions: list[Decision] = []
        undecided = np.isnan(jobs.share[snapshot.guests]) & (jobs.host[snapshot.guests] >= 0)
        p = np.empty((len(self.experts), len(self.actions)))
        for guest in np.sort(snapshot.guests[undecided]).tolist():
            host = int(jobs.host[guest])
            if math.isnan(jobs.cpu_fraction[host]):
                continue
            action = _choose(view, *tools, host, guest, 0, self._mixtures[0], p, self._leaves[0])
            self._unlearned[host].append(p[:, action].copy())
            share = float(self.actions[max(action, 1)])  # a job that runs cannot be given nothing
            reason = f"its share of its new host {jobs.job_id[host]} is {share:.0%}"
            decisions.append(SetShare(Cause(self.name, reason), guest, share, capped=True))
        if len(snapshot.queue) == 0:
            return decisions
        self._ceiling[snapshot.running] = np.where(
            np.isnan(jobs.cpu_fraction[snapshot.running]), 0.0, LARGEST
        )
        find(view, self._ceiling, LARGEST, self._openings)
        if self._openings.found[0] == 0:
            return decisions
        count = _offer(
            view, self._openings, *tools, self._out, self._nodes, self._mixtures, self._opinions, self._leaves
        )
        begin = 0
        for k, (guest, host, action, end) in enumerate(self._out[:count].tolist()):
            self._unlearned[host].append(self._opinions[k].copy())
            share = float(self.actions[action])
            detail = {
                "mixture": self._mixtures[k].round(4).tolist(),
                "leaves": {
                    e.name: self.leaf_names[leaf]
                    for e, leaf in zip(self.experts, self._leaves[k].tolist(), strict=True)
                },
            }
            cause = Cause(
                self.name, f"it fits beside job {jobs.job_id[host]}, and {share:.0%} was drawn", detail
            )
            where = tuple(self._nodes[begin:end].tolist())
            decisions.append(CoAllocate(cause, guest, where, host=host, share=share, capped=True))
            begin = end
        self.decided += count
        return decisions
