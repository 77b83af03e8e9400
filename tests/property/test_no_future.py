"""No policy of a replay sees the future: logs that are equal up to a moment give equal decisions up to it."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_logs import BEGIN_S, log_of

from asad.cycle import Cycle
from asad.model import Machine
from asad.replay.cpu_demand import assign
from asad.replay.machine import uniform
from asad.replay.readers import Recorded
from asad.replay.replay_settings import Settings
from asad.replay.workbench import Bench, prepare

NODES, CORES, JOBS, LIMIT_S = 3, 4, 40, 7200


AT_ONCE = patch("asad.replay.limits.inferred_limits.LASTS_S", 0.0)
"""These logs are of some hours: a ceiling need not have stood for a day."""
MOST_OF_BEN = 4
"""Where limits bind, one user has so many cores at one time and no more."""


def _free_at(placed: list[dict[str, Any]], node: str, cores: int, start: int, run: int) -> bool:
    """Has the node so many cores for so long beside those that are placed?"""
    return _fits([one for one in placed if one["nodes"] == node], cores, start, run, CORES)


def _fits(others: list[dict[str, Any]], cores: int, start: int, run: int, most: int) -> bool:
    """Do these cores, beside those of the others, stay within so many for so long?"""
    there = [one for one in others if one["start"] < start + run]
    moments = [start, *(one["start"] for one in there if one["start"] > start)]
    return all(
        sum(one["cores"] for one in there if one["start"] <= moment < one["start"] + one["run"]) + cores
        <= most
        for moment in moments
    )


def _placed(job: dict[str, Any], delay: int, earliest: int, placed: list[dict[str, Any]]) -> dict[str, Any]:
    """The job where and when there is room, no sooner than `earliest` and after a `delay` of its own."""
    start = max(job["submit"] + delay, earliest)
    own = [one for one in placed if one.get("user") == "ben"] if job.get("user") == "ben" else []
    while True:
        within = _fits(own, job["cores"], start, job["run"], MOST_OF_BEN)
        for number in range(1, NODES + 1) if within else ():
            if _free_at(placed, f"n{number}", job["cores"], start, job["run"]):
                return {**job, "start": start, "nodes": f"n{number}"}
        start += 60


def _two_logs(
    seed: int, moment: int, *, limited: bool = False
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Schedules with waits of any reason; the second has other starts and other jobs after `moment`. Where they are
    `limited`, most jobs are of a user who has a limit."""
    rng = np.random.default_rng(seed)
    jobs: list[dict[str, Any]] = [
        {
            "id": k + 1,
            "submit": int(at),
            "run": 10 * int(rng.integers(6, 360)),  # so that CPU times are whole seconds
            "cores": int(rng.integers(1, CORES + 1)),
            "cpu": float(rng.choice([0.2, 0.5])),
            "name": f"app{'abc'[rng.integers(3)]}",
            "limit": LIMIT_S,
            **({"user": "ben" if k % 3 else "ann", "account": "ab"[k % 2]} if limited else {}),
        }
        for k, at in enumerate(np.sort(rng.integers(0, 20_000, JOBS)))
    ]
    delays = rng.choice([0, 0, 600, 3000], JOBS)
    # which nodes its partition has is part of the machine, and so the same in both
    one: list[dict[str, Any]] = [
        {
            "id": JOBS + 1 + k,
            "start": 0,
            "run": 60,
            "cores": 1,
            "limit": LIMIT_S,
            "nodes": f"n{k + 1}",
            "name": "seen",
        }
        for k in range(NODES)
    ]
    for job, delay in zip(jobs, delays.tolist(), strict=True):
        one.append(_placed(job, delay, 0, one))
    other = [job for job in one if job["start"] <= moment]
    for job in one:
        if job["start"] > moment and (job["submit"] <= moment or rng.random() < 0.7):
            # a job that becomes a guest shows sooner how long it runs: that stays as it is
            known = job["submit"] <= moment
            changed = job if known else {**job, "run": 10 * int(rng.integers(6, 360))}
            other.append(_placed(changed, int(rng.choice([0, 1200, 5000])), moment + 1, other))
    first, second = (sorted(jobs, key=lambda job: int(job["id"])) for jobs in (one, other))
    return first, second


def _machine() -> Machine:
    machine = uniform(NODES, CORES, np.nan, "given")
    return replace(machine, node_names=tuple(f"n{k + 1}" for k in range(NODES)))


