"""What jobs without a plan hold, and what they leave to plans, in rounds and units of a mechanism."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set

import numpy as np

from asad.applications import Turnover
from asad.capacity import held_over_time, usable_nodes
from asad.model import Finished, Floats, Ints, Snapshot


class Others:
    """They are expected to run as long as jobs of their kind did before, else up to the end of their time limits."""

    def __init__(self, round_s: float, applications: Sequence[str] = ()) -> None:
        """`applications` names the codes of `Jobs.application`, and may grow."""
        self._round_s = round_s
        self._turnover = Turnover(applications)
        self._ran: dict[int, tuple[float, float]] = {}
        """By code of an application: jobs that have ended, and how long they ran (s); learned anew by each process."""

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """How long jobs ran that have ended."""
        for code in self._turnover.look():
            self._ran.pop(code, None)
        codes = snapshot.jobs.application[finished.row].tolist()
        for code, run_s in zip(codes, finished.run_s.tolist(), strict=True):
            if math.isnan(run_s):
                continue
            count, total_s = self._ran.get(code, (0.0, 0.0))
            self._ran[code] = count + 1.0, total_s + max(1.0, run_s)

    def held(
        self, snapshot: Snapshot, planned: Set[str], present: int, rounds: int, unit: int, capacity: int
    ) -> Ints:
        """(rounds,) units held from round `present` on by all that runs and is not among the `planned` jobs."""
        rows, cores = _rows_but(snapshot, planned)
        taken = self._over_time(snapshot, rows, cores, present, rounds) + _down(snapshot)
        held = np.minimum(np.ceil(taken / unit), capacity)
        return np.maximum(held, 0).astype(np.int32)

    def held_tres(
        self, snapshot: Snapshot, planned: Set[str], present: int, rounds: int, capacity: Mapping[str, int]
    ) -> dict[str, Ints]:
        """The same of each gres and licence in `capacity`."""
        rows, _ = _rows_but(snapshot, planned) if capacity else (np.zeros(0, np.int32), None)
        found = {}
        for name, whole in capacity.items():
            amounts, down = _tres(snapshot, rows, name)
            taken = self._over_time(snapshot, rows, amounts, present, rounds) + down
            found[name] = np.clip(np.ceil(taken - 1e-9), 0, whole).astype(np.int32)
        return found

    def supply(self, snapshot: Snapshot, planned: Set[str], present: int, unit: int, capacity: int) -> int:
        """Units that are left for the `planned` jobs in this round: others count that hold theirs beyond it."""
        rows, cores = _rows_but(snapshot, planned)
        left = snapshot.machine.total_cores - _down(snapshot) - self._stays(snapshot, rows, cores, present)
        return min(capacity, max(0, math.floor(left / unit)))

    def supply_tres(
        self, snapshot: Snapshot, planned: Set[str], present: int, capacity: Mapping[str, int]
    ) -> list[int]:
        """The same of each gres and licence in `capacity`, in its order."""
        rows, _ = _rows_but(snapshot, planned) if capacity else (np.zeros(0, np.int32), None)
        left = []
        for name, whole in capacity.items():
            amounts, down = _tres(snapshot, rows, name)
            taken = down + self._stays(snapshot, rows, amounts, present)
            left.append(max(0, math.floor(whole - taken + 1e-9)))
        return left

    def _over_time(self, snapshot: Snapshot, rows: Ints, amount: Floats, present: int, rounds: int) -> Floats:
        ends = self._expected_end_s(snapshot, rows) / self._round_s
        return held_over_time(np.clip(np.floor(ends + 0.5) - present, 1, rounds), amount, rounds)

    def _stays(self, snapshot: Snapshot, rows: Ints, amount: Floats, present: int) -> float:
        """What is held beyond the round."""
        return float(amount[~(snapshot.jobs.limit_end_s[rows] <= (present + 1) * self._round_s)].sum())

    def _expected_end_s(self, snapshot: Snapshot, rows: Ints) -> Floats:
        """(n,) when others are expected to end: as jobs of their kind did, else at their limits; inf for none."""
        jobs = snapshot.jobs
        end_s: Floats = np.nan_to_num(jobs.limit_end_s[rows], nan=np.inf, posinf=np.inf)
        means = [self._ran.get(code, (0.0, math.nan)) for code in jobs.application[rows].tolist()]
        mean_s = np.array([total_s / count if count else math.nan for count, total_s in means])
        usual_s = np.maximum(jobs.start_s[rows] + mean_s, snapshot.time_s + self._round_s / 2)
        sooner: Floats = np.fmin(end_s, usual_s)
        return sooner


def _rows_but(snapshot: Snapshot, planned: Set[str]) -> tuple[Ints, Floats]:
    """Rows and cores of what runs and is not planned."""
    rows = snapshot.running
    if planned:
        names = snapshot.jobs.job_id
        rows = np.array([row for row in rows.tolist() if str(names[row]) not in planned], np.int32)
    return rows, snapshot.jobs.cores[rows].astype(np.float64)


def _tres(snapshot: Snapshot, rows: Ints, name: str) -> tuple[Floats, float]:
    """What the jobs in `rows` hold of a gres or licence, and what is on nodes that hold nothing now."""
    tres = snapshot.tres
    if name not in tres.names:
        return np.zeros(len(rows)), 0.0
    at = tres.names.index(name)
    held = [0.0 if (found := tres.jobs.get(row)) is None else float(found[at]) for row in rows.tolist()]
    return np.array(held), float(tres.nodes[~usable_nodes(snapshot), at].sum())


def _down(snapshot: Snapshot) -> float:
    """Cores of nodes that hold nothing now."""
    return float(snapshot.machine.cores[~usable_nodes(snapshot)].sum())
