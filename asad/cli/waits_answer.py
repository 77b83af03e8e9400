"""What `asactl waits --json` prints, as `asad.cli.json_answers` has it of all commands."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class Waits(TypedDict):
    """`asactl waits`: of a log; without one of what waits now (`now_s`), or with `--since` of what has waited."""

    reasons: list[dict[str, Any]]
    by: dict[str, list[dict[str, Any]]]
    log: NotRequired[dict[str, Any]]
    machine: NotRequired[dict[str, Any]]
    wait_mean_s: NotRequired[float]
    wait_median_s: NotRequired[float]
    not_eligible_h: NotRequired[float]
    """Hours before jobs became eligible, in no other figure."""
    limits: NotRequired[list[dict[str, Any]]]
    """Those that jobs waited for, given or inferred, most hours first."""
    last_reasons: NotRequired[list[dict[str, Any]]]
    """Jobs by what kept them waiting last, in Slurm's words; empty where the log has none."""
    started_by: NotRequired[list[dict[str, Any]]]
    """Jobs by who started them, by Slurm's flags; empty where the log has none."""
    now_s: NotRequired[float]
    waiting: NotRequired[int]
    since_s: NotRequired[float]
    first_s: NotRequired[float | None]
    """Nothing was kept before; null: nothing is kept."""
