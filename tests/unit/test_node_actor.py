"""The actor's loop over a made-up node: who is a guest, what holds when, and what the daemon learns."""

from __future__ import annotations

import json
import math
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from node_tree import Tree, write

from asad.errors import ClusterError
from asad.model import Json
from asad.node.actor import Actor, Settings, lease_from_json, take_lock
from asad.node.cgroups import Cgroups
from asad.node.guest_roles import MOST_ANNOUNCED_S, PATIENCE_S, UNCONFIRMED_S


class FakeLink:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.connected = True
        self.sent: list[dict[str, Any]] = []

    def send(self, message: dict[str, Json]) -> bool:
        self.sent.append(json.loads(json.dumps(message, allow_nan=False)))
        return True

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.sent if message["kind"] == kind]


class Node:
    """A host (job 1) and a job 2 on the same cores, an actor, and a clock that the test moves."""

    def __init__(self, folder: Path, partition: str = "guest") -> None:
        self.folder, self.now_s, self.wall_s = folder, 100.0, 1e9
        self.tree = Tree(folder / "tree", 2)
        self.host = self.tree.job("1", (100, 101))
        self.guest = self.tree.job("2", (200, 201), partition=partition)
        self.actor = self.successor()

    def successor(self) -> Actor:
        actor = Actor(
            Settings("n1", self.folder / "state"),
            Cgroups(self.tree.root, "n1", self.tree.proc),
            clock=lambda: self.now_s,
            wall=lambda: self.wall_s,
            progress=self.folder / "progress",
        )
        self.link = FakeLink()
        actor.link = self.link
        return actor

    def lease(self, *jobs: tuple[str, bool, float | None], lease_s: float = 15.0) -> None:
        plain: list[Json] = [
            {"job_id": job_id, "guest": guest, "host_id": "1" if guest else "", "quota": quota, "cores": 2}
            for job_id, guest, quota in jobs
        ]
        self.actor.follow({"kind": "lease", "lease_s": lease_s, "jobs": plain}, self.now_s)

    def look(self, host_waits: float, guest_runs: float, times: int = 1) -> None:
        """Half seconds in which the host waited, and the guest ran, for these fractions."""
        for _ in range(times):
            self.now_s += 0.5
            self.waited_s = getattr(self, "waited_s", 0.0) + 0.5 * host_waits
            self.ran_s = getattr(self, "ran_s", 0.0) + 0.5 * guest_runs
            write(self.host / "cpu.pressure", f"some avg10=0.00 total={round(self.waited_s * 1e6)}\n")
            write(self.guest / "cpu.stat", f"usage_usec {round(self.ran_s * 1e6)}\n")
            self.actor.watch_pressure(self.now_s)

    def cap(self, folder: Path) -> str:
        # a real kernel changes it at once, this file is empty for a moment while it is written
        return (folder / "cpu.max").read_text().partition(" ")[0].strip()

    def idle(self, folder: Path) -> bool:
        return (folder / "cpu.idle").read_text().strip() == "1"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.actor.close()


def test_guests_are_idle_from_first_sight_and_hosts_are_not_touched(node: Node) -> None:
    node.actor.start()
    assert node.idle(node.guest)
    assert not node.idle(node.host)
    assert node.actor.guests == {"2"}
    assert (node.cap(node.host), node.cap(node.guest)) == ("max", "max")


def test_a_lease_caps_and_its_end_lifts(node: Node) -> None:
    node.actor.start()
    node.lease(("2", True, 0.25))
    assert node.cap(node.guest) == "50000"
    node.now_s += 14.9
    node.actor.scan(node.now_s)
    node.actor.expire(node.now_s)
    assert node.cap(node.guest) == "50000"
    node.now_s += 0.2
    node.actor.expire(node.now_s)
    assert node.cap(node.guest) == "max"
    assert node.idle(node.guest)  # for life
    assert node.actor.quotas.rows[-1].why == "its lease ran out"


def test_renewal_keeps_and_what_is_not_named_is_lifted(node: Node) -> None:
    node.actor.start()
    node.lease(("2", True, 0.25))
    node.now_s += 10.0
    node.lease(("2", True, 0.25))
    node.now_s += 10.0
    node.actor.expire(node.now_s)
    assert node.cap(node.guest) == "50000"
    node.lease()
    assert node.cap(node.guest) == "max"


