"""The port over a real Slurm, with real node actors: what the contract promises, and how a lending goes.

No daemon runs here: the test itself looks, decides and renews. The contract suite of tests/contract drives a cluster
that stands still between two looks; its rules are held here against one that does not.
"""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from asad_slurm import open_cluster
from asad_slurm.cluster import SlurmCluster
from asad_slurm.undo import open_offers, undo
from asad_under_test import (
    MINUTES,
    PATIENCE_S,
    Asad,
    fill,
    groups_of_ours,
    held,
    idle_class,
    small_disk,
    until,
)
from test_cluster_contract import Unheard, check_consistent, copied, offers, same_sight

from asad.decisions import (
    Cause,
    CoAllocate,
    Decision,
    Evict,
    ExtendLimit,
    Outcome,
    SetQuota,
    SetShare,
    Withdraw,
)
from asad.guard import guard_for
from asad.model import Snapshot
from asad.node.actor import Actor, Settings
from asad.node.cgroups import Cgroups
from asad.port import Lease
from lab.slurm import CGROUP, RealSlurm

CAUSE = Cause("test", "because it is tested")
SHARE = 0.5
HALF_US = 50_000
_numbers = itertools.count()


@pytest.fixture(scope="module")
def actors(slurm_session: RealSlurm) -> Iterator[Asad]:
    """Node actors of every node, and the daemon's end of their connections in this process."""
    with Asad(slurm_session, daemon=False) as actors:
        yield actors


class Port:
    """A cluster object as the daemon holds one, and what a test asks of it."""

    def __init__(self, slurm: RealSlurm, actors: Asad, folder: Path) -> None:
        self.slurm, self.actors, self.folder = slurm, actors, folder
        self.ahead_s = 0.0
        """So much the daemon's clock is ahead of ours."""
        self.settings: dict[str, object] = {
            "transport": "command",
            "guest_partitions": {"batch": "guest"},
            "share_users": "any",
            "timeout_s": 20,
        }
        self.cluster = self.open()

    def open(self) -> SlurmCluster:
        """A cluster object; the second one is the next daemon's."""
        assert self.actors.server is not None
        return open_cluster(
            self.settings,
            nodes=self.actors.server,
            state_dir=self.folder,
            clock=lambda: time.time() + self.ahead_s,
        )

    def run(self, *options: str, seconds: float | None = None) -> str:
        """Queue a job that runs so long, or until `let_end`."""
        gate = self.gate("$SLURM_JOB_ID")
        script = f"until [ -e {gate} ]; do sleep 0.3; done" if seconds is None else f"sleep {seconds}"
        if "--nodes=2" in options:
            script = f"srun sh -c '{script}'"  # on all of its nodes
        return self.slurm.submit(script, MINUTES, *options)

    def gate(self, job: str) -> Path:
        return self.slurm.folder / "jobs" / f"end-{job}"

    def let_end(self, *jobs: str) -> None:
        for job in jobs:
            self.gate(job).touch()
        self.slurm.wait(*jobs, timeout_s=PATIENCE_S)
        assert {self.slurm.state(job) for job in jobs} == {"COMPLETED"}

    def hosts(self, *options: str) -> list[str]:
        """A job on every node, running."""
        jobs = [self.run(f"--nodelist={node}", *options) for node in self.slurm.node_names]
        self.slurm.wait(*jobs, state="RUNNING")
        return jobs

    def look(self) -> Snapshot:
        """A snapshot that stays as it is; the jobs that ended are reported, as in every cycle."""
        snapshot = copied(self.cluster.snapshot())
        self.cluster.finished(snapshot.time_s)
        return snapshot

    def see(self, condition: Callable[[Snapshot], object], what: str | Callable[[], str]) -> Snapshot:
        """Look, as the cycle does, until something is so."""
        seen: list[Snapshot] = []

        def look() -> object:
            seen[:] = [self.look()]
            return condition(seen[0])

        until(look, what)
        return seen[0]

    def row(self, snapshot: Snapshot, job: str) -> int:
        (found,) = np.flatnonzero(snapshot.jobs.job_id == job)
        return int(found)

    def see_waiting(self, *jobs: str) -> Snapshot:
        """Until jobs wait and nothing bars them from being guests."""

        def ready(snapshot: Snapshot) -> bool:
            names = {
                str(snapshot.jobs.job_id[row]) for row in snapshot.queue if not snapshot.jobs.guest_bar[row]
            }
            return names >= set(jobs)

        return self.see(ready, f"{jobs} wait and may be guests")

    def see_guest(self, job: str) -> Snapshot:
        return self.see(
            lambda snapshot: job in snapshot.jobs.job_id[snapshot.guests],
            lambda: f"{job} runs as a guest: {self.slurm.job(job)}",
        )

    def lend(self, snapshot: Snapshot, guest: str, host: str, share: float = SHARE) -> Outcome:
        """Offer a job the nodes of another; what became of it."""
        at = self.row(snapshot, host)
        first = snapshot.machine.first_core
        nodes = tuple(
            node
            for node in range(len(snapshot.machine.cores))
            if (snapshot.core_owner[first[node] : first[node + 1]] == at).any()
        )
        decision = CoAllocate(CAUSE, self.row(snapshot, guest), nodes, host=at, share=share, capped=True)
        (outcome,) = self.cluster.apply([decision])
        return outcome

    def lent(self, guest: str, host: str) -> Snapshot:
        """Offer, and wait until the guest runs beside its host, both held by quotas."""
        outcome = self.lend(self.see_waiting(guest), guest, host)
        assert outcome.done, outcome.reason
        snapshot = self.see_guest(guest)
        assert str(snapshot.jobs.job_id[snapshot.jobs.host[self.row(snapshot, guest)]]) == host
        self.see(
            lambda _: self.quotas(guest) == self.quotas(host) == {HALF_US},
            lambda: f"quotas hold both: {held(self.slurm)}",
        )
        return snapshot

    def quotas(self, *jobs: str) -> set[int]:
        """The quotas of jobs on all nodes."""
        return {quota for group, quota in held(self.slurm).items() if group.rpartition("job_")[2] in jobs}

    def facts(self, job: str) -> tuple[str, str, str]:
        at = self.slurm.job(job)
        return at["JobState"], at["Partition"], at["ReqNodeList"]

    def nothing_is_left(self) -> None:
        """Every job has ended: neither offer nor quota is there any more."""
        journal = self.folder / "offers.journal"
        self.see(lambda _: not open_offers(journal), "no offer is open in the journal")
        until(lambda: not held(self.slurm), lambda: f"no quota is left: {held(self.slurm)}")
        until(lambda: not groups_of_ours(self.slurm), "no group of ours is left")


