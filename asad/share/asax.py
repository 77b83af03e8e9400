"""`asax`: expert decision trees and exponential weights decide how much of a host is lent, and to whom.

Source: the ASAx paper, §3 and Algorithm 1, mended where it leaves things open (docs/explanation/asax.md lists the
points side by side with `asax-paper`, which is the letter). For every waiting job, the widest first:

1. hosts with room: CPU measured, `1 - CPU - headroom` above what they lend already, in time (happiness), not late;
2. the host beside which the job would run fastest; the experts' opinions on the pair, mixed by the weights of the
   host's application; one share drawn among those that leave the job better off than waiting; 0 tries another host;
3. the guest lives in the idle class with the share as a cap; it rises once the job would have started by itself;
4. a window later the loss is seen (the host's slowdown, and idle CPU withheld from the guest), and learned from.

Options: `Options` below. Cost a cycle: O(cores + waiting · hosts with room); a decision takes a few microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import is_
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import borrowing, compiled
from asad.experts import Expert
from asad.experts.compiled import CompiledExperts, compile_experts, evaluate_all, leaf_names
from asad.experts.state import FEATURES
from asad.model import Cause, CoAllocate, Decision, Finished, Machine, SetShare, Snapshot
from asad.share.forecast import best_pairs, foreseeable, outlook
from asad.share.history import (
    History,
    add_ended,
    expected_cpu,
    expected_run,
    longest_run,
    new_history,
    require_known,
    run_deviation,
    shortest_run,
)
from asad.share.kept import Kept, keep
from asad.share.learner import ASAD, Weights, add_case, meet, new_weights
from asad.share.limits import extensions
from asad.share.memory import Memory, fill, grow, to_memory
from asad.share.openings import ROOM, Openings, View, columns_of, find, fit, new_openings, see, take
from asad.share.pair import F_CPU, F_FAIR_SHARE, F_GUEST_CPU, describe, draw, happiness


class Options(NamedTuple):
    """Knobs of the policy. Shares and fractions in [0, 1], times in seconds."""

    headroom: float = 0.1
    """Share of its allocation that a host keeps beyond what it uses."""
    exploration: float = 0.05
    """Chance of a draw that ignores the experts (the floor that importance weighting needs)."""
    importance: bool = True
    """Divide a loss by the chance of its action (EXP4), so that rare actions are judged fairly."""
    idle_weight: float = 0.5
    """Loss of withholding all of a host's CPU from a guest that could have used it."""
    full_scale: float = 0.5
    """Slowdown of the host that counts as a loss of 1 (paper, §4.4)."""
    most_cases: int = 50
    """A round of Algorithm 1 ends after so many cases even if no risk has exceeded 1."""
    tries: int = 3
    """Hosts that one job is tried on in one cycle."""
    patience_s: float = 60.0
    """After a draw of nothing, so long until the next."""
    again_s: float = 30.0
    """After a search in vain for a host, so long until the next."""
    least_happiness: float = 1.05
    """A host whose happiness is known and below this lends nothing more."""
    overhead: float = 0.93
    """Rate to expect of a job beside another, before anything is known."""
    full_rate: float = 0.95
    """Share of its full speed at which a guest is hardly slowed; such jobs are offered hosts before the others."""
    least_rate: float = 0.2
    """No guest is expected to run slower than this."""
    pessimism: float = 2.0
    """Standard deviations of its application's run time by which a guest may run longer than the mean."""
    outlast: float = 1.0
    """A host is expected to run on for this fraction of the time that it has run, unless its application's run times
    promise more."""
    most_losers: float = 0.002
    """While no more than `free_losers` and this part of the jobs that shared have ended late, the policy is bold."""
    free_losers: int = 2
    """Late jobs that are not yet a reason for caution."""
    bold_slack: float = 0.5
    bold_pessimism: float = 0.0
    """`slack` and `pessimism` while it is bold."""
    slack_s: float = 60.0
    slack: float = 0.05
    """A delay of so many seconds, or of this fraction of its response, does not hurt a job."""
    early: float = 0.2
    """Quantile of (real wait / estimated wait) that counts as the wait a job would have had by itself."""
    look_ahead: int = 32
    """Up to so many waiting jobs, all well known, pairs are searched by forecast (`asad.share.forecast`); 0: never."""
    well_known: float = 0.5
    """Standard deviation over mean up to which the run times of an application count as well known."""
    scenarios: int = 3
    """Run times are drawn so many times to forecast with, to tell a good pair from a lucky one."""
    most_stretch: float = 2.0
    """No guest of a forecast pair is expected to take longer than so many times its run time alone."""
    stretch_weight: float = 3.0
    """Cost of a second that lending takes from a guest, against a second of anybody's response."""
    makespan_weight: float = 5.0
    """Cost of a second of the last end, against the same."""
    burst: float = 2.0
    """Cap of a guest over the CPU that it uses on the mean: a job that computes in bursts is slowed by a tight one."""
    least_gain_s: float = 60.0
    """Job-seconds that a pair has to save to be worth it."""
    poll_s: float = 30.0
    """Interval of the cycle."""


