"""From a user's words to tasks on agents and back, against the master double: submit, scale, and Slurm's queue."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asad_mesos.handover import SlurmQueue
from asad_mesos.job_spec import Group, Spec
from asad_mesos.mesos_cluster import MesosCluster
from asad_mesos.queue_settings import QueueSettings
from asad_mesos.scaling import scaled
from asad_mesos.settings import read_settings
from asad_mesos.slurm_queue import SlurmMesosCluster
from click.testing import CliRunner, Result
from master import Master
from sessions import wait
from slurm_side_on_paper import PaperSlurm

from asad.api.control import ControlServer, Peer, Request
from asad.cli.asactl import asactl
from asad.daemon import ActsByItself, NoNodes, TakesJobs
from asad.decisions import Cause, SetThrottle
from asad.errors import UsageError
from asad.model import Json

CAUSE = Cause("test", "because it is tested")


@contextlib.contextmanager
def opened(master: Master, folder: Path, **settings: Any) -> Iterator[MesosCluster]:
    given = {
        "master": master.address,
        "executor_memory_mb": 1.0,
        "refuse_s": 0.1,
        "kill_grace_s": 0.0,
    } | settings
    cluster = MesosCluster(read_settings(given), nodes=NoNodes(), state_dir=folder, clock=time.time)
    try:
        cluster.recover()
        cluster.snapshot()
        yield cluster
    finally:
        cluster.close()


def groups(cluster: MesosCluster, job: str) -> Counter[str]:
    (row,) = cluster.status(job)
    return Counter(task["group"] for task in row["tasks"] if task["state"] == "TASK_RUNNING")


def test_what_users_type_becomes_tasks_and_is_cancelled(tmp_path: Path) -> None:
    master = Master(agents=2, cpus=4.0)
    with master.running(), opened(master, tmp_path) as cluster:
        assert isinstance(cluster, TakesJobs)

        def handle(request: Request, peer: Peer) -> Json:
            return cluster.request(request.verb, request.arguments, peer.user, peer.uid)

        server = ControlServer(tmp_path / "asad.sock", handle)
        server.start()
        try:

            def run(*words: str) -> str:
                words = (words[0], "--socket", str(server.path), *words[1:])
                result = CliRunner().invoke(asactl, words, catch_exceptions=False)
                assert result.exit_code == 0, result.output
                return result.output

            assert run("submit", "-n", "3", "-c", "2", "--mem", "64M", "--", "sleep", "60").startswith(
                "submitted m1"
            )
            assert wait(lambda: groups(cluster, "m1") == {"task": 3}), cluster.status("m1")
            assert "3/3" in run("tasks")
            assert "m1.1.2" in run("tasks", "m1")
            assert run("cancel", "m1") == "m1 is cancelled; its tasks end\n"
            assert wait(lambda: cluster.status("m1")[0]["state"] == "cancelled")
            assert wait(lambda: not master.running_tasks())
        finally:
            server.stop()


def test_a_throttle_scales_workers_and_servers_together(tmp_path: Path) -> None:
    master = Master(agents=3, cpus=4.0)
    with master.running(), opened(master, tmp_path) as cluster:
        spec = {
            "command": "train",
            "elastic": True,
            "groups": [
                {"name": "worker", "tasks": 8, "least": 2, "memory_bytes": 2.0**26},
                {"name": "server", "tasks": 4, "least": 1, "memory_bytes": 2.0**26},
            ],
        }
        cluster.request("submit", {"spec": spec}, "root", 0)
        assert wait(lambda: groups(cluster, "m1") == {"worker": 8, "server": 4}), cluster.status("m1")

        def throttle(tasks: int) -> None:
            snapshot = cluster.snapshot()
            cluster.finished(snapshot.time_s)
            row = next(
                row for row in snapshot.running.tolist() if str(snapshot.jobs.job_id[row]).startswith("m1_")
            )
            (outcome,) = cluster.apply([SetThrottle(CAUSE, row, tasks)])
            assert outcome.done, outcome.reason

        throttle(2)
        assert wait(lambda: groups(cluster, "m1") == {"worker": 2, "server": 1}), cluster.status("m1")
        throttle(5)
        assert wait(lambda: groups(cluster, "m1") == {"worker": 5, "server": 3}), cluster.status("m1")
        throttle(0)
        assert wait(lambda: groups(cluster, "m1") == {"worker": 8, "server": 4}), cluster.status("m1")
        assert set(master.launches.values()) == {1}, "no task is launched twice"
        snapshot = cluster.snapshot()
        names = {str(snapshot.jobs.job_id[row]).rpartition("_")[0] for row in snapshot.running}
        assert names == {"m1", "m1.server"}, "two arrays, which admission distinguishes"
        assert len(np.unique(snapshot.jobs.array[snapshot.running])) == 2


def test_a_torn_down_framework_ends_with_everything(tmp_path: Path) -> None:
    master = Master(agents=2, cpus=4.0, heartbeat_s=1.0)
    with master.running(), opened(master, tmp_path) as cluster:
        cluster.submit(Spec("ann", 1000, "sleep 60", (Group(tasks=3, memory_bytes=64 * 2**20),)))
        cluster.submit(Spec("ann", 1000, "sleep 60", (Group(tasks=300, memory_bytes=64 * 2**20),)))
        assert wait(lambda: len(master.running_tasks()) == 3)

        def handle(request: Request, peer: Peer) -> Json:
            return cluster.request(request.verb, request.arguments, peer.user, peer.uid)

        server = ControlServer(tmp_path / "asad.sock", handle)
        server.start()
        try:

            def run(*words: str, text: str | None = None) -> Result:
                words = (words[0], "--socket", str(server.path), *words[1:])
                return CliRunner().invoke(asactl, words, input=text)

            asked = run("teardown", text="n\n")
            assert "all its 2 jobs and 3 tasks?" in asked.output
            assert asked.exit_code == 1
            assert not master.teardowns
            first = cluster.engine.framework.framework_id
            master.hang()  # it is not heard of at once
            done = run("teardown", "--yes")
            assert done.output == "the framework ends: 2 jobs are cancelled, 3 tasks killed\n"
            with pytest.raises(UsageError, match="is being torn down"):
                cluster.submit(Spec("ann", 1000, "true"))
            master.hang(False)
            assert wait(lambda: cluster.engine.framework.framework_id not in ("", first))
        finally:
            server.stop()
        assert master.teardowns >= 1
        assert not master.running_tasks()
        assert [one["state"] for one in cluster.status()] == ["cancelled", "cancelled"]
        assert "torn down by" in cluster.status("m1")[0]["why"]
        # whoever comes next is another framework, and works
        job = cluster.submit(Spec("ann", 1000, "sleep 60", (Group(memory_bytes=64 * 2**20),)))
        assert wait(lambda: cluster.status(job)[0]["state"] == "running")


def test_a_teardown_is_not_forgotten_while_no_master_answers(tmp_path: Path) -> None:
    master = Master(agents=1)
    with master.running():
        with opened(master, tmp_path) as cluster:
            cluster.submit(Spec("ann", 1000, "sleep 60", (Group(memory_bytes=64 * 2**20),)))
            assert wait(lambda: master.running_tasks())
            master.unavailable = True
            master.drop_everything()
            assert wait(lambda: not cluster.engine.subscribed)
            assert cluster.teardown("torn down by ann") == (1, 1)
        assert not master.teardowns
        master.unavailable = False
        given = read_settings({"master": master.address, "executor_memory_mb": 1.0})
        later = MesosCluster(given, nodes=NoNodes(), state_dir=tmp_path, clock=time.time)
        try:
            later.recover()
            assert wait(lambda: master.teardowns and not master.running_tasks())
            assert wait(lambda: later.status("m1")[0]["state"] == "cancelled")
        finally:
            later.close()
    assert master.launches == {"m1.1.0": 1}


def test_a_teardown_gives_slurm_what_has_not_started(tmp_path: Path) -> None:
    master = Master(agents=1, cpus=2.0)
    with master.running(), opened(master, tmp_path) as mesos:
        slurm = PaperSlurm()
        queue = SlurmQueue(QueueSettings(), slurm, mesos, tmp_path, time.time)
        cluster = SlurmMesosCluster(mesos, queue)
        cluster.may_act(True)
        slurm.add(17, tasks=1, cpus=1)
        slurm.add(18, tasks=1, cpus=64, cpus_per_task=64, tres_req_str="cpu=64,node=1", max_nodes=1)
        cluster.snapshot()
        assert wait(lambda: groups(mesos, "m1") == {"batch": 1})
        assert slurm.held == {17, 18}
        assert cluster.request("teardown", {}, "root", 0) == {"jobs": 1, "tasks": 1}
        assert slurm.waits(18)
        assert wait(lambda: mesos.status("m1")[0]["state"] == "cancelled")


@pytest.mark.parametrize(
    ("tasks", "found"),
    [
        (8, {"worker": 8, "server": 3}),
        (4, {"worker": 4, "server": 2}),
        (1, {"worker": 1, "server": 1}),
        (0, {"worker": 8, "server": 3}),
        (99, {"worker": 8, "server": 3}),
    ],
)
def test_servers_follow_in_proportion(tasks: int, found: dict[str, int]) -> None:
    two = (Group("worker", tasks=8), Group("server", tasks=3))
    assert scaled(Spec("ann", 1000, "x", two, elastic=True), 0, tasks) == found
    alone = Spec("ann", 1000, "x", two, elastic=True, hint="utility=constant(1);ps=m1.server:4")
    assert scaled(alone, 0, 4) == {"worker": 4}
    assert scaled(alone, 1, 2) == {"server": 2}


def test_a_job_of_slurm_runs_on_agents_and_ends_in_slurm(tmp_path: Path) -> None:
    master = Master(agents=3, cpus=2.0)
    with master.running(), opened(master, tmp_path) as mesos:
        slurm = PaperSlurm()
        queue = SlurmQueue(QueueSettings(patience_s=60), slurm, mesos, tmp_path, time.time)
        cluster = SlurmMesosCluster(mesos, queue)
        assert isinstance(cluster, ActsByItself)
        assert isinstance(cluster, TakesJobs)
        cluster.may_act(True)
        # two nodes of two CPUs each, and a job that no agent can ever serve
        slurm.add(17, tasks=4, cpus=4, tres_req_str="cpu=4,mem=400M,node=2", max_nodes=2, memory_per_cpu=50)
        slurm.add(18, tasks=1, cpus=64, cpus_per_task=64, tres_req_str="cpu=64,node=1", max_nodes=1)
        cluster.snapshot()
        assert slurm.held == {17, 18}
        assert wait(lambda: groups(mesos, "m1") == {"batch": 1, "node": 1}), mesos.status("m1")
        hosts = [task["host"] for task in mesos.status("m1")[0]["tasks"]]
        assert len(set(hosts)) == 2, "each node is an agent of its own"
        cluster.snapshot()
        assert slurm.comments[17]["AdminComment"] == f"asad: runs on Mesos as m1 on {','.join(hosts)}"
        batch = next(task["task"] for task in mesos.status("m1")[0]["tasks"] if task["group"] == "batch")
        labels = {"labels": [{"key": "exit", "value": "3"}]}
        master.end_task(batch, "TASK_FAILED", "exit status 3", source="SOURCE_EXECUTOR", labels=labels)
        assert wait(lambda: mesos.status("m1")[0]["state"] == "failed"), mesos.status("m1")
        assert wait(lambda: not master.running_tasks()), "the other node is let go"
        for _ in range(3):
            cluster.snapshot()
        assert slurm.ended == {17: 1}
        assert slurm.accounts[17][0] == 3 << 8
        assert "exit status 3" in slurm.accounts[17][1]
        # what Mesos cannot serve goes back as it was when the daemon stops
        assert slurm.held == {17, 18}
        cluster.release()
        assert slurm.waits(18)
        assert slurm.comments[18] == {"AdminComment": ""}
        assert [job for job, _ in cluster.acted].count("18") == 2


def test_a_job_of_slurm_outlives_the_daemon(tmp_path: Path) -> None:
    """Another daemon finds its gang by its origin: it is launched once, and reported once."""
    master = Master(agents=1)
    slurm = PaperSlurm()
    slurm.add(17, tasks=1, cpus=1)
    with master.running():
        for life in range(3):
            with opened(master, tmp_path) as mesos:
                queue = SlurmQueue(QueueSettings(), slurm, mesos, tmp_path, time.time)
                cluster = SlurmMesosCluster(mesos, queue)
                cluster.may_act(True)
                cluster.snapshot()
                assert wait(lambda mesos=mesos: groups(mesos, "m1") == {"batch": 1})
                cluster.snapshot()
                assert len(mesos.status()) == 1
                assert slurm.held == {17}
                if life == 2:
                    (task,) = mesos.status("m1")[0]["tasks"]
                    master.end_task(task["task"], "TASK_FINISHED")
                    assert wait(lambda mesos=mesos: mesos.status("m1")[0]["state"] == "completed")
                    for _ in range(3):
                        cluster.snapshot()
        assert master.launches == {"m1.1.0": 1}
    assert slurm.ended == {17: 1}
    assert slurm.accounts[17][0] == 0
