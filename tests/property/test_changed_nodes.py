"""Pools that are kept by what has changed are those computed from nothing, to the bit, and so is what is decided."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from asad.capacity import Pools, _fill, columns_of, new_pools, seen
from asad.experts import load_experts
from asad.model import Snapshot
from asad.share.asax import Asax, Options

from .test_lending import MOST_POLLS, POLL_S, Case, cases
from .test_pools import cluster_of, random_decisions

HEADROOM = 0.1
OF_NODES = (
    *("spare", "lent", "free", "taken", "pool", "open", "unheld", "memory", "group", "bound", "closed"),
    *("usual", "demands", "guests", "reserved", "guest_memory"),
)


def places(pools: Pools, first: Any) -> list[tuple[list[int], list[int]]]:
    """The guests of each node, and how many cores each has there."""
    return [
        (pools.place_guest[a : a + n].tolist(), pools.place_cores[a : a + n].tolist())
        for (a, _), n in zip(pairwise(first.tolist()), pools.guests.tolist(), strict=True)
    ]


def assert_same(kept: Pools, whole: Pools, first: Any) -> None:
    for name in OF_NODES:
        np.testing.assert_array_equal(getattr(kept, name), getattr(whole, name), err_msg=name)
    assert places(kept, first) == places(whole, first)


def pools_for(snapshot: Snapshot) -> Pools:
    return new_pools(len(snapshot.machine.cores), len(snapshot.core_owner), len(snapshot.jobs.cores))


def fill(snapshot: Snapshot, pools: Pools, share: Any, peak: Any, late: Any) -> None:
    columns = columns_of(snapshot, snapshot.machine.first_core)
    _fill(columns, *seen(snapshot), share, peak, late, HEADROOM, pools)


@settings(max_examples=60)
@given(case=cases(), widened=st.booleans(), sd=st.sampled_from([0.0, 0.0, 0.2]))
def test_pools_kept_by_changes_are_those_computed_from_nothing(case: Case, widened: bool, sd: float) -> None:
    """After random starts, ends, loans and quotas, whatever hosts lend and is expected of them meanwhile."""
    cluster, rng = cluster_of(case, widened, sd), np.random.default_rng(case.seed)
    rows, first = len(case.workload), case.machine.first_core
    share, peak, late = np.ones(rows), np.full(rows, np.nan), np.zeros(rows, np.bool_)
    kept = pools_for(cluster.snapshot())
    poll = cluster.now_s
    for _ in range(MOST_POLLS):
        poll += POLL_S
        cluster.run(poll)
        some = rng.random(rows) < 0.2
        share[some], peak[some] = rng.random(some.sum()), rng.choice([np.nan, 0.3, 0.8], some.sum())
        late[rng.random(rows) < 0.05] ^= True
        snapshot = cluster.snapshot()
        assert snapshot.changed is not None
        fill(snapshot, kept, share, peak, late)
        whole = pools_for(snapshot)
        fill(replace(snapshot, changed=None), whole, share, peak, late)
        assert_same(kept, whole, first)
        cluster.apply(list(random_decisions(case, snapshot, rng)))


def asax(case: Case) -> Asax:
    return Asax(load_experts(None), ["a"], np.random.default_rng(case.seed), Options(poll_s=POLL_S))


@settings(max_examples=40)
@given(case=cases(), widened=st.booleans(), sd=st.sampled_from([0.0, 0.0, 0.2]))
def test_a_policy_decides_the_same_with_and_without_the_account(case: Case, widened: bool, sd: float) -> None:
    """Some of what it decides is done and some is not: offers count in the pools of their cycle alone."""
    cluster, rng = cluster_of(case, widened, sd), np.random.default_rng(case.seed)
    by_changes, by_all = asax(case), asax(case)
    while cluster.advance():
        snapshot, finished = cluster.snapshot(), cluster.finished()
        plain = replace(snapshot, changed=None)
        by_changes.learn(snapshot, finished)
        by_all.learn(plain, finished)
        mine, others = by_changes._memo, by_all._memo
        assert mine is not None
        assert others is not None
        np.testing.assert_array_equal(mine.last_peak, others.last_peak)
        np.testing.assert_array_equal(mine.node, others.node)
        decisions = list(by_changes.decide(snapshot))
        assert decisions == list(by_all.decide(plain))
        assert_same(by_changes._pools, by_all._pools, case.machine.first_core)
        cluster.apply([one for one in decisions if rng.random() < 0.7])
