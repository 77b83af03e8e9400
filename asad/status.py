"""What a daemon shows of a snapshot, as plain data for `asactl`: who lends to whom, jobs, nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asad.ineligible import Ineligible, NodeIneligible
from asad.model import Ints, Json, Snapshot
from asad.port import NodeReport

FREE = "free"
"""Where a guest draws from free cores, in place of a job's number."""


def known(value: Any) -> Json:
    """A number of a column, or None where it is NaN or infinite."""
    number = float(value)
    return number if math.isfinite(number) else None


def user_of(snapshot: Snapshot, applications: Sequence[str], row: int) -> str:
    """The user in the fingerprint of a job's application (`user/name/size`)."""
    code = int(snapshot.jobs.application[row])
    return applications[code].partition("/")[0] if 0 <= code < len(applications) else "-"


def name_of(snapshot: Snapshot, applications: Sequence[str], row: int) -> str:
    """The job's name, of the cluster or in the fingerprint; it may hold slashes itself."""
    own = snapshot.names.get(row)
    if own is not None:
        return own or "-"
    code = int(snapshot.jobs.application[row])
    if not 0 <= code < len(applications):
        return "-"
    return applications[code].partition("/")[2].rpartition("/")[0]


def _places(snapshot: Snapshot, cores: NDArray[Any]) -> list[tuple[int, int]]:
    """The guest on each of these cores, and the number of its node."""
    nodes = np.searchsorted(snapshot.machine.first_core, cores, side="right") - 1
    return list(zip(snapshot.core_guest[cores].tolist(), nodes.tolist(), strict=True))


def job_nodes(snapshot: Snapshot) -> dict[int, list[str]]:
    """Job that holds cores of its own → the names of its nodes."""
    found: dict[int, list[str]] = {}
    machine = snapshot.machine
    for node, name in enumerate(machine.node_names):
        first = int(machine.first_core[node])
        for owner in np.unique(snapshot.core_owner[first : int(machine.first_core[node + 1])]).tolist():
            if owner >= 0:
                found.setdefault(owner, []).append(name)
    return found


def guest_nodes(snapshot: Snapshot) -> dict[int, list[str]]:
    """Guest → the names of the nodes it is on."""
    found: dict[int, list[str]] = {}
    for guest, node in _places(snapshot, np.flatnonzero(snapshot.core_guest >= 0)):
        names = found.setdefault(guest, [])
        name = snapshot.machine.node_names[node]
        if not names or names[-1] != name:
            names.append(name)
    return found


def hosts_of(snapshot: Snapshot) -> dict[int, list[int]]:
    """Guest that runs → the batch jobs that lend to it: of a pair its host, else all that hold cores of its nodes."""
    jobs, first = snapshot.jobs, snapshot.machine.first_core
    found = {row: [int(jobs.host[row])] for row in snapshot.guests.tolist()}
    found = {row: [host for host in hosts if host >= 0] for row, hosts in found.items()}
    pooled = snapshot.guests[~np.isnan(jobs.demand[snapshot.guests])]
    cores = np.flatnonzero(np.isin(snapshot.core_guest, pooled))
    on: dict[int, set[int]] = {row: set() for row in pooled.tolist()}
    for guest, node in set(_places(snapshot, cores)):
        on[guest].update(snapshot.core_owner[first[node] : first[node + 1]].tolist())
    return found | {guest: sorted(owners - {-1}) for guest, owners in on.items()}


def needs(snapshot: Snapshot) -> dict[int, dict[str, float]]:
    """Guest that draws from pools, running or offered a place → by node, cores' worth of CPU that it should use."""
    demand = snapshot.jobs.demand
    found: dict[int, dict[str, float]] = {}
    cores = np.flatnonzero(snapshot.core_guest >= 0)
    cores = cores[~np.isnan(demand[snapshot.core_guest[cores]])]
    for guest, node in _places(snapshot, cores):
        there, name = found.setdefault(guest, {}), snapshot.machine.node_names[node]
        there[name] = there.get(name, 0.0) + float(demand[guest])
    return found


