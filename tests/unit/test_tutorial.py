"""The commands of docs/tutorial/replay-your-log.md, run one after the other as they stand there.

Two programs are stand-ins, as there is no cluster here: `sacct` prints the head of the generated sample, and `scp`
copies from a folder. `make demo` is run by .ci/run, from an empty clone.
"""

from __future__ import annotations

import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from asad.store.store import Store

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tutorial" / "replay-your-log.md").read_text(encoding="utf-8")
SAMPLE = ROOT / "profiles" / "samples" / "generated-cluster.sacct.gz"
LINES = 300
"""So much of the sample is a month here: a longer log takes longer and runs the same code."""
SLURM_CONF = "NodeName=n[01-16] CPUs=32 RealMemory=131072\nPartitionName=batch Nodes=ALL Default=YES\n"
SOME_JOB = "4711"
"""The job that the tutorial asks about stands for any that borrowed or lent."""


def commands(page: str = PAGE) -> list[str]:
    """What the page has typed after `$`, in its order; continued lines are one command."""
    blocks = re.findall(r"^```console\n(.*?)^```", page, re.M | re.S)
    lines = re.sub(r"\\\n", "", "".join(blocks)).splitlines()
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


class Reader:
    """Somebody who follows the tutorial: a folder of their own, a home, and a cluster to log in to."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cluster, self.home = folder / "clone", folder / "cluster", folder / "home"
        programs = folder / "programs"
        for made in (self.folder, self.cluster, self.home, programs, self.cluster / "etc" / "slurm"):
            made.mkdir(parents=True)
        (self.folder / ".venv").symlink_to(sys.prefix, target_is_directory=True)
        (self.cluster / "etc" / "slurm" / "slurm.conf").write_text(SLURM_CONF)
        with gzip.open(SAMPLE, "rt", encoding="utf-8") as sample:
            (folder / "month").write_text(
                "".join(line for _, line in zip(range(LINES), sample, strict=False))
            )
        write_program(programs / "sacct", f'echo "$TZ $*" > {folder}/sacct-was-asked\ncat {folder}/month')
        copy = f'cp "{self.cluster}/${{one#cluster:}}" .'
        write_program(programs / "scp", f'for one in "$@"; do [ "$one" = . ] || {copy}; done')
        self.environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "COLUMNS": "100",
            "LANG": "C.UTF-8",
        }
        self.store = self.home / ".local" / "state" / "asad" / "asad.db"

    def type(self, command: str, *, on_the_cluster: bool = False) -> str:
        """Run a line in a shell that has activated the virtual environment; what it prints."""
        prefix = "" if on_the_cluster else ". .venv/bin/activate\n"
        done = subprocess.run(
            ["bash", "-euc", prefix + command],
            cwd=self.cluster if on_the_cluster else self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def some_job(self) -> str:
        """A job that borrowed or lent, as `Who pays` at the end of the page names some."""
        with Store.open(str(self.store)) as store:
            return next(decision.job for run in store.runs() for decision in store.decisions(run.id))


def write_program(path: Path, code: str) -> None:
    path.write_text(f"#!/bin/sh\nset -e\n{code}\n")
    path.chmod(0o755)


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    if not Path(sys.prefix, "bin", "activate").exists() or shutil.which("bash") is None:
        pytest.skip(
            "no bash, or asad is in no virtual environment to activate; run it from that of `make test`"
        )
    return Reader(tmp_path)


def test_the_commands_of_the_tutorial_run_in_their_order(reader: Reader) -> None:
    printed: dict[str, str] = {}
    for command in commands():
        words = [word for word in shlex.split(command) if not word.startswith("TZ=")]
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
            continue
        asked = command.replace(SOME_JOB, reader.some_job()) if SOME_JOB in command else command
        printed[" ".join(words[:2])] = reader.type(asked, on_the_cluster=words[0] == "sacct")
    assert list(printed) == [
        ". .venv/bin/activate", "sacct -aP", "scp cluster:january.sacct", "asactl replay", "asactl runs",
        "asactl explain",
    ]  # fmt: skip
    assert (reader.folder.parent / "sacct-was-asked").read_text().startswith("UTC -aP ")
    page = (reader.folder / "january.html").read_text(encoding="utf-8")
    assert "<svg" in page and "Who pays" in page
    for policy in ("static", "measured", "asax", "pool-oracle"):
        assert policy in printed["asactl replay"] and policy in printed["asactl runs"]
    assert reader.some_job() in printed["asactl explain"]