def test_a_jump_of_the_wall_clock_changes_nothing(node: Node) -> None:
    node.actor.start()
    node.lease(("2", True, 0.25))
    for jump_s in (1e8, -2e8):
        node.wall_s += jump_s
        node.now_s += 1.0
        node.actor.scan(node.now_s)
        node.actor.expire(node.now_s)
        assert node.cap(node.guest) == "50000"
    node.now_s += 15.0
    node.actor.expire(node.now_s)
    assert node.cap(node.guest) == "max"


def test_a_host_is_capped_only_by_a_lease_of_its_own(node: Node) -> None:
    node.actor.start()
    node.lease(("1", False, 0.5), ("2", True, 0.5))
    assert (node.cap(node.host), node.cap(node.guest)) == ("100000", "100000")
    node.lease(("1", False, None), ("2", True, None))
    assert (node.cap(node.host), node.cap(node.guest)) == ("max", "max")


def test_the_daemon_knows_better_than_the_partition(node: Node) -> None:
    node.actor.start()
    node.lease(("1", True, None), ("2", False, None))
    assert (node.idle(node.host), node.idle(node.guest)) == (True, False)
    node.now_s += 60.0
    node.actor.expire(node.now_s)
    node.actor.scan(node.now_s)
    assert (node.idle(node.host), node.idle(node.guest)) == (True, False)  # its last word holds


def test_an_announced_job_is_a_guest_before_anything_of_it_runs(node: Node) -> None:
    node.actor.start()
    node.actor.follow({"kind": "announce", "id": 9, "job": "3"}, node.now_s)
    assert node.link.of("noted") == [{"kind": "noted", "id": 9}]
    third = node.tree.job("3", (300,))
    node.actor.scan(node.now_s)
    assert node.idle(third)


@pytest.mark.parametrize("daemon", ["lives", "is dead"])
def test_a_withdrawn_offer_that_starts_in_its_own_partition_is_no_guest_for_long(
    node: Node, daemon: str
) -> None:
    node.actor.start()
    node.actor.follow({"kind": "announce", "id": 9, "job": "3", "patience_s": 5.0}, node.now_s)
    third = node.tree.job("3", (300, 301), partition="batch")
    node.actor.scan(node.now_s)
    assert node.idle(third), "its environment cannot free it: it is its user's"
    if daemon == "lives":
        node.lease(("2", True, 0.5))
        assert not node.idle(third), "the daemon names all guests"
    node.now_s += 5.0 + UNCONFIRMED_S + 1.0
    node.actor.scan(node.now_s)
    assert not node.idle(third) and node.actor.roles.announced == {}
    node.actor.scan(node.now_s)
    assert not node.idle(third)


def test_a_guest_cannot_leave_the_idle_class_by_its_environment(node: Node) -> None:
    node.actor.start()
    node.actor.follow({"kind": "announce", "id": 9, "job": "3"}, node.now_s)
    node.lease(("3", True, 0.5))
    third = node.tree.job("3", (300, 301), partition="batch")
    node.actor.scan(node.now_s)
    node.lease(("3", True, 0.5))
    node.now_s += 1000.0  # the daemon is dead, and the lease has run out
    node.actor.expire(node.now_s)
    node.actor.scan(node.now_s)
    assert node.idle(third)


@pytest.mark.parametrize("daemon", ["lives", "is dead"])
def test_an_offer_that_was_leased_and_withdrawn_makes_no_guest_of_its_job(node: Node, daemon: str) -> None:
    """It starts by itself, on the very node, before the lease of the offer is renewed or has run out."""
    node.actor.start()
    node.lease(("3", True, 0.5))
    third = node.tree.job("3", (300, 301), partition="batch")
    for _ in range(3):
        node.now_s += 1.0
        node.actor.scan(node.now_s)
    if daemon == "lives":
        node.lease(("2", True, 0.5))
        assert not node.idle(third)
    node.now_s += PATIENCE_S + UNCONFIRMED_S
    node.actor.expire(node.now_s)
    node.actor.scan(node.now_s)
    assert not node.idle(third) and node.cap(third) == "max"


def test_a_leased_job_that_shows_nothing_of_itself_is_what_the_lease_says(node: Node) -> None:
    node.actor.start()
    node.lease(("3", True, 0.5))
    third = node.tree.job("3", (300, 301), environ={})
    node.actor.scan(node.now_s)
    assert node.idle(third)
    node.lease(("3", False, None))
    assert not node.idle(third)


