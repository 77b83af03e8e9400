"""The evaluation of the OASiS paper (§V), run anew: schemes side by side over instances, and figures 3 to 6.

Every part gives plain data for JSON. Times are of this machine; everything else is the same for the same instances.

- `compare`: each scheme on each instance. Utility, jobs admitted and done, time of a decision.
- `gpus`: the same with two types of GPUs. `bursts`: the same with arrivals in bursts.
- `sweep`: total utility against the number of jobs, of slots and of servers (Figure 3).
- `timeliness`: completion less target (γ3), 100 time-sensitive and 100 time-critical jobs, T = 100 (Figure 4).
- `small_cases`: offline optimum over utility, 10 jobs, T = 10 (Figure 5).
- `sensitivity`: utility with U or L at a part or a multiple of what it is (Figure 6), for the informed scheme.
- `growth`: how long OASiS takes to decide about one job, against slots, workers and servers.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from typing import Any

import numpy as np

from asad.admit.elastic import Scheme
from asad.admit.first_fit_servers import most_at_once
from asad.admit.oasis import Oasis
from asad.admit.prices import Bounds, bounds_of
from asad.admit.schemes import scheme_maker
from asad.errors import AsadError
from asad.model import Json
from asad_papers.harness import Step, quiet
from asad_papers.oasis.constraints import violation
from asad_papers.oasis.offline_schedule import optimum
from asad_papers.oasis.scheme_instances import Instance, draw_instance, kind_of, lateness
from asad_papers.oasis.slots import Outcome, simulate

INFORMED = "oasis-informed"
SCHEMES = ("oasis", "oasis-paper", INFORMED, "fifo", "drf", "rrh", "dorm")
SLOW = ("dorm",)
"""Left out of `sweep` unless asked for by name: it solves a MILP at each arrival and end."""

SIZES = (50, 100, 200)
DRAWN_JOBS = 100
"""Of the instances with two types of GPUs, and of those with arrivals in bursts."""
SWEEPS: dict[str, tuple[int, ...]] = {
    "jobs": (50, 100, 200, 300),
    "slots": (100, 200, 300),
    "servers": (25, 50, 100),
}
"""What is varied, and how far. The rest stays at 200 jobs, 300 slots (for `jobs`) or 100, 50 + 50 servers."""
FACTORS = {
    "U": (0.01, 0.1, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 10.0, 100.0),
    "L": (0.01, 0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 4.0),
}
"""What U or L is taken for, as a multiple of what it is. The paper varies U / L."""

GROWTH: dict[str, tuple[int, ...]] = {
    "slots": (50, 100, 200, 300, 600),
    "workers": (25, 50, 100, 200, 400),
    "servers": (10, 50, 200, 500, 1000),
}
"""What is varied; the rest stays at 300 slots, at most 100 workers a job, 50 + 50 servers."""

TIMELINESS_JOBS = 200

SMALL_JOBS, SMALL_SLOTS = 10, 10
SMALL_SERVERS = (20, 30, 40)
SMALL_WORTHS = ((1.0, 10.0), (1.0, 50.0), (1.0, 100.0))
"""Ranges of γ1, which widen U / L."""
SMALL_LIMIT_S = 60.0


def make(name: str, instance: Instance) -> Scheme:
    """The scheme of that name for an instance; `oasis-informed` knows U and L of all its jobs. Raises KeyError."""
    if name == INFORMED:
        return informed(instance, bounds_of(instance.jobs, instance.servers, instance.slots))
    # as in the paper, what is planned beyond the last slot is worth nothing, and the scheme knows
    ends = {"until": instance.slots} if name in ("oasis", "oasis-paper") else {}
    return scheme_maker(name, ends)(instance.servers, instance.slots)


def informed(instance: Instance, bounds: Bounds) -> Scheme:
    """OASiS that is given U and L, as the paper's simulation is."""
    scheme: Scheme = Oasis(instance.servers, horizon=instance.slots, until=instance.slots, bounds=bounds)
    return scheme


