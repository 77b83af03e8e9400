"""`asactl completion`: shells read what it prints, and find commands, options and jobs through it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from test_cli_runs import filled
from test_listings import ANSWERS

from asad.api.control import ControlServer
from asad.cli import completion
from asad.cli.asactl import COMMANDS, asactl
from asad.cli.completion import SHELLS, VARIABLE

BIN = Path(sys.executable).parent


def completed(*words: str) -> list[str]:
    """What may stand at the place of the last word, as bash is answered."""
    environment = {
        VARIABLE: "bash_complete",
        "COMP_WORDS": " ".join(("asactl", *words)),
        "COMP_CWORD": str(len(words)),
        "PATH": "/usr/bin:/bin",
        "ASAD_SOCKET": "/nowhere/asad.sock",
    }
    done = subprocess.run(
        [BIN / "asactl"], env=environment, capture_output=True, text=True, timeout=300, check=True
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_commands_are_completed_without_being_imported() -> None:
    assert completed("re") == ["release", "replay", "resume"]
    assert completed("") == sorted(COMMANDS)


def test_options_and_choices_are_completed() -> None:
    assert completed("jobs", "--st") == ["--state"]
    assert completed("jobs", "--state", "g") == ["guest"]


def test_where_no_daemon_answers_no_job_is_offered_and_nothing_is_printed() -> None:
    assert completed("explain", "4") == []


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A store, and a daemon that answers."""
    filled(str(tmp_path / "asad.db"))
    server = ControlServer(tmp_path / "s", lambda request, peer: ANSWERS[request.verb])
    server.start()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASAD_SOCKET", "s")
    yield
    server.stop()


def names(*words: str) -> list[str]:
    """The same in this process."""
    found = ShellComplete(asactl, {}, "asactl", VARIABLE).get_completions([*words[:-1]], words[-1])
    return [one.value for one in found]


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("replay", "--policy", "slurm,as"), ["slurm,asax", "slurm,asax-paper"]),
        (("sweep", "run", "--policy", "conse"), ["conservative"]),
        (("bench", "oasis", "--scheme", "oasis,rr"), ["oasis,rrh"]),
        (("experts", "show", "mem"), ["memory"]),
        (("experts", "eval", "/etc/"), ["/etc/"]),
        (("defer", "show", "ppo-att-s"), ["ppo-att-s1", "ppo-att-s2", "ppo-att-s3"]),
        (("runs", "rm", "--store", "asad.db", ""), ["4", "3", "2", "1"]),
        (("explain", "101", "--store", "asad.db", "--run", "3"), ["3"]),
        (("explain", "413"), ["41344"]),
        (("jobs", "--user", "an"), ["anna.lindqvist"]),
        (("nodes", "node1"), [f"node{number}" for number in range(10, 17)]),
        (("cancel", "m"), ["m17"]),
        (("sow", "cancel", "1"), ["17"]),
        (("runs", "--sort", "policy,st"), ["policy,StartTime", "policy,State"]),
        (("jobs", "-O", "timel"), ["TimeLimit", "TimeLeft"]),
    ],
    ids=" ".join,
)
def test_names_are_completed(words: tuple[str, ...], offered: list[str]) -> None:
    assert names(*words) == offered


@pytest.mark.parametrize(
    "words",
    [
        ("runs", "rm", "--store", "no.db", ""),
        ("sweep", "show", "--store", "postgresql://u@127.0.0.1:1/x", ""),
    ],
)
def test_where_nothing_can_be_found_nothing_is_offered(
    words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert names(*words) == []
    assert capfd.readouterr() == ("", "")


def test_who_completes_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "PATIENCE_S", 0.05)
    begin_s = time.monotonic()
    complete = completion.offered(lambda context: time.sleep(5) or ["late"])
    command = click.Command("x", params=[click.Argument(["name"], shell_complete=complete)])
    assert ShellComplete(command, {}, "x", VARIABLE).get_completions([], "") == []
    assert time.monotonic() - begin_s < 2.0


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_its_script(shell: str) -> None:
    script = CliRunner().invoke(asactl, ["completion", shell], catch_exceptions=False).output
    assert f"{VARIABLE}={shell}_complete" in script and "%(" not in script


def test_bash_completes_a_command_by_it() -> None:
    script = CliRunner().invoke(asactl, ["completion", "bash"], catch_exceptions=False).output
    ask = f"""{script}
PATH={BIN}:$PATH; COMP_WORDS=(asactl no); COMP_CWORD=1; _asactl_completion asactl; echo "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["/bin/bash"], input=ask, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split() == ["nodes"], done.stderr
