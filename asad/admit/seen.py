"""What admission sees of jobs: an array as one job, with its tasks that wait and that run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

import numpy as np

from asad.admit.commitments import Commitment
from asad.hold import find_rows, key_of
from asad.ineligible import NEVER_HELD, Ineligible
from asad.model import Snapshot


@dataclass(slots=True)
class Seen:
    """One job, an array as one, as a snapshot shows it."""

    row: int
    """That stands for what waits; -1 if nothing does."""
    array: int = -1
    waiting: int = 0
    running: list[int] = field(default_factory=list)
    in_queue: bool = False

    @property
    def tasks(self) -> int:
        """That wait or run."""
        return self.waiting + len(self.running)

    @property
    def any_row(self) -> int:
        """A row that shows the job."""
        return self.row if self.row >= 0 else self.running[0]


def look(snapshot: Snapshot, known: Mapping[str, Commitment], gone: Set[str]) -> dict[str, Seen]:
    """By number: arrays, the jobs of the queue that are none, and those that are known and not among the `gone`.

    Jobs of another policy are left out.
    """
    jobs, arrays = snapshot.jobs, snapshot.arrays
    seen: dict[str, Seen] = {}
    of_array: dict[int, Seen] = {}
    of_others: set[int] = set()
    for array in np.flatnonzero(arrays.waiting_row >= 0).tolist():
        row = int(arrays.waiting_row[array])
        if jobs.guest_bar[row] == Ineligible.OTHER_POLICY:
            of_others.add(array)
            continue
        of_array[array] = seen[key_of(snapshot, row)] = Seen(row, array, int(arrays.waiting[array]))
    running = np.concatenate((snapshot.running, snapshot.guests))
    for row in running[jobs.array[running] >= 0].tolist():
        array = int(jobs.array[row])
        if array in of_others:
            continue
        there = of_array.get(array)
        if there is None:
            there = of_array[array] = seen[key_of(snapshot, row)] = Seen(-1, array)
        there.running.append(row)
    for row in snapshot.queue.tolist():
        if jobs.array[row] >= 0:
            found = of_array.get(int(jobs.array[row]))
            if found is not None:
                found.in_queue = True
        elif jobs.guest_bar[row] != Ineligible.OTHER_POLICY:
            seen[str(jobs.job_id[row])] = Seen(row, -1, 1, in_queue=True)
    _look_for_rigid(snapshot, known, gone, seen)
    return seen


def _look_for_rigid(
    snapshot: Snapshot, known: Mapping[str, Commitment], gone: Set[str], seen: dict[str, Seen]
) -> None:
    """Those that we know and the queue does not show: they are deferred, too far behind, or run."""
    jobs = snapshot.jobs
    missing = [entry for key, entry in known.items() if not entry.array and key not in seen]
    find_rows(((entry.key, entry) for entry in missing), jobs.job_id)
    # a cluster may still show who ended while we were away
    running = {*snapshot.running.tolist(), *snapshot.guests.tolist()} if missing else set()
    for entry in missing:
        row = entry.row
        there = 0 <= row < len(jobs.job_id) and str(jobs.job_id[row]) == entry.key
        if not there or entry.key in gone or jobs.guest_bar[row] == Ineligible.OTHER_POLICY:
            continue
        if math.isnan(jobs.start_s[row]):
            seen[entry.key] = Seen(row, -1, 1)
        elif row in running:
            seen[entry.key] = Seen(-1, -1, 0, [row])


def throttle_of(snapshot: Snapshot, there: Seen) -> int:
    return int(snapshot.arrays.throttle[there.array])


def own_throttle_of(snapshot: Snapshot, there: Seen) -> int:
    """Of an array of which nothing waits it is not known, and does not matter."""
    return throttle_of(snapshot, there) if there.row >= 0 else 0


def can_start(snapshot: Snapshot, there: Seen, known: Commitment | None = None) -> bool:
    """Nothing but its turn, or our own deferral, keeps a job; it is neither held nor opted out."""
    if not (there.in_queue or there.running or (known is not None and known.state == "admitted")):
        return False  # it is held, or waits for something else than its turn
    if there.row < 0:
        return True
    jobs, row = snapshot.jobs, there.row
    bar, begin_s = int(jobs.guest_bar[row]), float(jobs.begin_s[row])
    if bar in NEVER_HELD or not math.isnan(jobs.offered_s[row]):
        return False
    return not begin_s > snapshot.time_s or (known is not None and known.defers(begin_s))


def name_of(application: str) -> str:
    """The name of the job in `user/name/size`; names may have slashes of their own."""
    return application.partition("/")[2].rpartition("/")[0]
