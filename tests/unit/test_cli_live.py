"""`asactl status`, `top`, `jobs`, `nodes`, `pause`, `resume`, `release`, `mode`, `config` and `progress`."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from plain_answers import plain_of
from rich.console import Console, RenderableType

from asad.api.control import ControlServer, DaemonDown, NotAllowed, Peer, Refused, Request
from asad.cli import explain, live
from asad.cli.asactl import COMMANDS, asactl
from asad.cli.config import toml_lines
from asad.cli.listing_fields import usual_table
from asad.cli.live_fields import JOB_FIELDS, NODE_FIELDS
from asad.decisions import Cause, CoAllocate, Outcome
from asad.errors import AsadError, ConfigError, UsageError
from asad.model import Json
from asad.store.store import Store

ROOT = Path(__file__).resolve().parents[2]
LIVE = ("jobs", "mode", "nodes", "pause", "release", "resume", "status", "top")


def status(**changed: Any) -> dict[str, Any]:
    """What a daemon in the middle of its work says."""
    return {
        "version": "0.3",
        "mode": "enforce",
        "paused": False,
        "since_s": time.time() - 7384,
        "cycle": {
            "number": 812,
            "time_s": time.time() - 4,
            "wall_ms": 38.2,
            "sentence": "cycle 812: 2 offers",
        },
        "cluster": {
            "sentence": "Slurm 22.05.8 by command",
            "nodes": 16,
            "cores": 1512,
            "waiting": 120,
            "running": 34,
            "guests": 2,
        },
        "lending": [
            {
                "guest": "101",
                "host": "77",
                "nodes": ["n1", "n2"],
                "share": 0.4,
                "since_s": time.time() - 600,
                "guest_user": "ann",
                "host_user": "bob\x1b[31m",
                "pace": 0.98,
                "happiness": 1.25,
            },
            {"guest": "102", "host": None, "nodes": [], "share": None, "pace": None, "happiness": None},
        ],
        "gains": {"guests": 41, "lent_core_s": 443_000.0, "extended_s": 600.0, "saved_wait_s": 14_400.0},
        "vetoes": {"host floor": 3, "better off": 10},
        "actors": {"connected": 15, "silent": ["n3"]},
        **changed,
    }


JOBS = [
    {
        "job": "77",
        "state": "running",
        "user": "bob",
        "cores": 8,
        "start_s": 0.0,
        "cpu_fraction": 0.31,
        "pressure": 0.02,
        "happiness": None,
        "host": None,
        "share": None,
        "host_bar": "",
        "guest_bar": "",
    },
    {
        "job": "78",
        "state": "running",
        "user": "eve\x07",
        "cores": 8,
        "start_s": 0.0,
        "host_bar": "it opted out",
        "guest_bar": "",
    },
    {
        "job": "90",
        "state": "waiting",
        "user": "ann",
        "cores": 2,
        "submit_s": 0.0,
        "guest_bar": "it wants licences",
    },
    {"job": "101", "state": "guest", "user": "ann", "cores": 2, "host": "77", "share": 0.4},
]
NODES = [
    {
        "node": "n1",
        "cores": 8,
        "actor": True,
        "report_age_s": 2.1,
        "cgroup": 2,
        "jobs": ["77"],
        "guests": ["101"],
        "lent": 0.4,
        "bar": "",
    },
    {
        "node": "n3",
        "cores": 8,
        "actor": False,
        "report_age_s": None,
        "cgroup": None,
        "jobs": [],
        "guests": [],
        "bar": "its node actor does not answer",
    },
]


class Daemon:
    """Answers as the daemon does, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Json]]] = []
        self.answers: dict[str, Any] = {
            "status": status(),
            "jobs": {"jobs": JOBS, "total": 7, "now_s": 3600.0},
            "nodes": {"nodes": NODES},
            "config": {"daemon": {"mode": "advise"}},
            "release": {"done": ["offer to 103 is taken back", "evil\x1b[2J"]},
        }

    def handle(self, request: Request, peer: Peer) -> Json:
        self.asked.append((request.verb, dict(request.arguments)))
        answer: Any = self.answers.get(request.verb)
        if isinstance(answer, AsadError):
            raise answer
        return answer  # type: ignore[no-any-return]


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    made = Daemon()
    server = ControlServer(tmp_path / "asad.sock", made.handle)
    server.start()
    monkeypatch.setenv("ASAD_SOCKET", str(server.path))
    yield made
    server.stop()


