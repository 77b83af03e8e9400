"""Guests that draw from the pools of their nodes, on Slurm: offers without a host, quotas, what hosts lend."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asad_slurm import undo
from asad_slurm.journal import Journal
from asad_slurm.offers import Offer
from slurm_samples import BECAUSE, START_S, Lab, SlurmInMemory, a_job, names, row, running, sample

from asad.admit.everyone import Everyone
from asad.config import GuardSettings, parse
from asad.cycle import Cycle
from asad.decisions import CoAllocate, Decision, SetMemory, SetQuota, SetShare, Withdraw
from asad.defer.at_once import AtOnce
from asad.guard import guard_for
from asad.ineligible import NodeIneligible
from asad.model import Snapshot
from asad.place.native import Native
from asad.port import Lease
from asad.stages import Circumstances, live_guard, policy_of, stages_of

Make = Callable[..., Lab]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Hosts of whole nodes on n1 to n3, two jobs and a free core on n4, n5 idle; job 10 of two cores waits."""

    def lab(**settings: Any) -> Lab:
        slurm = SlurmInMemory(nodes=5, cores=4)
        slurm.add(*(running(i, {f"n{i}": 4}) for i in (1, 2, 3)), a_job(10))
        slurm.add(running(4, {"n4": 2}), running(5, {"n4": 1}))
        made = Lab(tmp_path, slurm, **settings)
        for i in (1, 2, 3):
            made.actors.report(f"n{i}", sample(i, cores=4, cpu_fraction=0.25))
        return made

    return lab


def do(lab: Lab, decision: Decision) -> str:
    """Apply it, and say why not."""
    (outcome,) = lab.cluster.apply([decision])
    assert outcome.done == (outcome.reason == "")
    return outcome.reason


def draw(lab: Lab, snapshot: Snapshot, guest: str, **demands: float) -> str:
    """Offer a job the nodes, from which it draws so many cores' worth of CPU; why not."""
    nodes = tuple(snapshot.machine.node_names.index(node) for node in demands)
    return do(lab, CoAllocate(BECAUSE, row(snapshot, guest), nodes, tuple(demands.values())))


def guest_on(lab: Lab, node: str = "n1", demand: float = 1.2) -> Snapshot:
    """Job 10 runs as a guest that draws from the pool of a node."""
    assert draw(lab, lab.snapshot(), "10", **{node: demand}) == ""
    lab.slurm.start(10, node, lab.now_s + 2)
    return lab.snapshot(10)


def leased(lab: Lab, node: str = "n1") -> dict[str, Lease]:
    return {lease.job_id: lease for lease in lab.actors.granted[-1].get(node, ())}


# -------------------------------------------------------------------------------------------------------------- offers


def test_an_offer_without_a_host_is_made_beside_whoever_holds_the_nodes(make: Make) -> None:
    lab = make()
    assert draw(lab, lab.snapshot(), "10", n1=1.2) == ""
    bound = {"Partition": "guest", "ReqNodeList": "n1", "NumNodes": "1-1"}
    assert lab.slurm.updates == [("10", bound)]
    (line,) = Journal(lab.state_dir).open_offers().values()
    assert (line["host"], line["demands"], line["demand"]) == ("", {"n1": 1.2}, 0.6)
    assert line["num_nodes"] == "1-65534"
    guest, host = leased(lab)["10"], leased(lab)["1"]
    assert (guest.host_id, guest.cores) == ("1", 2)
    assert guest.quota == pytest.approx(0.6)  # its first quota is what it should need
    assert math.isnan(host.quota)
    snapshot = lab.snapshot(5)
    at, jobs = row(snapshot, "10"), snapshot.jobs
    assert jobs.offered_s[at] == START_S and jobs.demand[at] == pytest.approx(0.6)
    assert jobs.host[at] == -1 and math.isnan(jobs.share[at])
    assert snapshot.core_guest[:4].tolist() == [at, at, -1, -1]
    assert np.isnan(jobs.demand[snapshot.running]).all()
    assert draw(lab, snapshot, "10", n2=1.0) == "it has an offer already"