def play(instance: Instance, name: str) -> Outcome:
    """One scheme on one instance, its decisions timed. Raises AsadError if it breaks a constraint of the paper."""
    outcome = simulate(
        instance.servers, instance.jobs, make(name, instance), instance.slots, time.perf_counter
    )
    ends = {number: job.finished for number, job in enumerate(outcome.jobs) if job.finished is not None}
    broken = violation(instance.servers, instance.jobs, outcome.schedules(), instance.slots, ends)
    if broken is not None:
        raise AsadError(f"{instance.name}: {name} breaks constraint {broken}")
    return outcome


def warm_up(schemes: Sequence[str]) -> None:
    """Compile what the schemes have to, so that no decision is timed with it."""
    tiny = draw_instance(4, 0, slots=12, servers=6)
    for name in schemes:
        play(tiny, name)


def figures_of(outcome: Outcome) -> dict[str, Any]:
    """What the JSON says of one scheme on one instance."""
    decide_ms = 1000 * np.array([job.decide_s for job in outcome.jobs] or [0.0])
    slot_ms = 1000 * np.array(outcome.allot_s or (0.0,))
    return {
        "utility": outcome.utility,
        "admitted": outcome.admitted,
        "done": sum(job.finished is not None for job in outcome.jobs),
        "decide_ms_mean": float(decide_ms.mean()),
        "decide_ms_p99": float(np.percentile(decide_ms, 99)),
        "slot_ms_mean": float(slot_ms.mean()),
    }


def compare(
    instances: Sequence[Instance], schemes: Sequence[str] = SCHEMES, step: Step = quiet
) -> dict[str, dict[str, dict[str, Any]]]:
    """Each scheme on each instance: {instance: {scheme: figures}}.

    Slow schemes come last and use every core, so that they disturb no other scheme's times.
    """
    table: dict[str, dict[str, dict[str, Any]]] = {instance.name: {} for instance in instances}
    for instance in instances:
        for name in schemes:
            if name not in SLOW:
                table[instance.name][name] = figures_of(play(instance, name))
                step(f"{instance.name}, {name}")
    # the longest first, so that no core waits for one of them at the end
    slow = [
        (instance, name)
        for instance in sorted(instances, key=lambda one: -len(one.jobs))
        for name in schemes
        if name in SLOW
    ]
    workers = min(len(slow), os.cpu_count() or 1)
    pool: Executor = (
        ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
        if workers > 1
        else ThreadPoolExecutor(1)
    )
    with pool:
        played = {pool.submit(_played, *one): one for one in slow}
        for future in as_completed(played):
            instance, name = played[future]
            table[instance.name][name] = future.result()
            step(f"{instance.name}, {name}")
    return {row: {name: table[row][name] for name in schemes} for row in table}


def _played(instance: Instance, name: str) -> dict[str, Any]:
    """One scheme on one instance, in a process of its own."""
    return figures_of(play(instance, name))


