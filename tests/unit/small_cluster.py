"""A small made-up cluster for tests: two nodes of four cores, a host on each, a guest, two waiting jobs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from asad.model import Jobs, Machine, Snapshot

HOST, OTHER_HOST, GUEST, WAITING, OFFERED = range(5)
"""Host with a guest on node 0, host alone on node 1, the guest, two waiting jobs of which one has an offer."""
NOW = 1000.0


def cluster(**columns: Any) -> Snapshot:
    """The made-up cluster; `columns` of its jobs are replaced by row: `pressure={HOST: 0.5}`."""
    nan = math.nan
    table: dict[str, Any] = {
        "job_id": np.array(["10", "11", "12", "13", "14"]),
        "application": np.zeros(5, np.int32),
        "user": np.zeros(5, np.int32),
        "cores": np.array([4, 4, 2, 2, 2], np.int32),
        "nodes": np.ones(5, np.int32),
        "time_limit_s": np.full(5, 3600.0),
        "memory_bytes_per_core": np.full(5, 1.0),
        "submit_s": np.zeros(5),
        "start_s": np.array([0.0, 0.0, 500.0, nan, nan]),
        "limit_end_s": np.array([3600.0, 3600.0, 4100.0, nan, nan]),
        "estimated_start_s": np.array([nan, nan, nan, 3600.0, 3600.0]),
        "begin_s": np.full(5, nan),
        "deadline_s": np.full(5, nan),
        "array": np.full(5, -1, np.int32),
        "counterfactual_start_s": np.full(5, nan),
        "own_estimate_s": np.full(5, nan),
        "cpu_fraction": np.array([0.3, 0.2, 0.9, nan, nan]),
        "pace": np.ones(5),
        "lost_s": np.zeros(5),
        "extended_s": np.zeros(5),
        "host": np.array([-1, -1, HOST, -1, OTHER_HOST], np.int32),
        "share": np.array([nan, nan, 0.3, nan, 0.4]),
        "demand": np.full(5, nan),
        "happiness": np.full(5, nan),
        "pressure": np.zeros(5),
        "latest_end_s": np.full(5, math.inf),
        "offered_s": np.array([nan, nan, nan, nan, NOW - 10]),
        "share_group": np.zeros(5, np.int32),
        "memory_bound": np.zeros(5, np.int8),
        "host_bar": np.zeros(5, np.int8),
        "guest_bar": np.zeros(5, np.int8),
    }
    node_bar = np.zeros(2, np.int8)
    for name, values in columns.items():
        column = node_bar if name == "node_bar" else table[name]
        for row, value in values.items():
            column[row] = value
    return Snapshot(
        time_s=NOW,
        version=1,
        machine=Machine(("n0", "n1"), np.array([4, 4], np.int32), np.array([16.0, 16.0]), "made up"),
        jobs=Jobs(**table),
        queue=np.array([WAITING, OFFERED], np.int32),
        running=np.array([HOST, OTHER_HOST], np.int32),
        guests=np.array([GUEST], np.int32),
        core_owner=np.repeat(np.array([HOST, OTHER_HOST], np.int32), 4),
        core_guest=np.array([-1, -1, GUEST, GUEST, -1, -1, -1, -1], np.int32),
        waiting=2,
        node_bar=node_bar,
    )
