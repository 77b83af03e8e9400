"""The port policies on a cluster: `oga`, and beside it `fairness`, `drf`, `binpack` and `spread`.

Ports are application classes (user, name, size): the first `ports` of them that are met, and one port for the rest.
Instances are nodes; a class is joined to those that its jobs may use (`free_capacity.nodes_for`). Resources are CPU and
memory, and GPUs where a gres or an offer says so. All are counted in quarters of what a node has in the mean, since one
η serves all. y is what the guests of a class may use on a node. In these units η = 1 is below 2 / max |f''| of every
utility with α = 1 but `reciprocal` with less: with a larger one the allocation of two classes swings from cycle to
cycle, which is no harm to a mean reward and much to a job.

x(t): the classes that have a job that waits and may be a guest, or a guest that runs. `oga` learns of whole nodes,
since who lends what changes from cycle to cycle; its y is then projected (32) onto what nodes lend now: what their
batch jobs leave beyond the 95th percentile of their use and headroom, and what free cores give where the cluster lends
those. In mode `reclaim` classes that cannot be on a node leave their part of it to those that can (`_gather`). The
baselines divide directly. How much a class counts and what overhead is charged is measured (`class_gains`). A gang that
falls short is dealt nothing, and others share in what it leaves (`gang_rounds`).

Beside a share policy that lends, all of this is about gangs alone, and what its guests would use is not there
(`asad.two_lenders`).

What follows from y: guests that run divide the y of their class on each node by what they use of their cores, as
measured, and each has the part of its cores that the least of its nodes gives (`SetQuota`); `SetMemory` likewise, never
below what they use and some slack. What their class does not use of y is room for its jobs that wait, as far as pools
go: they are placed in the cluster's order, all components or none (`CoAllocate`). GPU shares stand in the reasons of
decisions and set nowhere: the percentage of CUDA MPS cannot be changed of a process that runs, and jobs with gres
neither lend nor are guests unless the site wants that. Mesos gives devices whole: what is divided of a node's is what
its batch jobs have not, and a guest goes where enough of that is free.

Options: those of `Options`, and for `oga` of `OgaOptions`. Cost a cycle: O(cores + waiting · nodes + ports · nodes).
Source: Zhao et al., *Scheduling Multi-Server Jobs with Sublinear Regrets via Online Learning*; see `asad.place.oga`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from asad.capacity import ROOM
from asad.catalog import policy_class
from asad.decisions import Cause, Decision, SetMemory
from asad.errors import ConfigError
from asad.hold import plain
from asad.model import Finished, Floats, Ints, Json, Snapshot
from asad.place import PlacePolicy, oga
from asad.place.free_capacity import (
    LEAST_QUOTA,
    LEAST_RATE,
    PRESSURE,
    FreeCapacity,
    GangOffers,
    Limits,
    Places,
    Quotas,
    Uses,
    bounds_of,
    candidates,
    components_of,
    gangs,
)
from asad.place.gang_rounds import whole_gangs
from asad.place.port_classes import CPU, GPU, MEMORY, PortClasses, oga_of
from asad.place.ports import OgaOptions, Options, PortPolicy, Ports
from asad.place.projection import project
from asad.place.utilities import FORMS
from asad.policy import POOL_PROPERTIES, check_options

SLACK = 0.2
"""Memory limits are asked for this part above what is used: the guard and the node actor insist on less."""
SHORTEST_POLLS = 4
"""A job with a time limit of fewer polls is no guest: it is at its limit before it is seen that its quota slows it, and
the limit is moved."""
MEMORY_STEP = 0.1
"""A memory limit changes by no less than this part of it."""


class PortPlacing(PlacePolicy):
    """A port policy on a cluster.

    `applications` names the codes of `Jobs.application`, and may grow. Raises UsageError for a wrong option.
    """

    held = "idle"
    pooled = True
    properties = POOL_PROPERTIES
    extends_limits = True

    def __init__(
        self,
        name: str,
        applications: Sequence[str],
        options: Options | None = None,
        learning: OgaOptions | None = None,
        *,
        poll_s: float = 30.0,
        pressure: float = PRESSURE,
    ) -> None:
        """Beside a host that waits for CPU for more than `pressure` of the time, the guard decides."""
        self.name, self.poll_s = name, poll_s
        self.options, self.learning = options or Options(), learning or OgaOptions()
        self._kind: Callable[[Ports], PortPolicy] = policy_class("place", name)
        if not issubclass(policy_class("place", name), PortPolicy):
            raise ConfigError(f"[place.{name}]: no port policy")
        _check(self.learning)
        self._quotas, self._uses = Quotas(pressure), Uses(applications)
        self._offers = GangOffers(name, poll_s, self._uses)
        self._classes = PortClasses(name == "oga", applications, self.options.ports, self.learning)
        self.state, self.changes, self.restore = (
            self._classes.state,
            self._classes.changes,
            self._classes.restore,
        )
        self._y: Floats = np.zeros((0, 2))
        """Of `oga`, in this cycle."""

    @property
    def oga(self) -> oga.Oga | None:
        """What learns, where it does."""
        return self._classes.oga

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """One slot: which classes have jobs now; and what jobs of an application use."""
        self._uses.learn(snapshot, finished)
        waiting = np.array(candidates(snapshot), np.int32)
        self._classes.see(snapshot, np.concatenate((waiting, snapshot.guests)).astype(np.int32))
        if self.oga is not None and self._classes.present.any():
            if self.learning.measured:
                self._measure(snapshot)
            self._classes.charge()
            self._y = self.oga.allot(self._classes.present * self._classes.weights)

    def _measure(self, snapshot: Snapshot) -> None:
        """What guests that run make of what they may use, and what being spread costs them."""
        jobs, classes, places = snapshot.jobs, self._classes, Places(snapshot)
        for guest, at in places:
            pace, use, quota = (
                float(jobs.pace[guest]),
                float(jobs.cpu_fraction[guest]),
                self._quotas.of(guest),
            )
            if math.isnan(quota) or not use > 0:
                continue
            class_ = classes.name(int(jobs.application[guest]))
            for cores in (places.cores[at] / classes.unit[CPU]).tolist():
                classes.gains.look(class_, quota * cores, pace * use * cores)
            classes.gains.look_at_pace(len(at) > 1, pace, min(1.0, quota / use))

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Quotas and memory limits of guests by the y of their classes, places for jobs that wait in what is left."""
        if not self._classes.present.any():
            return ()
        classes, codes = self._classes, snapshot.jobs.application
        free = FreeCapacity.see(snapshot, self.options.headroom)
        ports_of = [classes.port(code) for code in codes[snapshot.guests].tolist()]
        guests = _Guests(snapshot, ports_of, self._uses)
        y = self._divide(free, guests)
        decisions, left = self._set_quotas(free, y, guests)
        if self.options.memory:
            decisions += self._memory(free, y, guests)

        def class_of(guest: int) -> int:
            return classes.port(int(codes[guest]))

        def explain(guest: int, nodes: Sequence[int], gang: Sequence[int]) -> tuple[str, dict[str, Json]]:
            detail = classes.detail(y, class_of(guest), nodes[-1])
            return f"its class has room there: {detail['y_cores']:.2f} cores of {detail['node']}", detail

        least = self.options.least_share * free.cores.astype(np.float64)
        limits = Limits(least, left, class_of, together=True)
        limit_s, shortest_s = snapshot.jobs.time_limit_s, SHORTEST_POLLS * self.poll_s
        waiting = [row for row in self._offers.candidates(snapshot) if limit_s[row] >= shortest_s]
        return decisions + self._offers.make(free, waiting, limits, explain)

    def _divide(self, free: FreeCapacity, guests: _Guests) -> Floats:
        """y (E, K), feasible by what nodes lend now."""
        classes = self._classes
        assert classes.ports is not None
        now = np.zeros_like(classes.ports.capacities)
        now[:, CPU] = free.ceiling / classes.unit[CPU]
        # where memory is not known it binds nobody
        memory = np.maximum(0.0, np.nan_to_num(free.memory)) / classes.unit[MEMORY]
        now[:, MEMORY] = np.where(np.isinf(free.memory), classes.whole[:, MEMORY], memory)
        if classes.resources > GPU:
            now[:, GPU] = free.gpus_left / classes.unit[GPU]
        ports = replace(classes.ports, capacities=now)
        short_of, learner = self._short_of(free, ports, guests), self.oga

        def among(present: Floats) -> Floats:
            return (
                self._kind(ports).allot(present)
                if learner is None
                else learner.among(present * classes.weights)
            )

        def deal(y: Floats, present: Floats) -> tuple[Floats, Floats]:
            if learner is not None:
                # of `strict` and `reactive`, what is kept for absent classes is lost, as in the paper
                y = project(ports, y)
                if self.learning.mode == "reclaim":
                    y = self._gather(free, y, ports, guests, present)
            return y, short_of(y, present)

        present = classes.present.copy()
        return whole_gangs(among(present) if learner is None else self._y, present, deal, among)

    def _short_of(
        self, free: FreeCapacity, ports: Ports, guests: _Guests
    ) -> Callable[[Floats, Floats], Floats]:
        """By which share of its least number of components the gang of each class that waits falls short of y (L,).

        Of several gangs the one that comes nearest counts. Classes with guests, or with jobs of one component, are
        never short: they can use whatever they have.
        """
        snapshot, classes = free.snapshot, self._classes
        least = self.options.least_share * free.cores
        gangs_of: dict[int, list[tuple[int, bool, Floats]]] = {}
        able = set(guests.port.tolist())
        for gang in gangs(snapshot, candidates(snapshot)):
            guest, jobs = gang[0], snapshot.jobs
            port, tasks = classes.port(int(jobs.application[guest])), len(gang) > 1
            fewest = len(gang) if tasks else components_of(snapshot, guest, bounds_of(snapshot, guest)).least
            if fewest <= 1:
                able.add(port)
                continue
            each = int(jobs.cores[guest]) / (1 if tasks else fewest)
            need = np.minimum(least, LEAST_RATE * each * self._uses.of(snapshot, guest)) / classes.unit[CPU]
            gangs_of.setdefault(port, []).append((fewest, tasks, need))
        wanting = {port: found for port, found in gangs_of.items() if port not in able}

        def short(y: Floats, present: Floats) -> Floats:
            found = np.zeros(len(present))
            cpu = ports.dense(y)[:, :, CPU] if wanting else y
            for port, gangs_there in wanting.items():
                if present[port] > 0:
                    found[port] = min(
                        max(0.0, 1.0 - _fits(cpu[port], need, several).sum() / fewest)
                        for fewest, several, need in gangs_there
                    )
            return found

        return short

    def _gather(
        self, free: FreeCapacity, y: Floats, ports: Ports, guests: _Guests, present: Floats
    ) -> Floats:
        """What `reclaim` means on a node: who cannot be there is absent there, and leaves its part to those who can.

        There are the classes that have a guest on the node, and those that wait and have enough of it for one. If
        there is nobody, since many classes have a little each, the one that has most of it is; of equals another one
        from node to node.
        """
        now, count = ports.capacities, len(ports.requests)
        table = ports.dense(y).transpose(1, 0, 2)
        joined = np.zeros((len(now), count), np.bool_)
        joined[ports.instance, ports.port] = True
        least = self.options.least_share * free.cores / self._classes.unit[CPU]
        there = (present > 0) & joined & (table[:, :, CPU] >= least[:, None])
        there[guests.node, guests.port] = True
        nobody = np.flatnonzero(~there.any(axis=1) & (now[:, CPU] > 0))
        turn = (np.arange(count) - nobody[:, None]) % count
        most = np.argmax(np.round(table[nobody, :, CPU], 3) - 1e-6 * turn, axis=1)
        there[nobody, most] = joined[nobody, most]
        kept = np.where(there[:, :, None], table, 0.0)
        total = kept.sum(axis=1)
        scale = np.divide(now, total, out=np.ones_like(now), where=total > 0)
        gathered: Floats = np.minimum(kept * np.maximum(1.0, scale)[:, None, :], ports.requests[None])
        return gathered[ports.instance, ports.port]

    def _parts(self, y: Floats, resource: int, guests: _Guests, weights: Floats) -> tuple[Floats, Floats]:
        """What guests have of the y of their classes on each of their nodes, which they divide by `weights`; and
        (L, N) what y is beyond the weights. In cores or bytes."""
        of_class = self._classes.table(y, resource) * self._classes.unit[resource]
        held = np.zeros_like(of_class)
        there = guests.port, guests.node
        np.add.at(held, there, weights)
        return weights * of_class[there] / held[there], of_class - held

    def _set_quotas(self, free: FreeCapacity, y: Floats, guests: _Guests) -> tuple[list[Decision], Floats]:
        """What changes for guests that run, those that get less first; and the CPU of y that nobody has, in cores."""
        o, node = self.options, guests.node
        gets, left = self._parts(y, CPU, guests, guests.needs)
        ceiling = free.ceiling[node]
        gets = np.minimum(
            guests.cores, np.maximum(gets, np.minimum(ceiling, o.least_share * free.cores[node]))
        )
        # elsewhere there is nobody to divide with
        part = np.where(free.lends[node], gets, guests.cores) / guests.cores
        self._quotas.look(free.snapshot, guests)
        changes: list[tuple[float, Decision]] = []
        for guest, at in guests:
            if not self._quotas.open(node[at]):
                continue
            before, worst = self._quotas.of(guest), at[int(np.argmin(part[at]))]
            quota = math.floor(1000 * max(LEAST_QUOTA, float(part[worst])) + 1e-6) / 1000
            over = quota < before and before * guests.cores[worst] > ceiling[worst] + 1e-9
            if not (math.isnan(before) or over or abs(quota - before) >= o.step):
                continue
            detail = self._classes.detail(y, int(guests.port[worst]), int(node[worst]))
            reason = f"its class may use {detail['y_cores']:.2f} cores there, of which it has its part"
            if not free.lends[node[worst]]:
                reason = "it divides its nodes with nobody"
            order = -1.0 if math.isnan(before) else quota - before
            cause = Cause(self.name, reason, detail)
            changes.append((order, self._quotas.decide(free.snapshot, guests, guest, at, quota, cause)))
        return [decision for _, decision in sorted(changes, key=lambda change: change[0])], np.maximum(
            0.0, left
        )

    def _memory(self, free: FreeCapacity, y: Floats, guests: _Guests) -> list[Decision]:
        """Memory limits of guests whose use has been measured: the part of their class, and no less than they use."""
        snapshot, known = free.snapshot, free.snapshot.machine.memory_bytes
        decisions: list[Decision] = []
        if not snapshot.memory_used:
            return decisions
        part, _ = self._parts(y, MEMORY, guests, guests.cores)
        for guest, at in guests:
            used = snapshot.memory_used.get(guest, math.nan)
            before = snapshot.memory_high.get(guest, math.nan)
            limited, high, detail = not math.isnan(before), 0.0, dict[str, Json]()
            if not free.lends[guests.node[at]].any() or np.isnan(known[guests.node[at]]).any():
                changes, reason = limited, "it has its nodes for itself"
            elif math.isnan(used):
                continue
            else:
                high = max(used * (1.0 + SLACK), float(part[at].min()))
                reserved = float(snapshot.jobs.memory_bytes_per_core[guest]) * int(guests.cores[at].max())
                worst = at[int(np.argmin(part[at]))]
                detail = self._classes.detail(y, int(guests.port[worst]), int(guests.node[worst]))
                detail |= {"used_bytes": used, "reserved_bytes": plain(reserved)}
                reason = f"its class may use {detail['y_memory_bytes'] or 0.0:.0f} bytes there"
                near = abs(high - before) < MEMORY_STEP * before and before >= used * (1.0 + SLACK / 2)
                changes = not near  # NaN too
                if reserved > 0 and high >= reserved:
                    changes, high, reason = limited, 0.0, "its class may use all that it has reserved"
            if changes:
                decisions.append(SetMemory(Cause(self.name, reason, detail), guest, math.ceil(high)))
        return decisions


