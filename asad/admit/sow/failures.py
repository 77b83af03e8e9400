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

Cost: a job O(M · rounds of its window) for its estimate and its draw, and as much in each round that it is active.
Memory: 4·M·window + 6·M·jobs active bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from asad.admit.sow.statement import NEVER, Bounds, LaunchPlan, Statement
from asad.errors import UsageError
from asad.model import Floats, Ints

Shorts = NDArray[np.int16]
Index = NDArray[np.int64]

MOST_SAMPLES = 1_000_000


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


class Futures:
    """M possible futures of the jobs that are announced and not over. Jobs are known by the slots that `add` gives."""

    def __init__(self, bounds: Bounds, samples: int, seed: int, cancel_waiting: bool) -> None:
        """`cancel_waiting`: jobs go latest born first whether they run or wait, as in Algorithm 1; else only those that
        run or would start."""
        self.bounds, self.samples = bounds, samples
        self._seed, self._cancel = np.uint64(seed), cancel_waiting
        self._window = bounds.span + bounds.max_duration
        ring = (self._window, samples)
        self._load: Shorts = np.zeros(ring, np.int16)
        """By round (a ring) and future: units held by those who are not evicted there."""
        self._burst: Shorts = np.zeros(ring, np.int16)
        """1 where somebody has to go in that round, and with him whoever runs there and is born later."""
        self._supply: Shorts = np.full(self._window, bounds.capacity, np.int16)
        self._flags: NDArray[np.uint8] = np.zeros(ring, np.uint8)
        self._sum: NDArray[np.uint8] = np.zeros(samples, np.uint8)
        self._now = 0
        self._fresh = True
        self._free: list[int] = []
        self._make(64, 16)

    # --------------------------------------------------------------------------------------------------- what is known

    def step(self, now: int) -> None:
        """Round `now` has begun."""
        self._now, self._fresh = now, False

    def limit(self, first: int, supply: Shorts) -> None:
        """(window,) units that others leave to jobs with statements in rounds `first`, `first` + 1, …"""
        self._supply[(first + np.arange(self._window)) % self._window] = supply
        self._fresh = False

    def add(self, number: int, statement: Statement, plan: LaunchPlan) -> int:
        """A job is planned: it is drawn into every future. `number` seeds its draws. Returns its slot."""
        rows = len(statement.arrival)
        if not self._free or rows > self._row_arrival.shape[1]:
            self._make(max(64, 2 * len(self._demand) if not self._free else len(self._demand)), rows)
        slot = self._free.pop()
        self._demand[slot], self._birth[slot] = statement.demand, self._now
        self._rows[slot], self._number[slot] = rows, number
        self._arrived[slot], self._told[slot], self._start[slot] = -1, 0, NEVER
        self._drawn_before[slot] = 0
        _fill(
            self._row_arrival[slot],
            self._row_signal[slot],
            self._row_duration[slot],
            self._row_start[slot],
            self._row_weight[slot],
            statement.arrival,
            statement.signal,
            statement.duration,
            statement.probability,
            plan.arrival,
            plan.signal,
            plan.start,
        )
        if self._fresh:
            _draw_in(self._world(), np.array([slot]), self._now, self._seed, self._cancel)
        return slot

    def arrived(self, slot: int, arrival: int, signal: int, start: int) -> None:
        """It has come as the row of its statement with this arrival and signal does, and starts in round `start`."""
        self._arrived[slot], self._told[slot], self._start[slot] = arrival, signal, start
        self._fresh = False

    def remove(self, slot: int) -> None:
        """It is over."""
        self._free.append(slot)
        self._fresh = False

    # ------------------------------------------------------------------------------------------------------- estimates

    def refresh(self, slots: Iterable[int]) -> None:
        """Draw in what has been learned since; `slots` are those of all active jobs, in the order of birth."""
        if not self._fresh:
            self._load[:] = 0
            self._burst[:] = 0
            order = np.fromiter(slots, np.int64)
            _draw_in(self._world(), order, self._now, self._seed, self._cancel)
            self._fresh = True

    def table(self, demand: int, first: int, out: Floats) -> None:
        """(S, D) probability that `demand` units for 1, …, D rounds from start `first`, `first` + 1, … on do not last.

        For a job born now, after all that were added. `first` is the present round or later.
        """
        _estimate(
            self._load, self._burst, self._supply, self._now, first, demand, self._cancel,
            self._flags, self._sum, out,
        )  # fmt: skip

    def mean_load(self, rounds: int) -> Floats:
        """(rounds,) mean over the futures of the units held from the present round on."""
        at = (self._now + np.arange(min(rounds, self._window))) % self._window
        mean: Floats = self._load[at].mean(axis=1)
        return mean

    # --------------------------------------------------------------------------------------------------------- storage

    def _make(self, slots: int, rows: int) -> None:
        """Room for so many jobs with so many rows each; what is there stays."""
        before = len(self._demand) if hasattr(self, "_demand") else 0
        rows = max(rows, self._row_arrival.shape[1] if before else 0)

        def grown(name: str, dtype: Any, *more: int) -> None:
            made = np.zeros((slots, *more), dtype)
            if before:
                old = getattr(self, name)
                made[(slice(0, before), *(slice(0, length) for length in old.shape[1:]))] = old
            setattr(self, name, made)

        for name in ("_demand", "_birth", "_rows", "_arrived", "_told", "_start", "_number", "_drawn_before"):
            grown(name, np.int64)
        for name in ("_row_arrival", "_row_signal", "_row_duration", "_row_start"):
            grown(name, np.int32, rows)
        grown("_row_weight", np.float64, rows)
        grown("_drawn", np.uint16, self.samples)
        grown("_begin", np.int16, self.samples)
        grown("_end", np.int16, self.samples)
        self._free.extend(range(slots - 1, before - 1, -1))

    _demand: Index
    _birth: Index
    _rows: Index
    _arrived: Index
    """Arrival of the row as which it came; -1: not yet."""
    _told: Index
    """Its signal then."""
    _start: Index
    _number: Index
    _drawn_before: Index
    """0: it has no draws yet."""
    _row_arrival: Ints
    _row_signal: Ints
    _row_duration: Ints
    _row_start: Ints
    """Of its plan, for that row."""
    _row_weight: Floats
    _drawn: NDArray[np.uint16]
    """By slot and future: the row as which it comes there."""
    _begin: Shorts
    _end: Shorts
    """By slot and future: rounds after its birth; where it is evicted, it ends then."""

    def _world(self) -> tuple[Any, ...]:
        return (
            self._load, self._burst, self._supply,
            self._demand, self._birth, self._rows, self._arrived, self._told, self._start,
            self._number, self._drawn_before,
            self._row_arrival, self._row_signal, self._row_duration, self._row_start, self._row_weight,
            self._drawn, self._begin, self._end,
        )  # fmt: skip


