"""The framework over pymesos, against the double: what holds when master, network, agents or we ourselves fail."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asad_mesos.events import Cancelled, Scaled
from asad_mesos.framework_journal import JournalError
from asad_mesos.job_spec import Group, Spec
from asad_mesos.offer_replies import IDLE_S
from asad_mesos.session import Session
from asad_mesos.settings import read_settings
from master import Master
from sessions import gang, session, state, wait

from asad.errors import ConfigError


@pytest.fixture
def master() -> Iterator[Master]:
    """Four agents of four CPUs; the stream is cut into odd chunks."""
    with Master(4, 4.0, split=random.Random(1), resend_s=0.5).running() as running:
        yield running


def runs(opened: Session, job: str) -> bool:
    return wait(lambda: state(opened, job) == "running")


def check_whole(master: Master) -> None:
    """Nothing was launched twice, and no agent holds more than it has."""
    assert not [task for task, count in master.launches.items() if count > 1]
    for agent in master.agents:
        assert all(agent.used[name] <= total + 1e-6 for name, total in agent.total.items())


def test_a_gang_starts_whole_and_the_next_one_when_there_is_room(master: Master, tmp_path: Path) -> None:
    with session(master, tmp_path) as opened:
        (first, second) = opened.submit(gang(10), gang(8))
        assert runs(opened, first)
        assert len(master.launches) == 10
        time.sleep(0.5)
        assert state(opened, second) == "queued"
        assert len(master.launches) == 10, "no part of a gang starts alone"
        opened.do(Cancelled(first, "enough"))
        assert runs(opened, second)
        assert state(opened, first) == "cancelled"
        check_whole(master)


@pytest.mark.usefixtures("many_descriptors")
def test_a_gang_starts_beside_more_than_a_thousand_connections(master: Master, tmp_path: Path) -> None:
    with session(master, tmp_path) as opened:
        (job,) = opened.submit(gang(2))
        assert runs(opened, job)


def test_offers_are_returned_in_time_and_not_hoarded_for_what_can_never_run(
    master: Master, tmp_path: Path
) -> None:
    with session(master, tmp_path, hold_s=1.5) as opened:
        (blocker, waiting, never) = opened.submit(gang(10), gang(10), gang(100))
        assert runs(opened, blocker)
        assert wait(lambda: opened.framework.pool.gathers == waiting)
        time.sleep(4.0)
        assert master.calls["DECLINE"] > 1
        assert master.longest_out_s <= 1.5
        assert opened.framework.pool.replies.longest_hold_s <= 1.5
        opened.do(Cancelled(waiting, ""))
        assert wait(lambda: not opened.framework.agents.offers), "nobody is left for whom to withhold"
        assert state(opened, never) == "queued"


def test_offers_are_returned_though_the_stream_hangs(master: Master, tmp_path: Path) -> None:
    with session(master, tmp_path, hold_s=1.0) as opened:
        (blocker, waiting) = opened.submit(gang(10), gang(10))
        assert runs(opened, blocker)
        assert wait(lambda: opened.framework.pool.gathers == waiting and opened.framework.agents.offers)
        master.hang()
        assert wait(lambda: not opened.framework.agents.offers)
        assert master.until(lambda: not master.offers)
        assert master.longest_out_s <= 1.0


def test_a_stopped_parent_gives_its_offers_back_too(master: Master, tmp_path: Path) -> None:
    """When we hang ourselves, the child ends for want of a beat, and the master takes the offers back."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        try:
            with session(master, tmp_path, hold_s=2.0) as opened:
                opened.submit(gang(10), gang(10))
                time.sleep(60.0)
        finally:
            os._exit(0)
    try:
        assert master.until(lambda: len(master.launches) == 10 and master.offers)
        os.kill(pid, signal.SIGSTOP)
        assert master.until(lambda: not any(f.active for f in master.frameworks.values()))
        assert master.offers == {}
        assert len(master.running_tasks()) == 10
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_hanging_stream_is_given_up_after_missing_heartbeats(tmp_path: Path) -> None:
    with Master(2, heartbeat_s=0.3).running() as master, session(master, tmp_path) as opened:
        (job,) = opened.submit(gang(2))
        assert runs(opened, job)
        master.hang()
        assert wait(lambda: not opened.subscribed)
        master.hang(False)
        assert wait(lambda: opened.subscribed)
        assert opened.link.starts > 1
        assert len(master.frameworks) == 1
        assert state(opened, job) == "running"
        assert master.teardowns == 0


