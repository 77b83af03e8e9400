"""Policies that lend from pools: who is offered which nodes, what guests may use, and where idle CPU goes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from asad.decisions import CoAllocate, Decision, SetQuota, SetShare
from asad.experts import load_experts
from asad.model import Finished, Jobs, Machine, Snapshot
from asad.share import SharePolicy
from asad.share.asax import Asax
from asad.share.measured import Measured
from asad.share.pool import Options
from asad.share.run_history import new_history
from asad.share.saved_state import fill

NOW = 10_000.0
NAN = math.nan


def snapshot_of(
    nodes: list[list[tuple[int, int]]],
    jobs: list[dict[str, Any]],
    *,
    time_s: float = NOW,
    node_memory: float = NAN,
    **rest: Any,
) -> Snapshot:
    """Nodes as (owner, guest) a core, -1 for nobody; jobs as what differs from a job of one core.

    A job that has a `start_s` runs, and is a guest where it has a `demand`; the others wait, in order.
    """
    columns: dict[str, list[Any]] = {}
    plain: dict[str, Any] = {
        "job_id": "", "application": 0, "user": 0, "cores": 1, "nodes": 0, "time_limit_s": 7200.0,
        "memory_bytes_per_core": 0.0, "submit_s": 0.0, "start_s": NAN, "limit_end_s": NAN,
        "estimated_start_s": NAN, "begin_s": NAN, "deadline_s": NAN, "array": -1, "counterfactual_start_s": NAN,
        "own_estimate_s": NAN, "cpu_fraction": NAN, "pace": 1.0, "lost_s": 0.0, "extended_s": 0.0, "host": -1,
        "share": NAN, "demand": NAN, "happiness": NAN, "pressure": 0.0, "latest_end_s": math.inf,
        "offered_s": NAN, "share_group": 0, "memory_bound": 0, "host_bar": 0, "guest_bar": 0,
    }  # fmt: skip
    for row, given in enumerate(jobs):
        for name, value in ({**plain, "job_id": str(row)} | given).items():
            columns.setdefault(name, []).append(value)
    whole = {"application", "user", "cores", "nodes", "array", "host", "share_group"}
    table = {
        name: np.array(
            values,
            object
            if name == "job_id"
            else np.int32
            if name in whole
            else np.int8
            if name in ("memory_bound", "host_bar", "guest_bar")
            else float,
        )
        for name, values in columns.items()
    }
    owner = np.array([pair[0] for node in nodes for pair in node], np.int32)
    guest = np.array([pair[1] for node in nodes for pair in node], np.int32)
    runs = ~np.isnan(table["start_s"])
    guests = runs & ~np.isnan(table["demand"])
    peak = np.where(owner >= 0, table["cpu_fraction"][owner], NAN)
    return Snapshot(
        time_s=time_s,
        version=1,
        machine=Machine(
            tuple(f"n{k}" for k in range(len(nodes))),
            np.array([len(node) for node in nodes], np.int32),
            np.full(len(nodes), node_memory),
            "made up",
        ),
        jobs=Jobs(**table),
        queue=np.flatnonzero(~runs).astype(np.int32),
        running=np.flatnonzero(runs & ~guests).astype(np.int32),
        guests=np.flatnonzero(guests).astype(np.int32),
        core_owner=owner,
        core_guest=guest,
        waiting=int((~runs).sum()),
        node_bar=np.zeros(len(nodes), np.int8),
        core_peak=peak,
        **{"lends_free_cores": True, "whole_nodes": False, "widened": True, **rest},
    )


def host(use: float, cores: int = 4, **more: Any) -> dict[str, Any]:
    return {"cores": cores, "start_s": 9000.0, "limit_end_s": 16_000.0, "cpu_fraction": use, **more}


def waits(wait_s: float = 5000.0, cores: int = 2, **more: Any) -> dict[str, Any]:
    """A job that would start in `wait_s`, and is expected to run for half of its limit."""
    return {"cores": cores, "time_limit_s": 2000.0, "estimated_start_s": NOW + wait_s, **more}


NOBODY = Finished(np.zeros(0, np.int32), np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0))


def decide(snapshot: Snapshot, policy: Any = None, **options: float) -> list[Decision]:
    # `early` 1 and a new learner: half of the estimated wait is what counts
    policy = policy or Measured(["a/b/1"], Options(**options))
    policy.learn(snapshot, NOBODY)
    return list(policy.decide(snapshot))


def offers(snapshot: Snapshot, policy: Any = None, **options: float) -> list[CoAllocate]:
    return [one for one in decide(snapshot, policy, **options) if isinstance(one, CoAllocate)]


def held_by(row: int, cores: int = 4) -> list[tuple[int, int]]:
    return [(row, -1)] * cores


def test_the_smallest_pool_that_suffices_is_taken() -> None:
    # 4·(1 - use - 0.1): 2.4, 3.2 and 0.4 cores; nothing is known of the guest, so it wants two
    seen = snapshot_of([held_by(0), held_by(1), held_by(2)], [host(0.3), host(0.1), host(0.8), waits()])
    (offer,) = offers(seen)
    assert offer.pooled
    assert (offer.guest, offer.nodes, offer.demands) == (3, (0,), (2.0,))
    assert offer.cause.detail["rate"] == 1.0


def test_what_a_pool_holds_is_what_is_given_to_it_whoever_draws_from_it() -> None:
    policy = Measured(["a/b/1"])
    assert policy.pool_cores() is None
    jobs = [host(0.3), host(0.1), host(0.2, cores=1, demand=0.5, limit_end_s=1e6)]
    decide(snapshot_of([[(0, 2), *held_by(0, 3)], held_by(1), [(-1, -1)] * 2], jobs), policy)
    # nobody knows of free cores more than that they are used as the others are, a fifth
    assert policy.pool_cores() == pytest.approx([4 * 0.6, 4 * 0.8, 2 * 0.7])
    assert SharePolicy().pool_cores() is None


def test_a_slower_place_is_offered_where_it_is_still_sooner_than_waiting() -> None:
    seen = snapshot_of([held_by(0)], [host(0.6), waits(wait_s=50_000.0)])  # 1.2 cores are spare
    (offer,) = offers(seen)
    assert offer.cause.detail["rate"] == pytest.approx(0.6)
    assert offer.demands == pytest.approx((1.2,))
    assert offers(snapshot_of([held_by(0)], [host(0.6), waits(wait_s=1000.0)])) == []


def test_an_offer_says_who_feeds_it() -> None:
    # of n0 the first host lends 0.6 · 2 cores, the second 0.4, the free core 1 - 0.4 - 0.1
    shared = [(0, -1), (0, -1), (1, -1), (-1, -1)]
    jobs = [host(0.3, 2), host(0.5, 1), waits(1e6, cores=3), waits(1e6, cores=8, nodes=4)]
    (first, *_) = offers(snapshot_of([shared], jobs))
    assert first.cause.reason.startswith("it needs 2.1 cores of n0: 1.2 from 0, 0.4 from 1, 0.5 free; at ")
    hosts = [host(0.1) for _ in range(4)]
    (gang,) = offers(snapshot_of([held_by(k) for k in range(4)], [*hosts, waits(1e6, cores=8, nodes=4)]))
    assert "it needs 2.0 cores of n0: 2.0 from 0; 2.0 cores of n1" in gang.cause.reason
    assert (
        "; 2.0 cores of n2: 2.0 from 2; and the like of 1 more node; at 100% of its pace" in gang.cause.reason
    )


@pytest.mark.parametrize("wait_s", [0.0, 150.0])
def test_who_starts_by_itself_soon_waits_on(wait_s: float) -> None:
    assert offers(snapshot_of([held_by(0)], [host(0.1), waits(wait_s=wait_s)])) == []


def test_whom_nobody_estimates_a_start_for_is_offered_nothing() -> None:
    assert offers(snapshot_of([held_by(0)], [host(0.1), {**waits(), "estimated_start_s": NAN}])) == []


def test_what_the_twin_knows_counts_more_than_the_estimate() -> None:
    seen = snapshot_of([held_by(0)], [host(0.1), waits(counterfactual_start_s=NOW - 100.0)])
    assert offers(seen) == []


def test_a_host_lends_only_what_has_been_measured_or_is_known_of_its_application() -> None:
    seen = snapshot_of([held_by(0)], [{**host(NAN)}, waits()])
    assert offers(seen) == []
    policy = Measured(["a/b/1"], Options())
    policy.history.cpu[0], policy.history.measured[0] = 0.2, 1.0
    (offer,) = offers(seen, policy)
    assert offer.cause.detail["assumed_peak"] == {"0": 0.2}
    assert offer.demands == pytest.approx((0.4,))  # 0.2 of its two cores


def test_free_cores_give_what_a_usual_job_would_leave() -> None:
    # ū is 0.4: three free cores give 3·(1 - 0.4 - 0.1); the host leaves 0.5
    seen = snapshot_of([[(0, -1), (-1, -1), (-1, -1), (-1, -1)]], [host(0.4, 1), waits()])
    (offer,) = offers(seen)
    assert offer.demands == pytest.approx((2.0,))
    assert (
        offers(replace(seen, lends_free_cores=False)) == []
    )  # 0.5 cores are a quarter of its pace: too slow
    grouped = replace(seen, jobs=replace(seen.jobs, share_group=np.array([3, 3], np.int32)))
    assert offers(grouped) == []  # a stranger may start on the free cores


def test_only_whole_nodes_lend_where_the_cluster_says_so() -> None:
    shared = [[(0, -1), (0, -1), (1, -1), (1, -1)], held_by(2)]
    seen = snapshot_of(shared, [host(0.1, 2), host(0.1, 2), host(0.3), waits()], whole_nodes=True)
    (offer,) = offers(seen)
    assert offer.nodes == (1,)


def test_a_gang_gets_as_many_nodes_as_it_asks_for_and_the_rate_of_the_worst() -> None:
    seen = snapshot_of(
        [held_by(0), held_by(1), held_by(2)],
        [host(0.3), host(0.5), host(0.85), waits(wait_s=40_000.0, cores=4, nodes=2)],
    )
    (offer,) = offers(seen)
    assert sorted(offer.nodes) == [0, 1]
    assert offer.cause.detail["rate"] == pytest.approx(0.8)  # 1.6 of two cores on the second


def test_memory_is_kept_for_who_could_start_on_free_cores() -> None:
    node = [(0, -1), (0, -1), (-1, -1), (-1, -1)]
    jobs = [host(0.1, 2, memory_bytes_per_core=2.0), waits(memory_bytes_per_core=2.0)]
    # of 16: the host has 4, half of the node is kept, and the guest wants 4
    assert len(offers(snapshot_of([node], jobs, node_memory=16.0))) == 1
    assert offers(snapshot_of([node], jobs, node_memory=15.0)) == []
    # whoever heads the queue keeps what it would take there
    greedy = {**waits(wait_s=1.0), "memory_bytes_per_core": 5.0}
    assert offers(snapshot_of([node], [jobs[0], greedy, jobs[1]], node_memory=16.0)) == []


def test_memory_bound_jobs_do_not_meet() -> None:
    jobs = [host(0.1, memory_bound=1), host(0.4), waits(memory_bound=1)]
    (offer,) = offers(snapshot_of([held_by(0), held_by(1)], jobs))
    assert offer.nodes == (1,)


def test_strangers_do_not_meet_where_share_groups_are_set() -> None:
    jobs = [host(0.1, share_group=1), host(0.4, share_group=2), waits(share_group=2)]
    (offer,) = offers(snapshot_of([held_by(0), held_by(1)], jobs))
    assert offer.nodes == (1,)


def test_without_widening_a_guest_has_only_what_is_idle_on_its_own_cores() -> None:
    seen = snapshot_of([held_by(0)], [host(0.4), waits(wait_s=50_000.0)], widened=False)
    (offer,) = offers(seen)
    assert offer.cause.detail["rate"] == pytest.approx(0.5)  # two of four cores of which half is spare


def test_what_is_offered_is_taken_from_the_pool() -> None:
    seen = snapshot_of([held_by(0)], [host(0.1), waits(), waits(cores=1), waits(cores=1)])
    made = offers(seen)
    assert [offer.guest for offer in made] == [1, 2]  # 3.2 cores: two and one; 0.2 are too few for the third


def test_nodes_of_a_host_that_runs_late_take_no_more_guests() -> None:
    known = {
        "counterfactual_start_s": 8860.0,
        "time_limit_s": 4000.0,
    }  # 140 s late of 2 000 + 0: 160 would hurt
    jobs = [host(0.1, submit_s=8860.0, **known), waits(wait_s=20_000.0)]
    for counterfactual_start_s, made in ((8860.0, 0), (9000.0, 1)):
        jobs[0]["counterfactual_start_s"] = counterfactual_start_s
        policy = Measured(["a/b/1"], Options())
        policy.history.runs[0], policy.history.run[0] = 1.0, 2800.0
        assert len(offers(snapshot_of([held_by(0)], jobs), policy)) == made


def test_a_guest_may_use_what_it_wants_and_its_part_of_what_is_left() -> None:
    guest = {"cores": 2, "start_s": 9500.0, "limit_end_s": 12_000.0, "demand": 0.5}
    node = [(0, 1), (0, 1), (0, -1), (0, -1)]
    (quota,) = decide(snapshot_of([node], [host(0.5), guest]))
    assert isinstance(quota, SetQuota)
    # it wants 1 of 1.6 spare cores: (1 + 0.6 left) / 2 and headroom, by steps of a twentieth
    assert quota.nodes == (0,)
    assert quota.cores == pytest.approx((1.8,))
    (full,) = decide(snapshot_of([node], [host(0.95), guest]))
    assert isinstance(full, SetQuota)
    assert full.cores == pytest.approx((1.2,))  # never less than it wants


def test_quotas_stay_while_little_changes_and_while_a_host_is_under_pressure() -> None:
    guest = {"cores": 2, "start_s": 9500.0, "limit_end_s": 12_000.0, "demand": 0.5}
    node = [(0, 1), (0, 1), (0, -1), (0, -1)]
    policy = Measured(["a/b/1"], Options())
    assert len(decide(snapshot_of([node], [host(0.6), guest]), policy)) == 1
    assert decide(snapshot_of([node], [host(0.62), guest]), policy) == []
    assert decide(snapshot_of([node], [host(0.1, pressure=0.9), guest]), policy) == []
    assert len(decide(snapshot_of([node], [host(0.1), guest]), policy)) == 1


def test_shares_are_drawn_per_host_kept_for_ten_minutes_and_recorded_with_an_offer() -> None:
    policy = Asax(load_experts(None), ["a/b/1"], np.random.default_rng(3), Options())
    nodes, jobs = [held_by(0), held_by(1)], [host(0.1), host(0.3), waits()]
    first = decide(snapshot_of(nodes, jobs), policy)
    (share, offer) = first
    assert isinstance(share, SetShare)
    assert isinstance(offer, CoAllocate)
    assert share.host == offer.nodes[0]
    assert 0 < share.share <= 0.9
    assert set(share.cause.detail["leaves"]) == {expert.name for expert in policy.experts}  # type: ignore[arg-type]
    for later_s, drawn_at in ((300.0, NOW), (600.0, NOW + 600.0)):
        decide(snapshot_of(nodes, jobs, time_s=NOW + later_s), policy)
        assert policy._memo is not None
        np.testing.assert_array_equal(policy._memo.drawn_at[:2], drawn_at)


@pytest.mark.parametrize("jobs", [[], [waits()]])
def test_a_cluster_of_which_no_node_was_seen_yet_lends_nothing(jobs: list[dict[str, Any]]) -> None:
    for policy in (Asax(load_experts(None), ["a/b/1"], np.random.default_rng(3)), Measured(["a/b/1"])):
        nowhere = replace(
            snapshot_of([held_by(0)], [*jobs, host(0.1)]), machine=snapshot_of([], [host(0.1)]).machine
        )
        nobody = np.zeros(0, np.int32)
        seen = replace(
            nowhere,
            core_owner=nobody,
            core_guest=nobody,
            running=nobody,
            node_bar=np.zeros(0, np.int8),
            core_peak=np.zeros(0),
        )
        assert decide(seen, policy) == []


def test_a_share_that_alone_stops_a_guest_is_drawn_anew_sooner_and_judged() -> None:
    policy = Asax(load_experts(None), ["a/b/1"], np.random.default_rng(3), Options())
    nodes, jobs = [held_by(0)], [host(0.1), waits()]
    seen = snapshot_of(nodes, jobs)
    policy.learn(seen, NOBODY)
    memo = policy._memo
    assert memo is not None
    memo.drawn_at[0], memo.share[0], memo.probability[0] = NOW, 0.0, 0.5
    assert offers(replace(seen, time_s=NOW + 30.0), policy) == []
    assert memo.withheld[0] == 1.0
    cases = policy.weights.cases[0]
    decide(replace(seen, time_s=NOW + 60.0), policy)
    assert memo.drawn_at[0] == NOW + 60.0
    assert policy.weights.cases[0] + policy.weights.rounds[0] > cases


def test_the_funnel_has_all_that_is_idle_for_one_reason_each() -> None:
    guest = {"cores": 1, "start_s": 9500.0, "limit_end_s": 12_000.0, "demand": 0.5, "cpu_fraction": 0.5}
    ineligible = host(0.2, host_bar=1)
    nodes = [
        [(0, 3), (0, -1), (0, -1), (0, -1)],
        held_by(1),
        held_by(2),
        [(-1, -1)] * 4,
    ]
    seen = snapshot_of(nodes, [host(0.5), ineligible, host(NAN), guest])
    peak = seen.core_peak
    assert peak is not None
    peak[:4] = 0.7
    policy = Measured(["a/b/1"], Options())
    decide(seen, policy)
    usual = (4 * 0.5 + 4 * 0.2) / 8
    decide(snapshot_of(nodes, [host(0.5), ineligible, host(NAN), guest], time_s=NOW + 300.0), policy)
    found = {reason: amount / 300.0 for reason, amount in policy.funnel()}
    assert found["unmeasured"] == pytest.approx(4 * (1 - usual))
    assert found["opted out or ineligible: it opted out"] == pytest.approx(4 * 0.8)
    assert found["p95 above the mean"] == pytest.approx(0.8)
    assert found["headroom"] == pytest.approx(0.4)
    assert found["kept for batch on free cores"] == pytest.approx(4 * (usual + 0.1))
    assert found["lent"] == pytest.approx(0.5)
    assert found["no waiting job that would gain"] == pytest.approx(0.8 - 0.5 + 4 * (0.9 - usual))
    assert sum(found.values()) == pytest.approx(4 * 0.5 + 4 * 0.8 + 4 * (1 - usual) + 4)


def test_a_history_that_was_kept_before_peaks_were_is_read() -> None:
    history = new_history(1)
    old = {name: 1.0 for name in history._fields if name not in ("peak", "peaks")}
    fill(None, history, [0], ["a/b/1"], (), {"a/b/1": {"history": old}})
    assert (history.runs[0], history.cpu[0], history.peaks[0]) == (1.0, 1.0, 0.0)
