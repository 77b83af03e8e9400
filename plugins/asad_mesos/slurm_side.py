"""Slurm's commands as the queue beside Mesos needs them: argv lists, a time-out for each, no shell.

A cycle costs one squeue with a short line a job; the long form is asked for when there is a new job to take. The
daemon's user must be an operator of Slurm's (hold, release, scancel and scripts of others).
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Collection, Mapping
from typing import NamedTuple

from asad_slurm.command import Squeue, Unanswered, finish
from asad_slurm.undo import environment

from asad.errors import ClusterError, UsageError
from asad_mesos.slurm_jobs import Queued, argued, read_jobs

MOST_SCRIPT = 1 << 20
FORMAT = "%A|%F|%T|%Q|%P|%r"
"""Numbers, states, partitions and reasons: nothing that users write."""
DENIED = "denied"
GONE = "Invalid job id"


class Short(NamedTuple):
    """A job in one short line."""

    job: int
    state: str
    priority: int
    """0 while it is held."""
    partition: str
    reason: str = ""


class Denied(ClusterError):
    """Slurm does not let this user do that."""


class Unknown(ClusterError):
    """Slurm does not know that job any more."""


class Commands:
    """What the queue asks of squeue, scontrol, scancel, sacct and sacctmgr; jobs by number, and by name (`17`, `17_3`)
    where something is done to them: the number of an array stands for all its tasks.

    Raises ClusterError where Slurm does not answer or refuses.
    """

    def __init__(self, timeout_s: float = 10.0, environment: Mapping[str, str] | None = None) -> None:
        self._timeout_s, self._environment = timeout_s, environment
        self._squeue = Squeue(lambda argv: self._run(*argv).encode())
        self._silent: set[str] = set()
        """Daemons of Slurm that have not answered since the last look: the next command would wait for nothing, too."""

    def look(self) -> dict[int, Short]:
        """All jobs that Slurm still shows, those that ended lately too."""
        self._silent.clear()
        found = {}
        # 26.05 shows all waiting tasks of an array in one line, those that have numbers of their own as well
        shown = ("--all", "--states=all", "--array", "--noheader", f"--format={FORMAT}")
        for line in self._run("squeue", *shown).splitlines():
            number, _, state, priority, partition, reason = [*line.strip().split("|"), *[""] * 6][:6]
            if all(part.isdecimal() and len(part) < 19 for part in (number, priority)):
                job = int(number)
                found[job] = Short(job, state, int(priority), partition, reason)
        return found

    def details(self, jobs: Collection[int]) -> dict[int, Queued]:
        """The same of these jobs, at length; 22.05 cannot be asked for some of them alone."""
        return {job.job: job for job in read_jobs(self._squeue.jobs()) if job.job in jobs}

    def argued(self, job: Queued) -> Queued:
        """The job with the arguments of its script, which newer Slurms give to accounting alone.

        Raises UsageError if nobody has them.
        """
        if not job.name_alone:
            return job
        shown = ("--noheader", "--parsable2", "--allocations", "--allusers", "--format=SubmitLine")
        try:
            line = self._run("sacct", *shown, f"--jobs={job.slurm_id}")
        except ClusterError as error:
            if "disabled" in str(error):
                raise UsageError(
                    "Slurm gives arguments of scripts to accounting, and there is none"
                ) from None
            raise
        if not line.strip():
            raise ClusterError("sacct: accounting does not know it yet")
        return argued(job, line.removesuffix("\n"))

    def script(self, job: str) -> str:
        """The batch script as it was submitted. Raises UsageError for one that is longer than Mesos may carry."""
        text = self._run("scontrol", "write", "batch_script", job, "-")
        if not text:  # no script is empty: 22.05 fails with exit status 0
            raise Unknown(f"scontrol: there is no script of job {job}")
        if len(text.encode()) > MOST_SCRIPT:
            raise UsageError(f"its script is longer than {MOST_SCRIPT >> 10} KiB")
        return text

    def split(self, job: Queued, task: int) -> None:
        """Have a task of an array that waits be a job of its own, with a number of its own; nothing else changes."""
        self._run("scontrol", "update", f"jobid={job.array}_{task}", f"Comment={job.comment}")

    def hold(self, job: str) -> None:
        """As an operator: its user cannot release it."""
        self._run("scontrol", "hold", job)

    def release(self, job: str) -> None:
        """Let Slurm have it again, with the priority that it would have."""
        self._run("scontrol", "release", job)

    def comment(self, job: str, texts: Mapping[str, str]) -> None:
        """Write `AdminComment` or `Comment`."""
        self._run("scontrol", "update", f"jobid={job}", *(f"{key}={text}" for key, text in texts.items()))

    def end(self, job: str) -> None:
        """Take it out of the queue; accounting says CANCELLED, for Slurm never ran it."""
        self._run("scancel", job)

    def account(self, job: str, status: int, text: str) -> None:
        """Exit status (as of wait(2)) and a sentence, into the accounting of a job that has ended."""
        self._run(
            *("sacctmgr", "--immediate", "modify", "job", "where", f"jobid={job}"),
            *("set", f"DerivedExitCode={status}", f"AdminComment={text}"),
        )

    def partition(self, name: str) -> str:
        """What Slurm says of a partition."""
        return self._run("scontrol", "show", "partition", "--oneliner", name)

    def past(self, job: str) -> str:
        """What accounting says became of a job; empty if it does not know it, or there is none."""
        shown = ("--noheader", "--parsable2", "--allocations", "--allusers", "--format=JobID,State")
        array, _, task = job.partition("_")
        # 26.05 does not find the last task of an array by its name if it never ran: it stays a list (`7_[9%2]`)
        alone = re.compile(rf"{re.escape(array)}_\[{re.escape(task)}(?:%\d+)?]")
        with contextlib.suppress(ClusterError):
            for asked in dict.fromkeys((job, array)):
                for line in reversed(self._run("sacct", *shown, f"--jobs={asked}").splitlines()):
                    name, _, state = line.partition("|")
                    if state.strip() and (asked == job or alone.fullmatch(name)):
                        return state.split()[0]
        return ""

    def _run(self, *argv: str) -> str:
        """What a command writes. Raises ClusterError when it is not there, fails, or hangs (then it is killed)."""
        asked = "slurmdbd" if argv[0] in ("sacct", "sacctmgr") else "slurmctld"
        if asked in self._silent:
            raise Unanswered(f"{argv[0]}: {asked} did not answer the command before this one")
        try:
            status, out, err = finish(argv, subprocess.PIPE, self._timeout_s, environment(self._environment))
        except Unanswered:
            self._silent.add(asked)
            raise
        if status != 0:
            why = " ".join(err.decode(errors="replace").split())[:300]
            why = "".join(char for char in why if char.isprintable()) or f"status {status}"
            kind = Denied if DENIED in why else Unknown if GONE in why else ClusterError
            raise kind(f"{argv[0]}: {why}")
        return out.decode(errors="replace")
