"""`python -m lab.queue --out FOLDER`: the log of a real Slurm whose jobs wait for many reasons, to judge replays by.

Six nodes in three partitions that overlap, GPUs, features, memory, shares of accounts, priority by age and fair share,
a maintenance of one node, and a limit of the CPUs of each user: users submit jobs that sleep, and accounting says how
long each waited. Nobody needs a CPU, so the machine may be busy meanwhile. With `--without-limit` the same jobs come at
the same times to a cluster without that limit, so that what it costs is known.

FOLDER then has what an operator could give to `asactl` (the log of sacct, slurm.conf, gres.conf, what sacctmgr and
scontrol print), and what nobody has of a cluster elsewhere: what every job asked for, and why it waited, every five
seconds, as squeue had it. Nodes are called n1 to n6, and no path or name of this machine is in it.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import socket
import stat
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console

from lab import LabError
from lab.queue_jobs import (
    ACCOUNTS,
    CPUS,
    FEATURES,
    FEWEST,
    GPUS,
    LIMIT_CPUS,
    MEMORY_MB,
    NODES,
    PARTITIONS,
    USERS,
    QueuedJob,
    draw,
)
from lab.run import ended
from lab.slurm import RealSlurm

CONF = """\
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
GresTypes=gpu
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=limits,qos
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityMaxAge=10
PriorityWeightFairshare=2000
PriorityDecayHalfLife=10
PriorityCalcPeriod=1
PriorityWeightPartition=500
PriorityWeightQOS=1000
"""
"""More of slurm.conf. Times are minutes. Nodes have more CPUs than this machine, so that no job is confined to its own,
and what a job that sleeps uses is not measured: a replay is not to lend what only looks idle."""
LIMIT = f"modify qos normal set MaxTRESPerUser=cpu={LIMIT_CPUS}"
FIELDS = (
    "JobID,JobIDRaw,JobName,User,Account,QOS,Partition,State,Submit,Eligible,Start,End,Elapsed,Suspended,TimelimitRaw,"
    "NNodes,AllocNodes,AllocCPUS,ReqNodes,ReqCPUS,ReqMem,AllocTRES,ReqTRES,NodeList,Constraints,Reservation,Priority,"
    "Flags,Reason,TotalCPU,ExitCode"
)
"""Columns of the log, of which each release writes those that it has."""
FIGURES = "JobIDRaw,State,Eligible,Start,End,AllocCPUS"
UTC_TIMES = {"TZ": "UTC"}
LOOK_S = 5.0
"""How often squeue is asked why jobs wait."""
POLL_S = 0.2
PATIENCE_S = 1800.0
"""How long the last jobs may take after the last was submitted."""
SHARES_EVERY_S, SHARES_S = 60.0, 150.0
"""How often Slurm computes fair shares (PriorityCalcPeriod), and how long it may take until it has done so."""
ACCOUNTING_S = 60.0
"""How long accounting may take to report a job that has ended."""
MAINTAINED, MAINTENANCE_AT, MAINTENANCE_MIN = 3, 0.4, 4
"""Number of the node that is maintained, when (part of the time in which jobs are submitted), and for how long at
the most; less if that time is short."""
QUICK_JOBS, QUICK_SCALE = FEWEST, 0.15
NOT_ELIGIBLE = frozenset(("Dependency", "BeginTime"))
"""Reasons of jobs that may not start yet: accounting's `Eligible` comes later."""


# ------------------------------------------------------------------------------------------------------------- cluster