def sums(
    instances: Sequence[Instance], table: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> dict[str, dict[str, Json]]:
    """Utilities summed over the instances of equal numbers of jobs: {jobs: {scheme: utility, …}}.

    With the sum of the instances' own references where all have the same ones, as `reference NAME`.
    """
    found: dict[str, dict[str, Json]] = {}
    for jobs in sorted({len(instance.jobs) for instance in instances}):
        group = [instance for instance in instances if len(instance.jobs) == jobs]
        row: dict[str, Json] = {}
        for name in table[group[0].name]:
            row[name] = sum(outcome["utility"] for outcome in (table[one.name][name] for one in group))
        shared = set.intersection(*(set(one.reference) for one in group))
        for name in sorted(shared):
            row[f"reference {name}"] = sum(one.reference[name] for one in group)
        found[str(jobs)] = row
    return found


def alone(instance: Instance) -> float:
    """What all jobs would be worth if each had the empty cluster for itself: no scheme reaches more."""
    worth = 0.0
    for job in instance.jobs:
        width = most_at_once(instance.servers, job, job.most_workers)
        length = -(-job.work // width) if width else instance.slots + 1
        if job.arrival + length <= instance.slots:
            worth += float(job.utility(length))
    return worth


def drawn_apart(
    kind: str, seeds: Sequence[int], schemes: Sequence[str], step: Step = quiet
) -> dict[str, Any]:
    """{"jobs", "seeds", "instances", "sums", "alone", "over_drf"} of instances with two types of GPUs (`gpus`) or with
    arrivals in bursts (`bursts`). `over_drf`: {scheme: its sum over that of `drf`}; empty without `drf`."""
    instances = [
        draw_instance(
            DRAWN_JOBS,
            seed,
            gpu_types=kind == "gpus",
            bursts=kind == "bursts",
            name=f"{kind}_jobs{DRAWN_JOBS}_seed{seed}",
        )
        for seed in seeds
    ]
    table = compare(instances, schemes, step)
    of_all: dict[str, Any] = sums(instances, table)[str(DRAWN_JOBS)]
    fair = of_all.get("drf", 0.0)
    return {
        "jobs": DRAWN_JOBS,
        "seeds": list(seeds),
        "instances": table,
        "sums": of_all,
        "alone": sum(map(alone, instances)),
        "over_drf": {name: utility / fair for name, utility in of_all.items()} if fair > 0 else {},
    }


def sweep(seeds: Sequence[int], schemes: Sequence[str], step: Step = quiet) -> list[Json]:
    """Mean utility over the seeds: one row {"by", "value", "utility": {scheme: mean}, "alone"} a point."""
    rows: list[Json] = []
    for by, values in SWEEPS.items():
        for value in values:
            shape = {"jobs": 200, "slots": 300 if by == "jobs" else 100, "servers": 50} | {by: value}
            utility: dict[str, list[float]] = {name: [] for name in schemes}
            most = []
            for seed in seeds:
                instance = draw_instance(shape["jobs"], seed, slots=shape["slots"], servers=shape["servers"])
                most.append(alone(instance))
                for name in schemes:
                    utility[name].append(play(instance, name).utility)
                    step(f"{by} {value}, {name}")
            means: dict[str, Json] = {name: float(np.mean(u)) for name, u in utility.items()}
            rows.append({"by": by, "value": value, "utility": means, "alone": float(np.mean(most))})
    return rows


def timeliness(seed: int, schemes: Sequence[str], step: Step = quiet) -> dict[str, Json]:
    """{scheme: {kind: {"jobs", "done", "p10", "p25", "median", "p75", "p90", "mean", "sd"}}}, in slots.

    Completion less target (γ3) of the jobs that were done; below 0 is early.
    """
    halves = (("sensitive", 0.5), ("critical", 0.5))
    instance = draw_instance(TIMELINESS_JOBS, seed, kinds=halves, name="timeliness")
    found: dict[str, Json] = {}
    for name in schemes:
        ran = list(zip(instance.jobs, play(instance, name).jobs, strict=True))
        found[name] = {
            kind: lateness(
                [
                    of.finished - job.arrival + 1 - job.target_slots
                    for job, of in ran
                    if kind_of(job) == kind and of.finished is not None
                ],
                sum(kind_of(job) == kind for job, _ in ran),
            )
            for kind, _ in halves
        }
        step(f"timeliness, {name}")
    return found


def small_cases(cases: int, step: Step = quiet) -> dict[str, Json]:
    """Offline optimum over the utility of OASiS (informed, as in the paper) on drawn cases of 10 jobs in 10 slots.

    Where the optimum is not proven within `SMALL_LIMIT_S`, its upper bound stands for it: the ratio is then too high,
    never too low. Cases whose optimum is 0 are drawn anew. `ratio_max` is over the cases in which OASiS has any
    utility; those in which it has none are counted in `without_utility`, and in the median as the worst.
    """
    rows: list[Json] = []
    ratios: list[float] = []
    proven = seed = 0
    while len(rows) < cases:
        servers = SMALL_SERVERS[seed % len(SMALL_SERVERS)]
        worth = SMALL_WORTHS[seed // len(SMALL_SERVERS) % len(SMALL_WORTHS)]
        instance = draw_instance(SMALL_JOBS, seed, slots=SMALL_SLOTS, servers=servers, worth=worth)
        best = optimum(instance.servers, instance.jobs, instance.slots, SMALL_LIMIT_S)
        seed += 1
        if best.bound <= 1e-6:
            continue
        ours = play(instance, INFORMED).utility
        bounds = bounds_of(instance.jobs, instance.servers, instance.slots)
        ratio = best.bound / ours if ours > 0 else float("inf")
        ratios.append(ratio)
        proven += best.proven
        rows.append(
            {
                "servers": servers,
                "worth_max": worth[1],
                "seed": seed - 1,
                "optimum": best.utility,
                "bound": best.bound,
                "utility": ours,
                "utility_online": play(instance, "oasis").utility,
                "ratio": ratio if ours > 0 else None,
                "ratio_bound": bounds.ratio_bound(instance.servers, instance.slots, ours)
                if ours > 0
                else None,
            }
        )
        step(f"optimum of case {len(rows)}")
    finite = [ratio for ratio in ratios if np.isfinite(ratio)]
    median = float(np.median(ratios))
    return {
        "ratio_median": median if np.isfinite(median) else None,
        "ratio_max": max(finite, default=None),
        "cases": len(rows),
        "without_utility": len(ratios) - len(finite),
        "proven": proven,
        "rows": rows,
    }


def sensitivity(instances: Sequence[Instance], step: Step = quiet) -> list[Json]:
    """{"of", "jobs", "factor", "utility"}: the informed scheme with U, or with L, taken for `factor` times what it is,
    and the other as it is; summed over instances of equal numbers of jobs."""
    found: dict[tuple[str, int, float], float] = {}
    for instance in instances:
        true = bounds_of(instance.jobs, instance.servers, instance.slots)
        for of, factors in FACTORS.items():
            for factor in factors:
                scheme = informed(instance, _off(true, of, factor))
                outcome = simulate(instance.servers, instance.jobs, scheme, instance.slots)
                key = (of, len(instance.jobs), factor)
                found[key] = found.get(key, 0.0) + outcome.utility
                step(f"{instance.name}, {of} × {factor:g}")
    return [
        {"of": of, "jobs": jobs, "factor": factor, "utility": utility}
        for (of, jobs, factor), utility in sorted(found.items())
    ]


def _off(true: Bounds, of: str, factor: float) -> Bounds:
    """Bounds with U or L off by a factor; U stays at or above L."""
    lower, upper = (factor, 1.0) if of == "L" else (1.0, factor)
    low, beside = true.worker_low * lower, true.server_low * lower
    high, high_beside = true.worker_high * upper, true.server_high * upper
    return Bounds(low, np.maximum(high, low), beside, np.maximum(high_beside, beside))


def growth(jobs: int = 200, seed: int = 0, step: Step = quiet) -> list[Json]:
    """{"by", "value", "decide_ms_mean", "decide_ms_p99"}: OASiS (which learns U and L) on drawn instances."""
    rows: list[Json] = []
    for by, values in GROWTH.items():
        for value in values:
            shape = {"slots": 300, "workers": 100, "servers": 50} | {by: value}
            instance = draw_instance(
                jobs, seed, slots=shape["slots"], servers=shape["servers"], most_chunks=shape["workers"]
            )
            found = figures_of(play(instance, "oasis"))
            rows.append(
                {"by": by, "value": value, **{key: found[key] for key in ("decide_ms_mean", "decide_ms_p99")}}
            )
            step(f"growth, {by} {value}")
    return rows


def competitive_bounds(
    instances: Sequence[Instance], table: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> dict[str, Json]:
    """{instance: {"two_alpha", "ratio_bound"}} with U and L of all its jobs.

    `two_alpha` is Theorem 4's bound, which holds for the paper's L; `ratio_bound` the one that holds for ours and the
    utility that the informed scheme reached (`Bounds.ratio_bound`; None if it did not run or reached nothing).
    """
    found: dict[str, Json] = {}
    for one in instances:
        bounds = bounds_of(one.jobs, one.servers, one.slots)
        reached = table.get(one.name, {}).get(INFORMED, {}).get("utility", 0.0)
        found[one.name] = {
            "two_alpha": 2 * bounds.alpha,
            "ratio_bound": bounds.ratio_bound(one.servers, one.slots, reached) if reached > 0 else None,
        }
    return found