@pytest.fixture
def port(slurm: RealSlurm, actors: Asad, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Port]:
    """A new cluster object on an idle cluster."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm.env[name])
    port = Port(slurm, actors, tmp_path)
    yield port
    port.cluster.release()
    port.cluster.close()


@pytest.fixture
def closed(slurm: RealSlurm) -> Iterator[None]:
    """The guest partition takes no jobs, so that offers stay open."""
    slurm.run("scontrol", "update", "PartitionName=guest", "State=DOWN")
    yield
    slurm.run("scontrol", "update", "PartitionName=guest", "State=UP")


# ------------------------------------------------------------------------------------------------------ the contract


@dataclass
class Story:
    """Jobs from first to last, as the port showed and reported them."""

    jobs: list[str]
    looks: list[Snapshot] = field(default_factory=list)
    ended: list[tuple[str, float, float, float]] = field(default_factory=list)
    """Job, end, run and lost seconds of those that were asked to have ended."""
    decided: list[list[Decision]] = field(default_factory=list)
    became: list[list[Outcome]] = field(default_factory=list)


@pytest.fixture(scope="module")
def story(slurm_session: RealSlurm, actors: Asad, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Seven jobs on two nodes of one core; whoever waits is offered to whoever runs."""
    with pytest.MonkeyPatch.context() as environ:
        for name in ("SLURM_CONF", "PATH"):
            environ.setenv(name, slurm_session.env[name])
        port = Port(slurm_session, actors, tmp_path_factory.mktemp("story"))
        story = Story([port.run(seconds=seconds) for seconds in (9, 8, 3, 4, 3, 2, 2)])
        since_s, deadline = -np.inf, time.monotonic() + 300
        while len(story.ended) < len(story.jobs):
            assert time.monotonic() < deadline, story.ended
            snapshot = copied(port.cluster.snapshot())
            ended = port.cluster.finished(since_s)
            names = snapshot.jobs.job_id[ended.row]
            story.ended += zip(names, ended.end_s, ended.run_s, ended.lost_s, strict=True)
            since_s = snapshot.time_s
            decided: list[Decision] = [*offers(snapshot), Unheard(CAUSE)]
            story.looks.append(snapshot)
            story.decided.append(decided)
            story.became.append(list(port.cluster.apply(decided)))
            time.sleep(0.2)
        port.nothing_is_left()
        port.cluster.close()
        slurm_session.clear()
    return story