class Memo(NamedTuple):
    """What is remembered of single jobs, by row."""

    ceiling: NDArray[np.float64]
    """Share of a host that may be lent in all; 0 if not measured."""
    ceiling_at: NDArray[np.float64]
    """When that was reckoned."""
    own_start: NDArray[np.float64]
    """When a guest would have started by itself."""
    retry_at: NDArray[np.float64]
    first_seen: NDArray[np.float64]
    first_estimate: NDArray[np.float64]
    """When a waiting job was first given an estimated start, and which."""
    decided_at: NDArray[np.float64]
    """When the last share of a guest was decided, NaN once its loss is learned."""
    action: NDArray[np.int32]
    probability: NDArray[np.float64]
    opinion: NDArray[np.float64]
    """(rows, n) p_i(a_j) of that decision."""
    raise_share: NDArray[np.bool_]
    """Its share was too small for it: draw a greater one."""
    guest_room: NDArray[np.float64]
    """Share that a guest's nodes could lend it beyond what it has."""
    counted: NDArray[np.bool_]
    """Its own start has been compared with its first estimate."""
    shared: NDArray[np.bool_]
    """It was a guest or a host."""
    submit: NDArray[np.float64]
    """Submission of the job that the rest of the row is about: rows are used again."""
    tally: NDArray[np.int64]
    """[ended jobs that shared, those of them that ended later than by themselves]"""
    early: NDArray[np.float64]
    """(SIZES, 2) by size class: quantile of real wait over estimated wait, number of jobs behind it."""


class Out(NamedTuple):
    """Decisions of one cycle, in columns."""

    guest: NDArray[np.int32]
    host: NDArray[np.int32]
    share: NDArray[np.float64]
    nodes_end: NDArray[np.int32]
    nodes: NDArray[np.int32]
    rate: NDArray[np.float64]
    guest_end: NDArray[np.float64]
    wait_end: NDArray[np.float64]
    probability: NDArray[np.float64]
    mixture: NDArray[np.float64]
    leaf: NDArray[np.int32]
    alpha: NDArray[np.float64]
    x: NDArray[np.float32]
    new: NDArray[np.bool_]


SIZES = 8
"""Size classes of jobs, by powers of two of their part of the cluster."""
HOSTS = 24
"""Hosts that are looked at for one job in one search: the first that are large enough."""
MOST = 512
"""Decisions of one cycle at the most; the rest waits for the next."""


@borrowing
def _ceilings(view: View, history: History, o: Options, memo: Memo, forecast: bool) -> None:
    """How much jobs that may hold whole nodes may lend: what CPU use and headroom leave, nothing if they are late.

    Where forecasts see late jobs through, those may lend too, and what is not measured yet is taken from history.
    """
    for node in range(len(view.node_first) - 1):
        host = view.core_owner[view.node_first[node]]
        if host < 0 or memo.ceiling_at[host] == view.now:
            continue
        memo.ceiling_at[host] = view.now
        memo.ceiling[host] = 0.0
        cpu = view.cpu[host]
        if np.isnan(cpu) and forecast:
            cpu = expected_cpu(history, view.application[host])
        if view.host_bar[host] or np.isnan(cpu):
            continue
        if not forecast and view.start[host] > _own_start(view, host, memo) + o.poll_s:
            continue  # late already, or may be, and shall not be made later
        ceiling = 1.0 - cpu - o.headroom
        if ceiling > 0 and not happiness(view, history, host) < o.least_happiness:
            memo.ceiling[host] = ceiling


@compiled
def _learn_case(
    weights: Weights,
    application: int,
    opinion: NDArray[np.float64],
    loss: float,
    probability: float,
    o: Options,
) -> None:
    """One case of Algorithm 1, for the host's application and for the cluster."""
    divisor = probability if o.importance else 1.0
    increments = np.minimum(1.0, opinion * (loss / divisor))
    add_case(weights, application, increments, ASAD, o.most_cases)
    add_case(weights, len(weights.rounds) - 1, increments, ASAD, o.most_cases)


@compiled
def _feedback(view: View, weights: Weights, o: Options, memo: Memo) -> None:
    """Learn what the shares decided in earlier cycles have done to their hosts and guests."""
    for i in range(len(view.guests)):
        guest = view.guests[i]
        host = view.host[guest]
        if np.isnan(memo.decided_at[guest]) or memo.decided_at[guest] >= view.now:
            continue
        memo.decided_at[guest] = np.nan
        if host < 0 or np.isnan(view.share[guest]):
            continue
        slowdown = max(0.0, 1.0 / max(view.pace[host], 1e-3) - 1.0) / o.full_scale
        withheld = 0.0
        if view.pace[guest] < o.overhead - 0.02:
            withheld = max(0.0, memo.guest_room[guest])
        loss = min(1.0, slowdown + o.idle_weight * withheld)
        _learn_case(weights, view.application[host], memo.opinion[guest], loss, memo.probability[guest], o)
        memo.raise_share[guest] = withheld >= 0.1 - ROOM


