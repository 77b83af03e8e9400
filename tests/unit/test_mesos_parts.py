"""Parts of the Mesos plugin by themselves: settings, jobs, offers, the journal, and the port's corners."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asad_mesos.agent_offers import NAMES, Agents, Offer, draw, fit, need, read_offer
from asad_mesos.driver_child import Calls
from asad_mesos.events import Offered, Submitted, Subscribed, Ticked, Updated
from asad_mesos.framework import Framework, FrameworkFault
from asad_mesos.framework_journal import Journal, JournalError
from asad_mesos.job_spec import Group, Spec, spec_from_json
from asad_mesos.master_calls import key
from asad_mesos.mesos_cluster import MesosCluster
from asad_mesos.settings import Settings, read_settings
from mesos_on_paper import PaperMesos, WillingNodes

from asad.daemon.gains import Gains
from asad.decisions import Cause, CoAllocate, Decision, Defer, Evict, ExtendLimit, SetQuota, SetShare
from asad.errors import ConfigError, UsageError
from asad.place.free_capacity import FreeCapacity
from asad.port import JobSample, Lease, NodeReport

CAUSE = Cause("test", "because")


# ------------------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"mastr": "a"}, "did you mean 'master'"),
        ({"master": []}, "no address"),
        ({"master": "a:99999"}, "no address"),
        ({"master": ["zk://a:2181/mesos", "b"]}, 'one "zk://'),
        ({"master": "zk://a:2181"}, 'one "zk://'),
        ({"role": "a/../b"}, "no role"),
        ({"role": "-a"}, "no role"),
        ({"principal": "x"}, "go together"),
        ({"principal": "a:b", "secret_file": "/x"}, "colon"),
        ({"hold_s": 0}, "no number"),
        ({"failover_timeout_s": math.nan}, "no number"),
        ({"gpus": 1}, "no truth value"),
        ({"share_users": "account"}, "choose from"),
        ({"user": "a\nb"}, "no text"),
    ],
)
def test_wrong_settings_are_refused_by_name(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as raised:
        read_settings(given)
    assert str(raised.value).startswith("[mesos]")


def test_masters_are_one_or_several() -> None:
    assert read_settings({"master": "a"}).master == ("a:5050",)
    assert read_settings({"master": "a:1,b"}).master == ("a:1", "b:5050")
    assert read_settings({"master": ["[::1]:5050", "b"]}).master == ("[::1]:5050", "b:5050")
    assert read_settings({"master": "zk://a:1,b:1/mesos"}).master == ("zk://a:1,b:1/mesos",)


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("x")
    path.chmod(0o644)
    settings = read_settings({"principal": "p", "secret_file": str(path)})
    with pytest.raises(ConfigError, match="chmod 600"):
        settings.secret()
    path.chmod(0o600)
    assert settings.secret() == "x"
    path.write_text("")
    with pytest.raises(ConfigError, match="empty"):
        settings.secret()
    path.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        settings.secret()


# ---------------------------------------------------------------------------------------------------------------- jobs


def test_a_job_comes_back_from_json_as_it_was() -> None:
    spec = Spec(
        user="ann",
        uid=1000,
        command="a b",
        groups=(Group("w", 4, 2, 1.5, 2.0**30, 1), Group("s", command="serve")),
        elastic=True,
        time_limit_s=60.0,
        environment={"A": "b"},
        attributes={"rack": "1"},
    )
    assert spec_from_json(spec.to_json()) == spec
    endless = replace(spec, time_limit_s=math.inf)
    assert endless.to_json()["time_limit_s"] is None
    assert spec_from_json(endless.to_json()) == endless


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"comand": "x"}, "did you mean 'command'"),
        ({"command": ""}, "nothing to run"),
        ({"command": "a\0b"}, "zero bytes"),
        ({"command": "x", "user": "../root"}, "not a user's name"),
        ({"command": "x", "uid": -1}, "uid"),
        ({"command": "x", "groups": []}, "1 to 8 groups"),
        ({"command": "x", "groups": [{"tasks": 0}]}, "from 1 to"),
        ({"command": "x", "groups": [{"tasks": 2, "least": 3}]}, "no more than there are"),
        ({"command": "x", "groups": [{"cpus": math.inf}]}, "cpus"),
        ({"command": "x", "groups": [{"name": "a b"}]}, "letters"),
        ({"command": "x", "groups": [{}, {}]}, "two are called"),
        ({"command": "x", "groups": [{"tasks": 90_000}, {"name": "b", "tasks": 90_000}]}, "at most"),
        ({"command": "x", "environment": {"A B": "c"}}, "no name"),
        ({"command": "x", "environment": {"A": 1}}, "no text"),
        ({"command": "x" * (1 << 20) + "x"}, "longer"),
        ({"command": "x", "directory": "here"}, "absolute"),
        ({"command": "x", "name": "a\x1b[2J"}, "control characters"),
        ({"command": "x", "elastic": "yes"}, "true nor false"),
        ({"command": "x", "time_limit_s": 0}, "from 1"),
    ],
)
def test_hostile_and_wrong_jobs_are_refused_with_the_field(given: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        spec_from_json({"user": "ann", "uid": 1, **given})


def test_whoever_takes_the_request_in_says_whose_job_it_is() -> None:
    spec = spec_from_json({"command": "x", "user": "root", "uid": 0}, user="ann", uid=1000)
    assert (spec.user, spec.uid) == ("ann", 1000)


# -------------------------------------------------------------------------------------------------------------- offers


def scalar(name: str, value: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "SCALAR", "scalar": {"value": value}, "role": "*", **more}


def offer(agent: str, *resources: dict[str, Any], offer_id: str = "", **more: Any) -> Any:
    return read_offer(
        {
            "id": {"value": offer_id or f"O-{agent}"},
            "agent_id": {"value": agent},
            "hostname": f"host-{agent}",
            "resources": list(resources),
            **more,
        }
    )


def amounts(found: Offer, *, revocable: bool) -> list[int]:
    return [
        sum(piece.amount for piece in found.pieces if (piece.name, piece.revocable) == (name, revocable))
        for name in range(len(NAMES))
    ]


def test_what_is_somebodys_in_an_offer_is_left_alone() -> None:
    found = offer(
        "S0",
        scalar("cpus", 4.0),
        scalar("cpus", 2.0, revocable={}),
        scalar("mem", 100.0, shared={}),
        scalar("mem", 400.0, revocable={}),
        scalar("mem", 200.0),
        scalar("disk", 50.0, disk={"persistence": {"id": "x"}}),
        scalar("disk", 70.0, provider_id={"value": "p"}),
        scalar("cpus", 8.0, reservations=[{"type": "DYNAMIC", "role": "a", "labels": {"labels": []}}]),
        {"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 1, "end": 9}]}},
    )
    assert amounts(found, revocable=False) == [4000, 200_000, 0, 0]
    assert amounts(found, revocable=True) == [2000, 0, 0, 0]


def test_resources_are_drawn_with_the_role_they_came_with() -> None:
    found = offer("S0", scalar("cpus", 1.0), scalar("cpus", 3.0) | {"role": "hpc"}, scalar("mem", 10.0))
    drawn = draw(list(found.pieces), [2500, 4000], False)
    assert [(part["name"], part["role"], part["scalar"]["value"]) for part in drawn] == [
        ("cpus", "*", 1.0),
        ("cpus", "hpc", 1.5),
        ("mem", "*", 4.0),
    ]
    with pytest.raises(ValueError, match="of mem are missing"):
        draw(list(found.pieces), [0, 11_000], False)


def test_first_fit_fills_agents_in_order_and_charges_each_executor_once() -> None:
    free = np.array([[4000, 4000, 4000], [3100, 1000, 9000], [0, 0, 0], [0, 0, 0]], dtype=np.int64)
    wanted = need(Group(tasks=9, cpus=1.0, memory_bytes=2.0**20))
    charged = np.zeros(3, bool)
    counts = fit(free, wanted, 9, 100, charged, None)
    assert counts.tolist() == [3, 0, 4]  # the second agent's MiB goes to the executor
    assert free[1].tolist() == [0, 1000, 4900]
    assert charged.tolist() == [True, False, True]


def test_agents_of_one_host_are_distinguished_and_totals_fall_again() -> None:
    agents = Agents()
    agents.add(offer("S0", scalar("cpus", 4.0)), 0.0)
    agents.used[0, 0] = 2000  # the news of a task's end comes after the offer of what it leaves
    agents.see(0)
    assert agents.total[0, 0] == 6000
    agents.used[0, 0] = 0
    agents.look_anew()
    agents.look_anew()
    assert agents.total[0, 0] == 4000
    agents.lose("S0")
    assert agents.total[0, 0] == 0


# ------------------------------------------------------------------------------------------------------------- journal


@pytest.mark.parametrize("cut", [b'{"what": "jo', b"\0\0\0\n", b"\n\n[]\n"])
def test_a_line_that_was_cut_short_was_never_acted_upon(tmp_path: Path, cut: bytes) -> None:
    journal = Journal(tmp_path)
    journal.write([{"what": "framework", "id": "f"}])
    journal.close()
    with (tmp_path / "mesos.journal").open("ab") as file:
        file.write(cut)
    journal = Journal(tmp_path)
    assert list(journal.load()) == [{"what": "framework", "id": "f"}]
    journal.write([{"what": "framework", "id": "g"}])
    journal.write([{"what": "framework", "id": "h"}])
    journal.close()
    journal = Journal(tmp_path)
    assert [record["id"] for record in journal.load()] == ["f", "g", "h"], (
        "nor does it stop the daemon after next"
    )
    journal.close()


def test_a_write_that_failed_and_could_not_be_cut_off_is_cut_off_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    journal.write([{"what": "framework", "id": "f"}])

    def broken(*_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        patch.setattr(os, "ftruncate", broken)
        with pytest.raises(JournalError, match="Input/output"):
            journal.write([{"what": "framework", "id": "g"}])
    journal.write([{"what": "framework", "id": "h"}])
    assert [record["id"] for record in journal.load()] == ["f", "h"]
    journal.close()


def test_a_broken_journal_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "mesos.journal").write_text('{"what": "framework"}\nnonsense\n{"what": "framework"}\n')
    journal = Journal(tmp_path)
    with pytest.raises(JournalError, match=r"mesos\.journal:2: "):
        list(journal.load())
    journal.close()


def test_the_journal_is_private(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write([{"what": "framework", "id": "f"}])
    assert (tmp_path / "mesos.journal").stat().st_mode & 0o077 == 0
    journal.rewrite([{"what": "framework", "id": "g"}])
    assert (tmp_path / "mesos.journal").stat().st_mode & 0o077 == 0
    assert list(journal.load()) == [{"what": "framework", "id": "g"}]
    journal.close()


# ----------------------------------------------------------------------------------------------------------- framework


def test_a_fault_carries_the_story(monkeypatch: pytest.MonkeyPatch) -> None:
    framework = Framework(Settings())
    framework.handle(Subscribed("f"), now_s=1.0)
    monkeypatch.setattr(framework.agents, "add", lambda *_: 1 / 0)
    with pytest.raises(FrameworkFault, match=r"(?s)ZeroDivisionError.*Subscribed.*Offered 1"):
        framework.handle(Offered([offer("S0", scalar("cpus", 1.0))]), now_s=2.0)


def test_records_come_before_the_calls_that_need_them_and_updates_are_acknowledged_after_them() -> None:
    framework = Framework(Settings(executor_memory_mb=1.0))
    framework.handle(Subscribed("f"), now_s=0.0)
    group = Group(tasks=2, memory_bytes=8.0 * 2**20)
    framework.handle(Submitted(Spec(user="u", uid=1, command="x", groups=(group,))), now_s=0.0)
    records, calls = framework.handle(
        Offered([offer("S0", scalar("cpus", 4.0), scalar("mem", 100.0))]), now_s=1.0
    )
    assert [record["what"] for record in records] == ["launch"]
    assert [call["type"] for call in calls] == ["ACCEPT"]
    status = {
        "task_id": {"value": "m1.1.0"},
        "agent_id": {"value": "S0"},
        "state": "TASK_FAILED",
        "source": "SOURCE_EXECUTOR",
        "uuid": "eA==",
        "labels": {"labels": [{"key": "exit", "value": "3"}]},
    }
    records, calls = framework.handle(Updated(status), now_s=2.0)
    assert [record["what"] for record in records] == ["end", "stopping"]
    assert records[0]["exit"] == 3
    assert [call["type"] for call in calls] == ["KILL", "ACKNOWLEDGE"]


def test_a_master_that_does_not_know_a_task_is_not_asked_for_it() -> None:
    framework = Framework(Settings(executor_memory_mb=1.0))
    spec = Spec(user="u", uid=1, command="c", groups=(Group(tasks=2, memory_bytes=8.0 * 2**20),))
    framework.handle(Subscribed("f"), Submitted(spec), now_s=0.0)
    found = offer("S0", scalar("cpus", 4.0), scalar("mem", 100.0))
    calls = [
        *framework.handle(Offered([found]), now_s=0.1).calls,
        *framework.handle(Ticked(), now_s=0.2).calls,
    ]
    assert [call["type"] for call in calls].count("ACCEPT") == 1

    def asked(behind: bool, now_s: float) -> list[str]:
        calls = framework.handle(Ticked(behind), now_s=now_s).calls
        return [
            task["task_id"]["value"] for call in calls for task in call.get("reconcile", {}).get("tasks", [])
        ]

    assert asked(True, 60.0) == []
    assert asked(False, 61.0) == ["m1.1.0", "m1.1.1"]
    assert asked(False, 62.0) == [], "less and less often"


def test_offers_wanted_by_attribute_and_agents_to_be_maintained(tmp_path: Path) -> None:
    framework = Framework(Settings(executor_memory_mb=1.0))
    framework.handle(Subscribed("f"), now_s=0.0)
    group = Group(tasks=1, memory_bytes=8.0 * 2**20)
    spec = Spec(user="u", uid=1, command="x", groups=(group,), attributes={"rack": "2"})
    framework.handle(Submitted(spec), now_s=0.0)
    resources = (scalar("cpus", 4.0), scalar("mem", 100.0))
    racks = [
        offer(
            f"S{rack}",
            *resources,
            attributes=[{"name": "rack", "type": "TEXT", "text": {"value": str(rack)}}],
        )
        for rack in range(4)
    ]
    _, calls = framework.handle(Offered(racks), now_s=1.0)
    (accepted,) = [call["accept"] for call in calls if call["type"] == "ACCEPT"]
    assert accepted["offer_ids"] == [{"value": "O-S2"}]
    (declined,) = [call["decline"] for call in calls if call["type"] == "DECLINE"]
    assert len(declined["offer_ids"]) == 3


# ------------------------------------------------------------------------------------------------------------ the port


class Watching(WillingNodes):
    """Node actors that report what a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.latest: dict[str, NodeReport] = {}

    def reports(self) -> dict[str, NodeReport]:
        return self.latest


