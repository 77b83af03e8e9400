"""Why jobs wait, live: Slurm's names in a few words, what is counted and kept of them, what `asactl waits` shows."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asad_slurm.wait_columns import MOST, REST, Names
from click.testing import CliRunner, Result
from plain_answers import plain_of, validate
from slurm_samples import START_S, Lab, SlurmInMemory, a_job, names, row, running, sample
from small_cluster import OFFERED, WAITING, cluster
from test_daemon import Held, Life, live

from asad.api.control import ControlServer, Peer, Refused, Request
from asad.cli.asactl import asactl
from asad.cli.explain import live_lines
from asad.cluster.reason_words import WORDS, name_of, word_of
from asad.daemon.waiting import LOOKS, MOST_LOOK_S, MOST_PARTITIONS, WaitHistory, now_by, now_by_reason
from asad.errors import UsageError
from asad.ineligible import Ineligible
from asad.metrics import METRICS
from asad.model import Json, Snapshot, Waits
from asad.report.wait_reasons import LIVE_LENDING, LIVE_MEANING, live_sentence
from asad.status import job_rows
from asad.store import wait_hours as stored
from asad.store.retention import Keep, steps
from asad.store.store import Store
from asad.store.wait_hours import Waited

__all__ = ["live"]  # the fixture

HOUR_S, DAY_S = 3600.0, 86_400.0


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("limit", "QOSMaxCpuPerUserLimit AssocGrpMemLimit MaxCpuPerAccount QOSUsageThreshold MaxMemPerLimit"),
        ("no room", "Resources Licenses ReqNodeNotAvail"),
        ("order", "Priority None Reservation"),
        (
            "not eligible",
            "Dependency BeginTime JobHeldUser JobArrayTaskLimit QOSNotAllowed PartitionTimeLimit",
        ),
        ("other", "PartitionDown Cleaning Maximum SomethingOfNextYear"),
    ],
)
def test_names_of_slurm_mean_one_of_five_words(word: str, names: str) -> None:
    assert {word_of(name) for name in names.split()} == {word}
    assert word in WORDS and word in LIVE_MEANING


def test_a_name_is_cut_off_what_depends_on_the_job() -> None:
    assert name_of("ReqNodeNotAvail, UnavailableNodes:n[1-4]") == "ReqNodeNotAvail"
    assert name_of("ReqNodeNotAvail(Unavailable:n1)") == "ReqNodeNotAvail"
    assert name_of("") == "None" and len(name_of("x" * 500)) == 60


def test_codes_are_bounded_however_many_names_there_are() -> None:
    codes = Names()
    found = [codes.code(f"p{k}") for k in range(MOST + 50)]
    assert found[:3] == [1, 2, 3] and codes.code("p1") == 2
    assert found[-1] == 0 and codes.known[0] == REST and len(codes.known) == MOST + 1


# ------------------------------------------------------------------------------------------------------------- Slurm


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A host on n1, and jobs that wait for many reasons."""
    slurm = SlurmInMemory()
    slurm.add(
        running(1, {"n1": 2}),
        a_job(10, cpus=4, submit_time=int(START_S) - 500),
        a_job(11, state_reason="QOSMaxCpuPerUserLimit", cpus=8, user_name="bob", qos="short"),
        a_job(12, state_reason="AssocGrpCpuLimit", cpus=1, account="chem"),
        a_job(13, state_reason="Dependency", partition="batch,urgent"),
        a_job(14, state_reason="Resources", array_job_id=14, array_task_string="1-10", cpus=3),
    )
    made = Lab(tmp_path, slurm)
    made.actors.report("n1", sample(1))
    return made


