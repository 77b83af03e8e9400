"""The probability that a job fails, by Monte Carlo over the plans of those born before it.

Source: 004, Lemma 3.1, section 4.2 and appendix F. Whoever needs a place that somebody born earlier needs too has to
go, so a job's failure depends on earlier plans alone, and is known (up to sampling) when the job is born. Kept are M
possible futures: each holds, for every job that is announced and not over, one way in which it may come, drawn from
its statement given what is known of it by now, and who is evicted there. A new job is estimated against what they
hold, then drawn into each of them; nothing that was drawn before is looked at again. Once a round, what has been
learned of the jobs still active (arrived, not yet arrived, still running) is drawn in: a draw that it contradicts is
drawn anew from what remains possible, the others stand, and evictions follow in the order of birth. So each future
stays a draw from the distribution given all that is known, and the cost of a round is that of the jobs then active.

How many (`sample_count`): the empirical probability to fail within d rounds of a start is, in d, an empirical
distribution function. By the inequality of Dvoretzky, Kiefer and Wolfowitz (with Massart's constant) M samples are off
by more than μ for some d with probability at most 2·exp(-2·M·μ²), which is Hoeffding's bound for a single d; a union
bound over the starts gives M = ln(2·starts / (1 - confidence)) / (2·μ²).

With several resources (cores first, then those that were counted) a job goes if any that it needs is full. Each has
a load of its own, and the same loops run over it. From the first job on that found it full, nobody born later that
needs it holds a place in that round: what is full is a function of who was born earlier alone, as with one resource.

Cost: a job O(M · rounds of its window · resources that it needs) for its estimate and its draw, and as much in each
round that it is active. Memory: 4·M·window·resources + 8·M·jobs active bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.admit.sow.statement import NEVER, Bounds, Statement
from asad.compiling import compiled
from asad.errors import UsageError
from asad.model import Floats, Ints

Shorts = NDArray[np.int16]
Index = NDArray[np.int64]

MOST_SAMPLES = 1_000_000
UNDRAWN = -1
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
GUIDES = 64
GUIDE_BITS = np.uint64(26)
GUIDE_WIDTH = np.uint64(2**26)


def sample_count(error: float, confidence: float, starts: int) -> int:
    """M, so that all estimates for a job are within `error` with probability `confidence`."""
    if not 0.0 < error < 1.0 or not 0.0 < confidence < 1.0:
        raise UsageError(
            f"sow: error {error:g} and confidence {confidence:g}: write numbers between 0 and 1, such as 0.05 and 0.99"
        )
    samples = math.ceil(math.log(2.0 * starts / (1.0 - confidence)) / (2.0 * error * error))
    if samples > MOST_SAMPLES:
        raise UsageError(f"sow: error {error:g} needs {samples} samples; allow a larger one")
    return samples


class Jobs(NamedTuple):
    """What is known of jobs and drawn of them, by slot."""

    demand: Index
    """By slot and resource."""
    birth: Index
    rows: Index
    arrived: Index
    """Arrival of the row as which it came; -1: not yet."""
    signal: Index
    """Its signal then."""
    start: Index
    number: Index
    possible: Index
    """How many rows were possible when it was last drawn; `UNDRAWN`: not yet. They only become fewer."""
    cut: Index
    """1: in some future it is evicted, and its end there is not what was drawn."""
    row_arrival: Ints
    row_signal: Ints
    row_duration: Ints
    row_start: Ints
    """By row of its statement; of its plan, for that row."""
    row_weight: Floats
    drawn: NDArray[np.uint16]
    """By slot and future: the row as which it comes there."""
    begin: Shorts
    end: Shorts
    """By slot and future: rounds after its birth; where it is evicted, it ends then."""
    last: Shorts
    """By slot and future: its end if it is not evicted."""

    @classmethod
    def of(cls, slots: int, rows: int, samples: int, resources: int) -> Jobs:
        """So many, with so many rows each."""
        of_job: list[Any] = [np.zeros((slots, resources), np.int64)]
        of_job += [np.zeros(slots, np.int64) for _ in range(8)]
        of_row: list[Any] = [np.zeros((slots, rows), np.int32) for _ in range(4)]
        of_future: list[Any] = [np.zeros((slots, samples), np.int16) for _ in range(3)]
        drawn = np.zeros((slots, samples), np.uint16)
        return cls._make([*of_job, *of_row, np.zeros((slots, rows)), drawn, *of_future])


class Futures:
    """M possible futures of the jobs that are announced and not over. Jobs are known by the slots that `add` gives."""

    def __init__(self, bounds: Bounds, samples: int, seed: int, cancel_waiting: bool) -> None:
        """`cancel_waiting`: jobs go latest born first whether they run or wait, as in Algorithm 1; else only those that
        run or would start."""
        self.samples = samples
        self._seed, self._cancel = np.uint64(seed), cancel_waiting
        self._window = bounds.span + bounds.max_duration
        ring = (self._window, samples)
        self.names: tuple[str, ...] = ()
        """Of the resources beside the first."""
        self._load: Shorts = np.zeros((1, *ring), np.int16)
        """By resource, round (a ring) and future: units held by those who are not evicted there."""
        self._burst: Shorts = np.zeros((1, *ring), np.int16)
        """1 where somebody has to go in that round, and with him whoever runs there, needs it and is born later."""
        self._most: Index = np.zeros((1, self._window), np.int64)
        """By resource and round: units that could be held in some future; where they fit, nobody has to go."""
        self._supply: Shorts = np.full((1, self._window), bounds.capacity, np.int16)
        self._flags: NDArray[np.uint8] = np.zeros(ring, np.uint8)
        self._sum: NDArray[np.uint8] = np.zeros(samples, np.uint8)
        self._now, self._fresh = 0, True
        self._jobs = Jobs.of(64, 16, samples, 1)
        self._free = list(range(63, -1, -1))

    # --------------------------------------------------------------------------------------------------- what is known

    def step(self, now: int) -> None:
        """Round `now` has begun."""
        self._now, self._fresh = now, False

    def count(self, name: str, capacity: int) -> None:
        """Another resource, of which no job has held any so far."""
        for what in ("_load", "_burst", "_most"):
            held = getattr(self, what)
            setattr(self, what, np.concatenate((held, np.zeros_like(held[:1]))))
        self._supply = np.concatenate((self._supply, np.full((1, self._window), capacity, np.int16)))
        self._jobs = self._jobs._replace(demand=np.pad(self._jobs.demand, ((0, 0), (0, 1))))
        self.names += (name,)

    def limit(self, first: int, supply: Shorts) -> None:
        """(resources, window) units that others leave to jobs with statements in rounds `first`, `first` + 1, …"""
        self._supply[:, (first + np.arange(self._window)) % self._window] = supply
        self._fresh = False

    def add(self, number: int, statement: Statement, starts: Ints, lengths: Ints) -> int:
        """A job is planned, with (k,) `starts` by row of its statement: it is drawn into every future.

        (k,) `lengths` are the rounds that it then runs at the most, 1 or more. `number` seeds its draws. Returns its
        slot.
        """
        rows = len(statement.arrival)
        if not self._free or rows > self._jobs.row_arrival.shape[1]:
            self._grow(rows)
        slot, jobs = self._free.pop(), self._jobs
        jobs.demand[slot] = self.demands(statement.demand, statement.tres)
        jobs.birth[slot] = self._now
        jobs.rows[slot], jobs.number[slot] = rows, number
        jobs.arrived[slot], jobs.signal[slot], jobs.start[slot] = -1, 0, NEVER
        jobs.possible[slot], jobs.cut[slot] = UNDRAWN, 0
        jobs.row_arrival[slot, :rows], jobs.row_signal[slot, :rows] = statement.arrival, statement.signal
        jobs.row_duration[slot, :rows], jobs.row_start[slot, :rows] = lengths, starts
        jobs.row_weight[slot, :rows] = statement.probability
        if self._fresh:
            self._draw(np.array([slot]))
        return slot

    def demands(self, demand: int, tres: Mapping[str, int]) -> Index:
        """(resources,) units of the first, and of the others by name."""
        return np.array([demand, *(tres.get(name, 0) for name in self.names)], np.int64)

    def arrived(self, slot: int, arrival: int, signal: int, start: int) -> None:
        """It has come as the row of its statement with this arrival and signal does, and starts in round `start`."""
        jobs, self._fresh = self._jobs, False
        jobs.arrived[slot], jobs.signal[slot], jobs.start[slot] = arrival, signal, start

    def remove(self, slot: int) -> None:
        """It is over."""
        self._free.append(slot)
        self._fresh = False

    # ------------------------------------------------------------------------------------------------------- estimates

    def refresh(self, slots: Iterable[int]) -> None:
        """Draw in what has been learned since; `slots` are those of all active jobs, in the order of birth."""
        if not self._fresh:
            for held in (self._load, self._burst, self._most):
                held[:] = 0
            self._draw(np.fromiter(slots, np.int64))
            self._fresh = True

    def table(
        self,
        demand: int,
        first: int,
        out: Floats,
        threshold: float,
        needed: NDArray[np.bool_],
        tres: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """(S, D) probability that `demand` units for 1, …, D rounds from start `first`, `first` + 1, … on do not last,
        and units of other resources by name beside them.

        For a job born now, after all that were added. `first` is the present round or later. What is below `threshold`
        becomes 0 (Algorithm 2). Where (D,) `needed` is False, `out` is left as it is.
        """
        _estimate(
            self._load, self._burst, self._most, self._supply, self._now, first, self.demands(demand, tres),
            self._cancel, self._flags, self._sum, threshold, needed, out,
        )  # fmt: skip

    def _draw(self, order: Index) -> None:
        world = (self._load, self._burst, self._most, self._supply)
        _draw_in(world, self._jobs, order, self._now, self._seed, self._cancel)

    def _grow(self, rows: int) -> None:
        """Room for a job of so many rows, and for twice as many jobs if there is none; what is there stays."""
        before, width = self._jobs.row_arrival.shape
        slots = before if self._free else 2 * before
        grown = Jobs.of(slots, max(rows, width), self.samples, 1 + len(self.names))
        for old, new in zip(list[Any](self._jobs), list[Any](grown), strict=True):
            new[tuple(slice(length) for length in old.shape)] = old
        self._jobs = grown
        self._free.extend(range(slots - 1, before - 1, -1))


@compiled
def _mix(x: np.uint64) -> np.uint64:
    """The finaliser of splitmix64: 64 bits that look like chance from any others."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def _draw_in(
    world: tuple[Any, ...], jobs: Jobs, order: Index, now: int, seed: np.uint64, cancel: bool
) -> None:
    """Each job of `order` in turn: what is contradicted is drawn anew, then it takes its place in each future."""
    load, burst, most, supply = world
    (
        demand, birth, rows, arrived, heard, begun, number, possible, cut,
        row_arrival, row_signal, row_duration, row_start, row_weight, drawn, begin, end, last_end,
    ) = jobs  # fmt: skip
    resources, ring, samples = load.shape
    load_0, burst_0, most_0, supply_0 = load[0], burst[0], most[0], supply[0]
    width = row_arrival.shape[1]
    fits = np.zeros(width, np.bool_)
    upto = np.zeros(width, np.float64)
    row_begin = np.zeros(width, np.int16)
    row_end = np.zeros(width, np.int16)
    for slot in order:
        born, count = birth[slot], rows[slot]
        total = 0.0
        left, last = 0, -1
        first, final = np.int64(2**40), np.int64(0)
        for k in range(count):
            # what is known of it as of the beginning of this round
            if arrived[slot] >= 0:
                fit = row_arrival[slot, k] == arrived[slot] and row_signal[slot, k] == heard[slot]
                fit = fit and begun[slot] + row_duration[slot, k] > now
            else:
                fit = row_arrival[slot, k] >= now
            fits[k] = fit
            if fit:
                total += row_weight[slot, k]
                left += 1
                last = k
            upto[k] = total
            start = row_start[slot, k]
            row_begin[k] = 0 if start == NEVER else start - born
            row_end[k] = 0 if start == NEVER else start - born + row_duration[slot, k]
            if fit:
                first = min(first, np.int64(row_begin[k]))
                final = max(final, np.int64(row_end[k]))
        b, e, final_e, row = begin[slot], end[slot], last_end[slot], drawn[slot]
        if left > 0:
            if left != possible[slot]:
                key = _mix(seed ^ _mix(np.uint64(number[slot]) + np.uint64(now) * GOLDEN))
                _redraw(row, fits, upto, last, total, key, possible[slot] == UNDRAWN)
                possible[slot] = left
                for m in range(samples):
                    b[m] = row_begin[row[m]]
                    final_e[m] = row_end[row[m]]
                cut[slot] = 1
            if cut[slot] != 0:
                e[:] = final_e
        elif arrived[slot] >= 0 and begun[slot] <= now:
            # it runs longer than was stated: this round, and who knows
            first, final = begun[slot] - born, now + 1 - born
            b[:] = first
            e[:] = final
        else:
            continue  # it can come no more
        since = max(int(born + (0 if cancel else first)), now)
        gone = np.int16(0)
        own, several = demand[slot, 0], demand[slot, 1:].sum() > 0
        for t in range(since, min(born + final, now + ring)):
            at, ahead = t % ring, np.int16(t - born)
            most_0[at] += own
            room = most_0[at] <= supply_0[at] and not cancel
            if not several:
                if room:
                    _hold(load_0[at], b, e, ahead, np.int16(own))
                    continue
                gone |= _take(
                    load_0[at], burst_0[at], b, e, ahead, np.int16(own),
                    np.int16(supply_0[at] - own), np.int16(1 if cancel else 0),
                )  # fmt: skip
                continue
            for r in range(1, resources):
                most[r, at] += demand[slot, r]
                room = room and (demand[slot, r] == 0 or most[r, at] <= supply[r, at])
            for r in range(0 if room else resources):
                if demand[slot, r] > 0:
                    # of nothing yet: who has to go for one resource holds nothing of any
                    gone |= _take(
                        load[r, at], burst[r, at], b, e, ahead, np.int16(0),
                        np.int16(supply[r, at] - demand[slot, r]), np.int16(1 if cancel else 0),
                    )  # fmt: skip
            for r in range(resources):
                if demand[slot, r] > 0:
                    _hold(load[r, at], b, e, ahead, np.int16(demand[slot, r]))
        cut[slot] = gone


