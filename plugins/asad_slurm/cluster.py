"""The port `Cluster` over a real Slurm."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asad.errors import ClusterError
from asad.model import (
    EVICTIONS,
    Admit,
    CoAllocate,
    Codes,
    Decision,
    Decline,
    Defer,
    Evict,
    ExtendLimit,
    Finished,
    Ints,
    Lease,
    Machine,
    NodeLink,
    Outcome,
    SetMemory,
    SetShare,
    SetThrottle,
    Snapshot,
    Start,
    Withdraw,
)
from asad_slurm import bars
from asad_slurm.admission import DECISIONS, Admission
from asad_slurm.applications import Applications
from asad_slurm.arrays import Arrays
from asad_slurm.changes import CHANGED_NAMES, Changes, is_ours
from asad_slurm.command import CommandTransport, Transport
from asad_slurm.cores import Place, holders, keep, occupy, place
from asad_slurm.journal import MOST_LINES, Journal, JournalError
from asad_slurm.leases import leases
from asad_slurm.limits import Limits
from asad_slurm.measures import measure, memory_used
from asad_slurm.nodesets import expand
from asad_slurm.offers import Offer, Offers
from asad_slurm.pyslurm_transport import PyslurmTransport
from asad_slurm.records import ENDED, FACTS, INF, LEAVES, NAN, RUNS, WAITS, JobRecord, NodeRecord, hint
from asad_slurm.refusals import group, refusal
from asad_slurm.rows import Rows
from asad_slurm.settings import Settings
from asad_slurm.undo import BEGIN, CHANGES

MOST_SAID = 1000
MOST_LEDGER = 100_000
WITHIN_A_SECOND_S = 0.5
"""A job that began and ended in the same second, as far as Slurm tells: it counts whole ones."""


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
        """`monotonic` tells how much time lies between two looks, `clock` (which it is by default) when they were."""
        self._settings, self._link, self._clock = settings, nodes, clock
        self._monotonic = monotonic or clock
        self.transport = transport or choose_transport(settings)
        self._journal = Journal(state_dir)
        self._offers = Offers(self.transport, self._journal, settings.offer_patience_s, clock)
        self._changes = Changes(self.transport, self._journal, clock)
        self._admission = Admission(self.transport, self._changes, settings, clock, self._say)
        self._journal_error = "the journal of offers has not been read yet"
        self._applications = Applications()
        self._arrays = Arrays()
        self.applications: list[str] = self._applications.names
        """Names of the codes in `Jobs.application`: user/name/size."""
        self.ledger: list[dict[str, Any]] = []
        """Of every guest and host that has ended: what was lent, and by how much its limit was extended."""
        self.said: list[str] = []
        """Sentences about what happened outside of `apply`: offers that were taken back, questions not answered."""
        self._user_code: dict[str, int] = {}
        self._group_code: dict[str, int] = {}
        self._limits = Limits()
        self._rows = Rows()
        self._machine = Machine((), np.zeros(0, np.int32), np.zeros(0), "sinfo")
        self._nodes: list[NodeRecord] = []
        self._node_number: dict[str, int] = {}
        self._guest_nodes: dict[str, NDArray[np.bool_]] = {}
        self._partition_nodes: dict[str, Ints] = {}
        self._places: dict[int, Place] = {}
        self._shares: dict[int, tuple[float, bool]] = {}
        """By row of a guest: the share decided for it beside its present host, and whether that host is capped too."""
        self._memory: dict[int, float] = {}
        """By row of a job that shares: above how many bytes on a node its memory is reclaimed."""
        self._ended: list[tuple[int, float, float, float, bool]] = []
        """Row, end, run time and CPU fraction of jobs that are still to be told, and whether each ended well."""
        self._told: dict[str, int] = {}
        """Jobs that have ended and Slurm still shows, with how often they had been requeued."""
        self._version = 0
        self._time_s = self._looked_at = -INF
        """When the last look was, by the clock and by the one that is never set."""
        self._snapshot: Snapshot | None = None

    # ------------------------------------------------------------------------------------------------------ lifecycle

    def sentence(self) -> str:
        """One line about the way to Slurm and what it shows."""
        return (
            f"{self.transport.sentence()}: {len(self._machine.node_names)} nodes, "
            f"{self._machine.total_cores} cores, {len(self._rows.of)} jobs"
        )

    def recover(self) -> list[str]:
        """At start: take back what an earlier daemon has offered and nobody has taken; one sentence each.

        Offers that cannot be taken back now (Slurm does not answer) are taken back by a later snapshot. What admission
        has changed stays: it is the promise that this daemon keeps, or gives back by `give_back`.
        """
        self._load_offers()
        if self._journal_error:
            return [f"no offers will be made: {self._journal_error}"]
        if not self._offers.open:
            return []
        try:
            jobs = self.transport.look().jobs
        except ClusterError as error:
            return [f"{len(self._offers.open)} offers stay open until Slurm answers: {error}"]
        return self._watch_offers(jobs)

    def release(self) -> list[str]:
        """Take back all offers that have not been taken, give back what admission changed of jobs that wait, and lift
        every quota; one sentence each."""
        self._load_offers()
        self._shares.clear()
        self._memory.clear()
        self._rows.jobs.share[:] = NAN
        self._link.grant({})
        self.transport.answers = True
        said: list[str] = []
        waits = [job for job, offer in self._offers.open.items() if not offer.started]
        if waits:
            try:  # a job may have started since the last look, and what is asked of one that waits may shrink it
                said += self._watch_offers(self.transport.look().jobs)
            except ClusterError as error:
                return [f"{job}: its offer stays open: {error}" for job in waits]
        for job, offer in list(self._offers.open.items()):
            if offer.started:
                continue
            failure = self._offers.withdraw(job) if self.transport.answers else "Slurm does not answer"
            if failure:
                said.append(f"{job}: its offer stays open: {failure}")
            else:
                self._forget_offer(self._rows.of.get(job, -1))
                said.append(f"{job}: its offer is taken back; it waits in {offer.partition} again")
        if not self.transport.answers:
            return said
        return said + self.give_back()

    def give_back(self, *, begin: bool = True) -> list[str]:
        """Give every job that waits its own throttle, nice and (with `begin`) begin time back; one sentence for each.

        For a daemon that admits no more. What cannot be given back now stays in the journal.
        """
        self._load_offers()
        keys = tuple(key for key in CHANGES if begin or key != BEGIN)
        if not any(key in keys for _, key in self._changes.open):
            return []
        try:
            jobs = self.transport.look().jobs
        except ClusterError as error:
            return [f"what was changed of {len(self._changes.open)} jobs stays so: {error}"]
        waiting = waiting_by_number(jobs)
        said = []
        self.transport.answers = True
        for job in dict.fromkeys(job for job, key in self._changes.open if key in keys):
            changed = [key for at, key in self._changes.open if at == job and key in keys]
            names = ", ".join(CHANGED_NAMES[key] for key in changed)
            waits = job in waiting
            failure = (
                self._changes.give_back(job, waiting.get(job), keys)
                if self.transport.answers
                else "Slurm does not answer"
            )
            if failure:
                said.append(f"{job}: its {names} could not be given back: {failure}")
            elif waits:
                said.append(f"{job}: it has its own {names} again")
        return said

    def close(self) -> None:
        """Let go of the transport. Offers stay as they are: `release` takes them back."""
        self.transport.close()

    # ----------------------------------------------------------------------------------------------------------- port

    def snapshot(self) -> Snapshot:
        """The cluster as Slurm and the node actors show it now; renews the leases that were decided.

        Raises ClusterError when Slurm does not answer: then nothing is renewed, and quotas run out by themselves.
        """
        with uncollected():
            look = self.transport.look()
            now_s = self._clock()
            self._load_offers()
            self._see_nodes(look.nodes)
            failure = self._limits.ask(self.transport, now_s)
            if failure is not None:
                self._say([failure] if failure else [])
                for row in self._rows.of.values():
                    self._bound(row)
            self._watch_offers(look.jobs)
            self._see_jobs(look.jobs, now_s)
        snapshot = self._assemble(now_s)
        self._watch_changes(look.jobs)
        self._link.grant(self._leases(snapshot))
        self._snapshot, self._time_s = snapshot, now_s
        return snapshot

    def apply(self, decisions: Sequence[Decision]) -> Iterable[Outcome]:
        """Do what was decided on the last snapshot. A decision that came too late is answered, never raised."""
        outcomes = []
        self.transport.answers = True
        for decision in decisions:
            if self._snapshot is None:
                why = "there is no snapshot yet"
            elif not self.transport.answers and not isinstance(decision, SetShare | SetMemory):
                why = "Slurm did not answer the change before this one"
            elif isinstance(decision, CoAllocate):
                why = self._co_allocate(self._snapshot, decision)
            elif isinstance(decision, SetShare):
                why = self._set_share(decision)
            elif isinstance(decision, SetMemory):
                why = self._set_memory(decision)
            elif isinstance(decision, ExtendLimit):
                why = self._extend(decision)
            elif isinstance(decision, Withdraw):
                why = self._withdraw(self._snapshot, decision)
            elif isinstance(decision, DECISIONS):
                why = self._admit(decision)
            elif isinstance(decision, Evict):
                why = self._evict(decision)
            else:
                why = f"Slurm does not know how to {decision.kind or type(decision).__name__}"
            outcomes.append(Outcome(decision, not why, why))
        if self._snapshot is not None and any(outcome.done for outcome in outcomes):
            self._link.grant(self._leases(self._snapshot))
        return outcomes

    def finished(self, since_s: float) -> Finished:
        """The jobs that have ended and were not told yet, whatever `since_s`: Slurm may be late to say that one ended.

        Only jobs that ran are told. Their rows stay as they are until one more snapshot has passed.
        """
        ended, self._ended = self._ended, []
        jobs = self._rows.jobs
        rows = np.array([row for row, *_ in ended], dtype=np.int32)
        told = Finished(
            row=rows,
            end_s=np.array([end_s for _, end_s, *_ in ended]),
            run_s=np.array([run_s for _, _, run_s, *_ in ended]),
            lost_s=jobs.lost_s[rows].copy(),
            cpu_fraction=np.array([cpu for *_, cpu, _ in ended]),
            completed=np.array([completed for *_, completed in ended], np.bool_),
        )
        for row, end_s, run_s, cpu, _ in ended:
            self._applications.ended(int(jobs.application[row]), cpu, float(jobs.cores[row]) * run_s)
            self._enter(row, end_s)
            self._shares.pop(row, None)
            self._memory.pop(row, None)
            self._rows.drop(row)
        return told

    # --------------------------------------------------------------------------------------------------- what is seen

    def _see_nodes(self, nodes: list[NodeRecord]) -> None:
        if nodes is self._nodes:
            return
        if [node[:4] for node in nodes] != [node[:4] for node in self._nodes]:  # name, CPUs, threads, memory
            self._machine = Machine(
                tuple(node.name for node in nodes),
                np.array([node.cpus for node in nodes], dtype=np.int32),
                np.array([node.memory_bytes for node in nodes]),
                "sinfo",
            )
            self._node_number = {node.name: number for number, node in enumerate(nodes)}
            self._places.clear()
        self._nodes = nodes
        of_partition: dict[str, list[int]] = {}
        for number, node in enumerate(nodes):
            for name in node.partitions:
                of_partition.setdefault(name, []).append(number)
        self._partition_nodes = {name: np.array(at, np.int32) for name, at in of_partition.items()}
        self._guest_nodes = {
            guest: np.array([guest in node.partitions for node in nodes], dtype=bool)
            for guest in self._settings.guest_partitions.values()
        }

    def _see_jobs(self, records: list[JobRecord], now_s: float) -> None:
        rows = self._rows
        rows.turn()
        first_look = self._time_s == -INF
        of, known, told = rows.of, rows.records, self._told
        still: dict[str, int] = {}
        present: list[int] = []
        at: list[int] = []
        changed: list[JobRecord] = []
        for record in records:
            row = of.get(record.text)
            if row is None:
                if record.phase == ENDED and (
                    first_look
                    or told.get(record.text) == record.restarts
                    or not record.end_s > record.start_s
                    or record.end_s < self._time_s
                ):
                    still[record.text] = record.restarts
                    if record.array and record.text not in told:
                        self._arrays.over(record.array, record.tasks)
                    if first_look and record.completed:
                        self._arrays.ended(record.text, record.end_s - record.start_s)
                    continue
                row = rows.take(record.text)
            elif known[row] is record:
                present.append(row)
                continue
            present.append(row)
            at.append(row)
            changed.append(record)
        self._told = still
        before = [known[row] if row < len(known) else None for row in at]
        rows.write(at, changed)
        for row, record, earlier in zip(at, changed, before, strict=True):
            if earlier is not None and _only_numbers(earlier, record):
                rows.jobs.own_estimate_s[row] = record.estimate_s
            else:
                self._describe(row, record)
        if len(present) != len(of):
            gone = set(of.values()).difference(present)
            self._see_gone(sorted(gone), now_s)
        for row, record in zip(at, changed, strict=True):
            if record.phase == ENDED:
                self._told[record.text] = record.restarts
                self._end(row, record, record.start_s, record.end_s, NAN, record.completed)

    def _see_gone(self, gone: list[int], now_s: float) -> None:
        """Jobs that squeue has forgotten: accounting knows when they ended, or they are taken to have ended now."""
        records = [self._rows.record(row) for row in gone]
        if any(record.tasks > 1 for record in records):
            # one task of those that waited together is gone, or all of them
            over = set(gone)
            left = {self._rows.record(row).raw for row in self._rows.of.values() if row not in over}
            records = [record._replace(tasks=1) if record.raw in left else record for record in records]
        known = self.transport.ended([record.raw for record in records])
        for row, record in zip(gone, records, strict=True):
            ended = known.get(record.raw)
            if ended is not None:
                self._end(row, record, ended.start_s, ended.end_s, ended.cpu_time_s, ended.completed)
            else:
                self._end(row, record, record.start_s, now_s, NAN, False)

    def _end(
        self,
        row: int,
        record: JobRecord,
        start_s: float,
        end_s: float,
        cpu_time_s: float,
        completed: bool,
    ) -> None:
        """A job is over. One that never ran is dropped, any other will be told."""
        self._arrays.over(record.array, record.tasks)
        if end_s == start_s and row in self._places:
            end_s += WITHIN_A_SECOND_S  # it was seen to run
        if not end_s > start_s > 0:  # NaN: it waited to the end
            self._rows.drop(row)
            return
        self._rows.of.pop(record.text, None)
        self._rows.extra.phase[row] = ENDED
        self._rows.jobs.start_s[row] = start_s
        extra, span_s = self._rows.extra, end_s - start_s
        if completed and not extra.guest[row]:
            self._arrays.ended(record.text, span_s)
        if math.isnan(cpu_time_s):  # what was used until the last sample stands for the whole run
            cpu_time_s = float(extra.cpu_time_s[row])
            span_s = float(extra.cpu_time_at_s[row]) - start_s
        cpu = min(1.0, max(0.0, cpu_time_s / (record.cores * span_s))) if span_s > 0 else NAN
        if extra.squeezed[row]:
            cpu = NAN  # it wanted more than it got, and nobody knows how much
        self._ended.append((row, end_s, end_s - start_s, cpu, completed))

    def _enter(self, row: int, end_s: float) -> None:
        """The ledger of what lending gave and took."""
        jobs, extra, record = self._rows.jobs, self._rows.extra, self._rows.record(row)
        if not extra.guest[row] and not extra.was_host[row]:
            return
        self.ledger.append(
            {
                "time_s": end_s,
                "account": record.account,
                "job_id": record.text,
                "role": "guest" if extra.guest[row] else "host",
                "lent_core_s": float(extra.lent_core_s[row]),
                "extended_s": float(jobs.extended_s[row]),
            }
        )
        del self.ledger[:-MOST_LEDGER]

    def _describe(self, row: int, record: JobRecord) -> None:
        """What follows from a record alone."""
        jobs, extra, settings = self._rows.jobs, self._rows.extra, self._settings
        jobs.application[row] = self._applications.code(record.user, record.name, record.cores)
        jobs.user[row] = self._user_code.setdefault(record.user, len(self._user_code))
        if settings.share_users != "any":
            jobs.share_group[row] = self._group_code.setdefault(
                group(record, settings), len(self._group_code)
            )
        if record.array:
            extra.array[row], extra.tasks[row] = record.array, record.tasks
        told = hint(record.comment)
        if told:
            self._rows.hints[row] = told
        elif self._rows.hints:
            self._rows.hints.pop(row, None)
        guest = record.partition in self._guest_nodes
        if not guest:  # its partition says where it waited, and that was looked at
            jobs.memory_bound[row] = bars.memory_bound(record, settings)
        extra.guest[row] = guest
        extra.tier[row] = self._limits.tier(record.partition)
        extra.tries[row] = record.waits_turn and not guest
        if record.phase == WAITS:
            extra.static_host_bar[row] = bars.NOT_ITS_TURN if guest else 0  # who waits lends nothing yet
            extra.static_guest_bar[row] = bars.guest_bar(record, settings)
            jobs.host[row], jobs.share[row], jobs.own_start_s[row] = -1, NAN, NAN
            jobs.own_estimate_s[row] = record.estimate_s
            if record.text not in self._offers.open:
                self._shares.pop(row, None)
        else:
            extra.static_host_bar[row] = bars.NOT_ITS_TURN if guest else bars.host_bar(record, settings)
            extra.static_guest_bar[row] = 0
            if not guest:
                jobs.own_start_s[row] = record.start_s
                jobs.host[row], jobs.share[row] = -1, NAN  # Slurm has started it itself, an offer still open
            self._bound(row)

    def _bound(self, row: int) -> None:
        record = self._rows.record(row)
        if record.phase == RUNS:
            self._rows.jobs.latest_end_s[row] = self._limits.latest_end_s(record)
        self._rows.extra.tier[row] = self._limits.tier(record.partition)

    # ------------------------------------------------------------------------------------------------------- assembly

    def _assemble(self, now_s: float) -> Snapshot:
        rows, jobs, extra = self._rows, self._rows.jobs, self._rows.extra
        alive: Ints = np.fromiter(rows.of.values(), dtype=np.int32, count=len(rows.of))
        phase, in_guest = extra.phase[alive], extra.guest[alive]
        holding = alive[(phase == RUNS) | (phase == LEAVES)]
        running = alive[(phase == RUNS) & ~in_guest]
        guests = alive[(phase == RUNS) & in_guest]
        waiting = alive[phase == WAITS]
        jobs.begin_s[waiting[jobs.begin_s[waiting] <= now_s]] = (
            NAN  # Slurm sets it when it looks at a job first, too
        )
        self._places = {row: self._place(row) for row in holding.tolist()}
        batch = holding[~extra.guest[holding]]
        core_owner = occupy(batch.tolist(), self._places, self._machine)
        core_guest = occupy(holding[extra.guest[holding]].tolist(), self._places, self._machine)
        holder, several = holders(core_owner, self._machine)
        jobs.offered_s[alive] = NAN
        jobs.host_bar[alive], jobs.guest_bar[alive] = (
            extra.static_host_bar[alive],
            extra.static_guest_bar[alive],
        )
        self._show_hosts(guests, holder)
        offered = self._show_offers(core_guest)
        queue = self._queue(waiting, offered)
        reports = self._link.reports()
        settings, looked_at = self._settings, self._monotonic()
        elapsed_s, self._looked_at = looked_at - self._looked_at, looked_at
        applications, arrays = self._applications, self._arrays
        measure(rows, applications, arrays, reports, holding, guests, now_s, elapsed_s, settings.window_s)
        self._show_own_starts(guests, now_s)
        node_bar: Codes = np.array(
            [bars.node_bar(node, settings, reports.get(node.name)) for node in self._nodes], dtype=np.int8
        )
        self._bar(running, queue, several, node_bar)
        self._version += 1
        told = np.array([row for row, *_ in self._ended], dtype=np.int32)
        shown = arrays.shown(rows, alive, told)
        return Snapshot(
            time_s=now_s,
            version=self._version,
            machine=self._machine,
            jobs=jobs,
            queue=queue,
            running=running,
            guests=guests,
            core_owner=core_owner,
            core_guest=core_guest,
            waiting=int(extra.tasks[waiting].sum()),
            node_bar=node_bar,
            arrays=shown,
            hints=dict(rows.hints),
            classes=self._classes(queue, shown.waiting_row, waiting[jobs.begin_s[waiting] > now_s]),
            own_begins=self._own_begins(),
            partition_nodes=self._partition_nodes,
            memory_used=memory_used(rows, reports, holding),
            memory_high=dict(self._memory),
        )

    def _own_begins(self) -> dict[int, float]:
        """By row, of what waits and begins when we have said: its user's own begin time."""
        found = {}
        for (job, key), change in self._changes.open.items():
            row = self._arrays.waiting.get(job, self._rows.of.get(str(job), -1)) if key == BEGIN else -1
            if row < 0:
                continue
            record = self._rows.record(row)
            if record.phase == WAITS and is_ours(change, record):
                found[row] = float(change.was) if change.was > 0 else NAN
        return found

    def _classes(self, queue: Ints, of_arrays: Ints, deferred: Ints) -> dict[int, tuple[str, str]]:
        """Partition and QOS of what waits for its turn or for a begin time."""
        waiting = (*queue.tolist(), *of_arrays[of_arrays >= 0].tolist(), *deferred.tolist())
        records = {row: self._rows.record(row) for row in waiting}
        return {row: (record.partition, record.qos) for row, record in records.items()}

    def _place(self, row: int) -> Place:
        record, known = self._rows.record(row), self._places.get(row)
        if known is not None and known.record is record:
            return known
        return place(record, self._node_number, self._nodes)

    def _queue(self, waiting: Ints, offered: list[int]) -> Ints:
        """The first of those that Slurm would try, in its order: partition's tier, priority, number."""
        rows, extra = self._rows, self._rows.extra
        # of a job that has just been deferred Slurm does not say so before it looks at it again
        now = extra.tries[waiting] & np.isnan(rows.jobs.begin_s[waiting])
        tried = np.union1d(waiting[now], offered).astype(np.int32)
        first = tried
        if len(tried) > 4 * self._settings.depth:  # not all need be put in order
            rank = extra.tier[tried] * 2.0**33 + extra.priority[tried]
            least = np.partition(rank, -self._settings.depth)[-self._settings.depth]
            first = tried[rank >= least]
        raws = np.array([rows.record(row).raw for row in first.tolist()], dtype=np.int64)
        order = np.lexsort((raws, -extra.priority[first], -extra.tier[first]))
        return first[order[: self._settings.depth + len(offered)]]

    def _show_hosts(self, guests: Ints, holder: Ints) -> None:
        """Beside whom each guest runs now, and the share that was decided for that pair."""
        jobs, phase = self._rows.jobs, self._rows.extra.phase
        for row in guests.tolist():
            beside = [int(holder[node]) for node in self._places[row].nodes.tolist()]
            beside = [other for other in beside if other >= 0 and phase[other] == RUNS]
            host = max(set(beside), key=beside.count) if beside else -1
            if host != jobs.host[row] and not math.isnan(jobs.share[row]):
                self._shares.pop(row, None)  # it was decided for another host
                self._memory.pop(row, None)
            jobs.host[row] = host
            jobs.share[row] = self._shares.get(row, (NAN, False))[0] if host >= 0 else NAN

    def _show_offers(self, core_guest: Ints) -> list[int]:
        """A job with an open offer is shown on the cores that are kept for it, so that nobody else is sent there."""
        rows, jobs, shown = self._rows, self._rows.jobs, []
        for text, offer in self._offers.open.items():
            row = rows.of.get(text)
            if row is None or offer.started or rows.extra.phase[row] != WAITS:
                continue
            jobs.offered_s[row] = offer.time_s
            jobs.host[row] = rows.of.get(offer.host, -1)
            jobs.share[row] = offer.share
            jobs.estimated_start_s[row] = jobs.own_estimate_s[row] = offer.estimate_s
            jobs.guest_bar[row] = 0
            self._keep(core_guest, row, self._numbers(offer.nodes))
            shown.append(row)
        return shown

    def _keep(self, core_guest: Ints, row: int, nodes: Sequence[int]) -> None:
        threads = max((self._nodes[node].threads for node in nodes), default=1)
        keep(core_guest, row, int(self._rows.jobs.cores[row]), nodes, self._machine.first_core, threads)

    def _show_own_starts(self, guests: Ints, now_s: float) -> None:
        """A guest's own turn is the one that Slurm foresaw when it was offered to it."""
        jobs = self._rows.jobs
        for row in guests.tolist():
            offer = self._offers.open.get(str(jobs.job_id[row]))
            estimate_s = offer.estimate_s if offer else NAN
            jobs.own_estimate_s[row] = estimate_s
            jobs.own_start_s[row] = estimate_s if estimate_s <= now_s else NAN

    def _numbers(self, names: Iterable[str]) -> list[int]:
        return [self._node_number[name] for name in names if name in self._node_number]

    def _bar(self, running: Ints, queue: Ints, several: NDArray[np.bool_], node_bar: Codes) -> None:
        """What bars a job because of its nodes, of other jobs, or because it was not watched long enough."""
        jobs, settings, record = self._rows.jobs, self._settings, self._rows.record
        takes = node_bar == 0
        takes &= np.any(list(self._guest_nodes.values()), axis=0) if self._guest_nodes else False
        shared_too = "shared-node" in settings.lend
        lending = set()
        for row in running[jobs.host_bar[running] == 0].tolist():
            nodes = self._places[row].nodes
            if len(nodes) == 0 or not takes[nodes].all():
                jobs.host_bar[row] = bars.NODE_TAKES_NONE
            elif several[nodes].any() and not shared_too:
                jobs.host_bar[row] = bars.SHARED_NODE
            else:
                lending.add(group(record(row), settings))
        if settings.share_users != "any":
            for row in queue[(jobs.guest_bar[queue] == 0) & np.isnan(jobs.offered_s[queue])].tolist():
                if group(record(row), settings) not in lending:
                    jobs.guest_bar[row] = bars.OTHER_USERS

    # --------------------------------------------------------------------------------------------------------- offers

    def _load_offers(self) -> None:
        if not self._journal_error:
            return
        try:
            self._offers.load(expand)
            self._changes.load()
        except JournalError as error:
            self._journal_error = str(error)
        else:
            self._journal_error = ""

    def _watch_offers(self, jobs: list[JobRecord]) -> list[str]:
        """Take back or close the offers that are over."""
        texts = self._offers.watched()
        if not texts:
            return []
        # a job is found by Slurm's number: a task of an array goes by its array's name until it is split
        offered = {texts[job.raw]: job for job in jobs if job.raw in texts and job.tasks == 1}
        said = self._offers.watch(offered, (job.text for job in jobs if job.phase == RUNS), self._clock())
        self._say(said)
        return said

    def _watch_changes(self, jobs: list[JobRecord]) -> None:
        """Close the changes that are over, and tell `asad-undo` that somebody stands behind the others."""
        if self._journal.lines > MOST_LINES:
            with contextlib.suppress(JournalError):
                self._offers.compact()
        if not (self._changes.open or self._changes.lapsed) or self._journal_error:
            return
        self._journal.beat()
        watched = {job for job, _ in self._changes.open} | self._changes.lapsed.keys()
        of_them = [record for record in jobs if (record.array or record.raw) in watched]
        waiting = waiting_by_number(of_them)
        lives = {record.array or record.raw for record in of_them if record.phase != ENDED}
        self._say(self._changes.watch(waiting.get, lives.__contains__))

    def _forget_offer(self, row: int) -> None:
        if row < 0:
            return
        jobs = self._rows.jobs
        jobs.offered_s[row], jobs.host[row], jobs.share[row] = NAN, -1, NAN
        self._shares.pop(row, None)
        if self._snapshot is not None:
            kept = self._snapshot.core_guest
            kept[kept == row] = -1

    def _say(self, sentences: list[str]) -> None:
        self.said += sentences
        del self.said[:-MOST_SAID]

    # --------------------------------------------------------------------------------------------------------- acting

    def _co_allocate(self, snapshot: Snapshot, decision: CoAllocate) -> str:
        rows, jobs, settings = self._rows, self._rows.jobs, self._settings
        guest, host = rows.records[decision.guest], rows.records[decision.host]
        if self._journal_error:
            return self._journal_error
        if guest is None or guest.phase != WAITS:
            return "it does not wait any more"
        if host is None or rows.extra.phase[decision.host] != RUNS:
            return "its host does not run any more"
        if guest.text in self._offers.open:
            return "it has an offer already"
        why = refusal(snapshot, decision, guest, host, self._nodes, self._guest_nodes, settings)
        if why:
            return why
        raw = guest.raw if guest.tasks == 1 else self.transport.split_task(guest.text, guest.excluded_nodes)
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
        self._keep(snapshot.core_guest, decision.guest, decision.nodes)
        return ""

    def _admit(self, decision: Admit | Decline | Defer | Start | SetThrottle) -> str:
        rows, row = self._rows, decision.job
        record = rows.records[row] if 0 <= row < len(rows) else None
        if self._journal_error:
            return self._journal_error
        if record is not None and record.array:
            row = self._arrays.waiting.get(record.array, -1)
            record = rows.records[row] if row >= 0 else None
        if record is None or record.phase != WAITS or record.text not in rows.of:
            return "it does not wait any more"
        if record.text in self._offers.open:
            return "it has an offer to run as a guest"
        return self._admission.apply(decision, record)

    def _evict(self, decision: Evict) -> str:
        """End a running batch job as its owner chose. What is asked for is in the journal before Slurm hears of it."""
        rows, row = self._rows, decision.job
        record = rows.records[row] if 0 <= row < len(rows) else None
        if self._journal_error:
            return self._journal_error
        if record is None or record.text not in rows.of or rows.extra.phase[row] != RUNS:
            return "it does not run any more"
        if rows.extra.guest[row]:
            return "it runs as a guest, and holds nothing that others could have"
        if decision.how not in EVICTIONS:
            return f"there is no way {decision.how!r:.40} to evict it"
        try:
            self._journal.write("evict", self._clock(), record.alone, how=decision.how)
        except JournalError as error:
            return str(error)
        answer = self.transport.evict(record.alone, decision.how)
        if answer.done:
            return ""
        return f"Slurm refused: {answer.why}" if answer.certain else answer.why

    def _set_share(self, decision: SetShare) -> str:
        row = decision.guest
        if self._rows.extra.phase[row] != RUNS or not self._rows.extra.guest[row]:
            return "it does not run as a guest any more"
        if self._rows.jobs.host[row] < 0:
            return "its host has ended"
        self._shares[row] = (decision.share, decision.capped)
        self._rows.jobs.share[row] = decision.share
        return ""

    def _set_memory(self, decision: SetMemory) -> str:
        row = decision.job
        if decision.high_bytes == 0:
            self._memory.pop(row, None)
            return ""
        if not 0 < decision.high_bytes < INF:
            return f"a limit of {decision.high_bytes:g} bytes is none"
        jobs, extra = self._rows.jobs, self._rows.extra
        if extra.phase[row] != RUNS:
            return "it does not run any more"
        assert self._snapshot is not None
        guests = self._snapshot.guests
        if not (extra.guest[row] and jobs.host[row] >= 0) and row not in jobs.host[guests]:
            return "it shares its nodes with nobody"
        self._memory[row] = decision.high_bytes
        return ""

    def _withdraw(self, snapshot: Snapshot, decision: Withdraw) -> str:
        record = self._rows.records[decision.guest]
        offer = self._offers.open.get(record.text) if record else None
        if offer is None:
            return "nothing is offered to it"
        if offer.started:
            return "it has started"
        why = self._offers.withdraw(offer.job)
        if not why:
            self._forget_offer(decision.guest)
        return why

    def _extend(self, decision: ExtendLimit) -> str:
        """Slurm counts whole minutes: rounded up, but never beyond the latest end."""
        row, jobs = decision.job, self._rows.jobs
        record = self._rows.records[row]
        if record is None or self._rows.extra.phase[row] != RUNS:
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
        answer = self.transport.update(record.alone, {"TimeLimit": f"+{minutes}"})
        if not answer.done:
            return f"Slurm refused: {answer.why}"
        jobs.extended_s[row] += 60.0 * minutes
        jobs.limit_end_s[row] += 60.0 * minutes
        return ""

    def _leases(self, snapshot: Snapshot) -> dict[str, list[Lease]]:
        """Everything that may bind a job until the lease runs out."""
        rows, offers = self._rows, self._offers.open
        nodes_of = {row: self._places[row].nodes.tolist() for row in snapshot.guests.tolist()}
        for text, offer in offers.items():
            row = rows.of.get(text)
            if row is not None and row not in nodes_of and rows.extra.phase[row] == WAITS:
                nodes_of[row] = self._numbers(offer.nodes)
        holder, _ = (
            holders(snapshot.core_owner, snapshot.machine) if nodes_of else (np.zeros(0, np.int32), None)
        )
        hosts = {int(holder[node]) for nodes in nodes_of.values() for node in nodes}
        raw = {row: str(rows.record(row).raw) for row in {*nodes_of, *hosts} if row >= 0}
        raw |= {
            row: str(offers[text].raw) for text, row in rows.of.items() if text in offers and row in nodes_of
        }
        for row in [row for row in self._memory if row not in nodes_of and row not in hosts]:
            del self._memory[row]  # it shares no more
        return leases(snapshot, nodes_of, self._shares, raw, holder, self._memory)


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


