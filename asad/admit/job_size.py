"""What a job asks for, in the slots and servers of a cluster: work, width and worth, as schemes know them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asad.admit.admission_options import Options
from asad.admit.commitments import Commitment
from asad.admit.elastic import ElasticJob, Utility
from asad.admit.hints import Hint, Rule, read_hint
from asad.admit.run_times import RunTimes
from asad.admit.seen import Seen, own_throttle_of
from asad.admit.slot_servers import World, fits, wanted
from asad.admit.utility import Maker, parse_utility, target_slots
from asad.bounded import shown
from asad.errors import UsageError
from asad.model import Floats, Snapshot


@dataclass(frozen=True, slots=True)
class OfSubmission:
    """A utility that counts from the arrival in a slot instead of the submission, with its worth bounded and cut."""

    utility: Utility
    before: float
    """Slots from the submission to the beginning of the slot of arrival; below 0 if it was submitted within it."""
    most: float
    slots: float
    """What completes later is worth nothing: the job's deadline, in slots from the arrival; inf for none."""
    part: float = 1.0
    """Of the worth that counts, by its user's budget."""

    def __call__(self, slots: float) -> float:
        if slots > self.slots:
            return 0.0
        return self.part * min(self.most, self.utility(slots + self.before))

    @property
    def target(self) -> float:
        """Slots from the arrival by which it is to be done."""
        return max(1.0, min(self.slots, float(getattr(self.utility, "target", math.nan)) - self.before))


class Companion(NamedTuple):
    """The array whose tasks are a job's parameter servers."""

    key: str
    there: Seen
    own_throttle: int
    """Most tasks at one time by its user's own wish; 0 for no bound."""


def hint_of(
    snapshot: Snapshot, there: Seen, text: str, application: str, rules: Sequence[Rule]
) -> Hint | str | None:
    """What a job's user, else a rule, gives; a text where it is wrong; None if there is no utility."""
    if text:
        try:
            hint = read_hint(text)
        except ValueError as error:
            return str(error)
        if hint.utility:
            return hint
    else:
        hint = Hint()
    partitions, qos = snapshot.classes.get(there.row, ("", ""))
    for rule in rules:
        if rule.fits(application, partitions, qos, array=there.array >= 0):
            return hint._replace(utility=rule.utility, by_rule=True)
    return None


