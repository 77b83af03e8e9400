"""The jobs of Slurm from the look in which they are first seen until their end is reported.

Slurm shows how everything is, never what has changed: whether a job is new, has changed, has ended or was forgotten
follows from two looks, here. Only what has changed is described anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from asad.cluster.bounded_lists import Ledger
from asad.ineligible import Ineligible
from asad.model import Finished, Ints
from asad_slurm.command import Transport
from asad_slurm.ended_runs import Applications, Arrays
from asad_slurm.limits import Limits
from asad_slurm.missing import Missing
from asad_slurm.nodes import Nodes, Place, place
from asad_slurm.records import ENDED, FACTS, INF, NAN, RUNS, WAITS, JobRecord, hint
from asad_slurm.rows import Rows
from asad_slurm.settings import Settings
from asad_slurm.slurm_eligibility import group, guest_ineligible, host_ineligible, memory_bound
from asad_slurm.wait_columns import WaitReasons

WITHIN_A_SECOND_S = 0.5
"""A job that began and ended in the same second, as far as Slurm shows: it counts whole ones."""


class End(NamedTuple):
    """The end of a job, to be reported."""

    row: int
    end_s: float
    run_s: float
    cpu_fraction: float
    completed: bool


class JobTable:
    """All jobs that live, by row, and those whose end is still to be reported."""

    def __init__(self, settings: Settings, transport: Transport, limits: Limits) -> None:
        """`transport` is asked for the ends of jobs that squeue has forgotten."""
        self._settings, self._limits = settings, limits
        self.rows = Rows()
        self.waits = WaitReasons(self.rows)
        self.applications = Applications()
        self.arrays = Arrays()
        self.places: dict[int, Place] = {}
        """By row of a job that holds cores."""
        self.ledger = Ledger()
        self._guest_partitions = frozenset(settings.guest_partitions.values())
        self._user_code: dict[str, int] = {}
        self._group_code: dict[str, int] = {}
        self._ended: list[End] = []
        """Those that are still to be reported."""
        self._ended_before: dict[str, int] = {}
        """Jobs that have ended and Slurm still shows, with how often they had been requeued."""
        self._seen_s = -INF
        """When the last look was."""
        self._missing = Missing(transport)
        """Jobs that squeue has forgotten, and whose ends are still to be found out."""

    # -------------------------------------------------------------------------------------------------------- a look

    def see(self, records: list[JobRecord], now_s: float) -> None:
        """All that squeue shows now."""
        rows = self.rows
        rows.turn()
        self.applications.look(rows.jobs.application, now_s)
        first_look = self._seen_s == -INF
        of, known, ended = rows.of, rows.records, self._ended_before
        still: dict[str, int] = {}
        present: set[int] = set()
        changed: dict[int, JobRecord] = {}
        for record in records:
            row = of.get(record.text)
            if row is None and self._missing and (row := self._missing.found(record.text)) is not None:
                of[record.text] = row
            elif row is None:
                if record.phase == ENDED and (
                    first_look
                    or ended.get(record.text) == record.restarts
                    or not record.end_s > record.start_s
                    or record.end_s < self._seen_s
                ):
                    still[record.text] = record.restarts
                    if record.array and record.text not in ended:
                        self.arrays.over(record.array, record.tasks)
                    if first_look and record.completed:
                        self.arrays.ended(record.text, record.end_s - record.start_s)
                    continue
                row = rows.take(record.text)
            elif row in present:
                continue  # a job that is shown twice is one job, and ends once: its row is free once
            elif known[row] is record:
                present.add(row)
                continue
            present.add(row)
            changed[row] = record
        self._ended_before = still
        before = [known[row] for row in changed]
        rows.write(list(changed), list(changed.values()))
        for (row, record), earlier in zip(changed.items(), before, strict=True):
            if earlier is not None and earlier.restarts != record.restarts:
                rows.rerun(row)
            if earlier is not None and _only_numbers(earlier, record):
                rows.jobs.own_estimate_s[row] = record.estimate_s
            else:
                self._describe(row, record)
        if len(present) != len(of):
            self._miss(sorted(set(of.values()) - present), now_s)
        for row, missed, end in self._missing.settle():
            self._end(row, missed.record, end.start_s, end.end_s, end.cpu_time_s, end.completed, missed.held)
        for row, record in changed.items():
            if record.phase == ENDED:
                still[record.text] = record.restarts
                self._end(row, record, record.start_s, record.end_s, NAN, record.completed)
        self._seen_s = now_s

    def locate(self, holding: Ints, nodes: Nodes) -> None:
        """Find where the jobs are that hold cores; of those that have not changed it is known."""
        found = {}
        for row in holding.tolist():
            record, known = self.rows.record(row), self.places.get(row)
            if known is None or known.record is not record:
                known = place(record, nodes.number, nodes.records)
            found[row] = known
        self.places = found

    @property
    def licences(self) -> Mapping[str, float]:
        """How many the cluster has of each, by name."""
        return self._limits.licences

    def bound(self) -> None:
        """Limits have been asked for: they bound the ends of all jobs, and order those that wait."""
        for row in self.rows.of.values():
            self._bound(row)

    def recall_limit(self, row: int, asked_s: float) -> None:
        """An earlier daemon may have extended a running job's limit, which was `asked_s` (NaN: not known)."""
        more_s = self.rows.record(row).time_limit_s - asked_s
        if 0.0 < more_s < INF:
            jobs = self.rows.jobs
            jobs.extended_s[row] = jobs.lost_s[row] = more_s
            self._bound(row)

    def _describe(self, row: int, record: JobRecord) -> None:
        """What follows from a record alone."""
        jobs, extra, settings = self.rows.jobs, self.rows.extra, self._settings
        jobs.application[row] = self.applications.code(record.user, record.name, record.cores)
        jobs.user[row] = self._user_code.setdefault(record.user, len(self._user_code))
        jobs.share_group[row] = self._share_group(record)
        if record.array:
            extra.array[row], extra.tasks[row] = record.array, record.tasks
        self.rows.hints.pop(row, None)
        if text := hint(record.comment):
            self.rows.hints[row] = text
        guest = record.partition in self._guest_partitions
        if not guest:  # its partition says where it waited, and that was looked at
            jobs.memory_bound[row] = memory_bound(record, settings)
        extra.guest[row] = guest
        extra.tier[row] = self._limits.tier(record.partition)
        extra.tries[row] = record.waits_turn and not guest
        if record.phase == WAITS:
            self.waits.describe(row, record)
            extra.static_host_bar[row] = (
                Ineligible.NOT_ITS_TURN if guest else 0
            )  # who waits lends nothing yet
            extra.static_guest_bar[row] = guest_ineligible(record, settings)
            jobs.host[row], jobs.share[row], jobs.counterfactual_start_s[row] = -1, NAN, NAN
            jobs.own_estimate_s[row] = record.estimate_s
        else:
            extra.static_host_bar[row] = (
                Ineligible.NOT_ITS_TURN if guest else host_ineligible(record, settings)
            )
            extra.static_guest_bar[row] = 0
            if not guest:
                jobs.counterfactual_start_s[row] = record.start_s
                jobs.host[row], jobs.share[row] = -1, NAN  # Slurm has started it itself, an offer still open
            self._bound(row)

    def _share_group(self, record: JobRecord) -> int:
        """Whom it may meet on a node: 0 for everybody whose group that is too."""
        name = group(record, self._settings, self._limits.exclusive_user(record.partition))
        return 1 + self._group_code.setdefault(name, len(self._group_code)) if name else 0

    def _bound(self, row: int) -> None:
        record, jobs = self.rows.record(row), self.rows.jobs
        if record.phase == RUNS:
            asked_s = record.time_limit_s - float(jobs.extended_s[row])
            own_s = record.start_s + (1.0 + self._settings.most_extension) * asked_s
            jobs.latest_end_s[row] = np.fmin(self._limits.latest_end_s(record), own_s)
        self.rows.extra.tier[row] = self._limits.tier(record.partition)

    # ---------------------------------------------------------------------------------------------------------- ends

    def _miss(self, gone: list[int], now_s: float) -> None:
        """Jobs that squeue has forgotten: they hold nothing any more, and accounting knows when they ended."""
        records = [self.rows.record(row) for row in gone]
        if any(record.tasks > 1 for record in records):
            # one task of those that waited together is gone, or all of them
            over = set(gone)
            left = {self.rows.record(row).raw for row in self.rows.of.values() if row not in over}
            records = [record._replace(tasks=1) if record.raw in left else record for record in records]
        for row, record in zip(gone, records, strict=True):
            del self.rows.of[record.text]
            self.rows.extra.phase[row] = ENDED
            self._missing.add(row, record, self._seen_s, now_s, row in self.places)

    def _end(
        self,
        row: int,
        record: JobRecord,
        start_s: float,
        end_s: float,
        cpu_time_s: float,
        completed: bool,
        held: bool = False,
    ) -> None:
        """A job is over, since `end_s` if that is known (not NaN). One that never ran is dropped, any other will be
        reported. `held`: it was seen to hold cores."""
        self.arrays.over(record.array, record.tasks)
        if end_s == start_s and (held or row in self.places):
            end_s += WITHIN_A_SECOND_S  # it was seen to run
        if not start_s > 0 or end_s <= start_s:  # a start of NaN: it waited to the end
            self.rows.drop(row)
            return
        self.rows.of.pop(record.text, None)
        self.rows.extra.phase[row] = ENDED
        self.rows.jobs.start_s[row] = start_s
        extra, span_s = self.rows.extra, end_s - start_s
        if completed and not extra.guest[row]:
            self.arrays.ended(record.text, span_s)
        if math.isnan(cpu_time_s):  # what was used until the last sample stands for the whole run
            cpu_time_s = float(extra.cpu_time_s[row])
            span_s = float(extra.cpu_time_at_s[row]) - start_s
        cpu = min(1.0, max(0.0, cpu_time_s / (record.cores * span_s))) if span_s > 0 else NAN
        if extra.squeezed[row]:
            cpu = NAN  # it wanted more than it got, and nobody knows how much
        self._ended.append(End(row, end_s, end_s - start_s, cpu, completed))

    def ended_rows(self) -> Ints:
        """Rows of the jobs whose end is still to be reported."""
        return np.array([end.row for end in self._ended], dtype=np.int32)

    def finished(self) -> Finished:
        """The jobs that have ended and were not reported yet; their rows are free when one more look has passed."""
        rows, jobs = self.ended_rows(), self.rows.jobs
        ended, self._ended = self._ended, []
        finished = Finished(
            row=rows,
            end_s=np.array([end.end_s for end in ended]),
            run_s=np.array([end.run_s for end in ended]),
            lost_s=jobs.lost_s[rows].copy(),
            cpu_fraction=np.array([end.cpu_fraction for end in ended]),
            completed=np.array([end.completed for end in ended], np.bool_),
        )
        for row, end_s, run_s, cpu, _ in ended:
            self.applications.ended(int(jobs.application[row]), cpu, float(jobs.cores[row]) * run_s)
            self._enter(row, self._seen_s if math.isnan(end_s) else end_s)
            self.rows.drop(row)
        return finished

    def _enter(self, row: int, end_s: float) -> None:
        """The ledger of what lending gave and took."""
        jobs, extra, record = self.rows.jobs, self.rows.extra, self.rows.record(row)
        guest, lent_core_s = bool(extra.guest[row]), extra.lent_core_s[row]
        if guest or extra.was_host[row]:
            self.ledger.enter(end_s, record.account, record.text, guest, lent_core_s, jobs.extended_s[row])


def _only_numbers(earlier: JobRecord, record: JobRecord) -> bool:
    """Did only priority and estimate of a waiting job change? They do all the time, and mean no more than they say."""
    return (
        record.phase == WAITS
        and earlier[FACTS:] == record[FACTS:]
        and earlier.cores == record.cores
        and earlier.nodes == record.nodes
        and earlier.time_limit_s == record.time_limit_s
        and math.isnan(earlier.estimate_s) == math.isnan(record.estimate_s)
    )
