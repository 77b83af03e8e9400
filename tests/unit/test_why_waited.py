"""Why jobs waited: limits, room, order, and nothing called a limit where there is none."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from log_of_jobs import log_of as plain_log
from recorded_logs import HEADER, line, log_of

from asad.cli.asactl import asactl
from asad.model import Machine
from asad.replay.inferred_machine import infer
from asad.replay.machine import uniform
from asad.replay.readers import read_log
from asad.replay.waits.slurms_word import names_ceiling, names_limit
from asad.replay.waits.wait_sweep import NAMES
from asad.replay.waits.why_waited import WhyWaited, why_jobs_waited
from asad.report.wait_reasons import MEANING

SAMPLES = Path("profiles/samples")
TRACES = Path("../shared/traces")
KTH = "KTH-SP2-1996-2.1-cln-filtered"


def nodes(count: int, cores: int, memory: float = np.nan) -> Machine:
    machine = uniform(count, cores, memory, "given")
    return replace(machine, node_names=tuple(f"n{k}" for k in range(1, count + 1)))


def split(
    tmp_path: Path, jobs: list[dict[str, Any]], machine: Machine, use_memory: bool = False
) -> WhyWaited:
    return why_jobs_waited(log_of(tmp_path / "log", jobs), machine, use_memory)


def waited(found: WhyWaited, row: int) -> dict[str, float]:
    return {name: value for name, value in zip(NAMES, found.part_s[row].tolist(), strict=True) if value}


def busy(cores: int, run: int, **more: Any) -> dict[str, Any]:
    return {"id": 1, "start": 0, "run": run, "cores": cores, "nodes": "n1", **more}


def test_a_wait_for_cores_then_for_nothing_that_the_log_shows(tmp_path: Path) -> None:
    waits = {"id": 2, "submit": 100, "start": 1500, "run": 10, "cores": 2, "nodes": "n1"}
    found = split(tmp_path, [busy(3, 1000), waits], nodes(1, 4))
    assert waited(found, 1) == {"cores": 900, "unexplained": 500}


def test_cores_that_are_free_on_several_nodes_are_not_free_on_one(tmp_path: Path) -> None:
    jobs = [
        busy(3, 1000),
        {"id": 2, "start": 0, "run": 1000, "cores": 3, "nodes": "n2"},
        {"id": 3, "submit": 10, "start": 1000, "run": 10, "cores": 2, "nodes": "n1"},
    ]
    assert waited(split(tmp_path, jobs, nodes(2, 4)), 2) == {"nodes": 990}


def test_memory_and_gres(tmp_path: Path) -> None:
    jobs = [
        busy(1, 1000, memory="7Gn"),
        {"id": 2, "submit": 10, "start": 1000, "run": 10, "nodes": "n1", "memory": "4Gn"},
    ]
    machine = nodes(1, 4, 8 * 2.0**30)
    assert waited(split(tmp_path, jobs, machine, use_memory=True), 1) == {"memory": 990}
    gpu = [
        busy(1, 1000, tres=",gres/gpu=4"),
        {"id": 2, "submit": 10, "start": 1000, "run": 10, "nodes": "n1", "tres": ",gres/gpu=1"},
    ]
    assert waited(split(tmp_path, gpu, nodes(1, 4)), 1) == {"gres": 990}


def test_order_is_where_others_wait_too(tmp_path: Path) -> None:
    jobs = [
        busy(3, 1000),
        {"id": 2, "submit": 10, "start": 1000, "run": 10, "cores": 4, "nodes": "n1"},
        {"id": 3, "submit": 20, "start": 1010, "run": 10, "cores": 1, "nodes": "n1"},
    ]
    found = split(tmp_path, jobs, nodes(1, 4))
    assert waited(found, 1) == {"cores": 990}
    assert waited(found, 2) == {"order": 980, "cores": 10}


def test_what_was_not_eligible_stands_beside_the_wait(tmp_path: Path) -> None:
    jobs = [busy(1, 10), {"id": 2, "submit": 100, "eligible": 700, "start": 1000, "run": 10, "nodes": "n1"}]
    found = split(tmp_path, jobs, nodes(1, 4))
    assert found.wait_s[1] == 300 and found.not_eligible_s[1] == 600


def limited(jobs: int) -> list[dict[str, Any]]:
    """A user whose jobs run one after the other, although three of four cores are free."""
    return [
        {"id": k + 1, "submit": k, "start": k * 600, "run": 600, "cores": 1, "nodes": "n1", "user": "ben"}
        for k in range(jobs)
    ]


@pytest.mark.parametrize("infer_limits", [True, False])
def test_a_ceiling_beside_room_is_a_limit(tmp_path: Path, infer_limits: bool) -> None:
    recorded = log_of(tmp_path / "log", limited(20))
    found = why_jobs_waited(recorded, nodes(1, 4), False, infer=infer_limits)
    share = found.seconds()["limit"] / found.wait_s.sum()
    assert share == (pytest.approx(1.0) if infer_limits else 0.0)
    assert bool(found.limits) == infer_limits
    if infer_limits:
        assert (
            "ben" in found.limits[0].text
            or "phys" in found.limits[0].text
            or "normal" in found.limits[0].text
        )


def test_who_fills_the_partition_is_not_limited(tmp_path: Path) -> None:
    jobs = [
        {"id": k + 1, "submit": k, "start": k * 600, "run": 600, "cores": 4, "nodes": "n1", "user": "ben"}
        for k in range(20)
    ]
    found = split(tmp_path, jobs, nodes(1, 4))
    assert found.seconds()["limit"] == 0 and found.seconds()["cores"] == found.wait_s.sum() > 0


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.sacct*")), ids=lambda path: path.name)
def test_nothing_is_called_a_limit_in_logs_without_any(path: Path) -> None:
    recorded = read_log(path)
    found = why_jobs_waited(recorded, infer(recorded), False)
    assert found.seconds()["limit"] <= 0.01 * found.wait_s.sum()
    jobs = recorded.jobs
    assert np.allclose(found.wait_s, np.maximum(0.0, jobs.start_s - jobs.queued_s))


@pytest.mark.skipif(not TRACES.exists(), reason="no traces here")
def test_kth_under_exact_easy_has_no_limits_in_any_week() -> None:
    recorded = read_log(TRACES / f"{KTH}.swf.gz")
    with gzip.open(TRACES / "golden" / f"{KTH}.easy_per_timestamp.csv.gz", "rt") as file:
        golden = {row["job_id"]: row for row in csv.DictReader(file)}
    ours = [golden[str(one)] for one in recorded.jobs.job_id]
    start, run, submit = (np.array([float(row[key]) for row in ours]) for key in ("start", "run", "submit"))
    jobs = replace(recorded.jobs, start_s=start, run_s=run, submit_s=submit)
    week = submit // (7 * 86400.0)
    total = limit = 0.0
    for number in np.unique(week).tolist():
        part = replace(recorded, jobs=jobs.take(np.flatnonzero(week == number)))
        found = why_jobs_waited(part, uniform(100, 1, np.nan, "KTH"), False)
        total, limit = total + found.wait_s.sum(), limit + found.seconds()["limit"]
        assert found.seconds()["limit"] <= 0.01 * max(1.0, found.wait_s.sum())
    assert 0 <= limit <= 0.001 * total


# ----------------------------------------------------------------------------------------------- the command


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(asactl, ["waits", *arguments])
    return result.exit_code, result.output if result.exception is None else str(result.exception)


def test_the_command_says_what_limits_take(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join((HEADER, *map(line, limited(20)))) + "\n")
    status, text = call(str(log), "--nodes", "1", "--cores", "4")
    assert status == 0
    assert "Most of the wait is limits, which no lending can shorten" in text
    assert "never more than 1 " in text
    status, text = call(str(log), "--nodes", "1", "--cores", "4", "--by", "user,account", "--json")
    answer = json.loads(text)
    assert answer["by"]["user"][0]["name"] == "ben"
    assert answer["by"]["user"][0]["reasons"].keys() == MEANING.keys()
    assert {row["reason"]: row["share"] for row in answer["reasons"]}["limit"] == pytest.approx(1.0)


def test_jobs_that_never_started_are_left_out_and_counted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    rows = [line(job).split("|") for job in limited(5)]
    for row in rows[3:]:
        row[3:6] = "Unknown", row[4], "0"
    log.write_text("\n".join((HEADER, *map("|".join, rows))) + "\n")
    arguments = (str(log), "--nodes", "1", "--cores", "4")
    answer = json.loads(call(*arguments, "--json")[1])
    counts = [answer["log"][key] for key in ("jobs", "never_started", "start_unknown")]
    assert counts == [3, 2, 0]
    # 0, 600 - 1 and 1200 - 2 s
    assert answer["wait_mean_s"] == pytest.approx(1797 / 3)
    assert "2 jobs never started: they were cancelled while they waited" in call(*arguments)[1]


def test_jobs_whose_start_no_log_says_are_left_out_and_counted(tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    rows = [(1, 0, 10), (2, 5, -1), (3, 9, 40)]
    log.write_text(
        "".join(f"{number} {at} {wait} 100 1 -1 -1 1 200 -1 1 1 1 1 1 1 -1 -1\n" for number, at, wait in rows)
    )
    arguments = (str(log), "--nodes", "1", "--cores", "4")
    status, text = call(*arguments, "--json")
    answer = json.loads(text)
    assert (status, answer["log"]["jobs"], answer["log"]["start_unknown"]) == (0, 2, 1)
    assert answer["wait_mean_s"] == 25
    assert "1 job ran and has no start in the log" in call(*arguments)[1]
    log.write_text("2 5 -1 100 1 -1 -1 1 200 -1 1 1 1 1 1 1 -1 -1\n")
    assert "no job of this log says when it started" in call(*arguments)[1]


def test_slurms_reasons_confirm_limits_and_give_no_time(tmp_path: Path) -> None:
    log, jobs = tmp_path / "log", limited(20)
    for job in jobs[1:9]:
        job["reason"] = "QOSMaxCpuPerUserLimit"
    jobs[9]["reason"] = "AssocGrpCPUMinutesLimit"  # not of what is held at one time
    for place, flag in enumerate(("SchedSubmit", "SchedMain", "SchedBackfill,StartReceived", "SchedMain")):
        jobs[place]["flags"] = flag
    # another user, whom nothing shown here kept
    alone = {"submit": 100, "start": 700, "run": 10, "nodes": "n2", "user": "ann", "account": "b", "qos": "c"}
    jobs.append({**alone, "id": 50, "partition": "other", "reason": "AssocGrpNodeLimit"})
    log.write_text("\n".join((HEADER, *map(line, jobs))) + "\n")
    arguments = (str(log), "--nodes", "2", "--cores", "4")
    answer = json.loads(call(*arguments, "--json")[1])
    (limit,) = answer["limits"]
    assert (limit["inferred"], limit["jobs"], limit["confirmed_by"]) == (True, 19, 8)
    reasons = {row["reason"]: (row["jobs"], round(row["wait_h"] * 3600)) for row in answer["last_reasons"]}
    waits_s = [600 * k - k for k in range(20)]
    assert reasons == {
        "QOSMaxCpuPerUserLimit": (8, sum(waits_s[1:9])),
        "AssocGrpCPUMinutesLimit": (1, waits_s[9]),
        "AssocGrpNodeLimit": (1, 600),
    }
    flags = {row["flag"]: (row["jobs"], row["share"]) for row in answer["started_by"]}
    assert flags == {"SchedMain": (2, 0.5), "SchedBackfill": (1, 0.25), "SchedSubmit": (1, 0.25)}
    assert any(
        note.startswith(
            "1 jobs were kept waiting by a limit, by Slurm's last reason (most by AssocGrpNodeLimit)"
        )
        for note in answer["log"]["notes"]
    )
    text = " ".join(call(*arguments)[1].split())
    assert "(inferred, confirmed by Slurm's reason of 8 jobs)" in text
    assert "50 % by the main scheduler" in text and "25 % by backfill" in text


def test_a_log_without_reasons_confirms_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join((HEADER, *map(line, limited(20)))) + "\n")
    arguments = (str(log), "--nodes", "1", "--cores", "4")
    answer = json.loads(call(*arguments, "--json")[1])
    assert [answer[key] for key in ("last_reasons", "started_by")] == [[], []]
    assert [row["confirmed_by"] for row in answer["limits"]] == [None]
    assert "last reason" not in call(*arguments)[1]


@pytest.mark.parametrize(
    ("reason", "limit", "ceiling"),
    [
        ("QOSMaxCpuPerUserLimit", True, True),
        ("QOSGrpNodeLimit", True, True),
        ("AssocMaxJobsLimit", True, True),
        ("AssocGrpCpuLimit", True, True),
        ("MaxGRESPerAccount", True, True),
        ("AssocGrpCPUMinutesLimit", True, False),
        ("QOSMaxWallDurationPerJobLimit", True, False),
        ("QOSMaxCpuPerJobLimit", True, False),
        ("QOSNotAllowed", False, False),
        ("Dependency", False, False),
        ("MaxTimeLimit", False, False),
    ],
)
def test_which_reasons_are_limits(reason: str, limit: bool, ceiling: bool) -> None:
    jobs = plain_log([{"reason": reason}, {"reason": ""}])
    assert names_limit(jobs).tolist() == [limit, False]
    assert names_ceiling(jobs).tolist() == [ceiling, False]


def test_given_limits_take_the_place_of_inferred_ones(tmp_path: Path) -> None:
    log, limits = tmp_path / "log", tmp_path / "limits"
    log.write_text("\n".join((HEADER, *map(line, limited(4)))) + "\n")  # too few occasions to infer any
    limits.write_text("Name|MaxTRESPU|MaxJobsPU\nnormal|cpu=1|\n")
    arguments = (str(log), "--nodes", "1", "--cores", "4", "--json")
    inferred, given = (json.loads(call(*arguments, *more)[1]) for more in ((), ("--limits", str(limits))))
    assert inferred["limits"] == []
    assert [row["limit"] for row in given["limits"]] == ["QOS normal: MaxTRESPU cpu=1 of user ben"]
    assert not given["limits"][0]["inferred"] and given["limits"][0]["jobs"] == 3
    assert {row["reason"]: row["share"] for row in given["reasons"]}["limit"] == pytest.approx(1.0)


def test_the_command_refuses_what_it_cannot_sum_by(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join((HEADER, *map(line, limited(2)))) + "\n")
    _, text = call(str(log), "--by", "colour")
    assert text == "--by colour: choose from partition, account, qos, user"
