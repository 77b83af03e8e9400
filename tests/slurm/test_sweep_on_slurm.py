"""`asactl sweep --slurm` on a real Slurm: jobs of dask-jobqueue on two nodes carry out the tasks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from asad_under_test import until
from test_cli_replay import swf

from asad.store import sweeps
from asad.store.store import Store
from lab.slurm import RealSlurm

SWEEP = """
policies = ["slurm", "fcfs"]
seeds = 6

[[logs]]
log = "one.swf"
nodes = 4
cores = 2
"""


def command(slurm: RealSlurm, folder: Path, *words: str) -> subprocess.Popen[str]:
    argv = [
        sys.executable,
        "-c",
        "from asad.cli.asactl import main; main()",
        "sweep",
        "run",
        "sweep.toml",
        "--store",
        "asad.db",
        "--slurm",
        *words,
    ]
    return subprocess.Popen(
        argv, cwd=folder, env=slurm.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.fixture
def folder(slurm: RealSlurm, tmp_path: Path) -> Path:
    pytest.importorskip("dask_jobqueue", reason="no dask-jobqueue: pip install '.[cluster]'")
    (tmp_path / "one.swf").write_text(swf(24))
    (tmp_path / "sweep.toml").write_text(SWEEP)
    return tmp_path


def kept(folder: Path) -> list[sweeps.SweepResult]:
    with Store.open(str(folder / "asad.db")) as store:
        return sweeps.results(store, "sweep") if sweeps.names(store) else []


def test_a_sweep_over_two_nodes_goes_on_after_a_kill(slurm: RealSlurm, folder: Path) -> None:
    first = command(slurm, folder, "--nodes", "1", "--partition", "batch", "--time", "10", "--mem", "2G")
    deadline_s = time.monotonic() + 300
    while not (folder / "asad.db").exists() or len(kept(folder)) < 2:
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline_s, "nothing was kept in five minutes"
        time.sleep(0.1)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    before = kept(folder)
    slurm.clear()  # they would end by themselves, in a minute
    second = command(
        slurm, folder, "--nodes", "2", "--cpus-per-task", "1", "--sbatch=--comment=again", "--json"
    )
    output, errors = second.communicate(timeout=300)
    assert second.returncode == 0, errors
    assert f"{len(before)} done; {12 - len(before)} to do" in errors
    document = json.loads(output)
    assert (document["done"], document["failed"]) == (12, 0)
    after = kept(folder)
    assert [one for one in after if one in before] == before
    workers = {one.settings["sweep"]["worker"] for one in after}
    assert workers <= set(slurm.node_names), "every task ran inside a job"
    # the jobs end with the sweep; some seconds go by until Slurm has cleared their nodes
    until(lambda: not slurm.run("squeue", "--noheader").strip(), lambda: "its jobs are still there")
    assert not [*folder.glob(".asad-sweep-*")][1:], (
        "keys and logs of the workers went with it, but for the killed one's"
    )


def test_what_sbatch_refuses_is_reported_in_its_own_words(slurm: RealSlurm, folder: Path) -> None:
    refused = command(slurm, folder, "--partition", "nowhere")
    _, errors = refused.communicate(timeout=300)
    assert refused.returncode == 1
    assert "asactl: sbatch refuses: " in errors and "invalid partition" in errors.lower()
    assert not slurm.run("squeue", "--noheader").strip()
