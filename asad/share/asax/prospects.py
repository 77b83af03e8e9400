"""What to expect of a waiting job: its run, its wait, and how fast and how long it would run beside a host."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asad.compiling import borrowing
from asad.share.asax.memo import Memo
from asad.share.asax.options import Options
from asad.share.asax.starts import own_start, size_class
from asad.share.history import History, expected_cpu, expected_run, longest_run, shortest_run
from asad.share.openings import View


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
def prospect(view: View, history: History, o: Options, memo: Memo, guest: int) -> Prospect:
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
    wait = max(0.0, estimate - view.now) * memo.early[size_class(view, guest), 0]
    own = own_start(view, memo, guest)
    spare = max(o.slack_s, o.slack * (own - view.submit[guest] + longest)) + own - view.now
    return Prospect(run, longest, max(0.01, expected_cpu(history, application)), wait, spare)


@borrowing
def host_left(view: View, history: History, o: Options, host: int) -> float:
    """How long a host will probably run on (s), and no longer than its limit allows.

    What its application's shortest runs leave, or a part of the time that it has run: the longer a job has run, the
    longer it runs on.
    """
    done = view.now - view.start[host] - view.lost[host]
    left = max(shortest_run(history, view.application[host], 1.0) - done, o.outlast * done)
    return min(left, view.limit_end[host] - view.now)


@borrowing
def rate_beside(o: Options, share: float, ratio: float, cpu: float) -> float:
    """Rate of a guest that uses `cpu` of its cores and gets a share of `ratio` times as many, against running alone."""
    return o.overhead * min(1.0, share * ratio / cpu)


@borrowing
def rate_after(view: View, history: History, host: int, guest: int, cpu: float) -> float:
    """Rate of the guest once the host has ended and the jobs at the head of the queue have taken its cores."""
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
    return min(1.0, max(0.02, least) / cpu)


@borrowing
def duration(run: float, rate: float, left_s: float, after: float) -> float:
    """How long a guest takes for `run` seconds of work (s): its host runs on for `left_s`, then `after` is its rate."""
    if run <= rate * left_s:
        return run / rate
    return left_s + (run - rate * left_s) / min(rate, after)