class Measures:
    """Jobs measured in the slots and servers of one world."""

    def __init__(
        self, world: World, options: Options, own_utilities: Mapping[str, Maker], run_times: RunTimes
    ) -> None:
        """`own_utilities` are the site's kinds, by name."""
        self.world, self._options = world, options
        self._own, self._run_times = own_utilities, run_times

    def measure(
        self,
        snapshot: Snapshot,
        there: Seen,
        entry: Commitment,
        hint: Hint,
        before: Commitment | None,
        companion: Companion | None,
    ) -> str:
        """Fill in work, width and worth of a job; why it cannot be put to a scheme, or the empty string.

        `before` is what was known when it was asked for the last time, `companion` the one that its hint names.
        """
        world = self.world
        try:
            parse_utility(entry.utility, self._options.slot_s, self._own)
        except UsageError as error:
            return str(error)
        if why := snapshot.tres.unknown.get(there.row, ""):
            return f"what it would take is not known, so that it has no price: {why}"
        entry.task_s = self._run_times.task_s(snapshot, there.row)
        if math.isnan(entry.task_s):
            return "it has no time limit, and none of its kind has ended: how long it runs is not known"
        demand = world.demand(entry.cores, entry.memory_bytes_per_core, entry.tres)
        most = fits(world.servers, world.servers.workers, demand)
        if most < 1:
            return (
                "it takes more than any one node holds"
                if not world.whole
                else "it takes more than the whole cluster holds"
            )
        if entry.array:
            entry.own_throttle = own_throttle_of(snapshot, there)
            if before is not None and entry.own_throttle in (before.throttled, before.wished_tasks):
                entry.own_throttle, entry.throttled = before.own_throttle, before.throttled
        if hint.parameter_servers:
            served = self._measure_servers(snapshot, entry, hint, companion)
            if isinstance(served, str):
                return served
            most = min(most, served)
        tasks = there.tasks if entry.array else 1
        bounds = [tasks, most, hint.workers or tasks, entry.own_throttle or tasks]
        entry.most_workers = max(1, min(bounds))
        entry.work = self.work_left(snapshot, entry, there)
        return ""

    def _measure_servers(
        self, snapshot: Snapshot, entry: Commitment, hint: Hint, companion: Companion | None
    ) -> int | str:
        """What the companion's tasks take, and how many workers they can serve at one time; a text where none."""
        world, jobs, name = self.world, snapshot.jobs, shown(hint.parameter_servers)
        capacity = world.servers.parameter_servers
        if not len(capacity):
            return "it wants parameter servers (ps=…); no node here is named for them, and no share of nodes set aside"
        if not entry.array:
            return "parameter servers (ps=…) are for arrays, and it is none"
        if companion is None:
            entry.lacks_servers = True
            return (
                f"its parameter servers, the array {name} of the same user, were not there within "
                f"{self._options.ps_patience_s:.0f} s"
            )
        there = companion.there
        row = there.any_row
        if why := snapshot.tres.unknown.get(row, ""):
            return f"what its parameter servers, the array {name}, would take is not known: {why}"
        entry.server_tres = wanted(snapshot.tres, row)
        if licences := [one for one in entry.server_tres if one in world.servers.shared]:
            return (
                f"its parameter servers, the array {name}, want {licences[0]}, and licences are for workers"
            )
        entry.companion, entry.workers_per_server = companion.key, hint.workers_per_server
        entry.server_cores = int(jobs.cores[row])
        entry.server_memory_bytes_per_core = float(np.nan_to_num(jobs.memory_bytes_per_core[row]))
        room = fits(world.servers, capacity, self._server_demand(entry))
        servers = min(room, there.tasks, companion.own_throttle or there.tasks)
        served = math.floor(servers * hint.workers_per_server + 1e-9)
        return served if served else "not one of its parameter servers (ps=…) fits where they may stand"

    def _server_demand(self, entry: Commitment) -> Floats:
        return self.world.demand(entry.server_cores, entry.server_memory_bytes_per_core, entry.server_tres)

    def work_left(self, snapshot: Snapshot, entry: Commitment, there: Seen) -> int:
        """Worker-slots of the waiting and of the running tasks, as long as tasks are expected to run now."""
        task_s = self._run_times.task_s(snapshot, there.any_row)
        if math.isnan(task_s):
            task_s = entry.task_s
        left_s = task_s * (there.waiting if entry.array else 1 if there.row >= 0 else 0)
        ran_s = snapshot.time_s - snapshot.jobs.start_s[there.running]
        left_s += float(np.maximum(task_s - ran_s, 0.0).sum())
        return max(1, math.ceil(left_s / self._options.slot_s - 1e-6))

    def elastic(self, entry: Commitment) -> ElasticJob:
        """The job as schemes know it."""
        world, slot_s = self.world, self._options.slot_s
        served = entry.workers_per_server if entry.companion else 0.0
        late = (entry.deadline_s / slot_s - entry.arrival) if math.isfinite(entry.deadline_s) else math.inf
        most = math.inf if entry.by_rule else self._options.most_worth
        utility = OfSubmission(
            parse_utility(entry.utility, slot_s, self._own),
            entry.arrival - entry.submit_s / slot_s,
            most if math.isnan(entry.budget) else entry.claim,
            late,
            entry.part,
        )
        return ElasticJob(
            name=entry.key,
            arrival=entry.arrival,
            worker=world.demand(entry.cores, entry.memory_bytes_per_core, entry.tres),
            server=self._server_demand(entry),
            worker_bandwidth=1.0 if served else 0.0,
            server_bandwidth=served,
            most_workers=entry.most_workers,
            work=entry.work,
            utility=utility,
            target_slots=target_slots(utility, self._options.horizon),
            fixed_workers=entry.most_workers,
            rigid=not entry.array,
        )
