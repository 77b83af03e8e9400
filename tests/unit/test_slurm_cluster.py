"""The port over Slurm: what a snapshot shows, and what becomes of decisions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asad_slurm.answers import JobReader, NodeReader
from asad_slurm.command import CommandTransport, Ended, Look, Reservation
from asad_slurm.records import MIB
from slurm_samples import (
    BECAUSE,
    GOLDEN,
    START_S,
    Actors,
    Lab,
    SlurmInMemory,
    a_job,
    names,
    row,
    running,
    sample,
)

from asad.api.wire import lease_to_json
from asad.config import parse
from asad.decisions import CoAllocate, Decision, Evict, ExtendLimit, SetMemory, SetShare, Start, Withdraw
from asad.errors import ClusterError
from asad.ineligible import Ineligible, NodeIneligible
from asad.node.actor import lease_from_json
from asad.port import Cluster
from asad.stages import Circumstances, policy_of

Make = Callable[..., Lab]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Three whole-node hosts on n1 to n3, n4 idle, and job 10 of two cores that waits."""

    def lab(**settings: Any) -> Lab:
        slurm = SlurmInMemory()
        slurm.add(*(running(i, {f"n{i}": 2}) for i in (1, 2, 3)), a_job(10))
        made = Lab(tmp_path, slurm, **settings)
        for i in (1, 2, 3):
            made.actors.report(f"n{i}", sample(i))
        return made

    return lab


def test_offers_of_hyper_threads_keep_whole_cores(make: Make) -> None:
    lab = make()
    for node in lab.slurm.nodes:
        node |= {"cpus": 4, "threads": 2}
    lab.slurm.add(a_job(10, cpus=3))
    assert lab.offer(lab.snapshot(), "10", "1", "n1") == ""
    snapshot = lab.snapshot(5)
    assert (snapshot.core_guest[:4] == row(snapshot, "10")).all()
    assert lab.offer(snapshot, "10", "2", "n2") == "it has an offer already"


def test_nothing_is_lent_where_slurm_takes_hyper_threads_for_cores(make: Make) -> None:
    lab = make()

    def ineligible(cpus: int, threads: int, real_cores: int) -> str:
        for node in lab.slurm.nodes:
            node |= {"cpus": cpus, "threads": threads}
        lab.actors.latest["n1"] = replace(lab.actors.latest["n1"], hyperthreaded_cores=real_cores)
        return NodeIneligible(lab.snapshot().node_bar[0]).text

    assert ineligible(4, 1, 2) == "Slurm takes each of its hyper-threads for a core"
    assert ineligible(4, 2, 2) == ""  # it knows them: it gives whole cores
    assert ineligible(2, 1, 2) == ""  # only cores were reported
    assert ineligible(4, 1, 0) == ""  # there are none, as far as the kernel shows


def test_memory_bound_by_rule_or_by_comment(make: Make) -> None:
    lab = make(memory_bound={"names": ["app1", "stream*"], "partitions": ["stream"]})
    lab.slurm.add(
        a_job(20, name="STREAM"),
        a_job(21, name="stream-2"),
        a_job(22, comment="asad:no-host, asad:memory-bound"),
        a_job(23, comment="asad:memory-bounds"),
        a_job(24, partition="batch,stream"),
    )
    snapshot = lab.snapshot()
    rows = {str(snapshot.jobs.job_id[one]): int(snapshot.jobs.memory_bound[one]) for one in range(20)}
    assert {job for job, bound in rows.items() if bound} == {"1", "21", "22", "24"}
    lab.slurm.jobs[21] |= {"partition": "guest"}
    snapshot = lab.snapshot(5)
    assert snapshot.jobs.memory_bound[row(snapshot, "21")] == 1


def bar(lab: Lab, job: str, column: str = "guest_bar") -> str:
    snapshot = lab.snapshot()
    return Ineligible(getattr(snapshot.jobs, column)[row(snapshot, job)]).text


# ------------------------------------------------------------------------------------------------------------ snapshot


def test_snapshot_shows_who_holds_what(make: Make) -> None:
    lab = make()
    cluster: Cluster = lab.cluster
    snapshot = cluster.snapshot()
    jobs = snapshot.jobs
    assert snapshot.machine.node_names == ("n1", "n2", "n3", "n4")
    assert snapshot.machine.cores.tolist() == [2, 2, 2, 2]
    assert [names(snapshot, [one])[0] if one >= 0 else "" for one in snapshot.core_owner] == [
        *("1", "1", "2", "2", "3", "3"),
        *("", ""),
    ]
    assert (snapshot.core_guest == -1).all()
    assert names(snapshot, snapshot.queue) == ["10"] and snapshot.waiting == 1
    assert sorted(names(snapshot, snapshot.running)) == ["1", "2", "3"]
    host, guest = row(snapshot, "1"), row(snapshot, "10")
    assert jobs.cpu_fraction[host] == 0.25 and jobs.pace[host] == 1.0
    assert jobs.counterfactual_start_s[host] == jobs.start_s[host] == START_S - 60
    assert jobs.limit_end_s[host] == START_S - 60 + 3600
    assert jobs.latest_end_s[host] == START_S - 60 + 7200  # the partition's MaxTime
    assert math.isnan(jobs.start_s[guest]) and math.isnan(jobs.counterfactual_start_s[guest])
    assert jobs.estimated_start_s[guest] == jobs.own_estimate_s[guest] == START_S + 3600
    assert jobs.memory_bytes_per_core[guest] == 250 * MIB
    assert lab.cluster.applications[jobs.application[guest]] == "ann/app10/2"
    assert Ineligible(jobs.host_bar[host]).text == Ineligible(jobs.guest_bar[guest]).text == ""
    assert [NodeIneligible(one).text for one in snapshot.node_bar] == [""] * 4


@pytest.mark.slow
@pytest.mark.parametrize("share", ["asax", "asax-paper", "static"])
def test_those_who_lend_take_what_a_snapshot_shows(make: Make, share: str) -> None:
    lab = make()
    config = parse(f"[policies]\nshare = '{share}'", Path("asad.toml"))
    policy = policy_of(config, "share", Circumstances(lab.cluster.applications, 0))
    for _ in range(3):
        snapshot = lab.snapshot(30)
        assert "" in snapshot.jobs.job_id, "some rows hold no job"
        policy.learn(snapshot, lab.cluster.finished(START_S))
        policy.decide(snapshot)