def call(*words: str) -> Result:
    return CliRunner().invoke(asactl, words)


def output_of(*words: str) -> str:
    result = call(*words)
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


# ------------------------------------------------------------------------------------------------------ looking


def test_status_is_one_screen(daemon: Daemon) -> None:
    lines = output_of("status").splitlines()
    assert lines[0] == "asad 0.3 · enforce · up 2:03:04"
    assert lines[1:7] == [
        "cluster  Slurm 22.05.8 by command",
        "jobs     34 running, 120 waiting, 2 as guests; on 16 nodes, 1 512 cores",
        "cycle    812, 4 s ago, took 38 ms: 2 offers",
        "actors   15 connected; silent: n3",
        "gains    41 guests so far, 123.1 core-hours lent, 4:00:00 of waiting saved, time limits extended by 0:10:00",
        "vetoes   better off 10, host floor 3",
    ]
    assert lines[8].split() == ["guest", "of", "beside", "of", "nodes", "share", "for", "pace", "happiness"]
    assert lines[9].split() == [
        "101",
        "ann",
        "77",
        "bob\\x1b[31m",
        "n[1-2]",
        "40",
        "%",
        "0:10:00",
        "98",
        "%",
        "1.25",
    ]
    assert lines[10].split() == ["102", "-", "-", "-", "-", "idle", "class", "-", "-", "-"]
    assert len(lines) <= 24


def test_status_says_pause_and_an_empty_house(daemon: Daemon) -> None:
    daemon.answers["status"] = status(
        paused=True, lending=[], vetoes={}, cycle={}, actors={}, gains={}, cluster={}
    )
    text = output_of("status")
    assert "· paused" in text
    assert "nobody lends at the moment" in text
    assert "cycle    none yet; the daemon is about to begin the first" in text
    assert "cluster  nothing has been seen yet" in text
    assert "vetoes" not in text


def test_status_shows_where_the_idle_cpu_goes(daemon: Daemon) -> None:
    listed = [
        {"reason": "headroom", "core_h": 30.0},
        {"reason": "lent", "core_h": 10.0},
        {"reason": "no\x1bsense"},
    ]
    daemon.answers["status"] = status(funnel=listed)
    text = " ".join(output_of("status").split()).replace("\u202f", " ")
    assert "Of the 40 core-h that batch left idle, 25 % was lent; the largest reason against it" in text
    assert "“headroom” (75 %): lower the option headroom" in text and "\x1b" not in text
    daemon.answers["status"] = status(funnel=[])
    assert "core-h that batch" not in output_of("status")


def test_what_the_daemon_is_at_is_reported(daemon: Daemon) -> None:
    daemon.answers["status"] = status(doing="in cycle 813, for 65 s now")
    assert "2 offers; now in cycle 813, for 65 s now" in output_of("status")
    daemon.answers["status"] = status(cycle={}, doing="compiling its \x1bpolicies, for 7 s now")
    assert "none yet; the daemon is compiling its \\x1bpolicies, for 7 s now" in output_of("status")


def test_a_status_of_another_version_is_shown_as_far_as_it_goes(daemon: Daemon) -> None:
    daemon.answers["status"] = {
        "mode": "observe",
        "lending": [3],
        "actors": {"connected": ["n1"], "silent": None},
    }
    assert "asad - · observe" in output_of("status")
    daemon.answers["status"] = status(actors={"connected": 1, "silent": [f"n{k}" for k in range(20)]})
    assert "silent: n[0-19]" in output_of("status")