def test_nodes_of_several_jobs_and_of_none_take_guests(make: Make) -> None:
    lab = make()
    lab.slurm.add(a_job(11), a_job(12, cpus=3))
    snapshot = lab.snapshot()
    assert snapshot.lends_free_cores and not snapshot.whole_nodes
    assert snapshot.jobs.host_bar[row(snapshot, "4")] == 0
    assert draw(lab, snapshot, "10", n4=0.8) == ""
    assert draw(lab, snapshot, "12", n4=0.8) == "other guests are on the cores of n4"
    assert draw(lab, snapshot, "11", n5=0.8) == ""  # nobody holds a core of it
    lab.slurm.start(10, "n4", lab.now_s + 2)
    lab.slurm.start(11, "n5", lab.now_s + 2)
    snapshot = lab.snapshot(10)
    of_n4, of_n5 = leased(lab, "n4"), leased(lab, "n5")
    assert of_n4.keys() == {"10", "4", "5"} and of_n4["10"].host_id == "4"
    assert not of_n4["4"].guest and of_n4["10"].quota == pytest.approx(0.4)
    assert of_n5.keys() == {"11"} and math.isnan(of_n5["11"].quota)  # nobody is there whom it could hurt
    beside = lab.cluster._lending.shares.hosts[row(snapshot, "10")]
    assert names(snapshot, [one for one in beside if one >= 0]) == ["4", "5"] and -1 in beside
    assert sum(beside.values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("demands", "why"),
    [
        ({"n1": math.nan}, "demands (nan,) are not one for each of 1 nodes"),
        ({"n1": -1.0}, "demands (-1.0,) are not one for each of 1 nodes"),
    ],
)
def test_demands_that_mean_nothing_are_refused(make: Make, demands: Mapping[str, float], why: str) -> None:
    lab = make()
    snapshot = lab.snapshot()
    assert draw(lab, snapshot, "10", **demands) == why
    guest = row(snapshot, "10")
    assert do(lab, CoAllocate(BECAUSE, guest, (), ())) == "there is no such node"
    assert do(lab, CoAllocate(BECAUSE, guest, (9,), (1.0,))) == "there is no such node"
    assert do(lab, CoAllocate(BECAUSE, guest, (0, 0), (1.0, 1.0))) == "a node is named twice"
    assert do(lab, CoAllocate(BECAUSE, guest, (0,), (1.0, 1.0))).startswith("demands (1.0, 1.0) are not one")
    assert not lab.slurm.updates


def test_peaks_are_those_of_the_node_and_of_the_job_there(make: Make) -> None:
    lab = make()
    lab.actors.report("n4", sample(4, cpu_peak=0.5), sample(5, cores=1, cpu_peak=0.7))
    lab.actors.report(
        "n1", sample(1, cores=4, cpu_peak=0.9, since_s=START_S - 10.0)
    )  # not watched long enough
    snapshot = lab.snapshot()
    assert snapshot.core_peak is not None
    first = snapshot.machine.first_core
    assert snapshot.core_peak[first[3] : first[4]].tolist() == pytest.approx(
        [0.5, 0.5, 0.7, math.nan], nan_ok=True
    )
    assert np.isnan(snapshot.core_peak[: first[1]]).all()
    assert snapshot.core_peak[first[1] : first[2]].tolist() == [0.3] * 4


def test_how_many_nodes_a_job_wants_is_returned(make: Make) -> None:
    lab = make()
    lab.slurm.add(
        a_job(11, max_nodes=1), a_job(12, max_nodes=3), a_job(13, cpus=4, node_count=2, max_nodes=4)
    )
    snapshot = lab.snapshot()
    assert draw(lab, snapshot, "11", n1=0.5) == "" and draw(lab, snapshot, "12", n2=0.5) == ""
    assert (
        draw(lab, snapshot, "13", n2=0.5, n3=0.5) == "how many nodes its user asked for could not be restored"
    )
    offers = [words for _, words in lab.slurm.updates if "Partition" in words]
    assert [words.get("NumNodes") for words in offers] == [None, "1-1"]
    for job in ("11", "12"):
        assert do(lab, Withdraw(BECAUSE, row(snapshot, job))) == ""
    offers = [words for _, words in lab.slurm.updates if "Partition" in words]
    assert [words.get("NumNodes") for words in offers[2:]] == [None, "1-3"]
    assert lab.slurm.jobs[12]["max_nodes"] == 3


def test_a_node_where_somebody_may_not_lend_takes_no_guests(make: Make) -> None:
    lab = make()
    lab.slurm.add(running(5, {"n4": 1}, comment="asad:no-host"))
    snapshot = lab.snapshot()
    assert (
        NodeIneligible(snapshot.node_bar[3]).text == "a job there may not lend" and snapshot.node_bar[0] == 0
    )
    assert draw(lab, snapshot, "10", n4=0.5) == "5 on n4 may not lend: it opted out"


