"""Listings: their formats are those of squeue and sinfo, sets of nodes are folded, and they fit 80 columns."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

from asad.api.control import ControlServer, Peer, Request
from asad.cli import times
from asad.cli.asactl import asactl
from asad.cli.listings import LISTINGS
from asad.cli.screen import nodes_text
from asad.cluster.node_names import folded
from asad.errors import UsageError
from asad.model import Json
from asad.report.terminal import terminal_console

WIDE = "日本語の名前"
"""Each of its signs takes two columns."""
START_S = 1_767_225_600.0
"""2026-01-01 00:00 UTC, in the winter of Berlin."""
NODES = [f"node{number:02}" for number in range(1, 17)]
JOBS = [
    {
        "job": "41400_[1-999%50]",
        "state": "guest",
        "user": "anna.lindqvist",
        "name": f"train-{WIDE}\x1b[2J",
        "partition": "batch",
        "cores": 1024,
        "nodes": NODES[:8],
        "node_count": 8,
        "start_s": START_S,
        "submit_s": START_S - 60,
        "limit_end_s": START_S + 7200,
        "cpu_fraction": 0.93,
        "pressure": 0.12,
        "happiness": 1.91,
        "needs": dict.fromkeys(NODES[:8], 4.2),
        "from": {node: {"41344": 2.2, "free": 2.0} for node in NODES[:8]},
        "share": None,
    },
    {
        "job": "9",
        "state": "waiting",
        "user": WIDE,
        "name": "a",
        "cores": 4,
        "nodes": [],
        "node_count": 2,
        "time_limit_s": 3600.0,
        "submit_s": START_S,
        "guest_bar": "it wants licences, and nothing is known of its application\x07",
    },
    {
        "job": "41344",
        "state": "running",
        "user": "bob",
        "name": "x" * 300,
        "cores": 128,
        "nodes": NODES,
        "node_count": 16,
        "start_s": START_S,
        "submit_s": START_S,
        "gives": {"41400": 17.6},
        "host_bar": "it has not run long enough to be known",
    },
]
ROWS = [
    {
        "node": node,
        "partitions": ["batch", "gpu"],
        "state": "IDLE+DRAIN" if node == "node16" else "MIXED",
        "cores": 128,
        "memory_bytes": 2.0**38,
        "idle_cores": 4,
        "jobs": ["41344"],
        "guests": ["41400"],
        "lent": 0.4,
        "actor": node != "node16",
        "report_age_s": 2.0,
        "cgroup": 2,
        "bar": "its node actor does not answer" if node in NODES[12:] else "",
    }
    for node in NODES
]
ANSWERS: dict[str, Any] = {
    "status": {
        "version": "0.3",
        "mode": "enforce",
        "since_s": START_S,
        "now_s": START_S + 600,
        "cycle": {"number": 812, "time_s": START_S, "wall_ms": 38.2, "sentence": "2 offers, " * 20},
        "cluster": {"sentence": "Slurm 22.05.8 by command", "nodes": 16, "cores": 2048},
        "actors": {"connected": 12, "silent": NODES[12:]},
        "lending": [
            {
                "guest": job["job"],
                "guest_user": job["user"],
                "nodes": job["nodes"],
                "needs": job.get("needs", {}),
                "pace": 0.98,
                "since_s": START_S,
            }
            for job in JOBS
        ],
        "vetoes": {f"property {number}": number for number in range(20)},
    },
    "jobs": {"jobs": JOBS, "total": 3, "now_s": START_S + 600},
    "nodes": {"nodes": ROWS, "now_s": START_S + 600},
    "tasks": {
        "now_s": START_S,
        "jobs": [
            {
                "job": "m17",
                "state": "waiting",
                "why": "no offer is large enough for it " * 3,
                "submit_s": START_S,
                "spec": {"name": WIDE * 9, "user": "anna.lindqvist", "groups": [{"tasks": 4}]},
                "tasks": [],
            }
        ],
    },
    "admission": {
        "policy": "oasis",
        "slot_s": 600.0,
        "horizon": 144,
        "cores": 2048.0,
        "jobs": [
            {
                "job": "41400_7",
                "verdict": "admitted",
                "workers": 12,
                "payoff": 1.5,
                "utility": "sigmoid(1, 2, 3) " * 4,
            }
            | {"reason": "its payoff is above nothing at the prices of that moment"}
        ],
        "slots": [{"start_s": START_S, "planned_cores": 12, "other_cores": 9.0, "price": 0.123456}],
    },
    "deferral": {
        "policy": "rollout",
        "step_s": 1800.0,
        "waiting": 1,
        "running": 0,
        "now_s": START_S,
        "jobs": [
            {
                "job": "41400_7",
                "cores": 12,
                "rank": 1,
                "score": 1.23456,
                "latest_s": START_S + 9000,
                "state": "by hand",
            }
            | {
                "reason": "of the nodes on which it could run none is free before noon, as on-demand jobs come"
            }
        ],
        "forecast": [[START_S + 3600 * hour, 100.0] for hour in range(9)],
    },
    "sow-status": {
        "policy": "sow",
        "round_s": 600.0,
        "now_s": START_S,
        "counts": {"planned": 1},
        "statements": [
            {
                "statement": 17,
                "owner": "anna.lindqvist",
                "name": WIDE * 9,
                "job": "41400_7",
                "state": "planned",
            }
            | {"cores": 128, "due_s": START_S, "start_s": START_S + 600, "paid": 1.5}
        ],
    },
}
NARROW: dict[tuple[str, ...], list[str]] = {
    ("jobs",): ["41400_[1-999%50]", "anna.lindqvist", WIDE, "1 024"],
    ("nodes",): [*NODES, "node[13-16]"],
    ("status",): ["node[13-16]", "41400_[1-999%50]", "anna.lindqvist"],
    ("top", "--once"): ["node[13-16]", "41400_[1-999%50]", WIDE],
    ("tasks",): ["m17", "anna.lindqvist", "waiting"],
    ("admit", "status"): ["41400_7", "2026-01-01 00:00:00 UTC"],
    ("defer", "status"): ["41400_7", "2026-01-01"],
    ("sow", "status"): ["17", "anna.lindqvist", "41400_7", "planned"],
}
"""What is listed → what must be there whole."""


@pytest.fixture(autouse=True)
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def handle(request: Request, peer: Peer) -> Json:
        answer: Json = ANSWERS[request.verb]
        return answer

    server = ControlServer(tmp_path / "s", handle)
    server.start()
    monkeypatch.setenv("ASAD_SOCKET", str(tmp_path / "s"))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    server.stop()
    monkeypatch.undo()
    time.tzset()


def call(*words: str) -> Result:
    return CliRunner().invoke(asactl, words)


def lines(*words: str) -> list[str]:
    done = call(*words)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output.splitlines()


# ---------------------------------------------------------------------------------------------------- 80 columns


@pytest.mark.parametrize("words", NARROW, ids=" ".join)
def test_listings_fit_eighty_columns_with_their_names_whole(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = lines(*words)
    assert max(map(cell_len, shown)) <= 80, [line for line in shown if cell_len(line) > 80]
    assert all(line.isprintable() for line in shown)
    text = "\n".join(shown)
    assert not [name for name in NARROW[words] if name not in text], text


def test_a_row_is_one_line_and_reasons_stand_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = lines("nodes")
    assert [line.split()[0] for line in shown[1:17]] == NODES
    assert shown[17:] == ["lends nothing: its node actor does not answer: node[13-16]"]


def test_what_has_no_place_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    shown = lines("jobs")
    assert max(map(cell_len, shown)) <= 50 and "41400_[1-999%50]" in shown[1]
    assert any(line.startswith("no place for ") and "happiness" in line for line in shown)


def test_a_pipe_reads_whole_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert "needs 4.2 cores of node[01-08] each (2.2 from 41344, 2 free)" in lines("jobs")[1]


# ------------------------------------------------------------------------------------------------------- formats


def test_letters_mean_what_they_mean_to_squeue() -> None:
    assert lines("jobs", "-o", "%.18i|%9u|%.2t|%T|%.10M|%.10L|%D|%C|%R") == [
        "             JOBID|USER     |ST|STATE|      TIME| TIME_LEFT|NODES|CPUS|NODELIST(REASON)",
        "  41400_[1-999%50]|anna.lind| R|RUNNING|   0:10:00|   1:50:00|8|1024|node[01-08]",
        f"                 9|{WIDE[:4]} |PD|PENDING|   0:00:00|   1:00:00|2|4|"
        "(it wants licences, and nothing is known of its application\\x07)",
        "             41344|bob      | R|RUNNING|   0:10:00|       N/A|16|128|node[01-16]",
    ]


def test_names_have_twenty_columns_unless_stated_otherwise() -> None:
    shown = lines("jobs", "-O", "JobID:.18,role:8,starttime", "--noheader", "--sort", "jobid")
    assert shown[0] == "                 9waiting N/A"
    assert shown[1] == "             41344running 2026-01-01T00:00:00"


def test_no_field_brings_control_characters_to_a_terminal() -> None:
    for command in ("jobs", "nodes", "tasks", "admit status", "defer status", "sow status"):
        everything = ",".join(f"{field.name}:400" for field in LISTINGS[command])
        shown = lines(*command.split(), "-O", everything)
        assert len(shown) > 1 and all(line.isprintable() for line in shown)
    assert all(line.isprintable() for line in lines("jobs", "-o", "%i\x1b[2J%j"))


def test_sorting_takes_letters_and_names_and_numbers_as_numbers() -> None:
    def order(keys: str) -> list[str]:
        return lines("jobs", "-o", "%i", "--noheader", "-S", keys)

    assert order("i") == ["9", "41344", "41400_[1-999%50]"]
    assert order("-C") == ["41400_[1-999%50]", "41344", "9"]
    assert order("t,-numcpus") == ["9", "41400_[1-999%50]", "41344"]
    assert order("-cpuuse")[0] == "41400_[1-999%50]", "who has no value comes last"


def test_nodes_that_are_alike_are_one_line() -> None:
    assert lines("nodes", "-o", "%20N %.5c %.8m", "--noheader") == ["node[01-16]            128   262144"]
    assert lines("nodes", "-O", "nodelist:12,actor:10", "--noheader") == [
        "node[01-15] answers",
        "node16      silent",
    ]
    assert lines("nodes", "-o", "%P %12N %T", "--noheader") == [
        "batch,gpu node[01-15]  MIXED",
        "batch,gpu node16       IDLE+DRAIN",
    ]
    assert lines("jobs", "-o", "%i|%P", "--noheader")[:2] == ["41400_[1-999%50]|batch", "9|N/A"]
    assert len(lines("nodes", "-o", "%n", "--noheader")) == 16


@pytest.mark.parametrize(
    "words",
    [
        ("-o", "%i %Q"),
        ("-O", "jobid,colour"),
        ("-S", "colour"),
        ("-o", "%"),
        ("-O", "jobid:x"),
        ("-O", "\x1b[2J"),
    ],
)
def test_a_field_that_does_not_exist_is_an_error_that_lists_those_that_do(words: tuple[str, str]) -> None:
    error = call("jobs", *words).exception
    assert isinstance(error, UsageError)
    assert "there is no field" in str(error) and "JobID (%i)" in str(error) and "Happiness" in str(error)
    assert str(error).isprintable()


@pytest.mark.parametrize("command", LISTINGS)
def test_fields_of_a_listing_have_names_and_letters_of_their_own_and_stand_in_its_help(command: str) -> None:
    fields = LISTINGS[command]
    assert len({one.name.lower() for one in fields}) == len(fields)
    letters = [one.letter for one in fields if one.letter]
    assert len(set(letters)) == len(letters)
    shown = lines(*command.split(), "--help")
    assert max(map(cell_len, shown)) <= 80
    for one in fields:
        assert any(
            line.split()[-len(one.about.split()) - 1 :][0] == one.name for line in shown if one.about in line
        )


def test_a_format_can_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASACTL_JOBS_FORMAT", "%i")
    assert lines("jobs", "--noheader")[1] == "9"
    assert lines("jobs", "--noheader", "-O", "username")[2] == "bob", "what is typed goes first"


# --------------------------------------------------------------------------------------------------------- nodes


def test_nodes_are_given_as_sets() -> None:
    assert [line.split()[0] for line in lines("nodes", "node[02-03],node16", "node01")[1:5]] == [
        "node01", "node02", "node03", "node16",
    ]  # fmt: skip
    assert lines("jobs", "-w", "node[09-12]", "-o", "%i", "--noheader") == ["41344"]
    with pytest.raises(UsageError, match=r"has no node\[17-18\]"):
        CliRunner().invoke(asactl, ["nodes", "node[16-18]"], catch_exceptions=False)
    for wrong in ("node[1-", "node[1-99999999]", "@all"):
        assert isinstance(call("nodes", wrong).exception, UsageError), wrong


def test_names_are_folded_whatever_they_are() -> None:
    assert folded(["n3", "n1", "n2", "gpu1", "n1"]) == "gpu1,n[1-3]"
    assert folded(["n09", "n10"]) == "n[09-10]"
    assert folded(["n1", "n2", "a[1-9]", "x,y", "@all"]) == "n[1-2],a[1-9],x,y,@all"
    assert folded([]) == "" and nodes_text(["a\x1b", "n1"]) == "n1,a\\x1b" and nodes_text(None) == "-"


# ---------------------------------------------------------------------------------------------- colours and times


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({"CLICOLOR_FORCE": "1"}, True),
        ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False),
        ({"CLICOLOR_FORCE": "0"}, False),
        ({"CLICOLOR_FORCE": "1", "CLICOLOR": "0"}, False),
        ({}, False),
    ],
)
def test_colours_are_as_the_environment_wants_them(
    environment: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    console = terminal_console()
    with console.capture() as captured:
        console.print("silent", style="yellow")
    assert ("\x1b[33m" in captured.get()) == coloured
    assert ("\x1b[" in call("status").output) == coloured


def test_times_are_those_of_the_site_unless_TZ_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert times.moment(START_S) == "2026-01-01 00:00:00 UTC"
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    assert times.moment(START_S) == "2025-12-31 19:00:00 EST"
    assert times.with_dates({"start_s": START_S})["start_iso"] == "2025-12-31T19:00:00-05:00"
    config = tmp_path / "asad.toml"
    config.write_text('[daemon]\ntime_zone = "Europe/Berlin"\n')
    monkeypatch.setenv("ASAD_CONFIG", str(config))
    assert times.moment(START_S).endswith("EST")
    monkeypatch.delenv("TZ")
    assert times.moment(START_S) == "2026-01-01 01:00:00 CET"
    assert times.with_dates([{"start_s": 12.0, "end_s": None}]) == [{"start_s": 12.0, "end_s": None}]
    assert times.moment(12.0) == "t=12 s"


def test_a_zone_that_does_not_exist_is_a_fault_with_its_line(tmp_path: Path) -> None:
    config = tmp_path / "asad.toml"
    config.write_text('[daemon]\ntime_zone = "Europe/Atlantis"\n')
    done = call("config", "check", str(config))
    assert ":2: daemon.time_zone: 'Europe/Atlantis' is no time zone" in str(done.exception)
