"""What the reasons of waits mean, and what they say to an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from asad.replay.results import ReplayResult
from asad.report import units

MEANING = {
    "limit": "a limit of its user, account or QOS kept it from starting",
    "cores": "too few cores were free in its partition",
    "nodes": "cores were free, but not so many on one node, or on so many nodes",
    "memory": "too little memory was free where cores were",
    "gres": "too few GPUs or other gres were free",
    "order": "there was room, and others of its partition waited too: priority, reservations, the scheduler's depth",
    "unexplained": "there was room, and nobody else waited in its partition",
}
LENDING = ("cores", "nodes", "order")
"""What lending CPU can shorten."""
MOST = 0.5


def waited_for(result: ReplayResult) -> dict[str, float]:
    """Parts of the recorded wait by reason; empty where they were not split."""
    found = result.baseline.get("why_waited")
    rows: Any = found.get("reasons", []) if isinstance(found, dict) else []
    return {str(row["reason"]): float(row["share"]) for row in rows}


def sentence(jobs: int, found: Mapping[str, Any]) -> str:
    """How long jobs waited, mostly for what, and whether lending can help; `found` as `asactl waits --json` has it."""
    shares = {row["reason"]: row["share"] for row in found["reasons"]}
    begin = f"{units.plural(jobs, 'job')} waited {units.duration(found['wait_mean_s'])} on average"
    if not any(shares.values()):
        return f"{begin}."
    parts = [
        f"{units.percent(share)} {reason}"
        for reason, share in sorted(shares.items(), key=lambda pair: -pair[1])
        if share >= 0.01
    ]
    text = f"{begin}: {', '.join(parts)}."
    if shares["limit"] >= MOST:
        first = found["limits"][0]["limit"]
        return f"{text} Most of the wait is limits, which no lending can shorten; the one that took most is {first}."
    can = sum(shares[reason] for reason in LENDING)
    return f"{text} Lending CPU can shorten at most {units.percent(can)} of it."


LIVE_MEANING = {
    "limit": "a limit of its user, account or QOS keeps it from starting; as a guest, too",
    "no room": "too few cores, nodes, memory, gres or licences are free",
    "order": "others stand before it: priority, reservations, the depth of the scheduler",
    "not eligible": "it may not start yet, or not at all: held, a begin time, a dependency, its array's limit, more "
    "than its partition allows",
    "other": "a reason of the cluster's that is none of these",
}
"""Of the reasons that a live cluster gives (`asad.cluster.reason_words`)."""
LIVE_LENDING = ("no room", "order")


def live_sentence(reasons: Sequence[Mapping[str, Any]]) -> str:
    """How many jobs wait, for what, and how many of them lending can help; rows as the daemon's `waits` has them."""
    jobs = {str(row["reason"]): int(row["jobs"]) for row in reasons}
    total = sum(jobs.values())
    if not total:
        return "No job waits."
    parts = [f"{units.percent(count / total)} {word}" for word, count in jobs.items() if count]
    can = sum(jobs.get(word, 0) for word in LIVE_LENDING)
    text = f"{units.plural(total, 'job')} {'waits' if total == 1 else 'wait'}: {', '.join(parts)}."
    if jobs.get("limit", 0) > can:
        return f"{text} Limits, which bind guests too, hold up more than lending could help: look at those first."
    return f"{text} Lending CPU can help {units.number(can)} of them at most."
