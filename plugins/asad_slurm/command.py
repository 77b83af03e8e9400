"""Slurm over its command line: argv lists, JSON where it is written, every call with a time-out.

A cycle costs one squeue and one sinfo. What changes seldom (partitions, reservations, limits of associations, the forms
of JSON that squeue can write) is asked for at most every five minutes; sacct only for jobs that squeue has forgotten.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import IO, NamedTuple, Protocol

from asad.errors import ClusterError
from asad_slurm.answers import JobReader, NodeReader
from asad_slurm.records import NAN, JobRecord, NodeRecord, clean
from asad_slurm.undo import environment, for_now, in_part


class Look(NamedTuple):
    """All jobs and nodes, at one time."""

    jobs: list[JobRecord]
    nodes: list[NodeRecord]


class Answer(NamedTuple):
    """What became of a change."""

    done: bool
    why: str
    """Why not, or the empty string."""
    certain: bool = True
    """False if Slurm may have done it, or may do it yet: it did not answer, or did it for some tasks of an array."""

    @property
    def transient(self) -> bool:
        """Has Slurm refused it for the moment alone? That is no verdict: it is worth another try."""
        return not self.done and for_now(self.why)

    @property
    def refusal(self) -> str:
        """Why not, for an operator; the empty string if it is done."""
        return f"Slurm refused: {self.why}" if self.certain and not self.done else self.why


class Partition(NamedTuple):
    """A partition, hidden or not."""

    name: str
    nodes: str
    max_time_s: float
    tier: float
    qos: str
    exclusive_user: bool = False
    """A node of it is one user's at a time."""


class Reservation(NamedTuple):
    """Nodes that are promised to somebody for a time."""

    name: str
    nodes: str
    start_s: float
    end_s: float


class Ended(NamedTuple):
    """A job as the accounting database has it."""

    raw: int
    start_s: float
    end_s: float
    cpu_time_s: float
    """NaN if it was not measured."""
    completed: bool = False
    """It ended well."""


class Transport(Protocol):
    """A way to talk to Slurm. Reading raises ClusterError when Slurm does not answer; `update` says so instead."""

    answers: bool
    """Did Slurm answer the last change? If not, the next one would wait for nothing as well."""

    def look(self) -> Look:
        """All jobs and nodes now."""

    def update(self, raw: int | str, changes: Mapping[str, str]) -> Answer:
        """Change a job: `scontrol update` with these words. Of an array (by its number) all tasks that have not ended.

        It is done if those that wait have been changed, though running ones may not be.
        """

    def evict(self, job: str, how: str) -> Answer:
        """End a running job: `requeue-hold` (it waits again, held until its owner releases it) or `cancel`."""

    def split_task(self, text: str, excluded_nodes: str) -> int:
        """Make a waiting task of an array (`12_3`) a job of its own; its number, 0 if it does not wait any more.

        `excluded_nodes` is what its user excluded, and stays.
        """

    def partitions(self) -> list[Partition]: ...

    def reservations(self) -> list[Reservation]: ...

    def licences(self) -> dict[str, float]:
        """How many there are of each, by name."""

    def wall_limits(self) -> tuple[dict[tuple[str, str, str], float], dict[str, float]]:
        """Longest run times (s) by (account, user, partition) and by QOS; empty without accounting."""

    def ended(self, raws: Sequence[int]) -> dict[int, Ended]:
        """What accounting knows of jobs that squeue has forgotten, of the first `MOST_IDS` of these; empty without
        accounting. Raises ClusterError if it does not answer."""

    def sentence(self) -> str: ...

    def close(self) -> None: ...


AT_ONCE_S = 0.2
"""So long a change that is refused for the moment is asked for again, before it is left to a later cycle."""
MOST_IDS = 500
"""Jobs in one call of sacct."""