def test_ages_count_by_the_clock_of_a_recorded_log(daemon: Daemon) -> None:
    cycle = {"number": 3, "time_s": 940.0, "wall_ms": None, "sentence": "all is well"}
    daemon.answers["status"] = status(now_s=1000.0, cycle=cycle, lending=[{"guest": "1", "since_s": 400.0}])
    text = output_of("status")
    assert "up 2:03:04" in text, "which is the daemon's own age"
    assert "cycle    3, 60 s ago: all is well" in text
    assert "0:10:00" in text


def test_status_as_json_is_what_the_daemon_reported(daemon: Daemon) -> None:
    assert plain_of(output_of("status", "--json")) == daemon.answers["status"]


def test_jobs_show_their_reasons_in_words(daemon: Daemon) -> None:
    lines = output_of("jobs").splitlines()
    assert len(lines) == 6
    assert lines[1].split()[:5] == ["77", "bob", "running", "8", "1:00:00"], "by the daemon's clock"
    assert lines[5] == "3 more; --limit shows them"
    result = call("jobs", "--json")
    assert result.stderr == "3 more; --limit shows them\n" and len(json.loads(result.stdout)) == 4
    assert "31 %" in lines[1]
    assert lines[2].endswith("lends nothing: it opted out")
    assert "eve\\x07" in lines[2]
    assert lines[3].endswith("no guest: it wants licences")
    assert lines[4].split()[-3:] == ["77", "40", "%"]
    assert not any(character in output_of("jobs") for character in "\x07\x1b")


def test_a_guest_without_a_host_shows_what_it_needs_of_its_nodes(daemon: Daemon) -> None:
    pooled = {"guest": "103", "host": None, "nodes": ["node07"], "share": None, "needs": {"node07": 4.2}}
    daemon.answers["status"] = status(lending=[pooled])
    assert "needs 4.2 cores of node07" in output_of("status") and "quota" in output_of("status")
    guest = {"job": "103", "state": "guest", "cores": 5, "needs": {"node07": 4.2, "evil\x1b": 1.0}}
    host = {"job": "77", "state": "running", "cores": 8, "host": None, "share": 0.3, "needs": {}}
    fed = guest | {
        "from": {"node07": {"free": 1.0, "413": 1.9, "414": 1.3}, "evil\x1b": {"9\x1b": 1, "x": None}}
    }
    giver = host | {"gives": {"41400": 1.2, "41401": 1.9}}
    others = [guest | {"needs": {"n": None}}, fed, giver, host | {"gives": {"7": 1}}, guest | {"from": 3}]
    daemon.answers["jobs"] = {"jobs": [guest, host, *others], "total": 7}
    lines = output_of("jobs").splitlines()
    assert "needs 4.2 cores of node07 and 1 of evil\\x1b" in lines[1]
    assert (
        "4.2 cores of node07 (1.9 from 413, 1.3 from 414, 1 free) and 1 of evil\\x1b (1 from 9\\x1b)"
        in lines[4]
    )
    assert "gives 1.9 cores to 41401 and 1.2 to 41400" in lines[5] and "gives 1 core to 7" in lines[6]
    assert "needs 4.2 cores of node07 and 1 of" in lines[7]
    assert lines[2].split()[-3:] == ["-", "30", "%"]
    assert "needs" not in lines[3]


def test_jobs_are_chosen_by_the_daemon(daemon: Daemon) -> None:
    daemon.answers["jobs"] = {"jobs": JOBS[2:3], "total": 1}
    found = json.loads(output_of("jobs", "--user", "ann", "--state", "waiting", "--limit", "9", "--json"))[
        "jobs"
    ]
    assert [job["job"] for job in found] == ["90"]
    assert daemon.asked == [("jobs", {"user": "ann", "state": "waiting", "limit": 9})]
    daemon.answers["jobs"] = {"jobs": [], "total": 0}
    assert output_of("jobs") == "no jobs\n"


