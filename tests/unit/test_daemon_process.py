"""`asad` as a process: over a recorded log, with signals, systemd's messages, a second daemon, and `kill -9`."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from asad.api.control import DaemonDown, ask
from asad.cli.daemon import Plain
from asad.cli.daemon import asad as command
from asad.errors import AsadError, ConfigError
from asad.store import lending_ledger, share_cases
from asad.store.store import Store

pytestmark = pytest.mark.slow

PROGRAM = [sys.executable, "-c", "from asad.cli.daemon import main; main()"]
START_S = 300.0
"""The first start on a machine compiles the policies."""


def wait_for(condition: Callable[[], object], seconds: float = START_S) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it did not happen within {seconds:g} s"
        threading.Event().wait(0.02)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of jobs of whole nodes on a machine of four nodes with two cores, more than fit at once."""
    rng = np.random.default_rng(3)
    lines = ["; MaxNodes: 4", "; MaxProcs: 8"]
    for k in range(160):
        run = int(rng.integers(600, 5400))
        cores = int(rng.choice([2, 2, 4, 8]))
        lines.append(
            f"{k + 1} {k * 900} -1 {run} {cores} -1 -1 -1 {run * 3} -1 1 {k % 4} 1 {k % 3} -1 -1 -1 -1"
        )
    path = tmp_path_factory.mktemp("log") / "small.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


class Started:
    """A process of `asad` in a folder of its own."""

    def __init__(self, folder: Path, *words: str, systemd: socket.socket | None = None) -> None:
        environment = {**os.environ, "XDG_STATE_HOME": str(folder / "xdg")}
        environment.pop("NOTIFY_SOCKET", None)
        if systemd is not None:
            environment |= {"NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": "400000"}
        self.folder, self.socket = folder, folder / "asad.sock"
        self.log = (folder / f"log-{time.monotonic_ns()}").open("w+")
        given = ["--state-dir", str(folder), "--socket", str(self.socket), "--metrics", "none", *words]
        self.process = subprocess.Popen([*PROGRAM, *given], env=environment, stdout=self.log, stderr=self.log)

    def output(self) -> str:
        self.log.flush()
        return Path(self.log.name).read_text(encoding="utf-8")

    def ask(self, verb: str, **arguments: Any) -> Any:
        return ask(self.socket, verb, **arguments)

    def ready(self) -> Started:
        def answers() -> bool:
            assert self.process.poll() is None, self.output()
            try:
                return bool(self.ask("status")["cycle"]["number"] > 0)
            except DaemonDown:
                return False

        wait_for(answers)
        return self

    def end(self) -> int:
        return self.process.wait(300)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    begun: list[Started] = []

    def begin(*words: str, **options: Any) -> Started:
        begun.append(Started(tmp_path, *words, **options))
        return begun[-1]

    yield begin
    for one in begun:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait(300)
        one.log.close()


def recorded(log: Path, *words: str) -> list[str]:
    return ["--cluster", "recorded", "--log", str(log), "--speed", "1e9", *words]


def test_a_log_is_played_to_its_end(start: Callable[..., Started], log: Path, tmp_path: Path) -> None:
    one = start(*recorded(log))
    assert one.end() == 0, one.output()
    text = one.output()
    assert "160 of 160 jobs have ended" in text
    assert "asactl status --socket" in text
    with Store.open(str(tmp_path / "asad.db")) as store:
        (run,) = store.runs()
        assert (run.kind, run.state) == ("live", "done")
        assert run.metrics["guests"] > 0
        assert run.metrics["lent_core_s"] > 0
        done = [d for d in store.decisions(run.id) if d.kind == "co-allocate" and d.outcome == "done"]
        assert {d.job for d in done} <= {end.job for end in store.job_ends(run.id)}
        lent = {"guest": 0.0, "host": 0.0}
        for total in lending_ledger.totals(store):
            lent[total.role] += total.lent_core_s
        assert lent["guest"] == pytest.approx(run.metrics["lent_core_s"])
        assert 0.0 < lent["host"] <= lent["guest"] * (1 + 1e-9)  # the rest was on free cores
        cases = share_cases.load(store)
    assert len(cases.job) > 100 and set(cases.job) <= {str(number) for number in range(1, 161)}
    assert ((cases.probability > 0) & (cases.probability <= 1)).all() and cases.loss.max() > 0


