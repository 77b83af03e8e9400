"""Users who lie: what it gains them, and that nobody else loses by it.

Here they lie about use, progress and comments. Other lies stand beside what they are about: environments
(test_node_actor), time limits (test_slurm_slow), hostile names (test_hostile_names) and a flood of them
(test_applications), utilities beyond a budget (test_admit_budget), forged marks (test_slurm_other_head), a flood of
requests (test_api_control) and of submissions (test_mesos_parts).
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from slurm_samples import BECAUSE, Lab, SlurmInMemory, a_job, row, running, sample

from asad.config import GuardSettings
from asad.decisions import CoAllocate
from asad.guard import Look
from asad.guard.loan_rules import happiness_floor
from asad.port import Lease


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Jobs 1 and 2 hold n1 and n2 and use a quarter of them; jobs 10 and 11 wait."""
    slurm = SlurmInMemory(nodes=3, cores=4)
    slurm.add(running(1, {"n1": 4}), running(2, {"n2": 4}), a_job(10), a_job(11))
    made = Lab(tmp_path, slurm)
    for i in (1, 2):
        made.actors.report(f"n{i}", sample(i, cores=4, cpu_fraction=0.25))
    return made


def guest_on_n1(lab: Lab) -> None:
    snapshot = lab.snapshot()
    offer = CoAllocate(BECAUSE, row(snapshot, "10"), (0,), (0.5,))
    (outcome,) = lab.cluster.apply([offer])
    assert outcome.done, outcome.reason
    lab.slurm.start(10, "n1", lab.now_s)
    lab.snapshot(5)


def leases(lab: Lab) -> dict[str, Lease]:
    return {lease.job_id: lease for lease in lab.actors.granted[-1]["n1"]}


def test_a_guest_that_was_light_and_takes_all_it_can_gets_its_quota_and_stays_in_the_idle_class(
    lab: Lab,
) -> None:
    guest_on_n1(lab)
    before = leases(lab)["10"].quota
    host = sample(1, cores=4, cpu_fraction=1.0)
    lab.actors.report("n1", host, sample(10, guest=True, cpu_fraction=1.0), time_s=lab.now_s)
    lab.snapshot(30)
    held = leases(lab)
    assert held["10"].quota == before == pytest.approx(0.25) and held["10"].guest
    assert math.isnan(held["1"].quota), "whoever hosts it is held back by nothing"


def test_a_host_that_was_light_and_takes_all_that_it_has_has_it(lab: Lab) -> None:
    guest_on_n1(lab)
    lab.actors.report("n1", sample(1, cores=4, cpu_fraction=1.0, pressure=0.0), time_s=lab.now_s)
    snapshot = lab.snapshot(30)
    assert math.isnan(leases(lab)["1"].quota)
    assert snapshot.jobs.pace[row(snapshot, "1")] == 1.0


def test_progress_that_is_a_lie_keeps_nothing_but_its_own_job_from_lending(lab: Lab) -> None:
    lab.actors.report("n1", sample(1, cores=4, cpu_fraction=0.25, progress=1e-9))
    lab.actors.report("n2", sample(2, cores=4, cpu_fraction=0.25, progress=1.0))
    snapshot = lab.snapshot()
    look = Look(snapshot, GuardSettings())
    offers = [CoAllocate(BECAUSE, row(snapshot, "10"), (node,), (0.5,)) for node in (0, 1)]
    assert "happiness" in happiness_floor.why_not(look, offers[0])
    assert happiness_floor.why_not(look, offers[1]) == ""


@pytest.mark.parametrize("steps", ["1", "9999999", "0", "-1", "1e9", "99999999999999999999"])
def test_steps_that_are_a_lie_are_at_most_all_of_them(lab: Lab, steps: str) -> None:
    lab.slurm.jobs[1] |= {"comment": f"asad:steps={steps}"}
    lab.actors.report("n1", sample(1, cores=4, cpu_fraction=0.25, steps_done=50))
    snapshot = lab.snapshot()
    passed = (snapshot.time_s - snapshot.jobs.start_s) / (snapshot.jobs.limit_end_s - snapshot.jobs.start_s)
    at = row(snapshot, "1")
    happiness = float(snapshot.jobs.happiness[at])
    assert math.isnan(happiness) or happiness <= 1.0 / passed[at] + 1e-9
    assert math.isnan(snapshot.jobs.happiness[row(snapshot, "2")])


@pytest.mark.parametrize(
    "comment", ["asad:no", "asad:no-host", "asad:memory-bound", "asad:no-guest asad:no-host"]
)
def test_a_comment_speaks_for_its_own_job_alone(lab: Lab, comment: str) -> None:
    before = lab.snapshot()
    reasons = before.jobs.host_bar[row(before, "2")], before.jobs.guest_bar[row(before, "11")]
    lab.slurm.jobs[1] |= {"comment": comment}
    lab.slurm.jobs[10] |= {"comment": comment}
    snapshot = lab.snapshot(5)
    assert (
        snapshot.jobs.host_bar[row(snapshot, "2")],
        snapshot.jobs.guest_bar[row(snapshot, "11")],
    ) == reasons
    assert (
        snapshot.jobs.memory_bound[row(snapshot, "2")] == snapshot.jobs.memory_bound[row(snapshot, "11")] == 0
    )
