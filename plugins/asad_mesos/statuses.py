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


def read_status(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Of a status of the master what is made use of, or sent back. Raises KeyError or TypeError if it is none."""
    status: dict[str, Any] = {
        key: plain[key] for key in ("source", "reason", "message", "labels") if key in plain
    }
    status["task_id"], status["state"] = {"value": str(plain["task_id"]["value"])}, str(plain["state"])
    if "agent_id" in plain:
        status["agent_id"] = {"value": str(plain["agent_id"]["value"])}
    if "uuid" in plain:
        status["uuid"] = str(plain["uuid"])
    return status


def not_to_blame(status: Mapping[str, Any]) -> bool:
    """Did a task fail for a reason outside of itself?"""
    if status.get("source") == "SOURCE_EXECUTOR":
        return False
    return "reason" in status and str(status["reason"]) not in ITS_OWN


def exit_of(status: Mapping[str, Any] | None) -> int | None:
    """The exit status that our executor gives in a label; minus the number of a signal."""
    try:
        found = int(_labels(status or {}).get("exit", ""))
    except ValueError:
        return None
    return found if abs(found) < 2**31 else None


def takes_guests(status: Mapping[str, Any]) -> bool:
    """Does the executor that reports it know what to do with tasks of other jobs?"""
    return "guests" in _labels(status)


def refused(status: Mapping[str, Any]) -> bool:
    """Did our executor not begin it, through no fault of the task's?"""
    return "refused" in _labels(status)


def _labels(status: Mapping[str, Any]) -> dict[str, str]:
    """By key. Labels are an executor's, which runs what a user wants: what is no label is left out."""
    labels = status.get("labels")
    rows = labels.get("labels") if isinstance(labels, Mapping) else None
    labelled = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    return {str(row.get("key")): str(row.get("value", "")) for row in reversed(labelled)}
