"""`fcfs`: first come, first served. No plans, no prices: jobs that have arrived wait in a queue.

Options: none. Cost: O(queue · log) a round. Baseline of the specification.
"""

from __future__ import annotations

from asad_papers.sow.rounds import Clock, Instance, Outcome, run_queue


def run(instance: Instance, clock: Clock | None = None) -> Outcome:
    """In the order of arrival, ties by birth; a job that does not fit lets later ones pass."""
    return run_queue(instance, "fcfs", lambda job, _: float(job.arrival), clock)
