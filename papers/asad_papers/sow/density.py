"""`density`: the job that is worth most per unit and round goes first, whatever it pays.

Options: none. Cost: O(queue · log) a round. A yardstick, not a mechanism: nothing keeps its jobs from overstating.
"""

from __future__ import annotations

from asad_papers.sow.rounds import Clock, Instance, Job, Outcome, run_queue, worth_if_started


def run(instance: Instance, clock: Clock | None = None) -> Outcome:
    """Of the jobs that have arrived: value if started now, over demand times duration."""

    def order(job: Job, now: int) -> float:
        return -worth_if_started(job, now, instance.bounds) / (job.statement.demand * job.duration)

    return run_queue(instance, "density", order, clock)
