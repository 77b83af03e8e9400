"""What an owner states of a job before it comes, and what the mechanism answers: statement, menu, launch plan.

Source: Truthful Online Scheduling of Cloud Workloads under Uncertainty (004), sections 2 and 3. Time is cut into
rounds, counted from 0. A job that starts in round s and lasts d rounds runs in rounds s, …, s + d - 1 and finishes at
s + d. Demands are units of one resource (cores), and of others beside it by name (GPUs, licences), where there are any.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
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
MOST_UNITS = 30_000
"""Of loads and rounds: samples of them are 16 bits wide."""
LAST_ROUND = 2**30
"""A round beyond it is taken for a mistake."""

Kind = Literal["deadline", "linear", "own"]


@contextmanager
def readable(what: str, hint: str = "begin anew") -> Iterator[None]:
    """Plain data is read within. Raises UsageError with the hint where it is not of the form that was written."""
    try:
        yield
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError, AssertionError) as error:
        raise UsageError(
            f"{what} cannot be read ({str(error)[:120]}){f'; {hint}' if hint else ''}"
        ) from error


def require(prefix: str, conditions: Iterable[tuple[bool, str]]) -> None:
    """Raises UsageError with the first problem whose condition does not hold; NaN makes none hold."""
    for holds, problem in conditions:
        if not holds:
            raise UsageError(f"{prefix}{problem}")


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
            if not 1 <= getattr(self, name) <= MOST_UNITS:
                raise UsageError(
                    f"sow: {name} {getattr(self, name)}: write a whole number from 1 to {MOST_UNITS}"
                )
        low, high = self.least_value, self.max_value
        fits = f"max_demand {self.max_demand} is more than the capacity {self.capacity}; set it below"
        values = f"values from {low:g} to {high:g}; write 0 < least_value ≤ max_value"
        require("sow: ", ((self.max_demand <= self.capacity, fits), (0.0 < low <= high < math.inf, values)))


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
        falls = all(later <= sooner for sooner, later in zip(self.table, self.table[1:], strict=False))
        counts = bool(self.table) and falls and all(0.0 <= one < math.inf for one in self.table)
        require(
            "statement: ",
            (
                (
                    self.kind in ("deadline", "linear", "own"),
                    f"shape {self.kind!r:.80}: write deadline, linear or own",
                ),
                (0.0 <= self.value < math.inf, f"value {self.value}: write a number, 0 or more"),
                (
                    self.kind != "linear" or 1 <= self.span <= MOST_NUMBER,
                    f"span {str(self.span)[:40]}: write the rounds in which the value falls to 0",
                ),
                (
                    self.kind != "own" or counts,
                    "the value by round must be numbers ≥ 0 that never rise; correct them",
                ),
            ),
        )

    @property
    def most(self) -> float:
        """What it is worth if it finishes at its birth."""
        return self.table[0] if self.kind == "own" else self.value

    def by_finish(self, birth: int, rounds: int) -> Floats:
        """(rounds + 1,) the value if it finishes at birth, birth + 1, …, birth + rounds."""
        return np.array([self.at(birth, birth + after) for after in range(rounds + 1)])

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
        shape: dict[str, Json] = {"kind": self.kind, "value": self.value, "deadline": self.deadline}
        more: dict[str, dict[str, Json]] = {"linear": {"span": self.span}, "own": {"table": list(self.table)}}
        return shape | more.get(self.kind, {})

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Worth:
        """Raises UsageError for what is no value function."""
        with readable("statement: the value function", "state it anew"):
            table = tuple(float(one) for one in kept.get("table") or ())
            value, deadline, span = float(kept["value"]), int(kept["deadline"]), int(kept.get("span", 1))
            return cls(kept["kind"], value, deadline, span, table)


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
    """(k,) what the job reports of its duration when it arrives, ≥ 0; all 0: nothing. See `with_signal`."""
    tres: Mapping[str, int] = field(default_factory=dict)
    """Units of other resources by name, each 1 or more, in every round of its run."""
    longest: int = field(init=False)
    """Rounds, of the row that lasts longest."""

    def __post_init__(self) -> None:
        rows = len(self.arrival)
        alike = len(self.duration) == len(self.probability) == len(self.signal) == rows
        require(
            "statement: ",
            (
                (
                    1 <= rows <= MOST_ROWS,
                    f"{rows} rows of arrival, duration, probability; write 1 to {MOST_ROWS}",
                ),
                (alike, "arrivals, durations, probabilities and signals differ in number; give each as many"),
                (
                    0 <= self.birth <= LAST_ROUND,
                    f"birth {self.birth}: write a round, 0 to {LAST_ROUND}",
                ),
                (
                    1 <= self.demand <= MOST_UNITS,
                    f"demand {self.demand}: write a whole number from 1 to {MOST_UNITS}",
                ),
                *(
                    (1 <= units <= MOST_UNITS, f"{name} {units}: write a whole number from 1 to {MOST_UNITS}")
                    for name, units in self.tres.items()
                ),
            ),
        )
        first, last, total = int(self.arrival.min()), int(self.arrival.max()), float(self.probability.sum())
        shortest, signal = int(self.duration.min()), int(self.signal.min())
        chances = float(self.probability.min()) > 0.0 and abs(total - 1.0) <= SUM_ERROR
        require(
            "statement: ",
            (
                (
                    self.birth <= first and last <= LAST_ROUND,
                    f"arrival {first}: no job arrives before its birth in round {self.birth}",
                ),
                (shortest >= 1, f"duration {shortest}: write whole rounds, 1 or more"),
                (signal >= 0, f"signal {signal}: write whole numbers, 0 or more"),
                (
                    chances,
                    f"the probabilities sum up to {total:g}; each has to be above 0, and their sum 1",
                ),
            ),
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
        tres: Mapping[str, int] = MappingProxyType({}),
    ) -> Statement:
        """From rows of (arrival, duration, probability). Raises UsageError for what is no statement."""
        with readable("statement: rows of arrival, duration, probability", ""):
            arrival, duration = (np.array([row[at] for row in support], np.int32) for at in (0, 1))
            probability = np.array([row[2] for row in support], np.float64)
            given = {"none": np.zeros_like(arrival), "duration": duration.copy()}
            heard = given[signal] if isinstance(signal, str) else np.array(signal, np.int32)
        return cls(birth, demand, arrival, duration, probability, worth, heard, dict(tres))

    @property
    def units(self) -> int:
        """Of all resources together."""
        return self.demand + sum(self.tres.values())

    def with_signal(self, signal: Literal["none", "duration"]) -> Statement:
        """The same job, that reports nothing of its duration when it arrives, or all of it."""
        return replace(self, signal=np.zeros_like(self.arrival) if signal == "none" else self.duration.copy())

    def to_json(self) -> dict[str, Json]:
        """As plain data, that `from_json` reads."""
        rows: list[Json] = [
            [int(arrival), int(duration), float(probability), int(signal)]
            for arrival, duration, probability, signal in zip(
                self.arrival, self.duration, self.probability, self.signal, strict=True
            )
        ]
        tres: dict[str, Json] = {"tres": dict[str, Json](self.tres)} if self.tres else {}
        worth = self.worth.to_json()
        return {"birth": self.birth, "demand": self.demand, "rows": rows, "worth": worth, **tres}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Statement:
        """Raises UsageError for what is no statement."""
        with readable("statement:", "state it anew"):
            support = [(int(row[0]), int(row[1]), float(row[2])) for row in kept["rows"]]
            signal = [int(row[3]) for row in kept["rows"]]
            birth, demand, worth = int(kept["birth"]), int(kept["demand"]), Worth.from_json(kept["worth"])
            tres = {str(name): int(units) for name, units in kept.get("tres", {}).items()}
        return cls.of(birth, demand, support, worth, signal, tres)


@dataclass(frozen=True, slots=True, eq=False)
class LaunchPlan:
    """From what the job reports when it arrives to the round in which it starts. Rows by (arrival, signal), rising."""

    arrival: Ints
    """(m,) rounds."""
    signal: Ints
    """(m,)."""
    start: Ints
    """(m,) round of its start, at or after the arrival; `NEVER`: it does not run."""

    def row_of(self, arrival: int, signal: int = 0) -> int:
        """Row of a job that arrives so: that of the next arrival that was stated; -1 after the last."""
        rows = np.flatnonzero((self.arrival >= arrival) & (self.signal == signal))
        return int(rows[0]) if len(rows) else -1

    @property
    def never(self) -> bool:
        """It does not run, whenever it arrives."""
        return int(self.start.max(initial=NEVER)) == NEVER

    def to_json(self) -> Json:
        """Rows of arrival, signal, start."""
        rows: list[Json] = np.stack([self.arrival, self.signal, self.start], axis=1).tolist()
        return rows

    @classmethod
    def from_json(cls, kept: Json) -> LaunchPlan:
        """Raises UsageError for what is no plan."""
        with readable("launch plan:", ""):
            rows = np.array(kept, np.int32).reshape(-1, 3)
        return cls(*(np.ascontiguousarray(rows[:, column]) for column in range(3)))


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What its owner gets to read when a job was submitted."""

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
