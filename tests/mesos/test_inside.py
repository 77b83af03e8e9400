"""Guests within the executors of their hosts: against the double, and with the real executor and the node actor."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asad_mesos.events import Beside, Cancelled, TornDown, Updated
from asad_mesos.framework import Framework
from asad_mesos.job_spec import Group, Spec
from asad_mesos.mesos_cluster import MesosCluster
from asad_mesos.session import Session
from asad_mesos.settings import read_settings
from master import Master
from mesos_on_paper import WillingNodes
from node import Node
from sessions import session, state, wait

from asad.decisions import Cause, CoAllocate
from asad.errors import UsageError
from asad.node.registered import Registered

MIB = 2**20
NOBODY = 65534


def job(tasks: int, cpus: float = 1.0, mem: float = 64.0, **more: Any) -> Spec:
    """A gang with a time limit, which may lend."""
    group = Group(tasks=tasks, cpus=cpus, memory_bytes=mem * MIB)
    facts = {"user": "root", "uid": 0, "command": "sleep 60", "groups": (group,), "time_limit_s": 3600.0}
    return Spec(**(facts | more))  # type: ignore[arg-type]


@pytest.fixture
def master() -> Iterator[Master]:
    """One agent of four CPUs and nothing revocable."""
    with Master(1, 4.0, resend_s=0.5).running() as running:
        yield running


def started(opened: Session, *specs: Spec) -> list[str]:
    """They run."""
    jobs = opened.submit(*specs)
    for one in jobs:
        assert wait(lambda one=one: state(opened, one) == "running"), opened.job(one).why
    return jobs


def beside(opened: Session, guest: str, host: str, timeout_s: float = 300.0) -> None:
    """Sent beside it as soon as its agent has offered something."""
    agents = [task.agent for task in opened.job(host.partition("_")[0]).tasks.values()]
    end = time.monotonic() + timeout_s
    while True:
        try:
            opened.do(Beside(guest, guest, host, agents))
            return
        except UsageError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def inside(opened: Session, guest: str) -> set[str]:
    """Whose executors its tasks are in."""
    return {task.inside for task in opened.job(guest).tasks.values()}


def test_a_guest_runs_where_its_host_holds_every_cpu(master: Master, tmp_path: Path) -> None:
    with session(master, tmp_path) as opened:
        (host,) = started(opened, job(4))
        (guest,) = opened.submit(job(2, 2.0))
        beside(opened, guest, host)
        assert wait(lambda: state(opened, guest) == "running"), opened.job(guest).why
        assert inside(opened, guest) == {host}
        (agent,) = master.agents
        assert agent.used["cpus"] == pytest.approx(4.0)
        # the executor's own MiB is taken once: 4 and 2 tasks of 64, and 1
        assert agent.used["mem"] == pytest.approx(6 * 64 + 1)
        (container,) = master.containers.values()
        assert len(container.tasks) == 6
        mine = [resource["name"] for resource in master.tasks[f"{guest}.1.0"].info["resources"]]
        assert mine == ["mem"], "no CPU is asked for"
        assert container.info["resources"][0]["scalar"]["value"] == 0.01, "a container without CPUs cannot be"
        assert opened.framework.agents.used[0].sum() == 4000


def test_it_outlives_its_host_and_the_agent_has_its_cpus_again(master: Master, tmp_path: Path) -> None:
    with session(master, tmp_path) as opened:
        (host,) = started(opened, job(4))
        (guest,) = opened.submit(job(1))
        beside(opened, guest, host)
        assert wait(lambda: state(opened, guest) == "running")
        for number in range(4):
            master.end_task(f"{host}.1.{number}", "TASK_FINISHED")
        assert wait(lambda: state(opened, host) == "completed")
        assert master.running_tasks() == [f"{guest}.1.0"]
        (agent,) = master.agents
        assert agent.used["cpus"] == pytest.approx(0.01)
        (next_one,) = started(opened, job(3))
        assert state(opened, guest) == "running"
        assert inside(opened, next_one) == {""}
        assert len(master.containers) == 2
        master.end_task(f"{guest}.1.0", "TASK_FINISHED")
        assert wait(lambda: state(opened, guest) == "completed")
        assert len(master.containers) == 1


def test_a_successor_knows_guests_and_sends_another_into_the_same_executor(
    master: Master, tmp_path: Path
) -> None:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        try:
            with session(master, tmp_path) as opened:
                (host,) = started(opened, job(4, environment={"A": "b", "C": "d"}))
                (guest,) = opened.submit(job(1))
                beside(opened, guest, host)
                time.sleep(60.0)
        finally:
            os._exit(0)
    assert master.until(lambda: len(master.launches) == 5)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert master.until(lambda: not any(f.active for f in master.frameworks.values()))
    # the settings have changed meanwhile: what runs is still reported as it was reported first
    with session(master, tmp_path, executor="another", executor_memory_mb=7.0) as opened:
        assert wait(lambda: opened.subscribed and state(opened, "m2") == "running")
        assert inside(opened, "m2") == {"m1"}
        (third,) = opened.submit(job(1))
        beside(opened, third, "m1")
        assert wait(lambda: state(opened, third) == "running"), opened.job(third).why
        assert inside(opened, third) == {"m1"}
        assert len(master.containers) == 1
        assert opened.framework.agents.used[0].sum() == 4000
    assert all(count == 1 for count in master.launches.values())


def test_a_task_of_an_elastic_job_is_a_host_too(master: Master, tmp_path: Path) -> None:
    with session(master, tmp_path) as opened:
        group = Group("worker", tasks=4, least=1, memory_bytes=64 * MIB)
        (host,) = opened.submit(job(1, groups=(group,), elastic=True))
        assert wait(lambda: len(master.running_tasks()) == 4)
        (guest,) = opened.submit(job(1))
        beside(opened, guest, f"{host}_2")
        assert wait(lambda: state(opened, guest) == "running")
        (task,) = opened.job(guest).tasks.values()
        assert (task.inside, task.executor) == (f"{host}_2", f"{host}.1.2")
        opened.do(Cancelled(host, "enough"))
        assert wait(lambda: state(opened, host) == "cancelled")
        assert state(opened, guest) == "running"


@pytest.mark.parametrize("how", ["refused", "another executor"])
def test_a_guest_that_is_not_begun_waits_again_and_does_not_come_back(
    how: str, master: Master, tmp_path: Path
) -> None:
    with session(master, tmp_path) as opened:
        (host,) = started(opened, job(4))
        (guest,) = opened.submit(job(1))
        if how == "refused":
            node = Quiet()
            master.runners[master.agents[0].agent_id] = node
            beside(opened, guest, host)
            assert wait(lambda: node.launched)
            label = {"key": "refused", "value": "yes"}
            status = {
                "state": "TASK_FAILED",
                "labels": {"labels": [label]},
                "message": "it is not begun here",
            }
            master.end_task(
                f"{guest}.1.0", "TASK_FAILED", **{key: status[key] for key in ("labels", "message")}
            )
        else:  # an earlier version of asad has described it in another way
            (container,) = master.containers.values()
            container.info["name"] = "another"
            beside(opened, guest, host)
        assert wait(lambda: opened.job(guest).attempt == 1 and state(opened, guest) == "queued")
        found = opened.job(guest)
        assert (found.retries, found.false_starts) == (0, 0)
        assert found.endings[-1]["state"] == "TASK_DROPPED"
        assert wait(lambda: found.hold_until_s <= opened.now_s())
        time.sleep(0.7)
        with pytest.raises(UsageError, match="has refused a guest"):
            opened.do(Beside(guest, guest, host, [master.agents[0].agent_id]))
        assert state(opened, host) == "running"


class Quiet:
    """An agent that says nothing of its tasks."""

    def __init__(self) -> None:
        self.launched: list[Any] = []

    def launch(self, task: Any) -> None:
        self.launched.append(task)

    def kill(self, task: Any, kill: dict[str, Any]) -> None:
        return None

    def acknowledge(self, task: Any, status: dict[str, Any]) -> None:
        return None


def test_jobs_of_other_users_join_only_executors_of_root(master: Master, tmp_path: Path) -> None:
    other = job(1, user="nobody", uid=NOBODY)
    with session(master, tmp_path / "a") as opened:
        (host,) = started(opened, job(4, user="daemon", uid=1))
        (guest,) = opened.submit(other)
        with pytest.raises(UsageError, match="only jobs of daemon can run"):
            beside(opened, guest, host, 1.0)
    with session(master, tmp_path / "b", executor_user="root") as opened:
        master.do(lambda: [master._remove(f) for f in list(master.frameworks.values())[:1]])
        (host,) = started(opened, job(4, user="daemon", uid=1))
        (guest,) = opened.submit(other)
        beside(opened, guest, host)
        assert wait(lambda: state(opened, guest) == "running")
        (container,) = master.containers.values()
        assert container.info["command"]["user"] == "root"


def test_nobody_joins_where_that_is_not_wanted_or_there_is_no_memory(master: Master, tmp_path: Path) -> None:
    with session(master, tmp_path / "a", inside=False) as opened:
        (host,) = started(opened, job(4))
        (guest,) = opened.submit(job(1))
        with pytest.raises(UsageError, match="offered nothing that it could run on"):
            beside(opened, guest, host, 1.0)
        assert not opened.job(host).executors, "and nothing is kept for it"
        opened.do(TornDown("the test is over"))
        assert wait(lambda: not master.containers)
    with session(master, tmp_path / "b") as opened:
        (host,) = started(opened, job(4))
        (guest,) = opened.submit(job(1, mem=900.0))
        with pytest.raises(UsageError, match="offered nothing that it could run on"):
            beside(opened, guest, host, 1.0)


def test_an_executor_of_an_earlier_version_is_sent_no_guest(master: Master, tmp_path: Path) -> None:
    """It would run the guest's task as one of its own job."""
    master.open = False
    with session(master, tmp_path) as opened:
        (host,) = started(opened, job(4))
        (guest,) = opened.submit(job(1))
        with pytest.raises(UsageError, match="takes no guests"):
            beside(opened, guest, host, 1.0)


