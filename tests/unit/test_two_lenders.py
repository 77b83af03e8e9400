"""A place policy that lends to gangs beside a share policy that lends to all others: what each sees, and whose a guest
is."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_placing import wide
from test_placing_on_cluster import CORES, HEADROOM, NAMES, NODES, workload

from asad.capacity import pools_of
from asad.config import Config, parse
from asad.contention import load_contention
from asad.cycle import Cycle
from asad.daemon.reload import leaves_behind
from asad.decisions import Cause, CoAllocate, ExtendLimit, Outcome, SetMemory, SetQuota
from asad.errors import ConfigError
from asad.ineligible import Ineligible
from asad.model import Machine, Snapshot
from asad.place.free_capacity import FreeCapacity
from asad.replay.recorded_cluster import RecordedCluster
from asad.stages import live_guard, stages_of
from asad.two_lenders import TwoLenders, is_gang, promise

CAUSE = Cause("test", "because")
PLACING = ["oga", "fairness", "drf", "binpack", "spread"]
GANG, OTHER, WAITS = 1, 2, 3
"""Rows: a guest that is a gang, one that is none, and a gang that waits."""


def configured(place: str = "oga", share: str = "measured") -> Config:
    return parse(f'[policies]\nplace = "{place}"\nshare = "{share}"\n', Path("x"))


def with_guests() -> Snapshot:
    """Two nodes; on the first a gang and another guest, of two cores each."""
    snapshot = wide(2, 3)
    for row, begin in ((GANG, 0), (OTHER, 2)):
        snapshot.core_guest[begin : begin + 2] = row
        snapshot.jobs.start_s[row], snapshot.jobs.demand[row] = 0.0, 0.3
    waiting = np.array([WAITS], np.int32)
    hints = {GANG: "components=1-2", WAITS: "components=1-2", OTHER: "utility=constant(2)"}
    return replace(snapshot, guests=np.array([GANG, OTHER], np.int32), queue=waiting, hints=hints)


# ------------------------------------------------------------------------------------------------- what each one sees


def test_a_gang_is_who_gives_its_components() -> None:
    assert is_gang("components=4-8") and is_gang("utility=x;asad:components=3")
    assert not is_gang("") and not is_gang("utility=x") and not is_gang("components=8-4")


def test_each_sees_its_own_guests_and_nobody_else_is_a_candidate() -> None:
    snapshot = with_guests()
    seen = TwoLenders().see(snapshot)
    assert seen.place.guests.tolist() == [GANG] and seen.share.guests.tolist() == [OTHER]
    assert seen.place.queue is snapshot.queue, "the head of the queue keeps its memory from both"
    assert seen.place.jobs.guest_bar[WAITS] == 0
    assert seen.share.jobs.guest_bar[WAITS] == Ineligible.OTHER_POLICY
    assert not snapshot.jobs.guest_bar.any(), "nobody else sees that"


def test_what_the_other_holds_is_not_lent_once_more() -> None:
    snapshot = with_guests()
    whole, seen = FreeCapacity.see(snapshot, HEADROOM), TwoLenders().see(snapshot)
    mine = FreeCapacity.see(seen.place, HEADROOM)
    assert (mine.ceiling - whole.ceiling).tolist() == pytest.approx([-2 * 0.3, 0.0])
    assert (mine.memory - whole.memory).tolist() == pytest.approx([-2 * 1.0, 0.0])
    assert mine.pool.tolist() == whole.pool.tolist() == pools_of(seen.share, HEADROOM).pool.tolist()
    assert mine.open.tolist() == [0, 4]


def test_offers_of_the_same_cycle_are_taken_from_what_the_share_policy_lends() -> None:
    snapshot = with_guests()
    seen = TwoLenders().see(snapshot)
    before = pools_of(seen.share, HEADROOM)
    promise(seen.share, [CoAllocate(CAUSE, WAITS, (1,), (1.2,)), SetQuota(CAUSE, GANG, (0,), (1.0,))])
    after = pools_of(seen.share, HEADROOM)
    assert (before.pool - after.pool).tolist() == pytest.approx([0.0, 1.2])
    assert (before.open - after.open).tolist() == [0, 2]
    assert (before.memory - after.memory).tolist() == pytest.approx([0.0, 2.0])
    assert math.isnan(snapshot.jobs.demand[WAITS]) and (snapshot.core_guest[4:] == -1).all()


def test_columns_stay_the_same_arrays_and_follow_the_cluster() -> None:
    snapshot, two = with_guests(), TwoLenders()
    first = two.see(snapshot).share
    promise(first, [CoAllocate(CAUSE, WAITS, (1,), (1.2,))])
    snapshot.jobs.demand[OTHER] = 0.5
    again = two.see(snapshot).share
    assert again.jobs is first.jobs and again.core_guest is first.core_guest
    assert again.core_guest.tolist() == snapshot.core_guest.tolist()
    assert again.jobs.demand[OTHER] == 0.5 and math.isnan(again.jobs.demand[WAITS])
    more = wide(2, 4)
    assert len(two.see(more).share.jobs.demand) == 5


# ------------------------------------------------------------------------------------------------------ configurations


@pytest.mark.parametrize("share", ["static", "asax-paper"])
def test_who_lends_in_another_way_cannot_stand_beside(share: str) -> None:
    with pytest.raises(ConfigError, match=f'"{share}" otherwise; write share = "asax"'):
        stages_of(configured(share=share), NAMES)


def test_what_was_one_policys_and_is_now_anothers_is_let_go_first() -> None:
    alone, both = (stages_of(configured(share=share), NAMES) for share in ("exclusive", "measured"))
    assert leaves_behind(alone, both) and leaves_behind(both, alone)
    assert not leaves_behind(both, stages_of(configured(share="asax"), NAMES))


# ------------------------------------------------------------------------------------------------ on a recorded cluster


class Watch:
    """Who decided about which guest, and that nothing is lent twice."""

    def __init__(self) -> None:
        self.of: dict[str, str] = {}
        self.deeds: Counter[tuple[str, str]] = Counter()

    def __call__(self, number: int, snapshot: Snapshot, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            decision, policy = outcome.decision, outcome.decision.cause.policy
            if isinstance(decision, CoAllocate | SetQuota):
                row = decision.guest
            elif isinstance(decision, SetMemory | ExtendLimit) and decision.job in snapshot.guests:
                row = decision.job
            else:
                continue
            assert outcome.done, (
                outcome.reason
            )  # the guard, which looks at both together, finds nothing lent twice
            assert self.of.setdefault(str(snapshot.jobs.job_id[row]), policy) == policy
            assert (policy == "measured") != is_gang(snapshot.hints.get(row, ""))
            self.deeds[policy, decision.kind] += 1


def play(place: str, seed: int, *, restart: bool = False) -> tuple[Watch, RecordedCluster]:
    """A small cluster under both; with `restart` new processes go on after every fifty cycles with what was saved."""
    names = tuple(f"n{number}" for number in range(NODES))
    machine = Machine(names, np.full(NODES, CORES, np.int32), np.full(NODES, 16e9), "test")
    cluster = RecordedCluster(workload(seed, False), machine, load_contention(), use_memory=False, every=True)
    watch, config = Watch(), configured(place)
    stages = stages_of(config, NAMES, seed)
    cycle = Cycle(cluster, *stages, live_guard(config, stages), watch)
    wake_s = math.inf
    while cluster.advance(wake_s):
        wake_s = cycle.run_once()
        if restart and cycle.number % 50 == 0:
            saved = {stage: json.dumps(one.state()) for stage, one in stages.learners.items()}
            stages = stages_of(config, NAMES, seed)
            for stage, one in stages.learners.items():
                one.restore(json.loads(saved[stage]))
            last_s, number = cycle.last_s, cycle.number
            cycle = Cycle(cluster, *stages, live_guard(config, stages), watch, last_s=last_s, number=number)
    assert np.isfinite(cluster.state.job["end"]).all()
    return watch, cluster


@pytest.mark.parametrize("place", PLACING)
def test_each_offers_to_its_own_and_sets_the_quotas_of_its_own(place: str) -> None:
    watch, _ = play(place, 1)
    assert watch.deeds[place, "co-allocate"] and watch.deeds["measured", "co-allocate"]
    assert watch.deeds[place, "set-quota"] and watch.deeds["measured", "set-quota"]


def test_a_restart_keeps_who_holds_which_guest() -> None:
    watch, _ = play("oga", 1, restart=True)
    assert watch.deeds["oga", "set-quota"] and watch.deeds["measured", "set-quota"]
