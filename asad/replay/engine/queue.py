"""The queue: waiting jobs in order of arrival.

The least that each 64 positions want is kept beside them, so that a pass skips whole blocks of jobs that cannot start.
"""

from __future__ import annotations

from asad.compiling import borrowing
from asad.replay.engine.simulation_state import (
    BLOCK,
    CHANGED,
    HEAD,
    NEVER,
    NOBODY,
    PENDING,
    RESERVED,
    SETTLE,
    TAIL,
    WAITING,
    State,
)


@borrowing
def _block_cores(s: State, block: int) -> None:
    """The least of a block anew, and of the 64 blocks that it is one of."""
    least = NOBODY
    least_planned = NEVER
    for i in range(block * BLOCK, block * BLOCK + BLOCK):
        least = min(least, s.queue[i].cores)
        least_planned = min(least_planned, s.queue[i].planned)
    s.block[block].cores = least
    s.block[block].planned = least_planned
    upper = block // BLOCK
    least = NOBODY
    for i in range(upper * BLOCK, upper * BLOCK + BLOCK):
        least = min(least, s.block[i].cores)
    s.block[len(s.block) - 1 - upper].cores = least


@borrowing
def _put(s: State, job: int) -> None:
    """Into the queue at its own position."""
    position = s.job[job].at
    s.c[WAITING] += 1
    s.queue[position].job = job
    s.queue[position].cores = s.job[job].cores
    s.queue[position].planned = s.job[job].planned
    block = position // BLOCK
    s.block[block].cores = min(s.block[block].cores, s.job[job].cores)
    s.block[block].planned = min(s.block[block].planned, s.job[job].planned)
    upper = len(s.block) - 1 - block // BLOCK
    s.block[upper].cores = min(s.block[upper].cores, s.job[job].cores)
    s.job[job].state = PENDING
    s.job[job].promised = NEVER
    s.c[CHANGED] = 1


@borrowing
def put_before(s: State, job: int) -> None:
    """Into the queue at a position that may be before those that have been looked at."""
    _put(s, job)
    s.c[HEAD] = min(s.c[HEAD], s.job[job].at)
    s.c[RESERVED] = 0


@borrowing
def enqueue(s: State, job: int, now: float) -> None:
    """A job has arrived: to the end of the queue."""
    s.job[job].at = s.c[TAIL]
    s.c[TAIL] += 1
    s.job[job].eligible = now
    _put(s, job)


@borrowing
def dequeue(s: State, job: int) -> None:
    """Out of the queue; its position stays empty."""
    position = s.job[job].at
    s.queue[position].cores = NOBODY
    s.queue[position].planned = NEVER
    s.c[WAITING] -= 1
    if position // BLOCK < s.c[TAIL] // BLOCK:  # of the last block a bound will do
        _block_cores(s, position // BLOCK)
    if position == s.c[HEAD]:
        s.c[HEAD] = next_waiting(s, position + 1)


@borrowing
def next_waiting(s: State, position: int) -> int:
    """First position from `position` on with a waiting job; TAIL if there is none."""
    return next_candidate(s, position, NOBODY - 1, NOBODY - 1, NEVER)


@borrowing
def next_candidate(s: State, position: int, free: int, extra: int, window: float) -> int:
    """First waiting job from `position` on that needs at most `extra` cores, or at most `free` for at most `window`."""
    tail = s.c[TAIL]
    while position < tail:
        upper = len(s.block) - 1 - position // (BLOCK * BLOCK)
        if position % (BLOCK * BLOCK) == 0 and s.block[upper].cores > free:
            position += BLOCK * BLOCK
            continue
        if position % BLOCK == 0:
            block = position // BLOCK
            least = s.block[block].cores
            if least > free or (least > extra and s.block[block].planned > window):
                position += BLOCK
                continue
        cores = s.queue[position].cores
        if cores <= extra or (cores <= free and s.queue[position].planned <= window):
            return position
        position += 1
    return tail


@borrowing
def look_again(s: State) -> None:
    """The order of the queue is not what it was: a pass follows, and another look."""
    s.c[RESERVED] = 0
    s.c[SETTLE] = 1
    s.c[CHANGED] = 1
