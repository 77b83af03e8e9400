"""What was promised for one statement, and the same as rows that outlive the process."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from asad.admit.sow.announcements import Announcement, announcement_of
from asad.admit.sow.launch import rounds_sold
from asad.admit.sow.statement import NEVER, Bounds, LaunchPlan, Statement, Worth, require
from asad.errors import UsageError
from asad.hold import HeldJob, Saved, as_number, as_whole, fields_of, fields_to_json, hold_of, plain
from asad.model import STATEMENTS_OVER, Floats, Json

SLACK = 0.05
"""Of a round: what comes or ends so much after its boundary counts for the round before."""
OPEN = ("planned", "arrived", "running", "evicting", "leaving")
"""`planned`: its job has not come; `arrived`: it waits for its start; `evicting`: it has to go and has not gone yet;
`leaving`: nothing is promised any more to a job that waits, and it has still to be reported or let go."""
PROGRESS: Saved = {
    **dict.fromkeys(("born_s", "changed_s", "utility", "payment", "started_s", "ended_s"), as_number),
    **dict.fromkeys(("birth", "demand", "longest", "arrival", "start", "rounds", "paid_micro"), as_whole),
    "becomes": str,
}
"""Fields that outlive the process, besides the hold."""


@dataclass(slots=True)
class Promise(HeldJob):
    """One statement. Rounds count from the epoch."""

    number: int
    owner: str
    announced: Announcement
    state: str
    reason: str
    born_s: float
    birth: int
    """Round in which it was announced."""
    demand: int
    """Units of the mechanism."""
    longest: int
    """Rounds, of what was stated."""
    plan: LaunchPlan
    utility: float
    payment: float
    """Both as expected at birth."""
    failure: list[float]
    """By row of the plan."""
    price: Floats
    """By row of the plan and rounds run; empty of one that is over and kept."""
    changed_s: float = -math.inf
    job: str = ""
    """Its number; empty until it has come."""
    arrival: int = -1
    """Round from which its job could start; -1: it has not come."""
    start: int = NEVER
    """Round in which it starts, now that it has come."""
    rounds: int = 0
    """That it ran."""
    paid_micro: int = 0
    started_s: float = math.nan
    ended_s: float = math.nan
    becomes: str = ""
    """Of one that is leaving: `declined`, `cancelled` or `withdrawn`."""
    entered: bool = False
    """The mechanism knows that its job has come."""
    tres: dict[str, int] = field(default_factory=dict)
    """Units of gres and licences that it was sold, by name."""

    def become(self, state: str, becomes: str = "") -> None:
        """Its job is in another state. What was refused of it in the old one delays nothing now."""
        self.state, self.becomes, self.retry_s = state, becomes, -math.inf
        self.reported = self.reported and state != "leaving"

    @property
    def identity(self) -> dict[str, Json]:
        """Its job, once it has come, and its number."""
        return {"job": self.job, "statement": self.number}

    @property
    def planned(self) -> bool:
        """Its job has come and has a start."""
        return self.start != NEVER

    @property
    def first_arrival(self) -> int:
        """First round in which its job was announced to come."""
        return int(self.plan.arrival[0])

    @property
    def last_arrival(self) -> int:
        """Last such round."""
        return int(self.plan.arrival[-1])

    def plan_row_of(self, arrival: int) -> int:
        """Row of the plan for a job that comes so: that of the next arrival that was stated; -1 after the last."""
        return self.plan.row_of(arrival)

    def sold(self, most_value: float) -> int:
        """Rounds that were sold to it from its start on: beyond them a round costs what nobody would pay."""
        row = self.price[self.plan_row_of(self.arrival)]
        units = self.demand + sum(self.tres.values())
        sold = rounds_sold(row, 2.0 * units * most_value)  # as mechanisms mark rounds that are not sold
        return len(row) if sold is None else max(1, sold)

    def price_of(self, rounds: int) -> float:
        """What was announced at birth for its start and so many rounds; of more than are sold that of the most."""
        row = self.price[self.plan_row_of(self.arrival)]
        return float(row[min(rounds, len(row)) - 1])

    def forget_prices(self) -> None:
        """Nothing more will be charged by them; they are most of what a statement takes in memory."""
        self.price = np.zeros((0, 0))

    def to_row(self) -> dict[str, Json]:
        """Of the store: what `promise_from_json` reads, without the plan."""
        return {
            "number": self.number,
            "owner": self.owner,
            "name": self.announced.name,
            "job": self.job,
            "state": self.state,
            "reason": self.reason,
            "born_s": self.born_s,
            "changed_s": plain(self.changed_s) or self.born_s,
            "announced": self.announced.to_json(),
            "progress": {**fields_to_json(self, PROGRESS), **self.hold_to_json(), **self._tres_to_json()},
        }

    def _tres_to_json(self) -> dict[str, Json]:
        return {"tres": dict[str, Json](self.tres)} if self.tres else {}

    def plan_row(self) -> dict[str, Json]:
        """Of the store: the plan, written once."""
        plan: dict[str, Json] = {
            "rows": self.plan.to_json(),
            "failure": list(self.failure),
            "price": self.price.tolist(),
        }
        return {"number": self.number, "made_s": self.born_s, "plan": plan}

    def to_read(self, round_s: float, *, own: bool) -> dict[str, Json]:
        """For a reader; values and prices are its owner's (`own`) alone."""
        view: dict[str, Json] = {
            "statement": self.number,
            "owner": self.owner,
            "name": self.announced.name,
            "job": self.job or None,
            "state": self.state,
            "cores": self.announced.cores,
            **self.announced.beside,
            "due_s": self.announced.due_s,
            "born_s": self.born_s,
            "first_s": self.first_arrival * round_s,
            "last_s": self.last_arrival * round_s,
            "start_s": self.start * round_s if self.planned else None,
            "started_s": plain(self.started_s),
            "ended_s": plain(self.ended_s),
            "eviction": self.announced.eviction,
        }
        if not own:
            return view
        starts: list[Json] = [
            [arrival * round_s, None if start == NEVER else start * round_s, failed]
            for arrival, start, failed in zip(
                self.plan.arrival.tolist(), self.plan.start.tolist(), self.failure, strict=True
            )
        ]
        return view | {
            "reason": self.reason,
            "value": self.announced.value,
            "shape": self.announced.shape,
            "deadline_s": self.announced.due_s + self.announced.deadline_s,
            "expected_payment": self.payment,
            "expected_utility": self.utility,
            "paid": self.paid_micro / 1e6 if self.state in STATEMENTS_OVER else None,
            "plan": starts,
        }


