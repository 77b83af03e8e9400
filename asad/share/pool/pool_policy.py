"""Lending from pools, as `asax`, `measured` and `pool-oracle` do it: what a cycle learns and decides, step by step.

Each is one call of compiled code, since a cycle is often over in the time of a few calls of Python. What that code
works on stays the same from cycle to cycle, and is handed to it once (`asad.share.jit_args`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from asad.capacity import columns_of, cores_of, fill_pools, new_pools, see, seen, spread, tables_of
from asad.compiling import compiled
from asad.decisions import Cause, CoAllocate, Decision, SetQuota
from asad.model import Finished, Floats, Json, Machine, Snapshot
from asad.policy import POOL_PROPERTIES, Given
from asad.share import SharePolicy
from asad.share.jit_args import JitArgs, bind
from asad.share.pool import idle_funnel
from asad.share.pool.guest_offers import new_offers, offer
from asad.share.pool.guest_quotas import new_quotas, set_quotas
from asad.share.pool.idle_funnel import account
from asad.share.pool.measured_hosts import note_measured
from asad.share.pool.memo import Memo, meet_jobs, new_memo
from asad.share.pool.pool_options import Options
from asad.share.pool.starts import find_late, watch_starts
from asad.share.run_history import History, add_ended, add_peak, known_cpu, known_peak
from asad.share.saved_state import Changes, Learned, Memory

FUNNEL_POLLS = 10
"""The funnel is sampled once in so many intervals of the cycle."""
NODES_NAMED = 3
"""So many nodes of an offer, and so many of those who lend there, are named."""


@compiled
def _learn(
    args: JitArgs,
    now: float,
    own_known: float,
    queue: NDArray[np.int32],
    running: NDArray[np.int32],
    guests: NDArray[np.int32],
    rows: NDArray[np.int32],
    run_s: NDArray[np.float64],
    lost_s: NDArray[np.float64],
    cpu: NDArray[np.float64],
) -> None:
    """`PoolPolicy.learn` in one call; `rows` and what follows are the jobs that have ended."""
    columns, pools, history, o, memo, _, _, _, _, _ = args.all
    view = see(columns, now, own_known, queue, running, guests)
    for i in range(len(rows)):
        add_peak(history, columns.application[rows[i]], memo.last_peak[rows[i]])
        memo.last_peak[rows[i]] = np.nan
    add_ended(history, columns.application, columns.time_limit_s, rows, run_s, lost_s, cpu)
    meet_jobs(view, o, memo)
    for i in range(len(running)):
        application = columns.application[running[i]]
        memo.peak[running[i]] = known_peak(history, application)
        memo.mean[running[i]] = known_cpu(history, application)
    note_measured(view, pools, memo)
    watch_starts(view, o, memo)
    find_late(view, history, o, memo)


@compiled
def _decide(
    args: JitArgs,
    now: float,
    own_known: float,
    queue: NDArray[np.int32],
    running: NDArray[np.int32],
    guests: NDArray[np.int32],
    sample: bool,
) -> tuple[int, int]:
    """`PoolPolicy.decide` in one call: how many offers there are, and how many quotas change."""
    columns, pools, history, o, memo, offers, quotas, demand, run, row = args.all
    view = see(columns, now, own_known, queue, running, guests)
    fill_pools(view, memo.share, memo.peak, memo.late, o.headroom, pools)
    changed = set_quotas(view, pools, o, memo, quotas) if len(guests) else 0
    made = offer(view, pools, history, demand, run, o, memo, offers) if len(queue) else 0
    if sample:
        account(view, pools, memo, o.headroom, offers.needs, row)
    return made, changed


class PoolPolicy(SharePolicy):
    """Hosts lend to the pools of their nodes, and waiting jobs that gain by it draw from them."""

    properties = POOL_PROPERTIES
    extends_limits = True
    option_type = Options
    held = "idle"
    pooled = True

    def __init__(
        self,
        application_names: Sequence[str],
        options: Options | None = None,
        experts: Sequence[str] = (),
        actions: int = 0,
    ) -> None:
        """`application_names` are those of the codes in the snapshots' `application` column; a list may grow.

        Hosts lend all that is spare, unless `_draw` is overridden; then `experts` of these names have opinions on m
        `actions`.
        """
        self.options = options or Options()
        self.poll_s = self.options.poll_s
        self._learned = Learned(application_names, experts)
        self._experts, self._actions = len(experts), actions
        self.demand, self.run_s = np.zeros(0), np.zeros(0)
        self._rows = -1
        self._machine: Machine | None = None
        self._memo: Memo | None = None
        self._prepared_for: Snapshot | None = None
        self._tables: tuple[object, ...] = (None,)
        self._idle = np.zeros(idle_funnel.WIDTH)
        self._idle_s = np.zeros(idle_funnel.WIDTH)
        self._idle_since = math.nan

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> Self:
        """With the interval of the cycle."""
        return cls(given.applications, Options(**options)._replace(poll_s=given.poll_s))

    # -------------------------------------------------------------------------------------------------- the stage

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """Run times and CPU use of ended jobs, and how early jobs start."""
        self._prepare(snapshot)
        _learn(
            self._args,
            *seen(snapshot),
            finished.row,
            finished.run_s,
            finished.lost_s,
            finished.cpu_fraction,
        )

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """What hosts lend, quotas of guests, and new guests."""
        self._prepare(snapshot)
        self._draw(snapshot)
        made, changed = _decide(self._args, *seen(snapshot), self._sample(snapshot.time_s))
        decisions: list[Decision] = [self._quota(snapshot, k) for k in range(changed)]
        if made:
            decisions += self._shares(snapshot, self._offers.nodes[: self._offers.nodes_end[made - 1]])
            decisions += [self._offer(snapshot, k) for k in range(made)]
        return decisions

    def _sample(self, now_s: float) -> bool:
        """Is it time to look anew where the idle CPU goes? What was found last counts until then."""
        if now_s - self._idle_since < FUNNEL_POLLS * self.options.poll_s:
            return False
        if not math.isnan(self._idle_since):
            self._idle_s += self._idle * (now_s - self._idle_since)
        self._idle_since = now_s
        return True

    def funnel(self) -> list[tuple[str, float]]:
        """(reason, core-seconds) of the CPU that batch jobs left idle so far."""
        return idle_funnel.reasons(self._idle_s)

    def pool_cores(self) -> Floats | None:
        """What was counted when the last offers were made."""
        return None if self._memo is None else self._pools.lent + self._pools.free

    # -------------------------------------------------------------------------------------------- what is overridden

    def _draw(self, snapshot: Snapshot) -> None:
        """What hosts lend from now on, into `memo.share`: all of them all that is spare."""
        assert self._memo is not None
        self._memo.share[snapshot.running] = 1.0

    def _shares(self, snapshot: Snapshot, nodes: NDArray[np.int32]) -> list[Decision]:
        """What hosts of these nodes lend, as far as that has changed since it was last recorded."""
        return []

    # ----------------------------------------------------------------------------------------------- decisions as data

    def _offer(self, snapshot: Snapshot, k: int) -> CoAllocate:
        """Offer `k` of this cycle with its story."""
        out, jobs = self._offers, snapshot.jobs
        guest, rate, demand = int(out.guest[k]), float(out.rate[k]), float(out.demand[k])
        begin = int(out.nodes_end[k - 1]) if k else 0
        nodes = out.nodes[begin : out.nodes_end[k]].tolist()
        cores = spread(int(jobs.cores[guest]), len(nodes))
        guest_end, wait_end = snapshot.time_s + out.run[k] / rate, out.start[k] + out.run[k]
        demands = tuple(count * demand * rate for count in cores)
        needs = [
            self._drawn(snapshot, node, need)
            for node, need in zip(nodes[:NODES_NAMED], demands, strict=False)
        ]
        left = len(nodes) - NODES_NAMED
        more = f"; and the like of {left} more {'node' if left == 1 else 'nodes'}" if left > 0 else ""
        reason = (
            f"it needs {'; '.join(needs)}{more}; at {rate:.0%} of its pace it should end "
            f"{wait_end - guest_end:.0f} s sooner"
        )
        detail: dict[str, Json] = {
            "rate": round(rate, 4),
            "guest_end_s": float(guest_end),
            "wait_end_s": float(wait_end),
            "guest_cpu": round(demand, 4),
            "assumed_peak": self._assumed(snapshot, nodes),
        }
        return CoAllocate(Cause(self.name, reason, detail), guest, tuple(nodes), demands)

    def _drawn(self, snapshot: Snapshot, node: int, need: float) -> str:
        """What a guest draws from a node, and from whom: in proportion to what each of them lends."""
        memo, columns = self._memo, self._columns
        assert memo is not None
        here = slice(self._first[node], self._first[node + 1])
        owner = columns.core_owner[here]
        held = owner[owner >= 0]
        peak = columns.core_peak[here][owner >= 0]
        left = 1.0 - np.where(np.isnan(peak), memo.peak[held], peak) - self.options.headroom
        left[np.isnan(left) | (columns.host_bar[held] != 0)] = 0.0
        lent = np.minimum(np.maximum(left, 0.0), memo.share[held])
        parts = [
            (f"from {snapshot.jobs.job_id[row]}", lent[held == row].sum())
            for row in dict.fromkeys(held.tolist())
        ]
        parts.append(("free", self._pools.free[node]))
        every = sum(part for _, part in parts)
        of = f"{need:.1f} {'core' if f'{need:.1f}' == '1.0' else 'cores'} of {snapshot.machine.node_names[node]}"
        if not every > 0:
            return of
        words = [f"{need * part / every:.1f} {whence}" for whence, part in parts if part >= 0.05 * every]
        more = f" and {len(words) - NODES_NAMED} more" if len(words) > NODES_NAMED else ""
        return f"{of}: {', '.join(words[:NODES_NAMED])}{more}"

    def _assumed(self, snapshot: Snapshot, nodes: Sequence[int]) -> dict[str, Json]:
        """By number of a host that has not been measured on one of the nodes: the 95th percentile that was counted."""
        assert self._memo is not None
        found: dict[str, Json] = {}
        first, peak = snapshot.machine.first_core, self._columns.core_peak
        where, at = cores_of(first, np.array(nodes, np.int32))
        unmeasured = np.isnan(peak[where]) & (snapshot.core_owner[where] >= 0)
        for k in np.unique(at[unmeasured]).tolist():
            cores = slice(first[nodes[k]], first[nodes[k] + 1])
            owner = snapshot.core_owner[cores]
            for row in set(owner[(owner >= 0) & np.isnan(peak[cores])].tolist()):
                if not math.isnan(self._memo.peak[row]):
                    found[str(snapshot.jobs.job_id[row])] = float(self._memo.peak[row])
        return found

    def _quota(self, snapshot: Snapshot, k: int) -> SetQuota:
        """Quota `k` of this cycle with its story."""
        guest, quota = int(self._quotas.guest[k]), float(self._quotas.quota[k])
        where = slice(int(self._quotas.nodes_end[k - 1]) if k else 0, int(self._quotas.nodes_end[k]))
        nodes, cores = self._quotas.nodes[where].tolist(), (self._quotas.held[where] * quota).tolist()
        reason = f"its part of what its nodes lend is {quota:.0%} of its cores"
        return SetQuota(Cause(self.name, reason), guest, tuple(nodes), tuple(cores))

    # ------------------------------------------------------------------------------------------------ what is known

    @property
    def history(self) -> History:
        """What ended jobs say about the next run of their application."""
        return self._learned.history

    def state(self) -> Memory:
        """What is known of every application, as plain data (`asad.share.saved_state`)."""
        return self._learned.state()

    def changes(self) -> Changes:
        """What is known otherwise than when this was asked last, or restored."""
        return self._learned.changes()

    def restore(self, memory: Memory) -> None:
        """Know again what `state` returned."""
        self._learned.restore(memory)

    def _prepare(self, snapshot: Snapshot) -> None:
        """See to it that compiled code holds the tables of this snapshot, most often those of the one before."""
        if snapshot is self._prepared_for:
            return
        self._prepared_for = snapshot
        self._learned.meet()
        tables = (*tables_of(snapshot), self.history, self.options)
        # handing a hundred arrays to compiled code costs more than a cycle in which little has changed
        if all(map(is_, tables, self._tables)):
            return
        self._learned.require_known(snapshot.jobs.application)
        self._tables = tables
        rows, nodes, cores = len(snapshot.jobs.cores), len(snapshot.machine.cores), len(snapshot.core_owner)
        if rows != self._rows or snapshot.machine is not self._machine:
            self._rows, self._machine = rows, snapshot.machine
            self._first = snapshot.machine.first_core
            self._pools = new_pools(nodes, cores, rows)
            self._memo = new_memo(rows, self._experts, self._actions, self._memo)
            self._offers = new_offers(nodes, cores, int(snapshot.machine.cores.max(initial=1)))
            self._quotas = new_quotas(rows, cores)
        self._pools.seen[:] = -1
        self._columns = columns_of(snapshot, self._first)
        self._args = bind(
            self._columns,
            self._pools,
            self.history,
            self.options,
            self._memo,
            self._offers,
            self._quotas,
            self.demand,
            self.run_s,
            self._idle,
        )
