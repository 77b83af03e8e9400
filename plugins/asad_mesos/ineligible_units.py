"""Who may not lend, and who may not be a guest."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from asad.ineligible import Ineligible
from asad.model import Codes, Ints, Jobs, Machine
from asad_mesos.view import Unit


def mark_ineligible(
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
        jobs.host_bar[row] = _first(
            (Ineligible.NO_TIME_LIMIT, not math.isfinite(unit.job.spec.time_limit_s)),
            (Ineligible.SEVERAL_NODES, len(nodes) > 1 and not lend_multi_node),
            (Ineligible.NODE_TAKES_NO_GUESTS, node_bar[nodes].any()),
            (Ineligible.SHARED_NODE, ((owners != row) & (owners >= 0)).any()),
        )
        if jobs.host_bar[row] == Ineligible.NO:
            lending.add(int(jobs.share_group[row]))
    for row in queue.tolist():
        unit = units[str(jobs.job_id[row])]
        jobs.guest_bar[row] = _first(
            (Ineligible.NO_TIME_LIMIT, not math.isfinite(unit.job.spec.time_limit_s)),
            (Ineligible.NOT_ITS_TURN, len(unit.job.groups) > 1),  # several groups start with each other
            (Ineligible.OTHER_USERS, lending and int(jobs.share_group[row]) not in lending),
        )


def _first(*reasons: tuple[Ineligible, object]) -> Ineligible:
    """The first reason that holds."""
    return next((reason for reason, holds in reasons if holds), Ineligible.NO)
