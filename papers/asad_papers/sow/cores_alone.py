"""The plain way to plan jobs that need GPUs: cores are announced, priced and planned, and GPUs go to who is first.

A job starts no sooner than its plan says, as soon as all that it needs is free, in the order of planned starts; what
its plan does not hold it waits for, as in a queue. Who would be worth nothing any more leaves. Who is evicted for cores
goes. Cost: that of the mechanism, and O(waiting) a round.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from asad.admit.sow.mechanism import Posted
from asad.admit.sow.statement import NEVER
from asad_papers.sow.rounds import Instance, Outcome, by_round, needs_of, signal_of


def cores_alone(instance: Instance, mechanism: Posted) -> Outcome:
    """Let it plan what jobs need of the first resource, and run them over all resources of the instance."""
    jobs, bounds = instance.jobs, instance.bounds
    births = by_round([job.statement.birth for job in jobs], instance.rounds)
    arrivals = by_round([job.arrival for job in jobs], instance.rounds)
    start, payment, expected = (np.full(len(jobs), fill) for fill in (NEVER, 0.0, 0.0))
    free, due, running = dict(instance.capacity), dict[int, int](), dict[int, int]()
    welfare, planned, evicted = 0.0, 0, 0

    def release(number: int) -> int:
        for name, units in needs_of(jobs[number].statement).items():
            free[name] += units
        return running.pop(number)

    for now in range(instance.rounds + 1):
        mechanism.step(now)
        for number in [one for one, begun in running.items() if begun + jobs[one].duration == now]:
            payment[number] = mechanism.complete(number, now)
            start[number] = release(number)
            welfare += jobs[number].value(int(start[number]), bounds.least_value)
        if now == instance.rounds:
            break
        for number in births[now]:
            answer = mechanism.submit(number, replace(jobs[number].statement, tres={}))
            expected[number] = answer.utility
            planned += not answer.plan.never
        for number in arrivals[now]:
            job = jobs[number]
            begins = mechanism.arrive(number, now, signal_of(job.statement, job.arrival, job.duration))
            if begins is not None:
                due[number] = begins
        for eviction in mechanism.evict(now):
            if due.pop(eviction.job, None) is None and eviction.job in running:
                release(eviction.job)
            evicted += 1
        for number in sorted(due, key=lambda one: (due[one], one)):
            needs = needs_of(jobs[number].statement)
            if due[number] > now:
                continue
            if jobs[number].value(now, bounds.least_value) <= 0.0:
                del due[number]
                mechanism.withdraw(number, now)
            elif all(units <= free[name] for name, units in needs.items()):
                for name, units in needs.items():
                    free[name] -= units
                del due[number]
                running[number] = now
    return Outcome(welfare, planned, evicted, start.astype(np.int32), payment, expected)
