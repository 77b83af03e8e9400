"""The place stage on small made-up clusters: free capacity, gangs, first-fit, and what follows from y."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_cluster import GUEST, HOST, NOW, OTHER_HOST, WAITING, cluster

from asad.admit.everyone import Everyone
from asad.capacity import spread
from asad.config import Config, GuardSettings, parse
from asad.cycle import Cycle
from asad.decisions import Cause, CoAllocate, Decision, SetMemory, SetQuota, decision_from_json
from asad.defer.at_once import AtOnce
from asad.errors import ConfigError
from asad.guard import PROPERTIES, guard_for
from asad.model import Arrays, Finished, Machine, Snapshot
from asad.place.components import Components, read_components
from asad.place.first_fit import FirstFit
from asad.place.first_fit import Options as FirstFitOptions
from asad.place.free_capacity import FreeCapacity, Places, Quotas, Uses
from asad.place.port_placing import PortPlacing
from asad.place.ports import OgaOptions, Options
from asad.share.exclusive import Exclusive
from asad.stages import policy_of, stages_of

NOBODY = Finished(*(np.zeros(0, np.int32),) * 1, *(np.zeros(0),) * 4)
NAMES = ["ann/alpha/2", "ann/beta/2", "bob/gamma/2", "bob/delta/2"]
CAUSE = Cause("test", "because")
POOLED = frozenset(PROPERTIES) - {"whole nodes"}
"""That binds pairs alone."""


def wide(nodes: int, waiting: int = 3, *, cores: int = 4, guest_cores: int = 2, **columns: Any) -> Snapshot:
    """One host on all nodes, that uses a quarter of its cores; jobs that wait, each of an application of its own."""
    small, count = cluster(), 1 + waiting
    jobs = small.jobs
    table = {
        column.name: np.repeat(getattr(jobs, column.name)[WAITING : WAITING + 1], count)
        for column in dataclasses.fields(jobs)
    }
    for name in table:
        table[name][0] = getattr(jobs, name)[OTHER_HOST]
    table["job_id"] = np.array([str(100 + row) for row in range(count)])
    table["application"] = np.arange(count, dtype=np.int32) - 1
    table["application"][0] = 0
    table["nodes"][:] = 0
    table["time_limit_s"][1:] = 600.0
    table["cores"][:] = guest_cores
    table["cores"][0] = nodes * cores
    table["nodes"][0] = nodes
    table["cpu_fraction"][0] = 0.25
    for name, values in columns.items():
        for row, value in values.items():
            table[name][row] = value
    return dataclasses.replace(
        small,
        machine=Machine(
            tuple(f"n{k}" for k in range(nodes)),
            np.full(nodes, cores, np.int32),
            np.full(nodes, 64.0),
            "made up",
        ),
        jobs=dataclasses.replace(jobs, **table),
        queue=np.arange(1, count, dtype=np.int32),
        running=np.zeros(1, np.int32),
        guests=np.zeros(0, np.int32),
        core_owner=np.zeros(nodes * cores, np.int32),
        core_guest=np.full(nodes * cores, -1, np.int32),
        waiting=waiting,
        node_bar=np.zeros(nodes, np.int8),
    )


def offers(decisions: Any) -> list[CoAllocate]:
    return [decision for decision in decisions if isinstance(decision, CoAllocate)]


def allowed(snapshot: Snapshot, decisions: Any, properties: frozenset[str]) -> list[str]:
    """What the guard says against them."""
    return [
        outcome.reason for outcome in guard_for(properties, GuardSettings()).check(snapshot, decisions)[1]
    ]


# ------------------------------------------------------------------------------------------------------- components


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("", None),
        ("memory-bound", None),
        ("components=4-8", Components(4, 8)),
        ("asad:components=3", Components(3, 3)),
        ("utility=constant(2); components = 2-2", Components(2, 2)),
        ("memory-bound,asad:components=2", Components(2, 2)),
    ],
)
def test_components_are_read(text: str, bounds: Components | None) -> None:
    assert read_components(text) == bounds


@pytest.mark.parametrize(
    "text", ["components=", "components=0", "components=8-4", "components=-3", "components=٣", "components=9999999999",
             "components=2;components=3", "components=\x1b[2J", "components=2" + " " * 2000]
)  # fmt: skip
def test_components_that_make_no_sense_are_reported_with_the_remedy_and_without_what_controls_a_terminal(
    text: str,
) -> None:
    with pytest.raises(ValueError, match=r"write components=8|give it once|shorten it") as error:
        read_components(text)
    assert str(error.value).isprintable()


# --------------------------------------------------------------------------------------------------- free capacity


def found(snapshot: Snapshot, share: float, bounds: Components | None = None, guest: int = 1) -> list[int]:
    """Nodes of a fit that gives at least `share` of each node's cores, or a fifth of what the guest uses."""
    free = FreeCapacity.see(snapshot, 0.1)
    cores = free.cores.astype(np.float64)
    return free.fit(guest, 1.0, share * cores, bounds, cores).tolist()