def test_every_job_is_reported_once_and_as_long_as_it_ran(story: Story, slurm_session: RealSlurm) -> None:
    assert sorted(job for job, *_ in story.ended) == sorted(story.jobs)
    for job, _, run_s, lost_s in story.ended:
        asked_s = float(dict(zip(story.jobs, (9, 8, 3, 4, 3, 2, 2), strict=True))[job])
        assert asked_s - 1 <= run_s < asked_s + 10
        assert 0 <= lost_s <= run_s
        assert slurm_session.state(job) == "COMPLETED"


def test_every_look_is_consistent(story: Story) -> None:
    """Where no offer is open and no job is on its way out: those hold cores of jobs that do not run."""
    checked = 0
    for snapshot in story.looks:
        shown = {-1, *snapshot.running.tolist(), *snapshot.guests.tolist()}
        if shown >= {*snapshot.core_owner.tolist(), *snapshot.core_guest.tolist()}:
            check_consistent(snapshot)
            checked += 1
    assert checked > 3


def test_versions_and_time_rise_and_a_job_keeps_its_row(story: Story) -> None:
    rows: dict[str, int] = {}
    for before, after in itertools.pairwise(story.looks):
        assert after.time_s > before.time_s
        assert after.version >= before.version
        assert after.version > before.version or same_sight(before, after)
    for snapshot in story.looks:
        for row in np.concatenate((snapshot.queue, snapshot.running, snapshot.guests)).tolist():
            job = str(snapshot.jobs.job_id[row])
            assert rows.setdefault(job, row) == row
    assert rows.keys() == set(story.jobs)
    assert len(set(rows.values())) == len(story.jobs)


def test_outcomes_come_one_a_decision_in_order_and_refusals_have_reasons(story: Story) -> None:
    for decided, became in zip(story.decided, story.became, strict=True):
        assert [outcome.decision for outcome in became] == decided
        assert all(outcome.done == (outcome.reason == "") for outcome in became)
        assert "unheard-of" in became[-1].reason


def test_guests_run_beside_whom_they_were_offered_to(story: Story) -> None:
    """Or their host had ended first; then they started as anybody would."""
    promised: dict[str, tuple[int, str]] = {}
    lent = set()
    for snapshot, became in zip(story.looks, story.became, strict=True):
        jobs = snapshot.jobs
        for row in snapshot.guests.tolist():
            guest, host = str(jobs.job_id[row]), int(jobs.host[row])
            assert guest in promised, "nobody is a guest without an offer"
            if host >= 0 and str(jobs.job_id[host]) == promised[guest][1]:
                assert jobs.share[row] == pytest.approx(0.3)
                lent.add(guest)
        for outcome in became:
            decision = outcome.decision
            if outcome.done and isinstance(decision, CoAllocate):
                promised[str(jobs.job_id[decision.guest])] = (decision.host, str(jobs.job_id[decision.host]))
    assert len(lent) >= 2, "the test has to lend something to mean anything"


