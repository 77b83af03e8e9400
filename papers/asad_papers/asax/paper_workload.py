"""The workload of the ASAx paper (§4.2, §4.4, Table 2), and its evaluation on the recorded cluster.

Fifteen jobs, submitted together three times: Montage, BLAST and Statistics on 8, 16, 32 and 64 cores, Synthetic on 16,
32 and 64, on clusters of 64, 128 and 256 cores. Run time, CPU and memory are Table 2's of the cluster size at hand,
with its standard deviations as noise; the order in the queue is drawn. Stated by us, since the paper does not: nodes
of 8 cores (its smallest job; the real machine was one large shared-memory server), time limits of 1.1 to 3 times the
printed run time, drawn evenly for each job, submissions so far apart that the queue is empty between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from asad.experts import load_experts
from asad.model import JobLog, Json, Machine
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

PAPER = {
    64: {"slurm": (4.4, 3.5), "static": (4.8, 1.7), "asax": (3.5, 1.8)},
    128: {"slurm": (2.4, 1.5), "static": (2.8, 0.8), "asax": (2.0, 1.0)},
    256: {"slurm": (1.4, 0.5), "static": (2.0, 0.3), "asax": (0.9, 0.3)},
}
"""The paper's own figures (Table 3): queue makespan and mean wait, both in hours."""

SIZES = tuple(TABLE_2)
SUBMISSIONS = 3
GAP_S = 200 * 3600.0
NODE_CORES = 8
NODE_MEMORY = 185 * 2.0**30
LIMITS = (1.1, 3.0)
"""A job asks for so many times the printed run time, drawn evenly: what runs past it is the loss of the letter."""

POLICIES = ("slurm", "fluid", "static", "asax-paper", "measured", "asax", "pool-oracle", "greedy-oracle")


def workload(cluster_cores: int, seed: int) -> tuple[Recorded, Machine, Demand]:
    """The 45 jobs of one seed on a cluster of 64, 128 or 256 cores."""
    rng = np.random.default_rng(np.random.SeedSequence((seed, cluster_cores)))
    rows = []
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
            rows.append(
                (
                    submission * GAP_S + place,
                    round(run_s),
                    cores,
                    workflow,
                    cpu / 100,
                    memory / 100 * NODE_MEMORY / NODE_CORES * cores,
                    round(float(rng.uniform(*LIMITS)) * 3600.0 * hours),
                )
            )
    table = np.array(rows, float)
    submit, run, width, kind, cpu, memory, limit = table.T
    n = len(rows)
    log = JobLog(
        job_id=np.arange(1, n + 1),
        submit_s=submit,
        start_s=np.full(n, np.nan),
        run_s=run,
        cores=width.astype(np.int32),
        nodes=np.zeros(n, np.int32),
        time_limit_s=limit,
        memory_bytes=memory,
        cpu_time_s=cpu * run * width,
        user=np.zeros(n, np.int32),
        application=kind.astype(np.int32),
        partition=np.full(n, -1, np.int32),
        depends_on=np.full(n, -1, np.int32),
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
        nodes_seen={},
    )
    measured = np.full(n, SOURCES.index("profiled"), np.int8)
    return recorded, machine, Demand(cpu, measured)


def last_submission(bench: Bench, played: Played, baseline: Played | None) -> dict[str, float | int | None]:
    """The figures of a replay (`asad.replay.schedule_figures.figures`) for the third submission alone.

    It is what learning in the first two has come to; `baseline` is the cluster left alone.
    """
    job = played.cluster.state.job
    rows = np.flatnonzero(job["submit"] >= (SUBMISSIONS - 1) * GAP_S)
    jobs = bench.workload.take(rows)
    moved = None
    if baseline is not None:
        moved = placebo(bench, baseline, int(played.touched.sum()), bench.settings.seed)
    return figures(
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
    ) | {"wall_s": played.wall_s}


def evaluate(
    *,
    seeds: Sequence[int] = tuple(range(30)),
    sizes: Sequence[int] = SIZES,
    policies: Sequence[str] = POLICIES,
    settings: Settings | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Json]:
    """Every policy at every size over all seeds: means over the seeds, and ratios of means against Slurm.

    Returns {size: {policy: figures}}; `gain_of_oracle` is the policy's gain in makespan over the oracle's.
    """
    base = settings or Settings(policies=("slurm",), overrun="run", use_memory=True, vary_demand=False)
    experts = load_experts(base.experts)
    table: dict[str, Json] = {}
    done, total = 0, len(sizes) * len(seeds)
    for size in sizes:
        found: dict[str, list[dict[str, float | int | None]]] = {name: [] for name in policies}
        for seed in seeds:
            recorded, machine, demand = workload(size, seed)
            this = replace(base, seed=seed)
            jobs = build_workload(recorded, machine, this, demand, [])
            _, names = recorded.jobs.fingerprints()
            bench = Bench(recorded, machine, this, jobs, names, experts, np.zeros(len(jobs), np.bool_))
            alone = leave_alone(bench, "slurm")
            for name in policies:
                if name == FLUID:
                    found[name].append(last_submission(bench, pour(bench), alone))
                elif name in SCHEDULING:
                    found[name].append(last_submission(bench, leave_alone(bench, name), None))
                else:
                    found[name].append(last_submission(bench, beside(bench, name, seed=seed), alone))
            done += 1
            if progress is not None:
                progress(done, total)
        table[str(size)] = _summary(found)
    return table


def _summary(found: dict[str, list[dict[str, float | int | None]]]) -> dict[str, Json]:
    """Means over the seeds (None where no seed has the figure), and ratios of means against Slurm, by policy."""

    def mean(name: str, key: str) -> float | None:
        values = [value for one in found[name] if (value := one[key]) is not None]
        return float(np.mean(values)) if values else None

    def ratio(name: str, key: str) -> float | None:
        ours, slurm = mean(name, key), mean("slurm", key)
        return ours / slurm if ours is not None and slurm else None

    summary: dict[str, Json] = {}
    for name, seeds in found.items():
        figures_of: dict[str, Json] = {key: mean(name, key) for key in seeds[0]}
        makespans = [one["makespan_s"] for one in seeds]
        figures_of["makespan_sd_s"] = float(np.std(makespans, ddof=1)) if len(seeds) > 1 else 0.0  # type: ignore[arg-type]
        if "slurm" in found:
            figures_of["makespan_ratio"] = ratio(name, "makespan_s")
            figures_of["wait_ratio"] = ratio(name, "wait_mean_s")
            figures_of["response_ratio"] = ratio(name, "response_mean_s")
            if "greedy-oracle" in found:
                ours, oracle = ratio(name, "makespan_s"), ratio("greedy-oracle", "makespan_s")
                figures_of["gain_of_oracle"] = (
                    (1 - ours) / (1 - oracle)
                    if ours is not None and oracle is not None and oracle < 1
                    else None
                )
        summary[name] = figures_of
    return summary
