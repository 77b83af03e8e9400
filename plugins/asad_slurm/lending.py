"""What becomes of the decisions to lend: `Lending` asks Slurm (offers made and withdrawn, longer time limits), `Shares`
holds what binds jobs until the next look (shares, quotas, memory limits), and makes leases for the node actors of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from asad.cluster.lending_rules import Role, beside, first_reason, leases, quota_refused, share_refused
from asad.decisions import CoAllocate, ExtendLimit, SetMemory, SetQuota, SetShare, Withdraw
from asad.model import Ints, Snapshot
from asad.port import Lease, NodeLink
from asad_slurm.admission import DENIED
from asad_slurm.command import Transport
from asad_slurm.jobs import JobTable
from asad_slurm.marks import Marks, unmarked
from asad_slurm.nodes import Nodes, holders
from asad_slurm.offers import Offer, Offers, nodes_asked
from asad_slurm.records import ANY_NODES, INF, NAN, RUNS, WAITS, JobRecord
from asad_slurm.settings import Settings
from asad_slurm.slurm_eligibility import guest_partition, refusal


class Shares:
    """How much of whom each guest may use. Each decision is answered with why not, or the empty string."""

    def __init__(self, offers: Offers, nodes: Nodes, jobs: JobTable) -> None:
        self._offers, self._nodes, self._jobs = offers, nodes, jobs
        self.of_pairs: dict[int, tuple[float, bool]] = {}
        """By row of the guest of a pair: the share decided for it beside its present host, and whether that host is
        capped too."""
        self.quotas: dict[int, dict[int, float]] = {}
        """By row of a guest that draws from pools, and by node: cores' worth of CPU that it may use there."""
        self.lent: dict[int, float] = {}
        """By row of a batch job: the share of itself that it lends to the pools of its nodes, as it was decided."""
        self.hosts: dict[int, dict[int, float]] = {}
        """By row of a guest that runs: the rows of the batch jobs beside which it is, and which part of what it takes
        comes from each (-1: from free cores); of a pair all from the host."""
        self.memory: dict[int, float] = {}
        """By row of a job that shares: above how many bytes on a node its memory is reclaimed."""

    def clear(self) -> None:
        """Nothing is lent any more."""
        for decided in (self.of_pairs, self.quotas, self.lent, self.memory):
            decided.clear()
        self._jobs.rows.jobs.share[:] = NAN

    def forget(self, row: int) -> None:
        """What was decided for a guest means nothing any more."""
        for decided in (self.of_pairs, self.quotas, self.memory):
            decided.pop(row, None)

    def set_share(self, decision: SetShare) -> str:
        """So much of its host's cores has the guest of a pair from now on, or so much of itself lends a host, which is
        a record: nothing binds that, and nobody has more or less."""
        row, jobs = decision.guest, self._jobs.rows.jobs
        if why := share_refused(decision, jobs, self.role):
            return why
        if decision.host >= 0:
            self.lent[decision.host] = jobs.share[decision.host] = decision.share
        elif jobs.host[row] < 0:
            return "its host has ended"
        else:
            self.of_pairs[row] = (decision.share, decision.capped)
            jobs.share[row] = decision.share
        return ""

    def set_quota(self, decision: SetQuota) -> str:
        """So much CPU may a guest that draws from pools use on these nodes from now on."""
        why = quota_refused(decision, self._jobs.rows.jobs, self.role, self._nodes_of)
        if not why:
            quotas = self.quotas.setdefault(decision.guest, {})
            quotas.update(zip(decision.nodes, decision.cores, strict=True))
        return why

    def set_memory(self, decision: SetMemory) -> str:
        """Above so much a job's memory is reclaimed; 0 lifts that."""
        row, high_bytes = decision.job, decision.high_bytes
        if high_bytes == 0:
            self.memory.pop(row, None)
            return ""
        beside_row = [
            hosts.keys() - {-1} for guest, hosts in self.hosts.items() if guest == row or row in hosts
        ]
        why = first_reason(
            (f"a limit of {high_bytes:g} bytes is none", not 0 < high_bytes < INF),
            ("it does not run any more", not self.role(row)),
            ("it shares its nodes with nobody", not any(beside_row)),
        )
        if not why:
            self.memory[row] = high_bytes
        return why

    def role(self, row: int) -> Role:
        """What a job is now."""
        record = self._jobs.rows.at(row)
        if record is None or record.phase != RUNS:
            return ""
        return "guest" if self._jobs.rows.extra.guest[row] else "host"

    def _nodes_of(self, row: int) -> list[int]:
        return [int(node) for node in self._jobs.places[row].nodes]

    def show(self, guests: Ints, running: Ints, core_owner: Ints) -> None:
        """Fill `host`, `share` and `demand` of what runs; `core_owner` has the batch job on each core.

        Of a guest that draws from pools no host is shown, and of a batch job what it lends to them.
        """
        jobs, phase = self._jobs.rows.jobs, self._jobs.rows.extra.phase
        self.lent = {row: self.lent[row] for row in self.lent.keys() & set(running.tolist())}
        jobs.share[running] = jobs.demand[running] = NAN
        jobs.share[list(self.lent)] = list(self.lent.values())
        self.hosts = {}
        machine = self._nodes.machine
        first = machine.first_core
        holder = holders(core_owner, machine) if len(guests) else core_owner
        for row in guests.tolist():
            nodes = self._jobs.places[row].nodes.tolist()
            offer = self._offers.open.get(str(jobs.job_id[row]))
            jobs.demand[row] = offer.demand if offer is not None else NAN
            if not math.isnan(jobs.demand[row]):
                jobs.host[row], jobs.share[row] = -1, NAN
                self.hosts[row] = self._beside([core_owner[first[node] : first[node + 1]] for node in nodes])
                continue
            around = [other for node in nodes if (other := int(holder[node])) >= 0 and phase[other] == RUNS]
            host = max(set(around), key=around.count) if around else -1
            if host != jobs.host[row] and not math.isnan(jobs.share[row]):
                self.forget(row)  # it was decided for another host
            jobs.host[row] = host
            jobs.share[row] = self.of_pairs.get(row, (NAN, False))[0] if host >= 0 else NAN
            self.hosts[row] = {host: 1.0}

    def _beside(self, owners: Sequence[Ints]) -> dict[int, float]:
        """Who lends to a guest on nodes whose cores are these jobs', and in which parts: by what each leaves idle."""
        jobs, found = self._jobs.rows.jobs, dict[int, float]()
        for owner in owners:
            rows, counts = np.unique(owner, return_counts=True)
            use = np.where(rows < 0, 0.0, jobs.cpu_fraction[rows])  # as it was measured at the last look
            idle = counts * np.maximum(1.0 - np.where(np.isnan(use), 0.5, use), 0.01)
            for row, part in zip(rows.tolist(), (idle / idle.sum() / len(owners)).tolist(), strict=True):
                found[row] = found.get(row, 0.0) + part
        return found

    def leases(self, snapshot: Snapshot) -> dict[str, list[Lease]]:
        """By node everything that may bind a job until the lease runs out."""
        rows = self._jobs.rows
        nodes_of = {row: self._nodes_of(row) for row in snapshot.guests.tolist()}
        raw = {row: str(rows.record(row).raw) for row in nodes_of}
        for text, offer in self._offers.open.items():
            row = rows.of.get(text, -1)
            if row >= 0 and row not in nodes_of and rows.extra.phase[row] == WAITS:
                nodes_of[row] = self._nodes.numbers(offer.nodes)
            if row in nodes_of:
                raw[row] = str(offer.raw)
        around = beside(snapshot, (node for nodes in nodes_of.values() for node in nodes))
        hosts = {row for rows_there in around.values() for row in rows_there}
        raw |= {row: str(rows.record(row).raw) for row in hosts}
        guests = nodes_of.keys()
        self.of_pairs = {row: share for row, share in self.of_pairs.items() if row in guests}
        self.quotas = {row: quotas for row, quotas in self.quotas.items() if row in guests}
        # who is not among these shares no more
        self.memory = {row: high for row, high in self.memory.items() if row in guests or row in hosts}
        return leases(snapshot, nodes_of, self.of_pairs, self.quotas, raw.__getitem__, self.memory)


