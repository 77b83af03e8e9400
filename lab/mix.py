"""A mix: the jobs that the lab submits, read from a TOML file."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from asad.admit.utility import parse_utility
from asad.bounded import toml_of
from asad.errors import UsageError
from asad.tables import Is, Words, read_table
from lab import LabError
from lab.measure import Worth
from lab.slurm import USERS
from lab.workloads import KINDS, stage_rates

MOST_TASKS = 1000
"""Slurm's MaxArraySize, unless it is set otherwise."""
WORDS = Words(
    place="{table}: {key}",
    unknown="{table}: unknown key '{key}'; {nearest}",
    known="known are",
    kind="{place} is {value}; give {form}",
    number="{place} is {value}; give a number",
    range="{place} must be {bounds}; it is {value}",
)
MIXES = Path(__file__).parent / "mixes"


@dataclass(frozen=True, slots=True)
class MixJob:
    """One job of a mix."""

    name: str
    """Its job name in Slurm: jobs of one name are runs of one application."""
    user: str
    cpu_s: Annotated[float, Is(above=0.0)]
    """CPU seconds of its work, on all its cores and nodes together."""
    busy: float
    """Part of its allocation that it keeps busy when it runs alone, in (0, 1]."""
    kind: str = "compute"
    cores: int = 1
    """Cores on each of its nodes."""
    nodes: int = 1
    memory_mb: int = 200
    """Memory that it asks for on each node; it uses half of it."""
    stages: int = 1
    time_limit_s: Annotated[float, Is(above=0.0)] = 120.0
    submit_s: Annotated[float, Is(least=0.0)] = 0.0
    """When it is submitted, counted from the first."""
    tasks: int = 1
    """From 2 on it is a job array of so many tasks, and `cpu_s`, cores, nodes and limit are those of each."""
    utility: str = ""
    """What it is worth by the time it took, as a user states it (`sigmoid(10, 0.05/s, 60s)`); empty for nothing."""
    workers: int = 0
    """What a user asks of asad of its array: most tasks at one time; 0 for no bound."""

    @property
    def comment(self) -> str:
        """What its user asks of asad; the empty string for nothing."""
        words = [f"utility={self.utility}"] if self.utility else []
        words += [f"workers={self.workers}"] if self.workers else []
        return f"asad:{';'.join(words)}" if words else ""

    @property
    def alone_s(self) -> float:
        """How long it runs when nobody shares its cores."""
        return self.cpu_s / (self.busy * self.cores * self.nodes)


@dataclass(frozen=True, slots=True)
class Shape:
    """The cluster that a mix is made for."""

    nodes: int = 2
    cpus: int = 1
    pin: bool = True
    """Each node has cores of this machine for itself: for jobs that compute. Jobs that hardly do need none."""
    slot_s: float = 10.0
    """Length of a slot of the admit policy."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Jobs in order of submission."""

    name: str
    jobs: tuple[MixJob, ...]
    shape: Shape = Shape()

    @property
    def has_worth(self) -> bool:
        """Do its jobs state what they are worth? Then admission is what it is there for."""
        return any(job.utility for job in self.jobs)

    @property
    def worth(self) -> Worth:
        """What the jobs that state it are worth by the seconds they took."""
        slot_s = self.shape.slot_s

        def of(utility: str) -> Callable[[float], float]:
            stated = parse_utility(utility, slot_s)
            return lambda took_s: stated(took_s / slot_s)

        return {number: of(job.utility) for number, job in enumerate(self.jobs) if job.utility}

    @property
    def core_s(self) -> float:
        """Core-seconds that the jobs hold when each runs alone."""
        return sum(job.alone_s * job.cores * job.nodes * job.tasks for job in self.jobs)

    @property
    def light_part(self) -> float:
        """Part of the core-seconds in jobs that use less than half of their CPU."""
        light = sum(job.alone_s * job.cores * job.nodes * job.tasks for job in self.jobs if job.busy < 0.5)
        return light / self.core_s

    def scaled(self, scale: float) -> Mix:
        """The same with all times multiplied; the time limit stays at least a minute (Slurm counts in minutes).

        Utilities stay as they are written: times in them are real.
        """
        return replace(
            self,
            jobs=tuple(
                replace(
                    job,
                    cpu_s=job.cpu_s * scale,
                    submit_s=job.submit_s * scale,
                    time_limit_s=job.time_limit_s * scale,
                )
                for job in self.jobs
            ),
        )