def test_golden_cluster_of_22_05(tmp_path: Path) -> None:
    folder = GOLDEN / "22.05"
    slurm = SlurmInMemory()
    slurm.nodes = []
    lab = Lab(tmp_path, slurm, window_s=0.0)
    lab.actors.latest.clear()
    lab.now_s = 1795171560.0
    look = Look(
        JobReader().read((folder / "squeue.json").read_bytes()),
        NodeReader().read((folder / "sinfo.json").read_bytes()),
    )
    slurm.look = lambda: look  # type: ignore[method-assign]
    slurm.add(a_job(15, partition="guest"))  # which is sent home: nobody here has sent it there
    for node, number in (("an1", 1), ("an2", 2), ("an3", 0), ("an4", 4), ("an5", 4)):
        lab.actors.report(node, *([sample(number)] if number else []))
    snapshot = lab.snapshot()
    jobs = snapshot.jobs
    why = {
        names(snapshot, [one])[0]: Ineligible(jobs.guest_bar[one]).text
        for one in range(len(jobs.job_id))
        if jobs.job_id[one]
    }
    assert why["5"] == "" and why["6_1"] == "" and why["7"] == ""
    assert why["8"] == "it holds or wants gres"
    assert why["9"] == "it wants licences"
    assert why["10"] == "it depends on a job that has not ended"
    assert why["12"] == "it holds all memory of its nodes"
    assert why["13"] == why["14"] == "it has its nodes for itself (--exclusive)"
    assert why["16"] == "its partition has no guest partition"
    for held in ("3", "11", "17"):
        assert why[held] == "it is held, or waits for something other than its turn"
    for part in ("19+0", "19+1"):
        assert why[part] == "it is a part of a heterogeneous job, whose parts wait for each other"
    hosts = {names(snapshot, [one])[0]: Ineligible(jobs.host_bar[one]).text for one in snapshot.running}
    assert hosts["1"] == hosts["2"] == "" and hosts["4"] == "its node takes no guests"
    assert NodeIneligible(snapshot.node_bar[2]).text == "it is drained, down or not answering"
    assert snapshot.waiting == 17 + 9  # nine more tasks of the array
    # in Slurm's order; held, dependent and pinned jobs are not tried, and neither is what lies in guest
    assert names(snapshot, snapshot.queue) == [
        *("5", "6_1", "7", "8", "9", "12", "13", "14", "16", "18"),
        *("19+0", "19+1"),
    ]


def test_queue_is_in_slurms_order_and_cut_at_depth(make: Make) -> None:
    lab = make(depth=3)
    lab.slurm.add(
        a_job(11, priority=5),
        a_job(12, priority=5),
        a_job(13, priority=9),
        a_job(14, priority=1, partition="urgent"),
        a_job(15, priority=2),
        a_job(16, state_reason="JobHeldUser", priority=0),
        *(a_job(number, priority=1) for number in range(100, 150)),
    )
    del lab.slurm.jobs[10]
    snapshot = lab.snapshot()
    assert names(snapshot, snapshot.queue) == ["14", "13", "11"]
    assert snapshot.waiting == 56


def test_a_row_is_kept_and_used_again_only_after_a_rest(make: Make) -> None:
    lab = make()
    first = lab.snapshot()
    kept = {job: row(first, job) for job in ("1", "2", "3", "10")}
    lab.slurm.end(1, START_S + 30)
    second = lab.snapshot(30)
    assert {job: row(second, job) for job in kept} == kept
    assert names(second, lab.cluster.finished(0.0).row) == ["1"]
    lab.slurm.add(a_job(11))
    third = lab.snapshot(30)
    assert row(third, "11") != kept["1"] and row(third, "1") == kept["1"]
    lab.slurm.add(*(a_job(number) for number in range(20, 40)))
    fourth = lab.snapshot(30)
    assert "1" not in fourth.jobs.job_id.tolist()
    assert kept["1"] in {row(fourth, str(number)) for number in range(20, 40)}
    assert {job: row(fourth, job) for job in ("2", "3", "10")} == {job: kept[job] for job in ("2", "3", "10")}


def test_arrays_grow(make: Make) -> None:
    lab = make()
    first = lab.snapshot()
    at = row(first, "10")
    lab.slurm.add(*(a_job(number) for number in range(1000, 4000)))
    second = lab.snapshot(30)
    assert len(second.jobs.cores) == 4096 and row(second, "10") == at
    assert second.jobs.cores[row(second, "3999")] == 2
    assert (second.jobs.job_id != "").sum() == 3004


def test_nodes_that_change_do_not_move_jobs(make: Make) -> None:
    lab = make()
    lab.snapshot()
    lab.slurm.nodes.insert(0, lab.slurm.nodes[0] | {"name": "n0"})
    lab.actors.report("n0")
    snapshot = lab.snapshot(30)
    first = snapshot.machine.first_core
    at = snapshot.machine.node_names.index("n2")
    assert names(snapshot, snapshot.core_owner[first[at] : first[at + 1]]) == ["2", "2"]


def test_a_slurm_that_does_not_answer_renews_nothing(make: Make) -> None:
    lab = make()
    lab.snapshot()
    granted = len(lab.actors.granted)

    def down() -> Look:
        raise ClusterError("squeue: no answer within 10 s")

    lab.slurm.look = down  # type: ignore[method-assign]
    with pytest.raises(ClusterError):
        lab.cluster.snapshot()
    assert len(lab.actors.granted) == granted


# ---------------------------------------------------------------------------------------------------------------- bars


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"comment": "asad:no"}, "it opted out"),
        ({"comment": "please, asad:no-guest"}, "it opted out"),
        ({"comment": "asad:no-host"}, ""),
        ({"comment": "asad:nothing"}, ""),
        ({"user_name": "bob"}, "its user opted out"),
        ({"account": "chem"}, "its account opted out"),
        ({"qos": "gold"}, "its QOS opted out"),
        ({"partition": "urgent"}, "its partition has no guest partition"),
        ({"partition": "batch,urgent"}, "its partition has no guest partition"),
        ({"tres_per_node": "gres:gpu:1"}, "it holds or wants gres"),
        ({"memory_per_node": 0}, "it holds all memory of its nodes"),
        ({"shared": "none"}, "it has its nodes for itself (--exclusive)"),
        ({"licenses": "abaqus:1"}, "it wants licences"),
        ({"resv_name": "maint"}, "it runs in a reservation"),
        ({"dependency": "afterok:1(unfulfilled)"}, "it depends on a job that has not ended"),
        ({"time_limit": None}, "it has no time limit"),
        ({"start_time": 0}, "Slurm has not estimated its start"),
        ({"state_reason": "BeginTime"}, "it is held, or waits for something other than its turn"),
        ({"state_reason": "AssocGrpCpuLimit"}, "a limit of its user, account or QOS keeps it from starting"),
        ({"priority": 0}, "it is held, or waits for something other than its turn"),
        ({"het_job_id": 10}, "it is a part of a heterogeneous job, whose parts wait for each other"),
    ],
)
def test_who_may_not_be_a_guest(make: Make, facts: dict[str, Any], why: str) -> None:
    lab = make(opt_out={"users": ["bob"], "accounts": ["chem"], "qos": ["gold"]})
    lab.slurm.add(a_job(10, **facts))
    job = "10+0" if "het_job_id" in facts else "10"
    assert bar(lab, job) == why


@pytest.mark.parametrize(
    ("facts", "why", "lend"),
    [
        ({"comment": "asad:no-host"}, "it opted out", None),
        ({"comment": "asad:no-guest"}, "", None),
        ({"gres_detail": ["gpu:1"]}, "it holds or wants gres", "gres"),
        ({"memory_per_node": None}, "it holds all memory of its nodes", "whole_memory"),
        ({"shared": "user"}, "it has its nodes for itself (--exclusive)", "exclusive"),
        ({"resv_name": "maint"}, "it runs in a reservation", None),
        ({"time_limit": None}, "", None),
    ],
)
def test_who_may_not_lend(make: Make, facts: dict[str, Any], why: str, lend: str | None) -> None:
    lab = make()
    lab.slurm.add(running(1, {"n1": 2}, **facts))
    assert bar(lab, "1", "host_bar") == why
    if lend:
        lab = make(lend={lend: True})
        lab.slurm.add(running(1, {"n1": 2}, **facts))
        assert bar(lab, "1", "host_bar") == ""


