"""The workload of the ASAx paper (§4.2, §4.4, Table 2), and its evaluation on the recorded cluster.

Fifteen workflow runs, submitted together three times: Montage, BLAST and Statistics on 8, 16, 32 and 64 cores,
Synthetic on 16, 32 and 64, on clusters of 64, 128 and 256 cores. Run time, CPU and memory are Table 2's of the cluster
size at hand, with its standard deviations as noise; the order in the queue is drawn. Stated by us, since the paper does
not: nodes of 8 cores (its smallest job; the real machine was one large shared-memory server), time limits of 1.1 to 3
times the printed run time, drawn evenly for each run, submissions so far apart that the queue is empty between them.

A run is one job, or with `chained` one job a stage (`STAGES`), each of which waits for the last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from asad.experts import load_experts
from asad.model import Floats, Ints, JobLog, Json, Machine
from asad.replay.cpu_demand import SOURCES, Demand
from asad.replay.placebo import placebo
from asad.replay.playing import Played, beside, leave_alone, pour
from asad.replay.policies import FLUID, SCHEDULING
from asad.replay.readers import Recorded
from asad.replay.replay_settings import Settings
from asad.replay.schedule_figures import figures
from asad.replay.workbench import Bench
from asad.replay.workload import build_workload

WORKFLOWS = ("montage", "blast", "statistics", "synthetic")

TABLE_2 = {
    64: ((0.35, 4, 45, 10), (0.71, 21, 96, 44), (0.69, 10, 26, 5), (0.49, 15, 99, 95)),
    128: ((0.32, 4, 33, 7), (0.72, 22, 95, 45), (0.70, 10, 16, 1), (0.50, 15, 99, 93)),
    256: ((0.29, 4, 21, 5), (0.70, 21, 91, 42), (0.72, 10, 10, 1), (0.48, 14, 99, 92)),
}
"""Cores of the cluster → of each workflow: run time (h), its deviation (%), CPU (%), memory (%), under Slurm."""

STAGES: dict[str, tuple[bool, ...]] = {
    "montage": (True, False, True, False),
    "blast": (True, False),
    "statistics": (False, True, False, True),
    "synthetic": (False, True),
}
"""Of each workflow its stages in their order (§4.2): parallel (all of its cores), or sequential (a node, the smallest
request there is). The paper prints no times of stages: all of a run are taken as equally long."""


class Printed(NamedTuple):
    """One strategy on one cluster, as the paper's Table 3 prints it."""

    wait_h: float
    wait_sd: float
    """Its deviation, as a part of it; so below."""
    cpu: float
    """CPU used over the cores of the cluster."""
    response_h: float
    """Called response time there: the makespan of the queue."""
    response_sd: float


PAPER = {
    64: {
        "slurm": Printed(3.5, 0.01, 0.53, 4.4, 0.01),
        "static": Printed(1.7, 0.01, 0.90, 4.8, 0.01),
        "asax": Printed(1.8, 0.05, 0.82, 3.5, 0.03),
    },
    128: {
        "slurm": Printed(1.5, 0.01, 0.45, 2.4, 0.01),
        "static": Printed(0.8, 0.01, 0.92, 2.8, 0.01),
        "asax": Printed(1.0, 0.08, 0.84, 2.0, 0.02),
    },
    256: {
        "slurm": Printed(0.5, 0.01, 0.32, 1.4, 0.01),
        "static": Printed(0.3, 0.01, 0.89, 2.0, 0.01),
        "asax": Printed(0.3, 0.07, 0.83, 0.9, 0.02),
    },
}
"""The paper's own figures (Table 3) by cores of the cluster and strategy."""

