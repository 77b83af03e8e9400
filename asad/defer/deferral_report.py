"""What is reported of deferral, as plain data: the numbers behind a decision, one job, and all of them."""

from __future__ import annotations

from asad.defer.deferrable_job import Deferrable
from asad.hold import plain
from asad.model import Json


def numbers(job: Deferrable, now_s: float) -> dict[str, Json]:
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


def reason(job: Deferrable, now_s: float) -> str:
    """Why it waits, or was let go."""
    if not job.seen and not job.until_s > now_s:
        return "it waits for something other than its turn, or is gone"
    return f"not done: {job.refused}" if now_s < job.retry_s else job.reason


def story(job: Deferrable, now_s: float) -> dict[str, Json]:
    """One job: why it waits or was let go."""
    return {
        "now_s": plain(now_s),
        "state": job.hold.value,
        "reason": reason(job, now_s),
        "held_until_s": plain(job.until_s),
        "missed": job.missed,
        "tries": job.tries,
        **numbers(job, now_s),
    }


def row(job: Deferrable, now_s: float) -> dict[str, Json]:
    """One job of many."""
    return {"state": job.hold.value, "reason": reason(job, now_s), **numbers(job, now_s)}