def test_late_and_impossible_decisions_are_refused_with_a_reason_and_change_nothing(port: Port) -> None:
    gone = port.run(seconds=0)
    port.slurm.wait(gone, state="COMPLETED")
    leaving = port.run()
    port.slurm.wait(leaving, state="RUNNING")
    port.look()
    port.let_end(leaving)
    one, two = port.hosts()
    waits, next_one = port.run(), port.run()
    snapshot = port.see_waiting(waits, next_one)
    row = {job: port.row(snapshot, job) for job in (one, two, waits, next_one)}
    empty = int(np.flatnonzero(snapshot.jobs.job_id == "")[0])
    late: list[Decision] = [
        SetShare(CAUSE, row[one], 0.2),  # no guest
        SetShare(CAUSE, row[waits], 0.2),
        SetShare(CAUSE, empty, 0.2),
        ExtendLimit(CAUSE, row[waits], 60.0),  # does not run
        ExtendLimit(CAUSE, empty, 60.0),
        Withdraw(CAUSE, row[waits]),  # nothing is offered to it
        Withdraw(CAUSE, empty),
        CoAllocate(CAUSE, row[one], (1,), host=row[two], share=0.3),  # runs
        CoAllocate(CAUSE, row[waits], (0,), host=row[next_one], share=0.3),  # a host that waits
        CoAllocate(CAUSE, row[waits], (1,), host=row[one], share=0.3),  # another's node
        CoAllocate(CAUSE, empty, (0,), host=row[one], share=0.3),
        CoAllocate(CAUSE, row[waits], (0,), host=empty, share=0.3),
    ]
    before = {job: port.facts(job) for job in (one, two, waits, next_one)}
    outcomes = list(port.cluster.apply(late))
    assert [outcome.decision for outcome in outcomes] == late
    assert not any(outcome.done for outcome in outcomes)
    assert all(outcome.reason for outcome in outcomes)
    assert {job: port.facts(job) for job in before} == before
    assert not open_offers(port.folder / "offers.journal")


# ---------------------------------------------------------------------------------------------------------- lendings


def test_co_allocation_shares_one_core_and_is_done_once(port: Port) -> None:
    host, other = port.hosts()
    guest = port.run()
    snapshot = port.see_waiting(guest)
    assert port.lend(snapshot, guest, host).done
    again = port.lend(snapshot, guest, other)
    assert not again.done and "offer" in again.reason
    snapshot = port.see_guest(guest)
    node = port.slurm.node_names[0]
    assert port.slurm.job(guest)["NodeList"] == node
    port.see(lambda _: port.quotas(guest) == port.quotas(host) == {HALF_US}, "both are held")
    port.see(lambda _: idle_class(node, guest), "the guest is in the idle class")
    assert port.quotas(other) == set(), "who lends nothing is left alone"
    row = port.row(snapshot, guest)
    (outcome,) = port.cluster.apply([SetShare(CAUSE, row, 0.2, capped=False)])
    assert outcome.done
    port.see(lambda _: port.quotas(guest) == {20_000}, "a new share is a new quota")
    limit = port.slurm.job(host)["TimeLimit"]
    (outcome,) = port.cluster.apply([ExtendLimit(CAUSE, port.row(snapshot, host), 61.0)])
    assert outcome.done and limit == "00:10:00"
    assert port.slurm.job(host)["TimeLimit"] == "00:12:00", "whole minutes, rounded up"
    port.let_end(host, other, guest)
    port.nothing_is_left()
    port.see(
        lambda _: len(port.cluster.ledger) == 2, lambda: f"both are in the ledger: {port.cluster.ledger}"
    )
    assert {row["job_id"]: row["role"] for row in port.cluster.ledger} == {guest: "guest", host: "host"}
    assert next(row["extended_s"] for row in port.cluster.ledger if row["role"] == "host") == 120.0


def test_a_guest_that_draws_from_pools_is_held_by_quotas_on_its_nodes(port: Port) -> None:
    host = port.run("--nodes=2", "--ntasks=2")
    port.slurm.wait(host, state="RUNNING")
    gang = port.run("--nodes=2", "--ntasks=2")
    snapshot = port.see_waiting(gang)
    row = port.row(snapshot, gang)
    (outcome,) = port.cluster.apply([CoAllocate(CAUSE, row, (0, 1), (0.4, 0.4))])
    assert outcome.done, outcome.reason
    snapshot = port.see_guest(gang)
    assert snapshot.jobs.host[row] == -1 and snapshot.jobs.demand[row] == pytest.approx(0.4)
    first, second = (f"asad_{node}/job_{gang}" for node in port.slurm.node_names)

    def quotas(*wanted: int) -> None:
        port.see(
            lambda _: [held(port.slurm).get(group) for group in (first, second)] == list(wanted),
            lambda: f"quotas of {wanted} on its nodes: {held(port.slurm)}",
        )

    quotas(40_000, 40_000)
    assert port.quotas(host) == set(), "a host is free"
    port.see(lambda _: all(idle_class(node, gang) for node in port.slurm.node_names), "it is held idle")
    quota = SetQuota(CAUSE, row, (0, 1), (0.7, 0.3))
    lends = SetShare(CAUSE, share=0.6, host=port.row(snapshot, host))
    assert all(outcome.done for outcome in port.cluster.apply([quota, lends]))
    quotas(70_000, 30_000)
    snapshot = port.look()
    assert snapshot.jobs.share[port.row(snapshot, host)] == 0.6 and port.quotas(host) == set()
    port.cluster.close()
    port.cluster = port.open()  # the next daemon
    port.cluster.recover()
    snapshot = port.look()
    assert snapshot.jobs.demand[port.row(snapshot, gang)] == pytest.approx(0.4)
    port.see(lambda _: port.quotas(gang) == set(), "nothing is decided: the idle class alone holds it")
    (outcome,) = port.cluster.apply([SetQuota(CAUSE, port.row(snapshot, gang), (0, 1), (0.2, 0.2))])
    assert outcome.done, outcome.reason
    quotas(20_000, 20_000)
    port.let_end(host)
    port.see(lambda _: port.quotas(gang) == set(), "beside nobody it has no quota")
    late = port.run()
    port.slurm.wait(late, state="RUNNING")  # as batch, on a node of the guest: it delays nobody
    port.let_end(gang, late)
    port.nothing_is_left()


