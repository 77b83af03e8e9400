"""What becomes of the decisions to lend: offers made and withdrawn, shares, memory limits, longer time limits.

What binds jobs until the next look follows from them as well: the leases that go to the node actors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from asad.cluster.lending_rules import Role, beside, leases, quota_refused, share_refused
from asad.decisions import CoAllocate, ExtendLimit, SetMemory, SetQuota, SetShare, Withdraw
from asad.model import Ints, Snapshot
from asad.port import Lease, NodeLink
from asad_slurm import bars
from asad_slurm.admission import DENIED
from asad_slurm.command import Transport
from asad_slurm.cores import holders
from asad_slurm.jobs import JobTable
from asad_slurm.marks import Marks, unmarked
from asad_slurm.nodes import Nodes
from asad_slurm.nodesets import expand
from asad_slurm.offers import Offer, Offers, nodes_asked
from asad_slurm.records import ANY_NODES, INF, NAN, RUNS, WAITS, JobRecord
from asad_slurm.refusals import refusal
from asad_slurm.settings import Settings


class Lending:
    """Applies decisions to lend to one guest or host at a time; each method says why not, or the empty string."""

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
        self._shares: dict[int, tuple[float, bool]] = {}
        """By row of the guest of a pair: the share decided for it beside its present host, and whether that host is
        capped too."""
        self._quotas: dict[int, dict[int, float]] = {}
        """By row of a guest that draws from pools, and by node: cores' worth of CPU that it may use there."""
        self.lent: dict[int, float] = {}
        """By row of a batch job: the share of itself that it lends to the pools of its nodes, as it was decided."""
        self.hosts: dict[int, dict[int, float]] = {}
        """By row of a guest that runs: the rows of the batch jobs beside which it is, and which part of what it takes
        comes from each (-1: from free cores); of a pair all from the host."""
        self.memory: dict[int, float] = {}
        """By row of a job that shares: above how many bytes on a node its memory is reclaimed."""

    def share(self, row: int) -> float:
        """What was decided for a guest beside its present host, NaN for nothing."""
        return self._shares.get(row, (NAN, False))[0]

    def forget(self, row: int) -> None:
        """What was decided for a guest means nothing any more."""
        self._shares.pop(row, None)
        self._quotas.pop(row, None)
        self.memory.pop(row, None)

    def clear(self) -> None:
        """Nothing is lent any more."""
        self._shares.clear()
        self._quotas.clear()
        self.lent.clear()
        self.memory.clear()
        self._jobs.rows.jobs.share[:] = NAN

    def offer(self, snapshot: Snapshot, decision: CoAllocate) -> str:
        """Offer a waiting job nodes that lend, or those of its host."""
        rows, jobs, settings = self._jobs.rows, self._jobs.rows.jobs, self._settings
        guest = rows.at(decision.guest)
        if guest is None or guest.phase != WAITS:
            return "it does not wait any more"
        host = None if decision.pooled else rows.at(decision.host)
        if not decision.pooled and (host is None or host.phase != RUNS):
            return "its host does not run any more"
        if guest.text in self._offers.open:
            return "it has an offer already"
        nodes = self._nodes
        why = refusal(snapshot, decision, guest, nodes.records, nodes.takes_guests, settings)
        if why:
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
            guest_partition=bars.guest_partition(guest.partition, settings),
            nodes=names,
            host=host.text if host is not None else "",
            time_s=self._clock(),
            estimate_s=float(jobs.estimated_start_s[decision.guest]),
            share=decision.share,
            capped=decision.capped,
            demands=dict(zip(names, decision.demands, strict=True)) if decision.pooled else {},
            demand=sum(decision.demands) / guest.cores if decision.pooled else NAN,
            num_nodes=nodes_asked(guest, len(names)) or "",
            limit_s=guest.time_limit_s if math.isfinite(guest.time_limit_s) else NAN,
            restarts=guest.restarts,
        )
        self._mark(guest, offer)
        why = self._offers.offer(offer)
        if why:
            return why
        jobs.offered_s[decision.guest] = offer.time_s
        if decision.pooled:
            jobs.demand[decision.guest] = offer.demand
            self._quotas[decision.guest] = dict(zip(decision.nodes, decision.demands, strict=True))
        else:
            jobs.host[decision.guest], jobs.share[decision.guest] = decision.host, decision.share
            self._shares[decision.guest] = (decision.share, decision.capped)
        nodes.keep(snapshot.core_guest, decision.guest, jobs.cores[decision.guest], decision.nodes)
        return ""

    def _mark(self, guest: JobRecord, offer: Offer) -> None:
        """Where its user wants certain nodes, or so many, the job itself says so while it is offered others."""
        bound = offer.num_nodes not in ("", f"1-{ANY_NODES}")
        if not (offer.required_nodes or bound) or not self._may_mark:
            return
        marked = self._marks.marked(guest, offer.num_nodes)
        if not marked:
            return
        answer = self._transport.update(offer.job, {"AdminComment": marked})
        if answer.done:
            offer.admin_comment = unmarked(guest.admin_comment)
        elif answer.certain and DENIED in answer.why:
            self._may_mark = False

    def adopted(self, record: JobRecord) -> tuple[Offer, str]:
        """The offer that must have sent a waiting job into a guest partition, and what is not known of it, in words."""
        partition = record.partition
        sources = [source for source, guest in self._settings.guest_partitions.items() if guest == partition]
        home = self._marks.home(record)
        lost = ""
        if home is None and record.required_nodes:
            lost = "; which nodes its user wants is not known, and it waits for any"
        if home is None and len(sources) > 1:
            lost += f"; where it waited is not known ({' or '.join(sources)})"
        source, required, number = home or (sources[0], "", "")
        try:
            nodes = expand(record.required_nodes)
        except ValueError:
            nodes = ()
        offer = Offer(
            job=record.text,
            raw=record.raw,
            partition=source,
            required_nodes=required,
            guest_partition=partition,
            nodes=nodes,
            host="",
            time_s=self._clock(),
            estimate_s=NAN,
            share=NAN,
            capped=False,
            num_nodes=number,
            restarts=record.restarts,
            admin_comment=None if home is None else unmarked(record.admin_comment),
        )
        return offer, lost

    def withdraw(self, snapshot: Snapshot, decision: Withdraw) -> str:
        """Take back the offer to a job that has not taken it."""
        record = self._jobs.rows.at(decision.guest)
        offer = self._offers.open.get(record.text) if record else None
        if offer is None:
            return "nothing is offered to it"
        if offer.started:
            return "it has started"
        why = self._offers.withdraw(offer.job)
        if not why:
            self.forget_offer(decision.guest, snapshot)
        return why

    def forget_offer(self, row: int, snapshot: Snapshot | None) -> None:
        """The offer to the job in a row (-1 for none) is taken back: `snapshot` shows it on no node any more."""
        if row < 0:
            return
        jobs = self._jobs.rows.jobs
        jobs.offered_s[row], jobs.host[row], jobs.share[row], jobs.demand[row] = NAN, -1, NAN, NAN
        self._shares.pop(row, None)
        self._quotas.pop(row, None)
        if snapshot is not None:
            kept = snapshot.core_guest
            kept[kept == row] = -1

    def set_share(self, decision: SetShare) -> str:
        """So much of its host's cores has the guest of a pair from now on, or so much of itself lends a host, which is
        a record: nothing binds that, and nobody has more or less."""
        row, jobs = decision.guest, self._jobs.rows.jobs
        if why := share_refused(decision, jobs, self._role):
            return why
        if decision.host >= 0:
            self.lent[decision.host] = jobs.share[decision.host] = decision.share
        elif jobs.host[row] < 0:
            return "its host has ended"
        else:
            self._shares[row] = (decision.share, decision.capped)
            jobs.share[row] = decision.share
        return ""

    def set_quota(self, decision: SetQuota) -> str:
        """So much CPU may a guest that draws from pools use on these nodes from now on."""
        why = quota_refused(decision, self._jobs.rows.jobs, self._role, self._nodes_of)
        if not why:
            quotas = self._quotas.setdefault(decision.guest, {})
            quotas.update(zip(decision.nodes, decision.cores, strict=True))
        return why

    def _role(self, row: int) -> Role:
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
        for row, share in self.lent.items():
            jobs.share[row] = share
        self.hosts = {}
        machine = self._nodes.machine
        first = machine.first_core
        holder, _ = holders(core_owner, machine) if len(guests) else (core_owner, None)
        for row in guests.tolist():
            nodes = self._jobs.places[row].nodes.tolist()
            offer = self._offers.open.get(str(jobs.job_id[row]))
            jobs.demand[row] = offer.demand if offer is not None else NAN
            if not math.isnan(jobs.demand[row]):
                jobs.host[row], jobs.share[row] = -1, NAN
                self.hosts[row] = self._beside([core_owner[first[node] : first[node + 1]] for node in nodes])
                continue
            beside = [int(holder[node]) for node in nodes]
            beside = [other for other in beside if other >= 0 and phase[other] == RUNS]
            host = max(set(beside), key=beside.count) if beside else -1
            if host != jobs.host[row] and not math.isnan(jobs.share[row]):
                self.forget(row)  # it was decided for another host
            jobs.host[row] = host
            jobs.share[row] = self.share(row) if host >= 0 else NAN
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

    def set_memory(self, snapshot: Snapshot, decision: SetMemory) -> str:
        """Above so much a job's memory is reclaimed; 0 lifts that."""
        row = decision.job
        if decision.high_bytes == 0:
            self.memory.pop(row, None)
            return ""
        if not 0 < decision.high_bytes < INF:
            return f"a limit of {decision.high_bytes:g} bytes is none"
        if not self._role(row):
            return "it does not run any more"
        sharing = {guest: set(hosts) - {-1} for guest, hosts in self.hosts.items()}
        if not sharing.get(row) and not any(row in hosts for hosts in sharing.values()):
            return "it shares its nodes with nobody"
        self.memory[row] = decision.high_bytes
        return ""

    def extend(self, decision: ExtendLimit) -> str:
        """Slurm counts whole minutes: rounded up, but never beyond the latest end."""
        rows, row, jobs = self._jobs.rows, decision.job, self._jobs.rows.jobs
        record = rows.at(row)
        if record is None or record.phase != RUNS:
            return "it does not run any more"
        if not math.isfinite(record.time_limit_s):
            return "it has no time limit"
        if not decision.by_s > 0:
            return "there is nothing to add"
        room_s = float(jobs.latest_end_s[row] - jobs.limit_end_s[row])
        minutes = math.ceil(decision.by_s / 60.0)
        if 60.0 * minutes > room_s:
            minutes = max(0, math.floor(room_s / 60.0))
        if minutes == 0:
            return "its limit may not be moved beyond its partition's, its association's or a reservation"
        answer = self._transport.update(record.alone, {"TimeLimit": f"+{minutes}"})
        if not answer.done:
            return answer.refusal
        jobs.extended_s[row] += 60.0 * minutes
        jobs.limit_end_s[row] += 60.0 * minutes
        return ""

    def leases(self, snapshot: Snapshot) -> dict[str, list[Lease]]:
        """By node everything that may bind a job until the lease runs out."""
        rows, offers = self._jobs.rows, self._offers.open
        nodes_of = {row: self._nodes_of(row) for row in snapshot.guests.tolist()}
        raw = {row: str(rows.record(row).raw) for row in nodes_of}
        for text, offer in offers.items():
            row = rows.of.get(text)
            if row is None:
                continue
            if row not in nodes_of and rows.extra.phase[row] == WAITS:
                nodes_of[row] = self._nodes.numbers(offer.nodes)
            if row in nodes_of:
                raw[row] = str(offer.raw)
        if not nodes_of:
            self._shares.clear()
            self._quotas.clear()
            self.memory.clear()
            return {}
        around = beside(snapshot, (node for nodes in nodes_of.values() for node in nodes))
        hosts = {row for rows in around.values() for row in rows}
        raw |= {row: str(rows.record(row).raw) for row in hosts}
        for kept, there in (
            (self._shares, nodes_of.keys()),
            (self._quotas, nodes_of.keys()),
            (self.memory, nodes_of.keys() | hosts),  # who is not among these shares no more
        ):
            for row in kept.keys() - there:
                del kept[row]
        return leases(snapshot, nodes_of, self._shares, self._quotas, raw.__getitem__, self.memory)
