"""Readers of what Slurm answers and of what asad has written down beside it, up to whole cycles over such answers."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from asad_mesos import queue_undo
from asad_mesos.slurm_jobs import read_jobs, translated
from asad_mesos.slurm_side import Commands
from asad_slurm import undo
from asad_slurm.answers import JobReader, NodeReader
from asad_slurm.cluster import SlurmCluster
from asad_slurm.command import Answer, CommandTransport, Ended, Look, Partition, Reservation
from asad_slurm.limits import Limits
from asad_slurm.records import JobRecord, hint
from asad_slurm.settings import read_settings

from asad.config import Config, parse
from asad.cycle import Cycle
from asad.errors import ClusterError
from asad.port import JobSample, Lease, NodeReport
from asad.stages import live_guard, stages_of
from asad.status import job_rows, lending, node_rows
from lab.fuzz import samples
from lab.fuzz.run import FaultError, Read, Reader, unfit
from lab.fuzz.samples import NOW_S

LENDING = '[daemon]\nmode = "enforce"\n'
ADMITTING = LENDING + (
    '[policies]\nadmit = "oasis"\ndefer = "edf"\n[[admit.rules]]\nutility = "sigmoid(10, 0.5, 20m)"\n'
    "[admit.oasis]\nhorizon = 12\n[[defer.rules]]\nwindow_s = 7200\n"
)


def readers() -> list[Reader]:
    """What Slurm answers, and what is written beside it."""
    squeue, sinfo = samples.squeue(), samples.sinfo()
    both = [*_of_golden(squeue), *_of_golden(sinfo)]
    return [
        Reader("squeue --json", "json", squeue, _squeue, 12),
        Reader("sinfo --json", "json", sinfo, _sinfo, 6),
        Reader("squeue --json for Mesos", "json", squeue, _squeue_for_mesos),
        Reader("other answers of Slurm", "text", samples.COMMANDS, _commands, 8),
        Reader("cycles: lending", "json", both, _cycles(LENDING)),
        Reader("cycles: admission, deferral", "json", both, _cycles(ADMITTING)),
        Reader("journal of offers, changes", "lines", samples.journal(), _journal, 6),
        Reader("asad-undo", "lines", [*samples.journal(), *samples.queue_journal()], _undo, 6),
    ]


def _of_golden(answers: Sequence[bytes]) -> list[bytes]:
    """Those of 22.05, whose jobs and nodes know each other."""
    return [answer for answer in answers if b'"v0.0.39"' not in answer and b'"sinfo"' not in answer]


# ------------------------------------------------------------------------------------------------------------ answers


def _squeue(folder: Path) -> Read:
    """Answers one after another, as the daemon reads them: what has not changed is not parsed again."""
    reader = JobReader()

    def read(data: bytes, chance: Random) -> bool:
        records = reader.read(data)
        if chance.random() < 0.1:  # whatever was kept of answers before must not show
            again = JobReader()._read_whole(data)
            if list(map(repr, records)) != list(map(repr, again)):
                raise FaultError("an answer is read in pieces as another than in whole")
        for record in records:
            _require_plain(record)
        return True

    return read


def _require_plain(record: JobRecord) -> None:
    """Numbers that arrays can hold, and names that can be shown and kept."""
    if not (1 <= record.cores < 2**31 and 0 <= record.nodes < 2**31):
        raise FaultError(f"a job of {record.cores} cores on {record.nodes} nodes")
    for text in (record.text, record.name, record.user, record.account, record.qos, hint(record.comment)):
        if why := unfit(text):
            raise FaultError(f"a job with {why}")
    if not 1 <= record.tasks < 2**31 or not abs(record.nice) < 2**31:
        raise FaultError(f"a job of {record.tasks} tasks with nice {record.nice}")


def _sinfo(folder: Path) -> Read:
    reader = NodeReader()

    def read(data: bytes, chance: Random) -> bool:
        for node in reader.read(data):
            if not 0 <= node.cpus < 2**31 or not 1 <= node.threads < 2**31:
                raise FaultError(f"a node of {node.cpus} CPUs and {node.threads} threads")
            if why := unfit(node.name):
                raise FaultError(f"a node with {why}")
        return True

    return read


def _squeue_for_mesos(folder: Path) -> Read:
    def read(data: bytes, chance: Random) -> bool:
        for job in read_jobs(data):
            translated(job, "#!/bin/sh\ntrue\n", "slurm:1:1:1")
        return True

    return read


class _Answers(CommandTransport):
    """Commands that all print the same."""

    def __init__(self) -> None:
        super().__init__(1.0)
        self.answer = b""

    def _run(self, argv: list[str]) -> bytes:
        return self.answer


class _SlurmSide(Commands):
    """The same of the queue for Mesos."""

    answer = ""

    def _run(self, *argv: str) -> str:
        return self.answer


def _commands(folder: Path) -> Read:
    """Partitions, reservations, limits, accounting, and short lists."""

    def read(data: bytes, chance: Random) -> bool:
        transport = _Answers()
        transport.answer = data
        limits = Limits()
        why = limits.ask(transport, NOW_S)
        if why and unfit(why):
            raise FaultError(f"limits: {unfit(why)}")
        limits.tier("batch,guest")
        for ended in transport.ended([7, 8]).values():
            if not (math.isfinite(ended.start_s) and math.isfinite(ended.end_s)):
                raise FaultError(f"a job that ended at no time: {ended}")
        side = _SlurmSide(1.0)
        side.answer = data.decode(errors="replace")
        side.look()
        side.past("7")
        done = subprocess.CompletedProcess(["squeue"], 0, data.decode(errors="replace"), "")
        with mock.patch.object(undo, "run", lambda argv, timeout_s: done):
            undo._look("7", 1.0)
            try:
                undo._look_closely("17", True, 1.0)
            except subprocess.SubprocessError as error:
                raise ClusterError(str(error)) from None
        return not why

    return read


# ------------------------------------------------------------------------------------------------------------- cycles


def unspeakable(word: str) -> bool:
    """Can no command be given it?"""
    try:
        return b"\0" in os.fsencode(word)
    except UnicodeEncodeError:
        return True


class _Slurm:
    """A `Transport` whose answers are in hand, and which does whatever it is asked for."""

    answers = True

    def __init__(self, squeue: bytes, sinfo: bytes) -> None:
        self.squeue, self.sinfo = squeue, sinfo
        self._jobs, self._nodes = JobReader(), NodeReader()

    def look(self) -> Look:
        return Look(self._jobs.read(self.squeue), self._nodes.read(self.sinfo))

    def update(self, raw: int | str, changes: Mapping[str, str]) -> Answer:
        return Answer(not any(map(unspeakable, (str(raw), *changes.values()))), "")

    def evict(self, job: str, how: str) -> Answer:
        return Answer(True, "")

    def split_task(self, text: str, excluded_nodes: str) -> int:
        return 0

    def partitions(self) -> list[Partition]:
        return [
            Partition(name, "an[1-5]", 86_400.0, tier, "") for name, tier in (("batch", 1.0), ("guest", 2.0))
        ]

    def reservations(self) -> list[Reservation]:
        return [Reservation("maintenance", "an2", NOW_S + 9e4, NOW_S + 1e5)]

    def licences(self) -> dict[str, float]:
        return {"abaqus": 4.0}

    def wall_limits(self) -> tuple[dict[tuple[str, str, str], float], dict[str, float]]:
        return {}, {"normal": 7200.0}

    def ended(self, raws: Sequence[int]) -> dict[int, Ended]:
        return {}

    def sentence(self) -> str:
        return "answers in hand"

    def close(self) -> None:
        """Nothing is held."""


class _Link:
    """Node actors that have watched some jobs for long."""

    def __init__(self) -> None:
        self.latest: dict[str, NodeReport] = {}

    def watch(self, records: Sequence[JobRecord], now_s: float) -> None:
        self.latest = {}
        for record in records[:8]:
            for node in ("an1", "an2", "an4"):
                known = self.latest.get(node)
                jobs = dict(known.jobs) if known else {}
                jobs[str(record.raw)] = _sample(str(record.raw), now_s)
                self.latest[node] = NodeReport(node, now_s, 2, jobs)

    def reports(self) -> Mapping[str, NodeReport]:
        return self.latest

    def announce(self, node_names: Sequence[str], job_id: str) -> bool:
        return True

    def grant(self, leases: Mapping[str, Sequence[Lease]]) -> None:
        for lease in (one for some in leases.values() for one in some):
            if not 1 <= lease.cores < 2**31 or lease.quota < 0:
                raise FaultError(f"a lease that no actor would follow: {lease}")


def _sample(job: str, now_s: float) -> JobSample:
    nan = math.nan
    return JobSample(
        job, False, 2, (0, 1), 0.25, 0.3, 30.0, 1e8, nan, 0.0, 0.0, 0.0, 1, False, nan, now_s - 3600.0, nan, False
    )  # fmt: skip


def _cycles(text: str) -> Callable[[Path], Read]:
    """Cycle after cycle over answers, in every second of which one is hostile."""

    def open_(folder: Path) -> Read:
        config: Config = parse(text, folder / "asad.toml")
        squeue = (samples.SLURM / "squeue.json").read_bytes()
        sinfo = (samples.SLURM / "sinfo.json").read_bytes()
        golden = json.loads(squeue)["jobs"]
        start_s = float(max(job["start_time"] for job in golden if job["job_state"] == "RUNNING"))
        clock = [start_s + 60.0]
        slurm, link = _Slurm(squeue, sinfo), _Link()
        table: dict[str, Any] = {"share_users": "any", "transport": "command"}
        cluster = SlurmCluster(
            read_settings(table), nodes=link, state_dir=folder, clock=lambda: clock[0], transport=slurm
        )
        stages = stages_of(config, cluster.applications)
        for policy in stages.learners.values():
            policy.restore({})
        cycle = Cycle(cluster, *stages, live_guard(config, stages), mode="enforce")

        def look() -> None:
            clock[0] += 30.0
            link.watch(slurm.look().jobs, clock[0])
            cycle.run_once()
            cycle.sentence()
            snapshot = cycle.snapshot
            assert snapshot is not None
            rows = [*job_rows(snapshot, cluster.applications), *node_rows(snapshot, link.latest, clock[0])]
            listed = [rows, lending(snapshot, cluster.applications), _overviews(stages)]
            json.dumps(listed, allow_nan=False).encode()
            for policy in stages.learners.values():
                policy.state()

        def read(data: bytes, chance: Random) -> bool:
            slurm.squeue, slurm.sinfo = (data, sinfo) if b'"jobs"' in data[:4000] else (squeue, data)
            try:
                look()
            finally:
                slurm.squeue, slurm.sinfo = squeue, sinfo
            look()
            return True

        look()
        return read

    return open_


def _overviews(stages: Any) -> list[Any]:
    """What admission and deferral report of themselves."""
    return [stage.overview() for stage in (stages.admit, stages.defer) if hasattr(stage, "overview")]


# ----------------------------------------------------------------------------------------------------------- journals


def _journal(folder: Path) -> Read:
    """A daemon starts over the journal of another, and returns everything."""
    squeue = (samples.SLURM / "squeue.json").read_bytes()
    sinfo = (samples.SLURM / "sinfo.json").read_bytes()
    folder.chmod(0o750)

    def read(data: bytes, chance: Random) -> bool:
        (folder / undo.JOURNAL).write_bytes(data)
        cluster = SlurmCluster(
            read_settings({"transport": "command"}),
            nodes=_Link(),
            state_dir=folder,
            clock=lambda: NOW_S,
            transport=_Slurm(squeue, sinfo),
        )
        lines = cluster.recover()
        cluster.snapshot()
        lines += cluster.release()
        for sentence in lines:
            if why := unfit(sentence):
                raise FaultError(f"a sentence of the journal gives {why}")
        return True

    return read


def _undo(folder: Path) -> Read:
    """`asad-undo` must do what it can, whatever the journals hold."""
    folder.chmod(0o750)

    def read(data: bytes, chance: Random) -> bool:
        for name in (undo.JOURNAL, queue_undo.QUEUE):
            (folder / name).write_bytes(data)
        (folder / queue_undo.GANGS).write_bytes(_gangs())

        def run(argv: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
            for word in argv:
                if b"\0" in os.fsencode(word):
                    raise ValueError("embedded null byte")  # as of a real one
            format_ = next((word for word in argv if word.startswith(("--format", "--Format"))), "")
            if "%A" in format_:
                out = "17|PENDING|0\n19|PENDING|0\n"
            elif "%T" in format_:
                out = chance.choice(
                    ("PENDING|guest|n[1-2]\n", "PENDING|batch|n[1-2]\n", "RUNNING|guest|\n", "")
                )
            else:
                out = chance.choice(("9 PENDING 2 7 100 N/A\n", "20 PENDING 0 -5 0 [1-3%4]\n", ""))
            return subprocess.CompletedProcess(argv, chance.choice((0, 0, 0, 1)), out, "")

        with mock.patch.object(undo.subprocess, "run", run), mock.patch.object(undo.os, "fsync"):
            lines = [
                *undo.undo(folder / undo.JOURNAL, older_than_s=0.0, now_s=NOW_S)[0],
                *undo.undo_changes(folder / undo.JOURNAL, older_than_s=0.0, now_s=NOW_S)[0],
                *queue_undo.undo_queue(folder, older_than_s=0.0, now_s=NOW_S)[0],
            ]
        "".join(map(undo.clean, lines)).encode()  # as it prints them
        return True

    return read


def _gangs() -> bytes:
    records = [
        {"what": "job", "job": "m1", "number": 1, "spec": {"origin": "slurm:18:1000:2"}},
        {"what": "launch", "job": "m1", "tasks": []},
    ]
    return "".join(json.dumps(record) + "\n" for record in records).encode()