def test_all_that_wait_are_counted_by_reason_and_tasks_of_arrays_one_by_one(lab: Lab) -> None:
    snapshot = lab.snapshot()
    rows = {str(one["reason"]): one for one in now_by_reason(snapshot)}
    assert list(rows) == list(WORDS)
    assert {word: (one["jobs"], one["cores"]) for word, one in rows.items()} == {
        "limit": (2, 9),
        "no room": (10, 30),
        "order": (1, 4),
        "not eligible": (1, 2),
        "other": (0, 0),
    }
    assert rows["limit"]["names"] == {"QOSMaxCpuPerUserLimit": 1, "AssocGrpCpuLimit": 1}
    assert rows["order"]["longest_s"] == 500.0 and rows["other"]["longest_s"] is None
    assert sum(int(str(one["jobs"])) for one in rows.values()) == snapshot.waiting


def test_a_reason_that_changes_is_counted_anew(lab: Lab) -> None:
    lab.snapshot()
    lab.slurm.jobs[11]["state_reason"] = "Priority"
    rows = {str(one["reason"]): one["jobs"] for one in now_by_reason(lab.snapshot(5))}
    assert (rows["limit"], rows["order"]) == (1, 2)
    lab.slurm.start(11, "n2", START_S + 6)
    rows = {str(one["reason"]): one["jobs"] for one in now_by_reason(lab.snapshot(10))}
    assert (rows["limit"], rows["order"]) == (1, 1)


def test_groups_are_partition_account_qos_and_user(lab: Lab) -> None:
    snapshot = lab.snapshot()
    by = now_by(snapshot, lab.cluster.applications)
    jobs = {name: {str(one["name"]): one["jobs"] for one in rows} for name, rows in by.items()}
    assert jobs == {
        "partition": {"batch": 13, "batch,urgent": 1},
        "account": {"physics": 13, "chem": 1},
        "qos": {"normal": 13, "short": 1},
        "user": {"ann": 13, "bob": 1},
    }
    bob = next(one for one in by["user"] if one["name"] == "bob")
    assert bob["reasons"] == dict.fromkeys(WORDS, 0) | {"limit": 1} and bob["cores"] == 8


@pytest.mark.parametrize("job", ["11", "12"])
def test_whoever_a_limit_holds_is_no_guest_and_the_reason_says_so(lab: Lab, job: str) -> None:
    snapshot = lab.snapshot()
    assert job not in names(snapshot, snapshot.queue)
    held = row(snapshot, job)
    assert Ineligible(snapshot.jobs.guest_bar[held]) is Ineligible.LIMIT
    assert lab.offer(snapshot, job, "1", "n1") == "a limit of its user, account or QOS keeps it from starting"
    assert lab.slurm.updates == [], "Slurm is asked for nothing"


def test_the_story_of_a_job_that_waits_beside_the_queue_names_its_reason(lab: Lab) -> None:
    snapshot = lab.snapshot()
    listed = job_rows(snapshot, lab.cluster.applications)
    assert "11" not in [one["job"] for one in listed]
    assert {one["wait_reason"] for one in listed if one["state"] == "running"} == {None}
    (held,) = job_rows(snapshot, lab.cluster.applications, "11")
    assert held["state"] == "waiting" and held["guest_bar"] == Ineligible.LIMIT.text
    (turn,) = job_rows(snapshot, lab.cluster.applications, "10")
    assert turn["wait_reason"] == "Priority" and turn["guest_bar"] == ""
    lines = list(live_lines("11", {"live": held}, verbose=False))
    assert "waits for QOSMaxCpuPerUserLimit (limit)" in lines[0]
    assert lines[1] == "  is no guest: a limit of its user, account or QOS keeps it from starting"


def test_a_limit_that_held_a_job_says_nothing_once_it_runs(lab: Lab) -> None:
    lab.snapshot()
    lab.slurm.start(11, "n2", START_S + 1)
    lab.slurm.jobs[11]["state_reason"] = "QOSMaxCpuPerUserLimit"
    snapshot = lab.snapshot(5)
    assert snapshot.jobs.guest_bar[row(snapshot, "11")] == 0


