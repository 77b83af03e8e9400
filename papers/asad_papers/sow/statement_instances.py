"""Instances of statements of work: read from files, or drawn.

A file is a JSON object: `capacity` C, `rounds`, `max_demand`, `max_duration`, `max_value`, `span`, and `statements`:
`birth`, `demand`, `support` (rows of arrival, duration, probability), `value`, `shape` (`deadline` or `linear`),
`deadline` and `realised` [arrival, duration], which only the evaluation sees. `hindsight_lp` may be given; it is then
checked. Keys beside these are left alone.

Drawn are, as the recorded instances seem to be: births by Poisson in all rounds but the last span, so that the
expected demand is `load` times the capacity; demand uniform over 1, …, c_max; arrivals birth + b + {0, g, 2g}, b from
0 to 4 and g 1 or 2; durations {m - 1, m, m + 2} cut to 1, …, d_max; probabilities of both independent and uniform
over the simplex; value log-uniform from 1 to v_max; deadline birth + span/2 to span - 1; half of the jobs of each
shape.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from asad.admit.sow.statement import Bounds, Statement, Worth
from asad.bounded import MOST_NUMBER
from asad.errors import ConfigError, UsageError
from asad_papers.sow.rounds import Instance, Job

MOST_STATEMENTS = 1_000_000
MOST_ROUNDS = 1_000_000


def read_sow_instance(path: Path) -> Instance:
    """One instance. Raises ConfigError that names the file, the key and the remedy."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{path}: cannot be read as JSON ({reason}); see docs/reference/bench-sow.md"
        ) from error
    return _Reader(str(path)).instance(path.stem, document)


class _Reader:
    """Reads values by key, and says where one is wrong."""

    def __init__(self, path: str) -> None:
        self.path = path

    def instance(self, name: str, document: Any) -> Instance:
        bounds = self.made(
            "",
            Bounds,
            *(self.count(document, key, "", 1) for key in ("capacity", "max_demand", "max_duration")),
            self.number(document, "max_value", ""),
            self.count(document, "span", "", 1),
        )
        rounds = self.count(document, "rounds", "", 1)
        if rounds > MOST_ROUNDS:
            raise self.wrong("rounds", f"is {rounds}", f"write at most {MOST_ROUNDS}")
        rows = self.get(document, "statements", "")
        if not isinstance(rows, list) or not 1 <= len(rows) <= MOST_STATEMENTS:
            raise self.wrong(
                "statements", "is no list of them", f"write [{{…}}, …], at most {MOST_STATEMENTS}"
            )
        jobs = [self.job(row, f"statements[{number}].", bounds) for number, row in enumerate(rows)]
        jobs.sort(key=lambda job: job.statement.birth)
        told = self.number(document, "hindsight_lp", "") if "hindsight_lp" in document else None
        return Instance(name, bounds, rounds, tuple(jobs), told)

    def job(self, row: Any, where: str, bounds: Bounds) -> Job:
        shape = self.get(row, "shape", where)
        if shape not in ("deadline", "linear"):
            raise self.wrong(f"{where}shape", f"is {_short(shape)}", "write deadline or linear")
        worth = self.made(
            where,
            Worth,
            shape,
            self.number(row, "value", where),
            self.count(row, "deadline", where, 0),
            bounds.span,
        )
        support = self.get(row, "support", where)
        if not isinstance(support, list):
            raise self.wrong(
                f"{where}support", f"is {_short(support)}", "write [[arrival, duration, probability], …]"
            )
        read = [self.row(one, f"{where}support[{number}]") for number, one in enumerate(support)]
        birth, demand = self.count(row, "birth", where, 0), self.count(row, "demand", where, 1)
        if demand > bounds.max_demand:
            raise self.wrong(
                f"{where}demand", f"is {demand}", f"write at most max_demand, {bounds.max_demand}"
            )
        longest = max((duration for _, duration, _ in read), default=0)
        if longest > bounds.max_duration:
            raise self.wrong(
                f"{where}support",
                f"has a duration {longest}",
                f"write at most max_duration, {bounds.max_duration}",
            )
        statement: Statement = self.made(where, Statement.of, birth, demand, read, worth)
        realised = self.get(row, "realised", where)
        ways = {(arrival, duration) for arrival, duration, _ in read}
        if not isinstance(realised, list) or tuple(_whole(one) for one in realised) not in ways:
            raise self.wrong(
                f"{where}realised",
                f"is {_short(realised)}",
                "write the arrival and duration of a row of support",
            )
        return Job(statement, int(realised[0]), int(realised[1]))

    def row(self, row: Any, where: str) -> tuple[int, int, float]:
        good = isinstance(row, list) and len(row) == 3 and _whole(row[0]) >= 0 and _whole(row[1]) >= 1
        if (
            not good
            or isinstance(row[2], bool)
            or not isinstance(row[2], int | float)
            or not 0 < row[2] <= 1.000001
        ):
            raise self.wrong(where, f"is {_short(row)}", "write [arrival, duration, probability]")
        return row[0], row[1], float(row[2])

    def made(self, where: str, make: Any, *values: Any) -> Any:
        """Whatever `make` makes of the values, with the file in front of what it finds wrong."""
        try:
            return make(*values)
        except UsageError as error:
            raise ConfigError(f"{self.path}: {where.rstrip('.')}{': ' if where else ''}{error}") from error

    def wrong(self, key: str, problem: str, remedy: str) -> ConfigError:
        return ConfigError(f"{self.path}: {key} {problem}; {remedy}")

    def get(self, table: Any, key: str, where: str) -> Any:
        if not isinstance(table, dict):
            raise self.wrong(where.rstrip(".") or "it", "is not a table", "write {…}")
        if key not in table:
            raise self.wrong(f"{where}{key}", "is missing", "add it")
        return table[key]

    def number(self, table: Any, key: str, where: str) -> float:
        value = self.get(table, key, where)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_NUMBER:
            raise self.wrong(f"{where}{key}", f"is {_short(value)}", "write a number, 0 or more")
        return float(value)

    def count(self, table: Any, key: str, where: str, least: int) -> int:
        value = self.get(table, key, where)
        if not least <= _whole(value) < 2**30:
            raise self.wrong(f"{where}{key}", f"is {_short(value)}", f"write a whole number, {least} or more")
        return int(value)


