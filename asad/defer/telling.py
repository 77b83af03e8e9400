"""What is told of deferral, as plain data: the numbers behind a decision, one job, and all of them."""

from __future__ import annotations

import math

from asad.defer.known import Known
from asad.model import Json


def numbers(job: Known, now_s: float) -> dict[str, Json]:
    """The numbers behind a decision."""
    return {
        "job": job.key,
        "cores": job.cores,
        "score": plain(job.score),
        "rank": job.rank or None,
        "of": job.of or None,
        "free_cores": plain(job.free),
        "earliest_s": plain(job.window.earliest_s),
        "latest_s": plain(job.window.latest_s),
        "slack_s": plain(job.window.latest_s - now_s),
        "because": job.window.why,
    }


def reason(job: Known, now_s: float) -> str:
    """Why it waits, or was let go."""
    if not job.seen and not job.until_s > now_s:
        return "it waits for something other than its turn, or is gone"
    return f"not done: {job.refused}" if now_s < job.refused_s else job.reason


def story(job: Known, now_s: float) -> dict[str, Json]:
    """One job: why it waits or was let go."""
    return {
        "now_s": plain(now_s),
        "state": job.state,
        "reason": reason(job, now_s),
        "held_until_s": plain(job.until_s),
        "missed": job.missed,
        "tries": job.tries,
        **numbers(job, now_s),
    }


def row(job: Known, now_s: float) -> dict[str, Json]:
    """One job of many."""
    return {"state": job.state, "reason": reason(job, now_s), **numbers(job, now_s)}


def plain(value: float) -> float | None:
    """A number as plain data; one that is not known, or not finite, is None."""
    return float(value) if math.isfinite(value) else None