# ------------------------------------------------------------------------------------------------------------ history


def shown(reasons: list[int], partitions: list[int] | None = None, time_s: float = 1000.0) -> Snapshot:
    """The small cluster with its two waiting jobs, and why they wait by code."""
    seen = cluster()
    rows = np.array([WAITING, OFFERED][: len(reasons)], np.int32)
    waits = Waits(
        row=rows,
        tasks=np.ones(len(rows), np.int32),
        reason=np.array(reasons, np.int32),
        partition=np.array(partitions or [0] * len(rows), np.int32),
        reasons=["Priority", "AssocGrpCpuLimit", "Resources"],
        partitions=["batch", "gpu"],
        accounts={WAITING: "physics"},
        qos={},
    )
    return replace(seen, time_s=time_s, waits=waits)


def test_a_look_a_minute_counts_the_time_since_the_one_before() -> None:
    kept: list[Waited] = []
    history = WaitHistory(kept.extend)
    for time_s in (1000.0, 1030.0, 1060.0, 1119.0, 1130.0):
        history.look(shown([1, 0], [0, 1], time_s))
    assert kept == [], "a few looks are handed over together"
    history.hand_over()
    assert kept == [
        *(Waited(1060.0, "batch", "limit", 60.0, 120.0), Waited(1060.0, "gpu", "order", 60.0, 120.0)),
        *(Waited(1130.0, "batch", "limit", 70.0, 140.0), Waited(1130.0, "gpu", "order", 70.0, 140.0)),
    ]
    history.hand_over()
    assert len(kept) == 4, "nothing is handed over twice"


def test_nobody_knows_how_it_was_in_a_long_pause_or_when_a_clock_was_set_back() -> None:
    kept: list[Waited] = []
    history = WaitHistory(kept.extend)
    for time_s in (0.0, 50_000.0, 10.0, 80.0):
        history.look(shown([0], time_s=time_s))
    history.look(replace(shown([0], time_s=900.0), waits=None))
    history.hand_over()
    assert [(one.time_s, one.job_s) for one in kept] == [(50_000.0, MOST_LOOK_S), (80.0, 70.0)]


def test_looks_are_handed_over_in_time_and_partitions_are_bounded() -> None:
    kept: list[Waited] = []
    history = WaitHistory(kept.extend)
    many = MOST_PARTITIONS + 20
    base = shown([0])
    assert base.waits is not None
    waits = replace(
        base.waits,
        row=np.full(many, WAITING, np.int32),
        tasks=np.arange(many, 0, -1).astype(np.int32),
        reason=np.zeros(many, np.int32),
        partition=np.arange(many, dtype=np.int32),
        partitions=[f"p{k}" for k in range(many)],
    )
    for look in range(LOOKS + 1):
        assert kept == []
        history.look(replace(base, time_s=60.0 * look, waits=waits))
    assert len(kept) == LOOKS * (MOST_PARTITIONS + 1)
    first = {one.partition: one.job_s for one in kept[: MOST_PARTITIONS + 1]}
    assert first["p0"] == 60.0 * many and first["others"] == 60.0 * sum(range(1, 21))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "asad.db")) as opened:
        yield opened


def test_the_store_sums_by_hour_and_later_by_day_and_forgets_at_last(store: Store) -> None:
    day_s = 20_000 * DAY_S
    looks = [Waited(day_s + 60.0 * k, "batch", "limit", 60.0, 240.0) for k in range(1, 121)]
    stored.add(store, looks[:50])
    stored.add(store, [*looks[50:], Waited(day_s + 60.0, "gpu", "no room", 3600.0, 7200.0)])
    wanted = {"batch": {"limit": (2.0, 8.0)}, "gpu": {"no room": (1.0, 2.0)}}
    assert stored.hours(store) == wanted and stored.first_s(store) == day_s
    assert stored.hours(store, day_s + HOUR_S) == {"batch": {"limit": (61 / 60, 61 / 15)}}
    keep = Keep(90 * DAY_S, 30 * DAY_S, 14 * DAY_S, 60 * DAY_S, 200 * DAY_S)
    list(steps(store, day_s + 61 * DAY_S, None, keep))
    assert stored.hours(store) == wanted, "by day they are the same sums"
    assert stored.hours(store, day_s + HOUR_S) == {}
    list(steps(store, day_s + 202 * DAY_S, None, keep))
    assert stored.hours(store) == {} and stored.first_s(store) is None


