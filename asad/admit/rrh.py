"""`rrh`: the risk-reward heuristic: first what gains most for what it costs the others; who costs more is turned away.

Irwin, Grit, Chase: Balancing Risk and Reward in a Market-Based Task Service (HPDC 2004), as section V of the OASiS
paper runs it. A job has a fixed number of workers (`ElasticJob.fixed_workers`) and runs or pauses; who runs is decided
anew when a job arrives or ends; only a rigid job that runs is not asked again. Options: `threshold`, the least net gain
for which a job is admitted (utility; default 0); `shared` (yes), see below.

- Reward, by which jobs are ordered: (gain - cost) / slots still to run. The gain is the job's utility if it ran from
  now on. The cost is what all other unfinished jobs would lose by waiting until it is done: so the heuristic's own
  paper has it, for tasks that take turns. Here many run side by side, and `shared` multiplies the cost by the dominant
  share of the cluster that the job takes. It does better so; without, it is the heuristic as published.
- Admission: the candidate schedule (list scheduling in the order of rewards, paused jobs starting as soon as they fit)
  is drawn up with and without the new job. It is admitted if its utility there, less what all others lose by its
  presence, is above the threshold. The heuristic's own paper divides by a linear decay; a sigmoid has none.

Cost of an arrival or end: O(jobs²·(H + K)·R).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from asad.admit.drf import dominant_share
from asad.admit.elastic import Allotment, ElasticJob, Scheme, Servers, Verdict
from asad.admit.first_fit_servers import Room, Shared, first_fit, refusal, take_on
from asad.compiling import compiled
from asad.model import Floats


@compiled
def list_schedule(
    free_workers: Floats,
    free_servers: Floats,
    worker: Floats,
    server: Floats,
    width: NDArray[np.int64],
    beside: NDArray[np.int64],
    length: NDArray[np.int64],
    shared: Shared,
    end: NDArray[np.int64],
) -> None:
    """When jobs end that start as soon as they fit, those before others first.

    `worker`, `server` (J, R) are demands of one worker and one parameter server, `width` and `beside` (J,) how many of
    each, `length` (J,) slots. `end` (J,) becomes the slot, from now, after the last one; -1 for what never fits.
    """
    jobs = len(width)
    at = np.zeros((jobs, len(free_workers)), np.int32)
    at_beside = np.zeros((jobs, len(free_servers)), np.int32)
    end[:] = -1
    now = 0
    while True:
        for i in range(jobs):
            if end[i] >= 0 or not first_fit(free_workers, worker[i], width[i], shared, at[i]):
                continue
            if first_fit(free_servers, server[i], beside[i], shared, at_beside[i]):
                end[i] = now + length[i]
            else:
                for h in range(len(free_workers)):
                    if at[i, h] > 0:
                        take_on(free_workers, h, -at[i, h] * worker[i], shared)
        then = -1
        waiting = False
        for i in range(jobs):
            waiting = waiting or end[i] < 0
            if end[i] > now and (then < 0 or end[i] < then):
                then = end[i]
        if not waiting or then < 0:
            return
        for i in range(jobs):
            if end[i] == then:
                for h in range(len(free_workers)):
                    if at[i, h] > 0:
                        take_on(free_workers, h, -at[i, h] * worker[i], shared)
                for k in range(len(free_servers)):
                    free_servers[k] += at_beside[i, k] * server[i]
        now = then


class Rrh(Scheme):
    """Risk against reward, with fixed widths."""

    name = "rrh"

    def __init__(self, servers: Servers, threshold: float = 0.0, shared: bool = True) -> None:
        self.servers = servers
        self.shared = shared
        self.threshold = threshold
        self._jobs: dict[int, ElasticJob] = {}
        self._share: dict[int, float] = {}
        self._left: dict[int, int] = {}
        """Worker-slots still to do once the slot that was dealt last is over."""
        self._running: dict[int, Allotment] = {}
        self._changed = False

    def arrive(self, number: int, job: ElasticJob) -> Verdict:
        """Admitted if its utility is worth more than what it costs those that are there."""
        refused = refusal(self.servers, job, job.fixed_width)
        if refused is not None:
            return refused
        others = [other for other in self._jobs if self._left[other] > 0]
        self._jobs[number], self._left[number] = job, job.work
        self._share[number] = dominant_share(self.servers, job) * job.fixed_width if self.shared else 1.0
        without = self._candidate(others, job.arrival)
        with_it = self._candidate([*others, number], job.arrival)
        lost = sum(without[other] - with_it[other] for other in others)
        gain = with_it[number]
        if gain - lost <= self.threshold:
            for kept in (self._jobs, self._left, self._share):
                del kept[number]
            return Verdict(
                False,
                f"it would be worth {gain:.4g} and cost the jobs that are there {lost:.4g}",
                payoff=gain - lost, cost=lost, utility=gain,
            )  # fmt: skip
        self._changed = True
        return Verdict(
            True, f"it is worth {gain:.4g} and costs {lost:.4g}", payoff=gain - lost, cost=lost, utility=gain
        )

    def allot(self, slot: int, left: Mapping[int, int]) -> Mapping[int, Allotment]:
        """Who runs stays so until a job arrives or ends; then the best rewards run, where they ran if they can."""
        for number in [number for number in self._jobs if number not in left]:
            for kept in (self._jobs, self._share):
                del kept[number]
            self._running.pop(number, None)
            self._changed = True
        self._left = {number: left[number] for number in self._jobs}
        if self._changed:
            room = Room(self.servers)
            before, self._running = self._running, {}
            for number in self._in_turn(list(self._jobs), slot, before):
                job = self._jobs[number]
                held = before.get(number)
                if held is None or not room.take(job, held):
                    held = room.place(job, job.fixed_width)
                if held is not None:
                    self._running[number] = held
            self._changed = False
        for number, held in self._running.items():
            self._left[number] -= held.width
        return dict(self._running)

    def _length(self, number: int) -> int:
        return -(-self._left[number] // self._jobs[number].fixed_width)

    def _in_turn(self, numbers: Sequence[int], slot: int, running: Mapping[int, Allotment]) -> list[int]:
        """Rigid jobs that run go on; then all others by their reward."""
        order = self._by_reward(numbers, slot)
        return sorted(order, key=lambda number: not (self._jobs[number].rigid and number in running))

    def _by_reward(self, numbers: Sequence[int], slot: int) -> list[int]:
        """In falling order of reward; of equal ones the first to arrive."""
        lengths = {number: self._length(number) for number in numbers}
        passed = {number: slot - self._jobs[number].arrival for number in numbers}
        now = {n: self._jobs[n].utility(passed[n] + lengths[n]) for n in numbers}
        losses: dict[int, float] = {}  # of all jobs, by how long they would wait
        rewards: dict[int, float] = {}
        for n in numbers:
            delay = lengths[n]
            if delay not in losses:
                losses[delay] = sum(
                    now[o] - self._jobs[o].utility(passed[o] + lengths[o] + delay) for o in numbers
                )
            own = now[n] - self._jobs[n].utility(passed[n] + lengths[n] + delay)
            rewards[n] = (now[n] - self._share[n] * (losses[delay] - own)) / delay
        return sorted(numbers, key=lambda n: -rewards[n])

    def _candidate(self, numbers: Sequence[int], slot: int) -> dict[int, float]:
        """Utility of each job in the candidate schedule; 0 of one that would never start."""
        if not numbers:
            return {}
        order = self._in_turn(numbers, slot, self._running)
        some = [self._jobs[number] for number in order]
        width = np.array([job.fixed_width for job in some], np.int64)
        end = np.zeros(len(order), np.int64)
        room = Room(self.servers)
        list_schedule(
            room.workers,
            room.parameter_servers,
            np.array([job.worker for job in some], np.float64),
            np.array([job.server for job in some], np.float64),
            width,
            np.array([job.servers_for(int(w)) for job, w in zip(some, width, strict=True)], np.int64),
            np.array([self._length(number) for number in order], np.int64),
            room.shared,
            end,
        )
        return {
            number: job.utility(slot - job.arrival + int(when)) if when >= 0 else 0.0
            for number, job, when in zip(order, some, end, strict=True)
        }