def test_when_the_executor_ends_both_are_queued_again(master: Master, tmp_path: Path) -> None:
    with session(master, tmp_path) as opened:
        (host,) = started(opened, job(4))
        (guest,) = opened.submit(job(1))
        beside(opened, guest, host)
        assert wait(lambda: state(opened, guest) == "running")
        terminated = {"source": "SOURCE_AGENT", "reason": "REASON_EXECUTOR_TERMINATED"}
        for name in list(master.running_tasks()):
            master.end_task(name, "TASK_FAILED", "Executor terminated", **terminated)
        assert wait(lambda: opened.job(host).attempt == 2 and state(opened, host) == "running")
        assert opened.job(guest).retries == 1


def test_a_policy_s_word_brings_a_guest_into_its_host_s_executor(master: Master, tmp_path: Path) -> None:
    nodes = WillingNodes()
    given = read_settings(
        {"master": master.address, "executor_memory_mb": 1.0, "refuse_s": 0.1, "kill_grace_s": 0.0}
    )
    cluster = MesosCluster(given, nodes=nodes, state_dir=tmp_path, clock=time.time)
    try:
        cluster.recover()
        host = cluster.submit(job(4))
        assert wait(lambda: cluster.status(host)[0]["state"] == "running")
        guest = cluster.submit(job(2))
        cause = Cause("test", "because")

        def sent() -> bool:
            snapshot = cluster.snapshot()
            (row,), (waiting,) = snapshot.running.tolist(), snapshot.queue.tolist()
            (outcome,) = cluster.apply([CoAllocate(cause, waiting, (0,), host=row, share=0.5)])
            return outcome.done

        assert wait(sent)
        assert wait(lambda: cluster.status(guest)[0]["state"] == "running")
        snapshot = cluster.snapshot()
        (row,) = snapshot.guests.tolist()
        (beside_row,) = snapshot.running.tolist()
        assert snapshot.jobs.host[row] == beside_row
        assert np.count_nonzero(snapshot.core_guest == row) == 2
        assert np.count_nonzero(snapshot.core_owner == beside_row) == 4
        (lease,) = [lease for lease in nodes.granted["node0"] if lease.guest]
        assert (lease.job_id, lease.host_id, lease.guest) == (f"{guest}.0", f"{host}.0", True)
        assert lease.quota == pytest.approx(1.0)  # half of four cores are the two that it may use
    finally:
        cluster.close()


