"""What an owner states of a job before it comes, and what the mechanism answers: statement, menu, launch plan.

Source: Truthful Online Scheduling of Cloud Workloads under Uncertainty (004), sections 2 and 3. Time is cut into
rounds, counted from 0. A job that starts in round s and lasts d rounds runs in rounds s, …, s + d - 1 and finishes at
s + d. All demands are units of one resource (cores, nodes).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from asad.bounded import MOST_NUMBER
from asad.errors import UsageError
from asad.model import Floats, Ints, Json

NEVER = -1
"""A start that does not happen."""
SUM_ERROR = 1e-6
"""So much may the probabilities of a statement miss 1 by; they are then scaled."""
MOST_ROWS = 4096
"""Ways in which one job may come."""
LAST_ROUND = 2**30
"""Rounds beyond it are not told apart from mistakes."""

Kind = Literal["deadline", "linear", "own"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the mechanism takes as known of all jobs to come (section 2, technical assumptions)."""

    capacity: int
    """C: units, in every round."""
    max_demand: int
    """c_max: units of one job."""
    max_duration: int
    """d_max: rounds of one job."""
    max_value: float
    """v_max: of one job."""
    span: int
    """A job born in round b starts in one of the rounds b, …, b + span - 1."""
    least_value: float = 1.0
    """What is worth less counts as worth nothing."""

    def __post_init__(self) -> None:
        for name in ("capacity", "max_demand", "max_duration", "span"):
            if not 1 <= getattr(self, name) <= 30000:  # samples of loads and rounds are 16 bits wide
                raise UsageError(f"sow: {name} {getattr(self, name)}: write a whole number from 1 to 30000")
        if self.max_demand > self.capacity:
            raise UsageError(
                f"sow: max_demand {self.max_demand} is more than the capacity {self.capacity}; set it below"
            )
        if not 0.0 < self.least_value <= self.max_value < math.inf:
            raise UsageError(
                f"sow: values from {self.least_value:g} to {self.max_value:g}; write 0 < least_value ≤ max_value"
            )


