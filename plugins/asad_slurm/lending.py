"""What becomes of the decisions to lend: offers made and withdrawn, shares, memory limits, longer time limits.

What binds jobs until the next look follows from them as well: the leases that go to the node actors.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from asad.model import CoAllocate, ExtendLimit, Lease, NodeLink, SetMemory, SetShare, Snapshot, Withdraw
from asad_slurm import bars
from asad_slurm.command import Transport
from asad_slurm.cores import holders
from asad_slurm.jobs import JobTable
from asad_slurm.leases import leases
from asad_slurm.nodes import Nodes
from asad_slurm.offers import Offer, Offers
from asad_slurm.records import INF, NAN, RUNS, WAITS
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
    ) -> None:
        self._transport, self._offers, self._link, self._settings = transport, offers, link, settings
        self._clock, self._nodes, self._jobs = clock, nodes, jobs
        self._shares: dict[int, tuple[float, bool]] = {}
        """By row of a guest: the share decided for it beside its present host, and whether that host is capped too."""
        self.memory: dict[int, float] = {}
        """By row of a job that shares: above how many bytes on a node its memory is reclaimed."""

    def share(self, row: int) -> float:
        """What was decided for a guest beside its present host, NaN for nothing."""
        return self._shares.get(row, (NAN, False))[0]

    def forget(self, row: int) -> None:
        """What was decided for a guest means nothing any more."""
        self._shares.pop(row, None)
        self.memory.pop(row, None)

    def clear(self) -> None:
        """Nothing is lent any more."""
        self._shares.clear()
        self.memory.clear()
        self._jobs.rows.jobs.share[:] = NAN

    def offer(self, snapshot: Snapshot, decision: CoAllocate) -> str:
        """Offer a waiting job the nodes of its host."""
        rows, jobs, settings = self._jobs.rows, self._jobs.rows.jobs, self._settings
        guest, host = rows.at(decision.guest), rows.at(decision.host)
        if guest is None or guest.phase != WAITS:
            return "it does not wait any more"
        if host is None or host.phase != RUNS:
            return "its host does not run any more"
        if guest.text in self._offers.open:
            return "it has an offer already"
        nodes = self._nodes
        why = refusal(snapshot, decision, guest, host, nodes.records, nodes.takes_guests, settings)
        if why:
            return why
        raw = guest.raw if guest.tasks == 1 else self._transport.split_task(guest.text, guest.excluded_nodes)
        if raw == 0:
            return "its next task does not wait any more"
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
            host=host.text,
            time_s=self._clock(),
            estimate_s=float(jobs.estimated_start_s[decision.guest]),
            share=decision.share,
            capped=decision.capped,
            restarts=guest.restarts,
        )
        why = self._offers.offer(offer)
        if why:
            return why
        jobs.offered_s[decision.guest] = offer.time_s
        jobs.host[decision.guest], jobs.share[decision.guest] = decision.host, decision.share
        self._shares[decision.guest] = (decision.share, decision.capped)
        nodes.keep(snapshot.core_guest, decision.guest, jobs.cores[decision.guest], decision.nodes)
        return ""

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
        jobs.offered_s[row], jobs.host[row], jobs.share[row] = NAN, -1, NAN
        self._shares.pop(row, None)
        if snapshot is not None:
            kept = snapshot.core_guest
            kept[kept == row] = -1

    def set_share(self, decision: SetShare) -> str:
        """So much of its host's cores has a guest from now on."""
        rows, row, jobs = self._jobs.rows, decision.guest, self._jobs.rows.jobs
        if not self._runs(row) or not rows.extra.guest[row]:
            return "it does not run as a guest any more"
        if jobs.host[row] < 0:
            return "its host has ended"
        self._shares[row] = (decision.share, decision.capped)
        jobs.share[row] = decision.share
        return ""

    def set_memory(self, snapshot: Snapshot, decision: SetMemory) -> str:
        """Above so much a job's memory is reclaimed; 0 lifts that."""
        row = decision.job
        if decision.high_bytes == 0:
            self.memory.pop(row, None)
            return ""
        if not 0 < decision.high_bytes < INF:
            return f"a limit of {decision.high_bytes:g} bytes is none"
        jobs, extra = self._jobs.rows.jobs, self._jobs.rows.extra
        if not self._runs(row):
            return "it does not run any more"
        if not (extra.guest[row] and jobs.host[row] >= 0) and row not in jobs.host[snapshot.guests]:
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

    def _runs(self, row: int) -> bool:
        record = self._jobs.rows.at(row)
        return record is not None and record.phase == RUNS

    def leases(self, snapshot: Snapshot) -> dict[str, list[Lease]]:
        """By node everything that may bind a job until the lease runs out."""
        rows, offers = self._jobs.rows, self._offers.open
        nodes_of = {row: self._jobs.places[row].nodes.tolist() for row in snapshot.guests.tolist()}
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
            self.memory.clear()
            return {}
        holder, _ = holders(snapshot.core_owner, snapshot.machine)
        hosts = {int(holder[node]) for nodes in nodes_of.values() for node in nodes} - {-1}
        raw |= {row: str(rows.record(row).raw) for row in hosts}
        for row in self._shares.keys() - nodes_of.keys():
            del self._shares[row]
        for row in self.memory.keys() - nodes_of.keys() - hosts:
            del self.memory[row]  # it shares no more
        return leases(snapshot, nodes_of, self._shares, raw, holder, self.memory)