def sample(job: str, **more: Any) -> JobSample:
    facts: dict[str, Any] = {
        "job_id": job,
        "guest": False,
        "cores": 4,
        "core_ids": (0, 1, 2, 3),
        "cpu_fraction": 0.5,
        "cpu_peak": 0.6,
        "cpu_time_s": 10.0,
        "memory_bytes": 1e6,
        "throttled": math.nan,
        "pressure": 0.0,
        "read_bytes": 0.0,
        "written_bytes": 0.0,
        "threads": 1,
        "parallel": True,
        "progress": math.nan,
        "since_s": 0.0,
        "quota": math.nan,
        "idle_class": False,
    }
    return JobSample(**(facts | more))


def job(tasks: int, **more: Any) -> Spec:
    facts: dict[str, Any] = {
        "user": "ann",
        "uid": 1000,
        "command": "x",
        "groups": (Group(tasks=tasks, memory_bytes=8.0 * 2**20),),
        "time_limit_s": 3600.0,
    }
    return Spec(**(facts | more))


def small(
    jobs: list[tuple[float, Spec, float]], revocable: float = 4.0, gpus: float = 0.0
) -> tuple[MesosCluster, PaperMesos, Watching]:
    paper, nodes = PaperMesos(2, 4, revocable, jobs), Watching()
    paper.gpus = gpus
    cluster = MesosCluster(
        Settings(), nodes=nodes, state_dir=Path("/nonexistent"), clock=paper.now_s, engine=paper
    )
    paper.settle()
    return cluster, paper, nodes


