"""Deferral on a cluster: drives any policy of this room over snapshots.

Deferrable jobs (`asad.defer.windows`) fill what on-demand jobs leave. In every cycle the policy scores those that wait;
by falling score they start as far as they fit (`asad.defer.packing`), now and until their time limits, beside what
runs, what on-demand jobs are expected to take, and what the history of the cluster foretells. Whatever the scores, what
starts by them fits on idle cores.

- A job that does not start is held back by its begin time, for a lease of a few cycles that is renewed: when asad is
  gone it starts by itself. No lease reaches beyond its latest start less a margin.
- When its latest start comes, or by all that runs and waits it is expected to start too late (with that margin), it is
  let go whatever is free: then it waits in the cluster's own queue as any other job. If it has not started by its
  latest start it is reported as missed, by name.
- A job that was let go and has not started within `patience_s` is held back again, and tried again later.
- A policy that errs is replaced by `edf` for that cycle; the first time it is said in one line.
- Jobs that admission steers, that opted out, that wait for another job or have an offer to be a guest are left alone,
  and so is a job whose deferral somebody has taken back by hand.

An array is one job: all of its tasks that its throttle lets run at one time start together, or none.

State that outlives the process: the capacity that on-demand jobs left (`asad.defer.history`), and who runs that was
deferrable. What is held back, the cluster itself knows (`Snapshot.own_begins`). Cost of a cycle: O(cores + jobs) for
what is left, and for n deferrable jobs O(n·H) over H cells and what the policy takes.
Source of the policies: Dong et al. (OSDEC); the mapping to a batch system is asad's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.defer.edf import Edf
from asad.defer.history import History
from asad.defer.jobs import MOST_STEPS, Scorer, Waiting, nothing_past
from asad.defer.packing import Packing, scores_of
from asad.defer.room import CELL_S, Places, cells, first_fits, left_over, places, usable_nodes
from asad.defer.windows import Rule, Window, window_of
from asad.model import BARS, Cause, Decision, Defer, Finished, Floats, Json, Outcome, Snapshot, Start

OPTED_OUT = frozenset(number for number, bar in enumerate(BARS) if bar.endswith("opted out"))
LEFT_ALONE = OPTED_OUT | {
    next(number for number, bar in enumerate(BARS) if "heterogeneous" in bar),
    BARS.index("it depends on a job that has not ended"),
}
REFUSED_S = 120.0
"""What the cluster refused is not wished again sooner."""
EXACT_S = 1.5
"""Times that differ by less are one: clusters keep whole seconds."""
LEASE_CYCLES = 5
UPDATES = 50
"""So many leases are renewed in a cycle: with more jobs they are longer."""
MOST_TOLD = 1000
"""Jobs that a status tells, and missed ones that are remembered."""

BY_HAND = "somebody has taken its deferral back by hand"

State = Literal["future", "held", "let go", "urgent", "by hand"]
Steered = Callable[[Snapshot, int], bool]


class Options(NamedTuple):
    """Options of every policy on a cluster, by name as in asad.toml."""

    step_s: float = 1800.0
    """Length of the steps in which policies reckon; a whole number of them is a day."""
    packing: str = "skip-fit"
    """`prefix` stops at the first job that does not fit, `skip-fit` goes on."""
    reserve: float = 0.0
    """Part of the usable cores that deferrable jobs leave free besides; 0 to below 1."""
    quantile: float = 0.5
    """Of what the history foretells, the part of cases in which less is left; 0 to 1."""
    days: int = 14
    """Days of history that are kept; 0 foretells nothing."""
    horizon_s: float = 86_400.0
    """So far ahead it is looked; a longer job is looked at so far."""
    lease_s: float = 0.0
    """How long a job is held back without a further look; 0: five cycles, at least 10 s."""
    margin_s: float = 60.0
    """So long before its latest start a job is let go."""
    lead: float = 0.5
    """A job is let go so early that it can wait in the cluster's queue for this part of what is expected now. What is
    expected rests on time limits, which are mostly too long; 0: only the margin counts."""
    patience_s: float = 120.0
    """A job that was let go and has not started by then is held back again."""
    deadline_alone: bool = False
    """A job with a deadline and no begin time is deferrable too."""
    by_node: bool = True
    """A job starts only if there is room for it node by node, not only in all."""


@dataclass(slots=True)
class Known:
    """One deferrable job that waits, an array as one."""

    key: str
    row: int
    window: Window
    cores: int
    """That it takes when it starts."""
    nodes: int
    limit_s: float
    needs_s: float
    """From its start to its end at the latest."""
    submit_s: float
    state: State = "future"
    until_s: float = math.nan
    """Until when we hold it back, as the cluster confirmed."""
    wished_s: float = math.nan
    since_s: float = math.nan
    """When it was let go."""
    tries: int = 0
    """How often it was let go and did not start."""
    again_s: float = -math.inf
    """Before this it is not tried again: it was let go, and that came to nothing."""
    refused_s: float = -math.inf
    """Before this nothing is wished again that the cluster refused."""
    refused: str = ""
    """Why it did."""
    reason: str = ""
    score: float = math.nan
    rank: int = 0
    """Among those that might start, by score; from 1."""
    of: int = 0
    free: float = math.nan
    """Cores that were free for it."""
    begin_s: float = math.nan
    hint: str = ""
    facts: tuple[float, bytes, int] = (math.nan, b"", 0)
    """What was seen of it last: its begin time, its hint; time limit, deadline and bar."""
    told: bool = False
    """It has been said that it is held back."""
    missed: bool = False
    seen: bool = True


@dataclass(slots=True)
class Group:
    """The nodes on which some jobs may run, and what is left of them."""

    nodes: NDArray[np.bool_]
    left: Floats
    """(H,) cores, cell by cell."""
    foretold: Floats | None = None
    """(H,) of all nodes, the same by what the history foretells."""

    def fits(self, cores: int, cells_: int) -> bool:
        """Are so many cores left for so long?"""
        if self.foretold is not None and self.foretold[:cells_].min() < cores:
            return False
        return bool(self.left[:cells_].min() >= cores)

    def take(self, cores: int, cells_: int) -> None:
        self.left[:cells_] -= cores
        if self.foretold is not None:
            self.foretold[:cells_] -= cores


@dataclass(slots=True)
class World:
    """What a snapshot leaves to deferrable jobs."""

    usable: NDArray[np.bool_]
    groups: dict[str, Group]
    """By partition text of the jobs; the empty text is all nodes."""
    places: Places | None
    capacity: float
    """C_t: what on-demand jobs leave of all nodes now."""
    held: float
    """Of that deferrable jobs hold so much."""
    running: list[int] = field(default_factory=list)
    """Rows of the deferrable jobs that run."""


class Deferral:
    """A policy of deferral on a cluster."""

    def __init__(
        self,
        name: str,
        scorer: Scorer,
        applications: Sequence[str],
        options: Options | None = None,
        rules: Sequence[Rule] = (),
        *,
        poll_s: float = 30.0,
        most_lease_s: float = math.inf,
    ) -> None:
        """`applications` names the codes of `Jobs.application` and may grow; `poll_s` is the length of a cycle."""
        self.name, self.options = name, options or Options()
        self.scorer, self._applications, self._rules = scorer, applications, tuple(rules)
        self._poll_s, self._most_lease_s = poll_s, most_lease_s
        self._packing: Packing = "prefix" if self.options.packing == "prefix" else "skip-fit"
        self._edf = Edf()
        self._history = History(self.options.step_s, max(1, self.options.days))
        self._jobs: dict[str, Known] = {}
        self._ours: set[str] = set()
        """Deferrable jobs that run, by name."""
        self._by_hand: set[str] = set()
        """Jobs whose deferral somebody had taken back before this start, and that were not seen since."""
        self._now_s = -math.inf
        self._snapshot: Snapshot | None = None
        self._world: World | None = None
        self._steered: Steered = _nobody
        self._erred = ""
        self._stray: list[int] = []
        """Rows that are held back by us, and are not deferrable (any more)."""
        self._started = 0.0
        """Cores that were let go since the last look."""
        self._counts = {"started": 0, "missed": 0, "let go": 0}
        self._missed: dict[str, float] = {}
        self.said: list[str] = []
        """Sentences about what no decision tells; whoever reads them empties the list."""
        self.changed = False
        """Who runs has changed since `state` was told."""

    # ------------------------------------------------------------------------------------------------- the cycle

    def learn(self, snapshot: Snapshot, finished: Finished, steered: Steered | None = None) -> None:
        """Who waits and who has gone, and what on-demand jobs leave. `steered`: who is admission's."""
        self._now_s, self._snapshot = snapshot.time_s, snapshot
        self._steered = steered or _nobody
        ran = {str(snapshot.jobs.job_id[row]) for row in finished.row.tolist()}
        self._look(snapshot)
        self._follow(snapshot, ran)
        self._world = world = self._left(snapshot)
        waiting = [job for job in self._jobs.values() if job.seen and job.state != "by hand"]
        steps = [self._steps(job.needs_s) for job in waiting]
        present = (
            world.capacity,
            world.held,
            self._started,
            len(waiting),
            np.mean([job.cores for job in waiting]) if waiting else 0.0,
            np.mean(steps) if steps else 0.0,
        )
        self._started = 0.0
        self._history.see(snapshot.time_s, [float(number) for number in present])

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """Who starts now, and whose lease is renewed."""
        world = self._world
        if world is None or self._snapshot is not snapshot:
            return []
        now_s = snapshot.time_s
        decisions: list[Decision] = [
            Start(self._cause("nothing defers it any more", {"job": str(snapshot.jobs.job_id[row])}), row)
            for row in self._stray
        ]
        waiting = [job for job in self._jobs.values() if job.seen and job.state != "by hand"]
        self._reserve(world, waiting, now_s)
        might = sorted(
            (job for job in waiting if job.state not in ("let go", "urgent")),
            key=lambda job: (job.submit_s, job.row),
        )
        expected_s = self._expected(snapshot, world, might)
        late = [
            now_s >= job.refused_s and self._too_late(job, ahead_s)
            for job, ahead_s in zip(might, expected_s, strict=True)
        ]
        for job, ahead_s, goes in zip(might, expected_s, late, strict=True):
            if goes:
                decisions += self._let_go(job, ahead_s)
        might = [job for job, goes in zip(might, late, strict=True) if not goes]
        startable = [job.window.earliest_s <= now_s for job in might]
        if any(startable):
            decisions += self._choose(snapshot, world, might, np.array(startable))
        lease_s = self._lease_s(len(might))
        renewed = 0
        for job in sorted(might, key=lambda job: math.inf if math.isnan(job.until_s) else job.until_s):
            if job.state in ("future", "held") and (not job.told or renewed < 2 * UPDATES):
                renewed += job.told
                decisions += self._hold(job, lease_s)
        return decisions

    def relax(self, snapshot: Snapshot) -> list[Decision]:
        """Of a paused daemon: nothing is renewed, so leases run out and every job goes to the cluster's own queue."""
        return []

    def heed(self, outcomes: Sequence[Outcome]) -> None:
        """What was done is known from now on; what was refused is wished again some time later."""
        by_row = {job.row: job for job in self._jobs.values()}
        for outcome in outcomes:
            decision = outcome.decision
            if not isinstance(decision, Defer | Start) or decision.cause.policy != self.name:
                continue
            job = by_row.get(decision.job)
            if job is None:
                continue
            if outcome.done:
                if isinstance(decision, Defer):
                    job.until_s, job.state = decision.until_s, "held"
                else:
                    job.until_s = math.nan
            elif outcome.reason != "advise":
                job.refused_s, job.refused = self._now_s + REFUSED_S, outcome.reason
                if isinstance(decision, Defer):
                    job.told = False
                else:
                    job.state, job.again_s = "future", job.refused_s

    def given_back(self) -> None:
        """Every job has its own begin time again: what is missing of ours, nobody took by hand."""
        for job in self._jobs.values():
            job.until_s = job.wished_s = math.nan
            if job.state == "held":
                job.state = "future"

    def wake_s(self) -> float:
        """When a lease ends, a latest start comes, patience ends, or a step does."""
        found = math.inf
        lease_s = self._lease_s(len(self._jobs))
        for job in self._jobs.values():
            if not job.seen:
                continue
            if job.state == "let go":
                found = min(found, job.since_s + self._patience_s(job))
            elif job.state in ("future", "held"):
                found = min(found, job.window.latest_s - self.options.margin_s)
                if job.until_s < job.window.latest_s - self.options.margin_s - EXACT_S:  # never of NaN
                    found = min(found, job.until_s - 0.5 * lease_s)
                if job.window.earliest_s > self._now_s:
                    found = min(found, job.window.earliest_s - self._soon_s)
                else:
                    step_s = self.options.step_s
                    found = min(found, (math.floor(self._now_s / step_s) + 1) * step_s)
        return max(found, self._now_s + 1.0)

    # ------------------------------------------------------------------------------------------------- what is seen

    def _look(self, snapshot: Snapshot) -> None:
        """Bring the deferrable jobs that wait up to date."""
        jobs, arrays = snapshot.jobs, snapshot.arrays
        deferred = np.flatnonzero((jobs.begin_s > snapshot.time_s) & (jobs.submit_s <= snapshot.time_s))
        in_queue = set(snapshot.queue.tolist())
        for job in self._jobs.values():
            job.seen = False
        self._stray = []
        done: set[int] = set()
        rows = np.concatenate((snapshot.queue, deferred))
        same = {job.row for job in self._jobs.values() if job.state in ("future", "held")}
        for row, array, begin_s in zip(
            rows.tolist(), jobs.array[rows].tolist(), jobs.begin_s[rows].tolist(), strict=True
        ):
            if row in same and array < 0 and self._as_before(snapshot, row, begin_s):
                continue
            if array >= 0:
                row = int(arrays.waiting_row[array])
                if row < 0 or ~array in done:
                    continue
                done.add(~array)
            elif row in done:
                continue
            else:
                done.add(row)
            if math.isnan(jobs.start_s[row]):
                self._see(snapshot, row, array, row in in_queue)

    def _as_before(self, snapshot: Snapshot, row: int, begin_s: float) -> bool:
        """A job that waits for the very begin time for which it waited at the last look, and nothing else is new."""
        known, jobs = self._jobs.get(str(snapshot.jobs.job_id[row])), snapshot.jobs
        if known is None or known.row != row or begin_s != known.begin_s:  # never so without one
            return False
        facts = (float(jobs.time_limit_s[row]), jobs.deadline_s[row].tobytes(), int(jobs.guest_bar[row]))
        if facts != known.facts or snapshot.hints.get(row, "") != known.hint:
            return False
        known.seen = True
        return True

    def _see(self, snapshot: Snapshot, row: int, array: int, in_queue: bool) -> None:
        """One job that waits, of an array the row that stands for its tasks."""
        jobs = snapshot.jobs
        key = key_of(snapshot, row)
        known = self._jobs.get(key)
        begin_s = float(jobs.begin_s[row])
        ours = row in snapshot.own_begins or (known is not None and _ours(known, begin_s))
        own_s = float(snapshot.own_begins.get(row, math.nan)) if ours else begin_s
        if ours and known is not None and math.isnan(own_s) and known.window.earliest_s > known.submit_s:
            own_s = known.window.earliest_s
        elif known is not None and not begin_s > snapshot.time_s and known.window.earliest_s > known.submit_s:
            own_s = known.window.earliest_s  # its begin time has come, and is shown no more
        tasks, rounds = self._tasks(snapshot, row, array)
        limit_s = float(jobs.time_limit_s[row])
        found = None
        if tasks > 0 and int(jobs.guest_bar[row]) not in LEFT_ALONE and math.isnan(jobs.offered_s[row]):
            found = window_of(
                submit_s=float(jobs.submit_s[row]),
                begin_s=own_s,
                deadline_s=float(jobs.deadline_s[row]),
                needs_s=rounds * limit_s,
                hint=snapshot.hints.get(row, ""),
                rule=self._rule(snapshot, row),
                deadline_alone=self.options.deadline_alone,
            )
        if found is None or self._steered(snapshot, row):
            if row in snapshot.own_begins and not self._steered(snapshot, row):
                self._stray.append(row)
            self._jobs.pop(key, None)
            return
        if known is None:
            known = Known(key, row, found, 0, 0, 0.0, 0.0, float(jobs.submit_s[row]))
            self._jobs[key] = known
            if key in self._by_hand and not ours:
                known.state, known.reason = "by hand", BY_HAND
        known.seen, known.row, known.window = True, row, found
        known.cores = int(jobs.cores[row]) * tasks
        known.nodes = int(jobs.nodes[row]) if array < 0 else 0  # tasks of one array may share a node
        known.limit_s, known.needs_s = limit_s, rounds * limit_s
        known.begin_s, known.hint = begin_s, snapshot.hints.get(row, "")
        known.facts = limit_s, jobs.deadline_s[row].tobytes(), int(jobs.guest_bar[row])
        if ours:
            known.until_s = begin_s
            if known.state == "future":
                known.state = "held"
        elif known.state == "held":
            self._lost_hold(snapshot, known, in_queue)

    def _lost_hold(self, snapshot: Snapshot, job: Known, in_queue: bool) -> None:
        """Held back it was, and is no more: its lease has run out, or somebody took it back by hand."""
        early = job.until_s > snapshot.time_s + EXACT_S
        job.until_s = job.wished_s = math.nan
        job.state = "future"
        if early and in_queue:
            job.state, job.reason = "by hand", BY_HAND
            self.changed = True

    def _rule(self, snapshot: Snapshot, row: int) -> Rule | None:
        if not self._rules:
            return None
        code = int(snapshot.jobs.application[row])
        name = self._applications[code] if 0 <= code < len(self._applications) else ""
        partitions, qos = snapshot.classes.get(row, ("", ""))
        return next((rule for rule in self._rules if rule.fits(name, partitions, qos)), None)

    @staticmethod
    def _tasks(snapshot: Snapshot, row: int, array: int) -> tuple[int, int]:
        """Tasks that start together, and how many times one after the other that takes."""
        if array < 0:
            return 1, 1
        arrays = snapshot.arrays
        waiting, throttle = int(arrays.waiting[array]), int(arrays.throttle[array])
        at_once = min(waiting, max(1, throttle - int(arrays.running[array]))) if throttle else waiting
        return at_once, math.ceil(waiting / max(1, min(waiting, throttle or waiting)))

    def _follow(self, snapshot: Snapshot, ran: Collection[str]) -> None:
        """Who does not wait any more has started, or is gone; whose latest start has passed has missed it."""
        names = snapshot.jobs.job_id
        rows = (*snapshot.running.tolist(), *snapshot.guests.tolist())
        at_work = {str(names[row]).partition("_")[0] for row in rows}
        started = at_work | {name.partition("_")[0] for name in ran}
        before = set(self._ours)
        for key, job in list(self._jobs.items()):
            late = self._now_s > job.window.latest_s
            if job.seen and key in at_work:
                self._ours.add(key)
            waits = key_of(snapshot, job.row) == key and math.isnan(snapshot.jobs.start_s[job.row])
            if job.seen or (waits and key not in started):
                # unseen, it waits for something other than its turn, or the cluster has not said yet that it is gone
                if late and not job.missed:
                    self._miss(job, "it still waits")
                continue
            del self._jobs[key]
            if key in started:
                self._counts["started"] += 1
                self._ours.add(key)
            elif (late or job.state == "urgent") and not job.missed:
                self._miss(job, "it is gone")  # a cluster may be a little ahead of us in saying so
        self._ours &= at_work
        self.changed = self.changed or self._ours != before

    def _miss(self, job: Known, how: str) -> None:
        job.missed = True
        self._counts["missed"] += 1
        self._missed[job.key] = job.window.latest_s
        while len(self._missed) > MOST_TOLD:
            del self._missed[next(iter(self._missed))]
        self.said.append(f"job {job.key} has missed its latest start: {how}, and has not run")
        del self.said[:-MOST_TOLD]

    # ------------------------------------------------------------------------------------------------ what is left

    def _left(self, snapshot: Snapshot) -> World:
        """The world before anything is promised in this cycle."""
        jobs = snapshot.jobs
        usable = usable_nodes(snapshot)
        horizon = max(1, math.ceil(self.options.horizon_s / CELL_S))
        mine = {job.row for job in self._jobs.values() if job.state not in ("by hand", "urgent")}
        planned = []
        for row in snapshot.queue.tolist():
            array = int(jobs.array[row])
            lead = int(snapshot.arrays.waiting_row[array]) if array >= 0 else row
            if lead not in mine:
                tasks = 1 if array < 0 else self._tasks(snapshot, row, array)[0]
                planned.append((row, int(jobs.cores[row]) * tasks))
        running = [row for row in snapshot.running.tolist() if key_of(snapshot, row) in self._ours]
        groups = {}
        for text in dict.fromkeys(["", *(self._where(snapshot, job) for job in self._jobs.values())]):
            nodes = usable & self._nodes(snapshot, text) if text else usable
            there = planned
            if text and snapshot.partition_nodes:
                there = [
                    (row, cores)
                    for row, cores in planned
                    if (nodes & self._nodes(snapshot, snapshot.classes.get(row, ("", ""))[0])).any()
                ]
            left = left_over(snapshot, nodes, there, horizon)
            left -= math.floor(self.options.reserve * float(snapshot.machine.cores[nodes].sum()))
            groups[text] = Group(nodes, left)
        held = float(jobs.cores[running].sum()) if running else 0.0
        world = World(usable, groups, None, max(0.0, float(groups[""].left[0]) + held), held, running)
        if self.options.by_node:
            world.places = places(snapshot, usable)
        return world

    def _where(self, snapshot: Snapshot, job: Known) -> str:
        """The partitions of a job, empty where the cluster does not tell which nodes are whose."""
        return snapshot.classes.get(job.row, ("", ""))[0] if snapshot.partition_nodes else ""

    @staticmethod
    def _nodes(snapshot: Snapshot, partitions: str) -> NDArray[np.bool_]:
        """(N,) The nodes of some partitions; all where it is not known."""
        count = len(snapshot.machine.cores)
        if not partitions or not snapshot.partition_nodes:
            return np.ones(count, np.bool_)
        found = np.zeros(count, np.bool_)
        for name in partitions.split(","):
            found[snapshot.partition_nodes.get(name, np.arange(count))] = True
        return found

    def _reserve(self, world: World, waiting: Sequence[Known], now_s: float) -> None:
        """What has been let go and has not started takes its cores; who does not take them is held back again."""
        for job in waiting:
            if job.state == "let go" and now_s - job.since_s >= self._patience_s(job):
                job.tries += 1
                job.again_s = now_s + self._patience_s(job)
                job.state = "future"
            if job.state == "let go":
                self._take(world, job)

    def _take(self, world: World, job: Known) -> None:
        """Promise a job its cores, in every group that shares nodes with its own."""
        snapshot = self._snapshot
        assert snapshot is not None
        text = self._where(snapshot, job)
        nodes = world.groups[text].nodes
        for other, group in world.groups.items():
            if not other or other == text or (group.nodes & nodes).any():
                group.take(job.cores, self._cells(job))
        if world.places is not None:
            world.places.take(job.cores, job.nodes, self._memory(snapshot, job), nodes)

    def _foretell(self, world: World, steps: int) -> None:
        """Bound what is left of all nodes by what the history foretells, less what deferrable jobs hold."""
        group, options, snapshot = world.groups[""], self.options, self._snapshot
        assert snapshot is not None
        if options.days < 1 or group.foretold is not None:
            return
        at = math.floor(self._now_s / options.step_s)
        ahead = self._history.forecast(at, world.capacity, steps, options.quantile)
        horizon = len(group.left)
        when = ((self._now_s + CELL_S * np.arange(horizon)) // options.step_s).astype(np.int64) - at
        foretold = ahead[np.minimum(when, steps - 1)]
        for row in world.running:
            left = cells(float(snapshot.jobs.limit_end_s[row]) - self._now_s, horizon)
            foretold[:left] -= snapshot.jobs.cores[row]
        promised = world.capacity - world.held - float(group.left[0])  # in this cycle, so far
        group.foretold = foretold - max(0.0, promised)
        group.foretold[0] = group.left[0]

    # ---------------------------------------------------------------------------------------------------- deciding

    def _choose(
        self, snapshot: Snapshot, world: World, might: Sequence[Known], startable: NDArray[np.bool_]
    ) -> list[Decision]:
        """Who starts, by the scores."""
        options = self.options
        self._foretell(world, math.ceil(options.horizon_s / options.step_s) + 1)
        waiting = self._waiting(snapshot, world, might)
        scores = np.where(startable, self._scores(waiting), -np.inf)
        falling = np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable").tolist()
        of = int(startable.sum())
        decisions: list[Decision] = []
        blocked = False
        for rank, k in enumerate((k for k in falling if startable[k]), 1):
            job = might[k]
            job.score, job.rank, job.of = float(scores[k]), rank, of
            text = self._where(snapshot, job)
            job.free = max(0.0, float(min(world.groups[text].left[0], world.groups[""].left[0])))
            if not scores[k] > -np.inf:
                job.reason = f"{self.scorer.name} holds it back for now"
            elif blocked:
                job.reason = f"it is {_ordinal(rank)} of {of}, and one before it does not fit"
            elif self._now_s < job.again_s:
                continue
            elif self._fits(snapshot, world, job):
                self._take(world, job)
                decisions.append(self._start(job))
            else:
                blocked = self._packing == "prefix"
        return decisions

    def _fits(self, snapshot: Snapshot, world: World, job: Known) -> bool:
        """Is there room for a job until its time limit? If not, why stands in its reason."""
        text, many = self._where(snapshot, job), self._cells(job)
        place = f"it is {_ordinal(job.rank)} of {job.of}"
        everywhere, here = world.groups[""], world.groups[text]
        if not (here.left[0] >= job.cores and everywhere.left[0] >= job.cores):
            job.reason = f"{place}, and {job.free:.0f} cores are free for its {job.cores}"
            return False
        if not (here.fits(job.cores, many) and everywhere.fits(job.cores, many)):
            job.reason = f"{place}, and on-demand jobs are expected to need its cores before it would end"
            return False
        if world.places is not None:
            idle, memory = world.places.idle.copy(), world.places.memory_bytes.copy()
            if not world.places.take(job.cores, job.nodes, self._memory(snapshot, job), here.nodes):
                job.reason = f"{place}, and no {'nodes have' if job.nodes > 1 else 'node has'} room for it"
                return False
            world.places.idle, world.places.memory_bytes = idle, memory  # `_take` does it for good
        return True

    def _scores(self, waiting: Waiting) -> Floats:
        """The policy's scores; those of `edf` if it errs."""
        try:
            found = scores_of(self.scorer, waiting)
            self._erred = ""
        except Exception as error:  # whatever it is, the cycle goes on
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            if not self._erred:
                self.said.append(f"the policy {self.scorer.name} errs, edf decides meanwhile: {why}")
            self._erred = why
            found = scores_of(self._edf, waiting)
        return found

    def _waiting(self, snapshot: Snapshot, world: World, might: Sequence[Known]) -> Waiting:
        """The state as policies know it, in steps."""
        step_s, jobs = self.options.step_s, snapshot.jobs
        now = math.floor(self._now_s / step_s)

        def step(time_s: float) -> int:
            return int(min(max(math.floor(time_s / step_s), now - MOST_STEPS), now + MOST_STEPS))

        earliest = np.array([step(job.window.earliest_s) for job in might], np.int64)
        # who may start within this step may start now, and who may not yet, not before the next
        may = np.array([job.window.earliest_s <= self._now_s for job in might])
        earliest = np.where(may, np.minimum(earliest, now), np.maximum(earliest, now + 1))
        latest = np.maximum(np.array([step(job.window.latest_s) for job in might], np.int64), earliest)
        left = [self._steps(float(jobs.limit_end_s[row]) - self._now_s) for row in world.running]
        return Waiting(
            now=now,
            cores=np.array([job.cores for job in might], np.int32),
            duration=np.array([self._steps(job.needs_s) for job in might], np.int32),
            earliest=earliest.astype(np.int32),
            latest=np.maximum(latest, now).astype(np.int32),
            submitted=np.minimum([step(job.submit_s) for job in might], now).astype(np.int32),
            capacity=world.capacity,
            running_cores=jobs.cores[world.running].astype(np.int32),
            running_left=np.array(left, np.int32),
            past=self._history.past(now),
        )

    def _start(self, job: Known) -> Decision:
        """By its score."""
        held = not math.isnan(job.until_s)
        job.reason = (
            f"it is {_ordinal(job.rank)} of {job.of}, and {job.free:.0f} cores are free for its {job.cores} "
            "until its time limit"
        )
        job.state, job.since_s, job.until_s, job.wished_s = "let go", self._now_s, math.nan, math.nan
        self._counts["let go"] += 1
        self._started += job.cores
        detail = self._numbers(job) | {"urgent": False, "was_held": held}
        return Start(self._cause(job.reason, detail), job.row)

    def _expected(self, snapshot: Snapshot, world: World, might: Sequence[Known]) -> list[float]:
        """In how many seconds each would start in the cluster's queue, as far as is known now.

        Whose latest start comes first is put first where there is room for him, then the next.
        """
        if not might or not self.options.lead:
            return [0.0] * len(might)
        texts = list(world.groups)
        left = np.array([group.left for group in world.groups.values()])
        horizon = left.shape[1]
        order = sorted(range(len(might)), key=lambda k: (might[k].window.latest_s, k))
        jobs = [might[k] for k in order]
        early = [math.ceil((job.window.earliest_s - self._now_s) / CELL_S) for job in jobs]
        first = first_fits(
            left,
            np.array([texts.index(self._where(snapshot, job)) for job in jobs], np.int32),
            np.array([job.cores for job in jobs], np.int32),
            np.array([self._cells(job) for job in jobs], np.int32),
            np.clip(early, 0, horizon).astype(np.int32),
        )
        found = [0.0] * len(might)
        for k, cell in zip(order, first.tolist(), strict=True):
            found[k] = cell * CELL_S
        return found

    def _too_late(self, job: Known, ahead_s: float) -> bool:
        """Would it start too late if it were held back any longer?"""
        last_s = job.window.latest_s - self.options.margin_s
        if self._now_s >= last_s:
            return True
        return job.window.earliest_s <= self._now_s and self._now_s + self.options.lead * ahead_s >= last_s

    def _let_go(self, job: Known, ahead_s: float) -> list[Decision]:
        """Its latest start comes: whatever is free, it is up to the cluster from now on."""
        job.state = "urgent"
        left_s = job.window.latest_s - self._now_s
        job.reason = (
            f"its latest start comes in {left_s:.0f} s" if left_s > 0 else "its latest start has passed"
        )
        if ahead_s > 0:
            job.reason += f", and room for it is expected in {ahead_s:.0f} s"
        self._counts["let go"] += 1
        self._started += job.cores
        detail = self._numbers(job) | {"urgent": True, "expected_s": ahead_s}
        return [Start(self._cause(job.reason, detail), job.row)]

    def _hold(self, job: Known, lease_s: float) -> list[Decision]:
        """Hold a job back for a lease, if it is not held for long enough; never beyond its latest start."""
        now_s = self._now_s
        if now_s < job.refused_s:
            return []
        early_s = job.window.earliest_s - now_s
        if early_s > self._soon_s and job.state == "future":
            return []  # its own begin time holds it
        if early_s > 0:
            job.reason = "its earliest start has not come"
        last_s = job.window.latest_s - self.options.margin_s
        until_s = min(max(now_s, job.window.earliest_s) + lease_s, last_s, now_s + self._most_lease_s)
        held_s = job.until_s - now_s if not math.isnan(job.until_s) else 0.0
        if held_s > 0.5 * lease_s or until_s <= max(now_s, job.window.earliest_s, now_s + held_s) + EXACT_S:
            return []
        job.wished_s = until_s
        reason = job.reason or "it has not been looked at yet"
        detail = self._numbers(job) | {"renewal": job.told}
        job.told = True
        return [Defer(self._cause(reason, detail), job.row, until_s)]

    # ---------------------------------------------------------------------------------------------------- measures

    @property
    def _soon_s(self) -> float:
        """So long before its earliest start a job is held back, so that the cluster does not start it by itself."""
        return 2.0 * self._poll_s + 1.0

    def _lease_s(self, many: int) -> float:
        least = self.options.lease_s or max(10.0, LEASE_CYCLES * self._poll_s)
        return min(max(least, (2 + many / UPDATES) * self._poll_s), self._most_lease_s)

    def _patience_s(self, job: Known) -> float:
        """Longer after each time that it came to nothing, up to 16 times."""
        return self.options.patience_s * 2.0 ** min(job.tries, 4)

    def _cells(self, job: Known) -> int:
        return cells(job.needs_s, max(1, math.ceil(self.options.horizon_s / CELL_S)))

    def _steps(self, seconds: float) -> int:
        """Steps, a part of one counting as one; from 1."""
        if not seconds < MOST_STEPS * self.options.step_s:
            return MOST_STEPS
        return max(1, math.ceil(seconds / self.options.step_s - 1e-9))

    @staticmethod
    def _memory(snapshot: Snapshot, job: Known) -> float:
        return float(snapshot.jobs.memory_bytes_per_core[job.row])

    # ----------------------------------------------------------------------------------------------------- telling

    def _cause(self, reason: str, detail: Mapping[str, Json]) -> Cause:
        return Cause(self.name, reason, {"stage": "defer", **detail})

    def _numbers(self, job: Known) -> dict[str, Json]:
        """The numbers behind a decision, as plain data."""
        return {
            "job": job.key,
            "cores": job.cores,
            "score": _finite(job.score),
            "rank": job.rank or None,
            "of": job.of or None,
            "free_cores": _finite(job.free),
            "earliest_s": _finite(job.window.earliest_s),
            "latest_s": _finite(job.window.latest_s),
            "slack_s": _finite(job.window.latest_s - self._now_s),
            "because": job.window.why,
        }

    def _reason(self, job: Known) -> str:
        if not job.seen and not job.until_s > self._now_s:
            return "it waits for something other than its turn, or is gone"
        return f"not done: {job.refused}" if self._now_s < job.refused_s else job.reason

    def explain(self, job: str) -> dict[str, Json] | None:
        """Why a deferrable job waits or was let go; None if it is not known."""
        key = job if job in self._jobs or job in self._missed else job.partition("_")[0]
        known = self._jobs.get(key)
        if known is None:
            if key not in self._missed and key not in self._ours:
                return None
            missed_s = self._missed.get(key)
            state = "runs" if missed_s is None else "missed"
            return {"job": key, "policy": self.name, "state": state, "latest_s": missed_s}
        return {
            "policy": self.name,
            "now_s": _finite(self._now_s),
            "state": known.state,
            "reason": self._reason(known),
            "held_until_s": _finite(known.until_s),
            "missed": known.missed,
            "tries": known.tries,
            **self._numbers(known),
        }

    def overview(self) -> dict[str, Json]:
        """All deferrable jobs that wait, and what is left to them."""
        world, step_s = self._world, self.options.step_s
        at = math.floor(self._now_s / step_s) if math.isfinite(self._now_s) else 0
        ahead: list[Json] = []
        if world is not None:
            found = self._history.forecast(
                at, world.capacity, self._history.steps_a_day, self.options.quantile
            )
            ahead = [[(at + k) * step_s, _finite(value)] for k, value in enumerate(found.tolist())]
        order = sorted(self._jobs.values(), key=lambda job: (job.rank or math.inf, job.submit_s))
        return {
            "policy": self.name,
            "now_s": _finite(self._now_s),
            "step_s": step_s,
            "packing": self._packing,
            "capacity": None if world is None else world.capacity,
            "held_cores": None if world is None else world.held,
            "known_days": round(self._history.known_steps / self._history.steps_a_day, 2),
            "waiting": len(self._jobs),
            "running": len(self._ours),
            "counts": dict(self._counts),
            "erred": self._erred or None,
            "missed": [[key, late_s] for key, late_s in self._missed.items()],
            "forecast": ahead,
            "jobs": [
                {"state": job.state, "reason": self._reason(job), **self._numbers(job)}
                for job in order[:MOST_TOLD]
            ],
        }

    def words(self) -> str:
        """The deferrable jobs, for the sentence of a cycle; empty if there are none."""
        if not self._jobs and not self._ours:
            return ""
        held = sum(job.state in ("future", "held") for job in self._jobs.values())
        return f"{held} deferrable held back, {len(self._ours)} run"

    # ---------------------------------------------------------------------------------------------------- knowledge

    def state(self) -> dict[str, dict[str, Json]]:
        """Everything that another process needs: the history, and which jobs that run were deferrable."""
        self.changed = False
        told = self._history.to_json()
        by_hand = [job.key for job in self._jobs.values() if job.state == "by hand"]
        told["*"] = {"running": [*sorted(self._ours)], "by_hand": [*sorted({*by_hand, *self._by_hand})]}
        return told

    def restore(self, memory: Mapping[str, Mapping[str, Json]]) -> None:
        """Know again what `state` told; what cannot be read is passed over."""
        self._history.restore(memory)
        common = memory.get("*", {})
        self._ours |= _names(common.get("running"))
        self._by_hand |= _names(common.get("by_hand"))


def rehearse(policy: Deferral) -> None:
    """Two made-up jobs through the policy's scores, so that what it compiles is compiled before real ones come."""
    two = np.ones(2, np.int32)
    none = np.zeros(0, np.int32)
    waiting = Waiting(10, two, two, 10 * two, 12 * two, 9 * two, 4.0, none, none, nothing_past())
    scores_of(policy.scorer, waiting)
    first_fits(np.full((1, 4), 4.0), 0 * two, two, two, 0 * two)


def key_of(snapshot: Snapshot, row: int) -> str:
    """Of a task the number of its array, of another job its own."""
    name, array = str(snapshot.jobs.job_id[row]), int(snapshot.jobs.array[row])
    return name if array < 0 else name.partition("_")[0] if "_" in name else f"array {array}"


def _names(value: Json) -> set[str]:
    if not isinstance(value, list):
        return set()
    return {name for name in value if isinstance(name, str) and 0 < len(name) < 100}


def _ours(job: Known, begin_s: float) -> bool:
    """Is a begin time of our making?"""
    return abs(begin_s - job.until_s) < EXACT_S or abs(begin_s - job.wished_s) < EXACT_S


def _nobody(snapshot: Snapshot, row: int) -> bool:
    return False


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
