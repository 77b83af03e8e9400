"""The node actor on the kernel's own cgroups (v1, root): quotas really hold, and nothing of them is left.

A node is made by hand: cgroups as Slurm's, a process called slurmstepd, and jobs that run for real. What Slurm itself
does is in test_real_slurm.py.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from asad.api.auth import open_authenticator
from asad.api.node_server import NodeServer
from asad.config import NodesSettings
from asad.model import Json
from asad.node.actor import Actor, Settings
from asad.node.cgroups import Cgroups, numbers
from asad.port import Lease

CGROUP = Path("/sys/fs/cgroup")
BUSY = "while :; do :; done"
NAMES = itertools.count()
CORE = max(os.sched_getaffinity(0))
CORES = ",".join(map(str, sorted(os.sched_getaffinity(0))))


def until(condition: Callable[[], object], timeout_s: float = 300.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


class Node:
    """A node of as many cores as there are, of jobs on one of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, f"asadtest{os.getpid()}x{next(NAMES)}"
        self.home = f"slurm_{self.name}"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.groups: list[Path] = []
        self.stepd = folder / "slurmstepd"
        shutil.copy("/bin/sleep", self.stepd)

    def group(self, controller: str, path: str) -> Path:
        """Make a group with all those above it."""
        group = CGROUP / controller
        for part in f"{self.home}/{path}".split("/"):
            group = group / part
            if not group.exists():
                group.mkdir()
                self.groups.append(group)
                if controller == "cpuset":
                    cores = str(CORE) if "job_" in str(group) else CORES
                    (group / "cpuset.cpus").write_text(cores)
                    (group / "cpuset.mems").write_text("0")
        return group

    def run(self, command: list[str], groups: dict[str, str], environ: dict[str, str]) -> int:
        process = subprocess.Popen(command, env={**os.environ, **environ}, stdout=subprocess.DEVNULL)
        self.processes.append(process)
        for controller, path in groups.items():
            (self.group(controller, path) / "cgroup.procs").write_text(str(process.pid))
        return process.pid

    def job(self, job_id: str, *scripts: str, partition: str = "batch") -> list[int]:
        """Start a job of one step."""
        job = f"uid_0/job_{job_id}"
        self.run([str(self.stepd), "600"], {"freezer": job}, {})
        return [self.step(job_id, script, partition=partition) for script in scripts]

    def step(self, job_id: str, script: str, number: int = 0, partition: str = "batch") -> int:
        step = f"uid_0/job_{job_id}/step_{number}"
        record = {"SLURM_JOB_ID": job_id, "SLURM_JOB_PARTITION": partition}
        script = (
            f"until [ -e {self.folder}/go ]; do sleep 0.02; done; {script}"  # not before it is in its groups
        )
        (self.folder / "go").unlink(missing_ok=True)
        groups = {"freezer": step, "cpuacct": f"{step}/task_0", "cpuset": step, "memory": f"{step}/task_0"}
        pid = self.run(["/bin/sh", "-c", script], groups, record)
        (self.folder / "go").touch()
        return pid

    def kill(self, folder: Path) -> None:
        """Kill everything in a freezer group, also what its processes have left behind."""
        deadline = time.monotonic() + 300
        while pids := [
            pid for place, _, _ in os.walk(folder) for pid in numbers(Path(place) / "cgroup.procs")
        ]:
            assert time.monotonic() < deadline, f"{pids} do not end"
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for process in self.processes:
                process.poll()
            time.sleep(0.01)

    def end(self, job_id: str) -> None:
        """As Slurm does at a job's end."""
        self.kill(CGROUP / "freezer" / self.home / f"uid_0/job_{job_id}")
        gone = [group for group in self.groups if f"job_{job_id}" in group.parts]
        self.remove(gone)

    def remove(self, groups: list[Path]) -> None:
        for group in reversed(groups):
            until(lambda group=group: not group.exists() or removed(group))
            self.groups.remove(group)

    def used_s(self, job_id: str) -> float:
        return int((CGROUP / "cpuacct" / self.home / f"uid_0/job_{job_id}/cpuacct.usage").read_text()) / 1e9

    def rate(self, job_id: str, seconds: float = 1.5) -> float:
        """Cores that a job uses."""
        before, start = self.used_s(job_id), time.monotonic()
        time.sleep(seconds)
        return (self.used_s(job_id) - before) / (time.monotonic() - start)

    def actor(self) -> Actor:
        return Actor(
            Settings(self.name, self.folder / "state"),
            Cgroups(CGROUP, self.name),
            progress=self.folder / "progress",
        )

    @property
    def guests(self) -> Path:
        return CGROUP / "cpu" / f"asad_{self.name}"

    @property
    def wide(self) -> Path:
        return CGROUP / "cpuset" / f"asad_{self.name}"

    @property
    def hosts(self) -> Path:
        return CGROUP / "cpu" / f"asad-hosts_{self.name}"

    def close(self) -> None:
        self.kill(CGROUP / "freezer" / self.home)
        for process in self.processes:
            process.kill()
            process.wait()
        self.remove(list(self.groups))
        for parent in (self.guests, self.hosts, self.wide):
            for group in [*parent.glob("job_*"), parent]:
                until(lambda group=group: not group.exists() or removed(group))