def test_who_may_meet_is_what_slurm_says(make: Make) -> None:
    lab = make(share_users="as-slurm")
    lab.slurm.exclusive_user = True  # of the partition urgent
    lab.slurm.add(
        running(1, {"n1": 4}, mcs_label="red"),
        running(2, {"n2": 4}, user_name="bob"),
        running(3, {"n3": 4}, user_name="bob", partition="urgent"),
        a_job(11, mcs_label="red"),
    )
    snapshot = lab.snapshot()
    group = snapshot.jobs.share_group
    assert group[row(snapshot, "10")] == group[row(snapshot, "2")] == 0
    assert group[row(snapshot, "11")] == group[row(snapshot, "1")] > 0
    assert 0 < group[row(snapshot, "3")] != group[row(snapshot, "1")]
    assert draw(lab, snapshot, "11", n2=0.5) == "its user's jobs may share with that user's alone"
    assert draw(lab, snapshot, "11", n1=0.5) == ""
    assert draw(lab, snapshot, "10", n2=0.5) == ""


def test_guests_run_wide_where_all_actors_say_so(make: Make) -> None:
    lab = make()
    for i in (1, 2, 3, 4, 5):
        lab.actors.latest[f"n{i}"] = replace(lab.actors.latest[f"n{i}"], widens=True)
    assert lab.snapshot().widened
    guest_on(lab, "n4")
    lease = leased(lab, "n4")["10"]
    assert lease.widen and lease.quota == pytest.approx(0.6)
    lab.actors.latest["n3"] = replace(lab.actors.latest["n3"], widens=False)
    assert not lab.snapshot(5).widened and not leased(lab, "n4")["10"].widen
    lab.actors.latest["n3"] = replace(lab.actors.latest["n3"], widens=True)
    assert leased(lab, "n4")["10"].widen is False
    lab.snapshot(5)
    assert leased(lab, "n4")["10"].widen
    for number in (4, 5):
        lab.slurm.end(number, lab.now_s + 1)
    lab.snapshot(5)
    lease = leased(lab, "n4")["10"]
    assert not lease.widen and math.isnan(lease.quota)  # beside nobody its own cores are all that it needs


def test_hosts_that_may_not_lend_are_refused_for_pools_too(make: Make) -> None:
    lab = make(share_users="same")
    lab.slurm.add(running(1, {"n1": 4}, user_name="bob"), running(2, {"n2": 4}, comment="asad:no-host"))
    snapshot = lab.snapshot()
    assert draw(lab, snapshot, "10", n1=0.5) == "its user's jobs may share with that user's alone"
    assert draw(lab, snapshot, "10", n2=0.5) == "2 on n2 may not lend: it opted out"


def test_an_offer_outlives_the_holder_and_is_withdrawn(make: Make) -> None:
    lab = make()
    assert draw(lab, lab.snapshot(), "10", n1=1.2) == ""
    lab.slurm.end(1, START_S + 3)
    snapshot = lab.snapshot(5)  # free cores give what it needs as well
    assert lab.slurm.jobs[10]["partition"] == "guest" and not lab.cluster.notices
    at = row(snapshot, "10")
    assert do(lab, Withdraw(BECAUSE, at)) == ""
    assert math.isnan(snapshot.jobs.demand[at]) and not (snapshot.core_guest == at).any()
    assert lab.actors.granted[-1] == {}


# -------------------------------------------------------------------------------------------------------------- quotas


def test_a_quota_is_a_lease_that_every_look_renews(make: Make) -> None:
    lab = make()
    snapshot = guest_on(lab)
    at, jobs = row(snapshot, "10"), snapshot.jobs
    assert names(snapshot, snapshot.guests) == ["10"]
    assert jobs.demand[at] == pytest.approx(0.6) and jobs.host[at] == -1 and math.isnan(jobs.share[at])
    assert leased(lab)["10"].quota == pytest.approx(0.6)
    assert do(lab, SetQuota(BECAUSE, at, (0,), (0.5,))) == ""
    assert leased(lab)["10"].quota == pytest.approx(0.25)  # half a core, of its two
    lab.snapshot(10)
    assert leased(lab)["10"].quota == pytest.approx(0.25)
    assert do(lab, SetQuota(BECAUSE, at, (0,), (7.0,))) == ""
    assert leased(lab)["10"].quota == 1.0


