"""What on-demand jobs have left, step by step: kept over restarts, and what it foretells.

A step's capacity is the mean over the looks in it. Days are kept by their number modulo `days`, so that a store which
only ever replaces entries holds no more than so many. Of too many days those furthest from the present one are left
out: a clock that leaps ahead for a while costs no more than the days that it makes up.

The forecast takes each day that is known for an example: from the present capacity it goes on as that day went on
from the same time of day, and forgets within some hours by how much it lay beside it. Of all examples a quantile is
taken: the lower, the safer, since a deferrable job that has started cannot be asked to leave. Cost: O(days ·
steps ahead).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from asad.defer.jobs import Past, nothing_past
from asad.model import Floats, Json

DAY_S = 86_400.0
FORGETS_S = 3 * 3600.0
"""Time in which a deviation from the usual course of the day falls to 1/e."""
MOST_PAST_DAYS = 2
"""So much of the past is shown to policies."""
COLUMNS = Past._fields


class History:
    """By step (numbered from the epoch, so that a day begins at a multiple of its length): the columns of `Past`."""

    def __init__(self, step_s: float, days: int) -> None:
        """`step_s` divides a day."""
        self.step_s, self.days = step_s, days
        self.steps_a_day = round(DAY_S / step_s)
        self._days: dict[int, Floats] = {}
        """Number of a day → (columns, steps of a day), NaN where nothing is known."""
        self._step: int | None = None
        self._sums: Floats = np.zeros(len(COLUMNS))
        self._weight = 0.0
        self._at_s = -math.inf
        self._last: Floats | None = None

    def see(self, time_s: float, present: Sequence[float]) -> None:
        """How it is now, by column of `Past`. `started` is added up within a step, the others are averaged."""
        step = math.floor(time_s / self.step_s)
        row = np.array(present, np.float64)
        if self._step is None or step < self._step:  # the first look, or the clock was set back
            self._step, self._weight, self._sums, self._at_s = step, 0.0, np.zeros(len(COLUMNS)), -math.inf
        while self._step < step:
            self._close(time_s)
        weight = max(time_s - self._at_s, 1.0) if self._at_s > -math.inf else 1.0
        weight = min(weight, self.step_s)
        started = self._sums[2] + row[2]
        self._sums += weight * row
        self._sums[2] = started
        self._weight += weight
        self._at_s, self._last = time_s, row

    def _close(self, now_s: float) -> None:
        """The step is over. One without a look was as the last one ended: nothing had changed."""
        assert self._step is not None
        if now_s - self._step * self.step_s > self.days * DAY_S:
            self._step = math.floor(now_s / self.step_s)  # after so long a pause nothing is known
            self._sums, self._weight = np.zeros(len(COLUMNS)), 0.0
            return
        if self._weight > 0:
            row = self._sums / self._weight
            row[2] = self._sums[2]
        else:
            assert self._last is not None
            row = self._last.copy()
            row[2] = 0.0
        day, at = divmod(self._step, self.steps_a_day)
        self._table(day)[:, at] = row
        self._step += 1
        self._sums, self._weight = np.zeros(len(COLUMNS)), 0.0

    def _table(self, day: int) -> Floats:
        if day not in self._days:
            self._days[day] = np.full((len(COLUMNS), self.steps_a_day), np.nan)
            self._leave_out(day)
        return self._days[day]

    def _leave_out(self, present: int) -> None:
        """No more than `days` are kept with the present one, and none whose entry of the store it takes."""
        for other in [day for day in self._days if day != present and (day - present) % self.days == 0]:
            del self._days[other]
        for other in sorted(self._days, key=lambda day: abs(day - present))[self.days :]:
            del self._days[other]

    def past(self, step: int) -> Past:
        """The steps before `step`, back to the last one of which nothing is known."""
        day, at = divmod(step, self.steps_a_day)
        blank = np.full((len(COLUMNS), self.steps_a_day), np.nan)
        days = [self._days.get(day - back, blank) for back in range(MOST_PAST_DAYS, -1, -1)]
        rows = np.concatenate(days, axis=1)[:, : MOST_PAST_DAYS * self.steps_a_day + at]
        unknown = np.flatnonzero(np.isnan(rows[0]))
        rows = rows[:, unknown[-1] + 1 if len(unknown) else 0 :]
        return Past(*np.ascontiguousarray(rows)) if rows.shape[1] else nothing_past()

    def forecast(self, step: int, capacity: float, steps: int, quantile: float) -> Floats:
        """(steps,) Capacity of `step` and those after it, of which the first is `capacity`; inf if no day is known."""
        ahead, back = np.arange(steps), np.arange(1, self.days + 1)[:, None]
        # the same time of day, so many days before; of what lies beyond a day ahead, so many days more
        then = step + ahead - (back + ahead // self.steps_a_day) * self.steps_a_day
        here = self._values(step - back * self.steps_a_day)
        forgets = np.exp(-ahead * self.step_s / FORGETS_S)
        examples = np.sort(self._values(then) + (capacity - here) * forgets, axis=0)  # NaN comes last
        many = np.count_nonzero(~np.isnan(examples), axis=0)
        place = quantile * np.maximum(many - 1, 0)
        low = np.floor(place).astype(np.int64)
        high = np.minimum(low + 1, np.maximum(many - 1, 0))
        below, above = examples[low, ahead], examples[high, ahead]
        found = np.where(many > 0, np.maximum(below + (above - below) * (place - low), 0.0), np.inf)
        found[:1] = capacity
        return found

    def _values(self, steps: NDArray[np.int64]) -> Floats:
        """Capacity of some steps, NaN where it is not known."""
        days, at = np.divmod(steps, self.steps_a_day)
        found = np.full(steps.shape, np.nan)
        for day in np.unique(days).tolist():
            if day in self._days:
                here = days == day
                found[here] = self._days[day][0][at[here]]
        return found

    @property
    def known_steps(self) -> int:
        """Of how many steps something is known."""
        return int(sum(np.count_nonzero(~np.isnan(table[0])) for table in self._days.values()))

    def to_json(self) -> dict[str, dict[str, Json]]:
        """Plain data, an entry a day; what is not known is None."""
        found: dict[str, dict[str, Json]] = {}
        for day, table in self._days.items():
            columns: dict[str, Json] = {
                name: [None if math.isnan(value) else round(value, 3) for value in row.tolist()]
                for name, row in zip(COLUMNS, table, strict=True)
            }
            found[f"day {day % self.days}"] = {"day": day, "step_s": self.step_s, **columns}
        return found

    def restore(self, saved: Mapping[str, Mapping[str, Json]]) -> None:
        """Take over what `to_json` gave; what cannot be read, or is of other steps, is passed over."""
        for name, entry in saved.items():
            day = entry.get("day")
            if not name.startswith("day ") or entry.get("step_s") != self.step_s:
                continue
            if not isinstance(day, int) or isinstance(day, bool) or not 0 <= day < 10**7:
                continue
            table = np.full((len(COLUMNS), self.steps_a_day), np.nan)
            try:
                for k, column in enumerate(COLUMNS):
                    given = entry[column]
                    if not isinstance(given, list) or len(given) != self.steps_a_day:
                        raise ValueError("no column")
                    table[k] = [math.nan if value is None else float(value) for value in given]  # type: ignore[arg-type]
            except (KeyError, TypeError, ValueError):
                continue
            if not (np.isnan(table) | (np.abs(table) < 1e12)).all():
                continue
            self._days[day] = table
        # more than so many are in no store of ours; which of them counts is known when the first step is over
        for extra in sorted(self._days)[: -self.days]:
            del self._days[extra]
