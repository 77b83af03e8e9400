"""Whatever jobs come, start by themselves or are killed with the daemon: every decision is legal, and all jobs end."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from slotted_cluster import EPOCH, AsSoonAsRoom, Job, Obedient

from asad.admit.admission_options import Options
from asad.admit.admission_policy import Admission
from asad.admit.schemes import scheme_maker
from asad.config import GuardSettings
from asad.cycle import Cycle
from asad.defer.at_once import AtOnce
from asad.guard import guard_for
from asad.place.native import Native
from asad.share.exclusive import Exclusive

SLOT = 100.0
UTILITIES = (
    "",
    "utility=constant(10)",
    "utility=linear(20, 5m, 1h)",
    "utility=sigmoid(50, 0.01/s, 10m)",
    "utility=deadline(5, 20m);workers=2",
    "utility=deadline(5, nonsense)",
)


@some.composite
def jobs(draw: Any) -> list[Job]:
    made = []
    for number in range(draw(some.integers(1, 7))):
        array = draw(some.booleans())
        run_s = float(draw(some.integers(1, 40)) * 10)
        made.append(
            Job(
                str(number + 1),
                run_s,
                draw(some.integers(1, 9)) if array else 1,
                cores=draw(some.integers(1, 3)),
                hint=draw(some.sampled_from(UTILITIES)),
                submit_s=EPOCH + 10.0 * draw(some.integers(0, 60)),
                # limits are wrong both ways here, as if nothing killed at them
                limit_s=run_s * draw(some.sampled_from((0.5, 1.0, 3.0))),
                array=array,
                throttle=draw(some.sampled_from((0, 0, 1, 3))) if array else 0,
            )
        )
    return made


def begun(name: str, cluster: Obedient, options: Options, kept: Any = None) -> tuple[Admission, Cycle]:
    """A daemon's policy and cycle; of one that begins again, with what the last one kept."""
    make = AsSoonAsRoom if name == "as-soon" else scheme_maker(name, {})
    policy = Admission(name, make, cluster.applications, options)
    if kept is not None:
        policy.restore(json.loads(json.dumps(kept, allow_nan=False)))
        for job in cluster.jobs:
            job.admitted = False  # to be reported again is no fault then
    guard = guard_for(frozenset(), GuardSettings())
    return policy, Cycle(cluster, policy, AtOnce(), Native(), Exclusive(), guard)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["as-soon", "oasis", "drf"])
@settings(deadline=None, max_examples=40)
@given(jobs(), some.lists(some.integers(1, 4), min_size=1, max_size=3), some.data())
def test_decisions_are_legal_jobs_end_and_plans_fit(
    name: str, given_jobs: list[Job], nodes: list[int], data: Any
) -> None:
    nodes[0] = 3  # every job fits somewhere
    cluster = Obedient(nodes, given_jobs)
    own = {job.name: job.throttle for job in given_jobs}
    options = Options(slot_s=SLOT, horizon=60, again_s=SLOT, early=data.draw(some.booleans()))
    kills = data.draw(some.sets(some.integers(0, 40), max_size=2))

    policy, cycle = begun(name, cluster, options)
    for number in range(1200):
        if number in kills:
            policy, cycle = begun(name, cluster, options, policy.state())
        cycle.run_once()
        assert all(outcome.done for outcome in cycle.outcomes), [o.reason for o in cycle.outcomes]
        seen: Any = policy.overview()
        for slot in seen["slots"]:
            assert slot["planned_cores"] <= sum(nodes), slot
        if cluster.over:
            break
        cluster.run(cluster.now_s + 30.0)
    assert cluster.over, [(job.name, job.begin_s - cluster.now_s, job.throttle) for job in cluster.jobs]
    assert cluster.illegal == []
    for job in cluster.jobs:
        bound = own[job.name]
        assert not bound or 0 < job.throttle <= bound or not job.array
        assert math.isnan(job.begin_s) or job.begin_s <= cluster.now_s


@some.composite
def pairs(draw: Any) -> list[Job]:
    """Arrays of workers and companions that come, or do not, in any order; one is cancelled at times."""
    made = []
    for number in range(draw(some.integers(1, 3))):
        facts = {"array": True, "limit_s": float(draw(some.sampled_from((50, 100, 300))))}
        for name, hint, application in (("w", "utility=constant(10);ps=store:2", 0), ("s", "", 2)):
            made.append(
                Job(
                    f"{name}{number}",
                    float(draw(some.integers(1, 25)) * 10),
                    draw(some.integers(1, 9)),
                    hint=hint,
                    submit_s=EPOCH + 10.0 * draw(some.integers(0, 60)),
                    application=application,
                    throttle=draw(some.sampled_from((0, 0, 1, 3))),
                    **facts,
                )
            )
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", ["as-soon", "oasis", "drf"])
@settings(deadline=None, max_examples=40)
@given(pairs(), jobs(), some.booleans(), some.data())
def test_companions_live_and_end_with_everybody_else(
    name: str, given_pairs: list[Job], others: list[Job], apart: bool, data: Any
) -> None:
    cluster = Obedient([4, 4], given_pairs + others)
    own = {job.name: job.throttle for job in cluster.jobs}
    beside = {"parameter_server_nodes": ("n1",)} if apart else {"server_share": 0.25}
    options = Options(slot_s=SLOT, horizon=60, again_s=SLOT, ps_patience_s=200.0)._replace(**beside)
    options = options._replace(early=data.draw(some.booleans()))
    kills = data.draw(some.sets(some.integers(0, 40), max_size=2))
    cancelled = data.draw(some.sampled_from([None, *given_pairs]))
    when = data.draw(some.integers(1, 30))

    policy, cycle = begun(name, cluster, options)
    for number in range(1500):
        if number in kills:
            policy, cycle = begun(name, cluster, options, policy.state())
        if number == when and cancelled is not None and cancelled.submit_s <= cluster.now_s:
            for task in cancelled.all:
                if math.isnan(task.start_s):
                    task.start_s = task.end_s = cluster.now_s
        cycle.run_once()
        assert all(outcome.done for outcome in cycle.outcomes), [o.reason for o in cycle.outcomes]
        if cluster.over:
            break
        cluster.run(cluster.now_s + 30.0)
    assert cluster.over, [(job.name, job.begin_s - cluster.now_s, job.throttle) for job in cluster.jobs]
    # what is left of a companion may serve other workers later, and is admitted again with them
    again = {f"{job.name} is admitted twice" for job in given_pairs if not job.hint}
    assert set(cluster.illegal) <= again
    for job in cluster.jobs:
        bound = own[job.name]
        assert not bound or 0 < job.throttle <= bound or not job.array
