"""How long jobs of each application ran: what their next ones are expected to take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

from asad.applications import MOST, Turnover, named
from asad.model import Finished, Json, Snapshot


class RunTimes:
    """By name of an application, of whom any has ended."""

    def __init__(self, applications: Sequence[str]) -> None:
        """`applications` names the codes of `Jobs.application` and may grow."""
        self._applications = applications
        self._turnover = Turnover(applications)
        self._ran: dict[str, tuple[float, float]] = {}
        """Jobs that ended, and the sum of how long they ran by themselves (s)."""
        self._changed: set[str] = set()
        """Of whom something else is known than was described last."""

    def application(self, snapshot: Snapshot, row: int) -> str:
        """Of a job, with the very name of the job; empty if it is not known."""
        return application_of(snapshot, self._applications, row)

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """Jobs that have ended, less what they lost to others on their cores."""
        for before in self._turnover.look().values():
            if self._ran.pop(before, None) is not None:
                self._changed.add(before)
        if len(self._changed) > 2 * MOST:  # nobody asks for them: the store is away
            self._changed &= self._ran.keys()
        for row, run_s, lost_s in zip(
            finished.row.tolist(), finished.run_s.tolist(), finished.lost_s.tolist(), strict=True
        ):
            name = self._fingerprint(snapshot, row)
            if name and run_s > 0:
                self._changed.add(name)
                count, total_s = self._ran.get(name, (0.0, 0.0))
                self._ran[name] = count + 1.0, total_s + max(0.0, run_s - lost_s)

    def task_s(self, snapshot: Snapshot, row: int) -> float:
        """How long a task is expected to run: as its application did, at most its limit; NaN if neither is known."""
        limit_s = float(snapshot.jobs.time_limit_s[row])
        count, total_s = self._ran.get(self._fingerprint(snapshot, row), (0.0, 0.0))
        if count:
            mean_s = max(1.0, total_s / count)
            return min(mean_s, limit_s) if limit_s > 0 else mean_s
        return limit_s if 0 < limit_s < math.inf else math.nan

    def _fingerprint(self, snapshot: Snapshot, row: int) -> str:
        code = int(snapshot.jobs.application[row])
        return self._applications[code] if 0 <= code < len(self._applications) else ""

    def to_json(self) -> dict[str, dict[str, Json]]:
        """Plain data, by application."""
        return {name: _entry(ran) for name, ran in self._ran.items()}

    def changes(self) -> dict[str, dict[str, Json] | None]:
        """What `to_json` describes otherwise than when this was asked last; None of those that are forgotten."""
        found = {name: _entry(self._ran[name]) if name in self._ran else None for name in self._changed}
        self._changed = set()
        return found

    def restore(self, name: str, known: Mapping[str, Json]) -> None:
        """What `to_json` described of one application, unless more is known by now; nothing if it cannot be read."""
        count, total_s = known.get("runs"), known.get("run_s")
        if _positive(count) and _positive(total_s):
            self._ran.setdefault(name, (float(cast(float, count)), float(cast(float, total_s))))


def application_of(snapshot: Snapshot, applications: Sequence[str], row: int) -> str:
    """User, name and size of a job, with its very name where the cluster shows it; empty if they are not known."""
    code = int(snapshot.jobs.application[row])
    return named(applications[code], snapshot.names.get(row)) if 0 <= code < len(applications) else ""


def _entry(ran: tuple[float, float]) -> dict[str, Json]:
    return {"runs": ran[0], "run_s": ran[1]}


def _positive(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
