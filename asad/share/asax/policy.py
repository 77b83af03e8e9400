"""The policy itself: what a cycle learns and what it decides, step by step.

Each is one call of compiled code, since a cycle is often over in the time of a few calls of Python. What that code
works on stays the same from cycle to cycle, and is handed to it once (`asad.share.kept`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import is_

import numpy as np
from numpy.typing import NDArray

from asad.compiling import borrowing, compiled
from asad.experts import Expert
from asad.experts.compiled import compile_experts, leaf_names
from asad.model import Decision, Finished, Machine, Snapshot
from asad.share.asax.ceilings import reckon_ceilings, reckon_guest_rooms
from asad.share.asax.foreseen import offer_by_forecast
from asad.share.asax.losses import learn_losses
from asad.share.asax.memo import Memo, meet_jobs, new_memo
from asad.share.asax.offers import offer
from asad.share.asax.options import Options
from asad.share.asax.outlook import foreseeable
from asad.share.asax.revision import revise
from asad.share.asax.shares import new_out
from asad.share.asax.starts import count_losers, few_losers, watch_starts
from asad.share.asax.telling import tell
from asad.share.history import History, add_ended, new_history, require_known
from asad.share.kept import Kept, keep
from asad.share.learner import Weights, new_weights
from asad.share.limits import extensions
from asad.share.memory import Memory, fill, grow, to_memory
from asad.share.openings import View, columns_of, find, new_openings, see


@compiled
def _learn(
    kept: Kept,
    now: float,
    own_known: float,
    queue: NDArray[np.int32],
    running: NDArray[np.int32],
    guests: NDArray[np.int32],
    rows: NDArray[np.int32],
    end_s: NDArray[np.float64],
    run_s: NDArray[np.float64],
    lost_s: NDArray[np.float64],
    cpu: NDArray[np.float64],
) -> None:
    """`Asax.learn` in one call; `rows` and what follows are the jobs that have ended."""
    columns, openings, _, weights, history, o, _, memo, _, _, _ = kept.all
    view = see(columns, now, own_known, queue, running, guests)
    # 1. jobs come and go
    meet_jobs(view, o, memo)
    add_ended(history, view.application, view.limit, rows, run_s, lost_s, cpu)
    count_losers(view, o, memo, rows, end_s, run_s, lost_s)
    # 2. what could be lent now
    reckon_ceilings(view, history, o, memo, foreseeable(view, history, o))
    find(view, memo.ceiling, 0.1, openings)
    # 3. what was lent has done good or harm
    if len(guests):
        reckon_guest_rooms(view, openings, memo)
        learn_losses(view, weights, o, memo)
    # 4. how early jobs start by themselves
    watch_starts(view, o, memo)


@compiled
def _decide(
    kept: Kept,
    now: float,
    own_known: float,
    queue: NDArray[np.int32],
    running: NDArray[np.int32],
    guests: NDArray[np.int32],
) -> tuple[int, float]:
    """`Asax.decide` in one call: how many decisions there are, and when the next guest's own time comes."""
    columns, openings, experts, weights, history, careful, trusting, memo, actions, rng, out = kept.all
    view = see(columns, now, own_known, queue, running, guests)
    bold = few_losers(careful, memo)
    o = trusting if bold else careful
    offering = len(queue) > 0 and openings.found[0] > 0
    load = _load(view) if len(guests) or offering else 0.0
    count = 0
    # 1. those who share already
    if len(guests):
        count = revise(view, openings, experts, weights, history, o, memo, actions, load, rng, out)
    # 2. those who wait
    if offering:
        if foreseeable(view, history, o):
            count = offer_by_forecast(
                view, openings, experts, weights, history, o, memo, actions, load, rng, out, count
            )
        else:
            count = offer(
                view, openings, experts, weights, history, o, memo, actions, load, rng, out, count, bold
            )
    return count, _next_own_start(view, memo)


@borrowing
def _load(view: View) -> float:
    """Cores that batch jobs have and ask for, over those of the cluster."""
    wanted = 0
    for jobs in (view.running, view.queue):
        for i in range(len(jobs)):
            wanted += view.cores[jobs[i]]
    return wanted / len(view.core_owner)


@borrowing
def _next_own_start(view: View, memo: Memo) -> float:
    """When the next guest would have started by itself (s); inf for never."""
    following = np.inf
    for i in range(len(view.guests)):
        start = memo.own_start[view.guests[i]]
        if start > view.now:
            following = min(following, start)
    return following