def test_how_many_nodes_a_job_wants_is_bound_and_returned(port: Port, closed: None) -> None:
    hosts = port.hosts()
    several, bound = port.run("--ntasks=1"), port.run("--nodes=1", "--ntasks=1")

    def wants(job: str) -> tuple[str, str, str]:
        facts = port.slurm.job(job)
        return facts["Partition"], facts["ReqNodeList"], facts["NumNodes"]

    # of the first its user has named no number; 26.05 shows a job of one task as bound to one node, bound or not
    own = wants(several)[2]
    assert own in ("1", "1-1") and wants(bound)[2] == "1-1"
    port.see_waiting(several)
    snapshot = port.see_waiting(bound)
    for job, node in ((several, 0), (bound, 1)):
        offer = CoAllocate(CAUSE, port.row(snapshot, job), (node,), (0.4,))
        (outcome,) = port.cluster.apply([offer])
        assert outcome.done, outcome.reason
        assert wants(job) == ("guest", port.slurm.node_names[node], "1-1")
    (outcome,) = port.cluster.apply([Withdraw(CAUSE, port.row(snapshot, bound))])
    assert outcome.done, outcome.reason
    assert wants(bound) == ("batch", "(null)", "1-1")
    lines, failed = undo(port.folder / "offers.journal", older_than_s=0.0, now_s=time.time())
    assert (lines, failed) == ([f"{several}: waits in batch again"], 0)
    none = "1-1" if own == "1-1" else "1-65534"
    assert wants(several) == ("batch", "(null)", none), "as good as no bound"
    port.see(lambda _: not open_offers(port.folder / "offers.journal"), "the daemon sees it too")
    port.let_end(*hosts, several, bound)
    port.nothing_is_left()


def test_a_gang_of_two_nodes_is_lent_both_or_none(port: Port) -> None:
    host = port.run("--nodes=2", "--ntasks=2")
    port.slurm.wait(host, state="RUNNING")
    gang = port.run("--nodes=2", "--ntasks=2")
    port.lent(gang, host)
    assert port.slurm.job(gang)["NumNodes"] == "2"
    groups = {f"asad_{node}/job_{gang}" for node in port.slurm.node_names}
    port.see(lambda _: groups <= held(port.slurm).keys(), lambda: f"all nodes hold it: {held(port.slurm)}")
    assert port.quotas(gang) == {HALF_US}
    port.see(
        lambda _: all(idle_class(node, gang) for node in port.slurm.node_names), "all nodes hold it idle"
    )
    port.let_end(host, gang)
    port.nothing_is_left()


