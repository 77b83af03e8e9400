"""kill -9 in the middle of a replay: the store stays readable, says so, and the same replay starts cleanly again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_cli_replay import swf

from asad.cli.asactl import asactl
from asad.store.store import Store

pytestmark = pytest.mark.slow

CODE = """
import sys
from asad.store.recording import Run as run_class
original = run_class.record
def record(self, *words, **more):
    original(self, *words, **more)
    self.flush()
    print("recorded", flush=True)
    import time
    time.sleep(0.05)
run_class.record = record
sys.argv = ["asactl", "replay", {log!r}, "--policy", "greedy-oracle", "--store", {store!r}, "-q"]
from asad.cli.asactl import main
main()
"""


def test_a_killed_replay_leaves_a_readable_store_and_starts_again(tmp_path: Path) -> None:
    log, url = tmp_path / "small.swf", str(tmp_path / "asad.db")
    log.write_text(swf(200))
    child = subprocess.Popen(
        [sys.executable, "-c", CODE.format(log=str(log), store=url)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    for _ in range(5):
        assert child.stdout.readline() == "recorded\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait(300)
    child.stdout.close()
    with Store.open(url) as store:
        (killed,) = [run for run in store.runs() if run.state == "killed"]
        decided = list(store.decisions(killed.id))
        assert len(decided) >= 5
        assert all(decision.reason for decision in decided)
    output = CliRunner().invoke(asactl, ["runs", "--store", url], catch_exceptions=False)
    assert "killed" in output.output
    again = CliRunner().invoke(
        asactl,
        ["replay", str(log), "--policy", "greedy-oracle", "--store", url, "-q"],
        catch_exceptions=False,
    )
    assert again.exit_code == 0, again.output
    with Store.open(url) as store:
        assert all(run.state != "killed" for run in store.runs())
        (run,) = store.runs()
        assert run.state == "done"
        whole = list(store.decisions(run.id))
    assert [(d.time_s, d.job, d.kind) for d in whole[: len(decided)]] == [
        (d.time_s, d.job, d.kind) for d in decided
    ]
