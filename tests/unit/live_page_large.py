"""A large cluster on the live page: what a daemon would answer of it, cycle after cycle."""

from __future__ import annotations

from typing import Any

import numpy as np
from live_page_samples import answer, columns_of_jobs, columns_of_nodes


def large(nodes: int, jobs: int, cycle: int, seed: int = 1) -> dict[str, Any]:
    """The answer of one cycle. From one to the next the measured use and pressure of every node differ, and of every
    job that runs; a hundredth of the queue has gone and come."""
    rng = np.random.default_rng([seed, cycle])
    columns = columns_of_nodes(nodes, cores=64)
    columns["used"] = np.round(rng.uniform(0, 64, nodes), 2).tolist()
    columns["pool"] = np.round(rng.uniform(0, 48, nodes), 1).tolist()
    columns["pressure"] = np.round(rng.uniform(0, 0.3, nodes), 3).tolist()
    first = 100_000 + cycle * (jobs // 100)
    rows = [
        (
            str(first + number),
            "running" if number < nodes else "waiting",
            f"user{number % 300}",
            f"application-{number % 97}",
            64,
            "",
        )
        for number in range(jobs)
    ]
    table = columns_of_jobs(rows)
    table["cpu_fraction"][:nodes] = np.round(rng.uniform(0, 1, nodes), 3).tolist()
    found = answer(cycle + 1, private=False, nodes=columns, jobs=table)
    found["status"]["cluster"] |= {
        "nodes": nodes,
        "cores": 64 * nodes,
        "running": nodes,
        "waiting": jobs - nodes,
    }
    found["now_s"] += 30.0 * cycle
    return found
