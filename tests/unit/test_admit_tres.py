"""Admission by every resource that the cluster counts: GPUs, their types, licences, and what cannot be counted."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from slotted_cluster import EPOCH, AsSoonAsRoom, Job, Obedient

from asad.admit.admission_options import Options
from asad.admit.admission_policy import Admission
from asad.admit.prices import Market
from asad.admit.schemes import scheme_maker, scheme_names
from asad.admit.slot_servers import Claims, held_by_others, wanted, world_of
from asad.cli.admit import _head, story
from asad.config import GuardSettings
from asad.cycle import Cycle
from asad.defer.at_once import AtOnce
from asad.guard import guard_for
from asad.model import Machine, Snapshot, Tres
from asad.place.native import Native
from asad.share.exclusive import Exclusive

SLOT = 100.0
WORTH = "utility=constant(10)"
OPTIONS = Options(slot_s=SLOT, horizon=40, again_s=SLOT)
NAMES = ("gres/gpu", "gres/gpu:a100", "gres/gpu:v100", "license/x")


def tres_of(
    nodes: Sequence[tuple[float, float]],
    jobs: Mapping[int, Mapping[str, float]],
    licences: float = 0.0,
    unknown: Mapping[int, str] | None = None,
) -> Tres:
    """Nodes by their numbers of A100s and V100s."""
    has = np.array([[a + v, a, v, 0.0] for a, v in nodes])
    by_row = {row: np.array([wants.get(name, 0.0) for name in NAMES]) for row, wants in jobs.items()}
    return Tres(NAMES, has, np.array([0.0, 0.0, 0.0, licences]), by_row, unknown or {})


class Counting(Obedient):
    """The cluster, with GPUs on its nodes; a job's wants are by its name, for each task."""

    def __init__(
        self,
        nodes: Sequence[int],
        jobs: Sequence[Job],
        gpus: Sequence[tuple[float, float]],
        wants: Mapping[str, Mapping[str, float]],
        licences: float = 0.0,
        unknown: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(nodes, jobs)
        self.gpus, self.wants, self.licences, self.unknown = gpus, wants, licences, unknown or {}

    def snapshot(self) -> Snapshot:
        rows = {job.name: range(job.first_row, job.first_row + job.tasks) for job in self.jobs}
        jobs = {row: wants for name, wants in self.wants.items() for row in rows[name]}
        unknown = {row: why for name, why in self.unknown.items() for row in rows[name]}
        return replace(super().snapshot(), tres=tres_of(self.gpus, jobs, self.licences, unknown))


def admission(name: str = "as-soon") -> Admission:
    make = AsSoonAsRoom if name == "as-soon" else scheme_maker(name, {})
    return Admission(name, make, Obedient.applications, OPTIONS)  # type: ignore[arg-type]


def cycle_of(cluster: Obedient, policy: Admission) -> Cycle:
    return Cycle(cluster, policy, AtOnce(), Native(), Exclusive(), guard_for(frozenset(), GuardSettings()))


def array(name: str, tasks: int = 6, **more: Any) -> Job:
    return Job(name, 100.0, tasks, hint=WORTH, array=True, **more)


def test_an_array_is_as_wide_as_there_are_gpus() -> None:
    cluster = Counting([8, 8], [array("7")], [(2, 0), (0, 1)], {"7": {"gres/gpu": 1}})
    cycle = cycle_of(cluster, policy := admission())
    cycle.run_once()
    assert cluster.jobs[0].throttle == 3
    assert (policy.explain("7") or {})["tres"] == {"gres/gpu": 1.0}
    assert policy.planning.world is not None
    assert policy.planning.world.servers.resources == ("cores", "gres/gpu"), "what nobody wants has no price"


def test_a_type_is_a_resource_of_its_own() -> None:
    wants = {"7": {"gres/gpu": 1, "gres/gpu:v100": 1}, "8": {"gres/gpu": 1}}
    cluster = Counting([8, 8], [array("7", 2), array("8", 6)], [(2, 0), (0, 1)], wants)
    cycle_of(cluster, admission()).run_once()
    assert cluster.jobs[0].throttle == 1 and cluster.jobs[1].throttle == 2
    schedule: Any = cluster.done[0][1].cause.detail["schedule"]
    assert schedule[0] == [EPOCH, 1]


def test_the_only_type_of_a_gres_is_the_gres() -> None:
    tres = tres_of([(2, 0), (1, 0)], {0: {"gres/gpu": 1, "gres/gpu:a100": 1}})
    assert wanted(tres, 0) == {"gres/gpu": 1.0} and wanted(tres, 1) == {}


@pytest.mark.parametrize("name", scheme_names())
def test_licences_bound_what_runs_on_all_nodes_together(name: str) -> None:
    jobs = [array("7", 8), array("8", 8)]
    cluster = Counting([4, 4], jobs, [(0, 0)] * 2, {"7": {"license/x": 1}, "8": {"license/x": 1}}, licences=3)
    cycle = cycle_of(cluster, admission(name))
    most = 0
    while not cluster.over and cluster.now_s < EPOCH + 10_000:
        cycle.run_once()
        cluster.run(cluster.now_s + 30.0)
        if name != "everyone":
            most = max(most, sum(cluster.running(job) for job in jobs if job.admitted))
    assert any(job.admitted for job in jobs) and 1 <= most <= 3
    assert cluster.illegal == []


def test_what_cannot_be_counted_is_reported_and_never_taken_for_cores() -> None:
    why = "it wants gres/gpu by socket, and how many sockets it gets is not known"
    cluster = Counting([8], [array("7")], [(1, 0)], {}, unknown={"7": why})
    cycle_of(cluster, policy := admission("oasis")).run_once()
    (decision,) = [decision for _, decision in cluster.done]
    assert decision.kind == "decline" and why in decision.cause.reason
    seen: Any = policy.explain("7")
    assert seen["verdict"] == "unfit" and why in seen["reason"] and "no price" in seen["reason"]


def test_more_than_any_node_has_does_not_fit() -> None:
    cluster = Counting([8, 8], [array("7")], [(2, 0), (2, 0)], {"7": {"gres/gpu": 3}})
    cycle_of(cluster, admission()).run_once()
    assert "more than any one node holds" in cluster.jobs[0].comment


def test_gpus_have_a_price_of_their_own() -> None:
    """Four arrays fill the GPUs of the first slots, and leave most cores: only who wants GPUs meets a higher price."""
    jobs = [array(str(name), 4) for name in (4, 5, 6, 7)]
    cluster = Counting([32], jobs, [(2, 0)], {job.name: {"gres/gpu": 1} for job in jobs})
    policy = admission("oasis")
    cycle_of(cluster, policy).run_once()
    scheme, world = policy.planning.scheme, policy.planning.world
    assert world is not None and scheme is not None
    slot = policy.planning.slot_of(EPOCH)
    cores, gpu = (
        scheme.worker_prices(slot, world.demand(1, 0.0, tres))  # type: ignore[attr-defined]
        for tres in ({}, {"gres/gpu": 1.0})
    )
    assert gpu[0] == math.inf and cores[0] < math.inf, "all are taken, and cores are left"
    bought = [price for price in gpu if price < math.inf]
    assert min(bought) > max(cores)


def test_a_new_resource_keeps_plans_and_what_was_learned() -> None:
    jobs = [array("7"), array("8", submit_s=EPOCH + 50.0)]
    cluster = Counting([4], jobs, [(2, 0)], {"8": {"gres/gpu": 1}})
    policy = admission("oasis")
    cycle = cycle_of(cluster, policy)
    cycle.run_once()
    before = policy.explain("7")
    assert before is not None and before["schedule"]
    cluster.run(EPOCH + 60.0)
    cycle.run_once()
    assert policy.planning.world is not None and policy.planning.world.resources == 2
    after = policy.explain("7")
    assert after is not None and after["schedule"] == before["schedule"]
    learned: Any = policy.planning.learned()
    assert learned["resources"] == ["cores", "gres/gpu"] and len(learned["jobs"]) == 2
    assert [row[6] for row in learned["jobs"]] == [0.0, 0.5]
    saved = json.loads(json.dumps(policy.state(), allow_nan=False))
    another = admission("oasis")
    another.restore(saved)
    cycle_of(cluster, another).run_once()
    assert another.planning.world is not None and another.planning.world.resources == 2
    assert another.book.jobs["8"].tres == {"gres/gpu": 1.0}


def test_what_was_learned_before_resources_had_names_is_kept() -> None:
    world = world_of(
        Machine(("a",), np.array([4], np.int32), np.array([8.0]), "one"),
        tres=tres_of([(2, 0)], {}),
        counted=("gres/gpu",),
    )
    market = Market(world.servers, 10)
    market.restore([[3, 10.0, 9.0, 5.0, 0.0, 0.25, 0.5, 0.0, 0.0], [1, 2.0], "no row"])
    assert market.state() == [[3, 10.0, 9.0, 5.0, 0.0, 0.25, 0.5, 0.0, 0.0, 0.0, 0.0]]
    market.restore([[3, 1.0, 1.0, 1.0, 0.0, 0.5, 0.25, 0.0, 0.0]], ["gres/gpu", "cores"])
    assert market.state()[1][5:] == [0.25, 0.0, 0.5, 0.0, 0.0, 0.0]  # type: ignore[index]


@pytest.mark.parametrize("whole", [False, True])
def test_what_others_hold_of_gpus_and_licences(whole: bool) -> None:
    other, waits = Job("4", 500.0, cores=4), array("7")
    cluster = Counting(
        [8, 8, 8],
        [other, waits],
        [(4, 0), (0, 2), (1, 0)],
        {"4": {"gres/gpu": 3, "license/x": 2}},
        licences=5,
    )
    other.all[0].start_s, other.all[0].node = EPOCH, 0
    seen = cluster.snapshot()
    world = world_of(seen.machine, whole=whole, tres=seen.tres, counted=("gres/gpu", "license/x"))
    assert world.servers.shared == ("license/x",)
    count = len(seen.jobs.job_id)
    none = np.zeros(count, np.bool_)
    claims = Claims(none, np.full(count, -1, np.int32), none, {})

    def held() -> list[list[float]]:
        now = cluster.snapshot()
        used, _ = held_by_others(now, world, 10_000, 2, SLOT, now.jobs.limit_end_s, claims)
        found: list[list[float]] = used[0].tolist()
        return found

    if whole:
        assert world.servers.workers.tolist() == [[24, 7, 5]]
        assert held() == [[4, 3, 2]]
        cluster.down = {1}
        assert held() == [[12, 5, 2]]
    else:
        assert world.servers.workers.tolist() == [[8, 4, 5], [8, 2, 5], [8, 1, 5]]
        assert held() == [[4, 3, 2], [0, 0, 2], [0, 0, 2]]
        cluster.down = {1}
        assert held() == [[4, 3, 2], [8, 2, 2], [0, 0, 2]]


def test_who_waits_for_gpus_is_foreseen_where_there_are_some() -> None:
    waits = Job("4", 500.0, cores=4)
    cluster = Counting([8, 8], [waits], [(0, 0), (2, 0)], {"4": {"gres/gpu": 2, "license/x": 1}}, licences=3)
    seen = cluster.snapshot()
    seen.jobs.estimated_start_s[0] = EPOCH
    world = world_of(seen.machine, tres=seen.tres, counted=("gres/gpu", "license/x"))
    none = np.zeros(1, np.bool_)
    claims = Claims(none, np.full(1, -1, np.int32), none, {})
    used, _ = held_by_others(seen, world, 10_000, 2, SLOT, seen.jobs.limit_end_s, claims)
    assert used[0].tolist() == [[0, 0, 1], [4, 2, 1]]


def test_a_share_set_aside_for_parameter_servers_has_no_gpus() -> None:
    machine = Machine(("a", "b"), np.array([8, 8], np.int32), np.full(2, math.nan), "two")
    tres, counted = tres_of([(4, 0), (0, 0)], {}), ("gres/gpu",)
    world = world_of(machine, server_share=0.25, tres=tres, counted=counted)
    assert world.servers.workers.tolist() == [[6, 4], [6, 0]]
    assert world.servers.parameter_servers.tolist() == [[2, 0], [2, 0]]
    named = world_of(machine, ("a",), tres=tres, counted=counted)
    assert named.servers.parameter_servers.tolist() == [[8, 4]], "whoever is named keeps his own"


def test_parameter_servers_that_want_licences_are_refused() -> None:
    worker = array("7")
    worker.hint = f"{WORTH};ps=9:2"
    cluster = Counting(
        [8], [worker, Job("9", 100.0, 2, array=True)], [(0, 0)], {"9": {"license/x": 1}}, licences=2
    )
    policy = Admission(
        "oasis", scheme_maker("oasis", {}), Obedient.applications, OPTIONS._replace(server_share=0.25)
    )
    cycle_of(cluster, policy).run_once()
    assert "licences are for workers" in cluster.jobs[0].comment


def test_operators_see_what_it_takes_and_what_that_costs() -> None:
    cluster = Counting([32], [array("7", 4)], [(2, 0)], {"7": {"gres/gpu": 1}})
    policy = admission("oasis")
    cycle_of(cluster, policy).run_once()
    overview: Any = policy.overview()
    prices = overview["unit_prices"]
    assert prices.keys() == {"cores", "gres/gpu"} and prices["gres/gpu"] > prices["cores"] > 0
    assert f"one of gres/gpu costs {prices['gres/gpu']:.4g}" in _head({**overview, "horizon": 40})
    assert "  takes     beside cores and memory 1 of gres/gpu, each task" in story(policy.explain("7") or {})
    assert not any("takes" in line for line in story({"job": "8", "tres": {}}))
    assert "costs" not in _head({**overview, "unit_prices": None})
