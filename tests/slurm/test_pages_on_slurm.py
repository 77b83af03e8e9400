"""What the pages have users submit: a real Slurm takes every line as it stands there, and asad reads what it says."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from asad_slurm.records import hint
from pages import commands, pages

from asad.admit.hints import read_hint
from lab.slurm import RealSlurm

SUBMITTED = [each for page in pages() for each in commands(page) if each.text.startswith("sbatch ")]
SCRIPTS = ("train.sh", "serve.sh", "nightly.sh", "sweep.sh", "job.sh")


@pytest.fixture
def partition(slurm: RealSlurm) -> Iterator[str]:
    """That of jobs for Mesos, as the how-to has it: down, so that Slurm starts none of them."""
    slurm.run("scontrol", "create", "PartitionName=mesos", "Nodes=ALL", "State=DOWN")
    yield "mesos"
    slurm.clear()
    slurm.run("scontrol", "delete", "PartitionName=mesos")


@pytest.mark.usefixtures("partition")
def test_slurm_takes_what_pages_have_submitted(slurm: RealSlurm, tmp_path: Path) -> None:
    for name in SCRIPTS:
        (tmp_path / name).write_text("#!/bin/sh\ntrue\n")
    assert len(SUBMITTED) > 5
    for command in SUBMITTED:
        text = command.text.replace("sbatch ", "sbatch --hold --parsable ", 1)
        done = subprocess.run(
            ["bash", "-euc", text], cwd=tmp_path, env=slurm.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        shown = slurm.job(done.stdout.strip())
        if "asad:utility" in text:
            assert read_hint(hint(shown["Comment"])).utility is not None
        elif "--comment" in text:
            assert hint(shown["Comment"]).startswith(("sow=", "deferrable="))