class Squeue:
    """Asks squeue for all jobs as JSON, in a form that shows which of them want nodes of their own.

    From data_parser v0.0.45 on (Slurm 26.05) `shared` is empty for every job. The same squeue writes v0.0.44 as well,
    in which it is not. Which forms there are squeue says without a word to slurmctld; one that has nothing newer than
    v0.0.44, or cannot say (22.05), is asked for the form that it writes of itself.
    """

    FORM = 44
    """Of `data_parser/v0.0.44`."""
    AGAIN_S = 300.0
    """So often it is asked for its forms: Slurm may have been upgraded."""

    def __init__(
        self, run: Callable[[list[str]], bytes], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run, self._clock = run, clock
        self._option, self._until_s = "", -math.inf

    def jobs(self) -> bytes:
        """All jobs, hidden and ended ones too. Raises ClusterError as `run` does."""
        now_s = self._clock()
        if not self._option or now_s >= self._until_s:
            self._option, self._until_s = self._choose(), now_s + self.AGAIN_S
        try:
            return self._run(["squeue", "--all", "--states=all", self._option])
        except ClusterError:
            self._option = ""  # it may be another squeue by now, which cannot write that form any more
            raise

    def _choose(self) -> str:
        try:
            listed = self._run(["squeue", "--json=list"])
        except Unanswered:
            raise
        except ClusterError:
            return "--json"
        forms = {int(number) for number in re.findall(rb"(?m)^\s*data_parser/v0\.0\.(\d{1,4})\s*$", listed)}
        return f"--json=v0.0.{self.FORM}" if self.FORM in forms and max(forms) > self.FORM else "--json"


class CommandTransport:
    """Transport over squeue, sinfo, scontrol, sacct and sacctmgr."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._squeue = Squeue(self._run)
        self._jobs, self._nodes = JobReader(), NodeReader()
        self._accounting = True
        self.answers = True

    def look(self) -> Look:
        """One squeue and one sinfo."""
        jobs = self._jobs.read(self._squeue.jobs())
        nodes = self._nodes.read(self._run(["sinfo", "--all", "--Node", "--json"]))
        return Look(jobs, nodes)

    def update(self, raw: int | str, changes: Mapping[str, str]) -> Answer:
        words = [f"{key}={value}" for key, value in changes.items()]
        return self._change(str(raw), ["scontrol", "update", f"jobid={raw}", *words])

    def evict(self, job: str, how: str) -> Answer:
        return self._change(job, ["scancel", job] if how == "cancel" else ["scontrol", "requeuehold", job])

    def _change(self, job: str, argv: list[str]) -> Answer:
        """Have Slurm do something; never raises."""
        begun_s = time.monotonic()
        answer = self._try(job, argv)
        while answer.transient and time.monotonic() - begun_s < AT_ONCE_S:
            answer = self._try(job, argv)
        return answer

    def _try(self, job: str, argv: list[str]) -> Answer:
        self.answers = True
        try:
            self._run(argv)
        except _Refused as refusal:
            if in_part(job, refusal.complaint):
                return Answer(True, "")
            self.answers = not refusal.unreachable
            # of an array some tasks may be changed, though others are refused for the moment
            partly = for_now(refusal.complaint) and f"{job}_" in refusal.complaint
            return Answer(False, str(refusal), certain=self.answers and not partly)
        except Unspeakable as error:
            return Answer(False, str(error))
        except ClusterError as error:
            self.answers = False
            return Answer(False, str(error), certain=False)
        return Answer(True, "")

    def split_task(self, text: str, excluded_nodes: str) -> int:
        try:
            # any change of one task makes a job of it; this one changes nothing, of a task that has just started too
            # (the nodes that it requires would shrink it to them)
            self._run(["scontrol", "update", f"jobid={text}", f"ExcNodeList={excluded_nodes}"])
            shown = self._run(["scontrol", "show", "job", "--oneliner", text]).decode(errors="replace")
        except ClusterError:
            return 0
        # the fields of one task; the name of the job is the user's, but JobId stands before it
        found = re.match(r"JobId=(\d+) ArrayJobId=\d+ ArrayTaskId=(\d+) ", shown)
        return int(found.group(1)) if found and text.endswith(f"_{found.group(2)}") else 0

    def partitions(self) -> list[Partition]:
        return [
            Partition(
                facts["PartitionName"],
                facts.get("Nodes", ""),
                duration_s(facts.get("MaxTime", "UNLIMITED")),
                float(facts.get("PriorityTier", "1")),
                "" if facts.get("QoS", "N/A") == "N/A" else facts["QoS"],
                # the second since 26.05
                facts.get("ExclusiveUser") == "YES" or facts.get("Exclusive") == "USER",
            )
            for facts in self._shown("PartitionName", "partition", "--all")
        ]

    def configuration(self) -> str:
        """What `scontrol show config` writes. Raises ClusterError."""
        return self._run(["scontrol", "show", "config"]).decode(errors="replace")

    def reservations(self) -> list[Reservation]:
        return [
            Reservation(
                facts["ReservationName"],
                facts.get("Nodes", ""),
                float(facts.get("StartTime", "0")),
                float(facts.get("EndTime", "0")),
            )
            for facts in self._shown("ReservationName", "reservation")
        ]

    def licences(self) -> dict[str, float]:
        return {
            facts["LicenseName"]: float(facts["Total"])
            for facts in self._shown("LicenseName", "licenses")
            if re.fullmatch(r"\d{1,12}", facts.get("Total", ""), re.ASCII)
        }

    def _shown(self, name: str, *asked: str) -> list[dict[str, str]]:
        """What `scontrol show` prints of everything that has a `name`."""
        lines = self._lines(["scontrol", "show", *asked, "--oneliner"])
        return [facts for facts in map(_facts, lines) if name in facts]

    def wall_limits(self) -> tuple[dict[tuple[str, str, str], float], dict[str, float]]:
        shown, none = ["sacctmgr", "--noheader", "--parsable2", "show"], "accounting_storage"
        users = self._accounted([*shown, "assoc", "format=Account,User,Partition,MaxWall"], none)
        qos = self._accounted([*shown, "qos", "format=Name,MaxWall"], none)
        return (
            {
                (account, user, partition): duration_s(wall)
                for account, user, partition, wall, *_ in users
                if wall
            },
            {name: duration_s(wall) for name, wall, *_ in qos if wall},
        )

    def ended(self, raws: Sequence[int]) -> dict[int, Ended]:
        if not raws:
            return {}
        jobs = f"--jobs={','.join(map(str, raws[:MOST_IDS]))}"
        # no field of the users': the separator cannot be forged
        shown = [
            "--noheader",
            "--parsable2",
            "--allusers",
            jobs,
            "--format=JobIDRaw,Start,End,TotalCPU,State",
        ]
        return {
            int(name): Ended(int(name), float(start), float(end), _used_s(cpu), state == "COMPLETED")
            for name, start, end, cpu, state, *_ in self._accounted(["sacct", *shown], "disabled")
            if all(part.isdecimal() and len(part) < 19 for part in (name, start, end))
        }

    def _accounted(self, argv: list[str], none: str) -> list[list[str]]:
        """Rows of what accounting says, filled up to five fields; `none` is in the complaint where there is none."""
        if not self._accounting:
            return []
        try:
            return [[*line.split("|"), "", "", "", ""] for line in self._lines(argv)]
        except ClusterError as error:
            if none not in str(error):
                raise
            self._accounting = False  # this Slurm keeps none; asking again changes nothing
            return []

    def sentence(self) -> str:
        version = self._jobs.version
        release = f" {version.release}" if version.release else ""
        return f"Slurm{release} over squeue and scontrol"

    def close(self) -> None:
        """Nothing is held."""

    def _lines(self, argv: list[str]) -> list[str]:
        return self._run(argv).decode(errors="replace").splitlines()

    def _run(self, argv: list[str]) -> bytes:
        """What a command writes. Raises ClusterError when it is not there, fails, or hangs (then it is killed)."""
        # what squeue writes may be 300 MB: in a file of the kernel's memory it is there once, and not in small pieces
        with os.fdopen(os.memfd_create(argv[0]), "rb") as out:
            status, _, err = finish(argv, out, self._timeout_s, environment())
            if status != 0:
                raise _Refused(argv[0], err.decode(errors="replace") or f"it ended with status {status}")
            out.seek(0)
            return out.read()


def finish(
    argv: Sequence[str], out: IO[bytes] | int, timeout_s: float, env: Mapping[str, str]
) -> tuple[int, bytes, bytes]:
    """Run a command of Slurm to its end: its status, what it wrote (if `out` is a pipe), what it complained of.

    Raises ClusterError when it is not there, Unanswered when it hangs; then it and what it started are killed.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 (an argv list, no shell)
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=env,
        )
    except OSError as error:
        raise ClusterError(
            f"{argv[0]}: {error.strerror}; install Slurm's client commands on this machine"
        ) from None
    except ValueError as error:
        raise Unspeakable(f"{argv[0]}: no command can be given such words ({error})") from None
    try:
        written, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Unanswered(
            f"{argv[0]}: no answer within {timeout_s:g} s; is slurmctld well? try `scontrol ping`"
        ) from None
    return process.returncode, written or b"", err