# ------------------------------------------------------------------------------------------------------------- daemon


def test_the_daemon_reports_why_jobs_wait_now(live: Callable[..., Life]) -> None:
    held = Held()
    held.shown = shown([1, 2], [0, 1])
    life = live(held=held)
    found = life.ask("waits")
    assert {one["reason"]: one["jobs"] for one in found["reasons"]} == dict.fromkeys(WORDS, 0) | {
        "limit": 1,
        "no room": 1,
    }
    assert {one["name"]: one["jobs"] for one in found["by"]["account"]} == {"physics": 1, "-": 1}
    assert life.ask("status")["waits"] == found["reasons"]
    text = life.ask("metrics")
    for word in WORDS:
        jobs = {"limit": 1.0, "no room": 1.0}.get(word, 0.0)
        assert f'asad_waiting_jobs{{reason="{word}"}} {jobs}' in text
    assert text.count("asad_waiting_jobs{") == len(WORDS), "labels are these words and no others"
    assert METRICS["asad_waiting_jobs"].labels == ("reason",)


def test_a_cluster_that_gives_no_reasons_is_reported_to_give_none(live: Callable[..., Life]) -> None:
    life = live()
    with pytest.raises(Refused, match="does not say why its jobs wait; asactl waits LOG"):
        life.ask("waits")
    assert life.ask("status")["waits"] == [] and "asad_waiting_jobs{" not in life.ask("metrics")


def test_what_jobs_waited_for_is_in_the_store_when_the_daemon_has_stopped(
    live: Callable[..., Life], tmp_path: Path
) -> None:
    held = Held()
    held.shown = shown([1, 0])
    life = live(held=held)
    held.shown = shown([1, 0], time_s=1090.0)
    life.cycles(2)
    life.daemon.stop()
    life.thread.join(300)
    with Store.open(str(tmp_path / "asad.db"), create=False) as opened:
        found = stored.hours(opened)
    assert found == {"batch": {"limit": (0.025, 0.05), "order": (0.025, 0.05)}}


# ------------------------------------------------------------------------------------------------------------- asactl


ANSWER: dict[str, Any] = {
    "now_s": 2_000_000_000.0,
    "waiting": 40,
    "reasons": [
        {
            "reason": "limit",
            "jobs": 30,
            "cores": 960,
            "longest_s": 90_000.0,
            "names": {"QOSMax\x1b[2JLimit": 30},
        },
        {"reason": "no room", "jobs": 10, "cores": 40, "longest_s": 60.0, "names": {"Resources": 10}},
        {"reason": "order", "jobs": 0, "cores": 0, "longest_s": None, "names": {}},
    ],
    "by": {
        "partition": [
            {
                "name": "batch",
                "jobs": 40,
                "cores": 1000,
                "longest_s": 90_000.0,
                "reasons": {"limit": 30, "no room": 10},
            }
        ],
        "user": [
            {"name": f"u{k}", "jobs": 2, "cores": 4, "longest_s": None, "reasons": {"limit": 2}}
            for k in range(25)
        ],
    },
}


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    verbs: list[str] = []

    def handle(request: Request, peer: Peer) -> Json:
        verbs.append(request.verb)
        return ANSWER

    server = ControlServer(tmp_path / "s", handle)
    server.start()
    monkeypatch.setenv("ASAD_SOCKET", str(server.path))
    yield verbs
    server.stop()