def test_quotas_of_guest_and_host_are_leased_on_the_host_s_node() -> None:
    cluster, _, nodes = small([(0.0, job(4), 600.0), (0.0, job(4), 600.0), (0.0, job(2), 600.0)])
    snapshot = cluster.snapshot()
    host = int(snapshot.running[0])
    (node,) = set(np.flatnonzero(snapshot.core_owner == host) // 4)
    (guest,) = snapshot.queue.tolist()
    (outcome,) = cluster.apply([CoAllocate(CAUSE, guest, (int(node),), host=host, share=0.25, capped=True)])
    assert outcome.done, outcome.reason
    cluster.snapshot()
    (leases,) = nodes.granted.values()
    assert list(nodes.granted) == [f"n{node}"]
    by_job = {lease.job_id: lease for lease in leases}
    theirs, ours = by_job[key("m3", 1000)], by_job[key(str(snapshot.jobs.job_id[host]), 1000)]
    assert (theirs.guest, theirs.host_id, theirs.cores, theirs.quota) == (True, ours.job_id, 2, 0.5)
    assert (ours.guest, ours.quota, ours.cores) == (False, 0.75, 4)
    assert nodes.announced == [((f"n{node}",), "m3.1000")]
    cluster.release()
    assert nodes.granted == {}


def pooled(cluster: MesosCluster, demand: float = 1.0) -> tuple[int, int, int, str]:
    """Have the first that waits draw from the pool of a node that a job holds; guest, host, node and why not."""
    snapshot = cluster.snapshot()
    host, guest = int(snapshot.running[0]), int(snapshot.queue[0])
    node = int(np.flatnonzero(snapshot.core_owner == host)[0]) // 4
    (outcome,) = cluster.apply([CoAllocate(CAUSE, guest, (node,), (demand,))])
    assert outcome.done == (not outcome.reason)
    return guest, host, node, outcome.reason


@pytest.mark.parametrize("revocable", [4.0, 0.0])
def test_a_guest_that_draws_from_a_pool_has_a_quota_and_no_host(revocable: float) -> None:
    jobs = [(0.0, job(4), 600.0), (0.0, job(4), 600.0), (0.0, job(2), 600.0)]
    cluster, paper, nodes = small(jobs, revocable)
    guest, host, node, why = pooled(cluster)
    assert why == ""
    snapshot = cluster.snapshot()
    assert snapshot.guests.tolist() == [guest]
    assert snapshot.jobs.demand[guest] == 0.5 and snapshot.jobs.host[guest] == -1
    assert math.isnan(snapshot.jobs.share[guest]) and np.isnan(snapshot.jobs.demand[snapshot.running]).all()

    def lease() -> Lease:
        (found,) = [lease for lease in nodes.granted[f"n{node}"] if lease.guest]
        return found

    assert lease().host_id == key(str(snapshot.jobs.job_id[host]), 1000)
    assert (lease().quota, lease().cores) == (0.5, 2)
    decisions: list[Decision] = [
        SetQuota(CAUSE, guest, (node,), (1.5,)),
        SetQuota(CAUSE, guest, (1 - node,), (1.5,)),
        SetQuota(CAUSE, guest, (node,), (math.nan,)),
        SetQuota(CAUSE, host, (node,), (1.5,)),
        SetShare(CAUSE, guest, 0.3),
        SetShare(CAUSE, share=0.3, host=host),
        SetShare(CAUSE, share=0.3, host=guest),
        SetShare(CAUSE, share=2.0, host=host),
    ]
    outcomes = list(cluster.apply(decisions))
    assert [outcome.reason.partition(":")[0] for outcome in outcomes] == [
        "",
        "it is not on such a node",
        "quotas (nan,) are not one above 0 for each of 1 nodes",
        "it does not run as a guest any more",
        "it draws from the pools of its nodes",
        "",
        "it does not run any more",
        "a share of 2 is none",
    ]
    assert lease().quota == 0.75
    snapshot = cluster.snapshot()
    assert lease().quota == 0.75  # renewed
    assert snapshot.jobs.share[host] == 0.3
    for cpu_time_s in (0.0, 50.0):
        paper.clock_s += 100.0
        record = {"m3.1000": sample("m3.1000", cpu_time_s=cpu_time_s)}
        nodes.latest = {name: NodeReport(name, paper.clock_s, 2, record) for name in ("n0", "n1")}
        cluster.snapshot()
    while paper.advance():
        cluster.snapshot()
    cluster.finished(-math.inf)
    ledger_of = {entry["job_id"]: (entry["role"], entry["lent_core_s"]) for entry in cluster.ledger}
    assert ledger_of == {
        "m3": ("guest", 50.0),
        str(snapshot.jobs.job_id[host]): ("host", 50.0),
    }
    cluster.release()
    assert nodes.granted == {}


def test_the_demand_of_a_guest_outlives_the_daemon_and_its_quota_does_not() -> None:
    jobs = [(0.0, job(4), 600.0), (0.0, job(4), 600.0), (0.0, job(2), 600.0)]
    cluster, paper, nodes = small(jobs)
    _, _, node, why = pooled(cluster)
    assert why == ""
    journal = json.loads(json.dumps(paper.framework.dump()))
    before = json.loads(json.dumps(journal))
    (record,) = [record for record in before if record.get("state", {}).get("beside")]
    assert record["state"].pop("demands") == {"-1": 0.5}
    for records in (journal, before):  # and one that a version wrote which knew of pairs alone
        successor = Framework(paper.framework.settings)
        successor.restore(records)
        paper.framework = successor
        anew = MesosCluster(
            Settings(), nodes=nodes, state_dir=Path("/nonexistent"), clock=paper.now_s, engine=paper
        )
        snapshot = anew.snapshot()
        (guest,) = snapshot.guests.tolist()
        (lease,) = [lease for lease in nodes.granted[f"n{node}"] if lease.guest]
        assert math.isnan(lease.quota)  # the idle class holds it, until more is decided
        (outcome,) = anew.apply([SetQuota(CAUSE, guest, (node,), (1.0,))])
        if records is journal:
            assert outcome.done and snapshot.jobs.demand[guest] == 0.5 and snapshot.jobs.host[guest] == -1
        else:
            assert math.isnan(snapshot.jobs.demand[guest]) and snapshot.jobs.host[guest] >= 0
            assert outcome.reason.startswith("it is the guest of a pair")


def test_nodes_that_no_single_job_holds_lend_no_pool() -> None:
    jobs = [(0.0, job(4), 600.0), (0.0, job(3), 600.0), (0.0, job(1), 600.0), (0.0, job(2), 600.0)]
    cluster, _, _ = small(jobs)
    snapshot = cluster.snapshot()
    guest = int(snapshot.queue[0])
    owners = [set(snapshot.core_owner[4 * node : 4 * node + 4].tolist()) for node in range(2)]
    mixed = next(node for node in range(2) if len(owners[node]) > 1)
    whole = 1 - mixed
    reasons = {
        (mixed,): f"several batch jobs hold n{mixed}",
        (whole, mixed): f"several batch jobs hold n{mixed}",
        (): "there is no such node",
        (7,): "there is no such node",
    }
    for nodes, why in reasons.items():
        (outcome,) = cluster.apply([CoAllocate(CAUSE, guest, nodes, (0.5,) * len(nodes))])
        assert outcome.reason == why
    (outcome,) = cluster.apply([CoAllocate(CAUSE, guest, (whole,), (0.5, 0.5))])
    assert outcome.reason == "demands (0.5, 0.5) are not one for each of 1 nodes"


def test_gpus_of_agents_and_jobs_are_shown_and_divided() -> None:
    host = job(1, groups=(Group(cpus=4.0, gpus=1, memory_bytes=8.0 * 2**20),))
    other = job(1, groups=(Group(cpus=4.0, memory_bytes=8.0 * 2**20),))
    two = job(1, groups=(Group(cpus=2.0, gpus=2, memory_bytes=8.0 * 2**20),), name="two")
    cluster, _, nodes = small([(0.0, host, 600.0), (0.0, other, 600.0), (0.0, two, 600.0)], gpus=2.0)
    nodes.latest = {name: NodeReport(name, 1000.0, 2, {}) for name in ("n0", "n1")}
    snapshot = cluster.snapshot()
    assert snapshot.node_gpus == {0: 2.0, 1: 2.0}
    rows = {str(snapshot.jobs.job_id[row]): row for row in [*snapshot.running, *snapshot.queue]}
    assert snapshot.gpus == {rows["m1"]: 1.0, rows["m3"]: 2.0}
    snapshot.jobs.cpu_fraction[[rows["m1"], rows["m2"]]] = 0.1
    free = FreeCapacity.see(snapshot, 0.1)
    with_one = int(np.flatnonzero(snapshot.core_owner == rows["m1"])[0]) // 4
    assert free.gpus_left.tolist() == [1.0 if node == with_one else 2.0 for node in range(2)]
    assert free.fit(rows["m3"], 0.1, np.zeros(2), None, np.full(2, np.inf)).tolist() == [1 - with_one], (
        "where both are free"
    )
    free.take(rows["m3"], np.array([1 - with_one]), 0.1)
    assert free.gpus_free[1 - with_one] == 0
    (outcome,) = cluster.apply([CoAllocate(CAUSE, rows["m3"], (1 - with_one,), host=rows["m2"], share=0.25)])
    assert outcome.done, outcome.reason


def test_jobs_with_gpus_stay_out_of_each_other_s_containers() -> None:
    host = job(1, groups=(Group(cpus=4.0, memory_bytes=8.0 * 2**20),))
    guest = job(1, groups=(Group(cpus=1.0, gpus=1, memory_bytes=8.0 * 2**20),))
    cluster, _, _ = small([(0.0, host, 600.0), (0.0, host, 600.0), (0.0, guest, 600.0)], 0.0, 1.0)
    snapshot = cluster.snapshot()
    row = int(snapshot.running[0])
    node = int(np.flatnonzero(snapshot.core_owner == row)[0]) // 4
    (outcome,) = cluster.apply([CoAllocate(CAUSE, int(snapshot.queue[0]), (node,), host=row, share=0.25)])
    assert "could use the GPUs of the other" in outcome.reason


def test_an_eviction_cancels_and_says_what_it_cannot() -> None:
    cluster, _, _ = small([(0.0, job(4), 600.0)])
    (row,) = cluster.snapshot().running.tolist()
    (held,) = cluster.apply([Evict(CAUSE, row, "requeue-hold")])
    assert not held.done
    assert "nobody could release it" in held.reason
    (gone,) = cluster.apply([Evict(CAUSE, row, "cancel")])
    assert gone.done
    assert cluster.status("m1")[0]["state"] == "cancelled"
    assert cluster.status("m1")[0]["why"] == "evicted: because"


def test_without_revocable_resources_a_guest_runs_within_its_host_s_executor() -> None:
    cluster, paper, nodes = small([(0.0, job(4), 600.0), (0.0, job(4), 600.0), (0.0, job(1), 600.0)], 0.0)
    snapshot = cluster.snapshot()
    host = int(snapshot.running[0])
    node = int(np.flatnonzero(snapshot.core_owner == host)[0]) // 4
    (outcome,) = cluster.apply([CoAllocate(CAUSE, int(snapshot.queue[0]), (node,), host=host, share=0.25)])
    assert outcome.done, outcome.reason
    assert paper.used[node]["cpus"] == pytest.approx(4.0)
    assert {len(tasks) for _, tasks in paper.executors.values()} == {4, 5}
    snapshot = cluster.snapshot()
    (guest,) = snapshot.guests.tolist()
    assert snapshot.jobs.host[guest] == host
    (lease,) = [lease for lease in nodes.granted[f"n{node}"] if lease.guest]
    assert lease.quota == 1.0
    while paper.advance():
        pass
    assert all(used["cpus"] == pytest.approx(0.0) for used in paper.used)
    assert cluster.status("m3")[0]["state"] == "completed"


def test_what_no_agent_of_the_host_can_serve_is_reported() -> None:
    wide = job(1, groups=(Group(memory_bytes=70_000.0 * 2**20),))
    cluster, _, _ = small([(0.0, job(4), 600.0), (0.0, job(4), 600.0), (0.0, wide, 600.0)], revocable=0.0)
    snapshot = cluster.snapshot()
    host = int(snapshot.running[0])
    node = int(np.flatnonzero(snapshot.core_owner == host)[0]) // 4
    (outcome,) = cluster.apply([CoAllocate(CAUSE, int(snapshot.queue[0]), (node,), host=host, share=0.25)])
    assert not outcome.done
    assert "offered nothing" in outcome.reason


def test_what_node_actors_say_is_shown() -> None:
    cluster, paper, nodes = small([(0.0, job(4), 600.0)])
    cluster.snapshot()
    paper.clock_s += 100.0
    nodes.latest = {
        "n0": NodeReport(
            "n0", paper.clock_s, 2, {"m1.1000": sample("m1.1000", since_s=0.0, cpu_fraction=0.25, cores=8)}
        )
    }
    snapshot = cluster.snapshot()
    (row,) = snapshot.running.tolist()
    assert snapshot.jobs.cpu_fraction[row] == pytest.approx(0.5)  # 2 of the 4 cores that it holds
    assert snapshot.jobs.pace[row] == 1.0
    assert snapshot.node_bar.tolist()[0] == 0


def lent_beside(cluster: MesosCluster) -> tuple[str, str]:
    """Have the first that waits run beside the first that runs; the units of guest and host."""
    snapshot = cluster.snapshot()
    host, guest = int(snapshot.running[0]), int(snapshot.queue[0])
    node = int(np.flatnonzero(snapshot.core_owner == host)[0]) // 4
    (outcome,) = cluster.apply([CoAllocate(CAUSE, guest, (node,), host=host, share=0.25)])
    assert outcome.done, outcome.reason
    return str(snapshot.jobs.job_id[guest]), str(snapshot.jobs.job_id[host])


def test_what_was_lent_is_entered_into_the_ledger_of_the_daemon() -> None:
    jobs = [(0.0, job(4), 600.0), (0.0, job(4), 600.0), (0.0, job(2), 300.0)]
    cluster, paper, nodes = small(jobs)
    guest, host = lent_beside(cluster)
    for cpu_time_s in (0.0, 50.0):
        paper.clock_s += 100.0
        record = {f"{unit}.1000": sample(f"{unit}.1000", cpu_time_s=cpu_time_s) for unit in (guest, host)}
        nodes.latest = {name: NodeReport(name, paper.clock_s, 2, record) for name in ("n0", "n1")}
        cluster.snapshot()
    while paper.advance():
        cluster.snapshot()
        cluster.finished(-math.inf)
    gains = Gains()
    entries = {entry.job: entry for entry in gains.enter(cluster.ledger)}
    assert {name: entry.role for name, entry in entries.items()} == {guest: "guest", host: "host"}
    assert {entry.account for entry in entries.values()} == {"ann"}
    assert entries[guest].lent_core_s == entries[host].lent_core_s == gains.lent_core_s == 50.0
    assert entries[guest].time_s == 1300.0


def test_a_guest_that_was_lost_and_runs_by_itself_then_is_no_guest_any_more() -> None:
    cluster, paper, nodes = small([(0.0, job(4), 600.0), (0.0, job(4), 600.0), (0.0, job(2), 300.0)])
    guest, _ = lent_beside(cluster)
    paper.clock_s += 100.0
    record = {f"{guest}.1000": sample(f"{guest}.1000", cpu_time_s=80.0)}
    nodes.latest = {name: NodeReport(name, paper.clock_s, 2, record) for name in ("n0", "n1")}
    assert len(cluster.snapshot().guests) == 1
    nodes.latest = {}
    for task in list(paper.framework.jobs[guest].tasks):
        paper._end(task, "TASK_LOST")
    assert cluster.status(guest)[0]["state"] == "queued"
    while paper.advance():
        cluster.snapshot()
        cluster.finished(-math.inf)
    assert cluster.status(guest)[0]["state"] == "completed"
    roles = {row["job_id"]: row["role"] for row in cluster.ledger}
    assert guest not in roles, "it ended as a job like others"


def test_nobody_is_deferred_for_ever_or_into_the_past() -> None:
    cluster, paper, _ = small([(0.0, job(4), 600.0), (0.0, job(4), 600.0), (0.0, job(4), 600.0)])
    (row,) = cluster.snapshot().queue.tolist()
    times = (math.inf, math.nan, paper.clock_s - 1.0)
    outcomes = list(cluster.apply([Defer(CAUSE, row, until_s) for until_s in times]))
    no_time = "there is no such time"
    assert [outcome.reason for outcome in outcomes] == [no_time, no_time, "that time has passed"]
    assert cluster.give_back() == [], "nothing was changed of it"


def test_jobs_of_other_users_are_no_guests_unless_all_may() -> None:
    other = job(2, user="bob", uid=1001)
    cluster, _, nodes = small([(0.0, job(4), 600.0), (0.0, job(4), 600.0), (0.0, other, 600.0)])
    nodes.latest = {name: NodeReport(name, 1000.0, 2, {}) for name in ("n0", "n1")}
    snapshot = cluster.snapshot()
    (row,) = snapshot.queue.tolist()
    assert (snapshot.jobs.host_bar[snapshot.running] == 0).all()
    assert snapshot.jobs.guest_bar[row] > 0


def test_a_share_and_an_extension_come_too_late_for_who_has_ended() -> None:
    cluster, paper, _ = small([(0.0, job(4), 60.0)])
    (row,) = cluster.snapshot().running.tolist()
    while paper.advance():
        pass
    outcomes = list(cluster.apply([SetShare(CAUSE, row, 0.5), ExtendLimit(CAUSE, row, 60.0)]))
    assert [outcome.done for outcome in outcomes] == [False, False]


def test_status_shows_what_a_job_waits_for_and_how_it_ended() -> None:
    cluster, paper, _ = small([(0.0, job(3), 60.0), (0.0, job(900), 60.0)])
    (first,) = cluster.status("m1")
    assert first["state"] == "running"
    assert {task["host"] for task in first["tasks"]} <= {"n0", "n1"}
    (second,) = cluster.status("m2")
    assert "more than all agents" in second["why"]
    for _ in range(5):
        paper.advance()
    assert cluster.status("m1")[0]["state"] == "completed"
    assert [one["job"] for one in cluster.status()] == ["m1", "m2"]
    with pytest.raises(UsageError, match="no such job"):
        cluster.status("m3\x1b")
    assert cluster.cancel("m2", "enough")
    assert not cluster.cancel("m2", "enough")


def test_opening_the_plugin_asks_no_master(tmp_path: Path) -> None:
    """It checks settings and journal."""
    from asad_mesos import open_cluster

    with socket.create_server(("127.0.0.1", 0)) as master:
        address = f"127.0.0.1:{master.getsockname()[1]}"
        cluster = open_cluster({"master": address}, nodes=WillingNodes(), state_dir=tmp_path, clock=time.time)
        cluster.close()
        master.setblocking(False)
        with pytest.raises(BlockingIOError):
            master.accept()
    assert [path.name for path in tmp_path.iterdir()] == ["mesos.journal.lock"]


class Reported:
    """What a child sends its parent."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def send(self, **body: Any) -> None:
        self.lines.append(body)


class Connected:
    """As much of a driver as calls need; they are answered by nobody."""

    stream_id, connected = "stream", True

    def __init__(self, port: int) -> None:
        self.master = f"127.0.0.1:{port}"

    def request(self, text: bytes) -> bytes:
        if not self.connected:
            raise ConnectionError("not connected")
        return text


def test_every_call_comes_to_an_end_though_several_are_under_way() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        driver, seen = Connected(server.getsockname()[1]), Reported()
        calls = Calls(driver, seen, 5.0)
        calls.send(b"one")
        calls.send(b"two")
        peer, _ = server.accept()
        with peer:
            driver.connected = False
            calls.send(b"three")
            assert [line["failed"] for line in seen.lines] == [3], "that one too, though it was never sent"
            driver.connected = True
            calls.send(b"four")
            again, _ = server.accept()
            with again:
                again.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok")
                calls.collect()
                assert again.recv(100) == b"four", "on a connection of its own"
        calls.close()
    assert seen.lines[1:] == [{"done": 4}]