def test_nodes_show_their_actors_and_reasons(daemon: Daemon) -> None:
    lines = output_of("nodes").splitlines()
    assert lines[1].split() == ["n1", "8", "answers", "2", "s", "ago", "2", "77", "101", "40", "%"]
    assert lines[2].split()[:3] == ["n3", "8", "silent"]
    assert lines[2].endswith("lends nothing: its node actor does not answer")
    daemon.answers["nodes"] = {"nodes": []}
    assert output_of("nodes") == "no nodes\n"


def test_an_answer_without_rows_is_an_error(daemon: Daemon) -> None:
    daemon.answers["nodes"] = {"error": 3}
    assert isinstance(call("nodes").exception, Refused)


def on_terminal(columns: int, table: RenderableType) -> list[str]:
    console = Console(file=io.StringIO(), width=columns, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_on_a_narrow_terminal_no_heading_is_cut_and_the_reasons_are_reported_below() -> None:
    job = {"job": "7", "user": "ann", "state": "running", "cores": 4, "start_s": 0.0, "cpu_fraction": 0.5}
    many = [job | {"job": str(7 + k), "host_bar": "it has not run long enough"} for k in range(14)]
    wide = on_terminal(140, usual_table(JOB_FIELDS, [job, *many], 60.0))
    assert wide[0].split()[-5:] == ["happiness", "beside", "share", "why", "not"]
    assert wide[2].endswith("lends nothing: it has not run long enough")
    middle = on_terminal(90, usual_table(JOB_FIELDS, [job, *many], 60.0))
    assert middle[0].split() == ["job", "user", "state", "cores", "for", "CPU", "why", "not"]
    narrow = on_terminal(60, usual_table(JOB_FIELDS, [job, *many], 60.0))
    assert narrow[0].split() == ["job", "user", "state", "cores", "for", "CPU"]
    assert " ".join(narrow[16:]) == (
        "lends nothing: it has not run long enough: 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18 and 2 more"
    )
    full = {"pressure": 0.0, "happiness": 1.9, "host": "57484019", "share": 0.7, "job": "57484010"}
    closer = on_terminal(80, usual_table(JOB_FIELDS, [job | full | {"user": "nobody"}], 14_400.0))
    assert closer[0].endswith("pressure happiness beside   share") and closer[1].endswith(" 57484019  70 %")
    nodes = [{"node": f"n{k}", "cores": 32, "bar": "its actor does not answer"} for k in (1, 2)]
    below = on_terminal(40, usual_table(NODE_FIELDS, nodes, 0.0))[3:]
    assert " ".join(below) == "lends nothing: its actor does not answer: n[1-2]"


def test_top_draws_once_without_a_terminal(daemon: Daemon) -> None:
    text = output_of("top")
    assert text.startswith("asad 0.3 · enforce")
    assert "lends nothing: it opted out" in text
    assert list(plain_of(output_of("top", "--json"))) == ["status", "jobs"]


def test_top_on_a_terminal_is_drawn_anew_and_q_quits(daemon: Daemon) -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    before = termios.tcgetattr(slave)
    words = [sys.executable, "-c", "from asad.cli.asactl import main; main()", "top", "--interval", "0.2"]
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, env=environment)
    try:
        end = time.monotonic() + 300
        seen = b""
        while len([1 for verb, _ in daemon.asked if verb == "status"]) < 3 and time.monotonic() < end:
            seen += read_some(master)
        assert b"enforce" in seen
        os.write(master, b"q")
        while process.poll() is None and time.monotonic() < end:
            read_some(master)
        assert process.poll() == 0
        assert termios.tcgetattr(slave) == before, "the terminal is as it was"
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        os.close(master)
        os.close(slave)


def read_some(terminal: int) -> bytes:
    os.set_blocking(terminal, False)
    try:
        return os.read(terminal, 65536)
    except BlockingIOError:
        time.sleep(0.02)
        return b""