def test_quotas_that_mean_nothing_are_refused(make: Make) -> None:
    lab = make()
    lab.slurm.add(a_job(11))
    snapshot = guest_on(lab)
    at = row(snapshot, "10")
    assert do(lab, SetQuota(BECAUSE, at, (1,), (1.0,))) == "it is not on such a node"
    for cores in ((0.0,), (math.nan,), (math.inf,), (1.0, 1.0)):
        assert "are not one above 0 for each of 1 nodes" in do(lab, SetQuota(BECAUSE, at, (0,), cores))
    for other in ("2", "11"):  # a batch job, and one that waits
        gone = do(lab, SetQuota(BECAUSE, row(snapshot, other), (1,), (1.0,)))
        assert gone == "it does not run as a guest any more"
    assert do(lab, SetShare(BECAUSE, at, 0.3)).startswith("it draws from the pools of its nodes")
    assert leased(lab)["10"].quota == pytest.approx(0.6)
    assert lab.offer(snapshot, "11", "2", "n2") == ""  # a pair
    lab.slurm.start(11, "n2", lab.now_s + 2)
    snapshot = lab.snapshot(10)
    pair = row(snapshot, "11")
    assert math.isnan(snapshot.jobs.demand[pair]) and snapshot.jobs.share[pair] == 0.5
    assert do(lab, SetQuota(BECAUSE, pair, (1,), (1.0,))).startswith("it is the guest of a pair")


def test_quotas_fail_open(make: Make) -> None:
    lab = make()
    snapshot = guest_on(lab)
    lab.slurm.end(1, lab.now_s + 1)
    snapshot = lab.snapshot(10)
    lease = leased(lab)["10"]
    assert (
        lease.guest and lease.host_id == "" and math.isnan(lease.quota)
    )  # nobody is there whom it could hurt
    lab.slurm.add(running(6, {"n1": 4}, start_time=int(lab.now_s) + 1))
    snapshot = lab.snapshot(10)
    assert leased(lab)["10"].quota == pytest.approx(0.6) and leased(lab)["10"].host_id == "6"
    assert snapshot.jobs.demand[row(snapshot, "10")] == pytest.approx(0.6)
    lab.cluster.release()
    assert lab.actors.granted[-1] == {}
    lab.snapshot(10)
    assert math.isnan(leased(lab)["10"].quota)  # the idle class holds it, until more is decided
    lab.slurm.end(10, lab.now_s + 1)
    lab.snapshot(10)
    assert lab.actors.granted[-1] == {}


def test_of_a_guest_on_several_nodes_each_has_its_quota(make: Make) -> None:
    lab = make()
    for number in (2, 3):
        del lab.slurm.jobs[number]
    lab.slurm.add(running(2, {"n2": 4, "n3": 4}), a_job(10, cpus=4, node_count=2, max_nodes=2))
    for node in ("n2", "n3"):
        lab.actors.report(node, sample(2, cores=4))
    assert draw(lab, lab.snapshot(), "10", n2=1.0, n3=0.5) == ""
    seen = running(10, {"n2": 2, "n3": 2}, partition="guest", required_nodes="n[2-3]")
    lab.slurm.jobs[10] = seen | {"start_time": int(lab.now_s) + 1}
    snapshot = lab.snapshot(10)
    at = row(snapshot, "10")
    assert snapshot.jobs.demand[at] == pytest.approx(1.5 / 4)
    assert [leased(lab, node)["10"].quota for node in ("n2", "n3")] == [0.5, 0.25]
    assert do(lab, SetQuota(BECAUSE, at, (2,), (2.0,))) == ""
    assert [leased(lab, node)["10"].quota for node in ("n2", "n3")] == [0.5, 1.0]


# --------------------------------------------------------------------------------------------------------------- hosts


