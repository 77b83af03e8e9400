"""The port policies on a cluster: `oga`, and beside it `fairness`, `drf`, `binpack` and `spread`.

Ports are application classes (user, name, size): the first `ports` of them that are met, and one port for the rest.
Instances are nodes. Resources are CPU and memory, and GPUs where a gres or an offer says so. All are counted in
quarters of what a node has in the mean, since one η serves all. y is what the guests of a class may use on a node. In
these units η = 1 is below 2 / max |f''| of every utility with α = 1 but `reciprocal` with less: with a larger one the
allocation of two classes swings from cycle to cycle, which is no harm to a mean reward and much to a job.

x(t): the classes that have a job that waits and may be a guest, or a guest that runs. `oga` learns of whole nodes,
since who lends what changes from cycle to cycle; its y is then projected (32) onto what nodes lend now: what their
batch jobs leave beyond the 95th percentile of their use and headroom, and what free cores give where the cluster lends
those. In mode `reclaim` classes that cannot be on a node leave their part of it to those that can (`_gather`). The
baselines divide directly.

What follows from y: guests that run divide the y of their class on each node by what they use of their cores, as
measured, and each has the part of its cores that the least of its nodes gives (`SetQuota`); `SetMemory` likewise, never
below what they use and some slack. What their class does not use of y is room for its jobs that wait, as far as pools
go: they are placed in the cluster's order, all components or none (`CoAllocate`). GPU shares are told in the reasons of
decisions and set nowhere: the percentage of CUDA MPS cannot be changed of a process that runs, and jobs with gres
neither lend nor are guests unless the site wants that. Mesos gives devices whole: what is divided of a node's is what
its batch jobs have not, and a guest goes where enough of that is free.

Options: those of `Options`, and for `oga` of `OgaOptions`. Cost a cycle: O(cores + waiting · nodes + ports · nodes).
Source: Zhao et al., *Scheduling Multi-Server Jobs with Sublinear Regrets via Online Learning*; see `asad.place.oga`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.applications import Turnover
from asad.catalog import policy_class
from asad.decisions import Cause, CoAllocate, Decision, SetMemory
from asad.errors import ConfigError, UsageError
from asad.model import Finished, Floats, Ints, Json, Machine, Snapshot
from asad.place import PlacePolicy, oga
from asad.place.options import OgaOptions, Options
from asad.place.ports import PortPolicy, Ports
from asad.place.projection import project
from asad.place.rooms import (
    LEAST_QUOTA,
    PRESSURE,
    Gangs,
    Patience,
    Places,
    Quotas,
    Rooms,
    Uses,
    bounds_of,
    candidates,
    ends,
)
from asad.place.rooms import spread as spread_cores
from asad.place.utilities import FORMS, slope
from asad.policy import POOL_PROPERTIES

REST = "*"
"""The port of all classes beyond the others; no application is called that, since a fingerprint has slashes."""
CPU, MEMORY, GPU = range(3)
SLACK = 0.2
"""Memory limits are asked for this part above what is used: the guard and the node actor insist on less."""
MEMORY_STEP = 0.1
"""A memory limit changes by no less than this part of it."""
MOST_PORTS = 1000
NODE = 4.0
"""What the mean node has of each resource, in units of y: not so little that utilities are straight lines, nor so much
that they are flat."""


class Placed(NamedTuple):
    """What is divided in one cycle."""

    y: Floats
    """(E, K) in quarters of a node."""
    left: Floats
    """(L, N) CPU of y that no guest of the class has, in cores."""


class PortPlacing(PlacePolicy):
    """A port policy on a cluster.

    `applications` names the codes of `Jobs.application`, and may grow. Raises ConfigError for a wrong option.
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
        self.name, self.applications = name, applications
        self.options, self.learning = options or Options(), learning or OgaOptions()
        self._kind: Callable[[Ports], PortPolicy] = policy_class("place", name)
        if not issubclass(policy_class("place", name), PortPolicy):
            raise ConfigError(f"[place.{name}]: no port policy")
        self.poll_s = poll_s
        self._patience = Patience(poll_s)
        self._quotas, self._uses = Quotas(pressure), Uses(applications)
        self._turnover = Turnover(applications)
        _check(name, self.options, self.learning)
        self.oga: oga.Oga | None = None
        self._ports: Ports | None = None
        self._machine: Machine | None = None
        self._classes: list[str] = []
        self._port_of: dict[int, int] = {}
        """Code of an application → its port."""
        self._asks: dict[str, Floats] = {}
        """By class (K,) what all jobs that it had at one time could use on one node; it only grows, since requests of a
        port are no matter of the moment."""
        self._kept: Mapping[str, Mapping[str, Json]] = {}
        """What was learned by an earlier process, until a machine is seen."""
        self._told: Mapping[str, Mapping[str, Json]] = {}
        self._forgotten: set[str] = set()
        """What `changes` told last, and classes that were forgotten since."""
        self._x: Floats = np.zeros(0)
        self._y: Floats | None = None
        self._unit = np.ones(3)
        """Cores, bytes and GPUs that are one in y."""
        self._resources = 2

    # ---------------------------------------------------------------------------------------------------- knowledge

    def state(self) -> dict[str, dict[str, Json]]:
        """What `oga` has learned, by class: y on every node, and its requests; the slot under `*`, with the rest."""
        if self.oga is None:
            return {name: dict(entry) for name, entry in self._kept.items()}
        plain = self.oga.state()
        assert isinstance(plain, dict)
        y = plain["y"]
        assert isinstance(y, dict)
        found: dict[str, dict[str, Json]] = {name: {"y": held} for name, held in y.items()}
        for name, asks in self._asks.items():
            found.setdefault(name, {})["asks"] = asks.tolist()
        found.setdefault(REST, {})["slot"] = plain["slot"]
        return found

    def changes(self) -> dict[str, dict[str, Json] | None]:
        """What `state` tells otherwise than when this was asked last, or restored; None of classes that gave their
        ports to others."""
        before, self._told = self._told, self.state()
        gone: dict[str, dict[str, Json] | None] = dict.fromkeys(self._forgotten)
        self._forgotten = set()
        return gone | {name: entry for name, entry in self._told.items() if before.get(name) != entry}

    def restore(self, memory: Mapping[str, Mapping[str, Json]]) -> None:
        """Know again what `state` told; what cannot be read is passed over."""
        if self.name != "oga":
            return
        self._kept = self._told = memory
        if self._machine is not None:
            self._take_up()

    def _take_up(self) -> None:
        """Classes that are remembered have their ports again, in front of new ones."""
        if not self._kept:
            return
        for name, entry in self._kept.items():
            known = isinstance(name, str) and isinstance(entry, Mapping) and "y" in entry
            if (
                known
                and name != REST
                and name not in self._classes
                and len(self._classes) < self.options.ports
            ):
                self._classes.append(name)
            asks = entry.get("asks") if isinstance(entry, Mapping) else None
            if isinstance(asks, list) and len(asks) == self._resources and all(map(_amount, asks)):
                most = self._whole.max(axis=0, initial=0.0)
                self._asks[name] = np.minimum(np.array(asks, np.float64), most)
        self._port_of.clear()
        self._rebuild()
        if self.oga is not None:
            rest = self._kept.get(REST, {})
            y: dict[str, Json] = {
                name: entry.get("y") for name, entry in self._kept.items() if isinstance(entry, Mapping)
            }
            self.oga.restore({"slot": rest.get("slot") if isinstance(rest, Mapping) else None, "y": y})
        self._kept = {}

    # -------------------------------------------------------------------------------------------------------- ports

    def _prepare(self, snapshot: Snapshot) -> None:
        """Ports for the machine and the classes that are here."""
        machine, resources = snapshot.machine, 3 if snapshot.node_gpus else 2
        if machine is not self._machine or resources != self._resources:
            changed = self._machine is None or (machine.node_names, machine.cores.tolist()) != (
                self._machine.node_names,
                self._machine.cores.tolist(),
            )
            if resources != self._resources:
                changed, self.oga = True, None
                self._asks.clear()
            self._machine, self._resources = machine, resources
            if changed:
                total = NODE * max(1, len(machine.cores))
                memory = float(np.nansum(machine.memory_bytes))
                gpus = sum(snapshot.node_gpus.values())
                cores = machine.total_cores / total or 1.0
                self._unit = np.array([cores, memory / total or 1.0, gpus / total or 1.0])
                self._whole = np.zeros((len(machine.cores), resources))
                self._whole[:, CPU] = machine.cores / cores
                # where memory is not known it binds nobody
                known = np.where(
                    np.isnan(machine.memory_bytes),
                    machine.cores / cores * self._unit[MEMORY],
                    machine.memory_bytes,
                )
                self._whole[:, MEMORY] = known / self._unit[MEMORY]
                for node, count in snapshot.node_gpus.items():
                    self._whole[node, GPU] = count / self._unit[GPU]
                self._rebuild()
                self._take_up()

    def _rebuild(self) -> None:
        machine = self._machine
        assert machine is not None
        names = [*self._classes, REST]
        nothing = np.zeros(self._resources)
        requests = np.array([self._asks.get(name, nothing) for name in names])
        o = self.learning
        self._ports = Ports.of(
            requests,
            self._whole,
            np.ones((len(names), len(machine.cores)), np.bool_),
            alpha=o.alpha,
            form=o.utility,
            beta=o.beta,
            names=names,
            instances=machine.node_names,
        )
        if self.name == "oga":
            if self.oga is None:
                self.oga = oga.Oga(self._ports, _mode(o), _learning(o))
            else:
                self.oga.resize(self._ports)
        self._x, self._y = np.zeros(len(names)), None

    def _forget(self) -> None:
        """Classes whose applications are forgotten give their ports to others."""
        for code, before in self._turnover.look().items():
            self._port_of.pop(code, None)
            if before in self._classes:
                self._classes.remove(before)
                self._asks.pop(before, None)
                self._forgotten.add(before)
                self._port_of.clear()
                self._ports = None

    def _port(self, code: int) -> int:
        port = self._port_of.get(code)
        return len(self._classes) if port is None else port

    def _meet(self, snapshot: Snapshot, rows: NDArray[np.int32]) -> None:
        """Ports for classes that are new, and what each class could use on one node, with all jobs that it has."""
        jobs, codes = snapshot.jobs, snapshot.jobs.application[rows]
        new = False
        for code in np.unique(codes).tolist():
            if code in self._port_of or not 0 <= code < len(self.applications):
                continue
            name = self.applications[code]
            if name not in self._classes:
                if len(self._classes) >= self.options.ports:
                    continue
                self._classes.append(name)
                new = True
            self._port_of[code] = self._classes.index(name)
        port = np.array([self._port(code) for code in codes.tolist()], np.int64)
        self._x = np.zeros(len(self._classes) + 1)
        self._x[port] = 1.0
        wide = np.maximum(1, jobs.nodes[rows])
        cores = jobs.cores[rows] / wide
        wants = np.zeros((len(rows), self._resources))
        wants[:, CPU] = cores / self._unit[CPU]
        bytes_ = np.nan_to_num(jobs.memory_bytes_per_core[rows]) * cores
        wants[:, MEMORY] = np.where(bytes_ > 0, bytes_ / self._unit[MEMORY], wants[:, CPU])
        if self._resources > GPU:
            of = np.array([snapshot.gpus.get(row, 0.0) for row in rows.tolist()])
            wants[:, GPU] = of / wide / self._unit[GPU]
        together = np.zeros((len(self._classes) + 1, self._resources))
        np.add.at(together, port, wants)
        most = self._whole.max(axis=0, initial=0.0)
        for number in np.unique(port).tolist():
            name = REST if number == len(self._classes) else self._classes[number]
            asks = np.minimum(together[number], most)
            self._asks[name] = np.maximum(self._asks.get(name, asks), asks)
            if not new and self._ports is not None:
                self._ports.requests[number] = self._asks[name]
        if new or self._ports is None:
            x = self._x
            self._rebuild()
            self._x = x

    # -------------------------------------------------------------------------------------------------------- cycle

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """One slot: which classes have jobs now; and what jobs of an application use."""
        self._uses.learn(snapshot, finished)
        self._prepare(snapshot)
        self._forget()
        waiting = np.array(candidates(snapshot), np.int32)
        self._meet(snapshot, np.concatenate((waiting, snapshot.guests)).astype(np.int32))
        if self.oga is not None and self._x.any():
            self._y = self.oga.allot(self._x)

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Quotas and memory limits of guests by the y of their classes, places for jobs that wait in what is left."""
        if self._ports is None or not self._x.any():
            return ()
        rooms = Rooms.see(snapshot, self.options.headroom)
        ports_of = [self._port(code) for code in snapshot.jobs.application[snapshot.guests].tolist()]
        guests = _Guests(snapshot, ports_of, self._uses)
        y = self._divide(rooms, guests)
        decisions, left = self._set_quotas(rooms, y, guests)
        if self.options.memory:
            decisions += self._memory(rooms, y, guests)
        decisions += self._places(rooms, Placed(y, left))
        return decisions

    def _divide(self, rooms: Rooms, guests: _Guests) -> Floats:
        """y (E, K), feasible by what nodes lend now."""
        assert self._ports is not None
        now = np.zeros_like(self._ports.capacities)
        now[:, CPU] = rooms.ceiling / self._unit[CPU]
        # where memory is not known it binds nobody
        memory = np.maximum(0.0, np.nan_to_num(rooms.memory)) / self._unit[MEMORY]
        now[:, MEMORY] = np.where(np.isinf(rooms.memory), self._whole[:, MEMORY], memory)
        if self._resources > GPU:
            now[:, GPU] = rooms.gpus_left / self._unit[GPU]
        ports = replace(self._ports, capacities=now)
        if self.oga is None:
            return self._kind(ports).allot(self._x)
        y = np.zeros_like(self._ports.empty()) if self._y is None else self._y
        # of `strict` and `reactive`, what is kept for absent classes is lost, as in the paper
        y = project(ports, y)
        return self._gather(rooms, y, now, guests) if self.learning.mode == "reclaim" else y

    def _gather(self, rooms: Rooms, y: Floats, now: Floats, guests: _Guests) -> Floats:
        """What `reclaim` means on a node: who cannot be there is absent there, and leaves its part to those who can.

        There are the classes that have a guest on the node, and those that wait and have enough of it for one. If
        there is nobody, since many classes have a little each, the one that has most of it is; of equals another one
        from node to node.
        """
        nodes, ports = len(self._whole), len(self._classes) + 1
        table = y.reshape(nodes, ports, self._resources)
        least = self.options.least_share * rooms.cores / self._unit[CPU]
        there = (self._x > 0) & (table[:, :, CPU] >= least[:, None])
        there[guests.node, guests.port] = True
        nobody = np.flatnonzero(~there.any(axis=1) & (now[:, CPU] > 0))
        turn = (np.arange(ports) - nobody[:, None]) % ports
        most = np.argmax(np.round(table[nobody, :, CPU], 3) - 1e-6 * turn, axis=1)
        there[nobody, most] = True
        kept = np.where(there[:, :, None], table, 0.0)
        total = kept.sum(axis=1)
        scale = np.divide(now, total, out=np.ones_like(now), where=total > 0)
        assert self._ports is not None
        gathered: Floats = np.minimum(kept * np.maximum(1.0, scale)[:, None, :], self._ports.requests[None])
        return gathered.reshape(y.shape)

    def _set_quotas(self, rooms: Rooms, y: Floats, guests: _Guests) -> tuple[list[Decision], Floats]:
        """What changes for guests that run, those that get less first; and the CPU of y that nobody has, in cores."""
        snapshot, o = rooms.snapshot, self.options
        of_class = self._table(y, CPU) * self._unit[CPU]
        held = np.zeros_like(of_class)
        np.add.at(held, (guests.port, guests.node), guests.needs)
        left = np.maximum(0.0, of_class - held)
        gets = guests.needs * of_class[guests.port, guests.node] / held[guests.port, guests.node]
        ceiling = rooms.ceiling[guests.node]
        gets = np.minimum(
            guests.cores, np.maximum(gets, np.minimum(ceiling, o.least_share * rooms.cores[guests.node]))
        )
        gets = np.where(
            rooms.lends[guests.node], gets, guests.cores
        )  # elsewhere there is nobody to divide with
        part = gets / guests.cores
        self._quotas.look(snapshot, guests)
        changes: list[tuple[float, Decision]] = []
        for guest, at in guests:
            if not self._quotas.open(guests.node[at]):
                continue
            before, worst = self._quotas.of(guest), at[int(np.argmin(part[at]))]
            quota = math.floor(1000 * max(LEAST_QUOTA, float(part[worst])) + 1e-6) / 1000
            over = quota < before and before * guests.cores[worst] > ceiling[worst] + 1e-9
            if not (math.isnan(before) or over or abs(quota - before) >= o.step):
                continue
            detail = self._detail(y, int(guests.port[worst]), int(guests.node[worst]))
            reason = f"its class may use {detail['y_cores']:.2f} cores there, of which it has its part"
            if not rooms.lends[guests.node[worst]]:
                reason = "it divides its nodes with nobody"
            order = quota - before if before == before else -1.0
            cause = Cause(self.name, reason, detail)
            changes.append((order, self._quotas.decide(snapshot, guests, guest, at, quota, cause)))
        return [decision for _, decision in sorted(changes, key=lambda change: change[0])], left

    def _memory(self, rooms: Rooms, y: Floats, guests: _Guests) -> list[Decision]:
        """Memory limits of guests whose use has been measured: the part of their class, and no less than they use."""
        snapshot, jobs = rooms.snapshot, rooms.snapshot.jobs
        decisions: list[Decision] = []
        if not snapshot.memory_used:
            return decisions
        of_class = self._table(y, MEMORY) * self._unit[MEMORY]
        held = np.zeros_like(of_class)
        np.add.at(held, (guests.port, guests.node), guests.cores)
        part = of_class[guests.port, guests.node] * guests.cores / held[guests.port, guests.node]
        for guest, at in guests:
            used = snapshot.memory_used.get(guest, math.nan)
            before = snapshot.memory_high.get(guest, math.nan)
            nodes = guests.node[at]
            if not rooms.lends[nodes].any() or np.isnan(snapshot.machine.memory_bytes[nodes]).any():
                if before == before:
                    decisions.append(SetMemory(Cause(self.name, "it has its nodes for itself"), guest, 0.0))
                continue
            if math.isnan(used):
                continue
            floor = used * (1.0 + SLACK)
            high = max(floor, float(part[at].min()))
            reserved = float(jobs.memory_bytes_per_core[guest]) * int(guests.cores[at].max())
            worst = at[int(np.argmin(part[at]))]
            detail = self._detail(y, int(guests.port[worst]), int(guests.node[worst]))
            detail |= {"used_bytes": used, "reserved_bytes": _plain(reserved)}
            if reserved > 0 and high >= reserved:
                if before == before:
                    reason = "its class may use all that it has reserved"
                    decisions.append(SetMemory(Cause(self.name, reason, detail), guest, 0.0))
                continue
            near = abs(high - before) < MEMORY_STEP * before and before >= used * (1.0 + SLACK / 2)
            if not near:  # NaN too
                reason = f"its class may use {detail['y_memory_bytes'] or 0.0:.0f} bytes there"
                decisions.append(SetMemory(Cause(self.name, reason, detail), guest, math.ceil(high)))
        return decisions

    def _places(self, rooms: Rooms, placed: Placed) -> list[Decision]:
        """Jobs that wait, in the cluster's order: all components where y of their class leaves room, or nothing."""
        snapshot = rooms.snapshot
        waiting = self._patience.candidates(snapshot)
        gangs, told = Gangs(snapshot), set[int]()
        decisions: list[Decision] = []
        for guest in waiting:
            if guest in told:
                continue
            offers = self._offer(rooms, placed, gangs.together(guest, waiting))
            told |= {offer.guest for offer in offers}
            decisions += offers
        self._patience.note(snapshot, decisions)
        return decisions

    def _offer(self, rooms: Rooms, placed: Placed, gang: Sequence[int]) -> list[CoAllocate]:
        snapshot, jobs = rooms.snapshot, rooms.snapshot.jobs
        least = self.options.least_share * rooms.cores.astype(np.float64)
        several = len(gang) > 1
        trial, left = (rooms.copy(), placed.left.copy()) if several else (rooms, placed.left)
        offers: dict[int, CoAllocate] = {}
        for guest in gang:
            port, use = self._port(int(jobs.application[guest])), self._uses.of(snapshot, guest)
            own = left[port]
            nodes = trial.fit(guest, use, least, bounds_of(snapshot, guest), own)
            rate = trial.rate(guest, nodes, use, own) if len(nodes) else 0.0
            if rate <= 0:
                return []
            guest_end_s, wait_end_s = ends(snapshot, guest, rate)
            if guest_end_s >= wait_end_s:
                return []
            demands = tuple(count * use * rate for count in spread_cores(int(jobs.cores[guest]), len(nodes)))
            trial.take(guest, nodes, demands)
            left[port, nodes] -= np.array(demands)
            if guest in offers:
                continue
            detail = self._detail(placed.y, port, int(nodes[-1]))
            detail |= {
                "rate": round(rate, 4),
                "guest_end_s": guest_end_s,
                "wait_end_s": wait_end_s,
                "guest_cpu": round(use, 4),
                "components": len(nodes),
            }
            reason = f"its class has room there: {detail['y_cores']:.2f} cores of {detail['node']}"
            cause = Cause(self.name, reason, detail)
            offers[guest] = CoAllocate(cause, guest, tuple(nodes.tolist()), demands)
        if several:
            rooms.adopt(trial)
            placed.left[:] = left
        return list(offers.values())

    # ----------------------------------------------------------------------------------------------------- figures

    def _table(self, y: Floats, resource: int) -> Floats:
        """y of a resource as (L, N); every port is connected to every node."""
        nodes, ports = len(self._whole), len(self._classes) + 1
        table: Floats = y[:, resource].reshape(nodes, ports).T
        return table

    def _detail(self, y: Floats, port: int, node: int) -> dict[str, Json]:
        """The class, its y on a node and the gradient there, for `asactl explain`."""
        ports, edge = self._ports, node * (len(self._classes) + 1) + port
        assert ports is not None
        here = y[edge]
        known = self._machine is not None and not math.isnan(self._machine.memory_bytes[node])
        told: dict[str, Json] = {
            "class": ports.names[port] if port < len(self._classes) else "the rest",
            "node": ports.instances[node],
            "classes_present": int(self._x.sum()),
            "y_cores": float(here[CPU] * self._unit[CPU]),
            "y_memory_bytes": float(here[MEMORY] * self._unit[MEMORY]) if known else None,
        }
        if self._resources > GPU:
            told["y_gpus"] = float(here[GPU] * self._unit[GPU])
        if self.oga is not None:
            totals = np.array([self._table(y, k)[port].sum() for k in range(self._resources)])
            worst = int(np.argmax(ports.beta * totals))
            gradient = [
                float(slope(int(ports.form[node, k]), float(ports.alpha[node, k]), float(here[k])))
                - (float(ports.beta[k]) if k == worst else 0.0)
                for k in range(self._resources)
            ]
            told |= {"gradient": list(gradient), "slot": self.oga.slot, "eta": self.oga.eta}
        return told


