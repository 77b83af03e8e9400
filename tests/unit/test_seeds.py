"""What a seed draws where the log has all CPU times, and how many seeds a replay has by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from asad.replay.baseline import FIVE_SEEDS_JOBS, resolved, usual_repeat
from asad.replay.cpu_demand import assign
from asad.replay.machine import from_flags
from asad.replay.node_order import drawn_order
from asad.replay.playing import leave_alone
from asad.replay.readers import Recorded, read_log
from asad.replay.recorded_starts import RecordedStarts
from asad.replay.replay_settings import Settings
from asad.replay.run import replay
from asad.replay.site import PartitionRules, Site, site_of
from asad.replay.workbench import Bench, prepare
from asad.sweep.estimates import estimate

SAMPLE = Path(__file__).parents[2] / "profiles" / "samples" / "lab-cluster.sacct"
SETTINGS = Settings(policies=("slurm", "measured"), poll_s=2.0, baseline="recorded")


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return read_log(str(SAMPLE))


def bench(recorded: Recorded, seed: int) -> Bench:
    settings = replace(SETTINGS, seed=seed)
    fingerprint, names = recorded.jobs.fingerprints()
    demand = assign(recorded.jobs, fingerprint, names, settings.demand, seed)
    return prepare(recorded, from_flags(5, 2, "8G"), settings, demand, [])


def starts(recorded: Recorded, seed: int) -> RecordedStarts:
    found = bench(recorded, seed).starts
    assert found is not None
    return found


def held(found: RecordedStarts) -> list[dict[str, int]]:
    """The cores of each node, by its name, that each row holds."""
    slots, names = found.slots, found.machine.node_names
    return [
        {names[node]: cores for node, cores in zip(slots.node[a:b], slots.cores[a:b], strict=True)}
        for a, b in zip(slots.at[:-1], slots.at[1:], strict=True)
    ]


def reached(found: RecordedStarts) -> list[set[str]]:
    """The names of the nodes of each reach."""
    slots, names = found.slots, found.machine.node_names
    return [
        {names[node] for node in slots.reach_node[a:b]}
        for a, b in zip(slots.reach_at[:-1], slots.reach_at[1:], strict=True)
    ]


def test_a_seed_draws_the_order_of_equal_nodes_and_every_job_keeps_its_own(recorded: Recorded) -> None:
    first = starts(recorded, 0)
    assert drawn_order(first, 0) is first, "seed 0 is as it was"
    orders = {first.machine.node_names}
    for seed in range(1, 6):
        other = starts(recorded, seed)
        assert held(other) == held(first) and reached(other) == reached(first)
        assert sorted(other.machine.node_names) == sorted(first.machine.node_names)
        assert starts(recorded, seed).machine.node_names == other.machine.node_names
        orders.add(other.machine.node_names)
    assert len(orders) > 3


def test_what_is_known_of_scheduling_follows_its_nodes(recorded: Recorded) -> None:
    found = starts(recorded, 0)
    names = found.machine.node_names
    site = Site(
        partitions={"p": PartitionRules("p", np.array([0, 2], np.int32))},
        gres=tuple({f"gpu:{name}": 1} for name in names),
        features=tuple(frozenset((name,)) for name in names),
        weight=np.arange(5.0),
    )
    for seed in range(1, 6):
        machine = drawn_order(replace(found, machine=replace(found.machine, site=site)), seed).machine
        drawn = site_of(machine)
        assert drawn is not None
        assert [next(iter(one)) for one in drawn.features] == list(machine.node_names)
        assert [next(iter(one)) for one in drawn.gres] == [f"gpu:{name}" for name in machine.node_names]
        assert [names[int(weight)] for weight in drawn.weight] == list(machine.node_names)
        assert {machine.node_names[node] for node in drawn.partitions["p"].nodes} == {names[0], names[2]}


def test_nodes_of_other_sizes_keep_their_places(recorded: Recorded) -> None:
    found = starts(recorded, 0)
    cores = np.array([2, 4, 2, 4, 2], np.int32)
    uneven = replace(found, machine=replace(found.machine, cores=cores))
    for seed in range(1, 6):
        assert drawn_order(uneven, seed).machine.cores.tolist() == cores.tolist()
    closed = np.array([True, False, False, False, False])
    assert drawn_order(replace(found, closed=closed), 3).closed.tolist() == closed.tolist()


def test_the_cluster_left_alone_is_the_log_with_every_seed(recorded: Recorded) -> None:
    for seed in (0, 1, 2):
        alone = leave_alone(bench(recorded, seed), "slurm")
        assert alone.cluster.jobs["start"].tolist() == recorded.jobs.start_s.tolist()
        assert alone.moved == 0


def test_the_noise_of_use_depends_on_the_seed(recorded: Recorded) -> None:
    def responses(seed: int) -> float | int | None:
        settings = replace(SETTINGS, use_sd=0.3, seed=seed)
        result = replay(recorded, from_flags(2, 1, "4G"), settings)
        return result.policies["measured"].metrics["response_mean_s"]

    assert responses(0) == responses(0)
    assert len({responses(seed) for seed in range(4)}) > 1


def test_how_many_seeds_there_are_follows_from_the_number_of_jobs(recorded: Recorded) -> None:
    settings, why = resolved(replace(SETTINGS, baseline="auto"), recorded)
    assert settings.baseline == "recorded" and not why
    assert usual_repeat(settings, FIVE_SEEDS_JOBS) == 5
    assert usual_repeat(settings, FIVE_SEEDS_JOBS + 1) == 3
    assert usual_repeat(replace(settings, policies=("slurm", "fcfs")), 10) == 1
    assert usual_repeat(replace(settings, lending=False), 10) == 1
    assert usual_repeat(replace(settings, deferrable=("window=1h",)), 10) == 1


def test_a_job_that_ran_past_its_limit_is_not_killed_for_it_as_a_guest() -> None:
    """Slurm gives grace; on recorded starts such a job runs as long as it did."""
    log = read_log(str(SAMPLE))
    jobs = replace(log.jobs, time_limit_s=log.jobs.run_s - 1.0)
    result = replay(replace(log, jobs=jobs), from_flags(2, 1, "4G"), SETTINGS)
    measured = result.policies["measured"]
    assert measured.guest.any() and measured.metrics["killed_by_lending"] == 0


def test_equal_values_have_no_interval() -> None:
    assert estimate([0.1, 0.1, 0.1]).half_width == 0.0
    assert estimate([0.1, 0.2]).half_width != 0.0
