"""`python -m docs.man`: every program and every command has a page, and the tools that read them find nothing wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from asad.cli.asactl import COMMANDS
from asad.config import TABLES
from asad.errors import ExitStatus
from docs import man

PROGRAMS = {
    point.name
    for point in entry_points(group="console_scripts")
    if point.dist and point.dist.name == "asad-hpc"
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("SOURCE_DATE_EPOCH", "1700000000")
        return {path.name: path for path in man.written(tmp_path_factory.mktemp("man"))}


def test_every_command_program_and_table_has_its_page(pages: dict[str, Path]) -> None:
    assert set(pages) == {
        "asactl.1",
        *(f"asactl-{name}.1" for name in COMMANDS),
        *(f"{name}.8" for name in PROGRAMS - {"asactl"}),
        "asad.toml.5",
    }
    text = pages["asad.toml.5"].read_text(encoding="ascii")
    assert all(f".SH [{name}]" in text for name in TABLES)
    # from the wild to the page: the option, its meaning, and a subcommand
    runs = pages["asactl-runs.1"].read_text(encoding="ascii")
    assert '.SH "asactl runs rm"' in runs and "\\-\\-force" in runs and "still being recorded" in runs


def test_pages_name_the_exit_statuses_that_their_program_has(pages: dict[str, Path]) -> None:
    listed = {
        name: re.findall(r"^\\fB(\d+)\\fR$", path.read_text(encoding="ascii"), re.M)
        for name, path in pages.items()
    }
    assert listed["asactl-jobs.1"] == ["0", "1", "2", "3", "4", "130"]
    assert listed["asad-undo.8"] == ["0", "1", "2"]
    assert listed["asad-mesos-executor.8"] == ["0", "2"]
    assert str(int(ExitStatus.SUPERSEDED)) in listed["asad.8"]


def test_the_same_version_makes_the_same_bytes(
    pages: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    again = {path.name: path.read_bytes() for path in man.written(tmp_path)}
    assert again == {name: path.read_bytes() for name, path in pages.items()}
    assert b'"2023-11-14"' in again["asactl.1"]


def test_text_of_commands_cannot_become_a_macro() -> None:
    assert man.filled(".so /etc/passwd") == "\\&.so /etc/passwd"
    assert man.filled(r"a\fB `b-c`") == r"a\efB \fBb\-c\fR"
    assert man.literal("'x\n-") == ".nf\n\\&'x\n\\-\n.fi"


@pytest.mark.parametrize("program", ["man", "mandoc"])
def test_tools_find_nothing_wrong(program: str, pages: dict[str, Path]) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    checks = {
        "man": ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"],
        "mandoc": ["mandoc", "-Tlint", "-Wwarning"],
    }
    quiet = {**os.environ, "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80"}
    done = subprocess.run(
        [*checks[program], *sorted(pages.values())], capture_output=True, env=quiet, timeout=300, text=True
    )
    assert done.stderr == "" and done.returncode == 0
    assert program == "man" or done.stdout == ""
