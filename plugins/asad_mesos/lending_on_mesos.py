"""What becomes of the decisions to lend: guests started beside their hosts, shares, longer time limits.

What binds jobs until the next look follows from them as well: the leases that go to the node actors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from asad.cluster.lending_rules import (
    Role,
    first_reason,
    guest_nodes,
    leases,
    nodes_refused,
    quota_refused,
    share_refused,
)
from asad.decisions import CoAllocate, ExtendLimit, SetQuota, SetShare
from asad.model import Snapshot
from asad.port import Lease, NodeLink
from asad_mesos.agent_nodes import Nodes
from asad_mesos.events import Beside, Extended
from asad_mesos.master_calls import key
from asad_mesos.session import Session
from asad_mesos.unit_rows import INF, NAN, Kept, Rows
from asad_mesos.view import Unit, unit_named


class Lending:
    """Applies decisions to lend to one guest or host at a time; each method says why not, or the empty string.

    They raise UsageError for what the framework refuses. Whoever calls holds the engine's lock.
    """

    def __init__(self, engine: Session, link: NodeLink, rows: Rows, nodes: Nodes) -> None:
        self._engine, self._link, self._rows, self._nodes = engine, link, rows, nodes

    def start_beside(self, snapshot: Snapshot, decision: CoAllocate) -> str:
        """Start a waiting unit beside its host: of a pair, or who holds the nodes of whose pools it draws."""
        guest = self._unit(decision.guest)
        if guest is None or guest.tasks:
            return "it does not wait any more"
        if why := nodes_refused(decision, len(self._nodes.agents)):
            return why
        host_row, why = self._host(snapshot, decision)
        if why:
            return why
        host = self._unit(host_row)
        if host is None or not host.tasks:
            return "its host does not run any more"
        if host.guest:
            return "its host is a guest itself"
        names = tuple(snapshot.machine.node_names[node] for node in decision.nodes)
        if not self._link.announce(names, key(guest.name, guest.job.spec.uid)):
            return "the node actors have not taken note of it"
        agents, first = self._nodes.agents, snapshot.machine.first_core
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
        pooled, first = decision.pooled, snapshot.machine.first_core
        hosts = set() if pooled else {decision.host}
        for node in decision.nodes:
            here, name = slice(first[node], first[node + 1]), snapshot.machine.node_names[node]
            owners = set(snapshot.core_owner[here].tolist())
            batch = owners - {-1}
            why = first_reason(
                (f"no batch job holds {name}, and free cores are not lent", pooled and not batch),
                (f"several batch jobs hold {name}", pooled and len(batch) > 1),
                (f"no batch job holds {name} wholly", pooled and -1 in owners),
                (f"node {name} is not wholly its host's", not pooled and owners != hosts),
                (f"node {name} has a guest already", (snapshot.core_guest[here] >= 0).any()),
            )
            if why:
                return -1, why
            hosts |= batch
        return (-1, "its nodes are held by several batch jobs") if len(hosts) > 1 else (hosts.pop(), "")

    def set_share(self, decision: SetShare) -> str:
        """So much of its host's cores has the guest of a pair from now on, or so much of itself lends a host, which is
        a record: nothing binds that, and nobody has more or less."""
        row, jobs = decision.guest if decision.host < 0 else decision.host, self._rows.jobs
        if why := share_refused(decision, jobs, self._role):
            return why
        jobs.share[row] = decision.share
        kept = self._kept(row)
        if decision.host >= 0:
            kept.lent = decision.share
        else:
            host = self._rows.name(int(jobs.host[row]))
            kept.share, kept.capped, kept.share_host = decision.share, decision.capped, host
        return ""

    def set_quota(self, snapshot: Snapshot, decision: SetQuota) -> str:
        """So much CPU may a guest that draws from pools use on these nodes from now on."""
        why = quota_refused(decision, self._rows.jobs, self._role, lambda row: guest_nodes(snapshot, row))
        if not why:
            agents = (self._nodes.agents[node] for node in decision.nodes)
            self._kept(decision.guest).quotas |= dict(zip(agents, decision.cores, strict=True))
        return why

    def _role(self, row: int) -> Role:
        unit = self._unit(row)
        if unit is None or not unit.tasks:
            return ""
        return "guest" if unit.guest else "host"

    def _kept(self, row: int) -> Kept:
        """What is kept of the present run of a unit that runs."""
        unit = self._unit(row)
        return self._rows.begin(self._rows.name(row), unit.run if unit else "")

    def extend(self, decision: ExtendLimit) -> str:
        """A running unit may run longer."""
        unit = self._unit(decision.job)
        if unit is None or not unit.tasks:
            return "it does not run any more"
        if why := first_reason(
            ("it has no time limit", not math.isfinite(unit.job.spec.time_limit_s)),
            ("there is nothing to add", not 0 < decision.by_s < INF),
        ):
            return why
        self._engine.do(Extended(unit.job.job_id, decision.by_s, unit.name))
        self._rows.jobs.extended_s[decision.job] += decision.by_s
        self._rows.jobs.limit_end_s[decision.job] += decision.by_s
        return ""

    def leases(self, snapshot: Snapshot, units: Mapping[str, Unit]) -> dict[str, list[Lease]]:
        """By node everything that may bind a unit there until the lease runs out; `units` are those of the snapshot."""
        rows, number = self._rows, self._nodes.number

        def known_as(row: int) -> str:
            unit = units.get(rows.name(row))
            return "" if unit is None else key(unit.name, unit.job.spec.uid)

        nodes_of = {row: guest_nodes(snapshot, row) for row in snapshot.guests.tolist() if known_as(row)}
        kept = {row: rows.kept(rows.name(row)) for row in nodes_of}
        shares = {row: (one.share, one.capped) for row, one in kept.items()}
        quotas = {
            row: {number[agent]: cores for agent, cores in one.quotas.items() if agent in number}
            for row, one in kept.items()
        }
        return leases(snapshot, nodes_of, shares, quotas, known_as, {})

    def _unit(self, row: int) -> Unit | None:
        """The unit of a row, as the framework has it now."""
        return unit_named(self._rows.name(row), self._engine.framework)
