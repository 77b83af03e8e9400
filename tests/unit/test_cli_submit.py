"""`asactl submit`, `cancel` and `tasks`: what is asked of the daemon, as whom a job runs, and what is stated when
not."""

from __future__ import annotations

import json
import math
import os
import pwd
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from asad_mesos.job_requests import NotYours, answer
from asad_mesos.job_spec import Spec, spec_from_json
from click.testing import CliRunner, Result
from plain_answers import plain_of

from asad.api.control import ControlServer, Peer, Request
from asad.cli.asactl import asactl
from asad.cli.submit import time_limit_s
from asad.errors import AsadError, UsageError
from asad.model import Json

pytestmark = pytest.mark.usefixtures("published_schemas")

GIBIBYTE = 2.0**30


class Queue:
    """The submit interface of Mesos, on paper."""

    def __init__(self) -> None:
        self.specs: list[Spec] = []
        self.cancelled: list[tuple[str, str]] = []

    def submit(self, spec: Spec, *, bounded: bool = False) -> str:
        self.specs.append(spec)
        return f"m{len(self.specs)}"

    def cancel(self, job: str, why: str) -> bool:
        self.cancelled.append((job, why))
        return len(self.cancelled) == 1

    def status(self, job: str = "") -> list[dict[str, Any]]:
        rows = [
            {
                "job": f"m{number}",
                "state": "running",
                "why": "",
                "submit_s": 100.0,
                "start_s": 160.0,
                "end_s": None,
                "spec": spec.to_json(),
                "tasks": [
                    {
                        "task": f"m{number}.1.0",
                        "group": "task",
                        "index": 0,
                        "state": "TASK_RUNNING",
                        "host": "a1",
                    }
                ],
            }
            for number, spec in enumerate(self.specs, 1)
        ]
        if not job:
            return rows
        found = [row for row in rows if row["job"] == job]
        if not found:
            raise UsageError(f"{job!r}: there is no such job; `asactl tasks` lists those that there are")
        return found


@pytest.fixture
def mesos() -> Queue:
    return Queue()


@pytest.fixture
def run(mesos: Queue, tmp_path: Path) -> Iterator[Callable[..., Result]]:
    """`asactl` against a daemon whose cluster is that queue."""

    def handle(request: Request, peer: Peer) -> Json:
        return answer(mesos, request.verb, request.arguments, peer.user, peer.uid)

    server = ControlServer(tmp_path / "asad.sock", handle)
    server.start()

    def asad(*words: str) -> Result:
        result = CliRunner().invoke(asactl, [*words[:1], "--socket", str(server.path), *words[1:]])
        if result.exception is not None and not isinstance(result.exception, AsadError | SystemExit):
            raise result.exception
        return result

    yield asad
    server.stop()


def output_of(result: Result) -> str:
    """What the user reads of an error."""
    assert isinstance(result.exception, AsadError), result.output
    return str(result.exception)


def test_a_command_becomes_a_gang_of_the_user_whom_the_kernel_names(
    run: Callable[..., Result], mesos: Queue
) -> None:
    result = run(
        "submit", "-n", "4-16", "-c", "2", "--mem", "2G", "--gpus", "1", "-t", "90m", "--", "echo", "a b"
    )
    assert result.output.startswith("submitted m1: 4 to 16 tasks of 2 CPUs, 2048 MiB, 1 GPUs, at most"), (
        result
    )
    (spec,) = mesos.specs
    (group,) = spec.groups
    assert (group.least, group.tasks, group.cpus, group.memory_bytes, group.gpus) == (
        4,
        16,
        2.0,
        2 * GIBIBYTE,
        1,
    )
    assert (spec.user, spec.uid) == (pwd.getpwuid(os.geteuid()).pw_name, os.geteuid())
    assert (spec.command, spec.script, spec.name) == ("echo 'a b'", "", "echo")
    assert spec.time_limit_s == 5400
    assert not spec.elastic