def test_hosts_on_several_nodes_lend_unless_they_are_switched_off(make: Make) -> None:
    def wide(lab: Lab) -> Lab:
        del lab.slurm.jobs[2], lab.slurm.jobs[3]
        lab.slurm.add(running(2, {"n2": 2, "n3": 2}), running(4, {"n4": 1}), running(5, {"n4": 1}))
        lab.actors.report("n2", sample(2))
        lab.actors.report("n3", sample(2))
        lab.actors.report("n4", sample(4, cores=1), sample(5, cores=1))
        return lab

    lab = wide(make())
    assert (
        bar(lab, "2", "host_bar") == bar(lab, "4", "host_bar") == ""
    )  # that one shares its node is no reason
    lab = wide(make(lend={"multi_node": False}))
    assert bar(lab, "2", "host_bar").startswith("it runs on several nodes")
    assert bar(lab, "4", "host_bar") == ""


def test_a_host_is_known_when_all_its_nodes_have_watched_it(make: Make) -> None:
    lab = make(window_s=60)
    lab.slurm.add(running(2, {"n2": 2, "n3": 2}))
    del lab.slurm.jobs[3]
    lab.actors.report("n2", sample(2, cpu_fraction=0.2))

    def known() -> float:
        snapshot = lab.snapshot()
        return float(snapshot.jobs.cpu_fraction[row(snapshot, "2")])

    lab.actors.report("n3")
    assert math.isnan(known())
    lab.actors.report("n3", sample(2, cpu_fraction=0.6, since_s=START_S - 59))
    assert math.isnan(known())
    lab.actors.report("n3", sample(2, cpu_fraction=0.6, since_s=START_S - 60))
    assert known() == pytest.approx(0.4)


def test_nodes_that_lend_nothing(make: Make) -> None:
    lab = make(opt_out={"nodes": "n[2,4]"})
    lab.slurm.nodes[0]["state_flags"] = ["DRAIN"]
    del lab.actors.latest["n3"]
    snapshot = lab.snapshot()
    assert [NodeIneligible(one).text for one in snapshot.node_bar] == [
        "it is drained, down or not answering",
        "it opted out",
        "its node actor does not answer",
        "it opted out",
    ]
    for host in ("1", "2", "3"):
        assert bar(lab, host, "host_bar") == "its node takes no guests"


def test_users_share_as_the_settings_say(make: Make) -> None:
    def mixed(lab: Lab) -> Lab:
        lab.slurm.add(a_job(11, user_name="bob"), a_job(12, user_name="eve", account="chem"))
        return lab

    alone = "its user's jobs may share with that user's alone"
    lab = mixed(make(share_users="same"))
    assert [bar(lab, job) for job in ("10", "11", "12")] == ["", alone, alone]
    lab = mixed(make(share_users="account"))
    assert [bar(lab, job) for job in ("10", "11", "12")] == ["", "", alone]
    lab = mixed(make(share_users="any"))
    assert [bar(lab, job) for job in ("10", "11", "12")] == ["", "", ""]
    lab = make(share_users="same")
    lab.slurm.add(running(2, {"n2": 2}, user_name="bob"))
    assert lab.offer(lab.snapshot(), "10", "2", "n2") == alone


# -------------------------------------------------------------------------------------------------------------- offers


def test_an_offer_is_announced_journaled_and_made(make: Make) -> None:
    lab = make()
    assert lab.offer(lab.snapshot(), "10", "1", "n1", share=0.4) == ""
    assert lab.actors.announced == [(("n1",), "10")]
    assert lab.slurm.updates == [("10", {"Partition": "guest", "ReqNodeList": "n1", "NumNodes": "1-1"})]
    (guest, host) = lab.actors.granted[-1]["n1"]
    assert (guest.job_id, guest.guest, guest.host_id, guest.quota, guest.cores) == ("10", True, "1", 0.4, 2)
    assert (host.job_id, host.guest) == ("1", False) and math.isnan(host.quota)
    snapshot = lab.snapshot(5)
    at = row(snapshot, "10")
    assert snapshot.jobs.offered_s[at] == START_S and snapshot.jobs.share[at] == 0.4
    assert names(snapshot, [snapshot.jobs.host[at]]) == ["1"]
    assert snapshot.core_guest[:2].tolist() == [at, at]  # kept for it
    assert names(snapshot, snapshot.queue) == ["10"]
    assert lab.offer(snapshot, "10", "2", "n2") == "it has an offer already"


def test_a_guest_starts_beside_its_host_and_outlives_it(make: Make) -> None:
    lab = make()
    lab.offer(lab.snapshot(), "10", "1", "n1", share=0.5)
    lab.slurm.start(10, "n1", START_S + 2)
    lab.actors.report("n1", sample(1), sample(10, guest=True, cpu_time_s=3.0), time_s=START_S + 10)
    snapshot = lab.snapshot(10)
    at = row(snapshot, "10")
    assert names(snapshot, snapshot.guests) == ["10"] and "10" not in names(snapshot, snapshot.queue)
    assert names(snapshot, [snapshot.jobs.host[at]]) == ["1"] and snapshot.jobs.share[at] == 0.5
    assert snapshot.jobs.own_estimate_s[at] == START_S + 3600 and math.isnan(
        snapshot.jobs.counterfactual_start_s[at]
    )
    lab.slurm.end(1, START_S + 20)
    lab.actors.report("n1", sample(10, guest=True, cpu_time_s=9.0), time_s=START_S + 20)
    snapshot = lab.snapshot(20)
    assert snapshot.jobs.host[at] == -1 and math.isnan(snapshot.jobs.share[at])
    (lease,) = lab.actors.granted[-1]["n1"]
    assert lease.guest and lease.host_id == "" and math.isnan(lease.quota)  # it opens up
    assert names(snapshot, lab.cluster.finished(0.0).row) == ["1"]
    (entry,) = lab.cluster.ledger
    assert (entry["job_id"], entry["role"], entry["account"]) == ("1", "host", "physics")
    assert entry["lent_core_s"] == 3.0
    lab.slurm.add(running(4, {"n1": 2}, start_time=int(START_S) + 31))
    snapshot = lab.snapshot(10)
    assert names(snapshot, [snapshot.jobs.host[at]]) == ["4"]
    assert math.isnan(snapshot.jobs.share[at])  # decided anew beside another host
    late = lab.snapshot(3600)
    assert late.jobs.counterfactual_start_s[at] == START_S + 3600  # its own turn has passed


def test_an_offered_job_that_slurm_starts_in_its_own_partition_is_nobodys_guest(make: Make) -> None:
    lab = make()
    lab.offer(lab.snapshot(), "10", "1", "n1")
    lab.slurm.jobs[10] |= {"partition": "batch", "required_nodes": ""}
    lab.slurm.start(10, "n3", START_S + 2)
    snapshot = lab.snapshot(5)
    at = row(snapshot, "10")
    assert "10" in names(snapshot, snapshot.running)
    assert snapshot.jobs.host[at] == -1 and math.isnan(snapshot.jobs.share[at])


def test_an_offer_whose_cores_another_guest_has_taken_costs_nobody_his_lease(make: Make) -> None:
    """An actor obeys all that is sent for its node, or nothing."""
    lab = make()
    assert lab.offer(lab.snapshot(), "10", "1", "n1") == ""
    lab.slurm.add(running(11, {"n1": 2}, partition="guest"))  # by somebody who may send jobs there
    lab.snapshot(5)
    seen = lab.actors.granted[-1]["n1"]
    assert [lease_from_json(lease_to_json(lease)).job_id for lease in seen] == ["11", "10", "1"]


