"""What each host lends to the pools of its nodes: drawn from the experts' opinions, and judged by what came of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.capacity import View
from asad.compiling import borrowing, compiled
from asad.experts.compiled import CompiledExperts, evaluate_all
from asad.experts.state import (
    F_CPU,
    F_CPU_P95,
    F_HAPPINESS,
    F_INTERVAL,
    F_LOAD,
    F_MEMORY,
    F_PRESSURE,
    F_STAGE,
)
from asad.share.learner import ASAD, Weights, add_case, draw, meet
from asad.share.pool.cases import Cases, add_to
from asad.share.pool.memo import Memo
from asad.share.pool.pool_options import Options
from asad.share.run_history import History

ONE_CORE = 1.5
"""A job is sequential that keeps no more cores busy."""


@compiled
def draw_shares(
    view: View,
    experts: CompiledExperts,
    weights: Weights,
    history: History,
    o: Options,
    memo: Memo,
    actions: NDArray[np.float64],
    rng: np.random.Generator,
    opinions: NDArray[np.float64],
    cases: Cases,
) -> None:
    """Draw the shares that are due into `memo`, and learn the losses of those before, which become `cases`.

    `opinions` (n, m) is scratch: what each of n experts says of each of m shares.
    """
    load = _load(view)
    for i in range(len(view.running)):
        host = view.running[i]
        if view.c.pace[host] < 1.0:
            memo.slowdown[host] = max(memo.slowdown[host], 1.0 / max(view.c.pace[host], 1e-3) - 1.0)
        # of whom nothing is known no pool lends anything: a share drawn now would be judged by nothing
        if view.c.host_bar[host] or (np.isnan(memo.last_peak[host]) and np.isnan(memo.peak[host])):
            continue
        since = view.now - memo.drawn_at[host]
        first = np.isnan(since)
        sooner = memo.withheld[host] > 0 and since >= o.soonest_redraw_s
        if not (first or since >= o.redraw_s or sooner):
            continue
        row = view.c.application[host]
        if not first:
            # too large a share slows the host down, too small a one withholds what a guest could have used
            loss = min(1.0, max(memo.slowdown[host] / o.full_scale, o.idle_weight * memo.withheld[host]))
            _learn(weights, row, memo.opinion[host], loss, memo.probability[host], o)
            add_to(
                cases,
                host,
                memo.drawn_at[host],
                memo.state[host],
                memo.share[host],
                memo.probability[host],
                loss,
            )
        describe(view, history, memo, host, load, memo.state[host])
        evaluate_all(experts, memo.state[host], opinions, memo.leaf[host])
        meet(weights, row)
        drawn = draw(opinions, weights.alpha[row], o.exploration, memo.mixture[host], rng.random())
        memo.share[host] = actions[drawn]
        memo.drawn_at[host] = view.now
        memo.probability[host] = memo.mixture[host, drawn]
        memo.opinion[host] = opinions[:, drawn]
        memo.slowdown[host] = memo.withheld[host] = 0.0


@compiled
def _learn(
    weights: Weights, row: int, opinion: NDArray[np.float64], loss: float, probability: float, o: Options
) -> None:
    """One case of Algorithm 1, for the host's application and for the cluster; `opinion` (n,) is p_i(a_j)."""
    divisor = probability if o.importance else 1.0
    increments = np.minimum(1.0, opinion * (loss / divisor))
    add_case(weights, row, increments, ASAD, o.most_cases)
    # the last row is the cluster's, from which an application starts that has not been seen
    add_case(weights, len(weights.rounds) - 1, increments, ASAD, o.most_cases)


@borrowing
def _load(view: View) -> float:
    """Cores that batch jobs have and ask for, over those of the cluster."""
    wanted = 0
    for jobs in (view.running, view.queue):
        for i in range(len(jobs)):
            wanted += view.c.cores[jobs[i]]
    return wanted / max(1, len(view.c.core_owner))  # a cluster may have shown no node yet


@borrowing
def describe(
    view: View, history: History, memo: Memo, host: int, load: float, x: NDArray[np.float32]
) -> None:
    """The state of a running job into `x`; what is not known, and what is of a guest, is NaN."""
    c = view.c
    x[:] = np.nan
    cpu = memo.mean[host] if np.isnan(c.cpu_fraction[host]) else c.cpu_fraction[host]
    peak = memo.peak[host] if np.isnan(memo.last_peak[host]) else memo.last_peak[host]
    x[F_CPU] = cpu
    x[F_CPU_P95] = peak
    if not np.isnan(memo.last_peak[host]):
        x[F_STAGE] = 0.0 if memo.last_peak[host] * c.cores[host] <= ONE_CORE and c.cores[host] > 1 else 1.0
    limit = c.limit_end_s[host] - c.start_s[host]
    if limit > 0 and not np.isinf(limit):
        x[F_INTERVAL] = (view.now - c.start_s[host]) / limit
    x[F_HAPPINESS] = happiness(view, history, host)
    x[F_PRESSURE] = np.fmax(c.pressure[host], 1.0 - c.pace[host])  # unknown only where both are
    x[F_LOAD] = load
    node = memo.node[host]
    memory, cores = c.node_memory[node], c.node_first[node + 1] - c.node_first[node]
    if memory > 0:  # never of NaN
        x[F_MEMORY] = min(1.0, c.memory_bytes_per_core[host] * min(cores, c.cores[host]) / memory)


@borrowing
def happiness(view: View, history: History, host: int) -> float:
    """Hp = time to the limit · pace / work left; NaN if its run time cannot be estimated from history or limit."""
    c = view.c
    application = c.application[host]
    if history.runs[application] == 0 or np.isinf(c.limit_end_s[host]) or np.isnan(c.limit_end_s[host]):
        return np.nan
    done = view.now - c.start_s[host] - c.lost_s[host]
    left = history.run[application] / history.runs[application] - done
    if left <= 0:
        return np.nan  # it runs longer than its application did before
    return max(0.0, c.limit_end_s[host] - view.now) * c.pace[host] / left