def test_announcements_survive_a_kill_and_end_with_their_job(node: Node) -> None:
    node.actor.follow({"kind": "announce", "id": 9, "job": "3"}, node.now_s)
    node.actor.lock.close()  # as kill -9 does
    node.actor = node.successor()
    node.actor.start()
    third = node.tree.job("3", (300,))
    node.actor.scan(node.now_s)
    assert node.idle(third)
    shutil.rmtree(third)
    node.actor.scan(node.now_s)
    assert node.actor.roles.announced == {}
    assert json.loads((node.folder / "state/guests.json").read_text()) == {"announced": {}}


def test_an_offer_that_never_came_is_forgotten(node: Node) -> None:
    node.actor.follow({"kind": "announce", "id": 9, "job": "3"}, node.now_s)
    node.now_s += PATIENCE_S + UNCONFIRMED_S + 1.0
    node.actor.scan(node.now_s)
    assert node.actor.roles.announced == {}


@pytest.mark.parametrize("jump_s", [2 * MOST_ANNOUNCED_S, 365 * MOST_ANNOUNCED_S, -365 * MOST_ANNOUNCED_S])
def test_a_jump_of_the_wall_clock_forgets_no_announced_guest(node: Node, jump_s: float) -> None:
    node.actor.follow({"kind": "announce", "id": 9, "job": "3"}, node.now_s)
    node.wall_s += jump_s
    node.actor.scan(node.now_s)
    assert list(node.actor.roles.announced) == ["3"]
    node.actor.lock.close()  # as kill -9 does
    node.now_s = 1.0  # and the host starts anew
    node.actor = node.successor()
    node.actor.start()
    node.actor.scan(node.now_s)
    assert list(node.actor.roles.announced) == ["3"]
    node.now_s += PATIENCE_S + UNCONFIRMED_S + 1.0
    node.actor.scan(node.now_s)
    assert node.actor.roles.announced == {}


def test_nothing_is_noted_that_cannot_be_kept(node: Node) -> None:
    shutil.rmtree(node.folder / "state")
    node.actor.follow({"kind": "announce", "id": 9, "job": "3"}, node.now_s)
    assert node.link.of("noted") == []


def test_a_killed_actor_is_repaired_at_start(node: Node) -> None:
    node.actor.start()
    node.lease(("1", False, 0.5), ("2", True, 0.25))
    node.actor.lock.close()
    node.actor = node.successor()
    assert node.cap(node.guest) == "50000"
    node.actor.start()
    assert (node.cap(node.host), node.cap(node.guest)) == ("max", "max")
    assert node.idle(node.guest)


def test_stopping_lifts(node: Node) -> None:
    node.actor.start()
    node.lease(("1", False, 0.5), ("2", True, 0.25))
    node.actor.close()
    assert (node.cap(node.host), node.cap(node.guest)) == ("max", "max")
    assert node.link.of("audit")[-1]["rows"][-1]["why"] == "the actor stops"


def test_a_second_actor_of_the_node_refuses(node: Node) -> None:
    with pytest.raises(ClusterError, match="another asad-node runs for node n1"):
        node.successor()


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(ClusterError, match=r"state: .*\[node\] state_dir"):
        Node(tmp_path)


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_folder_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    """What root writes there, a link of theirs would lead elsewhere."""
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(mode)
    with pytest.raises(ClusterError, match=r"state: others may write there; .*\[node\] state_dir"):
        take_lock(state, "n1")
    state.chmod(0o755)
    tmp_path.chmod(mode)
    if mode & 0o1000:  # nobody can put another folder into the place of ours
        take_lock(state, "n1").close()
    else:
        with pytest.raises(ClusterError, match="others may write there"):
            take_lock(state, "n1")


# ------------------------------------------------------------------------------------------------------- pressure


def test_pressure_is_answered_within_a_second_and_reported(node: Node) -> None:
    node.actor.start()
    node.lease(("1", False, None), ("2", True, 0.5))
    node.actor.sample(node.now_s)
    node.look(0.0, 0.5, times=4)
    assert node.cap(node.guest) == "100000"
    node.look(0.9, 0.5, times=2)
    assert node.cap(node.guest) == "1000"
    assert node.actor.quotas.rows[-1].why == "its host, job 1, waits for CPU"
    report = node.link.of("report")[-1]
    assert report["jobs"]["2"]["quota"] == pytest.approx(0.005)
    node.look(0.1, 0.0, times=3)  # it waits no longer: it was for the guest
    assert node.cap(node.guest) == "1000"
    assert node.link.of("report")[-1]["jobs"]["1"]["pressure"] > 0.4


