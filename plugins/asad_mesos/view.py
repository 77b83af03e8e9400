"""What there is to be seen of the framework: units, and the cores that they are shown on. Pure.

A unit is what the rest of asad calls a job: a gang, or one task of an elastic job. Mesos counts CPUs in thousandths
and gives nobody a core of his own; so that lending can be counted in cores, every unit is shown on as many cores of a
node as its CPUs there, rounded up, and keeps them while it is there. What finds no core left (fractions of cores that
add up) runs all the same and is not shown as running.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from asad_mesos.agent_offers import thousandths
from asad_mesos.framework_state import (
    LAUNCHING,
    QUEUED,
    RUNNING,
    STOPPING,
    Job,
    State,
    Task,
    job_of,
    task_unit,
    unit_of,
)
from asad_mesos.job_spec import Group


@dataclass(slots=True)
class Unit:
    """A gang or a task, as it is now."""

    name: str
    job: Job
    group: int
    """Number of its group in an elastic job, -1 for a gang."""
    tasks: list[Task] = field(default_factory=list)
    """Empty while it waits."""
    guest: bool = False
    demand: float = math.nan
    """Of a guest that draws from pools: CPU that it is expected to use, as a fraction of its cores."""
    cpus_of: dict[str, float] = field(default_factory=dict)
    """By agent, of its tasks there."""

    def __post_init__(self) -> None:
        for task in self.tasks:
            cpus = thousandths(self.job.spec.groups[task.group].cpus) / 1000
            self.cpus_of[task.agent] = self.cpus_of.get(task.agent, 0.0) + cpus

    @property
    def _parts(self) -> list[tuple[int, Group]]:
        """How many tasks of which groups it is."""
        groups = self.job.spec.groups
        return [(group.tasks, group) for group in groups] if self.group < 0 else [(1, groups[self.group])]

    @property
    def wanted_cores(self) -> int:
        """Cores that it asks for."""
        return max(1, math.ceil(round(sum(tasks * group.cpus for tasks, group in self._parts), 3)))

    @property
    def memory_bytes(self) -> float:
        """Memory that it reserves, over all its tasks."""
        return sum(tasks * group.memory_bytes for tasks, group in self._parts)

    @property
    def gpus(self) -> int:
        """Devices that it asks for, over all its tasks."""
        return sum(tasks * group.gpus for tasks, group in self._parts)

    @property
    def run(self) -> str:
        """Another for each run of it, for it may be queued again; the empty string while it waits."""
        if not self.tasks:
            return ""
        return self.tasks[0].task_id if self.group >= 0 else str(self.job.attempt)

    @property
    def start_s(self) -> float:
        """When the first of it was launched, NaN while it waits."""
        return min((task.launch_s for task in self.tasks), default=math.nan)

    @property
    def limit_end_s(self) -> float:
        """When its time limit ends it; NaN while it waits."""
        if not self.tasks:
            return math.nan
        job = self.job
        begun_s = self.tasks[0].start_s if self.group >= 0 else job.start_s
        begun_s = self.start_s if math.isnan(begun_s) else begun_s
        return begun_s + job.spec.time_limit_s + self.extended_s

    @property
    def extended_s(self) -> float:
        """By how much that was moved."""
        return self.tasks[0].extended_s if self.group >= 0 and self.tasks else self.job.extended_s


def units(state: State) -> Iterator[Unit]:
    """All units that run or wait, of arrays that wait the first one, in the order in which offers are dealt out."""
    for *_, job in state.listed():
        yield from units_of(job)


def units_of(job: Job) -> Iterator[Unit]:
    """The same of one job."""
    if not job.spec.elastic:
        if job.tasks or job.state == QUEUED:
            demand = job.demands.get(-1, math.nan)
            yield Unit(job.job_id, job, -1, list(job.tasks.values()), bool(job.beside), demand)
        return
    for task in job.tasks.values():
        guest = task.group == 0 and task.index in job.guests
        demand = job.demands.get(task.index, math.nan) if guest else math.nan
        yield Unit(unit_of(job, task), job, task.group, [task], guest, demand)
    if job.state in (QUEUED, LAUNCHING, RUNNING):
        for number, progress in enumerate(job.groups):
            if progress.todo:
                yield Unit(task_unit(job, number, progress.todo[0]), job, number)


def unit_named(name: str, state: State) -> Unit | None:
    """The unit of that name as it is now."""
    job = state.jobs.get(job_of(name))
    return None if job is None else next((unit for unit in units_of(job) if unit.name == name), None)


def tried(unit: Unit, now_s: float) -> bool:
    """Is it placed as soon as offers let it?"""
    job = unit.job
    if unit.tasks or job.hold_until_s > now_s or job.state == STOPPING:
        return False
    if unit.group < 0:
        return True
    progress = job.groups[unit.group]
    return progress.alive < progress.target


class Cores:
    """Which cores of its nodes a unit is shown on: the same as long as it is there."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], tuple[int, ...]] = {}
        """(unit, agent) → cores, by their number on the node."""

    def show(self, shown: list[Unit], cores_of: dict[str, int]) -> dict[str, dict[str, tuple[int, ...]]]:
        """By unit and agent the cores, for all `shown` of one kind (batch jobs, or guests)."""
        taken: dict[str, set[int]] = {agent: set() for agent in cores_of}
        wanted = {
            (unit.name, agent): max(1, math.ceil(round(cpus, 3)))
            for unit in shown
            for agent, cpus in unit.cpus_of.items()
            if agent in cores_of
        }
        held: dict[tuple[str, str], tuple[int, ...]] = {}
        for key, count in wanted.items():
            known = self._held.get(key, ())
            if len(known) == count and all(core < cores_of[key[1]] for core in known):
                held[key] = known
                taken[key[1]].update(known)
        for key, count in wanted.items():
            if key not in held:
                free = [core for core in range(cores_of[key[1]]) if core not in taken[key[1]]]
                held[key] = tuple(free[:count])
                taken[key[1]].update(free[:count])
        self._held = held
        found: dict[str, dict[str, tuple[int, ...]]] = {}
        for (unit_name, agent), numbers in held.items():
            if numbers:
                found.setdefault(unit_name, {})[agent] = numbers
        return found