PAPER_RUNS: dict[int, dict[str, tuple[tuple[float, float, float], ...]]] = {
    64: {
        "slurm": ((0.35, 0.04, 0.45), (0.71, 0.21, 0.96), (0.69, 0.10, 0.26), (0.49, 0.15, 0.99)),
        "static": ((0.38, 0.07, 0.94), (0.82, 0.30, 0.99), (0.77, 0.30, 0.51), (0.57, 0.21, 0.99)),
        "asax": ((0.35, 0.05, 0.95), (0.75, 0.25, 0.99), (0.73, 0.11, 0.61), (0.56, 0.18, 0.99)),
    },
    128: {
        "slurm": ((0.32, 0.04, 0.33), (0.72, 0.22, 0.95), (0.70, 0.10, 0.16), (0.50, 0.15, 0.99)),
        "static": ((0.35, 0.06, 0.73), (0.79, 0.29, 0.99), (0.76, 0.11, 0.36), (0.57, 0.21, 0.99)),
        "asax": ((0.33, 0.05, 0.75), (0.73, 0.24, 0.99), (0.72, 0.11, 0.43), (0.55, 0.18, 0.99)),
    },
    256: {
        "slurm": ((0.29, 0.04, 0.21), (0.70, 0.21, 0.91), (0.72, 0.10, 0.10), (0.48, 0.14, 0.99)),
        "static": ((0.32, 0.06, 0.55), (0.80, 0.29, 0.99), (0.76, 0.11, 0.26), (0.53, 0.19, 0.99)),
        "asax": ((0.30, 0.04, 0.51), (0.76, 0.25, 0.99), (0.73, 0.11, 0.86), (0.52, 0.17, 0.99)),
    },
}
"""Table 2 by cores of the cluster and strategy: of each workflow its run time (h), its deviation (a part of it), and
its CPU over what was allocated to it, of which a co-located job has a part of each core."""

SIZES = tuple(TABLE_2)
SUBMISSIONS = 3
LEAST_GAIN = 0.05
"""An oracle that gains less is no yardstick: a part of nothing says nothing."""
GAP_S = 200 * 3600.0
NODE_CORES = 8
NODE_MEMORY = 185 * 2.0**30
LIMITS = (1.1, 3.0)
"""A job asks for so many times the printed run time, drawn evenly: what runs past it is the loss of the letter."""

SETTINGS = Settings(policies=("slurm",), overrun="run", use_memory=True, vary_demand=False)
HELD = {"asax/quotas": "static", "static/idle": "idle"}
"""Isolation apart from learning: a policy whose guests are held as those of the other are."""
POLICIES = (
    "slurm",
    "fluid",
    "static",
    "asax-paper",
    "measured",
    "asax",
    "pool-oracle",
    "greedy-oracle",
    *HELD,
)


class Case(NamedTuple):
    """The workload of one seed on one cluster."""

    recorded: Recorded
    machine: Machine
    demand: Demand
    run: Ints
    """(jobs,) The workflow run that a job is, or is a stage of; numbered in the order of submission."""


class Runs(NamedTuple):
    """What became of the workflow runs of one replay; columns are (runs,)."""

    workflow: Ints
    """Index into `WORKFLOWS`."""
    submission: Ints
    """0, 1 or 2."""
    submit_s: Floats
    end_s: Floats
    run_s: Floats
    """The sum over its stages, as the paper measures it (§4.3)."""
    used_core_s: Floats
    """CPU that it really used."""
    held_core_s: Floats
    """Cores that it asked for, over the time that it ran."""


def workload(cluster_cores: int, seed: int, chained: bool = False) -> Case:
    """The 45 runs of one seed on a cluster of 64, 128 or 256 cores; `chained` as jobs of one stage each."""
    rng = np.random.default_rng(np.random.SeedSequence((seed, cluster_cores)))
    rows: list[tuple[float, ...]] = []
    run = depends = -1
    for submission in range(SUBMISSIONS):
        jobs = [
            (workflow, cores)
            for workflow, name in enumerate(WORKFLOWS)
            for cores in (8, 16, 32, 64)
            if not (name == "synthetic" and cores == 8)
        ]
        for place, k in enumerate(rng.permutation(len(jobs)).tolist()):
            workflow, cores = jobs[k]
            hours, deviation, cpu, memory = TABLE_2[cluster_cores][workflow]
            run_s = 3600.0 * hours * max(0.3, 1 + deviation / 100 * rng.standard_normal())
            limit_s = float(rng.uniform(*LIMITS)) * 3600.0 * hours
            run, depends = run + 1, -1
            stages = STAGES[WORKFLOWS[workflow]] if chained else (True,)
            for parallel in stages:
                width = cores if parallel else NODE_CORES
                share = memory / 100 * NODE_MEMORY / NODE_CORES * width
                # one submission's stages follow each other, so that a stage is an earlier row than those behind it
                rows.append(
                    (
                        submission * GAP_S + place, max(1, round(run_s / len(stages))), width, workflow, cpu / 100,
                        share, max(60, round(limit_s / len(stages))), depends, run,
                    )
                )  # fmt: skip
                depends = len(rows) - 1
    submit, length, width_of, kind, cpu_of, memory_of, limit, waits_for, run_of = np.array(rows, float).T
    n = len(rows)
    log = JobLog(
        job_id=np.arange(1, n + 1),
        submit_s=submit,
        start_s=np.full(n, np.nan),
        run_s=length,
        cores=width_of.astype(np.int32),
        nodes=np.zeros(n, np.int32),
        time_limit_s=limit,
        memory_bytes=memory_of,
        cpu_time_s=cpu_of * length * width_of,
        user=np.zeros(n, np.int32),
        application=kind.astype(np.int32),
        partition=np.full(n, -1, np.int32),
        depends_on=waits_for.astype(np.int32),
        think_s=np.zeros(n),
        users=("user",),
        applications=WORKFLOWS,
    )
    nodes = cluster_cores // NODE_CORES
    machine = Machine(
        tuple(f"n{k}" for k in range(1, nodes + 1)),
        np.full(nodes, NODE_CORES, np.int32),
        np.full(nodes, NODE_MEMORY),
        f"ASAx paper: {cluster_cores} cores, taken as nodes of {NODE_CORES}",
    )
    recorded = Recorded(
        jobs=log,
        path="asax-paper",
        format="generated",
        header={},
        absent=(),
        counts={"lines": n},
        bad=[],
        notes=[],
        held=None,
    )
    measured = np.full(n, SOURCES.index("profiled"), np.int8)
    return Case(recorded, machine, Demand(cpu_of, measured), run_of.astype(np.int32))