def test_a_hundred_disconnects_lose_no_task_and_launch_none_twice(tmp_path: Path) -> None:
    rng = random.Random(5)
    master = Master(
        6,
        4.0,
        split=random.Random(2),
        resend_s=0.3,
        allocation_s=0.02,
        task_s=lambda info: rng.uniform(0.05, 0.6),
    )
    with master.running(), session(master, tmp_path, retries=100) as opened:
        assert opened.wait(300.0)
        jobs: list[str] = []
        faults = 0
        while faults < 100:
            jobs += opened.submit(*(gang(rng.randint(1, 12)) for _ in range(2)))
            for _ in range(4):
                time.sleep(rng.uniform(0.0, 0.12))
                kind = rng.randrange(5)
                if kind == 0:
                    master.disconnect(mid_record=True)
                elif kind == 1:
                    master.drop_everything()
                elif kind == 2:
                    master.restart()
                elif kind == 3:
                    master.disconnect()
                elif (driver := opened.link.driver) is not None:
                    os.kill(driver.pid, signal.SIGKILL)
                faults += 1
                wait(lambda: opened.subscribed)
        assert wait(lambda: not opened.framework.jobs), [
            (job, state(opened, job), opened.job(job).why)
            for job in jobs
            if state(opened, job) != "completed"
        ]
        assert {state(opened, job) for job in jobs} == {"completed"}
        assert master.subscriptions > 50, "the faults have to be felt to mean anything"
        check_whole(master)
        assert master.running_tasks() == []
        for job in jobs:  # the attempt that counts was whole, and each of its tasks ran to its end
            last = opened.job(job).attempt
            tasks = [task for name, task in master.tasks.items() if name.startswith(f"{job}.{last}.")]
            assert len(tasks) == opened.job(job).spec.tasks
            assert {task.state for task in tasks} == {"TASK_FINISHED"}
        assert len(master.frameworks) == 1
        assert master.teardowns == 0


