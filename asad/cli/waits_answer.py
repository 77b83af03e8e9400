"""What `asactl waits --json` prints, as `asad.cli.json_answers` has it of all commands."""

from __future__ import annotations

from typing import Any, TypedDict


class Waits(TypedDict):
    """`asactl waits`"""

    log: dict[str, Any]
    machine: dict[str, Any]
    wait_mean_s: float
    wait_median_s: float
    not_eligible_h: float
    """Hours before jobs became eligible, in no other figure."""
    reasons: list[dict[str, Any]]
    limits: list[dict[str, Any]]
    """Those that jobs waited for, given or inferred, most hours first."""
    last_reasons: list[dict[str, Any]]
    """Jobs by what kept them waiting last, in Slurm's words; empty where the log has none."""
    started_by: list[dict[str, Any]]
    """Jobs by who started them, by Slurm's flags; empty where the log has none."""
    by: dict[str, list[dict[str, Any]]]
