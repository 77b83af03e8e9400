"""From the jobs and nodes that were seen, what node actors report and what is offered: the snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

import numpy as np

from asad.cluster.occupancy import occupy
from asad.cluster.samples import memory_used, peaks
from asad.ineligible import Ineligible, NodeIneligible
from asad.model import Codes, Ints, Snapshot
from asad.port import NodeLink
from asad_slurm.changes import Changes, is_ours
from asad_slurm.jobs import JobTable
from asad_slurm.lending import Shares
from asad_slurm.measures import measure, samples_of
from asad_slurm.nodes import Nodes
from asad_slurm.offers import Offers
from asad_slurm.records import INF, LEAVES, NAN, RUNS, WAITS
from asad_slurm.rows import Texts
from asad_slurm.settings import Settings
from asad_slurm.slurm_eligibility import may_be_guest_on, node_ineligible, widened
from asad_slurm.tres_table import TresTable
from asad_slurm.undo import BEGIN


class Assembly:
    """Makes one snapshot after another. Its columns are those of the job table, true until the next one."""

    def __init__(
        self,
        settings: Settings,
        nodes: Nodes,
        jobs: JobTable,
        offers: Offers,
        changes: Changes,
        shares: Shares,
        link: NodeLink,
        monotonic: Callable[[], float],
    ) -> None:
        """`monotonic` shows how much time lies between two snapshots."""
        self._settings, self._nodes, self._table, self._offers = settings, nodes, jobs, offers
        self._changes, self._shares, self._link, self._monotonic = changes, shares, link, monotonic
        self._rows = jobs.rows
        self._tres = TresTable(jobs.rows)
        self._version = 0
        self._looked_at = -INF

    def snapshot(self, now_s: float) -> Snapshot:
        """The cluster as the tables have it."""
        settings, table, rows = self._settings, self._table, self._rows
        jobs, extra, machine = rows.jobs, rows.extra, self._nodes.machine
        alive: Ints = np.fromiter(rows.of.values(), dtype=np.int32, count=len(rows.of))
        phase, in_guest = extra.phase[alive], extra.guest[alive]
        holding = alive[(phase == RUNS) | (phase == LEAVES)]
        running = alive[(phase == RUNS) & ~in_guest]
        guests = alive[(phase == RUNS) & in_guest]
        waiting = alive[phase == WAITS]
        # Slurm sets it when it looks at a job first, too
        jobs.begin_s[waiting[jobs.begin_s[waiting] <= now_s]] = NAN
        table.locate(holding, self._nodes)
        batch = holding[~extra.guest[holding]]
        core_owner = occupy(batch.tolist(), table.places, machine)
        core_guest = occupy(holding[extra.guest[holding]].tolist(), table.places, machine)
        jobs.offered_s[alive] = jobs.demand[alive] = NAN
        jobs.host_bar[alive] = extra.static_host_bar[alive]
        jobs.guest_bar[alive] = extra.static_guest_bar[alive]
        self._shares.show(guests, running, core_owner)
        offered = self._show_offers(core_guest)
        queue = self._queue(waiting, offered)
        reports = self._link.reports()
        looked_at = self._monotonic()
        elapsed_s, self._looked_at = looked_at - self._looked_at, looked_at
        arrays = table.arrays
        samples = samples_of(rows, reports, holding, self._nodes.number)
        seen = measure(
            rows,
            table.applications,
            arrays,
            samples,
            holding,
            self._shares.hosts,
            now_s,
            elapsed_s,
            settings.window_s,
        )
        self._show_estimates(guests, now_s)
        actors = [reports.get(node.name) for node in self._nodes.records]
        nodes = zip(self._nodes.records, actors, strict=True)
        node_bar: Codes = np.array(
            [node_ineligible(node, settings, actor) for node, actor in nodes], dtype=np.int8
        )
        self._bar(running, queue, node_bar)
        self._version += 1
        shown = arrays.shown(rows, alive, table.ended_rows())
        return Snapshot(
            time_s=now_s,
            version=self._version,
            machine=machine,
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
            guest_nodes=self._guest_nodes((*queue.tolist(), *guests.tolist())),
            own_begins=self._own_begins(),
            partition_nodes=self._nodes.of_partition,
            memory_used=memory_used(samples),
            memory_high=dict(self._shares.memory),
            core_peak=peaks(seen, core_owner, machine),
            lends_free_cores=settings.share_users in ("as-slurm", "any"),
            whole_nodes=False,
            widened=widened(node_bar, actors),
            names=Texts(rows, attrgetter("name")),
            partitions=Texts(rows, attrgetter("partition")),
            node_states=[node.state for node in self._nodes.records],
            waits=table.waits.shown(waiting),
            tres=self._tres.shown(self._nodes.records, table.licences),
        )

    # ----------------------------------------------------------------------------------------------------- who waits

    def _queue(self, waiting: Ints, offered: list[int]) -> Ints:
        """The first of those that Slurm would try, in its order: partition's tier, priority, number."""
        rows, extra, depth = self._rows, self._rows.extra, self._settings.depth
        # of a job that has just been deferred Slurm does not say so before it looks at it again
        now = extra.tries[waiting] & np.isnan(rows.jobs.begin_s[waiting])
        tried = np.union1d(waiting[now], offered).astype(np.int32)
        first = tried
        if len(tried) > 4 * depth:  # not all need be put in order
            rank = extra.tier[tried] * 2.0**33 + extra.priority[tried]
            least = np.partition(rank, -depth)[-depth]
            first = tried[rank >= least]
        raws = np.array([rows.record(row).raw for row in first.tolist()], dtype=np.int64)
        order = np.lexsort((raws, -extra.priority[first], -extra.tier[first]))
        return first[order[: depth + len(offered)]]

    def _classes(self, queue: Ints, of_arrays: Ints, deferred: Ints) -> dict[int, tuple[str, str]]:
        """Partition and QOS of what waits for its turn or for a begin time."""
        waiting = (*queue.tolist(), *of_arrays[of_arrays >= 0].tolist(), *deferred.tolist())
        return {row: ((record := self._rows.record(row)).partition, record.qos) for row in waiting}

    def _guest_nodes(self, shown: Iterable[int]) -> dict[int, Ints]:
        """By row, of jobs that may not be guests on every node: where they may be."""
        found: dict[int, Ints] = {}
        nodes, alike = self._nodes, dict[tuple[str, str, str], Ints]()
        for row in shown:
            record = self._rows.record(row)
            key = record.partition, record.features, record.excluded_nodes
            if key not in alike:
                there = may_be_guest_on(record, nodes.records, nodes.takes_guests, self._settings)
                alike[key] = np.flatnonzero(there).astype(np.int32)
            if len(alike[key]) < len(nodes.records):
                found[row] = alike[key]
        return found

    def _own_begins(self) -> dict[int, float]:
        """By row, of what waits and begins when we have set: its user's own begin time."""
        found = {}
        waiting = self._table.arrays.waiting
        for (job, key), change in self._changes.open.items():
            row = waiting.get(job, self._rows.of.get(str(job), -1)) if key == BEGIN else -1
            if row < 0:
                continue
            record = self._rows.record(row)
            if record.phase == WAITS and is_ours(change, record):
                found[row] = float(change.was) if change.was > 0 else NAN
        return found

    # --------------------------------------------------------------------------------------------- guests and offers

    def _show_offers(self, core_guest: Ints) -> list[int]:
        """A job with an open offer is shown on the cores that are kept for it, so that nobody else is sent there."""
        rows, jobs, shown = self._rows, self._rows.jobs, []
        for text, offer in self._offers.open.items():
            row = rows.of.get(text)
            if row is None or offer.started or rows.extra.phase[row] != WAITS:
                continue
            jobs.offered_s[row] = offer.time_s
            jobs.host[row] = -1 if offer.pooled else rows.of.get(offer.host, -1)
            jobs.share[row] = NAN if offer.pooled else offer.share
            jobs.demand[row] = offer.demand
            jobs.estimated_start_s[row] = jobs.own_estimate_s[row] = offer.estimate_s
            jobs.guest_bar[row] = 0
            self._nodes.keep(core_guest, row, jobs.cores[row], self._nodes.numbers(offer.nodes))
            shown.append(row)
        return shown

    def _show_estimates(self, guests: Ints, now_s: float) -> None:
        """A guest's own turn is the one that Slurm foresaw when it was offered to it."""
        jobs = self._rows.jobs
        for row in guests.tolist():
            offer = self._offers.open.get(str(jobs.job_id[row]))
            estimate_s = offer.estimate_s if offer else NAN
            jobs.own_estimate_s[row] = estimate_s
            jobs.counterfactual_start_s[row] = estimate_s if estimate_s <= now_s else NAN

    def _bar(self, running: Ints, queue: Ints, node_bar: Codes) -> None:
        """Why a job is ineligible because of its nodes or of other jobs, and a node because of its jobs."""
        jobs, settings, places = self._rows.jobs, self._settings, self._table.places
        takes_guests = self._nodes.takes_guests
        takes = node_bar == 0
        takes &= np.any(list(takes_guests.values()), axis=0) if takes_guests else False
        ineligible = jobs.host_bar[running] != 0
        for row in running[ineligible].tolist():
            nodes = places[row].nodes
            # a guest there would be beside it, on its cores if Slurm says so
            node_bar[nodes[node_bar[nodes] == 0]] = NodeIneligible.JOB_MAY_NOT_LEND
        for row in running[~ineligible].tolist():
            nodes = places[row].nodes
            if len(nodes) == 0 or not takes[nodes].all():
                jobs.host_bar[row] = Ineligible.NODE_TAKES_NO_GUESTS
        if settings.share_users in ("same", "account"):  # then free cores are not lent, either
            lending = set(jobs.share_group[running[jobs.host_bar[running] == 0]].tolist())
            for row in queue[(jobs.guest_bar[queue] == 0) & np.isnan(jobs.offered_s[queue])].tolist():
                if int(jobs.share_group[row]) not in lending:
                    jobs.guest_bar[row] = Ineligible.OTHER_USERS
