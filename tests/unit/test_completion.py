"""`asactl completion`: shells read what it prints, and find commands, options and jobs through it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

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
