"""The twin: the same cluster with nobody who lends, as far as asad can know it."""

from __future__ import annotations

from asad.compiling import borrowing, compiled
from asad.replay.engine.clock import next_event, run_until
from asad.replay.engine.events import move
from asad.replay.engine.state import DONE, ENDED, GUEST, NEVER, NOW, RUN, RUNNING, TOLD, State


@borrowing
def learn_ends(s: State, other: State) -> None:
    """It has become known how long the jobs run alone that have ended in `other` since the last time.

    Those that run here end by that, and no earlier than now.
    """
    for i in range(s.c[TOLD], other.c[ENDED]):
        job = other.job[i].ended
        s.job[job].work = other.job[job].end - other.job[job].start - other.job[job].lost
        if s.job[job].state == RUNNING:
            move(s, job, max(s.f[NOW], s.job[job].start + s.job[job].work))
    s.c[TOLD] = other.c[ENDED]


@borrowing
def known_until(s: State, other: State) -> float:
    """Until when `s` can go on with what is known in `other`: no job may run here for longer than it has come there.

    Beyond that it could have ended here, and nobody can tell.
    """
    until = NEVER
    for i in range(s.c[RUN]):
        job = s.run[i].job
        state = other.job[job].state
        if state == DONE:
            continue
        done = 0.0
        if state in (RUNNING, GUEST):
            since = other.job[job].since
            lost = other.job[job].lost + (1.0 - other.job[job].rate) * (other.f[NOW] - since)
            done = other.f[NOW] - other.job[job].start - lost
        until = min(until, s.job[job].start + done)
    return until


@compiled
def follow(s: State, other: State) -> None:
    """Let `s` come as near to the present of `other` as is known: what has happened there by then is certain."""
    learn_ends(s, other)
    now = other.f[NOW]
    while s.f[NOW] < now:
        until = min(now, known_until(s, other))
        if until <= s.f[NOW]:
            break
        run_until(s, min(until, max(s.f[NOW], next_event(s))))