def _only_numbers(earlier: JobRecord, record: JobRecord) -> bool:
    """Did only priority and estimate of a waiting job change? They do all the time, and mean no more than they say."""
    return (
        record.phase == WAITS
        and earlier[FACTS:] == record[FACTS:]
        and earlier.cores == record.cores
        and earlier.nodes == record.nodes
        and earlier.time_limit_s == record.time_limit_s
        and math.isnan(earlier.estimate_s) == math.isnan(record.estimate_s)
    )


def waiting_by_number(jobs: Iterable[JobRecord]) -> dict[int, JobRecord]:
    """Of each job and array, by Slurm's number, the record of what waits; of an array that of its first tasks."""
    found: dict[int, JobRecord] = {}
    for record in jobs:
        if record.phase == WAITS:
            number = record.array or record.raw
            known = found.get(number)
            if known is None or known.raw != number:
                found[number] = record
    return found


def choose_transport(settings: Settings) -> Transport:
    """The transport that the settings ask for; `auto` takes pyslurm where it is installed and answers.

    Raises ClusterError if pyslurm was asked for by name and does not work.
    """
    if settings.transport == "command":
        return CommandTransport(settings.timeout_s)
    if settings.transport == "auto" and importlib.util.find_spec("pyslurm") is None:
        return CommandTransport(settings.timeout_s)
    pyslurm = PyslurmTransport(settings.timeout_s)
    try:
        pyslurm.start()
        if settings.transport == "auto":
            pyslurm.look()
    except ClusterError:
        pyslurm.close()
        if settings.transport == "pyslurm":
            raise
        return CommandTransport(settings.timeout_s)
    return pyslurm
