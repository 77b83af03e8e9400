"""A policy tried on a made-up cluster, so that what it compiles is compiled before it meets a real one.

Compiling takes half a minute where nothing is cached, and a live cycle that takes so long lets quotas run out.
"""

from __future__ import annotations

import math

import numpy as np

from asad.model import Finished, Jobs, Machine, Snapshot
from asad.place import PlacePolicy
from asad.share import SharePolicy

HOST, OTHER, GUEST, UNDECIDED, WAITING, ENDED = range(6)
"""Hosts of one node each, the guests beside them with and without a share, a waiting job, and one that has ended."""


def warm_up(policy: SharePolicy | PlacePolicy) -> int:
    """Two cycles over the made-up cluster with a policy that is thrown away afterwards; how much it decided.

    `policy` needs a name for the application of code 0. Raises what the policy raises.
    """
    decided = 0
    for time_s in (1000.0, 1100.0):
        snapshot = _cluster(time_s)
        row = np.array([ENDED], np.int32) if time_s == 1000.0 else np.zeros(0, np.int32)
        count = len(row)
        policy.learn(
            snapshot,
            Finished(row, np.full(count, 900.0), np.full(count, 300.0), np.zeros(count), np.full(count, 0.4)),
        )
        decided += len(policy.decide(snapshot))
    return decided


def _cluster(time_s: float) -> Snapshot:
    """Two nodes of eight cores, wholly held; half of each is free of guests."""
    nan = math.nan
    jobs = Jobs(
        job_id=np.array(["1", "2", "3", "4", "5", "6"]),
        application=np.zeros(6, np.int32),
        user=np.zeros(6, np.int32),
        cores=np.array([8, 8, 4, 4, 2, 8], np.int32),
        nodes=np.array([1, 1, 1, 1, 0, 1], np.int32),
        time_limit_s=np.full(6, 7200.0),
        memory_bytes_per_core=np.full(6, 1e9),
        submit_s=np.zeros(6),
        start_s=np.array([0.0, 0.0, 500.0, 500.0, nan, 600.0]),
        limit_end_s=np.array([7200.0, 7200.0, 7700.0, 7700.0, nan, 7800.0]),
        estimated_start_s=np.array([nan, nan, nan, nan, 7200.0, nan]),
        begin_s=np.full(6, nan),
        deadline_s=np.full(6, nan),
        array=np.full(6, -1, np.int32),
        counterfactual_start_s=np.array([0.0, 0.0, nan, nan, nan, 600.0]),
        own_estimate_s=np.array([nan, nan, 7200.0, 7200.0, 7200.0, nan]),
        cpu_fraction=np.array([0.1, 0.1, 0.3, 0.3, nan, 0.4]),
        pace=np.array([0.9, 1.0, 0.5, 0.5, nan, 1.0]),
        lost_s=np.array([10.0, 0.0, 100.0, 100.0, 0.0, 0.0]),
        extended_s=np.zeros(6),
        host=np.array([-1, -1, HOST, OTHER, -1, -1], np.int32),
        share=np.array([nan, nan, 0.1, nan, nan, nan]),
        demand=np.array([nan, nan, 0.3, 0.3, nan, nan]),
        happiness=np.full(6, nan),
        pressure=np.zeros(6),
        latest_end_s=np.full(6, math.inf),
        offered_s=np.full(6, nan),
        share_group=np.zeros(6, np.int32),
        memory_bound=np.zeros(6, np.int8),
        host_bar=np.zeros(6, np.int8),
        guest_bar=np.zeros(6, np.int8),
    )
    half = np.repeat(np.array([True, False]), 4)
    return Snapshot(
        time_s=time_s,
        version=int(time_s),
        machine=Machine(("a", "b"), np.array([8, 8], np.int32), np.full(2, 64e9), "made up"),
        jobs=jobs,
        queue=np.array([WAITING], np.int32),
        running=np.array([HOST, OTHER], np.int32),
        guests=np.array([GUEST, UNDECIDED], np.int32),
        core_owner=np.repeat(np.array([HOST, OTHER], np.int32), 8),
        core_guest=np.concatenate((np.where(half, GUEST, -1), np.where(half, UNDECIDED, -1))).astype(
            np.int32
        ),
        waiting=1,
        node_bar=np.zeros(2, np.int8),
    )