def removed(group: Path) -> bool:
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    if os.geteuid() != 0:
        pytest.skip("cgroups are root's: run as root")
    if not (CGROUP / "cpu/cpu.cfs_quota_us").exists() and not (CGROUP / "cpu").is_dir():
        pytest.skip("this machine has no cgroup v1; tests/vm covers v2")
    node = Node(tmp_path)
    yield node
    node.close()


def lease(job_id: str, quota: float, guest: bool = True) -> Lease:
    return Lease(job_id, guest, "", quota, 1)


def cpu_group(pid: int) -> str:
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return path
    raise AssertionError(f"process {pid} is in no cpu group")


def test_a_quota_holds_a_busy_guest_and_its_end_frees_it(node: Node) -> None:
    [pid] = node.job("1", BUSY, partition="guest")
    actor = node.actor()
    actor.start()
    assert cpu_group(pid) == f"/asad_{node.name}/job_1"
    now_s = time.monotonic()
    actor.leases.renew([lease("1", 0.1)], 60.0, now_s)
    actor.apply(now_s)
    for group in (node.guests, node.guests / "job_1"):  # on a busy machine the idle class alone would hold it
        (group / "cpu.idle").write_text("0")
    assert 0 < node.rate("1") < 0.13
    sample = (actor.sample(now_s), actor.samples["1"])[1]
    assert sample.throttled > 0
    assert sample.quota == pytest.approx(0.1)
    actor.leases.renew([], 60.0, now_s)
    actor.apply(now_s)
    assert (node.guests / "job_1/cpu.cfs_quota_us").read_text().strip() == "-1"
    actor.close()


def test_a_guest_in_the_idle_class_leaves_the_core_to_its_host(node: Node) -> None:
    node.job("1", BUSY)
    node.job("2", BUSY, partition="guest")
    actor = node.actor()
    actor.start()
    assert (node.guests / "cpu.idle").read_text().strip() == "1"
    before = node.used_s("1"), node.used_s("2")
    time.sleep(2.0)
    host, guest = node.used_s("1") - before[0], node.used_s("2") - before[1]
    assert host > 8 * guest
    actor.close()


def test_later_steps_and_their_children_are_held_too(node: Node) -> None:
    node.job("1", "sleep 600", partition="guest")
    actor = node.actor()
    actor.start()
    later = node.step("1", "sleep 600 & sleep 600 & wait", number=1, partition="guest")
    actor.scan(time.monotonic())
    assert cpu_group(later) == f"/asad_{node.name}/job_1"
    place = node.guests / "job_1/cgroup.procs"
    # what they start meanwhile is there by itself, and seen in one list before the other
    until(
        lambda: (
            len(set(numbers(place))) > 2 and set(actor.cgroups.pids(actor.jobs["1"])) == set(numbers(place))
        )
    )
    inside = set(numbers(place))
    assert len(inside) > 2 and not inside & set(actor.cgroups.stepds(actor.jobs["1"]))
    actor.close()


def test_a_capped_host_goes_back_to_where_it_was(node: Node) -> None:
    [pid] = node.job("1", BUSY)
    origin = cpu_group(pid)
    actor = node.actor()
    actor.start()
    now_s = time.monotonic()
    actor.leases.renew([lease("1", 0.1, guest=False)], 60.0, now_s)
    actor.apply(now_s)
    assert cpu_group(pid) == f"/asad-hosts_{node.name}/job_1"
    assert 0 < node.rate("1") < 0.13
    actor.expire(now_s + 61.0)
    assert cpu_group(pid) == origin
    assert not (node.hosts / "job_1").exists()
    actor.close()