def test_a_gang_gets_as_few_nodes_as_it_fits_on_the_highest_first() -> None:
    assert found(_of(6, 4, 8), 0.3) == [2, 3, 4, 5]
    assert found(_of(6, 4, 16, cpu_fraction={0: 0.8}), 0.3) == [], "hosts leave 10 %"
    assert found(_of(6, 4, 16, cpu_fraction={0: 0.6}), 0.3) == [2, 3, 4, 5], "it runs at a rate of 0.3"


def test_nodes_of_several_hosts_and_free_ones_serve_one_gang() -> None:
    snapshot = _of(4, 4, 4)
    snapshot.core_owner[:2] = -1  # half of a node is free
    snapshot.core_owner[8:10] = 3  # a node of two hosts
    snapshot.jobs.cpu_fraction[3] = 0.5
    assert found(snapshot, 0.3) == [], "only whole nodes lend"
    mixed = dataclasses.replace(snapshot, whole_nodes=False)
    assert found(mixed, 0.3) == [0, 1, 2, 3]
    free = FreeCapacity.see(mixed, 0.1)
    assert free.pool.tolist() == pytest.approx([1.3, 2.6, 1.3 + 0.8, 2.6])
    lent = FreeCapacity.see(dataclasses.replace(mixed, lends_free_cores=True), 0.1)
    assert lent.pool[0] == pytest.approx(1.3 + 2 * (1 - 0.25 - 0.1)), "as a usual job would leave them"


def test_the_95th_percentile_counts_and_not_the_mean() -> None:
    snapshot = dataclasses.replace(wide(2), core_peak=np.repeat([0.8, 0.3], 4))
    assert FreeCapacity.see(snapshot, 0.1).pool.tolist() == pytest.approx([0.4, 2.4])


def test_a_guest_that_is_not_widened_takes_what_is_idle_on_its_own_cores() -> None:
    free = FreeCapacity.see(wide(1), 0.1)
    node, own = np.array([0]), np.full(1, 4.0)
    assert free.rate(1, node, 1.0, own) == pytest.approx(0.65)
    widened = FreeCapacity.see(dataclasses.replace(wide(1), widened=True), 0.1)
    assert widened.rate(1, node, 1.0, own) == 1.0
    assert widened.rate(1, node, 1.0, np.full(1, 0.5)) == pytest.approx(0.25)
    assert free.rate(1, node, 0.5, own) == 1.0, "of a core it uses half"


def test_where_nodes_leave_too_little_those_that_leave_most_are_taken() -> None:
    snapshot = dataclasses.replace(wide(3), core_peak=np.repeat([0.4, 0.6, 0.5], 4))
    assert found(snapshot, 0.05) == [0]
    assert found(dataclasses.replace(snapshot, widened=True), 0.05) == [0], "here it runs at its full pace"


def test_guests_run_on_their_nodes_with_so_many_cores() -> None:
    snapshot = running()
    places = Places(snapshot)
    assert [(row, places.node[at].tolist(), places.cores[at].tolist()) for row, at in places] == [
        (GUEST, [0], [2.0])
    ]
    assert list(Places(cluster())) == [], "a guest of a pair has a share, and no quota"
    assert list(Places(wide(2))) == []
    assert spread(7, 3) == [3, 2, 2]