def test_what_a_host_lends_is_recorded_and_binds_nobody(make: Make) -> None:
    lab = make()
    snapshot = guest_on(lab)
    host, before = row(snapshot, "1"), leased(lab)
    assert do(lab, SetShare(BECAUSE, share=0.3, host=host)) == ""
    assert snapshot.jobs.share[host] == 0.3
    snapshot = lab.snapshot(10)
    assert snapshot.jobs.share[host] == 0.3 and snapshot.jobs.host[host] == -1
    assert repr(leased(lab)) == repr(before)
    lab.slurm.add(a_job(12))
    assert do(lab, SetShare(BECAUSE, share=0.3, host=row(snapshot, "10"))) == "it does not run any more"
    assert do(lab, SetShare(BECAUSE, share=0.3, host=row(lab.snapshot(), "12"))) == "it does not run any more"
    assert do(lab, SetShare(BECAUSE, share=1.5, host=host)) == "a share of 1.5 is none"
    lab.slurm.end(1, lab.now_s + 1)
    lab.snapshot(10)
    lab.cluster.finished(0.0)
    lab.snapshot(10)
    assert lab.cluster._lending.shares.lent == {}


def test_pressure_and_ledger_know_those_who_lend_to_a_pool(make: Make) -> None:
    lab = make()
    guest_on(lab)
    lab.actors.report(
        "n1", sample(1, cores=4, pressure=0.3), sample(10, guest=True, cpu_time_s=7.0), time_s=lab.now_s + 9
    )
    snapshot = lab.snapshot(10)
    assert snapshot.jobs.pace[row(snapshot, "1")] == pytest.approx(0.7)
    assert do(lab, SetMemory(BECAUSE, row(snapshot, "1"), 1e9)) == ""
    assert do(lab, SetMemory(BECAUSE, row(snapshot, "2"), 1e9)) == "it shares its nodes with nobody"
    lab.slurm.end(1, lab.now_s + 1)
    lab.slurm.end(10, lab.now_s + 1)
    lab.snapshot(10)
    lab.cluster.finished(0.0)
    record = {entry["job_id"]: (entry["role"], entry["lent_core_s"]) for entry in lab.cluster.ledger}
    assert record == {"1": ("host", 7.0), "10": ("guest", 7.0)}


# ------------------------------------------------------------------------------------------------------- restart, undo


def test_the_next_daemon_knows_whose_guests_draw_from_pools(make: Make) -> None:
    lab = make()
    lab.slurm.add(a_job(11))
    snapshot = guest_on(lab)
    assert draw(lab, snapshot, "11", n2=0.8) == ""
    lab.cluster = lab.open()
    assert lab.cluster.recover() == ["11: an offer to it was left over; it waits in batch again"]
    snapshot = lab.snapshot(5)
    at = row(snapshot, "10")
    assert snapshot.jobs.demand[at] == pytest.approx(0.6) and snapshot.jobs.host[at] == -1
    assert math.isnan(leased(lab)["10"].quota)  # as a share: the idle class holds it until more is decided
    assert do(lab, SetQuota(BECAUSE, at, (0,), (1.0,))) == ""
    assert leased(lab)["10"].quota == 0.5


def test_journals_of_before_load_as_pairs(make: Make) -> None:
    lab = make()
    lab.offer(lab.snapshot(), "10", "1", "n1", share=0.4)
    lab.slurm.start(10, "n1", lab.now_s + 2)
    lab.snapshot(10)
    path = lab.state_dir / "offers.journal"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line.pop("demands", None)
        line.pop("demand", None)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    lab.cluster = lab.open()
    assert lab.cluster.recover() == []
    snapshot = lab.snapshot(10)
    at = row(snapshot, "10")
    assert math.isnan(snapshot.jobs.demand[at]) and names(snapshot, [snapshot.jobs.host[at]]) == ["1"]
    assert do(lab, SetShare(BECAUSE, at, 0.3)) == ""


@pytest.mark.parametrize("wrong", [{"demands": {"n1": -1.0}}, {"demands": {"n1": 1.0}}, {"demands": 3}])
def test_demands_that_make_no_sense_are_no_offer(wrong: dict[str, Any]) -> None:
    line: dict[str, Any] = {"job": "12", "raw": 12, "partition": "batch", "required_nodes": ""}
    line |= {
        "guest_partition": "guest",
        "nodes": "n1",
        "host": "7",
        "time_s": 1.0,
        "share": 0.0,
        "capped": False,
    }
    assert not Offer.from_json(line).pooled
    with pytest.raises((ValueError, TypeError)):
        Offer.from_json(line | wrong)