def test_a_share_is_changed_and_binds_at_once(make: Make) -> None:
    lab = make()
    lab.slurm.add(a_job(10, cpus=1, tres_req_str="cpu=1,mem=100M,node=1"))
    lab.offer(lab.snapshot(), "10", "1", "n1", share=0.2)
    lab.slurm.start(10, "n1", START_S + 2)
    at = row(lab.snapshot(10), "10")
    (outcome,) = lab.cluster.apply([SetShare(BECAUSE, at, 0.3, capped=True)])
    assert outcome.done
    guest, host = lab.actors.granted[-1]["n1"]
    assert guest.quota == pytest.approx(0.6) and guest.cores == 1  # of its one core, 0.3 of the host's two
    assert host.quota == pytest.approx(0.7)
    lab.snapshot(10)
    assert lab.actors.granted[-1]["n1"][0].quota == pytest.approx(0.6)  # renewed
    outcomes = lab.cluster.apply([SetShare(BECAUSE, row(lab.snapshot(), "2"), 0.3)])
    assert [one.reason for one in outcomes] == ["it does not run as a guest any more"]


def test_a_memory_limit_goes_with_the_lease_for_as_long_as_it_shares(make: Make) -> None:
    lab = make()
    lab.slurm.add(a_job(10, cpus=1, tres_req_str="cpu=1,mem=100M,node=1"))
    lab.offer(lab.snapshot(), "10", "1", "n1", share=0.2)
    lab.slurm.start(10, "n1", START_S + 2)
    lab.actors.report("n1", sample(1), sample(10, memory_bytes=7e7))
    snapshot = lab.snapshot(10)
    at = row(snapshot, "10")
    assert snapshot.memory_used[at] == 7e7
    assert snapshot.memory_used[row(snapshot, "1")] == 1e8
    assert snapshot.memory_high == {}
    (outcome,) = lab.cluster.apply([SetMemory(BECAUSE, at, 9e7)])
    assert outcome.done
    guest, host = lab.actors.granted[-1]["n1"]
    assert guest.memory_high_bytes == 9e7
    assert math.isnan(host.memory_high_bytes)
    assert lab.snapshot(10).memory_high == {at: 9e7}
    assert lab.actors.granted[-1]["n1"][0].memory_high_bytes == 9e7  # renewed
    alone = row(lab.snapshot(), "2")
    refused = lab.cluster.apply([SetMemory(BECAUSE, alone, 9e7), SetMemory(BECAUSE, at, math.nan)])
    assert [one.reason for one in refused] == [
        "it shares its nodes with nobody",
        "a limit of nan bytes is none",
    ]
    lab.cluster.apply([SetMemory(BECAUSE, at, 0.0)])
    assert math.isnan(lab.actors.granted[-1]["n1"][0].memory_high_bytes)
    lab.cluster.apply([SetMemory(BECAUSE, at, 9e7)])
    lab.cluster.release()
    assert lab.actors.granted[-1] == {}
    assert lab.snapshot(10).memory_high == {}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"required_nodes": "n3"}, "its user asked for other nodes"),
    ({"excluded_nodes": "n[1-2]"}, "its user excluded a node"),
    ({"features": "fast&big"}, "n1 lacks a feature that it wants"),
    ({"cpus": 3}, "another guest is on these cores"),
    ({"node_count": 2}, "it wants 2 nodes"),
    ({"memory_per_node": None, "memory_per_cpu": None}, "it holds all memory of its nodes"),
]


@pytest.mark.parametrize(("facts", "why"), REFUSED)
def test_offers_that_are_not_made(make: Make, facts: dict[str, Any], why: str) -> None:
    lab = make()
    lab.slurm.add(a_job(10, **facts))
    assert lab.offer(lab.snapshot(), "10", "1", "n1") == why
    assert lab.slurm.updates == [] and not (lab.state_dir / "offers.journal").read_text()


def test_a_snapshot_says_where_jobs_may_be_guests_where_that_is_not_everywhere(make: Make) -> None:
    lab = make()
    lab.slurm.nodes[0]["active_features"] = "fast,big"
    lab.slurm.nodes[3]["partitions"] = ["batch"]
    jobs = ({}, {"features": "big"}, {"excluded_nodes": "n[1-2]"}, {"features": "big|fast"})
    lab.slurm.add(*(a_job(10 + number, **facts) for number, facts in enumerate(jobs)))
    snapshot = lab.snapshot()
    shown = [snapshot.guest_nodes[row(snapshot, str(10 + number))].tolist() for number in range(4)]
    assert shown == [[0, 1, 2], [0], [2], [0, 1, 2]], "what is not understood is left to Slurm"
    lab.slurm.nodes[3]["partitions"] = ["batch", "guest"]
    again = lab.snapshot()
    assert row(again, "10") not in again.guest_nodes, "everywhere"


def test_no_offer_without_a_host_a_whole_node_or_an_actor(make: Make) -> None:
    lab = make()
    snapshot = lab.snapshot()
    assert lab.offer(snapshot, "10", "1", "n4") == "a node is no longer wholly held by its host"
    lab.actors.deaf = True
    assert lab.offer(snapshot, "10", "1", "n1") == "the node actors have not taken note of it"
    lab.actors.deaf = False
    assert lab.offer(snapshot, "1", "2", "n2") == "it does not wait any more"
    lab.slurm.end(1, START_S + 5)
    snapshot = lab.snapshot(10)
    assert lab.offer(snapshot, "10", "1", "n1") == "its host does not run any more"
    assert lab.slurm.updates == []


def test_a_guest_takes_no_memory_that_somebody_waits_for(make: Make) -> None:
    lab = make()
    lab.slurm.add(a_job(11, memory_per_node=3700))
    assert lab.offer(lab.snapshot(), "10", "1", "n1") == "its memory would be in the way of 11"
    lab.slurm.add(a_job(11, memory_per_node=5000))  # fits on no node here anyway
    assert lab.offer(lab.snapshot(), "10", "1", "n1") == ""


def test_no_journal_no_offer(make: Make) -> None:
    lab = make()
    snapshot = lab.snapshot()
    journal = lab.state_dir / "offers.journal"
    journal.unlink(missing_ok=True)
    journal.mkdir()
    why = lab.offer(snapshot, "10", "1", "n1")
    assert "offers.journal: cannot be written" in why and lab.slurm.updates == []
    second = lab.open()
    (lines,) = second.recover()
    assert lines.startswith("no offers will be made: ") and "cannot be read" in lines


def test_a_task_of_an_array_is_made_a_job_of_its_own(make: Make) -> None:
    lab = make()
    array = a_job(20, array_job_id=20, array_task_string="3-6", required_nodes="n1", cpus=1)
    lab.slurm.add(array | {"memory_per_node": 100})
    snapshot = lab.snapshot()
    assert lab.offer(snapshot, "20_3", "1", "n1") == ""
    assert lab.actors.announced == [(("n1",), "21")]
    (_, marks), offers = lab.slurm.updates
    assert marks.keys() == {"AdminComment"}
    assert offers == ("20_3", {"Partition": "guest", "ReqNodeList": "n1", "NumNodes": "1-1"})
    snapshot = lab.snapshot(5)
    assert lab.slurm.jobs[21]["partition"] == "guest"
    assert snapshot.jobs.offered_s[row(snapshot, "20_3")] == START_S
    assert "20_4" in names(snapshot, snapshot.queue)
    lab.slurm.start(21, "n1", START_S + 6)
    assert names(lab.snapshot(5), lab.snapshot().guests) == ["20_3"]