@borrowing
def _size_class(view: View, job: int) -> int:
    """0 for jobs of more than half of the cluster, 1 for more than a quarter, and so on."""
    return int(min(SIZES - 1, np.log2(len(view.core_owner) / view.cores[job])))


@borrowing
def _watch_starts(view: View, o: Options, memo: Memo) -> None:
    """Track how early jobs start by themselves against the twin's first estimate.

    A running quantile for each size class, by stochastic approximation; each job counts once. Small jobs are
    backfilled long before their estimate, large ones hardly.
    """
    for rows in (view.queue, view.guests, view.running):
        for i in range(len(rows)):
            job = rows[i]
            if memo.counted[job] or np.isnan(memo.first_estimate[job]) or np.isnan(view.own_start[job]):
                continue
            memo.counted[job] = True
            estimated = memo.first_estimate[job] - memo.first_seen[job]
            if estimated >= 60.0:
                ratio = (view.own_start[job] - memo.first_seen[job]) / estimated
                early = memo.early[_size_class(view, job)]
                early[1] += 1
                step = max(0.005, 1.0 / (10.0 + early[1]))
                early[0] += step * (o.early - (1.0 if ratio < early[0] else 0.0))
                early[0] = min(1.0, max(0.0, early[0]))


@borrowing
def _guest_rooms(view: View, openings: Openings, memo: Memo) -> None:
    """For every guest, the share that its tightest node could still lend it."""
    for i in range(len(view.guests)):
        memo.guest_room[view.guests[i]] = np.inf
    for node in range(len(view.node_first) - 1):
        for core in range(view.node_first[node], view.node_first[node + 1]):
            guest = view.core_guest[core]
            if guest >= 0:
                room = openings.room[node] if openings.holder[node] >= 0 else 0.0
                memo.guest_room[guest] = min(memo.guest_room[guest], room)


@borrowing
def _left(view: View, history: History, o: Options, host: int) -> float:
    """How long a host will probably run on (s), and no longer than its limit allows.

    What its application's shortest runs leave, or a part of the time that it has run: the longer a job has run, the
    longer it runs on.
    """
    done = view.now - view.start[host] - view.lost[host]
    left = max(shortest_run(history, view.application[host], 1.0) - done, o.outlast * done)
    return min(left, view.limit_end[host] - view.now)


@borrowing
def _or_never(time: float) -> float:
    return np.inf if np.isnan(time) else time


@compiled
def _revise(
    view: View,
    openings: Openings,
    experts: CompiledExperts,
    weights: Weights,
    history: History,
    o: Options,
    memo: Memo,
    actions: NDArray[np.float64],
    load: float,
    rng: np.random.Generator,
    out: Out,
) -> int:
    """Shares of running guests: anew beside a new host, greater where too small or where their own time has come."""
    n, m = weights.alpha.shape[1], len(actions)
    p = np.empty((n, m))
    leaf = np.empty(n, np.int32)
    allowed = np.empty(m, np.bool_)
    x = np.full(out.x.shape[1], np.nan, np.float32)
    x[F_FAIR_SHARE] = 0.5
    count = 0
    for i in range(len(view.guests)):
        guest = view.guests[i]
        host = view.host[guest]
        if host < 0 or count == MOST or view.pace[guest] >= 1.0 or np.isnan(view.cpu[host]):
            continue
        share = view.share[guest]
        undecided = np.isnan(share) or share <= ROOM  # it was relieved of its share for a while
        held = 1.0 if np.isnan(share) else share
        most = memo.guest_room[guest] + held
        most = min(most, 1.0 - view.cpu[host] - o.headroom)  # its nodes may have several holders
        own_time = view.now >= min(memo.own_start[guest], _or_never(view.own_start[guest]))
        floor = 0.0 if undecided else share
        if own_time:
            floor = max(floor, min(0.5, np.floor((most + ROOM) * 10) / 10))
        if undecided:
            if memo.ceiling[host] <= 0 or most < 0.1 - ROOM:
                continue
        elif not memo.raise_share[guest] and floor <= share + ROOM:
            continue
        memo.raise_share[guest] = False
        if most < floor - ROOM or (not undecided and most < share + 0.1 - ROOM):
            continue
        for j in range(m):
            allowed[j] = actions[j] > 0 and actions[j] <= most + ROOM and actions[j] >= floor - ROOM
            if not undecided and actions[j] <= share + ROOM:
                allowed[j] = False
        if not allowed.any():
            continue
        node = 0
        for core in range(len(view.core_guest)):
            if view.core_guest[core] == guest:
                node = int(np.searchsorted(view.node_first, core, side="right")) - 1
                break
        describe(view, history, host, guest, load, node, x)
        evaluate_all(experts, x, p, leaf)
        row = view.application[host]
        meet(weights, row)
        drawn = draw(p, weights.alpha[row], allowed, o.exploration, out.mixture[count], rng.random())
        _note(view, weights, memo, out, count, guest, host, drawn, actions, p, leaf, x)
        out.new[count] = False
        out.nodes_end[count] = out.nodes_end[count - 1] if count > 0 else 0
        for core in range(len(view.core_guest)):  # later guests of the same nodes find that taken
            if view.core_guest[core] == guest:
                other = np.searchsorted(view.node_first, core, side="right") - 1
                if core == view.node_first[other] or view.core_guest[core - 1] != guest:
                    openings.room[other] -= actions[drawn] - held
        count += 1
    return count


