"""What `asactl explain` says of a gang on Mesos, and by what names its agents are distinguished."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from asad_mesos.agent_offers import read_offer
from asad_mesos.events import AgentLost, Held, Offered, Scaled, Submitted, Subscribed, Updated
from asad_mesos.framework import Framework
from asad_mesos.framework_state import STORY_KEPT
from asad_mesos.job_spec import Group, Spec
from asad_mesos.mesos_cluster import MesosCluster
from asad_mesos.settings import Settings
from mesos_on_paper import PaperMesos, WillingNodes

from asad.cli.explain import live_lines
from asad.model import Json

MIB = 2.0**20


def job(tasks: int, **more: Any) -> Spec:
    facts: dict[str, Any] = {
        "user": "ann",
        "uid": 1000,
        "command": "secret command",
        "groups": (Group(tasks=tasks, memory_bytes=8.0 * MIB),),
        "time_limit_s": 3600.0,
    }
    return Spec(**(facts | more))


def small(*jobs: Spec, run_s: float = 600.0, **options: Any) -> tuple[MesosCluster, PaperMesos]:
    """Two agents of four CPUs."""
    paper = PaperMesos(2, 4, 0.0, [(0.0, spec, run_s) for spec in jobs], **options)
    cluster = MesosCluster(
        Settings(), nodes=WillingNodes(), state_dir=Path("/nonexistent"), clock=paper.now_s, engine=paper
    )
    paper.settle()
    return cluster, paper


class Away(PaperMesos):
    """Its master is gone."""

    @property
    def subscribed(self) -> bool:
        return False


def story_of(cluster: MesosCluster, name: str = "m1") -> dict[str, Any]:
    story: Json = cluster.story(name)
    assert isinstance(story, dict)
    return story


def sentences(cluster: MesosCluster, name: str = "m1") -> list[str]:
    return [sentence for _, sentence in story_of(cluster, name)["story"]]


def test_a_gang_that_was_lost_and_started_again_shows_so_to_its_end() -> None:
    cluster, paper = small(job(6), run_s=100.0)
    assert story_of(cluster)["state"] == "running" and story_of(cluster)["nodes"] == "n0*4,n1*2"
    paper._end("m1.1.2", "TASK_LOST")
    while story_of(cluster)["state"] != "completed":
        paper.advance()
    assert sentences(cluster) == [
        "it was submitted",
        "6 tasks are launched on n0*4,n1*2",
        "all of its tasks run",
        "task m1.1.2 on n0 was lost: TASK_LOST",
        "it waits again",
        "6 tasks are launched on n0*4,n1*2 (attempt 2)",
        "all of its tasks run",
        "it has ended: completed",
    ]
    times = [time_s for time_s, _ in story_of(cluster)["story"]]
    assert times == sorted(times) and times[0] == 1000.0 and times[-1] > 1100.0
    story = story_of(cluster)
    assert (story["retries"], story["attempt"], story["waits"]) == (1, 2, None)
    assert "secret" not in str(story), "what it runs is for its owner alone"


def test_a_failure_and_a_cancellation_show_why() -> None:
    cluster, paper = small(job(2), job(2))
    paper._end("m1.1.0", "TASK_FAILED")
    paper.settle()
    assert sentences(cluster)[-2:] == ["task m1.1.0 on n0 failed: TASK_FAILED", "it has ended: failed"]
    cluster.cancel("m2", "cancelled by ann")
    paper.settle()
    assert sentences(cluster, "m2")[-2:] == ["cancelled by ann", "it has ended: cancelled"]


def test_a_job_that_waits_shows_what_for() -> None:
    cluster, paper = small(job(6), job(4), job(3), job(900))
    assert story_of(cluster, "m2")["waits"] == (
        "2 of 4 tasks fit into the offers; those of 1 agent are withheld for it"
    )
    assert story_of(cluster, "m3")["waits"] == (
        "0 of 3 tasks fit into the offers, behind m2, which comes before it; none is withheld for it"
    )
    assert story_of(cluster, "m4")["waits"] == "it needs more than all agents that were seen have"
    assert story_of(cluster, "m1")["waits"] is None
    paper.do(Held("m2", paper.clock_s + 60.0))
    assert story_of(cluster, "m2")["waits"] == "it is held for 60 s more"
    paper.framework.agents.clear()
    assert story_of(cluster, "m3")["waits"] == "the master offers nothing just now"
    paper.__class__, paper.trouble = Away, "no answer"
    assert story_of(cluster, "m3")["waits"] == "Mesos is not connected: no answer"


def test_those_behind_the_first_learn_that_nobody_has_looked_at_them() -> None:
    cluster, _ = small(job(8), job(8), job(8), depth=1)
    # the first takes everything, and its guests' memory is kept for the second
    assert (
        "its turn has not come" in story_of(cluster, "m3")["waits"]
        or "offers nothing" in story_of(cluster, "m3")["waits"]
    )


def test_workers_that_are_lost_and_scaled_are_reported_of_and_no_story_grows_without_end() -> None:
    group = Group("worker", tasks=8, least=1, memory_bytes=8.0 * MIB)
    cluster, paper = small(job(8, groups=(group,), elastic=True))
    assert "8 tasks are launched on n0*4,n1*4" in sentences(cluster)
    paper._end("m1.1.3", "TASK_LOST")
    paper.settle()
    assert "m1_3 on n0 was lost: TASK_LOST" in sentences(cluster, "m1_3")
    cluster.engine.do(Scaled("m1", {"worker": 2}))
    assert sentences(cluster)[-1] == "at most 2 of worker at one time from now on"
    for number in range(100):
        cluster.engine.do(Scaled("m1", {"worker": 1 + number % 2}))
    assert len(sentences(cluster)) == STORY_KEPT + 1 and sentences(cluster)[0] == "it was submitted"


def test_a_successor_knows_the_story_and_so_does_who_reads_the_journal_of_an_earlier_version() -> None:
    _, paper = small(job(6), job(4))
    paper._end("m1.1.2", "TASK_LOST")
    paper.settle()
    framework = Framework(Settings())
    framework.restore(paper.framework.dump())
    assert [one.story for one in framework.jobs.values()] == [
        one.story for one in paper.framework.jobs.values()
    ]
    assert len(framework.jobs["m1"].story) >= 4

    def earlier(record: Mapping[str, Any]) -> dict[str, Any]:
        plain = {key: value for key, value in record.items() if key not in ("where", "agents")}
        if record["what"] in ("stopping", "queued"):
            plain.pop("time_s")
        return plain

    one = Framework(Settings())
    records = one.handle(Subscribed("f"), Submitted(job(1)), Offered([offer("S0")]), now_s=5.0).records
    status = {"task_id": {"value": "m1.1.0"}, "agent_id": {"value": "S0"}, "state": "TASK_LOST"}
    records += one.handle(Updated(status), now_s=6.0).records
    old = Framework(Settings())
    old.restore([earlier(record) for record in records])
    assert [time_s for time_s, _ in old.jobs["m1"].story] == [5.0, 5.0, 5.0]
    assert old.jobs["m1"].story[0][1] == "1 task is launched on agents"


def test_unknown_jobs_have_no_story() -> None:
    cluster, _ = small(job(1))
    assert cluster.story("m9") is None and cluster.story("") is None and cluster.story("17\x1b") is None


def test_the_story_is_printed_line_by_line_and_made_safe() -> None:
    gang = {
        "job": "m1",
        "state": "queued",
        "retries": 2,
        "tasks": {"waiting": 4, "running": 0},
        "nodes": "",
        "waits": "the master offers nothing just now",
        "story": [[0.0, "it was submitted"], [5.0, "task m1.1.0 on n\x1b1 was lost"]],
    }
    lines = list(live_lines("m1", {"gang": gang, "run": None}, False))
    assert lines[0] == "on Mesos m1 is queued, after 2 attempts that were lost"
    assert lines[1] == "  4 tasks to be launched: the master offers nothing just now"
    assert re.fullmatch(r"  t=5 s  task m1.1.0 on n\\x1b1 was lost", lines[3])


# -------------------------------------------------------------------------------------------------- names of agents


def offer(agent: str, host: str = "n1", port: int = 0, cpus: float = 4.0) -> Any:
    where = (
        {"url": {"scheme": "http", "address": {"hostname": host, "ip": "10.0.0.1", "port": port}}}
        if port
        else {}
    )
    return read_offer(
        {
            "id": {"value": f"O-{agent}-{port}"},
            "agent_id": {"value": agent},
            "hostname": host,
            **where,
            "resources": [
                {"name": name, "type": "SCALAR", "scalar": {"value": value}, "role": "*"}
                for name, value in (("cpus", cpus), ("mem", 1000.0))
            ],
        }
    )


def framework_of(*offers: Any) -> Framework:
    framework = Framework(Settings(executor_memory_mb=1.0))
    framework.handle(Subscribed("f"), Offered(list(offers)), now_s=1.0)
    return framework


def test_agents_of_one_host_have_names_of_their_own_and_one_alone_that_of_its_host() -> None:
    framework = framework_of(offer("S0", port=5051))
    assert framework.agents.names() == ["n1"]
    framework.handle(Offered([offer("S1", port=5052), offer("S2", "n2", 5051)]), now_s=2.0)
    assert framework.agents.names() == ["n1:5051", "n1:5052", "n2"]
    framework.handle(AgentLost("S1"), now_s=3.0)
    assert framework.agents.names()[0] == "n1", "the other is gone"
    framework.handle(Offered([offer("S3", port=5051)]), now_s=4.0)
    names = framework.agents.names()
    assert names[0] != names[3] and names[0].startswith("n1:5051#"), "it began anew, with another id"


def test_agents_whose_ports_nobody_shows_are_distinguished_by_their_ids() -> None:
    assert framework_of(offer("S0"), offer("S1")).agents.names() == ["n1#S0", "n1#S1"]


@pytest.mark.parametrize("written_anew", [True, False])
def test_full_agents_keep_their_names_when_another_daemon_reads_the_journal(written_anew: bool) -> None:
    framework = Framework(Settings(executor_memory_mb=1.0))
    records = framework.handle(Subscribed("f"), Submitted(job(8)), now_s=1.0).records
    offers = [offer("S0", port=5051), offer("S1", port=5052)]
    records += framework.handle(Offered(offers), now_s=2.0).records
    assert framework.agents.names() == ["n1:5051", "n1:5052"]
    successor = Framework(Settings())
    successor.restore(framework.dump() if written_anew else records)
    assert successor.agents.names() == ["n1:5051", "n1:5052"]
    assert [task.host for task in successor.tasks.values()] == ["n1"] * 8, "programs are given hosts"


def test_snapshot_and_status_name_two_agents_of_one_host() -> None:
    paper = PaperMesos(0, 0, 0.0, [])
    cluster = MesosCluster(
        Settings(), nodes=WillingNodes(), state_dir=Path("/nonexistent"), clock=paper.now_s, engine=paper
    )
    paper.framework.handle(
        Submitted(job(8)), Offered([offer("S0", port=5051), offer("S1", port=5052)]), now_s=1001.0
    )
    assert cluster.snapshot().machine.node_names == ("n1:5051", "n1:5052")
    (row,) = cluster.status("m1")
    assert {(task["host"], task["node"]) for task in row["tasks"]} == {("n1", "n1:5051"), ("n1", "n1:5052")}
    assert story_of(cluster)["nodes"] == "n1:5051*4,n1:5052*4"
