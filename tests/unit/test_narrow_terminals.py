"""Whatever `asactl` prints is of use on 80 columns: over ssh, from a console, in half a screen."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len
from test_cli_ledger import ENTRIES
from test_cli_replay import swf
from test_cli_runs import filled
from test_docs import COMMANDS
from test_listings import ANSWERS, JOBS, START_S, WIDE
from test_sweep import inline

from asad.api.control import ControlServer, Peer, Request
from asad.cli.asactl import asactl
from asad.cli.listings import LISTINGS
from asad.cluster.reason_words import WORDS
from asad.model import Json
from asad.store import lending_ledger, wait_hours
from asad.store.store import Store
from asad.store.wait_hours import Waited

LONG = (
    "of the nodes on which it could run none is free before noon, as on-demand jobs come then, and it waits"
)
MENU = {
    "policy": "sow",
    "cores": 128,
    "gres": "gpu:a100:2",
    "licenses": "matlab:2",
    "round_s": 600.0,
    "first_s": START_S,
    "price": [[0.5 * start + 1.0, 2.0] for start in range(50)],
    "failure": [[0.1, 0.2]] * 50,
}
STATEMENT: dict[str, Any] = ANSWERS["sow-status"]["statements"][0] | {
    "reason": LONG,
    "plan": [[START_S, START_S + 600.0, 0.25], [START_S + 600.0, None, 1.0]],
    "born_s": START_S,
    "first_s": START_S,
    "last_s": START_S + 7200.0,
    "deadline_s": START_S + 86_400.0,
    "value": 12.0,
    "shape": "linear",
    "eviction": "host",
    "expected_payment": 1.25,
    "expected_utility": 10.5,
}
ADMITTED: dict[str, Any] = ANSWERS["admission"]["jobs"][0] | {
    "policy": "oasis",
    "reason": LONG,
    "work": 120,
    "task_s": 3000.0,
    "slot_s": 600.0,
    "most_workers": 64,
    "tres": {"gres/gpu:a100": 2.0, "license/matlab": 1.0},
    "worth": 10.0,
    "cost": 2.5,
    "let_in_at": 0.4,
    "schedule": [[START_S + 600.0 * slot, 12 + slot] for slot in range(60)],
    "prices": [[START_S + 600.0 * slot, 0.1234567] for slot in range(60)],
    "end_s": START_S + 36_000.0,
}
STORY: dict[str, Any] = {
    "job": "41344",
    "live": JOBS[2],
    "deferral": ANSWERS["deferral"]["jobs"][0]
    | {"policy": "rollout", "earliest_s": START_S, "slack_s": 60.0},
    "gang": None,
    "run": None,
    "others": [],
    "decisions": [],
    "ends": [],
    "quotas": [],
}
SPEC: dict[str, Any] = {
    "groups": [
        {"name": name, "least": 4, "tasks": 16, "cpus": 2.0, "gpus": 1, "memory_bytes": 2.0**31}
        for name in ("server", "worker")
    ],
    "time_limit_s": 5400.0,
}
ANSWERED: dict[str, Any] = ANSWERS | {
    "sow-status": ANSWERS["sow-status"] | {"statements": [STATEMENT]},
    "sow-quote": MENU,
    "sow-submit": {"statements": [STATEMENT], "acts": False, "kept": True},
    "sow-cancel": STATEMENT,
    "sow-ledger": {
        "entries": [
            {
                "time_s": START_S,
                "statement": 17,
                "job": "41400_7",
                "account": WIDE,
                "what": "completed",
                "amount": 1.5,
            }
        ]
        * 50,
        "balances": [{"account": WIDE, "entries": 5, "paid": 2, "evicted": 1, "balance": -123456.5}],
        "sum": 0.0,
    },
    "explain": STORY,
    "waits": {
        "now_s": START_S,
        "waiting": 34,
        "reasons": [
            {
                "reason": word,
                "jobs": 10 + k,
                "cores": 1280,
                "longest_s": 1e6,
                "names": {"QOSMaxCpuPerUserLimit" + WIDE: 9},
            }
            for k, word in enumerate(WORDS)
        ],
        "by": {
            name: [
                {
                    "name": WIDE,
                    "jobs": 60,
                    "cores": 6400,
                    "longest_s": None,
                    "reasons": dict.fromkeys(WORDS, 12),
                }
            ]
            * 30
            for name in ("partition", "account", "qos", "user")
        },
    },
    "mode": {"mode": "advise", "before": "observe"},
    "pause": {
        "paused": True,
        "meanwhile": "compiling its policies, which takes a minute or two the first time",
    },
    "resume": {"paused": False, "meanwhile": None},
    "release": {
        "paused": True,
        "done": [f"job {number}: its offer is withdrawn, {LONG}" for number in range(3)],
    },
    "submit": {"job": "m17", "spec": ANSWERS["tasks"]["jobs"][0]["spec"] | SPEC},
    "cancel": {"job": "m17", "cancelled": True},
    "teardown": {"jobs": 3, "tasks": 12},
}
FILES = {
    "log.swf": swf(12),
    "daily.log": "JobID|User|JobName|Submit|Start|ElapsedRaw|NCPUS\n"
    + "".join(
        f"{day}|anna.lindqvist|{WIDE}|2026-01-{day:02}T02:0{day % 7}:00|2026-01-{day:02}T03:00:00|{3000 + day}|128\n"
        for day in range(1, 29)
    ),
    "a.toml": '[policies]\nshare = "static"\n',
    "b.toml": '[policies]\nshare = "exclusive"\n',
    "wrong.toml": "[daemon]\ninterval_s = 0\n",
    "sow.toml": f'version = 1\n[[statement]]\nname = "{WIDE}"\ncores = 4\ndue = 600\nruns = [[0, 3000, 1.0]]\n'
    'value = 1\ndeadline = "1d"\n',
    "sweep.toml": 'name = "one"\npolicies = ["slurm", "fcfs"]\nseeds = 2\n[[logs]]\nlog = "log.swf"\n',
}
STORED = ("--store", "asad.db")
EXEMPT = {
    **dict.fromkeys(
        ("bench all", "bench oasis", "bench oga", "bench sow", "bench together"),
        "takes longer than those of `bench` that are typed, and prints by the same code",
    ),
    "calibrate": "keeps cores busy for minutes",
    "completion": "prints a script for a shell",
    "defer fit": "takes minutes",
    "defer train": "takes minutes",
    "experts fit": "needs hundreds of recorded cases; its sentences are printed as those of eval are",
    "progress": "prints nothing inside a job, and is an error elsewhere",
    "store export": "prints rows for other programs",
}
"""Commands of which no output is looked at here and why; their help is."""
TYPED: dict[str, tuple[str, ...]] = {
    "admit explain": ("41400_7",),
    "admit status": (),
    "bench asax-paper": ("--sizes", "64", "--policy", "slurm,greedy-oracle", "--seeds", "1"),
    "bench osdec": ("--seeds", "2", "--policy", "fifo,edf", "--part", "instances"),
    "cancel": ("m17",),
    "config check": ("a.toml",),
    "config show": ("a.toml",),
    "defer show": (),
    "defer show osdec-s1": (),
    "defer status": (),
    "doctor": (),
    "experts check": (),
    "experts eval": ("--state", "cpu=0.3"),
    "experts show": (),
    "explain": ("41344",),
    "explain 101": (*STORED, "--verbose"),
    "jobs": (),
    "ledger": STORED,
    "mode": (),
    "nodes": (),
    "pause": (),
    "release": (),
    "replay": ("log.swf", *STORED, "--policy", "slurm,static", "--report", "page.html"),
    "replay log.swf": (*STORED, "--policy", "slurm,static", "--full"),
    "resume": (),
    "runs": STORED,
    "runs prune": ("--keep", "2", "--yes", *STORED),
    "runs rm": ("1", "--yes", *STORED),
    "sow cancel": ("17",),
    "sow infer": ("daily.log",),
    "sow ledger": ("--lines",),
    "sow quote": ("--cores", "128", "--time", "20m"),
    "sow status": (),
    "sow status 17": (),
    "sow submit": ("sow.toml",),
    "status": (),
    "store backup": ("copy.db", *STORED),
    "store erase": ("--user", "ann", "--yes", *STORED),
    "store size": STORED,
    "store vacuum": STORED,
    "submit": ("-n", "4-16", "-c", "2", "--mem", "2G", "-t", "90m", "--", "true"),
    "sweep list": STORED,
    "sweep rm": ("one", "--yes", *STORED),
    "sweep run": ("sweep.toml", *STORED),
    "sweep show": ("one", *STORED),
    "tasks": (),
    "tasks m17": (),
    "teardown": ("--yes",),
    "top": ("--once",),
    "waits": (str(Path("profiles/samples/lab-cluster.sacct").resolve()), "--by", "user,partition"),
    "waits --by account,user": (),
    "waits --since 7d": STORED,
    "whatif": ("log.swf", "--config", "a.toml", "--config", "b.toml"),
}
"""Words that are typed → options. Where a command is here twice its other screen is looked at too."""
WHOLE = {
    "runs": ["static", "done", "2026-", "1-03:46:40"],
    "ledger": ["evil\\x1b[2J[red]", "guest"],
    "sow infer": [WIDE, "1-00:00:00"],
    "sow ledger": ["41400_7", WIDE, "2026-01-01 00:00:00 UTC"],
    "sow quote": ["2026-01-01 06:30:00 UTC", "20.0%"],
    "sow status": ["anna.lindqvist", "41400_7", "2026-01-01 00:00 "],
    "store size": ["statement_ledger", "bytes a row"],
    "sweep list": ["one", "done"],
    "sweep show": ["fcfs", "worse"],
    "whatif": ["Response, mean", "better"],
}
"""What must be there whole."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with logs, configurations, and a store that holds runs, a ledger and a sweep."""
    folder = tmp_path_factory.mktemp("narrow")
    for file, text in FILES.items():
        (folder / file).write_text(text)
    filled(str(folder / "asad.db"))
    with Store.open(str(folder / "asad.db")) as store:
        lending_ledger.add(store, ENTRIES)
        wait_hours.add(store, [Waited(time.time(), WIDE, word, 1e9, 1e11) for word in WORDS])
    with pytest.MonkeyPatch.context() as changed:
        changed.chdir(folder)
        changed.setattr("asad.cli.sweep._workers", inline)
        assert typed("sweep run", *TYPED["sweep run"]).exit_code == 0
    return folder


