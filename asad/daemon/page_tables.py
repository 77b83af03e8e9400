"""Columns of jobs and nodes for the live page: much shorter than the rows of `asad.status`, and made without a loop
over cores or nodes, since they are made in every cycle in which somebody watches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from asad.ineligible import Ineligible, NodeIneligible
from asad.model import Floats, Json, Snapshot
from asad.status import name_of, user_of

NAME = 120
"""Characters of a job's name that are passed on; users may give it thousands."""


def job_columns(snapshot: Snapshot, applications: Sequence[str]) -> dict[str, Json]:
    """Guests, batch jobs that run, and the queue in its order: one list for each column, all of one length.

    Times are whole seconds, shares and fractions have three decimals; None is not known.
    """
    jobs = snapshot.jobs
    rows = np.concatenate([snapshot.guests, snapshot.running, snapshot.queue])
    states = np.repeat(
        ["guest", "running", "waiting"], [len(snapshot.guests), len(snapshot.running), len(snapshot.queue)]
    )
    states[(states == "waiting") & ~np.isnan(jobs.offered_s[rows])] = "offered"
    hosts = jobs.host[rows]
    known_hosts = np.where(hosts >= 0, jobs.job_id[hosts].astype(str), "") if len(rows) else hosts.astype(str)
    columns: dict[str, Any] = {
        "job": jobs.job_id[rows].astype(str).tolist(),
        "state": states.tolist(),
        "user": [user_of(snapshot, applications, row) for row in rows.tolist()],
        "name": [name_of(snapshot, applications, row)[:NAME] for row in rows.tolist()],
        "cores": jobs.cores[rows].tolist(),
        "submit_s": _numbers(jobs.submit_s[rows]),
        "start_s": _numbers(jobs.start_s[rows]),
        "limit_end_s": _numbers(jobs.limit_end_s[rows]),
        "estimated_start_s": _numbers(jobs.estimated_start_s[rows]),
        "cpu_fraction": _numbers(jobs.cpu_fraction[rows], 3),
        "pressure": _numbers(jobs.pressure[rows], 3),
        "happiness": _numbers(jobs.happiness[rows], 3),
        "host": known_hosts.tolist(),
        "share": _numbers(jobs.share[rows], 3),
        "host_bar": _texts(jobs.host_bar[rows], Ineligible),
        "guest_bar": _texts(jobs.guest_bar[rows], Ineligible),
    }
    return columns


def node_columns(
    snapshot: Snapshot, actors: Sequence[str], have_actors: bool, pool: Floats | None = None
) -> dict[str, Json]:
    """Every node: one list for each column; `pool` is what the pool of each held, as the share policy has it.

    `used` and `lent` are cores' worth of CPU; `used` is what was measured of batch jobs and guests, None where nothing
    was measured of jobs that hold cores there. `pressure` is that of the node's most pressed batch job.
    """
    machine, jobs, count = snapshot.machine, snapshot.jobs, len(snapshot.machine.cores)
    node = np.repeat(np.arange(count), machine.cores)
    owner, guest = snapshot.core_owner, snapshot.core_guest
    owned, hosting = owner >= 0, guest >= 0

    def by_node(values: NDArray[Any]) -> Floats:
        return np.bincount(node, values.astype(np.float64), count).astype(np.float64)

    use = np.where(owned, jobs.cpu_fraction[owner], np.nan)
    guest_use = np.where(hosting, jobs.cpu_fraction[guest], np.nan)
    measured = by_node(~np.isnan(use))
    used = np.minimum(by_node(np.nan_to_num(use)) + by_node(np.nan_to_num(guest_use)), machine.cores)
    allocated = by_node(owned)
    used[(allocated > 0) & (measured == 0)] = np.nan
    pooled = np.where(hosting, jobs.demand[guest], np.nan)
    lent = by_node(np.nan_to_num(pooled))
    paired = np.unique(
        np.stack([node[hosting & np.isnan(pooled)], guest[hosting & np.isnan(pooled)]]), axis=1
    )
    np.add.at(lent, paired[0], np.nan_to_num(jobs.share[paired[1]]) * machine.cores[paired[0]])
    pressure = np.full(count, np.nan)
    np.fmax.at(pressure, node[owned], jobs.pressure[owner[owned]])
    guests = np.bincount(np.unique(np.stack([node[hosting], guest[hosting]]), axis=1)[0], minlength=count)
    answering = set(actors)
    columns: dict[str, Any] = {
        "node": list(machine.node_names),
        "cores": machine.cores.tolist(),
        "allocated": allocated.astype(int).tolist(),
        "used": _numbers(used, 2),
        "lent": _numbers(lent, 2),
        "pressure": _numbers(pressure, 3),
        "guests": guests.tolist(),
        "bar": _texts(snapshot.node_bar, NodeIneligible),
        "silent": [have_actors and name not in answering for name in machine.node_names],
    }
    if pool is not None and len(pool) == count:  # nodes may have come since the policy has looked
        columns["pool"] = _numbers(pool, 1)
    return columns


def _numbers(values: Floats, decimals: int = 0) -> list[Json]:
    """Numbers with so many decimals, None where they are not finite; whole ones are whole in JSON too."""
    finite, rounded = np.isfinite(values), np.round(values, decimals)
    if not decimals:
        rounded = np.where(finite, rounded, 0).astype(np.int64)
    return [
        value if is_finite else None
        for value, is_finite in zip(rounded.tolist(), finite.tolist(), strict=True)
    ]


def _texts(codes: NDArray[Any], kind: type[Ineligible] | type[NodeIneligible]) -> list[Json]:
    """What codes mean; the empty text of 0."""
    texts = {code: kind(code).text for code in np.unique(codes).tolist()}
    return cast("list[Json]", [texts[code] for code in codes.tolist()])