def read_mix(path: Path) -> Mix:
    """The mix in a file; a bare name is one of `lab/mixes`.

    Raises LabError that names the file, the job (from 1), the key and the remedy.
    """
    if not path.exists() and path.name == str(path):
        path = MIXES / f"{path.stem}.toml"
    try:
        document = toml_of(path.read_text(encoding="utf-8"))
    except OSError as error:
        known = ", ".join(sorted(mix.stem for mix in MIXES.glob("*.toml")))
        raise LabError(f"{path}: {error.strerror}; name a file, or one of {known}") from error
    except ValueError as error:
        raise LabError(f"{path}: not TOML: {error}; correct what it names") from error
    jobs = document.get("jobs")
    if not isinstance(jobs, list) or not jobs or not {"jobs"} <= set(document) <= {"jobs", "cluster"}:
        raise LabError(
            f"{path}: a mix is one list `jobs` of tables, and a table `cluster` if it wants one; "
            "see lab/mixes/half-light.toml"
        )
    made = [_read_job(f"{path}: job {number}", job) for number, job in enumerate(jobs, 1)]
    shape = _read_shape(f"{path}: cluster", document.get("cluster", {}))
    return Mix(path.stem, tuple(sorted(made, key=lambda job: job.submit_s)), shape)


def _read_shape(place: str, given: Any) -> Shape:
    if not isinstance(given, dict):
        raise LabError(f"{place}: not a table; write [cluster] and below it nodes = …")
    shape: Shape = _read(Shape, place, given)
    if min(shape.nodes, shape.cpus) < 1 or not 1 <= shape.slot_s < math.inf:
        raise LabError(f"{place}: nodes, cpus and slot_s must be at least 1")
    return shape


def _read_job(place: str, given: Any) -> MixJob:
    if not isinstance(given, dict):
        raise LabError(f"{place}: not a table; write {{ name = …, user = …, cpu_s = …, busy = … }}")
    job: MixJob = _read(MixJob, place, given)
    wrong = _fault(job)
    if wrong:
        raise LabError(f"{place}: {wrong}")
    return job


def _read(kind: type[MixJob] | type[Shape], place: str, given: dict[str, Any]) -> Any:
    made, faults = read_table(kind, given, WORDS, (place,))
    if faults:
        raise LabError(faults[0].text)
    return made


def _fault(job: MixJob) -> str:
    """What is wrong with a job, and the remedy; empty if nothing is."""
    if not 0 < job.busy <= 1:
        return f"busy is {job.busy:g}; give a fraction in (0, 1]"
    if job.kind not in KINDS:
        return f"kind is {job.kind!r}; choose one of {', '.join(KINDS)}"
    if job.user not in (*USERS, "root"):
        return f"user is {job.user!r}; choose one of {', '.join(USERS)}, root"
    if min(job.cores, job.nodes, job.stages) < 1 or job.memory_mb < 32:
        return "cores, nodes and stages must be at least 1, memory_mb at least 32"
    if not job.name.isprintable() or not 0 < len(job.name) <= 64:
        return "name must be 1 to 64 printable characters"
    if job.kind == "message" and (job.stages % 2 or stage_rates(job.busy, job.cores)[1] > job.cores):
        return "a message job needs an even number of stages and busy of at most 0.75"
    if not 1 <= job.tasks <= MOST_TASKS or job.workers < 0:
        return f"tasks must be 1 to {MOST_TASKS}, workers at least 0"
    if job.utility:
        try:
            parse_utility(job.utility, 1.0)
        except UsageError as error:
            return str(error)
    return ""