def _bench(recorded: Recorded, machine: Machine, policy: str, *, infer: bool = True) -> Bench:
    chosen = Settings(("slurm", policy), baseline="recorded", vary_demand=False, infer_limits=infer)
    code, names = recorded.jobs.fingerprints()
    return prepare(recorded, machine, chosen, assign(recorded.jobs, code, names, chosen.demand, 0), [])


def _decisions(
    recorded: Recorded, machine: Machine, policy: str, until: float, *, infer: bool = True
) -> list[tuple[Any, ...]]:
    """Everything that was decided up to a moment, with what became of it."""
    bench = _bench(recorded, machine, policy, infer=infer)
    chosen, stages = bench.settings, bench.stages(policy, 0)
    cluster = bench.cluster("recorded", stages.lending.held, pooled=stages.lending.pooled)
    cycle = Cycle(cluster, *stages, stages.guard(chosen.config.guard, 0.0))
    found: list[tuple[Any, ...]] = []
    names_of = recorded.jobs.job_id
    cycle.record = lambda number, snapshot, outcomes: found.extend(
        (snapshot.time_s, outcome.done, str(names_of[row]), _plain(outcome.decision))
        for outcome in outcomes
        for row in [max(getattr(outcome.decision, name, -1) for name in ("guest", "host", "job"))]
    )
    wake_s = np.inf
    while cluster.advance(wake_s) and cluster.now_s <= until:
        wake_s = cycle.run_once()
    return [one for one in found if one[0] <= until]


def _plain(decision: Any) -> str:
    return f"{decision.kind} {replace(decision, cause=replace(decision.cause, detail={}))}"


@pytest.mark.parametrize("policy", ["measured", "asax", "static", "oga"])
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000), moment=st.integers(4_000, 18_000))
def test_decisions_up_to_a_moment_are_the_same_whatever_follows(policy: str, seed: int, moment: int) -> None:
    machine = _machine()
    with tempfile.TemporaryDirectory() as folder:
        one, other = (log_of(Path(folder) / "log", jobs) for jobs in _two_logs(seed, moment))
        until = BEGIN_S + moment
        assert _decisions(one, machine, policy, until) == _decisions(other, machine, policy, until)


def test_the_logs_of_this_test_make_policies_decide() -> None:
    """Else the test above compared nothing with nothing."""
    machine = _machine()
    with tempfile.TemporaryDirectory() as folder:
        found = 0
        for seed in range(5):
            one, other = (log_of(Path(folder) / "log", jobs) for jobs in _two_logs(seed, 15_000))
            assert len(one.jobs) != len(other.jobs) or (one.jobs.start_s != other.jobs.start_s).any()
            found += len(_decisions(one, machine, "measured", BEGIN_S + 15_000))
    assert found > 5


@pytest.mark.parametrize("policy", ["measured", "asax"])
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000), moment=st.integers(4_000, 18_000))
def test_limits_that_the_log_shows_bind_no_sooner_than_it_does(policy: str, seed: int, moment: int) -> None:
    machine = _machine()
    with tempfile.TemporaryDirectory() as folder, AT_ONCE:
        one, other = (log_of(Path(folder) / "log", jobs) for jobs in _two_logs(seed, moment, limited=True))
        until = BEGIN_S + moment
        assert _known(one, machine, until) == _known(other, machine, until)
        assert _decisions(one, machine, policy, until) == _decisions(other, machine, policy, until)


def _known(recorded: Recorded, machine: Machine, until: float) -> list[tuple[float, str, float, float]]:
    """The ceilings that are inferred up to a moment: of whom and what, and since when."""
    found = _bench(recorded, machine, "measured").shown.inferred
    assert found is not None
    return [
        (at, found.table.groups[int(group)].owner, resource, ceiling)
        for at, group, resource, ceiling in found.changes.tolist()
        if at <= until
    ]


def test_the_logs_of_this_test_show_limits_that_change_what_is_decided() -> None:
    """Else the test above compared nothing with nothing."""
    machine, known, kept, differ = _machine(), 0, 0, 0
    with tempfile.TemporaryDirectory() as folder, AT_ONCE:
        for seed in range(8):
            one, other = (
                log_of(Path(folder) / "log", jobs) for jobs in _two_logs(seed, 12_000, limited=True)
            )
            known += len(_known(one, machine, BEGIN_S + 12_000))
            differ += _known(one, machine, np.inf) != _known(other, machine, np.inf)
            free = _decisions(one, machine, "measured", np.inf, infer=False)
            kept += _decisions(one, machine, "measured", np.inf) != free
    assert known > 0 and kept > 0 and differ > 0
