"""The port `Cluster` over a real Slurm."""

from __future__ import annotations

import importlib.util
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asad.errors import ClusterError
from asad.model import (
    BARS,
    NODE_BARS,
    CoAllocate,
    Codes,
    Decision,
    ExtendLimit,
    Finished,
    Floats,
    Ints,
    Lease,
    Machine,
    NodeLink,
    Outcome,
    SetShare,
    Snapshot,
    Withdraw,
)
from asad_slurm import bars
from asad_slurm.command import CommandTransport, Ended, Transport
from asad_slurm.journal import Journal, JournalError
from asad_slurm.nodesets import expand
from asad_slurm.offers import Offer, Offers
from asad_slurm.pyslurm_transport import PyslurmTransport
from asad_slurm.records import ENDED, INF, LEAVES, MIB, NAN, RUNS, WAITS, JobRecord, NodeRecord
from asad_slurm.rows import Rows
from asad_slurm.settings import Settings

SELDOM_S = 300.0
"""Partitions and reservations are asked for no more often."""
RARELY_S = 3600.0
"""Limits of associations and QOS are asked for no more often."""
LEAST_PACE = 0.01
MOST_LEDGER = 100_000


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
    ) -> None:
        self._settings, self._link, self._clock = settings, nodes, clock
        self.transport = transport or choose_transport(settings)
        self._journal = Journal(state_dir)
        self._offers = Offers(self.transport, self._journal, settings.offer_patience_s, clock)
        self._journal_error = ""
        self._loaded = False
        self.applications: list[str] = []
        """Names of the codes in `Jobs.application`: user/name/size."""
        self.ledger: deque[dict[str, Any]] = deque(maxlen=MOST_LEDGER)
        """Of every guest and host that has ended: what was lent, and by how much its limit was extended."""
        self.said: deque[str] = deque(maxlen=1000)
        """Sentences about offers that were taken back or closed outside of `apply`."""
        self._application_of: dict[tuple[str, str, int], int] = {}
        self._user_of: dict[str, int] = {}
        self._cpu_sum: list[float] = []
        self._work_sum: list[float] = []
        self._runs: list[int] = []
        self._rows = Rows()
        self._machine = Machine((), np.zeros(0, np.int32), np.zeros(0), "sinfo")
        self._node_records: list[NodeRecord] = []
        self._node_number: dict[str, int] = {}
        self._threads: list[int] = []
        self._guest_nodes: dict[str, NDArray[np.bool_]] = {}
        self._places: dict[int, tuple[JobRecord, NDArray[np.int32], NDArray[np.int32]]] = {}
        self._tiers: dict[str, float] = {}
        self._max_time: dict[str, float] = {}
        self._partition_qos: dict[str, str] = {}
        self._reservations: list[tuple[str, float, float, frozenset[str]]] = []
        self._walls: tuple[dict[tuple[str, str, str], float], dict[str, float]] = ({}, {})
        self._asked_seldom = self._asked_rarely = -INF
        self._shares: dict[int, tuple[float, bool]] = {}
        """By row of a guest: the share decided for it, and whether its host is capped too."""
        self._wanted: dict[str, list[Lease]] = {}
        self._raw_row: dict[str, int] = {}
        self._told: dict[str, int] = {}
        self._ended: list[tuple[int, float, float, float]] = []
        self._version = 0
        self._time_s = -INF
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

        Offers that cannot be taken back now (Slurm does not answer) are taken back by a later snapshot.
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
        """Take back all offers that have not been taken and lift every quota; one sentence each."""
        self._load_offers()
        said = []
        for job, offer in list(self._offers.open.items()):
            if offer.started:
                continue
            failure = self._offers.withdraw(job)
            said.append(
                f"{job}: {f'its offer stays open: {failure}' if failure else 'its offer is taken back'}"
            )
            row = self._rows.of.get(job)
            if row is not None and not failure:
                self._rows.jobs.offered_s[row] = NAN
                self._shares.pop(row, None)
        self._shares.clear()
        self._rows.jobs.share[:] = NAN
        self._wanted = {}
        self._link.grant({})
        return said

    def close(self) -> None:
        """Let go of the transport. Offers stay as they are: `release` takes them back."""
        self.transport.close()

    # ----------------------------------------------------------------------------------------------------------- port

    def snapshot(self) -> Snapshot:
        """The cluster as Slurm and the node actors show it now; renews the leases that were decided.

        Raises ClusterError when Slurm does not answer: then nothing is renewed, and quotas run out by themselves.
        """
        look = self.transport.look()
        now_s = self._clock()
        self._load_offers()
        self._see_nodes(look.nodes)
        self._ask_seldom(now_s)
        self._watch_offers(look.jobs)
        self._see_jobs(look.jobs, now_s)
        snapshot = self._assemble(now_s)
        self._grant(snapshot)
        self._snapshot, self._time_s = snapshot, now_s
        return snapshot

    def apply(self, decisions: Sequence[Decision]) -> Iterable[Outcome]:
        """Do what was decided on the last snapshot. A decision that came too late is answered, never raised."""
        outcomes = []
        for decision in decisions:
            if self._snapshot is None:
                why = "there is no snapshot yet"
            elif isinstance(decision, CoAllocate):
                why = self._co_allocate(self._snapshot, decision)
            elif isinstance(decision, SetShare):
                why = self._set_share(decision)
            elif isinstance(decision, ExtendLimit):
                why = self._extend(self._snapshot, decision)
            elif isinstance(decision, Withdraw):
                why = self._withdraw(decision)
            else:
                why = f"Slurm does not know how to {decision.kind or type(decision).__name__}"
            outcomes.append(Outcome(decision, not why, why))
        if self._snapshot is not None and any(outcome.done for outcome in outcomes):
            self._grant(self._snapshot)
        return outcomes

    def finished(self, since_s: float) -> Finished:
        """The jobs that have ended and were not told yet, whatever `since_s`: Slurm may be late to say that one ended.

        Only jobs that ran are told. Their rows stay as they are until one more snapshot has passed.
        """
        ended, self._ended = self._ended, []
        jobs, extra = self._rows.jobs, self._rows.extra
        rows = np.array([row for row, *_ in ended], dtype=np.int32)
        told = Finished(
            row=rows,
            end_s=np.array([end for _, end, _, _ in ended]),
            run_s=np.array([run for _, _, run, _ in ended]),
            lost_s=jobs.lost_s[rows].copy(),
            cpu_fraction=np.array([cpu for *_, cpu in ended]),
        )
        for row, end_s, run_s, cpu in ended:
            self._remember_run(row, run_s, cpu)
            record = self._rows.record(row)
            if extra.guest[row] or extra.was_host[row]:
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
            self._shares.pop(row, None)
            self._rows.drop(row)
        return told

    # ---------------------------------------------------------------------------------------------------------- nodes

    def _see_nodes(self, nodes: list[NodeRecord]) -> None:
        if nodes is self._node_records:
            return
        shape = [(node.name, node.cpus, node.memory_bytes, node.threads) for node in nodes]
        old = [(node.name, node.cpus, node.memory_bytes, node.threads) for node in self._node_records]
        self._node_records = nodes
        if shape != old:
            self._machine = Machine(
                tuple(node.name for node in nodes),
                np.array([node.cpus for node in nodes], dtype=np.int32),
                np.array([node.memory_bytes for node in nodes]),
                "sinfo",
            )
            self._node_number = {node.name: number for number, node in enumerate(nodes)}
            self._threads = [node.threads for node in nodes]
            self._places.clear()
        self._guest_nodes = {
            guest: np.array([guest in node.partitions for node in nodes], dtype=bool)
            for guest in set(self._settings.guest_partitions.values())
        }

    def _ask_seldom(self, now_s: float) -> None:
        """Partitions, reservations and limits: what is not answered stays as it was."""
        if now_s - self._asked_seldom < SELDOM_S:
            return
        self._asked_seldom = now_s
        try:
            partitions = self.transport.partitions()
            self._tiers = {partition.name: partition.tier for partition in partitions}
            self._max_time = {partition.name: partition.max_time_s for partition in partitions}
            self._partition_qos = {partition.name: partition.qos for partition in partitions}
            self._reservations = [
                (one.name, one.start_s, one.end_s, frozenset(expand(one.nodes)))
                for one in self.transport.reservations()
            ]
            if now_s - self._asked_rarely >= RARELY_S:
                self._asked_rarely = now_s
                self._walls = self.transport.wall_limits()
        except (ClusterError, ValueError) as error:
            self._asked_seldom = now_s - SELDOM_S + 30.0
            self.said.append(f"partitions and reservations are not known anew: {error}")
        self._bound_all()

    # ----------------------------------------------------------------------------------------------------------- jobs

    def _see_jobs(self, records: list[JobRecord], now_s: float) -> None:
        rows = self._rows
        rows.turn()
        first = self._time_s == -INF
        of, known = rows.of, rows.records
        seen = np.zeros(len(known), dtype=bool)
        at: list[int] = []
        changed: list[JobRecord] = []
        present: list[int] = []
        told: dict[str, int] = {}
        for record in records:
            text = record.text
            row = of.get(text)
            if row is None:
                if record.phase == ENDED:
                    restarts = self._told.get(text)
                    if first or restarts == record.restarts or not self._ran(record, self._time_s):
                        told[text] = record.restarts
                        continue
                row = rows.take(text)
                at.append(row)
                changed.append(record)
            elif known[row] is not record:
                at.append(row)
                changed.append(record)
            present.append(row)
        self._told = told
        if len(rows) > len(seen):
            seen = np.zeros(len(rows), dtype=bool)
            known = rows.records
        seen[present] = True
        self._note_ends(at, changed, now_s)
        rows.write(at, changed)
        for row, record in zip(at, changed, strict=True):
            self._describe(row, record)
        gone = [row for row in of.values() if not seen[row]]
        if gone:
            self._note_vanished(gone, now_s)

    @staticmethod
    def _ran(record: JobRecord, since_s: float) -> bool:
        return record.end_s > record.start_s > 0 and record.end_s >= since_s

    def _note_ends(self, at: list[int], changed: list[JobRecord], now_s: float) -> None:
        """Jobs that Slurm says have ended since the last look."""
        for row, record in zip(at, changed, strict=True):
            if record.phase != ENDED:
                continue
            self._told[record.text] = record.restarts
            if record.end_s > record.start_s > 0:
                before = self._rows.records[row]
                if before is None or before.phase == WAITS:  # it ran and ended between two looks
                    self._describe(row, record)
                self._note_end(row, record, record.start_s, record.end_s, NAN)
            else:
                self._rows.drop(row)

    def _note_end(self, row: int, record: JobRecord, start_s: float, end_s: float, cpu_time_s: float) -> None:
        run_s = end_s - start_s
        if math.isnan(cpu_time_s):
            used, at_s = self._rows.extra.cpu_time_s[row], self._rows.extra.cpu_time_at_s[row]
            # the last sample may be older than the end: what it used until then stands for the whole run
            cpu = float(used) / (record.cores * (at_s - start_s)) if at_s > start_s else NAN
        else:
            cpu = cpu_time_s / (record.cores * run_s)
        if self._rows.extra.squeezed[row]:
            cpu = NAN  # it wanted more than it got, and nobody knows how much
        self._ended.append((row, end_s, run_s, min(1.0, max(0.0, cpu)) if not math.isnan(cpu) else NAN))

    def _note_vanished(self, gone: list[int], now_s: float) -> None:
        """Jobs that squeue has forgotten: accounting knows when they ended, or they are taken to have ended now."""
        rows = self._rows
        records = [(row, rows.record(row)) for row in gone]
        known: dict[int, Ended] = self.transport.ended([record.raw for _, record in records])
        for row, record in records:
            ended = known.get(record.raw)
            if ended is not None and ended.end_s > ended.start_s > 0:
                self._note_end(row, record, ended.start_s, ended.end_s, ended.cpu_time_s)
            elif record.phase != WAITS and now_s > record.start_s > 0:
                self._note_end(row, record, record.start_s, now_s, NAN)
            else:
                rows.drop(row)
                continue
            rows.extra.phase[row] = ENDED
            rows.of.pop(record.text, None)

    def _describe(self, row: int, record: JobRecord) -> None:
        """What follows from a record alone."""
        rows, settings = self._rows, self._settings
        jobs, extra = rows.jobs, rows.extra
        size = max(0, math.ceil(math.log2(record.cores)))
        key = (record.user, record.name, size)
        code = self._application_of.get(key)
        if code is None:
            code = self._application_of[key] = len(self.applications)
            self.applications.append(f"{record.user or '-'}/{record.name or '-'}/{2**size}")
            self._cpu_sum.append(0.0)
            self._work_sum.append(0.0)
            self._runs.append(0)
        jobs.application[row] = code
        jobs.user[row] = self._user_of.setdefault(record.user, len(self._user_of))
        guest = record.partition in self._guest_nodes
        extra.guest[row] = guest
        extra.tier[row] = max(self._tiers.get(name, 1.0) for name in record.partition.split(","))
        if record.phase == WAITS:
            jobs.host[row], jobs.share[row] = -1, NAN
            self._shares_kept_for_offer(row, record)
            extra.tries[row] = record.waits_turn and not guest
            extra.static_guest_bar[row] = bars.guest_bar(record, settings)
            extra.static_host_bar[row] = bars.host_bar(record, settings)
            jobs.own_start_s[row] = NAN
            jobs.own_estimate_s[row] = record.estimate_s
        elif record.phase in (RUNS, LEAVES):
            extra.tries[row] = False
            extra.static_host_bar[row] = bars.host_bar(record, settings)
            extra.static_guest_bar[row] = 0
            if not guest:
                jobs.own_start_s[row] = record.start_s
            extra.end_bound_s[row] = self._bound(record)
        else:
            extra.tries[row] = False
            if not guest:
                jobs.own_start_s[row] = record.start_s

    def _shares_kept_for_offer(self, row: int, record: JobRecord) -> None:
        if record.text not in self._offers.open:
            self._shares.pop(row, None)

    def _bound_all(self) -> None:
        for row in self._rows.of.values():
            record = self._rows.records[row]
            if record is not None and record.phase == RUNS:
                self._rows.extra.end_bound_s[row] = self._bound(record)

    def _bound(self, record: JobRecord) -> float:
        """Beyond this no extension may move its end: partition, QOS, association, and who has reserved its nodes."""
        longest = self._max_time.get(record.partition, INF)
        by_user, by_qos = self._walls
        for key in (
            (record.account, record.user, record.partition),
            (record.account, record.user, ""),
            (record.account, "", ""),
        ):
            longest = min(longest, by_user.get(key, INF))
        for qos in (record.qos, self._partition_qos.get(record.partition, "")):
            longest = min(longest, by_qos.get(qos, INF))
        bound = record.start_s + longest
        if self._reservations:
            nodes = frozenset(expand(record.nodes_text))
            for name, start_s, end_s, reserved in self._reservations:
                if not nodes.isdisjoint(reserved):
                    if name == record.reservation:
                        bound = min(bound, end_s)
                    elif end_s > record.start_s:
                        bound = min(bound, start_s)
        return bound

    # --------------------------------------------------------------------------------------------------------- offers

    def _load_offers(self) -> None:
        if self._loaded:
            return
        try:
            self._offers.load(expand)
        except JournalError as error:
            self._journal_error = str(error)
            return
        self._loaded, self._journal_error = True, ""

    def _watch_offers(self, jobs: list[JobRecord]) -> list[str]:
        if not self._offers.open:
            return []
        offered = {job.text: job for job in jobs if job.text in self._offers.open}
        for text, offer in self._offers.open.items():
            if text not in offered:  # an array's task may be seen under another name before it is split
                offered.update((text, job) for job in jobs if job.raw == offer.raw and job.tasks == 1)
        hosts = (job.text for job in jobs if job.phase == RUNS)
        said = self._offers.watch(offered, hosts, self._clock())
        self.said.extend(said)
        return said

    # ------------------------------------------------------------------------------------------------------- assembly

    def _assemble(self, now_s: float) -> Snapshot:
        rows = self._rows
        jobs, extra = rows.jobs, rows.extra
        alive = np.fromiter(rows.of.values(), dtype=np.int32, count=len(rows.of))
        phase = extra.phase[alive]
        holding = alive[(phase == RUNS) | (phase == LEAVES)]
        running = alive[(phase == RUNS) & ~extra.guest[alive]]
        guests = alive[(phase == RUNS) & extra.guest[alive]]
        waiting = alive[phase == WAITS]
        queue = waiting[extra.tries[waiting]]
        raws = np.array([rows.record(row).raw for row in queue.tolist()], dtype=np.int64)
        order = np.lexsort((raws, -extra.priority[queue], -extra.tier[queue]))
        queue = queue[order[: self._settings.depth]]
        core_owner, core_guest, nodes_of = self._place(holding)
        reports = self._link.reports()
        answers = [node.name in reports for node in self._node_records]
        node_bar: Codes = np.array(
            [
                bars.node_bar(node, self._settings, there)
                for node, there in zip(self._node_records, answers, strict=True)
            ],
            dtype=np.int8,
        )
        jobs.offered_s[alive] = NAN
        self._hosts_of_guests(guests, core_owner, nodes_of, extra.phase)
        self._reserve_offers(core_owner, core_guest)
        self._measure(holding, guests, now_s)
        self._bar_dynamically(running, guests, queue, nodes_of, core_owner, node_bar)
        jobs.latest_end_s[alive] = extra.end_bound_s[alive]
        self._version += 1
        return Snapshot(
            time_s=now_s,
            version=self._version,
            machine=self._machine,
            jobs=jobs,
            queue=queue.astype(np.int32),
            running=running.astype(np.int32),
            guests=guests.astype(np.int32),
            core_owner=core_owner,
            core_guest=core_guest,
            waiting=sum(rows.record(row).tasks for row in waiting.tolist()),
            node_bar=node_bar,
        )

    def _place(self, holding: NDArray[np.int32]) -> tuple[Ints, Ints, dict[int, NDArray[np.int32]]]:
        """Who holds which core, and the nodes of every job that holds any.

        Only how many cores of a node a job holds is taken from Slurm; which ones is nominal, batch jobs and guests from
        a node's first core on. Nothing is decided by the number of a core, only by whether a node is wholly held.
        """
        rows, machine = self._rows, self._machine
        owner = np.full(machine.total_cores, -1, np.int32)
        guest = np.full(machine.total_cores, -1, np.int32)
        nodes_of: dict[int, NDArray[np.int32]] = {}
        places: dict[int, tuple[JobRecord, NDArray[np.int32], NDArray[np.int32]]] = {}
        for row in holding.tolist():
            record = rows.record(row)
            place = self._places.get(row)
            if place is None or place[0] is not record:
                place = (record, *self._where(record))
            places[row] = place
            nodes_of[row] = place[1]
        self._places = places
        for cores, of_guests in ((owner, False), (guest, True)):
            chosen = holding[rows.extra.guest[holding] == of_guests].tolist()
            if not chosen:
                continue
            nodes = np.concatenate([places[row][1] for row in chosen])
            counts = np.concatenate([places[row][2] for row in chosen])
            who = np.repeat(np.array(chosen, np.int32), [len(places[row][1]) for row in chosen])
            by_node = np.argsort(nodes, kind="stable")
            nodes, counts, who = nodes[by_node], counts[by_node], who[by_node]
            before = np.cumsum(counts) - counts
            first_here = np.searchsorted(nodes, nodes)
            offset = before - before[first_here]
            counts = np.minimum(counts, np.maximum(0, machine.cores[nodes] - offset))
            start = machine.first_core[nodes] + offset
            index = np.repeat(start - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
            cores[index] = np.repeat(who, counts)
        return owner, guest, nodes_of

    def _where(self, record: JobRecord) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Numbers of a job's nodes, and its CPUs on each."""
        number = self._node_number
        if record.places:
            pairs = [(number[name], count) for name, count in record.places if name in number]
            nodes = np.array([node for node, _ in pairs], dtype=np.int32)
            counts = np.array([count for _, count in pairs], dtype=np.int32)
            if record.places_are_cores:
                counts *= np.array([self._threads[node] for node in nodes.tolist()], dtype=np.int32)
            return nodes, counts
        try:
            names = expand(record.nodes_text)
        except ValueError:
            names = ()
        nodes = np.array([number[name] for name in names if name in number], dtype=np.int32)
        counts = np.full(len(nodes), int(record.cores) // max(1, len(nodes)), dtype=np.int32)
        counts[: int(record.cores) - int(counts.sum())] += 1
        return nodes, counts

    def _hosts_of_guests(
        self,
        guests: NDArray[np.int32],
        core_owner: Ints,
        nodes_of: dict[int, NDArray[np.int32]],
        phase: Codes,
    ) -> None:
        """Beside whom each guest runs now, and the share that was decided for that pair."""
        jobs, first = self._rows.jobs, self._machine.first_core
        for row in guests.tolist():
            owners = [core_owner[first[node] : first[node + 1]] for node in nodes_of[row].tolist()]
            beside = np.concatenate(owners) if owners else core_owner[:0]
            beside = beside[beside >= 0]
            beside = beside[phase[beside] == RUNS]
            host = int(np.bincount(beside).argmax()) if len(beside) else -1
            if host != jobs.host[row] and jobs.host[row] >= 0:
                self._shares.pop(row, None)  # it was decided for another host
            jobs.host[row] = host
            jobs.share[row] = self._shares[row][0] if row in self._shares and host >= 0 else NAN

    def _reserve_offers(self, core_owner: Ints, core_guest: Ints) -> None:
        """A job with an open offer is shown on the cores that are kept for it, so that nobody else is sent there."""
        rows, machine = self._rows, self._machine
        for text, offer in self._offers.open.items():
            row = rows.of.get(text)
            if row is None or offer.started or rows.extra.phase[row] != WAITS:
                continue
            rows.jobs.offered_s[row] = offer.time_s
            rows.jobs.own_estimate_s[row] = rows.jobs.estimated_start_s[row] = offer.estimate_s
            numbers = [self._node_number[name] for name in offer.nodes if name in self._node_number]
            self._keep_cores(row, numbers, core_guest, int(rows.jobs.cores[row]), machine)

    @staticmethod
    def _keep_cores(row: int, nodes: list[int], core_guest: Ints, cores: int, machine: Machine) -> None:
        first = machine.first_core
        free = [
            core
            for node in nodes
            for core in (np.flatnonzero(core_guest[first[node] : first[node + 1]] < 0) + first[node]).tolist()
        ]
        core_guest[free[:cores]] = row

    # ----------------------------------------------------------------------------------------------------- measurements

    def _measure(self, holding: NDArray[np.int32], guests: NDArray[np.int32], now_s: float) -> None:
        """What the node actors tell of the jobs: CPU, pressure, pace, progress."""
        rows = self._rows
        jobs, extra, size = rows.jobs, rows.extra, len(rows)
        self._raw_row = {str(rows.record(row).raw): row for row in holding.tolist()}
        find, window_s = self._raw_row.get, self._settings.window_s
        seen: list[tuple[int, float, int, float, float, float, float, float]] = []
        for report in self._link.reports().values():
            time_s = report.time_s
            for name, sample in report.jobs.items():
                row = find(name)
                if row is None:
                    continue
                cpu = sample.cpu_fraction if time_s - sample.since_s >= window_s else NAN
                seen.append(
                    (
                        row,
                        cpu,
                        sample.cores,
                        sample.pressure,
                        sample.throttled,
                        sample.progress,
                        sample.cpu_time_s,
                        time_s,
                    )
                )
        jobs.cpu_fraction[holding] = jobs.pressure[holding] = jobs.pace[holding] = NAN
        jobs.happiness[holding] = NAN
        has_guest = np.zeros(size, dtype=bool)
        hosts = jobs.host[guests]
        has_guest[hosts[hosts >= 0]] = True
        extra.was_host |= has_guest
        if seen:
            table = np.array(seen, dtype=np.float64).T
            at = table[0].astype(np.intp)
            cpu, cores, pressure, throttled, progress, cpu_time, times = table[1:]
            measured = ~np.isnan(cpu)
            count = np.bincount(at, weights=measured, minlength=size)
            weight = np.bincount(at, weights=cores * measured, minlength=size)
            used = np.bincount(at, weights=np.where(measured, cpu, 0.0) * cores, minlength=size)
            there = np.unique(at)
            whole = there[(count[there] >= np.maximum(1, jobs.nodes[there])) & (weight[there] > 0)]
            got: Floats = np.full(size, np.nan)
            got[whole] = np.clip(used[whole] / weight[whole], 0.0, 1.0)
            jobs.cpu_fraction[whole] = got[whole]
            jobs.pressure[there] = _largest(at, pressure, size)[there]
            held_back = np.fmax(jobs.pressure, _largest(at, throttled, size))
            told = _largest(at, progress, size)
            total = np.bincount(at, weights=cpu_time, minlength=size).astype(np.float64)
            latest = _largest(at, times, size)
            self._pace(there, guests, held_back, got, has_guest)
            self._lend(there, total, latest, guests)
            self._happiness(there, told, total, now_s)
        elapsed = now_s - self._time_s
        if 0.0 < elapsed < INF:
            concerned = holding[has_guest[holding] | extra.guest[holding]]
            slower = np.nan_to_num(1.0 - jobs.pace[concerned], nan=0.0)
            alive_s = np.clip(now_s - jobs.start_s[concerned], 0.0, elapsed)
            jobs.lost_s[concerned] += slower * alive_s
            extra.squeezed[concerned] |= slower > 0.05
        # a guest's own turn is the one that Slurm foresaw when it was offered to it
        for row in guests.tolist():
            offer = self._offers.open.get(str(jobs.job_id[row]))
            estimate = offer.estimate_s if offer else NAN
            jobs.own_estimate_s[row] = estimate
            jobs.own_start_s[row] = estimate if estimate <= now_s else NAN

    def _pace(
        self,
        there: NDArray[np.intp],
        guests: NDArray[np.int32],
        held_back: Floats,
        got: Floats,
        has_guest: NDArray[np.bool_],
    ) -> None:
        jobs = self._rows.jobs
        jobs.pace[there] = 1.0
        hosts = there[has_guest[there]]
        jobs.pace[hosts] = np.clip(1.0 - np.nan_to_num(held_back[hosts], nan=0.0), LEAST_PACE, 1.0)
        for row in guests.tolist():
            code = int(jobs.application[row])
            expected = self._cpu_sum[code] / self._runs[code] if self._runs[code] else NAN
            pace = got[row] / expected if expected > 0 else NAN
            jobs.pace[row] = min(1.0, max(LEAST_PACE, pace)) if not math.isnan(pace) else NAN
            # what it gets beside its host is not what it wants
            jobs.cpu_fraction[row] = expected

    def _lend(
        self, there: NDArray[np.intp], total: Floats, latest: Floats, guests: NDArray[np.int32]
    ) -> None:
        """CPU time that guests got beside their hosts since the last look, for the ledger."""
        jobs, extra = self._rows.jobs, self._rows.extra
        before = extra.cpu_time_s.copy()
        extra.cpu_time_s[there], extra.cpu_time_at_s[there] = total[there], latest[there]
        for row in guests.tolist():
            host = int(jobs.host[row])
            more = total[row] - (0.0 if math.isnan(before[row]) else before[row])
            if host >= 0 and more > 0:
                extra.lent_core_s[row] += more
                extra.lent_core_s[host] += more

    def _happiness(self, there: NDArray[np.intp], told: Floats, total: Floats, now_s: float) -> None:
        """Progress over the part of the time limit that has passed: what the job tells, else its CPU time against the
        mean of its application's earlier runs."""
        jobs = self._rows.jobs
        codes = jobs.application[there]
        runs = np.array([self._runs[code] for code in codes.tolist()], dtype=np.float64)
        work = np.array([self._work_sum[code] for code in codes.tolist()])
        with np.errstate(divide="ignore", invalid="ignore"):
            by_cpu = np.where((runs >= 3) & (work > 0), np.minimum(1.0, total[there] / (work / runs)), np.nan)
            progress = np.where(np.isnan(told[there]), by_cpu, told[there])
            passed = (now_s - jobs.start_s[there]) / (jobs.limit_end_s[there] - jobs.start_s[there])
            jobs.happiness[there] = np.where((passed > 0) & (passed < np.inf), progress / passed, np.nan)

    def _remember_run(self, row: int, run_s: float, cpu: float) -> None:
        if math.isnan(cpu):
            return
        jobs = self._rows.jobs
        code = int(jobs.application[row])
        self._cpu_sum[code] += cpu
        self._work_sum[code] += cpu * float(jobs.cores[row]) * run_s
        self._runs[code] += 1

    # ------------------------------------------------------------------------------------------------------------ bars

    def _bar_dynamically(
        self,
        running: NDArray[np.int32],
        guests: NDArray[np.int32],
        queue: NDArray[np.int32],
        nodes_of: dict[int, NDArray[np.int32]],
        core_owner: Ints,
        node_bar: Codes,
    ) -> None:
        jobs, extra, settings = self._rows.jobs, self._rows.extra, self._settings
        alive = np.fromiter(self._rows.of.values(), dtype=np.int32, count=len(self._rows.of))
        jobs.host_bar[alive] = extra.static_host_bar[alive]
        jobs.guest_bar[alive] = extra.static_guest_bar[alive]
        jobs.host_bar[guests] = bars.NOT_ITS_TURN
        takes = np.zeros(len(node_bar), dtype=bool)
        for in_partition in self._guest_nodes.values():
            takes |= in_partition
        takes &= node_bar == 0
        several = self._nodes_of_several(core_owner)
        share_nodes = "shared-node" in settings.lend
        for row in running[jobs.host_bar[running] == 0].tolist():
            nodes = nodes_of[row]
            if len(nodes) == 0 or not takes[nodes].all():
                jobs.host_bar[row] = bars.NODE_TAKES_NONE
            elif not share_nodes and several[nodes].any():
                jobs.host_bar[row] = bars.SHARED_NODE
            elif math.isnan(jobs.cpu_fraction[row]):
                jobs.host_bar[row] = bars.NOT_KNOWN
        if settings.share_users != "any":
            lending = {self._group(row) for row in running[jobs.host_bar[running] == 0].tolist()}
            for row in queue[jobs.guest_bar[queue] == 0].tolist():
                if self._group(row) not in lending:
                    jobs.guest_bar[row] = bars.OTHER_USERS

    def _nodes_of_several(self, core_owner: Ints) -> NDArray[np.bool_]:
        """Which nodes are held by more than one batch job."""
        machine = self._machine
        if machine.total_cores == 0:
            return np.zeros(len(machine.cores), dtype=bool)
        node = np.repeat(np.arange(len(machine.cores)), machine.cores)
        held = core_owner >= 0
        least = np.full(len(machine.cores), np.iinfo(np.int32).max)
        most = np.full(len(machine.cores), -1)
        np.minimum.at(least, node[held], core_owner[held])
        np.maximum.at(most, node[held], core_owner[held])
        several: NDArray[np.bool_] = (most >= 0) & (least != most)
        return several

    def _group(self, row: int) -> str:
        record = self._rows.record(row)
        return record.user if self._settings.share_users == "same" else record.account

    # ---------------------------------------------------------------------------------------------------------- acting

    def _co_allocate(self, snapshot: Snapshot, decision: CoAllocate) -> str:
        rows, jobs = self._rows, self._rows.jobs
        guest, host = decision.guest, decision.host
        record, beside = rows.records[guest], rows.records[host]
        why = self._refusal(snapshot, decision, record, beside)
        if why:
            return why
        assert record is not None and beside is not None
        names = tuple(snapshot.machine.node_names[node] for node in decision.nodes)
        raw = record.raw
        if "_" in record.text and record.tasks > 1:
            raw = self.transport.split_task(record.text)
            if raw == 0:
                return "its next task does not wait any more"
        # the actors must know the guest before it starts; an array's task is a job of its own by now
        if not self._link.announce(names, str(raw)):
            return "the node actors have not taken note of it"
        offer = Offer(
            job=record.text,
            raw=raw,
            partition=record.partition,
            required_nodes=record.required_nodes,
            guest_partition=bars.guest_partition(record.partition, self._settings),
            nodes=names,
            host=beside.text,
            time_s=self._clock(),
            estimate_s=float(jobs.estimated_start_s[guest]),
            share=decision.share,
            capped=decision.capped,
            restarts=record.restarts,
        )
        why = self._offers.offer(offer)
        if why:
            return why
        jobs.offered_s[guest] = offer.time_s
        jobs.share[guest] = NAN
        self._shares[guest] = (decision.share, decision.capped)
        self._keep_cores(
            guest, list(decision.nodes), snapshot.core_guest, int(jobs.cores[guest]), snapshot.machine
        )
        return ""

    def _refusal(
        self,
        snapshot: Snapshot,
        decision: CoAllocate,
        record: JobRecord | None,
        beside: JobRecord | None,
    ) -> str:
        """Why a guest cannot be offered to Slurm; everything here is looked at once more, right before it is done."""
        jobs, extra = self._rows.jobs, self._rows.extra
        guest, host = decision.guest, decision.host
        if not self._loaded:
            return self._journal_error or "the journal has not been read"
        if record is None or extra.phase[guest] != WAITS:
            return "it does not wait any more"
        if beside is None or extra.phase[host] != RUNS:
            return "its host does not run any more"
        if record.text in self._offers.open:
            return "it has an offer already"
        partition = bars.guest_partition(record.partition, self._settings)
        barred = bars.guest_bar(record, self._settings) or int(jobs.guest_bar[guest])
        if barred:
            return BARS[barred]
        if jobs.host_bar[host]:
            return f"its host may not lend: {BARS[jobs.host_bar[host]]}"
        if self._settings.share_users != "any" and self._group(guest) != self._group(host):
            return BARS[bars.OTHER_USERS]
        first, names = snapshot.machine.first_core, snapshot.machine.node_names
        chosen = frozenset(names[node] for node in decision.nodes)
        for node in decision.nodes:
            if snapshot.node_bar[node]:
                return f"{names[node]}: {NODE_BARS[snapshot.node_bar[node]]}"
            if not self._guest_nodes[partition][node]:
                return f"{names[node]} is not in the partition {partition}"
            if (snapshot.core_owner[first[node] : first[node + 1]] != host).any():
                return "a node is no longer wholly held by its host"
            if not _has_features(record.features, self._node_records[node].features):
                return f"{names[node]} lacks a feature that it wants"
        free = sum(
            int((snapshot.core_guest[first[node] : first[node + 1]] < 0).sum()) for node in decision.nodes
        )
        if free < record.cores:
            return "another guest is on these cores"
        try:
            if not chosen.issuperset(expand(record.required_nodes)):
                return "its user asked for other nodes"
            if not chosen.isdisjoint(expand(record.excluded_nodes)):
                return "its user excluded a node"
        except ValueError as error:
            return str(error)
        if record.nodes > len(chosen):
            return f"it wants {record.nodes:.0f} nodes"
        return self._memory_refusal(snapshot, decision, record)

    def _memory_refusal(self, snapshot: Snapshot, decision: CoAllocate, record: JobRecord) -> str:
        """A guest that outlasts its host keeps its memory, and batch counts that: what waits must fit beside it."""
        jobs, first = snapshot.jobs, snapshot.machine.first_core
        need = record.memory_bytes_per_core * record.cores / len(decision.nodes)
        if math.isnan(need):
            return "its memory is not known"
        waits = [int(row) for row in snapshot.queue if row != decision.guest]
        for node in decision.nodes:
            memory = float(snapshot.machine.memory_bytes[node])
            if math.isnan(memory):
                continue
            others = snapshot.core_guest[first[node] : first[node + 1]]
            held = float(np.nansum(jobs.memory_bytes_per_core[others[others >= 0]]))
            left = memory - held - need
            for row in waits:
                per_node = float(jobs.memory_bytes_per_core[row]) * float(jobs.cores[row])
                per_node /= max(1, int(jobs.nodes[row]))
                if left + MIB < per_node <= memory - held:
                    return f"its memory would be in the way of {jobs.job_id[row]}"
        return ""

    def _set_share(self, decision: SetShare) -> str:
        row, jobs = decision.guest, self._rows.jobs
        if self._rows.records[row] is None or self._rows.extra.phase[row] != RUNS:
            return "it does not run any more"
        if not self._rows.extra.guest[row]:
            return "it is no guest"
        self._shares[row] = (decision.share, decision.capped)
        jobs.share[row] = decision.share
        return ""

    def _withdraw(self, decision: Withdraw) -> str:
        row = decision.guest
        record = self._rows.records[row]
        if record is None or record.text not in self._offers.open:
            return "nothing is offered to it"
        if self._offers.open[record.text].started:
            return "it has started"
        why = self._offers.withdraw(record.text)
        if not why:
            self._rows.jobs.offered_s[row] = NAN
            self._shares.pop(row, None)
            if self._snapshot is not None:
                kept = self._snapshot.core_guest
                kept[kept == row] = -1
        return why

    def _extend(self, snapshot: Snapshot, decision: ExtendLimit) -> str:
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
        answer = self.transport.update(record.raw, {"TimeLimit": f"+{minutes}"})
        if not answer.done:
            return f"Slurm refused: {answer.why}"
        jobs.extended_s[row] += 60.0 * minutes
        jobs.limit_end_s[row] += 60.0 * minutes
        return ""

    # ----------------------------------------------------------------------------------------------------------- leases

    def _grant(self, snapshot: Snapshot) -> None:
        """Everything that may bind a job until the lease runs out, to the actors of its nodes."""
        rows = self._rows
        first, names = snapshot.machine.first_core, snapshot.machine.node_names
        wanted: dict[str, list[Lease]] = {}
        hosts: dict[tuple[int, int], float] = {}
        """By host and node: the quota of the host, NaN for none."""
        guests = [(int(row), self._places[int(row)][1].tolist()) for row in snapshot.guests]
        for text, offer in self._offers.open.items():
            row = rows.of.get(text)
            if row is not None and not offer.started and rows.extra.phase[row] == WAITS:
                guests.append((row, [self._node_number[n] for n in offer.nodes if n in self._node_number]))
        for row, nodes in guests:
            record = rows.record(row)
            share, capped = self._shares.get(row, (NAN, False))
            for node in nodes:
                owners = snapshot.core_owner[first[node] : first[node + 1]]
                mine = int((snapshot.core_guest[first[node] : first[node + 1]] == row).sum())
                owned = owners[owners >= 0]
                host = int(np.bincount(owned).argmax()) if len(owned) else -1
                lent = int((owners == host).sum()) if host >= 0 else 0
                bound = host >= 0 and not math.isnan(share) and mine > 0
                raw = self._raw(record, text=record.text)
                host_record = rows.records[host] if host >= 0 else None
                wanted.setdefault(names[node], []).append(
                    Lease(
                        job_id=raw,
                        guest=True,
                        host_id=str(host_record.raw) if host_record else "",
                        quota=min(1.0, share * lent / mine) if bound else NAN,
                        cores=mine,
                    )
                )
                if host >= 0:
                    kept = 1.0 - share if capped and not math.isnan(share) else NAN
                    hosts[host, node] = float(np.fmin(hosts.get((host, node), NAN), kept))
        for (host, node), quota in hosts.items():
            cores = int((snapshot.core_owner[first[node] : first[node + 1]] == host).sum())
            wanted[names[node]].append(
                Lease(job_id=str(rows.record(host).raw), guest=False, host_id="", quota=quota, cores=cores)
            )
        self._wanted = wanted
        self._link.grant(wanted)

    def _raw(self, record: JobRecord, *, text: str) -> str:
        offer = self._offers.open.get(text)
        return str(offer.raw if offer else record.raw)


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
    except ClusterError:
        if settings.transport == "pyslurm":
            raise
        return CommandTransport(settings.timeout_s)
    return pyslurm


def _largest(at: NDArray[np.intp], values: Floats, size: int) -> Floats:
    """By row the largest value that is known, NaN where none is."""
    largest: Floats = np.full(size, -np.inf)
    known = ~np.isnan(values)
    np.maximum.at(largest, at[known], values[known])
    largest[np.isneginf(largest)] = np.nan
    return largest


def _has_features(wanted: str, there: frozenset[str]) -> bool:
    """Does a node have what a job wants? Only `a&b` and `a,b` are understood; what is not is left to Slurm."""
    words = wanted.replace(",", "&").split("&")
    if not wanted or any(not word.replace("_", "").replace("-", "").isalnum() for word in words):
        return True
    return there.issuperset(words)