def test_the_last_task_of_an_array_is_not_taken_for_all_of_it(make: Make) -> None:
    """It has the number of the array itself, by which Slurm's commands mean every task, and refuse this of arrays."""
    lab = make()
    del lab.slurm.jobs[2]
    of_array = {"array_job_id": 20, "cpus": 1, "memory_per_node": 100}
    lab.slurm.add(
        a_job(20, array_task_string="9", **of_array),
        a_job(21, array_task_id=3, **of_array),  # split off for an offer that it did not take
        running(22, {"n2": 2}, **(of_array | {"array_task_id": 4, "cpus": 2})),
    )
    lab.actors.report("n2", sample(22))
    snapshot = lab.snapshot()
    assert lab.offer(snapshot, "20_9", "1", "n1") == ""
    assert lab.actors.announced == [(("n1",), "20")]
    assert {job: lab.slurm.jobs[job]["partition"] for job in (20, 21, 22)} == {
        20: "guest",
        21: "batch",
        22: "batch",
    }
    assert lab.cluster.apply([Withdraw(BECAUSE, row(snapshot, "20_9"))])[0].done
    assert lab.slurm.jobs[20]["partition"] == "batch"
    lab.slurm.start(20, "n4", START_S + 1)
    lab.actors.report("n4", sample(20, cores=1))
    limits = {job: lab.slurm.jobs[job]["time_limit"] for job in (20, 21, 22)}
    extension = ExtendLimit(BECAUSE, row(lab.snapshot(5), "20_9"), 60.0)
    assert lab.cluster.apply([extension])[0].done
    assert {job: lab.slurm.jobs[job]["time_limit"] - limits[job] for job in limits} == {20: 1, 21: 0, 22: 0}


def test_slurm_says_no(make: Make) -> None:
    lab = make()
    lab.slurm.refuses = "Requested partition configuration not available now"
    why = lab.offer(lab.snapshot(), "10", "1", "n1")
    assert why == "Slurm refused: Requested partition configuration not available now"
    lab.slurm.refuses = ""
    snapshot = lab.snapshot(4)
    assert math.isnan(snapshot.jobs.offered_s[row(snapshot, "10")])
    assert (
        lab.offer(snapshot, "10", "1", "n1") == "an earlier offer was not taken; it gets none for another 6 s"
    )
    assert lab.offer(lab.snapshot(7), "10", "1", "n1") == ""


def test_slurm_that_hangs_is_asked_once_and_the_offer_taken_back(make: Make) -> None:
    lab = make()
    snapshot = lab.snapshot()
    lab.slurm.hangs = True
    assert "so it is taken back" in lab.offer(snapshot, "10", "1", "n1")
    extend = ExtendLimit(BECAUSE, row(snapshot, "1"), 60.0)
    reasons = [one.reason for one in lab.cluster.apply([extend, extend])]
    assert reasons == ["scontrol: no answer within 1 s", "Slurm did not answer the change before this one"]
    lab.slurm.hangs = False
    lab.slurm.jobs[10] |= {"partition": "guest", "required_nodes": "n1"}  # it had heard after all
    lab.snapshot(30)
    assert (lab.slurm.jobs[10]["partition"], lab.slurm.jobs[10]["required_nodes"]) == ("batch", "")


@pytest.mark.parametrize(
    ("happens", "after_s", "why"),
    [
        (lambda slurm: None, 61.0, "it has not taken its offer within 60 s"),
        (lambda slurm: slurm.end(1, START_S + 3), 10.0, "its host has ended"),
        (lambda slurm: None, 31.0, "its own turn has come"),
    ],
)
def test_offers_that_are_not_taken_come_back(
    make: Make, happens: Callable[[SlurmInMemory], None], after_s: float, why: str
) -> None:
    lab = make()
    soon = 30 if "turn" in why else 3600
    lab.slurm.add(a_job(10, required_nodes="n1", start_time=int(START_S) + soon))
    lab.offer(lab.snapshot(), "10", "1", "n1")
    happens(lab.slurm)
    lab.snapshot(after_s)
    assert lab.cluster.notices == [f"10: {why}; it waits in batch again"]
    assert (lab.slurm.jobs[10]["partition"], lab.slurm.jobs[10]["required_nodes"]) == ("batch", "n1")
    snapshot = lab.snapshot(5)
    assert math.isnan(snapshot.jobs.offered_s[row(snapshot, "10")]) and (snapshot.core_guest < 0).all()


def test_an_offer_can_be_withdrawn(make: Make) -> None:
    lab = make()
    snapshot = lab.snapshot()
    withdraw = Withdraw(BECAUSE, row(snapshot, "10"))
    assert [one.reason for one in lab.cluster.apply([withdraw])] == ["nothing is offered to it"]
    lab.offer(snapshot, "10", "1", "n1")
    assert [one.done for one in lab.cluster.apply([withdraw])] == [True]
    assert lab.slurm.jobs[10]["partition"] == "batch" and lab.actors.granted[-1] == {}
    assert (snapshot.core_guest < 0).all()
    assert lab.offer(lab.snapshot(5), "10", "2", "n2") == ""  # it was not its fault


def test_a_requeued_guest_is_restored_first(make: Make) -> None:
    lab = make()
    lab.offer(lab.snapshot(), "10", "1", "n1")
    lab.slurm.start(10, "n1", START_S + 2)
    lab.snapshot(5)
    lab.slurm.jobs[10] |= a_job(10, partition="guest", required_nodes="n1", restart_cnt=1)
    lab.snapshot(5)
    assert lab.cluster.notices == ["10: it was requeued; it waits in batch again"]
    assert (lab.slurm.jobs[10]["partition"], lab.slurm.jobs[10]["required_nodes"]) == ("batch", "")
    snapshot = lab.snapshot(5)
    assert names(snapshot, snapshot.queue) == ["10"] and len(lab.cluster.finished(0.0).row) == 0


@pytest.mark.parametrize("started", [False, True])
def test_an_offer_that_a_killed_controller_shows_again_is_taken_back_again(make: Make, started: bool) -> None:
    """It had not saved that the job is home; nothing of the journal's offers is open by then."""
    lab = make()
    lab.slurm.jobs[10] |= {"required_nodes": "n1"}
    assert lab.offer(lab.snapshot(), "10", "1", "n1") == ""
    if started:
        lab.slurm.start(10, "n1", START_S + 2)
        lab.snapshot(5)
    before = a_job(10, partition="guest", required_nodes="n1", restart_cnt=int(started))
    lab.slurm.jobs[10] = dict(before)
    lab.snapshot(61)
    assert lab.slurm.jobs[10]["partition"] == "batch"
    lab.slurm.jobs[10] = dict(before)
    lab.snapshot(5)
    assert (lab.slurm.jobs[10]["partition"], lab.slurm.jobs[10]["required_nodes"]) == ("batch", "n1")
    lab.slurm.jobs[10] |= {"partition": "guest"}  # long after that it is somebody else's doing
    lab.snapshot(601)
    assert lab.slurm.jobs[10]["partition"] == "guest"


@pytest.mark.parametrize("shown", [True, False])
def test_a_guest_that_has_ended_and_is_requeued_comes_home(make: Make, shown: bool) -> None:
    """By its user, or because a controller without its state showed no jobs at all for a while."""
    lab = make()
    assert lab.offer(lab.snapshot(), "10", "1", "n1") == ""
    lab.slurm.start(10, "n1", START_S + 2)
    lab.snapshot(5)
    lab.slurm.end(10, START_S + 8)
    if not shown:
        del lab.slurm.jobs[10]
    lab.snapshot(5)
    assert lab.cluster.notices == ["10: it has ended"]
    lab.slurm.add(a_job(10, partition="guest", required_nodes="n1", restart_cnt=1))
    lab.snapshot(290)
    assert (lab.slurm.jobs[10]["partition"], lab.slurm.jobs[10]["required_nodes"]) == ("batch", "")