def test_quotas_are_forgotten_with_the_guest_and_where_a_host_waits_for_cpu() -> None:
    quotas, snapshot = Quotas(), running()
    ((guest, at),) = places = list(Places(snapshot))
    quotas.look(snapshot, Places(snapshot))
    assert math.isnan(quotas.of(guest))
    made = quotas.decide(snapshot, Places(snapshot), guest, at, 0.5, CAUSE)
    assert made == SetQuota(CAUSE, GUEST, (0,), (1.0,))
    quotas.look(snapshot, Places(snapshot))
    assert quotas.of(guest) == 0.5
    pressed = running(pressure={HOST: 0.5})
    quotas.look(pressed, Places(pressed))
    assert math.isnan(quotas.of(guest)) and not quotas.open(np.array([0])) and quotas.open(np.array([1]))
    quotas.decide(snapshot, Places(snapshot), guest, at, 0.5, CAUSE)
    snapshot.jobs.job_id[GUEST] = "99"
    quotas.look(snapshot, Places(snapshot))
    assert math.isnan(quotas.of(guest)), "the row is another job's"
    assert len(places) == 1


def test_use_is_as_measured_or_as_the_application_used_before_or_all() -> None:
    uses, snapshot = Uses(), wide(1)
    assert uses.of(snapshot, 1) == 1.0
    rows, ones = np.array([1, 2, 3], np.int32), np.ones(3)
    uses.learn(snapshot, Finished(rows, ones, ones, ones, np.array([0.4, math.nan, 0.0])))
    assert [uses.of(snapshot, row) for row in range(4)] == [0.25, 0.4, 1.0, 0.01]


def _of(nodes: int, asked: int, cores: int, **columns: Any) -> Snapshot:
    snapshot = wide(nodes, **columns)
    snapshot.jobs.nodes[1], snapshot.jobs.cores[1] = asked, cores
    return snapshot


@pytest.mark.parametrize(
    ("bounds", "cores", "nodes"),
    [(None, 2, 1), (Components(2, 4), 2, 2), (Components(2, 6), 20, 5), (Components(2, 4), 20, 0),
     (Components(7, 9), 9, 0)],
)  # fmt: skip
def test_components_bound_the_nodes(bounds: Components | None, cores: int, nodes: int) -> None:
    assert len(found(_of(6, 0, cores), 0.3, bounds)) == nodes


def test_what_is_taken_is_not_offered_twice() -> None:
    free, least, own = FreeCapacity.see(_of(2, 0, 4), 0.1), np.full(2, 1.2), np.full(2, 4.0)
    free.take(1, first := free.fit(1, 1.0, least, None, own), (2.6,))
    trial = free.copy()
    trial.take(1, second := trial.fit(1, 1.0, least, None, own), (2.6,))
    assert sorted([*first, *second]) == [0, 1]
    assert len(trial.fit(1, 1.0, least, None, own)) == 0
    assert len(free.fit(1, 1.0, least, None, own)) == 1, "it was but tried"
    free = trial
    assert len(free.fit(1, 1.0, least, None, own)) == 0


@pytest.mark.parametrize(
    "columns",
    [
        {"host_bar": {0: 2}},
        {"cpu_fraction": {0: math.nan}},
        {"cpu_fraction": {0: 0.95}},
        {"share_group": {0: 1}},
        {"memory_bound": {0: 1, 1: 1}},
        {"memory_bytes_per_core": {1: 61.0}},
        {"memory_bytes_per_core": {1: math.nan}},
        {"memory_bytes_per_core": {0: math.nan}},
    ],
)
def test_hosts_that_leave_nothing_for_it_have_no_room(columns: dict[str, Any]) -> None:
    assert len(found(wide(2), 0.05)) == 1
    assert found(wide(2, **columns), 0.05) == []