def test_nothing_is_left_of_a_job_that_ended(node: Node) -> None:
    node.job("1", BUSY, partition="guest")
    actor = node.actor()
    actor.start()
    actor.leases.renew([lease("1", 0.5)], 60.0, time.monotonic())
    actor.apply(time.monotonic())
    node.end("1")
    actor.scan(time.monotonic())
    assert list(node.guests.glob("job_*")) == []
    assert actor.jobs == {}
    assert not [row for row in actor.quotas.rows if "refused" in row.new]
    actor.close()


KILLED = """
import sys, time
from pathlib import Path
from asad.port import Lease
from asad.node.actor import Actor, Settings
from asad.node.cgroups import Cgroups
name, folder = sys.argv[1:]
folder = Path(folder)
cgroups = Cgroups(Path("/sys/fs/cgroup"), name)
actor = Actor(Settings(name, folder / "state"), cgroups, progress=folder / "progress")
actor.leases.renew([Lease("1", False, "", 0.3, 1), Lease("2", True, "1", 0.2, 1, widen=True)], 3600.0, time.monotonic())
actor.run()
"""


def test_kill_9_is_repaired_by_the_next_start(node: Node) -> None:
    [host] = node.job("1", BUSY)
    origin = cpu_group(host)
    node.job("2", BUSY, partition="guest")
    killed = subprocess.Popen([sys.executable, "-c", KILLED, node.name, str(node.folder)])
    node.processes.append(killed)
    quota = node.guests / "job_2/cpu.cfs_quota_us"
    until(lambda: quota.exists() and quota.read_text().strip() == "20000")
    until(lambda: cpu_group(host).endswith(f"/asad-hosts_{node.name}/job_1"))
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert quota.read_text().strip() == "20000"
    actor = node.actor()
    actor.start()
    assert quota.read_text().strip() == "-1"
    assert cpu_group(host) == origin
    assert list(node.hosts.glob("job_*")) == []
    assert (node.guests / "job_2/cpu.idle").read_text().strip() == "1"
    actor.close()


def test_leftovers_of_jobs_that_ended_meanwhile_are_removed(node: Node) -> None:
    (node.guests / "job_9").mkdir(parents=True)
    (node.hosts / "job_8").mkdir(parents=True)
    actor = node.actor()
    actor.start()
    assert list(node.guests.glob("job_*")) == list(node.hosts.glob("job_*")) == []
    actor.close()


def test_pressure_on_a_real_host_is_answered(node: Node) -> None:
    """The guest is taken out of the idle class behind the actor's back, as if the kernel did not honour it."""
    begin = node.folder / "begin"
    node.job("1", BUSY)
    node.job("2", f"until [ -e {begin} ]; do sleep 0.02; done; {BUSY}", partition="guest")
    actor = node.actor()
    loop = threading.Thread(target=actor.run)
    loop.start()
    try:
        until(lambda: (node.guests / "job_2/cpu.idle").exists() and actor.guests == {"2"})
        for group in (node.guests, node.guests / "job_2"):
            (group / "cpu.idle").write_text("0")
        time.sleep(2.0)
        quota = node.guests / "job_2/cpu.cfs_quota_us"
        assert quota.read_text().strip() == "-1"
        begin.touch()
        until(lambda: quota.read_text().strip() == "1000")
        assert [row.why for row in actor.quotas.rows][-1] == "its host, job 1, waits for CPU"
    finally:
        actor.stop()
        loop.join(300)


# ---------------------------------------------------------------------------------------------------------- run wide

WIDE = set(os.sched_getaffinity(0))
several = pytest.mark.skipif(len(WIDE) < 2, reason="a guest is let onto a second core")


def widen(actor: Actor, job_id: str = "1", quota: float = 0.5, wide: bool = True) -> None:
    """A lease that says so, for a minute."""
    now_s = time.monotonic()
    actor.leases.renew([Lease(job_id, True, "", quota, 1, widen=wide)], 60.0, now_s)
    actor.apply(now_s)


def cpuset_of(pid: int) -> str:
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "cpuset":
            return path
    raise AssertionError(f"process {pid} is in no cpuset")


