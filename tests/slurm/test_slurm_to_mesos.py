"""One job of a real Slurm, through the queue and the framework, on agents whose tasks the real executor runs.

The master is the double; all else is real: sbatch, the hold, the journal, pymesos, the executor under the submitting
user, accounting.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import time
from pathlib import Path

import pytest
from asad_mesos.driver import missing
from asad_mesos.handover import SlurmQueue
from asad_mesos.mesos_cluster import MesosCluster
from asad_mesos.queue_settings import QueueSettings
from asad_mesos.settings import read_settings
from asad_mesos.slurm_queue import SlurmMesosCluster
from asad_mesos.slurm_side import Commands
from master import Master
from node import Node

from asad.daemon import NoNodes
from lab.slurm import RealSlurm, why_not

NOBODY = pwd.getpwnam("nobody")
PARTITION = "PartitionName=mesos Nodes=ALL State=DOWN MaxTime=INFINITE"
SCRIPT = """#!/bin/sh
#SBATCH --comment=mine
echo "$SLURM_JOB_ID $SLURM_JOB_NODELIST $SLURM_NTASKS $# $1 $2 $(id -un)"
pwd
exit 5
"""


def account_of(slurm: RealSlurm, job: str) -> str:
    """What accounting says of a job, in small letters: sacctmgr of 22.05 writes them so."""
    shown = subprocess.run(
        [
            *("sacct", "--noheader", "--parsable2", "--allocations", "--allusers", f"--jobs={job}"),
            "--format=State,DerivedExitCode,ElapsedRaw,Comment,AdminComment",
        ],
        env=slurm.env,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return shown.stdout.strip().lower()


def test_a_job_of_slurm_s_runs_on_agents_under_its_user_and_slurm_shows_the_end(tmp_path: Path) -> None:
    obstacle = why_not() or (f"not installed: {', '.join(missing())}" if missing() else "")
    if obstacle:
        pytest.skip(obstacle)
    with RealSlurm(extra_conf=PARTITION) as slurm, Master(2, 2.0, host="agent{}").running() as master:
        sandboxes = slurm.folder / "jobs" / "sandboxes"  # where ordinary users can come
        given = {"master": master.address, "executor_memory_mb": 1.0, "refuse_s": 0.1, "kill_grace_s": 1.0}
        nodes = [Node(master, sandboxes / str(number), switches=True) for number in range(2)]
        mesos = MesosCluster(read_settings(given), nodes=NoNodes(), state_dir=tmp_path, clock=time.time)
        with nodes[0].running(0), nodes[1].running(1):
            queue = SlurmQueue(QueueSettings(), Commands(20.0, slurm.env), mesos, tmp_path, time.time)
            cluster = SlurmMesosCluster(mesos, queue)
            try:
                cluster.recover()
                cluster.may_act(True)
                cluster.snapshot()
                path = slurm.folder / "jobs" / "job.sh"
                path.write_text(SCRIPT)
                job = slurm.run(
                    *("sbatch", "--parsable", f"--chdir={slurm.folder}/jobs", "--partition=mesos"),
                    *(f"--uid={NOBODY.pw_uid}", f"--gid={NOBODY.pw_gid}", "--nodes=2", "--ntasks=2"),
                    *("--time=5", "--mem-per-cpu=50", "--output=out-%j.txt", str(path), "first", "second"),
                ).strip()
                end = time.monotonic() + 300.0
                while not queue.in_hand.over and time.monotonic() < end:
                    cluster.snapshot()
                    time.sleep(0.2)
                assert list(queue.in_hand.over) == [int(job)], (
                    queue.messages,
                    queue.in_hand.now,
                    mesos.status(),
                )
            finally:
                cluster.close()
        # a job may be over before anybody has seen it run
        at_end = re.search(r", on ([\w,]*\w)", queue.in_hand.over[int(job)].why)
        assert at_end is not None, queue.in_hand.over[int(job)].why
        hosts = at_end[1]
        out = slurm.folder / "jobs" / f"out-{job}.txt"
        assert sorted(hosts.split(",")) == ["agent0", "agent1"]
        assert out.read_text() == f"{job} {hosts} 2 2 first second nobody\n{slurm.folder}/jobs\n"
        assert out.stat().st_uid == NOBODY.pw_uid
        seen = account_of(slurm, job)
        assert seen.startswith(f"cancelled by {os.getuid()}|5:0|0|mine|")
        assert seen.split("|")[-1].startswith(f"asad: failed on mesos as m1: exit status 5, on {hosts}")
        assert not master.running_tasks(), "the node that was held for it is let go"
        assert len(master.launches) == 2
