"""The mechanism over the rounds of a cluster: made for its size, shown who comes and what others hold, restored."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import cast

import numpy as np

from asad.admit.sow import Mechanism
from asad.admit.sow.announcements import Announcement
from asad.admit.sow.others import Others
from asad.admit.sow.promises import Promise, mechanism_row
from asad.admit.sow.stated_resources import capacities, cores_of, memory_share, priced
from asad.admit.sow.statement import NEVER, Bounds
from asad.admit.sow.statement_options import Options
from asad.admit.sow.statement_register import Register
from asad.errors import AsadError, UsageError
from asad.model import Ints, Json, Snapshot

MOST_UNITS = 30_000
"""A mechanism counts no further; a larger cluster is counted in units of several cores."""


class Planning:
    """The mechanism of a machine in the present round. A plan that was made is never made again."""

    def __init__(
        self,
        make: Callable[[Bounds], Mechanism],
        options: Options,
        register: Register,
        applications: Sequence[str],
    ) -> None:
        self._make, self.options, self.register = make, options, register
        self.others = Others(options.round_s, applications)
        self.mechanism: Mechanism | None = None
        self.unit = 1
        self.cores = 0
        self.there: dict[str, int] = {}
        """Gres and licences of the cluster, as `capacities` counts them; those that are stated are priced."""
        self.memory_share = math.inf
        """Bytes for each core."""
        self._held: dict[str, Ints] = {}
        """By name, what others hold from the round on in which the mechanism was shown it; of cores by no name."""
        self.round = -1
        self.occupied: int | None = None
        """The round in which the mechanism was shown last what others hold."""
        self.other_rounds = False
        """What is promised counts in rounds of another length."""
        self.trouble = "no node was seen yet"
        """Why there is no mechanism."""
        self.kept: Mapping[str, Mapping[str, Json]] | None = None
        self.ready = False
        """It is known what was promised before."""

    def at(self, now_s: float) -> Mechanism:
        """The mechanism in the round of `now_s`. Raises AsadError if the cluster was not seen yet."""
        if self.mechanism is None or not self.ready:
            why = self.trouble if self.ready else "the store has not answered yet what was promised before"
            raise AsadError(f"statements cannot be taken now: {why}; try again in a moment")
        self.register.now_s = max(self.register.now_s, now_s)
        self.advance(self.mechanism, now_s)
        return self.mechanism

    def advance(self, mechanism: Mechanism, now_s: float) -> None:
        """The round of that time begins, if it has not."""
        present = math.floor(now_s / self.options.round_s)
        if present > self.round:
            self.round = present
            mechanism.step(present)

    def begin(self, snapshot: Snapshot) -> Mechanism | None:
        """The mechanism of this machine in the present round; on another one it is made anew, and promises stand."""
        self.register.now_s = snapshot.time_s
        if self.other_rounds:
            self.other_rounds, self.kept = False, None  # what the mechanism knew counts in them too
            for promise in list(self.register.open.values()):
                promise.start = NEVER
                why = "the site has changed the length of its rounds: announce it anew"
                self.register.release(promise, "cancelled", why)
        cores = snapshot.machine.total_cores
        self.there, self.memory_share = capacities(snapshot.tres), memory_share(snapshot.machine)
        if cores == self.cores and self._as_counted():
            if self.mechanism is not None:
                self.advance(self.mechanism, snapshot.time_s)
            return self.mechanism
        options = self.options
        self.cores, self.unit = cores, max(1, math.ceil(cores / MOST_UNITS))
        capacity = max(1, cores // self.unit)
        most = math.ceil(options.most_cores / self.unit) if options.most_cores else max(1, capacity // 4)
        try:
            bounds = Bounds(
                capacity=capacity,
                max_demand=min(most, capacity),
                max_duration=options.most_rounds,
                max_value=options.most_value,
                span=options.span,
                least_value=options.least_value,
            )
            mechanism = self._make(bounds)
        except UsageError as error:
            self.mechanism, self.trouble = None, str(error)
            return None
        kept = self.to_json().get("mechanism", {})
        self.mechanism, self.register.known, self.round, self.occupied = mechanism, set(), -1, None
        self._know_again(mechanism, kept)
        self.advance(mechanism, snapshot.time_s)
        self.register.changed = True
        return mechanism

    def _know_again(self, mechanism: Mechanism, kept: Mapping[str, Json]) -> None:
        """What was known in an earlier life; if the machine is another one, plans and prices stand without it."""
        state, known, present = kept.get("state"), kept.get("known"), kept.get("round")
        self.kept = None
        for promise in self.register.open.values():
            promise.entered = False
        same = kept.get("bounds") == asdict(mechanism.bounds)
        if not (same and isinstance(state, dict) and isinstance(known, list) and isinstance(present, int)):
            return
        limits = self._limits_again(mechanism, state := dict(state))
        rows: dict[int, dict[str, Json]] = {}
        for number in known:
            held = self.register.open.get(cast(int, number))
            if held is not None and all(units <= limits.get(name, 0) for name, units in held.tres.items()):
                with contextlib.suppress(UsageError):  # it is beyond what this machine holds
                    rows[held.number] = mechanism_row(
                        held, self.options.round_s, self.unit, mechanism.bounds, present
                    )
        try:
            mechanism.restore({**state, "jobs": [rows[number] for number in sorted(rows)]})
        except UsageError:
            return  # of another version
        self.register.known, self.round = set(rows), present
        for number in rows:
            self.register.open[number].entered = rows[number]["row"] != -1

    def _limits_again(self, mechanism: Mechanism, state: dict[str, Json]) -> dict[str, int]:
        """Most units of one job, by name of what is priced beside cores; prices of what is otherwise now begin anew."""
        kept = state.get("tres")
        stay: dict[str, Json] = {
            name: one
            for name, one in (kept if isinstance(kept, dict) else {}).items()
            if isinstance(one, dict) and one.get("capacity") == self.there.get(name) != 0
            if one.get("max_demand") == self._most(name)
        }
        if kept is not None:
            state["tres"] = stay
        named = {name for promise in self.register.open.values() for name in promise.tres}
        for name in sorted(named - stay.keys()):
            if self.there.get(name):
                mechanism.count(name, self.there[name], self._most(name))
        return {name: self._most(name) for name in (*stay, *mechanism.counted)}

    def _most(self, name: str) -> int:
        """Units of a gres or licence that one job may have."""
        return max(1, math.floor(self.options.most_tres * self.there.get(name, 0)))

    def _as_counted(self) -> bool:
        """Is there as much of every resource as is priced?"""
        counted = {} if self.mechanism is None else self.mechanism.counted
        return all(self.there.get(name) == limits.capacity for name, limits in counted.items())

    def needs(self, mechanism: Mechanism, one: Announcement) -> tuple[int, dict[str, int]]:
        """Cores, and units of gres and licences, that a statement needs; what it is the first to need is priced now.

        Raises UsageError for what the cluster has not, or no job may have so much of.
        """
        needs = priced(one.tres, self.there)
        for name, units in needs.items():
            if name not in mechanism.counted:
                mechanism.count(name, self.there[name], self._most(name))
                self.register.changed = True
                if self.occupied is not None:
                    self._show(mechanism)
            if units > (most := mechanism.counted[name].max_demand):
                raise UsageError(
                    f"{name}: {units} are more than the {most} that one job may have here; ask for less"
                )
        return cores_of(one.cores, one.memory_bytes, self.memory_share), needs

    def forget(self, promise: Promise, completed: int | None = None) -> None:
        """The mechanism forgets it, as one that has completed before that round, or holds nothing any more."""
        if self.mechanism is not None and promise.number in self.register.known:
            self.register.known.discard(promise.number)
            if completed is None:
                self.mechanism.withdraw(promise.number, self.round)
            else:
                self.mechanism.complete(promise.number, completed)

    def enter(self, mechanism: Mechanism) -> None:
        """Show the mechanism who has come, in the round in which each could start."""
        for number in sorted(self.register.known):
            promise = self.register.open[number]
            if promise.entered or not promise.planned or promise.arrival > self.round:
                continue
            promise.entered = True
            if mechanism.arrive(number, self.round) != promise.start:
                # rounds were missed: its own plan stands, and to the mechanism it is one of the others
                self.forget(promise)

    def occupy(self, snapshot: Snapshot, mechanism: Mechanism) -> None:
        """Show it what others hold, from this round on; and what a plan held that runs on for longer than stated."""
        bounds, present = mechanism.bounds, self.round
        planned = {
            promise.job for promise in self._held_by_plans() if present < promise.start + promise.longest
        }
        rounds = bounds.span + bounds.max_duration
        held = self.others.held(snapshot, planned, present, rounds, self.unit, bounds.capacity)
        self._held = {"": held, **self.others.held_tres(snapshot, planned, present, rounds, self.there)}
        self.occupied = present
        self._show(mechanism)

    def _show(self, mechanism: Mechanism) -> None:
        """What others hold, from the present round on; of what is there."""
        gone, nothing = self.round - cast(int, self.occupied), np.zeros_like(self._held[""])
        rows = [self._held.get(name, nothing)[gone:] for name in ("", *mechanism.counted)]
        mechanism.occupy(self.round, np.stack(rows) if mechanism.counted else rows[0])

    def supply(self, snapshot: Snapshot, mechanism: Mechanism) -> int | list[int]:
        """Units that are left for plans in this round; who runs before its start is in no plan of it.

        What somebody holds who is being evicted is left to them: it is for their sake that he has to go.
        """
        planned = {promise.job for promise in self._held_by_plans() if promise.start <= self.round}
        planned |= {promise.job for promise in self.register.open.values() if promise.state == "evicting"}
        cores = self.others.supply(snapshot, planned, self.round, self.unit, mechanism.bounds.capacity)
        if not mechanism.counted:
            return cores
        counted = {name: limits.capacity for name, limits in mechanism.counted.items()}
        return [cores, *self.others.supply_tres(snapshot, planned, self.round, counted)]

    def _held_by_plans(self) -> list[Promise]:
        """Those that run and that the mechanism knows."""
        return [
            promise
            for number, promise in self.register.open.items()
            if promise.state in ("running", "evicting") and number in self.register.known
        ]

    def to_json(self) -> dict[str, dict[str, Json]]:
        """What a successor has to know, besides the statements."""
        saved: dict[str, dict[str, Json]] = {
            "*": {"next": self.register.next, "round_s": self.options.round_s}
        }
        if self.mechanism is not None:
            saved["mechanism"] = {
                "bounds": asdict(self.mechanism.bounds),
                "round": self.round,
                "known": list[Json](sorted(self.register.known)),
                # its jobs are our rows: they are not kept twice
                "state": {key: value for key, value in self.mechanism.state().items() if key != "jobs"},
            }
        elif self.kept is not None and "mechanism" in self.kept:
            saved["mechanism"] = dict(self.kept["mechanism"])
        return saved

    def restore(self, memory: Mapping[str, Mapping[str, Json]]) -> None:
        """Go on from what `to_json` described, as soon as the machine is seen."""
        self.other_rounds = memory.get("*", {}).get("round_s") not in (None, self.options.round_s)
        self.kept = memory
        self.mechanism, self.cores, self.ready = None, 0, True
