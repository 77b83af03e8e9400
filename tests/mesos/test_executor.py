"""The executor against an agent that speaks its API."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from agent import EXECUTOR, Agent
from asad_mesos import executor
from asad_mesos.master_calls import encoded

from asad.node.cgroups import Cgroups
from asad.node.registered import Registered

JOB = {
    "job": "m7",
    "key": f"m7.{os.getuid()}",
    "guest": False,
    "tasks": 1,
    "script": "",
    "environment": {"GREETING": "hello"},
    "directory": "",
    "output": "",
}


def launch(agent: Agent, command: str, task_id: str = "m7.1.0", **more: Any) -> None:
    """Hand a task over."""
    data = encoded({"command": command, "rank": 0, "tasks": 1, "index": 0, "of": 1, "nodes": "n0*1", **more})
    assert agent.until(lambda: agent.subscriptions)
    agent.send(
        {
            "type": "LAUNCH",
            "launch": {
                "task": {
                    "name": "x",
                    "task_id": {"value": task_id},
                    "agent_id": {"value": "S0"},
                    "data": data,
                }
            },
        }
    )


def exit_of(status: dict[str, Any]) -> str:
    return str(status["labels"]["labels"][0]["value"])


def test_a_task_runs_and_is_reported_until_the_executor_ends(tmp_path: Path) -> None:
    with Agent(encoded(JOB)).running() as agent, agent.executor(tmp_path) as process:
        launch(
            agent, 'echo "$GREETING $ASAD_JOB_ID $ASAD_NODES ${MESOS_EXECUTOR_AUTHENTICATION_TOKEN-unset}"'
        )
        assert process.wait(300.0) == 0
        assert agent.states("m7.1.0") == ["TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED"]
        assert exit_of(agent.updates[-1]) == "0"
    assert (tmp_path / "stdout").read_text() == "hello m7 n0*1 unset\n"


@pytest.mark.parametrize(
    ("command", "seen"), [("exit 3", "3"), ("kill -9 $$", "-9"), ("/nonexistent/program", "127")]
)
def test_a_failure_is_reported_with_its_status(command: str, seen: str, tmp_path: Path) -> None:
    with Agent(encoded(JOB)).running() as agent, agent.executor(tmp_path) as process:
        launch(agent, command)
        assert process.wait(300.0) == 0
        assert agent.states("m7.1.0")[-1] == "TASK_FAILED"
        assert exit_of(agent.updates[-1]) == seen


def test_a_script_gets_its_arguments_and_its_output_goes_where_it_should(tmp_path: Path) -> None:
    job = JOB | {"script": '#!/bin/sh\necho "$#:$1:$2"\necho loud >&2\n', "output": "out-%j-%t"}
    with Agent(encoded(job)).running() as agent, agent.executor(tmp_path) as process:
        launch(agent, "'a b' c")
        assert process.wait(300.0) == 0
    assert (tmp_path / "out-m7-m7.1.0").read_text() == "2:a b:c\nloud\n"


def test_what_cannot_be_started_fails_with_the_reason(tmp_path: Path) -> None:
    job = JOB | {"script": "#!/nonexistent/interpreter\n"}
    with Agent(encoded(job)).running() as agent, agent.executor(tmp_path) as process:
        launch(agent, "")
        assert process.wait(300.0) == 0
        assert agent.states("m7.1.0") == ["TASK_STARTING", "TASK_FAILED"]
        assert "could not be started" in agent.updates[-1]["message"]


def test_a_kill_is_gentle_first_and_then_not(tmp_path: Path) -> None:
    with Agent(encoded(JOB)).running() as agent, agent.executor(tmp_path) as process:
        launch(agent, "trap 'touch gently' TERM; sleep 60 & wait; sleep 60")
        assert agent.until(lambda: "TASK_RUNNING" in agent.states("m7.1.0"))
        assert agent.until(lambda: any(tmp_path.iterdir()))
        time.sleep(0.3)  # the shell sets its trap
        agent.send(
            {
                "type": "KILL",
                "kill": {
                    "task_id": {"value": "m7.1.0"},
                    "kill_policy": {"grace_period": {"nanoseconds": 500_000_000}},
                },
            }
        )
        assert process.wait(300.0) == 0
        assert agent.states("m7.1.0")[-2:] == ["TASK_KILLING", "TASK_KILLED"]
        assert exit_of(agent.updates[-1]) == "-9"
    assert (tmp_path / "gently").exists()


def test_several_tasks_of_a_job_share_it_even_if_the_first_ends_at_once(tmp_path: Path) -> None:
    with Agent(encoded(JOB | {"tasks": 2})).running() as agent, agent.executor(tmp_path) as process:
        launch(agent, "true", "m7.1.0")
        assert agent.until(lambda: "TASK_FINISHED" in agent.states("m7.1.0"))
        assert process.poll() is None
        launch(agent, "true", "m7.1.1")
        assert process.wait(300.0) == 0
        assert agent.states("m7.1.1")[-1] == "TASK_FINISHED"


def test_it_outlives_a_restart_of_its_agent(tmp_path: Path) -> None:
    with Agent(encoded(JOB)).running() as agent, agent.executor(tmp_path) as process:
        agent.acknowledges = False
        launch(agent, "while [ ! -e go ]; do sleep 0.05; done")
        assert agent.until(lambda: "TASK_RUNNING" in agent.states("m7.1.0"))
        agent.disconnect()
        assert agent.until(lambda: len(agent.subscriptions) == 2)
        again = agent.subscriptions[1]
        assert [task["task_id"]["value"] for task in again["unacknowledged_tasks"]] == ["m7.1.0"]
        updates = [update["status"]["state"] for update in again["unacknowledged_updates"]]
        assert updates == ["TASK_STARTING", "TASK_RUNNING"]
        agent.acknowledges = True
        (tmp_path / "go").touch()
        assert process.wait(300.0) == 0
        assert agent.states("m7.1.0")[-1] == "TASK_FINISHED"


def test_an_agent_that_comes_back_finds_it_in_time(tmp_path: Path) -> None:
    """Agents end executors that have not subscribed within `--executor_reregistration_timeout`."""
    with (
        Agent(encoded(JOB)).running() as agent,
        agent.executor(tmp_path, MESOS_SUBSCRIPTION_BACKOFF_MAX="400ms") as process,
    ):
        launch(agent, "while [ ! -e go ]; do sleep 0.05; done")
        assert agent.until(lambda: "TASK_RUNNING" in agent.states("m7.1.0"))
        agent.answer, before = (503, "Agent has not finished recovery"), agent.attempts
        agent.disconnect()
        assert agent.until(lambda: agent.attempts >= before + 6), "many tries while it waits for one"
        agent.answer = None
        assert agent.until(lambda: len(agent.subscriptions) == 2)
        (tmp_path / "go").touch()
        assert process.wait(300.0) == 0
        assert agent.states("m7.1.0")[-1] == "TASK_FINISHED"
    assert (tmp_path / "stderr").read_text().count("has not finished recovery") == 1, "reported once"


def test_an_agent_that_does_not_know_it_any_more_is_not_asked_for_ever(tmp_path: Path) -> None:
    with Agent(encoded(JOB)).running() as agent, agent.executor(tmp_path) as process:
        launch(agent, "trap 'touch ended; exit' TERM; while :; do sleep 0.05; done")
        assert agent.until(lambda: "TASK_RUNNING" in agent.states("m7.1.0"))
        time.sleep(0.3)  # the shell sets its trap
        agent.answer = (400, "Executor cannot be found")
        agent.disconnect()
        assert process.wait(300.0) == 0
    assert (tmp_path / "ended").exists(), "nobody counts what it uses: a successor may run elsewhere"
    assert "Executor cannot be found'; its tasks end" in (tmp_path / "stderr").read_text()


def test_what_ends_while_its_agent_is_away_is_reported_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "LINGER_S", 0.2)
    monkeypatch.setattr(executor, "say", lambda text: None)
    monkeypatch.chdir(tmp_path)
    with Agent(encoded(JOB)).running() as agent:
        environ = {
            "PATH": os.environ["PATH"],
            "MESOS_AGENT_ENDPOINT": f"127.0.0.1:{agent.port}",
            "MESOS_FRAMEWORK_ID": "framework",
            "MESOS_EXECUTOR_ID": "executor",
            "MESOS_CHECKPOINT": "1",
            "MESOS_SUBSCRIPTION_BACKOFF_MAX": "400ms",
        }
        thread = threading.Thread(target=executor.Executor(environ).run, daemon=True)
        thread.start()
        launch(agent, "while [ ! -e go ]; do sleep 0.05; done; touch over")
        assert agent.until(lambda: "TASK_RUNNING" in agent.states("m7.1.0"))
        agent.answer = (503, "Agent has not finished recovery")
        agent.disconnect()
        (tmp_path / "go").touch()
        assert agent.until(lambda: (tmp_path / "over").exists())
        time.sleep(1.0)
        assert thread.is_alive(), "else the agent takes the task for lost, and it is run again"
        agent.answer = None
        assert agent.until(lambda: agent.states("m7.1.0")[-1] == "TASK_FINISHED")
        thread.join(300.0)
        assert not thread.is_alive()


def test_a_shutdown_ends_its_tasks(tmp_path: Path) -> None:
    with Agent(encoded(JOB)).running() as agent, agent.executor(tmp_path) as process:
        launch(agent, "sleep 60")
        assert agent.until(lambda: "TASK_RUNNING" in agent.states("m7.1.0"))
        agent.send({"type": "SHUTDOWN"})
        assert process.wait(300.0) == 0
        assert agent.states("m7.1.0")[-1] == "TASK_KILLED"


def test_by_hand_it_says_who_starts_it() -> None:
    done = subprocess.run(
        [sys.executable, "-I", str(EXECUTOR)], env={}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "started by a Mesos agent" in done.stderr


def test_it_registers_with_the_node_actor_before_anything_runs(tmp_path: Path) -> None:
    root, proc = tmp_path / "cgroup", Path("/proc")
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpu memory")
    state = tmp_path / "state"
    state.mkdir()
    registered = Registered(root, 2, "n0", state, proc, started_by_agent=lambda pid: True)
    path = tmp_path / "register.sock"
    registered.listen(path)
    sandbox = tmp_path / "sandbox"
    sandbox.mkdir()
    try:
        with (
            Agent(encoded(JOB)).running() as agent,
            agent.executor(sandbox, ASAD_NODE_SOCKET=str(path)) as process,
        ):
            launch(agent, "sleep 60")
            assert agent.until(lambda: "TASK_RUNNING" in agent.states("m7.1.0"))
            (found,) = registered.jobs().values()
            assert found.job_id == JOB["key"]
            assert (found.uid, found.keeper) == (os.getuid(), process.pid)
            assert found.path == f"asad-mesos_n0/{JOB['key']}"
            assert (root / found.path / "cgroup.procs").read_text() == str(process.pid)
    finally:
        registered.close()


@pytest.mark.parametrize("job", ["m7.12345", "m7", "", "../../etc.0", "m7.0 ", 7])
def test_nobody_registers_another_users_job_or_nonsense(job: Any, tmp_path: Path) -> None:
    registered = Registered(tmp_path, 2, "n0", tmp_path, started_by_agent=lambda pid: True)
    assert registered.register(job, os.getpid(), 1000)
    assert registered.jobs() == {}


def test_only_what_an_agent_has_started_registers(tmp_path: Path) -> None:
    registered = Registered(tmp_path, 2, "n0", tmp_path)
    assert "no Mesos agent" in registered.register("m7.0", os.getpid(), 0)


def test_the_socket_answers_nonsense_and_goes_on(tmp_path: Path) -> None:
    registered = Registered(tmp_path, 2, "n0", tmp_path, started_by_agent=lambda pid: False)
    registered.listen(tmp_path / "sock")
    try:
        for line in (b"nonsense\n", b"[1]\n", b'{"job": "m7.0"}\n'):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(tmp_path / "sock"))
                connection.sendall(line)
                assert b'"ok": false' in connection.recv(4096)
    finally:
        registered.close()


# ------------------------------------------------------------------------------------- guests in their hosts

CONTAINER = "mesos/0f0e0d0c-0000-4000-8000-000000000001"
HOST, GUEST = "m7.1000", "m9.1000"


class PaperNode:
    """A /proc and cgroups of folders: an agent, the executor 100 in its container, and what it has started."""

    def __init__(self, folder: Path, version: int, leaf: str = "/leaf") -> None:
        self.root, self.proc = folder / "cgroup", folder / "proc"
        place = CONTAINER + (leaf if version == 2 else "")
        if version == 2:
            (self.root / place).mkdir(parents=True)
            (self.root / "cgroup.controllers").write_text("cpu memory")
            (self.root / place / "cgroup.procs").write_text("100")
            if leaf:
                (self.root / CONTAINER / "cgroup.procs").write_text("")
            (self.root / CONTAINER / f"asad_{GUEST}").mkdir()  # the kernel makes the files of a group
            (self.root / CONTAINER / f"asad_{GUEST}" / "memory.max").write_text("max")
            self.groups = f"0::/{place}\n"
        else:
            for name in ("freezer", "memory", "cpuacct", "cpu"):
                (self.root / name).mkdir(parents=True)
                (self.root / name / "cgroup.procs").write_text("")
            for name in ("freezer", "memory"):
                (self.root / name / place).mkdir(parents=True)
                (self.root / name / place / "cgroup.procs").write_text("100")
            self.groups = f"3:freezer:/{place}\n2:memory:/{place}\n1:cpuacct:/\n"
        self.process(50, 1, "mesos-agent", 0)
        self.process(100, 50, "python3", 1000)
        self.registered = Registered(self.root, version, "n0", folder, self.proc)

    def process(self, pid: int, parent: int, name: str = "python3", uid: int = 1000) -> None:
        folder = self.proc / str(pid)
        folder.mkdir(parents=True)
        (folder / "status").write_text(f"Name:\t{name}\nPPid:\t{parent}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        (folder / "cgroup").write_text(self.groups)

    def procs(self, *parts: str) -> str:
        return self.root.joinpath(*parts, "cgroup.procs").read_text()


def test_a_guest_has_a_group_of_its_own_that_ends_with_its_host_s_container_v1(tmp_path: Path) -> None:
    node = PaperNode(tmp_path, 1)
    node.process(200, 100)
    assert node.registered.register(HOST, 100, 1000) == ""
    heard: list[int] = []
    node.registered.heard = lambda: heard.append(1)
    assert node.registered.register(GUEST, 200, 1000, HOST, 1 << 26) == ""
    assert heard, "the actor looks at once"
    for controller in ("memory", "cpuacct"):
        assert node.procs(controller, f"asad-mesos_n0/{GUEST}") == "200"
    assert node.procs("freezer", CONTAINER, f"asad_{GUEST}") == "200"
    limit = node.root / "memory" / f"asad-mesos_n0/{GUEST}" / "memory.limit_in_bytes"
    assert limit.read_text() == str(1 << 26)
    found = node.registered.jobs()[GUEST]
    assert (found.uid, found.keeper, found.path) == (1000, 100, f"asad-mesos_n0/{GUEST}")
    cgroups = Cgroups(node.root, "n0", node.proc)
    assert cgroups.pids(found) == [200]
    assert cgroups.pids(node.registered.jobs()[HOST]) == [], "those of a guest are not its host's"
    again = Registered(node.root, 1, "n0", tmp_path, node.proc)
    assert again.jobs() == node.registered.jobs()
    # it has ended: its groups go
    for path in (node.root / "freezer" / CONTAINER / f"asad_{GUEST}", limit.parent, limit.parents[2]):
        (path / "cgroup.procs").write_text("")
    (node.root / "cpuacct" / f"asad-mesos_n0/{GUEST}" / "cgroup.procs").write_text("")
    assert set(node.registered.jobs()) == {HOST}


def test_a_guest_stands_beside_its_host_in_the_container_v2(tmp_path: Path) -> None:
    node = PaperNode(tmp_path, 2)
    node.process(200, 100)
    node.process(201, 200)
    assert node.registered.register(HOST, 100, 1000) == ""
    assert node.registered.jobs()[HOST].path == f"{CONTAINER}/leaf"
    assert node.registered.register(GUEST, 200, 1000, HOST, 1 << 26) == ""
    assert node.procs(CONTAINER, f"asad_{GUEST}") == "200"
    assert (node.root / CONTAINER / f"asad_{GUEST}" / "memory.max").read_text() == str(1 << 26)
    assert node.registered.register(GUEST, 201, 1000, HOST, 1 << 26) == "", "another task of it"
    assert node.procs(CONTAINER, f"asad_{GUEST}") == "201"


def test_who_may_not_be_a_guest_there_learns_why(tmp_path: Path) -> None:
    node = PaperNode(tmp_path, 2)
    node.process(200, 100)
    node.process(300, 50)
    register = node.registered.register
    assert "is not here" in register(GUEST, 200, 1000, HOST, 1 << 26)
    assert register(HOST, 100, 1000) == ""
    assert "has not started it" in register(GUEST, 300, 1000, HOST, 1 << 26)
    for memory in (0, -1, None, "1", True, 1 << 63, float("nan")):
        assert "how much memory" in register(GUEST, 200, 1000, HOST, memory)
    assert "names no job" in register(GUEST, 200, 1000, 7, 1 << 26)
    assert "not one of user" in register(GUEST, 200, 1001, HOST, 1 << 26)
    (node.root / CONTAINER / f"asad_{GUEST}" / "memory.max").unlink()
    assert "memory controller is not there" in register(GUEST, 200, 1000, HOST, 1 << 26)
    assert set(node.registered.jobs()) == {HOST}
    plain = PaperNode(tmp_path / "plain", 2, leaf="")
    plain.process(200, 100)
    assert plain.registered.register(HOST, 100, 1000) == ""
    assert "keeps processes beside groups" in plain.registered.register(GUEST, 200, 1000, HOST, 1 << 26)


def test_a_host_that_starts_anew_is_known_though_its_old_executor_keeps_a_guest(tmp_path: Path) -> None:
    node = PaperNode(tmp_path, 1)
    node.process(200, 100)
    assert node.registered.register(HOST, 100, 1000) == ""
    assert node.registered.register(GUEST, 200, 1000, HOST, 1 << 26) == ""
    other = CONTAINER[:-1] + "2"
    (node.root / "freezer" / other).mkdir(parents=True)
    (node.root / "freezer" / other / "cgroup.procs").write_text("110")
    node.groups = f"3:freezer:/{other}\n"
    node.process(110, 50)
    assert node.registered.register(HOST, 110, 1000) == ""
    assert node.registered.jobs()[HOST].path == other
    assert node.registered.jobs()[GUEST].keeper == 100
