"""The port `Cluster` over a real Slurm."""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from asad.cluster.bounded_lists import Sentences
from asad.cluster.lending_rules import first_reason
from asad.decisions import (
    EVICTIONS,
    Admit,
    CoAllocate,
    Decision,
    Decline,
    Defer,
    Evict,
    ExtendLimit,
    Outcome,
    SetMemory,
    SetQuota,
    SetShare,
    SetThrottle,
    Start,
    Withdraw,
)
from asad.errors import ClusterError
from asad.model import Finished, Snapshot
from asad.port import NodeLink
from asad_slurm.admission import Admission
from asad_slurm.assembly import Assembly
from asad_slurm.command import Transport
from asad_slurm.jobs import JobTable
from asad_slurm.journal import JournalError
from asad_slurm.lending import Lending
from asad_slurm.limits import Limits
from asad_slurm.nodes import Nodes
from asad_slurm.obligations import SILENT, Obligations
from asad_slurm.private_data import PrivateData
from asad_slurm.pyslurm_transport import choose_transport
from asad_slurm.records import RUNS, WAITS
from asad_slurm.settings import Settings
from asad_slurm.undo import for_now

LATER = "not begun: the time that one cycle has for changes is used up"
"""Why a decision was not done that the next cycle may decide again."""


class SlurmCluster:
    """Jobs and nodes of a Slurm, lending by way of guest partitions, quotas by way of the node actors.

    Not thread-safe: one thread calls it. Arrays of a snapshot are views, true until the next one.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        nodes: NodeLink,
        state_dir: Path,
        clock: Callable[[], float],
        transport: Transport | None = None,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        """`monotonic` shows how much time has passed, `clock` (which it is by default) when something was."""
        self._link, self._clock = nodes, clock
        self._monotonic = monotonic or clock
        self.acting_s = math.inf
        """So long may changes take from one look to the next (s); whoever runs the cycles sets it."""
        self._act_until = math.inf
        self.transport = transport or choose_transport(settings)
        self.notices = Sentences()
        """Offers that were taken back, questions not answered."""
        self._obligations = Obligations(
            self.transport, settings, state_dir, clock, self._has_time, self.notices.add
        )
        self._offers, changes = self._obligations.offers, self._obligations.changes
        self._admission = Admission(self.transport, changes, settings, clock, self.notices.add)
        self._limits, self._nodes = Limits(), Nodes(settings)
        self._jobs = JobTable(settings, self.transport, self._limits)
        self._lending = Lending(
            self.transport,
            self._offers,
            nodes,
            settings,
            clock,
            self._nodes,
            self._jobs,
            self._obligations.marks,
        )
        self._shares = self._lending.shares
        self._assembly = Assembly(
            settings, self._nodes, self._jobs, self._offers, changes, self._shares, nodes, self._monotonic
        )
        self.applications: Sequence[str] = self._jobs.applications
        """Names of the codes in `Jobs.application`: user/name/size."""
        self.ledger: list[dict[str, Any]] = self._jobs.ledger
        """Of every guest and host that has ended: what was lent, and by how much its limit was extended."""
        self.hides_jobs = PrivateData(self.transport, self._monotonic).hides_jobs
        """Does Slurm show users no jobs but their own?"""
        self._snapshot: Snapshot | None = None
        self._limits_recalled = False
        self._left_s = math.inf
        """How much of `acting_s` the look has left over."""

    # ------------------------------------------------------------------------------------------------------ lifecycle

    def sentence(self) -> str:
        """One line about the way to Slurm and what it shows."""
        return (
            f"{self.transport.sentence()}: {len(self._nodes.records)} nodes, "
            f"{self._nodes.machine.total_cores} cores, {len(self._jobs.rows.of)} jobs"
        )

    def recover(self) -> list[str]:
        """At start: take back what an earlier daemon has offered and nobody has taken; one sentence each.

        Offers that cannot be taken back now (Slurm does not answer) are taken back by a later snapshot. What admission
        has changed stays: it is the promise that this daemon keeps, or returns by `give_back`.
        """
        owes = self._obligations
        owes.load()
        self._act_until = self._monotonic() + self.acting_s
        if owes.error:
            return [f"no offers will be made: {owes.error}"]
        try:
            return owes.watch_offers(self.transport.look().jobs)
        except ClusterError as error:
            count = len(self._offers.open)
            return [f"{count} offers stay open until Slurm answers: {error}"] if count else []

    def release(self) -> list[str]:
        """Take back all offers that have not been taken, restore what admission changed of jobs that wait, and lift
        every quota; one sentence each."""
        owes = self._obligations
        owes.load()
        self._shares.clear()
        self._link.grant({})
        self.transport.answers = True
        self._act_until = math.inf  # nothing comes after it
        sentences: list[str] = []
        if owes.error:
            sentences.append(f"what a daemon before this one has offered is not known: {owes.error}")
        if waits := self._offers.untaken():
            try:  # a job may have started since the last look, and what is asked of one that waits may shrink it
                sentences += owes.watch_offers(self.transport.look().jobs)
            except ClusterError as error:
                return [
                    *sentences,
                    *(f"{job}: its offer stays open: {error}" for job in waits),
                    *owes.stays(error),
                ]
        for job in self._offers.untaken():
            offer = self._offers.open[job]
            failure = self._offers.withdraw(job) if self.transport.answers else SILENT
            if failure:
                sentences.append(f"{job}: its offer stays open: {failure}")
            else:
                self._lending.forget_offer(self._jobs.rows.of.get(job, -1), self._snapshot)
                sentences.append(f"{job}: its offer is taken back; it waits in {offer.partition} again")
        return sentences + (owes.give_back() if self.transport.answers else owes.stays(SILENT))

    def give_back(self, *, begin: bool = True) -> list[str]:
        """Restore throttle, nice and (with `begin`) begin time of every job that waits; one sentence for each.

        For a daemon that admits no more. What cannot be restored now stays in the journal.
        """
        return self._obligations.give_back(begin=begin)

    def close(self) -> None:
        """Let go of the transport. Offers stay as they are: `release` takes them back."""
        self.transport.close()

    # ----------------------------------------------------------------------------------------------------------- port

    def snapshot(self) -> Snapshot:
        """The cluster as Slurm and the node actors show it now; hands over the leases that were decided.

        Raises ClusterError when Slurm does not answer: then nothing is renewed, and quotas run out by themselves.
        """
        with uncollected():
            look = self.transport.look()
            now_s = self._clock()
            self._obligations.load()
            if self._nodes.see(look.nodes):
                self._jobs.places.clear()
            failure = self._limits.ask(self.transport, now_s)
            if failure is not None:
                self.notices.add([failure] if failure else [])
                self._jobs.bound()
            self._act_until = self._monotonic() + self.acting_s
            self._obligations.watch_offers(look.jobs)
            left_s = self._act_until - self._monotonic()
            self._jobs.see(look.jobs, now_s)
            self._recall_limits()
        snapshot = self._assembly.snapshot(now_s)
        self._obligations.watch_changes(look.jobs)
        self._link.grant(self._shares.leases(snapshot))
        self._snapshot, self._left_s = snapshot, left_s
        return snapshot

    def apply(self, decisions: Sequence[Decision]) -> Iterable[Outcome]:
        """Do what was decided on the last snapshot. A decision that came too late is answered, never raised.

        What returns something comes first, then limits, then what is held back, and offers last; outcomes are in the
        order of the decisions. Once `acting_s` is over, nothing more is asked of Slurm.
        """
        outcomes = [Outcome(decision, False, LATER) for decision in decisions]
        self.transport.answers = True
        self._act_until = self._monotonic() + self._left_s
        for index in in_turn(decisions):
            why = self._apply(decisions[index])
            outcomes[index] = Outcome(decisions[index], not why, why, transient=why == LATER or for_now(why))
        if self._snapshot is not None and any(outcome.done for outcome in outcomes):
            self._link.grant(self._shares.leases(self._snapshot))
        return outcomes

    def finished(self, since_s: float) -> Finished:
        """The jobs that have ended and were not reported yet, whatever `since_s`: Slurm may be late to show an end.

        Only jobs that ran are reported. Their rows stay as they are until one more snapshot has passed.
        """
        return self._jobs.finished()

    def _recall_limits(self) -> None:
        """Once after the journal was read: guests whose limits an earlier daemon may have extended."""
        if self._limits_recalled or self._obligations.error:
            return
        self._limits_recalled = True
        for job, offer in self._offers.open.items():
            row = self._jobs.rows.of.get(job)
            if offer.started and row is not None and self._jobs.rows.record(row).phase == RUNS:
                self._jobs.recall_limit(row, offer.limit_s)

    # --------------------------------------------------------------------------------------------------------- acting

    def _apply(self, decision: Decision) -> str:
        """Do it; why not, or the empty string."""
        if self._snapshot is None:
            return "there is no snapshot yet"
        match decision:  # what does not ask Slurm, and needs no journal
            case SetShare():
                return self._shares.set_share(decision)
            case SetQuota():
                return self._shares.set_quota(decision)
            case SetMemory():
                return self._shares.set_memory(decision)
        if not self.transport.answers:
            return "Slurm did not answer the change before this one"
        if not self._has_time():
            return LATER
        unread = self._obligations.error
        match decision:
            case ExtendLimit():
                return self._lending.extend(decision)
            case Withdraw():
                return self._lending.withdraw(self._snapshot, decision)
            case CoAllocate():
                return unread or self._lending.offer(self._snapshot, decision)
            case Admit() | Decline() | Defer() | Start() | SetThrottle():
                return unread or self._admit(decision)
            case Evict():
                return unread or self._evict(decision)
        return f"Slurm does not know how to {decision.kind or type(decision).__name__}"

    def _admit(self, decision: Admit | Decline | Defer | Start | SetThrottle) -> str:
        rows, row = self._jobs.rows, decision.job
        known = rows.records[row] if 0 <= row < len(rows) else None
        if known is not None and known.array:  # any of its tasks stands for the array
            row = self._jobs.arrays.waiting.get(known.array, -1)
        record = rows.at(row)
        if record is None or record.phase != WAITS:
            return "it does not wait any more"
        if record.text in self._offers.open:
            return "it has an offer to run as a guest"
        self._obligations.decided_anew(record.array or record.raw)
        return self._admission.apply(decision, record)

    def _evict(self, decision: Evict) -> str:
        """End a running batch job as its owner chose. What is asked for is in the journal before Slurm hears of it."""
        record = self._jobs.rows.at(decision.job)
        if record is None or record.phase != RUNS:
            return "it does not run any more"
        if why := first_reason(
            (
                "it runs as a guest, and holds nothing that others could have",
                self._jobs.rows.extra.guest[decision.job],
            ),
            (f"there is no way {decision.how!r:.40} to evict it", decision.how not in EVICTIONS),
        ):
            return why
        try:
            self._obligations.journal.write("evict", self._clock(), record.alone, how=decision.how)
        except JournalError as error:
            return str(error)
        return self.transport.evict(record.alone, decision.how).refusal

    def _has_time(self) -> bool:
        """May Slurm be asked for one more change before the next look?"""
        return self._monotonic() < self._act_until


TURN: dict[type[Decision], int] = {
    **dict.fromkeys((Withdraw, Start), 1),
    ExtendLimit: 2,
    **dict.fromkeys((Evict, Admit, Decline, SetThrottle, Defer), 3),
    CoAllocate: 4,
}
"""The order in which decisions are carried out; first those that ask nothing of Slurm."""


def in_turn(decisions: Sequence[Decision]) -> list[int]:
    """Numbers of the decisions in the order in which they are carried out; those about one job stay in theirs."""
    turns, latest = list[int](), dict[int, int]()
    for decision in decisions:
        row = getattr(decision, "job", getattr(decision, "guest", -1))
        latest[row] = max(TURN.get(type(decision), 0), latest.get(row, 0))
        turns.append(latest[row])
    return sorted(range(len(decisions)), key=turns.__getitem__)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No search for cycles: a hundred thousand records are made here, and none refers to another."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