# ------------------------------------------------------------------------------------------------------ changing


def test_what_changes_something_says_so(daemon: Daemon) -> None:
    assert output_of("pause").startswith("paused: nothing new is lent")
    daemon.answers["pause"] = {"paused": True, "meanwhile": "in cycle 3, for 40 s now"}
    assert output_of("pause").splitlines()[1:] == [
        "  it holds from now on, although the daemon is in cycle 3, for 40 s now"
    ]
    assert output_of("resume") == "resumed\n"
    assert output_of("release").splitlines() == [
        "released: offers are taken back, quotas lifted; asad is paused",
        "  offer to 103 is taken back",
        "  evil\\x1b[2J",
    ]
    assert output_of("mode", "advise") == "mode is advise\n"
    assert [verb for verb, _ in daemon.asked] == ["pause", "pause", "resume", "release", "mode"]
    assert daemon.asked[-1][1] == {"mode": "advise"}
    assert plain_of(output_of("release", "--json")) == daemon.answers["release"]


def test_mode_is_shown(daemon: Daemon) -> None:
    assert output_of("mode") == "enforce\n"
    assert plain_of(output_of("mode", "--json")) == {"mode": "enforce"}
    assert call("mode", "attack").exit_code == 2


def test_who_may_not_is_refused_and_leaves_with_4(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asad.api.control.may_change", lambda peer, operators: False)
    for words in (["pause"], ["resume"], ["release"], ["mode", "enforce"]):
        result = call(*words)
        assert isinstance(result.exception, NotAllowed)
        assert result.exception.exit_status == 4
        assert f"may not {words[0]}; only root" in str(result.exception)
    assert output_of("mode") == "enforce\n"
    assert daemon.asked == [("status", {})]


@pytest.mark.parametrize("command", LIVE)
def test_without_a_daemon_every_command_says_so_and_leaves_with_3(command: str, tmp_path: Path) -> None:
    result = call(command, "--socket", str(tmp_path / "none.sock"))
    assert isinstance(result.exception, DaemonDown)
    assert result.exception.exit_status == 3
    assert "systemctl start asad" in str(result.exception)


@pytest.mark.parametrize("command", LIVE)
def test_every_command_speaks_json(command: str) -> None:
    assert "--json" in output_of(command, "--help")


@pytest.mark.slow
def test_exit_statuses_of_the_real_command(tmp_path: Path) -> None:
    environment = {**os.environ, "ASAD_SOCKET": str(tmp_path / "none.sock")}
    words = [sys.executable, "-c", "from asad.cli.asactl import main; main()"]
    for arguments, status_code in ((["status"], 3), (["status", "--nonsense"], 2), (["mode", "x"], 2)):
        done = subprocess.run(
            [*words, *arguments], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == status_code
        assert "Traceback" not in done.stderr


def test_the_socket_is_as_given_or_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASAD_CONFIG", str(tmp_path / "asad.toml"))
    assert str(live.control_socket(None)) == "/run/asad/asad.sock"
    (tmp_path / "asad.toml").write_text('[daemon]\nsocket = "/run/other.sock"\n')
    assert str(live.control_socket(None)) == "/run/other.sock"
    assert str(live.control_socket("/x")) == "/x"


def test_the_short_help_of_every_command_is_its_own() -> None:
    for name, (_, _, line) in COMMANDS.items():
        command = asactl.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        if name in {*LIVE, "config", "doctor", "progress"}:
            assert command.get_short_help_str(100) == line


def test_completion_of_the_shell_knows_the_commands() -> None:
    environment = {
        **os.environ,
        "_ASACTL_COMPLETE": "bash_complete",
        "COMP_WORDS": "asactl mode e",
        "COMP_CWORD": "2",
    }
    words = [
        sys.executable,
        "-c",
        "import sys; sys.argv[0] = 'asactl'; from asad.cli.asactl import asactl; asactl(prog_name='asactl')",
    ]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "plain,enforce\n"


# ------------------------------------------------------------------------------------------------------ explain

RUN = {
    "id": 7,
    "kind": "live",
    "policy": "asax",
    "log": {},
    "machine": {},
    "settings": {},
    "started_at": 1_704_067_200.0,
    "ended_at": None,
    "state": "running",
    "failure": "",
    "checkpoint_s": None,
    "decisions": 1,
    "metrics": {},
    "host": "head",
    "pid": 9,
}
DECISION = {
    "seq": 0,
    "cycle": 3,
    "time_s": 1_704_067_260.0,
    "kind": "co-allocate",
    "job": "101",
    "host": "77",
    "share": 0.4,
    "seconds": None,
    "more": {},
    "policy": "asax",
    "reason": "idle \x1b[2JCPU",
    "outcome": "done",
    "outcome_reason": "",
    "detail": {"weights": [0.5, 0.5]},
}
QUOTA = {
    "time_s": 1_704_067_261.0,
    "node": "n1",
    "file": "cpu.max",
    "old": "max",
    "new": "40000",
    "why": "lease",
}


def test_a_live_job_is_explained_by_the_daemon(daemon: Daemon) -> None:
    now = {
        "job": "101",
        "state": "guest",
        "user": "ann",
        "cores": 2,
        "host": "77",
        "share": 0.4,
        "happiness": 1.2,
    }
    answer = {
        "job": "101",
        "live": now,
        "run": RUN,
        "runs": [7],
        "others": [],
        "decisions": [DECISION],
        "ends": [],
        "quotas": [QUOTA],
    }
    daemon.answers["explain"] = answer
    lines = output_of("explain", "101").splitlines()
    assert lines[0] == "job 101 now: guest of ann, 2 cores, beside 77, may take 40% of it, happiness 1.20"
    assert lines[1] == "job 101 in run 7: live under asax, 2024-01-01 00:00:00 UTC, running"
    assert "guest of asax: starts beside 77, with up to 40 % of its CPU" in "\n".join(lines)
    assert lines[-1].strip() == "because idle \\x1b[2JCPU"
    assert "n1: cpu.max max → 40000 (lease)" in output_of("explain", "101", "--verbose")
    assert plain_of(output_of("explain", "101", "--json")) == answer
    assert daemon.asked[0] == ("explain", {"job": "101"})


def test_a_job_that_waits_and_was_never_touched_has_its_bar_reported(daemon: Daemon) -> None:
    now = {
        "state": "waiting",
        "user": "ann",
        "cores": 2,
        "start_s": None,
        "estimated_start_s": 1_704_067_200.0,
    }
    daemon.answers["explain"] = {"job": "90", "live": {**now, "guest_bar": "it wants licences"}, "run": None}
    assert output_of("explain", "90").splitlines() == [
        "job 90 now: waiting of ann, 2 cores, its own turn is estimated for 2024-01-01 00:00:00 UTC",
        "  is no guest: it wants licences",
        "job 90: no decision names it so far",
    ]


def test_what_the_daemon_does_not_know_is_looked_for_in_the_store(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with Store.open(str(tmp_path / "asad" / "asad.db")) as store:
        run = store.begin_run("replay", "asax", {"path": "/log"}, {}, {})
        starts = CoAllocate(Cause("asax", "idle CPU"), guest=0, host=1, nodes=(0,), share=0.4)
        run.record(1, 60.0, [Outcome(starts, True, "")], ["5", "6"])
        run.finish({})
    daemon.answers["explain"] = UsageError("job 5: neither runs nor waits")
    result = call("explain", "5")
    assert "in run 1: replay of log under asax" in result.stdout
    assert "the daemon: job 5: neither runs nor waits. What follows is from your own store" in result.stderr
    daemon.answers["explain"] = AsadError("broken")
    assert isinstance(call("explain", "5").exception, Refused)
    asked = len(daemon.asked)
    assert "in run 1" in output_of("explain", "5", "--run", "1")
    assert len(daemon.asked) == asked, "who names a run means the store"


@pytest.mark.parametrize(("cluster", "runs"), [("slurm", [1, 3]), ("recorded", [3])])
def test_a_story_goes_on_when_the_daemon_is_started_anew(
    tmp_path: Path, cluster: str, runs: list[int]
) -> None:
    """On a real cluster; a recorded one begins again, with other jobs of the same numbers. A replay is never part."""
    place = str(tmp_path / "asad.db")
    with Store.open(place) as store:
        for number, kind in enumerate(("live", "replay", "live"), 1):
            run = store.begin_run(kind, "asax", None, {"cluster": cluster}, {})  # type: ignore[arg-type]
            cause = Cause("asax", f"reason {number}")
            starts = CoAllocate(cause, guest=0, host=1, nodes=(0,), share=0.4)
            run.record(1, 60.0 * number, [Outcome(starts, True, "")], ["5", "6"])
            run.finish({})
    answer = plain_of(output_of("explain", "5", "--store", place, "--json"))
    assert (answer["run"]["id"], answer["runs"]) == (3, runs)
    assert [one["reason"] for one in answer["decisions"]] == [f"reason {number}" for number in runs]
    assert {one["id"] for one in answer["others"]} == {1, 2, 3} - set(runs)
    shown = output_of("explain", "5", "--store", place)
    assert ("started anew meanwhile: what follows is of run 1 too" in shown) == (len(runs) > 1)
    alone = plain_of(output_of("explain", "5", "--store", place, "--run", "1", "--json"))
    assert alone["runs"] == [1] and [one["reason"] for one in alone["decisions"]] == ["reason 1"]


def test_explain_without_a_daemon_looks_into_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("ASAD_SOCKET", raising=False)
    monkeypatch.setattr(explain, "control_socket", lambda given: Path(given or tmp_path / "none.sock"))
    monkeypatch.setenv("ASAD_CONFIG", str(tmp_path / "asad.toml"))
    (tmp_path / "asad.toml").write_text(f'[daemon]\nstate_dir = "{tmp_path}/state"\n')
    result = call("explain", "5")
    assert isinstance(result.exception, UsageError)
    text = f"no daemon answers at {tmp_path}/none.sock"
    assert text in result.stderr and f"--store {tmp_path}/state/asad.db is the daemon's" in result.stderr
    monkeypatch.delenv("ASAD_CONFIG")
    monkeypatch.setattr(explain, "DEFAULT_PATH", tmp_path / "none.toml")
    assert not call("explain", "5").stderr, "where no daemon is configured nobody misses it"
    assert isinstance(call("explain", "5", "--socket", str(tmp_path / "none.sock")).exception, DaemonDown)


# --------------------------------------------------------------------------------------------- config, progress


def test_config_check_says_right_or_where_it_is_wrong(tmp_path: Path) -> None:
    place = tmp_path / "asad.toml"
    place.write_text('[daemon]\nmode = "advise"\n')
    assert "asad.toml is right: mode advise, cluster slurm" in output_of("config", "check", str(place))
    right = {"file": str(place), "ok": True, "faults": []}
    assert plain_of(output_of("config", "check", str(place), "--json")) == right
    mesos = '[daemon]\ncluster = "slurm+mesos"\n[mesos]\nmaster = "m1:5050"\n'
    place.write_text(mesos + '[mesos.queue]\npartition = "mesos"\n')
    assert "cluster slurm+mesos" in output_of("config", "check", str(place))
    rollout = '[policies]\ndefer = "rollout"\n'
    for wrong, line, seen in (
        ('[daemon]\nmod = "advise"\n', 2, "did you mean 'mode'"),
        ("[slurm]\ntransprt = 1\n", 2, "did you mean 'transport'"),
        (f"{mesos}rolle = 1\n", 5, "did you mean 'role'"),
        (f"{mesos}[mesos.queue]\nhead = 0\n", 6, "is no number from 1"),
        (f"{rollout}[defer.rollout]\nreserve = 5\n", 4, "give a number from 0 to 0.99"),
        (f'{rollout}[defer.rollout]\nsample = "/none.toml"\n', 3, "/none.toml: cannot be read"),
        ('[policies]\nplace = "oga"\nshare = "static"\n', 2, 'share = "exclusive"'),
        ('[daemon]\ncluster = "slrm"\n', 2, "there is no cluster plugin"),
        ('[daemon]\ncluster = "recorded"\n[recorded]\nlog = "/none.txt"\n', 4, "there is no file"),
        ('[guard]\ncalibration = "/none.toml"\n', 0, "/none.toml"),
        (f"{rollout}[[defer.rules]]\nwindow = 3\n", 0, "did you mean 'window_s'"),
    ):
        place.write_text(wrong)
        done = call("config", "check", str(place), "--json")
        error = done.exception
        assert isinstance(error, ConfigError)
        assert error.exit_status == 2
        place_of_it = f"{place}:{line}: " if line else f"{place}: "
        assert str(error).startswith(place_of_it) and seen in str(error)
        assert plain_of(done.stdout) == {"file": str(place), "ok": False, "faults": [str(error)]}


def test_config_check_shows_faults_of_several_tables_at_once(tmp_path: Path) -> None:
    place = tmp_path / "asad.toml"
    place.write_text("[slurm]\ntransprt = 1\n[share.asax]\nlate = 1\n")
    faults = str(call("config", "check", str(place)).exception).splitlines()
    assert [fault.split(": ")[0] for fault in faults] == [f"{place}:4", f"{place}:2"]


def test_the_shipped_configuration_is_right_and_its_comments_are_the_defaults() -> None:
    shipped = ROOT / "profiles" / "asad.toml"
    output_of("config", "check", str(shipped))
    given = tomllib.loads(shipped.read_text())
    text = "\n".join(
        line.removeprefix("# ").split("#")[0] if line.startswith("# ") and " = " in line else line
        for line in shipped.read_text().splitlines()
        if "opt_out" not in line
    )
    commented = tomllib.loads(text)
    from asad.config import TABLES, Config

    defaults = Config().to_json()
    for table, settings in commented.items():
        for key, value in settings.items():
            if key not in given.get(table, {}) and table in defaults:
                assert value == defaults[table][key], f"{table}.{key}"
    for table in set(TABLES) - {"recorded"}:
        assert set(commented[table]) == set(defaults[table]), table


def test_config_show_is_toml_that_can_be_read_again(daemon: Daemon, tmp_path: Path) -> None:
    shipped = str(ROOT / "profiles" / "asad.toml")
    plain = json.loads(output_of("config", "show", shipped, "--json"))
    again = tomllib.loads(output_of("config", "show", shipped))
    assert again["daemon"] == plain["daemon"]
    assert again["slurm"] == {"guest_partitions": {"batch": "guest"}, "lend": {}}
    assert output_of("config", "show", "--live") == '[daemon]\nmode = "advise"\n\n'
    assert tomllib.loads("\n".join(toml_lines({"a b": {"c": [1, "x"], "d": {"e": True}}, "f": 1.5}))) == {
        "a b": {"c": [1, "x"], "d": {"e": True}},
        "f": 1.5,
    }


def test_progress_of_a_job_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASAD_PROGRESS_DIR", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    (tmp_path / "12").touch()
    assert output_of("progress", "40/100") == ""
    assert float((tmp_path / "12").read_text()) == 0.4


def test_progress_never_makes_a_job_fail_where_nobody_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASAD_PROGRESS_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    result = call("progress", "40%")
    assert result.exit_code == 0
    assert "asad-node does not run on this node" in result.output
    assert isinstance(call("progress", "nearly").exception, UsageError)
