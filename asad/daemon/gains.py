"""What lending has brought: guests, what they got and saved, and how the jobs that shared ended."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from asad.decisions import CoAllocate, Outcome
from asad.model import Finished, Json, Snapshot
from asad.status import hosts_of
from asad.store.records import JobEnd, LedgerEntry, Role

SLACK_S, SLACK = 60.0, 0.05
"""A job that shared has lost if it ends later than by itself by more than this, and than this part of its response."""
ENDS = ("in_time", "late", "killed", "unknown")
"""How a job that shared has ended: as `asad_jobs_ended_total` has it."""


class Gains:
    """What lending has brought since the daemon started, and who takes part in it."""

    def __init__(self) -> None:
        self.guests = 0
        self.lent_core_s = self.extended_s = self.saved_wait_s = 0.0
        # all from 0 on: Prometheus sees no rise of what it has not seen before
        self.ended = Counter({(str(role), how): 0 for role in get_args(Role) for how in ENDS})
        """Jobs that shared and are over, by role and by how they ended."""
        self._roles: dict[int, tuple[str, Role]] = {}
        self._promised: dict[int, tuple[str, float]] = {}

    def take(self, snapshot: Snapshot, finished: Finished, outcomes: Sequence[Outcome]) -> list[JobEnd]:
        """Count one cycle; the jobs that shared and have ended since the last."""
        jobs = snapshot.jobs
        ends = []
        for k, row in enumerate(finished.row.tolist()):
            self._promised.pop(row, None)
            job, role = self._roles.pop(row, ("", "host"))
            if job != str(jobs.job_id[row]):
                continue
            if math.isnan(finished.end_s[k]):
                self.ended[role, "unknown"] += 1
                continue
            end = self._end(snapshot, finished, k, row, role)
            self.ended[role, how_ended(snapshot, finished, k, end)] += 1
            ends.append(end)
        for guest, hosts in hosts_of(snapshot).items():
            job = str(jobs.job_id[guest])
            if self._roles.get(guest) != (job, "guest"):
                self._roles[guest] = (job, "guest")
                self.guests += 1
                promised, start_s = self._promised.pop(guest, ("", math.nan))
                if promised == job and start_s > jobs.start_s[guest]:
                    self.saved_wait_s += start_s - float(jobs.start_s[guest])
            for host in hosts:
                self._roles[host] = (str(jobs.job_id[host]), "host")
        for outcome in outcomes:
            decision = outcome.decision
            if outcome.done and isinstance(decision, CoAllocate):
                row = decision.guest
                self._promised[row] = (str(jobs.job_id[row]), float(jobs.estimated_start_s[row]))
        return ends

    def enter(self, rows: Sequence[Mapping[str, Any]]) -> list[LedgerEntry]:
        """Count what a cluster has reported of jobs that ended; the same as the store keeps it."""
        entries = [
            LedgerEntry(
                str(row["job_id"]),
                cast(Role, row["role"]),
                float(row["time_s"]),
                str(row["account"]),
                float(row["lent_core_s"]),
                float(row["extended_s"]),
            )
            for row in rows
        ]
        # what a host gave its guests got, and some of them on free cores besides: counted once
        self.lent_core_s += sum(entry.lent_core_s for entry in entries if entry.role == "guest")
        self.extended_s += sum(entry.extended_s for entry in entries)
        return entries

    def forget_rows(self) -> None:
        """Another cluster object numbers jobs anew."""
        self._roles.clear()
        self._promised.clear()

    @staticmethod
    def _end(snapshot: Snapshot, finished: Finished, k: int, row: int, role: Role) -> JobEnd:
        jobs = snapshot.jobs
        submit_s, end_s, run_s = float(jobs.submit_s[row]), float(finished.end_s[k]), float(finished.run_s[k])
        own_end_s = float(jobs.counterfactual_start_s[row]) + run_s - float(finished.lost_s[k])
        late = end_s - own_end_s > max(SLACK_S, SLACK * (own_end_s - submit_s))  # never of NaN
        baseline_end_s = None if math.isnan(own_end_s) else own_end_s
        start_alone_s = float(jobs.counterfactual_start_s[row])
        baseline_start_s = None if math.isnan(start_alone_s) else start_alone_s
        return JobEnd(
            str(jobs.job_id[row]),
            role,
            submit_s,
            end_s - run_s,
            end_s,
            baseline_start_s,
            baseline_end_s,
            late,
        )

    def to_json(self) -> dict[str, Json]:
        """The figures."""
        return {
            "guests": self.guests,
            "lent_core_s": self.lent_core_s,
            "extended_s": self.extended_s,
            "saved_wait_s": self.saved_wait_s,
        }


def how_ended(snapshot: Snapshot, finished: Finished, k: int, end: JobEnd) -> str:
    """Which of `ENDS` the k-th of the finished jobs had.

    Killed is who was cut off at its time limit when lending had taken more of that than it was extended by: whether it
    would have been done by itself, nobody knows. A guest that ended before its turn was foreseen to come is in time.
    """
    row, jobs = finished.row[k], snapshot.jobs
    cut = finished.completed is not None and not finished.completed[k]
    if cut and finished.run_s[k] >= jobs.time_limit_s[row] and finished.lost_s[k] > jobs.extended_s[row]:
        return "killed"
    if end.loser:
        return "late"
    foreseen = end.baseline_end_s is not None or jobs.own_estimate_s[row] >= finished.end_s[k]
    return "in_time" if foreseen else "unknown"
