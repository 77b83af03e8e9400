"""When jobs would start by themselves, as it was forecast while they waited, against when they did.

What a policy believes of a start is the cluster's own estimate (of a twin's, where there is one) times what it has
learned of such estimates. Here the estimate itself is held against what came. Jobs that were offered a place, or whose
begin asad decides, started by other rules than those that are forecast, and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from asad.decisions import CoAllocate, Outcome
from asad.model import Finished, Floats, Ints, Json, Snapshot
from asad.replay.fidelity import is_close
from asad.store.start_forecasts import Foreseen

AGAIN_S = 3600.0
"""A job that goes on waiting is forecast anew so often."""
MOST_OF_JOB = 25
"""So many forecasts of one job count at most: those of the first day."""
MOST_JOBS = 20_000
"""Forecasts are held of so many jobs that wait; of more than that nothing is noted."""
EARLIER_S = 60.0
"""Slurm shows a start that late at times: a forecast may be that much younger than the start, and no more."""


class Forecasts:
    """Of one daemon: notes while jobs wait, and what they came to since it started."""

    def __init__(self) -> None:
        self.jobs = 0
        """Started since the daemon did, after a forecast."""
        self.forecast_s = self.waited_s = 0.0
        """Sums of what first forecasts gave of the remaining wait, and of what it was."""
        self.close = 0
        """Jobs whose first forecast was close (`asad.replay.fidelity`)."""
        self._job: NDArray[np.object_] = np.full(0, "", object)
        self._due_s: Floats = np.zeros(0)
        """By row: of which job is known what follows, and from when on it is to be forecast again (inf: never)."""
        self._noted: dict[int, list[tuple[float, float]]] = {}
        """By row: when each forecast was made, and which start it said."""

    def forget_rows(self) -> None:
        """Another cluster object numbers jobs anew."""
        self._job, self._due_s = np.full(0, "", object), np.zeros(0)
        self._noted.clear()

    def look(
        self, snapshot: Snapshot, finished: Finished, outcomes: Sequence[Outcome] = ()
    ) -> list[Foreseen]:
        """After each cycle that looked: note forecasts that are due, and return those of jobs that have started by
        themselves. `outcomes` says who is offered a place now."""
        self._grow(len(snapshot.jobs.cores))
        self._leave_out(snapshot, snapshot.guests)
        found = self._started(snapshot, finished)
        self._note(snapshot)
        offers = (one.decision for one in outcomes if one.done and isinstance(one.decision, CoAllocate))
        self._leave_out(snapshot, np.array([offer.guest for offer in offers], np.int32))
        for one in found:
            if one.is_first:
                forecast_s, waited_s = one.remaining()
                self.jobs += 1
                self.forecast_s += forecast_s
                self.waited_s += waited_s
                self.close += bool(is_close(waited_s, forecast_s))
        return found

    def to_json(self) -> dict[str, Json]:
        """For `status`: means and the share of close forecasts, None before any job has started."""
        known = self.jobs > 0
        return {
            "jobs": self.jobs,
            "forecast_mean_s": self.forecast_s / self.jobs if known else None,
            "recorded_mean_s": self.waited_s / self.jobs if known else None,
            "close": self.close / self.jobs if known else None,
        }

    def _grow(self, rows: int) -> None:
        more = rows - len(self._job)
        if more > 0:
            self._job = np.concatenate([self._job, np.full(more, "", object)])
            self._due_s = np.concatenate([self._due_s, np.zeros(more)])

    def _started(self, snapshot: Snapshot, finished: Finished) -> list[Foreseen]:
        """What is noted of jobs that run now, or ran since the last look, and were no guests."""
        jobs, found = snapshot.jobs, list[Foreseen]()
        if not self._noted:
            return found
        starts = dict(zip(finished.row.tolist(), (finished.end_s - finished.run_s).tolist(), strict=True))
        running = np.fromiter(self._noted, np.int32, len(self._noted))
        running = running[~np.isnan(jobs.start_s[running])]
        for row in dict.fromkeys([*starts, *running.tolist()]):
            notes = self._noted.pop(row, None)
            if notes is None:
                continue
            start_s = starts.get(row, float(jobs.start_s[row]))
            is_same = self._job[row] == jobs.job_id[row]
            self._job[row] = ""  # one that is requeued is forecast anew
            if not is_same or not np.isfinite(start_s):
                continue
            partition = snapshot.partitions.get(row) or ""
            found += [
                Foreseen(start_s, made_s, forecast_s, partition, number == 0)
                for number, (made_s, forecast_s) in enumerate(notes)
                if made_s <= start_s + EARLIER_S
            ]
        return found

    def _note(self, snapshot: Snapshot) -> None:
        """Forecast who is seen to wait for the first time, and again each hour."""
        jobs, now_s, rows = snapshot.jobs, snapshot.time_s, snapshot.queue
        new = rows[jobs.job_id[rows] != self._job[rows]]
        self._job[new], self._due_s[new] = jobs.job_id[new], -np.inf
        for row in self._noted.keys() & set(new.tolist()):
            del self._noted[row]
        offered = rows[~np.isnan(jobs.offered_s[rows])]
        self._leave_out(snapshot, offered)
        self._leave_out(snapshot, np.array(list(snapshot.own_begins), np.int32))
        estimate_s = jobs.own_estimate_s[rows]
        estimate_s = np.where(np.isnan(estimate_s), jobs.estimated_start_s[rows], estimate_s)
        due = np.isfinite(estimate_s) & (self._due_s[rows] <= now_s)
        for row, forecast_s in zip(rows[due].tolist(), estimate_s[due].tolist(), strict=True):
            notes = self._noted.get(row)
            if notes is None:
                if len(self._noted) >= MOST_JOBS:
                    continue
                notes = self._noted[row] = []
            notes.append((now_s, forecast_s))
            self._due_s[row] = now_s + AGAIN_S if len(notes) < MOST_OF_JOB else np.inf

    def _leave_out(self, snapshot: Snapshot, rows: Ints) -> None:
        """These are guests, have an offer, or begin when asad decides: what was forecast of them says nothing."""
        self._job[rows] = snapshot.jobs.job_id[rows]
        self._due_s[rows] = np.inf
        for row in self._noted.keys() & set(rows.tolist()):
            del self._noted[row]