def test_memory_of_free_cores_and_of_the_head_is_kept() -> None:
    free = dataclasses.replace(wide(1), whole_nodes=False, lends_free_cores=True)
    free.core_owner[2:] = -1  # 32 of 64 bytes for whoever starts there
    free.jobs.memory_bytes_per_core[2] = 15.0
    assert found(free, 0.05, guest=2) == [0]
    free.jobs.memory_bytes_per_core[2] = 15.5
    assert found(free, 0.05, guest=2) == [], "two are the host's"
    free.jobs.memory_bytes_per_core[1:3] = 17.0, 15.0  # the head would have 34 there
    assert found(free, 0.05, guest=2) == []


def test_an_unmeasured_host_lends_nothing_and_takes_nothing_from_guests() -> None:
    free = FreeCapacity.see(running(cpu_fraction={HOST: math.nan}), 0.1)
    assert free.pool[0] < 0
    assert free.ceiling[0] == pytest.approx(4 * (1 - 0.2 - 0.1)), "as the other host"
    ineligible = FreeCapacity.see(running(cpu_fraction={HOST: math.nan}, host_bar={HOST: 1}), 0.1)
    assert ineligible.ceiling[0] == 0


def test_gpus_are_given_whole_beside_batch_jobs_that_have_none() -> None:
    snapshot = dataclasses.replace(wide(2), node_gpus={0: 2.0, 1: 2.0}, gpus={0: 2.0, 1: 1.0})
    free = FreeCapacity.see(snapshot, 0.1)
    assert free.gpus_left.tolist() == [1.0, 1.0]
    own = np.full(2, 4.0)
    free.take(1, first := free.fit(1, 1.0, np.full(2, 0.1), None, own), (0.5,))
    second = free.fit(1, 1.0, np.full(2, 0.1), None, own)
    assert [first.tolist(), second.tolist()] == [[1], [0]]


# -------------------------------------------------------------------------------------------------------- first-fit


def test_first_fit_offers_what_the_guard_allows_and_no_more_than_its_share() -> None:
    snapshot, policy = wide(3), FirstFit()
    made = offers(policy.decide(snapshot))
    assert [offer.guest for offer in made] == [1, 2, 3]
    assert all(offer.pooled and sum(offer.demands) <= 2.0 for offer in made)
    assert allowed(snapshot, made, POOLED) == []


def test_a_guest_gets_its_quota_once_and_again_when_its_host_no_longer_waits_for_cpu() -> None:
    def quotas(snapshot: Snapshot) -> list[Decision]:
        return [decision for decision in policy.decide(snapshot) if isinstance(decision, SetQuota)]

    policy, snapshot = FirstFit(FirstFitOptions(share=0.25)), running()
    (first,) = quotas(snapshot)
    assert (first.guest, first.nodes, first.cores) == (GUEST, (0,), (1.0,))
    assert allowed(snapshot, [first], POOLED) == []
    assert quotas(snapshot) == []
    assert quotas(running(pressure={HOST: 0.5})) == [], "that is for the guard"
    assert len(quotas(snapshot)) == 1


def test_what_applications_used_before_is_what_a_guest_will_use() -> None:
    policy, snapshot = FirstFit(), wide(1, 1, guest_cores=4)
    policy.learn(snapshot, Finished(np.array([1], np.int32), *(np.ones(1),) * 3, np.array([0.4])))
    (offer,) = offers(policy.decide(snapshot))
    assert offer.demands == pytest.approx((1.6,))
    assert offer.cause.detail["rate"] == 1.0
    (blind,) = offers(FirstFit().decide(snapshot))
    assert blind.demands == pytest.approx((2.0,)), "half of the node"


def test_a_gang_without_room_for_all_waits_and_others_go_first() -> None:
    snapshot = wide(2)
    snapshot.jobs.nodes[1], snapshot.jobs.cores[1] = 3, 6
    assert [offer.guest for offer in offers(FirstFit().decide(snapshot))] == [2, 3]


def test_who_would_not_end_sooner_is_not_placed() -> None:
    assert offers(FirstFit().decide(wide(2, estimated_start_s=dict.fromkeys((1, 2, 3), NOW)))) == []


def test_where_the_share_stage_lends_first_fit_decides_nothing() -> None:
    policy = FirstFit(lends=False)
    assert list(policy.decide(wide(2))) == []
    assert policy.properties == frozenset()