@pytest.mark.parametrize("nodes", ["", "n2", "n[1-2]"])
def test_an_offer_whose_nodes_its_user_has_changed_is_taken_back(make: Make, nodes: str) -> None:
    """He could be beside whomever otherwise, where job_submit.lua does not keep him from it."""
    lab = make()
    assert lab.offer(lab.snapshot(), "10", "1", "n1") == ""
    lab.snapshot(1)
    assert lab.slurm.jobs[10]["partition"] == "guest"
    lab.slurm.jobs[10] |= {"required_nodes": nodes}
    lab.snapshot(1)
    assert (lab.slurm.jobs[10]["partition"], lab.slurm.jobs[10]["required_nodes"]) == ("batch", "")
    assert lab.cluster.notices == ["10: somebody else has changed its node list; it waits in batch again"]


@pytest.mark.parametrize("own", ["", "n1"])
def test_a_job_that_its_user_moves_home_is_bound_to_no_node_of_its_offer(make: Make, own: str) -> None:
    lab = make()
    lab.slurm.jobs[10] |= {"required_nodes": own}
    assert lab.offer(lab.snapshot(), "10", "1", "n1") == ""
    lab.slurm.jobs[10] |= {"partition": "long"}  # and the list stays as it is
    lab.snapshot(5)
    assert (lab.slurm.jobs[10]["partition"], lab.slurm.jobs[10]["required_nodes"]) == ("long", own)
    freed = "" if own else "; it is bound to the nodes of its offer no more"
    assert lab.cluster.notices == [f"10: somebody else has moved it back{freed}"]
    assert lab.cluster.recover() == []


def test_a_job_that_has_started_since_is_not_shrunk_when_all_is_released(make: Make) -> None:
    """Slurm takes a node list that is set of a running job for the nodes that it shall keep."""
    lab = make()
    lab.slurm.jobs[10] |= {"required_nodes": "n1"}
    assert lab.offer(lab.snapshot(), "10", "1", "n1") == ""
    lab.slurm.end(1, START_S + 1)
    lab.slurm.add(running(10, {"n1": 1, "n4": 1}, required_nodes="n1"))  # moved home by its user
    assert lab.cluster.release() == ["10: it had started by itself"]
    assert lab.slurm.jobs[10]["nodes"] == "n1,n4" and len(lab.slurm.updates) == 2, "a mark, and the offer"


def test_the_next_daemon_takes_back_what_the_last_one_left(make: Make) -> None:
    lab = make()
    lab.slurm.add(a_job(11, required_nodes="n2", cpus=1, memory_per_node=100))
    snapshot = lab.snapshot()
    lab.offer(snapshot, "10", "1", "n1")
    assert lab.offer(snapshot, "11", "2", "n2") == ""
    lab.slurm.start(10, "n1", START_S + 2)
    lab.snapshot(5)
    lab.cluster = lab.open()
    assert lab.cluster.recover() == ["11: an offer to it was left over; it waits in batch again"]
    assert (lab.slurm.jobs[11]["partition"], lab.slurm.jobs[11]["required_nodes"]) == ("batch", "n2")
    snapshot = lab.snapshot(5)
    at = row(snapshot, "10")
    assert names(snapshot, snapshot.guests) == ["10"] and math.isnan(snapshot.jobs.share[at])
    assert snapshot.jobs.own_estimate_s[at] == START_S + 3600  # kept by the journal
    assert lab.cluster.recover() == []


def test_release_gives_everything_back(make: Make) -> None:
    lab = make()
    lab.offer(lab.snapshot(), "10", "1", "n1")
    assert lab.cluster.release() == ["10: its offer is taken back; it waits in batch again"]
    assert lab.actors.granted[-1] == {} and lab.slurm.jobs[10]["partition"] == "batch"
    lab.snapshot(5)
    assert lab.actors.granted[-1] == {}


def test_a_journal_that_cannot_be_read_is_reported_at_the_release(make: Make) -> None:
    lab = make()
    (lab.state_dir / "offers.journal").mkdir()
    (lines,) = lab.cluster.release()
    assert lines.startswith("what a daemon before this one has offered is not known: ")


# ---------------------------------------------------------------------------------------------------------- extensions


def extend(lab: Lab, by_s: float) -> tuple[bool, str]:
    at = row(lab.snapshot(), "1")
    (outcome,) = lab.cluster.apply([ExtendLimit(BECAUSE, at, by_s)])
    return outcome.done, outcome.reason


def test_limits_are_extended_by_whole_minutes(make: Make) -> None:
    lab = make()
    assert extend(lab, 61.0) == (True, "")
    assert lab.slurm.updates == [("1", {"TimeLimit": "+2"})]
    snapshot = lab.snapshot(5)
    at = row(snapshot, "1")
    assert snapshot.jobs.extended_s[at] == 120.0
    assert snapshot.jobs.limit_end_s[at] == START_S - 60 + 3720
    assert extend(lab, 60.0) == (True, "") and snapshot.jobs.extended_s[at] == 180.0


def test_extensions_stop_where_they_must(make: Make) -> None:
    lab = make()
    lab.slurm.promised = [Reservation("maint", "n[1,4]", START_S - 60 + 3690, START_S + 9000)]
    assert extend(lab, 600.0) == (True, "")
    assert lab.slurm.updates[-1] == ("1", {"TimeLimit": "+1"})
    done, why = extend(lab, 60.0)
    assert not done and "reservation" in why
    lab = make()
    lab.slurm.walls = ({("physics", "ann", ""): 3600.0}, {})
    assert not extend(lab, 60.0)[0]
    lab = make()
    lab.slurm.walls = ({}, {"normal": 3660.0})
    assert extend(lab, 600.0)[0] and lab.slurm.updates[-1] == ("1", {"TimeLimit": "+1"})


def test_limits_of_associations_outlive_a_database_that_is_away_and_are_asked_for_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = make()
    lab.slurm.walls = ({("physics", "ann", ""): 3600.0}, {})

    def latest_end_s(after_s: float) -> float:
        snapshot = lab.snapshot(after_s)
        return float(snapshot.jobs.latest_end_s[row(snapshot, "1")]) - (START_S - 60)

    def away() -> None:
        raise ClusterError("sacctmgr: Connection refused")

    assert latest_end_s(0) == 3600.0
    with monkeypatch.context() as broken:
        broken.setattr(lab.slurm, "wall_limits", away)
        assert latest_end_s(3601) == 3600.0
    assert (
        lab.cluster.notices[-1]
        == "limits of associations and QOS are as they were: sacctmgr: Connection refused"
    )
    lab.slurm.walls = ({("physics", "ann", ""): 1800.0}, {})
    assert latest_end_s(301) == 1800.0


# ------------------------------------------------------------------------------------------------------------ finished


def test_finished_jobs_are_reported_once(make: Make) -> None:
    lab = make()
    lab.snapshot()
    lab.actors.report("n1", sample(1, cpu_time_s=45.0), time_s=START_S + 30)
    lab.snapshot(30)
    lab.slurm.end(1, START_S + 40)
    snapshot = lab.snapshot(30)
    finished = lab.cluster.finished(0.0)
    assert names(snapshot, finished.row) == ["1"]
    assert finished.end_s.tolist() == [START_S + 40] and finished.run_s.tolist() == [100.0]
    assert finished.cpu_fraction.tolist() == [pytest.approx(45.0 / (2 * 90.0))]
    for _ in range(3):
        lab.snapshot(30)
        assert len(lab.cluster.finished(0.0).row) == 0


