"""Against what policies are replayed: what happened, or a simulated Slurm; and what each of the two says of a log.

Recorded starts are an estimate with a plain meaning: every job runs when and where the log has it, and lending pulls
waiting jobs forward. What would move up behind them is what the simulated Slurm is for, which is not their cluster.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from asad.errors import UsageError
from asad.model import JobLog, Json
from asad.replay.policies import FLUID, SCHEDULING, admits, defers, lends, states
from asad.replay.readers import Recorded
from asad.replay.recorded_starts import lacks
from asad.replay.replay_settings import Settings

FIVE_SEEDS_JOBS = 15_000
"""Up to so many jobs, of which a policy is replayed in at most ten seconds, a replay has five seeds; else three."""


def resolved(settings: Settings, recorded: Recorded) -> tuple[Settings, str]:
    """The settings with one of the two baselines, and why `auto` became the simulated one, or the empty string.

    Raises UsageError where recorded starts are asked for, and log or policies cannot carry them.
    """
    if settings.baseline == "simulated":
        return settings, ""
    why = lacks(recorded) or _reschedules(settings)
    if not why:
        return replace(settings, baseline="recorded"), ""
    if settings.baseline == "recorded":
        raise UsageError(f"--baseline recorded: {why}; leave the option out, or write --baseline simulated")
    return replace(settings, baseline="simulated"), why


def _reschedules(settings: Settings) -> str:
    """What of the settings needs a scheduler that starts jobs itself, or the empty string."""
    for name in settings.policies:
        if name in (FLUID, *SCHEDULING) and name != "slurm":
            return f"{name} schedules every job itself"
        for does, what in (
            (admits, "admits or delays jobs"),
            (states, "plans jobs"),
            (defers, "defers jobs"),
        ):
            if settings.of(does, name):
                return f"{name} {what}"
    given = (
        ("--utility", settings.utilities),
        ("--deferrable", settings.deferrable),
        ("--statements", settings.statements),
        ("--pass per-event", settings.per_event),
        ("--overrun run", settings.overrun == "run"),
    )
    return next(
        (f"{option} is about jobs that a scheduler starts" for option, is_given in given if is_given), ""
    )


def lender(settings: Settings) -> str:
    """The policy of which more is asked: asad's own if it is there, else the first that lends; empty for none."""
    if "asax" in settings.policies:
        return "asax"
    return next((name for name in settings.policies if settings.of(lends, name)), "")


def usual_repeat(settings: Settings, jobs: int) -> int:
    """With how many seeds so many jobs are replayed where nobody says so: one where the seed draws nothing that counts.

    By the number of jobs and not by the time that a replay takes, so that all machines come to the same.
    """
    if (
        not settings.lending
        or not settings.any_of(lends)
        or settings.values
        or settings.defers
        or settings.states
    ):
        return 1
    return 5 if jobs <= FIVE_SEEDS_JOBS else 3


def recorded_figures(jobs: JobLog) -> dict[str, Json]:
    """What the log itself says of waiting: means and medians in seconds; None where it has no starts."""
    started = ~np.isnan(jobs.start_s)
    if not started.all() or not len(jobs):
        return {"wait_mean_s": None, "wait_median_s": None, "response_mean_s": None}
    wait = np.maximum(jobs.start_s - jobs.queued_s, 0.0)
    return {
        "wait_mean_s": float(wait.mean()),
        "wait_median_s": float(np.median(wait)),
        "response_mean_s": float((wait + jobs.run_s).mean()),
    }