def statement_of(
    one: Announcement,
    birth: int,
    round_s: float,
    unit: int,
    bounds: Bounds,
    cores: int = 0,
    tres: Mapping[str, int] = MappingProxyType({}),
) -> Statement:
    """An announcement in rounds from the epoch, and units of so many cores.

    `cores`, if they are more than announced: what its memory is the share of. `tres`: units of gres and licences.
    Raises UsageError for one that is due in the past or beyond what is sold, or that cannot be worth anything.
    """
    cores = max(cores, one.cores)
    demand = math.ceil(cores / unit)
    rows: dict[tuple[int, int], float] = {}
    for run in one.runs:
        arrival = max(birth, math.ceil((one.due_s + run.offset_s) / round_s - SLACK))
        duration = max(1, math.ceil(run.duration_s / round_s - SLACK))
        rows[arrival, duration] = rows.get((arrival, duration), 0.0) + run.probability
    latest_s, first = max(one.due_s + run.offset_s for run in one.runs), min(arrival for arrival, _ in rows)
    longest, deadline = max(duration for _, duration in rows), deadline_of(one, round_s)
    require(
        "",
        (
            (
                demand <= bounds.max_demand,
                f"cores: {cores}{' (the share of its memory)' if cores > one.cores else ''} are more than the "
                f"{bounds.max_demand * unit} that one job may have here; ask for less",
            ),
            (
                latest_s >= (birth - 1) * round_s,
                "due: all of its times are past; write when it comes next",
            ),
            (
                longest <= bounds.max_duration,
                f"runs: {longest * round_s:.0f} s are longer than the {bounds.max_duration * round_s:.0f} s that one "
                "job may be planned for; write less, or submit it without a statement",
            ),
            (
                first < birth + bounds.span,
                f"due: it comes later than the {bounds.span * round_s:.0f} s ahead that are planned; announce it "
                "nearer to its time",
            ),
            (
                deadline > birth,
                "deadline: it is past, so that the job could be worth nothing; write a later one",
            ),
        ),
    )
    worth = Worth(
        "deadline" if one.shape == "deadline" else "linear", one.value, deadline, max(1, deadline - birth)
    )
    support = [(*key, probability) for key, probability in sorted(rows.items())]
    total = math.fsum(row[2] for row in support)
    return Statement.of(birth, demand, [(a, d, p / total) for a, d, p in support], worth, tres=tres)


def deadline_of(one: Announcement, round_s: float) -> int:
    """The last round at whose beginning it may have ended, to be of value."""
    return math.floor((one.due_s + one.deadline_s) / round_s + SLACK)


def worth_of(one: Announcement, end_s: float, birth: int, round_s: float) -> float:
    """What its completion at `end_s` is worth, by rounds as the mechanism counts them."""
    finish, deadline = math.ceil(end_s / round_s - SLACK), deadline_of(one, round_s)
    if finish > deadline:
        return 0.0
    if one.shape == "deadline":
        return one.value
    return one.value * max(0.0, 1.0 - max(0, finish - birth) / max(1, deadline - birth))


def promise_from_json(row: Json, planned: Json) -> Promise | None:
    """What `Promise.to_row` and `Promise.plan_row` described; None if it cannot be read, or is over."""
    try:
        kept, plan = cast("Mapping[str, Any]", row), cast("Mapping[str, Any]", planned)["plan"]
        progress, launch = kept["progress"], LaunchPlan.from_json(plan["rows"])
        price, failure = np.array(plan["price"], np.float64), [float(one) for one in plan["failure"]]
        assert kept["state"] in OPEN and price.ndim == 2
        assert len(price) == len(launch.arrival) == len(failure) > 0
        columns = fields_of(progress, PROGRESS) | hold_of(progress)
        tres = {str(name): int(units) for name, units in progress.get("tres", {}).items()}
        return Promise(
            number=int(kept["number"]),
            owner=str(kept["owner"]),
            announced=announcement_of(kept["announced"], 0.0),
            state=str(kept["state"]),
            reason=str(kept["reason"]),
            plan=launch,
            failure=failure,
            price=price,
            job=str(kept["job"]),
            tres=tres,
            **columns,
        )
    except (KeyError, TypeError, ValueError, OverflowError, AssertionError, UsageError):
        return None


def mechanism_row(
    promise: Promise, round_s: float, unit: int, bounds: Bounds, present: int
) -> dict[str, Json]:
    """The job as a mechanism of these bounds keeps it. Raises UsageError if it is beyond them."""
    arrived = promise.planned and promise.arrival <= present
    statement = statement_of(
        promise.announced, promise.birth, round_s, unit, bounds, promise.demand * unit, promise.tres
    )
    return {
        "job": promise.number,
        "statement": statement.to_json(),
        "plan": promise.plan.to_json(),
        "price": promise.price.tolist(),
        "row": promise.plan_row_of(promise.arrival) if arrived else -1,
    }