def test_memory_that_does_not_fit_is_vetoed_and_slurm_itself_starts_nothing(port: Port) -> None:
    """The guard sees it; where it did not, Slurm keeps the job waiting and the offer is taken back."""
    port.settings["offer_patience_s"] = 4
    port.cluster = port.open()
    hosts = port.hosts(f"--mem={port.slurm.memory_mb - 500}")
    guest = port.run("--mem=1000")
    snapshot = port.see_waiting(guest)
    node = (0,)
    decision = CoAllocate(
        CAUSE, port.row(snapshot, guest), node, host=port.row(snapshot, hosts[0]), share=SHARE
    )
    allowed, vetoed = guard_for(frozenset({"memory"})).check(snapshot, [decision])
    assert not allowed and "vetoed (memory)" in vetoed[0].reason
    outcome = port.lend(snapshot, guest, hosts[0])
    assert outcome.done
    assert port.facts(guest)[:2] == ("PENDING", "guest")
    snapshot = port.see(lambda _: port.facts(guest)[1] == "batch", "an offer that is not taken is taken back")
    assert port.facts(guest) == ("PENDING", "batch", "(null)")
    again = port.lend(port.see_waiting(guest), guest, hosts[0])
    assert not again.done and "an earlier offer was not taken" in again.reason
    port.let_end(*hosts)
    port.slurm.wait(guest, state="RUNNING")
    assert port.facts(guest)[1] == "batch"
    port.let_end(guest)
    port.nothing_is_left()


def test_a_guest_whose_memory_would_be_in_the_way_is_refused(port: Port) -> None:
    hosts = port.hosts("--mem=200")
    large = port.run(f"--mem={port.slurm.memory_mb // 2}")
    guest = port.run(f"--mem={port.slurm.memory_mb // 2 + 400}")
    outcome = port.lend(port.see_waiting(guest, large), guest, hosts[0])
    assert not outcome.done and f"in the way of {large}" in outcome.reason
    assert port.facts(guest) == ("PENDING", "batch", "(null)")


def test_a_withdrawal_gives_back_the_users_own_node_list(port: Port, closed: None) -> None:
    node = port.slurm.node_names[1]
    hosts = port.hosts()
    guest = port.run(f"--nodelist={node}")
    before = port.facts(guest)
    assert before == ("PENDING", "batch", node)
    snapshot = port.see_waiting(guest)
    assert not port.lend(snapshot, guest, hosts[0]).done, "its user asked for the other node"
    assert port.lend(snapshot, guest, hosts[1]).done
    assert port.facts(guest) == ("PENDING", "guest", node)
    snapshot = port.look()
    assert snapshot.jobs.offered_s[port.row(snapshot, guest)] <= snapshot.time_s
    (outcome,) = port.cluster.apply([Withdraw(CAUSE, port.row(snapshot, guest))])
    assert outcome.done, outcome.reason
    assert port.facts(guest) == before
    snapshot = port.look()
    assert np.isnan(snapshot.jobs.offered_s[port.row(snapshot, guest)])
    assert (snapshot.core_guest == -1).all()
    assert not open_offers(port.folder / "offers.journal")


def test_the_last_task_of_an_array_is_offered_undone_extended_and_evicted_alone(
    port: Port, closed: None
) -> None:
    """It has the number of the whole array, by which Slurm's commands mean all tasks or refuse."""
    node = port.slurm.node_names[0]
    host = port.run(f"--nodelist={node}")
    port.slurm.wait(host, state="RUNNING")
    array = port.run("--array=0-1")
    first, last = f"{array}_0", f"{array}_1"
    port.slurm.wait(first, state="RUNNING")
    before = port.facts(last)
    outcome = port.lend(port.see_waiting(last), last, host)
    assert outcome.done, outcome.reason
    assert port.facts(last) == ("PENDING", "guest", node) and port.facts(first)[:2] == ("RUNNING", "batch")
    lines, failed = undo(port.folder / "offers.journal", older_than_s=0.0, now_s=time.time())
    assert (lines, failed) == ([f"{last}: waits in batch again"], 0)
    assert port.facts(last) == before
    port.let_end(host)
    snapshot = port.see(lambda at: last in at.jobs.job_id[at.running], "it starts in its turn")
    limit = port.slurm.job(first)["TimeLimit"]
    row = port.row(snapshot, last)
    assert port.slurm.job(last)["TimeLimit"] == limit
    extended, evicted = port.cluster.apply([ExtendLimit(CAUSE, row, 60.0), Evict(CAUSE, row, "cancel")])
    assert extended.done and evicted.done, (extended.reason, evicted.reason)
    port.slurm.wait(last, state="CANCELLED")
    assert port.slurm.job(last)["TimeLimit"] != limit
    assert port.facts(first)[0] == "RUNNING" and port.slurm.job(first)["TimeLimit"] == limit
    port.slurm.run("scancel", first)  # once the last one has ended, scancel by a task's number does nothing


