"""Statements of work, measured: mechanisms beside queues and reservations, truthfulness by search, and speed.

Every part gives plain data for JSON. Times are of this machine; everything else is the same for the same instance.

- `compare`: welfare over the hindsight LP, jobs planned and evicted, of each policy on one instance.
- `truthfulness`: what a job can gain by stating something else than it knows, best of many tries.
- `speed`, `growth`: statements a second, and whether their cost grows with the number of those before.
- `seeds`: all policies over freshly drawn instances.
- `gpus`: policies over drawn instances with two types of GPUs, priced and not.
- `stochastic`: the variant that knows what may come (§5, Theorem 5.2) on drawn priors.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from asad.admit.sow.mechanism import Posted
from asad.admit.sow.mechanisms import mechanism_names, mechanism_of
from asad.errors import AsadError
from asad.model import Json
from asad_papers.harness import Step, quiet
from asad_papers.sow.baselines import BASELINES
from asad_papers.sow.cores_alone import cores_alone
from asad_papers.sow.hindsight import hindsight_lp
from asad_papers.sow.misreport import KINDS, search
from asad_papers.sow.rounds import Instance, Job, Outcome, simulate
from asad_papers.sow.statement_instances import draw_gpu_instance, draw_prior, draw_sow_instance
from asad_papers.sow.stochastic import SowStochastic

MECHANISMS = mechanism_names()
POLICIES = (*MECHANISMS, *BASELINES)
CORES_ALONE = "sow, cores alone"
"""Cores are priced and planned; GPUs go to who is first."""
GPU_POLICIES = (*MECHANISMS, CORES_ALONE, "fcfs", "density")
LOADS = (1.0, 2.0, 4.0)

LP_ERROR = 1e-6
"""By which a given `hindsight_lp` may miss ours."""
JOBS_TRIED, TRIES, DELAYS, PATHS = 50, 20, (1, 4), 5
"""Of `truthfulness`: jobs, misreports of each kind, rounds by which births are delayed, histories of the others."""
SAMPLES_TIMES = 16
"""So many times the mechanism's own samples estimate the independent failure probabilities."""
ERRORS = (0.4, 0.2, 0.1, 0.05, 0.025, 0.0125)
"""Of `samples`: errors μ; 0.05 is the default."""
SPEED_STATEMENTS, SPEED_RUNS = 4_000, 5
GROWTH_STATEMENTS = 40_000


def run(instance: Instance, policy: str, options: Mapping[str, Any] | None = None) -> Outcome:
    """One policy on one instance."""
    if policy in BASELINES:
        return BASELINES[policy](instance)
    if policy == CORES_ALONE:
        return cores_alone(instance, mechanism_of("sow", instance.bounds, options))
    return simulate(instance, mechanism_of(policy, instance.bounds, options, instance.counted))


def warm_up(policies: Sequence[str] = MECHANISMS) -> None:
    """Compile what is compiled, so that no time has it in it."""
    instance = draw_sow_instance(0.2, 0, rounds=40)
    for policy in policies:
        run(instance, policy)


def best_of(instance: Instance) -> float:
    """The hindsight LP. Raises AsadError if the instance's file holds another."""
    best, given = hindsight_lp(instance), instance.hindsight_lp
    if given is not None and abs(given - best) > LP_ERROR * max(1.0, abs(best)):
        raise AsadError(
            f"{instance.name}: hindsight_lp is {given:g} in the file and {best:g} by our solver; correct the file, or "
            "leave the key out"
        )
    return best


def compare(instance: Instance, policies: Sequence[str] = POLICIES, step: Step = quiet) -> dict[str, Any]:
    """Each policy on the instance. Raises AsadError if the file's own LP optimum is not ours."""
    step(f"{instance.name}: hindsight LP")
    best = best_of(instance)
    rows: dict[str, Json] = {}
    for policy in policies:
        step(f"{instance.name}: {policy}")
        outcome = run(instance, policy)
        rows[policy] = {
            "welfare_ratio": outcome.welfare / best if best > 0.0 else 1.0,
            "planned": outcome.planned,
            "evicted": outcome.evicted,
        }
    return {"hindsight_lp": best, "policies": rows}


def seeds(which: Iterable[int], step: Step = quiet) -> list[dict[str, Any]]:
    """Each policy on drawn instances of loads 1, 2 and 4, one row an instance."""
    return [
        {"load": load, "seed": seed, **compare(draw_sow_instance(load, seed), POLICIES, step)}
        for load in LOADS
        for seed in which
    ]


def gpus(which: Iterable[int], step: Step = quiet) -> list[dict[str, Any]]:
    """Policies on drawn instances with two types of GPUs, of loads 1, 2 and 4, one row an instance."""
    return [
        {"load": load, "seed": seed, **compare(draw_gpu_instance(load, seed), GPU_POLICIES, step)}
        for load in LOADS
        for seed in which
    ]


def samples(instance: Instance, step: Step = quiet) -> list[dict[str, Any]]:
    """`sow` with other errors μ of its failure probabilities, and so with other numbers of futures drawn; a row each.

    `sow-paper` is no part of it: its threshold is tied to μ, so that two things would change at once.
    """
    best, rows = best_of(instance), list[dict[str, Any]]()
    for error in ERRORS:
        step(f"{instance.name}: error {error:g}")
        mechanism = mechanism_of("sow", instance.bounds, {"error": error})
        assert isinstance(mechanism, Posted)
        begun_s = time.process_time()
        outcome = simulate(instance, mechanism)
        spent_s = time.process_time() - begun_s
        rows.append(
            {
                "error": error,
                "samples": mechanism.samples,
                "welfare_ratio": outcome.welfare / best if best > 0.0 else 1.0,
                "planned": outcome.planned,
                "evicted": outcome.evicted,
                "statements_per_s": len(instance.jobs) / max(spent_s, 1e-9),
            }
        )
    return rows