@compiled
def _note(
    view: View,
    weights: Weights,
    memo: Memo,
    out: Out,
    k: int,
    guest: int,
    host: int,
    drawn: int,
    actions: NDArray[np.float64],
    p: NDArray[np.float64],
    leaf: NDArray[np.int32],
    x: NDArray[np.float32],
) -> None:
    out.guest[k], out.host[k], out.share[k] = guest, host, actions[drawn]
    out.probability[k] = out.mixture[k, drawn]
    out.leaf[k] = leaf
    out.alpha[k] = weights.alpha[view.application[host]]
    out.x[k] = x
    memo.decided_at[guest] = view.now
    memo.action[guest] = drawn
    memo.probability[guest] = out.mixture[k, drawn]
    memo.opinion[guest] = p[:, drawn]


@borrowing
def _promise(
    view: View,
    openings: Openings,
    memo: Memo,
    out: Out,
    k: int,
    used: int,
    rate: float,
    guest_end: float,
    own_start: float,
    run: float,
) -> None:
    """Decision `k` is an offer on the first `used` of `openings.chosen`, for what is expected of it."""
    guest = out.guest[k]
    out.new[k] = True
    out.rate[k], out.guest_end[k], out.wait_end[k] = rate, guest_end, own_start + run
    begin = out.nodes_end[k - 1] if k > 0 else 0
    for i in range(used):
        out.nodes[begin + i] = openings.chosen[i]
    out.nodes_end[k] = begin + used
    memo.own_start[guest] = own_start
    memo.retry_at[guest] = np.inf  # it has its offer
    take(view, openings, guest, used, out.share[k])


class Prospect(NamedTuple):
    """What is expected of one waiting job (s; CPU as a fraction of its allocation)."""

    run: float
    longest: float
    """Run time that it seldom exceeds."""
    cpu: float
    wait: float
    """Until it starts by waiting on."""
    spare: float
    """How much later than by itself it may end without being worse off, counted from a start now."""


@borrowing
def _prospect(view: View, history: History, o: Options, memo: Memo, guest: int) -> Prospect:
    """What to expect of a waiting job; `spare` is negative for one that is not to be offered anything."""
    estimate = view.estimate[guest]
    nothing = Prospect(0.0, 0.0, 1.0, 0.0, -1.0)
    if np.isnan(estimate) or np.isnan(view.limit[guest]) or view.now < memo.retry_at[guest]:
        return nothing
    if view.guest_bar[guest]:
        return nothing
    if np.isnan(memo.first_estimate[guest]) and not np.isnan(view.own_estimate[guest]):
        memo.first_estimate[guest], memo.first_seen[guest] = view.own_estimate[guest], view.own_known
    application, limit = view.application[guest], view.limit[guest]
    run = expected_run(history, application, limit)
    if np.isnan(run):
        return nothing
    longest = max(run, longest_run(history, application, limit, o.pessimism))
    if np.isnan(view.own_start[guest]) and np.isnan(view.own_estimate[guest]):
        longest = limit  # it may have started at once: the cost of sharing alone would make a long one late
    wait = max(0.0, estimate - view.now) * memo.early[_size_class(view, guest), 0]
    own = _own_start(view, guest, memo)
    spare = max(o.slack_s, o.slack * (own - view.submit[guest] + longest)) + own - view.now
    return Prospect(run, longest, max(0.01, expected_cpu(history, application)), wait, spare)


@borrowing
def _own_start(view: View, guest: int, memo: Memo) -> float:
    """When a job would start, or would have started, by itself; rather too early than too late."""
    if not np.isnan(view.own_start[guest]):
        return view.own_start[guest]
    if not np.isnan(view.own_estimate[guest]):  # as far as is known, it still waits there
        known = view.own_known
        return known + memo.early[_size_class(view, guest), 0] * max(0.0, view.own_estimate[guest] - known)
    return view.submit[guest]  # nothing is known yet: it may have started at once


