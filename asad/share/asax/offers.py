"""Waiting jobs beside running ones, pair by pair: the widest first, each beside the host where it runs fastest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.compiling import borrowing, compiled
from asad.experts.compiled import CompiledExperts
from asad.share.asax.losses import learn_case
from asad.share.asax.memo import Memo
from asad.share.asax.options import Options
from asad.share.asax.prospects import Prospect, duration, host_left, prospect, rate_after, rate_beside
from asad.share.asax.shares import MOST, Out, choose, new_choice, note, promise
from asad.share.history import History
from asad.share.learner import Weights
from asad.share.openings import ROOM, Openings, View, fit
from asad.share.pair import may_share

HOSTS = 24
"""Hosts that are looked at for one job in one search: the first that are large enough."""


@compiled
def offer(
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
    bold: bool,
) -> int:
    """Offer waiting jobs a share beside running ones; how many decisions there are now.

    First those that would hardly be slowed, then the others; of each the widest first. A bold policy trusts a host to
    run on for as long as the guest needs it.
    """
    most_open = 0
    for k in range(openings.found[0]):
        most_open = max(most_open, openings.open_total[k])
    if not _anyone_due(view, memo, most_open):
        return count
    choice = new_choice(weights.alpha.shape[1], len(actions))
    tried = np.empty(o.tries, np.int32)
    left_s = np.zeros(openings.found[0])
    for k in range(openings.found[0]):
        left_s[k] = host_left(view, history, o, openings.hosts[k])
    order = np.argsort(-view.cores[view.queue], kind="mergesort")  # the widest first
    for least_rate in (o.full_rate * o.overhead, o.least_rate):
        last = least_rate == o.least_rate
        for i in order:
            guest = view.queue[i]
            if view.now < memo.retry_at[guest] or view.cores[guest] > most_open or view.host[guest] >= 0:
                continue
            if count == MOST:
                break
            job = prospect(view, history, o, memo, guest)
            if job.spare <= 0:
                continue
            pause_s = o.again_s if last else 0.0
            for attempt in range(o.tries):
                k = _best_host(view, openings, history, o, guest, job, least_rate, left_s, tried[:attempt])
                if k < 0:
                    break
                tried[attempt] = k
                host = openings.hosts[k]
                used, room, ratio = fit(view, openings, host, guest, 0.1, job.cpu)
                after = rate_after(view, history, host, guest, job.cpu)
                if not _allow(
                    actions, room, ratio, o, job, least_rate, left_s[k], after, bold, choice.allowed
                ):
                    break  # no other host would make it faster
                drawn = choose(
                    view,
                    experts,
                    weights,
                    history,
                    o.exploration,
                    load,
                    guest,
                    host,
                    openings.chosen[0],
                    rng.random(),
                    choice,
                    out.mixture[count],
                )
                share = actions[drawn]
                if share == 0:
                    loss = o.idle_weight * min(1.0, room)
                    opinion, chance = choice.p[:, drawn].copy(), out.mixture[count, drawn]
                    learn_case(weights, view.application[host], opinion, loss, chance, o)
                    pause_s = o.patience_s
                    continue
                note(view, weights, memo, out, count, guest, host, drawn, share, choice)
                rate = rate_beside(o, share, ratio, job.cpu)
                guest_end = view.now + duration(job.run, rate, left_s[k], after)
                own_start = view.now + job.wait
                promise(view, openings, memo, out, count, used, rate, guest_end, own_start, job.run)
                openings.open_total[k] -= view.cores[guest]
                count += 1
                break
            memo.retry_at[guest] = max(memo.retry_at[guest], view.now + pause_s)  # inf once it has its offer
    return count


@borrowing
def _anyone_due(view: View, memo: Memo, most_open: int) -> bool:
    """Is there a waiting job to look at now, of no more cores than a host has open?"""
    for i in range(len(view.queue)):
        job = view.queue[i]
        if (
            view.now >= memo.retry_at[job]
            and view.cores[job] <= most_open
            and not np.isnan(view.estimate[job])
        ):
            return True
    return False


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
) -> int:
    """Place in `openings.hosts` of the host beside which the job runs fastest, and packs tightest; -1 for none.

    `left_s` (hosts,) is how long each will run on; those in `tried` are passed over.
    """
    best = -1
    best_rate = 0.0
    best_left = np.inf
    looked = 0
    for k in range(openings.found[0]):
        host = openings.hosts[k]
        if openings.open_total[k] < view.cores[guest]:
            continue
        if not may_share(view, host, guest):
            continue
        again = False
        for before in tried:
            again = again or before == k
        if again:
            continue
        if looked == HOSTS:
            break
        looked += 1
        used, room, ratio = fit(view, openings, host, guest, 0.1, job.cpu)
        if used == 0:
            continue
        rate = rate_beside(o, np.floor((room + ROOM) * 10) / 10, ratio, job.cpu)
        if rate < least_rate - ROOM:
            continue
        if job.run > rate * left_s[k]:  # it outlasts the host
            after = rate_after(view, history, host, guest, job.cpu)
            rate = job.run / duration(job.run, rate, left_s[k], after)
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
    bold: bool,
    allowed: NDArray[np.bool_],
) -> bool:
    """Which shares leave the job better off than waiting, and no worse off than by itself; is there one above 0?"""
    some = False
    for j in range(len(actions)):
        rate = rate_beside(o, actions[j], ratio, job.cpu)
        allowed[j] = actions[j] <= room + ROOM and (
            actions[j] == 0
            or (
                rate >= least_rate - ROOM
                and (job.longest <= rate * left_s or bold)
                and duration(job.longest, rate, left_s, after) - job.longest < job.spare
                and duration(job.run, rate, left_s, after) - job.run < job.wait
            )
        )
        some = some or (allowed[j] and actions[j] > 0)
    return some
