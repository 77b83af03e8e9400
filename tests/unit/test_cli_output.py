"""Standard output of `asactl`: the answer and nothing else, wherever it goes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LOUD = """
import ctypes, json, os
import click
from asad.cli import asactl

@click.command()
def loud():
    c_library = ctypes.CDLL(None)
    c_library.puts(b"HighsMipSolverData::transformNewIntegerFeasibleSolution tmpSolver.run();")
    os.write(1, b"another line of a library's own")
    click.echo(json.dumps({"of": "a user called \\u0160imon"}, ensure_ascii=False))

asactl.COMMANDS["loud"] = ("__main__", "loud", "Prints what nobody asked for.")
asactl.main()
"""


def asactl(*words: str, program: str = "from asad.cli.asactl import main; main()", **how: Any) -> Any:
    return subprocess.run([sys.executable, "-c", program, *words], check=False, **how)


def test_what_libraries_print_is_not_in_the_answer() -> None:
    done = asactl("loud", program=LOUD, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"of": "a user called Šimon"}


def test_a_terminal_that_lacks_a_letter_ends_no_command() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = asactl("loud", program=LOUD, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"of": "a user called ?imon"}


def test_a_full_disk_is_reported_in_one_line() -> None:
    full_disk = Path("/dev/full")
    if not full_disk.exists():
        pytest.fail("this system has no /dev/full")
    with full_disk.open("w") as full:
        done = asactl("--help", stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "asactl: [Errno 28] No space left on device\n"


def test_nobody_who_reads_is_no_fault() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = asactl("--help", stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_closed_standard_output_is_no_fault(tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" -c "from asad.cli.asactl import main; main()" --version >&-', sys.executable],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
