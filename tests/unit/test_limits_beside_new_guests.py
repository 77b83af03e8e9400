"""Lending never kills: whom a new guest slows is looked at again at the next poll, though nobody waits any more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asad.admit.everyone import Everyone
from asad.contention import load_contention
from asad.cycle import Cycle
from asad.decisions import Cause, CoAllocate, Decision
from asad.defer.at_once import AtOnce
from asad.guard import guard_for
from asad.model import Machine, Snapshot
from asad.place.native import Native
from asad.replay.recorded_cluster import RecordedCluster
from asad.replay.workload_columns import Workload
from asad.share import SharePolicy

POLL_S = 30.0


class FirstToNode0(SharePolicy):
    """Lends the first node to the first that waits."""

    name = "first-to-node-0"
    held, pooled = "idle", True
    properties: frozenset[str] = frozenset()
    extends_limits, poll_s = True, POLL_S

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        if len(snapshot.queue) == 0:
            return []
        return [CoAllocate(Cause(self.name, "it waits"), int(snapshot.queue[0]), (0,), demands=(4.0,))]


def test_the_look_after_an_offer_comes_at_the_next_poll() -> None:
    """The first job sets when polls are; the guest comes at 30 s beside a host that needs all of its minute."""
    three = np.zeros(3)
    workload = Workload(
        job_id=np.arange(3),
        submit_s=np.array([0.0, 5.0, 20.0]),
        work_s=np.array([1.0, 60.0, 300.0]),
        planned_s=np.array([60.0, 60.0, 900.0]),
        limit_s=np.array([60.0, 60.0, 900.0]),
        cores=np.full(3, 8, np.int32),
        nodes=np.zeros(3, np.int32),
        memory_bytes_per_core=three,
        demand=np.ones(3),
        depends_on=np.full(3, -1, np.int32),
        think_s=three,
        application=np.zeros(3, np.int32),
        user=np.zeros(3, np.int32),
    )
    machine = Machine(("n0",), np.full(1, 8, np.int32), np.full(1, np.nan), "the test")
    cluster = RecordedCluster(workload, machine, load_contention(), poll_s=POLL_S)
    policy = FirstToNode0()
    cycle = Cycle(cluster, Everyone(), AtOnce(), Native(), policy, guard_for(policy.properties))
    wake_s, offers = np.inf, 0
    while cluster.advance(wake_s):
        wake_s = cycle.run_once()
        if cycle.outcomes and isinstance(cycle.outcomes[0].decision, CoAllocate):
            offers += cycle.outcomes[0].done
            assert wake_s <= cycle.last_s + POLL_S
    assert offers == 1 and cluster.ended == 3
