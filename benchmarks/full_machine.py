"""Schedules of a machine that is nearly full, whose jobs took of each node what was free: as text of `sacct -P`."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence
from random import Random

EPOCH_S = 1709600000


def full_machine(node_cores: Sequence[int], jobs: int, seed: int) -> Iterator[str]:
    """Lines of jobs on one, two, four or eight nodes that have free cores; each takes any number of those of each node.

    Who is next starts at once, and where fewer than eight nodes have a free core, when enough jobs have ended.
    """
    draw = Random(seed)
    free = dict(enumerate(node_cores, 1))
    ends: list[tuple[int, list[tuple[int, int]]]] = []
    now = EPOCH_S
    yield "JobID|User|JobName|State|Submit|Start|End|Elapsed|NNodes|AllocCPUS|NodeList\n"
    for number in range(1, jobs + 1):
        nodes = draw.sample([node for node in free if free[node]], draw.choice((1, 1, 2, 4, 8)))
        parts = [(node, draw.randint(1, free[node])) for node in nodes]
        run = draw.randrange(600, 30000)
        when = [time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) for at in (now, now, now + run)]
        elapsed = f"{run // 3600:02d}:{run // 60 % 60:02d}:{run % 60:02d}"
        cores, names = sum(part for _, part in parts), ",".join(f"n{node}" for node in nodes)
        yield f"{number}|eva|fold|COMPLETED|{'|'.join(when)}|{elapsed}|{len(nodes)}|{cores}|{names}\n"
        for node, part in parts:
            free[node] -= part
        heapq.heappush(ends, (now + run, parts))
        while sum(amount > 0 for amount in free.values()) < 8:
            now, ended = heapq.heappop(ends)
            for node, part in ended:
                free[node] += part