def test_a_host_that_waits_on_without_its_guest_waits_for_itself(node: Node) -> None:
    node.actor.start()
    node.lease(("1", False, None), ("2", True, 0.5))
    node.actor.sample(node.now_s)
    node.look(0.0, 0.5, times=4)
    node.look(0.6, 0.5, times=2)
    assert node.cap(node.guest) == "1000"
    node.look(0.6, 0.0, times=3)
    assert node.cap(node.guest) == "100000"
    assert node.link.of("report")[-1]["jobs"]["1"]["pressure"] in (0.0, None)
    node.look(0.6, 0.5, times=6)  # and that is known from now on
    assert node.cap(node.guest) == "100000"
    node.look(1.0, 0.5, times=2)  # more than that is another matter
    assert node.cap(node.guest) == "1000"


def test_it_is_reported_until_the_daemon_has_had_a_cycle(node: Node) -> None:
    node.actor.start()
    node.lease(("2", True, 0.5))
    node.look(0.9, 0.5, times=3)
    node.look(0.0, 0.0, times=10)
    node.actor.sample(node.now_s)
    assert node.link.of("report")[-1]["jobs"]["1"]["pressure"] > 0.4
    node.lease(("2", True, 0.5))  # renewed before the daemon has seen it
    assert node.cap(node.guest) == "1000"
    node.lease(("2", True, 0.5))  # it has seen it, and decided the same
    assert node.cap(node.guest) == "100000"
    node.look(0.0, 0.0)
    node.actor.sample(node.now_s)
    assert node.link.of("report")[-1]["jobs"]["1"]["pressure"] < 0.2


def test_another_decision_holds_at_once(node: Node) -> None:
    node.actor.start()
    node.lease(("2", True, 0.5))
    node.look(0.9, 0.5, times=3)
    node.lease(("2", True, 0.1))
    assert node.cap(node.guest) == "20000"


def test_without_a_daemon_a_squeeze_ends_by_itself(node: Node) -> None:
    node.actor.start()
    node.look(0.9, 0.5, times=3)
    assert node.cap(node.guest) == "1000"
    node.now_s += 20.0
    node.actor.expire(node.now_s)
    assert node.cap(node.guest) == "max"


def test_a_host_that_waits_for_others_or_for_itself_costs_the_guest_nothing(node: Node) -> None:
    node.actor.start()
    node.look(0.9, 0.01, times=6)  # the guest hardly ran
    assert node.cap(node.guest) == "max"
    node.actor.watch.alone["1"] = 0.85  # it waited as much before the guest came
    node.look(0.9, 0.5, times=6)
    assert node.cap(node.guest) == "max"


def test_a_host_with_a_cap_waits_because_it_was_decided_so(node: Node) -> None:
    node.actor.start()
    node.lease(("1", False, 0.5), ("2", True, 0.5))
    node.look(0.9, 0.5, times=6)
    assert node.cap(node.guest) == "100000"


def test_guests_on_other_cores_stay(node: Node) -> None:
    far = node.tree.job("3", (300, 301), partition="guest", cores="2-3")
    write(far / "cpu.stat", "usage_usec 900000000\n")
    node.actor.start()
    node.look(0.9, 0.5, times=3)
    assert node.cap(node.guest) == "1000"
    assert node.cap(far) == "max"


# ------------------------------------------------------------------------------------------------------- messages


def test_a_report_has_every_field_and_no_nan(node: Node) -> None:
    node.actor.start()
    node.actor.sample(node.now_s)
    report = node.link.of("report")[0]
    assert report["node"] == "n1"
    assert report["jobs"]["2"] | {"since_s": 0} == {
        "job_id": "2", "guest": True, "cores": 2, "core_ids": [0, 1], "cpu_fraction": None, "cpu_peak": None,
        "cpu_time_s": 0.0, "memory_bytes": 1048576.0, "throttled": None, "pressure": None, "read_bytes": 4096.0,
        "written_bytes": 8192.0, "threads": 1, "parallel": False, "progress": None, "since_s": 0, "quota": None,
        "idle_class": True, "steps_done": 0, "delayed": None,
    }  # fmt: skip