def sources(snapshot: Snapshot) -> dict[int, dict[str, dict[str, float]]]:
    """Guest that draws from pools → by node, what it needs there (cores' worth) by who gives it: numbers of batch jobs,
    and `free` for free cores. All that is idle gives its part of it; what is not measured counts as half busy."""
    jobs, machine, first = snapshot.jobs, snapshot.machine, snapshot.machine.first_core
    number = {name: node for node, name in enumerate(machine.node_names)}
    found: dict[int, dict[str, dict[str, float]]] = {}
    idle_of: dict[str, dict[str, float]] = {}
    for guest, wanted in needs(snapshot).items():
        for name, amount in wanted.items():
            if name not in idle_of:
                node = number[name]
                owners, cores = np.unique(
                    snapshot.core_owner[first[node] : first[node + 1]], return_counts=True
                )
                use = np.where(owners < 0, 0.0, jobs.cpu_fraction[owners])
                idle = cores * np.clip(1.0 - np.where(np.isnan(use), 0.5, use), 0.0, 1.0)
                idle_of[name] = {
                    FREE if row < 0 else str(jobs.job_id[row]): spare
                    for row, spare in zip(owners.tolist(), idle.tolist(), strict=True)
                    if spare > 0
                }
            whole = sum(idle_of[name].values())
            found.setdefault(guest, {})[name] = {
                source: amount * spare / whole for source, spare in idle_of[name].items()
            }
    return found


def offered(snapshot: Snapshot) -> Ints:
    """Rows of the waiting jobs that have an offer."""
    return snapshot.queue[~np.isnan(snapshot.jobs.offered_s[snapshot.queue])]


def cluster_counts(snapshot: Snapshot) -> dict[str, Json]:
    """How much there is."""
    return {
        "nodes": len(snapshot.machine.cores),
        "cores": len(snapshot.core_owner),
        "allocated_cores": int(np.count_nonzero(snapshot.core_owner >= 0)),
        "shared_cores": int(np.count_nonzero(snapshot.core_guest >= 0)),
        "waiting": snapshot.waiting,
        "running": len(snapshot.running),
        "guests": len(snapshot.guests),
        "offered": len(offered(snapshot)),
    }


def lending(snapshot: Snapshot, applications: Sequence[str]) -> list[Json]:
    """Who lends to whom, in the order of the guests."""
    jobs, where, wanted, given = snapshot.jobs, guest_nodes(snapshot), needs(snapshot), sources(snapshot)
    rows: list[Json] = []
    for guest in snapshot.guests.tolist():
        host = int(jobs.host[guest])
        rows.append(
            {
                "guest": str(jobs.job_id[guest]),
                "host": str(jobs.job_id[host]) if host >= 0 else None,
                "nodes": list(where.get(guest, [])),
                "share": known(jobs.share[guest]),
                "needs": dict(wanted.get(guest, {})),
                "from": _rounded(given.get(guest, {})),
                "since_s": known(jobs.start_s[guest]),
                "guest_user": user_of(snapshot, applications, guest),
                "host_user": user_of(snapshot, applications, host) if host >= 0 else None,
                "pace": known(jobs.pace[guest]),
                "host_pace": known(jobs.pace[host]) if host >= 0 else None,
                "happiness": known(jobs.happiness[guest]),
                "host_happiness": known(jobs.happiness[host]) if host >= 0 else None,
                "host_pressure": known(jobs.pressure[host]) if host >= 0 else None,
            }
        )
    return rows


