"""A log of the size of CEA Curie's, drawn by a fixed seed: 5 000 nodes of 16 cores, 260 000 jobs.

Made up, not measured: it has the size of the machine and of the log, and a load under which jobs wait. What it says of
cost holds for large machines; what a policy gains on it means nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from asad.model import Floats, Ints

NODES, CORES_A_NODE, JOBS = 5_000, 16, 260_000
LOAD = 0.9
"""Core-seconds of all jobs over those of the machine from the first submission to the last."""
SEED = 20111
APPLICATIONS, USERS = 1_500, 300
SIZES = (
    (0.65, (1, 2, 4, 8, 16)),
    (0.22, tuple(16 * nodes for nodes in (2, 4, 8, 16))),
    (0.10, tuple(16 * nodes for nodes in (24, 32, 64, 128))),
    (0.03, tuple(16 * nodes for nodes in (200, 256, 400, 512))),
)
"""Part of the applications, and the cores that the jobs of one of them ask for, each as often."""
MEDIAN_S, SPREAD, WITHIN = 1200.0, 1.2, 0.6
"""Run times: median over the applications, and standard deviation of the logarithm between and within them."""
LONGEST_S = 86_400.0
LIMITS_S = (1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0, 43_200.0, 86_400.0)
OVERSTATED = 4.0
"""Time limits are the next of `LIMITS_S` above the run time times something between 1 and this."""


class Drawn(NamedTuple):
    """The jobs in order of submission, a row each."""

    submit_s: Floats
    run_s: Floats
    limit_s: Floats
    cores: Ints
    application: Ints
    user: Ints


def draw() -> Drawn:
    """All jobs; the same each time."""
    rng = np.random.default_rng(SEED)
    part = np.array([part for part, _ in SIZES])
    kind = rng.choice(len(SIZES), APPLICATIONS, p=part)
    widths = [rng.choice(SIZES[one][1]) for one in kind.tolist()]
    median = np.log(MEDIAN_S) + SPREAD * rng.standard_normal(APPLICATIONS)
    user = rng.integers(0, USERS, APPLICATIONS)
    # a few applications are run over and over, most of them seldom
    often = 1.0 / (10.0 + rng.permutation(APPLICATIONS))
    application = rng.choice(APPLICATIONS, JOBS, p=often / often.sum())
    run_s = np.exp(median[application] + WITHIN * rng.standard_normal(JOBS))
    run_s = np.ceil(np.clip(run_s, 10.0, LONGEST_S))
    asked = np.minimum(run_s * rng.uniform(1.0, OVERSTATED, JOBS), LONGEST_S)
    limit_s = np.array(LIMITS_S)[np.searchsorted(LIMITS_S, asked)]
    cores = np.array(widths, np.int32)[application]
    # by day twice as many come as by night
    gap = rng.exponential(1.0, JOBS)
    span_s = float((run_s * cores).sum()) / (LOAD * NODES * CORES_A_NODE)
    at = np.cumsum(gap) * (span_s / gap.sum())
    submit_s = np.floor(at + 86_400.0 / (2 * np.pi) / 3.0 * np.sin(2 * np.pi * at / 86_400.0))
    order = np.argsort(submit_s, kind="stable")
    rows = (run_s, limit_s, cores, application.astype(np.int32), user[application].astype(np.int32))
    return Drawn(submit_s[order], *(column[order] for column in rows))


def describe(jobs: Drawn) -> str:
    """Sizes, run times and load, as they were drawn."""
    cores = jobs.cores
    small = float((cores <= CORES_A_NODE).mean())
    large = float((cores >= 100 * CORES_A_NODE).mean())
    days = (jobs.submit_s[-1] - jobs.submit_s[0]) / 86_400.0
    offered = float((jobs.run_s * cores).sum()) / (NODES * CORES_A_NODE * days * 86_400.0)
    return (
        f"{NODES:,} nodes of {CORES_A_NODE} cores; {len(cores):,} jobs in {days:.1f} days, offered load {offered:.2f}; "
        f"{small:.0%} on one node, {large:.0%} on 100 or more; cores: median {np.median(cores):.0f}, mean "
        f"{cores.mean():.0f}, most {cores.max():,}; run times: median {np.median(jobs.run_s) / 60:.0f} min, mean "
        f"{jobs.run_s.mean() / 60:.0f} min"
    )


def write(jobs: Drawn, path: Path, first: int) -> None:
    """The first so many jobs as a log in the Standard Workload Format."""
    with path.open("w") as file:
        file.write(f"; Computer: made up\n; MaxNodes: {NODES}\n; MaxProcs: {NODES * CORES_A_NODE}\n")
        file.write("; UnixStartTime: 1300000000\n")
        columns = [column[:first].astype(np.int64).tolist() for column in jobs]
        for k, (submit, run, limit, cores, application, user) in enumerate(
            zip(*columns, strict=True), start=1
        ):
            file.write(
                f"{k} {submit} -1 {run} {cores} -1 -1 {cores} {limit} -1 1 {user + 1} 1 {application + 1} 1 -1 -1 -1\n"
            )
