"""Somebody who follows a page: a folder of their own, a home, a cluster to log in to, and a daemon to ask.

Programs that are not asad's and have no cluster to work on here are stand-ins: `sacct` prints a part of the generated
sample, and `scp` copies from a folder. Paths of the machine (`/etc/asad`, `/var/lib/asad`, `/tmp/asad`, `/etc/slurm`)
are folders of the reader's own.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT, Command

from asad.api.control import ask
from asad.errors import AsadError
from asad.store.store import Store

SAMPLE = ROOT / "profiles" / "samples" / "generated-cluster.sacct.gz"
LINES = 600
"""So much of the sample is a month here: a longer log takes longer and runs the same code."""
SLURM_CONF = "NodeName=n[01-16] CPUs=32 RealMemory=131072\nPartitionName=batch Nodes=ALL Default=YES\n"
SOME_JOB = "4711"
"""The job that pages ask about stands for any that has a story."""
ANSWERS_S = 60.0


class Reader:
    """A clone with a virtual environment, and what the reader made there."""

    def __init__(self, folder: Path, lines: int | None = LINES) -> None:
        self.root = folder
        self.folder, self.cluster, self.home = folder / "clone", folder / "cluster", folder / "home"
        self.etc, self.state = folder / "etc-asad", folder / "state"
        programs = folder / "programs"
        for made in (self.folder, self.cluster, self.home, self.etc, self.state, programs):
            made.mkdir(parents=True)
        (self.cluster / "etc" / "slurm").mkdir(parents=True)
        (self.folder / ".venv").symlink_to(sys.prefix, target_is_directory=True)
        for room in ("profiles", "systemd", "papers", "Makefile"):
            (self.folder / room).symlink_to(ROOT / room)
        (self.cluster / "etc" / "slurm" / "slurm.conf").write_text(SLURM_CONF)
        with gzip.open(SAMPLE, "rt", encoding="utf-8") as sample:
            kept = [line for number, line in enumerate(sample) if lines is None or number < lines]
        self.month = folder / "month"
        self.month.write_text("".join(kept), encoding="utf-8")
        write_program(programs / "sacct", f'echo "$TZ $*" > {folder}/sacct-was-asked\ncat {folder}/month')
        copy = f'cp "{self.cluster}/${{one#cluster:}}" .'
        write_program(programs / "scp", f'for one in "$@"; do [ "$one" = . ] || {copy}; done')
        self.socket = self.state / "asad.sock"
        self.environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "ASAD_CONFIG": str(self.etc / "asad.toml"),
        }
        self.store = self.home / ".local" / "state" / "asad" / "asad.db"

    def here(self, text: str) -> str:
        """The same with the machine's paths replaced by the reader's own."""
        for there, own in {
            "/etc/asad": self.etc,
            "/var/lib/asad": self.state,
            "/tmp/asad": self.state,
            "/etc/slurm": self.cluster / "etc" / "slurm",
            "/srv/backup": self.home,
        }.items():
            text = re.sub(rf"(?<![\w.:]){there}(?![\w.-])", str(own), text)
        return text

    def type(self, command: str, *, on_the_cluster: bool = False, fails: bool = False) -> str:
        """Run a line in a shell that has activated the virtual environment; what it prints."""
        prefix = "" if on_the_cluster else ". .venv/bin/activate\n"
        done = subprocess.run(
            ["bash", "-euc", prefix + self.here(command)],
            cwd=self.cluster if on_the_cluster else self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert bool(done.returncode) == fails, (
            f"{command}\nstatus {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done.stdout + done.stderr

    def follow(self, command: Command, job: str = "", shorter: str = "") -> str:
        """Type one command of a page as it stands there, and see that it fails exactly where the page shows an error.

        job: stands for the one that the page asks about. shorter: options that make a long command quick.
        """
        text = re.sub(r"\s{2,}\(.*\)$", "", command.text)  # where a page says on which machine
        text = re.sub(rf"\b{SOME_JOB}\b", job, text) if job else text
        errors = [line for line in command.printed if line.startswith("asactl: ")]
        printed = self.type(f"{text} {shorter}".strip(), fails=bool(errors))
        for line in command.printed if errors else ():
            assert self.here(line) in printed, f"{command}: prints\n{printed}and not\n{line}"
        return printed

    def some_job(self) -> str:
        """A job that borrowed or lent in a replay, as `Who pays` at the end of the report names some."""
        with Store.open(str(self.store)) as store:
            return next(decision.job for run in store.runs() for decision in store.decisions(run.id))

    @contextlib.contextmanager
    def daemon(self, *words: str, nodes: int = 16) -> Iterator[None]:
        """A daemon on the sample as it answers `asactl`; on few nodes jobs wait from the start."""
        line = ["--log", str(SAMPLE), "--nodes", str(nodes), "--cores", "32", "--memory", "128G", "--stay"]
        line += ["--config", str(self.etc / "asad.toml")] if (self.etc / "asad.toml").exists() else []
        line += ["--state-dir", str(self.state), "--socket", str(self.socket), "--metrics", "none"]
        with self.background(f"asad --cluster recorded {' '.join(line)} {' '.join(words)}"):
            yield

    @contextlib.contextmanager
    def background(self, command: str) -> Iterator[None]:
        """A daemon that a page has started, from when it answers."""
        self.environment["ASAD_SOCKET"] = str(self.socket)
        try:
            with self.running(command) as log:
                self.until(lambda: bool(self.ask("status")["cycle"]["number"]), log)
                yield
        finally:
            del self.environment["ASAD_SOCKET"]

    @contextlib.contextmanager
    def running(self, command: str) -> Iterator[Path]:
        """A process beside the others; where it writes."""
        log = self.root / f"{Path(command.split()[0]).name}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                ["bash", "-euc", f". .venv/bin/activate\nexec {self.here(command)}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            try:
                yield log
            finally:
                process.terminate()
                process.wait(30)

    def ask(self, verb: str, **arguments: Any) -> Any:
        return ask(self.socket, verb, **arguments)

    def until(self, holds: Any, log: Path | None = None) -> None:
        """Wait until something holds; the daemon need not answer yet."""
        for _ in range(int(ANSWERS_S / 0.1)):
            with contextlib.suppress(AsadError, OSError):
                if holds():
                    return
            time.sleep(0.1)
        raise AssertionError(log.read_text() if log else "it never held")


def regular_log(days: int = 30) -> str:
    """A log, as sacct prints it, of a month: one user's job every night at two, others' by day."""
    lines = [
        "JobID|JobName|User|Partition|State|Submit|Start|End|Elapsed|TimelimitRaw|NNodes|AllocCPUS|TotalCPU"
    ]
    monday = datetime(2024, 1, 1, tzinfo=UTC)

    def ran(name: str, user: str, cores: int, start: datetime, minutes: float) -> None:
        ended = start + timedelta(minutes=minutes)
        moments = "|".join(f"{moment:%Y-%m-%dT%H:%M:%S}" for moment in (start, start, ended))
        used = f"{timedelta(minutes=minutes * cores * 0.5)}".replace(" days, ", "-").replace(" day, ", "-")
        lines.append(
            f"{len(lines)}|{name}|{user}|batch|COMPLETED|{moments}|{timedelta(minutes=minutes)}|180|1|{cores}|{used}"
        )

    for day in range(days):
        midnight = monday + timedelta(days=day)
        ran("nightly", "ann", 8, midnight + timedelta(hours=2, minutes=day % 3), 55 + day * 7 % 11)
        for hour in range(8, 20):
            ran(
                f"work_{hour}",
                f"user{hour % 4}",
                1 << hour % 5,
                midnight + timedelta(hours=hour),
                20 + hour * day % 60,
            )
    return "\n".join(lines) + "\n"


def write_program(path: Path, code: str) -> None:
    path.write_text(f"#!/bin/sh\nset -e\n{code}\n")
    path.chmod(0o755)


def needs_a_shell() -> None:
    if not Path(sys.prefix, "bin", "activate").exists() or shutil.which("bash") is None:
        pytest.skip(
            "no bash, or asad is in no virtual environment to activate; run it from that of `make test`"
        )
