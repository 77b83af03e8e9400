"""The deferrable jobs of a cluster: who waits, who runs, and who has missed his latest start."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from asad.applications import named
from asad.defer.deferrable_job import BY_HAND, Deferrable
from asad.defer.deferral_options import Options
from asad.defer.windows import Rule, window_of
from asad.hold import EXACT_S, Event, Hold, key_of
from asad.ineligible import NEVER_HELD
from asad.model import Json, Snapshot

MOST_LISTED = 1000
"""Jobs that a status lists, missed ones that are kept, and sentences that wait to be read."""

IsHeldElsewhere = Callable[[Snapshot, int], bool]


class DeferrableJobs:
    """Who is deferrable, as the cluster shows it."""

    def __init__(self, applications: Sequence[str], options: Options, rules: Sequence[Rule]) -> None:
        """`applications` names the codes of `Jobs.application` and may grow."""
        self.rules = tuple(rules)
        self._applications, self._options = applications, options
        self.jobs: dict[str, Deferrable] = {}
        """Those that wait, an array as one."""
        self.running: set[str] = set()
        """Names of those that run."""
        self.by_hand: set[str] = set()
        """Jobs whose deferral somebody had taken back before this start, and that were not seen since."""
        self.stray: list[int] = []
        """Rows that are held back by us, and are not deferrable (any more)."""
        self.missed: dict[str, float] = {}
        """Latest starts that have passed, by name."""
        self.started = 0
        """How many have started, and how many have missed their latest start."""
        self.late = 0
        self.to_report: list[str] = []
        """Sentences about those who missed it; whoever reads them empties the list."""
        self.changed = False
        """What `state` gives has changed since it was asked for."""

    def waiting(self) -> list[Deferrable]:
        """Those that wait for their turn, or for us, and not because of somebody's hand."""
        return [job for job in self.jobs.values() if job.seen and job.hold is not Hold.USER_OVERRIDE]

    # ------------------------------------------------------------------------------------------------- what is seen

    def look(self, snapshot: Snapshot, held_elsewhere: IsHeldElsewhere) -> None:
        """Bring the deferrable jobs that wait up to date."""
        jobs, arrays = snapshot.jobs, snapshot.arrays
        deferred = np.flatnonzero((jobs.begin_s > snapshot.time_s) & (jobs.submit_s <= snapshot.time_s))
        in_queue = set(snapshot.queue.tolist())
        for job in self.jobs.values():
            job.seen = False
        self.stray = []
        done: set[int] = set()
        rows = np.concatenate((snapshot.queue, deferred))
        same = {job.row for job in self.jobs.values() if job.hold in (Hold.FREE, Hold.HELD)}
        for row, array, begin_s in zip(
            rows.tolist(), jobs.array[rows].tolist(), jobs.begin_s[rows].tolist(), strict=True
        ):
            if row in same and array < 0 and self._as_before(snapshot, row, begin_s):
                continue
            if array >= 0:
                row = int(arrays.waiting_row[array])
                if row < 0 or ~array in done:
                    continue
                done.add(~array)
            elif row in done:
                continue
            else:
                done.add(row)
            if math.isnan(jobs.start_s[row]):
                self._see(snapshot, row, array, row in in_queue, held_elsewhere)

    def _as_before(self, snapshot: Snapshot, row: int, begin_s: float) -> bool:
        """A job that waits for the very begin time for which it waited at the last look, and nothing else is new."""
        known = self.jobs.get(str(snapshot.jobs.job_id[row]))
        if known is None or known.row != row or begin_s != known.begin_s:  # never so without one
            return False
        if _facts(snapshot, row) != known.facts or snapshot.hints.get(row, "") != known.hint:
            return False
        known.seen = True
        return True

    def _see(
        self, snapshot: Snapshot, row: int, array: int, in_queue: bool, held_elsewhere: IsHeldElsewhere
    ) -> None:
        """One job that waits, of an array the row that stands for its tasks."""
        jobs = snapshot.jobs
        key = key_of(snapshot, row)
        known = self.jobs.get(key)
        begin_s = float(jobs.begin_s[row])
        ours = row in snapshot.own_begins or (known is not None and known.defers(begin_s))
        tasks, rounds = tasks_of(snapshot, row, array)
        limit_s = float(jobs.time_limit_s[row])
        found = None
        if tasks > 0 and int(jobs.guest_bar[row]) not in NEVER_HELD and math.isnan(jobs.offered_s[row]):
            found = window_of(
                submit_s=float(jobs.submit_s[row]),
                begin_s=_own_begin_s(snapshot, row, known, ours),
                deadline_s=float(jobs.deadline_s[row]),
                needs_s=rounds * limit_s,
                hint=snapshot.hints.get(row, ""),
                rule=self._rule(snapshot, row),
                deadline_alone=self._options.deadline_alone,
            )
        if found is None or held_elsewhere(snapshot, row):
            if row in snapshot.own_begins and not held_elsewhere(snapshot, row):
                self.stray.append(row)
            self.jobs.pop(key, None)
            return
        if known is None:
            known = Deferrable(key=key, window=found, submit_s=float(jobs.submit_s[row]))
            self.jobs[key] = known
            if key in self.by_hand and not ours:
                known.on(Event.OVERRIDE)
                known.reason = BY_HAND
        known.seen, known.row, known.window = True, row, found
        known.cores = int(jobs.cores[row]) * tasks
        known.nodes = int(jobs.nodes[row]) if array < 0 else 0  # tasks of one array may share a node
        known.limit_s, known.needs_s = limit_s, rounds * limit_s
        known.begin_s, known.hint = begin_s, snapshot.hints.get(row, "")
        known.facts = _facts(snapshot, row)
        if ours:
            known.until_s = begin_s
            known.on(Event.SHOWN)
        elif known.hold is Hold.HELD:
            self._lost_hold(snapshot, known, in_queue)

    def _lost_hold(self, snapshot: Snapshot, job: Deferrable, in_queue: bool) -> None:
        """Held back it was, and is no more: its lease has run out, or somebody took it back by hand."""
        early = job.until_s > snapshot.time_s + EXACT_S
        job.withdrawn()
        if early and in_queue:
            job.on(Event.OVERRIDE)
            job.reason = BY_HAND
            self.changed = True

    def _rule(self, snapshot: Snapshot, row: int) -> Rule | None:
        if not self.rules:
            return None
        code = int(snapshot.jobs.application[row])
        known = self._applications[code] if 0 <= code < len(self._applications) else ""
        name = named(known, snapshot.names.get(row))
        partitions, qos = snapshot.classes.get(row, ("", ""))
        return next((rule for rule in self.rules if rule.fits(name, partitions, qos)), None)

    # ------------------------------------------------------------------------------------------------- who has gone

    def follow(self, snapshot: Snapshot, ended: Collection[str]) -> None:
        """Who does not wait any more has started, or is gone; whose latest start has passed has missed it.

        `ended` are names of jobs that ended since the last look.
        """
        names = snapshot.jobs.job_id
        rows = (*snapshot.running.tolist(), *snapshot.guests.tolist())
        at_work = {str(names[row]).partition("_")[0] for row in rows}
        started = at_work | {name.partition("_")[0] for name in ended}
        before = set(self.running)
        for key, job in list(self.jobs.items()):
            late = snapshot.time_s > job.window.latest_s
            if job.seen and key in at_work:
                self.running.add(key)
            waits = key_of(snapshot, job.row) == key and math.isnan(snapshot.jobs.start_s[job.row])
            if job.seen or (waits and key not in started):
                # unseen, it waits for something other than its turn, or the cluster has not said yet that it is gone
                if late and not job.missed:
                    self._miss(job, "it still waits")
                continue
            del self.jobs[key]
            if key in started:
                self.started += 1
                self.running.add(key)
            elif (late or job.hold is Hold.DEADLINE_RELEASED) and not job.missed:
                self._miss(job, "it is gone")  # a cluster may be a little ahead of us in saying so
        self.running &= at_work
        self.changed = self.changed or self.running != before

    def _miss(self, job: Deferrable, how: str) -> None:
        job.missed = True
        self.late += 1
        self.missed[job.key] = job.window.latest_s
        while len(self.missed) > MOST_LISTED:
            del self.missed[next(iter(self.missed))]
        self.to_report.append(f"job {job.key} has missed its latest start: {how}, and has not run")
        del self.to_report[:-MOST_LISTED]

    # ---------------------------------------------------------------------------------------------------- knowledge

    def to_json(self) -> dict[str, Json]:
        """What another process needs to know: who runs that was deferrable, and whom somebody took back by hand."""
        by_hand = [job.key for job in self.jobs.values() if job.hold is Hold.USER_OVERRIDE]
        return {"running": [*sorted(self.running)], "by_hand": [*sorted({*by_hand, *self.by_hand})]}

    def restore(self, known: Mapping[str, Json]) -> None:
        """Take over what `to_json` gave; what cannot be read is passed over."""
        self.running |= _names(known.get("running"))
        self.by_hand |= _names(known.get("by_hand"))


