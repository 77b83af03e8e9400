"""Slurm's JSON, of all versions, becomes the same rows."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from asad_slurm.answers import JobReader, NodeReader
from asad_slurm.records import ENDED, LEAVES, MOST_NAME, RUNS, WAITS, read_job, read_nodes
from slurm_golden import check_jobs, check_nodes, check_queued
from slurm_samples import GOLDEN, a_job, running

from asad.errors import ClusterError

SQUEUE = (GOLDEN / "22.05" / "squeue.json").read_bytes()
VERSIONS = {"22.05": (38, "22.05.8"), "24.11": (42, "24.11.5"), "26.05": (44, "26.05.5")}
"""Of each recorded release, who wrote it: data parser and Slurm. 26.05 is asked for an older one than its newest."""


def answer(*jobs: dict[str, Any], indent: int | None = 2) -> bytes:
    return json.dumps(
        {"meta": {"plugin": {"type": "openapi/v0.0.38"}}, "jobs": list(jobs)}, indent=indent
    ).encode()


def wrapped(number: float, infinite: bool = False, there: bool = True) -> dict[str, Any]:
    return {"set": there, "infinite": infinite, "number": number}


@pytest.mark.parametrize("version", VERSIONS)
def test_golden_jobs(version: str) -> None:
    reader = JobReader()
    jobs = reader.read((GOLDEN / version / "squeue.json").read_bytes())
    assert reader.version == VERSIONS[version]
    check_jobs(jobs)
    check_queued((GOLDEN / version / "squeue.json").read_bytes())
    assert jobs[0].places_are_cores is (version == "22.05")


@pytest.mark.parametrize("version", VERSIONS)
def test_golden_nodes(version: str) -> None:
    reader = NodeReader()
    answer = (GOLDEN / version / "sinfo.json").read_bytes()
    nodes = reader.read(answer)
    check_nodes(nodes)
    assert reader.read(bytes(answer)) is nodes


def test_hostile_name_is_harmless() -> None:
    seen = read_job(a_job(1, name="\x1b]0;owned\x07", user_name="a\nb", account="\u202ex"))
    assert (seen.name, seen.user, seen.account) == ("�]0;owned�", "a�b", "�x")
    seen = read_job(a_job(1, name="a\u2066b\u200fc\u061cd\u2028e", user_name="A" * 300))
    assert seen.name == "a�b�c�d�e"
    assert read_job(a_job(1, name="é" * 10_000)).name == "é" * MOST_NAME


@pytest.mark.parametrize("name", [b"caf\xe9", b"\xff\xfe", b"\xed\xa0\x80"])
def test_a_name_that_is_not_utf_8_hides_nobody(name: bytes) -> None:
    text = answer(a_job(1), a_job(2, name="NAME", comment="asad:NAME"), a_job(3)).replace(b"NAME", name)
    reader = JobReader()
    jobs = reader.read(text)
    assert [job.text for job in jobs] == ["1", "2", "3"]
    assert jobs[1].name == name.decode("utf-8", "replace") == jobs[1].comment.removeprefix("asad:")
    assert reader.read(text)[1] is jobs[1] and reader.parsed == 0
    assert repr(reader._read_whole(text)) == repr(jobs)


def test_text_that_looks_like_json_does_not_cut_a_job() -> None:
    name = '"},\n    {\n      "account": "x", "jobs": [ {'
    jobs = JobReader().read(answer(a_job(1, name=name), a_job(2, comment='}],"jobs":[]')))
    assert [job.text for job in jobs] == ["1", "2"]


@pytest.mark.parametrize("indent", [None, 2, 7])
def test_cut_and_whole_reading_agree(indent: int | None) -> None:
    jobs = [a_job(i, comment="{[" * i) for i in range(5)] + [running(9, {"n1": 2})]
    text = answer(*jobs, indent=indent)
    whole = JobReader()
    assert repr(JobReader().read(text)) == repr(whole._read_whole(text))


def test_only_what_has_changed_is_read_again() -> None:
    reader = JobReader()
    first = reader.read(answer(a_job(1), a_job(2), a_job(3)))
    assert reader.parsed == 3
    second = reader.read(answer(a_job(3), a_job(1), a_job(2, priority=5)))
    assert reader.parsed == 1
    assert second[0] is first[2] and second[1] is first[0] and second[2].priority == 5


def test_no_jobs_at_all() -> None:
    assert JobReader().read(answer()) == []
    assert JobReader().read(answer(indent=None)) == []


@pytest.mark.parametrize(
    "text", [b"", b"slurm_load_jobs error", b'{"jobs": 3}', b'{"jobs": [{"x": 1}]}', SQUEUE[:5000]]
)
def test_what_is_no_answer_is_an_error(text: bytes) -> None:
    with pytest.raises(ClusterError, match="squeue --json: the answer cannot be read"):
        JobReader().read(text)
    with pytest.raises(ClusterError, match="sinfo --json: the answer cannot be read"):
        NodeReader().read(text)


@pytest.mark.parametrize("error", [{"error": "Unable to contact", "error_number": 1}, "Unable to contact"])
def test_an_answer_that_shows_nothing_because_of_an_error_is_one(error: Any) -> None:
    """Else all jobs would be taken to have ended, and their offers to be over."""
    for reader, rows, command in ((JobReader(), "jobs", "squeue"), (NodeReader(), "nodes", "sinfo")):
        answered = {"errors": [error], rows: []}
        with pytest.raises(ClusterError, match=f"{command} --json: Unable to contact"):
            reader.read(json.dumps(answered).encode())
        assert reader.read(json.dumps(answered | {"errors": []}).encode()) == []


def test_too_old_a_slurm_is_refused() -> None:
    text = answer(a_job(1)).replace(b"v0.0.38", b"v0.0.35")
    with pytest.raises(ClusterError, match=r"asad needs Slurm 21\.08"):
        JobReader().read(text)


def newer(number: int, **facts: Any) -> dict[str, Any]:
    """A job as data_parser v0.0.41 writes it."""
    job = a_job(number)
    for key in ("array_job_id", "cpus", "end_time", "het_job_id", "node_count", "priority", "start_time"):
        job[key] = wrapped(job[key])
    return (
        job
        | {
            "array_task_id": wrapped(0, there=False),
            "het_job_offset": wrapped(0, there=False),
            "job_state": ["PENDING"],
            "memory_per_cpu": wrapped(0, there=False),
            "memory_per_node": wrapped(500),
            "shared": [],
            "exclusive": [],
            "submit_time": wrapped(job["submit_time"]),
            "time_limit": wrapped(10),
            "eligible_time": wrapped(job["submit_time"]),
            "deadline": wrapped(0),
            "array_max_tasks": wrapped(0),
            "nice": 0,
            "admin_comment": "",
        }
        | facts
    )


def test_newer_shape_gives_the_same_record() -> None:
    assert repr(read_job(newer(7))) == repr(read_job(a_job(7)))
    begin, deadline = a_job(7)["submit_time"] + 50, a_job(7)["submit_time"] + 9000
    facts = {"array_task_string": "3-9%2", "admin_comment": "asad: x", "nice": -9900}
    old = read_job(
        a_job(7, array_job_id=7, array_max_tasks=2, eligible_time=begin, deadline=deadline, **facts)
    )
    new = read_job(
        newer(
            7,
            array_job_id=wrapped(7),
            array_max_tasks=wrapped(2),
            eligible_time=wrapped(begin),
            deadline=wrapped(deadline),
            **facts,
        )
    )
    assert repr(old) == repr(new)
    assert (new.begin_s, new.deadline_s, new.throttle, new.nice) == (begin, deadline, 2, -9900)
    assert read_job(a_job(7, nice=2**32 - 9900)).nice == -9900  # as 22.05 writes it
    assert read_job(a_job(7, nice=100)).nice == 100


def test_newer_details() -> None:
    endless = newer(1, time_limit=wrapped(0, infinite=True))
    assert read_job(endless).time_limit_s == math.inf
    assert read_job(newer(1, job_state=["RUNNING", "COMPLETING"])).phase == LEAVES
    assert read_job(newer(1, job_state=["TIMEOUT"])).phase == ENDED
    assert read_job(newer(1, shared=["none"], exclusive=["true"])).exclusive
    assert not read_job(newer(1, shared=["oversubscribe"], exclusive=["false"])).exclusive
    task = newer(8, array_job_id=wrapped(5), array_task_id=wrapped(0))
    assert read_job(task).text == "5_0"
    layout = {
        "nodes": {"allocation": [{"name": "n1", "cpus": {"count": 4}}, {"name": "n2", "cpus": {"count": 2}}]}
    }
    placed = read_job(newer(1, job_state=["RUNNING"], job_resources=layout))
    assert placed.places == (("n1", 4), ("n2", 2)) and not placed.places_are_cores
    middle = {"allocated_nodes": [{"nodename": "cs66", "sockets": {"1": {"cores": {"7": "allocated"}}}}]}
    assert read_job(newer(1, job_state=["RUNNING"], job_resources=middle)).places == (("cs66", 1),)


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("RUNNING", RUNS),
        ("CONFIGURING", RUNS),
        ("SUSPENDED", RUNS),
        ("PENDING", WAITS),
        ("REQUEUE_HOLD", WAITS),
        ("COMPLETING", LEAVES),
        ("CANCELLED", ENDED),
        ("NODE_FAIL", ENDED),
    ],
)
def test_phases(state: str, phase: int) -> None:
    assert read_job(a_job(1, job_state=state)).phase == phase


@pytest.mark.parametrize(
    ("text", "first", "count"),
    [
        ("1-10%2", 1, 10),
        ("3,7,9", 3, 3),
        ("0-8:4", 0, 3),
        ("5", 5, 1),
        ("1-3,9-...", 1, 3),
        ("garbage", 0, 1),
    ],
)
def test_waiting_tasks_of_an_array(text: str, first: int, count: int) -> None:
    job = read_job(a_job(6, array_job_id=6, array_task_string=text))
    assert (job.text, job.tasks) == (f"6_{first}", count)


def group(partition: str, *state: str) -> dict[str, Any]:
    return {
        "node": {"state": list(state)},
        "nodes": {"nodes": ["cs11"]},
        "cpus": {"minimum": 64, "maximum": 64},
        "threads": {"minimum": 2, "maximum": 2},
        "memory": {"minimum": 770000, "maximum": 770000},
        "features": {"total": "a,b", "active": "a"},
        "partition": {"name": partition},
    }


def test_groups_of_newer_sinfo_are_one_node() -> None:
    (node,) = read_nodes({"sinfo": [group("hw", "MIXED"), group("hw-h", "MIXED")]})
    assert (node.name, node.cpus, node.threads, node.usable) == ("cs11", 64, 2, True)
    assert node.partitions == ("hw", "hw-h") and node.features == {"a"}
    for state in ("DRAIN", "NOT_RESPONDING", "MAINTENANCE", "RESERVED", "SOMETHING_NEW"):
        assert not read_nodes({"sinfo": [group("hw", "IDLE", state)]})[0].usable