def test_a_script_travels_with_its_arguments(
    run: Callable[..., Result], mesos: Queue, tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\necho $1\n")
    words = [
        "--env",
        "A=1",
        "--attribute",
        "rack=r1",
        "-D",
        "/tmp",
        "-o",
        "out-%j",
        "--apart",
        "--retries",
        "0",
    ]
    assert run("submit", *words, str(script), "one", "-x").exit_code == 0
    (spec,) = mesos.specs
    assert (spec.script, spec.command) == ("#!/bin/sh\necho $1\n", "one -x")
    assert spec.environment == {"A": "1"}
    assert spec.attributes == {"rack": "r1"}
    assert (spec.directory, spec.output, spec.retries, spec.groups[0].apart) == ("/tmp", "out-%j", 0, True)
    assert spec.time_limit_s == math.inf


def test_workers_and_servers_are_two_groups_of_an_elastic_job(
    run: Callable[..., Result], mesos: Queue
) -> None:
    result = run(
        *("submit", "--worker", "tasks=2-8,cpus=2,mem=4G,command=python train.py --role a,b"),
        *(
            "--server",
            "tasks=2,cpus=1,mem=1G",
            "--utility",
            "sigmoid(10,0.5,20m)",
            "--",
            "python",
            "train.py",
        ),
    )
    assert "2 to 8 workers of 2 CPUs, 4096 MiB and 2 servers of 1 CPUs, 1024 MiB" in result.output
    (spec,) = mesos.specs
    worker, server = spec.groups
    assert spec.elastic
    assert (worker.name, worker.command, worker.least) == ("worker", "python train.py --role a,b", 2)
    assert (server.name, server.command, server.tasks) == ("server", "", 2)
    assert spec.hint == "utility=sigmoid(10,0.5,20m)"
    assert spec_from_json(spec.to_json()) == spec


def test_a_dry_run_is_checked_and_submits_nothing(run: Callable[..., Result], mesos: Queue) -> None:
    assert run("submit", "--dry-run", "--", "true").output.startswith(
        "it would be submitted: 1 tasks of 1 CPUs"
    )
    assert not mesos.specs
    assert json.loads(run("submit", "--dry-run", "--json", "--", "true").output)["job"] == ""
    assert "cpus" in output_of(run("submit", "--dry-run", "-c", "99999999", "--", "true"))


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (["--tasks", "8-4", "--", "true"], "the second number is the larger one"),
        (["--tasks", "x", "--", "true"], "write 4, or 4-16"),
        (["--mem", "much", "--", "true"], "write 512M, or 2G"),
        (["--cpus", "inf", "--", "true"], "write 2, or 0.5"),
        (["--gpus", "-1", "--", "true"], "write 1"),
        (["--time", "soon", "--", "true"], "write 90m, 2h"),
        (["--time", "0", "--", "true"], "write 90m, 2h"),
        (["--env", "ASAD_NOT_THERE", "--", "true"], "write --env ASAD_NOT_THERE=VALUE"),
        (["--attribute", "rack", "--", "true"], "write --attribute NAME=TEXT"),
        (["--server", "tasks=1", "--", "true"], "give --worker as well"),
        (["--worker", "cpus=1", "--", "true"], "tasks is missing"),
        (["--worker", "tasks=1,nodes=2", "--", "true"], "'nodes' is no key"),
        (["--worker", "tasks=1,tasks=2", "--", "true"], "given twice"),
        (["--worker", "tasks=1", "--cpus", "2", "--", "true"], "write it into them"),
        (["/no/such/script"], "No such file"),
        ([], "there is nothing to run"),
        (["--worker", "tasks=1"], "there is nothing to run"),
        (["--name", "a\nb", "--", "true"], "control characters"),
    ],
)
def test_what_cannot_be_is_reported_with_its_remedy(
    run: Callable[..., Result], mesos: Queue, words: list[str], seen: str
) -> None:
    assert seen in output_of(run("submit", *words))
    assert not mesos.specs


