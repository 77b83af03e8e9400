"""Where waiting jobs could go as guests: nodes that one running job holds wholly, and what of them is not lent yet.

All of it is reckoned in whole columns over the nodes; a policy of this room asks `fit` for each waiting job in its
order, and `take`s what it promises, so that the next one finds it taken. Cost: O(cores) to see, O(nodes) a job.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from asad.model import CoAllocate, Decision, Floats, Ints, Snapshot
from asad.place.components import Components, read_components

ROOM = 1e-9
"""Shares are sums: what is smaller than this is rounding."""

Extend = Callable[[Snapshot, str, float], tuple[list[Decision], float]]
"""(snapshot, name of the policy, poll interval in seconds) → which limits to extend, and when to look again (s)."""


def extend_nothing(snapshot: Snapshot, policy: str, poll_s: float) -> tuple[list[Decision], float]:
    """For clusters whose limits are not to be touched."""
    return [], math.inf


@dataclass(slots=True)
class Rooms:
    """What is open on N nodes. Made by `see`."""

    snapshot: Snapshot
    cores: Ints
    """(N,) Cores of each node."""
    holder: Ints
    """(N,) Row of the batch job that holds the node wholly and may lend; -1 for none."""
    ceiling: Floats
    """(N,) Share of the holder's CPU that may be lent there at all: what it does not use, less the headroom; 0 where it
    has not been measured."""
    room: Floats
    """(N,) Share that may still be lent."""
    free: Ints
    """(N,) Cores without a guest."""
    memory_free: Floats
    """(N,) Bytes that neither the holder nor a guest has reserved; inf where memory is not known."""
    gpus_left: Floats
    """(N,) GPUs that the holder has not; devices are given whole."""
    gpus_free: Floats
    """(N,) Those that no guest has either."""

    @classmethod
    def see(cls, snapshot: Snapshot, headroom: float) -> Rooms:
        """What is open now; `headroom` is the share that a host keeps beyond what it uses."""
        jobs, machine = snapshot.jobs, snapshot.machine
        count, cores = len(machine.cores), machine.cores
        node = np.repeat(np.arange(count), cores)
        owner, guest = snapshot.core_owner, snapshot.core_guest
        first_owner = np.full(count, -1, np.int32)
        has = cores > 0
        first_owner[has] = owner[machine.first_core[:-1][has]]
        others = np.bincount(node[owner != first_owner[node]], minlength=count)
        barred = np.where(first_owner >= 0, jobs.host_bar[first_owner] != 0, True)
        holder = np.where((others == 0) & ~barred & (snapshot.node_bar == 0), first_owner, -1).astype(
            np.int32
        )
        free = np.bincount(node[guest < 0], minlength=count).astype(np.int32)
        # what is lent: each guest once a node, whole where its share is not decided yet
        lent = np.zeros(count)
        taken = np.flatnonzero(guest >= 0)
        memory_guests = np.bincount(
            node[taken], weights=np.nan_to_num(jobs.memory_bytes_per_core[guest[taken]]), minlength=count
        )
        if len(taken):
            pair = np.unique(node[taken].astype(np.int64) * len(jobs.cores) + guest[taken])
            at, row = np.divmod(pair, len(jobs.cores))
            share = jobs.share[row]
            lent += np.bincount(at, weights=np.where(np.isnan(share), 1.0, share), minlength=count)
        used = np.where(holder >= 0, jobs.cpu_fraction[holder], np.nan)
        ceiling = np.where(np.isnan(used), 0.0, np.clip(1.0 - used - headroom, 0.0, 1.0))
        reserved = np.where(holder >= 0, jobs.memory_bytes_per_core[holder], 0.0) * cores
        known = machine.memory_bytes - np.nan_to_num(reserved) - memory_guests
        memory_free = np.where(np.isnan(machine.memory_bytes), np.inf, known)
        gpus_left, gpus_free = _gpus(snapshot, holder, node, taken)
        return cls(snapshot, cores, holder, ceiling, ceiling - lent, free, memory_free, gpus_left, gpus_free)

    def copy(self) -> Rooms:
        """To be tried out."""
        return Rooms(
            self.snapshot, self.cores, self.holder, self.ceiling,
            self.room.copy(), self.free.copy(), self.memory_free.copy(), self.gpus_left, self.gpus_free.copy(),
        )  # fmt: skip

    def fit(
        self, guest: int, share: float, bounds: Components | None, own: Floats | None = None
    ) -> NDArray[np.intp]:
        """Numbers of the nodes of one host on which `guest` would get at least `share` of each; none if it does not
        fit.

        As few as can be, the highest first: the scheduler fills from the lowest. `bounds` is the number of its
        components, if its user tells it; `own` (N,) is what else its share on a node may not exceed.
        """
        jobs = self.snapshot.jobs
        nowhere: NDArray[np.intp] = np.zeros(0, np.intp)
        need, wanted = float(jobs.memory_bytes_per_core[guest]), int(jobs.cores[guest])
        if math.isnan(need):
            return nowhere
        room = self.room if own is None else np.minimum(self.room, own)
        usable = (self.holder >= 0) & (room >= share - ROOM) & (self.free > 0)
        usable &= jobs.share_group[self.holder] == jobs.share_group[guest]
        if jobs.memory_bound[guest]:
            usable &= jobs.memory_bound[self.holder] == 0
        if not usable.any():
            return nowhere
        holds = np.where(usable, self.free, 0)
        if need > 0:
            known = np.isfinite(self.memory_free)
            fits = np.floor(np.where(known, self.memory_free, 0.0) / need + ROOM)
            holds = np.where(known, np.clip(fits, 0, holds), holds).astype(np.int64)
        gpus = self.snapshot.gpus.get(guest, 0.0) if self.snapshot.node_gpus else 0.0
        largest = int(holds.max())
        if largest == 0:
            return nowhere
        least, most = components_of(self.snapshot, guest, bounds)
        for count in range(max(least, -(-wanted // largest)), min(most, wanted, len(holds)) + 1):
            fits_here = holds >= -(-wanted // count)
            if gpus:
                fits_here &= self.gpus_free >= math.ceil(gpus / count)
            at = np.flatnonzero(fits_here)
            if len(at) < count:
                continue
            hosts, back, together = np.unique(self.holder[at], return_inverse=True, return_counts=True)
            enough = together[back] >= count
            if enough.any():
                host = hosts[back[enough][-1]]
                chosen: NDArray[np.intp] = at[self.holder[at] == host][-count:]
                return chosen
        return nowhere

    def take(self, guest: int, nodes: NDArray[np.intp], share: float) -> None:
        """The guest has been promised `share` of these nodes."""
        jobs = self.snapshot.jobs
        wanted, need = int(jobs.cores[guest]), float(jobs.memory_bytes_per_core[guest])
        even = -(-wanted // len(nodes))
        for node in nodes.tolist():
            cores = min(even, wanted)
            self.free[node] -= cores
            self.memory_free[node] -= cores * need
            self.room[node] -= share
            wanted -= cores
        if self.snapshot.node_gpus:
            self.gpus_free[nodes] -= math.ceil(self.snapshot.gpus.get(guest, 0.0) / len(nodes))

    def speed(self, guest: int, nodes: NDArray[np.intp], share: float) -> float:
        """Part of its full speed, in (0, 1], at which the guest would run with `share` of these nodes."""
        even = -(-int(self.snapshot.jobs.cores[guest]) // len(nodes))
        return min(1.0, share * float(self.cores[nodes].min()) / even)


def _gpus(
    snapshot: Snapshot, holder: Ints, node: NDArray[np.intp], taken: NDArray[np.intp]
) -> tuple[Floats, Floats]:
    """`gpus_left` and `gpus_free`; `taken` are the cores with guests, `node` the node of every core.

    A job has its GPUs evenly over its nodes.
    """
    left = np.zeros(len(holder))
    if not snapshot.node_gpus:
        return left, left
    jobs, guests = snapshot.jobs, np.zeros(len(holder))
    for at, count in snapshot.node_gpus.items():
        held = snapshot.gpus.get(int(holder[at]), 0.0) / max(1, int(jobs.nodes[holder[at]]))
        left[at] = max(0.0, count - held) if holder[at] >= 0 else 0.0
    for row in np.unique(snapshot.core_guest[taken]).tolist():
        there = np.unique(node[snapshot.core_guest == row])
        guests[there] += snapshot.gpus.get(row, 0.0) / len(there)
    return left, np.maximum(0.0, left - guests)


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
        return None  # the guard tells why it is not placed


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


AGAIN_POLLS = 5
"""An offer that came to nothing is not made again for so many polls, so that it does not keep others from its place."""


class Patience:
    """Which jobs were offered something in vain: vetoed, or refused by the cluster for what only it knows."""

    def __init__(self, poll_s: float) -> None:
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

    def note(self, snapshot: Snapshot, offers: Sequence[Decision]) -> None:
        """These offers are made now; whoever still waits in the next cycle had one in vain."""
        for offer in offers:
            if isinstance(offer, CoAllocate):
                self._offered[offer.guest] = str(snapshot.jobs.job_id[offer.guest])


class Gangs:
    """Arrays whose tasks start together, at least so many as the hint says, or not at all.

    A cluster that shows each task as a row is offered them together. One that shows the tasks that wait as one row
    (Slurm) takes one a cycle: the first is only offered where there is room for all of the least number.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._dropped: set[int] = set()

    def together(self, guest: int, waiting: Sequence[int]) -> list[int]:
        """The rows that are placed with `guest`, itself first; a row is named as often as tasks of it must find room.

        Empty if its array has been found not to fit, or is already told.
        """
        snapshot = self.snapshot
        array = int(snapshot.jobs.array[guest])
        bounds = bounds_of(snapshot, guest) if array >= 0 else None
        if bounds is None:
            return [guest]
        if array in self._dropped:
            return []
        arrays = snapshot.arrays
        least = bounds.least - int(arrays.running[array])
        there = [row for row in waiting if int(snapshot.jobs.array[row]) == array]
        if least <= 1:
            return [guest]
        if len(there) >= least:
            self._dropped.add(array)  # the others of it come in the next cycle, one by one
            return there[:least]
        self._dropped.add(array)
        return [guest] * least if int(arrays.waiting[array]) >= least and len(there) == 1 else []


__all__ = [
    "Extend",
    "Gangs",
    "Patience",
    "Rooms",
    "bounds_of",
    "candidates",
    "components_of",
    "ends",
    "extend_nothing",
]
