"""Who may not lend, and who may not be a guest."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from asad.ineligible import Ineligible
from asad.model import Codes, Ints, Jobs, Machine
from asad_mesos.view import Unit


def bar(
    jobs: Jobs,
    units: Mapping[str, Unit],
    running: Ints,
    queue: Ints,
    machine: Machine,
    core_owner: Ints,
    node_bar: Codes,
    lend_multi_node: bool,
) -> None:
    """Fill the columns `host_bar` of what runs and `guest_bar` of what waits: numbers of `Ineligible`."""
    first = machine.first_core
    lending: set[int] = set()
    node_of = np.repeat(np.arange(len(machine.cores)), machine.cores)
    for row in running.tolist():
        unit = units[str(jobs.job_id[row])]
        nodes = np.unique(node_of[core_owner == row])
        owners = np.concatenate([core_owner[first[node] : first[node + 1]] for node in nodes.tolist()])
        if not math.isfinite(unit.job.spec.time_limit_s):
            jobs.host_bar[row] = Ineligible.NO_TIME_LIMIT
        elif len(nodes) > 1 and not lend_multi_node:
            jobs.host_bar[row] = Ineligible.SEVERAL_NODES
        elif node_bar[nodes].any():
            jobs.host_bar[row] = Ineligible.NODE_TAKES_NO_GUESTS
        elif bool(((owners != row) & (owners >= 0)).any()):
            jobs.host_bar[row] = Ineligible.SHARED_NODE
        else:
            lending.add(int(jobs.share_group[row]))
    for row in queue.tolist():
        unit = units[str(jobs.job_id[row])]
        if not math.isfinite(unit.job.spec.time_limit_s):
            jobs.guest_bar[row] = Ineligible.NO_TIME_LIMIT
        elif len(unit.job.groups) > 1:
            jobs.guest_bar[row] = Ineligible.NOT_ITS_TURN  # groups of several kinds start with each other
        elif lending and int(jobs.share_group[row]) not in lending:
            jobs.guest_bar[row] = Ineligible.OTHER_USERS