def test_what_costs_nothing_because_nothing_is_lent_is_no_case(
    start: Callable[..., Started], log: Path, tmp_path: Path
) -> None:
    one = start(*recorded(log, "--mode", "observe"))
    assert one.end() == 0, one.output()
    with Store.open(str(tmp_path / "asad.db")) as store:
        assert share_cases.load(store, [run.id for run in store.runs()]).job == []


def test_it_stays_when_asked_and_answers_as_a_live_one(start: Callable[..., Started], log: Path) -> None:
    one = start(*recorded(log, "--stay", "--seed", "1")).ready()
    wait_for(lambda: "160 of 160" in one.ask("status")["cluster"]["sentence"])
    status = one.ask("status")
    assert (status["mode"], status["policy"], status["cluster"]["cores"]) == ("enforce", "asax", 8)
    assert status["gains"]["guests"] > 0
    assert status["cycles"]["failed"] == 0
    assert "asad_guests_total" in one.ask("metrics")
    with Store.open(str(one.folder / "asad.db")) as store:
        wait_for(lambda: any(row.kind == "co-allocate" for row in store.decisions(1)))
        offers = (row for row in store.decisions(1) if row.kind == "co-allocate" and row.outcome == "done")
        job = next(offers).job
    story = one.ask("explain", job=job)
    assert "co-allocate" in [decision["kind"] for decision in story["decisions"]]
    assert story["ends"][0]["role"] == "guest"
    assert story["run"]["state"] == "running"
    assert one.ask("nodes")["nodes"][0]["cores"] == 2
    one.process.send_signal(signal.SIGTERM)
    assert one.end() == 0, one.output()


def test_time_runs_as_fast_as_asked(start: Callable[..., Started], log: Path) -> None:
    one = start("--cluster", "recorded", "--log", str(log), "--speed", "3000").ready()
    begin = time.monotonic()
    before = one.ask("status")["now_s"]
    wait_for(lambda: one.ask("status")["now_s"] > before + 9000.0)
    recorded_s = one.ask("status")["now_s"] - before
    assert recorded_s < 1.1 * 3000.0 * (time.monotonic() - begin), (
        "a busy machine may be slower, none is faster"
    )
    one.process.send_signal(signal.SIGINT)
    assert one.end() == 0


def test_systemd_is_notified_of_start_life_reload_and_stop(
    start: Callable[..., Started], log: Path, tmp_path: Path
) -> None:
    config = tmp_path / "asad.toml"
    config.write_text("[daemon]\nmode = 'enforce'\n[guard]\nguests_cap = 5\n")
    heard: list[str] = []

    def listen() -> bool:
        try:
            while True:
                heard.extend(systemd.recv(4096).decode().splitlines())
        except BlockingIOError:
            return True

    def hears(word: str) -> bool:
        listen()
        return any(line.startswith(word) for line in heard)

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        one = start("--config", str(config), *recorded(log, "--stay"), systemd=systemd)
        wait_for(lambda: hears("READY=1"))
        wait_for(lambda: hears("WATCHDOG=1"))
        one.ready()
        heard.clear()
        config.write_text("[daemon]\nmode = 'enforce'\n[guard]\nguests_cap = -5\n")
        one.process.send_signal(signal.SIGHUP)
        wait_for(lambda: hears("RELOADING=1") and hears("MONOTONIC_USEC=") and hears("READY=1"))
        assert "asad.toml:4: guard.guests_cap: -5 is out of range" in one.output()
        assert one.ask("config")["guard"]["guests_cap"] == 5
        config.write_text("[daemon]\nmode = 'advise'\n[guard]\nguests_cap = 7\n")
        one.process.send_signal(signal.SIGHUP)
        wait_for(lambda: one.ask("config")["guard"]["guests_cap"] == 7)
        assert one.ask("status")["mode"] == "advise"
        assert one.ask("config")["recorded"]["stay"] is True, "what was stated on the command line stays"
        one.process.send_signal(signal.SIGTERM)
        assert one.end() == 0, one.output()
        assert hears("STOPPING=1")