class _Guests(Places):
    """The same with the port of each row, and what the guest needs there: what it is expected to use, in cores."""

    def __init__(self, snapshot: Snapshot, ports: Sequence[int], uses: Uses) -> None:
        """`ports` are those of `snapshot.guests`."""
        super().__init__(snapshot)
        of = dict(zip(snapshot.guests.tolist(), ports, strict=True))
        self.port: Ints = np.array([of[one] for one in self.row.tolist()], np.int32)
        use = {row: uses.of(snapshot, row) for row in of}
        self.needs: Floats = self.cores * np.array([use[row] for row in self.row.tolist()])


def _mode(o: OgaOptions) -> oga.Mode:
    return next(mode for mode in oga.MODES if mode == o.mode)


def _learning(o: OgaOptions) -> oga.Options:
    return oga.Options(o.eta or None, o.decay, o.eta_least, o.reach)


def _amount(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _plain(value: float) -> Json:
    return value if math.isfinite(value) else None


def _check(name: str, o: Options, learning: OgaOptions) -> None:
    table = f"[place.{name}]"
    if not 0 <= o.ports <= MOST_PORTS:
        raise ConfigError(f"{table} ports = {o.ports}; give from 0 to {MOST_PORTS}")
    if not 0 <= o.headroom < 1:
        raise ConfigError(f"{table} headroom = {o.headroom:g}; give from 0 to below 1")
    if not 0 < o.least_share <= 1:
        raise ConfigError(f"{table} least_share = {o.least_share:g}; give from above 0 to 1")
    if not 0 < o.step <= 1:
        raise ConfigError(f"{table} step = {o.step:g}; give from above 0 to 1")
    if learning.mode not in oga.MODES:
        raise ConfigError(f"{table} mode = {learning.mode!r:.40}; there are {', '.join(oga.MODES)}")
    if learning.utility not in FORMS:
        raise ConfigError(f"{table} utility = {learning.utility!r:.40}; there are {', '.join(FORMS)}")
    if not 0 < learning.alpha < math.inf:
        raise ConfigError(f"{table} alpha = {learning.alpha:g}; give a number above 0")
    if not 0 <= learning.beta < math.inf:
        raise ConfigError(f"{table} beta = {learning.beta:g}; give 0 or more")
    nothing = Ports.of(np.zeros((0, 1)), np.zeros((0, 1)), np.zeros((0, 0), np.bool_))
    try:
        oga.Oga(nothing, _mode(learning), _learning(learning))
    except UsageError as error:
        raise ConfigError(f"{table}: {error}") from error