def _whole(value: Any) -> int:
    """A whole number as it is; anything else as -1."""
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}…"


DEFAULT = Bounds(capacity=100, max_demand=4, max_duration=8, max_value=20.0, span=24)


def draw_sow_instance(
    load: float, seed: int, *, rounds: int = 200, bounds: Bounds = DEFAULT, name: str | None = None
) -> Instance:
    """An instance whose expected demand is `load` times the capacity. The same seed gives the same jobs.

    Raises UsageError where span or max_duration are too short for the distributions.
    """
    if bounds.span < 12 or not 0.0 < load < 1000.0 or rounds <= bounds.span:
        raise UsageError(
            "sow instance: write a span of at least 12, more rounds than that, and a load above 0"
        )
    chance = np.random.default_rng(seed)
    durations = _durations(bounds.max_duration)
    mean = float(np.mean([np.mean(row) for row in durations])) * (bounds.max_demand + 1) / 2.0
    jobs = [
        _draw_job(chance, birth, bounds, durations)
        for birth in range(rounds - bounds.span)
        for _ in range(int(chance.poisson(load * bounds.capacity / mean)))
    ]
    return Instance(name or f"load {load:g}, seed {seed}", bounds, rounds, tuple(jobs))


def _durations(longest: int) -> list[list[int]]:
    return [sorted({max(1, m - 1), m, min(longest, m + 2)}) for m in range(1, longest + 1)]


def _draw_job(chance: np.random.Generator, birth: int, bounds: Bounds, durations: list[list[int]]) -> Job:
    first, step = int(chance.integers(0, 5)), int(chance.integers(1, 3))
    arrivals = [birth + first + step * ahead for ahead in range(3)]
    lasts = durations[int(chance.integers(len(durations)))]
    at_arrival, at_duration = chance.dirichlet(np.ones(3)), chance.dirichlet(np.ones(len(lasts)))
    support = [
        (arrival, duration, float(p * q))
        for arrival, p in zip(arrivals, at_arrival, strict=True)
        for duration, q in zip(lasts, at_duration, strict=True)
        if p * q > 0.0
    ]
    value = math.exp(float(chance.uniform(math.log(bounds.least_value), math.log(bounds.max_value))))
    deadline = birth + int(chance.integers(bounds.span // 2, bounds.span))
    shape = "linear" if chance.random() < 0.5 else "deadline"
    demand = int(chance.integers(1, bounds.max_demand + 1))
    weights = np.array([row[2] for row in support])
    came = support[int(chance.choice(len(support), p=weights / weights.sum()))]
    statement = Statement.of(birth, demand, support, Worth(shape, value, deadline, bounds.span))  # type: ignore[arg-type]
    return Job(statement, came[0], came[1])


def draw_prior(
    load: float, seed: int, *, kinds: int = 4, rounds: int = 80
) -> tuple[Instance, list[list[tuple[float, Statement]]]]:
    """An instance, and what was known of it before: each job born in a round is one of `kinds` kinds, each as likely.

    The kinds of each round are drawn as all else. Durations are told at arrival.
    """
    bounds, chance = DEFAULT, np.random.default_rng([seed, 1])
    durations = _durations(bounds.max_duration)
    jobs: list[Job] = []
    prior: list[list[tuple[float, Statement]]] = []
    for birth in range(rounds - bounds.span):
        told = [
            _draw_job(chance, birth, bounds, durations).statement.with_signal("duration")
            for _ in range(kinds)
        ]
        wanted = float(np.mean([one.demand * float(one.probability @ one.duration) for one in told]))
        known = [(1.0 / kinds, one) for one in told]
        for _ in range(int(chance.poisson(load * bounds.capacity / wanted))):
            statement = told[int(chance.integers(kinds))]
            row = int(
                chance.choice(len(statement.arrival), p=statement.probability / statement.probability.sum())
            )
            jobs.append(Job(statement, int(statement.arrival[row]), int(statement.duration[row])))
            prior.append(known)
    return Instance(f"prior of load {load:g}, seed {seed}", bounds, rounds, tuple(jobs)), prior


def to_document(instance: Instance) -> Mapping[str, Any]:
    """As a file holds it. Raises UsageError for a value function that files do not have."""
    rows = []
    for job in instance.jobs:
        told = job.statement
        if told.worth.kind == "own":
            raise UsageError("sow instance: files hold the shapes deadline and linear alone")
        support = zip(told.arrival.tolist(), told.duration.tolist(), told.probability.tolist(), strict=True)
        rows.append(
            {
                "birth": told.birth,
                "demand": told.demand,
                "support": [list(row) for row in support],
                "value": told.worth.value,
                "shape": told.worth.kind,
                "deadline": told.worth.deadline,
                "realised": [job.arrival, job.duration],
            }
        )
    bounds = instance.bounds
    return {
        "capacity": bounds.capacity,
        "rounds": instance.rounds,
        "max_demand": bounds.max_demand,
        "max_duration": bounds.max_duration,
        "max_value": bounds.max_value,
        "span": bounds.span,
        "statements": rows,
    }