@borrowing
def _leftover(view: View, history: History, host: int, guest: int) -> float:
    """CPU that the jobs at the head of the queue will leave on the host's cores when they take its place."""
    least = 1.0
    cores = 0
    for i in range(len(view.queue)):
        job = view.queue[i]
        if job == guest or view.host[job] >= 0:
            continue
        least = min(least, 1.0 - expected_cpu(history, view.application[job]))
        cores += view.cores[job]
        if cores >= view.cores[host]:
            break
    return max(0.02, least)


@borrowing
def _duration(run: float, rate: float, left_s: float, after: float) -> float:
    """How long a guest takes for `run` seconds of work if its host runs on for `left_s`."""
    if run <= rate * left_s:
        return run / rate
    return left_s + (run - rate * left_s) / min(rate, after)


@borrowing
def _best_host(
    view: View,
    openings: Openings,
    history: History,
    o: Options,
    guest: int,
    job: Prospect,
    least_rate: float,
    left_s: NDArray[np.float64],
    tried: NDArray[np.int32],
    attempt: int,
) -> int:
    """Place in `openings.hosts` of the host beside which the job runs fastest, and packs tightest; -1 for none."""
    best = -1
    best_rate = 0.0
    best_left = np.inf
    looked = 0
    for k in range(openings.found[0]):
        if openings.open_total[k] < view.cores[guest]:
            continue
        if view.share_group[openings.hosts[k]] != view.share_group[guest]:
            continue
        if view.memory_bound[openings.hosts[k]] and view.memory_bound[guest]:
            continue
        again = False
        for before in range(attempt):
            again = again or tried[before] == k
        if again:
            continue
        if looked == HOSTS:
            break
        looked += 1
        used, room, ratio = fit(view, openings, openings.hosts[k], guest, 0.1, job.cpu)
        if used == 0:
            continue
        rate = o.overhead * min(1.0, np.floor((room + ROOM) * 10) / 10 * ratio / job.cpu)
        if rate < least_rate - ROOM:
            continue
        if job.run > rate * left_s[k]:  # it outlasts the host
            after = min(1.0, _leftover(view, history, openings.hosts[k], guest) / job.cpu)
            rate = job.run / _duration(job.run, rate, left_s[k], after)
        left = openings.open_total[k] - view.cores[guest]
        if rate > best_rate + ROOM or (rate > best_rate - ROOM and left < best_left):
            best, best_rate, best_left = k, rate, left
    return best


@borrowing
def _allow(
    actions: NDArray[np.float64],
    room: float,
    ratio: float,
    o: Options,
    job: Prospect,
    least_rate: float,
    left_s: float,
    after: float,
    steady: bool,
    allowed: NDArray[np.bool_],
) -> bool:
    """Which shares leave the job better off than waiting, and no worse off than by itself; is there one above 0?"""
    some = False
    for j in range(len(actions)):
        rate = o.overhead * min(1.0, actions[j] * ratio / job.cpu)
        allowed[j] = actions[j] <= room + ROOM and (
            actions[j] == 0
            or (
                rate >= least_rate - ROOM
                and (job.longest <= rate * left_s or steady)
                and _duration(job.longest, rate, left_s, after) - job.longest < job.spare
                and _duration(job.run, rate, left_s, after) - job.run < job.wait
            )
        )
        some = some or (allowed[j] and actions[j] > 0)
    return some