def test_an_array_starts_with_its_least_number_of_tasks_or_not() -> None:
    def array(least: int, nodes: int) -> list[int]:
        snapshot = wide(nodes, 4, guest_cores=4)
        snapshot.jobs.array[1:4] = 0
        ints = {name: np.array([value], np.int32) for name, value in {"w": 1, "n": 3, "z": 0}.items()}
        snapshot = dataclasses.replace(
            snapshot,
            arrays=Arrays(ints["w"], ints["n"], ints["z"], ints["z"], ints["z"]),
            hints=dict.fromkeys((1, 2, 3), f"components={least}"),
        )
        return [offer.guest for offer in offers(FirstFit().decide(snapshot))]

    assert array(3, 4) == [1, 2, 3, 4], "three together, and the job behind them"
    assert array(3, 3) == [1, 2, 3]
    assert array(3, 2) == [4], "not two of three"
    assert array(2, 3) == [1, 2, 4], "the third of it comes in the next cycle"
    assert array(9, 4) == [4]


def test_an_array_that_is_shown_as_one_row_is_offered_if_all_of_the_least_number_have_room() -> None:
    def array(nodes: int) -> list[int]:
        snapshot = wide(nodes, 1, guest_cores=4)
        snapshot.jobs.array[1] = 0
        one, zero = np.array([1], np.int32), np.zeros(1, np.int32)
        arrays = Arrays(one, np.array([9], np.int32), zero, zero, zero)
        snapshot = dataclasses.replace(snapshot, arrays=arrays, hints={1: "components=3-9"})
        return [offer.guest for offer in offers(FirstFit().decide(snapshot))]

    assert array(3) == [1]
    assert array(2) == []


def test_an_offer_in_vain_does_not_keep_others_from_the_place() -> None:
    snapshot, policy = wide(1, 2, guest_cores=4), FirstFit()
    assert [offer.guest for offer in offers(policy.decide(snapshot))] == [1]
    later = dataclasses.replace(snapshot, time_s=NOW + 30)
    assert [offer.guest for offer in offers(policy.decide(later))] == [2], "the first was refused"
    again = dataclasses.replace(snapshot, time_s=NOW + 300)
    assert [offer.guest for offer in offers(policy.decide(again))] == [1]


# ------------------------------------------------------------------------------------------------------------- oga


def placing(name: str = "oga", **options: Any) -> PortPlacing:
    own = {key: value for key, value in options.items() if key in Options._fields}
    learning = {key: value for key, value in options.items() if key in OgaOptions._fields}
    return PortPlacing(name, NAMES, Options(**own), OgaOptions(**learning))


def cycle(policy: PortPlacing, snapshot: Snapshot) -> list[Decision]:
    policy.learn(snapshot, NOBODY)
    return list(policy.decide(snapshot))


@pytest.mark.parametrize("name", ["oga", "binpack", "drf", "fairness", "spread"])
def test_every_port_policy_places_within_what_hosts_leave(name: str) -> None:
    snapshot = wide(3)
    made = offers(cycle(placing(name), snapshot))
    assert made
    assert allowed(snapshot, made, POOLED) == []
    for offer in made:
        detail = offer.cause.detail
        assert detail["class"] in NAMES
        assert 0 < sum(offer.demands) <= 0.65 * 4 + 1e-9
        assert sum(offer.demands) <= float(detail["y_cores"]) + 1e-6  # type: ignore[arg-type]
        assert ("gradient" in detail) == (name == "oga")


def test_classes_beyond_the_ports_share_one() -> None:
    policy = placing(ports=2)
    made = offers(cycle(policy, wide(4, 4, guest_cores=1)))
    classes = {offer.guest: offer.cause.detail["class"] for offer in made}
    assert classes[1] == NAMES[0] and classes[3] == "the rest"
    assert set(policy.state()) == {*NAMES[:2], "*"}


