"""Eviction on Slurm: in the journal first, as its owner chose, and never of what does not run as a batch job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slurm_samples import Lab, SlurmInMemory, a_job, row, running

from asad.decisions import EVICTIONS, Cause, Evict

WHY = Cause("sow", "statement 7 was born earlier and is due")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """One job waits, two run."""
    slurm = SlurmInMemory()
    slurm.add(a_job(10), running(20, {"n1": 2}), running(30, {"n2": 2}))
    return Lab(tmp_path, slurm)


def evict(lab: Lab, job: str, how: str) -> str:
    (outcome,) = lab.cluster.apply([Evict(WHY, row(lab.snapshot(5), job), how)])
    assert outcome.done == (outcome.reason == "")
    return outcome.reason


def journal(lab: Lab) -> list[dict[str, Any]]:
    path = lab.state_dir / "offers.journal"
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


@pytest.mark.parametrize("how", EVICTIONS)
def test_a_running_job_is_evicted_as_its_owner_chose(lab: Lab, how: str) -> None:
    assert evict(lab, "20", how) == ""
    assert lab.slurm.updates == [("20", {"evict": how})]
    assert [(line["what"], line["job"], line["how"]) for line in journal(lab)] == [("evict", "20", how)]
    seen = lab.snapshot(5)
    assert row(seen, "30") in seen.running
    ended = lab.cluster.finished(0.0)
    assert ended.completed is not None
    if how == "cancel":
        assert [str(seen.jobs.job_id[at]) for at in ended.row] == ["20"] and not ended.completed.any()
    else:  # it waits, held: neither run nor tried, and nobody learns that it ended
        assert len(ended.row) == 0
        at = row(seen, "20")
        assert np.isnan(seen.jobs.start_s[at]) and at not in seen.queue and at not in seen.running


@pytest.mark.parametrize("how", EVICTIONS)
def test_the_last_task_of_an_array_goes_alone(lab: Lab, how: str) -> None:
    """It has the number of the array itself, by which scancel and scontrol mean every task."""
    lab.slurm.add(
        running(40, {"n3": 2}, array_job_id=40, array_task_id=7),
        running(41, {"n4": 2}, array_job_id=40, array_task_id=6),
    )
    assert evict(lab, "40_7", how) == ""
    assert lab.slurm.jobs[40]["job_state"] != "RUNNING" and lab.slurm.jobs[41]["job_state"] == "RUNNING"


def test_who_does_not_run_is_not_evicted(lab: Lab) -> None:
    assert evict(lab, "10", "cancel") == "it does not run any more"
    at = row(lab.snapshot(5), "30")
    lab.slurm.end(30, lab.now_s)
    lab.snapshot(5)
    lab.cluster.finished(0.0)
    assert lab.cluster.apply([Evict(WHY, at, "cancel")])[0].reason == "it does not run any more"
    assert evict(lab, "20", "kill") == "there is no way 'kill' to evict it"
    assert lab.slurm.updates == [] and journal(lab) == []


def test_what_slurm_refuses_is_reported(lab: Lab) -> None:
    lab.slurm.refuses = "Requested operation is presently disabled"
    assert evict(lab, "20", "requeue-hold") == "Slurm refused: Requested operation is presently disabled"
    lab.slurm.refuses, lab.slurm.hangs = "", True
    assert evict(lab, "20", "cancel") == "scontrol: no answer within 1 s"


def test_without_a_journal_nobody_is_evicted(lab: Lab) -> None:
    at = row(lab.snapshot(5), "20")
    (lab.state_dir / "offers.journal").unlink()
    (lab.state_dir / "offers.journal").mkdir()
    assert "cannot be written" in lab.cluster.apply([Evict(WHY, at, "cancel")])[0].reason
    assert lab.slurm.updates == []


def test_jobs_that_end_show_whether_they_ended_well(lab: Lab) -> None:
    lab.snapshot()
    lab.slurm.end(20, lab.now_s + 5)
    lab.slurm.jobs[30] |= {"job_state": "FAILED", "end_time": int(lab.now_s + 5)}
    seen = lab.snapshot(10)
    ended = lab.cluster.finished(0.0)
    assert ended.completed is not None
    record = {
        str(seen.jobs.job_id[at]): bool(well) for at, well in zip(ended.row, ended.completed, strict=True)
    }
    assert record == {"20": True, "30": False}
