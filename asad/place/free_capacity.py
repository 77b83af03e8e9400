"""Where waiting jobs could go as guests: what the pools of nodes have left (`asad.capacity`), what guests have of them.

All of it is computed in whole columns over the nodes; `GangOffers` asks `fit` for each waiting job in its order, and
`take`s what it offers, so that the next one finds it taken. Cost: O(cores) to see, O(nodes) a job.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.applications import Turnover
from asad.capacity import NOBODY, ROOM, cores_with_memory, held_memory, node_of_core, peaks, pools_of, spread
from asad.decisions import Cause, CoAllocate, SetQuota
from asad.ineligible import Ineligible
from asad.model import Finished, Floats, Ints, Json, Snapshot
from asad.place.components import Components, read_components

TARGET = 0.9
"""Nodes that let a guest run at this rate are as good as any."""
LEAST_RATE = 0.2
"""A guest that runs at this rate needs no more, however small its part of its nodes is."""
LEAST_QUOTA = 0.05
"""Part of its cores that a guest keeps whatever its nodes lend, so that it goes on."""
PRESSURE = 0.2
"""Beside a host that waits for CPU for more of the time, quotas are left to the guard."""


@dataclass(slots=True)
class FreeCapacity:
    """What is open on N nodes; CPU in cores' worth. Made by `see`."""

    snapshot: Snapshot
    cores: Ints
    """(N,) Cores of each node."""
    ceiling: Floats
    """(N,) What all guests of this policy on a node may take, those that are there included. Hosts that have not been
    measured are counted as usual ones."""
    lends: NDArray[np.bool_]
    """(N,) Is the node shared with a batch job, so that guests have to divide the ceiling?"""
    pool: Floats
    """(N,) What may still be taken; of a host that has not been measured nothing."""
    open: Ints
    """(N,) Cores without a guest."""
    memory: Floats
    """(N,) Bytes that all of them together may have; inf where memory is not known."""
    memory_free: Floats
    """(N,) Those that are left."""
    group: Ints
    """(N,) Share group of the jobs there, as in `asad.capacity.Pools`."""
    bound: NDArray[np.bool_]
    """(N,) Is one of them bound by memory bandwidth?"""
    gpus_left: Floats
    """(N,) GPUs that batch jobs and guests of another policy have not; devices are given whole."""
    gpus_free: Floats
    """(N,) Those that no guest has either."""

    @classmethod
    def see(cls, snapshot: Snapshot, headroom: float) -> FreeCapacity:
        """What is open now; `headroom` is the share of its cores that a host keeps beyond what it uses."""
        jobs, machine = snapshot.jobs, snapshot.machine
        count, cores = len(machine.cores), machine.cores
        pools = pools_of(snapshot, headroom)
        node = node_of_core(machine)
        owner, guest = snapshot.core_owner, snapshot.core_guest
        lends = (pools.unheld < cores) & (snapshot.node_bar == 0)
        if snapshot.whole_nodes:
            first = np.full(count, -1, np.int32)
            first[cores > 0] = owner[machine.first_core[:-1][cores > 0]]
            lends &= np.bincount(node[(owner < 0) | (owner != first[node])], minlength=count) == 0
        unmeasured = lends[node] & (owner >= 0) & (jobs.host_bar[owner] == 0) & np.isnan(peaks(snapshot))
        usual = max(0.0, 1.0 - float(pools.usual[0]) - headroom)
        ceiling = pools.lent + pools.free + usual * np.bincount(node[unmeasured], minlength=count)
        # guests of another policy keep what they would take if they got it all, so that neither squeezes the other
        theirs = (guest >= 0) & (jobs.guest_bar[guest] == Ineligible.OTHER_POLICY)
        if theirs.any():
            rows = guest[theirs]
            wants = np.where(np.isnan(jobs.cpu_fraction[rows]), jobs.demand[rows], jobs.cpu_fraction[rows])
            taken = np.bincount(node[theirs], np.nan_to_num(wants, nan=1.0), minlength=count)
            ceiling = np.maximum(0.0, ceiling - taken)
        memory = pools.memory + held_memory(snapshot, np.where(theirs, -1, guest))
        gpus_left, gpus_free = _gpus(snapshot, node, lends, theirs)
        return cls(
            snapshot, cores, ceiling, lends, pools.pool, pools.open, memory, pools.memory,
            pools.group, pools.bound.astype(np.bool_), gpus_left, gpus_free,
        )  # fmt: skip

    def copy(self) -> FreeCapacity:
        """To be tried out: what `take` changes is its own."""
        return replace(
            self, pool=self.pool.copy(), open=self.open.copy(), memory_free=self.memory_free.copy(),
            group=self.group.copy(), bound=self.bound.copy(), gpus_free=self.gpus_free.copy(),
        )  # fmt: skip

    def fit(
        self, guest: int, use: float, least: Floats, bounds: Components | None, own: Floats
    ) -> NDArray[np.intp]:
        """Numbers of the nodes on which `guest` would get at least `least` (N,), or `LEAST_RATE` of what it uses;
        none if it does not fit.

        As few as can be: the highest of those on which it runs at `TARGET`, since the scheduler fills from the lowest;
        where there are too few of them, those that give it most. `use` is what it is expected to use of a core,
        `bounds` the number of its components, if its user gives one; `own` (N,) is what else it may not exceed there.
        """
        jobs = self.snapshot.jobs
        nowhere: NDArray[np.intp] = np.zeros(0, np.intp)
        need, wanted = float(jobs.memory_bytes_per_core[guest]), int(jobs.cores[guest])
        group = jobs.share_group[guest]
        if math.isnan(need):
            return nowhere
        usable = (self.pool > ROOM) & (own > ROOM) & (self.open > 0)
        usable &= (self.group == group) | (self.group == NOBODY)
        if jobs.memory_bound[guest]:
            usable &= ~self.bound
        if (allowed := nodes_for(self.snapshot, guest)) is not None:
            usable &= allowed
        holds = cores_with_memory(np.where(usable, self.open, 0), self.memory_free, need).astype(np.int64)
        largest = int(holds.max(initial=0))
        if largest == 0 or int(holds.sum()) < wanted:
            return nowhere
        gpus = self.snapshot.gpus.get(guest, 0.0) if self.snapshot.node_gpus else 0.0
        fewest, most = components_of(self.snapshot, guest, bounds)
        most = min(most, wanted, int(np.count_nonzero(holds)))
        count = max(fewest, -(-wanted // largest))
        while count <= most:
            even = -(-wanted // count)
            there = holds >= even
            if gpus:
                there &= self.gpus_free >= math.ceil(gpus / count)
            gets = np.where(there, np.minimum(self._reach(even), own), -1.0)
            at = np.flatnonzero(gets >= TARGET * even * use)
            if len(at) < count:
                at = np.flatnonzero(gets >= np.minimum(least, LEAST_RATE * even * use) - ROOM)
                at = at[np.argsort(gets[at], kind="stable")]
            if len(at) >= count:
                chosen: NDArray[np.intp] = np.sort(at[-count:])
                return chosen
            if count == most:
                break
            count = min(2 * count, most)
        return nowhere

    def _reach(self, cores: int) -> Floats:
        """(N,) What a guest with so many cores of a node could take of its pool."""
        if self.snapshot.widened:
            return self.pool
        # what is idle on its own cores, as far as cores are alike
        part: Floats = self.pool * np.minimum(1.0, cores / np.maximum(1, self.open))
        return part

    def rate(self, guest: int, nodes: NDArray[np.intp], use: float, own: Floats) -> float:
        """Part of its full speed, in [0, 1], at which the guest would run there: the slowest of its nodes decides."""
        cores = np.array(spread(int(self.snapshot.jobs.cores[guest]), len(nodes)))
        gets = np.minimum(self._reach(int(cores[0]))[nodes], own[nodes])
        return float(np.clip(np.min(gets / (cores * use)), 0.0, 1.0))

    def take(self, guest: int, nodes: NDArray[np.intp], demands: Sequence[float]) -> None:
        """The guest is offered so many cores' worth of CPU of these nodes."""
        jobs = self.snapshot.jobs
        cores = np.array(spread(int(jobs.cores[guest]), len(nodes)))
        self.open[nodes] -= cores
        self.memory_free[nodes] -= cores * float(jobs.memory_bytes_per_core[guest])
        self.pool[nodes] -= np.array(demands)
        self.group[nodes] = jobs.share_group[guest]
        self.bound[nodes] |= bool(jobs.memory_bound[guest])
        if self.snapshot.node_gpus:
            self.gpus_free[nodes] -= math.ceil(self.snapshot.gpus.get(guest, 0.0) / len(nodes))


def _gpus(
    snapshot: Snapshot, node: NDArray[np.intp], lends: NDArray[np.bool_], theirs: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """`gpus_left` and `gpus_free`; `node` is the node of each core, `theirs` the cores of another policy's guests.
    A job has its GPUs evenly over its nodes."""
    left = np.zeros(len(lends))
    if not snapshot.node_gpus:
        return left, left
    for at, count in snapshot.node_gpus.items():
        left[at] = count if lends[at] else 0.0
    free, guest = left.copy(), snapshot.core_guest
    of_policy, of_other = np.where(theirs, -1, guest), np.where(theirs, guest, -1)
    both = left, free
    for holder, tables in ((snapshot.core_owner, both), (of_other, both), (of_policy, (free,))):
        for row, count in snapshot.gpus.items():
            there = np.unique(node[holder == row])
            for table in tables:
                table[there] -= count / max(1, len(there))
    return np.maximum(0.0, left), np.maximum(0.0, free)


class Places:
    """Where guests that draw from pools run: a row of the arrays for each of them on each of its nodes."""

    def __init__(self, snapshot: Snapshot) -> None:
        jobs, nodes = snapshot.jobs, max(1, len(snapshot.machine.cores))
        held = np.flatnonzero(snapshot.core_guest >= 0)
        at = np.searchsorted(snapshot.machine.first_core, held, side="right") - 1
        pair, count = np.unique(snapshot.core_guest[held].astype(np.int64) * nodes + at, return_counts=True)
        row, node = np.divmod(pair, nodes)
        runs = np.isin(row, snapshot.guests[jobs.host[snapshot.guests] < 0])
        self.row, self.node = row[runs], node[runs].astype(np.intp)
        self.cores: Floats = count[runs].astype(np.float64)

    def __iter__(self) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Each guest with its rows of the arrays."""
        if len(self.row):
            begin = np.flatnonzero(np.diff(self.row, prepend=-1))
            for at in np.split(np.arange(len(self.row)), begin[1:]):
                yield int(self.row[at[0]]), at


class Quotas:
    """Which quotas were decided for guests, as a part of their cores; a snapshot does not show them.

    Beside a host that waits for CPU (for more than `pressure` of the time) the guard decides; once that is over, quotas
    are decided anew.
    """

    def __init__(self, pressure: float = PRESSURE) -> None:
        self._pressure = pressure
        self._decided: dict[int, tuple[str, float]] = {}
        self._pressed: NDArray[np.bool_] = np.zeros(0, np.bool_)

    def look(self, snapshot: Snapshot, places: Places) -> None:
        """Forget those who are gone, or beside a host that waits for CPU."""
        jobs, machine = snapshot.jobs, snapshot.machine
        owner = snapshot.core_owner
        waits = (owner >= 0) & (jobs.pressure[owner] > self._pressure)  # never of NaN
        node = np.searchsorted(machine.first_core, np.flatnonzero(waits), side="right") - 1
        self._pressed = np.bincount(node, minlength=len(machine.cores)) > 0
        here = {row for row, at in places if not self._pressed[places.node[at]].any()}
        self._decided = {
            row: known
            for row, known in self._decided.items()
            if row in here and known[0] == str(jobs.job_id[row])
        }

    def open(self, nodes: NDArray[np.intp]) -> bool:
        """May quotas be decided there?"""
        return not self._pressed[nodes].any()

    def of(self, guest: int) -> float:
        """What was decided; NaN if nothing."""
        return self._decided.get(guest, ("", math.nan))[1]

    def decide(
        self, snapshot: Snapshot, places: Places, guest: int, at: NDArray[np.intp], quota: float, cause: Cause
    ) -> SetQuota:
        """The guest, whose rows of `places` are `at`, may use that part of its cores."""
        self._decided[guest] = str(snapshot.jobs.job_id[guest]), quota
        cores = tuple((quota * places.cores[at]).tolist())
        return SetQuota(cause, guest, tuple(places.node[at].tolist()), cores)


class Uses:
    """What jobs of an application use of a core, as far as any have ended."""

    def __init__(self, applications: Sequence[str] = ()) -> None:
        """`applications` names the codes of `Jobs.application`, and may grow."""
        self._turnover = Turnover(applications)
        self._known: dict[int, tuple[float, int]] = {}

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """Count the jobs that ended."""
        for code in self._turnover.look():
            self._known.pop(code, None)
        codes = snapshot.jobs.application[finished.row].tolist()
        for code, used in zip(codes, finished.cpu_fraction.tolist(), strict=True):
            if not math.isnan(used):
                total, jobs = self._known.get(code, (0.0, 0))
                self._known[code] = total + used, jobs + 1

    def of(self, snapshot: Snapshot, row: int) -> float:
        """Of a job: as measured, else as its application did before, else all."""
        measured = float(snapshot.jobs.cpu_fraction[row])
        if math.isnan(measured):
            total, jobs = self._known.get(int(snapshot.jobs.application[row]), (1.0, 1))
            measured = total / jobs
        return max(0.01, measured)


def nodes_for(snapshot: Snapshot, row: int) -> NDArray[np.bool_] | None:
    """(N,) On which nodes a job may be a guest; None where it may be on all.

    They are those of `Snapshot.guest_nodes` that have some of all gres that it wants.
    """
    nodes, gres = snapshot.guest_nodes.get(row), snapshot.tres.jobs.get(row)
    wants = snapshot.node_gpus and snapshot.gpus.get(row, 0.0) > 0
    if nodes is None and not wants and gres is None:
        return None
    found = np.full(len(snapshot.machine.cores), nodes is None)
    if nodes is not None:
        found[nodes] = True
    if wants:
        of_gpus = np.zeros(len(found), np.bool_)
        of_gpus[[node for node, count in snapshot.node_gpus.items() if count > 0]] = True
        found &= of_gpus
    if gres is not None:
        there = snapshot.tres.nodes > 0
        found &= there[:, (gres > 0) & there.any(axis=0)].all(axis=1)  # licences are on no node
    return found


def components_of(snapshot: Snapshot, guest: int, bounds: Components | None) -> Components:
    """On how many nodes a job may be spread: as its request and its hint have it.

    Of an array the hint is of its tasks, and says nothing of the nodes of one.
    """
    asked = int(snapshot.jobs.nodes[guest])
    if bounds is not None and snapshot.jobs.array[guest] < 0:
        return Components(max(asked, bounds.least), max(asked, bounds.most))
    return Components(asked, asked) if asked > 0 else Components(1, len(snapshot.machine.cores))


def bounds_of(snapshot: Snapshot, row: int) -> Components | None:
    """What a job's hint says of its components; None if nothing, or nothing that can be read."""
    text = snapshot.hints.get(row, "")
    try:
        return read_components(text) if text else None
    except ValueError:
        return None  # the guard says why it is not placed


def candidates(snapshot: Snapshot) -> Sequence[int]:
    """Rows of the jobs that wait and may be offered something, in the cluster's order."""
    jobs, queue = snapshot.jobs, snapshot.queue
    open_ = (jobs.guest_bar[queue] == 0) & (jobs.host[queue] < 0) & np.isnan(jobs.offered_s[queue])
    open_ &= np.isfinite(jobs.time_limit_s[queue]) & np.isfinite(jobs.estimated_start_s[queue])
    found: list[int] = queue[open_].tolist()
    return found


def ends(snapshot: Snapshot, guest: int, speed: float) -> tuple[float, float]:
    """When the guest would end at that speed, and when by waiting, if it runs to its limit (s)."""
    jobs = snapshot.jobs
    limit_s = float(jobs.time_limit_s[guest])
    begin_s = max(snapshot.time_s, float(jobs.estimated_start_s[guest]))
    return snapshot.time_s + limit_s / speed, begin_s + limit_s


class Limits(NamedTuple):
    """What a policy grants guests of N nodes, whatever is free there; CPU in cores' worth."""

    least: Floats
    """(N,) With less of a node none is offered it."""
    most: Floats
    """(classes, N) What guests of a class may take of a node."""
    class_of: Callable[[int], int]
    """Of the job in a row: the row of `most`."""
    together: bool
    """Do all guests of a class have `most` in common? Else each of them may take it."""


AGAIN_POLLS = 5
"""An offer that came to nothing is not made again for so many polls, so that it does not keep others from its place."""


class GangOffers:
    """Offers to jobs that wait, in the cluster's order: all components of a gang go where they fit, or none.

    Who was offered something in vain (vetoed, or refused by the cluster for what only it knows) waits a while.
    """

    def __init__(self, policy: str, poll_s: float, uses: Uses) -> None:
        """`policy` is named in the causes of the offers."""
        self._policy, self._uses = policy, uses
        self._again_s = AGAIN_POLLS * poll_s
        self._offered: dict[int, str] = {}
        self._until_s: dict[int, tuple[str, float]] = {}

    def candidates(self, snapshot: Snapshot) -> list[int]:
        """`candidates`, less those whose last offer came to nothing a short while ago."""
        waiting, jobs, now_s = candidates(snapshot), snapshot.jobs, snapshot.time_s
        for row, job in self._offered.items():
            if str(jobs.job_id[row]) == job:
                self._until_s[row] = (job, now_s + self._again_s)
        self._offered = {}
        self._until_s = {row: known for row, known in self._until_s.items() if known[1] > now_s}
        held = {row for row, (job, _) in self._until_s.items() if str(jobs.job_id[row]) == job}
        return [row for row in waiting if row not in held]

    def make(
        self,
        free: FreeCapacity,
        waiting: Sequence[int],
        limits: Limits,
        explain: Callable[[int, Sequence[int], Sequence[int]], tuple[str, dict[str, Json]]],
    ) -> list[CoAllocate]:
        """Offers to those of `waiting` that fit into what is `free` (used up by this) within `limits`, and would end
        sooner as guests. `explain` gives reason and detail for a guest, its nodes and its gang."""
        snapshot = free.snapshot
        offers: dict[int, CoAllocate] = {}
        for gang in gangs(snapshot, waiting):
            if gang[0] in offers:
                continue
            trial, granted = (free.copy(), limits.most.copy()) if len(gang) > 1 else (free, limits.most)
            made: dict[int, CoAllocate] = {}
            for guest in gang:
                own = granted[limits.class_of(guest)]
                offer = self._offer(trial, guest, limits.least, own)
                if offer is None:
                    break
                if limits.together:
                    own[list(offer.nodes)] -= np.array(offer.demands)
                if guest not in made:  # a row that stands for several tasks is offered one at a time
                    reason, detail = explain(guest, offer.nodes, gang)
                    cause = Cause(self._policy, reason, {**detail, **offer.cause.detail})
                    made[guest] = replace(offer, cause=cause)
            else:
                free, limits = trial, limits._replace(most=granted)
                offers |= made
        # whoever still waits in the next cycle had one in vain
        self._offered = {guest: str(snapshot.jobs.job_id[guest]) for guest in offers}
        return list(offers.values())

    def _offer(self, free: FreeCapacity, guest: int, least: Floats, own: Floats) -> CoAllocate | None:
        """Take what is best for the guest; None if it does not fit, or would end no sooner than by waiting."""
        snapshot, use = free.snapshot, self._uses.of(free.snapshot, guest)
        nodes = free.fit(guest, use, least, bounds_of(snapshot, guest), own)
        rate = free.rate(guest, nodes, use, own) if len(nodes) else 0.0
        if rate <= 0:
            return None
        guest_end_s, wait_end_s = ends(snapshot, guest, rate)
        if guest_end_s >= wait_end_s:
            return None
        demands = tuple(count * use * rate for count in spread(int(snapshot.jobs.cores[guest]), len(nodes)))
        free.take(guest, nodes, demands)
        detail = {
            "rate": round(rate, 4),
            "guest_end_s": guest_end_s,
            "wait_end_s": wait_end_s,
            "guest_cpu": round(use, 4),
            "components": len(nodes),
        }
        return CoAllocate(Cause(self._policy, "", detail), guest, tuple(nodes.tolist()), demands)


def gangs(snapshot: Snapshot, waiting: Sequence[int]) -> Iterator[list[int]]:
    """The rows that are placed together; a row is named as often as tasks of it must find room.

    Tasks of an array start together, at least so many as its hint says, or not at all. A cluster that shows each task
    as a row is offered them together, and the others of the array in the next cycle, one by one. One that shows the
    tasks that wait as one row (Slurm) takes one a cycle: the first is only offered where all of the least number have
    room.
    """
    looked_at: set[int] = set()
    for guest in waiting:
        array = int(snapshot.jobs.array[guest])
        bounds = bounds_of(snapshot, guest) if array >= 0 else None
        least = bounds.least - int(snapshot.arrays.running[array]) if bounds is not None else 1
        if bounds is not None and array in looked_at:
            continue
        if least <= 1:
            yield [guest]
            continue
        looked_at.add(array)
        there = [row for row in waiting if int(snapshot.jobs.array[row]) == array]
        if len(there) >= least:
            yield there[:least]
        elif int(snapshot.arrays.waiting[array]) >= least and len(there) == 1:
            yield [guest] * least