def test_undo_takes_such_an_offer_back(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = make()
    assert draw(lab, lab.snapshot(), "10", n1=1.2) == ""
    asked: list[tuple[str, list[str]]] = []

    def update(job: str, words: list[str], timeout_s: float) -> str:
        asked.append((job, words))
        return ""

    monkeypatch.setattr(undo, "_look", lambda job, timeout_s: ("PENDING", "guest", "n1"))
    monkeypatch.setattr(undo, "_update", update)
    lines, failed = undo.undo(lab.state_dir / "offers.journal", older_than_s=0.0, now_s=START_S + 5)
    assert (lines, failed) == (["10: waits in batch again"], 0)
    assert asked == [("10", ["Partition=batch", "ReqNodeList=", "NumNodes=1-65534"])]


# ------------------------------------------------------------------------------------------------------- a whole cycle


@pytest.mark.slow
@pytest.mark.parametrize("share", ["measured", "asax"])
def test_a_policy_of_pools_lends_holds_and_relieves_on_slurm(make: Make, share: str) -> None:
    lab = make()
    config = parse(f"[policies]\nshare = '{share}'", Path("asad.toml"))
    policy = policy_of(config, "share", Circumstances(lab.cluster.applications, 0))
    guard = guard_for(policy.properties, GuardSettings())
    cycle = Cycle(lab.cluster, Everyone(), AtOnce(), Native(), policy, guard, mode="enforce")

    def look(after_s: float) -> dict[str, list[Decision]]:
        lab.now_s += after_s
        lab.slurm.now_s = lab.now_s
        cycle.run_once()
        done: dict[str, list[Decision]] = {}
        for outcome in cycle.outcomes:
            assert outcome.done, outcome
            done.setdefault(outcome.decision.kind, []).append(outcome.decision)
        return done

    offered: list[Decision] = []
    for _ in range(30):  # asax may draw a host's share anew
        offered = look(30).get("co-allocate", [])
        if offered:
            break
    (offer,) = offered
    assert isinstance(offer, CoAllocate) and offer.pooled
    node = f"n{offer.nodes[0] + 1}"
    lab.slurm.start(10, node, lab.now_s + 2)
    done = look(30)
    (quota,) = done["set-quota"]
    assert isinstance(quota, SetQuota) and quota.nodes == offer.nodes
    assert leased(lab, node)["10"].quota == pytest.approx(min(1.0, quota.cores[0] / 2))
    host = offer.nodes[0] + 1
    lab.actors.report(node, sample(host, cores=4, pressure=0.9), sample(10, guest=True), time_s=lab.now_s)
    (squeezed,) = look(30)["set-quota"]
    assert squeezed.cause.policy == "guard"
    assert leased(lab, node)["10"].quota == pytest.approx(0.05)


@pytest.mark.slow
def test_oga_holds_gangs_and_measured_all_others_through_a_restart_of_the_daemon(make: Make) -> None:
    lab = make()
    lab.slurm.add(a_job(11, comment="asad:components=1-2"))
    config = parse('[policies]\nplace = "oga"\nshare = "measured"\n', Path("asad.toml"))

    def daemon() -> Cycle:
        lab.cluster = lab.open()
        stages = stages_of(config, lab.cluster.applications, 0)
        return Cycle(lab.cluster, *stages, live_guard(config, stages), mode="enforce")

    def look(cycle: Cycle) -> dict[tuple[str, str], str]:
        """By what is decided and of whom: the policy that does."""
        lab.now_s += 30
        lab.slurm.now_s = lab.now_s
        cycle.run_once()
        assert cycle.snapshot is not None
        found = {}
        for outcome in cycle.outcomes:
            assert outcome.done, outcome
            decision = outcome.decision
            if isinstance(decision, CoAllocate | SetQuota):
                guest = str(cycle.snapshot.jobs.job_id[decision.guest])
                found[decision.kind, guest] = decision.cause.policy
                if isinstance(decision, CoAllocate):
                    lab.slurm.start(int(guest), f"n{decision.nodes[0] + 1}", lab.now_s + 2)
        return found

    first = daemon()
    offered: dict[tuple[str, str], str] = {}
    for _ in range(10):
        offered |= look(first)
    held = {("co-allocate", "10"): "measured", ("co-allocate", "11"): "oga"}
    quotas = {("set-quota", "10"): "measured", ("set-quota", "11"): "oga"}
    assert offered == held | quotas
    again = daemon()  # the first was killed; quotas are leases, and the next one decides them anew
    found: dict[tuple[str, str], str] = {}
    for _ in range(3):
        found |= look(again)
    assert found == quotas
    assert again.snapshot is not None
    of = {job: again.lends_to(row(again.snapshot, job)) for job in ("10", "11")}
    assert of == {"10": "measured", "11": "oga"}
