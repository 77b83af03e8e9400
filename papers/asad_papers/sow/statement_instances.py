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

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from asad.admit.sow import demand, sow, unit_prices
from asad.admit.sow.sow_paper import SowPaper
from asad.admit.sow.statement import Bounds, Statement, Worth
from asad.errors import UsageError
from asad.model import Floats
from asad.policy import parameters
from asad_papers.instance_files import JsonTable, is_count, is_number, short
from asad_papers.sow.rounds import Instance, Job

MOST_STATEMENTS = 1_000_000
MOST_ROUNDS = 1_000_000
GPU, A100, V100 = "gres/gpu", "gres/gpu:a100", "gres/gpu:v100"
GPU_JOBS = 0.4
"""Part of the jobs that take GPUs."""


def fresh_seed() -> int:
    """The first seed of instances that nobody has looked at: of the SHA-256 of all constants and defaults of the
    mechanisms.

    Whoever changes one of them meets other instances, that no choice about it was made on.
    """
    constants = {
        f"{module.__name__}.{name}": value
        for module in (sow, demand, unit_prices)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, int | float)
    }
    chosen = [sorted(constants.items()), parameters(sow.Sow), parameters(SowPaper)]
    return int.from_bytes(hashlib.sha256(json.dumps(chosen).encode()).digest()[:6], "big")


def read_sow_instance(path: Path) -> Instance:
    """One instance. Raises ConfigError that names the file, the key and the remedy."""
    file = JsonTable.of_file(path, "docs/reference/bench-sow.md")
    capacity, demand, duration, span, rounds = (
        file.count(key, 1) for key in ("capacity", "max_demand", "max_duration", "span", "rounds")
    )
    bounds = file.made(Bounds, capacity, demand, duration, file.number("max_value"), span)
    if rounds > MOST_ROUNDS:
        raise file.wrong("rounds", f"is {rounds}", f"write at most {MOST_ROUNDS}")
    form = f"write [{{…}}, …], at most {MOST_STATEMENTS}"
    rows = file.tables("statements", "is no list of them", form, MOST_STATEMENTS)
    if not rows:
        raise file.wrong("statements", "is empty", form)
    jobs = sorted((_job(row, bounds) for row in rows), key=lambda job: job.statement.birth)
    optimum = file.number("hindsight_lp") if "hindsight_lp" in file.plain else None
    return Instance(path.stem, bounds, rounds, tuple(jobs), optimum)


def _job(row: JsonTable, bounds: Bounds) -> Job:
    shape = row.get("shape")
    if shape not in ("deadline", "linear"):
        raise row.wrong("shape", f"is {short(shape)}", "write deadline or linear")
    worth = row.made(Worth, shape, row.number("value"), row.count("deadline", 0), bounds.span)
    support = row.rows(
        "support", f"is {short(row.get('support'))}", "write [[arrival, duration, probability], …]"
    )
    for number, way in enumerate(support):
        if not _is_way(way):
            raise row.wrong(
                f"support[{number}]", f"is {short(way)}", "write [arrival, duration, probability]"
            )
    birth, demand = row.count("birth", 0), row.count("demand", 1)
    longest = max((way[1] for way in support), default=0)
    if demand > bounds.max_demand:
        raise row.wrong("demand", f"is {demand}", f"write at most max_demand, {bounds.max_demand}")
    if longest > bounds.max_duration:
        most = f"write at most max_duration, {bounds.max_duration}"
        raise row.wrong("support", f"has a duration {longest}", most)
    statement: Statement = row.made(Statement.of, birth, demand, support, worth)
    realised = row.get("realised")
    if realised not in [way[:2] for way in support]:
        remedy = "write the arrival and duration of a row of support"
        raise row.wrong("realised", f"is {short(realised)}", remedy)
    return Job(statement, int(realised[0]), int(realised[1]))


def _is_way(row: Any) -> bool:
    """Arrival, duration and probability, which may be a little above 1."""
    fits = isinstance(row, list) and len(row) == 3 and is_count(row[0], 0) and is_count(row[1], 1)
    return fits and is_number(row[2]) and 0 < row[2] <= 1.000001


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


def draw_gpu_instance(load: float, seed: int, *, rounds: int = 200) -> Instance:
    """The same with two types of GPUs, so that the expected demand of cores, of GPUs and of A100s is `load` times what
    there is: two jobs of five take one or two GPUs, a third of them of any type, and of either type."""
    plain, chance = draw_sow_instance(load, seed, rounds=rounds), np.random.default_rng([seed, 2])
    jobs = []
    for job in plain.jobs:
        gpus, kind = int(chance.integers(1, 3)), int(chance.integers(3))
        tres = {GPU: gpus} | ({(A100, V100)[kind]: gpus} if kind < 2 else {})
        takes = chance.random() < GPU_JOBS
        jobs.append(replace(job, statement=replace(job.statement, tres=tres)) if takes else job)
    counted = {
        name: replace(plain.bounds, capacity=whole, max_demand=2)
        for name, whole in ((GPU, 24), (A100, 8), (V100, 16))
    }
    return replace(plain, name=f"GPUs, {plain.name}", jobs=tuple(jobs), counted=counted)


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
    came = _came(chance, np.array([row[2] for row in support]))
    statement = Statement.of(birth, demand, support, Worth(shape, value, deadline, bounds.span))  # type: ignore[arg-type]
    return Job(statement, *support[came][:2])


def _came(chance: np.random.Generator, weight: Floats) -> int:
    """The way in which a job comes, of those of such weights."""
    return int(chance.choice(len(weight), p=weight / weight.sum()))


def draw_prior(
    load: float, seed: int, *, kinds: int = 4, rounds: int = 80
) -> tuple[Instance, list[list[tuple[float, Statement]]]]:
    """An instance, and what was known of it before: each job born in a round is one of `kinds` kinds, each as likely.

    The kinds of each round are drawn as all else. Durations are reported at arrival.
    """
    bounds, chance = DEFAULT, np.random.default_rng([seed, 1])
    durations = _durations(bounds.max_duration)
    jobs: list[Job] = []
    prior: list[list[tuple[float, Statement]]] = []
    for birth in range(rounds - bounds.span):
        ones = [
            _draw_job(chance, birth, bounds, durations).statement.with_signal("duration")
            for _ in range(kinds)
        ]
        wanted = float(np.mean([one.demand * float(one.probability @ one.duration) for one in ones]))
        known = [(1.0 / kinds, one) for one in ones]
        for _ in range(int(chance.poisson(load * bounds.capacity / wanted))):
            one = ones[int(chance.integers(kinds))]
            row = _came(chance, one.probability)
            jobs.append(Job(one, int(one.arrival[row]), int(one.duration[row])))
            prior.append(known)
    return Instance(f"prior of load {load:g}, seed {seed}", bounds, rounds, tuple(jobs)), prior


def to_document(instance: Instance) -> Mapping[str, Any]:
    """As a file holds it. Raises UsageError for a value function that files do not have."""
    rows = []
    for job in instance.jobs:
        one = job.statement
        if one.worth.kind == "own":
            raise UsageError("sow instance: files hold the shapes deadline and linear alone")
        support = zip(one.arrival.tolist(), one.duration.tolist(), one.probability.tolist(), strict=True)
        rows.append(
            {
                "birth": one.birth,
                "demand": one.demand,
                "support": [list(row) for row in support],
                "value": one.worth.value,
                "shape": one.worth.kind,
                "deadline": one.worth.deadline,
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