@dataclass(frozen=True, slots=True)
class Worth:
    """The value function: what the job is worth by when it finishes. Never rises with time."""

    kind: Kind
    value: float
    """At most; on the site's scale, 0 or more."""
    deadline: int
    """Round by which it has to finish (finishing at it is in time)."""
    span: int = 1
    """Of `linear`: rounds after birth at which the value has fallen evenly to 0."""
    table: tuple[float, ...] = ()
    """Of `own`: the value if it finishes 0, 1, … rounds after birth; beyond, nothing."""

    def __post_init__(self) -> None:
        if self.kind not in ("deadline", "linear", "own"):
            raise UsageError(f"statement: shape {self.kind!r:.80}: write deadline, linear or own")
        if not 0.0 <= self.value < math.inf:
            raise UsageError(f"statement: value {self.value}: write a number, 0 or more")
        if self.kind == "linear" and not 1 <= self.span <= MOST_NUMBER:
            raise UsageError(
                f"statement: span {str(self.span)[:40]}: write the rounds in which the value falls to 0"
            )
        if self.kind == "own":
            falls = all(later <= sooner for sooner, later in zip(self.table, self.table[1:], strict=False))
            if not self.table or not falls or not all(0.0 <= one < math.inf for one in self.table):
                raise UsageError(
                    "statement: the value by round must be numbers ≥ 0 that never rise; correct them"
                )

    @property
    def most(self) -> float:
        """What it is worth if it finishes at its birth."""
        return self.table[0] if self.kind == "own" else self.value

    def by_finish(self, birth: int, rounds: int) -> Floats:
        """(rounds + 1,) the value if it finishes at birth, birth + 1, …, birth + rounds."""
        after = np.arange(rounds + 1)
        worth: Floats
        if self.kind == "own":
            worth = np.zeros(rounds + 1)
            known = min(rounds + 1, len(self.table))
            worth[:known] = self.table[:known]
        elif self.kind == "linear":
            worth = self.value * np.maximum(0.0, 1.0 - after / self.span)
        else:
            worth = np.full(rounds + 1, self.value)
        worth[max(0, self.deadline - birth + 1) :] = 0.0
        return worth

    def at(self, birth: int, finish: int) -> float:
        """The value if it finishes at `finish`, at or after `birth`."""
        if finish > self.deadline:
            return 0.0
        after = finish - birth
        if self.kind == "own":
            return self.table[after] if after < len(self.table) else 0.0
        return self.value * max(0.0, 1.0 - after / self.span) if self.kind == "linear" else self.value

    def to_json(self) -> Json:
        """As plain data, that `from_json` reads."""
        told: dict[str, Json] = {"kind": self.kind, "value": self.value, "deadline": self.deadline}
        if self.kind == "linear":
            told["span"] = self.span
        if self.kind == "own":
            told["table"] = list(self.table)
        return told

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Worth:
        """Raises UsageError for what is no value function."""
        try:
            table = told.get("table") or ()
            return cls(
                told["kind"],
                float(told["value"]),
                int(told["deadline"]),
                int(told.get("span", 1)),
                tuple(float(one) for one in table),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise UsageError(
                f"statement: the value function cannot be read ({str(error)[:120]}); state it anew"
            ) from error


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """All that is known of a job when it is announced. One row of the arrays is one way in which it may come.

    Rows are kept in the order of arrival, then signal, then duration.
    """

    birth: int
    """Round in which it is announced."""
    demand: int
    """Units, in every round of its run."""
    arrival: Ints
    """(k,) round from which it could start, not before `birth`."""
    duration: Ints
    """(k,) rounds, 1 or more."""
    probability: Floats
    """(k,) above 0, sum 1."""
    worth: Worth
    signal: Ints
    """(k,) what the job tells about its duration when it arrives, ≥ 0; all 0: nothing. See `with_signal`."""
    longest: int = field(init=False)
    """Rounds, of the row that lasts longest."""

    def __post_init__(self) -> None:
        rows = len(self.arrival)
        if not 1 <= rows <= MOST_ROWS:
            raise UsageError(
                f"statement: {rows} rows of arrival, duration, probability; write 1 to {MOST_ROWS}"
            )
        if not len(self.duration) == len(self.probability) == len(self.signal) == rows:
            raise UsageError(
                "statement: arrivals, durations, probabilities and signals differ in number; correct them"
            )
        if not 0 <= self.birth <= LAST_ROUND:
            raise UsageError(f"statement: birth {self.birth}: write a round, 0 to {LAST_ROUND}")
        if not 1 <= self.demand <= 30000:
            raise UsageError(f"statement: demand {self.demand}: write a whole number from 1 to 30000")
        first, last = int(self.arrival.min()), int(self.arrival.max())
        if first < self.birth or last > LAST_ROUND:
            raise UsageError(
                f"statement: arrival {first}: no job arrives before its birth in round {self.birth}"
            )
        if int(self.duration.min()) < 1:
            raise UsageError(f"statement: duration {int(self.duration.min())}: write whole rounds, 1 or more")
        if int(self.signal.min()) < 0:
            raise UsageError(f"statement: signal {int(self.signal.min())}: write whole numbers, 0 or more")
        # NaN fails both
        if (
            not float(self.probability.min()) > 0.0
            or not abs(float(self.probability.sum()) - 1.0) <= SUM_ERROR
        ):
            raise UsageError(
                f"statement: the probabilities sum up to {float(self.probability.sum()):g}; each has to be above 0, "
                "and their sum 1"
            )
        object.__setattr__(self, "longest", int(self.duration.max()))
        order = np.lexsort((self.duration, self.signal, self.arrival))
        for name in ("arrival", "duration", "probability", "signal"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name)[order]))

    @classmethod
    def of(
        cls,
        birth: int,
        demand: int,
        support: Sequence[tuple[int, int, float]],
        worth: Worth,
        signal: Sequence[int] | Literal["none", "duration"] = "none",
    ) -> Statement:
        """From rows of (arrival, duration, probability). Raises UsageError for what is no statement."""
        try:
            arrival = np.array([row[0] for row in support], np.int32)
            duration = np.array([row[1] for row in support], np.int32)
            probability = np.array([row[2] for row in support], np.float64)
            if signal == "none":
                told = np.zeros(len(arrival), np.int32)
            else:
                told = duration.copy() if signal == "duration" else np.array(signal, np.int32)
        except (TypeError, ValueError, OverflowError, IndexError) as error:
            raise UsageError(
                f"statement: rows of arrival, duration, probability cannot be read ({str(error)[:120]})"
            ) from error
        return cls(birth, demand, arrival, duration, probability, worth, told)

    def with_signal(self, signal: Literal["none", "duration"]) -> Statement:
        """The same job, that tells nothing of its duration when it arrives, or all of it."""
        told = np.zeros_like(self.arrival) if signal == "none" else self.duration.copy()
        return Statement(
            self.birth, self.demand, self.arrival, self.duration, self.probability, self.worth, told
        )

    def to_json(self) -> dict[str, Json]:
        """As plain data, that `from_json` reads."""
        rows: list[Json] = [
            [int(arrival), int(duration), float(probability), int(signal)]
            for arrival, duration, probability, signal in zip(
                self.arrival, self.duration, self.probability, self.signal, strict=True
            )
        ]
        return {"birth": self.birth, "demand": self.demand, "rows": rows, "worth": self.worth.to_json()}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Statement:
        """Raises UsageError for what is no statement."""
        try:
            rows, worth = told["rows"], told["worth"]
            support = [(int(row[0]), int(row[1]), float(row[2])) for row in rows]
            signal = [int(row[3]) for row in rows]
            birth, demand = int(told["birth"]), int(told["demand"])
            function = Worth.from_json(worth)
        except (KeyError, TypeError, ValueError, OverflowError, IndexError, AttributeError) as error:
            raise UsageError(f"statement: cannot be read ({str(error)[:120]}); state it anew") from error
        return cls.of(birth, demand, support, function, signal)


