"""Whatever jobs come, whatever a policy says and whenever the daemon is killed: what starts fits, leases are short, and
nobody waits for ever."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from deferred_cluster import HOUR_S, POLL_S, Says, Yielding, cycle_of, deferral
from hypothesis import given, settings
from hypothesis import strategies as some
from slotted_cluster import EPOCH, Job

from asad.decisions import Defer, Start
from asad.defer.deferral_options import PACKINGS
from asad.defer.deferral_policy import Deferral
from asad.defer.jobs import Waiting

ODD = (math.nan, math.inf, -math.inf, 1e308, -1e308, 0.0, -0.0, 1.0)
MARGIN_S = 60.0


@some.composite
def jobs(draw: Any) -> list[Job]:
    made = []
    for number in range(draw(some.integers(1, 10))):
        array = draw(some.integers(0, 5)) == 0
        run_s = 10.0 * draw(some.integers(1, 120))
        window_s = draw(some.sampled_from((0, 0, 60, 600, 3600, 20_000)))
        submit_s = EPOCH + 10.0 * draw(some.integers(0, 90))
        own_s = draw(some.sampled_from((math.nan, math.nan, submit_s + 500.0)))
        limit_s = run_s * draw(some.sampled_from((1.0, 1.0, 3.0)))
        deadline = draw(some.integers(0, 3)) == 0
        made.append(
            Job(
                str(number + 1),
                run_s,
                draw(some.integers(1, 5)) if array else 1,
                cores=draw(some.integers(1, 4)),
                hint=f"deferrable={window_s}s" if window_s else "",
                submit_s=submit_s,
                limit_s=limit_s,
                array=array,
                throttle=draw(some.sampled_from((0, 2))) if array else 0,
                begin_s=own_s,
                deadline_s=submit_s + 9000.0 if deadline else math.nan,
            )
        )
    return made


@some.composite
def policies(draw: Any) -> Any:
    """A policy by name, or one that says anything at all, by a seed."""
    name = draw(some.sampled_from(("fifo", "sjf", "edf", "tetris", "biggest", "anything")))
    if name != "anything":
        return lambda: name
    seed = draw(some.integers(0, 2**31))

    def says(waiting: Waiting) -> Any:
        rng = np.random.default_rng((seed, waiting.now, len(waiting)))
        kind = rng.integers(6)
        if kind == 0:
            raise RuntimeError("it errs")
        if kind == 1:
            return np.zeros(len(waiting) + 1)
        return rng.choice(ODD, len(waiting)) if kind < 4 else rng.normal(size=len(waiting))

    return lambda: Says(says)


class Watch:
    """What must hold in every cycle."""

    def __init__(self, cluster: Yielding, policy: Deferral) -> None:
        self.cluster, self.policy = cluster, policy

    def __call__(self, cycle: Any) -> None:
        seen, jobs = cycle.snapshot, cycle.snapshot.jobs
        idle = int((seen.core_owner < 0).sum())
        taken = 0
        for outcome in cycle.outcomes:
            decision = outcome.decision
            assert outcome.done, outcome
            job = self.cluster._job_of(decision.job)
            assert job.hint or not math.isnan(job.deadline_s), "an on-demand job is never touched"
            detail = decision.cause.detail
            if isinstance(decision, Defer):
                assert decision.until_s - seen.time_s <= HOUR_S
                assert seen.time_s < decision.until_s <= detail["latest_s"] - MARGIN_S + 1e-6
                assert decision.until_s + job.limit_s <= job.deadline_s or math.isnan(job.deadline_s)
            else:
                assert isinstance(decision, Start)
                if detail["urgent"]:
                    wait_s = self.policy.options.lead * detail["expected_s"]
                    assert seen.time_s >= detail["latest_s"] - MARGIN_S - wait_s
                    continue
                assert seen.time_s >= detail["earliest_s"], "nobody starts before his own begin time"
                tasks = 1
                if job.array:
                    waiting = sum(math.isnan(task.start_s) for task in job.all)
                    running = self.cluster.running(job)
                    tasks = min(waiting, max(1, job.throttle - running)) if job.throttle else waiting
                taken += tasks * int(jobs.cores[decision.job])
        assert taken <= idle, "what starts by its score in one cycle fits on idle cores"
        json.dumps(self.policy.overview(), allow_nan=False)


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(jobs(), some.lists(some.integers(1, 4), min_size=1, max_size=3), policies(), some.data())
def test_what_starts_fits_and_everybody_starts_in_the_end(
    given_jobs: list[Job], nodes: list[int], scorer: Any, data: Any
) -> None:
    nodes[0] = 4  # every job fits somewhere
    cluster = Yielding(nodes, given_jobs)
    options = {
        "packing": data.draw(some.sampled_from(PACKINGS)),
        "reserve": data.draw(some.sampled_from((0.0, 0.3))),
        "by_node": data.draw(some.booleans()),
        "step_s": data.draw(some.sampled_from((300.0, 1800.0))),
        "margin_s": MARGIN_S,
        "lead": data.draw(some.sampled_from((0.0, 0.5, 2.0))),
    }
    kills = data.draw(some.sets(some.integers(0, 60), max_size=3))
    policy = deferral(scorer(), **options)
    cycle, watch = cycle_of(cluster, policy), Watch(cluster, policy)
    for number in range(1500):
        if number in kills:
            kept = json.loads(json.dumps(policy.state(), allow_nan=False))
            policy = deferral(scorer(), **options)
            if data.draw(some.booleans()):
                policy.restore(kept)
            cycle, watch = cycle_of(cluster, policy), Watch(cluster, policy)
        cycle.run_once()
        watch(cycle)
        if cluster.over:
            break
        cluster.run(cluster.now_s + POLL_S)
    assert cluster.over, [(job.name, job.begin_s - cluster.now_s) for job in cluster.jobs]
    cycle.run_once()
    assert policy.overview()["waiting"] == 0


@pytest.mark.parametrize("after", [0, 1, 7, 30])
@settings(deadline=None, max_examples=20)
@given(given_jobs=jobs(), scorer=policies())
def test_when_the_daemon_dies_nobody_waits_longer_than_a_lease(
    after: int, given_jobs: list[Job], scorer: Any
) -> None:
    cluster = Yielding([4], given_jobs)
    cycle = cycle_of(cluster, deferral(scorer()))
    for _ in range(after):
        cycle.run_once()
        cluster.run(cluster.now_s + POLL_S)
    died_s = cluster.now_s
    for job in cluster.jobs:
        assert job.name not in cluster.held or job.begin_s <= died_s + 2 * POLL_S + 5 * POLL_S + 1.0
    cluster.run(died_s + 40_000.0, step_s=60.0)
    assert cluster.over