def test_a_job_that_ran_within_a_second_is_reported_too(make: Make) -> None:
    lab = make()
    lab.slurm.add(running(3, {"n3": 2}, start_time=int(START_S)))
    assert "3" in names(lab.snapshot(), lab.snapshot().running)
    lab.slurm.end(3, START_S)
    snapshot = lab.snapshot(1)
    finished = lab.cluster.finished(0.0)
    assert names(snapshot, finished.row) == ["3"] and 0 < finished.run_s[0] < 1
    lab.slurm.add(a_job(4))
    lab.snapshot(1)
    lab.slurm.jobs[4] |= {
        "job_state": "CANCELLED",
        "start_time": int(START_S) + 9,
        "end_time": int(START_S) + 9,
    }
    lab.snapshot(9)
    assert not len(lab.cluster.finished(0.0).row), "one that is cancelled while it waits did not run"


def test_jobs_that_squeue_has_forgotten_are_asked_of_accounting(make: Make) -> None:
    lab = make()
    lab.slurm.add(a_job(11), a_job(12))
    lab.snapshot()
    for number in (1, 2, 10, 11):
        del lab.slurm.jobs[number]
    lab.slurm.in_accounting = {
        1: Ended(1, START_S - 60, START_S + 7, 67.0),
        11: Ended(11, START_S + 1, START_S + 5, math.nan),  # started and ended between two looks
    }
    snapshot = lab.snapshot(30)
    finished = lab.cluster.finished(0.0)
    assert dict(zip(names(snapshot, finished.row), finished.run_s, strict=True)) == {
        "1": 67.0,
        "2": 90.0,
        "11": 4.0,
    }
    by_job = dict(zip(names(snapshot, finished.row), finished.cpu_fraction, strict=True))
    assert by_job["1"] == 0.5 and math.isnan(by_job["11"])
    assert names(snapshot, snapshot.queue) == ["12"]  # 10 was cancelled: it never ran, and is not reported


def test_what_ended_before_the_daemon_started_is_not_reported(make: Make) -> None:
    lab = make()
    lab.slurm.end(1, START_S - 5)
    lab.snapshot()
    assert len(lab.cluster.finished(0.0).row) == 0
    lab.slurm.add(running(7, {"n4": 2}, job_state="COMPLETED", start_time=START_S + 3, end_time=START_S + 9))
    snapshot = lab.snapshot(30)
    assert names(snapshot, lab.cluster.finished(0.0).row) == ["7"]  # short, and seen only when it was over


def test_a_job_that_leaves_holds_its_cores_and_is_nothing_else(make: Make) -> None:
    lab = make()
    at = row(lab.snapshot(), "1")
    lab.slurm.jobs[1]["job_state"] = "COMPLETING"
    snapshot = lab.snapshot(5)
    assert "1" not in names(snapshot, snapshot.running) and snapshot.core_owner[:2].tolist() == [at, at]
    lab.slurm.jobs[1] = a_job(1, restart_cnt=1)
    snapshot = lab.snapshot(5)
    assert row(snapshot, "1") == at and "1" in names(snapshot, snapshot.queue)
    assert len(lab.cluster.finished(0.0).row) == 0


def test_a_job_that_is_requeued_before_its_end_was_reported_keeps_its_new_row(make: Make) -> None:
    lab = make()
    lab.snapshot()
    lab.slurm.end(1, START_S + 20)
    lab.snapshot(30)  # and the cycle broke off before it asked what had ended
    lab.slurm.jobs[1] = a_job(1, restart_cnt=1)
    snapshot = lab.snapshot(30)
    (waits,) = (at for at in snapshot.queue.tolist() if snapshot.jobs.job_id[at] == "1")
    (ended,) = lab.cluster.finished(0.0).row.tolist()
    assert ended != waits
    for _ in range(2):
        snapshot = lab.snapshot(30)
        assert waits in snapshot.queue, "it is not lost, nor another job by now"
    assert names(snapshot, snapshot.queue).count("1") == 1


# ------------------------------------------------------------------------------------------------------------- refusals


def test_decisions_for_rows_and_nodes_that_are_not_there_are_refused(make: Make) -> None:
    lab = make()
    snapshot = lab.snapshot()
    waits, runs = row(snapshot, "10"), row(snapshot, "1")
    decisions: list[Decision] = [
        CoAllocate(BECAUSE, waits, nodes, host=runs, share=0.5) for nodes in ((), (-1,), (4,))
    ]
    for nowhere in (-1, 10**6):
        decisions += [
            CoAllocate(BECAUSE, nowhere, (0,), host=runs, share=0.5),
            CoAllocate(BECAUSE, waits, (0,), host=nowhere, share=0.5),
            SetShare(BECAUSE, nowhere, 0.5),
            SetMemory(BECAUSE, nowhere, 1e9),
            ExtendLimit(BECAUSE, nowhere, 60.0),
            Withdraw(BECAUSE, nowhere),
            Evict(BECAUSE, nowhere, "cancel"),
            Start(BECAUSE, nowhere),
        ]
    outcomes = list(lab.cluster.apply(decisions))
    assert not any(outcome.done for outcome in outcomes)
    assert {outcome.reason for outcome in outcomes[:3]} == {"there is no such node"}
    assert not lab.slurm.updates


# -------------------------------------------------------------------------------------------------------- measurements


def test_pressure_slows_a_host_that_lends_and_is_kept(make: Make) -> None:
    lab = make()
    lab.offer(lab.snapshot(), "10", "1", "n1")
    lab.slurm.start(10, "n1", START_S)
    lab.snapshot()
    for node, number in (("n1", 1), ("n2", 2)):
        lab.actors.report(node, sample(number, pressure=0.1, throttled=0.3), time_s=START_S + 30)
    snapshot = lab.snapshot(30)
    lends, alone = row(snapshot, "1"), row(snapshot, "2")
    assert snapshot.jobs.pressure[lends] == 0.1
    assert snapshot.jobs.pace[lends] == pytest.approx(0.7) and snapshot.jobs.lost_s[lends] == pytest.approx(
        9.0
    )
    assert snapshot.jobs.pace[alone] == 1.0 and snapshot.jobs.lost_s[alone] == 0.0
    lab.slurm.end(1, START_S + 40)
    lab.snapshot(30)
    finished = lab.cluster.finished(0.0)
    assert finished.lost_s.tolist() == [pytest.approx(9.0)] and np.isnan(finished.cpu_fraction).all()


def test_what_a_job_lost_before_it_was_requeued_is_not_lost_of_its_next_run(make: Make) -> None:
    lab = make()
    lab.offer(lab.snapshot(), "10", "1", "n1")
    lab.slurm.start(10, "n1", START_S)
    lab.snapshot()
    lab.actors.report("n1", sample(1, throttled=0.3, cpu_time_s=40.0), time_s=START_S + 30)
    snapshot = lab.snapshot(30)
    host = row(snapshot, "1")
    assert snapshot.jobs.lost_s[host] == pytest.approx(9.0)
    lab.slurm.jobs[1] = a_job(1, restart_cnt=1)
    lab.actors.report("n1")
    assert lab.snapshot(30).jobs.lost_s[host] == 0.0
    lab.slurm.start(1, "n4", START_S + 70)
    lab.actors.report("n4", sample(1, cpu_time_s=20.0), time_s=START_S + 90)
    lab.snapshot(30)
    lab.slurm.end(1, START_S + 100)
    lab.snapshot(30)
    finished = lab.cluster.finished(0.0)
    assert (finished.run_s.tolist(), finished.lost_s.tolist()) == ([30.0], [0.0])
    assert finished.cpu_fraction.tolist() == [pytest.approx(20.0 / (2 * 20.0))], (
        "it was squeezed in its last run alone"
    )


