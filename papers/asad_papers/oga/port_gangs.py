"""Gangs (section 3.5): a port's job is several components, and runs with at least m_l of them or not at all.

The paper says that the set of allocations is then no longer convex and leaves the algorithm out. Its reward depends on
a port's sum over components only, and all components of a port are connected to the same instances. So what is
learned is that sum: OGA over ports that ask for Σ_q a^{q,k}, for which the regret bound (41) holds as it stands. What
is played is that sum dealt out to components, all or nothing; what that costs is measured against the best fixed
allocation of the relaxation, which no fixed gang schedule exceeds.

A component is scheduled if it has at least `enough` of its request of every resource, summed over its instances (or
of all there is of it on them, if that is less); the paper's is "something of anything", `enough` = 0. Components that
need least come first. A gang that falls short of m_l gets nothing, the one furthest from it first, and the others share
anew in what it leaves; in modes that see arrivals, those present only. Options: those of `oga`. Cost of a slot: that of
`oga`, and O(E · K · Q) for each gang dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from asad.errors import UsageError
from asad.model import Floats, Ints
from asad.place.gang_rounds import whole_gangs
from asad.place.oga import Mode, Oga, Options
from asad.place.ports import PortPolicy, Ports


@dataclass(frozen=True, slots=True, eq=False)
class Gangs:
    """Ports whose requests are the sums over their components. Made by `Gangs.of`."""

    ports: Ports
    components: tuple[Floats, ...]
    """Of each port (Q_l, K) a: the most that a component may have of a resource on one instance."""
    least: Ints
    """(L,) m_l, at most Q_l."""
    enough: float
    """Share of its request, in [0, 1], with which a component runs."""
    own: tuple[Ints, ...]
    """Of each port its edges."""
    needs: tuple[Floats, ...]
    """Of each port (Q_l, K): what a component needs to run, over all its instances."""

    @classmethod
    def of(cls, ports: Ports, components: Sequence[Floats], least: Ints, enough: float = 1.0) -> Gangs:
        """`ports.requests` are replaced by the sums of `components`. Raises UsageError that says what is wrong."""
        if len(components) != len(ports.requests) or len(least) != len(ports.requests):
            raise UsageError(
                f"gangs: {len(components)} ports with components, {len(least)} with a least number; "
                f"give both for {len(ports.requests)}"
            )
        if not 0 <= enough <= 1:
            raise UsageError(f"gangs: enough {enough}; give a share, 0 to 1")
        tables = tuple(np.ascontiguousarray(one, np.float64) for one in components)
        for name, table, many in zip(ports.names, tables, least, strict=True):
            if table.ndim != 2 or table.shape[1] != ports.requests.shape[1] or not (table >= 0).all():
                raise UsageError(
                    f"gangs: components of port {name!r}: {table.shape}; give numbers, 0 or more, "
                    f"(components, {ports.requests.shape[1]})"
                )
            if not 1 <= many <= len(table):
                raise UsageError(
                    f"gangs: port {name!r} needs {many} of {len(table)} components; give 1 to all"
                )
        adjacent = np.zeros((len(ports.requests), len(ports.capacities)), np.bool_)
        adjacent[ports.port, ports.instance] = True
        whole = Ports.of(
            np.array([table.sum(axis=0) for table in tables]),
            ports.capacities,
            adjacent,
            alpha=ports.alpha,
            form=ports.form,
            beta=ports.beta,
            names=ports.names,
            instances=ports.instances,
        )
        own = tuple(np.flatnonzero(whole.port == p).astype(np.int32) for p in range(len(tables)))
        there = [whole.capacities[whole.instance[edges]].sum(axis=0) for edges in own]
        needs = tuple(enough * np.minimum(table, most) for table, most in zip(tables, there, strict=True))
        return cls(whole, tables, np.asarray(least, np.int32), enough, own, needs)

    def deal(self, port: int, held: Floats) -> Floats:
        """What each component of a port has (Q_l, edges of l, K) of what the port has (edges of l, K).

        Components that cannot run have nothing. Those that run share what is left in proportion to their requests.
        """
        table, needs = self.components[port], self.needs[port]
        dealt = np.zeros((len(table), *held.shape))
        left = np.array(held)
        total = held.sum(axis=0)
        size = np.divide(needs, total, out=np.where(needs > 0, np.inf, 0.0), where=total > 0).max(axis=1)
        running = []
        for q in np.argsort(size, kind="stable"):
            need = needs[q]
            sums = left.sum(axis=0)
            if not (sums >= need * (1 - 1e-12)).all() or not (sums[table[q] > 0] > 0).any():
                continue
            # from the first of its instances on, as much as it needs
            before = np.cumsum(left, axis=0) - left
            taken = np.clip(need - before, 0.0, np.minimum(left, table[q]))
            dealt[q] = taken
            left = left - taken
            running.append(q)
        if running:
            room = table[running][:, None, :] - dealt[running]
            whole = room.sum(axis=0)
            part = np.minimum(1.0, np.divide(left, whole, out=np.zeros_like(left), where=whole > 0))
            dealt[running] += part * room
        return dealt

    def scheduled(self, dealt: Floats) -> int:
        """How many components of a port have anything."""
        return int((dealt.sum(axis=(1, 2)) > 0).sum())

    def all_or_nothing(self, y: Floats, x: Floats) -> tuple[Floats, Floats]:
        """y (E, K) without the gangs in x that fall short and what components leave; (L,) components short."""
        kept, short = np.zeros_like(y), np.zeros(len(self.components))
        for port, edges in enumerate(self.own):
            if x[port] <= 0:
                continue
            dealt = self.deal(port, y[edges])
            short[port] = max(0, int(self.least[port]) - self.scheduled(dealt)) / self.least[port]
            if not short[port]:
                kept[edges] = dealt.sum(axis=0)
        return kept, short


class GangOga(PortPolicy):
    """OGA over gangs."""

    def __init__(self, gangs: Gangs, mode: Mode = "reclaim", options: Options | None = None) -> None:
        self.gangs = gangs
        self.oga = Oga(gangs.ports, mode, options)
        self.name = f"{self.oga.name}-gangs"

    def allot(self, x: Floats) -> Floats:
        """y (E, K), the sums over components that run; `Gangs.deal` says which has what."""
        y = self.oga.allot(x)
        # the strict mode knows of no arrivals: it deals to all gangs
        present = np.ones(len(x)) if self.oga.mode == "strict" else np.array(x, np.float64)
        return whole_gangs(y, present, self.gangs.all_or_nothing, self.oga.among)