@several
def test_a_guest_runs_on_every_core_and_comes_back(node: Node) -> None:
    [pid] = node.job("1", f"{BUSY} & {BUSY} & wait", partition="guest")
    node.job("2", "sleep 600")
    actor = node.actor()
    actor.start()
    origin = cpuset_of(pid)
    until(lambda: len(actor.cgroups.pids(actor.jobs["1"])) == 3)
    widen(actor)
    threads = actor.cgroups.threads(actor.jobs["1"])
    assert all(os.sched_getaffinity(thread) == WIDE for thread in threads)
    assert cpuset_of(pid) == f"/asad_{node.name}/job_1"
    assert actor.watch.beside == {"2": {"1"}}, "it shares a core with everybody now"
    sample = (actor.sample(time.monotonic()), actor.samples["1"])[1]
    assert sample.cores == 1, "width is what Slurm says"
    assert 0 < node.rate("1") < 0.65, "two busy loops, and a quota of half a core"
    later = node.step("1", f"{BUSY} & wait", number=1, partition="guest")
    until(lambda: len(actor.cgroups.pids(actor.jobs["1"])) == 5)
    actor.scan(time.monotonic())
    assert os.sched_getaffinity(later) == WIDE and cpuset_of(later) == f"/asad_{node.name}/job_1"
    actor.expire(time.monotonic() + 61.0)
    for one, step in ((pid, 0), (later, 1)):
        assert cpuset_of(one) == origin.replace("step_0", f"step_{step}")
    cores = {thread: os.sched_getaffinity(thread) for thread in actor.cgroups.threads(actor.jobs["1"])}
    assert len(cores) == 5 and all(one == {CORE} for one in cores.values()), cores
    assert not node.wide.exists() and actor.widening.held == {}
    changes = [(row.old, row.new) for row in actor.quotas.rows if "cpuset" in row.file]
    assert changes == [(str(CORE), CORES), (CORES, str(CORE))]
    actor.close()