def typed(command: str, *words: str) -> Result:
    return CliRunner().invoke(asactl, [*command.split(), *words])


@pytest.fixture
def narrow(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """80 columns, that folder, and a daemon that answers."""

    def handle(request: Request, peer: Peer) -> Json:
        answer: Json = ANSWERED[request.verb]
        return ADMITTED if request.verb == "admission" and request.arguments.get("job") else answer

    shutil.copytree(stored, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    server = ControlServer(Path("s"), handle)
    server.start()
    for name, value in {"ASAD_SOCKET": "s", "COLUMNS": "80", "ASAD_CONFIG": "a.toml", "TZ": "UTC"}.items():
        monkeypatch.setenv(name, value)
    yield
    server.stop()


def held_to(shown: list[str]) -> None:
    assert [line for line in shown if cell_len(line) > 80] == []
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", "".join(shown))


def test_every_command_is_looked_at_or_exempt() -> None:
    leaves = {
        name.removeprefix("asactl ")
        for name, command in COMMANDS.items()
        if not isinstance(command, click.Group) or command.invoke_without_command
    }
    exempt = leaves & EXEMPT.keys()
    looked_at = {name for name in leaves for typed in TYPED if f"{typed} ".startswith(f"{name} ")}
    assert exempt | looked_at == leaves and not exempt & looked_at


@pytest.mark.parametrize("command", TYPED)
@pytest.mark.usefixtures("narrow")
def test_nothing_is_wider_than_eighty_columns(command: str) -> None:
    done = typed(command, *TYPED[command])
    assert done.exit_code == 0 or command == "doctor", (done.output, done.exception)
    held_to(shown := done.output.splitlines())
    text = "\n".join(shown)
    assert shown and not [word for word in WHOLE.get(command, []) if word not in text], text


@pytest.mark.parametrize("name", COMMANDS)
def test_no_help_is_wider_than_eighty_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    held_to(typed(name.removeprefix("asactl "), "--help").output.splitlines())


@pytest.mark.parametrize("command", LISTINGS)
@pytest.mark.usefixtures("narrow")
def test_every_field_of_every_listing_can_be_shown_and_sorted_by(command: str) -> None:
    fields, given = LISTINGS[command], [word for word in TYPED[command] if word != "--lines"]
    for field in fields:
        orders = []
        for sign in ("", "-"):
            done = typed(command, *given, "-O", f"{field.name}:200", "-S", sign + field.name, "--noheader")
            assert done.exit_code == 0, done.exception
            orders.append(done.output.splitlines())
        assert orders[0] and sorted(orders[0]) == sorted(orders[1])
        there = [line for line in orders[0] if line != "N/A"]
        assert [line for line in orders[1] if line != "N/A"][:1] == there[-1:], "the last is the first"


@pytest.mark.usefixtures("narrow")
def test_stored_rows_are_listed_as_squeue_lists_jobs() -> None:
    shown = typed("runs", *STORED, "-o", "%.4i|%T", "-O", "id:.4,policy:8,response:.12", "-S", "-response")
    assert shown.output.splitlines() == [
        "  IDPOLICY      RESPONSE",
        "   1slurm     1-03:46:40",
        "   3asax         1:23:20",
        "   2static       1:23:20",
        "   4asax             N/A",
    ]
    shown = typed("ledger", *STORED, "-o", "%a", "-S", "-account", "--noheader")
    assert shown.output.splitlines() == ["physics", "evil\\x1b[2J[red]"]
