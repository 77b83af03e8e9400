"""`asactl doctor` on Mesos: what it says of masters that take us, refuse us, send us on, or are none, and of agents."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from asad_mesos import doctor
from asad_mesos.doctor import examine, examine_queue, partition_finding
from click.testing import CliRunner
from master import Master

from asad.cli.asactl import asactl
from asad.cluster.findings import Finding, Site

ISOLATION = "cgroups/cpu,cgroups/mem"


def states(found: Iterator[Finding]) -> dict[str, str]:
    return {one.check: one.state for one in found}


class Agents:
    """One HTTP server that is a master with agents, and its agents."""

    def __init__(self, flags: Mapping[str, Any], agents: int = 2, gpus: float = 0.0) -> None:
        self.flags, self.count, self.gpus = flags, agents, gpus
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                at = f"127.0.0.1:{outer.port}"
                pages: dict[str, Any] = {
                    "/version": {"version": "1.12.0"},
                    "/slaves": {
                        "slaves": [
                            {
                                "hostname": f"node{number}\x1b",
                                "pid": f"slave(1)@{at}",
                                "active": True,
                                "resources": {"cpus": 4.0, "gpus": outer.gpus},
                            }
                            for number in range(outer.count)
                        ]
                    },
                    "/flags": {"flags": outer.flags},
                }
                self.send(json.dumps(pages.get(self.path, {})))

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                event = json.dumps({"type": "SUBSCRIBED", "subscribed": {"framework_id": {"value": "f"}}})
                self.send(f"{len(event)}\n{event}")

            def send(self, text: str) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]

    def __enter__(self) -> dict[str, Any]:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return {"master": f"127.0.0.1:{self.port}"}

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_a_master_that_takes_us(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("opensesame\n")
    secret.chmod(0o600)
    master = Master(agents=1, credentials={"asad": "opensesame"})
    with master.running():
        table = {"master": master.address, "principal": "asad", "secret_file": str(secret), "role": "hpc"}
        found = states(examine(Site(table)))
        assert (found["mesos"], found["framework"]) == ("ok", "ok")
        assert found["agents"] == "warn", "the double lists none"
        secret.write_text("wrong")
        found = states(examine(Site(table)))
        assert found["framework"] == "fail"
        assert master.until(lambda: all(not one.active for one in master.frameworks.values()))
        assert not master.offers, "the doctor holds no offer"


def test_a_role_that_is_refused_is_reported_in_the_masters_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are those of a real master; asad's own check would not let such a role through."""
    monkeypatch.setattr(doctor, "read_settings", lambda table: doctor.Settings(**table))
    with (master := Master(agents=1)).running():
        found = {one.check: one for one in examine(Site({"master": (master.address,), "role": "a/../b"}))}
    assert found["framework"].state == "fail"
    assert "cannot include '..' as a component" in found["framework"].why


def test_a_master_that_sends_us_to_the_leader() -> None:
    leader = Master(agents=1)
    follower = Master(agents=1)
    with leader.running(), follower.running():
        follower.leader = leader.address
        assert states(examine(Site({"master": follower.address})))["framework"] == "ok"


def test_no_master_and_none_that_is_one() -> None:
    found = list(examine(Site({"master": "127.0.0.1:9"})))
    assert (found[-1].check, found[-1].state) == ("mesos", "fail")
    assert "127.0.0.1:9" in found[-1].why
    assert "[mesos] master" in found[-1].remedy
    assert states(examine(Site({"master": "zk://127.0.0.1:9/mesos"})))["mesos"] == "fail"
    assert states(examine(Site({"mastre": "x"})))["mesos"] == "fail"
    with (master := Master(agents=1, version="dev\n")).running():
        assert states(examine(Site({"master": master.address})))["mesos"] == "warn"


def test_agents_with_and_without_what_guests_and_quotas_need() -> None:
    with Agents(
        {"isolation": ISOLATION, "resource_estimator": "org_apache_mesos_FixedResourceEstimator"}
    ) as table:
        found = states(examine(Site(table)))
        assert (found["agents"], found["isolation"], found["revocable"]) == ("ok", "ok", "ok")
    with Agents({"isolation": "posix/cpu"}) as table:
        findings = {one.check: one for one in examine(Site(table))}
        assert (findings["isolation"].state, findings["revocable"].state) == ("warn", "warn")
        assert "node0?" in findings["isolation"].why, "no control characters of others in a terminal"
        assert "--isolation=cgroups/cpu" in findings["isolation"].remedy
        assert "revocable" not in states(examine(Site({**table, "revocable": False})))
    with Agents({}, agents=0) as table:
        assert states(examine(Site(table)))["agents"] == "fail"


@pytest.mark.parametrize(
    ("isolation", "gpus", "seen"),
    [
        (f"{ISOLATION},gpu/nvidia", True, ("ok", "4 GPUs, given whole")),
        (ISOLATION, True, ("warn", "nothing keeps tasks to the GPUs")),
        (f"{ISOLATION},gpu/nvidia", False, ("warn", "offered to nobody who does not ask")),
    ],
)
def test_gpus_that_are_not_asked_for_or_not_kept_apart_are_reported(
    isolation: str, gpus: bool, seen: tuple[str, str]
) -> None:
    with Agents({"isolation": isolation}, gpus=2.0) as table:
        found = {one.check: one for one in examine(Site({**table, "gpus": gpus}))}["gpus"]
        assert found.state == seen[0]
        assert seen[1] in found.why


def test_agents_that_do_not_switch_users_are_reported_where_executors_are_root_s() -> None:
    with Agents({"isolation": ISOLATION, "switch_user": "false"}) as table:
        assert states(examine(Site({**table, "executor": "x"}))).get("executor") is None
        found = {one.check: one for one in examine(Site({**table, "executor": "x", "executor_user": "root"}))}
        assert "do not switch users: " in found["executor"].why


def test_what_is_not_installed_is_reported_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "missing", lambda: ["pymesos", "addict"])
    found = next(examine(Site({})))
    assert (found.check, found.state) == ("pymesos", "fail")
    assert "pip install --no-deps pymesos==0.3.15" in found.remedy


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("PartitionName=mesos Nodes=n[1-2] State=DOWN", "ok"),
        ("PartitionName=mesos Nodes=(null) State=UP", "ok"),
        ("PartitionName=mesos Nodes=n[1-2] State=UP", "warn"),
        ("PartitionName=mesos Nodes=n[1-2] State=INACTIVE", "fail"),
    ],
)
def test_the_partition_of_the_queue(text: str, state: str) -> None:
    assert partition_finding("mesos", text).state == state


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "asad.toml"
    with Agents({"isolation": ISOLATION}) as table:
        config.write_text(
            f'[daemon]\ncluster = "mesos"\nstate_dir = "{tmp_path}"\nsocket = "{tmp_path}/s"\n'
            f'[mesos]\nmaster = "{table["master"]}"\n'
        )
        answer = json.loads(CliRunner().invoke(asactl, ["doctor", "--config", str(config), "--json"]).output)
    found = {one["check"]: one["state"] for one in answer["findings"]}
    assert found["mesos"] == found["framework"] == found["isolation"] == "ok"
    assert "slurm" not in found, "there is none"
    assert {"store", "daemon", "cgroup"} <= {name.split()[0] for name in found}, found


def test_both_are_looked_at_for_slurm_and_mesos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with Agents({"isolation": ISOLATION}) as table:
        found = {one.check: one for one in examine_queue(Site({**table, "queue": {"partition": "m"}}))}
    assert found["framework"].state == "ok"
    assert found["queue"].state == "fail"
    assert "PartitionName=m" in found["queue"].remedy
