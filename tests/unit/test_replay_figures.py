"""Who is late in a replay, and why: stretched by sharing, or displaced."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asad.model import Floats, Machine
from asad.replay.cpu_demand import assign
from asad.replay.placebo import placebo
from asad.replay.playing import Played, leave_alone
from asad.replay.readers import read_log
from asad.replay.replay_settings import Settings
from asad.replay.results import PolicyResult
from asad.replay.schedule_figures import figures, later, stretched
from asad.replay.summary import summarise
from asad.replay.workbench import prepare
from asad.replay.workload_columns import Workload

SAMPLE = Path(__file__).resolve().parents[2] / "profiles/samples/lab-cluster.sacct"


def workload(submit_s: list[float], work_s: list[float]) -> Workload:
    n = len(submit_s)
    return Workload(
        job_id=np.arange(n),
        submit_s=np.array(submit_s, float),
        work_s=np.array(work_s, float),
        planned_s=np.array(work_s, float),
        limit_s=np.full(n, np.inf),
        cores=np.ones(n, np.int32),
        nodes=np.ones(n, np.int32),
        memory_bytes_per_core=np.zeros(n),
        demand=np.ones(n),
        depends_on=np.full(n, -1, np.int32),
        think_s=np.zeros(n),
        application=np.zeros(n, np.int32),
        user=np.zeros(n, np.int32),
    )


def counted(
    jobs: Workload,
    start_s: list[float] | Floats,
    end_s: list[float] | Floats,
    baseline_end_s: list[float] | Floats,
    *,
    host: tuple[int, ...] = (),
    guest: tuple[int, ...] = (),
    managed: tuple[int, ...] | None = None,
    left_s: dict[int, float] | None = None,
) -> dict[str, float | int | None]:
    n = len(jobs)
    rows = np.arange(n)
    left = np.array([(left_s or {}).get(row, 0.0) for row in range(n)])
    return figures(
        jobs,
        4,
        start_s=np.asarray(start_s, float),
        end_s=np.asarray(end_s, float),
        done_s=jobs.work_s - left,
        demand=jobs.demand,
        overran=np.zeros(n, np.bool_),
        cut=left > 0,
        host=np.isin(rows, host),
        guest=np.isin(rows, guest),
        lent_core_s=0.0,
        baseline_end_s=np.asarray(baseline_end_s, float),
        displaced_placebo=1.5,
        displaced_unshared_placebo=0.5,
        managed=None if managed is None else np.isin(rows, managed),
    )


def test_late_jobs_are_stretched_guests_stretched_hosts_or_displaced() -> None:
    """All ran from 0 to 1000 by themselves, but for job 5, which ended at 3000."""
    jobs = workload([0.0] * 6, [1000.0] * 6)
    start = [0.0, 0.0, 500.0, 500.0, 0.0, 0.0]
    end = [1200.0, 1100.0, 1500.0, 1520.0, 1050.0, 1000.0]
    base = [1000.0] * 5 + [3000.0]
    found = counted(jobs, start, end, base, guest=(0, 3), host=(1, 3))
    assert found["late"] == 4, "50 s is within the tolerance"
    assert found["late_guests"] == 2
    assert found["stretched_guests"] == 1
    assert found["stretched_hosts"] == 1
    assert found["displaced"] == 2, "job 3 shared, but it is its start that makes it late"
    assert found["displaced_unshared"] == 1
    assert (found["displaced_placebo"], found["displaced_unshared_placebo"]) == (1.5, 0.5)
    assert found["stretched_lateness_s"] == 300.0
    assert found["lateness_over_saved"] == pytest.approx((200 + 100 + 500 + 520) / 2000)
    assert found["losers"] == 3


def test_a_job_of_both_roles_counts_as_a_guest() -> None:
    found = counted(workload([0.0], [1000.0]), [0.0], [1200.0], [1000.0], host=(0,), guest=(0,))
    assert (found["stretched_guests"], found["stretched_hosts"]) == (1, 0)


def test_a_killed_job_is_held_to_the_work_that_it_got_done() -> None:
    """It started 500 s late and was cut at 1700 s; the 1000 s that it got done would have ended at 1500."""
    jobs = workload([0.0], [2000.0])
    late = counted(jobs, [500.0], [1700.0], [1550.0], guest=(0,), left_s={0: 1000.0})
    assert (late["late"], late["stretched_guests"], late["displaced"]) == (1, 1, 0)


def test_a_managed_job_that_is_late_is_displaced_even_if_it_ran_longer() -> None:
    found = counted(workload([0.0], [1000.0]), [0.0], [1200.0], [1000.0], managed=(0,))
    assert (found["late"], found["displaced"], found["displaced_unshared"], found["losers"]) == (1, 1, 0, 1)


def test_where_nothing_was_saved_there_is_nothing_to_divide_by() -> None:
    jobs = workload([0.0], [1000.0])
    assert counted(jobs, [500.0], [1500.0], [1000.0])["lateness_over_saved"] is None
    assert counted(jobs, [0.0], [1000.0], [1000.0])["lateness_over_saved"] is None
    assert (
        counted(workload([0.0] * 2, [1.0] * 2), [0.0] * 2, [1.0] * 2, [1.0, 9.0])["lateness_over_saved"] == 0
    )


def test_alone_nobody_is_late() -> None:
    jobs = workload([0.0], [10.0])
    alone = figures(
        jobs, 4, start_s=jobs.submit_s, end_s=jobs.work_s, done_s=jobs.work_s, demand=jobs.demand,
        overran=np.zeros(1, np.bool_), cut=np.zeros(1, np.bool_), host=np.zeros(1, np.bool_),
        guest=np.zeros(1, np.bool_), lent_core_s=0.0,
    )  # fmt: skip
    keys = ("late", "late_guests", "stretched_guests", "stretched_hosts", "displaced", "stretched_lateness_s")
    assert [alone[key] for key in keys] == [0] * 6
    assert alone["lateness_over_saved"] is None


@given(st.data())
def test_late_is_the_sum_of_its_causes_whatever_happens(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 12))
    times = st.lists(st.floats(0.0, 5000.0), min_size=n, max_size=n)
    rows = st.sets(st.integers(0, n - 1))
    jobs = workload(data.draw(times), [one + 1 for one in data.draw(times)])
    start = jobs.submit_s + data.draw(times)
    end = start + jobs.work_s + data.draw(times)
    base = jobs.submit_s + jobs.work_s + data.draw(times)
    host, guest, managed = (tuple(data.draw(rows)) for _ in range(3))
    found = counted(jobs, start, end, base, host=host, guest=guest, managed=managed)
    parts = [found[key] or 0 for key in ("stretched_guests", "stretched_hosts", "displaced")]
    assert found["late"] == sum(parts) == int(later(jobs, end, base).sum())
    assert (found["late_guests"] or 0) >= parts[0]
    assert (found["displaced_unshared"] or 0) <= parts[2]
    # one that runs as long as its work takes is never stretched
    assert not stretched(jobs, start, start + jobs.work_s, jobs.work_s, base).any()


def test_the_json_of_a_policy_has_its_funnel_in_order() -> None:
    nobody = np.zeros(0, np.bool_)
    policy = PolicyResult(
        "asax", {"late": 2}, np.zeros(0), np.zeros(0), nobody, nobody, nobody, np.zeros(1), np.zeros(0),
        np.zeros(0), funnel=(("unmeasured", 2.5), ("lent", 7.0)),
    )  # fmt: skip
    assert policy.to_json() == {
        "late": 2,
        "funnel": [{"reason": "unmeasured", "core_h": 2.5}, {"reason": "lent", "core_h": 7.0}],
    }


@dataclass(slots=True)
class Funnelled(Played):
    """A policy that was counted as it was played."""

    funnel: tuple[tuple[str, float], ...] = ()


def test_a_summary_takes_the_funnel_over_where_one_was_counted() -> None:
    recorded = read_log(SAMPLE)
    machine = Machine(("n1", "n2"), np.ones(2, np.int32), np.full(2, 2.0**32), "made up")
    settings = Settings(policies=("slurm",))
    demand = assign(recorded.jobs, *recorded.jobs.fingerprints(), settings.demand, 0)
    bench = prepare(recorded, machine, settings, demand, [], None)
    alone = leave_alone(bench, "slurm")
    counted = Funnelled(alone.cluster, 0.0, funnel=(("headroom", np.float64(1.5)), ("lent", 2.0)))
    assert summarise(bench, "asax", counted, alone).funnel == (("headroom", 1.5), ("lent", 2.0))
    assert summarise(bench, "slurm", alone).to_json()["funnel"] == []
    moved = placebo(bench, alone, 20, 0)
    assert moved.late >= moved.unshared >= 0
    shown = summarise(bench, "asax", alone, alone, moved).metrics
    assert (shown["displaced_placebo"], shown["displaced_unshared_placebo"]) == moved
