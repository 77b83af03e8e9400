"""What the status of a task means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LOST_STATES = frozenset(("TASK_LOST", "TASK_DROPPED", "TASK_GONE", "TASK_GONE_BY_OPERATOR", "TASK_UNKNOWN"))
OVER_STATES = LOST_STATES | {"TASK_FINISHED", "TASK_FAILED", "TASK_KILLED", "TASK_ERROR"}
STARTED_STATES = frozenset(("TASK_STARTING", "TASK_RUNNING", "TASK_KILLING"))
ITS_OWN = frozenset(
    (
        "REASON_COMMAND_EXECUTOR_FAILED",
        "REASON_CONTAINER_LIMITATION",
        "REASON_CONTAINER_LIMITATION_DISK",
        "REASON_CONTAINER_LIMITATION_MEMORY",
        "REASON_MAX_COMPLETION_TIME_REACHED",
    )
)
"""Reasons of TASK_FAILED for which the task itself is to blame, and another attempt would end alike."""


def not_to_blame(status: Mapping[str, Any]) -> bool:
    """Did a task fail for a reason outside of itself?"""
    if status.get("source") == "SOURCE_EXECUTOR":
        return False
    return "reason" in status and status["reason"] not in ITS_OWN


def exit_of(status: Mapping[str, Any] | None) -> int | None:
    """The exit status that our executor tells in a label; minus the number of a signal."""
    for label in (status or {}).get("labels", {}).get("labels", ()):
        if label.get("key") == "exit":
            try:
                return int(label.get("value", ""))
            except ValueError:
                return None
    return None


def takes_guests(status: Mapping[str, Any]) -> bool:
    """Does the executor that tells it know what to do with tasks of other jobs?"""
    labels = status.get("labels", {}).get("labels", ())
    return any(label.get("key") == "guests" for label in labels)


def refused(status: Mapping[str, Any]) -> bool:
    """Did our executor not begin it, through no fault of the task's?"""
    labels = status.get("labels", {}).get("labels", ())
    return any(label.get("key") == "refused" for label in labels)