def test_a_job_that_its_user_moves_home_is_freed_of_the_nodes_of_its_offer(port: Port, closed: None) -> None:
    hosts = port.hosts()
    guest = port.run()
    assert port.lend(port.see_waiting(guest), guest, hosts[0]).done
    port.slurm.run("scontrol", "update", f"jobid={guest}", "Partition=batch")
    assert port.facts(guest) == ("PENDING", "batch", port.slurm.node_names[0]), "the list is not the user's"
    port.look()
    assert port.facts(guest) == ("PENDING", "batch", "(null)")


def test_when_the_host_ends_first_the_guest_is_freed_and_the_next_host_decided_anew(port: Port) -> None:
    host, other = port.hosts()
    guest = port.run()
    port.lent(guest, host)
    following = port.run(f"--nodelist={port.slurm.node_names[0]}")
    port.let_end(host)
    port.slurm.wait(following, state="RUNNING")

    def beside_the_next(snapshot: Snapshot) -> bool:
        at = int(snapshot.jobs.host[port.row(snapshot, guest)])
        return at >= 0 and str(snapshot.jobs.job_id[at]) == following

    snapshot = port.see(beside_the_next, "another host has started on its node")
    assert np.isnan(snapshot.jobs.share[port.row(snapshot, guest)]), "what was decided was for the first"
    port.see(lambda _: port.quotas(guest, following) == set(), "nothing holds the two but the idle class")
    assert idle_class(port.slurm.node_names[0], guest)
    port.let_end(other, following)
    snapshot = port.see(lambda at: at.jobs.host[port.row(at, guest)] == -1, "it is alone on its node")
    assert guest in snapshot.jobs.job_id[snapshot.guests]
    port.let_end(guest)
    port.nothing_is_left()


def test_when_the_guest_ends_first_its_host_is_freed_and_may_lend_again(port: Port) -> None:
    host, other = port.hosts()
    first = port.run()
    port.lent(first, host)
    port.let_end(first)
    port.see(lambda _: port.quotas(host) == set(), "the host has all of its core")
    second = port.run()
    port.lent(second, host)
    port.let_end(second, host, other)
    port.nothing_is_left()


def test_a_requeued_guest_is_brought_home_first(port: Port) -> None:
    host, _ = port.hosts()
    guest = port.run("--requeue")
    port.lent(guest, host)
    port.slurm.run("scontrol", "requeue", guest)
    port.see(lambda _: port.facts(guest)[1:] == ("batch", "(null)"), "it waits where it waited before")
    port.see(lambda _: not held(port.slurm), "and nobody is held any more")


# ------------------------------------------------------------------------------------- between decision and action


@pytest.mark.parametrize("who", ["guest", "host"])
def test_a_job_that_ends_between_decision_and_action_leaves_nothing_behind(port: Port, who: str) -> None:
    host, other = port.hosts()
    guest = port.run()
    snapshot = port.see_waiting(guest)
    port.slurm.run("scancel", {"guest": guest, "host": host}[who])
    port.slurm.wait({"guest": guest, "host": host}[who], state="CANCELLED")
    outcome = port.lend(snapshot, guest, host)
    if who == "guest":
        assert not outcome.done and outcome.reason.startswith("Slurm refused")
        port.let_end(host, other)
    else:
        # its node is free: it starts there, by the offer or by its turn
        port.see(lambda _: port.facts(guest)[0] == "RUNNING", "the job runs")
        assert port.slurm.job(guest)["NodeList"] == port.slurm.node_names[0]
        assert not held(port.slurm), "nobody is beside it"
        port.let_end(other, guest)
    port.nothing_is_left()


def test_a_guest_that_ends_before_its_share_changes_is_informed(port: Port) -> None:
    host, other = port.hosts()
    guest = port.run()
    row = port.row(port.lent(guest, host), guest)
    port.let_end(guest)
    list(port.cluster.apply([SetShare(CAUSE, row, 0.2), ExtendLimit(CAUSE, row, 60.0)]))
    port.see(lambda at: row not in at.guests, "it is seen to have ended")
    outcomes = list(port.cluster.apply([SetShare(CAUSE, row, 0.2), ExtendLimit(CAUSE, row, 60.0)]))
    assert not any(outcome.done for outcome in outcomes)
    port.let_end(host, other)
    port.nothing_is_left()