class _Guests(Places):
    """The same with the port of each row, and what the guest needs there: what it is expected to use, in cores."""

    def __init__(self, snapshot: Snapshot, ports: Sequence[int], uses: Uses) -> None:
        """`ports` are those of `snapshot.guests`."""
        super().__init__(snapshot)
        of = dict(zip(snapshot.guests.tolist(), ports, strict=True))
        self.port: Ints = np.array([of[one] for one in self.row.tolist()], np.int32)
        use = {row: uses.of(snapshot, row) for row in of}
        self.needs: Floats = self.cores * np.array([use[row] for row in self.row.tolist()])


def _fits(y: Floats, need: Floats, several: bool) -> Floats:
    """(N,) How many components have enough of y on each node; of a job with several nodes one a node."""
    many = np.floor(y / need + ROOM)
    return many if several else np.minimum(1.0, many)


def _check(learning: OgaOptions) -> None:
    alpha, beta = learning.alpha, learning.beta
    check_options(
        ("mode", learning.mode, learning.mode in oga.MODES, f"there are {', '.join(oga.MODES)}"),
        ("utility", learning.utility, learning.utility in FORMS, f"there are {', '.join(FORMS)}"),
        ("alpha", alpha, 0 < alpha < math.inf, "give a number above 0"),
        ("beta", beta, 0 <= beta < math.inf, "give 0 or more"),
    )
    oga_of(Ports.of(np.zeros((0, 1)), np.zeros((0, 1)), np.zeros((0, 0), np.bool_)), learning)