def runs_of(case: Case, bench: Bench, played: Played) -> Runs:
    """The workflow runs of one replay, each the sum of its stages."""
    job, jobs = played.cluster.state.job, bench.workload
    first = np.flatnonzero(np.diff(case.run, prepend=-1))
    length = job["end"] - job["start"]

    def total(column: Floats) -> Floats:
        return np.asarray(np.add.reduceat(column, first), float)

    return Runs(
        workflow=case.recorded.jobs.application[first],
        submission=(jobs.submit_s[first] // GAP_S).astype(np.int32),
        submit_s=jobs.submit_s[first],
        end_s=np.maximum.reduceat(job["end"], first),
        run_s=total(length),
        used_core_s=total(jobs.cores * played.done_s * jobs.demand),
        held_core_s=total(jobs.cores * length),
    )


def submission_figures(runs: Runs, total_cores: int, submission: int) -> dict[str, float]:
    """Makespan of the queue, mean wait and response (s), and CPU used over the cluster's, of one submission."""
    here = runs.submission == submission
    response_s = runs.end_s[here] - runs.submit_s[here]
    makespan_s = float(runs.end_s[here].max() - runs.submit_s[here].min())
    return {
        "makespan_s": makespan_s,
        "response_mean_s": float(response_s.mean()),
        "wait_mean_s": float((response_s - runs.run_s[here]).mean()),
        "cpu_utilization": float(runs.used_core_s[here].sum()) / (total_cores * makespan_s),
    }


def last_submission(case: Case, bench: Bench, played: Played, baseline: Played | None) -> dict[str, Any]:
    """The figures of a replay (`asad.replay.schedule_figures.figures`) for the third submission alone.

    It is what learning in the first two has come to; `baseline` is the cluster left alone. Those of whole runs stand
    in place of those of single stages. `by_submission` has all three, `runs` the runs themselves.
    """
    job = played.cluster.state.job
    rows = np.flatnonzero(job["submit"] >= (SUBMISSIONS - 1) * GAP_S)
    jobs = bench.workload.take(rows)
    moved = None
    if baseline is not None:
        moved = placebo(bench, baseline, int(played.touched.sum()), bench.settings.seed)
    found = figures(
        jobs,
        bench.machine.total_cores,
        start_s=job["start"][rows],
        end_s=job["end"][rows],
        done_s=played.done_s[rows],
        demand=jobs.demand,
        overran=bench.overran[rows],
        cut=job["killed"][rows],
        host=job["was_host"][rows],
        guest=job["was_guest"][rows],
        lent_core_s=float(job["lent"][rows].sum()),
        baseline_end_s=None if baseline is None else baseline.cluster.state.job["end"][rows],
        displaced_placebo=None if moved is None else moved.late,
        displaced_unshared_placebo=None if moved is None else moved.unshared,
    )
    runs = runs_of(case, bench, played)
    submissions = [
        submission_figures(runs, bench.machine.total_cores, number) for number in range(SUBMISSIONS)
    ]
    return {
        **found, **submissions[-1], "wall_s": played.wall_s, "by_submission": submissions, "runs": runs,
    }  # fmt: skip


def evaluate(
    *,
    seeds: Sequence[int] = tuple(range(30)),
    sizes: Sequence[int] = SIZES,
    policies: Sequence[str] = POLICIES,
    chained: bool = False,
    settings: Settings | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Json]:
    """Every policy at every size over all seeds: means over the seeds, and ratios of means against Slurm.

    Returns {size: {policy: figures}}; `gain_of_oracle` is the policy's gain in makespan over the oracle's,
    `by_submission` the learning curve, `workflows` Table 2 (both with deviations over the seeds).
    """
    base = settings or SETTINGS
    experts = load_experts(base.experts)
    table: dict[str, Json] = {}
    done, total = 0, len(sizes) * len(seeds)
    for size in sizes:
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in policies}
        for seed in seeds:
            case = workload(size, seed, chained)
            recorded, this = case.recorded, replace(base, seed=seed)
            jobs = build_workload(recorded, case.machine, this, case.demand, [])
            _, names = recorded.jobs.fingerprints()
            bench = Bench(recorded, case.machine, this, jobs, names, experts, np.zeros(len(jobs), np.bool_))
            alone = leave_alone(bench, "slurm")
            for name in policies:
                if name == FLUID:
                    played, baseline = pour(bench), alone
                elif name in SCHEDULING:
                    played, baseline = leave_alone(bench, name), None
                else:
                    policy, held = name.partition("/")[0], HELD.get(name)
                    played, baseline = beside(bench, policy, seed=seed, what=name, held=held), alone
                found[name].append(last_submission(case, bench, played, baseline))
            done += 1
            if progress is not None:
                progress(done, total)
        table[str(size)] = _summary(found)
    return table