@several
def test_a_quota_is_never_lifted_before_the_guest_is_narrow(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.job("1", BUSY, partition="guest")
    actor = node.actor()
    actor.start()
    widen(actor)
    done: list[tuple[str, object]] = []
    for what, name in ((actor.widening, "narrow"), (actor.widening, "widen"), (actor.quotas, "set_quota")):
        call = getattr(what, name)
        monkeypatch.setattr(
            what, name, lambda *args, call=call, name=name: (done.append((name, args[1])), call(*args))[1]
        )
    widen(actor, wide=False)
    assert [name for name, _ in done] == ["narrow", "set_quota"]
    done.clear()
    widen(actor)
    assert [name for name, _ in done] == ["set_quota", "widen"]
    actor.leases.squeeze("1", "2", time.monotonic())
    actor.apply(time.monotonic())
    assert actor.quotas.quota_cores("1") == 0.01 and actor.widening.cores("1"), (
        "who is squeezed stays where it is"
    )
    monkeypatch.setattr(actor.widening, "_put_back", lambda held: False)
    quota = node.guests / "job_1/cpu.cfs_quota_us"
    actor.leases.renew([], 60.0, time.monotonic())
    actor.apply(time.monotonic())
    assert quota.read_text().strip() != "-1"
    monkeypatch.undo()
    actor.apply(time.monotonic())
    assert quota.read_text().strip() == "-1" and not actor.widening.held
    actor.close()


@several
def test_kill_9_leaves_nobody_wide(node: Node) -> None:
    [pid] = node.job("2", f"{BUSY} & wait", partition="guest")
    origin = cpuset_of(pid)
    node.job("1", "sleep 600")
    killed = subprocess.Popen([sys.executable, "-c", KILLED, node.name, str(node.folder)])
    node.processes.append(killed)
    until(lambda: (node.wide / "job_2").exists() and os.sched_getaffinity(pid) == WIDE)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    (node.folder / "state/widened.json").write_text("broken")
    actor = node.actor()
    actor.start()
    assert cpuset_of(pid) == origin and os.sched_getaffinity(pid) == {CORE}
    assert not node.wide.exists() and not actor.widening.held
    assert json.loads((node.folder / "state/widened.json").read_text()) == {"jobs": []}
    actor.close()


@pytest.fixture
def munge(tmp_path: Path) -> Iterator[Path]:
    """The socket of a munge of its own."""
    folder = Path("/tmp") / f"asad-munge-{os.getpid()}-{next(NAMES)}"  # munge refuses long and open paths
    folder.mkdir(mode=0o755)
    (folder / "key").write_bytes(os.urandom(1024))
    (folder / "key").chmod(0o400)
    files = {
        name: f"--{name}={folder}/{name.removesuffix('-file')}"
        for name in ("key-file", "pid-file", "log-file", "seed-file")
    }
    munged = shutil.which("munged")
    if munged is None:
        shutil.rmtree(folder)
        pytest.skip("no munged: install munge")
    process = subprocess.Popen(
        [munged, "--foreground", "--force", f"--socket={folder}/socket", *files.values()],
        stderr=subprocess.DEVNULL,
    )
    until((folder / "socket").exists)
    yield folder / "socket"
    process.terminate()
    process.wait()
    shutil.rmtree(folder)


def test_the_command_obeys_a_daemon_outlives_it_and_stops_clean(node: Node, munge: Path) -> None:
    node.job("1", BUSY)
    node.job("2", BUSY, partition="guest")
    keys = NodesSettings(auth="munge", user="root", munge_socket=str(munge))
    server = NodeServer("127.0.0.1:0", open_authenticator(keys, "daemon"), lease_s=3.0)
    server.start()
    config = node.folder / "asad.toml"
    config.write_text(
        f"""[nodes]
auth = "munge"
user = "root"
munge_socket = "{munge}"
[node]
daemon = "127.0.0.1:{server.address[1]}"
node = "{node.name}"
sample_s = 0.5
state_dir = "{node.folder}/state"
"""
    )
    command = [str(Path(sys.executable).with_name("asad-node")), "--config", str(config)]
    environ = {**os.environ, "ASAD_PROGRESS_DIR": str(node.folder / "progress")}
    actor = subprocess.Popen(command, env=environ)
    node.processes.append(actor)
    quota = node.guests / "job_2/cpu.cfs_quota_us"

    def says(text: str) -> bool:
        return quota.exists() and quota.read_text().strip() == text

    try:
        until(lambda: node.name in server.reports())
        jobs = server.reports()[node.name].jobs
        assert (jobs["1"].guest, jobs["2"].guest, jobs["2"].idle_class) == (False, True, True)
        assert server.announce([node.name], "3")
        until(lambda: not math.isnan(server.reports()[node.name].jobs["1"].cpu_fraction))
        server.grant({node.name: [lease("2", 0.3)]})
        until(lambda: says("30000"))
        until(lambda: server.reports()[node.name].jobs["2"].quota == pytest.approx(0.3))
        assert any(row["job_id"] == "2" and row["new"] == "30000" for row in server.audit)
    finally:
        server.stop()  # the daemon dies
    until(lambda: says("-1"))
    assert actor.poll() is None
    actor.terminate()
    assert actor.wait(300) == 0
    assert (node.guests / "cpu.idle").read_text().strip() == "1"


JOBS = 100


class Wire:
    """Does with messages what a connection does before they leave."""

    connected = True

    def send(self, message: dict[str, Json]) -> bool:
        return bool(hashlib.sha256(json.dumps(message).encode()).digest())


def test_the_actor_watches_a_hundred_jobs(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """What that costs is measured in benchmarks/bench_node.py."""
    for number in range(1, JOBS + 1):
        node.job(str(number), "sleep 3600; :", partition="guest" if number % 10 == 0 else "batch")
    with contextlib.closing(node.actor()) as actor:
        actor.link = Wire()

        # the machine has too few cores to give every job its own; of ten jobs the last is beside the first
        def cores() -> dict[str, frozenset[int]]:
            return {name: frozenset({int(name) - 9 * (int(name) % 10 == 0)}) for name in actor.jobs}

        monkeypatch.setattr(actor.profile, "cores", cores)
        actor.start()
        assert len(actor.jobs) == JOBS
        assert len(actor.guests) == JOBS // 10
        for _ in range(2):
            for duty in (actor.sample, actor.scan, actor.watch_pressure):
                duty(time.monotonic())
        assert len(actor.watch.beside) == JOBS // 10
        assert actor.samples["1"].memory_bytes > 0
        assert not math.isnan(actor.samples["1"].cpu_time_s)