class Unspeakable(ClusterError):
    """Words hold a zero byte or half a character: no command was run."""


class Unanswered(ClusterError):
    """A command did not end in time: what it was to do may be done, or be done yet."""


class _Refused(ClusterError):
    """A command answered, and did not do it."""

    def __init__(self, command: str, complaint: str) -> None:
        self.complaint = complaint
        """All of it, as it was written."""
        short = clean(" ".join(complaint.split()))[:300]
        self.unreachable = any(words in short for words in _UNREACHABLE)
        remedy = "; is slurmctld well? try `scontrol ping`" if self.unreachable else ""
        super().__init__(f"{command}: {short}{remedy}")


_UNREACHABLE = ("Unable to contact", "Connection refused", "timed out", "Socket timed", "Zero Bytes")


def duration_s(text: str) -> float:
    """Seconds of `[days-]hours:minutes:seconds`, `minutes:seconds.fraction`; inf for UNLIMITED.

    Raises ClusterError if it is none.
    """
    if text.upper() in ("UNLIMITED", "INFINITE", "NONE", "N/A"):
        return math.inf
    days, _, clock = text.rpartition("-")
    try:
        parts = [float(part) for part in clock.split(":")]
        if days and len(parts) < 3:  # `1-12` is a day and twelve hours
            parts += [0.0] * (3 - len(parts))
        return reduce(lambda seconds, part: 60.0 * seconds + part, parts) + 86400.0 * float(days or 0)
    except ValueError:
        raise ClusterError(f"{clean(text)[:40]!r} is no duration as Slurm writes them") from None


def _used_s(text: str) -> float:
    """CPU time as accounting has it; NaN if it was not measured, or cannot be read."""
    try:
        used = duration_s(text) if text else NAN
    except ClusterError:
        return NAN
    return used if used > 0 else NAN


def _facts(line: str) -> dict[str, str]:
    """`Key=value` words of a line of `scontrol show`; names of partitions and reservations hold no blanks."""
    words = (word.partition("=") for word in reversed(line.split()))
    return {key: value for key, equals, value in words if equals}  # of equal keys the first one counts