@compiled
def _offer(
    view: View,
    openings: Openings,
    experts: CompiledExperts,
    weights: Weights,
    history: History,
    o: Options,
    memo: Memo,
    actions: NDArray[np.float64],
    load: float,
    rng: np.random.Generator,
    out: Out,
    count: int,
) -> int:
    """Waiting jobs beside running ones; how many decisions there are now.

    First those that would hardly be slowed, then the others; of each the widest first. Bold as long as few of the jobs
    that shared have ended late, else careful.
    """
    n, m = weights.alpha.shape[1], len(actions)
    p = np.empty((n, m))
    leaf = np.empty(n, np.int32)
    allowed = np.empty(m, np.bool_)
    x = np.full(out.x.shape[1], np.nan, np.float32)
    x[F_FAIR_SHARE] = 0.5
    tried = np.empty(o.tries, np.int32)
    left_s = np.zeros(openings.found[0])
    most_open = 0
    bold = memo.tally[1] <= o.free_losers + o.most_losers * memo.tally[0]
    order = np.argsort(-view.cores[view.queue], kind="mergesort")  # the widest first
    for k in range(openings.found[0]):
        most_open = max(most_open, openings.open_total[k])
    due = 0
    for i in range(len(view.queue)):
        guest = view.queue[i]
        if (
            view.now >= memo.retry_at[guest]
            and view.cores[guest] <= most_open
            and not np.isnan(view.estimate[guest])
        ):
            due += 1
    if due == 0:
        return count
    for k in range(openings.found[0]):
        left_s[k] = _left(view, history, o, openings.hosts[k])
    for least_rate in (o.full_rate * o.overhead, o.least_rate):
        last = least_rate == o.least_rate
        for i in order:
            guest = view.queue[i]
            if view.now < memo.retry_at[guest] or view.cores[guest] > most_open or view.host[guest] >= 0:
                continue
            if count == MOST:
                break
            job = _prospect(view, history, o, memo, guest)
            if job.spare <= 0:
                continue
            drawn_nothing = False
            done = False
            for attempt in range(o.tries):
                k = _best_host(view, openings, history, o, guest, job, least_rate, left_s, tried, attempt)
                if k < 0:
                    break
                tried[attempt] = k
                host = openings.hosts[k]
                used, room, ratio = fit(view, openings, host, guest, 0.1, job.cpu)
                after = min(1.0, _leftover(view, history, host, guest) / job.cpu)
                if not _allow(actions, room, ratio, o, job, least_rate, left_s[k], after, bold, allowed):
                    break  # no other host would make it faster
                describe(view, history, host, guest, load, openings.chosen[0], x)
                evaluate_all(experts, x, p, leaf)
                row = view.application[host]
                meet(weights, row)
                drawn = draw(p, weights.alpha[row], allowed, o.exploration, out.mixture[count], rng.random())
                if actions[drawn] == 0:
                    loss = o.idle_weight * min(1.0, room)
                    _learn_case(weights, row, p[:, drawn].copy(), loss, out.mixture[count, drawn], o)
                    drawn_nothing = True
                    continue
                rate = o.overhead * min(1.0, actions[drawn] * ratio / job.cpu)
                _note(view, weights, memo, out, count, guest, host, drawn, actions, p, leaf, x)
                guest_end = view.now + _duration(job.run, rate, left_s[k], after)
                _promise(
                    view, openings, memo, out, count, used, rate, guest_end, view.now + job.wait, job.run
                )
                openings.open_total[k] -= view.cores[guest]
                count += 1
                done = True
                break
            if drawn_nothing and not done:
                memo.retry_at[guest] = view.now + o.patience_s
            elif last and not done:
                memo.retry_at[guest] = view.now + o.again_s
    return count


@compiled
def _offer_by_forecast(
    view: View,
    openings: Openings,
    experts: CompiledExperts,
    weights: Weights,
    history: History,
    o: Options,
    memo: Memo,
    actions: NDArray[np.float64],
    load: float,
    rng: np.random.Generator,
    out: Out,
    count: int,
) -> int:
    """Waiting jobs beside running ones, in the pairs whose forecast is best; how many decisions there are now.

    Of every pair with a host that runs already, the share is drawn among those that hardly slow the guest more than
    the greatest that its host has room for.
    """
    due = False
    for i in range(len(view.queue)):
        due = due or (view.host[view.queue[i]] < 0 and memo.retry_at[view.queue[i]] < np.inf)
    if not due:
        return count
    n, m = weights.alpha.shape[1], len(actions)
    p = np.empty((n, m))
    leaf = np.empty(n, np.int32)
    allowed = np.empty(m, np.bool_)
    x = np.full(out.x.shape[1], np.nan, np.float32)
    x[F_FAIR_SHARE] = 0.5
    a = outlook(view, openings, history, o.overhead, o.headroom, o.poll_s)
    running, waiting = len(a.run_end), len(a.wait_run)
    deviation = np.zeros(running + waiting)
    for k in range(running + waiting):
        application = view.application[a.rows[k]]
        mean = history.run[application] / history.runs[application]
        deviation[k] = max(LEAST_DEVIATION * mean, run_deviation(history, application))
    for i in range(waiting):
        a.joins[i] = a.joins[i] and memo.retry_at[a.rows[running + i]] < np.inf
    beside = np.zeros(waiting, np.int32)
    alone_end, end = np.zeros(waiting), np.zeros(waiting)
    best_pairs(
        a,
        deviation,
        o.scenarios,
        o.most_stretch,
        o.stretch_weight,
        o.makespan_weight,
        o.least_gain_s,
        o.slack_s,
        rng,
        beside,
        alone_end,
        end,
    )
    for i in range(waiting):
        if beside[i] < 0 or beside[i] >= running or count == MOST:
            continue
        guest, host, cpu = a.rows[running + i], a.rows[beside[i]], a.cpu[running + i]
        used, room, ratio = fit(view, openings, host, guest, 0.1, cpu)
        if used == 0:
            continue
        most = 0.0
        for j in range(m):
            if actions[j] <= room + ROOM:
                most = max(most, actions[j])
        for j in range(m):
            wanted = min(most, o.burst * cpu / ratio)
            allowed[j] = 0 < actions[j] <= room + ROOM and actions[j] >= o.full_rate * wanted - ROOM
        if not allowed.any():
            continue
        describe(view, history, host, guest, load, openings.chosen[0], x)
        evaluate_all(experts, x, p, leaf)
        row = view.application[host]
        meet(weights, row)
        drawn = draw(p, weights.alpha[row], allowed, o.exploration, out.mixture[count], rng.random())
        _note(view, weights, memo, out, count, guest, host, drawn, actions, p, leaf, x)
        rate = o.overhead * min(1.0, actions[drawn] * ratio / cpu)
        run = a.wait_run[i]
        _promise(view, openings, memo, out, count, used, rate, end[i], alone_end[i] - run, run)
        count += 1
    return count