@njit(cache=True)
def _fill(  # type: ignore[no-untyped-def]
    row_arrival, row_signal, row_duration, row_start, row_weight,
    arrival, signal, duration, probability, plan_arrival, plan_signal, plan_start,
):  # fmt: skip
    for k in range(len(arrival)):
        row_arrival[k] = arrival[k]
        row_signal[k] = signal[k]
        row_duration[k] = duration[k]
        row_weight[k] = probability[k]
        row_start[k] = NEVER
        for g in range(len(plan_arrival)):
            if plan_arrival[g] == arrival[k] and plan_signal[g] == signal[k]:
                row_start[k] = plan_start[g]


@njit(cache=True)
def _mix(x):  # type: ignore[no-untyped-def]
    """The finaliser of splitmix64: 64 bits that look like chance from any others."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True)
def _draw_in(world, order, now, seed, cancel):  # type: ignore[no-untyped-def]
    """Each job of `order` in turn: what is contradicted is drawn anew, then it takes its place in each future."""
    (
        load, burst, supply,
        demand, birth, rows, arrived, told, begun, number, drawn_before,
        row_arrival, row_signal, row_duration, row_start, row_weight,
        drawn, begin, end,
    ) = world  # fmt: skip
    ring, samples = load.shape
    most = row_arrival.shape[1]
    possible = np.zeros(most, np.bool_)
    upto = np.zeros(most, np.float64)
    row_begin = np.zeros(most, np.int16)
    row_end = np.zeros(most, np.int16)
    for slot in order:
        born, count = birth[slot], rows[slot]
        total = 0.0
        last = -1
        for k in range(count):
            # what is known of it as of the beginning of this round
            if arrived[slot] >= 0:
                fits = row_arrival[slot, k] == arrived[slot] and row_signal[slot, k] == told[slot]
                fits = fits and begun[slot] + row_duration[slot, k] > now
            else:
                fits = row_arrival[slot, k] >= now
            possible[k] = fits
            if fits:
                total += row_weight[slot, k]
                last = k
            upto[k] = total
            start = row_start[slot, k]
            if arrived[slot] >= 0:
                start = begun[slot]
            if start == NEVER:
                row_begin[k] = 0
                row_end[k] = 0
            else:
                row_begin[k] = start - born
                row_end[k] = start - born + row_duration[slot, k]
        b, e, row = begin[slot], end[slot], drawn[slot]
        if last >= 0:
            key = _mix(seed ^ _mix(np.uint64(number[slot]) + np.uint64(now) * np.uint64(0x9E3779B97F4A7C15)))
            anew = drawn_before[slot] == 0
            for m in range(samples):
                k = np.int64(row[m])
                if anew or not possible[k]:
                    key += np.uint64(0x9E3779B97F4A7C15)
                    mark = (_mix(key) >> np.uint64(11)) * (1.0 / 9007199254740992.0) * total
                    k = 0
                    while k < last and upto[k] <= mark:
                        k += 1
                    row[m] = k
                b[m] = row_begin[k]
                e[m] = row_end[k]
            drawn_before[slot] = 1
            first, final = np.int64(row_begin[last]), np.int64(row_end[last])
            for k in range(count):
                if possible[k]:
                    first = min(first, np.int64(row_begin[k]))
                    final = max(final, np.int64(row_end[k]))
        elif arrived[slot] >= 0 and begun[slot] <= now:
            # it runs longer than was stated: this round, and who knows
            b[:] = begun[slot] - born
            e[:] = now + 1 - born
            first, final = begun[slot] - born, now + 1 - born
        else:
            continue  # it can come no more, or never runs
        first = max(born + (0 if cancel else first), now)
        for t in range(first, min(born + final, now + ring)):
            at = t % ring
            _take(
                load[at], burst[at], b, e, np.int16(t - born), np.int16(demand[slot]),
                np.int16(supply[at] - demand[slot]), np.int16(1 if cancel else 0),
            )  # fmt: skip


@njit(cache=True)
def _take(load, burst, begin, end, now, demand, most, cancel):  # type: ignore[no-untyped-def]
    """One round of one job in all futures. Sixteen bits wide and without branches, so that it runs in vectors."""
    for m in range(len(load)):
        active = np.int16(now < end[m])
        runs = active & np.int16(begin[m] <= now)
        over = runs & np.int16(load[m] > most)
        gone = over | (burst[m] & (runs | (active & cancel)))
        burst[m] |= over
        load[m] += (runs & (np.int16(1) - gone)) * demand
        end[m] = now if gone != 0 else end[m]


@njit(cache=True)
def _estimate(load, burst, supply, now, first, demand, cancel, flags, failed, out):  # type: ignore[no-untyped-def]
    ring, samples = load.shape
    starts, durations = out.shape
    some = np.zeros(ring, np.bool_)
    final = min(first + starts + durations - 1, now + ring)
    for t in range(first, final):
        at = t % ring
        some[at] = _full(load[at], burst[at], np.int16(supply[at] - demand), flags[at])
    for i in range(starts):
        s = first + i
        any_failed = False
        if cancel:
            failed[:] = 0
            for t in range(now, s):
                any_failed |= _add(burst[t % ring], failed)
        count = 0
        if any_failed:
            count = _sum(failed)
        for d in range(durations):
            t = s + d
            if t >= final:
                count = samples
            elif some[t % ring]:
                if not any_failed:
                    failed[:] = flags[t % ring]
                    any_failed = True
                else:
                    _or(flags[t % ring], failed)
                count = _sum(failed)
            out[i, d] = count / samples


@njit(cache=True)
def _full(load, burst, most, flags):  # type: ignore[no-untyped-def]
    """Where a new job would have to go in this round; is there such a future at all?"""
    found = np.uint8(0)
    for m in range(len(load)):
        flag = np.uint8(load[m] > most) | np.uint8(burst[m])
        flags[m] = flag
        found |= flag
    return found != 0


@njit(cache=True)
def _add(burst, failed):  # type: ignore[no-untyped-def]
    found = np.uint8(0)
    for m in range(len(burst)):
        flag = np.uint8(burst[m])
        failed[m] |= flag
        found |= flag
    return found != 0


@njit(cache=True)
def _or(flags, failed):  # type: ignore[no-untyped-def]
    for m in range(len(flags)):
        failed[m] |= flags[m]


@njit(cache=True)
def _sum(failed):  # type: ignore[no-untyped-def]
    total = 0
    for m in range(len(failed)):
        total += np.int64(failed[m])
    return total