@compiled
def _redraw(
    row: NDArray[np.uint16],
    fits: NDArray[np.bool_],
    upto: Floats,
    last: int,
    total: float,
    key: np.uint64,
    anew: bool,
) -> None:
    """Draw a row wherever the one drawn before does not fit any more; `upto` are sums of the weights that do."""
    marks = np.empty(last + 1, np.uint64)
    for k in range(last + 1):
        marks[k] = np.uint64(4294967296.0 * (upto[k] / total))
    marks[last] = np.uint64(4294967296)
    # where to begin to look, by the leading bits of the chance
    guide = np.empty(GUIDES, np.int64)
    k = 0
    for g in range(GUIDES):
        while marks[k] <= np.uint64(g) * GUIDE_WIDTH:
            k += 1
        guide[g] = k
    for m in range(len(row)):
        if anew or not fits[row[m]]:
            key += GOLDEN
            chance = _mix(key) >> np.uint64(32)
            k = guide[np.int64(chance >> GUIDE_BITS)]
            while marks[k] <= chance:
                k += 1
            row[m] = k


@compiled
def _hold(load: Shorts, begin: Shorts, end: Shorts, now: np.int16, demand: np.int16) -> None:
    """`_take` of a round in which there is room for all."""
    for m in range(len(load)):
        runs = np.int16(np.int16(now < end[m]) & np.int16(begin[m] <= now))
        load[m] = np.int16(load[m] + np.int16(runs * demand))