def tasks_of(snapshot: Snapshot, row: int, array: int) -> tuple[int, int]:
    """Tasks that start together, and how many times one after the other that takes."""
    if array < 0:
        return 1, 1
    arrays = snapshot.arrays
    waiting, throttle = int(arrays.waiting[array]), int(arrays.throttle[array])
    at_once = min(waiting, max(1, throttle - int(arrays.running[array]))) if throttle else waiting
    return at_once, math.ceil(waiting / max(1, min(waiting, throttle or waiting)))


def _own_begin_s(snapshot: Snapshot, row: int, known: Deferrable | None, ours: bool) -> float:
    """The begin time that its user gave a job, as far as that is known; NaN for none."""
    begin_s = float(snapshot.jobs.begin_s[row])
    own_s = float(snapshot.own_begins.get(row, math.nan)) if ours else begin_s
    if known is None or not known.window.earliest_s > known.submit_s:
        return own_s
    # a begin time that has come is shown no more, and the user's own not by every cluster while ours stands there
    if (ours and math.isnan(own_s)) or not begin_s > snapshot.time_s:
        return known.window.earliest_s
    return own_s


def _facts(snapshot: Snapshot, row: int) -> tuple[float, bytes, int]:
    """What makes a look at a job worth while, beside its begin time and hint."""
    jobs = snapshot.jobs
    return float(jobs.time_limit_s[row]), jobs.deadline_s[row].tobytes(), int(jobs.guest_bar[row])


def _names(value: Json) -> set[str]:
    if not isinstance(value, list):
        return set()
    return {name for name in value if isinstance(name, str) and 0 < len(name) < 100}