class Lending:
    """Asks Slurm for what was decided to lend; each method answers why not, or the empty string."""

    def __init__(
        self,
        transport: Transport,
        offers: Offers,
        link: NodeLink,
        settings: Settings,
        clock: Callable[[], float],
        nodes: Nodes,
        jobs: JobTable,
        marks: Marks,
    ) -> None:
        self._transport, self._offers, self._link, self._settings = transport, offers, link, settings
        self._clock, self._nodes, self._jobs = clock, nodes, jobs
        self._marks, self._may_mark = marks, True
        self.shares = Shares(offers, nodes, jobs)

    def offer(self, snapshot: Snapshot, decision: CoAllocate) -> str:
        """Offer a waiting job nodes that lend, or those of its host."""
        rows, jobs, settings = self._jobs.rows, self._jobs.rows.jobs, self._settings
        row, pooled, demands = decision.guest, decision.pooled, decision.demands
        guest = rows.at(row)
        if guest is None or guest.phase != WAITS:
            return "it does not wait any more"
        host = None if pooled else rows.at(decision.host)
        if not pooled and (host is None or host.phase != RUNS):
            return "its host does not run any more"
        if guest.text in self._offers.open:
            return "it has an offer already"
        nodes = self._nodes
        if why := refusal(snapshot, decision, guest, nodes.records, nodes.takes_guests, settings):
            return why
        raw = guest.raw if guest.tasks == 1 else self._transport.split_task(guest.text, guest.excluded_nodes)
        if raw == 0:
            return "its next task does not wait any more, or Slurm does not split it off now"
        names = tuple(snapshot.machine.node_names[node] for node in decision.nodes)
        if not self._link.announce(names, str(raw)):  # a guest is known before it starts
            return "the node actors have not taken note of it"
        offer = Offer(
            job=guest.text,
            raw=raw,
            partition=guest.partition,
            required_nodes=guest.required_nodes,
            guest_partition=guest_partition(guest.partition, settings),
            nodes=names,
            host=host.text if host is not None else "",
            time_s=self._clock(),
            estimate_s=float(jobs.estimated_start_s[row]),
            share=decision.share,
            capped=decision.capped,
            demands=dict(zip(names, demands, strict=True)) if pooled else {},
            demand=sum(demands) / guest.cores if pooled else NAN,
            num_nodes=nodes_asked(guest, len(names)) or "",
            limit_s=guest.time_limit_s if math.isfinite(guest.time_limit_s) else NAN,
            restarts=guest.restarts,
        )
        if why := self._mark(guest, offer) or self._offers.offer(offer):
            return why
        jobs.offered_s[row] = offer.time_s
        if pooled:
            jobs.demand[row] = offer.demand
            self.shares.quotas[row] = dict(zip(decision.nodes, demands, strict=True))
        else:
            jobs.host[row], jobs.share[row] = decision.host, decision.share
            self.shares.of_pairs[row] = (decision.share, decision.capped)
        nodes.keep(snapshot.core_guest, row, jobs.cores[row], decision.nodes)
        return ""

    def _mark(self, guest: JobRecord, offer: Offer) -> str:
        """Where its user wants certain nodes, or so many, the job itself shows so while it is offered others.

        Why that failed, or the empty string: where it may be marked, an offer without its mark would lose the user's
        wish with this head node. Where marks may not be written, offers do without.
        """
        bound = offer.num_nodes not in ("", f"1-{ANY_NODES}")
        wanted = self._may_mark and (offer.required_nodes or bound)
        if not wanted or not (marked := self._marks.marked(guest, offer.num_nodes)):
            return ""
        answer = self._transport.update(offer.job, {"AdminComment": marked})
        if answer.done:
            offer.admin_comment = unmarked(guest.admin_comment)
        elif answer.certain and DENIED in answer.why:
            self._may_mark = False
        else:
            return f"what its user wants could not be noted on it: {answer.why}"
        return ""

    def withdraw(self, snapshot: Snapshot, decision: Withdraw) -> str:
        """Take back the offer to a job that has not taken it."""
        record = self._jobs.rows.at(decision.guest)
        offer = self._offers.open.get(record.text) if record else None
        if offer is None or offer.started:
            return "nothing is offered to it" if offer is None else "it has started"
        why = self._offers.withdraw(offer.job)
        if not why:
            self.forget_offer(decision.guest, snapshot)
        return why

    def forget_offer(self, row: int, snapshot: Snapshot | None) -> None:
        """The offer to the job in a row (-1 for none) is taken back: `snapshot` shows it on no node any more."""
        if row < 0:
            return
        jobs, shares = self._jobs.rows.jobs, self.shares
        jobs.offered_s[row], jobs.host[row], jobs.share[row], jobs.demand[row] = NAN, -1, NAN, NAN
        shares.of_pairs.pop(row, None)
        shares.quotas.pop(row, None)
        if snapshot is not None:
            snapshot.core_guest[snapshot.core_guest == row] = -1

    def extend(self, decision: ExtendLimit) -> str:
        """Slurm counts whole minutes: rounded up, but never beyond the latest end."""
        row, jobs = decision.job, self._jobs.rows.jobs
        record = self._jobs.rows.at(row)
        if record is None or record.phase != RUNS:
            return "it does not run any more"
        room_s = float(jobs.latest_end_s[row] - jobs.limit_end_s[row])
        if why := first_reason(
            ("it has no time limit", not math.isfinite(record.time_limit_s)),
            ("there is nothing to add", not decision.by_s > 0),
            (
                "its limit may not be moved beyond its partition's, its association's or a reservation",
                room_s < 60.0,
            ),
        ):
            return why
        minutes = math.ceil(decision.by_s / 60.0)
        if 60.0 * minutes > room_s:
            minutes = math.floor(room_s / 60.0)
        answer = self._transport.update(record.alone, {"TimeLimit": f"+{minutes}"})
        if not answer.done:
            return answer.refusal
        jobs.extended_s[row] += 60.0 * minutes
        jobs.limit_end_s[row] += 60.0 * minutes
        return ""