@compiled
def _take(
    load: Shorts,
    burst: Shorts,
    begin: Shorts,
    end: Shorts,
    now: np.int16,
    demand: np.int16,
    most: np.int16,
    cancel: np.int16,
) -> np.int16:
    """One round of one job in all futures; 1 if it is evicted in some.

    Sixteen bits wide and without branches, so that it runs in vectors: every sum has to be cut to that width again.
    """
    some = np.int16(0)
    for m in range(len(load)):
        until = end[m]
        active = np.int16(now < until)
        runs = np.int16(active & np.int16(begin[m] <= now))
        over = np.int16(runs & np.int16(load[m] > most))
        gone = np.int16(over | np.int16(burst[m] & np.int16(runs | np.int16(active & cancel))))
        burst[m] = np.int16(burst[m] | over)
        load[m] = np.int16(load[m] + np.int16(np.int16(runs & ~gone) * demand))
        end[m] = np.int16(until + np.int16(gone * np.int16(now - until)))
        some = np.int16(some | gone)
    return some


@compiled
def _estimate(
    load: Shorts,
    burst: Shorts,
    most: Index,
    supply: Shorts,
    now: int,
    first: int,
    demand: Index,
    cancel: bool,
    flags: NDArray[np.uint8],
    failed: NDArray[np.uint8],
    threshold: float,
    needed: NDArray[np.bool_],
    out: Floats,
) -> None:
    resources, ring, samples = load.shape
    starts, durations = out.shape
    some = np.zeros(ring, np.bool_)
    final = min(first + starts + durations - 1, now + ring)
    for t in range(first, final):
        at = t % ring
        for r in range(resources):
            if demand[r] > 0 and most[r, at] + demand[r] > supply[r, at]:
                left = np.int16(supply[r, at] - demand[r])
                if some[at]:
                    _full_too(load[r, at], burst[r, at], left, flags[at])
                else:
                    some[at] = _full(load[r, at], burst[r, at], left, flags[at])
    for i in range(starts):
        s = first + i
        any_failed, known = False, True
        if cancel:
            failed[:] = 0
            for t in range(now, s):
                for r in range(resources):
                    if demand[r] > 0:
                        any_failed |= _add(burst[r, t % ring], failed)
            known = not any_failed
        count = 0
        for d in range(durations):
            t = s + d
            if t < final and some[t % ring]:
                if any_failed:
                    _or(flags[t % ring], failed)
                else:
                    failed[:] = flags[t % ring]
                any_failed, known = True, False
            if needed[d]:
                if not known:
                    count = _sum(failed)
                    known = True
                part = count / samples if t < final else 1.0
                out[i, d] = part if part >= threshold else 0.0