def test_a_killed_daemon_finds_its_tasks_again(master: Master, tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        try:
            with session(master, tmp_path) as opened:
                opened.submit(gang(6), gang(100))
                time.sleep(60.0)
        finally:
            os._exit(0)
    assert master.until(lambda: len(master.launches) == 6)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert master.until(lambda: not any(f.active for f in master.frameworks.values()))
    assert len(master.running_tasks()) == 6
    with session(master, tmp_path) as opened:
        assert wait(lambda: opened.subscribed)
        assert runs(opened, "m1")
        assert state(opened, "m2") == "queued"
        assert len(master.launches) == 6
        master.end_task("m1.1.0", "TASK_FAILED", "status 1")
        assert wait(lambda: state(opened, "m1") == "failed")
        assert master.running_tasks() == []
    assert len(master.frameworks) == 1
    assert master.teardowns == 0


def test_a_lost_task_takes_its_gang_along_and_it_starts_anew(master: Master, tmp_path: Path) -> None:
    with session(master, tmp_path) as opened:
        (job,) = opened.submit(gang(6))
        assert runs(opened, job)
        master.end_task("m1.1.3", "TASK_LOST")
        assert wait(lambda: opened.job(job).attempt == 2 and state(opened, job) == "running")
        assert sorted(master.running_tasks()) == [f"m1.2.{number}" for number in range(6)]
        assert opened.job(job).retries == 1


def test_a_gang_that_is_lost_again_and_again_fails(master: Master, tmp_path: Path) -> None:
    with session(master, tmp_path, retries=1) as opened:
        (job,) = opened.submit(gang(2))
        for attempt in (1, 2):
            assert wait(lambda attempt=attempt: opened.job(job).attempt == attempt and runs(opened, job))
            master.end_task(f"m1.{attempt}.0", "TASK_LOST")
        assert wait(lambda: state(opened, job) == "failed")
        assert "was lost" in opened.job(job).why


def test_an_unreachable_agent_has_time_to_come_back(master: Master, tmp_path: Path) -> None:
    with session(master, tmp_path, unreachable_s=2.0) as opened:
        (job,) = opened.submit(gang(6))
        assert runs(opened, job)
        agent = master.tasks["m1.1.0"].agent
        master.lose_agent(agent)
        time.sleep(0.5)
        assert state(opened, job) == "running"
        master.find_agent(agent)
        time.sleep(2.5)
        assert state(opened, job) == "running"
        assert len(master.launches) == 6


def test_a_task_that_was_given_up_is_killed_when_its_agent_comes_back(master: Master, tmp_path: Path) -> None:
    with session(master, tmp_path, unreachable_s=0.5) as opened:
        (job,) = opened.submit(gang(6))
        assert runs(opened, job)
        agent = master.tasks["m1.1.0"].agent
        master.lose_agent(agent)
        assert wait(lambda: opened.job(job).attempt == 2 and state(opened, job) == "running")
        master.find_agent(agent)
        assert master.until(lambda: all(name.startswith("m1.2.") for name in master.running_tasks()))
        check_whole(master)


def test_a_stale_offer_starts_the_gang_anew(master: Master, tmp_path: Path) -> None:
    with session(master, tmp_path) as opened:
        (blocker, job) = opened.submit(gang(10), gang(12))
        assert runs(opened, blocker)
        assert wait(lambda: opened.framework.agents.offers)

        def forget() -> None:  # the master has taken it back, and the news is on its way
            for offer_id in list(master.offers):
                master._done_with(offer_id)

        master.do(forget)
        opened.do(Cancelled(blocker, ""))
        assert runs(opened, job)
        check_whole(master)


def test_rescinded_offers_are_not_used(master: Master, tmp_path: Path) -> None:
    with session(master, tmp_path) as opened:
        (blocker, job) = opened.submit(gang(10), gang(12))
        assert runs(opened, blocker)
        for _ in range(10):
            master.rescind(4)
            time.sleep(0.05)
        opened.do(Cancelled(blocker, ""))
        assert runs(opened, job)
        check_whole(master)


def test_elastic_groups_are_scaled_together(master: Master, tmp_path: Path) -> None:
    spec = Spec(
        user="root",
        uid=0,
        command="sleep 60",
        groups=(
            Group("worker", tasks=8, least=1, memory_bytes=64 * 2**20),
            Group("server", tasks=4, least=1, memory_bytes=64 * 2**20),
        ),
        elastic=True,
    )
    with session(master, tmp_path) as opened:
        (job,) = opened.submit(spec)
        assert wait(lambda: len(master.running_tasks()) == 12)
        opened.do(Scaled(job, {"worker": 3, "server": 1}))
        assert wait(lambda: len(master.running_tasks()) == 4)
        time.sleep(0.5)
        assert len(master.running_tasks()) == 4
        opened.do(Scaled(job, {"worker": 6, "server": 2}))
        assert wait(lambda: len(master.running_tasks()) == 8)
        check_whole(master)


def test_a_master_that_does_not_lead_names_the_one_that_does(tmp_path: Path) -> None:
    with Master(2).running() as leader, Master(2).running() as other:
        other.leader = leader.address
        with session(other, tmp_path) as opened:
            (job,) = opened.submit(gang(2))
            assert runs(opened, job)
            assert len(leader.launches) == 2
            assert not other.launches


def test_the_next_master_of_the_list_is_tried(tmp_path: Path) -> None:
    with Master(2).running() as master, session(["127.0.0.1:1", master.address], tmp_path) as opened:
        assert wait(lambda: opened.subscribed), opened.trouble


def test_principal_and_secret_are_sent_and_a_wrong_one_is_reported(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    with Master(2, credentials={"asad": "s3cret"}).running() as master:
        with session(master, tmp_path / "a", principal="asad", secret_file=str(secret)) as opened:
            (job,) = opened.submit(gang(2))
            assert runs(opened, job)
        secret.write_text("wrong")
        with session(master, tmp_path / "b", principal="asad", secret_file=str(secret)) as opened:
            assert wait(lambda: "it answers 401; see [mesos] principal" in opened.trouble), opened.trouble
            assert not opened.subscribed
            assert master.subscriptions == 1, "a refused principal never subscribes"


def test_another_principal_may_not_take_a_framework_over(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    secret.chmod(0o600)
    with Master(2, credentials={"asad": "s3cret", "other": "s3cret"}).running() as master:
        with session(master, tmp_path / "a", principal="asad", secret_file=str(secret)) as opened:
            (job,) = opened.submit(gang(2))
            assert runs(opened, job)
        with session(master, tmp_path / "a", principal="other", secret_file=str(secret)) as opened:
            assert wait(lambda: "give [mesos] principal back" in opened.trouble), opened.trouble
        with session(master, tmp_path / "a", principal="asad", secret_file=str(secret)) as opened:
            assert opened.wait(300.0)
        assert len(master.running_tasks()) == 2


def test_a_refused_role_is_reported_and_not_asked_for_again_and_again(master: Master, tmp_path: Path) -> None:
    with session(master, tmp_path) as opened:
        opened.link.settings = read_settings({"master": master.address, "role": "a"})
        object.__setattr__(opened.link.settings, "role", "a/../b")
        assert not opened.wait(3.0)
        assert "invalid role" in opened.trouble
        assert master.subscriptions <= 2


def test_who_waits_for_nothing_declines_for_long_and_asks_again_when_it_does(
    master: Master, tmp_path: Path
) -> None:
    with session(master, tmp_path) as opened:
        assert wait(lambda: len(master.frameworks) == 1)
        (framework,) = master.frameworks.values()
        assert wait(lambda: len(framework.filters) == len(master.agents))
        assert min(framework.filters.values()) - time.monotonic() > IDLE_S - 10.0
        (job,) = opened.submit(gang(4))
        assert runs(opened, job), "its offers came at once"


def test_a_removed_framework_starts_anew_and_queues_its_jobs_again(master: Master, tmp_path: Path) -> None:
    with session(master, tmp_path) as opened:
        (job,) = opened.submit(gang(4))
        assert runs(opened, job)
        old = opened.framework.framework_id
        master.remove_framework(old)
        assert wait(lambda: opened.framework.framework_id not in ("", old))
        assert wait(lambda: opened.job(job).attempt == 2 and state(opened, job) == "running")
        assert len(master.running_tasks()) == 4


@pytest.mark.parametrize("version", ["1.12.0-rc1", "odd", "2"])
def test_odd_versions_of_masters_do_no_harm(version: str, tmp_path: Path) -> None:
    with Master(2, version=version).running() as master, session(master, tmp_path) as opened:
        assert opened.wait(300.0)
        assert opened.link.version == version


@pytest.mark.parametrize(("gpus", "wanted"), [(False, False), (True, True)])
def test_gpus_are_only_asked_for_where_they_are_wanted(gpus: bool, wanted: bool, tmp_path: Path) -> None:
    with Master(2).running() as master, session(master, tmp_path, gpus=gpus) as opened:
        assert opened.wait(300.0)
        (framework,) = master.frameworks.values()
        kinds = {capability["type"] for capability in framework.info["capabilities"]}
        assert ("GPU_RESOURCES" in kinds) == wanted
        assert framework.info["failover_timeout"] == 604_800.0
        assert framework.info["checkpoint"] is True


def test_two_daemons_do_not_share_a_journal(master: Master, tmp_path: Path) -> None:
    with session(master, tmp_path), pytest.raises(JournalError, match="another daemon holds it"):
        Session(read_settings({}), tmp_path, time.time)


def test_what_is_missing_is_named_with_the_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("asad_mesos.driver.missing", lambda: ["pymesos", "addict"])
    with pytest.raises(ConfigError, match=r"pip install --no-deps pymesos==0\.3\.15"):
        Session(read_settings({}), tmp_path, time.time)


def test_a_full_disk_sends_nothing_that_is_not_written(
    master: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session(master, tmp_path) as opened:
        assert opened.wait(300.0)
        write = opened.journal.write

        def full(records: Any) -> None:
            if list(records):
                raise JournalError(f"{opened.journal.path}: cannot be written (No space left on device)")

        opened.journal.write = full  # type: ignore[method-assign]
        with pytest.raises(JournalError, match="No space left"):
            opened.submit(gang(2))
        time.sleep(0.5)
        assert not master.launches
        opened.journal.write = write  # type: ignore[method-assign]
        (job,) = opened.submit(gang(2))
        assert runs(opened, job)
        assert state(opened, "m1") == "cancelled"