def test_a_guests_pace_is_what_it_gets_of_what_its_kind_wants(make: Make) -> None:
    lab = make()
    lab.slurm.add(running(3, {"n3": 2}, name="app10"))
    lab.snapshot()
    lab.actors.report("n3", sample(3, cpu_time_s=90.0), time_s=START_S + 30)
    lab.snapshot(30)
    lab.slurm.end(3, START_S + 30)
    lab.snapshot(5)
    assert lab.cluster.finished(0.0).cpu_fraction.tolist() == [0.5]
    lab.offer(lab.snapshot(), "10", "1", "n1")
    lab.slurm.start(10, "n1", START_S + 40)
    lab.actors.report("n1", sample(1), sample(10, guest=True, cpu_fraction=0.2), time_s=START_S + 60)
    snapshot = lab.snapshot(30)
    at = row(snapshot, "10")
    assert snapshot.jobs.pace[at] == pytest.approx(0.4) and snapshot.jobs.cpu_fraction[at] == 0.5


def test_a_guest_of_an_unknown_kind_loses_what_it_gets_less_than_before(make: Make) -> None:
    lab = make()
    lab.offer(lab.snapshot(), "10", "1", "n1")
    lab.slurm.start(10, "n1", START_S)
    lab.snapshot()
    for cpu_fraction, after_s in ((0.6, 30), (0.06, 60)):
        guest = sample(10, guest=True, cpu_fraction=cpu_fraction)
        lab.actors.report("n1", sample(1), guest, time_s=START_S + after_s)
        snapshot = lab.snapshot(30)
    at = row(snapshot, "10")
    assert math.isnan(snapshot.jobs.pace[at]), "nobody knows what it wants"
    assert snapshot.jobs.lost_s[at] == pytest.approx(27.0)


def test_happiness_is_progress_over_passed_time(make: Make) -> None:
    lab = make()
    lab.actors.report("n1", sample(1, progress=0.5))
    snapshot = lab.snapshot(540)  # 600 s of 3600 s
    assert snapshot.jobs.happiness[row(snapshot, "1")] == pytest.approx(3.0)
    assert math.isnan(snapshot.jobs.happiness[row(snapshot, "2")])


@pytest.mark.parametrize(
    ("comment", "done", "happiness"),
    [
        ("asad:steps=8", 2, 1.5),  # a quarter of it in a sixth of its time
        ("mine; asad:no-host asad:steps=8", 2, 1.5),
        ("asad:steps=8", 0, 3.0),  # none has ended yet: what its line says
        ("asad:steps=1", 9, 6.0),
        ("asad:steps=0", 2, 3.0),
        ("asad:steps=8x", 2, 3.0),
        ("notasad:steps=8", 2, 3.0),
        ("", 2, 3.0),
    ],
)
def test_steps_that_have_ended_show_more_than_a_line(
    make: Make, comment: str, done: int, happiness: float
) -> None:
    lab = make()
    lab.slurm.jobs[1]["comment"] = comment
    lab.actors.report("n1", sample(1, progress=0.5, steps_done=done))
    snapshot = lab.snapshot(540)  # 600 s of 3600 s
    assert snapshot.jobs.happiness[row(snapshot, "1")] == pytest.approx(happiness)


def test_nodes_that_saw_other_steps_count_as_the_least(make: Make) -> None:
    lab = make()
    lab.slurm.add(running(1, {"n1": 2, "n4": 2}, comment="asad:steps=10"))
    lab.actors.report("n1", sample(1, steps_done=5))
    lab.actors.report("n4", sample(1, steps_done=3))
    snapshot = lab.snapshot(540)
    assert snapshot.jobs.happiness[row(snapshot, "1")] == pytest.approx(0.3 * 6)


def a_task(number: int, task: int, node: str, **facts: Any) -> dict[str, Any]:
    return running(number, {node: 2}, array_job_id=50, array_task_id=task, **facts)


def test_tasks_of_an_array_show_more_than_anything_else(make: Make) -> None:
    lab = make()
    lab.slurm.jobs.clear()
    begun = int(START_S) - 1000
    ended = {"job_state": "COMPLETED", "start_time": begun}
    lab.slurm.add(
        *(a_task(50 + i, i, "n4", end_time=begun + run_s, **ended) for i, run_s in ((1, 400), (2, 500))),
        a_task(53, 3, "n2", start_time=begun),
        a_task(54, 4, "n1", start_time=begun, end_time=begun + 3600),
        a_task(55, 5, "n4", end_time=begun + 3, job_state="FAILED", start_time=begun),
        a_job(50, array_job_id=50, array_task_string="6-9"),
    )
    lab.actors.report("n1", sample(54, progress=0.5))

    def happiness(after_s: float) -> float:
        snapshot = lab.snapshot(after_s)
        lab.cluster.finished(0.0)
        return float(snapshot.jobs.happiness[row(snapshot, "50_4")])

    assert happiness(0) == pytest.approx(0.5 * 3.6)  # two have ended well: too few
    lab.slurm.jobs[53] |= {"job_state": "COMPLETED", "end_time": int(START_S) + 500}
    # three of 3600 s in 400 + 500 + 1500 s, and its own 1600 s are 800 s beyond their mean
    assert happiness(600) == pytest.approx(3 * 3600 / (2400 + 800))
    assert happiness(60) == pytest.approx(3 * 3600 / (2400 + 860))
    lab.slurm.jobs[54]["time_limit"] = None
    assert math.isnan(happiness(0))  # without a limit there is no time to be in


def test_guests_and_forgotten_tasks_of_an_array(make: Make) -> None:
    lab = make()
    lab.slurm.jobs.clear()
    lab.slurm.add(*(a_task(50 + i, i, f"n{i}") for i in (1, 2, 3)), a_task(54, 4, "n4", partition="guest"))
    lab.slurm.add(a_task(55, 5, "n4"))
    lab.snapshot()
    for number in (1, 2, 3):
        del lab.slurm.jobs[50 + number]
        lab.slurm.in_accounting[50 + number] = Ended(
            50 + number, START_S - 60, START_S + 40, math.nan, number < 3
        )
    lab.slurm.jobs[54] |= {"job_state": "COMPLETED", "end_time": int(START_S) + 900}
    snapshot = lab.snapshot(1000)
    assert math.isnan(
        snapshot.jobs.happiness[row(snapshot, "50_5")]
    )  # two of four count: no guest, no failure
    lab.slurm.jobs[56] = a_task(56, 6, "n1", start_time=int(START_S) + 900)
    lab.snapshot(10)
    lab.slurm.jobs[56] |= {"job_state": "COMPLETED", "end_time": int(START_S) + 1000}
    snapshot = lab.snapshot(10)
    over_s = 1080 - 100
    assert snapshot.jobs.happiness[row(snapshot, "50_5")] == pytest.approx(3 * 3600 / (300 + over_s))


def test_unknown_jobs_in_reports_are_passed_over(make: Make) -> None:
    lab = make()
    lab.actors.report("n1", sample(1), sample(999))
    lab.actors.latest["ghost"] = lab.actors.latest["n1"]
    snapshot = lab.snapshot()
    assert snapshot.jobs.cpu_fraction[row(snapshot, "1")] == 0.25


def test_actors_are_a_node_link() -> None:
    from asad.port import NodeLink

    link: NodeLink = Actors("n1")
    assert list(link.reports()) == ["n1"]
    assert CommandTransport(1.0).answers