# ---------------------------------------------------------------------------------------------- the executor for real


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder to which all users can come; pytest's own are for one alone."""
    with tempfile.TemporaryDirectory(prefix="asad-test-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


@pytest.fixture
def actor(folder: Path) -> Iterator[tuple[Registered, Path]]:
    """The register of a node actor over groups that are plain folders."""
    root, state_dir = folder / "cgroup", folder / "state"
    for name in ("freezer", "memory", "cpuacct", "cpu"):
        (root / name).mkdir(parents=True)
        (root / name / "cgroup.procs").write_text("")
    state_dir.mkdir()
    registered = Registered(root, 1, "n0", state_dir, started_by_agent=lambda pid: True)
    registered.listen(folder / "register.sock")
    yield registered, root
    registered.close()


@contextlib.contextmanager
def real(
    master: Master, folder: Path, *, switches: bool = False, **settings: Any
) -> Iterator[tuple[Session, Node]]:
    """A session, and the agent's tasks run by the real executor."""
    node = Node(
        master, folder / "sandboxes", switches=switches, ASAD_NODE_SOCKET=str(folder / "register.sock")
    )
    with node.running(), session(master, folder / "journal", **settings) as opened:
        yield opened, node


def owner() -> dict[str, Any]:
    """Jobs of whoever runs the tests: an executor of anybody else could not be started."""
    return {"user": pwd.getpwuid(os.getuid()).pw_name, "uid": os.getuid()}


def test_the_real_executor_runs_a_guest_in_its_own_group_until_both_are_over(
    actor: tuple[Registered, Path], master: Master, folder: Path
) -> None:
    registered, root = actor
    mine = owner()
    until = "while [ ! -e {} ]; do sleep 0.05; done"
    over, done = folder / "host-over", folder / "guest-over"
    with real(master, folder) as (opened, node):
        (host,) = started(opened, job(2, 2.0, command=until.format(over), **mine))
        script = f'#!/bin/sh\necho "$1 $ASAD_JOB_ID $ASAD_NODES"\n{until.format(done)}\nexit 7\n'
        (guest,) = opened.submit(job(1, 1.0, script=script, command="'a b'", **mine))
        beside(opened, guest, host)
        assert wait(lambda: state(opened, guest) == "running"), opened.job(guest).why
        keys = {name: f"{name}.{os.getuid()}" for name in (host, guest)}
        found = registered.jobs()
        assert set(found) == set(keys.values())
        theirs = found[keys[guest]]
        assert theirs.keeper == found[keys[host]].keeper, "the executor of its host keeps it"
        (pid,) = (root / "freezer" / theirs.path / "cgroup.procs").read_text().split()
        assert Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"/bin/sh\0")
        limit = (root / "memory" / theirs.path / "memory.limit_in_bytes").read_text()
        assert int(limit) == 64 * MIB
        over.touch()
        assert wait(lambda: state(opened, host) == "completed")
        time.sleep(0.5)
        assert state(opened, guest) == "running", "it goes on"
        done.touch()
        assert wait(lambda: state(opened, guest) == "failed")
        assert opened.job(guest).endings[-1]["exit"] == 7
        (name,) = node.started
        assert wait(lambda: node.executors[name][1].poll() == 0), "nobody is left for whom to stay"
        out = node.sandbox(name) / f"asad-{guest}.1.0" / "stdout"
        assert out.read_text() == f"a b {guest} node0*1\n"