class Asax:
    """The mended mode. Keeps weights and history by application across everything it sees."""

    name = "asax"
    properties = frozenset({"waits", "whole nodes", "one guest a core", "memory", "host floor", "better off"})

    def __init__(
        self,
        experts: Sequence[Expert],
        application_names: Sequence[str],
        rng: np.random.Generator,
        options: Options | None = None,
    ) -> None:
        """`application_names` are those of the codes in the snapshots' `application` column; a list may grow."""
        self.options = options or Options()
        self.experts = tuple(experts)
        self.leaf_names = leaf_names(self.experts)
        self.compiled = compile_experts(self.experts)
        self.actions = np.array(self.experts[0].actions)
        self.weights: Weights = new_weights(len(application_names), len(self.experts))
        self.history: History = new_history(len(application_names))
        self._application_names = application_names
        self._met = len(application_names)
        self._remembered: Memory = {}
        self.rng = rng
        self.decided = 0
        self._rows = -1
        self._machine: Machine | None = None
        self._memo: Memo | None = None
        self._tables: tuple[object, ...] = (None,)
        self._wake_s = math.inf

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """Losses of earlier decisions, run times and CPU use of ended jobs, and how early jobs start."""
        self._prepare(snapshot)
        _learn(
            self._kept,
            snapshot.time_s,
            snapshot.own_known_s,
            snapshot.queue,
            snapshot.running,
            snapshot.guests,
            finished.row,
            finished.end_s,
            finished.run_s,
            finished.lost_s,
            finished.cpu_fraction,
        )

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Limits first, then shares of those who share already, then new guests."""
        self._prepare(snapshot)
        decisions, limits_s = extensions(snapshot, self.name, self.options.poll_s)
        count, own_s = _decide(
            self._kept,
            snapshot.time_s,
            snapshot.own_known_s,
            snapshot.queue,
            snapshot.running,
            snapshot.guests,
        )
        decisions += [
            tell(snapshot, self.name, self.experts, self.leaf_names, self._out, k) for k in range(count)
        ]
        self.decided += count
        self._wake_s = min(own_s, limits_s)
        return decisions

    def wake_s(self) -> float:
        """When the next guest's own time comes or the next limit has to move."""
        return self._wake_s

    def _meet_applications(self) -> None:
        """Make room for the applications that have come since, and give them what is remembered of them."""
        names = self._application_names
        if len(names) > len(self.history.runs) - 1:
            weights, self.history = grow(self.weights, self.history, max(64, 2 * len(names)))
            assert weights is not None
            self.weights = weights
        self._fill(range(self._met, len(names)))
        self._met = len(names)

    def _fill(self, rows: Iterable[int]) -> None:
        experts = [expert.name for expert in self.experts]
        fill(self.weights, self.history, rows, self._application_names, experts, self._remembered)

    def state(self) -> Memory:
        """What is known of every application, met or remembered, as plain data (`asad.share.memory`)."""
        experts = [expert.name for expert in self.experts]
        known = to_memory(self.weights, self.history, self._application_names, experts)
        return {**self._remembered, **known}

    def restore(self, memory: Memory) -> None:
        """Know again what `state` told, also of applications that are yet to come."""
        self._remembered = memory
        self._fill(range(-1, self._met))

    def _prepare(self, snapshot: Snapshot) -> None:
        """See to it that compiled code holds the tables of this snapshot, most often those of the one before."""
        if len(self._application_names) > self._met:
            self._meet_applications()
        tables = (
            snapshot.jobs,
            snapshot.machine,
            snapshot.core_owner,
            snapshot.core_guest,
            self.weights,
            self.history,
            self.options,
        )
        if all(map(is_, tables, self._tables)):
            return
        require_known(snapshot.jobs.application, self._met)
        self._tables = tables
        rows, nodes, cores = len(snapshot.jobs.cores), len(snapshot.machine.cores), len(snapshot.core_owner)
        if rows != self._rows or snapshot.machine is not self._machine:
            self._rows, self._machine = rows, snapshot.machine
            self._first = snapshot.machine.first_core
            self._openings = new_openings(nodes, rows)
            self._memo = new_memo(rows, len(self.experts), self._memo)
            self._out = new_out(nodes, cores, len(self.experts), len(self.actions))
        o = self.options
        self._kept = keep(
            columns_of(snapshot, self._first),
            self._openings,
            self.compiled,
            self.weights,
            self.history,
            o,
            o._replace(slack=o.bold_slack, pessimism=o.bold_pessimism),
            self._memo,
            self.actions,
            self.rng,
            self._out,
        )