def truthfulness(
    instance: Instance,
    policy: str = "sow",
    jobs: int | None = None,
    seed: int = 0,
    step: Step = quiet,
) -> dict[str, Any]:
    """The best misreports of `jobs` jobs, spread over the instance. Gains are in units of value."""
    step(f"{instance.name}: misreports")
    mechanism = mechanism_of(policy, instance.bounds)
    assert isinstance(mechanism, Posted)
    total = len(instance.jobs)
    wanted = min(jobs or JOBS_TRIED, total)
    # from the middle of equal parts, and the last, after which nobody is born
    numbers = [*((2 * at + 1) * total // (2 * wanted) for at in range(wanted)), total - 1]
    tried = search(
        instance, mechanism, numbers, tries=TRIES, delays=DELAYS, paths=PATHS,
        samples=SAMPLES_TIMES * mechanism.samples, seed=seed,
    )  # fmt: skip
    last = tried.pop()
    gains = {kind: max((one.gain[kind] for one in tried), default=0.0) for kind in (*KINDS, "birth")}
    return {
        "misreport_gain_max": max(gains.values()),
        "by_kind": gains,
        "bound": max((one.bound for one in tried), default=0.0),
        "announced": max((one.announced_gain for one in tried), default=0.0),
        "birth_mean": float(np.mean([one.gain["birth"] for one in tried])) if tried else 0.0,
        "birth_error": max((one.birth_error for one in tried), default=0.0),
        "birth_of_last": last.gain["birth"],
        "utility_mean": float(np.mean([one.announced for one in tried])) if tried else 0.0,
        "allowed": 2.0 * mechanism.error * instance.bounds.max_value,
        "samples": mechanism.samples,
        "jobs": len(tried),
    }


def repeated(instance: Instance, statements: int) -> Instance:
    """The same jobs again and again, each time later by the rounds in which they are born, to so many of them."""
    last = max(job.statement.birth for job in instance.jobs) + 1
    jobs: list[Job] = []
    for turn in range(-(-statements // len(instance.jobs))):
        by = turn * last
        for job in instance.jobs[: statements - len(jobs)]:
            one = job.statement
            worth = replace(one.worth, deadline=one.worth.deadline + by)
            later = replace(one, birth=one.birth + by, arrival=one.arrival + np.int32(by), worth=worth)
            jobs.append(Job(later, job.arrival + by, job.duration))
    return Instance(instance.name, instance.bounds, last * (turn + 1) + instance.bounds.span, tuple(jobs))


def speed(instance: Instance, policy: str = "sow", step: Step = quiet) -> float:
    """Statements a second of CPU time, the best of several runs: plans, rounds and ends, all that is asked."""
    step(f"{instance.name}: speed")
    many = repeated(instance, SPEED_STATEMENTS)
    seconds = []
    for _ in range(SPEED_RUNS):
        mechanism, begin = mechanism_of(policy, instance.bounds), time.process_time()
        simulate(many, mechanism)
        seconds.append(time.process_time() - begin)
    return len(many.jobs) / min(seconds)


def growth(
    instance: Instance, policy: str = "sow", statements: int | None = None, step: Step = quiet
) -> dict[str, Any]:
    """Statements a second of CPU time, early and late: the instance's jobs over and over."""
    step(f"{instance.name}: growth")
    many = repeated(instance, statements or GROWTH_STATEMENTS)
    marks: list[float] = []
    simulate(many, mechanism_of(policy, instance.bounds), lambda: marks.append(time.process_time()))
    tenth = max(2, len(many.jobs) // 10)
    # the middle of many short stretches: others share the machine
    stretches = np.diff(np.array(marks)[:: max(1, tenth // 20)])
    per_s = max(1, tenth // 20) / np.maximum(stretches, 1e-9)
    early, late = per_s[: max(1, len(per_s) // 10)], per_s[-max(1, len(per_s) // 10) :]
    return {
        "statements": len(many.jobs),
        "statements_per_s": len(many.jobs) / (marks[-1] - marks[0]),
        "first_tenth_per_s": float(np.median(early)),
        "last_tenth_per_s": float(np.median(late)),
    }


def stochastic(load: float, seed: int, step: Step = quiet) -> dict[str, Any]:
    """The variant that knows of each job the kinds that it may be of, each as likely."""
    instance, prior = draw_prior(load, seed)
    step(f"{instance.name}: LP of all that may come")
    mechanism = SowStochastic(instance.bounds, prior, instance.rounds)
    best = hindsight_lp(instance)
    outcome = simulate(instance, mechanism)
    bundles = mechanism.bundles
    return {
        "load": load,
        "seed": seed,
        "welfare_ratio": outcome.welfare / best,
        "planned": outcome.planned,
        "evicted": outcome.evicted,
        "bundles_of_lp": bundles.value / bundles.lp_value if bundles.lp_value > 0.0 else 1.0,
        "proven": bundles.value / 2.0 / best,
    }