@dataclass(frozen=True, slots=True, eq=False)
class LaunchPlan:
    """From what the job tells when it arrives to the round in which it starts. Rows by (arrival, signal), rising."""

    arrival: Ints
    """(m,) rounds."""
    signal: Ints
    """(m,)."""
    start: Ints
    """(m,) round of its start, at or after the arrival; `NEVER`: it does not run."""

    def start_of(self, arrival: int, signal: int = 0) -> int | None:
        """When a job that arrives so starts; None: never.

        An arrival that was not stated is taken as the next later one that was; later than all of them is never.
        """
        found = None
        for at, told, start in zip(
            self.arrival.tolist(), self.signal.tolist(), self.start.tolist(), strict=True
        ):
            if at >= arrival and told == signal:
                found = start
                break
        return None if found is None or found == NEVER else found

    @property
    def never(self) -> bool:
        """It does not run, whenever it arrives."""
        return int(self.start.max(initial=NEVER)) == NEVER

    def to_json(self) -> Json:
        """Rows of arrival, signal, start."""
        rows = np.stack([self.arrival, self.signal, self.start], axis=1)
        told: list[Json] = rows.tolist()
        return told

    @classmethod
    def from_json(cls, told: Json) -> LaunchPlan:
        """Raises UsageError for what is no plan."""
        try:
            rows = np.array(told, np.int32).reshape(-1, 3)
        except (TypeError, ValueError, OverflowError) as error:
            raise UsageError(f"launch plan: cannot be read ({str(error)[:120]})") from error
        return cls(*(np.ascontiguousarray(rows[:, column]) for column in range(3)))


@dataclass(frozen=True, slots=True, eq=False)
class Menu:
    """What is announced in a round before any statement of that round is seen (Algorithm 1).

    Axes of the tables: start (`first`, `first` + 1, …), demand (1, …, c_max), duration (1, …, d_max).
    """

    first: int
    """The present round, and the first in which a job may start."""
    price: Floats
    """(S, c_max, d_max) to be paid if it completes; inf where nothing is sold. Rises with demand and duration."""
    failure: Floats
    """(S, c_max, d_max) estimated probability that a job which starts then does not complete; rises likewise."""

    def price_of(self, start: int, demand: int, duration: int) -> float:
        """Of a job that starts in round `start`; inf beyond what is announced."""
        return self._at(self.price, start, demand, duration, math.inf)

    def failure_of(self, start: int, demand: int, duration: int) -> float:
        """Of a job that starts in round `start`; 1 beyond what is announced."""
        return self._at(self.failure, start, demand, duration, 1.0)

    def _at(self, table: Floats, start: int, demand: int, duration: int, beyond: float) -> float:
        at = (start - self.first, demand - 1, duration - 1)
        inside = all(0 <= index < length for index, length in zip(at, table.shape, strict=True))
        return float(table[at]) if inside else beyond


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a job is told when it was submitted."""

    plan: LaunchPlan
    utility: float
    """Expected value less expected payment, if the estimates hold; 0 or more."""
    payment: float
    """Expected payment."""
    failure: Floats
    """(m,) by row of the plan: estimated probability that it does not complete, having arrived so; 0 where never."""
    price: Floats
    """(m, d_max) by row of the plan and duration 1, …, d_max: what is paid on completion; 0 where never."""
    hopeless: bool
    """It is worth nothing, whenever it finishes."""

    @property
    def reason(self) -> str:
        """One sentence for its owner."""
        if not self.plan.never:
            some = " unless it arrives too late" if bool((self.plan.start == NEVER).any()) else ""
            return (
                f"it starts as planned{some}: expected to pay {self.payment:.3g}, and to gain {self.utility:.3g} "
                "beyond that"
            )
        if self.hopeless:
            return "it is worth nothing, whenever it finishes"
        return "no start pays: the rounds in which it is worth anything cost more, or are sold"


@dataclass(frozen=True, slots=True)
class Eviction:
    """A job that has to go since who was born earlier needs its place."""

    job: int
    round: int
    running: bool
    """It was running, or would have started in this round; False: it was waiting (only if `cancel_waiting`)."""
    reason: str
