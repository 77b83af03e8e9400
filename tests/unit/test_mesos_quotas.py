"""What one user, and all together, may have in Mesos' queue; and a journal that is larger than that."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from asad_mesos import framework_journal as journal_file
from asad_mesos.events import Cancelled, Submitted
from asad_mesos.framework import Framework
from asad_mesos.framework_journal import Journal
from asad_mesos.job_spec import MEBIBYTE, SHORTENED, Group, Spec, spec_from_json
from asad_mesos.mesos_cluster import MesosCluster
from asad_mesos.settings import Settings, read_settings
from asad_mesos.submission_limits import OverQuota, Usage
from mesos_on_paper import PaperMesos, WillingNodes

from asad.errors import ConfigError, UsageError

SMALL = Settings(user_jobs=3, user_tasks=10, user_mb=1, most_jobs=5, most_tasks=15, most_mb=2)


def job(tasks: int = 1, user: str = "ann", uid: int = 1000, **more: Any) -> Spec:
    return Spec(user, uid, "x", (Group(tasks=tasks, memory_bytes=8.0 * MEBIBYTE),), **more)


def opened(settings: Settings = SMALL) -> tuple[MesosCluster, PaperMesos]:
    """A cluster whose agents have nothing to offer: all wait."""
    paper = PaperMesos(0, 0, 0.0, [])
    cluster = MesosCluster(
        settings, nodes=WillingNodes(), state_dir=Path("/nonexistent"), clock=paper.now_s, engine=paper
    )
    return cluster, paper


def submit(cluster: MesosCluster, spec: Spec) -> str:
    """As a user does."""
    plain = {name: value for name, value in spec.to_json().items() if name not in ("user", "uid")}
    answer: Any = cluster.request("submit", {"spec": plain}, spec.user, spec.uid)
    return str(answer["job"])


LARGE = "#!/bin/sh\n" + "x" * (600 << 10)


@pytest.mark.parametrize(
    ("before", "asked", "named"),
    [
        ([job()] * 3, job(), "ann has 3 jobs on Mesos .* 1 more are beyond the 3 .*user_jobs"),
        ([job(6)], job(5), "ann has 6 tasks in jobs .* 5 more are beyond the 10 .*user_tasks"),
        ([], job(11), "ann has 0 tasks in jobs .* 11 more are beyond the 10 .*user_tasks"),
        ([], job(100_000), "ann has 0 tasks in jobs .* 100000 more are beyond the 10 .*user_tasks"),
        (
            [job(script=LARGE)],
            job(script=LARGE),
            r"ann has 0\.586 MiB of scripts.* 0\.586 more are beyond the 1 .*user_mb",
        ),
        (
            [job(user="ann"), job(user="bob", uid=1001), job(user="bob", uid=1001)] * 2,
            job(user="eve", uid=1002),
            "all users together have 5 jobs .* beyond the 5 that all have at the most .*most_jobs",
        ),
        (
            [job(10), job(5, "bob", 1001)],
            job(1, "eve", 1002),
            "all users together have 15 tasks .*most_tasks",
        ),
        (
            [job(script=LARGE), job(1, "bob", 1001, script=LARGE), job(1, "eve", 1002, script=LARGE)],
            job(1, "dan", 1003, script=LARGE),
            "all users together have .* MiB of scripts.*most_mb",
        ),
    ],
)
def test_who_asks_for_more_is_refused_with_the_limit_and_the_setting(
    before: Sequence[Spec], asked: Spec, named: str
) -> None:
    cluster, paper = opened()
    for one in before[:5]:
        submit(cluster, one)
    known = len(paper.framework.jobs)
    with pytest.raises(OverQuota, match=named) as refused:
        submit(cluster, asked)
    assert refused.value.exit_status == 1 and "asactl cancel" in str(refused.value)
    assert len(paper.framework.jobs) == known == paper.framework.last_number, "nothing of it is journaled"


def test_what_has_ended_makes_room_and_who_submits_for_another_uses_his() -> None:
    cluster, paper = opened()
    for _ in range(3):
        last = submit(cluster, job())
    assert submit(cluster, job(user="bob", uid=1001)) == "m4", "one user does not keep another out"
    cluster.cancel(last, "enough")
    assert paper.framework.usage == {
        1000: Usage(2, 2, 2 * paper.framework.usage[1001].size_bytes),
        1001: paper.framework.usage[1001],
    }
    submit(cluster, job())
    plain = {"command": "x", "groups": [{"tasks": 11}]}
    with pytest.raises(OverQuota, match=r"^root has"):
        cluster.request("submit", {"spec": plain, "user": "root"}, "root", 0)


def test_jobs_of_slurm_are_counted_and_not_refused() -> None:
    cluster, paper = opened()
    for number in range(4):
        cluster.submit(job(origin=f"slurm:{number}"))
    assert paper.framework.usage[1000].jobs == 4
    with pytest.raises(OverQuota, match="user_jobs"):
        submit(cluster, job())


def test_a_journal_that_is_larger_than_the_limits_is_known_again(tmp_path: Path) -> None:
    before = Framework(Settings())
    records = []
    for number in range(20):
        records += before.handle(Submitted(job(100, uid=1000 + number % 2)), now_s=float(number)).records
    journal = Journal(tmp_path)
    journal.write(records)
    journal.close()
    cluster, paper = opened()
    journal = Journal(tmp_path)
    paper.framework.restore(journal.load())
    journal.close()
    assert len(cluster.status()) == 20
    assert paper.framework.usage_of_all == before.usage_of_all and before.usage_of_all.tasks == 2000
    with pytest.raises(OverQuota, match="user_jobs"):
        submit(cluster, job())
    for number in range(1, 21):
        cluster.cancel(f"m{number}", "enough")
    assert (paper.framework.usage, paper.framework.usage_of_all) == ({}, Usage())
    assert submit(cluster, job()) == "m21"


def test_who_submits_and_cancels_without_end_fills_neither_memory_nor_journal() -> None:
    framework = Framework(Settings())
    large = job(100_000, script=LARGE, environment={"SECRET": "y" * 1000})
    for number in range(1, 4):
        framework.handle(Submitted(large), Cancelled(f"m{number}", "enough"), now_s=1.0)
    assert all(job.groups[0].todo == [] for job in framework.ended.values())
    dumped = json.dumps(framework.dump())
    assert len(dumped) < 3 * 3 * SHORTENED and "SECRET" not in dumped
    successor = Framework(Settings())
    successor.restore(framework.dump())
    assert successor.dump() == framework.dump()
    assert successor.job("m3").spec.script == LARGE[:SHORTENED]


def test_a_journal_is_written_anew_when_it_has_grown_by_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_file, "MOST_BYTES", 1000)
    journal = Journal(tmp_path)
    journal.write([{"what": "x" * 900}])
    assert not journal.has_grown
    journal.write([{"what": "x" * 900}])
    assert journal.has_grown
    assert len(list(journal.load())) == 2 and journal.has_grown, "as it was found by the next daemon too"
    journal.rewrite([{"what": "x" * 5000}])
    assert not journal.has_grown
    journal.write([{"what": "x" * 4000}])
    assert not journal.has_grown, "or it would be written anew again and again"
    journal.write([{"what": "x" * 1100}])
    assert journal.has_grown
    journal.close()


@pytest.mark.parametrize(
    "given",
    [
        {"command": "echo \ud800"},
        {"command": "x", "script": "#!\udfff"},
        {"command": "x", "environment": {"A": "\ud800"}},
    ],
)
def test_halves_of_characters_which_no_journal_can_hold_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="in UTF-8"):
        spec_from_json(given, user="ann", uid=1000)


@pytest.mark.parametrize("value", [0, 1.5, -1, True, math.inf, "many"])
def test_limits_are_whole_numbers_from_one(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^\[mesos\] user_jobs: "):
        read_settings({"user_jobs": value})


def test_limits_can_be_set() -> None:
    given = {"user_jobs": 3, "user_tasks": 10, "user_mb": 1, "most_jobs": 5, "most_tasks": 15, "most_mb": 2}
    assert read_settings(given) == SMALL == replace(Settings(), **given)