def test_strict_keeps_what_absent_classes_had_and_reclaim_does_not() -> None:
    both, one = wide(1, 2, guest_cores=4), wide(1, 2, guest_cores=4, guest_bar={2: 1})

    def lent(mode: str) -> float:
        policy = placing(mode=mode, step=0.01)
        for _ in range(20):
            cycle(policy, both)
        policy.learn(one, NOBODY)
        return max(
            (
                sum(offer.demands)
                for offer in offers(policy.decide(dataclasses.replace(one, time_s=NOW + 200)))
            ),
            default=0.0,
        )

    assert lent("reclaim") > 1.5 * lent("strict") > 0


def running(**columns: Any) -> Snapshot:
    """The small cluster, whose guest is measured."""
    return dataclasses.replace(
        cluster(
            memory_bytes_per_core={HOST: 1.0, GUEST: 2.0},
            offered_s={4: math.nan},
            host={4: -1, GUEST: -1},
            share={GUEST: math.nan},
            demand={GUEST: 0.9},
            **columns,
        ),
        memory_used={GUEST: 1.0, HOST: 2.0},
    )


def test_quotas_of_guests_follow_their_class_and_fall_at_once_when_hosts_need_it() -> None:
    def quotas(snapshot: Snapshot) -> list[SetQuota]:
        return [decision for decision in cycle(policy, snapshot) if isinstance(decision, SetQuota)]

    policy = placing(least_share=0.05)
    (first,) = quotas(running())
    assert (first.guest, first.nodes) == (GUEST, (0,))
    assert 0.9 * 2 <= first.cores[0] <= 2.0, "its class has the node, of which the host leaves 60 %"
    assert allowed(running(), [first], POOLED) == []
    assert quotas(running()) == []
    (less,) = quotas(running(cpu_fraction={HOST: 0.88}))
    assert less.cores[0] == pytest.approx(0.1), "all that is left is less than what lets it go on"
    assert quotas(running(cpu_fraction={HOST: 0.88}, pressure={HOST: 0.5})) == [], "that is for the guard"
    (again,) = quotas(running())
    assert again.cores == first.cores


def test_a_guest_without_batch_jobs_beside_it_has_all_of_its_cores() -> None:
    alone = running()
    alone.core_owner[:4] = -1
    (made,) = [decision for decision in cycle(placing(), alone) if isinstance(decision, SetQuota)]
    assert made.cores == (2.0,)
    assert made.cause.reason == "it divides its nodes with nobody"


def test_memory_limits_follow_the_class_above_what_is_used() -> None:
    snapshot = dataclasses.replace(running(), memory_used={GUEST: 1.0})
    snapshot.jobs.memory_bytes_per_core[[HOST, GUEST]] = (
        3.0,
        5.0,
    )  # 12 of 16 bytes are the host's, the guest asks for 10
    policy = placing()
    (limit,) = [d for d in cycle(policy, snapshot) if isinstance(d, SetMemory)]
    assert 1.2 <= limit.high_bytes <= 5.0, "what the host leaves, rounded up"
    assert allowed(snapshot, [limit], frozenset()) == []
    kept = dataclasses.replace(snapshot, memory_high={GUEST: limit.high_bytes})
    assert not [d for d in cycle(policy, kept) if isinstance(d, SetMemory)], "it is as decided"
    grown = dataclasses.replace(kept, memory_used={GUEST: 40.0})
    (more,) = [d for d in cycle(policy, grown) if isinstance(d, SetMemory)]
    assert more.high_bytes == 0, "it uses more than it has reserved: that is not ours to bound"
    alone = dataclasses.replace(kept, core_owner=np.where(kept.core_owner == HOST, -1, kept.core_owner))
    (lifted,) = [d for d in cycle(policy, alone) if isinstance(d, SetMemory)]
    assert lifted.high_bytes == 0
    assert not [d for d in cycle(placing(memory=False), snapshot) if isinstance(d, SetMemory)]


def test_many_classes_do_not_keep_each_other_from_a_node() -> None:
    """Each has less than the least share of every node: the nodes are theirs in turn."""
    names = [f"ann/app{number}/2" for number in range(16)]
    policy, snapshot = PortPlacing("oga", names), wide(4, 16, guest_cores=4)
    for _ in range(30):
        policy.learn(snapshot, NOBODY)
    made = offers(policy.decide(snapshot))
    assert len(made) == 4
    assert len({offer.cause.detail["class"] for offer in made}) > 1
    assert allowed(snapshot, made, POOLED) == []