def test_nothing_is_reported_without_a_connection_and_audits_wait(node: Node) -> None:
    node.link.connected = False
    node.actor.start()
    node.actor.sample(node.now_s)
    assert node.link.sent == []
    node.actor.close()
    assert node.link.of("audit")


@pytest.mark.parametrize(
    "message",
    [
        {}, {"kind": "lease"}, {"kind": "lease", "lease_s": 15, "jobs": 3},
        {"kind": "lease", "lease_s": None, "jobs": []},
        {"kind": "lease", "lease_s": 15, "jobs": [{"job_id": "../2", "guest": True, "quota": 0.5, "cores": 2}]},
        {"kind": "lease", "lease_s": 15, "jobs": [{"job_id": "2", "guest": True, "quota": 1.5, "cores": 2}]},
        {"kind": "lease", "lease_s": 15, "jobs": [{"job_id": "2", "guest": True, "quota": 0.5, "cores": 0}]},
        {"kind": "announce", "id": "x", "job": "3"}, {"kind": "announce", "id": 1, "job": "3\n"}, {"kind": "later"},
    ],
)  # fmt: skip
def test_messages_that_make_no_sense_change_nothing(node: Node, message: dict[str, Json]) -> None:
    node.actor.start()
    node.lease(("2", True, 0.25))
    node.actor.follow(message, node.now_s)
    assert node.cap(node.guest) == "50000"
    assert node.actor.roles.announced == {}


def test_a_memory_limit_is_a_lease_too(node: Node) -> None:
    def limit() -> str:
        return (node.guest / "memory.high").read_text().strip()

    def lease(high_bytes: float | None) -> None:
        plain: Json = {
            "job_id": "2", "guest": True, "host_id": "1", "quota": 0.25, "cores": 2, "memory_high_bytes": high_bytes,
        }  # fmt: skip
        node.actor.follow({"kind": "lease", "lease_s": 15.0, "jobs": [plain]}, node.now_s)

    node.actor.start()
    lease(64.0 * 2**20)
    assert limit() == str(64 * 2**20)
    write(node.guest / "memory.current", f"{80 * 2**20}\n")
    node.actor.scan(node.now_s)
    assert int(limit()) >= 88 * 2**20, "it grows, and is not held below what it uses"
    lease(None)
    assert limit() == "max"
    lease(128.0 * 2**20)
    lease(-1.0)  # makes no sense: let be
    assert limit() == str(128 * 2**20)
    node.now_s += 15.1
    node.actor.expire(node.now_s)
    assert limit() == "max"
    assert node.cap(node.guest) == "max"
    lease(128.0 * 2**20)
    node.actor.close()
    assert limit() == "max"


def test_a_lease_without_quota_is_nan() -> None:
    lease = lease_from_json({"job_id": "2", "guest": True, "host_id": "1", "quota": None, "cores": 2})
    assert math.isnan(lease.quota)
    assert math.isnan(lease.memory_high_bytes)


# ------------------------------------------------------------------------------------------------------- the loop


def until(condition: Callable[[], object], timeout_s: float = 300.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


def test_the_loop_lifts_a_lease_in_time_though_every_other_duty_fails(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node.actor, "clock", time.monotonic)

    def broken(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(node.actor, "sample", broken)
    monkeypatch.setattr(node.actor, "watch_pressure", broken)
    loop = threading.Thread(target=node.actor.run)
    loop.start()
    try:
        plain: dict[str, Json] = {"job_id": "2", "guest": True, "host_id": "1", "quota": 0.25, "cores": 2}

        def held() -> (
            bool
        ):  # renewed until it is seen: on a busy machine one lease is over before anybody looks
            node.actor.hear({"kind": "lease", "lease_s": 1.0, "jobs": [plain]})
            return node.cap(node.guest) == "50000"

        until(held)
        until(lambda: node.cap(node.guest) == "max")
    finally:
        node.actor.stop()
        loop.join(300)
    assert not loop.is_alive()
    assert "the actor goes on" in caplog.text


def test_the_loop_keeps_systemd_informed(node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(300)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setattr(node.actor, "clock", time.monotonic)
        loop = threading.Thread(target=node.actor.run)
        loop.start()
        listed = [systemd.recv(100), systemd.recv(100)]
        node.actor.stop()
        loop.join(300)
        while listed[-1] != b"STOPPING=1":
            listed.append(systemd.recv(100))
    assert listed[:2] == [b"READY=1", b"WATCHDOG=1"]