LEAST_DEVIATION = 0.1
"""Run times deviate by at least this part of their mean: few runs may have been alike by chance."""


@borrowing
def _meet_jobs(view: View, o: Options, memo: Memo) -> None:
    """Forget what is remembered of a row's former job; a waiting job whose offer came to nothing may have another."""
    for rows in (view.queue, view.running, view.guests):
        for i in range(len(rows)):
            job = rows[i]
            if memo.submit[job] != view.submit[job]:
                memo.submit[job] = view.submit[job]
                memo.ceiling_at[job] = np.nan
                memo.own_start[job] = np.inf
                memo.retry_at[job] = -np.inf
                memo.first_seen[job] = np.nan
                memo.first_estimate[job] = np.nan
                memo.decided_at[job] = np.nan
                memo.raise_share[job] = False
                memo.counted[job] = False
                memo.shared[job] = False
    for i in range(len(view.queue)):
        job = view.queue[i]
        if memo.retry_at[job] == np.inf and view.host[job] < 0:
            memo.retry_at[job] = view.now + o.patience_s


@borrowing
def _count_losers(
    view: View,
    o: Options,
    memo: Memo,
    rows: NDArray[np.int32],
    end_s: NDArray[np.float64],
    run_s: NDArray[np.float64],
    lost_s: NDArray[np.float64],
) -> None:
    """Tell late jobs from others among those that shared, by the starts of the twin, as a report does.

    Where it is not known yet when one would have started by itself, that counts which is rather too early.
    """
    for i in range(len(rows)):
        row = rows[i]
        if memo.shared[row]:
            own_end = _own_start(view, row, memo) + run_s[i] - lost_s[i]
            memo.tally[0] += 1
            if end_s[i] - own_end > np.maximum(o.slack_s, o.slack * (own_end - view.submit[row])):
                memo.tally[1] += 1
    for i in range(len(view.guests)):
        guest = view.guests[i]
        memo.shared[guest] = True
        if view.host[guest] >= 0:
            memo.shared[view.host[guest]] = True


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
    columns, openings, _, weights, history, o, memo, _, _, _ = kept.all
    view = see(columns, now, own_known, queue, running, guests)
    _meet_jobs(view, o, memo)
    add_ended(history, view.application, view.limit, rows, run_s, lost_s, cpu)
    _count_losers(view, o, memo, rows, end_s, run_s, lost_s)
    _ceilings(view, history, o, memo, foreseeable(view, history, o.look_ahead, o.well_known))
    find(view, memo.ceiling, 0.1, openings)
    if len(guests):
        _guest_rooms(view, openings, memo)
        _feedback(view, weights, o, memo)
    _watch_starts(view, o, memo)


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
    columns, openings, experts, weights, history, o, memo, actions, rng, out = kept.all
    view = see(columns, now, own_known, queue, running, guests)
    count = 0
    offering = len(queue) > 0 and openings.found[0] > 0
    if len(guests) or offering:
        wanted = 0
        for jobs in (running, queue):
            for i in range(len(jobs)):
                wanted += view.cores[jobs[i]]
        load = wanted / len(view.core_owner)
        if len(guests):
            count = _revise(view, openings, experts, weights, history, o, memo, actions, load, rng, out)
        if offering and foreseeable(view, history, o.look_ahead, o.well_known):
            count = _offer_by_forecast(
                view, openings, experts, weights, history, o, memo, actions, load, rng, out, count
            )
        elif offering:
            count = _offer(view, openings, experts, weights, history, o, memo, actions, load, rng, out, count)
    wake = np.inf
    for i in range(len(guests)):
        if memo.own_start[guests[i]] > now:
            wake = min(wake, memo.own_start[guests[i]])
    return count, wake


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
        self._known: Memo | None = None
        self._tables: tuple[object, ...] = (None,)
        self._early = np.tile((0.5, 0.0), (SIZES, 1))
        self._tally = np.zeros(2, np.int64)
        self._wake_s = math.inf

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
        rows, nodes = len(snapshot.jobs.cores), len(snapshot.machine.cores)
        n, m = len(self.experts), len(self.actions)
        if rows != self._rows or snapshot.machine is not self._machine:
            known, self._rows, self._machine = self._known, rows, snapshot.machine
            self._openings = new_openings(nodes, rows)
            self._first = snapshot.machine.first_core
            self._memo = Memo(
                ceiling=np.zeros(rows),
                ceiling_at=np.full(rows, np.nan),
                own_start=np.full(rows, np.inf),
                retry_at=np.full(rows, -np.inf),
                first_seen=np.full(rows, np.nan),
                first_estimate=np.full(rows, np.nan),
                decided_at=np.full(rows, np.nan),
                action=np.zeros(rows, np.int32),
                probability=np.ones(rows),
                opinion=np.zeros((rows, n)),
                raise_share=np.zeros(rows, np.bool_),
                guest_room=np.zeros(rows),
                counted=np.zeros(rows, np.bool_),
                shared=np.zeros(rows, np.bool_),
                submit=np.full(rows, np.nan),
                tally=self._tally,
                early=self._early,
            )
            if known is not None:
                for name in Memo._fields:
                    old, new = getattr(known, name), getattr(self._memo, name)
                    new[: len(old)] = old[: len(new)]
            self._known = self._memo
            self._out = Out(
                guest=np.zeros(MOST, np.int32),
                host=np.zeros(MOST, np.int32),
                share=np.zeros(MOST),
                nodes_end=np.zeros(MOST, np.int32),
                nodes=np.zeros(len(snapshot.core_owner) + nodes, np.int32),
                rate=np.zeros(MOST),
                guest_end=np.zeros(MOST),
                wait_end=np.zeros(MOST),
                probability=np.zeros(MOST),
                mixture=np.zeros((MOST + 1, m)),
                leaf=np.zeros((MOST, n), np.int32),
                alpha=np.zeros((MOST, n)),
                x=np.zeros((MOST, len(FEATURES)), np.float32),
                new=np.zeros(MOST, np.bool_),
            )
        o = self.options
        bold = o._replace(slack=o.bold_slack, pessimism=o.bold_pessimism)
        self._careful, self._bold = (
            keep(
                columns_of(snapshot, self._first),
                self._openings,
                self.compiled,
                self.weights,
                self.history,
                options,
                self._memo,
                self.actions,
                self.rng,
                self._out,
            )
            for options in (o, bold)
        )

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

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """Losses of earlier decisions, run times and CPU use of ended jobs, and how early jobs start."""
        self._prepare(snapshot)
        _learn(
            self._careful,
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
        o = self.options
        self._prepare(snapshot)
        bold = self._memo.tally[1] <= o.free_losers + o.most_losers * self._memo.tally[0]
        decisions, limits_s = extensions(snapshot, self.name, o.poll_s)
        kept = self._bold if bold else self._careful
        count, own_s = _decide(
            kept,
            snapshot.time_s,
            snapshot.own_known_s,
            snapshot.queue,
            snapshot.running,
            snapshot.guests,
        )
        decisions += [self._decision(snapshot, k) for k in range(count)]
        self.decided += count
        self._wake_s = min(own_s, limits_s)
        return decisions

    def wake_s(self) -> float:
        """When the next guest's own time comes or the next limit has to move."""
        return self._wake_s

    def _decision(self, snapshot: Snapshot, k: int) -> Decision:
        """Decision `k` of this cycle, with its story."""
        out = self._out
        guest, host, share = int(out.guest[k]), int(out.host[k]), float(out.share[k])
        detail = {
            "chance": round(float(out.probability[k]), 4),
            "mixture": out.mixture[k].round(4).tolist(),
            "weights": dict(zip((e.name for e in self.experts), out.alpha[k].round(4).tolist(), strict=True)),
            "leaves": {
                e.name: self.leaf_names[leaf]
                for e, leaf in zip(self.experts, out.leaf[k].tolist(), strict=True)
            },
            "host_cpu": round(float(out.x[k, F_CPU]), 4),
            "guest_cpu": round(float(out.x[k, F_GUEST_CPU]), 4),
        }
        host_id = snapshot.jobs.job_id[host]
        if not out.new[k]:
            reason = f"its share of job {host_id} is now {share:.0%}"
            return SetShare(Cause(self.name, reason, detail), guest, share)
        detail["rate"] = round(float(out.rate[k]), 4)
        detail["guest_end_s"], detail["wait_end_s"] = float(out.guest_end[k]), float(out.wait_end[k])
        sooner = float(out.wait_end[k] - out.guest_end[k])
        reason = (
            f"job {host_id} leaves CPU idle; beside it with {share:.0%} it should end {sooner:.0f} s sooner"
        )
        begin = int(out.nodes_end[k - 1]) if k else 0
        nodes = tuple(out.nodes[begin : out.nodes_end[k]].tolist())
        return CoAllocate(Cause(self.name, reason, detail), guest, host, nodes, share)
