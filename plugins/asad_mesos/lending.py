"""What becomes of the decisions to lend: guests started beside their hosts, shares, longer time limits.

What binds jobs until the next look follows from them as well: the leases that go to the node actors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from asad.decisions import CoAllocate, ExtendLimit, SetQuota, SetShare
from asad.model import Ints, Snapshot
from asad.port import Lease, NodeLink
from asad_mesos.engine import Engine
from asad_mesos.events import Beside, Extended
from asad_mesos.launch import key
from asad_mesos.nodes import Nodes
from asad_mesos.rows import INF, NAN, Rows
from asad_mesos.view import Unit, unit_named


class Lending:
    """Applies decisions to lend to one guest or host at a time; each method says why not, or the empty string.

    They raise UsageError for what the framework refuses. Whoever calls holds the engine's lock.
    """

    def __init__(self, engine: Engine, link: NodeLink, rows: Rows, nodes: Nodes) -> None:
        self._engine, self._link, self._rows, self._nodes = engine, link, rows, nodes

    def start_beside(self, snapshot: Snapshot, decision: CoAllocate) -> str:
        """Start a waiting unit beside its host: of a pair, or who holds the nodes of whose pools it draws."""
        guest = self._unit(decision.guest)
        if guest is None or guest.tasks:
            return "it does not wait any more"
        host_row, why = self._host(snapshot, decision)
        if why:
            return why
        host = self._unit(host_row)
        if host is None or not host.tasks:
            return "its host does not run any more"
        if host.guest:
            return "its host is a guest itself"
        agents = self._nodes.agents
        if not decision.nodes or not all(0 <= node < len(agents) for node in decision.nodes):
            return "there is no such node"
        first = snapshot.machine.first_core
        for node in decision.nodes:
            here = slice(first[node], first[node + 1])
            if first[node] == first[node + 1] or (snapshot.core_owner[here] != host_row).any():
                return f"node {snapshot.machine.node_names[node]} is not wholly its host's"
            if (snapshot.core_guest[here] >= 0).any():
                return f"node {snapshot.machine.node_names[node]} has a guest already"
        names = tuple(snapshot.machine.node_names[node] for node in decision.nodes)
        if not self._link.announce(names, key(guest.name, guest.job.spec.uid)):
            return "the node actors have not taken note of it"
        foreseen_s = float(self._rows.jobs.estimated_start_s[decision.guest])
        on = [agents[node] for node in decision.nodes]
        jobs = self._rows.jobs
        demand = sum(decision.demands) / int(jobs.cores[decision.guest]) if decision.pooled else NAN
        self._engine.do(Beside(guest.job.job_id, guest.name, host.name, on, demand))
        begun = self._unit(decision.guest)
        kept = self._rows.begin(guest.name, begun.run if begun else "")
        kept.host, kept.foreseen_s = host.name, foreseen_s
        if decision.pooled:
            kept.quotas = dict(zip(on, decision.demands, strict=True))
            jobs.demand[decision.guest] = demand
        else:
            kept.share, kept.capped, kept.share_host = decision.share, decision.capped, host.name
            jobs.host[decision.guest], jobs.share[decision.guest] = decision.host, decision.share
        for node in decision.nodes:  # nobody else is sent there on this snapshot
            snapshot.core_guest[first[node] : first[node + 1]] = decision.guest
        return ""

    def _host(self, snapshot: Snapshot, decision: CoAllocate) -> tuple[int, str]:
        """The row of the unit that would be the host, and why there is none, or the empty string.

        Of a pair the one that was decided for; of a guest that draws from pools the one that holds all of its nodes.
        """
        if not decision.pooled:
            return decision.host, ""
        machine, first = snapshot.machine, snapshot.machine.first_core
        if not decision.nodes or not all(0 <= node < len(self._nodes.agents) for node in decision.nodes):
            return -1, "there is no such node"
        if len(decision.demands) != len(decision.nodes) or not all(
            0 <= one < INF for one in decision.demands
        ):
            return -1, f"demands {decision.demands} are not one for each of {len(decision.nodes)} nodes"
        hosts: set[int] = set()
        for node in decision.nodes:
            here = set(snapshot.core_owner[first[node] : first[node + 1]].tolist())
            if not here - {-1}:
                return -1, f"no batch job holds {machine.node_names[node]}, and free cores are not lent"
            if len(here - {-1}) > 1:
                return -1, f"several batch jobs hold {machine.node_names[node]}"
            if -1 in here:
                return -1, f"no batch job holds {machine.node_names[node]} wholly"
            hosts |= here
        if len(hosts) > 1:
            return -1, "its nodes are held by several batch jobs"
        return hosts.pop(), ""

    def set_share(self, decision: SetShare) -> str:
        """So much of its host's cores has the guest of a pair from now on, or so much of itself lends a host."""
        if decision.host >= 0:
            return self._lend(decision.host, decision.share)
        unit = self._unit(decision.guest)
        if unit is None or not unit.tasks or not unit.guest:
            return "it does not run as a guest any more"
        if not math.isnan(unit.demand):
            return "it draws from the pools of its nodes: quotas bind it, and no share of one host"
        host = int(self._rows.jobs.host[decision.guest])
        kept = self._rows.begin(unit.name, unit.run)
        kept.share, kept.capped = decision.share, decision.capped
        kept.share_host = str(self._rows.jobs.job_id[host]) if host >= 0 else ""
        self._rows.jobs.share[decision.guest] = decision.share
        return ""

    def _lend(self, row: int, share: float) -> str:
        """A record of what a host lends to the pools of its nodes: nothing binds it, and nobody has more or less."""
        unit = self._unit(row)
        if unit is None or not unit.tasks or unit.guest:
            return "it does not run any more"
        if not 0.0 <= share <= 1.0:
            return f"a share of {share:g} is none"
        self._rows.begin(unit.name, unit.run).lent = self._rows.jobs.share[row] = share
        return ""

    def set_quota(self, snapshot: Snapshot, decision: SetQuota) -> str:
        """So much CPU may a guest that draws from pools use on these nodes from now on."""
        unit = self._unit(decision.guest)
        if unit is None or not unit.tasks or not unit.guest:
            return "it does not run as a guest any more"
        if math.isnan(unit.demand):
            return "it is the guest of a pair: a share of its host binds it"
        if len(decision.nodes) != len(decision.cores) or not all(0 < cores < INF for cores in decision.cores):
            return f"quotas {decision.cores} are not one above 0 for each of {len(decision.nodes)} nodes"
        held = np.flatnonzero(snapshot.core_guest == decision.guest)
        there = set((np.searchsorted(snapshot.machine.first_core, held, side="right") - 1).tolist())
        if not set(decision.nodes) <= there:
            return "it is not on such a node"
        kept = self._rows.begin(unit.name, unit.run)
        agents = (self._nodes.agents[node] for node in decision.nodes)
        kept.quotas |= dict(zip(agents, decision.cores, strict=True))
        return ""

    def extend(self, decision: ExtendLimit) -> str:
        """A running unit may run longer."""
        unit = self._unit(decision.job)
        if unit is None or not unit.tasks:
            return "it does not run any more"
        if not math.isfinite(unit.job.spec.time_limit_s):
            return "it has no time limit"
        if not 0 < decision.by_s < INF:
            return "there is nothing to add"
        self._engine.do(Extended(unit.job.job_id, decision.by_s, unit.name))
        self._rows.jobs.extended_s[decision.job] += decision.by_s
        self._rows.jobs.limit_end_s[decision.job] += decision.by_s
        return ""

    def leases(self, snapshot: Snapshot, units: Mapping[str, Unit]) -> dict[str, list[Lease]]:
        """By node everything that may bind a unit there until the lease runs out; `units` are those of the snapshot."""
        wanted: dict[str, list[Lease]] = {}
        kept_back: dict[tuple[int, int], float] = {}
        machine, jobs = snapshot.machine, snapshot.jobs
        first, names = machine.first_core, machine.node_names
        node_of = np.repeat(np.arange(len(machine.cores)), machine.cores)

        def key_of(row: int) -> str:
            unit = units.get(str(jobs.job_id[row]))
            return "" if unit is None else key(unit.name, unit.job.spec.uid)

        for row in snapshot.guests.tolist():
            guest_key = key_of(row)
            if not guest_key:
                continue
            kept = self._rows.kept(str(jobs.job_id[row]))
            pooled = not math.isnan(jobs.demand[row])
            for node in np.unique(node_of[snapshot.core_guest == row]).tolist():
                here = slice(first[node], first[node + 1])
                host = _most(snapshot.core_owner[here]) if pooled else int(jobs.host[row])
                host_key = key_of(host) if host >= 0 else ""
                cores = int((snapshot.core_guest[here] == row).sum())
                lent = int((snapshot.core_owner[here] == host).sum()) if host >= 0 else 0
                bound = lent > 0 and cores > 0 and not math.isnan(kept.share)
                quota = min(1.0, kept.share * lent / cores) if bound else NAN
                agent = self._nodes.agents[node]
                if pooled and host >= 0 and agent in kept.quotas:
                    quota = min(1.0, kept.quotas[agent] / cores)
                wanted.setdefault(names[node], []).append(Lease(guest_key, True, host_key, quota, cores))
                if host >= 0:
                    left = 1.0 - kept.share if kept.capped and bound else NAN
                    kept_back[host, node] = float(np.fmin(kept_back.get((host, node), NAN), left))
        for (host, node), quota in kept_back.items():
            cores = int((snapshot.core_owner[first[node] : first[node + 1]] == host).sum())
            lease = Lease(key_of(host), False, "", quota, max(1, cores))
            wanted.setdefault(names[node], []).append(lease)
        return wanted

    def _unit(self, row: int) -> Unit | None:
        """The unit of a row, as the framework has it now."""
        return unit_named(self._rows.name(row), self._engine.framework)


def _most(owners: Ints) -> int:
    """Who holds the most of these cores, -1 if nobody holds any."""
    held = owners[owners >= 0]
    return int(np.bincount(held).argmax()) if len(held) else -1