def job_rows(
    snapshot: Snapshot, applications: Sequence[str], only: str | None = None
) -> list[dict[str, Json]]:
    """Every job that the cluster shows: guests, running jobs, and the queue in its order; `only` names one, which may
    wait without being in the queue (held, or for a limit)."""
    jobs, wanted, given = snapshot.jobs, needs(snapshot), sources(snapshot)
    where = job_nodes(snapshot) | guest_nodes(snapshot)
    takers: dict[str, dict[str, float]] = {}
    for guest, nodes in given.items():
        for parts in nodes.values():
            for source, cores in parts.items():
                taker = takers.setdefault(source, {})
                name = str(jobs.job_id[guest])
                taker[name] = taker.get(name, 0.0) + cores
    queue, reasons = snapshot.queue, dict[int, str]()
    if snapshot.waits is not None:
        waits = snapshot.waits
        reasons = {
            row: waits.reasons[code]
            for row, code in zip(waits.row.tolist(), waits.reason.tolist(), strict=True)
        }
        if only is not None:
            queue = np.concatenate([queue, np.setdiff1d(waits.row, queue)])
    rows: list[dict[str, Json]] = []
    for state, members in (
        ("guest", snapshot.guests),
        ("running", snapshot.running),
        ("waiting", queue),
    ):
        for row in members.tolist():
            job = str(jobs.job_id[row])
            if only is not None and job != only:
                continue
            host = int(jobs.host[row])
            has_offer = state == "waiting" and not math.isnan(jobs.offered_s[row])
            rows.append(
                {
                    "job": job,
                    "state": "offered" if has_offer else state,
                    "user": user_of(snapshot, applications, row),
                    "name": name_of(snapshot, applications, row),
                    "partition": snapshot.partitions.get(row) or None,
                    "cores": int(jobs.cores[row]),
                    "nodes": list(where.get(row, [])),
                    "node_count": len(where.get(row, [])) or int(jobs.nodes[row]),
                    "time_limit_s": known(jobs.time_limit_s[row]),
                    "submit_s": known(jobs.submit_s[row]),
                    "start_s": known(jobs.start_s[row]),
                    "limit_end_s": known(jobs.limit_end_s[row]),
                    "estimated_start_s": known(jobs.estimated_start_s[row]),
                    "own_start_s": known(jobs.counterfactual_start_s[row]),
                    "cpu_fraction": known(jobs.cpu_fraction[row]),
                    "pace": known(jobs.pace[row]),
                    "lost_s": known(jobs.lost_s[row]),
                    "extended_s": known(jobs.extended_s[row]),
                    "host": str(jobs.job_id[host]) if host >= 0 else None,
                    "share": known(jobs.share[row]),
                    "needs": dict(wanted.get(row, {})),
                    "from": _rounded(given.get(row, {})),
                    "gives": {name: round(cores, 3) for name, cores in takers.get(job, {}).items()},
                    "happiness": known(jobs.happiness[row]),
                    "pressure": known(jobs.pressure[row]),
                    "host_bar": Ineligible(jobs.host_bar[row]).text,
                    "guest_bar": Ineligible(jobs.guest_bar[row]).text,
                    "wait_reason": reasons.get(row),
                }
            )
    return rows


def _rounded(given: Mapping[str, Mapping[str, float]]) -> dict[str, Json]:
    return {
        node: {source: round(cores, 3) for source, cores in parts.items()} for node, parts in given.items()
    }


def node_rows(snapshot: Snapshot, reports: Mapping[str, NodeReport], now_s: float) -> list[dict[str, Json]]:
    """Every node: who is on it, why it may not lend, and what its actor last said."""
    machine, jobs, first = snapshot.machine, snapshot.jobs, snapshot.machine.first_core
    wanted, given = needs(snapshot), sources(snapshot)
    partitions: dict[int, list[Json]] = {}
    for partition, nodes in snapshot.partition_nodes.items():
        for node in nodes.tolist():
            partitions.setdefault(node, []).append(partition)
    rows: list[dict[str, Json]] = []
    for node, name in enumerate(machine.node_names):
        cores = slice(int(first[node]), int(first[node + 1]))
        owners = np.unique(snapshot.core_owner[cores])
        guests = np.unique(snapshot.core_guest[cores])
        guests = guests[guests >= 0]
        lent = float(np.nansum(jobs.share[guests])) if len(guests) else 0.0
        lent += sum(wanted.get(row, {}).get(name, 0.0) for row in guests.tolist()) / max(
            1, machine.cores[node]
        )
        report = reports.get(name)
        rows.append(
            {
                "node": name,
                "partitions": partitions.get(node, []),
                "state": snapshot.node_states[node] or None if snapshot.node_states else None,
                "cores": int(machine.cores[node]),
                "memory_bytes": known(machine.memory_bytes[node]),
                "idle_cores": int(np.count_nonzero(snapshot.core_owner[cores] < 0)),
                "jobs": [str(jobs.job_id[row]) for row in owners.tolist() if row >= 0],
                "guests": [str(jobs.job_id[row]) for row in guests.tolist()],
                "lent": known(lent),
                "from": _rounded(
                    {
                        str(jobs.job_id[row]): given[row][name]
                        for row in guests.tolist()
                        if name in given.get(row, {})
                    }
                ),
                "bar": NodeIneligible(snapshot.node_bar[node]).text,
                "actor": report is not None,
                "report_age_s": None if report is None else max(0.0, now_s - report.time_s),
                "cgroup": None if report is None else report.cgroup,
            }
        )
    return rows