def test_the_second_of_two_refuses(start: Callable[..., Started], log: Path) -> None:
    first = start(*recorded(log, "--stay")).ready()
    second = start(*recorded(log))
    assert second.end() == 1
    assert f"another daemon runs here (process {first.process.pid})" in second.output()
    assert first.ask("status")["mode"] == "enforce"


def test_a_killed_daemon_starts_again_where_it_was(
    start: Callable[..., Started], log: Path, tmp_path: Path
) -> None:
    first = start(*recorded(log, "--stay")).ready()
    first.ask("pause")
    first.process.kill()
    first.process.wait(300)
    assert first.socket.exists(), "kill -9 leaves the socket"
    again = start(*recorded(log, "--stay")).ready()
    assert again.ask("status")["paused"] is True
    again.process.send_signal(signal.SIGTERM)
    assert again.end() == 0
    with Store.open(str(tmp_path / "asad.db")) as store:
        assert [run.state for run in store.runs()] == ["done", "killed"]


# --------------------------------------------------------------------------------------------------- command line


def test_check_says_what_is_wrong_and_runs_nothing(tmp_path: Path, log: Path) -> None:
    config = tmp_path / "asad.toml"
    config.write_text(
        f"[daemon]\ncluster = 'recorded'\nstate_dir = '{tmp_path}/state'\n[recorded]\nlog = '{log}'\n"
    )
    done = CliRunner().invoke(command, ["--config", str(config), "--check"], catch_exceptions=False)
    assert (done.exit_code, done.output) == (0, f"{config}: nothing is wrong\n")
    assert not (tmp_path / "state").exists()
    config.write_text("[share.asax]\nheadrom = 0.3\n")
    with pytest.raises(ConfigError, match="did you mean 'headroom'"):
        CliRunner().invoke(command, ["--config", str(config), "--check"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (["--config", "/none/asad.toml"], "/none/asad.toml: No such file or directory"),
        (["--log", "LOG", "--nodes", "3"], "--nodes and --cores go together"),
        (["--log", "LOG", "--memory", "3G"], "give --nodes and --cores with it"),
        (["--log", "LOG", "--nodes", "1", "--cores", "1"], "do not fit"),
    ],
)
def test_wrong_usage_is_reported(words: list[str], seen: str, log: Path, tmp_path: Path) -> None:
    words = [str(log) if word == "LOG" else word for word in words]
    with pytest.raises(AsadError, match=seen) as error:
        CliRunner().invoke(command, [*words, "--state-dir", str(tmp_path)], catch_exceptions=False)
    assert error.value.exit_status == 2


def test_the_exit_status_of_a_wrong_configuration_is_2(tmp_path: Path) -> None:
    config = tmp_path / "asad.toml"
    config.write_text("[daemon]\nmode = 'of\\u001b[2J'\n")
    done = subprocess.run(
        [*PROGRAM, "--config", str(config)], capture_output=True, text=True, timeout=START_S, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"asad: {config}:2: daemon.mode: ")
    assert "\x1b" not in done.stderr


def test_the_log_of_the_daemon_controls_no_terminal() -> None:
    record = logging.LogRecord("asad", logging.INFO, "", 0, "job %s", ("\x1b[2Jé\n",), None)
    assert Plain("%(message)s").format(record) == "job \\x1b[2Jé\n"


def test_warming_up_fills_the_cache_and_leaves_nothing_else(tmp_path: Path) -> None:
    cache, state = tmp_path / "cache", tmp_path / "state"
    config = tmp_path / "asad.toml"
    config.write_text('[policies]\nplace = "spread"\nshare = "exclusive"\n')
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    words = ["--config", str(config), "--state-dir", str(state), "--warm-up"]
    done = subprocess.run(
        [*PROGRAM, *words], env=environment, capture_output=True, text=True, timeout=START_S, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(cache.rglob("*.nbc")), "compiled code"
    assert not state.exists()
