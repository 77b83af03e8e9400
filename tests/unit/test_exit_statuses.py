"""Each exit status that is documented is one that a program ends with, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_cli_replay import swf
from test_cli_runs import filled

from asad.api.control import ControlServer, NotAllowed, Peer, Request
from asad.errors import ExitStatus
from asad.model import Json
from docs.generate import USED_BY

BIN = Path(sys.executable).parent
REPLACED = """
from asad.cli.daemon import main
from asad.daemon.clusters import NoNodes
from asad.daemon.daemon import Daemon

class Elsewhere(NoNodes):
    '''Node actors that obey a daemon that was started later.'''

    superseded, connected, audit = True, [], ()
    start = stop = lambda self: None

opened = Daemon._open_cluster
Daemon._open_cluster = lambda self, stack: (opened(self, stack), setattr(self, "nodes", Elsewhere()))
main()
"""
FILES = {
    "log.swf": swf(12),
    "right.toml": "",
    "wrong.toml": "[daemon]\nmode = 'on'\n",
    "no.db": "this is no database " * 100,
    "recorded.toml": '[daemon]\nsocket = "HERE/own"\nstate_dir = "HERE"\n[policies]\nshare = "exclusive"\n'
    '[metrics]\nlisten = ""\n',
}
CASES: dict[ExitStatus, tuple[tuple[str, ...], ...]] = {
    ExitStatus.DONE: (("asactl", "config", "check", "right.toml"), ("asad-undo", "--state-dir", ".")),
    ExitStatus.FAILED: (("asactl", "runs", "--store", "no.db"),),
    ExitStatus.USAGE: (
        ("asactl", "config", "check", "wrong.toml"),
        ("asactl", "jobs", "--limit", "0"),
        ("asad", "--config", "wrong.toml", "--check"),
        ("asad-node", "--config", "wrong.toml", "--once"),
        ("asad-web", "--config", "wrong.toml"),
        ("asad-undo", "--no-such-option"),
        ("asad-mesos-executor",),
    ),
    ExitStatus.NO_DAEMON: (("asactl", "status", "--socket", "nobody"),),
    ExitStatus.NOT_ALLOWED: (("asactl", "release", "--socket", "s"),),
    ExitStatus.SUPERSEDED: (("asad", "--config", "recorded.toml", "--log", "log.swf"),),
    ExitStatus.INTERRUPTED: (("asactl", "runs", "rm", "1", "--store", "asad.db"),),
}
"""Status → commands that end with it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Files, a store, and a daemon that lets nobody do anything."""
    place = tmp_path_factory.mktemp("ends")
    for name, text in FILES.items():
        (place / name).write_text(text.replace("HERE", str(place)))
    filled(str(place / "asad.db"))

    def refuse(request: Request, peer: Peer) -> Json:
        raise NotAllowed("that is for operators")

    server = ControlServer(place / "s", refuse)
    server.start()
    yield place
    server.stop()


def test_every_status_has_a_command() -> None:
    assert list(CASES) == list(ExitStatus) == list(USED_BY)


@pytest.mark.parametrize(
    ("status", "words"),
    [(status, words) for status, commands in CASES.items() for words in commands],
    ids=lambda part: part.name if isinstance(part, ExitStatus) else " ".join(part),
)
def test_programs_end_with_what_is_documented(
    status: ExitStatus, words: tuple[str, ...], folder: Path
) -> None:
    program, *rest = words
    command = [sys.executable, "-c", REPLACED] if status is ExitStatus.SUPERSEDED else [str(BIN / program)]
    environment = {"PATH": "/usr/bin:/bin", "ASAD_CONFIG": "right.toml"}
    done = subprocess.run(
        [*command, *rest],
        cwd=folder,
        env=environment,
        input="n\n",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert program in USED_BY[status]
