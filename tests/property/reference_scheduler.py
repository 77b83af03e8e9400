"""A slow, plain scheduler to check the compiled one against, written from the definitions alone.

EASY: Mu'alem and Feitelson, IEEE TPDS 12(6), 2001: start the queue in order while it fits; reserve for the
first that does not, at the shadow time; one behind it may start if it ends by then or takes only extra cores.
Conservative backfilling, same source: every job gets a promise on arrival; when something ends, promises are
compressed, in order of arrival, each to the earliest time that disturbs no other.

Order of arrival: by time; at one moment jobs that waited for another come first, then by row.

Admission: a pass tries who was admitted before all others, each in order of arrival; it does not try a job deferred to
a later time, nor more tasks of an array than its throttle leaves beside those that run, in order of their rows. An
array is deferred and admitted as one. At one moment, what happens comes before what is decided.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Job:
    """Times in seconds; `planned` is at least `work`."""

    submit: float
    work: float
    planned: float
    cores: int
    depends: int = -1
    think: float = 0.0


@dataclass(frozen=True)
class Act:
    """Something decided at a moment: to `admit`, `defer` (until `value`), `start` or `throttle` (`value` tasks)."""

    time: float
    kind: str
    row: int
    value: float = 0.0


@dataclass(frozen=True)
class Held:
    """Cores held until `until` as far as anybody plans."""

    until: float
    cores: int


def free_at(time: float, held: Iterable[Held], total: int) -> int:
    """Cores that nobody plans to hold at `time`."""
    return total - sum(holding.cores for holding in held if holding.until > time)


def shadow(cores: int, now: float, free: int, held: Sequence[Held]) -> tuple[float, int]:
    """When `cores` will be there if everything ends as planned, and how many more will be."""
    when = now
    for end in sorted({holding.until for holding in held}):
        if free >= cores:
            break
        free += sum(holding.cores for holding in held if holding.until == end)
        when = max(now, end)
    return when, free - cores


def easy_pass(now: float, total: int, held: Sequence[Held], queue: Sequence[tuple[float, int]]) -> list[int]:
    """Positions in `queue`, of (planned, cores), that start now."""
    held = list(held)
    free = total - sum(holding.cores for holding in held)
    started = []
    head = 0
    while head < len(queue) and queue[head][1] <= free:
        started.append(head)
        free -= queue[head][1]
        held.append(Held(now + queue[head][0], queue[head][1]))
        head += 1
    if head == len(queue):
        return started
    when, extra = shadow(queue[head][1], now, free, held)
    for position in range(head + 1, len(queue)):
        planned, cores = queue[position]
        ends_in_time = planned <= when - now
        if cores <= free and (ends_in_time or cores <= extra):
            started.append(position)
            free -= cores
            if not ends_in_time:
                extra -= cores
    return started


@dataclass
class Simulation:
    """One run of `jobs` on `total` cores under `scheduler` (easy, fcfs or conservative)."""

    jobs: Sequence[Job]
    total: int
    scheduler: str
    per_event: bool = False
    start: dict[int, float] = field(default_factory=dict)
    end: dict[int, float] = field(default_factory=dict)
    first_promise: dict[int, float] = field(default_factory=dict)
    running: list[int] = field(default_factory=list)
    """In order of their starts."""
    queue: list[int] = field(default_factory=list)
    promise: dict[int, float] = field(default_factory=dict)
    array: Sequence[int] = ()
    """Of each job, -1 for no array; empty: there are none."""
    acts: Sequence[Act] = ()
    """In order of time."""
    admitted: set[int] = field(default_factory=set)
    until: dict[int, float] = field(default_factory=dict)
    throttle: dict[int, int] = field(default_factory=dict)
    """By group (see `_group`); a throttle is not 0."""

    def run(self) -> Simulation:
        """Play until nothing is left to happen."""
        while True:
            arrivals = self._arrivals()
            ends = [self.start[row] + self.jobs[row].work for row in self.running]
            now = min([when for when, _, _ in arrivals] + ends, default=math.inf)
            if self.acts and self.acts[0].time < now:
                now = self.acts[0].time
                done = False
                for act in [act for act in self.acts if act.time == now]:
                    done |= self._decide(act, now)
                    self._tried()  # who leaves the queue loses his promise, even if he is back in the same moment
                self.acts = [act for act in self.acts if act.time > now]
                if done:
                    self._pass(now, True)
                continue
            if now == math.inf:
                return self
            ending = [row for row in self.running if self.start[row] + self.jobs[row].work == now]
            if self.per_event:
                self._by_event(now, ending)
            else:
                for row in ending:
                    self._end(row, now)
                for arrival in sorted(arrival for arrival in self._arrivals() if arrival[0] == now):
                    self._arrive(*arrival)
                self._pass(now, bool(ending))

    def _by_event(self, now: float, ending: list[int]) -> None:
        for row in ending:
            if row in self.running:
                self._end(row, now)
                for other in list(self.running):
                    if self._planned_end(other) == now:  # to a pass, its cores are there already
                        self._end(other, now)
                self._pass(now, True)
        for arrival in sorted(self._arrivals()):
            if arrival[0] == now:
                self._arrive(*arrival)
                self._pass(now, False)

    def _arrive(self, _: float, kind: int, row: int) -> None:
        if kind == 1:
            del self.until[self._group(row)]
        else:
            self.queue.append(row)

    def _arrivals(self) -> list[tuple[float, int, int]]:
        """(time, kind, row) of all arrivals that are known and to come.

        Of kind 0 are jobs that waited for another, of kind 1 the first jobs of deferred groups, of kind 2 the others.
        """
        coming = [(when, 1, self._rows(group)[0]) for group, when in self.until.items()]
        for row, job in enumerate(self.jobs):
            if row in self.start or row in self.queue:
                continue
            if job.depends < 0:
                coming.append((job.submit, 2, row))
            elif job.depends in self.end:
                coming.append((max(job.submit, self.end[job.depends] + job.think), 0, row))
        return coming

    def _group(self, row: int) -> int:
        """A number that the tasks of an array share and nobody else has."""
        return len(self.jobs) + self.array[row] if self.array and self.array[row] >= 0 else row

    def _rows(self, group: int) -> list[int]:
        return [row for row in range(len(self.jobs)) if self._group(row) == group]

    def _decide(self, act: Act, now: float) -> bool:
        """Take note of a decision; does it change anything?"""
        group = self._group(act.row)
        if not any(self._group(row) == group for row in self.queue):
            return False
        if act.kind == "admit":
            if group in self.admitted:
                return False
            self.admitted.add(group)
        elif act.kind == "defer":
            assert act.value > now
            self.until[group] = act.value
        elif act.kind == "start":
            return self.until.pop(group, None) is not None
        elif group == act.row or self.throttle.get(group, 0) == act.value:  # only an array has a throttle
            return False
        else:
            self.throttle[group] = int(act.value)
        return True

    def _tried(self) -> list[int]:
        """Those of the queue that a pass tries, in order; the others lose their promise."""
        if not (self.admitted or self.until or self.throttle):
            return list(self.queue)
        room = {
            group: most - sum(self._group(row) == group for row in self.running)
            for group, most in self.throttle.items()
            if most
        }
        tried = set()
        for row in sorted(self.queue):
            group = self._group(row)
            if group not in self.until and room.get(group, 1) > 0:
                tried.add(row)
                if group in room:
                    room[group] -= 1
        for row in set(self.queue) - tried:
            self.promise.pop(row, None)
        return sorted(
            (row for row in self.queue if row in tried), key=lambda row: self._group(row) not in self.admitted
        )

    def _planned_end(self, row: int) -> float:
        return self.start[row] + self.jobs[row].planned

    def _end(self, row: int, now: float) -> None:
        self.running.remove(row)
        self.end[row] = now

    def _held(self) -> list[Held]:
        return [Held(self._planned_end(row), self.jobs[row].cores) for row in self.running]

    def _free(self) -> int:
        return self.total - sum(self.jobs[row].cores for row in self.running)

    def _begin(self, row: int, now: float) -> None:
        self.queue.remove(row)
        self.running.append(row)
        self.start[row] = now

    def _pass(self, now: float, ended: bool) -> None:
        tried = self._tried()
        if self.scheduler == "fcfs":
            for row in tried:
                if self.jobs[row].cores > self._free():
                    break
                self._begin(row, now)
        elif self.scheduler == "easy":
            waiting = [(self.jobs[row].planned, self.jobs[row].cores) for row in tried]
            for row in [tried[at] for at in easy_pass(now, self.total, self._held(), waiting)]:
                self._begin(row, now)
        else:
            for row in tried:
                if ended or self.promise.get(row, math.inf) == math.inf:  # never is no promise
                    self.promise.pop(row, None)
                    self.promise[row] = self._earliest(row, now)
                    if self.promise[row] < math.inf:
                        self.first_promise.setdefault(row, self.promise[row])
            for row in [row for row in tried if self.promise[row] == now]:
                self._begin(row, now)
                del self.promise[row]

    def _earliest(self, row: int, now: float) -> float:
        """The first moment from which the job's cores are free as long as it plans, beside all promises."""
        job = self.jobs[row]
        busy = [(now, self._planned_end(other), self.jobs[other].cores) for other in self.running]
        busy += [
            (when, when + self.jobs[other].planned, self.jobs[other].cores)
            for other, when in self.promise.items()
        ]
        edges = sorted({now, *(edge for begin, end, _ in busy for edge in (begin, end))})

        def used(time: float) -> int:
            return sum(cores for begin, end, cores in busy if begin <= time < end)

        open_at = [used(edge) + job.cores <= self.total for edge in edges]
        for i, edge in enumerate(edges):
            if all(
                fits
                for fits, inside in zip(open_at[i:], edges[i:], strict=True)
                if inside < edge + job.planned or inside == edge
            ):
                return edge
        raise AssertionError(f"job {row} fits never: it is wider than the machine")
