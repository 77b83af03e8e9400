"""A job that registers itself, in the real cgroups of this machine: found, measured, capped, made idle, let go."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from asad.node.actor import Actor, Settings
from asad.node.cgroups import Cgroups, numbers
from asad.node.quotas import Quotas
from asad.node.registered import Registered

ROOT = Path("/sys/fs/cgroup")
JOB = "m7.0"
EXECUTOR = """
import os, subprocess, sys, time
sys.stdin.readline()
busy = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
print(busy.pid, flush=True)
try:
    sys.stdin.readline()
finally:
    busy.kill()
    busy.wait()
"""


def why_not() -> str:
    """Why this machine cannot show it; empty if it can."""
    if os.geteuid() != 0:
        return "needs root"
    place = ROOT if (ROOT / "cgroup.controllers").exists() else ROOT / "cpu"
    probe = place / f"asad-probe-{os.getpid()}"  # several processes collect tests at one time
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return f"{place} cannot be written: {error.strerror}"
    return ""


WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


def left_of(node: str) -> list[str]:
    """Groups that asad has made for it and that are there; others, of jobs beside this test, go while we look."""
    names = (name for _, folders, _ in os.walk(ROOT) for name in folders)
    return [name for name in names if name.startswith("asad") and node in name]


@pytest.fixture
def registered(tmp_path: Path) -> Iterator[tuple[Registered, Cgroups, subprocess.Popen[str], int]]:
    """An executor that has registered, and then started a busy process in a session of its own."""
    node = f"asadtest{os.getpid()}"
    cgroups = Cgroups(ROOT, node)
    found = Registered(ROOT, cgroups.version, node, tmp_path, started_by_agent=lambda pid: True)
    cgroups.registered = found.jobs
    with subprocess.Popen(
        [sys.executable, "-c", EXECUTOR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as executor:
        assert executor.stdin is not None and executor.stdout is not None
        assert found.register(JOB, executor.pid, 0) == ""
        executor.stdin.write("\n")
        executor.stdin.flush()
        busy = int(executor.stdout.readline())
        try:
            yield found, cgroups, executor, busy
        finally:
            executor.stdin.close()
            executor.wait()
            for _ in range(50):
                if not found.jobs():
                    break
                time.sleep(0.1)
            assert found.jobs() == {}, "a job that has ended is forgotten"
            for controller in ("", "freezer", "cpuacct", "memory", "cpu"):
                for name in (f"asad-mesos_{node}", f"asad_{node}", f"asad-hosts_{node}"):
                    with contextlib.suppress(OSError):
                        (ROOT / controller / name).rmdir()
            assert left_of(node) == []


def test_its_processes_are_its_own_and_children_are_among_them(
    registered: tuple[Registered, Cgroups, subprocess.Popen[str], int], tmp_path: Path
) -> None:
    found, cgroups, executor, busy = registered
    (group,) = cgroups.jobs(0.0).values()
    assert (group.job_id, group.uid, group.keeper) == (JOB, 0, executor.pid)
    assert cgroups.pids(group) == [busy]
    assert cgroups.stepds(group) == [executor.pid]
    assert cgroups.exists(group)
    again = Registered(ROOT, cgroups.version, cgroups.node, tmp_path)
    assert again.jobs() == found.jobs(), "a restarted actor knows it"


def test_a_quota_binds_it_and_is_lifted(
    registered: tuple[Registered, Cgroups, subprocess.Popen[str], int], tmp_path: Path
) -> None:
    _, cgroups, _, busy = registered
    (group,) = cgroups.jobs(0.0).values()
    quotas = Quotas(cgroups, tmp_path, time.time)

    def used_s(seconds: float) -> float:
        def ticks() -> int:
            fields = Path(f"/proc/{busy}/stat").read_text().rpartition(")")[2].split()
            return int(fields[11]) + int(fields[12])

        before = ticks()
        time.sleep(seconds)
        return (ticks() - before) / os.sysconf("SC_CLK_TCK")

    assert quotas.set_quota(group, 0.1, "a test")
    assert used_s(2.0) <= 0.5
    assert quotas.set_quota(group, float("nan"), "over")
    assert quotas.held == {} or quotas.quota_cores(JOB) != quotas.quota_cores(JOB)
    if cgroups.version == 1:
        where = Path(f"/proc/{busy}/cgroup").read_text()
        assert "asad-hosts" not in where, "it is back where its executor is"


def test_as_a_guest_it_is_in_the_idle_class(
    registered: tuple[Registered, Cgroups, subprocess.Popen[str], int], tmp_path: Path
) -> None:
    _, cgroups, _, busy = registered
    (group,) = cgroups.jobs(0.0).values()
    quotas = Quotas(cgroups, tmp_path, time.time)
    assert quotas.set_idle(group, True, "a test")
    assert quotas.is_idle(group)
    held = quotas.held[JOB]
    assert busy in numbers(held.place / "cgroup.procs")
    assert quotas.set_idle(group, False, "over")
    assert not quotas.is_idle(group)
    quotas.lift_all("over")


def test_the_actor_reports_it(
    registered: tuple[Registered, Cgroups, subprocess.Popen[str], int], tmp_path: Path
) -> None:
    _, cgroups, _, _ = registered
    actor = Actor(Settings(node=cgroups.node, state_dir=tmp_path), cgroups, progress=tmp_path / "progress")
    actor.scan(0.0)
    for number in range(8):
        time.sleep(0.1)
        actor.sample(float(number))
    found = actor.samples[JOB]
    assert found.cpu_time_s > 0
    assert found.cores >= 1
    assert not found.guest
    actor.close()


CONTAINER = f"mesos/0f0e0d0c-0000-4000-8000-{os.getpid():012d}"


@pytest.mark.skipif((ROOT / "cgroup.controllers").exists(), reason="the layout of v1")
def test_a_guest_in_a_real_container_is_idle_bounded_and_ends_with_it(tmp_path: Path) -> None:
    """What Mesos would make is made by hand: a container in `freezer` and `memory`."""
    node = f"asadtest{os.getpid()}"
    cgroups = Cgroups(ROOT, node)
    settings = Settings(node=node, state_dir=tmp_path, register=str(tmp_path / "register.sock"))
    actor = Actor(settings, cgroups, progress=tmp_path / "progress")
    found, quotas = actor.registered, actor.quotas
    assert found is not None
    found._started_by_agent = lambda pid: True
    containers = [ROOT / name / CONTAINER for name in ("freezer", "memory")]
    for path in containers:
        path.mkdir(parents=True)
    actor.follow({"kind": "announce", "id": 1, "job": "m9.0"}, 0.0)
    with subprocess.Popen(
        [sys.executable, "-c", EXECUTOR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as executor:
        assert executor.stdin is not None and executor.stdout is not None
        try:
            for path in containers:
                (path / "cgroup.procs").write_text(str(executor.pid))
            assert found.register(JOB, executor.pid, 0) == ""
            executor.stdin.write("\n")
            executor.stdin.flush()
            guest = int(executor.stdout.readline())  # its child is to be a task of another job
            assert found.register("m9.0", guest, 0, JOB, 64 << 20) == ""
            jobs = found.jobs()
            assert cgroups.pids(jobs["m9.0"]) == [guest]
            assert cgroups.pids(jobs[JOB]) == []
            text = Path(f"/proc/{guest}/cgroup").read_text()
            assert f"/{CONTAINER}/asad_m9.0\n" in text, "what freezes the container freezes it"
            assert f"/asad-mesos_{node}/m9.0\n" in text
            limit = ROOT / "memory" / f"asad-mesos_{node}" / "m9.0" / "memory.limit_in_bytes"
            assert int(limit.read_text()) == 64 << 20
            message = actor.inbox.get_nowait()
            assert message == {"kind": "registered"}
            actor.follow(message, 1.0)  # at once, not with the next scan
            assert actor.guests == {"m9.0"}
            assert guest in numbers(quotas.held["m9.0"].place / "cgroup.procs")
            assert quotas.is_idle(jobs["m9.0"])
            assert not quotas.is_idle(jobs[JOB])
        finally:
            executor.stdin.close()
            executor.wait()
            for _ in range(50):
                if not found.jobs():
                    break
                time.sleep(0.1)
            actor.scan(2.0)
            actor.close()
            for path in containers:
                with contextlib.suppress(OSError):
                    path.rmdir()
                with contextlib.suppress(OSError):
                    path.parent.rmdir()
            for controller in ("freezer", "cpuacct", "memory", "cpu"):
                for name in (f"asad-mesos_{node}", f"asad_{node}", f"asad-hosts_{node}"):
                    with contextlib.suppress(OSError):
                        (ROOT / controller / name).rmdir()
    assert found.jobs() == {}
    assert left_of(node) == []
    assert not any(path.exists() for path in containers)