@compiled
def _full(load: Shorts, burst: Shorts, most: np.int16, flags: NDArray[np.uint8]) -> bool:
    """Where a new job would have to go in this round; is there such a future at all?"""
    found = np.uint8(0)
    for m in range(len(load)):
        flag = np.uint8(load[m] > most) | np.uint8(burst[m])
        flags[m] = flag
        found |= flag
    return bool(found != 0)


@compiled
def _full_too(load: Shorts, burst: Shorts, most: np.int16, flags: NDArray[np.uint8]) -> None:
    """The same of another resource, beside what is flagged."""
    for m in range(len(load)):
        flags[m] |= np.uint8(load[m] > most) | np.uint8(burst[m])


@compiled
def _add(burst: Shorts, failed: NDArray[np.uint8]) -> bool:
    found = np.uint8(0)
    for m in range(len(burst)):
        flag = np.uint8(burst[m])
        failed[m] |= flag
        found |= flag
    return bool(found != 0)


@compiled
def _or(flags: NDArray[np.uint8], failed: NDArray[np.uint8]) -> None:
    for m in range(len(flags)):
        failed[m] |= flags[m]


@compiled
def _sum(failed: NDArray[np.uint8]) -> int:
    total = np.int64(0)
    for m in range(len(failed)):
        total += np.int64(failed[m])
    return int(total)