def test_a_cgroup_that_vanishes_between_read_and_write_leaves_nothing_behind(
    port: Port, actors: Asad, tmp_path: Path
) -> None:
    """An actor that has seen a job is asked to hold it when its groups have gone."""
    node = port.slurm.node_names[0]
    actors.kill(node, signal.SIGTERM)
    actor = Actor(Settings(node, tmp_path / "actor"), Cgroups(CGROUP, node), progress=tmp_path / "progress")
    try:
        job = port.run(f"--nodelist={node}")
        port.slurm.wait(job, state="RUNNING")

        def seen() -> bool:
            actor.scan(time.monotonic())
            return job in actor.jobs

        until(seen, "the actor sees the job")
        port.let_end(job)
        until(lambda: not actor.cgroups.exists(actor.jobs[job]), "its groups have gone")
        now_s = time.monotonic()
        for lease in (
            Lease(job, True, "", 0.5, 1),
            Lease(job, False, "", 0.5, 1),
        ):  # as a guest, then as a host
            actor.leases.renew([lease], 60.0, now_s)
            actor.classify()
            actor.apply(now_s)
        actor.sample(now_s)
        actor.scan(time.monotonic() + 1)
        actor.scan(time.monotonic() + 2)
        assert job not in actor.jobs
        assert not held(port.slurm) and not groups_of_ours(port.slurm)
    finally:
        actor.close()
        actors.start(node)
        actors.wait_until_whole()


# ------------------------------------------------------------------------------------------------ journal and clock


def test_no_offer_is_made_that_cannot_be_written_down(port: Port, tmp_path: Path) -> None:
    hosts = port.hosts()
    guest = port.run()
    with small_disk(tmp_path / "disk", megabytes=1) as disk:
        port.folder = disk
        port.cluster = port.open()
        snapshot = port.see_waiting(guest)
        filler = fill(disk)
        outcome = port.lend(snapshot, guest, hosts[0])
        assert not outcome.done and "cannot be written" in outcome.reason
        assert port.facts(guest) == ("PENDING", "batch", "(null)")
        filler.unlink()
        port.lent(guest, hosts[0])
        port.let_end(guest, *hosts)
        port.nothing_is_left()
        port.folder = tmp_path
        port.cluster = port.open()


@pytest.mark.parametrize("jump_s", [-7200.0, 7200.0], ids=["back", "ahead"])
def test_a_jump_of_the_clock_lifts_no_quota_and_pins_no_offer(
    port: Port, actors: Asad, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    assert actors.server is not None
    monkeypatch.setattr(actors.server, "clock", lambda: time.time() + port.ahead_s)
    host, other = port.hosts()
    guest, offered = port.run(), port.run()
    port.lent(guest, host)
    lost_s = port.look().jobs.lost_s.max()
    port.slurm.run("scontrol", "update", "PartitionName=guest", "State=DOWN")
    try:
        assert port.lend(port.see_waiting(offered), offered, other).done
        port.ahead_s = jump_s
        port.see(lambda _: port.facts(offered) == ("PENDING", "batch", "(null)"), "the offer is taken back")
        assert port.quotas(guest) == {HALF_US}, "leases know nothing of that clock"
        assert port.look().jobs.lost_s.max() < lost_s + 60, "nobody has lost two hours"
        assert port.facts(guest)[:2] == ("RUNNING", "guest")
    finally:
        port.slurm.run("scontrol", "update", "PartitionName=guest", "State=UP")
    port.let_end(host, other, guest, offered)
    port.nothing_is_left()


def test_an_offer_from_the_future_is_taken_back_by_the_timer(port: Port, closed: None) -> None:
    """As it looks when the clock was set back, and neither daemon nor clock can say how old it is."""
    hosts = port.hosts()
    guest = port.run()
    assert port.lend(port.see_waiting(guest), guest, hosts[0]).done
    journal = port.folder / "offers.journal"
    assert undo(journal, older_than_s=600.0, now_s=time.time()) == ([], 0)
    lines, failed = undo(journal, older_than_s=600.0, now_s=time.time() - 7200.0)
    assert lines == [f"{guest}: waits in batch again"] and failed == 0
    assert port.facts(guest) == ("PENDING", "batch", "(null)")
    port.see(lambda _: not open_offers(journal), "the daemon sees it too")
