"""Which jobs have come for which statements: by the number in their hint, else by user, name and cores in its time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from asad.admit.run_times import application_of
from asad.admit.seen import name_of
from asad.admit.sow.promises import Promise
from asad.admit.sow.stated_resources import beyond, memory_share
from asad.admit.sow.statement_options import Options
from asad.ineligible import OPTED_OUT, Ineligible
from asad.model import Snapshot

NOT_YET = (
    Ineligible.NOT_ITS_TURN,
    Ineligible.LIMIT,
    Ineligible.DEPENDENCY,
)
"""Bars of a job that is not shown in the queue because it could not start; others are too far behind to be shown."""
_HINT = re.compile(r"(?:^|;)\s*(?:asad:)?sow\s*=\s*([0-9]{1,12})\s*(?:;|$)", re.ASCII)


def number_of(text: str) -> int | None:
    """The statement that a hint names (`sow=17`); None if it names none."""
    found = _HINT.search(text)
    return None if found is None else int(found[1])


class Arrival(NamedTuple):
    """A job that has come for a statement."""

    promise: Promise
    row: int
    job: str
    from_s: float
    """From when it could start."""


class Wrong(NamedTuple):
    """A job that came for a statement that it may not have."""

    job: str
    row: int
    why: str


class Arrivals:
    """Looks for them; a wrong hint is reported once."""

    def __init__(self, applications: Sequence[str], options: Options) -> None:
        """`applications` names the codes of `Jobs.application` and may grow."""
        self._applications, self._options = applications, options
        self._reported: dict[str, str] = {}
        """Jobs whose hint is wrong, and why; their owners know."""

    def look(
        self, snapshot: Snapshot, promises: Mapping[int, Promise], taken: Mapping[str, int]
    ) -> tuple[list[Arrival], list[Wrong]]:
        """Who has come, and whose hint is wrong; `taken` are jobs that have a statement."""
        queued, running = set(snapshot.queue.tolist()), set(snapshot.running.tolist())
        found, wrong = self._by_hint(snapshot, promises, taken, queued, running)
        come = {arrival.promise.number for arrival in found}
        by_name: dict[tuple[str, str, int], list[Promise]] = {}
        waits = [promise for promise in promises.values() if promise.state == "planned"]
        for promise in sorted(waits, key=lambda one: (one.first_arrival, one.number)):
            if promise.announced.name and promise.number not in come:
                key = promise.owner, promise.announced.name, promise.announced.cores
                by_name.setdefault(key, []).append(promise)
        if by_name:
            for one in self._by_name(snapshot, by_name, taken, queued, running):
                if isinstance(one, Arrival):
                    found.append(one)
                elif one.row not in running and self._reported.get(one.job) != one.why:
                    self._reported[one.job] = one.why
                    wrong.append(one)
        return found, wrong

    def _by_hint(
        self,
        snapshot: Snapshot,
        promises: Mapping[int, Promise],
        taken: Mapping[str, int],
        queued: set[int],
        running: set[int],
    ) -> tuple[list[Arrival], list[Wrong]]:
        jobs, now_s = snapshot.jobs, snapshot.time_s
        found: list[Arrival] = []
        wrong: list[Wrong] = []
        come: dict[int, str] = {}
        for row, text in snapshot.hints.items():
            if "sow" not in text or (row not in running and not math.isnan(jobs.start_s[row])):
                continue
            number, job = number_of(text), str(jobs.job_id[row])
            begin_s, bar = float(jobs.begin_s[row]), int(jobs.guest_bar[row])
            if number is None or job in taken or bar == Ineligible.OTHER_POLICY:
                continue
            if row not in running and row not in queued and not begin_s > now_s and bar in NOT_YET:
                continue
            promise = promises.get(number)
            why = self._unfit(snapshot, row, promise, number)
            if not why and number in come:
                why = f"statement {number} is that of job {come[number]}"
            if why or promise is None:
                if row not in running and self._reported.get(job) != why:
                    wrong.append(Wrong(job, row, why))
                self._reported[job] = why
                continue
            self._reported.pop(job, None)
            come[number] = job
            from_s = float(jobs.start_s[row]) if row in running else max(now_s, np.nan_to_num(begin_s))
            found.append(Arrival(promise, row, job, float(from_s)))
        if self._reported:
            there = {str(jobs.job_id[row]) for row in snapshot.hints.keys() | queued}
            self._reported = {job: why for job, why in self._reported.items() if job in there}
        return found, wrong

    def _unfit(self, snapshot: Snapshot, row: int, promise: Promise | None, number: int) -> str:
        """Why a job may not have the statement that its hint names; the empty string if it may."""
        jobs = snapshot.jobs
        user, _, _ = application_of(snapshot, self._applications, row).partition("/")
        if promise is None or promise.owner not in ("", user):
            return f"there is no open statement {number} of its user; asactl sow status lists those that there are"
        if promise.state != "planned":
            return f"statement {number} is that of job {promise.job}"
        if jobs.array[row] >= 0:
            return f"statement {number} is of one job, and it is an array"
        if jobs.cores[row] > promise.announced.cores:
            return (
                f"it asks for {jobs.cores[row]} cores, and statement {number} is of {promise.announced.cores}"
            )
        if why := beyond(snapshot, row, number, promise.announced, memory_share(snapshot.machine)):
            return why
        bar = int(jobs.guest_bar[row])
        return "it is left alone: it opted out" if bar in OPTED_OUT else ""

    def _by_name(
        self,
        snapshot: Snapshot,
        by_name: Mapping[tuple[str, str, int], list[Promise]],
        taken: Mapping[str, int],
        queued: set[int],
        running: set[int],
    ) -> Iterator[Arrival | Wrong]:
        """Jobs without a hint that came as a statement says, by user, name and cores; those that want more beside."""
        jobs, now_s, options = snapshot.jobs, snapshot.time_s, self._options
        share = memory_share(snapshot.machine)
        born_s = min(promise.born_s for waits in by_name.values() for promise in waits)
        anybody = {key[1:]: waits for key, waits in by_name.items() if not key[0]}
        rows = np.array(sorted(queued | running), np.int32)
        rows = rows[(jobs.submit_s[rows] >= born_s) & (jobs.array[rows] < 0)]
        for row in rows[np.argsort(jobs.submit_s[rows], kind="stable")].tolist():
            job = str(jobs.job_id[row])
            if job in taken or "sow" in snapshot.hints.get(row, ""):
                continue
            application = application_of(snapshot, self._applications, row)
            user, name, cores = application.partition("/")[0], name_of(application), int(jobs.cores[row])
            waits = by_name.get((user, name, cores)) or anybody.get((name, cores))
            if not waits or int(jobs.guest_bar[row]) in OPTED_OUT | {Ineligible.OTHER_POLICY}:
                continue
            wrong: Wrong | None = None
            for promise in waits:
                early_s = promise.first_arrival * options.round_s - options.window_s
                late_s = (promise.last_arrival + 1) * options.round_s
                if promise.born_s <= jobs.submit_s[row] and early_s <= now_s <= late_s:
                    if why := beyond(snapshot, row, promise.number, promise.announced, share):
                        wrong = wrong or Wrong(
                            job, row, why
                        )  # another one of its name may be of as many GPUs
                        continue
                    waits.remove(promise)
                    from_s = float(jobs.start_s[row]) if row in running else now_s
                    yield Arrival(promise, row, job, from_s)
                    break
            else:
                if wrong is not None:
                    yield wrong
