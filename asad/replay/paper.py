"""The workload of the ASAx paper (§4.2, §4.4, Table 2), and its evaluation on the recorded cluster.

Fifteen jobs, submitted together three times: Montage, BLAST and Statistics on 8, 16, 32 and 64 cores, Synthetic on 16,
32 and 64, on clusters of 64, 128 and 256 cores. Run time, CPU and memory are Table 2's of the cluster size at hand,
with its standard deviations as noise; the order in the queue is drawn. Stated by us, since the paper does not: nodes
of 8 cores (its smallest job; the real machine was one large shared-memory server), time limits of twice the printed
run time, submissions so far apart that the queue is empty between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from asad.model import JobLog, Json, Machine
from asad.replay.readers import Recorded
from asad.replay.run import LENDING, Bench, Played, Settings, build_workload, leave_alone, lend
from asad.replay.demand import SOURCES, Demand
from asad.experts import load_experts

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
LIMIT = 2.0
FIRST_S = 100.0

POLICIES = ("slurm", "static", "asax-paper", "asax", "greedy-oracle")


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
                    LIMIT * 3600.0 * hours,
                )
            )
    submit, run, cores, workflow, cpu, memory, limit = (np.array(column, float) for column in zip(*rows, strict=True))
    n = len(rows)
    log = JobLog(
        job_id=np.arange(1, n + 1),
        submit_s=submit,
        start_s=np.full(n, np.nan),
        run_s=run,
        cores=cores.astype(np.int32),
        nodes=np.zeros(n, np.int32),
        time_limit_s=limit,
        memory_bytes=memory,
        cpu_time_s=cpu * run * cores,
        user=np.zeros(n, np.int32),
        application=workflow.astype(np.int32),
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


def last_submission(played: Played, bench: Bench) -> dict[str, float]:
    """Figures of the third submission: what learning in the first two has come to."""
    job = played.cluster.state.job
    rows = job["submit"] >= (SUBMISSIONS - 1) * GAP_S
    submit, start, end = (job[name][rows] for name in ("submit", "start", "end"))
    work, cores, demand = bench.workload.work_s[rows], bench.workload.cores[rows], bench.workload.demand[rows]
    makespan = float(end.max() - submit.min())
    stretch = (end - start) / work
    return {
        "makespan_s": makespan,
        "response_mean_s": float((end - submit).mean()),
        "wait_mean_s": float((start - submit).mean()),
        "cpu_utilization": float((work * cores * demand).sum() / (makespan * bench.machine.total_cores)),
        "runtime_stretch_mean": float(stretch.mean()),
        "runtime_stretch_p95": float(np.percentile(stretch, 95)),
        "guests": float(job["was_guest"][rows].sum()),
    }


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
        found: dict[str, list[dict[str, float]]] = {name: [] for name in policies}
        for seed in seeds:
            recorded, machine, demand = workload(size, seed)
            this = replace(base, seed=seed)
            jobs = build_workload(recorded, machine, this, demand, [])
            _, names = recorded.jobs.fingerprints()
            bench = Bench(recorded, machine, this, jobs, names, experts, np.zeros(len(jobs), np.bool_))
            for name in policies:
                played = lend(bench, name, seed) if name in LENDING else leave_alone(bench, name)
                found[name].append(last_submission(played, bench))
            done += 1
            if progress is not None:
                progress(done, total)
        table[str(size)] = _summary(found)
    return table


def _summary(found: dict[str, list[dict[str, float]]]) -> dict[str, Json]:
    """Means, deviations over the seeds, and ratios against Slurm, by policy."""
    means = {
        name: {key: float(np.mean([one[key] for one in all_seeds])) for key in all_seeds[0]}
        for name, all_seeds in found.items()
    }
    summary: dict[str, Json] = {}
    for name, mean in means.items():
        figures: dict[str, Json] = dict(mean)
        figures["makespan_sd_s"] = float(np.std([one["makespan_s"] for one in found[name]], ddof=1)) if len(found[name]) > 1 else 0.0
        if "slurm" in means:
            slurm = means["slurm"]
            figures["makespan_ratio"] = mean["makespan_s"] / slurm["makespan_s"]
            figures["wait_ratio"] = mean["wait_mean_s"] / slurm["wait_mean_s"] if slurm["wait_mean_s"] else None
            figures["response_ratio"] = mean["response_mean_s"] / slurm["response_mean_s"]
            if "greedy-oracle" in means:
                gain = slurm["makespan_s"] - means["greedy-oracle"]["makespan_s"]
                figures["gain_of_oracle"] = (slurm["makespan_s"] - mean["makespan_s"]) / gain if gain > 0 else None
        summary[name] = figures
    return summary
