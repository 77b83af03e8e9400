"""`asax-paper`: the text of the ASAx paper to the letter, beside `asax`, which settles what it leaves open.

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

from asad.capacity import View, see, seen
from asad.compiling import allocating, borrowing, compiled
from asad.decisions import Cause, Decision
from asad.experts import Expert
from asad.experts.compiled import CompiledExperts, compile_experts, evaluate_all, leaf_names
from asad.experts.state import (
    F_CPU,
    F_CPU_P95,
    F_GUEST_CPU,
    F_GUEST_MEMORY,
    F_HAPPINESS,
    F_INTERVAL,
    F_LOAD,
    F_MEMORY,
    F_MEMORY_PAIR,
    F_PRESSURE,
    F_SIZE_RATIO,
    F_STAGE,
    FEATURES,
)
from asad.model import Finished, Floats, Json, Snapshot
from asad.policy import Given
from asad.share import drawn_experts
from asad.share.jit_args import JitArgs
from asad.share.learner import PAPER, Weights, add_case, draw, meet
from asad.share.pair import MOST, PairPolicy, choose, find, fit
from asad.share.run_history import History, expected_cpu, expected_run, record
from asad.share.saved_state import Learned

LARGEST = 0.9
"""The greatest action; a node from which anything is lent already has no room for it, and so for no second guest."""


SEEN = len(FEATURES)
"""What an expert sees, by number."""


@compiled
def _printed_happiness(view: View, history: History, host: int) -> float:
    """Eq. (1) as printed; it has the unit s² and grows with the work that is left."""
    c = view.c
    run = expected_run(history, c.application[host], c.time_limit_s[host])
    left = max(0.0, run - (view.now - c.start_s[host]))
    return abs(c.limit_end_s[host] - view.now) * left / max(c.pace[host], 1e-3)


@borrowing
def _describe(
    view: View, history: History, host: int, guest: int, load: float, node: int, x: NDArray[np.float32]
) -> None:
    """The state of the pair into `x`; what no log and no snapshot has is NaN."""
    c = view.c
    x[:] = np.nan
    cpu = c.cpu_fraction[host]
    if np.isnan(cpu):
        cpu = expected_cpu(history, c.application[host])
    x[F_CPU] = cpu
    x[F_CPU_P95] = cpu
    x[F_STAGE] = 0.0 if cpu * c.cores[host] <= 1.5 and c.cores[host] > 1 else 1.0
    limit = c.limit_end_s[host] - c.start_s[host]
    x[F_INTERVAL] = (view.now - c.start_s[host]) / limit if limit > 0 and not np.isinf(limit) else np.nan
    x[F_HAPPINESS] = _printed_happiness(view, history, host)
    x[F_PRESSURE] = max(0.0, 1.0 - c.pace[host])
    x[F_GUEST_CPU] = expected_cpu(history, c.application[guest])
    x[F_LOAD] = load
    x[F_SIZE_RATIO] = min(1.0, c.cores[guest] / c.cores[host])
    memory = c.node_memory[node]
    if memory > 0:  # never of NaN
        cores = c.node_first[node + 1] - c.node_first[node]
        x[F_MEMORY] = min(1.0, c.memory_bytes_per_core[host] * cores / memory)
        x[F_GUEST_MEMORY] = c.memory_bytes_per_core[guest] * min(cores, c.cores[guest]) / memory
        x[F_MEMORY_PAIR] = x[F_MEMORY] + x[F_GUEST_MEMORY]


@allocating
def _draw(
    view: View,
    experts: CompiledExperts,
    weights: Weights,
    history: History,
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
    x = np.empty(SEEN, np.float32)
    _describe(view, history, host, guest, load, node, x)
    evaluate_all(experts, x, p, leaf)
    meet(weights, view.c.application[host])
    return draw(p, weights.alpha[view.c.application[host]], 0.0, mixture, rng.random())


@compiled
def _draw_again(
    args: JitArgs,
    now: float,
    own_known: float,
    queue: NDArray[np.int32],
    running: NDArray[np.int32],
    guests: NDArray[np.int32],
    load: float,
    host: int,
    guest: int,
) -> int:
    """The action for a guest beside a new host; what the experts say into the first row of the tables."""
    columns, _, _, _, experts, weights, history, actions, rng, mixtures, opinions, leaves = args.all
    view = see(columns, now, own_known, queue, running, guests)
    p = np.empty((opinions.shape[1], len(actions)))
    action = _draw(view, experts, weights, history, load, rng, host, guest, 0, mixtures[0], p, leaves[0])
    opinions[0] = p[:, action]
    return action


@compiled
def _offer(
    args: JitArgs,
    now: float,
    own_known: float,
    queue: NDArray[np.int32],
    running: NDArray[np.int32],
    guests: NDArray[np.int32],
    load: float,
) -> int:
    """Fill `Pairs`, in the order of the queue; how many there are."""
    (
        columns,
        ceiling,
        candidates,
        pairs,
        experts,
        weights,
        history,
        actions,
        rng,
        mixtures,
        opinions,
        leaves,
    ) = args.all
    view = see(columns, now, own_known, queue, running, guests)
    find(view, ceiling, LARGEST, candidates)
    p = np.empty((opinions.shape[1], len(actions)))
    count = 0
    for i in range(len(queue)):
        guest = queue[i]
        if view.c.guest_bar[guest]:
            continue
        for k in range(candidates.found[0]):
            host = candidates.hosts[k]
            used, _, _ = fit(view, candidates, host, guest, LARGEST, 1.0)
            if used == 0:
                continue
            node, mixture, leaf = candidates.chosen[0], mixtures[count], leaves[count]
            action = _draw(view, experts, weights, history, load, rng, host, guest, node, mixture, p, leaf)
            if actions[action] == 0.0:
                continue
            opinions[count] = p[:, action]
            count = choose(view, candidates, pairs, count, guest, host, used, LARGEST, actions[action])
            break
        if count == MOST:
            break
    return count


class AsaxPaper(PairPolicy):
    """The letter. Keeps weights by application, and what it has yet to learn of hosts that still run."""

    name = "asax-paper"
    held = "static"
    least = LARGEST

    def __init__(
        self, experts: Sequence[Expert], application_names: Sequence[str], rng: np.random.Generator
    ) -> None:
        """`application_names` are those of the codes in the snapshots' `application` column; a list may grow."""
        self.experts = tuple(experts)
        self.leaf_names = leaf_names(self.experts)
        self.compiled = compile_experts(self.experts)
        self.actions = np.array(self.experts[0].actions)
        self._learned = Learned(application_names, [expert.name for expert in experts])
        self._applications: NDArray[np.int32] | None = None
        self.rng = rng
        n, m = len(self.experts), len(self.actions)
        self._mixtures, self._opinions = np.zeros((MOST, m)), np.zeros((MOST, n))
        self._leaves = np.zeros((MOST, n), np.int32)
        self._unlearned: dict[int, list[NDArray[np.float64]]] = defaultdict(list)
        self._drawn: dict[int, tuple[float, float, NDArray[np.int32]]] = {}
        """Host → when a share of it was drawn last, which one, and the leaf that each expert reached."""

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> Self:
        """With the experts."""
        return cls(given.experts(), given.applications, given.rng)

    def _meet_applications(self, application: NDArray[np.int32]) -> None:
        self._learned.meet()
        if application is not self._applications:
            self._learned.require_known(application)
            self._applications = application

    @property
    def history(self) -> History:
        """What ended jobs say about the next run of their application."""
        return self._learned.history

    @property
    def weights(self) -> Weights:
        """Of the experts, by application."""
        assert self._learned.weights is not None
        return self._learned.weights

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """Losses of hosts that have ended."""
        jobs = snapshot.jobs
        self._meet_applications(jobs.application)
        record(self.history, jobs, finished)
        for row, run_s in zip(finished.row.tolist(), finished.run_s.tolist(), strict=True):
            self._drawn.pop(row, None)
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
        return super().decide(snapshot)

    def _own(self) -> tuple[Any, ...]:
        tables = self._mixtures, self._opinions, self._leaves
        return self.compiled, self.weights, self.history, self.actions, self.rng, *tables

    def _load(self, snapshot: Snapshot) -> float:
        """Cores that are held or waited for, over those of the cluster."""
        cores = snapshot.jobs.cores
        return int(cores[snapshot.running].sum() + cores[snapshot.queue].sum()) / len(snapshot.core_owner)

    def _anew(self, snapshot: Snapshot, guest: int, host: int) -> tuple[str, float] | None:
        if math.isnan(snapshot.jobs.cpu_fraction[host]):
            return None
        action = _draw_again(self._args, *seen(snapshot), self._load(snapshot), host, guest)
        share = float(self.actions[max(action, 1)])  # a job that runs cannot be given nothing
        self._note(snapshot, host, share, 0)
        return f"its share of its new host {snapshot.jobs.job_id[host]} is {share:.0%}", share

    def _note(self, snapshot: Snapshot, host: int, share: float, k: int) -> None:
        """A share was drawn, by what stands in row `k` of the tables."""
        self._unlearned[host].append(self._opinions[k].copy())
        self._drawn[host] = snapshot.time_s, share, self._leaves[k].copy()

    def drawn_experts(self, snapshot: Snapshot) -> dict[str, Json]:
        """The experts' trees, their weights, and which leaves the hosts that run have reached."""
        rows = len(snapshot.jobs.cores)
        drawn_at, share = np.full(rows, np.nan), np.zeros(rows)
        leaf = np.zeros((rows, len(self.experts)), np.int32)
        for host, drawn in self._drawn.items():
            if host < rows:
                drawn_at[host], share[host], leaf[host] = drawn
        reached = drawn_experts.leaves(snapshot, drawn_at, leaf, share, self.leaf_names)
        return drawn_experts.describe(self.experts, self.weights, self._learned.names, reached)

    def _ceilings(self, snapshot: Snapshot) -> Floats:
        """Who has not been measured yet lends nothing."""
        return np.where(np.isnan(snapshot.jobs.cpu_fraction[snapshot.running]), 0.0, LARGEST)

    def _choose(self, snapshot: Snapshot) -> int:
        return _offer(self._args, *seen(snapshot), self._load(snapshot))

    def _cause(self, snapshot: Snapshot, k: int, host: int, share: float) -> Cause:
        """With the loss of its share to be learned when the host has ended."""
        self._note(snapshot, host, share, k)
        leaves = zip(self.experts, self._leaves[k].tolist(), strict=True)
        detail: dict[str, Json] = {
            "mixture": self._mixtures[k].round(4).tolist(),
            "leaves": {expert.name: self.leaf_names[leaf] for expert, leaf in leaves},
        }
        job = snapshot.jobs.job_id[host]
        return Cause(self.name, f"it fits beside job {job}, and {share:.0%} was drawn", detail)
