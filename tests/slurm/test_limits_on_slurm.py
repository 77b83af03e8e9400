"""What sacctmgr prints of a real cluster says which of its pending jobs would exceed a limit, and which limit.

With `ASAD_GOLDEN=FOLDER` in the environment what sacctmgr printed is recorded there, as tests/golden/slurm has it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from asad_slurm import open_cluster
from asad_under_test import until
from log_of_jobs import log_of

from asad.cluster.reason_words import WORDS
from asad.daemon.clusters import NoNodes
from asad.daemon.waiting import now_by_reason
from asad.ineligible import Ineligible
from asad.replay.limits.limit_table import limit_table
from asad.replay.limits.sacctmgr_output import limits_of
from lab.slurm import ACCOUNT, RealSlurm, why_not

SETTING = (
    "add account physics parent=root",
    "add account theory parent=physics",
    "add account optics parent=physics",
    "add qos big",
    "modify qos normal set MaxTRESPerUser=cpu=4,mem=2G MaxJobsPerUser=3",
    "modify qos big set GrpTRES=cpu=9 MaxTRESPerAccount=cpu=5 MaxTRESPerJob=cpu=6 MaxWall=1:00:00",
    "modify account physics set GrpTRES=cpu=5 GrpJobs=100 MaxJobs=7 GrpTRESRunMins=cpu=100000 QOS=normal,big",
    "modify account theory set GrpTRES=mem=3000M",
    f"modify account {ACCOUNT} set QOS=normal,big",
    "add user nobody account=theory",
    "add user games account=theory,optics",
    "add user games account=optics partition=guest",
    "modify user games where account=optics partition=guest set MaxJobs=1",
)
REASONS = {
    "QOSMaxCpuPerUserLimit": "MaxTRESPU cpu=",
    "QOSMaxJobsPerUserLimit": "MaxJobsPU=",
    "QOSGrpCpuLimit": "QOS big: GrpTRES cpu=",
    "MaxCpuPerAccount": "MaxTRESPA cpu=",
    "AssocGrpCpuLimit": "account physics: GrpTRES cpu=",
    "AssocMaxJobsLimit": "MaxJobs=",
}
"""Why Slurm lets a job wait → a part of what asad calls the limit."""


@pytest.fixture
def limited() -> Iterator[RealSlurm]:
    """Two nodes with more cores than anybody wants: jobs wait for limits alone."""
    if obstacle := why_not():
        pytest.skip(obstacle)
    conf = "AccountingStorageEnforce=limits,qos"
    with RealSlurm(nodes=2, cpus=16, memory_mb=8000, pin=False, extra_conf=conf) as slurm:
        slurm.sacctmgr(*SETTING)
        yield slurm


def none_may_be_a_guest(slurm: RealSlurm, folder: Path, held: list[str]) -> None:
    """The port says of each of these that a limit keeps it, counts them so, and shows none of them in the queue."""
    settings = {"transport": "command", "guest_partitions": {"batch": "guest"}}
    cluster = open_cluster(settings, nodes=NoNodes(), state_dir=folder, clock=time.time)
    snapshot = cluster.snapshot()
    jobs, reasons = snapshot.jobs, {one["reason"]: one["jobs"] for one in now_by_reason(snapshot)}
    rows = {str(jobs.job_id[row]): row for row in snapshot.waits.row.tolist()} if snapshot.waits else {}
    assert sorted(rows) == sorted(held)
    assert not set(rows.values()) & set(snapshot.queue.tolist())
    in_batch = [row for row in rows.values() if snapshot.partitions[row] == "batch"]
    assert len(in_batch) > 1 and {Ineligible(jobs.guest_bar[row]) for row in in_batch} == {Ineligible.LIMIT}
    assert reasons == dict.fromkeys(WORDS, 0) | {"limit": len(held)}
    cluster.close()


def test_limits_predict_who_pends_and_why(
    limited: RealSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = limited
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm.env[name])
    printed = {
        "associations_tree.txt": slurm.run("sacctmgr", "-P", "show", "assoc", "tree"),
        "associations.txt": slurm.run("sacctmgr", "-P", "show", "assoc"),
        "qos.txt": slurm.run("sacctmgr", "-P", "show", "qos"),
    }
    if folder := os.environ.get("ASAD_GOLDEN"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, text in printed.items():
            (Path(folder) / name).write_text(text.replace(slurm.name, "lab"))

    wanted = (
        ("nobody", "theory", "normal", 3, "batch"),  # runs: user 3 of 4, physics 3 of 5
        ("nobody", "theory", "normal", 2, "batch"),  # the user has 3 of 4
        ("nobody", ACCOUNT, "normal", 2, "batch"),  # in another account, too
        ("nobody", ACCOUNT, "normal", 1, "batch"),  # runs: 4 of 4
        ("games", "theory", "normal", 3, "batch"),  # physics has 3 of 5
        ("games", "optics", "normal", 1, "guest"),  # runs: physics 4 of 5
        ("games", "optics", "big", 1, "guest"),  # the association has 1 of 1 jobs
        (
            "games",
            "optics",
            "big",
            4,
            "batch",
        ),  # runs: the QOS's own limit takes the place of that of physics
        ("games", "optics", "big", 2, "batch"),  # the account has 4 of 5 in it
        ("nobody", ACCOUNT, "big", 5, "batch"),  # runs: QOS 9 of 9
        ("nobody", "theory", "big", 1, "batch"),  # QOS 9 of 9
    )
    ids: list[str] = []

    def settled() -> bool:
        job = slurm.job(ids[-1])
        return job["JobState"] == "RUNNING" or job["Reason"] in REASONS

    for user, account, qos, cores, partition in wanted:
        options = (f"--account={account}", f"--qos={qos}", f"--ntasks={cores}", f"--partition={partition}")
        ids.append(slurm.submit("sleep 600", *options, "--mem-per-cpu=50", "--time=10", user=user))
        # one after the other, so that who runs is no matter of chance
        until(settled, lambda: str(slurm.job(ids[-1])))
    jobs = [slurm.job(number) for number in ids]
    runs = np.flatnonzero([job["JobState"] == "RUNNING" for job in jobs]).astype(np.int32)
    assert runs.tolist() == [0, 3, 5, 7, 9]

    limits = limits_of("sacctmgr", printed["qos.txt"] + printed["associations_tree.txt"])
    rows = [
        {
            "user": user,
            "account": account,
            "qos": qos,
            "cores": cores,
            "partition": partition,
            "memory": cores * 50 * 2.0**20,
        }
        for user, account, qos, cores, partition in wanted
    ]
    table = limit_table(limits, log_of(rows))
    usage = table.usage(runs)
    waiting = np.setdiff1d(np.arange(len(wanted)), runs).astype(np.int32)
    for row in waiting.tolist():
        assert REASONS[jobs[row]["Reason"]] in table.exceeded(usage, row), (wanted[row], jobs[row]["Reason"])
    assert table.over(usage, waiting).all()
    # and of those that ran, none would have been over a limit at its time
    for place, row in enumerate(runs.tolist()):
        assert table.exceeded(table.usage(runs[:place]), row) == ""
    none_may_be_a_guest(slurm, tmp_path, [ids[row] for row in waiting.tolist()])

    # when some of what keeps them is gone, Slurm and asad let the same jobs start
    slurm.run("scancel", ids[0], ids[5])
    now = np.setdiff1d(runs, [0, 5]).astype(np.int32)
    for row in waiting.tolist():
        if table.exceeded(table.usage(now), row) == "":
            now = np.append(now, np.int32(row))

    def as_predicted() -> bool:
        jobs = {row: slurm.job(ids[row]) for row in (*now.tolist(), *waiting.tolist())}
        return all(
            job["JobState"] == "RUNNING"
            if row in now
            else REASONS.get(job["Reason"], "?") in table.exceeded(table.usage(now), row)
            for row, job in jobs.items()
        )

    until(as_predicted, lambda: str([(job["JobState"], job["Reason"]) for job in map(slurm.job, ids)]))
    assert len(now) > 3