def call(*words: str) -> Result:
    return CliRunner().invoke(asactl, ["waits", *words])


def test_without_a_log_the_daemon_is_asked(asked: list[str]) -> None:
    result = call("--by", "partition,user")
    text = " ".join(result.output.split())
    assert result.exit_code == 0 and asked == ["waits"], result.output
    assert "40 jobs wait: 75 % limit, 25 % no room. Limits, which bind guests too, hold up more" in text
    assert "limit 30 960 1 d 1 h" in text and "and 5 more rows; --json has all" in text
    assert "\\x1b[2J" in text and "\x1b" not in text
    assert "order" not in text, "what nobody waits for is not shown"


def test_json_holds_what_the_daemon_answered_of_the_groups_that_were_asked_for(asked: list[str]) -> None:
    result = call("--by", "user", "--json")
    found = plain_of(result.output)
    assert found["reasons"] == ANSWER["reasons"] and list(found["by"]) == ["user"]
    assert len(found["by"]["user"]) == 25 and found["waiting"] == 40
    validate(json.loads(result.output))


def test_hours_come_from_the_store_and_need_no_daemon(store: Store, tmp_path: Path) -> None:
    now_s = time.time()
    stored.add(
        store,
        [Waited(now_s, "batch", "limit", 36_000.0, 72_000.0), Waited(now_s, "gpu", "order", 4000.0, 1.0)],
    )
    place = ("--store", str(tmp_path / "asad.db"))
    text = " ".join(call("--since", "7d", *place).output.split())
    assert "Nothing was kept before" in text and "limit 10.0 20.0 90 %" in text
    assert "batch 10.0 100 %" in text and "gpu 1.1 0 % 100 %" in text
    result = call("--since", "7d", "--json", *place)
    found = plain_of(result.output)
    assert found["reasons"][0] == {
        "reason": "limit",
        "wait_h": 10.0,
        "core_h": 20.0,
        "share": pytest.approx(0.9),
    }
    assert [one["name"] for one in found["by"]["partition"]] == ["batch", "gpu"]
    validate(json.loads(result.output))
    assert "holds no waits from then on" in call("--since", "2035-01-01", *place).output


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--by", "colour"), "--by colour: choose from partition, account, qos, user"),
        (("--nodes", "4"), "--nodes describes a log: name LOG as well"),
        (("--no-infer",), "--no-infer describes a log"),
        (("log.txt", "--since", "7d"), "--since asks the daemon: leave out LOG"),
        (("log.txt", "--socket", "s"), "--socket asks the daemon"),
        (("--store", "asad.db"), "--store is read with --since alone"),
        (("--since", "7d", "--by", "user"), "--by user: the store keeps hours by partition alone"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: tuple[str, ...], why: str) -> None:
    result = call(*words)
    assert isinstance(result.exception, UsageError) and why in str(result.exception)


def test_a_sentence_says_how_many_lending_could_help() -> None:
    rows = [{"reason": word, "jobs": jobs} for word, jobs in zip(WORDS, (1, 5, 2, 0, 2), strict=True)]
    assert live_sentence(rows).endswith("Lending CPU can help 7 of them at most.")
    assert live_sentence([{"reason": "order", "jobs": 1}]).startswith("1 job waits: 100")
    assert live_sentence([]) == "No job waits." and set(LIVE_LENDING) < set(LIVE_MEANING) == set(WORDS)


def test_a_snapshot_without_reasons_has_no_rows() -> None:
    assert now_by_reason(cluster()) == [] and now_by(cluster(), []) == {}
    empty = shown([])
    assert [one["jobs"] for one in now_by_reason(empty)] == [0] * len(WORDS)
    assert now_by(empty, ["ann/sim/4"])["partition"] == []
    unknown = shown([0])
    unknown.jobs.submit_s[WAITING] = math.nan
    assert now_by_reason(unknown)[WORDS.index("order")]["longest_s"] is None