def test_with_the_same_classes_shares_come_to_rest() -> None:
    """What swings harms jobs, however good its mean is."""
    policy, last = placing(), []
    for number in range(40):
        policy.learn(wide(4), NOBODY)
        if number >= 30:
            last.append(policy._y.copy())
    assert np.ptp(np.array(last), axis=0).max() < 0.05


def test_what_was_learned_outlives_a_restart_and_grows_by_name() -> None:
    policy, snapshot = placing(), wide(3)
    for _ in range(5):
        cycle(policy, snapshot)
    kept = policy.state()
    assert kept["*"]["slot"] == 5
    after = placing()
    after.restore(kept)
    assert after.state() == kept, "nothing is lost before the first cycle either"
    after.learn(
        dataclasses.replace(snapshot, queue=snapshot.queue[:0]), NOBODY
    )  # nobody is here: nothing is learned
    seen = after.state()
    assert set(seen) == set(kept)
    for name in NAMES[:3]:
        for node, row in kept[name]["y"].items():  # type: ignore[union-attr]
            assert seen[name]["y"][node] == pytest.approx(row)  # type: ignore[index, call-overload]
    assert seen["*"]["slot"] == 5


@pytest.mark.parametrize(
    "memory",
    [{"*": {"slot": "x"}}, {"a/b/1": {"y": 3}}, {"a/b/1": {"y": {"n0": [math.nan, "x"]}}}, {"*": {}, "c": {"z": 1}},
     {"a/b/1": {"y": {}, "asks": [True, -1]}}],
)  # fmt: skip
def test_what_cannot_be_read_of_a_memory_is_passed_over(memory: Any) -> None:
    policy = placing()
    policy.restore(memory)
    assert offers(cycle(policy, wide(3)))


def test_another_machine_keeps_what_was_learned_of_nodes_that_stay() -> None:
    policy = placing()
    for _ in range(5):
        cycle(policy, wide(3))
    before = policy.state()
    cycle(policy, dataclasses.replace(wide(4), queue=np.zeros(0, np.int32)))
    after = policy.state()
    assert set(after[NAMES[0]]["y"]) == {"n0", "n1", "n2", "n3"}  # type: ignore[arg-type]
    assert after[NAMES[0]]["y"]["n1"] == pytest.approx(before[NAMES[0]]["y"]["n1"])  # type: ignore[index, call-overload]


def test_gpus_are_a_resource_that_is_reported_and_set_nowhere() -> None:
    snapshot = dataclasses.replace(wide(2), node_gpus={0: 2.0, 1: 2.0}, gpus={1: 1.0})
    made = cycle(placing(), snapshot)
    assert {type(decision) for decision in made} == {CoAllocate}
    assert 0 < float(offers(made)[0].cause.detail["y_gpus"]) <= 2.0  # type: ignore[arg-type]
    assert len(offers(made)[0].cause.detail["gradient"]) == 3  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------------------- guard


def floor(high_bytes: float, job: int = GUEST, used: dict[int, float] | None = None) -> list[str]:
    snapshot = dataclasses.replace(
        cluster(), memory_used={GUEST: 100.0, HOST: 2.0, OTHER_HOST: 2.0} if used is None else used
    )
    return allowed(snapshot, [SetMemory(CAUSE, job, high_bytes)], frozenset())


def test_a_memory_limit_below_what_is_used_is_vetoed() -> None:
    assert floor(110.0) == []
    assert floor(109.0) == ["vetoed (memory floor): it uses 100 bytes on a node and keeps 10% of slack"]
    assert floor(110.0, used={}) == ["vetoed (memory floor): the memory that it uses has not been measured"]
    assert floor(0.0, used={}) == [], "that it is lifted is never held back"
    for nonsense in (-1.0, math.nan, math.inf):
        assert "is none" in floor(nonsense)[0]


def test_a_host_is_never_limited_below_what_it_has_reserved() -> None:
    assert floor(4.0, HOST) == []
    assert floor(3.0, HOST) == ["vetoed (memory floor): the host has reserved 4 bytes on a node"]
    assert floor(9.0, OTHER_HOST) == ["vetoed (memory floor): it shares its nodes with nobody"]


