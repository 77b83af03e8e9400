"""Application classes as the ports of a port policy: who has one, what it asks for, and what `oga` has learned of it.

A port's requests only grow: they are what all jobs that its class had at one time could use on one node, which is no
matter of the moment. What was learned is kept by the names of classes and nodes, so that it outlives restarts, other
machines and classes that come and go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from asad.applications import Turnover
from asad.model import Floats, Json, Machine, Snapshot
from asad.place import oga
from asad.place.class_gains import ClassGains
from asad.place.free_capacity import nodes_for
from asad.place.ports import OgaOptions, Ports
from asad.place.utilities import slope

REST = "*"
"""The port of all classes beyond the others; no application is called that, since a fingerprint has slashes."""
CPU, MEMORY, GPU = range(3)
NODE = 4.0
"""What the mean node has of each resource, in units of y: not so little that utilities are straight lines, nor so much
that they are flat."""


class PortClasses:
    """The classes that have a port, on the machine that was seen last."""

    def __init__(self, learns: bool, applications: Sequence[str], most: int, options: OgaOptions) -> None:
        """`applications` names the codes of `Jobs.application`, and may grow; `most` classes have a port of their own.
        `learns`: with `oga`."""
        self._learns, self._applications, self._most, self._options = learns, applications, most, options
        self._turnover = Turnover(applications)
        self.oga: oga.Oga | None = None
        self.ports: Ports | None = None
        self._machine: Machine | None = None
        self.names: list[str] = []
        """Of the classes, in the order of their ports; the rest has the last."""
        self._port_of: dict[int, int] = {}
        """Code of an application → its port."""
        self._asks: dict[str, Floats] = {}
        """(K,) by class."""
        self._nodes: dict[str, frozenset[str]] = {}
        """By class the nodes that it may use; of a class that is not here all."""
        self.gains = ClassGains(options.utility)
        self._saved: Mapping[str, Mapping[str, Json]] = {}
        """What was learned by an earlier process, until a machine is seen."""
        self._described: Mapping[str, Mapping[str, Json]] = {}
        self._forgotten: set[str] = set()
        """What `changes` described last, and classes that were forgotten since."""
        self.present: Floats = np.zeros(0)
        """(L,) x of this cycle: 1 of classes that have jobs."""
        self.resources = 2
        self.unit = np.ones(2)
        """(K,) Cores, bytes and GPUs that are one in y."""
        self.whole = np.zeros((0, 2))
        """(N, K) What nodes have, in these units. Where memory is not known it binds nobody."""

    def state(self) -> dict[str, dict[str, Json]]:
        """What `oga` has learned, by class: y on every node, and its requests; the slot under `*`, with the rest."""
        if self.oga is None:
            return {name: dict(entry) for name, entry in self._saved.items()}
        learned = self.oga.state()
        found: dict[str, dict[str, Json]] = {name: {"y": of} for name, of in learned["y"].items()}
        for name, asks in self._asks.items():
            found.setdefault(name, {})["asks"] = asks.tolist()
        for name in found:
            if (made := self.gains.state(name)) is not None:
                found[name]["made"] = made
        found.setdefault(REST, {})["slot"] = learned["slot"]
        if (lost := self.gains.lost) is not None:
            found[REST]["lost"] = lost
        return found

    def changes(self) -> dict[str, dict[str, Json] | None]:
        """What `state` describes otherwise than when this was asked last, or restored; None of classes that gave their
        ports to others."""
        before, self._described = self._described, self.state()
        gone: dict[str, dict[str, Json] | None] = dict.fromkeys(self._forgotten)
        self._forgotten = set()
        return gone | {name: entry for name, entry in self._described.items() if before.get(name) != entry}

    def restore(self, saved: Mapping[str, Mapping[str, Json]]) -> None:
        """Go on from what `state` described; what cannot be read is passed over."""
        if not self._learns:
            return
        self._saved = self._described = {
            name: entry for name, entry in saved.items() if isinstance(entry, Mapping)
        }
        if self._machine is not None:
            self._take_up()

    def _take_up(self) -> None:
        """Classes of an earlier process have their ports again, in front of new ones."""
        if not self._saved:
            return
        for name, entry in self._saved.items():
            if "y" in entry and name != REST:
                self._add(name)
            asks = entry.get("asks")
            if isinstance(asks, list) and len(asks) == self.resources and all(map(_is_amount, asks)):
                self._asks[name] = np.minimum(np.array(asks, np.float64), self._most_of_one_node)
            of, machine = entry.get("y"), self._machine
            if isinstance(of, dict) and of and machine is not None and not of.keys() >= {*machine.node_names}:
                self._nodes[name] = frozenset(of)
        self._port_of.clear()
        self._rebuild()
        if self.oga is not None:
            y: dict[str, Json] = {name: entry.get("y") for name, entry in self._saved.items()}
            self.oga.restore({"slot": self._saved.get(REST, {}).get("slot"), "y": y})
        made = {name: entry.get("made") for name, entry in self._saved.items()}
        self.gains.restore(made, self._saved.get(REST, {}).get("lost"))
        self._saved = {}

    def _add(self, name: str) -> bool:
        """A port of its own for a class, as far as there are any; has it got a new one?"""
        new = name not in self.names and len(self.names) < self._most
        if new:
            self.names.append(name)
        return new

    @property
    def _most_of_one_node(self) -> Floats:
        """(K,)"""
        most: Floats = self.whole.max(axis=0, initial=0.0)
        return most

    def see(self, snapshot: Snapshot, rows: NDArray[np.int32]) -> None:
        """Ports for the machine, and for the classes of the jobs in `rows`, which are present."""
        self._see_machine(snapshot)
        self._forget()
        self._meet(snapshot, rows)

    def _see_machine(self, snapshot: Snapshot) -> None:
        machine, before = snapshot.machine, self._machine
        resources = 3 if snapshot.node_gpus else 2
        same = before is not None and resources == self.resources
        if same and machine is before:
            return
        if resources != self.resources:
            self.oga = None
            self._asks.clear()
        self._machine, self.resources = machine, resources
        if same and before is not None and _alike(machine, before):
            return
        amounts = np.zeros((len(machine.cores), resources))
        amounts[:, CPU], amounts[:, MEMORY] = machine.cores, machine.memory_bytes
        for node, count in snapshot.node_gpus.items():
            amounts[node, GPU] = count
        mean = np.nansum(amounts, axis=0) / (NODE * max(1, len(amounts)))
        self.unit = np.where(mean > 0, mean, 1.0)
        as_cores = amounts[:, CPU] / self.unit[CPU] * self.unit[MEMORY]
        amounts[:, MEMORY] = np.where(np.isnan(machine.memory_bytes), as_cores, machine.memory_bytes)
        self.whole = amounts / self.unit
        self._rebuild()
        self._take_up()

    def _rebuild(self) -> None:
        machine, o = self._machine, self._options
        assert machine is not None
        names = [*self.names, REST]
        nothing = np.zeros(self.resources)
        self.ports = Ports.of(
            np.array([self._asks.get(name, nothing) for name in names]),
            self.whole,
            np.array([self._joined(name, machine) for name in names]).reshape(len(names), -1),
            alpha=o.alpha,
            form=o.utility,
            beta=o.beta,
            names=names,
            instances=machine.node_names,
        )
        if self.oga is not None:
            self.oga.resize(self.ports)
        elif self._learns:
            self.oga = oga_of(self.ports, o)

    def _joined(self, name: str, machine: Machine) -> list[bool]:
        """On which nodes a class may have guests."""
        nodes = self._nodes.get(name)
        return [nodes is None or node in nodes for node in machine.node_names]

    def _join(self, snapshot: Snapshot, rows: NDArray[np.int32], name_of: Sequence[str]) -> None:
        """Where jobs of these classes may be. A class may use the nodes of all jobs of it that have been met."""
        names = np.array(snapshot.machine.node_names)
        first = {name for name in name_of if name not in self._asks}
        for row, name in zip(rows.tolist(), name_of, strict=True):
            if name not in first and name not in self._nodes:
                continue
            allowed, before = nodes_for(snapshot, row), self._nodes.pop(name, frozenset())
            first.discard(name)
            if allowed is not None:
                self._nodes[name] = before | frozenset(names[allowed].tolist())
            if self._nodes.get(name) != before:
                self.ports = None

    def _forget(self) -> None:
        """Classes whose applications are forgotten give their ports to others."""
        for code, before in self._turnover.look().items():
            self._port_of.pop(code, None)
            if before in self.names:
                self.names.remove(before)
                self._asks.pop(before, None)
                self._nodes.pop(before, None)
                self.gains.forget(before)
                self._forgotten.add(before)
                self._port_of.clear()
                self.ports = None

    def port(self, code: int) -> int:
        """Of an application."""
        return self._port_of.get(code, len(self.names))

    def name(self, code: int) -> str:
        """Of the class of an application."""
        return [*self.names, REST][self.port(code)]

    def _meet(self, snapshot: Snapshot, rows: NDArray[np.int32]) -> None:
        """Ports for classes that are new, and what each class could use on one node, with all jobs that it has."""
        jobs, codes = snapshot.jobs, snapshot.jobs.application[rows]
        for code in np.unique(codes).tolist():
            if code not in self._port_of and 0 <= code < len(self._applications):
                name = self._applications[code]
                if self._add(name):
                    self.ports = None
                if name in self.names:
                    self._port_of[code] = self.names.index(name)
        port = np.array([self.port(code) for code in codes.tolist()], np.int64)
        self.present = np.zeros(len(self.names) + 1)
        self.present[port] = 1.0
        self._join(snapshot, rows, [[*self.names, REST][number] for number in port.tolist()])
        wide = np.maximum(1, jobs.nodes[rows])
        cores = jobs.cores[rows] / wide
        wants = np.zeros((len(rows), self.resources))
        wants[:, CPU] = cores / self.unit[CPU]
        bytes_ = np.nan_to_num(jobs.memory_bytes_per_core[rows]) * cores
        wants[:, MEMORY] = np.where(bytes_ > 0, bytes_ / self.unit[MEMORY], wants[:, CPU])
        if self.resources > GPU:
            of = np.array([snapshot.gpus.get(row, 0.0) for row in rows.tolist()])
            wants[:, GPU] = of / wide / self.unit[GPU]
        together = np.zeros((len(self.names) + 1, self.resources))
        np.add.at(together, port, wants)
        for number in np.unique(port).tolist():
            name = [*self.names, REST][number]
            asks = np.minimum(together[number], self._most_of_one_node)
            self._asks[name] = np.maximum(self._asks.get(name, asks), asks)
            if self.ports is not None:
                self.ports.requests[number] = self._asks[name]
        if self.ports is None:
            self._rebuild()

    @property
    def weights(self) -> Floats:
        """(L,) Of the utilities of classes, as measured."""
        names = [*self.names, REST]
        return self.gains.weights(names) if self._options.measured else np.ones(len(names))

    def charge(self) -> None:
        """Overheads as measured."""
        assert self.ports is not None
        if self._options.measured:
            self.ports.beta[CPU] = max(self._options.beta, self.gains.overhead)

    def table(self, y: Floats, resource: int) -> Floats:
        """y of a resource as (L, N); 0 where a class may not be."""
        assert self.ports is not None
        found: Floats = self.ports.dense(y)[:, :, resource]
        return found

    def detail(self, y: Floats, port: int, node: int) -> dict[str, Json]:
        """The class, its y on a node and the gradient there, for `asactl explain`."""
        ports, machine = self.ports, self._machine
        assert ports is not None and machine is not None
        edges = np.flatnonzero((ports.instance == node) & (ports.port == port))
        here = y[edges[0]] if len(edges) else np.zeros(self.resources)
        known = not math.isnan(machine.memory_bytes[node])
        found: dict[str, Json] = {
            "class": ports.names[port] if port < len(self.names) else "the rest",
            "node": ports.instances[node],
            "classes_present": int(self.present.sum()),
            "y_cores": float(here[CPU] * self.unit[CPU]),
            "y_memory_bytes": float(here[MEMORY] * self.unit[MEMORY]) if known else None,
        }
        if self.resources > GPU:
            found["y_gpus"] = float(here[GPU] * self.unit[GPU])
        if self.oga is not None:
            worst = int(np.argmax(ports.beta * oga.totals(ports, y)[port]))
            weight = float(self.weights[port])
            gradient = [
                weight
                * (
                    float(slope(int(ports.form[node, k]), float(ports.alpha[node, k]), float(here[k])))
                    - (float(ports.beta[k]) if k == worst else 0.0)
                )
                for k in range(self.resources)
            ]
            found |= {"gradient": list(gradient), "slot": self.oga.slot, "eta": self.oga.eta}
            found |= {"weight": weight, "overhead": float(ports.beta[CPU])}
        return found


def oga_of(ports: Ports, options: OgaOptions) -> oga.Oga:
    """`oga` over these ports. Raises UsageError for a mode or option that cannot be."""
    o = options
    learning = oga.Options(o.eta or None, o.decay, o.eta_least, o.reach)
    return oga.Oga(ports, cast(oga.Mode, o.mode), learning)


def _alike(machine: Machine, other: Machine) -> bool:
    return machine.node_names == other.node_names and np.array_equal(machine.cores, other.cores)


def _is_amount(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