def _summary(found: Mapping[str, Sequence[dict[str, Any]]]) -> dict[str, Json]:
    """Means over the seeds (None where no seed has the figure), and ratios of means against Slurm, by policy."""

    def mean(name: str, key: str) -> float | None:
        values = [value for one in found[name] if (value := one[key]) is not None]
        return float(np.mean(values)) if values else None

    def ratio(name: str, key: str) -> float | None:
        ours, slurm = mean(name, key), mean("slurm", key)
        return ours / slurm if ours is not None and slurm else None

    summary: dict[str, Json] = {}
    for name, seeds in found.items():
        plain = [key for key in seeds[0] if key not in ("by_submission", "runs")]
        figures_of: dict[str, Json] = {key: mean(name, key) for key in plain}
        figures_of["makespan_sd_s"] = _deviation([one["makespan_s"] for one in seeds])
        figures_of["wait_sd_s"] = _deviation([one["wait_mean_s"] for one in seeds])
        if "slurm" in found:
            for key in ("makespan", "wait", "response"):
                figures_of[f"{key}_ratio"] = ratio(name, f"{key}_s" if key == "makespan" else f"{key}_mean_s")
            if "greedy-oracle" in found:
                ours, oracle = ratio(name, "makespan_s"), ratio("greedy-oracle", "makespan_s")
                figures_of["gain_of_oracle"] = (
                    (1 - ours) / (1 - oracle)
                    if ours is not None and oracle is not None and oracle <= 1.0 - LEAST_GAIN
                    else None
                )
        figures_of["by_submission"] = [
            _with_deviations([one["by_submission"][number] for one in seeds]) for number in range(SUBMISSIONS)
        ]
        figures_of["workflows"] = _by_workflow([one["runs"] for one in seeds])
        summary[name] = figures_of
    return summary


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _with_deviations(seeds: Sequence[Mapping[str, float]]) -> dict[str, Json]:
    """Of each figure its mean over the seeds, and below its name and `_sd` its deviation."""
    found: dict[str, Json] = {}
    for key in seeds[0]:
        values = [one[key] for one in seeds]
        found |= {key: float(np.mean(values)), f"{key}_sd": _deviation(values)}
    return found


def _by_workflow(seeds: Sequence[Runs]) -> dict[str, Json]:
    """Table 2 of the third submission: of each workflow its run time and its CPU over the cores that it asked for."""
    found: dict[str, Json] = {}
    for number, name in enumerate(WORKFLOWS):
        here = [(runs.workflow == number) & (runs.submission == SUBMISSIONS - 1) for runs in seeds]
        run_s, used, held = (
            np.concatenate([column[rows] for column, rows in zip(columns, here, strict=True)])
            for columns in zip(*((one.run_s, one.used_core_s, one.held_core_s) for one in seeds), strict=True)
        )
        found[name] = {
            "run_mean_s": float(run_s.mean()), "run_sd_s": _deviation(run_s.tolist()),
            "cpu_of_cores": float(used.sum() / held.sum()),
        }  # fmt: skip
    return found
