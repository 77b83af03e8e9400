"""How like the cluster of the log the simulated Slurm is, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asad.replay.results import ReplayResult
from asad.report import units

MOST = 20
CAPTION = "How like the cluster the simulated Slurm is"
LEFT_OUT = "What the simulated Slurm does not go by"
HEADS = (
    "Partition", "jobs", "recorded wait", "simulated", "median", "simulated", "rank correlation", "close", "like it",
)  # fmt: skip


def rows(result: ReplayResult) -> list[Mapping[str, Any]]:
    """What is known of it, of all jobs first; empty where the log has no starts, or nothing was simulated."""
    found = result.baseline.get("fidelity")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def goes_by(result: ReplayResult) -> tuple[str, ...]:
    """What the simulated Slurm goes by beside cores and time."""
    found = result.baseline.get("goes_by")
    return tuple(units.plain(str(one), 60) for one in found) if isinstance(found, list) else ()


def tables(result: ReplayResult) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Caption, heads and rows: how like the cluster it is, and what it does not go by; as far as there is any."""
    found = [one] if (one := table(result)) else []
    left_out = result.baseline.get("not_simulated")
    if isinstance(left_out, list) and left_out:
        listed = [
            (units.plain(str(one["what"]), 90), units.plain(str(one["jobs"]), 12))
            for one in left_out[:MOST]
            if isinstance(one, dict)
        ]
        found.append((LEFT_OUT, ("What", "jobs"), list[tuple[str, ...]](listed)))
    return found


def table(result: ReplayResult) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]] | None:
    """Caption, heads and rows; None where there is nothing to show."""
    found = rows(result)
    if not found:
        return None
    return (
        CAPTION,
        HEADS,
        [
            (
                units.plain(one["partition"], 30) or "all",
                units.number(one["jobs"]),
                units.duration(one["recorded_mean_s"]),
                units.duration(one["simulated_mean_s"]),
                units.duration(one["recorded_median_s"]),
                units.duration(one["simulated_median_s"]),
                units.number(one["rank_correlation"], 2),
                units.percent(one["close"]),
                "yes" if one["alike"] else "no",
            )
            for one in found[:MOST]
        ],
    )