def cluster() -> RealSlurm:
    """The cluster, not yet entered."""
    slurm = RealSlurm(nodes=NODES, cpus=CPUS, memory_mb=MEMORY_MB, pin=False, extra_conf=CONF)
    names = slurm.node_names
    slurm.partitions = partition_lines(names)
    slurm.node_words = node_words(names)
    slurm.gres_conf = gres_conf(names, slurm.folder)
    for number in range(max(GPUS.values())):  # Slurm wants a device of each; these are copies of /dev/null
        os.mknod(slurm.folder / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    return slurm


def partition_lines(names: Sequence[str]) -> str:
    """Lines of slurm.conf for PARTITIONS; `names` are those of nodes 1, 2, …"""
    lines = []
    for number, (name, partition) in enumerate(PARTITIONS.items()):
        nodes = ",".join(names[node - 1] for node in partition.nodes)
        lines.append(
            f"PartitionName={name} Nodes={nodes} Default={'NO' if number else 'YES'} OverSubscribe=NO "
            f"MaxTime={partition.most_minutes} PriorityJobFactor={partition.priority} PriorityTier={partition.tier}"
        )
    return "\n".join(lines)


def node_words(names: Sequence[str]) -> dict[str, str]:
    """Name of a node → its features and GPUs, as slurm.conf has them."""
    words: dict[str, str] = {}
    for number, name in enumerate(names, 1):
        own = [f"Feature={FEATURES[number]}"] if number in FEATURES else []
        own += [f"Gres=gpu:{GPUS[number]}"] if number in GPUS else []
        if own:
            words[name] = " ".join(own)
    return words


def gres_conf(names: Sequence[str], folder: Path) -> str:
    """The text of gres.conf, with devices in a folder; nodes share these, as they share the machine."""
    lines = ["AutoDetect=off"]
    for number, count in GPUS.items():
        lines.append(f"NodeName={names[number - 1]} Name=gpu File={folder}/gpu[0-{count - 1}]")
    return "\n".join(lines) + "\n"


def accounting(limited: bool) -> list[str]:
    """What sacctmgr has to do: accounts, users, shares, QOS, and the limit."""
    commands = ["add qos urgent", "modify qos urgent set Priority=10"]
    commands += [
        f"add account {name} parent={parent} fairshare={share}" for name, (parent, share) in ACCOUNTS.items()
    ]
    commands += [f"add user {user.name} account={user.account} fairshare={user.share}" for user in USERS]
    commands += [
        f"modify account {name} set QOS=normal,urgent"
        for name, (parent, _) in ACCOUNTS.items()
        if parent == "root"  # those below follow
    ]
    return commands + ([LIMIT] if limited else [])


def wait_for_shares(slurm: RealSlurm) -> None:
    """Until Slurm has computed the fair shares of all, which it does once a minute: until then everybody has none.

    Raises LabError if it does not.
    """
    deadline = time.monotonic() + SHARES_S
    names = {user.name for user in USERS}
    while True:
        lines = slurm.run("sshare", "--all", "-n", "-P", "-o", "User,FairShare").splitlines()
        shares = [
            float(share or 0)
            for user, _, share in (line.strip().partition("|") for line in lines)
            if user in names
        ]
        if shares and all(shares):
            return
        if time.monotonic() > deadline:
            raise LabError(f"no fair shares after {SHARES_S:.0f} s: sshare shows {', '.join(lines)}")
        time.sleep(POLL_S)


# ------------------------------------------------------------------------------------------------------------- running


class Look(NamedTuple):
    """A job that waited when squeue was asked: columns of `queue.csv`."""

    time: str
    """UTC."""
    job_id: str
    reason: str
    priority: str
    expected_start: str
    """When Slurm expected to start it; N/A where it did not say."""


class QueueRun:
    """Jobs on one cluster: submits them at their times, and looks at the queue meanwhile."""

    def __init__(self, slurm: RealSlurm, jobs: Sequence[QueuedJob], show: Callable[[str], None]) -> None:
        self.slurm, self.jobs, self.show = slurm, jobs, show
        self.ids: dict[int, str] = {}
        """Place of a job → its id."""
        self.looks: list[Look] = []
        self._begin_s = self._next_look_s = 0.0

    def reserve(self) -> str:
        """Reserve a node for its maintenance in the middle; what scontrol shows of that."""
        window_s = self.jobs[-1].submit_s
        minutes = max(1, round(MAINTENANCE_MIN * min(1.0, window_s / 600)))
        self.slurm.run(
            *("scontrol", "create", "reservation", "ReservationName=maintenance", "Users=root"),
            *(f"StartTime=now+{round(MAINTENANCE_AT * window_s) + 2}", f"Duration={minutes}", "Flags=MAINT"),
            f"Nodes={self.slurm.node_names[MAINTAINED - 1]}",
        )
        return self.slurm.run("scontrol", "show", "reservation", env=UTC_TIMES)

    def run(self) -> None:
        """Submit all jobs, and wait until none is left. Raises LabError if that takes too long."""
        self._begin_s = self._next_look_s = time.monotonic()
        events = [(job.submit_s, 0, place) for place, job in enumerate(self.jobs)]
        events += [
            (job.submit_s + job.cancel_s, 1, place) for place, job in enumerate(self.jobs) if job.cancel_s
        ]
        for at_s, cancels, place in sorted(events):
            self._look_until(at_s)
            if cancels:
                self._cancel(place)
            else:
                self._submit(place)
        if not self.ids:
            raise LabError("no job was taken; see above")
        deadline = time.monotonic() + PATIENCE_S
        while left := self._left():
            if time.monotonic() > deadline:
                self.slurm.run("scancel", *left, check=False)
                raise LabError(f"jobs {' '.join(left)} did not end within {PATIENCE_S:.0f} s; cancelled")
            self._look_until(time.monotonic() - self._begin_s + 1.0)

    def _submit(self, place: int) -> None:
        job = self.jobs[place]
        try:
            self.ids[place] = self.slurm.submit(
                job.script, *job.options(self.ids), user=job.application.user.name
            )
        except (LabError, subprocess.TimeoutExpired) as error:
            self.show(f"job {place} ({job.application.name}) was refused and is left out: {error}")

    def _cancel(self, place: int) -> None:
        if place in self.ids:  # one that runs or has ended is left alone
            self.slurm.run("scancel", "--state=PENDING", self.ids[place], check=False)

    def _look_until(self, at_s: float) -> None:
        """Look at the queue every LOOK_S until so long after the begin."""
        while (left_s := self._begin_s + at_s - time.monotonic()) > 0:
            if time.monotonic() >= self._next_look_s:
                self._next_look_s += LOOK_S
                self.looks += looks_of(self._squeue("--states=PENDING", "-o", "%i|%r|%Q|%S"), time.time())
            else:
                time.sleep(min(left_s, POLL_S))

    def _left(self) -> list[str]:
        """Ids of jobs that have not ended."""
        return self._squeue("-o", "%i", needed=True)

    def _squeue(self, *options: str, needed: bool = False) -> list[str]:
        """Lines of squeue. A controller that is busy for a moment is no reason to give up: none are had then, or where
        they are needed, it is asked again."""
        for patience_s in (1.0, 5.0, 0.0):
            try:
                return self.slurm.run("squeue", "-h", "--all", *options, env=UTC_TIMES).splitlines()
            except (LabError, subprocess.TimeoutExpired):
                if not needed:
                    return []
                if not patience_s:
                    raise
                time.sleep(patience_s)
        raise AssertionError("not reached")

    def accounted(self) -> list[dict[str, str]]:
        """Rows of accounting (FIGURES), once it knows the end of all jobs. Raises LabError after a minute."""
        deadline = time.monotonic() + ACCOUNTING_S
        while True:
            rows = self.slurm.sacct("-X", "-j", ",".join(self.ids.values()), fields=FIGURES)
            known = {row["JobIDRaw"] for row in rows if ended(row)}
            missing = [one for one in self.ids.values() if one not in known]
            if not missing:
                return rows
            if time.monotonic() > deadline:
                raise LabError(f"accounting does not know the end of {', '.join(missing)}")
            time.sleep(1.0)

    def log(self) -> str:
        """`sacct -P` of all jobs, with their steps."""
        there = self.slurm.run("sacct", "--helpformat").lower().split()
        fields = ",".join(name for name in FIELDS.split(",") if name.lower() in there)
        ids = ",".join(self.ids.values())
        return self.slurm.run("sacct", "-a", "-P", "-S", "now-7days", "-j", ids, "-o", fields, env=UTC_TIMES)


def looks_of(lines: Sequence[str], now_s: float) -> Iterator[Look]:
    """Lines of squeue (`%i|%r|%Q|%S`) as they are kept."""
    moment = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    for line in lines:
        yield Look(moment, *line.split("|"))


# ------------------------------------------------------------------------------------------------------------- results


def without_this_machine(text: str, slurm: RealSlurm) -> str:
    """`text` with nodes called n1, n2, …, the cluster lab, this machine head, and its folder /lab."""
    text = text.replace(str(slurm.folder), "/lab")
    text = text.replace(f"{slurm.name}n", "n").replace(slurm.name, "lab")
    return re.sub(rf"(?<![\w.-]){re.escape(socket.gethostname())}(?![\w-])", "head", text)


def last_ones(conf: str) -> str:
    """A slurm.conf in which every setting stands once: that of the last line, which is the one that counts."""
    lines = [line for line in conf.splitlines() if line.strip()]
    several = ("NodeName", "PartitionName")
    last = {line.partition("=")[0]: number for number, line in enumerate(lines)}
    kept = [
        line
        for number, line in enumerate(lines)
        if line.startswith(several) or last[line.partition("=")[0]] == number
    ]
    return "\n".join(kept) + "\n"


def figures(rows: Sequence[Mapping[str, str]], looks: Sequence[Look]) -> dict[str, Any]:
    """What came of the jobs, from rows of sacct (FIGURES, times in seconds since the epoch). Waits are from when a job
    may start, of jobs that started. Raises LabError if none did."""
    started = [row for row in rows if row["Start"].isdigit()]
    if not started:
        raise LabError("no job has started; look into slurmctld.log")
    waits = [float(row["Start"]) - float(row["Eligible"]) for row in started]
    runs = [float(row["End"]) - float(row["Start"]) for row in started]
    span_s = max(float(row["End"]) for row in started) - min(float(row["Eligible"]) for row in started)
    held_s = sum(run_s * int(row["AllocCPUS"]) for run_s, row in zip(runs, started, strict=True))
    seen = Counter(look.reason for look in looks if look.reason not in NOT_ELIGIBLE)
    return {
        "jobs": len(rows),
        "states": dict(sorted(Counter(row["State"].split()[0] for row in rows).items())),
        "mean_run_s": round(statistics.fmean(runs), 2),
        "mean_wait_s": round(statistics.fmean(waits), 2),
        "median_wait_s": statistics.median(waits),
        "longest_wait_s": max(waits),
        "span_s": span_s,
        "cpu_use": round(held_s / (NODES * CPUS * span_s), 3),
        "waited_s_by_reason": {reason: count * LOOK_S for reason, count in seen.most_common()},
    }


def job_row(place: int, job: QueuedJob, ids: Mapping[int, str]) -> dict[str, object]:
    """What a job asked for, a line of `jobs.csv`; `after` is a job id, and a job without one was refused."""
    application = job.application
    return {
        "place": place,
        "job_id": ids.get(place, ""),
        "submit_s": round(job.submit_s, 2),
        "run_s": round(job.run_s, 1),
        "user": application.user.name,
        "account": application.user.account,
        "application": application.name,
        "partition": application.partition,
        "qos": job.qos,
        "nodes": job.nodes,
        "cpus": job.cpus,
        "memory_mb": job.memory_mb,
        "gpus": application.gpus,
        "limit_min": job.limit_min,
        "exclusive": int(job.exclusive),
        "constraint": job.constraint,
        "after": "" if job.after is None else ids.get(job.after, ""),
        "begin_s": round(job.begin_s, 1),
        "cancel_s": round(job.cancel_s, 1),
    }


def comma_separated(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows below the names of their columns, which are the same in all; nothing of no rows."""
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


class Folder:
    """Where results are written, without what is of this machine."""

    def __init__(self, path: Path, slurm: RealSlurm) -> None:
        self.path, self.slurm = path, slurm

    def write(self, name: str, text: str) -> None:
        """Write a file; one whose name ends in .gz is compressed, the same text to the same bytes."""
        raw = without_this_machine(text, self.slurm).encode()
        if name.endswith(".gz"):
            raw = gzip.compress(raw, compresslevel=9, mtime=0)
        (self.path / name).write_bytes(raw)


def record(
    out: Path, jobs: Sequence[QueuedJob], limited: bool, show: Callable[[str], None]
) -> dict[str, Any]:
    """Run the jobs on a cluster of their own and write what came of them into `out`; the figures.

    Raises LabError if there is no cluster, or jobs do not end, OSError if `out` cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    with cluster() as slurm:
        folder = Folder(out, slurm)
        slurm.sacctmgr(*accounting(limited))
        if jobs[-1].submit_s > SHARES_EVERY_S:  # a shorter run is over before they matter
            wait_for_shares(slurm)
        run = QueueRun(slurm, jobs, show)
        folder.write("reservation.txt", run.reserve())
        folder.write("slurm.conf", last_ones(slurm.conf.read_text(encoding="utf-8")))
        folder.write("gres.conf", slurm.gres_conf)
        folder.write("associations.txt", slurm.run("sacctmgr", "-P", "show", "assoc", "tree"))
        folder.write("qos.txt", slurm.run("sacctmgr", "-P", "show", "qos"))
        folder.write("partitions.txt", slurm.run("scontrol", "show", "partition"))
        folder.write("config.txt", slurm.run("scontrol", "show", "config", env=UTC_TIMES))
        show(f"{NODES} nodes of {CPUS} CPUs are up; {len(jobs)} jobs come within {jobs[-1].submit_s:.0f} s")
        run.run()
        rows = run.accounted()
        folder.write("log.sacct.gz", run.log())
        folder.write(
            "jobs.csv", comma_separated([job_row(place, job, run.ids) for place, job in enumerate(jobs)])
        )
        folder.write("queue.csv.gz", comma_separated([look._asdict() for look in run.looks]))
        found = {
            "slurm": slurm.run("scontrol", "--version").split()[-1],
            "limit_cpus": LIMIT_CPUS if limited else None,
            "refused": len(jobs) - len(run.ids),
            **figures(rows, run.looks),
        }
        folder.write("figures.json", json.dumps(found, indent=1) + "\n")
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Write the log, and what describes the cluster, into this folder.",
)
@click.option(
    "--jobs",
    "number",
    type=click.IntRange(FEWEST, 5000),
    default=300,
    show_default=True,
    help="How many jobs.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Other jobs for another seed."
)
@click.option(
    "--scale",
    type=click.FloatRange(0.05, 100),
    default=1.0,
    show_default=True,
    help="Multiplies all times but limits, which are whole minutes.",
)
@click.option("--without-limit", is_flag=True, help="No limit of the CPUs of a user.")
@click.option("--quick", is_flag=True, help="Ten short jobs, to see that all of it works (half a minute).")
def main(out: Path, number: int, seed: int, scale: float, without_limit: bool, quick: bool) -> None:
    """Make the log of a real Slurm whose jobs wait for limits, priorities, GPUs, memory and more. Needs root.

    300 jobs take about 20 minutes. The machine may be busy: the jobs only sleep.
    """
    console = Console(stderr=True)

    def show(text: str) -> None:
        printable = "".join(letter if letter.isprintable() else " " for letter in text)
        console.print(
            f"{time.strftime('%H:%M:%S')} {printable}", markup=False, highlight=False, soft_wrap=True
        )

    try:
        jobs = draw(QUICK_JOBS if quick else number, seed, QUICK_SCALE if quick else scale)
        found = record(out, jobs, not without_limit, show)
    except (LabError, OSError) as error:
        console.print(f"lab: {error}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