def test_a_guest_is_killed_alone(actor: tuple[Registered, Path], master: Master, folder: Path) -> None:
    with real(master, folder, kill_grace_s=1.0) as (opened, _):
        (host,) = started(opened, job(1, 4.0, **owner()))
        (guest,) = opened.submit(job(1, **owner()))
        beside(opened, guest, host)
        assert wait(lambda: state(opened, guest) == "running")
        opened.do(Cancelled(guest, "evicted"))
        assert wait(lambda: state(opened, guest) == "cancelled")
        assert opened.job(guest).endings[-1]["state"] == "TASK_KILLED"
        assert state(opened, host) == "running"
        opened.do(Cancelled(host, ""))
        assert wait(lambda: not master.running_tasks())


def test_no_guest_runs_where_no_actor_takes_note_of_it(master: Master, folder: Path) -> None:
    with real(master, folder) as (opened, _):
        (host,) = started(opened, job(1, 4.0, **owner()))
        marker = folder / "ran"
        (guest,) = opened.submit(job(1, command=f"touch {marker}", **owner()))
        beside(opened, guest, host)
        assert wait(lambda: opened.job(guest).endings)
        seen = opened.job(guest).endings[-1]
        assert seen["state"] == "TASK_DROPPED"
        assert "the node actor does not take note of it" in seen["why"]
        assert state(opened, host) == "running"
        assert not marker.exists()
        opened.do(Cancelled(host, ""))
        assert wait(lambda: not master.running_tasks())


