"""A daemon over the master double: it takes jobs before its first cycle is over, and describes the stories of gangs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asad_mesos.mesos_cluster import MesosCluster
from asad_mesos.settings import read_settings
from click.testing import CliRunner
from master import Master
from sessions import wait
from test_daemon import configuration

from asad.api.control import ask
from asad.cli.asactl import asactl
from asad.daemon import Daemon, NoNodes
from asad.model import Snapshot


class Busy(MesosCluster):
    """Its first look lasts until the test lets it."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.may_look, self.looks = threading.Event(), 0

    def snapshot(self) -> Snapshot:
        self.looks += 1
        self.may_look.wait(300)
        return super().snapshot()


@contextlib.contextmanager
def living(master: Master, folder: Path, **settings: Any) -> Iterator[tuple[Daemon, Busy]]:
    given = {"master": master.address, "executor_memory_mb": 1.0, "refuse_s": 0.1, "kill_grace_s": 0.0}
    cluster = Busy(read_settings(given | settings), nodes=NoNodes(), state_dir=folder, clock=time.time)
    daemon = Daemon(configuration(folder, more='[policies]\nshare = "exclusive"'), cluster=cluster)
    thread = threading.Thread(target=daemon.run)
    thread.start()
    try:
        assert wait(lambda: cluster.looks or not thread.is_alive())
        yield daemon, cluster
    finally:
        cluster.may_look.set()
        daemon.stop()
        thread.join(300)
    assert not thread.is_alive()


def run(folder: Path, *words: str) -> str:
    words = (words[0], "--socket", str(folder / "s"), *words[1:])
    result = CliRunner().invoke(asactl, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_jobs_are_taken_and_run_before_the_first_cycle_is_over(tmp_path: Path) -> None:
    master = Master(agents=2, cpus=4.0)
    with master.running(), living(master, tmp_path) as (_, cluster):
        assert run(tmp_path, "submit", "-n", "3", "-c", "2", "--", "sleep", "60").startswith("submitted m1")
        assert wait(lambda: cluster.status("m1")[0]["state"] == "running")
        assert "3/3" in run(tmp_path, "tasks")
        output = run(tmp_path, "explain", "m1")
        assert "on Mesos m1 is running: 3 tasks on node0*2,node1*1" in output
        assert run(tmp_path, "cancel", "m1").startswith("m1 is cancelled")
        assert wait(lambda: cluster.status("m1")[0]["state"] == "cancelled")
        assert not cluster.may_look.is_set()


def test_the_story_of_a_gang_from_its_offers_to_its_end(tmp_path: Path) -> None:
    master = Master(agents=2, cpus=4.0, host="shared")
    with master.running(), living(master, tmp_path, hold_s=300) as (_, cluster):
        cluster.may_look.set()
        run(tmp_path, "submit", "-n", "6", "--mem", "32M", "--", "sleep", "60")
        assert wait(lambda: cluster.status("m1")[0]["state"] == "running")
        run(tmp_path, "submit", "-n", "5", "--mem", "32M", "--", "sleep", "60")
        assert wait(lambda: "of 5 tasks fit into the offers" in run(tmp_path, "explain", "m2"))
        assert "5 tasks to be launched: 2 of 5 tasks fit" in run(tmp_path, "explain", "m2")
        output = run(tmp_path, "explain", "m1")
        assert "6 tasks are launched on shared:5051*4,shared:5052*2" in output, "two agents of one host"
        assert "shared:5052" in run(tmp_path, "tasks", "m1")
        assert {row["node"] for row in ask(tmp_path / "s", "nodes")["nodes"]} == {
            "shared:5051",
            "shared:5052",
        }
        task = next(one["task"] for one in cluster.status("m1")[0]["tasks"])
        master.end_task(task, "TASK_LOST", "the test has lost it")
        assert wait(lambda: "it waits again" in run(tmp_path, "explain", "m1"))
        assert f"task {task} on shared was lost: the test has lost it" in run(tmp_path, "explain", "m1")
        run(tmp_path, "cancel", "m2")
        assert wait(
            lambda: cluster.status("m1")[0]["attempt"] == 2 and cluster.status("m1")[0]["state"] == "running"
        )
        run(tmp_path, "cancel", "m1")
        assert wait(lambda: "it has ended: cancelled" in run(tmp_path, "explain", "m1"))
        assert "cancelled by" in run(tmp_path, "explain", "m1")