def test_one_memory_limit_of_a_job_in_a_cycle() -> None:
    snapshot = dataclasses.replace(cluster(), memory_used={GUEST: 1.0})
    twice = [SetMemory(CAUSE, GUEST, 64.0), SetMemory(CAUSE, GUEST, 65.0)]
    assert allowed(snapshot, twice, frozenset()) == [
        "vetoed (one change): its memory limit changes in this cycle already"
    ]


def test_bounds_of_components_hold_against_every_policy() -> None:
    def vetoes_of(text: str) -> list[str]:
        snapshot = dataclasses.replace(cluster(), hints={WAITING: text})
        return allowed(snapshot, [CoAllocate(CAUSE, WAITING, (0,), host=HOST, share=0.3)], frozenset())

    assert vetoes_of("components=1-4") == []
    assert vetoes_of("components=2") == [
        "vetoed (components): 1 of its components would start; it wants 2 to 2"
    ]
    assert vetoes_of("components=x")[0].startswith("vetoed (components): components=x is no number")


def test_a_memory_limit_round_trips() -> None:
    decision = SetMemory(CAUSE, 3, 4096.0)
    assert decision_from_json(decision.to_json()) == decision


# ------------------------------------------------------------------------------------------------------ configuration


def configured(text: str) -> Config:
    return parse(text, Path("asad.toml"))


@pytest.mark.parametrize("name", ["native", "first-fit", "oga", "binpack", "drf", "fairness", "spread"])
def test_every_policy_can_be_configured(name: str) -> None:
    config = configured(f'[policies]\nplace = "{name}"\nshare = "exclusive"\n')
    assert policy_of(config, "place").name == name


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[policies]\nplace = "oga"\nshare = "static"', 'or share = "exclusive"'),
        ('[policies]\nplace = "oga"\nshare = "exclusive"\n[place.oga]\nmod = "x"', "mod: unknown option; did you mean"),
        ('[policies]\nplace = "oga"\nshare = "exclusive"\n[place.oga]\nmode = "x"', "there are strict, reactive"),
        ('[policies]\nplace = "oga"\nshare = "exclusive"\n[place.oga]\nutility = "x"', "there are linear, log"),
        ('[policies]\nplace = "oga"\nshare = "exclusive"\n[place.oga]\nports = 5000', "from 0 to 1000"),
        ('[policies]\nplace = "oga"\nshare = "exclusive"\n[place.oga]\ndecay = 0', "give a number above 0"),
        ('[policies]\nplace = "drf"\nshare = "exclusive"\n[place.drf]\neta = 1.0', "eta: unknown option"),
        ('[policies]\nplace = "drf"\nshare = "exclusive"\n[place.drf]\nstep = 0', "above 0 and at most 1"),
        ('[policies]\nplace = "first-fit"\n[place.first-fit]\nshare = 1.5', "give a number from 0.05 to 1"),
        ('[policies]\nplace = "first-fit"\n[place.first-fit]\ncapped = true', "capped: quotas bind guests alone"),
        ('[policies]\nplace = "oga"\nshare = "exclusive"\n[place.oga]\ncapped = false', "remove the line"),
        ("[place.native]\nx = 1", "native has no options"),
        ("[place.ogre]\nx = 1", "no policy of the place stage; did you mean 'oga'"),
        ("place = 3", "not a table of tables"),
    ],
)  # fmt: skip
def test_wrong_options_name_place_and_remedy(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        stages_of(configured(text), [])


def test_a_paused_cycle_places_nobody() -> None:
    class Still:
        def snapshot(self) -> Snapshot:
            return wide(3)

        def finished(self, since_s: float) -> Finished:
            return NOBODY

        def apply(self, decisions: Any) -> list[Any]:
            assert not decisions
            return []

    policy = placing()
    round_ = Cycle(
        Still(), Everyone(), AtOnce(), policy, Exclusive(), guard_for(policy.properties), paused=True
    )
    round_.run_once()
    assert round_.outcomes == ()