@pytest.mark.skipif(os.geteuid() != 0, reason="switching users needs root")
def test_an_executor_of_root_runs_host_and_guest_as_their_users(
    actor: tuple[Registered, Path], master: Master, folder: Path
) -> None:
    nobody, daemon = pwd.getpwnam("nobody"), pwd.getpwnam("daemon")
    text = "id -un; id -Gn; pwd; touch here; sleep 30"
    with real(master, folder, switches=True, executor_user="root") as (opened, node):
        (host,) = started(opened, job(1, 4.0, command=text, user="daemon", uid=daemon.pw_uid))
        (guest,) = opened.submit(job(1, command=text, user="nobody", uid=nobody.pw_uid))
        beside(opened, guest, host)
        assert wait(lambda: state(opened, guest) == "running"), opened.job(guest).why
        (name,) = node.started
        guests = node.sandbox(name) / f"asad-{guest}.1.0"
        assert wait(lambda: (guests / "here").exists())
        assert (guests / "stdout").read_text().split()[0] == "nobody"
        assert (guests / "here").stat().st_uid == nobody.pw_uid
        assert (node.sandbox(name) / "stdout").read_text().split()[0] == "daemon"
        for one in (host, guest):
            opened.do(Cancelled(one, ""))
        assert wait(lambda: not master.running_tasks())


@pytest.mark.skipif(os.geteuid() != 0, reason="running as somebody else needs root")
def test_an_executor_that_cannot_switch_users_refuses_another_user_s_guest(
    actor: tuple[Registered, Path], master: Master, folder: Path
) -> None:
    """The agent has started it under the host's user though the framework wanted root (`--no-switch_user`)."""
    nobody = pwd.getpwnam("nobody")
    with real(master, folder, switches=True, executor_user="root") as (opened, node):
        launch = node._start

        def not_root(name: str, info: dict[str, Any]) -> None:
            launch(name, info | {"command": info["command"] | {"user": "nobody"}})

        node._start = not_root  # type: ignore[method-assign]
        (host,) = started(opened, job(1, 4.0, user="nobody", uid=nobody.pw_uid))
        (guest,) = opened.submit(job(1, user="daemon", uid=pwd.getpwnam("daemon").pw_uid))
        beside(opened, guest, host)
        assert wait(lambda: opened.job(guest).endings)
        assert "executors of root can switch users" in opened.job(guest).endings[-1]["why"]
        assert state(opened, guest) == "queued"
        opened.do(Cancelled(host, ""))
        assert wait(lambda: not master.running_tasks())


def test_the_journal_of_an_earlier_version_is_read() -> None:
    """It did not say in which executors tasks run; nobody joins those."""
    framework = Framework()
    spec = job(2).to_json()
    tasks = [["m1.1.0", 0, 0, "S0", "n0", False], ["m1.1.1", 0, 1, "S0", "n0", False]]
    framework.restore(
        [
            {"what": "framework", "id": "f"},
            {"what": "job", "job": "m1", "number": 1, "spec": spec, "submit_s": 0.0},
            {"what": "launch", "job": "m1", "time_s": 1.0, "tasks": tasks, "beside": ""},
        ]
    )
    again = Framework()
    again.restore(json.loads(json.dumps(framework.dump())))
    for known in (framework, again):
        assert [(task.executor, task.inside) for task in known.tasks.values()] == [("", "")] * 2
        assert known.agents.used[0].sum() == 2000
    status = {"task_id": {"value": "m1.1.0"}, "state": "TASK_FINISHED", "agent_id": {"value": "S0"}}
    again.handle(Updated(status), now_s=2.0)
    assert again.agents.used[0].sum() == 1000