def test_scripts_that_are_none(run: Callable[..., Result], tmp_path: Path) -> None:
    for content, seen in (
        (b"\xff\xfe\x00", "it is no text"),
        (b"echo hi\n", "by what it is run"),
        (b"#!/bin/sh\n" + b"#" * (512 << 10), "larger than 512 KiB"),
    ):
        script = tmp_path / "job.sh"
        script.write_bytes(content)
        assert seen in output_of(run("submit", str(script)))


def test_a_request_that_is_too_long_is_not_sent(run: Callable[..., Result]) -> None:
    assert "at most 1048576 are taken" in output_of(run("submit", "--", "echo", "x" * (1 << 20)))


def test_jobs_are_listed_and_cancelled(run: Callable[..., Result], mesos: Queue) -> None:
    assert run("tasks").output == "no jobs\n"
    for name in ("one", "two"):
        assert run("submit", "-J", name, "--", "true").exit_code == 0
    listed = run("tasks").output
    assert "m2" in listed
    assert "two" in listed
    assert "m1.1.0" in run("tasks", "m1").output
    assert [job["job"] for job in plain_of(run("tasks", "--json").output)["jobs"]] == ["m1", "m2"]
    assert run("tasks", "--user", "somebody-else").output == "no jobs\n"
    assert "no such job" in output_of(run("tasks", "m99"))
    assert "no such job" in output_of(run("cancel", "m99"))
    assert run("cancel", "m1").output == "m1 is cancelled; its tasks end\n"
    assert run("cancel", "m1").output == "m1 has ended already\n"
    assert mesos.cancelled[0] == ("m1", f"cancelled by {pwd.getpwuid(os.geteuid()).pw_name}")


def test_only_root_submits_for_others_and_only_owners_cancel_and_see_scripts(mesos: Queue) -> None:
    plain: dict[str, Json] = {"spec": {"command": "secret", "environment": {"TOKEN": "1"}}}
    assert answer(mesos, "submit", plain, "ann", 1000) != {}
    with pytest.raises(NotYours, match="only root"):
        answer(mesos, "submit", plain | {"user": "root"}, "ann", 1000)
    answer(mesos, "submit", plain | {"user": "nobody"}, "root", 0)
    assert [(spec.user, spec.uid) for spec in mesos.specs] == [("ann", 1000), ("nobody", 65534)]
    with pytest.raises(UsageError, match="no such user"):
        answer(mesos, "submit", plain | {"user": "no-such-user"}, "root", 0)
    # what somebody writes into the job itself does not count
    answer(mesos, "submit", {"spec": {"command": "x", "user": "root", "uid": 0}}, "bob", 1001)
    assert (mesos.specs[-1].user, mesos.specs[-1].uid) == ("bob", 1001)
    with pytest.raises(UsageError, match="origin"):
        answer(mesos, "submit", {"spec": {"command": "x", "origin": "slurm:1"}}, "bob", 1001)
    with pytest.raises(NotYours, match="not yours"):
        answer(mesos, "cancel", {"job": "m1"}, "bob", 1001)
    assert not mesos.cancelled
    assert answer(mesos, "cancel", {"job": "m1"}, "ann", 1000) == {"job": "m1", "cancelled": True}
    assert "secret" not in json.dumps(answer(mesos, "tasks", {"job": "m1"}, "bob", 1001))
    assert "TOKEN" not in json.dumps(answer(mesos, "tasks", {"job": "m1"}, "bob", 1001))
    for uid in (0, 1000):
        assert "TOKEN" in json.dumps(answer(mesos, "tasks", {"job": "m1"}, "x", uid))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("90m", 5400),
        ("2h", 7200),
        ("1d", 86400),
        ("1.5h", 5400),
        ("1-12:00:00", 129600),
        ("45s", 45),
    ],
)
def test_time_limits(text: str, seconds: float) -> None:
    assert time_limit_s(text) == seconds
